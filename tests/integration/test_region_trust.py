"""Whom the controller of a region takes for its neighbour, over real connections to a real controller."""

from __future__ import annotations

import json
import random
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from controller_process import ControllerProcess, eventually, free_ports
from identities import answer_of, issued

from hyroads.controller.agents.lead import MAX_EPOCH
from hyroads.controller.core.checking import TlsFiles
from hyroads.controller.core.identity import CertificateRole
from hyroads.controller.files.tls import client_side, server_side
from hyroads.mininet.run_directory import find_network

TOKEN = "a-token-of-the-regions"
SEGMENT = {
    "node": "c",
    "end": {"number": 20, "paths": [3, 209], "max_hold_ms": 100, "ordered": True},
    "flow": {"id": "down", "from": "a", "to": "d"},
}
NOTHING = {"type": "wanted", "seq": 1, "segments": [], "silent": [], "away": []}
WANTED = {**NOTHING, "seq": 2, "segments": [SEGMENT]}


class South:
    """The controller of one of two regions; we are the other one, at both ends of the connections between them."""

    def __init__(self, folder: Path, **region: Any) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(10)
        (self.port,) = free_ports(1)
        peers = {"north": {"port": self.listener.getsockname()[1]}}
        self.controller = ControllerProcess(
            folder,
            {"network": str(find_network("two-buildings")), "region": {"name": "south", "peers": peers, **region}},
        )
        document = json.loads(self.controller.settings.read_text())
        document["listen"]["peer"] = {"port": self.port}
        self.controller.settings.write_text(json.dumps(document))

    def hello(self, context: ssl.SSLContext | None = None) -> dict[str, Any]:
        """What it says of itself, with our name in place of its own."""
        connection, _ = self.listener.accept()
        with context.wrap_socket(connection, server_side=True) if context else connection as line:
            line.settimeout(10)
            document: dict[str, Any] = json.loads(line.makefile("rb").readline())
        return {**document, "region": "north"}

    def flows(self) -> set[str]:
        return {flow["id"] for flow in self.controller.rest("GET", "/flows")[1]["flows"]}

    def problems(self) -> list[str]:
        return [error["what"] for error in self.controller.rest("GET", "/health")[1]["last_errors"]]

    def exceptions(self) -> list[str]:
        """Lines of its log that tell of a defect."""
        return [line for line in self.controller.log.read_text().splitlines() if "Traceback" in line]


class Line:
    """A connection to it."""

    def __init__(self, south: South, context: ssl.SSLContext | None = None) -> None:
        self.socket: socket.socket = socket.create_connection(("127.0.0.1", south.port), timeout=10)
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_hostname="127.0.0.1")
        self.file = self.socket.makefile("rb")

    def say(self, *documents: Mapping[str, Any]) -> None:
        for document in documents:
            self.socket.sendall(json.dumps(document).encode() + b"\n")

    def next(self) -> Any:
        """The next answer; None at the end."""
        line = self.file.readline()
        return json.loads(line) if line else None

    def close(self) -> None:
        self.file.close()
        self.socket.close()


@contextmanager
def running(folder: Path, **region: Any) -> Iterator[South]:
    south = South(folder, **region)
    with south.listener, south.controller:
        yield south
    assert south.exceptions() == []


@pytest.fixture(scope="module")
def south(tmp_path_factory: pytest.TempPathFactory) -> Iterator[South]:
    with running(tmp_path_factory.mktemp("south"), token=TOKEN) as found:
        yield found


@pytest.fixture(scope="module")
def hello(south: South) -> dict[str, Any]:
    return south.hello()


def refused(south: South, hello: Mapping[str, Any]) -> str:
    line = Line(south)
    line.say(hello)
    answer = line.next()
    assert answer["type"] == "refused" and line.next() is None
    line.close()
    return str(answer["message"])


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"token": "another"}, "wrong token"),
        ({"token": "\ud800"}, "wrong token"),
        ({"token": None}, "wrong token"),
        ({"region": "south"}, "expected a neighbour of south"),
        ({"region": "west"}, "expected a neighbour of south"),
        ({"network": "0" * 32}, "same network file"),
        ({"version": 1}, "version 2"),
        ({"version": "2"}, "expected a hello"),
        ({"region": []}, "expected a hello"),
        ({"type": "wanted"}, "expected a hello"),
        *(({"epoch": epoch}, "a hello with an epoch") for epoch in (-1, True, 1.5, "7", 2**63, None)),
    ],
)
def test_who_is_no_neighbour_is_told_why(south: South, hello: Any, change: Any, problem: str) -> None:
    assert problem in refused(south, {**hello, **change})
    assert "down@north" not in south.flows()


@pytest.mark.parametrize(
    "data", [b"x" * 70_000, b"[]\n", b"\xff\xfe\n", b"[" * 60_000 + b"\n", b"\n", b"GET / HTTP/1.1\r\n\r\n"]
)
def test_what_is_no_hello_ends_the_connection(south: South, data: bytes) -> None:
    line = Line(south)
    with suppress(OSError):
        line.socket.sendall(data)
    with suppress(ConnectionResetError):
        assert line.socket.recv(1) == b""
    line.close()


def test_many_who_never_say_who_they_are_keep_no_neighbour_out(south: South, hello: Any) -> None:
    with ExitStack() as stack:
        strangers = [stack.enter_context(socket.create_connection(("127.0.0.1", south.port))) for _ in range(64)]

        def greeted() -> bool:
            for stranger in strangers:
                # A byte now and then is not enough.
                with suppress(OSError):
                    stranger.sendall(b"{")
            line = Line(south)
            try:
                line.say(hello, NOTHING)
                return line.next() is not None
            except OSError:
                return False
            finally:
                line.close()

        eventually(greeted, 10)


def neighbour(south: South, hello: Mapping[str, Any], context: ssl.SSLContext | None = None) -> Line:
    """As soon as the last connection is seen to be gone."""

    def dialled() -> Line | None:
        line = Line(south, context)
        line.say(hello, NOTHING)
        if (line.next() or {}).get("type") in (None, "refused"):
            line.close()
            return None
        # After its epoch comes the answer to what is wanted.
        assert line.next()["type"] == "ok"
        line.say(WANTED)
        eventually(lambda: "down@north" in south.flows(), 5)
        return line

    found: Line = eventually(dialled, 10)
    return found


def test_a_second_session_of_a_neighbour_that_lives_is_refused(south: South, hello: Any) -> None:
    line = neighbour(south, hello)
    for _ in range(4):
        assert "connected already" in refused(south, hello)
        time.sleep(0.8)
        line.say({"type": "still", "seq": 2})
    assert "down@north" in south.flows()
    line.close()
    # It starts again.
    neighbour(south, hello).close()


def test_a_neighbour_that_is_silent_gives_way(south: South, hello: Any) -> None:
    silent = neighbour(south, hello)
    time.sleep(3.0)
    line = neighbour(south, hello)
    until_s = time.monotonic() + 5
    while silent.next() is not None:
        assert time.monotonic() < until_s
    line.say({"type": "still", "seq": 9})
    assert line.next()["type"] == "error"
    line.close()
    silent.close()


@contextmanager
def leading(south: South, epoch: int) -> Iterator[None]:
    """A controller at the neighbour's address leads with an epoch."""
    connection, _ = south.listener.accept()
    with connection:
        connection.sendall(json.dumps({"type": "ok", "seq": 0, "node": "", "epoch": epoch}).encode() + b"\n")
        yield


def still_heard(south: South, line: Line) -> None:
    """A connection is the one that is heard: what it says is answered."""
    line.say({"type": "still", "seq": 99})
    while (answer := line.next())["type"] != "error":
        pass
    assert "expected all that is wanted first" in answer["message"]
    assert "down@north" in south.flows()


def test_no_claimed_epoch_displaces_a_living_neighbour_or_keeps_it_out(tmp_path: Path) -> None:
    with running(tmp_path, token=TOKEN) as south:
        hello = south.hello()
        first = neighbour(south, {**hello, "epoch": 3})
        for forged in (4, 1_000_003, MAX_EPOCH):
            assert "no controller that region.peers names" in refused(south, {**hello, "epoch": forged})
            still_heard(south, first)
        first.close()
        # While none lives a claim is heard, and ends once the leader that its address shows is there.
        thief = neighbour(south, {**hello, "epoch": MAX_EPOCH})
        assert "no controller that region.peers names" in refused(south, {**hello, "epoch": 3})
        with leading(south, 3):
            back = neighbour(south, {**hello, "epoch": 3})
            still_heard(south, back)
        back.close()
        thief.close()


def test_of_several_controllers_of_a_neighbour_the_epoch_at_its_address_is_heard(tmp_path: Path) -> None:
    with running(tmp_path, token=TOKEN) as south, ExitStack() as stack:
        hello = south.hello()
        first = neighbour(south, {**hello, "epoch": 3})
        # It lives, and the next one is heard at once; it wants nothing more of what the first one wanted.
        stack.enter_context(leading(south, 4))

        def heard() -> Line | None:
            found = Line(south)
            found.say({**hello, "epoch": 4}, NOTHING)
            if found.next()["type"] != "refused":
                return found
            found.close()
            return None

        line: Line = eventually(heard, 2)
        eventually(lambda: "down@north" not in south.flows(), 2)
        with suppress(OSError):
            first.say({**WANTED, "seq": 3})
        until_s = time.monotonic() + 2
        while first.next() is not None:
            assert time.monotonic() < until_s
        assert "epoch 3 is over, who leads with 4 is heard" in refused(south, {**hello, "epoch": 3})
        assert "connected already" in refused(south, {**hello, "epoch": 4})
        line.close()
        # Also once nobody is connected.
        assert "epoch 0 is over" in refused(south, hello)
        assert "down@north" not in south.flows()
        first.close()


def broken(rng: random.Random, value: Any, depth: int = 0) -> Any:
    """A document in which some things are others."""
    odd = [None, True, -1, 2**70, 1e308, "", "\ud800", "x" * 5_000, [], {}, [[[]]], {"": {}}]
    if rng.random() < 0.12 and depth:
        return rng.choice(odd)
    if isinstance(value, dict):
        kept = {key: broken(rng, each, depth + 1) for key, each in value.items() if rng.random() > 0.05}
        return kept if rng.random() > 0.1 else {**kept, "more": rng.choice(odd)}
    if isinstance(value, list):
        return [broken(rng, each, depth + 1) for each in value for _ in range(rng.choice((1, 1, 1, 2)))]
    return value


def test_no_message_of_a_neighbour_is_a_defect(south: South, hello: Any) -> None:
    rng = random.Random(7)
    line = neighbour(south, hello)
    rates = {"type": "rates", "seq": 5, "flows": {"down": ["0123", 17.2, 0.02, None]}}
    changed = {**WANTED, "type": "changed", "since": 2, "seq": 3, "gone": [["c", "down"]]}
    answers = [{"type": "ok", "seq": 1, "node": "c"}, {"type": "error", "seq": 1, "message": "m"}]
    kinds = [WANTED, changed, rates, {"type": "still", "seq": 1}, {"type": "starting", "seq": 0}, *answers]
    line.socket.settimeout(30)
    for _ in range(600):
        line.say(broken(rng, rng.choice(kinds)))
    line.say({**WANTED, "seq": 77, "segments": []})
    eventually(lambda: "down@north" not in south.flows(), 20)
    line.close()
    assert south.exceptions() == [] and not any("Error:" in what for what in south.problems())


@dataclass(frozen=True)
class Trust:
    """Certificates of one address: of both regions and of ``other``, which all are signed, and of a stranger."""

    files: Mapping[str, TlsFiles]

    @classmethod
    def of(cls, folder: Path) -> Trust:
        made = {name: issued(folder, "region", name) for name in ("north", "south", "other")}
        authority = made["north"].ca
        made |= {role: issued(folder, role, "north") for role in CertificateRole if role != "region"}
        made["stranger"] = replace(issued(folder / "stranger", "region", "north"), ca=authority)
        return cls(made)

    def tls(self, name: str) -> dict[str, str]:
        """As in the settings."""
        files = self.files[name]
        return {"key": files.key, "certificate": files.certificate, "ca": str(files.ca)}

    def client(self, name: str) -> ssl.SSLContext:
        return client_side(self.files[name], "test", "tls")

    def server(self, name: str) -> ssl.SSLContext:
        return server_side(self.files[name], "test")


OTHER = "is the certificate of 'other', and not of region 'north'"


@pytest.mark.parametrize("how", ["plain", "stranger", "nobody", "other", "node", "controller"])
def test_without_the_right_certificate_nobody_is_a_neighbour(tmp_path: Path, how: str) -> None:
    trust = Trust.of(tmp_path / "tls")
    (tmp_path / "controller").mkdir()
    with running(tmp_path / "controller", tls=trust.tls("south")) as south:
        hello = south.hello(trust.server("north"))
        nobody = ssl.create_default_context(cafile=trust.tls("north")["ca"])
        context = {"plain": None, "nobody": nobody}[how] if how in ("plain", "nobody") else trust.client(how)
        answer = None
        with suppress(OSError, ValueError):
            line = Line(south, context)
            line.say(hello, WANTED)
            answer = line.next()
        # Who shows a good certificate of somebody else is told both names, whoever it says it is.
        assert (OTHER in answer["message"]) if how == "other" else answer is None
        assert "down@north" not in south.flows()
        # With that of the region it is one, and says what it was refused meanwhile.
        neighbour(south, hello, trust.client("north")).close()
        # The other way round: whoever answers where a neighbour should be shows a wrong certificate, or none.
        connection, _ = south.listener.accept()
        with suppress(OSError):
            if how == "plain":
                connection.sendall(b"{}\n")
            else:
                shown = trust.server(how if how in ("other", "controller") else "stranger")
                with shown.wrap_socket(connection, server_side=True) as line:
                    assert line.recv(1) == b"", "nothing is said to whom it is not for"
        connection.close()
        said = {"other": OTHER, "controller": "has the role 'controller', and not region"}.get(how, "our hello: ")
        eventually(lambda: any(said in what for what in south.problems()), 10)


def test_port_of_regions_says_nothing_to_certificates_of_other_roles(tmp_path: Path) -> None:
    trust = Trust.of(tmp_path / "tls")
    (tmp_path / "controller").mkdir()
    with running(tmp_path / "controller", tls=trust.tls("south")) as south:
        hello = json.dumps(south.hello(trust.server("north"))).encode() + b"\n"
        for role in CertificateRole:
            files = trust.files["north" if role == "region" else role]
            said = answer_of(south.port, files, hello + b"x\n")
            assert bool(said) is (role == "region"), (role, said)


def test_a_region_does_not_start_with_the_certificate_of_another(tmp_path: Path) -> None:
    trust = Trust.of(tmp_path / "tls")
    (tmp_path / "controller").mkdir()
    south = South(tmp_path / "controller", tls=trust.tls("other"))
    with south.listener, pytest.raises(AssertionError), south.controller:
        pass
    log = south.controller.log.read_text()
    assert "region.tls.certificate: is the certificate of 'other', and not of region 'south'" in log
    assert "Traceback" not in log

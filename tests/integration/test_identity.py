"""Who says that it is a node must be it: tokens of nodes and roles, certificates with names, one session of each.

On loopback, with the real controller.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from controller_process import NETWORK, ControllerProcess, eventually
from identities import Device, answer_of, context_of, issued, made, server_tls, token_of
from scripted_switch import ScriptedSwitch

from hyroads.controller.access_point.channel import Channel
from hyroads.controller.cli.main import main
from hyroads.controller.client.reporting import Callbacks, Reporter
from hyroads.controller.client.reporting import Controller as ReportTo
from hyroads.controller.core.identity import CertificateRole
from hyroads.controller.framework.tls_client import ClientTls, client_context

ADMIN, SHARED, LAPTOP = "admin-" + "b" * 32, "shared-" + "s" * 32, "laptop-" + "l" * 32
PROBE_S = 1.0
"""By default a living agent is asked for 0.6 s, a switch for 1 s."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("identity"))


@pytest.fixture(scope="module")
def controller(folder: Path) -> Iterator[ControllerProcess]:
    """Tokens and certificates everywhere."""
    settings = {
        "identities": str(folder / "identities.json"),
        "agent_token": SHARED,
        "api_tokens": {"admin": {"token": ADMIN}},
        "clients": {"laptop": {"token": LAPTOP}},
        "tls": server_tls(folder, ca=True),
        "agents_tls": server_tls(folder, ca=True),
        "rest_tls": server_tls(folder, ca=False),
        "revoked": str(folder / "revoked.pem"),
    }
    process = ControllerProcess(folder, settings)
    process.context = context_of(folder, None)
    # Without a token there is an answer, too: 401.
    with process:
        yield process
        health = process.rest("GET", "/health", token=ADMIN)[1]
        assert health["counters"]["exceptions"] == 0
        assert "Traceback" not in process.log.read_text()


def first(controller: ControllerProcess, *given: object, **more: object) -> str:
    """What a device is told first: ``welcome``, or why not."""
    try:
        with closing(Device(controller.agents, *given, **more)) as device:  # type: ignore[arg-type]
            message = device.answer()
            return str(message.get("message") or message.get("type"))
    except OSError:
        return "ended"


def test_a_token_is_of_one_node_and_one_role(controller: ControllerProcess, folder: Path) -> None:
    a = context_of(folder, "a")
    for token, role, told in (
        (token_of(folder, "a"), "agent", "welcome"),
        (token_of(folder, "a", "radio"), "radio", "welcome"),
        (token_of(folder, "a", "radio"), "agent", "wrong token"),
        (token_of(folder, "a"), "radio", "wrong token"),
        (token_of(folder, "b"), "agent", "wrong token"),
        (SHARED, "agent", "wrong token"),
        (None, "agent", "wrong token"),
    ):
        assert first(controller, "a", token, role, context=a) == told, (token, role)


def test_a_certificate_is_of_one_node(controller: ControllerProcess, folder: Path) -> None:
    token = token_of(folder, "a")
    assert first(controller, "a", token, context=context_of(folder, "a")) == "welcome"
    told = first(controller, "a", token, context=context_of(folder, "b"))
    assert "certificate is of 'b'" in told and "not of node 'a'" in told
    assert first(controller, "a", token, context=context_of(folder, None)) in {"ended", "None"}
    # In the clear there is no answer at all.
    assert first(controller, "a", token) in {"ended", "None"}


def test_a_hello_that_only_checks_begins_no_session(controller: ControllerProcess, folder: Path) -> None:
    # Of b: a second session of one node gives one event in 10 s, and other tests count those of a.
    context = context_of(folder, "b")
    for role in ("agent", "radio"):
        right, wrong = token_of(folder, "b", role), token_of(folder, "a", role)
        with closing(Device(controller.agents, "b", right, role, context=context)) as living:
            assert living.answer()["type"] == "welcome"
            living.live()
            with closing(Device(controller.agents, "b", right, role, context=context, check=True)) as device:
                answer = device.answer()
                assert answer["type"] == "checked" and abs(answer["time_s"] - time.time()) < 5.0
                assert device.hear() == {}
            assert first(controller, "b", wrong, role, context=context, check=True) == "wrong token"
            # The session that was there before is there still, so another one is refused.
            assert "connected already" in first(controller, "b", right, role, context=context)


def is_up(controller: ControllerProcess, node: str) -> bool:
    agents = controller.rest("GET", "/health", token=ADMIN)[1]["agents"]
    return bool(next(one for one in agents if one["node"] == node)["up"])


def conflicts(controller: ControllerProcess) -> list[dict[str, str]]:
    """Events of second sessions, from the stream."""
    assert controller.context is not None
    plain = socket.create_connection(("127.0.0.1", controller.port), timeout=5)
    with controller.context.wrap_socket(plain, server_hostname="127.0.0.1") as connection:
        head = "GET /api/v1/events?kinds=identity&follow=false HTTP/1.1\r\nLast-Event-ID: 0\r\nHost: localhost"
        connection.sendall(f"{head}\r\nAuthorization: Bearer {ADMIN}\r\nConnection: close\r\n\r\n".encode())
        with suppress(ssl.SSLError):
            lines = connection.makefile("rb").readlines()
    found = [json.loads(line[6:]) for line in lines if line.startswith(b"data: ")]
    return [one for one in found if "holder" in one]


def test_a_second_session_of_a_living_agent_is_refused(controller: ControllerProcess, folder: Path) -> None:
    a, token, before = context_of(folder, "a"), token_of(folder, "a"), len(conflicts(controller))
    with closing(Device(controller.agents, "a", token, context=a)) as living:
        assert living.answer()["type"] == "welcome"
        living.live()
        for _ in range(3):
            assert "connected already" in first(controller, "a", token, context=a)
            assert is_up(controller, "a")
    told = conflicts(controller)[before:]
    assert [(one["role"], one["node"]) for one in told] == [("agent", "a")]
    # Its end is seen at once.
    assert eventually(lambda: first(controller, "a", token, context=a) == "welcome")


def test_a_half_open_session_keeps_nobody_out_longer_than_the_probe(
    controller: ControllerProcess, folder: Path
) -> None:
    a, token = context_of(folder, "a"), token_of(folder, "a")
    assert eventually(lambda: first(controller, "a", token, context=a) == "welcome")
    with closing(Device(controller.agents, "a", token, context=a)) as silent:
        assert silent.hear()["type"] == "welcome"
        began_s = time.monotonic()
        with closing(Device(controller.agents, "a", token, context=a)) as back:
            assert back.answer().get("type") == "welcome"
            assert time.monotonic() - began_s < 2 * PROBE_S
            # What it waited for does not count as its own silence.
            back.live()
            time.sleep(1.0)
            assert is_up(controller, "a")


class Nothing:
    """Readings of a node without interfaces."""

    def collect(self, nodes: Collection[str], patience_s: float) -> dict[str, dict[str, Any]]:
        return {node: {"time_s": time.monotonic(), "interfaces": []} for node in nodes}


@contextmanager
def radios(controller: ControllerProcess, folder: Path, certified: str, name: str) -> Iterator[list[str]]:
    """The radios of a by the access point's own program; what it complains of."""
    said: list[str] = []
    files = (str(folder / certified / file) for file in ("node.pem", "node.key"))
    context = client_context(str(folder / "ca.pem"), *files)
    channel = Channel(
        [("127.0.0.1", controller.agents)], token_of(folder, "a", "radio"), ["a"], Nothing(), said.append,
        secured=lambda address: ClientTls(context, name),
    )  # fmt: skip
    over = threading.Event()
    thread = threading.Thread(target=channel.run, args=(over.is_set,))
    thread.start()
    try:
        yield said
    finally:
        over.set()
        thread.join(5)
        channel.close()


def test_radios_speak_tls_and_know_the_controller(controller: ControllerProcess, folder: Path) -> None:
    size = controller.log.stat().st_size
    with radios(controller, folder, "a", "127.0.0.1") as said:
        assert eventually(lambda: "radios of a connected" in controller.log.read_text()[size:])
        # Pings, readings and those of what changed go on for a while.
        time.sleep(1.5)
        assert not said and "radios of a (" not in controller.log.read_text()[size:]
    for certified, name, why in (("b", "127.0.0.1", "is of 'b'"), ("a", "192.0.2.1", "IP address mismatch")):
        with radios(controller, folder, certified, name) as said:
            assert eventually(lambda: why in "".join(said), 5), (why, said)  # noqa: B023 - called at once


def reporter(controller: ControllerProcess, folder: Path, certified: str, said: list[str]) -> Reporter:
    """A multi-homed client's own program, with the certificate of somebody."""
    files = (str(folder / certified / name) for name in ("node.pem", "node.key"))
    context = client_context(str(folder / "ca.pem"), *files)
    where = ReportTo("127.0.0.1", controller.agents, "laptop", LAPTOP, tls=context)
    return Reporter(where, Callbacks(lambda: {"mode": "full-speed"}, dict, *[None] * 3), said.append)  # type: ignore[arg-type]


async def enters(found: Reporter) -> bool:
    """Whether the controller lets it in, within some seconds."""
    task = asyncio.create_task(found.keep())
    try:
        for _ in range(150):
            await asyncio.sleep(0.02)
            if found.connected:
                return True
            if found.problem:
                return False
    finally:
        task.cancel()
    return False


def test_a_client_needs_a_certificate_of_its_own(controller: ControllerProcess, folder: Path) -> None:
    said: list[str] = []
    assert asyncio.run(enters(reporter(controller, folder, "laptop", said))), said
    # A node's is refused without a word.
    assert not asyncio.run(enters(reporter(controller, folder, "a", said)))
    assert said and "certificate" not in "".join(said), said
    assert main(["identity", "client", "phone", "--folder", str(folder)]) == 0
    assert not asyncio.run(enters(reporter(controller, folder, "phone", said)))
    assert "certificate is of 'phone'" in "".join(said), said


def switch(controller: ControllerProcess, folder: Path, node: str, dpid: int) -> ScriptedSwitch:
    plain = socket.create_connection(("127.0.0.1", controller.openflow), timeout=5)
    found = ScriptedSwitch(context_of(folder, node).wrap_socket(plain, server_hostname="127.0.0.1"), dpid)
    found.start()
    return found


def connected(controller: ControllerProcess, node: str) -> bool:
    switches = controller.rest("GET", "/health", token=ADMIN)[1]["switches"]
    return bool(next(one for one in switches if one["node"] == node)["connected"])


def end(found: ScriptedSwitch) -> None:
    """Its thread has let go of the socket before the descriptor is somebody else's."""
    with suppress(OSError):
        found.socket.shutdown(socket.SHUT_RDWR)
    assert ends(found)
    found.socket.close()


def ends(found: ScriptedSwitch) -> bool:
    found.join(5)
    return not found.is_alive()


def test_a_certificate_is_of_one_datapath_id(controller: ControllerProcess, folder: Path) -> None:
    assert ends(switch(controller, folder, "b", 1))
    assert not connected(controller, "a")
    assert "not of switch 0000000000000001" in controller.log.read_text()
    mine = switch(controller, folder, "a", 1)
    try:
        assert eventually(lambda: connected(controller, "a"))
    finally:
        end(mine)
    assert eventually(lambda: not connected(controller, "a"))


def test_a_second_session_of_a_living_switch_is_refused(controller: ControllerProcess, folder: Path) -> None:
    before, living = len(conflicts(controller)), switch(controller, folder, "a", 1)
    assert eventually(lambda: connected(controller, "a"))
    assert ends(switch(controller, folder, "a", 1))
    assert living.is_alive() and connected(controller, "a")
    assert [(one["role"], one["node"]) for one in conflicts(controller)[before:]] == [("switch", "a")]
    # One that says nothing any more gives its place up.
    living.hang()
    began_s, other = time.monotonic(), switch(controller, folder, "a", 1)
    assert eventually(lambda: other.ready or other.questions > 2, 10)
    assert time.monotonic() - began_s < 3 * PROBE_S
    assert ends(living) and other.is_alive()
    end(other)


def test_rest_over_tls_answers_whole_and_in_time(controller: ControllerProcess, folder: Path) -> None:
    assert controller.rest("GET", "/openapi.json", token=ADMIN)[0] == 200
    with socket.create_connection(("127.0.0.1", controller.port), timeout=5) as plain:
        plain.sendall(b"GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert not plain.recv(100).startswith(b"HTTP")
    # Who begins TLS and stops there holds up nobody.
    silent = [socket.create_connection(("127.0.0.1", controller.port), timeout=5) for _ in range(20)]
    began_s = time.monotonic()
    for _ in range(20):
        assert controller.rest("GET", "/health", token=ADMIN)[0] == 200
    assert time.monotonic() - began_s < 5
    for one in silent:
        one.close()


def test_a_token_that_is_taken_away_ends_its_session(controller: ControllerProcess, folder: Path) -> None:
    b, token = context_of(folder, "b"), token_of(folder, "b")
    with closing(Device(controller.agents, "b", token, context=b)) as device:
        assert device.answer()["type"] == "welcome"
        assert main(["identity", "remove", "b", "--folder", str(folder)]) == 0
        status, answer = controller.rest("POST", "/reload", token=ADMIN)
        assert (status, answer["changed"]) == (200, ["settings: identities"])
        assert eventually(lambda: not device.hear(), 5)
    # The shared token lets in whoever has none of its own.
    assert first(controller, "b", token, context=b) == "wrong token"
    assert first(controller, "b", SHARED, context=b) == "welcome"


def test_one_that_dials_anew_right_after_it_has_spoken_and_hung_up_is_let_in(
    controller: ControllerProcess, folder: Path
) -> None:
    """What the old connection had still to say is no sign of life."""
    a, token = context_of(folder, "a"), token_of(folder, "a")
    assert eventually(lambda: first(controller, "a", token, context=a) == "welcome")
    for _ in range(20):
        device = Device(controller.agents, "a", token, context=a)
        assert device.answer().get("type") == "welcome"
        for seq in range(20):
            device.say({"type": "ping", "seq": seq})
        device.close()
        assert first(controller, "a", token, context=a) == "welcome"


KINDS = [role.value for role in CertificateRole]
HELLO = {"type": "hello", "version": 1, "node": "a", "program": "test", "boot": "1", "token": "x" * 16}
HELLO_OF = {role: {**HELLO, "role": role} for role in ("radio", "client")} | {"agent": {**HELLO, "revision": 0}}


@pytest.mark.parametrize("kind", KINDS)
def test_agents_port_says_nothing_to_certificates_of_other_roles(
    controller: ControllerProcess, folder: Path, kind: str
) -> None:
    files = issued(folder, kind, "a")
    for role, hello in HELLO_OF.items():
        said = answer_of(controller.agents, files, json.dumps(hello).encode() + b"\n")
        is_right = kind == ("client" if role == "client" else "node")
        assert (b"wrong token" in said) if is_right else said == b"", (role, said)


@pytest.mark.parametrize("kind", KINDS)
def test_switches_port_says_nothing_to_certificates_of_other_roles(
    controller: ControllerProcess, folder: Path, kind: str
) -> None:
    # A HELLO of a version that is not spoken is answered with an error by whoever answers at all.
    said = answer_of(controller.openflow, issued(folder, kind, "a"), b"\1\0\0\10\0\0\0\1")
    assert bool(said) is (kind in ("node", "slicer"))


def test_reload_ends_sessions_of_revoked_certificates(controller: ControllerProcess, folder: Path) -> None:
    a, token, mine = context_of(folder, "a"), token_of(folder, "a"), switch(controller, folder, "a", 1)
    assert eventually(lambda: connected(controller, "a"))
    with closing(Device(controller.agents, "a", token, context=a)) as device:
        assert device.answer()["type"] == "welcome"
        assert main(["identity", "revoke", "a", "--folder", str(folder)]) == 0
        status, answer = controller.rest("POST", "/reload", token=ADMIN)
        assert (status, answer["changed"]) == (200, ["settings: revoked"])
        assert eventually(lambda: not device.hear(), 5)
    assert ends(mine)
    assert ends(switch(controller, folder, "a", 1))
    assert first(controller, "a", token, context=a) in {"ended", "None"}
    # A new certificate is taken.
    words = ["node", "a", "--network", str(NETWORK), "--folder", str(folder), "--renew"]
    assert main(["identity", *words]) == 0
    assert controller.rest("POST", "/reload", token=ADMIN)[0] == 200
    assert first(controller, "a", token_of(folder, "a"), context=context_of(folder, "a")) == "welcome"

"""Heartbeats over real connections: by token, over TLS, and whatever strangers send."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from controller_process import eventually, free_ports
from hypothesis import given
from hypothesis import strategies as st
from identities import answer_of, issued
from swarm import events, swarm

from hyroads.controller.core.checking import TlsFiles
from hyroads.controller.core.identity import CertificateRole
from hyroads.controller.files.authority import Authority, revoked_in
from hyroads.controller.files.tls import CertificateCheck, Revoked, client_side, server_side
from hyroads.controller.ha import peers
from hyroads.controller.ha.election import Beat, Identity, Role
from hyroads.controller.ha.peer_links import MAX_LINE, PeerError, Security, listen
from hyroads.controller.ha.peers import (
    Peers,
    Unconfirmed,
    beat_document,
    event_document,
    parse_beat,
    parse_event,
    parse_learned_line,
    parse_unconfirmed,
)
from hyroads.controller.model.events import Event

TOKEN = "a-token-of-instances"
EVENT = Event(1_000_000_001, 5.0, "link.down", {"link": "ab"})


class End:
    """One instance's end, and what it heard."""

    def __init__(self, name: str, security: Security, port: int = 0) -> None:
        self.listener = listen("127.0.0.1", port)
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.beats: list[Beat] = []
        self.events: list[Event] = []
        self.resets: list[str] = []
        self.silent = False
        self.beat = Beat(Identity(name, f"{name}1"), Role.FOLLOWER, 3, 7, True, "x", 3, 0.5)
        self.peers = Peers(
            name, "/hyroads/n/", security, 0.02,
            beat=lambda: None if self.silent else self.beat,
            heard=self.beats.append, reset=self.resets.append, event=lambda name, event: self.events.append(event),
            events=lambda: [EVENT],
        )  # fmt: skip
        self.peers.serve(self.listener)

    def close(self) -> None:
        self.peers.dial({})


def certified(files: TlsFiles, revoked: Revoked | None = None) -> Security:
    check = CertificateCheck.of(CertificateRole.CONTROLLER, revoked=revoked)
    return Security(server_side(files, "test"), client_side(files, "test", "tls"), None, check)


@pytest.fixture(params=["token", "tls"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[End, End]]:
    if request.param == "token":
        security = Security(token=TOKEN)
    else:
        security = certified(issued(tmp_path, "controller", "a", "b"))
    first, second = End("a", security), End("b", security)
    first.peers.dial({"a": first.address, "b": second.address})
    second.peers.dial({"a": first.address, "b": second.address})
    try:
        yield first, second
    finally:
        first.close()
        second.close()


def test_each_hears_the_other_and_its_events(pair: tuple[End, End]) -> None:
    first, second = pair
    eventually(lambda: first.beats and second.beats, 10)
    assert second.beats[0] == first.beat and first.beats[0].identity.name == "b"
    first.peers.tell(replace(EVENT, id=EVENT.id + 1))
    # What was told before comes first, to whoever is reached.
    eventually(lambda: len(second.events) >= 2, 10)
    assert [event.id for event in second.events] == [EVENT.id, EVENT.id + 1] and second.events[0] == EVENT


@dataclass(eq=False)
class Knowledge:
    """What a bandit has learned."""

    value: Any
    times: int = 0

    def document(self) -> dict[str, Any]:
        self.times += 1
        return {"value": self.value}


def test_what_bandits_have_learned_is_told_once_and_again_when_it_is_other() -> None:
    first, second = End("a", Security(token=TOKEN)), End("b", Security(token=TOKEN))
    heard: list[tuple[str, str, Any]] = []
    learned = {f"f{number}": Knowledge(number) for number in range(40)}
    too_long = learned["f7"] = Knowledge("x" * MAX_LINE)
    first.peers.learned = lambda: learned
    second.peers.learns = lambda *told: heard.append(told)
    first.peers.dial({"b": second.address})
    eventually(lambda: len(second.beats) > 5, 10)
    # It has not asked for it, as those of before.
    assert not heard
    second.peers.dial({"a": first.address})
    eventually(lambda: len(first.beats) > 5, 10)
    # Only the leader knows.
    assert not heard
    first.beat = replace(first.beat, role=Role.LEADER)
    eventually(lambda: len(heard) == 39, 10)
    assert sorted(heard) == sorted(("a", flow, {"value": each.value}) for flow, each in learned.items() if flow != "f7")
    beats = len(second.beats)
    eventually(lambda: len(second.beats) > beats + 5, 10)
    assert len(heard) == 39 and {each.times for each in learned.values()} == {1} and too_long.times == 1
    learned = {**learned, "f3": Knowledge("other")}
    eventually(lambda: len(heard) == 40, 10)
    assert heard[-1] == ("a", "f3", {"value": "other"})
    first.close()
    second.close()


@pytest.mark.parametrize("changed", [{"flow": 5}, {"flow": "f" * 257}, {"document": []}, {"document": None}])
def test_what_bandits_have_learned_is_so_or_refused(changed: dict[str, Any]) -> None:
    good = {"type": "learned", "flow": "f", "document": {}}
    assert parse_learned_line(good) == ("f", {})
    assert parse_learned_line({**good, "flow": "f" * 256})[0] == "f" * 256
    with pytest.raises(PeerError):
        parse_learned_line({**good, **changed})


def test_leader_says_which_devices_have_not_confirmed_whenever_that_changes() -> None:
    first, second = End("a", Security(token=TOKEN)), End("b", Security(token=TOKEN))
    heard: list[tuple[str, Unconfirmed]] = []
    said = Unconfirmed(3, 7, frozenset({"switch b", "agent c"}))
    first.peers.unconfirmed = lambda: said
    second.peers.waits = lambda *told: heard.append(told)
    first.peers.dial({"b": second.address})
    second.peers.dial({"a": first.address})
    eventually(lambda: len(second.beats) > 5, 10)
    assert not heard, "only a leader says so"
    first.beat = replace(first.beat, role=Role.LEADER)
    eventually(lambda: heard, 10)
    beats = len(second.beats)
    eventually(lambda: len(second.beats) > beats + 5, 10)
    assert heard == [("a", said)]
    said = Unconfirmed(3, 8, frozenset())
    eventually(lambda: len(heard) == 2, 10)
    assert heard[-1] == ("a", said)
    first.close()
    second.close()


def test_devices_that_are_too_many_for_a_line_are_not_named() -> None:
    many = Unconfirmed(3, 7, frozenset(f"switch {number}" for number in range(10_000)))
    assert len(many.line()) < MAX_LINE
    assert parse_unconfirmed(json.loads(many.line())) == Unconfirmed(3, 7, None)
    few = Unconfirmed(3, 7, frozenset({"switch b"}))
    assert parse_unconfirmed(json.loads(few.line())) == few


@pytest.mark.parametrize("changed", [{"epoch": "3"}, {"stamp": None}, {"devices": "switch b"}, {"devices": [5]}])
def test_unreadable_list_of_devices_is_refused(changed: dict[str, Any]) -> None:
    good = json.loads(Unconfirmed(3, 7, frozenset()).line())
    with pytest.raises(PeerError):
        parse_unconfirmed({**good, **changed})


def test_events_that_there_were_come_before_the_first_heartbeat() -> None:
    first, second = End("a", Security(token=TOKEN)), End("b", Security(token=TOKEN))
    heard: list[str] = []
    second.peers.event = lambda name, event: heard.append("event")
    second.peers.heard = lambda beat: heard.append("beat")
    first.peers.dial({"b": second.address})
    eventually(lambda: "beat" in heard, 10)
    assert heard.index("beat") == 1
    first.close()


def test_one_that_comes_back_is_dialled_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "REDIAL_S", 60.0)
    monkeypatch.setattr(peers, "REDIAL_MOST_S", 60.0)
    (port,) = free_ports(1)
    first = End("a", Security(token=TOKEN))
    first.peers.dial({"b": f"127.0.0.1:{port}"})
    time.sleep(0.2)
    second = End("b", Security(token=TOKEN), port)
    second.peers.dial({"a": first.address})
    eventually(lambda: second.beats, 10)
    for end in (first, second):
        end.close()


def test_one_that_is_to_be_silent_is(pair: tuple[End, End]) -> None:
    first, second = pair
    eventually(lambda: second.beats, 10)
    first.silent = True
    time.sleep(0.1)
    count = len(second.beats)
    time.sleep(0.2)
    assert len(second.beats) == count and second.resets == []


def test_the_end_of_all_connections_is_told_once(pair: tuple[End, End]) -> None:
    first, second = pair
    eventually(lambda: first.beats and second.beats, 10)
    # As at the end of a process: nothing dials, nothing accepts, nothing is read any more.
    first.peers.dial({})
    second.peers.dial({})
    eventually(lambda: second.resets == ["a"] and first.resets == ["b"], 10)


def say(address: str, *lines: bytes) -> bytes:
    """What the other end answers until it ends the connection."""
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        try:
            for line in lines:
                connection.sendall(line)
            return connection.recv(100)
        except (ConnectionResetError, BrokenPipeError):
            # It ended the connection before it had read all lines.
            return b""


HELLO = {"type": "hello", "version": 1, "network": "/hyroads/n/", "name": "c", "token": TOKEN}


@pytest.mark.parametrize(
    "hello",
    [
        {**HELLO, "token": "another-token-of-16"},
        {key: value for key, value in HELLO.items() if key != "token"},
        {**HELLO, "network": "/hyroads/other/"},
        {**HELLO, "name": "a"},
        {**HELLO, "name": ""},
        {**HELLO, "name": "c" * 65},
        {**HELLO, "version": 2},
        {"type": "beat"},
        [1],
    ],
)
def test_strangers_are_shown_the_door(hello: Any) -> None:
    end = End("a", Security(token=TOKEN))
    beat = json.dumps(beat_document(end.beat)).encode() + b"\n"
    assert say(end.address, json.dumps(hello).encode() + b"\n", beat) == b""
    assert end.beats == [] and end.resets == []


def test_name_of_an_instance_has_up_to_64_characters() -> None:
    end = End("a", Security(token=TOKEN))
    hello = json.dumps({**HELLO, "name": "c" * 64}).encode()
    say(end.address, hello + b"\n", json.dumps(beat_document(end.beat)).encode() + b"\n", b"x\n")
    assert [beat.identity.name for beat in end.beats] == ["c" * 64]


@pytest.mark.parametrize("line", [b"{}\n", b"x\n", b"[" * 50_000 + b"\n", b"x" * (MAX_LINE + 1)])
def test_a_line_that_is_none_ends_the_connection(line: bytes) -> None:
    end = End("a", Security(token=TOKEN))
    host, port = end.address.split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(json.dumps(HELLO).encode() + b"\n")
        connection.sendall(json.dumps(beat_document(end.beat)).encode() + b"\n")
        eventually(lambda: end.beats, 10)
        connection.sendall(line)
        with suppress(ConnectionResetError):
            assert connection.recv(10) == b""


BEAT = ("boot", "rest", "peer", "schema", "role", "epoch", "stamp", "warm", "leader")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)


@given(
    st.dictionaries(
        st.sampled_from(["boot", "rest", "peer", "schema", "role", "epoch", "stamp", "warm", "leader"]), JSON
    )
)
def test_a_heartbeat_is_one_or_refused(changed: dict[str, Any]) -> None:
    beat = Beat(Identity("c", "1"), Role.LEADER, 5)
    document = json.loads(json.dumps(beat_document(beat)))
    assert parse_beat("c", document) == beat
    check(lambda: parse_beat("c", {**document, **changed}))


@pytest.mark.parametrize(("number", "fits"), [(-1, False), (0, True), (2**63 - 1, True), (2**63, False)])
@pytest.mark.parametrize("name", ["epoch", "stamp", "leader"])
def test_numbers_of_a_heartbeat_are_those_of_etcd(name: str, number: int, fits: bool) -> None:
    document = json.loads(json.dumps(beat_document(Beat(Identity("c", "1"), Role.LEADER, 5))))
    document[name] = ["b", number, 0.5] if name == "leader" else number
    if fits:
        beat = parse_beat("c", document)
        assert (beat.leader_epoch if name == "leader" else getattr(beat, name)) == number
    else:
        with pytest.raises(PeerError):
            parse_beat("c", document)


@pytest.mark.parametrize(
    ("takes", "expected"),
    [
        (None, set()), ("learned", set()), ({"learned": 1}, set()), ([], set()), (["else", 7], set()),
        (["learned"], {"learned"}), (["unconfirmed", "learned", "more"], {"learned", "unconfirmed"}),
    ],
)  # fmt: skip
def test_instance_is_sent_the_further_lines_that_it_names_alone(takes: Any, expected: set[str]) -> None:
    end = End("a", Security(token=TOKEN))
    beat = beat_document(end.beat)
    beat = {**beat, "takes": takes} if takes is not None else {k: v for k, v in beat.items() if k != "takes"}
    say(end.address, json.dumps(HELLO).encode() + b"\n", json.dumps(beat).encode() + b"\n", b"x\n")
    assert len(end.beats) == 1 and end.peers._takes == {"c": expected}


numbers = st.integers(0, 2**63 - 1)
beats = st.builds(
    Beat,
    st.builds(Identity, st.just("c"), st.text(max_size=64), st.text(max_size=256), st.text(max_size=256), numbers),
    st.sampled_from(Role), numbers, numbers, st.booleans(), st.text(max_size=64), numbers,
    st.integers(0, 10**6).map(lambda tenth_ms: tenth_ms / 1e4), st.booleans(),
)  # fmt: skip


@given(beats, st.sampled_from(["boot", "rest", "peer", "schema", "role", "epoch", "stamp", "warm", "leader"]))
def test_heartbeat_arrives_as_it_was_sent_and_has_all_its_parts(beat: Beat, part: str) -> None:
    document = json.loads(json.dumps(beat_document(beat)))
    assert parse_beat("c", document) == beat
    assert set(document["takes"]) == {"learned", "unconfirmed"} and document["type"] == "beat"
    with pytest.raises(PeerError):
        parse_beat("c", {key: value for key, value in document.items() if key != part})


def test_names_in_a_heartbeat_are_bounded() -> None:
    long = Beat(Identity("c", "b" * 65, "r" * 257, "p" * 257), Role.FOLLOWER, 5, leader="l" * 65)
    identity = Identity("c", "b" * 64, "r" * 256, "p" * 256)
    assert parse_beat("c", json.loads(json.dumps(beat_document(long)))) == replace(
        long, identity=identity, leader="l" * 64
    )


documents = st.dictionaries(st.text(max_size=5), JSON, max_size=2)


@given(st.builds(Event, st.integers(0, 10**18 - 1), st.integers(0, 10**9).map(float), st.text(max_size=64), documents))
def test_event_arrives_as_it_was_sent(event: Event) -> None:
    assert parse_event(event_document(event)) == event
    assert parse_event(event_document(replace(event, kind="k" * 65))).kind == "k" * 64
    for number in (-1, 10**18):
        with pytest.raises(PeerError):
            parse_event(event_document(replace(event, id=number)))


def play_connections(_: int, row: list[tuple[str, int]]) -> None:
    """An instance has ended once it has no connection, and one of those since the last was made ended at its end."""
    told = list[str]()
    one = Peers(
        "a", "/hyroads/n/", Security(), 0.02,
        beat=lambda: None, heard=lambda beat: None, reset=told.append, event=lambda event: None, events=list,
    )  # fmt: skip
    open_of, is_by_end, resets = dict.fromkeys("bc", 0), dict.fromkeys("bc", False), list[str]()
    for kind, choice in row:
        name = "bc"[choice % 2]
        if kind == "made":
            one._linked(name)
            open_of[name], is_by_end[name] = open_of[name] + 1, False
        elif open_of[name]:
            one._unlinked(name, by_end=kind == "ended")
            open_of[name] -= 1
            is_by_end[name] |= kind == "ended"
            resets += [name] if is_by_end[name] and not open_of[name] else []
        assert told == resets


def test_instance_has_ended_with_its_last_connection_through_any_row() -> None:
    swarm(100, lambda rng: events(rng, ("made", "ended", "timed out"), 30, ("made", "ended")), play_connections)


@given(st.dictionaries(st.sampled_from(["id", "time_s", "kind", "document"]), JSON))
def test_an_event_is_one_or_refused(changed: dict[str, Any]) -> None:
    document = json.loads(json.dumps(event_document(EVENT)))
    assert parse_event(document) == EVENT
    check(lambda: parse_event({**document, **changed}))


def check(parse: Callable[[], object]) -> None:
    with suppress(PeerError):
        parse()


@pytest.mark.parametrize("security", [Security(token=TOKEN), Security()], ids=["token", "none"])
def test_an_instance_gets_in_while_strangers_take_all_places(security: Security, monkeypatch: Any) -> None:
    """They say nothing; each newer one takes the place of the oldest, and all of them have two seconds."""
    monkeypatch.setattr(peers, "HELLO_WITHIN_S", 30.0)
    end = End("a", security)
    host, port = end.address.split(":")
    strangers = []
    try:
        for _ in range(4 * peers.MAX_CONNECTIONS):
            stranger = socket.socket()
            stranger.bind(("127.0.0.2", 0))
            stranger.connect((host, int(port)))
            strangers.append(stranger)
        other = End("b", security)
        other.peers.dial({"a": end.address})
        eventually(lambda: len(end.beats) > 20, 10)
        assert end.resets == [], "its connection was not ended"
        other.close()
    finally:
        for stranger in strangers:
            stranger.close()


def test_no_thread_is_left_dialling() -> None:
    end = End("a", Security())
    end.peers.dial({"b": "127.0.0.1:1"})
    end.peers.dial({})
    eventually(lambda: "heartbeats to b" not in {thread.name for thread in threading.enumerate()}, 10)


def test_lines_that_come_at_once_count_one_by_one() -> None:
    """As the events of an instance that is new: together they are longer than a line may be."""
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    sent = [{"number": number, "padding": "x" * 20_000} for number in range(40)]
    text = b"".join(json.dumps(each).encode() + b"\n" for each in sent)
    with ours, theirs:
        sender = threading.Thread(target=theirs.sendall, args=(text + b'{"x":"' + b"y" * peers.MAX_LINE,))
        sender.start()
        lines = peers.PeerLines(PlainLink(ours))  # type: ignore[arg-type]
        assert [lines.next() for _ in sent] == sent
        with pytest.raises(peers.PeerError, match="at most"):
            lines.next()
        sender.join()


class PlainLink:
    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def receive(self) -> bytes:
        return self._connection.recv(peers.MAX_LINE)


def test_what_is_told_to_an_instance_that_has_just_gone_is_no_error() -> None:
    outbox = peers._Outbox()
    outbox.close()
    outbox.put(b"{}\n")


@pytest.mark.parametrize("given", [None, "", "other", "\ud800", 5, ["right"]])
def test_a_token_that_is_not_the_right_one_is_refused(given: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers._time, "sleep", lambda seconds: None)
    security = peers.Security(token="right")
    security.check_token({"token": "right"})
    with pytest.raises(peers.PeerError, match="wrong token"):
        security.check_token({"token": given})


KINDS = [role.value for role in CertificateRole]


@pytest.mark.parametrize("kind", KINDS)
def test_listener_says_nothing_to_certificates_of_other_roles(tmp_path: Path, kind: str) -> None:
    end = End("a", certified(issued(tmp_path, "controller", "a")))
    lines = [{**HELLO, "token": None}, beat_document(end.beat)]
    sent = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    assert answer_of(int(end.address.split(":")[1]), issued(tmp_path, kind, "c"), sent + b"x\n") == b""
    assert [beat.identity.name for beat in end.beats] == (["c"] if kind == "controller" else [])


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("node", "client")])
def test_dialler_says_nothing_to_certificates_of_other_roles(tmp_path: Path, kind: str) -> None:
    end = End("a", certified(issued(tmp_path, "controller", "a")))
    context, heard = server_side(issued(tmp_path, kind, "b"), "test"), []
    with listen("127.0.0.1", 0) as listener:
        listener.settimeout(10)
        end.peers.dial({"b": f"127.0.0.1:{listener.getsockname()[1]}"})
        plain, _ = listener.accept()
        with suppress(OSError), context.wrap_socket(plain, server_side=True) as secured:
            heard.append(secured.recv(100))
        end.close()
    assert any(heard) is (kind == "controller")


@pytest.mark.parametrize("name", ["b", "d"])
def test_instance_is_heard_under_the_names_of_its_certificate_alone(tmp_path: Path, name: str) -> None:
    end = End("a", certified(issued(tmp_path, "controller", "a")))
    lines = [{**HELLO, "name": name, "token": None}, beat_document(end.beat)]
    sent = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    assert answer_of(int(end.address.split(":")[1]), issued(tmp_path, "controller", "b"), sent + b"x\n") == b""
    assert [beat.identity.name for beat in end.beats] == ([name] if name == "b" else [])


def test_only_members_of_etcd_are_heard_and_new_ones_as_soon_as_etcd_knows_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(peers, "HELLO_WITHIN_S", 0.3)
    first, second = End("a", Security(token=TOKEN)), End("b", Security(token=TOKEN))
    members: set[str] = set()
    second.peers.is_member = members.__contains__
    first.peers.dial({"b": second.address})
    time.sleep(0.7)
    assert second.beats == [] and second.events == []
    members.add("a")
    eventually(lambda: second.beats, 10)
    first.close()


def test_instance_has_few_connections(tmp_path: Path) -> None:
    end = End("a", Security(token=TOKEN))
    host, port = end.address.split(":")
    with ExitStack() as stack:
        for _ in range(3 * peers.MAX_OF_INSTANCE):
            connection = stack.enter_context(socket.create_connection((host, int(port)), timeout=10))
            with suppress(OSError):
                connection.sendall(json.dumps(HELLO).encode() + b"\n")
        assert peers.MAX_OF_INSTANCE < 8
        eventually(lambda: end.peers._links.get("c") == peers.MAX_OF_INSTANCE, 10)
        time.sleep(0.2)
        assert end.peers._links["c"] == peers.MAX_OF_INSTANCE


def test_revoked_certificate_ends_its_connections(tmp_path: Path) -> None:
    revoked = Revoked()
    first = End("a", certified(issued(tmp_path, "controller", "a"), revoked))
    second = End("b", certified(issued(tmp_path, "controller", "b"), revoked))
    first.peers.dial({"b": second.address})
    second.peers.dial({"a": first.address})
    eventually(lambda: first.beats and second.beats, 10)
    Authority.of(tmp_path).revoke("b")
    revoked.ids = revoked_in(str(tmp_path / "revoked.pem"))
    eventually(lambda: not first.peers._links.get("b"), 10)
    count = len(first.beats)
    time.sleep(0.3)
    assert len(first.beats) == count
    first.close()
    second.close()

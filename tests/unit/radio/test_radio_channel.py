"""The access point's end of the radio channel against a server on loopback: sessions, intervals, questions, ends."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Collection, Iterator

import pytest

from hyroads.controller.access_point.channel import Channel, address_of, addresses_of
from hyroads.controller.access_point.hostapd import Document
from hyroads.controller.core.errors import ConfigError

INTERVAL_MS = 50


class Counting:
    """Readings that count how often they are taken; ``missing`` nodes have none."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, ...]] = []
        self.missing: set[str] = set()

    def collect(self, nodes: Collection[str], patience_s: float) -> dict[str, Document]:
        self.taken.append(tuple(nodes))
        number = len(self.taken)
        return {n: {"time_s": number, "interfaces": []} for n in nodes if n not in self.missing}


class Peer:
    """The controller's side of one session."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(5)
        self.connection = connection
        self.lines = connection.makefile("rb")
        self.hello = self.read()

    def read(self) -> Document:
        line = self.lines.readline()
        assert line, "the session ended"
        return json.loads(line)

    def next(self, kind: str) -> Document:
        while True:
            message = self.read()
            if message["type"] == kind:
                return message

    def send(self, **message: object) -> None:
        self.connection.sendall(json.dumps(message).encode() + b"\n")

    def welcome(self, interval_ms: int = INTERVAL_MS) -> Peer:
        self.send(type="welcome", version=1, interval_ms=interval_ms)
        return self

    def close(self) -> None:
        self.lines.close()
        self.connection.close()


class Setting:
    def __init__(self, nodes: list[str], controllers: int = 1) -> None:
        self.servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(controllers)]
        for server in self.servers:
            server.settimeout(5)
        self.readings = Counting()
        self.complaints: list[str] = []
        self.stopped = False
        addresses = [server.getsockname()[:2] for server in self.servers]
        self.channel = Channel(addresses, "secret-token", nodes, self.readings, self.complaints.append)
        self.thread = threading.Thread(target=self.channel.run, args=(lambda: self.stopped,))
        self.thread.start()

    def accept(self, controller: int = 0) -> Peer:
        return Peer(self.servers[controller].accept()[0])

    def end(self) -> None:
        self.stopped = True
        self.thread.join(5)
        self.channel.close()
        for server in self.servers:
            server.close()
        assert not self.thread.is_alive()


@pytest.fixture
def one() -> Iterator[Setting]:
    setting = Setting(["a"])
    yield setting
    setting.end()


def test_it_says_hello_and_then_reads_at_the_interval_it_was_told(one: Setting) -> None:
    peer = one.accept()
    assert peer.hello.items() >= {"type": "hello", "role": "radio", "node": "a", "token": "secret-token"}.items()
    assert not one.readings.taken  # nothing before the welcome
    peer.welcome()
    began_s = time.monotonic()
    messages = [peer.read() for _ in range(10)]
    elapsed_s = time.monotonic() - began_s
    assert {m["type"] for m in messages} == {"radio"} and all(m["seq"] is None for m in messages)
    assert [m["time_s"] for m in messages] == list(range(1, 11))
    assert 8 * INTERVAL_MS / 1000 < elapsed_s < 30 * INTERVAL_MS / 1000
    peer.close()


def test_questions_are_answered_at_once_and_carry_their_number(one: Setting) -> None:
    peer = one.accept()
    peer.send(type="welcome", version=1, interval_ms=10_000)
    assert peer.next("radio")["seq"] is None
    began_s = time.monotonic()
    peer.send(type="ping", seq=7)
    peer.send(type="read", seq=41)
    assert peer.read() == {"type": "pong", "seq": 7}
    assert peer.read()["seq"] == 41
    assert time.monotonic() - began_s < 2
    peer.close()


def test_a_node_without_a_reading_says_nothing_and_stays_connected(one: Setting) -> None:
    one.readings.missing.add("a")
    peer = one.accept().welcome()
    peer.send(type="ping", seq=1)
    assert peer.read() == {"type": "pong", "seq": 1}
    deadline_s = time.monotonic() + 5
    while len(one.readings.taken) < 3 and time.monotonic() < deadline_s:
        time.sleep(0.01)
    one.readings.missing.clear()
    assert peer.read()["time_s"] > 3
    peer.close()


@pytest.mark.parametrize(
    "line", [b"[]\n", b"{\n", b"x" * 100_000, b'{"type":"welcome"}\n', b'{"type":"welcome","interval_ms":true}\n']
)
def test_after_nonsense_it_dials_again_with_the_same_boot(one: Setting, line: bytes) -> None:
    first = one.accept()
    first.connection.sendall(line)
    second = one.accept().welcome()
    assert second.hello["boot"] == first.hello["boot"]
    assert second.next("radio")["interfaces"] == []
    assert any(complaint.startswith("a: ") for complaint in one.complaints)
    assert not any("secret-token" in complaint for complaint in one.complaints)
    first.close()
    second.close()


def test_a_controller_that_does_not_read_gets_no_backlog(one: Setting) -> None:
    """It gets what the kernel and one unsent message hold, then the newest."""
    taken = []

    def collect(nodes: Collection[str], patience_s: float) -> dict[str, Document]:
        taken.append(time.monotonic())
        return {"a": {"time_s": taken[-1], "interfaces": ["x" * 1_000_000]}}

    one.readings.collect = collect  # type: ignore[method-assign]
    peer = one.accept().welcome(interval_ms=10)
    until_s = time.monotonic() + 10
    while len(taken) < 30 and time.monotonic() < until_s:
        time.sleep(0.01)
    began_s, old = time.monotonic(), 0
    while peer.read()["time_s"] < began_s:
        old += 1
    assert 0 < old < 15
    peer.close()


def test_one_look_serves_the_sessions_of_all_nodes() -> None:
    setting = Setting(["a", "b", "c"])
    peers = [setting.accept().welcome() for _ in range(3)]
    assert {peer.hello["node"] for peer in peers} == {"a", "b", "c"}
    assert len({peer.hello["boot"] for peer in peers}) == 3
    time.sleep(0.1)
    taken = len(setting.readings.taken)
    counts = [peer.next("radio")["time_s"] for peer in peers for _ in range(5)]
    assert max(counts) - taken < 15
    assert setting.readings.taken[-1] == ("a", "b", "c")
    setting.end()
    for peer in peers:
        peer.close()


def test_only_the_controller_with_the_greatest_epoch_is_obeyed() -> None:
    setting = Setting(["a"], controllers=2)
    old, new = (setting.accept(number).welcome() for number in range(2))
    # While none leads both are.
    for peer in (old, new):
        peer.send(type="transition", seq=1, technology="wifi", mac="02:00:00:00:00:01", neighbour="x")
        assert "no hostapd" in peer.next("error")["message"]
    old.send(type="lead", seq=2, epoch=4)
    assert old.next("ok")["seq"] == 2
    new.send(type="transition", seq=3, technology="wifi", mac="02:00:00:00:00:01", neighbour="x")
    assert new.next("error").items() >= {"seq": 3, "message": "stale epoch", "epoch": 4}.items()
    new.send(type="read", seq=4)
    while new.next("radio")["seq"] != 4:
        pass
    new.send(type="lead", seq=5, epoch=5)
    assert new.next("ok")["seq"] == 5
    for message in ({"type": "transition"}, {"type": "neighbours"}, {"type": "lead", "epoch": 4}):
        old.send(**message, seq=6)
        assert old.next("error")["message"] == "stale epoch"
    # It outlives sessions.
    old.close()
    assert setting.accept(0).hello["epoch"] == 5
    setting.end()
    new.close()


def test_a_standby_gets_the_readings_of_each_second() -> None:
    setting = Setting(["a"], controllers=2)
    leader, standby = (setting.accept(number).welcome() for number in range(2))
    leader.send(type="lead", seq=1, epoch=1)
    leader.next("ok")
    standby.send(type="transition", seq=2)
    standby.next("error")
    first = standby.next("radio")["time_s"]
    counts = [standby.next("radio")["time_s"] for _ in range(2)]
    assert counts[1] - first > 1.5 * 1000 / INTERVAL_MS * 0.5
    setting.end()
    for peer in (leader, standby):
        peer.close()


def test_a_pong_says_nothing_of_a_leader_until_one_was_named(one: Setting) -> None:
    peer = one.accept().welcome()
    for more in ({}, {"leader": True}):
        peer.send(type="ping", seq=8, **more)
        assert peer.next("pong") == {"type": "pong", "seq": 8}
    peer.close()


def test_a_standby_learns_when_the_leader_was_heard_and_the_leader_is_asked() -> None:
    setting = Setting(["a", "b"], controllers=2)
    of_node = [{peer.hello["node"]: peer for peer in (setting.accept(n).welcome(10_000) for _ in "ab")} for n in (0, 1)]
    leader, standby = of_node[0]["a"], of_node[1]["a"]
    leader.send(type="lead", seq=1, epoch=4)
    leader.next("ok")
    time.sleep(0.1)
    standby.send(type="ping", seq=2)
    pong = standby.next("pong")
    assert (pong["seq"], pong["epoch"]) == (2, 4) and 100 <= pong["heard_ms"] < 5000
    # That asked nobody; this does, once for all that come within a moment.
    for seq in range(3, 8):
        standby.send(type="ping", seq=seq, leader=True)
        assert standby.next("pong")["heard_ms"] >= 100
    asked = leader.next("ping")
    leader.send(type="pong", seq=asked["seq"])
    leader.send(type="ping", seq=9, leader=True)
    # Whoever leads is heard now, and is not asked.
    assert leader.read() == {"type": "pong", "seq": 9, "epoch": 4, "heard_ms": 0}
    standby.send(type="ping", seq=10)
    assert standby.next("pong")["heard_ms"] < 100
    # Nobody has named an epoch to the other node.
    of_node[1]["b"].send(type="ping", seq=1, leader=True)
    assert of_node[1]["b"].next("pong") == {"type": "pong", "seq": 1}
    leader.close()
    time.sleep(0.05)
    standby.send(type="ping", seq=11, leader=True)
    assert standby.next("pong") == {"type": "pong", "seq": 11, "epoch": 4}
    setting.end()
    for peer in (standby, *of_node[0].values(), *of_node[1].values()):
        peer.close()


@pytest.mark.parametrize("epoch", [0, -1, True, "3", 1.5, None, 2**63, [1]])
def test_an_epoch_that_is_none_is_refused(one: Setting, epoch: object) -> None:
    peer = one.accept().welcome()
    peer.send(type="lead", seq=1, epoch=epoch)
    assert "expected" in peer.next("error")["message"]
    peer.close()
    again = one.accept()
    assert "epoch" not in again.hello
    again.close()


def test_lists_of_addresses() -> None:
    assert addresses_of("127.0.0.1:1, [::1]:2") == [("127.0.0.1", 1), ("::1", 2)]
    for text in ("127.0.0.1:1,127.0.0.1:1", "127.0.0.1:1,", ",".join(f"127.0.0.1:{n}" for n in range(1, 10))):
        with pytest.raises(ConfigError):
            addresses_of(text)


@pytest.mark.parametrize(
    "text", ["", "6654", "127.0.0.1", "127.0.0.1:", ":6654", "127.0.0.1:0", "127.0.0.1:99999", "x:y"]
)
def test_wrong_addresses_are_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        address_of(text)


def test_addresses() -> None:
    assert address_of("127.0.0.1:6654") == ("127.0.0.1", 6654)
    assert address_of("[::1]:6654") == ("::1", 6654)

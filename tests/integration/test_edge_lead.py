"""A real agent with two controllers: it obeys the greatest epoch, and a takeover leaves what is in force."""

from __future__ import annotations

import json
import os
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hyroads.mininet.isolation import enter_network_namespace
from hyroads.mininet.programs import Program, find_program, run

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("ip") is None, reason="needs root and iproute2"),
]

PATHS = [{"id": path, "labels": [100 + path, 200], "rate_mbps": 4.0 + path, "mtu": 1600} for path in (1, 2)]
CONFIG = {
    "type": "config", "revision": 12,
    "hello": {"interval_ms": 40, "dead_ms": 140, "send": [], "expect": []},
    "ingress": [{"number": 16, "id": "f", "default": False, "queue_ms": 60, "paths": PATHS}],
    "egress": [],
}  # fmt: skip
FASTER = {"type": "rates", "rates": {"16": {"1": 9.0}}}


class Peer:
    """A controller's end of one session."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(5)
        self.connection = connection
        self.lines = connection.makefile("rb")
        self.hello = self.next("hello")
        self.seq = 0

    def next(self, kind: str, seq: int | None = None) -> dict[str, Any]:
        while True:
            line = self.lines.readline()
            assert line, "the session ended"
            message = json.loads(line)
            if message["type"] in (kind, "error" if seq else kind) and (seq is None or message.get("seq") == seq):
                return message

    def welcome(self, report_ms: int = 100) -> Peer:
        self.send(type="welcome", version=1, report_ms=report_ms)
        return self

    def send(self, **message: Any) -> None:
        self.connection.sendall(json.dumps(message).encode() + b"\n")

    def ask(self, **message: Any) -> dict[str, Any]:
        self.seq += 1
        self.send(**message, seq=self.seq)
        return self.next("ok", self.seq)

    def rates(self) -> list[float]:
        self.send(type="stats", seq=0)
        (flow,) = self.next("report", 0)["ingress"]
        return [path["rate_mbps"] for path in flow["paths"]]


class Lab:
    def __init__(self, folder: Path) -> None:
        self.namespace = f"hr-lead-{os.getpid()}"
        run("ip", "netns", "add", self.namespace)
        run("ip", "-n", self.namespace, "link", "set", "lo", "up")
        self.listeners: list[socket.socket] = []
        thread = threading.Thread(target=self._listen)
        thread.start()
        thread.join()
        addresses = ",".join(f"127.0.0.1:{listener.getsockname()[1]}" for listener in self.listeners)
        command = ["ip", "netns", "exec", self.namespace, find_program("hyroads-edge"), "--node", "a"]
        command += ["--access", "tap:acc", "--network", "tap:net", "--controller", addresses]
        self.agent = Program("agent", command, folder / "agent.log")
        self.agent.start()

    def _listen(self) -> None:
        enter_network_namespace(Path("/run/netns") / self.namespace)
        for _ in range(2):
            listener = socket.create_server(("127.0.0.1", 0))
            listener.settimeout(5)
            self.listeners.append(listener)

    def accept(self, controller: int) -> Peer:
        return Peer(self.listeners[controller].accept()[0])

    def end(self) -> None:
        self.agent.stop()
        for listener in self.listeners:
            listener.close()
        run("ip", "netns", "del", self.namespace)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path)
    yield lab
    lab.end()


def test_a_takeover_leaves_what_is_in_force_and_the_old_leader_changes_nothing(lab: Lab) -> None:
    old, new = lab.accept(0).welcome(), lab.accept(1).welcome()
    assert "epoch" not in old.hello
    assert old.ask(type="lead", epoch=1).items() >= {"type": "ok", "revision": 0, "rates": {}}.items()
    assert "from" in old.ask(**CONFIG)
    assert new.ask(**CONFIG).items() >= {"type": "error", "message": "stale epoch", "epoch": 1}.items()
    # The next leader learns what is in force; the same configuration again changes nothing.
    told = new.ask(type="lead", epoch=2)
    assert told["revision"] == 12 and told["rates"] == {"16": {"1": 5.0, "2": 6.0}}
    assert "from" not in new.ask(**CONFIG) and new.rates() == [5.0, 6.0]
    for message in (FASTER, {**CONFIG, "revision": 13, "ingress": []}, {"type": "lead", "epoch": 1}):
        assert old.ask(**message)["message"] == "stale epoch"
    assert new.rates() == [5.0, 6.0] and old.rates() == [5.0, 6.0]
    assert new.ask(**FASTER)["type"] == "ok" and new.rates() == [9.0, 6.0]
    old.connection.shutdown(socket.SHUT_RDWR)
    again = lab.accept(0).welcome()
    assert again.hello["epoch"] == 2 and again.hello["revision"] == 12
    assert again.ask(**FASTER)["message"] == "stale epoch"


def test_a_standby_is_told_each_second_and_hears_at_once_what_it_asks(lab: Lab) -> None:
    leader, standby = lab.accept(0).welcome(50), lab.accept(1).welcome(50)
    leader.ask(type="lead", epoch=1)
    standby.ask(type="rates", rates={})
    counts = []
    for peer in (leader, standby):
        peer.next("report")
        began_s, count = time.monotonic(), 0
        while time.monotonic() < began_s + 2.5:
            peer.next("report")
            count += 1
        counts.append(count)
    assert counts[0] > 5 * counts[1] > 0

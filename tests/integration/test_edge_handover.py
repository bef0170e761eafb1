"""Copies and handovers between two real agents on real interfaces: nothing lost, doubled or out of order."""

from __future__ import annotations

import os
import shutil
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from control_clients import AgentControl
from edge_pair import FORWARD, EdgePair, EmulatedPath
from edge_rig import SO_RCVBUFFORCE, new_pair, socket_in, udp_socket

from hyroads.controller.agents.markers import PathMarkers, has_reached, parse_passed

pytestmark = [
    pytest.mark.root,
    pytest.mark.alone,
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("ip") is None, reason="needs root and iproute2"),
]

PORT = 7000
RATE_MBPS = 18.0


class Stream:
    """Numbered datagrams from `a` to `b` while the context lasts, and what came of them."""

    def __init__(self, pair: EdgePair, gap_s: float) -> None:
        self._gap_s = gap_s
        self._out = socket_in(pair, "a", udp_socket)
        self._back = socket_in(pair, "b", udp_socket)
        self._back.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 8 << 20)
        self._back.bind(("10.8.0.2", PORT))
        self._back.settimeout(1.5)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._send)
        self.sent = 0
        self.got: list[int] = []

    def _send(self) -> None:
        while not self._stop.is_set():
            self._out.sendto(struct.pack("!I", self.sent) + bytes(496), ("10.8.0.2", PORT))
            self.sent += 1
            time.sleep(self._gap_s)

    def __enter__(self) -> Stream:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        try:
            while True:
                self.got.append(struct.unpack("!I", self._back.recv(2000)[:4])[0])
        except TimeoutError:
            pass
        self._out.close()
        self._back.close()


class Ends:
    """The sending and the receiving agent of the forward flow."""

    def __init__(self, pair: EdgePair, sender: AgentControl, receiver: AgentControl) -> None:
        self.pair, self.sender, self.receiver = pair, sender, receiver
        self.marks: dict[int, PathMarkers] = {}
        receiver.subscribe()

    def egress(self, **flow: Any) -> None:
        self.receiver.configure(self.pair.config("b", late="drop", **flow))

    def ingress(self, one: float | None, two: float | None, split: str = "proportional") -> int:
        config = self.pair.config("a", (one, two))
        config["ingress"][0]["split"] = {"kind": split}
        return self.sender.configure(config)[FORWARD]

    def wait_until_needless(self, first: int, old: int, new: int) -> float:
        """Until nothing is under way by the old path alone and something came by the new one; the seconds it took."""
        began_s = time.monotonic()
        self.marks = {}
        while not (
            has_reached(self.marks[old].passed if old in self.marks else None, first)
            and has_reached(self.marks[new].arrived if new in self.marks else None, first)
        ):
            flow, paths = parse_passed(self.receiver.wait_event("passed", 3.0))
            assert flow == FORWARD
            self.marks = {path.id: path for path in paths}
        return time.monotonic() - began_s

    def hand_over(self, old: int, *, copies: bool, rate_mbps: float | None = RATE_MBPS) -> float:
        """As the mobility managers do it, hoolock or bicast."""
        new = 3 - old
        self.receiver.events.clear()
        self.egress(hold={"paths": [old], "ms": 2000}, watch=[1, 2])
        only_new = (0.0, rate_mbps) if new == 2 else (rate_mbps, 0.0)
        first = self.ingress(rate_mbps, rate_mbps, "copy") if copies else self.ingress(*only_new)
        took_s = self.wait_until_needless(first, old, new)
        # The client leaves the old place.
        self.pair.ip("b", "link", "set", self.pair.interface("b", old), "down")
        if copies:
            self.ingress(*only_new)
        self.egress()
        self.pair.ip("b", "link", "set", self.pair.interface("b", old), "up")
        return took_s

    def counters(self) -> dict[str, Any]:
        (flow,) = self.receiver.stats()["egress"]
        return flow

    def missing(self) -> dict[str, int]:
        """Frames that were not passed on, by counter; those of the stream and what the host itself sends."""
        counters = self.counters()
        return {name: counters[name] for name in ("lost", "timed_out", "stale") if counters[name]}


@contextmanager
def ends(folder: Path, *, paths: tuple[EmulatedPath, ...] = ()) -> Iterator[Ends]:
    with new_pair(folder, paths=paths) as pair, pair.client("a") as sender, pair.client("b") as receiver:
        both = Ends(pair, sender, receiver)
        both.egress()
        # While the kernel sends what waited for a neighbour's address, the next frame may overtake that.
        pair.ping_ms("10.8.0.2", 1)
        yield both


def test_copies_arrive_once_and_in_order_and_a_path_may_die(tmp_path: Path) -> None:
    with ends(tmp_path, paths=(EmulatedPath(20, 3), EmulatedPath(20, 12))) as both:
        both.ingress(RATE_MBPS, RATE_MBPS, "copy")
        with Stream(both.pair, 0.001) as stream:
            time.sleep(0.5)
            for path in (1, 2, 1):
                both.pair.ip("b", "link", "set", both.pair.interface("b", path), "down")
                time.sleep(0.2)
                both.pair.ip("b", "link", "set", both.pair.interface("b", path), "up")
                time.sleep(0.2)
        assert stream.got == list(range(stream.sent))
        counters = both.counters()
        assert counters["duplicate"] > stream.sent / 4
        assert both.missing() == {}
        (flow,) = both.sender.stats()["ingress"]
        assert flow["sent"] >= stream.sent
        assert [path["skipped"] for path in flow["paths"]] == [0, 0]


@pytest.mark.parametrize("copies", [False, True], ids=["hold", "copies"])
def test_handovers_there_and_back_lose_double_and_reorder_nothing(tmp_path: Path, copies: bool) -> None:
    with ends(tmp_path, paths=(EmulatedPath(20, 40), EmulatedPath(20, 4))) as both:
        both.ingress(RATE_MBPS, 0.0)
        with Stream(both.pair, 0.001) as stream:
            for round_ in range(3):
                for old in (1, 2):
                    time.sleep(0.25)
                    took_s = both.hand_over(old, copies=copies)
                    # The slower path has 40 ms; the rest is how busy the machine is.
                    assert 0.03 < took_s < 1.0 or old == 2, (round_, took_s)
        assert stream.got == list(range(stream.sent))
        assert both.missing() == {}
        assert (both.counters()["duplicate"] > 0) is copies


def test_a_handover_of_an_idle_flow_is_told_at_once(tmp_path: Path) -> None:
    with ends(tmp_path) as both:
        both.ingress(RATE_MBPS, 0.0)
        time.sleep(1.0)
        assert both.hand_over(1, copies=False) < 0.3
        assert both.marks[1].paused and not both.marks[2].paused
        both.receiver.events.clear()
        time.sleep(0.5)
        both.receiver.stats()
        assert both.receiver.events == [], "nothing more is told"


def test_handovers_at_full_rate(tmp_path: Path) -> None:
    with ends(tmp_path) as both:
        both.ingress(None, 0.0)
        both.pair.iperf_server()
        result: list[float] = []
        thread = threading.Thread(target=lambda: result.append(both.pair.tcp_mbps("10.8.0.2", 4)))
        thread.start()
        time.sleep(1.2)
        both.sender.reset_counters()
        both.receiver.reset_counters()
        for round_ in range(8):
            both.hand_over(1 + round_ % 2, copies=round_ % 4 > 1, rate_mbps=None)
            time.sleep(0.1)
        thread.join()
        counters = both.counters()
        # Interfaces may drop at this rate, agents may not double or reorder.
        assert counters["stale"] == counters["late"] == counters["timed_out"] == 0
        assert counters["lost"] <= counters["delivered_frames"] / 1000
        assert result[0] > 100

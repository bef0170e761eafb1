"""A paced UDP stream whose every packet is accounted for: how many were lost, when, and how late the rest came.

    python -m hyroads.mininet.probe receive --port P --seconds S     prints one JSON document at the end
    python -m hyroads.mininet.probe send --to ADDRESS --port P --seconds S --interval-ms M --bytes N

Both ends run on one machine, so their CLOCK_MONOTONIC is one clock and one-way delays are exact.
"""

from __future__ import annotations

import argparse
import itertools
import json
import socket
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass

HEADER = struct.Struct("!Qd")
MAGIC_PORT = 5300


@dataclass(frozen=True)
class Arrival:
    """A packet as it was sent and as it arrived (seconds of CLOCK_MONOTONIC)."""

    number: int
    sent_s: float
    received_s: float


def out_of_order(numbers: Sequence[int]) -> int:
    """How many numbers come after a higher one."""
    return sum(number < highest for number, highest in zip(numbers, itertools.accumulate(numbers, max), strict=True))


@dataclass(frozen=True)
class StreamReport:
    """A whole stream: ``sent`` packets numbered from 0, every ``interval_s`` from ``start_s`` on, and what arrived."""

    sent: int
    start_s: float
    interval_s: float
    arrivals: tuple[Arrival, ...]

    @property
    def lost(self) -> list[int]:
        """Numbers of the packets that never arrived."""
        arrived = {arrival.number for arrival in self.arrivals}
        return [number for number in range(self.sent) if number not in arrived]

    @property
    def doubled(self) -> int:
        """How often a packet arrived again."""
        return len(self.arrivals) - len({arrival.number for arrival in self.arrivals})

    @property
    def out_of_order(self) -> int:
        """Packets that arrived after one that was sent later."""
        return out_of_order([arrival.number for arrival in self.arrivals])

    def sent_at_s(self, number: int) -> float:
        """When a packet was due to leave."""
        return self.start_s + number * self.interval_s

    def last_loss_after_s(self, event_s: float, before_s: float = float("inf")) -> float:
        """Seconds from ``event_s`` to the end of the outage: to one interval after the last packet lost between
        ``event_s`` and ``before_s`` was sent; 0 if none was lost."""
        lost = [self.sent_at_s(number) for number in self.lost]
        within = [sent_s for sent_s in lost if event_s - self.interval_s <= sent_s < before_s]
        return max(0.0, max(within) + self.interval_s - event_s) if within else 0.0

    def longest_gap_s(self, from_s: float, to_s: float) -> float:
        """The longest time without any arrival between two moments."""
        times = sorted(a.received_s for a in self.arrivals if from_s <= a.received_s <= to_s)
        edges = [from_s, *times, to_s]
        return max(later - earlier for earlier, later in itertools.pairwise(edges))


def send(address: str, port: int, seconds: float, interval_s: float, size: int) -> dict[str, float]:
    """Sends on an absolute schedule, so that a late wake-up does not shift what follows; ``late_s`` is the worst."""
    count = round(seconds / interval_s)
    padding = bytes(max(0, size - HEADER.size))
    late_s = 0.0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stream:
        stream.connect((address, port))
        start_s = time.monotonic() + 0.05
        for number in range(count):
            due_s = start_s + number * interval_s
            time.sleep(max(0.0, due_s - time.monotonic()))
            now_s = time.monotonic()
            late_s = max(late_s, now_s - due_s)
            try:
                stream.send(HEADER.pack(number, now_s) + padding)
            except OSError:
                # No listener yet, or a full queue: that packet is lost, and will be counted so.
                continue
    return {"sent": count, "start_s": start_s, "interval_s": interval_s, "late_s": late_s}


def receive(port: int, seconds: float) -> list[list[float]]:
    """Collects [number, sent, received] until ``seconds`` are over."""
    arrivals: list[list[float]] = []
    deadline_s = time.monotonic() + seconds
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stream:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        stream.bind(("0.0.0.0", port))  # noqa: S104  # inside a node's own namespace
        while (left_s := deadline_s - time.monotonic()) > 0:
            stream.settimeout(left_s)
            try:
                packet = stream.recv(65536)
            except TimeoutError:
                break
            if len(packet) >= HEADER.size:
                number, sent_s = HEADER.unpack_from(packet)
                arrivals.append([number, sent_s, time.monotonic()])
    return arrivals


def report(sent: dict[str, float], arrivals: Sequence[Sequence[float]]) -> StreamReport:
    """Joins what the two ends printed."""
    return StreamReport(
        sent=int(sent["sent"]),
        start_s=sent["start_s"],
        interval_s=sent["interval_s"],
        arrivals=tuple(Arrival(int(number), sent_s, received_s) for number, sent_s, received_s in arrivals),
    )


def main() -> None:
    """Entry point of either end."""
    parser = argparse.ArgumentParser()
    ends = parser.add_subparsers(dest="end", required=True)
    receiver, sender = ends.add_parser("receive"), ends.add_parser("send")
    for end in (receiver, sender):
        end.add_argument("--port", type=int, default=MAGIC_PORT)
        end.add_argument("--seconds", type=float, required=True)
    sender.add_argument("--to", required=True)
    sender.add_argument("--interval-ms", type=float, default=5.0)
    sender.add_argument("--bytes", type=int, default=1200)
    arguments = parser.parse_args()
    if arguments.end == "receive":
        print(json.dumps(receive(arguments.port, arguments.seconds)))
    else:
        a = arguments
        print(json.dumps(send(a.to, a.port, a.seconds, a.interval_ms / 1000, a.bytes)))


if __name__ == "__main__":
    main()

"""One connection of TCP or MPTCP as a program: one end sends without end, the other notes when what arrived.

``python mptcp_stream.py send|receive --listen PORT | --connect ADDRESS:PORT [--log FILE]``. The receiver
writes ``{"arrivals": [[monotonic seconds, bytes], ...], "bytes": ..., "exact": ...}`` when the connection ends or it is
told to (SIGTERM). Both ends know the content, so that ``exact`` says whether every byte came, in order.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import socket
import sys
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

TWO_WAYS = """
nodes:
  s: {role: gateway}
  a: {role: ap}
  b: {role: ap}
  t: {role: client, agent: true}
links:
  - {id: sa, from: s, to: a, technology: eth-1, capacity_mbps: 40, both: true}
  - {id: sb, from: s, to: b, technology: eth-2, capacity_mbps: 40, both: true}
  - {id: at, from: a, to: t, technology: wifi, capacity_mbps: 10, both: true}
  - {id: bt, from: b, to: t, technology: plc, capacity_mbps: 10, both: true}
interference: {rule: technology}
"""
"""Two ways between the hosts s and t, on each of which one subflow fits."""
SECOND = "10.0.77.77"
"""A second address of t."""
STREAM = Path(__file__)
MPTCP = 262
"""The number of the protocol (IPPROTO_MPTCP)."""
_CONTENT = random.Random(1).randbytes(1 << 20)
_READ_BYTES = 1 << 16


@dataclass(frozen=True)
class Stream:
    """What a receiver noted: times, monotonic seconds, and bytes that arrived then."""

    arrivals: tuple[tuple[float, int], ...]
    exact: bool

    @staticmethod
    def read(log: Path) -> Stream:
        """The notes of a receiver that has ended."""
        document = json.loads(log.read_text(encoding="utf-8"))
        return Stream(tuple((float(at_s), int(count)) for at_s, count in document["arrivals"]), document["exact"])

    def mbps(self, from_s: float, to_s: float) -> float:
        """Mean rate of what arrived from ``from_s`` to ``to_s``, Mb/s."""
        return sum(count for at_s, count in self.arrivals if from_s <= at_s < to_s) * 8e-6 / (to_s - from_s)

    def longest_gap_s(self, from_s: float, to_s: float) -> float:
        """Longest time between two arrivals, from ``from_s`` to ``to_s``."""
        times = [from_s, *(at_s for at_s, _ in self.arrivals if from_s <= at_s <= to_s), to_s]
        return max(after - before for before, after in pairwise(times))


def send(connection: socket.socket) -> None:
    """Send until the other end ends it."""
    offset = 0
    with suppress(OSError):
        while True:
            offset = (offset + connection.send(_CONTENT[offset : offset + _READ_BYTES])) % len(_CONTENT)


def receive(connection: socket.socket, log: Path) -> None:
    """Note what arrives until the connection ends, or this process is told to end."""
    arrivals: list[tuple[float, int]] = []
    total, exact = 0, True
    twice = memoryview(_CONTENT * 2)
    try:
        try:
            while data := connection.recv(_READ_BYTES):
                arrivals.append((round(time.monotonic(), 6), len(data)))
                at = total % len(_CONTENT)
                exact = exact and data == twice[at : at + len(data)]
                total += len(data)
        finally:
            # The other end is told to end first: this one may be writing already when it is told, too.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
    except (OSError, KeyboardInterrupt):
        pass
    log.write_text(json.dumps({"arrivals": arrivals, "bytes": total, "exact": exact}), encoding="utf-8")


def _connection(args: argparse.Namespace, open_ends: ExitStack) -> socket.socket:
    protocol = 0 if args.tcp else MPTCP
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol)
    if args.congestion:
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, args.congestion.encode())
    if args.connect:
        address, _, port = args.connect.rpartition(":")
        made.connect((address, int(port)))
        return made
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(("", args.listen))
    made.listen()
    print("listening", flush=True)
    # It goes on listening: the kernel refuses further subflows to a port where nobody does.
    open_ends.enter_context(made)
    return made.accept()[0]


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="one end of a stream")
    parser.add_argument("role", choices=("send", "receive"))
    parser.add_argument("--listen", type=int, metavar="PORT")
    parser.add_argument("--connect", metavar="ADDRESS:PORT")
    parser.add_argument("--log", type=Path, metavar="FILE")
    parser.add_argument("--tcp", action="store_true", help="plain TCP instead of MPTCP")
    parser.add_argument("--congestion", metavar="NAME", help="congestion control")
    args = parser.parse_args()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    with suppress(KeyboardInterrupt), ExitStack() as open_ends:
        connection = open_ends.enter_context(_connection(args, open_ends))
        if args.role == "send":
            send(connection)
        else:
            receive(connection, args.log)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A plain lane beside a run: how much of its rate a paced forwarder carries that has nothing to do with HyRoads.

    python -m hyroads.mininet.reference FILE [--realtime] [--shaped]      in a network namespace of its own, until it is
    killed

A sender puts frames on a veth pair. A forwarder with the priority of agents and medium takes them off, paces them as an
agent paces a path (a late forwarder catches up by ``BURST_S`` and no more), and puts them on a second veth pair. When a
demo falls short, this lane decides whether the machine or HyRoads is the cause: it has no controller, no agents, no
switch and no medium, but needs its processor time at the same moments. Every ``SAMPLE_S`` it appends the time and the
bytes forwarded so far to FILE.

``--shaped`` is for demos whose links the kernel shapes: a token bucket of the same kind paces the second veth pair, and
the forwarder sends as fast as that takes frames.
"""

from __future__ import annotations

import argparse
import os
import select
import socket
import subprocess
import sys
import time
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from .programs import Program, run, wait_until

# As agents and medium (dataplane/src/sys/process.rs).
PRIORITY = 10
RATE_MBPS = 6.0
FRAME_BYTES = 1450
OVERLOAD = 1.15
BURST_S = 0.002
# What udp_load makes up for after a pause.
ARREARS_S = 0.02
TICK_S = 0.002
QUEUE_BYTES = 1 << 17
_BUCKET_BYTES, _BUCKET_QUEUE_BYTES = 3200, 75_000
SAMPLE_S = 0.05
WINDOW_S = 0.4
# A lane that carries less of its rate has fallen short.
LEAST = 0.95
TOO_SLOW = "the machine was too slow to be believed"
START_TIMEOUT_S = 20.0
# EtherType for experiments (IEEE 802): no program takes these frames for its own.
_HEADER = bytes.fromhex("ffffffffffff 020000000001 88b5")
_ALL = 0x0003


@dataclass(frozen=True)
class Lane:
    """Samples of a lane: moments (seconds of CLOCK_MONOTONIC) and the bytes forwarded until then."""

    samples: Sequence[tuple[float, float]] = ()
    rate_mbps: float = RATE_MBPS

    def ratio(self, from_s: float, to_s: float) -> float:
        """Carried / wanted between two moments, at most 1; 1 if there are no samples of that time."""
        inside = [each for each in self.samples if from_s - SAMPLE_S <= each[0] <= to_s + SAMPLE_S]
        if len(inside) < 2 or inside[-1][0] <= inside[0][0]:
            return 1.0
        (first_s, first_bytes), (last_s, last_bytes) = inside[0], inside[-1]
        return min(1.0, (last_bytes - first_bytes) * 8e-6 / (last_s - first_s) / self.rate_mbps)

    def worst_ratio(self, from_s: float, to_s: float) -> float:
        """The same for the worst ``WINDOW_S`` in between."""
        moments = [at_s for at_s, _ in self.samples]
        inside = moments[bisect_left(moments, from_s) : bisect_left(moments, to_s)]
        return min((self.ratio(at_s, at_s + WINDOW_S) for at_s in inside if at_s + WINDOW_S <= to_s), default=1.0)

    def missing_s(self, from_s: float, to_s: float) -> float:
        """How long the lane would have needed for what it did not carry between two moments."""
        return (1 - self.ratio(from_s, to_s)) * max(0.0, to_s - from_s)

    @property
    def why_slow(self) -> str:
        """Why figures of the run cannot be believed if they fall short; empty if the lane never fell short."""
        worst = self.worst_ratio(*self.span_s)
        return carried(worst) if worst < LEAST else ""

    @property
    def span_s(self) -> tuple[float, float]:
        """First and last moment."""
        return (self.samples[0][0], self.samples[-1][0]) if self.samples else (0.0, 0.0)


def carried(ratio: float) -> str:
    """What the lane carried, in words."""
    return f"the plain lane beside the run carried {ratio:.0%} of its rate"


class Reference:
    """The lane as a program beside a run; a context manager. ``directory`` takes its file and log."""

    def __init__(self, directory: Path, *, realtime: bool = True, shaped: bool = False) -> None:
        self._file = directory / "reference.txt"
        options = [*(["--realtime"] if realtime else []), *(["--shaped"] if shaped else [])]
        module = [sys.executable, "-m", __name__, str(self._file), *options]
        self._program = Program("reference", ["unshare", "--net", *module], directory / "reference.log")

    def __enter__(self) -> Self:
        self._program.start()
        wait_until("reference", lambda: bool(self.lane().samples) or not self._program.alive, START_TIMEOUT_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._program.stop()

    def lane(self) -> Lane:
        """All samples so far."""
        try:
            lines = self._file.read_text(encoding="ascii").splitlines()
        except OSError:
            return Lane()
        rows = [line.split() for line in lines]
        return Lane(tuple((float(row[0]), float(row[1])) for row in rows if len(row) == 3))


def _veth(near: str, far: str) -> None:
    run("ip", "link", "add", near, "type", "veth", "peer", "name", far)
    for end in (near, far):
        run("ip", "link", "set", end, "up")


def _raw(interface: str, protocol: int = 0) -> socket.socket:
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(protocol))
    opened.bind((interface, protocol))
    return opened


def _send() -> None:
    """Offers more than the rate, as the load of demos does, until it is killed."""
    outlet, frame = _raw("r0"), _HEADER + bytes(FRAME_BYTES - len(_HEADER))
    per_s, credit, before_s = RATE_MBPS * OVERLOAD * 1e6 / 8, 0.0, time.monotonic()
    while True:
        time.sleep(TICK_S)
        now_s = time.monotonic()
        credit += per_s * min(now_s - before_s, ARREARS_S)
        before_s = now_s
        while credit >= FRAME_BYTES:
            credit -= FRAME_BYTES
            outlet.send(frame)


def _shape(device: str) -> None:
    """A token bucket as those of a client's interfaces (client_stack.py)."""
    shape = ["burst", str(_BUCKET_BYTES), "limit", str(_BUCKET_QUEUE_BYTES)]
    run("tc", "qdisc", "replace", "dev", device, "root", "tbf", "rate", f"{RATE_MBPS:g}mbit", *shape)


def _forward(path: Path, *, shaped: bool) -> None:
    """Forwards frames from one veth pair to the next, paced unless that is shaped, and writes samples, until it is
    killed."""
    inlet, outlet = _raw("r1", _ALL), _raw("r2")
    if shaped:
        # Sending waits for room in the bucket's queue.
        outlet.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUCKET_QUEUE_BYTES // 2)
    inlet.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, QUEUE_BYTES)
    frame_s = FRAME_BYTES * 8e-6 / RATE_MBPS
    with path.open("w", encoding="ascii", buffering=1) as file:
        # The start of the sender is no part of the run: on a busy machine it takes longer than WINDOW_S.
        select.select([inlet], [], [])
        due_s, sample_s, forwarded = time.monotonic(), 0.0, 0
        while True:
            now_s = time.monotonic()
            if now_s >= sample_s:
                file.write(f"{now_s:.6f} {forwarded} .\n")
                sample_s = now_s + SAMPLE_S
            if due_s > now_s:
                time.sleep(due_s - now_s)
                continue
            if not select.select([inlet], [], [], SAMPLE_S)[0]:
                continue
            outlet.send(inlet.recv(2 * FRAME_BYTES))
            forwarded += FRAME_BYTES
            due_s = now_s if shaped else max(due_s, time.monotonic() - BURST_S) + frame_s


def main(arguments: Sequence[str] | None = None) -> None:
    """The program."""
    parser = argparse.ArgumentParser(prog="python -m hyroads.mininet.reference")
    parser.add_argument("file", type=Path)
    for option in ("--realtime", "--shaped"):
        parser.add_argument(option, action="store_true")
    given = parser.parse_args(arguments)
    _veth("r0", "r1")
    _veth("r2", "r3")
    if given.shaped:
        _shape("r2")
    sender = subprocess.Popen([sys.executable, "-c", f"from {__spec__.name} import _send; _send()"])
    try:
        if given.realtime:
            os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(PRIORITY))
        _forward(given.file, shaped=given.shaped)
    finally:
        sender.kill()
        sender.wait()


if __name__ == "__main__":
    main()

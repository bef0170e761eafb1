"""Traffic between a client stack and the hosts behind it, byte by byte: TCP transfers and streams of UDP packets.

Sockets are made in the namespaces of :class:`~hyroads.mininet.client_stack.ClientStack`, threads of this process serve
them: good for some 100 Mb/s, and for pauses of a few milliseconds. Times are CLOCK_MONOTONIC in seconds.
"""

from __future__ import annotations

import contextlib
import os
import socket
import statistics
import struct
import threading
import time
from itertools import pairwise
from typing import Protocol, Self

from .client_stack import ClientStack
from .isolation import socket_in
from .run_directory import NETNS_ROOT

TIMEOUT_S = 20.0
MPTCP = 262
"""The protocol of sockets for Multipath TCP (IPPROTO_MPTCP)."""
# What is sent repeats a block whose length is prime: bytes that are missing, doubled or moved are seen.
_BLOCK = os.urandom(65_521)
_PATTERN = _BLOCK * 3
_CHUNK_BYTES = 1 << 16
# A sender that is held back sends so many seconds' worth at a time.
_LIMITED_S = 0.1
# TCP_INFO: total_retrans lies at this offset (linux/tcp.h).
_TCP_INFO_BYTES, _TOTAL_RETRANS = 232, 100
_NUMBER = struct.Struct("!I")


class Ends(Protocol):
    """Hosts by their roles; one of them is ``client``. :class:`ClientStack` is one."""

    def namespace(self, role: str) -> str:
        """Name or path of a host's network namespace."""

    def address(self, role: str, version: int) -> str:
        """Where a host is reached by IPv4 or IPv6."""


def socket_of(stack: Ends, role: str, version: int, kind: socket.SocketKind, protocol: int = 0) -> socket.socket:
    """A socket in the namespace of a role, for IPv4 or IPv6."""
    family = socket.AF_INET if version == 4 else socket.AF_INET6
    made = socket_in(NETNS_ROOT / stack.namespace(role), family, kind, protocol)
    made.settimeout(TIMEOUT_S)
    return made


class Transfer:
    """A TCP connection that the client opens to ``to``, over which bytes flow until ``finish``, up or down.

    ``port`` 0 takes any. ``limit_mbps`` holds the sender back. ``protocol`` is TCP or ``MPTCP``. The connection stands
    when this has been made.
    """

    def __init__(
        self,
        stack: Ends,
        to: str = "server",
        *,
        version: int = 4,
        upload: bool = True,
        port: int = 0,
        limit_mbps: float | None = None,
        protocol: int = 0,
    ) -> None:
        self.arrivals: list[tuple[float, int]] = []
        self.sent_bytes = self.received_bytes = 0
        self.wrong_at: int | None = None
        self.failure: OSError | None = None
        self._limit_bytes_s = None if limit_mbps is None else limit_mbps * 1e6 / 8
        self._stop = threading.Event()
        # It goes on listening: the kernel refuses further subflows to a port where nobody does.
        self._listener = listener = socket_of(stack, to, version, socket.SOCK_STREAM, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("", port))
        listener.listen()
        self.port = int(listener.getsockname()[1])
        near = socket_of(stack, "client", version, socket.SOCK_STREAM, protocol)
        address = stack.address(to, version)
        near.connect((address, self.port))
        far, _ = listener.accept()
        far.settimeout(TIMEOUT_S)
        for end in (near, far):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
        self.began_s = time.monotonic()
        self.destination = f"[{address}]:{self.port}" if version == 6 else f"{address}:{self.port}"
        self._sender, self._receiver = (near, far) if upload else (far, near)
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._send, self._receive)]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for end in (self._sender, self._receiver):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self._listener.close()

    def finish(self) -> Self:
        """Ends the connection in order and waits until all has arrived; raises what went wrong."""
        self._stop.set()
        for thread in self._threads:
            thread.join(TIMEOUT_S)
        if self.failure is not None:
            raise self.failure
        return self

    def _send(self) -> None:
        limit = self._limit_bytes_s
        chunk = _CHUNK_BYTES if limit is None else max(1000, min(_CHUNK_BYTES, round(limit * _LIMITED_S)))
        try:
            while not self._stop.is_set():
                due_s = 0.0 if limit is None else self.began_s + self.sent_bytes / limit - time.monotonic()
                if due_s > 0 and self._stop.wait(due_s):
                    break
                at = self.sent_bytes % len(_BLOCK)
                self.sent_bytes += self._sender.send(memoryview(_PATTERN)[at : at + chunk])
            self._sender.shutdown(socket.SHUT_WR)
        except OSError as error:
            self.failure = error

    def _receive(self) -> None:
        buffer = bytearray(_CHUNK_BYTES)
        try:
            while length := self._receiver.recv_into(buffer):
                self.arrivals.append((time.monotonic(), length))
                at = self.received_bytes % len(_BLOCK)
                if self.wrong_at is None and memoryview(_PATTERN)[at : at + length] != memoryview(buffer)[:length]:
                    self.wrong_at = self.received_bytes
                self.received_bytes += length
        except OSError as error:
            self.failure = error

    @property
    def exact(self) -> bool:
        """Whether what was sent is what arrived, once it has ended."""
        return self.wrong_at is None and self.sent_bytes == self.received_bytes > 0

    @property
    def retransmitted(self) -> int:
        """Segments that the sender has sent again so far."""
        told = self._sender.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
        return int(struct.unpack_from("=I", told, _TOTAL_RETRANS)[0])

    def mbps(self, from_s: float, to_s: float) -> float:
        """Mean goodput between two moments."""
        return sum(length for at_s, length in self.arrivals if from_s <= at_s < to_s) * 8e-6 / (to_s - from_s)

    def longest_gap_s(self, from_s: float, to_s: float) -> float:
        """The longest time in which nothing arrived that began between two moments, even if it ended later."""
        times_s = [from_s, *(at_s for at_s, _ in self.arrivals if from_s <= at_s < to_s)]
        times_s.append(next((at_s for at_s, _ in self.arrivals if at_s >= to_s), max(to_s, times_s[-1])))
        return max(after_s - before_s for before_s, after_s in pairwise(times_s))


class Stream:
    """Numbered UDP packets from the client to ``to``, one each ``interval_s``, of ``size`` bytes, until ``finish``.

    ``echo``: the other end sends each back, and it counts when it is back.
    """

    def __init__(
        self,
        stack: ClientStack,
        to: str = "server",
        *,
        version: int = 4,
        port: int = 0,
        interval_s: float = 0.005,
        size: int = 200,
        echo: bool = False,
    ) -> None:
        self.sent_s: list[float] = []
        self.arrivals: list[tuple[int, float, int]] = []
        self.wrong = 0
        self._interval_s, self._size, self._echo = interval_s, size, echo
        self._stop, self._ended = threading.Event(), threading.Event()
        self._near, self._far = (socket_of(stack, role, version, socket.SOCK_DGRAM) for role in ("client", to))
        for end in (self._near, self._far):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
            end.settimeout(0.05)
        self._far.bind(("", port))
        self.port = int(self._far.getsockname()[1])
        self._near.connect((stack.address(to, version), self.port))
        works = [self._send, self._receive, *([self._return] if echo else [])]
        self._threads = [threading.Thread(target=work, daemon=True) for work in works]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._ended.set()
        for thread in self._threads:
            thread.join(TIMEOUT_S)
        self._near.close()
        self._far.close()

    def finish(self, wait_s: float = 0.5) -> Self:
        """Stops sending and lets what is on the way arrive."""
        self._stop.set()
        self._threads[0].join(TIMEOUT_S)
        until_s = time.monotonic() + wait_s
        while time.monotonic() < until_s and self.lost:
            time.sleep(0.02)
        self._ended.set()
        return self

    def pause(self) -> None:
        """Sends nothing more; what is on the way may still arrive."""
        self._stop.set()

    def _send(self) -> None:
        due_s = time.monotonic()
        while not self._stop.is_set():
            number = len(self.sent_s)
            self.sent_s.append(time.monotonic())
            # A packet that no interface takes is lost, as one on the way is.
            with contextlib.suppress(OSError):
                self._near.send(_packet(number, self._size))
            due_s += self._interval_s
            time.sleep(max(0.0, due_s - time.monotonic()))

    def _return(self) -> None:
        while not self._ended.is_set():
            with contextlib.suppress(OSError):
                packet, sender = self._far.recvfrom(_CHUNK_BYTES)
                self._far.sendto(packet, sender)

    def _receive(self) -> None:
        end = self._near if self._echo else self._far
        while not self._ended.is_set():
            # A timeout, or the news that nobody listened for a moment.
            with contextlib.suppress(OSError):
                packet = end.recv(_CHUNK_BYTES)
                now_s = time.monotonic()
                number = _NUMBER.unpack_from(packet)[0]
                self.wrong += packet != _packet(number, self._size)
                self.arrivals.append((number, now_s, len(packet)))

    @property
    def lost(self) -> int:
        """Packets that have not arrived, or not yet."""
        return len(self.sent_s) - len({number for number, _, _ in self.arrivals})

    @property
    def doubled(self) -> int:
        """Packets that arrived again."""
        arrivals = list(self.arrivals)  # Others may come meanwhile.
        return len(arrivals) - len({number for number, _, _ in arrivals})

    @property
    def out_of_order(self) -> int:
        """Packets that arrived behind their successor."""
        return sum(before[0] > after[0] for before, after in pairwise(self.arrivals))

    def delays_s(self, from_s: float = 0.0) -> list[float]:
        """Time from sending to arrival of each packet that was sent later than ``from_s``."""
        sent_s = self.sent_s
        return [at_s - sent_s[number] for number, at_s, _ in self.arrivals if sent_s[number] >= from_s]

    def mbps(self, from_s: float, to_s: float, header_bytes: int = 28) -> float:
        """Mean rate of what arrived between two moments, headers of IP and UDP included."""
        sizes = (size + header_bytes for _, at_s, size in self.arrivals if from_s <= at_s < to_s)
        return sum(sizes) * 8e-6 / (to_s - from_s)


def _packet(number: int, size: int) -> bytes:
    at = number % len(_BLOCK)
    return (_NUMBER.pack(number) + _PATTERN[at : at + size])[:size]


def ping_ms(stack: ClientStack, address: str, count: int, interval_s: float = 0.02) -> list[float]:
    """Round-trip times of pings from the client that were answered, in ms."""
    wait = ["-W", "1", "-c", str(count), "-i", f"{interval_s:g}"]
    # It fails if an answer is missing, which is for the caller to judge.
    said = stack.run("client", "sh", "-c", 'ping -n "$@" || true', "ping", *wait, address, timeout_s=60)
    return [float(line.split("time=")[1].split()[0]) for line in said.splitlines() if "time=" in line]


def median_ms(values_s: list[float]) -> float:
    """Median of times in seconds, in ms."""
    return 1e3 * statistics.median(values_s)

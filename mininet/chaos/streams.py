"""Packets of which each is accounted for, while parts are broken: UDP, pings and TCP between hosts, from one process.

    python -m hyroads.mininet.chaos.streams          requests as lines of JSON on stdin, one line of answer each

    {"open": "f1", "kind": "udp", "source": "/proc/7/ns/net", "target": "/proc/9/ns/net", "to": "10.0.0.2", "port": 5}
    {"tell": [5.0, 9.5]}        of packets sent between two moments of CLOCK_MONOTONIC: how many, and what was lost

A packet is lost until it arrives, however late. TCP sends numbered records at a steady rate; what counts is that each
arrives once and in order, and that the connection lives.
"""

from __future__ import annotations

import contextlib
import heapq
import json
import os
import selectors
import socket
import struct
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hyroads.mininet.emulation import Emulation
from hyroads.mininet.isolation import socket_in, udp_socket_in
from hyroads.mininet.udp_load import TrafficProcess

INTERVAL_S = 0.02
PAYLOAD_BYTES = 200
FIRST_PORT = 5601
UDP, PING, TCP = "udp", "ping", "tcp"
_NUMBER = struct.Struct("!Q")
_ECHO = struct.Struct("!BBHHH")
_ECHO_REQUEST, _ECHO_REPLY, _IP_HEADER = 8, 0, 20
_KEEP_S = 300.0
_DIAL_AGAIN_S = 1.0


@dataclass(frozen=True)
class Told:
    """Of one stream between two moments: packets sent and lost, how many came twice, and of TCP, what arrived."""

    name: str
    kind: str
    sent: int
    lost: int
    doubled: int
    arrived: int
    broken: int
    """TCP connections that ended, or carried something wrong."""

    @property
    def lost_s(self) -> float:
        """Lost packets times their interval."""
        return self.lost * INTERVAL_S


class Streams(TrafficProcess):
    """The process."""

    def __init__(self, emulation: Emulation) -> None:
        super().__init__(emulation, "hyroads.mininet.chaos.streams", "traffic")
        self._count = 0

    def open(self, kind: str, source: str, target: str) -> None:
        """Sends from one host to another from now on."""
        port = FIRST_PORT + self._count
        self._count += 1
        self.ask({"open": f"{kind} {source} -> {target}", "kind": kind, **self.ends(source, target), "port": port})

    def tell(self, from_s: float, to_s: float) -> list[Told]:
        """All streams between two moments of CLOCK_MONOTONIC."""
        return [Told(**each) for each in self.ask({"tell": [from_s, to_s]})["streams"]]


@dataclass
class Account:
    """What is known of a stream's packets: when each that has not arrived was sent, and what came more than once."""

    kind: str
    number: int = 0
    sent: deque[float] = field(default_factory=deque)
    missing: dict[int, float] = field(default_factory=dict)
    doubled: deque[float] = field(default_factory=deque)
    arrived: deque[float] = field(default_factory=deque)
    broken: deque[float] = field(default_factory=deque)

    def send(self, now_s: float) -> int:
        """The number of a packet that is sent now."""
        self.number += 1
        self.sent.append(now_s)
        self.missing[self.number] = now_s
        return self.number

    def arrive(self, number: int, now_s: float) -> None:
        """A packet has arrived."""
        if self.missing.pop(number, None) is None:
            self.doubled.append(now_s)
        self.arrived.append(now_s)

    def forget(self, before_s: float) -> None:
        """Drops what is older."""
        for times in (self.sent, self.doubled, self.arrived, self.broken):
            while times and times[0] < before_s:
                times.popleft()
        # Of TCP nothing is lost, and what is sent next must be what arrives next.
        if self.kind != TCP:
            for number in [number for number, sent_s in self.missing.items() if sent_s < before_s]:
                del self.missing[number]

    def told(self, name: str, from_s: float, to_s: float) -> dict[str, Any]:
        """The fields of ``Told``."""

        def within(times: Any) -> int:
            return sum(from_s <= each < to_s for each in times)

        counts = {what: within(getattr(self, what)) for what in ("sent", "doubled", "arrived", "broken")}
        return {"name": name, "kind": self.kind, "lost": within(self.missing.values()), **counts}


class _Udp:
    """A paced stream; ``outlet`` sends, ``inlet`` is read."""

    def __init__(self, request: dict[str, Any], account: Account, selector: selectors.BaseSelector) -> None:
        self.account = account
        self.inlet = udp_socket_in(Path(request["target"]))
        self.inlet.bind(("0.0.0.0", request["port"]))  # noqa: S104 - inside a node's own namespace
        self.outlet = udp_socket_in(Path(request["source"]))
        self.outlet.connect((request["to"], request["port"]))
        for each in (self.inlet, self.outlet):
            each.setblocking(False)
        selector.register(self.inlet, selectors.EVENT_READ, self.read)

    def send(self, now_s: float) -> None:
        packet = _NUMBER.pack(self.account.send(now_s)) + bytes(PAYLOAD_BYTES - _NUMBER.size)
        # No listener, or no room: that packet is lost, as on any host.
        with contextlib.suppress(OSError):
            self.outlet.send(packet)

    def read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                packet = self.inlet.recv(2048)
                if len(packet) >= _NUMBER.size:
                    self.account.arrive(_NUMBER.unpack_from(packet)[0], time.monotonic())


class _Ping:
    """Echo requests, answered by the target's kernel."""

    def __init__(self, request: dict[str, Any], account: Account, selector: selectors.BaseSelector) -> None:
        self.account = account
        self.id = request["port"]
        self.socket = socket_in(Path(request["source"]), socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
        self.socket.connect((request["to"], 0))
        self.socket.setblocking(False)
        selector.register(self.socket, selectors.EVENT_READ, self.read)

    def send(self, now_s: float) -> None:
        number = self.account.send(now_s)
        body = _NUMBER.pack(number)
        checksum = _checksum(_ECHO.pack(_ECHO_REQUEST, 0, 0, self.id, number & 0xFFFF) + body)
        with contextlib.suppress(OSError):
            self.socket.send(_ECHO.pack(_ECHO_REQUEST, 0, checksum, self.id, number & 0xFFFF) + body)

    def read(self) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionError, OSError):
            while True:
                packet = self.socket.recv(2048)[_IP_HEADER:]
                if len(packet) < _ECHO.size + _NUMBER.size:
                    continue
                kind, _, _, identity, _ = _ECHO.unpack_from(packet)
                if kind == _ECHO_REPLY and identity == self.id:
                    self.account.arrive(_NUMBER.unpack_from(packet, _ECHO.size)[0], time.monotonic())


def _checksum(data: bytes) -> int:
    """That of the Internet (RFC 1071)."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


class _Tcp:
    """A connection with a record each interval; dialled again when it breaks, which is counted."""

    def __init__(self, request: dict[str, Any], account: Account, selector: selectors.BaseSelector) -> None:
        self.account, self.selector, self.request = account, selector, request
        self.listener = socket_in(Path(request["target"]), socket.AF_INET, socket.SOCK_STREAM)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(("0.0.0.0", request["port"]))  # noqa: S104 - inside a node's own namespace
        self.listener.listen()
        self.listener.setblocking(False)
        selector.register(self.listener, selectors.EVENT_READ, self.accept)
        self.outlet: socket.socket | None = None
        self.inlet: socket.socket | None = None
        self.again_s = 0.0
        self.backlog = b""
        self.received = b""

    def accept(self) -> None:
        self._end_inlet()
        self.inlet, _ = self.listener.accept()
        self.inlet.setblocking(False)
        self.received = b""
        self.selector.register(self.inlet, selectors.EVENT_READ, self.read)

    def send(self, now_s: float) -> None:
        if self.outlet is None:
            if now_s >= self.again_s:
                self._dial(now_s)
            return
        if len(self.backlog) < PAYLOAD_BYTES:
            self.backlog += _NUMBER.pack(self.account.send(now_s)) + bytes(PAYLOAD_BYTES - _NUMBER.size)
        try:
            self.backlog = self.backlog[self.outlet.send(self.backlog) :]
        except BlockingIOError:
            return
        except OSError:
            self._broken(now_s)

    def _dial(self, now_s: float) -> None:
        self.again_s = now_s + _DIAL_AGAIN_S
        self.outlet = socket_in(Path(self.request["source"]), socket.AF_INET, socket.SOCK_STREAM)
        self.outlet.setblocking(False)
        self.outlet.connect_ex((self.request["to"], self.request["port"]))
        self.backlog = b""
        self.account.missing.clear()

    def read(self) -> None:
        assert self.inlet is not None  # noqa: S101 - registered with it
        try:
            data = self.inlet.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._broken(time.monotonic())
            return
        self.received += data
        while len(self.received) >= PAYLOAD_BYTES:
            number = _NUMBER.unpack_from(self.received)[0]
            # Each once, and in order: the oldest that is missing.
            if number != next(iter(self.account.missing), None):
                self.account.broken.append(time.monotonic())
            self.account.arrive(number, time.monotonic())
            self.received = self.received[PAYLOAD_BYTES:]

    def _broken(self, now_s: float) -> None:
        self.account.broken.append(now_s)
        self._end_inlet()
        if self.outlet is not None:
            self.outlet.close()
            self.outlet = None

    def _end_inlet(self) -> None:
        if self.inlet is not None:
            self.selector.unregister(self.inlet)
            self.inlet.close()
            self.inlet = None


_KINDS: dict[str, Any] = {UDP: _Udp, PING: _Ping, TCP: _Tcp}


class _Worker:
    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self.streams: dict[str, Any] = {}
        self.due: list[tuple[float, str]] = []
        self.forgot_s = time.monotonic()
        self.ended = False

    def answer(self, line: str) -> dict[str, Any]:
        try:
            request = json.loads(line)
            if "tell" in request:
                span = request["tell"]
                return {"streams": [each.account.told(name, *span) for name, each in self.streams.items()]}
            name, kind = request["open"], request["kind"]
            self.streams[name] = _KINDS[kind](request, Account(kind), self.selector)
            heapq.heappush(self.due, (time.monotonic() + INTERVAL_S, name))
            return {}
        except (OSError, KeyError, ValueError, TypeError) as error:
            return {"error": repr(error)}

    def command(self) -> None:
        line = sys.stdin.readline()
        self.ended = not line
        if line:
            print(json.dumps(self.answer(line)), flush=True)

    def send_due(self) -> None:
        while self.due and self.due[0][0] <= time.monotonic():
            due_s, name = heapq.heappop(self.due)
            now_s = time.monotonic()
            self.streams[name].send(now_s)
            # After a pause of the machine nothing is made up for.
            heapq.heappush(self.due, (max(due_s + INTERVAL_S, now_s), name))
        if time.monotonic() - self.forgot_s > 1.0:
            self.forgot_s = time.monotonic()
            for each in self.streams.values():
                each.account.forget(self.forgot_s - _KEEP_S)

    def run(self) -> None:
        """Until stdin is closed."""
        self.selector.register(sys.stdin, selectors.EVENT_READ, self.command)
        while not self.ended:
            wait_s = max(0.0, self.due[0][0] - time.monotonic()) if self.due else None
            for key, _ in self.selector.select(wait_s):
                key.data()
            self.send_due()


if __name__ == "__main__":
    # Late packets would be taken for a late network.
    with contextlib.suppress(OSError):
        os.nice(-5)
    _Worker().run()

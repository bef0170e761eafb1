"""Connections of scripted devices (``scripted_devices``) with controllers: none ever waits for anybody."""

from __future__ import annotations

import json
import selectors
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scripted_campus import Campus

_READ_BYTES = 1 << 18


class Peer:
    """One connection to the controller; ``take`` is given what comes in."""

    def __init__(self, campus: Campus, port: int, take: Callable[[Peer, bytearray], None]) -> None:
        self.campus, self.take = campus, take
        self._waiting = bytearray()
        self.data = bytearray()
        self.is_open, self.is_connected = True, False
        self.socket = socket.socket()
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        # All devices are in one process: none may keep the others waiting for a controller that is busy.
        self.socket.connect_ex(("127.0.0.1", port))
        campus.selector.register(self.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, self)

    def send(self, data: bytes) -> None:
        """Now, or as soon as the controller reads."""
        if not self.is_open:
            return
        if not self._waiting and self.is_connected:
            try:
                data = data[self.socket.send(data) :]
            except BlockingIOError:
                pass
            except OSError:
                self.close()
                return
            if data:
                self.campus.selector.modify(self.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, self)
        self._waiting += data

    def on_event(self, mask: int) -> None:
        """It can be read or written."""
        if mask & selectors.EVENT_WRITE:
            if not self.is_connected and self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                self.close()
                return
            self.is_connected = True
            self._write()
        if mask & selectors.EVENT_READ and self.is_open:
            try:
                more = self.socket.recv(_READ_BYTES)
            except BlockingIOError:
                return
            except OSError:
                more = b""
            if not more:
                self.close()
                return
            self.data += more
            self.take(self, self.data)

    def _write(self) -> None:
        try:
            del self._waiting[: self.socket.send(self._waiting)]
        except BlockingIOError:
            return
        except OSError:
            self.close()
            return
        if not self._waiting:
            self.campus.selector.modify(self.socket, selectors.EVENT_READ, self)

    def close(self) -> None:
        """The connection is over."""
        if self.is_open:
            self.is_open = False
            self.campus.selector.unregister(self.socket)
            self.socket.close()
            self.campus.lost += self.is_connected


@dataclass(slots=True)
class Told:
    """The last whole report of an agent on a connection (docs/reference/dataplane.md, *Reports of what changed*)."""

    at_s: float
    revision: int
    links: dict[str, bool]
    rates: dict[tuple[int, int], float]
    sent: dict[tuple[int, int], int]
    received: dict[tuple[int, int], int]


class Line:
    """What a device has with one of the controllers, from one connection to the next."""

    def __init__(self, device: Device, port: int) -> None:
        self.device, self.port = device, port
        self.peer: Peer | None = None
        self.epoch = 0
        """That the controller has named; 0: it does not lead."""
        self.report_s = 0.1
        """How often something is told."""
        self.whole_s: float | None = None
        """How often all is told; None: always."""
        self.is_welcome = False
        """As a real device it says nothing before."""
        self.told: Told | None = None

    @property
    def is_up(self) -> bool:
        """Whether something can be sent."""
        return self.peer is not None and self.peer.is_connected and self.peer.is_open

    @property
    def leads(self) -> bool:
        """Whether the device obeys this controller."""
        return self.epoch >= self.device.greatest

    def dial(self) -> None:
        """Connect, and say hello."""
        self.epoch, self.whole_s, self.told, self.is_welcome = 0, None, None, False
        self.peer = Peer(self.device.campus, self.port, self._take)
        self.peer.send(self.device.hello())

    def _take(self, peer: Peer, data: bytearray) -> None:
        self.device.take(self, peer, data)

    def write(self, message: dict[str, Any]) -> None:
        """A line of JSON."""
        if self.peer is not None:
            self.peer.send(json.dumps(message).encode() + b"\n")

    def lead(self, message: dict[str, Any], **runs: Any) -> None:
        """The controller says that it leads."""
        if message["epoch"] < self.device.greatest:
            self.refuse(message)
            return
        self.epoch = self.device.greatest = message["epoch"]
        self.write({"type": "ok", "seq": message["seq"], **runs})

    def refuse(self, message: dict[str, Any]) -> None:
        """Another one leads."""
        self.device.campus.counts["refused"] += 1
        stale = {"message": "stale epoch", "epoch": self.device.greatest}
        self.write({"type": "error", "seq": message["seq"], **stale})


class Device:
    """``ports`` are those of the controllers. Until one has named an epoch all are obeyed."""

    def __init__(self, campus: Campus, node: str, ports: Sequence[int]) -> None:
        self.campus, self.node = campus, node
        self.greatest = 0
        self.lines = [Line(self, port) for port in ports]

    def hello(self) -> bytes:
        """What is said first."""
        raise NotImplementedError

    def take(self, line: Line, peer: Peer, data: bytearray) -> None:
        """What a controller says, a line of JSON each."""
        *whole, rest = data.split(b"\n")
        data[:] = rest
        for text in whole:
            self.answer(line, json.loads(text))

    def answer(self, line: Line, message: dict[str, Any]) -> None:
        """To a line of JSON."""
        raise NotImplementedError

    def report(self, line: Line, seq: int | None = None) -> None:
        """Tell a controller, which may have asked for it."""

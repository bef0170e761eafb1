"""A controller made of bytes: whatever it sends reaches the slicer as it is. And sockets inside namespaces."""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from whole_frames import keep_tags, receive_whole

from hyroads.controller.ofp import wire

T = TypeVar("T")
BARRIER, BARRIER_REPLY, ERROR = 20, 21, 1


def inside(namespace: str, make: Callable[[], T]) -> T:
    """What ``make`` returns when a thread that has entered the namespace calls it."""
    made: list[T] = []

    def enter() -> None:
        fd = os.open(f"/var/run/netns/{namespace}", os.O_RDONLY)
        assert ctypes.CDLL(None, use_errno=True).setns(fd, 0x40000000) == 0
        os.close(fd)
        made.append(make())

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    return made[0]


def packet_socket(namespace: str) -> socket.socket:
    """A raw socket on eth0 of a namespace."""

    def make() -> socket.socket:
        raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        raw.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)  # SO_RCVBUFFORCE
        keep_tags(raw)
        raw.bind(("eth0", 0))
        raw.setblocking(False)
        return raw

    return inside(namespace, make)


def heard(listener: socket.socket, wanted: bytes) -> list[bytes]:
    """Frames with ``wanted`` in them that have come in by now, with all their tags."""
    found = []
    with contextlib.suppress(BlockingIOError):
        while True:
            frame, kind = receive_whole(listener)
            if kind != socket.PACKET_OUTGOING and wanted in frame:
                found.append(frame)
    return found


class RawGuest:
    """Listens for the slicer; ``tell`` sends bytes and returns what comes before the answer to a barrier."""

    def __init__(self, namespace: str, port: int, context: ssl.SSLContext | None = None) -> None:
        self.context = context
        self.listener = inside(namespace, lambda: socket.create_server(("127.0.0.1", port)))
        self.connection: socket.socket | None = None
        self.data = b""
        self.xid = 1000
        self.events: list[bytes] = []

    def accept(self, within_s: float = 30.0) -> RawGuest:
        """Wait for the slicer, HELLO included."""
        self.listener.settimeout(within_s)
        self.connection = self.secured(self.listener.accept()[0])
        self.data = b""
        self.connection.sendall(wire.message(b"", 1, 0))
        assert self.receive()[1] == 0
        return self

    def secured(self, connection: socket.socket) -> socket.socket:
        """A connection of the slicer, with TLS if this guest has it."""
        connection.settimeout(10)
        return connection if self.context is None else self.context.wrap_socket(connection, server_side=True)

    def receive(self) -> bytes:
        """The next message; ConnectionError at the end."""
        assert self.connection is not None
        while len(self.data) < 8 or len(self.data) < int.from_bytes(self.data[2:4], "big"):
            more = self.connection.recv(1 << 16)
            if not more:
                raise ConnectionError("the slicer closed the connection")
            self.data += more
        length = int.from_bytes(self.data[2:4], "big")
        message, self.data = self.data[:length], self.data[length:]
        if message[1] == 2:
            self.send(message[:1] + b"\3" + message[2:])
            return self.receive()
        return message

    def send(self, *messages: bytes) -> None:
        assert self.connection is not None
        self.connection.sendall(b"".join(messages))

    def tell(self, *messages: bytes) -> list[bytes]:
        """Everything that comes back, packet-ins and port events aside."""
        self.xid += 1
        self.send(*messages, wire.message(b"", self.xid, BARRIER))
        found = []
        while True:
            message = self.receive()
            if message[1] == BARRIER_REPLY and int.from_bytes(message[4:8], "big") == self.xid:
                return found
            (self.events if message[1] in {10, 11, 12} else found).append(message)

    def errors(self, *messages: bytes) -> list[tuple[int, int]]:
        """Type and code of every error that messages lead to."""
        answers = self.tell(*messages)
        return [struct.unpack_from("!HH", message, 8) for message in answers if message[1] == ERROR]

    def listen_for(self, seconds: float) -> list[bytes]:
        """What comes for some time."""
        assert self.connection is not None
        found, end = self.events, time.monotonic() + seconds
        self.events = []
        while (left := end - time.monotonic()) > 0:
            self.connection.settimeout(left)
            try:
                found.append(self.receive())
            except TimeoutError:
                break
        self.connection.settimeout(10)
        return found

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None

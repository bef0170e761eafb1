"""The event loop's selector that handles the messages of the fast path while it waits (``dataplane/src/slicer``)."""

from __future__ import annotations

import ctypes
import selectors
from collections.abc import Callable
from typing import Protocol

from hyroads.controller.native import load_library

from .layout import Event, Line, Sent, sizes

ABI_VERSION = 1
_ROOM = 1024
_READ, _WRITE = 1, 4
"""EPOLLIN, EPOLLOUT."""
_WORK, _PACED, _LEFT = 1, 2, 3


class Connection(Protocol):
    """What the relay needs of a connection when a message is not for the fast path."""

    line: Line

    def work(self) -> None:
        """Handle the messages in the buffer."""

    def paced(self) -> None:
        """Wait, if the slice has used up its messages."""

    def send(self, data: bytes) -> None:
        """Send what did not go at once."""

    def drained(self) -> bool:
        """Whether nothing waits to be sent any more."""


class Relay(selectors.EpollSelector):
    """Waits like any selector. Connections that were added are read and written by the library in between.

    ``soon`` gets what is to be done after a wait; it is the loop's ``call_soon``.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        super().__init__()
        self.soon: Callable[[Callable[[], None]], object] | None = None
        self._library = library
        self._relay = ctypes.c_void_p(library.hyroads_slicer_new())
        self._events = (Event * _ROOM)()
        self._connections: dict[int, Connection] = {}
        self._full: set[int] = set()

    def close(self) -> None:
        """Free everything."""
        super().close()
        if self._relay:
            self._library.hyroads_slicer_free(self._relay)
            self._relay = ctypes.c_void_p()

    def add(self, connection: Connection) -> bool:
        """Take a connection, whose ``line`` says its descriptor and buffer; whether it is taken."""
        line = connection.line
        if not self._library.hyroads_slicer_add(self._relay, ctypes.byref(line)):
            return False
        self._connections[line.fd] = connection
        self.blocked(connection)
        return True

    def remove(self, connection: Connection) -> None:
        """Forget a connection: before its descriptor is closed."""
        fd = connection.line.fd
        if self._connections.get(fd) is connection:
            del self._connections[fd]
            self._full.discard(fd)
            self._library.hyroads_slicer_remove(self._relay, fd)

    def blocked(self, connection: Connection) -> None:
        """Something of the connection may wait to be sent: the fast path waits, too."""
        connection.line.writable = 0
        self._full.add(connection.line.fd)

    def step(self, connection: Connection) -> None:
        """Handle the messages in a connection's buffer up to the first that is not for the fast path."""
        line = ctypes.byref(connection.line)
        count = self._library.hyroads_slicer_step(self._relay, line, self._events, _ROOM)
        for event in self._events[:count]:
            if event.what == _PACED:
                self._connections[event.fd].paced()
            elif event.what == _LEFT:
                self._send_left(event.fd)

    def asked(self, connection: Connection, xid: int) -> Sent | None:
        """What a guest sent that went on under ``xid``: once."""
        found = Sent()
        fd = connection.line.fd
        return found if self._library.hyroads_slicer_asked(self._relay, fd, xid, ctypes.byref(found)) else None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready of all others."""
        if self._full:
            self._look_at_full()
        wait_s = -1.0 if timeout is None else max(timeout, 0.0)
        count = self._library.hyroads_slicer_poll(self._relay, self.fileno(), wait_s, self._events, _ROOM)
        ready: list[tuple[selectors.SelectorKey, int]] = []
        for event in self._events[:count]:
            if event.mask:
                key = self.get_map().get(event.fd)
                wanted = selectors.EVENT_READ if event.mask & ~_WRITE else 0
                wanted |= selectors.EVENT_WRITE if event.mask & ~_READ else 0
                if key is not None and wanted & key.events:
                    ready.append((key, wanted & key.events))
            elif event.what == _LEFT:
                self._send_left(event.fd)
            elif event.what == _PACED:
                self._connections[event.fd].paced()
            elif self.soon is not None:
                self.soon(self._connections[event.fd].work)
        return ready

    def _look_at_full(self) -> None:
        for fd in list(self._full):
            if self._connections[fd].drained():
                self._full.discard(fd)
                self._connections[fd].line.writable = 1

    def _send_left(self, fd: int) -> None:
        size = self._library.hyroads_slicer_left(self._relay, fd)
        data = ctypes.create_string_buffer(size)
        self._library.hyroads_slicer_take_left(self._relay, fd, data)
        connection = self._connections[fd]
        self.blocked(connection)
        connection.send(data.raw)


def load_relay() -> Relay | None:
    """A relay of the first library that speaks this version of the interface; None if there is none."""
    library = load_library("hyroads_slicer_abi", ABI_VERSION)
    if library is None:
        return None
    pointer, number, size = ctypes.c_void_p, ctypes.c_int32, ctypes.c_uint64
    signatures = {
        "sizes": ([], size),
        "new": ([], pointer),
        "free": ([pointer], None),
        "add": ([pointer, pointer], number),
        "remove": ([pointer, number], None),
        "poll": ([pointer, number, ctypes.c_double, pointer, size], size),
        "step": ([pointer, pointer, pointer, size], size),
        "left": ([pointer, number], size),
        "take_left": ([pointer, number, pointer], None),
        "asked": ([pointer, number, ctypes.c_uint32, pointer], number),
    }
    for name, (arguments, result) in signatures.items():
        function = getattr(library, f"hyroads_slicer_{name}")
        function.argtypes, function.restype = arguments, result
    return Relay(library) if library.hyroads_slicer_sizes() == sizes() else None

"""A listening socket whose connections have places (``places``), for programs without the controller's threads."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from hyroads.controller.core.admission import Limits

from .places import SWEEP_S, Place, Places

BACKLOG = 1024


class AdmittedListener(socket.socket):
    """A listening TCP socket whose connections have places, for ``asyncio`` (``sock=``) and for threads.

    Parameters: ``host`` and ``port`` to listen at; ``limits`` of the port; ``ended``, called with peer and reason for
    each connection that has to end. ``places.sweep`` has to be called each ``SWEEP_S`` (:meth:`sweep_for_ever`).
    OSError if it can't listen there.
    """

    def __init__(self, host: str, port: int, limits: Limits, ended: Callable[[str, str], None]) -> None:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = min(found, key=lambda each: each[0] != socket.AF_INET)
        super().__init__(family, kind, protocol)
        self.places = Places(limits, time.monotonic, ended, threading.Lock())
        self._place_of: dict[Any, Place] = {}
        try:
            self.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                self.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            self.bind(address)
            self.listen(BACKLOG)
        except OSError:
            self.close()
            raise

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection, which has a place until it is closed, and the address of its peer."""
        plain, address = super().accept()
        blocking = plain.getblocking()
        connection = _Admitted(plain.family, plain.type, plain.proto, fileno=plain.detach())
        connection.setblocking(blocking)
        place = self.places.enter(connection, address)
        connection.left = lambda: self._left(address[:2], place)
        self._place_of[address[:2]] = place
        return connection, address

    def place_of(self, peer: Any) -> Place | None:
        """The place of the connection from this address and port; None: it has ended."""
        return self._place_of.get(tuple(peer)[:2]) if isinstance(peer, tuple | list) else None

    def authenticated(self, peer: Any, name: str) -> bool:
        """As :meth:`Place.authenticated`, of the connection from this address and port."""
        place = self.place_of(peer)
        return place is not None and place.authenticated(name)

    def gives_up(self, connection: socket.socket) -> None:
        """An accepted connection has no place any more, although it is not closed yet."""
        if isinstance(connection, _Admitted):
            connection.give_up()

    async def sweep_for_ever(self) -> None:
        """End connections whose time is over, until this is cancelled."""
        # Programs without it need not wait for this import.
        import asyncio

        while True:
            await asyncio.sleep(SWEEP_S)
            self.places.sweep()

    def _left(self, peer: Any, place: Place) -> None:
        self.places.leave(place)
        if self._place_of.get(peer) is place:
            del self._place_of[peer]


class _Admitted(socket.socket):
    """A connection that gives up its place when it is closed."""

    left: Callable[[], None] | None = None

    def close(self) -> None:
        """Close it, and give up its place."""
        self.give_up()
        super().close()

    def give_up(self) -> None:
        """Give up its place, once."""
        left, self.left = self.left, None
        if left is not None:
            left()

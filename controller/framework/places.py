"""The connections of one port: ``core.admission`` decides which have a place, and here those are ended that have none.

``connections`` accepts them in the controller, ``admitted`` in the other programs.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from hyroads.controller.core.admission import Admission, Limits

SWEEP_S = 0.25


def shut(connection: Any) -> None:
    """End a connection in both directions, which wakes the thread that reads from it."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


@dataclass(frozen=True, slots=True)
class Place:
    """What a connection has at a port."""

    connections: Places
    number: int
    peer: str

    def authenticated(self, name: str) -> bool:
        """The other end has shown who it is. False: it has to end, as another took its place, or it has too many."""
        return self.connections.authenticated(self.number, name)


class Places:
    """``ended`` is told (peer, why) of each connection that has to end before the other end has shown who it is. With
    a ``lock`` it is for threads of the system, without one for green threads.
    """

    def __init__(
        self,
        limits: Limits,
        clock: Callable[[], float],
        ended: Callable[[str, str], None],
        lock: AbstractContextManager[Any] | None = None,
    ) -> None:
        self._admission = Admission(limits)
        self._clock, self._ended = clock, ended
        self._late = f"did not show who it is within {limits.within_s:g} s"
        self._lock = nullcontext() if lock is None else lock
        self._open: dict[int, tuple[Any, str]] = {}

    def __len__(self) -> int:
        """How many connections are open."""
        return len(self._open)

    def enter(self, connection: Any, address: Any) -> Place:
        """A connection was accepted."""
        peer = f"{address[0]}:{address[1]}"
        with self._lock:
            number, displaced = self._admission.opened(address[0], self._clock())
            self._open[number] = connection, peer
        if displaced is not None:
            self._end(displaced, "gave its place to a newer connection")
        return Place(self, number, peer)

    def authenticated(self, number: int, name: str) -> bool:
        """As :meth:`Place.authenticated`."""
        with self._lock:
            return self._admission.authenticated(number, name)

    def leave(self, place: Place) -> None:
        """A connection has ended."""
        with self._lock:
            self._admission.closed(place.number)
            self._open.pop(place.number, None)

    def sweep(self) -> None:
        """End those whose time is over."""
        with self._lock:
            late = self._admission.overdue(self._clock())
        for number in late:
            self._end(number, self._late)

    def _end(self, number: int, why: str) -> None:
        """The thread that serves it wakes up and closes it."""
        connection, peer = self._open.get(number, (None, ""))
        if connection is not None:
            shut(connection)
            self._ended(peer, why)

"""The connections of one port: ``core.admission`` decides who has a place, and here sockets are accepted and ended."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from hyroads.controller.core.admission import Admission, Limits

from . import ryu_shim as shim

_time = shim.original("time")
ACCEPTED_AT_ONCE = 16
"""After so many others may run before the next are accepted."""
SWEEP_S = 0.25


@dataclass(frozen=True, slots=True)
class Place:
    """What a connection has at a port."""

    connections: Connections
    number: int
    peer: str

    def authenticated(self, name: str) -> bool:
        """The other end has shown who it is. False: it has to end, as another took its place, or it has too many."""
        return self.connections.authenticated(self.number, name)


Serve = Callable[[Any, Place], None]
"""Serves one connection until it ends."""


class Connections:
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
        """Whoever serves it wakes up, and closes it."""
        connection, peer = self._open.get(number, (None, ""))
        if connection is not None:
            shim.shut(connection)
            self._ended(peer, why)

    def accepted(self, listener: Any, log: logging.Logger, who: str) -> Iterator[tuple[Any, Place]]:
        """Accept for ever, in the calling thread of the system; whoever takes a connection also ends it."""
        while True:
            try:
                connection, address = listener.accept()
            except OSError as error:
                log.warning("%s: can't accept a connection: %s", who, error.strerror)
                _time.sleep(0.1)
                continue
            yield connection, self.enter(connection, address)

    def serve(self, listener: Any, serve: Serve) -> None:
        """Accept for ever, in the calling green thread; each connection is served in one of its own."""
        shim.spawn(self._sweep)
        accepted = 0
        while True:
            connection, address = shim.accept(listener)
            shim.spawn(self._serve_one, connection, self.enter(connection, address), serve)
            accepted += 1
            if accepted % ACCEPTED_AT_ONCE == 0:
                shim.sleep(0)

    def _serve_one(self, connection: Any, place: Place, serve: Serve) -> None:
        try:
            serve(connection, place)
        finally:
            self.leave(place)
            shim.shut(connection)
            connection.close()

    def _sweep(self) -> None:
        while True:
            shim.sleep(SWEEP_S)
            self.sweep()

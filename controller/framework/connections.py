"""The connections of one of the controller's ports: ``places`` knows who has one, and here sockets are accepted."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

from . import ryu_shim as shim
from .places import SWEEP_S, Place, Places

_time = shim.original("time")
ACCEPTED_AT_ONCE = 16
"""After so many others may run before the next are accepted."""


Serve = Callable[[Any, Place], None]
"""Serves one connection until it ends."""


class Connections(Places):
    """With a ``lock`` it is for threads of the system, without one for green threads."""

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

"""The port where switches dial: who has a place there, and who is which switch.

Places are those of ``core.admission``, as at the controller's ports: strangers have a bounded number and a time, and
the oldest of the address with most goes first. They count from the moment on at which a connection is there, so
that whoever begins TLS and stops has one, too.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hyroads.controller.core.admission import Admission, Limits
from hyroads.controller.core.checking import Endpoint
from hyroads.controller.core.token_bucket import LimitedReports, TokenBucket
from hyroads.controller.framework.tls_hello import tls_begun

from .switch_link import HANDSHAKE_WITHIN_S, SwitchLink

if TYPE_CHECKING:
    from .slicer import Slicer

LOG = logging.getLogger("hyroads.slicer")

SPARE_CONNECTIONS = 32
TLS_WITHIN_S = 5.0
SWEEP_S = 0.25
BACKLOG = 1024
_TOLD_PER_S, _TOLD_AT_ONCE = 2.0, 40


@dataclass(frozen=True)
class Place:
    """What a connection has at the port."""

    port: SwitchPort
    number: int

    def authenticated(self, name: str) -> bool:
        """The other end has shown which switch it is. False: another connection has its place."""
        return self.port.admission.authenticated(self.number, name)

    def left(self) -> None:
        """The connection is gone."""
        self.port.left(self.number)


class SwitchPort:
    """Accepts connections of switches; with ``context`` over TLS."""

    def __init__(self, slicer: Slicer, context: ssl.SSLContext | None) -> None:
        self._slicer, self._context = slicer, context
        self._loop = asyncio.get_running_loop()
        places = slicer.settings.most_switches + SPARE_CONNECTIONS
        within_s = HANDSHAKE_WITHIN_S + (TLS_WITHIN_S if context is not None else 0.0)
        self.admission = Admission(Limits(places, places, within_s, each=1 + SPARE_CONNECTIONS))
        self._sockets: dict[int, tuple[socket.socket, str]] = {}
        self._tell = LimitedReports(self._log, self._loop.time, TokenBucket(_TOLD_PER_S, _TOLD_AT_ONCE))
        self._listener: socket.socket | None = None

    @staticmethod
    def _log(where: str, what: str) -> None:
        LOG.warning("%s: %s", where, what)

    def listen(self, at: Endpoint) -> None:
        """From now on; OSError."""
        family = socket.AF_INET6 if ":" in at.host else socket.AF_INET
        self._listener = socket.create_server((at.host, at.port), family=family, backlog=BACKLOG)
        self._listener.setblocking(False)
        self._slicer.start(self._accept_for_ever(self._listener))
        self._slicer.start(self._sweep_for_ever())

    def close(self) -> None:
        """Nobody comes any more; who is here stays."""
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            self._listener.close()

    def left(self, number: int) -> None:
        """A connection is gone."""
        self.admission.closed(number)
        self._sockets.pop(number, None)

    async def _accept_for_ever(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, address = await self._loop.sock_accept(listener)
            except OSError as error:
                self._tell("the port of switches", f"can't accept a connection: {error.strerror}")
                await asyncio.sleep(0.1)
                continue
            number, displaced = self.admission.opened(address[0], self._loop.time())
            self._sockets[number] = connection, f"{address[0]}:{address[1]}"
            if displaced is not None:
                self._end(displaced, "gave its place to a newer connection")
            self._slicer.start(self._begin(connection, Place(self, number)))

    async def _begin(self, connection: socket.socket, place: Place) -> None:
        """Make a link of a connection, which ends by itself; one that does not agree to TLS ends here."""
        link = SwitchLink(self._slicer, self._slicer.settings.patience_s, place)
        within_s = None if self._context is None else TLS_WITHIN_S
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._context is not None:
                await tls_begun(connection, TLS_WITHIN_S)
            await self._loop.connect_accepted_socket(
                lambda: link, connection, ssl=self._context, ssl_handshake_timeout=within_s
            )
        except OSError as error:
            peer = self._sockets.get(place.number, (None, "a peer"))[1]
            self._tell(peer, f"connection ended: {getattr(error, 'reason', None) or error}")
            place.left()
            connection.close()

    async def _sweep_for_ever(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            for number in self.admission.overdue(self._loop.time()):
                self._end(number, "did not show which switch it is in time")

    def _end(self, number: int, why: str) -> None:
        """Whoever reads the connection sees its end."""
        connection, peer = self._sockets.get(number, (None, ""))
        if connection is not None:
            self._tell(peer, why)
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                # It has gone by itself.
                return

"""The service for SFNet clients: answers discovery, and passes requests in JSON over TCP to the REST API."""

from __future__ import annotations

import hmac
import json
import logging
import socket
import struct
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from hyroads.controller import version
from hyroads.controller.core.admission import Limits
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.token_bucket import LimitedReports, TokenBucket
from hyroads.controller.framework import ryu_shim as shim
from hyroads.controller.framework.connections import Connections
from hyroads.controller.framework.places import Place
from hyroads.controller.model.events import EventLog
from hyroads.controller.settings.plugins import SfnetSettings
from hyroads.plugins.sfnet import messages
from hyroads.plugins.sfnet.messages import GROUP, MAX_LINE, MessageError, Subscribe
from hyroads.rest.contract import Token

from .requests import Requests

LOG = logging.getLogger("hyroads.sfnet")
MAX_AT_ONCE = 8
REQUESTS_PER_S, REQUESTS_BURST = 50.0, 100.0
ANSWERS_PER_S, ANSWERS_BURST = 20.0, 40.0
HELLO_S = 5.0
LIMITS = Limits(strangers=64, known=64, within_s=HELLO_S, each=64)
KEEPALIVE_S = 60
SEND_S = 5.0
WAIT_S = 1.0
EVERYWHERE = "0.0.0.0"  # noqa: S104 - compared
IP_MULTICAST_ALL, IP_PKTINFO = 49, 8
_ANYBODY = Token("sfnet", "", "admin")


def _tell(peer: str, what: str) -> None:
    LOG.warning("%s: %s", peer, what)


@dataclass(eq=False)
class SfnetService:
    """One per controller. Listens as soon as it is made, so that what can't be is found before anything runs."""

    settings: SfnetSettings
    tokens: Sequence[Token]
    requests: Requests
    events: EventLog
    _: KW_ONLY
    clock: Callable[[], float]
    document: str = "settings"

    def __post_init__(self) -> None:
        self._stranger = LimitedReports(_tell, self.clock, TokenBucket(2.0, 40.0))
        self._connections = Connections(LIMITS, self.clock, self._stranger)
        self._answers = TokenBucket(ANSWERS_PER_S, ANSWERS_BURST)
        settings = self.settings
        where = f"{settings.host}:{settings.port}"
        try:
            self._listener = shim.listen(settings.host, settings.port)
        except OSError as error:
            raise ConfigError(self.document, "sfnet", f"can't listen on {where}: {error.strerror}") from error
        try:
            self._discovery = _group_socket(settings.interfaces, settings.port) if settings.interfaces else None
        except OSError as error:
            what = f"can't listen to {', '.join(settings.interfaces)}: {error.strerror}"
            raise ConfigError(self.document, "sfnet.interfaces", what) from error

    def start(self) -> None:
        """Serves from now on."""
        shim.spawn(self._connections.serve, self._listener, self._serve)
        if self._discovery is not None:
            shim.spawn(self._discover)

    def _discover(self) -> None:
        asked = self._discovery
        while asked is not None:
            shim.wait_readable(asked.fileno())
            try:
                datagram, ancillary, _flags, sender = asked.recvmsg(messages.DATAGRAM + 1, 256)
            except OSError:
                continue
            nonce = messages.discovery_nonce(datagram)
            address = self._address(ancillary)
            if nonce is None or address is None or not self._answers.take(self.clock()):
                continue
            answer = messages.discovery_answer(nonce, address, self.settings.port, f"HyRoads {version()}")
            try:
                asked.sendto(answer, sender)
            except OSError as error:
                LOG.warning("discovery: can't answer %s: %s", sender[0], error.strerror)

    def _address(self, ancillary: Sequence[tuple[int, int, bytes]]) -> str | None:
        """Where the principal reaches us; None: nowhere, because we listen on other addresses only."""
        for level, kind, data in ancillary:
            if level == socket.IPPROTO_IP and kind == IP_PKTINFO:
                index, here = struct.unpack_from("=I4s", data)
                # Loopback is only reached from loopback.
                if self.settings.is_loopback and index != socket.if_nametoindex("lo"):
                    return None
                host = self.settings.host
                return socket.inet_ntoa(here) if host == EVERYWHERE else host
        return None

    def _serve(self, connection: Any, place: Place) -> None:
        try:
            shim.no_delay(connection)
            # Who is gone without a word makes room for others after some minutes.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_S)
            Session(connection, self, place).run()
        except OSError:
            pass
        except MessageError as error:
            self._stranger(place.peer, str(error))

    def who(self, token: str | None) -> Token | None:
        """Whom a token stands for; without tokens in the settings, anybody (we listen on loopback only)."""
        if not self.tokens:
            return _ANYBODY
        given = (token or "").encode()
        found = [known for known in self.tokens if hmac.compare_digest(known.token.encode(), given)]
        return found[0] if found else None


class Session:
    """One connection."""

    def __init__(self, connection: Any, service: SfnetService, place: Place) -> None:
        self._connection, self._place = connection, place
        self._service = service
        self._sending = shim.new_lock()
        self._bucket = TokenBucket(REQUESTS_PER_S, REQUESTS_BURST)
        self._at_once = 0
        self._done = shim.Signal()
        self._kinds: tuple[str, ...] | None = None
        self._over = False

    def run(self) -> None:
        """Until the other end closes, or does what is not allowed (:class:`MessageError`)."""
        try:
            self._read()
        except MessageError as error:
            self._send(messages.line_of({"type": "error", "status": 400, "detail": str(error)}))
            raise
        finally:
            self._over = True

    def _read(self) -> None:
        lines = shim.LineReader(self._connection, MAX_LINE)
        first = lines.next(HELLO_S)
        if first is None:
            return
        who = self._service.who(messages.hello(first))
        if who is None:
            self._send(messages.line_of({"type": "error", "status": 401, "detail": "expected a token"}))
            return
        if not self._place.authenticated(who.name):
            self._send(messages.line_of({"type": "error", "status": 429, "detail": "too many connections"}))
            return
        welcome = {"type": "welcome", "version": messages.VERSION, "role": who.role, "program": f"HyRoads {version()}"}
        self._send(messages.line_of(welcome))
        while (line := lines.next(None)) is not None:
            asked = messages.request(line)
            if isinstance(asked, Subscribe):
                self._subscribe(asked)
                continue
            shim.sleep(self._bucket.reserve_s(self._service.clock()))
            while self._at_once >= MAX_AT_ONCE:
                self._done.wait(WAIT_S)
            self._at_once += 1
            shim.spawn(self._answer, who, asked)

    def _answer(self, who: Token, asked: messages.Request) -> None:
        try:
            status, text = self._service.requests.ask(who, asked.method, asked.path, asked.body, key=asked.key)
            self._send(b'{"id":%d,"status":%d,"body":%b}\n' % (asked.id, status, text))
        finally:
            self._at_once -= 1
            self._done.notify()

    def _subscribe(self, asked: Subscribe) -> None:
        last = self._service.events.last if asked.after is None else asked.after
        self._send(messages.line_of({"id": asked.id, "status": 200, "body": {"last": last}}))
        running, self._kinds = self._kinds is not None, asked.kinds
        if not running:
            shim.spawn(self._tell, last)

    def _tell(self, last: int) -> None:
        """Events, until the connection ends."""
        log = self._service.events
        while not self._over:
            if last + 1 < log.first or last > log.last:
                missed = log.first - 1 - last if last < log.first else 0
                last = log.first - 1
                self._send(messages.line_of({"missed": missed}))
            for event in log.since(last):
                last = event.id
                if messages.wants(self._kinds or (), event.kind):
                    told = {"id": event.id, "time_s": event.time_s, "kind": event.kind, "document": event.document}
                    self._send(json.dumps({"event": told}).encode() + b"\n")
            log.wait(last, WAIT_S)

    def _send(self, line: bytes) -> None:
        """A reader that is too slow is let go."""
        with shim.Timer(SEND_S) as timer, self._sending:
            try:
                self._connection.sendall(line)
            except OSError:
                self._over = True
        if timer.fired:
            self._over = True
            shim.shut(self._connection)


def _group_socket(interfaces: Sequence[str], port: int) -> socket.socket:
    """Hears the group on these interfaces alone."""
    asked = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    asked.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    asked.setsockopt(socket.IPPROTO_IP, IP_MULTICAST_ALL, 0)
    asked.setsockopt(socket.IPPROTO_IP, IP_PKTINFO, 1)
    asked.bind((GROUP, port))
    for interface in interfaces:
        member = socket.inet_aton(GROUP) + bytes(4) + struct.pack("=i", socket.if_nametoindex(interface))
        asked.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
    return asked

"""Connections between the controllers of neighbouring regions, in threads of the system.

Each dials all controllers of the others while it leads its region, says what it wants, and hears answers. Whoever is
dialled hears what is wanted, and answers. What comes is put into a mailbox, and a green thread looks at it.
"""

from __future__ import annotations

import json
import logging
import ssl
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from hyroads.controller.agents.lead import MAX_EPOCH
from hyroads.controller.agents.sessions import Answer, Session
from hyroads.controller.core.admission import Limits
from hyroads.controller.core.checking import Endpoint
from hyroads.controller.core.identity import CertificateFacts
from hyroads.controller.core.region_epochs import HeardEpochs
from hyroads.controller.core.token_bucket import LimitedReports, TokenBucket
from hyroads.controller.framework import ryu_shim as shim
from hyroads.controller.framework.connections import Connections
from hyroads.controller.framework.places import Place
from hyroads.controller.ha.peer_links import PeerError, PeerLines, PeerLink, Security, line_of
from hyroads.controller.ha.peers import STRANGERS
from hyroads.controller.settings.region import MAX_PEERS

from .region_messages import SegmentMaker, Told, Wanted

LOG = logging.getLogger("hyroads.regions")
VERSION = 2
MAX_LINE = 8 << 20
MAX_CONNECTIONS, MAX_OF_REGION, MAX_WAITING = 64, 2 * MAX_PEERS, 64
"""Connections of strangers, and of each neighbour, whose controllers dial again before an old one has ended; messages.
"""
EACH_S, NAP_S, REDIAL_S, SILENT_S, WITHIN_S = 1.0, 0.01, 0.2, 5.0, 2.0
LIVES_S = 2.5
"""A neighbour that was heard within this time lives: another connection that says it is the same one is refused."""
FOLLOWS: Mapping[str, Any] = {"follows": True}
_socket, _time = shim.original("socket"), shim.original("time")
_threading = shim.original("threading")


def _tell(peer: str, what: str) -> None:
    LOG.info("regions, %s: %s", peer, what)


class FarEnd(Session):
    """The agent at the far end of an exit, as the deployer sees it; the region there is told what it shall do."""

    def request(
        self,
        document: Mapping[str, Any] | str,
        answer: Answer,
        *,
        within_s: float = 0.0,
        told: Callable[[Mapping[str, Any]], None] | None = None,
    ) -> None:
        """Keep what is asked until the neighbour has confirmed it, however long that takes."""
        if isinstance(document, str):
            document = dict(json.loads(document))
        if document["type"] != "config":
            answer(None)
            return
        self.ends = {each["id"]: each for each in document["egress"]}
        self.answer, self.asked_in = answer, None

    ends: Mapping[str, Mapping[str, Any]] | None = None
    answer: Answer | None = None
    asked_in: int | None = None
    """In which message to the neighbour it is."""


def _leads(epoch: int | None) -> Mapping[str, Any]:
    """What an answer says of whether its sender leads its region, and with which epoch."""
    return FOLLOWS if epoch is None else {"epoch": epoch}


def not_of(region: str, facts: CertificateFacts) -> str:
    """What is wrong with the certificate of a region's controller; "" if it names the region."""
    if region in facts.names:
        return ""
    whom = ", ".join(repr(name[:64]) for name in facts.names[:4]) or "nobody"
    return f"is the certificate of {whom}, and not of region {region!r}: expected that as common name or DNS name"


def _check_region(region: str, facts: CertificateFacts | None) -> None:
    """The other end of a connection shows a certificate of this region, if it shows one; PeerError."""
    problem = "" if facts is None else not_of(region, facts)
    if problem:
        raise PeerError(f"what was shown {problem}")


@dataclass(eq=False)
class Neighbour:
    """A region that the tree joins to ours: what we want of it, and what it wants of us."""

    name: str
    far_ends: Mapping[str, FarEnd]
    """By node there."""
    segments: SegmentMaker
    wanted: Wanted = field(default_factory=Wanted)
    rates_line: bytes = b""
    """What it is told of rates; each is sent once."""
    waiting: deque[None] = field(default_factory=deque)
    """As many as messages of it that nobody has looked at yet."""
    session: object = None
    """The connection by which it reaches us; when it was last heard there is ``heard_s``."""
    heard_s: float = 0.0
    epoch: int = 0
    """The one that the connection claims which is heard, or was heard last."""
    shown: int = 0
    """The greatest with which a controller of it leads that we have dialled."""
    has_told: bool = False
    told: Told | None = None
    to_answer: tuple[int, set[str], deque[bytes]] | None = None
    """Which of its messages we answer, for which nodes yet, and where."""


@dataclass(eq=False)
class Dialled:
    """One of a neighbour's controllers, as we reach it."""

    neighbour: Neighbour
    endpoint: Endpoint
    is_up: bool = False
    """Whether it has answered on our connection to it."""
    problem: str = ""
    """Why it was not reached the last time."""


@dataclass(eq=False)
class RegionLinks:
    """Our end of all connections with ``neighbours``, by name. ``name`` is our region, ``network`` is the same for all
    that read the same file. ``epoch`` says with which epoch we lead our region, None while we do not.

    ``mailbox`` gets tuples of a neighbour, a message, where to answer, and the epoch of who said it (None: ourselves).
    """

    name: str
    network: str
    _: KW_ONLY
    neighbours: Mapping[str, Neighbour]
    security: Security
    listener: Any
    mailbox: shim.Mailbox
    epoch: Callable[[], int | None]

    def __post_init__(self) -> None:
        self._lock = _threading.Lock()
        self._stranger = LimitedReports(_tell, _time.monotonic, TokenBucket(*STRANGERS))
        limits = Limits(MAX_CONNECTIONS, MAX_CONNECTIONS, WITHIN_S, each=MAX_OF_REGION)
        self._connections = Connections(limits, _time.monotonic, self._stranger, _threading.Lock())

    def start(self, peers: Mapping[str, Iterable[Endpoint]]) -> None:
        """Accept connections, and dial all controllers of neighbours."""
        shim.start_thread(self._accept, name="regions")
        for name, neighbour in self.neighbours.items():
            for endpoint in peers[name]:
                shim.start_thread(self._keep_dialling, Dialled(neighbour, endpoint), name=f"to {name}")

    def _put(
        self, neighbour: Neighbour, document: Mapping[str, Any], outbox: deque[bytes], epoch: int | None = None
    ) -> None:
        """Have a message looked at, unless its epoch is over by then; waits while many of a neighbour are not yet."""
        while len(neighbour.waiting) >= MAX_WAITING:
            _time.sleep(NAP_S)
        neighbour.waiting.append(None)
        self.mailbox.put((neighbour, document, outbox, epoch))

    def _keep_dialling(self, dialled: Dialled) -> None:
        endpoint = dialled.endpoint
        while True:
            epoch = self.epoch()
            if epoch is None:
                _time.sleep(NAP_S)
                continue
            try:
                connection = _socket.create_connection((endpoint.host, endpoint.port), timeout=WITHIN_S)
                try:
                    self._say(dialled, PeerLink(connection, self.security.client, endpoint.host), epoch)
                finally:
                    connection.close()
            except (OSError, EOFError) as error:
                LOG.debug("region %s: %s", dialled.neighbour.name, error)
                self._not_reached(dialled, error)
            dialled.is_up = False
            _time.sleep(REDIAL_S)

    def _not_reached(self, dialled: Dialled, error: Exception) -> None:
        """Say once why, if it is not that nobody is there."""
        endpoint = dialled.endpoint
        if dialled.is_up:
            where = dialled.neighbour.name, endpoint.host, endpoint.port
            LOG.warning("region %s: its controller at %s:%d is gone; what it wants stays", *where)
            dialled.problem = ""
            return
        if isinstance(error, EOFError | ConnectionResetError | BrokenPipeError):
            problem = "the other end ends the connection without a word; do both have region.tls, or neither?"
        else:
            problem = str(error) if isinstance(error, PeerError | ssl.SSLError) else dialled.problem
        if problem != dialled.problem:
            dialled.problem = problem
            self._put(dialled.neighbour, {"type": "error", "of": "hello", "seq": 0, "message": problem}, deque())

    def _say(self, dialled: Dialled, link: PeerLink, epoch: int) -> None:
        neighbour, facts = dialled.neighbour, self.security.checked(link)
        _check_region(neighbour.name, facts)
        hello = {"type": "hello", "version": VERSION, "region": self.name, "network": self.network}
        hello |= {"epoch": epoch} if epoch else {}
        token = self.security.token
        link.send(line_of({**hello, "token": token} if token is not None else hello))
        lines, said_s = PeerLines(link, MAX_LINE), -EACH_S
        said: Wanted | None = None
        rates, is_refused = neighbour.rates_line, False
        while self.epoch() == epoch:
            wanted, now_s = neighbour.wanted, _time.monotonic()
            if wanted is not said or now_s - said_s >= EACH_S:
                if is_refused and now_s - said_s >= EACH_S:
                    said, is_refused = None, False
                again = wanted is said and not wanted.starting
                link.send(line_of({"type": "still", "seq": wanted.seq} if again else wanted.document(said)))
                said, said_s = wanted, now_s
            if rates is not neighbour.rates_line:
                rates = neighbour.rates_line
                link.send(rates)
            if lines.is_ready(NAP_S):
                document = lines.next()
                self.security.check_again(facts)
                if document.get("type") == "refused":
                    raise PeerError(str(document.get("message"))[:500])
                shown = document.get("epoch", 0)
                if type(shown) is int and neighbour.shown < shown <= MAX_EPOCH:
                    neighbour.shown = shown
                dialled.is_up, dialled.problem = True, ""
                # Of this connection alone: others may have taken what this one could not.
                is_error = document.get("type") == "error" and document.get("of") not in ("hello", "rates")
                is_refused |= is_error and said is not None and document.get("seq") == said.seq
                if document.get("follows") is not True:
                    self._put(neighbour, document, deque())

    def _accept(self) -> None:
        for connection, place in self._connections.accepted(self.listener, LOG, "regions"):
            shim.start_thread(self._read, connection, place, name="a region")

    def _read(self, connection: Any, place: Place) -> None:
        neighbour, session, epoch = None, object(), 0
        try:
            connection.settimeout(WITHIN_S)
            link = PeerLink(connection, self.security.server, within_s=WITHIN_S)
            facts = self.security.checked(link)
            lines = PeerLines(link)
            neighbour, epoch = self._met(link, facts, lines.next(), session)
            if not place.authenticated(neighbour.name):
                raise PeerError(f"region {neighbour.name} has all its connections")
            link.met(WITHIN_S)
            lines.most = MAX_LINE
            outbox: deque[bytes] = deque(maxlen=16)
            said: int | None = -1
            while neighbour.session is session and _time.monotonic() - neighbour.heard_s < SILENT_S:
                if (own := self.epoch()) != said:
                    said = own
                    link.send(line_of({"type": "ok", "seq": 0, "node": "", **(_leads(own))}))
                if lines.is_ready(NAP_S):
                    self.security.check_again(facts)
                    self._put(neighbour, lines.next(), outbox, epoch)
                    neighbour.heard_s = _time.monotonic()
                while outbox:
                    link.send(outbox.popleft())
        except (OSError, EOFError) as error:
            if isinstance(error, PeerError):
                self._stranger(place.peer, str(error))
            LOG.debug("regions, %s: %s", place.peer, error)
        finally:
            connection.close()
            self._connections.leave(place)
            with self._lock:
                if neighbour is not None and neighbour.session is session:
                    neighbour.session = None

    def _met(
        self, link: PeerLink, facts: CertificateFacts | None, hello: Mapping[str, Any], session: object
    ) -> tuple[Neighbour, int]:
        """Who dialled, and from now on is heard on this session, and its epoch; PeerError, and the other end is told
        why.
        """
        try:
            neighbour, epoch = self._greeted(hello)
            _check_region(neighbour.name, facts)
            with self._lock:
                now_s = _time.monotonic()
                lives = neighbour.session is not None and now_s - neighbour.heard_s < LIVES_S
                heard = HeardEpochs(neighbour.shown, neighbour.epoch if lives else None)
                if problem := heard.refusal(neighbour.name, epoch):
                    raise PeerError(problem)
                neighbour.session, neighbour.heard_s, neighbour.epoch = session, now_s, epoch
        except PeerError as error:
            link.send(line_of({"type": "refused", "message": str(error)}))
            raise
        return neighbour, epoch

    def _greeted(self, hello: Mapping[str, Any]) -> tuple[Neighbour, int]:
        """Who says hello, and with which epoch it leads its region; PeerError."""
        match hello:
            case {"type": "hello", "version": int(version), "region": str(region), "network": str(network)}:
                pass
            case _:
                raise PeerError("expected a hello")
        self.security.check_token(hello)
        epoch = hello.get("epoch", 0)
        if type(epoch) is not int or not 0 <= epoch <= MAX_EPOCH:
            raise PeerError("expected a hello with an epoch")
        if version != VERSION or network != self.network or region not in self.neighbours:
            raise PeerError(f"expected a neighbour of {self.name} with the same network file, version {VERSION}")
        return self.neighbours[region], epoch

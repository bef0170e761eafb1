"""What the controllers of neighbouring regions tell each other (docs/explanation/regions.md).

Each dials the others and says what it wants of them: the ends of segments at their agents, the rest of these flows,
which of their links are silent here, and whose agents are away at the border. All of it first, then what changed, and
each second the number of what was said last. Each node is answered once its agent has confirmed it. Lines of JSON::

    {"type":"hello","version":2,"region":"north","network":"campus","token":"..."}    {"type":"refused","message":"..."}
    {"type":"wanted","seq":7,"segments":[{"node":"c","end":{...},"flow":{...}}],"silent":["c-b"],"away":["b"]}
    {"type":"changed","since":7,"seq":8,"segments":[...],"gone":[["c","down"]],"silent":[],"away":[]}
    {"type":"still","seq":8}
    {"type":"starting","seq":0,...}    (as ``wanted``, once that is planned: only for one that has just started, too)
    {"type":"rates",...}    (``region_rates``)
    {"type":"ok","seq":7,"node":"c"}   {"type":"error","of":"wanted","seq":7,"message":"..."}

A neighbour that falls silent changes nothing: what it wanted last stays. Threads of the system send and read, a green
thread does the rest.
"""

from __future__ import annotations

import hashlib
import json
import logging
import ssl
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from hyroads.controller.agents.protocol import Hello
from hyroads.controller.agents.sessions import Answer, Session
from hyroads.controller.control.region_rates import ROUND_S
from hyroads.controller.core.admission import Limits
from hyroads.controller.core.checking import Endpoint
from hyroads.controller.core.errors import ConfigError, HyroadsError
from hyroads.controller.core.token_bucket import LimitedReports, TokenBucket
from hyroads.controller.files.tls import client_side, server_side
from hyroads.controller.framework import ryu_shim as shim
from hyroads.controller.framework.connections import Connections, Place
from hyroads.controller.ha.peers import STRANGERS, PeerError, PeerLines, PeerLink, Security, line_of, listen
from hyroads.controller.model import state as model
from hyroads.controller.runtime.event_loop import EventLoop
from hyroads.controller.settings.region import RegionSettings

from .region_messages import RegionError, SegmentMaker, Told, Wanted, links_to, parse_wanted, view_of
from .region_rates import RateExchange

LOG = logging.getLogger("hyroads.regions")
VERSION = 2
MAX_LINE, MOST_SEQ = 8 << 20, 1 << 63
MAX_CONNECTIONS, MAX_WAITING = 64, 64
EACH_S, NAP_S, REDIAL_S, SILENT_S, WITHIN_S = 1.0, 0.01, 0.2, 5.0, 2.0
LIVES_S = 2.5
"""A neighbour that was heard within this time lives: another connection that says it is the same one is refused."""
_socket, _time = shim.original("socket"), shim.original("time")
_threading = shim.original("threading")


def _tell(peer: str, what: str) -> None:
    LOG.info("regions, %s: %s", peer, what)


class FarEnd(Session):
    """The agent at the far end of an exit, as the deployer sees it; the region there is told what it shall do."""

    def request(
        self,
        document: Mapping[str, Any],
        answer: Answer,
        *,
        within_s: float = 0.0,
        told: Callable[[Mapping[str, Any]], None] | None = None,
    ) -> None:
        """Keep what is asked until the neighbour has confirmed it, however long that takes."""
        if document["type"] != "config":
            answer(None)
            return
        self.ends = {each["id"]: each for each in document["egress"]}
        self.answer, self.asked_in = answer, None

    ends: Mapping[str, Mapping[str, Any]] | None = None
    answer: Answer | None = None
    asked_in: int | None = None
    """In which message to the neighbour it is."""


@dataclass(eq=False)
class Neighbour:
    """A region that the tree joins to ours: what we want of it, and what it wants of us."""

    name: str
    far_ends: Mapping[str, FarEnd]
    """By node there."""
    segments: SegmentMaker
    wanted: Wanted = field(default_factory=Wanted)
    refused_seq: int = -1
    """What it could not take, and is to be told as a whole."""
    rates_line: bytes = b""
    """What it is told of rates; each is sent once."""
    is_up: bool = False
    """Whether it has answered on our connection to it."""
    problem: str = ""
    """Why it was not reached the last time."""
    waiting: deque[None] = field(default_factory=deque)
    """As many as messages of it that nobody has looked at yet."""
    session: object = None
    """The connection by which it reaches us; when it was last heard there is ``heard_s``."""
    heard_s: float = 0.0
    has_told: bool = False
    told: Told | None = None
    to_answer: tuple[int, set[str], deque[bytes]] | None = None
    """Which of its messages we answer, for which nodes yet, and where."""


@dataclass(eq=False)
class Regions:
    """All neighbours of this controller's region; ConfigError if the settings do not name one of them."""

    loop: EventLoop
    settings: RegionSettings
    endpoint: Endpoint
    document: str

    def __post_init__(self) -> None:
        self.view = view = view_of(self.loop.context)
        missing = sorted(view.pairs.keys() - self.settings.peers.keys())
        if missing:
            raise ConfigError(self.document, f"region.peers.{missing[0]}", "is missing: that region is a neighbour")
        tls, place = self.settings.tls, "region.tls"
        self._security = Security(token=self.settings.token)
        if tls is not None:
            sides = server_side(tls, self.document, place), client_side(tls, self.document, place)
            self._security = Security(*sides, self.settings.token)
        try:
            self._listener = listen(self.endpoint.host, self.endpoint.port)
        except OSError as error:
            where = f"{self.endpoint.host}:{self.endpoint.port}"
            raise ConfigError(self.document, "listen.peer", f"can't listen on {where}: {error.strerror}") from error
        self._mailbox, self._lock = shim.Mailbox(), _threading.Lock()
        self._stranger = LimitedReports(_tell, _time.monotonic, TokenBucket(*STRANGERS))
        limits = Limits(MAX_CONNECTIONS, MAX_CONNECTIONS, WITHIN_S, each=MAX_CONNECTIONS)
        self._connections = Connections(limits, _time.monotonic, self._stranger, _threading.Lock())
        addressing = self.loop.context.addressing
        node_of_mac = {mac: node for node, mac in addressing.host_mac.items()}
        self._rates = RateExchange(self.loop, view, node_of_mac)
        ends = {name: {out.target for out, _ in pairs} for name, pairs in view.pairs.items()}
        self.neighbours = {
            name: Neighbour(
                name,
                {node: self._far_end(node) for node in sorted(nodes) if addressing.has_agent(node)},
                SegmentMaker(self.loop.context),
            )
            for name, nodes in ends.items()
        }
        self.loop.awaited.append(lambda: all(each.has_told for each in self.neighbours.values()))
        self.loop.followers.append(self.follow)

    def _far_end(self, node: str) -> FarEnd:
        session = FarEnd(
            Hello(node, "far end", "", None, 0), f"region {self.view.region_of[node]}", None, self.loop.clock
        )
        # It may run what we told it before we started: until it has confirmed something, what flows goes on.
        self.loop.agents.joined(session, None)
        return session

    def start(self) -> None:
        """Listen, and dial the neighbours."""
        shim.spawn(self._work)
        shim.spawn(self._exchange_rates)
        shim.start_thread(self._accept, name="regions")
        for name in self.neighbours:
            shim.start_thread(self._keep_dialling, self.neighbours[name], self.settings.peers[name], name=f"to {name}")

    # -- what we want of neighbours, in green threads

    def follow(self) -> None:
        """Bring what we want of neighbours up to date, and answer what is in force."""
        for neighbour in self.neighbours.values():
            self._want(neighbour)
            self._confirm(neighbour)

    def _want(self, neighbour: Neighbour) -> None:
        loop, before = self.loop, neighbour.wanted
        if loop.plan is None or not (loop.settled or self._foresees(neighbour)):
            return
        segments: dict[str, Mapping[str, Any]] = {}
        for node, end in neighbour.far_ends.items():
            ends = end.ends
            if ends is None:
                # What it had from us before we started, until it is asked for something else.
                ends = {flow: each.document() for flow, each in loop.plan.agents[node].egress.items()}
            segments |= neighbour.segments.segments(node, ends, loop.state.flows)
        had = before.segments
        same = had is not None and all(had.get(node) is of for node, of in segments.items())
        if not loop.settled:
            if not same:
                neighbour.wanted = Wanted(before.seq, segments)
            return
        silent, away = self._silent(neighbour.name), self._away(neighbour.name)
        if before.starting or not same or (silent, away) != (before.silent, before.away):
            neighbour.wanted = Wanted(before.seq + 1, segments, silent, away, starting=False)
        for end in neighbour.far_ends.values():
            if end.answer is not None and end.asked_in is None:
                end.asked_in = neighbour.wanted.seq

    def _foresees(self, neighbour: Neighbour) -> bool:
        """Whether all flows into a neighbour are planned though not all devices are here: regions are joined by a tree,
        so what goes there is our own, or came from the others.
        """
        others = (each for each in self.neighbours.values() if each is not neighbour)
        plan, flows = self.loop.plan, self.loop.state.flows
        return plan is not None and flows.keys() <= plan.flows.keys() and all(each.has_told for each in others)

    def _silent(self, region: str) -> tuple[str, ...]:
        of, network = self.view.region_of, self.loop.context.network
        into = (network.links[network.link_index[link]] for link in self.loop.state.silent)
        return tuple(
            sorted(link.id for link in into if of[link.source] == region and of[link.target] == self.view.name)
        )

    def _away(self, region: str) -> tuple[str, ...]:
        """Own nodes at the border whose agents can end no segment now."""
        context, state = self.loop.context, self.loop.state
        nodes = sorted(self.view.ways_in[region] & context.addressing.agents)
        return tuple(node for node in nodes if state.agent_fault(context, node) is not None)

    def _confirm(self, neighbour: Neighbour) -> None:
        """Answer for each node whose agent has confirmed all ends that the neighbour wants there."""
        if neighbour.to_answer is None or neighbour.told is None:
            return
        seq, nodes, outbox = neighbour.to_answer
        for node in sorted(nodes):
            ends, link = neighbour.told.arriving.get(node, {}), self.loop.agents.get(node)
            acked = link.acked.egress if link is not None and link.acked is not None else None
            if not ends or (acked is not None and all(acked.get(flow) == end for flow, end in ends.items())):
                nodes.discard(node)
                outbox.append(line_of({"type": "ok", "seq": seq, "node": node}))
        if not nodes:
            neighbour.to_answer = None

    # -- what comes, in a green thread

    def _work(self) -> None:
        while True:
            for neighbour, document, outbox in self._mailbox.take():
                neighbour.waiting.popleft()
                try:
                    self._take(neighbour, document, outbox)
                except HyroadsError as error:
                    self.loop.fault(f"region {neighbour.name}", str(error))
                    answer = {"type": "error", "of": str(document.get("type"))[:32], "seq": document.get("seq")}
                    outbox.append(line_of({**answer, "message": str(error)[:500]}))
                except Exception as error:  # noqa: BLE001 - the next message is another try; it is counted and shown
                    self.loop.exception(f"region {neighbour.name}", error)

    def _exchange_rates(self) -> None:
        while True:
            shim.sleep(ROUND_S)
            try:
                for name, line in self._rates.round(line_of).items():
                    self.neighbours[name].rates_line = line
            except Exception as error:  # noqa: BLE001 - the next round is another try; it is counted and shown
                self.loop.exception("rates between regions", error)

    def _take(self, neighbour: Neighbour, document: Mapping[str, Any], outbox: deque[bytes]) -> None:
        kind, seq = document.get("type"), document.get("seq")
        if type(kind) is not str or type(seq) is not int or not 0 <= seq < MOST_SEQ:
            raise RegionError("expected a message with type and seq")
        if kind in {"ok", "error"}:
            if document.get("of") in ("hello", "rates"):
                # Both are told again and again: nothing waits for an answer.
                raise RegionError(f"our {document['of']}: {str(document.get('message'))[:500]}")
            self._answered(neighbour, document, seq, is_ok=kind == "ok")
        elif kind in {"wanted", "changed"}:
            told = parse_wanted(document, neighbour.name, self.loop.context, self.loop.state, neighbour.told)
            self._told(neighbour, told, outbox)
        elif kind == "still":
            if neighbour.told is None or neighbour.told.seq != seq:
                raise RegionError("expected all that is wanted first")
            self._told(neighbour, neighbour.told, outbox)
        elif kind == "rates":
            self._rates.take(neighbour.name, seq, document)
        elif kind == "starting":
            if "segments" in document and not self.loop.settled:
                # Neither has been asked for anything since it started: both go on with what they had.
                told = parse_wanted(document, neighbour.name, self.loop.context, self.loop.state)
                self._told(neighbour, told, outbox)
        else:
            raise RegionError(f"no message {kind[:32]!r} is known")

    def _answered(self, neighbour: Neighbour, document: Mapping[str, Any], seq: int, *, is_ok: bool) -> None:
        if not is_ok:
            neighbour.refused_seq = seq
        for node, end in neighbour.far_ends.items():
            asked = end.answer is not None and end.asked_in is not None and seq >= end.asked_in
            if asked and end.answer is not None and (not is_ok or document.get("node") == node):
                answer, end.answer, end.asked_in = end.answer, None, None
                answer(None if is_ok else str(document.get("message"))[:500])
                self.loop.wake(now=True)

    def _told(self, neighbour: Neighbour, told: Told, outbox: deque[bytes]) -> None:
        neighbour.told = told
        neighbour.to_answer = (told.seq, set(self.view.ways_in[neighbour.name]), outbox)
        border = {back.id: back.source for _, back in self.view.pairs[neighbour.name]}
        self.loop.change(
            partial(
                model.region_told,
                sender=neighbour.name, flows=told.flows.values(), arriving=told.arriving, silent=told.silent,
                links=links_to(self.loop.context, neighbour.name), away=told.away, border=border,
            )
        )  # fmt: skip
        neighbour.has_told = True
        self._confirm(neighbour)
        self.loop.wake()

    # -- connections, in threads of the system

    def _put(self, neighbour: Neighbour, document: Mapping[str, Any], outbox: deque[bytes]) -> None:
        """Have a message looked at; waits while many of the same neighbour are not yet."""
        while len(neighbour.waiting) >= MAX_WAITING:
            _time.sleep(NAP_S)
        neighbour.waiting.append(None)
        self._mailbox.put((neighbour, document, outbox))

    def _keep_dialling(self, neighbour: Neighbour, endpoint: Endpoint) -> None:
        while True:
            try:
                connection = _socket.create_connection((endpoint.host, endpoint.port), timeout=WITHIN_S)
                try:
                    self._say(neighbour, PeerLink(connection, self._security.client, endpoint.host))
                finally:
                    connection.close()
            except (OSError, EOFError) as error:
                LOG.debug("region %s: %s", neighbour.name, error)
                self._not_reached(neighbour, error)
            neighbour.is_up = False
            _time.sleep(REDIAL_S)

    def _not_reached(self, neighbour: Neighbour, error: Exception) -> None:
        """Say once why, if it is not that nobody is there."""
        if neighbour.is_up:
            LOG.warning("region %s: its controller is gone; what it wants stays", neighbour.name)
            neighbour.problem = ""
            return
        if isinstance(error, EOFError | ConnectionResetError | BrokenPipeError):
            problem = "the other end ends the connection without a word; do both have region.tls, or neither?"
        else:
            problem = str(error) if isinstance(error, PeerError | ssl.SSLError) else neighbour.problem
        if problem != neighbour.problem:
            neighbour.problem = problem
            self._put(neighbour, {"type": "error", "of": "hello", "seq": 0, "message": problem}, deque())

    def _say(self, neighbour: Neighbour, link: PeerLink) -> None:
        hello = {"type": "hello", "version": VERSION, "region": self.view.name, "network": self._network()}
        token = self._security.token
        link.send(line_of({**hello, "token": token} if token is not None else hello))
        lines, said_s = PeerLines(link, MAX_LINE), -EACH_S
        said: Wanted | None = None
        rates = neighbour.rates_line
        while True:
            wanted, now_s = neighbour.wanted, _time.monotonic()
            if wanted is not said or now_s - said_s >= EACH_S:
                if said is not None and neighbour.refused_seq >= said.seq and now_s - said_s >= EACH_S:
                    said, neighbour.refused_seq = None, -1
                again = wanted is said and not wanted.starting
                link.send(line_of({"type": "still", "seq": wanted.seq} if again else wanted.document(said)))
                said, said_s = wanted, now_s
            if rates is not neighbour.rates_line:
                rates = neighbour.rates_line
                link.send(rates)
            if lines.is_ready(NAP_S):
                document = lines.next()
                if document.get("type") == "refused":
                    raise PeerError(str(document.get("message"))[:500])
                neighbour.is_up, neighbour.problem = True, ""
                self._put(neighbour, document, deque())

    def _accept(self) -> None:
        while True:
            try:
                connection, address = self._listener.accept()
            except OSError as error:
                LOG.warning("regions: can't accept a connection: %s", error.strerror)
                _time.sleep(0.1)
                continue
            place = self._connections.enter(connection, address)
            shim.start_thread(self._read, connection, place, name="a region")

    def _read(self, connection: Any, place: Place) -> None:
        neighbour, session = None, object()
        try:
            connection.settimeout(WITHIN_S)
            link = PeerLink(connection, self._security.server, within_s=WITHIN_S)
            lines = PeerLines(link)
            neighbour = self._met(link, lines.next(), session)
            if not place.authenticated(neighbour.name):
                raise PeerError(f"region {neighbour.name} has all its connections")
            link.met(WITHIN_S)
            lines.most = MAX_LINE
            outbox: deque[bytes] = deque(maxlen=16)
            while neighbour.session is session and _time.monotonic() - neighbour.heard_s < SILENT_S:
                if lines.is_ready(NAP_S):
                    self._put(neighbour, lines.next(), outbox)
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

    def _met(self, link: PeerLink, hello: Mapping[str, Any], session: object) -> Neighbour:
        """Who dialled, and from now on is heard on this session; PeerError, and the other end is told why."""
        try:
            neighbour = self._greeted(hello)
            with self._lock:
                now_s = _time.monotonic()
                if neighbour.session is not None and now_s - neighbour.heard_s < LIVES_S:
                    raise PeerError(
                        f"region {neighbour.name} is connected already: is there a second controller of it?"
                    )
                neighbour.session, neighbour.heard_s = session, now_s
        except PeerError as error:
            link.send(line_of({"type": "refused", "message": str(error)}))
            raise
        return neighbour

    def _greeted(self, hello: Mapping[str, Any]) -> Neighbour:
        match hello:
            case {"type": "hello", "version": int(version), "region": str(region), "network": str(network)}:
                pass
            case _:
                raise PeerError("expected a hello")
        self._security.check_token(hello)
        if version != VERSION or network != self._network() or region not in self.neighbours:
            raise PeerError(f"expected a neighbour of {self.view.name} with the same network file, version {VERSION}")
        return self.neighbours[region]

    def _network(self) -> str:
        """The same for controllers that read files with the same nodes, links and regions."""
        network = self.loop.context.network
        links = [[link.id, link.source, link.target, link.technology] for link in network.links]
        text = json.dumps([list(network.nodes), sorted(self.view.region_of.items()), links])
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

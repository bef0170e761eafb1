"""What the controllers of neighbouring regions tell each other (docs/explanation/regions.md).

Each dials the others and says all that it wants of them, whenever that changes and each second: the ends of segments at
their agents, the rest of these flows, and which of their links are silent here. It is answered once the agents have
confirmed it. Lines of JSON::

    {"type":"hello","version":1,"region":"north","network":"campus","token":"..."}
    {"type":"wanted","seq":7,"segments":[{"node":"c","end":{...},"flow":{...}}],"silent":["c-b"]}
    {"type":"rates",...}    (``region_rates``)
    {"type":"ok","seq":7}   {"type":"error","seq":7,"message":"..."}

A neighbour that falls silent changes nothing: what it wanted last stays. Threads of the system send and read, a green
thread does the rest.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from hyroads.controller.agents.protocol import EgressFlow, Hello
from hyroads.controller.agents.sessions import Answer, Session
from hyroads.controller.control.region_rates import ROUND_S
from hyroads.controller.core.checking import Endpoint
from hyroads.controller.core.errors import ConfigError, HyroadsError
from hyroads.controller.core.netfile_sections import flow_document
from hyroads.controller.core.network import PRODUCTION, FlowSpec
from hyroads.controller.core.region_view import RegionView, imported_id
from hyroads.controller.files.tls import client_side, server_side
from hyroads.controller.framework import ryu_shim as shim
from hyroads.controller.ha.peers import PeerError, PeerLines, PeerLink, Security, line_of, listen
from hyroads.controller.model import state as model
from hyroads.controller.model.state import DeclaredFlow, Origin, State, TopologyContext
from hyroads.controller.runtime.event_loop import EventLoop
from hyroads.controller.runtime.persistence import parse_flow
from hyroads.controller.settings.region import RegionSettings

from .region_rates import RateExchange

LOG = logging.getLogger("hyroads.regions")
VERSION = 1
MAX_LINE = 8 << 20
MAX_SEGMENTS, MAX_PATHS, MAX_SILENT, MAX_HOLD_MS = 10_000, 255, 10_000, 10_000
MAX_CONNECTIONS = 64
EACH_S, NAP_S, REDIAL_S, SILENT_S, WITHIN_S = 1.0, 0.01, 0.2, 5.0, 2.0
_socket, _time = shim.original("socket"), shim.original("time")
_threading = shim.original("threading")


class RegionError(HyroadsError):
    """A neighbour says what can't be."""


@dataclass(frozen=True)
class Told:
    """What a neighbour wants of this region."""

    flows: tuple[DeclaredFlow, ...]
    arriving: Mapping[str, Mapping[str, EgressFlow]]
    silent: frozenset[str]


def parse_wanted(document: Mapping[str, Any], sender: str, context: TopologyContext, state: State) -> Told:
    """What a neighbour says, checked; RegionError or ConfigError."""
    view, mac = view_of(context), context.addressing.host_mac
    links = {link.id: link for link in context.network.links}
    segments, silent = document.get("segments"), document.get("silent")
    if not isinstance(segments, list) or len(segments) > MAX_SEGMENTS:
        raise RegionError(f"expected segments, {MAX_SEGMENTS} at most")
    if not isinstance(silent, list) or len(silent) > MAX_SILENT or not all(isinstance(link, str) for link in silent):
        raise RegionError("expected the ids of silent links")
    flows: list[DeclaredFlow] = []
    arriving: dict[str, dict[str, EgressFlow]] = {}
    for segment in segments:
        match segment:
            case {"node": str(node), "end": dict(end), "flow": dict(flow)}:
                pass
            case _:
                raise RegionError("expected a segment with node, end and flow")
        if node not in view.borders or not context.addressing.has_agent(node):
            raise RegionError(f"{node[:64]!r} is no node at a border with an agent")
        spec = parse_flow(flow, context.network, f"region {sender}")
        name = imported_id(spec.id, sender)
        if (known := state.flows.get(name)) is not None and known.origin is not Origin.REGION:
            raise RegionError(f"a flow {name[:64]!r} is declared here")
        arriving.setdefault(node, {})[name] = _end(end, name, view.ranges[sender])
        if spec.target != node:
            flows.append(DeclaredFlow(view.onward(spec, sender, node, mac), Origin.REGION))
    inbound = links_to(context, sender)
    unknown = [link for link in silent if link not in links]
    if unknown:
        raise RegionError(f"{unknown[0][:64]!r} is no link")
    return Told(tuple(flows), arriving, frozenset(silent) & inbound)


def _end(document: Mapping[str, Any], name: str, numbers: tuple[int, int]) -> EgressFlow:
    match document:
        case {"number": int(number), "paths": list(paths), "max_hold_ms": int(hold_ms), "ordered": bool(ordered)} if (
            numbers[0] <= number <= numbers[1]
            and len(paths) <= MAX_PATHS
            and all(type(path) is int and 0 <= path <= MAX_PATHS for path in paths)
            and 0 <= hold_ms <= MAX_HOLD_MS
        ):
            return EgressFlow(number, name, tuple(paths), hold_ms, ordered)
    raise RegionError("expected the end of a segment with number, paths, max_hold_ms and ordered")


def view_of(context: TopologyContext) -> RegionView:
    """What the controller sees; RegionError if it runs the whole network."""
    if context.view is None:
        raise RegionError("this is not the controller of a region")
    return context.view


def links_to(context: TopologyContext, region: str) -> frozenset[str]:
    """Own links to a neighbour."""
    view = view_of(context)
    ends = ((link.id, view.region_of[link.source], view.region_of[link.target]) for link in context.network.links)
    return frozenset(link for link, source, target in ends if (source, target) == (view.name, region))


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
    far_end: FarEnd | None
    seq: int = 0
    wanted: dict[str, Any] = field(default_factory=dict)
    line: bytes = b""
    rates_line: bytes = b""
    """What it is told of rates; each is sent once."""
    is_up: bool = False
    """Whether our connection to it stands."""
    has_told: bool = False
    told: Told | None = None
    to_answer: tuple[int, deque[bytes]] | None = None


@dataclass(eq=False)
class Regions:
    """All neighbours of this controller's region; ConfigError if the settings do not name one of them."""

    loop: EventLoop
    settings: RegionSettings
    endpoint: Endpoint
    document: str

    def __post_init__(self) -> None:
        self.view = view = view_of(self.loop.context)
        missing = sorted(view.neighbours.keys() - self.settings.peers.keys())
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
        self._mailbox, self._lock, self._accepted = shim.Mailbox(), _threading.Lock(), 0
        self._specs: dict[str, FlowSpec] = {}
        addressing = self.loop.context.addressing
        self._node_of_mac = {mac: node for node, mac in addressing.host_mac.items()}
        self._rates = RateExchange(self.loop, view, self._node_of_mac)
        self.neighbours = {
            name: Neighbour(name, self._far_end(link.target) if addressing.has_agent(link.target) else None)
            for name, link in view.neighbours.items()
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
        loop, end = self.loop, neighbour.far_end
        if not loop.settled or loop.plan is None:
            wanted: dict[str, Any] = {"type": "starting"}
        else:
            wanted = {"type": "wanted", "segments": self._segments(end), "silent": self._silent(neighbour.name)}
        if wanted != neighbour.wanted:
            neighbour.wanted, neighbour.seq = wanted, neighbour.seq + 1
            neighbour.line = line_of({**wanted, "seq": neighbour.seq})
        if end is not None and end.answer is not None and end.asked_in is None and wanted["type"] == "wanted":
            end.asked_in = neighbour.seq

    def _segments(self, end: FarEnd | None) -> list[dict[str, Any]]:
        if end is None or self.loop.plan is None:
            return []
        ends = end.ends
        if ends is None:
            # What it had from us before we started, until it is asked for something else.
            planned = self.loop.plan.agents[end.node].egress
            ends = {flow: each.document() for flow, each in planned.items()}
        found = []
        for flow, each in sorted(ends.items()):
            declared = self.loop.state.flows.get(flow)
            if declared is not None:
                whole = self.view.whole(declared.spec, self._node_of_mac)
                self._specs[flow] = replace(whole, slice=PRODUCTION, group=None, paths=())
            if flow in self._specs:
                end_of = {"number": each["number"], "paths": each["paths"], "ordered": each["reorder"]}
                document = {**end_of, "max_hold_ms": each["max_hold_ms"]}
                found.append({"node": end.node, "end": document, "flow": flow_document(self._specs[flow])})
        return found

    def _silent(self, region: str) -> list[str]:
        of, network = self.view.region_of, self.loop.context.network
        into = (network.links[network.link_index[link]] for link in self.loop.state.silent)
        return sorted(link.id for link in into if of[link.source] == region and of[link.target] == self.view.name)

    def _confirm(self, neighbour: Neighbour) -> None:
        """Answer once our agents have confirmed all ends that the neighbour wants."""
        if neighbour.to_answer is None or neighbour.told is None:
            return
        for node, ends in neighbour.told.arriving.items():
            link = self.loop.agents.get(node)
            if link is None or link.acked is None or any(link.acked.egress.get(f) != end for f, end in ends.items()):
                return
        seq, outbox = neighbour.to_answer
        neighbour.to_answer = None
        outbox.append(line_of({"type": "ok", "seq": seq}))

    # -- what comes, in a green thread

    def _work(self) -> None:
        while True:
            for neighbour, document, outbox in self._mailbox.take():
                try:
                    self._take(neighbour, document, outbox)
                except HyroadsError as error:
                    self.loop.fault(f"region {neighbour.name}", str(error))
                    outbox.append(line_of({"type": "error", "seq": document.get("seq"), "message": str(error)[:500]}))
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
        if not isinstance(seq, int):
            raise RegionError("expected a message with seq")
        if kind in {"ok", "error"}:
            end = neighbour.far_end
            if end is not None and end.answer is not None and end.asked_in is not None and seq >= end.asked_in:
                answer, end.answer, end.asked_in = end.answer, None, None
                answer(None if kind == "ok" else str(document.get("message"))[:500])
                self.loop.wake(now=True)
        elif kind == "wanted":
            told = parse_wanted(document, neighbour.name, self.loop.context, self.loop.state)
            neighbour.told, neighbour.to_answer = told, (seq, outbox)
            links = links_to(self.loop.context, neighbour.name)
            sender = neighbour.name
            self.loop.change(
                partial(
                    model.region_told,
                    sender=sender, flows=told.flows, arriving=told.arriving, silent=told.silent, links=links,
                )
            )  # fmt: skip
            neighbour.has_told = True
            self._confirm(neighbour)
            self.loop.wake()
        elif kind == "rates":
            self._rates.take(neighbour.name, seq, document)
        elif kind == "starting":
            neighbour.has_told = True
            self.loop.wake()

    # -- connections, in threads of the system

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
            if neighbour.is_up:
                LOG.warning("region %s: its controller is gone; what it wants stays", neighbour.name)
            neighbour.is_up = False
            _time.sleep(REDIAL_S)

    def _say(self, neighbour: Neighbour, link: PeerLink) -> None:
        hello = {"type": "hello", "version": VERSION, "region": self.view.name, "network": self._network()}
        token = self._security.token
        link.send(line_of({**hello, "token": token} if token is not None else hello))
        lines, said, said_s, rates = PeerLines(link, MAX_LINE), b"", 0.0, neighbour.rates_line
        neighbour.is_up = True
        while True:
            line, now_s = neighbour.line, _time.monotonic()
            if line and (line is not said or now_s - said_s >= EACH_S):
                link.send(line)
                said, said_s = line, now_s
            if rates is not neighbour.rates_line:
                rates = neighbour.rates_line
                link.send(rates)
            if lines.is_ready(NAP_S):
                self._mailbox.put((neighbour, lines.next(), deque()))

    def _accept(self) -> None:
        while True:
            try:
                connection, address = self._listener.accept()
            except OSError as error:
                LOG.warning("regions: can't accept a connection: %s", error.strerror)
                _time.sleep(0.1)
                continue
            if self._accepted >= MAX_CONNECTIONS:
                connection.close()
                continue
            with self._lock:
                self._accepted += 1
            shim.start_thread(self._read, connection, f"{address[0]}:{address[1]}", name="a region")

    def _read(self, connection: Any, address: str) -> None:
        try:
            connection.settimeout(WITHIN_S)
            link = PeerLink(connection, self._security.server)
            lines = PeerLines(link, MAX_LINE)
            neighbour = self._greeted(lines.next())
            outbox: deque[bytes] = deque(maxlen=16)
            heard_s = _time.monotonic()
            while _time.monotonic() - heard_s < SILENT_S:
                if lines.is_ready(NAP_S):
                    self._mailbox.put((neighbour, lines.next(), outbox))
                    heard_s = _time.monotonic()
                while outbox:
                    link.send(outbox.popleft())
        except (OSError, EOFError) as error:
            LOG.log(logging.INFO if isinstance(error, PeerError) else logging.DEBUG, "regions, %s: %s", address, error)
        finally:
            connection.close()
            with self._lock:
                self._accepted -= 1

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

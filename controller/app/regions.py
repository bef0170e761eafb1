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
    {"type":"ok","seq":0,"node":"","epoch":3}    (at first: with which epoch its sender leads)
    {"type":"ok","seq":7,"node":"c"}   {"type":"error","of":"wanted","seq":7,"message":"..."}

A neighbour that falls silent changes nothing: what it wanted last stays. Threads of the system send and read, a green
thread does the rest.

Of several controllers of a region the leader alone speaks, to all controllers of its neighbours, and its hello has its
``epoch``; ``core.region_epochs`` decides which one is heard. Those that follow hear what neighbours want, so that they
know it when they lead. They confirm nothing; what they say has ``"follows":true``, and only lets them be told it all
again.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from hyroads.controller.agents.protocol import Hello
from hyroads.controller.control.region_rates import ROUND_S
from hyroads.controller.core.checking import Endpoint
from hyroads.controller.core.errors import ConfigError, HyroadsError
from hyroads.controller.core.identity import CertificateRole
from hyroads.controller.core.interface_addresses import Interface
from hyroads.controller.files.tls import CertificateCheck, Revoked, certificate_facts, client_side, server_side
from hyroads.controller.framework import ryu_shim as shim
from hyroads.controller.ha.peer_links import Security, line_of, listen
from hyroads.controller.model import state as model
from hyroads.controller.runtime.event_loop import EventLoop
from hyroads.controller.settings.region import RegionSettings

from .region_links import FOLLOWS, FarEnd, Neighbour, RegionLinks, not_of
from .region_messages import RegionError, SegmentMaker, Told, Wanted, links_to, parse_wanted, view_of
from .region_rates import RateExchange

MOST_SEQ = 1 << 63


@dataclass(eq=False)
class Regions:
    """All neighbours of this controller's region; ConfigError if the settings do not name one of them. ``epoch`` says
    with which epoch this controller leads its region, None while another one does.
    """

    loop: EventLoop
    settings: RegionSettings
    endpoint: Endpoint
    document: str
    epoch: Callable[[], int | None] = lambda: 0
    revoked: Revoked = field(default_factory=Revoked)

    def __post_init__(self) -> None:
        self.view = view = view_of(self.loop.context)
        missing = sorted(view.pairs.keys() - self.settings.peers.keys())
        if missing:
            raise ConfigError(self.document, f"region.peers.{missing[0]}", "is missing: that region is a neighbour")
        self._reported: Mapping[Interface, str] = {}
        self._told_addresses: dict[str, tuple[tuple[str, str, str], ...]] = {}
        """By region, of these reports."""
        security, listener = self._security(), self._listener()
        self._mailbox = shim.Mailbox()
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
        self.links = RegionLinks(
            view.name,
            self._network(),
            neighbours=self.neighbours,
            security=security,
            listener=listener,
            mailbox=self._mailbox,
            epoch=self.epoch,
        )
        self.loop.awaited.append(lambda: all(each.has_told for each in self.neighbours.values()))
        self.loop.followers.append(self.follow)

    def _security(self) -> Security:
        """How neighbours know us, and we them; ConfigError."""
        tls, place = self.settings.tls, "region.tls"
        if tls is None:
            return Security(token=self.settings.token)
        sides = server_side(tls, self.document, place), client_side(tls, self.document, place)
        check = CertificateCheck.of(CertificateRole.REGION, revoked=self.revoked)
        own = certificate_facts(Path(tls.certificate).read_bytes())
        if problem := check.fault(own) or not_of(self.view.name, own):
            raise ConfigError(self.document, f"{place}.certificate", problem)
        return Security(*sides, self.settings.token, check)

    def _listener(self) -> Any:
        try:
            return listen(self.endpoint.host, self.endpoint.port)
        except OSError as error:
            where = f"{self.endpoint.host}:{self.endpoint.port}"
            place = "listen.peer" if self.settings.listen is None else "region.listen"
            raise ConfigError(self.document, place, f"can't listen on {where}: {error.strerror}") from error

    def _network(self) -> str:
        """The same for controllers that read files with the same nodes, links and regions."""
        network = self.loop.context.network
        links = [[link.id, link.source, link.target, link.technology] for link in network.links]
        text = json.dumps([list(network.nodes), sorted(self.view.region_of.items()), links])
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

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
        self.links.start(self.settings.peers)

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
        addresses = self._addresses(neighbour.name)
        rest = (silent, away, addresses)
        if before.starting or not same or rest != (before.silent, before.away, before.addresses):
            neighbour.wanted = Wanted(before.seq + 1, segments, silent, away, starting=False, addresses=addresses)
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

    def _addresses(self, region: str) -> tuple[tuple[str, str, str], ...]:
        """What own boxes report of interfaces at links to a region."""
        of, reported = self.view.region_of, self.loop.state.reported
        if reported is not self._reported:
            self._reported, self._told_addresses = reported, {}
        if region not in self._told_addresses:
            near = {i for node, at in self.loop.addresses.now.near.items() if of[node] == region for i in at}
            found = ((*at, mac) for at, mac in reported.items() if at in near and of[at[0]] == self.view.name)
            self._told_addresses[region] = tuple(sorted(found))
        return self._told_addresses[region]

    def _away(self, region: str) -> tuple[str, ...]:
        """Own nodes at the border whose agents can end no segment now."""
        context, state = self.loop.context, self.loop.state
        nodes = sorted(self.view.ways_in[region] & context.addressing.agents)
        return tuple(node for node in nodes if state.agent_fault(context, node) is not None)

    def _confirm(self, neighbour: Neighbour) -> None:
        """Answer for each node whose agent has confirmed all ends that the neighbour wants there."""
        if neighbour.to_answer is None or neighbour.told is None or self.epoch() is None:
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
            for neighbour, document, outbox, epoch in self._mailbox.take():
                neighbour.waiting.popleft()
                if epoch is not None and epoch != neighbour.epoch:
                    # Another of its controllers leads by now, and has said what it wants, or will.
                    continue
                try:
                    self._take(neighbour, document, outbox)
                except HyroadsError as error:
                    self.loop.fault(f"region {neighbour.name}", str(error))
                    answer = {"type": "error", "of": str(document.get("type"))[:32], "seq": document.get("seq")}
                    answer |= FOLLOWS if self.epoch() is None else {}
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
                reported=told.addresses,
            )
        )  # fmt: skip
        neighbour.has_told = True
        self._confirm(neighbour)
        self.loop.wake()

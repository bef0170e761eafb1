"""Rules on demand: which hosts talk to which (docs/explanation/routing.md, *Rules on demand*).

A frame for a host that its first switch does not know is flooded, and a copy comes here. If the controller knows the
host, the route from that switch to the host's is made; once all switches on it have confirmed, the first switch is told
to send the host's frames there. Pairs that are idle for a while are forgotten. What switches have from before a restart
is taken over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from hyroads.controller.control.live_network import LiveNetwork
from hyroads.controller.control.routes_in_use import RoutesInUse
from hyroads.controller.core.mappings import differing
from hyroads.controller.core.network import Place
from hyroads.controller.model.plan import SINGLE, FlowPlan, Plan
from hyroads.controller.ofp.hosts import host_of, label_of
from hyroads.controller.ofp.intents import SwitchIntent
from hyroads.controller.ofp.pipeline import Priority, Table
from hyroads.controller.ofp.readback import FlowStat, parse_packet_in
from hyroads.controller.services.port import ControllerPort, changed_since
from hyroads.controller.switches.host_tables import HostTables
from hyroads.controller.switches.sessions import SwitchSession
from hyroads.rest.metrics import Counter as CounterMetric
from hyroads.rest.metrics import Gauge

TREES_AT_ONCE = 8
"""So many routes are made in one turn: 1 ms each with 1,000 nodes."""
IDLE_S = 120.0
COUNT_EVERY_S = 20
MAX_PAIRS_PER_NODE = 1024
MAX_MISSES = 4096
READ = "read"
"""Holds the routes whose rules a switch had when it was read, until all were read and their hosts are placed."""

_Pin = tuple[str, str, str]
"""The pair of a declared flow on the single path: node, host and destination."""


@dataclass(slots=True)
class _Pair:
    """Hosts at a node send to a host."""

    destination: str
    used_s: float
    in_use: bool = False
    is_pinned: bool = False
    packets: dict[bytes, int] = field(default_factory=dict)
    """By match: the rule has variants for some ports."""


class HostPairs:
    """One per controller; works in the event loop, before switches are told anything."""

    def __init__(
        self,
        port: ControllerPort,
        tables: HostTables,
        clock: Callable[[], float],
        *,
        switch_grace_s: float,
        touched: set[str] | None = None,
    ) -> None:
        """``touched`` are nodes whose switches came, went or changed (``SwitchRegistry.watch``); None: perhaps all."""
        self._port, self._tables, self._clock, self._touched = port, tables, clock, touched
        self._context = port.context
        self.routes = RoutesInUse(port.context)
        tables.routes = self
        addressing, labels = self._context.addressing, self._context.labels
        self._fixed = {mac: node for node, mac in addressing.host_mac.items()}
        self._named = {label: node for node, label in labels.node.items()}
        self._turn_of = {node: i % COUNT_EVERY_S for i, node in enumerate(addressing.dpid)}
        self._pairs: dict[str, dict[str, _Pair]] = {}
        self._waiting: dict[tuple[str, str], None] = {}
        self._misses: dict[tuple[str, str], None] = {}
        self._adopted: dict[str, SwitchSession] = {}
        self._read: set[tuple[str, str]] = set()
        self._read_until_s = clock() + switch_grace_s
        self._counted_s = int(clock())
        self._told_s: dict[str, float] = {}
        self._planned: Mapping[str, FlowPlan] = {}
        self._network: LiveNetwork | None = None
        self._places: Mapping[str, Place] = {}
        """Flows, network and places of plain clients for which pairs were pinned last."""
        self._pins: dict[str, _Pin] = {}
        self._pinned_by: dict[tuple[str, str], set[str]] = {}
        """By node and host: the flows that need the pair."""
        self._unpinned: dict[tuple[str, str], str] = {}
        """Destinations of pairs that are needed and not pinned yet."""
        self.counters: Counter[str] = Counter()

    # -- switches.host_tables.RouteHolder

    def hold(self, source: str, destination: str, holder: Hashable) -> None:
        """A node needs the route to another."""
        self.routes.hold(source, destination, ("host", holder))
        self._port.wake()

    def release(self, source: str, destination: str, holder: Hashable) -> None:
        """It needs the route no longer."""
        self.routes.release(source, destination, ("host", holder))
        self._port.wake()

    def is_ready(self, source: str, destination: str) -> bool:
        """Whether the switches of a route have confirmed it."""
        return self.routes.is_in_force(source, destination, self._confirmed)

    def _confirmed(self, node: str) -> SwitchIntent | None:
        session = self._port.switches.get(node)
        return session.confirmed.intent if session is not None and session.confirmed is not None else None

    # -- the event loop's turns

    def packet_in(self, session: SwitchSession, message: bytes) -> None:
        """A frame for a host that its first switch does not know."""
        mac = parse_packet_in(message).frame[:6].hex(":")
        self.counters["misses"] += 1
        if len(self._misses) < MAX_MISSES and (session.node, mac) not in self._misses:
            self._misses[session.node, mac] = None
            self._port.wake(now=True)

    def follow(self) -> None:
        """Take in misses, the network and what switches confirmed."""
        self.routes.on(self._port.live.network)
        switches = self._port.switches
        found = [
            (node, session)
            for node in sorted(changed_since(self._touched, self._adopted, switches))
            if (session := switches.get(node)) is not None
            and session.is_read
            and self._adopted.get(node) is not session
        ]
        for node, session in found:
            self._adopt(node, session)
        # All of them first: a tree serves all sources that hold it. Nobody is told anything before all trees are made.
        while found and self.routes.work(TREES_AT_ONCE):
            pass
        self._end_reading()
        if self._port.plan is not None:
            self._pin_flows(self._port.plan)
        misses, self._misses = self._misses, {}
        for node, mac in misses:
            self._missed(node, mac)
        self._age(int(self._clock()))
        if self.routes.work(TREES_AT_ONCE):
            self._port.wake(now=True)
        self._begin_ready()

    def added_to(self, node: str, intent: SwitchIntent) -> SwitchIntent:
        """The intent of a switch with its routes and the hosts that it sends to."""
        session = self._port.switches.get(node)
        if session is not None and session.is_read and self._adopted.get(node) is not session:
            self._adopt(node, session)
            while self.routes.work(TREES_AT_ONCE):
                pass
        return self.routes.added_to(node, intent)

    @property
    def changed_nodes(self) -> set[str]:
        """Nodes for which :meth:`added_to` may give something else than before; whoever asks it removes them."""
        return self.routes.changed_nodes

    # -- pairs

    def _destination(self, mac: str) -> str | None:
        """The node or plain client behind whose label a host is."""
        fixed = self._fixed.get(mac)
        if fixed is not None:
            return fixed
        spot = self._tables.spot_of(mac)
        return spot.node if spot is not None else None

    def _home(self, destination: str) -> str:
        place = self._port.live.network.places.get(destination)
        return place.node if place is not None else destination

    def _missed(self, node: str, mac: str) -> None:
        pair = self._pairs.get(node, {}).get(mac)
        if pair is not None:
            pair.used_s = self._clock()
            return
        destination = self._destination(mac)
        if destination is None or self._home(destination) == node:
            self.counters["unknown"] += destination is None
            return
        self._open(node, mac, destination)

    def _open(self, node: str, mac: str, destination: str) -> _Pair | None:
        pairs = self._pairs.setdefault(node, {})
        if len(pairs) >= MAX_PAIRS_PER_NODE:
            self.counters["refused"] += 1
            return None
        pairs[mac] = pair = _Pair(destination, self._clock())
        self.routes.hold(node, destination, ("pair", mac))
        self._waiting[node, mac] = None
        self.counters["opened"] += 1
        return pair

    def _begin_ready(self) -> None:
        for node, mac in list(self._waiting):
            pair = self._pairs.get(node, {}).get(mac)
            if pair is None:
                del self._waiting[node, mac]
            elif self.routes.is_in_force(node, pair.destination, self._confirmed):
                del self._waiting[node, mac]
                self._begin(node, mac, pair)

    def _begin(self, node: str, mac: str, pair: _Pair) -> None:
        """The route is there: the first switch may send by it."""
        pair.in_use = True
        if mac in self._fixed:
            self.routes.send(node, mac, pair.destination)
        else:
            self._tables.use(node, mac)
            self.routes.release(node, pair.destination, ("pair", mac))

    def _close(self, node: str, mac: str) -> None:
        pair = self._pairs[node].pop(mac)
        if not self._pairs[node]:
            del self._pairs[node]
        self._waiting.pop((node, mac), None)
        self.counters["closed"] += 1
        if mac in self._fixed:
            self.routes.stop(node, mac)
        elif pair.in_use:
            self._tables.unuse(node, mac)
        self.routes.release(node, pair.destination, ("pair", mac))

    # -- declared flows on the single path need no miss

    def _pin_flows(self, plan: Plan) -> None:
        """Only flows of which something changed are looked at, unless plain clients have other places."""
        if self._planned is plan.flows and self._network is self._port.live.network:
            return
        self._network = self._port.live.network
        changed, places = differing(self._planned, plan.flows), self._network.places
        if places != self._places:
            changed |= plan.flows.keys()
        self._planned, self._places = plan.flows, places
        for flow in changed:
            pin = self._pin(plan.flows.get(flow))
            if pin == self._pins.get(flow):
                continue
            if (before := self._pins.pop(flow, None)) is not None:
                self._unpin(flow, before)
            if pin is not None:
                self._pins[flow] = pin
                self._pinned_by.setdefault(pin[:2], set()).add(flow)
                self._unpinned[pin[:2]] = pin[2]
        self._pin_pairs()

    def _pin(self, flow: FlowPlan | None) -> _Pin | None:
        """The pair that a flow needs."""
        if flow is None or flow.mode != SINGLE:
            return None
        source, target = self._home(flow.spec.source), flow.spec.target
        if source == self._home(target) or source not in self._turn_of:
            return None
        return source, self._context.addressing.host_mac[target], target

    def _unpin(self, flow: str, pin: _Pin) -> None:
        node, mac, _ = pin
        flows = self._pinned_by[node, mac]
        flows.discard(flow)
        if not flows:
            del self._pinned_by[node, mac]
            self._unpinned.pop((node, mac), None)
            if (pair := self._pairs.get(node, {}).get(mac)) is not None:
                pair.is_pinned = False

    def _pin_pairs(self) -> None:
        """Pairs that flows need and that are not pinned; a node that has too many pairs is asked again."""
        for (node, mac), destination in list(self._unpinned.items()):
            pair = self._pairs.get(node, {}).get(mac) or self._open(node, mac, destination)
            if pair is not None:
                pair.is_pinned = True
                del self._unpinned[node, mac]

    # -- who is idle

    def _age(self, second: int) -> None:
        """Each second the counters of some switches are asked for, and their idle pairs closed."""
        for now_s in range(max(self._counted_s + 1, second - COUNT_EVERY_S + 1), second + 1):
            for node in [node for node in self._pairs if self._turn_of[node] == now_s % COUNT_EVERY_S]:
                for mac in [mac for mac, pair in self._pairs[node].items() if self._is_idle(node, pair)]:
                    self._close(node, mac)
                session = self._port.switches.get(node)
                if session is not None and session.is_read and node in self._pairs:
                    session.ask_uses(partial(self._counted, node))
        self._counted_s = second

    def _is_idle(self, node: str, pair: _Pair) -> bool:
        """Switches that do not answer keep their pairs."""
        looked_s = self._told_s.get(node, pair.used_s) if pair.in_use else self._clock()
        return not pair.is_pinned and looked_s - pair.used_s > IDLE_S

    def _counted(self, node: str, stat: FlowStat) -> None:
        self._told_s[node] = now_s = self._clock()
        pair = self._pairs.get(node, {}).get(host_of(stat.rule.match_fields) or "")
        if pair is not None and pair.packets.get(stat.rule.match_fields) != stat.packets:
            pair.packets[stat.rule.match_fields], pair.used_s = stat.packets, now_s

    # -- what is there from before

    def _adopt(self, node: str, session: SwitchSession) -> None:
        """A switch was read: its pairs go on, and its routes stay until all have told theirs, and their hosts."""
        self._adopted[node] = session
        for rule in session.installed:
            if (rule.table, rule.priority) == (Table.FORWARD, Priority.UNICAST):
                mac = host_of(rule.match_fields) or ""
                self._adopt_pair(node, mac, self._fixed.get(mac))
            elif (rule.table, rule.priority) == (Table.LABEL, Priority.UNICAST):
                destination = self._named.get(label_of(rule.match_fields) or 0)
                if destination is not None and self._home(destination) != node:
                    self.routes.hold(node, destination, READ)
                    self._read.add((node, destination))
        for mac in session.hosts.remote():
            if mac not in self._fixed:
                self._tables.adopt(node, mac)
                self._adopt_pair(node, mac, node)

    def _adopt_pair(self, node: str, mac: str, destination: str | None) -> None:
        if destination is None or (self._home(destination) == node and mac in self._fixed):
            return
        # One that waits is in use as well: whoever led before has begun it.
        pair = self._pairs.get(node, {}).get(mac) or self._open(node, mac, destination)
        if pair is not None and not pair.in_use:
            del self._waiting[node, mac]
            pair.in_use = True
            if mac in self._fixed:
                self.routes.send(node, mac, destination)
            else:
                self.routes.release(node, destination, ("pair", mac))

    def _end_reading(self) -> None:
        everybody = len(self._adopted) >= len(self._context.own_switches)
        # Routes to learned hosts have no other holder before these are placed.
        if self._read and self._tables.are_all_known and (everybody or self._clock() > self._read_until_s):
            for node, destination in self._read:
                self.routes.release(node, destination, READ)
            self._read = set()

    # -- figures

    def metrics(self) -> Iterator[Any]:
        """For Prometheus."""
        pairs = sum(map(len, self._pairs.values()))
        yield Gauge("hyroads_host_pairs", "Switches and hosts elsewhere that their hosts send to", value=pairs)
        yield Gauge("hyroads_routes_in_use", "Nodes and clients to which switches have routes", value=self.routes.count)
        help_text = "Frames for hosts that their first switch did not know"
        yield CounterMetric("hyroads_host_misses", help_text, value=self.counters["misses"])

    @property
    def pairs(self) -> Mapping[str, Mapping[str, _Pair]]:
        """By node and host."""
        return self._pairs

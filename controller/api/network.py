"""Nodes, links, domains, possible paths, estimates and slots as documents for REST (docs/reference/rest.md)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial

from hyroads.controller.control.foreign_devices import join_graph
from hyroads.controller.control.loop import LiveLoop
from hyroads.controller.control.slots import SlotClock
from hyroads.controller.core.errors import NoRouteError, PlanningError
from hyroads.controller.core.estimate.link_estimate import LinkEstimate
from hyroads.controller.core.interference import Interference
from hyroads.controller.core.link_busy import LinkBusy
from hyroads.controller.core.network import Link, Network, Node, network_graph
from hyroads.controller.core.planner import Planner, default_depth, plan_document
from hyroads.controller.core.traffic_meter import TrafficMeter
from hyroads.controller.framework import ryu_shim as shim
from hyroads.controller.runtime.event_loop import EventLoop
from hyroads.controller.settings.controller import Settings
from hyroads.rest.contract import Document, NotFoundError, TooBusyError, ValueRefusedError

Pauses = Callable[[Iterable[Link]], Iterable[Link]]
"""Gives the same links, and lets others run in between."""


def links_document(loop: LiveLoop, now_s: float, pauses: Pauses = iter) -> dict[str, Document]:
    """By link id: the capacity that rates count on, how it is known, and the airtime of its domain."""
    estimates = loop.last.result.estimates if loop.last else {}
    counted, planned, external = loop.capacities(), loop.airtime(), loop.external(now_s)
    return {
        link.id: {
            "capacity_mbps": counted[link.id] or None,
            "declared_mbps": link.capacity_mbps or None,
            "estimate": _estimate(estimates.get(link.id)),
            "airtime": planned[link.id],
            "external": external[link.id],
            "margin": margin,
        }
        for link, margin in zip(pauses(loop.declared.links), loop.state.problem.margin.tolist(), strict=True)
    }


def flow_document(loop: LiveLoop, flow: str) -> Document:
    """What the loop knows of a flow: ``demand_mbps`` caps its rate because it sends less than its share (null: it
    takes what it can get); ``decided_by`` says who sets its rates.
    """
    demand_mbps = loop.state.demands.demand_mbps(flow)
    return {
        "demand_mbps": demand_mbps if math.isfinite(demand_mbps) else None,
        "decided_by": loop.fixed[flow].by if flow in loop.fixed else loop.options.mode,
        **(loop.override.document(flow) or {}),
    }


def interfaces_document(loop: LiveLoop, now_s: float) -> list[Document]:
    """Busy media as interfaces hear them: what is not explained by our own traffic is external."""
    external = loop.state.external
    state, stale = external.state, set(external.stale(now_s))
    if state is None:
        return []
    figures = zip(state.given.tolist(), state.raw.tolist(), state.time_s.tolist(), strict=True)
    return [
        {
            "node": observer[0],
            "technology": observer[1],
            "external": given,
            "external_raw": raw,
            "age_s": now_s - time_s if math.isfinite(time_s) else None,
            "quality": "stale" if observer in stale else "good",
        }
        for observer, (given, raw, time_s) in zip(external.sensing.observers, figures, strict=True)
    ]


def slices_document(loop: LiveLoop) -> list[Document]:
    """What slices take by the rates in force and as measured, in the domain of each technology where it is most, their
    shares, and whether somebody else wants what they would take.
    """
    shares, held, measured = loop.options.shares, loop.held_slices, loop.measured_airtime_of_slices()
    return [
        {
            "slice": name,
            "technology": technology,
            "airtime": airtime,
            "measured_airtime": measured[name, technology],
            "share": shares.get(name, {}).get(technology),
            "held": (name, technology) in held,
        }
        for (name, technology), airtime in loop.airtime_of_slices().items()
    ]


def health_document(loop: LiveLoop, slots: SlotClock, settings: Settings) -> Document:
    """Figures of the slots, and how good the estimates are that they work with."""
    estimates = loop.last.result.estimates.qualities() if loop.last else {}
    allocation = loop.state.allocation
    return {
        "mode": settings.mode,
        "capacities": settings.capacities,
        "slot_ms": settings.slot_ms,
        **asdict(slots.figures()),
        "max_airtime": allocation.max_airtime if allocation else None,
        "estimates": {quality.value: count for quality, count in estimates.items()},
        "silent_interfaces": [" ".join(interface) for interface in (loop.last.result.stale if loop.last else ())],
        "without_busy_time": [" ".join(interface) for interface in sorted(loop.override.without_busy_time())],
    }


def _estimate(estimate: LinkEstimate | None) -> Document | None:
    if estimate is None:
        return None
    return {
        "capacity_mbps": estimate.capacity_mbps,
        "source": estimate.source.value if estimate.source else None,
        "quality": estimate.quality.value,
        "age_s": estimate.age_s,
        "confidence": estimate.confidence,
        "relative_error": estimate.relative_error if math.isfinite(estimate.relative_error) else None,
        "reason": estimate.reason or None,
    }


# A tree of so many branches takes the planner about a second.
MAX_BRANCHES = 20_000
MAX_PLANNING = 2


@dataclass(eq=False)
class NetworkDocuments:
    """All calls come from green threads; what takes long runs in a thread."""

    event_loop: EventLoop
    network_name: str
    traffic: TrafficMeter | None = field(default=None, kw_only=True)
    """What links carried; None: unknown."""

    def __post_init__(self) -> None:
        self._busy = LinkBusy(self.event_loop.context.network.links)
        self._domains: tuple[Interference, Sequence[tuple[str, tuple[str, ...]]]] | None = None
        self._planner: Planner | None = None
        self._planning = 0
        # Event numbers of a later controller are higher.
        self._started = self.event_loop.events.last

    def topology_version(self) -> str:
        """The version of the topology, with what may change beside it: capacities that rates count on, connected
        switches, and what agents have confirmed. Unlike that of any other run of the controller.
        """
        event_loop = self.event_loop
        capacities = tuple(link.capacity_mbps for link in event_loop.live.loop.state.network.links)
        agents = [(node, event_loop.agents.get(node)) for node in self._declared.nodes]
        revisions = tuple((node, link.acked and link.acked.revision) for node, link in agents if link)
        foreign = tuple((link["id"], link["capacity_mbps"]) for link in self.foreign_topology()[1])
        others = hash((capacities, revisions, frozenset(event_loop.switches), foreign))
        return f"{self._started}-{event_loop.state.version}-{others & 0xFFFF_FFFF:08x}"

    @property
    def _declared(self) -> Network:
        return self.event_loop.declared

    def topology(self) -> Document:
        """Nodes and links, with neighbours of other owners."""
        network, (nodes, links) = self._declared, self.foreign_topology()
        return {
            "name": network.name or self.network_name,
            "version": self.event_loop.state.version,
            "nodes": self.nodes() + nodes,
            "links": self.links() + links,
            "technologies": list(network.technologies),
        }

    def foreign_topology(self) -> tuple[list[Document], list[Document]]:
        """Nodes of other owners that access points hear, and their links."""
        return [], []

    def nodes(self) -> list[Document]:
        """All nodes, in the order of the network file."""
        return [self._node(node) for node in shim.cooperatively(self._declared.nodes.values())]

    def node(self, node: str) -> Document:
        """One node; NotFoundError."""
        found = self._declared.nodes.get(node)
        if found is None:
            raise NotFoundError(f"no node {node[:64]!r}")
        return self._node(found)

    def links(self) -> list[Document]:
        """All links, in the order of the network file."""
        plan = self.event_loop.plan
        planned = plan.planned_mbps() if plan else {}
        known = links_document(self.event_loop.live.loop, self.event_loop.clock(), shim.cooperatively)
        down = self.event_loop.links.down
        links = zip(shim.cooperatively(self._declared.links), self._busy_percent(), strict=True)
        return [{**_link(link, planned, down), **known[link.id], "busy_percent": busy} for link, busy in links]

    def _busy_percent(self) -> list[float | None]:
        """Measured busy share of the medium of each link in percent, in the order of the network's links; None if it is
        not measured.
        """
        if self.traffic is None:
            return [None] * len(self._declared.links)
        state = self.event_loop.live.loop.state
        now = self.traffic.snapshot(self.event_loop.clock())
        found = self._busy.columns(now, state.network.interference, state.problem.capacity_mbps.tolist())
        return [None if math.isnan(share) else 100 * share for share in found.busy.tolist()]

    def link(self, link: str) -> Document:
        """One link; NotFoundError."""
        number = self._declared.link_index.get(link)
        if number is None:
            raise NotFoundError(f"no link {link[:64]!r}")
        return self.links()[number]

    def netjson(self) -> Document:
        """A NetJSON NetworkGraph with neighbours of other owners; links that are down are left out."""
        graph = network_graph(self._declared.with_capacities(dict.fromkeys(self.event_loop.links.down, 0.0)))
        join_graph(graph, *self.foreign_topology())
        return graph

    def _node(self, node: Node) -> Document:
        event_loop, addressing = self.event_loop, self.event_loop.context.addressing
        switch: Document | None = None
        if addressing.has_switch(node.id):
            names = {k: addressing.interface_name[node.id, k] for k in addressing.technologies(node.id)}
            connected = node.id in event_loop.switches
            switch = {"dpid": addressing.dpid[node.id], "connected": connected, "ports": names}
        agent: Document | None = None
        if addressing.has_agent(node.id):
            link = event_loop.agents.get(node.id)
            agent = {"up": link is not None, "revision": link.acked.revision if link and link.acked else None}
        return {
            "id": node.id,
            "role": node.role.value,
            "position_m": None if node.position_m is None else list(node.position_m),
            "switch": switch,
            "agent": agent,
            "host": {"mac": addressing.host_mac[node.id], "ip": addressing.host_ip[node.id]},
        }

    def link_measurements(self, link: str) -> Document:
        """One link, as its receiver hears it, and the paths of flows over it; NotFoundError."""
        known, reports = self.link(link), self.event_loop.reports.document(self.event_loop.plan)
        heard = next((one for one in reports["links"] if one["id"] == link), None)
        paths = [
            {"flow": flow["id"], **{key: path[key] for key in ("id", "rate_mbps", "sent_mbps", "received_mbps")}}
            for flow in reports["flows"]
            for path in flow["paths"]
            if link in path["links"]
        ]
        sent = [path["sent_mbps"] for path in paths if path["sent_mbps"] is not None]
        shown = ("id", "technology", "up", "reason", "capacity_mbps", "estimate", "planned_mbps", "airtime", "external")
        return {
            **{key: known[key] for key in shown},
            "time_s": reports["time_s"],
            "last_heard_ms": heard["last_heard_ms"] if heard is not None else None,
            "sent_mbps": sum(sent) if sent else None,
            "paths": paths,
        }

    def domains(self) -> list[Document]:
        """Distinct sets of links that contend, each with a link whose domain it is."""
        distinct = self.distinct_domains()
        known = {link["id"]: link for link in self.links()}
        return [
            {
                "id": link,
                "technologies": sorted({known[other]["technology"] for other in links}),
                "links": list(links),
                **{key: known[link][key] for key in ("airtime", "external", "margin")},
            }
            for link, links in shim.cooperatively(distinct)
        ]

    def distinct_domains(self) -> Sequence[tuple[str, tuple[str, ...]]]:
        """Distinct sets of links that contend: the first link, whose domain it is, and all of them."""
        network = self._live()
        if self._domains is None or self._domains[0] is not network.interference:
            # Which links contend with which is a long question in a large network.
            self._domains = (network.interference, shim.in_thread(_domains, network))
        return self._domains[1]

    def _live(self) -> Network:
        """The network as it can be planned with now; the declared one while nothing is planned."""
        try:
            return self.event_loop.live.network.network
        except PlanningError:
            return self._declared

    def paths(self, source: str, target: str, *, shortest: int, depth: int | None, arms: int) -> Document:
        """What the planner finds between two nodes, on the live network without other flows. NotFoundError,
        ValueRefusedError, TooBusyError.
        """
        network = self._live()
        for place, node in (("from", source), ("to", target)):
            if node not in network.nodes:
                raise NotFoundError(f"{place}: no node {node[:64]!r}")
        if source == target:
            raise ValueRefusedError("to", "expected another node than in from")
        depth = depth or default_depth(network)
        if shortest**depth > MAX_BRANCHES:
            raise ValueRefusedError("depth", f"expected shortest ** depth of at most {MAX_BRANCHES}")
        if self._planning >= MAX_PLANNING:
            raise TooBusyError("others are planning already")
        if self._planner is None or self._planner.network is not network:
            self._planner = Planner(network)
        margin = self.event_loop.live.loop.options.margin
        self._planning += 1
        try:
            how = partial(self._planner.plan, shortest=shortest, depth=depth, arms=arms, margin=margin)
            plan = shim.in_thread(how, source, target)
        except NoRouteError as error:
            raise NotFoundError(str(error)) from error
        finally:
            self._planning -= 1
        return {"from": source, "to": target, "margin": margin, **plan_document(network, plan)}


def _link(link: Link, planned_mbps: Mapping[str, float], down: Mapping[str, str]) -> Document:
    """What the network file, the plan and ``down`` (why a link is down, by id) say of a link."""
    return {
        "id": link.id,
        "from": link.source,
        "to": link.target,
        "technology": link.technology,
        "delay_ms": link.delay_ms,
        "loss": link.loss,
        "up": link.id not in down,
        "reason": down.get(link.id),
        "planned_mbps": planned_mbps.get(link.id, 0.0),
    }


def _domains(network: Network) -> list[tuple[str, tuple[str, ...]]]:
    """The first link of every distinct domain, and the links in it."""
    found: dict[bytes, tuple[str, tuple[str, ...]]] = {}
    for number, link in enumerate(network.links):
        domain = network.interference.domain(number)
        key = domain.tobytes()
        if key not in found:
            found[key] = (link.id, tuple(network.links[other].id for other in domain.tolist()))
    return list(found.values())

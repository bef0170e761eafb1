"""What the controller knows, as one immutable value, and its transitions. Pure.

Three things may be known of a switch or an agent: it is here, it is gone, or nothing yet (just after a start). "Nothing
yet" counts as here for planning, because it ran before the controller was restarted; nothing is deployed
until all agents are known or the grace time is over (:func:`is_settled`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum
from functools import cached_property

from hyroads.controller.agents.configs import EgressFlow
from hyroads.controller.core.addressing import FIRST_FLOW, LAST_FLOW, Addressing, Labels
from hyroads.controller.core.checking import interface_mac
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.frame_sizes import LINK_MTU
from hyroads.controller.core.interface_addresses import NOTHING_REPORTED, Interface, InterfaceAddresses
from hyroads.controller.core.interference import Interference
from hyroads.controller.core.mappings import differing, in_order_of, patched
from hyroads.controller.core.network import WIRED, FlowSpec, Link, Network, Place, Role
from hyroads.controller.core.port_readings import PortReading, Readings, least_mtu, merged
from hyroads.controller.core.region_view import RegionView, region_view
from hyroads.controller.core.reverse_trees import ALL_ROUTES_NODES

from .handover import Constrained, Constraints, Key

# A freshly started agent sends its first hello frames a moment after it dialled in; until then neighbours that
# say "silent" only tell what was true before.
FRESH_AGENT_S = 1.0


class Presence(Enum):
    """What is known of a switch or an agent."""

    UNKNOWN = "unknown"
    UP = "up"
    DOWN = "down"


class Origin(StrEnum):
    """Who declared a flow."""

    FILE = "file"
    API = "api"
    TEST = "test"
    """The controller itself: gone with it."""
    MPTCP = "mptcp"
    """The controller itself, for a subflow of an MPTCP connection, which is saved."""
    REGION = "region"
    """Another region's controller: the rest of a flow that it sends here."""


SAVED_ORIGINS = (Origin.FILE, Origin.API, Origin.MPTCP)
"""Flows of others end with the controller."""


def _allowed(
    network: Network, addressing: Addressing, named: Iterable[str] | None, where: str, shut: frozenset[str]
) -> frozenset[str]:
    """Nodes at whose access port something may be that is refused elsewhere: those that are named, else gateways;
    none of those whose access port is under 802.1X.
    """
    gateways = (node.id for node in network.nodes.values() if node.role is Role.GATEWAY and node.id not in shut)
    nodes = frozenset(gateways if named is None else named)
    unknown = sorted(nodes - addressing.access_port.keys())
    if unknown:
        raise ConfigError("settings", where, f"{unknown[0][:64]!r} is no node with an access port")
    if nodes & shut:
        raise ConfigError("settings", where, f"{min(nodes & shut)[:64]!r} is in access.dot1x: none may be there")
    return nodes


def _closed(addressing: Addressing, places: Iterable[Place], *, guards: bool) -> frozenset[str]:
    """Nodes whose access port is under 802.1X; ConfigError for a place that is none of the network."""
    known = {Place(node, WIRED) for node in addressing.access_port}
    known.update(Place(node, technology) for node, technology in addressing.interface_name)
    places = list(places)
    for place in places:
        if place not in known or not addressing.has_switch(place.node):
            what = f"{str(place)[:80]!r} is no access port (NODE) or medium (NODE/TECHNOLOGY) of a switch"
            raise ConfigError("settings", "access.dot1x", what)
    if places and not guards:
        raise ConfigError("settings", "access.dot1x", "needs guard: true, which lets in known hosts alone")
    return frozenset(place.node for place in places if place.technology == WIRED)


@dataclass(frozen=True)
class TopologyContext:
    """What does not change while the controller runs: the network file and what is derived from it."""

    network: Network
    addressing: Addressing
    labels: Labels
    document: str = "network"
    guarded: frozenset[str] = frozenset()
    """Nodes whose access port takes only frames of hosts that the controller has learned."""
    dhcp: frozenset[str] = frozenset()
    """Nodes at whose access port DHCP servers may be."""
    routers: frozenset[str] = frozenset()
    """Nodes at whose access port IPv6 routers may be."""
    closed: Mapping[Place, frozenset[str] | None] = field(default_factory=dict)
    """Places under 802.1X: only who is authenticated is let in, and of users these alone (None: any)."""
    on_demand: bool = False
    """Switches have rules for the nodes and hosts that their own hosts talk to, and not for all."""
    link_mtu: int = LINK_MTU
    """The largest payload of links in bytes, whatever ports could carry."""
    view: RegionView | None = None
    """What the controller of a region sees; None: it runs the whole network."""
    seals_links: bool = False
    """Agents seal what switches send to each other behind labels, and none of it counts without a seal."""

    @classmethod
    def of(
        cls,
        network: Network,
        document: str = "network",
        *,
        guards: bool = False,
        dhcp: Iterable[str] | None = None,
        routers: Iterable[str] | None = None,
        closed: Mapping[Place, frozenset[str] | None] | None = None,
        all_routes_nodes: int = ALL_ROUTES_NODES,
        region: str | None = None,
        label_secret: bytes = b"",
        link_mtu: int = LINK_MTU,
        seals_links: bool = False,
    ) -> TopologyContext:
        """Derive addresses and labels; ``guards`` access ports or leaves them open. DHCP servers and
        IPv6 routers may be at gateways, or at the nodes that are named; neither is at ``closed`` places. With more than
        ``all_routes_nodes`` switches, these have rules on demand. The controller of a ``region`` commands only the
        nodes of that. Labels are hashed with ``label_secret``. Links carry ``link_mtu`` bytes of payload at most.
        With ``seals_links`` agents seal what switches send to each other.
        """
        addressing = Addressing.of(network, document)
        if seals_links:
            _check_agents(addressing, document)
        guarded = frozenset(addressing.access_port) if guards else frozenset()
        shut = _closed(addressing, closed or {}, guards=guards)
        servers = _allowed(network, addressing, dhcp, "access.dhcp_servers", shut)
        routing = _allowed(network, addressing, routers, "access.routers", shut)
        labels, on_demand = Labels.of(network, addressing, label_secret), len(addressing.dpid) > all_routes_nodes
        view = None
        if region is not None:
            view, network = region_view(network, region, (FIRST_FLOW, LAST_FLOW), document)
            _check_attached(view, addressing, document)
        places = closed or {}
        return cls(
            network,
            addressing,
            labels,
            document,
            guarded,
            servers,
            routing,
            places,
            on_demand,
            link_mtu,
            view,
            seals_links,
        )

    @cached_property
    def own(self) -> frozenset[str]:
        """The nodes that this controller commands: all, or those of its region."""
        return frozenset(self.network.nodes) if self.view is None else self.view.own

    @cached_property
    def closed_ports(self) -> frozenset[str]:
        """Nodes whose access port is under 802.1X."""
        return frozenset(place.node for place in self.closed if place.technology == WIRED)

    @cached_property
    def own_switches(self) -> tuple[str, ...]:
        """The nodes whose switches this controller commands, in the order of the file."""
        return tuple(node for node in self.addressing.dpid if node in self.own)

    @cached_property
    def own_agents(self) -> frozenset[str]:
        """The nodes whose agents this controller commands."""
        return self.addressing.agents & self.own

    @cached_property
    def numbers(self) -> tuple[int, int]:
        """The first and the last flow number that this controller gives."""
        return (FIRST_FLOW, LAST_FLOW) if self.view is None else self.view.ranges[self.view.name]

    @cached_property
    def addresses(self) -> InterfaceAddresses:
        """Addresses of interfaces before any box has reported one."""
        return InterfaceAddresses.of(self.network, self.addressing)

    @cached_property
    def links_at(self) -> Mapping[str, tuple[str, ...]]:
        """By node: the ids of links that begin or end there."""
        found: dict[str, list[str]] = {}
        for link in self.network.links:
            for node in (link.source, link.target):
                found.setdefault(node, []).append(link.id)
        return {node: tuple(links) for node, links in found.items()}

    def is_between_switches(self, link: Link) -> bool:
        """Whether frames on a link have labels in front."""
        return self.addressing.has_switch(link.source) and self.addressing.has_switch(link.target)

    @cached_property
    def link_ports(self) -> Mapping[str, tuple[str, ...]]:
        """By node: its ports at links between switches, whose frames have labels in front."""
        addressing, found = self.addressing, dict[str, dict[str, None]]()
        for link in self.network.links:
            if self.is_between_switches(link):
                for node in (link.source, link.target):
                    found.setdefault(node, {})[addressing.interface_name[node, link.technology]] = None
        return {node: tuple(ports) for node, ports in found.items()}

    @property
    def node_of_dpid(self) -> Mapping[int, str]:
        """Datapath id -> node, of those that this controller commands."""
        return {self.addressing.dpid[node]: node for node in self.own_switches}


def _check_agents(addressing: Addressing, document: str) -> None:
    """Where links are sealed, an agent at each switch does it."""
    for node in addressing.dpid:
        if not addressing.has_agent(node):
            raise ConfigError(document, f"nodes.{node}.agent", "expected true, because of seal_frames: all")


def _check_attached(view: RegionView, addressing: Addressing, document: str) -> None:
    """No client of ours hangs on a switch of others, nor the other way round."""
    for client in addressing.attachments:
        at = addressing.attachment(client)
        if at is not None and view.region_of[at.node] != view.region_of[client]:
            problem = f"expected {client} in the region of {at.node}, on whose switch it hangs"
            raise ConfigError(document, f"regions.{view.region_of[client]}", problem)


@dataclass(frozen=True, slots=True)
class DeclaredFlow:
    """A flow and who declared it."""

    spec: FlowSpec
    origin: Origin


@dataclass(frozen=True)
class State:
    """Everything that may change. ``version`` grows with every change."""

    flows: Mapping[str, DeclaredFlow]
    switches: Mapping[str, Presence]
    ports: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Names of the ports of switches that are up."""
    agents: Mapping[str, Presence] = field(default_factory=dict)
    agent_since_s: Mapping[str, float] = field(default_factory=dict)
    """When an agent that had no configuration dialled in; absent for one that ran before."""
    silent: frozenset[str] = frozenset()
    """Links on which no hello frames arrive although the sender's agent is up."""
    held: frozenset[str] = frozenset()
    """Links that are up but failed too often lately (``core.estimate.flap_damping``)."""
    capacity_mbps: tuple[float, ...] | None = None
    """Measured capacities that plans count on, in the order of the links; None: the network file's."""
    interference: Interference | None = None
    """What was inferred from who hears whom; None: the network file's rule."""
    constrained: Constraints = field(default_factory=dict)
    """Clients whose flows do not use all the places they could: they were handed over, or are being."""
    places: Mapping[str, Place | None] = field(default_factory=dict)
    """Plain clients that are not where the network file has them; None: nowhere."""
    arriving: Mapping[str, Mapping[str, EgressFlow]] = field(default_factory=dict)
    """By own node: what its agent does at the end of segments of other regions, by their names here."""
    away: frozenset[str] = frozenset()
    """Nodes of other regions at their borders whose agents can't be used, as these say."""
    readings: Readings = field(default_factory=dict)
    """What agents read from ports at links."""
    reported: Mapping[Interface, str] = field(default_factory=dict)
    """The addresses of interfaces that boxes reported last."""
    version: int = 0

    def link_mtu(self, context: TopologyContext) -> int:
        """The payload in bytes that every link carries: of the smallest port, or less by the settings."""
        least = least_mtu(self.readings)
        return context.link_mtu if least is None else min(context.link_mtu, least)

    def link_fault(self, context: TopologyContext, link: Link) -> str | None:
        """Why a link can't carry anything now; None if it can, as far as is known."""
        down = self.link_down(context, link)
        if down is None and self.capacity_mbps is not None:
            return None if self.capacity_mbps[context.network.link_index[link.id]] else "capacity unknown"
        return down

    def link_down(self, context: TopologyContext, link: Link) -> str | None:
        """Why a link is down or not to be used; None if it is up, whether or not its capacity is known."""
        if link.id in self.silent:
            return "silent"
        if link.id in self.held:
            return "flapping"
        for node in (link.source, link.target):
            if self.switches.get(node) is Presence.DOWN:
                return "switch lost"
            name = context.addressing.interface_name[node, link.technology]
            if node in self.ports and name not in self.ports[node]:
                return "port down"
            if context.seals_links and self.agents.get(node) is Presence.DOWN and context.is_between_switches(link):
                return "agent lost"
        return None

    def agent_fault(self, context: TopologyContext, node: str) -> str | None:
        """Why a node's agent can't be used now; None if it can."""
        if not context.addressing.has_agent(node):
            return f"{node} has no agent"
        if self.agents.get(node) is Presence.DOWN or node in self.away:
            return f"the agent at {node} is down"
        if self.switches.get(node) is Presence.DOWN:
            return f"the switch of {node} is lost"
        wanted = (context.addressing.agent_access_port[node], context.addressing.agent_network_port[node])
        missing = [name for name in wanted if node in self.ports and name not in self.ports[node]]
        return f"port {missing[0]} of {node} is missing" if missing else None


def initial(
    context: TopologyContext,
    flows: Iterable[DeclaredFlow] = (),
    constrained: Mapping[Key, Constrained] | None = None,
    places: Mapping[str, Place | None] | None = None,
) -> State:
    """Nothing known yet but what is declared, and where clients and their flows were."""
    return State(
        constrained=dict(constrained or {}),
        places=dict(places or {}),
        flows={flow.spec.id: flow for flow in flows},
        switches=dict.fromkeys(context.own_switches, Presence.UNKNOWN),
        agents={node: Presence.UNKNOWN for node in context.network.nodes if node in context.own_agents},
    )


def is_settled(state: State) -> bool:
    """Whether every agent has shown up or is known to be gone. Switches dial again later and are not waited for."""
    return Presence.UNKNOWN not in state.agents.values()


def agents_grace_over(state: State) -> State:
    """Agents that have not shown up by now are gone."""
    return _changed(state, agents=_settled(state.agents))


def switch_grace_over(state: State) -> State:
    """Switches that have not shown up by now are gone."""
    return _changed(state, switches=_settled(state.switches))


def switch_up(state: State, node: str, ports: Iterable[str]) -> State:
    """A switch connected, or its ports changed."""
    return _changed(
        state, switches={**state.switches, node: Presence.UP}, ports={**state.ports, node: frozenset(ports)}
    )


def switch_down(state: State, node: str) -> State:
    """A switch's connection is lost and it did not come back in time."""
    ports = {name: value for name, value in state.ports.items() if name != node}
    return _changed(state, switches={**state.switches, node: Presence.DOWN}, ports=ports)


def agent_up(state: State, context: TopologyContext, node: str, *, fresh: bool, now_s: float) -> State:
    """An agent dialled in; ``fresh`` if it has no configuration, so that its hello frames start only now."""
    since = {name: value for name, value in state.agent_since_s.items() if name != node}
    silent = state.silent
    if fresh:
        since[node] = now_s
        silent = _without_sender(silent, context, node)
    return _changed(state, agents={**state.agents, node: Presence.UP}, agent_since_s=since, silent=silent)


def agent_down(state: State, context: TopologyContext, node: str) -> State:
    """An agent is gone: its neighbours will not hear its hello frames any more, which says nothing of the links."""
    silent = _without_sender(state.silent, context, node)
    return _changed(state, agents={**state.agents, node: Presence.DOWN}, silent=silent)


def _without_sender(silent: frozenset[str], context: TopologyContext, node: str) -> frozenset[str]:
    """Links, without those by which a node sends."""
    links, index = context.network.links, context.network.link_index
    return frozenset(link for link in silent if links[index[link]].source != node)


def links_heard(state: State, context: TopologyContext, node: str, up: Mapping[str, bool], now_s: float) -> State:
    """What the agent at ``node`` says of its inbound links; links that aren't its own are ignored."""
    known = state.silent
    news = {name: alive for name, alive in up.items() if alive == (name in known)}
    if not news:
        return state
    silent = set(known)
    for name, alive in news.items():
        index = context.network.link_index.get(name)
        if index is None or context.network.links[index].target != node:
            continue
        if alive:
            silent.discard(name)
        elif _sender_speaks(state, context.network.links[index].source, now_s):
            silent.add(name)
    return _changed(state, silent=frozenset(silent))


def ports_read(state: State, context: TopologyContext, node: str, ports: Collection[PortReading]) -> State:
    """What the agent at ``node`` read from ports; those that are not at links are ignored."""
    read = _changed(state, readings=merged(state.readings, node, context.link_ports.get(node, ()), ports))
    return addresses_reported(read, context, node, {port.name: port.mac for port in ports})


def addresses_reported(state: State, context: TopologyContext, node: str, ports: Mapping[str, str]) -> State:
    """The box ``node`` reports the addresses of ports, by name. Other ports, and addresses that no
    interface can have, are ignored. An interface that is missing keeps the address reported last.
    """
    addressing = context.addressing
    names = {addressing.interface_name[node, k]: (node, k) for k in addressing.technologies(node)}
    known = ((names[name], interface_mac(mac)) for name, mac in ports.items() if name in names)
    found = {interface: mac for interface, mac in known if mac not in {None, state.reported.get(interface)}}
    return with_reported(state, {**state.reported, **found}) if found else state


def with_reported(state: State, reported: Mapping[Interface, str]) -> State:
    """All addresses of interfaces that boxes have reported."""
    return _changed(state, reported=reported)


def restored(
    state: State,
    flows: Iterable[DeclaredFlow],
    constrained: Mapping[Key, Constrained],
    places: Mapping[str, Place | None],
    reported: Mapping[Interface, str] = NOTHING_REPORTED,
) -> State:
    """Flows and places of clients are those that were saved; what is known of devices, and of other regions, stays.
    ``reported`` are saved addresses of interfaces; one that a box has reported to this controller counts instead.
    """
    declared = {name: flow for name, flow in state.flows.items() if flow.origin is Origin.REGION}
    declared |= {flow.spec.id: flow for flow in flows}
    changed = differing(state.flows, declared)
    other = {flow: declared[flow] for flow in changed if flow in declared}
    followed = in_order_of(declared, state.flows, changed, other)
    return _changed(
        state,
        flows=followed,
        constrained=state.constrained if state.constrained == constrained else dict(constrained),
        places=state.places if state.places == places else dict(places),
        reported={**reported, **state.reported},
    )


def links_held(state: State, held: Iterable[str]) -> State:
    """Which links are up but not to be used because they flap."""
    return _changed(state, held=frozenset(held))


def measured(state: State, capacity_mbps: tuple[float, ...] | None, interference: Interference | None) -> State:
    """Capacities and interference that plans count on from now on."""
    return _changed(state, capacity_mbps=capacity_mbps, interference=interference)


def client_placed(state: State, context: TopologyContext, client: str, place: Place) -> State:
    """A plain client is at one of its possible attachments; any other place is ignored."""
    possible = [Place(a.node, a.technology) for a in context.addressing.attachments.get(client, ())]
    if place not in possible:
        return state
    places = {name: known for name, known in state.places.items() if name != client}
    return _changed(state, places=places if place == possible[0] else {**places, client: place})


def flow_declared(state: State, flow: DeclaredFlow) -> State:
    """A flow was declared (again)."""
    return _changed(state, flows=patched(state.flows, {flow.spec.id: flow}))


def flow_removed(state: State, flow: str) -> State:
    """A flow is no longer wanted."""
    return _changed(state, flows=patched(state.flows, {}, [flow]))


def region_told(
    state: State,
    *,
    sender: str,
    flows: Iterable[DeclaredFlow],
    arriving: Mapping[str, Mapping[str, EgressFlow]],
    silent: Iterable[str],
    links: Iterable[str],
    away: Iterable[str] = (),
    border: Mapping[str, str] | None = None,
    reported: Mapping[Interface, str] = NOTHING_REPORTED,
) -> State:
    """What another region wants of this one: the rest of its flows, and the ends of their segments at own nodes. It
    says which of ``links``, that lead to it, are silent there, and at which of its nodes at the ``border`` (sender by
    link that leads here) agents are away: that nothing is heard of these says nothing of the links. ``reported`` are
    addresses of its interfaces at links to this region.
    """
    ending = f"@{sender}"
    ends = {node: {f: e for f, e in had.items() if not f.endswith(ending)} for node, had in state.arriving.items()}
    for node, entries in arriving.items():
        ends[node] = {**ends.get(node, {}), **entries}
    merged = {node: entries for node, entries in ends.items() if entries}
    wanted = {flow.spec.id: flow for flow in flows}
    declared = {
        flow: had
        for flow, had in state.flows.items()
        if had.origin is not Origin.REGION or not flow.endswith(ending) or flow in wanted
    }
    for flow, new in wanted.items():
        had = declared.get(flow)
        if had is None or (had.origin is Origin.REGION and had != new):
            declared[flow] = new
    senders = border or {}
    gone = (state.away - frozenset(senders.values())) | frozenset(away)
    heard = (state.silent - frozenset(links)) | (frozenset(silent) & frozenset(links))
    heard -= {link for link, sender in senders.items() if sender in gone}
    # Values that stay are the very objects of before: nobody looks at them again.
    values = {"flows": declared, "arriving": merged, "silent": heard, "away": gone}
    values["reported"] = {**state.reported, **reported}
    return _changed(state, **{name: value for name, value in values.items() if getattr(state, name) != value})


def constrained(state: State, changes: Mapping[Key, Constrained | None]) -> State:
    """Clients' flows are constrained to other places from now on; None: to none."""
    merged = {**state.constrained, **changes}
    return _changed(state, constrained={key: value for key, value in merged.items() if value is not None})


def _sender_speaks(state: State, node: str, now_s: float) -> bool:
    if state.agents.get(node) is Presence.DOWN or node in state.away:
        return False
    since_s = state.agent_since_s.get(node)
    return since_s is None or now_s - since_s >= FRESH_AGENT_S


def _settled(presences: Mapping[str, Presence]) -> Mapping[str, Presence]:
    if Presence.UNKNOWN not in presences.values():
        return presences
    return {name: Presence.DOWN if value is Presence.UNKNOWN else value for name, value in presences.items()}


def _changed(state: State, **values: object) -> State:
    """The state with some values replaced; the same object if none differs."""
    if all((known := getattr(state, name)) is value or known == value for name, value in values.items()):
        return state
    return replace(state, version=state.version + 1, **values)  # type: ignore[arg-type]

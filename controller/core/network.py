"""The hybrid multigraph: nodes, directed links, technologies, flows (EMPoWER, CoNEXT 2016, section 3).

Everything here is immutable data. Loading and validation live in ``netfile``, interference rules in
``interference``, algorithms in modules of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

from .private_split import PLAIN_SPLIT, PrivateSplit

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .interference import Interference


class Role(Enum):
    """What a node is in the network."""

    GATEWAY = "gateway"
    AP = "ap"
    CLIENT = "client"
    SWITCH = "switch"


class Utility(StrEnum):
    """Utility family of a flow; ``log`` is U(x) = log(1 + x) with x in Mb/s, ``alpha`` is alpha-fairness."""

    LOG = "log"
    ALPHA = "alpha"


class Policy(StrEnum):
    """How a flow is carried: over the best multipath, the single shortest path, or two networks neither of which can
    tell what is fetched, or (``latency``) over one path per technology such that the mean delay is smallest.

    ``empower`` is another name of ``throughput``: the model decides. With ``hymab`` and ``hymab+`` a bandit learns from
    measurements which of several multipaths is the best; with ``auto`` the controller chooses between model and bandit.
    """

    THROUGHPUT = "throughput"
    EMPOWER = "empower"
    HYMAB = "hymab"
    HYMAB_PLUS = "hymab+"
    AUTO = "auto"
    SINGLE = "single"
    PRIVATE = "private"
    LATENCY = "latency"

    @property
    def learns(self) -> bool:
        """Whether the flow needs all the multipaths that a bandit may try."""
        return self in (Policy.HYMAB, Policy.HYMAB_PLUS, Policy.AUTO)


class Traffic(StrEnum):
    """What a flow consists of, as far as its domains' margin goes: TCP needs airtime for what comes back. ``PROBE``
    are the controller's own (pair tests): nobody's frames are sent that way.
    """

    ANY = "any"
    TCP = "tcp"
    PROBE = "probe"


class Contention(StrEnum):
    """What contention for a shared medium costs, in the emulation: nothing, or the collisions of the CSMA/CA of a
    standard (docs/reference/emulation.md). No algorithm of the controller knows: it sees busy media."""

    IDEAL = "ideal"
    CSMA_802_11 = "csma-802.11"
    CSMA_1901 = "csma-1901"


class ClientMode(StrEnum):
    """What the interfaces of a client are used for, and so where its radios are best placed (``core.placement``)."""

    FULL_SPEED = "full-speed"
    COST_EFFICIENT = "cost-efficient"
    HIGH_ROBUSTNESS = "high-robustness"


class RadioMode(StrEnum):
    """How 802.11 stations of one technology find each other: through access points, or each by itself (IBSS)."""

    CELL = "cell"
    IBSS = "ibss"


@dataclass(frozen=True, slots=True)
class RadioUse:
    """How a technology uses 802.11 radios, in an emulation that has some: the channel by its number, and the mode."""

    channel: int
    mode: RadioMode


WAYPOINT_PORT = 6656
"""TCP and UDP port of a waypoint, unless another is named."""


@dataclass(frozen=True, slots=True)
class WaypointAddress:
    """Where multi-homed clients reach the waypoint of a gateway; ``address`` None: at the node's own."""

    address: str | None = None
    port: int = WAYPOINT_PORT
    isolated: bool = False
    """Clients reach public addresses alone, and no network that the gateway is in."""


@dataclass(frozen=True, slots=True)
class Node:
    """A device. ``agent`` says whether it runs ``hyroads-edge`` (see ``netfile`` for the default by role).

    ``dpid``, ``mac``, ``ip``, ``ports`` (technology -> interface name) and ``addresses`` (technology -> address of the
    interface, until the box reports another) override what ``addressing`` derives, and ``attached_to`` the node on
    whose switch a plain client hangs. ``waypoint``: the gateway serves multi-homed clients.
    """

    id: str
    role: Role
    position_m: tuple[float, float] | None = None
    agent: bool = False
    dpid: int | None = None
    mac: str | None = None
    ip: str | None = None
    ports: Mapping[str, str] = field(default_factory=dict, hash=False)
    attached_to: str | None = None
    waypoint: WaypointAddress | None = None
    addresses: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def is_plain_client(self) -> bool:
        """True for a client without an agent: it has no switch either and hangs on the switch of an AP."""
        return self.role is Role.CLIENT and not self.agent


@dataclass(frozen=True, slots=True)
class Link:
    """A directed link ``source -> target`` on one technology; capacity in Mb/s at L2 payload."""

    id: str
    source: str
    target: str
    technology: str
    capacity_mbps: float
    delay_ms: float = 0.0
    loss: float = 0.0


PRODUCTION = "production"
"""The slice of whatever names none."""


@dataclass(frozen=True, slots=True)
class FlowSpec:
    """A flow as declared: an aggregate from ``source`` to ``target``.

    ``paths`` fixes the multipath (tuples of link ids); empty means that the planner chooses. ``alpha`` counts only
    for the utility ``alpha``. ``match`` maps OpenFlow header fields to values, all prerequisites included; empty
    means all traffic from the hosts of ``source`` to those of ``target``. ``traffic`` says what it is made of,
    ``slice`` whose share of airtime it counts against. Flows that name the same ``group`` (the subflows of one
    connection, in one direction) are routed apart and have one utility, that of their total rate. ``split`` counts
    only for the policy ``private``.
    """

    id: str
    source: str
    target: str
    utility: Utility = Utility.LOG
    weight: float = 1.0
    paths: tuple[tuple[str, ...], ...] = ()
    alpha: float = 1.0
    policy: Policy = Policy.THROUGHPUT
    match: Mapping[str, int | str] = field(default_factory=dict, hash=False)
    traffic: Traffic = Traffic.ANY
    slice: str = PRODUCTION
    group: str | None = None
    split: PrivateSplit = PLAIN_SPLIT

    @property
    def is_tcp(self) -> bool:
        """Whether it is declared to be TCP, or its match says so."""
        return self.traffic is Traffic.TCP or self.match.get("ip_proto") == _IP_PROTO_TCP


_IP_PROTO_TCP = 6


@dataclass(frozen=True, slots=True, eq=False)
class Incidence:
    """Which links are where, in small integers: nodes and technologies by position, links by index.

    ``source``, ``target`` and ``technology`` are of each link, ``egress`` and ``ingress`` the links of each node.
    """

    node_index: Mapping[str, int]
    source: list[int]
    target: list[int]
    technology: list[int]
    egress: list[list[int]]
    ingress: list[list[int]]


@dataclass(frozen=True)
class Network:
    """The multigraph G(V, E_1..E_K) with its interference domains.

    Links keep the order of declaration; algorithms address them by index into ``links``. ``margin`` is the share
    delta of airtime that the file asks to keep free, None if it doesn't say. ``unshared`` names the technologies
    whose links don't share a medium. ``unmeasured`` names the links of which the file does not tell the capacity (it is
    0 until somebody measures it); ``discovered`` says that the links are not declared at all: they are all that there
    could be. ``contention`` has the technologies that are not ideal, ``radios`` those that an emulation can run on
    802.11 radios, ``metered`` those whose use costs money by volume. ``regions``
    says which nodes each region has, all of them if there are any. ``hosts`` are bound to places, by the MAC
    address of their interface. ``mtu`` is that of emulated ports in bytes, by technology, where the file says it.
    """

    nodes: Mapping[str, Node]
    links: tuple[Link, ...]
    interference: Interference
    flows: tuple[FlowSpec, ...] = ()
    name: str = ""
    margin: float | None = None
    unshared: frozenset[str] = frozenset()
    unmeasured: frozenset[str] = frozenset()
    discovered: bool = False
    contention: Mapping[str, Contention] = field(default_factory=dict)
    radios: Mapping[str, RadioUse] = field(default_factory=dict)
    metered: frozenset[str] = frozenset()
    regions: Mapping[str, frozenset[str]] = field(default_factory=dict)
    hosts: Mapping[str, Place] = field(default_factory=dict)
    mtu: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def technologies(self) -> tuple[str, ...]:
        """Technologies in order of first appearance."""
        return tuple(dict.fromkeys(link.technology for link in self.links))

    @cached_property
    def capacities(self) -> NDArray[np.float64]:
        """Capacities of the links, float64[L] in Mb/s, read-only; 0 means that the link does not exist."""
        # Who only asks a controller for something has no numpy.
        from numpy import array

        return _read_only(array([link.capacity_mbps for link in self.links], dtype=float))

    @cached_property
    def link_index(self) -> Mapping[str, int]:
        """Link id -> index into ``links``."""
        return {link.id: i for i, link in enumerate(self.links)}

    @cached_property
    def flow_of(self) -> Mapping[str, FlowSpec]:
        """The flows by their ids."""
        return {flow.id: flow for flow in self.flows}

    @cached_property
    def link_of(self) -> Mapping[str, Link]:
        """The links by their ids."""
        return {link.id: link for link in self.links}

    @cached_property
    def link_ids(self) -> tuple[str, ...]:
        """The ids of the links, in their order."""
        return tuple(self.link_index)

    @cached_property
    def technologies_of(self) -> Mapping[str, tuple[str, ...]]:
        """Node id -> technologies of its links, in order of first appearance in the network."""
        owned: dict[str, set[str]] = {node: set() for node in self.nodes}
        for link in self.links:
            owned[link.source].add(link.technology)
            owned[link.target].add(link.technology)
        return {node: tuple(k for k in self.technologies if k in mine) for node, mine in owned.items()}

    @cached_property
    def incidence(self) -> Incidence:
        """Ends and technologies of the links as numbers, and the links of each node."""
        node_index = {name: number for number, name in enumerate(self.nodes)}
        technology_index = {name: number for number, name in enumerate(self.technologies)}
        source = [node_index[link.source] for link in self.links]
        target = [node_index[link.target] for link in self.links]
        egress: list[list[int]] = [[] for _ in node_index]
        ingress: list[list[int]] = [[] for _ in node_index]
        for link, (start, end) in enumerate(zip(source, target, strict=True)):
            egress[start].append(link)
            ingress[end].append(link)
        technology = [technology_index[link.technology] for link in self.links]
        return Incidence(node_index, source, target, technology, egress, ingress)

    def with_capacities(self, capacities_mbps: Mapping[str, float]) -> Network:
        """The same network with some capacities replaced (link id -> Mb/s; 0 takes the link out). Ids of other networks
        are ignored. What does not depend on capacities is shared, so that it is worked out once.
        """
        links, index, capacities = list(self.links), self.link_index, self.capacities.copy()
        for name, mbps in capacities_mbps.items():
            place = index.get(name)
            if place is not None and links[place].capacity_mbps != mbps:
                links[place] = replace(links[place], capacity_mbps=mbps)
                capacities[place] = mbps
        made = replace(self, links=tuple(links))
        known = self.__dict__
        made.__dict__.update((name, known[name]) for name in _STRUCTURE if name in known)
        made.__dict__["capacities"] = _read_only(capacities)
        return made


def _read_only(values: NDArray[np.float64]) -> NDArray[np.float64]:
    values.flags.writeable = False
    return values


_STRUCTURE = ("technologies", "link_index", "link_ids", "technologies_of", "incidence")
"""Cached properties of a network that do not depend on capacities."""


GRAPH_PROPERTIES = ("id", "technology", "capacity_mbps", "delay_ms", "loss")
"""What a link of a NetJSON graph has under ``properties``."""


def network_graph(network: Network) -> dict[str, Any]:
    """The network as a NetworkGraph of NetJSON (https://netjson.org/rfc.html), ready for JSON.

    ``cost`` is the link weight of the routing metric, d_l = 1 / c_l in seconds per megabit. What NetJSON has no key for
    stands under ``properties``.
    """
    return {
        "type": "NetworkGraph",
        "label": network.name,
        "protocol": "static",
        "version": None,
        "metric": "airtime",
        "directed": True,
        "multigraph": True,
        "nodes": [_node(node) for node in network.nodes.values()],
        "links": [_link(link) for link in network.links if link.capacity_mbps > 0],
    }


def _node(node: Node) -> dict[str, Any]:
    properties: dict[str, Any] = {"role": node.role.value, "agent": node.agent}
    if node.position_m is not None:
        properties["position_m"] = list(node.position_m)
    addresses = [address for address in (node.ip, node.mac) if address is not None]
    return graph_node(node.id, addresses, properties)


def _link(link: Link) -> dict[str, Any]:
    properties = {name: getattr(link, name) for name in GRAPH_PROPERTIES}
    return graph_link(link.source, link.target, properties)


def graph_node(name: str, addresses: list[str], properties: dict[str, Any]) -> dict[str, Any]:
    """A node of :func:`network_graph`."""
    return {"id": name, "label": name, "local_addresses": addresses, "properties": properties}


def graph_link(source: str, target: str, properties: dict[str, Any]) -> dict[str, Any]:
    """A link of :func:`network_graph`; ``properties`` are those of ``GRAPH_PROPERTIES``, its capacity above 0."""
    capacity_mbps = properties["capacity_mbps"]
    return {
        "source": source,
        "target": target,
        "cost": 1.0 / capacity_mbps,
        "cost_text": f"{capacity_mbps:g} Mb/s {properties['technology']}",
        "properties": properties,
    }


WIRED = "host"
"""Stands for a technology at a wired access port."""


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """The port of a node's switch on a technology (an access point, a power-line port), or its wired access port."""

    node: str
    technology: str

    def __str__(self) -> str:
        return f"{self.node}/{self.technology}"

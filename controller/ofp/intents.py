"""The network's state -> the intent of every switch: what it shall do, by names of ports and neighbours, and labels.

Port numbers come in later (``rules.rules_for``), once a switch has described its ports.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace

from hyroads.controller.core.addressing import Addressing, Labels
from hyroads.controller.core.network import Network, Place
from hyroads.controller.core.routes import TreeEdge

from .match import Match


@dataclass(frozen=True, slots=True)
class AccessPort:
    """A port to hosts that are not part of the hybrid network's media."""

    name: str
    hosts: tuple[str, ...] = ()
    """MAC addresses known to be here."""
    guarded: bool = False
    """Frames of other sources go to the controller, and nowhere else until it has learned them (``hosts``)."""
    serves_dhcp: bool = False
    """DHCP servers may be here; the controller gets a copy of what they say."""
    routes: bool = False
    """IPv6 routers may be here."""
    closed: bool = False
    """It is under 802.1X: frames of unknown sources go nowhere, but for those of authentication."""


@dataclass(frozen=True, slots=True)
class AgentPorts:
    """The two ports of the node's ``hyroads-edge`` and its label."""

    access: str
    network: str
    label: int


@dataclass(frozen=True, slots=True)
class Neighbour:
    """The far end of an outgoing link: reached over own ``port`` at ``mac``; ``label`` names the link in a stack."""

    node: str
    port: str
    mac: str
    label: int


@dataclass(frozen=True, slots=True)
class Hop:
    """Where a frame goes next: out of own ``port`` to ``mac``."""

    port: str
    mac: str


@dataclass(frozen=True, slots=True)
class NodeRoute:
    """Single path to the node behind ``label``: the next hop, and other ones for frames that came in on some ports."""

    node: str
    label: int
    hop: Hop
    by_port: Mapping[str, Hop] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HelloLabel:
    """The agent's label for a hello frame out of ``port``."""

    port: str
    label: int


@dataclass(frozen=True, slots=True)
class AttachedClient:
    """A plain client that is attached to own medium ``port``; ``label`` is its node label. It has the address ``ip`` of
    the network file.
    """

    mac: str
    port: str
    label: int
    ip: str | None = None


@dataclass(frozen=True, slots=True)
class ClassifiedFlow:
    """A multipath flow that this edge splits: frames that match go to the agent behind the label ``number``.

    ``match`` has no ``in_port``. Of two flows that match a frame the one with the higher ``precedence`` (0..59000)
    wins.
    """

    id: str
    number: int
    match: Match
    precedence: int = 0


@dataclass(frozen=True, slots=True)
class TreeBranch:
    """What a switch does with the frames of a source tree, which travel behind ``label``.

    They come from ``parent`` (own port and its address there; None where the tree begins), addressed to the own
    interface or, if ``by_group``, to all children on that medium at once. ``copies`` are the transmissions to the
    children; one for several of them goes to the group address of trees. ``delivers``: there are participants here.
    """

    label: int
    parent: Hop | None = None
    by_group: bool = False
    copies: tuple[Hop, ...] = ()
    delivers: bool = False


@dataclass(frozen=True, slots=True)
class SessionMembers:
    """Who gets the frames of a session at one switch: ``access`` ports, and ``clients`` as unicast.

    ``match`` tells the session's frames from others and has no ``in_port``.
    """

    match: Match
    access: tuple[str, ...] = ()
    clients: tuple[AttachedClient, ...] = ()


@dataclass(frozen=True, slots=True)
class SessionEntry:
    """Frames that enter a session here: those that match source and group take the tree that begins with ``branch``,
    and go to the other ``members`` here. ``client`` is the source if it is a plain client that is attached here.

    Without a branch they are dropped: a session is for its participants. ``match`` has no ``in_port``.
    """

    match: Match
    branch: TreeBranch | None = None
    members: SessionMembers | None = None
    client: AttachedClient | None = None


@dataclass(frozen=True, slots=True)
class SwitchIntent:
    """Everything that one switch shall do."""

    node: str
    dpid: int
    node_label: int
    flood_label: int
    macs: Mapping[str, str] = field(default_factory=dict)
    """Addresses of own interfaces on the media, by name of the port."""
    access: tuple[AccessPort, ...] = ()
    agent: AgentPorts | None = None
    relays: bool = False
    """What comes out of the agent may be of flows that this edge splits."""
    neighbours: tuple[Neighbour, ...] = ()
    peers: tuple[Hop, ...] = ()
    """Interfaces (own port, their address) that hello frames may come from."""
    label_sources: tuple[Hop, ...] = ()
    """Interfaces (own port, their address) that labels may come from: of switches with a link to here."""
    hellos: tuple[HelloLabel, ...] = ()
    routes: tuple[NodeRoute, ...] = ()
    remote_hosts: Mapping[str, int] = field(default_factory=dict)
    """MAC of a host that is not here -> the label of its node, or its own if it is a plain client."""
    tree: tuple[Hop, ...] = ()
    """Neighbours on the broadcast tree."""
    clients: tuple[AttachedClient, ...] = ()
    strays: tuple[AttachedClient, ...] = ()
    """Plain clients that may be here and are not: what is heard of them goes to the controller."""
    flows: tuple[ClassifiedFlow, ...] = ()
    branches: tuple[TreeBranch, ...] = ()
    entries: tuple[SessionEntry, ...] = ()
    members: tuple[SessionMembers, ...] = ()
    asks: bool = False
    """Routes and remote hosts are those in use: frames for others are flooded, with a copy to the controller."""
    most_frame_bytes: int | None = None
    """Hosts' frames of up to so many bytes fit all links behind one label; None: all frames of hosts do."""
    seals: bool = False
    """What it sends to neighbours behind labels of nodes, trees and the flood passes its agent, which seals it, and
    such labels are taken from that agent alone.
    """
    hears_reports: bool = False
    """What hosts say of groups (IGMP, MLD) goes to the controller as well."""


def translated(intent: SwitchIntent, addresses: Mapping[str, str]) -> SwitchIntent:
    """The intent with other addresses of interfaces on the media: name of an interface in intents -> its address
    (``core.interface_addresses``). Names that are missing, and addresses of hosts and groups, stay as they are.
    """
    if not addresses:
        return intent

    def mac(name: str) -> str:
        return addresses.get(name, name)

    def hop(old: Hop) -> Hop:
        return Hop(old.port, mac(old.mac))

    def branch(old: TreeBranch) -> TreeBranch:
        parent = None if old.parent is None else hop(old.parent)
        return replace(old, parent=parent, copies=tuple(map(hop, old.copies)))

    return replace(
        intent,
        macs={port: mac(name) for port, name in intent.macs.items()},
        neighbours=tuple(replace(each, mac=mac(each.mac)) for each in intent.neighbours),
        peers=tuple(map(hop, intent.peers)),
        label_sources=tuple(map(hop, intent.label_sources)),
        routes=tuple(
            replace(route, hop=hop(route.hop), by_port={port: hop(other) for port, other in route.by_port.items()})
            for route in intent.routes
        ),
        tree=tuple(map(hop, intent.tree)),
        branches=tuple(map(branch, intent.branches)),
        entries=tuple(
            each if each.branch is None else replace(each, branch=branch(each.branch)) for each in intent.entries
        ),
    )


Routes = Mapping[tuple[str, str | None], int]
"""(node, technology a frame came in on or None) -> index of the next link; see ``core.routes.all_routes``."""


def default_places(addressing: Addressing) -> dict[str, Place]:
    """The default attachment of every plain client that has one."""
    found = {client: addressing.attachment(client) for client in addressing.attachments}
    return {client: Place(a.node, a.technology) for client, a in found.items() if a is not None}


def hop_to(addressing: Addressing, node: str, other: str, technology: str) -> Hop:
    """From a node's interface on a technology to another's."""
    return Hop(addressing.interface_name[node, technology], addressing.interface_mac[other, technology])


def attached_only(network: Network, addressing: Addressing, places: Mapping[str, Place]) -> Network:
    """The network in which a plain client has no link (capacity 0) but those of where it is attached."""
    clients = {node for node in network.nodes if addressing.is_plain_client(node)}
    zero: dict[str, float] = {}
    for link in network.links:
        for client, other in ((link.source, link.target), (link.target, link.source)):
            if client in clients and places.get(client) != Place(other, link.technology):
                zero[link.id] = 0.0
    return network.with_capacities(zero)


def intents_for(
    network: Network,
    addressing: Addressing,
    labels: Labels,
    routes: Mapping[str, Routes],
    tree: Iterable[TreeEdge],
    *,
    flows: Mapping[str, tuple[ClassifiedFlow, ...]] | None = None,
    places: Mapping[str, Place] | None = None,
    guarded: Container[str] = (),
    dhcp: Container[str] = (),
    routers: Container[str] = (),
    closed: Container[str] = (),
    relays: Container[str] = (),
    seals: bool = False,
) -> dict[str, SwitchIntent]:
    """Node id -> intent, for every node with a switch.

    ``routes`` maps every node with a switch and every attached plain client to the routes towards it, which end on the
    attachment's link (a missing one is unreachable), ``flows`` an edge to the flows it splits, ``places`` plain clients
    to their attachment (default: ``default_places``; a client that is not in it is nowhere). ``guarded`` are nodes at
    whose access port only known hosts are let in, ``dhcp`` those where DHCP servers may be, ``routers`` those where
    IPv6 routers may be, ``closed`` those whose access port is under 802.1X, ``relays`` those at which flows of other
    regions go on. With ``seals`` agents seal what switches send to each other.
    """
    compiler = _Compiler(network, addressing, labels, relays, seals=seals)
    attached = compiler.attached(places if places is not None else default_places(addressing))
    trees = compiler.trees(tree)
    return {
        node: replace(
            compiler.bare(node, guarded, dhcp, routers, closed),
            routes=compiler.routes(node, routes, attached),
            remote_hosts=attached.remote_hosts(node),
            tree=trees.get(node, ()),
            clients=attached.clients.get(node, ()),
            strays=attached.strays.get(node, ()) if node in guarded else (),
            flows=(flows or {}).get(node, ()),
        )
        for node in addressing.dpid
    }


class BareIntents:
    """Intents without routes and remote hosts, for networks whose switches have those that are in use alone
    (``control.routes_in_use``). A switch keeps the very same intent as long as nothing of it changes.
    """

    def __init__(
        self,
        network: Network,
        addressing: Addressing,
        labels: Labels,
        *,
        guarded: Container[str] = (),
        dhcp: Container[str] = (),
        routers: Container[str] = (),
        closed: Container[str] = (),
        relays: Container[str] = (),
        seals: bool = False,
    ) -> None:
        self._compiler = _Compiler(network, addressing, labels, relays, seals=seals)
        self._guarded = guarded
        bare = {
            node: replace(self._compiler.bare(node, guarded, dhcp, routers, closed), asks=True, strays=())
            for node in addressing.dpid
        }
        self._last: tuple[Mapping[str, Place] | None, tuple[TreeEdge, ...], dict[str, SwitchIntent]] = None, (), bare
        """Places, tree and intents of the last time; as one, for two threads may ask at once."""

    def of(self, places: Mapping[str, Place], tree: tuple[TreeEdge, ...]) -> dict[str, SwitchIntent]:
        """Node -> intent, with plain clients at these places and this broadcast tree. Where the places are those of
        before, only nodes of which the tree has other edges are looked at.
        """
        last_places, last_tree, last = self._last
        if last_places == places and last_tree == tree:
            return dict(last)
        attached, touched = self._compiler.attached(places), set(last)
        if last_places == places:
            touched = {end for edge in set(last_tree) ^ set(tree) for end in (edge.first, edge.second)}
        trees = self._compiler.trees(edge for edge in tree if edge.first in touched or edge.second in touched)
        made = dict(last)
        for node in touched & last.keys():
            intent = last[node]
            hops, clients = trees.get(node, ()), attached.clients.get(node, ())
            strays = attached.strays.get(node, ()) if node in self._guarded else ()
            if (hops, clients, strays) != (intent.tree, intent.clients, intent.strays):
                made[node] = replace(intent, tree=hops, clients=clients, strays=strays)
        self._last = dict(places), tree, made
        return dict(made)


@dataclass(frozen=True)
class _Attached:
    """Plain clients by node, at their places and where else they may be, and where every host is: the node whose switch
    delivers to it, and the label that leads there.
    """

    places: Mapping[str, Place]
    clients: Mapping[str, tuple[AttachedClient, ...]]
    strays: Mapping[str, tuple[AttachedClient, ...]]
    home: Mapping[str, tuple[str, int]]

    def remote_hosts(self, node: str) -> dict[str, int]:
        return {mac: label for mac, (home, label) in self.home.items() if home != node}


class _Compiler:
    """What follows from the network file alone is worked out once."""

    def __init__(
        self, network: Network, addressing: Addressing, labels: Labels, relays: Container[str], *, seals: bool
    ) -> None:
        self._addressing, self._relays, self._seals = addressing, relays, seals
        self._labels = labels
        self._hops = tuple(hop_to(addressing, link.source, link.target, link.technology) for link in network.links)
        neighbours: dict[str, list[Neighbour]] = {}
        peers: dict[str, list[Hop]] = {}
        label_sources: dict[str, list[Hop]] = {}
        for link, hop in zip(network.links, self._hops, strict=True):
            if not (addressing.has_switch(link.source) and addressing.has_switch(link.target)):
                continue
            neighbour = Neighbour(link.target, hop.port, hop.mac, labels.link[link.id])
            neighbours.setdefault(link.source, []).append(neighbour)
            # Whatever the link carries at the moment: what is sent on it must be taken as soon as it is found.
            near = hop_to(addressing, link.target, link.source, link.technology)
            label_sources.setdefault(link.target, []).append(near)
            if addressing.has_agent(link.source):
                peers.setdefault(link.target, []).append(near)
        self._neighbours, self._peers, self._label_sources = neighbours, peers, label_sources

    def bare(
        self,
        node: str,
        guarded: Container[str],
        dhcp: Container[str],
        routers: Container[str],
        closed: Container[str],
    ) -> SwitchIntent:
        """What depends on the network file and the settings alone."""
        addressing, labels = self._addressing, self._labels
        host, names, macs = addressing.host_mac[node], addressing.interface_name, addressing.interface_mac
        technologies = addressing.technologies(node)
        access = AccessPort(
            addressing.access_port[node], (host,), node in guarded, node in dhcp, node in routers, node in closed
        )
        return SwitchIntent(
            node=node,
            dpid=addressing.dpid[node],
            node_label=labels.node[node],
            flood_label=labels.flood,
            macs={names[node, k]: macs[node, k] for k in technologies},
            access=(access,),
            agent=self._agent(node),
            relays=node in self._relays,
            seals=self._seals,
            neighbours=tuple(self._neighbours.get(node, ())),
            peers=tuple(self._peers.get(node, ())),
            label_sources=tuple(self._label_sources.get(node, ())),
            hellos=tuple(
                HelloLabel(names[node, k], labels.hello[node, k]) for k in technologies if (node, k) in labels.hello
            ),
        )

    def _agent(self, node: str) -> AgentPorts | None:
        if not self._addressing.has_agent(node):
            return None
        access, network = self._addressing.agent_access_port[node], self._addressing.agent_network_port[node]
        return AgentPorts(access, network, self._labels.agent[node])

    def attached(self, places: Mapping[str, Place]) -> _Attached:
        """Plain clients at their places; O(hosts)."""
        addressing, labels = self._addressing, self._labels
        clients: dict[str, tuple[AttachedClient, ...]] = {}
        strays: dict[str, tuple[AttachedClient, ...]] = {}
        for client, attachments in addressing.attachments.items():
            for a in attachments:
                if places.get(client) != Place(a.node, a.technology):
                    strays[a.node] = (*strays.get(a.node, ()), self._client(client, a.node, a.technology))
        home = {addressing.host_mac[node]: (node, labels.node[node]) for node in addressing.dpid}
        for client, place in places.items():
            attached = self._client(client, place.node, place.technology)
            clients[place.node] = (*clients.get(place.node, ()), attached)
            home[attached.mac] = (place.node, attached.label)
        return _Attached(places, clients, strays, home)

    def _client(self, client: str, node: str, technology: str) -> AttachedClient:
        port = self._addressing.interface_name[node, technology]
        mac, ip = self._addressing.host_mac[client], self._addressing.host_ip[client]
        return AttachedClient(mac, port, self._labels.node[client], ip)

    def routes(self, node: str, routes: Mapping[str, Routes], attached: _Attached) -> tuple[NodeRoute, ...]:
        found, places = [], attached.places
        for target, towards in routes.items():
            default = towards.get((node, None))
            here = target == node or (target in places and places[target].node == node)
            if here or default is None:
                continue
            by_port = {
                self._addressing.interface_name[node, k]: self._hops[link]
                for k in self._addressing.technologies(node)
                if (link := towards.get((node, k), default)) != default
            }
            found.append(NodeRoute(target, self._labels.node[target], self._hops[default], by_port))
        return tuple(found)

    def trees(self, edges: Iterable[TreeEdge]) -> dict[str, tuple[Hop, ...]]:
        """By node: its neighbours on the broadcast tree, in the order of the links that lead there."""
        links: dict[str, list[int]] = {}
        for edge in edges:
            links.setdefault(edge.first, []).append(edge.forward)
            links.setdefault(edge.second, []).append(edge.backward)
        return {node: tuple(self._hops[link] for link in sorted(mine)) for node, mine in links.items()}

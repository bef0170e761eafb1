"""Multicast sessions: source trees -> what every switch on them does -> its rules and groups.

A message enters its session's tree at the edge of its source, behind the label of that tree, and is copied where the
tree branches, by a group of type ALL. A switch takes a label from its parent in the tree alone, so a message that
several switches of a medium hear is passed on only by those that it is meant for (docs/reference/openflow.md,
section 4).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from hyroads.controller.core.addressing import Addressing
from hyroads.controller.core.multicast import Media, Tree
from hyroads.controller.core.network import Network, Place

from . import match as act
from .intents import AttachedClient, Hop, SessionEntry, SessionMembers, SwitchIntent, TreeBranch, hop_to
from .match import Match
from .pipeline import ETH_TYPE_MPLS, ETH_TYPE_SHIM, LABEL_TTL, TREE_ADDRESS, Priority, Table
from .rule import GroupEntry, Rule

# In a table of its own: Open vSwitch lets nothing of a frame be rewritten right after ``decap``.
_RESTORE: tuple[act.Action, ...] = (act.Decap(), act.Decap(act.PACKET_TYPE_ETHERNET), act.Resubmit(Table.MEMBERS))
# IGMP; of MLD the queries, the reports of both versions, and its done.
_REPORTS = (
    Match(eth_type=0x0800, ip_proto=2),
    *(Match(eth_type=0x86DD, ip_proto=58, icmpv6_type=kind) for kind in (130, 131, 132, 143)),
)


class Ports:
    """A switch's ports by name, as OpenFlow numbers; ``missing`` collects those that were needed and are not there."""

    def __init__(self, intent: SwitchIntent, ports: Mapping[str, int]) -> None:
        self._ports = ports
        self._seals, self._agent = intent.seals, intent.agent
        self.macs = intent.macs
        self.missing: set[str] = set()

    def numbered(self, names: Iterable[str]) -> Iterator[tuple[str, int]]:
        """The ports of ``names`` that are there, with their numbers."""
        for name in names:
            number = self._ports.get(name)
            if number is None:
                self.missing.add(name)
            else:
                yield name, number

    def number(self, name: str) -> Iterator[int]:
        """The number of a port; nothing if it is missing."""
        for _, number in self.numbered((name,)):
            yield number

    def towards(self, hop: Hop, came_in: str | None) -> tuple[act.Action, ...]:
        """Addresses a frame to a hop and sends it, by the agent where that seals it; nothing when the port is missing.

        The agent's port may be the one that the frame came in on, and a plain output to that would be dropped.
        """
        if not self._seals:
            return self.straight(hop, came_in)
        for _ in self.number(hop.port):
            for agent in self.sealer():
                addresses = act.SetEthSrc(self.macs[hop.port]), act.SetEthDst(hop.mac)
                return (*addresses, act.SetInPort(0), act.Output(agent))
        return ()

    def straight(self, hop: Hop, came_in: str | None) -> tuple[act.Action, ...]:
        """The same without the agent."""
        for number in self.number(hop.port):
            out = act.IN_PORT if hop.port == came_in else number
            return (act.SetEthSrc(self.macs[hop.port]), act.SetEthDst(hop.mac), act.Output(out))
        return ()

    def sealer(self) -> Iterator[int]:
        """The number of the port of the agent that seals links; nothing if none does."""
        if self._seals and self._agent is not None:
            yield from self.number(self._agent.network)

    def to_clients(self, clients: Iterable[AttachedClient], came_in: str | None) -> tuple[act.Action, ...]:
        """A copy for each client, addressed to it.

        A raw group frame on a shared medium would also be heard by its sender, by clients attached elsewhere and by
        other access points, which could not tell it from the client's own transmission. So it is sent as unicast, as
        access points do ("multicast to unicast").
        """
        actions: list[act.Action] = []
        for client in clients:
            for number in self.number(client.port):
                out = act.IN_PORT if client.port == came_in else number
                actions += (act.SetEthDst(client.mac), act.Output(out))
        return tuple(actions)


class Groups:
    """The groups that a switch needs, by id. If two have one id by chance, the second is written out in the rule."""

    def __init__(self) -> None:
        self.by_id: dict[int, GroupEntry] = {}

    def copies(self, buckets: Iterable[tuple[act.Action, ...]]) -> tuple[act.Action, ...]:
        """The actions that send a copy for every bucket."""
        wanted = tuple(bucket for bucket in buckets if bucket)
        if len(wanted) < 2:
            return wanted[0] if wanted else ()
        group = GroupEntry(wanted)
        if self.by_id.setdefault(group.id, group) != group:
            return tuple(act.Clone(bucket) for bucket in wanted)
        return (act.Group(group.id),)


def behind(label: int) -> tuple[act.Action, ...]:
    """Puts the whole frame behind one label that switches forward by."""
    return (
        act.Encap(act.PACKET_TYPE_MPLS),
        act.SetMplsLabel(label),
        act.SetMplsTtl(LABEL_TTL),
        act.Encap(act.PACKET_TYPE_ETHERNET),
    )


def label_match(label: int, in_port: int | None = None, eth_src: str | None = None) -> Match:
    """Frames behind one label, from anywhere or from this port and address."""
    return Match(in_port=in_port, eth_src=eth_src, eth_type=ETH_TYPE_MPLS, mpls_label=label, mpls_bos=1)


def labelled_from(source: Hop, number: int, eth_dst: str) -> Rule:
    """Labels are taken from a neighbour's interface on the medium that it shares with own port ``number``."""
    match = Match(in_port=number, eth_type=ETH_TYPE_MPLS, eth_src=source.mac, eth_dst=eth_dst)
    return Rule(Table.PORT, Priority.LABELLED, match, goto=Table.LABEL)


def sealed_from(source: Hop, number: int, eth_dst: str, agent: int) -> Rule:
    """Sealed frames of such an interface go to the agent at port ``agent``."""
    match = Match(in_port=number, eth_type=ETH_TYPE_SHIM, eth_src=source.mac, eth_dst=eth_dst)
    return Rule(Table.PORT, Priority.LABELLED, match, (act.Output(agent),))


def session_rules(intent: SwitchIntent, ports: Ports, groups: Groups) -> Iterator[Rule]:
    """All rules of a switch for sessions."""
    parents = [branch.parent for branch in intent.branches if branch.parent is not None and branch.by_group]
    for parent in dict.fromkeys(parents):
        for number in ports.number(parent.port):
            if not intent.seals:
                yield labelled_from(parent, number, TREE_ADDRESS)
            for agent in ports.sealer():
                yield sealed_from(parent, number, TREE_ADDRESS, agent)
    for report in _REPORTS if intent.hears_reports else ():
        # To the controller, and on as before: hosts look after each other's reports.
        yield Rule(Table.CLASSIFY, Priority.REPORT, report, (act.Output(act.CONTROLLER),), goto=Table.FORWARD)
    for entry in intent.entries:
        yield from _enter(entry, ports, groups)
    for branch in intent.branches:
        yield from _pass_on(branch, ports, groups)
    for members in intent.members:
        yield from _deliver(members, ports)


def _enter(entry: SessionEntry, ports: Ports, groups: Groups) -> Iterator[Rule]:
    """A message from its source."""
    branch = entry.branch
    if branch is None:
        yield Rule(Table.CLASSIFY, Priority.SESSION_CLOSED, entry.match)
        return
    came_in = entry.client.port if entry.client is not None else None
    match = entry.match
    if came_in is not None:
        number = next(ports.number(came_in), None)
        if number is None:
            return
        match = replace(match, in_port=number)
    onward = groups.copies(ports.towards(hop, came_in) for hop in branch.copies)
    copies = (act.Clone(behind(branch.label) + onward),) if onward else ()
    here: tuple[act.Action, ...] = ()
    if entry.members is not None:
        others = tuple(client for client in entry.members.clients if client != entry.client)
        here = _outputs(entry.members.access, others, came_in, ports)
    yield Rule(Table.CLASSIFY, Priority.SESSION, match, copies + here)


def _pass_on(branch: TreeBranch, ports: Ports, groups: Groups) -> Iterator[Rule]:
    """A message from the parent in the tree."""
    if branch.parent is None:
        return
    name = branch.parent.port
    for number in ports.number(name):
        match = label_match(branch.label, number, branch.parent.mac)
        onward = groups.copies(ports.towards(hop, name) for hop in branch.copies)
        actions = (act.DecMplsTtl(), *onward) if onward else ()
        yield Rule(Table.LABEL, Priority.UNICAST, match, actions + (_RESTORE if branch.delivers else ()))


def _deliver(members: SessionMembers, ports: Ports) -> Iterator[Rule]:
    """A message to the participants here."""
    actions = _outputs(members.access, members.clients, None, ports)
    yield Rule(Table.MEMBERS, Priority.SESSION, members.match, actions)
    for name, number in ports.numbered(dict.fromkeys(client.port for client in members.clients)):
        match = replace(members.match, in_port=number)
        actions = _outputs(members.access, members.clients, name, ports)
        yield Rule(Table.MEMBERS, Priority.SESSION_VARIANT, match, actions)


def _outputs(
    access: Iterable[str], clients: Iterable[AttachedClient], came_in: str | None, ports: Ports
) -> tuple[act.Action, ...]:
    return tuple(act.Output(number) for _, number in ports.numbered(access)) + ports.to_clients(clients, came_in)


Sent = tuple[str, ...]
"""Ids of the links that one transmission takes: one, or several of a node on one medium."""


@dataclass(frozen=True, slots=True)
class TreePlan:
    """A source tree by names: who sends to whom at once, and the nodes at which messages are delivered."""

    source: str
    transmissions: tuple[Sent, ...]
    receivers: frozenset[str]

    @property
    def links(self) -> frozenset[str]:
        """Ids of all links of the tree."""
        return frozenset(link for sent in self.transmissions for link in sent)


@dataclass(frozen=True)
class RootedTree:
    """A tree behind its label: where it begins, and what every switch on it does."""

    plan: TreePlan
    label: int
    root: str
    branches: Mapping[str, TreeBranch]


def tree_plan(media: Media, tree: Tree, receivers: Collection[str]) -> TreePlan:
    """The plan of a tree; of ``receivers`` those count that it reaches."""
    ids = [link.id for link in media.network.links]
    sent = sorted(tuple(ids[link] for link in sent.links) for sent in media.transmissions(tree.links))
    reached = frozenset(receivers) & {tree.source, *tree.parent}
    return TreePlan(tree.source, tuple(sent), reached)


@dataclass(frozen=True, slots=True)
class Names:
    """What everything in a network is called, and where plain clients are attached."""

    network: Network
    addressing: Addressing
    places: Mapping[str, Place]


def rooted(names: Names, plan: TreePlan, label: int) -> RootedTree | None:
    """What the switches do for a tree; None if its source is attached nowhere."""
    network, addressing, source = names.network, names.addressing, plan.source
    place = names.places.get(source)
    if not addressing.has_switch(source) and place is None:
        return None
    root = source if place is None else place.node
    copies: dict[str, list[Hop]] = {root: []}
    parents: dict[str, tuple[Hop, bool]] = {}
    homes = set(plan.receivers)
    for sent in plan.transmissions:
        links = [network.links[network.link_index[name]] for name in sent]
        sender, technology, first = links[0].source, links[0].technology, links[0].target
        if not addressing.has_switch(sender):
            # A plain client sends to its access point, where the tree begins.
            continue
        if not addressing.has_switch(first):
            # It is delivered to as one of the participants there.
            homes.add(sender)
            continue
        by_group, hop = len(links) > 1, hop_to(addressing, sender, first, technology)
        copies.setdefault(sender, []).append(Hop(hop.port, TREE_ADDRESS) if by_group else hop)
        for link in links:
            parents[link.target] = hop_to(addressing, link.target, sender, technology), by_group
    branches = {}
    for node in sorted({root, *parents}):
        parent, by_group = parents.get(node, (None, False))
        branches[node] = TreeBranch(label, parent, by_group, tuple(copies.get(node, ())), node in homes)
    return RootedTree(plan, label, root, branches)

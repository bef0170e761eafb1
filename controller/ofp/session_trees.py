"""Source trees of sessions -> what every switch on them does."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from hyroads.controller.core.addressing import Addressing
from hyroads.controller.core.multicast import Media, Tree
from hyroads.controller.core.network import Network
from hyroads.controller.core.services.place import Place
from hyroads.controller.ofp.intents import Hop, TreeBranch
from hyroads.controller.ofp.pipeline import TREE_ADDRESS

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
        port = addressing.interface_name[sender, technology]
        by_group = len(links) > 1
        to = TREE_ADDRESS if by_group else addressing.interface_mac[first, technology]
        copies.setdefault(sender, []).append(Hop(port, to))
        for link in links:
            own = addressing.interface_name[link.target, technology]
            parents[link.target] = Hop(own, addressing.interface_mac[sender, technology]), by_group
    branches = {}
    for node in sorted({root, *parents}):
        parent, by_group = parents.get(node, (None, False))
        branches[node] = TreeBranch(label, parent, by_group, tuple(copies.get(node, ())), node in homes)
    return RootedTree(plan, label, root, branches)

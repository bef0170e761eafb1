"""A multicast session: participants that all send to each other, over one source tree each. Pure.

Joins and leaves change as little as possible (:func:`adapted`). A new participant gets the cheapest branch of every
tree (the greedy algorithm of Waxman, "Routing of multipoint connections", IEEE JSAC 6(9), 1988) and a tree of its own;
the branches of one that leaves are removed. A new tree may be a *quick* one, which takes milliseconds. Trees become
worse with many such changes, so :func:`refreshed` replaces those that a fresh tree beats by a quarter of their airtime.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from .errors import NoRouteError
from .multicast import Media, Tree, grown, pruned, source_tree
from .network import Network

WORTH_IT = 0.25
"""Share of a tree's airtime that making it anew must save."""


@dataclass(frozen=True)
class Session:
    """Who takes part and the tree of each; ``rate_mbps`` is what is reserved for each source (0: nothing)."""

    id: str
    trees: Mapping[str, Tree] = field(default_factory=dict)
    rate_mbps: float = 0.0

    @property
    def participants(self) -> frozenset[str]:
        """All that take part."""
        return frozenset(self.trees)

    @classmethod
    def of_links(cls, name: str, network: Network, links: Mapping[str, Iterable[int]]) -> Session:
        """From the links of every source's tree; every node on a tree counts as a member until it is pruned."""
        trees = {}
        for source, indices in links.items():
            parent = {network.links[index].target: index for index in indices}
            trees[source] = Tree(source, frozenset(parent), parent)
        return cls(name, trees)


def refreshed(media: Media, session: Session, worth_it: float = WORTH_IT) -> Session:
    """Trees made anew where that saves the share ``worth_it`` of their airtime; the others stay as they are."""
    trees = {}
    for source, tree in session.trees.items():
        fresh = source_tree(media, source, tree.members)
        saves = media.airtime(fresh.links) <= (1.0 - worth_it) * media.airtime(tree.links)
        trees[source] = fresh if saves and tree.links else tree
    return Session(session.id, trees, session.rate_mbps)


def adapted(
    media: Media, session: Session, sources: Iterable[str], members: Iterable[str], *, quick: bool = False
) -> tuple[Session, Mapping[str, frozenset[str]]]:
    """The session for these sources and members on the network as it is now, with as little change as possible.

    Who can't be reached is left out, and named by source; it comes back with the next call after it can.
    """
    wanted = frozenset(members)
    trees: dict[str, Tree] = {}
    lost: dict[str, frozenset[str]] = {}
    for source in sorted(set(sources)):
        before, others = session.trees.get(source), wanted - {source}
        tree = None if before is not None else _whole(media, source, others, quick=quick)
        if tree is None:
            remaining = _alive(media, before or Tree(source, frozenset(), {}))
            tree, missing = _with_each(media, pruned(media, remaining, others), others)
            if missing:
                lost[source] = missing
        trees[source] = tree
    return Session(session.id, trees, session.rate_mbps), lost


def _whole(media: Media, source: str, members: frozenset[str], *, quick: bool) -> Tree | None:
    """A tree made at once; None if somebody can't be reached."""
    try:
        return source_tree(media, source, members, quick=quick)
    except NoRouteError:
        return None


def _with_each(media: Media, tree: Tree, members: Iterable[str]) -> tuple[Tree, frozenset[str]]:
    """The tree with all members that can be reached, and the others."""
    lost = set()
    for node in sorted(set(members) - tree.members):
        try:
            tree = grown(media, tree, [node])
        except NoRouteError:
            lost.add(node)
    return tree, frozenset(lost)


def _alive(media: Media, tree: Tree) -> Tree:
    """What of a tree still hangs on its source."""
    parent: dict[str, int] = {}
    reached, more = {tree.source}, True
    while more:
        found = {
            node: index
            for node, index in tree.parent.items()
            if node not in reached and media.cost[index] < np.inf and media.network.links[index].source in reached
        }
        parent.update(found)
        reached |= set(found)
        more = bool(found)
    whole = Tree(tree.source, tree.members & reached, parent)
    return pruned(media, whole, whole.members)

"""Source trees of least airtime for multicast on the hybrid multigraph.

A node sends on a shared medium to several switches once, at the rate of the slowest of them, as one frame to a group
address; elsewhere (full-duplex Ethernet, plain clients, which get unicast copies) once per receiver:

    airtime(T) = sum over (node, technology) of  max over switches r reached there of 1 / c_r   (shared medium)
                                               + sum over the other receivers r of 1 / c_r      [s per Mb]

Radios that send group frames at the rate of the slowest of *all* their neighbours (:attr:`GroupRate.NEIGHBOURS`, as the
emulated medium does) are given copies instead where these cost less.

Least airtime is NP-hard (it contains the Steiner tree problem). The heuristic is the shortest path heuristic of
Takahashi and Matsuyama ("An approximate solution for the Steiner problem in graphs", Math. Japonica 24, 1980) with the
incremental costs of MIP (Wieselthier, Nguyen, Ephremides, "Energy-efficient broadcast and multicast trees in wireless
networks", Mobile Networks and Applications 7, 2002), then exchanges of parents and branches while they save airtime.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

import numpy as np

from .errors import NoRouteError, PlanningError
from .interface_graph import FloatArray, relaying_nodes
from .network import Network

# Savings below this share are rounding noise.
_GAIN = 1e-9
_MAX_ROUNDS = 50
# So many nodes outside a tree are tried as relays, the ones first that are cheapest to reach from it.
_MAX_RELAYS = 32

Port = tuple[str, str]
"""A node and one of its technologies."""


class GroupRate(Enum):
    """At which rate a node sends to a group."""

    RECEIVERS = "slowest receiver"
    NEIGHBOURS = "slowest neighbour"
    NEVER = "no group frames"


@dataclass(frozen=True)
class Transmission:
    """What a node sends of each message on a technology, in one go: to one receiver, or to several as a group."""

    node: str
    technology: str
    links: tuple[int, ...]
    airtime_s_per_mb: float


@dataclass(frozen=True)
class Tree:
    """A tree from ``source``: ``parent`` maps every other node to the index of the link it is reached over."""

    source: str
    members: frozenset[str]
    parent: Mapping[str, int]

    @property
    def links(self) -> frozenset[int]:
        """The links of the tree."""
        return frozenset(self.parent.values())


class Media:
    """What trees need to know of a network: links that can be used, what they cost, and what can be sent once."""

    def __init__(
        self, network: Network, *, clients_relay: bool = False, group_rate: GroupRate = GroupRate.RECEIVERS
    ) -> None:
        self.network = network
        self.group_rate = group_rate
        relays = dict(zip(network.nodes, relaying_nodes(network, clients_relay), strict=True))
        self.relays = relays
        self.cost = [1.0 / link.capacity_mbps if link.capacity_mbps > 0 else np.inf for link in network.links]
        grouped = group_rate is not GroupRate.NEVER
        self.shared = [
            grouped and link.technology not in network.unshared and relays[link.target] for link in network.links
        ]
        self.egress: dict[str, list[int]] = {node: [] for node in network.nodes}
        self.ingress: dict[str, list[int]] = {node: [] for node in network.nodes}
        for index, link in enumerate(network.links):
            if self.cost[index] < np.inf:
                self.egress[link.source].append(index)
                self.ingress[link.target].append(index)
        self.slowest: dict[Port, float] = {}
        for index, cost in enumerate(self.cost):
            if cost < np.inf:
                self.slowest[self.port(index)] = max(cost, self.slowest.get(self.port(index), 0.0))

    def port(self, index: int) -> Port:
        """Who sends on a link, and on what."""
        return self.network.links[index].source, self.network.links[index].technology

    def served(self, port: Port, total: float, greatest: float) -> float:
        """Airtime for switches on a shared medium, given the sum and the maximum of what they cost one by one."""
        return greatest if self.group_rate is GroupRate.RECEIVERS else min(total, self.slowest.get(port, 0.0))

    def transmissions(self, links: Iterable[int]) -> list[Transmission]:
        """How the links of a tree are served."""
        groups: dict[Port, list[int]] = {}
        found = []
        for index in sorted(links):
            if self.shared[index]:
                groups.setdefault(self.port(index), []).append(index)
            else:
                found.append(Transmission(*self.port(index), (index,), self.cost[index]))
        for port, group in groups.items():
            costs = [self.cost[index] for index in group]
            together = self.served(port, sum(costs), max(costs))
            if len(group) > 1 and together < sum(costs):
                found.append(Transmission(*port, tuple(group), together))
            else:
                found += [Transmission(*port, (index,), self.cost[index]) for index in group]
        return found

    def airtime(self, links: Iterable[int]) -> float:
        """Airtime of all transmissions, seconds per Mb of the session's traffic."""
        return sum(sent.airtime_s_per_mb for sent in self.transmissions(links))

    def more(self, index: int, sent: Mapping[Port, tuple[float, float]]) -> float:
        """What a link costs more when ``sent`` (see :meth:`sent_by`) is sent anyway."""
        cost, port = self.cost[index], self.port(index)
        if not self.shared[index]:
            return cost
        total, greatest = sent.get(port, (0.0, 0.0))
        return max(0.0, self.served(port, total + cost, max(greatest, cost)) - self.served(port, total, greatest))

    def sent_by(self, links: Iterable[int]) -> dict[Port, tuple[float, float]]:
        """Sum and maximum of the airtime of the switches served on shared media, by port."""
        sent: dict[Port, tuple[float, float]] = {}
        for index in links:
            if self.shared[index]:
                total, greatest = sent.get(self.port(index), (0.0, 0.0))
                sent[self.port(index)] = total + self.cost[index], max(greatest, self.cost[index])
        return sent

    def domain_airtime(self, links: Iterable[int]) -> FloatArray:
        """Share of time that the tree occupies in the domain of every link, float64[L], per Mb/s of traffic.

        A group transmission occupies the domains of all its links at once.
        """
        total = np.zeros(len(self.network.links))
        for sent in self.transmissions(links):
            touched = np.unique(np.concatenate([self.network.interference.domain(index) for index in sent.links]))
            total[touched] += sent.airtime_s_per_mb
        return total


def source_tree(media: Media, source: str, members: Iterable[str], *, quick: bool = False) -> Tree:
    """A tree from ``source`` to all of ``members``; ``quick`` leaves the exchanges out (a hundredth of the time).

    Raises ``NoRouteError`` if one can't be reached, ``PlanningError`` for an unknown node.
    """
    wanted = frozenset(members) - {source}
    for node in sorted({source, *wanted}):
        if node not in media.network.nodes:
            raise PlanningError(f"no node {node!r} in the network")
    tree = grown(media, Tree(source, frozenset(), {}), wanted)
    return tree if quick else improved(media, tree)


def grown(media: Media, tree: Tree, joining: Iterable[str]) -> Tree:
    """The tree with more members, each by the branch that costs least more; what is there stays as it is."""
    open_, parent = set(joining) - {tree.source}, dict(tree.parent)
    members = tree.members | open_
    open_ -= set(parent)
    while open_:
        branch = _cheapest_branch(media, tree.source, parent, open_)
        if branch is None:
            raise NoRouteError(f"no way from {tree.source!r} to {min(open_)!r}")
        for index in branch:
            parent[media.network.links[index].target] = index
        open_ -= set(parent)
    return Tree(tree.source, frozenset(members), parent)


def pruned(media: Media, tree: Tree, members: Iterable[str]) -> Tree:
    """The tree for fewer members: branches that lead to none of them go."""
    left = frozenset(members) & tree.members
    needed: dict[str, int] = {}
    for node in sorted(left):
        while node != tree.source and node not in needed:
            needed[node] = tree.parent[node]
            node = media.network.links[tree.parent[node]].source  # noqa: PLW2901 - upwards from each member
    return Tree(tree.source, left, needed)


def improved(media: Media, tree: Tree) -> Tree:
    """The tree after all exchanges of a parent, of what hangs on a link, or of relays, that save airtime."""
    tree = _exchanged(media, tree)
    for _ in range(_MAX_ROUNDS):
        better = _better_relays(media, tree)
        if better is tree:
            return tree
        tree = better
    return tree


def _exchanged(media: Media, tree: Tree) -> Tree:
    for _ in range(_MAX_ROUNDS):
        better = _better_branch(media, _better_parents(media, tree))
        if better is tree or media.airtime(better.links) >= media.airtime(tree.links) * (1 - _GAIN):
            return tree
        tree = better
    return tree


def _better_relays(media: Media, tree: Tree) -> Tree:
    """A tree grown anew from the way to one more relay, the best of all such; the same tree if none saves."""
    best, cost = tree, media.airtime(tree.links) * (1 - _GAIN)
    for relay in _near_relays(media, tree):
        trunk = grown(media, Tree(tree.source, frozenset(), {}), [relay])
        other = pruned(media, grown(media, trunk, tree.members), tree.members)
        if relay in other.parent:
            other = _exchanged(media, other)
        airtime = media.airtime(other.links)
        if airtime < cost:
            best, cost = other, airtime * (1 - _GAIN)
    return best


def _near_relays(media: Media, tree: Tree) -> list[str]:
    """Nodes next to the tree that could forward, cheapest first."""
    inside, cost = {tree.source, *tree.parent}, dict[str, float]()
    for node in inside:
        for index in media.egress[node] if node == tree.source or media.relays[node] else ():
            target = media.network.links[index].target
            if target not in inside and media.relays[target]:
                cost[target] = min(cost.get(target, np.inf), media.cost[index])
    return sorted(cost, key=lambda node: (cost[node], node))[:_MAX_RELAYS]


def _cheapest_branch(media: Media, source: str, parent: Mapping[str, int], open_: set[str]) -> list[int] | None:
    """The links from the tree to the open member that costs least more (Dijkstra 1959)."""
    sent = media.sent_by(parent.values())
    start = {source, *parent}
    queue: list[tuple[float, int, str, int]] = [(0.0, 0, node, -1) for node in sorted(start)]
    over: dict[str, int] = {}
    done: set[str] = set()
    while queue:
        cost, hops, node, link = heapq.heappop(queue)
        if node in done:
            continue
        done.add(node)
        over[node] = link
        if node in open_:
            return _upwards(media, over, node)
        if node != source and not media.relays[node]:
            continue
        for onward in media.egress[node]:
            target = media.network.links[onward].target
            if target not in done and target not in start:
                step = media.more(onward, sent if node in start else {})
                heapq.heappush(queue, (cost + step, hops + 1, target, onward))
    return None


def _upwards(media: Media, over: Mapping[str, int], node: str) -> list[int]:
    branch: list[int] = []
    while over[node] >= 0:
        branch.append(over[node])
        node = media.network.links[over[node]].source
    return branch[::-1]


def _better_parents(media: Media, tree: Tree) -> Tree:
    """Every node under the parent that makes the tree cheapest, as long as that saves."""
    best = media.airtime(tree.links)
    for node in sorted(tree.parent):
        if node not in tree.parent:
            continue
        below = _below(media, tree.parent, node)
        for index in media.ingress[node]:
            origin = media.network.links[index].source
            relays = origin == tree.source or (origin in tree.parent and media.relays[origin])
            if origin in below or not relays:
                continue
            other = pruned(media, Tree(tree.source, tree.members, {**tree.parent, node: index}), tree.members)
            cost = media.airtime(other.links)
            if cost < best * (1 - _GAIN):
                tree, best = other, cost
                if node not in tree.parent:
                    break
    return tree


def _better_branch(media: Media, tree: Tree) -> Tree:
    """Take the part below each link off and put its members back by the cheapest branches, where that saves."""
    best = media.airtime(tree.links)
    for node in sorted(tree.parent):
        if node not in tree.parent:
            continue
        gone = _below(media, tree.parent, node)
        rest = {other: index for other, index in tree.parent.items() if other not in gone}
        trunk = pruned(media, Tree(tree.source, tree.members - gone, rest), tree.members - gone)
        other = grown(media, trunk, tree.members & gone)
        cost = media.airtime(other.links)
        if cost < best * (1 - _GAIN):
            tree, best = other, cost
    return tree


def _below(media: Media, parent: Mapping[str, int], node: str) -> set[str]:
    """A node and all that is reached through it."""
    children: dict[str, list[str]] = {}
    for child, index in parent.items():
        children.setdefault(media.network.links[index].source, []).append(child)
    found, stack = {node}, [node]
    while stack:
        new = [child for child in children.get(stack.pop(), ()) if child not in found]
        found.update(new)
        stack += new
    return found

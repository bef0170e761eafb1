"""Shortest paths towards single targets, and which of them a change of the network leaves as they are.

A :class:`ReverseTree` holds the next links towards one target at the nodes that its sources' frames pass. All reverse
trees of a network are made of one :class:`NextLinks`. When links change, :meth:`Changed.spared` says which trees
are still shortest: those that use no link that got dearer (a shortest path stays one if others get longer), and from
whose nodes the way round by a link that got cheaper is longer than theirs (docs/explanation/routing.md, *Rules on
demand*).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hyroads.controller.native.planner import kernel

from .interface_graph import FloatArray, InterfaceGraph, Metric, interface_graph, link_weights, metric_of
from .network import Network
from .planner_native import routes as routes_native
from .routes import routes_towards

ALL_ROUTES_NODES = 32
"""With more switches than these, rules for all nodes and hosts on each of them would be too many."""
AT_ONCE = 32
"""Targets that the compiled kernel works out in one call: their tables take 4 bytes per node and technology."""
MOST_GAINS = 8
"""With more that is cheaper, all trees are made anew."""


@dataclass(frozen=True)
class ReverseTree:
    """The next links towards ``target`` at each node that frames of ``sources`` may pass.

    ``next_links`` maps these nodes to the link index by the technology that a frame came in on, None for frames that
    begin there; the target, and nodes from which it can't be reached, are not in it. Plain clients are no sources.
    """

    target: str
    sources: frozenset[str]
    next_links: Mapping[str, Mapping[str | None, int]]
    costs: FloatArray = field(compare=False, repr=False)
    """float64[N, K + 1]: what is left to the target at least, by node and by technology that a frame came in on (first:
    none); exact at the nodes passed, infinite where there is no way."""
    passed: NDArray[np.int64] = field(compare=False, repr=False)
    """Numbers of the nodes that frames may pass, and of the sources."""
    most: FloatArray = field(compare=False, repr=False)
    """By passed node: what is left at most, whatever a frame came in on; infinite where there is no way."""

    @cached_property
    def links(self) -> frozenset[int]:
        """All links that it may use."""
        return frozenset(link for by_technology in self.next_links.values() for link in by_technology.values())


class NextLinks:
    """The next links of one network, worked out target by target. ``compiled``: by the compiled kernel if there is
    one.
    """

    def __init__(self, network: Network, like: NextLinks | None = None, *, compiled: bool = True) -> None:
        """``like`` is one of a network with the same nodes and links, other capacities apart."""
        self.network = network
        self.capacities = network.capacities
        unit_mbps = float(self.capacities.max(initial=0.0))
        self.graph: InterfaceGraph = (
            replace(like.graph, unit_mbps=unit_mbps) if like is not None else interface_graph(network)
        )
        self._kernel = kernel() if compiled else None

    @cached_property
    def metric(self) -> Metric:
        """Costs of links and of staying on a technology."""
        return metric_of(self.graph, self.capacities)

    @cached_property
    def has_many_technologies(self) -> bool:
        """Whether links of several technologies live; of one alone, going on is not dearer than to begin there."""
        return len(np.unique(np.array(self.graph.technology, dtype=np.int64)[self.capacities > 0])) > 1

    def weights_of(self, links: NDArray[np.intp] | Sequence[int]) -> list[int]:
        """As ``metric.weights``, of some links."""
        return link_weights(self.capacities[links], self.graph.unit_mbps)

    def staying_of(self, nodes: Sequence[int]) -> list[int]:
        """As ``metric.staying``, of some nodes; O(links of these)."""
        if not self.has_many_technologies:
            return [0] * len(nodes)
        weights = (self.weights_of(self.graph.egress[node]) for node in nodes)
        return [min((weight for weight in of if weight), default=0) for of in weights]

    @cached_property
    def _arrays(self) -> tuple[FloatArray, FloatArray, NDArray[np.int64], NDArray[np.int64]]:
        """By link: weight, cost of staying on its technology, state it leads to, and column of its technology."""
        graph, technology = self.graph, np.array(self.graph.technology)
        staying = np.array(self.metric.staying)[np.array(graph.source)] * np.array(graph.shared)[technology]
        lead = np.array(graph.target) * (len(graph.technologies) + 1) + technology + 1
        return np.array(self.metric.weights, dtype=float), staying.astype(float), lead, technology + 1

    @cached_property
    def _comes_in(self) -> NDArray[np.bool_]:
        """bool[N, K + 1]: whether frames can come in to each node on each technology; first, that they begin there."""
        graph = self.graph
        found = np.zeros((len(graph.relays), len(graph.technologies) + 1), dtype=bool)
        found[:, 0] = True
        found[np.array(graph.target, dtype=int), np.array(graph.technology, dtype=int) + 1] = True
        found[~np.array(graph.relays, dtype=bool), 1:] = False
        return found

    def trees(self, wanted: Mapping[str, Iterable[str]]) -> dict[str, ReverseTree]:
        """Target -> its tree from some sources. Takes O(links x log links) per target; ``PlanningError`` if the network
        has no such node.
        """
        targets, found = list(wanted), {}
        for first in range(0, len(targets), AT_ONCE):
            some = targets[first : first + AT_ONCE]
            numbers = [self.graph.node(target) for target in some]
            for target, number, table in zip(some, numbers, self._tables(numbers), strict=True):
                found[target] = self._tree(target, frozenset(wanted[target]), table, self.costs(table, number))
        return found

    def to_node(self, node: int) -> FloatArray:
        """float64[N]: the cost of the shortest path to a node from each, by number; infinite where there is none."""
        costs: FloatArray = self.costs(self._tables([node])[0], node)[:, 0]
        return costs

    def _tables(self, targets: list[int]) -> list[NDArray[np.int32]]:
        """Per target int32[N, K + 1]: the next link at each node, -1 for none."""
        if self._kernel is not None:
            tables = routes_native(self._kernel, self.graph, self.capacities, targets)
            # The kernel also tells what to do with frames that came in on a technology that the node does not have.
            return list(np.where(self._comes_in, tables, np.int32(-1)))
        columns = {k: i for i, k in enumerate((None, *self.graph.technologies))}
        made = []
        for target in targets:
            table = np.full((len(self.graph.node_index), len(columns)), -1, dtype=np.int32)
            for (node, k), link in routes_towards(self.metric, target).items():
                table[self.graph.node_index[node], columns[k]] = link
            made.append(table)
        return made

    def costs(self, table: NDArray[np.int32], target: int) -> FloatArray:
        """What is left to the target from each node and technology, by pointer doubling along the next links."""
        weights, staying, lead, column = self._arrays
        links, width = table.reshape(-1), table.shape[1]
        state = np.arange(len(links))
        is_open = links >= 0
        used = links[is_open]
        step = np.where(state // width == target, 0.0, np.inf)
        step[is_open] = weights[used] + np.where(column[used] == state[is_open] % width, staying[used], 0.0)
        follow = state.copy()
        follow[is_open] = lead[used]
        while not np.array_equal(following := follow[follow], follow):
            step = np.where(follow == state, step, step + step[follow])
            follow = following
        total = np.where(follow == state, step, step + step[follow])
        return total.reshape(table.shape)

    def _tree(self, target: str, sources: frozenset[str], table: NDArray[np.int32], costs: FloatArray) -> ReverseTree:
        technologies, found = (None, *self.graph.technologies), {}
        waiting = sorted(sources)
        while waiting:
            node = waiting.pop()
            if node == target or node in found:
                continue
            row = table[self.graph.node_index[node]].tolist()
            ways = {k: link for k, link in zip(technologies, row, strict=True) if link >= 0}
            if ways:
                found[node] = ways
                waiting += {self.network.links[link].target for link in ways.values()}
        passed = np.array(sorted(self.graph.node_index[node] for node in {*found, *sources}), dtype=np.int64)
        most = np.where(np.isfinite(costs[passed]), costs[passed], -1.0).max(axis=1)
        return ReverseTree(target, sources, found, costs, passed, np.where(most < 0, np.inf, most))


@dataclass(frozen=True)
class _Gain:
    """Something got cheaper at a node: a link of some weight, which leads to a state (node number, column), or staying
    on a technology, where the state is the node itself.
    """

    to_node: FloatArray
    weight: float
    state: tuple[int, int]

    def reaches(self, tree: ReverseTree) -> bool:
        """Whether a path by way of it may be as short as those of a tree."""
        around = self.to_node[tree.passed] + self.weight + tree.costs[self.state]
        return bool((around <= tree.most * (1 + 1e-9)).any())


@dataclass(frozen=True)
class Changed:
    """What is different between two networks of the same nodes and links.

    ``links`` are dearer or gone and ``nodes`` have a dearer cost of staying on a technology; ``clients`` are plain
    clients to which links are cheaper or new, ``gains`` what else is cheaper. ``all``: weights can't be compared, or so
    much is cheaper that it is not worth looking.
    """

    links: frozenset[int] = frozenset()
    nodes: frozenset[str] = frozenset()
    clients: frozenset[str] = frozenset()
    gains: tuple[_Gain, ...] = ()
    all: bool = False

    @classmethod
    def between(cls, before: NextLinks, after: NextLinks) -> Changed:
        """Compare two networks; as long as a tree takes for each thing that is cheaper."""
        graph, names = after.graph, list(after.graph.node_index)
        has_same_links = before.graph.target is graph.target or before.graph.target == graph.target
        if before.graph.unit_mbps != graph.unit_mbps or not has_same_links:
            return cls(all=True)
        changed = np.flatnonzero(before.capacities != after.capacities)
        old, new = (dict(zip(changed.tolist(), each.weights_of(changed), strict=True)) for each in (before, after))
        dearer = {link for link, was in old.items() if was != new[link] and (not new[link] or 0 < was < new[link])}
        cheaper = [link for link, was in old.items() if was != new[link] and link not in dearer]
        nodes: Sequence[int] = range(len(names))
        if before.has_many_technologies is after.has_many_technologies:
            nodes = sorted({graph.source[link] for link in old})
        costs = zip(nodes, before.staying_of(nodes), after.staying_of(nodes), strict=True)
        stays = [(node, a, b) for node, a, b in costs if a != b and graph.relays[node]]
        # Only a plain client's own tree can use a link that ends there, and none uses a link that begins there.
        clients = {graph.target[link] for link in cheaper if not graph.relays[graph.target[link]]}
        useful = [link for link in cheaper if graph.relays[graph.source[link]] and graph.relays[graph.target[link]]]
        eased = [node for node, a, b in stays if b < a]
        if len(useful) + len(eased) > MOST_GAINS:
            return cls(all=True)
        to_node = {node: after.to_node(node) for node in {*eased, *(graph.source[link] for link in useful)}}
        gains = [
            _Gain(to_node[graph.source[link]], float(new[link]), (graph.target[link], graph.technology[link] + 1))
            for link in useful
        ]
        gains += [_Gain(to_node[node], 0.0, (node, 0)) for node in eased]
        return cls(
            frozenset(dearer),
            frozenset(names[node] for node, a, b in stays if b > a),
            frozenset(names[node] for node in clients),
            tuple(gains),
        )

    def spared(self, tree: ReverseTree) -> ReverseTree | None:
        """The tree if its paths are still shortest, else None."""
        if self.all or tree.target in self.clients:
            return None
        if not (self.links.isdisjoint(tree.links) and self.nodes.isdisjoint(tree.next_links)):
            return None
        if not self.gains:
            return tree
        if any(gain.reaches(tree) for gain in self.gains):
            return None
        # After the last gain on its way a path costs what it did before; hence the least that it may cost now.
        costs = tree.costs
        for gain in self.gains:
            costs = np.minimum(costs, (gain.to_node + (gain.weight + tree.costs[gain.state]))[:, None])
        spared = replace(tree, costs=costs)
        spared.__dict__["links"] = tree.links
        return spared

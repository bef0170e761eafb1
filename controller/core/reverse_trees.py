"""Shortest paths towards single targets, and which of them a change of the network leaves as they are.

A :class:`ReverseTree` holds the next links towards one target at the nodes that its sources' frames pass. All reverse
trees of a network are made of one :class:`NextLinks`. When links change, :meth:`Changed.spares` says which trees would
come out the same: where links only got dearer, all that use none of them (a shortest path stays one if others get
longer). See docs/explanation/routing.md, *Rules on demand*.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hyroads.controller.native.planner import kernel

from .interface_graph import Metric, capacities_of, interface_graph, metric_of
from .network import Network
from .planner_native import routes as routes_native
from .routes import Routes, routes_towards

ALL_ROUTES_NODES = 32
"""With more switches than these, rules for all nodes and hosts on each of them would be too many."""
AT_ONCE = 32
"""Targets that the compiled kernel works out in one call: their tables take 4 bytes per node and technology."""


@dataclass(frozen=True)
class ReverseTree:
    """The next links towards ``target`` at each node that frames of ``sources`` may pass.

    ``next_links`` maps these nodes to the link index by the technology that a frame came in on, None for frames that
    begin there; the target, and nodes from which it can't be reached, are not in it. Plain clients are no sources.
    """

    target: str
    sources: frozenset[str]
    next_links: Mapping[str, Mapping[str | None, int]]

    @cached_property
    def links(self) -> frozenset[int]:
        """All links that it may use."""
        return frozenset(link for by_technology in self.next_links.values() for link in by_technology.values())


class NextLinks:
    """The next links of one network, worked out target by target. ``compiled``: by the compiled kernel if there is
    one.
    """

    def __init__(self, network: Network, *, compiled: bool = True) -> None:
        self.network = network
        self.graph = interface_graph(network)
        self.capacities = capacities_of(network)
        self._kernel = kernel() if compiled else None

    @cached_property
    def metric(self) -> Metric:
        """Costs of links and of staying on a technology."""
        return metric_of(self.graph, self.capacities)

    def trees(self, wanted: Mapping[str, Iterable[str]]) -> dict[str, ReverseTree]:
        """Target -> its tree from some sources. Takes O(links x log links) per target; ``PlanningError`` if the network
        has no such node.
        """
        targets, found = list(wanted), {}
        for first in range(0, len(targets), AT_ONCE):
            some = targets[first : first + AT_ONCE]
            for target, table in zip(some, self._tables(some), strict=True):
                found[target] = self._tree(target, frozenset(wanted[target]), table)
        return found

    def _tables(self, targets: list[str]) -> list[_Table]:
        numbers = [self.graph.node(target) for target in targets]
        if self._kernel is None:
            return [_Table(self, routes_towards(self.metric, number), None) for number in numbers]
        arrays = routes_native(self._kernel, self.graph, self.capacities, numbers)
        return [_Table(self, {}, array) for array in arrays]

    def _tree(self, target: str, sources: frozenset[str], table: _Table) -> ReverseTree:
        found: dict[str, Mapping[str | None, int]] = {}
        waiting = sorted(sources)
        while waiting:
            node = waiting.pop()
            if node == target or node in found:
                continue
            ways = table.at(node)
            if ways:
                found[node] = ways
                waiting += {self.network.links[link].target for link in ways.values()}
        return ReverseTree(target, sources, found)


@dataclass(frozen=True)
class _Table:
    """The next links towards one target at all nodes, as an array of the kernel or as routes."""

    of: NextLinks
    routes: Routes
    array: NDArray[np.int32] | None

    def at(self, node: str) -> dict[str | None, int]:
        technologies = (None, *self.of.graph.technologies)
        if self.array is None:
            row = [self.routes.get((node, k), -1) for k in technologies]
        else:
            row = self.array[self.of.graph.node_index[node]].tolist()
        return {k: link for k, link in zip(technologies, row, strict=True) if link >= 0}


@dataclass(frozen=True)
class Changed:
    """What is different between two networks of the same nodes and links.

    ``links`` are dearer or gone and ``nodes`` have a dearer cost of staying on a technology; ``clients`` are plain
    clients to which links are cheaper or new. ``all``: something else got cheaper, or weights can't be compared.
    """

    links: frozenset[int]
    nodes: frozenset[str]
    clients: frozenset[str]
    all: bool

    @classmethod
    def between(cls, before: NextLinks, after: NextLinks) -> Changed:
        """Compare two networks; O(links)."""
        none: frozenset[str] = frozenset()
        if before.graph.unit_mbps != after.graph.unit_mbps or before.graph.target != after.graph.target:
            return cls(frozenset(), none, none, all=True)
        graph, names = after.graph, list(after.graph.node_index)
        old, new = np.array(before.metric.weights), np.array(after.metric.weights)
        dearer = (old != new) & ((new == 0) | ((old > 0) & (new > old)))
        cheaper = np.flatnonzero((old != new) & ~dearer).tolist()
        # Only a plain client's own tree can use a link that ends there, and none uses a link that begins there.
        clients = {graph.target[link] for link in cheaper if not graph.relays[graph.target[link]]}
        gains = any(graph.relays[graph.source[link]] and graph.relays[graph.target[link]] for link in cheaper)
        costs = enumerate(zip(before.metric.staying, after.metric.staying, strict=True))
        stays = [(node, a, b) for node, (a, b) in costs if a != b and graph.relays[node]]
        leaves = {graph.source[link] for link in np.flatnonzero(new).tolist()} if stays else set()
        gains = gains or any(b < a and node in leaves for node, a, b in stays)
        return cls(
            frozenset(np.flatnonzero(dearer).tolist()),
            frozenset(names[node] for node, a, b in stays if b > a),
            frozenset(names[node] for node in clients),
            all=gains,
        )

    def spares(self, tree: ReverseTree) -> bool:
        """Whether a tree's paths are still shortest."""
        if self.all or tree.target in self.clients:
            return False
        return self.links.isdisjoint(tree.links) and self.nodes.isdisjoint(tree.next_links)

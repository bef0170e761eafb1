"""Single-path forwarding state: next hops towards a node, and the tree for group traffic (docs/explanation/routing.md).

Next hops follow the metric of the graph of interfaces, so the next hop may depend on the technology a frame came in
on. Every hop lowers the remaining cost, which is what makes plain hop-by-hop forwarding loop-free. The broadcast tree
is a minimum spanning tree (Kruskal, Proc. AMS 7, 1956) of the nodes that forward.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hyroads.controller.native.planner import kernel

from .interface_graph import (
    NO_TECHNOLOGY,
    Distances,
    FloatArray,
    InterfaceGraph,
    Metric,
    distances_to,
    interface_graph,
    link_weights,
    metric_of,
)
from .network import Network
from .planner_native import routes as routes_native


@dataclass(frozen=True, slots=True, order=True)
class TreeEdge:
    """An edge of the broadcast tree: two nodes and the indices of the two directions of the link between them."""

    first: str
    second: str
    forward: int
    backward: int


Routes = Mapping[tuple[str, str | None], int]


def all_routes(network: Network, targets: Iterable[str] | None = None, *, compiled: bool = True) -> dict[str, Routes]:
    """The next links towards each target (default: every node), worked out by the compiled kernel if it is there.

    Per target: (node, technology a frame came in on, or None at its origin) -> index of the link to take next. States
    from which the target cannot be reached are absent. A plain client has a state as origin only: it never relays.
    Where several links cost the same, the one that the origin's state takes is preferred (fewer rules), then the one
    declared first. Raises ``PlanningError`` for an unknown node.
    """
    graph = interface_graph(network)
    capacities = network.capacities
    wanted = {name: graph.node(name) for name in (network.nodes if targets is None else targets)}
    native = kernel() if compiled else None
    if native is None:
        metric = metric_of(graph, capacities)
        return {name: routes_towards(metric, node) for name, node in wanted.items()}
    states = [(name, technology) for name in graph.node_index for technology in (None, *graph.technologies)]
    tables = routes_native(native, graph, capacities, list(wanted.values()))
    return {name: _table(states, table.reshape(-1)) for name, table in zip(wanted, tables, strict=True)}


def _table(states: Sequence[tuple[str, str | None]], links: NDArray[np.int32]) -> Routes:
    return {states[state]: int(links[state]) for state in np.flatnonzero(links >= 0).tolist()}


def routes_towards(metric: Metric, end: int) -> Routes:
    """The next links towards one node by its number, in Python; as :func:`all_routes`."""
    graph = metric.graph
    distances = distances_to(metric, end)
    routes: dict[tuple[str, str | None], int] = {}
    for name, node in graph.node_index.items():
        default = None if node == end else _next_link(metric, distances, node, NO_TECHNOLOGY, None)
        if default is None:
            continue
        routes[name, None] = default
        came_in_on = {graph.technology[link] for link in graph.ingress[node]} if graph.relays[node] else set()
        for technology in sorted(came_in_on):
            link = _next_link(metric, distances, node, technology, default)
            if link is not None:
                routes[name, graph.technologies[technology]] = link
    return routes


def _next_link(metric: Metric, distances: Distances, node: int, came_in_on: int, preferred: int | None) -> int | None:
    """The link out of ``node`` of least cost to the target; None if there is none."""
    graph = metric.graph
    ways = [
        (metric.step(link, came_in_on) + distances[graph.target[link], graph.technology[link]], link != preferred, link)
        for link in graph.egress[node]
        if metric.weights[link] and (graph.target[link], graph.technology[link]) in distances
    ]
    return min(ways)[2] if ways else None


def broadcast_tree(network: Network, known: Iterable[TreeEdge] = ()) -> frozenset[TreeEdge]:
    """Minimum-airtime spanning tree of the nodes that have a switch (a forest if they are not connected).

    An edge is a pair of nodes with links in both directions on one technology and weighs the airtime of the two
    (d_l + d_l~); equal weights are taken in order of declaration. ``first`` is declared before ``second``.

    ``known`` are edges that are in the tree for certain: those of the tree of a network with some more links that are
    left. (An edge of the tree is the least between two parts of the nodes, and stays that without others.)
    """
    graph = interface_graph(network)
    group, tree = list(range(len(graph.relays))), set(known)

    def root(node: int) -> int:
        while group[node] != node:
            group[node] = group[group[node]]
            node = group[node]
        return node

    names = list(network.nodes)
    for edge in tree:
        group[root(graph.source[edge.forward])] = root(graph.target[edge.forward])
    parts = np.array([root(node) for node in range(len(group))], dtype=np.intp)
    for forward, backward in _two_way_pairs(graph, network.capacities, parts):
        first, second = graph.source[forward], graph.target[forward]
        if root(first) != root(second):
            group[root(first)] = root(second)
            tree.add(TreeEdge(names[first], names[second], forward, backward))
    return frozenset(tree)


def _two_way_pairs(graph: InterfaceGraph, capacities: FloatArray, parts: NDArray[np.intp]) -> Iterator[tuple[int, int]]:
    """(link from the node declared first, link back) of every pair of switches with links both ways, in different
    ``parts`` of the nodes, least airtime first; of parallel links the best.
    """
    weights = np.array(link_weights(capacities, graph.unit_mbps), dtype=np.int64)
    relays, source, target = np.array(graph.relays, dtype=bool), np.array(graph.source), np.array(graph.target)
    live = np.zeros(0, dtype=int)
    if len(weights):
        live = np.flatnonzero((weights > 0) & (parts[source] != parts[target]) & relays[source] & relays[target])
    live = live[np.lexsort((live, weights[live]))]
    # A number for each pair of nodes, direction and technology.
    count, technology = len(graph.relays), np.array(graph.technology)[live]
    there = (technology * count + source[live]) * count + target[live]
    back = (technology * count + target[live]) * count + source[live]
    known, first = np.unique(there, return_index=True)
    at = np.searchsorted(known, back).clip(max=max(0, len(known) - 1))
    both = np.zeros(len(live), dtype=bool)
    both[first] = (known[at[first]] == back[first]) & (source[live[first]] < target[live[first]])
    forward, backward = live[both], live[first[at[both]]]
    order = np.lexsort((backward, forward, weights[forward] + weights[backward]))
    yield from zip(forward[order].tolist(), backward[order].tolist(), strict=True)

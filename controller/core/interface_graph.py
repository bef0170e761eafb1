"""The virtual graph of interfaces and its metric (EMPoWER, CoNEXT 2016, section 3.1).

A state is (node, technology on which the path came in), or (source, None) at the start. Going on over link
l = (u, v, k) costs

    W(l)            if u is the source or the path came in on another technology  (w_s(u) = 0)
    W(l) + w_ns(u)  if the path came in on k,   w_ns(u) = min over every egress link e of u of W(e)

with W(l) proportional to d_l = 1 / c_l. In a graph whose links are all of one technology w_ns is 0. Links of an
unshared technology (full-duplex Ethernet) count as a technology each, so nothing stays on one. Because w_ns(u)
never exceeds the weight of a link out of u, coming back to u never pays: a shortest path in the graph of
interfaces is loop-free in nodes, and the metric is isotone (the order of two paths into the same state is
kept whatever follows).

**Weights are integers.** Sums of floats depend on the order of addition, so ties (which real networks are full
of: equal rates) would be broken by rounding noise. W(l) = 2^8 * round(2^24 * c_max / c_l) + 1 with c_max the
largest capacity of the *root* network: relative resolution 2^-24 on the fastest link and better on others,
independent of the unit of capacity. The + 1 makes fewer hops and fewer stays on one technology win ties.
Links slower than 2^-22 of the fastest all weigh the same, so that sums fit 64 bits.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import add

import numpy as np
import numpy.typing as npt

from .errors import PlanningError
from .network import Network

FloatArray = npt.NDArray[np.float64]

FASTEST_UNITS = 2.0**24
SLOWEST_UNITS = 2.0**46
HOP_BITS = 8
NO_TECHNOLOGY = -1
_MOST = np.iinfo(np.int64).max


@dataclass(frozen=True)
class InterfaceGraph:
    """Structure of a network in small integers: nodes and technologies by position, links by index."""

    node_index: Mapping[str, int]
    technologies: tuple[str, ...]
    shared: list[bool]
    source: list[int]
    target: list[int]
    technology: list[int]
    egress: list[list[int]]
    ingress: list[list[int]]
    relays: list[bool]
    unit_mbps: float

    def node(self, name: str) -> int:
        """Number of a node; raises ``PlanningError`` if the network has none of that name."""
        if name not in self.node_index:
            raise PlanningError(f"no node {name!r} in the network")
        return self.node_index[name]


def relaying_nodes(network: Network, clients_relay: bool) -> list[bool]:
    """Whether each node may be in the middle of a path. A plain client (role client, no agent) has no switch."""
    return [clients_relay or not node.is_plain_client for node in network.nodes.values()]


def interface_graph(network: Network, clients_relay: bool = False) -> InterfaceGraph:
    """Compile a network; ``clients_relay`` lets plain clients forward too, as every node does in the papers."""
    known = network.incidence
    return InterfaceGraph(
        node_index=known.node_index,
        technologies=network.technologies,
        shared=[technology not in network.unshared for technology in network.technologies],
        source=known.source,
        target=known.target,
        technology=known.technology,
        egress=known.egress,
        ingress=known.ingress,
        relays=relaying_nodes(network, clients_relay),
        unit_mbps=float(network.capacities.max(initial=0.0)),
    )


def link_weights(capacities_mbps: FloatArray, unit_mbps: float) -> list[int]:
    """Integer weights W(l), int[L]; 0 for a link that does not exist (capacity 0)."""
    live = capacities_mbps > 0
    units = np.zeros_like(capacities_mbps)
    with np.errstate(over="ignore"):
        np.divide(FASTEST_UNITS * unit_mbps, capacities_mbps, out=units, where=live)
    rounded = np.minimum(np.floor(units + 0.5), SLOWEST_UNITS).astype(np.int64)
    weights: list[int] = np.where(live, (rounded << HOP_BITS) + 1, 0).tolist()
    return weights


@dataclass(frozen=True)
class Metric:
    """The metric in one vertex of the exploration tree: link weights W(l) and staying costs w_ns(u)."""

    graph: InterfaceGraph
    weights: Sequence[int]
    staying: Sequence[int]

    def step(self, link: int, came_in_on: int) -> int:
        """Cost of going on over ``link`` when the path came in on technology ``came_in_on``."""
        weight = self.weights[link]
        if self.graph.technology[link] == came_in_on and self.graph.shared[came_in_on]:
            return weight + self.staying[self.graph.source[link]]
        return weight

    def cost(self, path: Sequence[int]) -> int:
        """Cost of a whole path."""
        total, came_in_on = 0, NO_TECHNOLOGY
        for link in path:
            total += self.step(link, came_in_on)
            came_in_on = self.graph.technology[link]
        return total


def metric_of(graph: InterfaceGraph, capacities_mbps: FloatArray) -> Metric:
    """The metric for the given capacities, float64[L] in Mb/s."""
    weights = link_weights(capacities_mbps, graph.unit_mbps)
    live = capacities_mbps > 0
    staying = [0] * len(graph.egress)
    if len(np.unique(np.array(graph.technology, dtype=np.int64)[live])) > 1:
        cheapest = np.full(len(staying), _MOST, dtype=np.int64)
        np.minimum.at(cheapest, np.array(graph.source)[live], np.array(weights)[live])
        staying = np.where(cheapest == _MOST, 0, cheapest).tolist()
    return Metric(graph, weights, staying)


Distances = dict[tuple[int, int], int]


def distances_to(metric: Metric, target: int, source: int | None = None) -> Distances:
    """Exact cost from every state (node, technology it came in on) to ``target`` (Dijkstra 1959, backwards).

    With ``source`` given, paths do not pass through it. States that cannot reach the target are absent.
    """
    graph = metric.graph
    technologies = range(NO_TECHNOLOGY, len(graph.technologies))
    done: Distances = {}
    queue: list[tuple[int, int, int]] = [(0, target, technology) for technology in technologies]
    while queue:
        cost, node, technology = heapq.heappop(queue)
        crossed = technology != NO_TECHNOLOGY and node != target
        if (node, technology) in done or (crossed and not graph.relays[node]):
            continue
        done[node, technology] = cost
        if node == source or technology == NO_TECHNOLOGY:
            continue
        for link in graph.ingress[node]:
            if graph.technology[link] != technology or not metric.weights[link]:
                continue
            start = graph.source[link]
            for came_in_on in technologies:
                if start != target and (start, came_in_on) not in done:
                    heapq.heappush(queue, (cost + metric.step(link, came_in_on), start, came_in_on))
    return done


Path = tuple[int, ...]
"""Indices into ``Network.links``, in the order in which a packet crosses the links."""


@dataclass(frozen=True, slots=True)
class RatedPath:
    """A path and a rate in Mb/s (R(P) in the graph in which the path was found, or an allocated rate)."""

    links: Path
    rate_mbps: float


@dataclass(frozen=True)
class Multipath:
    """Paths used at once, in tree order: the rate of each is what the paths before it left over."""

    paths: tuple[RatedPath, ...]

    @cached_property
    def total_mbps(self) -> float:
        """Estimated capacity: the sum of the rates of the paths (thesis [2.9])."""
        # Plain left-to-right sums on every version of Python, as in the compiled kernel.
        return reduce(add, (path.rate_mbps for path in self.paths), 0.0)

    @cached_property
    def links(self) -> tuple[Path, ...]:
        """The paths without their rates, in tree order."""
        return tuple(path.links for path in self.paths)

    @cached_property
    def identity(self) -> frozenset[Path]:
        """The set of paths: two multipaths are the same arm if and only if these are equal."""
        return frozenset(self.links)


def link_ids(network: Network, path: Iterable[int]) -> list[str]:
    """Link ids of a path."""
    return [network.links[index].id for index in path]

"""Regions: parts of a network with a controller each. Which nodes belong together, and how flows cross them.

No region knows the airtime of another. So the border between two should cross no interference domain: it should be
wired, or between channels or buildings. :func:`inseparable` finds the groups of nodes that share domains;
:func:`proposed` divides a network into regions of a size, by a graph partitioner that it is given, and says what of it
could not be kept together. Pure.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from .errors import NoRouteError, PlanningError
from .netfile_sections import MAX_REGIONS
from .network import Network

SMALLEST_SHARED = 250
"""Regions that cut interference domains are not made smaller than this: their margins would cost too much airtime."""

Partitioner = Callable[[Sequence[Mapping[int, int]], Sequence[int], int], Sequence[int]]
"""(weights of edges by neighbour, per vertex; weights of vertices; number of parts) -> the part of each vertex."""


@dataclass(frozen=True)
class Division:
    """Regions by name, each the set of its nodes, and what they cost.

    ``cut_links`` go from one region to another. ``shared_links`` are links in whose interference domain more than one
    region sends: their airtime has to be divided between owners. ``largest_inseparable`` is the size of the largest
    group of nodes that share domains with each other.
    """

    regions: Mapping[str, frozenset[str]]
    cut_links: tuple[str, ...]
    shared_links: tuple[str, ...]
    largest_inseparable: int

    def document(self) -> dict[str, object]:
        """For JSON, and, its part ``regions``, for the network file."""
        return {
            "regions": {name: sorted(nodes) for name, nodes in self.regions.items()},
            "cut_links": list(self.cut_links),
            "shared_links": list(self.shared_links),
            "largest_inseparable": self.largest_inseparable,
        }


def inseparable(network: Network) -> list[frozenset[str]]:
    """Groups of nodes such that no interference domain has links of two groups; largest first.

    Both ends of a link count as in its domain, unless its technology is not shared: then its ends may be apart.
    O(links + contending pairs of distinct domains).
    """
    number = {node: i for i, node in enumerate(network.nodes)}
    classes = np.asarray(network.interference.classes())
    _, first = np.unique(classes, return_index=True)
    pairs: list[tuple[int, int]] = []
    for index in first.tolist():
        links = [network.links[i] for i in network.interference.domain(index).tolist()]
        shared = [link for link in links if len(links) > 1 or link.technology not in network.unshared]
        if shared:
            hub = number[shared[0].source]
            pairs.extend((hub, number[end]) for link in shared for end in (link.source, link.target))
    label = _components(len(number), pairs)
    groups: dict[int, list[str]] = defaultdict(list)
    for node, component in zip(number, label, strict=True):
        groups[component].append(node)
    return sorted((frozenset(nodes) for nodes in groups.values()), key=lambda group: (-len(group), min(group)))


def _components(count: int, pairs: Sequence[tuple[int, int]]) -> list[int]:
    rows, columns = np.array(pairs, dtype=np.intp).reshape(-1, 2).T
    graph = sparse.csr_matrix((np.ones(len(rows)), (rows, columns)), shape=(count, count))
    found: list[int] = connected_components(graph, directed=False)[1].tolist()
    return found


def proposed(network: Network, most: int, partition: Partitioner) -> Division:
    """Regions of about ``most`` nodes each at most, with little capacity between them.

    Nodes that share interference domains stay together as long as their group has at most ``most`` nodes. A larger
    group is cut where the fewest pairs of links contend, and not below ``SMALLEST_SHARED`` nodes a region. Raises
    ``PlanningError`` if ``most`` is not positive, or the network would need more than ``MAX_REGIONS``.
    """
    if most < 1:
        raise PlanningError(f"regions of at most {most} nodes: expected 1 or more")
    groups = [part for group in inseparable(network) for part in _divided(network, group, most, partition)]
    count = max(math.ceil(len(network.nodes) / most), 1)
    if count > MAX_REGIONS:
        raise PlanningError(f"{len(network.nodes)} nodes in regions of {most} are more than {MAX_REGIONS} regions")
    of_group = {node: i for i, group in enumerate(groups) for node in group}
    edges = _edges(network, of_group, len(groups))
    sizes = [len(group) for group in groups]
    part = _within(partition, edges, sizes, count, most)
    nodes: dict[int, set[str]] = defaultdict(set)
    for group, number in zip(groups, part, strict=True):
        nodes[number] |= group
    members = sorted(nodes.values(), key=min)
    regions = {f"region-{i}": frozenset(each) for i, each in enumerate(members, start=1)}
    return judged(network, regions)


def _divided(network: Network, group: frozenset[str], most: int, partition: Partitioner) -> list[frozenset[str]]:
    """A group as it is if it is small enough, else parts of it."""
    size = max(most, SMALLEST_SHARED)
    if len(group) <= size:
        return [group]
    nodes = sorted(group)
    edges = _edges(network, {node: i for i, node in enumerate(nodes)}, len(nodes), by_count=True)
    part = _within(partition, edges, [1] * len(nodes), math.ceil(len(nodes) / size), size)
    found: dict[int, set[str]] = defaultdict(set)
    for node, number in zip(nodes, part, strict=True):
        found[number].add(node)
    return [frozenset(each) for each in found.values()]


def _within(
    partition: Partitioner, edges: Sequence[Mapping[int, int]], sizes: Sequence[int], count: int, most: int
) -> Sequence[int]:
    """A partition of which no part is larger than ``most``, in as few more parts than ``count`` as are tried.

    Partitioners balance parts only roughly. A vertex that is too large stays alone in its part.
    """
    part: Sequence[int] = ()
    limit = max(most, *sizes)
    for tried in range(count, min(len(sizes), 2 * count + 1) + 1):
        part = partition(edges, sizes, tried)
        filled = Counter[int]()
        for number, size in zip(part, sizes, strict=True):
            filled[number] += size
        if max(filled.values()) <= limit:
            break
    return part or partition(edges, sizes, len(sizes))


def _edges(network: Network, number: Mapping[str, int], count: int, *, by_count: bool = False) -> list[dict[int, int]]:
    """Between vertices: the capacity of all links there, in Mb/s and at least 1; or how many links there are."""
    weight: list[Counter[int]] = [Counter() for _ in range(count)]
    for link in network.links:
        ends = number.get(link.source), number.get(link.target)
        if ends[0] is None or ends[1] is None or ends[0] == ends[1]:
            continue
        value = 1 if by_count else max(1, round(link.capacity_mbps))
        weight[ends[0]][ends[1]] += value
        weight[ends[1]][ends[0]] += value
    return [dict(each) for each in weight]


def judged(network: Network, regions: Mapping[str, frozenset[str]]) -> Division:
    """What regions cost. Every node is in one of them; ``PlanningError`` if not."""
    of_node = {node: name for name, nodes in regions.items() for node in nodes}
    if of_node.keys() != network.nodes.keys() or sum(map(len, regions.values())) != len(of_node):
        raise PlanningError("regions: expected every node in exactly one region")
    cut = tuple(link.id for link in network.links if of_node[link.source] != of_node[link.target])
    owner = np.array([of_node[link.source] for link in network.links])
    classes = np.asarray(network.interference.classes())
    _, first, inverse = np.unique(classes, return_index=True, return_inverse=True)
    mixed = np.array([len(set(owner[network.interference.domain(i)].tolist())) > 1 for i in first.tolist()], dtype=bool)
    shared = tuple(link.id for link, several in zip(network.links, mixed[inverse].tolist(), strict=True) if several)
    largest = max(map(len, inseparable(network)), default=0)
    return Division(regions, cut, shared, largest)


# -- flows over regions


@dataclass(frozen=True)
class Segment:
    """A part of a flow within one region: from ``ingress`` to ``egress``, whose agent is the next one's ingress.

    ``egress`` may be a node of the next region, at the far end of a link that this region owns.
    """

    region: str
    ingress: str
    egress: str


@dataclass(frozen=True)
class Regions:
    """Which region each node is in; a link belongs to the region of its source."""

    of_node: Mapping[str, str]

    @classmethod
    def of(cls, regions: Mapping[str, frozenset[str]]) -> Regions:
        """From the nodes of each region."""
        return cls({node: name for name, nodes in regions.items() for node in nodes})

    @cached_property
    def names(self) -> tuple[str, ...]:
        """All regions, in order of appearance."""
        return tuple(dict.fromkeys(self.of_node.values()))


class RegionGraph:
    """What owners know of each other's regions: links between regions, and what it costs to go through each.

    ``crossings`` are (node, node, Mb/s) of links from one region to another. ``through_mbps`` says, by region and pair
    of its nodes, what the best multipath carries there: from and to ends of crossings, and of flows. A pair that is
    missing is not connected.
    """

    def __init__(
        self,
        regions: Regions,
        crossings: Sequence[tuple[str, str, float]],
        through_mbps: Mapping[tuple[str, str], float],
    ) -> None:
        self._regions = regions
        self._out: dict[str, list[tuple[str, float]]] = defaultdict(list)
        for source, target, capacity_mbps in crossings:
            if capacity_mbps > 0:
                self._out[source].append((target, 1.0 / capacity_mbps))
        for (source, target), capacity_mbps in through_mbps.items():
            if capacity_mbps > 0 and source != target:
                self._out[source].append((target, 1.0 / capacity_mbps))

    def segments(self, source: str, target: str) -> tuple[Segment, ...]:
        """The chain with the least time per bit; one segment if both ends are in one region and the way stays there.

        Dijkstra's algorithm over ends of crossings. ``NoRouteError`` if there is no way.
        """
        before: dict[str, str] = {}
        cost = {source: 0.0}
        queue = [(0.0, source)]
        while queue:
            so_far, node = heapq.heappop(queue)
            if node == target:
                break
            if so_far > cost[node]:
                continue
            for other, price in self._out[node]:
                if so_far + price < cost.get(other, math.inf):
                    cost[other], before[other] = so_far + price, node
                    heapq.heappush(queue, (so_far + price, other))
        if target not in cost:
            raise NoRouteError(f"no way over regions from {source} to {target}")
        way = [target]
        while way[-1] != source:
            way.append(before[way[-1]])
        return self._joined(way[::-1])

    def _joined(self, way: Sequence[str]) -> tuple[Segment, ...]:
        """Nodes on the way -> segments: a link out of a region ends its segment at the far end."""
        of_node = self._regions.of_node
        found: list[Segment] = []
        start = way[0]
        for here, there in itertools.pairwise(way):
            if of_node[here] != of_node[there]:
                found.append(Segment(of_node[start], start, there))
                start = there
        if start != way[-1] or not found:
            found.append(Segment(of_node[start], start, way[-1]))
        return tuple(found)

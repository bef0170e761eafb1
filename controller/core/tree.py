"""The exploration tree: the best multipaths of one flow (Henri, EPFL thesis 9056, 2018, chapter 2).

The root is the network. From a vertex G there is one edge per path P of n-shortest(G), of weight R(P) in G, to the
child update(P, G). A branch ends where no path is left or at the depth cap; the multipath of a leaf is its branch,
its estimated capacity the sum of the weights. The arms are the N best leaves with distinct sets of paths.

*R(P)* is the rate of a path, and *update(P, G)* what it leaves to the others (thesis [2.8]):

    load(l) = sum of d_m over the links m of P in I_l          (busy time of l per unit of rate of P)
    R(P)    = 1 / max over l in P of load(l)
    update: C(l) <- max(0, C(l) (1 - R(P) load(l))) for every l that interferes with P

Sums run in the order of the path, so that the compiled kernel gives the same floats.

*n-shortest(G)* are the n shortest loop-free paths on the graph of interfaces: Yen, "Finding the K shortest loopless
paths in a network", Management Science 17 (1971), with the partition of Lawler (Management Science 18, 1972). The
paths that begin with a given prefix and leave it on none of its banned links form a subspace; the best path of a
subspace splits it into smaller ones, so no path is found twice. Two things make it fast: a subspace is searched only
when its lower bound is the smallest of all, and every search is an A* whose heuristic is the exact distance to the
target without bans (one backward Dijkstra per call).

*Order.* Paths are ordered by cost, then by the sequence of link indices; arms by estimated capacity (rounded to 2^-40
of the fastest link, so that rounding noise decides nothing), then fewer paths, fewer links, earlier exploration. The
result is the same for every correct algorithm, and depends on no name.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .interface_graph import (
    NO_TECHNOLOGY,
    Distances,
    FloatArray,
    InterfaceGraph,
    Metric,
    Multipath,
    Path,
    RatedPath,
    distances_to,
    metric_of,
)
from .interference import Interference

# A share of airtime below this is rounding noise: the link is full.
NEGLIGIBLE_AIRTIME = 1e-9


def path_load(interference: Interference, capacities_mbps: FloatArray, path: Path) -> FloatArray:
    """Busy time of every link per Mb/s on the path, float64[L] in s/Mb; the capacities are float64[L] in Mb/s."""
    load = np.zeros_like(capacities_mbps)
    for link in path:
        load[interference.domain(link)] += 1.0 / capacities_mbps[link]
    return load


def path_rate(interference: Interference, capacities_mbps: FloatArray, path: Path) -> float:
    """R(P) in Mb/s: what the path carries alone, as far as the airtime of its own links goes."""
    load = path_load(interference, capacities_mbps, path)
    return 1.0 / max(float(load[link]) for link in path)


def update(interference: Interference, capacities_mbps: FloatArray, path: Path) -> FloatArray:
    """Capacities, float64[L] in Mb/s, that are left when the path is used at R(P). A bottleneck of it gets 0."""
    load = path_load(interference, capacities_mbps, path)
    greatest = max(float(load[link]) for link in path)
    remaining = 1.0 - load / greatest
    remaining[remaining < NEGLIGIBLE_AIRTIME] = 0.0
    left: FloatArray = capacities_mbps * remaining
    return left


@dataclass(frozen=True, slots=True)
class _Search:
    """One source and target in one vertex of the tree."""

    metric: Metric
    source: int
    target: int
    distances: Distances


def n_shortest(metric: Metric, source: int, target: int, n: int) -> list[Path]:
    """The ``n`` best loop-free paths from node ``source`` to node ``target``, best first; fewer if fewer exist."""
    search = _Search(metric, source, target, distances_to(metric, target, source))
    banned: dict[Path, set[int]] = {(): set()}
    found: list[Path] = []
    # Entries are (lower bound, 0, prefix, prefix) for a subspace not searched yet and (cost, 1, path, prefix) for its
    # best path. Of equal costs the unsearched come first: one of them may hold a path of smaller order.
    queue: list[tuple[int, int, Path, Path]] = []
    _push_subspace(search, (), banned, queue)
    while queue and len(found) < n:
        _, searched, path, prefix = heapq.heappop(queue)
        if not searched:
            best = _best_of_subspace(search, prefix, banned[prefix])
            if best is not None:
                heapq.heappush(queue, (metric.cost(best), 1, best, prefix))
            continue
        found.append(path)
        for length in range(len(prefix), len(path)):
            banned.setdefault(path[:length], set()).add(path[length])
            _push_subspace(search, path[:length], banned, queue)
    return found


def _visited(search: _Search, prefix: Path) -> set[int]:
    return {search.source, *(search.metric.graph.target[link] for link in prefix)}


def _end_state(search: _Search, prefix: Path) -> tuple[int, int]:
    graph = search.metric.graph
    return (graph.target[prefix[-1]], graph.technology[prefix[-1]]) if prefix else (search.source, NO_TECHNOLOGY)


def _onward(search: _Search, state: tuple[int, int], visited: set[int], banned: set[int]) -> list[tuple[int, int, int]]:
    """(cost of the step, least cost from its end to the target, link) of every way to go on from a state."""
    metric, graph, distances = search.metric, search.metric.graph, search.distances
    node, came_in_on = state
    ways = []
    for link in graph.egress[node]:
        end = graph.target[link]
        if not metric.weights[link] or link in banned or end in visited:
            continue
        if end != search.target and not graph.relays[end]:
            continue
        rest = distances.get((end, graph.technology[link]))
        if rest is not None:
            ways.append((metric.step(link, came_in_on), rest, link))
    return ways


def _push_subspace(
    search: _Search, prefix: Path, banned: dict[Path, set[int]], queue: list[tuple[int, int, Path, Path]]
) -> None:
    """Queue a subspace with its lower bound: the cost of the prefix and of the cheapest way on, loops allowed."""
    ways = _onward(search, _end_state(search, prefix), _visited(search, prefix), banned[prefix])
    if ways:
        bound = search.metric.cost(prefix) + min(step + rest for step, rest, _ in ways)
        heapq.heappush(queue, (bound, 0, prefix, prefix))


def _best_of_subspace(search: _Search, prefix: Path, banned: set[int]) -> Path | None:
    """Best path that begins with ``prefix`` and leaves it on no banned link (A*: Hart, Nilsson, Raphael 1968).

    The queue is ordered by (f, g, path). The heuristic is consistent and every step costs something, so all
    cheapest ways into a state are queued before the state is settled, the one of smallest order on top.
    """
    graph, visited = search.metric.graph, _visited(search, prefix)
    settled: set[tuple[int, int]] = set()
    queue: list[tuple[int, int, Path]] = [(0, 0, prefix)]
    while queue:
        _, cost, path = heapq.heappop(queue)
        state = _end_state(search, path)
        if state in settled:
            continue
        settled.add(state)
        if state[0] == search.target:
            return path
        for step, rest, link in _onward(search, state, visited, banned if path == prefix else set()):
            if (graph.target[link], graph.technology[link]) not in settled:
                heapq.heappush(queue, (cost + step + rest, cost + step, (*path, link)))
    return None


ESTIMATE_UNITS = 2.0**40


@dataclass(frozen=True, slots=True)
class TreeQuery:
    """One flow to plan: node numbers, and the widths ``shortest`` (n), ``depth`` and ``arms`` (N)."""

    source: int
    target: int
    shortest: int
    depth: int
    arms: int


@dataclass(frozen=True, slots=True)
class TreeResult:
    """The single shortest path at R(P), and the arms, best first; both empty-handed if there is no path."""

    single_path: RatedPath | None
    arms: tuple[Multipath, ...]


def explore(
    graph: InterfaceGraph, interference: Interference, capacities_mbps: FloatArray, query: TreeQuery
) -> TreeResult:
    """Explore the whole tree; capacities are float64[L] in Mb/s."""
    single: RatedPath | None = None
    best: dict[frozenset[tuple[int, ...]], Multipath] = {}
    for branch in _branches(graph, interference, capacities_mbps, query, ()):
        single = single or branch[0]
        multipath = Multipath(branch)
        known = best.get(multipath.identity)
        # Strictly better: of equal estimates the branch that was explored first stays.
        if known is None or _units(graph, multipath) > _units(graph, known):
            best.pop(multipath.identity, None)
            best[multipath.identity] = multipath
    ordered = sorted(best.values(), key=lambda multipath: _rank(graph, multipath))
    return TreeResult(single, tuple(ordered[: query.arms]))


def _branches(
    graph: InterfaceGraph,
    interference: Interference,
    capacities_mbps: FloatArray,
    query: TreeQuery,
    branch: tuple[RatedPath, ...],
) -> Iterator[tuple[RatedPath, ...]]:
    """All branches below a vertex, depth first, in the order of their paths' costs."""
    paths = []
    if len(branch) < query.depth:
        paths = n_shortest(metric_of(graph, capacities_mbps), query.source, query.target, query.shortest)
    if not paths:
        if branch:
            yield branch
        return
    for path in paths:
        longer = (*branch, RatedPath(path, path_rate(interference, capacities_mbps, path)))
        if len(longer) == query.depth:
            yield longer
        else:
            left = update(interference, capacities_mbps, path)
            yield from _branches(graph, interference, left, query, longer)


def _units(graph: InterfaceGraph, multipath: Multipath) -> int:
    return math.floor(multipath.total_mbps * (ESTIMATE_UNITS / graph.unit_mbps) + 0.5)


def _rank(graph: InterfaceGraph, multipath: Multipath) -> tuple[int, int, int]:
    return -_units(graph, multipath), len(multipath.paths), sum(len(path) for path in multipath.links)

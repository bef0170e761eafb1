"""The n shortest loop-free paths on the graph of interfaces (spec 01, section 1.2: n-shortest(G)).

Yen, "Finding the K shortest loopless paths in a network", Management Science 17 (1971), with the partition of
Lawler (Management Science 18, 1972): the paths that begin with a given prefix and leave it on none of its
banned links form a subspace; the best path of a subspace splits it into smaller ones, so no path is found twice.
Two things make it fast: a subspace is searched only when its lower bound is the smallest of all, and every search
is an A* whose heuristic is the exact distance to the target without bans (one backward Dijkstra per call).

Paths are in a *total* order: cost, then the sequence of link indices. The result is therefore one and the same
for every correct algorithm, and depends on no name.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from hyroads.controller.core.interface_graph import NO_TECHNOLOGY, Distances, Metric, distances_to
from hyroads.controller.core.paths import Path


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

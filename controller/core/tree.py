"""The exploration tree: the best multipaths of one flow (spec 01, section 1.4; thesis, chapter 2).

The root is the network. From a vertex G there is one edge per path P of n-shortest(G), of weight R(P) in G, to the
child update(P, G). A branch ends where no path is left or at the depth cap; the multipath of a leaf is its branch,
its estimated capacity the sum of the weights. The arms are the N best leaves with distinct sets of paths.

Order of arms: estimated capacity (rounded to 2^-40 of the fastest link, so that rounding noise decides
nothing), then fewer paths, then fewer links in all, then the order of exploration, which is by the cost of the paths.
No name is looked at; only paths of exactly equal cost fall back on the order in which links are declared.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from hyroads.controller.core.capacity import path_rate, update
from hyroads.controller.core.interface_graph import FloatArray, InterfaceGraph, metric_of
from hyroads.controller.core.interference import Interference
from hyroads.controller.core.paths import Multipath, RatedPath
from hyroads.controller.core.shortest import n_shortest

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

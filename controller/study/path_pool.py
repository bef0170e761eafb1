"""How many paths the best multipath of one flow needs: exact optimum, fewest paths, and what a cap on them costs.

The optimum over *all* paths P of a flow [2.4 in Henri, EPFL thesis 9056, 2018], with the rows of every link:

    max  sum_P x_P   subject to   sum_P alpha_{P,l} x_P <= 1 for every link l,   x >= 0
    alpha_{P,l} = sum of d_m over the links m of P in I_l,   d = 1 / capacity

Columns are generated (Dantzig and Wolfe, Operations Research 8, 1960). With the prices gamma of the rows a Mb/s on a
path costs q_P = sum_{l in P} d_l sum_{m in I_l} gamma_m, a shortest path with weights of 0 or more. Once no path costs
less than 1 the optimum over the known paths is that over all; before, weak duality bounds what is missing:
sum_m gamma_m / min_P q_P.

The fewest paths that carry 0.999 of it, M_opt, follow by mixed-integer programming (HiGHS; Huangfu and Hall, Math.
Prog. Comp. 10, 2018) over a pool: the paths that were generated, and those that cost little more than 1. What costs
more than 1 can be no part of an optimal multipath, and hardly a part of one of 0.999. A pool that lacks a path can only
make M_opt too great.
"""

from __future__ import annotations

import ctypes
import heapq
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, linprog, milp

from hyroads.controller.core.errors import PlanningError
from hyroads.controller.core.interface_graph import InterfaceGraph, Path, interface_graph
from hyroads.controller.core.interference import Interference
from hyroads.controller.core.network import Network
from hyroads.controller.core.optimum import binding_rows

FloatArray = NDArray[np.float64]

NEARLY = 0.999
"""Share of the optimum that the fewest paths have to carry."""
# A path that costs up to so much is in the pool; at most so many of them, found among at most so many beginnings.
DEAREST = 1.05
MOST_MORE, _MOST_STEPS = 40, 4000
_MOST_ROUNDS = 500
_CHEAPER = 1e-7
# Among paths of one price the shorter is taken: links of idle domains cost nothing.
_HOP = 1e-9
# Below this share of the optimum a rate is the solver's rounding.
_NOTHING = 1e-7


def maximal_domains(interference: Interference) -> FloatArray:
    """Those interference domains that no other contains: zeros and ones, float64[domains, L].

    The airtime of a domain is at most that of one that contains it, so the other rows of the optimum say nothing.
    """
    _, first = np.unique(interference.classes(), return_index=True)
    rows = interference.contention_matrix().tocsr()[first].astype(np.float32).toarray()
    shared = rows @ rows.T
    within = shared >= shared.diagonal()[:, None]  # row i is part of row j
    np.fill_diagonal(within, False)
    equal = within & within.T
    is_contained = (within & ~equal).any(axis=1) | np.triu(equal, 1).any(axis=0)
    largest: FloatArray = rows[~is_contained].astype(np.float64)
    return largest


@dataclass(frozen=True, eq=False)
class PathProgram:
    """The linear program of one flow. ``domains`` as in :func:`maximal_domains`, ``airtime`` d in s/Mb, float64[L]."""

    graph: InterfaceGraph
    domains: FloatArray
    airtime: FloatArray
    source: int
    target: int

    @staticmethod
    def of(network: Network, source: str, target: str) -> PathProgram:
        """``PlanningError`` if a node is not known, or both are the same. Links of capacity 0 do not exist."""
        graph, capacities = interface_graph(network), network.capacities
        if source == target:
            raise PlanningError(f"a flow needs two nodes, got {source!r} twice")
        airtime = np.divide(1.0, capacities, out=np.full(len(capacities), np.inf), where=capacities > 0)
        domains = maximal_domains(network.interference)
        return PathProgram(graph, domains, airtime, graph.node(source), graph.node(target))

    def column(self, path: Path) -> FloatArray:
        """alpha of a path in every domain, float64[domains] in s/Mb."""
        links = list(path)
        found: FloatArray = self.domains[:, links] @ self.airtime[links]
        return found

    def weights(self, prices: FloatArray) -> FloatArray:
        """Price of a Mb/s over every link, float64[L], for prices of the domains, float64[domains]."""
        paid = self.domains.T @ prices
        weights = np.full(len(paid), np.inf)
        np.multiply(paid, self.airtime, out=weights, where=np.isfinite(self.airtime))
        return weights

    def cheapest(self, prices: FloatArray) -> tuple[float, Path]:
        """The cheapest path and its price; inf and no link if there is no path."""
        weights = self.weights(prices)
        hop = _HOP * float(weights.max(initial=0.0, where=np.isfinite(weights)))
        distance, towards = self._distances((weights + hop).tolist())
        if not np.isfinite(distance[self.source]):
            return float("inf"), ()
        path, node = [], self.source
        while node != self.target:
            path.append(towards[node])
            node = self.graph.target[towards[node]]
        return float(weights[path].sum()), tuple(path)

    def _distances(self, weights: Sequence[float]) -> tuple[list[float], list[int]]:
        """Price from every node to the target, and the first link on the way there (Dijkstra 1959, backwards)."""
        graph, count = self.graph, len(self.graph.ingress)
        distance, towards, settled = [float("inf")] * count, [-1] * count, [False] * count
        distance[self.target] = 0.0
        queue = [(0.0, self.target)]
        while queue:
            price, node = heapq.heappop(queue)
            if settled[node]:
                continue
            settled[node] = True
            if node != self.target and not graph.relays[node]:
                continue
            for link in graph.ingress[node]:
                before = graph.source[link]
                if price + weights[link] < distance[before]:
                    distance[before], towards[before] = price + weights[link], link
                    heapq.heappush(queue, (distance[before], before))
        return distance, towards

    def paths_by_price(self, prices: FloatArray, dearest: float, most: int) -> list[Path]:
        """Loop-free paths of at most ``dearest``, the cheapest first, ``most`` at most.

        Beginnings of paths are continued in the order of their price plus the least that the rest can cost. After a
        fixed number of them the search ends, so that zero prices cannot make it endless.
        """
        weights = self.weights(prices)
        priced = (weights + _HOP * float(weights.max(initial=0.0, where=np.isfinite(weights)))).tolist()
        rest, _ = self._distances(priced)
        found: list[Path] = []
        queue: list[tuple[float, Path, int]] = [(rest[self.source], (), self.source)]
        for _ in range(_MOST_STEPS):
            if not queue or len(found) == most:
                break
            least, path, node = heapq.heappop(queue)
            if node == self.target:
                found.append(path)
                continue
            been = {self.source, *(self.graph.target[link] for link in path)}
            if node != self.source and not self.graph.relays[node]:
                continue
            for link in self.graph.egress[node]:
                onward = self.graph.target[link]
                price = least - rest[node] + priced[link] + rest[onward]
                if onward not in been and price <= dearest:
                    heapq.heappush(queue, (price, (*path, link), onward))
        return found


@dataclass(frozen=True, eq=False)
class PathOptimum:
    """The optimum of one flow over all paths.

    ``columns`` is alpha of ``paths``, float64[domains, P] in s/Mb; ``rates_mbps`` float64[P]; ``prices`` those of the
    domains' airtime in Mb/s, float64[domains]. No multipath carries more than ``bound_mbps``.
    """

    total_mbps: float
    bound_mbps: float
    paths: tuple[Path, ...]
    columns: FloatArray
    rates_mbps: FloatArray
    prices: FloatArray


def optimum(program: PathProgram) -> PathOptimum | None:
    """The exact optimum by column generation; None if the target cannot be reached. ``PlanningError`` if that fails."""
    prices = np.ones(len(program.domains))
    price, path = program.cheapest(prices)
    if not path:
        return None
    paths: list[Path] = []
    columns: list[FloatArray] = []
    total, rates = 0.0, np.zeros(0)
    for _ in range(_MOST_ROUNDS):
        if paths and (price >= 1.0 - _CHEAPER or path in paths):
            bound = float(prices.sum()) / min(price, 1.0)
            return PathOptimum(total, bound, tuple(paths), np.column_stack(columns), rates, prices)
        paths.append(path)
        columns.append(program.column(path))
        total, rates, prices = best_rates(np.column_stack(columns))
        price, path = program.cheapest(prices)
    raise PlanningError(f"the optimum over all paths did not converge in {_MOST_ROUNDS} rounds")


def best_rates(columns: FloatArray) -> tuple[float, FloatArray, FloatArray]:
    """Optimum over given paths: total and rates [P] in Mb/s, and prices of the domains; ``columns`` float64[D, P]."""
    scale = float(columns.max())
    count, airtime = columns.shape[1], np.ones(len(columns))
    solved = linprog(-np.ones(count), A_ub=columns / scale, b_ub=airtime, method="highs")
    if solved.x is None:
        raise PlanningError(f"no optimum of the paths: {solved.message}")
    rates: FloatArray = np.maximum(solved.x, 0.0) / scale
    return float(rates.sum()), rates, np.maximum(-solved.ineqlin.marginals, 0.0) / scale


def pool_of(program: PathProgram, found: PathOptimum) -> tuple[tuple[Path, ...], FloatArray]:
    """The paths among which the fewest are sought, and their columns, float64[domains, P]."""
    more = program.paths_by_price(found.prices, DEAREST, MOST_MORE)
    known = set(found.paths)
    fresh = [path for path in more if path not in known]
    columns = np.column_stack([found.columns, *(program.column(path) for path in fresh)])
    return (*found.paths, *fresh), columns


@dataclass(frozen=True, eq=False)
class Fewest:
    """``chosen``: indices of the paths, largest rate first; ``rates_mbps`` their best rates, float64[M]."""

    chosen: tuple[int, ...]
    rates_mbps: FloatArray

    @property
    def count(self) -> int:
        """M, the number of paths."""
        return len(self.chosen)

    @property
    def total_mbps(self) -> float:
        """What they carry together."""
        return float(self.rates_mbps.sum())


def fewest_paths(columns: FloatArray, total_mbps: float, share: float = NEARLY) -> Fewest:
    """The fewest of the paths that carry ``share`` of ``total_mbps``, their optimum.

    ``columns`` is alpha, float64[domains, P] in s/Mb. ``PlanningError`` if they cannot carry that much.
    """
    count = columns.shape[1]
    enough = LinearConstraint(np.concatenate([np.ones(count), np.zeros(count)])[None], lb=share)
    return _chosen(columns, total_mbps, np.concatenate([np.zeros(count), np.ones(count)]), [enough])


def best_of_at_most(columns: FloatArray, total_mbps: float, most: int) -> Fewest:
    """The ``most`` paths that carry the most together; arguments as for :func:`fewest_paths`."""
    count = columns.shape[1]
    few = LinearConstraint(np.concatenate([np.zeros(count), np.ones(count)])[None], ub=most)
    return _chosen(columns, total_mbps, np.concatenate([-np.ones(count), np.zeros(count)]), [few])


def _chosen(columns: FloatArray, total_mbps: float, cost: FloatArray, more: list[LinearConstraint]) -> Fewest:
    """The mixed-integer program. Variables: shares of the total, then whether each path is used."""
    count = columns.shape[1]
    loads = binding_rows(columns * total_mbps)
    alone = 1.0 / loads.max(axis=0)  # the share that each path carries by itself
    airtime = LinearConstraint(np.hstack([loads, np.zeros_like(loads)]), ub=1.0)
    used = LinearConstraint(np.hstack([np.eye(count), -np.diag(alone)]), ub=0.0)
    with _silent_solver():
        solved = milp(
            cost,
            integrality=np.repeat([0, 1], count),
            bounds=Bounds(0.0, np.concatenate([alone, np.ones(count)])),
            constraints=[airtime, used, *more],
        )
    if solved.x is None:
        raise PlanningError(f"no choice of paths: {solved.message}")
    shares, is_used = solved.x[:count], solved.x[count:] > 0.5
    chosen = np.flatnonzero(is_used & (shares > _NOTHING))
    _, rates, _ = best_rates(columns[:, chosen])
    order = np.argsort(-rates, kind="stable")
    return Fewest(tuple(chosen[order].tolist()), rates[order])


@contextmanager
def _silent_solver() -> Iterator[None]:
    """HiGHS 1.8 to 1.12 writes lines of its own to standard output while it mends a rounded solution, asked or not
    (ERGO-Code/HiGHS, issue 2783). A command that prints a JSON document cannot have them there.
    """
    sys.stdout.flush()
    try:
        stdout, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    except OSError:  # there is no standard output
        yield
        return
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        ctypes.CDLL(None).fflush(None)
        os.dup2(stdout, 1)
        os.close(stdout)
        os.close(nowhere)


def error_of_cap(columns: FloatArray, fewest: Fewest, most: int, total_mbps: float) -> float:
    """e_K: the share of ``total_mbps`` that is lost when only the ``most`` paths of the largest rates are used."""
    if fewest.count <= most:
        return 0.0
    chosen_mbps, _, _ = best_rates(columns[:, list(fewest.chosen[:most])])
    return max(0.0, 1.0 - chosen_mbps / total_mbps)

"""Exact optima, of one multipath and of many flows at once. Formula numbers are those of Henri, EPFL thesis 9056, 2018.

*One multipath* [2.4], with the rows of *every* link of the network, solved by HiGHS (Huangfu and Hall, Math. Prog.
Comp. 10, 2018); links of capacity 0 do not exist:

    max  sum_P x_P   subject to   sum_P alpha_{P,l} x_P <= 1 - delta for every link l,   x >= 0
    alpha_{P,l} = sum of d_m over the links m of P in I_l

The same optimum follows from busy times alone, without capacities or domains (docs/explanation/bandit.md): busy time is
linear in the rates [2.2], so a probe, which sends at known rates and measures busy times, gives alpha.

*Many flows* at once over *all* their paths (the yardstick of emulated scenarios):

    max sum_f U_f(x_f)   subject to   B diag(d) R x <= 1 - delta - external,   x_f <= demand_f,   x >= 0

where R has a column for every loop-free path of every flow. Those are too many to list, so columns are generated
(Dantzig and Wolfe, Operations Research 8, 1960): solve with the paths known so far, take the prices gamma of the
domains, and add for every flow its cheapest path under q_P = sum_{l in P} d_l sum_{m in I_l} gamma_m [3.10], a
shortest path with weights that are 0 or more. When no flow has a cheaper path than those it uses, the optimum over
the known paths is that over all. Weak duality over all paths bounds what may still be missing:

    sum_f U_f(x_f*) <= sum_f max_{0 <= x <= D_f} (U_f(x) - q_f x) + sum_l gamma_l budget_l,   q_f = min over *all* P

The flows of a group are one flow in this (``rates.groups``): its paths are those of all members, each with the price of
what that member wants at most.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import linprog

from .errors import HyroadsError, PlanningError
from .interface_graph import FloatArray, InterfaceGraph, Path, interface_graph
from .network import FlowSpec, Network
from .rates import Allocation, RateProblem, rate_problem, solve
from .rates.groups import Merged, groups_of
from .rates.problem import sums_by
from .tree import path_load


def airtime_rows(network: Network, paths: Sequence[Path]) -> FloatArray:
    """alpha, float64[L, M] in s/Mb: busy time of every link of the network per Mb/s on each path.

    A path over a link of capacity 0 raises ``PlanningError``; rows of other links of capacity 0 are 0.
    """
    capacities = network.capacities
    for path in paths:
        if not all(capacities[link] > 0 for link in path):
            raise PlanningError("a path uses a link of capacity 0")
    columns = [path_load(network.interference, capacities, path) for path in paths]
    rows = np.array(columns, dtype=np.float64).reshape(len(paths), len(capacities)).T
    rows[capacities <= 0] = 0.0
    return rows


def binding_rows(rows: FloatArray) -> FloatArray:
    """The distinct rows that no other row dominates: with few paths a handful instead of one per link."""
    remaining = np.unique(rows, axis=0)
    if len(remaining) > 1000:  # the comparison of all pairs costs more than the solver then
        return remaining
    dominated = (remaining[None, :, :] >= remaining[:, None, :]).all(axis=2) & ~np.eye(len(remaining), dtype=bool)
    return remaining[~dominated.any(axis=1)]


def multipath_rates(network: Network, paths: Sequence[Path], margin: float = 0.0) -> FloatArray:
    """Rates of the optimum, float64[M] in Mb/s, when every link may be busy for the share 1 - ``margin``."""
    if not paths:
        return np.zeros(0)
    rows = binding_rows(airtime_rows(network, paths))
    # Scaled so that the greatest coefficient is 1: tolerances of the solver are absolute.
    scale = float(rows.max())
    solved = linprog(-np.ones(len(paths)), A_ub=rows / scale, b_ub=np.ones(len(rows)), method="highs")
    if solved.x is None:
        raise PlanningError(f"no optimum of the multipath: {solved.message}")
    return np.asarray(solved.x, dtype=np.float64) * ((1.0 - margin) / scale)


def multipath_optimum_mbps(network: Network, paths: Sequence[Path], margin: float = 0.0) -> float:
    """Total of :func:`multipath_rates` in Mb/s; 0 without paths."""
    return float(multipath_rates(network, paths, margin).sum())


class MeasurementError(HyroadsError):
    """Busy times do not tell the rates: some path was never measured, or values make no sense."""


def rates_from_airtime(
    airtime: FloatArray, flows_on_link: Sequence[float] | FloatArray, margin: float = 0.0
) -> FloatArray:
    """The optimal rates [M] in Mb/s for ``airtime`` alpha [L, M], F [L] >= 1 and delta = ``margin``.

    F_l is the number of flows that share link l. The maximum over links is biased by noise: rows of links that are busy
    at the same times should be averaged before. Raises :class:`MeasurementError` if a path made no link busy.
    """
    sharing = np.asarray(flows_on_link, dtype=np.float64)
    if airtime.ndim != 2 or sharing.shape != airtime.shape[:1] or not (sharing >= 1).all():
        raise MeasurementError("F must have one number, at least 1, per link")
    if not 0.0 <= margin < 1.0:
        raise MeasurementError(f"the margin must be in [0, 1), got {margin}")
    loads = airtime * (sharing / (1.0 - margin))[:, None]
    silent_paths = np.flatnonzero(~(loads > 0).any(axis=0))
    if len(silent_paths):
        raise MeasurementError(f"path {silent_paths[0]} made no link busy: its probe did not get through")
    if loads.shape[1] == 1:
        return np.asarray(1.0 / loads.max(axis=0))
    # Every path is scaled to its own best rate, so that the solver's absolute tolerances fit slow and fast paths alike.
    scale = loads.max(axis=0)
    rows = binding_rows(loads / scale)
    solved: Any = linprog(-1.0 / scale, A_ub=rows, b_ub=np.ones(len(rows)), method="highs")
    if solved.x is None:
        raise MeasurementError(f"no optimum from the measured busy times: {solved.message}")
    return np.asarray(np.maximum(solved.x, 0.0) / scale)


MAX_ROUNDS = 500
TARGET_GAP = 1e-5
# Links of idle domains cost nothing; among paths of equal price the one with fewer hops is taken.
_HOP = 1e-9

Known = dict[str, tuple[Path, ...]]
Cheapest = dict[str, tuple[float, Path]]


@dataclass(frozen=True, eq=False)
class JointOptimum:
    """Rates in Mb/s of all flows, the paths that were considered, and what ``utility`` may be short of at most.

    ``utility`` is sum_f U_f(x_f) over the flows that have a path at all; the others have rate 0. Flows of a group have
    one utility, that of their total rate.
    """

    rates_mbps: Mapping[str, float]
    network: Network
    paths: Mapping[str, tuple[Path, ...]]
    allocation: Allocation
    problem: RateProblem
    gap_utility: float
    merged: Merged | None = None

    @property
    def utility(self) -> float:
        """sum_f U_f(x_f)."""
        return self.allocation.utility

    def utility_of(self, rates_mbps: Mapping[str, float]) -> float:
        """The same sum at other rates; a flow that is not named has rate 0."""
        rates = np.array([rates_mbps.get(flow, 0.0) for flow in self.problem.layout.flow_ids], dtype=float)
        if self.merged is None:
            return self.problem.utilities.total(rates)
        totals = sums_by(self.merged.merged_of, rates, len(self.merged.first))
        return self.merged.problem(self.problem).utilities.total(totals)

    def technology_share(self, flow: str, technology: str) -> float:
        """Share of a flow's rate that takes paths over a technology (of the split that is returned)."""
        total = part = 0.0
        path_flow, layout = self.problem.layout.path_flow.tolist(), self.problem.layout
        for index, (owner, path) in enumerate(zip(path_flow, layout.paths, strict=True)):
            if layout.flow_ids[owner] == flow:
                rate = float(self.allocation.path_rates_mbps[index])
                total += rate
                part += rate if any(self.network.links[link].technology == technology for link in path) else 0.0
        return part / total if total else 0.0


def joint_optimum(
    network: Network,
    flows: Sequence[FlowSpec],
    *,
    margin: float = 0.0,
    external: Mapping[str, float] | None = None,
    demand_mbps: Mapping[str, float] | None = None,
) -> JointOptimum:
    """The optimum of ``flows`` when every link's domain may be busy for 1 - ``margin`` - ``external`` (by link id).

    Links of capacity 0 carry nothing, plain clients forward nothing; ``paths`` that flows declare are not looked at.
    Raises ``PlanningError`` for an unknown node or if it does not converge.
    """
    graph, weigh = interface_graph(network), _Weights(network)
    first = _cheapest(graph, weigh.at_prices(np.ones(len(network.links))), flows)
    known: Known = {flow: (path,) for flow, (_, path) in first.items()}
    reachable = [flow for flow in flows if flow.id in known]
    wanted = {flow.id: (demand_mbps or {}).get(flow.id, np.inf) for flow in reachable}
    for _ in range(MAX_ROUNDS):
        problem = rate_problem(
            network, known, flows=reachable, margin=margin, external=external, demand_mbps=wanted
        )  # fmt: skip
        merged = Merged.of(problem.layout, groups_of(reachable))
        used = problem if merged is None else merged.problem(problem)
        solved = solve(used)
        cheapest = _cheapest(graph, weigh.at_prices(solved.link_prices[: len(network.links)]), reachable)
        gap = _gap(used, solved, _prices(problem, used, merged, solved, cheapest))
        fresh = {flow: path for flow, (_, path) in cheapest.items() if path not in known[flow]}
        if not fresh or gap <= TARGET_GAP * max(1.0, abs(solved.utility)):
            solved = solved if merged is None else merged.allocation(problem, solved)
            rates = dict(zip(problem.layout.flow_ids, solved.flow_rates_mbps.tolist(), strict=True))
            all_rates = {flow.id: rates.get(flow.id, 0.0) for flow in flows}
            return JointOptimum(all_rates, network, known, solved, problem, gap, merged)
        known = {flow: (*paths, fresh[flow]) if flow in fresh else paths for flow, paths in known.items()}
    raise PlanningError(f"the joint optimum did not converge in {MAX_ROUNDS} rounds")


class _Weights:
    """Price of a Mb/s over every link, d_l sum_{m in I_l} gamma_m, for any prices gamma."""

    def __init__(self, network: Network) -> None:
        capacities = network.capacities
        self._usable = capacities > 0
        self._airtime = np.divide(1.0, capacities, out=np.zeros_like(capacities), where=self._usable)
        self._contention = network.interference.contention_matrix()

    def at_prices(self, link_prices: FloatArray) -> list[float]:
        """float[L]; infinite where there is no capacity."""
        weights = self._airtime * np.asarray(self._contention @ link_prices)
        hop = _HOP * float(weights.max(initial=0.0))
        found: list[float] = np.where(self._usable, weights + hop, np.inf).tolist()
        return found


def _cheapest(graph: InterfaceGraph, weights: list[float], flows: Sequence[FlowSpec]) -> Cheapest:
    """Per flow the cheapest path and its price; flows without a path are left out."""
    found: Cheapest = {}
    for flow in flows:
        path = _shortest(graph, weights, graph.node(flow.source), graph.node(flow.target))
        if path:
            found[flow.id] = (sum(weights[link] for link in path), path)
    return found


def _shortest(graph: InterfaceGraph, weights: list[float], start: int, end: int) -> Path:
    """Dijkstra 1959 over nodes; empty if there is no way (or nowhere to go)."""
    queue: list[tuple[float, int, int]] = [(0.0, start, -1)]
    came_over: dict[int, int] = {}
    while queue:
        cost, node, link = heapq.heappop(queue)
        if node in came_over:
            continue
        came_over[node] = link
        if node == end:
            break
        if node != start and not graph.relays[node]:
            continue
        for onward in graph.egress[node]:
            if weights[onward] < np.inf and graph.target[onward] not in came_over:
                heapq.heappush(queue, (cost + weights[onward], graph.target[onward], onward))
    if end not in came_over:
        return ()
    path: list[int] = []
    node = end
    while node != start:
        path.append(came_over[node])
        node = graph.source[came_over[node]]
    return tuple(reversed(path))


def _prices(
    problem: RateProblem, used: RateProblem, merged: Merged | None, solved: Allocation, cheapest: Cheapest
) -> FloatArray:
    """Of each flow of the problem that was solved the cheapest path's price, over all paths of all its members."""
    prices = np.array([cheapest[flow][0] for flow in problem.layout.flow_ids], dtype=float)
    if merged is None:
        return prices
    count = problem.layout.link_count
    wanted, paid = used.capacity_mbps[count:], solved.link_prices[count:]
    prices[merged.limited] += np.divide(paid, wanted, out=np.full(len(wanted), np.inf), where=wanted > 0)
    least = np.full(len(merged.first), np.inf)
    np.minimum.at(least, merged.merged_of, prices)
    return least


def _gap(problem: RateProblem, solved: Allocation, prices: FloatArray) -> float:
    """What the utility may be short of over all paths, by weak duality; inf where linear utilities give no bound."""
    bound = problem.utilities.conjugates(prices, problem.demand_mbps).sum() + solved.link_prices @ problem.budget
    return max(0.0, float(bound) - solved.utility)

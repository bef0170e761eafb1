"""Minimum rates in the allocation, exactly: maximise sum_f U_f(x_f) subject to the airtime rows *and* x_f >= m_f.

A flow with a minimum is solved as two flows on the same paths: a *guaranteed* one that wants m_f, with the linear
utility W r, and the *rest* with U_f(m_f + y). For any W above the price q_f of the flow's cheapest path both problems
have the same optimum: the guaranteed flow's condition W - q_f = nu_f >= 0 holds with r = m_f, and the rest's is
U'_f(m_f + y) <= q_f with equality if y > 0, which is that of the constrained problem (an exact penalty; Bertsekas,
"Necessary and sufficient conditions for a penalty method to be exact", Math. Prog. 9, 1975). W is raised until every
guarantee is met, so nothing rests on a guess, and the solver's certificate bounds the constrained problem as well.

Whether minimums can be met at all is a linear program; where they can't, later ones give way first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from hyroads.controller.core.errors import PlanningError

from .allocation import Allocation
from .problem import FloatArray, Layout, RateProblem
from .solver import solve
from .utilities import Utilities

_MET = 1e-7
_RAISE = 10.0
_MAX_RAISES = 12
_AHEAD = 4.0
# A guarantee is rounded down by so much of what is possible, so that the solver has an inside to work in.
_ROOM = 1e-6
_UNBOUNDED = 3
# Mb/s that a share of airtime would bring: less is rounding.
_PRICED = 1e-9


@dataclass(frozen=True, eq=False)
class Guaranteed:
    """An allocation with minimums. ``minimum_mbps[F]`` is what could be guaranteed: as asked for, or less.

    ``split`` is the allocation of the split problem, from which the next slot starts warm; None if none was needed.
    """

    allocation: Allocation
    minimum_mbps: FloatArray
    split: Allocation | None


def solve_with_minimums(
    problem: RateProblem,
    minimum_mbps: FloatArray,
    *,
    order: Sequence[int] | None = None,
    warm: Guaranteed | None = None,
) -> Guaranteed:
    """The optimal rates of a slot with a minimum for each flow, float64[F] in Mb/s (0: none).

    Minimums beyond a flow's demand count up to it. If not all can be met, those of flows that come first in ``order``
    (flow indices; default: as declared) are met before the others. Raises ``PlanningError`` for a wrong shape.
    """
    valid = (minimum_mbps >= 0) & np.isfinite(minimum_mbps)
    if minimum_mbps.shape != (problem.layout.flow_count,) or not valid.all():
        raise PlanningError(f"minimum_mbps must have {problem.layout.flow_count} entries, finite and 0 or more")
    wanted = np.minimum(minimum_mbps, problem.demand_mbps)
    free = solve(problem, warm.allocation if warm is not None else None)
    if np.all(free.flow_rates_mbps >= wanted * (1 - _MET)):
        return Guaranteed(free, wanted, None)
    promised = _possible(problem, wanted, range(len(wanted)) if order is None else order)
    split = _split(problem.layout, tuple(np.flatnonzero(promised > 0).tolist()))
    if not split.flows:
        return Guaranteed(free, promised, None)
    start = warm.split if warm is not None else None
    weights = _AHEAD * _prices(problem, free)
    for _ in range(_MAX_RAISES):
        solved = solve(split.problem(problem, promised, weights), start)
        guaranteed = solved.flow_rates_mbps[problem.layout.flow_count :]
        short = guaranteed < promised[list(split.flows)] * (1 - _MET)
        if not short.any():
            return Guaranteed(split.merged(problem, solved), promised, solved)
        weights[np.asarray(split.flows)[short]] *= _RAISE
        start = solved
    raise PlanningError("no weight makes the guaranteed rates hold")


def bounded_rate(
    problem: RateProblem,
    minimum_mbps: FloatArray,
    *,
    flow: int | None = None,
    airtime_per_mbps: FloatArray | None = None,
    most_mbps: float = np.inf,
) -> tuple[float, tuple[int, ...]]:
    """The largest rate that leaves all minimums possible, and what bounds it.

    The rate is that of ``flow``, or of something that takes ``airtime_per_mbps[L]`` of every link's domain, in Mb/s, at
    most ``most_mbps``; it is -1 if the minimums (float64[F]) are not possible as they are. It is bounded by the classes
    of links (``Layout.class_of``) that are returned: their domains are full.
    """
    layout, paths = problem.layout, problem.layout.path_count
    extra = np.zeros(layout.link_count) if airtime_per_mbps is None else airtime_per_mbps
    rows = layout.domains @ sparse.diags(problem.inverse_capacity) @ layout.routing.T
    budget, busy = np.full(rows.shape[0], np.inf), np.zeros(rows.shape[0])
    # Links of one class have one domain: of their rows the tightest holds.
    np.minimum.at(budget, layout.class_of, problem.row_budget)
    np.maximum.at(busy, layout.class_of, extra)
    # Classes without an existing link limit nothing.
    there = np.flatnonzero(np.isfinite(budget))
    bounds, most = _bound_rows(problem, rows)
    rows, budget, busy = rows[there], budget[there], busy[there]
    full_rows = len(there)
    rows, budget = sparse.vstack([rows, bounds]), np.concatenate([budget, most])
    busy = np.concatenate([busy, np.zeros(len(most))])
    usable = np.asarray(layout.routing @ (problem.capacity_mbps <= 0).astype(float)) == 0
    owner = sparse.csr_matrix((np.ones(paths), (layout.path_flow, np.arange(paths))), shape=(layout.flow_count, paths))
    own = np.zeros(layout.flow_count)
    if flow is not None:
        own[flow] = 1.0
    # The last variable is the rate that is sought: with a flow it counts against that flow's paths.
    blocks: Any = [[rows, sparse.csr_matrix(busy[:, None])], [-owner, sparse.csr_matrix(own[:, None])]]
    limits: Any = sparse.bmat(blocks)
    least = np.where(own > 0, 0.0, minimum_mbps)
    sought = 0.0 if flow is None and airtime_per_mbps is None else most_mbps
    bounds = [(0.0, np.inf if ok else 0.0) for ok in usable] + [(0.0, sought)]
    right = np.concatenate([budget, -least])
    gain = np.append(np.zeros(paths), -1.0)
    solved = linprog(gain, A_ub=limits.tocsr(), b_ub=right, bounds=bounds, method="highs")
    if solved.status == _UNBOUNDED:
        return float("inf"), ()
    if solved.x is None:
        return -1.0, ()
    full = np.flatnonzero(solved.ineqlin.marginals[:full_rows] < -_PRICED)
    return float(solved.x[-1]), tuple(full.tolist())


def _bound_rows(problem: RateProblem, rows: Any) -> tuple[Any, FloatArray]:
    """Airtime per Mb/s on each path and the most of it, for the bounds of a problem; ``rows`` are those of classes."""
    layout, bounds = problem.layout, problem.bounds
    if bounds is None:
        return sparse.csr_matrix((0, layout.path_count)), np.zeros(0)
    most = np.full((rows.shape[0], len(bounds.sets)), np.inf)
    np.minimum.at(most, layout.class_of, np.where(problem.capacity_mbps > 0, bounds.most, np.inf).T)
    most = most.T
    set_of, classes = np.nonzero(np.isfinite(most))
    is_in = bounds.sets[:, bounds.slice_of[layout.path_flow]].astype(float)
    parts = [rows[classes[set_of == k]] @ sparse.diags(is_in[k]) for k in range(len(is_in))]
    return sparse.vstack(parts, format="csr"), most[set_of, classes]


def _possible(problem: RateProblem, wanted: FloatArray, order: Sequence[int]) -> FloatArray:
    """The minimums, those in front before the others, with a little room."""
    if bounded_rate(problem, wanted / (1 - _ROOM))[0] >= 0:
        return wanted
    granted = np.zeros_like(wanted)
    for flow in (flow for flow in order if wanted[flow] > 0):
        most, _ = bounded_rate(problem, granted, flow=flow, most_mbps=float(wanted[flow]))
        granted[flow] = max(0.0, most) * (1 - _ROOM)
    return granted


def _prices(problem: RateProblem, free: Allocation) -> FloatArray:
    """A first guess of what a Mb/s costs each flow: its cheapest path without guarantees, at least its slope at 0."""
    prices = np.full(problem.layout.flow_count, np.inf)
    path_prices = problem.path_prices(free.link_prices, free.bound_prices)
    np.minimum.at(prices, problem.layout.path_flow, path_prices)
    finite = prices[np.isfinite(prices) & (prices > 0)]
    typical = float(finite.max()) if len(finite) else 1.0
    return np.where(np.isfinite(prices) & (prices > 0), prices, typical)


@dataclass(frozen=True, eq=False)
class _Split:
    """The layout with ``flows`` once more at the end, for their guaranteed parts."""

    layout: Layout
    flows: tuple[int, ...]
    again: tuple[int, ...]
    """Paths of these flows, in order."""

    def problem(self, problem: RateProblem, minimum_mbps: FloatArray, weights: FloatArray) -> RateProblem:
        """The split problem: rests first, in the order of the flows, then the guaranteed parts."""
        mine = list(self.flows)
        shift = problem.utilities.shift_mbps.copy()
        shift[mine] += minimum_mbps[mine]
        demand = problem.demand_mbps.copy()
        demand[mine] = np.maximum(0.0, demand[mine] - minimum_mbps[mine])
        zeros = np.zeros(len(mine))
        utilities = Utilities(
            np.concatenate([problem.utilities.weight, weights[mine]]),
            np.concatenate([problem.utilities.alpha, zeros]),
            np.concatenate([shift, zeros]),
        )
        demand = np.concatenate([demand, minimum_mbps[mine]])
        bounds = problem.bounds
        if bounds is not None:
            bounds = replace(bounds, slice_of=np.concatenate([bounds.slice_of, bounds.slice_of[mine]]))
        return replace(problem, layout=self.layout, utilities=utilities, demand_mbps=demand, bounds=bounds)

    def merged(self, problem: RateProblem, solved: Allocation) -> Allocation:
        """The allocation of the flows as they were."""
        layout, count = problem.layout, problem.layout.path_count
        rates = solved.path_rates_mbps[:count].copy()
        np.add.at(rates, list(self.again), solved.path_rates_mbps[count:])
        totals = layout.flow_rates(rates)
        utility = problem.utilities.total(totals)
        return replace(solved, layout=layout, path_rates_mbps=rates, flow_rates_mbps=totals, utility=utility)


@lru_cache(maxsize=8)
def _split(layout: Layout, flows: tuple[int, ...]) -> _Split:
    """The split layout of some flows; the last few are kept, so that the next slot starts warm."""
    slices = layout.path_slices()
    again = [index for flow in flows for index in range(slices[flow].start, slices[flow].stop)]
    sizes = [slices[flow].stop - slices[flow].start for flow in flows]
    owners = layout.flow_count + np.repeat(np.arange(len(flows)), sizes)
    doubled = replace(
        layout,
        flow_ids=layout.flow_ids + tuple(f"{layout.flow_ids[flow]} (guaranteed)" for flow in flows),
        path_flow=np.concatenate([layout.path_flow, owners.astype(np.intp)]),
        paths=layout.paths + tuple(layout.paths[index] for index in again),
        routing=sparse.csr_matrix(sparse.vstack([layout.routing, layout.routing[again]])),
    )
    return _Split(doubled, flows, tuple(again))

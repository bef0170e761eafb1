"""Exact rates: the optimum of the rate problem in one call, with a certificate (docs/explanation/rates.md).

The interior-point method of ``interior_point`` runs on few rows: first a set of loaded domains that covers every used
link, then, after each step, rows that the point violates, at most one per neighbourhood and step. It ends when *all*
rows of the network hold and the point is optimal for the rows it has: that is the optimum of the full problem.

The rates of flows are unique (for alpha > 0), their split over paths need not be. Among the optimal splits this
returns the one with the smallest sum of squares of path rates (weighted by p_f / (x_f + typical rate)): flows and
paths that look alike get alike rates, and the split moves continuously with the measurements. It is found by a
quadratic term too small to cost 1e-7 of the utility.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hyroads.controller.core.errors import PlanningError
from hyroads.controller.native.rates import Aside, kernel

from .allocation import Allocation, allocation, duality_gap, feasible_rates, utility_bound
from .interior_point import Flows, InteriorPoint, Iterate, Pace
from .native import Start, solve_native
from .problem import FloatArray, IndexArray, RateProblem, sums_by
from .reduction import Pattern, Reduced, reduce_problem
from .utilities import Utilities

MAX_STEPS = 100
_WARM_STEPS = 60
# Tried in turn: the usual pace, then shorter and better centred steps.
_PACES = (Pace(0.995, 0.0), Pace(0.9, 0.1), Pace(0.7, 0.3))
_REGULARISATION = 1e-8
_TARGET_MU = 1e-12
_TARGET_ERROR = 1e-9
_ROUNDING = 1e-5
# Rows are looked for once the point is this close to centred and feasible; before that it says little.
_SEARCH_MU = 0.3
_SEARCH_ERROR = 0.3
_OVERLAP = 0.8
_START_MU = 0.2
_FEW_ROWS = 24
# A cover of this many rows is thinned out: most rows of a large one never bind, and the matrix is dense.
_MANY_ROWS = 64
_THIN = 0.7
_UNCHANGED_GAP = 1e-8
_SLACK = 1e-5
_LARGE_ALPHA = 4.0
_WARM_MU = (1e-6, 1e-2)


def solve(problem: RateProblem, warm: Allocation | None = None, *, aside: Aside | None = None) -> Allocation:
    """The optimal rates of a slot; ``warm`` is the allocation of an earlier slot on the same layout (else ignored).
    ``aside``, if given, carries out what the compiled solver does, so that others can run meanwhile.

    Flows without a usable path (no path, no capacity, no airtime left, no demand) get 0. Raises ``PlanningError`` if
    the method fails to converge, which no valid problem is known to cause.
    """
    reduced = reduce_problem(problem, pattern_of(problem.layout))
    if not len(reduced.columns):
        return allocation(problem, reduced, np.zeros(0), np.zeros(len(reduced.budget)), steps=0, rows=0)
    usable = warm if warm is not None and warm.layout is problem.layout else None
    result = None if usable is None else _solve_warm(problem, reduced, usable, aside)
    for pace in _PACES if result is None else ():
        start = Start.cold(_easier_rates(problem, reduced))
        result = _attempt(problem, reduced, start, pace, MAX_STEPS, aside=aside)
        if result is not None:
            break
    if result is None:
        raise PlanningError(f"the rates did not converge in {MAX_STEPS} steps")
    return result


def _solve_warm(problem: RateProblem, reduced: Reduced, warm: Allocation, aside: Aside | None) -> Allocation | None:
    """The earlier rates if they are still optimal, else the optimum from there; None if that leads nowhere."""
    rates, prices = _recall(warm, reduced)
    if not rates.any():
        return None
    # Making rates feasible costs more than to look at their gap, which only grows by it.
    bound = utility_bound(reduced, prices)
    if _are_optimal(reduced, rates, bound):
        feasible = feasible_rates(reduced, rates)
        if _are_optimal(reduced, feasible, bound):
            return allocation(problem, reduced, feasible, prices, steps=0, rows=0)
    return _attempt(problem, reduced, Start(np.zeros(0), rates, prices), _PACES[0], _WARM_STEPS, aside=aside)


def _are_optimal(reduced: Reduced, rates: FloatArray, bound: float) -> bool:
    """Whether column rates, if they are feasible, miss nothing that counts: no others have more than ``bound``."""
    utility = reduced.utilities.total(sums_by(reduced.flow, rates, len(reduced.flows)))
    return max(0.0, bound - utility) <= _UNCHANGED_GAP * abs(utility)


def _attempt(
    problem: RateProblem, reduced: Reduced, start: Start, pace: Pace, max_steps: int, *, aside: Aside | None
) -> Allocation | None:
    """The optimum from a start, by the compiled solver if there is one; None if it isn't reached."""
    compiled = kernel()
    if compiled is None:
        cold = not len(start.warm_rates)
        search = _Search(problem, reduced, start.safe_mbps if cold else _safe_rates(reduced))
        method = search.cold_start(pace) if cold else search.warm_start(start.warm_rates, start.warm_prices)
        return search.run(method, max_steps)
    bold = {"boundary": pace.boundary, "centring": pace.centring}
    found = solve_native(compiled, reduced, start, **bold, max_steps=max_steps, aside=aside)
    if found is None:
        return None
    rates = feasible_rates(reduced, found.rates_mbps)
    return allocation(problem, reduced, rates, found.row_prices, steps=found.steps, rows=found.rows)


# The reduction of a layout, kept for the slots that share it (layouts compare by identity).
pattern_of = lru_cache(maxsize=16)(Pattern.of)


def _easier_rates(problem: RateProblem, reduced: Reduced) -> FloatArray:
    """Positive rates to start from: safe ones, or for a large alpha nearly those that are optimal for half of it.

    The slopes of a large alpha span many powers of ten between the safe rates and the optimal ones. Halving alpha
    with weight w^(1/2) keeps the slopes' order.
    """
    safe = _safe_rates(reduced)
    if not np.any(reduced.utilities.alpha > _LARGE_ALPHA):
        return safe
    whole = problem.utilities
    easier = Utilities(np.sqrt(whole.weight), whole.alpha / 2, whole.shift_mbps)
    found = solve(replace(problem, utilities=easier))
    pattern = reduced.pattern
    rates = sums_by(pattern.column_of, found.path_rates_mbps, len(pattern.copies))[reduced.columns]
    return np.asarray(0.95 * rates + 0.05 * safe)


def _recall(warm: Allocation, reduced: Reduced) -> tuple[FloatArray, FloatArray]:
    """Column rates and row prices of an earlier slot, in terms of this slot's reduced problem."""
    pattern = reduced.pattern
    rates = sums_by(pattern.column_of, warm.path_rates_mbps, len(pattern.copies))
    priced = np.flatnonzero(warm.link_prices)
    priced = priced[pattern.group_of[priced] >= 0]
    per_group = sums_by(pattern.group_of[priced], warm.link_prices[priced], pattern.rows.shape[0])
    per_row = per_group[reduced.groups]
    if len(reduced.sets):
        per_set = np.zeros((len(reduced.sets), len(per_group)))
        bounds = warm.bound_prices
        if bounds is not None and bounds.set_of.max(initial=-1) < len(per_set):
            np.add.at(per_set, (bounds.set_of, pattern.group_of[bounds.link]), bounds.price)
        per_row = np.where(reduced.set_of < 0, per_row, per_set[reduced.set_of, reduced.groups])
    return rates[reduced.columns], per_row * reduced.budget


class _Search:
    """One solution: scaling, the first rows and point, steps with added rows, and the way back to Mb/s."""

    def __init__(self, problem: RateProblem, reduced: Reduced, start_mbps: FloatArray) -> None:
        self.problem = problem
        self.given = reduced
        # As the steps see it, a row of some slices is a row like any other.
        self.reduced = reduced = reduced.spread_over_slices()
        self.start_mbps = start_mbps
        # Rates are scaled by a typical rate and utilities by a typical slope, so that tolerances mean the same in
        # every network.
        self.unit_mbps = float(np.exp(np.log(self.start_mbps).mean()))
        scaled = reduced.utilities.scaled(self.unit_mbps)
        slopes = scaled.log_slopes(sums_by(reduced.flow, self.start_mbps / self.unit_mbps, len(reduced.flows)))
        self.price_unit = float(np.exp(np.median(slopes)))
        self.flows = Flows.build(
            reduced.flow, scaled.weighted(1.0 / self.price_unit), reduced.demand_mbps / self.unit_mbps
        )
        self.chosen = np.zeros(0, dtype=np.intp)

    def cold_start(self, pace: Pace) -> InteriorPoint:
        """A feasible point that shares the busiest domain of each path equally, prices centred."""
        x = self.start_mbps / self.unit_mbps
        rows = self._choose(self._first_rows())
        total = self.flows.sums(x)
        flow_price = self.flows.utilities.slopes(total)
        slack = 1.0 - rows @ x
        mu = _START_MU * float(flow_price @ total) / len(slack)
        method = self._method(rows, x, slack, flow_price, mu=mu, pace=pace)
        if np.any(self.flows.utilities.alpha > _LARGE_ALPHA):
            return method
        # With the prices of rows raised until paths cost what their flows pay, the first steps are twice as long.
        cost = np.minimum.reduceat(method.point.row_price @ rows, self.flows.starts)
        method.price_rows(float(np.exp(np.median(np.log(flow_price / cost)))))
        return method

    def warm_start(self, rates_mbps: FloatArray, prices: FloatArray) -> InteriorPoint:
        """The earlier slot's point, moved away from the bounds by as much as its gap calls for."""
        reduced, unit = self.reduced, self.unit_mbps
        gap = duality_gap(reduced, feasible_rates(reduced, rates_mbps), prices)
        active = np.flatnonzero((prices > 0) | (reduced.loads(rates_mbps) > 1.0))
        rows = self._choose(active if len(reduced.budget) > _FEW_ROWS else np.arange(len(reduced.budget)))
        size = len(rates_mbps) + len(rows)
        flow_price = self.flows.utilities.slopes(self.flows.sums(np.maximum(rates_mbps / unit, 1e-3)))
        value = float(flow_price @ self.flows.sums(rates_mbps / unit)) / len(flow_price)
        mu = value * float(np.clip(gap / self.price_unit / size / value, *_WARM_MU))
        row_price = prices[self.chosen] / self.price_unit
        path_price = row_price @ rows
        cheapest = np.minimum.reduceat(path_price, self.flows.starts)
        x = _off_bound(rates_mbps / unit, path_price - cheapest[self.flows.of], mu)
        slack = _off_bound(1.0 - rows @ x, row_price, mu)
        return self._method(rows, x, slack, self.flows.utilities.slopes(self.flows.sums(x)), mu=mu, pace=_PACES[0])

    def run(self, method: InteriorPoint, max_steps: int) -> Allocation | None:
        """Iterate to the optimum; None if it isn't reached in so many steps."""
        last = np.inf
        for step in range(1, max_steps + 1):
            method.step()
            mu, error = method.relative_mu(), method.error()
            added = mu < _SEARCH_MU and error < _SEARCH_ERROR and self._add_violated(method)
            # Once complementary, an error that no longer falls is rounding; the certificate tells whether it matters.
            stuck = error < _ROUNDING and error > 0.5 * last
            if not added and mu < _TARGET_MU and (error < _TARGET_ERROR or stuck):
                return self._finish(method, step)
            last = error
        return None

    def _method(
        self, rows: FloatArray, x: FloatArray, slack: FloatArray, flow_price: FloatArray, *, mu: float, pace: Pace
    ) -> InteriorPoint:
        demand = self.flows.demand
        spare = np.maximum(demand - self.flows.sums(x)[self.flows.limited], 0.05 * demand)
        slack = np.maximum(slack, 0.02 if mu > 1e-3 else mu)
        point = Iterate(x, slack, spare, mu / slack, mu / x, mu / spare, flow_price)
        return InteriorPoint(self.flows, rows, point, _REGULARISATION, pace)

    def _choose(self, rows: IndexArray) -> FloatArray:
        """Take rows part from now on; returns their coefficients in scaled rates."""
        self.chosen = np.concatenate([self.chosen, rows])
        return self.reduced.coefficients(rows) * self.unit_mbps

    def _first_rows(self) -> IndexArray:
        """All rows if they are few, else loaded rows that together cover every used link."""
        count = len(self.reduced.budget)
        if count <= _FEW_ROWS:
            return np.arange(count)
        loads = self.reduced.loads(self.start_mbps)
        order = np.argsort(-loads, kind="stable")
        rows = self._spread_out(order, 1.0)
        return rows if len(rows) <= _MANY_ROWS else self._covering(self._spread_out(order, _THIN))

    def _covering(self, rows: IndexArray) -> IndexArray:
        """These rows, and more until every used link is in one: each time that with the most links in none."""
        matrix = self.reduced.rows
        missing = (np.diff(self.reduced.rows_t.indptr) > 0) & (self.reduced.airtime > 0)
        taken = rows.tolist()
        for row in taken:
            missing[matrix.indices[matrix.indptr[row] : matrix.indptr[row + 1]]] = False
        while missing.any():
            row = int(np.argmax(matrix @ missing.astype(float)))
            taken.append(row)
            missing[matrix.indices[matrix.indptr[row] : matrix.indptr[row + 1]]] = False
        return np.array(taken, dtype=np.intp)

    def _add_violated(self, method: InteriorPoint) -> bool:
        loads = self.reduced.loads(method.point.x * self.unit_mbps)
        others = loads.copy()
        others[self.chosen] = 0.0
        violated = np.flatnonzero(others > 1.0 + 1e-9)
        if not len(violated):
            return False
        # Factors for the rates of columns that leave slack in every row that is overloaded.
        worst = _worst_of_columns(self.reduced, loads)
        shrink = np.where(worst > 1.0 + 1e-9, 0.9 / np.maximum(worst, 1.0), 1.0)
        order = violated[np.argsort(-loads[violated], kind="stable")]
        method.add_rows(self._choose(self._spread_out(order, _OVERLAP)), shrink)
        return True

    def _spread_out(self, order: IndexArray, overlap: float) -> IndexArray:
        """Rows in the given order, without those of which a share ``overlap`` or more is in earlier ones."""
        indptr, indices = self.reduced.rows.indptr, self.reduced.rows.indices
        covered = np.zeros(self.reduced.rows.shape[1], dtype=bool)
        taken = []
        for row in order.tolist():
            members = indices[indptr[row] : indptr[row + 1]]
            if np.count_nonzero(covered[members]) < overlap * len(members):
                taken.append(row)
                covered[members] = True
        return np.array(taken, dtype=np.intp)

    def _finish(self, method: InteriorPoint, steps: int) -> Allocation:
        rates = feasible_rates(self.reduced, method.point.x * self.unit_mbps)
        prices = np.zeros(len(self.reduced.budget))
        # Rows that don't bind keep a trace of price; without it the warm start takes only those that count.
        binding = method.point.s < _SLACK
        prices[self.chosen] = np.where(binding, method.point.row_price, 0.0) * self.price_unit
        return allocation(self.problem, self.given, rates, prices, steps=steps, rows=len(self.chosen))


def _off_bound(values: FloatArray, prices: FloatArray, mu: float) -> FloatArray:
    """Values raised where they are smaller than a central point's would be at these prices."""
    return np.asarray(np.maximum(values, mu / np.maximum(prices, np.sqrt(mu))))


def _safe_rates(whole: Reduced) -> FloatArray:
    """Feasible positive rates: half of what a path gets if the busiest domain on its way is shared equally, shape n."""
    reduced = whole.spread_over_slices()
    rates = 0.5 / _worst_of_columns(reduced, reduced.loads(np.ones(len(reduced.columns))))
    totals = sums_by(reduced.flow, rates, len(reduced.flows))
    return np.asarray(rates * np.minimum(1.0, 0.5 * reduced.demand_mbps / totals)[reduced.flow])


def _worst_of_columns(reduced: Reduced, loads: FloatArray) -> FloatArray:
    """The largest load among the rows that each column touches, shapes m -> n."""
    per_link = _segment_max(loads[reduced.rows_t.indices], reduced.rows_t.indptr)
    return _segment_max(per_link[reduced.routing.indices], reduced.routing.indptr)


def _segment_max(values: FloatArray, bounds: NDArray[np.integer[Any]]) -> FloatArray:
    """Maxima of values[bounds[i]:bounds[i + 1]] for non-negative values, 0 where that is empty."""
    result = np.zeros(len(bounds) - 1)
    filled = np.flatnonzero(np.diff(bounds))
    if len(filled):
        result[filled] = np.maximum.reduceat(values, bounds[:-1][filled])
    return result

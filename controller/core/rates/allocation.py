"""The result of a rate problem and its certificate.

The certificate is weak duality and owes nothing to how the rates were found: for any prices gamma >= 0 of domains,

    sum_f U_f(x_f*) <= sum_f max_{0 <= x <= D_f} (U_f(x) - q_f x) + sum_l gamma_l budget_l,   q_f = min over paths q_P,

with q_P = sum_{l in P} d_l sum_{m in I_l} gamma_m [3.10]. The right-hand side minus the utility of the rates returned
bounds what any other allocation could gain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from .problem import BoundPrices, FloatArray, Layout, RateProblem, sums_by
from .reduction import Reduced

# A path with less than this share of its flow's rate (or of the typical rate) is not used.
_NEGLIGIBLE_SHARE = 1e-9
# Prices that would have to be raised by more than this say nothing.
_HOPELESS = 1e12


@dataclass(frozen=True, eq=False)
class Allocation:
    """Rates of a slot: ``path_rates_mbps[P]``, ``flow_rates_mbps[F]``, and how good they are.

    ``link_prices[L]`` is gamma: utility per unit of airtime of the domain of each link; ``bound_prices`` are those of
    bounds, if the problem has any. ``utility`` is
    sum_f U_f(x_f) and no allocation has more than ``utility + gap_utility``; flows without a usable path are left
    out of the gap. ``max_airtime`` is the largest share of time that any domain of the network is busy, traffic that
    is not ours included. ``steps`` counts Newton steps, ``rows`` the constraints that took part in them.
    """

    layout: Layout
    path_rates_mbps: FloatArray
    flow_rates_mbps: FloatArray
    link_prices: FloatArray
    utility: float
    certificate: Callable[[], float]
    """Works out ``gap_utility``: that takes as long as several steps, and slots do without."""
    busiest: Callable[[], float]
    """Works out ``max_airtime``."""
    steps: int
    rows: int
    bound_prices: BoundPrices | None = None

    @cached_property
    def gap_utility(self) -> float:
        """See the class."""
        return self.certificate()

    @cached_property
    def max_airtime(self) -> float:
        """See the class."""
        return self.busiest()


def transferred(old: Allocation, layout: Layout) -> Allocation:
    """An allocation of another layout of the same network as a warm start for this one: not optimal, not even feasible.

    Paths that stay keep their rates, new ones have none; prices belong to links and stay.
    """
    rates = _carried_over(old, layout)
    return replace(old, layout=layout, path_rates_mbps=rates, flow_rates_mbps=layout.flow_rates(rates))


def _carried_over(old: Allocation, layout: Layout) -> FloatArray:
    """By path of a layout the rate that it had in an allocation of another one; 0 if it is new."""
    before, rates = old.layout, old.path_rates_mbps
    if layout.rows_in is None or layout.rows_in[0]() is not before:
        known = dict(zip(path_names(before), rates.tolist(), strict=True))
        return np.array([known.get(name, 0.0) for name in path_names(layout)], dtype=float)
    rows = layout.rows_in[1]
    found = np.append(rates, 0.0)[rows]
    row_of = before.row_of
    for path in np.flatnonzero(rows < 0).tolist():
        # A flow that has other paths may have kept some.
        flow = layout.flow_ids[layout.path_flow[path]]
        if flow in row_of:
            where = before.paths_of(row_of[flow])
            same = [i for i in range(where.start, where.stop) if before.paths[i] == layout.paths[path]]
            found[path] = rates[same[-1]] if same else 0.0
    return found


def path_names(layout: Layout) -> list[tuple[str, tuple[int, ...]]]:
    """(flow id, link indices) of every path: what stays the same when flows come and go."""
    return [(layout.flow_ids[flow], path) for flow, path in zip(layout.path_flow.tolist(), layout.paths, strict=True)]


def feasible_rates(reduced: Reduced, rates_mbps: FloatArray) -> FloatArray:
    """The nearest rates (by scaling) that respect every row and demand; negligible rates become 0. Shapes n -> n."""
    totals = sums_by(reduced.flow, rates_mbps, len(reduced.flows))
    typical = float(totals.max(initial=0.0))
    floor = np.maximum(_NEGLIGIBLE_SHARE * totals[reduced.flow], 1e-3 * _NEGLIGIBLE_SHARE * typical)
    rates = np.where(rates_mbps > floor, rates_mbps, 0.0)
    totals = sums_by(reduced.flow, rates, len(reduced.flows))
    excess = np.maximum(1.0, totals / reduced.demand_mbps)
    rates = rates / excess[reduced.flow]
    return np.asarray(rates / max(1.0, float(reduced.loads(rates).max(initial=0.0))))


def duality_gap(reduced: Reduced, rates_mbps: FloatArray, row_prices: FloatArray) -> float:
    """Upper bound on the utility that feasible column rates miss; prices (m, >= 0) are per budget of each row."""
    achieved = reduced.utilities.total(sums_by(reduced.flow, rates_mbps, len(reduced.flows)))
    return max(0.0, utility_bound(reduced, row_prices) - achieved)


def utility_bound(reduced: Reduced, row_prices: FloatArray) -> float:
    """Upper bound on the utility of any feasible rates, from prices (m, >= 0) per budget of each row; may be inf."""
    utilities, demand = reduced.utilities, reduced.demand_mbps
    path_prices = reduced.path_prices(row_prices)
    prices = np.full(len(reduced.flows), np.inf)
    np.minimum.at(prices, reduced.flow, path_prices)
    # A linear utility is bounded only at prices of at least its weight: raise all prices by what is missing.
    linear = (utilities.alpha == 0) & ~np.isfinite(demand)
    missing = np.where(linear, utilities.weight / np.maximum(prices, np.finfo(float).tiny), 1.0).max(initial=1.0)
    if missing > _HOPELESS:
        return np.inf
    raised = float(missing) * (1.0 + 1e-15 if missing > 1.0 else 1.0)
    prices = np.where(linear, np.maximum(prices * raised, utilities.weight), prices * raised)
    return float(utilities.conjugates(prices, demand).sum() + raised * row_prices.sum())


def allocation(
    problem: RateProblem, reduced: Reduced, rates_mbps: FloatArray, row_prices: FloatArray, *, steps: int, rows: int
) -> Allocation:
    """The allocation of feasible column rates (n) and row prices (m)."""
    path_rates = reduced.expand(rates_mbps)
    flow_rates = problem.layout.flow_rates(path_rates)
    per_airtime = row_prices / reduced.budget
    link_prices = np.zeros(problem.layout.link_count)
    of_all = reduced.set_of < 0
    np.add.at(link_prices, reduced.limiting_link[of_all], per_airtime[of_all])
    bounds = np.flatnonzero(~of_all & (row_prices > 0))
    return Allocation(
        problem.layout,
        path_rates,
        flow_rates,
        link_prices,
        problem.utilities.total(flow_rates),
        partial(duality_gap, reduced, rates_mbps, row_prices),
        partial(reduced.busiest, problem, rates_mbps),
        steps,
        rows,
        BoundPrices(reduced.set_of[bounds], reduced.limiting_link[bounds], per_airtime[bounds])
        if problem.bounds is not None
        else None,
    )

"""The slotted controller of the papers as a pure step function: the reference behaviour ("controller mode", spec 02.1).

One slot (100 ms), with y the airtime of each link's domain, everybody's traffic included:

    gamma_l <- max(0, gamma_l + alpha (y_l - (1 - delta)))                       [3.9], on every link of the network
    q_P      = sum_{l in P} d_l sum_{m in I_l} gamma_m                           [3.10]
    one path:  x_P <- U'^-1(q_P)                                                 [3.11]
    several:   x_P <- max(0, (1 - alpha) x_P + alpha (xbar_P + U'_f(x_f) - q_P))
               xbar_P <- (1 - alpha) xbar_P + alpha x_P

The proximal rule adds a rate, a slope of the utility and a price: it isn't scale-free, and with rates in Mb/s and
alpha = 0.02 it hardly moves. Rates are therefore counted in units of u (default 50 Mb/s): r = x / u, d_l' = u d_l
and, by the chain rule, dU/dr = u U'(u r). The objective keeps its rates in Mb/s, sum_f w log(1 + x_f): a fixed
point has dU/dr = q' with q' = u q, hence U'(x_f) = q_P, whatever u is. Replacing U by log(1 + r) instead would
*change the objective* (1 would mean 50 Mb/s) and with it the shares of competing flows; here the unit is a matter of
speed alone.

Rule [3.11] has no unit; its rate is limited to what the path can carry alone, because at price 0 it would be infinite
(the fixed point respects that limit anyway). Step size: alpha = 0.02, x 2 if every flow has one path or the longest
path has two hops, x 4 if it has one hop; halved whenever some flow has shown 6 non-decreasing oscillations since the
last halving. They are counted cumulatively: an oscillation that does decrease doesn't reset the count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from hyroads.controller.core.errors import PlanningError
from hyroads.controller.core.rates.problem import Layout, RateProblem
from hyroads.controller.core.rates.utility import FloatArray
from numpy.typing import NDArray

SLOT_S = 0.1
# One oscillation is a swing up and a swing down: two turns.
_TURNS = 2 * 6
# Turns smaller than this share of the rate are rounding or the last of a decaying ripple, not an oscillation.
_SMALLEST_TURN = 1e-3
# Slopes of alpha-fair utilities are infinite at 0: they are taken at this rate at least.
_SLOPE_FLOOR_MBPS = 1e-3


@dataclass(frozen=True)
class ControllerSettings:
    """``step_size`` alpha (None: the heuristic); ``rate_unit_mbps`` u; ``adapt``: halve alpha on oscillation."""

    step_size: float | None = None
    rate_unit_mbps: float = 50.0
    adapt: bool = True

    def __post_init__(self) -> None:
        if self.step_size is not None and not 0 < self.step_size < 1:
            raise PlanningError(f"step size {self.step_size:g}: expected a number between 0 and 1")
        if not 0 < self.rate_unit_mbps < np.inf:
            raise PlanningError(f"rate unit {self.rate_unit_mbps:g}: expected a rate above 0 Mb/s")


@dataclass(frozen=True, eq=False)
class Oscillation:
    """Per flow: its last rate and direction, the rate and size of its last turn, non-decreasing turns so far."""

    rate_mbps: FloatArray
    direction: FloatArray
    turn_mbps: FloatArray
    swing_mbps: FloatArray
    count: NDArray[np.int64]

    @staticmethod
    def none(flow_count: int) -> Oscillation:
        """Nothing seen yet."""
        zero = np.zeros(flow_count)
        return Oscillation(zero, zero, zero, zero, np.zeros(flow_count, dtype=np.int64))

    def after(self, rate_mbps: FloatArray) -> Oscillation:
        """With one more slot's rates."""
        direction = np.sign(rate_mbps - self.rate_mbps)
        direction = np.where(direction == 0, self.direction, direction)
        turned = (self.direction != 0) & (direction != self.direction)
        swing = np.abs(self.rate_mbps - self.turn_mbps)
        counted = (
            turned & (swing >= self.swing_mbps) & (swing > _SMALLEST_TURN * self.rate_mbps) & (self.swing_mbps > 0)
        )
        return Oscillation(
            rate_mbps,
            direction,
            np.where(turned, self.rate_mbps, self.turn_mbps),
            np.where(turned, swing, self.swing_mbps),
            self.count + counted,
        )


@dataclass(frozen=True, eq=False)
class ControllerState:
    """State after a slot: rates x_P and their averages xbar_P in Mb/s, prices gamma_l in utility per airtime."""

    path_rates_mbps: FloatArray
    averages_mbps: FloatArray
    link_prices: FloatArray
    step_size: float
    oscillation: Oscillation
    slot: int = 0

    @staticmethod
    def initial(layout: Layout, settings: ControllerSettings) -> ControllerState:
        """All rates and prices zero."""
        alpha = default_step_size(layout) if settings.step_size is None else settings.step_size
        paths, links = np.zeros(layout.path_count), np.zeros(layout.link_count)
        return ControllerState(paths, paths, links, alpha, Oscillation.none(layout.flow_count))


def default_step_size(layout: Layout) -> float:
    """The heuristic of spec 02.1."""
    longest = max(map(len, layout.paths), default=1)
    single = layout.path_count == 0 or int(np.bincount(layout.path_flow).max()) == 1
    return 0.02 * (4 if longest == 1 else 2 if single or longest == 2 else 1)


def step(
    problem: RateProblem, state: ControllerState, settings: ControllerSettings, own_airtime: FloatArray | None = None
) -> ControllerState:
    """One slot. ``own_airtime[L]`` is the measured airtime of our traffic (None: computed from the rates, [3.8])."""
    layout, alpha, unit = problem.layout, state.step_size, settings.rate_unit_mbps
    busy = (problem.airtime(state.path_rates_mbps) if own_airtime is None else own_airtime) + problem.external
    prices = np.maximum(0.0, state.link_prices + alpha * (busy - (1.0 - problem.margin)))
    path_prices = problem.path_prices(prices)
    rates, averages = _proximal(problem, state, path_prices, unit)
    alone = np.bincount(layout.path_flow, minlength=layout.flow_count)[layout.path_flow] == 1
    if alone.any():
        direct = _direct(problem, path_prices)
        rates, averages = np.where(alone, direct, rates), np.where(alone, direct, averages)
    rates = _within_demand(problem, rates)
    oscillation = state.oscillation.after(layout.flow_rates(rates))
    if settings.adapt and oscillation.count.max(initial=0) >= _TURNS:
        alpha, oscillation = alpha / 2, replace(oscillation, count=np.zeros_like(oscillation.count))
    return ControllerState(rates, averages, prices, alpha, oscillation, state.slot + 1)


def run(problem: RateProblem, settings: ControllerSettings, slots: int) -> Iterator[ControllerState]:
    """The states after each of ``slots`` slots from rest, with a problem that doesn't change."""
    state = ControllerState.initial(problem.layout, settings)
    for _ in range(slots):
        state = step(problem, state, settings)
        yield state


def slots_to_converge(totals_mbps: FloatArray, final_mbps: float, within: float = 0.01) -> tuple[int, int]:
    """Slots until the total is first within a share of the final one, and until it stays there (1 = first slot).

    ``totals_mbps[i]`` is the total rate after slot i + 1; a value beyond their number means never.
    """
    outside = np.abs(totals_mbps - final_mbps) > within * abs(final_mbps)
    inside = np.flatnonzero(~outside)
    first = int(inside[0]) + 1 if len(inside) else len(totals_mbps) + 1
    left = np.flatnonzero(outside)
    return first, int(left[-1]) + 2 if len(left) else 1


def _proximal(
    problem: RateProblem, state: ControllerState, path_prices: FloatArray, unit: float
) -> tuple[FloatArray, FloatArray]:
    layout, alpha = problem.layout, state.step_size
    flow_rates = np.maximum(layout.flow_rates(state.path_rates_mbps), 0.0)
    floor = np.where(problem.utilities.shift_mbps > 0, 0.0, _SLOPE_FLOOR_MBPS)
    slopes = problem.utilities.slopes(np.maximum(flow_rates, floor))[layout.path_flow]
    # In units of u: dU/dr - q' = u (U'(x) - q); back in Mb/s that is another factor u.
    wanted = state.averages_mbps + unit**2 * (slopes - path_prices)
    rates = np.maximum(0.0, (1.0 - alpha) * state.path_rates_mbps + alpha * wanted)
    return rates, (1.0 - alpha) * state.averages_mbps + alpha * rates


def _direct(problem: RateProblem, path_prices: FloatArray) -> FloatArray:
    layout = problem.layout
    price_of_flow = np.full(layout.flow_count, np.inf)
    price_of_flow[layout.path_flow] = path_prices
    wanted = problem.utilities.rates(price_of_flow, problem.demand_mbps)[layout.path_flow]
    return np.minimum(wanted, _alone_mbps(problem))


def _alone_mbps(problem: RateProblem) -> FloatArray:
    """Rate of every path on an idle network: 1 / (largest sum of d_m over one domain) is at least 1 / sum of d_m."""
    inverse = np.divide(
        1.0, problem.capacity_mbps, out=np.zeros_like(problem.capacity_mbps), where=problem.capacity_mbps > 0
    )
    routing = problem.layout.routing
    largest = np.maximum.reduceat(inverse[routing.indices], routing.indptr[:-1]) if routing.nnz else np.zeros(0)
    return np.divide(1.0, largest, out=np.zeros_like(largest), where=largest > 0)


def _within_demand(problem: RateProblem, rates: FloatArray) -> FloatArray:
    layout = problem.layout
    excess = np.maximum(1.0, layout.flow_rates(rates) / np.maximum(problem.demand_mbps, np.finfo(float).tiny))
    return np.asarray(rates / excess[layout.path_flow])

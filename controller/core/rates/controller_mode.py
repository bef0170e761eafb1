"""The slotted controller of the papers as a pure step function: the reference behaviour ("controller mode").

One slot (100 ms), with y the airtime of each link's domain, everybody's traffic included:

    gamma_l <- max(0, gamma_l + alpha (y_l - (1 - delta)))                       [3.9], on every link of the network
    q_P      = sum_{l in P} d_l sum_{m in I_l} gamma_m                           [3.10]
    one path:  x_P <- U'^-1(q_P)                                                 [3.11]
    several:   x_P <- max(0, (1 - alpha) x_P + alpha (xbar_P + U'_f(x_f) - q_P))
               xbar_P <- (1 - alpha) xbar_P + alpha x_P

*Unit of rates.* The proximal rule adds a rate, a slope of the utility and a price: it isn't scale-free, and with rates
in Mb/s and alpha = 0.02 it hardly moves. Rates are therefore counted in units: r = x / u, d_l' = u d_l and, by the
chain rule, dU/dr = u U'(x). The objective keeps its rates in Mb/s, sum_f w log(1 + x_f): a fixed point has
dU/dr = q' with q' = u q, hence U'(x_f) = q_P, whatever u is. Replacing U by log(1 + r) instead would *change the
objective* (1 would mean 50 Mb/s) and with it the shares of competing flows; here the unit is a matter of speed alone.
In Mb/s the rule moves x_P by alpha u^2 (U' - q) in a slot.

No constant u suits: from rest, where U' is steepest and prices are 0, u = 50 asks for 50 times what a path of 1 Mb/s
carries, and hardly moves one of 1 Gb/s. Prices that have risen with such an overload take hundreds of slots to come
down, and then it begins again. So each path has its own unit (``rate_unit_mbps`` None),

    u_P^2 = R(P) / (U'_f(x_f) max(1, a_f))        R(P) (1 + x_f) for log(1 + x); a_f is the exponent of the utility

with which its rate rises by at most alpha R(P) in a slot, whatever capacities, weights and utilities are.

*Step of prices.* A price that rises by alpha per unit of excess lowers the rates of its paths by their sensitivity
s_P to prices: 1 / |U''| by rule [3.11], alpha u_P^2 by the proximal one. All links of a domain raise theirs together,
so that with many links one slot's rise may lower the rates by more than the excess that caused it, in ever larger
swings. With own units the step of link l is therefore at most

    alpha_l = min(alpha, 1 / sum_P A_{l,P} s_P sum_m A_{m,P}),        A = B diag(d) R

the bound by row sums: what all prices do together to the airtime of a domain is at most its excess.

*R(P).* No path is ever given more than R(P), what it carries alone on an idle network: at price 0 rule [3.11] would ask
for an infinite rate. Every allocation that airtime allows respects that limit, so the fixed point stays.

*Step size.* With own units alpha = 0.08. With one unit for all, the papers': alpha = 0.02, x 2 if every flow has one
path or the longest path has two hops, x 4 if it has one hop. It is halved whenever some flow has shown 6 non-decreasing
oscillations since the last halving. They are counted cumulatively: an oscillation that does decrease doesn't reset the
count. Noise of measurements counts as well, so with own units alpha stays at 0.01 or above: it never falls asleep.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hyroads.controller.core.errors import PlanningError

from .problem import FloatArray, Layout, RateProblem

# One oscillation is a swing up and a swing down: two turns.
_TURNS = 2 * 6
# Turns smaller than this share of the rate are rounding or the last of a decaying ripple, not an oscillation.
_SMALLEST_TURN = 1e-3
# With own units of paths: the first step size, and the least one that halving leads to.
_STEP = 0.08
_LEAST_STEP = 0.01
# Slopes of alpha-fair utilities are infinite at 0: they are taken at this rate at least.
_SLOPE_FLOOR_MBPS = 1e-3
# Rates that are this close to the optimum, and airtime that is this little beyond the margin, are as good as it.
_CONVERGED = 0.01
# Products of two of these are still finite.
_HUGE = 1e100


@dataclass(frozen=True)
class ControllerSettings:
    """``step_size`` alpha and ``rate_unit_mbps`` u (None: as in the module), ``adapt``: halve alpha on oscillation.

    ``simultaneous``: all updates of a slot start from the values before it, as the papers write them, where messages
    carry the prices: q_P comes from the prices of the last slot and xbar_P from its rates, not from this one's.
    """

    step_size: float | None = None
    rate_unit_mbps: float | None = None
    adapt: bool = True
    simultaneous: bool = False

    def __post_init__(self) -> None:
        if self.step_size is not None and not 0 < self.step_size < 1:
            raise PlanningError(f"step size {self.step_size:g}: expected a number between 0 and 1")
        if self.rate_unit_mbps is not None and not 0 < self.rate_unit_mbps < np.inf:
            raise PlanningError(f"rate unit {self.rate_unit_mbps:g}: expected a rate above 0 Mb/s")

    def first_step(self, layout: Layout) -> float:
        """The step size from which it starts."""
        if self.step_size is not None:
            return self.step_size
        return _STEP if self.rate_unit_mbps is None else default_step_size(layout)

    def halved(self, step_size: float) -> float:
        """The step size after six oscillations."""
        least = 0.0 if self.rate_unit_mbps is not None else min(step_size, _LEAST_STEP)
        return max(step_size / 2, least)


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
        paths, links = np.zeros(layout.path_count), np.zeros(layout.link_count)
        return ControllerState(paths, paths, links, settings.first_step(layout), Oscillation.none(layout.flow_count))


def default_step_size(layout: Layout) -> float:
    """The papers' heuristic."""
    longest = max(map(len, layout.paths), default=1)
    single = layout.path_count == 0 or int(np.bincount(layout.path_flow).max()) == 1
    return 0.02 * (4 if longest == 1 else 2 if single or longest == 2 else 1)


def step(
    problem: RateProblem, state: ControllerState, settings: ControllerSettings, own_airtime: FloatArray | None = None
) -> ControllerState:
    """One slot. ``own_airtime[L]`` is the measured airtime of our traffic (None: computed from the rates, [3.8])."""
    layout, alpha = problem.layout, state.step_size
    paths = _paths(problem, state, settings)
    busy = (problem.airtime(state.path_rates_mbps) if own_airtime is None else own_airtime) + problem.external
    rise = alpha if settings.rate_unit_mbps is not None else np.minimum(alpha, _stable_step(problem, paths))
    prices = np.maximum(0.0, state.link_prices + rise * (busy - (1.0 - problem.margin)))
    path_prices = problem.path_prices(state.link_prices if settings.simultaneous else prices)
    rates = _proximal(state, paths, path_prices)
    averages = (1.0 - alpha) * state.averages_mbps + alpha * (state.path_rates_mbps if settings.simultaneous else rates)
    if paths.is_direct.any():
        direct = _direct(problem, path_prices, paths)
        rates = np.where(paths.is_direct, direct, rates)
        averages = np.where(paths.is_direct, direct, averages)
    rates = _within_demand(problem, rates)
    oscillation = state.oscillation.after(layout.flow_rates(rates))
    if settings.adapt and oscillation.count.max(initial=0) >= _TURNS:
        alpha, oscillation = settings.halved(alpha), replace(oscillation, count=np.zeros_like(oscillation.count))
    return ControllerState(rates, averages, prices, alpha, oscillation, state.slot + 1)


def run(problem: RateProblem, settings: ControllerSettings, slots: int) -> Iterator[ControllerState]:
    """The states after each of ``slots`` slots from rest, with a problem that doesn't change."""
    state = ControllerState.initial(problem.layout, settings)
    for _ in range(slots):
        state = step(problem, state, settings)
        yield state


@dataclass(frozen=True, slots=True)
class Distance:
    """How far rates are from the optimum.

    ``rate_share``: the largest difference of a flow's rate, as a share of its rate at the optimum or, where that is
    more, of a tenth of the mean rate. ``airtime``: the largest share of time by which a domain of which the flows use
    something is busier than its margin allows.
    """

    rate_share: float
    airtime: float

    @property
    def is_converged(self) -> bool:
        """Whether both are at most 1 %."""
        return max(self.rate_share, self.airtime) <= _CONVERGED


def distance(problem: RateProblem, path_rates_mbps: FloatArray, optimum_mbps: FloatArray) -> Distance:
    """Of ``path_rates_mbps[P]`` from ``optimum_mbps[F]``, the rates of the flows at the optimum (``solve``)."""
    rates, optimum = problem.layout.flow_rates(path_rates_mbps), optimum_mbps
    # Of flows with linear utilities only the weighted total is unique.
    linear = problem.utilities.alpha == 0
    weights = np.where(linear, problem.utilities.weight, 0.0)
    if linear.any():
        rates = np.append(rates[~linear], weights @ rates)
        optimum = np.append(optimum[~linear], weights @ optimum)
    typical = np.maximum(optimum, 0.1 * optimum.mean() if optimum.size else 0.0)
    apart = np.divide(np.abs(rates - optimum), typical, out=(rates > 0).astype(float), where=typical > 0)
    own = problem.airtime(path_rates_mbps)
    excess = own + problem.external - (1.0 - problem.margin)
    excess = excess[(own > 0) & (problem.capacity_mbps > 0)]
    return Distance(float(apart.max(initial=0.0)), float(excess.max(initial=0.0)))


@dataclass(frozen=True, eq=False)
class _Paths:
    """What a slot knows of each path, shape P: R(P), U' of its flow at the last rates, the square of its unit of rates,
    by how many Mb/s a price raised by 1 lowers its rate in this slot, and whether rule [3.11] gives its rate.
    """

    most_mbps: FloatArray
    slope: FloatArray
    unit_squared: FloatArray
    sensitivity: FloatArray
    is_direct: NDArray[np.bool_]


def _paths(problem: RateProblem, state: ControllerState, settings: ControllerSettings) -> _Paths:
    layout, utilities = problem.layout, problem.utilities
    most = problem.alone_mbps
    flow_rates = np.maximum(layout.flow_rates(state.path_rates_mbps), 0.0)
    flow_rates = np.maximum(flow_rates, np.where(utilities.shift_mbps > 0, 0.0, _SLOPE_FLOOR_MBPS))
    # A slope that is too small for a float belongs to a rate far above the optimum: its price brings it down at once.
    slopes = np.maximum(utilities.slopes(flow_rates), np.finfo(float).tiny)
    slope, exponent = slopes[layout.path_flow], utilities.alpha[layout.path_flow]
    if settings.rate_unit_mbps is None:
        unit_squared = np.minimum(most / np.maximum(1.0, exponent) / slope, _HUGE)
    else:
        unit_squared = np.full(layout.path_count, settings.rate_unit_mbps**2)
    # At a linear utility rule [3.11] knows only all or nothing.
    counts = np.bincount(layout.path_flow, minlength=layout.flow_count)
    is_direct = (counts[layout.path_flow] == 1) & (exponent > 0)
    with np.errstate(divide="ignore", over="ignore"):
        direct = np.minimum(1.0 / utilities.curvatures(flow_rates) / slopes, _HUGE)[layout.path_flow]
    sensitivity = np.where(is_direct, direct, state.step_size * unit_squared)
    return _Paths(most, slope, unit_squared, np.where(most > 0, sensitivity, 0.0), is_direct)


def _stable_step(problem: RateProblem, paths: _Paths) -> FloatArray:
    """Per link, the step of its price at which all prices together take as much airtime away as is too much."""
    gain = problem.airtime(paths.sensitivity * problem.prices_per_link_price)
    return 1.0 / np.maximum(gain, np.finfo(float).tiny)


def _proximal(state: ControllerState, paths: _Paths, path_prices: FloatArray) -> FloatArray:
    # In units of u: dU/dr - q' = u (U'(x) - q); back in Mb/s that is another factor u. A path without capacity gets 0.
    alpha, usable = state.step_size, paths.most_mbps > 0
    push = paths.unit_squared * (paths.slope - np.where(usable, path_prices, 0.0))
    wanted = (1.0 - alpha) * state.path_rates_mbps + alpha * (state.averages_mbps + push)
    return np.clip(wanted, 0.0, paths.most_mbps)


def _direct(problem: RateProblem, path_prices: FloatArray, paths: _Paths) -> FloatArray:
    layout = problem.layout
    price_of_flow = np.full(layout.flow_count, np.inf)
    price_of_flow[layout.path_flow] = path_prices
    wanted = problem.utilities.rates(price_of_flow, problem.demand_mbps)[layout.path_flow]
    return np.minimum(wanted, paths.most_mbps)


def _within_demand(problem: RateProblem, rates: FloatArray) -> FloatArray:
    layout = problem.layout
    excess = np.maximum(1.0, layout.flow_rates(rates) / np.maximum(problem.demand_mbps, np.finfo(float).tiny))
    return np.asarray(rates / excess[layout.path_flow])

"""Primal-dual interior point method for the rate problem, specialised to its structure.

    maximise sum_f U_f(x_f) - sum_P eps_f x_P^2 / 2   subject to   A x <= 1, x_f <= D_f, x >= 0

with x_f the sum of x_P over the paths of f and eps_f a tiny share of p_f / (x_f + 1), in step with the point.

Optimality conditions, with prices lambda (rows), z (x >= 0), nu (demands) and an explicit flow price p_f:

    p_f - nu_f - (A' lambda)_P + z_P - eps_f x_P = 0,   log U'_f(x_f) - log p_f = 0,
    A x + s = 1,   x_f + t_f = D_f,   x z = s lambda = t nu = mu -> 0.

The flow's condition is kept in logarithms, so Newton's step on it is exact for a power law up to first order in
*relative* changes; that makes alpha = 30 as easy as alpha = 1. The Newton system is solved in row space,
(A H^-1 A' + diag(s / lambda)) d_lambda = ..., where H is one diagonal-plus-rank-one block per flow. H^-1 splits into
the between-flows part and the within-flow part (rows minus their mean over the flow's paths), both positive
semidefinite, so nothing cancels however ill-conditioned H is. Steps are Mehrotra's predictor-corrector ("On the
implementation of a primal-dual interior point method", SIAM J. Optim. 2(4), 1992).

Rows can be added between steps: most rows of a network never bind, so the caller starts with few (``solver``).
All quantities here are scaled: rates near 1, budgets 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.linalg import blas, lapack

from hyroads.controller.core.errors import PlanningError

from .problem import FloatArray, IndexArray
from .utilities import Utilities

# Correctors: how many a step, how much longer a step they aim at, when the gain is worth it, and around which share
# of the target products may stay.
_CORRECTORS = 2
_LONG_ENOUGH = 0.9
_AMBITION = 0.3
_LEAST_GAIN = 0.1
_NEIGHBOURHOOD = 0.1
# A path whose rate answers to a price so much less than its flow's rate does is left out of the Newton matrix.
_UNMOVED = 1e-12
# Once the complementarity is below the first, a step shorter than the second is followed by one that is centred so much
# at least: steps that go in a circle there are known.
_NEAR_THE_END = 1e-6
_SHORT = 0.8
_AFTER_SHORT = 0.3
# Never so near to the bound that rounding reaches it.
_INSIDE = 1.0 - 1e-10


@dataclass(frozen=True)
class Pace:
    """How boldly to step: share of the way to the bound, and the least centring (sigma)."""

    boundary: float
    centring: float


@dataclass(frozen=True, eq=False)
class Flows:
    """The flows of n columns: ``of[n]`` sorted, ``starts[f]``, utilities, and the flows with finite ``demand``."""

    of: IndexArray
    starts: IndexArray
    utilities: Utilities
    limited: IndexArray
    demand: FloatArray

    @staticmethod
    def build(of: IndexArray, utilities: Utilities, demand: FloatArray) -> Flows:
        """Group columns by flow; every flow has at least one column."""
        limited = np.flatnonzero(np.isfinite(demand))
        return Flows(of, np.searchsorted(of, np.arange(len(utilities))), utilities, limited, demand[limited])

    def averaging(self) -> sparse.csr_matrix:
        """The f x n matrix that sums over each flow's columns; its data are the weights, to be set."""
        count = len(self.of)
        bounds = np.append(self.starts, count)
        return sparse.csr_matrix((np.ones(count), np.arange(count), bounds), shape=(len(self.starts), count))

    def sums(self, values: FloatArray) -> FloatArray:
        """Sums over each flow's columns, along the last axis."""
        return np.add.reduceat(values, self.starts, axis=-1)


@dataclass(eq=False)
class Iterate:
    """A point of the method: rates, slacks and prices, all positive."""

    x: FloatArray
    s: FloatArray
    t: FloatArray
    row_price: FloatArray
    bound_price: FloatArray
    demand_price: FloatArray
    flow_price: FloatArray

    def parts(self) -> tuple[FloatArray, ...]:
        """The vectors, in the order of a :class:`Step`."""
        return (
            self.x, self.s, self.t, self.row_price, self.bound_price, self.demand_price, self.flow_price,
        )  # fmt: skip

    def complementarity(self) -> float:
        """Mean product of a slack and its price (mu)."""
        total = self.x @ self.bound_price + self.s @ self.row_price + self.t @ self.demand_price
        return float(total) / (len(self.x) + len(self.s) + len(self.t))


Step = tuple[FloatArray, ...]
Products = tuple[FloatArray, ...]


@dataclass(frozen=True, eq=False)
class Residuals:
    """How far a point is from the linear and logarithmic conditions."""

    dual: FloatArray
    row: FloatArray
    demand: FloatArray
    flow: FloatArray

    def relative(self, prices: FloatArray, flows: Flows) -> float:
        """Largest residual, with dual residuals relative to the price of the flow."""
        dual = np.abs(self.dual / prices[flows.of]).max(initial=0.0)
        others = (np.abs(part).max(initial=0.0) for part in (self.row, self.demand, self.flow))
        return float(max(dual, *others))


class InteriorPoint:
    """The method on a growing set of rows; ``rows`` is k x n, dense, each row with budget 1.

    They are stored by columns, so that what is done per path or flow runs over contiguous memory.
    """

    def __init__(self, flows: Flows, rows: FloatArray, start: Iterate, regularisation: float, pace: Pace) -> None:
        self.flows = flows
        self.averaging = flows.averaging()
        self._keep(rows)
        self.point = start
        self.pace = pace
        self._length = 1.0
        """How far the last step went."""
        self.relative_regularisation = regularisation
        self.regularisation = np.zeros_like(start.x)
        self.residuals = self._residuals()

    def _keep(self, rows: FloatArray) -> None:
        self.columns = np.ascontiguousarray(rows.T)
        self.rows = self.columns.T
        self.workspace = np.empty((len(self.flows.starts) + len(self.flows.of), len(rows)))

    def price_rows(self, factor: float) -> None:
        """Multiply the prices of rows; paths that then cost more than their flow pays get the difference as z."""
        point = self.point
        point.row_price = point.row_price * factor
        excess = point.row_price @ self.rows - point.flow_price[self.flows.of]
        point.bound_price = np.maximum(point.bound_price, excess)
        self.residuals = self._residuals()

    def add_rows(self, rows: FloatArray, shrink: FloatArray) -> None:
        """Add rows (k x n), with the rates multiplied by ``shrink`` (n) so that they hold with slack.

        Rows in force gain as much slack as the rates on them lose; that is how far the point has to move.
        """
        point, mu = self.point, self.point.complementarity()
        lost = point.x * (1.0 - shrink)
        point.x = point.x - lost
        point.s = point.s + self.rows @ lost
        point.t = point.t + self.flows.sums(lost)[self.flows.limited]
        mu = max(mu, point.complementarity())
        slack = 1.0 - rows @ point.x
        self._keep(np.vstack([self.rows, rows]))
        point.s = np.concatenate([point.s, slack])
        point.row_price = np.concatenate([point.row_price, mu / slack])
        self.residuals = self._residuals()

    def relative_mu(self) -> float:
        """Mean complementarity relative to the mean value p_f x_f of a flow."""
        value = float(self.point.flow_price @ self.flows.sums(self.point.x)) / len(self.flows.starts)
        return self.point.complementarity() / value

    def error(self) -> float:
        """Largest relative residual of the conditions other than complementarity."""
        return self.residuals.relative(self.point.flow_price, self.flows)

    def step(self) -> float:
        """One predictor-corrector step; returns its length in 0..1."""
        point = self.point
        newton = _Newton(self)
        mu = point.complementarity()
        zero = np.zeros(1)
        affine = newton.solve(zero, zero, zero)
        length = _length(point, affine)
        ahead = Iterate(*(part + length * d for part, d in zip(point.parts(), affine, strict=True)))
        sigma = (ahead.complementarity() / mu) ** 3
        is_circling = self.relative_mu() < _NEAR_THE_END and self._length < _SHORT
        centring = max(self.pace.centring, _AFTER_SHORT if is_circling else 0.0)
        target = max(sigma, centring) * mu
        dx, ds, dt, dl, dz, dn, _ = affine
        wanted = (target - dx * dz, target - ds * dl, target - dt * dn)
        step = newton.solve(*wanted)
        step = self._centred(newton, wanted, step, target)
        # Near the end almost the whole way to the bound is safe, which makes the last steps superlinear.
        near = min(_INSIDE, 1.0 - self.relative_mu()) if centring == 0.0 else 0.0
        boundary = max(self.pace.boundary, near)
        length = min(1.0, boundary * _length(point, step), self._trusted(step))
        self.point = Iterate(*(part + length * d for part, d in zip(point.parts(), step, strict=True)))
        self.residuals = self._residuals()
        self._length = length
        return length

    def _centred(self, newton: _Newton, wanted: Products, step: Step, target: float) -> Step:
        """The step, corrected while that makes it longer: products far off the target at a longer step are pulled back.

        Gondzio's multiple centrality correctors ("Multiple centrality corrections in a primal-dual method for linear
        programming", Comput. Optim. Appl. 6, 1996). A corrector costs one solution with the factor at hand.
        """
        point = self.point
        length = _length(point, step)
        for _ in range(_CORRECTORS):
            if length >= _LONG_ENOUGH:
                break
            ahead = min(1.0, length + _AMBITION)
            trial = Iterate(*(part + ahead * d for part, d in zip(point.parts(), step, strict=True)))
            pairs = ((trial.x, trial.bound_price), (trial.s, trial.row_price), (trial.t, trial.demand_price))
            wanted = tuple(w + _pull(a * b, target) for w, (a, b) in zip(wanted, pairs, strict=True))
            better = newton.solve(*wanted)
            longer = _length(point, better)
            if longer < length + _LEAST_GAIN * _AMBITION:
                break
            step, length = better, longer
        return step

    def _trusted(self, step: Step) -> float:
        """Length up to which the slopes U' are about as linear in the logarithm as the Newton step takes them."""
        utilities = self.flows.utilities
        change = self.flows.sums(step[0]) / (self.flows.sums(self.point.x) + utilities.shift_mbps)
        limit = np.where(change < 0, 0.75, 2.0) / np.sqrt(np.maximum(1.0, utilities.alpha))
        worst = float(np.where(utilities.alpha > 0, np.abs(change) / limit, 0.0).max())
        return 1.0 / max(1.0, worst)

    def _residuals(self) -> Residuals:
        point, flows = self.point, self.flows
        total = flows.sums(point.x)
        self.regularisation = (self.relative_regularisation * point.flow_price / (1.0 + total))[flows.of]
        spare = flows.demand - total[flows.limited] - point.t
        price = point.flow_price.copy()
        price[flows.limited] -= point.demand_price
        dual = price[flows.of] - point.row_price @ self.rows + point.bound_price - self.regularisation * point.x
        return Residuals(
            dual,
            1.0 - self.rows @ point.x - point.s,
            np.where(np.abs(spare) > 1e-13 * flows.demand, spare, 0.0),
            flows.utilities.log_slopes(total) - np.log(point.flow_price),
        )


class _Newton:
    """The Newton system at a point, factorised once and solved for several right-hand sides."""

    def __init__(self, method: InteriorPoint) -> None:
        self.method = method
        point, flows = method.point, method.flows
        self.curvature = point.flow_price * flows.utilities.curvatures(flows.sums(point.x))
        self.flow_curvature = self.curvature.copy()
        self.flow_curvature[flows.limited] += point.demand_price / point.t
        self.spread = 1.0 / (point.bound_price / point.x + method.regularisation)
        self.total_spread = flows.sums(self.spread)
        self.share = self.spread / self.total_spread[flows.of]
        self.between = self.total_spread / (1.0 + self.flow_curvature * self.total_spread)
        self.factor = self._factorise()

    def _factorise(self) -> FloatArray:
        """Cholesky factor (upper) of A H^-1 A' + diag(s / lambda)."""
        flows, point, columns = self.method.flows, self.method.point, self.method.columns
        count = len(flows.starts)
        # Paths that hardly react change only rows that are far from binding: they are left out of the matrix.
        live = np.flatnonzero(self.spread > _UNMOVED * self.between[flows.of])
        if count == len(flows.of):
            live = live[:0]
        factors = self.method.workspace[: count + len(live)]
        mean, within = factors[:count], factors[count:]
        self.method.averaging.data = self.share
        mean[:] = self.method.averaging @ columns
        np.take(mean, flows.of[live], axis=0, out=within)
        np.subtract(columns if len(live) == len(columns) else columns[live], within, out=within)
        within *= np.sqrt(self.spread[live])[:, None]
        mean *= np.sqrt(self.between)[:, None]
        gram = blas.dsyrk(1.0, factors.T)
        diagonal = gram.diagonal() + point.s / point.row_price
        for regularisation in (1e-15, 1e-12, 1e-9, 1e-6):
            np.fill_diagonal(gram, diagonal * (1.0 + regularisation))
            factor, info = lapack.dpotrf(gram, lower=0)
            if info == 0:
                return np.asarray(factor)
        raise PlanningError("the Newton system of the rate problem can't be factorised")

    def _apply_inverse(self, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """H^-1 v, in two parts that don't cancel, and its sum per flow."""
        flows = self.method.flows
        mean = flows.sums(values * self.share)
        total = self.between * mean
        within = self.spread * (values - mean[flows.of])
        # The first part sums to zero up to rounding, which a tight demand would take for a real difference.
        return within + self.share * (total - flows.sums(within))[flows.of], total

    def solve(self, bound: FloatArray, row: FloatArray, demand: FloatArray) -> Step:
        """The step towards x z = ``bound``, s lambda = ``row``, t nu = ``demand`` and zero residuals."""
        method, flows, point, res = self.method, self.method.flows, self.method.point, self.method.residuals
        bound_target = bound / point.x - point.bound_price
        row_target = row / point.row_price - point.s
        demand_target = demand / point.t - point.demand_price
        per_flow = point.flow_price * res.flow
        per_flow[flows.limited] -= demand_target - point.demand_price / point.t * res.demand
        dual = res.dual + per_flow[flows.of] + bound_target
        rhs = method.rows @ self._apply_inverse(dual)[0] - (res.row - row_target)
        d_row, _ = lapack.dpotrs(self.factor, rhs, lower=0)
        dx, total = self._apply_inverse(dual - d_row @ method.rows)
        # Not res.row - A dx: a slack of 1e-13 needs its change to relative precision.
        ds = row_target - point.s / point.row_price * d_row
        dt = res.demand - total[flows.limited]
        d_bound = bound_target - point.bound_price / point.x * dx
        d_demand = demand_target - point.demand_price / point.t * dt
        d_flow = point.flow_price * res.flow - self.curvature * total
        return dx, ds, dt, d_row, d_bound, d_demand, d_flow


def _pull(products: FloatArray, target: float) -> FloatArray:
    """What brings products into the neighbourhood of the target; large ones are pulled by a bounded amount."""
    low, high = _NEIGHBOURHOOD * target, target / _NEIGHBOURHOOD
    return np.asarray(np.maximum(np.clip(products, low, high) - products, -high))


def _length(point: Iterate, step: Step) -> float:
    """Largest step in 0..1 that keeps every part non-negative."""
    longest = 1.0
    for part, change in zip(point.parts(), step, strict=True):
        worst = float((-change / part).max(initial=0.0))
        longest = min(longest, 1.0 / worst) if worst > 0 else longest
    return longest

"""Utilities of flows: U(x) = w V(x + shift) with V'(y) = y^-alpha, that is V(y) = log y for alpha = 1 and
V(y) = y^(1 - alpha) / (1 - alpha) otherwise (Mo and Walrand, "Fair end-to-end window-based congestion control",
IEEE/ACM ToN 8(5), 2000). alpha = 1 with shift = 1 Mb/s is the default log(1 + x); alpha = 0 is total throughput,
alpha = 1 proportional fairness, alpha = 2 minimum delay, alpha -> infinity max-min fairness. Rates are in Mb/s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hyroads.controller.core.errors import PlanningError
from hyroads.controller.core.network import FlowSpec, Utility

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.intp]

MAX_ALPHA = 100.0


@dataclass(frozen=True, eq=False)
class Utilities:
    """Utilities of F flows: ``weight[F]`` > 0, ``alpha[F]`` in 0..100, ``shift_mbps[F]`` >= 0."""

    weight: FloatArray
    alpha: FloatArray
    shift_mbps: FloatArray

    def __post_init__(self) -> None:
        if not (np.all(self.weight > 0) and np.all(np.isfinite(self.weight))):
            raise PlanningError("the weight of a flow must be a finite number above 0")
        if not (np.all(self.alpha >= 0) and np.all(self.alpha <= MAX_ALPHA)):
            raise PlanningError(f"alpha of a utility must be a number from 0 to {MAX_ALPHA:g}")
        if not (np.all(self.shift_mbps >= 0) and np.all(np.isfinite(self.shift_mbps))):
            raise PlanningError("the shift of a utility must be a finite rate, 0 Mb/s or more")

    @staticmethod
    def log(weights: Iterable[float]) -> Utilities:
        """w log(1 + x) for every flow."""
        weight = np.array(list(weights), dtype=float)
        return Utilities(weight, np.ones_like(weight), np.ones_like(weight))

    def __len__(self) -> int:
        return len(self.weight)

    def select(self, flows: IndexArray) -> Utilities:
        """The utilities of some flows."""
        return Utilities(self.weight[flows], self.alpha[flows], self.shift_mbps[flows])

    def scaled(self, unit_mbps: float) -> Utilities:
        """The same utilities as functions of the rate in units of ``unit_mbps``, up to a constant."""
        weight = self.weight * unit_mbps ** (1.0 - self.alpha)
        return Utilities(weight, self.alpha, self.shift_mbps / unit_mbps)

    def weighted(self, factor: float) -> Utilities:
        """All weights times a factor."""
        return Utilities(self.weight * factor, self.alpha, self.shift_mbps)

    def values(self, rates_mbps: FloatArray) -> FloatArray:
        """U_f(x_f), shape F; -inf at a rate of 0 without shift for alpha >= 1."""
        return self.weight * _antiderivative(rates_mbps + self.shift_mbps, self.alpha)

    def total(self, rates_mbps: FloatArray) -> float:
        """Sum of U_f(x_f)."""
        return float(self.values(rates_mbps).sum())

    def log_slopes(self, rates_mbps: FloatArray) -> FloatArray:
        """log U'_f(x_f), shape F."""
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = np.log(self.weight) - self.alpha * np.log(rates_mbps + self.shift_mbps)
        return np.where(self.alpha == 0, np.log(self.weight), slope)

    def slopes(self, rates_mbps: FloatArray) -> FloatArray:
        """U'_f(x_f), shape F."""
        return np.exp(self.log_slopes(rates_mbps))

    def curvatures(self, rates_mbps: FloatArray) -> FloatArray:
        """-U''_f(x_f) / U'_f(x_f) = alpha / (x + shift), shape F, for x > 0."""
        return self.alpha / (rates_mbps + self.shift_mbps)

    def rates(self, prices: FloatArray, max_mbps: FloatArray) -> FloatArray:
        """Demand at a price: argmax over 0 <= x <= max of U_f(x) - price x, shape F; inf if unbounded.

        For alpha = 0 it is the maximum rate at prices up to the weight and 0 above.
        """
        with np.errstate(divide="ignore", over="ignore"):
            ratio = self.weight / prices
            concave = ratio ** (1.0 / np.where(self.alpha > 0, self.alpha, 1.0)) - self.shift_mbps
        linear = np.where(prices > self.weight, 0.0, np.inf)
        return np.clip(np.where(self.alpha > 0, concave, linear), 0.0, max_mbps)

    def conjugates(self, prices: FloatArray, max_mbps: FloatArray) -> FloatArray:
        """max over 0 <= x <= max of U_f(x) - price x, shape F; inf if unbounded."""
        best = self.rates(prices, max_mbps)
        # A linear utility at a price of at least its weight earns nothing more than U(0), however large the rate.
        best = np.where((self.alpha == 0) & (prices >= self.weight), 0.0, best)
        with np.errstate(invalid="ignore"):
            value = self.values(best) - prices * best
        return np.where(np.isfinite(best), value, np.inf)


def utilities_of(flows: Iterable[FlowSpec]) -> Utilities:
    """The utilities that flows declare: ``log`` is w log(1 + x), ``alpha`` is w x^(1 - alpha) / (1 - alpha)."""
    return utilities_from([utility_of(flow) for flow in flows])


def utility_of(flow: FlowSpec) -> tuple[float, float, float]:
    """Weight, alpha and shift of a flow."""
    return (flow.weight, *_SHAPES[flow.utility](flow))


def utilities_from(declared: Sequence[tuple[float, float, float]]) -> Utilities:
    """Utilities of flows with these weights, alphas and shifts."""
    columns = np.array(declared, dtype=float).reshape(len(declared), 3)
    return Utilities(columns[:, 0].copy(), columns[:, 1].copy(), columns[:, 2].copy())


_SHAPES: dict[Utility, Callable[[FlowSpec], tuple[float, float]]] = {
    Utility.LOG: lambda flow: (1.0, 1.0),
    Utility.ALPHA: lambda flow: (flow.alpha, 0.0),
}


def _antiderivative(y: FloatArray, alpha: FloatArray) -> FloatArray:
    """V(y) with V'(y) = y^-alpha and V(1) = 0 for alpha = 1, V(0) = 0 for alpha < 1, V(inf) = 0 for alpha > 1."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        power = y ** (1.0 - alpha) / np.where(alpha == 1, 1.0, 1.0 - alpha)
        return np.where(alpha == 1, np.log(y), power)

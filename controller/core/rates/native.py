"""The rate problem on the compiled solver (``native.rates``): the same algorithm as ``solver`` and ``interior_point``.

These remain the reference, and take over where there is no library.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hyroads.controller.core.errors import PlanningError
from hyroads.controller.native.rates import Aside, Kernel, Solved

from .problem import FloatArray
from .reduction import Reduced


@dataclass(frozen=True, eq=False)
class Start:
    """Safe positive rates for a cold start, or for a warm one the earlier slot's rates and prices; what isn't needed is
    empty.
    """

    safe_mbps: FloatArray
    warm_rates: FloatArray
    warm_prices: FloatArray

    @staticmethod
    def cold(safe_mbps: FloatArray) -> Start:
        """From the safe rates alone."""
        return Start(safe_mbps, np.zeros(0), np.zeros(0))


def solve_native(
    kernel: Kernel,
    reduced: Reduced,
    start: Start,
    *,
    boundary: float,
    centring: float,
    max_steps: int,
    aside: Aside | None = None,
) -> Solved | None:
    """The optimum of a reduced problem; None if it isn't reached in so many steps. ``aside`` carries it out, if given.

    Raises ``PlanningError`` if the kernel refuses the request.
    """
    try:
        return kernel.solve(
            _arrays(reduced, start),
            columns=len(reduced.columns),
            rows=len(reduced.budget),
            slices=max(1, reduced.sets.shape[1]),
            boundary=boundary,
            centring=centring,
            max_steps=max_steps,
            aside=aside,
        )
    except ValueError as error:
        raise PlanningError(str(error)) from error


def _arrays(reduced: Reduced, start: Start) -> Mapping[str, NDArray[Any]]:
    """The arrays of a request, which points into them: they must outlive it."""
    starts = np.searchsorted(reduced.flow, np.arange(len(reduced.flows) + 1))
    sets = np.vstack([reduced.sets, np.ones(reduced.sets.shape[1], dtype=bool)])
    set_of, slices = np.nonzero(sets)
    utilities = reduced.utilities
    return {
        "routing_starts": _int32(reduced.routing.indptr),
        "routing_items": _int32(reduced.routing.indices),
        "crossings": _float64(reduced.routing.data),
        "domain_starts": _int32(reduced.rows.indptr),
        "domain_items": _int32(reduced.rows.indices),
        "set_starts": _int32(np.searchsorted(set_of, np.arange(len(sets) + 1))),
        "set_items": _int32(slices),
        "domain_of": _int32(reduced.domain_of),
        "set_of": _int32(reduced.set_of % len(sets)),
        "slice_of": _int32(reduced.slice_of),
        "airtime": _float64(reduced.airtime),
        "budget": _float64(reduced.budget),
        "flow_starts": _int32(starts),
        "weight": _float64(utilities.weight),
        "alpha": _float64(utilities.alpha),
        "shift_mbps": _float64(utilities.shift_mbps),
        "demand_mbps": _float64(reduced.demand_mbps),
        "start_mbps": _float64(start.safe_mbps),
        "warm_rates": _float64(start.warm_rates),
        "warm_prices": _float64(start.warm_prices),
    }


def greatest_total(kernel: Kernel, rows: FloatArray, *, boundary: float, max_steps: int) -> FloatArray | None:
    """The rates of one flow whose paths take ``rows`` (float64[m, n] in s/Mb, each at most 1), as ``solve`` finds them.

    The problem is small and dense, and reduced already: each row is a link of capacity 1 that a path crosses as often
    as the row says. The rates are float64[n] in Mb/s; None if they aren't reached in so many steps.
    """
    count, columns = rows.shape
    column, row = np.nonzero(rows.T)
    loads = rows.sum(axis=1)
    busiest = np.where(rows > 0, loads[:, None], 0.0).max(axis=0)
    one, nothing, first = np.ones(1), np.zeros(0), np.zeros(1)
    arrays: dict[str, NDArray[Any]] = {
        "routing_starts": _int32(np.searchsorted(column, np.arange(columns + 1))),
        "routing_items": _int32(row),
        "crossings": _float64(rows.T[column, row]),
        "domain_starts": _int32(np.arange(count + 1)),
        "domain_items": _int32(np.arange(count)),
        "set_starts": _int32(np.arange(2)),
        "set_items": _int32(first),
        "domain_of": _int32(np.arange(count)),
        "set_of": _int32(np.zeros(count)),
        "slice_of": _int32(first),
        "airtime": np.ones(count),
        "budget": np.ones(count),
        "flow_starts": _int32(np.array([0, columns])),
        "weight": one,
        "alpha": one,
        "shift_mbps": np.zeros(1),
        "demand_mbps": np.full(1, np.inf),
        "start_mbps": _float64(0.5 / busiest),
        "warm_rates": nothing,
        "warm_prices": nothing,
    }
    try:
        found = kernel.solve(
            arrays, columns=columns, rows=count, slices=1, boundary=boundary, centring=0.0, max_steps=max_steps
        )  # fmt: skip
    except ValueError as error:
        raise PlanningError(str(error)) from error
    if found is None:
        return None
    rates = np.asarray(found.rates_mbps)
    return rates / max(1.0, float((rows @ rates).max()))


def _int32(values: NDArray[Any]) -> NDArray[np.int32]:
    return np.ascontiguousarray(values, dtype=np.int32)


def _float64(values: NDArray[Any]) -> FloatArray:
    return np.ascontiguousarray(values, dtype=np.float64)

"""The compiled solver (``dataplane/src/rates``), called through ctypes: the same algorithm as ``solver`` and
``interior_point``, which remain the reference and take over where there is no library.

It is part of the planner's library and looked for in the same places.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from hyroads.controller.core.errors import PlanningError
from hyroads.controller.core.planner_native import candidates
from hyroads.controller.core.rates.reduction import Reduced
from hyroads.controller.core.rates.utility import FloatArray
from numpy.typing import NDArray

ABI_VERSION = 1

_OK, _UNSOLVED = 0, 1
_FAILURES = {2: "the rates' kernel refused the request", 3: "the rates' kernel failed"}


class _Array(ctypes.Structure):
    _fields_ = (("items", ctypes.c_void_p), ("count", ctypes.c_uint64))


class _Request(ctypes.Structure):
    """``RatesRequest`` of dataplane/src/rates/ffi.rs."""

    _fields_ = (
        ("size", ctypes.c_uint64),
        ("routing_starts", _Array),
        ("routing_items", _Array),
        ("crossings", _Array),
        ("row_starts", _Array),
        ("row_items", _Array),
        ("airtime", _Array),
        ("budget", _Array),
        ("flow_starts", _Array),
        ("weight", _Array),
        ("alpha", _Array),
        ("shift_mbps", _Array),
        ("demand_mbps", _Array),
        ("start_mbps", _Array),
        ("warm_rates", _Array),
        ("warm_prices", _Array),
        ("boundary", ctypes.c_double),
        ("centring", ctypes.c_double),
        ("max_steps", ctypes.c_uint64),
    )


class _Answer(ctypes.Structure):
    """``RatesAnswer`` of dataplane/src/rates/ffi.rs."""

    _fields_ = (
        ("size", ctypes.c_uint64),
        ("rates_mbps", ctypes.c_void_p),
        ("rates_count", ctypes.c_uint64),
        ("prices", ctypes.c_void_p),
        ("prices_count", ctypes.c_uint64),
        ("steps", ctypes.c_uint64),
        ("rows", ctypes.c_uint64),
    )


@dataclass(frozen=True, eq=False)
class Solved:
    """Column rates in Mb/s (n), row prices per share of budget (m), Newton steps and rows that took part."""

    rates_mbps: FloatArray
    row_prices: FloatArray
    steps: int
    rows: int


@dataclass(frozen=True, eq=False)
class Start:
    """Safe positive rates; for a warm start also the earlier slot's rates and prices, and the gap that they leave
    (else both are empty).
    """

    safe_mbps: FloatArray
    warm_rates: FloatArray
    warm_prices: FloatArray
    warm_gap: float

    @staticmethod
    def cold(safe_mbps: FloatArray) -> Start:
        """From the safe rates alone."""
        return Start(safe_mbps, np.zeros(0), np.zeros(0), 0.0)


@dataclass(frozen=True)
class Kernel:
    """A loaded library."""

    library: ctypes.CDLL

    def solve(
        self, reduced: Reduced, start: Start, *, boundary: float, centring: float, max_steps: int
    ) -> Solved | None:
        """The optimum of a reduced problem; None if it isn't reached in so many steps.

        Raises ``PlanningError`` if the kernel refuses the request.
        """
        arrays = {**_arrays(reduced), **_start_arrays(start)}
        pointers = {name: _Array(array.ctypes.data, len(array)) for name, array in arrays.items()}
        request = _Request(
            size=ctypes.sizeof(_Request),
            boundary=boundary,
            centring=centring,
            max_steps=max_steps,
            **pointers,
        )
        rates, prices = np.empty(len(reduced.columns)), np.empty(len(reduced.groups))
        answer = _Answer(ctypes.sizeof(_Answer), rates.ctypes.data, len(rates), prices.ctypes.data, len(prices), 0, 0)
        status = self.library.hyroads_rates(ctypes.byref(request), ctypes.byref(answer))
        if status == _UNSOLVED:
            return None
        if status != _OK:
            raise PlanningError(_FAILURES.get(status, f"the rates' kernel answered with status {status}"))
        return Solved(rates, prices, answer.steps, answer.rows)


def load_kernel() -> Kernel | None:
    """The first library that loads and speaks this version of the interface; None if there is none."""
    for path in candidates():
        if path.is_file():
            try:
                library = ctypes.CDLL(str(path))
                version = library.hyroads_rates_abi()
            except (OSError, AttributeError):
                continue
            if version == ABI_VERSION:
                library.hyroads_rates.argtypes = [ctypes.POINTER(_Request), ctypes.POINTER(_Answer)]
                library.hyroads_rates.restype = ctypes.c_int32
                return Kernel(library)
    return None


@cache
def kernel() -> Kernel | None:
    """The kernel of this process: :func:`load_kernel`, looked for once."""
    return load_kernel()


def _arrays(reduced: Reduced) -> Mapping[str, NDArray[Any]]:
    """The arrays of a reduced problem; the request points into them, so they must outlive it."""
    starts = np.searchsorted(reduced.flow, np.arange(len(reduced.flows) + 1))
    utilities = reduced.utilities
    return {
        "routing_starts": _int32(reduced.routing.indptr),
        "routing_items": _int32(reduced.routing.indices),
        "crossings": _float64(reduced.routing.data),
        "row_starts": _int32(reduced.rows.indptr),
        "row_items": _int32(reduced.rows.indices),
        "airtime": _float64(reduced.airtime),
        "budget": _float64(reduced.budget),
        "flow_starts": _int32(starts),
        "weight": _float64(utilities.weight),
        "alpha": _float64(utilities.alpha),
        "shift_mbps": _float64(utilities.shift_mbps),
        "demand_mbps": _float64(reduced.demand_mbps),
    }


def _start_arrays(start: Start) -> Mapping[str, NDArray[Any]]:
    return {
        "start_mbps": _float64(start.safe_mbps),
        "warm_rates": _float64(start.warm_rates),
        "warm_prices": _float64(start.warm_prices),
    }


def _int32(values: NDArray[Any]) -> NDArray[np.int32]:
    return np.ascontiguousarray(values, dtype=np.int32)


def _float64(values: NDArray[Any]) -> FloatArray:
    return np.ascontiguousarray(values, dtype=np.float64)

"""The compiled solver of rates (``dataplane/src/rates``) on arrays: the algorithm of ``core.rates.interior_point``."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import Array, load_library, pointers_to, with_short_calls

FloatArray = NDArray[np.float64]

ABI_VERSION = 3

Aside = Callable[[Callable[[], int]], int]
"""Calls a function that takes milliseconds, so that others can run meanwhile, and gives what it returns."""

_OK, _UNSOLVED = 0, 1
_FAILURES = {2: "the rates' kernel refused the request", 3: "the rates' kernel failed"}


class _Request(ctypes.Structure):
    """``RatesRequest`` of dataplane/src/rates/ffi.rs."""

    _fields_ = (
        ("size", ctypes.c_uint64),
        ("routing_starts", Array),
        ("routing_items", Array),
        ("crossings", Array),
        ("domain_starts", Array),
        ("domain_items", Array),
        ("set_starts", Array),
        ("set_items", Array),
        ("domain_of", Array),
        ("set_of", Array),
        ("slice_of", Array),
        ("airtime", Array),
        ("budget", Array),
        ("flow_starts", Array),
        ("weight", Array),
        ("alpha", Array),
        ("shift_mbps", Array),
        ("demand_mbps", Array),
        ("start_mbps", Array),
        ("warm_rates", Array),
        ("warm_prices", Array),
        ("boundary", ctypes.c_double),
        ("centring", ctypes.c_double),
        ("max_steps", ctypes.c_uint64),
        ("slices", ctypes.c_uint64),
        ("gives_way", ctypes.c_uint64),
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


@dataclass(frozen=True)
class Kernel:
    """A loaded library."""

    library: ctypes.CDLL

    def solve(
        self,
        arrays: Mapping[str, NDArray[Any]],
        *,
        columns: int,
        rows: int,
        slices: int,
        boundary: float,
        centring: float,
        max_steps: int,
        aside: Aside | None = None,
    ) -> Solved | None:
        """The optimum of a problem of ``columns`` rates and ``rows`` constraints; None if not reached in ``max_steps``.

        ``arrays`` are the fields of ``RatesRequest`` (dataplane/src/rates/ffi.rs), contiguous. With ``aside`` that
        carries it out, and it stops between two steps while it is held up (:meth:`hold`). Raises ``ValueError`` if the
        kernel refuses the request.
        """
        request = _Request(
            size=ctypes.sizeof(_Request),
            boundary=boundary,
            centring=centring,
            max_steps=max_steps,
            slices=slices,
            gives_way=aside is not None,
            **pointers_to(arrays),
        )
        rates, prices = np.empty(columns), np.empty(rows)
        answer = _Answer(ctypes.sizeof(_Answer), rates.ctypes.data, len(rates), prices.ctypes.data, len(prices), 0, 0)
        solve = partial(self.library.hyroads_rates, ctypes.byref(request), ctypes.byref(answer))
        status = solve() if aside is None else aside(solve)
        if status == _UNSOLVED:
            return None
        if status != _OK:
            raise ValueError(_FAILURES.get(status, f"the rates' kernel answered with status {status}"))
        return Solved(rates, prices, answer.steps, answer.rows)

    def hold(self, during_s: float) -> None:
        """Have all solutions in this process that are carried out aside wait before their next step, for so long at
        most (and for 1 s); 0: they go on.
        """
        self._short.hyroads_rates_hold(math.ceil(1e3 * during_s))

    @cached_property
    def _short(self) -> ctypes.PyDLL:
        library = with_short_calls(self.library)
        library.hyroads_rates_hold.argtypes, library.hyroads_rates_hold.restype = [ctypes.c_uint64], None
        return library


def load_kernel() -> Kernel | None:
    """The kernel of the first library that speaks this version of the interface; None if there is none."""
    library = load_library("hyroads_rates_abi", ABI_VERSION)
    if library is None:
        return None
    library.hyroads_rates.argtypes = [ctypes.POINTER(_Request), ctypes.POINTER(_Answer)]
    library.hyroads_rates.restype = ctypes.c_int32
    return Kernel(library)


kernel = cache(load_kernel)
"""The kernel of this process: :func:`load_kernel`, looked for once."""


def stop_solver(during_s: float) -> None:
    """:meth:`Kernel.hold`, if there is a kernel."""
    known = kernel()
    if known is not None:
        known.hold(during_s)

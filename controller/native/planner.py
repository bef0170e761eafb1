"""The compiled planner kernel (``dataplane/src/planner``): the exploration tree of a flow, and next hops, on arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import Array, load_library, pointers_to

ABI_VERSION = 2

_OK, _MORE_ROOM = 0, 1
_FAILURES = {2: "the kernel refused the request", 3: "the kernel failed"}


class _Request(ctypes.Structure):
    """``PlanRequest`` of dataplane/src/planner/ffi.rs."""

    _fields_ = (
        ("size", ctypes.c_uint64),
        ("source", Array),
        ("target", Array),
        ("technology", Array),
        ("capacity_mbps", Array),
        ("relays", Array),
        ("shared", Array),
        ("unit_mbps", ctypes.c_double),
        ("rule", ctypes.c_uint64),
        ("group", Array),
        ("offsets", Array),
        ("near", Array),
        ("flow_source", ctypes.c_uint64),
        ("flow_target", ctypes.c_uint64),
        ("shortest", ctypes.c_uint64),
        ("depth", ctypes.c_uint64),
        ("arms", ctypes.c_uint64),
    )


class _Answer(ctypes.Structure):
    """``PlanAnswer`` of dataplane/src/planner/ffi.rs."""

    _fields_ = (
        ("size", ctypes.c_uint64),
        ("links", ctypes.c_void_p),
        ("links_count", ctypes.c_uint64),
        ("rates_mbps", ctypes.c_void_p),
        ("rates_count", ctypes.c_uint64),
    )


@dataclass(frozen=True)
class Kernel:
    """A loaded library."""

    library: ctypes.CDLL

    def explore(self, arrays: Mapping[str, NDArray[Any]], **numbers: float) -> tuple[list[int], list[float]]:
        """Explore the tree of one flow.

        ``arrays`` and ``numbers`` are the fields of ``PlanRequest`` (dataplane/src/planner/ffi.rs); arrays are
        contiguous. Returns the links and the rates in Mb/s of what was found, as ``PlanAnswer`` lays them out. Raises
        ``ValueError`` if the kernel refuses the request.
        """
        request = _request(arrays, **numbers)
        links_room, rates_room = 1024, 256
        while True:
            links = np.empty(links_room, dtype=np.int32)
            rates = np.empty(rates_room, dtype=np.float64)
            answer = _Answer(ctypes.sizeof(_Answer), links.ctypes.data, links_room, rates.ctypes.data, rates_room)
            status = self.library.hyroads_plan(ctypes.byref(request), ctypes.byref(answer))
            if status != _MORE_ROOM:
                _raise_failure(status)
                return links.tolist(), rates.tolist()
            links_room, rates_room = answer.links_count, answer.rates_count

    def routes(
        self, arrays: Mapping[str, NDArray[Any]], *, unit_mbps: float, targets: Sequence[int], technologies: int
    ) -> NDArray[np.int32]:
        """Next links towards each target, int32[targets, N, K + 1], -1 for none: as origin, then per technology in.

        ``arrays`` are those of a request with its capacities. Raises ``ValueError`` if the kernel refuses them.
        """
        request = _request(arrays, unit_mbps=unit_mbps)
        wanted = np.array(targets, dtype=np.int32)
        tables = np.empty((len(wanted), len(arrays["relays"]), technologies + 1), dtype=np.int32)
        into = Array(wanted.ctypes.data, len(wanted))
        _raise_failure(self.library.hyroads_routes(ctypes.byref(request), into, tables.ctypes.data, tables.size))
        return tables


def load_kernel() -> Kernel | None:
    """The kernel of the first library that speaks this version of the interface; None if there is none."""
    library = load_library("hyroads_planner_abi", ABI_VERSION)
    if library is None:
        return None
    library.hyroads_plan.argtypes = [ctypes.POINTER(_Request), ctypes.POINTER(_Answer)]
    library.hyroads_plan.restype = ctypes.c_int32
    library.hyroads_routes.argtypes = [ctypes.POINTER(_Request), Array, ctypes.c_void_p, ctypes.c_uint64]
    library.hyroads_routes.restype = ctypes.c_int32
    return Kernel(library)


kernel = cache(load_kernel)
"""The kernel of this process: :func:`load_kernel`, looked for once."""


def _request(arrays: Mapping[str, NDArray[Any]], **numbers: float) -> _Request:
    """A request that points into ``arrays``: they must outlive it."""
    return _Request(size=ctypes.sizeof(_Request), **numbers, **pointers_to(arrays))


def _raise_failure(status: int) -> None:
    if status != _OK:
        raise ValueError(_FAILURES.get(status, f"the kernel answered with status {status}"))

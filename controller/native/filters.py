"""The compiled filters of measured capacities (``dataplane/src/estimate``): what samples change in columns of them."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import Array, load_library, pointers_to, with_short_calls

ABI_VERSION = 1

_OK = 0
_FAILURES = {2: "the filters' kernel refused the request", 3: "the filters' kernel failed"}
_TYPES = {"count": np.int64, "index": np.int64, "step_samples": np.uint64}


class _Request(ctypes.Structure):
    """``FilterRequest`` of dataplane/src/estimate/ffi.rs."""

    _fields_ = (
        ("size", ctypes.c_uint64),
        ("mean", Array),
        ("variance", Array),
        ("weight", Array),
        ("count", Array),
        ("recent", Array),
        ("time_s", Array),
        ("index", Array),
        ("values", Array),
        ("times_s", Array),
        ("step_samples", Array),
        ("columns", ctypes.c_uint64),
        ("window", ctypes.c_uint64),
        ("jump_samples", ctypes.c_uint64),
        ("tau_s", ctypes.c_double),
        ("jump_ratio", ctypes.c_double),
        ("jump_sigma", ctypes.c_double),
        ("step_ratio", ctypes.c_double),
        ("step_sigma", ctypes.c_double),
    )


@dataclass(frozen=True)
class Kernel:
    """A loaded library."""

    library: ctypes.PyDLL

    def update(self, arrays: Mapping[str, NDArray[Any]], **numbers: float) -> None:
        """Change filters in place by samples, in their order.

        ``arrays`` and ``numbers`` are the fields of ``FilterRequest`` (dataplane/src/estimate/ffi.rs); arrays are
        contiguous, and those of the filters overlap with no other. Raises ``ValueError`` if the kernel refuses them;
        then nothing has changed.
        """
        for name, array in arrays.items():
            if array.dtype != _TYPES.get(name, np.float64) or array.ndim != 1 or not array.flags.c_contiguous:
                raise ValueError(f"{_FAILURES[2]}: {name} is of another type or shape")
        request = _Request(size=ctypes.sizeof(_Request), **numbers, **pointers_to(arrays))
        status = self.library.hyroads_filters(ctypes.byref(request))
        if status != _OK:
            raise ValueError(_FAILURES.get(status, f"the filters' kernel answered with status {status}"))


def load_kernel() -> Kernel | None:
    """The kernel of the first library that speaks this version of the interface; None if there is none."""
    found = load_library("hyroads_filters_abi", ABI_VERSION)
    if found is None:
        return None
    library = with_short_calls(found)
    library.hyroads_filters.argtypes = [ctypes.POINTER(_Request)]
    library.hyroads_filters.restype = ctypes.c_int32
    return Kernel(library)


kernel = cache(load_kernel)
"""The kernel of this process: :func:`load_kernel`, looked for once."""

"""The compiled kernels of the Rust crate (``dataplane/``), called through ctypes: the only code that loads a library.

The shared library is looked for, in this order, at ``HYROADS_NATIVE`` (a file or a folder), beside the installed
package (``controller/_native``) and in the source tree's build folder. Kernels take and return plain arrays and
numbers; ``controller.core`` gives them their meaning, and has a Python reference for each.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

LIBRARY = "libhyroads_dataplane.so"
ENVIRONMENT = "HYROADS_NATIVE"


class Array(ctypes.Structure):
    """A pointer to the items of an array, and how many there are: as the crate's foreign functions take it."""

    _fields_ = (("items", ctypes.c_void_p), ("count", ctypes.c_uint64))


def pointers_to(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Array]:
    """An :class:`Array` for each contiguous array, by name. They point into ``arrays``, which must outlive them."""
    return {name: Array(array.ctypes.data, len(array)) for name, array in arrays.items()}


def candidates() -> list[Path]:
    """Where the library may be, most specific first."""
    package = Path(__file__).resolve().parents[1]
    named = os.environ.get(ENVIRONMENT)
    given = [Path(named) / LIBRARY if Path(named).is_dir() else Path(named)] if named else []
    return [*given, package / "_native" / LIBRARY, package.parent / "dataplane" / "target" / "release" / LIBRARY]


def load_library(version_function: str, version: int) -> ctypes.CDLL | None:
    """The first library that loads and whose ``version_function`` answers ``version``; else None."""
    for path in candidates():
        if path.is_file():
            try:
                library = ctypes.CDLL(str(path))
                found = getattr(library, version_function)()
            except (OSError, AttributeError):
                continue
            if found == version:
                return library
    return None


def with_short_calls(library: ctypes.CDLL) -> ctypes.PyDLL:
    """A library whose calls take microseconds, and therefore keep the interpreter's lock: to get it back while another
    thread computes takes longer than such a call.
    """
    return ctypes.PyDLL(library._name, handle=library._handle)

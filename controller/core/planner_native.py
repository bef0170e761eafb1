"""The compiled planner kernel (``dataplane/src/planner``), called through ctypes; same results as ``tree.explore``.

The shared library is looked for, in this order, at ``HYROADS_NATIVE`` (a file or a folder), beside the installed
package (``controller/_native``) and in the source tree's build folder.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from hyroads.controller.core.errors import PlanningError
from hyroads.controller.core.interface_graph import FloatArray, InterfaceGraph
from hyroads.controller.core.interference import Cliques, Interference, Neighbours, NodeRanges
from hyroads.controller.core.paths import Multipath, RatedPath
from hyroads.controller.core.tree import TreeQuery, TreeResult
from numpy.typing import NDArray

ABI_VERSION = 2
LIBRARY = "libhyroads_dataplane.so"
ENVIRONMENT = "HYROADS_NATIVE"

_OK, _MORE_ROOM = 0, 1
_FAILURES = {2: "the kernel refused the request", 3: "the kernel failed"}


class _Array(ctypes.Structure):
    _fields_ = (("items", ctypes.c_void_p), ("count", ctypes.c_uint64))


class _Request(ctypes.Structure):
    """``PlanRequest`` of dataplane/src/planner/ffi.rs."""

    _fields_ = (
        ("size", ctypes.c_uint64),
        ("source", _Array),
        ("target", _Array),
        ("technology", _Array),
        ("capacity_mbps", _Array),
        ("relays", _Array),
        ("shared", _Array),
        ("unit_mbps", ctypes.c_double),
        ("rule", ctypes.c_uint64),
        ("group", _Array),
        ("offsets", _Array),
        ("near", _Array),
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


def candidates() -> list[Path]:
    """Where the library may be, most specific first."""
    package = Path(__file__).resolve().parents[1]
    named = os.environ.get(ENVIRONMENT)
    given = [Path(named) / LIBRARY if Path(named).is_dir() else Path(named)] if named else []
    return [*given, package / "_native" / LIBRARY, package.parent / "dataplane" / "target" / "release" / LIBRARY]


def load_kernel() -> Kernel | None:
    """The first library that loads and speaks this version of the interface; None if there is none."""
    for path in candidates():
        if path.is_file():
            try:
                library = ctypes.CDLL(str(path))
                version = library.hyroads_planner_abi()
            except (OSError, AttributeError):
                continue
            if version == ABI_VERSION:
                library.hyroads_plan.argtypes = [ctypes.POINTER(_Request), ctypes.POINTER(_Answer)]
                library.hyroads_plan.restype = ctypes.c_int32
                library.hyroads_routes.argtypes = [ctypes.POINTER(_Request), _Array, ctypes.c_void_p, ctypes.c_uint64]
                library.hyroads_routes.restype = ctypes.c_int32
                return Kernel(library, path)
    return None


@cache
def kernel() -> Kernel | None:
    """The kernel of this process: :func:`load_kernel`, looked for once."""
    return load_kernel()


@dataclass(frozen=True)
class NativeNetwork:
    """The arrays of one network as the kernel takes them; made once per network, used by every query."""

    structure: dict[str, NDArray[Any]]
    rule: int
    unit_mbps: float

    @classmethod
    def of(cls, graph: InterfaceGraph, interference: Interference) -> NativeNetwork:
        """Pack the structure of a network."""
        compact = interference.compact()
        rule = _RULES[type(compact)]
        return cls({**_structure(graph), **_RULE_ARRAYS[rule](compact)}, rule, graph.unit_mbps)


def _structure(graph: InterfaceGraph) -> dict[str, NDArray[Any]]:
    return {
        "source": np.array(graph.source, dtype=np.int32),
        "target": np.array(graph.target, dtype=np.int32),
        "technology": np.array(graph.technology, dtype=np.int32),
        "relays": np.array(graph.relays, dtype=np.uint8),
        "shared": np.array(graph.shared, dtype=np.uint8),
    }


def _clique_arrays(compact: Any) -> dict[str, NDArray[Any]]:
    return {"group": np.ascontiguousarray(compact.class_of, dtype=np.int32)}


def _range_arrays(compact: Any) -> dict[str, NDArray[Any]]:
    near = np.ascontiguousarray(compact.near, dtype=np.uint64).reshape(-1)
    return {"group": np.ascontiguousarray(compact.medium_of, dtype=np.int32), "near": near}


def _neighbour_arrays(compact: Any) -> dict[str, NDArray[Any]]:
    return {
        "group": np.ascontiguousarray(compact.indices, dtype=np.int32),
        "offsets": np.ascontiguousarray(compact.indptr, dtype=np.int64),
    }


_RULES: dict[type, int] = {Cliques: 0, NodeRanges: 1, Neighbours: 2}
_RULE_ARRAYS = (_clique_arrays, _range_arrays, _neighbour_arrays)


@dataclass(frozen=True)
class Kernel:
    """A loaded library."""

    library: ctypes.CDLL
    path: Path

    def explore(self, network: NativeNetwork, capacities_mbps: FloatArray, query: TreeQuery) -> TreeResult:
        """As ``tree.explore``; raises ``PlanningError`` if the kernel refuses the request."""
        flow = {"flow_source": query.source, "flow_target": query.target}
        size = {"shortest": query.shortest, "depth": query.depth, "arms": query.arms}
        arrays = {**network.structure, "capacity_mbps": np.ascontiguousarray(capacities_mbps, dtype=np.float64)}
        request = _request(arrays, unit_mbps=network.unit_mbps, rule=network.rule, **flow, **size)
        links_room, rates_room = 1024, 256
        while True:
            links = np.empty(links_room, dtype=np.int32)
            rates = np.empty(rates_room, dtype=np.float64)
            answer = _Answer(ctypes.sizeof(_Answer), links.ctypes.data, links_room, rates.ctypes.data, rates_room)
            status = self.library.hyroads_plan(ctypes.byref(request), ctypes.byref(answer))
            if status == _OK:
                return _Reader(links.tolist(), rates.tolist()).result()
            if status != _MORE_ROOM:
                raise PlanningError(_FAILURES.get(status, f"the kernel answered with status {status}"))
            links_room, rates_room = answer.links_count, answer.rates_count

    def routes(self, graph: InterfaceGraph, capacities_mbps: FloatArray, targets: Sequence[int]) -> NDArray[np.int32]:
        """Next links, int32[targets, N, K + 1], -1 for none: per node as origin, then per ingress technology."""
        arrays = {**_structure(graph), "capacity_mbps": np.ascontiguousarray(capacities_mbps, dtype=np.float64)}
        request = _request(arrays, unit_mbps=graph.unit_mbps)
        wanted = np.array(targets, dtype=np.int32)
        tables = np.empty((len(wanted), len(graph.relays), len(graph.technologies) + 1), dtype=np.int32)
        into = _Array(wanted.ctypes.data, len(wanted))
        status = self.library.hyroads_routes(ctypes.byref(request), into, tables.ctypes.data, tables.size)
        if status != _OK:
            raise PlanningError(_FAILURES.get(status, f"the kernel answered with status {status}"))
        return tables


def _request(arrays: dict[str, NDArray[Any]], **fields: float) -> _Request:
    """A request that points into ``arrays``: they must outlive it."""
    pointers = {name: _Array(array.ctypes.data, len(array)) for name, array in arrays.items()}
    return _Request(size=ctypes.sizeof(_Request), **fields, **pointers)


class _Reader:
    """Reads an answer from front to back."""

    def __init__(self, links: list[int], rates: list[float]) -> None:
        self._links = iter(links)
        self._rates = iter(rates)

    def result(self) -> TreeResult:
        single = self._path()
        count = next(self._links)
        arms = tuple(self._multipath() for _ in range(count))
        return TreeResult(single, arms)

    def _multipath(self) -> Multipath:
        count = next(self._links)
        paths = (self._path() for _ in range(count))
        return Multipath(tuple(path for path in paths if path is not None))

    def _path(self) -> RatedPath | None:
        length = next(self._links)
        links = tuple(next(self._links) for _ in range(length))
        return RatedPath(links, next(self._rates)) if links else None

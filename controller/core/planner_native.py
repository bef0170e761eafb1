"""The planner on the compiled kernel (``native.planner``): networks as its arrays, its answers as paths.

The results are those of ``tree.explore`` and of ``routes.all_routes`` in Python, to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hyroads.controller.native.planner import Kernel

from .errors import PlanningError
from .interface_graph import FloatArray, InterfaceGraph, Multipath, RatedPath
from .interference import Cliques, Interference, Neighbours, NodeRanges
from .tree import TreeQuery, TreeResult


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
        return cls({**structure_arrays(graph), **_RULE_ARRAYS[rule](compact)}, rule, graph.unit_mbps)


def structure_arrays(graph: InterfaceGraph) -> dict[str, NDArray[Any]]:
    """The structure of a network as the kernel takes it: ends and technology of links, and what nodes relay."""
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


def explore(kernel: Kernel, network: NativeNetwork, capacities_mbps: FloatArray, query: TreeQuery) -> TreeResult:
    """As ``tree.explore``; raises ``PlanningError`` if the kernel refuses the request."""
    arrays = {**network.structure, "capacity_mbps": np.ascontiguousarray(capacities_mbps, dtype=np.float64)}
    try:
        links, rates = kernel.explore(
            arrays,
            unit_mbps=network.unit_mbps,
            rule=network.rule,
            flow_source=query.source,
            flow_target=query.target,
            shortest=query.shortest,
            depth=query.depth,
            arms=query.arms,
        )
    except ValueError as error:
        raise PlanningError(str(error)) from error
    return _Reader(links, rates).result()


def routes(
    kernel: Kernel, graph: InterfaceGraph, capacities_mbps: FloatArray, targets: Sequence[int]
) -> NDArray[np.int32]:
    """Next links, int32[targets, N, K + 1], -1 for none: per node as origin, then per ingress technology."""
    arrays = {**structure_arrays(graph), "capacity_mbps": np.ascontiguousarray(capacities_mbps, dtype=np.float64)}
    count = len(graph.technologies)
    try:
        return kernel.routes(arrays, unit_mbps=graph.unit_mbps, targets=targets, technologies=count)
    except ValueError as error:
        raise PlanningError(str(error)) from error


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

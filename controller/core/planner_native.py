"""The planner on the compiled kernel (``native.planner``): networks as its arrays, its answers as paths.

The results are those of ``tree.explore`` and of ``routes.all_routes`` in Python, to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hyroads.controller.native.planner import Kernel

from .errors import PlanningError
from .interface_graph import FloatArray, InterfaceGraph, Multipath, RatedPath
from .interference import Cliques, Compact, Interference, Neighbours, NodeRanges
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
        rule, arrays = _rule_arrays(interference.compact())
        return cls({**structure_arrays(graph), **arrays}, rule, graph.unit_mbps)


def structure_arrays(graph: InterfaceGraph) -> dict[str, NDArray[Any]]:
    """The structure of a network as the kernel takes it: ends and technology of links, and what nodes relay."""
    return {
        "source": np.array(graph.source, dtype=np.int32),
        "target": np.array(graph.target, dtype=np.int32),
        "technology": np.array(graph.technology, dtype=np.int32),
        "relays": np.array(graph.relays, dtype=np.uint8),
        "shared": np.array(graph.shared, dtype=np.uint8),
    }


def _rule_arrays(compact: Compact) -> tuple[int, dict[str, NDArray[Any]]]:
    """The number of an interference rule, and its arrays."""
    match compact:
        case Cliques(class_of):
            return 0, {"group": np.ascontiguousarray(class_of, dtype=np.int32)}
        case NodeRanges():
            near = np.ascontiguousarray(compact.near, dtype=np.uint64).reshape(-1)
            return 1, {"group": np.ascontiguousarray(compact.medium_of, dtype=np.int32), "near": near}
        case Neighbours(indptr, indices):
            offsets = np.ascontiguousarray(indptr, dtype=np.int64)
            return 2, {"group": np.ascontiguousarray(indices, dtype=np.int32), "offsets": offsets}


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
    return _result(iter(links), iter(rates))


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


def _result(links: Iterator[int], rates: Iterator[float]) -> TreeResult:
    """Reads an answer from front to back: the single path, then the number of arms, each with its number of paths."""

    def paths(count: int) -> Iterator[RatedPath]:
        for _ in range(count):
            path = tuple(islice(links, next(links)))
            if path:
                yield RatedPath(path, next(rates))

    single = next(paths(1), None)
    return TreeResult(single, tuple(Multipath(tuple(paths(next(links)))) for _ in range(next(links))))

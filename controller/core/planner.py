"""The planner: single path, best multipath and arms of a flow (docs/explanation/routing.md; ``hyroads plan``).

    planner = Planner(network)            compile once (structure, interference)
    plan = planner.plan("a", "c")         explore the tree, in the compiled kernel if it is there
    plan.multipath, plan.arms, plan.single_path

The compiled kernel and the Python reference give the same result; :func:`engine` tells which one is in use.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hyroads.controller.native.planner import kernel

from .errors import NoRouteError, PlanningError
from .interface_graph import FloatArray, InterfaceGraph, Multipath, RatedPath, interface_graph, link_ids
from .network import Network
from .planner_native import NativeNetwork
from .planner_native import explore as explore_native
from .tree import TreeQuery, TreeResult, explore

DEFAULT_SHORTEST = 5
DEFAULT_ARMS = 5
# M <= K paths suffice, but a tree of depth K grows as n^K: beyond this depth it must be asked for.
MAX_DEFAULT_DEPTH = 5
MAX_DEPTH = 64
MAX_LEAVES = 1_000_000

NATIVE = "native"
PYTHON = "python"


@dataclass(frozen=True)
class Plan:
    """What was found for one flow. Rates are for the share ``1 - margin`` of all airtime."""

    single_path: RatedPath
    arms: tuple[Multipath, ...]
    margin: float

    @property
    def multipath(self) -> Multipath:
        """The best branch of the tree: the first arm."""
        return self.arms[0]


def engine() -> str:
    """``native`` if the compiled kernel was found (once per process), else ``python``."""
    return NATIVE if kernel() else PYTHON


def default_depth(network: Network) -> int:
    """The number of technologies, at most ``MAX_DEFAULT_DEPTH``."""
    return max(1, min(len(network.technologies), MAX_DEFAULT_DEPTH))


@dataclass(frozen=True)
class Planner:
    """Plans flows in one network.

    ``clients_relay``: plain clients forward too, as every node does in the papers; a deployed plain client has
    no switch and can't. ``prefer`` is ``native`` (falls back to Python if there is no library) or ``python``.
    """

    network: Network
    clients_relay: bool = False
    prefer: str = NATIVE

    def plan(
        self,
        source: str,
        target: str,
        *,
        shortest: int = DEFAULT_SHORTEST,
        depth: int | None = None,
        arms: int = DEFAULT_ARMS,
        margin: float = 0.0,
        capacities_mbps: FloatArray | None = None,
    ) -> Plan:
        """Explore the tree of the flow ``source -> target``.

        ``shortest`` is n, ``depth`` the most paths of a multipath (default: number of technologies), ``arms`` how many
        distinct multipaths to return, ``margin`` the share delta of airtime to keep free: all rates are scaled by
        1 - delta. ``capacities_mbps``, float64[L] in Mb/s, stands in for the network's capacities (0: no such link).
        Raises ``PlanningError`` for an unknown node, a bad size or if there is no route.
        """
        query = self._query(source, target, shortest, default_depth(self.network) if depth is None else depth, arms)
        if not 0.0 <= margin < 1.0:
            raise PlanningError(f"margin {margin:g}: expected a share of airtime, 0 <= margin < 1")
        result = self._explore(query, self._capacities_mbps if capacities_mbps is None else capacities_mbps)
        if result.single_path is None:
            raise NoRouteError(f"no route from {source!r} to {target!r}")
        free = 1.0 - margin
        scaled = tuple(Multipath(tuple(_scaled(path, free) for path in arm.paths)) for arm in result.arms)
        return Plan(_scaled(result.single_path, free), scaled, margin)

    @cached_property
    def _graph(self) -> InterfaceGraph:
        return interface_graph(self.network, self.clients_relay)

    @cached_property
    def _native(self) -> NativeNetwork:
        return NativeNetwork.of(self._graph, self.network.interference)

    @cached_property
    def _capacities_mbps(self) -> FloatArray:
        return self.network.capacities

    def _query(self, source: str, target: str, shortest: int, depth: int, arms: int) -> TreeQuery:
        for what, value in (("shortest", shortest), ("depth", depth), ("arms", arms)):
            if value < 1:
                raise PlanningError(f"{what} {value}: expected a whole number above 0")
        if depth > MAX_DEPTH or shortest**depth > MAX_LEAVES:
            raise PlanningError(
                f"a tree of {shortest} paths per vertex and depth {depth} is too large: "
                f"expected a depth of at most {MAX_DEPTH} and at most {MAX_LEAVES} leaves (shortest ** depth)"
            )
        start, end = self._graph.node(source), self._graph.node(target)
        if start == end:
            raise PlanningError(f"source and target are the same node {source!r}")
        return TreeQuery(start, end, shortest, depth, arms)

    def _explore(self, query: TreeQuery, capacities_mbps: FloatArray) -> TreeResult:
        compiled = kernel() if self.prefer == NATIVE else None
        if compiled is None:
            return explore(self._graph, self.network.interference, capacities_mbps, query)
        return explore_native(compiled, self._native, capacities_mbps, query)


def _scaled(path: RatedPath, factor: float) -> RatedPath:
    return RatedPath(path.links, path.rate_mbps * factor)


def plan_document(network: Network, plan: Plan) -> dict[str, Any]:
    """Single path, best multipath and arms, with link ids: for ``hyroads plan --json`` and ``GET /paths``."""
    return {
        "single_path": _rated(network, plan.single_path),
        "multipath": {
            "paths": [_rated(network, path) for path in plan.multipath.paths],
            "total_mbps": plan.multipath.total_mbps,
        },
        "arms": [
            {"paths": [link_ids(network, path) for path in arm.links], "total_mbps": arm.total_mbps}
            for arm in plan.arms
        ],
    }


def _rated(network: Network, path: RatedPath) -> dict[str, Any]:
    return {"links": link_ids(network, path.links), "rate_mbps": path.rate_mbps}

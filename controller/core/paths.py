"""Paths and multipaths as values: what the planner returns and what rates and rules are made from.

A path is a tuple of link indices into ``Network.links``, in the order in which a packet crosses them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import pairwise
from operator import add

from hyroads.controller.core.errors import PlanningError
from hyroads.controller.core.network import Network

Path = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RatedPath:
    """A path and a rate in Mb/s (R(P) in the graph in which the path was found, or an allocated rate)."""

    links: Path
    rate_mbps: float


@dataclass(frozen=True)
class Multipath:
    """Paths used at once, in tree order: the rate of each is what the paths before it left over."""

    paths: tuple[RatedPath, ...]

    @cached_property
    def total_mbps(self) -> float:
        """Estimated capacity: the sum of the rates of the paths (thesis [2.9])."""
        # Plain left-to-right sums on every version of Python, as in the compiled kernel.
        return reduce(add, (path.rate_mbps for path in self.paths), 0.0)

    @cached_property
    def links(self) -> tuple[Path, ...]:
        """The paths without their rates, in tree order."""
        return tuple(path.links for path in self.paths)

    @cached_property
    def identity(self) -> frozenset[Path]:
        """The set of paths: two multipaths are the same arm if and only if these are equal."""
        return frozenset(self.links)


def link_ids(network: Network, path: Iterable[int]) -> list[str]:
    """Link ids of a path."""
    return [network.links[index].id for index in path]


def path_from_ids(network: Network, ids: Iterable[str]) -> Path:
    """Link ids to a path; raises ``PlanningError`` for an unknown id or for links that are no loop-free path."""
    names = list(ids)
    unknown = [name for name in names if name not in network.link_index]
    if unknown:
        raise PlanningError(f"no link {unknown[0]!r} in the network")
    path = tuple(network.link_index[name] for name in names)
    if not is_loop_free(network, path):
        raise PlanningError(f"links {', '.join(names)} are not one loop-free path")
    return path


def is_loop_free(network: Network, path: Path) -> bool:
    """True if the links follow each other and no node is visited twice; False for the empty path."""
    nodes = path_nodes(network, path)
    connected = all(network.links[a].target == network.links[b].source for a, b in pairwise(path))
    return bool(path) and connected and len(set(nodes)) == len(nodes)


def path_nodes(network: Network, path: Path) -> list[str]:
    """Nodes of a path from its source to its target; empty for the empty path."""
    return [network.links[index].source for index in path[:1]] + [network.links[index].target for index in path]

"""The two paths of a private flow. Pure.

Each path is what one network sees of the flow, so the two have no technology in common: an observer of either learns
only its own part (spec 04, section 2).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from hyroads.controller.core.errors import PlanningError
from hyroads.controller.core.network import Network
from hyroads.controller.core.paths import Path
from hyroads.controller.core.planner import Planner


def two_networks(network: Network, paths: Sequence[Path]) -> tuple[Path, ...]:
    """The first two paths without a common technology; empty if there are none."""
    for pair in combinations(paths, 2):
        first, second = ({network.links[link].technology for link in path} for path in pair)
        if not first & second:
            return pair
    return ()


def single_technology_paths(network: Network, source: str, target: str) -> tuple[Path, ...]:
    """For every technology the shortest path that uses no other."""
    found = (_shortest(_only(network, technology), source, target) for technology in network.technologies)
    return tuple(path for path in found if path)


def _only(network: Network, technology: str) -> Network:
    others = (link.id for link in network.links if link.technology != technology)
    return network.with_capacities(dict.fromkeys(others, 0.0))


def _shortest(network: Network, source: str, target: str) -> Path:
    try:
        return Planner(network).plan(source, target, shortest=1, depth=1, arms=1).single_path.links
    except PlanningError:
        return ()

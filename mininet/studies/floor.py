"""The office floor of the live studies: pairs of its nodes, the paths that schemes give them, the part they need.

The floor is ``topologies.office22_panels``, the model of the published testbed (22 nodes, WiFi and two power lines),
with a second WiFi channel of the first's capacities that only the scheme mWiFi may use. Capacities are half of the
model's, so that two cores carry the traffic; steps of 1 Mb/s are 0.5 Mb/s here, and only shares compare.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import permutations

import numpy as np

from hyroads.controller.core.errors import NoRouteError
from hyroads.controller.core.interface_graph import FloatArray, Path, link_ids
from hyroads.controller.core.interference import RangeInterference
from hyroads.controller.core.network import Network
from hyroads.controller.core.optimum import multipath_rates
from hyroads.controller.core.planner import Plan, Planner
from hyroads.controller.core.topologies import PLC, WIFI, office22_panels
from hyroads.controller.study.framework import StudyError

SCALE = 0.5
SECOND = f"{WIFI.technology}-2"
DEPTH = 2
"""The most paths of a multipath: as many as a node has technologies."""

Pair = tuple[str, str]
Paths = tuple[tuple[str, ...], ...]
"""Paths of a flow by the ids of their links."""
EMPOWER, SP, SP_WIFI, MWIFI, TWO_BEST = "EMPoWER", "SP", "SP-WiFi", "mWiFi", "2bp"


def _ranges_m(network: Network) -> dict[str, float]:
    technologies = dict.fromkeys(link.technology for link in network.links)
    return {k: PLC.range_m if k.startswith(PLC.technology) else WIFI.range_m for k in technologies}


def two_channels(network: Network) -> Network:
    """The network with a second WiFi channel beside all that there is; the channels do not contend."""
    second = [
        replace(link, id=f"{link.id}-2", technology=SECOND)
        for link in network.links
        if link.technology == WIFI.technology
    ]
    links = (*network.links, *second)
    whole = replace(network, links=links)
    return replace(whole, interference=RangeInterference(network.nodes, links, _ranges_m(whole)))


def part_of(network: Network, used: Sequence[Sequence[str]], without: frozenset[str] = frozenset()) -> Network:
    """The nodes on these paths (ids of links) with all links among them, but for those of technologies ``without``."""
    by_id = {link.id: link for link in network.links}
    on_them = {end for path in used for link in path for end in (by_id[link].source, by_id[link].target)}
    nodes = {name: node for name, node in network.nodes.items() if name in on_them}
    links = tuple(
        link
        for link in network.links
        if link.source in nodes and link.target in nodes and link.technology not in without
    )
    part = replace(network, nodes=nodes, links=links)
    return replace(part, interference=RangeInterference(nodes, links, _ranges_m(part)))


def paths_mbps(network: Network, paths: Paths, margin: float = 0.0) -> float:
    """What paths carry together at most, Mb/s of L2 payload, if ``margin`` of all airtime stays free."""
    indices: list[Path] = [tuple(network.link_index[link] for link in path) for path in paths]
    return float(multipath_rates(network, indices, margin).sum())


@dataclass(frozen=True)
class Floor:
    """The floor of a seed."""

    seed: int

    @cached_property
    def network(self) -> Network:
        """With both WiFi channels."""
        return two_channels(office22_panels(random.Random(self.seed), capacity_scale=SCALE))  # noqa: S311

    @cached_property
    def _planner(self) -> Planner:
        return Planner(self.network)

    def _capacities(self, allowed: Callable[[str], bool]) -> FloatArray:
        mask = np.array([allowed(link.technology) for link in self.network.links])
        return np.where(mask, self.network.capacities, 0.0)

    @cached_property
    def _hybrid(self) -> FloatArray:
        return self._capacities(lambda technology: technology != SECOND)

    @cached_property
    def _wifi(self) -> FloatArray:
        return self._capacities(lambda technology: technology == WIFI.technology)

    @cached_property
    def _two_channels(self) -> FloatArray:
        return self._capacities(lambda technology: technology in {WIFI.technology, SECOND})

    def plan(self, pair: Pair, arms: int = 1) -> Plan | None:
        """The plan of a pair over WiFi and power lines; None without a route."""
        return self._plan(pair, self._hybrid, arms)

    def _plan(self, pair: Pair, capacities_mbps: FloatArray, arms: int = 1, depth: int = DEPTH) -> Plan | None:
        try:
            return self._planner.plan(*pair, depth=depth, arms=arms, capacities_mbps=capacities_mbps)
        except NoRouteError:
            return None

    def schemes(self, pair: Pair) -> dict[str, Paths]:
        """The paths of each scheme; a scheme without a route is not there.

        2bp has the two shortest paths, or the only one.
        """
        hybrid, wifi = self.plan(pair), self._plan(pair, self._wifi, depth=1)
        channels = self._plan(pair, self._two_channels)
        found: dict[str, Paths] = {}
        if hybrid is not None:
            found[EMPOWER] = self._named(hybrid.multipath.links)
            found[SP] = self._named([hybrid.single_path.links])
            # A tree of depth 1 has the n shortest paths as its arms.
            two = self._planner.plan(*pair, shortest=2, depth=1, arms=2, capacities_mbps=self._hybrid)
            found[TWO_BEST] = self._named([path for arm in two.arms for path in arm.links])
        if wifi is not None:
            found[SP_WIFI] = self._named([wifi.single_path.links])
        if channels is not None:
            found[MWIFI] = self._named(channels.multipath.links)
        return found

    def _named(self, paths: Sequence[Path]) -> Paths:
        return tuple(tuple(link_ids(self.network, path)) for path in paths)

    def pairs(self, count: int, wanted: Callable[[Plan], bool] = lambda _: True) -> list[Pair]:
        """So many different random pairs with a route whose plan is as wanted; more of them begin with the same."""
        ends = list(permutations(self.network.nodes, 2))
        random.Random(f"{self.seed}/pairs").shuffle(ends)  # noqa: S311
        found: list[Pair] = []
        for pair in ends:
            if len(found) == count:
                break
            plan = self.plan(pair)
            if plan is not None and wanted(plan):
                found.append(pair)
        if len(found) < count:
            raise StudyError(f"the floor has {len(found)} such pairs, {count} were asked for")
        return found


def hybrid_multipath(plan: Plan) -> bool:
    """Whether the best multipath has several paths."""
    return len(plan.multipath.paths) > 1

"""How much airtime a flow with a bandit may use where (spec 03, section 3.1: 1 / F_l), besides flows that use less than
their share and traffic that is not ours. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from hyroads.controller.core.bandit.arms import FloatArray
from hyroads.controller.core.network import Network
from hyroads.controller.numbering import PathName

# Below this it is hello frames and noise.
LEAST_EXTERNAL = 0.05


@dataclass(frozen=True, eq=False)
class Competitor:
    """Another flow: the ``load`` [L] that it puts on the domain of each link, 0 where it interferes with nothing, and
    whether it would take more.
    """

    load: FloatArray
    greedy: bool


def domain_load(network: Network, paths: Mapping[PathName, float]) -> FloatArray:
    """Airtime [L] in the domain of each link of paths that carry so many Mb/s, by the capacities that plans count on.

    A path that carries nothing yet puts a trace of load on its domains.
    """
    index, load = network.link_index, np.zeros(len(network.links))
    for path, rate_mbps in paths.items():
        for name in path:
            link = index[name]
            capacity = network.links[link].capacity_mbps
            busy = min(rate_mbps / capacity, 1.0) if capacity > 0 else 0.0
            load[network.interference.domain(link)] += max(busy, 1e-6)
    return load


def flow_counts(size: int, competitors: Sequence[Competitor]) -> FloatArray:
    """F [L]: how many flows interfere on each link, this one included."""
    return 1.0 + sum(((other.load > 0).astype(float) for other in competitors), np.zeros(size))


def airtime_shares(competitors: Sequence[Competitor], external: FloatArray, margin: float) -> FloatArray:
    """[L]: the share of time that is left for a flow: an equal one, or more if the others need less.

    External traffic counts like a flow that takes what it takes.
    """
    size = len(external)
    others = np.where(external >= LEAST_EXTERNAL, external, 0.0)
    everyone = flow_counts(size, competitors) + (others > 0)
    greedy = flow_counts(size, [other for other in competitors if other.greedy])
    modest = sum((other.load for other in competitors if not other.greedy), np.zeros(size))
    free = 1.0 - margin
    shares: FloatArray = np.maximum(free / everyone, (free - modest - others) / greedy)
    return shares

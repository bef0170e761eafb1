"""R(P), the rate of a path, and update(P, G), what it leaves to the others (spec 01, 1.3; thesis [2.8]).

    load(l) = sum of d_m over the links m of P in I_l          (busy time of l per unit of rate of P)
    R(P)    = 1 / max over l in P of load(l)
    r(l, P) = 1 - R(P) load(l)
    update: C(l) <- max(0, C(l) r(l, P)) for every l that interferes with P

The sums run in the order of the path, so that the compiled kernel gives the same floats.
"""

from __future__ import annotations

import numpy as np
from hyroads.controller.core.interface_graph import FloatArray
from hyroads.controller.core.interference import Interference
from hyroads.controller.core.paths import Path

# A share of airtime below this is rounding noise: the link is full.
NEGLIGIBLE_AIRTIME = 1e-9


def path_load(interference: Interference, capacities_mbps: FloatArray, path: Path) -> FloatArray:
    """Busy time of every link per Mb/s on the path, float64[L] in s/Mb; the capacities are float64[L] in Mb/s."""
    load = np.zeros_like(capacities_mbps)
    for link in path:
        load[interference.domain(link)] += 1.0 / capacities_mbps[link]
    return load


def path_rate(interference: Interference, capacities_mbps: FloatArray, path: Path) -> float:
    """R(P) in Mb/s: what the path carries alone, as far as the airtime of its own links goes."""
    load = path_load(interference, capacities_mbps, path)
    return 1.0 / max(float(load[link]) for link in path)


def update(interference: Interference, capacities_mbps: FloatArray, path: Path) -> FloatArray:
    """Capacities, float64[L] in Mb/s, that are left when the path is used at R(P). A bottleneck of it gets 0."""
    load = path_load(interference, capacities_mbps, path)
    greatest = max(float(load[link]) for link in path)
    remaining = 1.0 - load / greatest
    remaining[remaining < NEGLIGIBLE_AIRTIME] = 0.0
    left: FloatArray = capacities_mbps * remaining
    return left

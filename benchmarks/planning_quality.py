"""How good the planned multipaths are: estimate and optimum against the exact optimum over all paths, and what they
gain over WiFi alone and over one path.

    python benchmarks/planning_quality.py [--runs N] [--ends any-to-ap|ap-to-any|client-to-router]

estimate   what the exploration tree promises (sum of R(P), airtime of the path's own links only)
optimum    what the airtime of every link of the network grants that multipath (LP)
all paths  what it grants one flow over all paths at once (link-flow LP)
gain       mean of the optimum over the mean of that of WiFi's best multipath, and of the single path, of the same flow
no route   flows between nodes that no path connects; they are left out of all else

As in the publications every node relays, and a multipath has at most as many paths as a node has media. Without
``--ends``, flows of homes go from a client to a router, all others from any node to an AP (the thesis; ``ap-to-any``
is the paper's choice).
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from hyroads.controller.core.errors import PlanningError
from hyroads.controller.core.network import Network
from hyroads.controller.core.optimum import multipath_optimum_mbps
from hyroads.controller.core.planner import Planner

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
from flow_optimum import flow_optimum_mbps

from hyroads.controller.study import networks as study_networks

Maker = Callable[[random.Random], Network]
WIDE = partial(study_networks.enterprise, width_m=100.0, height_m=60.0, panels=2)
MEDIA = 2

# Networks, and the most paths of a multipath.
FAMILIES: dict[str, tuple[Maker, int]] = {
    "residential mesh": (study_networks.residential, MEDIA),
    "residential, one router": (partial(study_networks.residential, mesh=False), MEDIA),
    "enterprise 50x30, 10 nodes": (study_networks.enterprise, MEDIA),
    "enterprise 100x60, 10 nodes": (partial(WIDE, node_count=10), MEDIA),
    "enterprise 100x60, 20 nodes": (partial(WIDE, node_count=20), MEDIA),
    **{
        f"paths study {i} (K=3)": (partial(study_networks.paths_study, number=i), study_networks.PATHS_STUDY_MEDIA)
        for i in (1, 2, 3, 4)
    },
    "office, 22 nodes": (study_networks.office22, MEDIA),
}


def measure(make: Maker, depth: int, runs: int, ends: study_networks.Ends | None) -> dict[str, list[float]]:
    """Ratios and rates of all flows that have a route."""
    keys = ("estimate", "single", "best", "arms", "other", "mbps", "single mbps", "wifi mbps")
    seen: dict[str, list[float]] = {key: [] for key in keys}
    for seed in range(runs):
        rng = random.Random(seed)
        network = make(rng)
        source, target = study_networks.endpoints(network, rng, ends)
        try:
            plan = Planner(network, clients_relay=True).plan(source, target, depth=depth)
        except PlanningError:
            continue
        optimum = multipath_optimum_mbps(network, plan.multipath.links)
        single = multipath_optimum_mbps(network, [plan.single_path.links])
        limit = flow_optimum_mbps(network, source, target, clients_relay=True)
        seen["estimate"].append(plan.multipath.total_mbps / optimum)
        seen["single"].append(single / limit)
        seen["best"].append(optimum / limit)
        seen["arms"].append(max(multipath_optimum_mbps(network, arm.links) for arm in plan.arms) / limit)
        seen["other"].append(float(plan.single_path.links not in plan.multipath.links))
        seen["mbps"].append(optimum)
        seen["single mbps"].append(single)
        seen["wifi mbps"].append(wifi_mbps(network, source, target, depth))
    return seen


def wifi_mbps(network: Network, source: str, target: str, depth: int) -> float:
    """The rate of the best multipath over WiFi alone; 0 without a route."""
    wired = {link.id: 0.0 for link in network.links if not link.technology.startswith("wifi")}
    wifi = network.with_capacities(wired)
    try:
        plan = Planner(wifi, clients_relay=True).plan(source, target, depth=depth)
    except PlanningError:
        return 0.0
    return multipath_optimum_mbps(wifi, plan.multipath.links)


def spread(values: list[float]) -> str:
    """Mean and the extreme that matters (5th percentile)."""
    low = sorted(values)[len(values) // 20]
    return f"{statistics.mean(values):.3f} ({low:.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(description="Quality of planned multipaths against exact optima.")
    parser.add_argument("--runs", type=int, default=60, help="flows per family (default: %(default)s)")
    parser.add_argument(
        "--ends", choices=[each.value for each in study_networks.Ends], help="which nodes flows connect"
    )
    args = parser.parse_args()
    ends = study_networks.Ends(args.ends) if args.ends else None
    table = Table("networks", "flows", "no route", "estimate / optimum: median, max", title="Quality of planning")
    for column in ("single path", "multipath (target 0.9)", "best of 5 arms"):
        table.add_column(f"{column} / all paths: mean (5th pct)")
    for column in ("without shortest path", "gain over WiFi", "over one path"):
        table.add_column(column)
    for name, (make, depth) in FAMILIES.items():
        seen = measure(make, depth, args.runs, ends)
        flows = len(seen["best"])
        ratios = (spread(seen[key]) for key in ("single", "best", "arms"))
        estimate = f"{statistics.median(seen['estimate']):.3f}, {max(seen['estimate']):.3f}"
        mean_mbps = statistics.mean(seen["mbps"])
        gains = (f"{mean_mbps / statistics.mean(seen[key]) - 1:+.0%}" for key in ("wifi mbps", "single mbps"))
        other = f"{statistics.mean(seen['other']):.0%}"
        table.add_row(name, str(flows), f"{1 - flows / args.runs:.0%}", estimate, *ratios, other, *gains)
    Console(width=200).print(table)


if __name__ == "__main__":
    main()

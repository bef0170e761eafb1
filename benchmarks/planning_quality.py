"""How good the planned multipaths are: estimate and optimum against the exact optimum over all paths.

    python benchmarks/planning_quality.py [--runs N]

estimate   what the exploration tree promises (sum of R(P), airtime of the path's own links only)
optimum    what the airtime of every link of the network grants that multipath (LP)
all paths  what it grants one flow over all paths at once (link-flow LP)
"""

from __future__ import annotations

import argparse
import random
import statistics
from collections.abc import Callable
from functools import partial

from hyroads.controller.core import topologies
from hyroads.controller.core.errors import PlanningError
from hyroads.controller.core.network import Network
from hyroads.controller.core.optimum import flow_optimum_mbps, multipath_optimum_mbps
from hyroads.controller.core.planner import Planner
from rich.console import Console
from rich.table import Table

FAMILIES: dict[str, Callable[[random.Random], Network]] = {
    "residential mesh": topologies.residential,
    "enterprise 50x30, 10 nodes": topologies.enterprise,
    "enterprise 100x60, 20 nodes": partial(
        topologies.enterprise, node_count=20, width_m=100.0, height_m=60.0, panels=2
    ),
    "paths study 1 (K=3)": partial(topologies.paths_study, number=1),
    "paths study 3 (K=3)": partial(topologies.paths_study, number=3),
    "office, 22 nodes": topologies.office22,
}


def measure(make: Callable[[random.Random], Network], runs: int) -> dict[str, list[float]]:
    """Ratios of all flows that have a route."""
    seen: dict[str, list[float]] = {"estimate": [], "single": [], "best": [], "arms": [], "other": []}
    for seed in range(runs):
        rng = random.Random(seed)
        network = make(rng)
        source, target = topologies.endpoints(network, rng)
        try:
            plan = Planner(network).plan(source, target)
        except PlanningError:
            continue
        optimum = multipath_optimum_mbps(network, plan.multipath.links)
        limit = flow_optimum_mbps(network, source, target)
        seen["estimate"].append(plan.multipath.total_mbps / optimum)
        seen["single"].append(multipath_optimum_mbps(network, [plan.single_path.links]) / limit)
        seen["best"].append(optimum / limit)
        seen["arms"].append(max(multipath_optimum_mbps(network, arm.links) for arm in plan.arms) / limit)
        seen["other"].append(float(plan.single_path.links not in plan.multipath.links))
    return seen


def spread(values: list[float]) -> str:
    """Mean and the extreme that matters (5th percentile)."""
    low = sorted(values)[len(values) // 20]
    return f"{statistics.mean(values):.3f} ({low:.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(description="Quality of planned multipaths against exact optima.")
    parser.add_argument("--runs", type=int, default=60, help="flows per family (default: %(default)s)")
    runs = parser.parse_args().runs
    table = Table(
        "networks", "flows", "estimate / optimum: median, max", "exceeds by > 1 %", title="Quality of planning"
    )
    columns = ("single path", "multipath (target 0.9)", "best of 5 arms")
    for column in columns:
        table.add_column(f"{column} / all paths: mean (5th pct)")
    table.add_column("without shortest path")
    for name, make in FAMILIES.items():
        seen = measure(make, runs)
        over = sum(ratio > 1.01 for ratio in seen["estimate"]) / len(seen["estimate"])
        ratios = (spread(seen[key]) for key in ("single", "best", "arms"))
        estimate = f"{statistics.median(seen['estimate']):.3f}, {max(seen['estimate']):.3f}"
        table.add_row(
            name, str(len(seen["best"])), estimate, f"{over:.0%}", *ratios, f"{statistics.mean(seen['other']):.0%}"
        )
    Console(width=170).print(table)


if __name__ == "__main__":
    main()

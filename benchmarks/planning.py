"""How long planning takes: one flow, one call of ``Planner(network).plan`` on a network that is loaded.

    python benchmarks/planning.py [--runs N] [--no-python]

Each run draws a new random network and flow (fixed seeds). *First* includes compiling the network into the arrays of
the kernel, *again* reuses them (a controller that keeps its planner). The estimate is compared with the optimum
of the multipath under the airtime of every link, which is what an allocation can grant. Then all next hops of a
network, and the paths of the flows of a group.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from hyroads.controller.core.flow_groups import GroupFlow, group_paths
from hyroads.controller.core.network import Network
from hyroads.controller.core.optimum import multipath_optimum_mbps
from hyroads.controller.core.planner import NATIVE, PYTHON, Planner, engine
from hyroads.controller.core.routes import all_routes

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
from hyroads.controller.study import networks as study_networks


@dataclass(frozen=True)
class Case:
    """A family of networks with the median that is aimed at and how often the reference runs."""

    what: str
    make: Callable[[random.Random], Network]
    target_ms: float
    runs: int
    python_runs: int


CASES = (
    Case("22-node office, n=5, K=2", study_networks.office22, 3.0, 60, 20),
    Case("100 nodes, n=5, K=2", study_networks.campus100, 50.0, 20, 5),
    Case("200 nodes, n=5, K=3", study_networks.campus200, 100.0, 8, 1),
)


def elapsed_ms(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return (time.perf_counter() - started) * 1e3


def summary(times_ms: list[float]) -> str:
    return f"{statistics.median(times_ms):.2f} / {max(times_ms):.2f}" if times_ms else "-"


def measure(case: Case, runs: int, python_runs: int) -> dict[str, list[float]]:
    """Times in ms, numbers of links and ratios estimate / optimum of all runs."""
    seen: dict[str, list[float]] = {"first": [], "again": [], "python": [], "optimum": [], "links": [], "ratio": []}
    for seed in range(runs):
        rng = random.Random(seed)
        network = case.make(rng)
        source, target = study_networks.endpoints(network, rng)
        planner = Planner(network, prefer=NATIVE)
        seen["first"].append(elapsed_ms(lambda: planner.plan(source, target)))  # noqa: B023
        seen["again"].append(elapsed_ms(lambda: planner.plan(source, target)))  # noqa: B023
        if seed < python_runs:
            reference = Planner(network, prefer=PYTHON)
            seen["python"].append(elapsed_ms(lambda: reference.plan(source, target)))  # noqa: B023
        best = planner.plan(source, target).multipath
        seen["optimum"].append(elapsed_ms(lambda: multipath_optimum_mbps(network, best.links)))  # noqa: B023
        seen["ratio"].append(best.total_mbps / multipath_optimum_mbps(network, best.links))
        seen["links"].append(len(network.links))
    return seen


def plan_table(runs: int | None, with_python: bool) -> Table:
    columns = ("networks", "links", "first, ms", "again, ms", "target, ms", "ok", "Python, ms", "optimum, ms")
    table = Table(*columns, "estimate / optimum", title=f"one flow, engine {engine()}: median / max")
    for case in CASES:
        seen = measure(case, runs or case.runs, case.python_runs if with_python else 0)
        ok = statistics.median(seen["first"]) <= case.target_ms
        table.add_row(
            case.what,
            f"{statistics.median(seen['links']):.0f}",
            summary(seen["first"]),
            summary(seen["again"]),
            f"{case.target_ms:g}",
            "yes" if ok else "NO",
            summary(seen["python"]),
            summary(seen["optimum"]),
            summary(seen["ratio"]),
        )
    return table


def routes_table(with_python: bool) -> Table:
    table = Table(
        "networks", "entries", "compiled, ms", "Python, ms", "target, ms", "ok", title="next hops, all targets"
    )
    for case, target_ms in zip(CASES, (10.0, 100.0, 1000.0), strict=True):
        network = case.make(random.Random(0))
        times_ms = [elapsed_ms(lambda: all_routes(network)) for _ in range(3)]  # noqa: B023
        slow = with_python and len(network.nodes) <= 100
        python_ms = [elapsed_ms(lambda: all_routes(network, compiled=False))] if slow else []  # noqa: B023
        entries = sum(len(routes) for routes in all_routes(network).values())
        ok = statistics.median(times_ms) <= target_ms
        row = (summary(times_ms), summary(python_ms), f"{target_ms:g}", "yes" if ok else "NO")
        table.add_row(case.what.split(",")[0], str(entries), *row)
    return table


def groups_table(runs: int) -> Table:
    """Groups of flows to one node, from anywhere: processor time of one choice."""
    networks = {"10-node office": study_networks.enterprise, "22-node office": study_networks.office22}
    table = Table("networks", "flows", "CPU, ms", title="paths of a group's flows: median / max")
    for what, make in networks.items():
        for count in (2, 3, 4):
            spent_ms = []
            for seed in range(runs):
                rng = random.Random(seed)
                network = make(rng)
                planner, (source, target) = Planner(network), study_networks.endpoints(network, rng)
                planner.plan(source, target)
                others = [node for node in network.nodes if node != target]
                flows = [GroupFlow(source, target), *(GroupFlow(rng.choice(others), target) for _ in range(count - 1))]
                started_s = time.process_time()
                group_paths(planner, flows)
                spent_ms.append((time.process_time() - started_s) * 1e3)
            table.add_row(what, str(count), summary(spent_ms))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description="Time of planning one flow and of all next hops.")
    parser.add_argument("--runs", type=int, help="networks per case (default: as many as fit in a minute)")
    parser.add_argument("--no-python", action="store_true", help="leave the Python reference out")
    args = parser.parse_args()
    console = Console(width=160)
    console.print(plan_table(args.runs, not args.no_python))
    console.print(routes_table(not args.no_python))
    console.print(groups_table(args.runs or 40))


if __name__ == "__main__":
    main()

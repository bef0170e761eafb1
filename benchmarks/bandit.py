"""How long the bandit's steps take: rates from busy times, a decision, a schedule. Target: a slot of 400 ms.

Run: python benchmarks/bandit.py
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from hyroads.controller.core.bandit import Exploit, Hymab, HymabPlus, flow_bandit
from hyroads.controller.core.bandit.probe_schedule import ProbeRequest, schedule

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
from probe_airtime import busy_sample, optimal_rates


def best_ms(work: Callable[[], object], repeats: int = 200) -> tuple[float, float]:
    """Median and 95th percentile in ms."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append((time.perf_counter() - start) * 1e3)
    return float(np.median(times)), float(np.percentile(times, 95))


def optimum(paths: int, links: int, probes: int) -> Callable[[], object]:
    rng = np.random.default_rng(1)
    alpha = rng.uniform(0.01, 0.1, (links, paths))
    samples = [busy_sample(v, alpha @ v) for v in np.tile(np.diag(np.full(paths, 5.0)), (probes, 1))]
    return lambda: optimal_rates(samples, np.ones(links))


def slot(policy: Hymab | HymabPlus) -> Callable[[], object]:
    """One decision and one observation, after a thousand slots."""
    rng = np.random.default_rng(1)
    bandit = flow_bandit(policy, [[9.0, 4.0]] * 5)
    for _ in range(1000):
        action = bandit.decide(rng)
        bandit = bandit.observe(action, None if isinstance(action, Exploit) else [9.0 - action.arm, 4.0])
    return lambda: bandit.observe(bandit.decide(rng), [9.0, 4.0])


def planning(flows: int) -> Callable[[], object]:
    rng = np.random.default_rng(1)
    names = [f"f{i}" for i in range(flows)]
    conflicts = {name: {names[j] for j in rng.integers(0, flows, flows // 5)} - {name} for name in names}
    requests = [ProbeRequest(name, int(rng.integers(0, 10))) for name in names]
    return lambda: schedule(conflicts, requests, 10, 20)


def main() -> None:
    rows = [
        ("optimal rates, 2 paths, 4 links, one probe", optimum(2, 4, 1), 2.0),
        ("optimal rates, 3 paths, 12 links, ten probes", optimum(3, 12, 10), 4.0),
        ("HyMAB, one slot of a flow", slot(Hymab()), 0.5),
        ("HyMAB+, one slot of a flow", slot(HymabPlus()), 0.5),
        ("schedule, 100 flows, 20 slots", planning(100), 20.0),
    ]
    table = Table(title="Bandit")
    for column in ("step", "median ms", "95 % ms", "target ms"):
        table.add_column(column, justify="left" if column == "step" else "right")
    for name, work, target in rows:
        median, high = best_ms(work)
        table.add_row(name, f"{median:.3f}", f"{high:.3f}", f"{target:g}")
    Console().print(table)


if __name__ == "__main__":
    main()

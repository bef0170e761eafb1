"""Mean delay of the best single technology, of the best split p* and of the proportional split p_lim over loads.

    python benchmarks/latency.py

Every delay comes from the formula; the column "simulated" repeats p* with packets, as a check. The published pairs are
those of Henri, EPFL thesis 9056, 2018, Figures 5.9 and 5.10, in frames of 1400 bytes; ``hyroads study latency`` has all
of the chapter's figures.
"""

from __future__ import annotations

import math
import random
import time
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.table import Table

from hyroads.controller.core.latency.fit import fit_rates, packets_per_s
from hyroads.controller.core.latency.policy import best_single, best_split
from hyroads.controller.core.latency.two_state_queue import TwoStateQueue, mean_delay_s
from hyroads.controller.study.packet_queue import simulate


@dataclass(frozen=True)
class Case:
    name: str
    first: TwoStateQueue
    second: TwoStateQueue
    loads: tuple[float, ...]


CONSTANT = TwoStateQueue.constant
MBPS = packets_per_s(1.0, 1400.0)
CASES = (
    Case("constant 100 and 40", CONSTANT(100), CONSTANT(40), (0.1, 0.25, 0.4, 0.6, 0.8, 0.95)),
    Case(
        "published: constant 30 Mb/s; 7 / 3 Mb/s, 1 s each: the factor 13",
        CONSTANT(30 * MBPS),
        TwoStateQueue(7 * MBPS, 3 * MBPS, 1, 1),
        (0.2, 0.4, 19 / 35, 0.7, 29 / 35, 0.9, 0.95),
    ),
    Case(
        "published: constant 5000; 2053 / 1071, 0.33 s each",
        CONSTANT(5000),
        TwoStateQueue(2053, 1071, 3, 3),
        (0.2, 0.4, 48 * MBPS / 6562, 64 * MBPS / 6562, 0.95),
    ),
    Case(
        "constant 100; 180 / 20, 2.9 s each",
        CONSTANT(100),
        TwoStateQueue(180, 20, 0.35, 0.35),
        (0.1, 0.2, 0.3, 0.4, 0.45, 0.6, 0.9),
    ),
    Case(
        "equal means: 130 / 70 and 200 / 0, both 0.2 s",
        TwoStateQueue(130, 70, 5, 5),
        TwoStateQueue(200, 0, 5, 5),
        (0.1, 0.3, 0.5, 0.7, 0.9),
    ),
)


# Events of each simulation.
EVENTS = 4_000_000


def simulated_delay_s(queue: TwoStateQueue, load: float, rng: np.random.Generator) -> float:
    """Mean delay of packets, over some ``EVENTS`` arrivals and departures."""
    return simulate(queue, load, EVENTS / (load + queue.mu_h), rng).delay_s


def ms(delay_s: float) -> str:
    return f"{1e3 * delay_s:.4g}" if math.isfinite(delay_s) else "unstable"


def table_of(case: Case) -> Table:
    table = Table(title=case.name, title_justify="left")
    for column in ("load, 1/s", "of capacity", "single, ms", "p*", "D(p*), ms", "simulated, ms", "p_lim, ms"):
        table.add_column(column, justify="right")
    table.add_column("p_lim / p* (target: 1 or more)", justify="right")
    rng = np.random.default_rng(1)
    capacity = case.first.muhat + case.second.muhat
    for part in case.loads:
        load = part * capacity
        split = best_split(case.first, case.second, load)
        pair = (case.first, case.second)
        single_s = mean_delay_s(pair[best_single(pair, load)], load)
        simulated = sum(
            share * simulated_delay_s(queue, share * load, rng)
            for queue, share in zip(pair, (split.share, 1 - split.share), strict=True)
            if share > 0
        )
        ratio = split.proportional_delay_s / split.delay_s
        cells = (f"{load:.1f}", f"{part:.0%}", ms(single_s), f"{split.share:.3f}", ms(split.delay_s))
        table.add_row(*cells, ms(simulated), ms(split.proportional_delay_s), f"{ratio:.2f}")
    table.caption = f"lambda_0 = {best_split(case.first, case.second, 0.5 * capacity).lambda0:.2f} packets/s"
    return table


def speed() -> Table:
    """What the live policy costs."""
    table = Table("operation", "measured, ms", "target, ms", title="Speed", title_justify="left")
    case, rng = CASES[1], random.Random(2)
    began = time.perf_counter()
    for k in range(200):
        best_split(case.first, case.second, 1.0 + 0.9 * k)
    table.add_row("lambda_0, p* and both delays", f"{(time.perf_counter() - began) / 200 * 1e3:.3f}", "10")
    high, rates = True, []
    for _ in range(600):
        high = high ^ (rng.random() < 0.07)
        rates.append(abs((180.0 if high else 20.0) + rng.gauss(0, 8)))
    times = [0.2 * k for k in range(600)]
    began = time.perf_counter()
    for _ in range(5):
        fit_rates(times, rates)
    table.add_row("fit of 600 samples", f"{(time.perf_counter() - began) / 5 * 1e3:.1f}", "100")
    return table


def main() -> None:
    console = Console(width=130)
    for case in CASES:
        console.print(table_of(case))
    console.print(speed())


if __name__ == "__main__":
    main()

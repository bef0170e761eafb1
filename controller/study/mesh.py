"""Study ``mesh``: what three hybrid routers instead of one give to the clients of a home."""

from __future__ import annotations

import random

import numpy as np
from numpy.typing import NDArray

from .framework import Cdf, Cell, Check, Progress, Result, Settings, Table, interval_of, run_all
from .networks import endpoints, residential
from .schemes import Scheme, Schemes

TITLE = "Three hybrid routers in a home instead of one"
FIGURES = "thesis, Figure 3.1"

RUNS, QUICK_RUNS = 1000, 200
THREE, ONE = "3 routers", "1 router"
LOWEST = {THREE: (40.0, 44.3), ONE: (5.0, 5.0)}
"""Lowest rate of 1000 runs, Mb/s: as published, and of an independent reproduction."""
_FLOOR_MBPS = 5.0

Task = tuple[int, int]


def optimal_rates(task: Task) -> list[float]:
    """The optimal rate from a client to a router, Mb/s, in a random home with 3 routers and in one with 1."""
    seed, number = task
    found = []
    for mesh in (True, False):
        rng = random.Random(f"{seed}/{number}/{mesh}")  # noqa: S311
        home = residential(rng, mesh=mesh)
        found.append(Schemes(home).rate_mbps(Scheme.OPTIMAL, *endpoints(home, rng)))
    return found


def run(settings: Settings, progress: Progress) -> Result:
    """Carry out the study."""
    runs = settings.runs or (QUICK_RUNS if settings.quick else RUNS)
    rows = np.array(run_all(optimal_rates, [(settings.seed, i) for i in range(runs)], settings, progress))
    rates = {label: rows[:, column] for column, label in enumerate((THREE, ONE))}
    return Result(
        TITLE,
        f"{runs} homes of 20 x 10 m with 3 hybrid routers, and as many with 1. A hybrid client and one with WiFi only "
        "are at random places. A flow from a client to a router gets the optimal rate: over all paths, with the best "
        f"schedule of links. Seed {settings.seed}.",
        [_table(rates)],
        [Cdf("rates-cdf", "Optimal rate of a client", "rate, Mb/s", rates)],
        checks(rates, full=runs >= RUNS),
        [
            "The lowest rate of 1000 runs is one home; with other seeds it moves by several Mb/s. Capacities have a "
            f"floor of {_FLOOR_MBPS:g} Mb/s: with one router the slowest client has one link of that rate.",
        ],
    )


def checks(rates: dict[str, NDArray[np.float64]], *, full: bool) -> list[Check]:
    """The lowest rates; fewer runs than in the full study have not seen the lowest, so theirs may be higher."""
    found = []
    for label, (published, reference) in LOWEST.items():
        lowest = float(rates[label].min())
        # An extreme has no useful bootstrap: the interval is what 95 % of drawn sets of runs have as their lowest.
        interval = interval_of(rates[label], lambda drawn: float(drawn.min()))
        ok = lowest >= 0.95 * reference and (not full or lowest <= max(1.05 * reference, interval[1]))
        why = "an extreme of random homes: the reference's homes are others" if label == THREE else ""
        found.append(
            Check(
                f"lowest rate with {label}, Mb/s",
                f"{reference:g} within 5 %" if full else f"at least {0.95 * reference:g}",
                lowest,
                ok,
                f"{published:g}",
                interval,
                why,
            )
        )
    share = float((rates[THREE] > rates[ONE]).mean())
    found.append(Check("3 routers: median above that with 1", "yes (above 0.5 of pairs)", share, share > 0.5))
    return found


def _table(rates: dict[str, NDArray[np.float64]]) -> Table:
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (
            label,
            *(float(np.quantile(values, q)) for q in (0.0, 0.01, 0.1, 0.5, 0.9)),
            float(values.mean()),
            *LOWEST[label],
        )
        for label, values in rates.items()
    )
    heads = ("homes with", "lowest", "1 %", "10 %", "median", "90 %", "mean", "lowest, published", "lowest, ref.")
    return Table("rates", "Optimal rate of a client, Mb/s", heads, rows)

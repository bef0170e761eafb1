"""Study ``mesh``: what three hybrid routers instead of one give to the clients of a home."""

from __future__ import annotations

import random

import numpy as np
from numpy.typing import NDArray

from .agreement import ratio_band, share_of
from .framework import Cdf, Cell, Progress, Result, Settings, Table, run_all
from .networks import endpoints, residential
from .schemes import Scheme, Schemes
from .verdicts import Check, Interval, Kind, above

TITLE = "Three hybrid routers in a home instead of one"
FIGURES = "thesis, Figure 3.1"
TIMES_S = (3.0, 55.0)

SET = 1000
"""How many homes the published lowest rate is of."""
RUNS, QUICK_RUNS = 5 * SET, 200
THREE, ONE = "3 routers", "1 router"
LOWEST = {THREE: (40.0, 44.3), ONE: (5.0, 5.0)}
"""Lowest rate of 1000 homes, Mb/s: as published, and of an independent reproduction."""
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
        checks(rates),
        [
            f"The lowest rate of {SET} homes is that of one home. So the full study has {RUNS // SET} times as many, "
            "and the lowest rate of each set of them: what is between the lowest and the highest of these decides. "
            f"Fewer homes have a lowest rate that is as high or higher. Capacities have a floor of {_FLOOR_MBPS:g} "
            "Mb/s: with one router the slowest client has one link of that rate.",
        ],
    )


def lowest_of_sets(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The lowest rate of each whole set of homes, float64[sets]; that of all of them if there is no whole set."""
    whole = len(values) // SET
    sets = values[: whole * SET].reshape(whole, SET) if whole else values[None]
    return np.asarray(sets.min(axis=1))


def checks(rates: dict[str, NDArray[np.float64]]) -> list[Check]:
    """The lowest rates against what was published and the reference; three routers are better than one."""
    found = []
    for label, (published, reference) in LOWEST.items():
        lowest = lowest_of_sets(rates[label])
        wanted = {Kind.PUBLISHED: published, Kind.REFERENCE: reference}
        for kind, mbps in list(wanted.items())[: len(set(wanted.values()))]:
            found.append(
                Check(
                    f"lowest rate of {SET} homes with {label}, Mb/s",
                    ratio_band((mbps, mbps)),
                    float(np.median(lowest)),
                    _interval_of_lowest(lowest),
                    kind,
                    f"{published:g}",
                )
            )
    share, interval = share_of(rates[THREE] > rates[ONE])
    what = "share of pairs of homes in which that with 3 routers has more than that with 1"
    found.append(Check(what, above(0.5), share, interval))
    return found


def _interval_of_lowest(lowest: NDArray[np.float64]) -> Interval:
    """The lowest and the highest of five sets or more hold the median of such sets (94 % of cases for five).

    Fewer sets, or one that is not whole, may have missed the slowest homes.
    """
    least = float(lowest.min()) if len(lowest) >= RUNS // SET else _FLOOR_MBPS
    return (min(least, float(lowest.min())), float(lowest.max()))


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

"""Study ``convergence``: how many slots rates take to the optimum, with the controller and with backpressure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hyroads.controller.core.interface_graph import FloatArray
from hyroads.controller.core.rates import RateProblem, solve
from hyroads.controller.core.rates.controller_mode import ControllerSettings

from .agreement import one, ratio_checks, share_of
from .backpressure import UNIT_OF_V, backpressure
from .controlled import MARGIN, SETTINGS, Case, course, draw, slots_until, trailing_mean
from .framework import AnyPlot, Cdf, Cell, Plot, Progress, Result, Settings, Table, run_by_kind
from .intervals import interval_of
from .schemes import Scheme
from .verdicts import Check, Interval, Kind, at_least, at_most

TITLE = "Convergence of the congestion control"
FIGURES = "thesis, Figures 3.5, 3.8 and 3.13"
TIMES_S = (18.0, 420.0)

RUNS, QUICK_RUNS = 200, 6
# Backpressure takes as long as all others together, and its slots are counted in thousands.
SHARE_WITH_BACKPRESSURE = 4
SLOTS = 2000
BACKPRESSURE_SLOTS, QUICK_BACKPRESSURE_SLOTS = 30_000, 8000
# Deliveries of single slots are 0 or 1 packet of each link.
MEAN_OF_SLOTS = 500
AFTER = (100, 1000, 1900)
"""Slots after which the rate is compared with the last one (10 s and 190 s) and with the optimum (100 s)."""

PUBLISHED_UNIT_MBPS = 50.0
PAPER, OURS, LIVE = "controller, papers' order", "controller, our order", "controller, live"
SOLVER, BACKPRESSURE = "solver", "backpressure"
CONTROLLERS: Mapping[str, ControllerSettings] = {
    PAPER: ControllerSettings(rate_unit_mbps=PUBLISHED_UNIT_MBPS, simultaneous=True),
    OURS: ControllerSettings(rate_unit_mbps=PUBLISHED_UNIT_MBPS),
    LIVE: ControllerSettings(),
}
HOMES = [name for name, setting in SETTINGS.items() if setting.is_home]
ENTERPRISES = [name for name, setting in SETTINGS.items() if not setting.is_home]


@dataclass(frozen=True, slots=True)
class Task:
    """One network of a setting; ``backpressure_slots`` is 0 where it is left out."""

    setting: str
    seed: int
    number: int
    backpressure_slots: int


@dataclass(frozen=True, eq=False)
class Way:
    """How one algorithm came to the optimum: the total rate as a share of it after each slot, float32[slots].

    ``first`` and ``stays`` are slots until it is within 1 % of its last value; with backpressure, of the optimum.
    """

    share: NDArray[np.float32]
    first: int
    stays: int

    @property
    def is_there(self) -> bool:
        """Whether that happened at all."""
        return self.first <= len(self.share)


Ways = Mapping[str, Way]


def run(settings: Settings, progress: Progress) -> Result:
    """Carry out the study."""
    runs = settings.runs or (QUICK_RUNS if settings.quick else RUNS)
    slots = QUICK_BACKPRESSURE_SLOTS if settings.quick else BACKPRESSURE_SLOTS
    each_slots = [0 if number % SHARE_WITH_BACKPRESSURE else slots for number in range(runs)]
    tasks = {
        name: [Task(name, settings.seed, number, each) for number, each in enumerate(each_slots)] for name in SETTINGS
    }
    found = run_by_kind(ways_of, tasks, settings, progress)
    return Result(
        TITLE,
        f"{runs} random networks of each kind, known capacities, from rest, {MARGIN:.0%} of airtime kept free. The "
        f"controllers run for {SLOTS} slots, backpressure (V = 1000) for {slots} slots on every "
        f"{SHARE_WITH_BACKPRESSURE}th network. A slot of the controllers is 100 ms, one of backpressure the time of a "
        f"packet on the fastest link. Seed {settings.seed}.",
        [_table(found), _table_of_rates(found)],
        [*_plots(found, slots)],
        checks(found, slots),
        [
            "*Papers' order*: prices and averages of the last slot, one unit of 50 Mb/s, the papers' step sizes. *Our "
            "order*: the same with the prices and averages of this slot. *Live*: what `mode: controller` runs, with a "
            "unit for each path. The solver (`mode: solver`, the default) is at the optimum after one slot.",
            "Slots of the controllers are until the total rate is within 1 % of its last value. For backpressure it is "
            f"the mean of {MEAN_OF_SLOTS} slots of what arrives, within 1 % of the optimum; runs that don't get there "
            "count with all their slots, so that its mean is too low.",
            UNIT_OF_V,
        ],
    )


def ways_of(task: Task) -> Ways:
    """All algorithms on one network."""
    case = draw(SETTINGS[task.setting], task.seed, task.number)
    optimum_mbps = float(solve(case.problem).flow_rates_mbps.sum())
    found = {name: controlled(case.problem, each, optimum_mbps) for name, each in CONTROLLERS.items()}
    found[SOLVER] = solved(case.problem, optimum_mbps)
    if task.backpressure_slots:
        found[BACKPRESSURE] = without_rates(case, task.backpressure_slots)
    return found


def controlled(problem: RateProblem, settings: ControllerSettings, optimum_mbps: float) -> Way:
    """The slotted controller."""
    total = course(problem, settings, SLOTS).sum(axis=1)
    return Way((total / optimum_mbps).astype(np.float32), *slots_until(total, float(total[-1])))


def solved(problem: RateProblem, optimum_mbps: float) -> Way:
    """The solver starts from what the last slot found; measurements don't change here."""
    last, total = None, []
    for _ in range(2):
        last = solve(problem, last)
        total.append(float(last.flow_rates_mbps.sum()))
    share = np.array([total[0], *[total[1]] * (SLOTS - 1)]) / optimum_mbps
    return Way(share.astype(np.float32), *slots_until(share, float(share[-1])))


def without_rates(case: Case, slots: int) -> Way:
    """Backpressure with the best schedule of each slot."""
    best = float(case.schemes.rates(Scheme.OPTIMAL, case.flows).sum())
    total = trailing_mean(backpressure(case.network, case.flows, slots).delivered_mbps.sum(axis=1), MEAN_OF_SLOTS)
    return Way((total / best).astype(np.float32), *slots_until(total, best))


def of(found: Mapping[str, Sequence[Ways]], settings: Sequence[str], name: str) -> list[Way]:
    """Of some settings the ways of one algorithm."""
    return [ways[name] for setting in settings for ways in found[setting] if name in ways]


def slots_of(ways: Sequence[Way], *, stays: bool = False) -> FloatArray:
    """Slots of each way, float64[n]; those that are not there in the end count with all their slots."""
    return np.array([min(way.stays if stays else way.first, len(way.share)) for way in ways], dtype=float)


def later(ways: Sequence[Way], slot: int) -> FloatArray:
    """Of each way the rate after a slot as a share of the one after the last of ``AFTER``, float64[n]."""
    return np.array([float(way.share[slot - 1]) / float(way.share[AFTER[-1] - 1]) for way in ways])


def _table(found: Mapping[str, Sequence[Ways]]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for setting in found:
        for name in (SOLVER, PAPER, OURS, LIVE, BACKPRESSURE):
            ways = of(found, [setting], name)
            if ways:
                first, stays = slots_of(ways), slots_of(ways, stays=True)
                missing = sum(way.stays > len(way.share) for way in ways)
                figures = (float(first.mean()), float(np.median(first)), float(stays.mean()), float(np.median(stays)))
                rows.append((setting, name, len(ways), *figures, missing))
    heads = ("networks", "algorithm", "runs", "first, mean", "median", "for good, mean", "median", "never")
    return Table("slots", "Slots until the total rate is within 1 %, first and for good", heads, tuple(rows))


def _table_of_rates(found: Mapping[str, Sequence[Ways]]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for setting in found:
        for name in (PAPER, OURS, LIVE):
            ways = of(found, [setting], name)
            if ways:
                shares = np.array([[float(way.share[slot - 1]) for slot in AFTER] for way in ways])
                rows.append((setting, name, *shares.mean(axis=0).tolist(), *shares.min(axis=0).tolist()))
    heads = ("networks", "algorithm", *(f"mean, {slot}" for slot in AFTER), *(f"least, {slot}" for slot in AFTER))
    title = f"Total rate after {', '.join(map(str, AFTER))} slots as a share of the optimum's"
    return Table("rates", title, heads, tuple(rows))


def _plots(found: Mapping[str, Sequence[Ways]], slots: int) -> list[AnyPlot]:
    grid = np.unique(np.geomspace(1, slots, 120).astype(int))
    plots: list[AnyPlot] = []
    for setting in found:
        lines, samples = {}, {}
        for name in (PAPER, OURS, LIVE, BACKPRESSURE):
            ways = of(found, [setting], name)
            if ways:
                mean = np.mean([way.share for way in ways], axis=0)
                lines[name] = np.array([mean[slot - 1] if slot <= len(mean) else np.nan for slot in grid])
                samples[name] = np.array([way.first if way.is_there else np.inf for way in ways])
        short = setting.replace(", ", "-").replace(" ", "-")
        title = f"Total rate over time, {setting}"
        plots.append(Plot(f"time-{short}", title, "slots", "share of the optimum", grid.astype(float), lines, True))
        title = f"Slots until within 1 %, {setting}"
        plots.append(Cdf(f"slots-{short}", title, "slots", samples, logarithmic=True))
    everywhere = list(found)
    samples = {
        f"{name}, {slot} slots": np.array([float(way.share[slot - 1]) for way in of(found, everywhere, name)])
        for name in (PAPER, LIVE)
        for slot in (AFTER[0], AFTER[-1])
    }
    plots.append(Cdf("rates", "Total rate after 10 s and 190 s", "share of the optimum", samples))
    return plots


def checks(found: Mapping[str, Sequence[Ways]], slots: int) -> list[Check]:
    """What was published of the controller, to be met or beaten, and of backpressure; the medians of a reference; and
    that the live controller is at the optimum.
    """
    every = [*_checks_of_slots(found, slots), *_checks_of_reference(found), _check_after_10_s(found)]
    at_last = np.array([float(way.share[AFTER[1] - 1]) for way in of(found, HOMES, LIVE)])
    every.append(
        Check(
            "live controller, homes: share of runs at 98 % of the optimum after 100 s",
            at_least(0.97),
            *share_of(at_last >= 0.98),
        )
    )
    return every


def _checks_of_slots(found: Mapping[str, Sequence[Ways]], slots: int) -> list[Check]:
    made = []
    for kind, settings, published, least in (("homes", HOMES, 90, 3000), ("offices", ENTERPRISES, 77, 10_000)):
        first, stays = (slots_of(of(found, settings, PAPER), stays=each) for each in (False, True))
        made.append(
            Check(
                f"controller in the papers' order, {kind}: mean slots until first within 1 %",
                at_most(published),
                float(first.mean()),
                interval_of(first),
                Kind.PUBLISHED,
                f"{published}",
                f"rates cross their last value on the way down from the first slots; for good it is {stays.mean():.0f}",
            )
        )
        pressed = slots_of(of(found, settings, BACKPRESSURE))
        made.append(
            Check(
                f"backpressure, {kind}: mean slots until first within 1 %",
                at_least(least),
                float(pressed.mean()),
                _of_capped(pressed, slots),
                Kind.PUBLISHED,
                f"> {least}",
                f"{pressed.mean() / first.mean():.0f} times the controller's; flows over one hop are at their rate at "
                f"once, and what is not there after {slots} slots counts with so many",
            )
        )
    return made


def _checks_of_reference(found: Mapping[str, Sequence[Ways]]) -> list[Check]:
    """The papers' controller over all networks beside an independent reproduction, which found medians."""
    ways = of(found, list(found), PAPER)
    made: list[Check] = []
    for stays, reference in ((False, 55.0), (True, 316.0)):
        slots = slots_of(ways, stays=stays)[:, None]
        known = one(None, "", reference, _WHY_REFERENCE)
        what = f"controller in the papers' order: median slots until within 1 %, {'for good' if stays else 'first'}"
        made += ratio_checks(what, known, slots, lambda rows: float(np.median(rows)))
    return made


def _of_capped(slots_found: FloatArray, slots: int) -> Interval:
    """Of a mean of slots: without an upper end where a run was not there after all ``slots``, and counts with them."""
    low, high = interval_of(slots_found)
    return (max(low, 0.0), np.inf if len(slots_found) and slots_found.max() >= slots else high)


_WHY_REFERENCE = "which networks, and how many flows, the reference's medians are of is not known to us"


def _check_after_10_s(found: Mapping[str, Sequence[Ways]]) -> Check:
    share, interval = share_of(later(of(found, list(found), PAPER), AFTER[0]) >= 0.8)
    return Check(
        "controller in the papers' order: share of runs above 80 % of the rate after 190 s after 10 s",
        at_least(0.8),
        share,
        interval,
        Kind.PUBLISHED,
        "80 % of runs (test bed)",
    )

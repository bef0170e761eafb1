"""Study ``fairness``: flows that accept some interfaces only, scheduled packet by packet (Yap 2013, chapters 3 and 4).

Every interface on its own (Figure 3.1), miDRR while flows end (Figure 4.5), and random clients, where the one bit of
the published miDRR misses the fair rates that its proof promises.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence

import numpy as np

from hyroads.controller.core.fair.maxmin import Flow, Shares, allocate
from hyroads.controller.core.fair.midrr import AS_PUBLISHED, MOST_SERVICES, Setting, course, simulate

from .agreement import share_of
from .framework import Cell, Plot, Progress, Result, Settings, Table, run_all
from .intervals import interval_of
from .verdicts import Check, Kind, about, above, at_most, near

TITLE = "Fair shares of several interfaces, by preference"
FIGURES = "Yap 2013, Figures 3.1 and 4.5"
TIMES_S = (8.0, 112.0)

RUNS, QUICK_RUNS = 39, 8
DURATION_S, QUICK_DURATION_S = 40.0, 10.0
ALONE, ONE_BIT, DEFAULT = "each interface on its own", "one bit, as published", f"count to {MOST_SERVICES}"
SCHEDULERS = {
    ALONE: Setting(0),
    ONE_BIT: AS_PUBLISHED,
    "one bit": Setting(1),
    "count to 2": Setting(2),
    "count to 4": Setting(4),
    DEFAULT: Setting(),
    "count to 64": Setting(64),
    f"{DEFAULT}, one deficit a flow": Setting(one_deficit=True),
    "count to 64, one deficit a flow": Setting(64, one_deficit=True),
}
"""The schedulers that are compared. As published a flow has one deficit, ours have one for each flow and interface."""
PHASE_S = 20.0
CLOSE_UP_S, CLOSE_BIN_S = 4.0, 0.2


def _shares(capacity_mbps: Mapping[str, float], flows: Mapping[str, tuple[float, str]]) -> Shares:
    return Shares(capacity_mbps, {name: Flow(w, frozenset(accepted.split())) for name, (w, accepted) in flows.items()})


# Figure 3.1: what is wrong with fair queueing at each interface.
APART = _shares({"1": 1.0, "2": 1.0}, {"a": (1.0, "1 2"), "b": (1.0, "2")})
# Figure 4.5: flow a ends first, then b.
ENDING = _shares({"1": 3.0, "2": 10.0}, {"a": (1.0, "1"), "b": (2.0, "1 2"), "c": (1.0, "2")})
ENDS_S = {"a": (0.0, PHASE_S), "b": (0.0, 2 * PHASE_S)}
# The hole in the published proof: two services by others count as one.
MERGED = _shares({"1": 6.0, "2": 10.0}, {"a": (1.0, "1"), "b": (1.0, "1 2"), "c": (1.0, "2")})


def run(settings: Settings, progress: Progress) -> Result:
    """Carry out the study."""
    runs = settings.runs or (QUICK_RUNS if settings.quick else RUNS)
    duration_s = QUICK_DURATION_S if settings.quick else DURATION_S
    tasks = [(settings.seed, number, duration_s) for number in range(runs)]
    found = np.array(run_all(worst_errors, tasks, settings, progress))
    rates, close = ending_rates(1.0, 3 * PHASE_S), ending_rates(CLOSE_BIN_S, PHASE_S + CLOSE_UP_S)
    return Result(
        TITLE,
        f"Packets of 1500 bytes; flows always have packets. {runs} random clients with 2 to 16 interfaces of 3 to 30 "
        "Mb/s and 3 to 64 flows of weights 1 to 4 that accept one to four of them, "
        f"{duration_s:g} s each. Seed {settings.seed}.",
        [_examples(), _clusters(), _errors(found)],
        [
            _plot("rates", "Rates while flows end (Figure 4.5)", rates, 1.0, 0.0),
            _plot("close-up", "The same, around the end of flow a", close, CLOSE_BIN_S, PHASE_S - 2.0),
        ],
        checks(rates, found),
        [
            "miDRR as published remembers with one bit whether another interface served a flow. The published proof "
            "takes for granted that the bit records every service; but two services between two turns leave the same "
            "trace as one. A flow that is served twice as often elsewhere then is passed over only half as often as it "
            "should be.",
            f"A counter that saturates at {MOST_SERVICES} records them. A greater one is no better: what is left are "
            "whole packets and turns.",
            "With one deficit for each flow, as published, a slow interface begins a turn whose quantum a fast one "
            "spends, and the counts tell of turns that were none. All others have one for each flow and interface.",
        ],
    )


def ending_rates(bin_s: float, duration_s: float) -> dict[str, list[float]]:
    """Rates, Mb/s, in bins of ``bin_s`` seconds while flow a ends after 20 s and b after 40 s."""
    return course(ENDING, duration_s, bin_s, ENDS_S)


def phases() -> list[tuple[str, Shares]]:
    """What the flows of Figure 4.5 share in its three phases."""
    remaining = [("a, b, c", "abc"), ("b, c", "bc"), ("c", "c")]
    return [
        (title, Shares(ENDING.capacity_mbps, {name: ENDING.flows[name] for name in left})) for title, left in remaining
    ]


def random_client(seed: int, number: int) -> Shares:
    """A client of the study; the same arguments give the same client."""
    rng = random.Random(f"{seed}/{number}")  # noqa: S311
    capacity = {f"if{k}": rng.uniform(3.0, 30.0) for k in range(rng.choice([2, 3, 5, 8, 16]))}
    flows = {}
    for number_of in range(rng.choice([3, 10, 32, 64])):
        accepted = rng.sample(sorted(capacity), rng.randint(1, min(len(capacity), 4)))
        flows[f"f{number_of}"] = Flow(rng.choice([1.0, 2.0, 3.0, 4.0]), frozenset(accepted))
    return Shares(capacity, flows)


def worst_errors(task: tuple[int, int, float]) -> list[float]:
    """For each of ``SCHEDULERS`` by how much the worst flow of a random client misses its fair rate, relative to it."""
    seed, number, duration_s = task
    shares = random_client(seed, number)
    fair = allocate(shares).rate_mbps
    errors = []
    for setting in SCHEDULERS.values():
        rates = simulate(shares, duration_s, setting)
        errors.append(max(abs(rates[name] / mbps - 1.0) for name, mbps in fair.items()))
    return errors


def checks(rates: Mapping[str, Sequence[float]], found: np.ndarray) -> list[Check]:
    """Figures 3.1 and 4.5 as published, and the hole in the proof."""
    alone = simulate(APART, DURATION_S, SCHEDULERS[ALONE])
    bit, counter = (simulate(MERGED, DURATION_S, SCHEDULERS[name]) for name in (ONE_BIT, DEFAULT))
    off = 0.0
    for phase, (_, shares) in enumerate(phases()):
        for name, mbps in allocate(shares).rate_mbps.items():
            # Its first second holds what was on the way.
            measured = rates[name][int(phase * PHASE_S) + 1 : int((phase + 1) * PHASE_S)]
            off = max(off, *(abs(each / mbps - 1.0) for each in measured))
    misses = found[:, list(SCHEDULERS).index(DEFAULT)]
    typical = found[:, list(SCHEDULERS).index(ONE_BIT)]
    return [
        Check(
            "each interface on its own: rate of flow b",
            about(0.5, 0.01),
            alone["b"],
            kind=Kind.PUBLISHED,
            published="0.5 (Figure 3.1)",
        ),
        Check(
            "miDRR, Figure 4.5: worst second off by",
            at_most(0.01),
            off,
            kind=Kind.PUBLISHED,
            published="the max-min fair rates",
        ),
        Check(
            "one bit, 6 and 10 Mb/s: rate of flow a",
            near(4.0, 0.04, "4 instead of 5.333"),
            bit["a"],
            published="5.333, by the proof",
            why="the proof takes for granted that the bit records every service; two between two turns leave one trace",
        ),
        Check(
            "one bit: worst flow of a client off by, median",
            above(0.01),
            float(np.median(typical)),
            published="0, by the proof",
            interval=interval_of(typical, lambda drawn: float(np.median(drawn))),
            why="as above",
        ),
        Check(
            f"{DEFAULT}: the same",
            about(16.0 / 3.0, 0.01),
            counter["a"],
        ),
        Check(
            f"{DEFAULT}: share of clients whose worst flow is off by more than 0.01",
            # Of 40 clients of a full run none is; so few leave up to 9 % open.
            at_most(0.1),
            *share_of(misses > 0.01),
        ),
    ]


def _examples() -> Table:
    rows: list[tuple[Cell, ...]] = []
    for title, shares in (("3.1: 1 and 1 Mb/s, a on both, b on one", APART), ("the hole: 6 and 10 Mb/s", MERGED)):
        fair = allocate(shares).rate_mbps
        found = [simulate(shares, DURATION_S, SCHEDULERS[name]) for name in (ALONE, ONE_BIT, DEFAULT)]
        rows += [(title, name, *(rates[name] for rates in found), mbps) for name, mbps in fair.items()]
    heads = ("case", "flow", "each on its own", "published", DEFAULT, "fair")
    return Table("examples", "Rates in small cases, Mb/s", heads, tuple(rows))


def _clusters() -> Table:
    rows = []
    for title, shares in phases():
        for each in allocate(shares).clusters:
            rows.append((title, " ".join(each.flows), " ".join(each.interfaces), each.level_mbps))
    heads = ("flows there", "cluster", "interfaces", "rate per weight")
    return Table("clusters", "Flows of one level in the phases of Figure 4.5, Mb/s", heads, tuple(rows))


def _errors(found: np.ndarray) -> Table:
    rows = [
        (name, float(np.median(column)), float(np.quantile(column, 0.9)), float(column.max()))
        for name, column in zip(SCHEDULERS, found.T, strict=True)
    ]
    title = "By how much the worst flow of a random client misses its fair rate, relative to it"
    return Table("errors", title, ("scheduler", "median", "90 %", "worst"), tuple(rows))


def _plot(name: str, title: str, rates: Mapping[str, Sequence[float]], bin_s: float, from_s: float) -> Plot:
    first = math.floor(from_s / bin_s + 1e-9)
    lines = {f"flow {flow}": np.array(values[first:]) for flow, values in rates.items()}
    count = len(next(iter(lines.values())))
    axis = (first + np.arange(count, dtype=np.float64) + 0.5) * bin_s
    return Plot(name, title, "time, s", "rate, Mb/s", axis, lines)

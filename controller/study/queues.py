"""Study ``queues``: how many packets wait in the network, with the controller, without it and with backpressure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hyroads.controller.core.interface_graph import FloatArray
from hyroads.controller.core.rates import solve
from hyroads.controller.core.rates.controller_mode import ControllerSettings

from .backpressure import UNIT_OF_V, backpressure
from .controlled import MARGIN, SETTINGS, Case, course, draw
from .convergence import CONTROLLERS, LIVE, PAPER
from .framework import AnyPlot, Cell, Plot, Progress, Result, Settings, Table, run_by_kind
from .intervals import interval_of
from .slots import PACKET_MB, simulate
from .verdicts import Band, Check, Kind, at_least

TITLE = "Packets in queues"
FIGURES = "thesis, Figure 3.6"
TIMES_S = (10.0, 53.0)

RUNS, QUICK_RUNS = 20, 4
SLOTS = 10_000
KINDS = ("residential, 2 flows", "enterprise, 3 flows")
# The controllers are steady by then; their last rates are kept.
CONTROLLER_SLOTS = 2000
SOLVER, WITHOUT = "solver", "w/o-CC"
OPTIMAL, CONSERVATIVE = "backpressure, optimal", "backpressure, conservative"
ALGORITHMS = (SOLVER, LIVE, PAPER, WITHOUT, CONSERVATIVE, OPTIMAL)
_POINTS = 200


@dataclass(frozen=True, slots=True)
class Task:
    """Network ``number`` of a setting."""

    setting: str
    seed: int
    number: int


@dataclass(frozen=True, eq=False)
class Waiting:
    """Packets in all queues, of each algorithm: after the slots of :func:`grid`, float64[points], the mean of the
    second half of all slots, and how much more of them came in the second half than in the first.
    """

    packets: Mapping[str, FloatArray]
    late: Mapping[str, float]
    growth: Mapping[str, tuple[float, float]]


def run(settings: Settings, progress: Progress) -> Result:
    """Carry out the study."""
    runs = settings.runs or (QUICK_RUNS if settings.quick else RUNS)
    tasks = {name: [Task(name, settings.seed, number) for number in range(runs)] for name in KINDS}
    found = run_by_kind(waiting_of, tasks, settings, progress)
    return Result(
        TITLE,
        f"{runs} random networks of each kind, {SLOTS} slots from empty queues; a slot is the time of a packet of 1500 "
        "bytes on the network's fastest link. With control the sources send at the rates of the solver or of a "
        f"controller, which takes a step a slot and keeps {MARGIN:.0%} of airtime free; backpressure has V = 1000. "
        f"Seed {settings.seed}.",
        [_table(found)],
        [*_plots(found)],
        checks(found),
        [
            "Without control the first links of paths always have packets: what waits there is not counted. Flows "
            "whose paths have one hop each have no other queues, so that some networks have none at all.",
            "The queues of backpressure are in proportion to V: a source takes in V s / Q - 1 Mb/s, where Q is its "
            "queue and s the rate of the fastest link. They still grow after these slots in most enterprises.",
            UNIT_OF_V,
        ],
    )


def grid() -> list[int]:
    """Slots that are shown."""
    return [int(slot) for slot in np.unique(np.geomspace(1, SLOTS, _POINTS).astype(int))]


def waiting_of(task: Task) -> Waiting:
    """All algorithms on one network."""
    case = draw(SETTINGS[task.setting], task.seed, task.number)
    slot_s = PACKET_MB / max(link.capacity_mbps for link in case.network.links)
    queued = {name: _controlled(case, rates, slot_s, task) for name, rates in _rates(case).items()}
    for name, conservative in ((OPTIMAL, False), (CONSERVATIVE, True)):
        ran = backpressure(case.network, case.flows, SLOTS, conservative=conservative, slot_s=slot_s)
        queued[name] = ran.queued
    half = SLOTS // 2
    return Waiting(
        {name: np.array([packets[slot - 1] for slot in grid()], dtype=float) for name, packets in queued.items()},
        {name: float(packets[half:].mean()) for name, packets in queued.items()},
        {name: (float(packets[half - 1]), float(packets[-1] - packets[half - 1])) for name, packets in queued.items()},
    )


def _rates(case: Case) -> dict[str, FloatArray | None]:
    """Of each algorithm that has queues per path the rates of the paths in each slot; None without control."""
    best = solve(case.problem).path_rates_mbps
    return {
        SOLVER: np.tile(best, (SLOTS, 1)),
        LIVE: _steps(case, CONTROLLERS[LIVE]),
        PAPER: _steps(case, CONTROLLERS[PAPER]),
        WITHOUT: None,
    }


def _steps(case: Case, settings: ControllerSettings) -> FloatArray:
    rates = course(case.problem, settings, CONTROLLER_SLOTS)
    return np.concatenate([rates, np.tile(rates[-1], (SLOTS - CONTROLLER_SLOTS, 1))])


def _controlled(case: Case, rates: FloatArray | None, slot_s: float, task: Task) -> FloatArray:
    rng = np.random.default_rng([task.seed, KINDS.index(task.setting), task.number])
    return simulate(case.network, case.all_paths, SLOTS, rng, rates, slot_s=slot_s).queued.astype(float)


def late_of(found: Sequence[Waiting], name: str) -> FloatArray:
    """Mean packets of the second half of the slots, of each network, float64[n]."""
    return np.array([waiting.late[name] for waiting in found])


def _table(found: Mapping[str, Sequence[Waiting]]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for setting, waiting in found.items():
        for name in ALGORITHMS:
            late = late_of(waiting, name)
            rows.append((setting, name, float(late.mean()), float(np.median(late)), float(late.max())))
    title = f"Packets in all queues, mean of slots {SLOTS // 2} to {SLOTS}"
    return Table("queues", title, ("networks", "algorithm", "mean", "median", "most"), tuple(rows))


def _plots(found: Mapping[str, Sequence[Waiting]]) -> list[AnyPlot]:
    plots: list[AnyPlot] = []
    for setting, waiting in found.items():
        lines = {}
        for name in ALGORITHMS:
            mean = np.mean([each.packets[name] for each in waiting], axis=0)
            lines[name] = np.where(mean > 0, mean, np.nan)
        short = setting.replace(", ", "-").replace(" ", "-")
        title = f"Packets in all queues, {setting}"
        plots.append(
            Plot(f"queues-{short}", title, "slots", "packets", np.array(grid(), float), lines, True, logarithmic_y=True)
        )
    return plots


def checks(found: Mapping[str, Sequence[Waiting]]) -> list[Check]:
    """Backpressure has a hundred times more packets in queues than the controller; without control they only grow."""
    made = []
    for setting, waiting in found.items():
        both = np.stack([late_of(waiting, OPTIMAL), late_of(waiting, PAPER)], axis=1)
        ratio = _ratio(both)
        made.append(
            Check(
                f"{setting}: packets with backpressure over those with the controller in the papers' order",
                at_least(100.0),
                ratio,
                interval_of(both, _ratio),
                Kind.PUBLISHED,
                "over two orders of magnitude",
            )
        )
        grown = np.array([waiting_.growth[WITHOUT] for waiting_ in waiting])
        grown = grown[:, ::-1]
        steady = _ratio(grown)
        made.append(
            Check(
                f"{setting}: growth without control in the second half of the slots over that in the first",
                Band(0.9, 1.1, "0.9 to 1.1"),
                steady if math.isfinite(steady) else None,
                interval_of(grown, _ratio),
                Kind.PUBLISHED,
                "grows linearly",
            )
        )
    return made


def _ratio(both: FloatArray) -> float:
    """Mean of the first column over that of the second; NaN if that is 0."""
    below = float(both[:, 1].mean())
    return float(both[:, 0].mean()) / below if below else math.nan

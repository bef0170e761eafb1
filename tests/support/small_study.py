"""A study that takes a second: tasks whose outcomes are dataclasses with arrays, and each kind of plot."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hyroads.controller.study.framework import (
    Bars,
    Cdf,
    Plot,
    Progress,
    Result,
    Settings,
    Table,
    run_all,
)
from hyroads.controller.study.intervals import interval_of
from hyroads.controller.study.verdicts import Check, Kind, about

NAME, MODULE = "small", "small_study"
TITLE = "Means of random numbers"
FIGURES = "none"
TIMES_S = (1.0, 2.0)
TASKS = 12


@dataclass(frozen=True, slots=True)
class Drawn:
    values: NDArray[np.float64]
    mean: float


def draw(task: tuple[int, int]) -> Drawn:
    seed, number = task
    time.sleep(0.1)
    values = np.random.default_rng([seed, number]).random(50)
    return Drawn(values, float(values.mean()))


def run(settings: Settings, progress: Progress) -> Result:
    tasks = [(settings.seed, number) for number in range(settings.runs or TASKS)]
    found = run_all(draw, tasks, settings, progress)
    means = np.array([each.mean for each in found])
    mean = float(means.mean())
    x = np.arange(len(means), dtype=np.float64)
    return Result(
        TITLE,
        f"Seed {settings.seed}.",
        [Table("summary", "Means", ("of", "mean"), (("all", mean), ("first", found[0].mean)))],
        [
            Plot("lines", "Means", "task", "mean", x, {"mean": means}),
            Cdf("values", "Values", "value", {"all": np.concatenate([each.values for each in found])}),
            Bars("bars", "Two of them", "task", "mean", ("first", "last"), {"mean": means[[0, -1]]}),
        ],
        [Check("mean of all", about(0.5, 0.2), mean, interval_of(means), Kind.PUBLISHED, "0.5")],
        [],
    )

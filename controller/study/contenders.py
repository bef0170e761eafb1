"""Runs bandit policies side by side in the same worlds: what both bandit studies share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hyroads.controller.core.bandit.arms import FloatArray
from hyroads.controller.core.bandit.baselines import EpsNGreedy
from hyroads.controller.core.bandit.policy import Policy
from hyroads.controller.study.bandit_world import Course, World, changing_world, simulate, static_world
from hyroads.controller.study.framework import Progress, Settings
from hyroads.controller.study.parallel import run_all

ARMS = 5
SIGMA = 0.2
REDRAWN = 2
_CHUNK = 250


@dataclass(frozen=True, slots=True)
class Contender:
    """A policy under a name. ``family`` groups the settings of one policy; ``share`` of the runs; ``trials`` to run."""

    name: str
    policy: Policy[Any]
    trials: int
    family: str = ""
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class _Task:
    contender: Contender
    flows: int
    change_trial: int | None
    seeds: tuple[int, int, int]


def courses(
    contenders: Sequence[Contender], settings: Settings, runs: int, progress: Progress, change_trial: int | None = None
) -> dict[str, Course]:
    """The mean course of every contender over ``runs`` flows; all meet the same worlds.

    ``change_trial``: when two arms are redrawn; None for the static world.
    """
    tasks = [
        _Task(contender, flows, change_trial, (settings.seed, chunk, number))
        for number, contender in enumerate(contenders)
        for chunk, flows in enumerate(_chunks(max(1, round(runs * contender.share))))
    ]
    # The longest first, so that no worker is left with one at the end.
    order = sorted(range(len(tasks)), key=lambda i: -tasks[i].contender.trials * tasks[i].flows)
    outcomes = run_all(_simulate, [tasks[i] for i in order], settings.workers, progress)
    results = dict(zip(order, outcomes, strict=True))
    return {
        contender.name: _mean(
            [(tasks[i].flows, results[i]) for i in sorted(results) if tasks[i].contender is contender]
        )
        for contender in contenders
    }


def smoothed(curve: FloatArray) -> FloatArray:
    """Means over a window around each trial that grows with it (10 % of the trial; less at the end)."""
    sums = np.concatenate([[0.0], np.cumsum(curve)])
    at = np.arange(len(curve))
    half = np.minimum(at // 20, len(curve) - 1 - at)
    return np.asarray((sums[at + half + 1] - sums[at - half]) / (2 * half + 1))


def first_trial(curve: FloatArray, level: float) -> int | None:
    """The first trial, from 1, in which the mean over the runs is at least ``level``; None if it never is.

    The smoothed curve is meant, where its window is whole: with few runs a raw one crosses a level that it creeps up
    to far too early, by chance.
    """
    reached = np.flatnonzero(smoothed(curve)[: whole_windows(len(curve))] >= level)
    return int(reached[0]) + 1 if len(reached) else None


def above_for_good(curve: FloatArray, level: float) -> int | None:
    """The trial, from 1, from which on the smoothed curve stays at ``level`` or above; None if it ends below."""
    below = np.flatnonzero(smoothed(curve)[: whole_windows(len(curve))] < level)
    trial = int(below[-1]) + 2 if len(below) else 1
    return trial if trial <= whole_windows(len(curve)) else None


def whole_windows(trials: int) -> int:
    """How many trials of a curve have a whole window around them in ``smoothed``."""
    return int((np.arange(trials) * 21 // 20 < trials).sum())


def _simulate(task: _Task) -> Course:
    seed, chunk, number = task.seeds
    world = _world(task, np.random.default_rng([seed, chunk]))
    policy = task.contender.policy
    if isinstance(policy, EpsNGreedy):
        best = np.sort(world.rates, axis=1)
        policy = replace(policy, gap=best[:, -1] - best[:, -2])
    return simulate(policy, world, task.contender.trials, np.random.default_rng([seed, chunk, number + 1]))


def _world(task: _Task, rng: np.random.Generator) -> World:
    if task.change_trial is None:
        return static_world(task.flows, ARMS, rng)
    return changing_world(task.flows, ARMS, task.change_trial, REDRAWN, rng)


def _chunks(runs: int) -> list[int]:
    """Sizes of the batches that are simulated together, at most ``_CHUNK`` each."""
    return [min(_CHUNK, runs - done) for done in range(0, runs, _CHUNK)]


def _mean(parts: Sequence[tuple[int, Course]]) -> Course:
    weights = [flows for flows, _ in parts]
    return Course(
        np.average([course.delivered for _, course in parts], axis=0, weights=weights),
        np.average([course.probed for _, course in parts], axis=0, weights=weights),
    )

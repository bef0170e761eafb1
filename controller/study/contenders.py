"""Runs bandit policies side by side in the same worlds: what both bandit studies share.

The model world is that of Henri, EPFL thesis 9056, 2018, chapter 4: arms have true rates, probing is costly and its
estimates are noisy.

A trial of a flow delivers

    a quarter of the estimate               when it probes,      estimate = true rate (1 + sigma N(0, 1)), at least 0
    min(mean rate of the arm, true rate)    when it exploits: it sends at the mean rate, and no more can arrive

Both relative to the best true rate at that time. Many flows are simulated at once and independently.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hyroads.controller.core.bandit.baselines import EpsNGreedy
from hyroads.controller.core.bandit.policy import FloatArray, Policy, S

from .framework import Progress, Settings, run_all
from .intervals import interval_of, interval_of_passage
from .verdicts import Interval

PROBE_SHARE = 0.25
BLOCK = 25
"""Flows whose mean is kept, for intervals."""
_DRAWS = 200


At = Callable[[FloatArray, float], int | None]
"""The trial in which a curve is at a level; of a higher curve it is never a later one."""


@dataclass(frozen=True, slots=True)
class World:
    """True ``rates`` [B, N] until trial ``change_trial``, then ``later_rates`` [B, N]; relative noise ``sigma``."""

    rates: FloatArray
    later_rates: FloatArray
    change_trial: int
    sigma: float = 0.2

    def rates_at(self, trial: int) -> FloatArray:
        """The true rates in a trial, counted from 0."""
        return self.rates if trial < self.change_trial else self.later_rates


@dataclass(frozen=True, slots=True)
class Course:
    """Means over the flows, per trial [T]: share of the optimum delivered, and share of flows that probed.

    ``blocks``, [blocks, T], has the share delivered as means of ``BLOCK`` flows each (the last of fewer, if any), from
    which intervals follow.
    """

    delivered: FloatArray
    probed: FloatArray
    blocks: NDArray[np.float32]

    def interval(self, statistic: Callable[[FloatArray], float]) -> Interval:
        """95 % interval of a mean over some of the trials, ``statistic`` of a curve. Blocks of flows are drawn."""
        figures = np.array([statistic(block) for block in np.asarray(self.blocks, dtype=np.float64)])
        low, high = interval_of(figures, draws=_DRAWS)
        # The last block may have fewer flows, so that the figure is not quite the mean of the blocks.
        figure = statistic(self.delivered)
        return (min(low, figure), max(high, figure))

    def interval_of_trial(self, at: At, level: float, since: int = 0) -> Interval:
        """95 % interval of the trial, counted from ``since``, in which the mean course is at a level: ``at``."""
        blocks = np.asarray(self.blocks[:, since:], dtype=np.float64)
        return interval_of_passage(self.delivered[since:], blocks, lambda curve: at(curve, level))


def static_world(flows: int, arms: int, rng: np.random.Generator) -> World:
    """True rates uniform in [0.5, 1] for ever."""
    rates = rng.uniform(0.5, 1.0, (flows, arms))
    return World(rates, rates, 0)


def changing_world(flows: int, arms: int, change_trial: int, redrawn: int, rng: np.random.Generator) -> World:
    """As the static world until ``redrawn`` random arms get new rates, uniform in [0, 1]."""
    rates = rng.uniform(0.5, 1.0, (flows, arms))
    later = rates.copy()
    which = rng.random((flows, arms)).argsort(axis=1)[:, :redrawn]
    np.put_along_axis(later, which, rng.uniform(0.0, 1.0, (flows, redrawn)), axis=1)
    return World(rates, later, change_trial)


def simulate(
    policy: Policy[S], world: World, trials: int, rng: np.random.Generator, tick: Callable[[int], None] | None = None
) -> Course:
    """Run ``policy`` on all flows of ``world``; ``tick(trials done)`` is called now and then."""
    flows, arms = world.rates.shape
    everyone = np.arange(flows)
    state = policy.start(flows, arms, 1)
    probed = np.empty(trials)
    begins = np.arange(0, flows, BLOCK)
    sizes = np.diff(np.append(begins, flows))
    blocks = np.empty((len(begins), trials))
    best_before, best_after = world.rates.max(axis=1), world.later_rates.max(axis=1)
    for trial in range(trials):
        rates = world.rates_at(trial)
        decision = policy.decide(state, rng)
        true = rates[everyone, decision.arm]
        estimate = np.maximum(true * (1.0 + world.sigma * rng.standard_normal(flows)), 0.0)
        sent = state.arms.reward_mbps[everyone, decision.arm]
        got = np.where(decision.probe, PROBE_SHARE * estimate, np.minimum(sent, true))
        blocks[:, trial] = (
            np.add.reduceat(got / (best_before if trial < world.change_trial else best_after), begins) / sizes
        )
        probed[trial] = decision.probe.mean()
        state = policy.observe(state, decision, estimate[:, None])
        if tick is not None and trial % 500 == 499:
            tick(trial + 1)
    return Course(np.average(blocks, axis=0, weights=sizes), probed, blocks.astype(np.float32))


ARMS = 5
REDRAWN = 2
_CHUNK = 500


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
    outcomes = run_all(_simulate, [tasks[i] for i in order], settings, progress)
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


def first_crossing(curve: FloatArray, level: float) -> int | None:
    """The first trial, from 1, in which the mean over the runs itself is at least ``level``; None if it never is."""
    reached = np.flatnonzero(curve >= level)
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
        np.concatenate([course.blocks for _, course in parts]),
    )

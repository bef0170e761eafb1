"""The bandits' model world (spec 03, section 3.4): arms have true rates, probing is costly and its estimates are noisy.

A trial of a flow delivers

    a quarter of the estimate               when it probes,      estimate = true rate (1 + sigma N(0, 1)), at least 0
    min(mean rate of the arm, true rate)    when it exploits: it sends at the mean rate, and no more can arrive

Both relative to the best true rate at that time. Many flows are simulated at once and independently.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from hyroads.controller.core.bandit.arms import FloatArray
from hyroads.controller.core.bandit.policy import Policy, S

PROBE_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class World:
    """True rates [B, N] until trial ``change_trial`` and ``later_rates`` [B, N] from there on; relative noise
    ``sigma``.
    """

    rates: FloatArray
    later_rates: FloatArray
    change_trial: int
    sigma: float = 0.2

    def rates_at(self, trial: int) -> FloatArray:
        """The true rates in a trial, counted from 0."""
        return self.rates if trial < self.change_trial else self.later_rates


@dataclass(frozen=True, slots=True)
class Course:
    """Means over the flows, per trial [T]: share of the optimum delivered, and share of flows that probed."""

    delivered: FloatArray
    probed: FloatArray


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
    delivered, probed = np.empty(trials), np.empty(trials)
    for trial in range(trials):
        rates = world.rates_at(trial)
        decision = policy.decide(state, rng)
        true = rates[everyone, decision.arm]
        estimate = np.maximum(true * (1.0 + world.sigma * rng.standard_normal(flows)), 0.0)
        sent = state.arms.reward_mbps[everyone, decision.arm]
        got = np.where(decision.probe, PROBE_SHARE * estimate, np.minimum(sent, true))
        delivered[trial] = (got / rates.max(axis=1)).mean()
        probed[trial] = decision.probe.mean()
        state = policy.observe(state, decision, estimate[:, None])
        if tick is not None and trial % 500 == 499:
            tick(trial + 1)
    return Course(delivered, probed)

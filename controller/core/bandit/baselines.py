"""The policies that HyMAB is compared with (Henri, EPFL thesis 9056, 2018, chapter 4).

All exploit the arm with the best mean at its mean rate vector; they differ in when they probe and which arm.

- ``Rand``: HyMAB with uniform choice in stage 1.
- ``EpsGreedy``: probes a uniform arm with probability eps, and as long as it knows no arm: there is no rate to send at.
- ``EpsNGreedy``: eps_n = min(1, c N / (d^2 n)) in trial n, d = the gap between the two best arms (Auer et al. 2002,
  figure 3), which only an oracle knows.
- ``Rexp3``: Exp3 with restarts (Besbes, Gur, Zeevi, NIPS 2014). With probability eps it probes an arm drawn from

      p_P = (1 - gamma) w_P / sum of w + gamma / N,      w_P <- w_P exp(gamma reward / (p_P N)),      w <- 1 every batch

  As published it is HyMAB's stage 1, with the gamma of its theory (:func:`rexp3_gamma`), and eps is that of stage 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from .hymab import Hymab, HymabState
from .policy import Arms, BanditState, BoolArray, Decision, FloatArray, IndexArray, record, unexplored


@dataclass(frozen=True, slots=True)
class Rand(Hymab):
    """HyMAB's second stage behind a uniform choice."""

    def select(self, state: HymabState, rng: np.random.Generator) -> IndexArray:
        """Any arm, [B]."""
        return rng.integers(0, state.arms.arms, state.arms.flows)


@dataclass(frozen=True, slots=True)
class EpsGreedy:
    """Probes with a constant probability; ``window=None`` averages all measurements."""

    eps: float = 0.05
    window: int | None = None

    def start(self, flows: int, arms: int, paths: int) -> BanditState:
        """Nothing known."""
        return BanditState(*unexplored(flows, arms, paths, self.window or 1))

    def decide(self, state: BanditState, rng: np.random.Generator) -> Decision:
        """A uniform arm or the best."""
        return _uniform(state.arms, self.eps, rng)

    def observe(self, state: BanditState, decision: Decision, rates_mbps: FloatArray) -> BanditState:
        """Adds the measurements."""
        rows, chosen, vectors = decision.measured(rates_mbps)
        arms = record(state.arms, rows, chosen, vectors, self.window is None) if len(rows) else state.arms
        return replace(state, arms=arms, trial=state.trial + 1)

    def alert(self, state: BanditState, which: BoolArray) -> BanditState:
        """Hints are not used."""
        return state


@dataclass(frozen=True)
class EpsNGreedy(EpsGreedy):
    """Probes ever less often; ``gap`` [B] or one number is d in the unit of the rewards."""

    factor: float = 0.01
    gap: FloatArray | float = field(default=0.1)

    def decide(self, state: BanditState, rng: np.random.Generator) -> Decision:
        """A uniform arm or the best."""
        eps = self.factor * state.arms.arms / (np.square(self.gap) * (state.trial + 1))
        return _uniform(state.arms, np.minimum(eps, 1.0), rng)


@dataclass(frozen=True, slots=True)
class Rexp3State(BanditState):
    """With the logarithms of the weights [B, N]."""

    log_weights: FloatArray


def rexp3_gamma(arms: int, batch: int) -> float:
    """The gamma of Rexp3 for batches of so many trials: min(1, sqrt(N ln N / ((e - 1) batch))) (Besbes, Gur, Zeevi,
    NIPS 2014, theorem 2).
    """
    return min(1.0, math.sqrt(arms * math.log(arms) / ((math.e - 1.0) * batch)))


@dataclass(frozen=True, slots=True)
class Rexp3:
    """Parameters of Rexp3; rewards are divided by ``reward_scale`` and cut to [0, 1].

    ``eps`` is the probability of a probe, None: gamma. ``batch`` counts trials, probes or not.
    """

    gamma: float = 0.05
    batch: int = 300
    window: int | None = 10
    reward_scale: float = 1.0
    eps: float | None = None

    def start(self, flows: int, arms: int, paths: int) -> Rexp3State:
        """Nothing known, all weights equal."""
        return Rexp3State(*unexplored(flows, arms, paths, self.window or 1), np.zeros((flows, arms)))

    def decide(self, state: Rexp3State, rng: np.random.Generator) -> Decision:
        """An arm drawn by weight, or the best."""
        draw = rng.random((2, state.arms.flows))
        cumulated = self._probabilities(state).cumsum(axis=1)
        arm = np.minimum((cumulated < draw[0][:, None]).sum(axis=1), state.arms.arms - 1)
        probe = draw[1] < (self.gamma if self.eps is None else self.eps)
        return Decision(probe, np.where(probe, arm, state.arms.leaders))

    def observe(self, state: Rexp3State, decision: Decision, rates_mbps: FloatArray) -> Rexp3State:
        """Adds the measurements and moves the weights; at the end of a batch all weights are equal again."""
        rows, chosen, vectors = decision.measured(rates_mbps)
        arms, weights = state.arms, state.log_weights
        if len(rows):
            probability = self._probabilities(state)[rows, chosen]
            reward = np.clip(vectors.sum(axis=1) / self.reward_scale, 0.0, 1.0)
            weights = weights.copy()
            weights[rows, chosen] += self.gamma * reward / (probability * arms.arms)
            arms = record(arms, rows, chosen, vectors, self.window is None)
        trial = state.trial + 1
        weights = np.where((trial % self.batch == 0)[:, None], 0.0, weights)
        return replace(state, arms=arms, trial=trial, log_weights=weights)

    def alert(self, state: Rexp3State, which: BoolArray) -> Rexp3State:
        """Hints are not used."""
        return state

    def _probabilities(self, state: Rexp3State) -> FloatArray:
        weights = np.exp(state.log_weights - state.log_weights.max(axis=1, keepdims=True))
        share = weights / weights.sum(axis=1, keepdims=True)
        return np.asarray((1.0 - self.gamma) * share + self.gamma / state.arms.arms)


def _uniform(arms: Arms, eps: FloatArray | float, rng: np.random.Generator) -> Decision:
    probe = (rng.random(arms.flows) < eps) | ~arms.probes.any(axis=1)
    return Decision(probe, np.where(probe, rng.integers(0, arms.arms, arms.flows), arms.leaders))

"""HyMAB: a two-stage bandit that learns which multipath carries most (S. Henri, EPFL thesis 9056, 2018, chapter 4).

Stage 1 chooses an arm P: an unexplored one if any, else by UCB1 (Auer, Cesa-Bianchi, Fischer, Machine Learning 47,
2002)

    argmax  mean(P) + sqrt(2 ln(t - 1) / n_P),        rewards scaled to [0, 1]

Stage 2 probes that arm with probability eps_P = n_P^-lambda, and otherwise exploits the arm with the best mean, sending
at its mean rate vector. In dynamic networks

    eps_P = max(eps_min, n_P^-lambda);   eps_min <- 0.15 after an estimate that is more than 40 % off the arm's mean,
                                         eps_min <- max(0.05, eps_min / 2) after one within 20 %

means are over the last 10 measurements, and three consecutive estimates more than 40 % off reset the arm. This module
is faithful to that; ``hymab_plus`` is our own variant.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .policy import Arms, BanditState, BoolArray, Decision, FloatArray, IndexArray, record, shortened, unexplored


@dataclass(frozen=True, slots=True)
class HymabState(BanditState):
    """With ``eps_min`` [B] and ``strikes`` [B, N], how many estimates in a row were far off."""

    eps_min: FloatArray
    strikes: IndexArray


@dataclass(frozen=True, slots=True)
class Hymab:
    """Parameters of HyMAB; ``dynamic=False`` is section 3.2: means of all measurements, no eps_min, no resets."""

    exponent: float = 2.0
    dynamic: bool = True
    window: int = 10
    eps_min_quiet: float = 0.05
    eps_min_alert: float = 0.15
    near: float = 0.2
    far: float = 0.4
    strikes: int = 3

    def start(self, flows: int, arms: int, paths: int) -> HymabState:
        """Nothing known."""
        return HymabState(
            *unexplored(flows, arms, paths, self.window if self.dynamic else 1),
            np.full(flows, self.eps_min_quiet if self.dynamic else 0.0),
            np.zeros((flows, arms), dtype=np.int64),
        )

    def decide(self, state: HymabState, rng: np.random.Generator) -> Decision:
        """Both stages; draws one number per flow (and one more in ``Rand``)."""
        arm = self.select(state, rng)
        probes = state.arms.probes[np.arange(state.arms.flows), arm]
        eps = np.maximum(state.eps_min, np.maximum(probes, 1.0) ** -self.exponent)
        probe = (probes == 0) | (rng.random(len(arm)) < eps)
        return Decision(probe, np.where(probe, arm, state.arms.leaders))

    def select(self, state: HymabState, rng: np.random.Generator) -> IndexArray:
        """Stage 1 by UCB1, [B]. Rewards are scaled by the flow's best mean."""
        arms = state.arms
        best = arms.reward_mbps.max(axis=1, keepdims=True)
        # In trial t the logarithm is that of t - 1, the trials done.
        bonus = np.sqrt(2.0 * np.log(np.maximum(state.trial, 1))[:, None] / np.maximum(arms.probes, 1))
        index = np.where(arms.probes > 0, arms.reward_mbps / np.maximum(best, 1e-12) + bonus, np.inf)
        return np.asarray(index.argmax(axis=1), dtype=np.int64)

    def observe(self, state: HymabState, decision: Decision, rates_mbps: FloatArray) -> HymabState:
        """Adds the measurements; in dynamic networks also adapts eps_min and resets arms that have changed."""
        rows, chosen, vectors = decision.measured(rates_mbps)
        trial, changed = state.trial + 1, np.zeros_like(state.changed)
        if not len(rows):
            return replace(state, trial=trial, changed=changed)
        arms = record(state.arms, rows, chosen, vectors, cumulative=not self.dynamic)
        if not self.dynamic:
            return replace(state, trial=trial, arms=arms)
        off = self._deviation(state.arms, rows, chosen, vectors)
        eps_min, strikes = state.eps_min.copy(), state.strikes.copy()
        calmer = np.maximum(eps_min[rows] / 2.0, self.eps_min_quiet)
        eps_min[rows] = np.where(off > self.far, self.eps_min_alert, np.where(off < self.near, calmer, eps_min[rows]))
        strikes[rows, chosen] = np.where(off > self.far, strikes[rows, chosen] + 1, 0)
        out = strikes[rows, chosen] >= self.strikes
        if out.any():
            arms = shortened(arms, rows[out], chosen[out], 0)
            strikes[rows[out], chosen[out]] = 0
            changed[rows[out]] = True
        return HymabState(arms, trial, changed, eps_min, strikes)

    def alert(self, state: HymabState, which: BoolArray) -> HymabState:
        """eps_min is raised for the flows ``which`` [B]: something else than a probe hints at a change."""
        return replace(state, eps_min=np.where(which, self.eps_min_alert, state.eps_min)) if self.dynamic else state

    def _deviation(self, arms: Arms, rows: IndexArray, chosen: IndexArray, vectors: FloatArray) -> FloatArray:
        """[R]: how far new estimates are off the arms' means, relative; a first estimate is neither near nor far."""
        mean = arms.reward_mbps[rows, chosen]
        off = np.abs(vectors.sum(axis=1) - mean) / np.maximum(mean, 1e-12)
        return np.where(arms.counted[rows, chosen] > 0, off, (self.near + self.far) / 2.0)

"""HyMAB+: our variant of HyMAB, with the same interface, faster at the start and after a change.

What differs, and why:

- *Which arm.* Top-two Thompson sampling (Russo, COLT 2016): most of the probes go to the leader, the others to the
  arm that a draw from the beliefs makes the best of the rest. UCB1's bonus is far larger than the differences between
  multipaths, so it spreads probes almost evenly; but the leader is what is sent on, so its mean is the one to know
  well and to watch.
- *When.* The same law, max(floor, n^-lambda), of the *leader's* probes, but paid into an account and probed when the
  account holds one: evenly spaced probes find a change sooner than random ones of the same number.
- *Windows.* The mean is over all measurements since the arm's last change (at most 32), not over the last 10: in
  quiet times the mean is sharper, after a change nothing old remains.
- *Changes.* A generalised likelihood ratio test (Lai 1995; Besson and Kaufmann, GLR-klUCB, 2019) of the newest k
  against the older measurements, for all k up to 8:

      z_k = |mean(newest k) - mean(rest)| / (sigma mean(rest) sqrt(1/k + 1/(n - k)))

  Above ``alarm``, the arm keeps its newest k only. A last estimate that is only suspicious (z_1 > ``suspicion``) is
  checked by another probe at once instead of after tens of slots. After an alarm the other arms, which share links
  with this one, are probed once each, and the changed arm until it has three new measurements.
- *Noise.* sigma, the relative noise, is learned from the residuals of the flow's own measurements.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .policy import BanditState, BoolArray, Decision, FloatArray, IndexArray, record, shortened, unexplored

_SIGMA_LIMITS = (0.02, 0.5)


@dataclass(frozen=True, slots=True)
class HymabPlusState(BanditState):
    """With the ``account`` [B] of probes earned, the probes ``due`` [B, N] at once, the ``variance`` [B] of relative
    noise, and the ``weight`` [B] of what that was learned from.
    """

    account: FloatArray
    due: IndexArray
    variance: FloatArray
    weight: FloatArray


@dataclass(frozen=True, slots=True)
class HymabPlus:
    """Parameters of HyMAB+; ``sigma`` is the relative noise assumed at first, worth ``sigma_weight`` residuals."""

    exponent: float = 2.0
    floor: float = 0.015
    leader_share: float = 0.6
    window: int = 32
    newest: int = 8
    alarm: float = 3.5
    suspicion: float = 2.0
    confirm: int = 3
    sigma: float = 0.2
    sigma_weight: float = 10.0
    forget: float = 0.98

    def start(self, flows: int, arms: int, paths: int) -> HymabPlusState:
        """Nothing known."""
        return HymabPlusState(
            *unexplored(flows, arms, paths, self.window),
            np.zeros(flows),
            np.zeros((flows, arms), dtype=np.int64),
            np.full(flows, self.sigma**2),
            np.full(flows, self.sigma_weight),
        )

    def decide(self, state: HymabPlusState, rng: np.random.Generator) -> Decision:
        """Probes what is due, else the leader or its challenger when the account allows it."""
        leader = state.arms.leaders
        urgent, forced = self._urgent(state)
        probe = urgent | (state.account + self._earned(state, leader) >= 1.0)
        usual = np.where(rng.random(len(leader)) < self.leader_share, leader, self._challenger(state, leader, rng))
        return Decision(probe, np.where(urgent, forced, np.where(probe, usual, leader)))

    def observe(self, state: HymabPlusState, decision: Decision, rates_mbps: FloatArray) -> HymabPlusState:
        """Adds the measurements, looks for changes, learns the noise."""
        urgent, _ = self._urgent(state)
        earned = self._earned(state, state.arms.leaders)
        # Urgent probes are free, or a change would silence the usual ones. What can't be spent does not pile up.
        account = np.minimum(state.account + earned - (decision.probe & ~urgent), 1.0)
        quiet = replace(
            state, trial=state.trial + 1, changed=np.zeros_like(state.changed), account=np.where(urgent, 0.0, account)
        )
        rows, chosen, vectors = decision.measured(rates_mbps)
        return self._learn(quiet, rows, chosen, vectors) if len(rows) else quiet

    def alert(self, state: HymabPlusState, which: BoolArray) -> HymabPlusState:
        """The leader of the flows ``which`` [B] is probed at once: something else than a probe hints at a change."""
        due = state.due.copy()
        rows = np.flatnonzero(which)
        at = (rows, state.arms.leaders[rows])
        due[at] = np.maximum(due[at], 1)
        return replace(state, due=due)

    def _earned(self, state: HymabPlusState, leader: IndexArray) -> FloatArray:
        """[B]: the share of a probe that a trial is worth."""
        probes = state.arms.probes[np.arange(len(leader)), leader]
        return np.maximum(self.floor, np.maximum(probes, 1.0) ** -self.exponent)

    def _urgent(self, state: HymabPlusState) -> tuple[BoolArray, IndexArray]:
        """Which flows must probe now [B], and which arm [B]: an unexplored one first, then the most promising."""
        fresh = state.arms.probes == 0
        due = fresh | (state.due > 0)
        rank = np.where(due, np.where(fresh, np.inf, state.arms.reward_mbps), -np.inf)
        return due.any(axis=1), np.asarray(rank.argmax(axis=1), dtype=np.int64)

    def _challenger(self, state: HymabPlusState, leader: IndexArray, rng: np.random.Generator) -> IndexArray:
        """[B]: the arm other than the leader whose draw from N(mean, (sigma mean)^2 / n) is greatest."""
        arms = state.arms
        spread = np.sqrt(state.variance)[:, None] / np.sqrt(np.maximum(arms.counted, 1))
        draws = arms.reward_mbps * (1.0 + spread * rng.standard_normal(arms.counted.shape))
        if arms.arms > 1:
            draws[np.arange(len(leader)), leader] = -np.inf
        return np.asarray(draws.argmax(axis=1), dtype=np.int64)

    def _learn(
        self, state: HymabPlusState, rows: IndexArray, chosen: IndexArray, vectors: FloatArray
    ) -> HymabPlusState:
        arms = record(state.arms, rows, chosen, vectors)
        at = (rows, chosen)
        sigma = np.sqrt(state.variance[rows])
        scores = self._scores(arms.recent_mbps[at].sum(axis=2), arms.counted[at], sigma)
        newest = np.asarray(scores.argmax(axis=1), dtype=np.int64)
        alarm = scores[np.arange(len(rows)), newest] > self.alarm
        due = state.due.copy()
        checking = due[at] > 0
        due[at] = np.maximum(due[at] - 1, 0)
        suspicious = (scores[:, 0] > self.suspicion) & ~alarm & ~checking
        due[rows[suspicious], chosen[suspicious]] = 1
        changed = state.changed.copy()
        if alarm.any():
            counted = newest[alarm] + 1
            arms = shortened(arms, rows[alarm], chosen[alarm], counted)
            changed[rows[alarm]] = True
            due[rows[alarm]] = np.maximum(due[rows[alarm]], 1)
            due[rows[alarm], chosen[alarm]] = np.maximum(self.confirm - counted, 0)
        variance, weight = self._noise(state, rows, scores[:, 0], arms.counted[at] > 3)
        return replace(state, arms=arms, changed=changed, due=due, variance=variance, weight=weight)

    def _scores(self, rewards: FloatArray, counted: IndexArray, sigma: FloatArray) -> FloatArray:
        """z_k, [R, newest], of ``rewards`` [R, W], newest first; 0 where fewer than two or k older ones are left."""
        counts = np.arange(rewards.shape[1]) < counted[:, None]
        sums = (rewards * counts).cumsum(axis=1)
        k = np.arange(1, min(self.newest, rewards.shape[1] - 1) + 1)
        older = counted[:, None] - k
        rest = (sums[:, -1:] - sums[:, : len(k)]) / np.maximum(older, 1)
        spread = sigma[:, None] * np.maximum(rest, 1e-9) * np.sqrt(1.0 / k + 1.0 / np.maximum(older, 1))
        return np.where(older >= np.maximum(k, 2), np.abs(sums[:, : len(k)] / k - rest) / spread, 0.0)

    def _noise(
        self, state: HymabPlusState, rows: IndexArray, score: FloatArray, known: BoolArray
    ) -> tuple[FloatArray, FloatArray]:
        """Variance [B] and its weight [B] after residuals of ``score`` sigmas, cut at 3: changes are not noise."""
        variance, weight = state.variance.copy(), state.weight.copy()
        used, squares = rows[known], np.minimum(score[known], 3.0) ** 2 * variance[rows[known]]
        before = weight[used] * self.forget
        learned = (variance[used] * before + squares) / (before + 1.0)
        variance[used] = np.clip(learned, _SIGMA_LIMITS[0] ** 2, _SIGMA_LIMITS[1] ** 2)
        weight[used] = before + 1.0
        return variance, weight

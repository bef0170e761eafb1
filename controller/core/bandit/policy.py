"""What all bandit policies have in common: they decide per trial and flow whether to probe, and which arm.

A policy is a frozen object of parameters; what it has learned is a state value that it never changes in place:

    decision = policy.decide(state, rng)
    state = policy.observe(state, decision, rates_mbps)

``observe`` is called once per trial, also when nothing was probed, because it counts the trials. A probe that could not
be carried out is reported as exploitation; the policy then asks again.

What is known about arms (:class:`Arms`) is the last measured rate vectors of every arm and their mean. Everything is an
array over B flows at once, N arms each, K paths per arm: the live controller uses B = 1, a study thousands, and both
run the same code. Arrays are never changed in place once they are part of an ``Arms``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Arms:
    """Measurements of B x N arms.

    ``recent_mbps``: [B, N, W, K] rate vectors, newest first. ``counted``: [B, N], how many of them count. ``probes``:
    [B, N], the n_P of the bandit, which may exceed ``counted``. ``mean_mbps``: [B, N, K]. ``reward_mbps``: [B, N], its
    sum over paths.
    """

    recent_mbps: FloatArray
    counted: IndexArray
    probes: IndexArray
    mean_mbps: FloatArray
    reward_mbps: FloatArray

    @property
    def flows(self) -> int:
        """B."""
        return len(self.counted)

    @property
    def arms(self) -> int:
        """N."""
        return int(self.counted.shape[1])

    @property
    def leaders(self) -> IndexArray:
        """[B]: the arm with the best mean, the first of equals; this is what is exploited."""
        return np.asarray(self.reward_mbps.argmax(axis=1), dtype=np.int64)


def unexplored(flows: int, arms: int, paths: int, window: int) -> tuple[Arms, IndexArray, BoolArray]:
    """The fields of a :class:`BanditState` that has learned nothing; ``window`` is W."""
    counted, probes = np.zeros((2, flows, arms), dtype=np.int64)
    recent, mean = np.zeros((flows, arms, window, paths)), np.zeros((flows, arms, paths))
    nothing = Arms(recent, counted, probes, mean, np.zeros((flows, arms)))
    return nothing, np.zeros(flows, dtype=np.int64), np.zeros(flows, dtype=np.bool_)


def record(arms: Arms, rows: IndexArray, chosen: IndexArray, rates_mbps: FloatArray, cumulative: bool = False) -> Arms:
    """``arms`` after one measurement ``rates_mbps`` [R, K] of arm ``chosen[i]`` of flow ``rows[i]`` (distinct flows).

    The mean is that of the last W measurements, or of all since the last reset when ``cumulative``.
    """
    at = (rows, chosen)
    series = arms.recent_mbps[at]
    series[:, 1:] = series[:, :-1].copy()
    series[:, 0] = rates_mbps
    probes = arms.probes[at] + 1
    counted = np.minimum(arms.counted[at] + 1, series.shape[1])
    if cumulative:
        old = arms.mean_mbps[at]
        mean = old + (rates_mbps - old) / probes[:, None]
    else:
        mean = mean_of(series, counted)
    return _replaced(arms, at, _Rows(series, counted, probes, mean))


def shortened(arms: Arms, rows: IndexArray, chosen: IndexArray, counted: IndexArray | int) -> Arms:
    """``arms`` with only the newest ``counted`` measurements of the given ones; 0 resets an arm."""
    at = (rows, chosen)
    series = arms.recent_mbps[at]
    count = np.minimum(arms.counted[at], counted)
    return _replaced(arms, at, _Rows(series, count, count, mean_of(series, count)))


def scaled(arms: Arms, factors: FloatArray) -> Arms:
    """``arms`` with all rates multiplied by ``factors`` [B, N]."""
    vectors = factors[:, :, None]
    return Arms(
        arms.recent_mbps * vectors[..., None],
        arms.counted,
        arms.probes,
        arms.mean_mbps * vectors,
        arms.reward_mbps * factors,
    )


def mean_of(series: FloatArray, counted: IndexArray) -> FloatArray:
    """[R, K]: mean of the newest ``counted[i]`` of the vectors ``series[i]`` [R, W, K]; zero if there are none."""
    counts = np.arange(series.shape[1]) < counted[:, None]
    total: FloatArray = (series * counts[:, :, None]).sum(axis=1)
    return total / np.maximum(counted, 1)[:, None]


@dataclass(frozen=True, slots=True)
class _Rows:
    """New values of R arms."""

    series: FloatArray
    counted: IndexArray
    probes: IndexArray
    mean: FloatArray


def _replaced(arms: Arms, at: tuple[IndexArray, IndexArray], new: _Rows) -> Arms:
    recent, counted, probes = arms.recent_mbps.copy(), arms.counted.copy(), arms.probes.copy()
    means, rewards = arms.mean_mbps.copy(), arms.reward_mbps.copy()
    recent[at], counted[at], probes[at] = new.series, new.counted, new.probes
    means[at], rewards[at] = new.mean, new.mean.sum(axis=1)
    return Arms(recent, counted, probes, means, rewards)


@dataclass(frozen=True, slots=True)
class Decision:
    """For each of B flows: ``probe`` [B] or exploit, and ``arm`` [B], the arm to probe or to send on."""

    probe: BoolArray
    arm: IndexArray

    def measured(self, rates_mbps: FloatArray) -> tuple[IndexArray, IndexArray, FloatArray]:
        """Flows that got a measurement (``rates_mbps`` [B, K] is finite), their probed arms and rate vectors [R, K]."""
        rows = np.flatnonzero(self.probe & np.isfinite(rates_mbps).all(axis=1))
        return rows, self.arm[rows], rates_mbps[rows]


@dataclass(frozen=True, slots=True)
class BanditState:
    """What every state has: ``trial`` [B] counts trials, ``changed`` [B] tells of a change seen in the last one."""

    arms: Arms
    trial: IndexArray
    changed: BoolArray


S = TypeVar("S", bound=BanditState)


class Policy(Protocol[S]):
    """A rule of choosing arms."""

    def start(self, flows: int, arms: int, paths: int) -> S:
        """The state before the first trial."""

    def decide(self, state: S, rng: np.random.Generator) -> Decision:
        """What to do in the next trial."""

    def observe(self, state: S, decision: Decision, rates_mbps: FloatArray) -> S:
        """The state after a trial; ``rates_mbps`` [B, K] counts where ``decision.probe``, NaN is a void measurement."""

    def alert(self, state: S, which: BoolArray) -> S:
        """The state after a hint, other than a probe, that capacities of the flows ``which`` [B] have changed."""

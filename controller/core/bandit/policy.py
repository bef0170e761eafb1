"""What all bandit policies have in common: they decide per trial and flow whether to probe, and which arm.

A policy is a frozen object of parameters; what it has learned is a state value that it never changes in place:

    decision = policy.decide(state, rng)
    state = policy.observe(state, decision, rates_mbps)

``observe`` is called once per trial, also when nothing was probed, because it counts the trials. A probe that could not
be carried out is reported as exploitation (``decision.denied(...)``); the policy then asks again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol, Self, TypeVar

import numpy as np
from hyroads.controller.core.bandit.arms import Arms, BoolArray, FloatArray, IndexArray


@dataclass(frozen=True, slots=True)
class Decision:
    """For each of B flows: ``probe`` [B] or exploit, and ``arm`` [B], the arm to probe or to send on."""

    probe: BoolArray
    arm: IndexArray

    def denied(self, refused: BoolArray, leaders: IndexArray) -> Decision:
        """The decision that was carried out when the probes ``refused`` [B] were not."""
        return Decision(self.probe & ~refused, np.where(self.probe & refused, leaders, self.arm))


class BanditState(Protocol):
    """What every state shows; ``trial`` [B] counts trials, ``changed`` [B] tells of a change seen in the last one."""

    @property
    def arms(self) -> Arms:
        """What was measured."""
        ...

    @property
    def trial(self) -> IndexArray:
        """Trials done, [B]."""
        ...

    @property
    def changed(self) -> BoolArray:
        """Whether the last trial revealed a change, [B]."""
        ...

    def with_arms(self, arms: Arms) -> Self:
        """The same state with other measurements of the same arms."""
        ...


S = TypeVar("S", bound=BanditState)


class Policy(Protocol[S]):
    """A rule of choosing arms."""

    def start(self, flows: int, arms: int, paths: int) -> S:
        """The state before the first trial."""
        ...

    def decide(self, state: S, rng: np.random.Generator) -> Decision:
        """What to do in the next trial."""
        ...

    def observe(self, state: S, decision: Decision, rates_mbps: FloatArray) -> S:
        """The state after a trial; ``rates_mbps`` [B, K] counts where ``decision.probe``, NaN is a void measurement."""
        ...

    def alert(self, state: S, which: BoolArray) -> S:
        """The state after a hint, other than a probe, that capacities of the flows ``which`` [B] have changed."""
        ...


def leaders(arms: Arms) -> IndexArray:
    """[B]: the arm with the best mean, the first of equals; this is what is exploited."""
    return np.asarray(arms.reward_mbps.argmax(axis=1), dtype=np.int64)


def measured(decision: Decision, rates_mbps: FloatArray) -> tuple[IndexArray, IndexArray, FloatArray]:
    """Flows that got a measurement, their probed arms and the rate vectors [R, K]."""
    valid = decision.probe & np.isfinite(rates_mbps).all(axis=1)
    rows = np.flatnonzero(valid)
    return rows, decision.arm[rows], rates_mbps[rows]


@dataclass(frozen=True, slots=True)
class PlainState:
    """The state of policies that need no more than the arms."""

    arms: Arms
    trial: IndexArray
    changed: BoolArray

    def with_arms(self, arms: Arms) -> Self:
        """The same state with other measurements."""
        return replace(self, arms=arms)

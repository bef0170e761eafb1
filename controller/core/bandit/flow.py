"""The bandit of one flow, as the live controller drives it: a value with ``decide`` and ``observe``.

    action = bandit.decide(rng)                       Probe(arm) or Exploit(arm, rates_mbps)
    bandit = bandit.observe(Probe(arm), rates)        the optimal rates that the probe's busy times gave; None: void
    bandit = bandit.observe(Exploit(...))             also when a wanted probe was refused by the schedule

Around the policy this module keeps what belongs to a flow: the planner's rates, used for an arm that was never
measured, and the rules for other flows' arrivals, changes of the arm set and restarts.

*When other flows come and go* (Henri, EPFL thesis 9056, 2018, chapter 4). F_P is the greatest number of flows that
interfere on a link of arm P. The rates of an arm were learned under its F_P, so

- when F_P grows, its rates are scaled by F_old / F_new at once, long before a probe could tell;
- when some F_P shrinks, the rates that were learned when the same set of flows was last active are restored at once; if
  that set was never seen, the bandit restarts.

The set of active flows is known by a hash. The memory holds a bounded number of sets, the latest ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from hyroads.controller.core.errors import HyroadsError

from .policy import BanditState, Decision, FloatArray, Policy, scaled


class BanditError(HyroadsError):
    """A bandit was given arms, rates or counts that do not fit it."""


@dataclass(frozen=True, slots=True)
class Probe:
    """Measure this arm in the next slot."""

    arm: int


@dataclass(frozen=True, slots=True)
class Exploit:
    """Send on this arm at these rates, one per path."""

    arm: int
    rates_mbps: tuple[float, ...]


@dataclass(frozen=True, slots=True, eq=False)
class FlowBandit:
    """A policy, what it has learned of one flow, and the rates [N][paths of the arm] that the planner expects."""

    policy: Policy[Any]
    state: BanditState
    planned_mbps: tuple[tuple[float, ...], ...]

    @property
    def arms(self) -> int:
        """N."""
        return len(self.planned_mbps)

    @property
    def changed(self) -> bool:
        """Whether the last observation revealed a change of capacity: then the arm set should be computed anew."""
        return bool(self.state.changed[0])

    @property
    def rewards_mbps(self) -> tuple[float, ...]:
        """Mean total rate of each arm, 0 if it was never measured."""
        return tuple(self.state.arms.reward_mbps[0].tolist())

    @property
    def probes(self) -> tuple[int, ...]:
        """How often each arm was measured since its last reset."""
        return tuple(self.state.arms.probes[0].tolist())

    def rates_of(self, arm: int) -> tuple[float, ...]:
        """The rates to send at on an arm: its mean vector, the planner's while it was never measured."""
        if not self.state.arms.probes[0, arm]:
            return self.planned_mbps[arm]
        return tuple(self.state.arms.mean_mbps[0, arm, : len(self.planned_mbps[arm])].tolist())

    def exploit(self) -> Exploit:
        """Send on the best arm: by measurements if there are any, else the planner's first."""
        arm = int(self.state.arms.leaders[0])
        return Exploit(arm, self.rates_of(arm))

    def decide(self, rng: np.random.Generator) -> Probe | Exploit:
        """What to do in the next slot."""
        decision = self.policy.decide(self.state, rng)
        return Probe(int(decision.arm[0])) if decision.probe[0] else self.exploit()

    def observe(self, action: Probe | Exploit, rates_mbps: Sequence[float] | FloatArray | None = None) -> FlowBandit:
        """The bandit after a slot; ``rates_mbps`` is what a probe measured, None if it measured nothing."""
        probed = isinstance(action, Probe)
        if not 0 <= action.arm < self.arms:
            raise BanditError(f"arm {action.arm} of {self.arms}")
        vector = np.full((1, self.state.arms.mean_mbps.shape[2]), np.nan)
        if probed and rates_mbps is not None:
            vector[0] = self._padded(action.arm, rates_mbps)
        decision = Decision(np.array([probed]), np.array([action.arm], dtype=np.int64))
        return replace(self, state=self.policy.observe(self.state, decision, vector))

    def alerted(self) -> FlowBandit:
        """The bandit after a hint other than a probe of a change: losses, or a link's new capacity."""
        return replace(self, state=self.policy.alert(self.state, np.array([True])))

    def restarted(self) -> FlowBandit:
        """Nothing learned."""
        return flow_bandit(self.policy, self.planned_mbps)

    def scaled(self, factors: Sequence[float]) -> FlowBandit:
        """All rates of arm i, learned and planned, multiplied by ``factors[i]``."""
        if len(factors) != self.arms or not all(np.isfinite(f) and f > 0 for f in factors):
            raise BanditError(f"expected {self.arms} positive factors, got {list(factors)}")
        arms = scaled(self.state.arms, np.array([factors], dtype=np.float64))
        planned = tuple(tuple(rate * f for rate in rates) for rates, f in zip(self.planned_mbps, factors, strict=True))
        return replace(self, state=replace(self.state, arms=arms), planned_mbps=planned)

    def with_arms(self, planned_mbps: Sequence[Sequence[float]], origin: Sequence[int | None]) -> FlowBandit:
        """The bandit of a recomputed arm set: arm i keeps the measurements of the old arm ``origin[i]``, if any."""
        if len(origin) != len(planned_mbps):
            raise BanditError("one origin per arm expected")
        fresh = flow_bandit(self.policy, planned_mbps)
        old, new = self.state.arms, fresh.state.arms
        for arm, source in enumerate(origin):
            if source is None:
                continue
            if not 0 <= source < self.arms or len(planned_mbps[arm]) != len(self.planned_mbps[source]):
                raise BanditError(f"arm {arm} can't be the old arm {source}: it has other paths")
            paths = len(planned_mbps[arm])
            new.recent_mbps[0, arm, :, :paths] = old.recent_mbps[0, source, :, :paths]
            new.mean_mbps[0, arm, :paths] = old.mean_mbps[0, source, :paths]
            new.counted[0, arm], new.probes[0, arm] = old.counted[0, source], old.probes[0, source]
            new.reward_mbps[0, arm] = old.reward_mbps[0, source]
        return replace(fresh, state=_of_the_flow(self.state, fresh.state))

    def _padded(self, arm: int, rates_mbps: Sequence[float] | FloatArray) -> FloatArray:
        rates = np.asarray(rates_mbps, dtype=np.float64)
        if rates.shape != (len(self.planned_mbps[arm]),) or not (np.isfinite(rates).all() and (rates >= 0).all()):
            raise BanditError(f"arm {arm} needs {len(self.planned_mbps[arm])} rates, finite and not negative")
        vector = np.zeros(self.state.arms.mean_mbps.shape[2])
        vector[: len(rates)] = rates
        return vector


def _of_the_flow(old: Any, fresh: Any) -> BanditState:
    """``fresh`` with what ``old`` knows about the flow and not about arms: trials, noise, eps_min (all arrays [B])."""
    per_flow = {f.name: getattr(old, f.name) for f in fields(old) if getattr(getattr(old, f.name), "ndim", 0) == 1}
    carried: BanditState = replace(fresh, **{**per_flow, "changed": fresh.changed})
    return carried


def flow_bandit(policy: Policy[Any], planned_mbps: Sequence[Sequence[float]]) -> FlowBandit:
    """A bandit that has learned nothing, over arms with the planner's rates (best arm first)."""
    planned = tuple(tuple(float(rate) for rate in rates) for rates in planned_mbps)
    if not planned or not all(planned):
        raise BanditError("a bandit needs at least one arm, and every arm at least one path")
    if not all(np.isfinite(rate) and rate >= 0 for rates in planned for rate in rates):
        raise BanditError("planned rates must be finite and not negative")
    return FlowBandit(policy, policy.start(1, len(planned), max(map(len, planned))), planned)


_MAX_SETS = 64


def flow_set_key(flows: Iterable[str]) -> str:
    """The hash of a set of flow ids; order and repetition do not matter."""
    digest = hashlib.blake2b(digest_size=16)
    for flow in sorted(set(flows)):
        encoded = flow.encode()
        digest.update(len(encoded).to_bytes(4, "big") + encoded)
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class FlowSets:
    """The set in force (``key``, F_P of every arm in ``sharing``) and the bandits remembered by key."""

    key: str
    sharing: tuple[int, ...]
    known: Mapping[str, FlowBandit] = field(default_factory=dict)

    def moved(
        self, bandit: FlowBandit, key: str, sharing: Sequence[int], restore_on_growth: bool = False
    ) -> tuple[FlowBandit, FlowSets]:
        """Bandit and sets after the active flows became ``key`` with F_P = ``sharing``.

        The original restores only when flows leave; ``restore_on_growth`` also does so when a known set comes back by
        an arrival, where measured rates are better than scaled ones.
        """
        if len(sharing) != bandit.arms or not all(count >= 1 for count in sharing):
            raise BanditError(f"expected {bandit.arms} numbers of flows, at least 1, got {list(sharing)}")
        if key == self.key and tuple(sharing) == self.sharing:
            return bandit, self
        memory = self._remembering(bandit)
        known = memory.get(key)
        shrunk = any(new < old for new, old in zip(sharing, self.sharing, strict=True))
        if known is not None and (shrunk or restore_on_growth):
            bandit = known
        elif shrunk:
            bandit = bandit.restarted()
        else:
            bandit = bandit.scaled([old / new for old, new in zip(self.sharing, sharing, strict=True)])
        return bandit, FlowSets(key, tuple(sharing), memory)

    def forgotten(self, sharing: Sequence[int]) -> FlowSets:
        """The sets after the arms were recomputed: what was learned belongs to other arms."""
        return replace(self, sharing=tuple(sharing), known={})

    def _remembering(self, bandit: FlowBandit) -> dict[str, FlowBandit]:
        memory = {key: value for key, value in self.known.items() if key != self.key}
        memory[self.key] = bandit
        while len(memory) > _MAX_SETS:
            del memory[next(iter(memory))]
        return memory

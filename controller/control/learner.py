"""What a flow with a bandit has learned, and what it does next (docs/explanation/bandit.md, "Live"). No I/O.

A :class:`Learner` turns one decision of its bandit each :data:`TRIAL_SLOTS` slots into rates or a probe. It keeps the
samples of every path, whichever arm they were probed for: rates come from all of them together, which takes out the
bias of noisy busy times. The bandit's means of single probes decide which arm is used and probed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hyroads.controller.core.addressing import PathName
from hyroads.controller.core.bandit import Exploit, FlowBandit, Hymab, HymabPlus, Probe, flow_bandit
from hyroads.controller.core.bandit.flow import FlowSets
from hyroads.controller.core.demand import Offer
from hyroads.controller.core.estimate.busy_time import Interface
from hyroads.controller.core.network import FlowSpec, Network, Policy

from .arm_airtime import Airtime, Arm, ArmRows, PathSample, arm_rows, measured_airtime, modelled_airtime
from .learned import Learned, Trust
from .probing import ArmProbe, Readings, new_probe

# 400 ms at slots of 100 ms.
TRIAL_SLOTS = 4
# After a probe that could not be read, twice as many after the next one: radios may be starting, or there are none.
RETRY_SLOTS = 20
MOST_DOUBLINGS = 5
# A path that carries less than this share of what it did, when losses had raised the suspicion, has become worse.
WORSE = 0.75
# A problem names this many interfaces.
NAMED = 4
POLICIES: Mapping[Policy, Hymab | HymabPlus] = {
    # The least share of probes of the thesis's testbed, with which it reaches 93 % (Henri 2018, chapter 4).
    Policy.HYMAB: Hymab(eps_min_quiet=0.02),
    Policy.HYMAB_PLUS: HymabPlus(),
    Policy.AUTO: HymabPlus(),
}

Share = Mapping[str, float]
"""By link: the share of time that the flow may use in its domain."""

Hears = Mapping[Interface, Collection[int]]
"""By interface: the links that it hears."""


@dataclass
class ArmRecord:
    """An arm: what the model says, and what the samples of its paths say together (None: not enough)."""

    rows: ArmRows
    model: Airtime
    measured: Airtime | None = None

    @property
    def airtime(self) -> Airtime:
        """The best that is known."""
        return self.measured or self.model


class Learner:
    """The bandit of one flow on a living network."""

    def __init__(self, spec: FlowSpec, network: Network, hears: Hears, arms: Sequence[Arm], share: Share) -> None:
        self.spec = spec
        self.records = [_record(network, hears, arm) for arm in arms]
        self.samples: dict[PathName, list[PathSample]] = {}
        self.dead: frozenset[PathName] = frozenset()
        self.policy = POLICIES[spec.policy]
        self.bandit: FlowBandit = flow_bandit(self.policy, self._planned(share))
        self.sets: FlowSets | None = None
        self.probe: ArmProbe | None = None
        self.wanted: int | None = None
        """The arm that waits to be probed, since slot ``since``."""
        self.since = 0
        self.trust = Trust()
        self.silent: dict[str, float] = {}
        self.unread: frozenset[Interface] = frozenset()
        """Interfaces of the arms that have no busy time, as far as is known."""
        self.problem: str | None = None
        self._arm = 0
        self._checking = False
        self._countdown = 0
        self._failures = 0
        self._rates: dict[int, tuple[tuple[tuple[str, float], ...], tuple[float, ...]]] = {}
        self._told: tuple[tuple[object, ...], Learned] | None = None
        """What :meth:`learned` gave last, and what it was made from."""

    @property
    def arms(self) -> tuple[Arm, ...]:
        """The arms, the planner's best first."""
        return tuple(record.rows.arm for record in self.records)

    @property
    def arm_in_use(self) -> int:
        """The arm that carries the flow's packets when it does not probe."""
        return self.bandit.exploit().arm

    @property
    def knows(self) -> bool:
        """Whether anything was measured of the arm in use."""
        return self.records[self.arm_in_use].measured is not None

    @property
    def follows_model(self) -> bool:
        """Whether the model's rates are better for now: only with ``auto``."""
        return self.spec.policy is Policy.AUTO and self.trust.model

    def rates(self, arm: int, share: Share) -> tuple[float, ...]:
        """The best rates of an arm as far as is known, one per path."""
        key = tuple(sorted((link, share.get(link, 1.0)) for path in self.arms[arm] for link in set(path)))
        known = self._rates.get(arm)
        if known is None or known[0] != key:
            known = self._rates[arm] = (key, self.records[arm].airtime.rates_mbps(share))
        return known[1]

    def sent_on(self, arm: int, share: Share) -> dict[PathName, float]:
        """The same by path."""
        return dict(zip(self.arms[arm], self.rates(arm, share), strict=True))

    def with_network(
        self, network: Network, hears: Hears, arms: Sequence[Arm], share: Share, touched: frozenset[str]
    ) -> None:
        """Other arms or capacities: what was measured stays but for paths over ``touched`` links and their arms."""
        old = self.arms
        self.records = [_record(network, hears, arm) for arm in arms]
        self.unread &= self._observers()
        origin = [old.index(arm) if arm in old and not _uses(arm, touched) else None for arm in self.arms]
        self.bandit = self.bandit.with_arms(self._planned(share), origin)
        self._forget(touched, {path for arm in arms for path in arm})
        self.trust = Trust()
        self.abandon()
        if self.sets is not None:
            self.sets = self.sets.forgotten((1,) * len(arms))
        self._countdown = 0

    def learned(self, *, governs: bool) -> Learned:
        """All of this that another controller needs; the same object until something of it that matters changes."""
        arms, known = self.bandit.state.arms, self._told
        of = (arms, self.samples, self.dead, self.trust, self._failures, self.problem, governs, self.arms, self.unread)
        if known is None or any(now is not then for now, then in zip(of[:2], known[0], strict=False)) or of != known[0]:
            made = Learned(
                self.spec.policy.value, self.arms, self.bandit.state, dict(self.samples), self.dead,
                dict(self.silent), self.trust, self._failures, self.problem, governs, self.unread,
            )  # fmt: skip
            known = self._told = of, made
        return known[1]

    def take(self, learned: Learned, share: Share) -> None:
        """Go on from what another controller has learned of this flow, as far as it has the same arms."""
        old = learned.arms
        if learned.policy != self.spec.policy.value:
            return
        if old == self.arms:
            self.bandit = replace(self.bandit, state=learned.state)
        else:
            origin = [old.index(arm) if arm in old else None for arm in self.arms]
            before = FlowBandit(self.policy, learned.state, tuple((0.0,) * len(arm) for arm in old))
            self.bandit = before.with_arms(self._planned(share), origin)
        paths = {path for arm in self.arms for path in arm}
        self.samples = {path: list(samples) for path, samples in learned.samples.items() if path in paths}
        self.dead, self.silent = learned.dead & paths, dict(learned.silent)
        self.unread = learned.unread & self._observers()
        self.trust, self._failures, self.problem = learned.trust, learned.failures, learned.problem
        self._measure()
        # The next probe comes when it would have come there at the latest.
        self._countdown = RETRY_SLOTS << min(self._failures - 1, MOST_DOUBLINGS) if self._failures else TRIAL_SLOTS

    def alerted(self) -> None:
        """Something else than a probe hints at a change."""
        self.bandit = self.bandit.alerted()
        self._countdown = 0

    def moved(self, key: str, sharing: Sequence[int]) -> None:
        """The set of active flows, or how many share the links of each arm."""
        if self.sets is None:
            self.sets = FlowSets(key, tuple(sharing))
            return
        before = self.sets
        self.bandit, self.sets = before.moved(self.bandit, key, sharing, restore_on_growth=True)
        if self.sets is not before:
            self.abandon()

    def abandon(self) -> None:
        """No probe."""
        self.probe = self.wanted = None
        self._checking = False

    def suspect(self, slot: int) -> None:
        """Too little arrives: the arm in use is measured at once, and if it is much worse, what is old is void."""
        self.wanted, self.since, self._checking = self.arm_in_use, slot, True

    def advance(self, now_s: float, readings: Readings, received: Mapping[PathName, float], share: Share) -> None:
        """A slot of the probe under way is over."""
        if self.probe is None:
            return
        self.probe = self.probe.after(now_s, readings, received)
        if self.probe.done:
            probe, self.probe = self.probe, None
            self._learn(probe, share)

    def next_trial(self, slot: int, rng: np.random.Generator) -> None:
        """When the last trial is over: what the next one is to be."""
        if self.probe is not None:
            return
        self._countdown -= 1
        if self._countdown > 0:
            return
        self._countdown = TRIAL_SLOTS
        if self.wanted is not None:
            self.bandit = self.bandit.observe(self.bandit.exploit())
            return
        action = self.bandit.decide(rng)
        if isinstance(action, Probe):
            self.wanted, self.since = action.arm, slot
        else:
            self.bandit = self.bandit.observe(action)

    def begin(self, now_s: float, share: Share, *, silent: bool, occupied: Share) -> ArmProbe:
        """The schedule grants the probe that was wanted; ``occupied`` is the share of time of other traffic by link."""
        self._arm, self.wanted = self.wanted or 0, None
        record = self.records[self._arm]
        best, alone = (
            [a or b for a, b in zip(record.airtime.best_mbps(most), record.model.best_mbps(most), strict=True)]
            for most in (share, {})
        )
        self.probe = new_probe(
            record.rows, self._observers(), best, now_s,
            silent=silent, unread=self.unread, occupied=occupied, alone_mbps=alone,
        )  # fmt: skip
        return self.probe

    def _observers(self) -> frozenset[Interface]:
        return frozenset(i for each in self.records for group in each.rows.groups for i in group)

    def _learn(self, probe: ArmProbe, share: Share) -> None:
        record, samples = self.records[self._arm], probe.samples
        one = {path: [sample] for path, sample in samples.items()}
        single = measured_airtime(record.rows, one, probe.dead) if probe.failed is None else None
        self.unread, self.problem = probe.unread, _problem(probe.unread)
        if single is None:
            self.problem = probe.failed or "a path made nothing busy: its probe did not get through"
            self._countdown = RETRY_SLOTS << min(self._failures, MOST_DOUBLINGS)
            self._failures += 1
            self.bandit = self.bandit.observe(Exploit(self._arm, ()))
            return
        self._countdown = self._failures = 0
        for interface, value in (probe.silent or {}).items():
            group = next((g for g, members in enumerate(record.rows.groups) if interface in members), None)
            if group is not None:
                self.silent.update(dict.fromkeys(record.rows.heard[group], value))
        checking, self._checking = self._checking, False
        if checking and record.measured is not None:
            self._check(single, record.measured, share)
        self.bandit = self.bandit.observe(Probe(self._arm), single.rates_mbps(share))
        counted = int(self.bandit.state.arms.counted[0, self._arm]) if self.bandit.changed else None
        self._keep(samples, probe.dead, counted)
        self._judge(share)

    def _keep(self, samples: Mapping[PathName, PathSample], dead: frozenset[PathName], newest: int | None) -> None:
        """Adds samples; if the arm was found to have changed, only so many of the ``newest`` of its paths remain."""
        self.dead = self.dead - samples.keys() | dead
        for path, sample in samples.items():
            most = self.policy.window * sum(path in arm for arm in self.arms)
            if newest is not None:
                most = max(newest, 1)
            self.samples[path] = [*self.samples.get(path, ()), sample][-most:]
        self._measure()

    def _measure(self) -> None:
        """What is known of every arm, anew."""
        self._rates.clear()
        for record in self.records:
            record.measured = measured_airtime(record.rows, self.samples, self.dead)

    def _forget(self, links: Collection[str], paths: Collection[PathName]) -> None:
        """Of all paths but these, and of those over certain links, nothing is known."""
        void = frozenset(links)
        known = {path for path in paths if not void & set(path)}
        self.samples = {path: samples for path, samples in self.samples.items() if path in known}
        self.dead = self.dead & known
        self._measure()

    def _check(self, single: Airtime, before: Airtime, share: Share) -> None:
        """If paths have become much worse, what was measured of arms over their links is void."""
        worse = _worse_links(single, before)
        if worse:
            origin = [None if _uses(arm, worse) else i for i, arm in enumerate(self.arms)]
            self._forget(worse, {path for arm in self.arms for path in arm})
            self.bandit = self.bandit.with_arms(self._planned(share), origin)

    def _judge(self, share: Share) -> None:
        """Whether the model is right about the arm that it would use; only ``auto`` asks."""
        first = self.records[0]
        if self.spec.policy is not Policy.AUTO or first.measured is None:
            return
        sigma = float(np.sqrt(getattr(self.bandit.state, "variance", np.array([0.04]))[0]))
        found, said = sum(first.measured.rates_mbps(share)), sum(first.model.rates_mbps(share))
        rewards = self.bandit.rewards_mbps
        least = max(1, min(len(self.samples.get(path, ())) for path in self.arms[0]))
        self.trust = self.trust.after(found, said, sigma / least**0.5, max(rewards), rewards[0])

    def _planned(self, share: Share) -> list[tuple[float, ...]]:
        return [record.model.rates_mbps(share) for record in self.records]

    def document(self, share: Share) -> dict[str, Any]:
        """The part ``bandit`` of a flow."""
        state = self.bandit.state
        probing = self.probe is not None
        return {
            "arm": self.arm_in_use,
            "probing": self._arm if probing else None,
            "waiting": self.wanted,
            "eps_min": float(getattr(state, "eps_min", np.array([getattr(self.policy, "floor", 0.0)]))[0]),
            "trials": int(state.trial[0]) if hasattr(state, "trial") else None,
            "problem": self.problem,
            "model_trusted": self.trust.model if self.spec.policy is Policy.AUTO else None,
            "arms": [
                {
                    "paths": [list(path) for path in record.rows.arm],
                    "mean_mbps": mean if probes else None,
                    "newest_mbps": float(state.arms.recent_mbps[0, i, 0].sum()) if probes else None,
                    "rates_mbps": list(self.rates(i, share)),
                    "planned_mbps": sum(record.model.rates_mbps(share)),
                    "probes": probes,
                }
                for i, (record, mean, probes) in enumerate(
                    zip(self.records, self.bandit.rewards_mbps, self.bandit.probes, strict=True)
                )
            ],
        }


def _record(network: Network, hears: Hears, arm: Arm) -> ArmRecord:
    rows = arm_rows(network, arm, hears)
    return ArmRecord(rows, modelled_airtime(rows, network))


def _worse_links(now: Airtime, then: Airtime) -> set[str]:
    """Links of paths that cost much more airtime than before, or carry nothing any more; busy times tell which."""
    worse: set[str] = set()
    for i, path in enumerate(now.rows.arm):
        if i in now.dead:
            worse |= set() if i in then.dead else set(path)
            continue
        for heard, new, old in zip(now.rows.heard, now.alpha[:, i], then.alpha[:, i], strict=True):
            if WORSE * new > old:
                worse |= heard & set(path)
    return worse


def _problem(unread: Collection[Interface]) -> str | None:
    """What users read if interfaces have no busy time; it names the first few."""
    if not unread:
        return None
    names = [" ".join(interface) for interface in sorted(unread)]
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"no busy time at {', '.join(names[:NAMED])}{more}: rates from what arrives"


def _uses(arm: Arm, links: Collection[str]) -> bool:
    return any(link in links for path in arm for link in path)


BUSY_ABOVE = 0.93
PATIENCE_S = 1.5
# A flow that sends nothing is gone: the others have what they learned without it again. TCP that waits for a timeout is
# taken for gone as well, and has its part again with its first packets.
GONE_S = 0.4
# Less than the least rate of any flow, so that one that waits for more can be seen.
ACTIVE_MBPS = 0.05
LOST = 0.03
# So much less than its rates arrives, for so long: the rates are wrong.
SHORT = 0.85
SHORT_S = 1.0
_SMOOTHING = 0.1


@dataclass(frozen=True, slots=True)
class Saturation:
    """Whether a flow would take more than it gets: only then it needs a bandit (Henri, EPFL thesis 9056, 2018, ch. 4).

    A flow is saturated when packets wait at its edge, when it sends nearly all that it may, or when packets get lost on
    the way: rates that are too high make TCP send less than it may, which must not look like a lack of demand.
    ``saturated_s`` and ``active_s``: when it last was so; ``short_s``: since when far less than its rates arrives;
    smoothed rates sent and delivered in Mb/s.
    """

    saturated_s: float | None = None
    active_s: float | None = None
    sent_mbps: float = 0.0
    delivered_mbps: float = 0.0
    short_s: float | None = None

    def after(self, offer: Offer, delivered_mbps: float, now_s: float) -> Saturation:
        """After a slot in which the flow had its usual rates."""
        # A flow that wakes up has not lost what is still under way.
        before = (self.sent_mbps, self.delivered_mbps) if self.is_active(now_s) else (offer.sent_mbps,) * 2
        sent = before[0] + _SMOOTHING * (offer.sent_mbps - before[0])
        delivered = before[1] + _SMOOTHING * (delivered_mbps - before[1])
        active = offer.sent_mbps > ACTIVE_MBPS or offer.backlogged
        lossy = active and delivered < (1 - LOST) * sent
        full = active and (offer.backlogged or offer.sent_mbps > BUSY_ABOVE * offer.allowed_mbps)
        short = lossy and delivered < SHORT * offer.allowed_mbps
        return Saturation(
            now_s if full or lossy else self.saturated_s,
            now_s if active else self.active_s,
            sent,
            delivered,
            (now_s if self.short_s is None else self.short_s) if short else None,
        )

    def falls_short(self, now_s: float) -> bool:
        """Whether its rates are more than the network carries."""
        return self.short_s is not None and now_s - self.short_s >= SHORT_S

    def unchanged(self, now_s: float) -> Saturation:
        """After a slot that tells nothing: what was so a moment ago still is."""
        return Saturation(
            now_s if self.is_saturated(now_s) else self.saturated_s,
            now_s if self.is_active(now_s) else self.active_s,
            self.sent_mbps,
            self.sent_mbps,
        )

    def is_saturated(self, now_s: float) -> bool:
        """Whether it would take more."""
        return self.saturated_s is not None and now_s - self.saturated_s <= PATIENCE_S

    def is_active(self, now_s: float) -> bool:
        """Whether it sends at all."""
        return self.active_s is not None and now_s - self.active_s <= GONE_S

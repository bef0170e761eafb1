"""One probe of an arm: which rates when, which busy times count, and the optimal rates that follow. Pure; time is an
argument.

A probe has parts of :data:`PART_SLOTS` slots: every path of the arm alone at 0.75 of its best rate, filled up with
dummies so that the rate is known whatever the flow offers, and at the end a silent part if others send as well. (At the
beginning radios would still send what queued up before; at the end there are no queues.) Busy times are read over the
radio channel shortly after a part began, as its rates have to get through, and right before it ends. A part that
saturates a medium measured nothing and comes again at half the rate; after three halvings the path counts as dead.

The rows of the optimum (``core.bandit.busy_time_optimum``) are not links but *groups* of interfaces that hear the same
links of the arm: they are busy at the same times, so averaging them takes out their readers' noise before the LP.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
from hyroads.controller.core.bandit.arms import FloatArray
from hyroads.controller.core.bandit.busy_time_optimum import (
    PROBE_SHARE,
    BusySample,
    MeasurementError,
    airtime_per_mbps,
    busy_sample,
    rates_from_airtime,
)
from hyroads.controller.core.estimate.busy_time import Interface
from hyroads.controller.core.network import Network
from hyroads.controller.numbering import PathName

PART_SLOTS = 2
# New rates need a message to the agent, and what is under way has to arrive.
SETTLE_S = 0.04
# Asked for so much before a part ends, a reading is there when the next slot begins.
LEAD_S = 0.025
LEAST_WINDOW_S = 0.06
MOST_TRIES = 4
# Less than this share of what was sent arrives: some medium on the way is full, whatever busy times say.
LEAST_ARRIVING = 0.8
LEAST_PROBE_MBPS = 0.05

Arm = tuple[PathName, ...]


class BusyReading(NamedTuple):
    """Counters of an interface, which only grow, and when they were read on the controller's clock."""

    time_s: float
    busy_us: int
    active_us: int


class Meter(Protocol):
    """Whoever can have busy times read."""

    def read_soon(self, node: str, delay_s: float) -> None:
        """Have all interfaces of a node read after a delay."""

    def readings(self, interface: Interface) -> Sequence[BusyReading]:
        """The readings of about the last two seconds, oldest first; none if nobody reads there."""


def busy_share(readings: Sequence[BusyReading], from_s: float, to_s: float) -> float | None:
    """How busy an interface was in (the measured part of) a time; None if it was read too seldom."""
    inside = [reading for reading in readings if from_s <= reading.time_s <= to_s]
    if not inside or inside[-1].time_s - inside[0].time_s < LEAST_WINDOW_S:
        return None
    active_us = inside[-1].active_us - inside[0].active_us
    busy_us = inside[-1].busy_us - inside[0].busy_us
    return busy_us / active_us if active_us > 0 and busy_us >= 0 else None


@dataclass(frozen=True, eq=False)
class ArmRows:
    """Of an arm: its links by path, the groups of interfaces that are read, and the links that each group hears."""

    arm: Arm
    groups: tuple[tuple[Interface, ...], ...]
    heard: tuple[frozenset[str], ...]

    @property
    def nodes(self) -> frozenset[str]:
        """Whose radios are read."""
        return frozenset(node for group in self.groups for node, _ in group)


def arm_rows(network: Network, arm: Arm) -> ArmRows:
    """The groups of an arm: interfaces at the ends of its links, put together if they hear the same links of it."""
    index, links = network.link_index, network.links
    own = {index[name]: name for path in arm for name in path}
    heard: dict[Interface, set[str]] = {}
    for link in own:
        near = {own[int(m)] for m in network.interference.domain(link) if int(m) in own}
        for node in (links[link].source, links[link].target):
            heard.setdefault((node, links[link].technology), set()).update(near)
    groups: dict[tuple[str, frozenset[str]], list[Interface]] = {}
    for interface, names in sorted(heard.items()):
        groups.setdefault((interface[1], frozenset(names)), []).append(interface)
    return ArmRows(arm, tuple(tuple(group) for group in groups.values()), tuple(names for _, names in groups))


@dataclass(frozen=True, slots=True)
class Part:
    """A path of the arm alone at a rate (Mb/s); path None is the silent part."""

    path: int | None
    rate_mbps: float = 0.0
    tries: int = 1


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a probe measured: samples by group, and the paths that carry nothing."""

    samples: tuple[BusySample, ...]
    dead: frozenset[int]


@dataclass(frozen=True, eq=False)
class ArmProbe:
    """A probe under way: the parts that are left, the first of which began at ``since_s`` and has ``left`` slots."""

    rows: ArmRows
    parts: tuple[Part, ...]
    since_s: float
    left: int = PART_SLOTS
    measured: tuple[tuple[FloatArray, FloatArray], ...] = ()
    """Rates by path and busy times by group of the parts that are over."""
    dead: frozenset[int] = frozenset()
    silent: FloatArray | None = None
    failed: str | None = None
    """Why it measured nothing."""

    @property
    def done(self) -> bool:
        """Nothing is left to do."""
        return not self.parts or self.failed is not None

    @property
    def outcome(self) -> Outcome:
        """What it measured."""
        return Outcome(tuple(busy_sample(rates, busy, self.silent) for rates, busy in self.measured), self.dead)

    @property
    def slots_left(self) -> int:
        """How long it takes if nothing has to be repeated."""
        return self.left + PART_SLOTS * (len(self.parts) - 1) if not self.done else 0

    @property
    def is_fresh(self) -> bool:
        """Whether its first part has just begun: now is the time to have it read."""
        return self.left == PART_SLOTS

    def rates(self) -> dict[PathName, float]:
        """What is sent now: rate and filling of one path, all others 0; empty in a silent part."""
        part = self.parts[0]
        return {} if part.path is None else {self.rows.arm[part.path]: part.rate_mbps}

    def after(
        self, now_s: float, readings: Callable[[Interface], Sequence[BusyReading]], received: Mapping[PathName, float]
    ) -> ArmProbe:
        """The probe when a slot of it is over; ``received`` is what arrived lately by path, as far as is known."""
        if self.left > 1:
            return replace(self, left=self.left - 1)
        part, rest = self.parts[0], self.parts[1:]
        on = replace(self, parts=rest, since_s=now_s, left=PART_SLOTS)
        busy = self._busy(now_s, readings)
        if busy is None:
            return on._again(part, 1.0)
        if part.path is None:
            return replace(on, silent=busy)
        rates = np.zeros(len(self.rows.arm))
        rates[part.path] = part.rate_mbps
        arriving = received.get(self.rows.arm[part.path], part.rate_mbps)
        if busy_sample(rates, busy).saturated or arriving < LEAST_ARRIVING * part.rate_mbps:
            return on._again(part, 0.5)
        return replace(on, measured=(*self.measured, (rates, busy)))

    def _again(self, part: Part, factor: float) -> ArmProbe:
        """A part that told nothing is repeated at another rate; not for ever."""
        if part.tries < MOST_TRIES:
            again = Part(part.path, part.rate_mbps * factor, part.tries + 1)
            return replace(self, parts=(again, *self.parts))
        if part.path is None or factor == 1.0:
            return replace(self, failed="busy times can't be read")
        return replace(self, dead=self.dead | {part.path})

    def _busy(self, now_s: float, readings: Callable[[Interface], Sequence[BusyReading]]) -> FloatArray | None:
        """By group: the mean of those that were read; None if of some group nobody was."""
        means = []
        for group in self.rows.groups:
            shares = [busy_share(readings(interface), self.since_s + SETTLE_S, now_s) for interface in group]
            known = [share for share in shares if share is not None]
            if not known:
                return None
            means.append(float(np.mean(known)))
        return np.array(means)


def new_probe(rows: ArmRows, best_mbps: Sequence[float], now_s: float, *, silent: bool) -> ArmProbe:
    """The probe of an arm whose paths carry ``best_mbps`` alone, as far as is known."""
    parts = tuple(Part(i, max(best * PROBE_SHARE, LEAST_PROBE_MBPS)) for i, best in enumerate(best_mbps))
    return ArmProbe(rows, (*parts, Part(None)) if silent else parts, now_s)


@dataclass(frozen=True, eq=False)
class Airtime:
    """Airtime per Mb/s of an arm's paths, ``alpha`` [groups, paths] in s/Mb; ``dead`` paths carry nothing."""

    rows: ArmRows
    alpha: FloatArray
    dead: frozenset[int] = frozenset()

    def best_mbps(self, share: Mapping[str, float]) -> list[float]:
        """What every path carries alone if of the time of every link at most ``share`` may be used."""
        most = (self.alpha / self._shares(share)[:, None]).max(axis=0)
        return [0.0 if i in self.dead or not worst > 0 else float(1 / worst) for i, worst in enumerate(most)]

    def rates_mbps(self, share: Mapping[str, float]) -> tuple[float, ...]:
        """The optimal rates if of the time of every link at most ``share`` may be used; 0 for paths that are dead."""
        alive = [i for i in range(len(self.rows.arm)) if i not in self.dead and self.alpha[:, i].any()]
        rates = np.zeros(len(self.rows.arm))
        if alive:
            rates[alive] = rates_from_airtime(self.alpha[:, alive], 1.0 / self._shares(share))
        return tuple(rates.tolist())

    def _shares(self, share: Mapping[str, float]) -> FloatArray:
        least = [min(share.get(link, 1.0) for link in links) for links in self.rows.heard]
        shares: FloatArray = np.clip(np.array(least), 1e-3, 1.0)
        return shares


def measured_airtime(rows: ArmRows, outcomes: Sequence[Outcome]) -> Airtime:
    """What several probes of an arm measured, together; what is dead is what was dead last.

    Raises :class:`MeasurementError` if a path that lives was never measured.
    """
    dead = outcomes[-1].dead if outcomes else frozenset()
    alive = [i for i in range(len(rows.arm)) if i not in dead]
    alpha = np.zeros((len(rows.groups), len(rows.arm)))
    if alive:
        samples = [s for outcome in outcomes for s in outcome.samples if s.rates_mbps[alive].any()]
        narrow = [BusySample(s.rates_mbps[alive], s.busy, s.silent) for s in samples]
        alpha[:, alive] = airtime_per_mbps(narrow)
    silent = [rows.arm[i] for i in alive if not alpha[:, i].any()]
    if silent:
        raise MeasurementError(f"path {'-'.join(silent[0])} made nothing busy: its probe did not get through")
    return Airtime(rows, alpha, dead)


def modelled_airtime(rows: ArmRows, network: Network) -> Airtime:
    """The same from the capacities and domains that plans count on; paths over links without capacity are dead."""
    index = network.link_index
    alpha = np.zeros((len(rows.groups), len(rows.arm)))
    dead = set()
    for i, path in enumerate(rows.arm):
        capacity = {name: network.links[index[name]].capacity_mbps for name in path}
        if not all(capacity.values()):
            dead.add(i)
            continue
        for row, heard in enumerate(rows.heard):
            alpha[row, i] = sum(1.0 / capacity[name] for name in path if name in heard)
    return Airtime(rows, alpha, frozenset(dead))

"""One probe of an arm: which rates when, and which busy times count. Pure; time is an argument.

A probe has parts of :data:`PART_SLOTS` slots: every path of the arm alone at 0.75 of its best rate, filled up with
dummies so that the rate is known whatever the flow offers, and at the end a silent part if others send as well. (At the
beginning radios would still send what queued up before; at the end there are no queues.) Busy times are read over the
radio channel shortly after a part began, as its rates have to get through, and right before it ends; it goes on while
readings are late. A part that saturates a medium measured nothing and comes again at half the rate; after three
halvings the path counts as dead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from hyroads.controller.core.addressing import PathName
from hyroads.controller.core.estimate.busy_time import Interface

from .arm_airtime import ArmRows, PathSample

PART_SLOTS = 2
# New rates need a message to the agent, and what is under way has to arrive.
SETTLE_S = 0.04
# Asked for so much before a part ends, a reading is there when the next slot begins.
LEAD_S = 0.025
LEAST_WINDOW_S = 0.06
# A path is sent at this share of its best rate. A medium as busy as that is full, and what was measured then void.
PROBE_SHARE, SATURATED_BUSY = 0.75, 0.97
MOST_TRIES = 4
# A part goes on for so many slots more if its readings are late.
MOST_LATE = 6
# If less than this share of what was sent arrives, a medium that looks as busy as this is full, and noise hides it.
ARRIVING, PROBABLY_FULL = 0.8, 0.8
# Less than this arrives: the path is hardly there. (Reports lag: a little less than all means nothing.)
LEAST_ARRIVING = 0.5
LEAST_PROBE_MBPS = 0.05


class BusyReading(NamedTuple):
    """Counters of an interface, which only grow, and when they were read on the controller's clock."""

    time_s: float
    busy_us: int
    active_us: int


Readings = Callable[[Interface], Sequence[BusyReading]]
"""The readings of an interface of about the last two seconds, oldest first; none if nobody reads there."""


def busy_share(readings: Sequence[BusyReading], from_s: float, to_s: float) -> float | None:
    """How busy an interface was in (the measured part of) a time; None if it was read too seldom."""
    inside = [reading for reading in readings if from_s <= reading.time_s <= to_s]
    if not inside or inside[-1].time_s - inside[0].time_s < LEAST_WINDOW_S:
        return None
    active_us = inside[-1].active_us - inside[0].active_us
    busy_us = inside[-1].busy_us - inside[0].busy_us
    return busy_us / active_us if active_us > 0 and busy_us >= 0 else None


@dataclass(frozen=True, slots=True)
class Part:
    """A path of the arm alone at a rate (Mb/s); path None is the silent part."""

    path: PathName | None
    rate_mbps: float = 0.0
    tries: int = 1


@dataclass(frozen=True, eq=False)
class ArmProbe:
    """A probe under way: the parts that are left, the first of which began at ``since_s`` and has ``left`` slots.

    ``observers`` are all interfaces that are read: those of the arm's groups, and of the flow's other arms.
    """

    rows: ArmRows
    observers: frozenset[Interface]
    parts: tuple[Part, ...]
    since_s: float
    left: int = PART_SLOTS
    late: int = 0
    """For how many slots it has waited for readings."""
    measured: tuple[tuple[Part, Mapping[Interface, float]], ...] = ()
    """Parts that are over with the busy times of then."""
    dead: frozenset[PathName] = frozenset()
    silent: Mapping[Interface, float] | None = None
    failed: str | None = None
    """Why it measured nothing."""

    @property
    def done(self) -> bool:
        """Nothing is left to do."""
        return not self.parts or self.failed is not None

    @property
    def samples(self) -> dict[PathName, PathSample]:
        """What it measured, without what is busy in silence, by path."""
        quiet = self.silent or {}
        return {
            part.path: PathSample(part.rate_mbps, {i: max(share - quiet.get(i, 0.0), 0.0) for i, share in busy.items()})
            for part, busy in self.measured
            if part.path is not None
        }

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
        return {} if part.path is None else {part.path: part.rate_mbps}

    def after(self, now_s: float, readings: Readings, received: Mapping[PathName, float]) -> ArmProbe:
        """The probe when a slot of it is over; ``received`` is what arrived lately by path, as far as is known."""
        if self.left > 1:
            return replace(self, left=self.left - 1)
        shares = {i: busy_share(readings(i), self.since_s + SETTLE_S, now_s) for i in self.observers}
        busy = {i: share for i, share in shares.items() if share is not None}
        groups = [[busy[i] for i in group if i in busy] for group in self.rows.groups]
        if not all(groups):
            failed = "busy times can't be read" if self.late == MOST_LATE else None
            return replace(self, late=self.late + 1, failed=failed)
        part, rest = self.parts[0], self.parts[1:]
        on = replace(self, parts=rest, since_s=now_s, left=PART_SLOTS, late=0)
        if part.path is None:
            return replace(on, silent=busy)
        arriving = received.get(part.path, part.rate_mbps) / part.rate_mbps
        busiest = max(float(np.mean(group)) for group in groups)
        full = busiest >= (PROBABLY_FULL if arriving < ARRIVING else SATURATED_BUSY)
        if full or arriving < LEAST_ARRIVING:
            return on._again(part, part.path)
        return replace(on, measured=(*self.measured, (part, busy)))

    def _again(self, part: Part, path: PathName) -> ArmProbe:
        """A part that told nothing is repeated at half the rate; not for ever."""
        if part.tries == MOST_TRIES:
            return replace(self, dead=self.dead | {path})
        return replace(self, parts=(Part(path, part.rate_mbps / 2, part.tries + 1), *self.parts))


def new_probe(
    rows: ArmRows, observers: frozenset[Interface], best_mbps: Sequence[float], now_s: float, *, silent: bool
) -> ArmProbe:
    """The probe of an arm whose paths carry ``best_mbps`` alone, as far as is known."""
    parts = tuple(
        Part(path, max(best * PROBE_SHARE, LEAST_PROBE_MBPS)) for path, best in zip(rows.arm, best_mbps, strict=True)
    )
    return ArmProbe(rows, observers, (*parts, Part(None)) if silent else parts, now_s)

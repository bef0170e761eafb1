"""One probe of an arm: which rates when, and which busy times count. Pure; time is an argument.

A probe has parts of :data:`PART_SLOTS` slots: every path of the arm alone at 0.75 of its best rate, filled up with
dummies so that the rate is known whatever the flow offers, and at the end a silent part if others send as well. (At the
beginning radios would still send what queued up before; at the end there are no queues.) Busy times are read over the
radio channel shortly after a part began, as its rates have to get through, and right before it ends; it goes on while
readings are late. A part that saturates a medium measured nothing and comes again at half the rate; after three
halvings the path counts as dead.

A group of interfaces that stays unread for :data:`MOST_LATE` slots, such as those of power lines without counters, is
*unmeasured*. A path that uses one is sent at rising rates until less than all arrives: what arrives then is its
capacity. Every unmeasured medium that it uses then counts as full at this rate, so paths that share one contend for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
# A report of what arrived is of this part only if its rates held this many slots longer (``recent_rates.RISE_S``).
REPORT_LATE = 2
# If less than this share of what was sent arrives, a medium that looks as busy as this is full, and noise hides it.
ARRIVING, PROBABLY_FULL = 0.8, 0.8
# Less than this arrives: the path is hardly there. (Reports lag: a little less than all means nothing.)
LEAST_ARRIVING = 0.5
LEAST_PROBE_MBPS = 0.05
# On paths with an unmeasured medium: with this share of what was sent, all arrived. Then the second part sends this
# much more than the path is expected to carry: little is lost, and less than all arrives if that was right. Later
# parts send this much more than the part before.
ALL_ARRIVED, BEYOND, RAISE = 0.9, 1.2, 1.5
# A raise by less than this is not worth a part.
LEAST_RAISE = 1.1
# Whatever load other traffic has by the plan, a probe finds this share of an unmeasured medium free at least.
LEAST_FREE = 0.2


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


def is_read(readings: Sequence[BusyReading]) -> bool:
    """Whether an interface's counters of observed time grow, that is, whether it has busy times at all."""
    return len(readings) > 1 and readings[-1].active_us > readings[0].active_us


@dataclass(frozen=True, slots=True)
class Part:
    """A path of the arm alone at a rate (Mb/s); path None is the silent part.

    A ``raised`` part looks for the capacity of a path with an unmeasured medium. Its busy times do not count.
    """

    path: PathName | None
    rate_mbps: float = 0.0
    tries: int = 1
    raised: bool = False


@dataclass(frozen=True, eq=False)
class ArmProbe:
    """A probe under way: the parts that are left, the first of which began at ``since_s`` and has ``left`` slots.

    ``observers`` are all interfaces that are read: those of the arm's groups, and of the flow's other arms. ``unread``
    are those that are known to have no busy time: no part waits for them until a reading comes. ``occupied`` is the
    share of time by link that other traffic has by the plan, ``alone_mbps`` what a path carries without it.
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
    unread: frozenset[Interface] = frozenset()
    occupied: Mapping[str, float] = field(default_factory=dict)
    alone_mbps: Mapping[PathName, float] = field(default_factory=dict)
    delivered_mbps: Mapping[PathName, float] = field(default_factory=dict)
    """Of paths with an unmeasured medium: the greatest rate that arrived."""

    @property
    def done(self) -> bool:
        """Nothing is left to do."""
        return not self.parts or self.failed is not None

    @property
    def samples(self) -> dict[PathName, PathSample]:
        """What it measured, without what is busy in silence, by path."""
        quiet = self.silent or {}
        found = {}
        for part, busy in self.measured:
            if part.path is not None:
                own = {i: max(share - quiet.get(i, 0.0), 0.0) for i, share in busy.items()}
                missing = self._unmeasured(part, part.path, busy)
                found[part.path] = PathSample(part.rate_mbps, {**missing, **own}, frozenset(missing))
        return found

    def _unmeasured(self, part: Part, path: PathName, busy: Mapping[Interface, float]) -> dict[Interface, float]:
        """The busy times of the groups that were not read, if what arrived at most fills each that the path uses."""
        found: dict[Interface, float] = {}
        for group, heard in zip(self.rows.groups, self.rows.heard, strict=True):
            if not any(i in busy for i in group):
                share = 0.0
                if heard & set(path):
                    share = self._free(heard) * part.rate_mbps / self.delivered_mbps[path]
                found.update(dict.fromkeys(group, share))
        return found

    def _free(self, links: Collection[str]) -> float:
        """The share of time that other traffic leaves on the busiest of some links."""
        return max(1.0 - max(self.occupied.get(link, 0.0) for link in links), LEAST_FREE)

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
        unread = frozenset(i for i in self.unread if not is_read(readings(i)))
        missing = frozenset(i for group in self.rows.groups if not any(i in busy for i in group) for i in group)
        part, rest = self.parts[0], self.parts[1:]
        most_late = MOST_LATE if missing - unread else REPORT_LATE if self._is_unmeasured(part.path, missing) else 0
        if self.late < most_late:
            return replace(self, late=self.late + 1, unread=unread)
        on = replace(self, parts=rest, since_s=now_s, left=PART_SLOTS, late=0, unread=unread | missing)
        if part.path is None:
            return replace(on, silent=busy)
        return on._sent(part, part.path, busy, received.get(part.path))

    def _is_unmeasured(self, path: PathName | None, missing: frozenset[Interface]) -> bool:
        """Whether a path uses a group of interfaces all of which are ``missing``."""
        links = set(path or ())
        groups = zip(self.rows.groups, self.rows.heard, strict=True)
        return any(heard & links and missing.issuperset(group) for group, heard in groups)

    def _sent(
        self, part: Part, path: PathName, busy: Mapping[Interface, float], received_mbps: float | None
    ) -> ArmProbe:
        """A part of a path is over; None: it is not known what arrived."""
        groups = [[busy[i] for i in group if i in busy] for group in self.rows.groups]
        missing = frozenset(i for group in self.rows.groups for i in group) - busy.keys()
        is_unmeasured = self._is_unmeasured(path, missing)
        if is_unmeasured and received_mbps is None:
            return replace(self, failed="neither busy times nor what arrives can be read")
        arriving = 1.0 if received_mbps is None else min(received_mbps / part.rate_mbps, 1.0)
        busiest = max((float(np.mean(group)) for group in groups if group), default=0.0)
        if part.raised:
            return self._raised(part, path, arriving, busiest)
        full = busiest >= (PROBABLY_FULL if arriving < ARRIVING else SATURATED_BUSY)
        if full or arriving < LEAST_ARRIVING:
            return self._again(part, path)
        measured = replace(self, measured=(*self.measured, (part, busy)))
        return measured._raised(part, path, arriving, busiest) if is_unmeasured else measured

    def _raised(self, part: Part, path: PathName, arriving: float, busiest: float) -> ArmProbe:
        """What arrives of a path with an unmeasured medium counts; if that is all, the path is sent at a higher rate,
        but at none that fills a medium that is read.
        """
        most = max(self.delivered_mbps.get(path, 0.0), arriving * part.rate_mbps)
        on = replace(self, delivered_mbps={**self.delivered_mbps, path: most})
        wanted = part.rate_mbps * RAISE
        if not part.raised and part.tries == 1:
            wanted = max(BEYOND * self.alone_mbps.get(path, 0.0) * self._free(path), part.rate_mbps * LEAST_RAISE)
        readable = part.rate_mbps * SATURATED_BUSY / busiest if busiest > 0 else wanted
        rate = min(wanted, readable)
        if arriving < ALL_ARRIVED or part.tries == MOST_TRIES or rate < part.rate_mbps * LEAST_RAISE:
            return on
        return replace(on, parts=(Part(path, rate, part.tries + 1, raised=True), *on.parts))

    def _again(self, part: Part, path: PathName) -> ArmProbe:
        """A part that told nothing is repeated at half the rate; not for ever."""
        if part.tries == MOST_TRIES:
            return replace(self, dead=self.dead | {path})
        return replace(self, parts=(Part(path, part.rate_mbps / 2, part.tries + 1), *self.parts))


def new_probe(
    rows: ArmRows,
    observers: frozenset[Interface],
    best_mbps: Sequence[float],
    now_s: float,
    *,
    silent: bool,
    unread: frozenset[Interface] = frozenset(),
    occupied: Mapping[str, float] | None = None,
    alone_mbps: Sequence[float] | None = None,
) -> ArmProbe:
    """The probe of an arm whose paths carry ``best_mbps`` alone in the flow's share of time, and ``alone_mbps`` (by
    default as much) in all of it, as far as is known; see :class:`ArmProbe`.
    """
    parts = tuple(
        Part(path, max(best * PROBE_SHARE, LEAST_PROBE_MBPS)) for path, best in zip(rows.arm, best_mbps, strict=True)
    )
    parts = (*parts, Part(None)) if silent else parts
    alone = dict(zip(rows.arm, best_mbps if alone_mbps is None else alone_mbps, strict=True))
    return ArmProbe(rows, observers, parts, now_s, unread=unread, occupied=occupied or {}, alone_mbps=alone)

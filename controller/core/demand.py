"""Flows that send less than their share give the rest back, and get it again within one slot when they wake.

A flow is GREEDY (its demand in the rate problem is infinite) or LIMITED (its demand is a cap above what it wants).
Two kinds of traffic say differently what they want. A transfer, made of full frames, adapts to the rate that it gets:
a queue of them says that it wants more, not how much. Whoever sends small frames (acknowledgements, speech, requests)
does not: all of what it offers was sent, waits or was dropped, and as long as nothing waits its rate is enough.

What a flow *wants* is therefore what it sent; or, if all of what it offered is known, what it offered while packets
wait, and its mean over ``patience_s`` while none do.

- GREEDY -> LIMITED when it wanted less than ``idle_below`` of its rate for ``patience_s``.
- LIMITED -> GREEDY at once when it has a backlog and nobody knows how much it wants: the very next allocation gives it
  a fair share.
- The cap is ``headroom`` times the most that it wanted within ``window_s``, at least ``floor_mbps``; it follows upward
  at once and downward only by more than ``dead_band``.
- A LIMITED transfer that sent at least ``busy_above`` of its rate, without a backlog, may want more: for the next slot
  the cap is ``step`` times what it sent. So it grows from slot to slot while it uses what it gets, and falls back if
  it does not.

Why this can't oscillate: a steady offer D makes the cap headroom D > D, and D < busy_above headroom D, so a LIMITED
flow with a steady offer (or one whose noise stays below busy_above headroom - 1) stays LIMITED, and its cap stays. A
GREEDY flow with a share below D / idle_below stays GREEDY. Both hold whatever the others do; and a cap above a
flow's fair share has no effect on the allocation. What is lost is (headroom - 1) D per limited flow: reserved, but
not sent. More noise costs the others (step - 1) D for a slot, never a fair share.

Acknowledgements are why offers are told apart. Their rate follows that of the data, with up to twice as many for a
moment after each loss: taken for a sign of greed, this halved the rate of the data again and again.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from .errors import HyroadsError


class DemandError(HyroadsError):
    """A measurement or a setting of the demand estimator is out of range."""


@dataclass(frozen=True, slots=True)
class DemandSettings:
    """See the module. The bounds that its argument needs are checked."""

    idle_below: float = 0.85
    busy_above: float = 0.97
    headroom: float = 1.15
    step: float = 2.0
    patience_s: float = 0.5
    window_s: float = 1.0
    floor_mbps: float = 0.1
    dead_band: float = 0.1

    def __post_init__(self) -> None:
        if not 0 < self.idle_below < self.busy_above <= 1:
            raise DemandError("expected 0 < idle_below < busy_above <= 1")
        if not self.headroom * self.busy_above > 1.0:
            raise DemandError("headroom times busy_above must exceed 1, or a steady flow would wake again and again")
        if not (math.isfinite(self.step) and self.step * self.busy_above > 1.0):
            raise DemandError("a step times busy_above must exceed 1, or a flow that hides demand would never grow")
        if not (self.patience_s > 0 and self.window_s > 0 and self.floor_mbps > 0 and 0 <= self.dead_band < 1):
            raise DemandError("times and the floor must be positive, the dead band from 0 to 1")


@dataclass(frozen=True, slots=True)
class Offer:
    """What a flow did in the last slot: ``sent_mbps`` at the edge, the rate allowed, and whether packets wait.

    ``offered_mbps`` is what it sent, has waiting and lost, in Mb/s, if that is all it wants; None: nobody knows.
    """

    sent_mbps: float
    allowed_mbps: float
    backlogged: bool = False
    offered_mbps: float | None = None

    def __post_init__(self) -> None:
        rates = (self.sent_mbps, self.offered_mbps or 0.0)
        if not (all(math.isfinite(rate) and rate >= 0 for rate in rates) and self.allowed_mbps >= 0):
            raise DemandError("rates of a flow must be numbers of 0 or more")

    @property
    def is_open(self) -> bool:
        """It wants more than it sent, and nobody knows how much."""
        return self.backlogged and self.offered_mbps is None


FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Offers(Mapping[str, Offer]):
    """Offers of many flows in the same slot, as arrays in the order of ``flows``; ``offered_mbps`` is nan where nobody
    knows.
    """

    flows: tuple[str, ...]
    sent_mbps: FloatArray
    allowed_mbps: FloatArray
    backlogged: BoolArray
    offered_mbps: FloatArray

    def __post_init__(self) -> None:
        rates = (self.sent_mbps, np.where(np.isnan(self.offered_mbps), 0.0, self.offered_mbps))
        if not (
            all(np.isfinite(each).all() and (each >= 0).all() for each in rates) and (self.allowed_mbps >= 0).all()
        ):
            raise DemandError("rates of a flow must be numbers of 0 or more")

    @classmethod
    def of(cls, offers: Mapping[str, Offer]) -> Offers:
        """These offers, as arrays."""
        if isinstance(offers, Offers):
            return offers
        rows = [
            (
                each.sent_mbps,
                each.allowed_mbps,
                each.backlogged,
                math.nan if each.offered_mbps is None else each.offered_mbps,
            )
            for each in offers.values()
        ]
        sent, allowed, backlogged, offered = np.array(rows, dtype=float).reshape(len(rows), 4).T
        return cls(tuple(offers), sent, allowed, backlogged > 0, offered)

    @cached_property
    def _row_of(self) -> dict[str, int]:
        return {flow: row for row, flow in enumerate(self.flows)}

    def __getitem__(self, flow: str) -> Offer:
        row = self._row_of[flow]
        offered = float(self.offered_mbps[row])
        values = float(self.sent_mbps[row]), float(self.allowed_mbps[row]), bool(self.backlogged[row])
        return Offer(*values, None if math.isnan(offered) else offered)

    def __iter__(self) -> Iterator[str]:
        return iter(self.flows)

    def __len__(self) -> int:
        return len(self.flows)

    def without(self, flows: Collection[str]) -> Offers:
        """All but those of some flows."""
        if not flows:
            return self
        rows = np.array([row for row, flow in enumerate(self.flows) if flow not in flows], dtype=np.intp)
        if len(rows) == len(self.flows):
            return self
        sent, allowed, offered = (each[rows] for each in (self.sent_mbps, self.allowed_mbps, self.offered_mbps))
        return Offers(tuple(self.flows[row] for row in rows.tolist()), sent, allowed, self.backlogged[rows], offered)


@dataclass(frozen=True, eq=False, slots=True)
class _Slot:
    """What flows sent and wanted in a slot, where ``known``."""

    end_s: float
    sent_mbps: FloatArray
    wanted_mbps: FloatArray
    known: BoolArray

    def of(self, rows: NDArray[np.intp]) -> _Slot:
        """Of these flows; -1: one of which nothing is known."""
        known = self.known[rows] & (rows >= 0) if len(self.known) else np.zeros(len(rows), dtype=bool)
        sent, wanted = (_at(values, rows, 0.0) for values in (self.sent_mbps, self.wanted_mbps))
        return _Slot(self.end_s, sent, wanted, known)


@dataclass(frozen=True, slots=True)
class FlowDemand:
    """State of a flow: ``cap_mbps`` (inf: GREEDY), and since when it could have been limited."""

    cap_mbps: float
    idle_since_s: float | None

    @property
    def is_limited(self) -> bool:
        """LIMITED, with a cap."""
        return math.isfinite(self.cap_mbps)


_NONE = np.zeros(0)


@dataclass(frozen=True, eq=False)
class Demands:
    """Demands of all flows, as arrays in the order of ``ids``; immutable: :meth:`after` gives the next slot's. A new
    flow is GREEDY: a fair start.
    """

    settings: DemandSettings = field(default_factory=DemandSettings)
    ids: tuple[str, ...] = ()
    cap_mbps: FloatArray = field(default_factory=lambda: _NONE)
    idle_since_s: FloatArray = field(default_factory=lambda: _NONE)
    """Since when each could have been limited; nan: it could not."""
    recent: tuple[_Slot, ...] = ()
    """Slots within the window, oldest first."""

    @cached_property
    def _row_of(self) -> dict[str, int]:
        return {flow: row for row, flow in enumerate(self.ids)}

    @property
    def flows(self) -> Mapping[str, FlowDemand]:
        """By flow."""
        idle = (None if math.isnan(since_s) else since_s for since_s in self.idle_since_s.tolist())
        states = zip(self.cap_mbps.tolist(), idle, strict=True)
        return {flow: FlowDemand(*state) for flow, state in zip(self.ids, states, strict=True)}

    def after(self, offers: Mapping[str, Offer], now_s: float) -> Demands:
        """With measurements of a slot that ended at ``now_s``; flows that are not among them are forgotten.

        A flow of which nothing is known this time is kept by passing on its old state with :meth:`carried`.
        """
        return self._arranged(tuple(offers))._next(Offers.of(offers), now_s)

    def carried(self, offers: Mapping[str, Offer], now_s: float, present: Collection[str]) -> Demands:
        """As :meth:`after`, but flows in ``present`` without a measurement keep their state."""
        ids = present if isinstance(present, tuple) else tuple(present)
        told = Offers.of(offers)
        if told.flows != ids:
            named = set(ids)
            ids = (*ids, *(flow for flow in told.flows if flow not in named))
        return self._arranged(ids)._next(told, now_s)

    def demand_mbps(self, flow: str) -> float:
        """The ``demand`` of a flow in the rate problem."""
        row = self._row_of.get(flow)
        return math.inf if row is None else float(self.cap_mbps[row])

    def demands_mbps(self, flows: tuple[str, ...]) -> FloatArray:
        """The same of many flows, in their order."""
        return self._arranged(flows).cap_mbps.copy()

    def _arranged(self, ids: tuple[str, ...]) -> Demands:
        """For these flows, in this order; a new one is greedy."""
        if ids == self.ids:
            return self
        known = self._row_of
        rows = np.array([known.get(flow, -1) for flow in ids], dtype=np.intp)
        cap, idle = _at(self.cap_mbps, rows, math.inf), _at(self.idle_since_s, rows, math.nan)
        return Demands(self.settings, ids, cap, idle, tuple(slot.of(rows) for slot in self.recent))

    def _next(self, offers: Offers, now_s: float) -> Demands:
        """With the offers of some of the flows."""
        settings = self.settings
        recent = tuple(slot for slot in self.recent if slot.end_s > now_s - settings.window_s)
        if offers.flows == self.ids:
            rows, mine = np.arange(len(self.ids)), recent
        else:
            known = self._row_of
            rows = np.array([known[flow] for flow in offers.flows], dtype=np.intp)
            mine = tuple(slot.of(rows) for slot in recent)
        wanted = _wanted(mine, offers, now_s - settings.patience_s)
        most = wanted.copy()
        for slot in mine:
            np.maximum(most, slot.wanted_mbps, out=most, where=slot.known)
        cap, idle = self._caps(self.cap_mbps[rows], self.idle_since_s[rows], offers, wanted, most, now_s)
        caps, idles = self.cap_mbps.copy(), self.idle_since_s.copy()
        caps[rows], idles[rows] = cap, idle
        sent, spread, there = (
            _spread(each, rows, len(caps)) for each in (offers.sent_mbps, wanted, np.ones(len(rows)))
        )
        slot = _Slot(now_s, sent, spread, there > 0)
        found = Demands(settings, self.ids, caps, idles, (*recent, slot) if len(rows) else recent)
        if "_row_of" in self.__dict__:
            # Of the same flows: to work it out again takes as long as there are flows.
            found.__dict__["_row_of"] = self._row_of
        return found

    def _caps(  # noqa: PLR0917 - arrays of one length
        self,
        cap: FloatArray,
        idle_since_s: FloatArray,
        offers: Offers,
        wanted: FloatArray,
        most: FloatArray,
        now_s: float,
    ) -> tuple[FloatArray, FloatArray]:
        """The next caps, and since when flows could have been limited."""
        settings, sent, allowed = self.settings, offers.sent_mbps, offers.allowed_mbps
        is_unknown = np.isnan(offers.offered_mbps)
        limit = np.maximum(settings.floor_mbps, settings.headroom * most)
        is_limited = np.isfinite(cap)
        grows = is_limited & is_unknown & (sent >= settings.busy_above * allowed)
        limit = np.where(grows, np.maximum(limit, settings.step * sent), limit)
        # Up at once, down only beyond the dead band.
        moves = (limit > cap) | (limit < (1.0 - settings.dead_band) * cap)
        limited_cap = np.where(moves, limit, cap)
        is_busy = np.maximum(wanted, sent) >= settings.idle_below * allowed
        since_s = np.where(np.isnan(idle_since_s), now_s, idle_since_s)
        greedy_cap = np.where(is_busy | (now_s - since_s < settings.patience_s), math.inf, limit)
        # At a rate of 0 nothing can be sent: that is no sign of little demand.
        is_open = (allowed <= 0) | (offers.backlogged & is_unknown)
        next_cap = np.where(is_open, math.inf, np.where(is_limited, limited_cap, greedy_cap))
        next_idle = np.where(is_limited, idle_since_s, np.where(is_busy, math.nan, since_s))
        return next_cap, np.where(is_open, math.nan, next_idle)


def _at(values: FloatArray, rows: NDArray[np.intp], otherwise: float) -> FloatArray:
    """Values in other rows; ``otherwise`` where a row is -1."""
    return np.where(rows >= 0, values[rows], otherwise) if len(values) else np.full(len(rows), otherwise)


def _spread(values: FloatArray, rows: NDArray[np.intp], count: int) -> FloatArray:
    """Values in their rows of so many, 0 in the others."""
    found = np.zeros(count)
    found[rows] = values
    return found


def _wanted(recent: Sequence[_Slot], offers: Offers, since_s: float) -> FloatArray:
    """What flows want, as far as that is known: see the module."""
    offered, sent = offers.offered_mbps, offers.sent_mbps
    is_unknown = np.isnan(offered)
    if is_unknown.all():
        return sent
    total, count = sent.copy(), np.ones(len(sent))
    for slot in recent:
        if slot.end_s > since_s:
            np.add(total, slot.sent_mbps, out=total, where=slot.known)
            count += slot.known
    known = np.where(offers.backlogged, np.maximum(offered, sent), total / count)
    return np.where(is_unknown, sent, known)

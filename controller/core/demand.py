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
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

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


class _Slot(NamedTuple):
    end_s: float
    sent_mbps: float
    wanted_mbps: float


@dataclass(frozen=True, slots=True)
class FlowDemand:
    """State of a flow: ``cap_mbps`` (inf: GREEDY), since when it could have been limited, what it did lately."""

    cap_mbps: float
    idle_since_s: float | None
    recent: tuple[_Slot, ...]
    """Those within the window, oldest first."""

    @property
    def is_limited(self) -> bool:
        """LIMITED, with a cap."""
        return math.isfinite(self.cap_mbps)


NEW_FLOW = FlowDemand(math.inf, None, ())


@dataclass(frozen=True)
class Demands:
    """Demands of all flows; immutable: :meth:`after` gives the next slot's. A new flow is GREEDY: a fair start."""

    settings: DemandSettings = field(default_factory=DemandSettings)
    flows: Mapping[str, FlowDemand] = field(default_factory=dict)

    def after(self, offers: Mapping[str, Offer], now_s: float) -> Demands:
        """With measurements of a slot that ended at ``now_s``; flows that are not among them are forgotten.

        A flow of which nothing is known this time is kept by passing on its old state with :meth:`carried`.
        """
        flows = {
            flow: _next(self.flows.get(flow, NEW_FLOW), offer, now_s, self.settings) for flow, offer in offers.items()
        }
        return Demands(self.settings, flows)

    def carried(self, offers: Mapping[str, Offer], now_s: float, present: frozenset[str]) -> Demands:
        """As :meth:`after`, but flows in ``present`` without a measurement keep their state."""
        after = self.after(offers, now_s)
        silent = {flow: state for flow, state in self.flows.items() if flow in present and flow not in offers}
        return Demands(self.settings, {**silent, **after.flows})

    def demand_mbps(self, flow: str) -> float:
        """The ``demand`` of a flow in the rate problem."""
        return self.flows.get(flow, NEW_FLOW).cap_mbps


def _next(state: FlowDemand, offer: Offer, now_s: float, settings: DemandSettings) -> FlowDemand:
    wanted_mbps = _wanted(state.recent, offer, now_s - settings.patience_s)
    recent = (*_later(state.recent, now_s - settings.window_s), _Slot(now_s, offer.sent_mbps, wanted_mbps))
    # At a rate of 0 nothing can be sent: that is no sign of little demand.
    if offer.allowed_mbps <= 0 or offer.is_open:
        return FlowDemand(math.inf, None, recent)
    cap_mbps = max(settings.floor_mbps, settings.headroom * max(slot.wanted_mbps for slot in recent))
    if state.is_limited:
        if offer.offered_mbps is None and offer.sent_mbps >= settings.busy_above * offer.allowed_mbps:
            cap_mbps = max(cap_mbps, settings.step * offer.sent_mbps)
        # Up at once, down only beyond the dead band.
        moves = cap_mbps > state.cap_mbps or cap_mbps < (1.0 - settings.dead_band) * state.cap_mbps
        return replace(state, cap_mbps=cap_mbps if moves else state.cap_mbps, recent=recent)
    if max(wanted_mbps, offer.sent_mbps) >= settings.idle_below * offer.allowed_mbps:
        return FlowDemand(math.inf, None, recent)
    since_s = now_s if state.idle_since_s is None else state.idle_since_s
    is_patient = now_s - since_s < settings.patience_s
    return FlowDemand(math.inf if is_patient else cap_mbps, since_s, recent)


def _wanted(recent: tuple[_Slot, ...], offer: Offer, since_s: float) -> float:
    """What a flow wants, as far as that is known: see the module."""
    if offer.offered_mbps is None:
        return offer.sent_mbps
    if offer.backlogged:
        return max(offer.offered_mbps, offer.sent_mbps)
    sent = [offer.sent_mbps, *(slot.sent_mbps for slot in _later(recent, since_s))]
    return sum(sent) / len(sent)


def _later(recent: tuple[_Slot, ...], time_s: float) -> tuple[_Slot, ...]:
    """The entries after a time, oldest first."""
    for first, slot in enumerate(recent):
        if slot.end_s > time_s:
            return recent[first:] if first else recent
    return ()

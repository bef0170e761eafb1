"""Flows that send less than their share give the rest back, and get it again within one slot when they wake.

A flow is GREEDY (its demand in the rate problem is infinite) or LIMITED (its demand is a cap above what it sends):

- GREEDY -> LIMITED when it sent less than ``idle_below`` of its rate, without a backlog, for ``patience_s``.
- LIMITED -> GREEDY at once when it sends at least ``busy_above`` of its rate, or has a backlog at the edge: the very
  next allocation gives it a fair share. Once woken it has ``patience_s`` to use that.
- The cap is ``headroom`` times the most that it sent within ``window_s``, at least ``floor_mbps``; it follows upward
  at once and downward only by more than ``dead_band``.

Why this can't oscillate: a steady offer D makes the cap headroom D > D, and D < busy_above headroom D, so a LIMITED
flow with a steady offer (or one whose noise stays below busy_above headroom - 1) never wakes, and its cap stays. A
GREEDY flow with a share below D / idle_below stays GREEDY. Both hold whatever the others do; and a cap above a
flow's fair share has no effect on the allocation. What is lost is (headroom - 1) D per limited flow: reserved, but
not sent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from .errors import HyroadsError


class DemandError(HyroadsError):
    """A measurement or a setting of the demand estimator is out of range."""


@dataclass(frozen=True, slots=True)
class DemandSettings:
    """See the module. The bounds that its argument needs are checked."""

    idle_below: float = 0.85
    busy_above: float = 0.97
    headroom: float = 1.15
    patience_s: float = 0.5
    window_s: float = 1.0
    floor_mbps: float = 0.1
    dead_band: float = 0.1

    def __post_init__(self) -> None:
        if not 0 < self.idle_below < self.busy_above <= 1:
            raise DemandError("expected 0 < idle_below < busy_above <= 1")
        if not self.headroom * self.busy_above > 1.0:
            raise DemandError("headroom times busy_above must exceed 1, or a steady flow would wake again and again")
        if not (self.patience_s > 0 and self.window_s > 0 and self.floor_mbps > 0 and 0 <= self.dead_band < 1):
            raise DemandError("times and the floor must be positive, the dead band from 0 to 1")


@dataclass(frozen=True, slots=True)
class Offer:
    """What a flow did in the last slot: ``sent_mbps`` at the edge, the rate allowed, and whether packets wait."""

    sent_mbps: float
    allowed_mbps: float
    backlogged: bool = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.sent_mbps) and self.sent_mbps >= 0 and self.allowed_mbps >= 0):
            raise DemandError("rates of a flow must be numbers of 0 or more")


@dataclass(frozen=True, slots=True)
class FlowDemand:
    """State of a flow: ``cap_mbps`` (inf: GREEDY), since when it could have been limited, what it sent lately."""

    cap_mbps: float
    idle_since_s: float | None
    sent: tuple[tuple[float, float], ...]

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
    sent = (*_later(state.sent, now_s - settings.window_s), (now_s, offer.sent_mbps))
    # At a rate of 0 nothing can be sent: that is no sign of little demand.
    blocked = offer.allowed_mbps <= 0
    if blocked or offer.backlogged or offer.sent_mbps >= settings.busy_above * offer.allowed_mbps:
        return FlowDemand(math.inf, None, sent)
    if state.is_limited:
        cap, old = _cap(sent, settings), state.cap_mbps
        # Up at once, down only beyond the dead band.
        moves = cap > old or cap < (1.0 - settings.dead_band) * old
        return replace(state, cap_mbps=cap if moves else old, sent=sent)
    if offer.sent_mbps >= settings.idle_below * offer.allowed_mbps:
        return FlowDemand(math.inf, None, sent)
    since_s = now_s if state.idle_since_s is None else state.idle_since_s
    if now_s - since_s < settings.patience_s:
        return FlowDemand(math.inf, since_s, sent)
    return FlowDemand(_cap(sent, settings), since_s, sent)


def _later(sent: tuple[tuple[float, float], ...], time_s: float) -> tuple[tuple[float, float], ...]:
    """The entries after a time, oldest first."""
    for first, (at_s, _) in enumerate(sent):
        if at_s > time_s:
            return sent[first:] if first else sent
    return ()


def _cap(sent: tuple[tuple[float, float], ...], settings: DemandSettings) -> float:
    return max(settings.floor_mbps, settings.headroom * max(rate for _, rate in sent))

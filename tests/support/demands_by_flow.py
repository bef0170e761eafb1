"""Demands flow by flow, as the module ``core.demand`` describes them: what its arrays are compared with."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from hyroads.controller.core.demand import DemandSettings, Offer


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
class DemandsByFlow:
    """Demands of all flows; immutable: :meth:`after` gives the next slot's. A new flow is GREEDY: a fair start."""

    settings: DemandSettings = field(default_factory=DemandSettings)
    flows: Mapping[str, FlowDemand] = field(default_factory=dict)

    def after(self, offers: Mapping[str, Offer], now_s: float) -> DemandsByFlow:
        """With measurements of a slot that ended at ``now_s``; flows that are not among them are forgotten.

        A flow of which nothing is known this time is kept by passing on its old state with :meth:`carried`.
        """
        flows = {
            flow: _next(self.flows.get(flow, NEW_FLOW), offer, now_s, self.settings) for flow, offer in offers.items()
        }
        return DemandsByFlow(self.settings, flows)

    def carried(self, offers: Mapping[str, Offer], now_s: float, present: frozenset[str]) -> DemandsByFlow:
        """As :meth:`after`, but flows in ``present`` without a measurement keep their state."""
        after = self.after(offers, now_s)
        silent = {flow: state for flow, state in self.flows.items() if flow in present and flow not in offers}
        return DemandsByFlow(self.settings, {**silent, **after.flows})

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

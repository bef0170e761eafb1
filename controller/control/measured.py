"""Agents' reports as the loop wants them: what paths carried and what flows offered in the last slot. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hyroads.controller.core.demand import Offer
from hyroads.controller.core.network import Policy
from hyroads.controller.numbering import PathName
from hyroads.controller.plan import MULTIPATH, FlowPlan, Plan
from hyroads.controller.reports import ReportBook, Side

# Older reports say nothing of now.
MAX_AGE_S = 1.0
# A queue counts as a backlog from so many frames on, and if it takes so long to send: less is the burst of a pacer.
BACKLOG_FRAMES = 4
BACKLOG_S = 0.01
_FRAME_MBIT = 1500 * 8e-6


@dataclass(frozen=True)
class AgentRates:
    """By (flow, path) what arrived (or was sent, if the receiver says nothing), in Mb/s; by flow what it offered."""

    path_mbps: Mapping[tuple[str, PathName], float] = field(default_factory=dict)
    offers: Mapping[str, Offer] = field(default_factory=dict)
    frame_bytes: Mapping[str, float] = field(default_factory=dict)
    """Mean L2 payload of the frames of latency flows that sent."""


NO_RATES = AgentRates()


def measured(book: ReportBook, plan: Plan) -> AgentRates:
    """What the latest reports say of the multipath flows of a plan; flows without fresh reports are left out."""
    path_mbps: dict[tuple[str, PathName], float] = {}
    offers: dict[str, Offer] = {}
    frame_bytes: dict[str, float] = {}
    for flow, planned in plan.flows.items():
        if planned.mode != MULTIPATH or planned.ingress is None or planned.egress is None:
            continue
        sending = book.side(planned.ingress, "ingress", planned.number, MAX_AGE_S)
        receiving = book.side(planned.egress, "egress", planned.number, MAX_AGE_S)
        path_mbps |= _path_rates(flow, planned, sending, receiving)
        offer = _offer(sending, copies=planned.copies)
        if offer is not None:
            offers[flow] = offer
        if planned.spec.policy is Policy.LATENCY and (frame := _frame_bytes(sending)) is not None:
            frame_bytes[flow] = frame
    return AgentRates(path_mbps, offers, frame_bytes)


def _frame_bytes(sending: Side) -> float | None:
    """Bytes over frames since the report before; None if none was sent."""
    grown = [(path.grown("sent_bytes"), path.grown("sent_frames")) for path in sending.paths()]
    frames = sum(count or 0 for _, count in grown)
    return sum(size or 0 for size, _ in grown) / frames if frames else None


def _path_rates(flow: str, plan: FlowPlan, sending: Side, receiving: Side) -> dict[tuple[str, PathName], float]:
    rates = {}
    for path in plan.paths:
        rate = receiving.path(path.id).mbps("received_bytes")
        if rate is None:
            rate = sending.path(path.id).mbps("sent_bytes")
        if rate is not None:
            rates[flow, path.links] = rate
    return rates


def _offer(sending: Side, *, copies: bool) -> Offer | None:
    """What a flow offered; with copies each path sends all of it."""
    together = max if copies else sum
    sent = [rate for path in sending.paths() if (rate := path.mbps("sent_bytes")) is not None]
    if not sent or sending.entry is None or sending.before is None:
        return None
    sent_mbps = float(together(sent))
    # Rates that changed in between: what was allowed all the time counts.
    allowed = [
        float(together([path["rate_mbps"] or 0.0 for path in entry["paths"]] or [0.0]))
        for entry in (sending.before, sending.entry)
    ]
    return Offer(sent_mbps, min(allowed), _has_backlog(sending, allowed[1]))


def _has_backlog(sending: Side, allowed_mbps: float) -> bool:
    if sending.entry is None or sending.before is None:
        return False
    queued = sending.entry["queued"] or 0
    waits = queued >= BACKLOG_FRAMES and queued * _FRAME_MBIT > BACKLOG_S * allowed_mbps
    return waits or (sending.entry["dropped"] or 0) > (sending.before["dropped"] or 0)

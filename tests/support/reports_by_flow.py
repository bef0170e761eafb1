"""What agents' reports say, flow by flow and entry by entry: what the columns of reports are compared with."""

from __future__ import annotations

from hyroads.controller.control.report_columns import BACKLOG_FRAMES, BACKLOG_S, FULL_FRAME_BYTES, SMALL_FRAME_BYTES
from hyroads.controller.control.reports import MAX_AGE_S, AgentRates, ReportRegistry, Side
from hyroads.controller.core.addressing import PathName
from hyroads.controller.core.demand import Offer
from hyroads.controller.core.network import Policy
from hyroads.controller.model.plan import MULTIPATH, FlowPlan, Plan


def measured(reports: ReportRegistry, plan: Plan) -> AgentRates:
    """What the latest reports say of the multipath flows of a plan; flows without fresh reports are left out."""
    path_mbps: dict[tuple[str, PathName], float] = {}
    offers: dict[str, Offer] = {}
    frame_bytes: dict[str, float] = {}
    for flow, planned in plan.flows.items():
        if planned.mode != MULTIPATH or planned.ingress is None or planned.egress is None:
            continue
        sending = reports.side(planned.ingress, "ingress", planned.number, MAX_AGE_S)
        receiving = reports.side(planned.egress, "egress", planned.number, MAX_AGE_S)
        path_mbps |= _path_rates(flow, planned, sending, receiving)
        offer = offer_of(sending, copies=planned.copies)
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


def offer_of(sending: Side, *, copies: bool = False) -> Offer | None:
    """What a flow offered, from two reports of its ingress; None if they don't say. With copies each path sends all."""
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
    queued, frame_bytes = _waiting(sending)
    waits = queued >= BACKLOG_FRAMES and queued * frame_bytes * 8e-6 > BACKLOG_S * allowed[1]
    dropped = max(0.0, (sending.entry["dropped"] or 0.0) - (sending.before["dropped"] or 0.0))
    offered_mbps = None
    if frame_bytes < SMALL_FRAME_BYTES:
        offered_mbps = sent_mbps + (queued + dropped) * frame_bytes * 8e-6 / sending.elapsed_s
    return Offer(sent_mbps, min(allowed), waits or dropped > 0, offered_mbps)


def _waiting(sending: Side) -> tuple[float, float]:
    """How many frames wait, and their mean size in bytes; if none do, that of those sent since the report before."""
    entry = sending.entry or {}
    queued, queued_bytes = entry.get("queued") or 0.0, entry.get("queued_bytes")
    if queued <= 0:
        return 0.0, _frame_bytes(sending) or FULL_FRAME_BYTES
    # Older agents don't say.
    return queued, FULL_FRAME_BYTES if queued_bytes is None else queued_bytes / queued

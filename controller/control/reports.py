"""The latest reports of the agents, joined by flow and path, with rates over the time between two reports. No I/O.

:func:`measured` says what the loop wants to know of them: what paths carried and what flows offered in the last slot.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from hyroads.controller.agents.protocol import MAX_REPORTED
from hyroads.controller.core.addressing import PathName
from hyroads.controller.core.demand import Offer
from hyroads.controller.core.network import Policy
from hyroads.controller.model.plan import MULTIPATH, FlowPlan, Plan

Entry = Mapping[str, Any]
_INGRESS = ("queued", "dropped", "too_big", "sent")
_EGRESS = (
    "delivered_frames", "delivered_bytes", "reordered", "late", "duplicate", "lost", "timed_out", "held", "held_max",
    "hold_mean_ms",
)  # fmt: skip
MIN_INTERVAL_S = 1e-3
_LISTS = ("ingress", "egress", "links")


@dataclass(frozen=True)
class _Reports:
    taken_s: float
    last: Entry
    before: Entry | None
    flows: Mapping[tuple[str, int], Entry]
    """By (side, flow number): the entries of the last report."""
    flows_before: Mapping[tuple[str, int], Entry]

    @property
    def elapsed_s(self) -> float:
        return float(self.last["time_s"] - self.before["time_s"]) if self.before else 0.0


class ReportRegistry:
    """Two reports per agent: the last, and the one before it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._by_node: dict[str, _Reports] = {}
        self._parts: dict[str, Entry] = {}

    def take(self, node: str, report: Entry) -> None:
        """A report, or a part of one, came in.

        A report that follows too closely replaces the last without becoming its successor.
        """
        part = self._parts.pop(node, None)
        if part is not None and part["time_s"] == report["time_s"]:
            report = {**report, **{side: [*part[side], *report[side]] for side in _LISTS}}
        if report["more"] and sum(len(report[side]) for side in _LISTS) < MAX_REPORTED:
            self._parts[node] = report
            return
        old = self._by_node.get(node)
        before: Entry | None = None
        flows_before: Mapping[tuple[str, int], Entry] = {}
        if old is not None:
            elapsed_s = report["time_s"] - old.last["time_s"]
            follows = elapsed_s > MIN_INTERVAL_S
            before, flows_before = (old.last, old.flows) if follows else (old.before, old.flows_before)
        flows = {(side, flow["number"]): flow for side in ("ingress", "egress") for flow in report[side]}
        self._by_node[node] = _Reports(self._clock(), report, before, flows, flows_before)

    def forget(self, node: str) -> None:
        """An agent is gone; its counters start again when it is back."""
        self._by_node.pop(node, None)
        self._parts.pop(node, None)

    def read_s(self, node: str) -> float | None:
        """When the last report of a node's agent was made, on the agent's clock."""
        reports = self._by_node.get(node)
        return None if reports is None else float(reports.last["time_s"])

    def side(self, node: str, side: str, number: int, max_age_s: float = math.inf) -> Side:
        """What the agent of a node said of a flow, as ``ingress`` or ``egress``; empty if that is too old."""
        reports = self._by_node.get(node)
        if reports is None or self._clock() - reports.taken_s > max_age_s:
            return Side(None, None, 0.0)
        key = (side, number)
        return Side(reports.flows.get(key), reports.flows_before.get(key), reports.elapsed_s)

    def latest(self) -> Iterator[tuple[str, float, Entry]]:
        """Of each connected agent that has reported: its node, how old the last report is in seconds, the report."""
        now_s = self._clock()
        for node, reports in tuple(self._by_node.items()):
            yield node, now_s - reports.taken_s, reports.last

    def document(self, plan: Plan | None) -> dict[str, Any]:
        """The answer to ``GET /measurements``."""
        now_s = self._clock()
        flows = (self._flow(flow) for flow in (plan.flows.values() if plan else ()))
        return {
            "time_s": now_s,
            "flows": [flow for flow in flows if flow is not None],
            "links": [
                {"id": link["link"], "node": node, "up": link["up"], "last_heard_ms": link["last_heard_ms"]}
                for node, reports in self._by_node.items()
                for link in reports.last["links"]
            ],
            "agents": [
                {
                    "node": node,
                    "age_s": now_s - reports.taken_s,
                    **{key: reports.last[key] for key in ("revision", "unclassified", "malformed", "cpu_s")},
                    "woken_late": reports.last.get("woken_late"),
                }
                for node, reports in self._by_node.items()
            ],
        }

    def _flow(self, plan: FlowPlan) -> dict[str, Any] | None:
        if plan.mode != MULTIPATH or plan.ingress is None or plan.egress is None:
            return None
        sending = self.side(plan.ingress, "ingress", plan.number)
        receiving = self.side(plan.egress, "egress", plan.number)
        if sending.entry is None and receiving.entry is None:
            return None
        return {
            "id": plan.spec.id,
            "number": plan.number,
            "ingress": plan.ingress,
            "egress": plan.egress,
            "rate_mbps": plan.rate_mbps,
            "sent_mbps": sending.total_mbps("sent_bytes"),
            "delivered_mbps": receiving.mbps("delivered_bytes"),
            **sending.counters(_INGRESS),
            **receiving.counters(_EGRESS),
            "paths": [
                {
                    "id": path.id,
                    "links": list(path.links),
                    "rate_mbps": path.rate_mbps,
                    **sending.path(path.id).counters(("sent_frames", "sent_bytes")),
                    "sent_mbps": sending.path(path.id).mbps("sent_bytes"),
                    **receiving.path(path.id).counters(("received_frames", "received_bytes")),
                    "received_mbps": receiving.path(path.id).mbps("received_bytes"),
                    **receiving.path(path.id).counters(("delay_ms", "last_heard_ms")),
                }
                for path in plan.paths
            ],
        }


@dataclass(frozen=True)
class Side:
    """A flow's (or path's) counters at one agent, and the same ones of the report before."""

    entry: Entry | None
    before: Entry | None
    elapsed_s: float

    def path(self, path_id: int) -> Side:
        """The same of one path."""
        both = (entry["paths"] if entry else () for entry in (self.entry, self.before))
        now, then = (next((path for path in paths if path["id"] == path_id), None) for paths in both)
        return Side(now, then, self.elapsed_s)

    def counters(self, names: tuple[str, ...]) -> dict[str, Any]:
        """Counters by name; None where nothing was reported."""
        return {name: self.entry.get(name) if self.entry else None for name in names}

    def paths(self) -> list[Side]:
        """The same of all paths."""
        return [self.path(path["id"]) for path in (self.entry["paths"] if self.entry else ())]

    def grown(self, counter: str) -> float | None:
        """Growth of a counter between the two reports."""
        if not self.entry or not self.before or self.elapsed_s <= 0:
            return None
        now, then = self.entry.get(counter), self.before.get(counter)
        return None if now is None or then is None or now < then else float(now - then)

    def mbps(self, counter: str) -> float | None:
        """Rate of a byte counter between the two reports."""
        grown = self.grown(counter)
        return None if grown is None else grown * 8e-6 / self.elapsed_s

    def total_mbps(self, counter: str) -> float | None:
        """The sum of :meth:`mbps` over the paths that have one."""
        rates = [path.mbps(counter) for path in self.paths()]
        known = [rate for rate in rates if rate is not None]
        return sum(known) if known else None


# Older reports say nothing of now.
MAX_AGE_S = 1.0
# A queue counts as a backlog from so many frames on, and if it takes so long to send: less is the burst of a pacer.
BACKLOG_FRAMES = 4
BACKLOG_S = 0.01
_FULL_FRAME_BYTES = 1500.0
# Transfers are made of full frames. Smaller ones are acknowledgements (54 to 150 bytes), speech, requests.
SMALL_FRAME_BYTES = 256.0


@dataclass(frozen=True)
class AgentRates:
    """By (flow, path) what arrived (or was sent, if the receiver says nothing), in Mb/s; by flow what it offered."""

    path_mbps: Mapping[tuple[str, PathName], float] = field(default_factory=dict)
    offers: Mapping[str, Offer] = field(default_factory=dict)
    frame_bytes: Mapping[str, float] = field(default_factory=dict)
    """Mean L2 payload of the frames of latency flows that sent."""


NO_RATES = AgentRates()


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
        return 0.0, _frame_bytes(sending) or _FULL_FRAME_BYTES
    # Older agents don't say.
    return queued, _FULL_FRAME_BYTES if queued_bytes is None else queued_bytes / queued

"""The latest reports of the agents, joined by flow and path, with rates over the time between two reports. No I/O.

:meth:`ReportRegistry.measured` says what the loop wants to know of them: what paths carried and what flows offered in
the last slot.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from hyroads.controller.agents.changes import DecodedReports
from hyroads.controller.agents.protocol import MAX_REPORTED
from hyroads.controller.core.addressing import PathName
from hyroads.controller.core.demand import Offer
from hyroads.controller.model.plan import MULTIPATH, FlowPlan, Plan

from .report_columns import FlowRows, PathRates, ReportColumns

Entry = Mapping[str, Any]
_INGRESS = ("queued", "dropped", "too_big", "sent")
_EGRESS = (
    "delivered_frames", "delivered_bytes", "reordered", "late", "duplicate", "lost", "timed_out", "held", "held_max",
    "hold_mean_ms",
)  # fmt: skip
MIN_INTERVAL_S = 1e-3
_LISTS = ("ingress", "egress", "links")


class _Reports:
    """The last two reports of an agent. Those that the library has decoded are made when somebody asks for them: of
    most nobody does.
    """

    __slots__ = ("_before", "_flows", "_flows_before", "_last", "before_s", "taken_s", "time_s")

    def __init__(self) -> None:
        self._last: Entry | tuple[DecodedReports, int] | None = None
        self._before: Entry | tuple[DecodedReports, int] | None = None
        self.taken_s = self.time_s = 0.0
        self.before_s: float | None = None
        self._flows: Mapping[tuple[str, int], Entry] | None = None
        self._flows_before: Mapping[tuple[str, int], Entry] | None = None

    def take(self, report: Entry | tuple[DecodedReports, int], time_s: float, taken_s: float) -> bool:
        """A report came; whether it follows the last one, and does not replace it."""
        follows = self._last is not None and time_s - self.time_s > MIN_INTERVAL_S
        if follows:
            self._before, self.before_s = self._last, self.time_s
        self._last, self.time_s, self.taken_s = report, time_s, taken_s
        self._flows = self._flows_before = None
        return follows

    @property
    def last(self) -> Entry:
        """The last one; there is one."""
        if type(self._last) is tuple:
            self._last = self._last[0].report(self._last[1])
        return self._last  # type: ignore[return-value]

    @property
    def before(self) -> Entry | None:
        """The one before it."""
        if type(self._before) is tuple:
            self._before = self._before[0].report(self._before[1])
        return self._before  # type: ignore[return-value]

    @property
    def flows(self) -> Mapping[tuple[str, int], Entry]:
        """By (side, flow number): the entries of the last report."""
        if self._flows is None:
            self._flows = _by_flow(self.last)
        return self._flows

    @property
    def flows_before(self) -> Mapping[tuple[str, int], Entry]:
        """The same of the report before it."""
        if self._flows_before is None:
            self._flows_before = {} if self.before is None else _by_flow(self.before)
        return self._flows_before

    @property
    def elapsed_s(self) -> float:
        """Time between the two, on the agent's clock."""
        return 0.0 if self.before_s is None else self.time_s - self.before_s


class ReportRegistry:
    """Two reports per agent: the last, and the one before it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._by_node: dict[str, _Reports] = {}
        self._parts: dict[str, Entry] = {}
        self._columns = ReportColumns()
        self._rows: tuple[object, int, FlowRows] | None = None

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
        known, time_s, taken_s = self._of(node), float(report["time_s"]), self._clock()
        follows = known.take(report, time_s, taken_s)
        self._columns.take(node, report, known.before, taken_s, follows=follows)

    def take_decoded(self, reports: DecodedReports) -> None:
        """Reports of several agents came in, each whole."""
        taken_s, known = self._clock(), [self._of(node) for node in reports.nodes]
        if self._parts:
            for node in reports.nodes:
                self._parts.pop(node, None)
        follows = [
            each.take((reports, i), time_s, taken_s)
            for i, (each, time_s) in enumerate(zip(known, reports.times_s.tolist(), strict=True))
        ]
        befores = [each.before_s for each in known]
        self._columns.take_decoded(reports, befores, lambda i: known[i].before, taken_s, follows)

    def _of(self, node: str) -> _Reports:
        found = self._by_node.get(node)
        if found is None:
            found = self._by_node[node] = _Reports()
        return found

    def forget(self, node: str) -> None:
        """An agent is gone; its counters start again when it is back."""
        self._by_node.pop(node, None)
        self._parts.pop(node, None)
        self._columns.forget(node)

    def read_s(self, node: str) -> float | None:
        """When the last report of a node's agent was made, on the agent's clock."""
        reports = self._by_node.get(node)
        return None if reports is None else reports.time_s

    def side(self, node: str, side: str, number: int, max_age_s: float = math.inf) -> Side:
        """What the agent of a node said of a flow, as ``ingress`` or ``egress``; empty if that is too old."""
        reports = self._by_node.get(node)
        if reports is None or self._clock() - reports.taken_s > max_age_s:
            return Side(None, None, 0.0)
        key = (side, number)
        return Side(reports.flows.get(key), reports.flows_before.get(key), reports.elapsed_s)

    def measured(self, plan: Plan) -> AgentRates:
        """What the latest reports say of the multipath flows of a plan; flows without fresh reports are left out."""
        columns, now_s = self._columns, self._clock()
        if self._rows is None or self._rows[0] is not plan.structure or self._rows[1] != columns.version:
            last = None if self._rows is None else self._rows[2]
            self._rows = plan.structure, columns.version, FlowRows.of(plan, columns, last)
        rows = self._rows[2]
        offered = columns.offers(now_s, MAX_AGE_S)
        path_mbps = rows.path_mbps(offered.recent_mbps)
        return AgentRates(
            PathRates(rows.names, path_mbps, rows.of_flow), rows.offers(offered), rows.frame_bytes(offered)
        )

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
                    **{key: reports.last.get(key) for key in ("forged", "replayed")},
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


@dataclass(frozen=True)
class AgentRates:
    """By (flow, path) what arrived (or was sent, if the receiver says nothing), in Mb/s; by flow what it offered."""

    path_mbps: Mapping[tuple[str, PathName], float] = field(default_factory=dict)
    offers: Mapping[str, Offer] = field(default_factory=dict)
    frame_bytes: Mapping[str, float] = field(default_factory=dict)
    """Mean L2 payload of the frames of latency flows that sent."""


NO_RATES = AgentRates()


def _by_flow(report: Entry) -> dict[tuple[str, int], Entry]:
    return {(side, flow["number"]): flow for side in ("ingress", "egress") for flow in report[side]}

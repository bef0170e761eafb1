"""The latest reports of the agents, joined by flow and path, with rates over the time between two reports. No I/O.

:meth:`ReportRegistry.measured` says what the loop wants to know of them: what paths carried and what flows offered in
the last slot.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hyroads.controller.agents.changes import DecodedReports
from hyroads.controller.agents.protocol import MAX_REPORTED
from hyroads.controller.core.addressing import PathName
from hyroads.controller.core.demand import Offer
from hyroads.controller.core.path_columns import Totals
from hyroads.controller.model.plan import MULTIPATH, FlowPlan, Plan

from .flow_rows import FlowRows
from .path_rates import PathRates
from .report_columns import ReportColumns

Entry = Mapping[str, Any]
_INGRESS = ("queued", "dropped", "too_big", "sent")
_EGRESS = (
    "delivered_frames", "delivered_bytes", "reordered", "late", "duplicate", "lost", "timed_out", "held", "held_max",
    "hold_mean_ms",
)  # fmt: skip
FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.intp]
MIN_INTERVAL_S = 1e-3
# A report that is older than this does not keep what came together with it.
TOGETHER_S = 2.0
_LISTS = ("ingress", "egress", "links")
MOST_PAUSED = 2
"""So often rows of flows are made while others run, who may bring reports of other flows; then in one go."""


class _Reports:
    """The last two reports of all agents, by number. Those that the library has decoded are made when somebody asks for
    them: of most nobody does.
    """

    def __init__(self) -> None:
        self.time_s, self.taken_s, self.before_s = np.zeros(0), np.zeros(0), np.zeros(0)
        """Of the last one: when it was made, on the agent's clock, and when it came; and when the one before it was
        made, nan if there is none."""
        self.is_there = np.zeros(0, dtype=bool)
        # Each is a report and -1, or decoded reports and which of them it is.
        self._last, self._before = np.zeros(0, dtype=object), np.zeros(0, dtype=object)
        self._last_at, self._before_at = np.zeros(0, dtype=np.intp), np.zeros(0, dtype=np.intp)
        self._by_flow: dict[int, Mapping[tuple[str, int], Entry]] = {}
        self._by_flow_before: dict[int, Mapping[tuple[str, int], Entry]] = {}

    def make_room(self, count: int) -> None:
        """For so many agents."""
        more = max(0, count - len(self.time_s))
        if more:
            for name, column in [*vars(self).items()]:
                if isinstance(column, np.ndarray):
                    setattr(self, name, np.append(column, np.zeros(more + len(column), dtype=column.dtype)))

    def take(self, number: int, report: Entry, time_s: float, taken_s: float) -> bool:
        """A report came; whether it follows the last one, and does not replace it."""
        one = np.array([number])
        follows = self._passed_on(one, np.array([time_s]), taken_s)
        self._last[number], self._last_at[number] = report, -1
        return bool(follows[0])

    def take_decoded(self, numbers: IndexArray, reports: DecodedReports, taken_s: float) -> NDArray[np.bool_]:
        """As :meth:`take`, of several agents."""
        follows = self._passed_on(numbers, reports.times_s, taken_s)
        self._last[numbers], self._last_at[numbers] = reports, np.arange(len(numbers))
        return follows

    def _passed_on(self, numbers: IndexArray, times_s: FloatArray, taken_s: float) -> NDArray[np.bool_]:
        """The last ones of some agents become those before, where others come that follow them."""
        was_there, last_s = self.is_there[numbers], self.time_s[numbers]
        follows = was_there & (times_s - last_s > MIN_INTERVAL_S)
        some = numbers[follows]
        self._before[some], self._before_at[some] = self._last[some], self._last_at[some]
        self.before_s[some] = last_s[follows]
        fresh = numbers[~was_there]
        self._before[fresh], self._before_at[fresh], self.before_s[fresh] = None, -1, np.nan
        self.is_there[numbers], self.time_s[numbers], self.taken_s[numbers] = True, times_s, taken_s
        self._by_flow.clear()
        self._by_flow_before.clear()
        return follows

    def let_go(self, now_s: float) -> None:
        """Have agents that have said nothing for a while keep no more than their own reports."""
        is_old = self.is_there & ((self._last_at >= 0) | (self._before_at >= 0)) & (now_s - self.taken_s > TOGETHER_S)
        for number in np.flatnonzero(is_old).tolist():
            self.last(number), self.before(number)

    def forget(self, number: int) -> None:
        """An agent is gone."""
        self.is_there[number] = False
        self._last[number] = self._before[number] = None
        self._last_at[number] = self._before_at[number] = -1

    def last(self, number: int) -> Entry:
        """The last one of an agent that has one."""
        found: Entry = self._made(self._last, self._last_at, number)
        return found

    def before(self, number: int) -> Entry | None:
        """The one before it."""
        found: Entry | None = self._made(self._before, self._before_at, number)
        return found

    @staticmethod
    def _made(reports: NDArray[np.object_], at: IndexArray, number: int) -> Any:
        if at[number] >= 0:
            reports[number], at[number] = reports[number].report(int(at[number])), -1
        return reports[number]

    def flows(self, number: int) -> Mapping[tuple[str, int], Entry]:
        """By (side, flow number): the entries of the last report."""
        return self._flows_of(self._by_flow, number, self.last(number))

    def flows_before(self, number: int) -> Mapping[tuple[str, int], Entry]:
        """The same of the report before it."""
        before = self.before(number)
        return {} if before is None else self._flows_of(self._by_flow_before, number, before)

    @staticmethod
    def _flows_of(
        known: dict[int, Mapping[tuple[str, int], Entry]], number: int, report: Entry
    ) -> Mapping[tuple[str, int], Entry]:
        if number not in known:
            known[number] = _by_flow(report)
        return known[number]

    def elapsed_s(self, number: int) -> float:
        """Time between the two, on the agent's clock."""
        before_s = self.before_s[number]
        return 0.0 if np.isnan(before_s) else float(self.time_s[number] - before_s)


class ReportRegistry:
    """Two reports per agent: the last, and the one before it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._numbers: dict[str, int] = {}
        """Of the agents that have reported."""
        self._reports = _Reports()
        self._parts: dict[str, Entry] = {}
        self._columns = ReportColumns()
        self._plan: Plan | None = None
        """The one that was measured last."""
        self._rows: FlowRows | None = None
        self._rows_for: tuple[object, int] = (None, -1)

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
        number, taken_s = self._columns.number(node), self._clock()
        self._numbers[node] = number
        self._reports.make_room(number + 1)
        follows = self._reports.take(number, report, float(report["time_s"]), taken_s)
        self._columns.take(node, report, self._reports.before(number), taken_s, follows=follows)

    def take_decoded(self, reports: DecodedReports) -> None:
        """Reports of several agents came in, each whole. What is done for each by itself, is of few."""
        taken_s, numbers = self._clock(), self._columns.numbers(reports.names)
        self._reports.make_room(len(self._columns))
        numbers = numbers[reports.places]
        for i in np.flatnonzero(~self._reports.is_there[numbers]).tolist():
            self._numbers[reports.node(i)] = int(numbers[i])
        if self._parts:
            for node in reports.nodes:
                self._parts.pop(node, None)
        follows = self._reports.take_decoded(numbers, reports, taken_s)
        befores_s, before = self._reports.before_s[numbers], self._reports.before
        self._columns.take_decoded(reports, befores_s, lambda i: before(int(numbers[i])), taken_s, follows)
        self._reports.let_go(taken_s)

    def forget(self, node: str) -> None:
        """An agent is gone; its counters start again when it is back."""
        number = self._numbers.pop(node, None)
        if number is not None:
            self._reports.forget(number)
        self._parts.pop(node, None)
        self._columns.forget(node)

    def side(self, node: str, side: str, number: int, max_age_s: float = math.inf) -> Side:
        """What the agent of a node said of a flow, as ``ingress`` or ``egress``; empty if that is too old."""
        agent, reports = self._recent(node, max_age_s), self._reports
        if agent is None:
            return Side(None, None, 0.0)
        key = (side, number)
        return Side(reports.flows(agent).get(key), reports.flows_before(agent).get(key), reports.elapsed_s(agent))

    def totals(self, max_age_s: float, pause: Callable[[], object] = lambda: None) -> Totals:
        """Counters of the multipath flows of the plan that was measured last, by agents whose reports are no older than
        that; of none before. ``pause`` is as for :meth:`measured`.
        """
        # First of all: these may be of agents that have no number yet.
        rows, reports = FlowRows.nothing() if self._plan is None else self._rows_of(self._plan, pause), self._reports
        is_recent = reports.is_there & (self._clock() - reports.taken_s <= max_age_s)
        missing = np.full(len(self._columns), np.nan)
        return rows.totals(self._columns, np.append(np.where(is_recent, reports.time_s, np.nan), missing))

    def _recent(self, node: str, max_age_s: float) -> int | None:
        """The number of a node's agent; None if it has not reported, or too long ago."""
        agent = self._numbers.get(node)
        is_recent = agent is not None and self._clock() - self._reports.taken_s[agent] <= max_age_s
        return agent if is_recent else None

    def measured(self, plan: Plan, pause: Callable[[], object] = lambda: None) -> AgentRates:
        """What the latest reports say of the multipath flows of a plan; flows without fresh reports are left out.
        ``pause`` lets others run, and is called where this takes long: more reports may come meanwhile.
        """
        self._plan = plan
        rows, offered = self._rows_of(plan, pause), self._columns.offers(self._clock(), MAX_AGE_S)
        path_mbps = rows.path_mbps(offered.recent_mbps)
        arrived = PathRates(rows.paths, rows.arrived_mbps(offered.recent_mbps))
        return AgentRates(PathRates(rows.paths, path_mbps), rows.offers(offered), rows.frame_bytes(offered), arrived)

    def _rows_of(self, plan: Plan, pause: Callable[[], object]) -> FlowRows:
        columns, structure = self._columns, plan.structure
        rows, tries = self._rows or FlowRows.nothing(), MOST_PAUSED
        if self._rows_for != (structure, columns.version):
            version = -1
            while version != columns.version:
                version = columns.version
                rows = FlowRows.of(plan, columns, rows, pause if tries > 0 else lambda: None)
                tries -= 1
            self._rows_for = structure, version
        elif rows.planned is not plan.flows:
            # Of a flow that has other rates since then the rows are the same.
            rows = replace(rows, planned=plan.flows)
        self._rows = rows
        return rows

    def latest(self) -> Iterator[tuple[str, float, Entry]]:
        """Of each connected agent that has reported: its node, how old the last report is in seconds, the report."""
        now_s, reports = self._clock(), self._reports
        for node, number in tuple(self._numbers.items()):
            yield node, now_s - float(reports.taken_s[number]), reports.last(number)

    def document(self, plan: Plan | None) -> dict[str, Any]:
        """The answer to ``GET /measurements``."""
        now_s = self._clock()
        latest = list(self.latest())
        flows = (self._flow(flow) for flow in (plan.flows.values() if plan else ()))
        return {
            "time_s": now_s,
            "flows": [flow for flow in flows if flow is not None],
            "links": [
                {"id": link["link"], "node": node, "up": link["up"], "last_heard_ms": link["last_heard_ms"]}
                for node, _, report in latest
                for link in report["links"]
            ],
            "agents": [
                {
                    "node": node,
                    "age_s": age_s,
                    **{key: report[key] for key in ("revision", "unclassified", "malformed", "cpu_s")},
                    **{key: report.get(key) for key in ("forged", "replayed")},
                    "woken_late": report.get("woken_late"),
                }
                for node, age_s, report in latest
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
    arrived_mbps: Mapping[tuple[str, PathName], float] = field(default_factory=dict)
    """By (flow, path) what arrived, without paths of which the receiver says nothing."""


NO_RATES = AgentRates()


def _by_flow(report: Entry) -> dict[tuple[str, int], Entry]:
    return {(side, flow["number"]): flow for side in ("ingress", "egress") for flow in report[side]}

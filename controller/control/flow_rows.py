"""The multipath flows of a plan, and which rows of :mod:`.report_columns` tell of them. Pure.

What a flow's agents tell is found in three steps: where its rows are from the first of each agent on, which stays as
long as its paths and what its agents tell of do; where the rows of each agent begin; and what is in them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import chain, compress

import numpy as np
from numpy.typing import NDArray

from hyroads.controller.core.demand import Offers
from hyroads.controller.core.growth import Counts
from hyroads.controller.core.mappings import differing, in_order_of
from hyroads.controller.core.network import Policy
from hyroads.controller.core.path_columns import MeteredFlows, MeteredPath, Totals
from hyroads.controller.core.ragged import places
from hyroads.controller.model.plan import MULTIPATH, FlowPlan, Plan

from .path_rates import FloatArray, FlowPaths, IndexArray
from .report_columns import Offered, ReportColumns, Side

_Sides = tuple[Mapping[str | None, Side], Mapping[str | None, Side]]
"""Of agents, by what they are to flows: where these enter, and where they leave."""


class _FlowRow:
    """Where the rows of one flow are on both sides (from the first of each side on; -1: none), and what that follows
    from.
    """

    __slots__ = ("first", "last", "links", "metered", "names", "plan", "received", "receiving", "sending", "sent")

    def __init__(self, plan: FlowPlan, first: Side | None, last: Side | None, before: _FlowRow | None) -> None:
        self.plan, self.first, self.last = plan, first, last
        is_as_before = before is not None and before._has_paths_of(plan)
        self.metered: tuple[MeteredPath, ...] = before.metered if before and is_as_before else _metered(plan)
        self.links = tuple([path.links for path in plan.paths])
        self.names = [(plan.spec.id, links) for links in self.links]
        keys = [(plan.number, path.id) for path in plan.paths]
        self.sending = -1 if first is None else first.row_of.get(plan.number, -1)
        self.receiving = -1 if last is None else last.row_of.get(plan.number, -1)
        self.sent = [-1 if first is None else first.path_row_of.get(key, -1) for key in keys]
        self.received = [-1 if last is None else last.path_row_of.get(key, -1) for key in keys]

    def is_for(self, plan: FlowPlan, first: Side | None, last: Side | None) -> bool:
        """Whether it holds for a flow and its agents' rows; other rates make no difference."""
        mine = self.plan
        if self.first is not first or self.last is not last or plan.number != mine.number or plan.spec is not mine.spec:
            return False
        return self._has_paths_of(plan)

    def _has_paths_of(self, plan: FlowPlan) -> bool:
        """Whether its paths are those of a flow, for the same use."""
        mine = self.plan
        if plan.use is not mine.use or plan.ingress != mine.ingress:
            return False
        same = all(path.id == known.id for path, known in zip(plan.paths, mine.paths, strict=False))
        return same and tuple([path.links for path in plan.paths]) == self.links


def _metered(plan: FlowPlan) -> tuple[MeteredPath, ...]:
    """What the traffic meter wants to know of a flow."""
    node = plan.ingress or ""
    return tuple(
        [
            MeteredPath(path.id, links, None if path.copied_from is not None else (node, path.links[0]))
            for path, links in zip(plan.paths, plan.separate_links, strict=True)
        ]
    )


@dataclass(frozen=True, eq=False)
class _Places:
    """The rows of flows as those of :class:`_FlowRow`: by flow the numbers of both agents, its rows of both sides,
    whether it copies and is one for latency, and how many paths it has; by path the rows of both sides.
    """

    first: IndexArray
    last: IndexArray
    sending: IndexArray
    receiving: IndexArray
    copies: NDArray[np.bool_]
    for_latency: NDArray[np.bool_]
    count: IndexArray
    sent: IndexArray
    received: IndexArray

    @classmethod
    def of(cls, rows: Sequence[_FlowRow], number: Callable[[str], int]) -> _Places:
        """Those of some flows; ``number`` is that of an agent."""
        agents = [(number(row.plan.ingress or ""), number(row.plan.egress or "")) for row in rows]
        first, last = np.array(agents, dtype=np.intp).reshape(len(rows), 2).T
        return cls(
            first,
            last,
            np.array([row.sending for row in rows], dtype=np.intp),
            np.array([row.receiving for row in rows], dtype=np.intp),
            np.array([row.plan.copies for row in rows], dtype=bool),
            np.array([row.plan.spec.policy is Policy.LATENCY for row in rows], dtype=bool),
            np.array([len(row.links) for row in rows], dtype=np.intp),
            np.array(list(chain.from_iterable([row.sent for row in rows])), dtype=np.intp),
            np.array(list(chain.from_iterable([row.received for row in rows])), dtype=np.intp),
        )

    def with_more(self, more: _Places, which: IndexArray) -> tuple[_Places, IndexArray]:
        """Of these and more flows some, in this order, and which of the paths of all that are."""
        of = {each.name: np.concatenate([getattr(self, each.name), getattr(more, each.name)]) for each in fields(self)}
        count = of["count"]
        paths = places((np.cumsum(count) - count)[which], count[which])
        return _Places(**{k: each[paths if k in {"sent", "received"} else which] for k, each in of.items()}), paths


@dataclass(frozen=True, eq=False)
class FlowRows:
    """The multipath flows of a plan, and the rows that tell of them (-1: none), by flow and by path."""

    paths: FlowPaths
    sending: IndexArray
    receiving: IndexArray
    sent: IndexArray
    received: IndexArray
    made_of: Mapping[str, _FlowRow]
    metered: MeteredFlows
    planned: Mapping[str, FlowPlan]
    """All flows of that plan."""
    _sides: _Sides
    _places: _Places

    @classmethod
    def of(
        cls,
        plan: Plan,
        columns: ReportColumns,
        before: FlowRows | None = None,
        pause: Callable[[], object] = lambda: None,
    ) -> FlowRows:
        """Of the flows with agents at both ends; what is the same in ``before`` is taken from there. ``pause`` lets
        others run now and then: if the columns have another version in the end, this is only good as ``before``.
        """
        sides = columns.sides("ingress"), columns.sides("egress")
        last = before or cls.nothing()
        changed = differing(last.planned, plan.flows) | last._elsewhere(columns, sides)
        made = _made(changed, last.made_of, plan, sides)
        pause()
        rows = in_order_of(plan.flows, last.made_of, changed, made)
        known = dict(zip(last.made_of, range(len(last.made_of)), strict=True))
        # Of a flow that has other rows these are at the end of all.
        known |= dict(zip(made, range(len(known), len(known) + len(made)), strict=True))
        more = _Places.of(list(made.values()), columns.number)
        which = np.array([known[flow] for flow in rows], dtype=np.intp)
        found, paths = last._places.with_more(more, which)
        pause()
        links = in_order_of(plan.flows, last.paths.links, changed, {flow: row.links for flow, row in made.items()})
        names = [*last.paths.names, *chain.from_iterable([row.names for row in made.values()])]
        of_flows = FlowPaths(
            tuple([names[i] for i in paths.tolist()]),
            links,
            np.cumsum(found.count) - found.count,
        )
        pause()
        metered = in_order_of(plan.flows, last.metered, changed, {flow: row.metered for flow, row in made.items()})
        return cls._placed(of_flows, found, columns, sides, rows, metered, plan.flows)

    @classmethod
    def nothing(cls) -> FlowRows:
        """Of no flow."""
        at = _Places.of((), int)
        none = at.first
        return cls(FlowPaths((), {}, none), none, none, none, none, {}, {}, {}, ({}, {}), at)

    @classmethod
    def _placed(  # noqa: PLR0917 - what rows are made of
        cls,
        paths: FlowPaths,
        at: _Places,
        columns: ReportColumns,
        sides: _Sides,
        rows: Mapping[str, _FlowRow],
        metered: MeteredFlows,
        planned: Mapping[str, FlowPlan],
    ) -> FlowRows:
        (sending_at, sent_at), (receiving_at, received_at) = (columns.begins(each) for each in sides)
        of_path = np.repeat(np.arange(len(at.count)), at.count)
        return cls(
            paths,
            _shifted(at.sending, sending_at[at.first]),
            _shifted(at.receiving, receiving_at[at.last]),
            _shifted(at.sent, sent_at[at.first[of_path]]),
            _shifted(at.received, received_at[at.last[of_path]]),
            rows,
            metered,
            planned,
            sides,
            at,
        )

    def _elsewhere(self, columns: ReportColumns, sides: _Sides) -> set[str]:
        """Flows whose agents tell of other flows or paths than before."""
        at_first, at_last = (
            np.array([columns.number(node or "") for node in differing(known, now)], dtype=np.intp)
            for known, now in zip(self._sides, sides, strict=True)
        )
        of = self._places
        where = np.flatnonzero(np.isin(of.first, at_first) | np.isin(of.last, at_last))
        flows = self.paths.flows
        return {flows[i] for i in where.tolist()}

    @property
    def flows(self) -> tuple[str, ...]:
        """In the order of all that is by flow."""
        return self.paths.flows

    @property
    def copies(self) -> NDArray[np.bool_]:
        """By flow: whether it copies."""
        return self._places.copies

    @property
    def for_latency(self) -> NDArray[np.bool_]:
        """By flow: whether it is one for latency."""
        return self._places.for_latency

    def path_mbps(self, rates: FloatArray) -> FloatArray:
        """By path what arrived, or what was sent where nothing tells of that; nan: not known."""
        received = self.arrived_mbps(rates)
        return np.where(np.isnan(received), np.append(rates, np.nan)[self.sent], received)

    def arrived_mbps(self, rates: FloatArray) -> FloatArray:
        """By path what arrived; nan: not known."""
        return np.append(rates, np.nan)[self.received]

    def offers(self, offered: Offered) -> Offers:
        """Of all flows that have offered something."""
        there = (self.sending >= 0) & offered.is_known[self.sending]
        rows = self.sending[there]
        flows = self.flows if there.all() else tuple(compress(self.flows, there.tolist()))
        return Offers(flows, *offered.of(rows, self.copies[there]))

    def frame_bytes(self, offered: Offered) -> dict[str, float]:
        """Mean L2 payload of the frames of latency flows that sent."""
        found = {}
        for i in np.flatnonzero(self.for_latency & (self.sending >= 0)).tolist():
            row = self.sending[i]
            if offered.is_fresh[row] and not np.isnan(offered.mean_bytes[row]):
                found[self.flows[i]] = float(offered.mean_bytes[row])
        return found

    def totals(self, columns: ReportColumns, times_s: FloatArray) -> Totals:
        """All counters, by number of an agent of reports that were made then on its clock (nan: of none)."""
        at, rows_of = self._places, np.repeat(np.arange(len(self._places.count)), self._places.count)
        sent_s, received_s, ended_s = times_s[at.first[rows_of]], times_s[at.last[rows_of]], times_s[at.last]
        sent = columns.of_paths(self.sent, ("bytes", "frames"))
        *received, delay_ms = columns.of_paths(self.received, ("bytes", "frames", "delay_ms"))
        *delivered, lost = columns.of_flows(self.receiving, ("delivered_bytes", "delivered_frames", "lost"))
        # Both or none.
        ended_s = np.where(np.isnan(sum(delivered) + lost), np.nan, ended_s)
        return Totals(
            self.metered,
            Counts(sent_s, *sent),
            Counts(received_s, *received),
            delay_ms,
            Counts(ended_s, *delivered),
            Counts(ended_s, np.zeros(len(lost)), lost),
        )


def _made(
    changed: Iterable[str],
    known: Mapping[str, _FlowRow],
    plan: Plan,
    sides: _Sides,
) -> dict[str, _FlowRow]:
    """The rows of those of some flows that have agents at both ends."""
    made, (sending, receiving) = {}, sides
    for name in changed:
        flow = plan.flows.get(name)
        if flow is None or flow.mode != MULTIPATH or flow.ingress is None or flow.egress is None:
            continue
        row, first, last = known.get(name), sending.get(flow.ingress), receiving.get(flow.egress)
        if row is not None and row.is_for(flow, first, last):
            row.plan = flow
        else:
            row = _FlowRow(flow, first, last, row)
        made[name] = row
    return made


def _shifted(rows: IndexArray, by: IndexArray) -> IndexArray:
    """Rows from where they begin, -1 where there is none."""
    return np.where(rows >= 0, rows + by, -1)

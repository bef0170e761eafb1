"""The live document: the whole network in one small answer, and what changed since (docs/reference/rest.md)."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from hyroads.controller.core.interference import Interference
from hyroads.controller.core.link_busy import LinkBusy
from hyroads.controller.core.network import Link
from hyroads.controller.core.traffic_meter import COUNTERS, Snapshot, TrafficMeter
from hyroads.controller.model.live_document import LiveLog
from hyroads.controller.model.plan import MULTIPATH, FlowPlan, Plan, PlannedPath
from hyroads.controller.model.state import Origin
from hyroads.controller.runtime.event_loop import EventLoop
from hyroads.rest.contract import OPERATOR
from hyroads.rest.live import COLUMNS, SOURCES, LiveText, text_of

from .network import slices_document

REFRESH_S = 0.25
"""However many ask, the document is made so often at most."""
SECTIONS = ("links", "flows", "paths", "clients", "slices")
Texts = dict[str, str]
"""By id: its name and its row in the document, as JSON. They are compared and sent as they are."""
_RATE_FROM = {rate: SOURCES.index((rate, SOURCES[0][1])) for rate, _ in SOURCES}
_BUSY_FROM = {busy: SOURCES.index((SOURCES[0][0], busy)) for _, busy in SOURCES}
"""A source is the sum of both: rates and busy shares are combined in order."""


@dataclass(eq=False)
class LiveDocument:
    """One per controller. ``places`` tells where clients' interfaces are, by client, ``owner`` whose a flow is.

    Each row is kept as text: what did not change is neither written nor compared place by place.
    """

    event_loop: EventLoop
    traffic: TrafficMeter
    places: Callable[[], Mapping[str, Mapping[str, Sequence[str] | None]]] = dict
    owner: Callable[[str], str] = lambda flow: OPERATOR

    def __post_init__(self) -> None:
        # Later controllers' events have higher numbers; so have their versions.
        self._log = LiveLog(self.event_loop.events.last)
        self._made_s: float | None = None
        self._rows = _LinkRows(self.event_loop.context.network.links)

    def live(self, since: int | None = None) -> LiveText:
        """Everything, or what changed since a version."""
        event_loop, now_s = self.event_loop, self.event_loop.clock()
        if self._made_s is None or now_s - self._made_s >= REFRESH_S:
            self._made_s = now_s
            self._log.update(self._parts(now_s))
        found, slots = self._log.since(since), event_loop.slots
        head = {
            "from": found.since,
            "version": found.version,
            "complete": found.since is None,
            "reason": found.reason,
            "age_s": round(now_s - self._made_s, 3),
            "topology_version": event_loop.state.version,
            "slot": {"count": slots.count, "missed": slots.missed, "slot_ms": event_loop.settings.slot_ms},
            **({"columns": COLUMNS, "sources": SOURCES} if found.since is None else {}),
            "gone": found.gone,
        }
        return LiveText(found.version, text_of(head, {name: found.changed.get(name, {}) for name in SECTIONS}))

    def _parts(self, now_s: float) -> dict[str, Texts]:
        plan = self.event_loop.plan
        shown = self._shown(plan)
        return {
            "links": self._links(plan, now_s),
            "flows": {flow: self._flow(planned, now_s) for flow, planned in shown},
            "paths": {
                f"{flow}/{path.id}": self._path(flow, path, now_s) for flow, planned in shown for path in planned.paths
            },
            "clients": {client: f"{_text(client)}:{_text(at)}" for client, at in self.places().items()},
            "slices": self._slices(),
        }

    def _shown(self, plan: Plan | None) -> list[tuple[str, FlowPlan]]:
        """Flows that somebody else declared."""
        declared = self.event_loop.state.flows
        known = plan.flows.items() if plan is not None else ()
        return [(flow, of) for flow, of in known if flow in declared and declared[flow].origin is not Origin.TEST]

    def _links(self, plan: Plan | None, now_s: float) -> Texts:
        loop = self.event_loop.live.loop
        self._rows.told(
            loop.state.problem.capacity_mbps.tolist(),
            self.event_loop.links.down.keys(),
            plan.planned_mbps() if plan is not None else {},
            loop.planned_airtime().tolist(),
        )
        return self._rows.texts(self.traffic.snapshot(now_s), loop.state.network.interference)

    def _flow(self, planned: FlowPlan, now_s: float) -> str:
        flow = planned.spec.id
        of = self.traffic.flow_reading(flow, now_s)
        wanted_mbps = self.event_loop.live.loop.state.demands.demand_mbps(flow)
        is_shaped = planned.mode == MULTIPATH and wanted_mbps < float("inf")
        rates = (wanted_mbps if is_shaped else None, planned.rate_mbps, of.delivered_mbps, of.lost_frames_per_s)
        group = "null" if planned.spec.group is None else _name(planned.spec.group)
        return f'{_name(flow)}:["{planned.mode}",{",".join(map(_short, rates))},{group},{_name(self.owner(flow))}]'

    def _path(self, flow: str, path: PlannedPath, now_s: float) -> str:
        of = self.traffic.path_reading((flow, path.id), now_s)
        lost_percent = None if of.lost is None else 100 * of.lost
        figures = (path.rate_mbps, of.sent_mbps, of.delivered_mbps, lost_percent, of.delay_ms)
        return f"{_name(f'{flow}/{path.id}')}:[{_name(path.links)},{','.join(map(_short, figures))}]"

    def _slices(self) -> Texts:
        found: dict[str, list[str]] = {}
        for one in slices_document(self.event_loop.live.loop):
            planned, share, measured = (_percent(one[key]) for key in ("airtime", "share", "measured_airtime"))
            row = f"{_name(one['technology'])}:[{planned},{share},{_text(one['held'])},{measured}]"
            found.setdefault(one["slice"], []).append(row)
        return {name: f"{_name(name)}:{{{','.join(rows)}}}" for name, rows in found.items()}


NO_RATE = (None, None)


class _LinkRows:
    """The rows of links. What seldom changes is put together when it does: the beginning of a row (name, up, capacity)
    and the end (planned rate and airtime). In between is what is measured.
    """

    def __init__(self, links: Sequence[Link]) -> None:
        self._ids = [link.id for link in links]
        self._busy = LinkBusy(links)
        self._known: list[object] = [None, None]
        self._capacities: Sequence[float] = ()
        self._begin: list[str] = []
        self._end: list[str] = []

    def told(
        self,
        capacity_mbps: Sequence[float],
        down: Set[str],
        planned_mbps: Mapping[str, float],
        airtime: Sequence[float],
    ) -> None:
        """What is not measured by the traffic meter, by link or in the order of the links."""
        if self._known[0] != (begin := (capacity_mbps, down)):
            self._known[0], self._capacities = begin, capacity_mbps
            self._begin = [
                f"{_name(link)}:[{'0' if link in down else '1'},{_short(capacity or None)},"
                for link, capacity in zip(self._ids, capacity_mbps, strict=True)
            ]
        if self._known[1] != (end := (planned_mbps, airtime)):
            self._known[1] = end
            share = {value: _percent(value) for value in set(airtime)}
            self._end = [
                f",{_short(planned_mbps[link]) if link in planned_mbps else '0'},{share[value]},"
                for link, value in zip(self._ids, airtime, strict=True)
            ]

    def texts(self, now: Snapshot, interference: Interference) -> Texts:
        """All rows, by link, of a snapshot and the interference in force."""
        found = self._busy.columns(now, interference, self._capacities)
        rates = [now.idle.get(each, NO_RATE) for each in self._busy.interfaces]
        rate_texts, rate_from = [_short(each[0]) for each in rates], [_RATE_FROM[each[1]] for each in rates]
        sources = [_BUSY_FROM[now.busy[each].source] if each in now.busy else 0 for each in self._busy.interfaces]
        here = self._busy.sender.tolist()
        texts, places = [rate_texts[at] for at in here], [rate_from[at] for at in here]
        for at, reading in found.readings.items():
            texts[at], places[at] = _short(reading.rate_mbps), _RATE_FROM[reading.rate_from]
        # Links of one domain have the same share.
        shares, share_of = np.unique(found.busy, return_inverse=True)
        unmeasured = [_BUSY_FROM[None if math.isnan(share) else COUNTERS] for share in shares.tolist()]
        share_texts = [_percent(None if math.isnan(share) else share) for share in shares.tolist()]
        measured = (share_of.tolist(), found.radio_at.tolist())
        columns = zip(self._ids, self._begin, self._end, texts, places, *measured, strict=True)
        return {
            link: f"{begin}{rate},{share_texts[share]}{end}{place + (sources[by] if by >= 0 else unmeasured[share])}]"
            for link, begin, end, rate, place, share, by in columns
        }


def _text(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


@lru_cache(maxsize=8192)
def _name(value: str | tuple[str, ...]) -> str:
    """An id, or several, as JSON."""
    return _text(value)


# Links of an interface, and of a domain, have the same shares; capacities and plans stay for a while.
@lru_cache(maxsize=8192)
def _short(value: float | None) -> str:
    """With three digits, at most two of them behind the point."""
    if not value:
        return "null" if value is None else "0"
    if 1 <= value < 999.5:
        return f"{value:.3g}"
    return f"{value:.0f}" if value > 1 else f"{round(value, 2) or 0:g}"


@lru_cache(maxsize=2048)
def _percent(share: float | None) -> str:
    """Whole, but for what is below 1 %."""
    if not share:
        return "null" if share is None else "0"
    return f"{100 * share:.0f}" if share >= 0.01 else f"{round(100 * share, 1) or 0:g}"

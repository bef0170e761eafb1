"""The live document: the whole network in one small answer, and what changed since (docs/reference/rest.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from hyroads.controller.core.network import Link
from hyroads.controller.core.traffic_meter import TrafficMeter
from hyroads.controller.model.live_document import LiveLog
from hyroads.controller.model.plan import MULTIPATH, FlowPlan, Plan
from hyroads.controller.model.state import Origin, State
from hyroads.controller.runtime.event_loop import EventLoop
from hyroads.rest.contract import Document
from hyroads.rest.live import COLUMNS, SOURCES

from .network import slices_document

REFRESH_S = 0.25
"""However many ask, the document is made so often at most."""
Row = list[Any]
_SOURCE = {tuple(pair): index for index, pair in enumerate(SOURCES)}


@dataclass(eq=False)
class LiveDocument:
    """One per controller. ``places`` tells where clients' interfaces are, by client."""

    event_loop: EventLoop
    traffic: TrafficMeter
    places: Callable[[], Mapping[str, Mapping[str, Sequence[str] | None]]] = dict

    def __post_init__(self) -> None:
        # Later controllers' events have higher numbers; so have their versions.
        self._log = LiveLog(self.event_loop.events.last)
        self._made_s: float | None = None
        self._down: tuple[State, Mapping[str, str]] | None = None

    def live(self, since: int | None = None) -> Document:
        """Everything, or what changed since a version."""
        event_loop, now_s = self.event_loop, self.event_loop.clock()
        if self._made_s is None or now_s - self._made_s >= REFRESH_S:
            self._made_s = now_s
            self._log.update(self._parts(now_s))
        found, slots = self._log.since(since), event_loop.slots
        changed = {name: dict(found.changed.get(name, {})) for name in ("links", "flows", "paths", "clients", "slices")}
        return {
            "from": found.since,
            "version": found.version,
            "complete": found.since is None,
            "reason": found.reason,
            "age_s": round(now_s - self._made_s, 3),
            "topology_version": event_loop.state.version,
            "slot": {"count": slots.count, "missed": slots.missed, "slot_ms": event_loop.settings.slot_ms},
            **({"columns": COLUMNS, "sources": SOURCES} if found.since is None else {}),
            **changed,
            "gone": {name: list(ids) for name, ids in found.gone.items()},
        }

    def _parts(self, now_s: float) -> dict[str, Mapping[str, Any]]:
        plan = self.event_loop.plan
        return {
            "links": self._links(plan, now_s),
            "flows": {flow: self._flow(planned, now_s) for flow, planned in self._shown(plan)},
            "paths": {
                f"{flow}/{path.id}": self._path(flow, path.id, path.links, path.rate_mbps, now_s)
                for flow, planned in self._shown(plan)
                for path in planned.paths
            },
            "clients": {client: dict(at) for client, at in self.places().items()},
            "slices": self._slices(),
        }

    def _shown(self, plan: Plan | None) -> list[tuple[str, FlowPlan]]:
        """Flows that somebody else declared."""
        declared = self.event_loop.state.flows
        known = plan.flows.items() if plan is not None else ()
        return [(flow, of) for flow, of in known if flow in declared and declared[flow].origin is not Origin.TEST]

    def _links(self, plan: Plan | None, now_s: float) -> dict[str, Row]:
        loop, planned = self.event_loop.live.loop, plan.planned_mbps() if plan is not None else {}
        capacities, airtime, down = loop.capacities(), loop.airtime(), self._faults(loop.declared.links)
        found = {}
        for link, of in self.traffic.links(capacities, now_s).items():
            found[link] = [
                0 if link in down else 1,
                _short(capacities[link] or None),
                _short(of.rate_mbps),
                _percent(of.busy),
                _short(planned[link]) if link in planned else 0,
                _percent(airtime[link]),
                _SOURCE[of.rate_from, of.busy_from],
            ]
        return found

    def _faults(self, links: Sequence[Link]) -> Mapping[str, str]:
        """Links that are down, and why; looked for again only if the state has changed."""
        state = self.event_loop.state
        if self._down is None or self._down[0] is not state:
            context = self.event_loop.context
            faults = {link.id: state.link_fault(context, link) for link in links}
            self._down = state, {link: fault for link, fault in faults.items() if fault is not None}
        return self._down[1]

    def _flow(self, planned: FlowPlan, now_s: float) -> Row:
        of = self.traffic.flow_reading(planned.spec.id, now_s)
        wanted_mbps = self.event_loop.live.loop.state.demands.demand_mbps(planned.spec.id)
        is_shaped = planned.mode == MULTIPATH
        return [
            planned.mode,
            _short(wanted_mbps) if is_shaped and wanted_mbps < float("inf") else None,
            _short(planned.rate_mbps),
            _short(of.delivered_mbps),
            _short(of.lost_frames_per_s),
        ]

    def _path(self, flow: str, number: int, links: Sequence[str], planned: float | None, now_s: float) -> Row:
        of = self.traffic.path_reading((flow, number), now_s)
        rates = (planned, of.sent_mbps, of.delivered_mbps)
        return [
            list(links),
            *map(_short, rates),
            _short(None if of.lost is None else 100 * of.lost),
            _short(of.delay_ms),
        ]

    def _slices(self) -> dict[str, dict[str, Row]]:
        found: dict[str, dict[str, Row]] = {}
        for one in slices_document(self.event_loop.live.loop):
            row = [_percent(one["airtime"]), _percent(one["share"]), one["held"]]
            found.setdefault(one["slice"], {})[one["technology"]] = row
        return found


# Links of an interface, and of a domain, have the same shares.
@lru_cache(maxsize=2048)
def _short(value: float | None) -> float | int | None:
    """With three digits or so."""
    if not value:
        return None if value is None else 0
    rounded = round(value, 2 if value < 10 else 1)
    return int(rounded) if rounded == int(rounded) else rounded


@lru_cache(maxsize=2048)
def _percent(share: float | None) -> float | int | None:
    """Whole, but for what is below 1 %."""
    if not share:
        return None if share is None else 0
    return round(100 * share) if share >= 0.01 else round(100 * share, 1) or 0

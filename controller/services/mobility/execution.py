"""Brings what a manager wants into force, step by step, and tells it what came of it (docs/explanation/services.md,
section 3).

One :class:`Carrying` serves the flows of one handover or n-cast. It says to the network which ways the flows shall take
(``Network.confine``), and once that is confirmed takes the next step, until what is wanted is in force.

One handover on its way: a manager's machine, what carries it out, and what there is to tell of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from hyroads.controller.agents.markers import Marks, PathMarks, has_reached
from hyroads.controller.core.network import Network, Place
from hyroads.controller.core.services.mobility import (
    Arrived,
    Cancelled,
    Confirmed,
    Event,
    Handover,
    MobilityManager,
    Passed,
    Phase,
    Wanted,
    settled,
)
from hyroads.controller.model.handover import Confined, Key, Way, drained, first_place, last_place, next_step, reached
from hyroads.controller.model.plan import MULTIPATH, FlowPlan, PlannedPath

Confine = Callable[[Mapping[Key, Confined | None]], None]


class Carrier(Protocol):
    """What is needed of the coordinator."""

    @property
    def marks(self) -> Marks:
        """What came by watched paths."""

    def confine(self, changes: Mapping[Key, Confined | None]) -> None:
        """Flows shall use these ways."""

    def carries(self, flows: Iterable[str]) -> bool:
        """Whether packets of flows go as was asked for; elsewhere something may still be on its way."""

    def carried_out(self, flows: Iterable[str]) -> bool:
        """Whether all that was asked for is in force for flows."""

    def flow_plan(self, flow: str) -> FlowPlan | None:
        """What is planned for a flow."""

    def first_number(self, flow: str) -> int | None:
        """The first sequence number since the set of paths in use of a flow last changed."""


@dataclass
class Carrying:
    """``keys`` are what is confined (all flows of a client, or some), ``dropped`` what gives way to that.

    ``now`` is what was asked for last.
    """

    carrier: Carrier
    network: Network
    client: str
    keys: tuple[Key, ...]
    flows: frozenset[str]
    now: Confined | None
    dropped: tuple[Key, ...] = ()
    wanted: Wanted | None = None
    told: bool = False
    is_in_force: bool = False
    watching: set[tuple[str, int]] = field(default_factory=set)

    def want(self, wanted: Wanted) -> None:
        """What shall be in force from now on."""
        if wanted != self.wanted:
            self.wanted, self.told, self.is_in_force = wanted, False, False
            if not reached(self.now, wanted):
                self._declare(next_step(self.now, wanted))

    def events(self) -> Iterator[Event]:
        """What is so by now; takes the next step where the last one is confirmed."""
        wanted = self.wanted
        if wanted is None or not self.carrier.carried_out(self.flows):
            return
        if not reached(self.now, wanted):
            self._declare(next_step(self.now, wanted))
            return
        self.is_in_force = True
        if not self.told:
            self.told = True
            yield Confirmed(wanted)
        if self.now is not None and self.now.is_moving:
            yield from self._marks(wanted)

    @property
    def sends(self) -> bool:
        """Whether packets go as is wanted, confirmed by those who send them."""
        wanted = self.wanted
        return wanted is not None and reached(self.now, wanted) and self.carrier.carries(self.flows)

    @property
    def is_drained(self) -> bool:
        """Whether what is wanted is in force and receivers wait for nothing any more."""
        return self.is_in_force and self.now is not None and not self.now.waits

    def settle(self) -> None:
        """Receivers wait no longer for what has come."""
        now = self.now
        if now is not None and now.waits and self.is_in_force and self._is_drained(now.waits):
            self._declare(drained(now))

    def restore(self, before: Mapping[Key, Confined | None]) -> None:
        """Everything shall be as it was."""
        self.wanted = None
        self.carrier.confine(before)
        self.end()

    def end(self) -> None:
        """Nothing is watched any more."""
        for node, number in self.watching:
            self.carrier.marks.forget(node, number)
        self.watching.clear()

    def _declare(self, step: Confined) -> None:
        before, self.now, self.is_in_force = self.now, step, False
        if before is None or (before.carry, before.copies) != (step.carry, step.copies):
            self._watch()
        self.carrier.confine({**dict.fromkeys(self.dropped), **dict.fromkeys(self.keys, step)})

    def _watch(self) -> None:
        """What was told before the paths in use changed does not count."""
        self.end()
        for plan in self._plans():
            if plan.egress is not None:
                self.watching.add((plan.egress, plan.number))
                self.carrier.marks.await_(plan.egress, plan.number)

    def _marks(self, wanted: Wanted) -> Iterator[Event]:
        for plan in self._plans():
            first = self.carrier.first_number(plan.spec.id)
            if first is None:
                continue
            for way, paths in self._by_way(plan, wanted.known).items():
                place = cast("Place", way)  # A way is whatever the manager calls a place.
                marks = [self._mark(plan, path) for path in paths]
                if all(has_reached(mark.passed, first) for mark in marks):
                    yield Passed(plan.spec.id, place)
                if any(has_reached(mark.arrived, first) for mark in marks):
                    yield Arrived(plan.spec.id, place)

    def _is_drained(self, ways: Iterable[Way]) -> bool:
        for plan in self._plans():
            first = self.carrier.first_number(plan.spec.id)
            marks = [self._mark(plan, path) for paths in self._by_way(plan, ways).values() for path in paths]
            if first is None or any(not has_reached(mark.passed, first) for mark in marks):
                return False
        return True

    def _mark(self, plan: FlowPlan, path: PlannedPath) -> PathMarks:
        return self.carrier.marks.of(plan.egress or "", plan.number, path.id)

    def _plans(self) -> Iterator[FlowPlan]:
        plans = (self.carrier.flow_plan(flow) for flow in sorted(self.flows))
        return (plan for plan in plans if plan is not None and plan.mode == MULTIPATH)

    def _by_way(self, plan: FlowPlan, ways: Iterable[Way]) -> dict[Way, list[PlannedPath]]:
        """The paths of a flow by the ways that they are of; ways without a path are left out."""
        found: dict[Way, list[PlannedPath]] = {}
        known = set(ways)
        for path in plan.paths:
            for way in (path.links, self._place(plan, path)):
                if way in known:
                    found.setdefault(way, []).append(path)
        return found

    def _place(self, plan: FlowPlan, path: PlannedPath) -> Place:
        place = first_place if plan.spec.source == self.client else last_place
        return place(self.network, path.links)


Document = dict[str, Any]
CANCELLABLE = (Phase.ASSOCIATING, Phase.PREPARING, Phase.WARMING)
# Machines answer events at once; one that never comes to rest is a plugin's.
MAX_STEPS = 50


class CarriesOut(Protocol):
    """What a journey and its desk need of whatever brings the manager's wishes into force (``carrying.Carrying``)."""

    @property
    def wanted(self) -> Wanted | None:
        """What shall be in force."""

    @property
    def is_in_force(self) -> bool:
        """Whether it is, confirmed by all."""

    @property
    def sends(self) -> bool:
        """Whether packets go as is wanted, confirmed by those who send them."""

    def want(self, wanted: Wanted) -> None:
        """What shall be in force from now on."""

    def events(self) -> Iterator[Event]:
        """What is so by now."""

    def settle(self) -> None:
        """Receivers wait no longer for what has come."""

    def restore(self, before: Mapping[Key, Confined | None]) -> None:
        """Everything shall be as it was."""

    def end(self) -> None:
        """Nothing is watched any more."""


@dataclass
class Journey:
    """``before`` is what the client's flows were confined to, to be restored if nothing has moved."""

    handover: Handover
    manager: MobilityManager
    carrying: CarriesOut
    before: Mapping[Key, Confined | None]
    asked_s: float
    asked_at_s: float
    """Unix time."""
    moved_s: float | None = None
    """When packets went by the new place alone or also, confirmed by those who send them."""
    over_s: float | None = None
    steps: list[tuple[str, float]] = field(default_factory=list)
    asked_of_client: set[tuple[str, Place]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.steps.append((self.handover.phase.value, 0.0))

    @property
    def id(self) -> str:
        """Its name."""
        return self.handover.request.id

    @property
    def client(self) -> str:
        """Who moves."""
        return self.handover.request.client

    @property
    def is_over(self) -> bool:
        """Whether nothing will happen any more; after the machine's end what it wanted is still carried out."""
        return self.over_s is not None

    def wanted(self) -> Wanted:
        """What the manager wants now."""
        return self.manager.wanted(self.handover)

    def on(self, event: Event, now_s: float) -> None:
        """Something happened."""
        self.become(self.manager.on(self.handover, event, now_s), now_s)

    def tick(self, now_s: float) -> None:
        """Time went by."""
        self.become(self.manager.tick(self.handover, now_s), now_s)

    def cancel(self, reason: str, now_s: float) -> bool:
        """Nobody wants it any more; False if it is too late for that."""
        if self.handover.phase not in CANCELLABLE:
            return False
        self.on(Cancelled(reason), now_s)
        return self.handover.phase is Phase.FAILED

    def become(self, handover: Handover, now_s: float) -> None:
        """The machine's next state."""
        if handover.phase is not self.handover.phase:
            self.steps.append((handover.phase.value, now_s - self.asked_s))
        self.handover = handover

    @property
    def has_moved(self) -> bool:
        """Whether packets shall go by the new place, whatever else."""
        return self.handover.request.new in self.wanted().carry

    @property
    def unchanged(self) -> bool:
        """Whether everything is to be as before: it has not begun, or it failed and the old place is still there."""
        phase, handover = self.handover.phase, self.handover
        if phase is Phase.ASSOCIATING:
            return True
        return phase is Phase.FAILED and handover.request.new not in settled(handover).carry

    def document(self) -> Document:
        """For REST."""
        request, wanted = self.handover.request, self.wanted()
        return {
            "id": request.id,
            "client": request.client,
            "from": place_document(request.old),
            "to": place_document(request.new),
            "manager": self.manager.name,
            "flows": sorted(request.flows),
            "phase": self.handover.phase.value,
            "reason": self.handover.reason,
            "over": self.is_over,
            "asked_at": self.asked_at_s,
            "moved_after_s": None if self.moved_s is None else self.moved_s - self.asked_s,
            "over_after_s": None if self.over_s is None else self.over_s - self.asked_s,
            "known": [place_document(place) for place in wanted.known],
            "carry": [place_document(place) for place in wanted.carry],
            "copies": wanted.copies,
            "join": place_document(wanted.join),
            "leave": place_document(wanted.leave),
            "steps": [{"phase": phase, "after_s": after_s} for phase, after_s in self.steps],
        }


def idle_document(  # noqa: PLR0917 - what is known of a handover that is not on its way
    name: str, client: str, to: Place | None, manager: str, asked_at_s: float, flows: Iterable[str] = ()
) -> Document:
    """A handover that waits for another, or needs no steps."""
    return {
        "id": name,
        "client": client,
        "from": None,
        "to": place_document(to),
        "manager": manager,
        "flows": sorted(flows),
        "phase": "waiting",
        "reason": None,
        "over": False,
        "asked_at": asked_at_s,
        **dict.fromkeys(("moved_after_s", "over_after_s", "join", "leave")),
        "known": [],
        "carry": [],
        "copies": False,
        "steps": [],
    }


def place_document(place: Place | None) -> Document | None:
    """A place for REST."""
    return None if place is None else {"node": place.node, "technology": place.technology}

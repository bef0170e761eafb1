"""Carries out what a mobility manager wants, step by step, and reports back to it (docs/reference/handovers.md).

One :class:`Executor` serves the flows of one handover or n-cast. It constrains the flows to paths
(``ControllerPort.constrain``), waits until that is confirmed, and takes the next step, until the manager's wish is in
force. A :class:`HandoverRun` joins a manager's state, its executor, and what REST shows of the handover.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from hyroads.controller.agents.markers import PathMarkers, has_reached
from hyroads.controller.core.network import Network, Place
from hyroads.controller.core.services.mobility import (
    Arrived,
    Cancelled,
    Confirmed,
    DesiredState,
    Event,
    Handover,
    MobilityManager,
    Passed,
    Phase,
    settled,
)
from hyroads.controller.model.handover import (
    Constrained,
    Key,
    Via,
    drained,
    first_place,
    last_place,
    next_step,
    reached,
)
from hyroads.controller.model.plan import MULTIPATH, FlowPlan, PlannedPath
from hyroads.controller.services.port import ControllerPort


def multipath_plan(port: ControllerPort, flow: str) -> FlowPlan | None:
    """The plan of a flow that uses a multipath between agents; None for any other flow."""
    planned = port.plan.flows.get(flow) if port.plan is not None else None
    return planned if planned is not None and planned.mode == MULTIPATH else None


@dataclass
class Executor:
    """Constrains flows of one client. ``keys``: the constraints that it sets, for all flows of the client or for some.
    ``dropped``: constraints that it lifts. ``now``: the constraint that it set last.
    """

    port: ControllerPort
    network: Network
    client: str
    keys: tuple[Key, ...]
    flows: frozenset[str]
    now: Constrained | None
    dropped: tuple[Key, ...] = ()
    wanted: DesiredState | None = None
    told: bool = False
    is_in_force: bool = False
    watching: set[tuple[str, int]] = field(default_factory=set)

    def want(self, wanted: DesiredState) -> None:
        """Bring this into force from now on."""
        if wanted != self.wanted:
            self.wanted, self.told, self.is_in_force = wanted, False, False
            if not reached(self.now, wanted):
                self._declare(next_step(self.now, wanted))

    def events(self) -> Iterator[Event]:
        """What agents and switches confirmed or reported since the last call. Takes the next step if one is due."""
        wanted = self.wanted
        if wanted is None or not self.port.carried_out(self.flows):
            return
        if not reached(self.now, wanted):
            self._declare(next_step(self.now, wanted))
            return
        self.is_in_force = True
        if not self.told:
            self.told = True
            yield Confirmed(wanted)
        if self.now is not None and self.now.is_moving:
            yield from self._markers(wanted)

    @property
    def sends(self) -> bool:
        """Whether packets go as is wanted, confirmed by those who send them."""
        wanted = self.wanted
        return wanted is not None and reached(self.now, wanted) and self.port.carries(self.flows)

    @property
    def is_drained(self) -> bool:
        """Whether what is wanted is in force and receivers wait for nothing any more."""
        return self.is_in_force and self.now is not None and not self.now.waits

    def settle(self) -> None:
        """Let receivers stop waiting once everything in flight has arrived."""
        now = self.now
        if now is not None and now.waits and self.is_in_force and self._is_drained(now.waits):
            self._declare(drained(now))

    def restore(self, before: Mapping[Key, Constrained | None]) -> None:
        """Put back the constraints of before the handover."""
        self.wanted = None
        self.port.constrain(before)
        self.end()

    def end(self) -> None:
        """Stop watching sequence markers."""
        for node, number in self.watching:
            self.port.markers.forget(node, number)
        self.watching.clear()

    def _declare(self, step: Constrained) -> None:
        before, self.now, self.is_in_force = self.now, step, False
        if before is None or (before.carry, before.copies) != (step.carry, step.copies):
            self._watch()
        self.port.constrain({**dict.fromkeys(self.dropped), **dict.fromkeys(self.keys, step)})

    def _watch(self) -> None:
        """What was told before the paths in use changed does not count."""
        self.end()
        for plan in self._plans():
            if plan.egress is not None:
                self.watching.add((plan.egress, plan.number))
                self.port.markers.await_(plan.egress, plan.number)

    def _markers(self, wanted: DesiredState) -> Iterator[Event]:
        for plan in self._plans():
            first = self.port.markers.first(plan.ingress or "", plan.number)
            if first is None:
                continue
            for via, paths in self._by_via(plan, wanted.known).items():
                place = cast("Place", via)  # To a manager of n-casts a path is a place.
                markers = [self._marker(plan, path) for path in paths]
                if all(has_reached(marker.passed, first) for marker in markers):
                    yield Passed(plan.spec.id, place)
                if any(has_reached(marker.arrived, first) for marker in markers):
                    yield Arrived(plan.spec.id, place)

    def _is_drained(self, vias: Iterable[Via]) -> bool:
        for plan in self._plans():
            first = self.port.markers.first(plan.ingress or "", plan.number)
            markers = [self._marker(plan, path) for paths in self._by_via(plan, vias).values() for path in paths]
            if first is None or any(not has_reached(marker.passed, first) for marker in markers):
                return False
        return True

    def _marker(self, plan: FlowPlan, path: PlannedPath) -> PathMarkers:
        return self.port.markers.of(plan.egress or "", plan.number, path.id)

    def _plans(self) -> Iterator[FlowPlan]:
        plans = (multipath_plan(self.port, flow) for flow in sorted(self.flows))
        return (plan for plan in plans if plan is not None)

    def _by_via(self, plan: FlowPlan, vias: Iterable[Via]) -> dict[Via, list[PlannedPath]]:
        """The paths of a flow by the place or path that they belong to."""
        found: dict[Via, list[PlannedPath]] = {}
        known = set(vias)
        for path in plan.paths:
            for via in (path.links, self._place(plan, path)):
                if via in known:
                    found.setdefault(via, []).append(path)
        return found

    def _place(self, plan: FlowPlan, path: PlannedPath) -> Place:
        place = first_place if plan.spec.source == self.client else last_place
        return place(self.network, path.links)


Document = dict[str, Any]
CANCELLABLE = (Phase.ASSOCIATING, Phase.PREPARING, Phase.WARMING)
# Machines answer events at once; one that never comes to rest is a plugin's.
MAX_STEPS = 50


class AnyExecutor(Protocol):
    """What the service of handovers needs of an executor: :class:`Executor`, or ``plain.PlainExecutor``."""

    @property
    def wanted(self) -> DesiredState | None:
        """What shall be in force."""

    @property
    def is_in_force(self) -> bool:
        """Whether it is, confirmed by all."""

    @property
    def sends(self) -> bool:
        """Whether packets go as is wanted, confirmed by those who send them."""

    def want(self, wanted: DesiredState) -> None:
        """Bring this into force from now on."""

    def events(self) -> Iterator[Event]:
        """What agents and switches confirmed or reported since the last call."""

    def settle(self) -> None:
        """Let receivers stop waiting once everything in flight has arrived."""

    def restore(self, before: Mapping[Key, Constrained | None]) -> None:
        """Put back the constraints of before the handover."""

    def end(self) -> None:
        """Stop watching sequence markers."""


@dataclass
class HandoverRun:
    """``before`` is what the client's flows were constrained to, to be restored if nothing has moved."""

    handover: Handover
    manager: MobilityManager
    executor: AnyExecutor
    before: Mapping[Key, Constrained | None]
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

    def wanted(self) -> DesiredState:
        """What the manager wants now."""
        return self.manager.wanted(self.handover)

    def on(self, event: Event, now_s: float) -> None:
        """Something happened."""
        self.become(self.manager.on(self.handover, event, now_s), now_s)

    def tick(self, now_s: float) -> None:
        """Time went by."""
        self.become(self.manager.tick(self.handover, now_s), now_s)

    def cancel(self, reason: str, now_s: float) -> bool:
        """Cancel it; False if it is too late for that."""
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


def idle_document(  # noqa: PLR0917 - the fields of a handover that takes no steps
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

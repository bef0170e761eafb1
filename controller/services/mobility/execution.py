"""Carries out what a mobility manager wants, and reports back to it (docs/reference/handovers.md).

One :class:`Executor` serves the flows of one handover or n-cast. A :class:`PathExecutor` constrains them to paths
(``ControllerPort.constrain``), waits until that is confirmed, and takes the next step, until the manager's wish is in
force; ``plain.PlainExecutor`` moves a client without an agent. A :class:`HandoverRun` joins a manager's state, its
executor, and what REST shows of the handover.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar, cast

from hyroads.controller.agents.markers import PathMarkers, has_reached
from hyroads.controller.core.network import Place
from hyroads.controller.core.services import mobility as core
from hyroads.controller.core.services.mobility import DesiredState, Event, Handover, Phase
from hyroads.controller.model import handover as model
from hyroads.controller.model.handover import Constrained, Key, Via
from hyroads.controller.model.plan import MULTIPATH, FlowPlan, PlannedPath
from hyroads.controller.services.clients.declared import place_document
from hyroads.controller.services.port import ControllerPort, Publish
from hyroads.rest.contract import OPERATOR

Document = dict[str, Any]


class _Run(Protocol):
    @property
    def executor(self) -> Executor:
        """What carries it out."""


Run = TypeVar("Run", bound=_Run)
CANCELLABLE = (Phase.ASSOCIATING, Phase.PREPARING, Phase.WARMING)
# Machines answer events at once; one that never comes to rest is a plugin's.
MAX_STEPS = 50


def multipath_plan(port: ControllerPort, flow: str) -> FlowPlan | None:
    """The plan of a flow that uses a multipath between agents; None for any other flow."""
    planned = port.plan.flows.get(flow) if port.plan is not None else None
    return planned if planned is not None and planned.mode == MULTIPATH else None


@dataclass(eq=False)
class MobilityService(Generic[Run]):
    """What the services of handovers and n-casts have in common: what runs, by client or flow."""

    port: ControllerPort
    publish: Publish
    clock: Callable[[], float]

    def __post_init__(self) -> None:
        self.counters: Counter[str] = Counter()
        self._active: dict[str, Run] = {}
        self._advancing = False

    def advance(self) -> None:
        """Let everything go on as far as it can; to be called whenever something may have happened. While another
        controller leads nothing does: it takes the steps, and saves what it wants.
        """
        if self._advancing or not self.port.leads:
            return
        self._advancing = True
        try:
            for run in list(self._active.values()):
                self._go_on(run)
        finally:
            self._advancing = False

    def forget(self) -> None:
        """What runs is another controller's matter by now."""
        for run in self._active.values():
            run.executor.end()
        self._active.clear()

    def _go_on(self, run: Run) -> None:
        raise NotImplementedError


@dataclass
class Executor:
    """Brings into force what a mobility manager wants for one client, and tells it what was confirmed."""

    client: str
    wanted: DesiredState | None = field(default=None, kw_only=True)
    told: bool = field(default=False, init=False)
    is_in_force: bool = field(default=False, init=False)
    """Whether what is wanted is in force, confirmed by all."""

    def want(self, wanted: DesiredState) -> None:
        """Bring this into force from now on."""
        if wanted != self.wanted:
            self.wanted, self.told, self.is_in_force = wanted, False, False
            self._begin(wanted)

    def events(self) -> Iterator[Event]:
        """What agents and switches confirmed or reported since the last call. Takes the next step if one is due."""
        wanted = self.wanted
        if wanted is None or not self._is_done(wanted):
            return
        self.is_in_force = True
        if not self.told:
            self.told = True
            yield core.Confirmed(wanted)
        yield from self._reported(wanted)

    @property
    def sends(self) -> bool:
        """Whether packets go as is wanted, confirmed by those who send them."""
        raise NotImplementedError

    def restore(self, before: Mapping[Key, Constrained | None]) -> None:
        """Put everything back as it was before the handover."""
        raise NotImplementedError

    def settle(self) -> None:
        """Let receivers stop waiting once everything in flight has arrived."""

    def end(self) -> None:
        """Stop watching sequence markers."""

    def _begin(self, wanted: DesiredState) -> None:
        """Take the first step."""
        raise NotImplementedError

    def _is_done(self, wanted: DesiredState) -> bool:
        """Whether everything is confirmed; if only a step on the way is, takes the next one."""
        raise NotImplementedError

    def _reported(self, wanted: DesiredState) -> Iterable[Event]:
        return ()


@dataclass
class PathExecutor(Executor):
    """Constrains flows of a client with an agent to paths. ``keys``: the constraints that it sets, for all flows of the
    client or for some. ``dropped``: constraints that it lifts. ``now``: the constraint that it set last.
    """

    port: ControllerPort
    keys: tuple[Key, ...]
    flows: frozenset[str]
    now: Constrained | None
    dropped: tuple[Key, ...] = ()
    watching: set[tuple[str, int]] = field(default_factory=set)

    def _begin(self, wanted: DesiredState) -> None:
        if not model.reached(self.now, wanted):
            self._declare(model.next_step(self.now, wanted))

    def _is_done(self, wanted: DesiredState) -> bool:
        if not self.port.carried_out(self.flows):
            return False
        was_reached = model.reached(self.now, wanted)
        self._begin(wanted)
        return was_reached

    @property
    def sends(self) -> bool:
        """Whether packets go as is wanted, confirmed by those who send them."""
        wanted = self.wanted
        return wanted is not None and model.reached(self.now, wanted) and self.port.carries(self.flows)

    @property
    def is_drained(self) -> bool:
        """Whether what is wanted is in force and receivers wait for nothing any more."""
        return self.is_in_force and self.now is not None and not self.now.waits

    @property
    def has_arrived(self) -> bool:
        """Whether what is wanted is in force, and all that was in flight has arrived."""
        return self.is_in_force and self.now is not None and self._is_drained(self.now.waits)

    def settle(self) -> None:
        """Let receivers stop waiting once everything in flight has arrived."""
        if self.now is not None and self.now.waits and self.has_arrived:
            self._declare(model.drained(self.now))

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

    def resume(self) -> None:
        """Watch what receivers wait for since an earlier controller said so."""
        if self.now is not None and self.now.waits and not self.watching:
            self._watch()

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
                self.port.markers.await_(plan.egress, plan.number, plan.ingress or "")

    def _reported(self, wanted: DesiredState) -> Iterator[Event]:
        """Who sends by the new paths, and where it has arrived, while the flows move."""
        for plan in self._plans() if self.now is not None and self.now.is_moving else ():
            first = self.port.markers.first(plan.ingress or "", plan.number)
            if first is None:
                continue
            for via, paths in self._by_via(plan, wanted.known).items():
                place = cast("Place", via)  # To a manager of n-casts a path is a place.
                markers = [self._marker(plan, path) for path in paths]
                if all(has_reached(marker.passed, first) for marker in markers):
                    yield core.Passed(plan.spec.id, place)
                if any(has_reached(marker.arrived, first) for marker in markers):
                    yield core.Arrived(plan.spec.id, place)

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
        place = model.first_place if plan.spec.source == self.client else model.last_place
        return place(self.port.context.network, path.links)


@dataclass
class HandoverRun:
    """``before`` is what the client's flows were constrained to, to be restored if nothing has moved."""

    handover: Handover
    manager: core.MobilityManager
    executor: Executor
    before: Mapping[Key, Constrained | None]
    asked_s: float
    asked_at_s: float
    """Unix time."""
    moved_s: float | None = None
    """When packets went by the new place alone or also, confirmed by those who send them."""
    over_s: float | None = None
    steps: list[tuple[str, float]] = field(default_factory=list)
    asked_of_client: set[tuple[str, Place]] = field(default_factory=set)
    owner: str = OPERATOR
    """Name of the token that began it."""

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
        self.on(core.Cancelled(reason), now_s)
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
        return phase is Phase.FAILED and handover.request.new not in core.settled(handover).carry

    def document(self) -> Document:
        """For REST."""
        request, wanted = self.handover.request, self.wanted()
        name, at_s = self.manager.name, self.asked_at_s
        return {
            **idle_document(request.id, request.client, request.new, name, at_s, request.flows),
            "owner": self.owner,
            "from": place_document(request.old),
            "phase": self.handover.phase.value,
            "reason": self.handover.reason,
            "over": self.is_over,
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
        "owner": OPERATOR,
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

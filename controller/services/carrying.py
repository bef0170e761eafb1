"""Brings what a manager wants into force, step by step, and tells it what came of it (docs/explanation/services.md,
section 3).

One :class:`Carrying` serves the flows of one handover or n-cast. It says to the network which ways the flows shall take
(``Network.confine``), and once that is confirmed takes the next step, until what is wanted is in force.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol, cast

from hyroads.controller.agent_markers import PathMarks, has_reached
from hyroads.controller.control.handover import (
    Confined,
    Key,
    Way,
    drained,
    first_place,
    last_place,
    next_step,
    reached,
)
from hyroads.controller.core.network import Network
from hyroads.controller.core.services.mobility import Arrived, Confirmed, Event, Passed, Wanted
from hyroads.controller.core.services.place import Place
from hyroads.controller.marks import Marks
from hyroads.controller.plan import MULTIPATH, FlowPlan, PlannedPath

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

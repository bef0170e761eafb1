"""n-cast of a live flow, switched on and off: copies on several paths, as long as they are wanted.

    preparing -> copying (until it is switched off) -> draining -> closing -> done

Places stand for the interface and path combinations that ``controller.core.ncast`` chose. Receivers know all of them
before copies are sent. When it is switched off, one place goes on; receivers wait for what is still in flight by the
others until their markers have come, so that nothing is lost, doubled or out of order.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hyroads.controller.core.network import Place
from hyroads.controller.core.services.mobility import Confirmed, DesiredState, Event, Passed, Phase, Timings


@dataclass(frozen=True, slots=True)
class NCast:
    """The state of one n-cast. ``before`` carried the flows until now, ``places`` shall carry copies."""

    flows: frozenset[str]
    before: tuple[Place, ...]
    places: tuple[Place, ...]
    entered_s: float
    phase: Phase = Phase.PREPARING
    keep: Place | None = None
    """The place that goes on alone once copies are no longer wanted."""
    passed: frozenset[tuple[str, Place]] = frozenset()
    timings: Timings = field(default_factory=Timings)
    reason: str | None = None

    @property
    def is_over(self) -> bool:
        """Whether nothing will happen any more."""
        return self.phase in (Phase.DONE, Phase.FAILED)

    @property
    def all_places(self) -> tuple[Place, ...]:
        """All places that carry packets at some time."""
        return tuple(dict.fromkeys((*self.before, *self.places)))

    def switched_off(self, keep: Place, now_s: float) -> NCast:
        """Copies are no longer wanted; ``keep``, one of the places, goes on alone.

        If copies have not begun flows stay where they were: nothing has to be drained.
        """
        if self.phase is Phase.PREPARING:
            return self._enter(Phase.CLOSING, now_s)
        if self.phase is not Phase.COPYING or keep not in self.places:
            return self
        return self._enter(Phase.DRAINING, now_s, keep)

    def on(self, event: Event, now_s: float) -> NCast:
        """Something happened."""
        match self.phase, event:
            case (Phase.PREPARING, Confirmed(wanted)) if wanted == self.wanted:
                return self._enter(Phase.COPYING, now_s)
            case (Phase.DRAINING, Passed(flow, place)):
                passed = replace(self, passed=self.passed | {(flow, place)})
                return passed._enter(Phase.CLOSING, now_s, self.keep) if passed.is_drained else passed
            case (Phase.CLOSING, Confirmed(wanted)) if wanted == self.wanted:
                return self._enter(Phase.DONE, now_s, self.keep)
            case _:
                return self

    def tick(self, now_s: float) -> NCast:
        """Time went by."""
        due_s = self.due_s
        if due_s is None or now_s < due_s:
            return self
        if self.phase is Phase.PREPARING:
            failed = self._enter(Phase.FAILED, now_s)
            return replace(failed, reason="the ends did not confirm the new paths")
        return self._enter(Phase.CLOSING if self.phase is Phase.DRAINING else Phase.DONE, now_s, self.keep)

    @property
    def due_s(self) -> float | None:
        """When :meth:`tick` is next needed; None: never."""
        waits = {
            Phase.PREPARING: self.timings.confirm_s,
            Phase.DRAINING: self.timings.hold_s,
            Phase.CLOSING: self.timings.confirm_s,
        }
        return self.entered_s + waits[self.phase] if self.phase in waits else None

    @property
    def is_drained(self) -> bool:
        """Whether all markers have come, by each place that copies went by."""
        return self.passed >= {(flow, place) for flow in self.flows for place in self.places if place != self.keep}

    @property
    def wanted(self) -> DesiredState:
        """What the network shall do now."""
        stay = self.before if self.keep is None else (self.keep,)
        match self.phase:
            case Phase.PREPARING:
                return DesiredState(self.all_places, self.before)
            case Phase.COPYING:
                return DesiredState(self.all_places, self.places, copies=True, hold_s=self.timings.hold_s)
            case Phase.DRAINING:
                return DesiredState(self.all_places, stay, hold_s=self.timings.hold_s)
            case _:
                return DesiredState(stay, stay)

    def _enter(self, phase: Phase, now_s: float, keep: Place | None = None) -> NCast:
        return replace(self, phase=phase, entered_s=now_s, keep=keep, passed=frozenset())

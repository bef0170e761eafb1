"""What ``hoolock``, ``bicast`` and ``vertical`` have in common: the old place is left when nobody needs it any more.

    associating -> preparing -> [warming] -> draining or copying -> leaving -> closing -> done

*Preparing*: receivers listen to both places before anything is sent by the new one. *Draining* (each packet once, by
the new place, receivers hold it) and *copying* (each packet by both) end when every flow's marker has come by the old
place, so that nothing is in flight to it alone, and something has come by the new one. If nothing comes by the new
place in time the handover fails, and flows are where they were: nobody is moved to a place that does not work.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from hyroads.controller.core.services.mobility import (
    Confirmed,
    DesiredState,
    Event,
    Handover,
    Left,
    Phase,
    Request,
    Steady,
    associating,
    before,
    lost_a_place,
    noted,
    settled,
)


@dataclass(frozen=True, slots=True)
class MakeBeforeBreak:
    """A manager. ``copies``: packets go by both places meanwhile, else by the new one alone and receivers hold them.

    ``warms``: the new place must have been heard without a break first. ``least_hold_s`` is the least bound of holding.
    """

    name: str
    copies: bool = False
    warms: bool = False
    least_hold_s: float = 0.0

    @property
    def overlap(self) -> Phase:
        """The phase in which both places are needed."""
        return Phase.COPYING if self.copies else Phase.DRAINING

    def start(self, request: Request, now_s: float) -> Handover:
        """See :class:`MobilityManager`."""
        return Handover(request, Phase.ASSOCIATING, now_s)

    def on(self, handover: Handover, event: Event, now_s: float) -> Handover:
        """See :class:`MobilityManager`."""
        if handover.is_over:
            return handover
        if event == Steady(handover.request.new):
            handover = replace(handover, is_steady=True)
        if handover.phase is Phase.LEAVING and isinstance(event, Left) and event.place == handover.request.old:
            return handover.enter(Phase.CLOSING, now_s)
        lost = lost_a_place(handover, event, now_s, Phase.CLOSING)
        if lost is not None:
            return lost
        if handover.phase is Phase.ASSOCIATING:
            return associating(handover, event, Phase.PREPARING, now_s)
        step = _STEPS.get(handover.phase)
        return step(self, handover, event, now_s) if step is not None else handover

    def preparing(self, handover: Handover, event: Event, now_s: float) -> Handover:
        """Until all receivers know the new place."""
        if not (isinstance(event, Confirmed) and event.wanted == self.wanted(handover)):
            return handover
        if not handover.old_places:
            return handover.enter(Phase.CLOSING, now_s)
        return handover.enter(Phase.WARMING if self.warms and not handover.is_steady else self.overlap, now_s)

    def warming(self, handover: Handover, event: Event, now_s: float) -> Handover:
        """Until the new place has proved to work."""
        return handover.enter(self.overlap, now_s) if handover.is_steady else handover

    def overlapping(self, handover: Handover, event: Event, now_s: float) -> Handover:
        """Until no flow needs the old place."""
        handover = noted(handover, event)
        needless = handover.passed & handover.arrived >= handover.request.flows
        return handover.enter(Phase.LEAVING, now_s) if needless else handover

    def closing(self, handover: Handover, event: Event, now_s: float) -> Handover:
        """Until the old place is forgotten everywhere."""
        done = isinstance(event, Confirmed) and event.wanted == self.wanted(handover)
        return handover.enter(Phase.DONE, now_s) if done else handover

    def tick(self, handover: Handover, now_s: float) -> Handover:
        """See :class:`MobilityManager`."""
        due_s = self.due_s(handover)
        if due_s is None or now_s < due_s:
            return handover
        phase, failure = self._after(handover)
        return handover.enter(phase, now_s, failure)

    def _after(self, handover: Handover) -> tuple[Phase, str | None]:
        """The phase after waiting in vain, and why the handover failed if it did."""
        new = handover.request.new
        failures = {
            Phase.ASSOCIATING: f"the client did not join {new}",
            Phase.PREPARING: "the ends did not confirm the new paths",
            Phase.WARMING: f"{new} was not heard without a break",
        }
        if handover.phase in failures:
            return Phase.FAILED, failures[handover.phase]
        if handover.phase is self.overlap:
            # Without a marker the old place is dead; with nothing by the new place, that one is.
            arrived = handover.arrived >= handover.request.flows
            return (Phase.LEAVING, None) if arrived else (Phase.FAILED, f"nothing came by {new}")
        return (Phase.CLOSING, None) if handover.phase is Phase.LEAVING else (Phase.DONE, None)

    def due_s(self, handover: Handover) -> float | None:
        """See :class:`MobilityManager`."""
        timings = handover.request.timings
        waits = {
            Phase.ASSOCIATING: timings.associate_s,
            Phase.PREPARING: timings.confirm_s,
            Phase.WARMING: timings.warm_s,
            self.overlap: self._hold_s(handover),
            Phase.LEAVING: timings.leave_s,
            Phase.CLOSING: timings.confirm_s,
        }
        return handover.entered_s + waits[handover.phase] if handover.phase in waits else None

    def _hold_s(self, handover: Handover) -> float:
        return max(self.least_hold_s, handover.request.timings.hold_s)

    def wanted(self, handover: Handover) -> DesiredState:
        """See :class:`MobilityManager`."""
        new, old = (handover.request.new,), handover.old_places
        both, hold_s = old + new, self._hold_s(handover)
        carry = both if self.copies else new
        match handover.phase:
            case Phase.ASSOCIATING:
                return before(handover)
            case Phase.PREPARING | Phase.WARMING:
                return DesiredState(both, old or new)
            case Phase.COPYING | Phase.DRAINING:
                return DesiredState(both, carry, self.copies, hold_s)
            case Phase.LEAVING:
                return DesiredState(
                    both if self.copies else new, carry, self.copies, hold_s, leave=next(iter(old), None)
                )
            case _:
                return settled(handover)


_STEPS: dict[Phase, Callable[[MakeBeforeBreak, Handover, Event, float], Handover]] = {
    Phase.PREPARING: MakeBeforeBreak.preparing,
    Phase.WARMING: MakeBeforeBreak.warming,
    Phase.DRAINING: MakeBeforeBreak.overlapping,
    Phase.COPYING: MakeBeforeBreak.overlapping,
    Phase.CLOSING: MakeBeforeBreak.closing,
}

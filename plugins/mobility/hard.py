"""``hard``: flows move to the new place at once; what is in flight to the old one is lost (Yap, Stanford 2013, 5.1).

For clients with a single interface, and as the yardstick for the others. Receivers wait for what is in flight by the
old place no longer than for any path, and drop what comes later: nothing is out of order.
"""

from __future__ import annotations

from dataclasses import dataclass

from hyroads.controller.core.services.mobility import (
    Confirmed,
    DesiredState,
    Event,
    Handover,
    Phase,
    Request,
    associating,
    before,
    lost_a_place,
    settled,
)


@dataclass(frozen=True, slots=True)
class Hard:
    """See the module."""

    name: str = "hard"

    def start(self, request: Request, now_s: float) -> Handover:
        """See :class:`MobilityManager`."""
        return Handover(request, Phase.ASSOCIATING, now_s)

    def on(self, handover: Handover, event: Event, now_s: float) -> Handover:
        """See :class:`MobilityManager`."""
        if handover.is_over:
            return handover
        lost = lost_a_place(handover, event, now_s, Phase.SWITCHING)
        if lost is not None:
            return lost
        if handover.phase is Phase.ASSOCIATING:
            return associating(handover, event, Phase.SWITCHING, now_s)
        done = isinstance(event, Confirmed) and event.wanted == self.wanted(handover)
        return handover.enter(Phase.DONE, now_s) if done else handover

    def tick(self, handover: Handover, now_s: float) -> Handover:
        """See :class:`MobilityManager`."""
        due_s = self.due_s(handover)
        if due_s is None or now_s < due_s:
            return handover
        if handover.phase is Phase.ASSOCIATING:
            return handover.enter(Phase.FAILED, now_s, f"the client did not join {handover.request.new}")
        return handover.enter(Phase.DONE, now_s)

    def due_s(self, handover: Handover) -> float | None:
        """See :class:`MobilityManager`."""
        timings = handover.request.timings
        waits = {Phase.ASSOCIATING: timings.associate_s, Phase.SWITCHING: timings.confirm_s}
        return handover.entered_s + waits[handover.phase] if handover.phase in waits else None

    def wanted(self, handover: Handover) -> DesiredState:
        """See :class:`MobilityManager`."""
        if handover.phase is Phase.ASSOCIATING:
            return before(handover)
        if handover.phase is Phase.SWITCHING:
            new = (handover.request.new,)
            return DesiredState(new, new, leave=next(iter(handover.old_places), None))
        return settled(handover)


MANAGER = Hard()

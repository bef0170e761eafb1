"""Which events of other instances are shown: those of the leader that etcd names, of its epoch or an earlier one. Pure.

Readers skip events with ids below one that they have had, so an id that no leader gave would silence all later ones.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from hyroads.controller.model.events import EVENTS_PER_EPOCH, Event

MAX_HELD = 8192
"""Events of each instance that wait for etcd to name it."""


@dataclass
class EventGate:
    """Events of an instance that etcd does not name, or not yet with that epoch, wait until it does."""

    leader: str = ""
    """The leader that etcd named last."""
    epoch: int = 0
    _held: dict[str, deque[Event]] = field(default_factory=dict)

    def take(self, name: str, event: Event) -> tuple[Event, ...]:
        """An instance sent an event: the events to show now."""
        if name == self.leader and self._is_given(event):
            return (event,)
        self._held.setdefault(name, deque(maxlen=MAX_HELD)).append(event)
        return ()

    def names(self, leader: str, epoch: int) -> tuple[Event, ...]:
        """Etcd names the leader of an epoch: the events to show now."""
        if epoch < self.epoch:
            return ()
        self.leader, self.epoch = leader, epoch
        return self._released()

    def _is_given(self, event: Event) -> bool:
        return event.id < (self.epoch + 1) * EVENTS_PER_EPOCH

    def _released(self) -> tuple[Event, ...]:
        """Events of the leader in the order in which they came, as far as their epoch is known."""
        held = self._held.pop(self.leader, deque())
        shown = tuple(event for event in held if self._is_given(event))
        left = [event for event in held if not self._is_given(event)]
        if left:
            self._held[self.leader] = deque(left, maxlen=MAX_HELD)
        return shown

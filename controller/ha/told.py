"""Events of flows as they are saved with the state that they tell of, see :class:`~..model.events.EventLog`. Pure.

They are part of what services save, so that one change is one transaction: below ``intents/services/told/`` a key for
the events of each change, or several if there are many. Only the latest are kept: followers have heard those before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from hyroads.controller.model.events import MAX_EVENTS, Event

from .store import INTENTS

_NAME = "told"
TOLD_KEYS = f"{INTENTS}services/{_NAME}/"
LATEST = 64
"""So many events are kept at least, if there were so many."""
TOGETHER = 100
"""So many are in one key at most."""

Told = deque[tuple[Event, ...]]
"""Those of one key together, oldest first."""


def told_with(told: Iterable[tuple[Event, ...]], new: tuple[Event, ...]) -> Told:
    """What is to be saved with a change of which ``new`` tell."""
    new = new[-MAX_EVENTS:]
    found = Told([*told, *(new[at : at + TOGETHER] for at in range(0, len(new), TOGETHER))])
    count, least = sum(map(len, found)), max(LATEST, len(new))
    while found and count - len(found[0]) >= least:
        count -= len(found.popleft())
    return found


def told_objects(told: Told) -> dict[str, Any]:
    """As services' state."""
    objects = [{"id": str(events[0].id), "events": [_row(event) for event in events]} for events in told]
    return {_NAME: objects} if objects else {}


def told_in(services: Mapping[str, Any]) -> Iterator[tuple[Event, ...]]:
    """The events in services' state, oldest first; what can't be used is left out."""
    objects = services.get(_NAME)
    for one in objects if isinstance(objects, list) else ():
        rows = one.get("events") if isinstance(one, dict) else None
        events = tuple(event for row in (rows if isinstance(rows, list) else ()) if (event := _event(row)) is not None)
        if events:
            yield events


def _row(event: Event) -> list[Any]:
    return [event.id, event.time_s, event.kind, event.document]


def _event(row: Any) -> Event | None:
    match row:
        case [int(number), int() | float() as time_s, "flow.declared" | "flow.removed" as kind, dict(document)]:
            if isinstance(document.get("id"), str) and 0 <= number < 10**18:
                return Event(number, float(time_s), kind, document)
    return None

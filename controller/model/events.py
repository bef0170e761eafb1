"""Events for listeners: a bounded ring of them, and which events follow from a change of state. Pure.

Waiting is the caller's :class:`Bell`, so that this module does not depend on green threads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

from hyroads.controller.core.netfile_sections import flow_document

from .state import DeclaredFlow, Origin, Presence, State, TopologyContext

Document = Mapping[str, Any]
MAX_EVENTS = 4096
MAX_AT_ONCE = 256


class Bell(Protocol):
    """Wakes those who wait."""

    def notify(self) -> None:
        """Wake all who wait now."""

    def wait(self, timeout_s: float) -> bool:
        """Wait for the next :meth:`notify`; False after the time is over."""


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened. ``kind`` is ``thing.what``; ids rise by one, ``time_s`` is Unix time."""

    id: int
    time_s: float
    kind: str
    document: Document


class EventLog:
    """The latest events. Readers keep their own place, so a slow one costs nothing and misses what fell out."""

    def __init__(self, clock: Callable[[], float], bell: Bell, *, max_events: int = MAX_EVENTS) -> None:
        self._clock = clock
        self._bell = bell
        self._ring: deque[Event] = deque(maxlen=max_events)
        # Later controllers have higher ids, so that a reader who saw the last one's notices what it missed.
        self._next = int(clock()) * 1_000_000

    @property
    def last(self) -> int:
        """The id of the latest event."""
        return self._next - 1

    @property
    def first(self) -> int:
        """The id of the oldest event that is still held (of the next one, if none is)."""
        return self._ring[0].id if self._ring else self._next

    def publish(self, kind: str, document: Document) -> int:
        """Tell all who listen; the event's id. The document must be ready for JSON and not change any more."""
        event = Event(self._next, self._clock(), kind, document)
        self._next += 1
        self._ring.append(event)
        self._bell.notify()
        return event.id

    def since(self, last: int) -> list[Event]:
        """Events after the one with id ``last``, oldest first, some at a time."""
        start = max(0, last + 1 - self.first)
        return list(islice(self._ring, start, start + MAX_AT_ONCE))

    def wait(self, last: int, timeout_s: float) -> bool:
        """Wait for an event after ``last``; False after the time is over."""
        return last < self.last or self._bell.wait(timeout_s)


Change = tuple[str, Document]
_PRESENCE = {Presence.UP: "up", Presence.DOWN: "down"}


def changes(before: State, after: State, context: TopologyContext) -> Iterator[Change]:
    """What a transition of the state tells."""
    parts = (("switch", before.switches, after.switches), ("agent", before.agents, after.agents))
    for thing, was, now in parts:
        for node in _differing(was, now):
            if now[node] in _PRESENCE:
                yield f"{thing}.{_PRESENCE[now[node]]}", {"node": node}
    yield from _links(before, after, context)
    yield from _flows(before, after)


def _links(before: State, after: State, context: TopologyContext) -> Iterator[Change]:
    for link in _affected(before, after, context):
        declared = context.network.links[context.network.link_index[link]]
        was, now = before.link_fault(context, declared), after.link_fault(context, declared)
        if was != now:
            yield f"link.{'down' if now else 'up'}", {"link": link, "reason": now}


def _affected(before: State, after: State, context: TopologyContext) -> Iterable[str]:
    """Ids of links that may have come or gone; asking all of them takes long in a large network."""
    links = (before.silent ^ after.silent) | (before.held ^ after.held)
    nodes = {*_differing(before.switches, after.switches), *_differing(before.ports, after.ports)}
    network = context.network
    links |= {link for node in nodes for link in context.links_at.get(node, ())}
    was, now = before.capacity_mbps, after.capacity_mbps
    if was is not now:
        # What nobody measures counts as the network file says.
        declared = (1.0,) * len(network.links)
        pairs = zip(network.links, was or declared, now or declared, strict=True)
        links |= {link.id for link, a, b in pairs if bool(a) != bool(b)}
    return sorted(links)


def _differing(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    return [] if was is now else [key for key, value in now.items() if was.get(key) != value]


def _flows(before: State, after: State) -> Iterator[Change]:
    if before.flows is after.flows:
        return
    was, now = _users(before), _users(after)
    for flow in sorted(now.keys() - was.keys()):
        yield "flow.declared", flow_document(now[flow].spec)
    for flow in sorted(was.keys() - now.keys()):
        yield "flow.removed", {"id": flow}


def _users(state: State) -> dict[str, DeclaredFlow]:
    """Flows that somebody else declared."""
    return {flow: declared for flow, declared in state.flows.items() if declared.origin is not Origin.TEST}

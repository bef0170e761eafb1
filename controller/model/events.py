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
from hyroads.controller.core.network import FlowSpec

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


EVENTS_PER_EPOCH = 1_000_000_000
"""With several controllers the id of an event is the epoch of the leader that told it, times this, and a number."""
_AGAIN_S = 3.0


class EventLog:
    """The latest events. Readers keep their own place, so a slow one costs nothing and misses what fell out.

    A controller that follows another one shows the events of that (:meth:`mirror`), and puts its own aside: once it
    leads it tells those of the last seconds that the one before did not live to tell.
    """

    def __init__(
        self, clock: Callable[[], float], bell: Bell, *, max_events: int = MAX_EVENTS, several: bool = False
    ) -> None:
        self._clock = clock
        self._bell = bell
        self._ring: deque[Event] = deque(maxlen=max_events)
        # Later controllers have higher ids, so that a reader who saw the last one's notices what it missed.
        self._last = self._dropped = 0 if several else int(clock()) * 1_000_000 - 1
        self._least = 0
        self._aside: deque[tuple[float, str, Document]] | None = None
        self.listeners: list[Callable[[Event], None]] = []
        """Told of each event that is published here."""

    @property
    def last(self) -> int:
        """The id of the latest event."""
        return self._last

    @property
    def first(self) -> int:
        """The least id that a reader may still ask for without having missed anything."""
        return self._dropped + 1

    def publish(self, kind: str, document: Document) -> int:
        """Tell all who listen; the event's id. The document must be ready for JSON and not change any more."""
        if self._aside is not None:
            self._aside.append((self._clock(), kind, document))
            return self._last
        event = Event(max(self._last + 1, self._least), self._clock(), kind, document)
        self._append(event)
        for listener in self.listeners:
            listener(event)
        return event.id

    def _append(self, event: Event) -> None:
        if len(self._ring) == self._ring.maxlen:
            self._dropped = self._ring[0].id
        self._ring.append(event)
        self._last = event.id
        self._bell.notify()

    # -- several controllers

    def follow(self) -> None:
        """Another controller tells what happens from now on."""
        if self._aside is None:
            self._aside = deque(maxlen=MAX_AT_ONCE)

    def lead(self, epoch: int, flows: Mapping[str, FlowSpec] | None = None) -> None:
        """We tell what happens from now on, as the leader of an epoch, and what of ``flows`` (those that there are) is
        otherwise than the one before told: it may have ended between telling and saving.
        """
        aside, self._aside, self._least = self._aside or (), None, epoch * EVENTS_PER_EPOCH
        since_s = self._clock() - _AGAIN_S
        told = [(event.kind, event.document) for event in self._ring if event.time_s >= since_s - _AGAIN_S]
        for at_s, kind, document in aside:
            if (kind, document) in told:
                told.remove((kind, document))
            elif at_s >= since_s and kind.startswith(_OF_DEVICES):
                self.publish(kind, document)
        if flows is not None:
            self._correct(flows, {str(each["id"]) for _, kind, each in aside if kind == _DECLARED})

    def _correct(self, flows: Mapping[str, FlowSpec], untold: set[str]) -> None:
        told = {str(each.document["id"]): each.kind for each in self._ring if each.kind in (_DECLARED, _REMOVED)}
        for flow in sorted(told.keys() | untold):
            is_told = told.get(flow) == _DECLARED
            if is_told and flow not in flows:
                self.publish(_REMOVED, {"id": flow})
            elif not is_told and flow in flows:
                self.publish(_DECLARED, flow_document(flows[flow]))

    def mirror(self, event: Event) -> None:
        """The controller that leads told an event."""
        if self._aside is None or event.id <= self._last:
            return
        if not self._ring:
            self._dropped = event.id - 1
        self._append(event)

    def all(self) -> tuple[Event, ...]:
        """All that are kept, from any thread."""
        return tuple(self._ring)

    # -- readers

    def since(self, last: int) -> list[Event]:
        """Events after the one with id ``last``, oldest first, some at a time."""
        if not self._ring or last >= self._last:
            return []
        if self._ring[-1].id - self._ring[0].id == len(self._ring) - 1:
            start = max(0, last + 1 - self._ring[0].id)
            return list(islice(self._ring, start, start + MAX_AT_ONCE))
        return list(islice((event for event in self._ring if event.id > last), MAX_AT_ONCE))

    def wait(self, last: int, timeout_s: float) -> bool:
        """Wait for an event after ``last``; False after the time is over."""
        return last < self.last or self._bell.wait(timeout_s)


_DECLARED, _REMOVED = "flow.declared", "flow.removed"
_OF_DEVICES = ("switch.", "agent.", "link.")
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
        yield _DECLARED, flow_document(now[flow].spec)
    for flow in sorted(was.keys() - now.keys()):
        yield _REMOVED, {"id": flow}


def _users(state: State) -> dict[str, DeclaredFlow]:
    """Flows that somebody else declared."""
    return {flow: declared for flow, declared in state.flows.items() if declared.origin is not Origin.TEST}

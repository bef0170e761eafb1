"""Events for listeners: a bounded ring of them, and which events follow from a change of state. Pure.

Waiting is the caller's :class:`Bell`, so that this module does not depend on green threads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter
from typing import Any, Protocol

from hyroads.controller.core.mappings import differing
from hyroads.controller.core.netfile_sections import flow_document
from hyroads.controller.core.network import FlowSpec
from hyroads.controller.core.port_readings import changed_ports

from .state import DeclaredFlow, Origin, Presence, State

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
_Happened = tuple[float, str, Document]
"""When, of which kind, and what."""


class EventLog:
    """The latest events. Readers keep their own place, so a slow one costs nothing and misses what fell out.

    A controller that follows another one shows the events of that (:meth:`mirror`), and puts its own aside: once it
    leads it tells what devices did in the last seconds and the one before did not live to tell.

    Flows are told once, however leaders end, because *a flow's event is saved, with its id, before anybody is told*:

    1. The leader keeps events of flows back until it saves the state that they tell of (:meth:`to_save`). They get
       their ids then, and are saved before that state; other events wait for the answer, so that ids only rise.
    2. When they are saved all are told (:meth:`saved`). When they are not (:meth:`not_saved`), the change is taken
       back, and what was declared and removed again is never told.
    3. The next leader reads them with the state (:meth:`lead`). It tells those that it has not heard under the ids
       that they have, so a reader that had them from the one before gets none twice, and any other reader gets all.
       It sends others what it has before anything of its own, so that their logs have no gaps either.
    4. Only a leader that ended between two transactions of one change leaves events without their state. The next one
       tells the opposite.

    One case is left: etcd takes a change and does not answer, and the leader goes on and ends, or is overtaken, before
    it can take that back. A reader that had another event in between is not told of that change.
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
        self._several = several
        self._aside: deque[_Happened] | None = None
        self._unsaved: dict[str, list[_Happened]] = {}
        """By flow, what happened to it and is still to be saved."""
        self._saving: tuple[Event, ...] = ()
        """Of flows, of which the state is being saved."""
        self._waiting: list[_Happened] = []
        """Others that happened meanwhile."""
        self._overheard: deque[Event] = deque(maxlen=max_events)
        """Of another leader, while we believed to lead."""
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
        """Tell all who listen, at once or when it may be; the id of the latest event. The document must be ready for
        JSON and not change any more.
        """
        happened = self._clock(), kind, document
        if self._several and kind in _OF_FLOWS:
            if self._aside is None:
                self._keep(happened)
        elif self._aside is not None:
            self._aside.append(happened)
        elif self._saving:
            self._waiting.append(happened)
        else:
            self._tell(self._next(happened))
        return self._last

    def _next(self, happened: _Happened) -> Event:
        return Event(max(self._last + 1, self._least), *happened)

    def _tell(self, event: Event) -> None:
        self._append(event)
        for listener in self.listeners:
            listener(event)

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
            self._aside = deque(self._waiting, maxlen=MAX_AT_ONCE)
            self._unsaved, self._saving, self._waiting = {}, (), []
            for event in self._overheard:
                self.mirror(event)
            self._overheard.clear()

    def lead(
        self,
        epoch: int,
        flows: Mapping[str, FlowSpec] | None = None,
        *,
        saved: Iterable[Event] = (),
        never_saved: Iterable[str] = (),
        down: Mapping[str, str] | None = None,
    ) -> bool:
        """We tell what happens from now on, as the leader of an epoch; whether there are events to be saved.

        ``flows`` are those that there are by what was saved, ``saved`` the latest events of flows with that;
        ``never_saved`` are flows that only we know of. ``down`` says why links are down, by id: a link whose last event
        says something else gets one more.
        """
        aside, self._aside, self._least = self._aside or (), None, epoch * EVENTS_PER_EPOCH
        self._overheard.clear()
        untold = {*never_saved, *self._hear(saved)}
        # Others may have heard less of the one before, and take nothing older than what they have.
        for event in islice(self._ring, max(0, len(self._ring) - MAX_AT_ONCE), None):
            for listener in self.listeners:
                listener(event)
        if not self._ring:
            # Whoever led before may have told anything.
            self._dropped = max(self._dropped, self._least - 1)
        since_s = self._clock() - _AGAIN_S
        told = [(event.kind, event.document) for event in self._ring if event.time_s >= since_s - _AGAIN_S]
        for at_s, kind, document in aside:
            if (kind, document) in told:
                told.remove((kind, document))
            elif at_s >= since_s and kind.startswith(_OF_DEVICES):
                self.publish(kind, document)
        if down is not None:
            self._correct_links(down)
        if flows is not None:
            self._correct(flows, untold)
        return bool(self._unsaved)

    def _hear(self, saved: Iterable[Event]) -> Iterator[str]:
        """Take events that the one before saved; flows of those that nobody was told of, because others overtook."""
        known = {(event.id, event.kind, event.document.get("id")) for event in self._ring}
        for event in sorted(saved, key=attrgetter("id")):
            if event.id > self._last:
                self._mirror(event)
            elif event.id > self._dropped and (event.id, event.kind, event.document.get("id")) not in known:
                yield str(event.document["id"])

    def _correct(self, flows: Mapping[str, FlowSpec], untold: Iterable[str]) -> None:
        told = {str(each.document["id"]): each.kind for each in self._ring if each.kind in _OF_FLOWS}
        for flow in sorted({*told, *untold}):
            is_told = told.get(flow) == _DECLARED
            if is_told and flow not in flows:
                self.publish(_REMOVED, {"id": flow})
            elif not is_told and flow in flows:
                self.publish(_DECLARED, flow_document(flows[flow]))

    def _correct_links(self, down: Mapping[str, str]) -> None:
        last = {str(each.document.get("link")): each.document.get("reason") for each in self._ring
                if each.kind in _OF_LINKS}  # fmt: skip
        for link, reason in last.items():
            if down.get(link) != reason:
                self.publish(*link_changed(link, down.get(link)))

    def mirror(self, event: Event) -> None:
        """The controller that leads told an event."""
        if event.id > self._last:
            if self._aside is None:
                self._overheard.append(event)
            else:
                self._mirror(event)

    def _mirror(self, event: Event) -> None:
        if not self._ring:
            self._dropped = event.id - 1
        self._append(event)

    def all(self) -> tuple[Event, ...]:
        """All that are kept, from any thread."""
        return tuple(self._ring)

    # -- events of flows, of which the state is saved first

    def to_save(self) -> tuple[Event, ...]:
        """Events to be saved with the state of now. :meth:`saved` or :meth:`not_saved` is to be called afterwards."""
        first = max(self._last + 1, self._least)
        unsaved = (happened for of_flow in self._unsaved.values() for happened in of_flow)
        self._saving = tuple(Event(first + number, *each) for number, each in enumerate(unsaved))
        self._unsaved = {}
        return self._saving

    def saved(self) -> None:
        """What :meth:`to_save` gave is saved: tell it, and what waited for it."""
        saving, self._saving = self._saving, ()
        for event in saving:
            self._tell(event)
        self._go_on()

    def not_saved(self) -> None:
        """It is not, or that is not known: its ids are never used, and it is saved with the state next time, unless
        the opposite happens before.
        """
        saving, self._saving = self._saving, ()
        if saving:
            self._least = saving[-1].id + 1
            later, self._unsaved = self._unsaved, {}
            for each in saving:
                self._keep((each.time_s, each.kind, each.document))
            for happened in (happened for of_flow in later.values() for happened in of_flow):
                self._keep(happened)
        self._go_on()

    def _go_on(self) -> None:
        waiting, self._waiting = self._waiting, []
        for happened in waiting:
            self._tell(self._next(happened))

    def _keep(self, happened: _Happened) -> None:
        """Keep an event back. A flow that nobody was told of is removed without anybody being told."""
        _, kind, document = happened
        of_flow = self._unsaved.setdefault(str(document["id"]), [])
        if kind == _REMOVED and of_flow and of_flow[-1][1] == _DECLARED:
            of_flow.pop()
        else:
            of_flow.append(happened)

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

    def knows(self, last: int, within_s: float) -> bool:
        """Whether a reader may go on from an event here: of several controllers, one may have heard less than the
        reader by now, and soon has heard as much.
        """
        until_s = self._clock() + within_s
        while last > self._last:
            left_s = until_s - self._clock()
            if not self._several or left_s <= 0 or not self._bell.wait(left_s):
                return False
        return True


_DECLARED, _REMOVED = "flow.declared", "flow.removed"
_OF_FLOWS = frozenset((_DECLARED, _REMOVED))
_LINK_UP, _LINK_DOWN = "link.up", "link.down"
_OF_LINKS = frozenset((_LINK_UP, _LINK_DOWN))
_OF_DEVICES = ("switch.", "agent.", "link.")
Change = tuple[str, Document]
_PRESENCE = {Presence.UP: "up", Presence.DOWN: "down"}


def link_changed(link: str, reason: str | None) -> Change:
    """The event of a link that is down for a reason from now on; None: it is up."""
    return _LINK_UP if reason is None else _LINK_DOWN, {"link": link, "reason": reason}


def changes(before: State, after: State) -> Iterator[Change]:
    """Events of switches, agents and flows that follow from a transition of the state."""
    parts = (("switch", before.switches, after.switches), ("agent", before.agents, after.agents))
    for thing, was, now in parts:
        for node in _differing(was, now):
            if now[node] in _PRESENCE:
                yield f"{thing}.{_PRESENCE[now[node]]}", {"node": node}
    yield from _ports(before, after)
    yield from _flows(before, after)


def _ports(before: State, after: State) -> Iterator[Change]:
    if before.readings is after.readings:
        return
    for port, is_large in changed_ports(before.readings, after.readings):
        yield f"port.{'large' if is_large else 'small'}", port.document()


def _differing(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    return [] if was is now else [key for key, value in now.items() if was.get(key) != value]


def _flows(before: State, after: State) -> Iterator[Change]:
    if before.flows is after.flows:
        return
    changed = sorted(differing(before.flows, after.flows))
    was, now = _users(before, changed), _users(after, changed)
    for flow in [flow for flow in changed if flow in now and flow not in was]:
        yield _DECLARED, flow_document(now[flow].spec)
    for flow in [flow for flow in changed if flow in was and flow not in now]:
        yield _REMOVED, {"id": flow}


def _users(state: State, flows: Iterable[str]) -> dict[str, DeclaredFlow]:
    """Those of some flows that somebody else declared."""
    found = ((flow, state.flows.get(flow)) for flow in flows)
    return {flow: declared for flow, declared in found if declared is not None and declared.origin is not Origin.TEST}

"""Server-sent events at ``/api/v1/events``: what happens in the network, as it happens.

The log of events is bounded. A reader that is too slow for it gets the event ``dropped`` and its stream ends; it can
come back with its Last-Event-ID. Who names the kind ``live`` also gets the live document, and once a second what
changed of it; these events are not in the log, and have the place of the event before them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import TYPE_CHECKING, Any

from flask import Response, g, request
from flask.typing import ResponseReturnValue

from hyroads.controller.core.admission import FairPlaces

from .contract import PREFIX, TooBusyError
from .live import LiveText
from .resource import Resource, problem
from .schemas import EventsQuery, ProblemSchema

if TYPE_CHECKING:
    from hyroads.controller.model.events import Event, EventLog

MAX_LISTENERS = 64
HEARTBEAT_S = 10.0
MIN_WAIT_S = 0.01
CATCH_UP_S = 3.0
LIVE = "live"
LIVE_EVERY_S = 1.0
MEDIA_TYPE = "text/event-stream"


Filter = Callable[["Event"], bool]
Live = Callable[[int | None], LiveText]
"""The live document since a version."""


def blueprint(
    log: EventLog,
    *,
    max_listeners: int = MAX_LISTENERS,
    heartbeat_s: float = HEARTBEAT_S,
    visible: Callable[[], Filter] = lambda: lambda event: True,
    live: Live | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Resource:
    """The resource ``events``; ``visible`` makes the filter of what the principal may see."""
    blueprint = Resource("events", url_prefix=f"{PREFIX}/events", description="What happens, as it happens")
    # Who listens, by a number each: a reader that ends twice must not free two places.
    listening = FairPlaces(max_listeners)
    numbers = count()

    @blueprint.get("")
    @blueprint.arguments(EventsQuery, location="query")
    @blueprint.response(200, description="a stream of events", content_type=MEDIA_TYPE)
    @blueprint.alt_response(400, schema=ProblemSchema, description="not a Last-Event-ID")
    @blueprint.alt_response(503, schema=ProblemSchema, description="too many listen already")
    def listen(query: dict[str, Any]) -> ResponseReturnValue:
        """Server-sent events from now on, or after Last-Event-ID; `follow=false` tells what is kept and ends."""
        given = request.headers.get("Last-Event-ID", "")
        if given and not (given.isascii() and given.isdigit() and len(given) <= 18):
            return problem(400, "Last-Event-ID: expected the id of an event")
        number = next(numbers)
        _take_place(listening, number, getattr(g, "principal", ""))
        last = int(given) if given else log.last if query["follow"] else log.first - 1
        kinds = tuple(kind for kind in query["kinds"].split(",") if kind)
        each_second = _LiveEvents(live, clock) if live is not None and LIVE in kinds else None
        follows_s = heartbeat_s if query["follow"] else None
        text = _stream(log, last, _filter(kinds, visible()), follows_s, each_second)
        text = _while(text, lambda: number in listening)
        answer = Response(text, content_type=f"{MEDIA_TYPE}; charset=utf-8", headers={"Cache-Control": "no-store"})
        answer.call_on_close(lambda: listening.leave(number))
        return answer

    return blueprint


def _take_place(listening: FairPlaces, number: int, name: str) -> None:
    """A place for one more listener of a token. If there is none, the token that has clearly more gives one up."""
    displaced = listening.gives_way(name) if listening.most else number
    if displaced is not None:
        if displaced not in listening or not listening.may_displace(displaced, name):
            raise TooBusyError(f"{listening.most} listen already")
        listening.leave(displaced)
    listening.enter(number, name)


class _LiveEvents:
    """What one reader gets of the live document."""

    def __init__(self, live: Live, clock: Callable[[], float]) -> None:
        self._live, self._clock = live, clock
        self._version: int | None = None
        self._due_s = clock()

    def wait_s(self) -> float:
        """How long until the next is due."""
        return max(0.0, self._due_s - self._clock())

    def text(self, last: int) -> str:
        """The event that is due; a reader that was away for long gets one for all of that time."""
        self._due_s = max(self._due_s + LIVE_EVERY_S, self._clock())
        self._version, text = self._live(self._version)
        return f"id: {last}\nevent: {LIVE}\ndata: {text}\n\n"


def _stream(
    log: EventLog, last: int, wanted: Filter, heartbeat_s: float | None, live: _LiveEvents | None = None
) -> Iterator[str]:
    """The text of the stream; without a heartbeat it ends with the latest event."""
    # Whoever comes back after longer than the log reaches learns that something is missing, and goes on.
    if not log.knows(last, CATCH_UP_S):
        last = log.first - 1
        yield _text("missed", {"detail": "the controller's log began again after that event"}, last)
    elif last + 1 < log.first:
        last = log.first - 1
        yield _text("missed", {"detail": "events before the oldest one that is kept"}, last)
    else:
        # From here on a reader that loses its connection has a place to come back to.
        yield f"id: {last}\n: listening\n\n"
    while True:
        if last + 1 < log.first:
            yield _text("dropped", {"detail": "too slow: events were lost; come back with Last-Event-ID"}, last)
            return
        events = log.since(last)
        for event in events:
            last = event.id
            if wanted(event):
                yield _text(event.kind, {"time_s": event.time_s, **event.document}, event.id)
        if live is not None and not live.wait_s():
            yield live.text(last)
        if not events and heartbeat_s is None:
            return
        if heartbeat_s is None:
            continue
        if live is not None:
            log.wait(last, max(MIN_WAIT_S, min(heartbeat_s, live.wait_s())))
        elif not log.wait(last, heartbeat_s):
            # Also finds out whether the reader is still there, and keeps its place in the log.
            yield f"id: {last}\n: alive\n\n"


def _while(text: Iterator[str], has_place: Callable[[], bool]) -> Iterator[str]:
    """The stream as long as its reader has a place."""
    for part in text:
        yield part
        if not has_place():
            # Without an id: the reader comes back to the last event that it has got.
            told = {"detail": "the place went to somebody who listens less often"}
            yield f"event: dropped\ndata: {json.dumps(told)}\n\n"
            return


def _filter(kinds: tuple[str, ...], visible: Filter) -> Filter:
    def wanted(event: Event) -> bool:
        kind = event.kind
        return (not kinds or any(kind == one or kind.startswith(f"{one}.") for one in kinds)) and visible(event)

    return wanted


def _text(kind: str, document: Mapping[str, Any], number: int) -> str:
    return f"id: {number}\nevent: {kind}\ndata: {json.dumps(document)}\n\n"

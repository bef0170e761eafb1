"""The desk of handovers: clients' flows move from one place to another without loss (docs/explanation/services.md,
section 3).

It runs the machine of a mobility manager per handover, tells it what happens, and has carried out what it wants. One
handover per client at a time: a second one cancels the first while nothing has moved, else it waits.

What handovers took, as Prometheus metrics.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from prometheus_client.core import HistogramMetricFamily

from hyroads.controller.control.slots import Histogram
from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.core.network import Place
from hyroads.controller.core.services.mobility import Associated, Left, Phase, Refused, Request, Steady
from hyroads.controller.model.handover import Key
from hyroads.controller.runtime.faults import wait_until
from hyroads.rest.contract import ConflictError, NotFoundError, TooBusyError

from . import plain as plain_handovers
from .execution import MAX_STEPS, Carrying, Document, Journey, idle_document, place_document
from .plain import NoPlainClients, PlainClients
from .requests import HARD, Asked, Managers, Office, asked_for, flows_of, is_here, new_id, old_place

KEPT = 1000
MAX_AT_ONCE = 1000
BOUNDS_S = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
Publish = Callable[[str, Mapping[str, Any]], object]


class HandoverDesk:
    """One per controller. :meth:`advance` is called whenever something may have happened."""

    def __init__(
        self,
        office: Office,
        publish: Publish,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
        managers: Managers | None = None,
        *,
        plain: PlainClients | None = None,
    ) -> None:
        self.seconds: dict[tuple[str, str], Histogram] = {}
        """By manager and outcome: from the request until the flows had moved."""
        self._office = office
        self._publish = publish
        self._clock = clock
        self._wall_clock = wall_clock
        self._managers = managers or Managers()
        self._plain = plain or NoPlainClients()
        self._active: dict[str, Journey] = {}
        self._waiting: dict[str, Asked] = {}
        self._history: OrderedDict[str, Document] = OrderedDict()
        self._here: dict[tuple[str, Place], tuple[bool, float]] = {}
        self.counters: Counter[str] = Counter()
        self._advancing = False

    # -- rest.handovers.Handovers

    def names(self) -> list[str]:
        """Ids of the latest handovers: those that are over, on their way, and waiting."""
        active = (journey.id for journey in self._active.values())
        return [*self._history, *active, *(asked.id for asked in self._waiting.values())]

    def documents(self, names: Sequence[str]) -> list[Document]:
        """These, as far as they are kept."""
        return [document for name in names if (document := self._found(name)) is not None]

    def document(self, handover: str) -> Document:
        """One; NotFoundError."""
        found = self._found(handover)
        if found is None:
            raise NotFoundError(f"no handover {handover[:64]!r}")
        return found

    def _found(self, handover: str) -> Document | None:
        over = self._history.get(handover)
        active = (journey.document() for journey in self._active.values() if journey.id == handover)
        waiting = (self._waiting_document(asked) for asked in self._waiting.values() if asked.id == handover)
        return over or next(chain(active, waiting), None)

    def _keep(self, document: Document) -> None:
        self._history[document["id"]] = document
        if len(self._history) > KEPT:
            self._history.popitem(last=False)

    def request(self, body: Mapping[str, Any], *, wait_s: float = 0.0) -> Document:
        """Move a client; ConfigError, ConflictError. Waits until its flows have moved or it failed."""
        if body["to"] is None and not self._plain.places(body["client"]):
            return self._release(body["client"])
        asked = self._asked(body)
        busy = self._active.get(asked.client)
        if busy is None:
            self._begin(asked)
        else:
            # Nobody needs the one before the last.
            self._drop_waiting(asked.client, "another handover was asked for")
            self._waiting[asked.client] = asked
            busy.cancel("another handover was asked for", self._clock())
        self.advance()
        wait_until(lambda: self._is_answered(asked), wait_s, self._clock, self._office)
        return self.document(asked.id)

    def cancel(self, handover: str) -> Document:
        """Give a handover up; NotFoundError, ConflictError if its flows have moved."""
        for client, asked in list(self._waiting.items()):
            if asked.id == handover:
                self._drop_waiting(client, "asked for")
                return self.document(handover)
        journey = next((journey for journey in self._active.values() if journey.id == handover), None)
        if journey is None:
            self.document(handover)
            raise ConflictError(f"handover {handover} is over")
        if not journey.cancel("asked for", self._clock()):
            raise ConflictError(f"handover {handover} can't be cancelled any more: it is {journey.handover.phase}")
        self.advance()
        return self.document(handover)

    # -- requests

    def _release(self, client: str) -> Document:
        """A client's flows use all its places again: paths come and go without loss anyway."""
        if client in self._active:
            raise ConflictError(f"{client} is being handed over")
        places = {key: confined.stays for key, confined in self._office.confinements.items() if key[0] == client}
        keys = [key for key, place in places.items() if place is not None]
        if not keys:
            raise ConflictError(f"{client} uses all its places already")
        old = places[keys[0]]
        self._office.confine(dict.fromkeys(keys))
        document = {
            **idle_document(new_id(), client, None, HARD, self._wall_clock()),
            "from": place_document(old),
            "phase": Phase.DONE.value,
            **_OVER,
        }
        self._keep(document)
        self._publish("handover.done", document)
        return document

    def _asked(self, body: Mapping[str, Any]) -> Asked:
        if len(self._active) + len(self._waiting) >= MAX_AT_ONCE:
            raise TooBusyError(f"there are {MAX_AT_ONCE} handovers on their way")
        if self._plain.places(body["client"]):
            return plain_handovers.asked_for(self._plain, body, self._clock(), self._wall_clock())
        return asked_for(self._office, self._managers, body, self._clock(), self._wall_clock())

    def _begin(self, asked: Asked) -> None:
        is_plain = bool(self._plain.places(asked.client))
        journey = plain_handovers.journey_of(self._plain, asked) if is_plain else self._journey(asked)
        self._active[asked.client] = journey
        self.counters["begun"] += 1
        self._publish("handover.begun", journey.document())
        for place in (journey.handover.request.old, asked.to):
            if place is not None:
                self._here.pop((asked.client, place), None)
        self._look(journey)

    def _journey(self, asked: Asked) -> Journey:
        office, client = self._office, asked.client
        chosen = flows_of(office, client).keys() if asked.flows is None else asked.flows
        keys: tuple[Key, ...] = ((client, None),)
        # What was said of single flows gives way to what is said of all.
        others = ((key, confined) for key, confined in office.confinements.items() if key[0] == client)
        dropped = tuple(key for key, confined in others if key not in keys and not confined.is_of_paths)
        if asked.flows is not None:
            keys, dropped = tuple((client, flow) for flow in sorted(asked.flows)), ()
        before = {key: office.confinements.get(key) for key in (*keys, *dropped)}
        # A flow that is no multipath follows the single path, which knows of no place.
        flows = frozenset(flow for flow in chosen if office.flow_plan(flow) is not None)
        now = before.get((client, None)) or next((each for each in before.values() if each is not None), None)
        old = old_place(office, client, now, flows, asked.to)
        if old == asked.to:
            raise ConflictError(f"{client} is at {asked.to} already")
        request = Request(asked.id, client, old, asked.to, flows, asked.timings)
        manager = self._managers.named(asked.manager, client, next(iter(sorted(flows)), None))
        carrying = Carrying(office, office.network, client, keys, flows, now, dropped)
        return Journey(
            manager.start(request, asked.asked_s), manager, carrying, before, asked.asked_s, asked.asked_at_s
        )

    # -- what happens

    def advance(self) -> None:
        """Look at everything that may have changed; again while that brings something about."""
        if self._advancing:
            return
        self._advancing = True
        try:
            for journey in list(self._active.values()):
                self._go_on(journey)
        finally:
            self._advancing = False

    def _go_on(self, journey: Journey) -> None:
        for _ in range(MAX_STEPS):
            before, in_force = journey.handover, journey.carrying.is_in_force
            now_s = self._clock()
            self._look(journey)
            self._listen(journey, now_s)
            journey.tick(now_s)
            self._carry_out(journey)
            if journey.is_over or (journey.handover == before and journey.carrying.is_in_force == in_force):
                break
        journey.carrying.settle()

    def _listen(self, journey: Journey, now_s: float) -> None:
        """Tells the machine what came of what it wanted; to another phase that would mean something else."""
        carrying = journey.carrying
        if journey.wanted() != carrying.wanted:
            return
        for event in carrying.events():
            journey.on(event, now_s)
            if journey.wanted() != carrying.wanted:
                return

    def _look(self, journey: Journey) -> None:
        """Tells the machine who is where."""
        request, now_s = journey.handover.request, self._clock()
        for place in (request.new, request.old):
            if place is None:
                continue
            here = self._is_here(request.client, place)
            known = self._here.get((request.client, place))
            if known is None or known[0] != here:
                self._here[request.client, place] = known = (here, now_s)
                if not here:
                    journey.on(Left(place), now_s)
            if here and place == request.new:
                if journey.handover.phase is Phase.ASSOCIATING:
                    journey.on(Associated(place), now_s)
                if now_s - known[1] >= request.timings.steady_s and not journey.handover.is_steady:
                    journey.on(Steady(place), now_s)
            elif ("join", place) in journey.asked_of_client:
                refusal = self._plain.refusal(request.client)
                if refusal is not None:
                    journey.on(Refused(refusal), now_s)

    def _is_here(self, client: str, place: Place) -> bool:
        if self._plain.places(client):
            return self._plain.is_here(client, place)
        return is_here(self._office, client, place)

    def _carry_out(self, journey: Journey) -> None:
        handover, now_s = journey.handover, self._clock()
        wanted = journey.wanted()
        for what, place in (("join", wanted.join), ("leave", wanted.leave)):
            if place is not None and (what, place) not in journey.asked_of_client:
                journey.asked_of_client.add((what, place))
                document = {"handover": journey.id, "client": journey.client, **(place_document(place) or {})}
                self._publish(f"handover.{what}", document)
                if what == "join" and self._plain.places(journey.client):
                    self._plain.ask(journey.client, place)
        if journey.unchanged:
            if handover.is_over:
                self._restored(journey)
            return
        journey.carrying.want(wanted)
        if journey.moved_s is None and journey.has_moved and journey.carrying.sends:
            journey.moved_s = now_s
            self._publish("handover.moved", journey.document())
        # The machine's end is not the end: what it wants last is still to be confirmed, for as long as that takes.
        late = now_s - handover.entered_s > handover.request.timings.confirm_s
        if handover.is_over and (journey.carrying.is_in_force or late):
            self._over(journey)

    def _restored(self, journey: Journey) -> None:
        """It failed, and nothing is to be different from before."""
        if journey.carrying.wanted is not None:
            journey.carrying.restore(journey.before)
        self._over(journey)

    def _over(self, journey: Journey) -> None:
        journey.over_s = now_s = self._clock()
        journey.carrying.end()
        self._active.pop(journey.client, None)
        for place in (journey.handover.request.old, journey.handover.request.new):
            if place is not None:
                self._here.pop((journey.client, place), None)
        failed = journey.handover.phase is Phase.FAILED
        outcome = "failed" if failed else "done"
        self.counters[outcome] += 1
        took_s = (journey.moved_s if journey.moved_s is not None else now_s) - journey.asked_s
        self.seconds.setdefault((journey.manager.name, outcome), Histogram(BOUNDS_S)).add(took_s)
        document = journey.document()
        self._keep(document)
        self._publish(f"handover.{outcome}", document)
        self._next(journey.client)

    def _next(self, client: str) -> None:
        """The one that waited for this client."""
        asked = self._waiting.pop(client, None)
        if asked is None:
            return
        try:
            self._begin(asked)
        except HyroadsError as error:
            # It is there already, or its manager, a plugin, is gone.
            self._keep({**self._waiting_document(asked), **_never(str(error))})

    def _drop_waiting(self, client: str, reason: str) -> None:
        asked = self._waiting.pop(client, None)
        if asked is not None:
            document = {**self._waiting_document(asked), **_never(f"cancelled: {reason}")}
            self._keep(document)
            self._publish("handover.failed", document)

    def _is_answered(self, asked: Asked) -> bool:
        if asked.client in self._waiting:
            return self._waiting[asked.client].id != asked.id
        journey = self._active.get(asked.client)
        return journey is None or journey.id != asked.id or journey.moved_s is not None

    def _waiting_document(self, asked: Asked) -> Document:
        manager = self._managers.selection.name(asked=asked.manager, client=asked.client)
        return idle_document(asked.id, asked.client, asked.to, manager, asked.asked_at_s, asked.flows or ())


_OVER = {"over": True}


def _never(reason: str) -> Document:
    """Of a handover that was never begun."""
    return {"phase": Phase.FAILED.value, "reason": reason, **_OVER}


def handover_metrics(seconds: Mapping[tuple[str, str], Histogram]) -> Iterator[Any]:
    """By manager and outcome: from the request until the flows had moved, or it failed."""
    family = HistogramMetricFamily(
        "hyroads_handover_seconds", "From request to confirmed paths", labels=("manager", "outcome")
    )
    for labels, histogram in sorted(seconds.items()):
        family.add_metric(labels, histogram.cumulative(), histogram.total_s)
    yield family

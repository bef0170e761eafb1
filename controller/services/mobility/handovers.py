"""The service of handovers: moves clients' flows to another place without loss (docs/reference/handovers.md).

It runs the state machine of a mobility manager for each handover: it passes events to the machine and carries out what
the machine wants. There is one handover per client at a time. A second request cancels the first while nothing has
moved; otherwise it waits. :func:`handover_metrics` shows how long handovers took, for Prometheus.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import chain
from typing import Any

from prometheus_client.core import HistogramMetricFamily

from hyroads.controller.control.slots import Histogram
from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.core.network import Place
from hyroads.controller.core.services.mobility import Associated, Left, Phase, Refused, Request, Steady
from hyroads.controller.model.handover import Key
from hyroads.controller.runtime.faults import wait_until
from hyroads.controller.services.clients.declared import place_document
from hyroads.rest.contract import OPERATOR, ConflictError, NotFoundError, TooBusyError

from . import plain as plain_handovers
from .execution import MAX_STEPS, Document, HandoverRun, MobilityService, PathExecutor, idle_document, multipath_plan
from .plain import PlainClients
from .requests import HARD, CheckedRequest, Managers, checked_request, flows_of, links_are_up, new_id, old_place

MAX_HISTORY = 1000
MAX_AT_ONCE = 1000
BOUNDS_S = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


@dataclass(eq=False)
class HandoverService(MobilityService[HandoverRun]):
    """One per controller."""

    wall_clock: Callable[[], float]
    managers: Managers = field(default_factory=Managers)
    _: KW_ONLY
    plain: PlainClients

    def __post_init__(self) -> None:
        super().__post_init__()
        self.seconds: dict[tuple[str, str], Histogram] = {}
        """By manager and outcome: from the request until the flows had moved."""
        self._waiting: dict[str, CheckedRequest] = {}
        self._history: OrderedDict[str, Document] = OrderedDict()
        self._here: dict[tuple[str, Place], tuple[bool, float]] = {}
        self._unconfirmed: set[str] = set()
        """Ids of handovers that are over and that switches and agents may not have confirmed."""

    # -- rest.handovers.Handovers

    def forget(self) -> None:
        """Those that run are another controller's matter by now."""
        super().forget()
        self._waiting.clear()
        self._unconfirmed.clear()

    @property
    def running(self) -> int:
        """How many were begun, or wait for another of their client, and are not over."""
        return len(self._active) + len(self._waiting)

    def is_moving(self, client: str) -> bool:
        """Whether a handover of the client runs or waits."""
        return client in self._active or client in self._waiting

    def names(self) -> list[str]:
        """Ids of handovers: the latest that are over, those that run, and those that wait."""
        active = (run.id for run in self._active.values())
        return [*self._history, *active, *(asked.id for asked in self._waiting.values())]

    def documents(self, names: Sequence[str]) -> list[Document]:
        """The handovers of these ids; unknown ids are left out."""
        return [document for name in names if (document := self._found(name)) is not None]

    def document(self, handover: str) -> Document:
        """The handover of this id; NotFoundError if there is none."""
        found = self._found(handover)
        if found is None:
            raise NotFoundError(f"no handover {handover[:64]!r}")
        return found

    def _found(self, handover: str) -> Document | None:
        over = self._history.get(handover)
        active = (run.document() for run in self._active.values() if run.id == handover)
        waiting = (self._waiting_document(asked) for asked in self._waiting.values() if asked.id == handover)
        found = over or next(chain(active, waiting), None)
        return None if found is None else {**found, "pending": self._pending(found)}

    def _pending(self, document: Document) -> list[str]:
        """Switches and agents that have not confirmed where the flows of a handover go; also of one that is over."""
        if document["over"] and document["id"] not in self._unconfirmed:
            return []
        client = document["client"]
        is_plain = bool(self.plain.places(client))
        flows = document["flows"] or flows_of(self.port, client)
        found = self.plain.unconfirmed(client) if is_plain else self.port.unconfirmed(flows)
        if document["over"] and not found:
            self._unconfirmed.discard(document["id"])
        return found

    def waits(self) -> set[str]:
        """What handovers wait for that are over, or have begun."""
        over = [self._history[name] for name in self._unconfirmed]
        begun = [run.document() for run in self._active.values()]
        return {who for document in (*over, *begun) for who in self._pending(document)}

    def _keep(self, document: Document) -> None:
        self._history[document["id"]] = document
        if len(self._history) > MAX_HISTORY:
            self._unconfirmed.discard(self._history.popitem(last=False)[0])

    def owner(self, handover: str) -> str | None:
        """Name of the token that began a handover; None: there is none of this id."""
        over = self._history.get(handover)
        known = {run.id: run.owner for run in self._active.values()}
        known |= {asked.id: asked.owner for asked in self._waiting.values()}
        return over["owner"] if over else known.get(handover)

    def of_client(self, client: str) -> list[str]:
        """Ids of the handovers of a client that are not over."""
        run, asked = self._active.get(client), self._waiting.get(client)
        return [*([run.id] if run is not None else []), *([asked.id] if asked is not None else [])]

    def request(self, body: Mapping[str, Any], *, owner: str = OPERATOR, wait_s: float = 0.0) -> Document:
        """Move a client; ConfigError, ConflictError. Waits until its flows have moved or it failed."""
        if body["to"] is None and not self.plain.places(body["client"]):
            name = self._release(body["client"], owner)
        else:
            name = self._queued(replace(self._asked(body), owner=owner))
        self.advance()
        wait_until(lambda: self._is_answered(name), wait_s, self.clock, self.port.progress)
        return self.document(name)

    def _queued(self, asked: CheckedRequest) -> str:
        """Begin a handover, after the one that its client is in; its id."""
        busy = self._active.get(asked.client)
        if busy is None:
            self._begin(asked)
        else:
            # Nobody needs the one before the last.
            self._drop_waiting(asked.client, "another handover was asked for")
            self._waiting[asked.client] = asked
            busy.cancel("another handover was asked for", self.clock())
        return asked.id

    def cancel(self, handover: str, *, wait_s: float = 0.0) -> Document:
        """Give a handover up; NotFoundError, ConflictError if its flows have moved. Waits until all is as before."""
        for client, asked in list(self._waiting.items()):
            if asked.id == handover:
                self._drop_waiting(client, "asked for")
                return self.document(handover)
        run = next((run for run in self._active.values() if run.id == handover), None)
        if run is None:
            self.document(handover)
            raise ConflictError(f"handover {handover} is over")
        if not run.cancel("asked for", self.clock()):
            raise ConflictError(f"handover {handover} can't be cancelled any more: it is {run.handover.phase}")
        self.advance()
        wait_until(lambda: self._is_answered(handover), wait_s, self.clock, self.port.progress)
        return self.document(handover)

    def _release(self, client: str, owner: str) -> str:
        """A client's flows use all its places again: paths come and go without loss anyway. The id of that."""
        if client in self._active:
            raise ConflictError(f"{client} is being handed over")
        stays = {key: constrained.stays for key, constrained in self.port.state.constrained.items()}
        places = {key: place for key, place in stays.items() if key[0] == client and place is not None}
        if not places:
            raise ConflictError(f"{client} uses all its places already")
        old = next(iter(places.values()))
        self.port.constrain(dict.fromkeys(places))
        document = {
            **idle_document(new_id(), client, None, HARD, self.wall_clock()),
            "owner": owner,
            "from": place_document(old),
            "phase": Phase.DONE.value,
            "over": True,
        }
        self._keep(document)
        self._unconfirmed.add(document["id"])
        self.publish("handover.done", document)
        return str(document["id"])

    def _asked(self, body: Mapping[str, Any]) -> CheckedRequest:
        if len(self._active) + len(self._waiting) >= MAX_AT_ONCE:
            raise TooBusyError(f"there are {MAX_AT_ONCE} handovers already")
        if self.plain.places(body["client"]):
            return plain_handovers.checked_request(self.plain, body, self.clock(), self.wall_clock())
        return checked_request(self.port, self.managers, body, self.clock(), self.wall_clock())

    def _begin(self, asked: CheckedRequest) -> None:
        is_plain = bool(self.plain.places(asked.client))
        run = plain_handovers.handover_run_of(self.plain, asked) if is_plain else self._handover_run(asked)
        run.owner = asked.owner
        self._active[asked.client] = run
        self.counters["begun"] += 1
        self.publish("handover.begun", run.document())
        for place in (run.handover.request.old, asked.to):
            if place is not None:
                self._here.pop((asked.client, place), None)
        self._look(run)

    def _handover_run(self, asked: CheckedRequest) -> HandoverRun:
        port, client = self.port, asked.client
        chosen = flows_of(port, client).keys() if asked.flows is None else asked.flows
        keys: tuple[Key, ...] = ((client, None),)
        # A constraint of all flows replaces those of single flows.
        others = ((key, constrained) for key, constrained in port.state.constrained.items() if key[0] == client)
        dropped = tuple(key for key, constrained in others if key not in keys and not constrained.is_of_paths)
        if asked.flows is not None:
            keys, dropped = tuple((client, flow) for flow in sorted(asked.flows)), ()
        before = {key: port.state.constrained.get(key) for key in (*keys, *dropped)}
        # A flow that is no multipath follows the single path, which knows of no place.
        flows = frozenset(flow for flow in chosen if multipath_plan(port, flow) is not None)
        now = before.get((client, None)) or next((each for each in before.values() if each is not None), None)
        old = old_place(port, client, now, flows, asked.to)
        if old == asked.to:
            raise ConflictError(f"{client} is at {asked.to} already")
        request = Request(asked.id, client, old, asked.to, flows, asked.timings)
        manager = self.managers.named(asked.manager, client, next(iter(sorted(flows)), None))
        executor = PathExecutor(client, port, keys, flows, now, dropped)
        begun = manager.start(request, asked.asked_s)
        return HandoverRun(begun, manager, executor, before, asked.asked_s, asked.asked_at_s)

    def _go_on(self, run: HandoverRun) -> None:
        for _ in range(MAX_STEPS):
            before, in_force = run.handover, run.executor.is_in_force
            now_s = self.clock()
            self._look(run)
            self._listen(run, now_s)
            run.tick(now_s)
            self._carry_out(run)
            if run.is_over or (run.handover == before and run.executor.is_in_force == in_force):
                break
        run.executor.settle()

    def _listen(self, run: HandoverRun, now_s: float) -> None:
        """Tells the machine what came of what it wanted; to another phase that would mean something else."""
        executor = run.executor
        if run.wanted() != executor.wanted:
            return
        for event in executor.events():
            run.on(event, now_s)
            if run.wanted() != executor.wanted:
                return

    def _look(self, run: HandoverRun) -> None:
        """Tells the machine who is where."""
        request, now_s = run.handover.request, self.clock()
        for place in (request.new, request.old):
            if place is None:
                continue
            here = self._is_here(request.client, place)
            known = self._here.get((request.client, place))
            if known is None or known[0] != here:
                self._here[request.client, place] = known = (here, now_s)
                if not here:
                    run.on(Left(place), now_s)
            if here and place == request.new:
                if run.handover.phase is Phase.ASSOCIATING:
                    run.on(Associated(place), now_s)
                if now_s - known[1] >= request.timings.steady_s and not run.handover.is_steady:
                    run.on(Steady(place), now_s)
            elif ("join", place) in run.asked_of_client:
                refusal = self.plain.refusal(request.client)
                if refusal is not None:
                    run.on(Refused(refusal), now_s)

    def _is_here(self, client: str, place: Place) -> bool:
        if self.plain.places(client):
            return self.plain.is_here(client, place)
        return links_are_up(self.port, client, place)

    def _carry_out(self, run: HandoverRun) -> None:
        handover, now_s = run.handover, self.clock()
        wanted = run.wanted()
        for what, place in (("join", wanted.join), ("leave", wanted.leave)):
            if place is not None and (what, place) not in run.asked_of_client:
                run.asked_of_client.add((what, place))
                document = {"handover": run.id, "client": run.client, **(place_document(place) or {})}
                self.publish(f"handover.{what}", document)
                if what == "join" and self.plain.places(run.client):
                    self.plain.ask(run.client, place)
        if run.unchanged:
            if handover.is_over:
                # It failed, and nothing is to be different from before.
                if run.executor.wanted is not None:
                    run.executor.restore(run.before)
                self._over(run)
            return
        run.executor.want(wanted)
        if run.moved_s is None and run.has_moved and run.executor.sends:
            run.moved_s = now_s
            self.publish("handover.moved", run.document())
        # The machine's end is not the end: what it wants last is still to be confirmed, for as long as that takes.
        late = now_s - handover.entered_s > handover.request.timings.confirm_s
        if handover.is_over and (run.executor.is_in_force or late):
            self._over(run)

    def _over(self, run: HandoverRun) -> None:
        run.over_s = now_s = self.clock()
        run.executor.end()
        self._active.pop(run.client, None)
        for place in (run.handover.request.old, run.handover.request.new):
            if place is not None:
                self._here.pop((run.client, place), None)
        failed = run.handover.phase is Phase.FAILED
        outcome = "failed" if failed else "done"
        self.counters[outcome] += 1
        took_s = (run.moved_s if run.moved_s is not None else now_s) - run.asked_s
        self.seconds.setdefault((run.manager.name, outcome), Histogram(BOUNDS_S)).add(took_s)
        document = run.document()
        self._unconfirmed.add(run.id)
        self._keep(document)
        self.publish(f"handover.{outcome}", document)
        self._next(run.client)

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
            self.publish("handover.failed", document)

    def _is_answered(self, handover: str) -> bool:
        """Whether a handover has moved or failed, confirmed by all."""
        document = self.document(handover)
        return (document["over"] or document["moved_after_s"] is not None) and not document["pending"]

    def _waiting_document(self, asked: CheckedRequest) -> Document:
        manager = self.managers.selection.name(asked=asked.manager, client=asked.client)
        idle = idle_document(asked.id, asked.client, asked.to, manager, asked.asked_at_s, asked.flows or ())
        return {**idle, "owner": asked.owner}


def _never(reason: str) -> Document:
    """Of a handover that was never begun."""
    return {"phase": Phase.FAILED.value, "reason": reason, "over": True}


def handover_metrics(seconds: Mapping[tuple[str, str], Histogram]) -> Iterator[Any]:
    """By manager and outcome: from the request until the flows had moved, or it failed."""
    family = HistogramMetricFamily(
        "hyroads_handover_seconds", "From request to confirmed paths", labels=("manager", "outcome")
    )
    for labels, histogram in sorted(seconds.items()):
        family.add_metric(labels, histogram.cumulative(), histogram.total_s)
    yield family

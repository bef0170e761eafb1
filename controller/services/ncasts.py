"""The desk of n-casts: a live flow's packets go by several paths at once, and by one again
(docs/explanation/services.md, 5).

Paths are chosen by ``core.ncast`` for disjoint interference domains, or given. The first edge copies, the last one
passes each packet on once. It is carried out as handovers are: receivers first, markers behind what was sent before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol, cast

from hyroads.controller.control.handover import Key
from hyroads.controller.core import ncast
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.network import Network, Policy
from hyroads.controller.core.services.mobility import Phase
from hyroads.controller.core.services.place import Place
from hyroads.controller.numbering import PathName
from hyroads.controller.plan import FlowPlan
from hyroads.controller.services.carrying import Carrier, Carrying
from hyroads.controller.services.journey import MAX_STEPS
from hyroads.controller.services.ncast_documents import CHOSEN, KeptNCast, ncast_document
from hyroads.controller.services.waiting import wait_until
from hyroads.plugins.ncast import NCast
from hyroads.rest.contract import ConflictError, Document, NotFoundError, TooBusyError

MAX_NCASTS = 1000
CONFIRM_S = 5.0
Publish = Callable[[str, Mapping[str, Any]], object]
Ways = tuple[PathName, ...]


class Office(Carrier, Protocol):
    """What the desk needs of the coordinator."""

    @property
    def network(self) -> Network:
        """As the file says."""

    @property
    def live_network(self) -> Network:
        """With the capacities that plans count on, 0 where a link is down."""

    def flow_known(self, flow: str) -> bool:
        """Whether a flow is declared."""

    def note_unsaved(self) -> None:
        """What is to be saved has changed."""

    def is_saved(self) -> bool:
        """Whether all that is to be saved is on disk."""

    def wait(self, timeout_s: float) -> None:
        """Until something was confirmed, or the time is over."""


@dataclass
class Running:
    """One n-cast: the machine, what carries it out, and what is said of the choice of paths, if they were chosen."""

    flow: str
    state: NCast
    carrying: Carrying
    chosen: Mapping[str, Any]
    paths: tuple[PathName, ...]
    asked_s: float
    copying_s: float | None = None

    @property
    def key(self) -> Key:
        """What is confined."""
        return self.carrying.keys[0]

    def document(self) -> Document:
        """For REST."""
        return {
            "flow": self.flow,
            "copies": len(self.paths),
            "phase": self.state.phase.value,
            "reason": self.state.reason,
            "paths": [list(path) for path in self.paths],
            "shared_links": self.chosen.get("shared_links"),
            "contending_pairs": self.chosen.get("contending_pairs"),
            "expected_loss": self.chosen.get("expected_loss"),
            "copying_after_s": None if self.copying_s is None else self.copying_s - self.asked_s,
        }

    @property
    def kept(self) -> KeptNCast | None:
        """What a new controller needs to go on with it; None as long as, or once, there is nothing to go on with."""
        state = self.state
        if state.phase is not Phase.COPYING:
            return None
        target, _ = self.key
        after_s = 0.0 if self.copying_s is None else self.copying_s - self.asked_s
        return KeptNCast(self.flow, target, self.paths, cast("Ways", state.before), after_s, self.chosen)


class NCastDesk:
    """One per controller. :meth:`advance` is called whenever something may have happened."""

    def __init__(self, office: Office, publish: Publish, clock: Callable[[], float]) -> None:
        self.counters: Counter[str] = Counter()
        self._office = office
        self._publish = publish
        self._clock = clock
        self._running: dict[str, Running] = {}
        self._advancing = False

    # -- the state file

    def restore(self, kept: Iterable[KeptNCast]) -> None:
        """Goes on with what an earlier controller had; what is wanted of the flows is what ``kept`` says already."""
        for one in kept:
            flows, now_s = frozenset((one.flow,)), self._clock()
            state = NCast(flows, _as_places(one.before), _as_places(one.paths), now_s, Phase.COPYING)
            network, keys = self._office.network, (one.key,)
            carrying = Carrying(self._office, network, one.target, keys, flows, one.confined, wanted=state.wanted)
            asked_s = now_s - one.copying_after_s
            self._running[one.flow] = Running(one.flow, state, carrying, one.chosen, one.paths, asked_s, now_s)

    def to_save(self) -> list[Document]:
        """What ``ncasts_from`` needs."""
        found = (running.kept for running in self._running.values())
        return [ncast_document(kept) for kept in found if kept is not None]

    # -- rest.ncasts.NCasts

    def names(self) -> list[str]:
        """Flows that are n-cast, or on the way to it or from it."""
        return list(self._running)

    def documents(self, names: Sequence[str]) -> list[Document]:
        """These, as far as they are there."""
        return [self._running[flow].document() for flow in names if flow in self._running]

    def document(self, flow: str) -> Document:
        """One; NotFoundError."""
        return self._of(flow).document()

    def switch_on(self, body: Mapping[str, Any], *, wait_s: float = 0.0) -> Document:
        """Copies for a flow; ConfigError, ConflictError, TooBusyError. Answers once copies are sent."""
        flow = body["flow"]
        if flow in self._running:
            raise ConflictError(f"flow {flow} is n-cast already")
        if len(self._running) >= MAX_NCASTS:
            raise TooBusyError(f"there are {MAX_NCASTS} n-casts already")
        plan = self._plan(flow)
        paths, chosen = self._paths(plan, body)
        before = tuple(path.links for path in plan.paths if path.rate_mbps) or tuple(p.links for p in plan.paths)
        state = NCast(frozenset((flow,)), _as_places(before), _as_places(paths), self._clock())
        keys: tuple[Key, ...] = ((plan.spec.target, flow),)
        carrying = Carrying(self._office, self._office.network, plan.spec.target, keys, frozenset((flow,)), None)
        running = Running(flow, state, carrying, chosen, paths, self._clock())
        self._running[flow] = running
        self.counters["on"] += 1
        self._go_on(running)

        def is_settled() -> bool:
            return running.state.is_over or (running.copying_s is not None and self._office.is_saved())

        self._until(is_settled, wait_s)
        return running.document()

    def switch_off(self, flow: str, *, wait_s: float = 0.0) -> bool:
        """One path again, then whatever the flow is declared to use; whether that is so already. NotFoundError."""
        running = self._of(flow)
        plan = self._office.flow_plan(flow)
        alive = [path.links for path in plan.paths if path.rate_mbps] if plan is not None else []
        keep = next((path for path in running.paths if path in alive), running.paths[0])
        running.state = running.state.switched_off(_as_places([keep])[0], self._clock())
        self._office.note_unsaved()
        self._go_on(running)
        return self._until(lambda: flow not in self._running and self._office.is_saved(), wait_s)

    # -- what is asked for

    def _of(self, flow: str) -> Running:
        running = self._running.get(flow)
        if running is None:
            raise NotFoundError(f"flow {flow[:64]!r} is not n-cast")
        return running

    def _plan(self, flow: str) -> FlowPlan:
        if not self._office.flow_known(flow):
            raise ConfigError("request", "flow", f"no flow {flow[:64]!r}")
        plan = self._office.flow_plan(flow)
        if plan is None:
            raise ConflictError(f"flow {flow} is not carried by agents now")
        if plan.spec.policy is Policy.PRIVATE:
            raise ConflictError(f"flow {flow} is private: copies would show both networks all of it")
        return plan

    def _paths(self, plan: FlowPlan, body: Mapping[str, Any]) -> tuple[Ways, Mapping[str, Any]]:
        network = self._office.live_network
        if body.get("paths"):
            paths = tuple(tuple(path) for path in body["paths"])
            for index, path in enumerate(paths):
                _check_path(network, plan, path, f"paths[{index}]")
            if len(set(paths)) < len(paths):
                raise ConfigError("request", "paths", "expected different paths")
            return paths, {}
        choice = ncast.choose(network, plan.spec.source, plan.spec.target, body["copies"])
        if len(choice.paths) < 2:
            raise ConflictError(f"flow {plan.spec.id} has a single way only")
        chosen = dict(zip(CHOSEN, (choice.shared_links, choice.contending_pairs, choice.loss), strict=True))
        return tuple(tuple(network.links[link].id for link in path) for path in choice.paths), chosen

    # -- what happens

    def advance(self) -> None:
        """Look at everything that may have changed."""
        if self._advancing:
            return
        self._advancing = True
        try:
            for running in list(self._running.values()):
                self._go_on(running)
        finally:
            self._advancing = False

    def _go_on(self, running: Running) -> None:
        phase = running.state.phase
        for _ in range(MAX_STEPS):
            before, in_force = running.state, running.carrying.is_in_force
            now_s = self._clock()
            self._want(running)
            for event in running.carrying.events():
                running.state = running.state.on(event, now_s)
                # What is told is of what was wanted; to another phase it would mean something else.
                if running.state.wanted != running.carrying.wanted:
                    break
            running.state = running.state.tick(now_s)
            self._want(running)
            if running.state == before and running.carrying.is_in_force == in_force:
                break
        if running.state.phase is not phase:
            self._office.note_unsaved()
        running.carrying.settle()
        if running.state.phase is Phase.COPYING and running.carrying.is_drained:
            # Copies may be sent for days: until they end nobody needs to know what comes by which path.
            running.carrying.end()
        if running.state.phase is Phase.COPYING and running.copying_s is None and self._copies(running):
            running.copying_s = self._clock()
            self._publish("ncast.on", running.document())
        if running.state.is_over or not self._office.flow_known(running.flow):
            self._end(running)

    def _want(self, running: Running) -> None:
        if running.state.phase is not Phase.FAILED:
            running.carrying.want(running.state.wanted)

    def _copies(self, running: Running) -> bool:
        plan = self._office.flow_plan(running.flow)
        return running.carrying.is_in_force and plan is not None and plan.copies

    def _end(self, running: Running) -> None:
        running.carrying.restore({running.key: None})
        self._running.pop(running.flow, None)
        failed = running.state.phase is Phase.FAILED
        self.counters["failed" if failed else "off"] += 1
        self._publish("ncast.failed" if failed else "ncast.off", running.document())
        self._office.note_unsaved()

    def _until(self, done: Callable[[], bool], wait_s: float) -> bool:
        return wait_until(done, wait_s, self._clock, self._office)


def _as_places(paths: Iterable[PathName]) -> tuple[Place, ...]:
    """To the machine a path is a place like any other: it compares them and hands them on."""
    return tuple(cast("Place", path) for path in paths)


def _check_path(network: Network, plan: FlowPlan, path: PathName, where: str) -> None:
    unknown = [link for link in path if link not in network.link_index]
    if unknown:
        raise ConfigError("request", where, f"no link {unknown[0][:64]!r}")
    links = [network.links[network.link_index[link]] for link in path]
    ends = [(link.source, link.target) for link in links]
    joined = all(first[1] == second[0] for first, second in pairwise(ends))
    if not links or not joined or (ends[0][0], ends[-1][1]) != (plan.spec.source, plan.spec.target):
        raise ConfigError("request", where, f"expected a path from {plan.spec.source} to {plan.spec.target}")
    if any(link.capacity_mbps <= 0 for link in links):
        raise ConfigError("request", where, "a link of it is down")

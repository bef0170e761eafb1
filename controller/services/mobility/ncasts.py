"""The service of n-casts: sends a flow's packets by several paths at once (docs/reference/handovers.md).

Paths are chosen by ``core.ncast`` for disjoint interference domains, or given by the user. The first edge copies each
packet; the last edge passes it on once. Paths change as in handovers: receivers first, and sequence markers tell when
nothing is in flight any more.

N-casts are saved, because agents go on copying while no controller is there. A new controller must want from its first
plan on exactly what the old one wanted last. Then no agent is reconfigured, and no packet is lost or doubled. So what
receivers still wait for is saved, too; agents' reports tell the new controller when that has come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, cast

from hyroads.controller.core import ncast
from hyroads.controller.core.addressing import PathName
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.network import FlowSpec, Link, Network, Place, Policy
from hyroads.controller.core.services.mobility import Phase, Timings
from hyroads.controller.model.handover import Constrained, Key
from hyroads.controller.model.plan import FlowPlan
from hyroads.controller.runtime.faults import wait_until
from hyroads.controller.runtime.saver import Change
from hyroads.controller.services.port import pending_as_known
from hyroads.plugins.ncast import NCast
from hyroads.rest.contract import ConflictError, Document, NotFoundError, TooBusyError

from .execution import MAX_STEPS, MobilityService, PathExecutor, multipath_plan

MAX_NCASTS = 1000
MAX_PATHS = 16
_DOCUMENT = "state file"
Paths = tuple[PathName, ...]
CHOSEN = ("shared_links", "contending_pairs", "expected_loss")


@dataclass(frozen=True, slots=True)
class RestoredNCast:
    """An n-cast whose copies are sent. ``before``: the paths that carried the flow until then. ``chosen``: what was
    said of the choice of paths (docs/reference/handovers.md); empty if they were given. ``waits``: those of ``before``
    by which something may still be in flight, which receivers wait for.
    """

    flow: str
    target: str
    paths: tuple[PathName, ...]
    before: tuple[PathName, ...]
    copying_after_s: float
    chosen: Mapping[str, Any]
    waits: tuple[PathName, ...] = ()

    @property
    def key(self) -> Key:
        """What is constrained."""
        return self.target, self.flow

    @property
    def constrained(self) -> Constrained:
        """What was wanted last."""
        known = tuple(dict.fromkeys((*self.before, *self.paths)))
        hold_s = Timings().hold_s if self.waits else 0.0
        return Constrained(known, self.paths, copies=True, waits=self.waits, hold_s=hold_s)


def ncast_document(saved: RestoredNCast) -> dict[str, Any]:
    """An n-cast as the state file holds it."""
    return {
        "flow": saved.flow,
        "paths": [list(path) for path in saved.paths],
        "before": [list(path) for path in saved.before],
        "copying_after_s": saved.copying_after_s,
        "chosen": dict(saved.chosen),
        "waits": [list(path) for path in saved.waits],
    }


def ncasts_from(
    documents: object, network: Network, flows: Mapping[str, FlowSpec]
) -> tuple[list[RestoredNCast], list[ConfigError]]:
    """What :func:`ncast_document` saved; what the network or the flows do not have any more is left out."""
    found: dict[str, RestoredNCast] = {}
    problems = []
    for index, document in enumerate(documents if isinstance(documents, list) else ()):
        try:
            restored = _restored(document, network, flows, f"services.ncasts[{index}]")
        except ConfigError as error:
            problems.append(error)
        else:
            found[restored.flow] = restored
    return list(found.values()), problems


def _restored(document: Any, network: Network, flows: Mapping[str, FlowSpec], where: str) -> RestoredNCast:
    match document:
        case {
            "flow": str(flow),
            "paths": [_, _, *_] as paths,
            "before": [_, *_] as before,
            "copying_after_s": int() | float() as after_s,
            "chosen": dict(chosen),
        } if flow in flows:
            spec = flows[flow]
            # Earlier versions did not save it.
            waiting = document.get("waits", [])
        case _:
            raise ConfigError(_DOCUMENT, where, "expected a flow that is declared, and its paths")
    said = {name: value for name, value in chosen.items() if name in CHOSEN and isinstance(value, int | float)}
    used, earlier, waits = (_paths(given, network, spec, where) for given in (paths, before, waiting))
    if not set(waits) <= set(earlier):
        raise ConfigError(_DOCUMENT, where, "expected to wait for paths of before only")
    chosen = said if len(said) == len(CHOSEN) else {}
    return RestoredNCast(flow, spec.target, used, earlier, float(after_s), chosen, waits)


def _paths(given: object, network: Network, spec: FlowSpec, where: str) -> tuple[PathName, ...]:
    if isinstance(given, list) and len(given) <= MAX_PATHS and all(_is_path(path, network, spec) for path in given):
        found = tuple(tuple(path) for path in given)
        if len(set(found)) == len(found):
            return found
    raise ConfigError(_DOCUMENT, where, f"expected different paths from {spec.source} to {spec.target}")


def _is_path(path: object, network: Network, spec: FlowSpec) -> bool:
    index = network.link_index
    if not isinstance(path, list) or not all(isinstance(link, str) and link in index for link in path):
        return False
    return _joins([network.links[index[link]] for link in path], spec)


def _joins(links: Sequence[Link], spec: FlowSpec) -> bool:
    """Whether links make a path from the source of a flow to its target."""
    joined = bool(links) and all(first.target == second.source for first, second in pairwise(links))
    return joined and (links[0].source, links[-1].target) == (spec.source, spec.target)


@dataclass
class Running:
    """One n-cast: the machine, what carries it out, and what is said of the choice of paths, if they were chosen."""

    flow: str
    state: NCast
    executor: PathExecutor
    chosen: Mapping[str, Any]
    paths: tuple[PathName, ...]
    asked_s: float
    copying_s: float | None = None
    change: Change | None = None
    """Once copies are wanted: how far they are saved."""

    @property
    def key(self) -> Key:
        """What is constrained."""
        return self.executor.keys[0]

    def document(self) -> Document:
        """For REST."""
        return {
            "flow": self.flow,
            "copies": len(self.paths),
            "phase": self.state.phase.value,
            "reason": self.state.reason,
            "paths": [list(path) for path in self.paths],
            **{name: self.chosen.get(name) for name in CHOSEN},
            "copying_after_s": None if self.copying_s is None else self.copying_s - self.asked_s,
        }

    @property
    def saved(self) -> RestoredNCast | None:
        """What a new controller needs to go on with it; None as long as, or once, there is nothing to go on with."""
        state = self.state
        if state.phase is not Phase.COPYING:
            return None
        target, _ = self.key
        after_s = 0.0 if self.copying_s is None else self.copying_s - self.asked_s
        waits = cast("Paths", self.executor.now.waits) if self.executor.now is not None else ()
        return RestoredNCast(self.flow, target, self.paths, cast("Paths", state.before), after_s, self.chosen, waits)


class NCastService(MobilityService[Running]):
    """One per controller."""

    # -- the state file

    def restore(self, restored: Iterable[RestoredNCast]) -> None:
        """Go on with n-casts of an earlier controller, whose flows are constrained already."""
        for one in restored:
            flows, now_s = frozenset((one.flow,)), self.clock()
            state = NCast(flows, _as_places(one.before), _as_places(one.paths), now_s, Phase.COPYING)
            executor = PathExecutor(one.target, self.port, (one.key,), flows, one.constrained, wanted=state.wanted)
            asked_s = now_s - one.copying_after_s
            self._active[one.flow] = Running(one.flow, state, executor, one.chosen, one.paths, asked_s, now_s)

    def to_save(self) -> list[Document]:
        """What ``ncasts_from`` needs."""
        found = (running.saved for running in self._active.values())
        return [ncast_document(ncast) for ncast in found if ncast is not None]

    # -- rest.ncasts.NCasts

    def names(self) -> list[str]:
        """Flows that are n-cast, or that begin or end to be."""
        return list(self._active)

    def documents(self, names: Sequence[str]) -> list[Document]:
        """The n-casts of these flows; flows that are not n-cast are left out."""
        return [self.document(flow) for flow in names if flow in self._active]

    def document(self, flow: str) -> Document:
        """The n-cast of this flow; NotFoundError if there is none."""
        return {**self._of(flow).document(), "pending": pending_as_known(self.port, partial(self.pending, flow))}

    def switch_on(self, body: Mapping[str, Any], *, wait_s: float = 0.0) -> Document:
        """Copies for a flow; ConfigError, ConflictError, TooBusyError. Answers once copies are sent."""
        flow = body["flow"]
        self.port.saver.check()
        if flow in self._active:
            raise ConflictError(f"flow {flow} is n-cast already")
        if len(self._active) >= MAX_NCASTS:
            raise TooBusyError(f"there are {MAX_NCASTS} n-casts already")
        plan = self._plan(flow)
        paths, chosen = self._paths(plan, body)
        before = tuple(path.links for path in plan.paths if path.rate_mbps) or tuple(p.links for p in plan.paths)
        flows, target = frozenset((flow,)), plan.spec.target
        state = NCast(flows, _as_places(before), _as_places(paths), self.clock())
        executor = PathExecutor(target, self.port, ((target, flow),), flows, None)
        running = Running(flow, state, executor, chosen, paths, self.clock())
        self._active[flow] = running
        self.counters["on"] += 1
        self._go_on(running)

        def is_settled() -> bool:
            is_saved = running.change is not None and running.change.is_over
            is_on = running.copying_s is not None and is_saved and not self.port.unconfirmed([flow])
            return running.state.is_over or is_on

        self._until(is_settled, wait_s)
        if running.change is not None:
            running.change.check()
        return {**running.document(), "pending": self.port.unconfirmed([flow])}

    def switch_off(self, flow: str, *, wait_s: float = 0.0) -> bool:
        """One path again, then whatever the flow is declared to use; whether that is so already. NotFoundError."""
        running = self._of(flow)
        self.port.saver.check()
        self._end_copies(running)
        return self._until(lambda: not self.pending_end(flow), wait_s)

    def pending(self, flow: str) -> list[str]:
        """What an n-cast still waits for until its copies are sent and saved, with switches and agents that have not
        confirmed it; NotFoundError, NotSavedError.
        """
        self.port.saver.check_refused(f"n-cast of {flow}")
        running = self._of(flow)
        step = [] if running.copying_s is not None else [f"n-cast of {flow}: {running.state.phase.value}"]
        is_unsaved = running.change is not None and not running.change.is_saved
        return [*step, *self.port.unconfirmed([flow]), *([self.port.saver.where] if is_unsaved else [])]

    def pending_end(self, flow: str) -> list[str]:
        """What the end of an n-cast still waits for, with switches and agents that have not confirmed it; empty: it is
        over and saved.
        """
        step = [f"n-cast of {flow}: {self._active[flow].state.phase.value}"] if flow in self._active else []
        return [*step, *self.port.unconfirmed([flow]), *self.port.saver.unsaved]

    def waits(self) -> set[str]:
        """Switches and agents that have not confirmed n-casts."""
        return set(self.port.unconfirmed(self._active))

    def _take_back(self, flow: str) -> None:
        if flow in self._active:
            self._end_copies(self._active[flow])

    def _end_copies(self, running: Running) -> None:
        plan = multipath_plan(self.port, running.flow)
        alive = [path.links for path in plan.paths if path.rate_mbps] if plan is not None else []
        keep = next((path for path in running.paths if path in alive), running.paths[0])
        running.state = running.state.switched_off(_as_places([keep])[0], self.clock())
        self.port.note_unsaved()
        self._go_on(running)

    def _of(self, flow: str) -> Running:
        running = self._active.get(flow)
        if running is None:
            raise NotFoundError(f"flow {flow[:64]!r} is not n-cast")
        return running

    def _plan(self, flow: str) -> FlowPlan:
        if flow not in self.port.state.flows:
            raise ConfigError("request", "flow", f"no flow {flow[:64]!r}")
        plan = multipath_plan(self.port, flow)
        if plan is None:
            raise ConflictError(f"flow {flow} is not carried by agents now")
        if plan.spec.policy is Policy.PRIVATE:
            raise ConflictError(f"flow {flow} is private: copies would show both networks all of it")
        return plan

    def _paths(self, plan: FlowPlan, body: Mapping[str, Any]) -> tuple[Paths, Mapping[str, Any]]:
        network = self.port.live.network.network
        if body.get("paths"):
            paths = tuple(tuple(path) for path in body["paths"])
            for index, path in enumerate(paths):
                _check_path(network, plan, path, f"paths[{index}]")
            if len(set(paths)) < len(paths):
                raise ConfigError("request", "paths", "expected different paths")
            return paths, {}
        choice = ncast.choose(network, plan.spec.source, plan.spec.target, body["copies"])
        if len(choice.paths) < 2:
            raise ConflictError(f"flow {plan.spec.id} has a single path only")
        chosen = dict(zip(CHOSEN, (choice.shared_links, choice.contending_pairs, choice.loss), strict=True))
        return tuple(tuple(network.links[link].id for link in path) for path in choice.paths), chosen

    def _go_on(self, run: Running) -> None:
        phase = run.state.phase
        run.executor.resume()
        for _ in range(MAX_STEPS):
            before, in_force = run.state, run.executor.is_in_force
            now_s = self.clock()
            self._want(run)
            for event in run.executor.events():
                run.state = run.state.on(event, now_s)
                # What is told is of what was wanted; to another phase it would mean something else.
                if run.state.wanted != run.executor.wanted:
                    break
            run.state = run.state.tick(now_s)
            self._want(run)
            if run.state == before and run.executor.is_in_force == in_force:
                break
        if run.state.phase is Phase.COPYING is not phase:
            undo = partial(self._take_back, run.flow)
            run.change = self.port.saver.change(f"n-cast of {run.flow}", undo)
        elif run.state.phase is not phase:
            self.port.note_unsaved()
        run.executor.settle()
        if run.state.phase is Phase.COPYING and run.executor.is_drained:
            # Copies may be sent for days: until they end nobody needs to know what comes by which path.
            run.executor.end()
        if run.state.phase is Phase.COPYING and run.copying_s is None and self._copies(run):
            run.copying_s = self.clock()
            self.publish("ncast.on", run.document())
        if run.state.is_over or run.flow not in self.port.state.flows:
            self._end(run)

    def _want(self, running: Running) -> None:
        if running.state.phase is not Phase.FAILED:
            running.executor.want(running.state.wanted)

    def _copies(self, running: Running) -> bool:
        plan = multipath_plan(self.port, running.flow)
        return running.executor.is_in_force and plan is not None and plan.copies

    def _end(self, running: Running) -> None:
        running.executor.restore({running.key: None})
        self._active.pop(running.flow, None)
        failed = running.state.phase is Phase.FAILED
        self.counters["failed" if failed else "off"] += 1
        self.publish("ncast.failed" if failed else "ncast.off", running.document())
        self.port.note_unsaved()

    def _until(self, done: Callable[[], bool], wait_s: float) -> bool:
        return wait_until(done, wait_s, self.clock, self.port.progress)


def _as_places(paths: Iterable[PathName]) -> tuple[Place, ...]:
    """To the machine a path is a place like any other: it compares them and hands them on."""
    return tuple(cast("Place", path) for path in paths)


def _check_path(network: Network, plan: FlowPlan, path: PathName, where: str) -> None:
    unknown = [link for link in path if link not in network.link_index]
    if unknown:
        raise ConfigError("request", where, f"no link {unknown[0][:64]!r}")
    links = [network.links[network.link_index[link]] for link in path]
    if not _joins(links, plan.spec):
        raise ConfigError("request", where, f"expected a path from {plan.spec.source} to {plan.spec.target}")
    if any(link.capacity_mbps <= 0 for link in links):
        raise ConfigError("request", where, "a link of it is down")

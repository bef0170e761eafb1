"""A running controller takes other settings and another network file: as a whole, or not at all.

Everything is read and checked before anything changes. What then changes goes the way of requests over REST: a new
state, from which a plan follows, of which only the difference is sent. Each step that is made notes how it is undone;
if a later one fails, or the state can't be planned or saved, those before it are undone in reverse order. No other
green thread runs between the steps, so none ever sees half of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial

from hyroads.controller.control.loop import LiveLoop
from hyroads.controller.core.addressing import FIRST_FLOW, LAST_FLOW
from hyroads.controller.core.errors import ConfigError, HyroadsError, PlanningError
from hyroads.controller.core.network import Network
from hyroads.controller.core.region_view import region_view
from hyroads.controller.framework import ryu_shim as shim
from hyroads.controller.model import state as model
from hyroads.controller.model.state import DeclaredFlow, Origin, State
from hyroads.controller.settings.changes import Changes, Files, compare
from hyroads.controller.settings.controller import Settings
from hyroads.rest.contract import ConflictError, Document, NotConfirmedError

from .event_loop import EventLoop
from .faults import wait_until
from .from_settings import loop_options_of

LOG = logging.getLogger("hyroads.controller")
CONFIRM_WITHIN_S = 5.0
MOST_NAMED = 100
"""Places that an answer and a log line name; a network file that was mistaken for another differs in thousands."""


class ReloadRefusedError(ConflictError):
    """Nothing was taken: ``errors`` says what is wrong by place, ``restart`` what only a new process can take."""

    def __init__(self, detail: str, **details: object) -> None:
        self.details = {name: value for name, value in details.items() if value}
        super().__init__(detail)


def refused_files(error: ConfigError) -> ReloadRefusedError:
    """The answer to files that are wrong: the first error in words, all of them by file and place."""
    errors: dict[str, list[str]] = {}
    for one in (error, *error.more):
        errors.setdefault(f"{one.document}: {one.place}" if one.place else one.document, []).append(one.problem)
    return ReloadRefusedError(f"{error}; nothing was taken", errors=errors)


@dataclass(frozen=True)
class FlowEdits:
    """Flows to declare and ids to remove; one that changed is in both. ``problems`` are by place in the file."""

    new: tuple[DeclaredFlow, ...] = ()
    gone: tuple[str, ...] = ()
    problems: tuple[tuple[str, str], ...] = ()


def flow_edits(old: Network, new: Network, declared: Mapping[str, DeclaredFlow]) -> FlowEdits:
    """What a changed network file asks of the flows that are ``declared`` now. Pure.

    A flow of the file that somebody removed over REST stays removed until the file says something else of it. A flow
    that somebody declared over REST is never changed: the file may only say the same of it.
    """
    before = {flow.id: flow for flow in old.flows}
    added, gone, problems = [], [], []
    for spec in new.flows:
        known = declared.get(spec.id)
        if before.get(spec.id) == spec:
            continue
        if known is not None and known.origin is not Origin.FILE and known.spec != spec:
            problems.append((f"flows.{spec.id}", "was declared over REST with other content"))
            continue
        added.append(DeclaredFlow(spec, Origin.FILE))
        if known is not None and known.spec != spec:
            gone.append(spec.id)
    present = {flow.id for flow in new.flows}
    for flow in before.keys() - present:
        if flow in declared and declared[flow].origin is Origin.FILE:
            gone.append(flow)
    return FlowEdits(tuple(added), tuple(sorted(gone)), tuple(problems))


@dataclass
class Steps:
    """What was done so far, and how it is undone. :meth:`undo` may be called twice."""

    _undone_by: list[Callable[[], object]] = field(default_factory=list)

    def do(self, step: Callable[[], object], undo: Callable[[], object]) -> None:
        """Make a step; if it raises, it counts as begun and is undone with the others."""
        self._undone_by.append(undo)
        step()

    def undo(self) -> None:
        """Everything is as it was before the first step."""
        while self._undone_by:
            self._undone_by.pop()()


@dataclass(eq=False)
class Reloader:
    """``read`` gives the files as they are now (:class:`ConfigError`). ``follow`` makes the steps of all who keep
    parts of the settings themselves, from those of before to those of now. One reload runs at a time; others wait.
    """

    event_loop: EventLoop
    read: Callable[[], Files]
    _: KW_ONLY
    follow: Callable[[Steps, Settings, Settings], None] = lambda steps, old, new: None

    def __post_init__(self) -> None:
        self._lock = shim.new_lock()

    def reload(self) -> Document:
        """Take what the files say now; what changed. ReloadRefusedError (nothing was taken), NotSavedError (the same),
        NotConfirmedError (taken, and not everybody has confirmed it yet).
        """
        with self._lock:
            began_s = self.event_loop.clock()
            try:
                files = self._read()
                changes, edits = self._check(files)
                self._take(files, changes, edits)
            except HyroadsError as error:
                if not isinstance(error, NotConfirmedError):
                    self.event_loop.fault("reload", str(error))
                raise
            took_s = self.event_loop.clock() - began_s
            what = ", ".join(changes.live[:MOST_NAMED]) or "nothing differs"
            LOG.info("reloaded in %.3f s: %s", took_s, what)
            self.event_loop.events.publish("controller.reloaded", {"changed": list(changes.live[:MOST_NAMED])})
            self._confirm(edits)
            return {"changed": list(changes.live), "took_s": took_s}

    def _read(self) -> Files:
        try:
            # Reading and checking a large network takes long, and touches nothing of ours.
            found: Files = shim.in_thread(self.read)
        except ConfigError as error:
            raise refused_files(error) from error
        return self._of_region(found)

    def _of_region(self, files: Files) -> Files:
        """The network as the controller of a region sees it."""
        view = self.event_loop.context.view
        if view is None:
            return files
        try:
            now, network = region_view(files.network, view.name, (FIRST_FLOW, LAST_FLOW), files.settings.network)
        except ConfigError as error:
            raise refused_files(error) from error
        if not now.is_like(view):
            problem = "needs a restart: network: regions, or the links that join them; nothing was taken"
            raise ReloadRefusedError(problem, restart=["network: regions"])
        return replace(files, network=network)

    def _check(self, files: Files) -> tuple[Changes, FlowEdits]:
        event_loop = self.event_loop
        old = Files(event_loop.settings, event_loop.declared)
        changes: Changes = shim.in_thread(compare, old, files)
        if changes.restart:
            named = ", ".join(changes.restart[:MOST_NAMED])
            more = f" and {len(changes.restart) - MOST_NAMED} more" if len(changes.restart) > MOST_NAMED else ""
            raise ReloadRefusedError(
                f"needs a restart: {named}{more}; nothing was taken", restart=list(changes.restart[:MOST_NAMED])
            )
        if changes.live:
            # Nothing is begun that the state file can't take.
            event_loop.saver.check()
        edits = flow_edits(old.network, files.network, event_loop.state.flows)
        problems = [*edits.problems, *self._slices_gone(files.settings, edits)]
        if problems:
            where = files.settings.network
            errors = [ConfigError(where, place, problem) for place, problem in problems]
            raise refused_files(ConfigError(where, *problems[0], more=errors[1:]))
        return changes, edits

    def _slices_gone(self, settings: Settings, edits: FlowEdits) -> list[tuple[str, str]]:
        """Flows that stay and name a slice that the new settings do not have."""
        found = []
        for flow, declared in self.event_loop.state.flows.items():
            try:
                if flow not in edits.gone:
                    settings.slices.check_flow(declared.spec, settings.slices.document)
            except ConfigError as error:
                found.append((f"flows.{flow}.slice", error.problem))
        return found

    def _take(self, files: Files, changes: Changes, edits: FlowEdits) -> None:
        """From here on no other green thread runs until everything is done, or undone; but for planning in a thread,
        at whose beginning everything is done.
        """
        event_loop, steps = self.event_loop, Steps()
        if not changes.live:
            return
        old_settings, old_network = event_loop.settings, event_loop.declared
        change = None
        try:
            self.follow(steps, old_settings, files.settings)
            steps.do(partial(self._use, files), partial(self._use, Files(old_settings, old_network)))
            back = partial(_undone, event_loop.state, edits)
            step = partial(self._plan, partial(_done, files.network, changes, edits))
            steps.do(step, partial(self._change_back, back))
            change = event_loop.saver.change("reload", steps.undo)
        except Exception as error:
            steps.undo()
            if isinstance(error, HyroadsError):
                raise ReloadRefusedError(f"{error}; nothing was taken") from error
            raise
        if event_loop.settings.state_file is not None:
            event_loop.saver.wait(change)

    def _use(self, files: Files) -> None:
        """Everything of the files that is not part of the state."""
        event_loop = self.event_loop
        options = loop_options_of(files.network, files.settings)
        event_loop.settings, event_loop.declared = files.settings, files.network

        def use(loop: LiveLoop) -> None:
            if options != loop.options:
                loop.adopt(options)
            if _capacities_of(loop.declared) != _capacities_of(files.network):
                loop.declare(files.network, event_loop.clock())
            loop.declared = files.network

        event_loop.live.between_turns(use)

    def _plan(self, transition: Callable[[State], State]) -> None:
        """PlanningError if there is no plan of what the transition gives. The loop itself may have tried it first."""
        event_loop, wanted = self.event_loop, transition(self.event_loop.state).version
        event_loop.change(transition)
        if event_loop.plan is None or event_loop.plan.version < wanted:
            raise PlanningError("the network that the files describe can't be planned")

    def _change_back(self, back: Callable[[State], State]) -> None:
        try:
            self.event_loop.change(back)
        except PlanningError as error:
            # What was in force before is still in force: a plan that could not be made took nothing's place.
            self.event_loop.exception("taking back a reload", error)

    def _confirm(self, edits: FlowEdits) -> None:
        """NotConfirmedError if switches or agents take long to confirm flows that are new, changed or removed."""
        loop, flows = self.event_loop, sorted(_touched(edits))
        if flows and not wait_until(lambda: not loop.unconfirmed(flows), CONFIRM_WITHIN_S, loop.clock, loop.progress):
            raise NotConfirmedError("reload", loop.unconfirmed(flows))


def _capacities_of(network: Network) -> list[float]:
    return [link.capacity_mbps for link in network.links]


def _done(network: Network, changes: Changes, edits: FlowEdits, state: State) -> State:
    """The state with what the files say of flows, and of capacities and interference where they differ."""
    for flow in edits.gone:
        state = model.flow_removed(state, flow)
    for declared in edits.new:
        state = model.flow_declared(state, declared)
    capacities = tuple(_capacities_of(network)) if changes.capacities else state.capacity_mbps
    interference = network.interference if changes.interference else state.interference
    return model.measured(state, capacities, interference)


def _undone(before: State, edits: FlowEdits, state: State) -> State:
    """Flows, capacities and interference as they were ``before``; whatever else happened since stays."""
    for flow in {flow.spec.id for flow in edits.new}.union(edits.gone):
        state = model.flow_removed(state, flow)
    flows = {**state.flows, **{flow: each for flow, each in before.flows.items() if flow in _touched(edits)}}
    return replace(
        model.measured(state, before.capacity_mbps, before.interference), flows=flows, version=state.version + 1
    )


def _touched(edits: FlowEdits) -> set[str]:
    return {flow.spec.id for flow in edits.new} | set(edits.gone)

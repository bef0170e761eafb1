"""State -> routes -> rates -> plan, and what follows from one to the next.

    event     replan      what is dead goes, what is new comes, rates at once        (a cut link: a few ms)
              improve     significant changes move the flows that they affect; paths by a client's other places stand by
    slot      slot        measurements -> rates of all flows; significant changes -> state

The event loop calls these and deploys what they give. No I/O, no clock: times are arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from hyroads.controller.agents.configs import EgressFlow
from hyroads.controller.core.addressing import Numbers
from hyroads.controller.core.closed_loop import GroupAirtime
from hyroads.controller.core.errors import PlanningError
from hyroads.controller.core.infer.change import Change, ChangeDetector, FloatArray, domain_changes, merged
from hyroads.controller.core.mappings import differing, patched
from hyroads.controller.model.plan import Options, Plan
from hyroads.controller.model.state import State, TopologyContext
from hyroads.controller.model.state import measured as with_measured
from hyroads.controller.native.rates import Aside

from .allocators import Grant
from .live_network import Cache, LiveNetwork
from .loop import Leeway, LiveLoop, Turn
from .plan_maker import PlanMaker
from .reports import AgentRates, ReportRegistry
from .restored_routes import LeaderRoutes
from .route_maker import RouteMaker
from .routes import FlowRoute, Routes, asked, improved, is_warm, lives, rested, warm
from .segments import Segments

# So long after handovers, or after links came, flows are looked at whether they have all that they can have.
REST_AFTER_S = 0.5
MOST_PUT_OFF = 2
"""So many turns go on without new flows while somebody waits for something else."""
MOVED_AT_ONCE = 100
"""So many flows get better paths in one go."""
MOST_IN_PARTS = 1000
"""If more flows get other paths altogether at once, their first rates take longer than a turn of the loop."""

InThread = Callable[..., Any]
"""Calls a function with arguments, perhaps in another thread, and gives what it returns."""


def inline(function: Callable[..., Any], *arguments: object) -> Any:
    """Here and now."""
    return function(*arguments)


def _go_on() -> None:
    """Let nobody else run."""


@dataclass(frozen=True, slots=True)
class Preparation:
    """``run`` works out what planning needs; ``is_short``: in a few milliseconds."""

    run: Callable[[], None]
    is_short: bool


class Live:
    """Holds the plan in force and what it came from but the state. ``measures``: capacities are not the file's,
    ``routes``: the paths that flows had before (``restored_routes``), ``in_thread``: runs pure functions that may take
    long, ``in_background`` the search for better paths, ``in_parts``: a plan is made without a turn of the loop, and
    costs what the change touches (see :meth:`replan`), ``turns``: a lock that is held while the loop turns, ``pause``:
    lets others run in between, ``give_way``: the same within a slot, which has time until the next one, ``aside``:
    carries out the compiled solver's part of one, ``let_others``: called again and again by the search, which may wait
    there for who has more urgent work.
    """

    def __init__(
        self,
        context: TopologyContext,
        numbers: Numbers,
        options: Options,
        loop: LiveLoop,
        *,
        measures: bool = False,
        routes: Mapping[str, FlowRoute] | None = None,
        in_thread: InThread = inline,
        in_background: InThread = inline,
        in_parts: bool = False,
        turns: AbstractContextManager[Any] | None = None,
        pause: Callable[[], object] = lambda: None,
        give_way: Callable[[], object] | None = None,
        aside: Aside | None = None,
        let_others: Callable[[], object] = lambda: None,
    ) -> None:
        self._loop = loop
        self.plan: Plan | None = None
        self._maker, self._route_maker = PlanMaker(context, options), RouteMaker()
        self._numbers = numbers
        self._adopted: Numbers | None = None
        self._has_begun = False
        self._leader = LeaderRoutes()
        self._measures = measures
        self._context = context
        self._in_thread, self._in_background, self._in_parts = in_thread, in_background, in_parts
        self._turns, self._pause, self._let_others = turns or nullcontext(), pause, let_others
        self._is_turning, self._give_way, self._aside = False, give_way or pause, aside
        self.rates_urgent = False
        """Whether flows that were there before were routed otherwise after the last turn: the next should not wait."""
        self._is_laid_out = True
        self._put_off = 0
        """Turns since the loop should have been laid out."""
        self._measured_for: Plan | None = None
        """The plan whose flows were measured when the loop was laid out last."""
        self._first: dict[str, tuple[FlowRoute, tuple[float, ...]]] = {}
        """Rates of flows that were routed since the loop turned, and the routes that they are for."""
        self._cache = Cache(context)
        self._network: LiveNetwork | None = None
        self._restored = dict(routes or {})
        self._routes: Routes = dict(self._restored)
        self._planned: Routes = {}
        """The routes that the plan in force is made of. ``_routes`` may begin anew before they are planned."""
        self._detector = ChangeDetector()
        # The capacities that plans count on, and what they were made from.
        self._references: tuple[float, ...] = ()
        self._referenced: tuple[object, ...] = (None, None, None)
        self._pending: tuple[Change, ...] = ()
        self._better: dict[str, tuple[FlowRoute, FlowRoute]] = {}
        """Flows that :meth:`improve` has yet to move: the route of before, and a better one."""
        self._is_looking = False
        self._moved: frozenset[str] = frozenset()
        self._rests_at_s: float | None = None
        self._segments = Segments(context)
        self._arriving: Mapping[str, Mapping[str, EgressFlow]] = {}

    @property
    def loop(self) -> LiveLoop:
        """The loop, laid out for the routes of now."""
        if not self._is_laid_out:
            with self._turns:
                self._lay_out()
        return self._loop

    @property
    def laid_out(self) -> LiveLoop:
        """The loop as it was laid out last: flows of now may be missing. Nobody waits for it."""
        return self._loop

    def between_turns(self, work: Callable[[LiveLoop], None]) -> None:
        """Do what must not happen while the loop turns."""
        with self._turns:
            self._lay_out()
            work(self._loop)

    @property
    def keeps_guarantees(self) -> bool:
        """Whether the rates in force are made with the guarantees of now."""
        return self._loop.keeps_guarantees and not self._is_turning

    @property
    def granted(self) -> Mapping[str, Grant]:
        """What was made of the guarantees in the last turn."""
        return self._loop.granted

    def use_groups(self, airtime: GroupAirtime) -> None:
        """Multicast sessions take this from the next turn on."""
        self._loop.groups = airtime

    @property
    def is_complete(self) -> bool:
        """Whether everyone who measures has spoken."""
        return self._loop.complete

    @property
    def numbers(self) -> Numbers:
        """Flow numbers and path ids given so far."""
        if self._adopted is not None:
            return self._adopted
        return self.plan.numbers if self.plan else self._numbers

    def adopt_numbers(self, numbers: Numbers) -> None:
        """The next plan counts on these, which somebody else has given, and on no others."""
        self._adopted = numbers

    def follow_routes(self, routes: Routes) -> None:
        """Flows go by these paths from the next plan on, as the controller that leads has planned them."""
        self._leader.saved = routes
        if not self._has_begun:
            self._restored = dict(routes)

    def lead_from_here(self, now_s: float) -> bool:
        """From now on routes are ours, and begin as they were; whether that is something to plan."""
        leader = self._leader
        leader.saved = {**leader.saved, **leader.unsaved(self._network, now_s)}
        differs = self._as_leader()
        leader.saved = {}
        return differs

    def _as_leader(self) -> bool:
        """Take the routes of the leader where ours are others; whether there were any."""
        other = self._leader.unlike(self._routes)
        if other:
            self._routes = patched(self._routes, other)
            self._route_maker.adopt(self._routes, other)
        return bool(other)

    def adopt_rates(self, node: str, rates_mbps: Mapping[tuple[int, int], float]) -> None:
        """An agent has these rates, by flow number and path id, and they are as good as ours: only what matters changes
        them. A turn that is under way ends first: it would take them back.
        """
        if self.plan is not None:
            self.between_turns(lambda loop: self._adopt_rates(loop, node, rates_mbps))

    def _adopt_rates(self, loop: LiveLoop, node: str, rates_mbps: Mapping[tuple[int, int], float]) -> None:
        if self.plan is None or node not in self.plan.agents:
            return
        entries, flows = self.plan.agents[node].ingress, self.plan.flows
        told = {
            flow: tuple(rates_mbps.get((entry.number, path.id), -1.0) for path in flows[flow].paths)
            for flow, entry in entries.items()
        }
        adopted = loop.adopt_rates({flow: rates for flow, rates in told.items() if min(rates, default=-1.0) >= 0})
        if adopted:
            self.plan = self.plan.with_rates(adopted)
            self._maker.rated(adopted)

    @property
    def routes(self) -> Mapping[str, FlowRoute]:
        """By flow."""
        return self._routes

    @property
    def network(self) -> LiveNetwork:
        """The network that the plan was made for; ``PlanningError`` while there is none."""
        if self._network is None:
            raise PlanningError("nothing is planned yet")
        return self._network

    @property
    def in_force(self) -> Plan:
        """The plan; ``PlanningError`` while there is none."""
        if self.plan is None:
            raise PlanningError("nothing is planned yet")
        return self.plan

    def preparation(self, state: State, *, is_urgent: bool = True) -> Preparation:
        """What of :meth:`replan` takes longest and depends on nothing else: may run in another thread before it. If it
        is not urgent, who has more urgent work may have it wait (``let_others``).
        """
        live = self._cache.live(state)
        flows = self._segments.of(state)
        known, maker = self._routes, self._route_maker
        # Of this very network all is known but what new flows need.
        some = maker.fresh(flows, known) if live is self._network else maker.asked(live, flows, known)
        alone, planned = asked(live, [flows[flow].spec for flow in some], known, maker.taken)
        is_same = live is self._network
        is_short = is_warm(live, alone, planned) if is_same else not (alone or planned) and live.has_inherited
        return Preparation(partial(warm, live, alone, planned, _go_on if is_urgent else self._let_others), is_short)

    def replan(self, state: State, reports: ReportRegistry, now_s: float) -> Plan:
        """The plan of a new state: flows keep their paths as far as these live; rates are for now.

        In parts, flows whose paths changed get ``first_rates``, the others keep what they have, and :meth:`refresh` or
        the next slot finds the optimum.
        """
        live = self._cache.live(state)
        self._as_leader()
        self._arriving = state.arriving
        if self._context.view is not None:
            state = replace(state, flows=self._segments.of(state))
        if self._network is not None and self._routes:
            self._pending += domain_changes(live.network, self._network.network.interference)
        routes = self._route_maker.make(state, live, self._routes, same_network=live is self._network)
        self._note_moved(live, routes, now_s)
        self._use(live, routes, state.version, reports, now_s)
        if not self._detector.links:
            # Nothing is carried yet: this is what the first paths were planned with.
            links = [link.id for link in live.network.links]
            self._detector = self._detector.planned(links, live.capacities, now_s)
        else:
            self._look(live.capacities if not self._measures else self._estimated(), now_s)
        return self.in_force

    def improve(self, reports: ReportRegistry, now_s: float) -> Plan | None:
        """Moves flows for which the changes since the last time are worth it, and lets paths stand by for those that
        were handed over a while ago; None if there is nothing of either.
        """
        if not self._better:
            self.look_for_better(now_s)
        return self.move_to_better(reports, now_s)

    def may_improve(self, now_s: float) -> bool:
        """Whether :meth:`look_for_better` has something to look at."""
        is_free = self._network is not None and not self._better and not self._is_looking
        return is_free and (bool(self._pending) or self._should_rest(now_s))

    def _should_rest(self, now_s: float) -> bool:
        return self._rests_at_s is not None and now_s >= self._rests_at_s

    def look_for_better(self, now_s: float) -> None:
        """The slow part of :meth:`improve`. Others may plan and push meanwhile; it takes seconds in a large network."""
        if not self.may_improve(now_s) or self._network is None:
            return
        rests = self._should_rest(now_s)
        changes, self._pending = self._known_to(self._network)
        if not (changes or rests):
            return
        before, network, moved = self._routes, self._network, self._moved
        self._is_looking = True
        try:
            routes = self._in_background(_better, before, network, changes, moved if rests else None, self._let_others)
        finally:
            self._is_looking = False
        if rests and self._moved == moved:
            self._moved, self._rests_at_s = frozenset(), None
        if changes:
            self._loop.override.alerted(changes, now_s)
        # Of the flows that were looked at most stay where they are. Those that begin at one node are moved together: it
        # is configured once.
        found = (flow for flow in differing(before, routes) if before[flow] != routes[flow])
        better = sorted(found, key=lambda flow: (before[flow].ingress or "", flow))
        self._better = {flow: (before[flow], routes[flow]) for flow in better}

    def _known_to(self, live: LiveNetwork) -> tuple[tuple[Change, ...], tuple[Change, ...]]:
        """Pending changes that show in a network, and those of links whose first capacity the next state brings."""
        index, capacities = live.network.link_index, live.capacities
        counted = dict(zip(self._detector.links, self._detector.reference_mbps > 0, strict=True))
        changes = merged(self._pending)
        early = {
            change
            for change in changes
            if counted.get(change.link) and change.link in index and capacities[index[change.link]] <= 0
        }
        return tuple(each for each in changes if each not in early), tuple(each for each in changes if each in early)

    def move_to_better(self, reports: ReportRegistry, now_s: float) -> Plan | None:
        """Move some of the flows for which better paths were found; in parts, not all at once.

        Whatever was planned since then, the work was not in vain: flows that are as they were move, if their better
        paths still live.
        """
        live, better = self._network, self._better
        if live is None or not better:
            return None
        count = MOVED_AT_ONCE if self._in_parts else len(better)
        some = [(flow, better.pop(flow)) for flow in list(islice(better, count))]
        routes = self._routes
        moved = {
            flow: to
            for flow, (since, to) in some
            if routes.get(flow) == since and all(lives(live, path) for path in (*to.paths, *to.standby))
        }
        if not moved:
            return None
        self._leader.note_found(moved, now_s)
        routes = {**routes, **moved}
        self._route_maker.improved(routes)
        self._use(live, routes, self.in_force.version, reports, now_s)
        # A turn after each part would take longer than all of them.
        self.rates_urgent &= not self._better
        return self.in_force

    @property
    def has_better(self) -> bool:
        """Whether :meth:`improve` has found better paths of more flows than it has moved."""
        return bool(self._better)

    def slot(
        self, state: State, reports: ReportRegistry, now_s: float, *, ask: bool = True
    ) -> tuple[State, Plan | None]:
        """One slot: the state with what was measured (if that changed significantly), and the plan if rates changed."""
        plan = self.turn(reports, now_s, ask=ask)
        return self.with_measured(state, now_s), plan

    def turn(
        self,
        reports: ReportRegistry,
        now_s: float,
        *,
        ask: bool = True,
        is_urged: bool = False,
        in_one_go: bool = False,
        in_small_steps: bool = True,
    ) -> Plan | None:
        """New rates from what was measured; the plan if any changed.

        Before anything is pushed it only takes in what is measured, and does not ``ask`` the override. While another
        controller leads that is not asked either: what is measured comes of what that one has decided.

        Others may run while rates of other flows are worked out, unless it is ``in_one_go``, and more often
        ``in_small_steps``. Flows that they route otherwise keep what that plan gives them. ``is_urged``: somebody waits
        for something else, and new flows can do with their first rates for a few turns more.
        """
        if self.plan is None or not (ask or self._measures or self._has_begun):
            return None
        go = {"ask": ask, "is_urged": is_urged, "in_one_go": in_one_go, "in_small_steps": in_small_steps}
        return self._refreshed(reports, now_s, self._give_way, **go)

    def refresh(self, reports: ReportRegistry, now_s: float, *, in_one_go: bool = False) -> Plan | None:
        """New rates between slots, for what was routed since the last turn; the plan if any changed."""
        if self.plan is None:
            return None
        return self._refreshed(reports, now_s, self._pause, ask=False, in_one_go=in_one_go)

    def with_measured(self, state: State, now_s: float) -> State:
        """The state with the capacities that were measured, if these changed significantly."""
        if self.plan is None or not self._measures:
            return state
        self._look(self._estimated(), now_s)
        return self._with_references(state)

    def _refreshed(
        self,
        reports: ReportRegistry,
        now_s: float,
        give_way: Callable[[], object],
        *,
        ask: bool,
        in_one_go: bool,
        is_urged: bool = False,
        in_small_steps: bool = False,
    ) -> Plan | None:
        with self._turns:
            self._is_turning = True
            try:
                stays = is_urged and not self.rates_urgent and self._put_off < MOST_PUT_OFF
                self._put_off = self._put_off + 1 if stays else 0
                # With the flows of before a turn is short. Each time that others run it would wait for all of them.
                is_alone = in_one_go or stays or self._is_laid_out
                pause, run = _go_on if in_one_go or stays else give_way, inline if is_alone else self._in_thread
                leeway = Leeway(run)
                if in_small_steps and pause is not _go_on:
                    leeway = Leeway(run, pause, self._aside)
                if not stays or self._measured_for is None:
                    self._measured_for = self.in_force
                agents = reports.measured(self._measured_for, leeway.pause)
                pause()
                if not stays:
                    self.rates_urgent = False
                    self._lay_out(run)
                    pause()
                changed = self._take(self._loop.turn(now_s, agents, ask=ask, leeway=leeway))
            finally:
                self._is_turning = False
        pause()
        return self.plan if changed else None

    def begin(self) -> None:
        """All that can be known is known: what was planned from less, and never pushed, is forgotten."""
        self._routes, self._restored = self._restored, {}
        self._pending, self._has_begun = (), True

    def _note_moved(self, live: LiveNetwork, routes: Routes, now_s: float) -> None:
        """Flows that are handed over now get paths that stand by later, as do all where a client may be elsewhere."""
        moved = {flow for flow in differing(self._routes, routes) if flow in routes and routes[flow].ends}
        elsewhere = live is not self._network and any(route.ends for route in routes.values())
        if self._rests_at_s is None and (moved or elsewhere):
            self._rests_at_s = now_s + REST_AFTER_S
        self._moved |= moved

    def _use(self, live: LiveNetwork, routes: Routes, version: int, reports: ReportRegistry, now_s: float) -> None:
        before, self._network, self._routes = self.plan, live, routes
        self._is_laid_out = False
        changed = differing(self._loop.routes, routes)
        if before is not None and self._fits_in_parts(routes, changed):
            rates = self._rates_with_first(live, routes, changed)
            self.plan = self._maker.plan(version, live, routes, rates, self.numbers, before, self._arriving)
            self._adopted, self._planned = None, routes
            self.plan = _with_fill_of(self.plan, before)
            self.rates_urgent |= any(flow in routes and flow in self._loop.routes for flow in changed)
            return
        agents = reports.measured(before) if before is not None else AgentRates()
        self._planned = routes
        self._lay_out()
        turn = self._loop.turn(now_s, agents, ask=False)
        self.plan = self._maker.plan(version, live, routes, self._loop.rates, self.numbers, before, self._arriving)
        self._adopted = None
        self._take_fill(turn)

    def _fits_in_parts(self, routes: Routes, changed: Collection[str]) -> bool:
        """Whether a plan should be made without a turn."""
        if self.plan is None or not self._in_parts:
            return False
        # While the loop turns it can't be laid out anew.
        if self._is_turning:
            return True
        before = self._loop.routes
        fresh = [f for f in self._without_first(routes, changed) if f not in before or not _share(before[f], routes[f])]
        return self._loop.has_prices and len(fresh) <= MOST_IN_PARTS

    def _without_first(self, routes: Routes, changed: Iterable[str]) -> list[str]:
        """Those of some flows for whose routes no rates are known yet."""
        known = self._first
        return [f for f in changed if f in routes and (f not in known or known[f][0] is not routes[f])]

    def _rates_with_first(
        self, live: LiveNetwork, routes: Routes, changed: set[str]
    ) -> Mapping[str, tuple[float, ...]]:
        """Rates in force, and first ones of flows that the loop was not laid out for."""
        known, fresh = self._first, self._without_first(routes, changed)
        made = self._loop.first_rates(live.network, live.capacities, routes, fresh)
        rates = self._loop.rates
        # Of flows that it was laid out for, and that no turn was made with, the loop has no rates yet.
        wanted = {flow for flow in known if flow in changed or flow not in rates}
        still = {flow: known[flow] for flow in wanted if known[flow][0] is routes.get(flow)}
        self._first = still | {flow: (routes[flow], given) for flow, given in made.items()}
        return patched(rates, {flow: given for flow, (_, given) in self._first.items()}, changed - self._first.keys())

    def _lay_out(self, run: InThread = inline) -> None:
        """For what is planned. If others may plan meanwhile, it is the routes of before that are laid out then."""
        if self._is_laid_out or self._network is None:
            return
        # Routes that can't be laid out are not tried again in each slot, but with the next change.
        self._is_laid_out = True
        live, routes = self._network, self._planned
        self._loop.lay_out(live.network, routes, run(self._loop.posed, live.network, routes))
        self._is_laid_out = self._network is live and self._planned is routes

    def _take(self, turn: Turn) -> bool:
        before = self.in_force
        self._take_fill(turn)
        changed = self._for_routes(turn.changed)
        if changed:
            self.plan = self.in_force.with_rates(changed)
            self._maker.rated(changed)
        return self.plan is not before

    def _for_routes(self, rates: Mapping[str, tuple[float, ...]]) -> Mapping[str, tuple[float, ...]]:
        """New rates for the routes of now: flows that were routed otherwise while the loop turned get first ones."""
        other = self._routed_otherwise(rates)
        if not other:
            return rates
        live, routes = self.network, self._planned
        first = self._loop.first_rates(live.network, live.capacities, routes, other & routes.keys())
        self._first |= {flow: (routes[flow], given) for flow, given in first.items()}
        return {flow: given for flow, given in rates.items() if flow not in other} | first

    def _routed_otherwise(self, flows: Iterable[str]) -> set[str]:
        """Those of some flows whose routes are others than the loop is laid out for."""
        laid_out, routes = self._loop.routes, self._planned
        return set() if laid_out is routes else {f for f in flows if laid_out.get(f) is not routes.get(f)}

    def _take_fill(self, turn: Turn) -> None:
        plan, other = self.in_force, self._routed_otherwise(turn.fill)
        fill = {
            flow: {path.id: rate for path, rate in zip(plan.flows[flow].paths, rates, strict=True)}
            for flow, rates in turn.fill.items()
            if flow not in other
        }
        if fill != plan.fill:
            self.plan = plan.with_fill(fill)

    def _look(self, capacity_mbps: FloatArray, now_s: float) -> None:
        self._detector, changes = self._detector.after(capacity_mbps, now_s)
        self._pending += changes

    def _estimated(self) -> FloatArray:
        """Capacities as measured, 0 where a link is down."""
        return np.where(self.network.is_down, 0.0, self._loop.state.problem.capacity_mbps)

    def _with_references(self, state: State) -> State:
        """Plans count on the capacities that the detector compares with; links that are down keep what they had."""
        basis = (self._detector.reference_mbps, self.network, state.capacity_mbps)
        if any(now is not before for now, before in zip(basis, self._referenced, strict=True)):
            self._referenced = basis
            reference = self._detector.reference_mbps
            known = state.capacity_mbps or np.zeros(len(reference))
            self._references = tuple(np.where(self.network.is_down, known, reference).tolist())
        return with_measured(state, self._references, self._loop.heard.interference)


def _share(before: FlowRoute, after: FlowRoute) -> bool:
    """Whether a flow keeps a path."""
    return not set(before.paths).isdisjoint(after.paths)


def _with_fill_of(plan: Plan, before: Plan) -> Plan:
    """With the padding of the plan before, on paths that flows still have."""
    ids = {flow: {path.id for path in plan.flows[flow].paths} for flow in before.fill if flow in plan.flows}
    fill = {flow: before.fill[flow] for flow, paths in ids.items() if before.fill[flow].keys() <= paths}
    return plan.with_fill(fill) if fill else plan


def _better(
    routes: Routes,
    live: LiveNetwork,
    changes: tuple[Change, ...],
    moved: frozenset[str] | None,
    let_others: Callable[[], object],
) -> Routes:
    """Routes after changes; if ``moved`` says who was handed over lately, also with what is to stand by."""
    after = improved(routes, live, changes, let_others=let_others) if changes else routes
    return after if moved is None else rested(after, live, moved)

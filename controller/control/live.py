"""State -> routes -> rates -> plan, and what follows from one to the next.

    event     replan      what is dead goes, what is new comes, rates at once        (a cut link: a few ms)
              improve     significant changes move the flows that they affect; paths by a client's other places stand by
    slot      slot        measurements -> rates of all flows; significant changes -> state

The event loop calls these and deploys what they give. No I/O, no clock: times are arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from hyroads.controller.agents.protocol import EgressFlow
from hyroads.controller.core.addressing import Numbers
from hyroads.controller.core.errors import PlanningError
from hyroads.controller.core.estimate.flap_damping import FlapDamping, HelloGraph
from hyroads.controller.core.infer.change import Change, ChangeDetector, FloatArray, domain_changes
from hyroads.controller.core.network import Link
from hyroads.controller.model.plan import Options, Plan, differing
from hyroads.controller.model.state import DeclaredFlow, Presence, State, TopologyContext, links_held
from hyroads.controller.model.state import measured as with_measured

from .live_network import Cache, LiveNetwork
from .loop import LiveLoop, Turn
from .plan_maker import PlanMaker
from .reports import AgentRates, ReportRegistry
from .route_maker import RouteMaker
from .routes import FlowRoute, improved, rested, warm

# So long after handovers, or after links came, flows are looked at whether they have all that they can have.
REST_AFTER_S = 0.5
# Silence is noticed after the dead time (140 ms); two observers notice it up to a hello interval and a nap apart.
TOGETHER_S = 0.3
# Failures of long ago are forgotten this often while nothing else happens.
FORGET_EACH_S = 1.0

InThread = Callable[..., Any]
"""Calls a function with arguments, perhaps in another thread, and gives what it returns."""


def inline(function: Callable[..., Any], *arguments: object) -> Any:
    """Here and now."""
    return function(*arguments)


class Live:
    """Holds the plan in force and what it came from but the state. ``measures``: capacities are not the file's,
    ``damps``: links that fail again and again are left alone for a while, ``together_s``: links that fall silent within
    this time do so together, ``routes``: the paths that flows had before (``restored_routes``), ``in_thread``: runs
    pure functions that may take long.
    """

    def __init__(
        self,
        context: TopologyContext,
        numbers: Numbers,
        options: Options,
        loop: LiveLoop,
        *,
        measures: bool = False,
        damps: bool = True,
        together_s: float = TOGETHER_S,
        routes: Mapping[str, FlowRoute] | None = None,
        in_thread: InThread = inline,
    ) -> None:
        self.loop = loop
        self.plan: Plan | None = None
        self.damping = FlapDamping()
        self._maker, self._route_maker = PlanMaker(context, options), RouteMaker()
        self._numbers = numbers
        self._adopted: Numbers | None = None
        self._measures = measures
        self._damps = damps
        self._together_s = together_s
        # Holds are looked at when one ends, or when something changes that they depend on.
        self._damped_for: tuple[object, ...] = (None,) * 6
        self._next_release_s = 0.0
        self._context = context
        agents = [node for node in context.network.nodes if context.addressing.has_agent(node)]
        self._graph = HelloGraph.of(context.network, agents)
        self._in_thread = in_thread
        self._cache = Cache(context)
        self._network: LiveNetwork | None = None
        self._restored = dict(routes or {})
        self._routes: dict[str, FlowRoute] = dict(self._restored)
        self._detector = ChangeDetector()
        # The capacities that plans count on, and what they were made from.
        self._references: tuple[float, ...] = ()
        self._referenced: tuple[object, ...] = (None, None, None)
        self._pending: tuple[Change, ...] = ()
        self._moved: frozenset[str] = frozenset()
        self._rests_at_s: float | None = None
        # Flows as they are declared, and as far as this controller carries them.
        self._segments_of: Mapping[str, DeclaredFlow] = {}
        self._segmented: Mapping[str, DeclaredFlow] = {}
        self._arriving: Mapping[str, Mapping[str, EgressFlow]] = {}

    @property
    def numbers(self) -> Numbers:
        """Flow numbers and path ids given so far."""
        if self._adopted is not None:
            return self._adopted
        return self.plan.numbers if self.plan else self._numbers

    def adopt_numbers(self, numbers: Numbers) -> None:
        """The next plan counts on these, which somebody else has given, and on no others."""
        self._adopted = numbers

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

    def links_reported(self, before: State, after: State, now_s: float) -> State:
        """After agents told of links: those that failed too often lately are held down for a while.

        While one of these comes and goes, no plan may use it: the version stays, for there is nothing to plan anew.
        """
        result = self.links_damped(after, now_s)
        same = result.silent | result.held == before.silent | before.held
        return replace(result, version=before.version) if same else result

    def links_damped(self, state: State, now_s: float) -> State:
        """The state with the links held down that are to be held now. To be called after every change of the state.

        A link is held because it failed too often, and only while nobody loses the last path by that.
        """
        if not self._damps or not (self.damping.histories or state.silent):
            return state
        basis = (state.silent, state.held, state.switches, state.ports, state.agents, state.capacity_mbps)
        same = all(now is before for now, before in zip(basis, self._damped_for, strict=True))
        if same and now_s < self._next_release_s:
            return state
        self._note_silence(state, now_s)
        self.damping = self.damping.pruned(now_s)
        suppressed = self.damping.held_down(now_s)
        held = self._graph.holdable(suppressed, partial(self._is_usable, replace(state, held=frozenset())))
        # A link that others need now is used until it fails again, so that plans do not follow every turn.
        self.damping = self.damping.released(suppressed.keys() - held)
        self._next_release_s = min((suppressed[link] for link in held), default=now_s + FORGET_EACH_S)
        result = links_held(state, held)
        self._damped_for = (result.silent, result.held, *basis[2:])
        return result

    def _note_silence(self, state: State, now_s: float) -> None:
        """Tells damping which links are silent. Those that fell silent together at one node are excused."""
        known = self.damping.histories
        fell = [link for link in state.silent if link not in known or known[link].up]
        for link in [*fell, *(link for link, history in known.items() if not history.up and link not in state.silent)]:
            self.damping = self.damping.after(link, up=link not in state.silent, now_s=now_s)
        if fell:
            since_s = now_s - self._together_s
            failed = {link for link, history in self.damping.histories.items() if history.failed_s >= since_s}
            for link in fell:
                self.damping = self.damping.excused(self._graph.together(link, failed, partial(self._is_heard, state)))

    def _is_heard(self, state: State, link: Link) -> bool:
        """Whether hello frames of a link arrive, as far as is known."""
        speak = all(state.agents.get(node) is Presence.UP for node in (link.source, link.target))
        return speak and (link.id in state.held or state.link_down(self._context, link) is None)

    def _is_usable(self, state: State, link: Link) -> bool:
        """Whether plans can use a link in a state."""
        has_capacity = state.capacity_mbps is not None or link.capacity_mbps > 0
        return has_capacity and state.link_fault(self._context, link) is None

    def preparation(self, state: State) -> Callable[[], None]:
        """What of :meth:`replan` takes longest and depends on nothing else: may run in another thread before it."""
        live = self._cache.live(state)
        flows = self._segments(state)
        known = self._routes.keys() & flows.keys()
        # Of this very network all is known but what new flows need.
        asked = flows.keys() - known if live is self._network else flows.keys()
        return partial(warm, live, [declared.spec for flow, declared in flows.items() if flow in asked], known)

    def _segments(self, state: State) -> Mapping[str, DeclaredFlow]:
        """Flows as far as this controller carries them; those that did not change are the very objects of before."""
        view, mac = self._context.view, self._context.addressing.host_mac
        if view is None:
            return state.flows
        if state.flows is not self._segments_of:
            known = self._segmented
            self._segmented = {
                flow: known[flow]
                if flow in known and self._segments_of.get(flow) is declared
                else DeclaredFlow(view.segment(declared.spec, mac), declared.origin)
                for flow, declared in state.flows.items()
            }
            self._segments_of = state.flows
        return self._segmented

    def replan(self, state: State, reports: ReportRegistry, now_s: float) -> Plan:
        """The plan of a new state: flows keep their paths as far as these live; rates are for now."""
        live = self._cache.live(state)
        self._arriving = state.arriving
        if self._context.view is not None:
            state = replace(state, flows=self._segments(state))
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
        rests = self._rests_at_s is not None and now_s >= self._rests_at_s
        if not (self._pending or rests) or self._network is None:
            return None
        changes, self._pending = self._pending, ()
        before, network = self._routes, self._network
        routes = self._in_thread(_better, before, network, changes, self._moved if rests else None)
        if self._routes is not before or self._network is not network:
            # Meanwhile something was planned: these changes are looked at again.
            self._pending = (*changes, *self._pending)
            return None
        if rests:
            self._moved, self._rests_at_s = frozenset(), None
        if changes:
            self.loop.override.alerted(changes, now_s)
        if routes == self._routes:
            return None
        self._route_maker.improved(routes)
        self._use(self._network, routes, self.in_force.version, reports, now_s)
        return self.in_force

    def slot(
        self, state: State, reports: ReportRegistry, now_s: float, *, ask: bool = True
    ) -> tuple[State, Plan | None]:
        """One slot: the state with what was measured (if that changed significantly), and the plan if rates changed.

        Before anything is pushed it only takes in what is measured, and does not ``ask`` the override.
        """
        if self.plan is None or not (ask or self._measures):
            return state, None
        changed = self._take(self.loop.turn(now_s, reports.measured(self.plan), ask=ask))
        if self._measures:
            self._look(self._estimated(), now_s)
            state = self._with_references(state)
        return state, self.plan if changed else None

    def begin(self) -> None:
        """All that can be known is known: what was planned from less, and never pushed, is forgotten."""
        self._routes, self._restored = self._restored, {}
        self._pending = ()

    def _note_moved(self, live: LiveNetwork, routes: dict[str, FlowRoute], now_s: float) -> None:
        """Flows that are handed over now get paths that stand by later, as do all where a client may be elsewhere."""
        moved = {flow for flow in differing(self._routes, routes) if flow in routes and routes[flow].ends}
        elsewhere = live is not self._network and any(route.ends for route in routes.values())
        if self._rests_at_s is None and (moved or elsewhere):
            self._rests_at_s = now_s + REST_AFTER_S
        self._moved |= moved

    def _use(
        self, live: LiveNetwork, routes: dict[str, FlowRoute], version: int, reports: ReportRegistry, now_s: float
    ) -> None:
        agents = reports.measured(self.plan) if self.plan else AgentRates()
        self._network, self._routes = live, routes
        self.loop.lay_out(live.network, routes)
        turn = self.loop.turn(now_s, agents, ask=False)
        self.plan = self._maker.plan(version, live, routes, self.loop.rates, self.numbers, self.plan, self._arriving)
        self._adopted = None
        self._take_fill(turn)

    def _take(self, turn: Turn) -> bool:
        before = self.in_force
        self._take_fill(turn)
        if turn.changed:
            self.plan = self.in_force.with_rates(turn.changed)
            self._maker.rated(turn.changed)
        return self.plan is not before

    def _take_fill(self, turn: Turn) -> None:
        plan = self.in_force
        fill = {
            flow: {path.id: rate for path, rate in zip(plan.flows[flow].paths, rates, strict=True)}
            for flow, rates in turn.fill.items()
        }
        if fill != plan.fill:
            self.plan = plan.with_fill(fill)

    def _look(self, capacity_mbps: FloatArray, now_s: float) -> None:
        self._detector, changes = self._detector.after(capacity_mbps, now_s)
        self._pending += changes

    def _estimated(self) -> FloatArray:
        """Capacities as measured, 0 where a link is down."""
        return np.where(self.network.is_down, 0.0, self.loop.state.problem.capacity_mbps)

    def _with_references(self, state: State) -> State:
        """Plans count on the capacities that the detector compares with; links that are down keep what they had."""
        basis = (self._detector.reference_mbps, self.network, state.capacity_mbps)
        if any(now is not before for now, before in zip(basis, self._referenced, strict=True)):
            self._referenced = basis
            reference = self._detector.reference_mbps
            known = state.capacity_mbps or np.zeros(len(reference))
            self._references = tuple(np.where(self.network.is_down, known, reference).tolist())
        return with_measured(state, self._references, self.loop.heard.interference)


def _better(
    routes: dict[str, FlowRoute], live: LiveNetwork, changes: tuple[Change, ...], moved: frozenset[str] | None
) -> dict[str, FlowRoute]:
    """Routes after changes; if ``moved`` says who was handed over lately, also with what is to stand by."""
    after = improved(routes, live, changes) if changes else routes
    return after if moved is None else rested(after, live, moved)

"""The control loop: measurements in, rates of all multipath flows out, slot by slot (docs/explanation/live.md).

:class:`LiveLoop` drives ``core.closed_loop.slot`` for flows that come and go. It keeps what the pure slot must not
know: path names instead of positions, which flows an override decides, rates too small to pace, the controller mode.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from hyroads.controller.core.addressing import PathName
from hyroads.controller.core.closed_loop import (
    Allocate,
    GroupAirtime,
    LoopSettings,
    LoopState,
    Measurements,
    SlotResult,
    configured_samples,
    slot,
)
from hyroads.controller.core.demand import Demands, Offers
from hyroads.controller.core.estimate.busy_time import CarrierSensing, ExternalAirtime, Interface, latest
from hyroads.controller.core.estimate.link_estimate import LinkEstimator
from hyroads.controller.core.interference import Interference
from hyroads.controller.core.mappings import differing, in_order_of, patched
from hyroads.controller.core.network import PRODUCTION, FlowSpec, Network, Traffic
from hyroads.controller.core.rates import Allocation, RateProblem, rate_problem, solve
from hyroads.controller.core.rates.groups import groups_of, with_parts_of_weight
from hyroads.controller.core.rates.problem import FloatArray, Paths, domain_of
from hyroads.controller.core.rates.shares import SliceShares, airtime_of_slices
from hyroads.controller.core.rates.utilities import utilities_from, utility_of
from hyroads.controller.model.handover import PathGroups, by_path, separate_links
from hyroads.controller.native.rates import Aside

from .allocators import MODES, SOLVER, Allocator, Grant
from .first_rates import PricedPaths, first_rates
from .path_rates import PathRates, ToldPaths
from .rate_override import Fixed, RateOverride, SlotView
from .recent_rates import RecentRates
from .reports import NO_RATES, AgentRates
from .routes import FlowRoute, Routes
from .source import NOTHING_HEARD, Heard, Source

DEFAULT_MARGIN = 0.05
DEFAULT_TCP_MARGIN = 0.05
# A path that would get less than this gets nothing: the agents' pacing could not hold it.
MIN_PATH_MBPS = 0.01
MIN_PATH_SHARE = 1e-3
# A flow that gets less than this keeps so much on one path: enough to be heard, to be measured and to wake up.
MIN_FLOW_MBPS = 0.1
RATE_STEP_MBPS = 1e-4


@dataclass(frozen=True, slots=True)
class LoopOptions:
    """``margin`` is the share of airtime left free; ``tcp_margin`` that in the domains of flows that are TCP."""

    margin: float = DEFAULT_MARGIN
    tcp_margin: float = DEFAULT_TCP_MARGIN
    mode: str = SOLVER
    slot_s: float = 0.1
    settings: LoopSettings = field(default_factory=LoopSettings)
    shares: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Slice -> technology -> share of each domain's airtime; solver mode only."""


DEFAULTS = LoopOptions()
Run = Callable[[Callable[[], SlotResult]], SlotResult]
"""Calls a pure function, perhaps in another thread, and gives what it returns."""


def here(function: Callable[[], SlotResult]) -> SlotResult:
    """Call it now, in this thread."""
    return function()


@dataclass(frozen=True)
class Leeway:
    """How others may run while the loop turns: ``run`` carries out what takes longest, perhaps in another thread,
    ``pause`` lets them run between two steps, ``aside`` (None: nobody) carries out the compiled solver's part.
    """

    run: Run = here
    pause: Callable[[], object] = lambda: None
    aside: Aside | None = None


NO_LEEWAY = Leeway()


@dataclass(frozen=True, eq=False)
class Turn:
    """What a turn gives: rates of flows that changed enough to be sent, fill of those that have any, and the result
    of the pure slot with all estimates.
    """

    changed: Mapping[str, tuple[float, ...]]
    fill: Mapping[str, tuple[float, ...]]
    result: SlotResult


class LiveLoop:
    """One per controller. ``network`` gives links and technologies, which stay; capacities come from ``source``."""

    def __init__(
        self, network: Network, source: Source, options: LoopOptions = DEFAULTS, override: RateOverride | None = None
    ) -> None:
        self.options = options
        self.declared = network
        self.busy: Mapping[Interface, float] = {}
        """The last busy share of every interface that has told one."""
        self.override = override or RateOverride()
        self.groups: GroupAirtime | None = None
        """What multicast sessions take."""
        self.turns = 0
        self.last: Turn | None = None
        self._source = source
        self._heard: Heard | None = None
        self._heard_by: Interference | None = None
        self.routes: Routes = {}
        """What it was laid out for."""
        self._order: Mapping[str, tuple[PathName, ...]] = {}
        self._path_groups: Mapping[str, PathGroups] = {}
        self.fixed: dict[str, Fixed] = {}
        """The flows that the override decides."""
        self._allocator: Allocator = MODES[options.mode]()
        self.around: Callable[[Allocate, RateProblem, Allocation | None], Allocation] | None = None
        """Changes the problem of each slot before it is solved (``region_rates``)."""
        self._minimums: Mapping[str, float] = {}
        self._minimums_told: Mapping[str, float] = self._minimums
        self._granted: tuple[Mapping[str, float], Mapping[str, Grant]] = (self._minimums, {})
        self._link_prices: FloatArray | None = None
        """Those of the last turn, also while the next one works out rates of other flows."""
        self._recent = RecentRates(len(network.links))
        self._media = np.array([link.technology for link in network.links])
        self._aired: tuple[object, object, FloatArray] | None = None
        self._carried: FloatArray | None = None
        self._told_paths: ToldPaths | None = None
        self._strangers: tuple[object, object, frozenset[str]] = (None, None, frozenset())
        self._told: Mapping[str, tuple[float, ...]] = {}
        """By flow: the rates of its paths that follow from those in force and its path groups."""
        self._told_for: tuple[Mapping[str, tuple[float, ...]], Mapping[str, PathGroups]] = ({}, {})
        self._indexed: Mapping[str, _Indexed] = {}
        self._paths: Mapping[str, Paths] = {}
        self._indexed_for: Routes = {}
        self._dummies: frozenset[str] = frozenset()
        technologies = {link.id: link.technology for link in network.links}
        external = ExternalAirtime(CarrierSensing.of(network, ()))
        empty = rate_problem(network, {}, flows=(), margin=self._margins(network, (), {}))
        estimator = LinkEstimator(technologies)
        self.state = LoopState(network, empty, estimator, external, Demands(), replace(options.settings))

    @property
    def rates(self) -> Mapping[str, tuple[float, ...]]:
        """The rates in force of every multipath flow, in the order of its paths."""
        pushed, groups = self.state.pushed, self._path_groups
        changed = differing(self._told_for[0], pushed) | differing(self._told_for[1], groups)
        if changed:
            made = {flow: self._by_path(flow, pushed[flow]) for flow in changed if flow in pushed and flow in groups}
            self._told = in_order_of(pushed, self._told, changed, made)
        self._told_for = pushed, groups
        return self._told

    def declare(self, network: Network, now_s: float) -> None:
        """The file of the network has other capacities, which nobody measures; links and their order are the same."""
        self.declared = network
        technologies = {link.id: link.technology for link in network.links}
        # A filter would take the new value for noise around the old one.
        estimator = LinkEstimator(technologies).after(configured_samples(network, now_s))
        self.state = replace(self.state, estimator=estimator)

    def adopt(self, options: LoopOptions) -> None:
        """Other margins or shares of slices from the next slot on; mode and slot length are the same."""
        self.options = options
        self.override.use_margins(options.margin, options.tcp_margin)
        self.state = self.state.with_problem(self._problem(self.state.network, self.routes))
        self._shares_laid_out(self.state.problem, self.state.network)

    def adopt_rates(self, rates_mbps: Mapping[str, tuple[float, ...]]) -> dict[str, tuple[float, ...]]:
        """Rates in force of flows' paths are these, which another controller gave; which flows that concerns.

        Flows that the override decides have its rates, and those with paths that take turns are given them anew.
        """
        of_groups = {
            flow: tuple(rates[path] for (path,) in groups)
            for flow, rates in rates_mbps.items()
            if flow not in self.fixed
            and len(groups := self._path_groups.get(flow, ())) == len(rates)
            and all(len(group) == 1 for group in groups)
        }
        changed = {flow: rates for flow, rates in of_groups.items() if self.state.pushed.get(flow) != rates}
        self.state = replace(self.state, pushed={**self.state.pushed, **changed})
        return {flow: self._by_path(flow, rates) for flow, rates in changed.items()}

    def _shares_laid_out(self, problem: RateProblem, network: Network) -> None:
        specs = specs_of(self.routes)
        shares = SliceShares.of(specs, network.links, self.options.shares)
        self._allocator.laid_out(problem, shares, groups_of(specs))

    def guarantee(self, minimum_mbps: Mapping[str, float]) -> None:
        """Least rates of flows from the next slot on; those in front go before the others."""
        self._minimums = dict(minimum_mbps)

    @property
    def keeps_guarantees(self) -> bool:
        """Whether the rates of the last slot are made with the guarantees of now."""
        return self._granted[0] is self._minimums

    @property
    def granted(self) -> Mapping[str, Grant]:
        """What was made of the guarantees in the last slot."""
        minimums, granted = self._granted
        return granted if minimums is self._minimums else {}

    @property
    def heard(self) -> Heard:
        """Who hears whom, as last told."""
        return self._heard or NOTHING_HEARD

    @property
    def complete(self) -> bool:
        """Whether everyone who measures has spoken."""
        return self._source.complete()

    @property
    def has_prices(self) -> bool:
        """Whether a turn has found rates already, so that :meth:`first_rates` can say what flows come to."""
        return self._link_prices is not None

    def first_rates(
        self, network: Network, capacity_mbps: FloatArray, routes: Routes, changed: Iterable[str]
    ) -> dict[str, tuple[float, ...]]:
        """Rates of the paths of flows that were routed otherwise since they were laid out, until a turn has found
        better ones. Flows with the paths of before have what is in force.
        """
        if self._link_prices is None:
            return {}
        priced = PricedPaths(network.interference, capacity_mbps, self.state.problem, self._link_prices)
        found = {}
        for flow in changed:
            route = routes.get(flow)
            if route is not None and route.reason is None:
                rates = self._first_rates(network, route, priced)
                found[flow] = by_path(rates, route.path_groups, len(route.paths))
        return found

    def _first_rates(self, network: Network, route: FlowRoute, priced: PricedPaths) -> tuple[float, ...]:
        flow = route.spec.id
        names = _group_names({flow: route.paths}, {flow: route.path_groups}, [flow])[flow]
        known = flow in self.state.pushed and flow in self._path_groups
        before = dict(zip(self._names_of(flow), self.state.pushed[flow], strict=True)) if known else {}
        same = tuple(before.get(name, 0.0) for name in names)
        if any(same) or not names:
            return _paceable(same)
        if route.spec.traffic is Traffic.PROBE:
            return same
        indexed = _Indexed.of(network, route)
        rates = _paceable(first_rates(priced, indexed.paths, indexed.utility, sum(before.values())))
        return rates if sum(rates) >= MIN_FLOW_MBPS / 2 else (MIN_FLOW_MBPS, *rates[1:])

    def _names_of(self, flow: str) -> tuple[tuple[PathName, ...], ...]:
        """The path groups that a flow was laid out with."""
        return _group_names(self._order, self._path_groups, [flow])[flow]

    def lay_out(self, network: Network, routes: Routes, posed: Posed | None = None) -> None:
        """Other flows, paths, capacities or interference; estimates, demands and rates of paths that stay are kept.

        ``posed`` is what :meth:`posed` gave for these since the last time.
        """
        before, laid = self.routes, self._path_groups
        changed = differing(before, routes)
        carried = {flow: route for flow in changed if (route := routes.get(flow)) is not None and route.reason is None}
        order = in_order_of(routes, self._order, changed, {flow: route.paths for flow, route in carried.items()})
        of_paths = in_order_of(routes, laid, changed, {flow: route.path_groups for flow, route in carried.items()})
        is_same = network is self.state.network and order == self._order and of_paths == laid
        if is_same and all(route.spec == before[flow].spec for flow, route in carried.items()):
            self.routes = routes
            if posed is not None:
                self._use(posed)
            return
        # Of these flows other paths may have rates, or in other groups.
        other = carried.keys() & laid.keys()
        old, new = _group_names(self._order, laid, other), _group_names(order, of_paths, other)
        moved = {flow for flow in other if old[flow] != new[flow]}
        stays = (laid.keys() & of_paths.keys()) - moved
        self.routes, self._order, self._path_groups = routes, order, of_paths
        self._carried = None
        self._recent.left()
        # A flow whose fixed rates name a path that is gone is the solver's until its override is asked again.
        self.fixed = {
            flow: fixed
            for flow, fixed in self.fixed.items()
            if self._is_governed(flow) and fixed.rates_mbps.keys() <= set(order[flow])
        }
        # Dummies are sent only if their override says so.
        some = (flow for flow in self._dummies | carried.keys() if flow in order)
        self._dummies = frozenset(flow for flow in some if routes[flow].spec.traffic is Traffic.PROBE)
        self.fixed = {**{flow: Fixed({}) for flow in self._dummies}, **self.fixed}
        problem = self._problem(network, routes) if posed is None else self._use(posed)
        state = self.state.with_problem(problem)
        state = state.without_rates(state.pushed.keys() - stays)
        # The old rates may still be optimal for a flow with other paths, but they would never use a new one.
        warm = None if moved else state.allocation
        self.state = replace(state, network=network, allocation=warm)
        self._shares_laid_out(problem, network)
        # Who hears what follows from the links, which stay, and from the rule: capacities have nothing to do with it.
        if self._heard is not None and network.interference is not self._heard_by:
            self._hear(self._heard)

    def turn(
        self,
        now_s: float,
        agents: AgentRates = NO_RATES,
        *,
        ask: bool = True,
        leeway: Leeway = NO_LEEWAY,
    ) -> Turn:
        """One slot that ends now. ``ask`` the override, or leave its flows as they are (a turn between slots).

        ``leeway`` says how others may run meanwhile; until it is done nobody may change the loop.
        """
        taken = self._source.take(now_s)
        self.busy = latest(self.busy, taken.busy)
        heard = self._source.heard()
        if heard is not self._heard:
            self._hear(heard)
        if ask:
            self.turns += 1
            last = self.last.result if self.last else None
            network, routes = self.state.network, self.routes
            view = SlotView(now_s, self.turns, network, routes, agents, last, taken.samples)
            self.fixed = {flow: fixed for flow, fixed in self.override.decide(view).items() if self._is_governed(flow)}
        if self._minimums_told is not self._minimums:
            self._minimums_told = self._minimums
            self._allocator.guarantee(self._minimums)
        self.last = self._turn(now_s, taken, agents, leeway)
        self._granted = self._minimums, self._allocator.granted
        return self.last

    def capacities(self) -> dict[str, float]:
        """What the slot counts on, by link id."""
        links = self.state.network.links
        return {link.id: c for link, c in zip(links, self.state.problem.capacity_mbps.tolist(), strict=True)}

    def airtime(self) -> dict[str, float]:
        """Planned share of time that the domain of each link is busy with our flows, by link id."""
        return dict(zip((link.id for link in self.state.network.links), self.planned_airtime().tolist(), strict=True))

    def planned_airtime(self) -> FloatArray:
        """The same in the order of the links."""
        busy = self._airtime_of_flows()
        return busy if self.groups is None else busy + self.groups.reserved

    def _airtime_of_flows(self) -> FloatArray:
        """Without that of groups; remembered until the next turn."""
        if self._aired is None or self._aired[0] is not self.state or self._aired[1] is not self.fixed:
            with np.errstate(divide="ignore"):
                self._aired = self.state, self.fixed, self.state.problem.airtime(self._in_force())
        return self._aired[2]

    def airtime_of_slices(self) -> dict[tuple[str, str], float]:
        """Planned share of time of the flows of each slice, by slice and technology: in the domain where it is most."""
        names = self._slice_names()
        # Of one slice it is that of all flows, which is remembered.
        busy = self._airtime_of_flows()[np.newaxis] if len(names) == 1 else self._airtime_of(names, self._in_force())
        return self._by_slice(names, busy)

    def measured_airtime_of_slices(self) -> dict[tuple[str, str], float | None]:
        """The same by what agents say they carry: frames that arrived, or that were sent where nothing tells of that.
        None for a slice with a flow of which nothing fresh is known.
        """
        keys = [flow for flow, of in self._path_groups.items() for _ in of]
        carried = self._carried if self._carried is not None else np.full(len(keys), np.nan)
        unknown = {
            self.routes[flow].spec.slice for flow, is_told in zip(keys, ~np.isnan(carried), strict=True) if not is_told
        }
        rates = np.nan_to_num(carried, nan=0.0)
        names = self._slice_names()
        found = self._by_slice(names, self._airtime_of(names, rates))
        return {of: None if of[0] in unknown else share for of, share in found.items()}

    def _slice_names(self) -> list[str]:
        slices = (spec.slice for spec in specs_of(self.routes))
        return list(dict.fromkeys((PRODUCTION, *self.options.shares, *slices)))

    def _airtime_of(self, names: list[str], path_rates_mbps: FloatArray) -> FloatArray:
        slice_of = np.array([names.index(spec.slice) for spec in specs_of(self.routes)], dtype=np.intp)
        with np.errstate(divide="ignore", invalid="ignore"):
            return airtime_of_slices(self.state.problem, path_rates_mbps, slice_of, len(names))

    def _by_slice(self, names: list[str], busy: FloatArray) -> dict[tuple[str, str], float]:
        busy = np.where(self.state.problem.capacity_mbps > 0, busy, 0.0)
        return {
            (name, technology): float(busy[index, self._media == technology].max(initial=0.0))
            for index, name in enumerate(names)
            for technology in self.state.network.technologies
        }

    @property
    def held_slices(self) -> set[tuple[str, str]]:
        """Slices that others' wishes held to a bound in the last slot, and on which technology."""
        links = self.state.network.links
        return {(name, links[link].technology) for name, link in self._allocator.held}

    def external(self, now_s: float) -> dict[str, float]:
        """Airtime of traffic that is not ours in the domain of each link, by link id."""
        shares = self.state.external.per_link(now_s)
        return {link.id: float(share) for link, share in zip(self.state.network.links, shares, strict=True)}

    def _turn(self, now_s: float, taken: Measurements, agents: AgentRates, leeway: Leeway) -> Turn:
        fixed = {flow: self._reserved(flow) for flow in self.fixed}
        measured = self._measurements(taken, agents, now_s)
        self._carried = measured.path_rates_mbps
        leeway.pause()
        allocate = partial(self._allocator.allocate, aside=leeway.aside)
        if self.around is not None:
            # It works with what others change at any time.
            allocate, leeway = partial(self.around, self._allocator.allocate), NO_LEEWAY
        told, spare = self.rates, partial(solve, aside=leeway.aside)
        work = partial(slot, self.state, measured, now_s, fixed=fixed, allocate=allocate, allocate_spare=spare)
        result = leeway.run(work)
        # No flow of the solver's is without any rate: external traffic may take all airtime, but not for ever.
        result = self._with_guaranteed(self._paced(result), fixed).giving_least(MIN_FLOW_MBPS, fixed)
        self.state, self._link_prices = result.state, result.allocation.link_prices
        changed = {flow: self._by_path(flow, rates) for flow, rates in result.push.items()}
        self._told, self._told_for = patched(told, changed), (result.state.pushed, self._path_groups)
        # Without what is only at hand for flows that send little.
        wanted = self.state.allocation or result.allocation
        link_rates = np.asarray(wanted.layout.routing_t @ (wanted.path_rates_mbps + self._unreserved()))
        self._recent.allowed(link_rates, self.state.problem.capacity_mbps, now_s)
        fill = {
            flow: by_path(self._in_order(flow, each.fill_mbps), self._path_groups[flow], len(self._order[flow]))
            for flow, each in self.fixed.items()
            if each.fill_mbps
        }
        return Turn(changed, fill, result)

    def _measurements(self, taken: Measurements, agents: AgentRates, now_s: float) -> Measurements:
        """Names of paths become positions; flows that the override decides offer what it wants, not what they have."""
        offers = Offers.of(agents.offers)
        if self._strangers[0] is not offers.flows or self._strangers[1] is not self._order:
            self._strangers = offers.flows, self._order, frozenset(offers.flows).difference(self._order)
        offers = offers.without(self._strangers[2] | self.fixed.keys())
        most_mbps, rates = self._recent.most(now_s), self._rates_of_groups(PathRates.of(agents.path_mbps))
        return Measurements(taken.samples, taken.busy, {}, offers, most_mbps, self.groups, rates, taken.late_s)

    def _rates_of_groups(self, told: PathRates) -> FloatArray:
        """What path groups carried, in the order of the problem; nan if one of the paths of a group is not known."""
        if self._told_paths is None or not self._told_paths.is_for(told.paths, self._order, self._path_groups):
            self._told_paths = ToldPaths.of(told.paths, self._order, self._path_groups, self._told_paths)
        return self._told_paths.of_groups(told.mbps)

    def _with_guaranteed(self, result: SlotResult, fixed: Mapping[str, Sequence[float]]) -> SlotResult:
        """A flow that is below its guarantee by what is too little to be sent otherwise gets all of it."""
        if not self._allocator.granted:
            return result
        layout, changed = result.allocation.layout, {}
        for flow, grant in self._allocator.granted.items():
            where = layout.paths_of(layout.row_of[flow])
            rates = tuple(result.allocation.path_rates_mbps[where].tolist())
            told_mbps = sum(result.mbps[where].tolist())
            if flow not in fixed and told_mbps < grant.given_mbps - RATE_STEP_MBPS and sum(rates) > told_mbps:
                changed[flow] = rates
        return result.giving(changed)

    def _unreserved(self) -> FloatArray:
        """What the override's flows may send beyond what the others leave to them, in the order of the problem."""
        if all(fixed.reserved_mbps is None for fixed in self.fixed.values()):
            return np.zeros(self.state.problem.layout.path_count)
        beyond: list[float] = []
        for flow, path_groups in self._path_groups.items():
            fixed = self.fixed.get(flow)
            if fixed is None or fixed.reserved_mbps is None:
                beyond += [0.0] * len(path_groups)
                continue
            given = zip(self._in_order(flow, fixed.rates_mbps), self._in_order(flow, fixed.reserved_mbps), strict=True)
            beyond += [max(0.0, rate - reserved) for rate, reserved in given]
        return np.array(beyond, dtype=float)

    def _in_force(self) -> FloatArray:
        """Rates of all path groups, in the order of the problem."""
        given = {**self.state.pushed, **{flow: self._reserved(flow) for flow in self.fixed}}
        used = [rate for flow, of in self._path_groups.items() for rate in _paceable(given.get(flow, (0.0,) * len(of)))]
        return np.array(used, dtype=float)

    def _reserved(self, flow: str) -> tuple[float, ...]:
        """The rates of a flow of the override's as far as the others have to make room."""
        fixed = self.fixed[flow]
        return self._in_order(flow, fixed.rates_mbps if fixed.reserved_mbps is None else fixed.reserved_mbps)

    def _paced(self, result: SlotResult) -> SlotResult:
        """Flows that may send faster than what they need on average are told so."""
        paced = {
            flow: self._in_order(flow, each.rates_mbps)
            for flow, each in self.fixed.items()
            if each.reserved_mbps is not None
        }
        return result.giving(paced)

    def _in_order(self, flow: str, by_name: Mapping[PathName, float]) -> tuple[float, ...]:
        """Of a flow whose path groups are single paths."""
        return tuple(by_name.get(self._order[flow][group[0]], 0.0) for group in self._path_groups[flow])

    def _by_path(self, flow: str, rates: Sequence[float]) -> tuple[float, ...]:
        """Rates of path groups as agents get them."""
        return by_path(_paceable(rates), self._path_groups[flow], len(self._order[flow]))

    def _is_governed(self, flow: str) -> bool:
        """Whether an override may decide: not of flows that are being handed over."""
        return flow in self._order and not self.routes[flow].ends.is_moving

    def _hear(self, heard: Heard) -> None:
        """Observers that the network does not have are left out."""
        network = self.state.network
        self._heard, self._heard_by = heard, network.interference
        ends = {(node, link.technology) for link in network.links for node in (link.source, link.target)}
        observers = [observer for observer in heard.observers if observer in ends]
        sensing = CarrierSensing.of(network, observers, heard.hears)
        self.state = replace(self.state, external=self.state.external.with_carrier_sensing(sensing))

    def _problem(self, network: Network, routes: Routes) -> RateProblem:
        return self._use(self.posed(network, routes))

    def _use(self, posed: Posed) -> RateProblem:
        self._indexed, self._paths, self._indexed_for = posed.indexed, posed.paths, posed.routes
        return posed.problem

    def posed(self, network: Network, routes: Routes) -> Posed:
        """The rate problem of these routes. It changes nothing, and may take long."""
        changed = differing(self._indexed_for, routes)
        carried = {flow: route for flow in changed if (route := routes.get(flow)) is not None and route.reason is None}
        fresh = {flow: self._indexed_by(network, route) for flow, route in carried.items()}
        indexed = in_order_of(routes, self._indexed, changed, fresh)
        paths = in_order_of(routes, self._paths, changed, {flow: of.paths for flow, of in fresh.items()})
        specs, utilities = specs_of(routes), None
        if self.options.mode != SOLVER:
            specs = with_parts_of_weight(specs)
        else:
            utilities = utilities_from([of.utility for of in indexed.values()])
        margin, like = self._margins(network, specs, paths), self.state.problem.layout
        problem = rate_problem(network, paths, flows=specs, margin=margin, utilities=utilities, like=like)
        return Posed(routes, indexed, paths, problem)

    def _indexed_by(self, network: Network, route: FlowRoute) -> _Indexed:
        """The very object of before if it is the same: then layouts have it in common."""
        known, made = self._indexed.get(route.spec.id), _Indexed.of(network, route)
        return made if known is None or known != made else known

    def _margins(self, network: Network, specs: Sequence[FlowSpec], paths: Mapping[str, Paths]) -> FloatArray:
        """Per link; what carries TCP needs airtime for what comes back, in all domains that its paths touch."""
        margins = np.full(len(network.links), float(self.options.margin))
        if self.options.tcp_margin > self.options.margin:
            tcp = {link for spec in specs if spec.is_tcp for path in paths[spec.id] for link in path}
            for link in tcp:
                margins[domain_of(network.interference, link)] = self.options.tcp_margin
        return margins


@dataclass(frozen=True, eq=False)
class Posed:
    """A rate problem, and what it was made of by flow."""

    routes: Routes
    indexed: Mapping[str, _Indexed]
    paths: Mapping[str, Paths]
    problem: RateProblem


@dataclass(frozen=True, slots=True)
class _Indexed:
    """A multipath as the solver gets it: path groups as positions of links, and its utility."""

    paths: list[tuple[int, ...]]
    utility: tuple[float, float, float]

    @classmethod
    def of(cls, network: Network, route: FlowRoute) -> _Indexed:
        """A group with copies takes the airtime of all its paths: to the solver it is one path, as long as all."""
        index, links = network.link_index, separate_links(route.use, route.paths)
        paths = [tuple(index[link] for path in group for link in links[path]) for group in route.path_groups]
        return cls(paths, utility_of(route.spec))


def specs_of(routes: Routes) -> list[FlowSpec]:
    """The flows that are multipaths, in the order of the problem."""
    return [route.spec for route in routes.values() if route.reason is None]


def _group_names(
    order: Mapping[str, tuple[PathName, ...]], path_groups: Mapping[str, PathGroups], flows: Iterable[str]
) -> dict[str, tuple[tuple[PathName, ...], ...]]:
    """Of some flows, by path group the paths in it."""
    return {flow: tuple(tuple(order[flow][i] for i in group) for group in path_groups[flow]) for flow in flows}


def _paceable(rates_mbps: Sequence[float]) -> tuple[float, ...]:
    """Rates as agents get them: rounded down, and 0 instead of next to nothing."""
    least = max(MIN_PATH_MBPS, MIN_PATH_SHARE * math.fsum(rates_mbps))
    return tuple(_rounded(rate) if rate >= least else 0.0 for rate in rates_mbps)


def _rounded(rate_mbps: float) -> float:
    """Down to a step, but for the last bits of a rate that is one."""
    return round(math.floor(rate_mbps / RATE_STEP_MBPS + 1e-6) * RATE_STEP_MBPS, 6)

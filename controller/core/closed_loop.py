"""One slot of the closed loop, pure: measurements in, rates out (docs/explanation/closed-loop.md).

    samples -> capacities      (estimate.link_estimate)
    rates of flows, busy times -> external airtime      (estimate.busy_time)
    rates of flows -> demands      (demand)
    capacities, external airtime, demands -> optimal rates      (rates); flows whose rates are fixed come first
    rates -> those that changed enough to be sent

Time is an argument; everything is immutable, so that a caller can keep, compare and drop states.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from hyroads.controller.core.estimate.busy_time import ExternalAirtime, Interface
from hyroads.controller.core.estimate.link_estimate import Estimates, LinkEstimator, Sample, Source
from hyroads.controller.core.rates.allocation import transferred
from hyroads.controller.core.rates.problem import FloatArray

from .demand import Demands, Offer
from .errors import PlanningError
from .mappings import patched
from .network import Network
from .rates import Allocation, Layout, RateProblem, solve

Allocate = Callable[[RateProblem, Allocation | None], Allocation]
"""A problem and the last allocation (a hint) -> the next one."""
PathId = tuple[str, int]
"""(flow id, position of the path in the flow)."""


@dataclass(frozen=True, eq=False)
class GroupAirtime:
    """What multicast sessions take, float64[L]: ``reserved`` is the share of time of every link's domain that flows
    leave to them; ``own`` the share of time that they send on each link, as measured (a transmission that serves
    several links counts for the first of them).
    """

    reserved: FloatArray
    own: FloatArray


@dataclass(frozen=True)
class Measurements:
    """What came in during a slot: capacities, busy shares by interface, measured rates by path, offers by flow.

    ``path_mbps`` is what paths carried (received rates; those sent where none is known): it gives our own airtime.
    ``path_rates_mbps`` (shape P, nan where a rate is not known) takes its place if it is given.
    Where that is in doubt because rates have just changed, our traffic on a link may be up to ``most_mbps`` (shape L).
    All of it was heard ``late_s`` seconds later than usual, as we were busy: nobody is taken to be silent for that.
    """

    samples: Sequence[Sample] = ()
    busy: Mapping[Interface, float] = field(default_factory=dict)
    path_mbps: Mapping[PathId, float] = field(default_factory=dict)
    offers: Mapping[str, Offer] = field(default_factory=dict)
    most_mbps: FloatArray | None = None
    groups: GroupAirtime | None = None
    path_rates_mbps: FloatArray | None = None
    late_s: float = 0.0


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """``push_threshold``: a flow's rates are sent when one changed by more than this share of the flow's total (and
    ``push_mbps``).

    A link whose estimate is stale is used at ``stale_share`` of it: the traffic on it is the best chance to learn
    more, but nobody should count on it. Rates that fall because a domain is fuller are sent from ``push_down`` on;
    rises from ``push_along`` on, if those of another flow are sent anyway, or if they last for ``push_risen_s``.
    """

    push_threshold: float = 0.03
    push_down: float = 0.015
    push_along: float = 0.01
    push_risen_s: float = 1.0
    push_mbps: float = 0.05
    stale_share: float = 0.5


@dataclass(frozen=True, eq=False)
class InForce:
    """The rates in force, ``pushed`` by flow, as an array for a layout: ``mbps[P]`` is nan where ``is_known[F]`` is
    false, as the flow has rates of another number of paths. ``is_new[F]`` says which flows have none.
    """

    pushed: Mapping[str, tuple[float, ...]]
    layout: Layout
    mbps: FloatArray
    is_known: NDArray[np.bool_]
    is_new: NDArray[np.bool_]

    @staticmethod
    def of(pushed: Mapping[str, tuple[float, ...]], layout: Layout) -> InForce:
        """These rates."""
        known = [pushed.get(flow, ()) for flow in layout.flow_ids]
        sizes = [where.stop - where.start for where in layout.path_slices()]
        is_known = np.array([len(old) == size for old, size in zip(known, sizes, strict=True)], dtype=bool)
        if not is_known.all():
            rows = zip(known, is_known.tolist(), sizes, strict=True)
            known = [old if is_same else (np.nan,) * size for old, is_same, size in rows]
        mbps = np.fromiter(chain.from_iterable(known), dtype=float, count=layout.path_count)
        return InForce(pushed, layout, mbps, is_known, np.array([f not in pushed for f in layout.flow_ids], dtype=bool))

    def moved(self, layout: Layout) -> InForce:
        """Of the flows that have as many paths in another layout; what that has in common with this one is taken."""
        sizes, pushed = np.diff(layout.bounds), self.pushed
        stays, mbps = np.zeros(layout.flow_count, dtype=bool), np.full(layout.path_count, np.nan)
        if layout.rows_in is not None and layout.rows_in[0]() is self.layout:
            rows, is_known = layout.rows_in[1], self.is_known[self.layout.path_flow]
            stays[sizes > 0] = np.append(is_known, False)[rows[layout.bounds[:-1][sizes > 0]]]
            mbps = np.where(stays[layout.path_flow], np.append(self.mbps, np.nan)[rows], np.nan)
        gone = pushed.keys() - layout.row_of.keys()
        is_new = np.zeros(layout.flow_count, dtype=bool)
        for row in np.flatnonzero(~stays).tolist():
            flow, where = layout.flow_ids[row], layout.paths_of(row)
            given = pushed.get(flow)
            is_new[row] = given is None or len(given) != where.stop - where.start
            if given is not None and is_new[row]:
                gone.add(flow)
            elif given is not None:
                mbps[where] = given
        return InForce(patched(pushed, {}, gone), layout, mbps, ~is_new | (sizes == 0), is_new)

    def without(self, flows: Collection[str]) -> InForce:
        """As if some flows had no rates."""
        layout = self.layout
        gone = np.zeros(layout.flow_count, dtype=bool)
        gone[[layout.row_of[flow] for flow in flows if flow in layout.row_of]] = True
        pushed = patched(self.pushed, {}, flows)
        is_known = np.where(gone, np.diff(layout.bounds) == 0, self.is_known)
        return InForce(
            pushed, layout, np.where(gone[layout.path_flow], np.nan, self.mbps), is_known, self.is_new | gone
        )

    def after(self, mbps: FloatArray, given: NDArray[np.bool_], changed: Mapping[str, tuple[float, ...]]) -> InForce:
        """With ``mbps[P]`` for the flows that are ``given[F]`` rates; ``changed`` are those for which that is news."""
        if not changed:
            return self
        is_known, is_new = self.is_known | given, self.is_new & ~given
        return InForce(patched(self.pushed, changed), self.layout, mbps, is_known, is_new)


@dataclass(frozen=True, eq=False)
class LoopState:
    """State between two slots. ``problem`` holds layout, utilities and margins; ``pushed`` the rates in force."""

    network: Network
    problem: RateProblem
    estimator: LinkEstimator
    external: ExternalAirtime
    demands: Demands
    settings: LoopSettings = field(default_factory=LoopSettings)
    allocation: Allocation | None = None
    spare: Allocation | None = None
    """What flows that send little got beyond their demands, as the next slot's warm start."""
    pushed: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    last_in_force: InForce | None = None
    """What :attr:`in_force` was a moment ago, for these rates or others."""
    risen_s: FloatArray | None = None
    """By flow: since when it could have more, by ``push_along`` at least (nan where it could not); None: not known."""

    @cached_property
    def in_force(self) -> InForce:
        """``pushed`` as an array."""
        last, layout = self.last_in_force, self.problem.layout
        is_same = last is not None and last.pushed is self.pushed and last.layout is layout
        return last if last is not None and is_same else InForce.of(self.pushed, layout)

    def with_problem(self, problem: RateProblem) -> LoopState:
        """With other flows or paths (a new layout) of the same network: estimates and the warm start stay."""
        known = self.in_force.moved(problem.layout)
        warm = None if self.allocation is None else transferred(self.allocation, problem.layout)
        return replace(
            self, problem=problem, allocation=warm, spare=None, pushed=known.pushed, last_in_force=known, risen_s=None
        )

    def without_rates(self, flows: Collection[str]) -> LoopState:
        """As if some flows had no rates in force."""
        if not flows:
            return self
        known = self.in_force.without(flows)
        return replace(self, pushed=known.pushed, last_in_force=known)


@dataclass(frozen=True, eq=False)
class SlotResult:
    """What a slot gives: all rates (``allocation``) and all estimates. Flows that are ``given[F]`` rates have
    ``mbps[P]`` from now on, the others what they had. ``found`` is the next state but for that.
    """

    found: LoopState
    mbps: FloatArray
    given: NDArray[np.bool_]
    allocation: Allocation
    estimates: Estimates
    stale: tuple[Interface, ...]

    @cached_property
    def push(self) -> Mapping[str, tuple[float, ...]]:
        """The rates to send, by flow one per path: those that are not in force yet."""
        before = self.found.in_force
        layout = before.layout
        differs = before.is_new | ~before.is_known
        differs[layout.path_flow[before.mbps != self.mbps]] = True
        return _by_flow(layout, self.mbps, differs & self.given)

    @cached_property
    def state(self) -> LoopState:
        """The next state."""
        in_force = self.found.in_force.after(self.mbps, self.given, self.push)
        return replace(self.found, pushed=in_force.pushed, last_in_force=in_force)

    def giving(self, rates: Mapping[str, Sequence[float]]) -> SlotResult:
        """With these rates of some flows instead, one per path."""
        if not rates:
            return self
        layout, mbps, given = self.found.problem.layout, self.mbps.copy(), self.given.copy()
        for flow, of_paths in rates.items():
            row = layout.row_of[flow]
            mbps[layout.paths_of(row)], given[row] = of_paths, True
        return replace(self, mbps=mbps, given=given)

    def giving_least(self, least_mbps: float, but: Collection[str] = ()) -> SlotResult:
        """With at least ``least_mbps`` of each flow ``but`` some: who has less than half of it gets it on the first of
        its paths.
        """
        layout = self.found.problem.layout
        poor = (layout.flow_rates(self.mbps) < least_mbps / 2) & (np.diff(layout.bounds) > 0)
        poor[[layout.row_of[flow] for flow in but if flow in layout.row_of]] = False
        if not poor.any():
            return self
        mbps = np.where(poor[layout.path_flow], 0.0, self.mbps)
        mbps[layout.bounds[:-1][poor]] = least_mbps
        return replace(self, mbps=mbps, given=self.given | poor)


def slot(
    state: LoopState,
    measured: Measurements,
    now_s: float,
    *,
    fixed: Mapping[str, Sequence[float]] = MappingProxyType({}),
    allocate: Allocate = solve,
    allocate_spare: Allocate = solve,
) -> SlotResult:
    """One slot that ends at ``now_s``: optimal rates under what is believed now, and what of it to send.

    ``fixed`` are flows whose rates (one per path) are decided elsewhere: they get them, the others share the airtime
    that is left. Their demands are not looked at. ``allocate_spare`` allocates what nobody wants. Raises
    ``PlanningError`` if the number of rates is wrong.
    """
    layout = state.problem.layout
    estimator = state.estimator.after(measured.samples)
    heard_s = now_s - measured.late_s
    estimates = estimator.estimates(heard_s)
    # Estimates as they are, stale ones at a share, unknown links out (0).
    capacity = estimates.planned_mbps(state.settings.stale_share, state.network.link_ids)
    external = _external(state, measured, capacity, now_s)
    demands = state.demands.carried(measured.offers, now_s, layout.flow_ids)
    problem = state.problem.changed(
        capacity_mbps=capacity,
        external=external.per_link(heard_s) + (0.0 if measured.groups is None else measured.groups.reserved),
        demand_mbps=demands.demands_mbps(layout.flow_ids),
    )
    allocation = allocate_around(problem, fixed, state.allocation, allocate)
    spare = spare_airtime(problem, allocation, fixed, state.spare, allocate_spare)
    given = allocation if spare is None else plus(problem, allocation, spare)
    differs, risen_s = _lasting(state, given, now_s, _to_push(state.in_force, given, state.settings, fixed))
    mbps = np.where(differs[layout.path_flow], given.path_rates_mbps, state.in_force.mbps)
    found = replace(
        state,
        problem=problem,
        estimator=estimator,
        external=external,
        demands=demands,
        allocation=allocation,
        spare=spare,
        last_in_force=state.in_force,
        risen_s=risen_s,
    )
    return SlotResult(found, mbps, differs, given, estimates, external.stale(heard_s))


def _external(state: LoopState, measured: Measurements, capacity: FloatArray, now_s: float) -> ExternalAirtime:
    sensing, rates = state.external.sensing, _measured_link_rates(state.problem, measured)
    if measured.groups is not None:
        rates += measured.groups.own * capacity
    own = sensing.own_airtime(rates, capacity)
    if measured.most_mbps is None or not measured.most_mbps.any():
        return state.external.after(measured.busy, own, now_s)
    most = sensing.own_airtime(np.maximum(rates, measured.most_mbps), capacity)
    return state.external.after(measured.busy, own, now_s, most)


def allocate_around(
    problem: RateProblem, fixed: Mapping[str, Sequence[float]], warm: Allocation | None, allocate: Allocate = solve
) -> Allocation:
    """The allocation in which some flows have the rates of ``fixed`` and the others the best of what is left.

    ``utility`` and its gap are those of the others.
    """
    if not fixed:
        return allocate(problem, warm)
    layout = problem.layout
    rates = np.zeros(layout.path_count)
    demand = problem.demand_mbps.copy()
    for flow, given in ((flow, given) for flow, given in fixed.items() if flow in layout.row_of):
        row = layout.row_of[flow]
        where = layout.paths_of(row)
        if len(given) != where.stop - where.start:
            raise PlanningError(f"flow {flow!r} has {where.stop - where.start} paths, got {len(given)} rates")
        rates[where] = given
        demand[row] = 0.0
    with np.errstate(divide="ignore"):
        # A link whose capacity nobody knows: all of its domain's time may be gone.
        busy = np.minimum(problem.airtime(rates), 1.0)
    rest = problem.changed(external=problem.external + busy, demand_mbps=demand)
    found = allocate(rest, warm)
    together = found.path_rates_mbps + rates
    return replace(found, path_rates_mbps=together, flow_rates_mbps=layout.flow_rates(together))


def spare_airtime(
    problem: RateProblem,
    allocation: Allocation,
    fixed: Collection[str],
    warm: Allocation | None,
    allocate: Allocate = solve,
) -> Allocation | None:
    """Airtime that nobody wants, shared among the flows that send little: they can wake up without waiting for a slot.

    It costs the others nothing, who have all that they want already. None if there is no such flow.
    """
    limited = np.isfinite(problem.demand_mbps)
    if fixed:
        rows = problem.layout.row_of
        limited[[rows[flow] for flow in fixed if flow in rows]] = False
    if not limited.any():
        return None
    with np.errstate(divide="ignore"):
        own = problem.airtime(allocation.path_rates_mbps)
    taken = problem.external + own
    free = 1.0 - problem.margin - taken > _LEAST_SPARE
    wanted = np.where(limited, np.inf, 0.0)
    return allocate(problem.changed(external=np.where(free, taken, 1.0), demand_mbps=wanted), warm)


# Less airtime than this is a rounding error of the solver, and wakes nobody.
_LEAST_SPARE = 0.01


def plus(problem: RateProblem, allocation: Allocation, spare: Allocation) -> Allocation:
    """Both together; utility and certificate are those of the first."""
    rates = allocation.path_rates_mbps + spare.path_rates_mbps
    return replace(
        allocation,
        path_rates_mbps=rates,
        flow_rates_mbps=problem.layout.flow_rates(rates),
        busiest=partial(problem.busiest, rates),
    )


def to_push(
    before: Mapping[str, tuple[float, ...]], allocation: Allocation, settings: LoopSettings, exact: Collection[str] = ()
) -> dict[str, tuple[float, ...]]:
    """Rates of flows of which one changed by more than the threshold; of new ones, and changed ``exact`` ones, too."""
    layout = allocation.layout
    differs = _to_push(InForce.of(before, layout), allocation, settings, exact)
    return _by_flow(layout, allocation.path_rates_mbps, differs)


def _by_flow(layout: Layout, mbps: FloatArray, which: NDArray[np.bool_]) -> dict[str, tuple[float, ...]]:
    """Of some flows the rates of their paths."""
    rows = np.flatnonzero(which).tolist()
    return {layout.flow_ids[row]: tuple(mbps[layout.paths_of(row)].tolist()) for row in rows}


def _to_push(
    before: InForce, allocation: Allocation, settings: LoopSettings, exact: Collection[str]
) -> NDArray[np.bool_]:
    """As :func:`to_push`: whether the rates of each flow are to be sent, shape F."""
    layout = allocation.layout
    old, new = before.mbps, allocation.path_rates_mbps
    total_before, total = layout.flow_rates(old), layout.flow_rates(new)
    differs = ~before.is_known | before.is_new | _matters(total_before, total, total, settings)
    differs[layout.path_flow[_matters(old, new, total[layout.path_flow], settings)]] = True
    if differs.any():
        # What one gives up is another's at once, and not kept from it until more comes together.
        differs |= _could_rise(total_before, total, settings)
    for row in [layout.row_of[flow] for flow in exact if flow in layout.row_of]:
        where = layout.paths_of(row)
        differs[row] = before.is_new[row] or not np.array_equal(old[where], new[where])
    return np.asarray(differs)


def _lasting(
    state: LoopState, given: Allocation, now_s: float, differs: NDArray[np.bool_]
) -> tuple[NDArray[np.bool_], FloatArray]:
    """Rates that are to be sent, with those of flows that could have a little more for long enough; since when others
    could.

    Otherwise noise would keep rates below the optimum: falls are sent sooner than rises.
    """
    settings, layout = state.settings, given.layout
    before, total = layout.flow_rates(state.in_force.mbps), layout.flow_rates(given.path_rates_mbps)
    could = _could_rise(before, total, settings) & ~differs
    since_s = np.full(layout.flow_count, now_s) if state.risen_s is None else state.risen_s
    risen_s = np.where(could, np.where(np.isnan(since_s), now_s, since_s), np.nan)
    lasts = could & (now_s - risen_s >= settings.push_risen_s)
    return differs | lasts, np.where(lasts, np.nan, risen_s)


def _could_rise(before: FloatArray, total: FloatArray, settings: LoopSettings) -> NDArray[np.bool_]:
    """Whether flows could have more than before, by the threshold ``push_along`` at least."""
    along = replace(settings, push_threshold=settings.push_along)
    return np.asarray((total > before) & _matters(before, total, total, along))


def _matters(before: FloatArray, after: FloatArray, total: FloatArray, settings: LoopSettings) -> NDArray[np.bool_]:
    """Whether rates of flows with these totals changed by more than the threshold."""
    share = np.where(after < before, settings.push_down, settings.push_threshold)
    return np.asarray(np.abs(after - before) > np.maximum(settings.push_mbps, share * np.maximum(before, total)))


def _measured_link_rates(problem: RateProblem, measured: Measurements) -> FloatArray:
    if measured.path_rates_mbps is None:
        return link_rates(problem, measured.path_mbps)
    rates = measured.path_rates_mbps
    return np.asarray(problem.layout.routing_t @ np.where(np.isnan(rates), 0.0, rates))


def link_rates(problem: RateProblem, path_mbps: Mapping[PathId, float]) -> FloatArray:
    """Our traffic on every link from that of the paths; shape L."""
    layout = problem.layout
    flows = zip(layout.flow_ids, layout.path_slices(), strict=True)
    names = ((flow, position) for flow, where in flows for position in range(where.stop - where.start))
    rates = np.array([path_mbps.get(name, 0.0) for name in names], dtype=float)
    return np.asarray(layout.routing.T @ rates)


def configured_samples(network: Network, now_s: float) -> tuple[Sample, ...]:
    """The capacities of a network file as samples of the source ``configured``."""
    return tuple(Sample(link.id, Source.CONFIGURED, link.capacity_mbps, now_s) for link in network.links)

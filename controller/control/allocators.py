"""Two ways to find the rates of a slot: the exact solver, and the papers' controller. Both keep state between slots."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import numpy as np

from hyroads.controller.core.rates import Allocation, Layout, RateProblem, solve
from hyroads.controller.core.rates.allocation import path_names
from hyroads.controller.core.rates.controller_mode import ControllerSettings, ControllerState, step
from hyroads.controller.core.rates.groups import Merged
from hyroads.controller.core.rates.minimum import Guaranteed, solve_with_minimums
from hyroads.controller.core.rates.problem import FloatArray
from hyroads.controller.core.rates.shares import Shared, SliceShares, Solver, solve_with_shares
from hyroads.controller.native.rates import Aside

Groups = Mapping[str, object]
"""Flow id -> what flows of one group have in common: those with the same value have one utility."""
NO_GROUPS: Groups = {}


class Allocator(Protocol):
    """Finds rates slot by slot."""

    granted: Mapping[str, Grant]
    """What was made of the guarantees in the last slot, for flows that were there."""

    def allocate(self, problem: RateProblem, last: Allocation | None, aside: Aside | None = None) -> Allocation:
        """The rates of this slot; ``aside``, if given, carries out what takes long and needs nothing else."""

    def laid_out(self, problem: RateProblem, shares: SliceShares | None = None, groups: Groups = NO_GROUPS) -> None:
        """Flows or paths changed; ``shares`` are what their slices have to keep, ``groups`` which flows have one
        utility.
        """

    def guarantee(self, minimum_mbps: Mapping[str, float]) -> None:
        """Least rates of flows from now on; those in front go before the others where not all can be kept."""

    @property
    def held(self) -> Collection[tuple[str, int]]:
        """Slices that were held back in the last slot, and links in whose domain."""


@dataclass(frozen=True, slots=True)
class Grant:
    """A guaranteed rate: what the flow wants of what was promised, and what could be given."""

    wanted_mbps: float
    given_mbps: float

    @property
    def is_short(self) -> bool:
        """Whether there is less than the flow wants."""
        return self.given_mbps < self.wanted_mbps * (1 - _SHORT)


# The solver's rounding is no shortage.
_SHORT = 1e-4


class SolverMode:
    """The optimum, every slot."""

    def __init__(self) -> None:
        self._minimums: Mapping[str, float] = {}
        self._shares: SliceShares | None = None
        self._merged_shares: SliceShares | None = None
        self._shared: Shared | None = None
        # Of the problems of a slot without and with bounds of slices, what their guarantees were made of last.
        self._guaranteed: dict[bool, Guaranteed] = {}
        self._groups: Groups = NO_GROUPS
        self._merged: Merged | None = None
        self._merged_for: Layout | None = None
        self._merged_last: Allocation | None = None
        self.granted: Mapping[str, Grant] = {}

    def guarantee(self, minimum_mbps: Mapping[str, float]) -> None:
        """See :class:`Allocator`. A flow with a least rate leaves its group: that rate was promised to it alone."""
        alike = minimum_mbps.keys() == self._minimums.keys()
        self._minimums, self._guaranteed, self.granted = dict(minimum_mbps), {}, {}
        if not alike:
            self._merged_for, self._shared = None, None

    def allocate(self, problem: RateProblem, last: Allocation | None, aside: Aside | None = None) -> Allocation:
        """See :class:`Allocator`."""
        plain = solve if aside is None else partial(solve, aside=aside)
        if not self._groups:
            return self._allocated(problem, self._shares, last, plain)
        if self._merged_for is not problem.layout:
            self._merge(problem.layout)
        if self._merged is None:
            return self._allocated(problem, self._shares, last, plain)
        warm = self._merged_last if self._merged_last is not None else self._merged.warm(last)
        self._merged_last = self._allocated(self._merged.problem(problem), self._merged_shares, warm, plain)
        return self._merged.allocation(problem, self._merged_last)

    def _merge(self, layout: Layout) -> None:
        grouped = {flow: group for flow, group in self._groups.items() if flow not in self._minimums}
        self._merged, self._merged_for, self._merged_last = Merged.of(layout, grouped), layout, None
        self._merged_shares = None
        if self._merged is not None and self._shares is not None:
            self._merged_shares = self._merged.shares(self._shares)

    def _allocated(
        self, problem: RateProblem, shares: SliceShares | None, last: Allocation | None, plain: Solver
    ) -> Allocation:
        self.granted = {}
        known = problem.layout.flow_ids if self._minimums else ()
        number = {flow: index for index, flow in enumerate(known)}
        order = [number[flow] for flow in self._minimums if flow in number]
        if not order:
            return self._within_shares(problem, shares, last, plain)
        minimum = np.zeros(problem.layout.flow_count)
        minimum[order] = [self._minimums[problem.layout.flow_ids[flow]] for flow in order]
        granted: list[tuple[Allocation, FloatArray]] = []

        def solver(posed: RateProblem, warm: Allocation | None) -> Allocation:
            is_bounded = posed.bounds is not None
            before = self._guaranteed.get(is_bounded)
            start = None if warm is None else Guaranteed(warm, minimum, None if before is None else before.split)
            self._guaranteed[is_bounded] = found = solve_with_minimums(posed, minimum, order=order, warm=start)
            granted.append((found.allocation, found.minimum_mbps))
            return found.allocation

        allocation = self._within_shares(problem, shares, last, solver)
        given = next(given for found, given in granted if found is allocation)
        wanted = np.minimum(minimum, problem.demand_mbps)
        self.granted = {problem.layout.flow_ids[flow]: Grant(float(wanted[flow]), float(given[flow])) for flow in order}
        return allocation

    @property
    def held(self) -> Collection[tuple[str, int]]:
        """See :class:`Allocator`."""
        if self._shares is None or self._shared is None:
            return ()
        return {(self._shares.names[index], bound.link) for bound in self._shared.bounds for index in bound.slices}

    def laid_out(self, problem: RateProblem, shares: SliceShares | None = None, groups: Groups = NO_GROUPS) -> None:
        """The warm start is in the last allocation already."""
        self._shares, self._shared, self._guaranteed = shares, None, {}
        self._groups, self._merged_for = groups, None

    def _within_shares(
        self, problem: RateProblem, shares: SliceShares | None, last: Allocation | None, solver: Solver
    ) -> Allocation:
        if shares is None:
            return solver(problem, last)
        warm = self._shared
        if warm is None and last is not None:
            warm = Shared(last, last, None)
        self._shared = solve_with_shares(problem, shares, warm=warm, solver=solver)
        return self._shared.allocation


class ControllerMode:
    """The slotted controller (``core.rates.controller_mode``): approaches the optimum over tens of slots.

    Every path has its own unit of rates, so that it works alike on slow and fast networks, and where both meet.
    """

    def __init__(self) -> None:
        self._settings = ControllerSettings()
        self._state: ControllerState | None = None
        self._names: list[tuple[str, tuple[int, ...]]] = []
        self.granted: Mapping[str, Grant] = {}
        self.held: Collection[tuple[str, int]] = ()

    def guarantee(self, minimum_mbps: Mapping[str, float]) -> None:
        """The papers' controller knows no least rates."""

    def laid_out(self, problem: RateProblem, shares: SliceShares | None = None, groups: Groups = NO_GROUPS) -> None:
        """Paths that stay keep rate and average, links their prices; step size and oscillations start anew.

        The papers' controller knows no shares: settings that have both are refused. It knows no groups either: their
        flows come with parts of the weight (see ``loop``).
        """
        names = path_names(problem.layout)
        fresh = ControllerState.initial(problem.layout, self._settings)
        old = self._state
        if old is not None:
            fresh = replace(
                fresh,
                path_rates_mbps=_carried(names, self._names, old.path_rates_mbps),
                averages_mbps=_carried(names, self._names, old.averages_mbps),
                link_prices=old.link_prices,
            )
        self._state, self._names = fresh, names

    def allocate(self, problem: RateProblem, last: Allocation | None, aside: Aside | None = None) -> Allocation:
        """One step. Rates on the way to the optimum may ask for more than all airtime; gap_utility is unknown."""
        if self._state is None:
            self.laid_out(problem)
        state = self._state if self._state is not None else ControllerState.initial(problem.layout, self._settings)
        self._state = state = step(problem, state, self._settings)
        rates = np.where(problem.demand_mbps[problem.layout.path_flow] > 0, state.path_rates_mbps, 0.0)
        flows = problem.layout.flow_rates(rates)
        utility, busiest = problem.utilities.total(flows), partial(problem.busiest, rates)
        return Allocation(problem.layout, rates, flows, state.link_prices, utility, _unknown, busiest, 1, 0)


def _unknown() -> float:
    return math.inf


def _carried(
    names: list[tuple[str, tuple[int, ...]]], before: list[tuple[str, tuple[int, ...]]], values: FloatArray
) -> FloatArray:
    known: Mapping[tuple[str, tuple[int, ...]], float] = dict(zip(before, values.tolist(), strict=True))
    return np.array([known.get(name, 0.0) for name in names], dtype=float)


SOLVER = "solver"
MODES: Mapping[str, Callable[[], Allocator]] = {SOLVER: SolverMode, "controller": ControllerMode}
"""By the setting ``mode``."""

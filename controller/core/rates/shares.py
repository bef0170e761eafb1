"""Airtime shares of slices: bounds on what the flows of a slice take together (docs/explanation/rates.md).

With b_m the airtime that a domain m has for our flows, a_{s,m} that of the flows of slice s there, and sigma_{s,m} the
slice's share (1 where it has none, as production): let e be the airtimes a at the optimum in which *every* slice keeps
to its share everywhere, a_{s,m} <= sigma_{s,m} b_m. That is what each would use within its share. The bound of a set S
of slices in a domain is then

    sum_{s in S} a_{s,m}  <=  max( sum_{s in S} sigma_{s,m} b_m,  b_m - sum_{t not in S} e_{t,m} )

The sets are each slice alone, all slices that have a share there, and all but one of them. From the optimum without
bounds on, every bound joins that is broken while somebody outside of the set wants more of the domain and has less than
e there, all such at once; then the optimum with them is looked at in the same way, until none joins. So nothing depends
on an order, where nobody misses anything nothing is bound, and airtime that the others don't want is used.

Bounds are rows of the rate problem (``problem.Bounds``) on the layout that it has anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import sparse

from hyroads.controller.core.network import FlowSpec, Link

from .allocation import Allocation
from .problem import BoolArray, Bounds, FloatArray, IndexArray, RateProblem, sums_by
from .solver import solve

Solver = Callable[[RateProblem, Allocation | None], Allocation]
"""A problem and a warm start -> its optimum."""

# Bounds, entitlements and demands are met up to this part of them: the rest is rounding, or a price's noise.
_ROUNDING = 1e-4
# A flow wants more of a domain if its price keeps it from there by more than this part of the flow's slope.
_NOTICEABLE = 1e-3
# After so many rounds all bounds hold, whoever misses anything.
_ROUNDS = 8


@dataclass(frozen=True, eq=False)
class SliceShares:
    """Who is bound: ``names[n]``, the slice of every flow (``slice_of[F]``, n for those without a bound), and
    ``share[n, L]`` of the domain of each link, 1 where a slice has none.
    """

    names: tuple[str, ...]
    slice_of: IndexArray
    share: FloatArray

    @staticmethod
    def of(
        flows: Sequence[FlowSpec], links: Sequence[Link], shares: Mapping[str, Mapping[str, float]]
    ) -> SliceShares | None:
        """The shares (slice -> technology -> share) that these flows have to keep; None if there are none."""
        if not shares:
            return None
        technologies = {link.technology for link in links}
        bound = [
            name
            for name in dict.fromkeys(flow.slice for flow in flows)
            if any(share < 1 and technology in technologies for technology, share in shares.get(name, {}).items())
        ]
        if not bound:
            return None
        number = {name: index for index, name in enumerate(bound)}
        return SliceShares(
            tuple(bound),
            np.array([number.get(flow.slice, len(bound)) for flow in flows], dtype=np.intp),
            np.array([[shares[name].get(link.technology, 1.0) for link in links] for name in bound], dtype=float),
        )


@dataclass(frozen=True, slots=True)
class Bound:
    """Flows of these slices (numbers) together take at most so much airtime in the domain of a link."""

    slices: tuple[int, ...]
    link: int
    airtime: float


@dataclass(frozen=True, eq=False)
class Shared:
    """An allocation that keeps shares with the bounds that took part, and what the next slot starts from: the optimum
    without bounds, that in which everybody keeps to the shares (None if nobody asked), and those of the ``rounds`` that
    led there.
    """

    allocation: Allocation
    plain: Allocation
    entitled: Allocation | None
    bounds: tuple[Bound, ...] = ()
    rounds: tuple[Allocation, ...] = ()


def solve_with_shares(
    problem: RateProblem, shares: SliceShares, *, warm: Shared | None = None, solver: Solver = solve
) -> Shared:
    """The rates of a slot in which slices keep their shares (see the module); ``warm`` is the last slot's."""
    plain = solver(problem, warm.plain if warm else None)
    demands = _Demands(problem, shares)
    if not demands.may_break(plain):
        return Shared(plain, plain, warm.entitled if warm else None)
    sets = _sets_of(shares)
    before = warm.entitled if warm and warm.entitled else plain
    entitled = solver(sets.bounded(problem, sets.alone(problem)), before)
    most, last = np.full(sets.has.shape, np.inf), plain
    before_rounds, rounds = warm.rounds if warm else (), list[Allocation]()
    for round_number in range(most.size):
        joining = demands.broken(sets, last, entitled.path_rates_mbps, most, everywhere=round_number >= _ROUNDS)
        if not len(joining.airtime):
            break
        most[joining.set_of, joining.link] = joining.airtime
        # The same round of the last slot is nearer than the round before, which keeps fewer bounds.
        start = before_rounds[round_number] if round_number < len(before_rounds) else last
        last = solver(sets.bounded(problem, most), start)
        rounds.append(last)
    return Shared(last, plain, entitled, sets.named(most), tuple(rounds))


def airtime_of_slices(
    problem: RateProblem, path_rates_mbps: FloatArray, slice_of: IndexArray, count: int
) -> FloatArray:
    """Airtime of each of ``count`` slices in the domain of every link, [count, L]."""
    of_path = slice_of[problem.layout.path_flow]
    rows = [problem.airtime(np.where(of_path == index, path_rates_mbps, 0.0)) for index in range(count)]
    return np.array(rows, dtype=float).reshape(count, problem.layout.link_count)


class _Demands:
    """Who takes how much of which domain, and who wants more of it."""

    def __init__(self, problem: RateProblem, shares: SliceShares) -> None:
        self.problem, self.shares = problem, shares
        self.of_path = shares.slice_of[problem.layout.path_flow]
        # Who wants more of which links at the allocation looked at last.
        self._known: tuple[Allocation, IndexArray, BoolArray] | None = None

    def may_break(self, found: Allocation) -> bool:
        """Whether a slice is above its share where others want more."""
        at = self._priced(found)
        if not len(at):
            return False
        taken = self._taken(found.path_rates_mbps, at)
        over = taken[:, :-1] > (self.shares.share[:, at] * self.problem.budget[at] * (1 + _ROUNDING)).T
        at, over = at[over.any(axis=1)], over[over.any(axis=1)]
        if not len(at):
            return False
        wanted = self._wanted(found, at)
        others = wanted.sum(axis=1)[:, None] - wanted[:, :-1]
        return bool((over & (others > 0)).any())

    def broken(
        self, sets: _Sets, found: Allocation, entitled_mbps: FloatArray, bounds: FloatArray, *, everywhere: bool
    ) -> _Joining:
        """The bounds that join; ``everywhere``: also where nobody misses anything."""
        at = np.flatnonzero(sets.has.any(axis=0)) if everywhere else self._priced(found)
        taken, entitled = self._taken(found.path_rates_mbps, at), self._taken(entitled_mbps, at)
        budget = self.problem.budget[at][:, None]
        inside = sets.members.T
        within = (self.shares.share[:, at].T @ inside[:-1]) * budget
        most = np.minimum(budget, np.maximum(within, budget - entitled @ ~inside))
        over = (taken @ inside > most + _ROUNDING * budget) & sets.has[:, at].T & ~np.isfinite(bounds[:, at].T)
        # Mostly nothing is: who wants more is dear to find out.
        some = np.flatnonzero(over.any(axis=1))
        if not everywhere and len(some):
            missing = taken[some] < entitled[some] - _ROUNDING * budget[some]
            over[some] &= (missing & self._wanted(found, at[some])) @ ~inside > 0
        link, set_of = np.nonzero(over)
        return _Joining(set_of, at[link], most[link, set_of])

    def _priced(self, found: Allocation) -> IndexArray:
        return np.flatnonzero(found.link_prices > 0)

    def _taken(self, path_rates_mbps: FloatArray, at: IndexArray) -> FloatArray:
        """Airtime by link of ``at`` and slice, those without a bound last."""
        layout, slices = self.problem.layout, len(self.shares.names) + 1
        # Most paths carry nothing.
        paths = np.flatnonzero(path_rates_mbps)
        crossed: Any = layout.routing[paths]
        rates, of_path = (np.repeat(each[paths], np.diff(crossed.indptr)) for each in (path_rates_mbps, self.of_path))
        places = crossed.indices.astype(np.intp) * slices + of_path
        carried = sums_by(places, crossed.data * rates, layout.link_count * slices).reshape(-1, slices)
        return np.asarray(layout.domains[layout.class_of[at]] @ (carried * self.problem.inverse_capacity[:, None]))

    def _wanted(self, found: Allocation, at: IndexArray) -> BoolArray:
        """Whether some flow of a slice would take more of a link's domain if that had no price; same shape."""
        if self._known is not None and self._known[0] is found and np.isin(at, self._known[1]).all():
            return np.asarray(self._known[2][np.searchsorted(self._known[1], at)])
        problem, layout = self.problem, self.problem.layout
        totals = layout.flow_rates(found.path_rates_mbps)
        hungry = totals < problem.demand_mbps * (1 - _NOTICEABLE)
        pays = np.where(hungry, problem.utilities.slopes(totals) * (1 - _NOTICEABLE), -np.inf)
        bounds = None if found.bound_prices is None else _sets_of(self.shares).bounded(problem, np.zeros((0, 0)))
        whole = (bounds or problem).path_prices(found.link_prices, found.bound_prices)
        too_dear = whole - pays[layout.path_flow]
        per_link: Any = layout.domains[layout.class_of[at]] @ sparse.diags(problem.inverse_capacity)
        loads = per_link @ layout.routing_t
        saved = loads.data * np.repeat(found.link_prices[at], np.diff(loads.indptr))
        eager = np.flatnonzero((saved > too_dear[loads.indices]) & (loads.data > 0))
        wanted = np.zeros((len(at), len(self.shares.names) + 1), dtype=bool)
        wanted[np.searchsorted(loads.indptr, eager, side="right") - 1, self.of_path[loads.indices[eager]]] = True
        self._known = found, at, wanted
        return wanted


@dataclass(frozen=True, eq=False)
class _Joining:
    """Bounds that join: sets, links, airtimes."""

    set_of: IndexArray
    link: IndexArray
    airtime: FloatArray


@dataclass(frozen=True, eq=False)
class _Sets:
    """The sets of slices that bounds are for (``members[K, S]``, S with those without a bound) and at which links each
    has one, ``has[K, L]``.
    """

    shares: SliceShares
    members: BoolArray
    has: BoolArray

    def bounded(self, problem: RateProblem, most: FloatArray) -> RateProblem:
        """The problem with bounds on airtime, float64[K, L]; inf where none holds."""
        return replace(problem, bounds=Bounds(self.shares.slice_of, self.members, most))

    def alone(self, problem: RateProblem) -> FloatArray:
        """Every slice's own share as its bound."""
        own = (self.members.sum(axis=1) == 1)[:, None] & self.has
        shares = self.shares.share[self.members.argmax(axis=1) % len(self.shares.names)]
        return np.where(own, shares * problem.budget, np.inf)

    def named(self, most: FloatArray) -> tuple[Bound, ...]:
        """The bounds that hold."""
        slices = [tuple(np.flatnonzero(members).tolist()) for members in self.members]
        held = zip(*(index.tolist() for index in np.nonzero(np.isfinite(most))), strict=True)
        return tuple(Bound(slices[k], link, float(most[k, link])) for k, link in held)


@lru_cache(maxsize=4)
def _sets_of(shares: SliceShares) -> _Sets:
    """The sets, kept for the slots that have these shares (which compare by identity)."""
    number: dict[tuple[int, ...], int] = {}
    profiles, profile_of = np.unique(shares.share < 1, axis=1, return_inverse=True)
    families: list[set[int]] = []
    for profile in profiles.T:
        bound = tuple(np.flatnonzero(profile).tolist())
        family = {(index,) for index in bound} | {bound}
        if len(bound) > 2:
            family |= {tuple(other for other in bound if other != index) for index in bound}
        families.append({number.setdefault(each, len(number)) for each in sorted(family) if each})
    has = np.zeros((len(number), len(profiles.T)), dtype=bool)
    for index, sets in enumerate(families):
        has[list(sets), index] = True
    members = np.zeros((len(number), len(shares.names) + 1), dtype=bool)
    for each, index in number.items():
        members[index, list(each)] = True
    return _Sets(shares, members, has[:, profile_of.reshape(-1)])

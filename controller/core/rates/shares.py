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

Bounds are rows like any others: the problem is put on a *wide* layout in which every slice crosses links of its own
(copies of the network's), so that a row can be of some slices alone. Solver and kernel know nothing of slices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from hyroads.controller.core.network import FlowSpec, Link

from .allocation import Allocation
from .problem import FloatArray, IndexArray, Layout, RateProblem
from .solver import pattern_of, solve

BoolArray = NDArray[np.bool_]
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
    without bounds, that in which everybody keeps to the shares (None if nobody asked), and ``last``, the allocation as
    the solver gave it; ``rounds`` are those that led there.
    """

    allocation: Allocation
    plain: Allocation
    entitled: Allocation | None
    last: Allocation
    bounds: tuple[Bound, ...] = ()
    rounds: tuple[Allocation, ...] = ()


def solve_with_shares(
    problem: RateProblem, shares: SliceShares, *, warm: Shared | None = None, solver: Solver = solve
) -> Shared:
    """The rates of a slot in which slices keep their shares (see the module); ``warm`` is the last slot's."""
    plain = solver(problem, warm.plain if warm else None)
    demands = _Demands(problem, shares)
    if not demands.may_break(plain):
        return Shared(plain, plain, warm.entitled if warm else None, plain)
    wide = _wide(problem.layout, shares)
    before = warm.entitled if warm and warm.entitled else wide.widened(plain)
    entitled = solver(wide.problem(problem, wide.alone(problem)), before)
    bounds, last = np.full(len(wide.row_link), np.inf), plain
    before_rounds, rounds = warm.rounds if warm else (), list[Allocation]()
    for round_number in range(len(bounds)):
        everywhere = round_number >= _ROUNDS
        joining = demands.broken(wide, last, entitled.path_rates_mbps, bounds, everywhere=everywhere)
        if not joining:
            break
        for row, bound in joining.items():
            bounds[row] = bound
        # The same round of the last slot is nearer than the round before, which keeps fewer bounds.
        start = before_rounds[round_number] if round_number < len(before_rounds) else last
        last = solver(wide.problem(problem, bounds), wide.widened(plain) if start is plain else start)
        rounds.append(last)
    narrow = last if last is plain else replace(
        last, layout=problem.layout, link_prices=last.link_prices[: problem.layout.link_count]
    )  # fmt: skip
    return Shared(narrow, plain, entitled, last, wide.named(bounds), tuple(rounds))


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
        layout = problem.layout
        self.of_path = shares.slice_of[layout.path_flow]
        self._per_link: Any = sparse.diags(problem.inverse_capacity) @ layout.routing.T

    def may_break(self, found: Allocation) -> bool:
        """Whether a slice is above its share where others want more."""
        at = self._priced(found)
        if not len(at):
            return False
        taken, wanted = self._taken(found.path_rates_mbps, at), self._wanted(found, at)
        over = taken[:, :-1] > (self.shares.share[:, at] * self.problem.budget[at] * (1 + _ROUNDING)).T
        others = wanted.sum(axis=1)[:, None] - wanted[:, :-1]
        return bool((over & (others > 0)).any())

    def broken(
        self, wide: _Wide, found: Allocation, entitled_mbps: FloatArray, bounds: FloatArray, *, everywhere: bool
    ) -> dict[int, float]:
        """The bounds that join, by row; ``everywhere``: also where nobody misses anything."""
        at = np.flatnonzero(wide.row_at.max(axis=0) >= 0) if everywhere else self._priced(found)
        taken, entitled = self._taken(found.path_rates_mbps, at), self._taken(entitled_mbps, at)
        budget = self.problem.budget[at]
        room = _ROUNDING * budget[:, None]
        missing = (taken < entitled - room) & (True if everywhere else self._wanted(found, at))
        joining: dict[int, float] = {}
        for number, members in enumerate(wide.sets):
            rows = wide.row_at[number, at]
            inside = np.zeros(taken.shape[1], dtype=bool)
            inside[list(members)] = True
            within = self.shares.share[list(members)][:, at].sum(axis=0) * budget
            most = np.minimum(budget, np.maximum(within, budget - entitled[:, ~inside].sum(axis=1)))
            over = taken[:, inside].sum(axis=1) > most + room[:, 0]
            missed = missing[:, ~inside].any(axis=1) | everywhere
            new = over & missed & (rows >= 0) & ~np.isfinite(bounds[rows])
            joining.update(zip(rows[new].tolist(), most[new].tolist(), strict=True))
        return joining

    def _priced(self, found: Allocation) -> IndexArray:
        return np.flatnonzero(found.link_prices[: self.problem.layout.link_count] > 0)

    def _taken(self, path_rates_mbps: FloatArray, at: IndexArray) -> FloatArray:
        """Airtime by link of ``at`` and slice, those without a bound last."""
        count = len(self.shares.names) + 1
        rates = np.zeros((len(path_rates_mbps), count))
        rates[np.arange(len(rates)), self.of_path] = path_rates_mbps
        return np.asarray(self._loads(at) @ rates)

    def _loads(self, at: IndexArray) -> Any:
        """Airtime in the domains of links per Mb/s on each path, sparse."""
        layout = self.problem.layout
        return layout.domains[layout.class_of[at]] @ self._per_link

    def _wanted(self, found: Allocation, at: IndexArray) -> BoolArray:
        """Whether some flow of a slice would take more of a link's domain if that had no price; same shape."""
        problem, layout = self.problem, self.problem.layout
        totals = layout.flow_rates(found.path_rates_mbps)
        hungry = (totals < problem.demand_mbps * (1 - _NOTICEABLE))[layout.path_flow]
        slopes = problem.utilities.slopes(totals)[layout.path_flow]
        whole = _path_prices(problem, found, self.shares)
        wanted = np.zeros((len(at), len(self.shares.names) + 1), dtype=bool)
        loads = self._loads(at).tocoo()
        index, path = loads.row, loads.col
        without = whole[path] - found.link_prices[at[index]] * loads.data
        eager = hungry[path] & (loads.data > 0) & (without < slopes[path] * (1 - _NOTICEABLE))
        wanted[index[eager], self.of_path[path[eager]]] = True
        return wanted


def _path_prices(problem: RateProblem, found: Allocation, shares: SliceShares) -> FloatArray:
    """What paths cost, bounds included."""
    if found.layout is problem.layout:
        return problem.path_prices(found.link_prices)
    wide = _wide(problem.layout, shares)
    return wide.problem(problem, np.full(len(wide.row_link), np.inf)).path_prices(found.link_prices)


@dataclass(frozen=True, eq=False)
class _Wide:
    """A layout with the network's links, then a copy of them for each slice, then one link for each bound: set
    ``row_set[R]`` of ``sets`` in the domain of link ``row_link[R]``, which is row ``row_at[set, link]`` (-1: none).
    """

    layout: Layout
    shares: SliceShares
    sets: tuple[tuple[int, ...], ...]
    row_set: IndexArray
    row_link: IndexArray
    row_at: IndexArray

    def problem(self, problem: RateProblem, bounds: FloatArray) -> RateProblem:
        """The problem with bounds on airtime, float64[R]; inf where none holds.

        A bound's link has capacity only while the bound holds, so that all the other rows vanish from the problem:
        with four slices they are nine of ten.
        """
        budget = problem.budget[self.row_link]
        less = budget - np.minimum(bounds, budget)
        return replace(
            problem,
            layout=self.layout,
            capacity_mbps=np.where(self._is_free(bounds), 0.0, self._spread(problem.capacity_mbps)),
            margin=self._spread(problem.margin),
            external=self._spread(problem.external, less),
        )

    def _is_free(self, bounds: FloatArray) -> BoolArray:
        """Which links are those of bounds that do not hold."""
        return np.concatenate([np.zeros(self.layout.link_count - len(bounds), dtype=bool), ~np.isfinite(bounds)])

    def alone(self, problem: RateProblem) -> FloatArray:
        """Every slice's own share as its bound."""
        single, first = (np.array(each) for each in ([len(s) == 1 for s in self.sets], [s[0] for s in self.sets]))
        shares = self.shares.share[first[self.row_set], self.row_link] * problem.budget[self.row_link]
        return np.where(single[self.row_set], shares, np.inf)

    def named(self, bounds: FloatArray) -> tuple[Bound, ...]:
        """The bounds that hold."""
        rows = np.flatnonzero(np.isfinite(bounds)).tolist()
        return tuple(Bound(self.sets[self.row_set[r]], int(self.row_link[r]), float(bounds[r])) for r in rows)

    def widened(self, plain: Allocation) -> Allocation:
        """An allocation of the narrow layout as a warm start."""
        prices = np.zeros(self.layout.link_count)
        prices[: len(plain.link_prices)] = plain.link_prices
        return replace(plain, layout=self.layout, link_prices=prices)

    def _spread(self, values: FloatArray, more: FloatArray | float = 0.0) -> FloatArray:
        copies = len(self.shares.names) + 1
        return np.concatenate([np.tile(values, copies), values[self.row_link] + more])


def _families(share: FloatArray) -> tuple[tuple[tuple[int, ...], ...], BoolArray]:
    """The sets of slices that bounds are for, and at which links each has one, [sets, L]."""
    number: dict[tuple[int, ...], int] = {}
    profiles, profile_of = np.unique(share < 1, axis=1, return_inverse=True)
    members: list[set[int]] = []
    for profile in profiles.T:
        bound = tuple(np.flatnonzero(profile).tolist())
        family = {(index,) for index in bound} | {bound}
        if len(bound) > 2:
            family |= {tuple(other for other in bound if other != index) for index in bound}
        members.append({number.setdefault(each, len(number)) for each in sorted(family) if each})
    has = np.zeros((len(number), len(profiles.T)), dtype=bool)
    for index, sets in enumerate(members):
        has[list(sets), index] = True
    return tuple(number), has[:, profile_of.reshape(-1)]


@lru_cache(maxsize=4)
def _wide(layout: Layout, shares: SliceShares) -> _Wide:
    """The wide layout, kept for the slots that share layout and shares (both compare by identity)."""
    links, classes, slices = layout.link_count, layout.domains.shape[0], len(shares.names)
    sets, has = _families(shares.share)
    row_set, row_link = np.nonzero(has)
    row_at = np.full(has.shape, -1, dtype=np.intp)
    row_at[row_set, row_link] = np.arange(len(row_set))
    # Links of a class have the same domain, hence one row of a set. The class behind the network's is empty.
    keys, key_of = np.unique(row_set * classes + layout.class_of[row_link], return_inverse=True)
    class_of = np.concatenate([layout.class_of, np.full(slices * links, classes), classes + 1 + key_of.reshape(-1)])
    domains = layout.domains[keys % classes]
    own = [
        sparse.diags(np.array([index in sets[key] for key in (keys // classes).tolist()], dtype=float)) @ domains
        for index in range(slices)
    ]
    blank, nothing = sparse.csr_matrix((len(keys), links)), sparse.csr_matrix((1, (1 + slices) * links))
    together: Any = sparse.vstack(
        [sparse.hstack([layout.domains] * (1 + slices)), nothing, sparse.hstack([blank, *own])], format="csr"
    )
    together = sparse.hstack([together, sparse.csr_matrix((together.shape[0], len(row_set)))], format="csr")
    together.eliminate_zeros()
    copy_of = (shares.slice_of + 1) % (slices + 1)
    routing = layout.routing
    shift = np.repeat(copy_of[layout.path_flow] * links, np.diff(routing.indptr))
    crossed = sparse.csr_matrix(
        (routing.data, routing.indices + shift, routing.indptr), shape=(layout.path_count, len(class_of))
    )
    wide = Layout(
        layout.flow_ids, layout.path_flow, layout.paths, crossed, class_of.astype(np.intp), sparse.csr_matrix(together),
        contained_in=_contained_in(layout, keys),
    )  # fmt: skip
    return _Wide(wide, shares, sets, row_set.astype(np.intp), row_link.astype(np.intp), row_at)


def _contained_in(layout: Layout, keys: IndexArray) -> IndexArray:
    """What is contained in what on the wide layout whose bounds are these (set * classes + class): a bound in that of
    the same slices for a domain that contains its own. To look for that among all of its rows would take seconds.
    """
    classes = layout.domains.shape[0]
    narrow = pattern_of(layout).contained_in()
    outer = narrow[keys % classes]
    wanted = keys - keys % classes + outer
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    known = (outer >= 0) & (keys[at] == wanted)
    return np.concatenate([narrow, [-1], np.where(known, classes + 1 + at, -1)]).astype(np.intp)

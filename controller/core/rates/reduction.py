"""Exact reduction of a rate problem: fewer rows and columns, the same optimum.

- Links that no path crosses carry nothing and vanish as columns of B; their *rows* stay.
- Rows with the same support are the same row (its values are d_m there): of a group, the smallest budget holds.
- A row whose support is part of another's, with no smaller budget, is implied by it (all coefficients are positive).
- Equal paths of one flow are one column; the rate is shared equally among them.
- Links without capacity don't exist: their rows vanish.
- Paths through a link without capacity, or through a domain without airtime, carry 0 and vanish.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from weakref import WeakKeyDictionary

import numpy as np
from scipy import sparse

from hyroads.controller.core.ragged import places

from .problem import BoolArray, DomainsToken, FloatArray, IndexArray, Layout, RateProblem, sums_by
from .utilities import Utilities

_Rows = tuple[sparse.csr_matrix, sparse.csr_matrix, IndexArray, IndexArray]
# What follows from the domains of layouts that have them in common.
_ROWS: WeakKeyDictionary[DomainsToken, _Rows] = WeakKeyDictionary()

# Looking for implied rows costs a product of sparse matrices: beyond this many terms it costs more than it saves.
_MAX_CONTAINMENT_WORK = 20_000_000
# Below this share of a domain's time nothing useful can be sent, and 1 / budget would only add rounding errors.
_MIN_BUDGET = 1e-9


@dataclass(frozen=True, eq=False)
class Pattern:
    """The reduced structure of a layout: U used links, G groups of rows, N distinct paths (columns).

    ``column_of[P]`` maps paths to columns, ``copies[N]`` counts the paths of a column; ``routing`` is N x U, ``rows``
    G x U (zeros and ones), ``rows_t`` its transpose; ``group_of[L]`` is the group of every link's row (-1: no path
    touches its domain); ``container[G]`` is a group whose support holds the group's support, or -1.
    """

    layout: Layout
    used: IndexArray
    column_of: IndexArray
    copies: FloatArray
    column_flow: IndexArray
    routing: sparse.csr_matrix
    rows: sparse.csr_matrix
    rows_t: sparse.csr_matrix
    group_of: IndexArray
    container: IndexArray

    @cached_property
    def routing_t(self) -> sparse.csr_matrix:
        """U x N."""
        return self.routing.T.tocsr()

    @cached_property
    def limited(self) -> tuple[IndexArray, IndexArray]:
        """Links whose rows touch paths, sorted by group, and where each group starts among them."""
        links = np.argsort(self.group_of, kind="stable")
        links = links[np.searchsorted(self.group_of[links], 0) :]
        return links, np.searchsorted(self.group_of[links], np.arange(self.rows.shape[0]))

    @staticmethod
    def of(layout: Layout) -> Pattern:
        """Reduce a layout."""
        used = np.unique(layout.routing.indices).astype(np.intp)
        first, column_of, copies = _distinct_paths(layout)
        known = _ROWS.get(layout.same_domains)
        if known is None:
            rows, group_of_class = _distinct_rows(layout.domains[:, used].tocsr())
            rows_t = rows.T.tocsr()
            known = _ROWS[layout.same_domains] = (rows, rows_t, _containers(rows, rows_t), group_of_class)
        rows, rows_t, container, group_of_class = known
        group_of = group_of_class[layout.class_of] if len(group_of_class) else np.full(layout.link_count, -1)
        routing = layout.routing[first][:, used].tocsr()
        return Pattern(
            layout, used, column_of, copies, layout.path_flow[first], routing, rows, rows_t, group_of, container
        )


@dataclass(frozen=True, eq=False)
class Reduced:
    """The problem of a slot on the columns and rows that count: n columns, m rows, f flows with a usable path.

    ``columns[n]`` index the pattern's columns, ``flows[f]`` the layout's flows, ``flow[n]`` says whose column it is
    (sorted), ``groups[m]`` index the pattern's groups. Row g of the constraint is, with D = ``rows`` and ``airtime`` =
    d of the U used links (0 where no usable path crosses), ``D[domain_of[g]] diag(airtime) routing' x`` <=
    ``budget[g]``: of all columns if ``set_of[g]`` is -1, else of those whose flows are in a slice (``slice_of[f]``) of
    that set (``sets[K, S]``).
    """

    pattern: Pattern
    columns: IndexArray
    flows: IndexArray
    flow: IndexArray
    groups: IndexArray
    domain_of: IndexArray
    set_of: IndexArray
    slice_of: IndexArray
    sets: BoolArray
    routing: sparse.csr_matrix
    routing_t: sparse.csr_matrix
    rows: sparse.csr_matrix
    rows_t: sparse.csr_matrix
    airtime: FloatArray
    budget: FloatArray
    limiting_link: IndexArray
    utilities: Utilities
    demand_mbps: FloatArray

    def loads(self, rates: FloatArray) -> FloatArray:
        """Airtime of every row over its budget, shapes n -> m; feasible iff at most 1."""
        if not len(self.sets):
            return _times(self.rows, self.rows_t, self.airtime * (self.routing_t @ rates)) / self.budget
        per_slice = np.zeros((len(rates), self.sets.shape[1]))
        per_slice[np.arange(len(rates)), self.slice_of[self.flow]] = rates
        taken = _times(self.rows, self.rows_t, self.airtime[:, None] * (self.routing_t @ per_slice))
        per_set = np.hstack([taken @ self.sets.T, taken.sum(axis=1, keepdims=True)])
        return np.asarray(per_set[self.domain_of, self.set_of] / self.budget)

    def busiest(self, problem: RateProblem, rates: FloatArray) -> float:
        """As that of the problem, at rates of columns."""
        per_group = _times(self.pattern.rows, self.pattern.rows_t, self.airtime * (self.routing_t @ rates))
        busy = np.append(per_group, 0.0)[self.pattern.group_of] + problem.external
        return float(busy[problem.capacity_mbps > 0].max(initial=0.0))

    def path_prices(self, row_prices: FloatArray) -> FloatArray:
        """q of every column for prices per row's *share of budget*, shapes m -> n."""
        # Few rows have a price.
        priced = np.flatnonzero(row_prices)
        prices = row_prices[priced] / self.budget[priced]
        if not len(self.sets):
            rows, of = self.rows, self.domain_of[priced]
            starts = rows.indptr.astype(np.intp)
            count = starts[of + 1] - starts[of]
            at = places(starts[of], count)
            links, shares = rows.indices[at].astype(np.intp), rows.data[at]
            per_link = sums_by(links, shares * np.repeat(prices, count), rows.shape[1])
            return np.asarray(self.routing @ (self.airtime * per_link))
        crossed = self.rows[self.domain_of[priced]].T
        pays = np.vstack([self.sets, np.ones(self.sets.shape[1], dtype=bool)])[self.set_of[priced]]
        per_slice = np.asarray(self.routing @ (self.airtime[:, None] * (crossed @ (pays * prices[:, None]))))
        return np.asarray(per_slice[np.arange(len(per_slice)), self.slice_of[self.flow]])

    def spread_over_slices(self) -> Reduced:
        """The same rows and columns without sets: the columns of every slice cross links of their own."""
        if not len(self.sets):
            return self
        slices = self.sets.shape[1]
        is_in = np.vstack([self.sets, np.ones(slices, dtype=bool)])[self.set_of]
        shared = self.rows[self.domain_of]
        rows: sparse.csr_matrix = sparse.hstack(
            [sparse.diags(is_in[:, index].astype(float)) @ shared for index in range(slices)], format="csr"
        )
        rows.eliminate_zeros()
        shift = np.repeat(self.slice_of[self.flow] * len(self.airtime), np.diff(self.routing.indptr))
        routing = sparse.csr_matrix(
            (self.routing.data, self.routing.indices + shift, self.routing.indptr),
            shape=(len(self.columns), slices * len(self.airtime)),
        )
        every = np.arange(len(self.budget))
        return replace(
            self, domain_of=every, set_of=np.full(len(every), -1), slice_of=np.zeros_like(self.slice_of),
            sets=np.zeros((0, 1), dtype=bool), routing=routing, routing_t=routing.T.tocsr(), rows=rows,
            rows_t=rows.T.tocsr(), airtime=np.tile(self.airtime, slices),
        )  # fmt: skip

    def coefficients(self, rows: IndexArray) -> FloatArray:
        """Some rows of the constraint, each divided by its budget, as a dense k x n matrix."""
        scaled = self.rows[self.domain_of[rows]].toarray() * (self.airtime / self.budget[rows, None])
        return np.ascontiguousarray((self.routing @ scaled.T).T)

    def expand(self, rates: FloatArray) -> FloatArray:
        """Rates of columns to rates of the layout's paths, shapes n -> P."""
        per_column = np.zeros(len(self.pattern.copies))
        per_column[self.columns] = rates
        return np.asarray((per_column / self.pattern.copies)[self.pattern.column_of])


def _times(rows: sparse.csr_matrix, rows_t: sparse.csr_matrix, values: FloatArray) -> FloatArray:
    """Rows times values of links. Mostly few links carry something: then their columns alone are looked at."""
    busy = np.flatnonzero(values if values.ndim == 1 else values.any(axis=1))
    if 2 * len(busy) > len(values):
        return np.asarray(rows @ values)
    return np.asarray(rows_t[busy].T @ values[busy])


def reduce_problem(problem: RateProblem, pattern: Pattern) -> Reduced:
    """The reduced problem of a slot."""
    links, starts = pattern.limited
    budgets = problem.row_budget[links]
    budget = np.minimum.reduceat(budgets, starts) if len(starts) else np.zeros(0)
    limiting = _first_at_minimum(links, starts, budgets, budget)
    bounds = None if problem.bounds is None else _BoundRows.of(problem, pattern, budget)
    columns = _usable_columns(problem, pattern, budget, bounds)
    implied = (pattern.container >= 0) & (budget[pattern.container] <= budget) if len(budget) else np.zeros(0, bool)
    groups = np.flatnonzero(~implied & (budget > _MIN_BUDGET) & np.isfinite(budget))
    whole = len(columns) == len(pattern.copies)
    routing = pattern.routing if whole else pattern.routing[columns]
    routing_t = pattern.routing_t if whole else routing.T.tocsr()
    crossed = np.diff(routing_t.indptr) > 0
    if not whole and len(groups):
        groups = groups[np.asarray(pattern.rows[groups] @ crossed.astype(float)) > 0]
    capacity = problem.capacity_mbps[pattern.used]
    airtime = np.divide(1.0, capacity, out=np.zeros_like(capacity), where=crossed)
    rows, rows_t, domains = pattern.rows, pattern.rows_t, groups
    budget, limiting, set_of = budget[groups], limiting[groups], np.full(len(groups), -1)
    if bounds is not None:
        groups = np.concatenate([groups, bounds.groups])
        domains, budget = np.unique(groups), np.concatenate([budget, bounds.budget])
        limiting, set_of = np.concatenate([limiting, bounds.limiting]), np.concatenate([set_of, bounds.set_of])
    if len(domains) < rows.shape[0]:
        rows, rows_t = _some_rows(pattern, domains.tobytes())
    flows, flow = np.unique(pattern.column_flow[columns], return_inverse=True)
    slice_of, sets = np.zeros(len(flows), dtype=np.intp), np.zeros((0, 1), dtype=bool)
    if problem.bounds is not None:
        slice_of, sets = problem.bounds.slice_of[flows], problem.bounds.sets
    return Reduced(
        pattern, columns, flows, flow, groups, np.searchsorted(domains, groups), set_of, slice_of, sets, routing,
        routing_t, rows, rows_t, airtime, budget, limiting, problem.utilities.select(flows), problem.demand_mbps[flows],
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class _BoundRows:
    """Rows of a problem's bounds that count: set, group, budget and the link whose bound it is. ``silent[K, G]`` are
    those without airtime.
    """

    set_of: IndexArray
    groups: IndexArray
    budget: FloatArray
    limiting: IndexArray
    silent: BoolArray

    @staticmethod
    def of(problem: RateProblem, pattern: Pattern, whole: FloatArray) -> _BoundRows | None:
        """The rows; None if there are none. ``whole[G]`` is the budget of each group's row of all flows."""
        links, starts = pattern.limited
        if problem.bounds is None or not len(starts):
            return None
        most = np.where(problem.capacity_mbps > 0, problem.bounds.most, np.inf)[:, links]
        budget = np.minimum.reduceat(most, starts, axis=1)
        around = np.hstack([budget, np.full((len(budget), 1), np.inf)])[:, pattern.container]
        silent = budget <= _MIN_BUDGET
        set_of, groups = np.nonzero((budget < np.minimum(whole, around)) & ~silent)
        at = np.flatnonzero(most == np.repeat(budget, np.diff(np.append(starts, len(links))), axis=1))
        first = at[np.searchsorted(at, set_of * len(links) + starts[groups])] % len(links)
        return _BoundRows(set_of, groups, budget[set_of, groups], links[first], silent)


@lru_cache(maxsize=8)
def _some_rows(pattern: Pattern, groups: bytes) -> tuple[sparse.csr_matrix, sparse.csr_matrix]:
    """These rows (intp) and their transpose. From slot to slot they are mostly the same."""
    rows = pattern.rows[np.frombuffer(groups, dtype=np.intp)]
    return rows, rows.T.tocsr()


def _usable_columns(
    problem: RateProblem, pattern: Pattern, budget: FloatArray, bounds: _BoundRows | None
) -> IndexArray:
    blocked = problem.capacity_mbps[pattern.used] <= 0
    silent = budget <= _MIN_BUDGET
    if silent.any():
        blocked |= np.asarray(pattern.rows_t @ silent.astype(float)) > 0
    usable = problem.demand_mbps[pattern.column_flow] > 0
    if blocked.any():
        usable &= np.asarray(pattern.routing @ blocked.astype(float)) == 0
    if bounds is not None and problem.bounds is not None and bounds.silent.any():
        sets = problem.bounds.sets.astype(float)
        blocked = np.asarray(pattern.rows_t @ (bounds.silent.T.astype(float) @ sets)) > 0
        crosses = np.asarray(pattern.routing @ blocked.astype(float)) > 0
        usable &= ~crosses[np.arange(len(crosses)), problem.bounds.slice_of[pattern.column_flow]]
    return np.flatnonzero(usable)


def _first_at_minimum(links: IndexArray, starts: IndexArray, budgets: FloatArray, minimum: FloatArray) -> IndexArray:
    """Per group, its first link whose budget is the group's."""
    sizes = np.diff(np.append(starts, len(links)))
    at = np.flatnonzero(budgets == np.repeat(minimum, sizes))
    return links[at[np.searchsorted(at, starts)]] if len(starts) else np.zeros(0, dtype=np.intp)


def _distinct_paths(layout: Layout) -> tuple[IndexArray, IndexArray, FloatArray]:
    """First path of each distinct (flow, links), the column of every path, and how many paths are in each column."""
    if not _may_have_equal_paths(layout):
        every = np.arange(layout.path_count)
        return every, every, np.ones(layout.path_count)
    numbers: dict[tuple[int, tuple[int, ...]], int] = {}
    keys = zip(layout.path_flow.tolist(), layout.paths, strict=True)
    column_of = np.array([numbers.setdefault((f, tuple(sorted(p))), len(numbers)) for f, p in keys], dtype=np.intp)
    first = np.full(len(numbers), 0, dtype=np.intp)
    first[column_of[::-1]] = np.arange(len(column_of))[::-1]
    return first, column_of, np.bincount(column_of, minlength=len(numbers)).astype(float)


def _may_have_equal_paths(layout: Layout) -> bool:
    """Whether two paths of a flow may cross the same links; False is certain. Equal paths have equal sums of marks."""
    marks = np.random.default_rng(0).integers(0, 2**63, layout.link_count, dtype=np.uint64)
    routing = layout.routing
    if not routing.nnz:
        return False
    terms = marks[routing.indices] * routing.data.astype(np.uint64)
    sums = np.add.reduceat(terms, routing.indptr[:-1])
    order = np.lexsort((sums, layout.path_flow))
    same = (np.diff(layout.path_flow[order]) == 0) & (np.diff(sums[order]) == 0)
    return bool(same.any())


def _distinct_rows(domains: sparse.csr_matrix) -> tuple[sparse.csr_matrix, IndexArray]:
    """Distinct non-empty rows of a matrix of zeros and ones, and the group of each row (-1: empty)."""
    domains.sort_indices()
    bounds = domains.indptr.tolist()
    content = domains.indices.astype(np.int32).tobytes()
    numbers: dict[bytes, int] = {b"": -1}
    group_of = np.array(
        [numbers.setdefault(content[4 * a : 4 * b], len(numbers) - 1) for a, b in pairwise(bounds)], dtype=np.intp
    )
    first = np.zeros(len(numbers) - 1, dtype=np.intp)
    filled = np.flatnonzero(group_of >= 0)[::-1]
    first[group_of[filled]] = filled
    return domains[first], group_of


def _containers(rows: sparse.csr_matrix, rows_t: sparse.csr_matrix) -> IndexArray:
    """Per row, another row whose support strictly contains its support (the largest such, then the first), or -1."""
    container = np.full(rows.shape[0], -1, dtype=np.intp)
    work = float(np.square(np.diff(rows_t.indptr), dtype=float).sum())
    if not 0 < work <= _MAX_CONTAINMENT_WORK:
        return container
    size = np.diff(rows.indptr)
    common = (rows @ rows_t).tocoo()
    inside = (common.data == size[common.row]) & (common.row != common.col)
    inner, outer = common.row[inside], common.col[inside]
    order = np.lexsort((-outer, size[outer]))
    container[inner[order]] = outer[order]
    return container

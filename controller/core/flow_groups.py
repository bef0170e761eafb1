"""Paths for the flows of a group, such as the subflows of one connection: apart, and the most together.

Every flow of a group has ends of its own and gets a multipath of its own. A choice of multipaths is judged by the
*group's allocation*: the rates of the greatest total that the airtime of all domains allows, and among these the ones
with the smallest sum of squares, as the controller allocates them (``core.rates``). A *bottleneck domain* is one whose
airtime is full at that allocation. The choice sought has the greatest total; among choices of the same total the flows
share no bottleneck domain, if there is such a choice, and else as few as were found.

Planned one by one, two flows take the same best way and are limited by it together, where each alone is limited
elsewhere (by its own access link, for instance), and a way of the same capacity beside it stays empty.

*How*. Candidates are the branches of the flow's exploration tree, the same in the network as the other flows leave it
(Henri, EPFL thesis 9056, 2018, [2.12]), and parts of these. Let T(M) be what a multipath M carries alone, with airtimes
a(M). Two facts make the search short:

- If the flows of a choice share no full domain, the rows of shared domains are slack, so they can be left out, and the
  problem falls apart: every flow has its allocation alone. Conversely, where the sum of all a(M) is at most 1 in all
  domains and below 1 in shared ones, the flows alone are the group's allocation. So such choices are found by adding up
  vectors, with T(M) as bound; no allocation has to be worked out for them.
- The paths that carry something at the allocation over *all* candidates are a choice of the greatest total.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations, islice, product

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from .errors import PlanningError
from .interface_graph import FloatArray, Path, capacities_of
from .network import Network
from .optimum import airtime_rows, binding_rows
from .planner import Planner
from .rates import Layout, RateProblem, Utilities, solve
from .tree import update

Paths = tuple[Path, ...]
"""A multipath: link indices of its paths; empty if there is no way."""

MAX_JOINT = 4
"""So many flows are placed at once; of a larger group the others follow one by one."""
TOLERANCE = 0.01
"""Totals that differ by no more than this share are the same: capacities are not known any better."""
_ARMS = 6
_ARMS_BESIDE = 2
_MOST_CANDIDATES = 32
_MOST_VISITS = 1500
_MOST_FOUND = 64
_MOST_ALLOCATED = 8
# A domain with less airtime left is full. The flows of a choice may come as close to each other as rounding does.
_FULL = 1e-3
_ROUNDING = 1e-6
# A rate below this share of the total is rounding, not use.
_UNUSED = 1e-6


@dataclass(frozen=True, slots=True)
class FlowEnds:
    """Node ids of a flow's ends."""

    source: str
    target: str


@dataclass(frozen=True)
class GroupPaths:
    """Multipaths of a group's flows (by flow id) and its allocation.

    ``rates_mbps`` has a rate for each path of each flow. ``bottlenecks`` are the full domains that several flows use,
    each by the index of a link whose domain it is.
    """

    paths: Mapping[str, Paths]
    rates_mbps: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    bottlenecks: tuple[int, ...] = ()

    @property
    def total_mbps(self) -> float:
        """What the flows carry together."""
        return sum(sum(rates) for rates in self.rates_mbps.values())


def allocated(network: Network, paths: Mapping[str, Paths]) -> GroupPaths:
    """The group's allocation on given multipaths (flow id -> paths over live links), on an otherwise idle network.

    Raises ``PlanningError`` if a path crosses a link of capacity 0.
    """
    columns = [(flow, path) for flow, each in paths.items() for path in each]
    if not columns:
        return GroupPaths(dict(paths), dict.fromkeys(paths, ()))
    rows = airtime_rows(network, [path for _, path in columns])
    distinct, links = np.unique(rows, axis=0, return_index=True)
    rates = most(distinct)
    by_flow = {
        flow: tuple(float(rate) for rate, (of, _) in zip(rates, columns, strict=True) if of == flow) for flow in paths
    }
    used = rates > _UNUSED * rates.sum()
    owners = [np.array([used[i] and of == flow for i, (of, _) in enumerate(columns)], dtype=bool) for flow in paths]
    users = sum((distinct[:, mine] > 0).any(axis=1).astype(int) for mine in owners)
    shared = (distinct @ rates >= 1 - _FULL) & (users > 1)
    return GroupPaths(dict(paths), by_flow, tuple(sorted(links[shared].tolist())))


def group_paths(
    planner: Planner,
    ends: Mapping[str, FlowEnds],
    held: Mapping[str, Paths] | None = None,
    *,
    tolerance: float = TOLERANCE,
) -> GroupPaths:
    """Choose a multipath for each flow of ``ends`` (flow id -> ends), around those that are ``held``.

    ``held`` are flows of the group that stay on their paths, which must be over live links. Up to ``MAX_JOINT`` flows
    are placed at once, more of them in order, each around those before it. ``tolerance`` is the share by which a total
    may be smaller than the greatest one found. A flow to which there is no way gets no paths. Raises ``PlanningError``
    for an unknown node or if a flow's ends are one node.
    """
    fixed = dict(held or {})
    flows = list(ends)
    for first in (flows[:MAX_JOINT], *([flow] for flow in flows[MAX_JOINT:])):
        if first:
            mine = {flow: ends[flow] for flow in first}
            fixed |= _placed(planner.network, candidates(planner, mine, fixed), fixed, tolerance)
    return allocated(planner.network, {flow: fixed[flow] for flow in (*(held or {}), *flows)})


def _placed(
    network: Network, found: Mapping[str, tuple[Paths, ...]], held: Mapping[str, Paths], tolerance: float
) -> dict[str, Paths]:
    """The best candidate of each flow beside those held."""
    free = [flow for flow, options in found.items() if options]
    if not free:
        return dict.fromkeys(found, ())
    options = [(paths,) for paths in held.values() if paths]
    search, paths = _Search.of(network, [*options, *(found[flow] for flow in free)], tolerance)
    chosen = search.best()[len(options) :]
    placed = {flow: tuple(paths[column] for column in mine) for flow, mine in zip(free, chosen, strict=True)}
    return {flow: placed.get(flow, ()) for flow in found}


def candidates(
    planner: Planner, ends: Mapping[str, FlowEnds], held: Mapping[str, Paths] | None = None
) -> dict[str, tuple[Paths, ...]]:
    """Multipaths to choose from, by flow, the best of the flow alone first; a flow without a way has none."""
    network, flows = planner.network, list(ends)
    found: dict[str, dict[frozenset[Path], Paths]] = {flow: {} for flow in flows}

    def explore(flow: str, capacities_mbps: FloatArray, count: int) -> Paths:
        try:
            plan = planner.plan(ends[flow].source, ends[flow].target, arms=count, capacities_mbps=capacities_mbps)
        except PlanningError:
            return ()
        for arm in plan.arms:
            for part in _parts(arm.links):
                found[flow].setdefault(frozenset(part), part)
        return plan.multipath.links

    idle = capacities_of(network)
    loaded = _loaded(network, idle, [path for paths in (held or {}).values() for path in paths])
    # A flow alone; then each flow in what the others, in turn, leave to it.
    first = {flow: explore(flow, idle, _ARMS) for flow in flows}
    for start in range(len(flows)):
        capacities = loaded
        for position in range(len(flows)):
            flow = flows[(start + position) % len(flows)]
            untouched = position == 0 and not held
            paths = first[flow] if untouched else explore(flow, capacities, _ARMS_BESIDE)
            capacities = _loaded(network, capacities, paths or first[flow])
    return {flow: tuple(each.values()) for flow, each in found.items()}


def most(rows: FloatArray) -> FloatArray:
    """Rates x >= 0 of the greatest sum with ``rows`` x <= 1, and of these the ones with the smallest sum of squares.

    ``rows`` is float64[m, n] in s/Mb, 0 or more, with something in each column; the rates are float64[n] in Mb/s.
    """
    rows = rows[rows.any(axis=1)]
    count = rows.shape[1]
    if count == 1:
        return np.asarray(1.0 / rows.max(axis=0))
    if count == 2:
        return _most_of_two(rows)
    paths = tuple((path,) for path in range(count))
    domains = np.arange(len(rows), dtype=np.intp)
    # Each row is a link of capacity 1, alone in its domain, that a path crosses as often as the row says.
    layout = Layout(
        ("group",), np.zeros(count, dtype=np.intp), paths, sparse.csr_matrix(rows.T), domains,
        sparse.identity(len(rows), format="csr"),
    )  # fmt: skip
    nothing = np.zeros(len(rows))
    problem = RateProblem(
        layout, Utilities.log([1.0]), np.ones(len(rows)), nothing, nothing, np.array([np.inf], dtype=float)
    )
    return solve(problem).path_rates_mbps


def _most_of_two(rows: FloatArray) -> FloatArray:
    """The same for two columns: the best corner, or the most even point of the best edge."""
    pairs = np.array(list(combinations(range(len(rows)), 2)), dtype=np.intp).reshape(-1, 2)
    first, second = rows[pairs[:, 0]], rows[pairs[:, 1]]
    determinant = first[:, 0] * second[:, 1] - first[:, 1] * second[:, 0]
    crossing = np.abs(determinant) > 1e-12 * rows.max() ** 2
    x = np.divide(second[:, 1] - first[:, 1], determinant, out=np.zeros(len(pairs)), where=crossing)
    y = np.divide(first[:, 0] - second[:, 0], determinant, out=np.zeros(len(pairs)), where=crossing)
    alone = 1.0 / rows.max(axis=0)
    corners = np.concatenate([np.column_stack([x, y])[crossing], [[alone[0], 0.0], [0.0, alone[1]]]])
    inside = (corners >= 0).all(axis=1) & ((corners @ rows.T).max(axis=1) <= 1 + 1e-9)
    corners = corners[inside]
    totals = corners.sum(axis=1)
    best = corners[totals >= totals.max() * (1 - 1e-9)]
    even = float(np.clip(totals.max() / 2, best[:, 0].min(), best[:, 0].max()))
    rates = np.array([even, totals.max() - even])
    return np.asarray(rates / max(1.0, float((rows @ rates).max())))


def _parts(paths: Paths) -> Iterator[Paths]:
    """A branch, what it is without one of its paths, and each of its paths."""
    yield paths
    for size in sorted({len(paths) - 1, 1} - {0, len(paths)}, reverse=True):
        yield from combinations(paths, size)


def _loaded(network: Network, capacities_mbps: FloatArray, paths: Iterable[Path]) -> FloatArray:
    """Capacities that paths leave, each used as far as it goes."""
    for path in paths:
        if all(capacities_mbps[link] > 0 for link in path):
            capacities_mbps = update(network.interference, capacities_mbps, path)
    return capacities_mbps


Columns = tuple[int, ...]
"""A multipath as columns of the rows of a search."""
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class _Options:
    """Multipaths of one flow, the greatest first: totals alone [C] in Mb/s, and airtimes alone [C, m]."""

    columns: tuple[Columns, ...]
    totals: FloatArray
    loads: FloatArray

    def fitting(self, load: FloatArray, used: BoolArray) -> BoolArray:
        """Which of them go beside flows that take ``load`` and use some rows, without a full row in common, bool[C]."""
        limit = np.where(used & (self.loads > 0), 1 - _FULL, 1 + _ROUNDING)
        return np.asarray((self.loads + load <= limit).all(axis=1))


@dataclass(frozen=True)
class _Choice:
    """Columns of every flow, and how good that is: the smaller the better."""

    columns: tuple[Columns, ...]
    rank: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class _Search:
    """One search: the airtime ``rows`` of all columns, and the options of every flow (of a held one: its paths)."""

    rows: FloatArray
    options: tuple[_Options, ...]
    tolerance: float

    @staticmethod
    def of(network: Network, multipaths: Sequence[Sequence[Paths]], tolerance: float) -> tuple[_Search, list[Path]]:
        """The search for one of the multipaths of each flow, and the paths of its columns."""
        every = (path for options in multipaths for paths in options for path in paths)
        number = {path: index for index, path in enumerate(dict.fromkeys(every))}
        rows = binding_rows(airtime_rows(network, list(number)))

        @cache
        def alone(columns: Columns) -> FloatArray:
            return most(rows[:, columns])

        options = []
        for each in multipaths:
            numbered = [tuple(number[path] for path in paths) for paths in each]
            totals = np.array([alone(columns).sum() for columns in numbered], dtype=float)
            order = np.argsort(-totals, kind="stable")[:_MOST_CANDIDATES].tolist()
            loads = np.array([rows[:, numbered[i]] @ alone(numbered[i]) for i in order], dtype=float)
            options.append(_Options(tuple(numbered[i] for i in order), totals[order], loads))
        return _Search(rows, tuple(options), tolerance), list(number)

    def best(self) -> tuple[Columns, ...]:
        """The columns of each flow."""
        every = [(flow, c) for flow, each in enumerate(self.options) for c in dict.fromkeys(sum(each.columns, ()))]
        rates = most(self.rows[:, [column for _, column in every]])
        least_mbps = (1 - self.tolerance) * float(rates.sum()) * (1 - _ROUNDING)
        apart = list(islice(self._apart(least_mbps), _MOST_FOUND))
        if apart:
            return min(apart, key=lambda choice: choice.rank).columns
        used = rates > _UNUSED * rates.sum()
        carrying = [tuple(c for (of, c), mine in zip(every, used, strict=True) if mine and of == flow)
                    for flow in range(len(self.options))]  # fmt: skip
        return self._sharing(least_mbps, tuple(
            mine if mine and len(each.columns) > 1 else each.columns[0]
            for mine, each in zip(carrying, self.options, strict=True)
        ))  # fmt: skip

    def _apart(self, least_mbps: float) -> Iterator[_Choice]:
        """Choices of at least this total without a common full domain, those of great totals first.

        The first argument of a stack's entry is what is chosen so far: indices of options, their load, which rows they
        use, and which rows several of them use.
        """
        count = self.rows.shape[0]
        nothing = np.zeros(count, dtype=bool)
        stack: list[tuple[tuple[int, ...], FloatArray, BoolArray, BoolArray]] = [
            ((), np.zeros(count), nothing, nothing)
        ]
        visits = 0
        while stack and visits < _MOST_VISITS:
            visits += 1
            picked, load, used, common = stack.pop()
            fitting = [each.fitting(load, used) for each in self.options[len(picked) :]]
            chosen_mbps = sum(float(self.options[flow].totals[index]) for flow, index in enumerate(picked))
            most_mbps = [
                float(each.totals[fits].max(initial=-np.inf))
                for each, fits in zip(self.options[len(picked) :], fitting, strict=True)
            ]
            if chosen_mbps + sum(most_mbps) < least_mbps:
                continue
            if len(picked) == len(self.options):
                columns = tuple(self.options[flow].columns[index] for flow, index in enumerate(picked))
                yield _Choice(columns, (float(common.sum()), -chosen_mbps, float(sum(map(len, columns)))))
                continue
            mine, rest_mbps = self.options[len(picked)], sum(most_mbps[1:])
            good = fitting[0] & (chosen_mbps + mine.totals + rest_mbps >= least_mbps)
            for index in np.flatnonzero(good)[::-1].tolist():
                uses = mine.loads[index] > 0
                stack.append(((*picked, index), load + mine.loads[index], used | uses, common | (used & uses)))

    def _sharing(self, least_mbps: float, first: tuple[Columns, ...]) -> tuple[Columns, ...]:
        """A choice of at least this total with few common full domains; ``first`` is one of the greatest total."""
        best = self._judged(first, least_mbps)
        widths = {1: _MOST_CANDIDATES, 2: 16, 3: 6}
        width = widths.get(sum(len(each.columns) > 1 for each in self.options), 4)
        some = [list(enumerate(each.columns[:width])) for each in self.options]
        likely = []
        for picked in product(*some):
            indices = [index for index, _ in picked]
            if sum(float(self.options[flow].totals[index]) for flow, index in enumerate(indices)) < least_mbps:
                continue
            uses = sum((self.options[flow].loads[index] > 0).astype(int) for flow, index in enumerate(indices))
            columns = tuple(columns for _, columns in picked)
            likely.append((int((np.asarray(uses) > 1).sum()), sum(map(len, columns)), columns))
        for _, _, columns in sorted(likely, key=lambda each: each[:2])[:_MOST_ALLOCATED]:
            if best.rank[1] <= 1:
                break
            best = min(best, self._judged(columns, least_mbps), key=lambda choice: choice.rank)
        return best.columns

    def _judged(self, columns: tuple[Columns, ...], least_mbps: float) -> _Choice:
        """A choice by the group's allocation: what it is short of, and how many full domains several flows use."""
        rates = most(self.rows[:, list(sum(columns, ()))])
        airtime = self.rows[:, list(sum(columns, ()))] * rates
        of = np.repeat(np.arange(len(columns)), [len(each) for each in columns])
        users = sum((airtime[:, of == flow] > _UNUSED).any(axis=1).astype(int) for flow in range(len(columns)))
        full = int(((airtime.sum(axis=1) >= 1 - _FULL) & (np.asarray(users) > 1)).sum())
        return _Choice(columns, (max(0.0, least_mbps - float(rates.sum())), full, float(len(of))))

"""Paths for the flows of a group, such as the subflows of one connection: apart, and the most together.

Every flow of a group has ends of its own and gets a multipath of its own. A choice of multipaths is judged by the
*group's allocation*: the rates of the greatest total that the airtime of all domains allows, and among these the ones
with the smallest sum of squares, as the controller allocates them (``core.rates``). A *bottleneck domain* is one whose
airtime is full at that allocation; flows share it if paths of theirs cross it. The choice sought has the greatest
total; among choices of the same total the flows share no bottleneck domain, if there is such a choice, and else as few
as were found.

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

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from itertools import combinations, islice, product

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from hyroads.controller.native.rates import kernel

from .errors import NoRouteError
from .interface_graph import FloatArray, Path
from .network import Network
from .optimum import airtime_rows, binding_rows
from .planner import Planner
from .rates import Layout, RateProblem, Utilities, solve
from .rates.native import greatest_total
from .rates.solver import MAX_STEPS
from .tree import update

BoolArray = NDArray[np.bool_]
Paths = tuple[Path, ...]
"""A multipath: link indices of its paths; empty if there is no way."""

MAX_JOINT = 4
"""So many flows are routed at once; of a larger group the others follow one by one."""
TOLERANCE = 0.01
"""Totals that differ by no more than this share are the same: capacities are not known any better."""
_ARMS = 6
_ARMS_BESIDE = 2
_MOST_OPTIONS = 32
_MOST_VISITS = 1500
_MOST_FOUND = 64
_MOST_ALLOCATED = 8
# A domain with less airtime left is full. The flows of a choice may come as close to each other as rounding does.
_FULL = 1e-3
_ROUNDING = 1e-6


class May(Enum):
    """What may become of a flow's paths: any others; fewer of those it has; nothing."""

    MOVE = "move"
    YIELD = "yield"
    STAY = "stay"


@dataclass(frozen=True, slots=True)
class GroupFlow:
    """A flow of a group: node ids of its ends, and the paths that it has, over live links (none: it is new)."""

    source: str
    target: str
    paths: Paths = ()
    may: May = May.MOVE


@dataclass(frozen=True)
class GroupPaths:
    """A multipath for each flow of a group, and the group's allocation: a rate for each path of each.

    ``bottlenecks`` are the full domains that several flows cross, each by the index of a link whose domain it is.
    """

    paths: tuple[Paths, ...]
    rates_mbps: tuple[tuple[float, ...], ...]
    bottlenecks: tuple[int, ...] = ()

    @property
    def total_mbps(self) -> float:
        """What the flows carry together."""
        return sum(sum(rates) for rates in self.rates_mbps)


def allocated(network: Network, paths: Sequence[Paths]) -> GroupPaths:
    """The group's allocation on given multipaths, one for each flow, on an otherwise idle network.

    Raises ``PlanningError`` if a path crosses a link of capacity 0.
    """
    columns = [path for each in paths for path in each]
    if not columns:
        return GroupPaths(tuple(paths), ((),) * len(paths))
    distinct, links = np.unique(airtime_rows(network, columns), axis=0, return_index=True)
    rates = most(distinct)
    owner = np.repeat(np.arange(len(paths)), [len(each) for each in paths])
    by_flow = tuple(tuple(rates[owner == flow].tolist()) for flow in range(len(paths)))
    return GroupPaths(tuple(paths), by_flow, tuple(sorted(links[_bottlenecks(distinct, rates, owner)].tolist())))


def group_paths(planner: Planner, flows: Sequence[GroupFlow], *, tolerance: float = TOLERANCE) -> GroupPaths:
    """Choose a multipath for each flow of a group.

    Of choices that are alike in total and bottlenecks the one is taken that changes the fewest flows. Up to
    ``MAX_JOINT`` flows that may move are routed at once, more of them in order, each beside those before it.
    ``tolerance`` is the share by which a total may be smaller than the greatest one found. A flow to which there is no
    way gets no paths. Raises ``PlanningError`` for an unknown node or if a flow's ends are one node.
    """
    now = list(flows)
    moving = [index for index, flow in enumerate(flows) if flow.may is May.MOVE]
    later = moving[MAX_JOINT:]
    for steps in ([], *([index] for index in later)):
        present = [index for index in range(len(now)) if index not in later or index in steps]
        chosen = _chosen(planner, [now[index] for index in present], tolerance)
        for index, paths in zip(present, chosen, strict=True):
            now[index] = replace(now[index], paths=paths, may=May.STAY if later else now[index].may)
        later = [index for index in later if index not in steps]
    return allocated(planner.network, [flow.paths for flow in now])


def _chosen(planner: Planner, flows: Sequence[GroupFlow], tolerance: float) -> list[Paths]:
    """The best multipath of each flow."""
    found = candidates(planner, flows)
    present = [index for index, options in enumerate(found) if options]
    if not present:
        return [()] * len(flows)
    search, columns = _Search.of(planner.network, [found[i] for i in present], [flows[i] for i in present], tolerance)
    chosen = dict(zip(present, search.best(), strict=True))
    return [tuple(columns[column] for column in chosen.get(index, ())) for index in range(len(flows))]


def candidates(planner: Planner, flows: Sequence[GroupFlow]) -> list[tuple[Paths, ...]]:
    """Multipaths to choose from, of each flow; none if there is no way."""
    network = planner.network
    found: list[dict[frozenset[Path], Paths]] = [_options_of(flow) for flow in flows]

    def explore(index: int, capacities_mbps: FloatArray, count: int) -> Paths:
        flow = flows[index]
        try:
            plan = planner.plan(flow.source, flow.target, arms=count, capacities_mbps=capacities_mbps)
        except NoRouteError:
            return ()
        for part in (part for arm in plan.arms for part in _parts(arm.links)):
            found[index].setdefault(frozenset(part), part)
        return plan.multipath.links

    idle = network.capacities
    loaded = _loaded(network, idle, [path for flow in flows if flow.may is not May.MOVE for path in flow.paths])
    moving = [index for index, flow in enumerate(flows) if flow.may is May.MOVE]
    # A flow alone; then each flow in what the others, in turn, leave to it.
    alone = {index: explore(index, idle, _ARMS) for index in moving}
    for start in range(len(moving)):
        capacities = loaded
        for position, index in enumerate((*moving[start:], *moving[:start])):
            is_idle = position == 0 and len(moving) == len(flows)
            paths = alone[index] if is_idle else explore(index, capacities, _ARMS_BESIDE)
            capacities = _loaded(network, capacities, paths or alone[index])
    return [tuple(each.values()) for each in found]


def _options_of(flow: GroupFlow) -> dict[frozenset[Path], Paths]:
    """What a flow can have without new paths."""
    if not flow.paths:
        return {}
    options = (flow.paths,) if flow.may is May.STAY else _parts(flow.paths)
    return {frozenset(paths): paths for paths in options}


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
    compiled = kernel()
    found = None if compiled is None else greatest_total(compiled, rows, boundary=0.995, max_steps=MAX_STEPS)
    return _most_by_solver(rows) if found is None else found


def _most_by_solver(rows: FloatArray) -> FloatArray:
    """The same without the compiled solver, or where its usual pace does not lead there."""
    count, domains = rows.shape[1], np.arange(len(rows), dtype=np.intp)
    # Each row is a link of capacity 1, alone in its domain, that a path crosses as often as the row says.
    layout = Layout(
        ("group",),
        np.zeros(count, dtype=np.intp),
        tuple((path,) for path in range(count)),
        sparse.csr_matrix(rows.T),
        domains,
        sparse.identity(len(rows), format="csr"),
    )
    nothing = np.zeros(len(rows))
    proportional = Utilities(np.ones(1), np.ones(1), np.zeros(1))
    problem = RateProblem(layout, proportional, np.ones(len(rows)), nothing, nothing, np.full(1, np.inf))
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


def _bottlenecks(rows: FloatArray, rates_mbps: FloatArray, owner: NDArray[np.intp]) -> BoolArray:
    """Which rows are full at these rates, and crossed by columns of several owners, bool[m]."""
    users = sum((rows[:, owner == flow] > 0).any(axis=1).astype(int) for flow in np.unique(owner).tolist())
    return np.asarray((rows @ rates_mbps >= 1 - _FULL) & (np.asarray(users) > 1))


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


@dataclass(frozen=True, eq=False)
class _Options:
    """Multipaths of one flow, the greatest first: totals alone [C] in Mb/s, airtimes alone and rows crossed [C, m].

    ``changes[C]`` says whether a flow that has paths would have others, or fewer.
    """

    columns: tuple[Columns, ...]
    totals: FloatArray
    loads: FloatArray
    crossed: BoolArray
    changes: BoolArray

    def fitting(self, load: FloatArray, crossed: BoolArray) -> BoolArray:
        """Which of them go beside flows with this load that cross some rows, without a common full row, bool[C]."""
        limit = np.where(crossed & self.crossed, 1 - _FULL, 1 + _ROUNDING)
        return np.asarray((self.loads + load <= limit).all(axis=1))


@dataclass(frozen=True)
class _Choice:
    """Columns of every flow, and how good that is: the smaller the better."""

    columns: tuple[Columns, ...]
    rank: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class _Search:
    """One search: the airtime ``rows`` of all columns, and the options of every flow."""

    rows: FloatArray
    options: tuple[_Options, ...]
    tolerance: float

    @staticmethod
    def of(
        network: Network, multipaths: Sequence[Sequence[Paths]], flows: Sequence[GroupFlow], tolerance: float
    ) -> tuple[_Search, list[Path]]:
        """The search for one of the multipaths of each flow, and the paths of its columns."""
        every = (path for options in multipaths for paths in options for path in paths)
        number = {path: index for index, path in enumerate(dict.fromkeys(every))}
        rows = binding_rows(airtime_rows(network, list(number)))

        @cache
        def alone(columns: Columns) -> FloatArray:
            return most(rows[:, columns])

        def options(paths: Sequence[Paths], flow: GroupFlow) -> _Options:
            columns = [tuple(number[path] for path in each) for each in paths]
            totals = np.array([alone(each).sum() for each in columns], dtype=float)
            order = np.argsort(-totals, kind="stable")[:_MOST_OPTIONS].tolist()
            loads = np.array([rows[:, columns[i]] @ alone(columns[i]) for i in order], dtype=float)
            changes = np.array([bool(flow.paths) and set(paths[i]) != set(flow.paths) for i in order], dtype=bool)
            crossed = np.array([(rows[:, columns[i]] > 0).any(axis=1) for i in order], dtype=bool)
            return _Options(tuple(columns[i] for i in order), totals[order], loads, crossed, changes)

        found = tuple(options(paths, flow) for paths, flow in zip(multipaths, flows, strict=True))
        return _Search(rows, found, tolerance), list(number)

    def best(self) -> tuple[Columns, ...]:
        """The columns of each flow."""
        every = [(flow, c) for flow, each in enumerate(self.options) for c in dict.fromkeys(sum(each.columns, ()))]
        rates = most(self.rows[:, [column for _, column in every]])
        least_mbps = (1 - self.tolerance) * float(rates.sum()) * (1 - _ROUNDING)
        apart = islice(self._apart(least_mbps), _MOST_FOUND)
        best = min(apart, key=lambda choice: choice.rank, default=None)
        if best is None:
            best = min(self._sharing(least_mbps), key=lambda choice: choice.rank)
            if best.rank[0] > 0:
                order = [every[index] for index in np.argsort(-rates, kind="stable").tolist()]
                best = min(best, self._fewest(order, least_mbps), key=lambda choice: choice.rank)
        return best.columns

    def _apart(self, least_mbps: float) -> Iterator[_Choice]:
        """Choices of at least this total without a common full domain, those of great totals first.

        An entry of the stack is what is chosen so far: indices of options, their load, the rows that they cross,
        and those that several of them cross.
        """
        count = self.rows.shape[0]
        nothing = np.zeros(count, dtype=bool)
        stack: list[tuple[tuple[int, ...], FloatArray, BoolArray, BoolArray]] = [
            ((), np.zeros(count), nothing, nothing)
        ]
        for _ in range(_MOST_VISITS):
            if not stack:
                return
            picked, load, crossed, common = stack.pop()
            chosen_mbps = self._sum_mbps(picked)
            rest = self.options[len(picked) :]
            fitting = [each.fitting(load, crossed) for each in rest]
            most_mbps = [float(of.totals[fits].max(initial=-np.inf)) for of, fits in zip(rest, fitting, strict=True)]
            if chosen_mbps + sum(most_mbps) < least_mbps:
                continue
            if not rest:
                yield self._choice(picked, (), (int(common.sum()), -chosen_mbps))
                continue
            good = fitting[0] & (chosen_mbps + rest[0].totals + sum(most_mbps[1:]) >= least_mbps)
            for index in np.flatnonzero(good)[::-1].tolist():
                more = rest[0].crossed[index]
                stack.append(((*picked, index), load + rest[0].loads[index], crossed | more, common | (crossed & more)))

    def _sharing(self, least_mbps: float) -> Iterator[_Choice]:
        """Choices that may have this total with few common full domains, the likeliest first."""
        widths = {0: 1, 1: _MOST_OPTIONS, 2: 16, 3: 6}
        width = widths.get(sum(len(each.columns) > 1 for each in self.options), 4)
        likely = []
        for picked in product(*(range(min(width, len(each.columns))) for each in self.options)):
            loads = [self.options[flow].loads[index] for flow, index in enumerate(picked)]
            crossing = sum(self.options[flow].crossed[index].astype(int) for flow, index in enumerate(picked))
            # Alone they have no more, and with all rates scaled down to fit they have as much.
            most_mbps = self._sum_mbps(picked)
            least = most_mbps / max(1.0, float(np.max(sum(loads))))
            likely.append((most_mbps < least_mbps, least < least_mbps, int((np.asarray(crossing) > 1).sum()), picked))
        for _, _, _, picked in sorted(likely)[:_MOST_ALLOCATED]:
            choice = self._judged(picked, least_mbps)
            yield choice
            if choice.rank[:2] <= (0, 1):
                return

    def _judged(self, picked: tuple[int, ...], least_mbps: float) -> _Choice:
        """A choice by the group's allocation: what it is short of, and how many full domains several flows use."""
        columns = [self.options[flow].columns[index] for flow, index in enumerate(picked)]
        return self._choice(picked, self._allocation(columns, least_mbps), ())

    def _allocation(self, columns: Sequence[Columns], least_mbps: float) -> tuple[float, ...]:
        rows = self.rows[:, [column for each in columns for column in each]]
        rates = most(rows)
        owner = np.repeat(np.arange(len(columns)), [len(each) for each in columns])
        return max(0.0, least_mbps - float(rates.sum())), float(_bottlenecks(rows, rates, owner).sum())

    def _choice(self, picked: tuple[int, ...], first: tuple[float, ...], last: tuple[float, ...]) -> _Choice:
        """Of choices that are alike in what comes ``first``, the one that changes fewer flows, then by ``last``."""
        columns = tuple(self.options[flow].columns[index] for flow, index in enumerate(picked))
        changed = sum(bool(self.options[flow].changes[index]) for flow, index in enumerate(picked))
        return _Choice(columns, (*first, float(changed), *last, float(sum(map(len, columns)))))

    def _fewest(self, order: Sequence[tuple[int, int]], least_mbps: float) -> _Choice:
        """The first of some columns (flow, column), as few as have this total together; every flow has at least one."""

        def of(count: int) -> tuple[Columns, ...]:
            mine = [
                tuple(column for flow, column in order[:count] if flow == each) for each in range(len(self.options))
            ]
            pairs = zip(mine, self.options, strict=True)
            return tuple(has if has and len(each.columns) > 1 else each.columns[0] for has, each in pairs)

        low, high = 1, len(order)
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self._allocation(of(middle), least_mbps)[0] <= 0 else (middle + 1, high)
        columns = of(low)
        return _Choice(columns, (*self._allocation(columns, least_mbps), float(len(columns)), float(low)))

    def _sum_mbps(self, picked: tuple[int, ...]) -> float:
        """What options have alone, added up."""
        return sum(float(self.options[flow].totals[index]) for flow, index in enumerate(picked))

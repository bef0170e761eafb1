"""Which rates a network can carry at most: exact optima of flows, by linear programming, on small networks.

*Airtime* (Henri, EPFL thesis 9056, 2018, [2.2]; ``cons``): link l and all links that it contends with are busy for at
most all the time. The rates f of links, Mb/s, with d_m = 1 / c_m must respect for every link l of the network

    sum over m in I_l of d_m f_m <= 1

*Schedules* (``optimal``): links that don't contend send at the same time, in turns tau_S for the independent sets S of
the conflict graph, and nothing else limits them (Jain, Padhye, Padmanabhan and Qiu, MobiCom 2003):

    d_l f_l <= sum over S with l in S of tau_S,   sum over S of tau_S <= 1,   tau >= 0

Airtime is the harder limit. There are too many independent sets to list, so they are generated (Dantzig and Wolfe,
Operations Research 8, 1960): solve with the sets known so far, and look for the independent set whose links' prices sum
to most. Weak duality bounds what unknown sets could still add.

Links with the same domain are one *class*: only the sum of their airtimes matters. Classes that don't contend even
over others (two technologies) have schedules of their own.

The most of one flow is linear. The utility of several, sum log(1 + x) with x in Mb/s, is bounded from above by
tangents, one more at each solution (Kelley, SIAM Journal 8, 1960), until what they promise is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linprog
from scipy.sparse.csgraph import connected_components

from hyroads.controller.core.errors import PlanningError
from hyroads.controller.core.interface_graph import FloatArray, InterfaceGraph, Path
from hyroads.controller.core.network import Network
from hyroads.controller.core.optimum import binding_rows

MAX_ROUNDS = 2000
TARGET_GAP = 1e-7
"""Relative to the optimum: what a result may miss of it."""
_POINTS = 12
_PRICED = 1e-10
_IN_A_PLANE = 2
_PARALLEL = 1e-9

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Airtime:
    """The links that exist (capacity above 0), in classes of equal domains.

    ``class_of``, int64[L], is -1 for links that don't exist, ``seconds_per_mb``, float64[L], is d_l (0 for those), and
    ``conflicts``, bool[C, C], says which classes contend; a class contends with itself.
    """

    class_of: IntArray
    seconds_per_mb: FloatArray
    conflicts: BoolArray

    @classmethod
    def of(cls, network: Network, capacities_mbps: FloatArray | None = None) -> Airtime:
        """Those of a network; ``capacities_mbps``, float64[L], stands in for its own. O(L^2): for small networks."""
        capacities = network.capacities if capacities_mbps is None else capacities_mbps
        live = np.flatnonzero(capacities > 0)
        relation = network.interference.contention_matrix()[live][:, live].toarray() > 0
        # Links of one row are in each other's domain: each is in its own.
        _, first, number = np.unique(np.packbits(relation, axis=1), axis=0, return_index=True, return_inverse=True)
        class_of = np.full(len(capacities), -1, dtype=np.int64)
        class_of[live] = number.reshape(-1)
        seconds = np.zeros(len(capacities))
        seconds[live] = 1.0 / capacities[live]
        return cls(class_of, seconds, relation[np.ix_(first, first)])

    @cached_property
    def unit_mbps(self) -> float:
        """The fastest link: rates are solved for in this unit, because the tolerances of the solver are absolute."""
        slowest = self.seconds_per_mb[self.class_of >= 0]
        return float(1.0 / slowest.min()) if len(slowest) else 1.0

    @cached_property
    def components(self) -> tuple[IntArray, ...]:
        """Classes that contend with each other directly or over others, component by component."""
        count, number = connected_components(sparse.csr_matrix(self.conflicts, dtype=np.float64), directed=False)
        return tuple(np.flatnonzero(number == i) for i in range(count))

    @cached_property
    def neighbours(self) -> tuple[int, ...]:
        """For each class a bit set of the classes that it contends with, itself included."""
        return tuple(sum(1 << int(other) for other in np.flatnonzero(row)) for row in self.conflicts)

    def loads(self, paths: Sequence[Path]) -> FloatArray:
        """Airtime of the classes per Mb/s on each path, float64[C, P] in s/Mb, not yet that of their domains."""
        found = np.zeros((len(self.conflicts), len(paths)))
        for column, path in enumerate(paths):
            np.add.at(found[:, column], self.class_of[list(path)], self.seconds_per_mb[list(path)])
        return found


@dataclass(frozen=True, eq=False)
class Carriers:
    """What can carry flows: n variables, whole paths or the rates of single links, each of one flow.

    ``airtime``, float64[C, n] in s/Mb, is what a Mb/s costs of the time of the classes. The rates z of the variables
    and the totals x of the flows are tied by ``balance`` z = ``total`` x, float64[b, n] and float64[b, F].
    """

    airtime: sparse.csr_matrix[np.float64]
    balance: sparse.csr_matrix[np.float64]
    total: sparse.csr_matrix[np.float64]

    @property
    def flow_count(self) -> int:
        """F."""
        return int(self.total.shape[1])

    @classmethod
    def of_paths(cls, airtime: Airtime, paths: Sequence[Sequence[Path]]) -> Carriers:
        """Given paths, for each flow some."""
        flat = [(flow, path) for flow, mine in enumerate(paths) for path in mine]
        owner = _csr([(flow, i, 1.0) for i, (flow, _) in enumerate(flat)], (len(paths), len(flat)))
        identity = _csr([(flow, flow, 1.0) for flow in range(len(paths))], (len(paths), len(paths)))
        return cls(sparse.csr_matrix(airtime.loads([path for _, path in flat])), owner, identity)

    @classmethod
    def of_links(cls, airtime: Airtime, graph: InterfaceGraph, flows: Sequence[tuple[int, int]]) -> Carriers:
        """Every loop-free path of flows between pairs of nodes, as rates of links that are conserved at every node."""
        cost, balance, total = [], [], []
        column, node_count = 0, len(graph.relays)
        for flow, (source, target) in enumerate(flows):
            row = flow * node_count
            total += [(row + source, flow, 1.0), (row + target, flow, -1.0)]
            for link in _usable(airtime, graph, source, target):
                cost.append((int(airtime.class_of[link]), column, float(airtime.seconds_per_mb[link])))
                balance += [(row + graph.source[link], column, 1.0), (row + graph.target[link], column, -1.0)]
                column += 1
        rows = node_count * len(flows)
        shape = (len(airtime.conflicts), column)
        return cls(_csr(cost, shape), _csr(balance, (rows, column)), _csr(total, (rows, len(flows))))


def _usable(airtime: Airtime, graph: InterfaceGraph, source: int, target: int) -> list[int]:
    """Links that a loop-free path may take."""
    found = []
    for link in np.flatnonzero(airtime.class_of >= 0).tolist():
        start, end = graph.source[link], graph.target[link]
        leaves = start != target and (start == source or graph.relays[start])
        enters = end != source and (end == target or graph.relays[end])
        if leaves and enters:
            found.append(link)
    return found


def _csr(entries: Sequence[tuple[int, int, float]], shape: tuple[int, int]) -> sparse.csr_matrix[np.float64]:
    rows, columns, values = zip(*entries, strict=True) if entries else ((), (), ())
    return sparse.csr_matrix((np.array(values, dtype=np.float64), (rows, columns)), shape=shape)


def best_rates(airtime: Airtime, carriers: Carriers, *, scheduled: bool = False) -> FloatArray:
    """The best rates of the flows, float64[F] in Mb/s: the most of one flow, the most utility of several.

    The utility is sum log(1 + x), x in Mb/s. ``scheduled`` asks for the best schedule instead of the limit of airtime.
    Raises ``PlanningError`` if that does not converge, which no network is known to cause.
    """
    if not carriers.airtime.shape[1]:
        return np.zeros(carriers.flow_count)
    program = _Program(airtime, carriers, scheduled)
    for _ in range(MAX_ROUNDS):
        solved = program.solve()
        missing = program.add_sets(solved) if scheduled else 0.0
        missing += program.add_tangents(solved) if program.logarithmic else 0.0
        if missing <= TARGET_GAP * max(TARGET_GAP, solved.objective):
            return solved.rates_mbps
    raise PlanningError(f"the optimum of the flows did not converge in {MAX_ROUNDS} rounds")


def most_of_paths(airtime: Airtime, paths: Sequence[Path]) -> float:
    """The most that one flow gets over given paths, Mb/s, within the airtime of every link; 0 without paths.

    With one path it is 1 over the busiest domain's load, with two it is in a corner of a polygon; only more paths need
    :func:`best_rates`.
    """
    if not paths:
        return 0.0
    if len(paths) > _IN_A_PLANE:
        return float(best_rates(airtime, Carriers.of_paths(airtime, [paths]))[0])
    rows = airtime.conflicts @ airtime.loads(paths)
    if len(paths) == 1:
        return float(1.0 / rows.max())
    rows = binding_rows(rows)
    # Corners: the axes with the rows that bind there, and every two rows with each other.
    first, second = np.triu_indices(len(rows), 1)
    (a, b), (c, d) = rows[first].T, rows[second].T
    crossing = a * d - b * c
    apart = np.abs(crossing) > _PARALLEL * np.maximum(a * d, b * c)
    x = (d - b)[apart] / crossing[apart]
    y = (a - c)[apart] / crossing[apart]
    corners = np.column_stack(
        [np.append(x, [1.0 / rows[:, 0].max(), 0.0]), np.append(y, [0.0, 1.0 / rows[:, 1].max()])]
    )
    possible = (corners >= 0.0).all(axis=1) & ((corners @ rows.T).max(axis=1) <= 1.0 + _PARALLEL)
    return float(corners[possible].sum(axis=1).max())


@dataclass(frozen=True, eq=False)
class _Solved:
    """``objective`` in units of the fastest link (one flow) or of utility; prices are those of an inequality."""

    rates_mbps: FloatArray
    utilities: FloatArray
    objective: float
    prices: FloatArray


class _Program:
    """The linear program as far as it is known: variables z, x, then t (utilities) and tau (turns of sets)."""

    def __init__(self, airtime: Airtime, carriers: Carriers, scheduled: bool) -> None:
        self._airtime, self._carriers = airtime, carriers
        self._unit = airtime.unit_mbps
        self.logarithmic = carriers.flow_count > 1
        self._cost = carriers.airtime * self._unit
        self._sets: list[tuple[int, int]] = []
        self._known: set[int] = set()
        self._tangents: list[tuple[int, float]] = []
        self._limits = None if scheduled else self._domain_rows()
        # Classes that no carrier uses need no turn.
        self._used = np.flatnonzero(np.diff(self._cost.indptr))
        if scheduled:
            for number, component in enumerate(airtime.components):
                for each in np.intersect1d(component, self._used).tolist():
                    self._learn(number, 1 << each)
        if self.logarithmic:
            points = np.concatenate([[0.0], np.geomspace(self._unit / 1000.0, self._unit, _POINTS)])
            self._tangents = [(flow, float(x)) for flow in range(carriers.flow_count) for x in points]

    def _domain_rows(self) -> sparse.csr_matrix[np.float64]:
        rows = sparse.csr_matrix(self._airtime.conflicts.astype(np.float64) @ self._cost.toarray())
        remaining, seen = [], set()
        for row in range(rows.shape[0]):
            each = rows[row]
            key = (each.indices.tobytes(), each.data.tobytes())
            if each.nnz and key not in seen:
                seen.add(key)
                remaining.append(row)
        return sparse.csr_matrix(rows[remaining])

    def _learn(self, component: int, chosen: int) -> bool:
        """Know one more independent set, made maximal; whether it is new."""
        airtime = self._airtime
        for each in airtime.components[component].tolist():
            if not airtime.neighbours[each] & chosen:
                chosen |= 1 << each
        if chosen in self._known:
            return False
        self._known.add(chosen)
        self._sets.append((component, chosen))
        return True

    def solve(self) -> _Solved:
        """The optimum with the sets and tangents that are known."""
        z, flows = self._cost.shape[1], self._carriers.flow_count
        t = flows if self.logarithmic else 0
        width = z + flows + t + len(self._sets)
        rows: Any = sparse.vstack([self._airtime_rows(width), self._tangent_rows(width)], format="csr")
        gain = np.zeros(width)
        gain[z + flows : z + 2 * flows] = -1.0 if self.logarithmic else 0.0
        gain[z : z + flows] = 0.0 if self.logarithmic else -1.0
        flow_rows = self._carriers.total.shape[0]
        tied = [self._carriers.balance, -self._carriers.total, _csr([], (flow_rows, width - z - flows))]
        conserved: Any = sparse.hstack(tied, format="csr")
        solved: Any = linprog(
            gain, A_ub=rows, b_ub=self._right(), A_eq=conserved, b_eq=np.zeros(conserved.shape[0]), method="highs"
        )
        if solved.x is None:
            raise PlanningError(f"no optimum of the flows: {solved.message}")
        rates = np.maximum(solved.x[z : z + flows], 0.0)
        return _Solved(
            rates * self._unit, solved.x[z + flows : z + flows + t], -float(solved.fun), -solved.ineqlin.marginals
        )

    def _airtime_rows(self, width: int) -> sparse.csr_matrix[np.float64]:
        z = self._cost.shape[1]
        if self._limits is not None:
            return sparse.csr_matrix(sparse.hstack([self._limits, _csr([], (self._limits.shape[0], width - z))]))
        components, first = len(self._airtime.components), width - len(self._sets)
        row_of = {each: row for row, each in enumerate(self._used.tolist())}
        turns = []
        for number, (component, chosen) in enumerate(self._sets):
            turns.append((len(self._used) + component, first + number, 1.0))
            turns += [(row_of[each], first + number, -1.0) for each in members(chosen) if each in row_of]
        needed = sparse.hstack([self._cost[self._used], sparse.csr_matrix((len(self._used), width - z))])
        needed = sparse.vstack([needed, sparse.csr_matrix((components, width))])
        return sparse.csr_matrix(needed + _csr(turns, (len(self._used) + components, width)))

    def _tangent_rows(self, width: int) -> sparse.csr_matrix[np.float64]:
        """t - slope x <= log(1 + x0) - slope x0, with x in units."""
        z, flows = self._cost.shape[1], self._carriers.flow_count
        entries = []
        for row, (flow, at_mbps) in enumerate(self._tangents):
            entries += [(row, z + flows + flow, 1.0), (row, z + flow, -self._unit / (1.0 + at_mbps))]
        return _csr(entries, (len(self._tangents), width))

    def _right(self) -> FloatArray:
        if self._limits is not None:
            limits = np.ones(self._limits.shape[0])
        else:
            limits = np.concatenate([np.zeros(len(self._used)), np.ones(len(self._airtime.components))])
        at = np.array([at_mbps for _, at_mbps in self._tangents], dtype=np.float64)
        return np.concatenate([limits, np.log1p(at) - at / (1.0 + at)])

    def add_sets(self, solved: _Solved) -> float:
        """Add the set of each component that promises most; returns by how much all sets could raise the objective."""
        prices = np.zeros(len(self._airtime.conflicts))
        prices[self._used] = solved.prices[: len(self._used)]
        missing = 0.0
        for number, component in enumerate(self._airtime.components):
            weight, chosen = heaviest_independent_set(prices, self._airtime.neighbours, component)
            excess = weight - float(solved.prices[len(self._used) + number])
            # A set that is known promises nothing: what it seems to is the solver's tolerance.
            if excess > 0.0 and self._learn(number, chosen):
                missing += excess
        return missing

    def add_tangents(self, solved: _Solved) -> float:
        """Add the tangents where the solution is; returns by how much it overrates the utility."""
        over = solved.utilities - np.log1p(solved.rates_mbps)
        missing = 0.0
        for flow, (rate_mbps, more) in enumerate(zip(solved.rates_mbps.tolist(), over.tolist(), strict=True)):
            is_known = any(of == flow and abs(at - rate_mbps) <= _PARALLEL * (1.0 + at) for of, at in self._tangents)
            # As with sets: what the solution is above a tangent that is known is the solver's tolerance.
            if more > 0.0 and not is_known:
                missing += more
                if more > TARGET_GAP / 10.0:
                    self._tangents.append((flow, rate_mbps))
        return missing


def heaviest_independent_set(
    weights: FloatArray, neighbours: Sequence[int], among: Sequence[int] | IntArray
) -> tuple[float, int]:
    """The greatest total weight of vertices no two of which are neighbours, and these vertices as a bit set.

    ``neighbours[v]`` is the bit set of the neighbours of v, v included; weights that are not above 0 count as absent.
    Exact, by branch and bound: a cover by cliques can't have more than the heaviest of each (Balas and Xue, SIAM
    Journal on Computing 20, 1991). Exponential in the worst case.
    """
    order = sorted((v for v in (int(v) for v in among) if weights[v] > _PRICED), key=lambda v: (-weights[v], v))
    weight = [float(weights[v]) for v in order]
    near = [sum(1 << i for i, u in enumerate(order) if neighbours[v] >> u & 1) for v in order]
    best_weight, best = 0.0, 0
    stack = [((1 << len(order)) - 1, 0.0, 0)]
    while stack:
        candidates, total, chosen = stack.pop()
        if total > best_weight:
            best_weight, best = total, chosen
        if total + _clique_bound(candidates, weight, near) <= best_weight:
            continue
        first = (candidates & -candidates).bit_length() - 1
        stack.append((candidates ^ (1 << first), total, chosen))
        stack.append((candidates & ~near[first], total + weight[first], chosen | 1 << first))
    return best_weight, sum(1 << order[i] for i in members(best))


def _clique_bound(candidates: int, weight: Sequence[float], near: Sequence[int]) -> float:
    """Sum of the heaviest vertices of cliques that cover the candidates; vertices are sorted, the heaviest first."""
    bound = 0.0
    while candidates:
        first = (candidates & -candidates).bit_length() - 1
        bound += weight[first]
        candidates ^= 1 << first
        clique = candidates & near[first]
        while clique:
            each = clique & -clique
            candidates ^= each
            clique = (clique ^ each) & near[each.bit_length() - 1]
    return bound


def members(chosen: int) -> list[int]:
    """The numbers of a bit set, the smallest first."""
    found = []
    while chosen:
        lowest = chosen & -chosen
        found.append(lowest.bit_length() - 1)
        chosen ^= lowest
    return found

"""The rate of a flow to a client whose radios are attached in one way or another, as a linear program, and its prices.

The network is that of the file without the client's links, plus the links between the client and the neighbours that
its radios are attached to. Of the links of that network (the others do not exist), the program is

    max  F   subject to   conservation of the link rates x at every node (F leaves the peer, F enters the client),
                          sum over m in I_l of x_m / c_m <= 1 for every link l,   x >= 0

with the same rows as ``core.optimum`` (Henri, EPFL thesis 9056, 2018, [2.4]): a row for every link that exists, used or
not. *Copies* ask for the greatest rate that enters the client by every attached radio at once; each copy takes
airtime of its own on every link that it crosses.

Prices y >= 0 of the rows, whatever they are, bound the rate of every attachment (weak duality). Let pi_(t,v) be the
cheapest path from the peer over the link from neighbour v on technology t, where link l costs
sum over m in I_l of y_m / c_l. Relaxing the rows and splitting the rest by radio gives

    F <= sum_l y_l + sum over radios t of c_(t,v) max(0, 1 - pi_(t,v))      copies:  r <= sum_l y_l / sum_t pi_(t,v)

which is a sum over radios: one program bounds all attachments at once (Geoffrion, Math. Prog. Study 2, 1974).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linprog

from .errors import PlanningError
from .interface_graph import FloatArray, InterfaceGraph, interface_graph
from .network import Network

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]

# Above so many rows the comparison of all pairs costs more than the rows that it removes.
_MAX_COMPARED_ROWS = 800
_NO_PRICE = 1e-9


@dataclass(frozen=True)
class Attachment:
    """A radio at a neighbour: the columns of the links from there, and the rows that exist only then.

    ``technology`` and ``node`` name the radio and the neighbour; ``number`` is the place among all attachments.
    """

    technology: str
    node: str
    number: int
    columns: IntArray
    rows: BoolArray


@dataclass(frozen=True)
class Solved:
    """The optimum of one set of attachments in Mb/s, and prices of the rows, in units of the fastest link.

    ``own_prices`` has the prices of own rows by the number of their attachment; those without are absent.
    """

    rate_mbps: float
    prices: FloatArray
    own_prices: Mapping[int, FloatArray]


@dataclass(frozen=True)
class Cut:
    """An upper bound of all sets of attachments that agree with ``fixed`` (radio -> attachment, by number).

    ``constant_mbps`` is sum y, ``costs`` pi of every attachment, float64[attachments].
    """

    fixed: Mapping[int, int]
    constant_mbps: float
    costs: FloatArray


class AttachmentProgram:
    """The programs of all attachments of ``client`` for a flow from ``peer``; compiled once.

    ``technologies`` are the radios. Neighbours that no path from the peer reaches are left out.
    """

    def __init__(self, network: Network, client: str, peer: str, technologies: Sequence[str]) -> None:
        self.network = network
        self.technologies = tuple(technologies)
        self._graph = interface_graph(network)
        self._start, self._end = self._graph.node(peer), self._graph.node(client)
        self._capacities = network.capacities
        self._unit_mbps = max(self._graph.unit_mbps, 1e-9)
        own = [self._end in ends for ends in zip(self._graph.source, self._graph.target, strict=True)]
        self._elsewhere = np.flatnonzero((self._capacities > 0) & ~np.array(own, dtype=bool))
        self._base = _useful_links(self._graph, self._elsewhere, self._start, self._last_nodes())
        reached = {self._start, *(self._graph.target[link] for link in self._base.tolist())}
        self._down = np.array([link for link in self._client_links(down=True) if self._graph.source[link] in reached],
                              dtype=np.int64)  # fmt: skip
        self._columns = np.concatenate([self._base, self._down])
        self._airtime = self._unit_mbps / self._capacities[self._columns]
        self.attachments = self._attachments()

    def alone_mbps(self) -> FloatArray:
        """By attachment: no more than this can go over it, Mb/s, because of its links and those into its node."""
        capacities = self._capacities[self._columns]
        enters = {self._start: np.inf}
        target = np.array(self._graph.target, dtype=np.int64)[self._base]
        for node in dict.fromkeys(self._graph.source[link] for link in self._down.tolist()):
            if node != self._start:
                enters[node] = _cover_mbps(self._rows, np.flatnonzero(target == node), capacities)
        node_of = self._graph.node_index
        return np.array([min(capacities[a.columns].sum(), enters[node_of[a.node]]) for a in self.attachments])

    @cached_property
    def _rows(self) -> BoolArray:
        """The distinct rows of the links that are not the client's, bool[rows, columns], without dominated ones."""
        classes = self.network.interference.classes()[self._elsewhere]
        first = self._elsewhere[np.unique(classes, return_index=True)[1]]
        return _undominated(self._members(first))

    def _members(self, links: IntArray) -> BoolArray:
        """Which columns contend with each of these links."""
        column_of = np.full(len(self._capacities), -1, dtype=np.int64)
        column_of[self._columns] = np.arange(len(self._columns))
        members = np.zeros((len(links), len(self._columns)), dtype=bool)
        for row, link in enumerate(links.tolist()):
            columns = column_of[self.network.interference.domain(link)]
            members[row, columns[columns >= 0]] = True
        return members

    def _last_nodes(self) -> list[int]:
        return [self._graph.source[link] for link in self._client_links(down=True)]

    def _client_links(self, *, down: bool) -> list[int]:
        """Links to the client on the radios' technologies (``down``), or all between it and its neighbours."""
        graph = self._graph
        ends = graph.target if down else graph.source
        found = [link for link in range(len(ends)) if ends[link] == self._end and self._capacities[link] > 0]
        return [link for link in found if graph.technologies[graph.technology[link]] in self.technologies]

    def _attachments(self) -> tuple[Attachment, ...]:
        """By radio, then by node in the order of the file."""
        graph, links = self._graph, self.network.links
        columns: dict[tuple[str, str], list[int]] = {}
        for column, link in enumerate(self._down.tolist(), start=len(self._base)):
            columns.setdefault((links[link].technology, links[link].source), []).append(column)
        back: dict[tuple[str, str], list[int]] = {}
        for link in self._client_links(down=False):
            back.setdefault((links[link].technology, links[link].target), []).append(link)
        order = sorted(columns, key=lambda key: (self.technologies.index(key[0]), graph.node_index[key[1]]))
        found = []
        for number, key in enumerate(order):
            mine = np.array(columns[key], dtype=np.int64)
            rows = self._own_rows(key[0], mine, [*self._columns[mine].tolist(), *back.get(key, ())])
            found.append(Attachment(*key, number, mine, rows))
        return tuple(found)

    def _own_rows(self, technology: str, mine: IntArray, links: Sequence[int]) -> BoolArray:
        """The rows of an attachment's own links that say more than those of the others, with the box x <= c."""
        members = self._members(np.array(links, dtype=np.int64))
        # A radio has one neighbour: its links to others are not there.
        present, others = self._beside[technology]
        mask = present.copy()
        mask[mine] = True
        members = _distinct(members & mask)
        members = members[members.sum(axis=1) > 1]
        common = (members & present).astype(np.float32) @ others.T
        common += members[:, mine].astype(np.float32) @ self._rows[:, mine].astype(np.float32).T
        remaining: BoolArray = members[~(common == members.sum(axis=1)[:, None]).any(axis=1)]
        return remaining

    @cached_property
    def _beside(self) -> Mapping[str, tuple[BoolArray, NDArray[np.float32]]]:
        """By technology: the columns that are not the client's links of it, and the rows in them."""
        found = {}
        for technology in self.technologies:
            client = [self.network.links[link].technology != technology for link in self._down.tolist()]
            present = np.concatenate([np.ones(len(self._base), dtype=bool), np.array(client, dtype=bool)])
            found[technology] = present, (self._rows & present).astype(np.float32)
        return found

    # -- the optimum of one set of attachments

    def solve(self, chosen: Sequence[Attachment], *, copies: bool = False) -> Solved:
        """The optimum of these attachments (one a radio); ``copies``: the greatest rate of every one of them at once.

        Raises ``PlanningError`` if the solver fails.
        """
        columns = np.concatenate([np.arange(len(self._base)), *(each.columns for each in chosen)])
        own = [each.rows[:, columns] * self._airtime[columns] for each in chosen]
        links = [len(each.columns) for each in chosen]
        rate_mbps, prices, own_prices = self._solve(columns, np.concatenate(own), links if copies else None)
        ends = np.cumsum([len(block) for block in own])[:-1]
        parts = zip(chosen, np.split(own_prices, ends), strict=True)
        return Solved(rate_mbps, prices, {each.number: part for each, part in parts if part.any()})

    def relaxed(self, alone_mbps: FloatArray) -> Solved:
        """The optimum if a radio could share its time among all its neighbours: no combination gets more.

        ``alone_mbps`` is the most that each attachment can get, by attachment.
        """
        shares = np.zeros((len(self.technologies), len(self._columns)))
        for each in self.attachments:
            share = self._unit_mbps / max(alone_mbps[each.number], 1e-9 * self._unit_mbps)
            shares[self.technologies.index(each.technology), each.columns] = share
        rate_mbps, prices, _ = self._solve(np.arange(len(self._columns)), shares, None)
        return Solved(rate_mbps, prices, {})

    def _solve(
        self, columns: IntArray, own: FloatArray, copies: Sequence[int] | None
    ) -> tuple[float, FloatArray, FloatArray]:
        """Rate in Mb/s, prices of the rows, prices of ``own`` rows; ``copies``: how many links each radio has."""
        base, rows = len(self._base), self._busy[:, columns]
        if len(own):
            rows = sparse.csc_matrix(sparse.vstack([rows, sparse.csc_matrix(own)]))
        balance = self._conservation[:, columns]
        gain = np.concatenate([np.zeros(base), -np.ones(len(columns) - base)])
        # A bound of a link beside its row would take the row's price.
        most = np.append(np.full(base, np.inf), 1.0 / self._airtime[columns[base:]])
        bounds = np.column_stack([np.zeros(len(columns)), most])
        if copies is not None:
            rows = sparse.csc_matrix(sparse.hstack([rows, sparse.csc_matrix((rows.shape[0], 1))]))
            balance = _with_common_rate(balance, base, copies)
            gain = np.append(np.zeros(len(columns)), -1.0)
            bounds = np.vstack([bounds, [0.0, np.inf]])
        limits, balances = np.ones(rows.shape[0]), np.zeros(balance.shape[0])
        solve: Any = linprog  # its declared types know no sparse equations
        solved = solve(gain, A_ub=rows, b_ub=limits, A_eq=balance, b_eq=balances, bounds=bounds, method="highs-ds")
        if solved.x is None:
            raise PlanningError(f"no optimum of the attachments: {solved.message}")
        prices = np.maximum(-solved.ineqlin.marginals, 0.0)
        prices[prices < _NO_PRICE] = 0.0
        rate_mbps = max(0.0, -float(solved.fun)) * self._unit_mbps
        return rate_mbps, prices[: len(self._rows)], prices[len(self._rows) :]

    @cached_property
    def _busy(self) -> sparse.csc_matrix[np.float64]:
        """The rows' coefficients, in units of the fastest link."""
        return sparse.csc_matrix(self._rows * self._airtime)

    @cached_property
    def _conservation(self) -> sparse.csc_matrix[np.float64]:
        """What enters a node less what leaves it, by column; the peer and the client have no row."""
        links = self._columns
        source, target = (np.array(ends, dtype=np.int64)[links] for ends in (self._graph.source, self._graph.target))
        inner = np.unique(np.concatenate([source, target]))
        inner = inner[(inner != self._start) & (inner != self._end)]
        row_of = np.full(len(self._graph.relays), -1, dtype=np.int64)
        row_of[inner] = np.arange(len(inner))
        rows, columns = np.concatenate([row_of[target], row_of[source]]), np.tile(np.arange(len(links)), 2)
        values = np.repeat([1.0, -1.0], len(links))
        inside = rows >= 0
        return sparse.csc_matrix((values[inside], (rows[inside], columns[inside])), shape=(len(inner), len(links)))

    # -- what its prices say of all others

    def cut(self, prices: FloatArray, own_prices: Mapping[int, FloatArray]) -> Cut:
        """The upper bound that these prices give: of the rows, and of own rows by the number of their attachment."""
        priced = np.flatnonzero(prices)
        cost, constant = prices[priced] @ self._rows[priced], float(prices.sum())
        for number, mine in own_prices.items():
            cost = cost + mine @ self.attachments[number].rows
            constant += float(mine.sum())
        held = {self.technologies.index(self.attachments[number].technology): number for number in own_prices}
        return Cut(held, constant * self._unit_mbps, self._path_costs(cost * self._airtime))

    def _path_costs(self, weights: FloatArray) -> FloatArray:
        """The cheapest path from the peer over each attachment's cheapest link, with these weights of columns.

        Bellman and Ford's, for all links at once.
        """
        source, target, starts, nodes = self._by_target
        reach = np.full(len(self._graph.relays), np.inf)
        reach[self._start] = 0.0
        own = weights[source[0]]
        for _ in range(len(nodes)):
            best = np.minimum.reduceat(reach[source[1]] + own, starts)
            if not (best < reach[nodes]).any():
                break
            reach[nodes] = np.minimum(reach[nodes], best)
        last = reach[target] + weights[len(self._base) :]
        return np.array([last[each.columns - len(self._base)].min() for each in self.attachments])

    @cached_property
    def _by_target(self) -> tuple[tuple[IntArray, IntArray], IntArray, IntArray, IntArray]:
        """Base columns by the node that they enter: (columns, their sources), sources of the client's links,
        where each node's columns begin, and the nodes."""
        source, target = (np.array(ends, dtype=np.int64) for ends in (self._graph.source, self._graph.target))
        order = np.argsort(target[self._base], kind="stable")
        nodes, starts = np.unique(target[self._base][order], return_index=True)
        return (order, source[self._base][order]), source[self._down], starts, nodes


def _with_common_rate(
    balance: sparse.csc_matrix[np.float64], base: int, copies: Sequence[int]
) -> sparse.csc_matrix[np.float64]:
    """Conservation with one variable more, the rate r, and a row per radio: what it receives is r."""
    links = sum(copies)
    received = sparse.csc_matrix(
        (np.ones(links), (np.repeat(np.arange(len(copies)), copies), base + np.arange(links))),
        shape=(len(copies), base + links),
    )
    rate = sparse.csc_matrix(np.concatenate([np.zeros(balance.shape[0]), -np.ones(len(copies))])[:, None])
    return sparse.csc_matrix(sparse.hstack([sparse.vstack([balance, received]), rate]))


def _useful_links(graph: InterfaceGraph, links: IntArray, start: int, ends: Sequence[int]) -> IntArray:
    """Of ``links``, those that a loop-free path from ``start`` to one of ``ends`` may cross."""

    def reached(first: Sequence[int], onward: Mapping[int, Sequence[int]]) -> set[int]:
        seen, queue = set(first), list(first)
        while queue:
            for node in onward.get(queue.pop(), ()):
                if node not in seen and (graph.relays[node] or node == start):
                    seen.add(node)
                    queue.append(node)
        return seen

    after: dict[int, list[int]] = {}
    before: dict[int, list[int]] = {}
    for link in links.tolist():
        after.setdefault(graph.source[link], []).append(graph.target[link])
        before.setdefault(graph.target[link], []).append(graph.source[link])
    from_start = reached([start], after)
    to_end = reached([node for node in ends if node in from_start], before)
    good = from_start & to_end
    return np.array(
        [link for link in links.tolist()
         if graph.source[link] in good and graph.target[link] in good and graph.target[link] != start],
        dtype=np.int64,
    )  # fmt: skip


def _undominated(rows: BoolArray) -> BoolArray:
    """The distinct rows that are not part of another one; all rows have the same coefficients where they are true."""
    rows = _distinct(rows[rows.any(axis=1)])
    if len(rows) > _MAX_COMPARED_ROWS:
        return rows
    dense = rows.astype(np.float32)
    sizes = dense.sum(axis=1)
    part: BoolArray = (dense @ dense.T == sizes[:, None]) & (sizes[None, :] > sizes[:, None])
    remaining: BoolArray = rows[~part.any(axis=1)]
    return remaining


def _cover_mbps(rows: BoolArray, columns: IntArray, capacities_mbps: FloatArray) -> float:
    """An upper bound of the sum of the rates of ``columns``: of those of one row together no more than the fastest."""
    total_mbps = 0.0
    while len(columns):
        mine = rows[:, columns]
        row = mine[mine.sum(axis=1).argmax()] if len(rows) else np.zeros(len(columns), dtype=bool)
        if not row.any():
            return total_mbps + float(capacities_mbps[columns].sum())
        total_mbps += float(capacities_mbps[columns[row]].max())
        columns = columns[~row]
    return total_mbps


def _distinct(rows: BoolArray) -> BoolArray:
    """Each row once, in the order of the first."""
    first: dict[bytes, int] = {}
    for number, row in enumerate(np.packbits(rows, axis=1)):
        first.setdefault(row.tobytes(), number)
    return rows[list(first.values())]

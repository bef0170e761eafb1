"""Backpressure, slot by slot: the routing, scheduling and rate control that the studies compare the controller with.

Every node has a queue for each flow, Q packets. In each slot (Neely, Modiano and Li, "Fairness and optimal stochastic
control for heterogeneous networks", IEEE/ACM Trans. Networking 16(2), 2008):

    weight of link l = (u, v)    c_l max(0, max over flows f of Q_u^f - Q_v^f);  l would carry that flow
    schedule                     the links whose weights sum to most, of those that may send together
    source of flow f             a_f maximises V U(x) - Q a, Q its own queue, a in packets a slot and x the same in Mb/s

*optimal*: links that don't interfere may send together, all the slot (an independent set of the conflict graph).
*conservative*: link l has a share tau_l of the slot, such that B tau <= 1: the airtime of the links of every domain
sums to at most the slot. Of those shares the best are a linear program. Only its objective changes from slot to slot,
so that the vertex of the last slot is feasible in the next one: the simplex method goes on from there.

Queues are counted in packets of 1500 bytes, fractions included. As in ``slots``, a slot lasts as long as a packet on
the fastest link, s_mbps Mb/s. For U = log(1 + x) a source takes in x = V s_mbps / Q - 1, and never more than its links
together could carry. The utility is at most O(1 / V) short of the greatest one in the long run, with queues that grow
as V, and it takes the time to fill these queues until it is reached.

The publications do not say in which unit a source takes in x. It is packets a slot here, as in the proof of the bound.
With Mb/s queues are shorter by s_mbps and settle in hundreds of slots, unlike the published ones; both were tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hyroads.controller.core.interface_graph import FloatArray, interface_graph
from hyroads.controller.core.network import Network

from .framework import StudyError
from .schedules import Airtime, members
from .slots import PACKET_MB

V = 1000.0
UNIT_OF_V = (
    "The publications do not say in which unit sources of backpressure count. Packets a slot were chosen here after "
    "Mb/s were tried as well, with which queues are far shorter and settle in hundreds of slots: that backpressure is "
    "as slow as published, or has as long queues, confirms nothing by itself."
)
"""A note of the reports."""
IntArray = NDArray[np.int64]
_MOST_SETS = 200_000
_TOLERANCE = 1e-9
# Pivots after which the basis is inverted anew.
_REFACTOR = 200


@dataclass(frozen=True, eq=False)
class BackpressureRun:
    """What happened in a number of slots of ``slot_s`` seconds.

    ``admitted_mbps`` is what the source of each flow took in, and ``delivered_mbps`` what reached its target, in each
    slot, float64[slots, F]. ``queued`` has the packets in all queues after each slot, float64[slots].
    """

    slot_s: float
    admitted_mbps: FloatArray
    delivered_mbps: FloatArray
    queued: FloatArray


class Scheduler(Protocol):
    """Finds the best shares of a slot."""

    def shares(self, weights: FloatArray) -> FloatArray:
        """Share of the slot of each class, float64[C], for these weights >= 0, float64[C]."""


def backpressure(
    network: Network,
    flows: Sequence[tuple[str, str]],
    slots: int,
    *,
    conservative: bool = False,
    v: float = V,
    slot_s: float | None = None,
    clients_relay: bool = True,
) -> BackpressureRun:
    """Run backpressure for ``slots`` slots from empty queues; ``flows`` are pairs of source and target.

    ``slot_s`` is the length of a slot (default: that of a packet on the network's fastest link). ``clients_relay``:
    plain clients forward too. Nothing in it is random.
    """
    air = Airtime.of(network)
    live = np.flatnonzero(air.class_of >= 0)
    if not len(live) or slots < 1:
        raise StudyError(f"{slots} slots, {len(live)} links: expected at least one of both")
    fastest = max(network.links[link].capacity_mbps for link in live)
    length_s = PACKET_MB / fastest if slot_s is None else slot_s
    scheduler: Scheduler = AirtimeShares(air.conflicts) if conservative else IndependentSets(air)
    return _Queues(network, air, flows, length_s, clients_relay).run(scheduler, slots, v)


class _Queues:
    """The queues of all nodes, and the live links in the order of their classes."""

    def __init__(
        self, network: Network, air: Airtime, flows: Sequence[tuple[str, str]], slot_s: float, clients_relay: bool
    ) -> None:
        graph = interface_graph(network, clients_relay)
        live = np.flatnonzero(air.class_of >= 0)
        live = live[np.argsort(air.class_of[live], kind="stable")]
        self._slot_s, self._flow_count = slot_s, len(flows)
        self._capacity = np.array([network.links[link].capacity_mbps for link in live])
        self._carried = self._capacity * (slot_s / PACKET_MB)
        self._from = np.array([graph.source[link] for link in live])
        self._to = np.array([graph.target[link] for link in live])
        self._ends = np.array([[graph.node(source), graph.node(target)] for source, target in flows])
        classes = air.class_of[live]
        self._first = np.flatnonzero(np.diff(classes, prepend=-1))
        self._until = np.append(self._first[1:], len(live))
        self._queue = np.zeros((len(flows), len(graph.relays)))
        # Who does not relay gets only what is for it, and sends only what is its own.
        relays = np.array(graph.relays, dtype=bool)
        source, target = self._ends[:, :1], self._ends[:, 1:]
        may_send, may_get = relays[self._from] | (self._from == source), relays[self._to] | (self._to == target)
        self._barred = ~(may_send & may_get)
        self._most_mbps = [self._most_of(network, air, live, int(node)) for node in self._ends[:, 0]]

    def _most_of(self, network: Network, air: Airtime, live: IntArray, node: int) -> float:
        """The fastest link of a node on each technology, all together."""
        best: dict[str, float] = {}
        for link, start, mbps in zip(live, self._from, self._capacity, strict=True):
            if start == node:
                technology = network.links[link].technology
                best[technology] = max(best.get(technology, 0.0), float(mbps))
        return sum(best.values())

    def run(self, scheduler: Scheduler, slots: int, v: float) -> BackpressureRun:
        """Some slots more."""
        admitted, delivered = np.zeros((slots, self._flow_count)), np.zeros((slots, self._flow_count))
        queued = np.zeros(slots)
        per_slot = self._slot_s / PACKET_MB
        for slot in range(slots):
            rates = self._admitted(v / per_slot)
            delivered[slot] = self._send(scheduler)
            for flow, rate in enumerate(rates):
                self._queue[flow, self._ends[flow, 0]] += rate * per_slot
            admitted[slot], queued[slot] = rates, self._queue.sum()
        return BackpressureRun(self._slot_s, admitted, delivered / per_slot, queued)

    def _admitted(self, v: float) -> list[float]:
        rates = []
        for (source, _), queue, most in zip(self._ends.tolist(), self._queue, self._most_mbps, strict=True):
            waiting = float(queue[source])
            rates.append(most if waiting * (1.0 + most) <= v else max(0.0, v / waiting - 1.0))
        return rates

    def _send(self, scheduler: Scheduler) -> list[float]:
        """One slot; returns the packets of each flow that reach their target."""
        queue = self._queue
        pressure = queue[:, self._from] - queue[:, self._to]
        pressure[self._barred] = 0.0
        weights = self._capacity * np.maximum(pressure.max(axis=0), 0.0)
        of_class = np.maximum.reduceat(weights, self._first)
        shares = scheduler.shares(of_class)
        delivered, moved = [0.0] * self._flow_count, []
        for number in np.flatnonzero((shares > 0) & (of_class > 0)).tolist():
            start = int(self._first[number])
            link = start + int(weights[start : int(self._until[number])].argmax())
            flow, here, there = int(pressure[:, link].argmax()), self._from[link], self._to[link]
            packets = min(float(self._carried[link] * shares[number]), float(queue[flow, here]))
            queue[flow, here] -= packets
            moved.append((flow, there, packets))
        # What arrives goes on in a later slot.
        for flow, node, packets in moved:
            if node == self._ends[flow, 1]:
                delivered[flow] += packets
            else:
                queue[flow, node] += packets
        return delivered


class IndependentSets:
    """The schedulers' best set: all maximal sets of classes that don't contend, listed once (Tomita, Tanaka and
    Takahashi, Theoretical Computer Science 363, 2006). There are few where most links hear each other.
    """

    def __init__(self, air: Airtime) -> None:
        self._parts: list[tuple[IntArray, FloatArray]] = []
        for component in air.components:
            chosen = maximal_sets(air.neighbours, component.tolist())
            members = np.array([[each >> number & 1 for number in component.tolist()] for each in chosen], dtype=float)
            self._parts.append((component, members))

    def shares(self, weights: FloatArray) -> FloatArray:
        """See :class:`Scheduler`."""
        found = np.ones(len(weights))
        for component, independent in self._parts:
            if len(independent) > 1:
                found[component] = independent[int((independent @ weights[component]).argmax())]
        return found


def maximal_sets(neighbours: Sequence[int], classes: Sequence[int]) -> list[int]:
    """All maximal sets of ``classes`` no two of which contend, as bit sets; ``neighbours`` are bit sets, too.

    Raises ``StudyError`` where there are more than 200 000.
    """
    everybody = sum(1 << each for each in classes)
    apart = {each: everybody & ~neighbours[each] for each in classes}
    found, stack = [], [(0, everybody, 0)]
    while stack:
        chosen, open_, closed = stack.pop()
        if not open_:
            if not closed:
                found.append(chosen)
            if len(found) > _MOST_SETS:
                raise StudyError(f"more than {_MOST_SETS} sets of links can send together: the network is too large")
            continue
        pivot = max(members(open_ | closed), key=lambda each: ((open_ & apart[each]).bit_count(), -each))
        for each in members(open_ & ~apart[pivot]):
            stack.append((chosen | 1 << each, open_ & apart[each], closed & apart[each]))
            open_ ^= 1 << each
            closed |= 1 << each
    return found


class AirtimeShares:
    """max w tau subject to B tau <= 1, tau >= 0, by the primal simplex method (Dantzig 1951), for one w after another.

    ``conflicts``, bool[C, C], is B. The basis of the last w is feasible for the next: few pivots are needed then.
    """

    def __init__(self, conflicts: NDArray[np.bool_]) -> None:
        rows = _undominated(conflicts)
        self._count = conflicts.shape[0]
        self._full = np.hstack([rows.astype(float), np.eye(len(rows)), np.ones((len(rows), 1))])
        self._basis = np.arange(self._count, self._count + len(rows))
        self._table, self._pivots = self._full.copy(), 0

    def shares(self, weights: FloatArray) -> FloatArray:
        """See :class:`Scheduler`."""
        gain = np.concatenate([weights, np.zeros(len(self._basis))])
        least = _TOLERANCE * max(1e-300, float(weights.max(initial=0.0)))
        for turn in range(100 * len(gain)):
            reduced = gain - gain[self._basis] @ self._table[:, :-1]
            # Bland's rule ends where the other one might go in circles.
            entering = int(reduced.argmax()) if turn < len(gain) else int((reduced > least).argmax())
            if reduced[entering] <= least:
                break
            self._pivot(entering)
        else:
            raise StudyError("the best shares of airtime were not found")
        found = np.zeros(len(gain))
        found[self._basis] = self._table[:, -1]
        return found[: self._count]

    def _pivot(self, entering: int) -> None:
        column = self._table[:, entering]
        ratio = np.full(len(column), np.inf)
        np.divide(self._table[:, -1], column, out=ratio, where=column > _TOLERANCE)
        ties = np.flatnonzero(ratio <= ratio.min() + _TOLERANCE)
        row = int(ties[self._basis[ties].argmin()])
        self._basis[row] = entering
        self._pivots += 1
        if self._pivots % _REFACTOR == 0:
            # Rounding errors of many pivots are not carried on.
            self._table = np.linalg.solve(self._full[:, self._basis], self._full)
            return
        chosen = self._table[row] / self._table[row, entering]
        self._table -= np.outer(self._table[:, entering], chosen)
        self._table[row] = chosen


def _undominated(conflicts: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The distinct rows whose ones are not all in another row: what these rows allow the others allow as well."""
    rows = np.unique(conflicts, axis=0)
    within = (rows[:, None, :] <= rows[None, :, :]).all(axis=2) & ~np.eye(len(rows), dtype=bool)
    return rows[~within.any(axis=1)]

"""Weighted max-min fair rates of flows that each accept some of the interfaces only.

A flow has a weight, a set of interfaces that it accepts, and perhaps a demand. Its *level* is rate / weight. The fair
allocation is the lexicographic maximum: the least level is as high as it can be, then the next, and so on; no flow gets
more than its demand, none a bit over an interface that it does not accept, and no capacity that somebody could use
stays idle (Yap, "Using all networks around us", Stanford 2013, chapter 3).

How it is found. Assume that all flows have one common level and the interfaces are used up. If the rates of that level
can be routed (a maximum flow says so), this is the answer. If not, the minimum cut names flows that ask for more than
all their interfaces carry. Those flows on those interfaces are one smaller problem, the other flows on what is left
another; the levels of the first stay below those of the second, and both are solved in the same way. This is the
decomposition algorithm for lexicographic optima over polymatroids (Fujishige, "Lexicographically optimal base of a
polymatroid with respect to a weight vector", Math. of Operations Research 5, 1980), so the result is exact up to
rounding. There are fewer parts than flows and interfaces together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

from hyroads.controller.core.errors import HyroadsError

# Of all capacities together: what counts as used up. Rounding stays below.
_TINY = 1e-13


class FairnessError(HyroadsError):
    """Flows and interfaces that can't be shared out."""


@dataclass(frozen=True, slots=True)
class Flow:
    """What a flow is entitled to: ``weight`` > 0, the names of the ``interfaces`` that it accepts (at least one) and
    what it sends at most, Mb/s (None: whatever it gets).
    """

    weight: float
    interfaces: frozenset[str]
    demand_mbps: float | None = None

    @property
    def most_mbps(self) -> float:
        """The demand, infinite if there is none."""
        return math.inf if self.demand_mbps is None else self.demand_mbps


@dataclass(frozen=True, slots=True)
class Shares:
    """Interfaces by name with their capacities, Mb/s, and flows by name."""

    capacity_mbps: Mapping[str, float]
    flows: Mapping[str, Flow]

    def __post_init__(self) -> None:
        """Refuse what has no fair allocation, by name."""
        for name, mbps in self.capacity_mbps.items():
            if not (math.isfinite(mbps) and mbps >= 0):
                raise FairnessError(f"interface {name}: expected a capacity of 0 or more Mb/s, got {mbps:g}")
        for name, flow in self.flows.items():
            if not (math.isfinite(flow.weight) and flow.weight > 0):
                raise FairnessError(f"flow {name}: expected a weight above 0, got {flow.weight:g}")
            if not flow.interfaces:
                raise FairnessError(f"flow {name}: expected at least one interface")
            if unknown := sorted(flow.interfaces - self.capacity_mbps.keys()):
                raise FairnessError(f"flow {name}: unknown interface {unknown[0]!a}")
            if flow.demand_mbps is not None and not (math.isfinite(flow.demand_mbps) and flow.demand_mbps >= 0):
                raise FairnessError(f"flow {name}: expected a demand of 0 or more Mb/s, got {flow.demand_mbps:g}")


@dataclass(frozen=True, slots=True)
class Cluster:
    """Flows of one level, and the interfaces that serve them and nobody else. ``level_mbps`` is the rate per weight of
    all its flows that want more; None if all have what they demand.
    """

    flows: tuple[str, ...]
    interfaces: tuple[str, ...]
    level_mbps: float | None


@dataclass(frozen=True, slots=True)
class Allocation:
    """``served_mbps[flow][interface]`` is what an interface carries of a flow, Mb/s, without the zeros; ``rate_mbps``
    is a flow's sum; ``clusters`` hold every flow once, the lowest level first.
    """

    rate_mbps: Mapping[str, float]
    served_mbps: Mapping[str, Mapping[str, float]]
    clusters: tuple[Cluster, ...]


def allocate(shares: Shares) -> Allocation:
    """The weighted max-min fair allocation, exact up to rounding (about 1e-12 of the capacities)."""
    served: dict[str, dict[str, float]] = {}
    clusters: list[Cluster] = []
    parts = [(list(shares.flows), frozenset(shares.capacity_mbps))] if shares.flows else []
    while parts:
        flows, interfaces = parts.pop()
        accepted = {name: shares.flows[name].interfaces & interfaces for name in flows}
        level = _common_level(shares, flows, frozenset().union(*accepted.values()))
        wanted = {name: min(shares.flows[name].most_mbps, shares.flows[name].weight * level) for name in flows}
        routing = _Routing(accepted, wanted, shares.capacity_mbps)
        short = routing.short_of_capacity()
        # All of them short by a common level: rounding.
        if not short or len(short) == len(flows):
            served.update(routing.served)
            clusters += _connected(accepted, level)
            continue
        scarce = frozenset().union(*(accepted[name] for name in short))
        parts.append(([name for name in flows if name not in short], interfaces - scarce))
        parts.append(([name for name in flows if name in short], scarce))
    used = {flow: {name: mbps for name, mbps in served[flow].items() if mbps > 0} for flow in shares.flows}
    return Allocation({flow: math.fsum(some.values()) for flow, some in used.items()}, used, tuple(clusters))


def _common_level(shares: Shares, flows: list[str], interfaces: frozenset[str]) -> float:
    """The level at which these flows, none above its demand, use all these interfaces up; infinite if all demands
    together are less.
    """
    left = math.fsum(shares.capacity_mbps[name] for name in interfaces)
    ordered = sorted(
        (shares.flows[name] for name in flows), key=lambda flow: flow.most_mbps / flow.weight, reverse=True
    )
    weights = list(accumulate(flow.weight for flow in ordered))
    for flow, weight in zip(reversed(ordered), reversed(weights), strict=True):
        if flow.most_mbps > flow.weight * (left / weight):
            return left / weight
        left = max(left - flow.most_mbps, 0.0)
    return math.inf


def _connected(accepted: Mapping[str, frozenset[str]], level: float) -> list[Cluster]:
    """Flows of one level, apart where no chain of accepted interfaces joins them."""
    groups: list[tuple[list[str], set[str]]] = []
    for flow, interfaces in accepted.items():
        joined: tuple[list[str], set[str]] = ([flow], set(interfaces))
        for group in [group for group in groups if group[1] & interfaces]:
            joined = (group[0] + joined[0], joined[1] | group[1])
            groups.remove(group)
        groups.append(joined)
    finite = level if math.isfinite(level) else None
    return [Cluster(tuple(sorted(flows)), tuple(sorted(names)), finite) for flows, names in groups]


def violations(shares: Shares, allocation: Allocation, tolerance: float = 1e-9) -> list[str]:
    """What contradicts that an allocation is the fair one: a sentence each, none if it is (Yap 2013, Theorem 4).

    The certificate: no capacity, demand or preference is exceeded; a flow that wants more finds all interfaces that it
    accepts used up, and every flow that they serve at its own level or below. ``tolerance`` is relative to the
    greatest capacity, for levels to the greatest level.
    """
    slack = tolerance * max([*shares.capacity_mbps.values(), 0.0])
    levels = {name: allocation.rate_mbps[name] / flow.weight for name, flow in shares.flows.items()}
    near = tolerance * max([*levels.values(), 0.0])
    users: dict[str, list[str]] = {name: [] for name in shares.capacity_mbps}
    found = []
    for name, flow in shares.flows.items():
        for interface, mbps in allocation.served_mbps[name].items():
            if interface not in flow.interfaces:
                found.append(f"flow {name} is served by {interface}, which it does not accept")
            elif mbps > slack:
                users[interface].append(name)
        if allocation.rate_mbps[name] > flow.most_mbps + slack:
            found.append(f"flow {name} gets more than it demands")
    used = {k: math.fsum(allocation.served_mbps[name].get(k, 0.0) for name in shares.flows) for k in users}
    found += [f"interface {k} carries more than it can" for k in users if used[k] > shares.capacity_mbps[k] + slack]
    for name, flow in shares.flows.items():
        if allocation.rate_mbps[name] >= flow.most_mbps - slack:
            continue
        for k in sorted(flow.interfaces):
            if used[k] < shares.capacity_mbps[k] - slack:
                found.append(f"interface {k} has room for flow {name}, which wants more")
            found += [
                f"interface {k} serves flow {other} at a higher level than flow {name}"
                for other in users[k]
                if levels[other] > levels[name] + near
            ]
    return found


def floor_mbps(shares: Shares, name: str) -> float:
    """The rate that flow ``name`` gets whatever others demand, Mb/s: its weight's part, among all flows that share an
    interface with it, of the capacity of all interfaces that it accepts (Yap 2013, Theorem 2).
    """
    flow = shares.flows[name]
    weight = math.fsum(other.weight for other in shares.flows.values() if other.interfaces & flow.interfaces)
    return flow.weight / weight * math.fsum(shares.capacity_mbps[k] for k in flow.interfaces)


@dataclass(frozen=True, slots=True)
class Promise:
    """Traffic of a flow that must be served at once: bursts of at most ``burst_mbit``, on average at most
    ``rate_mbps`` (a token bucket).
    """

    burst_mbit: float
    rate_mbps: float

    def delay_s(self) -> float:
        """How long a fluid scheduler holds its traffic back at most if the flow's floor is at least the rate."""
        return self.burst_mbit / self.rate_mbps


def admissible(shares: Shares, promises: Mapping[str, Promise]) -> Mapping[str, float]:
    """Flows whose promise can't be given, with their floor, Mb/s; none if all can: then every flow's traffic waits for
    at most ``Promise.delay_s`` (Yap 2013, Theorem 3). To admit a flow ask with it among the ``shares``: it may break
    the promise of another.
    """
    floors = {name: floor_mbps(shares, name) for name in promises}
    return {name: floors[name] for name, promise in promises.items() if floors[name] < promise.rate_mbps}


class _Routing:
    """A maximum flow from flows that want certain rates to interfaces, by shortest augmenting paths."""

    def __init__(
        self, accepted: Mapping[str, frozenset[str]], wanted: Mapping[str, float], capacity: Mapping[str, float]
    ) -> None:
        names = sorted(frozenset().union(*accepted.values()))
        self._accepted = {flow: sorted(some) for flow, some in accepted.items()}
        self._left = {name: capacity[name] for name in names}
        self._unmet = dict(wanted)
        self._tiny = _TINY * math.fsum(self._left.values())
        self.served: dict[str, dict[str, float]] = {flow: dict.fromkeys(some, 0.0) for flow, some in accepted.items()}
        for flow in sorted(self._accepted, key=lambda flow: len(self._accepted[flow])):
            for name in sorted(self._accepted[flow], key=lambda name: -self._left[name]):
                self._serve(flow, name, min(self._unmet[flow], self._left[name]))

    def _serve(self, flow: str, name: str, mbps: float) -> None:
        self.served[flow][name] += mbps
        self._unmet[flow] -= mbps
        self._left[name] -= mbps

    def short_of_capacity(self) -> frozenset[str] | None:
        """Route what can be routed. None if that is all; else the flows of the minimum cut: together they want more
        than all interfaces that any of them accepts carry.
        """
        short: set[str] = set()
        for flow in self._unmet:
            while self._unmet[flow] > self._tiny:
                reached = self._augment(flow)
                if reached is not None:
                    short |= reached
                    break
        return frozenset(short) if short else None

    def _augment(self, flow: str) -> set[str] | None:
        """Move others' traffic so that more of ``flow`` is served; if that is impossible, all flows that compete with
        it, itself included.
        """
        # Which flow would move to an interface, and which interface a flow would leave for that.
        moves: dict[str, str] = {}
        leaves: dict[str, str] = {}
        reached, queue = {flow}, [flow]
        for mover in queue:
            for name in self._accepted[mover]:
                if name in moves:
                    continue
                moves[name] = mover
                if self._left[name] > self._tiny:
                    self._shift(flow, name, moves, leaves)
                    return None
                for other, parts in self.served.items():
                    if other not in reached and parts.get(name, 0.0) > self._tiny:
                        reached.add(other)
                        queue.append(other)
                        leaves[other] = name
        return reached

    def _shift(self, flow: str, last: str, moves: Mapping[str, str], leaves: Mapping[str, str]) -> None:
        """Serve more of ``flow`` along the alternating path that ends at the interface ``last``."""
        more = [(moves[last], last)]
        less = []
        while more[-1][0] != flow:
            name = leaves[more[-1][0]]
            less.append((more[-1][0], name))
            more.append((moves[name], name))
        moved = min(self._left[last], self._unmet[flow], *(self.served[mover][name] for mover, name in less))
        for mover, name in more:
            self.served[mover][name] += moved
        for mover, name in less:
            self.served[mover][name] -= moved
        self._left[last] -= moved
        self._unmet[flow] -= moved

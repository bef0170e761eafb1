"""Which changes of capacity deserve a new plan, and which flows it may move.

Rates follow every measurement, each slot; *paths* move only for a change that is large and lasts. Per link, two
cumulative sums of the logarithm of estimate over reference (the capacity that the plan in force was made with), one
up, one down:

    up   <- max(0, up   + (log(c / ref) - drift) dt),      down <- max(0, down + (-log(c / ref) - drift) dt)

(Page, "Continuous inspection schemes", Biometrika 41, 1954). ``drift`` is the change that is never worth a plan; the
alarm at ``threshold_s`` comes after threshold / (log ratio - drift) seconds, so the larger the change, the sooner.
Links that vanish or appear alarm at once: they have been through flap damping already.

A change of plan is minimal: only flows that the change *affects* are planned anew, and of those only the ones for
which the new multipath is better by ``gain`` (or whose old one is broken) move. All others keep their paths.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from hyroads.controller.core.errors import HyroadsError, PlanningError
from hyroads.controller.core.interference import Interference
from hyroads.controller.core.network import Network

FloatArray = NDArray[np.float64]
Paths = tuple[tuple[str, ...], ...]
"""A multipath as link ids."""


class ChangeError(HyroadsError):
    """A setting of the change detector is out of range."""


@dataclass(frozen=True, slots=True)
class ChangeSettings:
    """A change by a factor of 1.5 alarms after 0.8 s, a halving after 0.4 s, one by 15 % never (see docs)."""

    drift: float = 0.15
    threshold_s: float = 0.2
    gain: float = 0.1
    detour: float = 1.5

    def __post_init__(self) -> None:
        if not (self.drift > 0 and self.threshold_s > 0 and self.gain >= 0 and self.detour >= 1):
            raise ChangeError("a change detector needs drift and threshold_s > 0, gain >= 0, detour >= 1")


@dataclass(frozen=True, slots=True)
class Change:
    """A significant change of a link; a capacity of 0 means that the link is not there.

    ``contends_more`` says that links contend with it that did not before.
    """

    link: str
    before_mbps: float
    after_mbps: float
    contends_more: bool = False

    @property
    def is_worse(self) -> bool:
        """Less than before."""
        return self.after_mbps < self.before_mbps or self.contends_more


def merged(changes: Iterable[Change]) -> tuple[Change, ...]:
    """Of each link the last change for the worse and the last one for the better: those that matter to
    :func:`affected_flows`, which costs what the number of changes is.

    A link that came back to what it was has both: flows may have been planned meanwhile. One for the better counts from
    the least capacity that the link had, so that a link that appeared and grew has appeared.
    """
    found: dict[tuple[str, bool], Change] = {}
    for change in changes:
        key = change.link, change.is_worse
        least_mbps = (
            change.before_mbps if change.is_worse else min(change.before_mbps, found.get(key, change).before_mbps)
        )
        found[key] = replace(change, before_mbps=least_mbps)
    return tuple(found.values())


def domain_changes(network: Network, before: Interference) -> tuple[Change, ...]:
    """The links of a network whose interference domain was another one before."""
    if before is network.interference or before.link_count != len(network.links):
        return ()
    difference = (network.interference.contention_matrix() - before.contention_matrix()).tocsr()
    difference.eliminate_zeros()
    more = np.asarray(difference.maximum(0).sum(axis=1)).ravel() > 0
    changed = np.flatnonzero(np.diff(difference.indptr)).tolist()
    return tuple(
        Change(link.id, link.capacity_mbps, link.capacity_mbps, bool(more[i]))
        for i, link in ((i, network.links[i]) for i in changed)
        if link.capacity_mbps > 0
    )


@dataclass(frozen=True, eq=False)
class ChangeDetector:
    """Watches ``links``, in their order; immutable. It has nothing to compare with before :meth:`planned`.

    ``reference_mbps`` (n) is the capacity that the plan counts on (0: the link is not there), ``up_s`` and ``down_s``
    (n) are the two sums, ``time_s`` is when it last looked.
    """

    settings: ChangeSettings = field(default_factory=ChangeSettings)
    links: tuple[str, ...] = ()
    reference_mbps: FloatArray = field(default_factory=lambda: np.zeros(0))
    up_s: FloatArray = field(default_factory=lambda: np.zeros(0))
    down_s: FloatArray = field(default_factory=lambda: np.zeros(0))
    time_s: float = 0.0

    def planned(self, links: Sequence[str], capacity_mbps: FloatArray, now_s: float) -> ChangeDetector:
        """After a plan for other reasons: all references are what that plan counted on."""
        zero = np.zeros(len(links))
        return ChangeDetector(self.settings, tuple(links), np.array(capacity_mbps, dtype=float), zero, zero, now_s)

    def after(self, capacity_mbps: FloatArray, now_s: float) -> tuple[ChangeDetector, tuple[Change, ...]]:
        """The next detector and the significant changes; a changed link's new capacity becomes its reference.

        ``capacity_mbps`` (n): links with a capacity of 0 are gone. ``reference_mbps`` stays the same object as long as
        nothing changed.
        """
        there, was = capacity_mbps > 0, self.reference_mbps > 0
        both = there & was
        ratio = np.zeros(len(self.links))
        np.divide(capacity_mbps, self.reference_mbps, out=ratio, where=both)
        np.log(ratio, out=ratio, where=both)
        elapsed_s, drift = max(0.0, now_s - self.time_s), self.settings.drift
        up_s = np.where(both, np.maximum(0.0, self.up_s + (ratio - drift) * elapsed_s), 0.0)
        down_s = np.where(both, np.maximum(0.0, self.down_s + (-ratio - drift) * elapsed_s), 0.0)
        changed = (there != was) | (np.maximum(up_s, down_s) >= self.settings.threshold_s)
        if not changed.any():
            return replace(self, up_s=up_s, down_s=down_s, time_s=now_s), ()
        changes = tuple(
            Change(self.links[i], float(self.reference_mbps[i]), float(capacity_mbps[i]))
            for i in np.flatnonzero(changed).tolist()
        )
        reference = np.where(changed, capacity_mbps, self.reference_mbps)
        up_s[changed] = down_s[changed] = 0.0
        return replace(self, reference_mbps=reference, up_s=up_s, down_s=down_s, time_s=now_s), changes


@dataclass(frozen=True, slots=True)
class Carried:
    """A flow's ends, and the paths that carry it now."""

    source: str
    target: str
    paths: Paths


def affected_flows(
    network: Network,
    flows: Mapping[str, Carried],
    changes: Iterable[Change],
    settings: ChangeSettings = ChangeSettings(),
) -> tuple[str, ...]:
    """Flows that a set of changes may move, in their order; ``network`` has the capacities after the changes.

    A flow is affected by a link that got worse if one of its paths crosses it or contends with it; by one that got
    better, if the way through that link, taken alone, costs at most ``detour`` times the flow's own dearest path
    (costs are airtimes, sum of 1 / c). A link that appears also affects it if that way carries more than ``gain`` of
    what the flow's paths carry: no plan had a chance to add it to them.
    """
    index = network.link_index
    used = {link for carried in flows.values() for path in carried.paths for link in path}
    worse: set[str] = set()
    better: list[int] = []
    appeared: list[bool] = []
    for change in changes:
        if not change.is_worse and change.link in index:
            better.append(index[change.link])
            appeared.append(change.before_mbps <= 0)
        elif change.is_worse and change.link in used:
            worse.add(change.link)
            if change.link in index:
                worse |= {network.links[m].id for m in network.interference.domain(index[change.link]).tolist()}
    through, new = _Through.of(network, better) if better else None, np.array(appeared, dtype=bool)
    hit = []
    for flow, carried in flows.items():
        crossed = {link for path in carried.paths for link in path}
        gains = through is not None and through.attractive(carried, new, settings)
        if crossed & worse or not carried.paths or not crossed <= index.keys() or gains:
            hit.append(flow)
    return tuple(hit)


def minimal_replan(
    network: Network,
    flows: Mapping[str, Carried],
    affected: Iterable[str],
    *,
    plan: Callable[[str, str], Paths],
    value: Callable[[Paths], float],
    settings: ChangeSettings = ChangeSettings(),
) -> dict[str, Paths]:
    """The paths of all flows after a change: only affected ones may differ, and only for a gain.

    ``plan`` gives the best multipath from node to node in the changed network (``PlanningError``: none), ``value``
    what a multipath can carry there, Mb/s. A flow without a way left gets no paths.
    """
    result = {flow: carried.paths for flow, carried in flows.items()}
    for flow in affected:
        carried = flows[flow]
        alive = tuple(path for path in carried.paths if _is_alive(network, path))
        try:
            best = plan(carried.source, carried.target)
        except PlanningError:
            best = ()
        if frozenset(best) == frozenset(carried.paths):
            continue
        remaining = value(alive) if alive else 0.0
        moves = not alive or (bool(best) and value(best) > (1.0 + settings.gain) * remaining)
        result[flow] = best if moves else alive
    return result


def _is_alive(network: Network, path: Sequence[str]) -> bool:
    index = network.link_index
    return all(link in index and network.links[index[link]].capacity_mbps > 0 for link in path)


@dataclass(frozen=True, eq=False)
class _Through:
    """Least airtime from every node to the tails of some links, of the links (k), and from their heads.

    ``to_tail`` and ``from_head`` have a row (N) for each node that is a tail or a head; ``tail`` and ``head`` (k) say
    which of them is whose: many links begin at one node.
    """

    network: Network
    number: Mapping[str, int]
    to_tail: NDArray[np.float64]
    tail: NDArray[np.intp]
    cost: NDArray[np.float64]
    from_head: NDArray[np.float64]
    head: NDArray[np.intp]

    @staticmethod
    def of(network: Network, links: Sequence[int]) -> _Through:
        number = {node: i for i, node in enumerate(network.nodes)}
        best: dict[tuple[int, int], float] = {}
        for link in network.links:
            if link.capacity_mbps > 0:
                ends = (number[link.source], number[link.target])
                best[ends] = min(best.get(ends, math.inf), 1.0 / link.capacity_mbps)
        rows, columns = zip(*best, strict=True) if best else ((), ())
        graph = sparse.csr_matrix((list(best.values()), (rows, columns)), shape=(len(number), len(number)))
        tails, tail = np.unique([number[network.links[i].source] for i in links], return_inverse=True)
        heads, head = np.unique([number[network.links[i].target] for i in links], return_inverse=True)
        capacity = np.array([network.links[i].capacity_mbps for i in links], dtype=float)
        cost = np.divide(1.0, capacity, out=np.full_like(capacity, np.inf), where=capacity > 0)
        return _Through(
            network,
            number,
            csgraph.dijkstra(graph.T.tocsr(), indices=tails),
            tail,
            cost,
            csgraph.dijkstra(graph, indices=heads),
            head,
        )

    def attractive(self, carried: Carried, new: NDArray[np.bool_], settings: ChangeSettings) -> bool:
        """Whether a flow may gain by one of the links; ``new`` (k) are those that were not there before."""
        if carried.source not in self.number or carried.target not in self.number:
            return False
        before = self.to_tail[:, self.number[carried.source]][self.tail]
        ways = before + self.cost + self.from_head[:, self.number[carried.target]][self.head]
        costs = self._costs(carried.paths)
        most: float | FloatArray = settings.detour * max(costs, default=math.inf)
        if costs and settings.gain > 0:
            most = np.where(new, max(most, 1.0 / (settings.gain * sum(1.0 / cost for cost in costs))), most)
        return bool(np.any((ways <= most) & np.isfinite(ways)))

    def _costs(self, paths: Paths) -> list[float]:
        """Airtime of each path that lives."""
        index, links = self.network.link_index, self.network.links
        return [
            sum(1.0 / links[index[link]].capacity_mbps for link in path)
            for path in paths
            if _is_alive(self.network, path)
        ]

"""n-cast: copies of a flow on n paths that fail and fill up as independently as the network allows (Yap 2013, ch. 5).

Of all choices of n paths this takes the one that is best in this order: most different interfaces of the client (the
technologies of the last links), fewest links that two paths share, fewest pairs of links of two paths that contend,
least airtime. It is exact over the candidates: per interface the shortest paths (``shortest``, Yen 1971), and those
that keep out of the interference domains of each of these, where disjoint ones are to be found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from .errors import NoRouteError, PlanningError
from .interface_graph import FloatArray, Path, interface_graph, metric_of
from .network import Network
from .tree import n_shortest

DEFAULT_PER_INTERFACE = 6
MAX_CANDIDATES = 24
MAX_COPIES = 4

Rank = tuple[int, int, int, float]
"""Interfaces missing to n, shared links, contending pairs of links, airtime: smaller is better."""


@dataclass(frozen=True)
class NCast:
    """The paths of the copies (link indices), how good the choice is, and the share of packets that no copy brings."""

    paths: tuple[Path, ...]
    interfaces: tuple[str, ...]
    shared_links: int
    contending_pairs: int
    airtime_s_per_mb: float
    loss: float


def choose(network: Network, source: str, target: str, n: int, per_interface: int = DEFAULT_PER_INTERFACE) -> NCast:
    """The best ``n`` paths (fewer if there are fewer). Raises ``NoRouteError`` if there is none at all."""
    if not 1 <= n <= MAX_COPIES:
        raise PlanningError(f"{n} copies: expected a whole number from 1 to {MAX_COPIES}")
    found = candidates(network, source, target, per_interface)
    if not found:
        raise NoRouteError(f"no route from {source!r} to {target!r}")
    pairs = _Pairs(network, found)
    best = min(combinations(range(len(found)), min(n, len(found))), key=lambda chosen: (pairs.rank(chosen), chosen))
    paths = tuple(found[i] for i in best)
    _, shared, contending, airtime = pairs.rank(best)
    interfaces = tuple(network.links[path[-1]].technology for path in paths)
    return NCast(paths, interfaces, shared, contending, airtime, loss_of(network, paths))


def candidates(network: Network, source: str, target: str, per_interface: int) -> list[Path]:
    """Paths to choose from, by interface; at most ``MAX_CANDIDATES`` unless more are asked for per interface."""
    graph = interface_graph(network)
    start, end, capacities = graph.node(source), graph.node(target), network.capacities
    if start == end:
        raise PlanningError(f"source and target are the same node {source!r}")
    last = {index: network.links[index].technology for index in graph.ingress[end]}
    rows: list[list[Path]] = []
    for technology in dict.fromkeys(last.values()):
        alone = capacities.copy()
        alone[[index for index, other in last.items() if other != technology]] = 0.0
        rows.append(n_shortest(metric_of(graph, alone), start, end, per_interface))
        for path in [row[0] for row in rows if row]:
            apart = n_shortest(metric_of(graph, _outside(network, alone, path)), start, end, 1)
            rows[-1] += [other for other in apart if other not in rows[-1]]
    # The first of each interface come first, so that the bound takes from the ends.
    longest = max((len(row) for row in rows), default=0)
    mixed = [row[i] for i in range(longest) for row in rows if i < len(row)]
    return mixed[: max(MAX_CANDIDATES, per_interface)]


def _outside(network: Network, capacities_mbps: FloatArray, path: Path) -> FloatArray:
    left = capacities_mbps.copy()
    for link in path:
        left[network.interference.domain(link)] = 0.0
    return left


class _Pairs:
    """What two candidates have in common, for all pairs at once."""

    def __init__(self, network: Network, paths: Sequence[Path]) -> None:
        count = len(paths)
        self.technology = [network.links[path[-1]].technology for path in paths]
        self.airtime = [sum(1.0 / network.links[link].capacity_mbps for link in path) for path in paths]
        self.shared = np.zeros((count, count), dtype=int)
        self.contending = np.zeros((count, count), dtype=int)
        domains = {link: set(network.interference.domain(link).tolist()) for path in paths for link in path}
        for i, j in combinations(range(count), 2):
            first, second = set(paths[i]), set(paths[j])
            self.shared[i, j] = len(first & second)
            self.contending[i, j] = sum(len(domains[link] & second) for link in first) - len(first & second)

    def rank(self, chosen: Sequence[int]) -> Rank:
        pairs = list(combinations(sorted(chosen), 2))
        return (
            len(chosen) - len({self.technology[i] for i in chosen}),
            sum(int(self.shared[pair]) for pair in pairs),
            sum(int(self.contending[pair]) for pair in pairs),
            sum(self.airtime[i] for i in chosen),
        )


def loss_of(network: Network, paths: Iterable[Path]) -> float:
    """Share of packets that come by none of the paths, if links lose independently; a shared link loses for all.

    Inclusion and exclusion: P(none) = sum over sets S of paths of (-1)^|S| P(all links of S carry).
    """
    all_ = [frozenset(path) for path in paths]
    total = 0.0
    for size in range(len(all_) + 1):
        for some in combinations(all_, size):
            carry = np.prod([1.0 - network.links[link].loss for link in sorted(frozenset().union(*some))])
            total += (-1) ** size * float(carry)
    return max(0.0, total)


@dataclass(frozen=True, slots=True)
class Leg:
    """A stretch that one copy of each frame travels: of path ``path`` (a position) the links from ``start`` to before
    ``end``. There it is copied to each leg of ``onward``; without any, it has arrived.
    """

    path: int
    start: int
    end: int
    onward: tuple[Leg, ...] = ()

    def all(self) -> Iterator[Leg]:
        """This leg and those that follow."""
        yield self
        for leg in self.onward:
            yield from leg.all()


def copy_tree(network: Network, paths: Sequence[Sequence[str]], may_branch: Callable[[str], bool]) -> tuple[Leg, ...]:
    """How copies that go by several paths with the same two ends travel what these share only once.

    ``paths`` are different sequences of link ids. Paths with the same first links are one leg until the last node on
    these that ``may_branch``; from there on the same holds for what is left of them. The result has the legs that
    the source sends, in the order of the first path of each.
    """

    def ends_at(group: Sequence[int], end: int) -> str:
        return network.links[network.link_index[paths[group[0]][end - 1]]].target

    def parted(group: Sequence[int], at: int) -> list[list[int]]:
        by_link: dict[str, list[int]] = {}
        for index in group:
            by_link.setdefault(paths[index][at], []).append(index)
        return list(by_link.values())

    def legs(group: Sequence[int], start: int, shared: int) -> Iterator[Leg]:
        if len(group) == 1:
            yield Leg(group[0], start, len(paths[group[0]]))
            return
        while len({paths[index][shared] for index in group}) == 1:
            shared += 1
        end = next((at for at in range(shared, start, -1) if may_branch(ends_at(group, at))), None)
        if end is None:
            for part in parted(group, shared):
                yield from legs(part, start, shared)
        else:
            onward = (leg for part in parted(group, end) for leg in legs(part, end, end))
            yield Leg(group[0], start, end, tuple(onward))

    return tuple(legs(range(len(paths)), 0, 0)) if paths else ()

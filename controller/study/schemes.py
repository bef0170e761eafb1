"""The schemes that the studies compare: which paths each gives to a flow, and which rates these carry at most.

The schemes are those of EMPoWER (CoNEXT 2016, section 6) and of S. Henri's thesis (EPFL 9056, 2018, chapter 3):

    EMPoWER            the best multipath of the exploration tree (n = 5, as many paths as a node has technologies)
    SP                 the shortest path of the hybrid network
    SP-WiFi, MP-WiFi   SP and EMPoWER without the links that are not WiFi
    MP-mWiFi           EMPoWER with a second WiFi channel, of the first's capacities, in place of PLC
    MP-2bp             the two shortest paths
    MP-W+P             the shortest path over WiFi only and the shortest over PLC only
    SP brute force     the single path that carries most of all
    SP-w/o-CC, MP-w/o-CC  the paths of SP and EMPoWER; sources send without control (:mod:`.slots` says what arrives)
    cons               all paths at once, within the airtime of every link
    optimal            all paths at once, with the best schedule of links

Rates with control are exact: those of a linear program with a row for every link of the network (``schedules``).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from itertools import count

import numpy as np
from scipy import sparse

from hyroads.controller.core.errors import NoRouteError, PlanningError
from hyroads.controller.core.interface_graph import FloatArray, InterfaceGraph, Path, interface_graph
from hyroads.controller.core.interference import ExplicitInterference
from hyroads.controller.core.network import Network
from hyroads.controller.core.planner import Plan, Planner

from .schedules import Airtime, Carriers, best_rates, most_of_paths

SHORTEST = 5
"""n: how many shortest paths a vertex of the tree has."""
Pair = tuple[str, str]
"""Source and target of a flow."""


class Scheme(StrEnum):
    """See the module."""

    EMPOWER = "EMPoWER"
    SP = "SP"
    SP_WIFI = "SP-WiFi"
    MP_WIFI = "MP-WiFi"
    MP_MWIFI = "MP-mWiFi"
    MP_2BP = "MP-2bp"
    MP_WP = "MP-W+P"
    SP_BRUTE = "SP brute force"
    SP_WITHOUT = "SP-w/o-CC"
    MP_WITHOUT = "MP-w/o-CC"
    CONS = "cons"
    OPTIMAL = "optimal"


BOUNDS = (Scheme.CONS, Scheme.OPTIMAL)
"""What uses all paths."""
WITHOUT_CONTROL = (Scheme.SP_WITHOUT, Scheme.MP_WITHOUT)


def is_wifi(technology: str) -> bool:
    """Whether a technology of the studies' networks is a WiFi channel, by its name."""
    return technology.startswith("wifi")


def two_channels(network: Network, wifi: Callable[[str], bool] = is_wifi, *, everywhere: bool = False) -> Network:
    """The network with a second WiFi channel in place of power lines; the channels don't contend.

    The second channel has the capacities of the first. Nodes that have a power line have it instead of that, so every
    node has as many interfaces as before; ``everywhere`` gives it to nodes with WiFi only, too.
    """
    mine = [i for i, link in enumerate(network.links) if wifi(link.technology)]
    hybrid = {node for node, owned in network.technologies_of.items() if not all(map(wifi, owned))}
    second = [i for i in mine if everywhere or {network.links[i].source, network.links[i].target} <= hybrid]
    links = tuple(
        replace(link, id=f"{link.id}-{channel}", technology=f"{link.technology}-ch{channel}")
        for channel, chosen in ((1, mine), (2, second))
        for link in (network.links[i] for i in chosen)
    )
    contention = network.interference.contention_matrix()
    relations = [contention[chosen][:, chosen] for chosen in (mine, second)]
    interference = ExplicitInterference(links, sparse.csr_matrix(sparse.block_diag(relations)))
    return replace(network, links=links, interference=interference, name=f"{network.name}-two-channels")


@dataclass(frozen=True, eq=False)
class Part:
    """A network, or the part of one that some scheme may use: planner, graph and airtime, each made once.

    Links whose capacity in ``capacities_mbps``, float64[L], is 0 do not exist.
    """

    planner: Planner
    capacities_mbps: FloatArray
    depth: int

    @cached_property
    def graph(self) -> InterfaceGraph:
        """Nodes and links by number."""
        return interface_graph(self.planner.network, self.planner.clients_relay)

    @cached_property
    def airtime(self) -> Airtime:
        """Its links in classes."""
        return Airtime.of(self.planner.network, self.capacities_mbps)

    def plan(self, ends: Pair, shortest: int = SHORTEST, depth: int | None = None, arms: int = 1) -> Plan | None:
        """The plan of a flow; None without a route."""
        try:
            return self.planner.plan(
                *ends,
                shortest=shortest,
                depth=self.depth if depth is None else depth,
                arms=arms,
                capacities_mbps=self.capacities_mbps,
            )
        except NoRouteError:
            return None


@dataclass(frozen=True, eq=False)
class Routes:
    """Paths of flows, for each flow some (none without a route), and the network whose links they name."""

    part: Part
    paths: tuple[tuple[Path, ...], ...]


@dataclass(frozen=True, eq=False)
class Schemes:
    """All schemes on one network.

    ``clients_relay``: plain clients forward too, as every node does in the papers. ``wifi`` says which technologies are
    WiFi channels; all others count as power lines.
    """

    network: Network
    clients_relay: bool = True
    wifi: Callable[[str], bool] = is_wifi

    def routes(self, scheme: Scheme, flows: Sequence[Pair]) -> Routes:
        """The paths of a scheme; each flow is routed as if it were alone. Raises ``PlanningError`` for a bound."""
        part, choose = self._choosers.get(scheme, (None, None))
        if part is None or choose is None:
            raise PlanningError(f"{scheme} uses all paths, not some")
        return Routes(part, tuple(choose(part, ends) for ends in flows))

    def rates(self, scheme: Scheme, flows: Sequence[Pair]) -> FloatArray:
        """The best rates of flows between these ends with control, float64[F] in Mb/s; 0 without a route.

        One flow gets the most it can, several get what maximises sum log(1 + x), x in Mb/s. Without control rates need
        a simulation: these schemes get the rates of the same paths with control.
        """
        if scheme in BOUNDS:
            part = self.hybrid
            carriers = Carriers.of_links(part.airtime, part.graph, [self._numbers(ends) for ends in flows])
            return best_rates(part.airtime, carriers, scheduled=scheme is Scheme.OPTIMAL)
        routes = self.routes(scheme, flows)
        airtime = routes.part.airtime
        if len(flows) == 1:
            return np.array([most_of_paths(airtime, routes.paths[0])])
        return best_rates(airtime, Carriers.of_paths(airtime, routes.paths))

    def rate_mbps(self, scheme: Scheme, source: str, target: str) -> float:
        """The most of a flow that is alone."""
        return float(self.rates(scheme, [(source, target)])[0])

    def utility(self, scheme: Scheme, flows: Sequence[Pair]) -> float:
        """The greatest sum log(1 + x) of several flows."""
        return float(np.log1p(self.rates(scheme, flows)).sum())

    @cached_property
    def hybrid(self) -> Part:
        """The whole network."""
        planner = Planner(self.network, self.clients_relay)
        return Part(planner, self.network.capacities, _depth(self.network))

    @cached_property
    def only_wifi(self) -> Part:
        """Without the links that are not WiFi."""
        return self._only(self.wifi)

    @cached_property
    def two_channels(self) -> Part:
        """WiFi on two channels."""
        network = two_channels(self.network, self.wifi)
        return Part(Planner(network, self.clients_relay), network.capacities, self.hybrid.depth)

    @cached_property
    def power_lines(self) -> tuple[Part, ...]:
        """Each power line alone: none leads to another."""
        lines = [technology for technology in self.network.technologies if not self.wifi(technology)]
        return tuple(self._only(line.__eq__) for line in lines)

    def _only(self, wanted: Callable[[str], bool]) -> Part:
        capacities = np.where(
            [wanted(link.technology) for link in self.network.links], self.hybrid.capacities_mbps, 0.0
        )
        return Part(self.hybrid.planner, capacities, self.hybrid.depth)

    @cached_property
    def _choosers(self) -> dict[Scheme, tuple[Part, Callable[[Part, Pair], tuple[Path, ...]]]]:
        return {
            Scheme.EMPOWER: (self.hybrid, _multipath),
            Scheme.MP_WITHOUT: (self.hybrid, _multipath),
            Scheme.SP: (self.hybrid, _single),
            Scheme.SP_WITHOUT: (self.hybrid, _single),
            Scheme.SP_WIFI: (self.only_wifi, _single),
            Scheme.MP_WIFI: (self.only_wifi, _multipath),
            Scheme.MP_MWIFI: (self.two_channels, _multipath),
            Scheme.MP_2BP: (self.hybrid, _two_best),
            Scheme.MP_WP: (self.hybrid, self._apart),
            Scheme.SP_BRUTE: (self.hybrid, _fastest_single),
        }

    def _apart(self, _: Part, ends: Pair) -> tuple[Path, ...]:
        """The shortest path over WiFi only and that over one power line only."""
        found = [path for part in (self.only_wifi, *self.power_lines) for path in _single(part, ends)]
        return tuple(found)

    def _numbers(self, ends: Pair) -> tuple[int, int]:
        return self.hybrid.graph.node(ends[0]), self.hybrid.graph.node(ends[1])


def _depth(network: Network) -> int:
    """K: the most technologies that a node has. Two power lines of different panels are one to every node."""
    return max((len(owned) for owned in network.technologies_of.values()), default=1) or 1


def _multipath(part: Part, ends: Pair) -> tuple[Path, ...]:
    plan = part.plan(ends)
    return plan.multipath.links if plan else ()


def _single(part: Part, ends: Pair) -> tuple[Path, ...]:
    plan = part.plan(ends, shortest=1, depth=1)
    return (plan.single_path.links,) if plan else ()


def _two_best(part: Part, ends: Pair) -> tuple[Path, ...]:
    # A tree of depth 1 has the n shortest paths as its arms.
    plan = part.plan(ends, shortest=2, depth=1, arms=2)
    return tuple(arm.links[0] for arm in plan.arms) if plan else ()


def _fastest_single(part: Part, ends: Pair) -> tuple[Path, ...]:
    graph = part.graph
    path = fastest_path(part.airtime, graph, graph.node(ends[0]), graph.node(ends[1]))
    return (path,) if path else ()


def fastest_path(airtime: Airtime, graph: InterfaceGraph, source: int, target: int) -> Path:
    """The single path that carries most, with a row for every link of the network; empty without a route.

    Exact: partial paths, the least loaded first, are extended until one is at the target (A*, Hart, Nilsson and
    Raphael, 1968). The busy times of all domains are bounded from below by what is on the way already and the least
    that the rest adds to each domain. A partial path that loads no domain less than another one to the same node is
    dropped. Ties are broken by the order of exploration.
    """
    domains, onward = _link_loads(airtime, graph, source, target)
    rest = _least_loads(domains, onward, graph, target)
    if not np.isfinite(rest[:, source]).all():
        return ()
    order = count()
    load = np.zeros(len(domains))
    queue: list[tuple[float, int, int, Path, FloatArray]] = [
        (float((load + rest[:, source]).max()), next(order), source, (), load)
    ]
    settled: dict[int, list[FloatArray]] = {}
    while queue:
        _, _, node, path, load = heapq.heappop(queue)
        if node == target:
            return path
        if any((known <= load).all() for known in settled.get(node, ())):
            continue
        settled.setdefault(node, []).append(load)
        for link in onward.get(node, ()):
            end = graph.target[link]
            longer = load + domains[:, link]
            bound = float((longer + rest[:, end]).max())
            if np.isfinite(bound):
                heapq.heappush(queue, (bound, next(order), end, (*path, link), longer))
    return ()


def _link_loads(
    airtime: Airtime, graph: InterfaceGraph, source: int, target: int
) -> tuple[FloatArray, dict[int, list[int]]]:
    """What a Mb/s on each link costs each domain, float64[C, L] in s/Mb, and the links that lead on from each node."""
    loads = np.zeros((len(airtime.conflicts), len(airtime.class_of)))
    onward: dict[int, list[int]] = {}
    for link in np.flatnonzero(airtime.class_of >= 0).tolist():
        loads[:, link] = airtime.conflicts[:, airtime.class_of[link]] * airtime.seconds_per_mb[link]
        start, end = graph.source[link], graph.target[link]
        if (start == source or graph.relays[start]) and (end == target or graph.relays[end]) and start != target:
            onward.setdefault(start, []).append(link)
    return loads, onward


def _least_loads(loads: FloatArray, onward: dict[int, list[int]], graph: InterfaceGraph, target: int) -> FloatArray:
    """The least that the way from each node to the target adds to each domain, float64[C, N] (Bellman and Ford)."""
    rest = np.full((len(loads), len(graph.relays)), np.inf)
    rest[:, target] = 0.0
    links = [link for mine in onward.values() for link in mine]
    while True:
        before = rest.copy()
        for link in links:
            start = graph.source[link]
            np.minimum(rest[:, start], loads[:, link] + rest[:, graph.target[link]], out=rest[:, start])
        if np.array_equal(before, rest):
            return rest

"""The network as it can be planned with now: without what is down, with the capacities that plans count on. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, Generic, Self, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from hyroads.controller.core.errors import PlanningError
from hyroads.controller.core.flow_groups import GroupFlow, GroupPaths, group_paths
from hyroads.controller.core.frame_sizes import LINK_MTU
from hyroads.controller.core.interface_graph import Path
from hyroads.controller.core.interference import Interference
from hyroads.controller.core.network import Link, Network, Place
from hyroads.controller.core.planner import DEFAULT_ARMS, Planner
from hyroads.controller.model.state import State, TopologyContext
from hyroads.controller.ofp.intents import SwitchIntent, attached_only, default_places

from .intent_maker import IntentMaker

# Groups between so many ends, and in so many states, are remembered.
MAX_GROUPS = 1000
# So many networks are remembered, and of those with so many links.
REMEMBERED, REMEMBERED_LARGE, LARGE = 16, 3, 2000


def two_networks(network: Network, paths: Sequence[Path]) -> tuple[Path, ...]:
    """The first two paths without a common technology; empty if there are none.

    Each path of a private flow is what one network sees of it: an observer of either learns only its own part (Henri,
    EPFL thesis 9056, 2018, chapter 6).
    """
    for pair in combinations(paths, 2):
        first, second = ({network.links[link].technology for link in path} for path in pair)
        if not first & second:
            return pair
    return ()


def costly_first(network: Network, paths: tuple[Path, ...]) -> tuple[Path, ...]:
    """The paths with those first that use a metered technology: a split with a cost share spares the first path."""

    def is_free(path: Path) -> bool:
        return not any(network.links[link].technology in network.metered for link in path)

    return tuple(sorted(paths, key=is_free))


def single_technology_paths(network: Network, source: str, target: str) -> tuple[Path, ...]:
    """For every technology the shortest path that uses no other."""
    found = []
    for technology in network.technologies:
        others = (link.id for link in network.links if link.technology != technology)
        alone = Planner(network.with_capacities(dict.fromkeys(others, 0.0)))
        found.append(_shortest(alone, source, target))
    return tuple(path for path in found if path)


def _shortest(planner: Planner, source: str, target: str) -> Path:
    """The shortest path; empty if there is no way."""
    try:
        return planner.plan(source, target, shortest=1, depth=1, arms=1).single_path.links
    except PlanningError:
        return ()


@dataclass(frozen=True, eq=False)
class Basis:
    """What a live network follows from: links that are down, capacities by link (None: the file's), interference."""

    dead: frozenset[str]
    capacity_mbps: tuple[float, ...] | None = None
    interference: Interference | None = None
    places: Mapping[str, Place | None] = field(default_factory=dict)
    link_mtu: int = LINK_MTU
    """Payload in bytes that every link carries."""

    def is_like(self, other: Basis) -> bool:
        """Whether both give the same network."""
        same = self.dead == other.dead and self.capacity_mbps == other.capacity_mbps
        same &= self.link_mtu == other.link_mtu
        return same and self.interference is other.interference and self.places == other.places

    def has_only_lost(self, before: Basis) -> bool:
        """Whether this is the network of another one without some links."""
        same = self.capacity_mbps == before.capacity_mbps and self.interference is before.interference
        same &= self.link_mtu == before.link_mtu
        return same and self.places == before.places and self.dead >= before.dead


T = TypeVar("T")


class _Cached(Generic[T]):
    """As ``functools.cached_property``, which in Python 3.11 has one lock for all instances: while a thread works
    something out for one network, nobody waits for it with another one. What two work out at once is the same.
    """

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make, self.__doc__ = make, make.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, live: None, owner: type) -> Self: ...

    @overload
    def __get__(self, live: LiveNetwork, owner: type) -> T: ...

    def __get__(self, live: LiveNetwork | None, owner: type) -> Self | T:
        if live is None:
            return self
        made: T = live.__dict__.setdefault(self._name, self._make(live))
        return made


@dataclass
class LiveNetwork:
    """The network without what is down; caches what depends on nothing else."""

    context: TopologyContext
    basis: Basis
    _arms: dict[tuple[str, str], tuple[tuple[Path, ...], ...]] = field(default_factory=dict)
    _one_technology: dict[tuple[str, str], tuple[Path, ...]] = field(default_factory=dict)
    _through: dict[tuple[str, str, frozenset[str]], tuple[Path, ...]] = field(default_factory=dict)
    _single: dict[tuple[str, str], Path] = field(default_factory=dict)
    _groups: dict[tuple[GroupFlow, ...], GroupPaths] = field(default_factory=dict)
    intent_maker: IntentMaker | None = None
    """Shared by the networks of one cache."""
    _more: tuple[Network, frozenset[str]] | None = None
    """The network of another one that has some more links, and these."""
    _known: Mapping[tuple[str, str], Path] | None = None
    """Shortest paths in that one, until they are looked at."""

    @property
    def maker(self) -> IntentMaker:
        """Makes intents; those of networks that have it in common are shared."""
        if self.intent_maker is None:
            self.intent_maker = IntentMaker(self.context)
        return self.intent_maker

    @_Cached
    def network(self) -> Network:
        """Dead links have capacity 0; a plain client keeps only the links to where it is attached."""
        network, capacities, zero = self.context.network, self.basis.capacity_mbps, dict.fromkeys(self.basis.dead, 0.0)
        if self._more is not None:
            return self._more[0].with_capacities(zero)
        if self.basis.interference is not None:
            network = replace(network, interference=self.basis.interference)
        if capacities is not None:
            network = network.with_capacities({link.id: c for link, c in zip(network.links, capacities, strict=True)})
        return attached_only(network, self.context.addressing, self.places).with_capacities(zero)

    @_Cached
    def single(self) -> Network:
        """The network that single paths and broadcasts take: of several pairs of links to a region one alone."""
        view = self.context.view
        return (
            self.network
            if view is None
            else self.network.with_capacities(dict.fromkeys(view.unused(self.basis.dead), 0.0))
        )

    @_Cached
    def plannable(self) -> Network:
        """The network that flows are planned in: of a region's controller, links that begin in the region."""
        if self.context.view is None:
            return self.network
        own = self.context.own
        return self.network.with_capacities({link.id: 0.0 for link in self.network.links if link.source not in own})

    def inherit(self, last: LiveNetwork) -> None:
        """Take over, when it is needed, what is known to be the same in a network that has some more links."""
        network = last.__dict__.get("network")
        if network is not None:
            self._more, self._known = (network, self.basis.dead - last.basis.dead), last._single

    @property
    def has_inherited(self) -> bool:
        """Whether most of it is known from a network that has some more links."""
        return self._more is not None

    def _take_over(self) -> None:
        """Shortest paths that are still such: without the links that are gone, all others cost as much or more. The
        cost of a path changes with other links where it may stay on a technology (``core.interface_graph``), and with
        the unit of all weights.
        """
        known, self._known = self._known, None
        if known is None or self._more is None:
            return
        network, more = self.network, self._more[0]
        now, before = self.capacities, more.capacities
        technology = np.array(network.incidence.technology, dtype=int)
        are_left = np.array_equal(np.unique(technology[now > 0]), np.unique(technology[before > 0]))
        if not are_left or now.max(initial=0.0) != before.max(initial=0.0):
            return
        source = network.incidence.source
        gone = {network.link_index[link] for link in self._more[1]}
        dearer = {source[link] for link in gone}
        # At once: another thread may be planning in the other network.
        for ends, path in list(known.items()):
            if gone.isdisjoint(path) and dearer.isdisjoint(source[link] for link in path[1:]):
                self._single.setdefault(ends, path)

    @_Cached
    def places(self) -> Mapping[str, Place]:
        """Where plain clients are."""
        places = {**default_places(self.context.addressing), **self.basis.places}
        return {client: place for client, place in places.items() if place is not None}

    @property
    def capacities(self) -> NDArray[np.float64]:
        """In the order of the network's links, Mb/s."""
        return self.network.capacities

    def lives(self, link: str) -> bool:
        """Whether the network has a link, and it carries something."""
        place = self.network.link_index.get(link)
        return place is not None and bool(self.network.capacities[place] > 0)

    @_Cached
    def is_down(self) -> NDArray[np.bool_]:
        """Whether each of the network's links is down, as far as is known."""
        index, found = self.network.link_index, np.zeros(len(self.network.links), dtype=bool)
        found[[index[link] for link in self.basis.dead if link in index]] = True
        return found

    @_Cached
    def departures(self) -> Mapping[str, tuple[Place, ...]]:
        """By node: the places to which it can send now."""
        return _grouped((link.source, Place(link.target, link.technology)) for link in self._living)

    @_Cached
    def arrivals(self) -> Mapping[str, tuple[Place, ...]]:
        """By node: the places that can send to it now."""
        return _grouped((link.target, Place(link.source, link.technology)) for link in self._living)

    @property
    def _living(self) -> Iterator[Link]:
        return (link for link in self.network.links if link.capacity_mbps > 0)

    @_Cached
    def planner(self) -> Planner:
        """The planner of this network."""
        return Planner(self.plannable)

    def multipath(self, source: str, target: str) -> tuple[Path, ...]:
        """Paths of the best branch; empty if there is no way."""
        return self._best(source, target, 1)[0]

    def arms(self, source: str, target: str) -> tuple[tuple[Path, ...], ...]:
        """The best multipaths, best first; one without paths if there is no way."""
        return self._best(source, target, DEFAULT_ARMS)

    def through(self, source: str, target: str, closed: frozenset[str]) -> tuple[Path, ...]:
        """Paths of the best branch without some links; empty if there is no way."""
        key = (source, target, closed)
        if key not in self._through:
            around = self.planner
            if closed:
                around = Planner(self.plannable.with_capacities(dict.fromkeys(closed, 0.0)))
            try:
                self._through[key] = around.plan(source, target, arms=1).arms[0].links
            except PlanningError:
                self._through[key] = ()
        return self._through[key]

    def _best(self, source: str, target: str, count: int) -> tuple[tuple[Path, ...], ...]:
        key = (source, target)
        known = self._arms.get(key, ())
        if len(known) < count and (known != ((),) or count == 1):
            try:
                known = tuple(arm.links for arm in self.planner.plan(source, target, arms=count).arms)
            except PlanningError:
                known = ((),)
            self._arms[key] = known
        return known[:count]

    def apart(self, flows: tuple[GroupFlow, ...]) -> GroupPaths:
        """Paths of the flows of a group; the last few groups are remembered, for all connections between their ends."""
        found = self._groups.get(flows)
        if found is None:
            if len(self._groups) >= MAX_GROUPS:
                self._groups.clear()
            found = self._groups[flows] = group_paths(self.planner, flows)
        return found

    def remembers(self, source: str, target: str, *, alone: bool) -> bool:
        """Whether :meth:`multipath` (``alone``: :meth:`single_path`) and :attr:`intents` are known already."""
        known = self._known is None and (source, target) in self._single if alone else (source, target) in self._arms
        return known and {"planner", "intents"} <= self.__dict__.keys()

    def private_paths(self, source: str, target: str) -> tuple[Path, ...]:
        """Two paths without a common technology; empty if there are none."""
        pair = two_networks(self.network, self.multipath(source, target))
        return pair or two_networks(self.network, self._alone(source, target))

    def latency_paths(self, source: str, target: str) -> tuple[Path, ...]:
        """One path per technology; those of the best multipath where there are not two of these."""
        alone = self._alone(source, target)
        return alone if len(alone) > 1 else tuple(dict.fromkeys((*alone, *self.multipath(source, target))))

    def _alone(self, source: str, target: str) -> tuple[Path, ...]:
        key = (source, target)
        if key not in self._one_technology:
            self._one_technology[key] = single_technology_paths(self.plannable, source, target)
        return self._one_technology[key]

    def single_path(self, source: str, target: str) -> Path:
        """Shortest path; empty if there is no way."""
        key = (source, target)
        if self._known is not None:
            self._take_over()
        if key not in self._single:
            self._single[key] = _shortest(self.planner, source, target)
        return self._single[key]

    @_Cached
    def intents(self) -> dict[str, SwitchIntent]:
        """What every switch shall do besides classifying flows; without routes where these are made on demand."""
        return self.maker.intents(self.single, self.places, self.basis.link_mtu)


def _grouped(pairs: Iterable[tuple[str, Place]]) -> dict[str, tuple[Place, ...]]:
    found: dict[str, dict[Place, None]] = {}
    for node, place in pairs:
        found.setdefault(node, {})[place] = None
    return {node: tuple(places) for node, places in found.items()}


class Cache:
    """The last few live networks (``size``; by default as many as fit), so that a link that flaps is planned once."""

    def __init__(self, context: TopologyContext, size: int | None = None) -> None:
        self._context = context
        self._size = (
            size if size is not None else REMEMBERED_LARGE if len(context.network.links) >= LARGE else REMEMBERED
        )
        self._maker = IntentMaker(context)
        self._declared = tuple(link.capacity_mbps for link in context.network.links)
        self._known: list[LiveNetwork] = []
        self._made_of: tuple[object, ...] = ()
        self._made_for: State | None = None
        self._last_down: frozenset[str] = frozenset()

    def _down(self, state: State) -> frozenset[str]:
        """Links that are down; only those of which something else is said than last time are looked at."""
        network, last = self._context.network, self._made_for
        is_same = last is not None and all(
            now is before for now, before in zip(self._presences(state), self._presences(last), strict=True)
        )
        if last is None or not is_same:
            links = network.links
            return frozenset(link.id for link in links if state.link_down(self._context, link) is not None)
        changed = (state.silent ^ last.silent) | (state.held ^ last.held)
        named = [network.links[network.link_index[link]] for link in changed if link in network.link_index]
        return (self._last_down - changed) | {link.id for link in named if state.link_down(self._context, link)}

    def _presences(self, state: State) -> tuple[object, ...]:
        """The parts of a state that, besides hello frames, decide which links are down."""
        return (state.switches, state.ports, *((state.agents,) if self._context.seals_links else ()))

    def live(self, state: State) -> LiveNetwork:
        """The live network of a state."""
        nodes, dead = (*self._presences(state), state.places), (state.silent, state.held)
        made_of = (*nodes, *dead, state.capacity_mbps, state.interference, state.readings)
        if self._made_of and all(now is before for now, before in zip(made_of, self._made_of, strict=True)):
            return self._known[0]
        down = self._down(state)
        self._made_of, self._made_for, self._last_down = made_of, state, down
        # Measured to be what the file says: what was planned with the file is planned with this.
        capacity_mbps = None if state.capacity_mbps == self._declared else state.capacity_mbps
        link_mtu = state.link_mtu(self._context)
        basis = Basis(down, capacity_mbps, state.interference, state.places, link_mtu)
        found = next((live for live in self._known if live.basis.is_like(basis)), None)
        if found is None:
            found = LiveNetwork(self._context, basis, intent_maker=self._maker)
            # The last one has most in common with it.
            for last in reversed([live for live in self._known if basis.has_only_lost(live.basis)]):
                found.inherit(last)
        self._known = [found, *(live for live in self._known if live is not found)][: self._size]
        return found

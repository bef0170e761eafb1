"""What a manager wants of a client's flows -> which paths are configured, which carry packets, and how. Pure.

A flow of a client is *confined*: of its paths only those through known places are configured, and of these only those
through carrying places have a rate. A way from one to the other is taken in steps (:func:`next_step`), each of which is
brought into force and confirmed before the next: receivers are ready before senders change
(docs/explanation/services.md, section 3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from hyroads.controller.core.addressing import PathName
from hyroads.controller.core.network import FlowSpec, Network, Place
from hyroads.controller.core.services.mobility import Wanted

Way = Place | PathName
"""A place that all paths through it stand for, or one path by itself."""


@dataclass(frozen=True, slots=True)
class Confined:
    """The ways of some flows. ``known``: both ends are configured for them; ``carry``: packets go by them, each by one
    of them, or by all with ``copies``. Receivers wait up to ``hold_s`` for what is in flight by ``waits``, even if it
    is silent.
    """

    known: tuple[Way, ...]
    carry: tuple[Way, ...]
    copies: bool = False
    waits: tuple[Way, ...] = ()
    hold_s: float = 0.0

    @property
    def stays(self) -> Place | None:
        """The place to go on with if nobody remembers where this was going; None: no single one."""
        places = [way for way in self.carry if isinstance(way, Place)]
        # The last one is where a handover leads to; before it has led there, packets go by the first alone.
        return places[-1] if places else None

    @property
    def is_of_paths(self) -> bool:
        """Whether its ways are paths, not places."""
        return any(not isinstance(way, Place) for way in self.known)

    @property
    def is_moving(self) -> bool:
        """Whether this is a step on the way to something else."""
        return self.copies or bool(self.waits) or set(self.known) != set(self.carry)


Key = tuple[str, str | None]
"""A client and one of its flows, or all of its flows for which nothing else is said."""
Confinements = Mapping[Key, Confined]
Lanes = tuple[tuple[int, ...], ...]
"""Per lane the positions of its paths."""


def next_step(now: Confined | None, wanted: Wanted) -> Confined:
    """What to bring into force next; once that is confirmed and equal to ``now``, ``wanted`` is in force.

    Where packets take other ways while some are in flight, receivers learn first what to wait for.
    """
    moves = now is not None and (set(now.carry), now.copies) != (set(wanted.carry), wanted.copies)
    if now is None or not moves or wanted.hold_s is None:
        if now is None or moves or not wanted.hold_s:
            return Confined(wanted.known, wanted.carry, wanted.copies)
        stays = tuple(way for way in now.waits if way in wanted.known)
        return Confined(wanted.known, wanted.carry, wanted.copies, stays, wanted.hold_s if stays else 0.0)
    known = tuple(dict.fromkeys((*now.known, *wanted.known)))
    waits = tuple(way for way in now.carry if way in wanted.known)
    listening = Confined(known, now.carry, now.copies, waits, wanted.hold_s)
    sending = Confined(wanted.known, wanted.carry, wanted.copies, waits, wanted.hold_s)
    return sending if now == listening else listening


def reached(now: Confined | None, wanted: Wanted) -> bool:
    """Whether nothing is left to be done but to confirm ``now``."""
    return now is not None and next_step(now, wanted) == now


def drained(now: Confined) -> Confined:
    """Nothing is in flight by the ways that were waited for."""
    return replace(now, waits=(), hold_s=0.0)


@dataclass(frozen=True, slots=True)
class Ends:
    """What both ends of a flow are confined to; None: nothing is said of that end."""

    source: Confined | None = None
    target: Confined | None = None

    def __bool__(self) -> bool:
        return self.source is not None or self.target is not None

    @property
    def is_of_paths(self) -> bool:
        """Whether some ways are paths, not places."""
        return any(end is not None and end.is_of_paths for end in (self.source, self.target))

    @property
    def is_moving(self) -> bool:
        """Whether rates and split follow the handover alone for now."""
        return any(end is not None and end.is_moving for end in (self.source, self.target))

    @property
    def copies(self) -> bool:
        """Whether each packet goes by all paths that carry."""
        return any(end is not None and end.copies for end in (self.source, self.target))

    @property
    def hold_s(self) -> float:
        """How long receivers wait for what is in flight."""
        return max(end.hold_s if end is not None and end.waits else 0.0 for end in (self.source, self.target))

    def corridors(self) -> list[Corridor]:
        """All combinations of a known way at the source and one at the target."""
        sides = [(None,) if end is None else end.known for end in (self.source, self.target)]
        return [Corridor(*pair) for pair in product(*sides)]

    def carries(self, network: Network, path: PathName) -> bool:
        """Whether packets go by a path."""
        ways = self.ways(network, path)
        return all(end is None or way in end.carry for end, way in zip((self.source, self.target), ways, strict=True))

    def ways(self, network: Network, path: PathName) -> tuple[Way | None, Way | None]:
        """By which ways of its two ends a path leads; None where nothing is said."""
        ends, places = (self.source, self.target), (first_place(network, path), last_place(network, path))
        found = [
            None if end is None else path if path in end.known else place
            for end, place in zip(ends, places, strict=True)
        ]
        return found[0], found[1]

    def waits(self, network: Network, path: PathName) -> bool:
        """Whether receivers wait for what is in flight by a path, even if it is silent."""
        ways = [() if end is None else end.waits for end in (self.source, self.target)]
        places = (first_place(network, path), last_place(network, path))
        return any(path in mine or place in mine for mine, place in zip(ways, places, strict=True))


NOWHERE = Ends()
"""Nothing is said of either end."""


@dataclass(frozen=True, slots=True)
class Corridor:
    """Where paths may begin and end; None: anywhere."""

    first: Way | None = None
    last: Way | None = None

    def has(self, network: Network, path: PathName) -> bool:
        """Whether a path leads through it."""
        return _fits(self.first, path, first_place(network, path)) and _fits(self.last, path, last_place(network, path))

    @property
    def path(self) -> PathName | None:
        """The one path that it is, if it is one."""
        return next((way for way in (self.first, self.last) if isinstance(way, tuple)), None)

    def closed(self, network: Network, source: str, target: str) -> frozenset[str]:
        """Links at the ends that lead elsewhere: without them every path leads through."""
        found = set()
        for link in network.links:
            place = Place(link.target, link.technology)
            if link.source == source and isinstance(self.first, Place) and place != self.first:
                found.add(link.id)
            place = Place(link.source, link.technology)
            if link.target == target and isinstance(self.last, Place) and place != self.last:
                found.add(link.id)
        return frozenset(found)


def _fits(way: Way | None, path: PathName, place: Place) -> bool:
    return way is None or way in (path, place)


def first_place(network: Network, path: PathName) -> Place:
    """Where a path's source is attached, as far as this path goes."""
    link = network.links[network.link_index[path[0]]]
    return Place(link.target, link.technology)


def last_place(network: Network, path: PathName) -> Place:
    """Where a path's target is attached, as far as this path goes."""
    link = network.links[network.link_index[path[-1]]]
    return Place(link.source, link.technology)


def ends_of(spec: FlowSpec, confined: Confinements) -> Ends:
    """What is said of the two ends of a flow: of this flow, else of all of the client."""
    if not confined:
        return NOWHERE
    found = (confined.get((node, spec.id), confined.get((node, None))) for node in (spec.source, spec.target))
    return Ends(*found)


def places_of(network: Network, client: str) -> tuple[Place, ...]:
    """Where a client can be, by its links."""
    here = (Place(link.source, link.technology) for link in network.links if link.target == client)
    there = (Place(link.target, link.technology) for link in network.links if link.source == client)
    return tuple(dict.fromkeys((*here, *there)))


def links_at(network: Network, client: str, place: Place) -> tuple[str, ...]:
    """The links between a client and a place, both directions."""
    ends = ((client, place.node), (place.node, client))
    of_place = (link for link in network.links if link.technology == place.technology)
    return tuple(link.id for link in of_place if (link.source, link.target) in ends)


@dataclass(frozen=True, slots=True)
class Use:
    """What a confined flow's paths are used for, by their positions. The others are paused."""

    carry: tuple[int, ...]
    copies: bool = False
    waits: tuple[int, ...] = ()
    hold_ms: int = 0
    is_moving: bool = False

    @classmethod
    def of(cls, network: Network, paths: Sequence[PathName], ends: Ends) -> Use:
        """How a flow with these ends uses its paths. If none of those that shall carry is live, the others do."""
        carry = tuple(i for i, path in enumerate(paths) if ends.carries(network, path))
        if ends.copies:
            # One path by each way: more copies of a packet would cost airtime and bring nothing.
            first: dict[tuple[Way | None, Way | None], int] = {}
            for i in carry:
                first.setdefault(ends.ways(network, paths[i]), i)
            carry = tuple(first.values())
        waits = tuple(i for i, path in enumerate(paths) if ends.waits(network, path))
        hold_ms = round(ends.hold_s * 1e3) if waits else 0
        return cls(carry or tuple(range(len(paths))), ends.copies, waits, hold_ms, ends.is_moving)


def lanes(use: Use | None, path_count: int) -> Lanes:
    """How rates are given to paths: each lane has one rate and one or more paths, by position.

    Each path that carries is a lane of its own; with copies all of them are one, and each path has the whole rate.
    """
    used = tuple(range(path_count)) if use is None else use.carry
    return (used,) if use is not None and use.copies else tuple((index,) for index in used)


def by_path(rates: Sequence[float], of: Lanes, path_count: int) -> tuple[float, ...]:
    """Rates of lanes -> rates of paths; a path without a lane is paused."""
    result = [0.0] * path_count
    for rate, lane in zip(rates, of, strict=True):
        for position in lane:
            result[position] = rate
    return tuple(result)

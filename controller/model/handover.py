"""How a client's flows use their paths during a handover or n-cast. Pure.

A mobility manager says by which places or paths a client's flows go. Of the paths of such a *constrained* flow, only
those through known places are configured, and only those through carrying places have a rate. A change is made in steps
(:func:`next_step`). Each step is confirmed before the next one begins, and receivers are configured before senders
change (docs/reference/handovers.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from hyroads.controller.core.addressing import PathName
from hyroads.controller.core.ncast import Leg, copy_tree
from hyroads.controller.core.network import FlowSpec, Network, Place
from hyroads.controller.core.services.mobility import DesiredState

Via = Place | PathName
"""A place, which stands for all paths through it, or a single path."""


@dataclass(frozen=True, slots=True)
class Constrained:
    """Places or paths that some flows use. ``known``: both ends are configured for them. ``carry``: packets go by them,
    each packet by one of them, or by all of them with ``copies``. Receivers wait up to ``hold_s`` seconds for packets
    in flight by ``waits``, even if nothing arrives there.
    """

    known: tuple[Via, ...]
    carry: tuple[Via, ...]
    copies: bool = False
    waits: tuple[Via, ...] = ()
    hold_s: float = 0.0

    @property
    def stays(self) -> Place | None:
        """The place to go on with if nobody remembers where this was going; None: no single one."""
        places = [via for via in self.carry if isinstance(via, Place)]
        # The last one is where a handover leads to; before it has led there, packets go by the first alone.
        return places[-1] if places else None

    @property
    def is_of_paths(self) -> bool:
        """Whether it names paths, not places."""
        return any(not isinstance(via, Place) for via in self.known)

    @property
    def is_moving(self) -> bool:
        """Whether this is an intermediate step of a change."""
        return self.copies or bool(self.waits) or set(self.known) != set(self.carry)


Key = tuple[str, str | None]
"""A client and one of its flows, or all of its flows for which nothing else is said."""
Constraints = Mapping[Key, Constrained]
PathGroups = tuple[tuple[int, ...], ...]
"""Per group the positions of its paths."""


def next_step(now: Constrained | None, wanted: DesiredState) -> Constrained:
    """What to bring into force next; once that is confirmed and equal to ``now``, ``wanted`` is in force.

    If packets are in flight while the paths change, receivers are first told what to wait for.
    """
    moves = now is not None and (set(now.carry), now.copies) != (set(wanted.carry), wanted.copies)
    if now is None or not moves or wanted.hold_s is None:
        if now is None or moves or not wanted.hold_s:
            return Constrained(wanted.known, wanted.carry, wanted.copies)
        stays = tuple(via for via in now.waits if via in wanted.known)
        return Constrained(wanted.known, wanted.carry, wanted.copies, stays, wanted.hold_s if stays else 0.0)
    known = tuple(dict.fromkeys((*now.known, *wanted.known)))
    waits = tuple(via for via in now.carry if via in wanted.known)
    listening = Constrained(known, now.carry, now.copies, waits, wanted.hold_s)
    sending = Constrained(wanted.known, wanted.carry, wanted.copies, waits, wanted.hold_s)
    return sending if now == listening else listening


def reached(now: Constrained | None, wanted: DesiredState) -> bool:
    """Whether nothing is left to be done but to confirm ``now``."""
    return now is not None and next_step(now, wanted) == now


def drained(now: Constrained) -> Constrained:
    """The constraint once nothing is in flight any more."""
    return replace(now, waits=(), hold_s=0.0)


@dataclass(frozen=True, slots=True)
class Ends:
    """The constraints of a flow's two ends; None: that end is not constrained."""

    source: Constrained | None = None
    target: Constrained | None = None

    def __bool__(self) -> bool:
        return self.source is not None or self.target is not None

    @property
    def is_of_paths(self) -> bool:
        """Whether one of the ends names paths, not places."""
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

    def constraints(self) -> list[PathConstraint]:
        """All combinations of what is known at the source and at the target."""
        sides = [(None,) if end is None else end.known for end in (self.source, self.target)]
        return [PathConstraint(*pair) for pair in product(*sides)]

    def carries(self, network: Network, path: PathName) -> bool:
        """Whether packets go by a path."""
        vias = self.vias(network, path)
        return all(end is None or via in end.carry for end, via in zip((self.source, self.target), vias, strict=True))

    def vias(self, network: Network, path: PathName) -> tuple[Via | None, Via | None]:
        """The place or path, per end, that a path belongs to; None where an end is not constrained."""
        ends, places = (self.source, self.target), (first_place(network, path), last_place(network, path))
        found = [
            None if end is None else path if path in end.known else place
            for end, place in zip(ends, places, strict=True)
        ]
        return found[0], found[1]

    def waits(self, network: Network, path: PathName) -> bool:
        """Whether receivers wait for what is in flight by a path, even if it is silent."""
        vias = [() if end is None else end.waits for end in (self.source, self.target)]
        places = (first_place(network, path), last_place(network, path))
        return any(path in mine or place in mine for mine, place in zip(vias, places, strict=True))


NOWHERE = Ends()
"""Neither end is constrained."""


@dataclass(frozen=True, slots=True)
class PathConstraint:
    """Where paths may begin and end; None: anywhere."""

    first: Via | None = None
    last: Via | None = None

    def has(self, network: Network, path: PathName) -> bool:
        """Whether a path leads through it."""
        return _fits(self.first, path, first_place(network, path)) and _fits(self.last, path, last_place(network, path))

    @property
    def path(self) -> PathName | None:
        """The one path that it is, if it is one."""
        return next((via for via in (self.first, self.last) if isinstance(via, tuple)), None)

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


def _fits(via: Via | None, path: PathName, place: Place) -> bool:
    return via is None or via in (path, place)


def first_place(network: Network, path: PathName) -> Place:
    """Where a path's source is attached, as far as this path goes."""
    link = network.links[network.link_index[path[0]]]
    return Place(link.target, link.technology)


def last_place(network: Network, path: PathName) -> Place:
    """Where a path's target is attached, as far as this path goes."""
    link = network.links[network.link_index[path[-1]]]
    return Place(link.source, link.technology)


def ends_of(spec: FlowSpec, constrained: Constraints) -> Ends:
    """What is said of the two ends of a flow: of this flow, else of all of the client."""
    if not constrained:
        return NOWHERE
    found = (constrained.get((node, spec.id), constrained.get((node, None))) for node in (spec.source, spec.target))
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
    """What a constrained flow's paths are used for, by their positions. The others are paused."""

    carry: tuple[int, ...]
    copies: bool = False
    waits: tuple[int, ...] = ()
    hold_ms: int = 0
    is_moving: bool = False
    legs: tuple[Leg, ...] = ()
    """How copies travel, if several of them share their first links; empty: each goes by a path of its own."""

    @classmethod
    def of(
        cls,
        network: Network,
        paths: Sequence[PathName],
        ends: Ends,
        may_branch: Callable[[str], bool] = lambda _: False,
    ) -> Use:
        """How a flow with these ends uses its paths. If none of those that shall carry is live, the others do. Copies
        of an n-cast branch at nodes that ``may_branch``; those of a handover are sent for too short a time.
        """
        carry = tuple(i for i, path in enumerate(paths) if ends.carries(network, path))
        if ends.copies:
            # One path by each via: more copies of a packet would cost airtime and bring nothing.
            first: dict[tuple[Via | None, Via | None], int] = {}
            for i in carry:
                first.setdefault(ends.vias(network, paths[i]), i)
            carry = tuple(first.values())
        waits = tuple(i for i, path in enumerate(paths) if ends.waits(network, path))
        hold_ms = round(ends.hold_s * 1e3) if waits else 0
        carry = carry or tuple(range(len(paths)))
        legs = _legs(network, paths, carry, may_branch) if ends.copies and ends.is_of_paths else ()
        return cls(carry, ends.copies, waits, hold_ms, ends.is_moving, legs)


def _legs(
    network: Network, paths: Sequence[PathName], carry: Sequence[int], may_branch: Callable[[str], bool]
) -> tuple[Leg, ...]:
    """With the positions of ``paths``; empty if nothing is shared."""

    def placed(leg: Leg) -> Leg:
        return replace(leg, path=carry[leg.path], onward=tuple(map(placed, leg.onward)))

    legs = copy_tree(network, [paths[i] for i in carry], may_branch)
    return tuple(map(placed, legs)) if any(leg.onward for leg in legs) else ()


def separate_links(use: Use | None, paths: Sequence[PathName]) -> tuple[PathName, ...]:
    """By path, the links that its frames travel for themselves: what copies share is with the first of them."""
    if use is None or not use.legs:
        return tuple(paths)
    found: dict[int, PathName] = {}
    for leg in (each for first in use.legs for each in first.all()):
        found[leg.path] = found.get(leg.path, ()) + paths[leg.path][leg.start : leg.end]
    return tuple(found.get(index, path) for index, path in enumerate(paths))


def path_groups(use: Use | None, path_count: int) -> PathGroups:
    """How rates are given to paths: each group has one rate and one or more paths, by position.

    Each path that carries is a group of its own; with copies all of them are one, and each path has the whole rate.
    """
    used = tuple(range(path_count)) if use is None else use.carry
    return (used,) if use is not None and use.copies else tuple((index,) for index in used)


def by_path(rates: Sequence[float], of: PathGroups, path_count: int) -> tuple[float, ...]:
    """Rates of groups -> rates of paths; a path without a group is paused."""
    result = [0.0] * path_count
    for rate, group in zip(rates, of, strict=True):
        for position in group:
            result[position] = rate
    return tuple(result)

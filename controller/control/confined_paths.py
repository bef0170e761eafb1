"""Paths of flows whose ends are confined: those in use, and those that stand by. Pure.

A flow of a client that is at several places keeps paths by the others at hand: both its edges are configured for them,
and nothing is sent there. A handover to such a place is new rates at the first edge, one message; receivers know
everything already.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from hyroads.controller.control.handover import Confined, Corridor, Ends
from hyroads.controller.control.live_network import LiveNetwork
from hyroads.controller.core.network import FlowSpec, Network
from hyroads.controller.core.paths import Path
from hyroads.controller.core.services.place import Place
from hyroads.controller.numbering import PathName

# An edge is configured for no more paths of a flow because of those that stand by (agents take 32).
MOST_PATHS = 16


def confined_paths(live: LiveNetwork, spec: FlowSpec, ends: Ends, known: Iterable[PathName]) -> tuple[PathName, ...]:
    """Paths through every corridor: those that are known there and that live, else the best ones; none if there are
    none in any (the place is gone).
    """
    paths: dict[PathName, None] = {}
    for corridor in ends.corridors():
        kept = tuple(path for path in known if corridor.has(live.network, path) and lives(live, path))
        paths |= dict.fromkeys(kept or _through(live, spec, corridor))
    return tuple(paths)


def standing_by(
    live: LiveNetwork, ends: Ends, paths: Sequence[PathName], known: Iterable[PathName]
) -> tuple[PathName, ...]:
    """Of known paths those that live and lead by other places than those in use, the latest first."""
    if ends.is_of_paths:
        return ()
    corridors = ends.corridors()
    here = {path for path in known if any(corridor.has(live.network, path) for corridor in corridors)}
    others = (path for path in known if path not in here and path not in paths and lives(live, path))
    return _some(others, paths)


def filled(
    live: LiveNetwork, spec: FlowSpec, ends: Ends, paths: Sequence[PathName], standby: Sequence[PathName]
) -> tuple[PathName, ...]:
    """With the best paths by places where a client is and by which none stands by."""
    found = dict.fromkeys(standby)
    for corridor in _elsewhere(live, spec, ends):
        if not any(corridor.has(live.network, path) for path in found):
            found |= dict.fromkeys(path for path in _through(live, spec, corridor) if path not in paths)
    return _some(found, paths)


def lives(live: LiveNetwork, path: PathName) -> bool:
    """Whether all its links do."""
    return all(live.capacity_mbps.get(link, 0.0) > 0 for link in path)


def named(network: Network, paths: Iterable[Path]) -> tuple[PathName, ...]:
    """Link ids instead of positions."""
    return tuple(tuple(network.links[link].id for link in path) for path in paths)


def _some(standby: Iterable[PathName], paths: Sequence[PathName]) -> tuple[PathName, ...]:
    return tuple(standby)[: max(0, MOST_PATHS - len(paths))]


def _elsewhere(live: LiveNetwork, spec: FlowSpec, ends: Ends) -> list[Corridor]:
    """The corridors with one end at another place, where its client is now."""
    here = ends.corridors()
    sources = _others(ends.source, live.departures, spec.source)
    targets = _others(ends.target, live.arrivals, spec.target)
    first = (replace(corridor, first=place) for corridor in here for place in sources)
    last = (replace(corridor, last=place) for corridor in here for place in targets)
    return list(dict.fromkeys((*first, *last)))


def _others(end: Confined | None, places: Mapping[str, tuple[Place, ...]], node: str) -> list[Place]:
    if end is None or end.is_of_paths:
        return []
    return [place for place in places.get(node, ()) if place not in end.known]


def _through(live: LiveNetwork, spec: FlowSpec, corridor: Corridor) -> tuple[PathName, ...]:
    """The best paths through a corridor: declared ones if any leads there."""
    network = live.network
    if corridor.path is not None:
        return (corridor.path,) if lives(live, corridor.path) else ()
    declared = tuple(path for path in spec.paths if corridor.has(network, path) and lives(live, path))
    closed = corridor.closed(network, spec.source, spec.target)
    return declared or named(network, live.through(spec.source, spec.target, closed))

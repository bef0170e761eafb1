"""Routes that outlive the controller: a new one goes on with the paths that flows had, without planning them again.

Planning takes about 20 ms for a flow of a large network. They are saved as the ids of their paths, with a fingerprint
of the network file: on another network, or for other flows, the best paths may be others. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any

from hyroads.controller.core.addressing import Numbers, PathName
from hyroads.controller.core.mappings import ObjectsById, differing, ordered, patched
from hyroads.controller.core.netfile import to_document
from hyroads.controller.core.network import FlowSpec, Network

from .live_network import LiveNetwork
from .routes import FlowRoute, Routes, lives

UNSAVED_S = 2.0
"""A leader saves better routes some milliseconds after it has pushed them. Its end is noticed within a second."""


def fingerprint(network: Network) -> str:
    """The same for equal network files only."""
    text = json.dumps(to_document(network), sort_keys=True, default=str)
    return blake2b(text.encode(), digest_size=16).hexdigest()


def routes_document(network: str, routes: Routes, numbers: Numbers) -> dict[str, Any]:
    """What is saved; ``network`` is the fingerprint of the network file that flows were planned on.

    Left out are flows that are no multipaths, or that handovers are about: these are planned anew. Of a flow with a
    bandit it has the arms as well, as indices into its paths.
    """
    return RoutesDocument().of(network, routes, numbers)


class RoutesDocument:
    """Gives what :func:`routes_document` does, and works out again only what changed since the last time."""

    def __init__(self) -> None:
        self._routes: Routes = {}
        self._ids: Mapping[str, Mapping[PathName, int]] = {}
        self._paths: Mapping[str, Any] = {}

    def of(self, network: str, routes: Routes, numbers: Numbers) -> dict[str, Any]:
        """The document of these routes."""
        changed = differing(self._routes, routes) | differing(self._ids, numbers.paths)
        new: dict[str, Any] = {}
        for flow in changed:
            route, ids = routes.get(flow), numbers.paths.get(flow, {})
            if route is not None and _is_saved(route) and all(path in ids for path in route.paths):
                known = [ids[path] for path in route.paths]
                new[flow] = {"paths": known, "arms": [list(arm) for arm in route.arms]} if route.arms else known
        paths = patched(self._paths, new, changed)
        self._routes, self._ids, self._paths = routes, numbers.paths, paths
        return {"network": network, "paths": paths}


def _is_saved(route: FlowRoute) -> bool:
    return route.reason is None and not route.ends and not route.spec.paths


class RouteObjects:
    """Gives what a :class:`RoutesDocument` gave as services' state in which each flow's route is an object of its own.
    Those that did not change are the very objects of before.
    """

    def __init__(self) -> None:
        self._paths: Mapping[str, Any] = {}
        self._objects: Mapping[str, Any] = {}

    def of(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """The state of services for these routes."""
        paths: Mapping[str, Any] = document["paths"]
        changed = differing(self._paths, paths)
        made = {flow: {"flow": flow, "paths": paths[flow]} for flow in ordered(changed, paths) if flow in paths}
        self._objects = patched(self._objects, made, changed)
        self._paths = paths
        return {"routes": ObjectsById(self._objects), "routes_of": document["network"]}


def paths_in(services: Mapping[str, Any], network: str) -> Mapping[str, Any]:
    """The ids of the paths of each flow in services' state, in either form; nothing if that is of another network."""
    match services:
        case {"routes": {"network": str(of), "paths": dict(saved)}} if of == network:
            return saved
        case {"routes": list(objects), "routes_of": str(of)} if of == network:
            named = (one for one in objects if isinstance(one, dict) and isinstance(one.get("flow"), str))
            return {one["flow"]: one.get("paths") for one in named}
    return {}


def restored_routes(document: Any, network: str, flows: Iterable[FlowSpec], numbers: Numbers) -> dict[str, FlowRoute]:
    """Routes from what :func:`routes_document` gave, as far as they are of this network and sound."""
    return routes_by(paths_in({"routes": document}, network), flows, numbers)


def routes_by(saved: Mapping[str, Any], flows: Iterable[FlowSpec], numbers: Numbers) -> dict[str, FlowRoute]:
    """Routes of these flows by the ids of their paths, as far as they are sound."""
    routes = {}
    for spec in flows:
        named = {number: path for path, number in numbers.paths.get(spec.id, {}).items()}
        ids, arms = _paths_and_arms(saved.get(spec.id))
        if not ids or spec.paths or spec.policy.learns != bool(arms):
            continue
        if all(type(each) is int and each in named for each in ids):
            routes[spec.id] = FlowRoute(spec, None, None, tuple(named[each] for each in ids), arms)
    return routes


def _paths_and_arms(saved: Any) -> tuple[list[Any], tuple[tuple[int, ...], ...]]:
    """The ids of paths as they were saved, and the arms, of which all paths are; nothing if that makes no sense."""
    match saved:
        case list():
            return saved, ()
        case {"paths": list(ids), "arms": list(arms)}:
            known = range(len(ids))
            sound = all(isinstance(arm, list) and arm for arm in arms)
            if sound and all(type(each) is int and each in known for arm in arms for each in arm):
                return ids, tuple(tuple(arm) for arm in arms)
    return [], ()


class LeaderRoutes:
    """Routes of the controller that leads, as another one that stands by knows them (docs/explanation/ha.md). ``saved``
    are those that the leader has saved; none if no other controller leads.
    """

    def __init__(self) -> None:
        self.saved: Routes = {}
        self._found: dict[str, tuple[FlowRoute, float, FlowRoute | None]] = {}
        """Better routes that were found here lately, when, and what the leader had saved by then."""

    def note_found(self, routes: Routes, now_s: float) -> None:
        """Better routes were found here just now."""
        lately = {flow: found for flow, found in self._found.items() if now_s - found[1] < UNSAVED_S}
        self._found = lately | {flow: (route, now_s, self.saved.get(flow)) for flow, route in routes.items()}

    def unlike(self, known: Routes) -> Routes:
        """Those of the leader that are others than ours. Clients' places are ours."""
        return {
            flow: route
            for flow, route in self.saved.items()
            if flow not in known or not (known[flow].ends or known[flow].is_alike(route))
        }

    def unsaved(self, live: LiveNetwork | None, now_s: float) -> Routes:
        """Better routes of flows for which the leader has saved nothing since they were found here: it has found them,
        too, and may have pushed them.
        """
        found: dict[str, FlowRoute] = {}
        for flow, (route, found_s, before) in self._found.items():
            saved = self.saved.get(flow)
            if live is None or before is None or saved is None or now_s - found_s >= UNSAVED_S:
                continue
            is_new = saved.is_alike(before) and saved.spec == route.spec
            if is_new and all(lives(live, path) for path in route.known):
                found[flow] = route
        return found

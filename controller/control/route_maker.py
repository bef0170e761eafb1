"""Routes from one state and network to the next: only flows that a change may concern are looked at. It remembers what
it made last; no I/O.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping

import numpy as np

from hyroads.controller.core.mappings import differing, ordered, patched
from hyroads.controller.core.network import Policy, Traffic
from hyroads.controller.model.state import DeclaredFlow, State

from .live_network import LiveNetwork
from .routes import TECHNOLOGIES, Edges, FlowRoute, Routes, frames_of, make_routes, route_of, same_frames


class RouteMaker:
    """Makes routes as :func:`make_routes` does, and looks only at flows that a change may concern: those that came or
    went, and those with a path over a link that is gone.
    """

    def __init__(self) -> None:
        self._state: State | None = None
        self._live: LiveNetwork | None = None
        self._routes: Routes = {}
        self._taken: dict[tuple[object, ...], str] = {}
        """What tells the frames of a multipath from others -> the first flow that takes them."""
        self._over: dict[str, set[str]] = {}
        """Link -> flows that are left alone as long as it lives."""
        self._others: set[str] = set()
        """Flows that any change of the network may concern."""
        self._grouped = 0
        self._foreign: set[str] = set()
        """Flows whose routes another controller has made, perhaps with links that are gone in our network."""

    def make(self, state: State, live: LiveNetwork, before: Routes, *, same_network: bool) -> Routes:
        """Routes of all declared flows of a state in this network; the others are as for :func:`make_routes`."""
        routes = self._little_changed(state, live, before, same_network=same_network)
        if routes is None:
            routes = make_routes(state, live, before, same_network=same_network)
            self._taken = {}
            for flow in (flow for flow, route in routes.items() if _takes_frames(route)):
                self._taken.setdefault(frames_of(routes[flow].spec), flow)
        self._note(routes)
        self._state, self._live = state, live
        if not same_network:
            self._foreign = set()
        return routes

    def improved(self, routes: Routes) -> None:
        """The routes are these from now on, of the same flows in the same state and network."""
        self._note(routes)

    def adopt(self, routes: Routes, foreign: Collection[str]) -> None:
        """The same, some of them as another controller has made them; also of flows that are to come."""
        known = self._routes
        if any(flow in known and _takes_frames(known[flow]) != _takes_frames(routes[flow]) for flow in foreign):
            # Others may carry the same frames: all are looked at.
            self._state = None
        self._foreign.update(foreign)
        self._note(routes)

    def asked(self, live: LiveNetwork, flows: Collection[str], known: Routes) -> list[str]:
        """Those of some flows for which :meth:`make` will ask a network for something. ``known`` are their routes."""
        if self._live is None or self._routes is not known:
            return list(flows)
        concerned = self._concerned(live)
        return [flow for flow in flows if flow in concerned or flow not in known]

    def fresh(self, flows: Mapping[str, DeclaredFlow], known: Routes) -> list[str]:
        """Those of some flows that have no routes; ``known`` are all there are."""
        last = self._state
        if last is None or self._routes is not known:
            return [flow for flow in flows if flow not in known]
        some = differing(last.flows, flows) & flows.keys()
        return [flow for flow in ordered(some, flows) if flow not in known]

    @property
    def taken(self) -> Container[tuple[object, ...]]:
        """What tells the frames of multipaths from others (``routes.frames_of``)."""
        return self._taken

    def _note(self, routes: Routes) -> None:
        """Remember who goes where."""
        for flow in differing(self._routes, routes):
            old, new = self._routes.get(flow), routes.get(flow)
            for link in _links_of(old):
                self._over[link].discard(flow)
            self._grouped -= old is not None and old.spec.group is not None
            self._grouped += new is not None and new.spec.group is not None
            self._others.discard(flow)
            if new is None:
                self._foreign.discard(flow)
            elif _rests_on_its_links(new):
                for link in _links_of(new):
                    self._over.setdefault(link, set()).add(flow)
            else:
                self._others.add(flow)
        self._routes = routes

    def _little_changed(self, state: State, live: LiveNetwork, before: Routes, *, same_network: bool) -> Routes | None:
        """The routes if nothing happened but that flows and links came and went; None if all have to be looked at."""
        last = self._state
        if last is None or self._live is None or self._grouped or self._routes is not before:
            return None
        basis = ("agents", "away", "switches", "ports", "constrained", "places")
        if any(getattr(last, name) is not getattr(state, name) for name in basis):
            return None
        changed = differing(last.flows, state.flows)
        if any(flow in last.flows for flow in changed & state.flows.keys()) or not self._may_go(changed, state, before):
            return None
        concerned = set() if same_network else self._concerned(live) - changed
        edges, found = Edges(state, live), {}
        asked = (changed | concerned) & state.flows.keys()
        # The first of several flows that carry the same frames takes them.
        for flow in ordered(asked, state.flows):
            spec, old = state.flows[flow].spec, before.get(flow)
            key = frames_of(spec)
            first = self._taken.get(key)
            twin = None if first == flow else first
            route = found[flow] = route_of(edges, spec, old, same_network=same_network, twin=twin)
            if spec.group is not None or (old is not None and _takes_frames(old) != _takes_frames(route)):
                return None
            if old is not None and old.reason != route.reason and route.reason == same_frames(first):
                # Whether that is an earlier flow is not known here.
                return None
            if _takes_frames(route):
                self._taken.setdefault(key, flow)
        routes = patched(before, found, (flow for flow in changed if flow not in state.flows))
        # New flows are declared last.
        return routes if list(routes) == list(state.flows) else None

    def _concerned(self, live: LiveNetwork) -> set[str]:
        """Flows that another network may concern."""
        was = self._live.capacities if self._live is not None else live.capacities
        gone = np.flatnonzero((was > 0) & (live.capacities <= 0)).tolist()
        links = live.network.links
        return self._others.union(self._foreign, *(self._over.get(links[link].id, ()) for link in gone))

    def _may_go(self, changed: set[str], state: State, before: Routes) -> bool:
        """Whether no other flow gets the frames of those that are gone."""
        gone = [flow for flow in changed if flow not in state.flows and flow in before]
        held = {key for flow in gone if self._taken.get(key := frames_of(before[flow].spec)) == flow}
        if held:
            others = (declared.spec for flow, declared in state.flows.items() if flow not in changed)
            if any(frames_of(spec) in held for spec in others):
                return False
            for key in held:
                del self._taken[key]
        return True


def _rests_on_its_links(route: FlowRoute) -> bool:
    """Whether a flow keeps its paths, whatever else happens, as long as all of them live."""
    spec = route.spec
    if route.reason is not None or route.ends or spec.paths:
        return False
    return spec.policy is not Policy.LATENCY or len(route.paths) >= TECHNOLOGIES


def _links_of(route: FlowRoute | None) -> set[str]:
    """The links of a flow that rests on them."""
    if route is None or not _rests_on_its_links(route):
        return set()
    return {link for path in route.paths for link in path}


def _takes_frames(route: FlowRoute) -> bool:
    return route.reason is None and route.spec.traffic is not Traffic.PROBE

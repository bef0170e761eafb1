"""Routes of the controller that leads, as another one that stands by knows them (docs/explanation/ha.md). Pure."""

from __future__ import annotations

from .live_network import LiveNetwork
from .routes import FlowRoute, Routes, lives

UNSAVED_S = 2.0
"""A leader saves better routes some milliseconds after it has pushed them. Its end is noticed within a second."""


class LeaderRoutes:
    """``saved`` are those that the leader has saved; none if no other controller leads."""

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

"""Builds hot standby from the settings; imported only where they ask for it, because it needs ``etcd3gw``."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from hyroads.controller.agents.server import AgentServer
from hyroads.controller.app.wiring import RestoredState, Services, ready
from hyroads.controller.control.learned import Learned, LearnedError, parse_learned
from hyroads.controller.control.learner import POLICIES
from hyroads.controller.control.learning import Learning
from hyroads.controller.control.restored_routes import as_objects, paths_in, routes_by, routes_document
from hyroads.controller.control.routes import Routes
from hyroads.controller.core.checking import Endpoint
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.network import Network
from hyroads.controller.files.tls import client_side, server_side
from hyroads.controller.framework import ryu_shim as shim
from hyroads.controller.ha.etcd import Etcd
from hyroads.controller.ha.instance import Instance
from hyroads.controller.ha.peer_links import Security, listen
from hyroads.controller.ha.standby import Standby
from hyroads.controller.model import state as model
from hyroads.controller.model.state import SAVED_ORIGINS, Origin
from hyroads.controller.runtime.event_loop import EventLoop
from hyroads.controller.runtime.persistence import Saved, to_save
from hyroads.controller.services.mptcp_saved import SavedConnections
from hyroads.controller.settings.ha import HaSettings

LOG = logging.getLogger("hyroads.ha")
ASK_S, ASKED_AT_ONCE = 0.05, 8


def security_of(ha: HaSettings, document: str) -> Security:
    """How instances know each other; ConfigError."""
    if ha.tls is None:
        return Security(token=ha.peer_token)
    place = "ha.tls"
    return Security(server_side(ha.tls, document, place), client_side(ha.tls, document, place), ha.peer_token)


def _listener(endpoint: Endpoint, document: str) -> Any:
    try:
        return listen(endpoint.host, endpoint.port)
    except OSError as error:
        where = f"{endpoint.host}:{endpoint.port}"
        raise ConfigError(document, "listen.peer", f"can't listen on {where}: {error.strerror}") from error


class SavedRoutes:
    """The routes that the leader has saved. Those that did not change are not looked at again."""

    def __init__(self) -> None:
        self._paths: Mapping[str, Any] = {}
        self._named: Mapping[str, Any] = {}
        self._routes: Routes = {}

    def of(self, paths: Mapping[str, Any], restored: RestoredState) -> Routes:
        """All routes, by the ids of their paths."""
        specs, named = {flow.spec.id: flow.spec for flow in restored.flows}, restored.numbers.paths
        known = self._routes
        same = {
            flow: route
            for flow, route in known.items()
            if specs.get(flow) is route.spec
            and paths.get(flow) == self._paths.get(flow)
            and named.get(flow) == self._named.get(flow)
        }
        new = (spec for flow, spec in specs.items() if flow in paths and flow not in same)
        self._paths, self._named = paths, named
        self._routes = {**same, **routes_by(paths, new, restored.numbers)}
        return self._routes


def begin_standby(
    ha: HaSettings,
    event_loop: EventLoop,
    services: Callable[[], Services],
    document: str,
    *,
    fingerprint: Callable[[Network], str],
    learning: Learning,
) -> Standby:
    """This controller as one of several, which follows until it is elected; ConfigError."""
    settings, mailbox, routes = event_loop.settings, shim.Mailbox(), SavedRoutes()
    connections = SavedConnections(settings.mptcp.most_routed)
    region = settings.region.name if settings.region is not None else None
    prefix = ha.prefix(event_loop.declared, settings.network, region)

    def etcd() -> Etcd:
        return Etcd(ha.nearest_first, prefix, ha.timings.etcd_timeout_s, ha.tls)

    def saved() -> tuple[Saved, frozenset[str]]:
        state = event_loop.state
        # Another controller of this region shall give the same numbers to what comes from other regions.
        numbered = (*SAVED_ORIGINS, Origin.REGION)
        present = frozenset(flow for flow, each in state.flows.items() if each.origin in numbered)
        declared, numbers = event_loop.declared, event_loop.live.numbers
        in_force = as_objects(routes_document(fingerprint(declared), event_loop.live.routes, numbers))
        services_saved = {**services().to_save(state), **in_force}
        return to_save(declared, state.flows.values(), numbers, state.constrained, services_saved), present

    def adopt(saved: Saved) -> None:
        restored, left_out = ready(saved, event_loop.context, connections, event_loop.declared)
        parts = {"flows": restored.flows, "constrained": restored.constrained, "places": restored.places}
        of_leader = routes.of(paths_in(saved.services, fingerprint(event_loop.declared)), restored)
        event_loop.adopt(partial(model.restored, **parts), restored.numbers, of_leader)  # type: ignore[arg-type]
        left_out += services().become(restored)
        for problem in left_out:
            event_loop.fault("etcd", f"left out: {problem}")

    def leads() -> None:
        learning.take(learned_in(instance.learned))
        services().lead()

    where = security_of(ha, document), _listener(settings.peer, document)
    events = event_loop.events.all
    instance = Instance(ha, etcd(), *where, tell=mailbox.put, events=events, learned=lambda: learning.learned)
    return Standby(event_loop, instance, etcd(), mailbox=mailbox, saved=saved, adopt=adopt, leads=leads)


def learned_in(documents: Mapping[str, Mapping[str, Any]]) -> dict[str, Learned]:
    """What bandits of flows have learned, as another controller told; what makes no sense is left out."""
    found = {}
    for flow, document in dict(documents).items():
        try:
            found[flow] = parse_learned(document, {policy.value: how for policy, how in POLICIES.items()})
        except LearnedError as error:
            LOG.warning("flow %s: its bandit begins anew: %s", flow, error)
    return found


def watch_leader(instance: Instance, agents: AgentServer) -> None:
    """Ask agents whether they hear the leader, whenever we do not; for ever, in the calling green thread."""
    agents.leader_heard = instance.agent_heard
    every_s = min(ASK_S, instance.settings.timings.silence_ms / 5e3)
    while True:
        shim.sleep(every_s)
        if instance.suspects():
            agents.ask_leader(ASKED_AT_ONCE)

"""Builds hot standby from the settings; imported only where they ask for it, because it needs ``etcd3gw``."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from hyroads.controller.agents.server import AgentServer
from hyroads.controller.app.wiring import RestoredState, Services, ready
from hyroads.controller.control.learned import Learned, LearnedError, parse_learned
from hyroads.controller.control.learner import POLICIES
from hyroads.controller.control.learning import Learning
from hyroads.controller.control.restored_routes import RouteObjects, RoutesDocument, paths_in, routes_by
from hyroads.controller.control.routes import Routes
from hyroads.controller.core.checking import Endpoint
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.identity import CertificateRole, not_of_node
from hyroads.controller.core.mappings import differing, ordered, patched
from hyroads.controller.core.network import FlowSpec, Network
from hyroads.controller.files.tls import CertificateCheck, Revoked, certificate_facts, client_side, server_side
from hyroads.controller.framework import ryu_shim as shim
from hyroads.controller.ha.etcd import Etcd
from hyroads.controller.ha.instance import Instance
from hyroads.controller.ha.peer_links import Security, listen
from hyroads.controller.ha.standby import Standby
from hyroads.controller.model import state as model
from hyroads.controller.model.state import SAVED_ORIGINS, DeclaredFlow, Origin
from hyroads.controller.runtime.event_loop import EventLoop
from hyroads.controller.runtime.persistence import Saved, ToSave
from hyroads.controller.services.mptcp_saved import SavedConnections
from hyroads.controller.settings.ha import HaSettings

LOG = logging.getLogger("hyroads.ha")
ASK_S, ASKED_AT_ONCE = 0.05, 8
NUMBERED = (*SAVED_ORIGINS, Origin.REGION)
"""Of flows of these origins numbers are saved: another controller of this region shall give the same ones to what comes
from other regions.
"""
Fingerprint = Callable[[Network], str]


def security_of(ha: HaSettings, document: str, revoked: Revoked) -> Security:
    """How instances know each other; ConfigError."""
    if ha.tls is None:
        return Security(token=ha.peer_token)
    place, check = "ha.tls", CertificateCheck.of(CertificateRole.CONTROLLER, revoked=revoked)
    sides = server_side(ha.tls, document, place), client_side(ha.tls, document, place)
    own = certificate_facts(Path(ha.tls.certificate).read_bytes())
    problem = check.fault(own) or not_of_node(own.names, ha.name, "instance")
    if problem:
        raise ConfigError(document, f"{place}.certificate", f"{problem}: see hyroads identity server")
    return Security(*sides, ha.peer_token, check)


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
        self._specs: Mapping[str, FlowSpec] = {}
        self._routes: Routes = {}

    def of(self, paths: Mapping[str, Any], restored: RestoredState) -> Routes:
        """All routes, by the ids of their paths."""
        specs, named = {flow.spec.id: flow.spec for flow in restored.flows}, restored.numbers.paths
        changed = differing(self._paths, paths) | differing(self._named, named) | differing(self._specs, specs)
        made = routes_by(paths, (specs[flow] for flow in ordered(changed & specs.keys(), specs)), restored.numbers)
        self._routes = patched(self._routes, made, changed)
        self._paths, self._named, self._specs = paths, named, specs
        return self._routes


class _ToSave:
    """What is to be saved of a controller. Flows and routes that did not change are not looked at again."""

    def __init__(self, event_loop: EventLoop, services: Callable[[], Services], fingerprint: Fingerprint) -> None:
        self._event_loop, self._services, self._fingerprint = event_loop, services, fingerprint
        self._of, self._routes, self._objects = ToSave(), RoutesDocument(), RouteObjects()
        self._flows: Mapping[str, DeclaredFlow] = {}
        self._present = frozenset[str]()

    def now(self) -> tuple[Saved, frozenset[str]]:
        """The content, and the flows whose numbers are saved."""
        event_loop, state = self._event_loop, self._event_loop.state
        declared, numbers = event_loop.declared, event_loop.live.numbers
        routes = self._routes.of(self._fingerprint(declared), event_loop.live.routes, numbers)
        services = {**self._services().to_save(state), **self._objects.of(routes)}
        saved = self._of.of(declared, state.flows, numbers, state.constrained, services)
        changed = differing(self._flows, state.flows)
        self._flows = state.flows
        if changed:
            there = {flow for flow in changed if flow in state.flows and state.flows[flow].origin in NUMBERED}
            self._present = self._present - changed | there
        return saved, self._present


def begin_standby(
    ha: HaSettings,
    event_loop: EventLoop,
    services: Callable[[], Services],
    document: str,
    *,
    fingerprint: Fingerprint,
    learning: Learning,
    revoked: Revoked,
) -> Standby:
    """This controller as one of several, which follows until it is elected; ConfigError."""
    settings, mailbox, routes = event_loop.settings, shim.Mailbox(), SavedRoutes()
    connections, to_save = SavedConnections(settings.mptcp.most_routed), _ToSave(event_loop, services, fingerprint)
    region = settings.region.name if settings.region is not None else None
    prefix = ha.prefix(event_loop.declared, settings.network, region)

    def etcd() -> Etcd:
        return Etcd(ha.nearest_first, prefix, ha.timings.etcd_timeout_s, ha.tls)

    def adopt(saved: Saved) -> None:
        known = event_loop.state.flows
        restored, left_out = ready(saved, event_loop.context, connections, event_loop.declared, known)
        parts = {"flows": restored.flows, "constrained": restored.constrained, "places": restored.places}
        parts["reported"] = restored.addresses
        of_leader = routes.of(paths_in(saved.services, fingerprint(event_loop.declared)), restored)
        event_loop.adopt(partial(model.restored, **parts), restored.numbers, of_leader)  # type: ignore[arg-type]
        left_out += services().become(restored)
        for problem in left_out:
            event_loop.fault("etcd", f"left out: {problem}")

    def leads() -> None:
        learning.take(learned_in(instance.learned))
        services().lead()

    where = security_of(ha, document, revoked), _listener(settings.peer, document)
    events = event_loop.events.all
    instance = Instance(ha, etcd(), *where, tell=mailbox.put, events=events, learned=lambda: learning.learned)
    return Standby(event_loop, instance, etcd(), mailbox=mailbox, saved=to_save.now, adopt=adopt, leads=leads)


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
    agents.leader_asked, agents.leader_heard = instance.agent_asked, instance.agent_heard
    every_s = min(ASK_S, instance.settings.timings.silence_ms / 5e3)
    while True:
        shim.sleep(every_s)
        if instance.suspects():
            agents.ask_leader(ASKED_AT_ONCE)

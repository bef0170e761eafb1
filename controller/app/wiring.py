"""Builds the services of one controller, and connects them to the event loop and to each other.

Each method builds the services of one subject; they are called in the order in which services need each other.
:func:`restored_in` loads the state file, and leaves out what no longer fits the network.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from flask_smorest import Blueprint
from prometheus_client.core import CounterMetricFamily

from hyroads.controller.agents.frame_keys import is_secret, new_secret
from hyroads.controller.agents.sessions import Session
from hyroads.controller.core.addressing import Numbers
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.identity import DeviceTokens
from hyroads.controller.core.interface_addresses import Interface, addresses_from, saved_addresses
from hyroads.controller.core.mptcp_connections import Connection
from hyroads.controller.core.multicast import GroupRate
from hyroads.controller.core.network import Network, Place
from hyroads.controller.core.services.view import NetworkView
from hyroads.controller.core.traffic_meter import TrafficMeter
from hyroads.controller.framework import ryu_shim as shim
from hyroads.controller.model.handover import Constrained, Key
from hyroads.controller.model.state import DeclaredFlow, Origin, State, TopologyContext
from hyroads.controller.runtime.event_loop import EventLoop
from hyroads.controller.runtime.faults import repeat
from hyroads.controller.runtime.persistence import Saved, Store, declared, declared_flow
from hyroads.controller.runtime.telemetry import Telemetry
from hyroads.controller.services.access_rules import AccessRuleService
from hyroads.controller.services.boxes import Adopting, BoxService
from hyroads.controller.services.clients.declared import interfaces_of, places_from, saved_places
from hyroads.controller.services.clients.directory import ClientDirectory
from hyroads.controller.services.clients.locations import ClientService
from hyroads.controller.services.clients.multihomed import MultihomedClients
from hyroads.controller.services.clients.pairs import HostPairs
from hyroads.controller.services.mobility.handovers import HandoverService, handover_metrics
from hyroads.controller.services.mobility.ncasts import NCastService, RestoredNCast, ncasts_from
from hyroads.controller.services.mobility.plain import PlainClients
from hyroads.controller.services.mobility.requests import DEFAULT, Managers
from hyroads.controller.services.mptcp import TICK_S as MPTCP_TICK_S
from hyroads.controller.services.mptcp import MptcpService
from hyroads.controller.services.mptcp_ends import SubflowEnds
from hyroads.controller.services.mptcp_routes import TICK_S as ROUTES_TICK_S
from hyroads.controller.services.mptcp_routes import SubflowRoutes
from hyroads.controller.services.mptcp_saved import SavedConnections
from hyroads.controller.services.multicast.membership import TICK_S, MembershipService, QuerierService
from hyroads.controller.services.multicast.meter import INTERVAL_S, SessionMeter, known_hosts, ports_of_hosts
from hyroads.controller.services.multicast.sessions import SessionService
from hyroads.controller.services.owners import Kind, OwnerService
from hyroads.controller.services.plugins.discovery import discover
from hyroads.controller.services.plugins.requests import Requests
from hyroads.controller.services.plugins.service import PluginService, plugin_metrics
from hyroads.controller.services.plugins.sfnet import SfnetService
from hyroads.controller.services.reservations import ReservationService
from hyroads.controller.services.steering.actuators import HandoverActuator, SteeringActuator, network_view
from hyroads.controller.services.steering.placements import RadioPlacements
from hyroads.controller.services.steering.policies import EVERY_S, PolicyService
from hyroads.controller.services.steering.stations import Steering
from hyroads.controller.settings.controller import Settings
from hyroads.plugins.kinds import Selection
from hyroads.rest import (
    access_rules,
    boxes,
    clients,
    connections,
    handovers,
    multihomed,
    ncasts,
    plugins,
    quotas,
    reservations,
    sessions,
)
from hyroads.rest.contract import OPERATOR, Token
from hyroads.rest.metrics import Gauge


@dataclass(frozen=True)
class RestoredState:
    """``constrained`` is what was wanted of flows: the first plan shall be what the agents run, n-casts included."""

    flows: list[DeclaredFlow]
    numbers: Numbers
    constrained: Mapping[Key, Constrained]
    places: Mapping[str, Place | None]
    ncasts: list[RestoredNCast]
    connections: list[Connection]
    services: Mapping[str, Any]
    """What the other services saved, by service."""
    addresses: Mapping[Interface, str] = field(default_factory=dict)
    """Of interfaces, as boxes reported them."""


def restored_in(
    store: Store, context: TopologyContext, connections: SavedConnections
) -> tuple[RestoredState, list[ConfigError]]:
    """The content of the file, and what is left out of it."""
    saved, problems = store.load(context.network)
    restored, more = ready(saved, context, connections)
    return restored, problems + more


def ready(
    saved: Saved,
    context: TopologyContext,
    mptcp: SavedConnections,
    network: Network | None = None,
    known: Mapping[str, DeclaredFlow] | None = None,
) -> tuple[RestoredState, list[ConfigError]]:
    """What was saved, on this network, and what is left out of it. ``network`` is the file, if it was read again;
    ``mptcp`` reads MPTCP connections. Flows that are the same as in ``known`` are the very objects of there.
    """
    flows = declared(network or context.network, saved, known)
    connections, problems = mptcp.of(saved.services.get("connections"), context, time.monotonic())
    taken = {flow.spec.id: flow for flow in flows}
    flows += [declared_flow(spec, Origin.MPTCP, known) for spec in mptcp.flows(connections, taken)]
    specs = {flow.spec.id: flow.spec for flow in flows}
    ncasts, no_ncasts = ncasts_from(saved.services.get("ncasts"), context.network, specs)
    places, no_places = places_from(saved.services.get("places"), context)
    addresses, no_addresses = addresses_from(saved.services.get("addresses"), context.addressing.interface_mac)
    constrained = {**saved.constrained, **{ncast.key: ncast.constrained for ncast in ncasts}}
    restored = RestoredState(flows, saved.numbers, constrained, places, ncasts, connections, saved.services, addresses)
    return restored, problems + no_ncasts + no_places + no_addresses


LOG = logging.getLogger("hyroads.controller")


def tokens_of(settings: Settings) -> list[Token]:
    """The tokens of the REST API."""
    return [
        Token(
            each.name,
            each.token,
            each.role,
            clients=each.clients,
            access_rules=each.access_rules,
            quotas=each.quotas,
            may_change=each.may_change,
        )
        for each in settings.api_tokens
    ]


class Services:
    """``radios`` are the connected access points by node, ``document`` is what an error in the settings names."""

    def __init__(
        self,
        event_loop: EventLoop,
        telemetry: Telemetry,
        radios: Callable[[], Mapping[str, Session]],
        restored: RestoredState,
        document: str,
    ) -> None:
        self.event_loop = event_loop
        self.context = event_loop.context
        self.settings = event_loop.settings
        self.tokens = tokens_of(self.settings)
        self._publish = event_loop.events.publish
        self._preferred: dict[str, str] = {}
        self.secret: str | None = None
        """Of the network: what agents seal their frames with comes from it."""
        self._before_became: Mapping[str, Any] | None = None
        """What services became last, if they have not changed by themselves since."""
        self.left_out: list[ConfigError] = []
        """What of the state file does not fit, and is left out."""
        self.boxes = BoxService(event_loop, self.settings, Adopting.of(self.settings, document), clock=time.time)
        event_loop.followers.append(self.boxes.follow)
        self._begin_plugins(document)
        self._begin_clients(radios)
        self._begin_handovers(restored)
        self._begin_policies(telemetry)
        self._begin_sessions()
        self._begin_mptcp(document, telemetry.traffic)
        self._begin_directory()
        self._restore(restored)

    def _begin_plugins(self, document: str) -> None:
        found, left_out = discover(self.settings.plugins, document)
        for what in left_out:
            LOG.warning("%s", what)
        event_loop, self.requests = self.event_loop, Requests()
        self.plugins = PluginService(
            found,
            self.requests,
            event_loop.events,
            self._view,
            time.monotonic,
            policies_on=self.settings.policies,
            placement=self.settings.placement,
            defect=event_loop.exception,
        )
        self.plugins.on_managers = event_loop.wake
        event_loop.collectors.append(partial(plugin_metrics, self.plugins))
        self.sfnet: SfnetService | None = None
        if self.settings.sfnet is not None:
            where = (self.settings.sfnet, self.tokens, self.requests, event_loop.events)
            self.sfnet = SfnetService(*where, clock=time.monotonic, document=document)

    def _view(self) -> NetworkView:
        view = network_view(self.event_loop)
        return replace(view, clients=self.actuator.clients(view.time_s))

    def _begin_clients(self, radios: Callable[[], Mapping[str, Session]]) -> None:
        self.clients = ClientService(
            self.context,
            self.settings.access,
            self.event_loop,
            self._publish,
            time.monotonic,
            switch_grace_s=self.settings.timings.switch_grace_s,
            changed_nodes=self.event_loop.registry.watch(),
        )
        self.pairs: HostPairs | None = None
        if self.context.on_demand:
            grace_s = self.settings.timings.switch_grace_s
            touched = self.event_loop.registry.watch()
            self.pairs = HostPairs(
                self.event_loop, self.clients.tables, time.monotonic, switch_grace_s=grace_s, touched=touched
            )
            self.event_loop.before_push.append(self.pairs.follow)
            self.event_loop.additions.append(self.pairs)
            self.event_loop.collectors.append(self.pairs.metrics)
        self.steering = Steering(self.clients, radios, self._publish, time.monotonic)
        self.multihomed = MultihomedClients(tuple(self.settings.clients), self._publish, time.monotonic, time.time)
        self.event_loop.collectors.append(self.multihomed.metrics)

    def _begin_handovers(self, restored: RestoredState) -> None:
        event_loop = self.event_loop
        self.managers = Managers(self.plugins.managers, Selection(DEFAULT, by_client=self._preferred))
        plain = PlainClients(event_loop, self.clients, self.steering)
        if self.pairs is not None:
            plain.with_routes = self.pairs.added_to
        self.handovers = HandoverService(
            event_loop, self._publish, time.monotonic, time.time, self.managers, plain=plain
        )
        self.ncasts = NCastService(event_loop, self._publish, time.monotonic)
        self.ncasts.restore(restored.ncasts)
        event_loop.followers += [self.handovers.advance, self.ncasts.advance]
        event_loop.collectors.append(partial(handover_metrics, self.handovers.seconds))

    def _begin_policies(self, telemetry: Telemetry) -> None:
        event_loop = self.event_loop
        self.actuator = HandoverActuator(self.handovers, event_loop, telemetry.ingest)
        event_loop.followers.append(self.actuator.advance)
        self.policies = PolicyService(
            self.plugins.policies,
            partial(network_view, event_loop),
            self._publish,
            time.monotonic,
            RadioPlacements(event_loop, lambda: self.plugins.placement.mode),
        )
        self.policies.actuators += [self.actuator, SteeringActuator(self.clients, self.steering, event_loop)]

    def _begin_sessions(self) -> None:
        event_loop, addressing = self.event_loop, self.context.addressing
        find = known_hosts(addressing, lambda: self.clients.state)
        rate = GroupRate.NEIGHBOURS if self.settings.group_frames else GroupRate.NEVER
        self.sessions = SessionService(event_loop, find, group_rate=rate)
        event_loop.before_push.append(self.sessions.follow)
        event_loop.additions.append(self.sessions)
        self.clients.listeners.append(lambda notice: self.sessions.moved(notice.mac))
        self.meter = SessionMeter(
            event_loop.switches, lambda: self.sessions.sessions, self.sessions.measured, time.monotonic
        )
        querier = QuerierService(event_loop.switches, addressing.access_port, self.settings.querier, time.monotonic)
        self.membership = MembershipService(
            self.sessions, ports_of_hosts(addressing), time.monotonic, event_loop.fault, querier
        )
        self.reservations = ReservationService(event_loop, self.sessions)
        event_loop.followers.append(self.reservations.follow)
        self.access_rules = AccessRuleService(
            event_loop,
            tokens=self.tokens,
            guarded=self.settings.access.guard,
            clock=time.time,
            changed_nodes=event_loop.registry.watch(),
        )
        self.access_rules.others.append(self.clients.floods.entries)
        event_loop.followers.append(self.access_rules.follow)
        self._begin_owners()

    def _begin_owners(self) -> None:
        handovers, rules = self.handovers, self.access_rules
        self.owners = OwnerService(
            self.tokens,
            {
                "flows": Kind(lambda name: name in self.event_loop.state.flows, self._owner_of_flow),
                "sessions": Kind(lambda name: name in self.sessions.sessions),
                "reservations": Kind(self.reservations.has),
                "ncasts": Kind(lambda name: name in self.ncasts.names()),
                "handovers": Kind(lambda name: handovers.owner(name) is not None, handovers.owner),
                "access_rules": Kind(lambda name: rules.owner(name) is not None, rules.owner),
            },
            {
                "groups": lambda group: [("flows", name) for name in self._flows_of_group(group)],
                "clients": lambda client: [("handovers", name) for name in handovers.of_client(client)],
            },
            self.reservations.loads,
        )
        self.reservations.check_quotas = self.owners.check_reserved

    def _owner_of_flow(self, name: str) -> str | None:
        """OPERATOR unless it was declared over REST."""
        flow = self.event_loop.state.flows.get(name)
        return None if flow is None or flow.origin is Origin.API else OPERATOR

    def _flows_of_group(self, group: str) -> list[str]:
        return [name for name, flow in self.event_loop.state.flows.items() if flow.spec.group == group]

    def _begin_mptcp(self, document: str, traffic: TrafficMeter) -> None:
        event_loop, settings = self.event_loop, self.settings.mptcp
        self.mptcp = MptcpService(event_loop, settings, lambda: self.clients.state, clock=time.monotonic, file=document)
        self.access_rules.others.append(self.mptcp.entries)

        def delivered_mbps(flow: str) -> float | None:
            return traffic.flow_reading(flow, event_loop.clock()).delivered_mbps

        most = settings.routed_connections
        self.subflow_routes = SubflowRoutes(
            event_loop, self.mptcp.group, delivered_mbps, clock=time.monotonic, most=most
        )
        self.subflow_ends = SubflowEnds(event_loop, self.mptcp.table, delivered_mbps, time.monotonic)
        if settings.recognise:
            self.access_rules.others.append(self.subflow_ends.entries)
        self.mptcp.listeners.append(self.subflow_routes.changed)
        self.subflow_routes.followers.append(self.subflow_ends.follow)
        event_loop.collectors += [self.mptcp.metrics, self.subflow_routes.metrics]

    def _begin_directory(self) -> None:
        self.directory = ClientDirectory(
            self.clients,
            self.steering,
            self.event_loop,
            interfaces_of(self.context, self.event_loop.addresses.now),
            self.multihomed,
            managers=self._preferred,
            check_manager=self.managers.named,
            clock=time.monotonic,
            moves=self.handovers.plain.unconfirmed,
        )
        self.event_loop.addresses.add(
            lambda addresses, _: self.directory.use_declared(interfaces_of(self.context, addresses))
        )
        self.policies.may_steer = self.directory.may_steer
        self.event_loop.collectors.append(self._counts)

    def _counts(self) -> Iterator[Any]:
        """How many there are of what services keep, for Prometheus."""
        places = Counter(str(i.place) for i in self.clients.state.interfaces.values() if i.place is not None)
        clients = Gauge("hyroads_clients", "Interfaces of clients that are at a place", labels=("place",))
        for place in (*self.clients.places, *places.keys() - set(self.clients.places)):
            clients.add_metric((place,), places[place])
        yield clients
        what = "Frames that came in at access ports under 802.1X from somebody who is not authenticated"
        strangers = CounterMetricFamily("hyroads_unauthenticated_frames", what, labels=("node",))
        for node, count in self.clients.closed.dropped().items():
            strangers.add_metric((node,), count)
        yield strangers
        yield Gauge("hyroads_handovers_running", "Handovers that are not over", value=self.handovers.running)
        yield Gauge("hyroads_ncasts", "Flows of clients that are sent by several paths", value=len(self.ncasts.names()))
        yield Gauge("hyroads_sessions", "Multicast sessions", value=len(self.sessions.names()))
        yield Gauge("hyroads_reservations", "Reservations of rates", value=len(self.reservations.names()))
        yield Gauge("hyroads_access_rules", "Access rules", value=len(self.access_rules.names()))

    # -- the state file

    def _restore(self, restored: RestoredState) -> None:
        problems = self.left_out
        for name, restore in (
            ("sessions", self.sessions.restore),
            ("reservations", self.reservations.restore),
            ("access_rules", self.access_rules.restore),
            ("preferences", self.directory.restore),
            ("quotas", self.owners.restore),
            ("boxes", self.boxes.restore),
        ):
            try:
                problems += restore(restored.services.get(name))
            except Exception as error:  # noqa: BLE001 - the controller starts nevertheless; it is counted and shown
                self.event_loop.exception(f"taking in the saved {name}", error)
                problems.append(ConfigError("state file", f"services.{name}", "expected what can be taken in"))
        self.membership.restore(restored.services.get("members"))
        self._become_connections(restored)
        problems += self._take_secret(restored)
        if self.secret is None and self.settings.ha is None:
            self._use_secret(self.context.labels.secret.hex() or new_secret())

    def _become_connections(self, restored: RestoredState) -> None:
        self.mptcp.become(restored.connections)
        self.subflow_routes.become([connection.id for connection in restored.connections])

    def _take_secret(self, restored: RestoredState) -> list[ConfigError]:
        """The secret of the network that was saved, if there is one."""
        match restored.services.get("seals"):
            case None:
                return []
            case {"secret": str(secret)} if is_secret(secret):
                self._use_secret(secret)
                return []
        return [ConfigError("state file", "services.seals", "expected a secret")]

    def _use_secret(self, secret: str) -> None:
        self.secret = secret
        if self.settings.seal_frames:
            self.event_loop.keys.use(secret)

    def become(self, restored: RestoredState) -> list[ConfigError]:
        """What services have is what another controller, which leads, has saved; what of it does not fit."""
        problems: list[ConfigError] = []
        saved, before = restored.services, self._before_became
        for name, become in (
            ("sessions", self.sessions.become),
            ("reservations", self.reservations.become),
            ("access_rules", self.access_rules.become),
            ("preferences", self.directory.become),
            ("quotas", self.owners.become),
            ("boxes", self.boxes.become),
        ):
            if before is None or saved.get(name) != before.get(name):
                problems += become(saved.get(name))
        if before is None or saved.get("members") != before.get("members"):
            self.membership.become(saved.get("members"))
        if before is None or saved.get("ncasts") != before.get("ncasts"):
            self.ncasts.forget()
            self.ncasts.restore(restored.ncasts)
        if before is None or saved.get("connections") != before.get("connections"):
            self._become_connections(restored)
        if before is None or saved.get("seals") != before.get("seals"):
            problems += self._take_secret(restored)
        if before is None:
            self.handovers.forget()
        self._before_became = dict(saved)
        return problems

    def lead(self) -> None:
        """From now on services change by themselves."""
        self._before_became = None
        for service in (self.membership, self.mptcp, self.subflow_routes):
            service.lead()
        if self.secret is None:
            self._use_secret(new_secret())
            self.event_loop.saver.note()

    def to_save(self, state: State) -> dict[str, Any]:
        """What a new controller needs, by service."""
        return {
            "sessions": self.sessions.to_save(),
            "members": self.membership.to_save(),
            "reservations": self.reservations.to_save(),
            "access_rules": self.access_rules.to_save(),
            "ncasts": self.ncasts.to_save(),
            "connections": self.mptcp.to_save(self.subflow_routes.routed),
            "preferences": self.directory.to_save(),
            "quotas": self.owners.to_save(),
            "boxes": self.boxes.to_save(),
            "places": saved_places(state.places),
            "addresses": saved_addresses(state.reported),
            **(
                {}
                if self.secret is None
                else {"seals": {"secret": self.secret, "labels": bool(self.context.labels.secret)}}
            ),
        }

    # -- running

    def waits(self) -> set[str]:
        """Switches, agents and clients that have not confirmed what services want of them. While another controller
        leads: only clients that have not answered this one.
        """
        own = self.multihomed.waits()
        if not self.event_loop.leads:
            return own
        services = (self.handovers, self.ncasts, self.sessions, self.reservations, self.access_rules, self.directory)
        return {who for service in services for who in service.waits()} | own

    def device_tokens(self, settings: Settings) -> DeviceTokens:
        """By which tokens agents and radios are known: those of the settings, and those of adopted boxes."""
        known = settings.device_tokens
        return replace(known, own={**known.own, **self.boxes.tokens})

    def resources(self) -> list[Blueprint]:
        """What REST shows of them."""
        return [
            plugins.blueprint(self.plugins),
            handovers.blueprint(self.handovers),
            ncasts.blueprint(self.ncasts),
            sessions.blueprint(self.sessions),
            reservations.blueprint(self.reservations),
            access_rules.blueprint(self.access_rules),
            clients.blueprint(self.directory),
            connections.blueprint(self.mptcp),
            multihomed.blueprint(self.multihomed),
            quotas.blueprint(self.owners),
            *boxes.blueprints(self.boxes),
        ]

    def _leading(self, work: Callable[[], object]) -> Callable[[], None]:
        """What is done only while this controller leads."""

        def worked() -> None:
            if self.event_loop.leads:
                work()

        return worked

    def start(self) -> None:
        """Everything that works by itself; requests of plugins are answered already."""
        exception = self.event_loop.exception
        shim.spawn(repeat, self.meter.once, INTERVAL_S, "the meter of sessions", exception)
        shim.spawn(repeat, self._leading(self.membership.once), TICK_S, "membership of sessions", exception)
        if self.settings.mptcp.recognise:
            for service, every_s, name in (
                (self.mptcp, MPTCP_TICK_S, "the service of MPTCP connections"),
                (self.subflow_routes, ROUTES_TICK_S, "the routes of subflows"),
                (self.subflow_ends, ROUTES_TICK_S, "the ends of subflows"),
            ):
                shim.spawn(repeat, self._leading(service.once), every_s, name, exception)
        shim.spawn(repeat, self._leading(self.policies.turn), EVERY_S, "the service of policies", exception)
        shim.spawn(self.clients.run)
        self.plugins.start()
        if self.sfnet is not None:
            self.sfnet.start()

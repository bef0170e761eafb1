"""The Ryu application (``ryu-manager hyroads.controller.app``): hands the framework's events to the coordinator."""

from __future__ import annotations

import logging
import os
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial, wraps
from pathlib import Path
from typing import Any

from hyroads.controller import ryu_shim as shim
from hyroads.controller.agents import AgentServer
from hyroads.controller.control.governors import Governors
from hyroads.controller.control.latency import Latency
from hyroads.controller.control.learning import Learning, RadioMeter
from hyroads.controller.control.pair_tests import PairTests, TestedSource
from hyroads.controller.control.source import Source
from hyroads.controller.coordinator import Coordinator
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.multicast import GroupRate
from hyroads.controller.core.services.view import NetworkView
from hyroads.controller.events import EventLog
from hyroads.controller.feed import Feed
from hyroads.controller.log_limit import WarningLimit
from hyroads.controller.netfile_io import read_file
from hyroads.controller.numbering import Numbers
from hyroads.controller.ofp import guard
from hyroads.controller.ofp.errors import OpenFlowError
from hyroads.controller.ofp.packet_in import table_of
from hyroads.controller.ofp.pipeline import Table
from hyroads.controller.ofp.port_stats import MULTIPART_PORT_STATS
from hyroads.controller.ofp.wire import MULTIPART_FLOW, MULTIPART_GROUP_DESC, MULTIPART_REPLY, PACKET_IN
from hyroads.controller.planning_options import loop_options_of
from hyroads.controller.service import ControllerService
from hyroads.controller.services.client_book import ClientBook
from hyroads.controller.services.clients import ClientDesk
from hyroads.controller.services.declared_clients import interfaces_of
from hyroads.controller.services.handover_metrics import handover_metrics
from hyroads.controller.services.handover_mover import HandoverMover, whole_view
from hyroads.controller.services.handovers import HandoverDesk
from hyroads.controller.services.managers import DEFAULT, Managers
from hyroads.controller.services.membership import MembershipDesk
from hyroads.controller.services.ncasts import NCastDesk
from hyroads.controller.services.network_view import network_view
from hyroads.controller.services.office import CoordinatorOffice
from hyroads.controller.services.pair_tests import PairTestDesk, testable_links
from hyroads.controller.services.plugin_discovery import discover
from hyroads.controller.services.plugin_metrics import plugin_metrics
from hyroads.controller.services.plugins import PluginDesk
from hyroads.controller.services.policies import PolicyDesk
from hyroads.controller.services.requests import Requests
from hyroads.controller.services.reservation_office import ReservationOffice
from hyroads.controller.services.reservations import ReservationDesk
from hyroads.controller.services.ryu_queries import RyuQueries
from hyroads.controller.services.session_meter import SessionMeter
from hyroads.controller.services.session_office import SessionOffice, known_hosts, ports_of_hosts
from hyroads.controller.services.sessions import SessionDesk
from hyroads.controller.services.sfnet import SfnetDesk
from hyroads.controller.services.steering import Steering
from hyroads.controller.services.steering_mover import SteeringMover
from hyroads.controller.settings import IDLE, MEASURED, Endpoint, load
from hyroads.controller.state import Fabric, State
from hyroads.controller.state_store import Store, declared, to_save
from hyroads.controller.switch_server import SwitchServer, tls_context
from hyroads.controller.switches import SwitchSession
from hyroads.controller.version import version
from hyroads.plugins.registry import Selection
from hyroads.rest import clients, events, handovers, ncasts, pair_tests, plugins, reservations, ryu, sessions
from hyroads.rest.access import Limit
from hyroads.rest.api import create_app
from hyroads.rest.contract import Token

LOG = logging.getLogger("hyroads.controller")
MAX_BAD_MESSAGES = 20
_KIND = struct.Struct("!xBxxxxxxH")


def _guarded(handler: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """The framework swallows what its handlers raise; here it is logged with its context and counted first."""

    @wraps(handler)
    def guarded(self: Any, event: Any) -> None:
        try:
            handler(self, event)
        except Exception as error:  # noqa: BLE001 - logged, counted, shown in health; the next event must be handled
            self.coordinator.exception(handler.__name__, error)

    return guarded


class HyRoads(shim.AppBase):  # type: ignore[misc]
    """One per process. Everything that can be wrong with files is found here, before anything listens."""

    OFP_VERSIONS = shim.OPENFLOW_VERSIONS
    LOGGER_NAME = "hyroads.controller"

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        _set_up_log()
        self.settings = load(os.environ)
        network = read_file(self.settings.network, measured=self.settings.capacities == MEASURED)
        access = self.settings.access
        self.fabric = Fabric.of(network, self.settings.network, guards=access.guard, dhcp=access.dhcp_servers)
        self.store = Store(self.settings.state_file)
        saved, problems = self.store.load(network)
        for problem in problems:
            LOG.warning("something saved is left out: %s", problem)
        flows = declared(network, saved)
        self.feed = Feed(self.fabric, self.settings, time.monotonic)
        how = loop_options_of(self.fabric, self.settings)
        meter = RadioMeter(self.feed.inbox, shim.later)
        self.learning = Learning(meter, margin=how.margin, tcp_margin=how.tcp_margin, slot_s=how.slot_s)
        source, tests = self._pair_tests()
        self.event_log = EventLog(time.time, shim.Signal())
        self.coordinator = Coordinator(
            self.fabric,
            self.settings,
            flows,
            saved.numbers,
            clock=time.monotonic,
            save=self._save,
            confined=saved.confined,
            source=source,
            governor=Governors({"bandit": self.learning, "latency": Latency(), **tests}),
            events=self.event_log,
        )
        self.pair_tests = PairTestDesk(self.coordinator, tests.get("pair tests"))
        self._begin_plugins()
        preferred: dict[str, str] = {}
        managers = Managers(self.plugin_desk.managers, Selection(DEFAULT, by_client=preferred))
        self.handover_desk = HandoverDesk(
            CoordinatorOffice(self.coordinator),
            self.event_log.publish,
            time.monotonic,
            time.time,
            managers,
        )
        self.ncast_desk = NCastDesk(CoordinatorOffice(self.coordinator), self.event_log.publish, time.monotonic)
        self.coordinator.followers += [self.handover_desk.advance, self.ncast_desk.advance]
        self._begin_policies()
        self.coordinator.collectors.append(partial(plugin_metrics, self.plugin_desk))
        self.coordinator.collectors.append(partial(handover_metrics, self.handover_desk.seconds))
        self.clients = ClientDesk(
            self.fabric, self.settings.access, self.coordinator, self.event_log.publish, time.monotonic
        )
        self.steering = Steering(self.clients, lambda: self.agents.radios, self.event_log.publish, time.monotonic)
        self.agents = AgentServer(
            self.coordinator,
            self.fabric.addressing.agents,
            self.settings.timings,
            self.settings.agent_token,
            time.monotonic,
            radios=replace(self.feed.radios, stations=self.steering),
            markers=self.coordinator.marks,
        )
        self.queries = RyuQueries(self.coordinator)
        self._begin_sessions(saved.services)
        self.client_book = ClientBook(
            self.clients,
            self.steering,
            interfaces_of(self.fabric),
            managers=preferred,
            check_manager=managers.named,
            clock=time.monotonic,
        )
        self.policy_desk.may_steer = self.client_book.may_steer
        self.policy_desk.movers.append(SteeringMover(self.clients, self.steering, self.coordinator))
        self._statistics: dict[tuple[int, ...], Callable[[SwitchSession, bytes], None]] = {
            (MULTIPART_REPLY, MULTIPART_FLOW): self._flow_stats,
            (MULTIPART_REPLY, MULTIPART_GROUP_DESC): SwitchSession.on_groups,
            (MULTIPART_REPLY, MULTIPART_PORT_STATS): self.feed.port_stats,
        }
        self._connections: dict[int, shim.Connection] = {}
        self._bad: dict[int, int] = {}
        tls = self.settings.tls
        context = tls_context(tls, _document()) if tls else None
        self._listeners = {name: _listen(name, getattr(self.settings, name)) for name in ("openflow", "agents", "rest")}
        switches = len(self.fabric.addressing.dpid)
        server = SwitchServer(self._listeners["openflow"], context, switches, self._bad_connection)
        shim.replace_switch_server(server.serve)
        # A dead switch is noticed by unanswered echoes. Without a port the framework would listen on the old one, too.
        port = self.settings.openflow.port
        shim.set_defaults(ofp_tcp_listen_port=port, echo_request_interval=2.0, maximum_unreplied_echo_requests=2)
        shim.guard_parser(self._may_parse)

    def _begin_plugins(self) -> None:
        found, left_out = discover(self.settings.plugins, _document())
        for what in left_out:
            LOG.warning("%s", what)
        self.requests = Requests()
        self.plugin_desk = PluginDesk(
            found,
            self.requests,
            self.event_log,
            self._view,
            time.monotonic,
            policies=self.settings.policies,
            defect=self.coordinator.exception,
        )
        self._tokens = [Token(t.name, t.token, t.role) for t in self.settings.api_tokens]
        self.sfnet = self._sfnet()

    def _begin_policies(self) -> None:
        self.mover = HandoverMover(self.handover_desk, self.coordinator, self.feed.inbox)
        self.policy_desk = PolicyDesk(
            self.plugin_desk.policies,
            partial(network_view, self.coordinator),
            self.event_log.publish,
            self.coordinator.exception,
            time.monotonic,
        )
        self.policy_desk.movers.append(self.mover)
        self.plugin_desk.on_managers = self.coordinator.wake

    def _begin_sessions(self, saved: Mapping[str, Any]) -> None:
        coordinator = self.coordinator
        find = known_hosts(self.fabric.addressing, lambda: self.clients.state)
        rate = GroupRate.NEIGHBOURS if self.settings.group_frames else GroupRate.NEVER
        self.session_desk = SessionDesk(SessionOffice(coordinator), find, group_rate=rate)
        coordinator.before_push.append(self.session_desk.follow)
        coordinator.additions.append(self.session_desk.added_to)
        self.clients.listeners.append(lambda notice: self.session_desk.moved(notice.mac))
        self.session_meter = SessionMeter(
            coordinator.switches, lambda: self.session_desk.sessions, self.session_desk.measured, time.monotonic
        )
        ports = ports_of_hosts(self.fabric.addressing)
        self.membership = MembershipDesk(self.session_desk, ports, time.monotonic, coordinator.fault)
        self.reservation_desk = ReservationDesk(ReservationOffice(coordinator), self.session_desk)
        coordinator.followers.append(self.reservation_desk.follow)
        problems = self.session_desk.restore(saved.get("sessions"))
        for problem in [*problems, *self.reservation_desk.restore(saved.get("reservations"))]:
            LOG.warning("something saved is left out: %s", problem)

    def start(self) -> None:
        """Called by the framework once all applications are there."""
        super().start()
        settings = self.settings
        service = ControllerService(self.coordinator, Path(settings.network).name, self.feed.document)
        limits = settings.api_limits
        resources = [
            events.blueprint(self.event_log, max_listeners=limits.listeners),
            plugins.blueprint(self.plugin_desk),
            *ryu.blueprints(self.queries),
            handovers.blueprint(self.handover_desk),
            ncasts.blueprint(self.ncast_desk),
            sessions.blueprint(self.session_desk),
            reservations.blueprint(self.reservation_desk),
            clients.blueprint(self.client_book),
            pair_tests.blueprint(self.pair_tests),
        ]
        web = create_app(
            service,
            self._tokens,
            resources=resources,
            limit=Limit(limits.requests_per_s, limits.burst),
            version=version(),
            on_defect=self.coordinator.exception,
            pause=lambda: shim.sleep(0),
        )
        shim.spawn(self.coordinator.run)
        shim.spawn(self.session_meter.run, self.coordinator.exception)
        shim.spawn(self.membership.run, self.coordinator.exception)
        shim.spawn(self.coordinator.run_slots)
        shim.spawn(self.coordinator.saver.run)
        shim.spawn(self.clients.run)
        shim.spawn(self.pair_tests.run)
        self.feed.start(self.coordinator)
        self.requests.use(web)
        self.plugin_desk.start()
        shim.spawn(self.policy_desk.run)
        if self.sfnet is not None:
            self.sfnet.start()
        shim.spawn(self.agents.serve, self._listeners["agents"])
        shim.spawn(shim.serve_wsgi, self._listeners["rest"], web, logging.getLogger("hyroads.rest.access"))
        LOG.info(
            "HyRoads %s: %s, %d nodes, %d links, %d flows; OpenFlow %s, agents %s, REST %s",
            version(),
            settings.network,
            len(self.fabric.network.nodes),
            len(self.fabric.network.links),
            len(self.coordinator.state.flows),
            *(f"{e.host}:{e.port}" for e in (settings.openflow, settings.agents, settings.rest)),
        )

    def _pair_tests(self) -> tuple[Source | None, dict[str, PairTests]]:
        """What the loop measures with, and the tests that overrule what it says of interference."""
        source = self.feed.source
        if source is None or self.settings.pair_tests != IDLE:
            return source, {}
        tested = TestedSource(source, self.fabric.network)
        tests = PairTests(self.fabric.network, testable_links(self.fabric), tested.heard)
        tested.follow(tests)
        return tested, {"pair tests": tests}

    # -- OpenFlow

    @shim.on(shim.ofp_event.EventOFPStateChange, [shim.MAIN, shim.DEAD])
    @_guarded
    def connection_changed(self, event: Any) -> None:
        """A switch finished its handshake, or its connection ended."""
        if event.state == shim.MAIN:
            connection = shim.Connection(event.datapath)
            self._connections[connection.key] = connection
            self.coordinator.switch_up(connection)
        else:
            key = id(event.datapath)
            self._bad.pop(key, None)
            gone = self._connections.pop(key, None)
            if gone is not None:
                self.coordinator.switch_gone(gone)

    @shim.on(shim.ofp_event.EventOFPPortStateChange, [shim.MAIN])
    @_guarded
    def ports_changed(self, event: Any) -> None:
        """A port came, went or changed."""
        self.coordinator.switch_ports(shim.Connection(event.datapath))
        self.clients.wake()

    @shim.on(shim.ofp_event.EventOFPBarrierReply, [shim.MAIN])
    @_guarded
    def barrier_answered(self, event: Any) -> None:
        """Everything before a barrier is in force."""
        session = self.coordinator.session_of(shim.Connection(event.msg.datapath))
        if session is not None:
            session.on_barrier(event.msg.xid)

    @shim.on(shim.ofp_event.EventOFPErrorMsg, [shim.MAIN])
    @_guarded
    def refused(self, event: Any) -> None:
        """A switch refused a message."""
        if self.queries.refused(event.msg.datapath, bytes(event.msg.buf)):
            return
        session = self.coordinator.session_of(shim.Connection(event.msg.datapath))
        if session is not None:
            session.on_error(bytes(event.msg.buf))

    def _may_parse(self, datapath: Any, message: bytes) -> bool:
        """In front of the framework's parser: keeps malformed messages from it, and statistics, which are ours."""
        try:
            guard.check(message)
            if message[1] == PACKET_IN:
                return self._punted(datapath, message)
            if len(message) >= 12 and self.queries.take(datapath, message):
                return False
            handler = self._statistics.get(_KIND.unpack_from(message)) if len(message) >= 10 else None
            if handler is not None:
                session = self.coordinator.session_of(shim.Connection(datapath)) if datapath.id is not None else None
                if session is not None:
                    handler(session, message)
                return False
        except OpenFlowError as error:
            self._malformed(datapath, error)
            return False
        return True

    def _punted(self, datapath: Any, message: bytes) -> bool:
        session = self.coordinator.session_of(shim.Connection(datapath)) if datapath.id is not None else None
        if session is not None and table_of(message) == Table.CLASSIFY:
            self.membership.packet_in(session, message)
        elif session is not None:
            self.clients.packet_in(session, message)
        return False

    def _flow_stats(self, session: SwitchSession, message: bytes) -> None:
        spoke = session.on_flow_stats(message)
        if spoke:
            self.clients.heard(session, spoke)
        if session.is_read:
            self.clients.wake()

    def _malformed(self, datapath: Any, error: OpenFlowError) -> None:
        """A bad message is skipped; a peer that sends many is cut off."""
        self.coordinator.counters["malformed_openflow"] += 1
        peer = shim.Connection(datapath)
        count = self._bad[peer.key] = self._bad.get(peer.key, 0) + 1
        self.coordinator.fault(f"OpenFlow peer {peer.peer}", f"malformed message skipped: {error}")
        if count >= MAX_BAD_MESSAGES:
            self._bad.pop(peer.key)
            peer.close()

    def _bad_connection(self, peer: str, what: str) -> None:
        self.coordinator.counters["malformed_openflow"] += 1
        self.coordinator.fault(f"OpenFlow peer {peer}", what)

    def _view(self) -> NetworkView:
        return whole_view(self.coordinator, self.mover)

    def _sfnet(self) -> SfnetDesk | None:
        if self.settings.sfnet is None:
            return None
        where = (self.settings.sfnet, self._tokens, self.requests, self.event_log)
        return SfnetDesk(*where, clock=time.monotonic, document=_document())

    def _save(self, state: State, numbers: Numbers) -> None:
        try:
            # Syncing a disk takes as long as it likes.
            services = {"sessions": self.session_desk.to_save(), "reservations": self.reservation_desk.to_save()}
            flows = state.flows.values()
            shim.aside(self.store.save, to_save(self.fabric.network, flows, numbers, state.confined, services))
        except OSError as error:
            self.coordinator.fault("state file", f"can't be written: {error.strerror}")


def _set_up_log() -> None:
    """One line per event; ours from INFO on, whatever the framework's level is."""
    logging.getLogger("hyroads").setLevel(min(logging.INFO, logging.getLogger().level or logging.INFO))
    # Every request of a poller is no event.
    logging.getLogger("hyroads.rest.access").setLevel(logging.WARNING)
    limit = WarningLimit()
    for handler in logging.getLogger().handlers:
        handler.addFilter(limit)
        if handler.formatter is None:
            handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))


def _document() -> str:
    """What an error in the settings names."""
    return os.environ.get("HYROADS_CONFIG") or "settings"


def _listen(name: str, endpoint: Endpoint) -> Any:
    try:
        return shim.listen(endpoint.host, endpoint.port)
    except OSError as error:
        where = f"{endpoint.host}:{endpoint.port}"
        raise ConfigError(_document(), f"listen.{name}", f"can't listen on {where}: {error.strerror}") from error

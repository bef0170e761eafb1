"""The Ryu application (``ryu-manager hyroads.controller.app``): passes the framework's events to the event loop."""

from __future__ import annotations

import logging
import os
import ssl
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flask import Flask

from hyroads.controller import version
from hyroads.controller.agents.clients import ClientAccess
from hyroads.controller.agents.server import AgentServer
from hyroads.controller.api.live import LiveDocument
from hyroads.controller.api.metrics import refused_changes
from hyroads.controller.api.service import ControllerService
from hyroads.controller.api.views import RyuQueries, slices_before
from hyroads.controller.app.wiring import RestoredState, Services, restored_in
from hyroads.controller.control.latency import Latency
from hyroads.controller.control.learning import Learning
from hyroads.controller.control.pair_tests import PairTests
from hyroads.controller.control.rate_override import RateOverrides
from hyroads.controller.control.restored_routes import RoutesDocument, fingerprint, restored_routes
from hyroads.controller.control.routes import Routes
from hyroads.controller.control.source import Source
from hyroads.controller.core.addressing import Numbers
from hyroads.controller.core.admission import Limits
from hyroads.controller.core.attention import AttendedClock
from hyroads.controller.core.checking import Endpoint, TlsFiles
from hyroads.controller.core.errors import ConfigError, GuardError, OpenFlowError
from hyroads.controller.core.identity import SWITCH_ROLES, CertificateRole
from hyroads.controller.core.network import Network
from hyroads.controller.files.documents import read_file
from hyroads.controller.files.state import Origin
from hyroads.controller.files.tls import CertificateCheck, Revoked, certificate_ends, server_side
from hyroads.controller.framework import ryu_shim as shim
from hyroads.controller.framework.connections import Connections
from hyroads.controller.framework.http_server import serve_wsgi
from hyroads.controller.framework.service_manager import ServiceManager
from hyroads.controller.model.events import EventLog
from hyroads.controller.model.state import State, TopologyContext, initial, with_reported
from hyroads.controller.ofp import guard, handshake, wire
from hyroads.controller.ofp.access import SYN_COOKIES
from hyroads.controller.ofp.pipeline import Table
from hyroads.controller.ofp.readback import cookie_of_packet_in, table_of
from hyroads.controller.runtime.announcer import Announcer
from hyroads.controller.runtime.event_loop import EventLoop
from hyroads.controller.runtime.faults import JsonLines, LogLimit
from hyroads.controller.runtime.from_settings import loop_options_of
from hyroads.controller.runtime.persistence import Store, ToSave
from hyroads.controller.runtime.telemetry import Telemetry
from hyroads.controller.services.mptcp_saved import SavedConnections
from hyroads.controller.services.pair_tests import PairTestService, testable_links
from hyroads.controller.settings.controller import IDLE, MEASURED, load
from hyroads.controller.switches.reading import ECHO_REQUEST
from hyroads.controller.switches.server import SwitchIdentity, SwitchServer
from hyroads.controller.switches.sessions import SwitchSession
from hyroads.rest import access, events, ha, identity, live, pair_tests, reload, ryu, slices
from hyroads.rest.access import Access
from hyroads.rest.api import create_app
from hyroads.rest.contract import NotSavedError, StoreAwayError
from hyroads.rest.metrics import certificates

from .life import Followers, Life, limit_of
from .regions import Regions

if TYPE_CHECKING:
    from hyroads.controller.ha.standby import Standby

LOG, REST_LOG = logging.getLogger("hyroads.controller"), logging.getLogger("hyroads.rest.access")
MAX_BAD_MESSAGES = 20
REST_LIMITS = Limits(strangers=512, known=256, within_s=10.0, each=512)
TURN_S, ATTENDED_S = 0.05, 0.15
"""How often the process notes that it reads what comes in, and how long it may be kept from it unnoticed."""
ECHO_S, SWITCH_DEAD_S = 2.0, 5.0
_FROM = {Origin.FILE: "what is left of it", Origin.OLDER: "the older copy", Origin.NOTHING: "nothing"}
_KIND = struct.Struct("!xBxxxxxxH")
_RULES = (wire.MULTIPART_REPLY, wire.MULTIPART_FLOW)


def _guarded(handler: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """The framework swallows what its handlers raise; here it is logged with its context and counted first."""

    @wraps(handler)
    def guarded(self: Any, event: Any) -> None:
        try:
            handler(self, event)
        except Exception as error:  # noqa: BLE001 - logged, counted, shown in health; the next event must be handled
            self.event_loop.exception(handler.__name__, error)

    return guarded


class HyRoads(shim.AppBase):  # type: ignore[misc]
    """One per process. Everything that can be wrong with files is found here, before anything listens."""

    OFP_VERSIONS = shim.OPENFLOW_VERSIONS
    LOGGER_NAME = "hyroads.controller"

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        _set_up_log()
        self.settings = load(os.environ)
        self.revoked = Revoked(self.settings.revoked)
        network = read_file(self.settings.network, measured=self.settings.capacities == MEASURED)
        ports = self.settings.access
        self.store = Store(self.settings.state_file)
        # Controllers of other regions write labels of this one.
        secret = self.store.label_secret() if self.settings.region is None else None
        self.context = TopologyContext.of(
            network,
            self.settings.network,
            guards=ports.guard,
            dhcp=ports.dhcp_servers,
            routers=ports.routers,
            closed=ports.closed,
            all_routes_nodes=self.settings.all_routes_nodes,
            region=self.settings.region.name if self.settings.region is not None else None,
            label_secret=bytes.fromhex(secret or ""),
            link_mtu=self.settings.link_mtu,
            seals_links=self.settings.seals_links,
        )
        self._fingerprints: tuple[Network, str] | None = None
        self._routes_document, self._to_save = RoutesDocument(), ToSave()
        restored, problems = restored_in(self.store, self.context, SavedConnections(self.settings.mptcp.most_routed))
        self.attended = AttendedClock(time.monotonic, ATTENDED_S)
        self.telemetry = Telemetry(self.context, self.settings, time.monotonic, lambda: self.agents.late_s)
        self.event_log = EventLog(time.time, shim.Signal(), several=self.settings.ha is not None)
        source, tests = self._pair_tests()
        self.event_loop = self._new_event_loop(restored, source, tests)
        self.pair_tests = PairTestService(self.event_loop, tests.get("pair tests"))
        self.services = Services(self.event_loop, self.telemetry, lambda: self.agents.radios, restored, _document())
        self._tell_of_state_file(problems + self.services.left_out)
        self.agents = self._agents()
        self.standby = self._standby()
        self.regions = self._regions()
        self.announcer = Announcer(self.settings, _document(), lambda: self.event_loop.leads)
        followers = Followers(self.services, self.agents, lambda: self._switches, self.revoked, lambda: self._access)
        manager = ServiceManager()
        self.life = Life(self.event_loop, followers, os.environ, manager=manager, close=self._close)
        self.queries = RyuQueries(self.event_loop)
        self._begin_openflow()

    def _standby(self) -> Standby | None:
        """Hot standby, if the settings ask for it."""
        if self.settings.ha is None:
            return None
        # Without it nothing of it is imported.
        from .standby import begin_standby

        how = self.settings.ha, self.event_loop, lambda: self.services, _document()
        return begin_standby(*how, fingerprint=self._fingerprint, learning=self.learning, revoked=self.revoked)

    def _regions(self) -> Regions | None:
        """The neighbours, if this is the controller of a region."""
        settings = self.settings.region
        if settings is None:
            return None
        endpoint, standby = settings.listen or self.settings.peer, self.standby
        epoch = (lambda: 0) if standby is None else lambda: standby.epoch
        return Regions(self.event_loop, settings, endpoint, _document(), epoch, self.revoked)

    def _tell_of_state_file(self, left_out: Sequence[ConfigError]) -> None:
        """What was wrong with it; and what is left out of it is not lost."""
        content, tell = self.store.content, self.event_loop.events.publish
        for broken in content.broken:
            self.event_loop.fault("state file", f"{broken}; started from {_FROM[content.origin]}")
            tell("state_file.broken", {**asdict(broken), "started_from": content.origin.value})
        for problem in left_out:
            LOG.warning("something saved is left out: %s", problem)
        if left_out:
            copy = self.store.copy_aside()
            where = f"the file as it was is {copy}" if copy else "no copy of the file could be made"
            self.event_loop.fault("state file", f"{len(left_out)} entries are left out; {where}")
            tell("state_file.left_out", {"entries": len(left_out), "copy": copy})

    def _report_other_applications(self) -> None:
        """Report applications beside this one: switches' replies do not reach them, so that their answers are false."""
        if others := shim.other_applications("hyroads"):
            what = f"{', '.join(others)}: run in a process apart from HyRoads; in this process the answers are false"
            self.event_loop.fault("other applications", what)

    def _pair_tests(self) -> tuple[Source | None, dict[str, PairTests]]:
        """What the loop measures with, and the tests that overrule what it says of interference."""
        source = self.telemetry.ingest if self.settings.capacities == MEASURED else None
        if source is None or self.settings.pair_tests != IDLE:
            return source, {}
        tests = PairTests(self.context.network, testable_links(self.context), source)
        return tests, {"pair tests": tests}

    def _new_event_loop(
        self, restored: RestoredState, source: Source | None, tests: Mapping[str, PairTests]
    ) -> EventLoop:
        how = loop_options_of(self.context.network, self.settings)
        ingest = self.telemetry.ingest

        def read_soon(node: str, delay_s: float) -> None:
            shim.later(delay_s, lambda: ingest.read_now(node))

        self.learning = Learning(
            ingest.radios.readings, read_soon, margin=how.margin, tcp_margin=how.tcp_margin, slot_s=how.slot_s
        )
        return EventLoop(
            self.context,
            self.settings,
            with_reported(
                initial(self.context, restored.flows, restored.constrained, restored.places), restored.addresses
            ),
            restored.numbers,
            clock=time.monotonic,
            attended=self.attended,
            save=self._save,
            saved_in=("state file", NotSavedError) if self.settings.ha is None else ("etcd", StoreAwayError),
            source=source,
            override=RateOverrides({"bandit": self.learning, "latency": Latency(), **tests}),
            routes=self._restored_routes(restored),
            events=self.event_log,
        )

    def _restored_routes(self, restored: RestoredState) -> Routes:
        """The paths that flows had before, as far as they are planned on the same network file."""
        document = restored.services.get("routes")
        if document is None:
            return {}
        specs = (flow.spec for flow in restored.flows)
        return restored_routes(document, self._fingerprint(self.context.network), specs, restored.numbers)

    def _fingerprint(self, network: Network) -> str:
        if self._fingerprints is None or self._fingerprints[0] is not network:
            self._fingerprints = (network, fingerprint(network))
        return self._fingerprints[1]

    def _agents(self) -> AgentServer:
        deployer = self.event_loop.agents
        server = AgentServer(
            self.event_loop,
            self.context.own_agents,
            self.settings.timings,
            self.services.device_tokens(self.settings),
            time.monotonic,
            attended=self.attended,
            context=_tls(self.settings.agents_tls, "agents_tls"),
            check=CertificateCheck.of(CertificateRole.NODE, CertificateRole.CLIENT, revoked=self.revoked),
            conflict=self.event_loop.faults.conflict,
            radios=self.telemetry.radios(self.services.steering),
            markers=self.event_loop.markers,
            clients=ClientAccess(self.services.multihomed, self.settings.clients),
            epoch_seen=deployer.epoch_seen,
            urgent=self.event_loop.urgency,
            seals_links=self.settings.seals_links,
        )
        self.services.boxes.tokens_changed = self._use_tokens
        deployer.others.append(server.lead)
        self.event_loop.before_slot.append(server.flush)
        return server

    def _use_tokens(self) -> None:
        """Boxes were adopted or have left."""
        settings = self.event_loop.settings
        self.agents.use_tokens(self.services.device_tokens(settings), settings.clients)

    def _begin_openflow(self) -> None:
        """Listen; the framework's own server is replaced by one that we can bound."""
        self._statistics: dict[tuple[int, ...], Callable[[SwitchSession, bytes], None]] = {
            (wire.MULTIPART_REPLY, wire.MULTIPART_GROUP_DESC): SwitchSession.on_groups,
            (wire.MULTIPART_REPLY, wire.MULTIPART_METER_FEATURES): SwitchSession.on_meter_features,
            (wire.MULTIPART_REPLY, wire.MULTIPART_METER_CONFIG): SwitchSession.on_meter,
            (wire.MULTIPART_REPLY, wire.MULTIPART_PORT_STATS): self.telemetry.port_stats,
            # No kind of statistics, but the upper half of a role, which is 0.
            (wire.ROLE_REPLY, 0): SwitchSession.on_role,
        }
        self._connections: dict[int, shim.Connection] = {}
        self._bad: dict[int, int] = {}
        context = _tls(self.settings.tls, "tls")
        self._rest_context = _tls(self.settings.rest_tls, "rest_tls")
        self._listeners = {name: _listen(name, getattr(self.settings, name)) for name in ("openflow", "agents", "rest")}
        switches = len(self.context.own_switches)
        is_certified = self.settings.tls is not None and self.settings.tls.ca is not None
        identity = SwitchIdentity(
            self.context.node_of_dpid.get,
            check=CertificateCheck.of(*SWITCH_ROLES, revoked=self.revoked) if is_certified else None,
            any_switch=self.settings.any_switch,
            ask=self._ask_for_life,
            conflict=partial(self.event_loop.faults.conflict, "switch"),
        )
        openflow = self._listeners["openflow"], context, switches, identity
        server = SwitchServer(*openflow, self._bad_connection, self.attended)
        self._switches = server
        shim.replace_switch_server(server.serve)
        shim.look_after_switches(self._may_parse, ECHO_REQUEST, echo_s=ECHO_S, dead_s=SWITCH_DEAD_S)
        # Without a port the framework would listen on the old one, too.
        shim.set_defaults(ofp_tcp_listen_port=self.settings.openflow.port)
        shim.guard_parser(self._may_parse, self._malformed)

    def start(self) -> None:
        """Called by the framework once all applications are there."""
        super().start()
        self._report_other_applications()
        web = self._web()
        for work in (self._attend, self.event_loop.run, self.event_loop.run_slots, self.event_loop.saver.run):
            shim.spawn(work)
        self.pair_tests.start()
        self.telemetry.start(self.event_loop)
        self.services.requests.use(web)
        self.services.start()
        self.announcer.start()
        shim.spawn(self.agents.serve, self._listeners["agents"])
        places = Connections(REST_LIMITS, self.attended, self._bad_client)
        shim.spawn(serve_wsgi, self._listeners["rest"], web, REST_LOG, places, self._rest_context)
        if self.standby is not None:
            from .standby import watch_leader

            self.standby.start()
            shim.spawn(watch_leader, self.standby.instance, self.agents)
        if self.regions is not None:
            self.regions.start()
        self.life.start()
        settings = self.settings
        LOG.info(
            "HyRoads %s: %s, %d nodes, %d links, %d flows; OpenFlow %s, agents %s, REST %s",
            version(),
            settings.network,
            len(self.context.network.nodes),
            len(self.context.network.links),
            len(self.event_loop.state.flows),
            *(f"{e.host}:{e.port}" for e in (settings.openflow, settings.agents, settings.rest)),
        )

    def _attend(self) -> None:
        """Whenever this goes on, everything that had come since it slept was read."""
        while True:
            shim.sleep(TURN_S)
            self.attended.turned()
            self.agents.look()

    def _web(self) -> Flask:
        """The REST API."""
        settings = self.settings
        ends = certificate_ends(settings.tls_places)
        self.event_loop.collectors += [partial(certificates, ends), partial(refused_changes, self.event_loop.counters)]
        owners = self.services.owners
        places = self.services.directory.places
        shown = LiveDocument(
            self.event_loop, self.telemetry.traffic, places, lambda flow: owners.owner(("flows", flow))
        )
        service = ControllerService(
            self.event_loop,
            Path(self.settings.network).name,
            self.telemetry.ingest,
            self.store.content,
            traffic=self.telemetry.traffic,
            syn_copies=self.services.mptcp.syn_copies,
            waits=self.services.waits,
            standby=(lambda: None) if self.standby is None else self.standby.health,
        )
        web = create_app(
            service,
            self.services.tokens,
            resources=[
                events.blueprint(self.event_log, max_listeners=self.settings.api_limits.listeners, live=shown.live),
                live.blueprint(shown),
                *ryu.blueprints(self.queries),
                pair_tests.blueprint(self.pair_tests),
                reload.blueprint(self.life),
                ha.blueprint(self.standby),
                identity.blueprint(),
                *slices.blueprints(slices_before(self.settings.slicer), switches=False),
                *self.services.resources(),
            ],
            limit=limit_of(self.settings),
            version=version(),
            on_defect=self.event_loop.exception,
            pause=lambda: shim.sleep(0),
            requests=service.requests,
            replies=self.standby,
            saved=(lambda: None) if self.standby is None else self.event_loop.saver.wait_all,
            owners=owners,
            elsewhere=(lambda: None) if self.standby is None else partial(ha.elsewhere, self.standby),
        )
        self._access: Access = web.extensions[access.EXTENSION]
        return web

    def _close(self) -> None:
        """End the processes that were started; what is connected is left as it is."""
        self.services.plugins.stop()
        self.telemetry.stop()
        self.announcer.stop()

    # -- OpenFlow

    @shim.on(shim.ofp_event.EventOFPStateChange, [shim.MAIN, shim.DEAD])
    @_guarded
    def connection_changed(self, event: Any) -> None:
        """A switch finished its handshake, or its connection ended."""
        if event.state == shim.MAIN:
            connection = shim.Connection(event.datapath)
            if not connection.authenticated(self.context.node_of_dpid[connection.dpid]):
                connection.close()
                return
            self._connections[connection.key] = connection
            self.event_loop.switch_up(connection)
        else:
            key = id(event.datapath)
            self._bad.pop(key, None)
            gone = self._connections.pop(key, None)
            if gone is not None:
                self.event_loop.switch_gone(gone)

    @shim.on(shim.ofp_event.EventOFPPortStateChange, [shim.MAIN])
    @_guarded
    def ports_changed(self, event: Any) -> None:
        """A port came, went or changed."""
        self.event_loop.switch_ports(shim.Connection(event.datapath))
        self.services.clients.wake()

    @shim.on(shim.ofp_event.EventOFPBarrierReply, [shim.MAIN])
    @_guarded
    def barrier_answered(self, event: Any) -> None:
        """Everything before a barrier is in force."""
        session = self.event_loop.session_of(shim.Connection(event.msg.datapath))
        if session is not None:
            session.on_barrier(event.msg.xid)

    @shim.on(shim.ofp_event.EventOFPErrorMsg, [shim.MAIN])
    @_guarded
    def refused(self, event: Any) -> None:
        """A switch refused a message."""
        if self.queries.refused(event.msg.datapath, bytes(event.msg.buf)):
            return
        session = self.event_loop.session_of(shim.Connection(event.msg.datapath))
        if session is not None:
            session.on_error(bytes(event.msg.buf))

    def _may_parse(self, datapath: Any, message: bytes) -> bool:
        """In front of the framework's parser: keeps malformed messages from it, and statistics, which are ours."""
        if datapath.state != shim.MAIN and not handshake.needs(message):
            return False
        try:
            return self._is_for_parser(datapath, message)
        except OpenFlowError as error:
            self._malformed(datapath, error)
            return False

    def _is_for_parser(self, datapath: Any, message: bytes) -> bool:
        if len(message) >= 10 and _KIND.unpack_from(message) == _RULES and not self.queries.awaits(datapath, message):
            # Statistics of rules come by the hundred; their reader bounds every length by itself.
            self._hear(datapath, message, self._flow_stats)
            return False
        guard.check(message)
        if message[0] != wire.VERSION:
            raise GuardError(f"message: version {message[0]}, expected {wire.VERSION}")
        if message[1] == wire.PACKET_IN:
            return self._punted(datapath, message)
        if len(message) >= 12 and self.queries.take(datapath, message):
            return False
        handler = self._statistics.get(_KIND.unpack_from(message)) if len(message) >= 10 else None
        if handler is not None:
            self._hear(datapath, message, handler)
            return False
        return True

    def _hear(self, datapath: Any, message: bytes, handler: Callable[[SwitchSession, bytes], None]) -> None:
        session = self.event_loop.session_of(shim.Connection(datapath)) if datapath.id is not None else None
        if session is not None:
            handler(session, message)

    def _punted(self, datapath: Any, message: bytes) -> bool:
        session = self.event_loop.session_of(shim.Connection(datapath)) if datapath.id is not None else None
        if session is not None:
            session.counters.packet_ins += 1
        cookie = cookie_of_packet_in(message)
        if session is not None and cookie in SYN_COOKIES:
            self.services.mptcp.packet_in(session, message)
        elif session is not None and self.services.subflow_ends.owns(cookie):
            self.services.subflow_ends.packet_in(session, message, cookie)
        elif session is not None and table_of(message) == Table.CLASSIFY:
            self.services.membership.packet_in(session, message)
        elif session is not None and table_of(message) == Table.FORWARD and self.services.pairs is not None:
            self.services.pairs.packet_in(session, message)
        elif session is not None:
            self.services.clients.packet_in(session, message)
        return False

    def _flow_stats(self, session: SwitchSession, message: bytes) -> None:
        was_read, spoke = session.is_read, session.on_flow_stats(message)
        if spoke:
            self.services.clients.heard(session, spoke)
        if session.is_read and not was_read:
            self.services.clients.wake()

    def _malformed(self, datapath: Any, error: OpenFlowError) -> None:
        """A bad message is skipped; a peer that sends many is cut off."""
        peer = shim.Connection(datapath)
        count = self._bad[peer.key] = self._bad.get(peer.key, 0) + 1
        self._bad_connection(peer.peer, f"malformed message skipped: {error}")
        if count >= MAX_BAD_MESSAGES:
            self._bad.pop(peer.key)
            peer.close()

    def _bad_connection(self, peer: str, what: str) -> None:
        self.event_loop.counters["malformed_openflow"] += 1
        self.event_loop.stranger(f"OpenFlow peer {peer}", what)

    def _ask_for_life(self, dpid: int) -> None:
        session = self.event_loop.switches.get(self.context.node_of_dpid.get(dpid, ""))
        if session is not None:
            session.connection.send(wire.message(b"", session.xid(), wire.ECHO_REQUEST))

    def _bad_client(self, peer: str, what: str) -> None:
        self.event_loop.stranger(f"REST client {peer}", what)

    def _save(self, state: State, numbers: Numbers) -> None:
        if self.standby is not None:
            self.standby.save()
            return
        # Syncing a disk takes as long as it likes.
        declared, of = self.event_loop.declared, self._to_save.of
        services = self.services.to_save(state)
        if self.store.file is not None:
            network = self._fingerprint(declared)
            services["routes"] = self._routes_document.of(network, self.event_loop.live.routes, numbers)
        shim.in_thread(lambda: self.store.save(of(declared, state.flows, numbers, state.constrained, services)))


def _set_up_log() -> None:
    """One line per event; ours from INFO on, whatever the framework's level is."""
    logging.getLogger("hyroads").setLevel(min(logging.INFO, logging.getLogger().level or logging.INFO))
    # Every request of a poller is no event.
    REST_LOG.setLevel(logging.WARNING)
    shim.let_threads_log()
    limit, is_json = LogLimit(), os.environ.get("HYROADS_LOG_FORMAT") == "json"
    for handler in logging.getLogger().handlers:
        handler.addFilter(limit)
        if is_json:
            handler.setFormatter(JsonLines())
        elif handler.formatter is None:
            handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))


def _document() -> str:
    """What an error in the settings names."""
    return os.environ.get("HYROADS_CONFIG") or "settings"


def _tls(files: TlsFiles | None, place: str) -> ssl.SSLContext | None:
    return None if files is None else server_side(files, _document(), place)


def _listen(name: str, endpoint: Endpoint) -> Any:
    try:
        return shim.listen(endpoint.host, endpoint.port)
    except OSError as error:
        where = f"{endpoint.host}:{endpoint.port}"
        raise ConfigError(_document(), f"listen.{name}", f"can't listen on {where}: {error.strerror}") from error

"""The agents' server: accepts agents and access points over TCP (docs/reference/dataplane.md, section 2).

Connections of agents and access points are read by one green thread for all. The server knows the protocol and nothing
of plans: it passes on what agents report, what access points read and say of their stations
(docs/reference/telemetry.md), and what multi-homed clients tell (docs/reference/clients.md).
"""

from __future__ import annotations

import hmac
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from hyroads.controller.core.admission import Limits
from hyroads.controller.core.identity import CertificateFacts, CertificateRole, DeviceTokens, not_of_node, role_fault
from hyroads.controller.files.tls import CertificateCheck, certificate_facts
from hyroads.controller.framework import ryu_shim as shim
from hyroads.controller.framework.connections import Connections
from hyroads.controller.framework.places import Place
from hyroads.controller.framework.shared_poll import SharedPoll
from hyroads.controller.framework.tls_socket import TlsSocket
from hyroads.controller.native.messages import CHANGES, PONG, Told
from hyroads.controller.settings.controller import Timings

from .al_devices import parse_al_devices
from .changes import WHOLE_MS, DecodedReports, WholeReport
from .clients import DEAD_S, REPORT_MS, ClientAccess, allowance
from .later import LaterLines, LatestReadings, NothingUrgent, Urgent
from .lead import lead_document
from .listeners import Listener, Radios
from .markers import SequenceMarkers, parse_first, parse_passed
from .protocol import (
    AGENT,
    CLIENT,
    MAX_LINE,
    RADIO,
    VERSION,
    Hello,
    ProtocolError,
    Report,
    encode,
    parse_hello,
    parse_line,
    parse_ports,
)
from .sessions import Session, SessionColumns
from .telemetry import (
    DecodedReadings,
    parse_authentication,
    parse_bss,
    parse_station,
    parse_transition,
)

if TYPE_CHECKING:
    import ssl

    from numpy.typing import NDArray


LOG = logging.getLogger("hyroads.agents")
HELLO_WITHIN_S, TLS_WITHIN_S = 2.0, 5.0
PROBE_S, LOOK_S = 1.0, 0.01
"""Who is connected has so long at most to show that it lives when another connection says it is the same node."""
JOIN_WITHIN_S = 0.3
SPARE_CONNECTIONS = 128
# Who says something anyway is pinged only to know how long that takes, and to let it know that we live: agents give a
# controller up after 2 s, and of several they tell how long ago they heard the leader.
PING_WITHIN_S, PING_ALONE_WITHIN_S = 0.6, 1.0
USUAL_S = 0.15
"""So long whatever comes may wait to be read, on any machine."""

STARTING_S = 0.5
"""How often a report of what changed is read of each session while so many come back."""
_REPLACED = (b'{"type":"changes",', b'{"type":"radio-changes",')
"""What takes the place of a message of its own kind."""
_PONG: Mapping[str, Any] = {"type": "pong", "epoch": 0, "heard_ms": None}
"""All of a pong but its number, if the library has read it."""

_Handler = Callable[[Session, dict[str, Any]], None]
_COMMON: Mapping[str, _Handler] = {
    "ok": Session.answered,
    "error": Session.answered,
    "pong": Session.ponged,
    "ping": lambda session, message: session.send({"type": "pong", "seq": message["seq"]}),
    "unknown": lambda session, message: session.send(
        {"type": "error", "seq": message["seq"], "message": "unknown type"}
    ),
}
"""What every session may say."""


class NoTlsError(Exception):
    """The other end does not agree to TLS, or has no certificate that is taken here. It gets no answer."""


class AgentServer:
    """Accepts agents. ``nodes`` are those that have one; times come from ``clock`` (monotonic seconds). By ``attended``
    (``core.attention``; the same if it is not given) it is judged who is silent and does not answer.

    With a ``context`` the port speaks TLS; if that needs certificates, each must pass ``check`` and name its node.
    ``conflict(role, node, peer, holder)`` is told of a second session of a node whose first one lives. Whole reports
    and counters wait for what is ``urgent``. With ``seals_links`` an agent that cannot seal links is refused.
    """

    def __init__(
        self,
        listener: Listener,
        nodes: frozenset[str],
        timings: Timings,
        tokens: DeviceTokens,
        clock: Callable[[], float],
        *,
        radios: Radios,
        markers: SequenceMarkers,
        clients: ClientAccess,
        epoch_seen: Callable[[int, str], None] = lambda epoch, who: None,
        attended: Callable[[], float] | None = None,
        context: ssl.SSLContext | None = None,
        check: CertificateCheck | None = None,
        conflict: Callable[[str, str, str, str], None] = lambda role, node, peer, holder: None,
        urgent: Urgent | None = None,
        seals_links: bool = False,
    ) -> None:
        self._seals_links = seals_links
        self.sessions: dict[str, Session] = {}
        self.radios: dict[str, Session] = {}
        self.clients: dict[str, Session] = {}
        self._joining: list[Session] = []
        """Agents that have not joined, perhaps with some that have."""
        self._radios = radios
        self._clients = clients
        self._markers = markers
        self._listener = listener
        self._nodes = nodes
        self._timings = timings
        self._tokens = tokens
        self._context, self._conflict = context, conflict
        self._check = check or CertificateCheck.of(CertificateRole.NODE, CertificateRole.CLIENT)
        self._clock, self._attended = clock, attended or clock
        self._urgent = urgent = urgent or NothingUrgent()
        self._later = LaterLines(urgent, self._take_later)
        self._readings = LatestReadings(
            urgent, self._take_now, lambda session, error: session.fail(self._poll.end, error)
        )
        self._poll = SharedPoll(MAX_LINE, self._take_numbers, self._take_pongs, urgent.wait_for_flows)
        self._columns = SessionColumns()
        """Sessions that the library reads."""
        self._names = tuple(sorted(nodes | radios.nodes))
        self._place_of = {name: place for place, name in enumerate(self._names)}
        places = 2 * (len(nodes) + len(radios.nodes) + len(clients.tokens)) + SPARE_CONNECTIONS
        limits = Limits(places, places, HELLO_WITHIN_S if context is None else HELLO_WITHIN_S + TLS_WITHIN_S)
        self._connections = Connections(limits, self._attended, listener.agent_misbehaved)
        self._epoch_seen = epoch_seen
        self._epoch: int | None = None
        self._follows = False
        self._shown: dict[str, int] = {}
        """By node the greatest epoch that a device of it has shown."""
        self._to_ask: deque[Session] = deque()
        """Who was not asked for the leader yet, in this round."""
        self.leader_asked: Callable[[str], None] = lambda node: None
        """Called with a node whose agent or access point is queried for when it heard the leader."""
        self.leader_heard: Callable[[str, int, float], None] = lambda node, epoch, heard_s: None
        """Called with a node, an epoch, and when it heard the leader of that epoch."""
        self._handlers: Mapping[str, Mapping[str, _Handler]] = {
            AGENT: self._agent_handlers(),
            RADIO: self._radio_handlers(),
            CLIENT: {**_COMMON, **clients.handlers()},
        }

    def _agent_handlers(self) -> dict[str, _Handler]:
        listener, markers = self._listener, self._markers
        return {
            **_COMMON,
            "ok": self._on_ok,
            "pong": self._on_pong,
            "link": lambda session, message: listener.agent_links(session, {message["link"]: message["up"]}),
            "ports": lambda session, message: listener.agent_ports(session, parse_ports(message)),
            "report": self._on_report,
            "changes": self._on_changes,
            "passed": lambda session, message: markers.paths_passed(session.node, *parse_passed(message)),
        }

    def _radio_handlers(self) -> dict[str, _Handler]:
        listener, stations = self._radios.listener, self._radios.stations
        return {
            **_COMMON,
            "pong": self._on_pong,
            "radio": self._on_radio,
            "radio-changes": lambda session, message: listener.radio_report(session, session.reading.changed(message)),
            "station": lambda session, message: stations.station(session.node, parse_station(message)),
            "bss": lambda session, message: stations.bss(session.node, parse_bss(message)),
            "dot1x": lambda session, message: stations.authentication(session.node, parse_authentication(message)),
            "transition": lambda session, message: stations.answered(session.node, parse_transition(message)),
            "devices": lambda session, message: listener.radio_devices(session, parse_al_devices(message)),
        }

    def use_tokens(self, devices: DeviceTokens, clients: Mapping[str, str]) -> None:
        """Other tokens from now on. Who had one of its own that is not valid any more goes; others that are connected
        stay.
        """
        before, own = self._clients.tokens, self._tokens.own
        for session in [*self.sessions.values(), *self.radios.values()]:
            key = session.hello.role, session.node
            if key in own and devices.own.get(key) != own[key]:
                session.close("its token is not valid any more")
                self._ended(session)
        self._tokens, self._clients = devices, replace(self._clients, tokens=clients)
        for client in [name for name in self.clients if clients.get(name) != before.get(name)]:
            session = self.clients[client]
            session.close("its token is not valid any more")
            self._ended(session)

    def lead(self, epoch: int | None) -> None:
        """We lead with this epoch, or another one does (None): radios are told, also those that connect later.

        Agents are told by whoever deploys plans, before anything else.
        """
        self._epoch, self._follows = epoch, epoch is None
        for session in self.radios.values():
            self._tell_lead(session)

    def _tell_lead(self, session: Session) -> None:
        session.may_change = not self._follows
        if self._epoch is not None:
            session.request(lead_document(self._epoch), lambda problem: None)

    def serve(self, listener: Any) -> None:
        """Accept for ever, in the calling green thread."""
        shim.spawn(self._tick_loop)
        self._connections.serve(listener, self._serve_one)

    def _serve_one(self, connection: Any, place: Place) -> None:
        session: Session | None = None
        peer = place.peer
        try:
            facts: CertificateFacts | None = None
            if self._context is not None:
                connection = self._secured(connection)
                facts = self._checked(connection)
            lines = shim.LineReader(connection, MAX_LINE)
            session = self._greet(connection, lines, place, facts)
            if session is not None:
                shim.spawn(session.write_loop)
                self._read_loop(session, connection, lines)
        except NoTlsError as error:
            self._listener.agent_misbehaved(peer, str(error))
        except ProtocolError as error:
            self._listener.agent_misbehaved(peer, str(error))
            self._refuse(connection, session, str(error))
        except OSError as error:
            LOG.debug("agent connection %s: %s", peer, error)
        finally:
            if session is not None:
                self._ended(session)

    def flush(self) -> None:
        """Have listeners told of all counters that came so far."""
        self._poll.flush()

    def look(self) -> None:
        """To be called again and again, so that :attr:`late_s` is known."""
        self._poll.look()

    @property
    def late_s(self) -> float:
        """So late is what agents and radios say read at worst, beyond what is usual."""
        return max(0.0, max(self._poll.late_s, self._readings.late_s) - USUAL_S)

    def _secured(self, connection: Any) -> TlsSocket:
        secured = TlsSocket(connection, self._context)
        try:
            secured.handshake(TLS_WITHIN_S)
        except ConnectionError as error:
            raise NoTlsError(str(error)) from error
        return secured

    def _checked(self, connection: TlsSocket) -> CertificateFacts | None:
        """The certificate of a connection, None if the port takes none; NoTlsError, and nothing is sent, if it is not
        taken here.
        """
        if connection.certificate is None:
            return None
        facts = certificate_facts(connection.certificate)
        if problem := self._check.fault(facts):
            raise NoTlsError(problem)
        return facts

    def end_revoked(self) -> None:
        """End the sessions whose certificates are revoked now."""
        for session in [*self.sessions.values(), *self.radios.values(), *self.clients.values()]:
            problem = "" if session.shown is None else self._check.fault(session.shown)
            if problem:
                session.close(problem)
                self._ended(session)

    def _greet(
        self, connection: Any, lines: shim.LineReader, place: Place, facts: CertificateFacts | None
    ) -> Session | None:
        shim.no_delay(connection)
        line = lines.next(HELLO_WITHIN_S)
        if line is None:
            return None
        hello = parse_hello(parse_line(line))
        wanted = CertificateRole.CLIENT if hello.role == CLIENT else CertificateRole.NODE
        if facts is not None and (problem := role_fault(facts, {wanted})):
            raise NoTlsError(problem)
        problem = self._problem_of(hello, facts)
        if problem:
            # A slow answer makes guessing slow.
            shim.sleep(0.5)
            raise ProtocolError(problem)
        self._expect_node(hello)
        if hello.check:
            connection.sendall(encode({"type": "checked", "time_s": time.time()}))
            return None
        if not place.authenticated(f"{hello.role} {hello.node}"):
            return None
        session = Session(hello, place.peer, connection, self._attended)
        session.shown = facts
        session.heard_s, session.by_library = self._attended(), self._poll.can_read(connection)
        session.holds, session.settle = self._poll.holds, self._poll.settle
        welcome = {RADIO: self._welcome_radio, CLIENT: self._welcome_client}.get(hello.role, self._welcome_agent)
        return welcome(session)

    def _problem_of(self, hello: Hello, facts: CertificateFacts | None) -> str:
        """Why somebody is not whom its hello names; "" if it is: by its certificate if they are asked for, and by its
        token.
        """
        problem = "" if facts is None else not_of_node(facts.names, hello.node)
        if problem:
            return problem
        if hello.role == CLIENT:
            wanted = self._clients.tokens.get(hello.node, "")
            is_right = bool(wanted) and hmac.compare_digest((hello.token or "").encode(), wanted.encode())
        else:
            is_right = self._tokens.admits(hello.role, hello.node, hello.token)
        return "" if is_right else "wrong token"

    def _expect_node(self, hello: Hello) -> None:
        """ProtocolError if the network file has no such node with an agent, or with radios."""
        if hello.role == RADIO and hello.node not in self._radios.nodes:
            raise ProtocolError("no such node with radios in the network")
        if hello.role == AGENT and hello.node not in self._nodes:
            raise ProtocolError("no such node with an agent in the network")
        if hello.role == AGENT and self._seals_links and not hello.seals_links:
            raise ProtocolError("this agent can not seal what its switch sends (seal_frames: all); update it")

    def _take_place(self, known: dict[str, Session], session: Session) -> None:
        """A node has one session. That which lives stays, ProtocolError for another one; else the new one counts: the
        old one may be of a machine that lost its power.
        """
        while (old := known.get(session.node)) is not None:
            if self._lives(old):
                self._conflict(session.hello.role, session.node, session.peer, old.peer)
                raise ProtocolError(f"{session.hello.role} {session.node} is connected already, and lives")
            old.close("replaced by a new connection")
            self._ended(old)
        # It has waited for the answer of the old one, and could say nothing meanwhile.
        session.heard_s = self._attended()
        known[session.node] = session

    def _lives(self, old: Session) -> bool:
        """Whether a session says anything after it was asked to, and does not end with it: what it had said before may
        come first.
        """
        within_s = min(self._timings.agent_dead_ms / 1e3, PROBE_S)
        asked_s, before = self._attended(), old.heard_s
        old.ping()
        while not old.closed:
            waited_s, is_late = self._attended() - asked_s, old.has_unread()
            if old.heard_s != before and not is_late:
                # An end that is already here is seen meanwhile.
                shim.sleep(LOOK_S)
                return not old.closed
            if waited_s > (2 * within_s if is_late else within_s):
                return old.heard_s != before
            shim.sleep(LOOK_S)
        return False

    def _welcome_radio(self, session: Session) -> Session:
        radios = self._radios
        self._take_place(self.radios, session)
        times = {"interval_ms": radios.interval_ms}
        if session.hello.changes:
            times["whole_ms"] = max(WHOLE_MS, radios.interval_ms)
        session.send({"type": "welcome", "version": VERSION, **times})
        LOG.info("radios of %s connected from %s, boot %s", session.node, session.peer, session.hello.boot)
        session.join()
        who = f"radios of {session.node}"
        session.epoch_told = lambda epoch: self._epoch_seen(epoch, who)
        self._epoch_seen(session.hello.epoch, who)
        self._tell_lead(session)
        radios.listener.radio_up(session)
        return session

    def _welcome_client(self, session: Session) -> Session:
        self._take_place(self.clients, session)
        session.send({"type": "welcome", "version": VERSION, "report_ms": REPORT_MS})
        LOG.info("client %s connected from %s, %s", session.node, session.peer, session.hello.program)
        session.allowance = allowance()
        session.join()
        self._clients.listener.client_up(session)
        return session

    def _welcome_agent(self, session: Session) -> Session:
        hello, timings = session.hello, self._timings
        self._take_place(self.sessions, session)
        times = {"report_ms": timings.report_ms, "ping_ms": timings.ping_ms}
        if hello.changes:
            times["whole_ms"] = max(WHOLE_MS, timings.report_ms)
        session.send({"type": "welcome", "version": VERSION, **times})
        what = hello.node, session.peer, hello.revision, hello.boot
        LOG.info("agent %s connected from %s, revision %d, boot %s", *what)
        # One that has run before says what its links are like before anything is planned.
        session.join_by_s = self._clock() + (JOIN_WITHIN_S if hello.revision else 0.0)
        if hello.revision:
            self._joining.append(session)
            session.send({"type": "stats", "seq": 0})
        else:
            self._join(session)
        return session

    def _join(self, session: Session) -> None:
        if not session.joined and not session.closed:
            session.join()
            self._listener.agent_up(session)

    def _read_loop(self, session: Session, connection: Any, lines: shim.LineReader) -> None:
        self._take_all(session, lines.given(b""))
        if session.hello.role != CLIENT and session.by_library:
            take = partial(self._take_told, session)
            with session.among(self._columns, self._place_of[session.node]) as row:
                begun = partial(self._columns.number.__setitem__, row)
                self._poll.serve_by_library(connection, lines.rest(), take, row, begun)
            return
        if session.hello.role != CLIENT:
            self._poll.serve(connection, lambda data: self._take_all(session, lines.given(data)))
            return
        while not session.closed and (next_line := lines.next(None)) is not None:
            self._take(session, next_line)

    def _take_all(self, session: Session, lines: Iterator[bytes]) -> None:
        waiting: bytes | None = None
        sheds = self._listener.is_starting
        for line in lines:
            if sheds and line.startswith(_REPLACED) and self._sheds(session):
                continue
            # Each of these says all that differs from the last whole one. Where we are late the newest is enough.
            if waiting is not None and not any(
                waiting.startswith(kind) and line.startswith(kind) for kind in _REPLACED
            ):
                self._take(session, waiting)
            waiting = line
        if waiting is not None:
            self._take(session, waiting)

    def _sheds(self, session: Session) -> bool:
        """Whether a report that others take the place of is left out while so many come back."""
        session.heard_s = self._attended()
        if session.heard_s < session.skip_until_s:
            return True
        session.skip_until_s = session.heard_s + STARTING_S
        return False

    def _take_told(self, session: Session, kind: int, line: bytes, number: int) -> None:
        """What the library has read of a session, but for numbers. It leaves out reports followed by newer ones."""
        if session.closed:
            return
        if kind == PONG:
            session.heard_s = self._attended()
            self._on_pong(session, {"seq": number, **_PONG})
            return
        session.wholes = number
        if line.startswith(_REPLACED) and self._listener.is_starting and self._sheds(session):
            return
        self._take(session, line)

    def _take_numbers(self, rows: NDArray[np.intp], told: Told) -> None:
        """What the library has decoded, of many sessions: by event the row of its session. What is done for each by
        itself here, is of few.
        """
        columns, now_s = self._columns, self._attended()
        is_changes, is_radio = told.events["kind"] == CHANGES, columns.is_radio[rows]
        lives = ~columns.is_closed[rows]
        columns.heard_s[rows[lives]] = now_s
        wholes = [
            i for i in np.flatnonzero(lives & ~is_changes & ~is_radio).tolist() if self._is_whole_again(rows, told, i)
        ]
        # What a whole report said of links may have ended a session.
        are_taken = is_changes & ~columns.is_closed[rows]
        if self._listener.is_starting:
            are_taken &= ~self._are_shed(rows, are_taken, now_s)
        readings = np.flatnonzero(are_taken & is_radio)
        are_taken &= ~is_radio
        are_taken[wholes] = True
        reports = np.flatnonzero(are_taken)
        if len(readings):
            which = rows[readings]
            self._readings.drop_changes(columns.session[which])
            about = self._names, columns.place[which], columns.shape[which], told, readings
            self._radios.listener.radio_readings(
                DecodedReadings(*about, reading=lambda i: columns.session[which[i]].reading)
            )
        if len(reports):
            which = rows[reports]
            about = self._names, columns.place[which], columns.shape[which], told, reports
            self._listener.agent_reports(DecodedReports(*about, wholes=columns.whole[which]))
            for row in which[~columns.is_joined[which]].tolist():
                self._join(columns.session[row])

    def _take_pongs(self, rows: NDArray[np.intp], took_ns: NDArray[np.uint64]) -> None:
        """Answers to pings that the library has sent; none names an epoch that is new."""
        lives = ~self._columns.is_closed[rows]
        self._columns.heard_s[rows[lives]] = self._attended()
        self._columns.rtt_ms[rows[lives]] = took_ns[lives] / 1e6

    def _are_shed(self, rows: NDArray[np.intp], are_changes: NDArray[np.bool_], now_s: float) -> NDArray[np.bool_]:
        """As :meth:`_sheds`: which of some events are changes that are left out."""
        skip_until_s = self._columns.skip_until_s
        are_shed = are_changes & (now_s < skip_until_s[rows])
        skip_until_s[rows[are_changes & ~are_shed]] = now_s + STARTING_S
        return are_shed

    def _is_whole_again(self, rows: NDArray[np.intp], told: Told, i: int) -> bool:
        """A whole report came that differs from the one before in counters alone; False if that ends the session, or
        if changes since are the next event.
        """
        session: Session = self._columns.session[rows[i]]
        if session.closed:
            return False
        try:
            # Reports that refer to the old one may still be read.
            session.whole = session.whole.again(told.line(i))
            self._listener.agent_links(session, session.whole.up)
        except Exception as error:  # noqa: BLE001 - whoever serves the session gets it; others' numbers count
            session.fail(self._poll.end, error)
            return False
        return not (i + 1 < len(rows) and rows[i + 1] == rows[i])

    def _take(self, session: Session, line: bytes) -> None:
        if session.closed:
            return
        session.heard_s = self._attended()
        session.pay(len(line), self._clock())
        waits = self._readings.keeps(session, line) if session.is_radio else self._later.keeps(session, line)
        if not waits:
            self._take_now(session, line)

    def _take_later(self, session: Session, line: bytes) -> None:
        try:
            if not session.closed:
                self._take_now(session, line)
        except Exception as error:  # noqa: BLE001 - whoever serves the session gets it; others' lines count
            session.fail(self._poll.end, error)

    def _take_now(self, session: Session, line: bytes) -> None:
        message = parse_line(line)
        handler = self._handlers[session.hello.role].get(message["type"])
        if handler is None:
            raise ProtocolError(f"{message['type']} out of place")
        handler(session, message)

    def _on_ok(self, session: Session, message: dict[str, Any]) -> None:
        first = parse_first(message)
        if first:
            self._markers.first_numbers(session.node, first)
        session.answered(message)

    def ask_leader(self, most: int) -> None:
        """Ask some agents and access points, others each time, when they heard the leader; :attr:`leader_heard` is told
        what they say.
        """
        for _ in range(min(most, len(self.sessions) + len(self.radios))):
            if not self._to_ask:
                self._to_ask.extend([*self.sessions.values(), *self.radios.values()])
            session = self._to_ask.popleft()
            if not session.closed:
                session.ask_leader(self._clock())
                self.leader_asked(session.node)

    def _on_pong(self, session: Session, message: dict[str, Any]) -> None:
        session.ponged(message)
        epoch, heard_s = message["epoch"], session.leader_heard_s(message)
        if epoch > self._shown.get(session.node, 0):
            self._shown[session.node] = epoch
            self._epoch_seen(epoch, f"{'radios of' if session.hello.role == RADIO else 'agent'} {session.node}")
        if heard_s is not None:
            self.leader_heard(session.node, epoch, heard_s)

    def _on_report(self, session: Session, report: Report) -> None:
        if report["seq"] is None:
            # Reports that refer to the old one may still be read.
            session.whole = WholeReport()
            session.whole.take(report)
        reader = self._poll.library if session.by_library else None
        found = session.whole.columns if reader is not None else None
        if reader is not None and found is not None:
            session.use_shape(session.whole.shape)
            session.refer(self._poll.number_of, reader.refer_to_report, *found[1:], is_last=report["seq"] is None)
        self._reported(session, report, report["links"])

    def _on_radio(self, session: Session, message: dict[str, Any]) -> None:
        report = session.reading.take(message)
        session.use_shape(session.reading.shape)
        technologies, reader = session.reading.technologies, self._poll.library
        if session.by_library and reader is not None and technologies is not None:
            session.refer(self._poll.number_of, reader.refer_to_reading, technologies, is_last=report.seq is None)
        self._radios.listener.radio_report(session, report)

    def _on_changes(self, session: Session, message: dict[str, Any]) -> None:
        # Links that are as they were need not be told again: each change of theirs was told at once.
        self._reported(session, *session.whole.changed(message))

    def _reported(self, session: Session, report: Mapping[str, Any], links: list[Report]) -> None:
        if links:
            self._listener.agent_links(session, {link["link"]: link["up"] for link in links})
        self._listener.agent_report(session, report)
        if not report["more"]:
            self._join(session)

    def _refuse(self, connection: Any, session: Session | None, why: str) -> None:
        """A last line to say why, if the peer still reads."""
        if session is None or not session.closed:
            try:
                connection.sendall(encode({"type": "error", "seq": None, "message": why}))
            except OSError as error:
                LOG.debug("could not tell the peer why: %s", error)

    def _ended(self, session: Session) -> None:
        session.finish()
        if self.sessions.get(session.node) is session:
            del self.sessions[session.node]
            LOG.info("agent %s (%s) is gone", session.node, session.peer)
            if session.joined:
                self._listener.agent_down(session)
        elif self.radios.get(session.node) is session:
            del self.radios[session.node]
            LOG.info("radios of %s (%s) are gone", session.node, session.peer)
            self._radios.listener.radio_down(session)
            self._radios.stations.gone(session.node)
        elif self.clients.get(session.node) is session:
            del self.clients[session.node]
            LOG.info("client %s (%s) is gone", session.node, session.peer)
            self._clients.listener.client_down(session)

    def _tick_loop(self) -> None:
        """Pings, and an end to sessions that are silent."""
        period_s = self._timings.ping_ms / 1e3
        due_s = self._clock() + period_s
        while True:
            shim.sleep(max(0.0, min(due_s - self._clock(), JOIN_WITHIN_S / 3)))
            now_s = self._clock()
            is_due = now_s >= due_s
            if is_due:
                due_s = now_s + period_s
            # Radios and clients join when they are welcome.
            self._joining = [each for each in self._joining if not (each.joined or each.closed)]
            for session in list(self._joining):
                if now_s >= session.join_by_s:
                    self._join(session)
            if is_due:
                self._urgent.wait_for_flows()
                self._look_after_all(period_s)

    @property
    def _ping_within_s(self) -> float:
        is_alone = self._epoch is None and not self._follows
        return PING_ALONE_WITHIN_S if is_alone else PING_WITHIN_S

    def _look_after_all(self, period_s: float) -> None:
        """Cost follows who is silent, was asked something, or shall be pinged; of all others two times are compared."""
        self.flush()
        now_s = self._attended()
        heard_since_s, pinged_since_s = now_s - period_s / 2, now_s - self._ping_within_s
        columns = self._columns
        looked_at, rows = columns.due(heard_since_s, pinged_since_s)
        more: list[int] = []
        if len(columns) != len(self.sessions) + len(self.radios):
            # Python reads some, or their readers have not begun.
            others = (each for each in (*self.sessions.values(), *self.radios.values()) if each.columns is not columns)
            looked_at += [
                each for each in others
                if each.heard_s < heard_since_s or each.pinged_s <= pinged_since_s or each.requests
            ]  # fmt: skip
        for session in [*looked_at, *self.clients.values()]:
            if not self._look_after(session, period_s, now_s):
                continue
            if session.columns is columns:
                more.append(session.row)
            else:
                session.ping()
        if len(rows) or more:
            columns.ping_by(self._poll, np.append(rows, np.array(more, dtype=np.intp)), now_s)

    def _look_after(self, session: Session, period_s: float, now_s: float) -> bool:
        """Whether it is to be pinged."""
        silent_s = now_s - session.heard_s
        if silent_s > period_s and session.has_unread():
            # It spoke, and it is us who are late.
            return False
        session.expire()
        dead_s = self._timings.agent_dead_ms / 1e3
        is_client = session.hello.role == CLIENT
        if silent_s > (max(dead_s, DEAD_S) if is_client else dead_s):
            session.close(f"silent for {silent_s:.2f} s")
            return False
        return is_client or silent_s > period_s / 2 or now_s - session.pinged_s >= self._ping_within_s

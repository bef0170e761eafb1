"""Accepts connections of switches, plain or over TLS, instead of the framework's server; registers who is connected.

The framework's server shares its port with whoever else listens there, uses its certificate for the first connection
only, accepts any number of connections, and ends for ever when ``accept`` fails once.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from hyroads.controller.core.admission import Limits
from hyroads.controller.core.errors import OpenFlowError
from hyroads.controller.core.identity import CertificateFacts, not_of_switch
from hyroads.controller.core.interface_addresses import InterfaceAddresses
from hyroads.controller.files.tls import CertificateCheck, certificate_facts
from hyroads.controller.framework import ryu_shim as shim
from hyroads.controller.framework.connections import Connections
from hyroads.controller.framework.places import Place
from hyroads.controller.framework.tls_socket import TlsSocket
from hyroads.controller.model.pending_names import switch_name
from hyroads.controller.model.state import TopologyContext
from hyroads.controller.ofp.handshake import HELLO, PLAIN_HELLO, Handshake
from hyroads.controller.ofp.vlan_tags import TagRules

from .reading import READ_BYTES, LargeReads, SwitchPoll
from .roles import SwitchRole
from .sessions import SwitchSession

HANDSHAKE_WITHIN_S, TLS_WITHIN_S = 10.0, 5.0
SPARE_CONNECTIONS = 128
READ_AT_ONCE, PLACE_S = 16, 1.0
SWEEP_S = 1.0
PROBE_S, LOOK_S = 0.6, 0.01
"""A switch that is connected has so long to show that it lives when another connection says it is the same switch."""

Handle = Callable[[Any, Any], None]
"""Serves one connection (socket, address) until it ends."""


@dataclass(frozen=True)
class SwitchIdentity:
    """Which datapath ids are ours, by node. With a ``check`` a certificate must pass it and name its switch, or be a
    slicer's that has one of the names ``any_switch``. ``ask(dpid)`` has the connected switch queried for a
    sign of life, and ``conflict(node, peer, holder)`` is called for a second session of a switch whose first one lives.
    """

    node_of: Callable[[int], str | None]
    check: CertificateCheck | None = None
    any_switch: frozenset[str] = frozenset()
    ask: Callable[[int], None] = lambda dpid: None
    conflict: Callable[[str, str, str], None] = lambda node, peer, holder: None


class SwitchServer:
    """``nodes`` bounds the connections; ``tell`` hears (peer, what) of every connection that ends badly."""

    def __init__(  # noqa: PLR0917
        self,
        listener: Any,
        context: Any,
        nodes: int,
        identity: SwitchIdentity,
        tell: Callable[[str, str], None],
        clock: Callable[[], float],
    ) -> None:
        self._clock = clock
        self._listener = listener
        self._context = context
        self._identity = identity
        self._tell = tell
        places = 2 * nodes + SPARE_CONNECTIONS
        self._connections = Connections(Limits(places, places, HANDSHAKE_WITHIN_S), clock, tell)
        self._poll = SwitchPoll()
        self._sessions: dict[int, LargeReads] = {}
        """By datapath id: no switch has two."""
        self._shown: WeakKeyDictionary[LargeReads, CertificateFacts] = WeakKeyDictionary()
        """By session: its certificate."""
        self._waiting: dict[int, LargeReads] = {}
        """By datapath id the newest connection that waits for the place of another one."""

    def serve(self, handle: Handle) -> None:
        """Accept for ever, in the calling green thread. What is handed on is a switch of ours by its datapath id."""
        self._connections.serve(self._listener, lambda connection, place: self._serve_one(connection, place, handle))

    def _serve_one(self, connection: Any, place: Place, handle: Handle) -> None:
        try:
            if self._context is not None:
                connection = TlsSocket(connection, self._context)
                connection.handshake(TLS_WITHIN_S)
            facts = self._checked(connection)
            handshake = self._handshake(connection)
            if handshake is not None:
                self._check_identity(facts, handshake.dpid)
                # What the framework has to read first: a HELLO that holds no surprise, and what the switch has said.
                first = PLAIN_HELLO + handshake.features + handshake.rest
                session = LargeReads(connection, self._clock, place, first, self._poll)
                self._shown[session] = facts
                self._handle(handshake.dpid, session, handle)
        except Exception as error:  # noqa: BLE001 - the framework passes on whatever its parsers raise
            what = str(error) if isinstance(error, OpenFlowError) else f"{type(error).__name__}: {error}"
            self._tell(place.peer, f"connection ended: {what}")

    @staticmethod
    def _handshake(connection: Any) -> Handshake | None:
        """The switch's part up to FEATURES_REPLY; None if it has gone again."""
        shim.no_delay(connection)
        connection.sendall(HELLO)
        handshake = Handshake()
        while not handshake.features:
            data = connection.recv(READ_BYTES)
            if not data:
                return None
            answer = handshake.take(data)
            if answer:
                connection.sendall(answer)
        return handshake

    def _checked(self, connection: Any) -> CertificateFacts:
        """The certificate of a connection; OpenFlowError, before anything is sent, if it is not taken here."""
        check = self._identity.check
        if check is None:
            return CertificateFacts()
        facts = certificate_facts(connection.certificate or b"")
        if problem := check.fault(facts):
            raise OpenFlowError(problem)
        return facts

    def end_revoked(self) -> None:
        """End the connections of switches whose certificates are revoked now."""
        check = self._identity.check
        for session in list(self._sessions.values()):
            problem = "" if check is None else check.fault(self._shown[session])
            if problem:
                self._tell(session.peer, f"connection ended: {problem}")
                session.end()

    def _check_identity(self, facts: CertificateFacts, dpid: int) -> None:
        """OpenFlowError if this is no switch of ours, or not the one that its certificate is of."""
        identity = self._identity
        node = identity.node_of(dpid)
        if node is None:
            raise OpenFlowError(f"switch {dpid:#x} is not in the network")
        if identity.check is not None and (problem := not_of_switch(facts, dpid, node, any_switch=identity.any_switch)):
            raise OpenFlowError(problem)

    def _handle(self, dpid: int, session: LargeReads, handle: Handle) -> None:
        """Serve a switch while no other connection is it."""
        self._take_place(dpid, session)
        try:
            host, _, port = session.peer.rpartition(":")
            handle(session, (host, int(port)))
        finally:
            session.leave()
            if self._sessions.get(dpid) is session:
                del self._sessions[dpid]

    def _take_place(self, dpid: int, session: LargeReads) -> None:
        """Of several connections the one that lives stays, OpenFlowError for others; one that does not is ended. Of
        several that wait for that only the newest does: others do not take their turns before it.
        """
        self._waiting[dpid] = session
        try:
            self._await_place(dpid, session)
        finally:
            if self._waiting.get(dpid) is session:
                del self._waiting[dpid]

    def _await_place(self, dpid: int, session: LargeReads) -> None:
        while (old := self._sessions.get(dpid)) is not None:
            lives = self._lives(dpid, old)
            if self._waiting.get(dpid) is not session:
                raise OpenFlowError(f"switch {dpid:#x} has connected again since")
            if lives:
                self._identity.conflict(self._identity.node_of(dpid) or "", session.peer, old.peer)
                raise OpenFlowError(f"switch {dpid:#x} is connected already, from {old.peer}, and lives")
            old.end()
            if self._sessions.get(dpid) is old:
                del self._sessions[dpid]
        self._sessions[dpid] = session

    def _lives(self, dpid: int, old: LargeReads) -> bool:
        """Whether a connection says anything after it was asked to, and does not end with it: what it had said before
        may come first. By the clock that counts only while we read.
        """
        asked_s, before = self._clock(), old.reads
        self._identity.ask(dpid)
        while self._sessions.get(dpid) is old:
            waited_s, is_late = self._clock() - asked_s, old.has_unread()
            if old.reads != before and not is_late:
                # An end that is already here is seen meanwhile.
                shim.sleep(LOOK_S)
                return self._sessions.get(dpid) is old
            if waited_s > (2 * PROBE_S if is_late else PROBE_S):
                return old.reads != before
            shim.sleep(LOOK_S)
        return False


LOG = logging.getLogger("hyroads.controller")


class ReadingOrder:
    """A few switches are read at a time, in the order in which they came: when all come back at once, those that are
    read first work on meanwhile, and others may use the processor. A switch that does not answer keeps its place for
    ``PLACE_S`` only; it may still answer later.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._waiting: dict[str, SwitchSession] = {}
        self._reading: dict[str, float] = {}
        """Until when a node's switch keeps its place."""

    def enter(self, session: SwitchSession) -> None:
        """A switch has to be read; an earlier session of its node is of no use any more."""
        self.leave(session.node)
        self._waiting[session.node] = session
        self.advance()

    def leave(self, node: str) -> None:
        """A node's switch was read, or is gone."""
        self._waiting.pop(node, None)
        if self._reading.pop(node, None) is not None:
            self.advance()

    def advance(self) -> None:
        """Begin to read the next ones if there is room."""
        now_s = self._clock()
        if self._waiting and len(self._reading) >= READ_AT_ONCE:
            self._reading = {node: until_s for node, until_s in self._reading.items() if now_s <= until_s}
        while self._waiting and len(self._reading) < READ_AT_ONCE:
            node = next(iter(self._waiting))
            session = self._waiting.pop(node)
            self._reading[node] = now_s + PLACE_S
            session.read()


class SwitchRegistry:
    """``fault(where, what)`` is told of what went wrong, ``changed`` is called when a switch confirmed something.

    With one controller no role is ever asked for. With several, each calls :meth:`lead` or :meth:`follow` before
    switches connect, and whenever that changes. ``greater_epoch_seen(epoch, who)`` is called for each switch that shows
    a greater epoch than ours, and than it has shown before.
    """

    def __init__(
        self,
        context: TopologyContext,
        clock: Callable[[], float],
        counters: Counter[str],
        fault: Callable[[str, str], None],
        changed: Callable[[], None],
        *,
        greater_epoch_seen: Callable[[int, str], None] = lambda epoch, who: None,
    ) -> None:
        self.sessions: dict[str, SwitchSession] = {}
        """By node."""
        self.touched: set[str] = set()
        """Nodes whose sessions came, went or changed; whoever looks at them removes them."""
        self._watches = [self.touched]
        self._restless: set[str] = set()
        """Nodes whose switches owe an answer, or have something to be tried again, as far as is known."""
        self._swept_s = -math.inf
        self._node_of_dpid = context.node_of_dpid
        self._clock = clock
        self._counters = counters
        self._fault = fault
        self._changed = changed
        self._greater_epoch_seen = greater_epoch_seen
        self._reads = ReadingOrder(clock)
        self._has_roles = False
        self._epoch: int | None = None
        """That of ours while we lead."""
        self._shown: dict[str, int] = {}
        """By node the greatest epoch that its switch has shown."""
        self._in_kernel: set[str] = set()
        """Nodes whose datapath was in the kernel when it was last asked."""
        self._addresses = context.addresses
        self._lost: dict[str, float] = {}
        """Until when a switch without a connection may dial again."""

    def watch(self) -> set[str]:
        """As :attr:`touched`, for somebody else."""
        self._watches.append(set(self.touched))
        return self._watches[-1]

    def _touch(self, node: str) -> None:
        for watch in self._watches:
            watch.add(node)

    def opened(self, connection: shim.Connection) -> SwitchSession | None:
        """A switch is ready for requests; None if it is not of our network. Its newest connection counts."""
        node = self._node_of_dpid.get(connection.dpid)
        if node is None:
            self._fault(f"switch {connection.dpid:#x}", f"is not in the network ({connection.peer}), left alone")
            return None
        old = self.sessions.get(node)
        if old is not None and old.connection.key != connection.key:
            old.connection.close()
        session = self._begun(node, connection, old)
        self._lost.pop(node, None)
        LOG.info("switch %s connected from %s with ports %s", node, connection.peer, ", ".join(sorted(session.ports)))
        return session

    def lead(self, epoch: int) -> None:
        """We lead: become master of every switch, also of those that connect later, with the epoch as generation id.

        Each is read again, and told what differs; nothing is sent before it has confirmed our role.
        """
        self._epoch = epoch
        self._begin_again()

    def follow(self) -> None:
        """Another one leads: become slave of every switch. They are read, and told nothing."""
        self._epoch = None
        self._begin_again()

    def _begin_again(self) -> None:
        self._has_roles = True
        for node, old in list(self.sessions.items()):
            self._begun(node, old.connection, old)
        self._changed()

    def _begun(self, node: str, connection: shim.Connection, old: SwitchSession | None) -> SwitchSession:
        """A new session, in place of the old one of that node; whoever works with sessions sees that it is another."""
        session = SwitchSession(
            node,
            connection,
            self._clock,
            lambda what: self._switch_fault(node, what),
            self._changed,
            datapath_known=self._datapath_known,
            was_read=lambda: self._reads.leave(node),
            touched=lambda: self._touch(node),
            has_asked=lambda: self._restless.add(node),
            addresses=self._addresses.translation(node),
        )
        if old is not None:
            session.counters = old.counters
            if old.connection.key == connection.key:
                session.goes_on_from(old)
        if self._has_roles:
            session.role = SwitchRole(
                self._epoch, session.xid, lambda epoch: self._epoch_seen(epoch, node), self._refused_as_slave
            )
        self.sessions[node] = session
        self._touch(node)
        self._restless.add(node)
        session.begin()
        self._reads.enter(session)
        self._carry_tags(session)
        return session

    def tick(self) -> None:
        """Several times a second: end connections that do not answer, try again what was refused.

        All are looked at each ``SWEEP_S``, others are those of which an answer is awaited: none is due sooner.
        """
        self._reads.advance()
        now_s = self._clock()
        nodes = list(self._restless)
        if now_s >= self._swept_s + SWEEP_S:
            nodes, self._swept_s = list(self.sessions), now_s
        for node in nodes:
            session = self.sessions.get(node)
            if session is None or session.tick():
                self._restless.discard(node)
            else:
                self._restless.add(node)

    def _epoch_seen(self, epoch: int, node: str) -> None:
        if epoch > max(self._shown.get(node, 0), self._epoch or 0):
            self._shown[node] = epoch
            self._greater_epoch_seen(epoch, switch_name(node))

    def _refused_as_slave(self) -> None:
        self._counters["refused_as_slave"] += 1

    def _datapath_known(self, session: SwitchSession) -> None:
        (self._in_kernel.add if session.in_kernel else self._in_kernel.discard)(session.node)
        for each in self.sessions.values():
            self._carry_tags(each)

    def _carry_tags(self, session: SwitchSession) -> None:
        """All switches of a network with a kernel datapath understand its way of carrying VLAN tags."""
        session.carry(TagRules(session.node in self._in_kernel) if self._in_kernel else None)

    def of(self, connection: shim.Connection) -> SwitchSession | None:
        """The session of a connection; None if it was replaced or is not of our network."""
        node = self._node_of_dpid.get(connection.dpid)
        session = self.sessions.get(node) if node is not None else None
        return session if session is not None and session.connection.key == connection.key else None

    def use_addresses(self, addresses: InterfaceAddresses, nodes: Iterable[str]) -> None:
        """Interfaces have these addresses; ``nodes`` are those whose rules may contain another one than before."""
        self._addresses = addresses
        for node in nodes:
            if (session := self.sessions.get(node)) is not None:
                session.use_addresses(addresses.translation(node))

    def closed(self, connection: shim.Connection) -> str | None:
        """A connection ended: the node that has none any more."""
        session = self.of(connection)
        if session is None:
            return None
        LOG.warning("switch %s: connection lost", session.node)
        del self.sessions[session.node]
        self._touch(session.node)
        self._reads.leave(session.node)
        return session.node

    def wait_for(self, node: str, wait_s: float) -> None:
        """A switch without a connection has this time to dial again."""
        self._lost[node] = self._clock() + wait_s

    def is_awaited(self, node: str) -> bool:
        """Whether a switch that lost its connection may still dial again."""
        return node in self._lost

    def overdue(self) -> list[str]:
        """Nodes whose switches did not come back in time; each is named once."""
        now_s = self._clock()
        late = [node for node, until_s in self._lost.items() if now_s > until_s]
        for node in late:
            del self._lost[node]
            LOG.warning("switch %s did not come back", node)
        return late

    def _switch_fault(self, node: str, what: str) -> None:
        self._counters["openflow_errors"] += 1
        self._fault(switch_name(node), what)

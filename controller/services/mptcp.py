"""The service of MPTCP connections: takes the SYNs that edges copy, knows connections and their subflows, tells others
(docs/explanation/mptcp.md).

Copies are handled where they come in: a few microseconds each, and no frame is stored, for one may hold a key. A host
whose SYNs are of no use to anybody, hundreds a second, is left out by its switch for a while, so that it takes the
place of nobody else's copies.
"""

from __future__ import annotations

import logging
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from hyroads.controller.core.interface_addresses import InterfaceAddresses
from hyroads.controller.core.mptcp import SNAP_BYTES, Kind, Syn, ends, parse_syn
from hyroads.controller.core.mptcp_connections import (
    At,
    Connection,
    ConnectionTable,
    Happened,
    Limits,
    Notice,
    Outcome,
    Subflow,
)
from hyroads.controller.core.mptcp_connections import Reason as Refused
from hyroads.controller.core.services.client_tables import Clients
from hyroads.controller.core.subflows import MptcpConnection
from hyroads.controller.core.token_bucket import TokenBucket
from hyroads.controller.ofp.access import Entry, syn_copy, syn_no_copy
from hyroads.controller.ofp.readback import parse_packet_in
from hyroads.controller.settings.mptcp import MptcpSettings
from hyroads.controller.switches.sessions import SwitchSession
from hyroads.rest.contract import NotFoundError
from hyroads.rest.metrics import Counter as CounterMetric
from hyroads.rest.metrics import Gauge

from .clients.declared import interfaces_of
from .mptcp_saved import connection_document, routable
from .port import ControllerPort

LOG = logging.getLogger("hyroads.mptcp")
Document = dict[str, Any]
TICK_S = 0.1
EVENTS_PER_S, EVENTS_BURST = 20.0, 200.0
REFUSED_EVERY_S = 10.0
MAX_REFUSED = 1024
WINDOW_S = 1.0
LEFT_OUT_S = 10.0
MAX_LEFT_OUT = 16
USELESS_SHARE = 0.8
"""A host whose useless SYNs (weight 2) and SYN/ACKs (weight 1) exceed this share of what a switch may copy in a second
is left out: a server is useful to more connections than one client begins.
"""
FLOOD = "too many SYNs"
COPIES = "\0syns"
_USEFUL = frozenset({Outcome.WAITING, Outcome.CONNECTION, Outcome.SUBFLOW})


@dataclass(slots=True)
class _Refusals:
    """Refused for one reason, of one host, since that was last told."""

    count: int
    until_s: float
    at: At | None


@dataclass(eq=False)
class MptcpService:
    """One per controller. ``clients`` tells whose addresses are which, ``file`` is what an error in the settings
    names, ``clock`` is monotonic time in seconds.

    ``listeners`` are called with the id of every connection whose group has changed, from a green thread of its own:
    see :meth:`group`.
    """

    port: ControllerPort
    settings: MptcpSettings
    clients: Callable[[], Clients]
    _: KW_ONLY
    clock: Callable[[], float]
    file: str = "settings"

    def __post_init__(self) -> None:
        self.table = ConnectionTable(Limits(forget_s=self.settings.forget_s))
        self.listeners: list[Callable[[str], None]] = []
        self.events_left_out = 0
        self._owners: dict[bytes, str] = {}
        self._fixed_ips: dict[str, str] = {}
        self.port.addresses.add(self._use_addresses)
        addressing = self.port.context.addressing
        self._nodes = {bytes.fromhex(mac.replace(":", "")): n for n, mac in addressing.host_mac.items()}
        self._ports: dict[str, tuple[Mapping[str, int], dict[int, str]]] = {}
        self._events = TokenBucket(EVENTS_PER_S, EVENTS_BURST)
        self._refusals: dict[tuple[str, str], _Refusals] = {}
        self._useless: Counter[tuple[str, str]] = Counter()
        self._window_s = 0.0
        self._left_out: dict[tuple[str, str], float] = {}
        """Until when nothing is copied of a host (its MAC), at a node."""

    def _use_addresses(self, addresses: InterfaceAddresses, nodes: frozenset[str]) -> None:
        context = self.port.context
        own = {mac: client for client, macs in interfaces_of(context, addresses).items() for mac in macs}
        own |= {mac: node for node, mac in context.addressing.host_mac.items()}
        own |= self.settings.owners(context.addressing, self.file)
        self._owners = {bytes.fromhex(mac.replace(":", "")): client for mac, client in own.items()}
        self._fixed_ips = {
            ip: own[context.addressing.host_mac[node]]
            for node, ip in context.addressing.host_ip.items()
            if node in context.addressing.host_mac
        }

    # -- the state file

    def to_save(self, names: Iterable[str]) -> list[Document]:
        """What ``mptcp_saved.connections_from`` needs of connections."""
        known = self.table.connections
        return [connection_document(known[name]) for name in names if name in known]

    def become(self, connections: Iterable[Connection]) -> None:
        """Connections are those that an earlier controller, or the one that leads, has saved."""
        self.table.become(connections)

    def lead(self) -> None:
        """From now on connections are heard here."""
        now_s = self.clock()
        for connection in self.table.connections.values():
            connection.heard_s = now_s

    # -- what switches copy

    def packet_in(self, session: SwitchSession, message: bytes) -> None:
        """The copy of a SYN that came in at an edge."""
        packet = parse_packet_in(message)
        port = self._port(session, packet.in_port)
        if port is None:
            # It has gone meanwhile.
            return
        # A switch may find a SYN behind headers that are not read here.
        syn = parse_syn(packet.frame[:SNAP_BYTES]) or Syn(Kind.MALFORMED, source_mac=packet.frame[6:12])
        at = At(session.node, port, self._nodes.get(syn.source_mac))
        now_s, host = self.clock(), self._owner(syn.source_mac)
        if syn.kind in {Kind.CAPABLE, Kind.JOIN} and not self._may_have(host, syn):
            outcome = self.table.refuse(Refused.OTHERS_ADDRESS, host, at)
        else:
            outcome = self.table.take(syn, host, self._owner(syn.target_mac), at, now_s)
        if outcome not in _USEFUL:
            self._note_useless(session, syn, now_s)

    def _port(self, session: SwitchSession, number: int) -> str | None:
        ports, found = self._ports.get(session.node, ({}, {}))
        if ports is not session.ports:
            found = {number: name for name, number in session.ports.items()}
            self._ports[session.node] = session.ports, found
        return found.get(number)

    def _owner(self, mac: bytes) -> str:
        """The client that an interface belongs to: its id, else the MAC."""
        return self._owners.get(mac) or mac.hex(":")

    def _may_have(self, host: str, syn: Syn) -> bool:
        """Whether nobody else is known to have the address that a segment comes from. Routers send for addresses that
        nobody here has.
        """
        size = (len(syn.key) - 4) // 2
        ip = socket.inet_ntop(socket.AF_INET if size == 4 else socket.AF_INET6, syn.key[:size])
        known = self.clients().addresses.get(ip)
        if known is not None:
            return self._owner(bytes.fromhex(known.mac.replace(":", ""))) == host
        return self._fixed_ips.get(ip, host) == host

    # -- hosts that flood

    def _note_useless(self, session: SwitchSession, syn: Syn, now_s: float) -> None:
        if now_s - self._window_s >= WINDOW_S:
            self._window_s = now_s
            self._useless.clear()
        who = session.node, syn.source_mac.hex(":")
        self._useless[who] += 1 if syn.answers else 2
        if self._useless[who] <= USELESS_SHARE * self.settings.syns_per_s or who in self._left_out:
            return
        if sum(node == session.node for node, _ in self._left_out) < MAX_LEFT_OUT:
            self._left_out[who] = now_s + LEFT_OUT_S
            session.access.want(_name(who[1]), syn_no_copy(who[1]))
            session.access.flush()
            LOG.warning("switch %s: SYNs of %s are not copied for %g s: they are too many", *who, LEFT_OUT_S)
            self._tell_refused(FLOOD, self._owner(syn.source_mac), None, now_s)

    def entries(self, node: str) -> dict[str, Entry]:
        """What is wanted of a switch."""
        if not self.settings.recognise:
            return {}
        left_out = {_name(mac): syn_no_copy(mac) for at, mac in self._left_out if at == node}
        return {COPIES: syn_copy(self.settings.syns_per_s), **left_out}

    def syn_copies(self, session: SwitchSession) -> str | None:
        """Whether a switch copies SYNs: ``off``, ``on`` or ``refused``; None: it has not confirmed it yet."""
        if not self.settings.recognise:
            return "off"
        if COPIES in session.access.refused:
            return "refused"
        return "on" if session.access.is_confirmed(COPIES) else None

    # -- as time passes

    def once(self) -> None:
        """Let time pass, and tell what has happened; called each ``TICK_S``."""
        now_s = self.clock()
        self.table.expire(now_s)
        notices, self.table.notices = self.table.notices, []
        for notice in notices:
            self._tell(notice, now_s)
        for connection in dict.fromkeys(n.connection for n in notices if n.connection is not None):
            for listener in self.listeners:
                listener(connection.id)
        self._tell_again(now_s)
        for who in [who for who, until_s in self._left_out.items() if now_s >= until_s]:
            del self._left_out[who]
            session = self.port.switches.get(who[0])
            if session is not None:
                session.access.want(_name(who[1]), None)
                session.access.flush()

    def _tell(self, notice: Notice, now_s: float) -> None:
        if notice.what is Happened.REFUSED or notice.connection is None or notice.subflow is None:
            self._tell_refused(str(notice.reason), notice.host, notice.at, now_s)
            return
        if not self._events.take(now_s):
            self.events_left_out += 1
            return
        connection = notice.connection
        told = {"id": connection.id, "client": connection.client, "peer": connection.peer}
        kind = {Happened.CONNECTION: "connection", Happened.JOINED: "subflow_joined", Happened.LEFT: "subflow_left"}
        subflow = {**_ends_document(notice.subflow), "backup": notice.subflow.backup}
        self.port.events.publish(
            f"mptcp.{kind[notice.what]}", {**told, "subflow": subflow, "subflows": len(connection.subflows)}
        )

    def _tell_refused(self, reason: str, host: str, at: At | None, now_s: float) -> None:
        known = self._refusals.get((reason, host))
        if known is not None:
            known.count += 1
        elif len(self._refusals) < MAX_REFUSED:
            self._refusals[reason, host] = _Refusals(0, now_s + REFUSED_EVERY_S, at)
            self._publish_refused(reason, host, at, 1)
        else:
            self.events_left_out += 1

    def _tell_again(self, now_s: float) -> None:
        for (reason, host), known in [item for item in self._refusals.items() if now_s >= item[1].until_s]:
            if known.count:
                self._publish_refused(reason, host, known.at, known.count)
                known.count, known.until_s = 0, now_s + REFUSED_EVERY_S
            else:
                del self._refusals[reason, host]

    def _publish_refused(self, reason: str, host: str, at: At | None, count: int) -> None:
        where = {"node": at.node, "port": at.port} if at is not None else None
        self.port.events.publish("mptcp.refused", {"reason": reason, "host": host, "at": where, "count": count})

    # -- what routing needs

    def group(self, name: str) -> MptcpConnection | None:
        """The subflows of a connection as ``mptcp_saved.routable`` gives them; None if none can be routed."""
        known = self.table.connections.get(name)
        return None if known is None else routable(known)

    def groups(self) -> list[MptcpConnection]:
        """All connections of which two subflows or more can be routed."""
        found = (self.group(connection.id) for connection in self.table.groups())
        return [group for group in found if group is not None and len(group.subflows) > 1]

    # -- rest.connections.Connections

    def names(self) -> Sequence[str]:
        """Ids of all connections."""
        return sorted(self.table.connections)

    def documents(self, names: Sequence[str]) -> list[Document]:
        """The connections of these ids; unknown ids are left out."""
        known, now_s = self.table.connections, self.clock()
        return [_document(known[name], now_s) for name in names if name in known]

    def document(self, name: str) -> Document:
        """The connection of this id; NotFoundError."""
        found = self.documents([name])
        if not found:
            raise NotFoundError(f"no connection {name[:64]!r}")
        return found[0]

    # -- metrics

    def metrics(self) -> Iterator[Any]:
        """For Prometheus."""
        table = self.table
        yield Gauge("hyroads_mptcp_connections", "MPTCP connections that are known", value=len(table.connections))
        yield Gauge("hyroads_mptcp_subflows", "Their subflows", value=table.subflow_count)
        syns = CounterMetric("hyroads_mptcp_syns", "SYNs copied by edges, by what became of them", labels=("outcome",))
        for outcome in Outcome:
            syns.add_metric((outcome.value,), table.counts[outcome])
        refused = CounterMetric("hyroads_mptcp_refused", "Joins that were refused, by reason", labels=("reason",))
        for reason in Refused:
            refused.add_metric((reason.value,), table.reasons[reason])
        yield from (syns, refused)
        yield Gauge("hyroads_mptcp_hosts_left_out", "Hosts whose SYNs are not copied", value=len(self._left_out))


def _name(mac: str) -> str:
    return f"{COPIES} {mac}"


def _ends_document(subflow: Subflow) -> Document:
    at = ends(subflow.key)
    return {"client_ip": at.source, "client_port": at.source_port, "peer_ip": at.target, "peer_port": at.target_port}


def _document(connection: Connection, now_s: float) -> Document:
    return {
        "id": connection.id,
        "client": connection.client,
        "peer": connection.peer,
        "mptcp_version": connection.version,
        "since_s": now_s - connection.since_s,
        "heard_s": now_s - connection.heard_s,
        "subflows": [
            {
                **_ends_document(subflow),
                "begun_by": "peer" if subflow.by_peer else "client",
                "address_id": subflow.address_id,
                "backup": subflow.backup,
                "enters_at": {"node": subflow.at.node, "port_name": subflow.at.port},
                "peer_enters_at": {"node": subflow.peer_at.node, "port_name": subflow.peer_at.port},
                "since_s": now_s - subflow.since_s,
            }
            for subflow in connection.subflows.values()
        ],
    }

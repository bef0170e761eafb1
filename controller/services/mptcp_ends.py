"""Ends of routed subflows: edges copy the FIN and RST of each, and one that falls silent after it is over.

A segment with FIN or RST alone ends nothing, for it may be forged, or only one direction may end. The copy must come in
where the subflow's own SYN came in, from its host's MAC address, and agents must deliver nothing more afterwards. Until
then the subflow stays in its group. Each rule lies at one edge and goes with the first copy, so nobody can send many.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from hyroads.controller.core.mptcp import ends, turned
from hyroads.controller.core.mptcp_connections import At, Connection, ConnectionTable, Subflow
from hyroads.controller.core.netfile_sections import ETH_TYPE_IPV4, ETH_TYPE_IPV6
from hyroads.controller.core.subflows import flow_of
from hyroads.controller.ofp.access import Entry, end_copy, end_meter
from hyroads.controller.ofp.match import Match
from hyroads.controller.ofp.readback import parse_packet_in
from hyroads.controller.switches.sessions import SwitchSession

from .mptcp import COPIES
from .port import ControllerPort

METER = "\0ends"
COPIES_PER_S = 50
"""Of one switch. What exceeds it is missing: such a subflow ends as one whose end nobody sees."""
SILENT_S = 1.0
OPEN_S = 10.0
"""A subflow that carries something for so long after its first FIN goes on: its next one counts again."""
ACTIVE_MBPS = 0.01
MOST_REFUSED = 64


class _Copy(NamedTuple):
    """The rules that copy what one end of a subflow sends: their name, where they are, and what they match."""

    name: str
    at: At
    entry: Entry


@dataclass(slots=True, eq=False)
class _Watched:
    """A subflow. ``ended_s``: when the first FIN or RST came; ``carried_s``: when it last carried something after it;
    ``measured``: agents have told of it since.
    """

    subflow: Subflow
    flows: tuple[str, str]
    copies: list[_Copy]
    ended_s: float | None = None
    carried_s: float = 0.0
    measured: bool = False


@dataclass(eq=False)
class SubflowEnds:
    """One per controller. ``delivered`` tells what a flow carries, in Mb/s (None: unknown)."""

    port: ControllerPort
    table: ConnectionTable
    delivered: Callable[[str], float | None]
    clock: Callable[[], float]
    _watched: dict[str, dict[bytes, _Watched]] = field(default_factory=dict)
    """By connection and key of the subflow."""
    _by_cookie: dict[int, tuple[_Watched, _Copy]] = field(default_factory=dict)
    _ended: dict[bytes, _Watched] = field(default_factory=dict)
    """Those of which an end came."""

    @property
    def count(self) -> int:
        """Subflows that are watched."""
        return sum(map(len, self._watched.values()))

    def follow(self, name: str, routed: bool) -> None:
        """A connection is routed from now on, or no longer, or has other subflows."""
        connection = self.table.connections.get(name) if routed else None
        known, wanted = self._watched.pop(name, {}), {} if connection is None else connection.subflows
        changed: set[str] = set()
        for key, watched in known.items():
            if wanted.get(key) is not watched.subflow:
                changed |= self._copy(watched, watched.copies, on=False)
                self._ended.pop(key, None)
        here = {key: watched for key, watched in known.items() if wanted.get(key) is watched.subflow}
        for key, subflow in wanted.items():
            if connection is not None and key not in here and (copies := self._copies(connection, subflow)):
                here[key] = watched = _Watched(subflow, _flows(connection, subflow), copies)
                changed |= self._copy(watched, copies, on=True)
        if here:
            self._watched[name] = here
        self._flush(changed)

    def _copies(self, connection: Connection, subflow: Subflow) -> list[_Copy]:
        """Both ends' copies; none if one of them is no host of a node."""
        macs, found = self.port.context.addressing.host_mac, []
        for side, at, key in (("up", subflow.at, subflow.key), ("down", subflow.peer_at, turned(subflow.key))):
            mac = macs.get(at.host or "")
            if mac is None:
                return []
            name = f"{METER} {connection.id} {subflow.number} {side}"
            found.append(_Copy(name, at, end_copy(mac, _match(key))))
        return found

    def _copy(self, watched: _Watched, copies: list[_Copy], *, on: bool) -> set[str]:
        """Rules are wanted, or no longer; returns where. :meth:`_flush` sends them."""
        for copy in copies:
            for rule in copy.entry.rules:
                if on:
                    self._by_cookie[rule.cookie] = watched, copy
                else:
                    self._by_cookie.pop(rule.cookie, None)
            session = self.port.switches.get(copy.at.node)
            if session is not None and (not on or self._takes(session)):
                session.access.want(copy.name, copy.entry if on else None)
        return {copy.at.node for copy in copies}

    def _takes(self, session: SwitchSession) -> bool:
        """Whether a switch takes such rules: one that refuses them is not asked for ever."""
        return COPIES not in session.access.refused and len(session.access.refused) < MOST_REFUSED

    def _flush(self, nodes: set[str]) -> None:
        for node in sorted(nodes):
            session = self.port.switches.get(node)
            if session is not None:
                session.access.flush()

    def entries(self, node: str) -> dict[str, Entry]:
        """What is wanted of a switch."""
        found = {copy.name: copy.entry for _, copy in self._by_cookie.values() if copy.at.node == node}
        return {METER: end_meter(COPIES_PER_S), **found}

    def owns(self, cookie: int) -> bool:
        """Whether a packet-in with this cookie is for :meth:`packet_in`."""
        return cookie in self._by_cookie

    def packet_in(self, session: SwitchSession, message: bytes, cookie: int) -> None:
        """A segment with FIN or RST that has the addresses, ports and MAC of one end of a subflow."""
        watched, copy = self._by_cookie[cookie]
        self._flush(self._copy(watched, [copy], on=False))
        number = parse_packet_in(message).in_port
        if session.node != copy.at.node or session.ports.get(copy.at.port) != number:
            # Somebody else's. Whoever sends such segments is not listened to again.
            return
        if watched.ended_s is None:
            watched.ended_s = watched.carried_s = self.clock()
            watched.measured = False
            self._ended[watched.subflow.key] = watched

    def once(self) -> None:
        """End the subflows that have been silent since their FIN or RST; called a few times a second."""
        now_s = self.clock()
        for key, watched in list(self._ended.items()):
            rates = [rate for flow in watched.flows if (rate := self.delivered(flow)) is not None]
            watched.measured |= bool(rates)
            if any(rate > ACTIVE_MBPS for rate in rates):
                watched.carried_s = now_s
            began_s = watched.ended_s if watched.ended_s is not None else now_s
            if watched.measured and now_s - watched.carried_s >= SILENT_S:
                del self._ended[key]
                self.table.end(key)
            elif now_s - began_s >= OPEN_S:
                del self._ended[key]
                watched.ended_s = None
                self._flush(self._copy(watched, watched.copies, on=True))


def _flows(connection: Connection, subflow: Subflow) -> tuple[str, str]:
    return flow_of(connection.token, subflow.number, "up"), flow_of(connection.token, subflow.number, "down")


def _match(key: bytes) -> Match:
    at = ends(key)
    ports = Match(tcp_src=at.source_port, tcp_dst=at.target_port)
    if ":" in at.source:
        return replace(ports, eth_type=ETH_TYPE_IPV6, ipv6_src=at.source, ipv6_dst=at.target)
    return replace(ports, eth_type=ETH_TYPE_IPV4, ipv4_src=at.source, ipv4_dst=at.target)

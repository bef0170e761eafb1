"""Hosts join and leave sessions by IGMP and MLD; switches send their reports up at a bounded rate.

This applies to sessions with ``membership``. A host joins under its MAC and leaves under it; a participant that was
declared by another name stays.

A querier asks hosts behind access ports, and stations, which groups they want (``core.services.querier``). A host that
joined by a report and no longer answers leaves. Only switches that send reports up are asked, and only while some
session has ``membership``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from ipaddress import IPv4Address

from hyroads.controller.control.sessions import Host, LiveSession
from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.core.services import membership as core
from hyroads.controller.core.services.membership import Querier, Report
from hyroads.controller.core.services.sessions import GroupAddressError, group_address
from hyroads.controller.ofp import wire
from hyroads.controller.ofp.readback import parse_packet_in
from hyroads.controller.settings.clients import QuerierSettings
from hyroads.controller.switches.sessions import SwitchSession

from .sessions import SessionService

TICK_S = 0.05
# A host that comes and goes faster is followed this often.
SETTLE_S = 1.0
MAX_WAITING = 1024
LOOK_S = 1.0

Key = tuple[str, str]
"""Session and MAC."""
Station = tuple[str, str, str]
"""Node, port and MAC of a host on a medium."""

PlaceOf = Callable[[str, str], tuple[str, str | None] | None]
"""Node and name of a port -> where its hosts are: node, and technology if the port is on a medium; None: no hosts."""


@dataclass(frozen=True, slots=True)
class Member:
    """A host that came in by its report: where it was heard last, until when that counts, and whether its reports are
    for all (``Report.for_all``).
    """

    node: str
    port: str
    until_s: float
    for_all: bool = False


@dataclass(eq=False)
class QuerierService:
    """One per controller. ``access_port`` has the names of access ports by node."""

    switches: Mapping[str, SwitchSession]
    access_port: Mapping[str, str]
    settings: QuerierSettings
    clock: Callable[[], float]

    def __post_init__(self) -> None:
        self._queriers: tuple[Querier, ...] = ()

    def begin_again(self) -> None:
        """Ask as after a start: who asked until now asks no more."""
        self._queriers = ()

    @property
    def membership_s(self) -> float:
        """How long a report counts."""
        times: core.QueryTimes = self.settings.times
        return max((querier.membership_s for querier in self._queriers), default=times.membership_s)

    def hears(self, node: str) -> bool:
        """Whether a switch hands up what hosts say."""
        session = self.switches.get(node)
        confirmed = session.confirmed if session is not None else None
        return confirmed is not None and confirmed.intent.hears_reports

    def heard(self, frame: bytes) -> None:
        """A frame that came in at a port: another querier may ask."""
        query = core.query_of(frame)
        if query is not None:
            family, now_s = query.source.version, self.clock()
            self._queriers = tuple(
                core.heard(querier, query, now_s) if querier.address.version == family else querier
                for querier in self._queriers
            )

    def once(self, stations: Iterable[Station], *, needed: bool) -> None:
        """Ask, if it is time to."""
        if not needed:
            self._queriers = ()
            return
        now_s = self.clock()
        if not self._queriers:
            addresses: tuple[core.Address, ...] = (IPv4Address(self.settings.address), core.LINK_LOCAL)
            self._queriers = tuple(core.begun(address, self.settings.times, now_s) for address in addresses)
        after = [core.turned(querier, now_s) for querier in self._queriers]
        self._queriers = tuple(querier for querier, _ in after)
        asked = tuple(stations)
        for querier, is_due in after:
            if is_due:
                self._ask(querier, asked)

    def _ask(self, querier: Querier, stations: tuple[Station, ...]) -> None:
        for node, session in list(self.switches.items()):
            if self.hears(node) and session.may_change:
                for port, mac in self._targets(node, stations):
                    if port in session.ports:
                        session.connection.send(
                            wire.packet_out(0, core.query_frame(querier, mac), out=session.ports[port])
                        )

    def _targets(self, node: str, stations: tuple[Station, ...]) -> Iterator[tuple[str, str | None]]:
        """Ports to ask at, and whom: all who are there, or one station."""
        yield self.access_port[node], None
        yield from ((port, mac) for at, port, mac in stations if at == node)


@dataclass(eq=False)
class MembershipService:
    """One per controller."""

    sessions: SessionService
    place_of: PlaceOf
    clock: Callable[[], float]
    fault: Callable[[str, str], None]
    querier: QuerierService

    def __post_init__(self) -> None:
        self._waiting: dict[Key, tuple[Host, Member | None]] = {}
        self._changed_s: dict[Key, float] = {}
        self._members: dict[Key, Member] = {}
        self._look_s = self.clock()

    # -- the state file

    def to_save(self) -> list[list[object]]:
        """Who came in by a report: only they may go for want of one."""
        return [[name, mac, m.node, m.port, m.for_all] for (name, mac), m in self._members.items()]

    def become(self, documents: object) -> None:
        """Members are those that another controller, which leads, knows."""
        self._members.clear()
        self._waiting.clear()
        self.restore(documents)

    def lead(self) -> None:
        """From now on reports are heard here: until now the controller that led heard them, and asked for them."""
        self.querier.begin_again()
        until_s = self.clock() + self.querier.membership_s
        self._members = {key: replace(member, until_s=until_s) for key, member in self._members.items()}

    def restore(self, documents: object) -> None:
        """Takes in what an earlier controller knew; all of them are asked before they go."""
        until_s = self.clock() + self.querier.membership_s
        for document in documents if isinstance(documents, list) else ():
            match document:
                case [str(name), str(mac), str(node), str(port), bool(for_all)]:
                    self._members[name, mac] = Member(node, port, until_s, for_all)

    # -- what switches hand up

    def packet_in(self, session: SwitchSession, message: bytes) -> None:
        """A report or a query that a switch handed up."""
        packet = parse_packet_in(message)
        port = next((name for name, number in session.ports.items() if number == packet.in_port), "")
        self.heard(session.node, port, packet.frame)

    def heard(self, node: str, port: str, frame: bytes) -> None:
        """A frame that came in at a port."""
        place = self.place_of(node, port)
        if place is None:
            return
        self.querier.heard(frame)
        at, technology = place
        until_s = self.clock() + self.querier.membership_s
        for report in core.reports(frame):
            member = Member(at, port, until_s, report.for_all) if report.joins else None
            for name, live in self.sessions.sessions.items():
                if live.spec.membership and _is_meant(live, report):
                    host = Host(report.mac, True, at, report.mac, None, technology)
                    self._note(live, (name, report.mac), host, member)

    def _note(self, live: LiveSession, key: Key, host: Host, member: Member | None) -> None:
        if key in self._waiting or len(self._waiting) < MAX_WAITING:
            self._waiting[key] = host, member
        if member is None or not member.for_all:
            return
        # Others who want it have held back their reports.
        for participant in live.spec.participants:
            other = key[0], participant.name
            known = self._members.get(other)
            if known is not None and known.for_all:
                self._members[other] = replace(known, until_s=member.until_s)

    def once(self) -> None:
        """Carry out what was heard and has settled; ask, and let those go who have not answered."""
        now_s = self.clock()
        self._changed_s = {key: at_s for key, at_s in self._changed_s.items() if now_s - at_s < SETTLE_S}
        for key, (host, member) in list(self._waiting.items()):
            if key not in self._changed_s:
                del self._waiting[key]
                self._settle(key, host, member, now_s)
        is_needed = any(live.spec.membership for live in self.sessions.sessions.values())
        self.querier.once(self._stations(), needed=is_needed)
        if now_s >= self._look_s:
            self._look_s = now_s + LOOK_S
            self._expire(now_s)

    def _settle(self, key: Key, host: Host, member: Member | None, now_s: float) -> None:
        """A host's latest word on a session."""
        name, mac = key
        live = self.sessions.sessions.get(name)
        if live is None:
            return
        takes_part = any(one.mac == mac for one in live.hosts)
        if member is not None and takes_part:
            if key in self._members:
                self._members[key] = member
            return
        if member is None and (not takes_part or live.spec.find(mac) is None):
            return
        self._changed_s[key] = now_s
        try:
            self.sessions.member(name, host, joins=member is not None)
        except HyroadsError as error:
            self.fault(f"session {name}", f"{mac} can't {'leave' if member is None else 'join'}: {error}")
        else:
            self._members.pop(key, None)
            if member is not None:
                self._members[key] = member
            self.sessions.keep()

    def _stations(self) -> Iterator[Station]:
        """Members on media, who are asked one by one."""
        for (_, mac), member in self._members.items():
            place = self.place_of(member.node, member.port)
            if place is not None and place[1] is not None:
                yield member.node, member.port, mac

    def _expire(self, now_s: float) -> None:
        """Who has not answered goes; not those whose switch could not have told."""
        later_s = now_s + self.querier.membership_s
        for key, member in list(self._members.items()):
            name, mac = key
            live = self.sessions.sessions.get(name)
            if live is None:
                if not self.sessions.knows(name):
                    del self._members[key]
            elif not live.spec.membership or live.spec.find(mac) is None:
                # Reports are not followed any more, or somebody else has removed it.
                del self._members[key]
            elif not self.querier.hears(member.node):
                self._members[key] = replace(member, until_s=later_s)
            elif now_s > member.until_s and key not in self._waiting:
                self._members[key] = replace(member, until_s=later_s)
                self._settle(key, Host(mac, True, member.node, mac), None, now_s)


def _is_meant(live: LiveSession, report: Report) -> bool:
    """Whether a report is about the group of a session: by address, or by MAC if the session is declared so."""
    try:
        group = group_address(report.group)
    except GroupAddressError:
        return False
    return live.spec.group.meets(group)

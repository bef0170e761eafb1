"""Hosts join and leave sessions by IGMP and MLD: what switches hand up, at a bounded rate, becomes participants.

Only sessions with ``membership``. A host comes in under its MAC, and goes under it; who was declared by another name
stays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from hyroads.controller import ryu_shim as shim
from hyroads.controller.control.sessions import Host, LiveSession
from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.core.services.group_address import GroupAddressError, group_address
from hyroads.controller.core.services.membership import Report, reports
from hyroads.controller.ofp.packet_in import parse_packet_in
from hyroads.controller.switches import SwitchSession

TICK_S = 0.05
# A host that comes and goes faster is followed this often.
SETTLE_S = 1.0
MAX_WAITING = 1024


class Sessions(Protocol):
    """What the desk needs of that of sessions."""

    @property
    def sessions(self) -> Mapping[str, LiveSession]:
        """All that are declared."""

    def member(self, name: str, host: Host, *, joins: bool) -> None:
        """A host takes part from now on, or does not any more. HyroadsError if it can't be."""


PlaceOf = Callable[[str, str], tuple[str, str | None] | None]
"""Node and name of a port -> where its hosts are: node, and technology if the port is on a medium; None: no hosts."""


class MembershipDesk:
    """One per controller."""

    def __init__(
        self, sessions: Sessions, place_of: PlaceOf, clock: Callable[[], float], fault: Callable[[str, str], None]
    ) -> None:
        self._sessions = sessions
        self._place_of = place_of
        self._clock = clock
        self._fault = fault
        self._waiting: dict[tuple[str, str], tuple[Host, bool]] = {}
        self._changed_s: dict[tuple[str, str], float] = {}

    def packet_in(self, session: SwitchSession, message: bytes) -> None:
        """A report that a switch handed up."""
        packet = parse_packet_in(message)
        port = next((name for name, number in session.ports.items() if number == packet.in_port), "")
        self.heard(session.node, port, packet.frame)

    def heard(self, node: str, port: str, frame: bytes) -> None:
        """A frame with reports came in at a port."""
        place = self._place_of(node, port)
        if place is None:
            return
        at, technology = place
        for report in reports(frame):
            for name, live in self._sessions.sessions.items():
                key = (name, report.mac)
                room = key in self._waiting or len(self._waiting) < MAX_WAITING
                if live.spec.membership and _is_meant(live, report) and room:
                    host = Host(report.mac, True, at, report.mac, None, technology)
                    self._waiting[key] = host, report.joins

    def run(self, exception: Callable[[str, BaseException], None]) -> None:
        """Work for ever, in the calling green thread."""
        while True:
            shim.sleep(TICK_S)
            try:
                self.once()
            except Exception as error:  # noqa: BLE001 - the next report is another try; it is counted and shown
                exception("membership of sessions", error)

    def once(self) -> None:
        """Carry out what was heard and has settled."""
        now_s = self._clock()
        self._changed_s = {key: at_s for key, at_s in self._changed_s.items() if now_s - at_s < SETTLE_S}
        for key, (host, joins) in list(self._waiting.items()):
            if key in self._changed_s:
                continue
            del self._waiting[key]
            name, mac = key
            live = self._sessions.sessions.get(name)
            if live is None or joins == any(one.mac == mac for one in live.hosts):
                continue
            if not joins and live.spec.find(mac) is None:
                continue
            self._changed_s[key] = now_s
            try:
                self._sessions.member(name, host, joins=joins)
            except HyroadsError as error:
                self._fault(f"session {name}", f"{mac} can't {'join' if joins else 'leave'}: {error}")


def _is_meant(live: LiveSession, report: Report) -> bool:
    """Whether a report is about the group of a session: by address, or by MAC if the session is declared so."""
    try:
        group = group_address(report.group)
    except GroupAddressError:
        return False
    return live.spec.group.meets(group)

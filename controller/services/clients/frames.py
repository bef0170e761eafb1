"""What a frame that a switch sent to the controller leads to: its sender is learned, moves, or is refused.

These are frames of unknown sources, claims that are not known to be true, and what servers say, at access ports and of
plain clients on media (docs/reference/clients.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from hyroads.controller.core.network import WIRED, Place
from hyroads.controller.core.services import clients as core
from hyroads.controller.core.services.client_tables import Change, Happened, Notice
from hyroads.controller.core.services.membership import MAC
from hyroads.controller.core.services.sightings import By, Claim, Sighting, sighting_of
from hyroads.controller.ofp import wire
from hyroads.controller.ofp.hosts import Barred, Serving
from hyroads.controller.ofp.readback import parse_packet_in
from hyroads.controller.switches.sessions import SwitchSession

from .declared import place_document

if TYPE_CHECKING:
    from .locations import ClientService

MAX_SENT_ON_PER_S = 16
"""Frames of one host: a switch that does not have its rule, whatever it said, would send them again and again."""
BARRED_MORE_S = 0.1
"""So much longer than it has time to answer is somebody barred while another is asked."""
SERVER_BARRED_S = 5.0
_CONTROLLER_MAC = wire.mac_bytes(MAC)
_ROGUES = {
    Serving.DHCP: ("client.rogue_dhcp", "speaks as a DHCP server where none may be: dropped (access.dhcp_servers)"),
    Serving.ROUTER: ("client.rogue_ra", "speaks as an IPv6 router where none may be: dropped (access.routers)"),
}


class FrameGuard:
    """Judges frames for a ``service``, with its state and its tables; it is used in its green thread alone."""

    def __init__(self, service: ClientService) -> None:
        self._service = service
        addressing = service.context.addressing
        self._own_ips = {ip: node for node, ip in addressing.host_ip.items()}
        self.sent_on: Counter[str] = Counter()
        """Frames that were sent on, by host; whoever counts seconds clears it."""

    def take(self, session: SwitchSession, message: bytes) -> None:
        """A packet-in."""
        service = self._service
        service.counters["punted"] += 1
        packet = parse_packet_in(message)
        names = {number: name for name, number in session.ports.items()}
        port = names.get(packet.in_port, "")
        place = service.place_of(session, port)
        sighting = sighting_of(packet.frame)
        if place is None or sighting is None:
            return
        if place.technology != WIRED and sighting.mac not in service.plain:
            return
        if packet.frame[:6] == _CONTROLLER_MAC:
            service.state = core.heard(service.state, place, [sighting.mac], service.clock())
            return
        send_on = partial(self._send_on, session, packet.in_port, sighting.mac, packet.frame)
        self._judge(sighting, place, port, send_on)

    def _judge(self, sighting: Sighting, place: Place, port: str, send_on: Callable[[], None]) -> None:
        service, mac = self._service, sighting.mac
        if self._is_new(sighting) and not service.floods.arrived(place, port):
            return
        if sighting.serves_dhcp:
            self._serves(sighting, place, port)
        elif sighting.routes and not (place.technology == WIRED and place.node in service.context.routers):
            self._refuse(mac, place, port, Serving.ROUTER)
        elif place.technology == WIRED:
            if self._seen(mac, place, port, send_on) and self._believed(sighting, place, port):
                service.tables.place(mac, service.spot(mac, place), send_on)
        else:
            known = service.state.interfaces.get(mac)
            was_here = known is not None and known.place == place
            if self._seen(mac, place, port) and self._believed(sighting, place, port) and was_here:
                service.refresh(mac, send_on)

    def _is_new(self, sighting: Sighting) -> bool:
        """Whether anything in a frame is not known yet."""
        state, fixed = self._service.state, self._service.fixed
        if sighting.mac not in state.interfaces and sighting.mac not in fixed:
            return True
        return any(claim.ip not in state.addresses and claim.ip not in self._own_ips for claim in sighting.claims)

    def _seen(self, mac: str, place: Place, port: str, send_on: Callable[[], None] | None = None) -> bool:
        """Whether a host may be at a place; else what it sends there is dropped for a while. ``send_on`` waits for the
        answer if another place has to be asked first.
        """
        service = self._service
        home = Place(service.fixed.get(mac, ""), WIRED)
        if home == place:
            # It came before the rule that lets it in.
            return False
        if mac in service.fixed and (mac not in service.plain or place.technology == WIRED):
            change = Change(service.state, (Notice(Happened.SPOOFED_MAC, mac, place, home),), allowed=False)
        else:
            change = core.seen(service.state, mac, place, service.clock())
        service.take(change)
        if not change.allowed:
            if change.asks and send_on is not None:
                service.questions.hold(mac, send_on)
            service.tables.bar(place.node, Barred(mac, port), self._barred_s(mac, None))
        return change.allowed

    def _barred_s(self, owner: str, ip: str | None) -> float:
        """How long somebody is barred who uses what another has: until that one has answered, or was silent for long
        enough to be asked.
        """
        service = self._service
        limits, interface = service.state.limits, service.state.interfaces.get(owner)
        if (owner, ip) in service.state.questions:
            return limits.answer_s + BARRED_MORE_S
        if interface is None or interface.is_held:
            return limits.quiet_s
        return min(limits.quiet_s, max(limits.answer_s, interface.heard_s + limits.quiet_s - service.clock()))

    def _believed(self, sighting: Sighting, place: Place, port: str) -> bool:
        """Whether all that a host claims may be true; else such claims are dropped for a while."""
        service = self._service
        for claim in sighting.claims:
            if not self.claim(claim, place):
                owner = service.state.addresses.get(claim.ip)
                for_s = self._barred_s(owner.mac if owner is not None else "", claim.ip)
                service.tables.bar(place.node, Barred(claim.mac, port, claim.ip), for_s)
                return False
        return True

    def claim(self, claim: Claim, place: Place) -> bool:
        """A host has an address; false if it is another's."""
        service = self._service
        owner = self._own_ips.get(claim.ip)
        if owner is not None and claim.mac != service.context.addressing.host_mac[owner]:
            notice = Notice(Happened.SPOOFED_IP, claim.mac, place, self._home(owner), claim.ip)
            service.take(Change(service.state, (notice,), allowed=False))
            return False
        before = service.state.addresses.get(claim.ip)
        change = core.address_seen(service.state, claim.mac, claim.ip, service.clock(), by_dhcp=claim.by is By.DHCP)
        service.take(change)
        if change.allowed:
            for mac in {claim.mac} if before is None else {claim.mac, before.mac}:
                service.refresh(mac)
        return change.allowed

    def _home(self, node: str) -> Place | None:
        """Where the host of a node is."""
        if node in self._service.context.addressing.access_port:
            return Place(node, WIRED)
        interface = self._service.state.interfaces.get(self._service.context.addressing.host_mac[node])
        return interface.place if interface is not None else None

    def _serves(self, sighting: Sighting, place: Place, port: str) -> None:
        """A DHCP server spoke: what it gives counts where servers may be; elsewhere it is dropped."""
        if place.technology == WIRED and place.node in self._service.context.dhcp:
            for claim in sighting.claims:
                self.claim(claim, place)
            return
        self._refuse(sighting.mac, place, port, Serving.DHCP)

    def _refuse(self, mac: str, place: Place, port: str, serving: Serving) -> None:
        """Somebody speaks as what may not be there: it is dropped, and told."""
        service, (event, what) = self._service, _ROGUES[serving]
        service.counters["refused"] += 1
        barred = Barred(mac, port, serving=serving, is_station=place.technology != WIRED)
        service.tables.bar(place.node, barred, SERVER_BARRED_S)
        if service.complain((serving, mac, place), f"client {mac} at {place}", what):
            service.publish(event, {"mac": mac, "place": place_document(place)})

    def _send_on(self, session: SwitchSession, port: int, mac: str, frame: bytes) -> None:
        """A frame that waited until its sender was let in."""
        self.sent_on[mac] += 1
        if self.sent_on[mac] <= MAX_SENT_ON_PER_S and session.may_change:
            session.connection.send(wire.packet_out(0, frame, in_port=port))

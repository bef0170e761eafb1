"""Places under 802.1X: shuts plain clients out that are not authenticated, counts what is dropped, and says what access
points tell of rejected stations and of RADIUS servers (docs/explanation/clients.md, *802.1X*).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hyroads.controller.agents.telemetry import BACK, BAD_SECRET, REJECTED, SILENT, AuthenticationEvent
from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.core.network import WIRED, Place
from hyroads.controller.core.services.client_tables import Happened, Notice
from hyroads.controller.ofp.hosts import Barred

from .declared import place_document

if TYPE_CHECKING:
    from .locations import ClientService

_SERVERS = {
    SILENT: "does not answer: it is away, or does not know this access point by this address and secret",
    BAD_SECRET: "answers with another secret than ours",
    BACK: "answers again",
}
_EVENTS = {SILENT: "silent", BAD_SECRET: "bad_secret", BACK: "back"}


class ClosedPlaces:
    """For a ``service``, in whose green thread it is used alone."""

    def __init__(self, service: ClientService) -> None:
        self._service = service

    def follow(self, notice: Notice, *, is_told: bool) -> None:
        """After a notice: who lost its place is let go by its access point too, and a plain client is shut out until it
        is authenticated.
        """
        service, closed = self._service, self._service.context.closed
        if notice.what is Happened.LEFT and notice.other is not None and notice.other in closed:
            if not is_told:
                service.deauthenticate(notice.other, notice.mac, 0.0)
            self._shut(notice.mac, notice.other, shut=True)
        elif notice.what in {Happened.JOINED, Happened.MOVED} and notice.place is not None and notice.place in closed:
            self._shut(notice.mac, notice.place, shut=False)

    def _shut(self, mac: str, place: Place, *, shut: bool) -> None:
        """The rules of a plain client follow from links, also while it is nowhere."""
        service = self._service
        if mac in service.plain and place.technology != WIRED:
            service.tables.shut_out(place.node, Barred(mac, service.port_name(place)), shut=shut)

    def told(self, node: str, event: AuthenticationEvent) -> None:
        """What an access point says: one event, and one fault, for each."""
        service, place = self._service, Place(node, event.technology)
        if not service.knows(place):
            raise HyroadsError(f"access point {node}: 802.1X at {event.technology[:32]!r} can't be")
        if event.what == REJECTED:
            service.counters["rejected"] += 1
            who = "somebody" if event.user is None else f"user {event.user}"
            what = f"is not authenticated: {who} was rejected (802.1X)"
            if service.complain((REJECTED, event.mac, place), f"client {event.mac} at {place}", what):
                document = {"mac": event.mac, "user": event.user, "place": place_document(place)}
                service.publish("client.rejected", document)
            return
        what = _SERVERS[event.what]
        if event.what != BACK:
            service.port.fault(f"RADIUS server {event.server} of {place}", what)
        document = {"server": event.server, "place": place_document(place), "state": event.what, "message": what}
        service.publish(f"radius.{_EVENTS[event.what]}", document)

    def dropped(self) -> dict[str, int]:
        """Frames that came in at access ports under 802.1X from somebody who is not authenticated, by node, as far as
        switches have said.
        """
        service, found = self._service, {}
        for node in sorted(service.context.closed_ports):
            session = service.port.switches.get(node)
            number = session.ports.get(service.port_name(Place(node, WIRED))) if session is not None else None
            count = session.hosts.dropped_packets(number) if session is not None and number is not None else None
            if count is not None:
                found[node] = count
        return found

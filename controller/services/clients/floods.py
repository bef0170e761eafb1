"""Holds ports back at which new addresses come faster than hosts do, and says so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from hyroads.controller.core.network import WIRED, Place
from hyroads.controller.core.services import clients as core
from hyroads.controller.core.services.floods import Flood, FloodLimits, FloodWatch
from hyroads.controller.ofp.access import PORT_METERS, Entry
from hyroads.controller.ofp.hosts import Held
from hyroads.controller.ofp.intents import AccessPort
from hyroads.controller.ofp.port_meters import metered_access_port, metered_station_port

from .declared import place_document

if TYPE_CHECKING:
    from .locations import ClientService

LEARNED_LATELY_S = 15.0
"""Who was learned so shortly before a flood was noticed, and was not heard again, belongs to it."""


class FloodGuard:
    """Watches for a ``service``, in whose green thread it is used alone."""

    def __init__(self, service: ClientService, limits: FloodLimits | None = None) -> None:
        self._service = service
        self._watch = FloodWatch(limits if limits is not None else FloodLimits())
        addressing = service.context.addressing
        self._stations_at = {Place(at.node, at.technology) for each in addressing.attachments.values() for at in each}

    def is_held(self, place: Place) -> bool:
        """Whether a port is held back."""
        return place in self._watch.floods

    def arrived(self, place: Place, port: str) -> bool:
        """A new address came at a place; false if that is too many."""
        flood = self._watch.arrived(place, self._service.clock())
        if flood is not None:
            self._begin(flood, port)
        return not self.is_held(place)

    def _begin(self, flood: Flood, port: str) -> None:
        service, place = self._service, flood.place
        service.tables.hold(place.node, Held(port, is_station=place.technology != WIRED))
        service.take(core.cleared(service.state, place, flood.since_s - LEARNED_LATELY_S))
        service.counters["floods"] += 1
        what = "new addresses come too fast: nobody new is let in there until that ends"
        service.port.fault(f"port {place}", what)
        service.publish("port.flood", {"place": place_document(place)})

    def each_second(self) -> None:
        """Look at what was dropped, and let ports go where it is over."""
        service = self._service
        for place in list(self._watch.floods):
            session, name = service.port.switches.get(place.node), service.port_name(place)
            number = session.ports.get(name) if session is not None else None
            counter = session.hosts.held_packets(number) if session is not None and number is not None else None
            over = self._watch.counted(place, counter, service.clock())
            if over is not None:
                service.tables.release(place.node, name)
                after_s = service.clock() - over.since_s
                document = {"place": place_document(place), "after_s": after_s, "dropped_frames": over.dropped}
                service.publish("port.flood_ended", document)

    def entries(self, node: str) -> dict[str, Entry]:
        """Meters of what the ports of a node's switch may send to the controller, and the rules that use them, by
        names that no access rule has.
        """
        context, session = self._service.context, self._service.port.switches.get(node)
        if node not in context.guarded or session is None:
            return {}
        return {f"\0port {name}": entry for name, entry in self._entries(node, dict(session.ports))}

    def _entries(self, node: str, numbers: dict[str, int]) -> Iterator[tuple[str, Entry]]:
        context = self._service.context
        access = context.addressing.access_port[node]
        if access in numbers:
            closed = Place(node, WIRED) in context.closed
            port = AccessPort(access, (), True, node in context.dhcp, node in context.routers, closed)
            yield access, metered_access_port(numbers[access], port, 0)
        for index, technology in enumerate(context.addressing.technologies(node), start=1):
            name = context.addressing.interface_name[node, technology]
            if Place(node, technology) in self._stations_at and name in numbers and index < PORT_METERS:
                yield name, metered_station_port(numbers[name], index)

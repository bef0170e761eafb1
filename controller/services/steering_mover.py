"""Stations of the network file as policies see them, moved by asking them (802.11v)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from hyroads.controller.coordinator import Coordinator
from hyroads.controller.core.services.clients import Evidence, Interface
from hyroads.controller.core.services.options import options_of
from hyroads.controller.core.services.place import Place
from hyroads.controller.core.services.view import ClientView
from hyroads.controller.services.clients import ClientDesk
from hyroads.controller.services.policies import Outcome
from hyroads.controller.services.steering import ASSOCIATED, Steering


class SteeringMover:
    """See ``services.policies.Mover``. Only stations that an access point told of can be asked."""

    def __init__(self, desk: ClientDesk, steering: Steering, coordinator: Coordinator) -> None:
        self._desk = desk
        self._steering = steering
        self._coordinator = coordinator
        addressing = coordinator.fabric.addressing
        self._stations = {client: addressing.host_mac[client] for client in addressing.attachments}

    def clients(self, now_s: float) -> Mapping[str, ClientView]:
        """See ``Mover``. A client has no better place than one that stations can be sent to."""
        state, fabric, loop = self._coordinator.state, self._coordinator.fabric, self._coordinator.live.loop
        network, capacity = fabric.network, loop.capacities()
        interference = state.interference or network.interference
        found = {}
        for client, mac in self._stations.items():
            interface = self._desk.state.interfaces.get(mac)
            if interface is None or interface.place is None or interface.evidence is not Evidence.ASSOCIATION:
                continue
            links = (link for link in network.links if client in (link.source, link.target))
            rates = {link.id: 0.0 if state.link_fault(fabric, link) else capacity.get(link.id, 0.0) for link in links}
            options = options_of(network, client, rates, interference, partial(_signal, interface))
            usable = tuple(o for o in options if o.place == interface.place or self._steering.can_go(o.place))
            if len(usable) > 1:
                found[client] = ClientView(client, interface.place, interface.since_s, usable)
        return found

    def move(self, client: str, place: Place) -> str:
        """See ``Mover``."""
        self._steering.request(self._stations[client], place)
        return self._stations[client]

    def outcome(self, move: str) -> Outcome | None:
        """See ``Mover``."""
        transition = self._steering.last(move)
        if transition is None:
            return Outcome("nobody knows of it any more")
        if not transition.is_over:
            return None
        if transition.state == ASSOCIATED:
            return Outcome(None)
        status = "" if transition.status is None else f" (status {transition.status})"
        return Outcome(f"{transition.reason or transition.state}{status}")


def _signal(interface: Interface, place: Place) -> float | None:
    """Only where it is its signal is known."""
    return interface.signal_dbm if interface.place == place else None

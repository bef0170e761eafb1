"""Clients of the network file as policies and plugins see them, moved by the desk of handovers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from hyroads.controller.control.handover import places_of
from hyroads.controller.control.inbox import Inbox
from hyroads.controller.coordinator import Coordinator
from hyroads.controller.core.network import Role
from hyroads.controller.core.services.mobility import Phase
from hyroads.controller.core.services.options import options_of
from hyroads.controller.core.services.place import Place
from hyroads.controller.core.services.view import ClientView, NetworkView
from hyroads.controller.services.handovers import HandoverDesk
from hyroads.controller.services.network_view import network_view
from hyroads.controller.services.policies import Outcome
from hyroads.rest.contract import NotFoundError


class HandoverMover:
    """See ``services.policies.Mover``. A client that uses all its places at once has no place."""

    def __init__(self, desk: HandoverDesk, coordinator: Coordinator, inbox: Inbox) -> None:
        self._desk = desk
        self._coordinator = coordinator
        self._inbox = inbox
        network = coordinator.fabric.network
        self._clients = tuple(
            name
            for name, node in network.nodes.items()
            if node.role is Role.CLIENT and node.agent and len(places_of(network, name)) > 1
        )
        self._since: dict[str, tuple[Place | None, float]] = {}

    def clients(self, now_s: float) -> Mapping[str, ClientView]:
        """See ``Mover``."""
        coordinator = self._coordinator
        state, fabric, loop = coordinator.state, coordinator.fabric, coordinator.live.loop
        network = fabric.network
        interference = state.interference or network.interference
        capacity = loop.capacities()
        rates = {
            link.id: 0.0 if state.link_fault(fabric, link) else capacity.get(link.id, 0.0) for link in network.links
        }
        found = {}
        for name in self._clients:
            confined = state.confined.get((name, None))
            place = confined.stays if confined is not None else None
            options = options_of(network, name, rates, interference, self._signal_of(name, now_s))
            found[name] = ClientView(name, place, self._since_s(name, place, now_s), options, self._demand(name))
        return found

    def move(self, client: str, place: Place) -> str:
        """See ``Mover``."""
        body = {"client": client, "to": {"node": place.node, "technology": place.technology}}
        return str(self._desk.request(body)["id"])

    def outcome(self, move: str) -> Outcome | None:
        """See ``Mover``."""
        try:
            document = self._desk.document(move)
        except NotFoundError:
            return Outcome("nobody knows of it any more")
        if not document["over"]:
            return None
        return Outcome(None if document["phase"] == Phase.DONE.value else str(document["reason"]))

    def _since_s(self, client: str, place: Place | None, now_s: float) -> float:
        known = self._since.get(client)
        if known is None or known[0] != place:
            self._since[client] = known = (place, now_s)
        return known[1]

    def _demand(self, client: str) -> float:
        """What its flows send at most, Mb/s; infinite if one of them takes what it can get."""
        flows, demands = self._coordinator.state.flows.values(), self._coordinator.live.loop.state.demands
        mine = (flow.spec for flow in flows if client in (flow.spec.source, flow.spec.target))
        return sum(demands.demand_mbps(spec.id) for spec in mine)

    def _signal_of(self, client: str, now_s: float) -> Callable[[Place], float | None]:
        radios, macs = self._inbox.radios, self._coordinator.fabric.addressing.interface_mac

        def signal(place: Place) -> float | None:
            interface, mac = (place.node, place.technology), macs.get((client, place.technology))
            if not radios.is_fresh(interface, now_s):
                return None
            return next((row.signal_dbm for row in radios.neighbours(interface) if row.mac == mac), None)

        return signal


def whole_view(coordinator: Coordinator, mover: HandoverMover) -> NetworkView:
    """The network with its clients."""
    view = network_view(coordinator)
    return replace(view, clients=mover.clients(view.time_s))

"""Plain clients of the network file, as their handovers need them: places, associations, what switches confirmed."""

from __future__ import annotations

from contextlib import suppress

from hyroads.controller.control.handover import links_at
from hyroads.controller.coordinator import Coordinator
from hyroads.controller.core.services.clients import Evidence
from hyroads.controller.core.services.place import Place
from hyroads.controller.ofp.intents import SwitchIntent
from hyroads.controller.services.clients import ClientDesk
from hyroads.controller.services.declared_clients import first_place, possible_places
from hyroads.controller.services.steering import REFUSED, Steering, Transition
from hyroads.rest.contract import ConflictError, NotFoundError


class FollowedClients:
    """See ``plain_handovers.PlainClients``."""

    def __init__(self, coordinator: Coordinator, desk: ClientDesk, steering: Steering) -> None:
        self._coordinator = coordinator
        self._desk = desk
        self._steering = steering
        self._asked: dict[str, Transition] = {}

    def places(self, client: str) -> tuple[Place, ...]:
        """See ``PlainClients``."""
        return possible_places(self._coordinator.fabric, client)

    def place(self, client: str) -> Place | None:
        """See ``PlainClients``."""
        return first_place(self._coordinator.fabric, self._coordinator.state, client)

    def is_here(self, client: str, place: Place) -> bool:
        """See ``PlainClients``."""
        fabric, state = self._coordinator.fabric, self._coordinator.state
        network = fabric.network
        links = [network.links[network.link_index[name]] for name in links_at(network, client, place)]
        if not links or any(state.link_down(fabric, link) is not None for link in links):
            return False
        interface = self._desk.state.interfaces.get(self._mac(client))
        held = interface is not None and interface.evidence is Evidence.ASSOCIATION and interface.place is not None
        return not held or (interface is not None and interface.place == place)

    def flows(self, client: str) -> frozenset[str]:
        """See ``PlainClients``."""
        flows = self._coordinator.state.flows.values()
        return frozenset(flow.spec.id for flow in flows if client in (flow.spec.source, flow.spec.target))

    def ask(self, client: str, place: Place) -> None:
        """See ``PlainClients``. Who can't be asked may still come, within the handover's time."""
        self._asked.pop(client, None)
        with suppress(ConflictError, NotFoundError):
            self._asked[client] = self._steering.request(self._mac(client), place)

    def refusal(self, client: str) -> str | None:
        """See ``PlainClients``."""
        asked = self._asked.get(client)
        return f"802.11v status {asked.status}" if asked is not None and asked.state == REFUSED else None

    def move(self, client: str, place: Place) -> None:
        """See ``PlainClients``."""
        self._desk.hand_over(client, place)

    def is_in_force(self, client: str) -> bool:
        """See ``PlainClients``."""
        coordinator = self._coordinator
        if not coordinator.carried_out(self.flows(client)):
            return False
        mac, wanted = self._mac(client), coordinator.live.network.intents
        for node, session in coordinator.switches.items():
            confirmed = session.confirmed
            if confirmed is None or _about(confirmed.intent, client, mac) != _about(wanted[node], client, mac):
                return False
        return True

    def _mac(self, client: str) -> str:
        return self._coordinator.fabric.addressing.host_mac[client]


def _about(intent: SwitchIntent, client: str, mac: str) -> tuple[object, ...]:
    """What a switch shall do for a client: let it in and deliver to it, or send its frames to where it is."""
    return (
        [one for one in intent.clients if one.mac == mac],
        [one for one in intent.strays if one.mac == mac],
        intent.remote_hosts.get(mac),
        [route for route in intent.routes if route.node == client],
    )

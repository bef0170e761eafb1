"""Handovers of plain clients, those without an agent (docs/reference/handovers.md).

No agent could receive by two places, or tell what arrived, so a plain client is at one place, and its handovers are
hard. They run as all others do (``services.mobility.handovers``) but for the executor. It attaches the client to the
new place; that is in force once every switch has confirmed the rules that concern the client.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.network import Place
from hyroads.controller.core.services.client_tables import Evidence
from hyroads.controller.core.services.mobility import DesiredState, Request, Timings
from hyroads.controller.model.handover import Constrained, Key
from hyroads.controller.model.pending_names import switch_name
from hyroads.controller.ofp.intents import SwitchIntent
from hyroads.controller.services.clients.declared import first_place, possible_places
from hyroads.controller.services.clients.locations import ClientService
from hyroads.controller.services.port import ControllerPort
from hyroads.controller.services.steering.stations import REFUSED, Steering, Transition
from hyroads.rest.contract import ConflictError, NotFoundError

from .execution import Executor, HandoverRun
from .requests import BUILT_IN, HARD, CheckedRequest, checked_place, links_are_up, new_id


@dataclass(eq=False)
class PlainClients:
    """Plain clients of the network file, whose places the service of clients follows."""

    port: ControllerPort
    service: ClientService
    steering: Steering
    with_routes: Callable[[str, SwitchIntent], SwitchIntent] = lambda node, intent: intent
    """A node's intent of the live network with the routes that are made on demand."""
    _asked: dict[str, Transition] = field(default_factory=dict, init=False)

    def places(self, client: str) -> tuple[Place, ...]:
        """Where it can be; nowhere if it is no plain client."""
        return possible_places(self.port.context, client)

    def place(self, client: str) -> Place | None:
        """Where it is."""
        return first_place(self.port.context, self.port.state, client)

    def is_here(self, client: str, place: Place) -> bool:
        """Whether it can be heard at a place: its links are up there, and no association holds it elsewhere."""
        if not links_are_up(self.port, client, place):
            return False
        interface = self.service.state.interfaces.get(self._mac(client))
        held = interface is not None and interface.evidence is Evidence.ASSOCIATION and interface.place is not None
        return not held or (interface is not None and interface.place == place)

    def flows(self, client: str) -> frozenset[str]:
        """Flows that begin or end there: all of them move with it."""
        flows = self.port.state.flows.values()
        return frozenset(flow.spec.id for flow in flows if client in (flow.spec.source, flow.spec.target))

    def ask(self, client: str, place: Place) -> None:
        """It shall go there, if access points can ask it to; else it may still come within the handover's time."""
        self._asked.pop(client, None)
        with suppress(ConflictError, NotFoundError):
            self._asked[client] = self.steering.request(self._mac(client), place)

    def refusal(self, client: str) -> str | None:
        """Why it does not go where it was asked to go last; None: it could not be asked, has not answered, or goes."""
        asked = self._asked.get(client)
        return f"802.11v status {asked.status}" if asked is not None and asked.state == REFUSED else None

    def move(self, client: str, place: Place) -> None:
        """It is there from now on, unless an association holds it elsewhere."""
        self.service.hand_over(client, place)

    def is_in_force(self, client: str) -> bool:
        """Whether connected switches (and agents, for its flows) have confirmed that it is where it is."""
        return self.port.carried_out(self.flows(client)) and not self._behind(client)

    def unconfirmed(self, client: str) -> list[str]:
        """Switches and agents that have not confirmed that a client is where it is. A switch that is away sends its
        frames by the rules that it has.
        """
        places = self.places(client)
        if not places:
            return []
        away = self.port.state.switches.keys() - self.port.switches.keys()
        switches = set(map(switch_name, away.union(self._behind(client))))
        at = {place.node for place in places}
        return sorted(switches.union(self.port.unconfirmed(self.flows(client), at=at)))

    def _behind(self, client: str) -> set[str]:
        """Nodes whose connected switches have not confirmed where a client is."""
        mac, wanted, behind = self._mac(client), self.port.live.network.intents, set()
        for node, session in self.port.switches.items():
            confirmed = session.confirmed
            intent = self.with_routes(node, wanted[node])
            if confirmed is None or _about(confirmed.intent, client, mac) != _about(intent, client, mac):
                behind.add(node)
        return behind

    def _mac(self, client: str) -> str:
        return self.port.context.addressing.host_mac[client]


def _about(intent: SwitchIntent, client: str, mac: str) -> tuple[object, ...]:
    """What a switch shall do for a client: let it in and deliver to it, or send its frames to where it is."""
    return (
        [one for one in intent.clients if one.mac == mac],
        [one for one in intent.strays if one.mac == mac],
        intent.remote_hosts.get(mac),
        [route for route in intent.routes if route.node == client],
    )


@dataclass
class PlainExecutor(Executor):
    """Attaches a plain client to its new place; ``before`` is where it was."""

    clients: PlainClients
    before: Place | None

    def _begin(self, wanted: DesiredState) -> None:
        for place in wanted.carry[:1]:
            self.clients.move(self.client, place)

    def _is_done(self, wanted: DesiredState) -> bool:
        return self.clients.is_in_force(self.client)

    @property
    def sends(self) -> bool:
        """Whether packets go as is wanted, confirmed by those who send them."""
        return self.is_in_force

    def restore(self, before: Mapping[Key, Constrained | None]) -> None:
        """The client shall be where it was."""
        self.wanted = None
        if self.before is not None:
            self.clients.move(self.client, self.before)


def checked_request(clients: PlainClients, body: Mapping[str, Any], now_s: float, now_at_s: float) -> CheckedRequest:
    """A request for a plain client; :class:`ConfigError` says what is wrong with it."""
    client = body["client"]
    if body["to"] is None:
        raise ConfigError("request", "to", f"{client} has no agent: it is at one place; expected which")
    to = checked_place(clients.places(client), body["to"])
    manager = body.get("manager", HARD)
    if manager != HARD:
        raise ConfigError("request", "manager", f"{client} has no agent: expected {HARD}; got {manager[:40]!r}")
    if body.get("flows") is not None:
        raise ConfigError("request", "flows", f"{client} has no agent: all its flows move together")
    return CheckedRequest(client, to, HARD, None, Timings(**body.get("timings", {})), new_id(), now_s, now_at_s)


def handover_run_of(clients: PlainClients, asked: CheckedRequest) -> HandoverRun:
    """A handover that has begun; :class:`ConflictError` if the client is there already."""
    client, manager = asked.client, BUILT_IN[HARD]
    old = clients.place(client)
    if old == asked.to:
        raise ConflictError(f"{client} is at {asked.to} already")
    request = Request(asked.id, client, old, asked.to, clients.flows(client), asked.timings)
    executor = PlainExecutor(client, clients, old)
    return HandoverRun(manager.start(request, asked.asked_s), manager, executor, {}, asked.asked_s, asked.asked_at_s)

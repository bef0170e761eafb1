"""Handovers of plain clients, those without an agent (docs/reference/handovers.md).

No agent could receive by two places, or tell what arrived, so a plain client is at one place, and its handovers are
hard. They run as all others do (``services.mobility.handovers``) but for the executor. It attaches the client to the
new place; that is in force once every switch has confirmed the rules that concern the client.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.network import Place
from hyroads.controller.core.services.clients import Evidence
from hyroads.controller.core.services.mobility import Confirmed, DesiredState, Event, Request, Timings
from hyroads.controller.model.handover import Constrained, Key
from hyroads.controller.ofp.intents import SwitchIntent
from hyroads.controller.services.clients.declared import first_place, possible_places
from hyroads.controller.services.clients.locations import ClientService
from hyroads.controller.services.port import ControllerPort
from hyroads.controller.services.steering.stations import REFUSED, Steering, Transition
from hyroads.rest.contract import ConflictError, NotFoundError

from .execution import HandoverRun
from .requests import BUILT_IN, HARD, CheckedRequest, checked_place, links_are_up, new_id


class PlainClients(Protocol):
    """Plain clients of the network file, and the switches that follow them."""

    def places(self, client: str) -> tuple[Place, ...]:
        """Where it can be; nowhere if it is no plain client."""

    def place(self, client: str) -> Place | None:
        """Where it is."""

    def is_here(self, client: str, place: Place) -> bool:
        """Whether it can be heard at a place: its links are up there, and no association holds it elsewhere."""

    def flows(self, client: str) -> frozenset[str]:
        """Flows that begin or end there: all of them move with it."""

    def ask(self, client: str, place: Place) -> None:
        """It shall go there, if access points can ask it to."""

    def refusal(self, client: str) -> str | None:
        """Why it does not go where it was asked to go last; None: it could not be asked, has not answered, or goes."""

    def move(self, client: str, place: Place) -> None:
        """It is there from now on, unless an association holds it elsewhere."""

    def is_in_force(self, client: str) -> bool:
        """Whether switches (and agents, for its flows) have confirmed that it is where it is."""


@dataclass
class PlainExecutor:
    """Carries out what the manager of a plain client's handover wants; ``before`` is where it was."""

    clients: PlainClients
    client: str
    before: Place | None
    wanted: DesiredState | None = None
    told: bool = False
    is_in_force: bool = False

    def want(self, wanted: DesiredState) -> None:
        """Bring this into force from now on."""
        if wanted != self.wanted:
            self.wanted, self.told, self.is_in_force = wanted, False, False
            for place in wanted.carry[:1]:
                self.clients.move(self.client, place)

    def events(self) -> Iterator[Event]:
        """What agents and switches confirmed or reported since the last call."""
        wanted = self.wanted
        if wanted is None or not self.clients.is_in_force(self.client):
            return
        self.is_in_force = True
        if not self.told:
            self.told = True
            yield Confirmed(wanted)

    @property
    def sends(self) -> bool:
        """Whether packets go as is wanted, confirmed by those who send them."""
        return self.is_in_force

    def settle(self) -> None:
        """Nobody waits for anything."""

    def restore(self, before: Mapping[Key, Constrained | None]) -> None:
        """The client shall be where it was."""
        self.wanted = None
        if self.before is not None:
            self.clients.move(self.client, self.before)

    def end(self) -> None:
        """Nothing was watched."""


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
    executor = PlainExecutor(clients, client, old)
    return HandoverRun(manager.start(request, asked.asked_s), manager, executor, {}, asked.asked_s, asked.asked_at_s)


class FollowedClients:
    """Plain clients of the network file, whose places the service of clients follows."""

    def __init__(self, port: ControllerPort, service: ClientService, steering: Steering) -> None:
        self._port = port
        self._service = service
        self._steering = steering
        self._asked: dict[str, Transition] = {}

    def places(self, client: str) -> tuple[Place, ...]:
        """Where it can be; nowhere if it is no plain client."""
        return possible_places(self._port.context, client)

    def place(self, client: str) -> Place | None:
        """Where it is."""
        return first_place(self._port.context, self._port.state, client)

    def is_here(self, client: str, place: Place) -> bool:
        """Whether it can be heard at a place: its links are up there, and no association holds it elsewhere."""
        if not links_are_up(self._port, client, place):
            return False
        interface = self._service.state.interfaces.get(self._mac(client))
        held = interface is not None and interface.evidence is Evidence.ASSOCIATION and interface.place is not None
        return not held or (interface is not None and interface.place == place)

    def flows(self, client: str) -> frozenset[str]:
        """Flows that begin or end there: all of them move with it."""
        flows = self._port.state.flows.values()
        return frozenset(flow.spec.id for flow in flows if client in (flow.spec.source, flow.spec.target))

    def ask(self, client: str, place: Place) -> None:
        """It shall go there, if access points can ask it to. Who can't be asked may still come, within the handover's
        time.
        """
        self._asked.pop(client, None)
        with suppress(ConflictError, NotFoundError):
            self._asked[client] = self._steering.request(self._mac(client), place)

    def refusal(self, client: str) -> str | None:
        """Why it does not go where it was asked to go last; None: it could not be asked, has not answered, or goes."""
        asked = self._asked.get(client)
        return f"802.11v status {asked.status}" if asked is not None and asked.state == REFUSED else None

    def move(self, client: str, place: Place) -> None:
        """It is there from now on, unless an association holds it elsewhere."""
        self._service.hand_over(client, place)

    def is_in_force(self, client: str) -> bool:
        """Whether switches (and agents, for its flows) have confirmed that it is where it is."""
        port = self._port
        if not port.carried_out(self.flows(client)):
            return False
        mac, wanted = self._mac(client), port.live.network.intents
        for node, session in port.switches.items():
            confirmed = session.confirmed
            if confirmed is None or _about(confirmed.intent, client, mac) != _about(wanted[node], client, mac):
                return False
        return True

    def _mac(self, client: str) -> str:
        return self._port.context.addressing.host_mac[client]


def _about(intent: SwitchIntent, client: str, mac: str) -> tuple[object, ...]:
    """What a switch shall do for a client: let it in and deliver to it, or send its frames to where it is."""
    return (
        [one for one in intent.clients if one.mac == mac],
        [one for one in intent.strays if one.mac == mac],
        intent.remote_hosts.get(mac),
        [route for route in intent.routes if route.node == client],
    )

"""Handovers of plain clients: hard alone. The rules of switches follow the client's place
(docs/explanation/services.md, 3).

Such a client has no agent that could receive by two places or tell what came, so that all of it is at one place. Its
handover goes the way of all others (:mod:`hyroads.controller.services.handovers`); only what is wanted is carried out
otherwise: the client is placed, and once every switch has confirmed what concerns it, that is in force.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from hyroads.controller.control.handover import Confined, Key
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.services.mobility import Confirmed, Event, Request, Timings, Wanted
from hyroads.controller.core.services.place import Place
from hyroads.controller.services.handover_requests import Asked, checked_place, new_id
from hyroads.controller.services.journey import Journey
from hyroads.controller.services.managers import BUILT_IN, HARD
from hyroads.rest.contract import ConflictError


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


class NoPlainClients:
    """Where there are none."""

    def places(self, client: str) -> tuple[Place, ...]:
        """See :class:`PlainClients`."""
        return ()

    def place(self, client: str) -> Place | None:
        """See :class:`PlainClients`."""
        return None

    def is_here(self, client: str, place: Place) -> bool:
        """See :class:`PlainClients`."""
        return False

    def flows(self, client: str) -> frozenset[str]:
        """See :class:`PlainClients`."""
        return frozenset()

    def ask(self, client: str, place: Place) -> None:
        """See :class:`PlainClients`."""

    def refusal(self, client: str) -> str | None:
        """See :class:`PlainClients`."""
        return None

    def move(self, client: str, place: Place) -> None:
        """See :class:`PlainClients`."""

    def is_in_force(self, client: str) -> bool:
        """See :class:`PlainClients`."""
        return False


@dataclass
class PlainCarrying:
    """Carries out what the manager of a plain client's handover wants; ``before`` is where it was."""

    clients: PlainClients
    client: str
    before: Place | None
    wanted: Wanted | None = None
    told: bool = False
    is_in_force: bool = False

    def want(self, wanted: Wanted) -> None:
        """See ``carrying.Carrying``."""
        if wanted != self.wanted:
            self.wanted, self.told, self.is_in_force = wanted, False, False
            for place in wanted.carry[:1]:
                self.clients.move(self.client, place)

    def events(self) -> Iterator[Event]:
        """See ``carrying.Carrying``."""
        wanted = self.wanted
        if wanted is None or not self.clients.is_in_force(self.client):
            return
        self.is_in_force = True
        if not self.told:
            self.told = True
            yield Confirmed(wanted)

    @property
    def sends(self) -> bool:
        """See ``carrying.Carrying``."""
        return self.is_in_force

    def settle(self) -> None:
        """Nobody waits for anything."""

    def restore(self, before: Mapping[Key, Confined | None]) -> None:
        """The client shall be where it was."""
        self.wanted = None
        if self.before is not None:
            self.clients.move(self.client, self.before)

    def end(self) -> None:
        """Nothing was watched."""


def asked_for(clients: PlainClients, body: Mapping[str, Any], now_s: float, now_at_s: float) -> Asked:
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
    return Asked(client, to, HARD, None, Timings(**body.get("timings", {})), new_id(), now_s, now_at_s)


def journey_of(clients: PlainClients, asked: Asked) -> Journey:
    """A handover that has begun; :class:`ConflictError` if the client is there already."""
    client, manager = asked.client, BUILT_IN[HARD]
    old = clients.place(client)
    if old == asked.to:
        raise ConflictError(f"{client} is at {asked.to} already")
    request = Request(asked.id, client, old, asked.to, clients.flows(client), asked.timings)
    carrying = PlainCarrying(clients, client, old)
    return Journey(manager.start(request, asked.asked_s), manager, carrying, {}, asked.asked_s, asked.asked_at_s)

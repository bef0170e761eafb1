"""The service of policies: asks the enabled policies once a second which clients should move, and moves them.

Hysteresis is the policies' own. Refusals of clients, and when they may be asked again, are in
``core.services.choices``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.core.network import Place
from hyroads.controller.core.services.view import ClientView, MobilityPolicy, NetworkView, Refusals, Wish
from hyroads.controller.framework import ryu_shim as shim
from hyroads.controller.services.clients.declared import place_document
from hyroads.controller.services.plugins.process import PluginFaultError
from hyroads.controller.services.port import Publish
from hyroads.plugins.codec import CodecError, decode, encode

LOG = logging.getLogger("hyroads.policies")
EVERY_S = 1.0
CALL_S = 2.0
MAX_MOVES = 10
"""Begun in one second, all policies together."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a move ended; ``failure`` is None if the client is where it should be."""

    failure: str | None


class Actuator(Protocol):
    """Clients that can be moved, and who moves them."""

    def clients(self, now_s: float) -> Mapping[str, ClientView]:
        """Clients that can be moved, and the places where they could be."""

    def move(self, client: str, place: Place) -> str:
        """Begin to move a client; returns the id of the move. :class:`HyroadsError` if that is impossible."""

    def move_radios(self, client: str, places: Sequence[Place], *, copies: bool) -> str:
        """The same for all its radios at once; ``copies``: each packet goes by all of them."""

    def outcome(self, move: str) -> Outcome | None:
        """How a move ended; None while it goes on."""


Placements = Callable[[Mapping[str, ClientView]], Mapping[str, ClientView]]
"""Clients with what is known of the best attachments of their radios."""


class Policy(Protocol):
    """A policy that is on. It remembers by itself."""

    @property
    def places_radios(self) -> bool:
        """Whether it looks at the best attachments of radios, which take a while to find."""

    def wishes(self, view: NetworkView) -> tuple[Wish, ...]:
        """Who should move now."""


class LocalPolicy:
    """A built-in one: pure, and run in a thread, because many clients take a while."""

    def __init__(self, policy: MobilityPolicy[Any]) -> None:
        self._policy = policy
        self._memory = policy.fresh()
        self.places_radios: bool = getattr(policy, "places_radios", False)

    def wishes(self, view: NetworkView) -> tuple[Wish, ...]:
        """The moves that the policy wishes for."""
        wishes: tuple[Wish, ...]
        self._memory, wishes = shim.in_thread(self._policy.decide, self._memory, view)
        return wishes


@dataclass(eq=False)
class ForeignPolicy:
    """A policy that runs in a plugin's process."""

    call: Callable[[str, Mapping[str, Any], float], Any]
    wrong: Callable[[str], None]
    places_radios: bool = False

    def wishes(self, view: NetworkView) -> tuple[Wish, ...]:
        """The moves that the plugin wishes for; none if it fails or one of them is invalid."""
        try:
            wishes: tuple[Wish, ...] = decode(tuple[Wish, ...], self.call("decide", {"view": encode(view)}, CALL_S))
        except PluginFaultError:
            return ()
        except CodecError as error:
            self.wrong(f"decide: {error}")
            return ()
        for wish in wishes:
            client = view.clients.get(wish.client)
            if client is None or any(client.option(place) is None for place in wish.places):
                self.wrong(f"decide: {wish.client[:64]!r} can't be at {str(wish.place)[:80]}")
                return ()
        return wishes


@dataclass(frozen=True, slots=True)
class Move:
    """A client that is being moved; ``id`` is what the actuator calls the move."""

    places: tuple[Place, ...]
    id: str
    actuator: Actuator


@dataclass(eq=False)
class PolicyService:
    """One per controller. ``policies`` gives those that are on, ``view`` the network without clients, ``placements``
    adds the best attachments of radios to clients.
    """

    policies: Callable[[], Mapping[str, Policy]]
    view: Callable[[], NetworkView]
    publish: Publish
    clock: Callable[[], float]
    placements: Placements = lambda clients: clients

    def __post_init__(self) -> None:
        self.actuators: list[Actuator] = []
        self.refusals = Refusals()
        self.may_steer: Callable[[str], bool] = lambda _client: True
        self._moves: dict[str, Move] = {}

    def turn(self) -> None:
        """One second."""
        self._note_outcomes()
        policies = self.policies()
        if not policies or not self.actuators:
            return
        actuators: dict[str, Actuator] = {}
        clients: dict[str, ClientView] = {}
        now_s = self.clock()
        for actuator in self.actuators:
            found = {name: client for name, client in actuator.clients(now_s).items() if self.may_steer(name)}
            # Who is being moved has just come, as far as policies are concerned.
            clients |= {
                n: replace(client, since_s=now_s) if n in self._moves else client for n, client in found.items()
            }
            actuators.update(dict.fromkeys(found, actuator))
        view = self.refusals.allowed(replace(self.view(), time_s=now_s, clients=clients))
        if any(policy.places_radios for policy in policies.values()):
            view = replace(view, clients=self.placements(view.clients))
        left = MAX_MOVES
        for name, policy in policies.items():
            for wish in policy.wishes(view):
                if left and wish.client not in self._moves and self._may(view, wish):
                    self._begin(name, wish, view.clients[wish.client], actuators[wish.client])
                    left -= 1

    def _may(self, view: NetworkView, wish: Wish) -> bool:
        client = view.clients.get(wish.client)
        if client is None or any(client.option(place) is None for place in wish.places):
            return False
        return _of_several(wish, client) or client.place != wish.place

    def _begin(self, policy: str, wish: Wish, client: ClientView, actuator: Actuator) -> None:
        to = place_document(wish.place)
        document: dict[str, Any] = {"policy": policy, "client": wish.client, "to": to, "reason": wish.reason[:200]}
        if wish.also:
            document["also"] = [place_document(place) for place in wish.also]
        try:
            if _of_several(wish, client):
                move = actuator.move_radios(wish.client, wish.places, copies=wish.copies)
            else:
                move = actuator.move(wish.client, wish.place)
        except HyroadsError as error:
            self._failed(wish.client, wish.places, str(error))
            self.publish("policy.refused", {**document, "status": str(error)[:200]})
            return
        self._moves[wish.client] = Move(wish.places, move, actuator)
        LOG.info("%s: %s to %s: %s", policy, wish.client, ", ".join(map(str, wish.places)), wish.reason)
        self.publish("policy.moves", {**document, "handover": move})

    def _note_outcomes(self) -> None:
        for client, move in list(self._moves.items()):
            outcome = move.actuator.outcome(move.id)
            if outcome is None:
                continue
            del self._moves[client]
            if outcome.failure is None:
                for place in move.places:
                    self.refusals = self.refusals.accepted(client, place)
            else:
                self._failed(client, move.places, outcome.failure)

    def _failed(self, client: str, places: Sequence[Place], status: str) -> None:
        LOG.info("%s did not come to %s: %s", client, ", ".join(map(str, places)), status)
        for place in places:
            self.refusals = self.refusals.refused(client, place, self.clock(), status)


def _of_several(wish: Wish, client: ClientView) -> bool:
    """Whether a move is from or to several places at once: a handover knows one."""
    return bool(wish.also) or wish.copies or len(client.attached) > 1

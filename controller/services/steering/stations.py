"""Asks stations to go to another access point by 802.11v, and records their answers.

A station has one request at a time: asked, then accepted or refused (with the station's status), then associated, or
failed if it does not come. Its flows move when the association does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hyroads.controller.agents.sessions import Session
from hyroads.controller.agents.telemetry import AuthenticationEvent, Bss, StationEvent, TransitionAnswer
from hyroads.controller.core.network import Place
from hyroads.controller.core.services.client_tables import Evidence, Happened, Notice
from hyroads.controller.framework import ryu_shim as shim
from hyroads.controller.services.clients.declared import place_document
from hyroads.controller.services.clients.locations import ClientService
from hyroads.controller.services.port import Publish
from hyroads.rest.contract import ConflictError, NotFoundError

ANSWER_S = 10.0
MAX_TRANSITIONS = 4096
MAX_NEIGHBOURS = 32
ASKED, ACCEPTED, REFUSED, ASSOCIATED, FAILED = "asked", "accepted", "refused", "associated", "failed"
_OPEN = frozenset({ASKED, ACCEPTED})
Radios = Callable[[], Mapping[str, Session]]


@dataclass
class Transition:
    """A request to a station and what became of it."""

    mac: str
    place: Place
    asked_s: float
    state: str = ASKED
    status: int | None = None
    reason: str | None = None

    @property
    def is_over(self) -> bool:
        """Whether nothing more is expected."""
        return self.state not in _OPEN

    def document(self) -> dict[str, Any]:
        """For REST and events."""
        return {"to": place_document(self.place), "state": self.state, "status": self.status, "reason": self.reason}


@dataclass(eq=False)
class Steering:
    """``radios`` are the connected access points by node. Implements ``agents.server.Stations``."""

    service: ClientService
    radios: Radios
    publish: Publish
    clock: Callable[[], float]

    def __post_init__(self) -> None:
        self._neighbours: dict[Place, str] = {}
        self._ssids: dict[Place, str] = {}
        self._told: dict[Place, list[dict[str, str]]] = {}
        self._transitions: dict[str, Transition] = {}
        self._progress = shim.Signal()
        self.service.listeners.append(self._noticed)
        self.service.deauthenticate = self._deauthenticate

    # -- what access points say (agents.server.Stations)

    def station(self, node: str, event: StationEvent) -> None:
        """A station joined, left, or is heard otherwise."""
        self.service.station(node, event)

    def authentication(self, node: str, event: AuthenticationEvent) -> None:
        """What an access point says of 802.1X."""
        self.service.authentication(node, event)

    def _deauthenticate(self, place: Place, mac: str, for_s: float) -> None:
        """An access point shall let somebody go; one that is away says anew who is authenticated when it is back."""
        radio = self.radios().get(place.node)
        if radio is not None and radio.may_change:
            radio.send({"type": "deauthenticate", "technology": place.technology, "mac": mac, "for_s": for_s})

    def bss(self, node: str, bss: Bss) -> None:
        """An access point's own entry, as others send stations to it."""
        place = Place(node, bss.technology)
        if self.service.knows(place):
            self.service.tells(place)
            before, ssid = self._neighbours.get(place), self._ssids.get(place, "")
            self._neighbours[place], self._ssids[place] = bss.neighbour, bss.ssid
            # Its agent may be a new one, which knows nothing.
            self._told.pop(place, None)
            changed = (before, ssid) != (bss.neighbour, bss.ssid)
            others = [*self._same_ssid(ssid), *self._same_ssid(bss.ssid)] if changed else []
            for other in dict.fromkeys([place, *others]):
                self._tell_neighbours(other)

    def gone(self, node: str) -> None:
        """An access point tells nothing any more."""
        gone = {self._ssids.pop(place) for place in [*self._ssids] if place.node == node}
        self._neighbours = {place: entry for place, entry in self._neighbours.items() if place.node != node}
        for other in [place for ssid in sorted(gone) for place in self._same_ssid(ssid)]:
            self._tell_neighbours(other)
        self.service.untold(node)

    def answered(self, node: str, answer: TransitionAnswer) -> None:
        """A station's answer, told by the access point where it is."""
        transition = self._transitions.get(answer.mac)
        interface = self.service.state.interfaces.get(answer.mac)
        here = interface is not None and interface.place is not None and interface.place.node == node
        if transition is not None and transition.state == ASKED and here:
            transition.status = answer.status
            self._become(transition, REFUSED if answer.status else ACCEPTED, "it refused" if answer.status else None)

    def _same_ssid(self, ssid: str) -> list[Place]:
        return [place for place, other in self._ssids.items() if ssid and other == ssid]

    def _tell_neighbours(self, place: Place) -> None:
        """Stations at a place that ask where else they could go (802.11k) hear of the places with the same SSID."""
        radio, ssid = self.radios().get(place.node), self._ssids.get(place, "")
        if radio is None or not radio.may_change:
            return
        others = [other for other in self._same_ssid(ssid) if other != place]
        # Those of its own channel first: a station need not go to another to hear them.
        others.sort(key=lambda other: other.technology != place.technology)
        entries = [{"neighbour": self._neighbours[other], "ssid": ssid} for other in others[:MAX_NEIGHBOURS]]
        if self._told.get(place) != entries:
            self._told[place] = entries
            radio.send({"type": "neighbours", "technology": place.technology, "neighbours": entries})

    # -- what is asked for

    def can_go(self, place: Place) -> bool:
        """Whether stations can be sent to a place."""
        return place in self._neighbours

    def request(self, mac: str, place: Place) -> Transition:
        """Ask a station to go to a place; :class:`ConflictError` says why it can't be asked."""
        interface = self.service.state.interfaces.get(mac)
        if interface is None:
            raise NotFoundError(f"there is no client {mac}")
        old, last = interface.place, self.last(mac)
        if old is None or interface.evidence is not Evidence.ASSOCIATION:
            raise ConflictError(f"client {mac} is associated with no access point whose hostapd is followed")
        radio, neighbour = self.radios().get(old.node), self._neighbours.get(place)
        if radio is not None and not radio.may_change:
            raise ConflictError(f"client {mac} can't be asked to go to {place}: another controller leads")
        if last is not None and not last.is_over:
            raise ConflictError(f"client {mac} is being asked to go to {last.place} already")
        if place == old or neighbour is None or radio is None:
            why = "it is there" if place == old else f"{old.node if neighbour else place} tells nothing of its hostapd"
            raise ConflictError(f"client {mac} can't be asked to go to {place}: {why}")
        transition = Transition(mac, place, self.clock())
        # The latest is the last; what is too much goes from the front.
        self._transitions.pop(mac, None)
        self._transitions[mac] = transition
        if len(self._transitions) > MAX_TRANSITIONS:
            del self._transitions[next(iter(self._transitions))]
        message = {"type": "transition", "technology": old.technology, "mac": mac, "neighbour": neighbour}

        def sent(wrong: str | None) -> None:
            if wrong is not None and not transition.is_over:
                self._become(transition, FAILED, wrong[:200])

        radio.request(message, sent)
        return transition

    def wait(self, transition: Transition) -> None:
        """Until the station has come, or it is clear that it does not."""
        while self.last(transition.mac) is transition and not transition.is_over:
            self._progress.wait(0.2)

    def last(self, mac: str) -> Transition | None:
        """The latest request to a station."""
        transition = self._transitions.get(mac)
        if transition is not None and not transition.is_over and self.clock() > transition.asked_s + ANSWER_S:
            self._become(transition, FAILED, "no answer" if transition.state == ASKED else "it did not come")
        return transition

    def _noticed(self, notice: Notice) -> None:
        """Wherever a station comes to ends what it was asked."""
        transition = self._transitions.get(notice.mac)
        came = notice.what in {Happened.JOINED, Happened.MOVED}
        if transition is not None and not transition.is_over and came and notice.place is not None:
            there = notice.place == transition.place
            self._become(transition, ASSOCIATED if there else FAILED, None if there else f"it went to {notice.place}")

    def _become(self, transition: Transition, state: str, reason: str | None) -> None:
        transition.state, transition.reason = state, reason
        self.publish(f"client.transition_{state}", {"mac": transition.mac, **transition.document()})
        self._progress.notify()

"""One handover on its way: a manager's machine, what carries it out, and what there is to tell of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from hyroads.controller.control.handover import Confined, Key
from hyroads.controller.core.services.mobility import (
    Cancelled,
    Event,
    Handover,
    MobilityManager,
    Phase,
    Wanted,
    settled,
)
from hyroads.controller.core.services.place import Place

Document = dict[str, Any]
CANCELLABLE = (Phase.ASSOCIATING, Phase.PREPARING, Phase.WARMING)
# Machines answer events at once; one that never comes to rest is a plugin's.
MAX_STEPS = 50


class CarriesOut(Protocol):
    """What a journey and its desk need of whatever brings the manager's wishes into force (``carrying.Carrying``)."""

    @property
    def wanted(self) -> Wanted | None:
        """What shall be in force."""

    @property
    def is_in_force(self) -> bool:
        """Whether it is, confirmed by all."""

    @property
    def sends(self) -> bool:
        """Whether packets go as is wanted, confirmed by those who send them."""

    def want(self, wanted: Wanted) -> None:
        """What shall be in force from now on."""

    def events(self) -> Iterator[Event]:
        """What is so by now."""

    def settle(self) -> None:
        """Receivers wait no longer for what has come."""

    def restore(self, before: Mapping[Key, Confined | None]) -> None:
        """Everything shall be as it was."""

    def end(self) -> None:
        """Nothing is watched any more."""


@dataclass
class Journey:
    """``before`` is what the client's flows were confined to, to be restored if nothing has moved."""

    handover: Handover
    manager: MobilityManager
    carrying: CarriesOut
    before: Mapping[Key, Confined | None]
    asked_s: float
    asked_at_s: float
    """Unix time."""
    moved_s: float | None = None
    """When packets went by the new place alone or also, confirmed by those who send them."""
    over_s: float | None = None
    steps: list[tuple[str, float]] = field(default_factory=list)
    asked_of_client: set[tuple[str, Place]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.steps.append((self.handover.phase.value, 0.0))

    @property
    def id(self) -> str:
        """Its name."""
        return self.handover.request.id

    @property
    def client(self) -> str:
        """Who moves."""
        return self.handover.request.client

    @property
    def is_over(self) -> bool:
        """Whether nothing will happen any more; after the machine's end what it wanted is still carried out."""
        return self.over_s is not None

    def wanted(self) -> Wanted:
        """What the manager wants now."""
        return self.manager.wanted(self.handover)

    def on(self, event: Event, now_s: float) -> None:
        """Something happened."""
        self.become(self.manager.on(self.handover, event, now_s), now_s)

    def tick(self, now_s: float) -> None:
        """Time went by."""
        self.become(self.manager.tick(self.handover, now_s), now_s)

    def cancel(self, reason: str, now_s: float) -> bool:
        """Nobody wants it any more; False if it is too late for that."""
        if self.handover.phase not in CANCELLABLE:
            return False
        self.on(Cancelled(reason), now_s)
        return self.handover.phase is Phase.FAILED

    def become(self, handover: Handover, now_s: float) -> None:
        """The machine's next state."""
        if handover.phase is not self.handover.phase:
            self.steps.append((handover.phase.value, now_s - self.asked_s))
        self.handover = handover

    @property
    def has_moved(self) -> bool:
        """Whether packets shall go by the new place, whatever else."""
        return self.handover.request.new in self.wanted().carry

    @property
    def unchanged(self) -> bool:
        """Whether everything is to be as before: it has not begun, or it failed and the old place is still there."""
        phase, handover = self.handover.phase, self.handover
        if phase is Phase.ASSOCIATING:
            return True
        return phase is Phase.FAILED and handover.request.new not in settled(handover).carry

    def document(self) -> Document:
        """For REST."""
        request, wanted = self.handover.request, self.wanted()
        return {
            "id": request.id,
            "client": request.client,
            "from": place_document(request.old),
            "to": place_document(request.new),
            "manager": self.manager.name,
            "flows": sorted(request.flows),
            "phase": self.handover.phase.value,
            "reason": self.handover.reason,
            "over": self.is_over,
            "asked_at": self.asked_at_s,
            "moved_after_s": None if self.moved_s is None else self.moved_s - self.asked_s,
            "over_after_s": None if self.over_s is None else self.over_s - self.asked_s,
            "known": [place_document(place) for place in wanted.known],
            "carry": [place_document(place) for place in wanted.carry],
            "copies": wanted.copies,
            "join": place_document(wanted.join),
            "leave": place_document(wanted.leave),
            "steps": [{"phase": phase, "after_s": after_s} for phase, after_s in self.steps],
        }


def idle_document(  # noqa: PLR0917 - what is known of a handover that is not on its way
    name: str, client: str, to: Place | None, manager: str, asked_at_s: float, flows: Iterable[str] = ()
) -> Document:
    """A handover that waits for another, or needs no steps."""
    return {
        "id": name,
        "client": client,
        "from": None,
        "to": place_document(to),
        "manager": manager,
        "flows": sorted(flows),
        "phase": "waiting",
        "reason": None,
        "over": False,
        "asked_at": asked_at_s,
        **dict.fromkeys(("moved_after_s", "over_after_s", "join", "leave")),
        "known": [],
        "carry": [],
        "copies": False,
        "steps": [],
    }


def place_document(place: Place | None) -> Document | None:
    """A place for REST."""
    return None if place is None else {"node": place.node, "technology": place.technology}

"""The plugin interface of mobility managers (docs/reference/handovers.md). Pure.

A manager is a state machine without input and output: events and time come in, and :class:`DesiredState` says what the
network shall do from now on. It is *declared*: whoever carries it out derives the difference, and answers
:class:`Confirmed` with the very value that it brought into force, so that late answers mean nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol

from hyroads.controller.core.network import Place


class Phase(StrEnum):
    """Steps of a handover; each manager uses some of them, in this order."""

    ASSOCIATING = "associating"
    PREPARING = "preparing"
    WARMING = "warming"
    SWITCHING = "switching"
    COPYING = "copying"
    DRAINING = "draining"
    LEAVING = "leaving"
    CLOSING = "closing"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Timings:
    """Bounds of waiting, in seconds."""

    associate_s: float = 10.0
    confirm_s: float = 5.0
    hold_s: float = 2.0
    """For the markers; receivers hold packets no longer either."""
    leave_s: float = 5.0
    steady_s: float = 0.5
    warm_s: float = 4.0


@dataclass(frozen=True, slots=True)
class Request:
    """Move a client's flows (both directions) from ``old`` (None: it was nowhere) to ``new``.

    Who starts a handover tells at once what is so already: :class:`Associated`, :class:`Steady`.
    """

    id: str
    client: str
    old: Place | None
    new: Place
    flows: frozenset[str]
    timings: Timings = Timings()


@dataclass(frozen=True, slots=True)
class Associated:
    """An interface of the client is attached at a place."""

    place: Place


@dataclass(frozen=True, slots=True)
class Left:
    """No interface of the client is attached at a place any more."""

    place: Place


@dataclass(frozen=True, slots=True)
class Refused:
    """The client refused to be moved."""

    reason: str


@dataclass(frozen=True, slots=True)
class Confirmed:
    """Switches and agents have all confirmed that ``wanted`` is in force."""

    wanted: DesiredState


@dataclass(frozen=True, slots=True)
class Passed:
    """The receiver of a flow has by ``place`` all that was sent there before the paths in use last changed."""

    flow: str
    place: Place


@dataclass(frozen=True, slots=True)
class Arrived:
    """The receiver of a flow had a packet or keep-alive by ``place`` sent since the paths in use last changed."""

    flow: str
    place: Place


@dataclass(frozen=True, slots=True)
class Steady:
    """A place was heard by the client and heard the client for ``steady_s`` without a break."""

    place: Place


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Whoever asked for the handover does not want it any more."""

    reason: str


Event = Associated | Left | Refused | Confirmed | Passed | Arrived | Steady | Cancelled


@dataclass(frozen=True, slots=True)
class DesiredState:
    """What ends and switches shall do for the flows of a handover.

    ``known``: places whose paths both ends are configured for. ``carry``: places whose paths carry packets: each
    packet one of them, or all with ``copies``. ``hold_s``: so long receivers wait for what is in flight by other known
    places (None: as ever). ``join``, ``leave``: what the client is asked to do.
    """

    known: tuple[Place, ...]
    carry: tuple[Place, ...]
    copies: bool = False
    hold_s: float | None = None
    join: Place | None = None
    leave: Place | None = None


@dataclass(frozen=True, slots=True)
class Handover:
    """The state of one handover: the same for every manager."""

    request: Request
    phase: Phase
    entered_s: float
    """When it came into this phase."""
    reason: str | None = None
    """Why it failed."""
    passed: frozenset[str] = frozenset()
    """Flows whose marker came by the old place, in this phase."""
    arrived: frozenset[str] = frozenset()
    """Flows that arrive by the new place, in this phase."""
    old_gone: bool = False
    is_steady: bool = False
    """The new place has been heard without a break, in whatever phase that was told."""

    @property
    def is_over(self) -> bool:
        """Whether nothing will happen any more."""
        return self.phase in (Phase.DONE, Phase.FAILED)

    def enter(self, phase: Phase, now_s: float, reason: str | None = None) -> Handover:
        """The next phase."""
        return replace(
            self, phase=phase, entered_s=now_s, reason=reason, passed=frozenset(), arrived=frozenset()
        )  # fmt: skip

    @property
    def old_places(self) -> tuple[Place, ...]:
        """The place that is left, if there is one."""
        old = self.request.old
        return () if old is None or old == self.request.new or self.old_gone else (old,)


class MobilityManager(Protocol):
    """What a plugin provides. It keeps nothing itself: everything is in :class:`Handover`."""

    @property
    def name(self) -> str:
        """By which it is asked for."""

    def start(self, request: Request, now_s: float) -> Handover:
        """A new handover."""

    def on(self, handover: Handover, event: Event, now_s: float) -> Handover:
        """Something happened. What says nothing in this phase changes nothing; events may be late or doubled."""

    def tick(self, handover: Handover, now_s: float) -> Handover:
        """Time went by."""

    def due_s(self, handover: Handover) -> float | None:
        """When :meth:`tick` is next needed; None: never."""

    def wanted(self, handover: Handover) -> DesiredState:
        """What the network shall do now."""


def associating(handover: Handover, event: Event, after: Phase, now_s: float) -> Handover:
    """The phase that all managers begin with: the client joins the new place, or nothing has changed."""
    new = handover.request.new
    match event:
        case Associated(place) if place == new:
            return handover.enter(after, now_s)
        case Refused(reason):
            return handover.enter(Phase.FAILED, now_s, f"refused by the client: {reason}")
        case Cancelled(reason):
            return handover.enter(Phase.FAILED, now_s, f"cancelled: {reason}")
        case _:
            return handover


def lost_a_place(handover: Handover, event: Event, now_s: float, takes_over: Phase) -> Handover | None:
    """What every manager does when a place goes away before its time; None if that is not what happened.

    Without the new place everything stays at the old one; without the old one the new one takes over at once.
    """
    request, waiting = handover.request, handover.phase is Phase.ASSOCIATING
    match event:
        case Left(place) if place == request.new and not waiting:
            return handover.enter(Phase.FAILED, now_s, f"the client left {place}")
        case Left(place) if place == request.old and handover.old_places:
            gone = replace(handover, old_gone=True)
            return gone if waiting or handover.phase in (Phase.CLOSING, takes_over) else gone.enter(takes_over, now_s)
        case Cancelled(reason) if not waiting and handover.phase in (Phase.PREPARING, Phase.WARMING):
            return handover.enter(Phase.FAILED, now_s, f"cancelled: {reason}")
        case _:
            return None


def settled(handover: Handover) -> DesiredState:
    """What is wanted in the end: the new place alone; after a failure the old one, if it is still there."""
    new, old = (handover.request.new,), handover.old_places
    stay = old or new if handover.phase is Phase.FAILED else new
    return DesiredState(stay, stay)


def before(handover: Handover) -> DesiredState:
    """What is wanted while the client joins the new place: as it was."""
    return DesiredState(handover.old_places, handover.old_places, join=handover.request.new)


def noted(handover: Handover, event: Event) -> Handover:
    """With what a receiver told of a flow."""
    request = handover.request
    match event:
        case Passed(flow, place) if place == request.old and flow in request.flows:
            return replace(handover, passed=handover.passed | {flow})
        case Arrived(flow, place) if place == request.new and flow in request.flows:
            return replace(handover, arrived=handover.arrived | {flow})
        case _:
            return handover

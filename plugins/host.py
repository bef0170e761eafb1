"""Isolation of plugins, the pure part: what they did wrong, and which of their answers make sense.

:class:`Health` counts faults: three within a minute, or one hang, disable a plugin for a minute, then for ten times
longer each time. Who runs plugins (``controller.services``) notes the faults.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from hyroads.controller.core.services.mobility import DesiredState, Handover, Request

from .codec import CodecError, decode


class Kind(StrEnum):
    """What a plugin did wrong."""

    RAISED = "raised"
    WRONG = "wrong answer"
    HUNG = "hung"
    EXITED = "exited"


@dataclass(frozen=True, slots=True)
class Fault:
    """One time that a plugin misbehaved."""

    kind: Kind
    what: str
    at_s: float


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a plugin may misbehave."""

    faults: int = 3
    window_s: float = 60.0
    first_rest_s: float = 60.0
    rest_factor: float = 10.0
    most_rest_s: float = 86400.0


@dataclass(frozen=True)
class Health:
    """The faults of a plugin within the window, and until when it is disabled (None: it is not)."""

    faults: tuple[Fault, ...] = ()
    total: int = 0
    times_disabled: int = 0
    until_s: float | None = None

    def usable(self, now_s: float) -> bool:
        """Whether the plugin may be called."""
        return self.until_s is None or now_s >= self.until_s

    def after(self, fault: Fault, limits: Limits) -> Health:
        """With one more fault; too many, or a hang, disable."""
        recent = tuple(old for old in self.faults if fault.at_s - old.at_s < limits.window_s)[-limits.faults :]
        faults = (*recent, fault)
        if len(faults) < limits.faults and fault.kind is not Kind.HUNG:
            return replace(self, faults=faults, total=self.total + 1)
        rest_s = min(limits.most_rest_s, limits.first_rest_s * limits.rest_factor**self.times_disabled)
        return Health((), self.total + 1, self.times_disabled + 1, fault.at_s + rest_s)

    def enabled(self) -> Health:
        """Enabled by hand: nothing is held against it."""
        return Health(total=self.total)


@dataclass(frozen=True, slots=True)
class Step:
    """What a manager answers to a step of a handover, after it was found to make sense."""

    handover: Handover
    wanted: DesiredState
    due_s: float | None


def sound_step(answer: object, request: Request) -> Step | None:
    """A foreign manager's answer (``plugins.served``); None if it makes no sense.

    It may speak of its own handover and its two places only, and send by places that both ends know.
    """
    if not isinstance(answer, dict):
        return None
    try:
        handover: Handover = decode(Handover, answer.get("handover"))
        wanted: DesiredState = decode(DesiredState, answer.get("wanted"))
        due_s: float | None = decode(float | None, answer.get("due_s"))
    except CodecError:
        return None
    places = {place for place in (request.old, request.new) if place is not None}
    asked = {place for place in (wanted.join, wanted.leave) if place is not None}
    fits = set(wanted.carry) <= set(wanted.known) <= places and asked <= places
    return Step(handover, wanted, due_s) if fits and handover.request == request else None

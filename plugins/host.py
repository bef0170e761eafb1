"""Isolation of plugins, the pure part: what they raise, how long they take and what they answer never harms others.

:func:`call` runs a plugin's function and returns its answer or a :class:`Fault`. :class:`Health` counts faults: three
within a minute, or one hang, disable a plugin for a minute, then for ten times longer each time. Who runs plugins in
threads notes a hang itself (``Fault(Kind.HUNG, ...)``): from inside it can't be seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Generic, TypeVar

from hyroads.controller.core.services.mobility import (
    Event,
    Handover,
    MobilityManager,
    Phase,
    Request,
    Wanted,
    settled,
)

Answer = TypeVar("Answer")
_TEXT = 200


class Kind(StrEnum):
    """What a plugin did wrong."""

    RAISED = "raised"
    SLOW = "slow"
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
    """How much a plugin may misbehave. A call that takes longer than ``slow_s`` holds others up."""

    faults: int = 3
    window_s: float = 60.0
    slow_s: float = 0.05
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


@dataclass(frozen=True)
class Outcome(Generic[Answer]):
    """The answer of a plugin (None if there is none that can be used), and what was wrong."""

    answer: Answer | None
    fault: Fault | None


def call(
    function: Callable[[], object],
    accept: Callable[[object], Answer | None],
    clock: Callable[[], float],
    limits: Limits,
) -> Outcome[Answer]:
    """Run a plugin's function. ``accept`` checks the answer and returns it, or None if it can't be used.

    A slow answer is used all the same: it is there.
    """
    began_s = clock()
    try:
        answer = accept(function())
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a plugin raises, also while its answer is looked at
        return Outcome(None, Fault(Kind.RAISED, _text(error), clock()))
    now_s = clock()
    if answer is None:
        return Outcome(None, Fault(Kind.WRONG, "an answer of the wrong kind", now_s))
    if now_s - began_s > limits.slow_s:
        return Outcome(answer, Fault(Kind.SLOW, f"took {now_s - began_s:.3f} s", now_s))
    return Outcome(answer, None)


def _text(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"[:_TEXT]
    except Exception:  # noqa: BLE001 - even the text of a foreign exception may raise
        return type(error).__name__[:_TEXT]


@dataclass(frozen=True)
class GuardedManager:
    """A foreign mobility manager, held to the rules: what it does wrong ends its handover, and nothing else.

    ``report`` is told of every fault. The handover of a manager that fails stays at the old place.
    """

    manager: MobilityManager
    clock: Callable[[], float]
    report: Callable[[Fault], None]
    limits: Limits = Limits()

    @property
    def name(self) -> str:
        """See :class:`MobilityManager`."""
        return self.manager.name

    def start(self, request: Request, now_s: float) -> Handover:
        """See :class:`MobilityManager`."""
        begun = Handover(request, Phase.ASSOCIATING, now_s)
        return self._step(begun, lambda: self.manager.start(request, now_s), now_s)

    def on(self, handover: Handover, event: Event, now_s: float) -> Handover:
        """See :class:`MobilityManager`."""
        return (
            handover
            if handover.is_over
            else self._step(handover, lambda: self.manager.on(handover, event, now_s), now_s)
        )

    def tick(self, handover: Handover, now_s: float) -> Handover:
        """See :class:`MobilityManager`."""
        return self._step(handover, lambda: self.manager.tick(handover, now_s), now_s)

    def due_s(self, handover: Handover) -> float | None:
        """See :class:`MobilityManager`; one that fails is asked again at once, and :meth:`tick` then ends it."""
        if handover.is_over:
            return None
        outcome = self._call(lambda: (self.manager.due_s(handover),), _due)
        return handover.entered_s if outcome is None else outcome[0]

    def wanted(self, handover: Handover) -> Wanted:
        """See :class:`MobilityManager`; nonsense counts as a failed handover."""
        if handover.is_over:
            return settled(handover)
        wanted = self._wanted(handover)
        return settled(replace(handover, phase=Phase.FAILED)) if wanted is None else wanted

    def _wanted(self, handover: Handover) -> Wanted | None:
        return self._call(lambda: self.manager.wanted(handover), lambda answer: _sound(answer, handover.request))

    def _step(self, handover: Handover, step: Callable[[], object], now_s: float) -> Handover:
        if handover.is_over:
            return handover
        after = self._call(step, lambda answer: _same_request(answer, handover.request))
        # A state that it has no sound answer for is not entered.
        if after is None or self._wanted(after) is None:
            return handover.enter(Phase.FAILED, now_s, f"the plugin {_name(self.manager)} failed")
        return after

    def _call(self, function: Callable[[], object], accept: Callable[[object], Answer | None]) -> Answer | None:
        outcome = call(function, accept, self.clock, self.limits)
        if outcome.fault is not None:
            self.report(outcome.fault)
        return outcome.answer


def _same_request(answer: object, request: Request) -> Handover | None:
    return answer if isinstance(answer, Handover) and answer.request == request else None


def _due(answer: object) -> tuple[float | None] | None:
    match answer:
        case (None,):
            return (None,)
        case (float() | int() as due_s,) if not math.isnan(due_s):
            return (float(due_s),)
        case _:
            return None


def _sound(answer: object, request: Request) -> Wanted | None:
    """A manager may speak of the two places of its handover only, and send by places that both ends know."""
    if not isinstance(answer, Wanted):
        return None
    places = {place for place in (request.old, request.new) if place is not None}
    asked = {place for place in (answer.join, answer.leave) if place is not None}
    fits = set(answer.carry) <= set(answer.known) <= places and asked <= places
    return answer if fits else None


def _name(manager: MobilityManager) -> str:
    outcome = call(lambda: manager.name, lambda name: name if isinstance(name, str) else None, lambda: 0.0, Limits())
    return (outcome.answer or "without a name")[:_TEXT]

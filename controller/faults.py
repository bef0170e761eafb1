"""What went wrong lately: for the log, for health and for those who listen to events."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.events import EventLog

LOG = logging.getLogger("hyroads.controller")
KEPT = 50


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that went wrong, for health."""

    time_s: float
    where: str
    what: str


class FaultBook:
    """The latest faults. Defects are counted in ``counters``."""

    def __init__(self, clock: Callable[[], float], counters: Counter[str], events: EventLog) -> None:
        self._clock = clock
        self._counters = counters
        self._events = events
        self._faults: deque[Fault] = deque(maxlen=KEPT)

    def __iter__(self) -> Iterator[Fault]:
        return iter(tuple(self._faults))

    def fault(self, where: str, what: str) -> None:
        """Note something that went wrong."""
        self._note(where, what)
        LOG.warning("%s: %s", where, what)

    def exception(self, where: str, error: BaseException) -> None:
        """Note a defect: never swallowed, never fatal."""
        self._counters["exceptions"] += 1
        self._note(where, f"{type(error).__name__}: {error}")
        level = logging.WARNING if isinstance(error, HyroadsError) else logging.ERROR
        LOG.log(level, "%s: %s", where, error, exc_info=error)

    def _note(self, where: str, what: str) -> None:
        self._faults.append(Fault(self._clock(), where, what))
        self._events.publish("fault", {"where": where, "what": what})

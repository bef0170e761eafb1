"""The real saver around a disk that a test has: it writes as soon as somebody waits for it."""

from __future__ import annotations

import errno
import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

from hyroads.controller.model.events import EventLog
from hyroads.controller.runtime.faults import FaultLog
from hyroads.controller.runtime.saver import Saver


def full_disk() -> None:
    """Where nothing can be written."""
    raise OSError(errno.ENOSPC, "No space left on device")


class Progress:
    """What those who wait for the disk wait with: it is written meanwhile."""

    def __init__(self) -> None:
        self.saver: Saver | None = None
        self.wait_with: Callable[[float], object] = lambda _: None

    def notify(self) -> None:
        """Everybody looks anyway."""

    def wait(self, timeout_s: float) -> bool:
        """Somebody waits."""
        self.wait_with(timeout_s)
        if self.saver is not None:
            self.saver.once()
        return True


def instant_saver(
    save: Callable[[], None] = lambda: None, clock: Callable[[], float] | None = None
) -> tuple[Saver, EventLog, FaultLog]:
    """And the events and faults that it tells of. By default time passes a tenth of a second a look."""
    times = itertools.count()
    clock = clock or (lambda: next(times) / 10)
    progress: Any = Progress()
    events = EventLog(lambda: 1.0, progress)
    faults = FaultLog(lambda: 0.0, Counter(), events)
    saver = Saver(save, wake=lambda: None, progress=progress, faults=faults, clock=clock)
    progress.saver = saver
    return saver, events, faults

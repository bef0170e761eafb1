"""Writes what must survive a restart, in a green thread of its own: a disk takes as long as it likes.

What somebody asked for is a :class:`Change`. If it can't be written it is taken back, together with all that was asked
for since the last time that something was: what is in force then is what the file says. Writing is tried again, at
growing intervals, and at once when somebody asks for something new.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from hyroads.controller import ryu_shim as shim
from hyroads.controller.events import EventLog
from hyroads.controller.faults import FaultBook
from hyroads.controller.services.waiting import wait_until
from hyroads.rest.contract import NotConfirmedError, NotSavedError

LOG = logging.getLogger("hyroads.controller")

IDLE_S = 60.0
RETRY_FIRST_S, RETRY_MOST_S = 0.5, 30.0
ASKED_RETRY_S = 0.2
"""While writing fails it is tried this often for those who ask."""
WITHIN_S = 5.0
SAY_AGAIN_S = 60.0
MAX_REFUSED = 1024


@dataclass(eq=False)
class Change:
    """Something that somebody asked for. ``undo`` takes it back."""

    what: str
    undo: Callable[[], object]
    is_saved: bool = False
    refusal: str | None = None

    @property
    def is_over(self) -> bool:
        """Whether it is on the disk, or taken back."""
        return self.is_saved or self.refusal is not None

    def check(self) -> None:
        """NotSavedError if it was taken back."""
        if self.refusal is not None:
            raise NotSavedError(self.refusal)


class Saver:
    """``save`` writes all that is to be saved as it is now, and raises OSError if it can't. ``wake`` is called when
    there is something to save that :meth:`begin` shall begin with; ``progress`` tells whoever waits.
    """

    def __init__(
        self,
        save: Callable[[], None],
        *,
        wake: Callable[[], None],
        progress: shim.Signal,
        faults: FaultBook,
        events: EventLog,
        clock: Callable[[], float],
    ) -> None:
        self._save = save
        self._ask = wake
        self._progress = progress
        self._faults = faults
        self._events = events
        self._clock = clock
        self._wake = shim.Signal()
        self._noted = False
        self._writing = False
        self._is_asked = False
        self._open: list[Change] = []
        self._refused: OrderedDict[str, str] = OrderedDict()
        self._tries = 0
        self._tried_s = 0.0
        self._pause_s = RETRY_FIRST_S
        self._said_s = 0.0
        self.failure: str | None = None
        """Why nothing can be written; None if it can, as far as is known."""
        self.failing_since_s = 0.0

    @property
    def pending(self) -> bool:
        """Whether something is not on the disk yet. What was confirmed to a user outlives the controller."""
        return self._noted or self._writing or self.failure is not None

    # -- what is to be saved

    def note(self) -> None:
        """There is something to save. It is not begun before :meth:`begin`: telling agents is more urgent."""
        self._noted = True

    def check(self) -> None:
        """NotSavedError if nothing can be written now: then nothing new is begun. Where writing failed last it is tried
        again first.
        """
        if self.failure is None:
            return
        tries, self._is_asked = self._tries, True
        self._wake.notify()
        wait_until(lambda: self._tries > tries, WITHIN_S, self._clock, self._progress)
        if self.failure is not None:
            raise NotSavedError(f"{self.failure}; nothing was changed")

    def change(self, what: str, undo: Callable[[], object]) -> Change:
        """Somebody asks for ``what``, which is about to be done."""
        change = Change(what, undo)
        self._open.append(change)
        self._refused.pop(what, None)
        self._noted = True
        self._ask()
        return change

    def wait(self, change: Change) -> None:
        """Until a change is on the disk; NotSavedError if it was taken back, NotConfirmedError if it takes long."""
        wait_until(lambda: change.is_over, WITHIN_S, self._clock, self._progress)
        change.check()
        if not change.is_saved:
            raise NotConfirmedError(change.what, ["state file"])

    def check_refused(self, what: str) -> None:
        """NotSavedError if the last change of that name was taken back."""
        if what in self._refused:
            raise NotSavedError(self._refused[what])

    # -- the loop

    def begin(self) -> None:
        """Save what was noted."""
        if self._noted:
            self._wake.notify()

    def run(self) -> None:
        """Work for ever, in the calling green thread."""
        while True:
            wait_s = self._wait_s()
            if wait_s > 0:
                self._wake.wait(wait_s)
            if self._wait_s() <= 0:
                self.once()

    def _wait_s(self) -> float:
        if self.failure is None:
            return 0.0 if self._noted else IDLE_S
        pause_s = min(self._pause_s, ASKED_RETRY_S) if self._is_asked or self._open else self._pause_s
        return self._tried_s + pause_s - self._clock()

    def once(self) -> None:
        """Save now."""
        self._noted, self._writing, self._is_asked = False, True, False
        saving, failure = list(self._open), None
        try:
            self._save()
        except OSError as error:
            failure = f"the state file can't be written: {error.strerror or error}"
        except Exception as error:  # noqa: BLE001 - it is tried again; it is counted and shown
            self._faults.exception("saving", error)
            failure = f"the state file can't be written: {type(error).__name__}"
        finally:
            self._writing = False
        self._tries += 1
        self._tried_s = self._clock()
        if failure is None:
            self._worked(saving)
        else:
            self._failed(failure)
        self._progress.notify()

    def finish(self) -> None:
        """Save what there is before the process ends, if that is possible in time."""
        self._noted = self._is_asked = True
        tries = self._tries + self._writing
        self._wake.notify()
        wait_until(lambda: self._tries > tries, WITHIN_S, self._clock, self._progress)

    # -- inside

    def _worked(self, saved: Iterable[Change]) -> None:
        for change in saved:
            change.is_saved = True
        self._open = [change for change in self._open if not change.is_over]
        if self.failure is not None:
            self.failure, self._pause_s = None, RETRY_FIRST_S
            after_s = self._tried_s - self.failing_since_s
            LOG.info("the state file is written again, after %.1f s", after_s)
            self._events.publish("state_file.saved", {"after_s": after_s})

    def _failed(self, failure: str) -> None:
        is_new = self.failure is None
        self.failing_since_s = self._tried_s if is_new else self.failing_since_s
        self._pause_s = RETRY_FIRST_S if is_new else min(2 * self._pause_s, RETRY_MOST_S)
        # A full disk may stay full for days.
        if is_new or failure != self.failure or self._tried_s - self._said_s >= SAY_AGAIN_S:
            self._said_s = self._tried_s
            self._faults.fault("state file", f"{failure}; it is tried again")
            self._events.publish("state_file.failing", {"reason": failure})
        self.failure = failure
        changes, self._open = self._open, []
        for change in reversed(changes):
            self._take_back(change, failure)
        self._noted = True

    def _take_back(self, change: Change, failure: str) -> None:
        change.refusal = f"{change.what}: {failure}; it was taken back"
        self._refused[change.what] = change.refusal
        while len(self._refused) > MAX_REFUSED:
            self._refused.popitem(last=False)
        try:
            change.undo()
        except Exception as error:  # noqa: BLE001 - the others are taken back nevertheless; it is counted and shown
            self._faults.exception(f"taking back {change.what}", error)

"""When the state is saved, and what becomes of what was asked for until it is.

A green thread of its own writes, because a disk may be slow. Each request is a :class:`Change`. If it can't be written
it is undone, together with all other changes since the last successful write, so that what is saved matches what is in
force. Writing is tried again at growing intervals, and at once when somebody asks for something new.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass

from hyroads.controller.framework import ryu_shim as shim
from hyroads.rest.contract import NotConfirmedError, NotSavedError

from .faults import FaultLog, wait_until

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
    error: type[NotSavedError] = NotSavedError

    @property
    def is_over(self) -> bool:
        """Whether it is on the disk, or taken back."""
        return self.is_saved or self.refusal is not None

    def check(self) -> None:
        """NotSavedError if it was taken back."""
        if self.refusal is not None:
            raise self.error(self.refusal)


@dataclass(eq=False)
class Saver:
    """``save`` writes all that is to be saved as it is now, and raises OSError if it can't. ``wake`` is called when
    there is something to save that :meth:`begin` shall begin with; ``progress`` tells whoever waits. ``where`` it is
    saved, and what is raised if it can't be.
    """

    save: Callable[[], None]
    _: KW_ONLY
    wake: Callable[[], None]
    progress: shim.Signal
    faults: FaultLog
    clock: Callable[[], float]
    where: str = "state file"
    refusal: type[NotSavedError] = NotSavedError
    written: Callable[[], None] = lambda: None
    """Called after each try to write, when whoever waits was told."""

    def __post_init__(self) -> None:
        self._begun = shim.Signal()
        self._noted = self._writing = self._is_asked = False
        self._open: list[Change] = []
        self._refused: OrderedDict[str, str] = OrderedDict()
        self._tries = 0
        self._tried_s = self._said_s = 0.0
        self._pause_s = RETRY_FIRST_S
        self.failure: str | None = None
        """Why nothing can be written; None if it can, as far as is known."""
        self.failing_since_s = 0.0

    @property
    def pending(self) -> bool:
        """Whether something is not on the disk yet. What was confirmed to a user outlives the controller."""
        return self._noted or self._writing or self.failure is not None

    @property
    def unsaved(self) -> list[str]:
        """Where something is to be saved that is not saved yet, as answers name what is pending; empty: nowhere."""
        return [self.where] if self.pending else []

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
        self._begun.notify()
        wait_until(lambda: self._tries > tries, WITHIN_S, self.clock, self.progress)
        if self.failure is not None:
            raise self.refusal(f"{self.failure}; nothing was changed")

    def change(self, what: str, undo: Callable[[], object]) -> Change:
        """Somebody asks for ``what``, which is about to be done."""
        change = Change(what, undo, error=self.refusal)
        self._open.append(change)
        self._refused.pop(what, None)
        self._noted = True
        self.wake()
        return change

    def wait(self, change: Change) -> None:
        """Until a change is on the disk; NotSavedError if it was taken back, NotConfirmedError if it takes long."""
        wait_until(lambda: change.is_over, WITHIN_S, self.clock, self.progress)
        change.check()
        if not change.is_saved:
            raise NotConfirmedError(change.what, [self.where])

    def wait_all(self) -> None:
        """Until all that was asked for so far is written or taken back; NotSavedError if that takes long."""
        changes = list(self._open)
        if not wait_until(lambda: all(change.is_over for change in changes), WITHIN_S, self.clock, self.progress):
            raise self.refusal(f"the {self.where} does not answer: what was asked for may be saved or not; ask again")

    def check_refused(self, what: str) -> None:
        """NotSavedError if the last change of that name was taken back."""
        if what in self._refused:
            raise self.refusal(self._refused[what])

    # -- the loop

    def begin(self) -> None:
        """Save what was noted."""
        if self._noted:
            self._begun.notify()

    def run(self) -> None:
        """Work for ever, in the calling green thread."""
        while True:
            wait_s = self._wait_s()
            if wait_s > 0:
                self._begun.wait(wait_s)
            if self._wait_s() <= 0:
                self.once()

    def _wait_s(self) -> float:
        if self.failure is None:
            return 0.0 if self._noted else IDLE_S
        pause_s = min(self._pause_s, ASKED_RETRY_S) if self._is_asked or self._open else self._pause_s
        return self._tried_s + pause_s - self.clock()

    def once(self) -> None:
        """Save now."""
        self._noted, self._writing, self._is_asked = False, True, False
        saving, failure = list(self._open), None
        try:
            self.save()
        except OSError as error:
            failure = f"the {self.where} can't be written: {error.strerror or error}"
        except Exception as error:  # noqa: BLE001 - it is tried again; it is counted and shown
            self.faults.exception("saving", error)
            failure = f"the {self.where} can't be written: {type(error).__name__}"
        finally:
            self._writing = False
        self._tries += 1
        self._tried_s = self.clock()
        if failure is None:
            self._worked(saving)
        else:
            self._failed(failure)
        self.progress.notify()
        self.written()

    def finish(self) -> None:
        """Save what there is before the process ends, if that is possible in time."""
        self._noted = self._is_asked = True
        tries = self._tries + self._writing
        self._begun.notify()
        wait_until(lambda: self._tries > tries, WITHIN_S, self.clock, self.progress)

    @property
    def is_asked(self) -> bool:
        """Whether somebody waits for a change that is not over."""
        return bool(self._open)

    def abandon(self, why: str) -> None:
        """Take back all changes that are not saved: they never will be."""
        changes, self._open = self._open, []
        for change in reversed(changes):
            self._take_back(change, why)
        self.progress.notify()

    # -- inside

    def _worked(self, saved: Iterable[Change]) -> None:
        for change in saved:
            change.is_saved = True
        self._open = [change for change in self._open if not change.is_over]
        if self.failure is not None:
            self.failure, self._pause_s = None, RETRY_FIRST_S
            after_s = self._tried_s - self.failing_since_s
            LOG.info("the %s is written again, after %.1f s", self.where, after_s)
            self.faults.events.publish("state_file.saved", {"after_s": after_s})

    def _failed(self, failure: str) -> None:
        is_new = self.failure is None
        self.failing_since_s = self._tried_s if is_new else self.failing_since_s
        self._pause_s = RETRY_FIRST_S if is_new else min(2 * self._pause_s, RETRY_MOST_S)
        # A full disk may stay full for days.
        if is_new or failure != self.failure or self._tried_s - self._said_s >= SAY_AGAIN_S:
            self._said_s = self._tried_s
            self.faults.fault(self.where, f"{failure}; it is tried again")
            self.faults.events.publish("state_file.failing", {"reason": failure})
        self.failure = failure
        self.abandon(failure)
        self._noted = True

    def _take_back(self, change: Change, failure: str) -> None:
        change.refusal = f"{change.what}: {failure}; it was taken back"
        self._refused[change.what] = change.refusal
        while len(self._refused) > MAX_REFUSED:
            self._refused.popitem(last=False)
        try:
            change.undo()
        except Exception as error:  # noqa: BLE001 - the others are taken back nevertheless; it is counted and shown
            self.faults.exception(f"taking back {change.what}", error)

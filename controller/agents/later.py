"""What waits for more urgent messages: whole reports while a flow is declared, and rows of radios always.

Whole reports that come while something is urgent wait until it is over, and what their sessions say after them. An
agent that is told of another flow tells everything anew: of hundreds of flows that takes 10 to 20 ms to check, and
whoever declared the flow waits for answers that came right after it.

Readings of radios that have rows wait in a queue of their own, the newest of each access point, and take a bounded
share of the time. Changes of links, answers and epochs overtake them. A controller that is too slow drops readings, and
nothing else.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

from hyroads.controller.framework import ryu_shim as shim

from .sessions import Session

MOST_LINES = 64
"""So many lines of a session wait at most."""
_WHOLE = b'{"type":"report",'
_ANSWERS = b'{"type":"ok",', b'{"type":"error",', b'{"type":"pong",'
"""They have nothing to do with reports."""


class Urgent(Protocol):
    """What goes before everything else (``runtime.urgency``)."""

    @property
    def goes_first(self) -> bool:
        """Whether a flow is declared, or was since the last slot began."""

    def wait_for_flows(self) -> None:
        """Until none is, in a green thread."""


class NothingUrgent:
    """There is never anything."""

    goes_first = False

    def wait_for_flows(self) -> None:
        """Goes on at once."""


class LaterLines:
    """``take`` takes a line of a session, and raises nothing."""

    def __init__(self, urgent: Urgent, take: Callable[[Session, bytes], None]) -> None:
        self._urgent, self._take = urgent, take
        self._sessions: deque[Session] = deque()

    def keeps(self, session: Session, line: bytes) -> bool:
        """Whether a line is taken later; else it is to be taken now."""
        if len(session.later) >= MOST_LINES:
            self._take_first(session, len(session.later))
        if session.later:
            waits = not line.startswith(_ANSWERS)
        else:
            waits = self._urgent.goes_first and session.joined and line.startswith(_WHOLE)
        if waits:
            if not session.later:
                self._sessions.append(session)
                if len(self._sessions) == 1:
                    shim.spawn(self._take_all)
            session.later.append((line, session.wholes))
        return waits

    def _take_all(self) -> None:
        while self._sessions:
            self._urgent.wait_for_flows()
            # Whoever waited for what is over goes on first.
            shim.sleep(0)
            session = self._sessions[0]
            self._take_first(session, 1)
            if not session.later:
                self._sessions.popleft()

    def _take_first(self, session: Session, count: int) -> None:
        newest = session.wholes
        for _ in range(min(count, len(session.later))):
            line, session.wholes = session.later[0]
            self._take(session, line)
            session.later.popleft()
        session.wholes = newest


READINGS_SHARE = 0.25
"""Readings with rows take at most this share of the time."""
TURN_S = 0.005
"""Then other green threads have their turn."""
_WHOLE_READING, _CHANGED_READING = b'{"type":"radio","seq":null,', b'{"type":"radio-changes",'


class LatestReadings:
    """Readings of radios that are not taken yet, of each session the newest whole one and the newest changes after it.

    ``take`` takes a line of a session. What it raises in a turn of this queue goes to ``fail``.
    Times are in seconds of ``clock``; ``sleep`` lets other green threads run for a time.
    """

    def __init__(
        self,
        urgent: Urgent,
        take: Callable[[Session, bytes], None],
        fail: Callable[[Session, Exception], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = shim.sleep,
    ) -> None:
        self._urgent, self._take, self._fail = urgent, take, fail
        self._clock, self._sleep = clock, sleep
        self._sessions: deque[tuple[Session, float]] = deque()
        """Sessions with readings, and since when each waits for its turn."""
        self.dropped = 0
        """How many readings a newer one replaced."""

    @property
    def late_s(self) -> float:
        """For how long the first session has waited."""
        return self._clock() - self._sessions[0][1] if self._sessions else 0.0

    def keeps(self, session: Session, line: bytes) -> bool:
        """Whether a line is a reading, which is then taken later. Another kind of reading, such as an answer to a
        request, is to be taken now, after those that wait, which raise what ``take`` raises.
        """
        is_whole = line.startswith(_WHOLE_READING)
        if not is_whole and not line.startswith(_CHANGED_READING):
            if b'"radio' in line:
                self.take_waiting(session)
            return False
        waiting = session.readings
        if not waiting:
            self._sessions.append((session, self._clock()))
            if len(self._sessions) == 1:
                shim.spawn(self.take_all)
        older = [] if is_whole else [each for each in waiting if not each[0].startswith(_CHANGED_READING)]
        self.dropped += len(waiting) - len(older)
        waiting[:] = [*older, (line, session.wholes)]
        return True

    def drop_changes(self, sessions: Iterable[Session]) -> None:
        """Newer readings of some sessions came, without rows: changes that wait are older."""
        for session in sessions if self._sessions else ():
            if session.readings and session.readings[-1][0].startswith(_CHANGED_READING):
                session.readings.pop()
                self.dropped += 1

    def take_waiting(self, session: Session) -> None:
        """Take what waits of a session; raises what ``take`` raises."""
        newest, waiting = session.wholes, session.readings[:]
        session.readings.clear()
        if session.closed:
            return
        for line, wholes in waiting:
            session.wholes = wholes
            self._take(session, line)
        session.wholes = newest

    def take_all(self) -> None:
        """Take what waits, and what comes meanwhile, in the calling green thread."""
        while self._sessions:
            self._urgent.wait_for_flows()
            began_s = now_s = self._clock()
            while self._sessions and now_s < began_s + TURN_S:
                session, _ = self._sessions.popleft()
                try:
                    self.take_waiting(session)
                except Exception as error:  # noqa: BLE001 - it ends this session; lines of other sessions count
                    self._fail(session, error)
                now_s = self._clock()
            self._sleep((now_s - began_s) * (1 / READINGS_SHARE - 1))

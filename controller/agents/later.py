"""Whole reports that come while something is urgent wait until it is over, and what their sessions say after them.

An agent that is told of another flow tells everything anew: of hundreds of flows that takes 10 to 20 ms to check, and
whoever declared the flow waits for answers that came right after it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
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

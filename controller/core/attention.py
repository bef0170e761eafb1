"""Time as far as a process was there to hear others: silence is judged by it, and answers are awaited by it.

A process that got no processor for a while, or was busy with something else, has not read what others sent meanwhile;
by an ordinary clock they were silent. Pure: the time is given.
"""

from __future__ import annotations

from collections.abc import Callable


class AttendedClock:
    """Seconds like those of ``clock``, of which each turn counts ``most_s`` at most. Whoever reads what comes in says
    :meth:`turned` whenever all that had come was read, several times in ``most_s``.
    """

    def __init__(self, clock: Callable[[], float], most_s: float) -> None:
        self._clock, self._most_s = clock, most_s
        self._turned_s = self._attended_s = clock()

    def __call__(self) -> float:
        """The time; it never goes back."""
        return self._attended_s + min(max(0.0, self._clock() - self._turned_s), self._most_s)

    def turned(self) -> None:
        """All that had come was read."""
        self._attended_s, self._turned_s = self(), self._clock()

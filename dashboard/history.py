"""Figures of the last minutes, in bounded memory. Pure: time is an argument, in seconds.

All series have the same ticks; a tick is one look at the network. Memory is ``MAX_SERIES`` times ``ticks`` times four
bytes a figure at most.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence

WINDOW_S = 900.0
TICKS = 900
MAX_SERIES = 4096
UNKNOWN = math.nan

Figures = Sequence[float | None]
Key = tuple[str, str]
"""What kind of thing, and its id."""


class History:
    """A ring of ticks for each series. A series that is no longer written ends once all of its ticks are unknown."""

    def __init__(self, ticks: int = TICKS, window_s: float = WINDOW_S, max_series: int = MAX_SERIES) -> None:
        self._ticks, self._window_s, self._max_series = ticks, window_s, max_series
        self._times_s = array("d", [0.0]) * ticks
        self._written = 0
        self._series: dict[Key, tuple[int, array[float]]] = {}
        """Its width, and its ticks one after the other."""
        self._latest: dict[Key, int] = {}

    def add(self, now_s: float, rows: Mapping[Key, Figures]) -> None:
        """A tick with what is known at it. Series that are not named have a gap. Beyond the bound new ones are left
        out.
        """
        at = self._written % self._ticks
        self._times_s[at] = now_s
        self._written += 1
        for key, row in rows.items():
            found = self._series.get(key)
            if found is None or found[0] != len(row):
                if found is None and len(self._series) >= self._max_series:
                    continue
                found = self._series[key] = (len(row), array("f", [UNKNOWN]) * (self._ticks * len(row)))
            width, figures = found
            start = at * width
            for place, value in enumerate(row):
                figures[start + place] = UNKNOWN if value is None else value
            self._latest[key] = self._written
        for key in self._series.keys() - rows.keys():
            width, figures = self._series[key]
            figures[at * width : (at + 1) * width] = array("f", [UNKNOWN]) * width
        if self._written % 60 == 0:
            self._forget()

    def _forget(self) -> None:
        for key in [key for key, last in self._latest.items() if self._written - last >= self._ticks]:
            del self._series[key], self._latest[key]

    def keys(self, kind: str) -> list[str]:
        """Ids of the series of a kind."""
        return [one for of, one in self._series if of == kind]

    def rows(self, key: Key, now_s: float, since_s: float | None = None) -> list[tuple[float, list[float | None]]]:
        """Time and figures of the ticks within the window, oldest first; only those later than ``since_s``."""
        found = self._series.get(key)
        if found is None:
            return []
        width, figures = found
        oldest_s = now_s - self._window_s if since_s is None else max(since_s, now_s - self._window_s)
        rows = []
        for number in range(max(0, self._written - self._ticks), self._written):
            at = number % self._ticks
            if self._times_s[at] > oldest_s:
                row = [None if math.isnan(one) else one for one in figures[at * width : (at + 1) * width]]
                rows.append((self._times_s[at], row))
        return rows

"""Counts of durations by bound, as Prometheus wants them. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence


class Histogram:
    """``bounds_s`` rise; what is longer than all of them is counted last."""

    def __init__(self, bounds_s: Sequence[float]) -> None:
        self.bounds_s = tuple(bounds_s)
        self.total_s = 0.0
        self._counts = [0] * (len(self.bounds_s) + 1)

    def add(self, seconds: float) -> None:
        """One more."""
        self._counts[bisect_left(self.bounds_s, seconds)] += 1
        self.total_s += seconds

    def cumulative(self) -> list[tuple[str, float]]:
        """(bound, how many were at most so long), the last bound being infinite."""
        total, rows = 0, []
        for bound, count in zip((*map(str, self.bounds_s), "+Inf"), self._counts, strict=True):
            total += count
            rows.append((bound, float(total)))
        return rows

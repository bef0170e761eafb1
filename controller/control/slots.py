"""When slots begin, and how long they took, also as a histogram for Prometheus. The clock is given."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass


class Histogram:
    """Counts of durations by bound; ``bounds_s`` rise, and what is longer than all of them is counted last."""

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


# Upper bounds of the histogram, in seconds.
BOUNDS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
_REMEMBERED = 1000
RECENT_S = 300.0
"""Span of ``SlotFigures.missed_recently``, in seconds: that of the alert ``HyRoadsSlotsMissed``."""


@dataclass(frozen=True, slots=True)
class SlotFigures:
    """``missed`` slots did not take place: the one before, or something else, was still busy when their time was over.

    ``count`` and ``missed`` are since the start, ``missed_recently`` is over the last ``RECENT_S`` seconds. Percentiles
    are over the last thousand slots, ``max_ms`` over all.
    """

    count: int
    missed: int
    missed_recently: int
    p50_ms: float | None
    p99_ms: float | None
    max_ms: float | None


class SlotClock:
    """Slots at absolute times: ``start + n slot_s``. Used around each slot as a context manager, after ``wait_s``."""

    def __init__(self, slot_s: float, clock: Callable[[], float]) -> None:
        self.slot_s = slot_s
        self.count = 0
        self.missed = 0
        self.max_s = 0.0
        self.late_s = 0.0
        """How long after its time the last slot began: so long others kept it from that."""
        self.histogram = Histogram(BOUNDS_S)
        self._clock = clock
        self._next_s: float | None = None
        self._began_s = 0.0
        self._recent: deque[float] = deque(maxlen=_REMEMBERED)
        self._missed: deque[tuple[float, int]] = deque()

    def wait_s(self) -> float:
        """How long until the next slot begins; 0 if its time has come. Slots whose time is over are missed."""
        now_s = self._clock()
        if self._next_s is None:
            self._next_s = now_s
        late = math.floor((now_s - self._next_s) / self.slot_s)
        if late > 0:
            self._miss(late, now_s)
            self._next_s += late * self.slot_s
        return max(0.0, self._next_s - now_s)

    def __enter__(self) -> None:
        self._began_s = self._clock()
        if self._next_s is not None:
            # Something else may have kept us from beginning in time.
            self.late_s = max(0.0, self._began_s - self._next_s)
            late = math.floor(self.late_s / self.slot_s)
            if late > 0:
                self._miss(late, self._began_s)
            self._next_s += (late + 1) * self.slot_s

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        took_s = self._clock() - self._began_s
        self.count += 1
        self.max_s = max(self.max_s, took_s)
        self.histogram.add(took_s)
        self._recent.append(took_s)

    def _miss(self, count: int, now_s: float) -> None:
        self.missed += count
        self._missed.append((now_s, count))
        self._forget(now_s)

    def _forget(self, now_s: float) -> None:
        while self._missed and self._missed[0][0] < now_s - RECENT_S:
            self._missed.popleft()

    def figures(self) -> SlotFigures:
        """Return counts, and percentiles and maximum of the durations in ms (None before the first slot)."""
        self._forget(self._clock())
        recently = sum(count for _, count in self._missed)
        if not self._recent:
            return SlotFigures(self.count, self.missed, recently, None, None, None)
        ordered = sorted(self._recent)
        last = len(ordered) - 1
        p50, p99 = (1e3 * ordered[math.ceil(share * last)] for share in (0.5, 0.99))
        return SlotFigures(self.count, self.missed, recently, p50, p99, 1e3 * self.max_s)

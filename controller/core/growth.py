"""Counters that only grow until they restart: how much, and how fast over about the last second. Pure.

:class:`Growth` is of one counter, :class:`GrowthColumns` of many side by side, with the same rules: with thousands of
flows it takes a few operations on arrays to tell of all of them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import cached_property
from math import isnan
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .estimate.crosscheck import ETHERNET_HEADER

WINDOW_S = 1.0
"""Rates are over about so long."""
FRESH_S = 3.5
"""A counter or busy share that was read longer ago says nothing of now."""
HISTORY = 4

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.intp]


class Counted(NamedTuple):
    """A reading of a counter: ``time_s`` is the clock of whoever read it, ``payload_bytes`` and ``frames`` only grow
    until the counter restarts.
    """

    time_s: float
    payload_bytes: int
    frames: int

    @classmethod
    def of_port(cls, time_s: float, whole_bytes: int, frames: int) -> Counted:
        """Of a port, which counts whole frames without their check sums."""
        return cls(time_s, max(0, whole_bytes - ETHERNET_HEADER * frames), frames)


@dataclass(slots=True)
class Growth:
    """The last readings of one counter, and how much it has grown since the first. What a counter had counted between
    the last reading and a restart is lost, so that a restart adds nothing.
    """

    points: deque[Counted] = field(default_factory=lambda: deque(maxlen=HISTORY))
    total_bytes: int = 0
    total_frames: int = 0
    heard_s: float = 0.0
    _window: tuple[Counted, Counted] | None = None

    def add(self, new: Counted, now_s: float) -> int:
        """The next reading; returns by how many bytes the counter grew. One that is not newer is left out."""
        last = self.points[-1] if self.points else None
        if last is not None and new.payload_bytes >= last.payload_bytes and new.frames >= last.frames:
            if new.time_s <= last.time_s:
                return 0
            grown = new.payload_bytes - last.payload_bytes
            self.total_bytes += grown
            self.total_frames += new.frames - last.frames
        else:
            grown = 0
            self.points.clear()
        self.points.append(new)
        self.heard_s, self._window = now_s, None
        return grown

    def window(self, now_s: float) -> tuple[Counted, Counted] | None:
        """That reading of which the last is about ``WINDOW_S`` later, and the last; None if there are no two, or they
        are old.
        """
        if len(self.points) < 2 or now_s - self.heard_s > FRESH_S:
            return None
        if self._window is None:
            # Readings are in the order of their times: once they get worse, earlier ones are no better.
            readings = reversed(self.points)
            last, first = next(readings), next(readings)
            for point in readings:
                if abs(last.time_s - point.time_s - WINDOW_S) > abs(last.time_s - first.time_s - WINDOW_S):
                    break
                first = point
            self._window = first, last
        return self._window

    def rate_mbps(self, now_s: float) -> float | None:
        """Mb/s over the window; None if unknown."""
        window = self.window(now_s)
        if window is None:
            return None
        first, last = window
        return (last.payload_bytes - first.payload_bytes) * 8e-6 / (last.time_s - first.time_s)


@dataclass(frozen=True, eq=False)
class Counts:
    """A reading of each of many counters, as :class:`Counted`; nan in any column: this one was not told."""

    time_s: FloatArray
    payload_bytes: FloatArray
    frames: FloatArray

    @cached_property
    def rows(self) -> FloatArray:
        """Times, bytes and frames, one below the other."""
        return np.stack([self.time_s, self.payload_bytes, self.frames])

    @cached_property
    def told(self) -> NDArray[np.bool_]:
        """Which were told."""
        return np.logical_not(np.isnan(self.rows).any(axis=0))


class Grown(NamedTuple):
    """By how much a counter grew over the window of its last readings."""

    over_s: float
    payload_bytes: float
    frames: float

    @property
    def mbps(self) -> float:
        """In Mb/s."""
        return self.payload_bytes * 8e-6 / self.over_s


class GrowthColumns:
    """As one :class:`Growth` per column, without the totals. Counters are exact up to 2^53."""

    def __init__(self) -> None:
        self._points = np.full((HISTORY, 3, 0), np.nan)
        """From the oldest to the newest reading; nan: none yet."""
        self._heard_s = np.zeros(0)
        self._windows: tuple[FloatArray, FloatArray, FloatArray] | None = None

    def arrange(self, columns: IndexArray) -> None:
        """The columns become those that were at these places; -1: a counter without a reading."""
        none, missing = len(self._heard_s) == 0, columns < 0
        shape = (HISTORY, 3, len(columns))
        self._points = np.full(shape, np.nan) if none else self._points.take(columns, axis=2)
        self._points[:, :, missing] = np.nan
        self._heard_s = np.zeros(len(columns)) if none else self._heard_s[columns]
        self._windows = None

    def add(self, new: Counts, now_s: float) -> FloatArray:
        """The next readings of all; returns by how many bytes each counter grew. One that is not newer is left out."""
        points, rows = self._points, new.rows
        last = points[-1]
        # Also false where there is no last one.
        follows = (rows[1] >= last[1]) & (rows[2] >= last[2])
        taken = new.told & ~(follows & (rows[0] <= last[0]))
        grown = np.where(taken & follows, rows[1] - last[1], 0.0)
        self._heard_s[taken] = now_s
        self._windows = None
        if taken.all():
            points[:-1], points[-1] = points[1:], rows
        else:
            at = np.flatnonzero(taken)
            points[:, :, at] = np.concatenate([points[1:, :, at], rows[np.newaxis, :, at]])
        points[:-1, :, taken & ~follows] = np.nan
        return grown

    def grown(self, column: int, now_s: float) -> Grown | None:
        """Over the window of :meth:`Growth.window`; None if that has none."""
        if now_s - self._heard_s.item(column) > FRESH_S:
            return None
        over_s, payload_bytes, frames = self._grown()
        found = over_s.item(column)
        return None if isnan(found) else Grown(found, payload_bytes.item(column), frames.item(column))

    def rates_mbps(self, now_s: float) -> FloatArray:
        """Mb/s over the windows; nan where that is unknown."""
        over_s, payload_bytes, _ = self._grown()
        rates: FloatArray = np.where(now_s - self._heard_s > FRESH_S, np.nan, payload_bytes * 8e-6 / over_s)
        return rates

    def _grown(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """What :class:`Grown` says of all windows, old or not; nan where there is none."""
        if self._windows is None:
            times_s, last = self._points[:, 0], self._points[-1]
            off_s = np.abs(times_s[-1] - times_s[:-1] - WINDOW_S)
            # Of two that are as good the older one.
            first = np.argmin(np.where(np.isnan(off_s), np.inf, off_s), axis=0)
            over_s, payload_bytes, frames = last - np.take_along_axis(self._points, first[np.newaxis, np.newaxis], 0)[0]
            self._windows = over_s, payload_bytes, frames
        return self._windows

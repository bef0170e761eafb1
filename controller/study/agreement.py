"""Checks of a study's figures against what is known of them, with confidence intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .intervals import interval_of, interval_of_share
from .verdicts import Band, Check, Interval, Kind

RATIO_TOLERANCE = 0.05
"""Ratios agree within 5 %."""
SHARE_TOLERANCE = 0.03
"""Shares agree within 3 points."""
RARE = 0.03
"""A statement about all runs holds if at most this share of them can be otherwise: none was, of about 120 or more."""

Rows = NDArray[np.float64]
Statistic = Callable[[Rows], float]
Hits = NDArray[np.bool_]
Range = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a figure: what was published of it and what our own ``reference`` is, each from low to high.

    A range of one number has it twice; None: nothing is known. ``words`` is the published figure as it is printed, and
    ``why`` what is known of the reason for a difference.
    """

    published: Range | None = None
    reference: Range | None = None
    words: str = ""
    why: str = ""

    def ranges(self) -> Iterator[tuple[Kind, Range]]:
        """What a figure is checked against, by kind; a reference that is the published figure is left out."""
        if self.published is not None:
            yield Kind.PUBLISHED, self.published
        if self.reference is not None and self.reference != self.published:
            yield Kind.REFERENCE, self.reference


def one(published: float | None, words: str, reference: float | None = None, why: str = "") -> Known:
    """A figure of which single numbers are known."""
    ranges = [None if value is None else (value, value) for value in (published, reference)]
    return Known(ranges[0], ranges[1], words, why)


def ratio_band(known: Range) -> Band:
    """Ratios that agree with those from low to high."""
    low, high = known
    return Band(low * (1 - RATIO_TOLERANCE), high * (1 + RATIO_TOLERANCE), f"{_words(known)} within 5 %")


def share_band(known: Range) -> Band:
    """Shares that agree with those from low to high."""
    low, high = known
    return Band(low - SHARE_TOLERANCE, high + SHARE_TOLERANCE, f"{_words(known)} within 3 points")


def _words(known: Range) -> str:
    low, high = known
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def ratio_checks(what: str, known: Known, rows: Rows, statistic: Statistic) -> list[Check]:
    """The figure ``statistic(rows)`` of independent runs (the rows) against all that is known of it."""
    measured = statistic(rows)
    # A ratio may be infinite in a few of the draws.
    with np.errstate(invalid="ignore"):
        interval = interval_of(rows, statistic, draws=400)
    return _checks(what, known, ratio_band, (measured, interval))


def share_checks(what: str, known: Known, hits: Hits) -> list[Check]:
    """The share of independent runs that are hits against all that is known of it."""
    return _checks(what, known, share_band, share_of(hits))


def share_of(hits: Hits) -> tuple[float | None, Interval]:
    """The share of hits, None if there are no runs, and its interval."""
    return (float(hits.mean()) if len(hits) else None, interval_of_share(int(hits.sum()), len(hits)))


def rare_check(what: str, hits: Hits, kind: Kind, published: str = "", why: str = "") -> Check:
    """That next to no run is a hit."""
    measured, interval = share_of(hits)
    return Check(what, Band(high=RARE, words=f"at most {RARE:g}"), measured, interval, kind, published, why)


def _checks(
    what: str, known: Known, band: Callable[[Range], Band], found: tuple[float | None, Interval]
) -> list[Check]:
    return [Check(what, band(range_), *found, kind, known.words, known.why) for kind, range_ in known.ranges()]

"""Checks of a study's figures against what is known of them, with confidence intervals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .framework import Check, interval_of

RATIO_TOLERANCE = 0.05
"""Ratios agree within 5 %."""
SHARE_TOLERANCE = 0.03
"""Shares agree within 3 points."""

Rows = NDArray[np.float64]
Statistic = Callable[[Rows], float]


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a figure: its reference, from ``low`` to ``high`` (the same if it is one number).

    ``share``: it is a share of runs, else a ratio. ``published`` is the published figure in words, ``why`` what is
    known of the reason for a difference.
    """

    low: float
    high: float
    share: bool
    published: str
    why: str = ""

    def agrees(self, low: float, high: float) -> bool:
        """Whether some figure from ``low`` to ``high`` is within the tolerance of the reference."""
        if self.share:
            return low <= self.high + SHARE_TOLERANCE + 1e-12 and high >= self.low - SHARE_TOLERANCE - 1e-12
        return low <= self.high * (1 + RATIO_TOLERANCE) + 1e-12 and high >= self.low * (1 - RATIO_TOLERANCE) - 1e-12

    @property
    def wanted(self) -> str:
        """In words."""
        text = f"{self.low:g}" if self.low == self.high else f"{self.low:g} to {self.high:g}"
        return f"{text} within {'3 points' if self.share else '5 %'}"


def one(value: float, published: str, *, share: bool = True, why: str = "") -> Known:
    """A figure whose reference is one number."""
    return Known(value, value, share, published, why)


def check(what: str, known: Known, rows: Rows, statistic: Statistic, *, full: bool) -> Check:
    """The figure ``statistic(rows)`` of independent runs (the rows) against what is known of it.

    In a full study the figure itself must be within the tolerance, in a smaller one its 95 % confidence interval must
    reach there.
    """
    measured = statistic(rows)
    # A ratio may be infinite in a few of the draws.
    with np.errstate(invalid="ignore"):
        interval = interval_of(rows, statistic, draws=400)
    # Runs that all agree tell no more than that a share of 3 / n of others is unlikely (rule of three), which the
    # bootstrap can't see.
    if known.share and interval[0] == interval[1] in (0.0, 1.0):
        unseen = min(1.0, 3.0 / max(1, len(rows)))
        interval = (max(0.0, interval[0] - unseen), min(1.0, interval[1] + unseen))
    ok = known.agrees(measured, measured) if full else known.agrees(*interval)
    return Check(what, known.wanted, measured, bool(ok), known.published, interval, known.why)

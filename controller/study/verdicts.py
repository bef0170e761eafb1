"""Checks of figures: whether the interval of a figure lies inside a band, outside it, or neither."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

Interval = tuple[float, float]

_ROUNDING = 1e-9
"""Ends that differ by less, relative to each other, are equal."""


class Verdict(Enum):
    """What a check found."""

    MET = "met"
    MISSED = "missed"
    UNDECIDED = "undecided"


class Kind(Enum):
    """Where the wanted figure comes from."""

    PUBLISHED = "published"
    """A number or a statement of the publication."""
    REFERENCE = "reference"
    """Our own: an independent reproduction, a formula, or a target of HyRoads."""


@dataclass(frozen=True, slots=True)
class Band:
    """Figures from ``low`` to ``high``, with ``is_open`` without the ends; ``words`` says it."""

    low: float = -math.inf
    high: float = math.inf
    words: str = ""
    is_open: bool = False

    def verdict(self, interval: Interval) -> Verdict:
        """Met if the whole interval is inside the band, missed if the whole of it is outside, else undecided.

        An end that is NaN is unknown, so the check is undecided.
        """
        low, high = interval
        if math.isnan(low) or math.isnan(high):
            return Verdict.UNDECIDED
        if self._above_low(low) and self._below_high(high):
            return Verdict.MET
        if not self._above_low(high) or not self._below_high(low):
            return Verdict.MISSED
        return Verdict.UNDECIDED

    def _above_low(self, value: float) -> bool:
        if self.is_open:
            return value > self.low
        return value >= self.low or math.isclose(value, self.low, rel_tol=_ROUNDING, abs_tol=_ROUNDING)

    def _below_high(self, value: float) -> bool:
        if self.is_open:
            return value < self.high or math.isinf(self.high)
        return value <= self.high or math.isclose(value, self.high, rel_tol=_ROUNDING, abs_tol=_ROUNDING)


def about(value: float, tolerance: float = 0.05) -> Band:
    """Figures within a relative tolerance of ``value``, which is above 0."""
    return Band(value * (1.0 - tolerance), value * (1.0 + tolerance), f"{value:g} within {100.0 * tolerance:g} %")


def near(value: float, distance: float, words: str = "") -> Band:
    """Figures at most ``distance`` from ``value``."""
    return Band(value - distance, value + distance, words or f"{value:g} within {distance:g}")


def at_least(value: float, words: str = "") -> Band:
    """``value`` and all above it."""
    return Band(low=value, words=words or f"at least {value:g}")


def at_most(value: float, words: str = "") -> Band:
    """``value`` and all below it."""
    return Band(high=value, words=words or f"at most {value:g}")


def above(value: float, words: str = "") -> Band:
    """All above ``value``, without it."""
    return Band(low=value, words=words or f"above {value:g}", is_open=True)


@dataclass(frozen=True, slots=True)
class Check:
    """One figure against what is wanted of it.

    ``interval`` is the 95 % confidence interval of ``measured`` (``intervals.py``); None: the figure is exact, no
    random numbers are in it. ``measured`` is None where the figure does not exist or is infinite; then the interval
    alone decides. ``published`` is the figure as it was published, in words, ``why`` what is known of the reason where
    ours differs from it. Raises ``ValueError`` if the interval does not hold the figure.
    """

    what: str
    band: Band
    measured: float | int | None
    interval: Interval | None = None
    kind: Kind = Kind.REFERENCE
    published: str = ""
    why: str = ""

    def __post_init__(self) -> None:
        if self.measured is None or self.interval is None or any(map(math.isnan, self.interval)):
            return
        low, high = self.interval
        slack = _ROUNDING * max(1.0, abs(self.measured))
        if not low - slack <= self.measured <= high + slack:
            raise ValueError(f"{self.what}: the interval {low:g} to {high:g} does not hold {self.measured:g}")

    @property
    def wanted(self) -> str:
        """The band in words."""
        return self.band.words

    @property
    def verdict(self) -> Verdict:
        """What the check found."""
        if self.interval is not None:
            return self.band.verdict(self.interval)
        figure = math.nan if self.measured is None else float(self.measured)
        return self.band.verdict((figure, figure))


def count(checks: Sequence[Check], kind: Kind, verdict: Verdict) -> int:
    """How many checks of a kind have this verdict."""
    return sum(check.kind is kind and check.verdict is verdict for check in checks)


def summary(checks: Sequence[Check]) -> str:
    """One line: of published figures and of our own reference how many checks are met, missed and undecided."""
    parts = []
    for kind, name in ((Kind.PUBLISHED, "published"), (Kind.REFERENCE, "our reference")):
        total = sum(check.kind is kind for check in checks)
        met, missed, undecided = (count(checks, kind, verdict) for verdict in Verdict)
        if total:
            parts.append(f"{name}: {met} of {total} met, {missed} missed, {undecided} undecided")
    return "; ".join(parts) or "no checks"

"""Filters for noisy samples at irregular times: a median of the last few, then an exponential average.

The median (Tukey, "Exploratory Data Analysis", 1977) takes single outliers out; the average has a time constant, not
a constant weight, so that a missed sample changes nothing but the wait:

    w = 1 - exp(-dt / tau),   mean <- mean + w (m - mean),   var <- (1 - w) (var + w (m - mean)^2)

(West's recurrence for an exponentially weighted variance, CACM 22(9), 1979; Finch 2009). A step must not take several
tau to be believed. Two rules start the filter again from the last *raw* samples:

- a large one: the last ``jump_samples`` all lie on one side of the mean, each further away than ``jump_ratio`` of it
  and ``jump_sigma`` standard deviations;
- a small one: for k in ``step_samples``, the mean of the last k without their greatest and smallest is off by more than
  ``step_ratio`` of the mean and ``step_sigma`` standard errors, std / sqrt(k - 2), and the first two by half of that.

So the average can be long: with little noise even small steps are seen at once, with much noise nothing but the average
would help anyway.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from hyroads.controller.core.errors import HyroadsError

# The spread of the first samples is taken as it comes; from then on it is at least this share of the mean.
LEAST_SPREAD_SAMPLES = 5
LEAST_SPREAD = 0.01


class EstimateError(HyroadsError):
    """A measurement or a setting of an estimator is out of range."""


@dataclass(frozen=True, slots=True)
class FilterSettings:
    """``tau_s`` of the average, ``window`` samples of the median; when a step is believed (see the module)."""

    tau_s: float = 2.0
    window: int = 3
    jump_samples: int = 3
    jump_ratio: float = 0.2
    jump_sigma: float = 2.0
    step_samples: tuple[int, ...] = (5, 8)
    step_ratio: float = 0.04
    step_sigma: float = 5.0

    def __post_init__(self) -> None:
        if any(k < 3 for k in self.step_samples) or min(self.step_ratio, self.step_sigma) < 0:
            raise EstimateError("a filter needs step_samples of 3 or more, step_ratio and step_sigma of 0 or more")
        if not (self.tau_s > 0 and self.window >= 1 and self.jump_samples >= 1):
            raise EstimateError("a filter needs tau_s > 0, window >= 1 and jump_samples >= 1")
        if self.jump_ratio < 0 or self.jump_sigma < 0:
            raise EstimateError("jump_ratio and jump_sigma of a filter must be 0 or more")

    @property
    def samples_used(self) -> int:
        """How many raw samples are looked at."""
        return max(self.window, self.jump_samples, *self.step_samples, 1)


@dataclass(frozen=True, slots=True)
class Filtered:
    """State of a filter: ``mean``, ``variance`` of single samples, ``weight`` (sum of squared weights: 1 / effective
    number of samples), ``count`` since the last start, ``recent`` raw samples, and the time of the last one.
    """

    mean: float
    variance: float
    weight: float
    count: int
    recent: tuple[float, ...]
    time_s: float

    @property
    def standard_error(self) -> float:
        """Of the mean; 0 before there are two samples."""
        return math.sqrt(self.variance * self.weight)


class Quality(StrEnum):
    """How far an estimate may be trusted, best first. The last three always come with a reason."""

    GOOD = "good"
    UNSURE = "unsure"
    CONTRADICTORY = "contradictory"
    STALE = "stale"
    MISSING = "missing"

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
from statistics import median

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


def start(value: float, time_s: float) -> Filtered:
    """A filter that has seen one sample."""
    return Filtered(value, 0.0, 1.0, 1, (value,), time_s)


def update(state: Filtered | None, value: float, time_s: float, settings: FilterSettings) -> Filtered:
    """The state after one more sample; a sample that is not newer than the last one changes nothing."""
    if not math.isfinite(value):
        raise EstimateError(f"a sample must be a finite number, got {value}")
    if state is None:
        return start(value, time_s)
    if time_s <= state.time_s:
        return state
    recent = (*state.recent, value)[-settings.samples_used :]
    if _jumped(state, recent[-settings.jump_samples :], settings):
        last = recent[-settings.jump_samples :]
        return _again(state, median(last), last, time_s)
    for samples in settings.step_samples:
        if len(recent) >= samples and state.count >= 2 * samples and _stepped(state, recent[-samples:], settings):
            return _again(state, _inner_mean(recent[-samples:]), recent[-samples:], time_s)
    # The first samples are averaged with equal weights: an exponential average would hang on the very first one.
    share = max(1.0 - math.exp((state.time_s - time_s) / settings.tau_s), 1.0 / (state.count + 1))
    middle = median(recent[-settings.window :])
    mean = state.mean + share * (middle - state.mean)
    # The spread is that of raw samples, against the mean before: the median would hide it.
    variance = (1.0 - share) * (state.variance + share * _spread(state, value))
    weight = (1.0 - share) ** 2 * state.weight + share**2
    return Filtered(mean, variance, weight, state.count + 1, recent, time_s)


def _spread(state: Filtered, value: float) -> float:
    """The squared deviation of a sample, cut at two standard deviations: a step must not hide in its own noise."""
    squared = (value - state.mean) ** 2
    if state.count < 2 * LEAST_SPREAD_SAMPLES:
        return squared
    return min(squared, 4.0 * max(state.variance, (LEAST_SPREAD * state.mean) ** 2))


def _again(state: Filtered, level: float, of: tuple[float, ...], time_s: float) -> Filtered:
    """Starts anew from some samples, which are also all that later steps are looked for in."""
    return Filtered(level, state.variance, 1.0 / len(of), len(of), of, time_s)


def _inner_mean(values: tuple[float, ...]) -> float:
    """Without the greatest and the smallest, so that a single outlier is no step."""
    return (sum(values) - max(values) - min(values)) / (len(values) - 2)


def _stepped(state: Filtered, last: tuple[float, ...], settings: FilterSettings) -> bool:
    step = _inner_mean(last) - state.mean
    least = settings.step_sigma * math.sqrt(state.variance / (len(last) - 2))
    # Samples from before a large step would make a smaller one of it.
    begun = all((value - state.mean) * step > 0.5 * step**2 for value in last[:2])
    return begun and abs(step) > max(settings.step_ratio * abs(state.mean), least)


def _jumped(state: Filtered, last: tuple[float, ...], settings: FilterSettings) -> bool:
    if len(last) < settings.jump_samples or state.count < settings.jump_samples:
        return False
    least = max(settings.jump_ratio * abs(state.mean), settings.jump_sigma * math.sqrt(state.variance))
    return all(v - state.mean > least for v in last) or all(state.mean - v > least for v in last)


class Quality(StrEnum):
    """How far an estimate may be trusted, best first. The last three always come with a reason."""

    GOOD = "good"
    UNSURE = "unsure"
    CONTRADICTORY = "contradictory"
    STALE = "stale"
    MISSING = "missing"

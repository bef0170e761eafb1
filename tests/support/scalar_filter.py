"""One filter, sample by sample: the definition that the arrays of ``core.estimate.filter_bank`` are compared with."""

from __future__ import annotations

import math
from statistics import median

from hyroads.controller.core.estimate.filters import (
    LEAST_SPREAD,
    LEAST_SPREAD_SAMPLES,
    EstimateError,
    Filtered,
    FilterSettings,
)


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

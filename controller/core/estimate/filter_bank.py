"""Many filters of ``filters`` at once, as arrays: thousands of links have one for every source, each slot.

The compiled kernel (``native.filters``) does the same; what is here is the reference, and takes over without a library.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hyroads.controller.native.filters import Kernel, kernel

from .filters import LEAST_SPREAD, LEAST_SPREAD_SAMPLES, EstimateError, Filtered, FilterSettings

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class FilterBank:
    """N filters; the fields are those of ``Filtered``, shape N. ``count`` is 0 and ``time_s`` -inf before the first
    sample. ``recent[N, k]`` holds the last raw samples, the latest last, NaN where there is none.
    """

    mean: FloatArray
    variance: FloatArray
    weight: FloatArray
    count: NDArray[np.int64]
    recent: FloatArray
    time_s: FloatArray

    @staticmethod
    def empty(size: int, settings: FilterSettings) -> FilterBank:
        """Filters that have seen nothing."""
        zero, never = np.zeros(size), np.full(size, -np.inf)
        return FilterBank(
            zero, zero, zero, np.zeros(size, dtype=np.int64), np.full((size, settings.samples_used), np.nan), never
        )

    def at(self, index: int) -> Filtered | None:
        """One filter; None before its first sample."""
        if not self.count[index]:
            return None
        recent = self.recent[index]
        return Filtered(
            float(self.mean[index]),
            float(self.variance[index]),
            float(self.weight[index]),
            int(self.count[index]),
            tuple(recent[~np.isnan(recent)].tolist()),
            float(self.time_s[index]),
        )

    def updated(
        self, index: IndexArray, values: FloatArray, times_s: FloatArray, settings: FilterSettings
    ) -> FilterBank:
        """With samples in the order given, several for one filter allowed; shapes k, k, k.

        Raises :class:`EstimateError` if a sample is not finite, or of a filter that there is not.
        """
        if not np.isfinite(values).all():
            raise EstimateError("a sample must be a finite number")
        if np.any((index < 0) | (index >= len(self.mean))):
            raise EstimateError(f"a sample is of none of the {len(self.mean)} filters")
        arrays = {field.name: getattr(self, field.name).copy() for field in fields(self)}
        native = kernel()
        # Of a bank made for fewer samples the reference looks at those that there are.
        if native is not None and self.recent.shape[1] >= settings.samples_used:
            _update_native(native, arrays, index, values, times_s, settings=settings)
        else:
            for part in _rounds(index):
                _update(arrays, index[part], values[part], times_s[part], settings)
        return FilterBank(**arrays)


def _update_native(
    native: Kernel,
    arrays: Mapping[str, NDArray[Any]],
    index: IndexArray,
    values: FloatArray,
    times_s: FloatArray,
    *,
    settings: FilterSettings,
) -> None:
    """All samples, in place; :class:`EstimateError` if the kernel refuses them."""
    try:
        native.update(
            {
                **arrays,
                "recent": arrays["recent"].reshape(-1),
                "index": np.ascontiguousarray(index, dtype=np.int64),
                "values": np.ascontiguousarray(values, dtype=np.float64),
                "times_s": np.ascontiguousarray(times_s, dtype=np.float64),
                "step_samples": np.array(settings.step_samples, dtype=np.uint64),
            },
            columns=arrays["recent"].shape[1],
            window=settings.window,
            jump_samples=settings.jump_samples,
            tau_s=settings.tau_s,
            jump_ratio=settings.jump_ratio,
            jump_sigma=settings.jump_sigma,
            step_ratio=settings.step_ratio,
            step_sigma=settings.step_sigma,
        )
    except ValueError as error:
        raise EstimateError(str(error)) from error


def _rounds(index: IndexArray) -> Iterator[IndexArray | slice]:
    """Positions to process one after the other, such that no filter is twice in one round."""
    unique, position, count = np.unique(index, return_inverse=True, return_counts=True)
    if len(unique) == len(index):
        yield slice(None)
        return
    order = np.argsort(position, kind="stable")
    starts = np.repeat(np.cumsum(count) - count, count)
    turn = np.empty(len(index), dtype=np.intp)
    turn[order] = np.arange(len(index)) - starts
    for number in range(int(count.max())):
        yield np.flatnonzero(turn == number)


def _update(
    arrays: dict[str, NDArray[Any]],
    index: IndexArray,
    values: FloatArray,
    times_s: FloatArray,
    settings: FilterSettings,
) -> None:
    """One sample each of different filters (see ``filters``), in place."""
    newer = times_s > arrays["time_s"][index]
    if not newer.all():
        index, values, times_s = index[newer], values[newer], times_s[newer]
    mean, variance, weight = (arrays[name][index].astype(float) for name in ("mean", "variance", "weight"))
    count, before_s = arrays["count"][index].astype(np.int64), arrays["time_s"][index].astype(float)
    recent = np.concatenate([arrays["recent"][index, 1:], values[:, None]], axis=1).astype(float)
    # At the first sample the share is 1 / (0 + 1), which gives the sample itself without spread and of weight 1.
    share = np.maximum(-np.expm1((before_s - times_s) / settings.tau_s), 1.0 / (count + 1))
    after = mean + share * (_median(recent[:, -settings.window :]) - mean)
    # The spread is that of raw samples, against the mean before: the median would hide it.
    spread = (1.0 - share) * (variance + share * _spread(mean, variance, count, values))
    weight = (1.0 - share) ** 2 * weight + share**2
    again, level = _again(mean, variance, count, recent, settings)
    starts = again > 0
    places = np.arange(recent.shape[1])[::-1]
    arrays["mean"][index] = np.where(starts, level, after)
    arrays["variance"][index] = np.where(starts, variance, spread)
    arrays["weight"][index] = np.where(starts, 1.0 / np.maximum(again, 1), weight)
    arrays["count"][index] = np.where(starts, again, count + 1)
    arrays["recent"][index] = np.where(starts[:, None] & (places >= again[:, None]), np.nan, recent)
    arrays["time_s"][index] = times_s


def _spread(mean: FloatArray, variance: FloatArray, count: NDArray[np.int64], values: FloatArray) -> FloatArray:
    """Squared deviations, cut at two standard deviations: a step must not hide in the noise that it seems to make."""
    squared = np.where(count > 0, values - mean, 0.0) ** 2
    most = 4.0 * np.maximum(variance, (LEAST_SPREAD * mean) ** 2)
    return np.where(count < 2 * LEAST_SPREAD_SAMPLES, squared, np.minimum(squared, most))


def _again(
    mean: FloatArray, variance: FloatArray, count: NDArray[np.int64], recent: FloatArray, settings: FilterSettings
) -> tuple[NDArray[np.int64], FloatArray]:
    """From how many samples a filter starts again, 0 if it does not, and where."""
    jumped, level = _jumped(mean, variance, count, recent[:, -settings.jump_samples :], settings)
    again = np.where(jumped, settings.jump_samples, 0).astype(np.int64)
    for samples in settings.step_samples:
        stepped, at = _stepped(mean, variance, recent[:, -samples:], settings)
        first = stepped & (again == 0) & (count >= 2 * samples)
        again, level = np.where(first, samples, again), np.where(first, at, level)
    return again, level


def _stepped(
    mean: FloatArray, variance: FloatArray, last: FloatArray, settings: FilterSettings
) -> tuple[NDArray[np.bool_], FloatArray]:
    """Which filters are off by a small step, and where they should be; NaN compares as false."""
    inner = last.shape[1] - 2
    level = (last.sum(axis=1) - last.max(axis=1) - last.min(axis=1)) / inner
    step = level - mean
    least = np.maximum(settings.step_ratio * np.abs(mean), settings.step_sigma * np.sqrt(variance / inner))
    # Samples from before a large step would make a smaller one of it.
    begun = np.all((last[:, :2] - mean[:, None]) * step[:, None] > 0.5 * step[:, None] ** 2, axis=1)
    return begun & (np.abs(step) > least), level


def _jumped(
    mean: FloatArray, variance: FloatArray, count: NDArray[np.int64], last: FloatArray, settings: FilterSettings
) -> tuple[NDArray[np.bool_], FloatArray]:
    """Which filters start again, and where."""
    least = np.maximum(settings.jump_ratio * np.abs(mean), settings.jump_sigma * np.sqrt(variance))
    apart = last - mean[:, None]
    # NaN compares as false: with fewer samples than it takes there is no jump.
    one_side = np.all(apart > least[:, None], axis=1) | np.all(-apart > least[:, None], axis=1)
    jumped = one_side & (count >= settings.jump_samples)
    return jumped, np.where(jumped, _median(last), 0.0)


def _median(samples: FloatArray) -> FloatArray:
    """Of every row, NaN left out; every row has a number."""
    known = np.count_nonzero(~np.isnan(samples), axis=1)
    ordered = np.sort(samples, axis=1)  # NaN last
    rows = np.arange(len(samples))
    return np.asarray(0.5 * (ordered[rows, (known - 1) // 2] + ordered[rows, known // 2]))

"""95 % confidence intervals. Each of them holds the figure that it is of, and is wider the fewer runs there are."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from .verdicts import Interval

FloatArray = NDArray[np.float64]

LEAST_ROWS = 6
"""Fewer independent results have no interval, unless it is of a share or of a mean: with fewer than six even the least
and the greatest do not hold the median between them in 95 % of cases."""
NO_INTERVAL: Interval = (-math.inf, math.inf)
_CONFIDENCE = 0.95
_DRAWN_AT_ONCE = 500_000


def interval_of(
    values: FloatArray,
    statistic: Callable[[FloatArray], float] | None = None,
    *,
    seed: int = 1,
    draws: int = 1000,
) -> Interval:
    """95 % confidence interval of a statistic by the bootstrap (Efron, Annals of Statistics 7, 1979).

    ``values`` are independent results, float64[n] or float64[n, k]: rows are drawn with replacement ``draws`` times,
    and ``statistic`` is evaluated for each draw; without one it is the mean, and all draws are taken at once. The
    distance of each percentile from the figure is widened for few rows, so that the interval of a mean is Student's.
    The interval always holds the figure of ``values`` themselves: where the percentiles do not, as with a figure that
    is biased by the draws, the nearer end is moved there, which only makes the interval wider. Below ``LEAST_ROWS``
    rows (of a mean: below two, or if all are equal) it is the whole line; without values both ends are NaN. The same
    seed gives the same interval.
    """
    count = len(values)
    if not count:
        return (math.nan, math.nan)
    figure = float(values.reshape(count, -1).mean()) if statistic is None else float(statistic(values))
    if math.isnan(figure):
        return (math.nan, math.nan)
    if count < LEAST_ROWS and (count < 2 or statistic is not None or bool((values == values[0]).all())):
        return NO_INTERVAL
    found = _drawn(values, statistic, seed, draws)
    # A draw without a figure may be anything. Infinite draws can't be interpolated, so the ends are draws.
    tail = (1.0 - _CONFIDENCE) / 2.0
    low = float(np.quantile(np.where(np.isnan(found), -math.inf, found), tail, method="lower"))
    high = float(np.quantile(np.where(np.isnan(found), math.inf, found), 1.0 - tail, method="higher"))
    factor = _student(count) / 1.96 * math.sqrt(count / (count - 1))
    return (_moved(figure, min(low, figure), factor), _moved(figure, max(high, figure), factor))


def _drawn(values: FloatArray, statistic: Callable[[FloatArray], float] | None, seed: int, draws: int) -> FloatArray:
    rng, count = np.random.default_rng(seed), len(values)
    if statistic is not None:
        return np.array([statistic(values[rng.integers(0, count, count)]) for _ in range(draws)], dtype=np.float64)
    rows = values.reshape(count, -1).mean(axis=1)
    # As many draws at once as fit into a few megabytes.
    each = max(1, _DRAWN_AT_ONCE // count)
    sizes = [min(each, draws - first) for first in range(0, draws, each)]
    return np.concatenate([rows[rng.integers(0, count, (size, count))].mean(axis=1) for size in sizes])


def _moved(figure: float, end: float, factor: float) -> float:
    """An end, by a factor further from the figure."""
    return end if math.isinf(end) or math.isinf(figure) else figure + factor * (end - figure)


def _student(count: int) -> float:
    """The quantile of Student's t of a 95 % interval from ``count`` values, two or more."""
    # The import takes a while, and not every study needs the library.
    from scipy.special import stdtrit

    return float(stdtrit(count - 1, (1.0 + _CONFIDENCE) / 2.0))


def interval_of_share(hits: int, count: int) -> Interval:
    """95 % confidence interval of a share, ``hits`` of ``count`` (Clopper and Pearson 1934); 0 to 1 if there is none.

    It is exact for independent runs, also where none or all of them are hits.
    """
    from scipy.special import betaincinv

    tail = (1.0 - _CONFIDENCE) / 2.0
    low = 0.0 if hits == 0 else float(betaincinv(hits, count - hits + 1, tail))
    high = 1.0 if hits == count else float(betaincinv(hits + 1, count - hits, 1.0 - tail))
    return (low, high)


def interval_of_mean(values: FloatArray) -> Interval:
    """95 % confidence interval of the mean of independent values (Student's t); the whole line for fewer than two."""
    if len(values) < 2:
        return NO_INTERVAL
    mean = float(values.mean())
    half = _student(len(values)) * float(values.std(ddof=1)) / math.sqrt(len(values))
    return (mean - half, mean + half)


def interval_of_passage(
    curve: FloatArray, parts: FloatArray, passage: Callable[[FloatArray], float | int | None]
) -> Interval:
    """95 % confidence interval of the first index at which a mean curve passes a level; what is None is infinite.

    ``curve``, float64[n], is the mean over independent ``parts``, float64[parts, n]. ``passage`` of a curve that is
    higher everywhere is never later. So the ends are the passages of the upper and of the lower end of the intervals of
    all points (Student's t), and the passage of the curve itself is between them. A bootstrap of passages would not
    hold it: drawn curves are noisier, and noise passes a level sooner. Fewer than ``LEAST_ROWS`` parts: 0 to infinity.
    """
    if len(parts) < LEAST_ROWS:
        return (0.0, math.inf)
    half = _student(len(parts)) * parts.std(axis=0, ddof=1) / math.sqrt(len(parts))
    low, high = (passage(each) for each in (curve + half, curve - half))
    return (math.inf if low is None else float(low), math.inf if high is None else float(high))

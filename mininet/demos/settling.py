"""When a network has settled: from which moment on all rates stay near what they should be. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

TOLERANCE = 0.05


def time_to_reach(
    times_s: FloatArray,
    values: Mapping[str, FloatArray],
    targets: Mapping[str, float],
    *,
    since_s: float,
    until_s: float,
    tolerance: float = TOLERANCE,
) -> float:
    """Seconds from ``since_s`` to the first sample from which on every value is within ``tolerance`` of its target
    until ``until_s``; infinite if the last one is not, or if there is none."""
    inside = (times_s >= since_s) & (times_s <= until_s)
    times_s = times_s[inside]
    if not len(times_s):
        return float("inf")
    good = np.ones(len(times_s), dtype=bool)
    for name, target in targets.items():
        good &= np.abs(values[name][inside] - target) <= tolerance * target
    wrong = np.flatnonzero(~good)
    first = int(wrong[-1]) + 1 if len(wrong) else 0
    return float(times_s[first] - since_s) if first < len(times_s) else float("inf")


def windowed_mbps(times_s: Sequence[float], counts: Sequence[int], window_s: float) -> FloatArray:
    """Mean rate in Mb/s over the ``window_s`` before each sample, from a counter of bytes; 0 at first.

    A counter that falls was set to zero in between: what it shows then is what came since.
    """
    times, total = np.asarray(times_s, dtype=float), _total(counts)
    before = np.maximum(times - window_s, times[0] if len(times) else 0.0)
    span_s = times - before
    moved = total - np.interp(before, times, total) if len(times) else total
    return np.asarray(np.divide(moved * 8e-6, span_s, out=np.zeros_like(total), where=span_s > 0))


def moved_bytes(times_s: Sequence[float], counts: Sequence[int], from_s: float, to_s: float) -> float:
    """What a counter of bytes counted in a span, whenever in it somebody looked."""
    # A recording that goes on may have one moment more than values.
    known = min(len(times_s), len(counts))
    if not known:
        return 0.0
    times_s, counts = times_s[:known], counts[:known]
    at_from, at_to = np.interp([from_s, to_s], np.asarray(times_s, dtype=float), _total(counts)).tolist()
    return float(at_to - at_from)


def _total(counts: Sequence[int]) -> FloatArray:
    """What has come since the first sample, by sample."""
    raw = np.asarray(counts, dtype=float)
    steps = np.diff(raw, prepend=raw[:1])
    return np.asarray(np.cumsum(np.where(steps < 0, raw, steps)))

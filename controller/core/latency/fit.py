"""Two-state fit of a measured link rate: what :class:`TwoStateQueue` needs, from samples.

The rate is taken for a two-state Markov chain seen through Gaussian noise with outliers (a hidden Markov model;
Rabiner, "A tutorial on hidden Markov models", Proc. IEEE 77(2), 1989). Expectation-maximisation from a two-means
threshold gives both rates and the probabilities p_hl, p_lh of a change per sampling interval dt; in continuous time

    alpha = -ln(1 - p_hl - p_lh) / dt,   alpha_h = alpha p_hl / (p_hl + p_lh),   alpha_l = alpha - alpha_h.

A trace that one state explains as well (Bayesian information criterion) gives constant service. What changes within a
sampling interval is invisible: sample several times per sojourn.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .two_state_queue import LatencyError, TwoStateQueue

FloatArray = NDArray[np.float64]

MIN_SAMPLES = 8
# A sample in so many may be anything; without this a single outlier would become a state of its own.
_OUTLIER_SHARE = 0.02
# Longer gaps are cut to so many intervals: the state is forgotten by then.
_LONGEST_GAP = 50
_STEPS = 100
_CONVERGED = 1e-6
# Noise below this share of the median rate is rounding.
_LEAST_NOISE = 1e-3
# Changes added to those seen, half in either direction, so that a state that was never left gets a finite sojourn.
_PRIOR_CHANGES = 0.5
_FASTEST = 0.99


@dataclass(frozen=True, slots=True)
class RateModel:
    """Rates and noise of the states, and the probability of a change per interval: h to l, l to h."""

    high: float
    low: float
    noise: float
    fall: float
    climb: float


@dataclass(frozen=True, slots=True)
class RateFit:
    """``states`` is 1 or 2; ``noise`` the standard deviation of a sample around its state's rate, packets/s.

    ``model`` is what the next fit of the same trace may begin with.
    """

    queue: TwoStateQueue
    states: int
    noise: float
    samples: int
    model: RateModel


def packets_per_s(rate_mbps: float, packet_bytes: float) -> float:
    """Packets/s of ``packet_bytes`` bytes of L2 payload on a link of ``rate_mbps``."""
    if not packet_bytes > 0:
        raise LatencyError(f"packet_bytes {packet_bytes:g}: expected more than 0")
    return rate_mbps * 1e6 / (8.0 * packet_bytes)


def fit_rates(
    times_s: Sequence[float], rates: Sequence[float], *, begin: RateModel | None = None, steps: int = _STEPS
) -> RateFit:
    """Fit samples of a service rate (packets/s) taken at increasing times (s).

    A rate that is not finite is a missing sample. Who fits a growing trace again and again gives the last ``model`` as
    ``begin``, which counts if it explains the trace better than a cold start; then a few ``steps`` are enough.
    :class:`LatencyError` if times don't increase, a rate is negative, or there are fewer than 8 samples or no positive
    ones.
    """
    grid, interval_s = _on_grid(np.asarray(times_s, dtype=float), np.asarray(rates, dtype=float))
    seen = grid[np.isfinite(grid)]
    if len(seen) < MIN_SAMPLES:
        raise LatencyError(f"{len(seen)} samples of a link's rate: expected {MIN_SAMPLES} or more")
    middle = float(np.median(seen))
    floor = _LEAST_NOISE * max(middle, float(seen.max()) * _LEAST_NOISE)
    if floor == 0:
        raise LatencyError("a link's rate is 0 throughout: there is nothing to fit")
    outlier = _OUTLIER_SHARE / max(float(np.ptp(seen)), floor)
    one_noise, one_likelihood = _one_state(seen, middle, floor, outlier)
    model, likelihood = _train(grid, _better(grid, _start(seen, floor), begin, outlier), floor, outlier, steps)
    # Three more parameters: a rate and two probabilities.
    two = 2.0 * (likelihood - one_likelihood) > 3.0 * math.log(len(seen)) and model.high - model.low > model.noise
    if not two:
        return RateFit(TwoStateQueue.constant(max(middle, floor)), 1, one_noise, len(seen), model)
    changing = min(model.fall + model.climb, _FASTEST)
    alpha = -math.log1p(-changing) / interval_s
    alpha_h = alpha * model.fall / (model.fall + model.climb)
    queue = TwoStateQueue(model.high, max(model.low, 0.0), alpha_h, alpha - alpha_h)
    return RateFit(queue, 2, model.noise, len(seen), model)


def _on_grid(times_s: FloatArray, rates: FloatArray) -> tuple[FloatArray, float]:
    """Samples at equal intervals, NaN where there is none; and the interval in seconds."""
    if times_s.ndim != 1 or times_s.shape != rates.shape:
        raise LatencyError("a trace of rates needs as many times as rates")
    steps = np.diff(times_s)
    if not (np.all(np.isfinite(times_s)) and np.all(steps > 0)):
        raise LatencyError("the times of a trace of rates must increase")
    if np.any(rates < 0):
        raise LatencyError("a rate in a trace is negative")
    if len(times_s) < MIN_SAMPLES:
        raise LatencyError(f"{len(times_s)} samples of a link's rate: expected {MIN_SAMPLES} or more")
    interval_s = float(np.median(steps))
    slots = np.clip(np.rint(steps / interval_s), 1, _LONGEST_GAP).astype(int)
    grid = np.full(1 + int(slots.sum()), np.nan)
    grid[np.concatenate(([0], np.cumsum(slots)))] = np.where(np.isfinite(rates), rates, np.nan)
    return grid, interval_s


def _one_state(seen: FloatArray, middle: float, floor: float, outlier: float) -> tuple[float, float]:
    """Noise and log likelihood if the rate is constant."""
    noise = max(1.4826 * float(np.median(np.abs(seen - middle))), floor)
    for _ in range(20):
        regular = _density(seen, middle, noise)
        weight = regular / (regular + outlier)
        noise = max(math.sqrt(float(weight @ (seen - middle) ** 2) / max(float(weight.sum()), 1.0)), floor)
    return noise, float(np.log(_density(seen, middle, noise) + outlier).sum())


def _start(seen: FloatArray, floor: float) -> RateModel:
    """Two means between the 2nd and the 98th percentile."""
    low, high = (float(q) for q in np.quantile(seen, (0.02, 0.98)))
    values = np.clip(seen, low, high)
    for _ in range(50):
        above = values > 0.5 * (low + high)
        if not above.any() or above.all():
            break
        low, high = float(np.median(values[~above])), float(np.median(values[above]))
    nearest = np.where(values > 0.5 * (low + high), high, low)
    return RateModel(high, low, max(float(np.std(values - nearest)), floor), 0.1, 0.1)


def _density(values: FloatArray, mean: float, noise: float) -> FloatArray:
    scale = (1.0 - _OUTLIER_SHARE) / (noise * math.sqrt(2.0 * math.pi))
    density: FloatArray = scale * np.exp(-0.5 * ((values - mean) / noise) ** 2)
    return density


def _better(grid: FloatArray, cold: RateModel, begin: RateModel | None, outlier: float) -> RateModel:
    """The one of two models that explains the trace better."""
    if begin is None:
        return cold
    missing = np.isnan(grid)
    values = np.where(missing, 0.0, grid)
    return max(begin, cold, key=lambda m: _forward_backward(_emission(_regular(values, m), missing, outlier), m)[3])


def _regular(values: FloatArray, model: RateModel) -> FloatArray:
    """Density of every sample in either state, shape 2 x samples; outliers not counted."""
    return np.stack([_density(values, model.high, model.noise), _density(values, model.low, model.noise)])


def _emission(regular: FloatArray, missing: NDArray[np.bool_], outlier: float) -> FloatArray:
    return np.where(missing, 1.0, regular + outlier)


def _train(grid: FloatArray, model: RateModel, floor: float, outlier: float, steps: int) -> tuple[RateModel, float]:
    """Expectation-maximisation; the last model and its log likelihood."""
    missing = np.isnan(grid)
    values = np.where(missing, 0.0, grid)
    before = -math.inf
    for _ in range(steps):
        regular = _regular(values, model)
        emission = _emission(regular, missing, outlier)
        in_high, falls, climbs, likelihood = _forward_backward(emission, model)
        if likelihood - before < _CONVERGED * abs(likelihood):
            return model, likelihood
        before = likelihood
        weight = np.where(missing, 0.0, regular / (regular + outlier)) * np.stack([in_high, 1.0 - in_high])
        model = _maximised(model, values, weight, floor)
        high_steps, low_steps = float(in_high[:-1].sum()), float((1.0 - in_high[:-1]).sum())
        fall = (falls + _PRIOR_CHANGES) / (high_steps + 2.0 * _PRIOR_CHANGES)
        climb = (climbs + _PRIOR_CHANGES) / (low_steps + 2.0 * _PRIOR_CHANGES)
        model = replace(model, fall=fall, climb=climb)
    return model, before


def _maximised(model: RateModel, values: FloatArray, weight: FloatArray, floor: float) -> RateModel:
    """Rates and noise that explain the samples best; ``weight`` has shape 2 x samples."""
    mass = weight.sum(axis=1)
    means = [
        float(weight[i] @ values / mass[i]) if mass[i] > 0 else old for i, old in enumerate((model.high, model.low))
    ]
    squares = sum(float(weight[i] @ (values - means[i]) ** 2) for i in range(2))
    noise = max(math.sqrt(squares / max(float(mass.sum()), 1.0)), floor)
    return replace(model, high=means[0], low=means[1], noise=noise)


def _forward_backward(emission: FloatArray, model: RateModel) -> tuple[FloatArray, float, float, float]:
    """P(state h) per sample, expected changes h to l and l to h, log likelihood; ``emission`` has shape 2 x samples."""
    fall, climb = model.fall, model.climb
    rows: list[tuple[float, float]] = list(zip(*emission.tolist(), strict=True))
    share = climb / (fall + climb)
    forward: list[tuple[float, float]] = []
    likelihood = 0.0
    high, low = share, 1.0 - share
    for seen_high, seen_low in rows:
        high, low = high * seen_high, low * seen_low
        total = high + low
        likelihood += math.log(total)
        high, low = high / total, low / total
        forward.append((high, low))
        high, low = high * (1.0 - fall) + low * climb, high * fall + low * (1.0 - climb)
    in_high, falls, climbs = [forward[-1][0]], 0.0, 0.0
    back_high = back_low = 1.0
    # A sample's state with the next sample, from the end.
    for (high, low), (seen_high, seen_low) in zip(reversed(forward[:-1]), reversed(rows[1:]), strict=True):
        to_high, to_low = seen_high * back_high, seen_low * back_low
        back_high = (1.0 - fall) * to_high + fall * to_low
        back_low = climb * to_high + (1.0 - climb) * to_low
        total = high * back_high + low * back_low
        falls += high * fall * to_low / total
        climbs += low * climb * to_high / total
        in_high.append(high * back_high / total)
        back_high, back_low = back_high / total, back_low / total
    return np.array(in_high[::-1]), falls, climbs, likelihood


# Some ten sojourns of a few seconds each; what happened longer ago says little of what comes.
WINDOW_S = 60.0
# The next fit begins where the last one ended, so a few steps are enough and none takes long.
STEPS_AT_A_TIME = 4


class RateTrace:
    """Samples of a path's rate in Mb/s, and the last fit of them, in which "packets" are megabits."""

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self.fit: RateFit | None = None
        self.fitted_s = -float("inf")
        self._window_s = window_s
        self._samples: deque[tuple[float, float]] = deque()

    def __len__(self) -> int:
        return len(self._samples)

    def add(self, now_s: float, rate_mbps: float) -> None:
        """One sample, later than the one before it."""
        self._samples.append((now_s, rate_mbps))
        while now_s - self._samples[0][0] > self._window_s:
            self._samples.popleft()

    def refit(self, now_s: float) -> None:
        """Fits what there is, if it is enough."""
        self.fitted_s = now_s
        if len(self._samples) < MIN_SAMPLES:
            return
        times_s, rates = zip(*self._samples, strict=True)
        begin = self.fit.model if self.fit else None
        try:
            self.fit = fit_rates(times_s, rates, begin=begin, steps=STEPS_AT_A_TIME)
        except LatencyError:
            # Nothing but zeros: there is no rate to speak of.
            self.fit = None


def scaled(queue: TwoStateQueue, factor: float) -> TwoStateQueue:
    """The same sojourns at rates multiplied by ``factor``: another unit, or a share of the time."""
    return TwoStateQueue(queue.mu_h * factor, queue.mu_l * factor, queue.alpha_h, queue.alpha_l)

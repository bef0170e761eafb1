"""The measured rate of a path over the last minute, and the two-state queue that it is. Pure: times are arguments."""

from __future__ import annotations

from collections import deque

from hyroads.controller.core.latency.fit import MIN_SAMPLES, RateFit, fit_rates
from hyroads.controller.core.latency.two_state_queue import LatencyError, TwoStateQueue

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

"""A token bucket: so many events a second in the long run, so many at once. Pure: time is an argument, in seconds."""

from __future__ import annotations

import math


class TokenBucket:
    """Holds at most ``burst`` tokens, is full at first, and gains ``rate_per_s`` tokens a second. An event takes one.

    At rate 0 the burst should be 0, too: then no event is ever allowed.
    """

    def __init__(self, rate_per_s: float, burst: float) -> None:
        self.rate_per_s = rate_per_s
        self.burst = burst
        self._tokens = burst
        self._filled_s = math.inf

    def take(self, now_s: float) -> bool:
        """Take a token if there is one."""
        if self.wait_s(now_s) > 0:
            return False
        self._tokens -= 1
        return True

    def spend(self, count: float = 1) -> None:
        """Take tokens that may not be there yet: the debt delays what comes next."""
        self._tokens -= count

    def reserve_s(self, now_s: float) -> float:
        """Take a token in any case; how long to wait until it is there."""
        self._fill(now_s)
        self._tokens -= 1
        return max(0.0, -self._tokens / self.rate_per_s)

    def wait_s(self, now_s: float) -> float:
        """How long until there is a token; infinite at rate 0. A debt beyond ``burst`` is forgiven."""
        self._fill(now_s)
        if self._tokens >= 1 - 1e-9:
            return 0.0
        self._tokens = max(self._tokens, -self.burst)
        return (1 - self._tokens) / self.rate_per_s if self.rate_per_s else float("inf")

    def _fill(self, now_s: float) -> None:
        if self._filled_s < math.inf:
            elapsed_s = max(0.0, now_s - self._filled_s)
            self._tokens = min(self.burst, self._tokens + elapsed_s * self.rate_per_s)
            self._filled_s = max(now_s, self._filled_s)
        else:
            self._filled_s = now_s

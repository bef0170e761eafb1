"""How much of the control channel and of the tables a slice may use. Time is an argument, in seconds."""

from __future__ import annotations


class TokenBucket:
    """At most ``rate_per_s`` on average and ``burst`` at once."""

    def __init__(self, rate_per_s: float, burst: float | None = None) -> None:
        self.rate_per_s = rate_per_s
        self.burst = max(1.0, rate_per_s / 10 if burst is None else burst) if rate_per_s else 0.0
        self._tokens = self.burst
        self._then_s: float | None = None

    def take(self, now_s: float) -> bool:
        """Whether one more is allowed now."""
        if self.wait_s(now_s) > 0:
            return False
        self._tokens -= 1
        return True

    def spend(self, count: int) -> None:
        """What was let through; the debt delays what comes next."""
        self._tokens -= count

    def wait_s(self, now_s: float) -> float:
        """How long until one more is allowed: back-pressure stops reading for that time. Infinite at rate 0."""
        if self._then_s is not None:
            elapsed = max(0.0, now_s - self._then_s)
            self._tokens = min(self.burst, self._tokens + elapsed * self.rate_per_s)
        self._then_s = now_s if self._then_s is None else max(now_s, self._then_s)
        if self._tokens >= 1 - 1e-9:
            return 0.0
        # Whoever asked for one big answer may have a debt; it is never paid off by silence of minutes.
        self._tokens = max(self._tokens, -self.burst)
        return (1 - self._tokens) / self.rate_per_s if self.rate_per_s else float("inf")


class EntryQuota:
    """Flow entries of a slice on a switch: what the switch counted last, and what was added since.

    Timeouts and overwriting adds are not seen between two counts, so the quota errs on the strict side, until the
    next count.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._counted = 0
        self._added = 0

    @property
    def used(self) -> int:
        """How many the slice may have at most by now."""
        return self._counted + self._added

    @property
    def added(self) -> int:
        """How many were added since the last count."""
        return self._added

    def counted(self, active: int, added_since_request: int = 0) -> None:
        """The switch says how many entries the slice's tables have; adds sent after the question still count."""
        self._counted = active
        self._added = added_since_request

    def add(self) -> bool:
        """Whether one more entry is allowed."""
        if self.used >= self.most:
            return False
        self._added += 1
        return True

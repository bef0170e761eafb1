"""A token bucket: so many events a second in the long run, so many at once. Pure: time is an argument, in seconds."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass


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


MAX_BUCKETS = 1024


@dataclass(frozen=True, slots=True)
class Limit:
    """Requests a second in the long run, and how many at once."""

    per_s: float
    burst: float


class Buckets:
    """Token buckets by name, of bounded number: those that were not used for longest are forgotten, being full."""

    def __init__(self, limit: Limit) -> None:
        self._limit = limit
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def take(self, name: str, now_s: float) -> float:
        """Take one request out; 0, or how many seconds to wait until there is one."""
        bucket = self._buckets.pop(name, None) or TokenBucket(self._limit.per_s, self._limit.burst)
        self._buckets[name] = bucket
        if len(self._buckets) > MAX_BUCKETS:
            self._buckets.popitem(last=False)
        return 0.0 if bucket.take(now_s) else bucket.wait_s(now_s)


class LimitedReports:
    """Passes reports of (where, what) on to ``tell``, as many as a token bucket allows. The next one that passes says
    how many did not: whoever gives cause for many must not hide what others give cause for.
    """

    def __init__(self, tell: Callable[[str, str], None], clock: Callable[[], float], bucket: TokenBucket) -> None:
        self._tell, self._clock, self._bucket = tell, clock, bucket
        self._left_out = 0

    def __call__(self, where: str, what: str) -> None:
        """Tell, or count."""
        if not self._bucket.take(self._clock()):
            self._left_out += 1
            return
        left_out, self._left_out = self._left_out, 0
        self._tell(where, f"{what} ({left_out} more before)" if left_out else what)

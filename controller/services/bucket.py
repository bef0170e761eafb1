"""A bound on how often something happens."""

from __future__ import annotations

from collections.abc import Callable


class Bucket:
    """``per_s`` on average, ``burst`` at once."""

    def __init__(self, per_s: float, burst: float, clock: Callable[[], float]) -> None:
        self._per_s, self._burst, self._clock = per_s, burst, clock
        self._left, self._filled_s = burst, clock()

    def wait_s(self) -> float:
        """Takes one; how long to wait first."""
        now_s = self._clock()
        self._left = min(self._burst, self._left + (now_s - self._filled_s) * self._per_s) - 1.0
        self._filled_s = now_s
        return max(0.0, -self._left / self._per_s)

    def has(self) -> bool:
        """Takes one if there is one."""
        if self.wait_s() > 0.0:
            self._left += 1.0
            return False
        return True

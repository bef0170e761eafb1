"""Keeps hostile peers from filling the disk: warnings beyond a burst are counted instead of written."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

BURST = 100
PER_SECOND = 5.0


class WarningLimit(logging.Filter):
    """A token bucket for records of level WARNING; the next one that passes tells how many did not."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._tokens, self._filled_s, self._left_out = float(BURST), clock(), 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is written."""
        if record.levelno != logging.WARNING:
            return True
        now_s = self._clock()
        self._tokens = min(float(BURST), self._tokens + (now_s - self._filled_s) * PER_SECOND)
        self._filled_s = now_s
        if self._tokens < 1:
            self._left_out += 1
            return False
        self._tokens -= 1
        if self._left_out:
            record.msg, record.args = f"{record.getMessage()} ({self._left_out} warnings before were left out)", None
            self._left_out = 0
        return True

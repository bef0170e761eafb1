"""Waiting for confirmations: the one loop for all who wait for one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

LOOK_EVERY_S = 0.1


class Waits(Protocol):
    """What can be waited with."""

    def wait(self, timeout_s: float) -> object:
        """Let others run until something was confirmed, or the time is over."""


def wait_until(done: Callable[[], bool], within_s: float, clock: Callable[[], float], office: Waits) -> bool:
    """Whether something became so in time. It is looked at first, and whenever something was confirmed."""
    until_s = clock() + within_s
    while not done():
        left_s = until_s - clock()
        if left_s <= 0:
            return False
        office.wait(min(left_s, LOOK_EVERY_S))
    return True

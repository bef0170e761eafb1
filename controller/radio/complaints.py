"""Complaints on stderr, each at most once in ten seconds: a radio that fails, fails ten times a second."""

from __future__ import annotations

import sys
import threading
import time

EVERY_S = 10.0
MAX_KNOWN = 256


class Complaints:
    """Callable with a complaint, from any thread."""

    def __init__(self, program: str) -> None:
        self._program = program
        self._lock = threading.Lock()
        self._until_s: dict[str, float] = {}

    def __call__(self, what: str) -> None:
        """Says it, unless it was said just now."""
        now_s = time.monotonic()
        with self._lock:
            if now_s < self._until_s.get(what, 0.0):
                return
            if len(self._until_s) >= MAX_KNOWN:
                self._until_s.clear()
            self._until_s[what] = now_s + EVERY_S
        print(f"{self._program}: {what}", file=sys.stderr, flush=True)

"""Differences of counters that wrap and restart. Pure."""

from __future__ import annotations

COUNTER64 = 1 << 64
COUNTER32 = 1 << 32


def difference(before: int, now: int, *, modulus: int = COUNTER64, most: float | None = None) -> int | None:
    """How much was counted; None if the counter must have started anew.

    A step back is a wrap if what it then counted is plausible: at most ``most``, or half the range if that is not
    known. What was counted before a restart is lost, and a difference across it would be a guess.
    """
    counted = (now - before) % modulus
    limit = modulus / 2 if most is None else most
    return counted if counted <= limit else None


def rate_mbps(counted_bytes: int, elapsed_s: float) -> float:
    """Mb/s (10^6 bit/s); ``elapsed_s`` must be positive."""
    return counted_bytes * 8e-6 / elapsed_s

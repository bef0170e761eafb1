"""Differences of counters that wrap around or start anew."""

from __future__ import annotations

# No interface here moves as much in the time between two readings; a larger step is a restart, not a wrap.
_MAX_WRAP_SHARE = 0.5


def difference(before: int, after: int, bits: int | None = None) -> int | None:
    """Growth of a counter of so many bits (None: it does not wrap); None if it started anew in between.

    A smaller value is a wrap if the growth it implies is less than half the counter's range (RFC 2578 leaves telling
    wraps from restarts to the reader); else nothing can be said about the time between.
    """
    if after >= before:
        return after - before
    if bits is None:
        return None
    grown = after - before + (1 << bits)
    return grown if 0 <= grown < _MAX_WRAP_SHARE * (1 << bits) else None

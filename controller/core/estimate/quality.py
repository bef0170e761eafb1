"""How far an estimate may be trusted: one word, and a sentence for whoever asks why."""

from __future__ import annotations

from enum import StrEnum


class Quality(StrEnum):
    """Best first. ``CONTRADICTORY``, ``STALE`` and ``MISSING`` always come with a reason."""

    GOOD = "good"
    UNSURE = "unsure"
    CONTRADICTORY = "contradictory"
    STALE = "stale"
    MISSING = "missing"

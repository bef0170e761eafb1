"""Readings of radios that tell what changed since the last whole one (docs/reference/telemetry.md, *Readings of what
changed*). Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Document = Mapping[str, Any]
HEARD_STEP_MS = 500
"""A neighbour that was heard by so much longer ago than the whole reading says is told again."""


class Changes:
    """What one session was told. Everything is told each ``whole_s``."""

    def __init__(self, whole_s: float) -> None:
        self._whole_s = whole_s
        self._whole: Document | None = None
        self._told_s = 0.0

    def message(self, reading: Document, now_s: float) -> dict[str, Any]:
        """What to say of a whole reading."""
        if self._whole is not None and now_s < self._told_s + self._whole_s:
            changed = _changed(self._whole["interfaces"], reading["interfaces"])
            if changed is not None:
                return {"type": "radio-changes", "time_s": reading["time_s"], "interfaces": changed}
        self._whole, self._told_s = reading, now_s
        return {"type": "radio", "seq": None, **reading}


def _changed(told: list[Document], now: list[Document]) -> list[dict[str, Any]] | None:
    """None if other interfaces or neighbours are there."""
    if [i["technology"] for i in told] != [i["technology"] for i in now]:
        return None
    found = []
    for before, interface in zip(told, now, strict=True):
        rows, rows_before = interface["neighbours"], before["neighbours"]
        if [row["mac"] for row in rows] != [row["mac"] for row in rows_before]:
            return None
        entry = {key: interface[key] for key in ("technology", "busy_us", "active_us")}
        changed = [row for row, was in zip(rows, rows_before, strict=True) if _differs(was, row)]
        found.append({**entry, "neighbours": changed} if changed else entry)
    return found


def _differs(was: Document, row: Document) -> bool:
    if abs(row["last_heard_ms"] - was["last_heard_ms"]) >= HEARD_STEP_MS:
        return True
    return any(row[key] != was[key] for key in row if key != "last_heard_ms")

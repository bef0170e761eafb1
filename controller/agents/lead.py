"""Who leads: the message ``lead`` to devices that speak with several controllers (docs/reference/dataplane.md).

A device obeys the greatest epoch that any controller has named, and refuses what a session of a smaller one would
change. Its answer to ``lead`` says what it runs, so that a new leader sends only what differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MAX_EPOCH = 2**63 - 1
STALE = "stale epoch"
"""What a device answers to a change by a session that does not lead."""
_MOST_MBPS = 1e9


def lead_document(epoch: int) -> dict[str, Any]:
    """The message ``lead`` without ``seq``."""
    return {"type": "lead", "epoch": epoch}


def epoch_of(message: Mapping[str, Any]) -> int:
    """The greatest epoch that a device has seen, as it says in ``hello`` and in refusals; 0: none."""
    epoch = message.get("epoch")
    if not isinstance(epoch, int) or isinstance(epoch, bool):
        return 0
    return epoch if 0 < epoch <= MAX_EPOCH else 0


@dataclass(frozen=True)
class InForce:
    """What an agent runs: ``revision`` of its configuration (0: none), and Mb/s by (flow number, path id)."""

    revision: int
    rates: Mapping[tuple[int, int], float]


def in_force_of(answer: Mapping[str, Any]) -> InForce | None:
    """What an agent says in its answer to ``lead``; None if it says nothing that can be used."""
    revision, told = answer.get("revision"), answer.get("rates")
    if not isinstance(revision, int) or isinstance(revision, bool) or not 0 <= revision < 2**31:
        return None
    rates: dict[tuple[int, int], float] = {}
    for flow, paths in told.items() if isinstance(told, dict) else ():
        for path, mbps in paths.items() if isinstance(paths, dict) else ():
            key, rate = (_number(flow, 65_535), _number(path, 255)), _rate(mbps)
            if key[0] is not None and key[1] is not None and rate is not None:
                rates[key[0], key[1]] = rate
    return InForce(revision, rates)


def _number(text: object, most: int) -> int | None:
    is_number = isinstance(text, str) and text.isascii() and text.isdecimal() and len(text) <= 5
    return int(str(text)) if is_number and int(str(text)) <= most else None


def _rate(value: object) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if 0 <= value <= _MOST_MBPS else None

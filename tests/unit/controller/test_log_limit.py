"""A flood of warnings is cut, counted and said; everything else passes."""

from __future__ import annotations

import logging

from hyroads.controller.runtime.faults import BURST, PER_SECOND, LogLimit


def record(level: int) -> logging.LogRecord:
    return logging.LogRecord("x", level, "", 0, "peer %s", ("p",), None)


def test_flood_is_cut_and_counted() -> None:
    now = [0.0]
    limit = LogLimit(lambda: now[0])
    assert sum(limit.filter(record(logging.WARNING)) for _ in range(BURST + 50)) == BURST
    assert all(limit.filter(record(level)) for level in (logging.INFO, logging.ERROR))
    now[0] = 1.0
    passed = [one for one in (record(logging.WARNING) for _ in range(20)) if limit.filter(one)]
    assert len(passed) == PER_SECOND
    assert passed[0].getMessage() == "peer p (50 before at this level were left out)"
    assert passed[1].getMessage() == "peer p"
    now[0] = 1e6
    assert sum(limit.filter(record(logging.WARNING)) for _ in range(2 * BURST)) == BURST

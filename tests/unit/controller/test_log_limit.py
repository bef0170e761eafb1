"""A flood of warnings is cut, counted and said; everything else passes."""

from __future__ import annotations

import logging

from hyroads.controller.runtime.faults import BURST, MOST_BYTES, PER_SECOND, LogLimit


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


def test_floods_at_all_levels_stay_below_50_kb_a_second() -> None:
    """As a disk sees them in a minute, the burst at its begin included."""
    now, form = [0.0], logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    limit, written = LogLimit(lambda: now[0]), 0
    for number in range(60_000):
        now[0] = number / 1000
        for level in (logging.INFO, logging.WARNING, logging.ERROR):
            one = logging.LogRecord("hyroads.agents", level, "", 0, "peer %s", ("x" * (number % 2000),), None)
            if limit.filter(one):
                written += len(form.format(one)) + 1
    assert 10_000 < written / 60 < 50_000


def test_a_long_record_is_cut_and_its_traceback_keeps_its_end() -> None:
    limit = LogLimit(lambda: 0.0)
    try:
        raise ValueError("y" * 3 * MOST_BYTES + "the end")
    except ValueError as error:
        info = type(error), error, error.__traceback__
    one = logging.LogRecord("x", logging.ERROR, "", 0, "z" * 2 * MOST_BYTES, None, info)
    assert limit.filter(one)
    text = logging.Formatter().format(one)
    assert len(text) < 2 * MOST_BYTES + 100
    assert text.endswith("the end")

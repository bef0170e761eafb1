"""Unit tests are quick: one that takes too much processor time fails, so that ``make check`` stays a minute.

Time on a clock would depend on what else the machine does. Processor time too, though less: where a machine is slow, or
its processors share what they have with others, a test has as much more as a known piece of work needs there. Where
laws are tried with more examples than every day, all tests have as much more time; with all examples there is no limit.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Generator

import pytest
from examples import WHOLE, scaled

# Half a second is the aim.
MOST_S = 3.0
DAILY = 20
"""Of a hundred examples so many are tried every day."""
KNOWN_WORK_S = 0.025
"""Processor time of :func:`_known_work_s` on the machine that ``MOST_S`` was chosen on."""


def _used_s() -> float:
    """Processor time of this process and of those that it has waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _known_work_s() -> float:
    """Processor time that a loop of fixed length needs here and now."""
    start_s, value = time.process_time(), 0
    for number in range(200_000):
        value = (value * 31 + number) % 1_000_003
    return time.process_time() - start_s


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fails a test that passed but took too long."""
    before_s = _used_s()
    result = yield
    used_s = _used_s() - before_s
    if used_s <= MOST_S or scaled(WHOLE) >= WHOLE:
        return result
    most_s = MOST_S * scaled(WHOLE) / DAILY * max(1.0, _known_work_s() / KNOWN_WORK_S)
    if used_s > most_s:
        pytest.fail(
            f"took {used_s:.1f} s of processor time, a unit test may take {most_s:.1f} s here (and should take 0.5 s): "
            "make it faster or move it to tests/integration",
            pytrace=False,
        )
    return result

"""Unit tests are quick: one that takes too much processor time fails, so that ``make check`` stays a minute.

Time on a clock would depend on what else the machine does. With more than the examples of every day there is no limit.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Generator

import pytest
from examples import WHOLE, scaled

# Half a second is the aim. A crowded machine needs several times as much even of processor time.
MOST_S = 3.0


def _used_s() -> float:
    """Processor time of this process and of those that it has waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fails a test that passed but took too long."""
    before_s = _used_s()
    result = yield
    used_s = _used_s() - before_s
    if used_s > MOST_S and scaled(WHOLE) < WHOLE:
        pytest.fail(
            f"took {used_s:.1f} s of processor time, a unit test may take {MOST_S:g} s (and should take 0.5 s): "
            "make it faster or move it to tests/integration",
            pytrace=False,
        )
    return result

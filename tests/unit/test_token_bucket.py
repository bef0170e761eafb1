"""The token bucket: never more than rate and burst, and nobody waits longer than it was told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.core.token_bucket import TokenBucket


@given(st.floats(1, 1000), st.lists(st.floats(0, 0.5), min_size=1, max_size=200))
def test_a_bucket_never_lets_more_through_than_rate_and_burst(rate: float, gaps: list[float]) -> None:
    bucket, now, passed = TokenBucket(rate, burst=5), 100.0, 0
    for gap in gaps:
        now += gap
        passed += bucket.take(now)
    assert passed <= 5 + rate * sum(gaps) + 1e-6
    wait = bucket.wait_s(now)
    assert bucket.take(now + wait), "after the wait it said, one is allowed"


def test_a_bucket_of_rate_0_and_a_clock_that_goes_back() -> None:
    assert TokenBucket(0, 0).wait_s(1.0) == float("inf")
    bucket = TokenBucket(10, burst=1)
    assert bucket.take(5.0) and not bucket.take(4.0) and not bucket.take(5.05) and bucket.take(5.11)


def test_a_debt_delays_what_comes_next() -> None:
    bucket = TokenBucket(10, burst=2)
    assert [bucket.reserve_s(5.0) for _ in range(4)] == pytest.approx([0.0, 0.0, 0.1, 0.2])
    assert bucket.wait_s(5.0) == pytest.approx(0.3) and bucket.wait_s(5.2) == pytest.approx(0.1)
    bucket.spend(100)
    assert bucket.wait_s(6.0) == pytest.approx(0.3), "a debt beyond the burst is forgiven"

"""What latency flows decide with: traces of rates, paces and choices. The loop: tests/integration/test_latency.py."""

from __future__ import annotations

import pytest

from hyroads.controller.core.latency.fit import RateTrace
from hyroads.controller.core.latency.selection import damped, pace, select
from hyroads.controller.core.latency.two_state_queue import TwoStateQueue


def test_a_trace_forgets_what_is_old_and_needs_enough_samples() -> None:
    trace = RateTrace(window_s=10.0)
    for step in range(5):
        trace.add(0.1 * step, 7.0)
    trace.refit(0.5)
    assert trace.fit is None
    for step in range(5, 400):
        trace.add(0.1 * step, 7.0 if step < 200 else 3.0)
    trace.refit(40.0)
    assert trace.fit is not None and trace.fit.states == 1 and trace.fit.queue.muhat == pytest.approx(3.0)
    assert len(trace) <= 101


def test_pace_follows_the_shares_and_the_slower_limit() -> None:
    quick = pace((0.8, 0.2), (10.0, 10.0), (9.0, 5.0), need=2.0, fair=100.0)
    assert quick.rates_mbps == pytest.approx((10.0, 2.5)) and quick.reserved_mbps == pytest.approx((1.6, 0.4))
    greedy = pace((0.8, 0.2), (10.0, 10.0), (9.0, 5.0), need=float("inf"), fair=100.0)
    assert greedy.rates_mbps == greedy.reserved_mbps == pytest.approx((9.0, 2.25))
    fair = pace((0.8, 0.2), (10.0, 10.0), (9.0, 5.0), need=8.0, fair=5.0)
    assert sum(fair.rates_mbps) == pytest.approx(5.0)
    assert damped(4.0, 9.0) == pytest.approx(6.0) and damped(float("inf"), 3.0) == 3.0


def test_of_three_technologies_the_two_quickest_take_part() -> None:
    queues = {(name,): TwoStateQueue.constant(mbps) for name, mbps in (("a", 2.0), ("b", 10.0), ("c", 8.0))}
    labels = {path: path[0] for path in queues}
    choice = select(queues, 12.0, 1000.0, labels=labels)
    assert choice.shares["a",] == 0.0 and 0.5 < choice.shares["b",] < 0.7
    assert sum(choice.shares.values()) == pytest.approx(1.0)
    overloaded = select(queues, 30.0, 1000.0, labels=labels)
    assert overloaded.shares["b",] == pytest.approx(10.0 / 18.0) and overloaded.delay_s is None
    kept = select(queues, 11.5, 1000.0, labels=labels, before=choice.shares)
    assert kept.shares == choice.shares

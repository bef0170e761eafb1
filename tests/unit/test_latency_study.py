"""The latency study's cases and statements: published parameters, moments, and tallies that can fail."""

from __future__ import annotations

import pytest

from hyroads.controller.core.latency.two_state_queue import mean_delay_s
from hyroads.controller.study import latency_theorems
from hyroads.controller.study.latency import (
    FIVE,
    PER_MBPS,
    ROOM,
    SLOW_PAIRS,
    STEADY_PAIR,
    VARIANCES,
    crossing_mbps,
    formula_of,
    greatest_ratio,
    points,
)
from hyroads.controller.study.latency_theorems import (
    CONVERSE,
    MUHAT,
    STATEMENTS,
    first_is_better,
    tally,
    with_moments,
)


def test_rates_are_in_frames_of_1400_bytes() -> None:
    assert pytest.approx(1.0) == PER_MBPS * 0.0112
    assert FIVE.queues[1].muhat / PER_MBPS == pytest.approx(38.0)


def test_the_published_points_are_those_of_the_reference() -> None:
    split = {p.label: 1e3 * formula_of(p)[0] for p in points(SLOW_PAIRS[2], None) if p.load_mbps == 29.0}
    assert split == pytest.approx({"p*": 3.82, "p_lim": 50.2}, rel=5e-3)
    assert crossing_mbps(*VARIANCES.queues, None) == pytest.approx(33.4, rel=5e-3)
    # A queue that loses packets gives the quicker one less of an advantage.
    assert crossing_mbps(*VARIANCES.queues, ROOM) < 30.0
    assert greatest_ratio(*STEADY_PAIR) == pytest.approx(1.52, abs=0.01)


def test_a_finite_split_loses_and_is_quicker_than_an_infinite_one() -> None:
    infinite, finite = (
        next(p for p in points(SLOW_PAIRS[2], room) if (p.label, p.load_mbps) == ("p_lim", 31.0))
        for room in (None, ROOM)
    )
    assert formula_of(infinite)[1] == 0.0
    assert formula_of(finite)[0] < formula_of(infinite)[0] and 0.0 < formula_of(finite)[1] < 0.2


def test_queues_have_the_moments_that_are_asked_for() -> None:
    queue = with_moments(900.0, 8800.0, 5.0)
    assert (queue.muhat, queue.variance, queue.mu_h * queue.mu_l, queue.alpha) == pytest.approx((MUHAT, 900, 8800, 5))
    # No service at all in the low state.
    assert with_moments(400.0, 0.0, 5.0).mu_l == 0.0


@pytest.mark.parametrize("name", STATEMENTS)
def test_the_statements_hold_on_random_pairs(name: str) -> None:
    assert tally((7, name, 0, 60)).wrong == 0


def test_what_is_not_claimed_does_fail() -> None:
    found = tally((1, CONVERSE, 0, 150))
    assert found.pairs == 150 and 0 < found.wrong < 50


def test_a_wrong_statement_would_be_seen() -> None:
    low, high = with_moments(400.0, 9000.0, 5.0), with_moments(900.0, 9000.0, 5.0)
    assert first_is_better((low, high), 5.0) and not first_is_better((high, low), 5.0)
    assert mean_delay_s(low, 90.0) < mean_delay_s(high, 90.0)
    assert latency_theorems.sign_of((low, high)) == [-1.0] * len(latency_theorems.LOADS)

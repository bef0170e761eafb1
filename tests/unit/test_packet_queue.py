"""Packets through the two-state queue: the bounded walk, Little's law, M/M/1 as a limit, and exact finite queues."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hyroads.controller.core.latency.finite_queue import finite_queue
from hyroads.controller.core.latency.two_state_queue import (
    LatencyError,
    TwoStateQueue,
    delay_bounds_s,
    mean_delay_s,
    mean_queue_length,
)
from hyroads.controller.study.packet_queue import Packets, bounded_walk, simulate

SLOW = TwoStateQueue(120.0, 15.0, 0.8, 1.7)


def by_markov_chain(queue: TwoStateQueue, load: float, room: int) -> tuple[float, float, float]:
    """Length, loss and delay from all balance equations at once."""
    count = 2 * (room + 1)
    rates = np.zeros((count, count))
    for n in range(room + 1):
        for state, (mu, alpha) in enumerate(((queue.mu_h, queue.alpha_h), (queue.mu_l, queue.alpha_l))):
            at = 2 * n + state
            if n < room:
                rates[at, at + 2] = load
            if n > 0:
                rates[at, at - 2] = mu
            rates[at, at + 1 - 2 * state] = alpha
    rates -= np.diag(rates.sum(axis=1))
    equations = np.vstack([rates.T, np.ones(count)])
    found = np.linalg.lstsq(equations, np.append(np.zeros(count), 1.0), rcond=None)[0].reshape(-1, 2).sum(axis=1)
    length, loss = float(found @ np.arange(room + 1)), float(found[-1])
    return length, loss, length / (load * (1.0 - loss))


@pytest.mark.parametrize("queue", [SLOW, TwoStateQueue(50.0, 0.0, 3.0, 2.0), TwoStateQueue.constant(40.0)])
@pytest.mark.parametrize("load", [5.0, 40.0, 200.0])
@pytest.mark.parametrize("room", [1, 2, 7, 30])
def test_a_finite_queue_is_the_markov_chain(queue: TwoStateQueue, load: float, room: int) -> None:
    found = finite_queue(queue, load, room)
    assert (found.length, found.loss, found.delay_s) == pytest.approx(by_markov_chain(queue, load, room), rel=1e-8)


def test_much_room_is_no_bound_and_mm1k_has_a_closed_form() -> None:
    load = 50.0
    wide = finite_queue(SLOW, load, 5000)
    assert wide.delay_s == pytest.approx(mean_delay_s(SLOW, load), rel=1e-6)
    assert wide.length == pytest.approx(mean_queue_length(SLOW, load), rel=1e-6) and wide.loss < 1e-9
    # M/M/1/K: p_n in proportion to rho^n.
    rho, room = 0.8, 6
    weights = rho ** np.arange(room + 1)
    found = finite_queue(TwoStateQueue.constant(100.0), 80.0, room)
    assert found.loss == pytest.approx(weights[-1] / weights.sum())
    assert found.length == pytest.approx(weights @ np.arange(room + 1) / weights.sum())
    # Far too much load: always full, and served at the mean rate.
    full = finite_queue(TwoStateQueue.constant(100.0), 1e6, 200)
    assert full.length == pytest.approx(200, abs=0.01) and full.delay_s == pytest.approx(2.0, rel=1e-3)
    assert finite_queue(SLOW, 0.0, 200).delay_s == pytest.approx(mean_delay_s(SLOW, 0.0), rel=1e-6)


@pytest.mark.parametrize(("load", "room", "words"), [(-1.0, 5, "load"), (math.nan, 5, "load"), (1.0, 0, "room")])
def test_what_is_no_load_and_no_room_is_refused(load: float, room: int, words: str) -> None:
    with pytest.raises(LatencyError, match=words):
        finite_queue(SLOW, load, room)
    with pytest.raises(LatencyError, match=words):
        simulate(SLOW, load, 1.0, np.random.default_rng(1), room=room)


@pytest.mark.parametrize("most", [1, 3, 50, 10**6])
@pytest.mark.parametrize("count", [0, 1, 2, 99, 1000])
def test_the_bounded_walk_is_that_of_a_loop(most: int, count: int) -> None:
    steps = np.random.default_rng([most, count]).choice([-1, 1], count, p=[0.45, 0.55]).astype(np.int8)
    length, walked = 0, []
    for step in steps.tolist():
        length = min(max(length + step, 0), most)
        walked.append(length)
    assert bounded_walk(steps, most).tolist() == walked


def error(found: list[Packets], wanted_s: float) -> float:
    """By how many standard errors the mean delay of independent runs is off."""
    delays_s = np.array([packets.delay_s for packets in found])
    return float(abs(delays_s.mean() - wanted_s) / (delays_s.std(ddof=1) / math.sqrt(len(delays_s))))


@pytest.mark.parametrize("room", [None, 20])
def test_packets_take_as_long_as_the_formula_says(room: int | None) -> None:
    rng, load = np.random.default_rng(3), 40.0
    found = [simulate(SLOW, load, 400.0, rng, room=room, warm_up_s=20.0) for _ in range(12)]
    assert error(found, mean_delay_s(SLOW, load) if room is None else finite_queue(SLOW, load, room).delay_s) < 4
    lost = sum(packets.lost for packets in found) / sum(packets.arrived for packets in found)
    assert lost == pytest.approx(0.0 if room is None else finite_queue(SLOW, load, room).loss, rel=0.15)
    arrived = sum(packets.arrived for packets in found) / (12 * 400.0)
    assert arrived == pytest.approx(load, rel=0.02)


def test_mm1_is_the_limit_of_quick_and_of_no_alternation() -> None:
    rng = np.random.default_rng(4)
    for queue in (TwoStateQueue.constant(50.0), TwoStateQueue(80.0, 20.0, 500.0, 500.0)):
        found = [simulate(queue, 30.0, 150.0, rng, warm_up_s=5.0) for _ in range(6)]
        assert error(found, 1.0 / (50.0 - 30.0)) < 4


@pytest.mark.parametrize("room", [None, 10])
def test_littles_law(room: int | None) -> None:
    found = simulate(SLOW, 45.0, 2000.0, np.random.default_rng(5), room=room)
    mean_length = found.area / found.duration_s
    throughput = (found.arrived - found.lost) / found.duration_s
    assert mean_length == pytest.approx(throughput * found.delay_s, rel=0.01)


def test_bounds_hold_and_are_exact_at_both_ends() -> None:
    for queue in (SLOW, TwoStateQueue(100.0, 0.0, 5.0, 5.0), TwoStateQueue(100.0, 90.0, 0.01, 0.3)):
        for part in np.linspace(0.0, 0.999, 60):
            low, high = delay_bounds_s(queue, part * queue.muhat)
            assert low * (1 - 1e-9) <= mean_delay_s(queue, part * queue.muhat) <= high * (1 + 1e-9)
        for part, near in ((0.0, 1e-12), (1.0 - 1e-7, 1e-4)):
            low, high = delay_bounds_s(queue, part * queue.muhat)
            assert low == pytest.approx(high, rel=near)
    assert delay_bounds_s(TwoStateQueue.constant(50.0), 30.0) == pytest.approx((0.05, 0.05))
    assert delay_bounds_s(SLOW, 200.0) == (math.inf, math.inf)

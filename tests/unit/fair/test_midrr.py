"""miDRR packet by packet: published rates, the hole in the proof, laws of the scheduler, and the study."""

from __future__ import annotations

import random

import pytest

from hyroads.controller.core.fair.maxmin import FairnessError, Flow, Shares, allocate
from hyroads.controller.core.fair.midrr import AS_PUBLISHED, MOST_SERVICES, Scheduler, Setting, course, simulate
from hyroads.controller.study import fairness


def test_the_published_bit_misses_the_fair_rates_and_a_counter_does_not():
    bit, counter = (simulate(fairness.MERGED, 20.0, setting) for setting in (AS_PUBLISHED, Setting(MOST_SERVICES)))
    assert bit == pytest.approx({"a": 4, "b": 6, "c": 6}, rel=0.005)
    assert counter == pytest.approx(dict.fromkeys("abc", 16 / 3), rel=0.005)


def test_each_interface_on_its_own_is_unfair():
    assert simulate(fairness.APART, 20.0, Setting(0)) == pytest.approx({"a": 1.5, "b": 0.5}, rel=0.005)
    assert simulate(fairness.APART, 20.0) == pytest.approx({"a": 1, "b": 1}, rel=0.005)


def test_rates_follow_flows_that_end():
    rates = course(fairness.ENDING, 9.0, 1.0, {"a": (0.0, 3.0), "b": (0.0, 6.0)})
    for name, expected in {"a": (3, 0, 0), "b": (20 / 3, 26 / 3, 0), "c": (10 / 3, 13 / 3, 10)}.items():
        for phase, mbps in enumerate(expected):
            assert rates[name][3 * phase + 1 : 3 * phase + 3] == pytest.approx([mbps, mbps], rel=0.01)


@pytest.mark.parametrize("seed", range(8))
def test_a_counter_comes_near_the_fair_rates(seed):
    rng = random.Random(seed)
    capacity = {name: rng.uniform(3, 12) for name in "1234"[: rng.randint(2, 4)]}
    flows = {
        f"f{i}": Flow(
            rng.choice([1.0, 2.0, 4.0]), frozenset(rng.sample(sorted(capacity), rng.randint(1, len(capacity))))
        )
        for i in range(rng.randint(2, 8))
    }
    shares = Shares(capacity, flows)
    assert simulate(shares, 10.0) == pytest.approx(allocate(shares).rate_mbps, rel=0.01)


def test_slow_interfaces_beside_fast_ones_are_fair():
    shares = fairness.random_client(1, 10)
    fair = allocate(shares).rate_mbps
    assert simulate(shares, 5.0) == pytest.approx(fair, rel=0.01)
    one_deficit = simulate(shares, 5.0, Setting(one_deficit=True))
    assert max(abs(one_deficit[name] / mbps - 1.0) for name, mbps in fair.items()) > 0.2


@pytest.mark.parametrize(("one_deficit", "next_of_interface_0"), [(True, 0), (False, 1)])
def test_with_one_deficit_an_interface_spends_the_quantum_of_another(one_deficit, next_of_interface_0):
    scheduler = Scheduler([1.0, 1.0], [[0, 1], [0]], 2, packet_bytes=3000, one_deficit=one_deficit)
    scheduler.arrived(0)
    scheduler.arrived(1)
    assert scheduler.next_flow(0, [2000, 2000]) == 0
    scheduler.sent(0, 0, 2000, waits=True)  # 1000 bytes of its turn are left
    assert scheduler.next_flow(1, [2000, 2000]) == 0  # 3000 bytes more, for both or for interface 1
    assert scheduler.next_flow(0, [2000, 2000]) == next_of_interface_0


def test_no_capacity_is_lost_and_demands_are_met():
    shares = Shares(
        {"1": 4.0, "2": 6.0, "3": 0.0},
        {
            "a": Flow(1, frozenset("1"), 1.0),
            "b": Flow(1, frozenset("12")),
            "c": Flow(3, frozenset("123"), 2.0),
            "d": Flow(1, frozenset("2"), 0.0),
        },
    )
    rates = simulate(shares, 10.0)
    assert rates == pytest.approx({"a": 1.0, "b": 7.0, "c": 2.0, "d": 0.0}, rel=0.01)


def test_an_interface_serves_only_flows_that_accept_it_and_wait():
    scheduler = Scheduler([1.0, 2.0], [[0], [0, 1]], 2)
    sizes = [1500, 1500]
    assert scheduler.next_flow(0, sizes) is None and scheduler.next_flow(1, sizes) is None
    scheduler.arrived(0)
    assert scheduler.next_flow(1, sizes) is None
    assert scheduler.next_flow(0, sizes) == 0
    scheduler.sent(0, 0, 1500, waits=False)
    assert scheduler.next_flow(0, sizes) is None
    scheduler.arrived(1)
    assert scheduler.next_flow(1, sizes) == 1
    scheduler.emptied(1)
    scheduler.emptied(1)
    assert scheduler.next_flow(1, sizes) is None


def test_a_flow_with_small_packets_gets_the_same_bytes():
    scheduler = Scheduler([1.0, 1.0], [[0], [0]], 1)
    sizes, served = [1500, 100], [0, 0]
    scheduler.arrived(0)
    scheduler.arrived(1)
    for _ in range(3200):
        flow = scheduler.next_flow(0, sizes)
        served[flow] += sizes[flow]
        scheduler.sent(0, flow, sizes[flow], waits=True)
    assert abs(served[0] - served[1]) <= 2 * 1500


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf"), 1e9])
def test_a_time_that_can_not_be_simulated_is_refused(seconds):
    with pytest.raises(FairnessError):
        simulate(fairness.MERGED, seconds)

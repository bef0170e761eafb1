"""The emulated radio: exact without errors, wrong as configured with them, the same again with the same seed."""

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.access_point.emulated import (
    EmulatedRadio,
    EstimateErrors,
    LinkState,
    MediumState,
    Peer,
    estimate_mbps,
)
from hyroads.controller.access_point.model import SteadyCounters

PEER = Peer("02:00:01:01:00:02", "b", "ab", "ba")


def state(elapsed_s, airtime=0.2, busy=0.5, frames=100, lost=0, up=True, capacity_mbps=10.0):
    """Shares are over all the time since the reset."""
    link = LinkState(capacity_mbps if up else 0.0, frames + lost, lost, airtime * elapsed_s)
    return MediumState(elapsed_s, {"ab": link, "ba": link}, {"a-wifi": busy * elapsed_s})


class Medium:
    def __init__(self, *states):
        self.states = list(states)

    def __call__(self):
        return self.states.pop(0)


def test_exact_without_errors():
    # 10 s at 50 %, then 10 s at 30 %: on average 40 %.
    medium = Medium(state(10, busy=0.5), state(20, busy=0.4, frames=200, lost=25))
    radio = EmulatedRadio("a-wifi", [PEER], EstimateErrors(), medium)
    first, second = radio.read(0.0), radio.read(10.0)
    assert (first.active_us, first.busy_us) == (10_000_000, 5_000_000)
    assert second.busy_us - first.busy_us == pytest.approx(3_000_000)
    neighbour = second.neighbours[0]
    assert (neighbour.mac, neighbour.node, neighbour.tx_capacity_kbps) == (PEER.mac, "b", 10_000)
    assert neighbour.tx_loss == pytest.approx(25 / 125)
    assert neighbour.last_heard_ms == 0


def test_reset_of_the_medium_is_not_a_step_back():
    medium = Medium(state(10, busy=0.5), state(2, busy=0.25))
    radio = EmulatedRadio("a-wifi", [PEER], EstimateErrors(), medium)
    radio.read(0.0)
    after = radio.read(2.0)
    assert (after.active_us, after.busy_us) == (12_000_000, 5_500_000)


def test_a_neighbour_that_fell_silent_ages_and_one_never_heard_is_not_there():
    medium = Medium(state(1, up=False), state(2), state(3, up=False))
    radio = EmulatedRadio("a-wifi", [PEER], EstimateErrors(), medium)
    assert radio.read(0.0).neighbours == ()
    assert radio.read(1.0).neighbours[0].last_heard_ms == 0
    silent = radio.read(3.5).neighbours[0]
    assert silent.last_heard_ms == 2500
    assert silent.tx_capacity_kbps == 0


def test_noise_has_the_given_spread_and_no_bias():
    errors = EstimateErrors(noise=0.2, seed=3)
    draws = [estimate_mbps(10, 1.0, "ab", float(t), errors) for t in range(4000)]
    assert statistics.mean(draws) == pytest.approx(10, rel=0.02)
    assert statistics.stdev(draws) == pytest.approx(2, rel=0.05)
    assert draws == [estimate_mbps(10, 1.0, "ab", float(t), errors) for t in range(4000)]
    assert draws != [estimate_mbps(10, 1.0, "ab", float(t), EstimateErrors(noise=0.2, seed=4)) for t in range(4000)]
    assert estimate_mbps(10, 1, "ab", 0.1, errors) == estimate_mbps(10, 1, "ab", 0.9, errors)


def test_low_rates_bias_estimates_down_until_there_is_traffic():
    errors = EstimateErrors(low_rate_bias=0.4, low_rate_airtime=0.1)
    assert estimate_mbps(10, 0.0, "ab", 0, errors) == pytest.approx(6)
    assert estimate_mbps(10, 0.05, "ab", 0, errors) == pytest.approx(8)
    assert estimate_mbps(10, 0.1, "ab", 0, errors) == pytest.approx(10)
    assert estimate_mbps(10, 0.9, "ab", 0, errors) == pytest.approx(10)


@given(st.floats(0, 1000), st.floats(0, 1), st.floats(0, 3), st.integers(0, 9))
def test_estimates_are_never_negative(capacity, bias, noise, t):
    assert estimate_mbps(capacity, 0.0, "x", t, EstimateErrors(noise=noise, low_rate_bias=bias)) >= 0


@given(st.lists(st.tuples(st.integers(0, 10**7), st.integers(0, 10**7)), min_size=1, max_size=30))
def test_steady_counters_only_grow_and_busy_stays_below_active(readings):
    counters, last = SteadyCounters(), (0, 0)
    for second, (busy, active) in enumerate(readings):
        now_busy, now_active, share = counters.add(busy, active, float(second))
        assert now_busy >= last[0] and now_active >= last[1]
        assert now_busy <= now_active
        assert 0 <= share <= 1
        last = (now_busy, now_active)


def test_steady_counters_go_on_after_a_driver_reset():
    counters = SteadyCounters()
    counters.add(1_000_000, 10_000_000, 0.0)
    assert counters.add(1_500_000, 11_000_000, 1.0) == (500_000, 1_000_000, 0.5)
    assert counters.add(100_000, 1_000_000, 2.0)[:2] == (600_000, 2_000_000)

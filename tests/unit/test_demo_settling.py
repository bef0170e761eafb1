"""When a network has settled, and rates from counters of bytes."""

import math

import numpy as np
import pytest

from hyroads.mininet.demos.recording import moved_bytes, time_to_reach, windowed_mbps

TIMES = np.arange(0.0, 10.0, 0.1)


def reach(values, since_s=2.0, until_s=9.95, **targets):
    return time_to_reach(TIMES, values, targets, since_s=since_s, until_s=until_s, tolerance=0.05)


def test_the_moment_after_which_all_rates_stay_near_their_targets():
    step = np.where(TIMES < 2.55, 10.0, 5.1)
    slow = np.where(TIMES < 3.25, 1.0, 2.0)
    assert reach({"a": step}, a=5.0) == pytest.approx(0.6)
    assert reach({"a": step, "b": slow}, a=5.0, b=2.0) == pytest.approx(1.3)


def test_a_relapse_counts_and_what_comes_before_and_after_does_not():
    values = np.full_like(TIMES, 5.0)
    values[60] = 6.0
    values[99] = 0.0
    values[:20] = 0.0
    assert reach({"a": values}, until_s=9.85, a=5.0) == pytest.approx(4.1)
    assert math.isinf(reach({"a": values}, until_s=10.0, a=5.0))


def test_never_reached_or_never_looked_is_infinite():
    assert math.isinf(reach({"a": np.full_like(TIMES, 5.26)}, a=5.0))
    assert math.isinf(reach({"a": np.full_like(TIMES, 5.0)}, since_s=20.0, until_s=30.0, a=5.0))


def test_rate_of_a_counter_over_a_window():
    counts = [round(125_000 * t) for t in TIMES.tolist()]
    rates = windowed_mbps(TIMES.tolist(), counts, 0.5)
    assert rates[0] == 0.0
    assert rates[1:] == pytest.approx(np.ones(len(TIMES) - 1))


def test_a_counter_that_starts_anew_never_gives_a_negative_rate():
    counts = [0, 1000, 2000, 500, 1500]
    rates = windowed_mbps([0.0, 1.0, 2.0, 3.0, 4.0], counts, 1.0)
    assert rates.tolist() == pytest.approx([0.0, 0.008, 0.008, 0.004, 0.008])


def test_bytes_of_a_span_are_those_between_its_ends_wherever_the_samples_are():
    times, counts = [0.0, 1.0, 5.0, 6.0], [0, 1000, 5000, 6000]
    assert moved_bytes(times, counts, 2.0, 4.5) == pytest.approx(2500)
    assert moved_bytes(times, counts, -3.0, 9.0) == pytest.approx(6000)
    assert moved_bytes(times, [0, 1000, 200, 1200], 0.0, 6.0) == pytest.approx(2200)
    assert moved_bytes([], [], 0.0, 1.0) == 0.0

"""Optimal rates from busy times: worked examples, recovery under noise, void and silent samples, errors."""

from __future__ import annotations

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from probe_airtime import BusySample, airtime_per_mbps, busy_sample, optimal_rates, probe_vectors, repeat_at

from hyroads.controller.core.netfile import load_text
from hyroads.controller.core.optimum import MeasurementError, airtime_rows, multipath_rates, rates_from_airtime

TRIANGLE = """
nodes: {a: {role: gateway}, b: {role: ap}, c: {role: client}}
links:
  - {id: ab-plc, from: a, to: b, technology: plc, capacity_mbps: 10}
  - {id: ab-wifi, from: a, to: b, technology: wifi, capacity_mbps: 15}
  - {id: bc-wifi, from: b, to: c, technology: wifi, capacity_mbps: 30}
interference: {rule: technology}
"""
# Busy time per Mb/s of (PLC, WiFi), (WiFi, WiFi) on ab-plc, ab-wifi, bc-wifi.
ALPHA = np.array([[1 / 10, 0], [1 / 30, 1 / 15 + 1 / 30], [1 / 30, 1 / 15 + 1 / 30]])


def measured(alpha: np.ndarray, vectors: np.ndarray, silent=None, noise=0.0, rng=None) -> list[BusySample]:
    """What a perfect or noisy meter would say of ``vectors`` [S, M]."""
    samples = []
    for vector in vectors:
        own = alpha @ vector
        if rng is not None:
            own = own * (1 + noise * rng.standard_normal(len(own)))
        idle = np.zeros(len(own)) if silent is None else silent
        samples.append(busy_sample(vector, np.minimum(own + idle, 1.0), idle))
    return samples


def test_triangle_from_busy_times_alone() -> None:
    samples = measured(ALPHA, probe_vectors([10, 10]))
    assert airtime_per_mbps(samples) == pytest.approx(ALPHA)
    assert optimal_rates(samples, [1, 1, 1]) == pytest.approx([10, 20 / 3])
    assert optimal_rates(samples, [1, 1, 1], margin=0.05) == pytest.approx([9.5, 19 / 3])


def test_two_flows_halve_the_links_they_share() -> None:
    samples = measured(ALPHA, probe_vectors([10, 10]))
    assert optimal_rates(samples, [2, 2, 2]) == pytest.approx([5, 10 / 3])
    # Only WiFi is shared: PLC may still carry 10, of which WiFi carries the second hop.
    assert optimal_rates(samples, [1, 2, 2]) == pytest.approx([10, 5 / 3])


def test_silent_slot_is_subtracted() -> None:
    silent = np.array([0.1, 0.2, 0.2])
    samples = measured(ALPHA, probe_vectors([6, 6]), silent)
    assert airtime_per_mbps(samples) == pytest.approx(ALPHA)


def test_the_planner_agrees_when_it_knows_the_capacities() -> None:
    network = load_text(TRIANGLE, "test")
    paths = [(0, 2), (1, 2)]
    samples = measured(airtime_rows(network, paths), probe_vectors([10, 10]))
    assert optimal_rates(samples, [1, 1, 1]) == pytest.approx(multipath_rates(network, paths))


def test_saturated_sample_is_void_and_repeated_at_half_the_rate() -> None:
    void = busy_sample([0, 40], [0.0, 1.0, 1.0])
    good = busy_sample([7.5, 0], ALPHA @ [7.5, 0])
    assert repeat_at(good) is None
    assert repeat_at(void) == pytest.approx([0, 20])
    with pytest.raises(MeasurementError, match="do not cover all 2 paths"):
        airtime_per_mbps([good, void])
    again = busy_sample([0, 5], ALPHA @ [0, 5])
    assert airtime_per_mbps([good, void, again]) == pytest.approx(ALPHA)


def test_external_traffic_counts_towards_saturation() -> None:
    assert busy_sample([5.0], [0.98], [0.5]).saturated


@pytest.mark.parametrize(
    ("rates", "busy", "silent"),
    [
        ([0, 0], [0.1], None),
        ([-1, 1], [0.1], None),
        ([np.nan], [0.1], None),
        ([1], [np.inf], None),
        ([1], [0.1], [0, 0]),
    ],
)
def test_senseless_samples_are_refused(rates, busy, silent) -> None:
    with pytest.raises(MeasurementError):
        busy_sample(rates, busy, silent)


def test_a_probe_that_did_not_get_through_is_an_error_not_an_unbounded_rate() -> None:
    samples = [busy_sample([5, 0], [0.5, 0.2]), busy_sample([0, 5], [0.0, 0.0])]
    with pytest.raises(MeasurementError, match="path 1"):
        optimal_rates(samples, [1, 1])


def test_dependent_vectors_are_refused() -> None:
    with pytest.raises(MeasurementError, match="cover"):
        airtime_per_mbps([busy_sample([1, 1], [0.1]), busy_sample([2, 2], [0.2])])


alphas = hnp.arrays(np.float64, st.tuples(st.integers(1, 6), st.integers(1, 3)), elements=st.floats(0.001, 0.2))


@examples(60)
@given(alphas, st.integers(0, 2**32 - 1))
def test_any_independent_vectors_recover_alpha(alpha: np.ndarray, seed: int) -> None:
    rng = np.random.default_rng(seed)
    paths = alpha.shape[1]
    vectors = np.diag(rng.uniform(0.2, 1.0, paths)) + rng.uniform(0.0, 0.1, (paths, paths))
    vectors *= 0.9 / (alpha @ vectors.T).max()
    assert airtime_per_mbps(measured(alpha, vectors)) == pytest.approx(alpha, rel=1e-6, abs=1e-9)


@examples(60)
@given(alphas, st.floats(0.0, 0.5), st.data())
def test_rates_are_feasible_and_no_vertex_is_better(alpha: np.ndarray, margin: float, data) -> None:
    sharing = np.array(data.draw(st.lists(st.integers(1, 4), min_size=len(alpha), max_size=len(alpha))))
    rates = rates_from_airtime(alpha, sharing, margin)
    budget = (1 - margin) / sharing
    assert (rates >= 0).all()
    assert (alpha @ rates <= budget * (1 + 1e-6)).all()
    # Duality by hand: prices of the binding links prove that nothing else is better.
    single = [(budget / alpha[:, i]).min() for i in range(alpha.shape[1])]
    assert rates.sum() >= max(single) * (1 - 1e-6)
    rng = np.random.default_rng(0)
    for direction in rng.dirichlet(np.ones(alpha.shape[1]), 200):
        assert rates.sum() >= (budget / (alpha @ direction)).min() * (1 - 1e-6)


@examples(30)
@given(st.floats(0.01, 1000.0))
def test_rates_scale_with_the_unit(scale: float) -> None:
    assert rates_from_airtime(ALPHA / scale, [1, 1, 1]) == pytest.approx(np.array([10, 20 / 3]) * scale, rel=1e-6)


def test_noise_of_20_percent_averages_out_over_ten_probes() -> None:
    rng = np.random.default_rng(3)
    vectors = np.tile(probe_vectors([8, 8]), (10, 1))
    totals, errors = [], []
    for _ in range(120):
        samples = [s for s in measured(ALPHA, vectors, noise=0.2, rng=rng) if not s.saturated]
        errors.append(np.abs(airtime_per_mbps(samples) / np.where(ALPHA > 0, ALPHA, np.inf) - (ALPHA > 0)).mean())
        totals.append(optimal_rates(samples, [1, 1, 1], groups=np.array([0, 1, 1])).sum())
    assert np.mean(errors) < 0.06
    assert np.mean(totals) / (10 + 20 / 3) == pytest.approx(1.0, abs=0.02)


def test_pooling_and_domains_undo_the_bias_of_single_probes() -> None:
    rng = np.random.default_rng(4)
    # One domain of five links: a WiFi path of two hops, heard by everyone.
    alpha = np.full((5, 1), 0.1)
    singles, pooled, grouped = [], [], []
    for _ in range(100):
        samples = measured(alpha, np.full((10, 1), 6.0), noise=0.2, rng=rng)
        usable = [s for s in samples if not s.saturated]
        singles.append(np.mean([optimal_rates([s], np.ones(5)).sum() for s in usable]))
        pooled.append(optimal_rates(usable, np.ones(5)).sum())
        grouped.append(optimal_rates(usable, np.ones(5), groups=np.zeros(5, dtype=int)).sum())
    assert np.mean(singles) < 8.8  # the maximum of five noisy busy times: 12 % and more is lost
    assert np.mean(pooled) > 9.2
    assert np.mean(grouped) == pytest.approx(10.0, abs=0.15)

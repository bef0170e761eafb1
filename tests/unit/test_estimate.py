"""Estimates: near the truth under noise, quick after a step, and never silent about what is wrong with them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from examples import seeds
from hypothesis import given, settings
from hypothesis import strategies as st
from scalar_filter import start, update

from hyroads.controller.core.estimate.busy_time import (
    CarrierSensing,
    ExternalAirtime,
    ExternalSettings,
)
from hyroads.controller.core.estimate.crosscheck import CounterSource, Reading, cross_check
from hyroads.controller.core.estimate.filters import EstimateError, FilterSettings, Quality
from hyroads.controller.core.estimate.link_estimate import (
    LinkEstimator,
    Sample,
    Source,
)
from hyroads.controller.core.netfile import parse

STEP_S = 0.1
LINKS = {"l": "wifi"}


def fed(values: list[float]) -> LinkEstimator:
    return LinkEstimator(LINKS).after(Sample("l", Source.AGENT, value, i * STEP_S) for i, value in enumerate(values))


# Filters


@settings(deadline=None, derandomize=True)
@given(st.integers(0, 1000), st.floats(1.0, 200.0), st.floats(0.0, 0.15))
def test_noise_averages_out(seed: int, truth: float, noise: float) -> None:
    rng = np.random.default_rng(seed)
    estimator = fed((truth * (1 + noise * rng.standard_normal(100))).clip(0).tolist())
    assert estimator.estimate("l", 9.9).capacity_mbps == pytest.approx(truth, rel=0.05 + noise)


@given(st.lists(st.floats(0, 1e3), min_size=1, max_size=50), st.floats(0.01, 3))
def test_the_mean_stays_among_the_samples(values: list[float], step_s: float) -> None:
    state = None
    for i, value in enumerate(values):
        state = update(state, value, i * step_s, FilterSettings())
    assert state is not None
    assert min(values) - 1e-9 <= state.mean <= max(values) + 1e-9
    assert state.variance >= 0
    assert 0 < state.weight <= 1


def test_one_outlier_changes_nothing_much_and_a_step_is_followed_after_three_samples() -> None:
    steady = [50.0 + 0.5 * (-1) ** i for i in range(30)]
    assert fed([*steady, 5.0]).estimate("l", 3.0).capacity_mbps == pytest.approx(50, rel=0.03)
    assert fed([*steady, 25.0, 25.5, 24.5]).estimate("l", 3.2).capacity_mbps == pytest.approx(25, rel=0.03)


@pytest.mark.parametrize(("noise", "step"), [(0.0, 0.93), (0.02, 0.88), (0.02, 1.12), (0.03, 0.8)])
def test_a_small_step_is_seen_within_a_second_if_the_noise_allows(noise: float, step: float) -> None:
    rng = np.random.default_rng(5)
    state = start(10.0, 0.0)
    for i in range(1, 110):
        level = 10.0 if i < 100 else 10.0 * step
        state = update(state, level * (1 + noise * rng.standard_normal()), i * 0.1, FilterSettings())
    assert state.mean == pytest.approx(10.0 * step, rel=0.03)


def test_noise_alone_is_no_step() -> None:
    rng = np.random.default_rng(6)
    for noise in (0.02, 0.1, 0.2):
        state, restarts = start(10.0, 0.0), 0
        for i in range(1, 3000):
            after = update(state, 10.0 * (1 + noise * rng.standard_normal()), i * 0.1, FilterSettings(jump_sigma=4.0))
            restarts, state = restarts + (after.count < state.count), after
        assert restarts <= 1


def test_the_time_constant_does_not_depend_on_the_sampling_rate() -> None:
    calm = FilterSettings(tau_s=1.0, window=1, jump_ratio=10.0, step_samples=())

    def after_one_tau(step_s: float) -> float:
        state = start(0.0, -step_s)
        for i in range(int(50 / step_s)):
            state = update(state, 0.0, i * step_s, calm)
        for i in range(round(1.0 / step_s)):
            state = update(state, 1.0, 50 + i * step_s, calm)
        return state.mean

    assert after_one_tau(0.1) == pytest.approx(1 - math.exp(-1), rel=0.01)
    assert after_one_tau(0.5) == pytest.approx(1 - math.exp(-1), rel=0.01)


def test_an_old_or_repeated_sample_is_ignored_and_a_senseless_one_refused() -> None:
    state = update(start(5.0, 1.0), 6.0, 2.0, FilterSettings())
    assert update(state, 100.0, 2.0, FilterSettings()) == state
    with pytest.raises(EstimateError):
        update(state, math.nan, 3.0, FilterSettings())
    with pytest.raises(EstimateError):
        Sample("l", Source.AGENT, -1.0, 0.0)
    with pytest.raises(EstimateError, match="unknown link 'x'"):
        LinkEstimator(LINKS).after([Sample("x", Source.AGENT, 1.0, 0.0)])


# Links: sources and quality


def test_quality_from_the_first_sample_to_the_last() -> None:
    estimator = fed([40.0])
    first = estimator.estimate("l", 0.0)
    assert (first.quality, first.reason) == (Quality.UNSURE, "1 of 3 samples so far")
    estimator = fed([40.0, 41.0, 39.0, 40.0])
    good = estimator.estimate("l", 0.4)
    assert (good.quality, good.source, good.reason) == (Quality.GOOD, Source.AGENT, "")
    assert good.age_s == pytest.approx(0.1)
    stale = estimator.estimate("l", 10.0)
    assert stale.quality is Quality.STALE
    assert stale.capacity_mbps == pytest.approx(40, rel=0.05)
    assert "9.7 s old" in stale.reason
    assert good.confidence > first.confidence > 0
    assert stale.confidence < good.confidence
    gone = estimator.estimate("l", 100.0)
    assert (gone.quality, gone.capacity_mbps, gone.confidence) == (Quality.MISSING, None, 0.0)


def test_scatter_makes_an_estimate_unsure() -> None:
    rng = np.random.default_rng(1)
    wild = fed(rng.uniform(5, 95, 12).tolist()).estimate("l", 1.1)
    assert wild.quality is Quality.UNSURE
    assert "scatter" in wild.reason


@pytest.mark.parametrize(
    "agent, modulation, contradicts", [(50.0, 45.0, False), (50.0, 20.0, True), (20.0, 50.0, True)]
)
def test_sources_that_contradict_are_flagged_and_the_smaller_is_used(
    agent: float, modulation: float, contradicts: bool
) -> None:
    samples = [Sample("l", Source.AGENT, agent, i * STEP_S) for i in range(10)]
    samples += [Sample("l", Source.MODULATION, modulation, i * STEP_S) for i in range(10)]
    estimate = LinkEstimator(LINKS).after(samples).estimate("l", 1.0)
    assert (estimate.quality is Quality.CONTRADICTORY) == contradicts
    assert estimate.capacity_mbps == pytest.approx(min(agent, modulation) if contradicts else agent)
    if contradicts:
        assert "agent says" in estimate.reason
        assert "modulation says" in estimate.reason


def test_a_stale_source_contradicts_nobody() -> None:
    samples = [Sample("l", Source.AGENT, 20.0, i * STEP_S) for i in range(10)]
    samples += [Sample("l", Source.MODULATION, 50.0, 9 + i * STEP_S) for i in range(10)]
    estimate = LinkEstimator(LINKS).after(samples).estimate("l", 10.0)
    assert (estimate.source, estimate.quality) == (Source.MODULATION, Quality.GOOD)


def test_a_configured_capacity_is_used_until_something_is_measured() -> None:
    estimator = LinkEstimator(LINKS).after([Sample("l", Source.CONFIGURED, 30.0, 0.0)])
    told = estimator.estimate("l", 1e6)
    assert (told.capacity_mbps, told.source, told.quality) == (30.0, Source.CONFIGURED, Quality.UNSURE)
    estimator = estimator.after(Sample("l", Source.MODULATION, 60.0, 1 + i * STEP_S) for i in range(5))
    assert estimator.estimate("l", 1.5).capacity_mbps == 60.0
    assert estimator.estimate("l", 8.0).quality is Quality.STALE


# Counters and cross-checks


def reading(source: CounterSource, mbps: float, time_s: float = 10.0, frames: int = 1000) -> Reading:
    """One second of frames that together carry this payload."""
    header = 0 if source is CounterSource.AGENT else 14
    return Reading(source, round(mbps * 1e6 / 8) + header * frames, frames, 1.0, time_s)


IF_MIB, OPENFLOW, AGENT = CounterSource


def test_headers_are_taken_off_before_comparing() -> None:
    # 10 000 small frames: the headers are a third of the octets.
    readings = [reading(IF_MIB, 3.0, frames=10_000), reading(OPENFLOW, 3.0, frames=10_000)]
    check = cross_check([*readings, reading(AGENT, 3.0, frames=10_000)], 10.0)
    assert (check.quality, check.outliers) == (Quality.GOOD, ())
    assert check.rate_mbps == pytest.approx(3.0)


def test_the_one_that_disagrees_with_two_is_named_and_not_used() -> None:
    check = cross_check([reading(IF_MIB, 10.0), reading(OPENFLOW, 20.0), reading(AGENT, 19.5)], 10.0)
    assert check.outliers == (IF_MIB,)
    assert check.rate_mbps == pytest.approx(20.0)
    assert "if-mib" in check.reason


def test_two_that_disagree_are_both_doubted() -> None:
    check = cross_check([reading(IF_MIB, 10.0), reading(OPENFLOW, 20.0)], 10.0)
    assert (check.quality, check.rate_mbps) == (Quality.CONTRADICTORY, None)
    assert set(check.outliers) == {IF_MIB, OPENFLOW}


def test_an_agent_may_count_less_than_the_port_but_not_more() -> None:
    both = [reading(IF_MIB, 20.0), reading(OPENFLOW, 20.0)]
    assert cross_check([*both, reading(AGENT, 3.0)], 10.0).quality is Quality.GOOD
    assert cross_check([*both, reading(AGENT, 30.0)], 10.0).outliers == (AGENT,)


def test_little_traffic_and_old_readings_prove_nothing() -> None:
    assert cross_check([reading(IF_MIB, 0.0), reading(OPENFLOW, 0.05)], 10.0).quality is Quality.GOOD
    old = cross_check([reading(IF_MIB, 10.0, time_s=1.0), reading(OPENFLOW, 20.0)], 10.0)
    assert (old.quality, old.rate_mbps) == (Quality.UNSURE, pytest.approx(20.0))
    assert cross_check([reading(IF_MIB, 10.0, time_s=1.0)], 10.0).quality is Quality.STALE
    assert cross_check([], 10.0).quality is Quality.MISSING
    with pytest.raises(EstimateError):
        cross_check([reading(IF_MIB, 1.0), reading(IF_MIB, 1.0)], 10.0)


# Busy time and external airtime


CHAIN = parse(
    {
        "nodes": {n: {"role": "switch", "position": [30.0 * i, 0]} for i, n in enumerate("abcd")},
        "links": [
            {"id": f"{a}{b}", "from": a, "to": b, "technology": "wifi", "capacity_mbps": 20, "both": True}
            for a, b in ("ab", "bc", "cd")
        ],
        "interference": {"rule": "range", "ranges_m": {"wifi": 35}},
    },
    "test",
)
AIR = "wifi"


def test_own_traffic_is_taken_away_where_it_is_heard() -> None:
    hears = {("a", AIR): {"b"}, ("d", AIR): {"c"}}
    sensing = CarrierSensing.of(CHAIN, hears, hears)
    rates = np.zeros(6)
    rates[CHAIN.link_index["ab"]] = 10.0
    capacity = np.full(6, 20.0)
    assert sensing.own_airtime(rates, capacity) == pytest.approx([0.5, 0.0])
    assert sensing.own_airtime(rates, np.zeros(6)) == pytest.approx([1.0, 0.0])
    external = ExternalAirtime(sensing).after({("a", AIR): 0.8, ("d", AIR): 0.1}, np.array([0.5, 0.0]), 0.0)
    per_link = dict(zip(CHAIN.link_index, external.per_link(0.0), strict=True))
    assert per_link["ab"] == per_link["ab~"] == pytest.approx(0.3)
    assert per_link["cd"] == pytest.approx(0.1)
    assert per_link["bc"] == 0.0  # no observer at its ends
    assert external.per_link(10.0).max() == 0.0  # too old
    assert external.stale(10.0) == (("a", AIR), ("d", AIR))


def test_without_a_neighbour_table_the_domains_say_who_is_heard() -> None:
    sensing = CarrierSensing.of(CHAIN, [("a", AIR)])
    heard = {CHAIN.links[i].id for i in sensing.heard.indices}
    assert {"ab", "ab~", "bc", "bc~"} <= heard
    with pytest.raises(EstimateError, match="no link"):
        CarrierSensing.of(CHAIN, [("a", "plc")])


def test_observers_that_stay_keep_what_they_know() -> None:
    before = ExternalAirtime(CarrierSensing.of(CHAIN, [("a", AIR), ("d", AIR)])).after(
        {("a", AIR): 0.8, ("d", AIR): 0.1}, np.array([0.5, 0.0]), 0.0
    )
    after = before.with_carrier_sensing(CarrierSensing.of(CHAIN, [("d", AIR), ("b", AIR)]))
    assert after.stale(0.0) == (("b", AIR),)
    kept = ExternalAirtime(CarrierSensing.of(CHAIN, [("d", AIR)])).after({("d", AIR): 0.1}, np.array([0.0]), 0.0)
    assert after.per_link(0.0) == pytest.approx(kept.per_link(0.0))


def test_traffic_that_becomes_ours_is_no_longer_external_at_once_and_other_traffic_stays() -> None:
    def seen(slots: list[tuple[float, float]]) -> list[float]:
        """External airtime after each slot, given busy share and our own airtime."""
        external, found = one_observer(), []
        for number, (busy, own) in enumerate(slots):
            external = external.after({("a", AIR): busy}, np.array([own]), 0.1 * number)
            found.append(float(external.per_link(0.1 * number).max()))
        return found

    undeclared = [(0.6, 0.0)] * 20
    assert seen(undeclared)[-1] == pytest.approx(0.6)
    declared = seen([*undeclared, (0.6, 0.3), (0.6, 0.6), (0.6, 0.6), (0.6, 0.6)])
    assert declared[-1] < 0.02
    # Others that go on are left alone, and what ends is followed with patience.
    assert min(seen([*undeclared, (0.8, 0.2), (1.0, 0.4), (1.0, 0.4), (1.0, 0.4)])[20:]) > 0.55
    assert seen([*undeclared, (0.3, 0.0), (0.0, 0.0), (0.0, 0.0), (0.0, 0.0)])[-1] > 0.15


def one_observer() -> ExternalAirtime:
    return ExternalAirtime(CarrierSensing.of(CHAIN, [("a", AIR)]))


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1.5)), min_size=1, max_size=80))
def test_external_airtime_stays_within_bounds(slots: list[tuple[float, float]]) -> None:
    external = one_observer()
    for i, (busy, own) in enumerate(slots):
        external = external.after({("a", AIR): busy}, np.array([own]), i * STEP_S)
        given_share = external.per_link(i * STEP_S)
        assert given_share.min() >= 0
        most = max(max(0.0, b - o) for b, o in slots[: i + 1])
        assert given_share.max() <= most + 1e-12


@pytest.mark.parametrize("level", [0.0, 0.3])
@pytest.mark.parametrize("seed", seeds(5))
def test_noise_does_not_reach_the_controller(level: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    external = one_observer()
    given_shares = []
    for i in range(400):
        busy = float(np.clip(0.5 + level + 0.02 * rng.standard_normal(), 0, 1))
        external = external.after({("a", AIR): busy}, np.array([0.5]), i * STEP_S)
        given_shares.append(float(external.per_link(i * STEP_S).max()))
    tail = given_shares[50:]
    assert np.mean(tail) == pytest.approx(level, abs=0.02)
    # It moves about once a second at most, and by little.
    assert np.count_nonzero(np.diff(tail)) <= 0.12 * len(tail)
    assert np.std(tail) < 0.01


def test_a_rise_is_followed_within_three_slots() -> None:
    external = one_observer()
    for i in range(20):
        external = external.after({("a", AIR): 0.5 if i < 10 else 0.9}, np.array([0.5]), i * STEP_S)
        if i == 12:
            assert external.per_link(i * STEP_S).max() >= 0.9 * 0.4
    assert external.per_link(1.9).max() == pytest.approx(0.4, rel=0.05)
    with pytest.raises(EstimateError):
        ExternalSettings(fall_tau_s=0.0)

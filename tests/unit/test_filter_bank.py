"""Arrays of filters give what single filters give, and capacities to plan with are those of the estimates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from scalar_filter import update

from hyroads.controller.core.estimate.filter_bank import FilterBank
from hyroads.controller.core.estimate.filters import EstimateError, Filtered, FilterSettings, Quality
from hyroads.controller.core.estimate.link_estimate import LinkEstimator, LinkSettings, Sample, Source

SIZE = 4

samples = st.lists(
    st.tuples(st.integers(0, SIZE - 1), st.floats(0.0, 200.0), st.sampled_from([0.0, 0.05, 0.1, 0.5, 4.0])),
    max_size=60,
)
filter_settings = st.builds(
    FilterSettings,
    tau_s=st.floats(0.1, 3.0),
    window=st.integers(1, 5),
    jump_samples=st.integers(1, 4),
    step_samples=st.sampled_from([(), (3,), (5, 8)]),
)


def agree(found: Filtered | None, expected: Filtered | None) -> None:
    if expected is None or found is None:
        assert found is expected
        return
    assert (found.count, found.recent, found.time_s) == (expected.count, expected.recent, expected.time_s)
    for part in ("mean", "variance", "weight"):
        assert getattr(found, part) == pytest.approx(getattr(expected, part), rel=1e-9, abs=1e-6)


@settings(deadline=None, derandomize=True)
@given(samples, filter_settings, st.integers(1, 20))
def test_a_bank_is_as_many_filters(
    drawn: list[tuple[int, float, float]], constants: FilterSettings, at_once: int
) -> None:
    """Values on a grid: whether a step is seen must not depend on the last bit."""
    bank, single, time_s = FilterBank.empty(SIZE, constants), [None] * SIZE, 0.0
    rows = []
    for index, value, wait_s in drawn:
        time_s += wait_s
        rows.append((index, round(value), time_s))
        single[index] = update(single[index], round(value), time_s, constants)
    for start in range(0, len(rows), at_once):
        index, values, times_s = (np.array(column) for column in zip(*rows[start : start + at_once], strict=True))
        bank = bank.updated(index, values.astype(float), times_s, constants)
    for index in range(SIZE):
        agree(bank.at(index), single[index])


def test_a_bank_sees_the_small_steps_that_single_filters_see() -> None:
    random, constants, size = np.random.default_rng(5), FilterSettings(), 40
    level = 50.0 * np.where(np.arange(90) < 40, 1.0, random.choice([0.9, 0.92, 1.1], size)[:, None])
    values = level * random.normal(1.0, 0.02, level.shape)
    bank, single, steps = FilterBank.empty(size, constants), [None] * size, 0
    for tick in range(values.shape[1]):
        time_s = 0.1 * tick
        bank = bank.updated(np.arange(size), values[:, tick], np.full(size, time_s), constants)
        for index in range(size):
            before, single[index] = single[index], update(single[index], values[index, tick], time_s, constants)
            steps += before is not None and single[index].count < before.count
    for index in range(size):
        agree(bank.at(index), single[index])
    assert steps > size / 2, "the test must meet what it is about"


def test_a_bank_keeps_what_it_was() -> None:
    constants = FilterSettings()
    before = FilterBank.empty(2, constants).updated(np.array([1]), np.array([5.0]), np.array([0.0]), constants)
    after = before.updated(np.array([0, 1]), np.array([1.0, 9.0]), np.array([1.0, 1.0]), constants)
    assert before.at(0) is None and before.at(1) == Filtered(5.0, 0.0, 1.0, 1, (5.0,), 0.0)
    assert after.at(0) is not None
    with pytest.raises(EstimateError, match="finite"):
        before.updated(np.array([0]), np.array([np.nan]), np.array([2.0]), constants)


LINKS = {"l0": "wifi", "l1": "plc", "l2": "wifi"}
measured = st.lists(
    st.builds(
        Sample,
        link=st.sampled_from(list(LINKS)),
        source=st.sampled_from(Source),
        capacity_mbps=st.sampled_from([0.0, 5.0, 9.0, 10.0, 11.0, 40.0]),
        time_s=st.sampled_from([0.0, 0.1, 0.2, 0.3, 1.0, 5.0, 20.0]),
    ),
    max_size=40,
)


@settings(examples(200), derandomize=True)
@given(measured, st.sampled_from([0.3, 2.0, 4.0, 9.0, 31.0, 60.0]))
def test_planned_capacities_are_those_of_the_estimates(drawn: Iterable[Sample], now_s: float) -> None:
    estimates = LinkEstimator(LINKS, LinkSettings()).after(drawn).estimates(now_s)
    assert list(estimates) == list(LINKS) and len(estimates) == 3
    planned = estimates.planned_mbps(0.5, reversed(LINKS))
    for link, planned_mbps in zip(reversed(LINKS), planned.tolist(), strict=True):
        estimate = estimates[link]
        share = 0.5 if estimate.quality is Quality.STALE else 1.0
        assert planned_mbps == pytest.approx(share * (estimate.capacity_mbps or 0.0))
    assert estimates.qualities() == Counter(estimate.quality for estimate in estimates.values())
    with pytest.raises(KeyError):
        estimates["l3"]


def test_nothing_sampled_is_nothing_planned() -> None:
    estimates = LinkEstimator(LINKS).estimates(0.0)
    assert estimates.planned_mbps(0.5, LINKS).tolist() == [0.0, 0.0, 0.0]
    assert {estimate.quality for estimate in estimates.values()} == {Quality.MISSING}
    assert not LinkEstimator(LINKS).after([]).banks

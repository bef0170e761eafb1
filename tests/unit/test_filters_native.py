"""The compiled filters against the reference in Python: the same state after the same samples; no trust in input."""

from __future__ import annotations

import ctypes
from dataclasses import fields

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.core.estimate import filter_bank
from hyroads.controller.core.estimate.filter_bank import FilterBank
from hyroads.controller.core.estimate.filters import EstimateError, FilterSettings
from hyroads.controller.native import filters as library

needs_kernel = pytest.mark.skipif(library.kernel() is None, reason="the compiled kernel isn't built")
SIZE, SLOTS = 40, 40

filter_settings = st.builds(
    FilterSettings,
    tau_s=st.sampled_from([0.05, 0.3, 2.0, 30.0]),
    window=st.integers(1, 9),
    jump_samples=st.integers(1, 6),
    jump_ratio=st.sampled_from([0.0, 0.05, 0.2, 0.5]),
    jump_sigma=st.sampled_from([0.0, 1.0, 2.0]),
    step_samples=st.sampled_from([(), (3,), (5, 8), (8, 5), (4, 7, 12)]),
    step_ratio=st.sampled_from([0.0, 0.04, 0.1]),
    step_sigma=st.sampled_from([0.0, 1.0, 5.0]),
)


def slots(seed, noise, step):
    """Indices, values and times of samples per slot: noise, steps, outliers, several of a filter, old ones, silence."""
    random = np.random.default_rng(seed)
    level = random.choice([1e-3, 1.0, 50.0, 1e6], SIZE)
    for slot in range(SLOTS):
        level = np.where(random.random(SIZE) < 0.03, level * random.choice([1 / step, step, -1.0], SIZE), level)
        # The last one never has a sample; a few have several.
        once = random.permutation(SIZE - 1)[: random.integers(SIZE // 2, SIZE)]
        index = np.concatenate([once, random.choice(once, 3)])
        values = level[index] * random.normal(1.0, noise, len(index))
        values *= np.where(random.random(len(index)) < 0.02, random.choice([0.0, 10.0]), 1.0)
        times_s = 0.1 * slot + random.choice([-0.2, 0.0, 0.02, 0.05, 3.0], len(index), p=[0.1, 0.3, 0.3, 0.25, 0.05])
        times_s[random.random(len(index)) < 0.02] = np.nan
        yield index, values, times_s


def agree(found, expected):
    for field in fields(FilterBank):
        mine, other = getattr(found, field.name), getattr(expected, field.name)
        assert mine.dtype == other.dtype and mine.shape == other.shape
        if field.name in ("count", "recent", "time_s"):
            np.testing.assert_array_equal(mine, other, err_msg=field.name)
    # A mean is a sum of numbers that may cancel, a variance one of their squares.
    scale = np.nanmax(np.abs(found.recent), axis=1, initial=0.0) + np.abs(expected.mean)
    assert np.all(np.abs(found.mean - expected.mean) <= 1e-12 * scale)
    assert np.all(np.abs(found.variance - expected.variance) <= 1e-12 * (expected.variance + scale**2))
    np.testing.assert_allclose(found.weight, expected.weight, rtol=1e-12)


@needs_kernel
@examples(25)
@given(seed=st.integers(0, 2**32), constants=filter_settings, noise=st.sampled_from([0.0, 0.02, 0.3]),
       step=st.sampled_from([1.05, 1.1, 2.0]))  # fmt: skip
def test_both_give_the_same(seed, constants, noise, step):
    found = expected = FilterBank.empty(SIZE, constants)
    for samples in slots(seed, noise, step):
        found = found.updated(*samples, constants)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(filter_bank, "kernel", lambda: None)
            expected = expected.updated(*samples, constants)
        agree(found, expected)
    assert found.count[-1] == 0 and found.at(SIZE - 1) is None


def test_what_is_compared_has_jumps_and_steps_and_old_samples(monkeypatch):
    """The law above meets what it is about, with the usual settings."""
    again_from, seen, old = filter_bank._again, set(), 0

    def recorded(*arguments):
        again, level = again_from(*arguments)
        seen.update(again.tolist())
        return again, level

    monkeypatch.setattr(filter_bank, "_again", recorded)
    monkeypatch.setattr(filter_bank, "kernel", lambda: None)
    constants = FilterSettings()
    for seed in range(3):
        bank = FilterBank.empty(SIZE, constants)
        for index, values, times_s in slots(seed, 0.01, 1.06):
            old += np.count_nonzero(~(times_s > bank.time_s[index]))
            bank = bank.updated(index, values, times_s, constants)
    assert seen >= {0, 3, 5} and old > 30


def test_without_the_library_arrays_are_used(monkeypatch):
    used = []
    update = filter_bank._update
    monkeypatch.setattr(filter_bank, "_update", lambda *arguments: (used.append(len(arguments[1])), update(*arguments)))
    constants = FilterSettings()
    bank = FilterBank.empty(2, constants)
    samples = np.array([1, 1]), np.array([5.0, 7.0]), np.array([0.0, 0.1])
    with monkeypatch.context() as patch:
        patch.setattr(filter_bank, "kernel", lambda: None)
        assert bank.updated(*samples, constants).at(1).mean == 5.5 and used == [1, 1]
    assert bank.updated(*samples, constants).at(1).mean == 5.5
    assert used == ([1, 1] if library.kernel() is not None else [1, 1, 1, 1])
    # A bank made for fewer samples is the reference's.
    more, before = FilterSettings(window=20), len(used)
    assert bank.updated(*samples, more).count.tolist() == [0, 2] and len(used) == before + 2


@pytest.mark.parametrize("which", ["as it is", "arrays"])
@pytest.mark.parametrize("at", [-1, 2, 2**40])
def test_a_filter_that_there_is_not_is_an_error(which, at, monkeypatch):
    if which == "arrays":
        monkeypatch.setattr(filter_bank, "kernel", lambda: None)
    bank = FilterBank.empty(2, FilterSettings())
    with pytest.raises(EstimateError, match="none of the 2 filters"):
        bank.updated(np.array([0, at]), np.ones(2), np.zeros(2), FilterSettings())


def request(**changed):
    """Arrays of two filters with four recent samples and of a sample, and numbers; with changes."""
    bank = FilterBank.empty(2, FilterSettings(window=4, jump_samples=4, step_samples=()))
    fields_of = {field.name: getattr(bank, field.name).copy() for field in fields(bank)}
    fields_of["recent"] = fields_of["recent"].reshape(-1)
    samples = {"index": np.array([1]), "values": np.array([5.0]), "times_s": np.array([0.0])}
    whole = {**fields_of, **samples, "step_samples": np.array([3, 4], dtype=np.uint64)}
    numbers = {"columns": 4, "window": 3, "jump_samples": 3, "tau_s": 2.0}
    ratios = dict.fromkeys(("jump_ratio", "jump_sigma", "step_ratio", "step_sigma"), 0.1)
    everything = {**whole, **numbers, **ratios, **changed}
    return {name: everything.pop(name) for name in whole}, everything


WRONG = [
    {"index": np.array([2])},
    {"index": np.array([-1])},
    {"index": np.array([1, 1])},
    {"index": np.array([1], dtype=np.int32)},
    {"values": np.array([np.nan])},
    {"values": np.array([np.inf])},
    {"values": np.zeros(0)},
    {"times_s": np.zeros(2)},
    {"mean": np.zeros(3)},
    {"variance": np.zeros(1)},
    {"weight": np.zeros(0)},
    {"count": np.zeros(2)},
    {"count": np.zeros(1, dtype=np.int64)},
    {"time_s": np.zeros(4)[::2]},
    {"recent": np.zeros(7)},
    {"recent": np.zeros((2, 4))},
    {"columns": 0},
    {"columns": 2**63},
    {"window": 0},
    {"window": 5},
    {"jump_samples": 0},
    {"jump_samples": 2**64 - 1},
    {"step_samples": np.array([2], dtype=np.uint64)},
    {"step_samples": np.array([2**64 - 1], dtype=np.uint64)},
]


@needs_kernel
@pytest.mark.parametrize("wrong", WRONG, ids=[f"{name} {number}" for number, one in enumerate(WRONG) for name in one])
def test_it_refuses_what_does_not_fit_together(wrong):
    kernel = library.kernel()
    arrays, numbers = request(**wrong)
    before = {name: array.copy() for name, array in arrays.items()}
    with pytest.raises(ValueError, match="refused"):
        kernel.update(arrays, **numbers)
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, before[name])


@needs_kernel
def test_it_takes_any_number_for_a_setting_and_no_request_at_all_for_none():
    kernel = library.kernel()
    for number in (np.nan, np.inf, -np.inf, 0.0, -1.0):
        for name in ("tau_s", "jump_ratio", "jump_sigma", "step_ratio", "step_sigma"):
            arrays, numbers = request(index=np.ones(20, int), values=np.arange(20.0), times_s=np.arange(20.0))
            kernel.update(arrays, **{**numbers, name: number})
            assert arrays["recent"][-1] == 19.0 and arrays["count"][1] > 0
    assert kernel.library.hyroads_filters(None) == 2
    assert kernel.library.hyroads_filters(ctypes.byref(library._Request(size=1))) == 2


def test_a_library_of_another_version_is_not_used(monkeypatch):
    monkeypatch.setattr(library, "ABI_VERSION", library.ABI_VERSION + 1)
    assert library.load_kernel() is None

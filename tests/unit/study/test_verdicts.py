"""Three outcomes of a check, and intervals that hold their own figure and are no narrower with fewer runs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hyroads.controller.study import routing
from hyroads.controller.study.contenders import BLOCK, Course, above_for_good, first_crossing, first_trial
from hyroads.controller.study.intervals import (
    NO_INTERVAL,
    interval_of,
    interval_of_mean,
    interval_of_passage,
    interval_of_share,
)
from hyroads.controller.study.schemes import Scheme
from hyroads.controller.study.verdicts import Band, Check, Verdict, about, above, at_most, count, summary

VALUES = st.lists(st.floats(-100.0, 100.0), min_size=1, max_size=40).map(np.array)


@pytest.mark.parametrize(
    ("interval", "verdict"),
    [
        ((0.96, 1.04), Verdict.MET),
        ((1.06, 1.2), Verdict.MISSED),
        ((0.5, 0.94), Verdict.MISSED),
        ((0.9, 1.0), Verdict.UNDECIDED),
        ((0.0, 9.0), Verdict.UNDECIDED),
        (NO_INTERVAL, Verdict.UNDECIDED),
        ((math.nan, math.nan), Verdict.UNDECIDED),
    ],
)
def test_a_check_is_met_only_if_the_whole_interval_is_inside_the_band(interval, verdict) -> None:
    assert Check("x", about(1.0), None, interval).verdict is verdict


def test_ends_infinite_figures_and_exact_ones() -> None:
    assert Check("x", above(0.5), 0.5).verdict is Verdict.MISSED
    assert Check("x", at_most(3), 3).verdict is Verdict.MET
    assert Check("x", at_most(3), None).verdict is Verdict.UNDECIDED
    assert Check("x", Band(low=9.0), None, (10.0, math.inf)).verdict is Verdict.MET
    assert "1 of 1 met" in summary([Check("x", at_most(3), 3)])


def test_an_interval_that_does_not_hold_its_figure_is_refused() -> None:
    with pytest.raises(ValueError, match="does not hold 7"):
        Check("x", at_most(3), 7, (1.0, 6.0))


@settings(max_examples=25, deadline=None)
@given(VALUES, st.sampled_from([None, np.median, np.min, np.max, lambda drawn: float(len(set(drawn)))]))
def test_the_interval_of_any_statistic_holds_it(values, statistic) -> None:
    low, high = interval_of(values, statistic, draws=30)
    assert low <= (values.mean() if statistic is None else statistic(values)) <= high


@settings(max_examples=30, deadline=None)
@given(VALUES)
def test_students_interval_holds_the_mean(values) -> None:
    low, high = interval_of_mean(values)
    assert low <= values.mean() <= high


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 300), st.integers(0, 300))
def test_the_interval_of_a_share_holds_it_and_narrows(hits: int, misses: int) -> None:
    total = hits + misses
    low, high = interval_of_share(hits, total)
    assert 0.0 <= low <= (hits / total if total else 0.5) <= high <= 1.0
    again = interval_of_share(2 * hits, 2 * total)
    assert again[0] >= low - 1e-12 and again[1] <= high + 1e-12


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([first_crossing, first_trial, above_for_good]))
def test_the_interval_of_a_first_passage_holds_it(seed: int, at) -> None:
    """A bootstrap of noisy curves that creep up to a level does not: noise crosses it early in every draw."""
    rng = np.random.default_rng(seed)
    blocks = (0.85 - 0.2 / np.sqrt(np.arange(1, 301)) + rng.normal(0.0, 0.05, (8, 300))).astype(np.float32)
    course = Course(blocks.mean(axis=0, dtype=np.float64), np.zeros(300), blocks)
    for level in (0.7, 0.84, 0.85, 0.99):
        low, high = course.interval_of_trial(at, level)
        assert low <= (at(course.delivered, level) or math.inf) <= high
    assert BLOCK > 1 and interval_of_passage(course.delivered, blocks[:5], len) == (0.0, math.inf)


def flows(runs: int, seed: int) -> np.ndarray:
    """Rates of flows of which the published shares and gains of homes are about true."""
    rng = np.random.default_rng(seed)
    rows = np.full((runs, len(routing.SCHEMES)), 100.0)
    column = {scheme: number for number, scheme in enumerate(routing.SCHEMES)}
    for scheme, mean in ((Scheme.SP_WIFI, 53.0), (Scheme.MP_WIFI, 53.0), (Scheme.SP, 78.0), (Scheme.MP_MWIFI, 99.0)):
        rows[:, column[scheme]] = mean * rng.uniform(0.8, 1.2, runs)
    return rows


def test_fewer_runs_never_give_more_checks_that_are_met() -> None:
    met = []
    for runs in (1, 5, 20, 800):
        checks = routing.checks("residential", flows(runs, 1))
        met.append(sum(check.verdict is Verdict.MET for check in checks))
        if runs <= 5:
            assert met[-1] == 0 and all(count(checks, kind, Verdict.MET) == 0 for kind in {c.kind for c in checks})
    assert met == sorted(met) and met[-1] > 4, met

"""A check that falls short is a failure unless the plain lane beside the run fell short, too."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from hyroads.mininet.demos.checks import Check, DemoOptions
from hyroads.mininet.demos.verdict import Stage
from hyroads.mininet.machine import Machine, Span
from hyroads.mininet.reference import LEAST, SAMPLE_S, TOO_SLOW, Lane

STOLEN = Span(1.0, stolen=0.6, others=0.02, own=0.35, pressure_s=0.1, medium_late_s=0.5, agents_late_s=0.5)
BYTES_PER_S = 1e6


def lane(*ratios: float) -> Lane:
    """A lane that carried these shares of its rate, for a second each from 100 s on."""
    samples, forwarded = [(100.0, 0.0)], 0.0
    for second, ratio in enumerate(ratios):
        for step in range(1, 21):
            forwarded += ratio * BYTES_PER_S * SAMPLE_S
            samples.append((100.0 + second + step * SAMPLE_S, forwarded))
    return Lane(tuple(samples), rate_mbps=BYTES_PER_S * 8e-6)


def stage(checks: list[Check], beside: Lane) -> Stage:
    emulation = SimpleNamespace(options=SimpleNamespace(measured=False))
    made = Stage("x", emulation, DemoOptions(out=Path()), None)
    made.checks, made.lane, made.machine = checks, beside, Machine([STOLEN] * 4)
    return made


def delivered(ratio: float, during: tuple[float, float] | None = None) -> Check:
    return Check("delivered", 10.0, 10.0 * ratio, at_least=0.95, at_most=1.05, during=during)


def test_ratio_is_of_the_time_between_two_moments():
    found = lane(1.0, 0.5, 1.0, 0.0)
    assert found.ratio(100.0, 101.0) == pytest.approx(1.0, abs=0.05)
    assert found.ratio(101.1, 101.9) == pytest.approx(0.5)
    assert found.ratio(100.0, 104.0) == pytest.approx(0.625)
    assert found.worst_ratio(100.0, 103.0) == pytest.approx(0.5)
    assert found.worst_ratio(100.0, 104.0) == 0.0
    # Nothing is known of a time without samples: it excuses nothing.
    assert found.ratio(200.0, 201.0) == 1.0 == Lane().ratio(0.0, 1.0) == Lane().worst_ratio(0.0, 9.0)


def test_stolen_time_alone_excuses_no_shortfall():
    made = stage([delivered(0.9)], lane(1.0, 0.97, 1.0, 1.0))
    assert made.machine.why and made.not_made == ""
    document = json.loads(json.dumps(made.document(), allow_nan=False))
    assert (document["ok"], document["machine"]["believable"]) == (False, True)
    (entry,) = document["counter_checks"]
    assert entry["counts"] is True and entry["reference"] >= LEAST == entry["wanted"]
    assert "a failure" in made._conclusion() and made._conclusion().endswith("falls short of theory")


def test_shortfall_of_the_machine_is_not_made():
    made = stage([delivered(0.81), delivered(1.0)], lane(0.82, 0.82))
    assert made.not_made.startswith(f"{TOO_SLOW}, the plain lane beside the run carried 82% of its rate; in 4 of 4 s: ")
    assert made.document()["machine"]["believable"] is False and made.document()["ok"] is False
    assert "does not count" in made._conclusion()


def test_shortfall_on_top_of_that_of_the_machine_is_a_failure():
    assert stage([delivered(0.9 * 0.82)], lane(0.82, 0.82)).not_made == ""
    # Each of several programs in a row is late by itself.
    assert stage([delivered(0.94 * 0.82)], lane(0.82, 0.82)).not_made


def test_tcp_is_not_judged_beside_a_lane_that_fell_short():
    short = Check("TCP", 10.0, 6.0, at_least=0.85, tcp=True)
    assert stage([short], lane(0.82, 0.82)).not_made
    assert stage([short], lane(1.0, 0.97)).not_made == ""


def test_rate_is_judged_beside_the_lane_at_the_same_time():
    beside = lane(1.0, 1.0, 0.5, 0.5)
    assert stage([delivered(0.6, during=(102.1, 103.9))], beside).not_made
    assert stage([delivered(0.6, during=(100.1, 101.9))], beside).not_made == ""


def test_one_failure_among_checks_that_do_not_count_is_a_failure():
    assert stage([delivered(0.81), delivered(0.6)], lane(0.82)).not_made == ""


def test_more_than_theory_allows_is_a_failure_on_every_machine():
    assert stage([delivered(1.2)], lane(0.5)).not_made == ""


def test_times_and_losses_do_not_count_if_the_lane_had_a_moment_without_time():
    late = Check("until all is back", 1.0, 1.4, "s", at_most=1.0)
    lost = Check("lost", 0, 3, "packets", at_most=1.0)
    assert stage([late, lost], lane(1.0, 0.6, 1.0)).not_made
    assert stage([late], lane(1.0, 0.97, 1.0)).not_made == "" == stage([lost], lane(1.0, 0.97, 1.0)).not_made


def test_what_lateness_does_not_change_always_counts():
    twice = Check("flow numbers in use twice", 0, 1, "numbers", at_most=1.0)
    assert stage([twice], lane(0.1)).not_made == ""


def test_run_that_holds_has_passed_on_every_machine():
    made = stage([delivered(0.97)], lane(0.5))
    assert made.ok and made.not_made == "" and made.document()["machine"]["believable"] is True

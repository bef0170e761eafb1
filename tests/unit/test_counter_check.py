"""A check that falls short is a failure unless the plain lane beside the run fell short, too."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from hyroads.mininet.demos.checks import Check, DemoOptions
from hyroads.mininet.demos.counter_check import Judgement, deviation, judge_rates, judge_runs
from hyroads.mininet.demos.hercules import ALL_TEN
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


def test_rates_that_hold_beside_a_lane_that_fell_short_have_passed():
    made = stage([delivered(0.81), delivered(1.0)], lane(0.82, 0.82))
    assert (made.ok, made.not_made) == (True, "")
    document = made.document()
    assert (document["ok"], document["machine"]["believable"]) == (True, True)
    (entry,) = document["counter_checks"]
    assert (entry["judgement"], entry["counts"], entry["least"]) == ("holds", False, 0.95)
    assert entry["beside"] == pytest.approx(0.81 / 0.82, abs=1e-3)
    assert "holds beside it" in made._conclusion() and made._conclusion().endswith("not judged: 0")


def test_rate_too_near_to_its_bound_beside_the_lane_is_not_made():
    made = stage([delivered(0.97 * 0.95 * 0.82)], lane(0.82, 0.82))
    assert made.not_made.startswith(f"{TOO_SLOW}, the plain lane beside the run carried 82% of its rate; in 4 of 4 s: ")
    assert made.document()["machine"]["believable"] is False and made.document()["ok"] is False
    assert "too near to its bound" in made._conclusion()


def test_mean_of_more_rates_narrows_the_zone_that_is_undecided():
    fails, undecided, holds = Judgement.FAILURE, Judgement.UNDECIDED, Judgement.HOLDS
    assert [judge_rates([each]) for each in (-1.1, -0.9, 0.9, 1.1)] == [fails, undecided, undecided, holds]
    assert [judge_rates([each] * 4) for each in (-0.6, -0.4, 0.4, 0.6)] == [fails, undecided, undecided, holds]


def test_one_rate_far_below_its_bound_is_a_failure_whatever_the_rest_carry():
    assert judge_rates([-6.1, 4.0, 4.0, 4.0]) is Judgement.FAILURE
    assert judge_rates([-5.9, 4.0, 4.0, 4.0]) is Judgement.HOLDS
    # Recorded of healthy ``shares``: in its last phase other programs took the processors.
    assert judge_rates([3.41, 3.83, 2.48, -4.92, -3.77]) is Judgement.UNDECIDED
    # A single rate far above its bound does not hide that most are below theirs.
    assert judge_rates([-2.0, -2.0, -2.0, 100.0]) is Judgement.FAILURE


def test_deviation_counts_in_doubts_that_grow_with_what_the_lane_lost():
    assert deviation(0.9, 0.5, 1.0) == pytest.approx((0.9 - 0.91) / 0.05)
    assert deviation(0.9, 0.8, 1.0) == pytest.approx((0.9 - 0.964) / 0.02)
    # The bound scales it; beside a lane that carried all, the bound alone decides.
    assert deviation(0.9 * 0.95, 0.8, 0.95) == pytest.approx(deviation(0.9, 0.8, 1.0))
    assert deviation(0.995, 1.0, 1.0) == pytest.approx(-5)


# Recorded beside 20 % stolen time: (measured / (theory x lane), lane, bound); planted: agents that pace at 0.9.
RECORDED = {
    "two-flows": (
        [(0.9814, 0.831, 0.95), (1.0066, 0.83, 0.95), (1.0061, 0.83, 0.95), (0.9703, 0.831, 0.95)],
        [(0.8855, 0.834, 0.95), (0.9175, 0.833, 0.95), (0.9164, 0.833, 0.95), (0.8798, 0.828, 0.95)],
    ),
    "competing": (
        [(0.9735, 0.834, 0.95), (0.9717, 0.834, 0.95), (0.9743, 0.834, 0.95), (0.939, 0.834, 0.95)],
        [(0.873, 0.834, 0.95), (0.8725, 0.832, 0.95), (0.8759, 0.832, 0.95), (0.8523, 0.834, 0.95)],
    ),
    "shares": (
        [(found, 0.83, 0.95) for found in (0.9773, 0.9906, 0.9738, 0.8961, 0.9076)],
        [(found, 0.835, 0.95) for found in (0.8702, 0.8793, 0.8713, 0.831, 0.8452)],
    ),
    "triangle": (
        [(0.9846, 0.828, 0.95), (0.9761, 0.828, 0.95), (0.9829, 0.831, 0.95)],
        [(0.8979, 0.828, 0.95), (0.8859, 0.831, 0.95), (0.8838, 0.834, 0.95)],
    ),
    "external": (
        [(found, 0.831, 0.93) for found in (0.943, 0.9342, 0.9555, 0.944, 0.9448, 0.9371, 0.9206, 0.914)],
        [(found, 0.832, 0.93) for found in (0.8946, 0.8846, 0.8868, 0.8727, 0.9075, 0.9007, 0.8482, 0.8359)],
    ),
    "mesh": ([(0.9399, 0.834, 0.95), (0.9712, 0.833, 0.95)], [(0.8601, 0.833, 0.95), (0.8707, 0.834, 0.95)]),
    "mptcp": ([(0.9758, 0.828, 0.95)], [(0.8835, 0.834, 0.95)]),
}  # fmt: skip


def test_recorded_shortfall_of_hercules_is_found_beside_a_lane_that_lost_little():
    assert judge_rates([deviation(0.9083, 0.9613, ALL_TEN)]) is Judgement.FAILURE


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_runs_beside_stolen_time_are_decided_rightly(name: str):
    healthy, planted = ([deviation(*each) for each in runs] for runs in RECORDED[name])
    assert (judge_rates(healthy), judge_rates(planted)) == (Judgement.HOLDS, Judgement.FAILURE)


def entry(deviation: float | None, reference: float = 0.82, *, counts: bool = False) -> dict[str, object]:
    return {"deviation": deviation, "reference": reference, "counts": counts}


def test_runs_that_decide_nothing_by_themselves_decide_together():
    near, low, late = entry(0.7), entry(-0.7), entry(None)
    assert judge_runs([[near, late]]) is Judgement.UNDECIDED
    assert judge_runs([[near, late], [near], [near]]) is Judgement.HOLDS
    assert judge_runs([[low], [low], [low]]) is Judgement.FAILURE
    assert judge_runs([[late], [late], []]) is Judgement.UNDECIDED


def test_failure_beside_a_slow_lane_is_confirmed_by_a_second_run():
    failed = [entry(-1.3, counts=True), entry(None)]
    assert judge_runs([failed]) is Judgement.UNDECIDED
    assert judge_runs([failed, failed]) is Judgement.FAILURE
    assert judge_runs([failed, [entry(0.7)], failed]) is Judgement.FAILURE
    assert judge_runs([failed, [entry(0.7)], [entry(0.7)]]) is Judgement.UNDECIDED


@pytest.mark.parametrize("own", [entry(-1.3, 0.96, counts=True), entry(None, counts=True)])
def test_failure_that_the_machine_has_no_part_in_needs_no_second_run(own: dict[str, object]):
    assert judge_runs([[entry(-1.3, counts=True), own]]) is Judgement.FAILURE


def test_shortfall_on_top_of_that_of_the_machine_is_a_failure():
    made = stage([delivered(0.88 * 0.82)], lane(0.82, 0.82))
    assert (made.ok, made.not_made) == (False, "")
    # Each of several programs in a row is late by itself.
    assert stage([delivered(0.945 * 0.82)], lane(0.82, 0.82)).ok


def tcp(udp_ratio: float | None, ratio: float = 0.6) -> Check:
    udp = None if udp_ratio is None else Check("UDP", 10.0, 10.0 * udp_ratio, at_least=0.95, during=(102.1, 103.9))
    return Check("TCP", 10.0, 10.0 * ratio, at_least=0.85, during=(100.1, 101.9), adapts=True, udp=udp)


def test_tcp_that_falls_short_is_judged_by_udp_over_the_same_paths():
    beside = lane(0.82, 0.82, 0.82, 0.82)
    assert stage([tcp(0.81)], beside).ok
    planted = stage([tcp(0.73)], beside)
    assert (planted.ok, planted.not_made) == (False, "")
    assert "by UDP" in planted._conclusion()
    # UDP is judged beside the lane in its own time.
    assert not stage([tcp(0.81)], lane(0.82, 0.82, 1.0, 1.0)).ok
    # TCP that carries next to nothing is no matter of the machine alone.
    assert stage([tcp(0.81, ratio=0.2)], beside).not_made


def test_tcp_without_udp_is_not_judged_beside_a_lane_that_fell_short():
    assert stage([tcp(None)], lane(0.82, 0.82)).not_made
    assert stage([tcp(None)], lane(1.0, 0.97)).not_made == ""


def test_udp_is_measured_only_if_tcp_and_the_lane_fall_short():
    measured: list[str] = []

    def udp() -> Check:
        measured.append("udp")
        return Check("UDP", 10.0, 8.1, at_least=0.95, during=(102.1, 103.9))

    for check, beside, wanted in (
        (tcp(None, ratio=0.9), lane(0.82, 0.82), 0),
        (tcp(None), lane(1.0, 1.0), 0),
        (tcp(None), lane(0.82, 0.82, 0.82, 0.82), 1),
    ):
        made = stage([], beside)
        made.check_tcp(check, udp)
        assert len(measured) == wanted and (made.checks[0].udp is not None) == (wanted == 1)


def test_no_rate_is_decided_beside_a_lane_that_carries_next_to_nothing():
    for ratio in (0.0, 0.3, 0.5):
        made = stage([delivered(ratio)], lane(0.5, 0.5))
        assert made.not_made and not made.ok


def test_rate_is_judged_beside_the_lane_at_the_same_time():
    beside = lane(1.0, 1.0, 0.7, 0.7)
    assert stage([delivered(0.68, during=(102.1, 103.9))], beside).ok
    failed = stage([delivered(0.68, during=(100.1, 101.9))], beside)
    assert (failed.ok, failed.not_made) == (False, "")


def test_one_failure_among_checks_that_do_not_count_is_a_failure():
    assert stage([delivered(0.81), delivered(0.6)], lane(0.82)).not_made == ""


def test_more_than_theory_allows_is_a_failure_on_every_machine():
    assert stage([delivered(1.2)], lane(0.5)).not_made == ""


def test_times_and_losses_do_not_count_if_the_lane_had_a_moment_without_time():
    late = Check("until all is back", 1.0, 1.4, "s", at_most=1.0)
    lost = Check("lost", 0, 3, "packets", at_most=1.0)
    assert stage([late, lost], lane(1.0, 0.6, 1.0)).not_made
    # Beside a rate that holds, the run has passed, and the verdict lists them.
    held = stage([late, lost, delivered(0.97)], lane(1.0, 0.6, 1.0))
    assert held.ok and held._conclusion().endswith("not judged: 2")
    assert [each["judgement"] for each in held.document()["counter_checks"]] == ["open", "open"]
    assert stage([late], lane(1.0, 0.97, 1.0)).not_made == "" == stage([lost], lane(1.0, 0.97, 1.0)).not_made


def test_what_lateness_does_not_change_always_counts():
    twice = Check("flow numbers in use twice", 0, 1, "numbers", at_most=1.0)
    assert stage([twice], lane(0.1)).not_made == ""


def test_run_that_holds_has_passed_on_every_machine():
    made = stage([delivered(0.97)], lane(0.5))
    assert made.ok and made.not_made == "" and made.document()["machine"]["believable"] is True

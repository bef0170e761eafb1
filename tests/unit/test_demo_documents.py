"""Tests of demos look at checks as they are beside what the machine gave."""

from __future__ import annotations

import json

import pytest
from demo_documents import FAILED, NOT_MADE, PASSED, counter_checks_of, judged, status_of

from hyroads.mininet.reference import TOO_SLOW

CHECK = {"theory": 10.0, "measured": 7.8, "ratio": 0.78, "ok": False}


def document(**entry: object) -> dict[str, object]:
    counter = {"what": "delivered", "reference": 0.82, "counts": False, "beside": None, **entry}
    return {"checks": [{"what": "delivered", **CHECK}, {"what": "other", **CHECK}], "counter_checks": [counter]}


def test_rate_that_holds_beside_the_lane_has_its_ratio_beside_it():
    held, other = judged(document(beside=0.951))["checks"]
    assert (
        held["ok"]
        and held["ratio"] == pytest.approx(0.951 / (1 - 0.18 * 0.18))
        and held["measured"] == 10 * held["ratio"]
    )
    assert other == {"what": "other", **CHECK}
    assert judged(document(beside=1.02))["checks"][0]["ratio"] == 1.02


def test_failure_keeps_its_figures():
    assert judged(document(beside=0.85, counts=True))["checks"][0] == {"what": "delivered", **CHECK}


def test_looking_at_a_check_that_was_not_judged_ends_the_test_as_not_made(monkeypatch):
    monkeypatch.delenv("HYROADS_NOT_MADE", raising=False)
    check, _ = judged(document())["checks"]
    assert (check["what"], check["theory"]) == ("delivered", 10.0)
    for key in ("ok", "ratio", "measured"):
        with pytest.raises(pytest.skip.Exception, match="delivered was not judged"):
            check[key]


def test_counter_checks_of_output_without_a_document_are_none():
    assert counter_checks_of("") == counter_checks_of("no JSON") == counter_checks_of("[]") == []
    assert counter_checks_of("words\n" + json.dumps(document(beside=0.9)))[0]["beside"] == 0.9


def run(status: int, deviation: float, *, reference: float = 0.82) -> tuple[int, str, str]:
    counter = {"what": "delivered", "reference": reference, "deviation": deviation, "counts": status == FAILED}
    return status, json.dumps({"checks": [], "counter_checks": [counter]}), TOO_SLOW if status == NOT_MADE else ""


def test_run_that_passed_or_could_not_run_is_not_made_again():
    assert status_of([(PASSED, "", "")]) == PASSED
    assert status_of([(NOT_MADE, "", "no such network")]) == NOT_MADE
    assert status_of([(FAILED, "", "Traceback")]) == FAILED
    assert status_of([run(FAILED, -5.0), run(PASSED, 1.5)]) == PASSED


def test_failure_of_a_run_on_a_slow_machine_is_confirmed_by_another():
    assert status_of([run(FAILED, -1.5)]) is None
    assert status_of([run(FAILED, -1.5), run(FAILED, -1.5)]) == FAILED
    assert status_of([run(FAILED, -5.0, reference=0.97)]) == FAILED


def test_runs_that_stay_undecided_are_not_made():
    assert status_of([run(NOT_MADE, 0.1)] * 2) is None
    assert status_of([run(NOT_MADE, 0.1)] * 3) == NOT_MADE
    assert status_of([run(NOT_MADE, 0.7)] * 3) == PASSED
    assert status_of([run(NOT_MADE, -0.7)] * 3) == FAILED
    assert status_of([run(FAILED, -1.5), run(NOT_MADE, 0.1), run(NOT_MADE, 0.1)]) == NOT_MADE

"""Checks of a demo: bounds, the JSON document, and windows of a long run."""

import json
import math

from hyroads.mininet.demos.checks import Check, CheckedStage, DemoOptions, part_of
from hyroads.mininet.demos.triangle import ten_second_means


def test_bounds_are_on_the_ratio():
    assert Check("x", 10.0, 9.5, at_least=0.95).ok
    assert not Check("x", 10.0, 9.49, at_least=0.95).ok
    assert not Check("x", 10.0, 10.3, at_least=0.95, at_most=1.02).ok


def test_nothing_expected_and_nothing_measured_is_right_and_anything_is_wrong():
    assert Check("lost", 0, 0, "packets", at_most=1.0).ok
    wrong = Check("lost", 0, 1, "packets", at_most=1.0)
    assert not wrong.ok
    assert math.isinf(wrong.ratio)


def test_document_has_the_fixed_keys_and_is_strict_json():
    for check in (Check("x", 10.0, 9.5, at_least=0.95), Check("lost", 0, 3, at_most=1.0), Check("delay", 3, math.nan)):
        document = json.loads(json.dumps(check.document(), allow_nan=False))
        assert set(document) == {"what", "theory", "measured", "ratio", "ok"}


def test_means_over_ten_seconds():
    assert ten_second_means((1.0,) * 10 + (3.0,) * 10) == [1.0, 3.0]
    assert ten_second_means((2.0, 4.0)) == [3.0]
    assert ten_second_means(()) == []


def test_a_phase_without_any_packet_has_a_verdict():
    """In which nothing is measured, instead of a division by zero."""
    check = Check("one beside the other", 1.0, part_of(0.0, 0.0), "ratio", at_least=0.95)
    assert not check.ok and check.document()["measured"] == 0
    assert part_of(1.0, 4.0) == 0.25


def test_a_demo_shows_each_check_as_it_is_made_and_all_of_them_in_the_end(capsys, tmp_path):
    stage = CheckedStage("x", DemoOptions(out=tmp_path))
    with stage.view:
        stage.check("rate", 10.0, 9.5, at_least=0.95)
        stage.skip("delay", "no clock")
        assert capsys.readouterr().out.count("ok   rate") == 1
    assert stage.finish() == 0
    assert capsys.readouterr().out.split("\n  ")[2:] == ["skip delay: no clock", "all as theory says\n"]
    stage.check("rate", 10.0, 9.4, at_least=0.95)
    assert stage.finish() == 1
    assert capsys.readouterr().out.endswith("falls short of theory\n")


def test_the_document_of_a_demo_is_all_that_stdout_gets(capsys, tmp_path):
    stage = CheckedStage("x", DemoOptions(json=True, out=tmp_path))
    assert (stage.finish(), json.loads(capsys.readouterr().out)) == (
        1,
        {"name": "x", "checks": [], "ok": False, "files": []},
    )
    stage.check("rate", 10.0, 9.5, at_least=0.95)
    assert stage.finish() == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["checks"][0]["what"] == "rate"
    assert "ok   rate" in said.err

"""``hyroads allocate``: the fixed JSON document, both modes, and clear errors."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from hyroads.controller.cli.main import main

TRIANGLE = """
nodes: {a: {role: gateway}, b: {role: ap}, c: {role: client}}
links:
  - {id: ab-plc, from: a, to: b, technology: plc, capacity_mbps: 10, both: true}
  - {id: ab-wifi, from: a, to: b, technology: wifi, capacity_mbps: 15, both: true}
  - {id: bc-wifi, from: b, to: c, technology: wifi, capacity_mbps: 30, both: true}
interference: {rule: technology}
"""
FIXED = "flows:\n  - {id: f1, from: a, to: c, paths: [[ab-plc, bc-wifi], [ab-wifi, bc-wifi]]}\n"
PLANNED = "flows:\n  - {id: f1, from: a, to: c}\n"
SINGLE = "flows:\n  - {id: f1, from: a, to: c, policy: single}\n"


@pytest.fixture
def write(tmp_path: Path):
    def write(flows: str) -> str:
        path = tmp_path / "net.yaml"
        path.write_text(TRIANGLE + flows)
        return str(path)

    return write


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict:
    assert main(["allocate", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("flows", [FIXED, PLANNED])
def test_document_of_the_triangle(write, capsys, flows: str) -> None:
    report = run(capsys, write(flows), "--margin", "0.1")
    assert set(report) == {"flows", "utility", "max_airtime", "slots"}
    assert report["slots"] == 1
    flow = report["flows"]["f1"]
    assert flow["rate_mbps"] == pytest.approx(15.0)
    rates = {tuple(path["links"]): path["rate_mbps"] for path in flow["paths"]}
    assert rates == pytest.approx({("ab-plc", "bc-wifi"): 9.0, ("ab-wifi", "bc-wifi"): 6.0})
    assert report["utility"] == pytest.approx(math.log(16.0))
    assert report["max_airtime"] == pytest.approx(0.9)


def test_policy_single_takes_one_path(write, capsys) -> None:
    flow = run(capsys, write(SINGLE))["flows"]["f1"]
    assert [path["links"] for path in flow["paths"]] == [["ab-plc", "bc-wifi"]]
    assert flow["rate_mbps"] == pytest.approx(10.0)


def test_margin_of_the_file_is_the_default(write, capsys) -> None:
    path = write(FIXED + "margin: 0.5\n")
    assert run(capsys, path)["max_airtime"] == pytest.approx(0.5)
    assert run(capsys, path, "--margin", "0")["max_airtime"] == pytest.approx(1.0)


def test_controller_mode_comes_near_and_counts_slots(write, capsys) -> None:
    report = run(capsys, write(FIXED), "--mode", "controller", "--slots", "2000")
    assert report["slots"] == 2000
    assert report["flows"]["f1"]["rate_mbps"] == pytest.approx(50 / 3, rel=0.01)
    assert run(capsys, write(FIXED), "--mode", "controller", "--slots", "3")["slots"] == 3


def test_controller_mode_says_whether_it_has_converged(write, capsys) -> None:
    path = write(FIXED)
    report = run(capsys, path, "--mode", "controller")
    assert set(report) == {"flows", "utility", "max_airtime", "slots", "converged"}
    assert report["converged"] is True
    assert main(["allocate", path, "--mode", "controller", "--slots", "1000"]) == 0
    told = capsys.readouterr()
    assert "CONVERGED" not in told.out
    assert told.err == ""


@pytest.mark.parametrize("slots", ["1", "12", "30"])
def test_rates_on_the_way_are_no_result(write, capsys, slots: str) -> None:
    """After 30 slots the last rates are good, but they have only just come there."""
    path = write(FIXED)
    assert main(["allocate", path, "--mode", "controller", "--slots", slots, "--json"]) == 0
    told = capsys.readouterr()
    report = json.loads(told.out)
    assert report["converged"] is False
    assert report["slots"] == int(slots)
    assert told.err.startswith(f"hyroads allocate: {path}: not converged: ")
    assert len(told.err.splitlines()) == 1
    assert main(["allocate", path, "--mode", "controller", "--slots", slots]) == 0
    told = capsys.readouterr()
    assert [line.split(":")[0] for line in told.out.splitlines() if "CONVERGED" in line] == ["NOT CONVERGED"]
    assert len(told.err.splitlines()) == 1


def test_utility_of_minus_infinity_is_null(write, capsys) -> None:
    none = "flows:\n  - {id: f1, from: a, to: c, utility: {alpha: 2}, paths: [[ab-plc, bc-wifi]]}\n"
    report = run(capsys, write(none), "--mode", "controller", "--slots", "1")
    assert report["utility"] is None or report["utility"] < 0


def test_table_names_units(write, capsys) -> None:
    assert main(["allocate", write(FIXED)]) == 0
    out = capsys.readouterr().out
    assert "Mb/s" in out
    assert "16.667" in out


@pytest.mark.parametrize(
    ("flows", "arguments", "message"),
    [
        ("", [], "flows: expected at least one flow"),
        (FIXED, ["--margin", "1"], "margin 1: expected a share of airtime"),
        (FIXED, ["--slots", "0"], "slots 0: expected a whole number"),
        ("flows:\n  - {id: f1, from: a, to: x}\n", [], "flows"),
    ],
)
def test_bad_input_is_one_line_and_status_2(write, capsys, flows: str, arguments: list[str], message: str) -> None:
    assert main(["allocate", write(flows), *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.strip().splitlines()) == 1


GROUP = """
nodes: {c1: {role: ap}, c2: {role: ap}, m: {role: ap}, s: {role: gateway}}
links:
  - {id: c1, from: c1, to: m, technology: w1, capacity_mbps: 20}
  - {id: c2, from: c2, to: m, technology: w2, capacity_mbps: 20}
  - {id: wifi, from: m, to: s, technology: wifi, capacity_mbps: 20}
  - {id: plc, from: m, to: s, technology: plc, capacity_mbps: 20}
interference: {rule: technology}
flows:
  - {id: f1, from: c1, to: s, group: g%s}
  - {id: f2, from: c2, to: s, group: g}
  - {id: f3, from: m, to: s, paths: [[plc]]}
"""


@pytest.mark.parametrize(("mode", "first"), [("solver", ""), ("controller", ""), ("solver", ", paths: [[c1, plc]]")])
def test_flows_of_a_group_are_planned_together_and_share_a_utility(tmp_path, capsys, mode, first) -> None:
    path = tmp_path / "group.yaml"
    path.write_text(GROUP % first)
    report = run(capsys, str(path), "--mode", mode)
    flows = report["flows"].items()
    rates = {flow: entry["rate_mbps"] for flow, entry in flows}
    used = {flow: {link for path in entry["paths"] for link in path["links"][1:]} for flow, entry in flows}
    assert used["f1"] | used["f2"] == {"wifi", "plc"} and not used["f1"] & used["f2"]
    if mode == "solver":
        # max log(1 + 20 + x) + log(1 + y) with x + y = 20: y as large as it can be.
        assert sorted((rates["f1"], rates["f2"])) == pytest.approx([0, 20], abs=1e-2)
        assert report["utility"] == pytest.approx(2 * math.log(21.0), rel=1e-4)

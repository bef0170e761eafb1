"""``hyroads plan``: the document, the table, and errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hyroads.controller.cli.main import main

TRIANGLE = str(Path(__file__).parents[3] / "mininet" / "networks" / "triangle.yaml")


def planned(capsys, *arguments):
    assert main(["plan", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_triangle_document(capsys):
    document = planned(capsys, TRIANGLE, "--from", "a", "--to", "c")
    assert list(document) == ["single_path", "multipath", "arms", "optimum_mbps"]
    assert document["single_path"] == {"links": ["ab-plc", "bc-wifi"], "rate_mbps": pytest.approx(10)}
    assert document["multipath"] == {
        "paths": [
            {"links": ["ab-plc", "bc-wifi"], "rate_mbps": pytest.approx(10)},
            {"links": ["ab-wifi", "bc-wifi"], "rate_mbps": pytest.approx(20 / 3)},
        ],
        "total_mbps": pytest.approx(50 / 3),
    }
    assert document["arms"] == [
        {"paths": [["ab-plc", "bc-wifi"], ["ab-wifi", "bc-wifi"]], "total_mbps": pytest.approx(50 / 3)},
        {"paths": [["ab-wifi", "bc-wifi"]], "total_mbps": pytest.approx(10)},
    ]
    assert document["optimum_mbps"] == pytest.approx(50 / 3)


def test_options_reach_the_planner(capsys):
    ends = (TRIANGLE, "--from", "a", "--to", "c")
    assert len(planned(capsys, *ends, "--arms", "1")["arms"]) == 1
    assert len(planned(capsys, *ends, "--depth", "1")["multipath"]["paths"]) == 1
    assert len(planned(capsys, *ends, "--shortest", "1")["arms"]) == 1
    kept = planned(capsys, *ends, "--margin", "0.1")
    assert kept["optimum_mbps"] == pytest.approx(15)
    assert kept["multipath"]["total_mbps"] == pytest.approx(15)


def test_table_has_units_and_both_totals(capsys):
    assert main(["plan", TRIANGLE, "--from", "a", "--to", "c"]) == 0
    out = capsys.readouterr().out
    assert "Mb/s" in out and "16.667" in out and "a -plc-> b -wifi-> c" in out


@pytest.mark.parametrize(
    "arguments",
    [
        (TRIANGLE, "--from", "a", "--to", "z"),
        (TRIANGLE, "--from", "a", "--to", "a"),
        (TRIANGLE, "--from", "a", "--to", "c", "--margin", "2"),
        (TRIANGLE, "--from", "a", "--to", "c", "--depth", "0"),
        (TRIANGLE, "--from", "a", "--to", "c", "--shortest", "1000000"),
        ("/nonexistent.yaml", "--from", "a", "--to", "c"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(arguments, capsys):
    assert main(["plan", *arguments, "--json"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.strip().splitlines()) == 1


def test_no_route_is_one_line_and_exit_2(tmp_path, capsys):
    file = tmp_path / "net.yaml"
    file.write_text(
        "nodes: {a: {role: ap}, b: {role: ap}, c: {role: ap}}\n"
        "links: [{id: ab, from: a, to: b, technology: wifi, capacity_mbps: 5}]\n"
        "interference: {rule: technology}\n"
    )
    assert main(["plan", str(file), "--from", "a", "--to", "c", "--json"]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and "no route from 'a' to 'c'" in captured.err


def test_clients_relay_on_the_declared_graph_and_not_between_switches(tmp_path, capsys):
    file = tmp_path / "net.yaml"
    file.write_text(
        "nodes: {a: {role: ap}, b: {role: client}, c: {role: ap}}\n"
        "links:\n"
        "- {id: ab, from: a, to: b, technology: wifi, capacity_mbps: 5}\n"
        "- {id: bc, from: b, to: c, technology: wifi, capacity_mbps: 5}\n"
        "interference: {rule: technology}\n"
    )
    ends = (str(file), "--from", "a", "--to", "c")
    assert planned(capsys, *ends)["optimum_mbps"] == pytest.approx(2.5)
    assert main(["plan", *ends]) == 0
    assert "plain clients relay (b)" in capsys.readouterr().out
    assert main(["plan", *ends, "--relay", "switches"]) == 2

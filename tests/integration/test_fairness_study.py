"""``hyroads study fairness`` on a reduced run: the published figures, the hole in the proof, and what it writes."""

from __future__ import annotations

import json

from hyroads.controller.cli.main import main


def test_the_study_meets_the_published_figures(tmp_path, capsys):
    arguments = ["study", "fairness", "--quick", "--runs", "2", "--seed", "4", "--workers", "1", "--no-plots", "--json"]
    assert main([*arguments, "--out", str(tmp_path)]) == 0
    found = json.loads(capsys.readouterr().out)
    checks = found["checks"]
    assert {check["verdict"] for check in checks if check["interval"] is None} == {"met"}
    # Two runs decide nothing about random clients; what they find is as wanted.
    one_bit, count = (check for check in checks if check["interval"] is not None)
    assert one_bit["verdict"] == count["verdict"] == "undecided"
    assert one_bit["measured"] > 0.01 and count["measured"] == 0.0
    tables = {table["name"]: table["rows"] for table in found["tables"]}
    assert [row[1] for row in tables["clusters"]] == ["a", "b c", "b c", "c"]
    assert (tmp_path / "report.md").exists() and (tmp_path / "rates.csv").exists()

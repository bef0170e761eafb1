"""The studies of paths, busy time and latency, each in a short form: the same figures on any number of workers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hyroads.controller.cli.main import main
from hyroads.controller.study import busy_time, latency, latency_theorems, paths
from hyroads.controller.study.framework import Result, Settings
from hyroads.controller.study.verdicts import Kind, Verdict


def quiet(done: int, total: int) -> None:
    pass


def test_paths_by_the_command(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert main(["study", "paths", "--runs", "4", "--workers", "1", "--no-plots", "--out", str(out), "--json"]) == 0
    # The solver's own lines would spoil the document.
    document = json.loads(capfd.readouterr().out)
    rows = {row[0]: row for row in document["tables"][0]["rows"]}
    assert set(rows) == {1, 2, 3, 4}
    # Three media that all nodes share, each connected: three paths (99.4 % of networks as published).
    assert rows[1][2] == 0.0 and rows[1][5] == 1.0
    assert {Path(file).name for file in document["files"]} >= {"report.md", "paths.csv", "count.csv", "error.csv"}


def test_paths_do_not_depend_on_the_workers() -> None:
    one, two = (paths.run(Settings(runs=2, seed=5, workers=workers), quiet) for workers in (1, 2))
    assert one.tables[0].rows == two.tables[0].rows


def test_busy_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(busy_time, "QUICK_RUN_S", 2.0)
    result = busy_time.run(Settings(runs=30, quick=True), quiet)
    open_ = [check for check in result.checks if check.verdict is not Verdict.MET]
    assert len(result.checks) == 12 and not open_, open_
    assert [plot.name for plot in result.plots] == ["wifi", "plc", "lemma-1"]


def test_latency(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency, "QUICK_EVENTS", 8000)
    monkeypatch.setattr(latency, "QUICK_RELAXATIONS", 1.0)
    monkeypatch.setattr(latency, "WARM_UP_RELAXATIONS", 1.0)
    monkeypatch.setattr(latency, "QUICK_PAIRS", 20)
    result: Result = latency.run(Settings(runs=2, quick=True, workers=1), quiet)
    # The formula's figures and the statements do not depend on the length of the runs.
    sure = [check for check in result.checks if "packets" not in check.what and check.interval is None]
    assert sum(check.kind is Kind.PUBLISHED for check in sure) == 15
    missed = [check for check in sure if check.verdict is not Verdict.MET]
    assert all(check.kind is Kind.PUBLISHED and check.why for check in missed), missed
    # Twenty pairs, none of them wrong, are too few to show that next to none is.
    statements = [check for check in result.checks if "pairs wrong" in check.what]
    assert len(statements) == len(latency_theorems.STATEMENTS)
    assert {(check.measured, check.verdict) for check in statements} == {(0.0, Verdict.UNDECIDED)}
    ratios = [row[6] / row[5] for row in result.tables[1].rows]
    assert np.median(ratios) == pytest.approx(1.0, abs=0.1)
    assert all(plot.x.size for plot in result.plots if plot.name.startswith("figure"))

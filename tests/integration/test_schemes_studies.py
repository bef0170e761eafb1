"""Studies ``mesh``, ``routing`` and ``arms`` on a few runs: whole tables, and the same seed gives the same results."""

from __future__ import annotations

import pytest

from hyroads.controller.study import arms, mesh, routing
from hyroads.controller.study.framework import Result, Settings
from hyroads.controller.study.verdicts import Verdict


def quiet(done, total):
    pass


@pytest.mark.parametrize("study", [mesh, routing, arms])
def test_results_of_a_few_runs_are_whole(study, monkeypatch):
    """Tables have a cell under every heading, names of files are unique, and the seed decides everything."""
    if study is routing:
        monkeypatch.setattr(routing, "QUICK_SLOTS", 100)
    first, again = (study.run(Settings(runs=3, quick=True, seed=2), quiet) for _ in range(2))
    assert isinstance(first, Result)
    # Three runs decide nothing.
    assert {check.verdict for check in first.checks} == {Verdict.UNDECIDED}
    names = [each.name for each in (*first.tables, *first.plots)]
    assert len(set(names)) == len(names)
    for table in first.tables:
        assert all(len(row) == len(table.columns) for row in table.rows)
    assert repr(first.tables) == repr(again.tables)
    assert repr(first.checks) == repr(again.checks)

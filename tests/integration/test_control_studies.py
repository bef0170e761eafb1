"""The studies of the congestion control from beginning to end, with few runs."""

from __future__ import annotations

import pytest

from hyroads.controller.study import convergence, queues, utility
from hyroads.controller.study.framework import STUDIES, Result, Settings, study

QUICK = Settings(runs=1, quick=True)


def ignored(done: int, total: int) -> None:
    assert 0 <= done <= total


def checks_of(result: Result) -> dict[str, bool]:
    return {check.what: check.ok for check in result.checks}


@pytest.mark.parametrize("name", ["convergence", "queues", "utility"])
def test_they_are_found_by_name(name: str) -> None:
    module = study(name)
    assert name in STUDIES
    assert module.TITLE
    assert "Figure" in module.FIGURES


def test_convergence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convergence, "QUICK_BACKPRESSURE_SLOTS", 2500)
    result = convergence.run(QUICK, ignored)
    rows = {row[:2]: row for row in result.tables[0].rows}
    assert len(rows) == 4 * 5
    assert all(row[3:7] == (1.0, 1.0, 1.0, 1.0) for row in rows.values() if row[1] == convergence.SOLVER)
    assert all(row[7] == 0 for row in rows.values() if row[1] != convergence.BACKPRESSURE)
    assert all(ok for what, ok in checks_of(result).items() if "live" in what or "papers' order, homes" in what)
    assert len(result.plots) == 9


def test_queues() -> None:
    result = queues.run(QUICK, ignored)
    late = {row[:2]: row[2] for row in result.tables[0].rows}
    for setting in queues.KINDS:
        assert late[setting, queues.OPTIMAL] > 100 * late[setting, queues.SOLVER]
    assert all(ok for what, ok in checks_of(result).items() if "over those" in what)


def test_utility() -> None:
    result = utility.run(Settings(runs=2, quick=True), ignored)
    means = {row[:2]: float(row[2]) for row in result.tables[0].rows}  # type: ignore[arg-type]
    assert len(means) == 3 * len(utility.SHOWN)
    assert all(0.0 < mean <= 1.02 for mean in means.values())
    for kind in utility.KINDS:
        assert means[kind, "EMPoWER"] <= means[kind, "cons"] + 1e-6
        assert means[kind, "SP"] <= means[kind, "MP-2bp"] + 0.05

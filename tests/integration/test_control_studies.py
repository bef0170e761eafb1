"""The studies of the congestion control from beginning to end, with few runs."""

from __future__ import annotations

import pytest

from hyroads.controller.study import convergence, queues, utility
from hyroads.controller.study.framework import STUDIES, Result, Settings, study
from hyroads.controller.study.verdicts import Check, Verdict

QUICK = Settings(runs=1, quick=True)


def ignored(done: int, total: int) -> None:
    assert 0 <= done <= total


def checks_of(result: Result) -> dict[str, Check]:
    return {check.what: check for check in result.checks}


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
    made = checks_of(result)
    # One run of each kind decides nothing; what it finds is as published.
    assert {check.verdict for check in made.values()} == {Verdict.UNDECIDED}
    (live,) = (check for what, check in made.items() if "live" in what)
    (homes,) = (check for what, check in made.items() if "papers' order, homes" in what)
    assert live.measured == 1.0 and homes.measured is not None and homes.measured <= 90
    assert len(result.plots) == 9


def test_queues() -> None:
    result = queues.run(QUICK, ignored)
    late = {row[:2]: row[2] for row in result.tables[0].rows}
    for setting in queues.KINDS:
        assert late[setting, queues.OPTIMAL] > 100 * late[setting, queues.SOLVER]
    for what, check in checks_of(result).items():
        if "over those" in what:
            assert check.verdict is Verdict.UNDECIDED, "one run of each kind"
            assert check.band.verdict((check.measured, check.measured)) is Verdict.MET


def test_utility() -> None:
    result = utility.run(Settings(runs=2, quick=True), ignored)
    means = {row[:2]: float(row[2]) for row in result.tables[0].rows}  # type: ignore[arg-type]
    assert len(means) == 3 * len(utility.SHOWN)
    assert all(0.0 < mean <= 1.02 for mean in means.values())
    for kind in utility.KINDS:
        assert means[kind, "EMPoWER"] <= means[kind, "cons"] + 1e-6
        assert means[kind, "SP"] <= means[kind, "MP-2bp"] + 0.05

"""Writes the outcome of each test to the ledger of scripts/test.sh (scripts/ledger.py), where there is one.

scripts/test.sh sets HYROADS_LEDGER (a folder), HYROADS_PART and HYROADS_TRY. With pytest-xdist the process that
collects the workers' reports writes; the workers do not.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from not_made import NOT_MADE

# Guests of the part radio number their processes from 1 as well.
_PROCESS = f"{os.getpid()}-{time.time_ns()}"
# By test: the outcome so far. Set-up, call and teardown are reported one by one; the worst of them counts.
_outcomes: dict[str, dict[str, object]] = {}


def _writes() -> bool:
    return bool(os.environ.get("HYROADS_LEDGER")) and "PYTEST_XDIST_WORKER" not in os.environ


def _write(entry: dict[str, object]) -> None:
    folder = Path(os.environ["HYROADS_LEDGER"])
    folder.mkdir(parents=True, exist_ok=True)
    part, tried = os.environ.get("HYROADS_PART", "tests"), int(os.environ.get("HYROADS_TRY", "1"))
    with (folder / f"{part}-{_PROCESS}.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"part": part, "tried": tried, **entry}) + "\n")


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ").strip()


def _skipped(report: pytest.TestReport | pytest.CollectReport) -> dict[str, object]:
    reason = _reason(report)
    if reason.startswith(NOT_MADE):
        return {"outcome": "not made", "reason": reason.removeprefix(NOT_MADE).lstrip(",: ")}
    return {"outcome": "skipped", "reason": reason}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """One phase of a test."""
    if not _writes():
        return
    entry = _outcomes.setdefault(report.nodeid, {"test": report.nodeid, "outcome": "passed", "seconds": 0.0})
    entry["seconds"] = round(float(str(entry["seconds"])) + report.duration, 2)
    if report.failed:
        entry["outcome"] = "failed"
    elif report.skipped and entry["outcome"] == "passed":
        is_expected = hasattr(report, "wasxfail")
        entry.update({"reason": _reason(report)} if is_expected else _skipped(report))
    # A worker that crashed reports its test by a phase of its own, and no teardown.
    if report.when not in ("setup", "call"):
        _write(_outcomes.pop(report.nodeid))


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """A file that is skipped as a whole, or cannot be imported."""
    if not _writes() or report.passed:
        return
    outcome = _skipped(report) if report.skipped else {"outcome": "failed", "reason": "cannot be collected"}
    _write({"test": report.nodeid, **outcome})

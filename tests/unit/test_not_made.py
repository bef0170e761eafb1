"""Scenario tests on a machine that is too slow: made three times, then skipped with the reason, and in the ledger."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hyroads.mininet.reference import TOO_SLOW

pytest_plugins = "pytester"
SCENARIO = Path(__file__).parents[1] / "scenario" / "conftest.py"
COMMAND = """
import pathlib, sys
runs = pathlib.Path({runs!r})
runs.write_text(runs.read_text() + "x")
if len(runs.read_text()) < {believed_at}:
    print({words!r}, file=sys.stderr)
    sys.exit(2)
"""
CONFTEST = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("scenario", {scenario!r})
scenario = importlib.util.module_from_spec(spec)
sys.modules["scenario"] = scenario
spec.loader.exec_module(scenario)
scenario.HYROADS = [sys.executable, "-IS", {command!r}]
# Locks of its own: nobody else waits for this test, nor does it for others.
scenario._TURN, scenario._DOOR = (open({command!r} + end, "a") for end in (".turn", ".door"))
from ledger_hooks import pytest_collectreport, pytest_runtest_logreport
from scenario import hyroads
"""
TEST = "def test_it(hyroads):\n    assert hyroads('demo').returncode == 0\n"


Run = Callable[..., tuple[str, int, list[dict[str, Any]]]]


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """What pytest says, how often the command ran, entries not made; the command holds in the run ``believed_at``."""
    folder = pytester.path
    runs, ledger, command = folder / "runs", folder / "ledger", folder / "command.py"
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("HYROADS_LEDGER", str(ledger))
    # A worker of pytest-xdist leaves writing to the process that started it; the inner pytest has none.
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)

    def run(believed_at: int, words: str, if_not_made: str = "") -> tuple[str, int, list[dict[str, Any]]]:
        monkeypatch.setenv("HYROADS_NOT_MADE", if_not_made)
        runs.write_text("")
        shutil.rmtree(ledger, ignore_errors=True)
        command.write_text(COMMAND.format(runs=str(runs), believed_at=believed_at, words=words))
        pytester.makeconftest(CONFTEST.format(scenario=str(SCENARIO), command=str(command)))
        pytester.makepyfile(test_it=TEST)
        done = pytester.runpytest_inprocess("-q", "-rs", "-p", "no:cacheprovider")
        lines = [json.loads(line) for path in ledger.iterdir() for line in path.read_text().splitlines()]
        return done.stdout.str(), len(runs.read_text()), [entry for entry in lines if entry["outcome"] == "not made"]

    return run


SLOW = f"hyroads: demo x not made: {TOO_SLOW}, in 3 of 9 s: at worst 40% of the processors stolen"


def test_it_is_made_again_until_the_machine_can_be_believed(run: Run) -> None:
    said, runs, listed = run(believed_at=3, words=SLOW)
    assert "1 passed" in said and runs == 3 and listed == []


def test_what_was_never_made_is_skipped_and_listed(run: Run) -> None:
    said, runs, listed = run(believed_at=9, words=SLOW)
    assert "1 skipped" in said and "not made, 3 times: " in said and runs == 3
    (entry,) = listed
    assert entry["test"] == "test_it.py::test_it" and SLOW in entry["reason"]


def test_what_has_failed_once_must_be_made(run: Run) -> None:
    said, runs, listed = run(believed_at=9, words=SLOW, if_not_made="fail")
    assert "1 failed" in said and runs == 3 and listed == []


def test_what_could_not_run_for_another_reason_fails_at_once(run: Run) -> None:
    said, runs, _ = run(believed_at=9, words="hyroads: controller not ready within 30 s")
    assert "1 failed" in said and runs == 1

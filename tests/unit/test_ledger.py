"""The ledger of scripts/test.sh: what it counts, what it names, and when it fails the run."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

pytest_plugins = "pytester"
SCRIPT = Path(__file__).parents[2] / "scripts" / "ledger.py"
SUPPORT = str(Path(__file__).parents[1] / "support")
HOOKS = f"import sys\nsys.path.append({SUPPORT!r})\nfrom ledger_hooks import *\n"
TESTS = """
import os, pytest
def test_passes(): pass
def test_flaky(): assert os.environ["HYROADS_TRY"] == "2"
def test_fails(): assert False
@pytest.mark.skip(reason="needs Faucet")
def test_skipped(): pass
def test_machine(): pytest.skip("not made, 3 times: too slow")
@pytest.fixture
def broken():
    yield
    assert os.environ["HYROADS_TRY"] == "2"
def test_teardown(broken): pass
"""
RUST = """
running 3 tests
F.i
failures:

---- edge::pace::tests::late stdout ----
thread panicked

failures:
    edge::pace::tests::late

test result: FAILED. 466 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; finished in 9.40s
"""
AGAIN = "running 1 test\n.\ntest result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 468 filtered out\n"


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("ledger_script", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "ledger_script", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "FOLDER", tmp_path / "ledger")
    monkeypatch.setattr(module, "SUMMARY", tmp_path / "build" / "ledger.json")
    return module


@pytest.fixture
def run(ledger: ModuleType, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    monkeypatch.setenv("HYROADS_LEDGER", str(ledger.FOLDER))
    monkeypatch.setenv("HYROADS_PART", "unit")
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makeconftest(HOOKS)
    pytester.makepyfile(test_it=TESTS, test_module="import pytest\npytest.importorskip('nothing', reason='needs etcd')")

    def run(tried: int, *more: str) -> None:
        monkeypatch.setenv("HYROADS_TRY", str(tried))
        pytester.runpytest_inprocess("-q", *more)

    return run


@pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n", "2")])
def test_second_try_is_named_and_the_last_outcome_counts(
    ledger: ModuleType, run: Callable[..., None], workers: tuple[str, ...]
) -> None:
    run(1, *workers)
    run(2, "--last-failed")
    found = ledger.summarise(ledger.read(ledger.FOLDER))
    assert found.passed == 1
    assert sorted(line.test for line in found.second) == ["test_it.py::test_flaky", "test_it.py::test_teardown"]
    assert [line.test for line in found.failed] == ["test_it.py::test_fails"]
    assert sorted(line.reason for line in found.skipped) == ["needs Faucet", "needs etcd"]
    assert [(line.test, line.reason) for line in found.not_made] == [("test_it.py::test_machine", "3 times: too slow")]
    assert found.ran == 4


def test_rust_tests_that_pass_at_the_second_try_are_named(ledger: ModuleType, tmp_path: Path) -> None:
    said = tmp_path / "said"
    for tried, text in ((1, RUST), (2, AGAIN)):
        said.write_text(text)
        assert ledger.main(["rust", str(said), str(tried)]) == 0
    found = ledger.summarise(ledger.read(ledger.FOLDER))
    assert (found.passed, [line.test for line in found.second]) == (466, ["edge::pace::tests::late"])
    assert [(line.count, line.part) for line in found.skipped] == [(2, "rust-test")] and not found.failed


@pytest.mark.parametrize("again", [RUST, "error: could not compile\n"])
def test_rust_test_that_does_not_pass_again_stays_failed(ledger: ModuleType, tmp_path: Path, again: str) -> None:
    said = tmp_path / "said"
    for tried, text in ((1, RUST), (2, again)):
        said.write_text(text)
        ledger.main(["rust", str(said), str(tried)])
    found = ledger.summarise(ledger.read(ledger.FOLDER))
    assert [line.test for line in found.failed] == ["edge::pace::tests::late"] and not found.second


@pytest.mark.parametrize(("second", "status"), [(5, 0), (6, 1)])
def test_more_than_half_a_percent_of_second_tries_fails(
    ledger: ModuleType, capsys: pytest.CaptureFixture[str], second: int, status: int
) -> None:
    lines = [ledger.Line("unit", "rest", "passed", count=1000 - second)]
    for number in range(second):
        lines += [ledger.Line("unit", f"t{number}", "failed"), ledger.Line("unit", f"t{number}", "passed", 2)]
    ledger.append(lines)
    assert ledger.main(["show", "--judge"]) == status
    assert ledger.main(["show"]) == 0
    said = capsys.readouterr().out
    assert f"passed at the second try: {second} (0.{second}0% of 1000 that ran)" in said and "unit t0 (0.0 s)" in said
    assert json.loads(ledger.SUMMARY.read_text())["too_many_second_tries"] is bool(status)


def test_reasons_of_skipped_tests_are_listed_with_their_numbers(ledger: ModuleType) -> None:
    for name in ("a", "b"):
        ledger.main(["add", "integration", "skipped", name, "needs Faucet"])
    ledger.main(["add", "radio", "skipped", "the guest kernel", "no guest kernel"])
    said = ledger.report(ledger.summarise(ledger.read(ledger.FOLDER)))
    assert "skipped: 3\n    2 x needs Faucet\n    1 x no guest kernel\nnot made: 0" in said


def test_line_of_a_process_that_was_killed_is_left_out(ledger: ModuleType) -> None:
    ledger.append([ledger.Line("unit", "t", "passed")])
    (path,) = ledger.FOLDER.iterdir()
    with path.open("a") as file:
        file.write('{"part": "unit", "te')
    assert ledger.summarise(ledger.read(ledger.FOLDER)).passed == 1

"""Live studies on real packets: rows are measured once, and nothing is left of their networks, however they end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import uuid
from pathlib import Path

import pytest

from hyroads.controller.cli.study import MISSES_REFERENCE
from hyroads.controller.study.framework import STUDIES

pytest.importorskip("mininet")

EXAMPLE = "live-example"
# A quick run takes less than a minute on a quiet machine, much longer on one that runs much else.
WITHIN_S = 240.0
MARK = "HYROADS_TEST_MARK"


def words(study: str, folder: Path) -> tuple[str, ...]:
    rows, out = folder / "rows.jsonl", folder / "out"
    return ("study", study, "--quick", "--no-plots", "--rows", str(rows), "--out", str(out))


def quick(hyroads, study: str, folder: Path) -> dict[str, dict]:
    """Checks of a quick run, by what they check; skipped where the machine was too slow to be believed."""
    done = hyroads(*words(study, folder), "--json", timeout_s=WITHIN_S)
    if done.returncode != 0 and "too slow to be believed" in done.stderr:
        pytest.skip(done.stderr)
    # A coarse run may miss our own reference.
    assert done.returncode in (0, MISSES_REFERENCE), done.stderr
    return {check["what"]: check for check in json.loads(done.stdout)["checks"]}


def marked(mark: str) -> list[str]:
    """Command lines of all processes that were started with this in their environment, themselves or by others."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (path / "environ").read_bytes().split(b"\0"):
                found.append((path / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


def begin(lab, study: str, folder: Path, mark: str) -> subprocess.Popen[str]:
    """A quick run in the background."""
    return subprocess.Popen(
        [*lab.hyroads, *words(study, folder)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, MARK: mark, "TMPDIR": str(folder)},
    )


def ended_by(lab, number: signal.Signals, folder: Path, after_s: float) -> None:
    """A run that gets a signal some time after its namespaces are there: nothing of it is left."""
    mark = uuid.uuid4().hex
    process = begin(lab, EXAMPLE, folder, mark)
    try:
        assert lab.wait_for(lambda: bool(lab.namespaces(EXAMPLE)), 150.0), process.communicate()
        time.sleep(after_s)
        assert marked(mark)
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130, said
    assert "Traceback" not in said
    assert lab.wait_for(lambda: not marked(mark), 5.0), marked(mark)
    assert not lab.leftovers(EXAMPLE)
    assert not list(folder.glob("hyroads-live-*")), "its temporary folder"


@pytest.mark.slow
def test_a_study_that_is_ended_leaves_nothing_and_then_measures_its_row_once(lab, hyroads, tmp_path):
    ended_by(lab, signal.SIGTERM, tmp_path, 0.5)
    checks = quick(hyroads, EXAMPLE, tmp_path)
    assert 0.2 < checks["gain of both paths over path 1 only"]["measured"] < 0.7
    rows = tmp_path / "rows.jsonl"
    kept = rows.read_bytes()
    again = hyroads(*words(EXAMPLE, tmp_path), timeout_s=30.0)
    assert again.returncode == 0, again.stderr
    assert rows.read_bytes() == kept, "what is there is not measured again"
    assert not lab.leftovers(EXAMPLE)


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("after_s", [0.0, 3.0, 12.0])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT], ids=lambda each: each.name)
def test_every_signal_ends_all_that_a_study_has_started(lab, tmp_path, number, after_s):
    ended_by(lab, number, tmp_path, after_s)


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("study", [name for name in STUDIES if name.startswith("live-") and name != EXAMPLE])
def test_every_live_study_runs_to_its_end(lab, hyroads, tmp_path, study):
    checks = quick(hyroads, study, tmp_path)
    # A coarse run may miss a check, but measures all of them, or says why not.
    assert checks and all(check["measured"] is not None or check["why"] for check in checks.values())
    assert not lab.leftovers(study)
    kept = (tmp_path / "rows.jsonl").read_bytes()
    rows = [json.loads(line) for line in kept.splitlines()]
    assert rows and all(row["study"] == study and row["made"] and row["figures"] for row in rows)
    assert "Published and ours" in (tmp_path / "out" / "report.md").read_text()
    again = hyroads(*words(study, tmp_path), timeout_s=30.0)
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "rows.jsonl").read_bytes() == kept

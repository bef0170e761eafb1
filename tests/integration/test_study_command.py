"""The command ``hyroads study`` as a user runs it: interrupted, all studies, repetitions, bad input."""

from __future__ import annotations

import csv
import json
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import small_study

from hyroads.controller.cli.main import main
from hyroads.controller.study import fairness, framework
from hyroads.controller.study.framework import Settings, StudyError
from hyroads.controller.study.task_store import NAME

# The command as another process runs it, with the small study beside the others.
HYROADS = [
    sys.executable,
    "-c",
    f"import sys; sys.path.insert(0, {str(Path(small_study.__file__).parent)!r})\n"
    "from hyroads.controller.cli.main import main; from hyroads.controller.study.framework import STUDIES\n"
    "STUDIES['small'] = 'small_study'\n"
    "if __name__ == '__main__': sys.exit(main())",
]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def runs(pid: int) -> bool:
    """Whether a process has not ended. One that has ended stays in the table of processes until its new parent, process
    1, looks at it; in a container that may never happen.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=["interrupted", "killed"])
def test_the_same_command_goes_on_after_an_interrupt(tmp_path: Path, how: signal.Signals) -> None:
    """The files are those of a run that was not interrupted, and processes that worked for it are gone."""
    arguments = ["study", "small", "--workers", "2", "--no-plots", "--out"]
    process = subprocess.Popen([*HYROADS, *arguments, str(tmp_path / "a")], stderr=subprocess.PIPE, text=True)
    rows = tmp_path / "a" / NAME
    until = time.monotonic() + 60
    while not rows.exists() or rows.read_bytes().count(b"\n") < 4:
        assert process.poll() is None and time.monotonic() < until
        time.sleep(0.05)
    children = [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
    process.send_signal(how)
    error = process.communicate(timeout=30)[1]
    assert [path.name for path in (tmp_path / "a").iterdir()] == [NAME]
    if how is signal.SIGINT:
        assert process.returncode == 130 and "interrupted; the same command goes on" in error
    until = time.monotonic() + 20
    while any(runs(pid) for pid in children):
        assert time.monotonic() < until
        time.sleep(0.1)
    kept = rows.read_bytes().count(b"\n") - 1
    again = subprocess.run([*HYROADS, *arguments, str(tmp_path / "a")], check=True, capture_output=True, text=True)
    assert f"{kept} finished tasks of an earlier run were taken up" in again.stdout
    subprocess.run([*HYROADS, *arguments, str(tmp_path / "b")], check=True, capture_output=True)
    assert contents(tmp_path / "a") == contents(tmp_path / "b") and NAME not in contents(tmp_path / "a")


@pytest.fixture
def small(monkeypatch) -> None:
    """The small study, and fairness as one that can be made to fail."""
    for name in [each for each in framework.STUDIES if each != "fairness"]:
        monkeypatch.delitem(framework.STUDIES, name)
    monkeypatch.setitem(framework.STUDIES, small_study.NAME, small_study.MODULE)


def fails(settings: Settings, progress) -> None:
    raise StudyError("out of luck")


def test_all_goes_on_after_a_study_failed_and_says_so(tmp_path: Path, capsys, monkeypatch, small) -> None:
    monkeypatch.setattr(fairness, "run", fails)
    arguments = ["study", "all", "--quick", "--runs", "3", "--workers", "1", "--no-plots", "--out", str(tmp_path)]
    assert main(arguments) == 1
    said = capsys.readouterr().out.splitlines()
    met = "published: 1 of 1 met, 0 missed, 0 undecided"
    assert said[:2] == ["fairness: FAILED: out of luck", f"small: {met}"]
    overview = (tmp_path / "report.md").read_text()
    assert f"| [small](small/report.md) | none | {met} |" in overview and "| failed |" in overview
    # Only what failed is worked out again; then nothing is kept any more.
    assert (tmp_path / "small" / NAME).exists()
    monkeypatch.setattr(fairness, "run", small_study.run)
    assert main(arguments) == 0
    assert "small: 3 finished tasks of an earlier run were taken up" in capsys.readouterr().out.splitlines()
    assert not list(tmp_path.rglob(NAME))


def test_repetitions_have_means_and_intervals(tmp_path: Path, capsys, small) -> None:
    arguments = ["study", "small", "--runs", "3", "--workers", "1", "--no-plots", "--seed", "7"]
    assert main([*arguments, "--repeat", "3", "--out", str(tmp_path / "k"), "--json"]) == 0
    [check] = json.loads(capsys.readouterr().out)["checks"]
    assert main([*arguments, "--out", str(tmp_path / "one")]) == 0
    assert contents(tmp_path / "one") == contents(tmp_path / "k" / "seed-7")
    values = []
    for seed in (7, 8, 9):
        with (tmp_path / "k" / f"seed-{seed}" / "summary.csv").open() as file:
            values.append(float(next(csv.DictReader(file))["mean"]))
    half = 4.302652729911275 * np.std(values, ddof=1) / np.sqrt(3)  # Student's t, 2 degrees of freedom
    assert check["measured"] == pytest.approx(np.mean(values))
    assert check["wanted"].endswith(": 1 met, 0 missed, 2 undecided of 3")
    assert check["interval"] == pytest.approx([np.mean(values) - half, np.mean(values) + half])
    with (tmp_path / "k" / "summary.csv").open() as file:
        row = next(csv.DictReader(file))
    assert float(row["mean"]) == pytest.approx(np.mean(values)) and float(row["mean, +-"]) == pytest.approx(half)
    with (tmp_path / "k" / "lines.csv").open() as file:
        assert next(file).strip() == 'task,mean,"mean, from","mean, to"'
    # Distributions are put together.
    assert len((tmp_path / "k" / "values.csv").read_text().splitlines()) == 1 + 3 * 3 * 50
    assert "--repeat 3" in (tmp_path / "k" / "report.md").read_text()


def test_the_list_has_all_studies(capsys) -> None:
    assert main(["study", "--list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in listed] == list(framework.STUDIES) and all(each["figures"] for each in listed)
    # As it is wanted of every study on two processors.
    assert all(0 < each["quick_s"] < 60 and 0 < each["full_s"] < 900 for each in listed if "live" not in each["name"])
    assert main(["study", "--list"]) == 0
    shown = capsys.readouterr().out
    assert all(each["name"] in shown for each in listed)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "no study given"),
        (["fairnes"], "did you mean fairness?"),
        (["fairness", "--repeat", "0"], "--repeat must be between"),
        (["fairness", "--traces", "/nowhere"], "--traces /nowhere: expected a folder"),
        (["all", "--runs", "0"], "--runs must be between"),
        (["fairness", "--out", "/proc/x"], "/proc/x: "),
        (["fairness", "--dask", "nonsense"], "expected tls://HOST:PORT"),
        (["fairness", "--dask", "tcp://192.0.2.1:8786"], "tcp:// is neither encrypted nor authenticated"),
        (["fairness", "--dask", "tls://192.0.2.1:8786"], "TLS needs --dask-ca"),
        (["fairness", "--dask", "tcp://127.0.0.1:1"], "no scheduler answers"),
        (["fairness", "--dask-insecure"], "need --dask"),
        (["fairness", "--dask", "tls://h:1", "--dask-ca", "x"], "belong together"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(arguments, words, tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("hyroads.controller.study.dask_engine.CONNECT_S", 1.0)
    assert main(["study", *arguments, "--no-plots"]) == 2
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_key_that_others_can_read_is_refused(tmp_path, capsys) -> None:
    for name in ("ca", "cert", "key"):
        (tmp_path / name).write_text("x")
    (tmp_path / "key").chmod(0o644)
    options = [word for name in ("ca", "cert", "key") for word in (f"--dask-{name}", str(tmp_path / name))]
    assert main(["study", "fairness", "--no-plots", "--dask", "tls://127.0.0.1:1", *options]) == 2
    assert "expected mode 0600" in capsys.readouterr().err
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o644


def test_forged_outcomes_are_one_line(tmp_path: Path, capsys) -> None:
    """Rows with right checksums whose outcomes are no outcomes of the study: never a traceback."""
    from hyroads.controller.study.task_store import TaskStore

    arguments = ["study", "fairness", "--quick", "--runs", "2", "--workers", "1", "--no-plots", "--out", str(tmp_path)]
    with TaskStore(tmp_path, "fairness", Settings(2, 1, True)) as kept:
        kept.begin(fairness.worst_errors, 2)
        kept.add(0, ["a", "b"])
        kept.add(1, [1.0])
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and f"{NAME}: what is kept there is no outcome of fairness" in error

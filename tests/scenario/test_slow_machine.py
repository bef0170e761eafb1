"""A verdict says when the machine was too slow to be believed, and never excuses a defect on a machine that was not."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hyroads.mininet.programs import find_program

pytestmark = pytest.mark.alone

DEMO = ("demo", "two-flows", "--json", "--publish", "0", "--seconds", "4")
# Takes a processor for 50 of every 100 ms, before everything else, and ends by itself.
BURNER = """
import os, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(60))
end_s = time.monotonic() + 12
while time.monotonic() < end_s:
    time.sleep(0.1 - time.monotonic() % 0.1)
    until_s = time.monotonic() + 0.05
    while time.monotonic() < until_s:
        pass
"""


@contextmanager
def starved() -> Iterator[None]:
    """All processors are taken half of the time."""
    burners = [subprocess.Popen([sys.executable, "-c", BURNER, str(number)]) for number in os.sched_getaffinity(0)]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


def test_a_run_on_a_starved_machine_counts_as_not_made(lab: Any, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*lab.hyroads, *DEMO, "--name", "t-slow", "--out", str(tmp_path)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None and process.stdout is not None
    said = []
    for line in process.stderr:
        said.append(line)
        if line.startswith("== one flow alone"):
            break
    with starved():
        rest = threading.Thread(target=lambda: said.extend(process.stderr))
        rest.start()
        written = process.stdout.read()
        rest.join(60)
    assert process.wait(10) == 2, said
    document = lab.last_json(written)
    machine = document["machine"]
    assert (document["ok"], machine["believable"]) == (False, False)
    assert machine["medium_late_s"] > 0.5 and machine["agents_late_s"] > 0.5 and machine["others_ratio"] > 0.1
    assert said[-1].startswith("hyroads: demo two-flows not made: the machine was too slow to be believed, in ")
    assert machine["why"] in said[-1] and not any("Traceback" in line for line in said)


@pytest.fixture
def weak_medium(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect: the medium carries 60 % of what the controller, and theory, think it does."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "hyroads-edge").symlink_to(find_program("hyroads-edge"))
    medium = folder / "hyroads-medium"
    medium.write_text(
        f"#!{sys.executable}\n"
        "import json, os, sys\n"
        "path = sys.argv[sys.argv.index('--config') + 1]\n"
        "document = json.load(open(path))\n"
        "for link in document['links']:\n"
        "    link['capacity_mbps'] *= 0.6\n"
        "json.dump(document, open(path, 'w'))\n"
        f"os.execv({find_program('hyroads-medium')!r}, sys.argv)\n"
    )
    medium.chmod(0o755)
    monkeypatch.setenv("HYROADS_BIN", str(folder))


@pytest.mark.usefixtures("weak_medium")
def test_a_defect_is_not_excused(lab: Any, tmp_path: Path) -> None:
    began_s = time.monotonic()
    # A run that the machine spoils is made again, as everywhere.
    done = lab.run_hyroads(*DEMO, "--name", "t-weak", "--out", str(tmp_path / "out"))
    document = lab.last_json(done.stdout)
    assert done.returncode == 1, (done.stderr, time.monotonic() - began_s)
    assert (document["ok"], document["machine"]["believable"]) == (False, True)
    short = [check for check in document["checks"] if check["what"].endswith(" delivered")]
    phases = {check["what"].partition(":")[0] for check in short}
    assert len(phases) == 3
    for phase in phases:
        # Which of two flows loses more is chance.
        own = [check for check in short if check["what"].startswith(f"{phase}:")]
        delivered = sum(check["measured"] for check in own) / sum(check["theory"] for check in own)
        assert 0.3 <= delivered <= 0.85, own

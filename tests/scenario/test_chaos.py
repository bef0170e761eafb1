"""``hyroads chaos``: whatever part breaks, and pairs of parts, all is as before afterwards."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from network_names import network_name

from hyroads.controller.files.documents import read_file
from hyroads.mininet.chaos.faults import left_out
from hyroads.mininet.chaos.plan import Way, parts_of, plan, ways
from hyroads.mininet.run_directory import find_network

START_S = 90.0


def chaos(lab: Any, name: str, folder: Path, *arguments: str, minutes: float) -> dict[str, Any]:
    """The report of a run that must have gone well."""
    report = folder / "report.json"
    words = ["chaos", *arguments, "--name", name, "--publish", "0", "--minutes", f"{minutes:g}", "--out", str(report)]
    done = subprocess.run([*lab.hyroads, *words], capture_output=True, text=True, timeout=120.0 * minutes + START_S)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    document: dict[str, Any] = json.loads(report.read_text())
    assert document["ok"] and all(event["ok"] for event in document["events"])
    assert document["verdict"]["unhealed"] == document["verdict"]["exceptions"] == document["verdict"]["leaks"] == 0
    assert lab.leftovers(name) == []
    return document


@pytest.mark.parametrize("seed", [1, 2])
def test_a_minute_of_chaos_leaves_all_as_before(lab: Any, tmp_path: Path, seed: int) -> None:
    document = chaos(lab, network_name(f"chaos-{seed}"), tmp_path, "triangle", "--seed", str(seed), minutes=1.0)
    network = read_file(find_network("triangle"))
    able: list[Way] = [way for way in ways() if way not in left_out()]
    planned = plan(network, 1.0, seed, parts_of(network), able)
    broken = [[(fault["part"], fault["kind"]) for fault in event["faults"]] for event in document["events"]]
    assert len(broken) >= 4
    assert broken == [[(str(f.part), f.kind.value) for f in event.faults] for event in planned[: len(broken)]]
    # What is cut from the only traffic that there is cannot go unnoticed.
    killed = [
        event
        for event in document["events"]
        if [(fault["part"], fault["kind"]) for fault in event["faults"]] == [("ovs-vswitchd", "kill")]
    ]
    assert all(event["lost_s"] > 0.2 for event in killed)


def test_what_falls_short_is_said(lab: Any) -> None:
    """A part that does not come back: the network stays broken, and the status is 1."""
    program = (
        "import sys; from hyroads.mininet.chaos import faults, run; from hyroads.controller.cli.main import main; "
        "faults._killed = lambda program: (program.kill(9), program.stop(), lambda: None)[2]; "
        "run.PATIENCE = 0.1; run.Chaos._died = lambda self: []; "
        f"arguments = '--name {network_name('chaos-3')} --publish 0 --minutes 0.2 --only'.split(); "
        "sys.exit(main(['chaos', 'triangle', *arguments, 'agent: kill']))"
    )
    python = lab.hyroads[0]
    done = subprocess.run([python, "-c", program], capture_output=True, text=True, timeout=START_S)
    assert done.returncode == 1, f"{done.stdout}\n{done.stderr}"
    assert "FAIL not back: agent" in done.stdout and " unhealed" in done.stdout.splitlines()[-1]
    assert lab.leftovers(network_name("chaos-3")) == []


def test_interrupted_in_the_middle_it_leaves_nothing(lab: Any) -> None:
    words = [
        "chaos",
        "triangle",
        "--name",
        network_name("chaos-4"),
        "--publish",
        "0",
        "--minutes",
        "1",
        "--only",
        "stop",
    ]
    process = subprocess.Popen([*lab.hyroads, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert any(" 1 of " in line for line in process.stdout)
    process.send_signal(2)
    process.communicate(timeout=20)
    assert process.returncode == 130
    assert lab.leftovers(network_name("chaos-4")) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["no-such-network"], "no network file no-such-network"),
        (["triangle", "--minutes", "0"], "--minutes 0: expected 0.2 to 1440"),
        (["triangle", "--seed", "-1"], "--seed -1: expected 0 or more"),
        (["triangle", "--only", "earthquake"], "--only 'earthquake': no fault"),
        (["triangle", "--out", "/no/such/folder/x"], "--out /no/such/folder/x: no such folder"),
        (["triangle", "--regions"], "--regions: not with chaos"),
    ],
)
def test_bad_input_is_one_line_and_status_two(lab: Any, arguments: list[str], words: str) -> None:
    done = subprocess.run([*lab.hyroads, "chaos", *arguments], capture_output=True, text=True, timeout=START_S)
    assert done.returncode == 2 and words in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.nightly
@pytest.mark.alone
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_ten_minutes_on_the_office(lab: Any, tmp_path: Path, seed: int) -> None:
    assert (
        len(chaos(lab, network_name("chaos-o"), tmp_path, "office", "--seed", str(seed), minutes=10.0)["events"]) > 30
    )


@pytest.mark.nightly
@pytest.mark.alone
def test_an_hour_behind_a_slicer(lab: Any, tmp_path: Path) -> None:
    chaos(lab, network_name("chaos-h"), tmp_path, "triangle", "--sliced", "--seed", "5", minutes=60.0)

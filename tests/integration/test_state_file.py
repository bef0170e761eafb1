"""The real controller and its state file: broken files, full disks, signals."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from controller_process import ControllerProcess, eventually

FLOW = {"id": "voice", "from": "c", "to": "a", "match": {"eth_type": 2048, "ip_proto": 17, "udp_dst": 7000}}
SESSION = {"id": "video", "group": "239.1.2.3", "participants": ["a", "b"], "sources": ["a"]}
BROKEN: dict[str, bytes] = {
    "empty": b"",
    "zeros": bytes(4096),
    "cut": b'{"version": 1, "flows": [{"id": "voi',
    "flows null": b'{"version": 1, "flows": null, "removed": [], "numbers": {}, "paths": {}}',
    "unknown version": b'{"version": "one"}',
    "newer": b'{"version": 99, "flows": "of the future"}',
    "not UTF-8": b'{"version": 1, "flows": ["\xff\xfe"]}',
    "wrong types": b'{"version": 1, "flows": {"a": 1}, "removed": 3, "numbers": [], "paths": "x", "services": []}',
    "impossible": json.dumps(
        {
            "version": 1,
            "flows": [FLOW, {**FLOW, "weight": 2}, {"id": "x", "from": "a", "to": "nowhere"}, None],
            "removed": [3, None],
            "numbers": {"voice": 99999, "f1": True},
            "paths": {"voice": [["a", "b"]]},
            "places": [[]],
            "services": {
                "sessions": [None, {"id": []}],
                "members": 3,
                "reservations": {},
                "ncasts": [1],
                "places": [{}],
            },
        }
    ).encode(),
}


def controller(folder: Path, **more: Any) -> ControllerProcess:
    return ControllerProcess(folder, {"state_file": str(folder / "var" / "state.json"), **more})


def prepared(folder: Path, data: bytes | None) -> Path:
    path = folder / "var" / "state.json"
    path.parent.mkdir(exist_ok=True)
    if data is not None:
        path.write_bytes(data)
    return path


def health(running: ControllerProcess) -> Any:
    return running.rest("GET", "/health")[1]


def flows(running: ControllerProcess) -> list[str]:
    return [flow["id"] for flow in running.rest("GET", "/flows")[1]["flows"]]


def events(running: ControllerProcess, kind: str) -> list[Any]:
    import urllib.request

    url = f"http://127.0.0.1:{running.port}/api/v1/events?follow=false&kinds={kind}"
    with urllib.request.urlopen(url, timeout=20) as answer:
        lines = answer.read().decode().splitlines()
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]


# What is wrong in which way is a matter of unit tests (tests/unit/controller/test_state_file.py).
SOME = ("cut", "impossible")


@pytest.mark.parametrize("kind", [k if k in SOME else pytest.param(k, marks=pytest.mark.nightly) for k in BROKEN])
def test_a_controller_starts_from_what_is_sound_of_any_file(tmp_path: Path, kind: str) -> None:
    path = prepared(tmp_path, BROKEN[kind])
    with controller(tmp_path) as running:
        said = health(running)
        assert said["counters"]["exceptions"] == 0
        assert [fault for fault in said["last_errors"] if fault["where"] == "state file"]
        assert flows(running) == (["f1", "voice"] if kind == "impossible" else ["f1"])
        told = events(running, "state_file")
        assert told and "Traceback" not in running.log.read_text()
        if kind == "impossible":
            assert said["state_file"]["broken"] == [] and said["state_file"]["started_from"] == "file"
            copy = told[0]["copy"]
        else:
            (broken,) = said["state_file"]["broken"]
            assert broken["file"] == str(path) and broken["problem"] and said["state_file"]["ok"]
            assert said["state_file"]["started_from"] == (
                "file" if kind in {"flows null", "wrong types"} else "nothing"
            )
            assert len([line for line in running.log.read_text().splitlines() if broken["problem"] in line]) == 1
            copy = broken["aside"]
        assert path.with_name(copy).read_bytes() == BROKEN[kind]
        # What comes now is saved and outlives it.
        assert running.rest("POST", "/flows?wait=false", FLOW)[0] == 202
        eventually(lambda: not health(running)["state_file"]["reason"] and path.exists())
    assert json.loads(path.read_text())["version"] == 2 and stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.with_name(copy).read_bytes() == BROKEN[kind]
    with controller(tmp_path) as running:
        assert flows(running) == ["f1", "voice"] and health(running)["state_file"]["broken"] == []


def test_the_older_copy_is_next_and_a_folder_in_the_way_does_no_harm(tmp_path: Path) -> None:
    path = prepared(tmp_path, None)
    with controller(tmp_path) as running:
        assert running.rest("POST", "/flows?wait=false", FLOW)[0] == 202
        eventually(lambda: path.exists() and "voice" in path.read_text())
        assert running.rest("POST", "/flows?wait=false", {**FLOW, "id": "second", "to": "b"})[0] == 202
        eventually(lambda: "second" in path.read_text())
    path.write_bytes(path.read_bytes()[:-200])
    with controller(tmp_path) as running:
        assert health(running)["state_file"]["started_from"] == "older copy"
        assert "voice" in flows(running)
        assert "older copy" in running.log.read_text()
        eventually(path.exists)
    path.unlink()
    path.mkdir()
    with controller(tmp_path) as running:
        assert "voice" in flows(running) and events(running, "state_file.broken")
        eventually(path.is_file)


def test_what_was_asked_for_just_before_the_end_is_saved(tmp_path: Path) -> None:
    path = prepared(tmp_path, None)
    for number, name in ((signal.SIGTERM, "one"), (signal.SIGINT, "two")):
        with controller(tmp_path) as running:
            assert running.rest("POST", "/flows?wait=false", {**FLOW, "id": name})[0] == 202
            running.process.send_signal(number)
            assert running.process.wait(10) in {-number, 0}
            assert "Traceback" not in running.log.read_text(), running.log.read_text()
        assert name in path.read_text()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 KiB for the state file."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    folder = tmp_path / "var"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.root
def test_what_a_full_disk_does_not_take_is_refused_taken_back_and_possible_again_later(
    tmp_path: Path, small_disk: Path
) -> None:
    path = small_disk / "state.json"
    reservation = {"id": "r", "flow": "f1", "rate_mbps": 1.0}
    with controller(tmp_path, timings={"grace_s": 0.2, "switch_grace_s": 600}) as running:
        eventually(lambda: not health(running)["settling"])
        assert running.rest("POST", "/flows?wait=false", FLOW)[0] == 202
        eventually(lambda: path.exists() and "voice" in path.read_text())
        before = path.read_bytes()
        assert running.rest("POST", "/sessions?wait=false", SESSION)[0] == 202
        eventually(lambda: "video" in path.read_text())
        ballast = small_disk / "ballast"
        with ballast.open("wb", buffering=0) as file:
            try:
                while file.write(bytes(1024)):
                    continue
            except OSError:
                pass
        before = path.read_bytes()
        second = {**FLOW, "id": "second", "to": "b"}
        # The first one meets the full disk, the next ones are not even begun.
        for _ in range(2):
            status, problem = running.rest("POST", "/flows", second)
            assert status == 507 and "No space left on device" in problem["detail"], problem
            assert "second" not in flows(running)
        assert running.rest("DELETE", "/flows/voice")[0] == 507 and "voice" in flows(running)
        assert running.rest("DELETE", "/sessions/video")[0] == 507
        assert running.rest("POST", "/sessions", {**SESSION, "id": "audio", "group": "239.1.2.4"})[0] == 507
        assert running.rest("PATCH", "/clients/c", {"steering": False})[0] == 507
        assert running.rest("POST", "/reservations", reservation)[0] == 507
        assert [session["id"] for session in running.rest("GET", "/sessions")[1]["sessions"]] == ["video"]
        said = health(running)
        assert not said["ok"] and not said["state_file"]["ok"] and "No space" in said["state_file"]["reason"]
        assert events(running, "state_file.failing") and said["counters"]["exceptions"] == 0
        time.sleep(2.0)
        lines = [line for line in running.log.read_text().splitlines() if "can't be written" in line]
        assert len(lines) == 1, lines
        assert path.read_bytes() == before and sorted(each.name for each in small_disk.iterdir()) == [
            "ballast",
            "state.json",
            "state.json.1",
        ]
        ballast.unlink()
        # Whoever asks again does not wait for the next try.
        began_s = time.monotonic()
        assert running.rest("POST", "/flows?wait=false", second)[0] == 202
        assert time.monotonic() - began_s < 3.0
        eventually(lambda: "second" in path.read_text())
        assert events(running, "state_file.saved") and health(running)["state_file"]["ok"]
        assert running.rest("PATCH", "/clients/c", {"steering": False})[0] == 200
    with controller(tmp_path) as running:
        assert flows(running) == ["f1", "voice", "second"]


def test_an_operation_that_can_not_be_saved_fails_with_the_reason(tmp_path: Path) -> None:
    path = prepared(tmp_path, None)
    with controller(tmp_path) as running:
        eventually(path.exists)
        eventually(lambda: not health(running)["settling"])
        # Something is in the place of the folder.
        path.parent.rename(tmp_path / "elsewhere")
        path.parent.write_text("no folder")
        status, operation = running.rest("POST", "/flows?wait=false", FLOW)
        assert status == 202

        def failed() -> Any:
            found = running.rest("GET", f"/operations/{operation['id']}")[1]
            return found if found["state"] == "failed" else None

        assert "can't be written" in eventually(failed)["reason"]
        assert flows(running) == ["f1"] and "Traceback" not in running.log.read_text()
        path.parent.unlink()
        eventually(lambda: health(running)["state_file"]["ok"], 40)
        assert path.exists()


RYU_MANAGER = (
    "from hyroads.controller.framework.launcher import ryu_manager; "
    "raise SystemExit(ryu_manager(['hyroads.controller.app']))"
)
HYROADS = "from hyroads.controller.cli.main import main; raise SystemExit(main(['controller']))"


@pytest.mark.parametrize("program", [RYU_MANAGER, HYROADS], ids=["ryu-manager", "hyroads controller"])
def test_a_hangup_reads_the_files_again_and_sigterm_ends_with_status_0(tmp_path: Path, program: str) -> None:
    running = controller(tmp_path)
    running.command = [sys.executable, "-c", program]
    with running:
        for count in (1, 2):
            running.process.send_signal(signal.SIGHUP)
            eventually(lambda count=count: running.log.read_text().count("nothing differs") >= count)
        assert running.process.poll() is None and health(running)["counters"]["exceptions"] == 0
        running.process.terminate()
        assert running.process.wait(10) == 0
    assert "Traceback" not in running.log.read_text()

"""Claiming, refusing and sweeping of run directories, with a real process as the other owner."""

import json
import os
import subprocess
import sys
import threading
import time

import pytest

from hyroads.mininet import run_directory
from hyroads.mininet.programs import EmulationError

HOLDER = """
import sys, time
from pathlib import Path
from hyroads.mininet import run_directory
run_directory.ROOT = Path(sys.argv[1])
run_directory.claim("net").record(["hr-net", "hr-net-a"])
print("claimed", flush=True)
time.sleep(60)
"""


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setattr(run_directory, "ROOT", tmp_path / "run")
    monkeypatch.setattr(run_directory, "NETNS_ROOT", tmp_path / "netns")
    return tmp_path / "run"


@pytest.fixture
def holder(root):
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(root)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "claimed\n"
    yield process
    process.kill()
    process.wait()


def test_release_leaves_nothing(root):
    claimed = run_directory.claim("net")
    claimed.record(["hr-net"])
    claimed.release()
    assert list(root.iterdir()) == []


def test_a_living_network_is_refused_and_not_swept(root, holder):
    with pytest.raises(EmulationError, match=f"net is already running .process {holder.pid}"):
        run_directory.claim("net")
    assert run_directory.sweep() == []
    assert (root / "net" / "state.json").exists()


def wait_for(condition):
    until_s = time.monotonic() + 10
    while not condition() and time.monotonic() < until_s:
        time.sleep(0.02)
    return condition()


def test_a_killed_one_is_swept_by_its_own_process(root, holder):
    assert (root / "net").is_dir()
    holder.kill()
    holder.wait()
    assert wait_for(lambda: not any(root.iterdir()))


def test_one_that_was_killed_with_its_own_process_is_swept_by_the_next(root, monkeypatch):
    monkeypatch.setattr(run_directory, "_SWEEP_LATER", "exit 0")
    dead = run_directory.claim("net")
    dead.record(["hr-net"])
    assert (root / "net" / "state.json").exists()
    os.close(dead.lock_fd)
    assert run_directory.sweep() == ["net"]
    assert list(root.iterdir()) == []


def test_a_killed_one_can_be_claimed_without_a_sweep(holder):
    holder.kill()
    holder.wait()
    run_directory.claim("net").release()


def test_only_namespaces_of_our_own_kind_are_removed(root, tmp_path, monkeypatch):
    removed = []
    monkeypatch.setattr(subprocess, "run", lambda command, **_options: removed.append(command[-1]))
    (tmp_path / "netns").mkdir()
    for name in ("hr-net", "other"):
        (tmp_path / "netns" / name).touch()
    (root / "net").mkdir(parents=True)
    (root / "net" / "state.json").write_text(json.dumps({"namespaces": ["hr-net", "other", "hr-gone", 7]}))
    assert run_directory.sweep() == ["net"]
    assert removed == ["hr-net"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"namespaces": 3}'])
def test_a_damaged_state_file_is_swept_too(root, text):
    (root / "net").mkdir(parents=True)
    (root / "net" / "state.json").write_text(text)
    assert run_directory.sweep() == ["net"]


@pytest.mark.parametrize("name", ["", "../x", "a/b", "-x", "x" * 65, "a b"])
def test_names_that_are_no_file_names_are_refused(name):
    with pytest.raises(EmulationError, match="network name"):
        run_directory.claim(name)


def test_the_lock_is_not_inherited_by_programs():
    claimed = run_directory.claim("net")
    assert not os.get_inheritable(claimed.lock_fd)
    claimed.release()


def test_a_name_that_is_being_swept_is_waited_for(root):
    root.mkdir()
    descriptor = run_directory._lock(root / "net.lock")
    sweeping = run_directory.RunDirectory("net", root / "net", root / "net.lock", descriptor)
    release = threading.Timer(0.1, sweeping.release)
    release.start()
    run_directory.claim("net").release()
    release.join()

"""Whatever dies, and however: nothing of an emulated network outlives it, or the next start."""

import os
import signal
from pathlib import Path

import pytest
from network_names import network_name

PARTS_WITHOUT_WHICH_IT_ENDS = ("ovs-vswitchd", "ovsdb-server", "hyroads-medium", "init", "worker")


def test_interrupt_leaves_nothing(lab):
    running = lab.emulate(network_name("int"), "--no-controller")
    pids = list(running.processes())
    assert len(pids) >= 8
    root = f"hr-{network_name('int')}"
    assert {root, f"{root}-a", f"{root}-b", f"{root}-c"} <= set(lab.namespaces(network_name("int")))
    assert running.interrupt() == 130
    assert lab.leftovers(network_name("int")) == []
    assert lab.alive(pids) == []


def test_terminate_leaves_nothing(lab):
    running = lab.emulate(network_name("term"), "--no-controller")
    pids = list(running.processes())
    running.process.send_signal(signal.SIGTERM)
    running.process.wait(15)
    assert lab.leftovers(network_name("term")) == []
    assert lab.alive(pids) == []


def test_terminate_ends_a_network_at_its_prompt_and_leaves_nothing(lab):
    running = lab.emulate(network_name("prompt"), "--no-controller", "--cli", at_prompt=True)
    running.process.send_signal(signal.SIGTERM)
    assert running.process.wait(15) == 130
    assert lab.leftovers(network_name("prompt")) == []


@pytest.mark.parametrize("part", PARTS_WITHOUT_WHICH_IT_ENDS)
def test_kill_of_a_vital_part_ends_the_network_and_leaves_nothing(lab, part):
    running = lab.emulate(network_name("part"), "--no-controller")
    pids = list(running.processes())
    os.kill(running.pid_of(part), signal.SIGKILL)
    _, error = running.process.communicate(timeout=15)
    assert running.process.returncode not in (0, None)
    if part not in ("init", "worker"):
        assert running.process.returncode == 2
        assert part in error.strip().splitlines()[-1]
    assert lab.leftovers(network_name("part")) == []
    assert lab.alive(pids) == []


def test_kill_of_an_agent_or_the_controller_is_repaired(lab):
    running = lab.emulate(network_name("fix"))
    for command in ("/hyroads-edge ", "hyroads.controller.cli controller"):

        def pids(command=command) -> set[int]:
            return {pid for pid, line in running.processes().items() if command in line}

        old = min(pids())
        os.kill(old, signal.SIGKILL)
        assert lab.wait_for(lambda old=old, pids=pids: old not in pids() and pids())
        assert running.process.poll() is None
    assert running.interrupt() == 130
    assert lab.leftovers(network_name("fix")) == []


def test_after_kill_of_the_owner_all_dies_and_is_swept(lab):
    running = lab.emulate(network_name("own"), "--no-controller")
    pids = list(running.processes())
    os.kill(running.pid_of("owner"), signal.SIGKILL)
    assert lab.wait_for(lambda: lab.alive(pids) == [], 5.0)
    assert lab.wait_for(lambda: lab.leftovers(network_name("own")) == [], 10.0)


# The start of any network sweeps, so no other may start in between.
@pytest.mark.alone
def test_what_a_killed_owner_left_is_swept_at_the_next_start_if_its_sweeper_was_killed_too(lab):
    running = lab.emulate(network_name("own"), "--no-controller")
    pids = list(running.processes())
    shells = [pid for pid in lab.children(running.process.pid) if b"flock" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert len(shells) == 1
    os.killpg(shells[0], signal.SIGKILL)
    os.kill(running.pid_of("owner"), signal.SIGKILL)
    assert lab.wait_for(lambda: lab.alive(pids) == [], 5.0)
    assert f"hr-{network_name('own')}" in lab.namespaces(network_name("own"))
    other = lab.emulate(network_name("next"), "--no-controller")
    assert lab.leftovers(network_name("own")) == []
    other.interrupt()
    assert lab.leftovers(network_name("next")) == []


def test_a_second_start_of_a_running_network_is_refused(lab):
    running = lab.emulate(network_name("again"), "--no-controller")
    second = lab.run_hyroads("emulate", "triangle", "--name", network_name("again"), "--no-controller")
    assert second.returncode == 2
    assert f"{network_name('again')} is already running" in second.stderr
    assert running.process.poll() is None


def test_without_root_there_is_one_clear_line(lab):
    refused = lab.run_hyroads("emulate", "triangle", prefix=("setpriv", "--reuid", "65534", "--clear-groups"))
    assert refused.returncode == 2
    assert refused.stderr.strip().count("\n") == 0
    assert "root" in refused.stderr

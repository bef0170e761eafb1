"""A gateway of an emulated network serves multi-homed clients by itself, and goes on whatever of it dies."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from network_names import network_name

NETWORK = """
name: t-gate
nodes:
  a: {role: gateway, waypoint: true}
  b: {role: ap}
  c: {role: client}
links:
  - {id: ab-plc, from: a, to: b, technology: plc, capacity_mbps: 10, both: true}
  - {id: bc-wifi, from: b, to: c, technology: wifi, capacity_mbps: 30, both: true}
interference: {rule: technology}
"""
HYROADS = [sys.executable, "-m", "hyroads.controller.cli"]
FAR = "203.0.113.9"


@pytest.fixture
def gate(lab, tmp_path):
    folder = tmp_path
    (folder / "t-gate.yaml").write_text(NETWORK)
    running = lab.emulate(network_name("gate"), file=str(folder / "t-gate.yaml"))
    run(*inside("a"), "ip", "address", "add", f"{FAR}/32", "dev", "lo")
    yield running
    assert running.interrupt() == 130
    assert lab.leftovers(network_name("gate")) == []


def run(*command, check=True):
    return subprocess.run(command, check=check, capture_output=True, text=True, timeout=60)


def inside(node):
    return ["ip", "netns", "exec", f"hr-{network_name('gate')}-{node}"]


def status():
    folder = f"/run/hyroads/{network_name('gate')}/waypoint-a"
    done = run(*HYROADS, "client", "status", "--waypoint", "--json", "--run-directory", folder, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else None


def reaches():
    """Whether a ping comes back, which the gateway has carried as the waypoint's."""
    answered = run(*inside("c"), "ping", "-c1", "-W1", FAR, check=False).returncode == 0
    now = status()
    return answered and now is not None and any(each["flows"] for each in now["data_plane"]["sessions"])


def test_a_client_of_the_network_goes_through_its_gateway_whatever_dies_there(lab, gate, tmp_path):
    assert status()["node"] == "a" and status()["sessions"] == []
    assert not reaches()
    policy = f"/run/hyroads/{network_name('gate')}/waypoint-a/c.yaml"
    folders = ["--run-directory", str(tmp_path / "run"), "--state-directory", str(tmp_path / "state")]
    with (tmp_path / "log").open("wb") as log:
        command = [*inside("c"), *HYROADS, "client", "run", "--config", policy, "--no-realtime", *folders]
        client = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        assert lab.wait_for(reaches, 30.0), (tmp_path / "log").read_text()
        (session,) = status()["sessions"]
        assert (session["client"], session["connected"]) == ("c", True)
        restarts = status()["restarts"]
        for part in (
            f"hyroads-client --control /run/hyroads/{network_name('gate')}/waypoint-a",
            "hyroads.controller.cli client waypoint",
        ):

            def pids(part=part):
                return {pid for pid, line in gate.processes().items() if part in line}

            old = min(pids())
            os.kill(old, signal.SIGKILL)
            assert lab.wait_for(lambda old=old, pids=pids: old not in pids() and pids(), 20.0)
            assert lab.wait_for(reaches, 40.0), (
                Path("/run/hyroads") / network_name("gate") / "waypoint-a" / "waypoint.log"
            ).read_text()
            if part.startswith("hyroads-client"):
                assert status()["restarts"] == restarts + 1
    finally:
        client.terminate()
        client.wait(20)

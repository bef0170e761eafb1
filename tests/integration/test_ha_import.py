"""``hyroads ha import``: the state file of one controller becomes what several have in a real etcd."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from controller_process import NETWORK, ControllerProcess, eventually, free_ports
from ha_lab import FLOW, Instance
from not_made import needs_etcd

pytest.importorskip("mininet")
pytest.importorskip("etcd3gw")

from hyroads.mininet.etcd import Etcd


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hyroads.controller.cli", "ha", "import", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_flows_and_their_numbers_are_taken_over_once(tmp_path: Path) -> None:
    needs_etcd()
    state = tmp_path / "state.json"
    with ControllerProcess(tmp_path, {"state_file": str(state)}) as alone:
        for name in ("one", "two"):
            assert alone.rest("POST", "/flows?wait=false", {**FLOW, "id": name})[0] == 202
        numbers = {name: alone.rest("GET", f"/flows/{name}")[1]["number"] for name in ("one", "two")}
        eventually(lambda: state.is_file() and '"two"' in state.read_text())
    text = state.read_text()
    client, peer = free_ports(2)
    etcd = Etcd(tmp_path / "etcd", [(client, peer)], bound_to_parent=True)
    instance = Instance(tmp_path / "several", "a", etcd, {})
    try:
        refused = run(state, "--config", instance.settings)
        assert refused.returncode == 2 and refused.stderr.count("\n") == 1 and "etcd" in refused.stderr
        etcd.start()
        etcd.wait_ready()
        done = run(state, "--config", instance.settings, "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["objects"] >= 2
        again = run(state, "--config", instance.settings)
        assert again.returncode == 2 and "already" in again.stderr
        assert run(state, "--config", instance.settings, "--replace").returncode == 0
        with instance:
            eventually(lambda: instance.leads)
            # Flows of a leader that was just elected have no numbers before it knows its devices.
            eventually(lambda: all("number" in instance.answer("GET", f"/flows/{name}")[2] for name in numbers))
            assert {name: instance.answer("GET", f"/flows/{name}")[2]["number"] for name in numbers} == numbers
            while_led = run(state, "--config", instance.settings, "--replace")
            assert while_led.returncode == 2 and "'a' leads" in while_led.stderr
    finally:
        etcd.stop()
    assert state.read_text() == text


def test_what_can_not_be_taken_over_is_one_line_and_stays(tmp_path: Path) -> None:
    broken, settings = tmp_path / "state.json", tmp_path / "hyroads.json"
    broken.write_text('{"checksum": "no')
    settings.write_text(json.dumps({"network": str(NETWORK)}))
    done = run(broken, "--config", settings)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and str(broken) in done.stderr
    assert broken.read_text() == '{"checksum": "no'
    assert run(tmp_path / "nowhere", "--config", settings).returncode == 2

"""``hyroads audit`` of a real controller: what the kernel says of it, beside what its settings say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from controller_process import ControllerProcess
from waypoint_certificates import make_certificate

HYROADS = [sys.executable, "-m", "hyroads.controller.cli"]
TOKEN, OTHER = "0123456789abcdef0123", "fedcba9876543210fedc"


def audited(settings: Path) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        [*HYROADS, "audit", "--config", str(settings), "--json"], capture_output=True, text=True, timeout=60
    )
    assert not done.stderr
    assert TOKEN not in done.stdout and OTHER not in done.stdout
    return done.returncode, json.loads(done.stdout)


def weak(found: dict[str, Any]) -> set[str]:
    return {one["place"] for one in found["findings"] if one["level"] == "weak"}


def test_a_running_controller_is_audited(tmp_path: Path) -> None:
    """With nothing but a network, then with tokens and TLS; what differs is what was mended."""
    # As root the controller is found to run so; nothing else may be weak in the end.
    root = {"user"} if os.geteuid() == 0 else set()
    with ControllerProcess(tmp_path, {}) as controller:
        status, found = audited(controller.settings)
        assert status == 1
        assert weak(found) == {"listen.rest", "listen.agents", *root}
        ports = {port["place"]: port for port in found["ports"]}
        assert set(ports) == {"listen.openflow", "listen.agents", "listen.rest"}
        assert all(port["running"] == [{"host": "127.0.0.1", "uid": os.geteuid()}] for port in ports.values())
        controller_ports = (controller.openflow, controller.agents, controller.port)
        assert {port["port"] for port in ports.values()} == set(controller_ports)
    status, found = audited(controller.settings)
    assert all(not port["running"] for port in found["ports"])
    make_certificate(tmp_path, "controller", "127.0.0.1")
    tls = {"key": "controller.key", "certificate": "controller.pem", "ca": "controller.pem"}
    token = tmp_path / "agent.token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    more = {"tls": tls, "agent_token_file": "agent.token", "api_tokens": {"ops": {"token": OTHER}}}
    with ControllerProcess(tmp_path, more) as safe:
        safe.settings.chmod(0o600)
        status, found = audited(safe.settings)
        # The certificate ends in two days, and two nodes share the token.
        assert weak(found) == {"tls.certificate", "tls.ca", "agent_token", *root} and status == 1
    token.chmod(0o644)
    assert "agent_token_file" in weak(audited(safe.settings)[1])

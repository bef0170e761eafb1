"""``ryu-manager hyroads.controller.app`` starts from any directory, with Ryu's own command line."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RYU_MANAGER = Path(sys.executable).parent / "ryu-manager"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_port(port: int, process: subprocess.Popen[str], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert process.poll() is None, process.communicate()[0]
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError(f"nothing listens on port {port}")


@pytest.mark.parametrize("where", ["/", "the repository"])
def test_starts_from_any_directory(where: str) -> None:
    openflow, agents, rest = free_port(), free_port(), free_port()
    env = {
        **os.environ,
        "HYROADS_NETWORK": str(ROOT / "mininet" / "networks" / "triangle.yaml"),
        "HYROADS_OPENFLOW_PORT": str(openflow),
        "HYROADS_AGENTS_PORT": str(agents),
        "HYROADS_REST_PORT": str(rest),
    }
    env.pop("PYTHONPATH", None)
    env.pop("HYROADS_CONFIG", None)
    process = subprocess.Popen(
        [str(RYU_MANAGER), "hyroads.controller.app"],
        cwd=ROOT if where == "the repository" else "/",
        env=env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        for port in (openflow, agents, rest):
            wait_for_port(port, process)
    finally:
        process.terminate()
        process.communicate(timeout=10)


def test_ryu_managers_own_help() -> None:
    result = subprocess.run([str(RYU_MANAGER), "--help"], text=True, capture_output=True, timeout=60)
    assert result.returncode == 0, result.stderr
    assert "--ofp-tcp-listen-port" in result.stdout

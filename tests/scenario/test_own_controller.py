"""With ``emulate --no-controller`` the switches dial the documented address, where the user's controller listens."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from controller_process import eventually
from network_names import network_name

from hyroads.controller.framework.launcher import FRAMEWORK

# One link: a learning switch would flood packets round a loop.
NETWORK = """
name: own
nodes:
  a: {role: gateway}
  b: {role: ap}
links:
  - {id: ab-plc, from: a, to: b, technology: plc, capacity_mbps: 20, both: true}
interference:
  rule: technology
"""
LEARNING_SWITCH = f"{FRAMEWORK}.app.simple_switch_13"
MANAGER = "from hyroads.controller.framework.launcher import ryu_manager; raise SystemExit(ryu_manager())"


@pytest.mark.skipif(find_spec(LEARNING_SWITCH) is None, reason="the framework has no such application")
def test_switches_dial_a_controller_of_the_user(lab, tmp_path: Path) -> None:
    file, log = tmp_path / "own.yaml", tmp_path / "ryu.log"
    file.write_text(NETWORK)
    name = network_name("own-ryu")
    lab.emulate(name, "--no-controller", file=str(file))
    inside = ("ip", "netns", "exec", f"hr-{name}")
    with log.open("wb") as out:
        ryu = subprocess.Popen(
            [*inside, sys.executable, "-c", MANAGER, "--verbose", LEARNING_SWITCH], stdout=out, stderr=out
        )
    try:
        eventually(lambda: log.read_text().count("move onto main mode") == 2)
        # A broadcast crosses the network only if that controller forwards it at both switches.
        ping = ("ip", "netns", "exec", f"hr-{name}-a", "ping", "-c", "1", "-W", "1", "10.0.0.2")
        subprocess.run(ping, capture_output=True, timeout=20)
        for switch in (1, 2):
            eventually(lambda seen=f"packet in {switch} 02:00:00:00:00:01 ff:ff:ff:ff:ff:ff": seen in log.read_text())
    finally:
        ryu.terminate()
        ryu.wait(10)

"""``hyroads emulate --snmp``: a real snmpd per node, polled with SNMPv3 while the network runs."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from network_names import network_name

from hyroads.controller.measure.samples import NodeSample, from_line

pytestmark = pytest.mark.skipif(not shutil.which("snmpd"), reason="snmpd is not installed")


def test_every_node_with_a_switch_is_measured_and_nothing_is_left(lab):
    running = lab.emulate(network_name("snmp"), "--snmp")
    files = Path("/run/hyroads") / network_name("snmp") / "snmp"
    assert all(path.stat().st_mode & 0o077 == 0 for path in files.glob("*.json"))
    command = [
        "ip",
        "netns",
        "exec",
        f"hr-{network_name('snmp')}",
        sys.executable,
        "-m",
        "hyroads.controller.measure.collector",
    ]
    process = subprocess.Popen(command, stdin=(files / "collector.json").open("rb"), stdout=subprocess.PIPE)
    samples = {}
    while len(samples) < 2 or min(map(len, samples.values())) < 3:
        event = from_line(process.stdout.readline())
        if isinstance(event, NodeSample):
            samples.setdefault(event.node, []).append(event)
    process.terminate()
    process.wait(5)
    # The triangle's true capacities, as its network file says; a hears c's WiFi, but has no link to it.
    seen = {
        (node, n.node, i.technology): n.tx_capacity_mbps
        for node, made in samples.items()
        for i in made[-1].interfaces
        for n in i.neighbours
    }
    assert seen == {
        ("a", "b", "plc"): 10,
        ("a", "b", "wifi"): 15,
        ("a", "c", "wifi"): None,
        ("b", "a", "plc"): 10,
        ("b", "a", "wifi"): 15,
        ("b", "c", "wifi"): 30,
    }
    assert all(i.up and not i.flags and 0 <= i.busy_share < 0.5 for m in samples.values() for i in m[-1].interfaces)
    pids = list(running.processes())
    assert running.interrupt() == 130
    assert lab.leftovers(network_name("snmp")) == []
    assert lab.alive(pids) == []


SLICES = """
slices:
  - {name: research, ssids: [{name: lab, security: open}]}
"""


def test_emulated_access_points_take_the_networks_of_slices(lab, tmp_path):
    running = lab.emulate(network_name("ssid"), "--snmp", "--wireless")
    files = Path("/run/hyroads") / network_name("ssid") / "snmp"
    (tmp_path / "slices.yaml").write_text(SLICES)
    command = [
        "ip",
        "netns",
        "exec",
        f"hr-{network_name('ssid')}",
        sys.executable,
        "-m",
        "hyroads.controller.cli",
        "ssids",
    ]
    options = ["--access-points", str(files / "access-points.json"), "--slices", str(tmp_path / "slices.yaml")]

    def ssids(action: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*command, action, *options], capture_output=True, text=True, timeout=60, check=False)

    # snmpd and the part of it that serves the wireless configuration have just begun to start.
    assert lab.wait_for(lambda: ssids("plan").returncode == 1, 20.0), ssids("plan").stderr
    done = ssids("apply")
    assert done.returncode == 0, done.stderr
    assert ssids("plan").returncode == 0
    on_air = {path.parts[-3]: json.loads(path.read_text())["bsss"] for path in files.glob("*/wireless/on-the-air.json")}
    assert [[bss["ssid"] for bss in bsss.values()] for bsss in on_air.values()] == [["lab"], ["lab"]]
    assert running.interrupt() == 130
    assert lab.leftovers(network_name("ssid")) == []

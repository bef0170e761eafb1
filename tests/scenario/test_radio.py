"""Emulated networks on 802.11 radios of the kernel: association, handovers by 802.11v, and nothing that is left."""

import json
import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from network_names import network_name
from wireless_rig import has_radios

from hyroads.controller.core.netfile import load_text
from hyroads.controller.kernel.generic_netlink import GenericNetlink
from hyroads.mininet import wifi_import
from hyroads.mininet.programs import EmulationError, wait_until
from hyroads.mininet.radios import HWSIM, radio_names
from hyroads.mininet.roaming import PingRun

pytest.importorskip("mininet")


pytestmark = [
    pytest.mark.radio,
    pytest.mark.alone,
    pytest.mark.skipif(not has_radios(), reason="needs mac80211_hwsim (scripts/guest.sh)"),
]
# In a guest whose time stands still while it computes figures are exact; on a machine's own clock they are its load's.
PATIENCE = 1.0 if "time-travel" in Path("/proc/cmdline").read_text() else 30.0
NETWORK = """
nodes:
  g: {role: gateway}
  a: {role: ap}
  b: {role: ap}
  p: {role: client}
links:
  - {id: ga, from: g, to: a, technology: ethernet, capacity_mbps: 20, both: true}
  - {id: ab, from: a, to: b, technology: mesh, capacity_mbps: 10, both: true}
  - {id: gb, from: g, to: b, technology: plc, capacity_mbps: 10, both: true}
  - {id: ap-wifi, from: a, to: p, technology: wifi, capacity_mbps: 10, both: true}
  - {id: bp-wifi, from: b, to: p, technology: wifi, capacity_mbps: 10, both: true}
technologies:
  wifi: {radio: {channel: 1}}
  mesh: {radio: {channel: 36}}
interference: {rule: technology}
"""


def radios() -> list[str]:
    """All emulated radios of the machine, in whatever namespace."""
    return sorted(path.name for path in Path("/sys/class/mac80211_hwsim").glob("hwsim*"))


def programs() -> list[str]:
    """What hostapd and wpa_supplicant run."""
    found = []
    for path in Path("/proc").glob("[0-9]*/comm"):
        try:
            found.append(path.read_text().strip())
        except OSError:
            continue
    return [name for name in found if name in ("hostapd", "wpa_supplicant")]


@pytest.fixture
def nothing_left(lab):
    """Radios and programs are as before, once the test's networks have ended."""
    before = (radios(), programs())
    yield
    assert lab.wait_for(lambda: (radios(), programs()) == before, 5.0), (radios(), programs(), before)


def on_network(body, tmp_path):
    """What ``body`` finds on the network of above."""
    from hyroads.mininet.emulation import EmulationOptions
    from hyroads.mininet.runner import RunOptions, run_network

    path, began_s = tmp_path / "found.json", time.monotonic()

    def work(emulation):
        found = {"started_s": time.monotonic() - began_s}
        path.write_text(json.dumps(found | body(emulation)))
        return 0

    options = EmulationOptions(radio=True, realtime=False)
    network = load_text(NETWORK, "net.yaml")
    assert run_network(network, network_name("radio"), work, RunOptions(0, emulation=options), lambda words: None) == 0
    return json.loads(path.read_text())


def within(what, condition, seconds=10.0):
    began_s = time.monotonic()
    wait_until(what, condition, seconds, 0.005)
    return time.monotonic() - began_s


def introduced(cell, node):
    """Whether stations that ask an access point for neighbours hear of both: it lists itself, the controller tells it
    of the other."""
    known = cell.ask(node, "SHOW_NEIGHBOR").lower()
    return all(point.mac in known for point in cell.access_points())


def measured(emulation):
    cell, rest = emulation.cells["wifi"], emulation.rest

    def attachment():
        return rest.get("/clients/p")["attachments"][0]

    associated_s = within("p associated", lambda: cell.associated_with("p") is not None)
    known_s = within("p known", lambda: attachment()["known_by"] == "association")
    agrees = attachment()["node"] == cell.associated_with("p")
    mesh_s = within("the link over the IBSS", lambda: {x["id"]: x["up"] for x in rest.get("/topology")["links"]}["ab"])
    within("a and b as neighbours", lambda: all(introduced(cell, node) for node in "ab"))
    handovers = []
    for _ in range(4):
        there = "b" if attachment()["node"] == "a" else "a"
        pings = PingRun(emulation, "g", "p", 40)
        time.sleep(0.2)
        body = {"client": "p", "to": {"node": there, "technology": "wifi"}}
        said = rest.request("POST", "/handovers", body).document
        came = cell.associated_with("p") == there
        handovers.append([said["phase"], said["moved_after_s"], came, pings.result().lost])
    cell.stations["a"].program.kill(signal.SIGKILL)
    wait_until("hostapd of a to end", lambda: not cell.stations["a"].program.alive, 5.0)

    def back():
        emulation.restart_dead(lambda words: None)
        return cell.stations["a"].program.alive and cell.socket("a").exists() and introduced(cell, "a")

    wait_until("hostapd of a with its neighbours", back, 10.0)
    return {
        "associated_s": associated_s, "known_s": known_s, "agrees": agrees, "mesh_s": mesh_s, "handovers": handovers,
    }  # fmt: skip


def test_stations_associate_and_follow_transition_requests(tmp_path, nothing_left):
    found = on_network(measured, tmp_path)
    print(found)
    assert found["started_s"] <= 1.0 * PATIENCE
    assert found["associated_s"] <= 0.2 * PATIENCE
    assert found["known_s"] <= 0.1 * PATIENCE
    assert found["agrees"]
    for phase, moved_s, came, lost in found["handovers"]:
        assert phase == "done" and came
        assert moved_s <= 0.1 * PATIENCE
        assert lost <= 1 * PATIENCE


DEL_RADIO, RADIO_ID = 5, 10
# A network that makes a radio, and removes it when it is told to; all are in the namespace of the test.
MAKER = """
import sys
from hyroads.mininet.radios import InterfaceKind, Radio
radio = Radio(sys.argv[1], InterfaceKind.STATION, sys.argv[2])
print(radio.number, flush=True)
sys.stdin.readline()
radio.remove()
"""


def test_networks_in_one_namespace_leave_each_others_radios_alone(nothing_left):
    def maker(number):
        command = [sys.executable, "-c", MAKER, f"t-radio{number}", f"02:00:00:00:bb:{number:02x}"]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    makers = [maker(number) for number in range(3)]
    numbers = [int(each.stdout.readline()) for each in makers]
    assert set(numbers) <= radio_names().keys()
    # One ends in order, one is killed: nothing that it opened takes others' radios with it.
    makers[0].communicate("\n", timeout=30)
    makers[1].kill()
    makers[1].communicate(timeout=30)
    assert numbers[0] not in radio_names() and {numbers[1], numbers[2]} <= radio_names().keys()
    makers[2].communicate("\n", timeout=30)
    assert numbers[2] not in radio_names() and numbers[1] in radio_names()
    with GenericNetlink(HWSIM) as kernel:
        kernel.command(DEL_RADIO, struct.pack("=HHI", 8, RADIO_ID, numbers[1]))
    assert numbers[1] not in radio_names()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_network_leaves_nothing(lab, nothing_left, number):
    running = lab.emulate(network_name("radio-end"), "--radio", "--no-controller", file="roaming-80211")
    assert len(radios()) >= 7 and {"hostapd", "wpa_supplicant"} <= set(programs())
    running.process.send_signal(number)
    running.process.wait(15)
    assert lab.leftovers(network_name("radio-end")) == []


@pytest.mark.parametrize("part", ["ovs-vswitchd", "worker"])
def test_a_crashed_network_leaves_nothing(lab, nothing_left, part):
    running = lab.emulate(network_name("radio-part"), "--radio", "--no-controller", file="roaming-80211")
    os.kill(running.pid_of(part), signal.SIGKILL)
    running.process.communicate(timeout=15)
    assert running.process.returncode not in (0, None)
    assert lab.leftovers(network_name("radio-part")) == []


def test_after_kill_of_the_owner_nothing_is_left_either(lab, nothing_left):
    before = programs()
    running = lab.emulate(network_name("radio-own"), "--radio", "--no-controller", file="roaming-80211")
    os.kill(running.pid_of("owner"), signal.SIGKILL)
    assert lab.wait_for(lambda: programs() == before, 5.0)
    assert lab.wait_for(lambda: lab.leftovers(network_name("radio-own")) == [], 10.0)


@pytest.mark.parametrize("how", ["terminate", "kill", "quit", "crash"])
def test_mininet_wifi_leaves_nothing(lab, nothing_left, how):
    try:
        wifi_import.load()
    except EmulationError as error:
        pytest.skip(str(error))
    running = lab.emulate(network_name("mn-wifi"), "--no-realtime", file="walk", command="mininet-wifi", at_prompt=True)
    assert len(radios()) >= 3 and {"hostapd", "wpa_supplicant"} <= set(programs())
    if how == "quit":
        running.process.communicate("exit\n", timeout=60)
    elif how == "terminate":
        running.process.send_signal(signal.SIGTERM)
        running.process.wait(15)
    else:
        os.kill(running.pid_of("owner" if how == "kill" else "worker"), signal.SIGKILL)
    assert lab.wait_for(lambda: lab.leftovers(network_name("mn-wifi")) == [], 10.0)


def test_the_demo_holds(hyroads, document_of, nothing_left, tmp_path):
    arguments = ("--seconds", "2", "--json", "--no-realtime", "--out", str(tmp_path))
    done = hyroads("demo", "roaming-80211", *arguments, timeout_s=280.0)
    assert done.returncode == 0, done.stdout + done.stderr
    document = document_of(done.stdout)
    assert document["ok"] and len(document["checks"]) == 17
    rows = (tmp_path / "handovers.csv").read_text().splitlines()
    assert len(rows) == 1 + 4 * 4

"""Two machines with Open vSwitch join, are adopted, carry traffic, leave, and are as before."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from box_machines import URL, Home, Machine
from controller_process import eventually
from ovs_rig import available

pytestmark = [pytest.mark.root, pytest.mark.skipif(not available(), reason="needs root and Open vSwitch")]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    with Home(tmp_path_factory.mktemp("home")) as running:
        yield running


def pending(home: Home, name: str) -> dict[str, Any]:
    found: dict[str, Any] = eventually(
        lambda: {each: box for each, box in home.boxes().items() if each == name and box["state"] == "pending"}
    )
    return found[name]


def only_line(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 2, (done.stdout, done.stderr)
    (line,) = done.stderr.splitlines()
    return line


def test_what_is_wrong_is_one_line_and_changes_nothing(home: Home) -> None:
    machine = home.machines["gw"]
    before = machine.snapshot()
    assert "wrong pin" in only_line(machine.box("join", URL, "--pin", "0" * 64))
    assert "Connection refused" in only_line(machine.box("join", "https://192.0.2.1:1"))
    assert "expected https://HOST:PORT" in only_line(machine.box("join", "192.0.2.1"))
    assert "the join code is wrong" in only_line(machine.box("join", URL, "--code", "AAAA-BBBB"))
    read_only = "mount -o remount,bind,ro /etc"
    assert "the file system is read-only" in only_line(machine.box("join", URL, mounts=read_only))
    full = "mount -t tmpfs -o size=64k none /var/lib"
    assert "no space is left" in only_line(machine.box("join", URL, mounts=full))
    assert machine.snapshot() == before and home.boxes() == {}


def test_a_disk_that_fills_during_the_join_leaves_nothing_half_done(home: Home) -> None:
    machine = home.machines["gw"]
    (machine.etc / "hyroads").mkdir()
    before = machine.snapshot()
    small = "mount -t tmpfs -o size=8k none /etc/hyroads"
    with machine.joining("--name", "full", mounts=small) as process:
        pending(home, "full")
        done = home.at_controller("box", "adopt", "full", "--as", "gw")
        assert process.wait(60) == 2
        assert process.stderr is not None and process.stderr.read().splitlines()[0].endswith("No space left on device")
    assert done.returncode != 0 and "No space left" in done.stderr
    box = home.boxes()["full"]
    assert box["state"] == "left" and "No space left" in box["problem"]
    assert machine.snapshot() == before
    (machine.etc / "hyroads").rmdir()


def joined(home: Home, machine: Machine, node: str, *words: str, url: tuple[str, ...] = (URL,)) -> str:
    """The machine is a node; returns the id that it had as a box."""
    with machine.joining(*words, url=url) as process:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        line = next(line for line in lines if line.startswith("pending: box "))
        name = line.split()[2].rstrip(",")
        box = pending(home, name)
        assert line.split()[-1] == box["key"][:16]
        # One command at the controller; answered once the switch and the agent are connected.
        done = home.at_controller("box", "adopt", name, "--as", node, "--json")
        assert done.returncode == 0, (done.stderr, (home.folder / "controller.log").read_text()[-2000:])
        adopted = json.loads(done.stdout)
        assert (adopted["connected"], adopted["pending"], adopted["node"]) == (True, [], node)
        rest = process.communicate(timeout=60)
        assert process.returncode == 0, rest
        assert f"{node} is connected" in rest[0]
    return name


def test_boxes_join_carry_traffic_and_leave_as_they_came(home: Home) -> None:
    gateway, upstairs = home.machines["gw"], home.machines["up"]
    before = {node: machine.snapshot() for node, machine in home.machines.items()}
    pin = json.loads(home.at_controller("box", "pin", "--json").stdout)["pin"]
    code = json.loads(home.at_controller("box", "code", "--json").stdout)["code"]
    # The gateway finds the controller, which names itself by multicast DNS.
    names = [joined(home, gateway, "gw", "--pin", pin, url=()), joined(home, upstairs, "up", "--code", code)]
    assert home.boxes()[names[1]]["verified"] and not home.boxes()[names[0]]["verified"]
    assert home.boxes()[names[0]]["ports"] == {"plc": "eth1", "host": "eth2"}
    # A second join does nothing, and one as another box is refused.
    again = gateway.box("join", URL)
    assert (again.returncode, again.stdout) == (0, "this box is gw already\n")
    assert "has joined as gw" in only_line(gateway.box("join", URL, "--name", "attic"))
    taken = home.at_controller("box", "adopt", names[1], "--as", "gw")
    assert taken.returncode == 2 and "is adopted as up" in taken.stderr
    # Frames pass the two boxes, on the single path and on a flow's multipath.
    ping = ("ip", "netns", "exec", home.hosts["gw"], "ping", "-c", "3", "-i", "0.1", "-W", "1", "10.0.0.2")
    eventually(lambda: subprocess.run(ping, capture_output=True).returncode == 0)
    flow = home.at_controller("flows", "add", "web", "gw", "up")
    assert flow.returncode == 0, flow.stderr
    assert subprocess.run(ping, capture_output=True, text=True).returncode == 0
    for node, machine in home.machines.items():
        left = machine.box("leave")
        assert (left.returncode, left.stdout) == (0, f"left: {node}\n"), left.stderr
        assert machine.snapshot() == before[node]
        twice = machine.box("leave")
        assert (twice.returncode, twice.stdout) == (0, "this box has not joined\n")
    assert {home.boxes()[name]["state"] for name in names} == {"left"}


def test_a_box_that_waits_continues_after_it_was_killed_and_leaves_before_it_is_adopted(home: Home) -> None:
    machine = home.machines["gw"]
    before = machine.snapshot()
    with machine.joining("--name", "waits"):
        key = pending(home, "waits")["key"]
    with machine.joining():
        assert pending(home, "waits")["key"] == key
    assert machine.box("leave").returncode == 0
    assert machine.snapshot() == before and home.boxes()["waits"]["state"] == "left"

"""Faults in `/health` for other applications in the controller's process and for rules of other programs."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from controller_process import ControllerProcess, eventually, free_ports
from dummy_switches import DummySwitches, available

from hyroads.controller.framework.launcher import FRAMEWORK

APPS = (f"{FRAMEWORK}.app.ofctl_rest", f"{FRAMEWORK}.app.rest_topology")
MANAGER = "from hyroads.controller.framework.launcher import ryu_manager; raise SystemExit(ryu_manager())"


def faults(controller: ControllerProcess) -> list[dict[str, Any]]:
    return list((controller.rest("GET", "/health")[1] or {}).get("last_errors", ()))


@pytest.mark.skipif(find_spec(APPS[0]) is None, reason="the framework has no such application")
def test_other_applications_in_the_process_are_a_fault(tmp_path: Path) -> None:
    (web,) = free_ports(1)
    controller = ControllerProcess(tmp_path, {})
    controller.command = [sys.executable, "-c", MANAGER, f"--wsapi-port={web}", "hyroads.controller.app", *APPS]
    with controller:
        (fault,) = eventually(lambda: [one for one in faults(controller) if one["where"] == "other applications"])
    assert set(APPS) <= set(fault["what"].split(":")[0].split(", "))


def test_without_other_applications_there_is_no_such_fault(tmp_path: Path) -> None:
    with ControllerProcess(tmp_path, {}) as controller:
        eventually(lambda: controller.rest("GET", "/health")[1])
        assert not [one for one in faults(controller) if one["where"] == "other applications"]


@pytest.mark.skipif(not available(), reason="needs Open vSwitch")
def test_a_foreign_rule_is_a_fault_when_its_switch_connects_and_stays(tmp_path: Path) -> None:
    ports = {"a": ["a-plc", "a-wifi", "a-host", "a-acc", "a-net"]}
    with DummySwitches(tmp_path / "ovs", ports) as switches, ControllerProcess(tmp_path, {}) as controller:
        words = ("ovs-ofctl", "-O", "OpenFlow13")
        # Open vSwitch deletes all rules of a bridge that gets its first controller; here it is one that never answers.
        switches.connect(*free_ports(1))
        switches.run(*words, "add-flow", "a", "table=0,priority=7,udp,tp_dst=4444,actions=drop")
        switches.connect(controller.openflow)
        (fault,) = eventually(lambda: [one for one in faults(controller) if "rules of other programs" in one["what"]])
        assert fault["what"].endswith(": 1, in tables 0")
        assert "tp_dst=4444" in switches.run(*words, "dump-flows", "a", "table=0")

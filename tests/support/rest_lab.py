"""A real controller process with real switches (dummy datapath) and scripted agents, on the triangle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controller_process import ControllerProcess, eventually
from dummy_switches import DummySwitches
from scripted_agent import ScriptedAgent

PORTS = {"a": ["a-plc", "a-wifi", "a-host", "a-acc", "a-net"], "b": ["b-plc", "b-wifi", "b-host", "b-acc", "b-net"]}
LINKS = {"a": ["ab-plc~", "ab-wifi~"], "b": ["ab-plc", "ab-wifi"]}


@dataclass
class RestLab:
    controller: ControllerProcess
    switches: DummySwitches
    agents: dict[str, ScriptedAgent]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.controller.port}"


@contextmanager
def rest_lab(folder: Path, settings: Mapping[str, Any] | None = None, token: str | None = None) -> Iterator[RestLab]:
    """Running, and in sync."""
    with ExitStack() as stack:
        switches = stack.enter_context(DummySwitches(folder / "ovs", PORTS))
        given = {"timings": {"grace_s": 5.0}, **(settings or {})}
        controller = stack.enter_context(ControllerProcess(folder, given))
        agents = {node: stack.enter_context(ScriptedAgent(node, controller.agents, LINKS[node])) for node in PORTS}
        switches.connect(controller.openflow)
        eventually(lambda: (controller.rest("GET", "/health", token=token)[1] or {}).get("ok"))
        yield RestLab(controller, switches, agents)

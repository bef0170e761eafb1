"""The demos: emulated networks with real traffic whose outcome is checked against theory.

A demo is a module with ``NETWORK`` (a network file) and ``run(stage) -> None``; it is listed here so that
``hyroads demo --list`` need not import it.
"""

from __future__ import annotations

import difflib
import importlib
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol, cast

from hyroads.controller.netfile_io import read_file
from hyroads.mininet.demos.verdict import DemoOptions, Stage
from hyroads.mininet.emulation import Emulation
from hyroads.mininet.errors import EmulationError
from hyroads.mininet.network_files import find_network
from hyroads.mininet.runner import RunOptions, run_network

DEMOS: dict[str, str] = {
    "triangle": "PLC + WiFi gateway, PLC + WiFi extender, WiFi laptop: one path at 10 Mb/s, the multipath at 16.67",
}


class Demo(Protocol):
    """What the module of a demo offers."""

    NETWORK: str

    def run(self, stage: Stage) -> None:
        """Runs the traffic and adds checks to the stage."""


def find_demo(name: str) -> Demo:
    """The module of a demo; EmulationError if there is none of that name."""
    if name not in DEMOS:
        close = difflib.get_close_matches(name, DEMOS, n=1)
        hint = f" (did you mean {close[0]}?)" if close else ""
        raise EmulationError(f"no demo {name[:40]!a}{hint}; there are: {', '.join(DEMOS)}")
    return cast(Demo, importlib.import_module(f"hyroads.mininet.demos.{name}"))


def run_demo(demo: Demo, how: DemoOptions, options: RunOptions, name: str, say: Callable[[str], None]) -> int:
    """Sets the network up, runs the demo on it, prints the verdict; returns the exit status (0 or 1)."""
    network = read_file(find_network(demo.NETWORK))

    def body(emulation: Emulation) -> int:
        stage = Stage(emulation, how, network)
        with stage.view:
            demo.run(stage)
        if how.json:
            print(json.dumps(stage.document(demo.NETWORK)))
        else:
            stage.print_verdict()
        return 0 if stage.ok else 1

    # The demo declares its flows itself, when it is their turn.
    return run_network(replace(network, flows=()), name, body, options, say)

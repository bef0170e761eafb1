"""The demos: emulated networks with real traffic whose outcome is checked against theory.

A demo is a module with ``network(how) -> Network`` and ``run(stage) -> None``; it is listed here so that
``hyroads demo --list`` need not import it.
"""

from __future__ import annotations

import difflib
import importlib
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol, cast

from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.core.network import Network
from hyroads.mininet.demos.verdict import DemoOptions, Stage
from hyroads.mininet.emulation import Emulation
from hyroads.mininet.machine import TOO_SLOW, MachineWatch
from hyroads.mininet.programs import EmulationError
from hyroads.mininet.runner import RunOptions, run_network

DEMOS: dict[str, str] = {
    "triangle": "PLC + WiFi gateway, PLC + WiFi extender, WiFi laptop: one path at 10 Mb/s, the multipath at 16.67",
    "competing": "a hybrid flow leaves WiFi to a one-hop WiFi flow, and comes back when that has ended",
    "two-flows": "a second flow over the same media halves the first, which gets all back",
    "capacity-drop": "a power line loses capacity untold: HyMAB moves to a better multipath, the model does not",
    "external": "traffic that nobody controls is never starved, controlled flows take what is left",
    "handover": "a client goes from WiFi to power line to a cellular-like link, and nothing is lost on the way",
    "session": "five devices talk to each other without a server, over trees that take every link once",
    "reservation": "a flow keeps what it was promised when a second starts, which may not reserve more than the rest",
    "shares": "a slice keeps to its share of airtime while another wants it, and takes all that is idle",
    "office": "22 hybrid nodes, WiFi and two power lines, ten flows, by a controller that only measures",
}

DEFAULTS: dict[str, dict[str, object]] = {
    "capacity-drop": {"radios": True, "busy_noise": 0.2},
    "external": {"measured": True},
    "office": {"measured": True, "discover": True, "noise": 0.1, "busy_noise": 0.02, "low_rate_bias": 0.3},
}
"""What options of ``hyroads demo`` are for a demo if they are not given."""

ONLY: dict[str, frozenset[str]] = {
    "faults": frozenset({"triangle"}),
    "seconds": frozenset(DEMOS) - {"office"},
    "long": frozenset(DEMOS) - {"office"},
    "minutes": frozenset({"office"}),
    "scale": frozenset({"office"}),
}
"""The demos that know an option; options that are not here are for all."""

LEAST_SECONDS: dict[str, int] = {"capacity-drop": 6, "external": 4, "shares": 4}
"""The shortest phases in which there is something to judge; 2 s else."""


class Demo(Protocol):
    """What the module of a demo offers."""

    def network(self, how: DemoOptions) -> Network:
        """The network, with the flows that the demo declares when it is their turn."""

    def run(self, stage: Stage) -> None:
        """Runs the traffic and adds checks to the stage."""

    # A demo may have SETTINGS: more of the controller's settings.


def find_demo(name: str) -> Demo:
    """The module of a demo; EmulationError if there is none of that name."""
    if name not in DEMOS:
        close = difflib.get_close_matches(name, DEMOS, n=1)
        hint = f" (did you mean {close[0]}?)" if close else ""
        raise EmulationError(f"no demo {name[:40]!a}{hint}; there are: {', '.join(DEMOS)}")
    return cast(Demo, importlib.import_module(f"hyroads.mininet.demos.{name.replace('-', '_')}"))


def run_demo(name: str, how: DemoOptions, options: RunOptions, network_name: str, say: Callable[[str], None]) -> int:
    """Sets the network of demo ``name`` up, runs the demo on it, prints the verdict; returns the exit status (0, 1).

    EmulationError if it could not run, or the machine was too slow to believe what falls short.
    """
    demo = find_demo(name)
    network = demo.network(how)
    settings = {**getattr(demo, "SETTINGS", {}), **options.emulation.settings}
    options = replace(options, emulation=replace(options.emulation, settings=settings))

    def body(emulation: Emulation) -> int:
        stage = Stage(name, emulation, how, network)
        with MachineWatch(emulation) as watch, stage.view:
            _perform(demo, stage, watch)
        stage.machine = watch.result()
        stage.write_verdict()
        if how.json:
            print(json.dumps(stage.document()))
        else:
            stage.print_verdict()
        if stage.not_made:
            sys.stdout.flush()
            raise EmulationError(f"demo {name} not made: {stage.not_made}")
        return 0 if stage.ok else 1

    # The demo declares its flows itself, when it is their turn.
    return run_network(replace(network, flows=()), network_name, body, options, say)


def _perform(demo: Demo, stage: Stage, watch: MachineWatch) -> None:
    """Runs the demo; an EmulationError says so if the machine was too slow."""
    try:
        demo.run(stage)
    except HyroadsError as error:
        if why := watch.result().why:
            raise EmulationError(f"{error}; {TOO_SLOW}, {why}") from error
        raise

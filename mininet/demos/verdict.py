"""The stage of a demo with a controller: emulation, traffic, theory and verdict; and how such a demo is run.

Theory is exact optima from the capacities that the emulator has, not from what the controller knows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from hyroads.controller.core.addressing import Addressing
from hyroads.controller.core.network import FlowSpec, Network
from hyroads.controller.core.optimum import JointOptimum, joint_optimum
from hyroads.controller.files.documents import read_file
from hyroads.controller.ofp.intents import attached_only, default_places
from hyroads.mininet.emulation import Emulation
from hyroads.mininet.live_view import Sampler
from hyroads.mininet.machine import Machine, MachineWatch
from hyroads.mininet.run_directory import find_network
from hyroads.mininet.runner import RunOptions, run_network
from hyroads.mininet.traffic import Traffic

from . import find_demo
from .checks import DemoOptions
from .judged_stage import JudgedStage


@dataclass(frozen=True)
class Theory:
    """Optima of a network whose controller leaves the share ``margin`` of every domain's time free."""

    network: Network
    margin: float

    @staticmethod
    def of(network: Network, margin: float) -> Theory:
        """Plain clients use only the links to where they are attached."""
        addressing = Addressing.of(network)
        return Theory(attached_only(network, addressing, default_places(addressing)), margin)

    def with_capacities(self, capacities_mbps: Mapping[str, float]) -> Theory:
        """After a change of the medium's links (link id -> Mb/s)."""
        return Theory(self.network.with_capacities(capacities_mbps), self.margin)

    def optimum(self, flows: Sequence[FlowSpec], external_mbps: Mapping[str, float] | None = None) -> JointOptimum:
        """The optimum over all paths of all flows, beside traffic that is not ours (link id -> Mb/s of L2 payload)."""
        external = self.external_airtime(external_mbps or {})
        return joint_optimum(self.network, flows, margin=self.margin, external=external)

    def external_airtime(self, external_mbps: Mapping[str, float]) -> dict[str, float]:
        """Share of time that others use in the domain of every link."""
        shares = dict.fromkeys(self.network.link_index, 0.0)
        for link, mbps in external_mbps.items():
            index = self.network.link_index[link]
            busy = mbps / self.network.links[index].capacity_mbps
            for other in self.network.interference.domain(index).tolist():
                shares[self.network.links[other].id] += busy
        return shares


class Stage(JudgedStage):
    """Where a demo with a controller runs: the emulation, traffic, and the checks so far."""

    def __init__(self, name: str, emulation: Emulation, options: DemoOptions, declared: Network) -> None:
        super().__init__(name, options)
        self.emulation = emulation
        self.declared = declared
        self.machine = Machine(())

    @cached_property
    def _sampler(self) -> Sampler:
        return Sampler(self.emulation, tuple(self.emulation.network.nodes))

    @cached_property
    def theory(self) -> Theory:
        """Optima from the medium's true capacities, with the margin that the controller leaves."""
        return Theory.of(self.declared, self.emulation.margin())

    def pause(self, seconds: float) -> None:
        """Lets traffic run, keeping the view current."""
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            self.emulation.check()
            self.view.update(self._sampler.take)
            time.sleep(min(0.5, max(0.0, until_s - time.monotonic())))

    def declare(self, flow: FlowSpec, **more: object) -> dict[str, Any]:
        """POST /flows; returns once switches and agents have confirmed it."""
        said: dict[str, Any] = {"weight": flow.weight, "slice": flow.slice, **more}
        return self.emulation.rest.declare_flow(flow.id, flow.source, flow.target, **said)

    def traffic(self, source: str, target: str, also: Callable[[], None] = lambda: None) -> Traffic:
        """Traffic that keeps the view current, and calls ``also`` as often."""

        def tick() -> None:
            also()
            self.view.update(self._sampler.take)

        return Traffic(self.emulation, source, target, tick)

    def document(self) -> dict[str, Any]:
        """What ``--json`` prints and ``result.json`` holds (docs/reference/emulation.md)."""
        known = "measured" if self.emulation.options.measured else "file"
        machine = self.machine.document(believable=not self.not_made)
        return {**super().document(), "capacities": known, "machine": machine}

    def write_verdict(self) -> None:
        """The checks as a CSV file beside the others, if the demo wrote any."""
        if not self.files:
            return
        columns = ["what", "theory", "measured", "unit", "ratio", "ok"]
        found = ({**check.document(), "unit": check.unit} for check in self.checks)
        self.write_csv("verdict.csv", columns, ([each[column] for column in columns] for each in found))

    def _known(self) -> str:
        if self.emulation.options.measured:
            return " (the controller knew only what emulated radios measured)"
        return " (the controller knew the capacities of the file)"

    @property
    def why_slow(self) -> str:
        """What the watch over the machine found."""
        return self.machine.why


def network_of(name: str, how: DemoOptions) -> Network:
    """The network of a demo, with the flows that it declares."""
    demo = find_demo(name)
    if hasattr(demo, "network"):
        made: Network = demo.network(how)
        return made
    return read_file(find_network(getattr(demo, "NETWORK", name)))


def run_demo(name: str, how: DemoOptions, options: RunOptions, network_name: str, say: Callable[[str], None]) -> int:
    """Sets the network of demo ``name`` up, runs the demo on it, prints the verdict; returns the exit status (0, 1).

    EmulationError if it could not run, or the machine was too slow to believe what falls short.
    """
    demo, network = find_demo(name), network_of(name, how)
    settings = {**getattr(demo, "SETTINGS", {}), **options.emulation.settings}
    options = replace(options, emulation=replace(options.emulation, settings=settings))

    def body(emulation: Emulation) -> int:
        stage = Stage(name, emulation, how, network)
        beside = stage.beside(emulation.directory, realtime=emulation.options.realtime)
        with MachineWatch(emulation) as watch, beside, stage.view:
            demo.run(stage)
        stage.machine = watch.result()
        stage.write_verdict()
        return stage.conclude()

    # The demo declares its flows itself, when it is their turn.
    return run_network(replace(network, flows=()), network_name, body, options, say)

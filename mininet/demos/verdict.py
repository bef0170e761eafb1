"""What every demo has: its options, its stage (emulation, view, checks), theory, the verdict; and how it is run.

Theory is exact optima from the capacities that the emulator has, not from what the controller knows.
"""

from __future__ import annotations

import csv
import json
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from hyroads.controller.core.addressing import Addressing
from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.core.network import FlowSpec, Network
from hyroads.controller.core.optimum import JointOptimum, joint_optimum
from hyroads.controller.files.documents import read_file
from hyroads.controller.ofp.intents import attached_only, default_places
from hyroads.mininet.emulation import Emulation
from hyroads.mininet.live_view import LiveView, Sampler, View
from hyroads.mininet.machine import TOO_SLOW, Machine, MachineWatch
from hyroads.mininet.programs import EmulationError
from hyroads.mininet.run_directory import find_network
from hyroads.mininet.runner import RunOptions, run_network
from hyroads.mininet.traffic import Traffic

from . import find_demo

LONG_FACTOR = 4


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


@dataclass(frozen=True)
class DemoOptions:
    """How to run a demo; ``seconds`` is the length of each measurement, ``minutes`` that of the demo
    office and ``scale`` what its capacities are multiplied by, ``out`` the folder for CSV files and plots."""

    seconds: float = 8.0
    long: bool = False
    faults: bool = False
    json: bool = False
    live: bool = False
    out: Path | None = None
    minutes: float | None = None
    scale: float | None = None


@dataclass(frozen=True)
class Check:
    """A measured figure beside what theory gives; ``ok`` within the bounds on measured / theory."""

    what: str
    theory: float
    measured: float
    unit: str = "Mb/s"
    at_least: float | None = None
    at_most: float | None = None

    @property
    def ratio(self) -> float:
        """Measured / theory; where theory says nothing at all, 1 if that is so and infinite if not."""
        if self.theory == 0:
            return 1.0 if self.measured == 0 else float("inf")
        return self.measured / self.theory

    @property
    def ok(self) -> bool:
        """Whether the figure is within its bounds."""
        above = self.at_least is None or self.ratio >= self.at_least
        return above and (self.at_most is None or self.ratio <= self.at_most)

    def document(self) -> dict[str, object]:
        """The entry of the JSON document; what is no number, such as the delay of no packet, is null."""
        figures = {"theory": self.theory, "measured": self.measured, "ratio": self.ratio}
        return {
            "what": self.what,
            **{name: round(value, 4) if math.isfinite(value) else None for name, value in figures.items()},
            "ok": self.ok,
        }

    def line(self) -> str:
        """One line of the verdict."""
        bounds = [
            *([f">= {self.at_least:.2f}"] if self.at_least is not None else []),
            *([f"<= {self.at_most:.2f}"] if self.at_most is not None else []),
        ]
        figures = f"theory {self.theory:6.2f}  measured {self.measured:6.2f} {self.unit:<7}"
        return (
            f"{'ok  ' if self.ok else 'FAIL'} {self.what:<57} {figures} ratio {self.ratio:5.3f} ({', '.join(bounds)})"
        )


def part_of(part: float, whole: float) -> float:
    """A measured part of a measured whole; 0 of nothing, so that a phase without any packet gets a verdict, too."""
    return part / whole if whole else 0.0


class Stage:
    """Where a demo runs: the emulation, the view, traffic, and the checks so far."""

    def __init__(self, name: str, emulation: Emulation, options: DemoOptions, declared: Network) -> None:
        self.name = name
        self.emulation = emulation
        self.options = options
        self.declared = declared
        self.checks: list[Check] = []
        self.skipped: list[dict[str, str]] = []
        """Checks that could not be made here: ``what`` and ``why``."""
        self.files: list[Path] = []
        """What has been written."""
        self.machine = Machine(())

    @cached_property
    def view(self) -> View:
        """The live view, plain lines, or nothing on stdout with ``--json``."""
        sampler = Sampler(self.emulation, tuple(self.emulation.network.nodes))
        stream = sys.stderr if self.options.json else sys.stdout
        return (LiveView if self.options.live else View)(sampler, stream)

    @property
    def hold_s(self) -> float:
        """How long a phase lasts."""
        return self.options.seconds * (LONG_FACTOR if self.options.long else 1)

    @cached_property
    def theory(self) -> Theory:
        """Optima from the medium's true capacities, with the margin that the controller leaves."""
        return Theory.of(self.declared, self.emulation.margin())

    @cached_property
    def folder(self) -> Path:
        """Where CSV files and plots go; made when it is first needed."""
        folder = self.options.out or Path("out") / f"demo-{self.name}"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def pause(self, seconds: float) -> None:
        """Lets traffic run, keeping the view current."""
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            self.emulation.check()
            self.view.update()
            time.sleep(min(0.5, max(0.0, until_s - time.monotonic())))

    def declare(self, flow: FlowSpec, **more: object) -> dict[str, Any]:
        """POST /flows; returns once switches and agents have confirmed it."""
        said: dict[str, Any] = {"weight": flow.weight, "slice": flow.slice, **more}
        return self.emulation.rest.declare_flow(flow.id, flow.source, flow.target, **said)

    def traffic(self, source: str, target: str, also: Callable[[], None] = lambda: None) -> Traffic:
        """Traffic that keeps the view current, and calls ``also`` as often."""

        def tick() -> None:
            also()
            self.view.update()

        return Traffic(self.emulation, source, target, tick)

    def check(  # noqa: PLR0917 - as Check
        self,
        what: str,
        theory: float,
        measured: float,
        unit: str = "Mb/s",
        at_least: float | None = None,
        at_most: float | None = None,
    ) -> None:
        """Adds a :class:`Check` and shows it."""
        self.checks.append(Check(what, theory, measured, unit, at_least, at_most))
        self.view.note(self.checks[-1].line())

    def skip(self, what: str, why: str) -> None:
        """Notes that a check is left out, and why; the others decide about the verdict."""
        self.skipped.append({"what": what, "why": why})
        self.view.note(f"skip {what}: {why}")

    @property
    def ok(self) -> bool:
        """Whether there are checks and all hold."""
        return bool(self.checks) and all(check.ok for check in self.checks)

    @property
    def not_made(self) -> str:
        """Why the run counts as not made, neither passed nor failed; empty if it counts.

        What holds on a slow machine holds: only a run that falls short must be believed.
        """
        return f"{TOO_SLOW}, {self.machine.why}" if self.machine.why and not self.ok else ""

    def document(self) -> dict[str, Any]:
        """What ``--json`` prints and ``result.json`` holds (docs/reference/emulation.md)."""
        files = [str(path) for path in self.files]
        return {
            "name": self.name,
            "checks": [check.document() for check in self.checks],
            **({"skipped": self.skipped} if self.skipped else {}),
            "ok": self.ok,
            "capacities": "measured" if self.emulation.options.measured else "file",
            "files": files,
            "machine": self.machine.document(ok=self.ok),
        }

    def write_verdict(self) -> None:
        """The checks as a CSV file beside the others, if the demo wrote any."""
        if not self.files:
            return
        path = self.folder / "verdict.csv"
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, ["what", "theory", "measured", "unit", "ratio", "ok"])
            writer.writeheader()
            writer.writerows({**check.document(), "unit": check.unit} for check in self.checks)
        self.files.append(path)

    def print_verdict(self) -> None:
        """The verdict lines."""
        known = (
            "only what emulated radios measured" if self.emulation.options.measured else "the capacities of the file"
        )
        print(f"\nVerdict (the controller knew {known})")
        for check in self.checks:
            print(f"  {check.line()}")
        for each in self.skipped:
            print(f"  skip {each['what']}: {each['why']}")
        if self.files:
            print(f"  written to {self.folder}: {', '.join(path.name for path in self.files)}")
        print(f"  {self._conclusion()}", flush=True)

    def _conclusion(self) -> str:
        if self.not_made:
            return f"not made: {self.not_made}"
        if not self.ok:
            return "falls short of theory"
        return "all as theory says" + (f", though the machine was slow {self.machine.why}" if self.machine.why else "")


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


def _perform(demo: Any, stage: Stage, watch: MachineWatch) -> None:
    """Runs the demo; an EmulationError says so if the machine was too slow."""
    try:
        demo.run(stage)
    except HyroadsError as error:
        if why := watch.result().why:
            raise EmulationError(f"{error}; {TOO_SLOW}, {why}") from error
        raise

"""Demo ``mar``: an upload over MPTCP outlives the wires behind two access points (mobile augmented reality).

A client has a radio at a (wifi2, 40 Mb/s) and one at b (wifi5, 50 Mb/s). A cycle: b's wire alone, both (the connection
couples them), a's alone (b is cut while a carries: soft), then a is cut and b mended at once (hard). Wires lose their
carrier, the air stays as it is. Published with the kernel's MPTCP alone (Cereijo, UC3M, 2016): often no gain of
coupling, soft 50 ms to seconds, hard 2 to 3 s. Here the network routes below MPTCP.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hyroads.mininet.mptcp_traffic import MptcpUpload
from hyroads.mininet.programs import run as run_program

from . import recording
from .recording import Panel
from .verdict import Stage

SETTINGS = {"timings": {"hello_interval_ms": 10, "hello_dead_ms": 40}}
CLIENT, SERVER = "c", "s"
WIRES = {"a": "ethernet-a", "b": "ethernet-b"}
CYCLES, LONG_CYCLES = 2, 10
# Phases shorter than this are for trying the demo: one cycle of them will do.
SHORT_S = 5.0
BIN_S = 0.05
# Rates are those of a phase without its first second; pauses are those that begin in it.
SETTLE_S, PAUSES_S = 1.0, 1.0
FULL_AFTER_S = 0.5
OF_SUM, SOFT_MS, HARD_MS = 0.93, 50.0, 250.0


@dataclass(frozen=True)
class Phase:
    """Which wires are there, from when to when (CLOCK_MONOTONIC); the moment before anything changes comes first."""

    name: str
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Cycle:
    """The four phases of a cycle, the last one being the first of the next."""

    b_alone: Phase
    both: Phase
    a_alone: Phase
    flipped: Phase


def run(stage: Stage) -> None:
    """So many cycles, then the verdict, the 50 ms bins and a plot."""
    for flow in stage.declared.flows:
        stage.declare(flow)
    with MptcpUpload(stage.emulation, CLIENT, SERVER) as upload:
        stage.pause(SETTLE_S)
        cycles = play(stage, LONG_CYCLES if stage.options.long else CYCLES if stage.options.seconds >= SHORT_S else 1)
    judge(stage, upload, cycles)
    write(stage, upload, cycles)


def play(stage: Stage, count: int) -> list[Cycle]:
    """Cuts and mends wires; each phase lasts as long as ``--seconds`` says."""

    def phase(name: str, *, cut: str = "", mended: str = "") -> Phase:
        stage.view.phase(name)
        start_s = time.monotonic()
        for access_point, up in ((mended, True), (cut, False)):
            if access_point:
                set_wire(stage, access_point, up=up)
        stage.pause(max(0.0, start_s + stage.options.seconds - time.monotonic()))
        return Phase(name, start_s, time.monotonic())

    cycles, first = [], phase("b alone", cut="a")
    for _ in range(count):
        both, soft = phase("both", mended="a"), phase("a alone (soft)", cut="b")
        flipped = phase("b alone (hard)", cut="a", mended="b")
        cycles.append(Cycle(first, both, soft, flipped))
        first = flipped
    return cycles


def set_wire(stage: Stage, access_point: str, *, up: bool) -> None:
    """A wire is cut, or mended: both directions, and the carrier at both ends."""
    technology, names = WIRES[access_point], stage.emulation.addressing.interface_name
    with stage.emulation.shared.client() as medium:
        for link in stage.emulation.network.links:
            if link.technology == technology:
                medium.set_link(link.id, up=up)
    for node in (access_point, SERVER):
        run_program("ip", "link", "set", names[node, technology], "carrier", "on" if up else "off")


def judge(stage: Stage, upload: MptcpUpload, cycles: Sequence[Cycle]) -> None:
    """The worst cycle decides."""

    def rate(phase: Phase) -> float:
        return upload.mbps(min(phase.start_s + SETTLE_S, phase.end_s - SETTLE_S), phase.end_s)

    def gap_ms(phase: Phase) -> float:
        return 1e3 * upload.longest_gap_s(phase.start_s, min(phase.start_s + PAUSES_S, phase.end_s))

    coupled = [rate(cycle.both) / max(1e-9, rate(cycle.b_alone) + rate(cycle.a_alone)) for cycle in cycles]
    stage.check("coupled, beside the sum of each alone (worst cycle)", 1.0, min(coupled), "ratio", at_least=OF_SUM)
    soft_ms, hard_ms = (max(gap_ms(phase) for phase in phases) for phases in _losses(cycles))
    stage.check("soft: longest pause (worst cycle)", SOFT_MS, soft_ms, "ms", at_most=1.0)
    stage.check("hard: longest pause (worst cycle)", HARD_MS, hard_ms, "ms", at_most=1.0)
    full = min(
        upload.mbps(cycle.flipped.start_s + FULL_AFTER_S, cycle.flipped.start_s + FULL_AFTER_S + SETTLE_S)
        / max(1e-9, rate(cycle.flipped))
        for cycle in cycles
    )
    stage.check("hard: rate from 0.5 s on, of the later one (worst cycle)", 1.0, full, "ratio", at_least=OF_SUM)


def _losses(cycles: Sequence[Cycle]) -> tuple[list[Phase], list[Phase]]:
    """Phases that begin with a loss: soft ones, and hard ones."""
    return [cycle.a_alone for cycle in cycles], [cycle.flipped for cycle in cycles]


def write(stage: Stage, upload: MptcpUpload, cycles: Sequence[Cycle]) -> None:
    """What arrived in bins of 50 ms, as CSV and as a plot."""
    phases = [cycles[0].b_alone, *(phase for each in cycles for phase in (each.both, each.a_alone, each.flipped))]
    begin_s, end_s = phases[0].start_s, phases[-1].end_s
    counts = np.zeros(int((end_s - begin_s) / BIN_S) + 1)
    for at_s, length in upload.arrivals:
        if begin_s <= at_s < end_s:
            counts[int((at_s - begin_s) / BIN_S)] += length
    times, mbps = np.arange(len(counts)) * BIN_S, counts * 8e-6 / BIN_S
    rows = ((f"{at_s:.2f}", f"{rate:.3f}") for at_s, rate in zip(times, mbps, strict=True))
    stage.write_csv("bins.csv", ["time_s", "mbps"], rows)
    if recording.can_draw():
        marks = {phase.start_s - begin_s: phase.name for phase in phases}
        panel = Panel(
            "received, 50 ms bins", "Mb/s", {"upload over MPTCP": (np.asarray(times, dtype=np.float64), mbps)}
        )
        stage.files += recording.draw(stage.folder, stage.name, [panel], marks)

"""Demo ``offload``: a download over MPTCP stays off the mobile network while there is WiFi.

WiFi (25 Mb/s, 5 ms) is off for a phase and on for one; LTE (25 Mb/s, 30 ms) is always there, and metered; the server's
link carries 10 Mb/s. The connection is the kernel's own; its subflows are managed by ``hyroads client run`` in the mode
``cost-efficient``. Cereijo (UC3M, 2016) published 38 % off LTE for a path manager that knows
nothing of cost.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hyroads.mininet.client_stack import Uplink
from hyroads.mininet.mptcp_stack import NO_MPTCP, PATH_MANAGER, MptcpStack, ReceivedBytes
from hyroads.mininet.programs import EmulationError, wait_until
from hyroads.mininet.stack_traffic import MPTCP, Transfer

from . import recording
from .checks import DemoOptions, part_of
from .recording import Panel
from .stack_stage import StackStage, run_stack_demo

WIFI, LTE = "if0", "if1"
LABELS = {WIFI: "WiFi", LTE: "LTE"}
UPLINKS = [Uplink(25, delay_ms=5), Uplink(25, delay_ms=30)]
SERVER_MBPS = 10.0
POLICY = f"interfaces: {{{WIFI}: {{}}, {LTE}: {{metered: true}}}}\nplane: mptcp\nmode: cost-efficient\n"
CYCLES = 2
BIN_S = 0.2
# Of an Ethernet frame of 1514 bytes TCP leaves 1448 to its payload, MPTCP's data sequence signal takes 20 of these.
GOODPUT = 1428 / 1514
SOON_MS, PAUSE_MS, OF_GOODPUT = 300.0, 500.0, 0.97
# What was on its way over LTE when WiFi came back still arrives there: 1 % of 30 s.
LATE_S = 0.3
# Enough for ten full packets: more than what opens and confirms subflows.
CARRIES_BYTES = 15_000
START_S = 1.0


def run_alone(how: DemoOptions, name: str, say: Callable[[str], None]) -> int:
    """Runs the demo, prints the verdict, returns the exit status."""
    if not PATH_MANAGER.exists():
        raise EmulationError(NO_MPTCP)
    return run_stack_demo(_run, ("offload", name), how, UPLINKS, say, shaped=True)


@dataclass(frozen=True)
class _Phase:
    wifi: bool
    start_s: float
    end_s: float


def _run(stage: StackStage) -> None:
    with (
        MptcpStack(stage.network, stage.directory, UPLINKS, POLICY, SERVER_MBPS) as stack,
        ReceivedBytes(stack.namespace("client"), (WIFI, LTE)) as received,
        Transfer(stack, upload=False, protocol=MPTCP) as transfer,
    ):
        wait_until("both subflows", lambda: stack.subflows() == {WIFI: False, LTE: True}, 5.0)
        phases = list(_phases(stage, stack))
        transfer.finish()
        _judge(stage, received, transfer, phases)
        _write(stage, received, transfer, phases)


def _phases(stage: StackStage, stack: MptcpStack) -> list[_Phase]:
    """WiFi is there, goes and comes back, and so on; it is there at the end."""
    phases: list[_Phase] = []
    time.sleep(START_S)
    for wifi in [True, False] * CYCLES + [True]:
        stage.view.phase(f"WiFi is {'on' if wifi else 'off'}")
        start_s = time.monotonic()
        if phases:
            stack.set_carrier(0, up=wifi)
        time.sleep(max(0.0, start_s + stage.hold_s - time.monotonic()))
        phases.append(_Phase(wifi, start_s, time.monotonic()))
    return phases


def _judge(stage: StackStage, received: ReceivedBytes, transfer: Transfer, phases: list[_Phase]) -> None:
    with_wifi = [phase for phase in phases if phase.wifi]
    carried = {
        name: sum(received.between(name, phase.start_s, phase.end_s) for phase in with_wifi) for name in (WIFI, LTE)
    }
    off_lte = part_of(carried[WIFI], sum(carried.values()))
    stage.check("off LTE while there is WiFi", 1.0, off_lte, "of all", 1 - LATE_S / stage.hold_s, 1.0)
    deaths = [phase.start_s for phase in phases if not phase.wifi]
    soon_ms = max(1e3 * (received.first_after(LTE, at_s, CARRIES_BYTES) - at_s) for at_s in deaths)
    stage.check("LTE carries after WiFi has gone", SOON_MS, soon_ms, "ms", at_most=1.0)
    begin_s, end_s = phases[0].start_s, phases[-1].end_s
    gap_ms = 1e3 * transfer.longest_gap_s(begin_s, end_s)
    stage.check("longest pause of the download", PAUSE_MS, gap_ms, "ms", at_most=1.0)
    goodput = transfer.mbps(begin_s, end_s)
    what, during = "goodput of the server's 10 Mb/s", (begin_s, end_s)
    stage.check(what, SERVER_MBPS * GOODPUT, goodput, "Mb/s", OF_GOODPUT, 1.01, during)
    stage.check("bytes lost, doubled or changed", 0, float(not transfer.exact), "", 1, 1)


def _write(stage: StackStage, received: ReceivedBytes, transfer: Transfer, phases: list[_Phase]) -> None:
    begin_s, end_s = phases[0].start_s, phases[-1].end_s
    starts = np.arange(begin_s, end_s - BIN_S, BIN_S)
    lines = {
        label: np.array([received.between(name, at_s, at_s + BIN_S) * 8e-6 / BIN_S for at_s in starts])
        for name, label in LABELS.items()
    }
    lines["download"] = np.array([transfer.mbps(at_s, at_s + BIN_S) for at_s in starts])
    times = starts - begin_s
    rows = [(f"{times[k]:.1f}", *(f"{values[k]:.3f}" for values in lines.values())) for k in range(len(times))]
    stage.write_csv("bins.csv", ("time_s", *(f"{label.lower()}_mbps" for label in lines)), rows)
    if recording.can_draw():
        panels = [Panel("received, 200 ms bins", "Mb/s", {label: (times, line) for label, line in lines.items()})]
        marks = {phase.start_s - begin_s: f"WiFi {'on' if phase.wifi else 'off'}" for phase in phases}
        stage.files += recording.draw(stage.folder, stage.name, panels, marks)

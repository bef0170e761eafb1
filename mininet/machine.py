"""Whether the machine was fast enough to believe a run: the processor time that others took, and how late it woke us.

A watch looks once a second. In the verdict of a demo its figures are information: whether a shortfall counts is what
the plain lane beside the run decides (reference.py, demos/counter_check.py).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Self

from hyroads.controller.core.errors import HyroadsError

from .control_sockets import EdgeClient, MediumClient
from .emulation import Emulation
from .programs import Watch

INTERVAL_S = 1.0
# A shorter time is no measure of shares: processor time comes in ticks of 10 ms.
LEAST_S = 0.5
# What makes a second slow. Checks ask for 5 % over 0.4 s, so 20 ms matter. Programs that go before us without making us
# late (they take the processors by turns) spoil rates with 0.3 of all processors; half of that counts. A quiet machine
# stays below 0.05 (docs/reference/emulation.md, "A machine that is too slow").
LATE_S = 0.02
STOLEN_SHARE = 0.05
TAKEN_SHARE = 0.15
# Agents that are late while nobody takes anything were frozen on purpose, or are stuck in themselves.
TAKEN_AT_ALL = 0.05
# Who uses up the machine is slow by itself.
USED_UP = 0.9

PROC = Path("/proc")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# Fields of "cpu" in /proc/stat: idle, waiting for input, interrupts of both kinds; what the hypervisor took. Programs
# of low priority are others: where the scheduler groups by session, they do not step back.
_FREE, _STOLEN = (3, 4, 5, 6), 7
# Fields of /proc/PID/stat after the command: user, system, and both of children that have ended.
_CPU_FIELDS = slice(11, 15)
_LATE = "over_5_ms_s"


@dataclass(frozen=True)
class Look:
    """Totals at one moment, in seconds: of all processors, of our processes, and by how much wake-ups were late."""

    time_s: float
    free_s: float
    """Idle, or serving interrupts, which nobody can be blamed for."""
    stolen_s: float
    own_s: float
    pressure_s: float | None
    """Time in which something waited for a processor; None where the kernel does not tell."""
    medium_late_s: float
    agents_late_s: Mapping[str, float]


@dataclass(frozen=True)
class Span:
    """Between two looks. ``stolen``, ``others`` and ``own`` are shares of all processors, the rest are seconds;
    ``agents_late_s`` is that of the agent that was late most."""

    seconds: float
    stolen: float
    others: float
    own: float
    pressure_s: float | None
    medium_late_s: float
    agents_late_s: float

    @property
    def taken(self) -> float:
        """What neither we used nor was left."""
        return self.stolen + self.others

    @property
    def slow(self) -> bool:
        """Whether the machine kept the run from what it needed."""
        if self.own >= USED_UP:
            return False
        taken = self.stolen > STOLEN_SHARE or self.taken > TAKEN_SHARE
        agents_late = self.agents_late_s > LATE_S and self.taken > TAKEN_AT_ALL
        return taken or self.medium_late_s > LATE_S or agents_late


def span(before: Look, after: Look, processors: int) -> Span:
    """What happened between two looks."""
    seconds = max(after.time_s - before.time_s, 1e-3)
    available_s = seconds * processors
    own_s, stolen_s, free_s = (
        max(0.0, getattr(after, total) - getattr(before, total)) for total in ("own_s", "stolen_s", "free_s")
    )
    others_s = available_s - own_s - stolen_s - free_s
    agents = (_grown(before.agents_late_s.get(name, 0.0), late_s) for name, late_s in after.agents_late_s.items())
    told = before.pressure_s is not None and after.pressure_s is not None
    return Span(
        seconds,
        min(1.0, stolen_s / available_s),
        min(1.0, max(0.0, others_s / available_s)),
        min(1.0, own_s / available_s),
        max(0.0, (after.pressure_s or 0.0) - (before.pressure_s or 0.0)) if told else None,
        _grown(before.medium_late_s, after.medium_late_s),
        max(agents, default=0.0),
    )


def _grown(before: float, after: float) -> float:
    """Growth of a program's total; one that fell was set to zero in between."""
    return after - before if after >= before else after


@dataclass(frozen=True)
class Machine:
    """What the watch found over a run."""

    spans: Sequence[Span]

    @property
    def why(self) -> str:
        """Why the machine was too slow, with figures; empty if it was fast enough."""
        slow = [each for each in self.spans if each.slow]
        if not slow:
            return ""
        return (
            f"in {sum(each.seconds for each in slow):.0f} of {self.seconds:.0f} s: at worst "
            f"{max(each.stolen for each in slow):.0%} of the processors stolen, "
            f"{max(each.others for each in slow):.0%} used by other programs, the medium "
            f"{1e3 * max(each.medium_late_s for each in slow):.0f} and an agent "
            f"{1e3 * max(each.agents_late_s for each in slow):.0f} ms late in a second"
        )

    @property
    def seconds(self) -> float:
        """How long the watch lasted."""
        return sum(each.seconds for each in self.spans)

    def document(self, *, believable: bool) -> dict[str, object]:
        """The entry ``machine`` of a verdict, for information; ``believable`` is what the verdict says."""
        pressures = [each.pressure_s for each in self.spans if each.pressure_s is not None]
        seconds = max(self.seconds, 1e-9)
        return {
            "stolen_ratio": round(sum(each.stolen * each.seconds for each in self.spans) / seconds, 4),
            "others_ratio": round(sum(each.others * each.seconds for each in self.spans) / seconds, 4),
            "pressure_ratio": round(sum(pressures) / seconds, 4) if pressures else None,
            "medium_late_s": round(sum(each.medium_late_s for each in self.spans), 4),
            "agents_late_s": round(sum(each.agents_late_s for each in self.spans), 4),
            "believable": believable,
            "why": self.why,
        }


class MachineWatch(Watch):
    """Looks at the machine, the medium and the agents while it is entered; ``result`` may be asked for at any time."""

    def __init__(self, emulation: Emulation) -> None:
        super().__init__("watch over the machine")
        self._emulation = emulation
        self._looks: list[Look] = []
        self._agents: dict[str, EdgeClient] = {}
        self._medium: MediumClient | None = None

    def __enter__(self) -> Self:
        self._looks.append(self._look())
        return super().__enter__()

    def _ended(self) -> None:
        for client in (*self._agents.values(), self._medium):
            if client is not None:
                client.close()

    def result(self) -> Machine:
        """All that is known so far."""
        looks, processors = list(self._looks), _processors()
        if len(looks) > 2 and looks[-1].time_s - looks[-2].time_s < LEAST_S:
            del looks[-2]
        return Machine(tuple(span(before, after, processors) for before, after in pairwise(looks)))

    def _watch(self) -> None:
        while not self._stop.wait(INTERVAL_S):
            self._looks.append(self._look())
        self._looks.append(self._look())

    def _look(self) -> Look:
        before = self._looks[-1] if self._looks else None
        totals_s = machine_s()
        return Look(
            time.monotonic(),
            sum(totals_s[field] for field in _FREE),
            totals_s[_STOLEN],
            sum(map(cpu_s, processes().values())),
            _pressure_s(),
            self._medium_late_s(before.medium_late_s if before else 0.0),
            self._agents_late_s(before.agents_late_s if before else {}),
        )

    def _medium_late_s(self, last_s: float) -> float:
        """What the medium says, or said last."""
        try:
            if self._medium is None:
                self._medium = self._emulation.shared.client()
            return self._medium.lateness().over_5_ms_s
        except HyroadsError:
            self._medium = None
            return last_s

    def _agents_late_s(self, last_s: Mapping[str, float]) -> dict[str, float]:
        """What the agents say, or said last."""
        told = {node: self._agent_late_s(node) for node in self._emulation.agents()}
        return {**last_s, **{node: late_s for node, late_s in told.items() if late_s is not None}}

    def _agent_late_s(self, node: str) -> float | None:
        """What an agent says; None from one that is being restarted."""
        try:
            if node not in self._agents:
                self._agents[node] = EdgeClient(self._emulation.directory / f"edge-{node}.sock", timeout_s=1.0)
            return float(self._agents[node].stats()["woken_late"][_LATE])
        except HyroadsError:
            if (client := self._agents.pop(node, None)) is not None:
                client.close()
            return None


def machine_s() -> list[float]:
    """What all processors together have done so far, in seconds, by the columns of /proc/stat."""
    return [int(value) / _TICKS_PER_S for value in (PROC / "stat").read_text().split("\n", 1)[0].split()[1:]]


def processes() -> dict[int, list[str]]:
    """By process of the run's namespace: the fields of its /proc/PID/stat after the command."""
    found = {}
    for process in PROC.iterdir():
        # One that has just ended has no fields any more; its time is now its parent's.
        with contextlib.suppress(ValueError, OSError):
            found[int(process.name)] = (process / "stat").read_text().rpartition(")")[2].split()
    return found


def cpu_s(fields: Sequence[str]) -> float:
    """Processor time of a process, and of those that it has started and that have ended."""
    return sum(map(int, fields[_CPU_FIELDS])) / _TICKS_PER_S


def _processors() -> int:
    """Those that /proc/stat counts."""
    lines = (PROC / "stat").read_text().splitlines()
    return max(1, sum(line.startswith("cpu") and line[3:4].isdigit() for line in lines))


def _pressure_s() -> float | None:
    """From the kernel's pressure stall information, if it has it."""
    try:
        first = (PROC / "pressure" / "cpu").read_text().splitlines()[0]
        return int(first.rpartition("total=")[2]) / 1e6
    except (OSError, ValueError, IndexError):
        return None

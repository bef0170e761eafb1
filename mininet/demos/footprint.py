"""What a run costs: processor time, memory of its programs, size of its logs. From /proc of the run's own namespace."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass

from hyroads.mininet.emulation import Emulation
from hyroads.mininet.machine import cpu_s, machine_s, processes
from hyroads.mininet.programs import Program

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# Among the fields of /proc/PID/stat after the command.
_RESIDENT_FIELD = 21
# Of "cpu" in /proc/stat: idle and waiting for input.
_IDLE_FIELDS = (3, 4)
_GUEST_FROM = 8


@dataclass(frozen=True)
class Footprint:
    """One look. ``cpu_s`` is what the run's processes have used, ``machine_s`` what all of the machine has (cores
    together), ``resident_mib`` the memory of each kind of program, ``log_bytes`` all that was logged.
    """

    time_s: float
    cpu_s: float
    machine_s: float
    resident_mib: Mapping[str, float]
    log_bytes: int


@dataclass(frozen=True)
class Use:
    """Shares of all cores between two looks: of the run's own processes, and of everything on the machine."""

    own: float
    machine: float


def cores() -> int:
    """Those of the machine."""
    return os.cpu_count() or 1


def look(emulation: Emulation) -> Footprint:
    """The footprint of now."""
    kinds: dict[str, list[Program]] = {
        "controller": [emulation.controller],
        "agents": list(emulation.agents().values()),
        "medium": [emulation.shared.program],
        "switches": list(emulation.switch.programs),
    }
    stats = processes()
    resident = {
        kind: sum(int(stats[p.pid][_RESIDENT_FIELD]) for p in programs if p.pid in stats) * _PAGE_BYTES / 2**20
        for kind, programs in kinds.items()
    }
    totals_s = machine_s()
    busy_s = sum(totals_s[:_GUEST_FROM]) - sum(totals_s[i] for i in _IDLE_FIELDS)
    logs = sum(path.stat().st_size for path in emulation.directory.rglob("*.log"))
    return Footprint(time.monotonic(), sum(map(cpu_s, stats.values())), busy_s, resident, logs)


def use(before: Footprint, after: Footprint) -> Use:
    """What was used in between."""
    available_s = (after.time_s - before.time_s) * cores()
    return Use((after.cpu_s - before.cpu_s) / available_s, (after.machine_s - before.machine_s) / available_s)

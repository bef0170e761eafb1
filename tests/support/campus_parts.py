"""Parts of a run of a controller with scripted devices: what each used, and how late the devices were."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from campus_devices import Devices, verdict
from controller_process import ControllerProcess
from slot_log import SlotLog


class Use:
    """Of CPU, by the controller and by the devices, since this began."""

    def __init__(self, controller: ControllerProcess, devices: Devices) -> None:
        process = psutil.Process(controller.process.pid)
        self._family = [process, *process.children(recursive=True)]
        self._devices = [psutil.Process(devices.process.pid)]
        self._main = Path(f"/proc/{process.pid}/task/{process.pid}/schedstat")
        self._began = self._now()

    def _now(self) -> tuple[float, float, float, float, float]:
        main_s, waited_s = (int(text) / 1e9 for text in self._main.read_text().split()[:2])
        return time.monotonic(), cpu_of(self._family), main_s, cpu_of(self._devices), waited_s

    def per_s(self) -> dict[str, float]:
        """Seconds of each per second."""
        elapsed_s, *used_s = (now - began for now, began in zip(self._now(), self._began, strict=True))
        names = ("controller", "main", "devices", "controller_waited")
        return dict(zip(names, (round(s / elapsed_s, 3) for s in used_s), strict=True))


class Parts:
    """Cores, slots and the devices' lateness of each part of a run."""

    def __init__(self, controller: ControllerProcess, devices: Devices, log: SlotLog) -> None:
        self._controller, self._devices, self._log = controller, devices, log
        self.cores: dict[str, dict[str, float]] = {}
        self.slots: dict[str, dict[str, Any]] = {}
        self.lateness: dict[str, dict[str, Any] | None] = {}

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """All that the block does belongs to the part of this name."""
        use, since = Use(self._controller, self._devices), self._log.place()
        self._devices.lateness()
        yield
        self.cores[name], self.slots[name] = use.per_s(), self._log.figures(since)
        self.lateness[name] = self._devices.lateness()

    def figures(self) -> dict[str, Any]:
        """By part; the verdict is about those since all was in force."""
        since = {name: late for name, late in self.lateness.items() if name not in {"until in force", "restart"}}
        return {
            "cores": self.cores,
            "slots_of": self.slots,
            "lateness_ms": self.lateness,
            "verdict": verdict(since),
        }


def cpu_of(family: list[psutil.Process]) -> float:
    """Seconds of CPU that these processes used so far."""
    return sum(sum(process.cpu_times()[:2]) for process in family)


def memory_mib(family: list[psutil.Process]) -> float:
    """Memory of these processes."""
    return sum(process.memory_info().rss for process in family) / 2**20

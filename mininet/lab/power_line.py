"""A power line of a lab: one medium whose senders share its time, and an adapter behind each of its outlets.

The medium is ``hyroads-medium``, the adapters are ``hyroads-modem`` (docs/reference/dataplane.md). What a box learns of
the line, it learns from its adapter. Two more adapters belong to a network next door.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hyroads.mininet.control_sockets import MediumClient
from hyroads.mininet.programs import EmulationError, Program, Watch, find_program, wait_until

from .medium import Station, all_pairs, configuration, port_name, start_medium

_HEADER_BYTES, _TAG_BYTES, _PAYLOAD_BYTES = 14, 4, 1500
_READY = "ready"
_START_WITHIN_S = 10.0
_NEXT_DOOR = ("00:00:5e:00:53:fe", "00:00:5e:00:53:ff")
_ETHER_TYPE = bytes.fromhex("88b6")
_STEP_S = 0.01


@dataclass(frozen=True)
class PowerLine:
    """A power line with the same PHY rate in Mb/s between all adapters; a station is an adapter at its outlet.

    A full frame gets the throughput that was measured on HomePlug AV at this rate (docs/reference/measurement.md).
    """

    name: str
    phy_mbps: int
    outlets: tuple[Station, ...]

    @property
    def capacity_mbps(self) -> float:
        """Capacity of the medium; the header of a frame on the line is part of what it carries."""
        return (self.phy_mbps + 0.65) / 1.7 * (_PAYLOAD_BYTES + _HEADER_BYTES) / _PAYLOAD_BYTES

    def port(self, number: int) -> str:
        """Name of the medium's port of an outlet, from 1; the two after the last are next door."""
        return port_name(self.name, number)

    def link(self, source: int, target: int) -> str:
        """Name of the medium's link from one outlet to another."""
        return f"{self.port(source)}>{self.port(target)}"

    @property
    def next_door(self) -> tuple[int, int]:
        """Numbers of the network next door: its sender and its receiver."""
        return len(self.outlets) + 1, len(self.outlets) + 2

    def medium(self) -> dict[str, Any]:
        """Configuration of ``hyroads-medium``."""
        macs = [*(outlet.mac for outlet in self.outlets), *_NEXT_DOOR]
        pairs = [*all_pairs(len(self.outlets)), self.next_door]
        mtu = _PAYLOAD_BYTES + _HEADER_BYTES + _TAG_BYTES
        return configuration(self.name, macs, pairs, self.capacity_mbps, mtu)

    def adapter(self, number: int, socket_path: Path) -> dict[str, Any]:
        """Configuration of the ``hyroads-modem`` of an outlet."""
        stations = [
            {"mac": outlet.mac, "tei": other, "tx_link": self.link(number, other), "rx_link": self.link(other, number)}
            for other, outlet in enumerate(self.outlets, 1)
            if other != number
        ]
        medium = {"socket": str(socket_path), "port": self.port(number)}
        return {"mac": self.outlets[number - 1].mac, "tei": number, "medium": medium, "stations": stations}


@dataclass
class RunningLine:
    """A power line that runs, with its files in ``folder``; it ends with the lab."""

    plan: PowerLine
    folder: Path
    _medium: Program | None = None
    _adapters: dict[int, Program] = field(default_factory=dict)
    _started: int = 0

    @property
    def socket(self) -> Path:
        """Control socket of the medium."""
        return self.folder / "medium.sock"

    def start(self) -> None:
        """Make the medium, and plug all adapters in; EmulationError with the failing program's words."""
        self._medium, _ = start_medium(f"power line {self.plan.name}", self.plan.medium(), self.folder)
        self.plug_in()

    def stop(self) -> None:
        """End the medium and all adapters."""
        for program in [*self._adapters.values(), *([self._medium] if self._medium is not None else [])]:
            program.stop()

    def plug_in(self, **features: bool) -> None:
        """Plug adapters in, in the place of those that are there; ``features`` as in the adapter's configuration."""
        for program in self._adapters.values():
            program.stop()
        self._started += 1
        logs = {number: self.folder / f"adapter-{number}.{self._started}.log" for number in self._numbers}
        for number, log in logs.items():
            config = log.with_suffix(".json")
            config.write_text(json.dumps({**self.plan.adapter(number, self.socket), **features}), encoding="utf-8")
            ports = ["--inside", self.plan.outlets[number - 1].segment, "--outside", self.plan.port(number)]
            command = [find_program("hyroads-modem"), "--config", str(config), *ports]
            self._adapters[number] = Program(f"adapter {number} of {self.plan.name}", command, log)
            self._adapters[number].start()
        wait_until(
            f"adapters of {self.plan.name}",
            lambda: all(self._is_ready(number, log) for number, log in logs.items()),
            _START_WITHIN_S,
        )

    def _is_ready(self, number: int, log: Path) -> bool:
        """Whether an adapter runs; EmulationError, with its last words, if it has ended."""
        if not self._adapters[number].alive:
            raise EmulationError(self._adapters[number].failure())
        return _READY in log.read_text(encoding="utf-8")

    @property
    def _numbers(self) -> range:
        return range(1, len(self.plan.outlets) + 1)

    @contextmanager
    def traffic_next_door(self, share: float) -> Iterator[None]:
        """Inside this the network next door offers frames for a share of the line's time."""
        sender, _ = self.plan.next_door
        mbps = share * self.plan.capacity_mbps
        with _Traffic(self.plan.port(sender), mbps):
            yield

    def airtime(self, source: int, target: int) -> tuple[float, float]:
        """Seconds since the medium's start, and for how long of these one outlet was sending to another."""
        with MediumClient(self.socket) as client:
            stats = client.stats()
        return stats.elapsed_s, stats.elapsed_s * stats.links[self.plan.link(source, target)].airtime


class _Traffic(Watch):
    """Full frames from the one adapter next door to the other, at a rate of L2 payload."""

    def __init__(self, port: str, mbps: float) -> None:
        super().__init__("traffic next door")
        self._frames_per_s = mbps * 1e6 / 8 / _PAYLOAD_BYTES
        sender, receiver = (bytes.fromhex(mac.replace(":", "")) for mac in _NEXT_DOOR)
        self._frame = receiver + sender + _ETHER_TYPE + bytes(_PAYLOAD_BYTES)
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        self._socket.bind((port, 0))

    def _watch(self) -> None:
        last_s, due = time.monotonic(), 0.0
        while not self._stop.wait(_STEP_S):
            now_s = time.monotonic()
            due += (now_s - last_s) * self._frames_per_s
            last_s = now_s
            for _ in range(int(due)):
                self._socket.send(self._frame)
            due -= int(due)

    def _ended(self) -> None:
        self._socket.close()


def start_all(plans: Iterable[PowerLine], folder: Path) -> dict[str, RunningLine]:
    """Start the power lines of a lab, with their files in ``folder``; by name."""
    running = {plan.name: RunningLine(plan, folder / plan.name) for plan in plans}
    for line in running.values():
        line.start()
    return running

"""Media of a lab whose senders share their time: ``hyroads-medium`` (docs/reference/dataplane.md)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hyroads.mininet.programs import Program, find_program, run

from .wires import RadioPort

_START_WITHIN_S = 10.0
_FIRST_TAP = "02:00:00:00:01:{:02x}"


@dataclass(frozen=True)
class Station:
    """A station on a medium: its address there, and the segment at its other end."""

    segment: str
    mac: str


def configuration(
    technology: str, macs: Sequence[str], links: Iterable[tuple[int, int]], capacity_mbps: float, mtu: int
) -> dict[str, Any]:
    """Configuration of ``hyroads-medium`` for one domain in which all stations hear each other.

    Stations are numbered from 1; each of the ``links`` from one to another has the capacity of the medium, for payloads
    of at most ``mtu`` bytes.
    """
    names = [port_name(technology, number) for number in range(1, len(macs) + 1)]
    ports = [
        {"name": name, "mac": mac, "technology": technology, "hears": [each for each in names if each != name]}
        for name, mac in zip(names, macs, strict=True)
    ]
    ends = [(port_name(technology, source), port_name(technology, target)) for source, target in links]
    entries = [{"id": f"{a}>{b}", "from": a, "to": b, "capacity_mbps": capacity_mbps} for a, b in ends]
    return {"options": {"mtu": mtu}, "ports": ports, "links": entries, "conflicts": {"technology": True}}


def port_name(technology: str, number: int) -> str:
    """Name of the port of a station, from 1."""
    return f"{technology}-{number}"


def all_pairs(count: int) -> list[tuple[int, int]]:
    """The links of ``count`` stations that all reach each other."""
    numbers = range(1, count + 1)
    return [(source, target) for source in numbers for target in numbers if source != target]


def start_medium(what: str, document: Mapping[str, Any], folder: Path, *options: str) -> tuple[Program, Path]:
    """Start the emulator with more ``options`` and its files in ``folder``; the program and its control socket.

    EmulationError with the program's last words if it does not start.
    """
    folder.mkdir(parents=True)
    config, socket = folder / "medium.json", folder / "medium.sock"
    config.write_text(json.dumps(document), encoding="utf-8")
    command = [find_program("hyroads-medium"), "--config", str(config), "--socket", str(socket), *options]
    program = Program(what, command, folder / "medium.log")
    program.start()
    program.wait_for(socket, _START_WITHIN_S)
    return program, socket


@dataclass(frozen=True)
class RadioChannel:
    """A radio channel on which all stations hear each other, with an 802.3 port at each station.

    ``capacity_mbps`` is Ethernet payload, ``mtu`` the bytes of the longest one.
    """

    name: str
    capacity_mbps: float
    mtu: int
    stations: tuple[Station, ...]

    def medium(self) -> dict[str, Any]:
        """Configuration of ``hyroads-medium``; a station has the address of the box that is behind it."""
        macs = [station.mac for station in self.stations]
        return configuration(self.name, macs, all_pairs(len(macs)), self.capacity_mbps, self.mtu)

    def start(self, folder: Path) -> Program:
        """Start it, and connect its ports to their segments; it ends with the lab."""
        program, _ = start_medium(f"radio channel {self.name}", self.medium(), folder / self.name)
        for number, station in enumerate(self.stations, 1):
            # A bridge keeps frames for the address of one of its ports to itself; here it is that of the box.
            port = port_name(self.name, number)
            run("ip", "link", "set", port, "address", _FIRST_TAP.format(number))
            run("ip", "link", "set", port, "master", station.segment, "up")
        return program


@dataclass(frozen=True)
class Air:
    """A radio channel of emulated 802.11 radios that all hear each other.

    ``capacity_mbps`` is Ethernet payload, ``mtu`` the bytes of the longest one.
    """

    name: str
    capacity_mbps: float
    mtu: int
    radios: tuple[RadioPort, ...]

    def medium(self) -> dict[str, Any]:
        """Configuration of ``hyroads-medium --hwsim``."""
        macs = [radio.mac for radio in self.radios]
        document = configuration(self.name, macs, all_pairs(len(macs)), self.capacity_mbps, self.mtu)
        for port, radio in zip(document["ports"], self.radios, strict=True):
            port["radio"] = radio.hardware
        return document

    def start(self, folder: Path) -> Program:
        """Start it; it is the medium of all radios that are made in this network namespace, and ends with the lab."""
        program, _ = start_medium(f"radio channel {self.name}", self.medium(), folder / self.name, "--hwsim")
        return program

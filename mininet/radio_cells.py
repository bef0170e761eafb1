"""Technologies on 802.11 radios in Mininet's terms: a node per technology, a link per radio.

In a *cell* the nodes that are no clients are access points (hostapd), the clients stations (wpa_supplicant, WPA2 with a
key that is new in every run); in an *IBSS* the kernel needs no program. Interfaces have the names and addresses that
they would have on the shared medium, so bridges, agents and controller are told nothing.
"""

from __future__ import annotations

import secrets
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from socket import if_nametoindex
from typing import Any

from mininet.link import Intf, Link
from mininet.node import Node, Switch

from hyroads.controller.access_point.hostapd import Control
from hyroads.controller.access_point.hostapd_conf import ON_THE_AIR, fields_of
from hyroads.controller.core.network import RadioMode, Role
from hyroads.controller.files.private import write_atomically

from .programs import EmulationError, Program, run, wait_until
from .radio_files import Cell, hostapd_text, supplicant_text
from .radios import InterfaceKind, Radio, join_ibss
from .shared_medium import FarEnd, OutsideIntf, SharedMedium, silence_ipv6, stay

START_TIMEOUT_S = 10.0
ASSOCIATED = "COMPLETED"
_IBSS_ADDRESS = "02:ca:fe:{:02x}:{:02x}:01"


@dataclass(frozen=True)
class RadioPlan:
    """How technologies run on radios. With ``our_medium`` hyroads-medium carries their frames, with the file's
    capacities, loss and contention; else the kernel does, at once and without loss."""

    our_medium: bool = False


@dataclass
class Station:
    """A node's interface to a technology: its radio, its program (none in an IBSS), and where its shell lies."""

    node: str
    interface: str
    mac: str
    radio: Radio
    is_client: bool
    process: int | None
    """A process in the namespace of a plain client; the others' interfaces lie beside the bridges."""
    program: Program | None = field(default=None)

    @property
    def inside(self) -> list[str]:
        """Prefix of a command that runs where the interface is."""
        return [] if self.process is None else ["nsenter", f"--net=/proc/{self.process}/ns/net", "--"]


class RadioCell(Switch):  # type: ignore[misc]  # Mininet has no types
    """One technology on radios as a Mininet node; its shell lies beside the switches."""

    def __init__(self, name: str, shared: SharedMedium, plan: RadioPlan, technology: str, **params: Any) -> None:
        self.shared, self.plan, self.technology = shared, plan, technology
        self.use = shared.network.radios[technology]
        number = shared.addressing.technology_number[technology]
        self.cell = Cell(f"hr-{number}", self.use.channel, secrets.token_hex(32))
        self.stations: dict[str, Station] = {}
        params.update(dpid="0", inNamespace=False)
        super().__init__(name, **params)

    # What Mininet asks

    def start(self, _controllers: object) -> None:
        """Starts the medium if it is ours, then access points, then stations."""
        if self.plan.our_medium:
            self.shared.start()
        if self.use.mode is RadioMode.IBSS:
            for node in self.stations:
                self.join(node)
            return
        for station in self.access_points():
            text = hostapd_text(self.cell, station.interface, self._control(is_client=False))
            self._start(station, "hostapd", text)
        for station in self.access_points():
            wait_until(f"hostapd of {station.node}", partial(self._sends, station), START_TIMEOUT_S)
        for station in self.stations.values():
            if station.is_client:
                self._start(station, "wpa_supplicant", supplicant_text(self.cell, self._control(is_client=True)))

    def stop(self, deleteIntfs: bool = True) -> None:  # Mininet's name
        """Ends all programs and removes the radios; one in a client's namespace goes with that."""
        for station in self.stations.values():
            if station.program is not None:
                station.program.stop()
            if station.process is None:
                station.radio.remove()
        if self.plan.our_medium:
            self.shared.stop()
        super().stop(deleteIntfs)

    def dpctl(self, *_arguments: object) -> str:
        """A cell is no OpenFlow switch; at the prompt ``dpctl`` asks every node of ``net.switches``."""
        return f"{self.name}: radios on channel {self.use.channel}, not a switch\n"

    # Radios and programs

    def add(self, node: str, interface: str, mac: str, process: int | None) -> Station:
        """A radio with an interface for a node, in the namespace of ``process`` or beside the bridges."""
        is_client = self.shared.network.nodes[node].role is Role.CLIENT
        kind = InterfaceKind.STATION if is_client else InterfaceKind.ACCESS_POINT
        if self.use.mode is RadioMode.IBSS:
            kind = InterfaceKind.IBSS
        address = None
        if self.plan.our_medium:
            # At random, because the kernel keeps one list for all networks; 0x42: one address, locally administered.
            address = "42" + "".join(f":{byte:02x}" for byte in secrets.token_bytes(5))
            self.shared.add_radio(interface, self.technology, mac, address)
        station = Station(node, interface, mac, Radio(interface, kind, mac, address), is_client, process)
        if process is not None:
            station.radio.move(process)
        self.stations[node] = station
        return station

    def access_points(self) -> list[Station]:
        """The stations that are access points."""
        cell = self.use.mode is RadioMode.CELL
        return [station for station in self.stations.values() if cell and not station.is_client]

    def programs(self) -> list[Program]:
        """All programs, to be watched and started again."""
        return [station.program for station in self.stations.values() if station.program is not None]

    def socket(self, node: str) -> Path:
        """The control socket of a node's hostapd or wpa_supplicant."""
        station = self.stations[node]
        return self._control(is_client=station.is_client) / station.interface

    def join(self, node: str) -> None:
        """Brings an interface up and into the IBSS."""
        station = self.stations[node]
        run("ip", "link", "set", station.interface, "up")
        address = _IBSS_ADDRESS.format(*divmod(self.shared.addressing.technology_number[self.technology], 256))
        join_ibss(if_nametoindex(station.interface), self.cell.ssid, self.cell.frequency_mhz, address)

    # Questions

    def ask(self, node: str, question: str) -> str:
        """What a node's hostapd or wpa_supplicant answers on its control socket."""
        try:
            with closing(Control(str(self.socket(node)))) as control:
                return control.ask(question.encode()).decode("utf-8", "replace").strip()
        except OSError as error:
            raise EmulationError(f"radio of {node} on {self.technology}: {error.strerror or error}") from error

    def status(self, node: str) -> dict[str, str]:
        """What a node's program says of itself, by key."""
        return fields_of(self.ask(node, "STATUS"))

    def associated_with(self, client: str) -> str | None:
        """The node whose access point a client is associated with; None if with none."""
        status = self.status(client)
        if status.get("wpa_state") != ASSOCIATED:
            return None
        return next((point.node for point in self.access_points() if point.mac == status.get("bssid")), None)

    def set_associated(self, client: str, on: bool) -> None:
        """Lets a client look for an access point, or leave the one that it has; returns at once."""
        self.ask(client, "RECONNECT" if on else "DISCONNECT")

    def roam(self, client: str, access_point: str) -> None:
        """Lets a client go to another access point by itself; returns at once."""
        answer = self.ask(client, f"ROAM {self.stations[access_point].mac}")
        if answer != "OK":
            raise EmulationError(f"wpa_supplicant of {client} does not roam to {access_point}: {answer[:80]}")

    # Details

    def _control(self, *, is_client: bool) -> Path:
        # Short, because a socket's address is.
        return self.shared.directory / ("sta" if is_client else "ap")

    def _start(self, station: Station, program: str, text: str) -> None:
        path = self.shared.directory / f"{program}-{station.interface}.conf"
        write_atomically(path, text)
        command = [program, "-Dnl80211", "-i", station.interface, "-c", str(path)]
        station.program = Program(
            f"{program} of {station.node}",
            [*station.inside, *(command if station.is_client else (program, str(path)))],
            self.shared.directory / f"{program}-{station.interface}.log",
            bound_to_parent=self.shared.bound_to_parent,
        )
        station.program.start()

    def _sends(self, station: Station) -> bool:
        """Whether an access point is on the air; EmulationError if its program has ended."""
        if station.program is not None and not station.program.alive:
            raise EmulationError(station.program.failure())
        return self.socket(station.node).exists() and self.status(station.node).get("state") == ON_THE_AIR


class CellEnd(FarEnd):
    """The cell's end of a radio's link."""

    station = ""

    def ifconfig(self, *arguments: str) -> str:
        """``up`` lets a station of an IBSS join again; hostapd and wpa_supplicant do so by themselves."""
        if arguments == ("up",) and self.node.use.mode is RadioMode.IBSS and self.station in self.node.stations:
            self.node.join(self.station)
        return ""


class RadioLink(Link):  # type: ignore[misc]
    """A device's radio of a technology: ``node1`` the device, ``node2`` the :class:`RadioCell`.

    ``intfName1`` names the interface, ``addr1`` its address.
    """

    def __init__(self, node1: Node, node2: RadioCell, intfName1: str, addr1: str, **_params: Any) -> None:
        outside = isinstance(node1, Switch)
        node2.add(node1.name, intfName1, addr1, None if outside else node1.pid)
        if outside:
            # A plain client's interface gets its host's MTU.
            silence_ipv6(intfName1)
            run("ip", "link", "set", intfName1, "mtu", str(node2.shared.mtu_of(node1.name, node2.technology)))
        near = OutsideIntf if outside else Intf
        self.intf1 = near(intfName1, node=node1, link=self, mac=addr1, moveIntfFn=stay)
        self.intf2 = CellEnd(f"{node2.name}-{node1.name}", node=node2, link=self, moveIntfFn=stay)
        self.intf2.station = node1.name

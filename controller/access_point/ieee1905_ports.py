"""The AL entity of an access point on its interfaces: sockets, and messages of the radio channel."""

from __future__ import annotations

import contextlib
import math
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .config import AgentConfig, InterfaceConfig
from .hostapd import Document
from .ieee1905 import ETHERTYPE, GROUP
from .ieee1905_entity import AlEntity, Device, DeviceLink, Frame, OwnInterface, OwnLink
from .ieee1905_tlvs import MessageError
from .model import RadioError
from .packet_socket import packet_socket, received_frames

OPEN_EVERY_S = 5.0
REPORT_EVERY_S = 1.0
COMPLAIN_EVERY_S = 60.0
FRAMES_A_TURN = 64
MAX_REPORTED = 64
MAX_REPORTED_LINKS = 16
"""So that a message stays below the 64 KiB that the controller takes."""
_MEDIA = (("wifi", 0x0105), ("plc", 0x0201), ("ethernet", 0x0001), ("moca", 0x0300))
UNKNOWN_MEDIUM = 0xFFFF
_NET = Path("/sys/class/net")


def media_type(technology: str) -> int:
    """The number of a technology's medium in IEEE Std 1905.1, table 6-12; WiFi counts as 802.11ac."""
    return next((number for start, number in _MEDIA if technology.startswith(start)), UNKNOWN_MEDIUM)


def al_address(mac: str) -> str:
    """An AL address that follows from an interface's address, differs from it, and is locally administered."""
    return f"{(int(mac[:2], 16) ^ 0x40) | 0x02:02x}{mac[2:]}"


@dataclass(slots=True)
class _Port:
    config: InterfaceConfig
    socket: socket.socket | None = None
    open_s: float = -math.inf
    """When to try to open the socket next."""
    complain_s: float = -math.inf
    """When to complain of a frame next: a neighbour that sends nonsense must not fill the log."""


class AlPorts:
    """The entity of an access point; :meth:`poll` never waits.

    ``link`` is as in :class:`.ieee1905_entity.AlEntity`.
    """

    def __init__(
        self,
        interfaces: Sequence[InterfaceConfig],
        link: Callable[[str, str], OwnLink | None],
        complain: Callable[[str], None],
    ) -> None:
        self._ports = [_Port(config) for config in interfaces]
        self._link = link
        self._complain = complain
        self._entity: AlEntity | None = None
        self._reported: Document | None = None
        self._report_s = -math.inf

    @classmethod
    def of(
        cls, config: AgentConfig, link: Callable[[str, str], OwnLink | None], complain: Callable[[str], None]
    ) -> AlPorts | None:
        """The entity as the agent's file configures it; None without one."""
        real = [each for each in config.interfaces if each.backend != "emulated"]
        return cls(real, link, complain) if config.ieee1905 and real else None

    def poll(self, now_s: float) -> list[Document]:
        """Receive and send frames; returns the list of devices if it changed, at most once a second."""
        for port in self._ports:
            if port.socket is None and now_s >= port.open_s:
                self._open(port, now_s)
        if self._entity is None:
            return []
        for port in self._ports:
            self._turn(port, self._entity, now_s)
        if now_s >= self._entity.due_s:
            self._send(self._entity.due(now_s))
        if now_s < self._report_s:
            return []
        self._report_s = now_s + REPORT_EVERY_S
        document = _document(self._entity)
        if document == self._reported:
            return []
        self._reported = document
        return [document]

    def snapshot(self) -> list[Document]:
        """The last report, for a controller that has just connected."""
        return [] if self._reported is None else [self._reported]

    def close(self) -> None:
        """Closes all sockets."""
        for port in self._ports:
            if port.socket is not None:
                port.socket.close()
                port.socket = None

    def _open(self, port: _Port, now_s: float) -> None:
        port.open_s = now_s + OPEN_EVERY_S
        name = port.config.name
        try:
            mac = (_NET / name / "address").read_text().strip()
        except OSError as error:
            self._complain(f"{name}: {error.strerror}")
            return
        entity = self._entity or AlEntity(al_address(mac), (), self._link, now_s)
        try:
            port.socket = packet_socket(name, ETHERTYPE, (GROUP, entity.al))
        except RadioError as error:
            self._complain(str(error))
            return
        self._entity = entity
        entity.add(OwnInterface(name, mac, media_type(port.config.technology)), now_s)

    def _turn(self, port: _Port, entity: AlEntity, now_s: float) -> None:
        """Frames that came in by one interface; one that went is opened again later."""
        if port.socket is None:
            return
        try:
            frames = received_frames(port.socket, FRAMES_A_TURN)
        except OSError as error:
            self._complain(f"{port.config.name}: {error.strerror}")
            port.socket.close()
            port.socket = None
            return
        for frame in frames:
            try:
                self._send(entity.received(port.config.name, frame, now_s))
            except MessageError as error:
                if now_s >= port.complain_s:
                    port.complain_s = now_s + COMPLAIN_EVERY_S
                    self._complain(f"{port.config.name}: {error}")

    def _send(self, frames: Sequence[Frame]) -> None:
        sockets = {port.config.name: port.socket for port in self._ports}
        for frame in frames:
            opened = sockets.get(frame.interface)
            # A full queue, or an interface that is down: the next greeting or question comes anyway.
            with contextlib.suppress(OSError):
                if opened is not None:
                    opened.send(frame.data)


def _document(entity: AlEntity) -> Document:
    devices = [_device(device) for device in entity.devices()[:MAX_REPORTED]]
    return {"type": "devices", "al": entity.al, "devices": devices}


def _device(device: Device) -> Document:
    return {
        "al": device.al,
        "heard": [{"interface": h.own, "mac": h.interface} for h in device.hearings],
        "links": [_link(link) for link in device.links[:MAX_REPORTED_LINKS]],
    }


def _link(link: DeviceLink) -> Document:
    return {
        "mac": link.interface,
        "to_al": link.neighbour_al,
        "to_mac": link.neighbour_interface,
        "media_type": link.media_type,
        "capacity_mbps": link.capacity_mbps,
        "busy": round(1 - link.available_percent / 100, 2),
    }

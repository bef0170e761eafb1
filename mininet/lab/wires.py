"""The wires between boxes: segments of Ethernet; ports and radios of boxes, with the addresses of their factory."""

from __future__ import annotations

import errno
import secrets
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from hyroads.controller.kernel.netlink import NetlinkError
from hyroads.mininet.programs import EmulationError, run, wait_until
from hyroads.mininet.radios import InterfaceKind, Radio
from hyroads.mininet.run_directory import NETNS_ROOT

MOST_NAME = 15
"""Bytes of the name of a network interface."""
_FREE_WITHIN_S = 10.0


@dataclass(frozen=True)
class Segment:
    """A segment to which ports are connected: a bridge, as fast as the machine.

    It carries payloads of at most ``mtu`` bytes; ports have 1500 until their box sets another MTU.
    """

    name: str
    mtu: int = 1500


@dataclass(frozen=True)
class Port:
    """An Ethernet port of a box as it leaves its factory."""

    name: str
    segment: str
    mac: str


@dataclass(frozen=True)
class RadioPort:
    """An emulated 802.11 radio of a box: its interface ``name`` has the address ``mac``.

    ``hardware`` is the address by which ``hyroads-medium`` knows the radio.
    """

    name: str
    mac: str
    hardware: str


@dataclass(frozen=True)
class BoxPlan:
    """A box: its name, which is its host name, its ports, and its radios."""

    name: str
    ports: tuple[Port, ...]
    radios: tuple[RadioPort, ...] = ()


class Factory:
    """Gives ports addresses as factories do: unique, and without any meaning."""

    def __init__(self) -> None:
        self._given = 0

    def port(self, name: str, segment: str) -> Port:
        """A port with the next address of the block that RFC 7042 keeps for documentation."""
        self._given += 1
        return Port(name, segment, f"00:00:5e:00:53:{self._given:02x}")

    def radio(self, name: str) -> RadioPort:
        """A radio whose interface has the next address of the same block."""
        # At random, because the kernel keeps one list for all labs; 0x42: one address, locally administered.
        hardware = "42" + "".join(f":{byte:02x}" for byte in secrets.token_bytes(5))
        return RadioPort(name, self.port(name, "").mac, hardware)


def far_end(box: str, port: str) -> str:
    """Name of the interface that is the segment's end of a port's cable."""
    return f"{box}-{port}"


def check(boxes: Iterable[BoxPlan], segments: Sequence[Segment]) -> None:
    """Raise EmulationError for a name that an interface can't have, and for a port on a segment that is missing."""
    known = {segment.name for segment in segments}
    for box in boxes:
        ends: list[Port | RadioPort] = [*box.ports, *box.radios]
        for port in ends:
            if len(far_end(box.name, port.name)) > MOST_NAME:
                raise EmulationError(f"{far_end(box.name, port.name)}: longer than {MOST_NAME} characters")
            if isinstance(port, Port) and port.segment not in known:
                raise EmulationError(f"box {box.name}: no segment {port.segment}")


def make_segments(segments: Iterable[Segment]) -> None:
    """Make the bridges of the segments in this network namespace."""
    for segment in segments:
        run("ip", "link", "add", segment.name, "type", "bridge")
        run("ip", "link", "set", segment.name, "up")


def connect(box: BoxPlan, namespace: str, segments: Sequence[Segment]) -> None:
    """Give a network namespace the ports of a box, down and without configuration, with their cables plugged in."""
    for radio in box.radios:
        _install(radio, far_end(box.name, radio.name), namespace)
    segment_of = {segment.name: segment for segment in segments}
    for port in box.ports:
        far = far_end(box.name, port.name)
        with suppress(EmulationError):
            # The kernel takes its time to remove the cables of a namespace that is gone.
            run("ip", "link", "del", far)
        run("ip", "link", "add", far, "type", "veth", "peer", "name", port.name, "netns", namespace)
        run("ip", "-n", namespace, "link", "set", port.name, "address", port.mac)
        # What a real port sends has its checksum, and is no longer than a frame.
        run("ip", "netns", "exec", namespace, "ethtool", "-K", port.name, "tx", "off")
        run("ethtool", "-K", far, "tx", "off")
        segment = segment_of[port.segment]
        # The bridge takes the smallest MTU of its ports.
        run("ip", "link", "set", far, "mtu", str(segment.mtu), "master", segment.name, "up")


def _install(radio: RadioPort, interface: str, namespace: str) -> None:
    """Make a radio and move it into a network namespace. ``interface`` is the name of its interface until then."""

    def made() -> bool:
        try:
            Radio(interface, InterfaceKind.STATION, radio.mac, radio.hardware).move_to(NETNS_ROOT / namespace)
        except NetlinkError as error:
            # The kernel takes its time to remove the radio of a box that was switched off.
            if error.number == errno.EEXIST:
                return False
            raise
        return True

    wait_until(f"address of radio {interface}", made, _FREE_WITHIN_S, interval_s=0.1)
    run("ip", "-n", namespace, "link", "set", interface, "name", radio.name)

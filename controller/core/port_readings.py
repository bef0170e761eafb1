"""The MTU and address of ports on the media, as agents read them, and which ports are too small. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .frame_sizes import LEAST_HOST_MTU, LEAST_MTU, NEEDED_MTU, SINGLE_OVERHEAD


@dataclass(frozen=True, slots=True)
class PortReading:
    """What an agent read from an interface of its node: MTU in bytes, address."""

    name: str
    mtu: int
    mac: str


Readings = Mapping[str, Mapping[str, PortReading]]
"""Node -> name of a port -> its last reading."""


@dataclass(frozen=True, slots=True)
class SmallPort:
    """A port that does not carry every packet of a host as it is."""

    node: str
    port: str
    mtu_bytes: int

    @property
    def is_too_small(self) -> bool:
        """Whether it does not even carry IPv6 packets of 1280 bytes."""
        return self.mtu_bytes < LEAST_MTU

    @property
    def needed_bytes(self) -> int:
        """The MTU that it should have: for every packet of a host, or at least for IPv6."""
        return LEAST_MTU if self.is_too_small else NEEDED_MTU

    @property
    def packet_bytes(self) -> int:
        """The largest IP packet of a host that it carries on a single path."""
        return max(0, self.mtu_bytes - SINGLE_OVERHEAD)

    @property
    def carries(self) -> str:
        """What that means, in words."""
        if self.is_too_small:
            return f"it does not carry IPv6 packets of {LEAST_HOST_MTU} bytes"
        return f"hosts' packets of more than {self.packet_bytes} bytes are fragmented, or refused by ICMP"

    def document(self) -> dict[str, Any]:
        """As REST and events show it; sizes in bytes."""
        return {
            "node": self.node,
            "port": self.port,
            "mtu_bytes": self.mtu_bytes,
            "needed_bytes": self.needed_bytes,
            "packet_bytes": self.packet_bytes,
            "too_small": self.is_too_small,
        }


def merged(known: Readings, node: str, wanted: Iterable[str], read: Iterable[PortReading]) -> Readings:
    """What is known after an agent has read ports of ``node``; readings of other ports than ``wanted`` are ignored. A
    port that is missing now keeps its last reading: it may come back.
    """
    names = frozenset(wanted)
    news = {reading.name: reading for reading in read if reading.name in names}
    return {**known, node: {**known.get(node, {}), **news}}


def least_mtu(known: Readings) -> int | None:
    """The smallest MTU that is known; None: no agent has reported one."""
    return min((reading.mtu for ports in known.values() for reading in ports.values()), default=None)


def small_ports(known: Readings) -> Iterator[SmallPort]:
    """Ports that do not carry every packet of a host as it is."""
    for node, ports in known.items():
        for name, reading in ports.items():
            if reading.mtu < NEEDED_MTU:
                yield SmallPort(node, name, reading.mtu)


def changed_ports(before: Readings, after: Readings) -> Iterator[tuple[SmallPort, bool]]:
    """Ports that have become small, of another small size, or large enough (True)."""
    was = {(small.node, small.port): small for small in small_ports(before)}
    now = {(small.node, small.port): small for small in small_ports(after)}
    for key, small in now.items():
        if was.get(key) != small:
            yield small, False
    for node, port in was.keys() - now.keys():
        yield SmallPort(node, port, after[node][port].mtu), True

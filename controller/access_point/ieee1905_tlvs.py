"""TLVs of IEEE Std 1905.1-2013 (clause 6.4): bytes to data and back. Pure; lengths are checked, input is hostile."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Protocol

from .model import RadioError, mac_bytes

_TX_LINK = struct.Struct("!6s6sHBIIHHH")
_RX_LINK = struct.Struct("!6s6sHIIB")
_NO_RSSI = 0xFF


class MessageError(RadioError):
    """A frame is no message of IEEE 1905.1, or one that contradicts itself."""


class Tlv(Protocol):
    """What all have in common: a type, and the bytes of the value."""

    @property
    def kind(self) -> int:
        """The type of the TLV, 1 to 255."""

    def value(self) -> bytes:
        """The value as it is sent."""


class _Reader:
    """Takes bytes from the front of a TLV's value."""

    def __init__(self, kind: int, value: bytes) -> None:
        self._kind = kind
        self._left = memoryview(value)

    def take(self, count: int) -> bytes:
        if len(self._left) < count:
            raise MessageError(f"IEEE 1905.1: TLV {self._kind} ends {count - len(self._left)} bytes too early")
        taken, self._left = self._left[:count], self._left[count:]
        return bytes(taken)

    def byte(self) -> int:
        return self.take(1)[0]

    def mac(self) -> str:
        return self.take(6).hex(":")

    def until_end(self, size: int) -> Iterable[None]:
        """One turn for each entry of ``size`` bytes that is left, also for one that is cut."""
        while self._left:
            if len(self._left) < size:
                self.take(size)
            yield

    @property
    def left(self) -> int:
        return len(self._left)

    def end(self) -> None:
        if self._left:
            raise MessageError(f"IEEE 1905.1: TLV {self._kind} has {len(self._left)} bytes too many")


def _macs(macs: Iterable[str]) -> bytes:
    return b"".join(map(mac_bytes, macs))


@dataclass(frozen=True, slots=True)
class AlAddress:
    """The AL address of the sender."""

    kind: ClassVar[int] = 1
    al: str

    def value(self) -> bytes:
        """See :class:`Tlv`."""
        return mac_bytes(self.al)


@dataclass(frozen=True, slots=True)
class SendingInterface:
    """The address of the interface that sends."""

    kind: ClassVar[int] = 2
    mac: str

    def value(self) -> bytes:
        """See :class:`Tlv`."""
        return mac_bytes(self.mac)


@dataclass(frozen=True, slots=True)
class LocalInterface:
    """An interface of a device and its medium.

    ``media_type`` is that of table 6-12: 0x0100 is 802.11b, 0x0201 IEEE 1901 FFT, 0xffff a medium without a number.
    ``detail`` are the bytes that some media add, for example the BSSID.
    """

    mac: str
    media_type: int
    detail: bytes = b""


@dataclass(frozen=True, slots=True)
class DeviceInformation:
    """A device and all its interfaces."""

    kind: ClassVar[int] = 3
    al: str
    interfaces: tuple[LocalInterface, ...]

    def value(self) -> bytes:
        """See :class:`Tlv`."""
        each = (mac_bytes(i.mac) + struct.pack("!HB", i.media_type, len(i.detail)) + i.detail for i in self.interfaces)
        return mac_bytes(self.al) + bytes([len(self.interfaces)]) + b"".join(each)


def _read_device(r: _Reader) -> Tlv:
    al, interfaces = r.mac(), []
    for _ in range(r.byte()):
        mac, media_type = r.mac(), int.from_bytes(r.take(2), "big")
        interfaces.append(LocalInterface(mac, media_type, r.take(r.byte())))
    return DeviceInformation(al, tuple(interfaces))


@dataclass(frozen=True, slots=True)
class Bridging:
    """Groups of interfaces between which the device forwards frames."""

    kind: ClassVar[int] = 4
    groups: tuple[tuple[str, ...], ...]

    def value(self) -> bytes:
        """See :class:`Tlv`."""
        return bytes([len(self.groups)]) + b"".join(bytes([len(g)]) + _macs(g) for g in self.groups)


@dataclass(frozen=True, slots=True)
class OtherNeighbours:
    """Neighbours of an interface that do not speak IEEE 1905.1."""

    kind: ClassVar[int] = 6
    interface: str
    macs: tuple[str, ...]

    def value(self) -> bytes:
        """See :class:`Tlv`."""
        return mac_bytes(self.interface) + _macs(self.macs)


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Neighbours of an interface, by AL address, each with whether a bridge without IEEE 1905.1 is between."""

    kind: ClassVar[int] = 7
    interface: str
    als: tuple[tuple[str, bool], ...]

    def value(self) -> bytes:
        """See :class:`Tlv`."""
        each = (mac_bytes(al) + bytes([0x80 if has_bridge else 0]) for al, has_bridge in self.als)
        return mac_bytes(self.interface) + b"".join(each)


@dataclass(frozen=True, slots=True)
class MetricQuery:
    """A query for the metrics of the links to one neighbour, or to all (``al`` None)."""

    kind: ClassVar[int] = 8
    al: str | None
    wants_transmitter: bool = True
    wants_receiver: bool = True

    def value(self) -> bytes:
        """See :class:`Tlv`."""
        wanted = 2 if self.wants_transmitter and self.wants_receiver else 0 if self.wants_transmitter else 1
        return bytes([self.al is not None]) + mac_bytes(self.al or "00" * 6) + bytes([wanted])


def _read_query(r: _Reader) -> Tlv:
    """In a query for all neighbours some devices send an address of zeros, and some send none."""
    is_one = r.byte()
    if is_one not in (0, 1):
        raise MessageError(f"IEEE 1905.1: TLV 8 has neighbours {is_one}, expected 0 or 1")
    al = r.mac() if is_one or r.left >= 7 else None
    wanted = r.byte()
    if wanted > 2:
        raise MessageError(f"IEEE 1905.1: TLV 8 has metrics {wanted}, expected 0, 1 or 2")
    return MetricQuery(al if is_one else None, wanted in (0, 2), wanted in (1, 2))


@dataclass(frozen=True, slots=True)
class TransmitterMetric:
    """One link of :class:`TransmitterMetrics`.

    ``capacity_mbps`` is the MAC throughput capacity, ``available_percent`` the share of time in which the medium is
    idle for this link, ``phy_mbps`` the rate on the medium.
    """

    interface: str
    neighbour_interface: str
    media_type: int
    has_bridge: bool
    errors: int
    packets: int
    capacity_mbps: int
    available_percent: int
    phy_mbps: int

    def packed(self) -> bytes:
        """As it is sent."""
        counts = self.errors, self.packets, self.capacity_mbps, self.available_percent, self.phy_mbps
        ends = mac_bytes(self.interface), mac_bytes(self.neighbour_interface)
        return _TX_LINK.pack(*ends, self.media_type, self.has_bridge, *counts)


@dataclass(frozen=True, slots=True)
class TransmitterMetrics:
    """Links from ``al`` to ``neighbour_al``."""

    kind: ClassVar[int] = 9
    al: str
    neighbour_al: str
    links: tuple[TransmitterMetric, ...]

    def value(self) -> bytes:
        """See :class:`Tlv`."""
        return _macs((self.al, self.neighbour_al)) + b"".join(link.packed() for link in self.links)


def _read_transmitter(r: _Reader) -> Tlv:
    al, neighbour, links = r.mac(), r.mac(), []
    for _ in r.until_end(_TX_LINK.size):
        mine, theirs, medium, bridge, *numbers = _TX_LINK.unpack(r.take(_TX_LINK.size))
        links.append(TransmitterMetric(mine.hex(":"), theirs.hex(":"), medium, bridge != 0, *numbers))
    return TransmitterMetrics(al, neighbour, tuple(links))


@dataclass(frozen=True, slots=True)
class ReceiverMetric:
    """One link of :class:`ReceiverMetrics`; ``rssi_db`` is None for media without one."""

    interface: str
    neighbour_interface: str
    media_type: int
    errors: int
    packets: int
    rssi_db: int | None

    def packed(self) -> bytes:
        """As it is sent."""
        ends = mac_bytes(self.interface), mac_bytes(self.neighbour_interface)
        rssi = _NO_RSSI if self.rssi_db is None else self.rssi_db
        return _RX_LINK.pack(*ends, self.media_type, self.errors, self.packets, rssi)


@dataclass(frozen=True, slots=True)
class ReceiverMetrics:
    """What ``al`` receives from ``neighbour_al``."""

    kind: ClassVar[int] = 10
    al: str
    neighbour_al: str
    links: tuple[ReceiverMetric, ...]

    def value(self) -> bytes:
        """See :class:`Tlv`."""
        return _macs((self.al, self.neighbour_al)) + b"".join(link.packed() for link in self.links)


def _read_receiver(r: _Reader) -> Tlv:
    al, neighbour, links = r.mac(), r.mac(), []
    for _ in r.until_end(_RX_LINK.size):
        mine, theirs, medium, errors, packets, rssi = _RX_LINK.unpack(r.take(_RX_LINK.size))
        known = None if rssi == _NO_RSSI else rssi
        links.append(ReceiverMetric(mine.hex(":"), theirs.hex(":"), medium, errors, packets, known))
    return ReceiverMetrics(al, neighbour, tuple(links))


@dataclass(frozen=True, slots=True)
class MetricResult:
    """Why there are no metrics; 0: no such neighbour."""

    kind: ClassVar[int] = 12
    code: int

    def value(self) -> bytes:
        """See :class:`Tlv`."""
        return bytes([self.code])


@dataclass(frozen=True, slots=True)
class UnreadTlv:
    """A TLV of a type that has no reader here; receivers pass over it (clause 6.3)."""

    kind: int
    content: bytes

    def value(self) -> bytes:
        """See :class:`Tlv`."""
        return self.content


_READERS: dict[int, Callable[[_Reader], Tlv]] = {
    1: lambda r: AlAddress(r.mac()),
    2: lambda r: SendingInterface(r.mac()),
    3: _read_device,
    4: lambda r: Bridging(tuple(tuple(r.mac() for _ in range(r.byte())) for _ in range(r.byte()))),
    6: lambda r: OtherNeighbours(r.mac(), tuple(r.mac() for _ in r.until_end(6))),
    7: lambda r: Neighbours(r.mac(), tuple((r.mac(), bool(r.byte() & 0x80)) for _ in r.until_end(7))),
    8: _read_query,
    9: _read_transmitter,
    10: _read_receiver,
    12: lambda r: MetricResult(r.byte()),
}


def read_tlv(kind: int, value: bytes) -> Tlv:
    """The TLV of a type and a value; :class:`MessageError` if its length or content cannot be."""
    read = _READERS.get(kind)
    if read is None:
        return UnreadTlv(kind, value)
    reader = _Reader(kind, value)
    found = read(reader)
    reader.end()
    return found


def write_tlv(tlv: Tlv) -> bytes:
    """Type, length and value; :class:`MessageError` if the value is longer than a length can say."""
    value = tlv.value()
    if len(value) > 0xFFFF:
        raise MessageError(f"IEEE 1905.1: TLV {tlv.kind} would have {len(value)} bytes, expected at most 65535")
    return struct.pack("!BH", tlv.kind, len(value)) + value


def split_tlvs(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Types and values up to the end-of-message TLV, or to the end; padding after that is passed over.

    :class:`MessageError` if a TLV is longer than ``content``.
    """
    at = 0
    while at + 3 <= len(content) and content[at] != 0:
        kind, length = content[at], int.from_bytes(content[at + 1 : at + 3], "big")
        if at + 3 + length > len(content):
            raise MessageError(f"IEEE 1905.1: TLV {kind} of {length} bytes is longer than its frame")
        yield kind, content[at + 3 : at + 3 + length]
        at += 3 + length

"""What a switch says is in it: flow-stats, group and port-description replies, read straight from their bytes.

Every length is bounded, so hostile input ends in ``ReadbackError`` and nothing else. Instructions are skipped: a rule
is known by its cookie (``cookie``).

A frame that a switch sends to the controller, read straight from its bytes.

Port statistics (OpenFlow Switch Specification 1.3.5, section 7.3.5.6): the request, and replies as counters.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from hyroads.controller.core.errors import OpenFlowError, ReadbackError

from . import wire
from .diff import Installed
from .wire import ANY, HEADER, MULTIPART_REPLY, MULTIPART_REQUEST, message

_MULTIPART = Struct("!HH4x")
_FLOW = Struct("!HBxIIHHHH4xQQQ")
_MATCH = Struct("!HH")
_PORT = Struct("!I4x6s2x16sII")
_GROUP = Struct("!HBxI")
_PORT_SIZE = 64
_PORT_DOWN, _LINK_DOWN = 1, 1
_MAX_PORT = 0xFFFFFF00


@dataclass(frozen=True, slots=True)
class FlowStat:
    """An installed rule with its counters."""

    rule: Installed
    packets: int
    bytes: int
    duration_s: float


@dataclass(frozen=True, slots=True)
class FlowStats:
    """One part of a reply; ``more`` says that parts with the same transaction id follow."""

    flows: tuple[FlowStat, ...]
    more: bool


@dataclass(frozen=True, slots=True)
class Port:
    """A port as the switch describes it; ``up`` needs both the port and its link to be up."""

    number: int
    mac: str
    name: str
    up: bool


def parse_flow_stats(message: bytes) -> FlowStats:
    """A whole OFPMP_FLOW reply message -> the rules in it."""
    more = _header(message, wire.MULTIPART_FLOW)
    flows, offset, end = [], 16, len(message)
    while offset < end:
        if end - offset < 56:
            raise ReadbackError(f"flow stats at byte {offset}: {end - offset} bytes left, expected at least 56")
        fields = _FLOW.unpack_from(message, offset)
        length, table, seconds, nanoseconds, priority = fields[:5]
        cookie, packets, octets = fields[8:]
        if length < 56 or length % 8 or offset + length > end:
            raise ReadbackError(f"flow stats at byte {offset}: length {length}, expected 56..{end - offset} by eights")
        match = _match_fields(message, offset + 48, offset + length)
        rule = Installed(table, priority, match, cookie)
        flows.append(FlowStat(rule, packets, octets, seconds + nanoseconds / 1e9))
        offset += length
    return FlowStats(tuple(flows), more)


def parse_groups(message: bytes) -> tuple[tuple[int, ...], bool]:
    """A whole OFPMP_GROUP_DESC reply message -> the ids of its groups, and whether more parts follow."""
    more = _header(message, wire.MULTIPART_GROUP_DESC)
    groups, offset, end = [], 16, len(message)
    while offset < end:
        length, _, number = _GROUP.unpack_from(message, offset) if end - offset >= _GROUP.size else (0, 0, 0)
        if length < _GROUP.size or offset + length > end:
            raise ReadbackError(f"group at byte {offset}: length {length}, expected {_GROUP.size}..{end - offset}")
        groups.append(number)
        offset += length
    return tuple(groups), more


def parse_ports(message: bytes) -> tuple[tuple[Port, ...], bool]:
    """A whole OFPMP_PORT_DESC reply message -> its ports (reserved ones left out), and whether more parts follow."""
    more = _header(message, wire.MULTIPART_PORT_DESC)
    if (len(message) - 16) % _PORT_SIZE:
        raise ReadbackError(f"port descriptions: {len(message) - 16} bytes, expected a multiple of {_PORT_SIZE}")
    ports = []
    for offset in range(16, len(message), _PORT_SIZE):
        number, mac, name, config, state = _PORT.unpack_from(message, offset)
        if number <= _MAX_PORT:
            text = name.split(b"\0", 1)[0].decode("utf-8", "replace")
            ports.append(Port(number, mac.hex(":"), text, not (config & _PORT_DOWN or state & _LINK_DOWN)))
    return tuple(ports), more


def _header(message: bytes, expected: int) -> bool:
    if len(message) < 16:
        raise ReadbackError(f"multipart reply: {len(message)} bytes, expected at least 16")
    version, kind, length, _ = wire.HEADER.unpack_from(message)
    if (version, kind, length) != (wire.VERSION, wire.MULTIPART_REPLY, len(message)):
        raise ReadbackError(
            f"message: version {version}, type {kind}, length {length}, expected {wire.VERSION}, "
            f"{wire.MULTIPART_REPLY} and {len(message)}"
        )
    part, flags = _MULTIPART.unpack_from(message, 8)
    if part != expected:
        raise ReadbackError(f"multipart reply: type {part}, expected {expected}")
    return bool(flags & 1)


def _match_fields(message: bytes, start: int, end: int) -> bytes:
    kind, length = _MATCH.unpack_from(message, start)
    if kind != 1 or length < 4 or start + length > end:
        raise ReadbackError(f"match at byte {start}: type {kind}, length {length}, expected 1 and 4..{end - start}")
    return message[start + 4 : start + length]


_PACKET_IN = Struct("!IHBBQHH")
_AT, _MATCH_AT = 8, 24
_IN_PORT = b"\x80\x00\x00\x04"


@dataclass(frozen=True, slots=True)
class PacketIn:
    """The frame and the number of the port it came in at."""

    in_port: int
    frame: bytes


def parse_packet_in(message: bytes) -> PacketIn:
    """A whole packet-in message that ``guard.check`` has let through."""
    if len(message) < _MATCH_AT + 8 or message[1] != wire.PACKET_IN:
        raise ReadbackError(f"packet-in: type {message[1]}, {len(message)} bytes, expected type 10 and 32 bytes")
    length = _PACKET_IN.unpack_from(message, _AT)[6]
    fields = message[_MATCH_AT + 4 : _MATCH_AT + length]
    frame_at = _MATCH_AT + length + (-length % 8) + 2
    if length < 4 or frame_at > len(message):
        raise ReadbackError(f"packet-in: match of {length} bytes in a message of {len(message)}")
    offset = 0
    while offset + 8 <= len(fields):
        if fields.startswith(_IN_PORT, offset):
            return PacketIn(int.from_bytes(fields[offset + 4 : offset + 8], "big"), message[frame_at:])
        offset += 4 + fields[offset + 3]
    raise ReadbackError("packet-in: no in_port")


def table_of(message: bytes) -> int:
    """The table whose rule sent it; ``guard.check`` has let the message through."""
    return message[_AT + 7]


MULTIPART_PORT_STATS = 4
_LAST_PHYSICAL = 0xFFFF_FF00
_REQUEST = Struct("!HH4xI4x")
_REPLY = Struct("!HH4x")
_ENTRY = Struct("!I4x12QII")
_MORE = 1


@dataclass(frozen=True, slots=True)
class PortCounters:
    """Counters of a port since some start; bytes of whole frames without FCS."""

    port: int
    rx_packets: int
    tx_packets: int
    rx_bytes: int
    tx_bytes: int
    rx_dropped: int
    tx_dropped: int
    rx_errors: int
    tx_errors: int


def port_stats_request(xid: int) -> bytes:
    """Asks for the counters of all ports."""
    return message(_REQUEST.pack(MULTIPART_PORT_STATS, 0, ANY), xid, MULTIPART_REQUEST)


def parse_port_stats(data: bytes) -> tuple[list[PortCounters], bool]:
    """The counters of a reply's physical ports, and whether more replies follow; :class:`OpenFlowError`."""
    start = HEADER.size + _REPLY.size
    if len(data) < start or (len(data) - start) % _ENTRY.size:
        raise OpenFlowError(f"port statistics: {len(data)} bytes are no whole number of entries")
    kind = HEADER.unpack_from(data)[1]
    what, flags = _REPLY.unpack_from(data, HEADER.size)
    if (kind, what) != (MULTIPART_REPLY, MULTIPART_PORT_STATS):
        raise OpenFlowError(f"a message of type {kind}, {what} is no port statistics")
    entries = (_ENTRY.unpack_from(data, at) for at in range(start, len(data), _ENTRY.size))
    ports = [PortCounters(*entry[:9]) for entry in entries if entry[0] < _LAST_PHYSICAL]
    return ports, bool(flags & _MORE)

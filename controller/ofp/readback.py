"""What a switch says, read straight from its bytes: rules, groups, port counters, and frames for the controller.

Layouts: OpenFlow Switch Specification 1.3.5, sections 7.3.5 and 7.4.1. Every length is bounded, so hostile input ends
in ``ReadbackError`` and nothing else. Instructions are skipped: a rule is known by its cookie.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from hyroads.controller.core.errors import ReadbackError

from . import wire
from .diff import Installed

_MULTIPART = Struct("!HH4x")
_FLOW = Struct("!HBxIIHHHH4xQQQ")
_MATCH = Struct("!HH")
_GROUP = Struct("!HBxI")
_METER = Struct("!HHI")
_PORT_COUNTERS = Struct("!I4x12QII")
_LAST_PHYSICAL = 0xFFFF_FF00


@dataclass(frozen=True, slots=True)
class FlowStat:
    """An installed rule with its counters."""

    rule: Installed
    packets: int
    bytes: int


def parse_flow_stats(message: bytes) -> tuple[tuple[FlowStat, ...], bool]:
    """A whole OFPMP_FLOW reply message -> the rules in it, and whether more parts follow."""
    more = _header(message, wire.MULTIPART_FLOW)
    flows, offset, end = [], 16, len(message)
    while offset < end:
        if end - offset < 56:
            raise ReadbackError(f"flow stats at byte {offset}: {end - offset} bytes left, expected at least 56")
        fields = _FLOW.unpack_from(message, offset)
        length, table, priority = fields[0], fields[1], fields[4]
        cookie, packets, octets = fields[8:]
        if length < 56 or length % 8 or offset + length > end:
            raise ReadbackError(f"flow stats at byte {offset}: length {length}, expected 56..{end - offset} by eights")
        match = _match_fields(message, offset + 48, offset + length)
        flows.append(FlowStat(Installed(table, priority, match, cookie), packets, octets))
        offset += length
    return tuple(flows), more


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


def parse_meters(message: bytes) -> tuple[dict[int, bytes], bool]:
    """A whole OFPMP_METER_CONFIG reply message -> what each meter does, as the switch describes it, by its number, and
    whether more parts follow.
    """
    more = _header(message, wire.MULTIPART_METER_CONFIG)
    meters, offset, end = {}, 16, len(message)
    while offset < end:
        length, _, number = _METER.unpack_from(message, offset) if end - offset >= _METER.size else (0, 0, 0)
        if length < _METER.size or offset + length > end:
            raise ReadbackError(f"meter at byte {offset}: length {length}, expected {_METER.size}..{end - offset}")
        meters[number] = message[offset : offset + length]
        offset += length
    return meters, more


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
        raise ReadbackError(f"packet-in: {message[:2].hex()}, {len(message)} bytes, expected 040a and 32 bytes or more")
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


def cookie_of_packet_in(message: bytes) -> int:
    """The cookie of the rule that sent it; ``guard.check`` has let the message through."""
    return int.from_bytes(message[_AT + 8 : _AT + 16], "big")


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


def parse_port_stats(message: bytes) -> tuple[list[PortCounters], bool]:
    """A whole OFPMP_PORT_STATS reply message -> the counters of physical ports, and whether more parts follow."""
    more = _header(message, wire.MULTIPART_PORT_STATS)
    if (len(message) - 16) % _PORT_COUNTERS.size:
        raise ReadbackError(f"port statistics: {len(message)} bytes are no whole number of entries")
    entries = _PORT_COUNTERS.iter_unpack(message[16:])
    return [PortCounters(*entry[:9]) for entry in entries if entry[0] < _LAST_PHYSICAL], more

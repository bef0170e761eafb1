"""What a switch says is in it: flow-stats, group and port-description replies, read straight from their bytes.

Every length is bounded, so hostile input ends in ``ReadbackError`` and nothing else. Instructions are skipped: a rule
is known by its cookie (``cookie``).
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from hyroads.controller.ofp import wire
from hyroads.controller.ofp.diff import Installed
from hyroads.controller.ofp.errors import ReadbackError

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

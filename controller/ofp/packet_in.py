"""A frame that a switch sends to the controller, read straight from its bytes."""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from hyroads.controller.ofp import wire
from hyroads.controller.ofp.errors import ReadbackError

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

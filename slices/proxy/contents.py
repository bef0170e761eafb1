"""What is in a switch when it connects: its ports, the classifier of an earlier time, groups, meters, table fill.

``questions`` are sent with a barrier behind them; ``contents_of`` reads what came before the barrier's answer. Replies
have passed ``guard.check``, which knows every length in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct

from hyroads.controller.ofp import wire
from hyroads.controller.ofp.diff import Installed
from hyroads.slices.core.allocation import CLASSIFIER_TABLE, NUMBER_BITS

_KIND = Struct("!HH4x")
_FLOW = Struct("!HBxIIHHHH4xQQQHH")
_WRITE_METADATA = Struct("!HH4xQQ")
_TABLE_BITS, _TABLE = 8, 0xFF
_PORT_RECORD = 64
_METER_ALL = b"\xff\xff\xff\xff\0\0\0\0"


@dataclass(frozen=True, slots=True)
class DiscoveredEntry:
    """An entry of the classifier's table, and whose it is: (number of the slice, first table), None if foreign."""

    rule: Installed
    owner: tuple[int, int] | None


@dataclass(frozen=True)
class Contents:
    """One switch as it says it is."""

    ports: Mapping[int, bytes]
    """Descriptions (64 bytes) by number."""
    entries: tuple[DiscoveredEntry, ...]
    groups: Mapping[int, bytes]
    """Type and buckets by number."""
    meters: Mapping[int, bytes]
    """Flags and bands by number."""
    active: Mapping[int, int]
    """Entries by table, where there are any."""


def port_names(ports: Mapping[int, bytes]) -> dict[str, int]:
    """Numbers by name; of two ports with one name the lower number."""
    names = ((record[16:32].split(b"\0", 1)[0].decode(errors="replace"), number) for number, record in ports.items())
    return dict(sorted(names, key=lambda pair: -pair[1]))


def _question(kind: int, body: bytes = b"") -> bytes:
    return wire.message(_KIND.pack(kind, 0) + body, 0, wire.MULTIPART_REQUEST)


def questions() -> list[bytes]:
    """What to ask; transaction ids are the sender's."""
    return [
        _question(wire.MULTIPART_PORT_DESC),
        _question(wire.MULTIPART_GROUP_DESC),
        _question(wire.MULTIPART_METER_CONFIG, _METER_ALL),
        _question(wire.MULTIPART_TABLE),
        wire.flow_stats_request(0, table=CLASSIFIER_TABLE),
    ]


def count_question() -> bytes:
    """Asks how many entries each table has."""
    return _question(wire.MULTIPART_TABLE)


def contents_of(replies: Iterable[bytes], slice_shift: int) -> Contents:
    """From multipart replies; ``slice_shift`` is where the slice's number is in the metadata."""
    bodies: dict[int, list[bytes]] = {}
    for message in replies:
        bodies.setdefault(_KIND.unpack_from(message, 8)[0], []).append(message[16:])
    return Contents(
        {
            int.from_bytes(body[at : at + 4], "big"): body[at : at + _PORT_RECORD]
            for body in bodies.get(wire.MULTIPART_PORT_DESC, ())
            for at in range(0, len(body), _PORT_RECORD)
        },
        tuple(found for body in bodies.get(wire.MULTIPART_FLOW, ()) for found in _entries(body, slice_shift)),
        dict(_records(bodies.get(wire.MULTIPART_GROUP_DESC, ()), length_at=0, number_at=4)),
        dict(_records(bodies.get(wire.MULTIPART_METER_CONFIG, ()), length_at=0, number_at=4)),
        active_entries(bodies.get(wire.MULTIPART_TABLE, ())),
    )


def active_entries(bodies: Sequence[bytes]) -> dict[int, int]:
    """Entries by table, from table statistics."""
    counts = {
        body[at]: int.from_bytes(body[at + 4 : at + 8], "big") for body in bodies for at in range(0, len(body), 24)
    }
    return {table: count for table, count in counts.items() if count}


def _records(bodies: Iterable[bytes], length_at: int, number_at: int) -> Iterable[tuple[int, bytes]]:
    """(number, the bytes between length and number, then the rest) of every record."""
    for body in bodies:
        at = 0
        while at < len(body):
            length = int.from_bytes(body[at + length_at : at + length_at + 2], "big")
            number = int.from_bytes(body[at + number_at : at + number_at + 4], "big")
            yield number, body[at + 2 : at + 4] + body[at + 8 : at + length]
            at += length


def _entries(body: bytes, slice_shift: int) -> Iterable[DiscoveredEntry]:
    at = 0
    while at < len(body):
        fields = _FLOW.unpack_from(body, at)
        length, table, priority, cookie, match_length = fields[0], fields[1], fields[4], fields[8], fields[12]
        data = body[at + 52 : at + 48 + match_length]
        instructions = body[at + 48 + (match_length + 7) // 8 * 8 : at + length]
        yield DiscoveredEntry(Installed(table, priority, data, cookie), _owner(instructions, slice_shift))
        at += length


def _owner(instructions: bytes, slice_shift: int) -> tuple[int, int] | None:
    """By write-metadata and goto; entries for discovery lead nowhere, their metadata says the table as well."""
    number = first = None
    at = 0
    while at < len(instructions):
        kind, length = (
            int.from_bytes(instructions[at : at + 2], "big"),
            instructions[at + 2] << 8 | instructions[at + 3],
        )
        if kind == 1:
            first = instructions[at + 4]
        elif kind == 2:
            _, _, value, mask = _WRITE_METADATA.unpack_from(instructions, at)
            number = value >> slice_shift & (1 << NUMBER_BITS) - 1
            if slice_shift >= _TABLE_BITS and mask & _TABLE == _TABLE:
                first = value & _TABLE
        at += length
    return None if number is None or first is None else (number, first)

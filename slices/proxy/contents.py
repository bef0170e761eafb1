"""What is in a switch when it connects: its ports, the classifier of an earlier time, groups, meters, table fill.

``questions`` are sent with a barrier behind them; ``contents_of`` reads what came before the barrier's answer. Replies
have passed ``guard.check``, which knows every length in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
        tuple(
            DiscoveredEntry(rule, _owner(instructions, slice_shift))
            for body in bodies.get(wire.MULTIPART_FLOW, ())
            for at, length in records(body)
            for rule, instructions in [rule_of(body[at : at + length])]
        ),
        _numbered(bodies.get(wire.MULTIPART_GROUP_DESC, ())),
        _numbered(bodies.get(wire.MULTIPART_METER_CONFIG, ())),
        active_entries(bodies.get(wire.MULTIPART_TABLE, ())),
    )


def active_entries(bodies: Sequence[bytes]) -> dict[int, int]:
    """Entries by table, from table statistics."""
    counts = {
        body[at]: int.from_bytes(body[at + 4 : at + 8], "big") for body in bodies for at in range(0, len(body), 24)
    }
    return {table: count for table, count in counts.items() if count}


def records(data: bytes, at: int = 0, end: int | None = None, *, size_at: int = 0) -> Iterator[tuple[int, int]]:
    """(place, length) of each record between two places; the two bytes at ``size_at`` of a record are its length."""
    end = len(data) if end is None else end
    while at < end:
        length = int.from_bytes(data[at + size_at : at + size_at + 2], "big")
        yield at, length
        at += length


def _numbered(bodies: Iterable[bytes]) -> dict[int, bytes]:
    """By number: the bytes between length and number of a record, then its rest."""
    return {
        int.from_bytes(body[at + 4 : at + 8], "big"): body[at + 2 : at + 4] + body[at + 8 : at + length]
        for body in bodies
        for at, length in records(body)
    }


def rule_of(record: bytes) -> tuple[Installed, bytes]:
    """The rule in a record of a flow-stats reply, and its instructions."""
    fields = _FLOW.unpack_from(record)
    table, priority, cookie, match_length = fields[1], fields[4], fields[8], fields[12]
    rule = Installed(table, priority, record[52 : 48 + match_length], cookie)
    return rule, record[48 + (match_length + 7) // 8 * 8 :]


def _owner(instructions: bytes, slice_shift: int) -> tuple[int, int] | None:
    """By write-metadata and goto; entries for discovery lead nowhere, their metadata says the table as well."""
    number = first = None
    for at, _ in records(instructions, size_at=2):
        kind = int.from_bytes(instructions[at : at + 2], "big")
        if kind == 1:
            first = instructions[at + 4]
        elif kind == 2:
            _, _, value, mask = _WRITE_METADATA.unpack_from(instructions, at)
            number = value >> slice_shift & (1 << NUMBER_BITS) - 1
            if slice_shift >= _TABLE_BITS and mask & _TABLE == _TABLE:
                first = value & _TABLE
    return None if number is None or first is None else (number, first)

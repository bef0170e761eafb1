"""What SNMP carries: the objects that are polled, and answers (OID -> value) as a :class:`RawReading`. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hyroads.controller.access_point.mib import (
    BOOT,
    CLOCK,
    INTERFACE_ENTRY,
    NEIGHBOUR_ENTRY,
    NODE_NAME,
    RECORD,
    SHARE_UNIT,
    SNAPSHOT_AGE,
    Oid,
)
from hyroads.controller.access_point.model import UNKNOWN_SIGNAL_DBM
from hyroads.controller.core.errors import HyroadsError

from .samples import NeighbourSample

IF_OPER_STATUS: Oid = (1, 3, 6, 1, 2, 1, 2, 2, 1, 8)
IF_HC_IN_OCTETS: Oid = (1, 3, 6, 1, 2, 1, 31, 1, 1, 1, 6)
IF_HC_OUT_OCTETS: Oid = (1, 3, 6, 1, 2, 1, 31, 1, 1, 1, 10)
IF_COLUMNS = (IF_OPER_STATUS, IF_HC_IN_OCTETS, IF_HC_OUT_OCTETS)
SCALARS = (BOOT, CLOCK, SNAPSHOT_AGE)
OPER_UP = 1

# Columns of the two tables that change all the time, and those that are read now and then.
INTERFACE_FAST = (5, 6)
INTERFACE_SLOW = (1, 2, 3)
NEIGHBOUR_FAST = (9,)
NEIGHBOUR_SLOW = (2, 8)

Values = Mapping[Oid, int | bytes]


class ReadingError(HyroadsError):
    """An answer without what every agent serves, or with a value of the wrong type."""


@dataclass(frozen=True, slots=True)
class RawInterface:
    """A row of hyroadsInterfaceTable and its row in IF-MIB (None if there is none)."""

    index: int
    name: str
    technology: str
    medium: str
    busy_us: int
    active_us: int
    oper_status: int | None
    in_bytes: int | None
    out_bytes: int | None
    neighbours: tuple[NeighbourSample, ...]


@dataclass(frozen=True, slots=True)
class RawReading:
    """One poll of one access point."""

    node: str
    boot: bytes
    clock_us: int
    age_ms: int
    interfaces: tuple[RawInterface, ...]


def columns_of(entry: Oid, columns: tuple[int, ...]) -> tuple[Oid, ...]:
    """OIDs of columns of a table."""
    return tuple((*entry, column) for column in columns)


def interface_indices(values: Values) -> tuple[int, ...]:
    """Interfaces that an answer names."""
    column = (*INTERFACE_ENTRY, INTERFACE_SLOW[0])
    return tuple(sorted(oid[-1] for oid in values if oid[:-1] == column))


def neighbour_rows(values: Values, column: int = NEIGHBOUR_FAST[0]) -> tuple[Oid, ...]:
    """Rows of the neighbour table of which an answer has this column: ifIndex and six numbers of the MAC."""
    start, depth = (*NEIGHBOUR_ENTRY, column), len(NEIGHBOUR_ENTRY) + 1
    return tuple(sorted(oid[depth:] for oid in values if oid[:depth] == start and len(oid) == depth + 7))


def reading(values: Values) -> RawReading:
    """All of a poll; rows that vanished half-way through it are left out."""
    neighbours: dict[int, list[NeighbourSample]] = {}
    for index in neighbour_rows(values):
        row = _neighbour(values, index)
        if row is not None:
            neighbours.setdefault(index[0], []).append(row)
    rows = (_interface(values, i, tuple(neighbours.get(i, ()))) for i in interface_indices(values))
    return RawReading(
        node=_text(values, NODE_NAME),
        boot=_bytes(values, BOOT),
        clock_us=_number(values, CLOCK),
        age_ms=_number(values, SNAPSHOT_AGE),
        interfaces=tuple(row for row in rows if row is not None),
    )


def _interface(values: Values, index: int, neighbours: tuple[NeighbourSample, ...]) -> RawInterface | None:
    own = {column: (*INTERFACE_ENTRY, column, index) for column in (*INTERFACE_FAST, *INTERFACE_SLOW)}
    if not all(oid in values for oid in own.values()):
        return None
    status, received, sent = (_optional(values, (*column, index)) for column in IF_COLUMNS)
    return RawInterface(
        index=index,
        name=_text(values, own[1]),
        technology=_text(values, own[2]),
        medium=_text(values, own[3]),
        busy_us=_number(values, own[5]),
        active_us=_number(values, own[6]),
        oper_status=status,
        in_bytes=received,
        out_bytes=sent,
        neighbours=neighbours,
    )


def _neighbour(values: Values, index: Oid) -> NeighbourSample | None:
    own = {column: (*NEIGHBOUR_ENTRY, column, *index) for column in (*NEIGHBOUR_FAST, *NEIGHBOUR_SLOW)}
    if not all(oid in values for oid in own.values()) or not all(part < 256 for part in index[1:]):
        return None
    numbers = _bytes(values, own[9])
    if len(numbers) != RECORD.size:
        raise ReadingError(f"SNMP: hyroadsNeighbourRecord: expected {RECORD.size} octets, got {len(numbers)}")
    tx_kbps, rx_kbps, last_heard_ms, tx_loss, signal_dbm = RECORD.unpack(numbers)
    return NeighbourSample(
        mac=":".join(f"{part:02x}" for part in index[1:]),
        node=_text(values, own[2]),
        tx_capacity_mbps=tx_kbps / 1000 or None,
        rx_capacity_mbps=rx_kbps / 1000 or None,
        tx_loss=tx_loss / SHARE_UNIT,
        signal_dbm=None if signal_dbm == UNKNOWN_SIGNAL_DBM else signal_dbm,
        last_heard_ms=last_heard_ms,
        modulation=_text(values, own[8]),
    )


def _number(values: Values, oid: Oid) -> int:
    value = values.get(oid)
    if not isinstance(value, int):
        raise ReadingError(f"SNMP: .{'.'.join(map(str, oid))}: expected a number, got {type(value).__name__}")
    return value


def _optional(values: Values, oid: Oid) -> int | None:
    return _number(values, oid) if oid in values else None


def _bytes(values: Values, oid: Oid) -> bytes:
    value = values.get(oid)
    if not isinstance(value, bytes):
        raise ReadingError(f"SNMP: .{'.'.join(map(str, oid))}: expected octets, got {type(value).__name__}")
    return value[:255]


def _text(values: Values, oid: Oid) -> str:
    return _bytes(values, oid).decode("ascii", "replace")

"""HYROADS-MIB (mibs/HYROADS-MIB.txt) as numbers, and a snapshot as its objects in lexicographic order. Pure."""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from .model import UNKNOWN_SIGNAL_DBM, Interface, Neighbour, Snapshot, mac_bytes

Oid = tuple[int, ...]

BASE: Oid = (1, 3, 6, 1, 4, 1, 8072, 9999, 9999, 18514)
OBJECTS: Oid = (*BASE, 1)
AGENT: Oid = (*OBJECTS, 1)
INTERFACE_ENTRY: Oid = (*OBJECTS, 2, 1)
NEIGHBOUR_ENTRY: Oid = (*OBJECTS, 3, 1)

NODE_NAME: Oid = (*AGENT, 1, 0)
BOOT: Oid = (*AGENT, 2, 0)
CLOCK: Oid = (*AGENT, 3, 0)
SNAPSHOT_AGE: Oid = (*AGENT, 4, 0)

SHARE_UNIT = 10_000
RECORD = struct.Struct(">IIIHh")
RECORD_COLUMNS = (3, 4, 7, 5, 6)
MAX_GAUGE32 = 0xFFFF_FFFF
COUNTER64 = 1 << 64


@dataclass(frozen=True, slots=True)
class Value:
    """``kind`` as net-snmp's pass protocol names it: octet, integer, gauge, counter64."""

    kind: str
    value: int | bytes


class Objects(Protocol):
    """What an agent serves."""

    def get(self, oid: Oid) -> Value | None:
        """The object, or None."""

    def following(self, oid: Oid) -> Oid | None:
        """The first object after ``oid``."""


def gauge(number: float) -> Value:
    """Gauge32; sticks at its ends."""
    return Value("gauge", min(MAX_GAUGE32, max(0, round(number))))


def share(fraction: float) -> Value:
    """A share of one in 1/10000."""
    return Value("gauge", min(SHARE_UNIT, max(0, round(fraction * SHARE_UNIT))))


def counter(number: int) -> Value:
    """Counter64; wraps."""
    return Value("counter64", number % COUNTER64)


def text(words: str, limit: int = 64) -> Value:
    """DisplayString: ASCII, bounded."""
    return Value("octet", words.encode("ascii", "replace")[:limit])


def _signal(dbm: int | None) -> Value:
    return Value("integer", UNKNOWN_SIGNAL_DBM if dbm is None else max(-200, min(UNKNOWN_SIGNAL_DBM - 1, dbm)))


def _block_errors(neighbour: Neighbour) -> Value:
    errors = None if neighbour.plc is None else neighbour.plc.block_errors
    return Value("integer", -1 if errors is None else min(SHARE_UNIT, max(0, round(errors * SHARE_UNIT))))


def record(neighbour: Neighbour) -> Value:
    """The numbers of a neighbour in one value: decoding one object costs a poller as much as any other."""
    return Value("octet", RECORD.pack(*(NEIGHBOUR_COLUMNS[column](neighbour).value for column in RECORD_COLUMNS)))


# Column -> value; the numbers are those of the module.
INTERFACE_COLUMNS: dict[int, Callable[[Interface], Value]] = {
    1: lambda i: text(i.name, 15),
    2: lambda i: text(i.technology),
    3: lambda i: text(i.medium),
    4: lambda i: share(i.busy_share),
    5: lambda i: counter(i.busy_us),
    6: lambda i: counter(i.active_us),
    7: lambda i: text(i.busy_source),
}
NEIGHBOUR_COLUMNS: dict[int, Callable[[Neighbour], Value]] = {
    2: lambda n: text(n.node),
    3: lambda n: gauge(n.tx_capacity_kbps),
    4: lambda n: gauge(n.rx_capacity_kbps),
    5: lambda n: share(n.tx_loss),
    6: lambda n: _signal(n.signal_dbm),
    7: lambda n: gauge(n.last_heard_ms),
    8: lambda n: text(n.modulation),
    9: record,
    10: lambda n: Value("octet", b"" if n.plc is None else mac_bytes(n.plc.adapter)),
    11: _block_errors,
    12: lambda n: text(" ".join(f"{mbps:.0f}" for mbps in n.plc.slot_ble_mbps) if n.plc is not None else ""),
}


def mac_index(mac: str) -> Oid:
    """A MAC address as an index: six numbers."""
    return tuple(mac_bytes(mac))


def objects(snapshot: Snapshot) -> Iterator[tuple[Oid, Value]]:
    """All objects of a snapshot but its age, in no order."""
    yield NODE_NAME, text(snapshot.node)
    yield BOOT, Value("octet", snapshot.boot)
    yield CLOCK, counter(snapshot.clock_us)
    for interface in snapshot.interfaces:
        for column, value_of in INTERFACE_COLUMNS.items():
            yield (*INTERFACE_ENTRY, column, interface.index), value_of(interface)
        for neighbour in interface.neighbours:
            index = (interface.index, *mac_index(neighbour.mac))
            for column, neighbour_value_of in NEIGHBOUR_COLUMNS.items():
                yield (*NEIGHBOUR_ENTRY, column, *index), neighbour_value_of(neighbour)


class Table:
    """Objects by OID, and what follows any OID."""

    def __init__(self, served: Iterable[tuple[Oid, Value]]) -> None:
        self.serve(served)

    def serve(self, served: Iterable[tuple[Oid, Value]]) -> None:
        """These instead of the ones before."""
        self._values = dict(served)
        self._order = sorted(self._values)

    def get(self, oid: Oid) -> Value | None:
        """The object, or None."""
        return self._values.get(oid)

    def following(self, oid: Oid) -> Oid | None:
        """The first object after ``oid``, which need not exist; None at the end."""
        place = bisect_right(self._order, oid)
        return self._order[place] if place < len(self._order) else None


class Tree(Table):
    """A snapshot's objects."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__([*objects(snapshot), (SNAPSHOT_AGE, gauge(0))])
        self.clock_us = snapshot.clock_us

    def at(self, oid: Oid, now_us: int) -> Value | None:
        """The object, or None; the snapshot's age counts from its clock."""
        return gauge((now_us - self.clock_us) / 1000) if oid == SNAPSHOT_AGE else self.get(oid)

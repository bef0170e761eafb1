"""An access point's wireless networks as rows of HYROADS-MIB, and the one SET that makes them what is wanted. Pure.

Rows that belong to no slice are the operator's own and left alone. A passphrase can't be read, so it is always sent
along: the access point does nothing if it knows it already.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hyroads.slices.snmpvisor import ber
from hyroads.slices.snmpvisor.ber import Oid
from hyroads.slices.snmpvisor.pdu import Binding
from hyroads.slices.snmpvisor.scopes import BSS_ENTRY, ENABLED, PASSPHRASE, SECURITY, SSID
from hyroads.slices.snmpvisor.view import name_key
from hyroads.slices.ssids.desired import WantedBss

RADIO, SLICE, ROW = 2, 7, 12
CREATE, DESTROY, TRUE = 4, 6, 1
SECURITIES = ("open", "wpa2", "wpa3")


@dataclass(frozen=True, slots=True)
class Row:
    """What an access point says of a network."""

    radio: str = ""
    ssid: bytes = b""
    security: int = 0
    slice_name: str = ""


@dataclass(frozen=True)
class Change:
    """What is to be done at an access point: in words, and as variables to set, all at once."""

    words: tuple[str, ...]
    bindings: tuple[Binding, ...]


def rows_of(bindings: Iterable[Binding]) -> dict[str, Row]:
    """The rows in a walk over the table."""
    found: dict[str, dict[str, object]] = {}
    for each in bindings:
        name = _name(each.oid)
        read = _COLUMNS.get(each.oid[len(BSS_ENTRY)]) if name is not None else None
        if name is not None and read is not None:
            key, value_of = read
            found.setdefault(name, {})[key] = value_of(each.value)
    return {name: Row(**columns) for name, columns in found.items()}  # type: ignore[arg-type]


def _name(oid: Oid) -> str | None:
    index = oid[len(BSS_ENTRY) + 1 :]
    if oid[: len(BSS_ENTRY)] != BSS_ENTRY or not index or len(index) != index[0] + 1 or max(index) > 126:
        return None
    return bytes(index[1:]).decode("ascii")


def _text(value: bytes) -> str:
    return _octets(value).decode("utf-8", "replace")


def _octets(value: bytes) -> bytes:
    return ber.octets(value, 0, len(value))[0]


_COLUMNS = {
    RADIO: ("radio", _text),
    SSID: ("ssid", _octets),
    SECURITY: ("security", lambda value: ber.integer(value, 0, len(value))[0]),
    SLICE: ("slice_name", _text),
}


def change(rows: Mapping[str, Row], wanted: Sequence[WantedBss], passphrases: Mapping[str, str]) -> Change:
    """From the rows that are there to those wanted; ``passphrases`` by the names of files."""
    words: list[str] = []
    bindings: list[Binding] = []
    names = {bss.name for bss in wanted}
    for name, row in sorted(rows.items()):
        if row.slice_name and name not in names:
            words.append(f"remove {name} ({row.slice_name})")
            bindings.append(_integer(name, ROW, DESTROY))
    for bss in wanted:
        done, variables = _row_change(rows.get(bss.name), bss)
        if bss.passphrase_file is not None:
            variables.append(_string(bss.name, PASSPHRASE, passphrases[bss.passphrase_file].encode()))
        words += done
        bindings += variables
    return Change(tuple(words), tuple(bindings))


def _row_change(row: Row | None, bss: WantedBss) -> tuple[list[str], list[Binding]]:
    expected = Row(bss.radio, bss.ssid.encode(), SECURITIES.index(bss.security) + 1, bss.slice_name)
    if row is None:
        made = [
            _integer(bss.name, ROW, CREATE),
            *_columns(bss.name, Row(), expected),
            _integer(bss.name, ENABLED, TRUE),
        ]
        return [f"add {bss.name}: SSID {bss.ssid}, {bss.security} ({bss.slice_name})"], made
    changed = _columns(bss.name, row, expected)
    return ([f"change {bss.name}: SSID {bss.ssid}, {bss.security} ({bss.slice_name})"] if changed else []), changed


def _columns(name: str, row: Row, expected: Row) -> list[Binding]:
    found = []
    if row.radio != expected.radio:
        found.append(_string(name, RADIO, expected.radio.encode()))
    if row.ssid != expected.ssid:
        found.append(_string(name, SSID, expected.ssid))
    if row.security != expected.security:
        found.append(_integer(name, SECURITY, expected.security))
    if row.slice_name != expected.slice_name:
        found.append(_string(name, SLICE, expected.slice_name.encode()))
    return found


def _integer(name: str, column: int, value: int) -> Binding:
    return Binding((*BSS_ENTRY, column, *name_key(name)), ber.of_integer(value))


def _string(name: str, column: int, value: bytes) -> Binding:
    return Binding((*BSS_ENTRY, column, *name_key(name)), ber.element(ber.OCTETS, value))

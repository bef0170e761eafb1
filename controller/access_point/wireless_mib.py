"""The wireless part of HYROADS-MIB: a configuration as objects, and a SET as a new configuration. Pure.

A SET is taken as a whole: all of its variables are tried on the configuration in force, and the result must make sense
as a whole. So a network is made by one SET (its row, SSID, security and passphrase), in whatever order they come.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hyroads.controller.core.errors import HyroadsError

from .mib import OBJECTS, Oid, Value
from .radius import is_group_name
from .wireless import (
    AUTOMATIC_MBM,
    MAX_NAME_BYTES,
    MAX_SLICE_BYTES,
    MAX_SSID_BYTES,
    MOST_MBM,
    MOST_WEIGHT,
    SECURITIES,
    Bss,
    BssReport,
    Inconsistent,
    Radio,
    RadioAbilities,
    Report,
    Wireless,
    check,
    frequency_mhz,
    is_interface,
    is_passphrase,
    is_slice_name,
)

WIRELESS: Oid = (*OBJECTS, 4)
RADIO_ENTRY: Oid = (*WIRELESS, 1, 1)
BSS_ENTRY: Oid = (*WIRELESS, 2, 1)
PROBLEM: Oid = (*WIRELESS, 3, 0)

RADIO_CHANNEL, RADIO_POWER, RADIO_ADMIN = 2, 4, 5
BSS_RADIO, BSS_SSID, BSS_SECURITY, BSS_PASSPHRASE, BSS_ENABLED, BSS_SLICE, BSS_WEIGHT = range(2, 9)
BSS_ROW, BSS_RADIUS = 12, 13
UP, DOWN = 1, 2
TRUE, FALSE = 1, 2
ACTIVE, CREATE_AND_GO, DESTROY = 1, 4, 6

NO_ACCESS, WRONG_TYPE, WRONG_LENGTH, WRONG_VALUE, NO_CREATION = 6, 7, 8, 10, 11
INCONSISTENT_VALUE, COMMIT_FAILED, UNDO_FAILED, NOT_WRITABLE, INCONSISTENT_NAME = 12, 14, 15, 17, 18
"""Errors of RFC 3416, section 3."""


class SetError(HyroadsError):
    """A SET is refused: ``status`` of RFC 3416, and which of its variables it is about.

    They count from 1, also where it is about none: snmpd makes a general error of what is about number 0.
    """

    def __init__(self, status: int, index: int, problem: str) -> None:
        self.status, self.index, self.problem = status, index, problem
        super().__init__(problem)

    def __reduce__(self) -> tuple[type[SetError], tuple[int, int, str]]:
        """Pickle by the arguments of the constructor."""
        return type(self), (self.status, self.index, self.problem)


class _Refused(Exception):
    """A value can't be taken (status, problem); becomes a :class:`SetError` with its place."""


@dataclass(frozen=True)
class Shown:
    """All that is served: the configuration in force, what the radios can and do, and the numbers of interfaces."""

    wireless: Wireless
    abilities: Mapping[str, RadioAbilities]
    report: Report
    index_of: Mapping[str, int]
    """Of the radios; one without a number has no row."""
    problem: str = ""


def _integer(number: int) -> Value:
    return Value("integer", number)


def _octets(data: bytes) -> Value:
    return Value("octet", data)


def bss_index(name: str) -> Oid:
    """The index of a BSS: the length of its name, and the name."""
    return (len(name), *name.encode("ascii"))


def _name_of(index: Oid) -> str | None:
    """The name behind an index; None if it is none of a BSS."""
    if not index or len(index) != index[0] + 1 or len(index) > MAX_NAME_BYTES + 1 or max(index) > 126:
        return None
    name = bytes(index[1:]).decode("ascii")
    return name if is_interface(name) else None


_RadioRow = tuple[str, Radio, RadioAbilities, bool]
RADIO_COLUMNS: dict[int, Callable[[_RadioRow], Value]] = {
    1: lambda row: _octets(row[0].encode()),
    RADIO_CHANNEL: lambda row: _integer(row[1].channel),
    3: lambda row: Value("gauge", frequency_mhz(row[1].channel) or 0),
    RADIO_POWER: lambda row: _integer(row[1].power_mbm),
    RADIO_ADMIN: lambda row: _integer(UP if row[1].up else DOWN),
    6: lambda row: _integer(UP if row[3] else DOWN),
    7: lambda row: Value("gauge", row[2].most_bss),
}
_BssRow = tuple[Bss, BssReport]
BSS_COLUMNS: dict[int, Callable[[_BssRow], Value]] = {
    BSS_RADIO: lambda row: _octets(row[0].radio.encode()),
    BSS_SSID: lambda row: _octets(row[0].ssid),
    BSS_SECURITY: lambda row: _integer(SECURITIES.index(row[0].security) + 1),
    # As with the keys of SNMP's own users: what was set can't be read.
    BSS_PASSPHRASE: lambda row: _octets(b""),
    BSS_ENABLED: lambda row: _integer(TRUE if row[0].enabled else FALSE),
    BSS_SLICE: lambda row: _octets(row[0].slice_name.encode()),
    BSS_WEIGHT: lambda row: Value("gauge", row[0].airtime_weight),
    9: lambda row: _octets(bytes.fromhex(row[0].bssid.replace(":", "")) or bytes(6)),
    10: lambda row: _integer(UP if row[1].up else DOWN),
    11: lambda row: Value("gauge", row[1].stations),
    BSS_ROW: lambda row: _integer(ACTIVE),
    BSS_RADIUS: lambda row: _octets(row[0].radius.encode()),
}


def objects(shown: Shown) -> Iterator[tuple[Oid, Value]]:
    """All objects, in no order."""
    yield PROBLEM, _octets(shown.problem.encode("ascii", "replace")[:255])
    nothing = BssReport(False)
    for name, radio in shown.wireless.radios.items():
        up = any(shown.report.bsss.get(bss.name, nothing).up for bss in shown.wireless.on(name))
        for column, value_of in RADIO_COLUMNS.items():
            if name in shown.index_of:
                row = (name, radio, shown.abilities[name], up)
                yield (*RADIO_ENTRY, column, shown.index_of[name]), value_of(row)
    for name, bss in shown.wireless.bsss.items():
        for column, bss_value_of in BSS_COLUMNS.items():
            yield (*BSS_ENTRY, column, *bss_index(name)), bss_value_of((bss, shown.report.bsss.get(name, nothing)))


def _number(value: Value, low: int, high: int) -> int:
    if value.kind not in ("integer", "gauge") or not isinstance(value.value, int):
        raise _Refused(WRONG_TYPE, "expected a number")
    if not low <= value.value <= high:
        raise _Refused(WRONG_VALUE, f"expected a number from {low} to {high}, got {value.value}")
    return value.value


def _bytes(value: Value, longest: int) -> bytes:
    if value.kind != "octet" or not isinstance(value.value, bytes):
        raise _Refused(WRONG_TYPE, "expected a string")
    if len(value.value) > longest:
        raise _Refused(WRONG_LENGTH, f"expected at most {longest} bytes")
    return value.value


def _text(value: Value, longest: int, fits: Callable[[str], object], expected: str) -> str:
    text = _bytes(value, longest).decode("latin-1")
    if not fits(text):
        # What was sent is not repeated: it may be a passphrase.
        raise _Refused(WRONG_VALUE, f"expected {expected}")
    return text


def _channel(value: Value) -> dict[str, Any]:
    channel = _number(value, 1, 255)
    if frequency_mhz(channel) is None:
        raise _Refused(WRONG_VALUE, f"there is no channel {channel} at 2.4 and 5 GHz")
    return {"channel": channel}


def _passphrase(value: Value) -> dict[str, Any]:
    if value.kind == "octet" and isinstance(value.value, bytes) and 0 < len(value.value) < 8:
        raise _Refused(WRONG_LENGTH, "expected a passphrase of 8 to 63 characters")
    fits: Callable[[str], object] = lambda text: not text or is_passphrase(text)  # noqa: E731
    return {"passphrase": _text(value, 63, fits, "printable ASCII")}


def _is_group(text: str) -> bool:
    return not text or is_group_name(text) is not None


RADIO_SETTERS: dict[int, Callable[[Value], dict[str, Any]]] = {
    RADIO_CHANNEL: _channel,
    RADIO_POWER: lambda value: {"power_mbm": _number(value, AUTOMATIC_MBM, MOST_MBM)},
    RADIO_ADMIN: lambda value: {"up": _number(value, UP, DOWN) == UP},
}
BSS_SETTERS: dict[int, Callable[[Value], dict[str, Any]]] = {
    BSS_RADIO: lambda value: {"radio": _text(value, MAX_NAME_BYTES, is_interface, "the name of an interface")},
    BSS_SSID: lambda value: {"ssid": _bytes(value, MAX_SSID_BYTES)},
    BSS_SECURITY: lambda value: {"security": SECURITIES[_number(value, 1, len(SECURITIES)) - 1]},
    BSS_PASSPHRASE: _passphrase,
    BSS_ENABLED: lambda value: {"enabled": _number(value, TRUE, FALSE) == TRUE},
    BSS_SLICE: lambda value: {"slice_name": _text(value, MAX_SLICE_BYTES, is_slice_name, "the name of a slice")},
    BSS_WEIGHT: lambda value: {"airtime_weight": _number(value, 1, MOST_WEIGHT)},
    BSS_RADIUS: lambda value: {"radius": _text(value, 32, _is_group, "the name of a group of RADIUS servers")},
}


def _check_writable(column: int, known: Container[int], writable: Container[int]) -> None:
    if column not in known:
        raise _Refused(NO_ACCESS, "there is no such column")
    if column not in writable:
        raise _Refused(NOT_WRITABLE, "can't be changed")


class _Trial:
    """A SET under way: the changes of each row, and which variable brought them."""

    def __init__(self, shown: Shown) -> None:
        self.shown = shown
        self.radio_of = {number: name for name, number in shown.index_of.items()}
        self.radios: dict[str, dict[str, Any]] = {}
        self.bsss: dict[str, dict[str, Any]] = {}
        self.created: set[str] = set()
        self.destroyed: set[str] = set()
        self.first: dict[str, int] = {}

    def take(self, number: int, oid: Oid, value: Value) -> None:
        for entry, handle in ((RADIO_ENTRY, self._radio), (BSS_ENTRY, self._bss)):
            if oid[: len(entry)] == entry and len(oid) > len(entry) + 1:
                name = handle(oid[len(entry)], oid[len(entry) + 1 :], value)
                self.first.setdefault(name, number)
                return
        raise _Refused(NOT_WRITABLE, "can't be changed")

    def _radio(self, column: int, index: Oid, value: Value) -> str:
        _check_writable(column, RADIO_COLUMNS, RADIO_SETTERS)
        name = self.radio_of.get(index[0]) if len(index) == 1 else None
        if name is None:
            raise _Refused(NO_CREATION, "there is no such radio")
        self.radios.setdefault(name, {}).update(RADIO_SETTERS[column](value))
        return name

    def _bss(self, column: int, index: Oid, value: Value) -> str:
        _check_writable(column, BSS_COLUMNS, {*BSS_SETTERS, BSS_ROW})
        name = _name_of(index)
        if name is None:
            raise _Refused(NO_CREATION, "its index is not the name of an interface")
        if column == BSS_ROW:
            self._row(name, _number(value, ACTIVE, DESTROY))
        else:
            self.bsss.setdefault(name, {}).update(BSS_SETTERS[column](value))
        return name

    def _row(self, name: str, status: int) -> None:
        exists = name in self.shown.wireless.bsss
        if status == DESTROY:
            self.destroyed.add(name)
        elif status == CREATE_AND_GO and not exists:
            self.created.add(name)
        elif status == CREATE_AND_GO or (status == ACTIVE and not exists):
            raise _Refused(INCONSISTENT_VALUE, "the row is there already" if exists else "there is no such row")
        elif status != ACTIVE:
            raise _Refused(WRONG_VALUE, "expected active(1), createAndGo(4) or destroy(6)")

    def result(self) -> Wireless:
        """The configuration with all changes; :class:`Inconsistent`."""
        before = self.shown.wireless
        bsss = dict(before.bsss)
        for name in self.created:
            if "radio" not in self.bsss.get(name, {}):
                raise Inconsistent(name, "a new row needs its radio in the same request")
            bsss[name] = Bss(name, "")
        for name, changes in self.bsss.items():
            if name not in bsss:
                raise SetError(INCONSISTENT_NAME, self.first[name], f"{name}: there is no such row")
            now = replace(bsss[name], **changes)
            # Another radio has other addresses.
            bsss[name] = now if now.radio == bsss[name].radio else replace(now, bssid="")
        for name in self.destroyed:
            bsss.pop(name, None)
        radios = {name: replace(radio, **self.radios.get(name, {})) for name, radio in before.radios.items()}
        return Wireless(radios, bsss)


def tried(shown: Shown, bindings: Sequence[tuple[Oid, Value]]) -> Wireless:
    """The configuration that a SET asks for; :class:`SetError` if it is refused."""
    trial = _Trial(shown)
    for number, (oid, value) in enumerate(bindings, 1):
        try:
            trial.take(number, oid, value)
        except _Refused as refused:
            status, problem = refused.args
            raise SetError(status, number, problem) from refused
    try:
        wanted = trial.result()
        check(wanted, shown.abilities)
    except Inconsistent as error:
        raise SetError(INCONSISTENT_VALUE, trial.first.get(error.row, 1), str(error)) from error
    return wanted

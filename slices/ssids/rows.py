"""An access point's wireless networks as rows of HYROADS-MIB: looked at, compared with what slices want, made so by one
SET, and read back. Pure.

Rows that belong to no slice are the operator's own and left alone. A passphrase can't be read, so it is always sent
along: the access point does nothing if it knows it already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from hyroads.slices.core.model import SliceModel
from hyroads.slices.snmpvisor import pdu
from hyroads.slices.snmpvisor.pdu import Binding, Oid, SnmpError
from hyroads.slices.snmpvisor.requests import BSS_ENTRY, ENABLED, HYROADS, PASSPHRASE, RADIUS, SECURITY, SSID
from hyroads.slices.snmpvisor.view import name_key

from .desired import AccessPoint, WantedBss, wanted

RADIO, SLICE, ROW = 2, 7, 12
CREATE, DESTROY, TRUE = 4, 6, 1
SECURITIES = ("open", "wpa2", "wpa3", "wpa2-enterprise", "wpa3-enterprise")


@dataclass(frozen=True, slots=True)
class Row:
    """What an access point says of a network."""

    radio: str = ""
    ssid: bytes = b""
    security: int = 0
    slice_name: str = ""
    radius: str = ""


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
    return pdu.octets(value, 0, len(value))[0]


_COLUMNS = {
    RADIO: ("radio", _text),
    SSID: ("ssid", _octets),
    SECURITY: ("security", lambda value: pdu.integer(value, 0, len(value))[0]),
    SLICE: ("slice_name", _text),
    RADIUS: ("radius", _text),
}


def change(rows: Mapping[str, Row], wanted: Sequence[WantedBss], passphrases: Mapping[str, str]) -> Change:
    """From the rows that are there to those wanted; ``passphrases`` by the names of files."""
    words: list[str] = []
    bindings: list[Binding] = []
    names = {bss.name for bss in wanted}
    for name, row in sorted(rows.items()):
        if row.slice_name and name not in names:
            words.append(f"remove {name} ({row.slice_name})")
            bindings.append(_variable(name, ROW, DESTROY))
    for bss in wanted:
        done, variables = _row_change(rows.get(bss.name), bss)
        if bss.passphrase_file is not None:
            variables.append(_variable(bss.name, PASSPHRASE, passphrases[bss.passphrase_file]))
        words += done
        bindings += variables
    return Change(tuple(words), tuple(bindings))


def _row_change(row: Row | None, bss: WantedBss) -> tuple[list[str], list[Binding]]:
    expected = Row(bss.radio, bss.ssid.encode(), SECURITIES.index(bss.security) + 1, bss.slice_name, bss.radius or "")
    if row is None:
        made = [
            _variable(bss.name, ROW, CREATE),
            *_columns(bss.name, Row(), expected),
            _variable(bss.name, ENABLED, TRUE),
        ]
        return [f"add {bss.name}: SSID {bss.ssid}, {bss.security} ({bss.slice_name})"], made
    changed = _columns(bss.name, row, expected)
    return ([f"change {bss.name}: SSID {bss.ssid}, {bss.security} ({bss.slice_name})"] if changed else []), changed


def _columns(name: str, row: Row, expected: Row) -> list[Binding]:
    return [
        _variable(name, column, getattr(expected, key))
        for column, (key, _) in _COLUMNS.items()
        if getattr(row, key) != getattr(expected, key)
    ]


def _variable(name: str, column: int, value: int | str | bytes) -> Binding:
    data = value.encode() if isinstance(value, str) else value
    element = pdu.of_integer(data) if isinstance(data, int) else pdu.element(pdu.OCTETS, data)
    return Binding((*BSS_ENTRY, column, *name_key(name)), element)


PROBLEM: Oid = (*HYROADS, 4, 3, 0)


class Agent(Protocol):
    """An access point's agent."""

    def walk(self, column: Oid) -> list[Binding]:
        """All variables below."""

    def get(self, oid: Oid) -> bytes:
        """The value of a variable."""

    def set(self, bindings: tuple[Binding, ...]) -> None:
        """All or none; :class:`SnmpError`."""


@dataclass(frozen=True)
class Outcome:
    """What an access point lacked, and what went wrong (None: nothing)."""

    point: str
    words: tuple[str, ...]
    problem: str | None = None


def reconcile(
    model: SliceModel,
    points: Sequence[AccessPoint],
    passphrases: Callable[[Sequence[str]], Mapping[str, str]],
    agent_of: Callable[[str], Agent],
    *,
    dry: bool = False,
) -> list[Outcome]:
    """Each access point by itself: one that does not answer holds up no other. SSIDs that can't be had raise first."""
    found = wanted(model, points)
    files = {bss.passphrase_file for bsss in found.values() for bss in bsss if bss.passphrase_file is not None}
    known = passphrases(sorted(files))
    return [_one(point.name, found[point.name], known, agent_of, dry=dry) for point in points]


def _one(
    name: str, bsss: Sequence[WantedBss], known: Mapping[str, str], agent_of: Callable[[str], Agent], *, dry: bool
) -> Outcome:
    todo = Change((), ())
    try:
        agent = agent_of(name)
        todo = change(rows_of(agent.walk(BSS_ENTRY)), bsss, known)
        if dry or not todo.bindings:
            return Outcome(name, todo.words)
        try:
            agent.set(todo.bindings)
        except SnmpError as error:
            return Outcome(name, todo.words, f"{error}{_said(agent)}")
        left = change(rows_of(agent.walk(BSS_ENTRY)), bsss, known).words
    except SnmpError as error:
        return Outcome(name, todo.words, str(error))
    return Outcome(name, todo.words, f"access point {name}: still to do: {'; '.join(left)}" if left else None)


def _said(agent: Agent) -> str:
    """What the agent says in words of what it refused."""
    try:
        value = agent.get(PROBLEM)
        text = pdu.octets(value, 0, len(value))[0].decode("ascii", "replace") if value[:1] == b"\x04" else ""
    except SnmpError:
        return ""
    return f": {text}" if text else ""

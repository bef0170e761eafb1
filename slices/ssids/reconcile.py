"""Brings access points to what slices want: looks, compares, sets, reads back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from hyroads.slices.model import SliceModel
from hyroads.slices.snmpvisor import ber
from hyroads.slices.snmpvisor.ber import Oid
from hyroads.slices.snmpvisor.errors import SnmpError
from hyroads.slices.snmpvisor.pdu import Binding
from hyroads.slices.snmpvisor.scopes import BSS_ENTRY, HYROADS
from hyroads.slices.ssids.desired import AccessPoint, WantedBss, wanted
from hyroads.slices.ssids.rows import Change, change, rows_of

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


def passphrase_files(found: Mapping[str, Sequence[WantedBss]]) -> list[str]:
    """The files whose passphrases are needed."""
    return sorted({bss.passphrase_file for bsss in found.values() for bss in bsss if bss.passphrase_file is not None})


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
    known = passphrases(passphrase_files(found))
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
        text = ber.octets(value, 0, len(value))[0].decode("ascii", "replace") if value[:1] == b"\x04" else ""
    except SnmpError:
        return ""
    return f": {text}" if text else ""

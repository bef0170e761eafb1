"""Wanted against installed rules -> the messages that lead from one to the other without a gap in forwarding.

A batch is one byte string to send, and the answers that belong to it: the groups and then the rules that a change
adds, then the rules and the groups that it deletes, with a barrier after each of these. A switch answers a modification
only when it refuses it; the answer names the transaction id, and once the last barrier's reply is there, everything
not refused is in force (OpenFlow 1.3.5, section 6.2).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from struct import Struct

from hyroads.controller.core.errors import OpenFlowError

from . import wire
from .pipeline import ADD_ORDER
from .rule import FULL_MASK, GroupEntry, Rule, RuleKey, is_our_group, is_ours

_POSITION: Mapping[int, int] = {table: i for i, table in enumerate(ADD_ORDER)}


@dataclass(frozen=True, slots=True)
class Installed:
    """A rule as a switch reports it: table, priority, match fields as on the wire, cookie."""

    table: int
    priority: int
    match_fields: bytes
    cookie: int

    @property
    def key(self) -> RuleKey:
        """What the switch tells rules apart by; the fields are sorted, for switches may report them in any order."""
        return (self.table, self.priority, wire.canonical_fields(self.match_fields))

    @property
    def delete_body(self) -> bytes:
        """The strict flow-mod that deletes this rule, and only if it still has this cookie."""
        return wire.flow_mod_body(
            wire.DELETE_STRICT,
            self.table,
            self.priority,
            self.match_fields,
            cookie=self.cookie,
            cookie_mask=FULL_MASK,
        )


@dataclass(frozen=True)
class Change:
    """What to send: first all of ``adds`` (new rules and overwritten ones), then all of ``deletes``; groups that rules
    refer to come before the rules and go after them.
    """

    adds: tuple[Rule, ...] = ()
    deletes: tuple[Installed, ...] = ()
    group_adds: tuple[GroupEntry, ...] = ()
    group_deletes: tuple[int, ...] = ()
    conflicts: tuple[Rule, ...] = ()
    """Wanted rules that are left out because a rule of somebody else has their table, priority and match."""

    def __bool__(self) -> bool:
        return bool(self.adds or self.deletes or self.group_adds or self.group_deletes)


def as_installed(rules: Iterable[Rule]) -> tuple[Installed, ...]:
    """What a switch reports once ``rules`` are in it."""
    return tuple(Installed(rule.table, rule.priority, rule.match_fields, rule.cookie) for rule in rules)


def difference(
    wanted: Iterable[Rule],
    installed: Iterable[Installed],
    groups: Iterable[GroupEntry] = (),
    installed_groups: Iterable[int] = (),
) -> Change:
    """The smallest change from ``installed`` to ``wanted``; rules without our mark are left alone.

    A rule with the same table, priority and match but other actions is overwritten by one flow-mod, which Open vSwitch
    does atomically. Adds start at the end of the pipeline and deletes at its beginning, so a packet never meets a
    rule that leads to a place not ready yet. Raises OpenFlowError if two wanted rules have the same key but differ.
    """
    by_key = _by_key(wanted)
    ours: dict[RuleKey, Installed] = {}
    foreign: set[RuleKey] = set()
    for rule in installed:
        if is_ours(rule.cookie):
            ours[rule.key] = rule
        else:
            foreign.add(rule.key)
    present = {(rule.table, rule.priority, rule.cookie) for rule in ours.values()}
    changed = [rule for rule in by_key.values() if (rule.table, rule.priority, rule.cookie) not in present]
    adds = [rule for rule in changed if rule.key not in foreign]
    conflicts = [rule for rule in changed if rule.key in foreign]
    cookies = {rule.cookie for rule in by_key.values()}
    deletes = [rule for key, rule in ours.items() if rule.cookie not in cookies and key not in by_key]
    there, needed = set(installed_groups), {group.id: group for group in groups}
    return Change(
        *_in_order(adds, deletes),
        tuple(group for number, group in needed.items() if number not in there),
        tuple(number for number in sorted(there) if number not in needed and is_our_group(number)),
        tuple(conflicts),
    )


def difference_at(
    keys: Iterable[RuleKey], wanted: Mapping[RuleKey, Rule], installed: Mapping[RuleKey, Installed]
) -> Change:
    """As :func:`difference`, of rules with these keys alone: all others are known to be in the switch as they are
    wanted. ``wanted`` and ``installed`` have the rules by key; groups stay.
    """
    adds: list[Rule] = []
    deletes: list[Installed] = []
    conflicts: list[Rule] = []
    for key in keys:
        rule, there = wanted.get(key), installed.get(key)
        if there is not None and not is_ours(there.cookie):
            conflicts += () if rule is None else (rule,)
        elif rule is None:
            deletes += () if there is None else (there,)
        elif there is None or there.cookie != rule.cookie:
            adds.append(rule)
    return Change(*_in_order(adds, deletes), conflicts=tuple(conflicts))


def _in_order(adds: list[Rule], deletes: list[Installed]) -> tuple[tuple[Rule, ...], tuple[Installed, ...]]:
    """Adds from the end of the pipeline to its beginning, deletes the other way."""
    adds.sort(key=lambda rule: (_POSITION.get(rule.table, -1), -rule.priority))
    deletes.sort(key=lambda rule: (-_POSITION.get(rule.table, -1), rule.priority))
    return tuple(adds), tuple(deletes)


def _by_key(rules: Iterable[Rule]) -> dict[RuleKey, Rule]:
    found: dict[RuleKey, Rule] = {}
    for rule in rules:
        other = found.setdefault(rule.key, rule)
        if other.cookie != rule.cookie:
            raise OpenFlowError(
                f"table {rule.table}: two rules with priority {rule.priority} and the same match {rule.match}: "
                f"{other.actions} and {rule.actions}"
            )
    return found


_ERROR = Struct("!HH")

Subject = Rule | Installed | GroupEntry | int
"""What a message of a batch is about; a group that goes by its id."""

ERROR_TYPES = {
    0: "hello failed",
    1: "bad request",
    2: "bad action",
    3: "bad instruction",
    4: "bad match",
    5: "flow-mod failed",
    6: "group-mod failed",
    12: "meter-mod failed",
    13: "table features failed",
    0xFFFF: "experimenter",
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """The switch refused a message: what it was about and why (OpenFlow error type and code)."""

    subject: Subject
    type: int
    code: int

    def __str__(self) -> str:
        kind, about = ERROR_TYPES.get(self.type, f"type {self.type}"), self.subject
        if isinstance(about, GroupEntry | int):
            return f"group {about if isinstance(about, int) else about.id:#x}: {kind}, code {self.code}"
        return f"table {about.table} priority {about.priority}: {kind}, code {self.code}"


@dataclass
class Batch:
    """Messages of one change on their way; feed it ``on_error`` and ``on_barrier`` until ``done``."""

    change: Change
    data: bytes
    messages: int
    first_xid: int
    last_xid: int
    _subjects: dict[int, Subject] = field(repr=False, default_factory=dict)
    refusals: list[Refusal] = field(default_factory=list)
    done: bool = False

    @property
    def ok(self) -> bool:
        """Everything is in force."""
        return self.done and not self.refusals

    @property
    def refused(self) -> dict[RuleKey, Rule | Installed]:
        """The rules that were not added, or not deleted."""
        subjects = (refusal.subject for refusal in self.refusals)
        return {subject.key: subject for subject in subjects if isinstance(subject, Rule | Installed)}

    def in_force(self) -> tuple[list[Installed], list[Installed]]:
        """Once it is done: the rules that the switch has now, and those that it has no more."""
        refused = self.refused
        added = [rule for rule in as_installed(self.change.adds) if rule.key not in refused]
        return added, [rule for rule in self.change.deletes if rule.key not in refused]

    def on_error(self, xid: int, error_type: int, code: int) -> bool:
        """Takes an error message from the switch; False if it does not belong to this batch."""
        subject = self._subjects.get(xid)
        if subject is None:
            return False
        self.refusals.append(Refusal(subject, error_type, code))
        return True

    def on_barrier(self, xid: int) -> bool:
        """Takes a barrier reply; False if it does not belong to this batch."""
        if not self.first_xid <= xid <= self.last_xid:
            return False
        if xid == self.last_xid:
            self.done = True
        return True


def batch_of(change: Change, first_xid: int) -> Batch:
    """The messages of a change with transaction ids from ``first_xid`` on; the last one is a barrier.

    ``last_xid + 1`` is free for the next batch. Ids have 32 bits; the caller starts again at 1 before they run out
    (``next_xid``).
    """
    xid = first_xid
    parts: list[bytes] = []
    subjects: dict[int, Subject] = {}
    steps: tuple[tuple[int, list[tuple[Subject, bytes]]], ...] = (
        (wire.GROUP_MOD, [(group, group.add_body) for group in change.group_adds]),
        (wire.FLOW_MOD, [(rule, rule.add_body) for rule in change.adds]),
        (wire.FLOW_MOD, [(rule, rule.delete_body) for rule in change.deletes]),
        (wire.GROUP_MOD, [(group, wire.group_mod_body(wire.GROUP_DELETE, group)) for group in change.group_deletes]),
    )
    for kind, messages in steps:
        if not messages:
            continue
        for subject, body in messages:
            parts.append(wire.message(body, xid, kind))
            subjects[xid] = subject
            xid += 1
        parts.append(wire.barrier_request(xid))
        xid += 1
    if not parts:
        parts.append(wire.barrier_request(xid))
        xid += 1
    return Batch(change, b"".join(parts), len(parts), first_xid, xid - 1, subjects)


def next_xid(last_xid: int) -> int:
    """The first transaction id after ``last_xid``, back to 1 when fewer than 2^24 are left."""
    return last_xid + 1 if last_xid + (1 << 24) < 0xFFFF_FFFF else 1


def error_of(message: bytes) -> tuple[int, int, int]:
    """(transaction id, type, code) of a checked OpenFlow error message."""
    _, _, _, xid = wire.HEADER.unpack_from(message)
    kind, code = _ERROR.unpack_from(message, 8)
    return xid, kind, code

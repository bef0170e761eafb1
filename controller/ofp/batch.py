"""Batches of flow-mods and group-mods: one byte string to send, and the answers that belong to it.

A batch is the groups and then the rules that a change adds, then the rules and the groups that it deletes, with a
barrier after each of these. A switch answers a modification only when it refuses it; the answer names the transaction
id, and once the last barrier's reply is there, everything not refused is in force (OpenFlow 1.3.5, section 6.2).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct

from hyroads.controller.ofp import wire
from hyroads.controller.ofp.diff import Change, Installed
from hyroads.controller.ofp.group import GroupDelete, GroupEntry
from hyroads.controller.ofp.rule import Rule

_ERROR = Struct("!HH")

Subject = Rule | Installed | GroupEntry | GroupDelete
"""What a message of a batch is about."""

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
        if isinstance(about, GroupEntry | GroupDelete):
            return f"group {about.id:#x}: {kind}, code {self.code}"
        return f"table {about.table} priority {about.priority}: {kind}, code {self.code}"


@dataclass
class Batch:
    """Messages of one change on their way; feed it ``on_error`` and ``on_barrier`` until ``done``."""

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
        (wire.GROUP_MOD, [(group, group.delete_body) for group in change.group_deletes]),
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
    return Batch(b"".join(parts), len(parts), first_xid, xid - 1, subjects)


def next_xid(last_xid: int, room: int = 1 << 24) -> int:
    """The first transaction id after ``last_xid``, back to 1 when fewer than ``room`` are left."""
    return last_xid + 1 if last_xid + room < 0xFFFF_FFFF else 1


def error_of(message: bytes) -> tuple[int, int, int]:
    """(transaction id, type, code) of a checked OpenFlow error message."""
    _, _, _, xid = wire.HEADER.unpack_from(message)
    kind, code = _ERROR.unpack_from(message, 8)
    return xid, kind, code

"""Batches of flow-mods: one byte string to send, and the answers that belong to it.

A batch is the adds of a change, a barrier, its deletes, and a barrier. A switch answers a flow-mod only when it refuses
it; the answer names the transaction id, and once the last barrier's reply is there, everything not refused is in force
(OpenFlow 1.3.5, section 6.2).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct

from hyroads.controller.ofp import wire
from hyroads.controller.ofp.diff import Change, Installed
from hyroads.controller.ofp.rule import Rule

_ERROR = Struct("!HH")

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
    """The switch refused a message: which rule it was about and why (OpenFlow error type and code)."""

    rule: Rule | Installed
    type: int
    code: int

    def __str__(self) -> str:
        kind = ERROR_TYPES.get(self.type, f"type {self.type}")
        return f"table {self.rule.table} priority {self.rule.priority}: {kind}, code {self.code}"


@dataclass
class Batch:
    """Messages of one change on their way; feed it ``on_error`` and ``on_barrier`` until ``done``."""

    data: bytes
    messages: int
    first_xid: int
    last_xid: int
    _subjects: dict[int, Rule | Installed] = field(repr=False, default_factory=dict)
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
    subjects: dict[int, Rule | Installed] = {}
    for group in ([(r, r.add_body) for r in change.adds], [(r, r.delete_body) for r in change.deletes]):
        if not group:
            continue
        for rule, body in group:
            parts.append(wire.message(body, xid))
            subjects[xid] = rule
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

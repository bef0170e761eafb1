"""Transaction ids: every message sent on gets one of the proxy, and its answer finds the way back by it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

MOST_WAITING = 8192
"""Messages of a guest without an answer are forgotten after this many others of it: flow-mods, for one, are answered
only if refused. What other guests send does not matter."""

FIRST_OWN = 0x8000_0000
"""Ids from here on are those of the slicer's own messages."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Who sent a message, under which id, and what it was (its first bytes are quoted in errors)."""

    guest: int
    xid: int
    request: bytes
    undo: Callable[[], object] | None = None
    """What the proxy must take back if the switch refuses."""


class Xids:
    """The messages of all guests that are on their way to one switch."""

    def __init__(self, first: int = 1) -> None:
        self._next = first
        self._waiting: dict[int, Asked] = {}
        self._of_guest: dict[int, OrderedDict[int, None]] = {}

    def __len__(self) -> int:
        """How many are remembered: never more than ``MOST_WAITING`` of each guest."""
        return len(self._waiting)

    def send(self, guest: int, request: bytes, message: bytes, undo: Callable[[], object] | None = None) -> bytes:
        """The message under an id of the proxy; ``request`` is what the guest sent."""
        xid = self._next
        while xid in self._waiting:  # after many days, of a guest that is quiet since
            xid = xid + 1 if xid < FIRST_OWN - 1 else 1
        self._next = xid + 1 if xid < FIRST_OWN - 1 else 1
        self._waiting[xid] = Asked(guest, int.from_bytes(request[4:8], "big"), request[:64], undo)
        mine = self._of_guest.get(guest)
        if mine is None:
            mine = self._of_guest[guest] = OrderedDict()
        mine[xid] = None
        if len(mine) > MOST_WAITING:
            del self._waiting[mine.popitem(last=False)[0]]
        return message[:4] + xid.to_bytes(4, "big") + message[8:]

    def asked(self, message: bytes, *, last: bool = True) -> Asked | None:
        """Whose answer this is; None if it is nobody's. With ``last`` no other answer is expected."""
        xid = int.from_bytes(message[4:8], "big")
        found = self._waiting.get(xid)
        if last and found is not None:
            del self._waiting[xid], self._of_guest[found.guest][xid]
        return found

    def forget(self, guest: int) -> None:
        """A guest is gone: its answers are nobody's."""
        for xid in self._of_guest.pop(guest, ()):
            del self._waiting[xid]


def answer(asked: Asked, message: bytes) -> bytes:
    """An answer of the switch under the guest's id; an error quotes the guest's own request."""
    head, xid = message[:4], asked.xid.to_bytes(4, "big")
    if message[1] != 1:
        return head + xid + message[8:]
    size = 12 + len(asked.request)
    return message[:2] + size.to_bytes(2, "big") + xid + message[8:12] + asked.request

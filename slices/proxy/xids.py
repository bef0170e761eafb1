"""What the proxy remembers of each slice's messages to a switch: whose answer is whose, whose a buffered packet is, and
how much of the control channel and of the tables a slice uses. Time is an argument, in seconds.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from hyroads.slices.native.layout import FIRST_XID, Bucket, Quota

MOST_WAITING = 8192
"""Messages of a guest without an answer are forgotten after this many others of it: flow-mods, for one, are answered
only if refused. What other guests send does not matter."""

FIRST_OWN = 0x8000_0000
"""Ids from here on are those of the slicer's own messages; from ``FIRST_XID`` on, of those that the fast path sent."""


@dataclass(frozen=True, slots=True)
class Request:
    """Who sent a message, under which id, and what it was (its first bytes are quoted in errors)."""

    guest: int
    xid: int
    request: bytes
    sent_s: float
    undo: Callable[[], object] | None = None
    """What the proxy must take back if the switch refuses."""


class Xids:
    """The messages of all guests that are on their way to one switch: each has an id of the proxy, as its answer."""

    def __init__(self, first: int = 1) -> None:
        self._next = first
        self._waiting: dict[int, Request] = {}
        self._of_guest: defaultdict[int, OrderedDict[int, None]] = defaultdict(OrderedDict)

    def __len__(self) -> int:
        """How many are remembered: never more than ``MOST_WAITING`` of each guest."""
        return len(self._waiting)

    def send(
        self,
        guest: int,
        request: bytes,
        message: bytes,
        undo: Callable[[], object] | None = None,
        *,
        now_s: float = 0.0,
    ) -> bytes:
        """The message under an id of the proxy; ``request`` is what the guest sent."""
        xid = self._next
        while xid in self._waiting:  # after many days, of a guest that is quiet since
            xid = xid + 1 if xid < FIRST_XID - 1 else 1
        self._next = xid + 1 if xid < FIRST_XID - 1 else 1
        self._waiting[xid] = Request(guest, int.from_bytes(request[4:8], "big"), request[:64], now_s, undo)
        mine = self._of_guest[guest]
        mine[xid] = None
        if len(mine) > MOST_WAITING:
            del self._waiting[mine.popitem(last=False)[0]]
        return message[:4] + xid.to_bytes(4, "big") + message[8:]

    def asked(self, message: bytes, *, last: bool = True) -> Request | None:
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


def answer(asked: Request, message: bytes) -> bytes:
    """An answer of the switch under the guest's id; an error quotes the guest's own request."""
    head, xid = message[:4], asked.xid.to_bytes(4, "big")
    if message[1] != 1:
        return head + xid + message[8:]
    size = 12 + len(asked.request)
    return message[:2] + size.to_bytes(2, "big") + xid + message[8:12] + asked.request


MOST = 4096
REMEMBERED_S = 30.0


class Buffers:
    """Who was told of which buffer of one switch, and so may use it, once."""

    def __init__(self) -> None:
        self._told: OrderedDict[int, tuple[int, float]] = OrderedDict()

    def __len__(self) -> int:
        """How many are remembered: never more than ``MOST``."""
        return len(self._told)

    def tell(self, buffer: int, number: int, now_s: float) -> None:
        """A packet-in with this buffer went to the slice with this number."""
        self._told.pop(buffer, None)
        self._told[buffer] = (number, now_s + REMEMBERED_S)
        if len(self._told) > MOST:
            self._told.popitem(last=False)

    def take(self, buffer: int, number: int, now_s: float) -> bool:
        """Whether the slice may use the buffer now; it may not a second time."""
        found = self._told.get(buffer)
        if found is None or found[0] != number:
            return False
        del self._told[buffer]
        return now_s <= found[1]


def bucket_of(rate_per_s: float) -> Bucket:
    """A slice's bucket for a rate of its limits: the burst is what comes in a tenth of a second, and at least one."""
    return Bucket(rate_per_s, max(1.0, rate_per_s / 10) if rate_per_s else 0.0)


_NEARLY_FULL = 0.8


class EntryQuota(Quota):
    """Flow entries of a slice on a switch: what the switch counted last, and what was added since.

    Timeouts and overwriting adds are not seen between two counts, so the quota errs on the strict side, until the
    next count.
    """

    def __init__(self, most: int) -> None:
        """At most so many; ``added`` is how many were added since the last count."""
        super().__init__(most)

    @property
    def used(self) -> int:
        """How many the slice may have at most by now."""
        return int(self.counted_entries + self.added)

    @property
    def due(self) -> bool:
        """Whether it is time for another count: little is left, or an entry was refused though others may have gone."""
        return bool(self.refused) or (self.added > 0 and self.used > _NEARLY_FULL * self.most)

    def counted(self, active: int, added_since_request: int = 0) -> None:
        """The switch says how many entries the slice's tables have; adds sent after the question still count."""
        self.counted_entries = active
        self.added = added_since_request
        self.refused = 0

    def add(self) -> bool:
        """Whether one more entry is allowed."""
        if self.used >= self.most:
            self.refused = 1
            return False
        self.added += 1
        return True

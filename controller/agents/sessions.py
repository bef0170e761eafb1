"""One connection of an agent, of an access point's radios or of a client: what is sent, what is asked and answered."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hyroads.controller.core.identity import CertificateFacts
from hyroads.controller.core.token_bucket import TokenBucket
from hyroads.controller.framework import ryu_shim as shim

from .changes import WholeReport
from .protocol import RADIO, Hello, ProtocolError, encode
from .telemetry import WholeReading

if TYPE_CHECKING:
    from hyroads.controller.framework.shared_poll import SharedPoll

LOG = logging.getLogger("hyroads.agents")
REQUEST_WITHIN_S = 2.0
NO_ANSWER, GONE = "no answer in time", "the connection is gone"
"""What an :data:`Answer` is told if there was none."""
OUTBOX = 256

Answer = Callable[[str | None], None]
"""Called with None when a request was carried out, else with what went wrong."""


@dataclass
class _Request:
    answer: Answer
    deadline_s: float
    told: Callable[[Mapping[str, Any]], None] | None = None


class SessionColumns:
    """What is asked of many sessions at once, by row. Rows are used again once a session has left."""

    def __init__(self, size: int = 1) -> None:
        self.heard_s, self.pinged_s, self.skip_until_s = (np.zeros(size) for _ in range(3))
        self.rtt_ms = np.full(size, np.nan)
        self.is_closed, self.is_joined, self.is_radio = (np.zeros(size, dtype=bool) for _ in range(3))
        self.is_asked, self.is_writing = (np.zeros(size, dtype=bool) for _ in range(2))
        """Whether it was asked something and has not answered yet; whether something waits to be sent."""
        self.is_given = np.zeros(size, dtype=bool)
        """Whether the library was given a ping to send, and may not have sent all of it."""
        self.number, self.seq = (np.zeros(size, dtype=np.int64) for _ in range(2))
        """By which the library knows its socket, 0 if it does not; that of the last request or ping."""
        self.place = np.zeros(size, dtype=np.intp)
        """Of the session's node among those that the server knows."""
        self.shape = np.zeros(size, dtype=np.int64)
        """What its decoded numbers are about (``Decoded.shapes``)."""
        self.whole = np.full(size, None, dtype=object)
        self.session = np.full(size, None, dtype=object)
        self._free = list(range(size))[::-1]

    def __len__(self) -> int:
        """How many have a row."""
        return len(self.heard_s) - len(self._free)

    def enter(self) -> int:
        """A row for a session."""
        if not self._free:
            size = len(self.heard_s)
            for name, column in SessionColumns(size)._columns():
                setattr(self, name, np.append(getattr(self, name), column))
            self._free = list(range(size, 2 * size))[::-1]
        return self._free.pop()

    def due(self, heard_since_s: float, pinged_since_s: float) -> tuple[list[Session], NDArray[np.intp]]:
        """Of those that the library reads: who was not heard since a time, or has not answered what it was asked; and
        the rows of others, who were not pinged after a time.
        """
        is_there = (self.number > 0) & ~self.is_closed
        is_silent = is_there & ((self.heard_s < heard_since_s) | self.is_asked)
        is_due = is_there & ~is_silent & (self.pinged_s <= pinged_since_s)
        return self.session[is_silent].tolist(), np.flatnonzero(is_due)

    def ping_by(self, poll: SharedPoll, rows: NDArray[np.intp], now_s: float) -> None:
        """Ask many for a sign of life, all at once by the library where nothing waits to be sent. When it was sent, and
        how long the answer took, is measured there.
        """
        is_free = ~self.is_writing[rows]
        free, others = rows[is_free], rows[~is_free]
        self.seq[free] += 1
        refused = poll.ping(self.number[free], self.seq[free])
        self.pinged_s[free], self.is_given[free] = now_s, True
        for session in self.session[[*others, *free[refused]]] if len(others) or refused else ():
            session.ping()

    def leave(self, row: int) -> None:
        """The row is free."""
        self.whole[row], self.number[row] = None, 0
        self._free.append(row)

    def copy(self, row: int, others: SessionColumns, to: int) -> None:
        """Put what there is of a session in a row of others."""
        for name, column in self._columns():
            getattr(others, name)[to] = column[row]

    def _columns(self) -> list[tuple[str, NDArray[Any]]]:
        return [(name, column) for name, column in vars(self).items() if isinstance(column, np.ndarray)]


@dataclass
class Session:
    """One connected agent, the radios of one access point, or a multi-homed client. ``allowance`` bounds what it may
    send, in bytes.
    """

    hello: Hello
    peer: str
    _socket: Any = field(repr=False)
    clock: Callable[[], float] = field(repr=False)
    joined: bool = False
    closed: bool = False
    join_by_s: float = 0.0
    by_library: bool = False
    """The compiled library reads its socket."""
    holds: Callable[[Any], bool] = field(default=lambda connection: False, repr=False)
    """Whether the library has something of a socket that was not taken yet."""
    settle: Callable[[Any], bytes] = field(default=lambda connection: b"", repr=False)
    """Has the library send the ping that it was given; what there was no room for."""
    wholes: int = 0
    """How many lines that may be whole reports or readings the library had read with the last line that was taken."""
    later: deque[tuple[bytes, int]] = field(default_factory=deque, repr=False)
    """Lines that wait to be taken, each with what :attr:`wholes` was then."""
    readings: list[tuple[bytes, int]] = field(default_factory=list, repr=False)
    """Readings of radios that wait to be taken, each with what :attr:`wholes` was then."""
    allowance: TokenBucket | None = None
    shown: CertificateFacts | None = None
    """Its certificate; None: the port needs none."""
    may_change: bool = True
    """Of radios: another controller leads if not, and they would refuse what we say."""
    epoch_told: Callable[[int], None] = field(default=lambda epoch: None, repr=False)
    """Called with the greatest epoch that it has seen, when it refuses something because we do not lead."""

    def __post_init__(self) -> None:
        self.node, self.is_radio = self.hello.node, self.hello.role == RADIO
        self.columns = SessionColumns()
        self.row = self.columns.enter()
        self.columns.is_radio[self.row] = self.is_radio
        self.whole, self.reading = WholeReport(), WholeReading()
        self._outbox, self._is_writing = shim.new_queue(OUTBOX), False
        self._sends_now = shim.sends_now(self._socket)
        self.requests: dict[int, _Request] = {}
        """What it was asked and has not answered yet, by number."""
        self._pings: dict[int, float] = {}
        self._asked: dict[int, float] = {}

    @property
    def heard_s(self) -> float:
        """When it said something."""
        return self.columns.heard_s.item(self.row)

    @heard_s.setter
    def heard_s(self, at_s: float) -> None:
        self.columns.heard_s[self.row] = at_s

    @property
    def pinged_s(self) -> float:
        """When it was asked for a sign of life."""
        return self.columns.pinged_s.item(self.row)

    @property
    def rtt_ms(self) -> float | None:
        """How long its last answer to a ping took; None: there was none."""
        rtt_ms = self.columns.rtt_ms.item(self.row)
        return None if math.isnan(rtt_ms) else rtt_ms

    @rtt_ms.setter
    def rtt_ms(self, rtt_ms: float | None) -> None:
        self.columns.rtt_ms[self.row] = math.nan if rtt_ms is None else rtt_ms

    def _next_seq(self) -> int:
        seq = self.columns.seq.item(self.row) + 1
        self.columns.seq[self.row] = seq
        return seq

    @property
    def skip_until_s(self) -> float:
        """Until when reports that others take the place of may be left out."""
        return self.columns.skip_until_s.item(self.row)

    @skip_until_s.setter
    def skip_until_s(self, until_s: float) -> None:
        self.columns.skip_until_s[self.row] = until_s

    @property
    def whole(self) -> WholeReport:
        """The whole report that changes refer to."""
        found: WholeReport = self.columns.whole[self.row]
        return found

    @whole.setter
    def whole(self, whole: WholeReport) -> None:
        self.columns.whole[self.row] = whole
        self.columns.shape[self.row] = whole.known_shape

    def use_shape(self, shape: int) -> None:
        """What its decoded numbers are about from now on (``Decoded.shapes``)."""
        self.columns.shape[self.row] = shape

    @contextmanager
    def among(self, columns: SessionColumns, place: int) -> Iterator[int]:
        """Have a row there for as long as that takes; ``place`` is that of its node."""
        own, own_row, row = self.columns, self.row, columns.enter()
        self._move(columns, row)
        columns.session[row], columns.place[row] = self, place
        try:
            yield row
        finally:
            columns.session[row] = None
            self._move(own, own_row)
            columns.leave(row)

    def _move(self, columns: SessionColumns, row: int) -> None:
        self.columns.copy(self.row, columns, row)
        self.columns, self.row = columns, row

    def join(self) -> None:
        """It is known what its links are like."""
        self.joined = self.columns.is_joined[self.row] = True

    def request(
        self,
        document: Mapping[str, Any] | str,
        answer: Answer,
        *,
        within_s: float = REQUEST_WITHIN_S,
        told: Callable[[Mapping[str, Any]], None] | None = None,
    ) -> None:
        """Send a request, which may be an object in JSON already; ``answer`` is called once, also when the session ends
        or no answer comes within the time. ``told`` gets the fields of an ``ok`` before.
        """
        seq = self._next_seq()
        self.requests[seq] = _Request(answer, self.clock() + within_s, told)
        self.columns.is_asked[self.row] = True
        self._send(f'{document[:-1]},"seq":{seq}}}\n'.encode() if isinstance(document, str) else encode(document, seq))

    def send(self, document: Mapping[str, Any]) -> None:
        """Send a line, or queue what of it there is no room for; an agent that does not read loses its connection."""
        self._send(encode(document))

    def _send(self, line: bytes) -> None:
        if self.columns.is_given[self.row]:
            self.columns.is_given[self.row] = False
            rest = self.settle(self._socket)
            if rest:
                self._queue(rest)
        # To wake another green thread for each of thousands of lines a second costs more than to send them.
        if self._sends_now is not None and not (self._is_writing or self.closed or self._outbox.qsize()):
            try:
                line = line[self._sends_now(line) :]
            except BlockingIOError:
                pass
            except OSError as error:
                self.close(f"sending failed: {error.strerror or error}")
                return
            if not line:
                return
        self._queue(line)

    def _queue(self, line: bytes) -> None:
        self.columns.is_writing[self.row] = True
        try:
            self._outbox.put_nowait(line)
        except shim.QueueFull:
            self.close("it does not read")

    def pay(self, size_bytes: int, now_s: float) -> None:
        """A line came in at a time; :class:`ProtocolError` if that is more than its peer may send."""
        if self.allowance is None:
            return
        if self.allowance.wait_s(now_s) > 0:
            raise ProtocolError("it sends too much")
        self.allowance.spend(size_bytes)

    def read(self) -> int:
        """Ask radios for a reading at once; the number that it will carry."""
        seq = self._next_seq()
        self.send({"type": "read", "seq": seq})
        return seq

    def ping(self) -> None:
        """Ask for a sign of life."""
        seq = self._next_seq()
        now_s = self.columns.pinged_s[self.row] = self.clock()
        self._pings = _with_latest(self._pings, seq, now_s)
        self._send(b'{"type":"ping","seq":%d}\n' % seq)

    def ask_leader(self, now_s: float) -> None:
        """Ask when the leader was heard, at a time that :meth:`leader_heard_s` counts from."""
        seq = self._next_seq()
        self._asked = _with_latest(self._asked, seq, now_s)
        self.send({"type": "ping", "seq": seq, "leader": True})

    def leader_heard_s(self, message: Mapping[str, Any]) -> float | None:
        """When the leader was heard, or later, by an answer to :meth:`ask_leader`; None if it does not say."""
        asked_s, heard_ms = self._asked.pop(message["seq"] or 0, None), message["heard_ms"]
        # It was answered after it was asked, and read perhaps much later.
        return None if asked_s is None or heard_ms is None else asked_s - heard_ms / 1e3

    def has_unread(self) -> bool:
        """Whether the peer has said something that was not read, or not taken, yet."""
        if self.closed:
            return False
        return bool(self.readings) or shim.has_unread(self._socket) or (self.by_library and self.holds(self._socket))

    def refer(self, number_of: Callable[[Any], int], tell: Callable[..., None], *what: object, is_last: bool) -> None:
        """Tell the library, which knows the socket by a number, what changes refer to from now on."""
        tell(number_of(self._socket), *what, wholes=self.wholes, is_last=is_last)

    def fail(self, end: Callable[[Any, Exception], None], error: Exception) -> None:
        """Have whoever serves the socket get an error."""
        end(self._socket, error)

    def close(self, why: str) -> None:
        """End the session (the reader notices and tells the listener)."""
        if not self.closed:
            self._end()
            LOG.info("%s %s (%s): closing, %s", self.hello.role, self.node, self.peer, why)
            shim.shut(self._socket)

    def _end(self) -> None:
        self.closed = self.columns.is_closed[self.row] = True

    def write_loop(self) -> None:
        """Send what is queued until the session ends."""
        while not self.closed:
            line = self._outbox.get()
            if line is None:
                return
            self._is_writing = True
            try:
                self._socket.sendall(line)
            except OSError as error:
                self.close(f"sending failed: {error.strerror or error}")
            self._is_writing = False
            self.columns.is_writing[self.row] = bool(self._outbox.qsize())

    def answered(self, message: Mapping[str, Any]) -> None:
        """An answer to a request came in."""
        request = self.requests.pop(message["seq"] or 0, None)
        is_error = message["type"] == "error"
        if is_error and message.get("epoch"):
            self.epoch_told(message["epoch"])
        if request is not None:
            if request.told is not None and not is_error:
                request.told(message)
            request.answer(message.get("message") if is_error else None)

    def ponged(self, message: Mapping[str, Any]) -> None:
        """An answer to a ping came in."""
        sent_s = self._pings.pop(message["seq"] or 0, None)
        if sent_s is not None:
            self.rtt_ms = (self.clock() - sent_s) * 1e3

    def expire(self) -> None:
        """Requests that were not answered in time count as failed."""
        if not self.requests:
            self.columns.is_asked[self.row] = False
            return
        now_s = self.clock()
        late = [seq for seq, request in self.requests.items() if request.deadline_s < now_s]
        if late and self.has_unread():
            # The answer may be there.
            return
        for seq in late:
            self.requests.pop(seq).answer(NO_ANSWER)

    def finish(self) -> None:
        """Release everything that waits for this session."""
        self._end()
        requests, self.requests = self.requests, {}
        for request in requests.values():
            request.answer(GONE)
        if self._outbox.full():
            self._outbox.get()
        self._outbox.put_nowait(None)


def _with_latest(sent_s: Mapping[int, float], seq: int, now_s: float) -> dict[int, float]:
    """When each of the four latest was sent, with this one."""
    return {seq: now_s, **dict(list(sent_s.items())[:3])}

"""One connection of an agent, of an access point's radios or of a client: what is sent, what is asked and answered."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from hyroads.controller.core.token_bucket import TokenBucket
from hyroads.controller.framework import ryu_shim as shim
from hyroads.controller.framework.shared_poll import SharedPoll

from .changes import WholeReport
from .protocol import RADIO, Hello, ProtocolError, encode
from .telemetry import WholeReading

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


@dataclass
class Session:
    """One connected agent, the radios of one access point, or a multi-homed client. ``allowance`` bounds what it may
    send, in bytes.
    """

    hello: Hello
    peer: str
    _socket: Any = field(repr=False)
    clock: Callable[[], float] = field(repr=False)
    heard_s: float = 0.0
    pinged_s: float = 0.0
    rtt_ms: float | None = None
    joined: bool = False
    closed: bool = False
    join_by_s: float = 0.0
    skip_until_s: float = 0.0
    """Until when reports that others take the place of may be left out."""
    by_library: bool = False
    """The compiled library reads its socket."""
    holds: Callable[[Any], bool] = field(default=lambda connection: False, repr=False)
    """Whether the library has something of a socket that was not taken yet."""
    settle: Callable[[Any], bytes] = field(default=lambda connection: b"", repr=False)
    """Has the library send the ping that it was given; what there was no room for."""
    wholes: int = 0
    """How many lines that may be whole reports or readings the library had read with the last line that was taken."""
    allowance: TokenBucket | None = None
    may_change: bool = True
    """Of radios: another controller leads if not, and they would refuse what we say."""
    epoch_told: Callable[[int], None] = field(default=lambda epoch: None, repr=False)
    """Called with the greatest epoch that it has seen, when it refuses something because we do not lead."""

    def __post_init__(self) -> None:
        self.node, self.is_radio = self.hello.node, self.hello.role == RADIO
        self.whole, self.reading = WholeReport(), WholeReading()
        self._outbox, self._is_writing = shim.new_queue(OUTBOX), False
        self._is_given = False
        """The library may still have something to send."""
        self._sends_now = shim.sends_now(self._socket)
        self.requests: dict[int, _Request] = {}
        """What it was asked and has not answered yet, by number."""
        self._pings: dict[int, float] = {}
        self._asked: dict[int, float] = {}
        self._seq = count(1)

    def request(
        self,
        document: Mapping[str, Any],
        answer: Answer,
        *,
        within_s: float = REQUEST_WITHIN_S,
        told: Callable[[Mapping[str, Any]], None] | None = None,
    ) -> None:
        """Send a request; ``answer`` is called once, also when the session ends or no answer comes within the time.

        ``told`` gets the fields of an ``ok`` before.
        """
        seq = next(self._seq)
        self.requests[seq] = _Request(answer, self.clock() + within_s, told)
        self.send({**document, "seq": seq})

    def send(self, document: Mapping[str, Any]) -> None:
        """Send a line, or queue what of it there is no room for; an agent that does not read loses its connection."""
        self._send(encode(document))

    def _send(self, line: bytes) -> None:
        if self._is_given:
            self._is_given = False
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
        seq = next(self._seq)
        self.send({"type": "read", "seq": seq})
        return seq

    def ping(self) -> None:
        """Ask for a sign of life."""
        seq = next(self._seq)
        self.pinged_s = self.clock()
        self._pings = _with_latest(self._pings, seq, self.pinged_s)
        self._send(b'{"type":"ping","seq":%d}\n' % seq)

    @property
    def is_free(self) -> bool:
        """Whether the library may send its next ping: it reads the socket, and nothing waits to be sent."""
        return self.by_library and not (self._is_writing or self.closed or self._outbox.qsize())

    def ask_leader(self, now_s: float) -> None:
        """Ask when the leader was heard, at a time that :meth:`leader_heard_s` counts from."""
        seq = next(self._seq)
        self._asked = _with_latest(self._asked, seq, now_s)
        self.send({"type": "ping", "seq": seq, "leader": True})

    def leader_heard_s(self, message: Mapping[str, Any]) -> float | None:
        """When the leader was heard, or later, by an answer to :meth:`ask_leader`; None if it does not say."""
        asked_s, heard_ms = self._asked.pop(message["seq"] or 0, None), message["heard_ms"]
        # It was answered after it was asked, and read perhaps much later.
        return None if asked_s is None or heard_ms is None else asked_s - heard_ms / 1e3

    def has_unread(self) -> bool:
        """Whether the peer has said something that was not read, or not taken, yet."""
        return not self.closed and (shim.has_unread(self._socket) or (self.by_library and self.holds(self._socket)))

    def refer(self, number_of: Callable[[Any], int], tell: Callable[..., None], *what: object, is_last: bool) -> None:
        """Tell the library, which knows the socket by a number, what changes refer to from now on."""
        tell(number_of(self._socket), *what, wholes=self.wholes, is_last=is_last)

    def fail(self, end: Callable[[Any, Exception], None], error: Exception) -> None:
        """Have whoever serves the socket get an error."""
        end(self._socket, error)

    def close(self, why: str) -> None:
        """End the session (the reader notices and tells the listener)."""
        if not self.closed:
            self.closed = True
            LOG.info("%s %s (%s): closing, %s", self.hello.role, self.node, self.peer, why)
            shim.shut(self._socket)

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
        self.closed = True
        requests, self.requests = self.requests, {}
        for request in requests.values():
            request.answer(GONE)
        if self._outbox.full():
            self._outbox.get()
        self._outbox.put_nowait(None)


def ping_by(poll: SharedPoll, sessions: Sequence[Session], now_s: float) -> None:
    """Ask sessions for a sign of life, those that are free all at once by the library. When those were pinged, and how
    long it took them to answer, is measured there.
    """
    free = [session for session in sessions if session.is_free]
    others = [session for session in sessions if not session.is_free]
    refused = poll.ping([session._socket for session in free], [next(session._seq) for session in free])
    for session in free:
        session.pinged_s, session._is_given = now_s, True
    for session in [*others, *(free[place] for place in refused)]:
        session.ping()


def _with_latest(sent_s: Mapping[int, float], seq: int, now_s: float) -> dict[int, float]:
    """When each of the four latest was sent, with this one."""
    return {seq: now_s, **dict(list(sent_s.items())[:3])}

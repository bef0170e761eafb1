"""Sockets of switches: large reads, and one green thread that looks at all of them.

A switch is read by a green thread of the framework. To have each of a thousand wait for its socket costs two system
calls and a change of threads for every message. So one green thread looks at all plain sockets. What comes often and
needs no answer it takes by itself: replies to our echoes, and counters of ports. For all else it wakes the framework's.
TLS sockets are waited for by their own green threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from hyroads.controller.core.token_bucket import TokenBucket
from hyroads.controller.framework import ryu_shim as shim
from hyroads.controller.framework.places import Place
from hyroads.controller.ofp import wire

READ_BYTES = 16_384
SMALL_BYTES, BUSY_READS, WINDOW_S, PAUSE_S = 2048, 15, 0.1, 0.004
SOCKETS_AT_ONCE, READS_AT_ONCE = 64, 4
TURN_S, WITHOUT_PAUSE = 0.002, 20
"""Where sockets are ready more often than that, others' turn lasts so long; after a quiet time so many turns do not."""
_OUR_HANDSHAKE = (wire.HELLO, wire.FEATURES_REQUEST)
ECHO_REQUEST, ECHO_REPLY = (wire.message(b"", 0, kind) for kind in (wire.ECHO_REQUEST, wire.ECHO_REPLY))
_COUNTERS = wire.HEADER.size, bytes((0, wire.MULTIPART_PORT_STATS))


class SwitchPoll:
    """Looks at the sockets of :class:`LargeReads`, from the first one on."""

    def __init__(self) -> None:
        self._select = shim.original("select")
        self._epoll = self._select.epoll()
        self._reads: dict[int, LargeReads] = {}
        self._runs = False

    def enter(self, descriptor: int, reads: LargeReads) -> None:
        """Look at a socket from now on; it is told of what is there already, too."""
        if not self._runs:
            self._runs = True
            shim.spawn(self._run)
        self._reads[descriptor] = reads
        # Told once of whatever comes: it may be that nobody can take it yet.
        self._epoll.register(descriptor, self._select.EPOLLIN | self._select.EPOLLRDHUP | self._select.EPOLLET)

    def leave(self, descriptor: int) -> None:
        """No longer, before it is closed."""
        del self._reads[descriptor]
        self._epoll.unregister(descriptor)

    def _run(self) -> None:
        pauses = TokenBucket(1 / TURN_S, WITHOUT_PAUSE)
        while True:
            shim.wait_readable(self._epoll.fileno())
            for descriptor, events in self._epoll.poll(0, SOCKETS_AT_ONCE):
                reads = self._reads.get(descriptor)
                if reads is not None:
                    reads.is_ready(ends=events != self._select.EPOLLIN)
            shim.sleep(pauses.reserve_s(time.monotonic()))


class LargeReads:
    """A socket of which each read gives what is there, up to ``READ_BYTES`` bytes.

    The framework asks for the header of a message, then for its rest, and takes more: so a burst of small messages,
    such as copies of SYNs, does not cost two system calls each.

    To wake up for each costs more than to read it. So after a window with many small reads there is a pause before each
    one, as network interfaces moderate their interrupts: what came meanwhile is read at once.

    ``first`` is read before anything else: the handshake, which is over already. So the framework's own part of it is
    not sent.
    """

    def __init__(
        self,
        connection: Any,
        clock: Callable[[], float],
        place: Place | None = None,
        first: bytes = b"",
        poll: SwitchPoll | None = None,
    ) -> None:
        self._socket = connection
        self.place = place
        self._first = first
        self._unsent = list(_OUR_HANDSHAKE) if first else []
        self._clock = clock
        self._asked_s: float | None = None
        """Since when somebody reads, and nothing comes."""
        self._window_s, self._small = 0.0, 0
        self._is_busy = False
        self.reads = 0
        """How often something has come."""
        self.take: Callable[[bytes], object] | None = None
        """Takes counters of ports without waiting for anything, if there is somebody who does."""
        self._poll, self._receive = poll, shim.receives_now(connection) if poll is not None else None
        self._send, self._is_sending = shim.sends_now(connection), False
        self._entered = -1
        """Its descriptor while the poll looks at it."""
        self._may_have = True
        """Whether something may be there to be read, as far as the poll has said."""
        self._waiting: Any = None
        """Who waits for something."""
        self._is_handed = False
        """Something was read, and whoever waits for it does not have it yet."""
        self._frames = _Frames()

    @property
    def peer(self) -> str:
        """Where it comes from."""
        return "" if self.place is None else self.place.peer

    def has_unread(self) -> bool:
        """Whether something has come, or the end, that nobody has read yet."""
        return self._is_handed or shim.has_unread(self._socket)

    def end(self) -> None:
        """End the connection; whoever serves it wakes up."""
        shim.shut(self._socket)

    def recv(self, size: int) -> bytes:
        """Something, also more than ``size`` bytes; none at the end of the stream."""
        if self._first:
            first, self._first = self._first, b""
            return self._frames.follow(first)
        if self._is_busy:
            shim.sleep(PAUSE_S)
        now_s = self._clock()
        if self._asked_s is None:
            self._asked_s = now_s
        if now_s - self._window_s >= WINDOW_S:
            self._window_s, self._is_busy, self._small = now_s, self._small >= BUSY_READS, 0
        data = self._next(max(size, READ_BYTES))
        self._asked_s = None
        self.reads += bool(data)
        self._small += len(data) < SMALL_BYTES
        return self._frames.follow(data)

    def _next(self, size: int) -> bytes:
        if self._receive is None or self._poll is None:
            data: bytes = self._socket.recv(size)
            return data
        while True:
            if self._may_have:
                try:
                    return self._receive(size)
                except BlockingIOError:
                    self._may_have = False
            if self._entered < 0:
                self._entered = self._socket.fileno()
                self._poll.enter(self._entered, self)
            self._waiting = shim.new_event()
            try:
                found: bytes | None = self._waiting.wait()
            finally:
                self._waiting, self._is_handed = None, False
            if found is not None:
                return found

    def is_ready(self, *, ends: bool) -> None:
        """Something came, or the stream ``ends``. Takes it if it can, or hands it to whoever waits."""
        self._may_have = True
        if self._waiting is None or self._is_handed or self._receive is None:
            return
        try:
            for _ in range(READS_AT_ONCE):
                data = self._receive(READ_BYTES)
                if not self._is_taken(data):
                    self._hand_over(data)
                    return
                if len(data) < READ_BYTES and not ends:
                    # There was no more, or it will be told again.
                    self._may_have = False
                    return
            self._hand_over(None)
        except BlockingIOError:
            self._may_have = False
        except Exception as error:  # noqa: BLE001 - whoever serves the socket gets it
            self._is_handed = True
            self._waiting.send_exception(error)

    def _hand_over(self, data: bytes | None) -> None:
        self._is_handed = True
        self._waiting.send(data)

    def _is_taken(self, data: bytes) -> bool:
        """Takes what consists of whole messages of which nobody has to be told."""
        messages = self._frames.whole(data)
        if not messages or not all(self._is_quick(message) for message in messages):
            return False
        self.reads, self._asked_s = self.reads + 1, self._clock()
        for message in messages:
            if message != ECHO_REPLY and self.take is not None:
                self.take(message)
        return True

    def _is_quick(self, message: bytes) -> bool:
        at, kind = _COUNTERS
        is_counters = message[1] == wire.MULTIPART_REPLY and message[at : at + 2] == kind
        return message == ECHO_REPLY or (is_counters and message[0] == wire.VERSION and self.take is not None)

    def wake(self) -> None:
        """Have whoever waits look whether the connection is to end, as after its timeout."""
        if self._waiting is not None and not self._is_handed:
            self._is_handed = True
            self._waiting.send_exception(TimeoutError())

    def send_now(self, data: bytes) -> bytes:
        """Send whole messages as far as there is room, unless somebody else is sending; what is left."""
        if self._send is None or self._is_sending or self._unsent:
            return data
        try:
            return data[self._send(data) :]
        except OSError:
            # Whoever sends the rest learns what is wrong.
            return data

    def sendall(self, data: bytes) -> None:
        """Send one message of the framework, or a part of some."""
        if self._unsent and data[1] == self._unsent[0]:
            del self._unsent[0]
            return
        self._is_sending = True
        try:
            self._socket.sendall(data)
        finally:
            self._is_sending = False

    def leave(self) -> None:
        """The poll does not look at it any more."""
        if self._entered >= 0 and self._poll is not None:
            self._poll.leave(self._entered)
            self._entered = -1

    def close(self) -> None:
        """Close the socket."""
        self.leave()
        self._socket.close()

    def silence_s(self) -> float:
        """For how long nothing came while somebody read; 0 while what came before is still being worked on."""
        return 0.0 if self._asked_s is None else self._clock() - self._asked_s

    def __getattr__(self, name: str) -> Any:
        """Everything else is the socket's own."""
        return getattr(self._socket, name)


class _Frames:
    """Where messages end in a stream. As the framework has it, none is shorter than its header."""

    def __init__(self) -> None:
        self._begun = b""
        """A part of a header."""
        self._left = 0
        """So many bytes of a message are still to come."""

    def follow(self, data: bytes) -> bytes:
        """What comes next, which is returned."""
        text, at, size = self._begun + data, self._left, wire.HEADER.size
        while at + size <= len(text):
            at += max(size, int.from_bytes(text[at + 2 : at + 4], "big"))
        self._left = max(0, at - len(text))
        self._begun = text[at:]
        return data

    def whole(self, data: bytes) -> list[bytes]:
        """The messages of which it consists, if it comes next; none unless all of them are whole."""
        if self._begun or self._left:
            return []
        messages, at, size = [], 0, wire.HEADER.size
        while at + size <= len(data):
            length = max(size, int.from_bytes(data[at + 2 : at + 4], "big"))
            messages.append(data[at : at + length])
            at += length
        return messages if at == len(data) else []

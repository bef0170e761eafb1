"""Many sockets read by one green thread: a message costs one system call, and no change of threads.

With the compiled library (``native.messages``) a call reads many sockets, and decodes the lines that come often to
numbers, on this same thread. So nothing is handed over between threads: lines, disconnections and what is still unread
in sockets keep their order, and one message costs a few microseconds, less than to wake another thread for it. Where
messages come faster than one each ``PAUSE_S`` there is such a pause after each batch, as network interfaces moderate
their interrupts: what comes meanwhile is read together. That is the most that something urgent waits. Numbers are not
urgent: the library holds the newest of each socket, and where there are many they are taken each ``HOLD_S``, those of
all sockets in one call.

Without the library, and for sockets that are not plain TCP (TLS), Python reads.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from eventlet import event, greenio, patcher

from hyroads.controller.core.token_bucket import TokenBucket
from hyroads.controller.native.messages import CHANGES, END, FAILED, MessageReader, message_reader

from . import ryu_shim as shim

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LOG = logging.getLogger("hyroads.agents")
READ_BYTES = 1 << 16
AT_ONCE = 64
# Others may go first after so much work. More would keep slots waiting; with less, what thousands of devices say grows
# old while others work.
WORK_S = 0.02
# Where it is later than this, and a turn of all others takes longer, reading takes as long as they do, up to so long:
# with less of the time, answers of thousands of devices come too late to let anybody go on.
LATE_S, MOST_WORK_S = 0.4, 0.05
PAUSE_S = 0.002
HOLD_S = 0.02
# So many batches in a row are read at once.
WITHOUT_PAUSE = 20
_select = patcher.original("select")

Take = Callable[[bytes], None]
"""Takes what came in; must not wait for anything. What it raises ends the reading of that socket."""
TakeEvent = Callable[[int, bytes, int], None]
"""Takes what the library has read: kind, line, number. As :data:`Take` otherwise."""
Numbers = tuple[Any, int, bytes, "NDArray[np.float64]"]
"""Whose socket it is, as told when it was served; kind (``CHANGES``, ``WHOLE``), line, numbers."""
TakeNumbers = Callable[[Sequence[Numbers]], None]
"""Takes the newest numbers of many sockets, of each at most one; must not wait, and raise nothing."""


class _Round:
    """Looks at sockets one after the other, again and again: all that came before ``until_s`` was read. Sockets that
    are always ready do not keep a round from its end.
    """

    def __init__(self) -> None:
        self.until_s = self._began_s = time.monotonic()
        self.idle_since_s: float | None = self._began_s
        """Since when it waits for sockets; None while it reads."""
        self._count = 0
        self._worked_s = self._began_s

    def rest(self, wait_s: float) -> None:
        """Others' turn, for so long at least."""
        self._worked_s = time.monotonic()
        shim.sleep(wait_s)

    def wait(self, descriptor: int) -> float:
        """Until a socket is ready; until when to work then."""
        self.idle_since_s = time.monotonic()
        shim.wait_readable(descriptor)
        self.idle_since_s = None
        now_s = time.monotonic()
        others_s = now_s - self._worked_s if now_s > self.until_s + LATE_S else 0.0
        return now_s + min(MOST_WORK_S, max(WORK_S, others_s))

    def read(self, count: int, of: int) -> None:
        """So many sockets were read, of so many that there are; 0: none of them had anything left."""
        now_s = time.monotonic()
        self._count += count
        if not count:
            self.until_s = self._began_s = now_s
            self._count = 0
        elif self._count >= of:
            self.until_s, self._began_s, self._count = self._began_s, now_s, 0


class SharedPoll:
    """Begins with the first socket; the green thread then lives as long as the process. ``longest`` bounds the lines
    that the library reads, ``take_numbers`` takes those which it has decoded; without it Python reads everything.
    """

    def __init__(self, longest: int | None = None, take_numbers: TakeNumbers = lambda told: None) -> None:
        self.library = None if longest is None else message_reader(longest)
        """Reads plain sockets."""
        self._library_reads: dict[int, tuple[TakeEvent, Any, object]] = {}
        self._library_runs = self._is_flush_due = False
        self._take_numbers = take_numbers
        self._rounds = self._library_round, self._round = _Round(), _Round()
        self._looked_s = time.monotonic()
        self._epoll = _select.epoll()
        self._reads: dict[int, tuple[Any, Take, Any]] = {}
        self._runs = False

    def look(self) -> None:
        """To be called again and again by a green thread. Who has waited since the last time had nothing to read then:
        the hub has looked at all sockets since.
        """
        for each in self._rounds:
            if each.idle_since_s is not None and each.idle_since_s <= self._looked_s:
                each.until_s = max(each.until_s, self._looked_s)
        self._looked_s = time.monotonic()

    @property
    def late_s(self) -> float:
        """For so long things may have been waiting to be read: who seems to be silent since may not be."""
        return time.monotonic() - min(each.until_s for each in self._rounds)

    def serve(self, connection: Any, take: Take) -> None:
        """Read until the stream ends; raises what ``take`` raises, and OSError as the socket's. Nobody else may read
        the socket meanwhile.
        """
        if not self._runs:
            self._runs = True
            shim.spawn(self._run)
        ended = event.Event()
        descriptor = connection.fileno()
        # The socket below the green one, which does not block; TLS knows by itself how.
        receive = getattr(connection, "receive_now", None) or connection.fd.recv
        self._reads[descriptor] = (receive, take, ended)
        self._epoll.register(descriptor, _select.EPOLLIN)
        try:
            ended.wait()
        finally:
            self._forget(descriptor)

    def can_read(self, connection: Any) -> bool:
        """Whether the library reads such a socket."""
        return self.library is not None and type(connection) is greenio.GreenSocket

    def serve_by_library(self, connection: Any, data: bytes, take: TakeEvent, owner: object) -> None:
        """As :meth:`serve`; ``data`` was read before, and has no whole line. Numbers are taken as of ``owner``."""
        reader = self.library
        if reader is None:
            raise ValueError("there is no library")
        if not self._library_runs:
            self._library_runs = True
            shim.spawn(self._run_library, reader)
        ended = event.Event()
        descriptor = connection.fileno()
        self._library_reads[descriptor] = (take, ended, owner)
        try:
            reader.add(descriptor, data)
            ended.wait()
        finally:
            self._end_by_library(descriptor)

    def _end_by_library(self, descriptor: int) -> Any:
        found = self._library_reads.pop(descriptor, None)
        if found is None or self.library is None:
            return None
        self.library.remove(descriptor)
        return found[1]

    def holds(self, connection: Any) -> bool:
        """Whether numbers that came over a socket were read, and not taken yet."""
        descriptor = connection.fileno()
        return self.library is not None and descriptor in self._library_reads and self.library.is_holding(descriptor)

    def flush(self) -> None:
        """Have all numbers taken that the library holds."""
        self._is_flush_due = False
        if self.library is None or not self._library_runs:
            return
        try:
            self._take_held((each[0], each[1], each[2], each[4]) for each in self.library.held())
        except Exception:
            # A defect of whoever takes them: others are read all the same.
            LOG.exception("what devices have counted was not taken")

    def _take_held(self, events: Iterable[tuple[int, int, bytes, NDArray[np.float64]]]) -> None:
        reads = self._library_reads
        told = [(reads[fd][2], kind, line, numbers) for fd, kind, line, numbers in events if fd in reads]
        if told:
            self._take_numbers(told)

    def end(self, connection: Any, error: Exception) -> None:
        """Whoever serves a socket by the library gets this."""
        ended = self._end_by_library(connection.fileno())
        if ended is not None:
            ended.send_exception(error)

    def _run_library(self, reader: MessageReader) -> None:
        pauses, flushes = TokenBucket(1 / PAUSE_S, WITHOUT_PAUSE), TokenBucket(1 / HOLD_S, WITHOUT_PAUSE)
        while True:
            until_s = self._library_round.wait(reader.descriptor)
            while True:
                count, events = reader.poll(holds=True)
                self._library_round.read(count, len(self._library_reads))
                for told in events:
                    self._take_event(*told)
                if not count or time.monotonic() > until_s:
                    break
            if not self._is_flush_due:
                wait_s = flushes.reserve_s(time.monotonic())
                if wait_s > 0:
                    self._is_flush_due = True
                    shim.later(wait_s, self.flush)
                else:
                    self.flush()
            self._library_round.rest(pauses.reserve_s(time.monotonic()))

    def _take_event(self, descriptor: int, kind: int, line: bytes, number: int, numbers: NDArray[np.float64]) -> None:
        found = self._library_reads.get(descriptor)
        if found is None:
            return
        try:
            if kind >= CHANGES:
                # Something else came after them over the same socket.
                self._take_held([(descriptor, kind, line, numbers)])
                return
            if kind == FAILED:
                raise OSError(number, os.strerror(number))
            if kind != END:
                found[0](kind, line, number)
                return
        except Exception as error:  # noqa: BLE001 - whoever serves the socket gets it
            self._end_by_library(descriptor).send_exception(error)
            return
        self._end_by_library(descriptor).send(None)

    def _forget(self, descriptor: int) -> None:
        if self._reads.pop(descriptor, None) is not None:
            self._epoll.unregister(descriptor)

    def _run(self) -> None:
        while True:
            until_s = self._round.wait(self._epoll.fileno())
            while True:
                ready = self._epoll.poll(0, AT_ONCE)
                self._round.read(len(ready), len(self._reads))
                for descriptor, _ in ready:
                    self._read(descriptor)
                if not ready or time.monotonic() > until_s:
                    break
            self._round.rest(0)

    def _read(self, descriptor: int) -> None:
        found = self._reads.get(descriptor)
        if found is None:
            return
        receive, take, ended = found
        try:
            data = receive(READ_BYTES)
            if data:
                take(data)
                return
        except BlockingIOError:
            return
        except Exception as error:  # noqa: BLE001 - whoever serves the socket gets it
            self._forget(descriptor)
            ended.send_exception(error)
            return
        self._forget(descriptor)
        ended.send(None)

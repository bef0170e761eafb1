"""Many sockets read by one green thread: a message costs one system call, and no change of threads.

With the compiled library (``native.messages``) a thread of its own reads plain sockets, without the interpreter's lock,
and decodes the lines that come often to numbers: what thousands of devices say is read while something else is at work.
Numbers are not urgent: of each socket the newest are kept, and those of all sockets are taken at once, by
:meth:`SharedPoll.flush` or at the latest each ``HOLD_S`` (``MOST_HOLD_S`` where they are thousands). Everything else
wakes the green thread. Lines, disconnections and what is still unread in sockets keep their order.

Without the library, and for sockets that are not plain TCP (TLS), Python reads.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from eventlet import event, greenio, patcher

from hyroads.controller.core.token_bucket import TokenBucket
from hyroads.controller.native.messages import CHANGES, END, FAILED, PONG, MessageReader, Told, message_reader

from . import ryu_shim as shim

if TYPE_CHECKING:
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
# Where lines come faster than one each so often there is such a pause after each turn; after a quiet time so many turns
# have none.
PAUSE_S = 0.002
WITHOUT_PAUSE = 20
# Numbers are taken so often, but where that takes long for at most such a share of the time.
HOLD_S, MOST_HOLD_S, HOLD_SHARE = 0.02, 0.15, 0.02
_select = patcher.original("select")

Take = Callable[[bytes], None]
"""Takes what came in; must not wait for anything. What it raises ends the reading of that socket."""
TakeEvent = Callable[[int, bytes, int], None]
"""Takes what the library has read: kind, line, number. As :data:`Take` otherwise."""
TakePongs = Callable[["NDArray[np.intp]", "NDArray[np.uint64]"], None]
"""Takes answers to pings, in nanoseconds, with the number of the owner of each; must not wait, and raise nothing."""
TakeNumbers = Callable[["NDArray[np.intp]", Told], None]
"""Takes numbers of many sockets (kinds ``CHANGES`` and ``WHOLE``), with the number of the owner of each; must not wait,
and raise nothing. Two of the same owner follow each other: a whole, and changes since.
"""


class _Owners:
    """Whose the sockets are that the library reads: by their numbers, which grow, the owners'."""

    def __init__(self) -> None:
        self._numbers, self._owners = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.intp)

    def add(self, number: int, owner: int) -> None:
        """Another socket; its number is greater than those before."""
        self._numbers, self._owners = np.append(self._numbers, number), np.append(self._owners, owner)

    def remove(self, number: int) -> None:
        """A socket is not read any more."""
        is_left = self._numbers != number
        self._numbers, self._owners = self._numbers[is_left], self._owners[is_left]

    def of(self, numbers: NDArray[np.int64]) -> NDArray[np.intp]:
        """The owners of some sockets; -1 where there is none."""
        if not len(self._numbers):
            return np.full(len(numbers), -1, dtype=np.intp)
        at = np.minimum(np.searchsorted(self._numbers, numbers), len(self._numbers) - 1)
        return np.where(self._numbers[at] == numbers, self._owners[at], -1)


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
        return self.work_until_s(self.until_s)

    def work_until_s(self, until_s: float) -> float:
        """Until when to work, if all that came before ``until_s`` was read."""
        now_s = time.monotonic()
        others_s = now_s - self._worked_s if now_s > until_s + LATE_S else 0.0
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
    that the library reads, ``take_numbers`` takes those which it has decoded, ``take_pongs`` answers to :meth:`ping`;
    without it Python reads everything. ``wait`` is called before numbers are taken that nobody has asked for.
    """

    def __init__(
        self,
        longest: int | None = None,
        take_numbers: TakeNumbers = lambda _, told: None,
        take_pongs: TakePongs = lambda _, took_ns: None,
        wait: Callable[[], object] = lambda: None,
    ) -> None:
        self.library = None if longest is None else message_reader(longest)
        """Reads plain sockets."""
        self._library_reads: dict[int, tuple[TakeEvent, Any]] = {}
        self._owners = _Owners()
        self._number_of: dict[int, int] = {}
        """By descriptor: its number in the library."""
        self._library_runs = False
        self._flush_at_s = 0.0
        self._take_numbers, self._take_pongs, self._wait = take_numbers, take_pongs, wait
        self._round = _Round()
        self._looked_s = time.monotonic()
        self._epoll = _select.epoll()
        self._reads: dict[int, tuple[Any, Take, Any]] = {}
        self._runs = False

    def look(self) -> None:
        """To be called again and again by a green thread. If Python's reader has waited since the last time, it had
        nothing to read then: the hub has looked at all sockets since.
        """
        each = self._round
        if each.idle_since_s is not None and each.idle_since_s <= self._looked_s:
            each.until_s = max(each.until_s, self._looked_s)
        self._looked_s = time.monotonic()

    @property
    def late_s(self) -> float:
        """For so long things may have been waiting to be read: who seems to be silent since may not be."""
        until_s = self._round.until_s
        if self.library is not None and self._library_runs:
            until_s = min(until_s, self.library.taken_until_s())
        return max(0.0, time.monotonic() - until_s)

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

    def serve_by_library(
        self, connection: Any, data: bytes, take: TakeEvent, owner: int, begun: Callable[[int], None]
    ) -> None:
        """As :meth:`serve`; ``data`` was read before, and has no whole line. Numbers are taken as of ``owner``, which
        is at least 0. ``begun`` is told by which number the library knows the socket.
        """
        reader = self.library
        if reader is None:
            raise OSError("there is no library that reads")
        if not self._library_runs:
            self._library_runs = True
            shim.spawn(self._run_library, reader)
            shim.spawn(self._flush_all_the_time)
        ended = event.Event()
        descriptor = connection.fileno()
        # It reads at once, but nobody takes what it has read before we wait.
        number = self._number_of[descriptor] = reader.add(descriptor, data)
        self._library_reads[number] = (take, ended)
        self._owners.add(number, owner)
        begun(number)
        try:
            ended.wait()
        finally:
            self._end_by_library(number)
            del self._number_of[descriptor]
            reader.remove(number)

    def _end_by_library(self, number: int) -> Any:
        found = self._library_reads.pop(number, None)
        if found is None:
            return None
        self._owners.remove(number)
        return found[1]

    def number_of(self, connection: Any) -> int:
        """What names a socket in the library that reads it; 0 if it does not."""
        return self._number_of.get(connection.fileno(), 0)

    def holds(self, connection: Any) -> bool:
        """Whether something that came over a socket was read, and not taken yet."""
        number = self.number_of(connection)
        return self.library is not None and number in self._library_reads and self.library.is_holding(number)

    def ping(self, numbers: NDArray[np.int64], seqs: NDArray[np.int64]) -> list[int]:
        """Have sockets pinged by the library's thread, which knows them by numbers; the places of those that are not,
        as it does not read them, or could not send their last ping yet. Of the others :meth:`settle` has to be asked
        before anything is sent.
        """
        return list(range(len(numbers))) if self.library is None else self.library.ping(numbers, seqs)

    def settle(self, connection: Any) -> bytes:
        """Have the library send what it still has to; what there was no room for is to be sent before all else."""
        number = self.number_of(connection)
        return self.library.settle(number) if self.library is not None and number else b""

    def flush(self) -> None:
        """Have all numbers taken that the library keeps."""
        began_s = time.monotonic()
        if self.library is not None and self._library_runs:
            self._give_numbers(self.library.held())
            self._give_pongs(self.library.pongs())
        now_s = time.monotonic()
        self._flush_at_s = now_s + min(MOST_HOLD_S, max(HOLD_S, (now_s - began_s) / HOLD_SHARE))

    def _flush_all_the_time(self) -> None:
        while self.library is not None:
            self._wait()
            left_s = self._flush_at_s - time.monotonic()
            if left_s <= 0:
                self.flush()
            shim.sleep(max(left_s, HOLD_S))

    def _give_numbers(self, told: Told) -> None:
        if not len(told):
            return
        owners = self._owners.of(told.events["id"].astype(np.int64))
        is_read = owners >= 0
        if not is_read.all():
            told, owners = told.some(is_read), owners[is_read]
        if not len(told):
            return
        try:
            self._take_numbers(owners, told)
        except Exception:
            # A defect of whoever takes them: others are read all the same.
            LOG.exception("what devices have counted was not taken")

    def _give_pongs(self, told: Told) -> None:
        if len(told):
            owners = self._owners.of(told.events["id"].astype(np.int64))
            is_read = owners >= 0
            self._take_pongs(owners[is_read], told.events["first"][is_read])

    def end(self, connection: Any, error: Exception) -> None:
        """Whoever serves a socket gets this."""
        ended, descriptor = self._end_by_library(self.number_of(connection)), connection.fileno()
        if ended is None and descriptor in self._reads:
            ended = self._reads[descriptor][2]
            self._forget(descriptor)
        if ended is not None:
            ended.send_exception(error)

    def _run_library(self, reader: MessageReader) -> None:
        pauses, turn = TokenBucket(1 / PAUSE_S, WITHOUT_PAUSE), _Round()
        while True:
            shim.wait_readable(reader.descriptor)
            until_s = turn.work_until_s(reader.taken_until_s())
            try:
                while self._take_some(reader) and time.monotonic() < until_s:
                    pass
            except OSError as error:
                LOG.error("%s; Python reads from now on", error)
                self.library = None
                for number in list(self._library_reads):
                    self._end_by_library(number).send_exception(OSError(str(error)))
                return
            turn.rest(pauses.reserve_s(time.monotonic()))

    def _take_some(self, reader: MessageReader) -> bool:
        """What came next; whether there is more."""
        told, is_more = reader.take(AT_ONCE)
        for i, kind in enumerate(told.kinds):
            if kind >= CHANGES:
                # Something else came after them over the same socket.
                self._give_numbers(told.some([i]))
            else:
                self._take_event(told.ids[i], kind, told.line(i), (told.first if kind == PONG else told.count)[i])
        return is_more

    def _take_event(self, number: int, kind: int, line: bytes, value: int) -> None:
        found = self._library_reads.get(number)
        if found is None:
            return
        try:
            if kind == FAILED:
                raise OSError(value, os.strerror(value))
            if kind != END:
                found[0](kind, line, value)
                return
        except Exception as error:  # noqa: BLE001 - whoever serves the socket gets it
            self._end_by_library(number).send_exception(error)
            return
        self._end_by_library(number).send(None)

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

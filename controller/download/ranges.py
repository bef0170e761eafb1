"""Which interface asks for which bytes of which file next. Pure: time is an argument, in seconds; nothing is sent here.

A file is cut into *pieces* as they are asked for. A piece is a quarter of a second of its interface's rate, so that
all interfaces come back for more about as often. Which file an interface serves next is decided by miDRR
(``core/fair/midrr.py``), so that downloads share the interfaces by weight and preference. When all of a file is asked
for, an interface that is free takes over the end of the piece that would be finished last, so that both are finished
at the same time; a remainder too small to be cut is asked for twice, and what comes first counts.

A piece that gets no byte for some time is offered to the other interfaces while its own may still go on; an interface
with such a piece gets no other one until something arrives over it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from hyroads.controller.core.fair.midrr import Scheduler

from .intervals import Intervals

LEAST_BYTES = 64 * 1024
MOST_BYTES = 4 * 1024 * 1024
# What an interface of unknown rate is asked for first.
FIRST_BYTES = 128 * 1024
PIECE_S = 0.25
# The same where bytes are delivered in order.
_STEADY_S = 0.1
# And how far ahead of what was delivered it is asked for.
_AHEAD_S = 0.4
_LEAST_AHEAD_BYTES = 1024 * 1024
# While several downloads want an interface, a turn of the slowest one lasts about this long.
_TURN_S = 0.1
# A remainder below this is not cut but asked for twice, if that gains at least _GAIN_S.
_LEAST_TAIL_BYTES = 16 * 1024
_GAIN_S = 0.02
_ALIGN = 4096
_RATE_WINDOW_S = 1.0
_LEAST_SILENCE_S = 0.5
_LEAST_RATE = 1000.0
_SPARSE_S = 0.05


@dataclass(slots=True, eq=False)
class Piece:
    """Bytes ``[begin, end)`` of a file that an interface was asked for; ``at`` is the next one to come.

    ``end`` may come nearer while the piece is on its way; ``moved_s`` is when it last got a byte, or was asked for.
    ``offered``: it was silent for too long, others may ask for the rest. ``twice``: all of the rest has been asked for
    again. ``over``: nothing of it is wanted any more.
    """

    flow: int
    interface: int
    begin: int
    end: int
    at: int
    asked_s: float
    moved_s: float
    offered: bool = False
    twice: bool = False
    over: bool = False


class _Rate:
    """Bytes per second of an interface while anything is on its way over it, over the last second of such time."""

    def __init__(self) -> None:
        self.active = 0
        self.known = False
        self._busy_s = self._since_s = self._first_s = 0.0
        self._total = 0
        self._arrivals: deque[tuple[float, int]] = deque()

    def advance(self, now_s: float) -> None:
        if self.active:
            self._busy_s += max(0.0, now_s - self._since_s)
        self._since_s = now_s
        while self._arrivals and self._arrivals[0][0] < self._busy_s - _RATE_WINDOW_S:
            self._first_s, count = self._arrivals.popleft()
            self._total -= count

    def received(self, count: int, now_s: float) -> None:
        if not self.active:
            # Bytes of something that is no piece: how long they were on their way is unknown.
            self._busy_s += min(_SPARSE_S, max(0.0, now_s - self._since_s))
        self.advance(now_s)
        self.known = True
        self._total += count
        if self._arrivals and self._busy_s - self._arrivals[-1][0] < 0.01:
            since_s, before = self._arrivals.pop()
            self._arrivals.append((since_s, before + count))
        else:
            self._arrivals.append((self._busy_s, count))

    def bytes_per_s(self, now_s: float) -> float:
        self.advance(now_s)
        return self._total / max(0.05, min(_RATE_WINDOW_S, self._busy_s - self._first_s))


@dataclass(slots=True)
class _Flow:
    length: int
    weight: float
    accepts: tuple[int, ...]
    window: int | None
    done: Intervals
    # Done, or on its way in a piece that is not offered.
    taken: Intervals
    delivered: int = 0
    ahead: int = 0
    waits: bool = False

    @property
    def reach(self) -> int:
        """Where the bytes end that may be asked for by now."""
        return self.length if self.window is None else min(self.length, self.delivered + self.ahead)


class RangeScheduler:
    """Downloads (*flows*) over at most ``interfaces`` interfaces; both are numbers from 0 on."""

    def __init__(self, interfaces: int) -> None:
        self._scheduler = Scheduler([], [], interfaces)
        self._flows: dict[int, _Flow] = {}
        self._numbers = 0
        self._rates = [_Rate() for _ in range(interfaces)]
        self._latency_s = [0.0] * interfaces
        self._suspect = [False] * interfaces
        self.pieces: list[Piece] = []
        """What is on its way."""

    def add_flow(
        self,
        length: int,
        weight: float,
        accepts: Iterable[int],
        done: Iterable[tuple[int, int]] = (),
        window: int | None = None,
    ) -> int:
        """A download of ``length`` bytes, of which ``done`` are there; its number. At most ``window`` bytes beyond what
        :meth:`delivered` told are asked for, so that they fit into memory.
        """
        number = next((n for n in range(self._numbers) if n not in self._flows), self._numbers)
        self._numbers = max(self._numbers, number + 1)
        flow = _Flow(length, weight, tuple(sorted(accepts)), window, Intervals(done), Intervals(done))
        flow.ahead = min(window or 0, _LEAST_AHEAD_BYTES)
        self._flows[number] = flow
        self._scheduler.put_flow(number, weight, flow.accepts, LEAST_BYTES)
        self._refresh(number)
        return number

    def remove_flow(self, number: int) -> list[Piece]:
        """A download has ended; its pieces that are still on their way."""
        left = [piece for piece in self.pieces if piece.flow == number]
        for piece in left:
            self._drop(piece)
        flow = self._flows.pop(number)
        if flow.waits:
            self._scheduler.emptied(number)
        return left

    def delivered(self, number: int, offset: int, now_s: float) -> None:
        """All bytes before ``offset`` have left memory."""
        flow = self._flows[number]
        flow.delivered = offset
        if flow.window is not None:
            # More would wait for one slow piece, and then arrive all at once.
            known = [each for k in flow.accepts if (each := self.bytes_per_s(k, now_s)) is not None]
            flow.ahead = int(min(flow.window, max(_LEAST_AHEAD_BYTES, _AHEAD_S * sum(known))))
        self._refresh(number)

    def done(self, number: int) -> Intervals:
        """The bytes of a download that are there."""
        return self._flows[number].done

    def complete(self, number: int) -> bool:
        """Whether all bytes of a download are there."""
        flow = self._flows[number]
        return flow.done.covered_to(0) >= flow.length

    def accepts(self, number: int, interface: int) -> bool:
        """Whether a download may use an interface."""
        return interface in self._flows[number].accepts

    def wants(self, number: int) -> bool:
        """Whether bytes of a download are on their way, or could be asked for."""
        return self._flows[number].waits or any(piece.flow == number for piece in self.pieces)

    @property
    def busy(self) -> bool:
        """Whether there is any download."""
        return bool(self._flows)

    def active(self, interface: int) -> int:
        """How many pieces are on their way over an interface."""
        return self._rates[interface].active

    def bytes_per_s(self, interface: int, now_s: float) -> float | None:
        """The rate of an interface while it is used; None if nothing ever arrived over it."""
        rate = self._rates[interface]
        return rate.bytes_per_s(now_s) if rate.known else None

    def ask(self, interface: int, now_s: float) -> Piece | None:
        """What an interface with a free connection asks for now; None if there is nothing for it."""
        if self._suspect[interface]:
            return None
        sizes = self._sizes(interface, now_s)
        number = self._scheduler.next_flow(interface, sizes)
        if number is None:
            return self._take_over(interface, now_s)
        flow = self._flows[number]
        gap = flow.taken.first_gap(0, flow.reach)
        if gap is None:
            # A flow without a gap has no turn.
            return None
        end = min(gap[1], gap[0] + sizes[number])
        # No remainder that is not worth a request of its own.
        end = gap[1] if gap[1] - end < _LEAST_TAIL_BYTES else end
        return self._begin(number, interface, gap[0], end, now_s)

    def adopt(self, number: int, interface: int, end: int, now_s: float) -> Piece:
        """The bytes up to ``end`` are already on their way over an interface, from 0 on."""
        return self._begin(number, interface, 0, end, now_s)

    def received(self, piece: Piece, count: int, now_s: float) -> bool:
        """``count`` more bytes of a piece are there; whether more of it is wanted."""
        flow = self._flows.get(piece.flow)
        self.used(piece.interface, count, now_s)
        if flow is None or piece.over:
            return False
        if piece.at == piece.begin and piece.asked_s < now_s:
            self._latency_s[piece.interface] = now_s - piece.asked_s
        flow.done.add(piece.at, piece.at + count)
        flow.taken.add(piece.at, piece.at + count)
        piece.at += count
        piece.moved_s = now_s
        if piece.offered and piece.at < piece.end:
            piece.offered = False
            flow.taken.add(piece.at, piece.end)
            self._refresh(piece.flow)
        if flow.done.covered_to(piece.at) >= piece.end:
            for other in self.pieces:
                if other.flow == piece.flow and flow.done.covered_to(other.at) >= other.end:
                    other.over = True
            self._drop(piece)
            return False
        return True

    def used(self, interface: int, count: int, now_s: float) -> None:
        """``count`` bytes arrived over an interface, in a piece or in anything else."""
        self._rates[interface].received(count, now_s)
        self._suspect[interface] = False

    def give_back(self, piece: Piece) -> None:
        """A piece will get no more bytes: what is missing is anybody's."""
        self._drop(piece)
        self._rebuild(piece.flow)

    def answered(self, interface: int) -> None:
        """An interface that was silent has answered."""
        self._suspect[interface] = False

    def suspect(self, interface: int) -> bool:
        """Whether an interface was silent and has not answered since."""
        return self._suspect[interface]

    def silence_s(self, interface: int) -> float:
        """How long a piece may get no byte before others are asked: twice the usual time until the first one."""
        return max(_LEAST_SILENCE_S, 2 * self._latency_s[interface])

    def offer_silent(self, now_s: float) -> bool:
        """Offer the rest of all silent pieces to other interfaces; whether there were any."""
        silent = [
            piece
            for piece in self.pieces
            if not piece.offered and now_s - piece.moved_s > self.silence_s(piece.interface)
        ]
        for piece in silent:
            piece.offered = True
            # Another connection over the same interface that goes on means that the server is slow, not the interface.
            moved_s = max(other.moved_s for other in self.pieces if other.interface == piece.interface)
            self._suspect[piece.interface] = now_s - moved_s > self.silence_s(piece.interface)
            self._rebuild(piece.flow)
        return bool(silent)

    def _sizes(self, interface: int, now_s: float) -> list[int]:
        """What each flow would ask for over an interface now, bytes."""
        waiting = [number for number, flow in self._flows.items() if flow.waits and interface in flow.accepts]
        rate = self.bytes_per_s(interface, now_s)
        size = FIRST_BYTES if rate is None else _clamped(rate * PIECE_S)
        sizes = [size] * self._numbers
        for number, flow in self._flows.items():
            if flow.window is not None:
                # What arrives has to wait for all that is before it, so short pieces make a steady flow; and a window
                # holds what all interfaces have on their way.
                steady = _clamped(max(_STEADY_S, 2 * self._latency_s[interface]) * (rate or 0.0))
                sizes[number] = max(LEAST_BYTES, min(size, steady, flow.window // (4 * len(flow.accepts))))
        if len(waiting) > 1:
            known = [each for k in range(len(self._rates)) if (each := self.bytes_per_s(k, now_s)) is not None]
            self._scheduler.set_packet_bytes(_clamped(_TURN_S * min(known, default=0.0)))
            # Two pieces of this size cover the time until a new one begins to arrive.
            least = 2 * self._latency_s[interface] * (rate or 0.0)
            for number in waiting:
                sizes[number] = int(min(sizes[number], max(least, self._scheduler.quantum_bytes(number))))
        lefts = [piece.end - piece.at for piece in self.pieces if piece.interface == interface]
        apart = int(2 * self._latency_s[interface] * (rate or 0.0))
        return [_apart_from(size, lefts, apart) for size in sizes]

    def _begin(self, number: int, interface: int, begin: int, end: int, now_s: float) -> Piece:
        piece = Piece(number, interface, begin, end, begin, now_s, now_s)
        self._rates[interface].advance(now_s)
        self._rates[interface].active += 1
        self.pieces.append(piece)
        self._charge(number, interface, begin, end)
        return piece

    def _charge(self, number: int, interface: int, begin: int, end: int) -> None:
        """Bytes are on their way: they are nobody else's, and count as served by the interface."""
        flow = self._flows[number]
        flow.taken.add(begin, end)
        if flow.waits:
            flow.waits = flow.taken.first_gap(0, flow.reach) is not None
            self._scheduler.sent(interface, number, end - begin, waits=flow.waits)

    def _drop(self, piece: Piece) -> None:
        piece.over = True
        if piece in self.pieces:
            self.pieces.remove(piece)
            self._rates[piece.interface].active -= 1

    def _rebuild(self, number: int) -> None:
        """Afresh what is done or on its way; pieces may overlap, so that it can't be subtracted."""
        flow = self._flows.get(number)
        if flow is None:
            return
        flow.taken = Intervals(flow.done)
        for piece in self.pieces:
            if piece.flow == number and not piece.offered:
                flow.taken.add(piece.at, piece.end)
        self._refresh(number)

    def _refresh(self, number: int) -> None:
        """Whether a flow has bytes to ask for, as miDRR must know."""
        flow = self._flows[number]
        waits = flow.taken.first_gap(0, flow.reach) is not None
        if waits != flow.waits:
            flow.waits = waits
            (self._scheduler.arrived if waits else self._scheduler.emptied)(number)

    def _take_over(self, interface: int, now_s: float) -> Piece | None:
        """The end of the piece that would be finished last, or all of its rest once again; None if that gains nothing.

        The cut is where both would be finished at the same time.
        """
        late, late_s = None, 0.0
        for piece in self.pieces:
            usable = interface in self._flows[piece.flow].accepts and piece.interface != interface
            if usable and not piece.twice and not piece.over:
                left_s = (piece.end - piece.at) / self._piece_rate(piece, now_s)
                late, late_s = (piece, left_s) if left_s > late_s else (late, late_s)
        if late is None:
            return None
        theirs = self._piece_rate(late, now_s)
        own = self._rates[interface].bytes_per_s(now_s) / (self._rates[interface].active + 1)
        own = own if self._rates[interface].known and own > 0 else theirs
        spare_s = late_s - self._latency_s[interface]
        tail = math.ceil(spare_s * own * theirs / (own + theirs) / _ALIGN) * _ALIGN
        left = late.end - late.at
        if spare_s > _GAIN_S and _LEAST_TAIL_BYTES <= tail < left:
            late.end -= tail
            return self._begin(late.flow, interface, late.end, late.end + tail, now_s)
        if spare_s - left / own > _GAIN_S:
            late.twice = True
            again = self._begin(late.flow, interface, late.at, late.end, now_s)
            again.twice = True
            return again
        return None

    def _piece_rate(self, piece: Piece, now_s: float) -> float:
        rate = self._rates[piece.interface]
        return max(_LEAST_RATE, rate.bytes_per_s(now_s) / max(1, rate.active))


def _apart_from(size: int, lefts: list[int], apart: int) -> int:
    """A size that does not end together with one of the others over the same interface, which share its rate: both
    connections would wait for an answer together, and nothing would arrive meanwhile.
    """
    if not apart and lefts:
        return size // 2
    near = [left for left in lefts if abs(size - left) < apart]
    return min(MOST_BYTES, max(near) + apart) if near else size


def _clamped(size: float) -> int:
    return int(min(MOST_BYTES, max(LEAST_BYTES, size))) // _ALIGN * _ALIGN

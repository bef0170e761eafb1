"""A slotted simulation of queues on shared media: what multipaths deliver with and without congestion control.

Time is divided into slots. In each slot a set of links sends: a random maximal one among the links that have packets,
no two of which interfere. Nothing collides, and no time is lost to back-off: every node senses all transmissions that
could disturb its own. The set is drawn as carrier sensing would draw it: links try in a random order, and each one
sends unless an earlier one disturbs it. This is the model of the simulations of EMPoWER (CoNEXT 2016, section 5) and of
S. Henri's thesis (EPFL 9056, 2018, section 3.4).

Packets have 1500 bytes. Each path has a queue of its own at each of its links, without a limit. A link that sends
serves its queues in turn, one in a slot; what a slot carries is c_l times its length, and the rest of a packet that it
does not carry follows in the queue's next turn. Where a slot ends with less than a packet's time to spare, that time
counts for the next packet: a packet costs the airtime that it takes, as if the medium were free as soon as it is sent.
A packet that arrives in a slot is sent on in a later one. By default a slot lasts as long as a packet on the fastest of
the links, so that no link sends more than one packet in it.

*Without congestion control* the sources send as fast as their first links allow: those always have packets. *With
control* packets of each path arrive at its rate. Rates that leave some airtime in every domain, B diag(d) R x < 1, keep
the queues finite (Chaporkar, Kar, Luo and Sarkar, "Throughput and fairness guarantees through maximal scheduling in
wireless networks", IEEE Trans. Information Theory 54(2), 2008).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hyroads.controller.core.interface_graph import FloatArray, Path
from hyroads.controller.core.network import Network

from .framework import StudyError

PACKET_MB = 1500 * 8 / 1e6
"""Size of a packet in megabits."""

SLOTS = 10_000
_WARM_UP = 0.2
# Slots whose random numbers are drawn at once.
_BLOCK = 2000
# Packets of a source that always has some.
_ENDLESS = 1 << 62
_ALWAYS = 1 << 61
# Sums of shares of a packet that are whole but for their rounding.
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class SlotRun:
    """What happened in a number of slots of ``slot_s`` seconds.

    ``queued`` has the packets in all queues of the network after each slot, int64[slots]; without control those of the
    first links, which never end, are left out. ``delivered`` has the packets that each path has delivered since the
    start after each slot, int64[slots, P]. ``hops`` has for each path what waits at each of its links at the end.
    """

    slot_s: float
    queued: NDArray[np.int64]
    delivered: NDArray[np.int64]
    hops: tuple[tuple[int, ...], ...]

    def path_mbps(self, since: int = 0) -> FloatArray:
        """Mean rate that each path delivered after slot number ``since``, float64[P] in Mb/s."""
        slots = len(self.delivered) - since
        if slots <= 0:
            raise StudyError(f"no slot after {since}: there are {len(self.delivered)}")
        before = self.delivered[since - 1] if since else np.zeros(self.delivered.shape[1], dtype=np.int64)
        return np.asarray((self.delivered[-1] - before) * (PACKET_MB / (slots * self.slot_s)), dtype=np.float64)


def without_control_mbps(
    network: Network, paths: Sequence[Path], rng: np.random.Generator, slots: int = SLOTS
) -> FloatArray:
    """What paths (link indices, of one flow or of several) deliver without congestion control, float64[P] in Mb/s.

    It is the mean over ``slots`` slots but the first fifth, in which queues fill.
    """
    return simulate(network, paths, slots, rng).path_mbps(since=int(slots * _WARM_UP))


def default_slot_s(network: Network, paths: Sequence[Path]) -> float:
    """Time in seconds that a packet takes on the fastest link of some paths."""
    return PACKET_MB / max((network.links[link].capacity_mbps for path in paths for link in path), default=PACKET_MB)


def simulate(
    network: Network,
    paths: Sequence[Path],
    slots: int,
    rng: np.random.Generator,
    rates_mbps: FloatArray | None = None,
    *,
    slot_s: float | None = None,
) -> SlotRun:
    """Simulate ``slots`` slots of ``slot_s`` seconds (default: :func:`default_slot_s`) from empty queues.

    ``paths`` has the link indices of all paths of all flows. ``rates_mbps`` has the rate at which each is given
    packets, float64[P], or float64[slots, P] if it changes; None means without control. Raises ``StudyError`` for a
    path that is empty or has a link of capacity 0, and for rates of another shape.
    """
    queues = _Queues(network, paths)
    length_s = default_slot_s(network, paths) if slot_s is None else slot_s
    if slots < 1 or not length_s > 0:
        raise StudyError(f"{slots} slots of {length_s:g} s: expected at least one, of more than 0 s")
    arrivals = None if rates_mbps is None else _arrivals(rates_mbps, slots, len(paths), length_s)
    carried = [network.links[link].capacity_mbps * (length_s / PACKET_MB) for link in queues.links]
    return _run(
        queues,
        _Slots(queues, carried, arrivals is None),
        _orders(len(queues.links), slots, rng),
        arrivals,
        slot_s=length_s,
    )


class _Queues:
    """The queues of some paths: one per path and hop, numbered along the paths, and the links that they wait for."""

    def __init__(self, network: Network, paths: Sequence[Path]) -> None:
        for number, path in enumerate(paths):
            if not path or not all(network.links[link].capacity_mbps > 0 for link in path):
                raise StudyError(f"path {number} has no link, or one of capacity 0")
        self.links = sorted({link for path in paths for link in path})
        position = {link: i for i, link in enumerate(self.links)}
        # Bit m of conflicts[l]: the links l and m (by position) can't send at the same time; l itself included.
        self.conflicts = [
            sum(
                1 << m
                for m, other in enumerate(self.links)
                if mine == other or network.interference.contends(mine, other)
            )
            for mine in self.links
        ]
        self.first: list[int] = []
        self.link_of: list[int] = []
        self.next: list[int] = []
        self.path_of: list[int] = []
        for number, path in enumerate(paths):
            self.first.append(len(self.link_of))
            self.link_of += [position[link] for link in path]
            self.path_of += [number] * len(path)
            self.next += [*range(self.first[-1] + 1, len(self.link_of)), -1]
        self.at: list[list[int]] = [[] for _ in self.links]
        for queue, link in enumerate(self.link_of):
            self.at[link].append(queue)


def _arrivals(rates_mbps: FloatArray, slots: int, paths: int, slot_s: float) -> list[list[int]]:
    """Whole packets that each path is given in each slot: of its rate, evenly in time."""
    if rates_mbps.shape not in ((paths,), (slots, paths)):
        raise StudyError(f"rates of shape {rates_mbps.shape}: expected ({paths},) or ({slots}, {paths})")
    if not (np.isfinite(rates_mbps).all() and (rates_mbps >= 0).all()):
        raise StudyError("rates must be finite and not below 0 Mb/s")
    total = np.cumsum(np.broadcast_to(rates_mbps, (slots, paths)) * (slot_s / PACKET_MB), axis=0)
    whole = np.floor(total + _ROUNDING).astype(np.int64)
    arrived: list[list[int]] = np.diff(whole, axis=0, prepend=np.zeros((1, paths), dtype=np.int64)).tolist()
    return arrived


def _orders(links: int, slots: int, rng: np.random.Generator) -> Iterator[list[int]]:
    """The order in which links try to send, slot by slot."""
    for start in range(0, slots, _BLOCK):
        yield from np.argsort(rng.random((min(_BLOCK, slots - start), links)), axis=1).tolist()


class _Slots:
    """The state of a simulation between two slots.

    It consists of plain integers and bit masks: an array operation costs more than a whole slot of a small network.
    """

    def __init__(self, queues: _Queues, carried: Sequence[float], endless: bool) -> None:
        self._queues, self._carried = queues, carried
        self.waiting = [0] * len(queues.link_of)
        # What has been sent of the packet in front, or is to the credit of the next one, as a share of it.
        self._begun = [0.0] * len(queues.link_of)
        self._turn = [0] * len(queues.links)
        # Bit l: link l (by position) has packets.
        self._backlogged = 0
        self.delivered = [0] * len(queues.first)
        self.queued = 0
        if endless:
            self.arrive([_ENDLESS] * len(queues.first))
            self.queued = 0

    def arrive(self, packets: Sequence[int]) -> None:
        """Packets of each path come to its first link."""
        for queue, count in zip(self._queues.first, packets, strict=True):
            if count:
                self.waiting[queue] += count
                self.queued += count
                self._backlogged |= 1 << self._queues.link_of[queue]

    def send(self, order: Sequence[int]) -> None:
        """One slot, in which links try to send in this order."""
        conflicts, sent, free = self._queues.conflicts, [], self._backlogged
        for link in order:
            if free >> link & 1:
                free &= ~conflicts[link]
                queue = self._turn_of(link)
                share = self._begun[queue] + self._carried[link]
                whole = int(share + _ROUNDING)
                self._begun[queue] = max(0.0, share - whole)
                whole = min(whole, self.waiting[queue])
                if whole:
                    sent.append((queue, whole))
                if not free:
                    break
        # What arrives goes on in a later slot.
        for queue, whole in sent:
            self._move(queue, whole)

    def _turn_of(self, link: int) -> int:
        """The next of the queues of a link that has packets, in turn."""
        queues = self._queues.at[link]
        if len(queues) == 1:
            return queues[0]
        at = self._turn[link]
        while not self.waiting[queues[at]]:
            at = (at + 1) % len(queues)
        self._turn[link] = (at + 1) % len(queues)
        return queues[at]

    def _move(self, queue: int, packets: int) -> None:
        queues, waiting = self._queues, self.waiting
        waiting[queue] -= packets
        if waiting[queue] < _ALWAYS:
            self.queued -= packets
            link = queues.link_of[queue]
            if not any(map(waiting.__getitem__, queues.at[link])):
                self._backlogged &= ~(1 << link)
        onward = queues.next[queue]
        if onward < 0:
            self.delivered[queues.path_of[queue]] += packets
        else:
            waiting[onward] += packets
            self.queued += packets
            self._backlogged |= 1 << queues.link_of[onward]


def _run(
    queues: _Queues,
    state: _Slots,
    orders: Iterator[list[int]],
    arrivals: list[list[int]] | None,
    *,
    slot_s: float,
) -> SlotRun:
    queued, delivered = [], []
    for slot, order in enumerate(orders):
        if arrivals is not None:
            state.arrive(arrivals[slot])
        state.send(order)
        queued.append(state.queued)
        delivered.append(tuple(state.delivered))
    ends = [*queues.first[1:], len(state.waiting)]
    hops = [state.waiting[start:end] for start, end in zip(queues.first, ends, strict=True)]
    if arrivals is None:
        hops = [[0, *waiting[1:]] for waiting in hops]
    paths = len(queues.first)
    return SlotRun(
        slot_s,
        np.array(queued, dtype=np.int64),
        np.array(delivered, dtype=np.int64).reshape(len(queued), paths),
        tuple(tuple(waiting) for waiting in hops),
    )

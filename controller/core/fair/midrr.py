"""miDRR: deficit round robin over several interfaces, packet by packet, for flows that accept some of them only.

Each interface serves the flows that accept it in turn, each for a quantum in proportion to its weight. What one
interface served a flow another must know, or a flow that accepts both gets two turns a round. So whoever serves flow i
adds one to the *count* of (i, j) at every other interface j that i accepts; and when j comes to i while its count is
above 0, j takes one off and goes on to the next flow. No rates are exchanged, and none need be known
(Yap, Stanford 2013, chapter 4).

As published the count is one bit, set or not. Two services of others between two turns then count as one, and the flow
keeps a turn too many: with 6 and 10 Mb/s and flows a{1} b{1,2} c{2} the rates are 4, 6, 6 instead of 5.33 each,
against the published proof. A counter that saturates at ``MOST_SERVICES`` stays within 1 % of the fair rates, but only
with a deficit for each flow *and interface*: with the published one for each flow a slow interface begins a turn whose
quantum a fast one spends, and the counts tell of turns that were none (up to a quarter off).
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from .maxmin import FairnessError, Shares

MOST_SERVICES = 8
"""Where the count of others' services saturates; 1 is the published variant."""
PACKET_BYTES = 1500
# A flow whose source sends at its demand never queues more than it sends in this time, and two packets.
_QUEUE_S = 0.1
# A simulation of more packets takes minutes.
_MOST_PACKETS = 20_000_000


class Scheduler:
    """The decisions of miDRR. Flows and interfaces are numbers from 0 on; sizes are bytes.

    ``accepts[flow]`` are the interfaces that a flow may use, ``weights[flow]`` its weight. Whoever holds the queues
    says with ``arrived`` when a flow's queue is no longer empty, asks with ``next_flow`` whose packet an interface
    sends now, and tells with ``sent`` what was taken.
    """

    def __init__(
        self,
        weights: Sequence[float],
        accepts: Sequence[Sequence[int]],
        interfaces: int,
        *,
        most_services: int = MOST_SERVICES,
        packet_bytes: int = PACKET_BYTES,
        one_deficit: bool = False,
    ) -> None:
        self._weights = list(weights)
        self._quantum: list[float] = []
        self.set_packet_bytes(packet_bytes)
        self._accepts = [tuple(some) for some in accepts]
        self._most = most_services
        # Per interface: what is left of a flow's quantum there, backlogged flows in the order of their turns, the flow
        # whose turn it is now, if any, and how many turns elsewhere it has not yet passed over.
        self._deficit = [[0.0] * len(weights)] * interfaces
        if not one_deficit:
            self._deficit = [[0.0] * len(weights) for _ in range(interfaces)]
        self._turns: list[deque[int]] = [deque() for _ in range(interfaces)]
        self._serving: list[int | None] = [None] * interfaces
        self._services = [[0] * len(weights) for _ in range(interfaces)]
        self._backlogged = [False] * len(weights)

    def set_packet_bytes(self, packet_bytes: int) -> None:
        """From now on the flow of least weight may send ``packet_bytes`` in a turn, the others more in proportion."""
        least = min(self._weights, default=1.0)
        self._quantum = [weight / least * packet_bytes for weight in self._weights]

    def put_flow(self, flow: int, weight: float, accepts: Sequence[int], packet_bytes: int) -> None:
        """Flow number ``flow``, the next free one or one that has nothing queued, is from now on another flow."""
        if flow == len(self._weights):
            self._weights.append(weight)
            self._accepts.append(())
            self._backlogged.append(False)
            for deficit, services in zip(self._deficit, self._services, strict=True):
                services.append(0)
                if len(deficit) == flow:  # interfaces may share one deficit for each flow
                    deficit.append(0.0)
        self._weights[flow] = weight
        self._accepts[flow] = tuple(accepts)
        self.set_packet_bytes(packet_bytes)

    def quantum_bytes(self, flow: int) -> float:
        """What a flow may send in a turn."""
        return self._quantum[flow]

    def arrived(self, flow: int) -> None:
        """The queue of a flow is no longer empty. Its turn comes after those of the others."""
        self._backlogged[flow] = True
        for interface in self._accepts[flow]:
            self._turns[interface].append(flow)

    def next_flow(self, interface: int, size_bytes: Sequence[int]) -> int | None:
        """The flow whose next packet an interface sends; None if no flow that accepts it waits.

        ``size_bytes[flow]`` is the size of the first packet in a flow's queue.
        """
        turns, services, deficit = self._turns[interface], self._services[interface], self._deficit[interface]
        flow = self._serving[interface]
        if flow is not None:
            if deficit[flow] >= size_bytes[flow]:
                return flow
            turns.append(flow)
            self._serving[interface] = None
        while turns:
            flow = turns.popleft()
            if services[flow]:
                services[flow] -= 1
            else:
                deficit[flow] += self._quantum[flow]
                self._count_service(interface, flow)
                if deficit[flow] >= size_bytes[flow]:
                    self._serving[interface] = flow
                    return flow
            turns.append(flow)
        return None

    def _count_service(self, interface: int, flow: int) -> None:
        for other in self._accepts[flow]:
            if other != interface and self._services[other][flow] < self._most:
                self._services[other][flow] += 1

    def sent(self, interface: int, flow: int, size_bytes: int, *, waits: bool) -> None:
        """An interface took a packet from a flow's queue; ``waits`` says whether another is there."""
        self._deficit[interface][flow] -= size_bytes
        if not waits:
            self.emptied(flow)

    def emptied(self, flow: int) -> None:
        """The queue of a flow is empty: as in plain deficit round robin it loses its credit and its turns."""
        if not self._backlogged[flow]:
            return
        self._backlogged[flow] = False
        for interface in self._accepts[flow]:
            self._deficit[interface][flow] = 0.0
            self._services[interface][flow] = 0
            if self._serving[interface] == flow:
                self._serving[interface] = None
            else:
                self._turns[interface].remove(flow)


@dataclass(frozen=True, slots=True)
class Setting:
    """How packets are scheduled: where the count of others' services saturates (1: as published; 0: each interface on
    its own, plain deficit round robin), how long packets are, and whether all interfaces share a flow's deficit (as
    published).
    """

    most_services: int = MOST_SERVICES
    packet_bytes: int = PACKET_BYTES
    one_deficit: bool = False


AS_PUBLISHED = Setting(most_services=1, one_deficit=True)
"""miDRR with one bit for each flow and interface, and one deficit for each flow."""


def simulate(shares: Shares, duration_s: float, setting: Setting = Setting()) -> dict[str, float]:
    """The rates, Mb/s, that flows reach in ``duration_s`` seconds, packet by packet: flows with a demand send at it,
    evenly, the others always have packets.

    Raises :class:`FairnessError` if that is no time, or more packets than a simulation can bear.
    """
    return {name: rates[0] for name, rates in course(shares, duration_s, duration_s, {}, setting).items()}


def course(
    shares: Shares,
    duration_s: float,
    bin_s: float,
    active_s: Mapping[str, tuple[float, float]],
    setting: Setting = Setting(),
) -> dict[str, list[float]]:
    """Rates of flows that come and go, Mb/s, in each ``bin_s`` seconds of ``duration_s``.

    ``active_s[name]`` is when a flow begins and ends; the others are there from the beginning to the end. Packets are
    simulated as in :func:`simulate`, with the same errors.
    """
    if not (math.isfinite(duration_s) and duration_s > 0):
        raise FairnessError(f"expected a time above 0 s, got {duration_s:g}")
    packets = sum(shares.capacity_mbps.values()) * 1e6 * duration_s / (8 * setting.packet_bytes)
    if packets > _MOST_PACKETS:
        raise FairnessError(
            f"{duration_s:g} s are {packets:.2g} packets, expected at most {_MOST_PACKETS:.2g}: simulate a shorter time"
        )
    return _Simulation(shares, duration_s, bin_s, active_s, setting).rates_mbps()


class _Simulation:
    """Interfaces that are free again and flows that begin, send and end, in order of time."""

    def __init__(
        self,
        shares: Shares,
        duration_s: float,
        bin_s: float,
        active_s: Mapping[str, tuple[float, float]],
        setting: Setting,
    ) -> None:
        number = {name: k for k, name in enumerate(shares.capacity_mbps)}
        flows = list(shares.flows.values())
        self._names = list(shares.flows)
        self._accepts = [sorted(number[name] for name in flow.interfaces) for flow in flows]
        self._scheduler = Scheduler(
            [flow.weight for flow in flows],
            self._accepts,
            len(number),
            most_services=setting.most_services,
            packet_bytes=setting.packet_bytes,
            one_deficit=setting.one_deficit,
        )
        self._bytes, self._duration_s, self._bin_s = setting.packet_bytes, duration_s, bin_s
        packet_mbit = setting.packet_bytes * 8e-6
        self._sending_s = [packet_mbit / mbps if mbps > 0 else math.inf for mbps in shares.capacity_mbps.values()]
        self._interval_s = [_interval_s(flow.demand_mbps, packet_mbit) for flow in flows]
        self._room = [2 + int(_QUEUE_S / each) if each else 2 for each in self._interval_s]
        self._queued = [0] * len(flows)
        self._sizes = [setting.packet_bytes] * len(flows)
        self._sent = [[0] * math.ceil(duration_s / bin_s - 1e-9) for _ in flows]
        self._idle = {k for k, sending_s in enumerate(self._sending_s) if math.isfinite(sending_s)}
        # (when, order, what, whose): equal times in the order in which they were entered.
        self._events: list[tuple[float, int, Callable[[float, int], None], int]] = []
        self._order = itertools.count()
        for flow, name in enumerate(self._names):
            begin_s, end_s = active_s.get(name, (0.0, math.inf))
            if math.isfinite(self._interval_s[flow]):
                self._enter(begin_s, self._arrive, flow)
                self._enter(end_s, self._end, flow)

    def rates_mbps(self) -> dict[str, list[float]]:
        while self._events and self._events[0][0] < self._duration_s:
            now_s, _, act, number = heapq.heappop(self._events)
            act(now_s, number)
        unit = self._bytes * 8e-6 / self._bin_s
        return {name: [packets * unit for packets in self._sent[flow]] for flow, name in enumerate(self._names)}

    def _enter(self, when_s: float, act: Callable[[float, int], None], number: int) -> None:
        heapq.heappush(self._events, (when_s, next(self._order), act, number))

    def _arrive(self, now_s: float, flow: int) -> None:
        """A packet of a flow arrives; a flow without a demand always has another."""
        if self._queued[flow] == 0:
            self._scheduler.arrived(flow)
        self._queued[flow] = min(self._queued[flow] + 1, self._room[flow])
        if self._interval_s[flow] > 0:
            self._enter(now_s + self._interval_s[flow], self._arrive, flow)
        for interface in self._accepts[flow]:
            if interface in self._idle:
                self._idle.remove(interface)
                self._enter(now_s, self._send, interface)

    def _end(self, now_s: float, flow: int) -> None:
        """A flow ends: what it still has is dropped, nothing more comes."""
        self._scheduler.emptied(flow)
        self._queued[flow] = 0
        self._interval_s[flow] = math.inf
        self._events = [event for event in self._events if event[2:] != (self._arrive, flow)]
        heapq.heapify(self._events)

    def _send(self, now_s: float, interface: int) -> None:
        """An interface is free: it begins with the next packet, or waits."""
        flow = self._scheduler.next_flow(interface, self._sizes)
        if flow is None:
            self._idle.add(interface)
            return
        if self._interval_s[flow] > 0:
            self._queued[flow] -= 1
        self._sent[flow][int(now_s / self._bin_s)] += 1
        self._scheduler.sent(interface, flow, self._bytes, waits=self._queued[flow] > 0)
        self._enter(now_s + self._sending_s[interface], self._send, interface)


def _interval_s(demand_mbps: float | None, packet_mbit: float) -> float:
    """Seconds between two packets of a source; 0: it always has one; infinite: it never has."""
    if demand_mbps is None:
        return 0.0
    return packet_mbit / demand_mbps if demand_mbps > 0 else math.inf

"""What demos and benchmarks do to a client stack under load, and what they measure: migrations, the death of an
interface, an urgent packet behind a burst, fair shares second by second.

The traffic is :mod:`hyroads.mininet.stack_traffic`. Rates are Mb/s, moments CLOCK_MONOTONIC in seconds.
"""

from __future__ import annotations

import contextlib
import socket
import statistics
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hyroads.controller.core.fair.maxmin import Flow, Shares, allocate

from .client_stack import SERVER4, ClientStack
from .isolation import socket_in
from .run_directory import NETNS_ROOT
from .stack_traffic import Stream, Transfer, socket_of

Rule = dict[str, Any]
# Of a full packet through the tunnel: the inner packet, what the tunnel adds to it, the frame's head.
TUNNEL_BYTES, FRAME_BYTES = 52, 14
FULL_BYTES = 1500
GOODPUT = (FULL_BYTES - TUNNEL_BYTES - 52) / (FULL_BYTES + FRAME_BYTES)
"""Share of an interface's rate that TCP with timestamps leaves to a file, through the tunnel over IPv4."""
PACKET_BITS = 8 * (FULL_BYTES + FRAME_BYTES)
_ALL, _OUTGOING, _SO_TIMESTAMPNS, _STAMP = 3, 4, 35, struct.Struct("=qq")
_SETTLE_S = 1.5
# More than two round trips of the slow interface: what begins later has nothing to do with a migration.
_AROUND_S = 0.1
# A tunnel's datagram with anything but an acknowledgement in it.
_DATA_BYTES = 400
BULK_PORT, URGENT_PORT = 7001, 7002
# At 10 Mb/s so many full packets leave in this time, and two are below the queue.
_UNDER_WAY_S, _UNDER_WAY = 0.005, 6


class Departures:
    """Watches the packets of at least ``_DATA_BYTES`` that leave an interface of the client, behind its queue."""

    def __init__(self, stack: ClientStack, interface: str) -> None:
        self.last_s = 0.0
        """When the last one left, by time.time()."""
        self._ended = threading.Event()
        self._tap = socket_in(NETNS_ROOT / stack.namespace("client"), socket.AF_PACKET, socket.SOCK_DGRAM)
        self._tap.bind((interface, _ALL))
        self._tap.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        self._tap.settimeout(0.05)
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Departures:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._tap.close()

    def _watch(self) -> None:
        while not self._ended.is_set():
            with contextlib.suppress(TimeoutError):
                packet, ancillary, _, address = self._tap.recvmsg(2048, 64)
                if address[2] == _OUTGOING and len(packet) >= _DATA_BYTES and ancillary:
                    seconds, nanoseconds = _STAMP.unpack(ancillary[0][2])
                    self.last_s = seconds + 1e-9 * nanoseconds


@dataclass(frozen=True)
class Moved:
    """A migration: the longest pause of arrivals that began within 0.1 s of it, and within a second (in which CoDel may
    drop a packet, for which TCP pauses), and from the order to the last packet that left the old interface (0 if none
    did any more)."""

    interface: str
    at_s: float
    gap_s: float
    gap_in_second_s: float
    order_s: float


@dataclass(frozen=True)
class Migrations:
    """``goodput_ratio``: beside the same connection without migrations, by the time on each interface."""

    moves: Sequence[Moved]
    exact: bool
    missing_bytes: int
    goodput_ratio: float


def migrations(
    stack: ClientStack, to: str, count: int, hold_s: float, tick: Callable[[float], None] = time.sleep
) -> Migrations:
    """An upload that goes to and fro between if0 and if1, ``hold_s`` on each; ``tick`` waits."""
    alone_mbps = _goodputs(stack, to, hold_s, tick)
    with Transfer(stack, to) as transfer:
        flow = stack.flow(protocol="tcp", destination=transfer.destination)
        stack.migrate(flow["id"], "if0")
        tick(_SETTLE_S)
        moved, began_s, expected = [], time.monotonic(), 0.0
        for number in range(count):
            old, new = ("if0", "if1") if number % 2 == 0 else ("if1", "if0")
            moved.append(_move(stack, transfer, flow["id"], old, new, hold_s, tick))
            expected += hold_s * alone_mbps[new]
        ended_s = time.monotonic()
        measured = transfer.mbps(began_s, ended_s) * count * hold_s
        transfer.finish()
        return Migrations(moved, transfer.exact, transfer.sent_bytes - transfer.received_bytes, measured / expected)


def _goodputs(stack: ClientStack, to: str, hold_s: float, tick: Callable[[float], None]) -> Mapping[str, float]:
    """Each interface alone, the median of three: a connection that CoDel slows down at the wrong moment counts once."""
    names = ("if0", "if1")
    found = [{name: _goodput_on(stack, to, name, hold_s, tick) for name in names} for _ in range(3)]
    return {name: statistics.median(each[name] for each in found) for name in names}


def _goodput_on(stack: ClientStack, to: str, name: str, hold_s: float, tick: Callable[[float], None]) -> float:
    with Transfer(stack, to) as transfer:
        stack.migrate(stack.flow(protocol="tcp", destination=transfer.destination)["id"], name)
        tick(_SETTLE_S)
        from_s = time.monotonic()
        tick(max(2.0, hold_s))
        mbps = transfer.mbps(from_s, time.monotonic())
        transfer.finish()
        return mbps


def _move(  # noqa: PLR0917 - of one caller
    stack: ClientStack, transfer: Transfer, flow: int, old: str, new: str, hold_s: float, tick: Callable[[float], None]
) -> Moved:
    with Departures(stack, old) as departures:
        at_s, ordered_s = time.monotonic(), time.time()
        stack.migrate(flow, new)
        tick(hold_s)
    # What CoDel drops later makes TCP pause for a round trip, with migrations or without.
    gap_s = transfer.longest_gap_s(at_s, at_s + _AROUND_S)
    gap_in_second_s = transfer.longest_gap_s(at_s, at_s + min(1.0, hold_s))
    return Moved(new, at_s, gap_s, gap_in_second_s, max(0.0, departures.last_s - ordered_s))


@dataclass(frozen=True)
class Death:
    """The end of an interface under a TCP upload: segments that had to be sent again for it, packets that the flow's
    own queue dropped (CoDel, which TCP is to notice), and the longest pause of arrivals."""

    lost: int
    queue_dropped: int
    gap_s: float


def deaths(stack: ClientStack, count: int, tick: Callable[[float], None] = time.sleep) -> list[Death]:
    """if0 loses its carrier ``count`` times while an upload uses it; if1 takes over each time."""
    found = []
    for _ in range(count):
        with Transfer(stack) as transfer:
            flow = stack.flow(protocol="tcp", destination=transfer.destination)
            stack.migrate(flow["id"], "if0")
            tick(2.0)
            died_s = time.monotonic()
            stack.set_carrier(0, up=False)
            tick(1.0)
            # Over the whole connection: what CoDel drops before the death is sent again after it.
            dropped = int(stack.flow(protocol="tcp", destination=transfer.destination)["dropped_packets"])
            lost = max(0, transfer.retransmitted - dropped)
            found.append(Death(lost, dropped, transfer.longest_gap_s(died_s - 0.1, died_s + 0.5)))
            stack.set_carrier(0, up=True)
            stack.wait_alive()
            transfer.finish()
    return found


def lost_at_death(stack: ClientStack, mbps: float, tick: Callable[[float], None] = time.sleep) -> int:
    """Packets of a stream at ``mbps`` that never arrive because if0, which carries it, loses its carrier."""
    size = 1000
    with Stream(stack, interval_s=8 * size / (mbps * 1e6), size=size) as stream:
        flow = stack.flow(protocol="udp", destination=f"{SERVER4}:{stream.port}")
        stack.migrate(flow["id"], "if0")
        tick(1.0)
        stack.set_carrier(0, up=False)
        tick(1.0)
        lost = stream.finish().lost
    stack.set_carrier(0, up=True)
    stack.wait_alive()
    return lost


def urgent_rules(interface: str) -> list[Rule]:
    """Bulk and urgent packets, told apart by their ports, over one interface."""
    usual = {"interfaces": [interface], "via": "waypoint"}
    urgent = {"protocol": "udp", "destination_port": [URGENT_PORT, URGENT_PORT]}
    return [{"name": "urgent", "match": urgent, "urgent": True, **usual}, {"name": "rest", **usual}]


def urgent_delays_s(stack: ClientStack, count: int, burst: int = 50) -> list[float]:
    """How long an urgent packet takes that is sent while ``burst`` full ones wait, less what it takes alone.

    Some more are sent, and it comes a little later, so that the first ones are below the queue by then.
    """
    with contextlib.ExitStack() as opened:
        bulk, urgent, listener, sink = (
            opened.enter_context(socket_of(stack, role, 4, socket.SOCK_DGRAM))
            for role in ("client", "client", "server", "server")
        )
        listener.bind(("", URGENT_PORT))
        sink.bind(("", BULK_PORT))
        bulk.connect((SERVER4, BULK_PORT))
        urgent.connect((SERVER4, URGENT_PORT))

        def once(packets: int) -> float:
            for _ in range(packets):
                bulk.send(bytes(FULL_BYTES - TUNNEL_BYTES - 28))
            time.sleep(_UNDER_WAY_S)
            sent_s = time.monotonic()
            urgent.send(bytes(100))
            listener.recv(2048)
            return time.monotonic() - sent_s

        found = []
        for _ in range(count):
            time.sleep(0.1)
            alone_s = min(once(0) for _ in range(3))
            found.append(max(0.0, once(burst + _UNDER_WAY) - alone_s))
            time.sleep(0.1)
        return found


@dataclass(frozen=True)
class Period:
    """While ``flows`` send more than they get: what each got in each second, beside the exact fair rate."""

    flows: Sequence[str]
    fair_mbps: Mapping[str, float]
    seconds_mbps: Mapping[str, Sequence[float]]

    def worst_error(self, flow: str) -> float:
        """The greatest deviation of a second from the fair rate, as a share of it."""
        fair = self.fair_mbps[flow]
        return max(abs(mbps / fair - 1) for mbps in self.seconds_mbps[flow])


FIGURE_4_5 = {
    "a": Flow(1.0, frozenset({"if0"})),
    "b": Flow(2.0, frozenset({"if0", "if1"})),
    "c": Flow(1.0, frozenset({"if1"})),
}
"""The flows of Yap's Figure 4.5, over interfaces of 3 and 10 Mb/s."""
FIGURE_4_5_MBPS = {"if0": 3.0, "if1": 10.0}
_PORTS = {"a": 7101, "b": 7102, "c": 7103}
_DATAGRAM_BYTES = 1300


def fair_rules(flows: Mapping[str, Flow] = FIGURE_4_5) -> list[Rule]:
    """A rule for each flow, which spreads over all interfaces that it accepts, and one for the rest."""
    rules: list[Rule] = [
        {
            "name": name,
            "match": {"protocol": "udp", "destination_port": [_PORTS[name], _PORTS[name]]},
            "weight": flow.weight,
            "interfaces": sorted(flow.interfaces),
            "via": "waypoint",
            "spread": "packet",
        }
        for name, flow in flows.items()
    ]
    return [*rules, {"name": "rest", "interfaces": sorted(FIGURE_4_5_MBPS), "via": "waypoint"}]


def fair_periods(
    stack: ClientStack, seconds: int, tick: Callable[[float], None] = time.sleep, settle_s: float = 0.3
) -> list[Period]:
    """All three flows of the figure, then without a, then c alone, each for so many seconds.

    A second begins once what a flow that has ended left in its queue is gone (``settle_s``). Rates count what a frame
    has on the interface, so that they compare with the capacity.
    """
    offered = {"a": 4.0, "b": 14.0, "c": 11.5}
    wire = _DATAGRAM_BYTES + 28 + TUNNEL_BYTES + FRAME_BYTES
    periods = []
    with contextlib.ExitStack() as opened:
        streams = {
            name: opened.enter_context(
                Stream(stack, port=_PORTS[name], interval_s=8e-6 * wire / mbps, size=_DATAGRAM_BYTES)
            )
            for name, mbps in offered.items()
        }
        tick(1.0)
        for left in (("a", "b", "c"), ("b", "c"), ("c",)):
            for name in streams.keys() - set(left):
                streams[name].pause()
            began_s = time.monotonic() + settle_s
            tick(settle_s + seconds)
            rates = {
                name: [streams[name].mbps(began_s + k, began_s + k + 1, 28 + TUNNEL_BYTES + FRAME_BYTES)
                       for k in range(seconds)]
                for name in left
            }  # fmt: skip
            fair = allocate(Shares(FIGURE_4_5_MBPS, {name: FIGURE_4_5[name] for name in left}))
            periods.append(Period(left, fair.rate_mbps, rates))
    return periods

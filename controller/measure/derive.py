"""From one reading to the next: rates, busy shares and doubts. Pure: a function of what was read and when.

Counters may wrap around or restart between two readings.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace

from hyroads.controller.access_point.mib import COUNTER64

from .readings import OPER_UP, RawInterface, RawReading
from .samples import InterfaceSample, NeighbourSample, NodeSample


def difference(before: int, now: int, *, most: float = COUNTER64 / 2) -> int | None:
    """How much a Counter64 has counted; None if it must have started anew.

    A step back is a wrap if what it then counted is plausible: at most ``most``. What was counted before a restart is
    lost, and a difference across it would be a guess.
    """
    counted = (now - before) % COUNTER64
    return counted if counted <= most else None


def rate_mbps(counted_bytes: int, elapsed_s: float) -> float:
    """Mb/s (10^6 bit/s); ``elapsed_s`` must be positive."""
    return counted_bytes * 8e-6 / elapsed_s


STALE_MS = 500
FROZEN_POLLS = 3
# net-snmp refreshes IF-MIB each 3 s only: a rate from poll to poll would be 0, 0, 3x. Rates are taken between polls
# that found new values, when the cache was at most one poll old.
RATE_WINDOW_S = 6.0
CLOCK_TOLERANCE = 0.2
CLOCK_SLACK_S = 0.3
BUSY_TOLERANCE = 0.02
CAPACITY_TOLERANCE = 0.15
HEARD_MS = 500
MAX_PLAUSIBLE_MBPS = 400_000.0
# Below this, keep-alives and hello frames are all there is to see.
QUIET_MBPS = 0.1


@dataclass
class _Track:
    """IF-MIB counters of one interface at the polls that found new values: (time_s, bytes in, bytes out)."""

    history: deque[tuple[float, int, int]] = field(default_factory=deque)
    idle: bool = False


class Deriver:
    """Keeps what the differences of one target need: the reading before, and a few seconds of IF-MIB counters."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._before: tuple[RawReading, float] | None = None
        self._tracks: dict[tuple[int, str], _Track] = {}
        self._unmoved = 0

    def sample(self, reading: RawReading, time_s: float) -> NodeSample:
        """The sample of a reading that was answered at ``time_s``; times must not decrease."""
        flags = self._node_flags(reading, time_s)
        before = self._before[0] if self._before is not None and not {"restarted", "clock"} & set(flags) else None
        if before is None:
            self._tracks.clear()
        interfaces = tuple(self._interface(raw, reading, before, time_s) for raw in reading.interfaces)
        present = {(raw.index, raw.name) for raw in reading.interfaces}
        self._tracks = {key: track for key, track in self._tracks.items() if key in present}
        self._before = (reading, time_s)
        measured_s = time_s - reading.age_ms / 1000
        return NodeSample(self._target, reading.node, time_s, measured_s, interfaces, flags)

    def _node_flags(self, reading: RawReading, time_s: float) -> tuple[str, ...]:
        flags = ["stale"] if reading.age_ms > STALE_MS else []
        if self._before is None:
            return tuple(flags)
        before, before_s = self._before
        if reading.boot != before.boot:
            self._unmoved = 0
            return (*flags, "restarted")
        self._unmoved = self._unmoved + 1 if reading.clock_us == before.clock_us else 0
        if self._unmoved >= FROZEN_POLLS:
            flags.append("frozen")
        # Taken = answered - age; between two polls both clocks must have seen about the same time pass.
        theirs_s = (reading.clock_us - before.clock_us) / 1e6
        ours_s = time_s - before_s - (reading.age_ms - before.age_ms) / 1000
        if theirs_s < 0 or abs(theirs_s - ours_s) > CLOCK_SLACK_S + CLOCK_TOLERANCE * ours_s:
            flags.append("clock")
        return tuple(flags)

    def _interface(
        self, raw: RawInterface, reading: RawReading, before: RawReading | None, time_s: float
    ) -> InterfaceSample:
        known = before.interfaces if before else ()
        old = next((i for i in known if (i.index, i.name) == (raw.index, raw.name)), None)
        busy_share, busy_over_s, flags = _busy(raw, old)
        in_mbps, out_mbps, rate_over_s = self._rates(raw, time_s)
        up = None if raw.oper_status is None else raw.oper_status == OPER_UP
        neighbours = raw.neighbours if up is not False else tuple(map(_doubted, raw.neighbours))
        if raw.oper_status is None:
            flags.append("no-such-interface")
        if up is False and out_mbps is not None and out_mbps > QUIET_MBPS:
            flags.append("down-but-sending")
        best_mbps = max((n.tx_capacity_mbps for n in neighbours if n.tx_capacity_mbps is not None), default=None)
        if best_mbps is not None and (out_mbps or 0.0) > max(QUIET_MBPS, best_mbps * (1 + CAPACITY_TOLERANCE)):
            flags.append("beyond-capacity")
        return InterfaceSample(
            index=raw.index,
            name=raw.name,
            technology=raw.technology,
            medium=raw.medium,
            up=up,
            busy_share=busy_share,
            busy_over_s=busy_over_s,
            in_mbps=in_mbps,
            out_mbps=out_mbps,
            rate_over_s=rate_over_s,
            neighbours=neighbours,
            flags=tuple(flags),
        )

    def _rates(self, raw: RawInterface, time_s: float) -> tuple[float | None, float | None, float]:
        """Rates in and out over the window; None until it is long enough, or after a restart of the counters."""
        if raw.in_bytes is None or raw.out_bytes is None:
            return None, None, 0.0
        track = self._tracks.setdefault((raw.index, raw.name), _Track())
        if not _advance(track, time_s, raw.in_bytes, raw.out_bytes):
            return None, None, 0.0
        if track.idle:
            return 0.0, 0.0, RATE_WINDOW_S
        (first_s, first_in, first_out), (last_s, last_in, last_out) = track.history[0], track.history[-1]
        elapsed_s = last_s - first_s
        received, sent = difference(first_in, last_in) or 0, difference(first_out, last_out) or 0
        return rate_mbps(received, elapsed_s), rate_mbps(sent, elapsed_s), elapsed_s


def _advance(track: _Track, time_s: float, in_bytes: int, out_bytes: int) -> bool:
    """Takes the next poll's counters; returns whether the window is long enough for a rate."""
    history = track.history
    if history:
        last_s, last_in, last_out = history[-1]
        most = MAX_PLAUSIBLE_MBPS / 8e-6 * max(time_s - last_s, RATE_WINDOW_S)
        if None in (difference(last_in, in_bytes, most=most), difference(last_out, out_bytes, most=most)):
            history.clear()
            track.idle = False
        elif (last_in, last_out) == (in_bytes, out_bytes):
            # Nothing for longer than any cache: the interface is idle, and the next rate starts from here.
            track.idle = track.idle or time_s - last_s >= RATE_WINDOW_S
            if track.idle:
                history.clear()
                history.append((time_s, in_bytes, out_bytes))
            return track.idle or history[-1][0] - history[0][0] >= RATE_WINDOW_S * 0.999
    track.idle = False
    history.append((time_s, in_bytes, out_bytes))
    while len(history) > 2 and time_s - history[1][0] >= RATE_WINDOW_S:
        history.popleft()
    return time_s - history[0][0] >= RATE_WINDOW_S * 0.999


def _busy(raw: RawInterface, old: RawInterface | None) -> tuple[float | None, float, list[str]]:
    """Busy share since the reading before, over how long, and what is wrong with it."""
    if old is None:
        return None, 0.0, []
    busy, active = difference(old.busy_us, raw.busy_us), difference(old.active_us, raw.active_us)
    if busy is None or active is None:
        return None, 0.0, ["restarted"]
    if active == 0:
        return None, 0.0, ["busy-beyond-active"] if busy > 0 else []
    if busy > active * (1 + BUSY_TOLERANCE):
        return None, active / 1e6, ["busy-beyond-active"]
    return min(1.0, busy / active), active / 1e6, []


def _doubted(neighbour: NeighbourSample) -> NeighbourSample:
    """A neighbour on an interface that says it is down."""
    return replace(neighbour, flags=("heard-while-down",)) if neighbour.last_heard_ms < HEARD_MS else neighbour


def cross_check(
    interface: InterfaceSample, openflow_in_mbps: float, openflow_out_mbps: float, tolerance: float = 0.1
) -> InterfaceSample:
    """The interface, flagged if OpenFlow's port counters over about the same time disagree with IF-MIB.

    Both count whole frames of the same port. Differences below ``QUIET_MBPS`` + ``tolerance`` of the larger rate are
    those of two windows that are not quite the same.
    """
    pairs = ((interface.in_mbps, openflow_in_mbps), (interface.out_mbps, openflow_out_mbps))
    wrong = any(
        ours is not None and abs(ours - theirs) > QUIET_MBPS + tolerance * max(ours, theirs) for ours, theirs in pairs
    )
    return replace(interface, flags=(*interface.flags, "openflow-disagrees")) if wrong else interface

"""What access points' radios and SNMP agents said last -> rows, busy shares and doubts per interface. No I/O.

What came in is kept until the next slot asks for it. A reading with a doubt that concerns its values gives nothing:
silence lets estimates age, which the loop knows how to treat, and a wrong value does not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from hyroads.controller.agents.telemetry import RadioInterface, RadioNeighbour, RadioReport
from hyroads.controller.core.estimate.busy_time import Interface
from hyroads.controller.measure.samples import Event, InterfaceSample, NeighbourSample, NodeSample, Silence

from .probing import BusyReading

# Three readings of the default interval that did not come, and a little patience with a busy machine.
SILENT_S = 0.5
FROZEN_S = 0.5
# A reading that was under way for longer says what was, not what is.
OLD_S = 0.5
CLOCK_WINDOW_S = 60.0
SHOWN_S = 5.0
BUSY_TOLERANCE = 0.05
ACTIVE_TOLERANCE = 1.25
ACTIVE_SLACK_S = 0.1
# Readings of an interface that are kept: about two seconds, with those that a probe asks for.
HISTORY = 32
# With fewer nodes it can't be told whether readings are late because of them or because of us.
JUDGED_NODES = 4

FLAGS: Mapping[str, str] = {
    "absent": "no radio session so far",
    "gone": "the radio session ended",
    "silent": "the session is up, but nothing is read",
    "old": "readings arrive later than others'",
    "clock": "the reader's clock went back",
    "restarted": "the reader started anew: no differences for this interval",
    "frozen": "readings arrive, but the counters do not move",
    "busy-beyond-active": "the medium was busy for longer than it was observed",
    "active-beyond-time": "the medium was observed for longer than the time that passed",
    "unknown-interface": "the network has no such interface",
    "unknown-neighbour": "a neighbour is heard that nobody declared",
    "disagrees-with-snmp": "SNMP says something else of the same links",
}


@dataclass(frozen=True, slots=True)
class Fresh:
    """What came in of an interface since it was last asked for: its rows now, and the busy share meanwhile."""

    interface: Interface
    time_s: float
    neighbours: tuple[RadioNeighbour, ...]
    busy: float | None


@dataclass
class _Track:
    """An interface: its last reading, and the growth of its counters since the last :meth:`RadioTable.take`."""

    last: RadioInterface
    read_s: float
    """When it was read, on the reader's clock."""
    time_s: float
    """The same on ours."""
    moved_s: float
    moves: bool = False
    busy_us: int = 0
    active_us: int = 0
    taken: bool = True
    frozen: bool = False
    history: deque[BusyReading] = field(default_factory=lambda: deque(maxlen=HISTORY))


@dataclass
class _Node:
    """A node's session: ``offset_s`` is the least difference of our clock at arrival and the reader's at reading."""

    boot: str
    up: bool = True
    since_s: float = 0.0
    heard_s: float | None = None
    read_s: float | None = None
    offset_s: float = 0.0
    offset_until_s: float = 0.0
    delay_s: float = 0.0
    """How much longer than the fastest of the last minute the last reading was under way."""
    noted: dict[str, float] = field(default_factory=dict)
    tracks: dict[str, _Track] = field(default_factory=dict)


class RadioTable:
    """The last readings of all radios. ``interfaces`` are those that the network declares."""

    def __init__(self, interfaces: frozenset[Interface]) -> None:
        self._interfaces = interfaces
        self._nodes: dict[str, _Node] = {}
        self.late_s = 0.0
        """By so much readings of most nodes are late: it is we who read them late, and silence begins later."""

    def _is_old(self, node: _Node) -> bool:
        """Whether what a node says is of before, while others are heard in time."""
        return node.delay_s - self.late_s > OLD_S

    def judge(self, unread_s: float) -> None:
        """See by how much we are late; for ``unread_s`` things may be waiting to be read.

        The lower quartile of all nodes' delays counts: what delays some of them is theirs, what delays most is ours. A
        node that says nothing has the delay of its last reading, so that silence is never taken for our lateness.
        """
        delays_s = sorted(node.delay_s for node in self._nodes.values() if node.up and node.read_s is not None)
        common_s = delays_s[len(delays_s) // 4] if len(delays_s) >= JUDGED_NODES else 0.0
        self.late_s = max(common_s, unread_s)

    def up(self, node: str, boot: str, now_s: float) -> None:
        """A session began; one of the same boot goes on with the counters it had."""
        known = self._nodes.get(node)
        if known is not None and known.boot == boot:
            known.up, known.since_s = True, now_s
            return
        fresh = self._nodes[node] = _Node(boot, since_s=now_s)
        if known is not None:
            fresh.noted["restarted"] = now_s

    def down(self, node: str, now_s: float) -> None:
        """The session ended."""
        known = self._nodes.get(node)
        if known is not None:
            known.up, known.since_s = False, now_s

    def report(self, node: str, report: RadioReport, now_s: float) -> None:
        """A reading arrived."""
        known = self._nodes.get(node)
        if known is None:
            return
        if known.read_s is not None and report.time_s < known.read_s:
            # Not an answer to a question that overtook: the channel keeps the order.
            known.noted["clock"] = now_s
            known.tracks.clear()
            known.offset_until_s = 0.0
        known.heard_s, known.read_s = now_s, report.time_s
        offset_s = now_s - report.time_s
        if now_s >= known.offset_until_s or offset_s < known.offset_s:
            known.offset_s, known.offset_until_s = offset_s, now_s + CLOCK_WINDOW_S
        known.delay_s = offset_s - known.offset_s
        for interface in report.interfaces:
            if (node, interface.technology) in self._interfaces:
                self._interface(known, interface, report.time_s, now_s)
            else:
                known.noted["unknown-interface"] = now_s

    def _interface(self, node: _Node, new: RadioInterface, read_s: float, now_s: float) -> None:
        time_s = read_s + node.offset_s
        track = node.tracks.get(new.technology)
        if track is None:
            node.tracks[new.technology] = _Track(new, read_s, time_s, read_s, taken=False)
            return
        track.history.append(BusyReading(time_s, new.busy_us, new.active_us))
        busy_us, active_us = new.busy_us - track.last.busy_us, new.active_us - track.last.active_us
        elapsed_s = read_s - track.read_s
        if busy_us < 0 or active_us < 0:
            node.noted["restarted"] = now_s
            track.busy_us = track.active_us = 0
        elif busy_us > active_us * (1 + BUSY_TOLERANCE):
            node.noted["busy-beyond-active"] = now_s
        elif active_us > 1e6 * (ACTIVE_TOLERANCE * elapsed_s + ACTIVE_SLACK_S):
            node.noted["active-beyond-time"] = now_s
        else:
            track.busy_us += min(busy_us, active_us)
            track.active_us += active_us
        if active_us > 0:
            track.moves, track.moved_s = True, read_s
        # Adapters that tell no busy time have counters that never move.
        track.frozen = track.moves and read_s - track.moved_s >= FROZEN_S
        track.last, track.read_s, track.time_s, track.taken = new, read_s, time_s, False

    def note(self, node: str, flag: str, now_s: float) -> None:
        """Someone else has found a doubt."""
        known = self._nodes.get(node)
        if known is not None:
            known.noted[flag] = now_s

    def take(self, now_s: float) -> list[Fresh]:
        """What came in since the last time and can be used."""
        return [
            fresh for name, node in self._nodes.items() if not self._is_old(node) for fresh in self._take(name, node)
        ]

    def _take(self, name: str, node: _Node) -> Iterator[Fresh]:
        for technology, track in node.tracks.items():
            if track.taken or track.frozen:
                continue
            track.taken = True
            busy = track.busy_us / track.active_us if track.active_us > 0 else None
            track.busy_us = track.active_us = 0
            yield Fresh((name, technology), track.time_s, track.last.neighbours, busy)

    def is_fresh(self, interface: Interface, now_s: float) -> bool:
        """Whether the interface was read a moment ago, without a doubt of its values."""
        node = self._nodes.get(interface[0])
        track = node.tracks.get(interface[1]) if node is not None and node.up and not self._is_old(node) else None
        return track is not None and not track.frozen and now_s - self.late_s - track.time_s <= SILENT_S + OLD_S

    def readings(self, interface: Interface) -> tuple[BusyReading, ...]:
        """The counters of an interface as they were read lately, oldest first; none if its radios are gone."""
        node = self._nodes.get(interface[0])
        track = node.tracks.get(interface[1]) if node is not None and node.up else None
        return tuple(track.history) if track is not None and not track.frozen else ()

    def neighbours(self, interface: Interface) -> tuple[RadioNeighbour, ...]:
        """The last rows of an interface, however old."""
        track = self._track(interface)
        return track.last.neighbours if track is not None else ()

    def _track(self, interface: Interface) -> _Track | None:
        node = self._nodes.get(interface[0])
        return node.tracks.get(interface[1]) if node is not None else None

    def flags(self, node: str, now_s: float) -> tuple[str, ...]:
        """What is wrong with a node's readings now, or was in the last seconds."""
        known = self._nodes.get(node)
        if known is None:
            return ("absent",)
        found = [] if known.up else ["gone"]
        if known.up and now_s - self.late_s - max(known.since_s, known.heard_s or 0.0) > SILENT_S:
            found.append("silent")
        if self._is_old(known):
            found.append("old")
        if any(track.frozen for track in known.tracks.values()):
            found.append("frozen")
        return (*found, *(flag for flag, at_s in known.noted.items() if now_s - at_s <= SHOWN_S))

    def age_s(self, interface: Interface, now_s: float) -> float | None:
        """How old the last reading of an interface is."""
        track = self._track(interface)
        return None if track is None else now_s - track.time_s


# What makes the values themselves doubtful; the other flags concern differences, which are None then, or counters.
UNUSABLE_NODE = frozenset({"stale", "frozen", "clock"})
UNUSABLE_INTERFACE = frozenset({"down-but-sending", "no-such-interface"})
UNUSABLE_NEIGHBOUR = frozenset({"heard-while-down"})
FRESH_S = 3.0


@dataclass(frozen=True, slots=True)
class Polled(Fresh):
    """An interface of the last usable sample of a node."""

    sample: InterfaceSample


class SnmpTable:
    """Latest sample and silence of every target; interfaces of samples that were not taken yet."""

    def __init__(self, interfaces: frozenset[Interface]) -> None:
        self._interfaces = interfaces
        self.samples: dict[str, NodeSample] = {}
        self.silent: dict[str, Silence] = {}
        self._untaken: dict[Interface, Polled] = {}
        self.latest: dict[Interface, Polled] = {}
        self._noted: dict[tuple[Interface, str], float] = {}

    def take_event(self, event: Event) -> list[Polled]:
        """An answer, or a silence; returns what is new and usable."""
        if isinstance(event, Silence):
            self.silent[event.target] = event
            return []
        self.silent.pop(event.target, None)
        self.samples[event.target] = event
        if UNUSABLE_NODE & set(event.flags):
            return []
        found = [polled for i in event.interfaces if (polled := self._polled(event, i)) is not None]
        for polled in found:
            self._untaken[polled.interface] = self.latest[polled.interface] = polled
        return found

    def _polled(self, event: NodeSample, sample: InterfaceSample) -> Polled | None:
        interface = (event.node, sample.technology)
        if interface not in self._interfaces or UNUSABLE_INTERFACE & set(sample.flags):
            return None
        rows = tuple(_row(n) for n in sample.neighbours if not UNUSABLE_NEIGHBOUR & set(n.flags))
        return Polled(interface, event.measured_s, rows, sample.busy_share, sample)

    def note(self, interface: Interface, flag: str, now_s: float) -> None:
        """Someone else has found a doubt."""
        self._noted[interface, flag] = now_s

    def notes(self, interface: Interface, now_s: float) -> list[str]:
        """Doubts that others found in the last seconds."""
        return [flag for (at, flag), at_s in self._noted.items() if at == interface and now_s - at_s <= FRESH_S]

    def take(self) -> list[Polled]:
        """What is new since the last time."""
        untaken, self._untaken = self._untaken, {}
        return list(untaken.values())


def _row(n: NeighbourSample) -> RadioNeighbour:
    rates = (n.tx_capacity_mbps, n.rx_capacity_mbps)
    return RadioNeighbour(n.mac.lower(), *rates, n.tx_loss, n.signal_dbm, n.last_heard_ms)

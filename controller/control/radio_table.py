"""What access points' radios said last -> rows, busy shares and doubts per interface. No I/O.

What came in is kept until the next slot asks for it. A reading with a doubt that concerns its values gives nothing:
silence lets estimates age, which the loop knows how to treat, and a wrong value does not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from hyroads.controller.agents.telemetry import DecodedReadings, RadioInterface, RadioNeighbour, RadioReport
from hyroads.controller.core.estimate.busy_time import Interface, Interfaces
from hyroads.controller.core.ragged import Ragged

from .adapters import Adapters
from .probing import LEAST_WINDOW_S, BusyReading

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.intp]

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
_MOST_US = (1 << 63) - 1
# With fewer nodes it can't be told whether readings are late because of them or because of us.
JUDGED_NODES = 4

_NO_ADDRESSES: Mapping[Interface, str] = MappingProxyType({})
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


@dataclass(frozen=True, eq=False)
class FreshReadings:
    """:class:`Fresh` of many interfaces as columns, one of each: ``places`` are those of the interfaces
    (``interfaces``), ``busy`` is NaN where it is not known. ``neighbours`` are by place, also of the other interfaces.
    """

    interfaces: Interfaces
    places: IndexArray
    times_s: FloatArray
    neighbours: Sequence[tuple[RadioNeighbour, ...]]
    versions: IndexArray
    """Of the rows: other rows of an interface have another one, 0 or more."""
    busy: FloatArray

    def __iter__(self) -> Iterator[Fresh]:
        """One after the other."""
        columns = self.places.tolist(), self.times_s.tolist(), self.busy.tolist()
        for at, time_s, busy in zip(*columns, strict=True):
            rows, known = self.neighbours[at], None if math.isnan(busy) else busy
            yield Fresh(self.interfaces.names[at], time_s, rows, known)


class _Tracks:
    """By interface, as columns: its last reading, and the growth of its counters since the last
    :meth:`RadioTable.take`. Times are in seconds, counters in microseconds.
    """

    def __init__(self, count: int) -> None:
        self.neighbours: list[tuple[RadioNeighbour, ...]] = [()] * count
        self.versions = np.zeros(count, dtype=np.intp)
        """Of the neighbours: it grows whenever they are another object."""
        self.last_us = np.zeros((count, 2), dtype=np.int64)
        """Busy, active."""
        self.read_s = np.zeros(count)
        """When it was read, on the reader's clock."""
        self.time_s = np.zeros(count)
        """The same on ours."""
        self.moved_s, self.moves = np.zeros(count), np.zeros(count, dtype=bool)
        self.grown_us = np.zeros((count, 2), dtype=np.int64)
        self.taken, self.frozen = np.ones(count, dtype=bool), np.zeros(count, dtype=bool)
        self._history_s, self._history_us = np.zeros((count, HISTORY)), np.zeros((count, HISTORY, 2), dtype=np.int64)
        self._written = np.zeros(count, dtype=np.intp)

    def begin(self, at: int, new: RadioInterface, read_s: float, time_s: float) -> None:
        """The first reading of an interface."""
        self.hear(at, new.neighbours)
        self.last_us[at] = _counters(new)
        self.read_s[at] = self.moved_s[at] = read_s
        self.time_s[at] = time_s
        self.moves[at] = self.taken[at] = self.frozen[at] = False
        self.grown_us[at], self._written[at] = 0, 0

    def hear(self, at: int, rows: tuple[RadioNeighbour, ...]) -> None:
        """The rows of an interface."""
        if rows is not self.neighbours[at]:
            self.neighbours[at] = rows
            self.versions[at] += 1

    def take(
        self, at: IndexArray, us: NDArray[np.int64], read_s: FloatArray, time_s: FloatArray
    ) -> Iterator[tuple[int, str]]:
        """Readings of several interfaces, each another one: counters, int64[interfaces, 2], and when they were read.
        Gives which of the readings are in doubt, and why.
        """
        written = self._written[at]
        place = at * HISTORY + written % HISTORY
        self._history_s.reshape(-1)[place], self._history_us.reshape(-1, 2)[place] = time_s, us
        self._written[at] = written + 1
        grown = us - self.last_us[at]
        busy_us, active_us = grown[:, 0], grown[:, 1]
        restarted = (busy_us < 0) | (active_us < 0)
        beyond = ~restarted & (busy_us > active_us * (1 + BUSY_TOLERANCE))
        most_us = 1e6 * (ACTIVE_TOLERANCE * (read_s - self.read_s[at]) + ACTIVE_SLACK_S)
        longer = ~restarted & ~beyond & (active_us > most_us)
        fine, moving = ~(restarted | beyond | longer), active_us > 0
        are_fine = bool(fine.all())
        np.minimum(busy_us, active_us, out=busy_us)
        if are_fine:
            self.grown_us[at] += grown
        else:
            self.grown_us[at[restarted]] = 0
            self.grown_us[at[fine]] += grown[fine]
        if moving.all():
            self.moves[at], self.moved_s[at], self.frozen[at] = True, read_s, False
        else:
            self.moves[at[moving]], self.moved_s[at[moving]] = True, read_s[moving]
            # Adapters that tell no busy time have counters that never move.
            self.frozen[at] = self.moves[at] & (read_s - self.moved_s[at] >= FROZEN_S)
        self.last_us[at], self.read_s[at], self.time_s[at], self.taken[at] = us, read_s, time_s, False
        if not are_fine:
            for which, why in (
                (restarted, "restarted"),
                (beyond, "busy-beyond-active"),
                (longer, "active-beyond-time"),
            ):
                yield from ((int(i), why) for i in np.flatnonzero(which))

    def busy_shares(self, at: IndexArray, window_s: float) -> tuple[FloatArray, FloatArray]:
        """How busy some interfaces were in the time before their last readings (as ``probing.busy_share``), NaN where
        that is not known, and when the last ones were read; NaN: never, but for the first reading.
        """
        order = self._written[at][:, None] - HISTORY + np.arange(HISTORY)
        # Oldest first, as the history.
        places = order % HISTORY
        times_s, us = self._history_s[at[:, None], places], self._history_us[at[:, None], places]
        last_s = np.where(self._written[at] > 0, times_s[:, -1], np.nan)
        inside = (order >= 0) & (times_s >= last_s[:, None] - window_s) & (times_s <= last_s[:, None])
        rows, first = np.arange(len(at)), inside.argmax(axis=1)
        grown = us[:, -1] - us[rows, first]
        is_known = inside.any(axis=1) & (times_s[:, -1] - times_s[rows, first] >= LEAST_WINDOW_S)
        is_known &= (grown[:, 1] > 0) & (grown[:, 0] >= 0)
        shares = np.divide(grown[:, 0], grown[:, 1], out=np.full(len(at), np.nan), where=is_known)
        return shares, last_s

    def history(self, at: int) -> tuple[BusyReading, ...]:
        """The last readings of an interface but the first one, oldest first."""
        written = int(self._written[at])
        places = [i % HISTORY for i in range(max(0, written - HISTORY), written)]
        times_s, rows = self._history_s[at, places].tolist(), self._history_us[at, places].tolist()
        return tuple(BusyReading(time_s, *row) for time_s, row in zip(times_s, rows, strict=True))


def _counters(interface: RadioInterface) -> tuple[int, int]:
    return min(interface.busy_us, _MOST_US), min(interface.active_us, _MOST_US)


class _Times:
    """Of nodes' last readings, by a node's number; -inf: there is none."""

    def __init__(self) -> None:
        self.heard_s, self.read_s = np.zeros(0), np.zeros(0)
        self.offset_s, self._until_s = np.zeros(0), np.zeros(0)
        """The least difference of our clock at arrival and the reader's at reading; and until when that holds."""
        self.delay_s = np.zeros(0)
        """How much longer than the fastest of the last minute the last reading was under way."""

    def add(self) -> int:
        """Another node; its number."""
        number = len(self.heard_s)
        for name in ("heard_s", "read_s", "offset_s", "_until_s", "delay_s"):
            setattr(self, name, np.append(getattr(self, name), 0.0))
        self.reset(number)
        return number

    def reset(self, number: int) -> None:
        """Nothing was read of a node so far."""
        self.heard_s[number] = self.read_s[number] = -np.inf
        self.delay_s[number] = self.offset_s[number] = 0.0
        self.forget_offset(number)

    def forget_offset(self, number: int) -> None:
        """The reader's clock is another one."""
        self._until_s[number] = -np.inf

    def came(self, numbers: IndexArray, read_s: FloatArray, now_s: float) -> None:
        """Readings of nodes arrived, each of another one."""
        self.heard_s[numbers], self.read_s[numbers] = now_s, read_s
        offset_s = now_s - read_s
        least = (now_s >= self._until_s[numbers]) | (offset_s < self.offset_s[numbers])
        self.offset_s[numbers[least]], self._until_s[numbers[least]] = offset_s[least], now_s + CLOCK_WINDOW_S
        self.delay_s[numbers] = offset_s - self.offset_s[numbers]


@dataclass
class _Node:
    """A node's session."""

    number: int
    boot: str
    up: bool = True
    since_s: float = 0.0
    noted: dict[str, float] = field(default_factory=dict)
    tracks: dict[str, int] = field(default_factory=dict)
    """By technology: where its interface is among the tracks."""


class RadioTable:
    """The last readings of all radios. ``interfaces`` are those that the network declares; ``mac_of`` has the address
    of each that may have a power-line adapter.
    """

    def __init__(self, interfaces: frozenset[Interface], mac_of: Mapping[Interface, str] = _NO_ADDRESSES) -> None:
        self.interfaces = Interfaces(sorted(interfaces))
        self._adapters = Adapters(mac_of)
        self.place_of = self.interfaces.place_of
        self._tracks = _Tracks(len(interfaces))
        self._nodes: dict[str, _Node] = {}
        self._by_number: list[_Node] = []
        self._times = _Times()
        # By number of a node: which whole reading its tracks are those of, in its order, if all of them have been read.
        self._shapes, self._rows = np.zeros(0, dtype=np.int64), Ragged(np.intp)
        self._sources: dict[Interface, str] = {}
        self._numbered: tuple[Sequence[str], IndexArray] = ((), np.zeros(0, dtype=np.intp))
        """Names, and the number of the node of each; -1: there is none."""
        self.late_s = 0.0
        """By so much readings of most nodes are late: it is we who read them late, and silence begins later."""

    def use_addresses(self, mac_of: Mapping[Interface, str]) -> None:
        """Interfaces have these addresses; readings that come later name them."""
        self._adapters.use_addresses(mac_of)

    def _is_old(self, node: _Node) -> bool:
        """Whether what a node says is of before, while others are heard in time."""
        return bool(self._times.delay_s[node.number] - self.late_s > OLD_S)

    def judge(self, unread_s: float) -> None:
        """See by how much we are late; for ``unread_s`` things may be waiting to be read.

        The lower quartile of all nodes' delays counts: what delays some of them is theirs, what delays most is ours. A
        node that says nothing has the delay of its last reading, so that silence is never taken for our lateness.
        """
        up = np.array([node.number for node in self._nodes.values() if node.up], dtype=np.intp)
        delays_s = np.sort(self._times.delay_s[up[self._times.read_s[up] > -np.inf]])
        common_s = float(delays_s[len(delays_s) // 4]) if len(delays_s) >= JUDGED_NODES else 0.0
        self.late_s = max(common_s, unread_s)

    def up(self, node: str, boot: str, now_s: float) -> None:
        """A session began; one of the same boot goes on with the counters it had."""
        known = self._nodes.get(node)
        if known is not None and known.boot == boot:
            known.up, known.since_s = True, now_s
            return
        if known is not None:
            self._forget(known)
            self._times.reset(known.number)
        if known is None:
            fresh = _Node(self._times.add(), boot, since_s=now_s)
            self._by_number.append(fresh)
            self._shapes = np.append(self._shapes, 0)
            self._numbered = (), self._numbered[1]
        else:
            fresh = self._by_number[known.number] = _Node(known.number, boot, since_s=now_s)
            fresh.noted["restarted"] = now_s
        self._nodes[node] = fresh

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
        self._shapes[known.number] = 0
        self._came(known, report.time_s, now_s)
        for interface in report.interfaces:
            if (node, interface.technology) in self.place_of:
                at = self.place_of[node, interface.technology]
                self._sources[node, interface.technology] = interface.busy_source
                self._interface(known, at, self._adapters.resolved(node, interface), report.time_s, now_s)
                if interface.busy_source == "none":
                    # Its counters do not move any more, whatever they did before.
                    self._tracks.moves[at] = self._tracks.frozen[at] = False
            else:
                known.noted["unknown-interface"] = now_s

    def _came(self, known: _Node, read_s: float, now_s: float) -> None:
        if read_s < self._times.read_s[known.number]:
            # Not an answer to a question that overtook: the channel keeps the order.
            known.noted["clock"] = now_s
            self._forget(known)
            self._times.forget_offset(known.number)
        self._times.came(np.array([known.number]), np.array([read_s]), now_s)

    def _forget(self, known: _Node) -> None:
        """What was read of its interfaces is not followed by what will be."""
        self._tracks.taken[list(known.tracks.values())] = True
        known.tracks.clear()
        self._shapes[known.number] = 0

    def _interface(self, node: _Node, at: int, new: RadioInterface, read_s: float, now_s: float) -> None:
        tracks, time_s = self._tracks, read_s + float(self._times.offset_s[node.number])
        if new.technology not in node.tracks:
            node.tracks[new.technology] = at
            tracks.begin(at, new, read_s, time_s)
            return
        us, when = np.array([_counters(new)], dtype=np.int64), (np.array([read_s]), np.array([time_s]))
        for _, doubt in tracks.take(np.array([at]), us, *when):
            node.noted[doubt] = now_s
        tracks.hear(at, new.neighbours)

    def readings_came(self, readings: DecodedReadings, now_s: float) -> None:
        """Readings of several nodes arrived, decoded. What is done for each by itself, is of few."""
        if not self._nodes:
            return
        numbers, shapes = self._numbers_of(readings.names)[readings.places], readings.shapes
        is_known = numbers >= 0
        is_usual = is_known & (shapes > 0) & (self._shapes[numbers] == shapes)
        is_usual &= ~(readings.times_s < self._times.read_s[numbers])
        for i in np.flatnonzero(is_known & ~is_usual).tolist():
            self.report(readings.node(i), readings.report(i), now_s)
            self._note_whole(readings.node(i), readings.reading(i).whole, int(shapes[i]))
        if is_usual.all():
            self._take(numbers, readings.first, readings, now_s)
        elif is_usual.any():
            self._take(numbers[is_usual], readings.first[is_usual], readings, now_s)

    def _numbers_of(self, names: Sequence[str]) -> IndexArray:
        if self._numbered[0] is not names:
            known = [self._nodes.get(name) for name in names]
            numbers = np.array([-1 if node is None else node.number for node in known], dtype=np.intp)
            self._numbered = names, numbers
        return self._numbered[1]

    def _take(self, numbers: IndexArray, first: IndexArray, readings: DecodedReadings, now_s: float) -> None:
        """Of some nodes, each another one: the counters of all of their interfaces begin at ``first``."""
        values = readings.values
        read_s = values[first - 1]
        self._times.came(numbers, read_s, now_s)
        of, within, rows = self._rows.items(numbers)
        busy = first[of] + 2 * within
        us = np.column_stack([values[busy], values[busy + 1]]).astype(np.int64)
        time_s = read_s + self._times.offset_s[numbers]
        for which, doubt in self._tracks.take(rows, us, read_s[of], time_s[of]):
            self._by_number[numbers[of[which]]].noted[doubt] = now_s

    def _note_whole(self, name: str, whole: RadioReport | None, shape: int) -> None:
        """From now on decoded readings tell of these interfaces, all of which are known and have been read."""
        node, technologies = (
            self._nodes[name],
            [each.technology for each in whole.interfaces] if whole is not None else [],
        )
        if technologies and all(technology in node.tracks for technology in technologies):
            self._shapes[node.number] = shape
            self._rows.put(node.number, np.array([self.place_of[name, technology] for technology in technologies]))

    def note(self, node: str, flag: str, now_s: float) -> None:
        """Someone else has found a doubt."""
        known = self._nodes.get(node)
        if known is not None:
            known.noted[flag] = now_s

    def take(self, now_s: float) -> FreshReadings:
        """What came in since the last time and can be used."""
        tracks = self._tracks
        new = np.flatnonzero(~(tracks.taken | tracks.frozen))
        if (self._times.delay_s - self.late_s > OLD_S).any():
            old = [at for node in self._nodes.values() if self._is_old(node) for at in node.tracks.values()]
            new = new[~np.isin(new, old)]
        busy_us, active_us = tracks.grown_us[new, 0], tracks.grown_us[new, 1]
        busy = np.divide(busy_us, active_us, out=np.full(len(new), np.nan), where=active_us > 0)
        tracks.taken[new], tracks.grown_us[new] = True, 0
        rows, versions = tracks.neighbours.copy(), tracks.versions[new]
        return FreshReadings(self.interfaces, new, tracks.time_s[new], rows, versions, busy)

    def is_fresh(self, interface: Interface, now_s: float) -> bool:
        """Whether the interface was read a moment ago, without a doubt of its values."""
        node, tracks = self._nodes.get(interface[0]), self._tracks
        at = node.tracks.get(interface[1]) if node is not None and node.up and not self._is_old(node) else None
        if at is None or tracks.frozen[at]:
            return False
        return bool(now_s - self.late_s - tracks.time_s[at] <= SILENT_S + OLD_S)

    def busy_source(self, interface: Interface) -> str | None:
        """How busy time of the last whole reading is known; None: by the radio's driver, or nothing was read."""
        return self._sources.get(interface) or None

    def readings(self, interface: Interface) -> tuple[BusyReading, ...]:
        """The counters of an interface as they were read lately, oldest first; none if its radios are gone."""
        node = self._nodes.get(interface[0])
        at = node.tracks.get(interface[1]) if node is not None and node.up else None
        return self._tracks.history(at) if at is not None and not self._tracks.frozen[at] else ()

    def busy_shares(self, window_s: float) -> Iterator[tuple[Interface, float | None, float]]:
        """Of each interface with :meth:`readings`: how busy it was in the time before the last one, None if that is not
        known, and when that was read.
        """
        up = [at for node in self._nodes.values() if node.up for at in node.tracks.values()]
        places = np.array(up, dtype=np.intp)
        places = places[~self._tracks.frozen[places]]
        shares, times_s = self._tracks.busy_shares(places, window_s)
        for at, share, time_s in zip(places.tolist(), shares.tolist(), times_s.tolist(), strict=True):
            if not math.isnan(time_s):
                yield self.interfaces.names[at], None if math.isnan(share) else share, time_s

    def neighbours(self, interface: Interface) -> tuple[RadioNeighbour, ...]:
        """The last rows of an interface, however old."""
        at = self._track(interface)
        return self._tracks.neighbours[at] if at is not None else ()

    def _track(self, interface: Interface) -> int | None:
        node = self._nodes.get(interface[0])
        return node.tracks.get(interface[1]) if node is not None else None

    def flags(self, node: str, now_s: float) -> tuple[str, ...]:
        """What is wrong with a node's readings now, or was in the last seconds."""
        known = self._nodes.get(node)
        if known is None:
            return ("absent",)
        found = [] if known.up else ["gone"]
        if known.up and now_s - self.late_s - max(known.since_s, self._times.heard_s[known.number]) > SILENT_S:
            found.append("silent")
        if self._is_old(known):
            found.append("old")
        if any(self._tracks.frozen[at] for at in known.tracks.values()):
            found.append("frozen")
        return (*found, *(flag for flag, at_s in known.noted.items() if now_s - at_s <= SHOWN_S))

    def age_s(self, interface: Interface, now_s: float) -> float | None:
        """How old the last reading of an interface is."""
        at = self._track(interface)
        return None if at is None else now_s - float(self._tracks.time_s[at])

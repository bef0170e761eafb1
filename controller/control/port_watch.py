"""OpenFlow's port counters against IF-MIB and the agents (``estimate.crosscheck``). No I/O; time is an argument.

Every port that is an interface to a medium is compared in both directions over the same seconds. What IF-MIB says
covers six seconds or more and comes from a cache of three (docs/reference/measurement.md, section 4): while traffic
changes the two differ with good reason, so only what disagrees for ``PERSIST_S`` is a disagreement.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hyroads.controller.core.addressing import Addressing
from hyroads.controller.core.estimate.busy_time import Interface
from hyroads.controller.core.estimate.crosscheck import CheckSettings, CounterSource, CrossCheck, Reading, cross_check
from hyroads.controller.core.estimate.filters import Quality
from hyroads.controller.measure.samples import InterfaceSample
from hyroads.controller.ofp.readback import PortCounters

HISTORY = 30
RATE_S = 2.0
FRESH_S = 3.5
PERSIST_S = 10.0
# Both directions of a port: index into (rx, tx).
DIRECTIONS = ("in", "out")
# IF-MIB's window and ours end up to a second apart.
SETTINGS = CheckSettings(skew_s=1.0, max_apart_s=8.0)


@dataclass(frozen=True, slots=True)
class _Point:
    time_s: float
    bytes: tuple[int, int]
    packets: tuple[int, int]


@dataclass
class _Port:
    points: deque[_Point] = field(default_factory=lambda: deque(maxlen=HISTORY))
    last: PortCounters | None = None
    dropped: int = 0
    errors: int = 0
    checks: dict[str, CrossCheck] = field(default_factory=dict)
    disputed_s: dict[str, float] = field(default_factory=dict)


class PortWatch:
    """The last half minute of the counters of every interface to a medium."""

    def __init__(self, addressing: Addressing) -> None:
        self._interface = {(node, name): (node, k) for (node, k), name in addressing.interface_name.items()}
        self._ports: dict[Interface, _Port] = {}
        self._agents: dict[Interface, deque[_Point]] = {}

    def counters(
        self, node: str, ports: Mapping[str, int], stats: Iterable[PortCounters], now_s: float
    ) -> list[tuple[Interface, PortCounters]]:
        """A switch's answer; ``ports`` are its ports' numbers by name. Returns what it says of interfaces."""
        by_number = {number: self._interface.get((node, name)) for name, number in ports.items()}
        found = [(interface, entry) for entry in stats if (interface := by_number.get(entry.port)) is not None]
        for interface, entry in found:
            self._add(self._ports.setdefault(interface, _Port()), entry, now_s)
        return found

    def _add(self, port: _Port, entry: PortCounters, now_s: float) -> None:
        point = _Point(now_s, (entry.rx_bytes, entry.tx_bytes), (entry.rx_packets, entry.tx_packets))
        if port.points and any(new < old for new, old in zip(point.bytes, port.points[-1].bytes, strict=True)):
            port.points.clear()
        if not port.points or now_s > port.points[-1].time_s:
            port.points.append(point)
        port.last = entry
        port.dropped, port.errors = entry.tx_dropped + entry.rx_dropped, entry.tx_errors + entry.rx_errors

    def latest(self, now_s: float) -> Iterator[tuple[Interface, PortCounters]]:
        """The last counters of the interfaces whose switch has told them lately."""
        for interface, port in sorted(self._ports.items()):
            if port.last is not None and now_s - port.points[-1].time_s <= FRESH_S:
                yield interface, port.last

    def agents(self, sent_bytes: Mapping[Interface, int], now_s: float) -> None:
        """What agents say that they sent so far on interfaces of their own node, in bytes of L2 payload."""
        self._agents = {interface: self._agents.get(interface, deque(maxlen=HISTORY)) for interface in sent_bytes}
        for interface, octets in sent_bytes.items():
            points = self._agents[interface]
            # Less than before: a flow or a path is gone, and its bytes with it.
            if points and octets < points[-1].bytes[1]:
                points.clear()
            points.append(_Point(now_s, (0, octets), (0, 0)))

    def compare(self, interface: Interface, sample: InterfaceSample, time_s: float, now_s: float) -> tuple[str, ...]:
        """An interface's IF-MIB rates against its port's counters; directions that disagree for too long."""
        port = self._ports.get(interface)
        if port is None:
            return ()
        rates = {"in": sample.in_mbps, "out": sample.out_mbps}
        for at, direction in enumerate(DIRECTIONS):
            mine = _reading(port.points, at, sample.rate_over_s or RATE_S, time_s)
            theirs_mbps = rates[direction]
            readings = [] if mine is None else [mine]
            if theirs_mbps is not None and sample.rate_over_s > 0 and mine is not None:
                octets = round(theirs_mbps * sample.rate_over_s / 8e-6)
                # The collector does not ask for frames: their size is taken from the port.
                frames = round(octets * mine.frames / mine.octets) if mine.octets else 0
                readings.append(Reading(CounterSource.IF_MIB, octets, frames, sample.rate_over_s, time_s))
            if direction == "out" and mine is not None:
                sent = _reading(self._agents.get(interface, ()), at, mine.interval_s, mine.time_s)
                readings += [] if sent is None else [replace(sent, source=CounterSource.AGENT)]
            check = port.checks[direction] = cross_check(readings, now_s, SETTINGS)
            if check.outliers or check.quality is Quality.CONTRADICTORY:
                port.disputed_s.setdefault(direction, now_s)
            else:
                port.disputed_s.pop(direction, None)
        return tuple(direction for direction in DIRECTIONS if _is_disputed(port, direction, now_s))

    def document(self, now_s: float) -> list[dict[str, Any]]:
        """The part ``ports`` of the answer to ``GET /measurements``."""
        return [self._document(interface, port, now_s) for interface, port in sorted(self._ports.items())]

    def _document(self, interface: Interface, port: _Port, now_s: float) -> dict[str, Any]:
        last = port.points[-1] if port.points else None
        stale = last is None or now_s - last.time_s > FRESH_S
        entry: dict[str, Any] = {
            "node": interface[0],
            "technology": interface[1],
            "age_s": None if last is None else now_s - last.time_s,
            "dropped": port.dropped,
            "errors": port.errors,
            "flags": ["stale"] if stale else [],
        }
        for at, direction in enumerate(DIRECTIONS):
            reading = None if last is None or stale else _reading(port.points, at, RATE_S, last.time_s)
            entry[f"{direction}_mbps"] = None if reading is None else reading.rate_mbps
            check = port.checks.get(direction)
            if check is not None and _is_disputed(port, direction, now_s):
                entry["flags"].append(f"{direction}-disagrees")
                entry["reason"] = check.reason
        return {"reason": None, **entry}


def _is_disputed(port: _Port, direction: str, now_s: float) -> bool:
    since_s = port.disputed_s.get(direction)
    return since_s is not None and now_s - since_s >= PERSIST_S


def _reading(points_known: Iterable[_Point], at: int, over_s: float, end_s: float) -> Reading | None:
    """Growth in a direction over about ``over_s`` until ``end_s``; None if there are no two points of it."""
    points = [point for point in points_known if point.time_s <= end_s + SETTINGS.skew_s]
    if len(points) < 2:
        return None
    last = points[-1]
    first = min(points[:-1], key=lambda point: abs(last.time_s - point.time_s - over_s))
    octets, frames = last.bytes[at] - first.bytes[at], max(0, last.packets[at] - first.packets[at])
    if octets < 0:
        return None
    return Reading(CounterSource.OPENFLOW, octets, frames, last.time_s - first.time_s, last.time_s)

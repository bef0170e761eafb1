"""Counters as a test has them, one by one, put side by side as the traffic meter takes them; and what it says of flows
and paths worked out counter by counter, which its columns are compared with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from hyroads.controller.core.growth import Counted, Counts, Growth
from hyroads.controller.core.network import Link
from hyroads.controller.core.path_columns import MeteredFlows, MeteredPath, Totals
from hyroads.controller.core.traffic_meter import FlowReading, PathKey, PathReading, TrafficMeter


class Heard(NamedTuple):
    """What the agents at both ends of a path say; None where one says nothing."""

    sent: Counted | None
    received: Counted | None
    delay_ms: float | None = None


NOTHING = Heard(None, None)
Ends = Mapping[str, tuple[Counted, int] | None]
"""By flow what was delivered, and how many frames were lost; None if that is not told."""


def totals(flows: MeteredFlows, heard: Mapping[PathKey, Heard], ends: Ends) -> Totals:
    """As columns, in the order of the flows and of their paths."""
    paths = [heard.get((flow, path.id), NOTHING) for flow, of in flows.items() for path in of]
    told = [ends.get(flow) for flow in flows]
    return Totals(
        flows,
        counts([path.sent for path in paths]),
        counts([path.received for path in paths]),
        np.array([np.nan if path.delay_ms is None else path.delay_ms for path in paths], dtype=float),
        counts([end and end[0] for end in told]),
        counts([end and Counted(end[0].time_s, 0, end[1]) for end in told]),
    )


def counts(readings: Sequence[Counted | None]) -> Counts:
    """Readings as columns."""
    rows = [(np.nan,) * 3 if each is None else each for each in readings]
    return Counts(*np.array(rows, dtype=float).reshape(len(rows), 3).T)


def tell(
    meter: TrafficMeter,
    now_s: float,
    paths: Mapping[PathKey, tuple[Sequence[str], Heard]],
    ends: Ends | None = None,
) -> None:
    """Counters of all paths that there are, by their links, and of flows."""
    flows: dict[str, tuple[MeteredPath, ...]] = {}
    for (flow, number), (links, _) in paths.items():
        flows[flow] = (*flows.get(flow, ()), MeteredPath(number, tuple(links)))
    for _ in meter.agents(totals(flows, {key: heard for key, (_, heard) in paths.items()}, ends or {}), now_s):
        pass


@dataclass
class _Path:
    links: Sequence[str]
    sent: Growth = field(default_factory=Growth)
    received: Growth = field(default_factory=Growth)
    delay_ms: float | None = None


@dataclass
class _Flow:
    delivered: Growth = field(default_factory=Growth)
    lost: Growth = field(default_factory=Growth)


class OneByOne:
    """What agents count, told path by path and flow by flow."""

    def __init__(self, links: Sequence[Link]) -> None:
        self._links = {link.id: link for link in links}
        self._paths: dict[PathKey, _Path] = {}
        self._flows: dict[str, _Flow] = {}
        self.carried: dict[str, int] = {}
        """By link: bytes that agents counted, on paths that are gone, too."""
        self.sent_bytes: dict[tuple[str, str], int] = {}

    def tell(self, flows: MeteredFlows, heard: Mapping[PathKey, Heard], ends: Ends, now_s: float) -> None:
        """As :meth:`TrafficMeter.agents`."""
        self.sent_bytes = {}
        for flow, paths in flows.items():
            end = ends.get(flow)
            if end is not None:
                known = self._flows.setdefault(flow, _Flow())
                known.delivered.add(end[0], now_s)
                known.lost.add(Counted(end[0].time_s, 0, end[1]), now_s)
            for path in paths:
                self._path(flow, path, heard.get((flow, path.id), NOTHING), now_s)
        current = {(flow, path.id) for flow, paths in flows.items() for path in paths}
        self._paths = {key: path for key, path in self._paths.items() if key in current}
        self._flows = {flow: known for flow, known in self._flows.items() if flow in flows}

    def _path(self, flow: str, path: MeteredPath, heard: Heard, now_s: float) -> None:
        key = flow, path.id
        if key not in self._paths or self._paths[key].links != path.links:
            self._paths[key] = _Path(path.links)
        known = self._paths[key]
        known.delay_ms = None if heard.received is None else heard.delay_ms
        if heard.sent is not None:
            self._carry(path.links[:1], known.sent.add(heard.sent, now_s))
            self._leave(path, heard.sent)
        if heard.received is not None:
            self._carry(path.links[1:], known.received.add(heard.received, now_s))

    def _carry(self, links: Sequence[str], grown: int) -> None:
        for link in links:
            self.carried[link] = self.carried.get(link, 0) + grown

    def _leave(self, path: MeteredPath, sent: Counted) -> None:
        node, name = path.leaves or ("", "")
        link = self._links.get(name)
        if link is not None and link.source == node:
            interface = node, link.technology
            self.sent_bytes[interface] = self.sent_bytes.get(interface, 0) + sent.payload_bytes

    def links_mbps(self, now_s: float) -> dict[str, float | None]:
        """By link that paths lead over, their rate together."""
        found: dict[str, float | None] = {}
        for path in self._paths.values():
            for at, link in enumerate(path.links):
                mbps = (path.received if at else path.sent).rate_mbps(now_s)
                before = found.setdefault(link, None)
                found[link] = before if mbps is None else (before or 0.0) + mbps
        return {link: mbps for link, mbps in found.items() if link in self._links}

    def path_reading(self, key: PathKey, now_s: float) -> PathReading:
        """As :meth:`TrafficMeter.path_reading`."""
        path = self._paths.get(key, _Path(()))
        sent, received = path.sent.window(now_s), path.received.window(now_s)
        lost: float | None = None
        if sent is not None and received is not None and sent[1].frames > sent[0].frames:
            rates = [(last.frames - first.frames) / (last.time_s - first.time_s) for first, last in (sent, received)]
            given_up = self._flows.get(key[0], _Flow()).lost.window(now_s)
            counts_none = given_up is not None and given_up[1].frames == given_up[0].frames
            lost = 0.0 if counts_none else max(0.0, 1.0 - rates[1] / rates[0])
        delay_ms = None if received is None else path.delay_ms
        return PathReading(path.sent.rate_mbps(now_s), path.received.rate_mbps(now_s), lost, delay_ms)

    def flow_reading(self, flow: str, now_s: float) -> FlowReading:
        """As :meth:`TrafficMeter.flow_reading`."""
        known = self._flows.get(flow, _Flow())
        window = known.lost.window(now_s)
        if window is None:
            return FlowReading(None, None)
        lost = (window[1].frames - window[0].frames) / (window[1].time_s - window[0].time_s)
        return FlowReading(known.delivered.rate_mbps(now_s), lost)

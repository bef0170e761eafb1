"""What links and paths really carry: counters of ports and agents and busy times of radios -> rates and busy shares.

Pure: time is an argument, and nothing of a plan comes in, so that nothing planned can come out. What is not measured,
or not any more, is None. All rates are at L2 payload (frames without their 14 bytes of Ethernet header), in Mb/s.

Who feeds it tells counters as they are read, about once a second (``runtime.telemetry``):

- :meth:`TrafficMeter.port`: what an interface sent and received, by its switch's port counters;
- :meth:`TrafficMeter.path`: what the agents at the two ends of a path sent and received on it;
- :meth:`TrafficMeter.flow`: what the agent at the end of a flow delivered and counted as lost;
- :meth:`TrafficMeter.radio`: for which share of time an interface found its medium busy.

Who reads it calls :meth:`TrafficMeter.link`, :meth:`TrafficMeter.path_reading`, :meth:`TrafficMeter.flow_reading` for
rates over the last second, and :meth:`TrafficMeter.link_bytes` for a counter that only grows.

*The rate of a link.* An interface that only one link leaves sends on that link, so that the port's counter is the
link's (``rate_from`` is "port": all that it carried). Where several links leave an interface the port can't tell them
apart, and the rate is the sum of what agents count on the paths over the link ("paths": without traffic that no agent
splits); it is None if the port sends, but no path over any of its links does. A path's first link carries what its
ingress sent, all others what its egress received: frames lost on the way are not counted behind the first link.
A sender without a switch (a plain client) has no port counter: what the receiving port counts is the link's if no other
link arrives there; it is 0 if the other links that arrive there explain all of it, and None otherwise.
Less than ``QUIET_MBPS`` on a port is keep-alives and hello frames, and taken as what the agents count, or 0.

*The busy share of a link.* What a radio says at the busier end of the link ("radio" or "snmp"); without any, the link's
rate over its capacity ("counters"); without a rate or a capacity None.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from .estimate.busy_time import Interface
from .estimate.crosscheck import ETHERNET_HEADER
from .network import Link

WINDOW_S = 1.0
"""Rates are over about so long."""
FRESH_S = 3.5
"""A counter or busy share that was read longer ago says nothing of now."""
QUIET_MBPS = 0.1
HISTORY = 4
SKEW = 0.1

PORT, PATHS = "port", "paths"
RADIO, SNMP, COUNTERS = "radio", "snmp", "counters"

PathKey = tuple[str, int]
"""Flow id and number of the path within the flow."""


class Counted(NamedTuple):
    """A reading of a counter: ``time_s`` is the clock of whoever read it, ``payload_bytes`` and ``frames`` only grow
    until the counter restarts.
    """

    time_s: float
    payload_bytes: int
    frames: int

    @classmethod
    def of_port(cls, time_s: float, whole_bytes: int, frames: int) -> Counted:
        """Of a port, which counts whole frames without their check sums."""
        return cls(time_s, max(0, whole_bytes - ETHERNET_HEADER * frames), frames)


@dataclass(slots=True)
class Growth:
    """The last readings of one counter, and how much it has grown since the first. What a counter had counted between
    the last reading and a restart is lost, so that a restart adds nothing.
    """

    points: deque[Counted] = field(default_factory=lambda: deque(maxlen=HISTORY))
    total_bytes: int = 0
    total_frames: int = 0
    heard_s: float = 0.0
    _window: tuple[Counted, Counted] | None = None

    def add(self, new: Counted, now_s: float) -> int:
        """The next reading; returns by how many bytes the counter grew. One that is not newer is left out."""
        last = self.points[-1] if self.points else None
        if last is not None and new.payload_bytes >= last.payload_bytes and new.frames >= last.frames:
            if new.time_s <= last.time_s:
                return 0
            grown = new.payload_bytes - last.payload_bytes
            self.total_bytes += grown
            self.total_frames += new.frames - last.frames
        else:
            grown = 0
            self.points.clear()
        self.points.append(new)
        self.heard_s, self._window = now_s, None
        return grown

    def window(self, now_s: float) -> tuple[Counted, Counted] | None:
        """That reading of which the last is about ``WINDOW_S`` later, and the last; None if there are no two, or they
        are old.
        """
        if len(self.points) < 2 or now_s - self.heard_s > FRESH_S:
            return None
        if self._window is None:
            # Readings are in the order of their times: once they get worse, earlier ones are no better.
            readings = reversed(self.points)
            last, first = next(readings), next(readings)
            for point in readings:
                if abs(last.time_s - point.time_s - WINDOW_S) > abs(last.time_s - first.time_s - WINDOW_S):
                    break
                first = point
            self._window = first, last
        return self._window

    def rate_mbps(self, now_s: float) -> float | None:
        """Mb/s over the window; None if unknown."""
        return _mbps(self.window(now_s))

    def grown_frames(self, now_s: float) -> int | None:
        """Frames over the window; None if unknown."""
        window = self.window(now_s)
        return None if window is None else window[1].frames - window[0].frames


def _mbps(window: tuple[Counted, Counted] | None) -> float | None:
    if window is None:
        return None
    first, last = window
    return (last.payload_bytes - first.payload_bytes) * 8e-6 / (last.time_s - first.time_s)


class LinkReading(NamedTuple):
    """``busy`` is a share of time from 0 to 1; the sources are None where the value is."""

    rate_mbps: float | None
    rate_from: str | None
    busy: float | None
    busy_from: str | None


class PathReading(NamedTuple):
    """What a path carries. ``lost`` is the share of frames sent on it that did not arrive: None while it sends
    nothing, 0 while its flow counts no lost frame. ``delay_ms`` is what the receiving agent last estimated.
    """

    sent_mbps: float | None
    delivered_mbps: float | None
    lost: float | None
    delay_ms: float | None


class FlowReading(NamedTuple):
    """What a flow gives to its destination, and how many of its frames a second are given up as lost."""

    delivered_mbps: float | None
    lost_frames_per_s: float | None


UNKNOWN_LINK = LinkReading(None, None, None, None)
UNKNOWN_PATH = PathReading(None, None, None, None)
UNKNOWN_FLOW = FlowReading(None, None)


@dataclass(slots=True)
class _Path:
    links: Sequence[str]
    sent: Growth = field(default_factory=Growth)
    received: Growth = field(default_factory=Growth)
    delay_ms: float | None = None


@dataclass(slots=True)
class _Flow:
    delivered: Growth = field(default_factory=Growth)
    lost: Growth = field(default_factory=Growth)


Rate = tuple[float | None, str | None]
"""Mb/s, and where that is from."""


class Busy(NamedTuple):
    """A busy share, from 0 to 1, that an interface told."""

    share: float
    source: str
    time_s: float


class Snapshot(NamedTuple):
    """What is known of all links at one moment; ``reading`` tells of any of them, by its id and its capacity.

    In a large network most links are on no path, and all of these that leave one interface have the same rate, so that
    whoever shows all links needs to ask ``reading`` for few: for those in ``paths``, and those that leave an interface
    which ``idle`` does not name. ``idle`` are the rates of the others by the interface that they leave, ``busy`` the
    busy shares by interface; a link's is that of its busier end.
    """

    idle: Mapping[Interface, Rate]
    busy: Mapping[Interface, Busy]
    paths: Collection[str]
    reading: Callable[[str, float | None], LinkReading]


class _Known(NamedTuple):
    """What is known at one moment: rates of ports and of paths by link, busy shares, and the interfaces over whose
    links paths send.
    """

    ports: Mapping[Interface, float | None]
    received: Mapping[Interface, float | None]
    busy: Mapping[Interface, Busy]
    paths: Mapping[str, float | None]
    accounted: Collection[Interface | None]


class TrafficMeter:
    """One per controller. ``links`` are those of the network file; unknown links of paths are ignored."""

    def __init__(self, links: Iterable[Link]) -> None:
        self._links = {link.id: link for link in links}
        self._ends = {
            link.id: ((link.source, link.technology), (link.target, link.technology)) for link in self._links.values()
        }
        self._leaving: dict[Interface, list[str]] = {}
        self._arriving: dict[Interface, list[Link]] = {}
        for link in self._links.values():
            self._leaving.setdefault((link.source, link.technology), []).append(link.id)
            self._arriving.setdefault((link.target, link.technology), []).append(link)
        self._ports: dict[Interface, Growth] = {}
        self._receivers: dict[Interface, Growth] = {}
        self._paths: dict[PathKey, _Path] = {}
        self._over: dict[str, dict[PathKey, _Path]] = {}
        """By link: the paths over it."""
        self._carried: dict[str, int] = {}
        """By link: payload bytes that agents counted on it, on paths that are gone, too."""
        self._flows: dict[str, _Flow] = {}
        self._busy: dict[Interface, Busy] = {}

    # -- what is measured

    def port(self, interface: Interface, sent: Counted, now_s: float, received: Counted | None = None) -> None:
        """What an interface has sent (and received, if that is known); their ``time_s`` may be ``now_s``."""
        if received is not None and interface in self._arriving:
            self._receivers.setdefault(interface, Growth()).add(received, now_s)
        if interface in self._leaving:
            self._ports.setdefault(interface, Growth()).add(sent, now_s)

    def radio(self, interface: Interface, busy: float | None, source: str, time_s: float) -> None:
        """For which share of the time until ``time_s`` (the controller's clock) an interface found its medium busy;
        ``source`` is RADIO or SNMP. None leaves the last one to age.
        """
        if busy is not None:
            self._busy[interface] = Busy(min(1.0, max(0.0, busy)), source, time_s)

    def path(
        self,
        key: PathKey,
        links: Sequence[str],
        *,
        sent: Counted | None,
        received: Counted | None,
        delay_ms: float | None,
        now_s: float,
    ) -> None:
        """What the agents at both ends of a path counted; None where one says nothing. Other ``links`` under the same
        key are another path.
        """
        known = self._paths.get(key)
        if known is None or known.links != links:
            self._forget(key)
            known = self._paths[key] = _Path(links)
            for link in links:
                self._over.setdefault(link, {})[key] = known
        known.delay_ms = delay_ms
        if sent is not None:
            self._carry(links[:1], known.sent.add(sent, now_s))
        if received is not None:
            self._carry(links[1:], known.received.add(received, now_s))

    def flow(self, flow: str, delivered: Counted, lost_frames: int, now_s: float) -> None:
        """What the agent at the end of a flow delivered, and how many frames it has given up as lost."""
        known = self._flows.setdefault(flow, _Flow())
        known.delivered.add(delivered, now_s)
        known.lost.add(Counted(delivered.time_s, 0, lost_frames), now_s)

    def retain(self, paths: Collection[PathKey]) -> None:
        """Forget all other paths, and flows without any."""
        if self._paths.keys() <= set(paths):
            return
        for key in [key for key in self._paths if key not in paths]:
            self._forget(key)
        flows = {flow for flow, _ in paths}
        self._flows = {flow: known for flow, known in self._flows.items() if flow in flows}

    def _forget(self, key: PathKey) -> None:
        gone = self._paths.pop(key, None)
        for link in gone.links if gone is not None else ():
            self._over[link].pop(key, None)

    def _carry(self, links: Iterable[str], grown: int) -> None:
        for link in links:
            self._carried[link] = self._carried.get(link, 0) + grown

    # -- what is known of it

    def snapshot(self, now_s: float) -> Snapshot:
        """What is known of all links now."""
        ports = {interface: port.rate_mbps(now_s) for interface, port in self._ports.items()}
        busy = {interface: each for interface, each in self._busy.items() if now_s - each.time_s <= FRESH_S}
        paths = {link: self._paths_mbps(link, now_s) for link, over in self._over.items() if over}
        uncounted = [interface for interface in self._leaving if ports.get(interface) is None]
        asked = {self._ends[link][1] for interface in uncounted for link in self._leaving[interface]}
        received = {each: self._receivers[each].rate_mbps(now_s) for each in asked & self._receivers.keys()}
        known = _Known(ports, received, busy, paths, {self._interface(link) for link, mbps in paths.items() if mbps})
        idle = {each: self._of_port(each, mbps, None, known) for each, mbps in ports.items() if mbps is not None}
        return Snapshot(idle, busy, paths.keys(), lambda link, capacity: self._reading(link, capacity, known))

    def links(self, capacity_mbps: Mapping[str, float | None], now_s: float) -> dict[str, LinkReading]:
        """:meth:`link` of all links that ``capacity_mbps`` names."""
        now = self.snapshot(now_s)
        return {link: now.reading(link, capacity) for link, capacity in capacity_mbps.items()}

    def link(self, link: str, capacity_mbps: float | None, now_s: float) -> LinkReading:
        """What a link carries now; the capacity, if it is known, is only used for the busy share."""
        known = self._links.get(link)
        if known is None:
            return UNKNOWN_LINK
        leaving, arriving = (known.source, known.technology), (known.target, known.technology)
        senders = {leaving, *((other.source, other.technology) for other in self._arriving[arriving])}
        ports = {each: self._ports[each].rate_mbps(now_s) for each in senders if each in self._ports}
        received = {arriving: port.rate_mbps(now_s)} if (port := self._receivers.get(arriving)) else {}
        busy = {
            end: each for end in (leaving, arriving) if (each := self._busy.get(end)) and now_s - each.time_s <= FRESH_S
        }
        near = {other for sender in senders for other in self._leaving[sender]}
        paths = {other: self._paths_mbps(other, now_s) for other in near if self._over.get(other)}
        accounted = {self._interface(other) for other, mbps in paths.items() if mbps}
        return self._reading(link, capacity_mbps, _Known(ports, received, busy, paths, accounted))

    def _interface(self, link: str) -> Interface | None:
        known = self._links.get(link)
        return None if known is None else (known.source, known.technology)

    def _reading(self, link: str, capacity_mbps: float | None, known: _Known) -> LinkReading:
        found = self._links.get(link)
        if found is None:
            return UNKNOWN_LINK
        rate_mbps, rate_from = self._rate(found, known)
        leaving, arriving = self._ends[link]
        here, there = known.busy.get(leaving), known.busy.get(arriving)
        busiest = here if there is None or (here is not None and here.share >= there.share) else there
        if busiest is not None:
            return LinkReading(rate_mbps, rate_from, busiest.share, busiest.source)
        if rate_mbps is None or not capacity_mbps:
            return LinkReading(rate_mbps, rate_from, None, None)
        return LinkReading(rate_mbps, rate_from, min(1.0, rate_mbps / capacity_mbps), COUNTERS)

    def _rate(self, link: Link, known: _Known) -> Rate:
        interface = self._ends[link.id][0]
        port_mbps, paths_mbps = known.ports.get(interface), known.paths.get(link.id)
        if port_mbps is None:
            return self._received(link, known) if paths_mbps is None else (paths_mbps, PATHS)
        return self._of_port(interface, port_mbps, paths_mbps, known)

    def _of_port(self, interface: Interface, port_mbps: float, paths_mbps: float | None, known: _Known) -> Rate:
        """The rate of a link that leaves an interface, from what the port says and what paths over the link carry."""
        if port_mbps < QUIET_MBPS:
            return min(paths_mbps or 0.0, QUIET_MBPS), PORT
        if len(self._leaving[interface]) == 1:
            return port_mbps, PORT
        return (paths_mbps or 0.0, PATHS) if interface in known.accounted else (None, None)

    def _received(self, link: Link, known: _Known) -> Rate:
        """What arrives from a sender that nobody counts at."""
        interface = (link.target, link.technology)
        received_mbps = known.received.get(interface)
        if received_mbps is None:
            return None, None
        others = [other for other in self._arriving[interface] if other is not link]
        if received_mbps < QUIET_MBPS or not others:
            return 0.0 if received_mbps < QUIET_MBPS else received_mbps, PORT
        if any(known.ports.get((other.source, other.technology)) is None for other in others):
            return None, None
        explained_mbps = sum(self._rate(other, known)[0] or 0.0 for other in others)
        # The two ends are not read at the same moment.
        is_all = received_mbps - explained_mbps <= QUIET_MBPS + SKEW * received_mbps
        return (0.0, PORT) if is_all else (None, None)

    def _paths_mbps(self, link: str, now_s: float) -> float | None:
        rates = [
            (path.sent if path.links[0] == link else path.received).rate_mbps(now_s)
            for path in self._over.get(link, {}).values()
        ]
        known = [rate for rate in rates if rate is not None]
        return sum(known) if known else None

    def path_reading(self, key: PathKey, now_s: float) -> PathReading:
        """What a path carries now; all None for one that was never told of."""
        path = self._paths.get(key)
        if path is None:
            return UNKNOWN_PATH
        sent, received = path.sent.window(now_s), path.received.window(now_s)
        delay_ms = path.delay_ms if received is not None else None
        sent_mbps, received_mbps = _mbps(sent), _mbps(received)
        lost: float | None = None
        if sent is not None and received is not None and sent[1].frames > sent[0].frames:
            # Each end by its own clock: reports are not of the same moment.
            rates = [(last.frames - first.frames) / (last.time_s - first.time_s) for first, last in (sent, received)]
            flow = self._flows.get(key[0])
            counts_none = flow is not None and flow.lost.grown_frames(now_s) == 0
            lost = 0.0 if counts_none else max(0.0, 1.0 - rates[1] / rates[0])
        return PathReading(sent_mbps, received_mbps, lost, delay_ms)

    def flow_reading(self, flow: str, now_s: float) -> FlowReading:
        """What a flow delivers now; all None for one that was never told of."""
        known = self._flows.get(flow)
        window = None if known is None else known.lost.window(now_s)
        if known is None or window is None:
            return UNKNOWN_FLOW
        lost = (window[1].frames - window[0].frames) / (window[1].time_s - window[0].time_s)
        return FlowReading(known.delivered.rate_mbps(now_s), lost)

    def link_bytes(self, link: str) -> tuple[int, str] | None:
        """Payload bytes that a link has carried since the first reading, which only grow, and where they are counted
        (PORT: with hello frames); None where nobody counts.
        """
        interface = self._interface(link)
        port = None if interface is None else self._ports.get(interface)
        if interface is not None and port is not None and len(self._leaving[interface]) == 1:
            return port.total_bytes, PORT
        return (self._carried[link], PATHS) if link in self._carried and link in self._links else None

    def bytes_of_links(self) -> dict[str, tuple[int, str]]:
        """:meth:`link_bytes` of all links of which somebody counts."""
        alone = (links[0] for interface, links in self._leaving.items() if len(links) == 1 and interface in self._ports)
        found = ((link, self.link_bytes(link)) for link in dict.fromkeys((*alone, *self._carried)))
        return {link: counted for link, counted in found if counted is not None}

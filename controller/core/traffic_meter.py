"""What links and paths really carry: counters of ports and agents and busy times of radios -> rates and busy shares.

Pure: time is an argument, and nothing of a plan comes in, so that nothing planned can come out. What is not measured,
or not any more, is None. All rates are at L2 payload (frames without their 14 bytes of Ethernet header), in Mb/s.

Who feeds it tells counters as they are read, about once a second (``runtime.telemetry``):

- :meth:`TrafficMeter.port`: what an interface sent and received, by its switch's port counters;
- :meth:`TrafficMeter.agents`: what the agents at the two ends of all paths sent and received on them, and what the
  agents at the ends of flows delivered and counted as lost;
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

*The busy share of a link.* Here only what a radio says at the busier end of the link ("radio" or "snmp"), else None.
Where no radio measures it, ``core.link_busy`` works it out from the rates of the link's interference domain.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from .estimate.busy_time import Interface
from .growth import FRESH_S, Counted, Growth
from .network import Link
from .path_columns import PathColumns, Totals

QUIET_MBPS = 0.1
SKEW = 0.1

PORT, PATHS = "port", "paths"
RADIO, SNMP, COUNTERS = "radio", "snmp", "counters"

PathKey = tuple[str, int]
"""Flow id and number of the path within the flow."""


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


Rate = tuple[float | None, str | None]
"""Mb/s, and where that is from."""


class Busy(NamedTuple):
    """A busy share, from 0 to 1, that an interface told."""

    share: float
    source: str
    time_s: float


class Snapshot(NamedTuple):
    """Measured figures of all links at one moment; ``reading`` gives the figures of any of them, by its id.

    In a large network most links are on no path, and all of these that leave one interface have the same rate, so that
    whoever shows all links needs to ask ``reading`` for few: for those in ``paths``, and those that leave an interface
    which ``idle`` does not name. ``idle`` are the rates of the others by the interface that they leave, ``busy`` the
    busy shares by interface; a link's is that of its busier end. ``unexplained`` is the traffic in Mb/s, by interface,
    that a port which several links leave has sent and no path over these links has.
    """

    idle: Mapping[Interface, Rate]
    unexplained: Mapping[Interface, float]
    busy: Mapping[Interface, Busy]
    paths: Collection[str]
    reading: Callable[[str], LinkReading]


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
        self._paths = PathColumns(self._links.values())
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

    def agents(self, told: Totals, now_s: float) -> Iterator[None]:
        """What agents counted on all flows and paths that there are; others are forgotten, but not what they carried.
        It is taken piece by piece, and others may run in between.
        """
        yield from self._paths.follow(told.flows)
        yield
        self._paths.sent(told.sent, now_s)
        yield
        self._paths.received(told.received, told.delay_ms, now_s)
        yield
        self._paths.delivered(told.delivered, told.lost, now_s)
        yield

    def sent_bytes(self, told: Totals) -> dict[Interface, int]:
        """How many bytes agents have sent in all, by the interface of their own that they left by; copies that are made
        on the way are not counted. After :meth:`agents`.
        """
        return self._paths.sent_bytes(told.sent)

    # -- what is known of it

    def snapshot(self, now_s: float) -> Snapshot:
        """What is known of all links now."""
        ports = {interface: port.rate_mbps(now_s) for interface, port in self._ports.items()}
        busy = {interface: each for interface, each in self._busy.items() if now_s - each.time_s <= FRESH_S}
        paths = self._paths.links_mbps(now_s)
        uncounted = [interface for interface in self._leaving if ports.get(interface) is None]
        asked = {self._ends[link][1] for interface in uncounted for link in self._leaving[interface]}
        received = {each: self._receivers[each].rate_mbps(now_s) for each in asked & self._receivers.keys()}
        known = _Known(ports, received, busy, paths, {self._interface(link) for link, mbps in paths.items() if mbps})
        idle = {each: self._of_port(each, mbps, None, known) for each, mbps in ports.items() if mbps is not None}
        rest = {each: self._unexplained(each, mbps, paths) for each, mbps in ports.items() if mbps is not None}
        unexplained = {each: mbps for each, mbps in rest.items() if mbps > 0.0}
        return Snapshot(idle, unexplained, busy, paths.keys(), lambda link: self._reading(link, known))

    def _unexplained(self, interface: Interface, port_mbps: float, paths: Mapping[str, float | None]) -> float:
        links = self._leaving[interface]
        if len(links) == 1 or port_mbps < QUIET_MBPS:
            return 0.0
        rest_mbps = port_mbps - sum(paths.get(link) or 0.0 for link in links)
        # Ports and agents are not read at the same moment.
        return rest_mbps if rest_mbps > SKEW * port_mbps else 0.0

    def links(self, names: Iterable[str], now_s: float) -> dict[str, LinkReading]:
        """:meth:`link` of all links with these ids."""
        now = self.snapshot(now_s)
        return {link: now.reading(link) for link in names}

    def link(self, link: str, now_s: float) -> LinkReading:
        """What a link carries now."""
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
        paths = self._paths.links_mbps(now_s)
        accounted = {self._interface(other) for other, mbps in paths.items() if mbps}
        return self._reading(link, _Known(ports, received, busy, paths, accounted))

    def _interface(self, link: str) -> Interface | None:
        known = self._links.get(link)
        return None if known is None else (known.source, known.technology)

    def _reading(self, link: str, known: _Known) -> LinkReading:
        found = self._links.get(link)
        if found is None:
            return UNKNOWN_LINK
        rate_mbps, rate_from = self._rate(found, known)
        leaving, arriving = self._ends[link]
        here, there = known.busy.get(leaving), known.busy.get(arriving)
        busiest = here if there is None or (here is not None and here.share >= there.share) else there
        if busiest is None:
            return LinkReading(rate_mbps, rate_from, None, None)
        return LinkReading(rate_mbps, rate_from, busiest.share, busiest.source)

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

    def path_reading(self, key: PathKey, now_s: float) -> PathReading:
        """What a path carries now; all None for one that was never told of."""
        flow, number = key
        found = self._paths.path(flow, number, now_s)
        if found is None:
            return UNKNOWN_PATH
        sent, received, delay_ms = found
        lost: float | None = None
        if sent is not None and received is not None and sent.frames > 0:
            _, given_up = self._paths.flow(flow, now_s)
            counts_none = given_up is not None and given_up.frames == 0
            # Each end by its own clock: reports are not of the same moment.
            arrived = (received.frames / received.over_s) / (sent.frames / sent.over_s)
            lost = 0.0 if counts_none else max(0.0, 1.0 - arrived)
        sent_mbps, delivered_mbps = (None if grown is None else grown.mbps for grown in (sent, received))
        return PathReading(sent_mbps, delivered_mbps, lost, delay_ms if received is not None else None)

    def flow_reading(self, flow: str, now_s: float) -> FlowReading:
        """What a flow delivers now; all None for one that was never told of."""
        delivered, lost = self._paths.flow(flow, now_s)
        if lost is None:
            return UNKNOWN_FLOW
        return FlowReading(None if delivered is None else delivered.mbps, lost.frames / lost.over_s)

    def link_bytes(self, link: str) -> tuple[int, str] | None:
        """Payload bytes that a link has carried since the first reading, which only grow, and where they are counted
        (PORT: with hello frames); None where nobody counts.
        """
        interface = self._interface(link)
        port = None if interface is None else self._ports.get(interface)
        if interface is not None and port is not None and len(self._leaving[interface]) == 1:
            return port.total_bytes, PORT
        carried = self._paths.carried(link)
        return None if carried is None else (carried, PATHS)

    def bytes_of_links(self) -> dict[str, tuple[int, str]]:
        """:meth:`link_bytes` of all links of which somebody counts."""
        alone = (links[0] for interface, links in self._leaving.items() if len(links) == 1 and interface in self._ports)
        found = ((link, self.link_bytes(link)) for link in dict.fromkeys((*alone, *self._paths.counted())))
        return {link: counted for link, counted in found if counted is not None}

"""The abstraction layer (AL) entity of IEEE Std 1905.1-2013: frames in, frames out, and what neighbours say of their
links. Pure; time is an argument.

It sends topology discoveries on each interface, answers queries about this access point, and queries each neighbour for
its interfaces and for capacity and idle time of its links (clauses 8.2 and 8.4). When a neighbour comes or goes it
sends a topology notification, and it relays each relayed multicast message once to its other interfaces (clause 7.2),
both at a bounded rate.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from hyroads.controller.core.token_bucket import TokenBucket

from .ieee1905 import (
    ETHERTYPE,
    GROUP,
    LINK_METRIC_QUERY,
    LINK_METRIC_RESPONSE,
    TOPOLOGY_DISCOVERY,
    TOPOLOGY_NOTIFICATION,
    TOPOLOGY_QUERY,
    TOPOLOGY_RESPONSE,
    Joiner,
    Message,
    write_message,
)
from .ieee1905_tlvs import (
    AlAddress,
    DeviceInformation,
    LocalInterface,
    MessageError,
    MetricQuery,
    MetricResult,
    Neighbours,
    SendingInterface,
    Tlv,
    TransmitterMetric,
    TransmitterMetrics,
)
from .model import mac_bytes

DISCOVERY_S = 60.0
TOPOLOGY_S = 60.0
METRICS_S = 5.0
FORGET_S = 3 * DISCOVERY_S
"""A neighbour that has sent nothing for this long is gone: it missed three of its own greetings."""
METRICS_FORGET_S = 3 * METRICS_S
"""What a neighbour said of its links counts for this long: busy times are of no use later."""
NOTIFY_EVERY_S = 1.0
RELAYS_PER_S = 20.0
MAX_SEEN = 256
SEEN_S = 60.0
"""A relayed message that comes again within this time is passed over; the last ``MAX_SEEN`` are remembered."""
MAX_PEERS = 256
MAX_LINKS_OF_PEER = 64
MAX_INTERFACES_OF_PEER = 32
ANSWERS_PER_S = 20.0
"""At most, so that queries do not make this access point flood its media."""
LINKS_PER_TLV = 32
UNKNOWN_PHY_MBPS = 0xFFFF
_ETHERNET_BYTES = 14
_GROUP_BIT = 1


@dataclass(frozen=True, slots=True)
class OwnInterface:
    """An interface of this access point; ``media_type`` as in :class:`.ieee1905_tlvs.LocalInterface`."""

    name: str
    mac: str
    media_type: int


@dataclass(frozen=True, slots=True)
class OwnLink:
    """What this access point knows of the link from an interface to a neighbour's."""

    capacity_mbps: float
    available_percent: int


@dataclass(frozen=True, slots=True)
class Frame:
    """A whole Ethernet frame, and the interface by which it leaves."""

    interface: str
    data: bytes


@dataclass(frozen=True, slots=True)
class DeviceLink:
    """What a device says of a link of its own; ``measured_s`` is when it said so."""

    interface: str
    neighbour_al: str
    neighbour_interface: str
    media_type: int
    capacity_mbps: int
    available_percent: int
    phy_mbps: int
    measured_s: float


@dataclass(frozen=True, slots=True)
class Hearing:
    """An interface here (by name) hears an interface of a neighbour (by address), last at ``heard_s``."""

    own: str
    interface: str
    heard_s: float


@dataclass(frozen=True, slots=True)
class Device:
    """A neighbour: its AL address, by which interfaces it is heard, when it sent last, and what it says of itself."""

    al: str
    hearings: tuple[Hearing, ...]
    heard_s: float
    interfaces: tuple[LocalInterface, ...] = ()
    links: tuple[DeviceLink, ...] = ()


@dataclass(slots=True)
class _Peer:
    device: Device
    topology_due_s: float
    metrics_due_s: float
    links: dict[tuple[str, str], DeviceLink] = field(default_factory=dict)
    asked_s: float = -math.inf
    """When a topology query was sent to it last."""


class AlEntity:
    """The entity of one access point.

    ``al`` is its AL address, ``link`` returns the measurements of the link from one of its interfaces (by name) to the
    interface of a neighbour (by address); None without any.
    """

    def __init__(
        self, al: str, interfaces: Sequence[OwnInterface], link: Callable[[str, str], OwnLink | None], now_s: float
    ) -> None:
        self.al = al
        self._interfaces = {interface.name: interface for interface in interfaces}
        self._link = link
        self._joiner = Joiner()
        self._peers: dict[str, _Peer] = {}
        self._number = 0
        self._discovery_due_s = now_s
        self._answers = TokenBucket(ANSWERS_PER_S, ANSWERS_PER_S)
        self._relays = TokenBucket(RELAYS_PER_S, RELAYS_PER_S)
        self._seen: OrderedDict[tuple[str, int, int], float] = OrderedDict()
        """Relayed messages by origin, type and number, and when each came first."""
        self._notify_due_s = math.inf
        self._notified_s = -math.inf

    def add(self, interface: OwnInterface, now_s: float) -> None:
        """An interface is there, or is back with perhaps another address; greetings leave by all at once."""
        self._interfaces[interface.name] = interface
        self._discovery_due_s = now_s

    def devices(self) -> tuple[Device, ...]:
        """All neighbours, in the order of their addresses."""
        return tuple(self._peers[al].device for al in sorted(self._peers))

    @property
    def due_s(self) -> float:
        """When :meth:`due` has something to send next."""
        peers = (min(p.topology_due_s, p.metrics_due_s) for p in self._peers.values())
        return min([self._discovery_due_s, self._notify_due_s, *peers])

    def due(self, now_s: float) -> list[Frame]:
        """The greetings and questions whose time has come; neighbours that are silent are forgotten."""
        gone = [al for al, peer in self._peers.items() if now_s - peer.device.heard_s > FORGET_S]
        for al in gone:
            del self._peers[al]
            self._neighbours_changed(now_s)
        frames: list[Frame] = []
        if now_s >= self._discovery_due_s:
            self._discovery_due_s = now_s + DISCOVERY_S
            for own in self._interfaces.values():
                greeting = (AlAddress(self.al), SendingInterface(own.mac))
                frames += self._frames(own.name, GROUP, Message(TOPOLOGY_DISCOVERY, self._next(), greeting))
        if now_s >= self._notify_due_s:
            self._notify_due_s, self._notified_s = math.inf, now_s
            news = Message(TOPOLOGY_NOTIFICATION, self._next(), (AlAddress(self.al),), is_relayed=True)
            frames += (each for name in self._interfaces for each in self._frames(name, GROUP, news))
        for al, peer in self._peers.items():
            if now_s >= peer.topology_due_s:
                peer.topology_due_s, peer.asked_s = now_s + TOPOLOGY_S, now_s
                frames += self._frames(peer.device.hearings[-1].own, al, Message(TOPOLOGY_QUERY, self._next()))
            if now_s >= peer.metrics_due_s:
                peer.metrics_due_s = now_s + METRICS_S
                query = Message(LINK_METRIC_QUERY, self._next(), (MetricQuery(None),))
                frames += self._frames(peer.device.hearings[-1].own, al, query)
                self._forget_metrics(peer, now_s)
        return frames

    def received(self, interface: str, frame: bytes, now_s: float) -> list[Frame]:
        """The answers to a frame that came in by an interface; :class:`MessageError` if it cannot be read.

        Frames of other protocols, own ones, and those for other devices are passed over.
        """
        if len(frame) < _ETHERNET_BYTES or int.from_bytes(frame[12:14], "big") != ETHERTYPE:
            return []
        destination, source = frame[:6].hex(":"), frame[6:12].hex(":")
        own = self._interfaces.get(interface)
        if own is None or destination not in (GROUP, self.al, own.mac) or source in (own.mac, self.al):
            return []
        message = self._joiner.received(source, frame[_ETHERNET_BYTES:], now_s)
        if message is None or (message.is_relayed and not self._is_first(source, message, now_s)):
            return []
        frames = self._handled(interface, source, message, now_s)
        return frames + (self._relayed(interface, message, now_s) if message.is_relayed else [])

    def _is_first(self, source: str, message: Message, now_s: float) -> bool:
        """Whether a relayed message did not come before, by whichever way; own ones that come back did."""
        origin = _origin(message) or source
        while self._seen and next(iter(self._seen.values())) < now_s - SEEN_S:
            self._seen.popitem(last=False)
        key = (origin, message.kind, message.number)
        if origin == self.al or key in self._seen:
            return False
        if len(self._seen) >= MAX_SEEN:
            self._seen.popitem(last=False)
        self._seen[key] = now_s
        return True

    def _relayed(self, interface: str, message: Message, now_s: float) -> list[Frame]:
        """A message for all other interfaces, at most 20 messages a second."""
        if not self._relays.take(now_s):
            return []
        onward = (name for name in self._interfaces if name != interface)
        return [each for name in onward for each in self._frames(name, GROUP, message)]

    def _handled(self, interface: str, source: str, message: Message, now_s: float) -> list[Frame]:
        if message.kind == TOPOLOGY_DISCOVERY:
            self._discovered(interface, message, now_s)
        elif message.kind in (TOPOLOGY_RESPONSE, LINK_METRIC_RESPONSE):
            self._answered(source, message, now_s)
        elif message.kind == TOPOLOGY_NOTIFICATION:
            self._notified(message, now_s)
        elif message.kind == TOPOLOGY_QUERY and self._answers.take(now_s):
            answer = Message(TOPOLOGY_RESPONSE, message.number, self._topology())
            return self._frames(interface, source, answer)
        elif message.kind == LINK_METRIC_QUERY and self._answers.take(now_s):
            answer = Message(LINK_METRIC_RESPONSE, message.number, self._metrics(message))
            return self._frames(interface, source, answer)
        return []

    def _notified(self, message: Message, now_s: float) -> None:
        """The neighbours of a neighbour changed: ask it soon, at most once a second."""
        peer = self._peers.get(_origin(message) or "")
        if peer is not None:
            soon_s = max(now_s, peer.asked_s + NOTIFY_EVERY_S)
            peer.topology_due_s = min(peer.topology_due_s, soon_s)
            peer.metrics_due_s = min(peer.metrics_due_s, peer.topology_due_s)

    def _neighbours_changed(self, now_s: float) -> None:
        self._notify_due_s = min(self._notify_due_s, max(now_s, self._notified_s + NOTIFY_EVERY_S))

    def _discovered(self, interface: str, message: Message, now_s: float) -> None:
        al = next((tlv.al for tlv in message.tlvs if isinstance(tlv, AlAddress)), None)
        mac = next((tlv.mac for tlv in message.tlvs if isinstance(tlv, SendingInterface)), None)
        if al is None or mac is None or any(mac_bytes(a)[0] & _GROUP_BIT for a in (al, mac)):
            raise MessageError("IEEE 1905.1: a topology discovery without the addresses of its sender")
        if al == self.al:
            return
        peer, hearing = self._peers.get(al), Hearing(interface, mac, now_s)
        if peer is not None:
            recent = (h for h in peer.device.hearings if h.own != interface and now_s - h.heard_s <= FORGET_S)
            peer.device = replace(peer.device, hearings=(*recent, hearing), heard_s=now_s)
        elif len(self._peers) >= MAX_PEERS:
            raise MessageError(f"IEEE 1905.1: more than {MAX_PEERS} neighbours; further ones are passed over")
        else:
            self._peers[al] = _Peer(Device(al, (hearing,), now_s), now_s, now_s)
            self._neighbours_changed(now_s)

    def _answered(self, source: str, message: Message, now_s: float) -> None:
        """Takes in what a neighbour says of itself; what it says of other devices is passed over."""
        for tlv in message.tlvs:
            if isinstance(tlv, DeviceInformation | TransmitterMetrics):
                peer = self._peers.get(tlv.al)
                if peer is None or source not in (tlv.al, *(h.interface for h in peer.device.hearings)):
                    continue
                if isinstance(tlv, DeviceInformation):
                    peer.device = replace(
                        peer.device, interfaces=tlv.interfaces[:MAX_INTERFACES_OF_PEER], heard_s=now_s
                    )
                else:
                    self._measured(peer, tlv, now_s)

    def _measured(self, peer: _Peer, metrics: TransmitterMetrics, now_s: float) -> None:
        self._forget_metrics(peer, now_s)
        for each in metrics.links:
            key = each.interface, each.neighbour_interface
            if key in peer.links or len(peer.links) < MAX_LINKS_OF_PEER:
                peer.links[key] = DeviceLink(
                    each.interface,
                    metrics.neighbour_al,
                    each.neighbour_interface,
                    each.media_type,
                    each.capacity_mbps,
                    min(each.available_percent, 100),
                    each.phy_mbps,
                    now_s,
                )
        peer.device = replace(peer.device, links=tuple(peer.links.values()), heard_s=now_s)

    @staticmethod
    def _forget_metrics(peer: _Peer, now_s: float) -> None:
        old = [key for key, link in peer.links.items() if now_s - link.measured_s > METRICS_FORGET_S]
        for key in old:
            del peer.links[key]
        if old:
            peer.device = replace(peer.device, links=tuple(peer.links.values()))

    def _topology(self) -> tuple[Tlv, ...]:
        mine = tuple(LocalInterface(own.mac, own.media_type) for own in self._interfaces.values())
        found: list[Tlv] = [DeviceInformation(self.al, mine)]
        for own in self._interfaces.values():
            als = [(al, False) for al, peer in self._peers.items() if own.name in {h.own for h in peer.device.hearings}]
            found += (Neighbours(own.mac, tuple(part)) for part in _parts(als, LINKS_PER_TLV))
        return tuple(found)

    def _metrics(self, message: Message) -> tuple[Tlv, ...]:
        query = next((tlv for tlv in message.tlvs if isinstance(tlv, MetricQuery)), None)
        if query is None:
            raise MessageError("IEEE 1905.1: a link metric query that does not say which links")
        if query.al is not None and query.al not in self._peers:
            return (MetricResult(0),)
        wanted = [query.al] if query.al is not None else list(self._peers)
        return tuple(
            TransmitterMetrics(self.al, al, links)
            for al in wanted
            if (links := tuple(filter(None, map(self._metric, self._peers[al].device.hearings))))
        )

    def _metric(self, hearing: Hearing) -> TransmitterMetric | None:
        own = self._interfaces[hearing.own]
        known = self._link(own.name, hearing.interface)
        if known is None:
            return None
        return TransmitterMetric(
            own.mac,
            hearing.interface,
            own.media_type,
            has_bridge=False,
            errors=0,
            packets=0,
            capacity_mbps=min(math.floor(known.capacity_mbps), 0xFFFF),
            available_percent=known.available_percent,
            phy_mbps=UNKNOWN_PHY_MBPS,
        )

    def _next(self) -> int:
        """The number of a message that is no answer; an answer has that of its question."""
        self._number = (self._number + 1) & 0xFFFF
        return self._number

    def _frames(self, interface: str, destination: str, message: Message) -> list[Frame]:
        head = mac_bytes(destination) + mac_bytes(self._interfaces[interface].mac) + ETHERTYPE.to_bytes(2, "big")
        payloads = write_message(message)
        return [Frame(interface, (head + payload).ljust(60, b"\0")) for payload in payloads]


def _origin(message: Message) -> str | None:
    """The AL address of the device that a message comes from, as it says."""
    return next((tlv.al for tlv in message.tlvs if isinstance(tlv, AlAddress)), None)


def _parts(items: Sequence[tuple[str, bool]], size: int) -> Iterator[Sequence[tuple[str, bool]]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]

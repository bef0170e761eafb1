"""Membership of multicast groups: what hosts and queriers say in IGMP and MLD frames, and our own querier. Pure.

*Frames*: IGMP (RFC 1112, 2236, 3376) and MLD (RFC 2710, 3810). They come from anybody: every length is bounded, and
what is not a sound message is none. Sources are not told apart: who wants some sources of a group wants the group.

*Querier*: one per address family for the whole network, which to hosts is one link. It asks a few times when it begins,
then once in an interval; while another querier with a lower address is heard it is quiet. Queries are those of IGMPv3
and MLDv2, which older hosts take for their own (RFC 3376, section 7.2.1; RFC 3810, section 8.2.1).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, IPv6Address
from struct import Struct, pack

from .sightings import IPV4, IPV6, packet_of

MAC = "02:00:02:00:00:00"
"""Queries come from here; no interface of the network has this address (core.addressing)."""
LINK_LOCAL = IPv6Address("fe80::2ff:fe00:0")
"""The address of MLD's querier: what becomes of :data:`MAC` by EUI-64."""
ALL_HOSTS, ALL_NODES = "01:00:5e:00:00:01", "33:33:00:00:00:01"
# Another querier may ask as seldom as this; what says more is none that a network could rely on.
MAX_INTERVAL_S = 1000.0
MAX_ROBUSTNESS = 7
_SMALLEST_FRAME = 60

Address = IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True)
class QueryTimes:
    """RFC 3376, section 8: how often is asked, how long hosts may wait with their answer, how many may be lost."""

    interval_s: float = 125.0
    response_s: float = 10.0
    robustness: int = 2

    @property
    def membership_s(self) -> float:
        """A host that was not heard for so long wants nothing any more."""
        return self.robustness * self.interval_s + self.response_s

    @property
    def other_present_s(self) -> float:
        """So long after its last query another querier counts as present."""
        return self.robustness * self.interval_s + self.response_s / 2

    @property
    def startup_interval_s(self) -> float:
        """Between the first queries."""
        return self.interval_s / 4


@dataclass(frozen=True, slots=True)
class Query:
    """Somebody's query; what it says of its times, if it says anything (IGMPv3, MLDv2)."""

    source: Address
    interval_s: float | None = None
    robustness: int | None = None


@dataclass(frozen=True, slots=True)
class Querier:
    """``due_s`` is when the next query goes out; ``other`` who asks instead of us, until ``quiet_until_s``."""

    address: Address
    times: QueryTimes
    due_s: float
    first_left: int
    other: Address | None = None
    quiet_until_s: float = 0.0
    other_times: QueryTimes = field(default_factory=QueryTimes)

    @property
    def membership_s(self) -> float:
        """How long a report counts, as whoever asks asks."""
        return (self.times if self.other is None else self.other_times).membership_s


def begun(address: Address, times: QueryTimes, now_s: float) -> Querier:
    """Asks at once."""
    return Querier(address, times, now_s, times.robustness)


def heard(querier: Querier, query: Query, now_s: float) -> Querier:
    """Another querier asked: the lower address goes on (RFC 3376, section 6.6.2)."""
    if not _precedes(query.source, querier.address):
        return querier
    own = querier.times
    interval_s = min(query.interval_s or own.interval_s, MAX_INTERVAL_S)
    times = replace(own, interval_s=interval_s, robustness=query.robustness or own.robustness)
    return replace(querier, other=query.source, other_times=times, quiet_until_s=now_s + times.other_present_s)


def turned(querier: Querier, now_s: float) -> tuple[Querier, bool]:
    """The state at this time, and whether a query is to be sent now."""
    if querier.other is not None:
        if now_s < querier.quiet_until_s:
            return querier, False
        querier = replace(querier, other=None, due_s=now_s)
    if now_s < querier.due_s:
        return querier, False
    left, times = max(0, querier.first_left - 1), querier.times
    wait_s = times.startup_interval_s if left else times.interval_s
    return replace(querier, due_s=now_s + wait_s, first_left=left), True


def _precedes(other: Address, own: Address) -> bool:
    """Whoever has no address asks for want of anybody better (RFC 4541, section 2.1.1)."""
    if other.is_unspecified or own.is_unspecified:
        return not other.is_unspecified
    return int(other) < int(own)


# -- frames


def query_frame(querier: Querier, to_mac: str | None = None) -> bytes:
    """A general query to all hosts behind a port, or to one host: group frames are lost on media of radios."""
    is_v4 = querier.address.version == 4
    packet = _igmp_query(querier) if is_v4 else _mld_query(querier)
    target = to_mac or (ALL_HOSTS if is_v4 else ALL_NODES)
    head = bytes.fromhex((target + MAC).replace(":", "")) + (b"\x08\x00" if is_v4 else b"\x86\xdd")
    return (head + packet).ljust(_SMALLEST_FRAME, b"\0")


def _igmp_query(querier: Querier) -> bytes:
    times = querier.times
    body = pack("!BBH4sBBH", 0x11, _code(10 * times.response_s, 8), 0, b"\0" * 4, *_said(times), 0)
    body = body[:2] + checksum(body) + body[4:]
    # TTL 1, precedence internetwork control, and the router alert option.
    options, target = b"\x94\x04\0\0", IPv4Address("224.0.0.1")
    head = pack("!BBHHHBBH", 0x46, 0xC0, 24 + len(body), 0, 0, 1, 2, 0) + querier.address.packed + target.packed
    head = head[:10] + checksum(head + options) + head[12:]
    return head + options + body


def _mld_query(querier: Querier) -> bytes:
    times, target = querier.times, IPv6Address("ff02::1")
    body = pack("!BBHHH16sBBH", 130, 0, 0, _code(1000 * times.response_s, 16), 0, b"\0" * 16, *_said(times), 0)
    pseudo = querier.address.packed + target.packed + pack("!II", len(body), 58)
    body = body[:2] + checksum(pseudo + body) + body[4:]
    hop_by_hop = b"\x3a\0\x05\x02\0\0\x01\0"
    head = pack("!IHBB", 6 << 28, len(hop_by_hop) + len(body), 0, 1)
    return head + querier.address.packed + target.packed + hop_by_hop + body


def _said(times: QueryTimes) -> tuple[int, int]:
    """Robustness (0: more than fits) and interval, as they stand in a query."""
    return times.robustness if times.robustness <= MAX_ROBUSTNESS else 0, _code(times.interval_s, 8)


def _code(value: float, bits: int) -> int:
    """A number, or from half of the field's range on a floating point one (RFC 3376, 4.1.1; RFC 3810, 5.1.3)."""
    digits = 4 if bits == 8 else 12
    whole, top = max(1, round(value)), 1 << (bits - 1)
    if whole < top:
        return whole
    exponent = min(whole.bit_length() - digits - 4, 7)
    return top | exponent << digits | min(whole >> (exponent + 3), (2 << digits) - 1) & ((1 << digits) - 1)


def decoded(code: int, bits: int) -> int:
    """What :func:`_code` encodes."""
    digits = 4 if bits == 8 else 12
    if code < 1 << (bits - 1):
        return code
    return (code & ((1 << digits) - 1) | 1 << digits) << ((code >> digits & 7) + 3)


def checksum(data: bytes) -> bytes:
    """The Internet's (RFC 1071)."""
    data += b"\0" * (len(data) % 2)
    total = sum(int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return (~total & 0xFFFF).to_bytes(2, "big")


MAX_RECORDS = 64
_IGMP, _ICMPV6, _HOP_BY_HOP = 2, 58, 0
_IGMP_V1_REPORT, _IGMP_V2_REPORT, _IGMP_LEAVE, _IGMP_V3_REPORT = 0x12, 0x16, 0x17, 0x22
_MLD_REPORT, _MLD_DONE, _MLD_V2_REPORT = 131, 132, 143
_IGMP_QUERY, _MLD_QUERY = 0x11, 130
# Types of records (RFC 3376, section 4.2.12). Blocking some sources leaves the others; without sources it says nothing.
_IS_INCLUDE, _IS_EXCLUDE, _TO_INCLUDE, _TO_EXCLUDE, _ALLOW = 1, 2, 3, 4, 5
_RECORD = Struct("!BBH")


@dataclass(frozen=True, slots=True)
class Report:
    """The host with this MAC wants the frames of a group, or does not want them any more. ``for_all``: whoever hears it
    and speaks the same version keeps its own report back (IGMPv1 and v2, MLDv1).
    """

    mac: str
    group: str
    joins: bool
    for_all: bool = False


def reports(frame: bytes) -> tuple[Report, ...]:
    """What an Ethernet frame says of groups; nothing if it is no sound report."""
    kind, packet = packet_of(frame)
    said = _of_igmp(_igmp(packet)) if kind == IPV4 else _of_mld(_mld(packet)) if kind == IPV6 else ()
    mac = frame[6:12].hex(":")
    return tuple(Report(mac, *one) for one in said)


def query_of(frame: bytes) -> Query | None:
    """What a querier asks in an Ethernet frame; None if it is no sound query."""
    kind, packet = packet_of(frame)
    if kind == IPV4:
        body = _igmp(packet)
        is_query = len(body) >= 8 and body[0] == _IGMP_QUERY
        return _query(IPv4Address(packet[12:16]), body[8:10]) if is_query else None
    if kind == IPV6:
        body = _mld(packet)
        source = IPv6Address(packet[8:24]) if len(body) >= 24 and body[0] == _MLD_QUERY else None
        # From elsewhere, or passed on by a router: RFC 3810, section 5.1.14.
        is_near = source is not None and source.is_link_local and packet[7] == 1
        return _query(source, body[24:26]) if source is not None and is_near else None
    return None


def _query(source: IPv4Address | IPv6Address, times: bytes) -> Query | None:
    if source.is_multicast or len(times) < 2:
        return None if source.is_multicast else Query(source)
    return Query(source, float(decoded(times[1], 8)) or None, times[0] & MAX_ROBUSTNESS or None)


Said = tuple[str, bool, bool]
"""Group, whether it is wanted, whether others keep their reports back."""


def _igmp(packet: bytes) -> bytes:
    """The IGMP message in an IPv4 packet."""
    if len(packet) < 20 or packet[0] >> 4 != 4 or packet[9] != _IGMP:
        return b""
    length, total = 4 * (packet[0] & 15), int.from_bytes(packet[2:4], "big")
    return packet[length:total] if length >= 20 else b""


def _mld(packet: bytes) -> bytes:
    """The ICMPv6 message in an IPv6 packet."""
    if len(packet) < 40 or packet[0] >> 4 != 6:
        return b""
    following, body = packet[6], packet[40 : 40 + int.from_bytes(packet[4:6], "big")]
    if following == _HOP_BY_HOP and len(body) >= 8:
        # MLD always has one, for the router alert.
        following, body = body[0], body[8 + 8 * body[1] :]
    return body if following == _ICMPV6 else b""


def _of_igmp(body: bytes) -> tuple[Said, ...]:
    if len(body) < 8:
        return ()
    if body[0] in (_IGMP_V1_REPORT, _IGMP_V2_REPORT, _IGMP_LEAVE):
        group, joins = IPv4Address(body[4:8]), body[0] != _IGMP_LEAVE
        return ((str(group), joins, joins),) if group.is_multicast else ()
    return tuple(_records(body, 4)) if body[0] == _IGMP_V3_REPORT else ()


def _of_mld(body: bytes) -> tuple[Said, ...]:
    if len(body) < 8:
        return ()
    if body[0] in (_MLD_REPORT, _MLD_DONE) and len(body) >= 24:
        group, joins = IPv6Address(body[8:24]), body[0] == _MLD_REPORT
        return ((str(group), joins, joins),) if group.is_multicast else ()
    return tuple(_records(body, 16)) if body[0] == _MLD_V2_REPORT else ()


def _records(body: bytes, size: int) -> Iterator[Said]:
    """The group records of a report of IGMPv3 or MLDv2; ``size`` is that of an address."""
    at = 8
    for _ in range(min(int.from_bytes(body[6:8], "big"), MAX_RECORDS)):
        if at + 4 + size > len(body):
            return
        kind, extra, sources = _RECORD.unpack_from(body, at)
        address = body[at + 4 : at + 4 + size]
        group = IPv4Address(address) if size == 4 else IPv6Address(address)
        at += 4 + size + size * sources + 4 * extra
        if not group.is_multicast or at > len(body):
            return
        if kind in (_IS_EXCLUDE, _TO_EXCLUDE) or (kind in (_IS_INCLUDE, _TO_INCLUDE, _ALLOW) and sources):
            yield str(group), True, False
        elif kind in (_IS_INCLUDE, _TO_INCLUDE):
            yield str(group), False, False

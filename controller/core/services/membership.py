"""What hosts say of groups: IGMP (RFC 1112, 2236, 3376) and MLD (RFC 2710, 3810) reports, and what queriers ask, read
from frames. Pure.

Frames come from anybody: every length is bounded, and what is not a sound message is none. Sources are not told apart:
a host that wants some sources of a group wants the group.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from struct import Struct

from hyroads.controller.core.services.querier import MAX_ROBUSTNESS, Query, decoded

MAX_RECORDS = 64
_IPV4, _IPV6, _VLAN_TAGS = 0x0800, 0x86DD, (0x8100, 0x88A8)
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
    kind, packet = _packet(frame)
    said = _of_igmp(_igmp(packet)) if kind == _IPV4 else _of_mld(_mld(packet)) if kind == _IPV6 else ()
    mac = frame[6:12].hex(":")
    return tuple(Report(mac, *one) for one in said)


def query_of(frame: bytes) -> Query | None:
    """What a querier asks in an Ethernet frame; None if it is no sound query."""
    kind, packet = _packet(frame)
    if kind == _IPV4:
        body = _igmp(packet)
        is_query = len(body) >= 8 and body[0] == _IGMP_QUERY
        return _query(IPv4Address(packet[12:16]), body[8:10]) if is_query else None
    if kind == _IPV6:
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


def _packet(frame: bytes) -> tuple[int, bytes]:
    """The EtherType behind VLAN tags, and what follows."""
    if len(frame) < 14 or frame[6] & 1:
        return 0, b""
    at, kind = 12, int.from_bytes(frame[12:14], "big")
    for _ in range(2):
        if kind in _VLAN_TAGS:
            at += 4
            kind = int.from_bytes(frame[at : at + 2], "big")
    return kind, frame[at + 2 :]


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

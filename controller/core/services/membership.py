"""What hosts say of groups: IGMP (RFC 1112, 2236, 3376) and MLD (RFC 2710, 3810) reports, read from frames. Pure.

Frames come from anybody: every length is bounded, and what is not a sound report is none. Sources are not told apart: a
host that wants some sources of a group wants the group.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from struct import Struct

MAX_RECORDS = 64
_IPV4, _IPV6, _VLAN_TAGS = 0x0800, 0x86DD, (0x8100, 0x88A8)
_IGMP, _ICMPV6, _HOP_BY_HOP = 2, 58, 0
_IGMP_V1_REPORT, _IGMP_V2_REPORT, _IGMP_LEAVE, _IGMP_V3_REPORT = 0x12, 0x16, 0x17, 0x22
_MLD_REPORT, _MLD_DONE, _MLD_V2_REPORT = 131, 132, 143
# Types of records (RFC 3376, section 4.2.12). Blocking some sources leaves the others; without sources it says nothing.
_IS_INCLUDE, _IS_EXCLUDE, _TO_INCLUDE, _TO_EXCLUDE, _ALLOW = 1, 2, 3, 4, 5
_RECORD = Struct("!BBH")


@dataclass(frozen=True, slots=True)
class Report:
    """The host with this MAC wants the frames of a group, or does not want them any more."""

    mac: str
    group: str
    joins: bool


def reports(frame: bytes) -> tuple[Report, ...]:
    """What an Ethernet frame says of groups; nothing if it is no sound report."""
    if len(frame) < 14 or frame[6] & 1:
        return ()
    at, kind = 12, int.from_bytes(frame[12:14], "big")
    for _ in range(2):
        if kind in _VLAN_TAGS:
            at += 4
            kind = int.from_bytes(frame[at : at + 2], "big")
    mac, packet = frame[6:12].hex(":"), frame[at + 2 :]
    said = _of_ipv4(packet) if kind == _IPV4 else _of_ipv6(packet) if kind == _IPV6 else ()
    return tuple(Report(mac, group, joins) for group, joins in said)


Said = tuple[str, bool]


def _of_ipv4(packet: bytes) -> tuple[Said, ...]:
    if len(packet) < 20 or packet[0] >> 4 != 4 or packet[9] != _IGMP:
        return ()
    length, total = 4 * (packet[0] & 15), int.from_bytes(packet[2:4], "big")
    body = packet[length:total]
    if length < 20 or len(body) < 8:
        return ()
    if body[0] in (_IGMP_V1_REPORT, _IGMP_V2_REPORT, _IGMP_LEAVE):
        group = IPv4Address(body[4:8])
        return ((str(group), body[0] != _IGMP_LEAVE),) if group.is_multicast else ()
    return tuple(_records(body, 4)) if body[0] == _IGMP_V3_REPORT else ()


def _of_ipv6(packet: bytes) -> tuple[Said, ...]:
    if len(packet) < 40 or packet[0] >> 4 != 6:
        return ()
    following, body = packet[6], packet[40 : 40 + int.from_bytes(packet[4:6], "big")]
    if following == _HOP_BY_HOP and len(body) >= 8:
        # MLD always has one, for the router alert.
        following, body = body[0], body[8 + 8 * body[1] :]
    if following != _ICMPV6 or len(body) < 8:
        return ()
    if body[0] in (_MLD_REPORT, _MLD_DONE) and len(body) >= 24:
        group = IPv6Address(body[8:24])
        return ((str(group), body[0] == _MLD_REPORT),) if group.is_multicast else ()
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
            yield str(group), True
        elif kind in (_IS_INCLUDE, _TO_INCLUDE):
            yield str(group), False

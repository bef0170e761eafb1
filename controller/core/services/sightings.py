"""What a frame of a host claims: addresses by ARP, neighbour discovery and DHCP. Pure, bounded, never raises."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from ipaddress import IPv4Address, IPv6Address
from struct import unpack_from

_ARP, IPV4, IPV6 = 0x0806, 0x0800, 0x86DD
_VLANS = (0x8100, 0x88A8)
_UDP, _ICMPV6 = 17, 58
_SOLICITATIONS, _ADVERTISEMENT = (133, 135), 136
_OF_ROUTERS = (134, 137)
_EXTENSIONS = (0, 43, 60)
"""Hop-by-hop options, routing, destination options: what Open vSwitch looks behind, too."""
_AUTHENTICATION = 51
_MAX_EXTENSIONS = 16
_DHCP_MAGIC = b"\x63\x82\x53\x63"
_DHCP_TYPE, _DHCP_END, _DHCP_PAD, _DHCP_ACK = 53, 255, 0, 5
_MAX_OPTIONS = 64


class By(Enum):
    """How an address is claimed."""

    ARP = "ARP"
    DISCOVERY = "neighbour discovery"
    DHCP = "DHCP"
    """A server gave it to ``mac``."""


@dataclass(frozen=True, slots=True)
class Claim:
    """``mac`` has ``ip``."""

    mac: str
    ip: str
    by: By


@dataclass(frozen=True, slots=True)
class Sighting:
    """A frame's sender, what it claims, and whether it speaks as a DHCP server, or as an IPv6 router (by
    advertisements or redirects).
    """

    mac: str
    claims: tuple[Claim, ...] = ()
    serves_dhcp: bool = False
    routes: bool = False


def sighting_of(frame: bytes) -> Sighting | None:
    """What is seen in a frame; None if its sender has no address of an interface."""
    if len(frame) < 14 or frame[6] & 1 or not any(frame[6:12]):
        return None
    mac, (kind, body) = frame[6:12].hex(":"), packet_of(frame)
    if kind == _ARP:
        return Sighting(mac, tuple(_arp(mac, body)))
    if kind == IPV4:
        return _ipv4(mac, body)
    return _ipv6(mac, body) if kind == IPV6 else Sighting(mac)


def packet_of(frame: bytes) -> tuple[int, bytes]:
    """The EtherType of an Ethernet frame behind up to two VLAN tags, and what follows; 0 without a sound sender."""
    if len(frame) < 14 or frame[6] & 1:
        return 0, b""
    offset = 12
    while offset < 20 and _u16(frame, offset) in _VLANS:
        offset += 4
    return max(0, _u16(frame, offset)), frame[offset + 2 :]


def _arp(mac: str, body: bytes) -> Iterator[Claim]:
    """Of the sender alone: an answer for others (proxy ARP) claims their addresses for itself."""
    if len(body) >= 28 and body[:6] == b"\0\1\x08\0\6\4" and any(body[14:18]):
        yield Claim(mac, str(IPv4Address(body[14:18])), By.ARP)


def _ipv4(mac: str, body: bytes) -> Sighting:
    header = (body[0] & 15) * 4 if body else 0
    # Only the first fragment has ports.
    if header < 20 or len(body) < header + 8 or body[9] != _UDP or _u16(body, 6) & 0x1FFF:
        return Sighting(mac)
    if _u16(body, header) != 67 and _u16(body, header + 2) != 68:
        return Sighting(mac)
    return Sighting(mac, tuple(_dhcp(body[header + 8 :])), serves_dhcp=True)


def _dhcp(message: bytes) -> Iterator[Claim]:
    """An acknowledgement of a server: who has which address from now on."""
    if len(message) < 240 or message[:3] != b"\2\1\6" or message[236:240] != _DHCP_MAGIC:
        return
    if _dhcp_type(message) == _DHCP_ACK and any(message[16:20]) and not message[28] & 1 and any(message[28:34]):
        yield Claim(message[28:34].hex(":"), str(IPv4Address(message[16:20])), By.DHCP)


def _dhcp_type(message: bytes) -> int | None:
    offset = 240
    for _ in range(_MAX_OPTIONS):
        if offset + 1 >= len(message) or message[offset] == _DHCP_END:
            return None
        if message[offset] == _DHCP_PAD:
            offset += 1
            continue
        if message[offset] == _DHCP_TYPE and message[offset + 1] == 1 and offset + 2 < len(message):
            return message[offset + 2]
        offset += 2 + message[offset + 1]
    return None


def _ipv6(mac: str, body: bytes) -> Sighting:
    if len(body) < 48 or body[0] >> 4 != 6:
        return Sighting(mac)
    protocol, payload = _behind_extensions(body)
    if protocol == _UDP:
        return Sighting(mac, serves_dhcp=_u16(payload, 0) == 547 or _u16(payload, 2) == 546)
    if protocol != _ICMPV6 or not payload:
        return Sighting(mac)
    if payload[0] in _OF_ROUTERS:
        return Sighting(mac, routes=True)
    source, target = body[8:24], payload[8:24]
    # A solicitation without a source asks whether an address is free.
    claimed = source if payload[0] in _SOLICITATIONS else target if payload[0] == _ADVERTISEMENT else b""
    if len(claimed) < 16 or not any(claimed) or claimed[0] == 0xFF:
        return Sighting(mac)
    return Sighting(mac, (Claim(mac, str(IPv6Address(claimed)), By.DISCOVERY),))


def _behind_extensions(body: bytes) -> tuple[int, bytes]:
    """The protocol of an IPv6 packet and what follows its extension headers (RFC 8200, section 4)."""
    protocol, offset = body[6], 40
    for _ in range(_MAX_EXTENSIONS):
        if protocol in _EXTENSIONS and offset + 2 <= len(body):
            protocol, offset = body[offset], offset + 8 * (body[offset + 1] + 1)
        elif protocol == _AUTHENTICATION and offset + 2 <= len(body):
            protocol, offset = body[offset], offset + 4 * (body[offset + 1] + 2)
        else:
            break
    return protocol, body[offset:]


def _u16(data: bytes, offset: int) -> int:
    return int(unpack_from("!H", data, offset)[0]) if offset + 2 <= len(data) else -1

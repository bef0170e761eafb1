"""Forms in which a host may send ARP, neighbour and router discovery, and DHCP to get past rules that look for them."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

ARP, IPV4, IPV6, VLAN, SERVICE_VLAN = 0x0806, 0x0800, 0x86DD, 0x8100, 0x88A8
UDP, ICMPV6, HOP_BY_HOP, ROUTING, FRAGMENT, DESTINATION = 17, 58, 0, 43, 44, 60
SOLICIT_ROUTER, ADVERTISE_ROUTER, SOLICIT, ADVERTISE, REDIRECT = 133, 134, 135, 136, 137
ALL_NODES, ROUTER = "ff02::1", "fe80::1"
OPTIONS = b"\x01\x04\0\0\0\0"
"""Padding that fills an extension header of 8 bytes."""
Frame = tuple[int, bytes]
"""EtherType and what follows it."""


@dataclass(frozen=True)
class Disguise:
    """Frames to send; a host takes nothing from them unless the one with ``key`` arrives."""

    name: str
    frames: tuple[Frame, ...]
    key: bytes


def mac_bytes(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))


def ipv4(protocol: int, data: bytes, *, fragment: int = 0, number: int = 0, options: bytes = b"") -> Frame:
    """A broadcast packet; ``fragment`` has the flag 0x2000 and the offset in units of 8 bytes."""
    size = 20 + len(options)
    first = 0x40 | size // 4
    head = struct.pack(
        "!BBHHHBBH4s4s", first, 0, size + len(data), number, fragment, 64, protocol, 0, bytes(4), b"\xff" * 4
    )
    return IPV4, head + options + data


def ipv6(first: int, data: bytes, source: str = ROUTER, target: str = ALL_NODES) -> Frame:
    """A packet whose first header behind IPv6's own is ``first``."""
    ends = socket.inet_pton(socket.AF_INET6, source) + socket.inet_pton(socket.AF_INET6, target)
    return IPV6, struct.pack("!IHBB", 0x60000000, len(data), first, 255) + ends + data


def behind(headers: tuple[int, ...], upper: int, data: bytes) -> tuple[int, bytes]:
    """Extension headers of 8 bytes in front of ``data``: the kind of the first of them, and all bytes."""
    for kind in reversed(headers):
        upper, data = kind, bytes((upper, 0)) + OPTIONS + data
    return upper, data


def fragments6(first: int, data: bytes, at: int, number: int, source: str = ROUTER) -> tuple[Frame, Frame]:
    """Two fragments of what begins with a header of kind ``first``; the second one begins at byte ``at``."""
    parts = ((1, data[:at]), (at, data[at:]))
    one, two = (ipv6(FRAGMENT, struct.pack("!BBHI", first, 0, offset, number) + part, source) for offset, part in parts)
    return one, two


def fragments4(protocol: int, data: bytes, at: int, number: int, options: bytes = b"") -> tuple[Frame, Frame]:
    one = ipv4(protocol, data[:at], fragment=0x2000, number=number, options=options)
    return one, ipv4(protocol, data[at:], fragment=at // 8, number=number, options=options)


def udp(source: int, target: int, data: bytes) -> bytes:
    return struct.pack("!HHHH", source, target, 8 + len(data), 0) + data


def arp(mac: str, ip: str, *, operation: int = 1, hardware: int = 1) -> Frame:
    ends = mac_bytes(mac) + socket.inet_aton(ip) + bytes(6) + socket.inet_aton("10.0.99.99")
    return ARP, struct.pack("!HHBBH", hardware, 0x0800, 6, 4, operation) + ends


def tagged(types: tuple[int, ...], frame: Frame) -> Frame:
    """Behind tags of VLAN 0, which hosts take for untagged."""
    for kind in reversed(types):
        frame = kind, struct.pack("!HH", 0, frame[0]) + frame[1]
    return frame


def snap(frame: Frame) -> Frame:
    """Behind LLC and SNAP, with a length in place of the EtherType."""
    data = b"\xaa\xaa\x03\0\0\0" + struct.pack("!H", frame[0]) + frame[1]
    return len(data), data


def disguises(mac: str, ip4: str, ip6: str) -> list[Disguise]:
    """``mac`` claims addresses of another host, is a router, or is a DHCP server."""
    found = [*_arp(mac, ip4), *_discovery(mac, ip6), *_routers(mac), *_dhcp()]
    assert len({each.name for each in found}) == len({each.key for each in found}) == len(found) >= 25
    return found


def _one(name: str, frame: Frame, plain: Frame | None = None) -> Disguise:
    return Disguise(name, (frame,), (plain or frame)[1])


def _arp(mac: str, ip: str) -> Iterator[Disguise]:
    yield _one("ARP request", arp(mac, ip))
    yield _one("ARP reply", arp(mac, ip, operation=2))
    yield _one("ARP of IEEE 802", arp(mac, ip, hardware=6))
    kinds = {"a tag": (VLAN,), "a service tag": (SERVICE_VLAN,), "two tags": (VLAN, VLAN)}
    kinds["three tags"] = (SERVICE_VLAN, VLAN, VLAN)
    for operation, (name, types) in enumerate(kinds.items(), start=3):
        plain = arp(mac, ip, operation=operation)
        yield _one(f"ARP in {name}", tagged(types, plain), plain)
    plain = arp(mac, ip, operation=9)
    yield _one("ARP behind SNAP", snap(plain), plain)


def _discovery(mac: str, ip: str) -> Iterator[Disguise]:
    target, mine = socket.inet_pton(socket.AF_INET6, ip), mac_bytes(mac)
    advertised = b"\x88\0\0\0\x20\0\0\0" + target + b"\2\1" + mine
    solicited = b"\x87\0\0\0\0\0\0\0" + socket.inet_pton(socket.AF_INET6, "2001:db8::99") + b"\1\1" + mine
    yield _one("advertisement", ipv6(ICMPV6, advertised))
    yield _one("advertisement behind hop-by-hop", ipv6(*behind((HOP_BY_HOP,), ICMPV6, advertised)))
    yield _one(
        "advertisement behind three headers", ipv6(*behind((HOP_BY_HOP, DESTINATION, ROUTING), ICMPV6, advertised))
    )
    alone = struct.pack("!BBHI", ICMPV6, 0, 0, 1) + advertised
    yield _one("advertisement in one fragment", ipv6(FRAGMENT, alone))
    yield _split("advertisement", fragments6(ICMPV6, advertised, 24, 2))
    yield _split("advertisement, tiny", fragments6(*behind((DESTINATION,), ICMPV6, advertised), 8, 3))
    yield _one("solicitation", ipv6(ICMPV6, solicited, ip))
    yield _split("solicitation", fragments6(ICMPV6, solicited, 24, 4, ip))
    yield _one("router solicitation", ipv6(ICMPV6, b"\x85\0\0\0\0\0\0\0\1\1" + mine, ip, "ff02::2"))


def _routers(mac: str) -> Iterator[Disguise]:
    says = b"\x86\0\0\0\x40\0" + struct.pack("!HII", 1800, 0, 0) + b"\1\1" + mac_bytes(mac)
    ends = socket.inet_pton(socket.AF_INET6, ROUTER) + socket.inet_pton(socket.AF_INET6, "2001:db8::5")
    yield _one("router", ipv6(ICMPV6, says))
    yield _one("router behind hop-by-hop", ipv6(*behind((HOP_BY_HOP,), ICMPV6, says)))
    yield _one("router in a tag", tagged((VLAN,), ipv6(ICMPV6, says + b"\0" * 8)), ipv6(ICMPV6, says + b"\0" * 8))
    yield _one("redirect", ipv6(ICMPV6, b"\x89\0\0\0\0\0\0\0" + ends))
    yield _split("router", fragments6(ICMPV6, says, 16, 5))
    yield _split("router, tiny", fragments6(*behind((DESTINATION,), ICMPV6, says), 8, 6))
    # The header of 264 bytes ends in the second fragment.
    cut = bytes((ICMPV6, 32)) + b"\x01\xff" + bytes(255) + b"\x01\x03" + bytes(3) + says
    yield _split("router, cut header", fragments6(DESTINATION, cut, 16, 7))
    yield _split("redirect", fragments6(ICMPV6, b"\x89\0\0\0\0\0\0\0" + ends, 16, 8))


def _dhcp() -> Iterator[Disguise]:
    reply = (b"\2\1\6\0" + bytes(232) + b"\x63\x82\x53\x63\x35\1\5\xff").ljust(248, b"\0")
    yield _one("DHCP", ipv4(UDP, udp(67, 68, reply)))
    yield _one("DHCP from another port", ipv4(UDP, udp(1067, 68, reply)))
    yield _one("DHCP behind options", ipv4(UDP, udp(67, 68, reply), options=b"\1" * 8))
    yield _split("DHCP", fragments4(UDP, udp(67, 68, reply), 64, 21))
    yield _split("DHCP, tiny", fragments4(UDP, udp(67, 68, reply), 8, 22))
    yield _split("DHCP from another port", fragments4(UDP, udp(1067, 68, reply), 64, 23))
    yield _split("DHCP behind options", fragments4(UDP, udp(67, 68, reply), 64, 24, options=b"\1" * 8))
    reply6 = b"\7" + bytes(40)
    yield _one("DHCPv6", ipv6(UDP, udp(547, 546, reply6)))
    yield _one("DHCPv6 from another port", ipv6(UDP, udp(1547, 546, reply6)))
    yield _split("DHCPv6", fragments6(UDP, udp(547, 546, reply6), 16, 9))
    yield _split("DHCPv6, tiny", fragments6(*behind((DESTINATION,), UDP, udp(547, 546, reply6)), 8, 10))


def _split(name: str, parts: tuple[Frame, Frame]) -> Disguise:
    """Two fragments, the second one first, as a host puts them together, too."""
    return Disguise(f"{name} in fragments", (parts[1], parts[0]), parts[0][1])


def honest(number: int) -> list[tuple[str, list[Frame]]]:
    """Datagrams of 65,507 bytes and smaller ones, and a ping of 60,000 bytes, in the fragments that a host makes."""
    large = udp(5000 + number, 7000, bytes((number,)) * 65_507)
    small = udp(5000 + number, 53, bytes((number,)) * 2000)
    without_source = udp(0, 7000, bytes((number,)) * 3000)
    ping = b"\x80\0\0\0" + bytes((number,)) * 60_000
    found = [(f"UDP over IPv4, {len(each)}", _pieces4(each, number)) for each in (large, small, without_source)]
    found += [(f"UDP over IPv6, {len(each)}", _pieces6(UDP, each, number)) for each in (large, small, without_source)]
    return [*found, ("ping over IPv6", _pieces6(ICMPV6, ping, number))]


def _pieces4(data: bytes, number: int, size: int = 1480) -> list[Frame]:
    more = {at: 0x2000 if at + size < len(data) else 0 for at in range(0, len(data), size)}
    return [ipv4(UDP, data[at : at + size], fragment=flag | at // 8, number=number) for at, flag in more.items()]


def _pieces6(protocol: int, data: bytes, number: int, size: int = 1448) -> list[Frame]:
    more = {at: int(at + size < len(data)) for at in range(0, len(data), size)}
    heads = {at: struct.pack("!BBHI", protocol, 0, at | flag, number) for at, flag in more.items()}
    return [ipv6(FRAGMENT, head + data[at : at + size], "fe80::2") for at, head in heads.items()]

"""The header of a frame as bits, as ``match.TernaryMatch`` sees it; what a switch would read for table 0."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

from hyroads.slices.fields import (
    BY_NAME,
    ETH_TYPE_ARP,
    ETH_TYPE_IPV4,
    ETH_TYPE_IPV6,
    ETH_TYPE_MPLS,
    ETH_TYPE_MPLS_MULTICAST,
    VLAN_PRESENT,
)
from hyroads.slices.match import TernaryMatch

_U16 = Struct("!H")
_U32 = Struct("!I")
_TAGS = frozenset({0x8100, 0x88A8})
_EXTENSIONS = frozenset({0, 43, 60})  # hop-by-hop, routing, destination options
_FRAGMENT = 44
_SHIFT = {name: field.shift for name, field in BY_NAME.items()}
_ONES = {name: field.ones << field.shift for name, field in BY_NAME.items()}


class _Reader:
    """Collects fields; a frame that ends early simply has fewer."""

    def __init__(self, frame: bytes) -> None:
        self.frame = frame
        self.value = 0
        self.mask = 0

    def put(self, name: str, value: int) -> None:
        self.value |= value << _SHIFT[name]
        self.mask |= _ONES[name]

    def u16(self, at: int) -> int:
        return int.from_bytes(self.frame[at : at + 2], "big")


def header_of(frame: bytes) -> TernaryMatch:
    """The match of exactly the headers that this frame has; fields of headers it does not have are left open.

    A frame of under 14 bytes, which no switch forwards, has the header of zeros.
    """
    reader = _Reader(frame)
    reader.put("eth_dst", int.from_bytes(frame[0:6], "big"))
    reader.put("eth_src", int.from_bytes(frame[6:12], "big"))
    at, eth_type = 14, reader.u16(12)
    if eth_type in _TAGS:
        tag = reader.u16(14)
        reader.put("vlan_vid", VLAN_PRESENT | tag & 0xFFF)
        reader.put("vlan_pcp", tag >> 13)
        at, eth_type = 18, reader.u16(16)
    else:
        reader.put("vlan_vid", 0)
    if eth_type < 0x600:
        eth_type = 0x05FF  # IEEE 802.3 without SNAP, as the specification writes it
    reader.put("eth_type", eth_type)
    layer = _LAYERS.get(eth_type)
    if layer is not None:
        layer(reader, at)
    return TernaryMatch(reader.value, reader.mask)


def _arp(reader: _Reader, at: int) -> None:
    frame = reader.frame
    if len(frame) < at + 28:
        return
    reader.put("arp_op", reader.u16(at + 6))
    for name, start, size in (("arp_sha", 8, 6), ("arp_spa", 14, 4), ("arp_tha", 18, 6), ("arp_tpa", 24, 4)):
        reader.put(name, int.from_bytes(frame[at + start : at + start + size], "big"))


def _mpls(reader: _Reader, at: int) -> None:
    if len(reader.frame) >= at + 4:
        (entry,) = _U32.unpack_from(reader.frame, at)
        reader.put("mpls_label", entry >> 12)
        reader.put("mpls_tc", entry >> 9 & 7)
        reader.put("mpls_bos", entry >> 8 & 1)


def _ipv4(reader: _Reader, at: int) -> None:
    frame = reader.frame
    if len(frame) < at + 20:
        return
    reader.put("ip_dscp", frame[at + 1] >> 2)
    reader.put("ip_ecn", frame[at + 1] & 3)
    reader.put("ip_proto", frame[at + 9])
    reader.put("ipv4_src", int.from_bytes(frame[at + 12 : at + 16], "big"))
    reader.put("ipv4_dst", int.from_bytes(frame[at + 16 : at + 20], "big"))
    later_fragment = reader.u16(at + 6) & 0x1FFF != 0
    _upper(reader, at + (frame[at] & 15) * 4, frame[at + 9], 4, later_fragment)


def _ipv6(reader: _Reader, at: int) -> None:
    frame = reader.frame
    if len(frame) < at + 40:
        return
    (first,) = _U32.unpack_from(frame, at)
    reader.put("ip_dscp", first >> 22 & 0x3F)
    reader.put("ip_ecn", first >> 20 & 3)
    reader.put("ipv6_flabel", first & 0xFFFFF)
    reader.put("ipv6_src", int.from_bytes(frame[at + 8 : at + 24], "big"))
    reader.put("ipv6_dst", int.from_bytes(frame[at + 24 : at + 40], "big"))
    proto, at, later_fragment = frame[at + 6], at + 40, False
    for _ in range(8):
        if len(frame) < at + 8 or not (proto in _EXTENSIONS or proto == _FRAGMENT):
            break
        if proto == _FRAGMENT:
            later_fragment = reader.u16(at + 2) & 0xFFF8 != 0
            proto, at = frame[at], at + 8
        else:
            proto, at = frame[at], at + 8 * (frame[at + 1] + 1)
    reader.put("ip_proto", proto)
    _upper(reader, at, proto, 6, later_fragment)


_PORTS = {6: ("tcp_src", "tcp_dst"), 17: ("udp_src", "udp_dst"), 132: ("sctp_src", "sctp_dst")}


def _upper(reader: _Reader, at: int, proto: int, version: int, later_fragment: bool) -> None:
    """Transport ports and ICMP; a later fragment has zeros there, as in Open vSwitch."""
    frame = b"" if later_fragment else reader.frame
    there = len(frame) >= at + 4
    if proto in _PORTS:
        for i, name in enumerate(_PORTS[proto]):
            reader.put(name, int.from_bytes(frame[at + 2 * i : at + 2 * i + 2], "big") if there else 0)
    elif (proto, version) in {(1, 4), (58, 6)}:
        kind, code = (frame[at], frame[at + 1]) if there else (0, 0)
        name = "icmpv4" if version == 4 else "icmpv6"
        reader.put(f"{name}_type", kind)
        reader.put(f"{name}_code", code)
        if version == 6 and kind in {135, 136} and len(frame) >= at + 24:
            reader.put("ipv6_nd_target", int.from_bytes(frame[at + 8 : at + 24], "big"))


_LAYERS: dict[int, Callable[[_Reader, int], None]] = {
    ETH_TYPE_ARP: _arp,
    ETH_TYPE_IPV4: _ipv4,
    ETH_TYPE_IPV6: _ipv6,
    ETH_TYPE_MPLS: _mpls,
    ETH_TYPE_MPLS_MULTICAST: _mpls,
}

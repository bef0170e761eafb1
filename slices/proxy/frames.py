"""The header of a frame as bits, as ``match.TernaryMatch`` sees it; what a switch would read for table 0.

A field is claimed only where every reader finds the same value in it: Open vSwitch in all its settings, with or without
the padding that a medium adds to a short frame, and where a packet-in has only the beginning of a frame. As soon as a
frame is unusual (a second tag, SNAP, a header that is cut or has lengths that can't be, a fragment, an IPv6 extension
header that is broken), everything from there on is left open: it may have any value, so the frame is a slice's only
where the slice owns all of it. Tested against Open vSwitch: ``tests/integration/test_frames_ovs.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

from hyroads.slices.core import fields
from hyroads.slices.core.fields import BY_NAME, VLAN_PRESENT
from hyroads.slices.core.match import ALL, TernaryMatch

TAGS = frozenset({0x8100, 0x88A8})
"""Types that are VLAN tags to Open vSwitch."""
LOWEST_ETH_TYPE, _NO_ETH_TYPE = 0x600, 0x05FF
_SNAP = b"\xaa\xaa\x03\0\0\0"
"""LLC and organization before an EtherType (IEEE 802)."""
_AUTHENTICATION, _FRAGMENT = 51, 44
_EXTENSIONS = frozenset({0, 43, _FRAGMENT, _AUTHENTICATION, 60})  # 0, 43, 60: hop-by-hop, routing, destination options
_MAX_EXTENSIONS = 8
_IPV4_FRAGMENT = 0x3FFF
"""More fragments, or an offset."""
_IPV6_OFFSET = 0xFFF8
_ARP_HEADER = b"\0\1\x08\0\6\4"
_NEIGHBOUR = frozenset({135, 136})

_U16 = Struct("!H")
_U32 = Struct("!I")
_TAG_AND_TYPE = Struct("!HH")
_ARP_FIELDS = Struct("2s6s4s6s4s")
_IPV4 = Struct("!xBHxxHxBxxQ")
_IPV6 = Struct("!IHB")

_Bits = tuple[int, int]
"""(value, mask)."""
_NOTHING: _Bits = (0, 0)


def _run(*names: str) -> _Bits:
    """(shift, mask) of fields that stand side by side in the wide integer."""
    first, last = BY_NAME[names[0]], BY_NAME[names[-1]]
    return last.shift, (1 << first.shift + first.bits) - (1 << last.shift)


_ADDRESSES, _ADDRESSES_MASK = _run("eth_dst", "eth_src")
_ETH_TYPE, _ETH_TYPE_MASK = _run("eth_type")
_TAG, _TAG_MASK = _run("vlan_vid", "vlan_pcp")
_UNTAGGED_MASK = _ADDRESSES_MASK | _run("vlan_vid")[1]
_TAGGED_MASK = _ADDRESSES_MASK | _TAG_MASK
_MPLS, _MPLS_MASK = _run("mpls_label", "mpls_tc", "mpls_bos")
_ARP, _ARP_MASK = _run("arp_op", "arp_spa", "arp_tpa", "arp_sha", "arp_tha")
_V4, _V4_MASK = _run("ip_dscp", "ip_ecn", "ip_proto", "ipv4_src", "ipv4_dst")
_TOS, _TOS_MASK = _run("ip_dscp", "ip_ecn")
_PROTO, _PROTO_MASK = _run("ip_proto")
_V6, _V6_MASK = _run("ipv6_src", "ipv6_dst", "ipv6_flabel")
_V6_MASK |= _TOS_MASK
_TARGET, _TARGET_MASK = _run("ipv6_nd_target")


def header_of(frame: bytes, size: int = 0) -> TernaryMatch:
    """The match of what every switch reads in this frame; fields that it doesn't have, or that are unusual, are open.

    ``size`` is the length of the frame on the wire where only its beginning is here.
    """
    if len(frame) < 14:
        return ALL
    size = max(size, len(frame))
    value, mask, at = int.from_bytes(frame[:12], "big") << _ADDRESSES, _UNTAGGED_MASK, 14
    (eth_type,) = _U16.unpack_from(frame, 12)
    if eth_type in TAGS:
        if len(frame) < 18:
            return TernaryMatch(value, _ADDRESSES_MASK)
        tag, eth_type = _TAG_AND_TYPE.unpack_from(frame, 14)
        value |= ((VLAN_PRESENT | tag & 0xFFF) << 3 | tag >> 13) << _TAG
        mask, at = _TAGGED_MASK, 18
        if eth_type in TAGS:
            # How many tags a bridge looks behind is a setting of it (vlan-limit).
            return TernaryMatch(value, mask)
    if eth_type < LOWEST_ETH_TYPE:
        if len(frame) < at + len(_SNAP) or frame[at : at + len(_SNAP)] == _SNAP:
            return TernaryMatch(value, mask)
        eth_type = _NO_ETH_TYPE  # IEEE 802.3 without SNAP, as the specification writes it
    layer = _LAYERS.get(eth_type)
    if layer is not None:
        more, its_mask = layer(frame, at, size)
        value, mask = value | more, mask | its_mask
    return TernaryMatch(value | eth_type << _ETH_TYPE, mask | _ETH_TYPE_MASK)


def _arp(frame: bytes, at: int, size: int) -> _Bits:
    # Open vSwitch reads no operation above 255, and rewrites nothing where it is 0.
    if len(frame) < at + 28 or frame[at : at + 6] != _ARP_HEADER or frame[at + 6] or not frame[at + 7]:
        return _NOTHING
    # On the wire the hardware addresses stand before their protocol addresses.
    operation, sha, spa, tha, tpa = _ARP_FIELDS.unpack_from(frame, at + 6)
    return int.from_bytes(operation + spa + tpa + sha + tha, "big") << _ARP, _ARP_MASK


def _mpls(frame: bytes, at: int, size: int) -> _Bits:
    if len(frame) < at + 4:
        return _NOTHING
    (entry,) = _U32.unpack_from(frame, at)
    return entry >> 8 << _MPLS, _MPLS_MASK


def _ipv4(frame: bytes, at: int, size: int) -> _Bits:
    if len(frame) < at + 20:
        return _NOTHING
    tos, length, fragment, proto, addresses = _IPV4.unpack_from(frame, at)
    first = frame[at]
    start = (first & 15) * 4
    # An address of a packet of protocol 0 is not rewritten by Open vSwitch.
    if first >> 4 != 4 or not proto or not 20 <= start <= length <= size - at:
        return _NOTHING
    value = (tos << 72 | proto << 64 | addresses) << _V4
    upper = _UPPER.get((4, proto))
    # Of a fragment Open vSwitch reads ports, but matches with zeros instead (OFPC_FRAG_NORMAL).
    if upper is None or fragment & _IPV4_FRAGMENT:
        return value, _V4_MASK
    more, mask = upper(frame, at + start, at + length)
    return value | more, _V4_MASK | mask


def _ipv6(frame: bytes, at: int, size: int) -> _Bits:
    if len(frame) < at + 40:
        return _NOTHING
    first, length, proto = _IPV6.unpack_from(frame, at)
    start, end = at + 40, at + 40 + length
    if first >> 28 != 6 or end > size:
        return _NOTHING
    whole = True
    if proto in _EXTENSIONS:
        found = _behind_extensions(frame, proto, start, end)
        if found is None:
            return _NOTHING
        proto, start, whole = found
    addresses = int.from_bytes(frame[at + 8 : at + 40], "big")
    value = (addresses << 20 | first & 0xFFFFF) << _V6 | (first >> 20 & 0xFF) << _TOS
    if not whole:
        return value, _V6_MASK
    value |= proto << _PROTO
    upper = _UPPER.get((6, proto))
    if upper is None:
        return value, _V6_MASK | _PROTO_MASK
    more, mask = upper(frame, start, end)
    return value | more, _V6_MASK | _PROTO_MASK | mask


def _behind_extensions(frame: bytes, proto: int, at: int, end: int) -> tuple[int, int, bool] | None:
    """(protocol, where its header starts, whether it is no fragment), None if the extension headers are broken."""
    whole = True
    for _ in range(_MAX_EXTENSIONS):
        if at + 8 > end or at + 8 > len(frame):
            return None
        size = (frame[at + 1] + 1) * 8
        if proto == _AUTHENTICATION:
            size = (frame[at + 1] + 2) * 4
        elif proto == _FRAGMENT:
            size, whole = 8, False
            if _U16.unpack_from(frame, at + 2)[0] & _IPV6_OFFSET:
                return proto, at, whole
        proto, at = frame[at], at + size
        if at > end:
            return None
        if proto not in _EXTENSIONS:
            return proto, at, whole
    return None


_Upper = Callable[[bytes, int, int], _Bits]
"""From a frame, where a header starts and where the packet ends."""


def _first_fields(layout: Struct, least: int, *names: str) -> _Upper:
    """Reads the two fields that a header of at least so many bytes begins with."""
    shift, fields_mask = _run(*names)

    def read(frame: bytes, at: int, end: int) -> _Bits:
        if at + least > end or at + least > len(frame):
            return _NOTHING
        return layout.unpack_from(frame, at)[0] << shift, fields_mask

    return read


_tcp_ports = _first_fields(_U32, 20, "tcp_src", "tcp_dst")


def _tcp(frame: bytes, at: int, end: int) -> _Bits:
    if at + 20 > len(frame) or not 20 <= (frame[at + 12] >> 4) * 4 <= end - at:
        return _NOTHING
    return _tcp_ports(frame, at, end)


_plain_icmpv6 = _first_fields(_U16, 8, "icmpv6_type", "icmpv6_code")


def _icmpv6(frame: bytes, at: int, end: int) -> _Bits:
    value, mask = _plain_icmpv6(frame, at, end)
    if not mask or frame[at] not in _NEIGHBOUR or frame[at + 1] or len(frame) != end:
        return value, mask
    # With several options it depends on all of them whether Open vSwitch takes the target for valid, and its kernel
    # module takes bytes behind the packet for options too.
    options = end - at - 24
    if options == 0 or (options >= 8 and frame[at + 25] * 8 == options):
        return value | int.from_bytes(frame[at + 8 : at + 24], "big") << _TARGET, mask | _TARGET_MASK
    return value, mask


_UPPER: dict[tuple[int, int], _Upper] = {
    (4, fields.IP_PROTO_TCP): _tcp,
    (6, fields.IP_PROTO_TCP): _tcp,
    **dict.fromkeys(((4, fields.IP_PROTO_UDP), (6, fields.IP_PROTO_UDP)), _first_fields(_U32, 8, "udp_src", "udp_dst")),
    **dict.fromkeys(
        ((4, fields.IP_PROTO_SCTP), (6, fields.IP_PROTO_SCTP)), _first_fields(_U32, 12, "sctp_src", "sctp_dst")
    ),
    (4, fields.IP_PROTO_ICMP): _first_fields(_U16, 8, "icmpv4_type", "icmpv4_code"),
    (6, fields.IP_PROTO_ICMPV6): _icmpv6,
}
_LAYERS: dict[int, Callable[[bytes, int, int], _Bits]] = {
    fields.ETH_TYPE_ARP: _arp,
    fields.ETH_TYPE_IPV4: _ipv4,
    fields.ETH_TYPE_IPV6: _ipv6,
    fields.ETH_TYPE_MPLS: _mpls,
    fields.ETH_TYPE_MPLS_MULTICAST: _mpls,
}

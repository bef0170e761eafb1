"""The match fields of OpenFlow 1.3 as one table: number, width, masks and prerequisites.

Source: OpenFlow Switch Specification 1.3.5, section 7.2.3.7 (table 11 and 12). Every field has a place in one wide
integer, field 0 at its top, so that a match is two integers (``match.TernaryMatch``). Going through such an integer
from its top bit down visits prerequisites before what needs them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

ETH_TYPE_IPV4, ETH_TYPE_ARP, ETH_TYPE_IPV6 = 0x0800, 0x0806, 0x86DD
ETH_TYPE_MPLS, ETH_TYPE_MPLS_MULTICAST, ETH_TYPE_PBB = 0x8847, 0x8848, 0x88E7
IP_PROTO_ICMP, IP_PROTO_TCP, IP_PROTO_UDP, IP_PROTO_ICMPV6, IP_PROTO_SCTP = 1, 6, 17, 58, 132
VLAN_PRESENT = 0x1000


class Kind(Enum):
    """How a value is written."""

    NUMBER = "number"
    HEXADECIMAL = "hexadecimal number"
    MAC = "MAC address"
    IPV4 = "IPv4 address"
    IPV6 = "IPv6 address"


Needs = tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class Field:
    """One match field. ``shift`` is where its lowest bit is in the wide integer."""

    number: int
    name: str
    bits: int
    kind: Kind
    maskable: bool
    """Open vSwitch allows masks: on ports and in neighbour discovery, too, where OpenFlow 1.3 does not."""
    needs: Needs
    """Fields that must be matched exactly on one of the values, outermost header first."""
    shift: int

    @property
    def ones(self) -> int:
        """All bits of the field, not shifted."""
        return (1 << self.bits) - 1

    @property
    def size(self) -> int:
        """Bytes of a value on the wire."""
        return (self.bits + 7) // 8 if self.bits not in _WIDE else 4


_WIDE = frozenset({20})
"""20-bit fields (MPLS label, IPv6 flow label) travel in four bytes."""

_IP = (("eth_type", (ETH_TYPE_IPV4, ETH_TYPE_IPV6)),)
_IPV4 = (("eth_type", (ETH_TYPE_IPV4,)),)
_IPV6 = (("eth_type", (ETH_TYPE_IPV6,)),)
_ARP = (("eth_type", (ETH_TYPE_ARP,)),)
_MPLS = (("eth_type", (ETH_TYPE_MPLS, ETH_TYPE_MPLS_MULTICAST)),)
_TCP, _UDP, _SCTP = ((("ip_proto", (number,)),) for number in (IP_PROTO_TCP, IP_PROTO_UDP, IP_PROTO_SCTP))
# ICMP of one IP version exists in that version only; Open vSwitch insists on it.
_ICMPV4, _ICMPV6 = (*_IPV4, ("ip_proto", (IP_PROTO_ICMP,))), (*_IPV6, ("ip_proto", (IP_PROTO_ICMPV6,)))

_N, _X, _MAC, _V4, _V6 = Kind.NUMBER, Kind.HEXADECIMAL, Kind.MAC, Kind.IPV4, Kind.IPV6
_NO, _YES, _OVS = False, True, True
# In the order of OXM numbers.
_TABLE: tuple[tuple[str, int, Kind, bool, Needs], ...] = (
    ("in_port", 32, _N, _NO, ()),
    ("in_phy_port", 32, _N, _NO, ()),
    ("metadata", 64, _X, _YES, ()),
    ("eth_dst", 48, _MAC, _YES, ()),
    ("eth_src", 48, _MAC, _YES, ()),
    ("eth_type", 16, _X, _NO, ()),
    ("vlan_vid", 13, _X, _YES, ()),
    ("vlan_pcp", 3, _N, _NO, ()),  # needs the bit VLAN_PRESENT of vlan_vid, see match.normal
    ("ip_dscp", 6, _N, _NO, _IP),
    ("ip_ecn", 2, _N, _NO, _IP),
    ("ip_proto", 8, _N, _NO, _IP),
    ("ipv4_src", 32, _V4, _YES, _IPV4),
    ("ipv4_dst", 32, _V4, _YES, _IPV4),
    ("tcp_src", 16, _N, _OVS, _TCP),
    ("tcp_dst", 16, _N, _OVS, _TCP),
    ("udp_src", 16, _N, _OVS, _UDP),
    ("udp_dst", 16, _N, _OVS, _UDP),
    ("sctp_src", 16, _N, _OVS, _SCTP),
    ("sctp_dst", 16, _N, _OVS, _SCTP),
    ("icmpv4_type", 8, _N, _NO, _ICMPV4),
    ("icmpv4_code", 8, _N, _NO, _ICMPV4),
    ("arp_op", 16, _N, _NO, _ARP),
    ("arp_spa", 32, _V4, _YES, _ARP),
    ("arp_tpa", 32, _V4, _YES, _ARP),
    ("arp_sha", 48, _MAC, _YES, _ARP),
    ("arp_tha", 48, _MAC, _YES, _ARP),
    ("ipv6_src", 128, _V6, _YES, _IPV6),
    ("ipv6_dst", 128, _V6, _YES, _IPV6),
    ("ipv6_flabel", 20, _X, _YES, _IPV6),
    ("icmpv6_type", 8, _N, _NO, _ICMPV6),
    ("icmpv6_code", 8, _N, _NO, _ICMPV6),
    ("ipv6_nd_target", 128, _V6, _OVS, (("icmpv6_type", (135, 136)),)),
    ("ipv6_nd_sll", 48, _MAC, _OVS, (("icmpv6_type", (135,)),)),
    ("ipv6_nd_tll", 48, _MAC, _OVS, (("icmpv6_type", (136,)),)),
    ("mpls_label", 20, _N, _NO, _MPLS),
    ("mpls_tc", 3, _N, _NO, _MPLS),
    ("mpls_bos", 1, _N, _NO, _MPLS),
    ("pbb_isid", 24, _X, _YES, (("eth_type", (ETH_TYPE_PBB,)),)),
    ("tunnel_id", 64, _X, _YES, ()),
    ("ipv6_exthdr", 9, _X, _YES, _IPV6),
)

TOTAL_BITS = sum(row[1] for row in _TABLE)


def _fields() -> tuple[Field, ...]:
    fields, shift = [], TOTAL_BITS
    for number, (name, bits, kind, maskable, needs) in enumerate(_TABLE):
        shift -= bits
        fields.append(Field(number, name, bits, kind, maskable, needs, shift))
    return tuple(fields)


FIELDS: tuple[Field, ...] = _fields()
"""All fields; the index is the OXM number."""

BY_NAME: Mapping[str, Field] = {field.name: field for field in FIELDS}


def bits_of(*names: str) -> int:
    """All bits of fields, at their places in the wide integer."""
    return sum(BY_NAME[name].ones << BY_NAME[name].shift for name in names)

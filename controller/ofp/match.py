"""What a rule matches, as immutable data."""

from __future__ import annotations

from dataclasses import dataclass

GROUP_ADDRESS = "01:00:00:00:00:00/01:00:00:00:00:00"
"""``eth_dst`` of every broadcast and multicast frame."""


@dataclass(frozen=True, slots=True)
class Match:
    """Fields of a packet; ``None`` matches anything.

    Addresses are text. ``eth_src``, ``eth_dst`` may be ``address/mask``; IP addresses may be ``address/prefix length``
    or ``address/mask``. ``vlan`` is a VLAN number 1..4094, 0 matches only untagged frames. OpenFlow's prerequisites
    (IP fields need ``eth_type``, ports and types need ``ip_proto``, ``mpls_*`` needs ``eth_type=0x8847``) are checked
    when the match is encoded.
    """

    in_port: int | None = None
    eth_dst: str | None = None
    eth_src: str | None = None
    eth_type: int | None = None
    vlan: int | None = None
    ip_proto: int | None = None
    ipv4_src: str | None = None
    ipv4_dst: str | None = None
    tcp_src: int | None = None
    tcp_dst: int | None = None
    udp_src: int | None = None
    udp_dst: int | None = None
    arp_spa: str | None = None
    ipv6_src: str | None = None
    ipv6_dst: str | None = None
    icmpv6_type: int | None = None
    nd_target: str | None = None
    mpls_label: int | None = None
    mpls_bos: int | None = None

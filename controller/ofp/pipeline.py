"""The pipeline of a HyRoads switch: its tables, and the numbers that rules are made of (docs/reference/openflow.md)."""

from __future__ import annotations

from enum import IntEnum


class Table(IntEnum):
    """Flow tables by number, and what each decides; ``goto`` and ``resubmit`` lead down this list.

    Those that every switch needs are below 8: so many has a slice that names no other number.
    """

    PORT = 0
    """By ingress port: a user's frame, a labelled frame, a hello frame or nothing we carry."""
    CHECK = 6
    """Whether a learned host has the address that it claims."""
    ACCESS = 7
    """Access rules: whether a user's frame may enter, and how many (``access``)."""
    CLASSIFY = 1
    """Frames of multipath flows that this edge splits go to the agent."""
    FORWARD = 2
    """Single path of a user's frame: here, behind a node label, or flooded."""
    LABEL = 3
    """Labelled frames: pop and pass on, or restore the user's frame."""
    LINK = 18
    """Where links are sealed: labelled frames that no agent of a neighbour has sealed. Only those of paths pass."""
    TAGS = 9
    """Users' frames whose VLAN tags came as labels, for DELIVER: the tags' labels (``vlan_tags``)."""
    INNER_TAG = 10
    ONE_TAG = 11
    TWO_TAGS = 12
    MEMBER_TAGS = 13
    """The same for MEMBERS."""
    MEMBER_INNER_TAG = 14
    MEMBER_ONE_TAG = 15
    MEMBER_TWO_TAGS = 16
    DELIVER = 4
    """User's frames to access ports and attached clients, or after one that moved (by LABEL)."""
    MEMBERS = 5
    """Frames of sessions to those who take part."""
    UNTAG = 17
    """In front of a label: a user's VLAN tags become labels (``vlan_tags``)."""
    UNTAG_INNER = 8


# Adds go from the end of the pipeline to its beginning, so that a packet never reaches a table that is not ready
# for it; deletes go the other way.
ADD_ORDER: tuple[Table, ...] = tuple(reversed(Table))


class Priority(IntEnum):
    """Priorities within a table; a gap of one separates a rule from its variant for one ingress port."""

    DEFAULT = 1
    UNKNOWN_VARIANT = 2
    FLOOD = 10
    FLOOD_VARIANT = 11
    FLOOD_CLIENT = 12
    LEARNED = 15
    LEARNED_VARIANT = 16
    UNICAST = 20
    UNICAST_VARIANT = 21
    SYN_TO_FIT = 24
    LARGE = 25
    HERE = 26
    LEARNED_HERE = 27
    FITTED = 29
    LABELLED = 30
    HELLO = 30
    METERED = 31
    HELD = 32
    NO_CLAIM = 33
    DISGUISED = 34
    LEARNED_SOURCE = 35
    FROM_LINK = 36
    STRAY = 39
    CLIENT = 40
    BARRED_SOURCE = 41
    ANSWER = 43
    METERED_ANSWER = 44
    DHCP_SERVER = 45
    METERED_SERVER = 46
    BARRED_SERVER = 47
    AUTHENTICATION = 48
    METERED_AUTHENTICATION = 49
    SESSION_CLOSED = 50
    SESSION = 51
    SESSION_VARIANT = 52
    FRAGMENT = 53
    BAD_FRAGMENT = 54
    REPORT = 55
    LARGE_GROUP = 60
    FLOW_FIRST = 1000
    SYN_COPY = 61_000
    SYN_NO_COPY = 61_001
    END_COPY = 61_002
    SIZE = 62_000


ETH_TYPE_IPV4, ETH_TYPE_ARP, ETH_TYPE_IPV6 = 0x0800, 0x0806, 0x86DD
PROTOCOL_TCP, PROTOCOL_UDP, PROTOCOL_ICMPV6 = 6, 17, 58
TCP_SYN = 0x002
TO_FIT = 8
"""The label behind which an agent gets hosts' frames that are too large, and TCP's SYNs; no flow has this number."""
ROUTER_SOLICITATION = 133
NEIGHBOUR_SOLICITATION, NEIGHBOUR_ADVERTISEMENT = 135, 136
ROUTER_ADVERTISEMENT, REDIRECT = 134, 137
ETH_TYPE_VLAN, ETH_TYPE_SERVICE_VLAN = 0x8100, 0x88A8
ETH_TYPE_MPLS = 0x8847
ETH_TYPE_EAPOL = 0x888E
"""Frames of authentication (IEEE 802.1X, clause 11)."""
ETH_TYPE_SHIM = 0x88B5
ETH_TYPE_HELLO = 0x88B6
TREE_ADDRESS = "03:00:00:00:00:01"
"""Where a frame of a session goes that several switches on one medium receive at once: a local group address."""
LABEL_TTL = 64
"""TTL behind a flood, node or tree label: ends loops that may exist for a moment while switches change over.

It is set explicitly because ``encap(mpls)`` copies the TTL of an IP packet, and users send multicast with TTL 1.
"""

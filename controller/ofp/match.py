"""What a rule matches and what it does with a packet (the actions that we use), as immutable data.

``encap``, ``decap``, ``resubmit``, ``clone``, ``move``, registers, the check of a frame's size and copies to the
controller with a meter of their own are Open vSwitch extensions (experimenter 0x2320); everything else is OpenFlow 1.3.
The bytes are made in ``wire``.
"""

from __future__ import annotations

from dataclasses import dataclass

GROUP_ADDRESS = "01:00:00:00:00:00/01:00:00:00:00:00"
"""``eth_dst`` of every broadcast and multicast frame."""


TAGGED = 0x1000
"""``vlan`` of every frame with a VLAN tag."""

PRIORITY_TAG = 0x2000
"""``vlan`` of frames with a tag of VLAN 0, which hosts take for untagged."""


@dataclass(frozen=True, slots=True)
class Match:
    """Fields of a packet; ``None`` matches anything.

    Addresses are text. ``eth_src``, ``eth_dst`` may be ``address/mask``; IP addresses may be ``address/prefix length``
    or ``address/mask``. ``vlan`` is a VLAN number 1..4094, 0 matches only untagged frames, ``TAGGED`` all that have a
    tag, ``PRIORITY_TAG`` those of VLAN 0. OpenFlow's prerequisites
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
    tcp_flags: int | None = None
    """These bits of the TCP flags are set, whatever the others are; ONF's experimenter field 42 in OpenFlow 1.3."""
    register_2: int | None = None
    """Open vSwitch's register: 0 when a packet comes in, then what :class:`SetRegister2` has written."""
    register_3: int | None = None
    """The same for :class:`SetRegister3` and :class:`CheckLarger`."""
    register_4: int | None = None
    """The same for :class:`SetRegister4` and :class:`Move`."""
    register_5: int | None = None
    """The same for :class:`Move`."""
    is_first_fragment: bool | None = None
    """True: the first of several fragments of an IP packet. Open vSwitch's NXM_NX_IP_FRAG."""
    arp_sha: str | None = None


IN_PORT = 0xFFFFFFF8
"""Reserved port: back out of the port the frame came in on (a plain output to it would be dropped)."""

TABLE = 0xFFFFFFF9
"""Reserved port: through the tables from the first one on (only in a packet-out)."""

CONTROLLER = 0xFFFFFFFD
LOCAL = 0xFFFFFFFE
"""The switch's own interface, at which hostapd listens."""
"""Reserved port: to the controller."""

PACKET_TYPE_ETHERNET = 0
PACKET_TYPE_MPLS = 0x0001_8847
PACKET_TYPE_NEXT = 0x0000_FFFE
"""``decap()``: the new packet type follows from the header that was taken off."""


@dataclass(frozen=True, slots=True)
class Output:
    """Send a copy of the frame out of ``port``."""

    port: int


@dataclass(frozen=True, slots=True)
class SetEthSrc:
    """Rewrite the Ethernet source address."""

    mac: str


@dataclass(frozen=True, slots=True)
class SetEthDst:
    """Rewrite the Ethernet destination address."""

    mac: str


@dataclass(frozen=True, slots=True)
class SetMplsLabel:
    """Write the label of the outermost MPLS entry."""

    label: int


@dataclass(frozen=True, slots=True)
class SetMplsTtl:
    """Write the TTL of the outermost MPLS entry."""

    ttl: int


@dataclass(frozen=True, slots=True)
class DecMplsTtl:
    """Count the TTL down; a frame whose TTL is used up is dropped."""


@dataclass(frozen=True, slots=True)
class PopMpls:
    """Pop the outermost MPLS entry; what follows has ``eth_type``."""

    eth_type: int


@dataclass(frozen=True, slots=True)
class Encap:
    """Put a new header of ``packet_type`` in front of the whole packet."""

    packet_type: int


@dataclass(frozen=True, slots=True)
class Decap:
    """Take the outermost header off; what remains has ``packet_type``."""

    packet_type: int = PACKET_TYPE_NEXT


@dataclass(frozen=True, slots=True)
class Resubmit:
    """Look the packet up in ``table`` and carry out what is found there, then go on."""

    table: int


@dataclass(frozen=True, slots=True)
class PopVlan:
    """Take the outermost VLAN tag off."""


@dataclass(frozen=True, slots=True)
class PushVlan:
    """Put a VLAN tag of type ``eth_type`` (0x8100 or 0x88a8) in front of those that are there."""

    eth_type: int


VLAN_TCI, REGISTER_0, REGISTER_1, MPLS_LABEL = 0x0000_0802, 0x0001_0004, 0x0001_0204, 0x8000_4404
"""Fields for :class:`Move`, by their headers: PCP, a bit that says that there is a tag, and VID of the outermost tag;
registers, which are 0 when a packet comes in; the label of the outermost MPLS entry."""
REGISTER_4, REGISTER_5, UDP_SRC, UDP_DST, ICMPV6_TYPE = 0x0001_0804, 0x0001_0A04, 0x8000_1E02, 0x8000_2002, 0x8000_3A01
"""More of them."""


@dataclass(frozen=True, slots=True)
class Move:
    """Copy the lowest ``bits`` bits of the field ``source`` to those of ``target``."""

    bits: int
    source: int
    target: int


@dataclass(frozen=True, slots=True)
class SetRegister2:
    """Write register 2."""

    value: int


@dataclass(frozen=True, slots=True)
class SetRegister3:
    """Write register 3."""

    value: int


@dataclass(frozen=True, slots=True)
class SetRegister4:
    """Write register 4."""

    value: int


@dataclass(frozen=True, slots=True)
class SetInPort:
    """Go on as if the frame had come in at ``port``; 0: at none, so that it may leave by any port."""

    port: int


@dataclass(frozen=True, slots=True)
class CheckLarger:
    """Write to bit ``bit`` of register 3 whether the frame has more than ``most_bytes``, with its Ethernet header."""

    most_bytes: int
    bit: int


@dataclass(frozen=True, slots=True)
class ToController:
    """Send a copy of the first ``most_bytes`` of the frame to the controller, unless it exceeds the meter.

    The meter decides on the copy alone: what happens to the frame itself does not depend on it.
    """

    most_bytes: int
    meter: int


@dataclass(frozen=True, slots=True)
class Group:
    """Hand the packet to a group."""

    group: int


@dataclass(frozen=True, slots=True)
class Clone:
    """Carry ``actions`` out on a copy; the packet itself stays as it was."""

    actions: tuple[Action, ...]


Action = (
    Output
    | SetEthSrc
    | SetEthDst
    | SetMplsLabel
    | SetMplsTtl
    | DecMplsTtl
    | PopMpls
    | PopVlan
    | PushVlan
    | Move
    | SetRegister2
    | SetRegister3
    | SetRegister4
    | SetInPort
    | CheckLarger
    | ToController
    | Encap
    | Decap
    | Resubmit
    | Group
    | Clone
)

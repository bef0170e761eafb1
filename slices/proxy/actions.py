"""The actions of a guest: translated for the switch, and refused where a packet would leave the slice.

Numbers and layouts: OpenFlow Switch Specification 1.3.5, section 7.2.4. A list of actions is walked once; the rewriting
so far is held as data (``region.Rewrite``), and at every place where the packet leaves, ``Regions.leak`` is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct

from hyroads.slices.core.allocation import PRODUCTION_NUMBER
from hyroads.slices.core.classifier import is_discovery_mac
from hyroads.slices.core.errors import bad_action
from hyroads.slices.core.fields import BY_NAME, FIELDS, VLAN_PRESENT, Field, bits_of
from hyroads.slices.core.match import ALL, TernaryMatch, describe

from .extensions import EXPERIMENTER, REGISTERS, check_whole, translate_extension
from .frames import LOWEST_ETH_TYPE, TAGS
from .guest_view import GuestView
from .region import UNCHANGED

IN_PORT, TABLE, NORMAL, FLOOD, ALL_PORTS, CONTROLLER, LOCAL = range(0xFFFFFFF8, 0xFFFFFFFF)
OUTPUT, COPY_TTL_OUT, COPY_TTL_IN, SET_MPLS_TTL, DEC_MPLS_TTL = 0, 11, 12, 15, 16
PUSH_VLAN, POP_VLAN, PUSH_MPLS, POP_MPLS, SET_QUEUE, GROUP = 17, 18, 19, 20, 21, 22
SET_NW_TTL, DEC_NW_TTL, SET_FIELD, PUSH_PBB, POP_PBB = 23, 24, 25, 26, 27

_HEADER = Struct("!HH")
_U32 = Struct("!I")
_U16 = Struct("!H")
_GROUP = Struct("!HHI")
_BAD_TYPE, _BAD_LEN, BAD_OUT_PORT, _EPERM, _BAD_QUEUE, _BAD_OUT_GROUP, _BAD_SET_TYPE = 0, 1, 4, 6, 8, 9, 13
_BAD_SET_ARGUMENT = 15


def _dependants(name: str) -> int:
    """The bits of all fields that need a field, directly or not."""
    bits = 0
    for field in FIELDS:
        if any(needed == name for needed, _ in field.needs):
            bits |= bits_of(field.name) | _dependants(field.name)
    return bits


_VLAN = bits_of("vlan_vid", "vlan_pcp")
_TAG = VLAN_PRESENT << BY_NAME["vlan_vid"].shift
_ETH_TYPE = BY_NAME["eth_type"]
_ETH_TYPE_BITS = bits_of("eth_type")
_MPLS_LABEL = BY_NAME["mpls_label"]
_ARP = bits_of("arp_op", "arp_spa", "arp_tpa", "arp_sha", "arp_tha")
_ABOVE_ETHERNET = _dependants("eth_type")
_NOT_SETTABLE = frozenset(
    "in_port in_phy_port metadata eth_type ip_proto icmpv6_type tunnel_id ipv6_exthdr".split()  # noqa: SIM905
)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where packets come from that meet the actions: the match, and one ingress port of each kind."""

    match: TernaryMatch
    in_ports: tuple[int, ...]


def any_packet(view: GuestView) -> Origin:
    """Every packet of the slice."""
    return Origin(ALL, view.kinds(None))


class Translator:
    """Walks one list of actions. ``output`` is what to send, ``rewrite`` what happened to the header."""

    def __init__(self, view: GuestView, origin: Origin, table: int | None = None) -> None:
        """``table`` is where the list is in, None if it is in none."""
        self.view = view
        self.origin = origin
        self.table = table
        self.rewrite = UNCHANGED
        self.bare = False
        """Without its Ethernet header (``extensions``)."""
        self.restored = False
        """Production's own frame again, out of a label or a table that production put it into (``extensions``)."""
        self.depth = 0
        self.parts: list[bytes] = []

    def walk(self, data: bytes, start: int, end: int) -> bytes:
        """The translated actions; :class:`Refused` with the error for the guest."""
        while start < end:
            if end - start < 8:
                raise bad_action(_BAD_LEN, f"{end - start} bytes are no action")
            kind, length = _HEADER.unpack_from(data, start)
            if length < 8 or length % 8 or start + length > end:
                raise bad_action(_BAD_LEN, f"action of type {kind} with length {length}")
            handler = _HANDLERS.get(kind)
            if handler is None:
                raise bad_action(_BAD_TYPE, f"actions of type {kind} are not possible in a slice")
            wanted = _LENGTHS.get(kind, 8)
            if kind not in _ANY_LENGTH and length != wanted:
                raise bad_action(_BAD_LEN, f"action of type {kind} with length {length}, expected {wanted}")
            handler(self, data[start : start + length])
            start += length
        return b"".join(self.parts)

    def check_out(self, port: int | None) -> None:
        """Refuses if a packet would be somebody else's at ``port`` (None: where it came in)."""
        if self.restored:
            return
        view = self.view
        for in_port in self.origin.in_ports:
            out = in_port if port is None else port
            found = view.regions.leak(view.number, in_port, self.origin.match, self.rewrite, out)
            if found is not None:
                text = describe(found)
                raise bad_action(_EPERM, f"packets ({text}) from port {in_port} would leave the slice at port {out}")

    def output(self, port: int, action: bytes) -> None:
        """One output action."""
        view = self.view
        check_whole(self)
        if port in {FLOOD, ALL_PORTS}:
            # A copy to any of the slice's ports must be its own there.
            for each in {view.regions.kind(port): port for port in view.ports}.values():
                self.check_out(each)
            self.parts.append(_GROUP.pack(GROUP, 8, view.flood_group + (port == ALL_PORTS)))
            return
        if port != CONTROLLER:
            if port != IN_PORT and port not in view.ports:
                raise bad_action(BAD_OUT_PORT, f"port {port:#x} is not of the slice")
            self.check_out(None if port == IN_PORT else port)
            self.parts.append(queued(self.view.queue))
        self.parts.append(action)

    def has(self, field: Field) -> bool:
        """Whether every packet certainly has the header that a field belongs to."""
        value, mask = _now(self)
        if self.rewrite.unknown & _ARP & field.ones << field.shift:
            return False
        if field.name in {"vlan_vid", "vlan_pcp"}:
            return bool(mask & value & _TAG)
        for name, allowed in field.needs:
            needed = BY_NAME[name]
            bits = needed.ones << needed.shift
            if mask & bits != bits or (value & bits) >> needed.shift not in allowed:
                return False
        return True

    def enter_group(self) -> None:
        """What a group does was checked for every packet of the slice, so this must still be one."""
        check_whole(self)
        if self.rewrite.changed:
            self.check_out(None)


def _same(walker: Translator, action: bytes) -> None:
    walker.parts.append(action)


def _output(walker: Translator, action: bytes) -> None:
    walker.output(_U32.unpack_from(action, 4)[0], action)


def _group(walker: Translator, action: bytes) -> None:
    (guest,) = _U32.unpack_from(action, 4)
    real = walker.view.groups.real(guest)
    if real is None:
        raise bad_action(_BAD_OUT_GROUP, f"the slice has no group {guest}")
    walker.enter_group()
    walker.parts.append(_GROUP.pack(GROUP, 8, real))


def _set_queue(_: Translator, action: bytes) -> None:
    """Which queue is the operator's choice (``queued``): a guest's own would be a way around its rate."""
    raise bad_action(_BAD_QUEUE, f"queue {_U32.unpack_from(action, 4)[0]} is not of the slice")


def queued(queue: int | None) -> bytes:
    """The action that stands in front of every output to a port, for slices that have a queue."""
    return b"" if queue is None else _GROUP.pack(SET_QUEUE, 8, queue)


def _set_field(walker: Translator, action: bytes) -> None:
    if action[4:8] in REGISTERS and len(action) == 16 and walker.view.number == PRODUCTION_NUMBER:
        walker.parts.append(action)
        return
    field, value = _field_of(action)
    if field.name == "eth_src" and is_discovery_mac(value):
        raise bad_action(_EPERM, f"source address {value:#014x} is the slicer's own, for discovery")
    bits = field.ones << field.shift
    if field.name == "arp_op" and not value:
        # Open vSwitch takes it for no ARP any more, and writes none of its fields.
        walker.rewrite = walker.rewrite.forget(_ARP)
    elif walker.has(field):
        walker.rewrite = walker.rewrite.set(value << field.shift, bits)
    else:
        # A packet without such a header stays as it is; nobody can tell which packets are meant.
        walker.rewrite = walker.rewrite.forget(bits)
    walker.parts.append(action)


def _field_of(action: bytes) -> tuple[Field, int]:
    header, length = action[4:7], action[7]
    number = header[2] >> 1
    if header[:2] != b"\x80\0" or number >= len(FIELDS) or FIELDS[number].name in _NOT_SETTABLE:
        raise bad_action(_BAD_SET_TYPE, f"set-field of {action[4:8].hex()} is not possible in a slice")
    field = FIELDS[number]
    if header[2] & 1 or length != field.size or len(action) != (8 + length + 7) // 8 * 8:
        raise bad_action(_BAD_LEN, f"set-field of {field.name} with length {length}")
    value = int.from_bytes(action[8 : 8 + length], "big")
    if value > field.ones or (field.name == "vlan_vid" and not value & VLAN_PRESENT):
        raise bad_action(_BAD_SET_ARGUMENT, f"set-field of {field.name} to {value:#x}")
    return field, value


def _push_vlan(walker: Translator, action: bytes) -> None:
    value, mask = _now(walker)
    if mask & _TAG and not value & _TAG:
        walker.rewrite = walker.rewrite.set(_TAG, _VLAN)
    else:
        # A new tag copies the number and priority of one that is there already, and behind two tags switches read
        # different types (``frames``).
        walker.rewrite = walker.rewrite.forget(_VLAN & ~_TAG | _ETH_TYPE_BITS | _ABOVE_ETHERNET).set(_TAG, _TAG)
    walker.parts.append(action)


def _now(walker: Translator) -> tuple[int, int]:
    """What is known of the header at this place."""
    match, rewrite = walker.origin.match, walker.rewrite
    same = match.mask & ~(rewrite.mask | rewrite.unknown)
    return match.value & same | rewrite.value, same | rewrite.mask


def _pop_vlan(walker: Translator, action: bytes) -> None:
    value, mask = _now(walker)
    forgotten = _VLAN
    if mask & _ETH_TYPE_BITS == _ETH_TYPE_BITS and not _is_type(value >> _ETH_TYPE.shift & _ETH_TYPE.ones):
        # A second tag was behind the first.
        forgotten |= _ETH_TYPE_BITS | _ABOVE_ETHERNET
    walker.rewrite = walker.rewrite.forget(forgotten)
    walker.parts.append(action)


def _is_type(eth_type: int) -> bool:
    """Whether a type says what follows it: behind a tag, or a length, the type is another."""
    return eth_type >= LOWEST_ETH_TYPE and eth_type not in TAGS


def _push_header(walker: Translator, action: bytes) -> None:
    (eth_type,) = _U16.unpack_from(action, 4)
    rewrite = walker.rewrite.forget(_ABOVE_ETHERNET)
    if action[1] == PUSH_PBB:
        rewrite = rewrite.forget(_VLAN)
    walker.rewrite = rewrite.set(eth_type << _ETH_TYPE.shift, _ETH_TYPE_BITS)
    walker.parts.append(action)


def _pop_mpls(walker: Translator, action: bytes) -> None:
    (eth_type,) = _U16.unpack_from(action, 4)
    rewrite = walker.rewrite.forget(_ABOVE_ETHERNET)
    if not _is_type(eth_type):
        # What was behind the label becomes a tag, or a header with a type of its own.
        walker.rewrite = rewrite.forget(_VLAN | _ETH_TYPE_BITS)
    elif walker.has(_MPLS_LABEL):
        walker.rewrite = rewrite.set(eth_type << _ETH_TYPE.shift, _ETH_TYPE_BITS)
    else:
        # A packet without a label keeps its type: buckets of groups get any packet of the slice.
        walker.rewrite = rewrite.forget(_ETH_TYPE_BITS)
    walker.parts.append(action)


def _pop_pbb(walker: Translator, action: bytes) -> None:
    walker.rewrite = walker.rewrite.forget(_ABOVE_ETHERNET | _ETH_TYPE_BITS | _VLAN | bits_of("eth_src", "eth_dst"))
    walker.parts.append(action)


_LENGTHS = {OUTPUT: 16}
_ANY_LENGTH = frozenset({SET_FIELD, EXPERIMENTER})
_HANDLERS: dict[int, Callable[[Translator, bytes], None]] = {
    OUTPUT: _output,
    GROUP: _group,
    SET_QUEUE: _set_queue,
    SET_FIELD: _set_field,
    EXPERIMENTER: translate_extension,
    PUSH_VLAN: _push_vlan,
    POP_VLAN: _pop_vlan,
    PUSH_MPLS: _push_header,
    PUSH_PBB: _push_header,
    POP_MPLS: _pop_mpls,
    POP_PBB: _pop_pbb,
    **dict.fromkeys((COPY_TTL_OUT, COPY_TTL_IN, SET_MPLS_TTL, DEC_MPLS_TTL, SET_NW_TTL, DEC_NW_TTL), _same),
}

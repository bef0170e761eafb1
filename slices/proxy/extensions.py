"""Open vSwitch's own actions (experimenter 0x2320) that can be had in a slice: encap, decap, resubmit, clone; and for
production the check of a frame's size, and copies of fields to registers.

Layouts and meaning: Open vSwitch 3.1, ovs-actions(7). A packet without its Ethernet header is *bare*: it may not leave
or meet another table so. ``resubmit`` leads to tables of the same block only. What comes back from it, or out of a
packet, may have any header.

Production is trusted, because its controller is the operator's own. It may resubmit to the same table and backwards,
where others would build loops that cost the switch its time. It may use registers, which no other slice can read or
write, and which are no part of a header: so nothing that is checked depends on them. What it takes out of a packet, or
gets back from a table, counts as its own, because production put it there. Else its frames between switches could not
leave beside a slice by header.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING

from hyroads.controller.ofp.wire import VENDOR_NICIRA
from hyroads.slices.core.allocation import PRODUCTION_NUMBER
from hyroads.slices.core.errors import bad_action
from hyroads.slices.core.fields import BY_NAME, TOTAL_BITS, bits_of

from .region import NOT_HEADER

if TYPE_CHECKING:
    from .actions import Translator

EXPERIMENTER = 0xFFFF
MOVE, RESUBMIT_TABLE, CLONE, ENCAP, DECAP, CHECK_LARGER = 6, 14, 42, 46, 47, 49
REGISTERS = frozenset(bytes((0, 1, number << 1, 4)) for number in (2, 3, 4, 5))
"""OXM headers of registers 2 to 5, as in matches and in set-field."""
IP_FRAGMENT = b"\x00\x01\x34\x01"
"""OXM header of the field that tells fragments from whole packets."""
MOST_NESTED = 4
_HEAD = Struct("!HHIH")
_ENCAP = Struct("!HHIHHI")
_DECAP = Struct("!HHIH2xI")
_RESUBMIT = Struct("!HHIHHB3x")
_CLONE = Struct("!HHIH6x")
_REGISTER_AT = 14
"""In the check of a size: where its result goes."""
_MOVED_TO_AT = 20
"""In a copy of a field: where it goes."""
_SAME_PORT = 0xFFF8
_ETHERNET, _MPLS = 0, frozenset({0x0001_8847, 0x0001_8848})
_NEXT = 0x0000_FFFE
_BAD_LEN, _BAD_EXPERIMENTER, _BAD_EXPERIMENTER_TYPE, _BAD_ARGUMENT = 1, 2, 3, 5
_HEADER = (1 << TOTAL_BITS) - 1 & ~NOT_HEADER
_ETH_TYPE = BY_NAME["eth_type"]


def translate_extension(walker: Translator, action: bytes) -> None:
    """One action; :class:`Refused` if it is none of those above."""
    vendor = int.from_bytes(action[4:8], "big")
    if vendor != VENDOR_NICIRA:
        raise bad_action(_BAD_EXPERIMENTER, f"actions of experimenter {vendor:#x} are not possible in a slice")
    if len(action) < 16:
        raise bad_action(_BAD_LEN, f"Open vSwitch's action of {len(action)} bytes")
    kind = int.from_bytes(action[8:10], "big")
    handler = _HANDLERS.get(kind)
    if handler is None:
        raise bad_action(_BAD_EXPERIMENTER_TYPE, f"Open vSwitch's action {kind} is not possible in a slice")
    wanted = _LENGTHS.get(kind, 16)
    if kind != CLONE and len(action) != wanted:
        raise bad_action(_BAD_LEN, f"Open vSwitch's action {kind} with {len(action)} bytes, expected {wanted}")
    handler(walker, action)


def check_whole(walker: Translator) -> None:
    """Refuses if the packet has lost its Ethernet header at a place where it leaves or goes on."""
    if walker.bare:
        raise bad_action(_BAD_ARGUMENT, "the packet has no Ethernet header here")


def _encap(walker: Translator, action: bytes) -> None:
    packet_type = _ENCAP.unpack(action)[5]
    if packet_type in _MPLS and not walker.bare:
        # The new header's fields are of no packet known; whatever was a header is payload now.
        eth_type = (packet_type & 0xFFFF) << _ETH_TYPE.shift
        walker.rewrite = walker.rewrite.forget(_HEADER).set(eth_type, bits_of("eth_type")).set(0, bits_of("vlan_vid"))
        walker.bare = True
    elif packet_type == _ETHERNET and walker.bare:
        walker.rewrite = walker.rewrite.forget(bits_of("eth_src", "eth_dst"))
        walker.bare = False
    else:
        raise bad_action(_BAD_ARGUMENT, f"encap to packet type {packet_type:#x} is not possible here")
    walker.parts.append(action)


def _decap(walker: Translator, action: bytes) -> None:
    packet_type = _DECAP.unpack(action)[4]
    if not walker.bare and packet_type == _NEXT:
        walker.rewrite = walker.rewrite.forget(bits_of("eth_src", "eth_dst", "vlan_vid", "vlan_pcp"))
        walker.bare = True
    elif walker.bare and packet_type == _ETHERNET:
        _come_back(walker)
        walker.bare = False
    else:
        raise bad_action(_BAD_ARGUMENT, f"decap to packet type {packet_type:#x} is not possible here")
    walker.parts.append(action)


def _resubmit(walker: Translator, action: bytes) -> None:
    *head, in_port, table = _RESUBMIT.unpack(action)
    if in_port != _SAME_PORT or not _may_follow(walker, table):
        raise bad_action(_BAD_ARGUMENT, "resubmit leads to later tables of the slice, from the packet's own port")
    check_whole(walker)
    if walker.rewrite.changed:
        walker.check_out(None)
    walker.parts.append(_RESUBMIT.pack(*head, in_port, walker.view.block.first + table))
    _come_back(walker)


def _come_back(walker: Translator) -> None:
    """A whole header that nobody here can tell; production's is production's."""
    walker.rewrite = walker.rewrite.forget(_HEADER)
    walker.restored = walker.view.number == PRODUCTION_NUMBER


def _may_follow(walker: Translator, table: int) -> bool:
    here, count = walker.table, walker.view.block.count
    if here is None or table >= count:
        return False
    return table > here or walker.view.number == PRODUCTION_NUMBER


def _check_larger(walker: Translator, action: bytes) -> None:
    """The header stays as it is; the result goes to a register."""
    if walker.view.number != PRODUCTION_NUMBER:
        raise bad_action(_BAD_EXPERIMENTER_TYPE, f"Open vSwitch's action {CHECK_LARGER} is not possible in a slice")
    if action[_REGISTER_AT : _REGISTER_AT + 4] not in REGISTERS:
        raise bad_action(_BAD_ARGUMENT, "the result of a size's check goes to register 2 or 3")
    walker.parts.append(action)


def _move(walker: Translator, action: bytes) -> None:
    """The header stays as it is; a register gets a field of it."""
    if walker.view.number != PRODUCTION_NUMBER:
        raise bad_action(_BAD_EXPERIMENTER_TYPE, f"Open vSwitch's action {MOVE} is not possible in a slice")
    if action[_MOVED_TO_AT:] not in REGISTERS:
        raise bad_action(_BAD_ARGUMENT, "a field is copied to registers 2 to 5 only")
    walker.parts.append(action)


def _clone(walker: Translator, action: bytes) -> None:
    if walker.depth >= MOST_NESTED:
        raise bad_action(_BAD_ARGUMENT, f"actions are nested more than {MOST_NESTED} deep")
    before = walker.rewrite, walker.bare, walker.restored, walker.parts
    walker.parts = []
    walker.depth += 1
    inner = walker.walk(action, 16, len(action))
    walker.depth -= 1
    walker.rewrite, walker.bare, walker.restored, walker.parts = before
    walker.parts.append(_CLONE.pack(EXPERIMENTER, 16 + len(inner), VENDOR_NICIRA, CLONE) + inner)


_HANDLERS: dict[int, Callable[[Translator, bytes], None]] = {
    RESUBMIT_TABLE: _resubmit,
    CLONE: _clone,
    ENCAP: _encap,
    DECAP: _decap,
    CHECK_LARGER: _check_larger,
    MOVE: _move,
}
_LENGTHS = {CHECK_LARGER: 24, MOVE: 24}


def guest_extension(action: bytes, first_table: int, inner: Callable[[bytes, int, int], bytes]) -> bytes:
    """The action as the guest sent it: its own tables, also inside; ``inner`` turns a list of actions back."""
    if len(action) < 16:
        return action
    _, _, vendor, kind = _HEAD.unpack_from(action)
    if vendor == VENDOR_NICIRA and kind == RESUBMIT_TABLE and len(action) == 16:
        return action[:12] + bytes((action[12] - first_table & 0xFF,)) + action[13:]
    if vendor == VENDOR_NICIRA and kind == CLONE:
        found = inner(action, 16, len(action))
        return _CLONE.pack(EXPERIMENTER, 16 + len(found), VENDOR_NICIRA, CLONE) + found
    return action

"""Matches as OpenFlow 1.3 OXM fields and back (specification 1.3.5, section 7.2.3)."""

from __future__ import annotations

from hyroads.slices.errors import MatchError
from hyroads.slices.fields import FIELDS, Field
from hyroads.slices.match import TernaryMatch, normal

_BASIC_CLASS = 0x8000
_PADDED = {field.number: field.ones for field in FIELDS if field.bits % 8}
"""Fields that do not fill their bytes: the other bits must be 0."""


def encode(match: TernaryMatch, *, strict: bool = False) -> bytes:
    """OXM fields in ascending order, without the header of ofp_match.

    :class:`MatchError` if a field has a mask that the switch does not take: with ``strict`` OpenFlow 1.3 decides, else
    Open vSwitch, which takes masks on TCP, UDP and SCTP ports too.
    """
    parts = []
    for field, value, mask in match.fields():
        if mask != field.ones and not (field.maskable if strict else field.maskable_in_ovs):
            raise MatchError(MatchError.BAD_MASK, f"{field.name} takes no mask")
        parts.append(field_bytes(field, value, mask))
    return b"".join(parts)


def field_bytes(field: Field, value: int, mask: int) -> bytes:
    """One OXM field; a mask of all ones is left out."""
    size = field.size
    if mask == field.ones:
        return bytes((0x80, 0, field.number << 1, size)) + value.to_bytes(size, "big")
    header = bytes((0x80, 0, field.number << 1 | 1, 2 * size))
    return header + value.to_bytes(size, "big") + mask.to_bytes(size, "big")


def decode(data: bytes) -> TernaryMatch:
    """The match that OXM fields mean; :class:`MatchError` with OpenFlow's code if a switch would refuse them."""
    value = mask = offset = 0
    while offset < len(data):
        field, one, ones, offset = _field(data, offset)
        bits = field.ones << field.shift
        if mask & bits:
            raise MatchError(MatchError.DUP_FIELD, f"{field.name} is given twice")
        value |= one << field.shift
        mask |= ones << field.shift
    found = normal(value, mask)
    if found is None:
        raise MatchError(MatchError.BAD_VALUE, "vlan_vid: a frame without a tag has no VLAN number")
    return found


def _field(data: bytes, offset: int) -> tuple[Field, int, int, int]:
    """(field, value, mask, where the next one starts)."""
    if len(data) - offset < 4:
        raise MatchError(MatchError.BAD_LEN, f"{len(data) - offset} bytes are no OXM field")
    number, masked, length = data[offset + 2] >> 1, data[offset + 2] & 1, data[offset + 3]
    if (data[offset] << 8 | data[offset + 1]) != _BASIC_CLASS or number >= len(FIELDS):
        raise MatchError(MatchError.BAD_FIELD, f"OXM field {data[offset : offset + 4].hex()} is none of OpenFlow 1.3")
    field = FIELDS[number]
    size, start = field.size, offset + 4
    end = start + length
    if length != size << masked or end > len(data):
        raise MatchError(MatchError.BAD_LEN, f"{field.name} has {length} bytes, expected {size << masked}")
    value = int.from_bytes(data[start : start + size], "big")
    mask = int.from_bytes(data[start + size : end], "big") if masked else field.ones
    if number in _PADDED:
        if value & ~field.ones:
            raise MatchError(MatchError.BAD_VALUE, f"{field.name}={value:#x} has more than {field.bits} bits")
        mask &= field.ones
    if value & ~mask:
        raise MatchError(MatchError.BAD_WILDCARDS, f"{field.name}: bits outside the mask")
    if mask != field.ones and not field.maskable_in_ovs:
        raise MatchError(MatchError.BAD_MASK, f"{field.name} takes no mask")
    return field, value, mask, end

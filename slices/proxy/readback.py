"""What the switch says of a slice's rules and groups, in the guest's own numbers: the inverse of ``flow_mod``.

Everything ``flow_mod`` changes can be turned back by itself (FLOOD is a group of the slice, goto and numbers are
shifted or mapped), so no copy of the guest's rules is kept.
"""

from __future__ import annotations

from functools import partial
from struct import Struct

from hyroads.controller.ofp import wire

from .actions import ALL_PORTS, FLOOD, GROUP, OUTPUT, SET_QUEUE
from .contents import records
from .extensions import EXPERIMENTER, guest_extension
from .guest_view import GuestView

_HEADER = Struct("!HH")
_U16 = Struct("!H")
_U32 = Struct("!I")
_OUTPUT = Struct("!HHIH6x")
_ACTIONS = Struct("!HH4x")
_METADATA_FIELDS = (b"\x80\x00\x04\x08", b"\x80\x00\x05\x10")
_GOTO, _METER, _HAVE_ACTIONS = 1, 6, frozenset({3, 4})
_NEXT_TABLES = frozenset({2, 3})


def guest_fields(fields: bytes, view: GuestView) -> bytes:
    """Match fields of a rule with the guest's metadata instead of the slice's."""
    at, end = 0, len(fields)
    while at + 4 <= end:
        header, after = fields[at : at + 4], at + 4 + fields[at + 3]
        if header in _METADATA_FIELDS:
            allowed = view.layout.guest_metadata_mask.to_bytes(8, "big")
            value = _and(fields[at + 4 : at + 12], allowed)
            # The mask of the slice's bits stays: the guest asked for zeros there.
            return fields[: at + 4] + value + fields[at + 12 : after] + fields[after:]
        at = after
    return fields


def _and(one: bytes, other: bytes) -> bytes:
    return bytes(a & b for a, b in zip(one, other, strict=True))


def _match(data: bytes, start: int, view: GuestView) -> tuple[bytes, int]:
    """(the match with header and padding, where the next thing starts)."""
    (_, length) = _HEADER.unpack_from(data, start)
    return wire.match_struct(guest_fields(data[start + 4 : start + length], view)), start + (length + 7) // 8 * 8


def flow_removed(message: bytes, view: GuestView) -> bytes:
    """A flow-removed message of a rule in the slice's block, for the guest."""
    match, _ = _match(message, 48, view)
    head = message[:19] + bytes((view.guest_table(message[19]),)) + message[20:48]
    return head[:2] + (48 + len(match)).to_bytes(2, "big") + head[4:] + match


def flow_stats(body: bytes, view: GuestView) -> bytes:
    """The rules of a flow-stats reply that are in the slice's block, for the guest."""
    parts = []
    for at, length in records(body):
        table = body[at + 2] - view.block.first
        if 0 <= table < view.block.count:
            match, after = _match(body, at + 48, view)
            rest = match + guest_instructions(body, after, at + length, view)
            head = (48 + len(rest)).to_bytes(2, "big") + bytes((table,)) + body[at + 3 : at + 48]
            parts.append(head + rest)
    return b"".join(parts)


def guest_instructions(data: bytes, start: int, end: int, view: GuestView) -> bytes:
    """Instructions with the guest's tables, groups and meters."""
    parts = []
    for at, length in records(data, start, end, size_at=2):
        (kind,), part = _U16.unpack_from(data, at), data[at : at + length]
        if kind == _GOTO:
            # A rule of the slice goes on within its block; where a switch says otherwise, it is none of its tables.
            part = part[:4] + bytes((part[4] - view.block.first & 0xFF,)) + part[5:]
        elif kind == _METER:
            meter = view.meters.guest(_U32.unpack_from(part, 4)[0])
            part = part[:4] + _U32.pack(0xFFFFFFFF if meter is None else meter)
        elif kind in _HAVE_ACTIONS:
            actions = guest_actions(data, at + 8, at + length, view)
            part = _ACTIONS.pack(kind, 8 + len(actions)) + actions
        parts.append(part)
    return b"".join(parts)


def guest_actions(data: bytes, start: int, end: int, view: GuestView) -> bytes:
    """Actions with the guest's groups; the groups for FLOOD and ALL become outputs again."""
    parts = []
    for at, length in records(data, start, end, size_at=2):
        (kind,), part = _U16.unpack_from(data, at), data[at : at + length]
        if kind == GROUP:
            (real,) = _U32.unpack_from(part, 4)
            if real in {view.flood_group, view.flood_group + 1}:
                part = _OUTPUT.pack(OUTPUT, 16, FLOOD if real == view.flood_group else ALL_PORTS, 0)
            else:
                group = view.groups.guest(real)
                part = part[:4] + _U32.pack(0xFFFFFFFF if group is None else group)
        elif kind == SET_QUEUE:
            # Always the slicer's own: a guest may have none.
            part = b""
        elif kind == EXPERIMENTER:
            part = guest_extension(part, view.block.first, partial(guest_actions, view=view))
        parts.append(part)
    return b"".join(parts)


def group_descriptions(body: bytes, view: GuestView) -> bytes:
    """The slice's groups of a reply, for the guest."""
    parts = []
    for at, length in records(body):
        guest = view.groups.guest(_U32.unpack_from(body, at + 4)[0])
        if guest is not None:
            buckets = guest_buckets(body, at + 8, at + length, view)
            parts.append((8 + len(buckets)).to_bytes(2, "big") + body[at + 2 : at + 4] + _U32.pack(guest) + buckets)
    return b"".join(parts)


def guest_buckets(body: bytes, start: int, end: int, view: GuestView) -> bytes:
    """Buckets with the guest's groups."""
    parts = []
    for at, length in records(body, start, end):
        actions = guest_actions(body, at + 16, at + length, view)
        watched = view.groups.guest(_U32.unpack_from(body, at + 8)[0])
        group = body[at + 8 : at + 12] if watched is None else _U32.pack(watched)
        parts.append((16 + len(actions)).to_bytes(2, "big") + body[at + 2 : at + 8] + group + body[at + 12 : at + 16])
        parts.append(actions)
    return b"".join(parts)


def table_features(body: bytes, view: GuestView) -> bytes:
    """The features of the block's tables: the guest's numbers, and its bits of the metadata."""
    parts, allowed = [], view.layout.guest_metadata_mask.to_bytes(8, "big")
    for at, length in records(body):
        table = body[at + 2] - view.block.first
        if 0 <= table < view.block.count:
            properties = _properties(body, at + 64, at + length, view)
            metadata = _and(body[at + 40 : at + 48], allowed) + _and(body[at + 48 : at + 56], allowed)
            head = (64 + len(properties)).to_bytes(2, "big") + bytes((table,)) + body[at + 3 : at + 40]
            parts.append(head + metadata + body[at + 56 : at + 64] + properties)
    return b"".join(parts)


def _properties(body: bytes, at: int, end: int, view: GuestView) -> bytes:
    parts = []
    while at < end:
        kind, length = _HEADER.unpack_from(body, at)
        data = body[at + 4 : at + length]
        if kind in _NEXT_TABLES:
            numbers = (table - view.block.first for table in data)
            data = bytes(number for number in numbers if 0 <= number < view.block.count)
        parts.append(_HEADER.pack(kind, 4 + len(data)) + data + b"\0" * (-(4 + len(data)) % 8))
        at += length + (-length % 8)
    return b"".join(parts)

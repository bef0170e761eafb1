"""Group-mods and meter-mods of a guest (OpenFlow Switch Specification 1.3.5, sections 7.3.4.2 and 7.3.4.4)."""

from __future__ import annotations

from collections.abc import Collection
from struct import Struct

from hyroads.controller.ofp import wire
from hyroads.slices.core.errors import GROUP_MOD_FAILED, METER_MOD_FAILED, Refused, bad_request

from .actions import GROUP, queued
from .flow_mod import translate_action_set
from .guest_view import FLOOD_GROUPS, GuestView

ALL = 0xFFFFFFFF
ALL_GROUPS = 0xFFFFFFFC
ALL_METERS, LAST_METER = 0xFFFFFFFF, 0xFFFF0000
_LAST_GROUP = 0xFFFFFF00
_GROUP_MOD = Struct("!HBxI")
_BUCKET = Struct("!HHII4x")
_METER_MOD = Struct("!HHI")
_OUTPUT = Struct("!HHIH6x")
_PAIR = Struct("!HH")


def translate_group_mod(message: bytes, view: GuestView) -> list[bytes]:
    """The messages for the switch, under the guest's transaction id; :class:`Refused`."""
    if len(message) < 16:
        raise bad_request(6, f"group-mod of {len(message)} bytes")
    command, kind, guest = _GROUP_MOD.unpack_from(message, 8)
    xid = int.from_bytes(message[4:8], "big")
    if command > wire.GROUP_DELETE:
        raise Refused(GROUP_MOD_FAILED, 11, f"command {command}")
    if command == wire.GROUP_DELETE:
        # 0xfffffffc is all groups (OFPG_ALL); ANY is taken as that too.
        everything = guest in {ALL, ALL_GROUPS}
        view.chains = {} if everything else {group: to for group, to in view.chains.items() if group != guest}
        numbers = view.groups.clear() if everything else (view.groups.remove(guest),)
        return [
            _message(wire.GROUP_MOD, xid, _GROUP_MOD.pack(wire.GROUP_DELETE, 0, real))
            for real in numbers
            if real is not None
        ]
    if guest > _LAST_GROUP:
        raise Refused(GROUP_MOD_FAILED, 1, f"group {guest:#x} is reserved")
    present = view.groups.real(guest) is not None
    if present != (command == wire.GROUP_MODIFY):
        raise Refused(GROUP_MOD_FAILED, 8 if command == wire.GROUP_MODIFY else 0, f"group {guest}")
    onward = chained(message)
    if view.would_loop(guest, onward):
        raise Refused(GROUP_MOD_FAILED, 7, f"group {guest} would lead to itself")
    buckets = check_buckets(message, view)
    real = view.groups.add(guest)
    if real is None:
        raise Refused(GROUP_MOD_FAILED, 3, "the slice has no groups left")
    view.chains[guest] = onward
    return [_message(wire.GROUP_MOD, xid, _GROUP_MOD.pack(command, kind, real) + buckets)]


def _message(kind: int, xid: int, body: bytes) -> bytes:
    if len(body) > 0xFFFF - 8:
        raise bad_request(6, "the message gets too long")
    return wire.message(body, xid, kind)


def check_buckets(message: bytes, view: GuestView) -> bytes:
    """The buckets of a group-mod, translated; :class:`Refused`."""
    parts, start, end = [], 16, len(message)
    while start < end:
        length, weight, port, group = _BUCKET.unpack_from(message, start) if end - start >= 16 else (0, 0, 0, 0)
        if length < 16 or length % 8 or start + length > end:
            raise Refused(GROUP_MOD_FAILED, 13, f"bucket of length {length}")
        if port != ALL and port not in view.ports:
            raise Refused(GROUP_MOD_FAILED, 14, f"watched port {port:#x} is not of the slice")
        if group != ALL:
            real = view.groups.real(group)
            if real is None:
                raise Refused(GROUP_MOD_FAILED, 14, f"the slice has no group {group}")
            group = real
        actions = translate_action_set(message, start + 16, start + length, view)
        parts.append(_BUCKET.pack(16 + len(actions), weight, port, group) + actions)
        start += length
    return b"".join(parts)


def chained(message: bytes) -> frozenset[int]:
    """The guest's groups that the buckets of its group-mod name; lengths that lie end it, ``check_buckets`` refuses."""
    found, at = set(), 16
    while at + 16 <= len(message):
        size = int.from_bytes(message[at : at + 2], "big")
        inner, end = at + 16, min(at + size, len(message))
        while inner + 8 <= end:
            kind, length = _PAIR.unpack_from(message, inner)
            if kind == GROUP:
                found.add(int.from_bytes(message[inner + 4 : inner + 8], "big"))
            if length < 8:
                break
            inner += length
        if size < 16:
            break
        at += size
    return frozenset(found)


def flood_buckets(ports: Collection[int], queue: int | None = None) -> bytes:
    """Type (ALL) and buckets of a group that copies to each port, as a switch describes it."""
    before = queued(queue)
    head = _BUCKET.pack(32 + len(before), 0, ALL, ALL) + before
    return b"\0\0" + b"".join(head + _OUTPUT.pack(0, 16, port, 0) for port in sorted(ports))


def is_flood_group(real: int) -> bool:
    """Whether a group of the switch is one of the slicer's own."""
    return real >= FLOOD_GROUPS


def translate_meter_mod(message: bytes, view: GuestView) -> list[bytes]:
    """The messages for the switch, under the guest's transaction id; :class:`Refused`."""
    if len(message) < 16:
        raise bad_request(6, f"meter-mod of {len(message)} bytes")
    command, flags, guest = _METER_MOD.unpack_from(message, 8)
    xid = int.from_bytes(message[4:8], "big")
    if command > wire.METER_DELETE:
        raise Refused(METER_MOD_FAILED, 4, f"command {command}")
    if command == wire.METER_DELETE:
        numbers = view.meters.clear() if guest == ALL_METERS else (view.meters.remove(guest),)
        return [
            _message(wire.METER_MOD, xid, _METER_MOD.pack(wire.METER_DELETE, 0, real))
            for real in numbers
            if real is not None
        ]
    if not 0 < guest <= LAST_METER:
        raise Refused(METER_MOD_FAILED, 2, f"meter {guest:#x} is reserved")
    present = view.meters.real(guest) is not None
    if present != (command == wire.METER_MODIFY):
        raise Refused(METER_MOD_FAILED, 3 if command == wire.METER_MODIFY else 1, f"meter {guest}")
    _check_bands(message)
    real = view.meters.add(guest)
    if real is None:
        raise Refused(METER_MOD_FAILED, 10, "the slice has no meters left")
    return [_message(wire.METER_MOD, xid, _METER_MOD.pack(command, flags, real) + message[16:])]


def _check_bands(message: bytes) -> None:
    start, end = 16, len(message)
    while start < end:
        length = int.from_bytes(message[start + 2 : start + 4], "big")
        if length != 16 or start + length > end:
            raise bad_request(6, f"meter band of length {length}")
        start += length

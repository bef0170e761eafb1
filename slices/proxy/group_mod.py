"""Group-mods and meter-mods of a guest (OpenFlow Switch Specification 1.3.5, sections 7.3.4.2 and 7.3.4.4)."""

from __future__ import annotations

from collections.abc import Collection
from struct import Struct
from typing import NamedTuple

from hyroads.controller.ofp import wire
from hyroads.slices.core.errors import GROUP_MOD_FAILED, METER_MOD_FAILED, Refused, bad_request

from .actions import GROUP, queued
from .flow_mod import translate_action_set
from .guest_view import GuestView, IdMap

ALL = 0xFFFFFFFF
ALL_GROUPS = 0xFFFFFFFC
ALL_METERS = 0xFFFFFFFF
_ALL_BUCKETS, _SELECT, _INDIRECT, _FAST_FAILOVER = range(4)
"""Types of groups."""
_INVALID_GROUP, _WATCH_UNSUPPORTED, _BAD_GROUP_TYPE = 1, 6, 10
_HEAD = Struct("!H2xI")
_BUCKET = Struct("!HHII4x")
_OUTPUT = Struct("!HHIH6x")
_PAIR = Struct("!HH")


class _Kind(NamedTuple):
    """What groups and meters are called, their numbers, and the codes of their errors."""

    word: str
    numbers: range
    everything: frozenset[int]
    failed: int
    bad_command: int
    reserved: int
    unknown: int
    known: int
    none_left: int


# 0xfffffffc is all groups (OFPG_ALL); ANY is taken as that too.
_OF_GROUPS = _Kind("group", range(0xFFFFFF01), frozenset({ALL, ALL_GROUPS}), GROUP_MOD_FAILED, 11, 1, 8, 0, 3)
_OF_METERS = _Kind("meter", range(1, 0xFFFF0001), frozenset({ALL_METERS}), METER_MOD_FAILED, 4, 2, 3, 1, 10)


def translate_group_mod(message: bytes, view: GuestView) -> list[bytes]:
    """The messages for the switch, under the guest's transaction id; :class:`Refused`."""
    command, guest = _checked(message, _OF_GROUPS, view.groups)
    if command == wire.GROUP_DELETE:
        others = {} if guest in _OF_GROUPS.everything else {n: to for n, to in view.chains.items() if n != guest}
        view.chains = others
        return _deletes(message, _OF_GROUPS, view.groups, guest)
    onward = chained(message)
    if view.would_loop(guest, onward):
        raise Refused(GROUP_MOD_FAILED, 7, f"group {guest} would lead to itself")
    buckets = check_buckets(message, view)
    _check_type(message)
    found = _put(message, _OF_GROUPS, view.groups, guest, buckets)
    view.chains[guest] = onward
    return found


def translate_meter_mod(message: bytes, view: GuestView) -> list[bytes]:
    """The messages for the switch, under the guest's transaction id; :class:`Refused`."""
    command, guest = _checked(message, _OF_METERS, view.meters)
    if command == wire.METER_DELETE:
        return _deletes(message, _OF_METERS, view.meters, guest)
    start, end = 16, len(message)
    while start < end:
        length = int.from_bytes(message[start + 2 : start + 4], "big")
        if length != 16 or start + length > end:
            raise bad_request(6, f"meter band of length {length}")
        start += length
    return _put(message, _OF_METERS, view.meters, guest, message[16:])


def _checked(message: bytes, kind: _Kind, ids: IdMap) -> tuple[int, int]:
    """(command, the guest's number); adds need a number that is free, changes one that is not."""
    if len(message) < 16:
        raise bad_request(6, f"{kind.word}-mod of {len(message)} bytes")
    command, guest = _HEAD.unpack_from(message, 8)
    if command > wire.GROUP_DELETE:
        raise Refused(kind.failed, kind.bad_command, f"command {command}")
    if command == wire.GROUP_DELETE:
        return command, guest
    if guest not in kind.numbers:
        raise Refused(kind.failed, kind.reserved, f"{kind.word} {guest:#x} is reserved")
    modified = command == wire.GROUP_MODIFY
    if modified != (ids.real(guest) is not None):
        raise Refused(kind.failed, kind.unknown if modified else kind.known, f"{kind.word} {guest}")
    return command, guest


def _put(message: bytes, kind: _Kind, ids: IdMap, guest: int, rest: bytes) -> list[bytes]:
    real = ids.add(guest)
    if real is None:
        raise Refused(kind.failed, kind.none_left, f"the slice has no {kind.word}s left")
    return [_renumbered(message, message[8:12], real, rest)]


def _deletes(message: bytes, kind: _Kind, ids: IdMap, guest: int) -> list[bytes]:
    numbers = ids.clear() if guest in kind.everything else (ids.remove(guest),)
    return [_renumbered(message, message[8:10] + b"\0\0", real, b"") for real in numbers if real is not None]


def _renumbered(message: bytes, head: bytes, real: int, rest: bytes) -> bytes:
    if len(rest) > 0xFFFF - 16:
        raise bad_request(6, "the message gets too long")
    return wire.message(head + real.to_bytes(4, "big") + rest, int.from_bytes(message[4:8], "big"), message[1])


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


def _check_type(message: bytes) -> None:
    """Refuses what Open vSwitch does not read: types that are none, and buckets that a type does not have."""
    kind, start, count = message[10], 16, 0
    if kind > _FAST_FAILOVER:
        raise Refused(GROUP_MOD_FAILED, _BAD_GROUP_TYPE, f"group type {kind}")
    while start < len(message):
        length, weight, port, group = _BUCKET.unpack_from(message, start)
        is_watched = (port, group) != (ALL, ALL)
        if weight and kind != _SELECT:
            raise Refused(GROUP_MOD_FAILED, _INVALID_GROUP, f"a bucket with weight {weight} in a group of type {kind}")
        if is_watched and kind in {_ALL_BUCKETS, _INDIRECT}:
            raise Refused(GROUP_MOD_FAILED, _WATCH_UNSUPPORTED, f"a watched bucket in a group of type {kind}")
        if not is_watched and kind == _FAST_FAILOVER:
            raise Refused(GROUP_MOD_FAILED, _INVALID_GROUP, "a bucket of a fast failover group watches nothing")
        start, count = start + length, count + 1
    if kind == _INDIRECT and count != 1:
        raise Refused(GROUP_MOD_FAILED, _INVALID_GROUP, f"an indirect group with {count} buckets")


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

"""Memory that the slicer and its compiled fast path both read and write: the structures of
``dataplane/src/slicer/layout.rs``.

They are what counts and limits of a slice are kept in, with the library or without. Whoever puts a pointer into one
keeps what it points to.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Collection

from hyroads.controller.core.token_bucket import TokenBucket

PORTS = 4096
"""Ports from here on are not for the fast path."""
GUESTS = 8
"""Nor are slices with more controllers at a switch."""
FIRST_XID, LAST_XID = 0x4000_0000, 0x7FFF_FFFF
"""Ids of messages that the fast path sends on."""

_Words = ctypes.c_uint64 * (PORTS // 64)


class Bucket(ctypes.Structure, TokenBucket):
    """A token bucket."""

    _fields_ = (
        ("rate_per_s", ctypes.c_double),
        ("burst", ctypes.c_double),
        ("_tokens", ctypes.c_double),
        ("_filled_s", ctypes.c_double),
    )

    def __init__(self, rate_per_s: float, burst: float) -> None:
        ctypes.Structure.__init__(self, rate_per_s, burst, burst, math.inf)


class Quota(ctypes.Structure):
    """Flow entries: at most, counted, and added since."""

    _fields_ = (
        ("most", ctypes.c_uint64),
        ("counted_entries", ctypes.c_uint64),
        ("added", ctypes.c_uint64),
        ("refused", ctypes.c_uint64),
    )


class Line(ctypes.Structure):
    """One connection: ``buffer[start:end]`` has come and is not handled yet."""

    _fields_ = (
        ("buffer", ctypes.c_void_p),
        ("room", ctypes.c_uint64),
        ("start", ctypes.c_uint64),
        ("end", ctypes.c_uint64),
        ("heard_s", ctypes.c_double),
        ("switch", ctypes.c_void_p),
        ("tenant", ctypes.c_void_p),
        ("fd", ctypes.c_int32),
        ("open", ctypes.c_uint32),
        ("writable", ctypes.c_uint32),
        ("may_change", ctypes.c_uint32),
        ("packet_in_reasons", ctypes.c_uint32),
        ("padding", ctypes.c_uint32),
    )


class SharedTenant(ctypes.Structure):
    """A slice on one switch."""

    _fields_ = (
        ("packet_ins", ctypes.c_void_p),
        ("changes", ctypes.c_void_p),
        ("entries", ctypes.c_void_p),
        ("messages", ctypes.c_uint64),
        ("dropped_packet_ins", ctypes.c_uint64),
        ("metadata_mask", ctypes.c_uint64),
        ("queue", ctypes.c_int64),
        ("first_table", ctypes.c_uint32),
        ("table_count", ctypes.c_uint32),
        ("ports_known", ctypes.c_uint32),
        ("uniform", ctypes.c_uint32),
        ("guest_count", ctypes.c_uint32),
        ("padding", ctypes.c_uint32),
        ("ports", _Words),
        ("whole", _Words),
        ("guests", ctypes.c_void_p * GUESTS),
    )


class SharedSwitch(ctypes.Structure):
    """One switch: its connection, and whose each table is."""

    _fields_ = (
        ("line", ctypes.c_void_p),
        ("next_xid", ctypes.c_uint32),
        ("padding", ctypes.c_uint32),
        ("tenants", ctypes.c_void_p * 256),
        ("kinds", ctypes.c_uint32 * PORTS),
    )


class Sent(ctypes.Structure):
    """What was sent on under an id of the slicer's own."""

    _fields_ = (
        ("sent_s", ctypes.c_double),
        ("xid", ctypes.c_uint32),
        ("guest_xid", ctypes.c_uint32),
        ("length", ctypes.c_uint32),
        ("padding", ctypes.c_uint32),
        ("head", ctypes.c_uint8 * 64),
    )


class Event(ctypes.Structure):
    """What is to be done with a connection: by epoll's ``mask``, or by ``what`` if that is 0."""

    _fields_ = (("fd", ctypes.c_int32), ("mask", ctypes.c_uint32), ("what", ctypes.c_uint32))


def sizes() -> int:
    """As ``hyroads_slicer_sizes``: differs if any structure does."""
    found = 0
    for each in (Bucket, Quota, SharedTenant, SharedSwitch, Line, Sent, Event):
        found = found * 31 + ctypes.sizeof(each)
    return found


def words_of(ports: Collection[int]) -> ctypes.Array[ctypes.c_uint64]:
    """One bit for each port below ``PORTS``."""
    words = _Words()
    for port in ports:
        if port < PORTS:
            words[port // 64] |= 1 << port % 64
    return words

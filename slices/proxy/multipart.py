"""Statistics and descriptions: what a guest asks becomes questions about its slice, and answers are cut to it.

Layouts: OpenFlow Switch Specification 1.3.5, section 7.3.5. A question about all tables becomes one for each table
of the block; ``Answer`` joins what comes back. Replies have passed ``guard.check``.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

from hyroads.controller.ofp import wire
from hyroads.slices.core.errors import TABLE_FEATURES_FAILED, Refused, bad_request

from .contents import records
from .flow_mod import NO_SUCH_GROUP, check_out_port, in_port_of, read_match, with_slice_metadata
from .guest_view import GuestView
from .ports import own_queues, own_records
from .readback import flow_stats, group_descriptions, table_features

MORE = 1
_MULTIPART = Struct("!HH4x")
_FLOW = Struct("!B3xII4xQQ")
_AGGREGATE = Struct("!QQI4x")
_U32 = Struct("!I")
_BAD_MULTIPART, _BAD_EXPERIMENTER, _BAD_LEN, _BAD_TABLE, _BAD_PORT = 2, 3, 6, 9, 11


# -- questions --------------------------------------------------------------------------------------------------------


def requests(message: bytes, view: GuestView) -> list[bytes]:
    """The questions for the switch, under the guest's transaction id; :class:`Refused`.

    All of them must be sent, and ``Answer`` be told how many there are.
    """
    if len(message) < 16:
        raise bad_request(_BAD_LEN, f"multipart request of {len(message)} bytes")
    kind, flags = _MULTIPART.unpack_from(message, 8)
    handler = _QUESTIONS.get(kind)
    if handler is None:
        code = _BAD_EXPERIMENTER if kind == 0xFFFF else _BAD_MULTIPART
        raise bad_request(code, f"multipart requests of type {kind} are not possible in a slice")
    xid = int.from_bytes(message[4:8], "big")
    head = _MULTIPART.pack(kind, flags)
    return [wire.message(head + body, xid, wire.MULTIPART_REQUEST) for body in handler(message, view)]


def _rules(message: bytes, view: GuestView) -> list[bytes]:
    if len(message) < 56:
        raise bad_request(_BAD_LEN, "a question about rules ends early")
    table, out_port, out_group, cookie, mask = _FLOW.unpack_from(message, 16)
    match, data, _ = read_match(message, 48, len(message), view)
    in_port_of(match, view)
    data = with_slice_metadata(match, data, view)
    check_out_port(out_port)
    if out_group != wire.ANY:
        real = view.groups.real(out_group)
        out_group = NO_SUCH_GROUP if real is None else real
    if table != wire.ALL_TABLES and table >= view.block.count:
        raise bad_request(_BAD_TABLE, f"table {table}: the slice has {view.block.count}")
    guest_tables = range(view.block.count) if table == wire.ALL_TABLES else (table,)
    after = wire.match_struct(data)
    return [_FLOW.pack(view.block.first + t, out_port, out_group, cookie, mask) + after for t in guest_tables]


def _port(message: bytes, view: GuestView) -> list[bytes]:
    port = _number(message)
    if len(message) > 24:
        raise bad_request(_BAD_LEN, "a question about a port or queue is too long")
    if port != wire.ANY and port not in view.ports:
        raise bad_request(_BAD_PORT, f"port {port:#x} is not of the slice")
    return [message[16:]]


def _number(message: bytes) -> int:
    if len(message) < 24:
        raise bad_request(_BAD_LEN, "a question by number ends early")
    number: int = _U32.unpack_from(message, 16)[0]
    return number


def _group(message: bytes, view: GuestView) -> list[bytes]:
    number = _number(message)
    if number != 0xFFFFFFFC:  # OFPG_ALL
        real = view.groups.real(number)
        number = NO_SUCH_GROUP if real is None else real
    return [_U32.pack(number) + b"\0" * 4]


def _meter(message: bytes, view: GuestView) -> list[bytes]:
    number = _number(message)
    if number != wire.ANY:
        real = view.meters.real(number)
        if real is None:
            raise Refused(12, 3, f"the slice has no meter {number}")
        number = real
    return [_U32.pack(number) + b"\0" * 4]


def _whole(message: bytes, _: GuestView) -> list[bytes]:
    if len(message) > 16:
        raise bad_request(_BAD_LEN, "a question about all of a kind has nothing behind it")
    return [b""]


def _table_features(message: bytes, _: GuestView) -> list[bytes]:
    if len(message) > 16:
        raise Refused(TABLE_FEATURES_FAILED, 5, "a slice can't change what its tables can do")
    return [b""]


_QUESTIONS: dict[int, Callable[[bytes, GuestView], list[bytes]]] = {
    wire.MULTIPART_FLOW: _rules,
    wire.MULTIPART_AGGREGATE: _rules,
    wire.MULTIPART_PORT_STATS: _port,
    wire.MULTIPART_QUEUE_STATS: _port,
    wire.MULTIPART_GROUP: _group,
    wire.MULTIPART_METER: _meter,
    wire.MULTIPART_METER_CONFIG: _meter,
    wire.MULTIPART_TABLE_FEATURES: _table_features,
    **dict.fromkeys(
        (
            wire.MULTIPART_DESCRIPTION,
            wire.MULTIPART_TABLE,
            wire.MULTIPART_GROUP_DESC,
            wire.MULTIPART_GROUP_FEATURES,
            wire.MULTIPART_METER_FEATURES,
            wire.MULTIPART_PORT_DESC,
        ),
        _whole,
    ),
}


# -- answers ----------------------------------------------------------------------------------------------------------


class Answer:
    """What comes back to one question of a guest, put together from ``parts`` questions to the switch."""

    def __init__(self, xid: int, parts: int) -> None:
        self._xid = xid
        self.open = parts
        """How many parts are still to come."""
        self._sums = [0, 0, 0]
        self.failed = False
        """The guest has been told of an error: nothing more comes."""

    def take(self, message: bytes, view: GuestView) -> bytes | None:
        """The reply for the guest that one reply of the switch becomes; None if more must come first."""
        kind, flags = _MULTIPART.unpack_from(message, 8)
        if not flags & MORE:
            self.open -= 1
        body = message[16:]
        if kind == wire.MULTIPART_AGGREGATE:
            self._sums = [have + more for have, more in zip(self._sums, _AGGREGATE.unpack(body), strict=True)]
            if self.open:
                return None
            body = _AGGREGATE.pack(*self._sums)
        else:
            body = _ANSWERS[kind](body, view) if kind in _ANSWERS else body
        head = _MULTIPART.pack(kind, MORE if self.open else 0)
        return wire.message(head + body, self._xid, wire.MULTIPART_REPLY)


def _of_ports(kind: int) -> Callable[[bytes, GuestView], bytes]:
    return lambda body, view: own_records(kind, body, view.ports)


def _tables(body: bytes, view: GuestView) -> bytes:
    return b"".join(
        bytes((body[at] - view.block.first,)) + body[at + 1 : at + 24]
        for at in range(0, len(body), 24)
        if 0 <= body[at] - view.block.first < view.block.count
    )


def _by_number(
    size_at: int, number_at: int, guest: Callable[[GuestView], Callable[[int], int | None]]
) -> Callable[[bytes, GuestView], bytes]:
    """Records with their length and number at these places: the slice's own, under the guest's numbers."""

    def answer(body: bytes, view: GuestView) -> bytes:
        parts, known = [], guest(view)
        for at, size in records(body, size_at=size_at):
            number = known(_U32.unpack_from(body, at + number_at)[0])
            if number is not None:
                parts.append(body[at : at + number_at] + _U32.pack(number) + body[at + number_at + 4 : at + size])
        return b"".join(parts)

    return answer


_ANSWERS: dict[int, Callable[[bytes, GuestView], bytes]] = {
    wire.MULTIPART_FLOW: flow_stats,
    wire.MULTIPART_TABLE: _tables,
    wire.MULTIPART_TABLE_FEATURES: table_features,
    wire.MULTIPART_GROUP_DESC: group_descriptions,
    wire.MULTIPART_PORT_STATS: _of_ports(wire.MULTIPART_PORT_STATS),
    wire.MULTIPART_QUEUE_STATS: lambda body, view: own_queues(body, view.ports, view.queue),
    wire.MULTIPART_PORT_DESC: _of_ports(wire.MULTIPART_PORT_DESC),
    wire.MULTIPART_GROUP: _by_number(0, 4, lambda view: view.groups.guest),
    wire.MULTIPART_METER: _by_number(4, 0, lambda view: view.meters.guest),
    wire.MULTIPART_METER_CONFIG: _by_number(0, 4, lambda view: view.meters.guest),
}

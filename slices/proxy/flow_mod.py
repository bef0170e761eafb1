"""A guest's flow-mod becomes one or more of the switch (OpenFlow Switch Specification 1.3.5, section 7.3.4.1).

The match stays as it is but for the slice's bits of the metadata: the classifier has already chosen the packets. Table,
groups and meters are renumbered; actions are checked (``actions``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from struct import Struct

from hyroads.controller.ofp import wire
from hyroads.slices.core import classifier
from hyroads.slices.core.allocation import PRODUCTION_NUMBER
from hyroads.slices.core.classifier import DISCOVERY_ETH_TYPES
from hyroads.slices.core.errors import (
    BAD_INSTRUCTION,
    BAD_MATCH,
    FLOW_MOD_FAILED,
    MatchError,
    Refused,
    bad_action,
    bad_request,
)
from hyroads.slices.core.fields import BY_NAME, bits_of
from hyroads.slices.core.match import TernaryMatch

from .actions import ALL_PORTS, BAD_OUT_PORT, FLOOD, OUTPUT, Origin, Translator, any_packet
from .extensions import EXPERIMENTER, IP_FRAGMENT, REGISTERS, check_whole
from .guest_view import FLOOD_GROUPS, GuestView

NO_SUCH_GROUP = FLOOD_GROUPS - 1
"""A group number that is never given out."""

_FIXED = Struct("!BBHIQQBBHHHIIIH2x")
_BASIC_CLASS = b"\x80\x00"
_U16_PAIR = Struct("!HH")
_U32 = Struct("!I")
_GOTO = Struct("!HHB3x")
_WRITE_METADATA = Struct("!HH4xQQ")
_METER = Struct("!HHI")
_ACTIONS = Struct("!HH4x")
_TCP_FLAGS = bytes.fromhex("ffff5508 4f4e4600")
"""OXM header and experimenter of TCP's flags, with a mask."""
_EXTENSION = EXPERIMENTER.to_bytes(2, "big")
_IN_PORT = BY_NAME["in_port"]
_METADATA = BY_NAME["metadata"]
_ETH_TYPE = BY_NAME["eth_type"]
_ETH_TYPE_BITS = bits_of("eth_type")
_DISCOVERY = {eth_type << _ETH_TYPE.shift: eth_type for eth_type in DISCOVERY_ETH_TYPES}
_BAD_TABLE_ID, _BAD_COMMAND, _BAD_FLAGS = 2, 6, 7
_FLAGS = 0x1F
"""All that OpenFlow 1.3 has."""
_UNSUPPORTED_INSTRUCTION, _BAD_INSTRUCTION_TABLE, _BAD_METADATA = 1, 2, 3
_BAD_EXPERIMENTER, _BAD_INSTRUCTION_LENGTH = 5, 7


@lru_cache(maxsize=16384)
def _decode(data: bytes) -> TernaryMatch | MatchError:
    try:
        return classifier.decode(data)
    except MatchError as error:
        return error


def _without_pipeline_fields(data: bytes) -> bytes:
    """OXM fields without those that production alone may match: registers, flags of TCP, fragments.

    They only narrow what a rule matches, so what is left is checked for more packets than the rule gets.
    """
    parts, at = [], 0
    while at + 4 <= len(data):
        after = at + 4 + data[at + 3]
        is_left_out = data[at : at + 4] in {*REGISTERS, IP_FRAGMENT} or data.startswith(_TCP_FLAGS, at)
        if not is_left_out or after > len(data):
            parts.append(data[at:after])
        at = after
    return b"".join([*parts, data[at:]])


def read_match(message: bytes, start: int, end: int, view: GuestView) -> tuple[TernaryMatch, bytes, int]:
    """(match, OXM bytes, where what follows starts) of an ofp_match; :class:`Refused`."""
    if end - start < 8:
        raise bad_request(6, "the message ends inside its match")
    kind, length = _U16_PAIR.unpack_from(message, start)
    after = start + (length + 7) // 8 * 8
    if kind != 1:
        raise Refused(BAD_MATCH, 0, f"match of type {kind}, expected OXM")
    if length < 4 or after > end:
        raise Refused(BAD_MATCH, MatchError.BAD_LEN, f"match of length {length}")
    data = message[start + 4 : start + length]
    found = _decode(_without_pipeline_fields(data) if view.number == PRODUCTION_NUMBER else data)
    if isinstance(found, MatchError):
        raise Refused(BAD_MATCH, found.code, found.problem)
    return found, data, after


def in_port_of(match: TernaryMatch, view: GuestView) -> int | None:
    """The ingress port of a match, None if it names none; :class:`Refused` if it is not the slice's."""
    if not match.mask >> _IN_PORT.shift:
        return None
    port = match.value >> _IN_PORT.shift
    if port not in view.ports:
        raise Refused(BAD_MATCH, MatchError.BAD_VALUE, f"port {port} is not of the slice")
    return port


def with_slice_metadata(match: TernaryMatch, data: bytes, view: GuestView) -> bytes:
    """OXM bytes with the slice's number in the metadata, if the guest matches any metadata."""
    value, mask = match.field("metadata")
    if not mask:
        return data
    layout = view.layout
    if value & ~layout.guest_metadata_mask:
        raise Refused(BAD_MATCH, MatchError.BAD_VALUE, "the slice has fewer bits of metadata")
    if mask & ~layout.guest_metadata_mask:
        value |= view.number << layout.slice_shift
        mask |= layout.slice_metadata_mask
    start = 0
    while data[start : start + 2] != _BASIC_CLASS or data[start + 2] >> 1 != _METADATA.number:
        start += 4 + data[start + 3]
    old = 4 + data[start + 3]
    return data[:start] + classifier.field_bytes(_METADATA, value, mask) + data[start + old :]


def translate(message: bytes, view: GuestView) -> list[bytes]:
    """The messages for the switch, under the guest's transaction id; :class:`Refused`.

    The buffer id is left as it is: the caller has checked that it is the slice's (``buffers``).
    """
    if len(message) < 56:
        raise bad_request(6, f"flow-mod of {len(message)} bytes")
    fields = _FIXED.unpack_from(message)
    xid, cookie, cookie_mask, table, command = fields[3:8]
    timeouts, (buffer, out_port, out_group, flags) = fields[8:11], fields[11:]
    if command > wire.DELETE_STRICT:
        raise Refused(FLOW_MOD_FAILED, _BAD_COMMAND, f"command {command}")
    if flags & ~_FLAGS:
        raise Refused(FLOW_MOD_FAILED, _BAD_FLAGS, f"flags {flags:#x}")
    match, data, after = read_match(message, 48, len(message), view)
    in_port = in_port_of(match, view)
    data = with_slice_metadata(match, data, view)
    instructions = b""
    if command < wire.DELETE:
        origin = Origin(match, view.kinds(in_port))
        instructions = translate_instructions(message, after, view, origin, table)
        discovery = _DISCOVERY.get(match.value & _ETH_TYPE_BITS)
        if discovery is not None and command == wire.ADD:
            view.discovery_cookies[discovery] = cookie
    else:
        out_port, out_group = _filter(view, out_port, out_group)
    body = wire.match_struct(data) + instructions
    head = (cookie, cookie_mask)
    rest = (command, *timeouts, buffer, out_port, out_group, flags)
    size = _FIXED.size + len(body)
    if size > 0xFFFF:
        raise bad_request(6, "the flow-mod does not fit a message")
    return [
        _FIXED.pack(4, wire.FLOW_MOD, size, xid, *head, real, *rest) + body for real in _tables(view, table, command)
    ]


def _tables(view: GuestView, table: int, command: int) -> range | tuple[int]:
    if table == wire.ALL_TABLES:
        if command < wire.DELETE:
            raise Refused(FLOW_MOD_FAILED, _BAD_TABLE_ID, "all tables at once are for deletes only")
        return view.block.tables
    return (view.real_table(table),)


# Open vSwitch has ports of 16 bits, and the reserved ones.
_NO_PORTS = range(0xFF00, 0xFFFF_FF00)


def check_out_port(out_port: int) -> None:
    """:class:`Refused` for what is no number of a port, as the switch refuses it where rules are chosen by output."""
    if out_port in _NO_PORTS:
        raise bad_action(BAD_OUT_PORT, f"port {out_port:#x} is none of any switch")


def _filter(view: GuestView, out_port: int, out_group: int) -> tuple[int, int]:
    """Which rules to delete, by what they output to: FLOOD and ALL are groups of the slice."""
    check_out_port(out_port)
    if out_port in {FLOOD, ALL_PORTS}:
        return wire.ANY, view.flood_group + (out_port == ALL_PORTS)
    if out_group != wire.ANY:
        real = view.groups.real(out_group)
        out_group = NO_SUCH_GROUP if real is None else real
    return out_port, out_group


# -- instructions -----------------------------------------------------------------------------------------------------


def translate_instructions(message: bytes, start: int, view: GuestView, origin: Origin, table: int) -> bytes:
    """The instructions from ``start`` to the end of the message, translated; :class:`Refused`."""
    walker, seen = _Instructions(view, origin, table), set[int]()
    end = len(message)
    while start < end:
        kind, length = _U16_PAIR.unpack_from(message, start) if end - start >= 8 else (0, 0)
        if length < 8 or length % 8 or start + length > end:
            raise Refused(BAD_INSTRUCTION, _BAD_INSTRUCTION_LENGTH, f"instruction of type {kind}, length {length}")
        handler = _HANDLERS.get(kind)
        if handler is None:
            code = _BAD_EXPERIMENTER if kind == 0xFFFF else 0
            raise Refused(BAD_INSTRUCTION, code, f"instructions of type {kind} are not possible in a slice")
        wanted = _LENGTHS.get(kind, length)
        if length != wanted:
            problem = f"instruction of {length} bytes, expected {wanted}"
            raise Refused(BAD_INSTRUCTION, _BAD_INSTRUCTION_LENGTH, problem)
        if kind in seen:
            raise Refused(BAD_INSTRUCTION, _UNSUPPORTED_INSTRUCTION, f"more than one instruction of type {kind}")
        seen.add(kind)
        handler(walker, message, start, start + length)
        start += length
    walker.check_end()
    return b"".join(walker.parts)


class _Instructions:
    """One set of instructions while it is translated."""

    def __init__(self, view: GuestView, origin: Origin, table: int) -> None:
        self.view = view
        self.origin = origin
        self.table = table
        self.parts: list[bytes] = []
        self.applied: Translator | None = None
        self.goes_on = table > 0
        """Whether more may happen to the packet: another table, or an action set written here or before."""

    def check_end(self) -> None:
        """A header that was rewritten must still be the slice's, if anything else can happen to the packet."""
        if self.applied is None:
            return
        check_whole(self.applied)
        if self.goes_on and self.applied.rewrite.changed:
            self.applied.check_out(None)


def _goto(walker: _Instructions, message: bytes, start: int, end: int) -> None:
    table = message[start + 4]
    if not walker.table < table < walker.view.block.count:
        raise Refused(BAD_INSTRUCTION, _BAD_INSTRUCTION_TABLE, f"goto table {table} from table {walker.table}")
    walker.goes_on = True
    walker.parts.append(_GOTO.pack(1, 8, walker.view.block.first + table))


def _write_metadata(walker: _Instructions, message: bytes, start: int, end: int) -> None:
    _, _, value, mask = _WRITE_METADATA.unpack_from(message, start)
    allowed = walker.view.layout.guest_metadata_mask
    if value & mask & ~allowed:
        raise Refused(BAD_INSTRUCTION, _BAD_METADATA, "the slice has fewer bits of metadata")
    walker.parts.append(_WRITE_METADATA.pack(2, 24, value & allowed, mask & allowed))


def _apply_actions(walker: _Instructions, message: bytes, start: int, end: int) -> None:
    walker.applied = Translator(walker.view, walker.origin, walker.table)
    actions = walker.applied.walk(message, start + 8, end)
    walker.parts.append(_ACTIONS.pack(4, 8 + len(actions)) + actions)


def _write_actions(walker: _Instructions, message: bytes, start: int, end: int) -> None:
    """The action set is carried out at the end, with whatever other tables wrote: each action must be safe alone."""
    actions = translate_action_set(message, start + 8, end, walker.view, apart=True)
    walker.goes_on = True
    walker.parts.append(_ACTIONS.pack(3, 8 + len(actions)) + actions)


def _clear_actions(walker: _Instructions, message: bytes, start: int, end: int) -> None:
    walker.parts.append(message[start:end])


def _meter(walker: _Instructions, message: bytes, start: int, end: int) -> None:
    (guest,) = _U32.unpack_from(message, start + 4)
    real = walker.view.meters.real(guest)
    if real is None:
        raise Refused(FLOW_MOD_FAILED, 0, f"the slice has no meter {guest}")
    walker.parts.append(_METER.pack(6, 8, real))


_LENGTHS = {1: 8, 2: 24, 5: 8, 6: 8}
_HANDLERS: dict[int, Callable[[_Instructions, bytes, int, int], None]] = {
    1: _goto,
    2: _write_metadata,
    3: _write_actions,
    4: _apply_actions,
    5: _clear_actions,
    6: _meter,
}


# -- action sets ------------------------------------------------------------------------------------------------------

# The order in which an action set is carried out (specification, section 5.10).
_ORDER = {
    kind: place for place, kind in enumerate((12, 20, 18, 27, 19, 26, 17, 11, 16, 24, 15, 23, 25, 21, 22, OUTPUT))
}


def translate_action_set(message: bytes, start: int, end: int, view: GuestView, *, apart: bool = False) -> bytes:
    """The actions of a bucket, or of write-actions, for every packet of the slice; :class:`Refused`.

    They are checked in the order in which a switch carries a set out. With ``apart`` each is checked on its own:
    what it does to any packet of the slice must leave a packet of the slice at the same port.
    """
    origin = any_packet(view)
    actions = _split(message, start, end)
    if any(action[:2] == _EXTENSION for action in actions):
        raise bad_action(2, "Open vSwitch's own actions are for lists, not for action sets and groups")
    carried_out = sorted(range(len(actions)), key=lambda i: _ORDER.get(actions[i][0] << 8 | actions[i][1], 99))
    walker, parts = Translator(view, origin), [b""] * len(actions)
    for i in carried_out:
        if apart:
            walker = Translator(view, origin)
        before = len(walker.parts)
        walker.walk(actions[i], 0, len(actions[i]))
        parts[i] = b"".join(walker.parts[before:])
        if apart and walker.rewrite.changed:
            walker.check_out(None)
    return b"".join(parts)


def _split(message: bytes, start: int, end: int) -> list[bytes]:
    actions = []
    while start < end:
        length = _U16_PAIR.unpack_from(message, start)[1] if end - start >= 8 else 0
        if length < 8 or length % 8 or start + length > end:
            raise Refused(2, 1, f"an action of length {length}")
        actions.append(message[start : start + length])
        start += length
    return actions

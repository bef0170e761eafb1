"""Checks a message from a switch before Ryu's parser sees it.

Ryu's parser walks lists of elements by the length that each element claims, so an element of length zero keeps it
busy for ever, and one that is too long makes it read beyond its list (Ryu issues 188 to 196). ``check`` walks the
same structures (OpenFlow Switch Specification 1.3.5, section 7) with every length bounded: each element is at least
as long as its header, ends inside its list, and is a multiple of the alignment the format prescribes. Kinds of
instructions, actions, bands and properties are those that the parser knows, and values of fields have the length that
it expects.
What it lets through, the parser ends with, and but for the inside of experimenters' actions it does not fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct

from hyroads.controller.core.errors import GuardError

from .wire import HEADER, VENDOR_NICIRA, VERSION

_U16 = Struct("!H")
_TWO_U16 = Struct("!HH")
_U32 = Struct("!I")
_OXM_EXPERIMENTER_CLASS = 0xFFFF
_MAX_DEPTH = 4

_Checker = Callable[[bytes, int, int, str], None]


def check(data: bytes) -> None:
    """Raises GuardError, naming what is wrong and where, unless ``data`` is one well-formed message of a switch."""
    if len(data) < 8:
        raise GuardError(f"message: {len(data)} bytes, expected at least 8")
    version, kind, length, _ = HEADER.unpack_from(data)
    if length != len(data):
        raise GuardError(f"message: header says {length} bytes, got {len(data)}")
    entry = _MESSAGES.get(kind)
    if entry is None:
        raise GuardError(f"message: type {kind} is none that a switch sends")
    name, checker = entry
    if version != VERSION and kind not in _ANY_VERSION:
        raise GuardError(f"{name}: version {version}, expected {VERSION}")
    checker(data, 8, length, name)


def _need(data: bytes, start: int, end: int, size: int, where: str) -> None:
    if end - start < size:
        raise GuardError(f"{where} at byte {start}: {end - start} bytes left, expected at least {size}")


def _elements(  # noqa: PLR0917
    data: bytes, start: int, end: int, where: str, length_at: int, minimum: int, align: int = 8
) -> Iterator[tuple[int, int]]:
    """(start, end) of every element of a list; the 16-bit length is ``length_at`` bytes into each."""
    while start < end:
        _need(data, start, end, minimum, where)
        (length,) = _U16.unpack_from(data, start + length_at)
        if length < minimum:
            raise GuardError(f"{where} at byte {start}: length {length}, expected at least {minimum}")
        if length % align:
            raise GuardError(f"{where} at byte {start}: length {length} is no multiple of {align}")
        if start + length > end:
            raise GuardError(f"{where} at byte {start}: length {length}, but only {end - start} bytes are left")
        yield start, start + length
        start += length


def _fixed(size: int) -> _Checker:
    """Exactly ``size`` bytes."""

    def checker(_: bytes, start: int, end: int, where: str) -> None:
        if end - start != size:
            raise GuardError(f"{where}: {end - start} bytes after byte {start}, expected {size}")

    return checker


def _at_least(size: int) -> _Checker:
    """Opaque, at least ``size`` bytes."""

    def checker(data: bytes, start: int, end: int, where: str) -> None:
        _need(data, start, end, size, where)

    return checker


def _array(size: int, name: str = "") -> _Checker:
    """Records of ``size`` bytes each, called ``name`` in complaints."""

    def checker(_: bytes, start: int, end: int, where: str) -> None:
        if (end - start) % size:
            place = f"{where}: {name}" if name else where
            raise GuardError(f"{place}: {end - start} bytes after byte {start}, expected a multiple of {size}")

    return checker


def _list(name: str, length_at: int, minimum: int, checker: _Checker, skip: int = 0) -> _Checker:
    """Elements as of ``_elements``, each of which ``checker`` takes from ``skip`` bytes into it."""

    def check_list(data: bytes, start: int, end: int, where: str) -> None:
        for first, last in _elements(data, start, end, f"{where}: {name}", length_at, minimum):
            checker(data, first + skip, last, f"{where}: {name}")

    return check_list


# Bytes of a value by class and field: OpenFlow 1.3.5, table 12, packet registers (1.5.1, table 13), and Open vSwitch's
# extensions.
_FIELD_SIZES: dict[int, dict[int, int]] = {
    0x8000: {
        **dict.fromkeys((0, 1, 11, 12, 22, 23, 28, 34), 4),
        **dict.fromkeys((3, 4, 24, 25, 32, 33), 6),
        **dict.fromkeys((5, 6, *range(13, 19), 21, 39), 2),
        **dict.fromkeys((7, 8, 9, 10, 19, 20, 29, 30, 35, 36), 1),
        **dict.fromkeys((2, 38), 8),
        **dict.fromkeys((26, 27, 31), 16),
        37: 3,
    },
    0x8001: dict.fromkeys(range(8), 8),
    0x0000: dict(enumerate((2, 6, 6, 2, 2, 1, 1, 4, 4, 2, 2, 2, 2, 1, 1, 2, 4, 4))),
    0x0001: {
        **dict.fromkeys((*range(16), 27, 31, 32, 33, 36, 37, 105, 107), 4),
        **dict.fromkeys((17, 18, 24, 25), 6),
        **dict.fromkeys((19, 20, 23, *range(108, 115)), 16),
        **dict.fromkeys((21, 22, 26, 28, 29, 30, 39), 1),
        **dict.fromkeys((34, 38, 104, 106), 2),
        16: 8,
    },
}


_ONF, _NSH = 0x4F4E4600, 0x5AD650
_EXPERIMENTERS_SIZES = {
    (_ONF, 42): 2,
    (_ONF, 43): 4,
    (VENDOR_NICIRA, 0): 4,
    **{(_NSH, field): 4 if field in {4, 6, 7, 8, 9} else 1 for field in range(1, 11)},
}
"""The same by experimenter and field: TCP flags and the output of the action set (ONF's extensions 109 and 233), the
hash of Open vSwitch's datapath, headers of service chains."""
_OLD_ONF_TYPE = 2560
"""ONF's extension 256 has a type of two bytes before its one byte of value, in field 0."""

_FIELD_HEADERS = frozenset(
    bytes((*oxm_class.to_bytes(2, "big"), field << 1 | has_mask, size << has_mask))
    for oxm_class, sizes in _FIELD_SIZES.items()
    for field, size in sizes.items()
    for has_mask in (0, 1)
)
"""Of all fields that are known, with a value of the length that they have."""


def _oxm_fields(data: bytes, start: int, end: int, where: str) -> None:
    while start < end:
        if data[start : start + 4] in _FIELD_HEADERS and start + 4 + data[start + 3] <= end:
            start += 4 + data[start + 3]
            continue
        _need(data, start, end, 4, f"{where}: field")
        (oxm_class, field, length) = (_U16.unpack_from(data, start)[0], data[start + 2], data[start + 3])
        has_mask = field & 1
        experimenter = oxm_class == _OXM_EXPERIMENTER_CLASS
        least = 1 + has_mask + 4 * experimenter
        if length < least or (has_mask and length % 2 and not experimenter):
            raise GuardError(f"{where}: field at byte {start}: length {length}, expected at least {least}")
        if start + 4 + length > end:
            raise GuardError(f"{where}: field at byte {start}: length {length} exceeds the list")
        if experimenter:
            _experimenters_field(data, start, where)
        elif field >> 1 in _FIELD_SIZES.get(oxm_class, ()):
            raise GuardError(f"{where}: field at byte {start}: length {length} is none that it has")
        start += 4 + length


def _experimenters_field(data: bytes, start: int, where: str) -> None:
    """The parser fails with those that it does not know, and with values of another length than theirs."""
    field, length, (experimenter,) = data[start + 2], data[start + 3], _U32.unpack_from(data, start + 4)
    size, header = _EXPERIMENTERS_SIZES.get((experimenter, field >> 1)), 4
    if (experimenter, field >> 1) == (_ONF, 0) and data[start + 8 : start + 10] == _OLD_ONF_TYPE.to_bytes(2, "big"):
        size, header = 1, 6
    if size is None or length != header + (size << (field & 1)):
        raise GuardError(
            f"{where}: field at byte {start}: experimenter {experimenter:#x}, field {field >> 1} of {length} bytes is "
            "none that is known"
        )


def _match(data: bytes, start: int, end: int, where: str) -> int:
    """Checks an ofp_match and returns where it ends, padding included."""
    where = f"{where}: match"
    _need(data, start, end, 8, where)
    kind, length = _TWO_U16.unpack_from(data, start)
    if kind != 1:
        raise GuardError(f"{where} at byte {start}: type {kind}, expected 1 (OXM)")
    padded: int = start + length + (-length % 8)
    if length < 4 or padded > end:
        raise GuardError(f"{where} at byte {start}: length {length}, expected 4..{end - start}")
    _oxm_fields(data, start + 4, start + length, where)
    return padded


# Sizes of the actions that have no list inside (OpenFlow 1.3.5, section 7.2.4).
_ACTION_SIZES = {0: 16, **dict.fromkeys((11, 12, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 26, 27), 8)}


_SET_FIELD, _EXPERIMENTER = 25, 0xFFFF


def _actions(data: bytes, start: int, end: int, where: str, depth: int = 0) -> None:
    if depth > _MAX_DEPTH:
        raise GuardError(f"{where}: actions nested more than {_MAX_DEPTH} deep")
    where = f"{where}: action"
    for first, last in _elements(data, start, end, where, 2, 8):
        (kind,) = _U16.unpack_from(data, first)
        expected = _ACTION_SIZES.get(kind)
        if expected is None and kind not in {_SET_FIELD, _EXPERIMENTER}:
            raise GuardError(f"{where} at byte {first}: type {kind} is none that is known")
        if expected is not None and last - first != expected:
            raise GuardError(f"{where} at byte {first}: type {kind} has {last - first} bytes, expected {expected}")
        if kind == _SET_FIELD:
            _set_field(data, first, last, where)
        elif kind == _EXPERIMENTER:
            _experimenter_action(data, first, last, where, depth)


def _set_field(data: bytes, start: int, end: int, where: str) -> None:
    _need(data, start, end, 16, f"{where}: set-field")
    field_end = start + 8 + data[start + 7]
    if field_end > end or data[start + 6] & 1:
        raise GuardError(f"{where} at byte {start}: set-field: expected one field without a mask inside the action")
    _oxm_fields(data, start + 4, field_end, f"{where}: set-field")


def _experimenter_action(data: bytes, start: int, end: int, where: str, depth: int) -> None:
    if _U32.unpack_from(data, start + 4)[0] != VENDOR_NICIRA:
        return
    _need(data, start, end, 16, f"{where}: Nicira action")
    nested = {35: 24, 42: 16}.get(_U16.unpack_from(data, start + 8)[0])
    if nested is not None:  # ct(...), clone(...)
        _need(data, start, end, nested, f"{where}: Nicira action")
        _actions(data, start + nested, end, where, depth + 1)
    elif data[start + 8 : start + 10] == b"\0\x25":  # controller2(...)
        _properties(data, start + 16, end, f"{where}: controller")


def _properties(data: bytes, start: int, end: int, where: str, minimum: int = 4) -> None:
    """Properties whose length excludes the padding to 8 bytes."""
    where = f"{where}: property"
    while start < end:
        _need(data, start, end, minimum, where)
        (length,) = _U16.unpack_from(data, start + 2)
        padded = length + (-length % 8)
        if length < minimum or start + padded > end:
            raise GuardError(f"{where} at byte {start}: length {length}, expected {minimum}..{end - start}")
        start += padded


def _instructions(data: bytes, start: int, end: int, where: str) -> None:
    where = f"{where}: instruction"
    for first, last in _elements(data, start, end, where, 2, 8):
        (kind,) = _U16.unpack_from(data, first)
        if kind in {3, 4, 5}:  # write, apply, clear actions
            _actions(data, first + 8, last, where)
        elif (last - first) != {1: 8, 2: 24, 6: 8}.get(kind):
            raise GuardError(f"{where} at byte {first}: type {kind} of {last - first} bytes is none that is known")


def _flow(data: bytes, start: int, end: int, where: str) -> None:
    _instructions(data, _match(data, start + 48, end, where), end, where)


def _bucket(data: bytes, start: int, end: int, where: str) -> None:
    _actions(data, start + 16, end, where)


def _table(data: bytes, start: int, end: int, where: str) -> None:
    _properties(data, start + 64, end, where)
    for kind, body, body_end in _property_bodies(data, start + 64, end):
        _table_property(data, kind, body, body_end, where)


def _property_bodies(data: bytes, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """(type, start, end without padding) of properties that ``_properties`` has checked."""
    while start < end:
        kind, length = _TWO_U16.unpack_from(data, start)
        yield kind, start + 4, start + length
        start += length + (-length % 8)


_EXPERIMENTERS_PROPERTIES = frozenset({0xFFFE, 0xFFFF})


def _table_property(data: bytes, kind: int, start: int, end: int, where: str) -> None:
    if kind in {0, 1, 4, 5, 6, 7}:  # lists of instruction or action ids
        for _ in _elements(data, start, end, f"{where}: id", 2, 4, align=1):
            pass
    elif 8 <= kind <= 15:  # lists of OXM ids: headers without values
        while start < end:
            _need(data, start, end, 4, f"{where}: OXM id")
            start += 8 if _U16.unpack_from(data, start)[0] == _OXM_EXPERIMENTER_CLASS else 4
        if start > end:
            raise GuardError(f"{where}: OXM id: the last one exceeds its property")
    elif kind in _EXPERIMENTERS_PROPERTIES:
        _need(data, start, end, 8, f"{where}: experimenter's")
        _array(4, "experimenter's data")(data, start + 8, end, where)


def _band(data: bytes, start: int, end: int, where: str) -> None:
    _fixed(16)(data, start, end, where)
    _check_kind(data, start, where, _BANDS)


def _queue_property(data: bytes, start: int, end: int, where: str) -> None:
    _fixed(16)(data, start, end, where)
    _check_kind(data, start, where, _RATES)


_BANDS = frozenset({1, 2})
"""Drop, and remark."""
_RATES = frozenset({1, 2})
"""The least and the greatest rate of a queue."""


def _check_kind(data: bytes, start: int, where: str, known: frozenset[int]) -> None:
    (kind,) = _U16.unpack_from(data, start)
    if kind not in known:
        raise GuardError(f"{where} at byte {start}: type {kind} is none that is known")


_MULTIPART: dict[int, tuple[str, _Checker]] = {
    0: ("description", _fixed(1056)),
    1: ("flow stats", _list("flow", 0, 56, _flow)),
    2: ("aggregate stats", _fixed(24)),
    3: ("table stats", _array(24)),
    4: ("port stats", _array(112)),
    5: ("queue stats", _array(40)),
    6: ("group stats", _list("group", 0, 40, _array(16, "bucket counters"), 40)),
    7: ("group descriptions", _list("group", 0, 8, _list("bucket", 0, 16, _bucket), 8)),
    8: ("group features", _fixed(40)),
    9: ("meter stats", _list("meter", 4, 40, _array(16, "bands"), 40)),
    10: ("meter configurations", _list("meter", 0, 8, _list("band", 2, 16, _band), 8)),
    11: ("meter features", _fixed(16)),
    12: ("table features", _list("table", 0, 64, _table)),
    13: ("port descriptions", _array(64)),
}


def _multipart(data: bytes, start: int, end: int, where: str) -> None:
    _need(data, start, end, 8, where)
    (kind,) = _U16.unpack_from(data, start)
    entry = _MULTIPART.get(kind)
    if entry is None:
        # Experimenter replies too: nothing of ours asks for one, and Ryu's parsers of them are unbounded.
        raise GuardError(f"{where}: type {kind} is none that was asked for")
    name, checker = entry
    checker(data, start + 8, end, f"{where}: {name}")


def _packet_in(data: bytes, start: int, end: int, where: str) -> None:
    _need(data, start, end, 26, where)
    after = _match(data, start + 16, end, where)
    _need(data, after, end, 2, f"{where}: frame")


def _flow_removed(data: bytes, start: int, end: int, where: str) -> None:
    _need(data, start, end, 48, where)
    after = _match(data, start + 40, end, where)
    _fixed(0)(data, after, end, where)


def _queues(data: bytes, start: int, end: int, where: str) -> None:
    _need(data, start, end, 8, where)
    _QUEUES(data, start + 8, end, where)


_QUEUES = _list("queue", 8, 16, _list("property", 2, 8, _queue_property), 16)
_ERROR_EXPERIMENTER = 0xFFFF


def _error(data: bytes, start: int, end: int, where: str) -> None:
    _need(data, start, end, 4, where)
    if _U16.unpack_from(data, start)[0] == _ERROR_EXPERIMENTER:
        _need(data, start, end, 8, f"{where}: experimenter's")


_ANY_VERSION = frozenset({0, 1})
"""HELLO and ERROR come before both sides agree on a version."""

_MESSAGES: dict[int, tuple[str, _Checker]] = {
    # Ryu does not skip the padding of elements, so only elements that need none get through.
    0: ("HELLO", _list("element", 2, 4, _at_least(8))),
    1: ("ERROR", _error),
    2: ("ECHO_REQUEST", _at_least(0)),
    3: ("ECHO_REPLY", _at_least(0)),
    4: ("EXPERIMENTER", _at_least(8)),
    6: ("FEATURES_REPLY", _fixed(24)),
    8: ("GET_CONFIG_REPLY", _fixed(4)),
    10: ("PACKET_IN", _packet_in),
    11: ("FLOW_REMOVED", _flow_removed),
    12: ("PORT_STATUS", _fixed(72)),
    19: ("MULTIPART_REPLY", _multipart),
    21: ("BARRIER_REPLY", _fixed(0)),
    23: ("QUEUE_GET_CONFIG_REPLY", _queues),
    25: ("ROLE_REPLY", _fixed(16)),
    27: ("GET_ASYNC_REPLY", _fixed(24)),
}

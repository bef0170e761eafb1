"""Protocol data units of SNMPv2 (RFC 3416, section 3) and the message of SNMPv2c around them (RFC 1901), with the part
of ASN.1's Basic Encoding Rules that SNMP uses (X.690; RFC 3417, section 8). Pure.

Values of variables are never decoded: they are passed on as they came. Only definite lengths of at most four bytes, and
nothing nested deeper than the caller asks for, so that no message costs more than its length.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from functools import lru_cache

from hyroads.slices.core.errors import SliceError


class SnmpError(SliceError):
    """A message that can't be read, or must not be answered."""


INTEGER, OCTETS, NULL, OBJECT_ID, SEQUENCE = 0x02, 0x04, 0x05, 0x06, 0x30
MAX_ARCS = 128
MAX_ARC = 2**32 - 1
Oid = tuple[int, ...]


def read(data: bytes, at: int, end: int) -> tuple[int, int, int]:
    """Tag, and where the content of the element at ``at`` begins and ends; it ends at or before ``end``."""
    if at + 2 > end:
        raise SnmpError("an element is cut off")
    tag, length, start = data[at], data[at + 1], at + 2
    if tag & 0x1F == 0x1F:
        raise SnmpError("a tag of more than one byte")
    if length & 0x80:
        size = length & 0x7F
        if not 0 < size <= 4 or start + size > end:
            raise SnmpError("a length of a kind that SNMP does not use")
        length = int.from_bytes(data[start : start + size], "big")
        start += size
    if start + length > end:
        raise SnmpError("an element is longer than what it is in")
    return tag, start, start + length


def expect(data: bytes, at: int, end: int, tag: int) -> tuple[int, int]:
    """Begin and end of the content of an element that must have this tag."""
    found, start, stop = read(data, at, end)
    if found != tag:
        raise SnmpError(f"expected an element of type {tag:#x}, got {found:#x}")
    return start, stop


def integer(data: bytes, at: int, end: int) -> tuple[int, int]:
    """A whole number of at most 8 bytes, and where what follows it begins."""
    start, stop = expect(data, at, end, INTEGER)
    if not 0 < stop - start <= 8:
        raise SnmpError("a whole number of 1 to 8 bytes was expected")
    return int.from_bytes(data[start:stop], "big", signed=True), stop


def octets(data: bytes, at: int, end: int) -> tuple[bytes, int]:
    """A string, and where what follows it begins."""
    start, stop = expect(data, at, end, OCTETS)
    return data[start:stop], stop


def element(tag: int, content: bytes) -> bytes:
    """An element."""
    length = len(content)
    if length < 0x80:
        return bytes((tag, length)) + content
    size = length.to_bytes((length.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(size))) + size + content


def of_integer(value: int, tag: int = INTEGER) -> bytes:
    """A whole number in the fewest bytes."""
    size = (value.bit_length() if value >= 0 else (value + 1).bit_length()) // 8 + 1
    return element(tag, value.to_bytes(size, "big", signed=True))


@lru_cache(maxsize=65536)
def oid_of(content: bytes) -> Oid:
    """The object identifier with this content."""
    if not content or content[-1] & 0x80:
        raise SnmpError("an object identifier is empty or cut off")
    arcs: list[int] = []
    value = 0
    for byte in content:
        value = value << 7 | byte & 0x7F
        if value > MAX_ARC + 80:
            raise SnmpError("an object identifier has too large a number")
        if not byte & 0x80:
            arcs.append(value)
            value = 0
    if len(arcs) >= MAX_ARCS:
        raise SnmpError(f"an object identifier has more than {MAX_ARCS} numbers")
    first = min(arcs[0] // 40, 2)
    return (first, arcs[0] - 40 * first, *arcs[1:])


@lru_cache(maxsize=65536)
def of_oid(oid: Oid) -> bytes:
    """The element of an object identifier of at least two numbers."""
    if len(oid) < 2 or oid[0] > 2 or (oid[0] < 2 and oid[1] > 39) or len(oid) > MAX_ARCS:
        raise SnmpError(f"{'.'.join(map(str, oid[:8]))} is no object identifier")
    return element(OBJECT_ID, b"".join(map(_arc, (40 * oid[0] + oid[1], *oid[2:]))))


def _arc(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    parts = [value & 0x7F]
    while value := value >> 7:
        parts.append(value & 0x7F | 0x80)
    return bytes(reversed(parts))


def oid_text(oid: Oid) -> str:
    """With dots."""
    return ".".join(map(str, oid))


VERSION_2C, VERSION_3 = 1, 3
MAX_BINDINGS = 1024
NULL_VALUE = b"\x05\x00"
NO_SUCH_OBJECT, NO_SUCH_INSTANCE, END_OF_VIEW = b"\x80\x00", b"\x81\x00", b"\x82\x00"


class Kind(IntEnum):
    """Tags of the units."""

    GET = 0xA0
    GET_NEXT = 0xA1
    RESPONSE = 0xA2
    SET = 0xA3
    GET_BULK = 0xA5
    INFORM = 0xA6
    TRAP = 0xA7
    REPORT = 0xA8


class Status(IntEnum):
    """Errors of RFC 3416 that are used here."""

    NO_ERROR = 0
    TOO_BIG = 1
    GENERAL = 5
    NO_ACCESS = 6
    RESOURCE_UNAVAILABLE = 13
    NOT_WRITABLE = 17
    AUTHORIZATION = 16
    INCONSISTENT_VALUE = 12


@dataclass(frozen=True, slots=True)
class Binding:
    """A variable and its value, which is a whole element as it came."""

    oid: Oid
    value: bytes = NULL_VALUE


@dataclass(frozen=True, slots=True)
class Pdu:
    """A unit. Of a GETBULK ``status`` is the number of non-repeaters and ``index`` that of repetitions."""

    kind: Kind
    request_id: int
    bindings: tuple[Binding, ...] = ()
    status: int = 0
    index: int = 0

    def response(self, bindings: tuple[Binding, ...]) -> Pdu:
        """The answer with these values."""
        return Pdu(Kind.RESPONSE, self.request_id, bindings)

    def refused(self, status: Status, index: int) -> Pdu:
        """The answer that it was not done; ``index`` counts bindings from 1, 0 is none of them."""
        return Pdu(Kind.RESPONSE, self.request_id, self.bindings, status, index)

    def numbered(self, request_id: int) -> Pdu:
        """The same under another number."""
        return replace(self, request_id=request_id)


_KINDS = {int(kind): kind for kind in Kind}


def parse_pdu(data: bytes, at: int, end: int) -> Pdu:
    """The unit at ``at``; :class:`SnmpError`."""
    tag, start, stop = read(data, at, end)
    kind = _KINDS.get(tag)
    if kind is None:
        raise SnmpError(f"a unit of type {tag:#x}")
    request_id, start = integer(data, start, stop)
    status, start = integer(data, start, stop)
    index, start = integer(data, start, stop)
    at, last = expect(data, start, stop, SEQUENCE)
    bindings: list[Binding] = []
    while at < last:
        first, at = expect(data, at, last, SEQUENCE)
        name, value = expect(data, first, at, OBJECT_ID)
        read(data, value, at)
        bindings.append(Binding(oid_of(data[name:value]), data[value:at]))
        if len(bindings) > MAX_BINDINGS:
            raise SnmpError(f"more than {MAX_BINDINGS} variables")
    return Pdu(kind, request_id, tuple(bindings), status, index)


def pdu_bytes(pdu: Pdu) -> bytes:
    """The unit as bytes."""
    bindings = b"".join(element(SEQUENCE, of_oid(each.oid) + each.value) for each in pdu.bindings)
    head = of_integer(pdu.request_id) + of_integer(pdu.status) + of_integer(pdu.index)
    return element(pdu.kind, head + element(SEQUENCE, bindings))


def version_of(data: bytes) -> int:
    """The version number in a message."""
    start, stop = expect(data, 0, len(data), SEQUENCE)
    return integer(data, start, stop)[0]


def parse_v2c(data: bytes) -> tuple[bytes, Pdu]:
    """Community and unit of a message of SNMPv2c."""
    at, end = expect(data, 0, len(data), SEQUENCE)
    version, at = integer(data, at, end)
    if version != VERSION_2C:
        raise SnmpError(f"version {version}, expected {VERSION_2C} (SNMPv2c)")
    community, at = octets(data, at, end)
    return community, parse_pdu(data, at, end)


def v2c_bytes(community: bytes, pdu: Pdu) -> bytes:
    """The message of SNMPv2c."""
    head = of_integer(VERSION_2C) + element(OCTETS, community)
    return element(SEQUENCE, head + pdu_bytes(pdu))

"""The part of ASN.1's Basic Encoding Rules that SNMP uses (X.690; RFC 3417, section 8). Bytes in, values out.

Values of variables are never decoded: they are passed on as they came. Only definite lengths of at most four bytes, and
nothing nested deeper than the caller asks for, so that no message costs more than its length.
"""

from __future__ import annotations

from functools import lru_cache

from hyroads.slices.snmpvisor.errors import SnmpError

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

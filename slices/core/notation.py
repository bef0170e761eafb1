"""How the values of match fields are written in files: exact, with mask or prefix length, as a range.

========================  ===========================================================
``10.1.0.0/16``           prefix, or a mask: ``10.1.0.0/255.255.0.0``
``02:00:00:00:00:01``     address, or with a mask: ``01:00:00:00:00:00/01:00:00:00:00:00``
``80``, ``0x0800``        number, or with a mask: ``0x1000/0x1000``
``8000-8080``             range of numbers, both ends included
``none``, ``any``, ``5``  ``vlan_vid``: without tag, with any tag, with that VLAN number (0 to 4095)
========================  ===========================================================

A range becomes the fewest prefixes where masks are possible, else single values.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from ipaddress import AddressValueError, IPv4Address, IPv6Address

from .errors import MatchError
from .fields import VLAN_PRESENT, Field, Kind

MAX_SINGLE_VALUES = 256
_MAX_TEXT = 100
_NUMBER = re.compile(r"0x[0-9a-fA-F]{1,16}|[0-9]{1,20}")
_RANGE = re.compile(r"(0x[0-9a-fA-F]{1,16}|[0-9]{1,20})\s*-\s*(0x[0-9a-fA-F]{1,16}|[0-9]{1,20})")
_MAC = re.compile(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}")
_VLAN_WORDS = {"none": (0, 0x1FFF), "any": (VLAN_PRESENT, VLAN_PRESENT)}


def prefixes(low: int, high: int, bits: int) -> tuple[tuple[int, int], ...]:
    """The fewest (value, mask) prefixes that together are the numbers low..high; at most 2 ``bits`` - 2."""
    if not 0 <= low <= high < 1 << bits:
        raise MatchError(MatchError.BAD_VALUE, f"expected a range inside 0-{(1 << bits) - 1}, got {low}-{high}")
    found = []
    ones = (1 << bits) - 1
    while low <= high:
        size = low & -low if low else 1 << bits
        while size > high - low + 1:
            size >>= 1
        found.append((low, ones & ~(size - 1)))
        low += size
    return tuple(found)


def read(field: Field, value: object) -> tuple[tuple[int, int], ...]:
    """(value, mask) pairs of what a file says about a field, disjoint; :class:`MatchError` says what was expected."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not 0 < len(value) <= _MAX_TEXT:
        raise _expected(field, value)
    text = value.strip()
    if field.name == "vlan_vid":
        return _read_vlan(field, text)
    if field.kind in {Kind.NUMBER, Kind.HEXADECIMAL} and (found := _RANGE.fullmatch(text)):
        return _range(field, int(found[1], 0), int(found[2], 0))
    return (_masked(field, text),)


def write(field: Field, value: int, mask: int) -> str:
    """What ``read`` would read as this value and mask."""
    if field.name == "vlan_vid":
        return _write_vlan(value, mask)
    if mask == field.ones:
        return _WRITERS[field.kind](field, value)
    length = mask.bit_count()
    if field.kind in {Kind.IPV4, Kind.IPV6} and mask == field.ones & ~((1 << field.bits - length) - 1):
        return f"{_WRITERS[field.kind](field, value)}/{length}"
    kind = Kind.HEXADECIMAL if field.kind is Kind.NUMBER else field.kind
    return f"{_WRITERS[kind](field, value)}/{_WRITERS[kind](field, mask)}"


def _expected(field: Field, value: object) -> MatchError:
    form = {
        Kind.NUMBER: f"a number or a range inside 0-{field.ones}",
        Kind.HEXADECIMAL: f"a number inside 0-{field.ones:#x}",
        Kind.MAC: "a MAC address like 02:00:00:00:00:01",
        Kind.IPV4: "an IPv4 address",
        Kind.IPV6: "an IPv6 address",
    }[field.kind]
    more = " with an optional /length or /mask" if field.kind in {Kind.IPV4, Kind.IPV6} else ""
    more = more or (" with an optional /mask" if field.maskable else "")
    got = ascii(value) if isinstance(value, str) and len(value) <= 40 else type(value).__name__
    return MatchError(MatchError.BAD_VALUE, f"expected {form}{more}, got {got}")


def _masked(field: Field, text: str) -> tuple[int, int]:
    first, slash, second = text.partition("/")
    value = _one(field, first, text)
    if not slash:
        return value, field.ones
    if not field.maskable:
        raise MatchError(MatchError.BAD_MASK, f"{field.name} takes no mask, got {text!r}")
    if field.kind in {Kind.IPV4, Kind.IPV6} and re.fullmatch(r"[0-9]{1,3}", second):
        length = int(second)
        if length > field.bits:
            raise _expected(field, text)
        mask = field.ones & ~((1 << field.bits - length) - 1)
    else:
        mask = _one(field, second, text)
    if value & ~mask:
        raise MatchError(
            MatchError.BAD_VALUE, f"{text} has bits outside its mask; write {write(field, value & mask, mask)}"
        )
    return value, mask


def _one(field: Field, text: str, whole: str) -> int:
    number = _READERS[field.kind](text)
    if number is None or number > field.ones:
        raise _expected(field, whole)
    return number


def _range(field: Field, low: int, high: int) -> tuple[tuple[int, int], ...]:
    if field.maskable:
        return prefixes(low, high, field.bits)
    if not low <= high <= field.ones:
        raise MatchError(MatchError.BAD_VALUE, f"expected a range inside 0-{field.ones}, got {low}-{high}")
    if high - low >= MAX_SINGLE_VALUES:
        raise MatchError(
            MatchError.BAD_VALUE, f"{field.name} takes no mask, so a range has at most {MAX_SINGLE_VALUES} values"
        )
    return tuple((value, field.ones) for value in range(low, high + 1))


def _read_vlan(field: Field, text: str) -> tuple[tuple[int, int], ...]:
    if text in _VLAN_WORDS:
        return (_VLAN_WORDS[text],)
    if found := _RANGE.fullmatch(text):
        pairs = prefixes(int(found[1], 0), int(found[2], 0), 12)
    elif _NUMBER.fullmatch(text):
        pairs = prefixes(int(text, 0), int(text, 0), 12)
    else:
        value, mask = _masked(field, text)
        return ((value, mask),)
    return tuple((value | VLAN_PRESENT, mask | VLAN_PRESENT) for value, mask in pairs)


def _write_vlan(value: int, mask: int) -> str:
    if (value, mask) == _VLAN_WORDS["none"]:
        return "none"
    if (value, mask) == _VLAN_WORDS["any"]:
        return "any"
    return str(value & 0xFFF) if mask == 0x1FFF else f"{value:#06x}/{mask:#06x}"


def _number(text: str) -> int | None:
    return int(text, 0 if text.startswith("0x") else 10) if _NUMBER.fullmatch(text) else None


def _mac(text: str) -> int | None:
    return int(text.replace(":", ""), 16) if _MAC.fullmatch(text) else None


def _address(kind: type[IPv4Address | IPv6Address], text: str) -> int | None:
    try:
        return int(kind(text))
    except AddressValueError:
        return None


_READERS: dict[Kind, Callable[[str], int | None]] = {
    Kind.NUMBER: _number,
    Kind.HEXADECIMAL: _number,
    Kind.MAC: _mac,
    Kind.IPV4: partial(_address, IPv4Address),
    Kind.IPV6: partial(_address, IPv6Address),
}
_WRITERS: dict[Kind, Callable[[Field, int], str]] = {
    Kind.NUMBER: lambda _, value: str(value),
    Kind.HEXADECIMAL: lambda field, value: f"{value:#0{2 + (field.bits + 3) // 4}x}",
    Kind.MAC: lambda _, value: value.to_bytes(6, "big").hex(":"),
    Kind.IPV4: lambda _, value: str(IPv4Address(value)),
    Kind.IPV6: lambda _, value: str(IPv6Address(value)),
}

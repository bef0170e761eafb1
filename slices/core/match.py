"""The algebra of OpenFlow 1.3 matches.

A match is a set of headers given by bits: a header belongs to it if it equals ``value`` in all bits of ``mask``
(Kazemian et al., "Header space analysis", NSDI 2012). In the *normal form* of this module

- bits of ``value`` outside ``mask`` are 0;
- a field is matched only together with its prerequisites, which are matched exactly;
- a frame without VLAN tag has ``vlan_vid`` 0 in all 13 bits, so a match that asks for no tag asks for that, and
  one that asks for a bit of the VLAN number asks for a tag.

Two matches in normal form are the same set exactly if they are equal, share a header exactly if they agree in the
bits that both care about, and one contains the other exactly if it agrees with it and cares about no bit more. Each
test is a few operations on integers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod

from .errors import MatchError
from .fields import BY_NAME, FIELDS, VLAN_PRESENT, Field, bits_of
from .notation import write

_VLAN = BY_NAME["vlan_vid"]
_VLAN_BITS = bits_of("vlan_vid")
_TAG_BIT = VLAN_PRESENT << _VLAN.shift
_NUMBER_BITS = _VLAN_BITS ^ _TAG_BIT
_PCP_BITS, _IN_PORT_BITS, _IN_PHY_PORT_BITS = map(bits_of, ("vlan_pcp", "in_port", "in_phy_port"))
# (bits of the field, place of the prerequisite, its bits, its allowed values in place, the field, its name)
_PREREQUISITES = tuple(
    (
        bits_of(field.name),
        bits_of(name),
        frozenset(value << BY_NAME[name].shift for value in values),
        field,
        name,
    )
    for field in FIELDS
    for name, values in field.needs
)


@dataclass(frozen=True, slots=True)
class TernaryMatch:
    """A set of headers in normal form; made by ``normal``, ``of_fields`` or ``classifier.decode``, not directly."""

    value: int
    mask: int

    def overlaps(self, other: TernaryMatch) -> bool:
        """Whether some header belongs to both."""
        return not (self.value ^ other.value) & self.mask & other.mask

    def has(self, header: int) -> bool:
        """Whether a header, given by all its bits, belongs to the match."""
        return not (self.value ^ header) & self.mask

    def field(self, name: str) -> tuple[int, int]:
        """(value, mask) of a field; the mask is 0 if the field is not matched."""
        field = BY_NAME[name]
        return (self.value >> field.shift) & field.ones, (self.mask >> field.shift) & field.ones

    def fields(self) -> Iterator[tuple[Field, int, int]]:
        """(field, value, mask) of every field that is matched, in the order of OXM numbers."""
        for field in FIELDS:
            mask = (self.mask >> field.shift) & field.ones
            if mask:
                yield field, (self.value >> field.shift) & field.ones, mask


ALL = TernaryMatch(0, 0)
"""Every header."""


def normal(value: int, mask: int) -> TernaryMatch:
    """The normal form of a match; :class:`MatchError` if no header belongs to it or a prerequisite is missing."""
    found = _vlan_normal(value & mask, mask)
    if found is None:
        raise MatchError(MatchError.BAD_VALUE, "vlan_vid: a frame without a tag has no VLAN number")
    _check_prerequisites(found)
    return found


def _vlan_normal(value: int, mask: int) -> TernaryMatch | None:
    if mask & _VLAN_BITS:
        if mask & _TAG_BIT and not value & _TAG_BIT:
            if value & _NUMBER_BITS:
                return None
            mask |= _VLAN_BITS
        elif value & _NUMBER_BITS:
            value |= _TAG_BIT
            mask |= _TAG_BIT
    return TernaryMatch(value, mask)


def _check_prerequisites(match: TernaryMatch) -> None:
    value, mask = match.value, match.mask
    for bits, place, allowed, field, name in _PREREQUISITES:
        if mask & bits and (mask & place != place or value & place not in allowed):
            need = BY_NAME[name]
            words = " or ".join(write(need, v >> need.shift, need.ones) for v in sorted(allowed))
            raise MatchError(MatchError.BAD_PREREQ, f"{field.name} needs {name}={words}")
    if mask & _PCP_BITS and not value & _TAG_BIT:
        raise MatchError(MatchError.BAD_PREREQ, "vlan_pcp needs a vlan_vid with the bit 0x1000 (a tag is present)")
    if mask & _IN_PHY_PORT_BITS and mask & _IN_PORT_BITS != _IN_PORT_BITS:
        raise MatchError(MatchError.BAD_PREREQ, "in_phy_port needs in_port")


def of_fields(fields: Mapping[str, int | tuple[int, int]]) -> TernaryMatch:
    """A match from fields by name, exact or (value, mask); :class:`MatchError` if it is wrong or matches nothing."""
    value = mask = 0
    for name, wanted in fields.items():
        field = BY_NAME.get(name)
        if field is None:
            raise MatchError(MatchError.BAD_FIELD, f"{name} is no match field of OpenFlow 1.3")
        one, ones = wanted if isinstance(wanted, tuple) else (wanted, field.ones)
        if not (0 <= one <= field.ones and 0 <= ones <= field.ones):
            raise MatchError(MatchError.BAD_VALUE, f"{name}: expected at most {field.bits} bits")
        value |= one << field.shift
        mask |= ones << field.shift
    return normal(value, mask)


def completed(fields: Mapping[str, int | tuple[int, int]]) -> tuple[TernaryMatch, ...]:
    """The matches that ``fields`` mean when missing prerequisites are filled in, disjoint.

    ``tcp_dst=80`` alone becomes two: over IPv4 and over IPv6. :class:`MatchError` if a given field contradicts a
    prerequisite.
    """
    waiting, done = [dict(fields)], []
    while waiting:
        now = waiting.pop()
        missing = _missing(now)
        if missing is None:
            done.append(of_fields(now))
            continue
        name, values = missing
        waiting += [{**now, name: value} for value in reversed(values)]
    return tuple(done)


def _missing(fields: Mapping[str, int | tuple[int, int]]) -> tuple[str, tuple[int | tuple[int, int], ...]] | None:
    """The innermost missing prerequisite and the values that all given fields allow it."""
    allowed: dict[str, tuple[int, ...]] = {}
    for name in fields:
        field = BY_NAME.get(name)
        for needed, values in field.needs if field is not None else ():
            if needed not in fields:
                before = allowed.get(needed, values)
                allowed[needed] = tuple(value for value in before if value in values)
                if not allowed[needed]:
                    raise MatchError(MatchError.BAD_PREREQ, f"no packet has all of {', '.join(fields)}")
    if allowed:
        innermost = max(allowed, key=lambda name: BY_NAME[name].number)
        return innermost, allowed[innermost]
    if "vlan_pcp" in fields and "vlan_vid" not in fields:
        return "vlan_vid", ((VLAN_PRESENT, VLAN_PRESENT),)
    return None


def intersection(one: TernaryMatch, other: TernaryMatch) -> TernaryMatch | None:
    """The headers that belong to both, None if there are none."""
    if not one.overlaps(other):
        return None
    return TernaryMatch(one.value | other.value, one.mask | other.mask)


def difference(one: TernaryMatch, other: TernaryMatch) -> tuple[TernaryMatch, ...]:
    """Disjoint matches that together are the headers of ``one`` outside ``other``: at most one per bit of ``other``.

    They are sets, not rules: fields such as eth_type, which a switch takes only exactly, may be masked in them.
    """
    if not one.overlaps(other):
        return (one,)
    parts = []
    value, mask = one.value, one.mask
    open_bits = other.mask & ~mask
    while open_bits:
        bit = 1 << (open_bits.bit_length() - 1)
        open_bits ^= bit
        part = _vlan_normal(value | (~other.value & bit), mask | bit)
        if part is not None:
            parts.append(part)
        value |= other.value & bit
        mask |= bit
    return tuple(parts)


def outside(parts: Iterable[TernaryMatch], other: TernaryMatch) -> tuple[TernaryMatch, ...]:
    """The headers of disjoint matches that do not belong to ``other``, as disjoint matches."""
    return tuple(rest for part in parts for rest in difference(part, other))


def alternatives(fields: Mapping[str, Iterable[tuple[int, int]]], most: int) -> tuple[TernaryMatch, ...]:
    """The matches of all combinations of the fields' (value, mask) pairs; :class:`MatchError` if more than ``most``."""
    choices = {name: tuple(values) for name, values in fields.items()}
    count = prod(map(len, choices.values()))
    if count > most:
        raise MatchError(MatchError.BAD_VALUE, f"the lists and ranges make {count} matches, expected at most {most}")
    found: dict[TernaryMatch, None] = {}
    for combination in product(*choices.values()):
        found |= dict.fromkeys(completed(dict(zip(choices, combination, strict=True))))
    return tuple(found)


def describe(match: TernaryMatch) -> str:
    """``eth_type=0x0800, ipv4_dst=10.1.0.0/16``, or ``every packet``."""
    return ", ".join(f"{f.name}={write(f, v, m)}" for f, v, m in match.fields()) or "every packet"

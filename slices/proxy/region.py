"""Whose a header is at each port, and whether a rule would let packets out of their slice's flowspace.

The question (docs/explanation/slicing.md): given a slice, a match, an ingress port, what the actions
rewrite and the port where the result leaves, is every header that the slice owns at the ingress port and that matches,
once rewritten, the slice's at the other port? The classifier's entries of that port are gone through from the highest
on, each drawn back through the rewriting to the headers that came in; ``match.difference`` divides what no entry has
decided yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

from hyroads.slices.core.allocation import PRODUCTION_NUMBER
from hyroads.slices.core.classifier import DISCOVERY_PRIORITY, ClassifierEntry
from hyroads.slices.core.fields import BY_NAME, bits_of
from hyroads.slices.core.match import TernaryMatch, intersection, outside
from hyroads.slices.core.model import OverlapIndex

MAX_PARTS = 512
"""A question that divides headers into more parts is answered with no."""

NOBODY = 0
"""No slice has this number."""

_IN_PORT = BY_NAME["in_port"]
NOT_HEADER = bits_of("in_port", "in_phy_port", "metadata", "tunnel_id")
"""Fields of a match that are not read in a packet."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """What actions did to a header: bits of ``mask`` have the value of ``value``, bits of ``unknown`` any value."""

    value: int = 0
    mask: int = 0
    unknown: int = 0

    @property
    def changed(self) -> bool:
        """Whether anything was written or forgotten."""
        return bool(self.mask or self.unknown)

    def set(self, value: int, mask: int) -> Rewrite:
        """After these bits were written."""
        return Rewrite(self.value & ~mask | value & mask, self.mask | mask, self.unknown & ~mask)

    def forget(self, bits: int) -> Rewrite:
        """After these bits got values that nobody can tell."""
        return Rewrite(self.value & ~bits, self.mask & ~bits, self.unknown | bits)


UNCHANGED = Rewrite()

_Entry = tuple[int, int, int]
"""(value, mask, number of the slice)."""


class _View:
    """The entries that hold at a port, highest first, and which of them overlap a match."""

    def __init__(self, entries: list[_Entry]) -> None:
        self.entries = entries
        places = ((0, TernaryMatch(value, mask), place) for place, (value, mask, _) in enumerate(entries))
        self._groups = OverlapIndex(places).groups.get(0, {})

    def overlapping(self, match: TernaryMatch) -> list[_Entry]:
        """The entries that share a header with a match, highest first."""
        places: list[int] = []
        for group in self._groups.values():
            common = group.mask & match.mask
            places += [group.rules[i] for i in group.table(common).get(match.value & common, ())]
        places.sort()
        return [self.entries[place] for place in places]


class Regions:
    """The flowspace of all slices on one switch, port by port."""

    def __init__(self, entries: Iterable[ClassifierEntry] | Callable[[], Iterable[ClassifierEntry]]) -> None:
        """``entries`` as from ``Classifier.of_switch``, highest priority first; asked for when first needed."""
        self._source = entries
        self._views: dict[int, _View] = {}
        self._kinds: dict[tuple[tuple[int, _Entry], ...], int] = {}
        self._kind_of: dict[int, int] = {}
        self._first_of_every: tuple[tuple[int, _Entry], ...] = ()
        """The highest entry that holds at every port, with its place."""

    def whole(self, number: int, port: int) -> bool:
        """Whether the highest entry of a port already says that all packets there are the slice's: ``leak`` finds none
        that comes unchanged. No for many where it would find none either.
        """
        _, special = self._lines
        first = [*special.get(port, ())[:1], *self._first_of_every]
        if not first:
            return number == PRODUCTION_NUMBER
        _, (_, mask, who) = min(first, key=lambda found: found[0])
        return who == number and not mask

    @cached_property
    def _lines(self) -> tuple[list[tuple[int | None, _Entry]], dict[int, list[tuple[int, _Entry]]]]:
        """All entries with their port (None: every port); and those of each port that has its own, with their place."""
        entries = self._source() if callable(self._source) else self._source
        self._source = ()
        bits = _IN_PORT.ones << _IN_PORT.shift
        every: list[tuple[int | None, _Entry]] = []
        special: dict[int, list[tuple[int, _Entry]]] = {}
        for place, entry in enumerate(entries):
            if entry.priority in {0, DISCOVERY_PRIORITY}:
                continue
            match = entry.match
            port = (match.value & bits) >> _IN_PORT.shift if match.mask & bits else None
            line = (match.value & ~bits, match.mask & ~bits, entry.block.number)
            every.append((port, line))
            if port is not None:
                # The place says where the entry stands among those of every port.
                special.setdefault(port, []).append((place, line))
            elif not self._first_of_every:
                self._first_of_every = ((place, line),)
        return every, special

    def _view(self, port: int) -> _View:
        kind = self.kind(port)
        found = self._views.get(kind)
        if found is None:
            found = self._views[kind] = _View([line for at, line in self._lines[0] if at is None or at == port])
        return found

    def kind(self, port: int) -> int:
        """Equal for ports that certainly have the same flowspace."""
        found = self._kind_of.get(port)
        if found is None:
            key = tuple(self._lines[1].get(port, ()))
            found = self._kind_of[port] = self._kinds.setdefault(key, len(self._kinds))
        return found

    def owner(self, port: int, match: TernaryMatch) -> int:
        """The number of the slice that owns every header of ``match`` at a port, ``NOBODY`` if that is not sure."""
        match = TernaryMatch(match.value, match.mask | NOT_HEADER)
        first = NOBODY
        for _, mask, who in self._view(port).overlapping(match):
            if first not in {NOBODY, who}:
                return NOBODY
            if not mask & ~match.mask:
                return who
            first = who
        return PRODUCTION_NUMBER if first in {NOBODY, PRODUCTION_NUMBER} else NOBODY

    def owns_some(self, number: int, port: int, match: TernaryMatch) -> bool:
        """Whether a slice owns any header of ``match`` at a port; yes if that is too hard to tell."""
        rest: tuple[TernaryMatch, ...] = (match,)
        for value, mask, who in self._view(port).overlapping(match):
            entry = TernaryMatch(value, mask)
            if not any(part.overlaps(entry) for part in rest):
                continue
            if who == number:
                return True
            rest = outside(rest, entry)
            if not rest or len(rest) > MAX_PARTS:
                return bool(rest)
        return number == PRODUCTION_NUMBER

    def leak(
        self, number: int, in_port: int | None, match: TernaryMatch, rewrite: Rewrite, out_port: int
    ) -> TernaryMatch | None:
        """Headers of the slice at ``in_port`` that would leave its flowspace at ``out_port``; None if there are none.

        With ``in_port`` None every header of the match counts, whoever owns it.
        """
        if in_port is not None and not rewrite.changed and self.kind(in_port) == self.kind(out_port):
            return None
        start = TernaryMatch(match.value & ~NOT_HEADER, match.mask & ~NOT_HEADER)
        if in_port is not None and not self.owns_some(number, in_port, start):
            return None
        return self._leaking_part(number, in_port, (start,), rewrite, out_port)

    def _leaking_part(
        self, number: int, in_port: int | None, rest: tuple[TernaryMatch, ...], rewrite: Rewrite, out_port: int
    ) -> TernaryMatch | None:
        # What may come out: entries that overlap nothing of it can't matter.
        fixed = rest[0].mask & ~(rewrite.mask | rewrite.unknown)
        image = TernaryMatch(rest[0].value & fixed | rewrite.value, fixed | rewrite.mask)
        for value, mask, who in self._view(out_port).overlapping(image):
            same = mask & ~(rewrite.mask | rewrite.unknown)
            before = TernaryMatch(value & same, same)
            if who != number:
                both = (intersection(part, before) for part in rest)
                found = self._owned(number, in_port, (part for part in both if part is not None))
                if found is not None:
                    return found
            if not mask & rewrite.unknown:
                rest = outside(rest, before)
            if not rest or len(rest) > MAX_PARTS:
                return rest[0] if rest else None
        return None if number == PRODUCTION_NUMBER else self._owned(number, in_port, rest)

    def _owned(self, number: int, port: int | None, parts: Iterable[TernaryMatch]) -> TernaryMatch | None:
        return next((part for part in parts if port is None or self.owns_some(number, port, part)), None)

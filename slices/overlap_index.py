"""Finds the rules of a slice that overlap given matches, without comparing all with all.

Tuple space search (Srinivasan, Suri, Varghese: "Packet classification using tuple space search", SIGCOMM 1999), asking
for overlap instead of membership. Matches are grouped by priority and mask. For a query with mask m and a group with
mask g, a match overlaps exactly if its value under m & g is that of the query, so each group has a dictionary by value
under m & g, made when first asked for. Real rules have few masks. An index belongs to one immutable slice and stays
with it, so checking a change costs little more than the rules that changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hyroads.slices.match import TernaryMatch


class Group:
    """Matches with one priority and mask, each with the number of its rule."""

    def __init__(self, mask: int) -> None:
        self.mask = mask
        self.values: list[int] = []
        self.rules: list[int] = []
        self._tables: dict[int, dict[int, list[int]]] = {}

    def table(self, common: int) -> dict[int, list[int]]:
        """The positions of matches by their value under ``common``."""
        found = self._tables.get(common)
        if found is None:
            found = self._tables[common] = {}
            for position, value in enumerate(self.values):
                found.setdefault(value & common, []).append(position)
        return found

    def match(self, position: int) -> TernaryMatch:
        """The match at a position."""
        return TernaryMatch(self.values[position], self.mask)


class OverlapIndex:
    """The matches of one slice by priority and mask."""

    def __init__(self, entries: Iterable[tuple[int, TernaryMatch, int]]) -> None:
        """``entries`` are (priority, match, number of the rule)."""
        self.groups: dict[int, dict[int, Group]] = {}
        for priority, match, rule in entries:
            masks = self.groups.setdefault(priority, {})
            group = masks.get(match.mask)
            if group is None:
                group = masks[match.mask] = Group(match.mask)
            group.values.append(match.value)
            group.rules.append(rule)

    def overlaps(self, other: OverlapIndex) -> Iterator[tuple[int, TernaryMatch, int, TernaryMatch]]:
        """(rule, match, rule of other, match of other) of all pairs with equal priority that share a header."""
        for priority in self.groups.keys() & other.groups.keys():
            for mine in self.groups[priority].values():
                for theirs in other.groups[priority].values():
                    yield from _pairs(mine, theirs)

    def overlapping(self, priority: int, match: TernaryMatch) -> Iterator[tuple[int, TernaryMatch]]:
        """(rule, match) of this priority that share a header with a match."""
        for group in self.groups.get(priority, {}).values():
            common = group.mask & match.mask
            for position in group.table(common).get(match.value & common, ()):
                yield group.rules[position], group.match(position)


def _pairs(mine: Group, theirs: Group) -> Iterator[tuple[int, TernaryMatch, int, TernaryMatch]]:
    common = mine.mask & theirs.mask
    table = theirs.table(common)
    for position, value in enumerate(mine.values):
        for other in table.get(value & common, ()):
            yield mine.rules[position], mine.match(position), theirs.rules[other], theirs.match(other)

"""What a slice may see and change of a device: a set of variables that looks like a device of its own. Pure.

Variables are in subtrees. A *plain* subtree is seen as a whole (the system group). Of a *table by interface* only rows
of the slice's interfaces are seen; the first number of a row's index is the interface's. Shared radios are seen, and
their rows may only be changed by who is allowed to. Everything else is absent: a walk goes on behind it, in order.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from hyroads.slices.snmpvisor.ber import MAX_ARC, Oid


class Access(IntEnum):
    """What may be done with a variable."""

    NONE = 0
    READ = 1
    ASK = 2
    """Read, and changed if an arbitration allows it: a parameter of a shared radio."""
    WRITE = 3


@dataclass(frozen=True, slots=True)
class Subtree:
    """Variables below ``prefix``. ``writable`` are the columns that may be changed, if the row may; None: no table."""

    prefix: Oid
    writable: frozenset[int] | None = None
    access: Access = Access.READ

    @property
    def is_table(self) -> bool:
        """Whether it has a row for each interface; then ``prefix`` is its entry."""
        return self.writable is not None


@dataclass(frozen=True)
class View:
    """Disjoint subtrees in order, and what may be done with the rows of each interface (by ifIndex)."""

    subtrees: tuple[Subtree, ...]
    rows: Mapping[int, Access]
    _starts: list[Oid] = field(default_factory=list)
    _indices: list[int] = field(default_factory=list)

    @staticmethod
    def of(subtrees: Iterable[Subtree], rows: Mapping[int, Access]) -> View:
        """With the subtrees put in order."""
        ordered = tuple(sorted(subtrees, key=lambda each: each.prefix))
        seen = {index: access for index, access in rows.items() if access is not Access.NONE}
        return View(ordered, seen, [each.prefix for each in ordered], sorted(seen))

    def access(self, oid: Oid) -> Access:
        """What may be done with a variable."""
        at = bisect_right(self._starts, oid) - 1
        if at < 0:
            return Access.NONE
        tree = self.subtrees[at]
        size = len(tree.prefix)
        if oid[:size] != tree.prefix:
            return Access.NONE
        if tree.writable is None:
            return tree.access
        if len(oid) < size + 2:
            return Access.NONE
        row = self.rows.get(oid[size + 1], Access.NONE)
        return row if oid[size] in tree.writable else min(row, Access.READ)

    def row(self, oid: Oid) -> int | None:
        """The interface that a variable of a table belongs to; None: it is in no table."""
        at = bisect_right(self._starts, oid) - 1
        tree = self.subtrees[at] if at >= 0 else None
        if tree is None or not tree.is_table or oid[: len(tree.prefix)] != tree.prefix:
            return None
        return oid[len(tree.prefix) + 1] if len(oid) > len(tree.prefix) + 1 else None

    def onward(self, oid: Oid) -> Oid | None:
        """Behind which variable to ask next, if ``oid`` is what was found and is not seen; None: nothing follows.

        The result is never before ``oid``, and nothing that is seen lies between.
        """
        at = bisect_right(self._starts, oid) - 1
        if at >= 0:
            tree = self.subtrees[at]
            size = len(tree.prefix)
            if oid[:size] == tree.prefix and tree.is_table and self._indices:
                return self._next_row(oid, tree.prefix)
        return self._starts[at + 1] if at + 1 < len(self._starts) else None

    def _next_row(self, oid: Oid, prefix: Oid) -> Oid:
        size = len(prefix)
        if len(oid) < size + 2:
            # A prefix of rows: the first row of this column, or of the first column.
            return max(oid, self._before_row(oid if len(oid) > size else (*prefix, 0), self._indices[0]))
        column, index = oid[: size + 1], oid[size + 1]
        at = bisect_right(self._indices, index)
        if at < len(self._indices):
            return max(oid, self._before_row(column, self._indices[at]))
        # No later row: on to the next column.
        return (*column, MAX_ARC, MAX_ARC)

    @staticmethod
    def _before_row(column: Oid, index: int) -> Oid:
        """Nothing that exists lies between this and the row: nobody numbers so high below an index."""
        return (*column, index - 1, MAX_ARC) if index > 0 else column

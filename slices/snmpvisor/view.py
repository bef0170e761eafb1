"""What a slice may see and change of a device: a set of variables that looks like a device of its own. Pure.

Variables are in subtrees. A *plain* subtree is seen as a whole (the system group). Of a *table by interface* only rows
of the slice's interfaces are seen; a row's index begins with the interface's number, or with the length of its name and
the name. Shared radios are seen, and their rows may only be changed by who is allowed to. Everything else is absent: a
walk goes on behind it, in order.

A parameter of a shared radio is set by its owner alone (rule ``owner``), or once more than half of those who share the
radio, its owner among them, want the same value (``majority``); a wish counts for ``forget_s``, and only the last.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from .pdu import MAX_ARC, Oid, Status


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
    by_name: bool = False
    """Rows by the names of interfaces, which have them whether or not the interface is there."""
    shared: frozenset[int] = frozenset()
    """Columns that are everybody's on the radio: they may be asked for, also by who may change the row."""

    @property
    def is_table(self) -> bool:
        """Whether it has a row for each interface; then ``prefix`` is its entry."""
        return self.writable is not None


def name_key(name: str) -> Oid:
    """How the index of an interface's row begins in a table by name."""
    data = name.encode()
    return (len(data), *data)


class View:
    """Disjoint subtrees in order, and what may be done with the rows of each interface, by ifIndex and by name."""

    def __init__(
        self, subtrees: Iterable[Subtree], rows: Mapping[int, Access], names: Mapping[str, Access] | None = None
    ) -> None:
        self._subtrees = sorted(subtrees, key=lambda each: each.prefix)
        self._starts = [each.prefix for each in self._subtrees]
        self._keys: dict[bool, dict[Oid, Access]] = {
            False: {(index,): access for index, access in rows.items() if access is not Access.NONE},
            True: {name_key(name): access for name, access in (names or {}).items() if access is not Access.NONE},
        }
        self._ordered = {kind: sorted(found) for kind, found in self._keys.items()}

    def access(self, oid: Oid) -> Access:
        """What may be done with a variable."""
        tree = self._tree(oid)
        if tree is None:
            return Access.NONE
        if tree.writable is None:
            return tree.access
        key = _key(tree, oid)
        row = self._keys[tree.by_name].get(key, Access.NONE) if key is not None else Access.NONE
        column = oid[len(tree.prefix)] if key is not None else 0
        if column in tree.shared:
            return min(row, Access.ASK)
        return row if column in tree.writable else min(row, Access.READ)

    def row(self, oid: Oid) -> Oid | None:
        """How the index of a table's variable begins, which says whose it is; None: it is in no table."""
        tree = self._tree(oid)
        return _key(tree, oid) if tree is not None and tree.is_table else None

    def _tree(self, oid: Oid) -> Subtree | None:
        at = bisect_right(self._starts, oid) - 1
        tree = self._subtrees[at] if at >= 0 else None
        return tree if tree is not None and oid[: len(tree.prefix)] == tree.prefix else None

    def onward(self, oid: Oid) -> Oid | None:
        """Behind which variable to ask next, if ``oid`` is what was found and is not seen; None: nothing follows.

        The result is never before ``oid``, and nothing that is seen lies between.
        """
        tree = self._tree(oid)
        if tree is not None and tree.is_table and self._ordered[tree.by_name]:
            return self._next_row(oid, tree.prefix, self._ordered[tree.by_name])
        at = bisect_right(self._starts, oid) - 1
        return self._starts[at + 1] if at + 1 < len(self._starts) else None

    def _next_row(self, oid: Oid, prefix: Oid, keys: list[Oid]) -> Oid:
        size = len(prefix)
        if len(oid) < size + 2:
            # A prefix of rows: the first row of this column, or of the first column.
            return max(oid, self._before_row(oid if len(oid) > size else (*prefix, 0), keys[0]))
        column, index = oid[: size + 1], oid[size + 1 :]
        at = bisect_right(keys, index)
        if at < len(keys):
            return max(oid, self._before_row(column, keys[at]))
        # No later row: on to the next column.
        return (*column, MAX_ARC, MAX_ARC)

    @staticmethod
    def _before_row(column: Oid, key: Oid) -> Oid:
        """Nothing that exists lies between this and the row: nobody numbers so high below an index."""
        return (*column, *key[:-1], key[-1] - 1, MAX_ARC) if key[-1] > 0 else (*column, *key[:-1])


def _key(tree: Subtree, oid: Oid) -> Oid | None:
    """The part of a variable's index that says which interface; None: it has no index."""
    at = len(tree.prefix) + 1
    if len(oid) <= at:
        return None
    return oid[at : at + 1 + oid[at]] if tree.by_name else oid[at : at + 1]


FORGET_S = 600.0
MOST_WISHES = 100_000


@dataclass(frozen=True, slots=True)
class Wish:
    """A slice wants a shared variable of a device to have a value."""

    slice_name: str
    device: str
    oid: Oid
    value: bytes


@dataclass
class Arbiter:
    """The wishes for shared variables, of all devices."""

    rule: str
    forget_s: float = FORGET_S
    _wishes: dict[tuple[str, Oid], dict[str, tuple[bytes, float]]] = field(default_factory=dict)

    def ask(self, wish: Wish, sharers: frozenset[str], now_s: float) -> Status | None:
        """None: it may be set now. ``sharers`` are all who share the radio, its owner among them."""
        if self.rule != "majority":
            return Status.NOT_WRITABLE
        place = (wish.device, wish.oid)
        if len(self._wishes) >= MOST_WISHES and place not in self._wishes:
            return Status.RESOURCE_UNAVAILABLE
        self._wishes.setdefault(place, {})[wish.slice_name] = (wish.value, now_s)
        return None if 2 * self.count(wish, sharers, now_s) > len(sharers) else Status.INCONSISTENT_VALUE

    def count(self, wish: Wish, sharers: frozenset[str], now_s: float) -> int:
        """How many of the sharers want this value."""
        wishes = self._wishes.get((wish.device, wish.oid), {})
        for name in [name for name, (_, at_s) in wishes.items() if now_s - at_s > self.forget_s or name not in sharers]:
            del wishes[name]
        return sum(1 for wanted, _ in wishes.values() if wanted == wish.value)

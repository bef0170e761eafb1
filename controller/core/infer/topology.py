"""Neighbour tables: who is heard on which interface, as the nodes report it.

Every node reports a table per interface. Rows age out; what an undeclared interface says, and rows with a MAC that is
not that of another node's interface on the same technology, are never believed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from hyroads.controller.core.errors import HyroadsError

Interface = tuple[str, str]
"""(node id, technology)."""

# A table is bounded by what a shared medium can hold, so that a hostile report can't fill the memory.
MAX_ENTRIES = 4096
# A row counts for so long after its neighbour was last heard.
AGE_OUT_S = 5.0


class TopologyError(HyroadsError):
    """A neighbour report makes no sense."""


class Row(Protocol):
    """A row of a neighbour table: whose frames were heard, and how long before the table was made."""

    @property
    def mac(self) -> str:
        """The address of an interface."""

    @property
    def last_heard_ms(self) -> int:
        """0: just then."""


@dataclass(slots=True)
class _Table:
    """The table of an interface at ``time_s``, and what its last ones had besides (``left``: node -> when heard).

    ``fresh`` are the nodes heard of late as of the last look, which holds until ``until_s``.
    """

    time_s: float
    rows: Sequence[Row] = ()
    age_s: dict[str, float] = field(default_factory=dict)
    lately_s: tuple[float, ...] = ()
    """How long before the table those were heard that it counts."""
    left: dict[str, float] = field(default_factory=dict)
    fresh: frozenset[str] = frozenset()
    until_s: float = -math.inf

    def replace(self, rows: Sequence[Row], age_s: dict[str, float], time_s: float) -> None:
        """Another table. What the last one had and this one lacks stays until it has aged out: radios drop rows in
        between.
        """
        left = {**self.left, **{node: self.time_s - age for node, age in self.age_s.items()}}
        self.left = {
            node: heard_s for node, heard_s in left.items() if node not in age_s and time_s - heard_s <= AGE_OUT_S
        }
        self.rows, self.age_s = rows, age_s
        self.lately_s = tuple(age for age in age_s.values() if age <= AGE_OUT_S)
        self.until_s = -math.inf

    def again(self, time_s: float) -> None:
        """The same table at a later time."""
        self.time_s = time_s
        # Where the last look found all that the table counts, and nothing else, it finds the same again.
        is_same = not self.left and self.until_s > -math.inf and len(self.fresh) == len(self.lately_s)
        self.until_s = time_s - max(self.lately_s, default=0.0) + AGE_OUT_S if is_same else -math.inf

    def look(self, now_s: float) -> bool:
        """Bring ``fresh`` up to date; whether it is another set."""
        if now_s <= self.until_s:
            return False
        heard = {**self.left, **{node: self.time_s - age for node, age in self.age_s.items()}}
        heard = {node: at_s for node, at_s in heard.items() if now_s - at_s <= AGE_OUT_S}
        before, self.fresh = self.fresh, frozenset(heard)
        self.until_s = min(heard.values(), default=math.inf) + AGE_OUT_S
        return self.fresh != before


class NeighbourTables:
    """The last table of every interface. A table that says what the last one said costs nearly nothing.

    ``interface_of`` maps the MACs of declared interfaces to (node, technology).
    """

    def __init__(self, interface_of: Mapping[str, Interface]) -> None:
        self._interface_of = {mac.lower(): interface for mac, interface in interface_of.items()}
        self._declared = frozenset(interface_of.values())
        self._tables: dict[Interface, _Table] = {}
        self._hears: dict[Interface, frozenset[str]] = {}
        self._is_new = False

    def take(self, interface: Interface, time_s: float, rows: Sequence[Row]) -> None:
        """A table of an interface, complete, as of ``time_s``; an older one and one of an undeclared interface are
        ignored. The very rows of the last time may be given again, and must not change.

        Raises :class:`TopologyError` for a table of more than ``MAX_ENTRIES`` rows.
        """
        if len(rows) > MAX_ENTRIES:
            raise TopologyError(f"node {interface[0]!r}: a neighbour table has at most {MAX_ENTRIES} entries")
        table = self._tables.get(interface)
        if interface not in self._declared or (table is not None and time_s < table.time_s):
            return
        if table is None:
            table = self._tables[interface] = _Table(time_s)
            self._is_new = True
        if rows is not table.rows:
            table.replace(rows, self._ages(interface, rows), time_s)
        table.again(time_s)

    def _ages(self, own: Interface, rows: Sequence[Row]) -> dict[str, float]:
        """By node that is heard: how long ago, in seconds."""
        found = {}
        for row in rows:
            other = self._interface_of.get(row.mac.lower())
            if other is not None and other[1] == own[1] and other[0] != own[0]:
                found[other[0]] = row.last_heard_ms / 1e3
        return found

    def hears(self, now_s: float) -> Mapping[Interface, frozenset[str]]:
        """Interface -> the nodes that it hears, or that hear it, now; also of interfaces that hear nobody. The very
        object of the last time if nothing changed.
        """
        changed = [table.look(now_s) for table in self._tables.values()]
        if self._is_new or any(changed):
            self._is_new = False
            hears: dict[Interface, set[str]] = {interface: set() for interface in self._tables}
            for own, table in self._tables.items():
                hears[own] |= table.fresh
                for node in table.fresh:
                    hears.setdefault((node, own[1]), set()).add(own[0])
            self._hears = {interface: frozenset(nodes) for interface, nodes in hears.items()}
        return self._hears

"""Neighbour tables: who is heard on which interface, as the nodes report it.

Every node reports a table per interface. Rows age out; what an undeclared interface says, and rows with a MAC that is
not that of another node's interface on the same technology, are never believed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.core.estimate.busy_time import Interface, Interfaces

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.intp]

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
    """The table of an interface, and what its last ones had besides (``left``: node -> when heard). ``fresh`` are the
    nodes heard of late as of the last look.
    """

    rows: Sequence[Row] = ()
    age_s: dict[str, float] = field(default_factory=dict)
    lately_s: tuple[float, ...] = ()
    """How long before the table those were heard that it counts."""
    left: dict[str, float] = field(default_factory=dict)
    fresh: frozenset[str] = frozenset()

    def replace(self, rows: Sequence[Row], age_s: dict[str, float], time_s: float, before_s: float) -> None:
        """Another table, ``before_s`` was the time of the last. What that had and this one lacks stays until it has
        aged out: radios drop rows in between.
        """
        left = {**self.left, **{node: before_s - age for node, age in self.age_s.items()}}
        self.left = {
            node: heard_s for node, heard_s in left.items() if node not in age_s and time_s - heard_s <= AGE_OUT_S
        }
        self.rows, self.age_s = rows, age_s
        self.lately_s = tuple(age for age in age_s.values() if age <= AGE_OUT_S)

    @property
    def is_settled(self) -> bool:
        """Whether the last look found all that the table counts, and nothing else."""
        return not self.left and len(self.fresh) == len(self.lately_s)

    def look(self, time_s: float, now_s: float) -> tuple[bool, float]:
        """Bring ``fresh`` of the table of ``time_s`` up to date; whether it is another set, and until when it holds."""
        heard = {**self.left, **{node: time_s - age for node, age in self.age_s.items()}}
        heard = {node: at_s for node, at_s in heard.items() if now_s - at_s <= AGE_OUT_S}
        before, self.fresh = self.fresh, frozenset(heard)
        return self.fresh != before, min(heard.values(), default=math.inf) + AGE_OUT_S


class _Times:
    """Of tables, by place: when the last one was made (-inf: there is none), and until when the last look holds (-inf:
    look again). A table that comes again holds for longer if ``is_settled``: as long as ``oldest_s``, the greatest of
    its ages, allows.
    """

    def __init__(self, count: int) -> None:
        self.time_s, self.until_s = np.full(count, -np.inf), np.full(count, -np.inf)
        self.oldest_s, self.is_settled = np.zeros(count), np.zeros(count, dtype=bool)

    def again(self, at: IndexArray, time_s: FloatArray) -> None:
        """The same tables at later times."""
        self.time_s[at] = time_s
        # What the last look found it finds again.
        is_same = self.is_settled[at] & (self.until_s[at] > -np.inf)
        self.until_s[at] = np.where(is_same, time_s - self.oldest_s[at] + AGE_OUT_S, -np.inf)


class NeighbourTables:
    """The last table of every interface. A table that says what the last one said costs nearly nothing.

    ``node_of(technology, mac)`` names the node that has an address (lower-case digits) on a technology, or is None;
    ``interfaces`` numbers all declared interfaces.
    """

    def __init__(self, node_of: Callable[[str, str], str | None], interfaces: Interfaces) -> None:
        self._node_of = node_of
        self._interfaces = interfaces
        self._times = _Times(len(self._interfaces.names))
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
        at, table, times = self._interfaces.place_of.get(interface), self._tables.get(interface), self._times
        if at is None or (table is not None and time_s < times.time_s[at]):
            return
        if table is None:
            table = self._tables[interface] = _Table()
            self._is_new = True
        if rows is not table.rows:
            table.replace(rows, self._ages(interface, rows), time_s, float(times.time_s[at]))
            times.until_s[at], times.oldest_s[at] = -np.inf, max(table.lately_s, default=0.0)
        times.again(np.array([at]), np.array([time_s]))

    def use_addresses(self, node_of: Callable[[str, str], str | None]) -> None:
        """Nodes have other addresses from now on: the last tables are read again when they come the next time."""
        self._node_of = node_of
        for table in self._tables.values():
            table.rows = ()

    def take_again(self, places: IndexArray, times_s: FloatArray) -> None:
        """The tables of some interfaces, by their places, say what their last ones said; as for :meth:`take`."""
        later = times_s >= self._times.time_s[places]
        self._times.again(places[later], times_s[later])

    def _ages(self, own: Interface, rows: Sequence[Row]) -> dict[str, float]:
        """By node that is heard: how long ago, in seconds."""
        found = {}
        for row in rows:
            other = self._node_of(own[1], row.mac.lower())
            if other is not None and other != own[0]:
                found[other] = row.last_heard_ms / 1e3
        return found

    def hears(self, now_s: float) -> Mapping[Interface, frozenset[str]]:
        """Interface -> the nodes that it hears, or that hear it, now; also of interfaces that hear nobody. The very
        object of the last time if nothing changed.
        """
        if self._look(now_s) or self._is_new:
            self._is_new = False
            hears: dict[Interface, set[str]] = {interface: set() for interface in self._tables}
            for own, table in self._tables.items():
                hears[own] |= table.fresh
                for node in table.fresh:
                    hears.setdefault((node, own[1]), set()).add(own[0])
            self._hears = {interface: frozenset(nodes) for interface, nodes in hears.items()}
        return self._hears

    def _look(self, now_s: float) -> bool:
        """Bring all tables up to date that may not be; whether any has another set of nodes."""
        times, names, is_other = self._times, self._interfaces.names, False
        for at in np.flatnonzero((times.time_s > -np.inf) & (now_s > times.until_s)).tolist():
            table = self._tables[names[at]]
            changed, times.until_s[at] = table.look(float(times.time_s[at]), now_s)
            times.is_settled[at] = table.is_settled
            is_other |= changed
        return is_other

"""Neighbour tables: who is heard on which interface, as the nodes report it.

Every node reports a table per interface. Rows age out; what an undeclared interface says, and rows with a MAC that is
not that of another node's interface on the same technology, are never believed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from hyroads.controller.core.errors import HyroadsError

Interface = tuple[str, str]
"""(node id, technology)."""

# A table is bounded by what a shared medium can hold, so that a hostile report can't fill the memory.
MAX_ENTRIES = 4096
# A row counts for so long after its neighbour was last heard.
AGE_OUT_S = 5.0


class TopologyError(HyroadsError):
    """A neighbour report makes no sense."""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A row of a neighbour table: the MAC that was heard, and when last."""

    mac: str
    heard_s: float


@dataclass(frozen=True, slots=True)
class Report:
    """The neighbour table of one interface, complete, as of ``time_s``."""

    node: str
    technology: str
    time_s: float
    neighbours: tuple[Neighbour, ...]


@dataclass(frozen=True)
class NeighbourTables:
    """The last table of every interface; immutable: :meth:`after` gives the next.

    ``interface_of`` maps the MACs of declared interfaces to (node, technology).
    """

    interface_of: Mapping[str, Interface]
    reports: Mapping[Interface, Report] = field(default_factory=dict)
    declared: frozenset[Interface] | None = field(default=None, repr=False, compare=False)
    """The interfaces of ``interface_of``; None: not worked out yet."""

    def after(self, report: Report) -> NeighbourTables:
        """With a newer table of an interface; an older one and one of an undeclared interface are ignored.

        Raises :class:`TopologyError` for a table of more than ``MAX_ENTRIES`` rows.
        """
        return self.after_all([report])

    def after_all(self, reports: Iterable[Report]) -> NeighbourTables:
        """With newer tables of several interfaces, as :meth:`after` takes each."""
        declared = frozenset(self.interface_of.values()) if self.declared is None else self.declared
        tables, new = dict(self.reports), 0
        for report in reports:
            if len(report.neighbours) > MAX_ENTRIES:
                raise TopologyError(f"node {report.node!r}: a neighbour table has at most {MAX_ENTRIES} entries")
            interface = (report.node, report.technology)
            before = tables.get(interface)
            if interface not in declared or (before and report.time_s < before.time_s):
                continue
            # What the last table had and this one lacks stays until it has aged out: radios drop rows in between.
            recent = [n for n in before.neighbours if report.time_s - n.heard_s <= AGE_OUT_S] if before else []
            merged = {n.mac.lower(): n for n in (*recent, *report.neighbours)}
            tables[interface] = replace(report, neighbours=tuple(merged.values())[-MAX_ENTRIES:])
            new += 1
        return replace(self, reports=tables, declared=declared) if new else self

    def hears(self, now_s: float) -> dict[Interface, frozenset[str]]:
        """Interface -> the nodes that it hears, or that hear it, now; also of interfaces that hear nobody."""
        hears: dict[Interface, set[str]] = {interface: set() for interface in self.reports}
        for own, report in self.reports.items():
            for row in report.neighbours:
                other = self.interface_of.get(row.mac.lower())
                fresh = now_s - row.heard_s <= AGE_OUT_S
                if fresh and other is not None and other[1] == own[1] and other[0] != own[0]:
                    hears.setdefault(own, set()).add(other[0])
                    hears.setdefault(other, set()).add(own[0])
        return {interface: frozenset(nodes) for interface, nodes in hears.items()}

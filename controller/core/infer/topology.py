"""The multigraph as the nodes see it: who is heard on which interface, with what capacity, since when.

Every node reports a neighbour table per interface. A *directed* link u -> v exists when both hear each other, each
with a rate above zero; its capacity is what u says of sending to v, or if u says
nothing of that, what v says of receiving from u. Entries age out; MACs and nodes that nobody declared are reported,
never believed. A neighbour that is heard but not linked still counts for interference (``domains``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.core.interference import Interference
from hyroads.controller.core.network import Link, Network

Interface = tuple[str, str]
"""(node id, technology)."""

# A table is bounded by what a shared medium can hold, so that a hostile report can't fill the memory.
MAX_ENTRIES = 4096


class TopologyError(HyroadsError):
    """A neighbour report makes no sense."""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A row of a neighbour table. ``heard_s`` is when it was last heard; rates are Mb/s, None if unknown.

    ``send_mbps`` is the capacity towards the neighbour, ``receive_mbps`` from it.
    """

    mac: str
    heard_s: float
    send_mbps: float | None = None
    receive_mbps: float | None = None
    signal_dbm: float | None = None
    loss: float | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """The neighbour table of one interface, complete, as of ``time_s``."""

    node: str
    technology: str
    time_s: float
    neighbours: tuple[Neighbour, ...]


@dataclass(frozen=True, slots=True)
class Unknown:
    """Something reported that is not of this network, and by whom."""

    node: str
    technology: str
    mac: str
    reason: str


@dataclass(frozen=True, slots=True)
class TopologySettings:
    """An entry counts for ``age_out_s`` after it was last heard; below ``least_mbps`` there is no link."""

    age_out_s: float = 5.0
    least_mbps: float = 0.1


@dataclass(frozen=True)
class Inferred:
    """The multigraph at a time: links, who hears whom (symmetric), what was not known, and which neighbours are gone.

    ``links`` are ordered as ``known`` links first, then new ones by id. ``one_way`` are pairs of which only one hears
    the other: no link, but a sign of a hidden node.
    """

    links: tuple[Link, ...]
    hears: Mapping[Interface, frozenset[str]]
    unknown: tuple[Unknown, ...]
    gone: tuple[tuple[Interface, str], ...]
    one_way: tuple[tuple[str, str, str], ...]

    def network(self, base: Network, interference: Interference) -> Network:
        """The network of these links with the nodes and flows of ``base``."""
        return replace(base, links=self.links, interference=interference)


@dataclass(frozen=True)
class NeighbourTables:
    """The last table of every interface; immutable: :meth:`after` gives the next.

    ``interface_of`` maps the MACs of declared interfaces to (node, technology).
    """

    interface_of: Mapping[str, Interface]
    settings: TopologySettings = field(default_factory=TopologySettings)
    reports: Mapping[Interface, Report] = field(default_factory=dict)
    refused: tuple[Unknown, ...] = ()

    def after(self, report: Report) -> NeighbourTables:
        """With a newer table of an interface; an older one is ignored, one of an undeclared interface noted."""
        if len(report.neighbours) > MAX_ENTRIES:
            raise TopologyError(f"node {report.node!r}: a neighbour table has at most {MAX_ENTRIES} entries")
        interface = (report.node, report.technology)
        if interface not in set(self.interface_of.values()):
            note = Unknown(report.node, report.technology, "", "no such interface was declared")
            return replace(self, refused=tuple(dict.fromkeys((*self.refused, note)))[-MAX_ENTRIES:])
        before = self.reports.get(interface)
        if before is not None and report.time_s < before.time_s:
            return self
        # What the last table had and this one lacks stays until it has aged out: radios drop rows in between.
        remaining = {n.mac.lower(): n for n in before.neighbours} if before else {}
        remaining = {m: n for m, n in remaining.items() if report.time_s - n.heard_s <= self.settings.age_out_s}
        merged = {**remaining, **{n.mac.lower(): n for n in report.neighbours}}
        rows = tuple(merged.values())[-MAX_ENTRIES:]
        return replace(self, reports={**self.reports, interface: replace(report, neighbours=rows)})

    def inferred(self, now_s: float, known: Iterable[Link] = ()) -> Inferred:
        """The multigraph now. Links between the same interfaces as a known one keep its id, delay and loss."""
        rows = list(self._rows())
        fresh = {(u, v): row for u, v, row in rows if self._counts(row, now_s)}
        mutual = [pair for pair in fresh if (pair[1], pair[0]) in fresh]
        links = (self._link(u, v, fresh) for u, v in mutual)
        named = _named([link for link in links if link is not None], known)
        gone = tuple((u, v[0]) for u, v, _ in rows if (u, v) not in fresh)
        single = tuple((u[0], v[0], u[1]) for u, v in fresh if (v, u) not in fresh)
        return Inferred(named, self._hearers(fresh), self.unknown(now_s), gone, single)

    def hears(self, now_s: float) -> dict[Interface, frozenset[str]]:
        """Only who hears whom (symmetric), which takes a fifth of the time of :meth:`inferred`."""
        return self._hearers((u, v) for u, v, row in self._rows() if self._counts(row, now_s))

    def unknown(self, now_s: float) -> tuple[Unknown, ...]:
        """What nobody declared."""
        return (*self.refused, *self._strangers(now_s))

    def _hearers(self, pairs: Iterable[tuple[Interface, Interface]]) -> dict[Interface, frozenset[str]]:
        hears: dict[Interface, set[str]] = {interface: set() for interface in self.reports}
        for u, v in pairs:
            hears.setdefault(u, set()).add(v[0])
            hears.setdefault(v, set()).add(u[0])
        return {interface: frozenset(nodes) for interface, nodes in hears.items()}

    def _counts(self, row: Neighbour, now_s: float) -> bool:
        return now_s - row.heard_s <= self.settings.age_out_s

    def _rows(self) -> Iterator[tuple[Interface, Interface, Neighbour]]:
        for interface, report in self.reports.items():
            for row in report.neighbours:
                other = self.interface_of.get(row.mac.lower())
                if other is not None and other[1] == interface[1] and other[0] != interface[0]:
                    yield interface, other, row

    def _strangers(self, now_s: float) -> Iterator[Unknown]:
        for (node, technology), report in self.reports.items():
            for row in report.neighbours:
                if now_s - row.heard_s > self.settings.age_out_s:
                    continue
                other = self.interface_of.get(row.mac.lower())
                if other is None:
                    yield Unknown(node, technology, row.mac, "nobody declared this address")
                elif other[1] != technology:
                    yield Unknown(node, technology, row.mac, f"declared on {other[1]}")

    def _link(self, u: Interface, v: Interface, fresh: Mapping[tuple[Interface, Interface], Neighbour]) -> Link | None:
        said, heard = fresh[u, v].send_mbps, fresh[v, u].receive_mbps
        capacity = said if said is not None else heard
        if capacity is None or not math.isfinite(capacity) or capacity < self.settings.least_mbps:
            return None
        return Link(f"{u[0]}-{v[0]}-{u[1]}", u[0], v[0], u[1], capacity, loss=_loss(fresh[u, v]))


def _loss(row: Neighbour) -> float:
    return min(1.0, max(0.0, row.loss)) if row.loss is not None and math.isfinite(row.loss) else 0.0


def _named(links: list[Link], known: Iterable[Link]) -> tuple[Link, ...]:
    """Known links first and in their order, with their names; the others by id."""
    found = {(link.source, link.target, link.technology): link for link in links}
    named = []
    taken = set()
    for old in known:
        new = found.pop((old.source, old.target, old.technology), None)
        taken.add(old.id)
        if new is not None:
            named.append(replace(old, capacity_mbps=new.capacity_mbps, loss=new.loss or old.loss))
    for link in sorted(found.values(), key=lambda link: link.id):
        name = link.id
        while name in taken:
            name += "'"
        taken.add(name)
        named.append(replace(link, id=name))
    return tuple(named)

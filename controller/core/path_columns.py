"""The multipath flows and paths of a plan as columns: what agents counted on all of them in a second is taken in a few
operations on arrays, and what links carried follows from that. Pure.

Columns are in the order of the flows, those of the paths of a flow next to each other. Where the plan changes, what is
new is looked at flow by flow, and all else is moved as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from math import isnan
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .addressing import PathName
from .estimate.busy_time import Interface
from .growth import Counts, FloatArray, Grown, GrowthColumns, IndexArray
from .mappings import differing
from .network import Link
from .ragged import places

_TOGETHER = 200
"""So many flows that are new or have other paths are looked at in one go."""


class MeteredPath(NamedTuple):
    """A path, by its number within the flow, and the links that its frames travel for themselves. ``leaves`` are the
    node of the agent that sends on it and the link on which its frames leave first; None if they are copies of others.
    """

    id: int
    links: PathName
    leaves: tuple[str, str] | None = None


MeteredFlows = Mapping[str, tuple[MeteredPath, ...]]
"""By flow between two agents its paths; the same object as long as these are the same."""


@dataclass(frozen=True, eq=False)
class Totals:
    """What agents have counted at one moment, by their clocks: on the paths of ``flows``, in their order, what the
    ingress has sent and what the egress has received, with the delay that it estimates (nan: it does not say); and of
    the flows, in their order, what was delivered and how many frames are lost (both or none are told).
    """

    flows: MeteredFlows
    sent: Counts
    received: Counts
    delay_ms: FloatArray
    delivered: Counts
    lost: Counts


class _Links:
    """Numbers of links and of interfaces that links leave."""

    def __init__(self, links: Iterable[Link]) -> None:
        known = tuple(links)
        self.ids = tuple([link.id for link in known])
        self.number = {link: number for number, link in enumerate(self.ids)}
        self.interfaces: tuple[Interface, ...] = tuple(dict.fromkeys((each.source, each.technology) for each in known))
        places_of = {interface: place for place, interface in enumerate(self.interfaces)}
        self._leaves = {link.id: (link.source, places_of[link.source, link.technology]) for link in known}

    def left_by(self, path: MeteredPath) -> int:
        """The number of the interface by which a path leaves its agent. -1 for copies, and where the first hop is not
        the agent's, as from a plain client.
        """
        node, link = path.leaves or ("", "")
        source, interface = self._leaves.get(link, (None, -1))
        return interface if source == node else -1

    def numbers(self, path: MeteredPath) -> list[int]:
        """Of the links of a path; links that are not known have one number together, the one behind all."""
        return [self.number.get(link, len(self.ids)) for link in path.links]


@dataclass(frozen=True, eq=False)
class _Layout:
    """What the columns are about: by flow how many paths it has; by path how many links, and the interface that it
    leaves by (-1: see :meth:`_Links.left_by`); and the numbers of the links of all paths, one path after the other.
    """

    flows: MeteredFlows
    path_count: IndexArray
    link_count: IndexArray
    left_by: IndexArray
    links: IndexArray

    @classmethod
    def of(cls, flows: MeteredFlows, numbered: _Links) -> _Layout:
        """Of some flows, each looked at."""
        every = list(chain.from_iterable(flows.values()))
        return cls(
            flows,
            np.array([len(paths) for paths in flows.values()], dtype=np.intp),
            np.array([len(path.links) for path in every], dtype=np.intp),
            np.array([numbered.left_by(path) for path in every], dtype=np.intp),
            np.array(list(chain.from_iterable(map(numbered.numbers, every))), dtype=np.intp),
        )

    @classmethod
    def joined(cls, parts: Sequence[_Layout]) -> _Layout:
        """Of the flows of several, one after the other."""
        names = ("path_count", "link_count", "left_by", "links")
        flows = dict(chain.from_iterable(part.flows.items() for part in parts))
        return cls(flows, *(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    @cached_property
    def row_of(self) -> Mapping[str, int]:
        """By flow its column."""
        return dict(zip(self.flows, range(len(self.flows)), strict=True))

    @cached_property
    def starts(self) -> IndexArray:
        """By flow the first column of its paths."""
        starts: IndexArray = np.cumsum(self.path_count) - self.path_count
        return starts

    @cached_property
    def carriers(self) -> IndexArray:
        """The column of the path, for each of ``links``."""
        return np.repeat(np.arange(len(self.link_count)), self.link_count)

    @cached_property
    def begins(self) -> NDArray[np.bool_]:
        """Which of ``links`` are the first of their paths."""
        begins: NDArray[np.bool_] = np.diff(self.carriers, prepend=-1) != 0
        return begins

    @cached_property
    def first(self) -> tuple[IndexArray, IndexArray]:
        """The first links of paths, and the columns of these paths."""
        return self.links[self.begins], self.carriers[self.begins]

    @cached_property
    def others(self) -> tuple[IndexArray, IndexArray]:
        """All other links, and the columns of their paths."""
        return self.links[~self.begins], self.carriers[~self.begins]

    def path(self, flow: str, path: int) -> int:
        """The column of a path; -1 if there is none."""
        row = self.row_of.get(flow)
        if row is not None:
            for column, known in enumerate(self.flows[flow], start=self.starts.item(row)):
                if known.id == path:
                    return column
        return -1

    def then(
        self, flows: MeteredFlows, fresh: _Layout, flows_by_now: Sequence[int], paths_by_now: Sequence[int]
    ) -> tuple[_Layout, IndexArray, IndexArray]:
        """That of other flows, of which ``fresh`` are new or have other paths and are where they are :meth:`by_now`;
        and where the column of each flow, and of each path, is by now, -1 if nowhere.
        """
        # What is fresh is behind all others, until all are put in their order.
        counts, link_counts = np.append(self.path_count, fresh.path_count), np.append(self.link_count, fresh.link_count)
        rows = {**self.row_of, **dict(zip(fresh.flows, range(len(self.flows), len(counts)), strict=True))}
        which = np.fromiter(map(rows.__getitem__, flows), dtype=np.intp, count=len(flows))
        columns = places((np.cumsum(counts) - counts)[which], counts[which])
        links = places((np.cumsum(link_counts) - link_counts)[columns], link_counts[columns])
        left_by, numbers = np.append(self.left_by, fresh.left_by), np.append(self.links, fresh.links)
        made = _Layout(flows, counts[which], link_counts[columns], left_by[columns], numbers[links])
        of_flows = _followed_by(len(self.path_count), flows_by_now)[which]
        return made, of_flows, _followed_by(len(self.link_count), paths_by_now)[columns]

    def by_now(self, flows: MeteredFlows) -> tuple[list[int], list[int]]:
        """The columns in which flows, and their paths, are by now; -1: in none. Over other links it is another path."""
        of_paths = []
        for flow, paths in flows.items():
            first = self.starts.item(self.row_of[flow]) if flow in self.row_of else 0
            known = {(path.id, path.links): at for at, path in enumerate(self.flows.get(flow, ()), start=first)}
            of_paths += [known.get((path.id, path.links), -1) for path in paths]
        return [self.row_of.get(flow, -1) for flow in flows], of_paths


def _followed_by(count: int, more: Sequence[int]) -> IndexArray:
    """0, 1, ..., ``count`` of them, and more."""
    return np.append(np.arange(count), np.array(more, dtype=np.intp))


class PathColumns:
    """What agents count on all paths of a plan (:meth:`follow`), and what links carried of it so far."""

    def __init__(self, links: Iterable[Link]) -> None:
        self._links = _Links(links)
        self._layout = _Layout.of({}, self._links)
        self._sent, self._received, self._delivered, self._lost = (GrowthColumns() for _ in range(4))
        self._delay_ms = np.zeros(0)
        self._carried = np.zeros(len(self._links.ids) + 1)
        """By number of a link: payload bytes that agents counted on it, on paths that are gone, too; exact up to 2^53,
        and no agent can make it overflow."""
        self._is_counted = np.zeros(len(self._carried), dtype=bool)

    def follow(self, flows: MeteredFlows) -> Iterator[None]:
        """These are the flows from now on; all others are forgotten, but not what they carried. In pieces: until the
        last one those of before are followed.
        """
        layout = self._layout
        if flows is layout.flows:
            return
        fresh, parts = iter(differing(layout.flows, flows) & flows.keys()), [_Layout.of({}, self._links)]
        flows_by_now, paths_by_now = list[int](), list[int]()
        while some := {flow: flows[flow] for flow in islice(fresh, _TOGETHER)}:
            parts.append(_Layout.of(some, self._links))
            of_flows, of_paths = layout.by_now(some)
            flows_by_now += of_flows
            paths_by_now += of_paths
            yield
        self._arrange(*layout.then(flows, _Layout.joined(parts), flows_by_now, paths_by_now))

    def _arrange(self, layout: _Layout, of_flows: IndexArray, of_paths: IndexArray) -> None:
        self._layout = layout
        self._delay_ms = np.append(self._delay_ms, np.nan)[of_paths]
        for growth, columns in (
            (self._sent, of_paths),
            (self._received, of_paths),
            (self._delivered, of_flows),
            (self._lost, of_flows),
        ):
            growth.arrange(columns)

    # -- what agents count, of all flows that are followed and in their order

    def sent(self, counts: Counts, now_s: float) -> None:
        """What ingresses sent on all paths: their first links carry it."""
        self._carry(*self._layout.first, counts, self._sent.add(counts, now_s))

    def received(self, counts: Counts, delay_ms: FloatArray, now_s: float) -> None:
        """What egresses received on all paths, and the delays that they estimate: all other links carry it."""
        self._delay_ms = np.where(counts.told, delay_ms, np.nan)
        self._carry(*self._layout.others, counts, self._received.add(counts, now_s))

    def delivered(self, counts: Counts, lost: Counts, now_s: float) -> None:
        """What egresses delivered of all flows, and how many frames they have given up."""
        self._delivered.add(counts, now_s)
        self._lost.add(lost, now_s)

    def _carry(self, links: IndexArray, carriers: IndexArray, counts: Counts, grown: FloatArray) -> None:
        self._carried += np.bincount(links, grown[carriers], minlength=len(self._carried))
        self._is_counted[links[counts.told[carriers]]] = True

    # -- what is known of it

    def sent_bytes(self, counts: Counts) -> dict[Interface, int]:
        """How many bytes ingresses have counted by the interface of theirs that paths leave by, copies not counted."""
        left_by = self._layout.left_by
        of = np.flatnonzero(counts.told & (left_by >= 0))
        total_bytes = np.bincount(left_by[of], counts.payload_bytes[of], minlength=len(self._links.interfaces))
        return {self._links.interfaces[i]: int(total_bytes[i]) for i in np.unique(left_by[of]).tolist()}

    def links_mbps(self, now_s: float) -> dict[str, float | None]:
        """By link that paths lead over, the rate of all of them together; None where no rate is known."""
        first, others = self._layout.first, self._layout.others
        links = np.concatenate([first[0], others[0]])
        mbps = np.concatenate([self._sent.rates_mbps(now_s)[first[1]], self._received.rates_mbps(now_s)[others[1]]])
        is_known, size = ~np.isnan(mbps), len(self._carried)
        total_mbps = np.bincount(links, np.where(is_known, mbps, 0.0), minlength=size)
        known = np.bincount(links, is_known, minlength=size)
        used = np.flatnonzero(np.bincount(links, minlength=size)[:-1])
        return {
            self._links.ids[i]: mbps if count else None
            for i, mbps, count in zip(used.tolist(), total_mbps[used].tolist(), known[used].tolist(), strict=True)
        }

    def path(self, flow: str, path: int, now_s: float) -> tuple[Grown | None, Grown | None, float | None] | None:
        """What was sent and received on a path lately, and the delay; None if it is none of those that are followed."""
        column = self._layout.path(flow, path)
        if column < 0:
            return None
        delay_ms = self._delay_ms.item(column)
        sent, received = self._sent.grown(column, now_s), self._received.grown(column, now_s)
        return sent, received, None if isnan(delay_ms) else delay_ms

    def flow(self, flow: str, now_s: float) -> tuple[Grown | None, Grown | None]:
        """What was delivered of a flow lately, and what was lost, in frames."""
        row = self._layout.row_of.get(flow)
        return (None, None) if row is None else (self._delivered.grown(row, now_s), self._lost.grown(row, now_s))

    def carried(self, link: str) -> int | None:
        """Payload bytes that paths carried over a link since they are counted; None if nobody counted any."""
        number = self._links.number.get(link)
        return None if number is None or not self._is_counted[number] else int(self._carried[number])

    def counted(self) -> list[str]:
        """All links on which agents have counted."""
        return [self._links.ids[i] for i in np.flatnonzero(self._is_counted[:-1]).tolist()]

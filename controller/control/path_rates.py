"""Rates of paths as arrays: those that agents tell of, and from them those of the path groups of flows. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from hyroads.controller.core.addressing import PathName
from hyroads.controller.core.mappings import differing
from hyroads.controller.core.ragged import places
from hyroads.controller.model.handover import PathGroups

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.intp]
_NO_ROWS = np.zeros(0, dtype=np.intp)


@dataclass(frozen=True, eq=False)
class FlowPaths:
    """The paths of flows, those of a flow next to each other: ``names`` are (flow, path), ``links`` the paths by flow,
    and ``starts`` says where those of each flow begin.
    """

    names: tuple[tuple[str, PathName], ...]
    links: Mapping[str, tuple[PathName, ...]]
    starts: IndexArray

    @cached_property
    def flows(self) -> tuple[str, ...]:
        """The flows in their order."""
        return tuple(self.links)

    @cached_property
    def row_of(self) -> Mapping[str, int]:
        """Per flow its position in ``flows``."""
        return {flow: row for row, flow in enumerate(self.flows)}

    @classmethod
    def of(cls, names: Iterable[tuple[str, PathName]]) -> FlowPaths:
        """Paths in any order."""
        found: dict[str, list[PathName]] = {}
        for flow, path in names:
            found.setdefault(flow, []).append(path)
        counts = np.array([len(paths) for paths in found.values()], dtype=np.intp)
        together = tuple([(flow, path) for flow, paths in found.items() for path in paths])
        return cls(together, {flow: tuple(paths) for flow, paths in found.items()}, np.cumsum(counts) - counts)


@dataclass(frozen=True, eq=False)
class PathRates(Mapping[tuple[str, PathName], float]):
    """Rates of paths as an array, in the order of ``paths``; a path whose rate is not known (nan) is not in it."""

    paths: FlowPaths
    mbps: FloatArray

    @cached_property
    def _known(self) -> dict[tuple[str, PathName], float]:
        names = self.paths.names
        return {names[i]: float(self.mbps[i]) for i in np.flatnonzero(~np.isnan(self.mbps)).tolist()}

    def __getitem__(self, name: tuple[str, PathName]) -> float:
        return self._known[name]

    def __iter__(self) -> Iterator[tuple[str, PathName]]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    @classmethod
    def of(cls, rates: Mapping[tuple[str, PathName], float]) -> PathRates:
        """These rates, as an array."""
        if isinstance(rates, PathRates):
            return rates
        paths = FlowPaths.of(rates)
        return cls(paths, np.array([rates[name] for name in paths.names], dtype=float))


@dataclass(frozen=True, eq=False)
class ToldPaths:
    """Where the rates of path groups are among those that are told: ``rows`` of paths, group by group (-1: not told),
    and where each group ``starts``. ``others`` are the flows of which other paths are told than they have, or which
    have groups that are not single paths, in any order.
    """

    told: FlowPaths
    order: Mapping[str, tuple[PathName, ...]]
    path_groups: Mapping[str, PathGroups]
    others: frozenset[str]
    rows: IndexArray
    starts: IndexArray

    @classmethod
    def of(
        cls,
        told: FlowPaths,
        order: Mapping[str, tuple[PathName, ...]],
        path_groups: Mapping[str, PathGroups],
        last: ToldPaths | None,
    ) -> ToldPaths:
        """For paths that are told of, and for paths and groups of flows; of ``last`` what is the same is taken."""
        links, known = told.links, last or cls(FlowPaths.of(()), {}, {}, frozenset(), _NO_ROWS, _NO_ROWS)
        changed = differing(known.told.links, links) | differing(known.order, order)
        changed |= differing(known.path_groups, path_groups)
        other = {f for f in changed & order.keys() if links.get(f) != order[f] or len(path_groups[f]) != len(order[f])}
        others = frozenset((known.others - changed) | other)
        # Whose paths are told as they are needs no look at each of them: their rows are next to each other.
        is_alike = tuple(order) == told.flows
        at = np.array(range(len(order)) if is_alike else [told.row_of.get(flow, -1) for flow in order], dtype=np.intp)
        counts = np.diff(np.append(told.starts, len(told.names)))
        first, count = np.append(told.starts, 0)[at], np.append(counts, 0)[at]
        named = [(place, flow) for place, flow in enumerate(order) if flow in others] if others else []
        found = [_rows_of(flow, told, order[flow], path_groups[flow]) for _, flow in named]
        where = np.array([place for place, _ in named], dtype=np.intp)
        sizes = [[len(group) for group in groups] for groups in found]
        rows = [row for groups in found for group in groups for row in group]
        pool = np.append(np.arange(len(told.names)), np.array(rows, dtype=np.intp))
        of_groups = first.copy(), count.copy()
        size = np.append(np.ones(len(told.names), np.intp), np.array(list(chain.from_iterable(sizes)), dtype=np.intp))
        for (begin, many), own in (((first, count), list(map(sum, sizes))), (of_groups, list(map(len, sizes)))):
            lengths = np.array(own, dtype=np.intp)
            begin[where], many[where] = len(told.names) + np.cumsum(lengths) - lengths, lengths
        size = size[places(*of_groups)]
        return cls(told, order, path_groups, others, pool[places(first, count)], np.cumsum(size) - size)

    def is_for(
        self, told: FlowPaths, order: Mapping[str, tuple[PathName, ...]], path_groups: Mapping[str, PathGroups]
    ) -> bool:
        """Whether it is for these very ones."""
        return self.told is told and self.order is order and self.path_groups is path_groups

    def of_groups(self, mbps: FloatArray) -> FloatArray:
        """By path group the greatest rate of its paths; nan if one of them is not known."""
        return np.maximum.reduceat(np.append(mbps, np.nan)[self.rows], self.starts) if len(self.rows) else np.zeros(0)


def _rows_of(flow: str, told: FlowPaths, paths: Sequence[PathName], groups: PathGroups) -> list[list[int]]:
    """Of a flow's path groups the rows of their paths; -1: not told."""
    known = told.links.get(flow, ())
    first = int(told.starts[told.row_of[flow]]) if known else 0
    return [[first + known.index(paths[i]) if paths[i] in known else -1 for i in group] for group in groups]

"""Flow numbers and path ids: hashes of what they name, so that a restarted controller finds the same ones. Pure.

What is already numbered keeps its number; a new name whose hash is taken tries the next hash. The numbers given are
part of the saved state, because after collisions they depend on who came first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from hyroads.controller.core.errors import PlanningError

FIRST_FLOW, LAST_FLOW = 16, 65535
FIRST_PATH, LAST_PATH = 1, 255

PathName = tuple[str, ...]
"""A path as link ids."""


@dataclass(frozen=True)
class Numbers:
    """Flow id -> number, and per flow: path -> id."""

    flows: Mapping[str, int] = field(default_factory=dict)
    paths: Mapping[str, Mapping[PathName, int]] = field(default_factory=dict)

    def with_flows(self, flows: Iterable[str]) -> Numbers:
        """Numbers for exactly these flows; those numbered before keep theirs."""
        wanted = list(flows)
        if wanted == list(self.flows) and self.paths.keys() <= self.flows.keys():
            return self
        kept = {flow: self.flows[flow] for flow in wanted if flow in self.flows}
        for flow in wanted:
            if flow not in kept:
                kept[flow] = _free((flow,), FIRST_FLOW, LAST_FLOW, set(kept.values()))
        return Numbers(kept, {flow: paths for flow, paths in self.paths.items() if flow in kept})

    def with_paths(self, flow: str, paths: Iterable[PathName]) -> Numbers:
        """Ids for the live paths of a flow. Ids of earlier paths stay reserved while there is room."""
        live = list(paths)
        ids = dict(self.paths.get(flow, {}))
        if all(path in ids for path in live):
            return self
        for path in live:
            if path not in ids:
                if len(ids) > LAST_PATH // 2:
                    ids = {name: number for name, number in ids.items() if name in live}
                ids[path] = _free(path, FIRST_PATH, LAST_PATH, set(ids.values()))
        return Numbers(self.flows, {**self.paths, flow: ids})


def _free(name: PathName, first: int, last: int, taken: Collection[int]) -> int:
    """The first number on the name's sequence of hashes that nobody has."""
    span = last - first + 1
    if len(taken) >= span:
        raise PlanningError(f"no number from {first} to {last} is left")
    text = "".join(f"{len(part)}:{part}" for part in name)
    digest = hashlib.blake2b(text.encode(), digest_size=8, person=b"hyroads-number").digest()
    start = int.from_bytes(digest, "big")
    return next(number for step in range(span) if (number := first + (start + step) % span) not in taken)

"""How much CPU time the placement of four radios with twenty neighbours each takes: python benchmarks/placement.py.

Between the peer and the twenty access points there is a mesh on three of the client's own technologies, a power line,
a wire each, or wires behind thin uplinks; *equal* ones have the same capacities everywhere, so that thousands of
placements are equally good. Every placement is exact.
"""

from __future__ import annotations

import os

# Before numpy is imported: the figures are for one core.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import math
import random
import statistics
import time
from collections.abc import Callable
from itertools import combinations
from typing import Any

from hyroads.controller.core.netfile import parse
from hyroads.controller.core.network import ClientMode, Network
from hyroads.controller.core.placement import place_radios

RUNS, NEIGHBOURS = 5, 20
RADIOS = ("wifi2", "wifi5", "wifi6", "lte")
SIDE_M, MESH_M, RANGE_M = 100.0, 45.0, 40.0
TARGET_MS = 100.0


class Draft:
    """A network file in the making: a peer ``s``, access points in a square, and a client that has links from all."""

    def __init__(self, rng: random.Random, groups: int = 0) -> None:
        aps = [f"a{i}" for i in range(NEIGHBOURS)]
        roles = {
            "s": "gateway",
            **{f"g{i}": "switch" for i in range(groups)},
            **dict.fromkeys(aps, "ap"),
            "c": "client",
        }
        places = {node: (rng.uniform(0, SIDE_M), rng.uniform(0, SIDE_M)) for node in roles}
        places["s"] = places["c"] = (SIDE_M / 2, SIDE_M / 2)
        self.nodes = {node: {"role": role, "agent": True, "position": places[node]} for node, role in roles.items()}
        self.aps, self.links = aps, list[dict[str, Any]]()

    def add(self, start: str, end: str, technology: str, mbps: float) -> None:
        link = {"id": f"l{len(self.links)}", "from": start, "to": end, "technology": technology}
        self.links.append({**link, "capacity_mbps": mbps, "both": True})

    def network(self, rule: str, mbps: Callable[[], float]) -> Network:
        for radio in RADIOS:
            for ap in self.aps:
                self.add(ap, "c", radio, mbps())
        shared = {link["technology"] for link in self.links} - {"ethernet"}
        ranges = {"ranges_m": dict.fromkeys(shared, RANGE_M)} if rule == "range" else {}
        return parse({"nodes": self.nodes, "links": self.links, "interference": {"rule": rule, **ranges}}, "placement")


def mesh(rng: random.Random, rule: str) -> Network:
    draft = Draft(rng)
    for radio in RADIOS[:3]:
        for start, end in combinations(["s", *draft.aps], 2):
            if math.dist(draft.nodes[start]["position"], draft.nodes[end]["position"]) < MESH_M:
                draft.add(start, end, radio, rng.uniform(5, 100))
    return draft.network(rule, lambda: rng.uniform(5, 100))


def star(rng: random.Random, technology: str) -> Network:
    draft = Draft(rng)
    for ap in draft.aps:
        draft.add("s", ap, technology, rng.uniform(20, 100))
    return draft.network("technology", lambda: rng.uniform(5, 100))


def tree(rng: random.Random, groups: int, *, equal: bool) -> Network:
    draft = Draft(rng, groups)
    for group in range(groups):
        draft.add("s", f"g{group}", "ethernet", 30 if equal else rng.uniform(20, 120))
    for number, ap in enumerate(draft.aps):
        draft.add(f"g{number % groups}", ap, "ethernet", 50 if equal else rng.uniform(20, 120))
    return draft.network("technology", lambda: 40 if equal else rng.uniform(10, 100))


CASES: dict[str, Callable[[random.Random], Network]] = {
    "mesh, one domain a technology": lambda rng: mesh(rng, "technology"),
    "mesh, domains by range": lambda rng: mesh(rng, "range"),
    "power line": lambda rng: star(rng, "plc"),
    "a wire each": lambda rng: star(rng, "ethernet"),
    "wires behind 4 uplinks": lambda rng: tree(rng, 4, equal=False),
    "wires behind 7 uplinks": lambda rng: tree(rng, 7, equal=False),
    "wires behind 7 uplinks, equal": lambda rng: tree(rng, 7, equal=True),
    "wires behind 20 uplinks, equal": lambda rng: tree(rng, 20, equal=True),
}


def main() -> None:
    place_radios(star(random.Random(0), "plc"), "c", "s", ClientMode.FULL_SPEED)
    print(
        f"{len(RADIOS)} radios, {NEIGHBOURS} neighbours; CPU time, median (worst) of {RUNS} networks; {TARGET_MS:g} ms"
    )
    worst_ms = 0.0
    for name, make in CASES.items():
        for mode in (ClientMode.FULL_SPEED, ClientMode.HIGH_ROBUSTNESS):
            times_ms = []
            for seed in range(RUNS):
                network = make(random.Random(seed))
                began_s = time.process_time()
                place_radios(network, "c", "s", mode)
                times_ms.append(1e3 * (time.process_time() - began_s))
            worst_ms = max(worst_ms, *times_ms)
            print(f"{name:<32} {mode.value:<16} {statistics.median(times_ms):6.0f} ms ({max(times_ms):.0f})")
    print(f"worst {worst_ms:.0f} ms")


if __name__ == "__main__":
    main()

"""How much CPU time one slot's rates take: python benchmarks/rates.py.

Small: 100 flows, 300 paths, about 500 links; large: 1 000 flows, 3 000 paths, about 5 000 links. A slot runs from new
measurements (capacities, external airtime) to certified rates; what depends on topology and paths only is laid out
once and timed apart. Cold starts know nothing, warm ones the last slot's rates, with every capacity changed by up to
5 % (or nothing changed).
"""

from __future__ import annotations

import os
from pathlib import Path

# Before numpy is imported: the figures are for one core.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from hyroads.controller.core.interference import TechnologyInterference
from hyroads.controller.core.network import Network, Role
from hyroads.controller.core.rates import Layout, RateProblem, Utilities, solve
from hyroads.controller.core.rates.reduction import Pattern

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
from rate_cases import alpha_fair, relative_gap

from hyroads.controller.study import networks as study_networks

RUNS = 5
MARGIN = 0.05


@dataclass(frozen=True)
class Case:
    name: str
    network: Network
    flows: int
    target_ms: float
    alpha: float | None = None


def spread_out(rng: random.Random, nodes: int, width_m: float, height_m: float) -> Network:
    """Hybrid nodes over a large area: many domains bind at once."""
    media = (study_networks.WIFI, study_networks.PLC)
    places = [(rng.uniform(0, width_m), rng.uniform(0, height_m)) for _ in range(nodes)]
    placed = [study_networks.Placed.at(f"n{i}", Role.AP, place, media) for i, place in enumerate(places)]
    return study_networks.connect(placed, rng, "spread")


def by_technology(network: Network) -> Network:
    return replace(network, interference=TechnologyInterference(network.links))


def unshared(network: Network) -> Network:
    """Every link a domain of its own, as full-duplex Ethernet."""
    return replace(network, interference=TechnologyInterference(network.links, frozenset(network.technologies)))


def cases() -> Iterator[Case]:
    office, campus = study_networks.office22(random.Random(1)), study_networks.campus100(random.Random(1))
    wide_office = spread_out(random.Random(2), 60, 260.0, 160.0)
    wide = spread_out(random.Random(1), 300, 620.0, 380.0)
    for flows, target_ms, networks in ((100, 10.0, (office, wide_office)), (1000, 100.0, (campus, wide))):
        for network in networks:
            yield Case(f"{network.name} {len(network.nodes)}", network, flows, target_ms)
        yield Case("by technology", by_technology(networks[0]), flows, target_ms)
        yield Case("unshared links", unshared(networks[1]), flows, target_ms)
        yield Case("throughput (alpha 0)", networks[1], flows, target_ms, 0.0)
        yield Case("proportional (alpha 1)", networks[1], flows, target_ms, 1.0)
        yield Case("min delay (alpha 2)", networks[1], flows, target_ms, 2.0)


Path = tuple[int, ...]


def three_paths(network: Network, pairs: list[tuple[int, int]], rng: np.random.Generator) -> list[list[Path]]:
    """Three distinct paths per pair of nodes, shortest under randomly disturbed link costs."""
    number = {node: i for i, node in enumerate(network.nodes)}
    ends = np.array([(number[link.source], number[link.target]) for link in network.links])
    cost = np.array([1 / link.capacity_mbps for link in network.links])
    found: list[dict[Path, None]] = [{} for _ in pairs]
    for _ in range(40):
        disturbed = cost * rng.lognormal(0.0, 0.7, len(cost))
        order = np.argsort(-disturbed)
        best = dict(zip(map(tuple, ends[order].tolist()), order.tolist(), strict=True))
        rows, columns = zip(*best, strict=True)
        shape = (len(number), len(number))
        graph = sparse.csr_matrix((disturbed[list(best.values())], (rows, columns)), shape=shape)
        before = csgraph.dijkstra(graph, return_predecessors=True)[1]
        for paths, (source, target) in zip(found, pairs, strict=True):
            if len(paths) < 3 and before[source, target] >= 0:
                paths[walk(before, best, source, target)] = None
    return [list(paths) for paths in found]


def walk(before: np.ndarray, best: dict[tuple[int, int], int], source: int, target: int) -> Path:
    path = []
    while target != source:
        path.append(best[int(before[source, target]), target])
        target = int(before[source, target])
    return tuple(reversed(path))


def problem_of(case: Case) -> RateProblem:
    rng = random.Random(1)
    pairs = [tuple(rng.sample(range(len(case.network.nodes)), 2)) for _ in range(case.flows)]
    paths = three_paths(case.network, pairs, np.random.default_rng(1))
    flows = {f"f{i}": options for i, options in enumerate(paths)}
    weights = np.ones(case.flows)
    utilities = Utilities.log(weights) if case.alpha is None else alpha_fair(weights, case.alpha)
    links = len(case.network.links)
    return RateProblem(
        Layout.build(case.network.interference, flows),
        utilities,
        np.array([link.capacity_mbps for link in case.network.links]),
        np.full(links, MARGIN),
        np.zeros(links),
        np.full(case.flows, np.inf),
    )


def measured_ms(work: Callable[[int], object]) -> float:
    times_ms = []
    for run in range(RUNS):
        begun_s = time.process_time()
        work(run)
        times_ms.append(1000 * (time.process_time() - begun_s))
    return statistics.median(times_ms)


def row(case: Case) -> str:
    problem = problem_of(case)
    layout = problem.layout
    rng = np.random.default_rng(7)
    factors = [rng.uniform(0.95, 1.05, layout.link_count) for _ in range(RUNS)]
    slots = [problem.changed(capacity_mbps=problem.capacity_mbps * factor) for factor in factors]
    first = solve(problem)
    slices = zip(layout.flow_ids, layout.path_slices(), strict=True)
    per_flow = {flow: layout.paths[where] for flow, where in slices}
    layout_ms = measured_ms(lambda _: Pattern.of(Layout.build(case.network.interference, per_flow)))
    cold_ms = measured_ms(lambda run: solve(slots[run]))
    warm_ms = measured_ms(lambda run: solve(slots[run], first))
    same_ms = measured_ms(lambda _: solve(problem, first))
    cold, warm = solve(slots[0]), solve(slots[0], first)
    shape = f"{layout.flow_count:>5} {layout.path_count:>5} {layout.link_count:>5} {cold.rows:>5}"
    times = f"{layout_ms:>8.1f} {cold_ms:>8.1f} {warm_ms:>8.1f} {same_ms:>8.1f} {case.target_ms:>8.0f}"
    gap = max(relative_gap(cold), relative_gap(warm))
    return f"{case.name:<24} {shape} {times} {cold.steps:>5}/{warm.steps:<3} {gap:>9.1e}"


def main() -> None:
    print(f"CPU time, median of {RUNS}; layout, cold, warm (5 % changed), same: ms")
    print(
        f"{'case':<24} {'flows':>5} {'paths':>5} {'links':>5} {'rows':>5} {'layout':>8} {'cold':>8} {'warm':>8} "
        f"{'same':>8} {'target<=':>8} {'steps':>9} {'gap':>9}"
    )
    for case in cases():
        print(row(case), flush=True)


if __name__ == "__main__":
    main()

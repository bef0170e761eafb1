"""Study ``paths``: how many paths the best multipath of one flow needs in networks of PLC and two WiFi channels."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hyroads.controller.core.network import Network

from .agreement import Known, share_checks
from .framework import AnyPlot, Bars, Cdf, Cell, Progress, Result, Settings, Table, run_by_kind
from .intervals import interval_of
from .networks import PATHS_STUDY, PATHS_STUDY_MEDIA, endpoints, paths_study
from .path_pool import NEARLY, PathProgram, best_of_at_most, error_of_cap, fewest_paths, optimum, pool_of
from .verdicts import Check

TITLE = "The optimal number of paths"
FIGURES = "thesis, Figures 2.12 to 2.14"
TIMES_S = (26.0, 208.0)

RUNS = {1: 1000, 2: 1000, 3: 1500, 4: 1000}
QUICK_RUNS = 80
K = PATHS_STUDY_MEDIA
MOST_SHOWN = 6
TOLERANCE = 0.03

# Shares of flows; of those with a route, but the last. The reference is our own reproduction outside the project.
THREE_PUBLISHED = {1: 0.994}
AT_MOST_K_PUBLISHED = {2: 0.85, 3: 0.92, 4: 0.79}
ERROR_PUBLISHED = {0.1: {2: 0.992, 3: 0.996, 4: 0.978}, 0.05: {2: 0.965, 3: 0.985, 4: 0.936}}
NO_ROUTE_PUBLISHED, NO_ROUTE_REFERENCE = {2: 0.05, 3: 0.39, 4: 0.17}, {2: 0.06, 3: 0.43, 4: 0.16}

Values = NDArray[np.float64]
Task = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Found:
    """One flow: M_opt, 0 without a route; e_K of the K largest of these paths, and of the best K of the pool."""

    count: int
    error: float = 0.0
    least_error: float = 0.0


def run(settings: Settings, progress: Progress) -> Result:
    """Carry out the study."""
    runs = {number: settings.runs or (QUICK_RUNS if settings.quick else full) for number, full in RUNS.items()}
    tasks = {number: [(settings.seed, number, index) for index in range(count)] for number, count in runs.items()}
    found = run_by_kind(needed, tasks, settings, progress)
    sizes = ", ".join(f"{w:g} x {h:g} m with {n} nodes" for w, h, n in PATHS_STUDY)
    return Result(
        TITLE,
        f"Networks 1 to 4: {sizes}, with {', '.join(map(str, runs.values()))} flows, each in a network of its own "
        "between two nodes that are drawn. Power line and two WiFi channels; network 1 is connected in each of them, "
        "in the others the halves left and right have power lines of their own. Maximum rates uniform in 20..180 Mb/s, "
        f"ranges 35 m (WiFi) and 50 m (power line). M_opt is the least number of paths that carry {NEARLY:g} of the "
        f"optimum over all paths; e_K is what is lost of it with the K = {K} largest of them. Seed {settings.seed}.",
        [_table(found)],
        plots(found),
        checks(found),
        [
            "The optimum is exact: weak duality bounds it over all paths. M_opt is exact over the paths that column "
            "generation found and those that cost up to 5 % more than the optimal ones; a path that is not among them "
            "can only make it smaller.",
            "The published shares of flows with a small e_K fit ours over all flows with a route, those that need no "
            "more than K paths counted with e_K = 0. Over the flows that need more they would be far from ours.",
            f"The best {K} paths lose less than the {K} largest of the optimal ones (column *best, e < 0.1*).",
            "Ranges of 20 to 40 m, as the text of the thesis has them, would leave 25, 76 and 56 % of the flows of "
            "networks 2 to 4 without a route.",
        ],
    )


def needed(task: Task) -> Found:
    """Number of paths and cost of a cap for one random flow: of a seed, network 1 to 4, and run."""
    seed, number, index = task
    rng = random.Random(f"paths/{seed}/{number}/{index}")  # noqa: S311
    network = paths_study(rng, number)
    while number == 1 and not is_connected(network):
        network = paths_study(rng, number)
    program = PathProgram.of(network, *endpoints(network, rng))
    best = optimum(program)
    if best is None:
        return Found(0)
    _, columns = pool_of(program, best)
    fewest = fewest_paths(columns, best.total_mbps)
    if fewest.count <= K:
        return Found(fewest.count)
    capped = best_of_at_most(columns, best.total_mbps, K).total_mbps
    error = error_of_cap(columns, fewest, K, best.total_mbps)
    return Found(fewest.count, error, max(0.0, 1.0 - capped / best.total_mbps))


def is_connected(network: Network) -> bool:
    """Whether every technology alone connects all nodes, in both directions."""
    for technology in network.technologies:
        links = [link for link in network.links if link.technology == technology and link.capacity_mbps > 0]
        onward = [(link.source, link.target) for link in links]
        back = [(target, source) for source, target in onward]
        if not (_reaches_all(network, onward) and _reaches_all(network, back)):
            return False
    return bool(network.technologies)


def _reaches_all(network: Network, pairs: Sequence[tuple[str, str]]) -> bool:
    """Whether all nodes can be reached from the first over these pairs of nodes."""
    neighbours: dict[str, list[str]] = {node: [] for node in network.nodes}
    for source, target in pairs:
        neighbours[source].append(target)
    waiting = [next(iter(network.nodes))]
    reached = set(waiting)
    while waiting:
        fresh = set(neighbours[waiting.pop()]) - reached
        reached |= fresh
        waiting += fresh
    return len(reached) == len(network.nodes)


def _routed(found: Sequence[Found]) -> list[Found]:
    return [each for each in found if each.count > 0]


def _table(found: dict[int, list[Found]]) -> Table:
    heads = ("network", "flows", "no route", *(f"M = {m}" for m in range(1, MOST_SHOWN)), f"M >= {MOST_SHOWN}")
    rows: list[tuple[Cell, ...]] = []
    for number, flows in found.items():
        routed = _routed(flows)
        counts = np.array([min(each.count, MOST_SHOWN) for each in routed], dtype=int)
        shares = [float((counts == m).mean()) if len(counts) else None for m in range(1, MOST_SHOWN + 1)]
        small = [_share([getattr(e, name) < most for e in routed]) for name, most in _ERRORS]
        rows.append((number, len(flows), 1.0 - len(routed) / len(flows), *shares, *small))
    errors = ("e < 0.1", "e < 0.05", "best, e < 0.1")
    return Table("paths", "Shares of flows; of those with a route, but the first", (*heads, *errors), tuple(rows))


_ERRORS = (("error", 0.1), ("error", 0.05), ("least_error", 0.1))


def _share(hits: Sequence[bool]) -> float | None:
    return float(np.mean(hits)) if hits else None


def plots(found: dict[int, list[Found]]) -> list[AnyPlot]:
    """Figures 2.12 and 2.13 (shares of each M_opt) and 2.14 (e_K where M_opt > K)."""
    groups = (*(str(m) for m in range(1, MOST_SHOWN)), f"{MOST_SHOWN}+")
    bars, intervals = {}, {}
    for number, flows in found.items():
        counts = np.array([min(each.count, MOST_SHOWN) for each in _routed(flows)], dtype=np.float64)
        if len(counts):
            label = f"network {number}"
            bars[label] = np.array([float((counts == m).mean()) for m in range(1, MOST_SHOWN + 1)])
            ends = [interval_of((counts == m).astype(np.float64), seed=m) for m in range(1, MOST_SHOWN + 1)]
            intervals[label] = np.array(ends).T
    errors = {f"network {number}": np.array([e.error for e in flows if e.count > K]) for number, flows in found.items()}
    errors = {label: values for label, values in errors.items() if len(values)}
    title = "Share of flows that need so many paths (Figures 2.12 and 2.13)"
    cut = f"Loss by a cap of {K} paths, of flows that need more (Figure 2.14)"
    return [
        Bars("count", title, "M_opt", "share of flows", groups, bars, intervals),
        Cdf("error", cut, "e_K", errors, marks=((0.05, "0.05"), (0.1, "0.1"))),
    ]


NETWORKS_UNKNOWN = "the published networks are known by their sizes and rates only; the capacities' noise is ours"


def checks(found: dict[int, list[Found]]) -> list[Check]:
    """The shares against the published ones, and against the reference where there is one."""
    result: list[Check] = []
    for number, flows in found.items():
        routed = _routed(flows)
        errors = [
            (f"e_K < {most:g}", [each.error < most for each in routed], shares, shares)
            for most, shares in ERROR_PUBLISHED.items()
        ]
        for what, hits, wanted, published in (
            (f"M_opt = {K}", [each.count == K for each in routed], THREE_PUBLISHED, THREE_PUBLISHED),
            (f"M_opt <= {K}", [each.count <= K for each in routed], AT_MOST_K_PUBLISHED, AT_MOST_K_PUBLISHED),
            *errors,
            ("no route", [each.count == 0 for each in flows], NO_ROUTE_REFERENCE, NO_ROUTE_PUBLISHED),
        ):
            if number in wanted and hits:
                said, reference = published[number], wanted[number]
                words = f"{100 * said:.3g} %"
                known = Known((said, said), (reference, reference), words, NETWORKS_UNKNOWN)
                result += share_checks(f"network {number}: {what}", known, np.array(hits, dtype=np.bool_))
    return result

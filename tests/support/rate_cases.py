"""Rate problems for tests: small networks, random paths, and the constraint written down from its definition."""

from __future__ import annotations

import random
from collections.abc import Iterable

import numpy as np

from hyroads.controller.core.errors import PlanningError
from hyroads.controller.core.netfile import parse
from hyroads.controller.core.network import FlowSpec, Network
from hyroads.controller.core.planner import Planner
from hyroads.controller.core.rates import Allocation, Layout, RateProblem, Utilities, rate_problem
from hyroads.controller.study import networks as study_networks


def network_of(links: dict[str, tuple[str, str, str, float]], interference: object = None) -> Network:
    nodes = {n: {"role": "switch"} for n in sorted({end for link in links.values() for end in link[:2]})}
    declared = [{"id": i, "from": a, "to": b, "technology": k, "capacity_mbps": c} for i, (a, b, k, c) in links.items()]
    document = {"nodes": nodes, "links": declared, "interference": interference or {"rule": "technology"}}
    return parse(document, "test")


def problem_of(
    network: Network,
    flows: dict[str, list[tuple[int, ...]]],
    utilities: Utilities | None = None,
    margin: float = 0.0,
    external: np.ndarray | None = None,
    demand: np.ndarray | None = None,
) -> RateProblem:
    links = len(network.links)
    return RateProblem(
        Layout.build(network.interference, flows),
        utilities or Utilities.log([1.0] * len(flows)),
        np.array([link.capacity_mbps for link in network.links]),
        np.full(links, margin),
        np.zeros(links) if external is None else external,
        np.full(len(flows), np.inf) if demand is None else demand,
    )


def constraint(network: Network, problem: RateProblem) -> np.ndarray:
    """A = B diag(d) R, written down from its definition, link by link."""
    paths = problem.layout.paths
    matrix = np.zeros((len(network.links), len(paths)))
    for link in range(len(network.links)):
        domain = set(network.interference.domain(link).tolist())
        for column, path in enumerate(paths):
            matrix[link, column] = sum(1 / problem.capacity_mbps[m] for m in path if m in domain)
    return matrix


def random_paths(network: Network, rng: random.Random, count: int) -> list[tuple[int, ...]]:
    """Distinct loop-free random walks between two random nodes, of at most four links."""
    source, target = study_networks.endpoints(network, rng)
    leaving: dict[str, list[int]] = {}
    for index, link in enumerate(network.links):
        leaving.setdefault(link.source, []).append(index)
    found: dict[tuple[int, ...], None] = {}
    for _ in range(60 * count):
        at, seen, path = source, {source}, []
        while at != target and len(path) < 4:
            options = [i for i in leaving.get(at, []) if network.links[i].target not in seen]
            if not options:
                break
            path.append(rng.choice(options))
            at = network.links[path[-1]].target
            seen.add(at)
        if at == target:
            found[tuple(path)] = None
        if len(found) == count:
            break
    return list(found)


def alpha_fair(weights: Iterable[float], alpha: float) -> Utilities:
    """w x^(1 - alpha) / (1 - alpha), or w log x for alpha = 1, for every flow."""
    weight = np.array(list(weights), dtype=float)
    return Utilities(weight, np.full_like(weight, alpha), np.zeros_like(weight))


def relative_gap(found: Allocation) -> float:
    """``gap_utility`` relative to the utility's magnitude; 0 if there is no gap."""
    return found.gap_utility / abs(found.utility) if found.gap_utility > 0 else 0.0


def random_case(
    seed: int, flow_count: int, alpha: float | None = None, limits: bool = True, most_paths: int = 4
) -> tuple[Network, RateProblem]:
    rng = random.Random(seed)
    network = rng.choice([study_networks.residential, study_networks.enterprise, study_networks.office22])(rng)
    flows = {f"f{i}": random_paths(network, rng, rng.randint(1, most_paths)) for i in range(flow_count)}
    flows = {flow: paths for flow, paths in flows.items() if paths}
    weights = [rng.choice([1.0, 2.0, 0.3]) for _ in flows]
    utilities = Utilities.log(weights) if alpha is None else alpha_fair(weights, alpha)
    links = len(network.links)
    external = np.array([rng.choice([0.0, 0.0, 0.3]) for _ in range(links)]) if limits else None
    demand = np.array([rng.choice([np.inf, np.inf, 2.0]) for _ in flows]) if limits else None
    return network, problem_of(network, flows, utilities, 0.05, external, demand)


def slots_to_converge(totals_mbps: np.ndarray, final_mbps: float, within: float = 0.01) -> tuple[int, int]:
    """Slots until the total is first within a share of the final one, and until it stays there (1 = first slot).

    ``totals_mbps[i]`` is the total rate after slot i + 1; a value beyond their number means never.
    """
    outside = np.abs(totals_mbps - final_mbps) > within * abs(final_mbps)
    inside = np.flatnonzero(~outside)
    first = int(inside[0]) + 1 if len(inside) else len(totals_mbps) + 1
    left = np.flatnonzero(outside)
    return first, int(left[-1]) + 2 if len(left) else 1


def drawn_network(rng: random.Random) -> Network:
    return rng.choice([study_networks.residential, study_networks.enterprise])(rng)


def study_case(seed: int) -> RateProblem:
    """One to four flows with planned multipaths of up to two paths on a random small network."""
    rng = random.Random(seed)
    network = drawn_network(rng)
    planner = Planner(network, clients_relay=True)
    paths = {}
    while len(paths) < 1 + seed % 4:
        source, target = study_networks.endpoints(network, rng)
        try:
            paths[f"f{len(paths)}"] = planner.plan(source, target).multipath.links[:2]
        except PlanningError:
            continue
    specs = [FlowSpec(flow, "", "") for flow in paths]
    return rate_problem(network, paths, flows=specs, margin=0.05)

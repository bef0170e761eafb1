"""Fewest paths of a flow: cases made by hand, and enumeration of all simple paths of small networks as the oracle."""

from __future__ import annotations

import itertools
import random

import networkx as nx
import numpy as np
import pytest

from hyroads.controller.core.errors import PlanningError
from hyroads.controller.core.interference import RangeInterference, TechnologyInterference
from hyroads.controller.core.network import Link, Network, Node, Role
from hyroads.controller.core.optimum import airtime_rows, multipath_optimum_mbps
from hyroads.controller.study.networks import paths_study
from hyroads.controller.study.path_pool import (
    NEARLY,
    PathProgram,
    best_of_at_most,
    best_rates,
    error_of_cap,
    fewest_paths,
    maximal_domains,
    optimum,
    pool_of,
)
from hyroads.controller.study.paths import is_connected


def network_of(*links: tuple[str, str, str, float]) -> Network:
    """Links (source, target, technology, Mb/s) of which all of a technology contend."""
    nodes = {name: Node(name, Role.AP) for link in links for name in link[:2]}
    made = tuple(Link(f"{u}-{v}-{k}-{i}", u, v, k, c) for i, (u, v, k, c) in enumerate(links))
    return Network(nodes, made, TechnologyInterference(made))


def random_office(seed: int, count: int = 5) -> Network:
    """A small network of two technologies whose ranges leave some nodes out of reach of each other."""
    rng = random.Random(seed)
    nodes = {f"n{i}": Node(f"n{i}", Role.AP, (rng.uniform(0.0, 100.0), rng.uniform(0.0, 50.0))) for i in range(count)}
    ranges_m, links = {"wifi": 30.0, "plc": 45.0}, []
    for technology, range_m in ranges_m.items():
        for u, v in itertools.permutations(nodes, 2):
            (a, b), (c, d) = nodes[u].position_m, nodes[v].position_m
            if np.hypot(a - c, b - d) <= range_m:
                links.append(Link(f"{u}-{v}-{technology}", u, v, technology, rng.uniform(5.0, 100.0)))
    return Network(nodes, tuple(links), RangeInterference(nodes, links, ranges_m))


def all_paths(network: Network, source: str, target: str) -> list[tuple[int, ...]]:
    """Every loop-free path."""
    graph = nx.MultiDiGraph()
    graph.add_nodes_from(network.nodes)
    for index, link in enumerate(network.links):
        graph.add_edge(link.source, link.target, key=index)
    return [tuple(key for _, _, key in path) for path in nx.all_simple_edge_paths(graph, source, target)]


def test_the_worked_example_needs_both_of_its_paths() -> None:
    # Power line then WiFi carries 10, WiFi twice 20 / 3 beside it: 16.67 in all (EMPoWER, CoNEXT 2016).
    network = network_of(("a", "b", "plc", 10), ("a", "b", "wifi", 15), ("b", "c", "wifi", 30))
    program = PathProgram.of(network, "a", "c")
    found = optimum(program)
    assert found.total_mbps == pytest.approx(50 / 3) and found.bound_mbps == pytest.approx(50 / 3)
    fewest = fewest_paths(found.columns, found.total_mbps)
    assert fewest.count == 2 and fewest.rates_mbps == pytest.approx([10, 20 / 3])
    # With one path, the largest, 10 of 16.67 are left.
    assert error_of_cap(found.columns, fewest, 1, found.total_mbps) == pytest.approx(0.4)
    assert best_of_at_most(found.columns, found.total_mbps, 1).total_mbps == pytest.approx(10)


def test_media_that_are_not_shared_need_a_path_each() -> None:
    links = [("s", "t", f"medium-{k}", 10.0 * (k + 1)) for k in range(4)]
    found = optimum(PathProgram.of(network_of(*links), "s", "t"))
    fewest = fewest_paths(found.columns, found.total_mbps)
    assert found.total_mbps == pytest.approx(100) and fewest.count == 4
    assert error_of_cap(found.columns, fewest, 3, found.total_mbps) == pytest.approx(0.1)


def test_one_medium_needs_one_path_however_many_there_are() -> None:
    links = [("s", "t", "wifi", 50), ("s", "r", "wifi", 90), ("r", "t", "wifi", 90), ("s", "t", "wifi", 50)]
    program = PathProgram.of(network_of(*links), "s", "t")
    found = optimum(program)
    _, columns = pool_of(program, found)
    assert found.total_mbps == pytest.approx(50)
    assert fewest_paths(columns, found.total_mbps).count == 1


def test_a_path_of_a_thousandth_is_not_counted() -> None:
    found = optimum(PathProgram.of(network_of(("s", "t", "wifi", 100), ("s", "t", "plc", 0.09)), "s", "t"))
    assert found.total_mbps == pytest.approx(100.09)
    assert fewest_paths(found.columns, found.total_mbps).count == 1
    assert fewest_paths(found.columns, found.total_mbps, 0.99999).count == 2


def test_no_route_is_none_and_dead_links_do_not_exist() -> None:
    network = network_of(("s", "r", "wifi", 10), ("r", "t", "wifi", 0))
    assert optimum(PathProgram.of(network, "s", "t")) is None
    with pytest.raises(PlanningError, match="twice"):
        PathProgram.of(network, "s", "s")
    with pytest.raises(PlanningError, match="'x'"):
        PathProgram.of(network, "s", "x")


@pytest.mark.parametrize("seed", range(10))
def test_the_optimum_is_that_over_all_simple_paths(seed: int) -> None:
    network = random_office(seed)
    paths = all_paths(network, "n0", "n1")
    found = optimum(PathProgram.of(network, "n0", "n1"))
    if not paths:
        assert found is None
        return
    assert found.total_mbps == pytest.approx(multipath_optimum_mbps(network, paths), rel=1e-6)
    assert found.bound_mbps == pytest.approx(found.total_mbps, rel=1e-6)


@pytest.mark.parametrize("seed", range(10))
def test_the_fewest_of_the_pool_are_the_fewest_of_all_paths(seed: int) -> None:
    network = random_office(seed, 4)
    program = PathProgram.of(network, "n0", "n1")
    found = optimum(program)
    if found is None:
        return
    _, columns = pool_of(program, found)
    fewest = fewest_paths(columns, found.total_mbps)
    assert fewest.total_mbps >= NEARLY * found.total_mbps * (1 - 1e-6)
    # The oracle: every multipath of fewer paths carries less. None of its paths is dominated by another.
    rows = airtime_rows(network, all_paths(network, "n0", "n1"))
    useful = [j for j in range(rows.shape[1]) if not _is_dominated(rows, j)]
    fewer = itertools.combinations(useful, fewest.count - 1) if fewest.count > 1 else []
    best = max((best_rates(rows[:, list(chosen)])[0] for chosen in itertools.islice(fewer, 150)), default=0.0)
    assert best < NEARLY * found.total_mbps


def _is_dominated(rows: np.ndarray, path: int) -> bool:
    """Whether another path loads no link more (of equal ones all but the first are)."""
    others = (rows <= rows[:, [path]] + 1e-12).all(axis=0)
    equal = np.isclose(rows, rows[:, [path]]).all(axis=0)
    return bool((others & ~equal).any() or equal[:path].any())


def test_domains_within_others_say_nothing() -> None:
    network = random_office(3, 8)
    every = network.interference.contention_matrix().toarray()
    kept = maximal_domains(network.interference)
    assert 0 < len(kept) < len(np.unique(every, axis=0))
    for row in every:
        assert (kept >= row).all(axis=1).any()
    for i, j in itertools.permutations(range(len(kept)), 2):
        assert not (kept[i] >= kept[j]).all()


def test_paths_come_in_the_order_of_their_price_and_are_all_there() -> None:
    network = random_office(0, 4)
    program = PathProgram.of(network, "n0", "n1")
    prices = np.random.default_rng(1).random(len(program.domains))
    weights = program.weights(prices)
    every = sorted(float(weights[list(path)].sum()) for path in all_paths(network, "n0", "n1"))
    found = program.paths_by_price(prices, every[4] * (1 + 1e-6), 100)
    assert [float(weights[list(path)].sum()) for path in found] == pytest.approx(every[:5])
    assert program.cheapest(prices)[0] == pytest.approx(every[0])


def test_connected_means_in_every_technology() -> None:
    both = [("a", "b", "wifi", 1), ("b", "a", "wifi", 1), ("a", "b", "plc", 1)]
    assert not is_connected(network_of(*both))
    assert is_connected(network_of(*both, ("b", "a", "plc", 1)))
    assert is_connected(paths_study(random.Random(1), 1))


def test_the_solver_writes_nothing_to_standard_output(capfd) -> None:
    for seed in (7, 23, 52):
        rng = random.Random(f"{seed}/4")
        network = paths_study(rng, 4)
        names = list(network.nodes)
        program = PathProgram.of(network, names[0], names[-1])
        found = optimum(program)
        if found is not None:
            fewest_paths(pool_of(program, found)[1], found.total_mbps)
    assert capfd.readouterr().out == ""

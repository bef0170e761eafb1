"""The joint optimum against oracles: all simple paths listed, the linear program of one flow, and by hand."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from examples import seeds
from flow_optimum import flow_optimum_mbps

from hyroads.controller.core.errors import PlanningError
from hyroads.controller.core.network import FlowSpec, Network, Utility
from hyroads.controller.core.optimum import joint_optimum
from hyroads.controller.core.planner import Planner
from hyroads.controller.core.rates import rate_problem, solve
from hyroads.controller.core.rates.groups import groups_of, solve_with_groups
from hyroads.controller.files.documents import read_file
from hyroads.controller.study import networks as study_networks
from hyroads.mininet.run_directory import FOLDER as NETWORKS

TRIANGLE = read_file(Path(NETWORKS) / "triangle.yaml")


def all_simple_paths(network: Network, source: str, target: str) -> list[tuple[int, ...]]:
    found = []

    def extend(node: str, path: tuple[int, ...], seen: frozenset[str]) -> None:
        if node == target:
            found.append(path)
            return
        if path and network.nodes[node].is_plain_client:
            return
        for index, link in enumerate(network.links):
            if link.source == node and link.target not in seen and link.capacity_mbps > 0:
                extend(link.target, (*path, index), seen | {link.target})

    extend(source, (), frozenset({source}))
    return found


@pytest.mark.parametrize("seed", seeds(8))
def test_equals_the_optimum_over_all_simple_paths(seed):
    rng = random.Random(seed)
    network = study_networks.residential(rng)
    flows = [FlowSpec(f"f{i}", *study_networks.endpoints(network, rng), weight=rng.uniform(0.5, 2)) for i in range(4)]
    external = {link.id: 0.2 for link in network.links if link.technology == "plc"}
    found = joint_optimum(network, flows, margin=0.05, external=external, demand_mbps={"f0": 3.0})
    every = {flow.id: all_simple_paths(network, flow.source, flow.target) for flow in flows}
    oracle = solve(
        rate_problem(network, every, flows=flows, margin=0.05, external=external, demand_mbps={"f0": 3.0})
    )  # fmt: skip
    assert found.utility == pytest.approx(oracle.utility, rel=1e-4)
    assert found.rates_mbps["f0"] <= 3.0 + 1e-6
    assert found.gap_utility <= 1e-5 * max(1.0, found.utility)


@pytest.mark.parametrize("seed", seeds(6))
def test_groups_have_one_utility_over_all_simple_paths(seed):
    rng = random.Random(seed)
    network = study_networks.residential(rng)
    flows = [FlowSpec(f"f{i}", *study_networks.endpoints(network, rng), group="g" if i < 3 else None) for i in range(5)]
    demands = {"f0": 2.0, "f1": 0.0} if seed % 2 else {}
    found = joint_optimum(network, flows, margin=0.05, demand_mbps=demands)
    every = {flow.id: all_simple_paths(network, flow.source, flow.target) for flow in flows}
    problem = rate_problem(network, every, flows=flows, margin=0.05, demand_mbps=demands)
    oracle = solve_with_groups(problem, groups_of(flows))
    assert found.utility == pytest.approx(oracle.utility, rel=1e-4)
    assert found.utility == pytest.approx(found.utility_of(found.rates_mbps), rel=1e-4)
    assert all(found.rates_mbps[flow] <= most + 1e-6 for flow, most in demands.items())
    assert found.gap_utility <= 1e-5 * max(1.0, found.utility)


def test_a_group_weighs_as_one_flow_where_all_meet():
    flows = [FlowSpec("x", "a", "b", group="g"), FlowSpec("y", "a", "b", group="g"), FlowSpec("z", "a", "b")]
    rates = joint_optimum(TRIANGLE, flows).rates_mbps
    assert rates["x"] + rates["y"] == pytest.approx(rates["z"], rel=1e-3)
    alone = joint_optimum(TRIANGLE, [replace(flow, group=None) for flow in flows]).rates_mbps
    assert alone["x"] + alone["y"] == pytest.approx(2 * alone["z"], rel=1e-3)


def test_one_flow_gets_what_the_linear_program_says():
    network = study_networks.office22(random.Random(5))
    flow = FlowSpec("f", "n2", "n20")
    found = joint_optimum(network, [flow], margin=0.1)
    assert found.rates_mbps["f"] == pytest.approx(flow_optimum_mbps(network, "n2", "n20", margin=0.1), rel=1e-3)


def test_no_planner_beats_it():
    rng = random.Random(11)
    network = study_networks.office22(rng)
    flows = [FlowSpec(f"f{i}", *study_networks.endpoints(network, rng)) for i in range(10)]
    best = joint_optimum(network, flows)
    planner = Planner(network)
    paths = {flow.id: planner.plan(flow.source, flow.target).multipath.links for flow in flows}
    planned = solve(rate_problem(network, paths, flows=flows))
    assert planned.utility <= best.utility + best.gap_utility + 1e-9
    assert best.utility_of(best.rates_mbps) == pytest.approx(best.utility)


def test_the_triangle_by_hand_and_dead_links_and_total_throughput():
    flow = FlowSpec("f1", "a", "c")
    assert joint_optimum(TRIANGLE, [flow]).rates_mbps["f1"] == pytest.approx(50 / 3, rel=1e-4)
    without = TRIANGLE.with_capacities({"ab-plc": 0.0})
    assert joint_optimum(without, [flow]).rates_mbps["f1"] == pytest.approx(10.0, rel=1e-4)
    linear = replace(flow, utility=Utility.ALPHA, alpha=0.0)
    assert joint_optimum(TRIANGLE, [linear]).rates_mbps["f1"] == pytest.approx(50 / 3, rel=1e-4)


def test_a_flow_without_a_way_gets_nothing_and_an_unknown_node_is_refused():
    cut = TRIANGLE.with_capacities({"bc-wifi": 0.0})
    found = joint_optimum(cut, [FlowSpec("f1", "a", "c"), FlowSpec("f2", "a", "b")])
    assert found.rates_mbps["f1"] == 0.0
    assert found.rates_mbps["f2"] == pytest.approx(25.0, rel=1e-4)
    with pytest.raises(PlanningError, match="no node 'x'"):
        joint_optimum(TRIANGLE, [FlowSpec("f1", "a", "x")])

"""Paths of the flows of a group: against all combinations of their candidates."""

from __future__ import annotations

import random
import time
from itertools import product

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from rate_cases import network_of
from scipy.optimize import linprog

from hyroads.controller.core.errors import PlanningError
from hyroads.controller.core.flow_groups import (
    GroupFlow,
    GroupPaths,
    May,
    _most_by_solver,
    allocated,
    candidates,
    group_paths,
    most,
)
from hyroads.controller.core.network import Network
from hyroads.controller.core.optimum import multipath_optimum_mbps
from hyroads.controller.core.planner import Planner
from hyroads.controller.study import networks as study_networks

NEAR = 1e-6


def two_accesses(access_mbps: float = 20.0, wifi_mbps: float = 20.0, plc_mbps: float = 20.0) -> Network:
    """Two clients with access links of their own, and two media from where these meet to the server."""
    return network_of({
        "c1-w1": ("c1", "m", "w1", access_mbps), "c2-w2": ("c2", "m", "w2", access_mbps),
        "ms-wifi": ("m", "s", "wifi", wifi_mbps), "ms-plc": ("m", "s", "plc", plc_mbps),
    })  # fmt: skip


C1, C2 = GroupFlow("c1", "s"), GroupFlow("c2", "s")


def one_by_one(network: Network, flows: list[GroupFlow]) -> GroupPaths:
    return allocated(network, [Planner(network).plan(flow.source, flow.target).multipath.links for flow in flows])


def test_flows_that_would_meet_go_apart():
    network = two_accesses()
    before, found = one_by_one(network, [C1, C2]), group_paths(Planner(network), [C1, C2])
    assert before.total_mbps == pytest.approx(20) and len(before.bottlenecks) == 1
    assert found.total_mbps == pytest.approx(40) and not found.bottlenecks
    assert found.rates_mbps == (pytest.approx((20.0,)), pytest.approx((20.0,)))


def test_without_a_bottleneck_before_them_each_takes_one_medium():
    network = two_accesses(access_mbps=100.0, wifi_mbps=30.0)
    found = group_paths(Planner(network), [C1, C2])
    assert found.total_mbps == pytest.approx(50) and not found.bottlenecks
    assert sorted(len(paths) for paths in found.paths) == [1, 1]


def test_the_total_goes_before_bottlenecks_of_their_own():
    # Of 30 and 10, with 20 for each before: apart they have 20 + 10, together all.
    network = two_accesses(access_mbps=20.0, wifi_mbps=30.0, plc_mbps=10.0)
    found = group_paths(Planner(network), [C1, C2])
    assert found.total_mbps == pytest.approx(40)
    assert [network.links[link].id for link in found.bottlenecks] == ["ms-wifi"]


def test_where_all_ways_are_one_medium_they_share_it():
    network = network_of({"a": ("c", "s", "wifi", 10.0), "b": ("d", "s", "wifi", 10.0)})
    found = group_paths(Planner(network), [GroupFlow("c", "s"), GroupFlow("d", "s")])
    assert found.total_mbps == pytest.approx(10) and len(found.bottlenecks) == 1
    assert all(found.paths)


def test_a_flow_without_a_way_has_no_paths_and_the_others_do():
    network = two_accesses()
    cut = network.with_capacities({"c1-w1": 0.0})
    found = group_paths(Planner(cut), [C1, C2])
    assert found.paths[0] == () and found.rates_mbps[0] == ()
    assert found.total_mbps == pytest.approx(20)
    alone = cut.with_capacities({"c2-w2": 0.0})
    assert group_paths(Planner(alone), [C1, C2]).paths == ((), ())
    with pytest.raises(PlanningError, match="no node 'x'"):
        group_paths(Planner(network), [GroupFlow("x", "s")])


def test_flows_that_stay_are_left_alone_and_others_go_around_them():
    network = two_accesses()
    for link in (2, 3):
        held = GroupFlow("c1", "s", ((0, link),), May.STAY)
        found = group_paths(Planner(network), [held, C2])
        assert found.paths == (((0, link),), ((1, 5 - link),))
    # One that stays where all the room is stays there all the same.
    both = GroupFlow("c1", "s", ((0, 2), (0, 3)), May.STAY)
    assert group_paths(Planner(two_accesses(access_mbps=100.0)), [both, C2]).paths[0] == both.paths


def test_a_flow_that_yields_gives_up_a_path_for_a_new_one():
    network = two_accesses(access_mbps=100.0)
    there = GroupFlow("c1", "s", ((0, 2), (0, 3)), May.YIELD)
    found = group_paths(Planner(network), [there, C2])
    assert len(found.paths[0]) == len(found.paths[1]) == 1 and found.paths[0][0] in there.paths
    assert not found.bottlenecks and found.total_mbps == pytest.approx(40)
    # Where each has a medium already nobody changes; nor where the new one goes another way by itself.
    there = GroupFlow("c1", "s", ((0, 3),), May.YIELD)
    assert group_paths(Planner(network), [there, C2]).paths == (((0, 3),), ((1, 2),))


def test_of_choices_that_are_alike_the_one_that_changes_the_fewest_flows_is_taken():
    network = two_accesses()
    for link in (2, 3):
        flows = [GroupFlow("c1", "s", ((0, link),)), GroupFlow("c2", "s", ((1, link),))]
        paths = group_paths(Planner(network), flows).paths
        assert sum(flow.paths != each for flow, each in zip(flows, paths, strict=True)) == 1
        flows = [GroupFlow("c1", "s", ((0, link),)), GroupFlow("c2", "s", ((1, 5 - link),))]
        assert group_paths(Planner(network), flows).paths == tuple(flow.paths for flow in flows)


def test_more_flows_than_are_placed_at_once_follow_one_by_one():
    links = {f"c{i}": (f"c{i}", "m", f"w{i}", 10.0) for i in range(6)}
    links |= {f"m{i}": ("m", "s", f"k{i}", 10.0) for i in range(6)}
    found = group_paths(Planner(network_of(links)), [GroupFlow(f"c{i}", "s") for i in range(6)])
    assert found.total_mbps == pytest.approx(60) and not found.bottlenecks


@given(st.integers(0, 100_000), st.integers(1, 12), st.integers(1, 7))
@examples(100)
def test_the_rates_of_a_set_of_paths_are_the_greatest_and_the_most_even(seed, row_count, count):
    rng = np.random.default_rng(seed)
    rows = rng.uniform(0, 0.2, (row_count, count)) * (rng.random((row_count, count)) < 0.5)
    rows[0] += 0.01
    rates = most(rows)
    assert (rows @ rates <= 1 + 1e-7).all() and (rates >= 0).all()
    best = linprog(-np.ones(count), A_ub=rows, b_ub=np.ones(row_count), method="highs")
    assert rates.sum() == pytest.approx(-best.fun, rel=NEAR)
    assert np.square(rates).sum() <= np.square(best.x).sum() * (1 + 1e-4)
    if count > 2 and rows.any(axis=1).all():
        # Without the compiled solver.
        assert _most_by_solver(rows).sum() == pytest.approx(rates.sum(), rel=NEAR)


def test_rates_of_paths_that_are_alike_are_alike():
    assert most(np.array([[0.1, 0.1]])) == pytest.approx([5, 5])
    assert most(np.array([[0.1, 0.1], [0.5, 0.0]])) == pytest.approx([2, 8])
    assert most(np.array([[0.1, 0.1, 0.1]])) == pytest.approx([10 / 3] * 3, rel=1e-4)


def random_group(seed: int, count: int) -> tuple[Network, list[GroupFlow]]:
    """Flows to one node of a random home or office, some from the same node."""
    rng = random.Random(seed)
    network = rng.choice([study_networks.residential, study_networks.enterprise])(rng)
    _, target = study_networks.endpoints(network, rng)
    sources = [node for node in network.nodes if node != target]
    return network, [GroupFlow(rng.choice(sources), target) for _ in range(count)]


@given(st.integers(0, 100_000), st.integers(2, 3))
@examples(40)
def test_no_combination_of_candidates_is_better(seed, count):
    network, flows = random_group(seed, count)
    planner = Planner(network)
    options = [each for each in candidates(planner, flows) if each]
    if not options:
        return
    found = group_paths(planner, flows, tolerance=1e-5)
    # What all candidates carry together no combination exceeds.
    every = [path for each in options for path in dict.fromkeys(path for paths in each for path in paths)]
    assert found.total_mbps >= multipath_optimum_mbps(network, every) * (1 - 2e-5)
    if found.bottlenecks:
        few = [each[: 120 // 10 ** (count - 1) + 4] for each in options]
        for choice in product(*few):
            other = allocated(network, choice)
            assert other.bottlenecks or other.total_mbps < found.total_mbps * (1 - 1e-6)


def test_a_group_in_an_office_of_ten_nodes_is_placed_in_a_few_milliseconds():
    spent_s = []
    for seed in range(8):
        rng = random.Random(seed)
        network = study_networks.enterprise(rng)
        source, target = study_networks.endpoints(network, rng)
        planner = Planner(network)
        planner.plan(source, target)
        others = [node for node in network.nodes if node != target]
        start_s = time.process_time()
        group_paths(planner, [GroupFlow(source, target), GroupFlow(rng.choice(others), target)])
        spent_s.append(time.process_time() - start_s)
    assert sorted(spent_s)[len(spent_s) // 2] < 0.02

"""R(P), update and the exploration tree: worked examples and laws."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from link_paths import is_loop_free

from hyroads.controller.core.errors import PlanningError
from hyroads.controller.core.interface_graph import link_ids
from hyroads.controller.core.netfile import parse
from hyroads.controller.core.network import Network
from hyroads.controller.core.optimum import multipath_optimum_mbps, multipath_rates
from hyroads.controller.core.planner import PYTHON, Planner
from hyroads.controller.core.tree import path_rate, update
from hyroads.controller.files.documents import read_file

TRIANGLE = Path(__file__).parents[3] / "mininet" / "networks" / "triangle.yaml"
SEEDS = st.integers(0, 2**32)
RULES = st.sampled_from(("technology", "range", "conflicts", "domains"))


@pytest.fixture(params=["native", "python"])
def prefer(request):
    return request.param


def network_of(links, interference=None):
    nodes = {name: {"role": "ap"} for name in dict.fromkeys(end for link in links for end in link[1:3])}
    keys = ("id", "from", "to", "technology", "capacity_mbps")
    listed = [dict(zip(keys, link, strict=True)) for link in links]
    return parse({"nodes": nodes, "links": listed, "interference": interference or {"rule": "technology"}}, "test")


def test_triangle_exactly(prefer):
    network = read_file(TRIANGLE)
    plan = Planner(network, prefer=prefer).plan("a", "c")
    assert [link_ids(network, path) for path in plan.multipath.links] == [["ab-plc", "bc-wifi"], ["ab-wifi", "bc-wifi"]]
    assert [path.rate_mbps for path in plan.multipath.paths] == pytest.approx([10, 20 / 3], rel=1e-12)
    assert plan.multipath.total_mbps == pytest.approx(50 / 3, rel=1e-12)
    assert plan.single_path.rate_mbps == pytest.approx(10, rel=1e-12)
    assert multipath_optimum_mbps(network, plan.multipath.links) == pytest.approx(50 / 3, rel=1e-9)
    assert plan.multipath.total_mbps / plan.single_path.rate_mbps == pytest.approx(1.6667, abs=1e-4)


def test_contention_example():
    """Two WiFi links of 20 in a row and one of 11 elsewhere: x/20 + x/20 + y/11 <= 1."""
    network = network_of(
        [
            ("ab", "a", "b", "wifi", 20),
            ("bc", "b", "c", "wifi", 20),
            ("ad", "a", "d", "plc", 100),
            ("dc", "d", "c", "wifi", 11),
        ]
    )
    capacities = network.capacities
    assert path_rate(network.interference, capacities, (0, 1)) == pytest.approx(10)
    left = update(network.interference, capacities, (2, 3))
    assert left.tolist() == [0, 0, pytest.approx(89), 0]
    x, y = multipath_rates(network, [(0, 1), (2, 3)])
    assert x / 20 + x / 20 + y / 11 == pytest.approx(1)
    assert x + y == pytest.approx(11)


def test_best_multipath_may_be_a_single_path_that_is_not_the_shortest(prefer):
    network = network_of([("ac", "a", "c", "wifi", 16), ("ab", "a", "b", "plc", 30), ("bc", "b", "c", "wifi", 30)])
    plan = Planner(network, prefer=prefer).plan("a", "c")
    assert link_ids(network, plan.single_path.links) == ["ac"]
    assert [link_ids(network, path) for path in plan.multipath.links] == [["ab", "bc"]]
    assert plan.multipath.total_mbps == pytest.approx(30)


def test_link_in_several_paths_of_one_multipath(prefer):
    network = network_of(
        [("ab1", "a", "b", "wifi", 20), ("ab2", "a", "b", "plc", 20), ("bc", "b", "c", "ethernet", 100)]
    )
    plan = Planner(network, prefer=prefer).plan("a", "c")
    assert {path[1] for path in plan.multipath.links} == {2}
    assert plan.multipath.total_mbps == pytest.approx(40)


@examples(100)
@given(seed=SEEDS, rule=RULES, tied=st.booleans())
def test_laws_of_update(seed, rule, tied, random_network, all_paths):
    network = random_network(seed, rule, technologies=3, tied=tied, density=0.35)
    capacities = network.capacities
    for path in all_paths(network, "n0", "n3")[:20]:
        left = update(network.interference, capacities, path)
        assert (left <= capacities).all() and (left >= 0).all()
        assert min(left[link] for link in path) == 0, "a bottleneck of the path is used up"
        domain = set(np.concatenate([network.interference.domain(link) for link in path]).tolist())
        outside = [link for link in range(len(capacities)) if link not in domain]
        assert (left[outside] == capacities[outside]).all()
        for link in range(len(capacities)):
            load = sum(1 / capacities[m] for m in path if network.interference.contends(link, m))
            rate = path_rate(network.interference, capacities, path)
            assert left[link] == pytest.approx(max(0, capacities[link] * (1 - rate * load)), abs=1e-6)


@examples(100)
@given(seed=SEEDS, rule=RULES, tied=st.booleans())
def test_laws_of_the_plan(seed, rule, tied, random_network):
    network = random_network(seed, rule, technologies=3, tied=tied, density=0.4)
    try:
        plan = Planner(network, prefer=PYTHON).plan("n0", "n4", depth=2)
    except PlanningError:
        return
    totals = [arm.total_mbps for arm in plan.arms]
    assert all(later <= earlier * (1 + 1e-9) for earlier, later in pairwise(totals))
    assert len({arm.identity for arm in plan.arms}) == len(plan.arms) <= 5
    assert plan.multipath.total_mbps >= plan.single_path.rate_mbps * (1 - 1e-9)
    for arm in plan.arms:
        assert 1 <= len(arm.paths) <= 2
        assert all(is_loop_free(network, path) for path in arm.links)
        # The rates are those of the definition, replayed along the branch.
        capacities = network.capacities
        for path in arm.paths:
            assert path.rate_mbps == path_rate(network.interference, capacities, path.links)
            capacities = update(network.interference, capacities, path.links)


@examples(60)
@given(seed=SEEDS, rule=RULES, tied=st.booleans())
def test_names_do_not_matter(seed, rule, tied, random_network):
    network = random_network(seed, rule, tied=tied, density=0.5)
    renamed = _renamed(network, random.Random(seed))
    names = dict(zip(network.nodes, renamed.nodes, strict=True))
    try:
        plan = Planner(network).plan("n0", "n4")
    except PlanningError:
        with pytest.raises(PlanningError):
            Planner(renamed).plan(names["n0"], names["n4"])
        return
    assert Planner(renamed).plan(names["n0"], names["n4"]) == plan


def _renamed(network: Network, rng: random.Random) -> Network:
    """Other names for nodes, links and technologies, in random alphabetical order; the same declaration order."""
    words = [f"x{number}" for number in rng.sample(range(10**6), 200)]
    nodes = dict(zip(network.nodes, words, strict=False))
    media = dict(zip(network.technologies, words[50:], strict=False))
    links = tuple(
        replace(link, id=f"l{words[60 + i % 100]}{i}", source=nodes[link.source], target=nodes[link.target],
                technology=media[link.technology])
        for i, link in enumerate(network.links)
    )  # fmt: skip
    return Network(
        {nodes[name]: replace(node, id=nodes[name]) for name, node in network.nodes.items()},
        links,
        network.interference,
        unshared=frozenset(media[name] for name in network.unshared if name in media),
    )


@examples(40)
@given(seed=SEEDS)
def test_order_of_declaration_matters_only_for_ties(seed, random_network):
    network = random_network(seed, density=0.5)
    shuffled = list(network.links)
    random.Random(seed).shuffle(shuffled)
    other = Network(network.nodes, tuple(shuffled), type(network.interference)(shuffled), unshared=network.unshared)
    try:
        plans = [(one, Planner(one).plan("n0", "n4")) for one in (network, other)]
    except PlanningError:
        return
    arms = [[{tuple(link_ids(one, path)) for path in arm.links} for arm in plan.arms] for one, plan in plans]
    assert arms[0] == arms[1]
    assert plans[0][1].multipath.total_mbps == pytest.approx(plans[1][1].multipath.total_mbps, rel=1e-9)


@examples(40)
@given(seed=SEEDS, rule=RULES, exponent=st.integers(-10, 10))
def test_unit_of_capacity_does_not_matter(seed, rule, exponent, random_network):
    network = random_network(seed, rule, density=0.5, tied=True)
    factor = 2.0**exponent
    scaled = network.with_capacities({link.id: link.capacity_mbps * factor for link in network.links})
    try:
        plans = [Planner(one).plan("n0", "n4") for one in (network, scaled)]
    except PlanningError:
        return
    assert [arm.links for arm in plans[0].arms] == [arm.links for arm in plans[1].arms]
    assert plans[1].multipath.total_mbps == plans[0].multipath.total_mbps * factor


def test_margin_scales_every_rate(prefer):
    network = read_file(TRIANGLE)
    planner = Planner(network, prefer=prefer)
    full, kept = planner.plan("a", "c"), planner.plan("a", "c", margin=0.25)
    assert [arm.links for arm in full.arms] == [arm.links for arm in kept.arms]
    assert kept.multipath.total_mbps == pytest.approx(0.75 * full.multipath.total_mbps)
    assert kept.single_path.rate_mbps == pytest.approx(7.5)


@pytest.mark.parametrize(
    ("source", "target", "options", "word"),
    [
        ("a", "nowhere", {}, "nowhere"),
        ("a", "a", {}, "same node"),
        ("a", "c", {"depth": 0}, "depth"),
        ("a", "c", {"shortest": 0}, "shortest"),
        ("a", "c", {"arms": -1}, "arms"),
        ("a", "c", {"margin": 1.0}, "margin"),
        ("a", "c", {"margin": float("nan")}, "margin"),
        ("a", "c", {"depth": 60}, "too large"),
    ],
)
def test_bad_requests_name_what_is_wrong(source, target, options, word, prefer):
    with pytest.raises(PlanningError, match=word):
        Planner(read_file(TRIANGLE), prefer=prefer).plan(source, target, **options)


def test_no_route_is_an_error(prefer):
    network = network_of([("ab", "a", "b", "wifi", 16), ("cb", "c", "b", "wifi", 30)])
    with pytest.raises(PlanningError, match="no route from 'a' to 'c'"):
        Planner(network, prefer=prefer).plan("a", "c")


def test_plain_clients_relay_only_if_asked():
    network = read_file(TRIANGLE)
    nodes = {**network.nodes, "b": replace(network.nodes["b"], role=network.nodes["c"].role, agent=False)}
    network = replace(network, nodes=nodes)
    with pytest.raises(PlanningError, match="no route"):
        Planner(network).plan("a", "c")
    assert Planner(network, clients_relay=True).plan("a", "c").multipath.total_mbps == pytest.approx(50 / 3)

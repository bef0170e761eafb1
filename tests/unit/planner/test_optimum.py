"""The exact optima against an LP over all paths, and what they say about the tree."""

from __future__ import annotations

import numpy as np
import pytest
from examples import examples
from flow_optimum import flow_optimum_mbps
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from hyroads.controller.core.errors import PlanningError
from hyroads.controller.core.interference import ConflictInterference
from hyroads.controller.core.network import Link, Network, Node, Role
from hyroads.controller.core.optimum import (
    airtime_rows,
    binding_rows,
    multipath_optimum_mbps,
    multipath_rates,
)
from hyroads.controller.core.planner import Planner

SEEDS = st.integers(0, 2**32)
RULES = st.sampled_from(("technology", "range", "conflicts", "domains"))
EPSILON = 1 + 1e-7


def brute_force_mbps(network, paths):
    """The LP over all given paths with a row for every link, written out from the definition."""
    if not paths:
        return 0.0
    alive = [i for i, link in enumerate(network.links) if link.capacity_mbps > 0]
    rows = [
        [
            sum(1 / network.links[m].capacity_mbps for m in path if network.interference.contends(link, m))
            for path in paths
        ]
        for link in alive
    ]
    return -linprog(-np.ones(len(paths)), A_ub=rows, b_ub=np.ones(len(rows))).fun


@examples(80)
@given(seed=SEEDS, rule=RULES, tied=st.booleans(), clients=st.booleans())
def test_link_flow_optimum_is_the_optimum_over_all_paths(seed, rule, tied, clients, random_network, all_paths):
    network = random_network(seed, rule, technologies=3, tied=tied, clients=clients, density=0.3, dead=True)
    expected = brute_force_mbps(network, all_paths(network, "n0", "n4"))
    assert flow_optimum_mbps(network, "n0", "n4") == pytest.approx(expected, rel=1e-7, abs=1e-9)
    expected = brute_force_mbps(network, all_paths(network, "n0", "n4", clients_relay=True))
    assert flow_optimum_mbps(network, "n0", "n4", 0.2, clients_relay=True) == pytest.approx(0.8 * expected, rel=1e-7)


@examples(80)
@given(seed=SEEDS, rule=RULES, tied=st.booleans())
def test_optimum_of_any_arm_never_exceeds_the_flow_optimum(seed, rule, tied, random_network, all_paths):
    network = random_network(seed, rule, technologies=3, tied=tied, density=0.3)
    try:
        plan = Planner(network).plan("n0", "n4")
    except PlanningError:
        assert not all_paths(network, "n0", "n4")
        return
    limit = flow_optimum_mbps(network, "n0", "n4")
    for arm in plan.arms:
        optimum = multipath_optimum_mbps(network, arm.links)
        assert optimum == pytest.approx(brute_force_mbps(network, list(arm.links)), rel=1e-7)
        assert optimum <= limit * EPSILON


@examples(80)
@given(seed=SEEDS, technologies=st.integers(1, 4), tied=st.booleans())
def test_estimate_can_be_granted_where_contention_is_an_equivalence(seed, technologies, tied, random_network):
    """Rule technology: links that contend have the same domain, so what is left of one is left of all of them.

    The rates of the tree then satisfy the airtime of *every* link: estimate <= optimum of the multipath.
    """
    network = random_network(seed, technologies=technologies, tied=tied, density=0.4)
    try:
        plan = Planner(network).plan("n0", "n4")
    except PlanningError:
        return
    for arm in plan.arms:
        busy = airtime_rows(network, arm.links) @ [path.rate_mbps for path in arm.paths]
        assert busy.max() <= EPSILON
        assert arm.total_mbps <= multipath_optimum_mbps(network, arm.links) * EPSILON


def test_estimate_may_exceed_what_other_links_allow():
    """R(P) looks at links of the path only; a link beside it hears both hops and limits it."""
    nodes = {name: Node(name, Role.AP, None, True) for name in "abcde"}
    links = tuple(Link(f"{u}{v}", u, v, "wifi", 10.0) for u, v in ("ab", "bc", "cd", "eb"))
    # ab and cd don't contend, but each contends with bc and with the bystander eb.
    conflicts = {"ab": ["bc", "eb"], "cd": ["bc", "eb"], "bc": []}
    network = Network(nodes, links, ConflictInterference(links, conflicts))
    plan = Planner(network).plan("a", "d")
    assert plan.single_path.rate_mbps == pytest.approx(10 / 3)
    assert multipath_optimum_mbps(network, [(0, 1, 2)]) == pytest.approx(10 / 3)
    apart = network.with_capacities({"bc": 1000.0})
    without = ConflictInterference(links, {"ab": ["eb"], "cd": ["eb"]})
    apart = Network(nodes, apart.links, without)
    plan = Planner(apart).plan("a", "d")
    assert plan.single_path.rate_mbps == pytest.approx(10)
    assert multipath_optimum_mbps(apart, [(0, 1, 2)]) == pytest.approx(5)
    assert flow_optimum_mbps(apart, "a", "d") == pytest.approx(5)


@examples(60)
@given(seed=SEEDS, rule=RULES)
def test_rates_are_feasible_on_every_link_and_dominated_rows_do_not_matter(seed, rule, random_network, all_paths):
    network = random_network(seed, rule, technologies=2, density=0.4)
    paths = all_paths(network, "n0", "n4")[:4]
    if not paths:
        assert multipath_optimum_mbps(network, paths) == 0
        return
    rows = airtime_rows(network, paths)
    rates = multipath_rates(network, paths, margin=0.1)
    assert (rates >= 0).all() and (rows @ rates).max() == pytest.approx(0.9)
    kept = binding_rows(rows)
    assert (kept @ rates <= 0.9 * EPSILON).all()
    assert {tuple(row) for row in kept} <= {tuple(row) for row in rows}
    for row in rows:
        assert any((other >= row).all() for other in kept)


def test_paths_over_links_that_do_not_exist_are_refused(random_network):
    network = random_network(1, density=1.0)
    dead = network.with_capacities({network.links[0].id: 0.0})
    assert dead.capacities[0] == 0
    with pytest.raises(PlanningError, match="capacity 0"):
        multipath_optimum_mbps(dead, [(0,)])

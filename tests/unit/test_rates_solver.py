"""Exact rates: optima known by hand, independent oracles, and laws that every allocation obeys."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from examples import examples, seeds
from hypothesis import given
from hypothesis import strategies as st
from rate_cases import alpha_fair, constraint, network_of, problem_of, random_case, random_paths, relative_gap
from scipy.optimize import linprog, minimize

from hyroads.controller.core.errors import PlanningError
from hyroads.controller.core.interference import ConflictInterference
from hyroads.controller.core.network import FlowSpec, Link, Network, Node, Role
from hyroads.controller.core.rates import Layout, RateProblem, Utilities, rate_problem, solve
from hyroads.controller.core.rates.allocation import transferred
from hyroads.controller.core.rates.reduction import Pattern
from hyroads.controller.study import networks as study_networks

TRIANGLE = network_of(
    {
        "ab-plc": ("a", "b", "plc", 10),
        "ab-wifi": ("a", "b", "wifi", 15),
        "bc-wifi": ("b", "c", "wifi", 30),
        "ba-wifi": ("b", "a", "wifi", 15),
    }
)
PLC_WIFI, WIFI_WIFI = (0, 2), (1, 2)


def random_problem(seed: int, flow_count: int, alpha: float | None = None, limits: bool = True) -> RateProblem:
    return random_case(seed, flow_count, alpha, limits)[1]


# Optima known by hand


@pytest.mark.parametrize("margin", [0.0, 0.05, 0.3])
def test_triangle_of_the_paper(margin: float) -> None:
    result = solve(problem_of(TRIANGLE, {"f": [PLC_WIFI, WIFI_WIFI]}, margin=margin))
    assert result.path_rates_mbps == pytest.approx([(1 - margin) * 10, (1 - margin) * 20 / 3], rel=1e-7)
    assert result.utility == pytest.approx(np.log1p((1 - margin) * 50 / 3), rel=1e-8)
    assert result.max_airtime == pytest.approx(1 - margin, abs=1e-9)
    assert relative_gap(result) < 1e-7


def test_lemma_1_contending_links_can_each_carry_one_over_the_sum_of_their_costs() -> None:
    capacities = [12.0, 30.0, 7.5, 54.0]
    network = network_of({f"l{i}": (f"a{i}", f"b{i}", "wifi", c) for i, c in enumerate(capacities)})
    problem = problem_of(network, {f"f{i}": [(i,)] for i in range(4)}, alpha_fair([1.0] * 4, 40.0))
    # Max-min fairness gives all of them the rate R of the lemma, and alpha = 40 is close to it.
    lemma = 1 / sum(1 / c for c in capacities)
    assert solve(problem).flow_rates_mbps == pytest.approx([lemma] * 4, rel=0.05)
    assert problem.airtime(np.full(4, lemma)).max() == pytest.approx(1.0)


def test_two_flows_share_airtime_in_proportion_to_weight_under_log() -> None:
    network = network_of({"l0": ("a", "b", "wifi", 20), "l1": ("c", "d", "wifi", 50)})
    problem = problem_of(network, {"f0": [(0,)], "f1": [(1,)]}, alpha_fair([1.0, 3.0], 1.0))
    # max log x0 + 3 log x1 subject to x0 / 20 + x1 / 50 <= 1: airtimes 1/4 and 3/4.
    assert solve(problem).flow_rates_mbps == pytest.approx([5.0, 37.5], rel=1e-7)


def test_log_1_plus_x_of_two_flows() -> None:
    network = network_of({"l0": ("a", "b", "wifi", 20), "l1": ("c", "d", "wifi", 50)})
    # 20 / (1 + 20 a) = 50 / (1 + 50 (1 - a)) for the share a of airtime of f0.
    share = 0.5 + 0.5 * (1 / 50 - 1 / 20)
    result = solve(problem_of(network, {"f0": [(0,)], "f1": [(1,)]}))
    assert result.flow_rates_mbps == pytest.approx([20 * share, 50 * (1 - share)], rel=1e-7)


def test_log_1_plus_x_starves_a_flow_whose_price_is_above_its_weight() -> None:
    network = network_of({"l0": ("a", "b", "wifi", 0.5), "l1": ("c", "d", "wifi", 100)})
    result = solve(problem_of(network, {"f0": [(0,)], "f1": [(1,)]}))
    # At x1 = 100 a unit of airtime is worth 100 / 101; the first Mb/s of f0 needs two of them and is worth 1.
    assert result.flow_rates_mbps == pytest.approx([0.0, 100.0], abs=1e-6)


def test_throughput_utility_gives_all_to_the_faster_link() -> None:
    network = network_of({"l0": ("a", "b", "wifi", 20), "l1": ("c", "d", "wifi", 50)})
    problem = problem_of(network, {"f0": [(0,)], "f1": [(1,)]}, alpha_fair([1.0, 1.0], 0.0))
    assert solve(problem).flow_rates_mbps == pytest.approx([0.0, 50.0], abs=1e-6)


def test_demand_is_respected_and_the_rest_goes_to_others() -> None:
    network = network_of({"l0": ("a", "b", "wifi", 20), "l1": ("c", "d", "wifi", 50)})
    result = solve(problem_of(network, {"f0": [(0,)], "f1": [(1,)]}, demand=np.array([4.0, np.inf])))
    assert result.flow_rates_mbps == pytest.approx([4.0, 40.0], rel=1e-7)


def test_rows_of_unused_links_count() -> None:
    # Links l0 and l1 don't contend, but l2, which nobody uses, hears both: its domain is a row of the constraint.
    network = network_of(
        {"l0": ("a", "b", "wifi", 10), "l1": ("c", "d", "wifi", 10), "l2": ("b", "c", "wifi", 10)},
        {"conflicts": {"l2": ["l0", "l1"]}},
    )
    assert solve(problem_of(network, {"f0": [(0,)], "f1": [(1,)]})).flow_rates_mbps == pytest.approx([5.0, 5.0])


def test_alike_paths_and_flows_get_alike_rates() -> None:
    network = network_of({"p": ("a", "b", "plc", 20), "w": ("a", "b", "wifi", 20)})
    problem = problem_of(network, {"f0": [(0,), (1,)], "f1": [(0,), (1,)]})
    assert solve(problem).path_rates_mbps == pytest.approx([10.0] * 4, rel=1e-4)


def test_equal_paths_of_a_flow_share_their_rate() -> None:
    problem = problem_of(TRIANGLE, {"f": [PLC_WIFI, WIFI_WIFI, PLC_WIFI]})
    assert solve(problem).path_rates_mbps == pytest.approx([5.0, 20 / 3, 5.0], rel=1e-6)


# Nothing to give


def test_domain_without_airtime_gives_zero_and_leaves_others_alone() -> None:
    # 1.2 is measured at a link that no path uses; its domain is that of all WiFi links.
    external = np.array([0.0, 0.0, 0.0, 1.2])
    flows = {"wifi": [WIFI_WIFI], "plc": [(0,)], "none": []}
    result = solve(problem_of(TRIANGLE, flows, external=external))
    assert result.flow_rates_mbps == pytest.approx([0.0, 10.0, 0.0])
    assert result.utility == pytest.approx(np.log(11.0))


def test_link_without_capacity_carries_nothing() -> None:
    problem = problem_of(TRIANGLE, {"f": [PLC_WIFI, WIFI_WIFI]})
    down = problem.changed(capacity_mbps=np.array([0.0, 15.0, 30.0, 15.0]))
    assert solve(down).path_rates_mbps == pytest.approx([0.0, 10.0])


def test_no_flows_and_no_paths() -> None:
    assert solve(problem_of(TRIANGLE, {})).utility == 0.0
    assert solve(problem_of(TRIANGLE, {"f": []})).flow_rates_mbps == pytest.approx([0.0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda: problem_of(TRIANGLE, {"f": [()]}), "path 0 must name links"),
        (lambda: problem_of(TRIANGLE, {"f": [(0,), (7,)]}), "path 1 must name links from 0 to 3"),
        (lambda: problem_of(TRIANGLE, {"f": [(0,)]}, Utilities.log([0.0])), "weight"),
        (lambda: problem_of(TRIANGLE, {"f": [(0,)]}, alpha_fair([1.0], -1.0)), "alpha"),
        (lambda: problem_of(TRIANGLE, {"f": [(0,)]}, margin=1.5), "margin"),
        (lambda: problem_of(TRIANGLE, {"f": [(0,)]}, external=np.array([np.nan] * 4)), "external"),
        (lambda: rate_problem(TRIANGLE, {}, external={"zz": 0.1}), "no link 'zz'"),
    ],
)
def test_wrong_problems_are_refused(change, message: str) -> None:
    with pytest.raises(PlanningError, match=message):
        change()


# Independent oracles


def test_airtime_is_the_product_of_the_matrices() -> None:
    for seed in range(5):
        network, problem = random_case(seed, 6)
        rates = np.random.default_rng(seed).exponential(size=problem.layout.path_count)
        assert problem.airtime(rates) == pytest.approx(constraint(network, problem) @ rates)


def per_flow_matrix(problem: RateProblem) -> np.ndarray:
    layout = problem.layout
    matrix = np.zeros((layout.flow_count, layout.path_count))
    matrix[layout.path_flow, np.arange(layout.path_count)] = 1.0
    return matrix


@pytest.mark.parametrize("seed", seeds(12))
def test_throughput_equals_the_linear_program(seed: int) -> None:
    network, problem = random_case(seed, 6, alpha=0.0)
    finite = np.isfinite(problem.demand_mbps)
    optimum = linprog(
        -problem.utilities.weight[problem.layout.path_flow],
        A_ub=np.vstack([constraint(network, problem), per_flow_matrix(problem)[finite]]),
        b_ub=np.concatenate([problem.budget, problem.demand_mbps[finite]]),
    )
    assert solve(problem).utility == pytest.approx(-optimum.fun, rel=1e-6)


@pytest.mark.parametrize("alpha", [None, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("seed", seeds(5))
def test_concave_utilities_equal_a_general_solver(seed: int, alpha: float | None) -> None:
    network, problem = random_case(100 + seed, 4, alpha)
    layout, utilities, result = problem.layout, problem.utilities, solve(problem)
    finite = np.isfinite(problem.demand_mbps)
    rows = np.vstack([constraint(network, problem), per_flow_matrix(problem)[finite]])
    limits = np.concatenate([problem.budget, problem.demand_mbps[finite]])
    keep = np.unique(np.column_stack([rows, limits]), axis=0, return_index=True)[1]
    rows, limits = rows[keep], limits[keep]

    def cost(x: np.ndarray) -> float:
        return -utilities.total(np.maximum(layout.flow_rates(x), 1e-9))

    def slope(x: np.ndarray) -> np.ndarray:
        return -utilities.slopes(np.maximum(layout.flow_rates(x), 1e-9))[layout.path_flow]

    alone = np.array([(limits[rows[:, p] > 0] / rows[rows[:, p] > 0, p]).min() for p in range(rows.shape[1])])
    start = alone / (2 * layout.path_count)
    constraints = {"type": "ineq", "fun": lambda x: limits - rows @ x, "jac": lambda x: -rows}
    options = {"maxiter": 500, "ftol": 1e-12}
    bounds = [(0, None)] * len(start)
    found = minimize(cost, start, jac=slope, bounds=bounds, constraints=constraints, method="SLSQP", options=options)
    # SLSQP may stop early or overstep a bound by its tolerance: it must not find anything better, and comes near.
    assert result.utility >= -found.fun - 1e-5 * max(1.0, abs(found.fun))
    assert result.utility == pytest.approx(-found.fun, rel=2e-3, abs=2e-3)


@pytest.mark.parametrize("seed", seeds(6))
def test_large_alpha_approaches_max_min_fairness(seed: int) -> None:
    network, problem = random_case(200 + seed, 5, limits=False)
    layout = problem.layout
    fair = replace(problem, utilities=alpha_fair([1.0] * layout.flow_count, 32.0))
    rows = np.vstack([constraint(network, problem), -per_flow_matrix(problem)])
    # The largest rate that all flows can have at once: maximise r with A x <= budget, x_f >= r.
    column = np.concatenate([np.zeros(layout.link_count), np.ones(layout.flow_count)])
    limits = np.concatenate([problem.budget, np.zeros(layout.flow_count)])
    fairest = linprog([0.0] * layout.path_count + [-1.0], A_ub=np.column_stack([rows, column]), b_ub=limits)
    smallest = solve(fair).flow_rates_mbps.min()
    assert -fairest.fun * 0.9 <= smallest <= -fairest.fun * (1 + 1e-6)


# Laws

SEEDS = st.integers(0, 10_000)
alphas = st.sampled_from([None, 0.0, 0.5, 1.0, 2.0])


@examples(40)
@given(SEEDS, alphas, st.integers(1, 12))
def test_rates_are_feasible_on_every_link_and_certified(seed: int, alpha: float | None, flows: int) -> None:
    problem = random_problem(seed, flows, alpha)
    result = solve(problem)
    assert np.all(problem.airtime(result.path_rates_mbps) <= problem.budget + 1e-9)
    assert np.all(result.path_rates_mbps >= 0)
    assert np.all(result.flow_rates_mbps <= problem.demand_mbps * (1 + 1e-12))
    assert result.gap_utility <= 1e-6 * max(abs(result.utility), 1e-3)


@examples(25)
@given(SEEDS)
def test_certificate_holds_against_other_allocations(seed: int) -> None:
    problem = random_problem(seed, 5)
    result = solve(problem)
    rng = np.random.default_rng(seed)
    for _ in range(20):
        rates = rng.exponential(size=problem.layout.path_count)
        busy, flows = problem.airtime(rates), problem.layout.flow_rates(rates)
        scale = min(np.min(problem.budget[busy > 0] / busy[busy > 0]), np.min(problem.demand_mbps / flows))
        assert problem.utilities.total(scale * flows) <= result.utility + result.gap_utility + 1e-9


@examples(25)
@given(SEEDS)
def test_prices_satisfy_the_optimality_conditions(seed: int) -> None:
    problem = random_problem(seed, 5, 1.0, limits=False)
    result = solve(problem)
    prices = problem.path_prices(result.link_prices)
    slopes = problem.utilities.slopes(result.flow_rates_mbps)[problem.layout.path_flow]
    assert np.all(prices >= slopes * (1 - 1e-5))
    used = result.path_rates_mbps > 1e-4 * result.flow_rates_mbps[problem.layout.path_flow]
    assert prices[used] == pytest.approx(slopes[used], rel=1e-4)
    slack = problem.budget - problem.airtime(result.path_rates_mbps)
    assert np.all(result.link_prices[slack > 1e-4] == 0)


@examples(15)
@given(SEEDS, alphas)
def test_utility_falls_with_margin(seed: int, alpha: float | None) -> None:
    problem = random_problem(seed, 5, alpha, limits=False)
    margins = (np.full_like(problem.margin, margin) for margin in (0.0, 0.1, 0.4))
    totals = [solve(replace(problem, margin=margin)).utility for margin in margins]
    assert all(more > less for more, less in pairwise(totals))


@examples(15)
@given(SEEDS, st.floats(0.01, 100.0))
def test_scaling_all_capacities_scales_proportionally_fair_rates(seed: int, factor: float) -> None:
    problem = random_problem(seed, 5, 1.0, limits=False)
    scaled = problem.changed(capacity_mbps=problem.capacity_mbps * factor)
    assert solve(scaled).flow_rates_mbps == pytest.approx(factor * solve(problem).flow_rates_mbps, rel=1e-5)


@examples(15)
@given(SEEDS)
def test_order_of_flows_and_paths_does_not_matter(seed: int) -> None:
    rng = random.Random(seed)
    network = study_networks.enterprise(rng)
    flows = {f"f{i}": random_paths(network, rng, 3) for i in range(5)}
    turned = {flow: flows[flow][::-1] for flow in reversed(flows)}
    first, second = solve(problem_of(network, flows)), solve(problem_of(network, turned))
    one = dict(zip(first.layout.flow_ids, first.flow_rates_mbps, strict=True))
    two = dict(zip(second.layout.flow_ids, second.flow_rates_mbps, strict=True))
    assert first.utility == pytest.approx(second.utility, rel=1e-7)
    assert one == pytest.approx(two, rel=1e-4, abs=1e-4)


@examples(15)
@given(SEEDS, st.floats(0.0, 0.9))
def test_external_airtime_is_left_alone(seed: int, external: float) -> None:
    problem = random_problem(seed, 5, limits=False)
    busy = np.random.default_rng(seed).uniform(0.0, external, problem.layout.link_count)
    result = solve(problem.changed(external=busy))
    assert np.all(problem.airtime(result.path_rates_mbps) <= np.maximum(0, 0.95 - busy) + 1e-9)
    assert result.utility <= solve(problem).utility + 1e-9


@examples(25)
@given(SEEDS, alphas)
def test_warm_start_gives_what_a_cold_start_gives(seed: int, alpha: float | None) -> None:
    problem = random_problem(seed, 8, alpha)
    rng = np.random.default_rng(seed)
    changed = problem.changed(capacity_mbps=problem.capacity_mbps * rng.uniform(0.8, 1.25, problem.layout.link_count))
    cold, warm = solve(changed), solve(changed, solve(problem))
    assert warm.utility == pytest.approx(cold.utility, rel=1e-6, abs=1e-9)
    if alpha != 0.0:
        assert warm.flow_rates_mbps == pytest.approx(cold.flow_rates_mbps, rel=1e-3, abs=1e-3)


def test_warm_start_on_the_same_problem_takes_no_step() -> None:
    problem = random_problem(3, 8)
    result = solve(problem)
    again = solve(problem, result)
    assert again.steps <= 1
    assert again.utility == pytest.approx(result.utility, rel=1e-8)


def test_a_warm_start_from_nothing_is_a_cold_start() -> None:
    """The only flow went, another one came: all earlier rates are 0."""
    problem = random_problem(5, 4)
    best = solve(problem)
    nothing = replace(best, path_rates_mbps=0 * best.path_rates_mbps, flow_rates_mbps=0 * best.flow_rates_mbps)
    assert solve(problem, nothing).utility == pytest.approx(best.utility, rel=1e-8)


@pytest.mark.parametrize("seed", seeds(8))
def test_the_rates_of_other_flows_are_a_warm_start_for_more_and_for_fewer(seed: int) -> None:
    """Flows come and go between slots: the optimum is that of a cold start."""
    rng = random.Random(seed)
    network = study_networks.enterprise(rng)
    flows = {f"f{i}": random_paths(network, rng, 2) for i in range(6)}
    some = problem_of(network, dict(list(flows.items())[1:4]))
    every = problem_of(network, flows)
    for before, after in ((some, every), (every, some)):
        start = transferred(solve(before), after.layout)
        warm, cold = solve(after, start), solve(after)
        assert relative_gap(warm) < 1e-6
        assert warm.flow_rates_mbps == pytest.approx(cold.flow_rates_mbps, rel=1e-4)


def test_links_that_do_not_exist_join_no_domains() -> None:
    """Two pairs of nodes that don't hear each other are independent, though a link between them could be discovered."""
    links = tuple(Link(name, *name, "wifi", mbps) for name, mbps in (("ab", 10.0), ("cd", 20.0), ("bc", 0.0)))
    conflicts = ConflictInterference(links, {"bc": ["ab", "cd"]})
    network = Network({n: Node(n, Role.AP) for n in "abcd"}, links, conflicts)
    flows = [FlowSpec("f", "a", "b"), FlowSpec("g", "c", "d")]
    apart = solve(rate_problem(network, {"f": [(0,)], "g": [(1,)]}, flows=flows, margin=0.1))
    assert apart.flow_rates_mbps == pytest.approx([9.0, 18.0])
    assert apart.max_airtime == pytest.approx(0.9)
    near = network.with_capacities({"bc": 5.0})
    joined = solve(rate_problem(near, {"f": [(0,)], "g": [(1,)]}, flows=flows, margin=0.1))
    assert joined.flow_rates_mbps[0] / 10 + joined.flow_rates_mbps[1] / 20 == pytest.approx(0.9)


@examples(60, quick=12)
@given(seed=st.integers(0, 10**6), changes=st.integers(1, 6))
def test_a_layout_made_from_another_is_the_one_made_from_nothing(seed: int, changes: int) -> None:
    rng = random.Random(seed)
    network = study_networks.enterprise(rng)
    flows = {f"f{i}": random_paths(network, rng, rng.randint(0, 3)) for i in range(5)}
    before = problem_of(network, flows)
    for change in range(changes):
        name = rng.choice([*flows, f"new{change}"])
        if name in flows and rng.random() < 0.4:
            flows = {flow: paths for flow, paths in flows.items() if flow != name}
        elif name in flows and flows[name] and rng.random() < 0.5:
            # One path stays, and may be there twice.
            flows = {**flows, name: [flows[name][0], *random_paths(network, rng, 1), flows[name][0]]}
        else:
            flows = {**flows, name: random_paths(network, rng, rng.randint(0, 3))}
        fresh = Layout.build(network.interference, flows)
        layout = Layout.build(network.interference, flows, before.layout)
        assert (layout.flow_ids, layout.paths) == (fresh.flow_ids, fresh.paths)
        assert np.array_equal(layout.path_flow, fresh.path_flow)
        assert (layout.routing != fresh.routing).nnz == (layout.domains != fresh.domains).nnz == 0
        ours, theirs = Pattern.of(layout), Pattern.of(fresh)
        for part in ("used", "column_of", "copies", "column_flow", "group_of", "container"):
            assert np.array_equal(getattr(ours, part), getattr(theirs, part))
        assert (ours.rows != theirs.rows).nnz == 0
        solved = solve(before)
        assert np.array_equal(transferred(solved, layout).path_rates_mbps, transferred(solved, fresh).path_rates_mbps)
        before = replace(before, layout=layout, utilities=Utilities.log([1.0] * len(flows)),
                         demand_mbps=np.full(len(flows), np.inf))  # fmt: skip

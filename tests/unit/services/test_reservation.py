"""Minimum rates are exact and admission says the truth, against a general solver that shares no code with ours."""

import random
from dataclasses import replace

import numpy as np
import pytest
import yaml
from examples import seeds
from rate_cases import relative_gap
from scipy.optimize import linprog, minimize

from hyroads.controller.core.errors import PlanningError
from hyroads.controller.core.multicast import Media, source_tree
from hyroads.controller.core.netfile import parse
from hyroads.controller.core.network import FlowSpec, Utility
from hyroads.controller.core.planner import Planner
from hyroads.controller.core.rates import rate_problem, solve
from hyroads.controller.core.rates.minimum import bounded_rate, solve_with_minimums
from hyroads.controller.core.reservation import Reservations, reserve_flow, reserve_session
from hyroads.controller.study import networks as study_networks

LINE = """
nodes: {a: {role: gateway}, b: {role: ap}, c: {role: ap}}
links:
  - {id: ab, from: a, to: b, technology: wifi, capacity_mbps: 10}
  - {id: ac, from: a, to: c, technology: wifi, capacity_mbps: 20}
  - {id: ab-plc, from: a, to: b, technology: plc, capacity_mbps: 8}
interference: {rule: technology}
"""


def line(paths, **options):
    network = parse(yaml.safe_load(LINE), "test.yaml")
    flows = [FlowSpec(name, "a", "b") for name in paths]
    return network, rate_problem(network, paths, flows=flows, **options)


def random_problem(seed: int):
    rng = random.Random(seed)
    network = study_networks.enterprise(rng, node_count=8)
    planner, paths, flows = Planner(network), {}, []
    while len(flows) < 4:
        source, target = study_networks.endpoints(network, rng)
        try:
            found = planner.plan(source, target, depth=2).multipath.links
        except PlanningError:
            continue
        name = f"f{len(flows)}"
        alpha = rng.choice([None, 0.5, 2.0])
        shape = {} if alpha is None else {"utility": Utility.ALPHA, "alpha": alpha}
        flows.append(FlowSpec(name, source, target, weight=rng.uniform(0.5, 2.0), **shape))
        paths[name] = found
    return rate_problem(network, paths, flows=flows, margin=0.05), rng


def dense(problem):
    """The rows from their definition."""
    busy = np.zeros((problem.layout.link_count, problem.layout.path_count))
    for column, path in enumerate(problem.layout.paths):
        rates = np.zeros(problem.layout.path_count)
        rates[column] = 1.0
        busy[:, column] = problem.airtime(rates)
        assert len(path)
    owner = np.equal.outer(np.arange(problem.layout.flow_count), problem.layout.path_flow).astype(float)
    return busy, owner


def reference(problem, minimum):
    """The optimum by a general method (SLSQP) from a feasible inside point."""
    busy, owner = dense(problem)
    rows = np.unique(busy.round(12), axis=0)
    budget = float(problem.budget[0])
    slack = np.full((len(rows) + len(owner), 1), 0.01)
    inside = linprog(
        np.append(np.zeros(busy.shape[1]), -1.0),
        A_ub=np.hstack([np.vstack([rows, -owner]), slack]),
        b_ub=np.concatenate([np.full(len(rows), budget), -minimum]),
        bounds=[(0.0, None)] * busy.shape[1] + [(0.0, 1.0)],
    )
    return minimize(
        lambda x: -problem.utilities.total(np.maximum(owner @ x, 1e-9)),
        inside.x[:-1] + 1e-6,
        jac=lambda x: -(problem.utilities.slopes(np.maximum(owner @ x, 1e-9)) @ owner),
        constraints=[
            {"type": "ineq", "fun": lambda x: budget - rows @ x, "jac": lambda x: -rows},
            {"type": "ineq", "fun": lambda x: owner @ x - minimum, "jac": lambda x: owner},
        ],
        bounds=[(0.0, None)] * busy.shape[1],
        method="SLSQP",
        options={"maxiter": 1000, "ftol": 1e-13},
    )


def test_by_hand():
    # One medium, log(1 + x): f over 10 Mb/s, g over 20 Mb/s. Free optimum: (1 + f) / 10 = (1 + g) / 20.
    _, problem = line({"f": [(0,)], "g": [(1,)]})
    free = solve(problem).flow_rates_mbps
    assert free == pytest.approx([4.75, 10.5])
    got = solve_with_minimums(problem, np.array([8.0, 0.0]))
    assert got.allocation.flow_rates_mbps == pytest.approx([8.0, 4.0], rel=1e-6)
    assert relative_gap(got.allocation) < 1e-6
    # A minimum below the free rate changes nothing, and one that demand does not fill is not filled.
    assert solve_with_minimums(problem, np.array([4.0, 1.0])).allocation.flow_rates_mbps == pytest.approx(free)
    idle = problem.changed(demand_mbps=np.array([1.0, np.inf]))
    assert solve_with_minimums(idle, np.array([8.0, 0.0])).allocation.flow_rates_mbps == pytest.approx([1.0, 18.0])


def test_a_minimum_is_met_over_all_paths():
    _, problem = line({"f": [(0,), (2,)], "g": [(1,)]})
    got = solve_with_minimums(problem, np.array([17.0, 0.0])).allocation
    assert got.flow_rates_mbps == pytest.approx([17.0, 2.0], rel=1e-6)
    assert got.path_rates_mbps == pytest.approx([9.0, 8.0, 2.0], rel=1e-5)


@pytest.mark.parametrize("seed", seeds(12))
def test_exact_against_a_general_solver(seed):
    problem, rng = random_problem(seed)
    free = solve(problem).flow_rates_mbps
    # Ask for more than the free rate for some, up to 90 % of what is possible for all together.
    asked = np.array([rng.choice([0.0, rng.uniform(1.0, 3.0)]) * rate for rate in free])
    asked[rng.randrange(len(asked))] = 1.5 * free.max()
    while bounded_rate(problem, asked / 0.9)[0] < 0:
        asked *= 0.9
    got = solve_with_minimums(problem, asked)
    rates, allocation = got.allocation.flow_rates_mbps, got.allocation
    assert got.minimum_mbps == pytest.approx(asked)
    assert np.all(rates >= asked * (1 - 1e-6)) and allocation.max_airtime <= 1 + 1e-9
    assert np.all(allocation.path_rates_mbps >= 0)
    best = reference(problem, asked)
    # No better than ours; a general method may stop a little short.
    assert -best.fun <= allocation.utility + 1e-6 * max(1.0, abs(allocation.utility))
    assert allocation.gap_utility <= 1e-6 * max(1.0, abs(allocation.utility))
    # The next slot starts warm and agrees.
    again = solve_with_minimums(problem, asked, warm=got)
    assert again.allocation.flow_rates_mbps == pytest.approx(rates, rel=1e-4, abs=1e-4)


def test_what_cannot_be_met_gives_way_from_the_end():
    _, problem = line({"f": [(0,)], "g": [(1,)]})
    both = np.array([8.0, 8.0])
    assert solve_with_minimums(problem, both).allocation.flow_rates_mbps == pytest.approx([8.0, 4.0], rel=1e-4)
    other = solve_with_minimums(problem, both, order=[1, 0])
    assert other.allocation.flow_rates_mbps == pytest.approx([6.0, 8.0], rel=1e-4)
    assert other.minimum_mbps == pytest.approx([6.0, 8.0], rel=1e-4)
    dead = problem.changed(capacity_mbps=np.array([0.0, 20.0, 8.0]))
    assert solve_with_minimums(dead, both).allocation.flow_rates_mbps == pytest.approx([0.0, 20.0])


def test_wrong_minimums_are_errors():
    _, problem = line({"f": [(0,)]})
    for wrong in (np.zeros(2), np.array([-1.0]), np.array([np.inf])):
        with pytest.raises(PlanningError, match="minimum_mbps"):
            solve_with_minimums(problem, wrong)


@pytest.mark.parametrize("seed", seeds(6))
def test_admission_says_the_truth(seed):
    """What is admitted can be allocated, and just above what is possible cannot."""
    problem, _ = random_problem(seed + 100)
    reservations = Reservations()
    for flow in problem.layout.flow_ids:
        asked = reserve_flow(reservations, problem, flow, 1e4)
        assert not asked.admitted and asked.reservations is reservations
        if asked.possible_mbps < 1e-3:
            continue
        granted = reserve_flow(reservations, problem, flow, 0.6 * asked.possible_mbps)
        assert granted.admitted
        assert not reserve_flow(reservations, problem, flow, 1.01 * asked.possible_mbps).admitted
        reservations = granted.reservations
    got = solve_with_minimums(
        problem,
        reservations.minimum_mbps(problem),
        order=[problem.layout.flow_ids.index(flow) for flow in reservations.flows],
    )
    promised = reservations.minimum_mbps(problem)
    assert promised.any() and np.all(got.allocation.flow_rates_mbps >= promised * (1 - 1e-6))
    busy, owner = dense(problem)
    last = problem.layout.flow_ids.index(list(reservations.flows)[-1])
    others = np.where(np.arange(4) == last, 0.0, promised)
    limits, right = np.vstack([busy, -owner]), np.concatenate([problem.budget, -others])
    most = linprog(-owner[last], A_ub=limits, b_ub=right).fun
    assert reserve_flow(reservations, problem, problem.layout.flow_ids[last], 1e4).possible_mbps == pytest.approx(-most)


def test_sessions_take_airtime_that_flows_then_do_not_have():
    network, problem = line({"f": [(0,)]})
    media = Media(network)
    airtime = media.domain_airtime(source_tree(media, "a", "bc").links)
    assert airtime == pytest.approx([0.1, 0.1, 0.0])  # b and c at once, at the rate of b
    answer = reserve_session(Reservations(), problem, "tv", 4.0, airtime)
    assert answer.admitted
    assert reserve_flow(answer.reservations, problem, "f", 7.0).possible_mbps == pytest.approx(6.0)
    flow = reserve_flow(answer.reservations, problem, "f", 5.5)
    assert flow.admitted
    more = reserve_session(flow.reservations, problem, "tv", 5.0, airtime)
    assert not more.admitted and more.possible_mbps == pytest.approx(4.5)
    left = flow.reservations.with_sessions(problem)
    assert solve(left).flow_rates_mbps == pytest.approx([6.0])
    assert reserve_flow(replace(flow.reservations, sessions={}), problem, "f", 10.0).admitted


def test_wrong_requests_are_errors():
    _, problem = line({"f": [(0,)]})
    with pytest.raises(PlanningError, match="no flow"):
        reserve_flow(Reservations(), problem, "g", 1.0)
    for wrong in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(PlanningError, match="rate_mbps"):
            reserve_flow(Reservations(), problem, "f", wrong)

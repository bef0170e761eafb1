"""Flows of a group have one utility, that of their total rate: against the definition, solved by another method."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from examples import examples, seeds
from hypothesis import given
from hypothesis import strategies as st
from rate_cases import constraint, network_of, problem_of, random_case
from scipy.optimize import minimize

from hyroads.controller.control.allocators import SolverMode
from hyroads.controller.core.network import FlowSpec
from hyroads.controller.core.rates import RateProblem, Utilities, solve
from hyroads.controller.core.rates.groups import Merged, with_parts_of_weight
from hyroads.controller.core.rates.shares import SliceShares

# Two ways from a to b, each a medium of its own.
TWO = network_of({"wifi": ("a", "b", "wifi", 30.0), "plc": ("a", "b", "plc", 10.0)})
WIFI, PLC = (0,), (1,)
SAME = {"x": "g", "y": "g"}


def allocated(problem: RateProblem, groups: dict[str, str]) -> dict[str, float]:
    merged = Merged.of(problem.layout, groups)
    assert merged is not None
    found = merged.allocation(problem, solve(merged.problem(problem)))
    assert found.layout is problem.layout
    assert len(found.link_prices) == problem.layout.link_count
    return dict(zip(problem.layout.flow_ids, found.flow_rates_mbps.tolist(), strict=True))


def test_a_group_gets_the_share_of_one_flow_where_all_meet():
    rates = allocated(problem_of(TWO, {"x": [WIFI], "other": [WIFI], "y": [WIFI]}), SAME)
    assert rates == pytest.approx({"x": 7.5, "y": 7.5, "other": 15.0}, rel=1e-3, abs=1e-3)


def test_a_group_leaves_a_shared_medium_to_others_as_far_as_it_has_another():
    # max log(1 + x + y) + log(1 + other): x + other = 30 and y = 10 give x = 10.
    rates = allocated(problem_of(TWO, {"x": [WIFI], "y": [PLC], "other": [WIFI]}), SAME)
    assert rates == pytest.approx({"x": 10.0, "y": 10.0, "other": 20.0}, rel=1e-3, abs=1e-3)


def test_what_a_member_does_not_want_the_others_of_its_group_get():
    flows = {"x": [WIFI], "y": [WIFI], "other": [WIFI]}
    rates = allocated(problem_of(TWO, flows, demand=np.array([2.0, np.inf, np.inf])), SAME)
    assert rates == pytest.approx({"x": 2.0, "y": 13.0, "other": 15.0}, rel=1e-3, abs=1e-3)
    rates = allocated(problem_of(TWO, flows, demand=np.array([0.0, np.inf, np.inf])), SAME)
    assert rates == pytest.approx({"x": 0.0, "y": 15.0, "other": 15.0}, rel=1e-3, abs=1e-3)


def test_the_weight_of_a_group_is_its_greatest():
    problem = problem_of(TWO, {"x": [WIFI], "y": [WIFI], "other": [WIFI]}, Utilities.log([1.0, 3.0, 1.0]))
    rates = allocated(problem, SAME)
    assert rates["x"] + rates["y"] > 20


def test_without_two_flows_of_one_group_nothing_is_merged():
    layout = problem_of(TWO, {"x": [WIFI], "y": [PLC]}).layout
    assert Merged.of(layout, {}) is None and Merged.of(layout, {"x": "g", "y": "h", "gone": "h"}) is None


@pytest.mark.parametrize("seed", seeds(20))
def test_the_utility_is_that_of_the_definition(seed):
    """SLSQP on all rates, with the constraint and the demands written down link by link."""
    network, problem = random_case(seed, 4, limits=True, most_paths=2)
    rng, flows = random.Random(seed), problem.layout.flow_ids
    groups = {flow: rng.choice("gh") for flow in flows[: rng.randint(2, 4)]}
    if len(set(groups.values())) == len(groups):
        groups[flows[0]] = groups[flows[1]] = "g"
    merged = Merged.of(problem.layout, groups)
    assert merged is not None
    found = merged.allocation(problem, solve(merged.problem(problem)))
    rows, budget = constraint(network, problem), problem.budget
    owner = np.equal.outer(np.arange(len(flows)), problem.layout.path_flow).astype(float)
    together = np.array([[groups.get(f) == groups.get(g) != None or f == g for g in flows] for f in flows], dtype=float)  # noqa: E711
    weight = np.array([max(w for w, t in zip(problem.utilities.weight, row, strict=True) if t) for row in together])
    size = together.sum(axis=1)

    def utility(rates: np.ndarray) -> float:
        return float((weight / size * np.log1p(together @ owner @ rates)).sum())

    mine = found.path_rates_mbps
    assert (rows @ mine <= budget + 1e-6).all() and (found.flow_rates_mbps <= problem.demand_mbps + 1e-6).all()
    limits = [{"type": "ineq", "fun": lambda x: budget - rows @ x}]
    finite = np.isfinite(problem.demand_mbps)
    if finite.any():
        limits.append({"type": "ineq", "fun": lambda x: (problem.demand_mbps - owner @ x)[finite]})
    other = minimize(
        lambda x: -utility(x), mine * 0.5 + 0.01, bounds=[(0, None)] * len(mine), constraints=limits, method="SLSQP"
    )
    feasible = other.x * min(1.0, float((budget / np.maximum(rows @ other.x, 1e-12)).min()))
    assert utility(mine) >= utility(feasible) - 1e-4
    assert found.utility == pytest.approx(utility(mine), rel=1e-6)
    assert found.gap_utility <= 1e-5 * max(1.0, abs(found.utility))


@given(st.integers(0, 10_000))
@examples(40)
def test_a_warm_start_changes_nothing(seed):
    _, problem = random_case(seed, 4)
    flows = problem.layout.flow_ids
    groups = dict.fromkeys(flows[:2], "g")
    if len(flows) < 2:
        return
    mode = SolverMode()
    mode.laid_out(problem, None, groups)
    first = mode.allocate(problem, None)
    slower = problem.changed(capacity_mbps=problem.capacity_mbps * 0.9)
    again = mode.allocate(slower, first)
    assert again.flow_rates_mbps == pytest.approx(list(allocated(slower, groups).values()), rel=1e-2, abs=1e-2)


def test_slices_and_guarantees_hold_with_groups():
    problem = problem_of(TWO, {"x": [WIFI], "y": [WIFI], "other": [WIFI], "more": [WIFI]})
    specs = [
        FlowSpec("x", "a", "b", group="g", slice="lab"), FlowSpec("y", "a", "b", group="g", slice="lab"),
        FlowSpec("other", "a", "b"), FlowSpec("more", "a", "b"),
    ]  # fmt: skip
    shares = SliceShares.of(specs, TWO.links, {"lab": {"wifi": 0.2}})
    mode = SolverMode()
    mode.laid_out(problem, shares, SAME)
    found = mode.allocate(problem, None)
    assert found.flow_rates_mbps == pytest.approx([3.0, 3.0, 12.0, 12.0], rel=1e-3)
    assert mode.held == {("lab", 0)}
    # A guarantee is the flow's own: it leaves its group, and the other member has the group's utility for itself.
    mode = SolverMode()
    mode.laid_out(problem, None, SAME)
    mode.guarantee({"x": 15.0})
    found = mode.allocate(problem, None)
    assert found.flow_rates_mbps == pytest.approx([15.0, 5.0, 5.0, 5.0], rel=1e-3)
    assert mode.granted["x"].given_mbps == pytest.approx(15.0, rel=1e-3)


def test_the_papers_controller_gets_parts_of_the_weight():
    spec = FlowSpec("x", "a", "b", weight=3.0, group="g")
    specs = [spec, replace(spec, id="y", weight=1.0), FlowSpec("z", "a", "b"), replace(spec, id="w", slice="lab")]
    assert [each.weight for each in with_parts_of_weight(specs)] == [1.5, 0.5, 1.0, 3.0]

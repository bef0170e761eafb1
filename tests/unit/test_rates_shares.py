"""Airtime shares of slices: cases known by hand, an independent solver, and laws."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from examples import examples, seeds
from hypothesis import given
from hypothesis import strategies as st
from rate_cases import alpha_fair, constraint, network_of, problem_of, random_case
from scipy.optimize import minimize
from scipy.sparse import csr_matrix

from hyroads.controller.control.allocators import SolverMode
from hyroads.controller.core.network import PRODUCTION, FlowSpec, Network
from hyroads.controller.core.rates import Layout, RateProblem, Utilities, solve, solver
from hyroads.controller.core.rates.allocation import transferred
from hyroads.controller.core.rates.problem import Bounds
from hyroads.controller.core.rates.shares import (
    Bound,
    Shared,
    SliceShares,
    _sets_of,
    airtime_of_slices,
    solve_with_shares,
)

NEAR = 1e-3
WIFI_MBPS = 100.0


def one_domain(
    flows: dict[str, tuple[str, float]], shares: dict[str, float], weights: list[float] | None = None
) -> tuple[RateProblem, SliceShares | None]:
    """Flows (id -> slice, demand) over one link each of one WiFi channel, 100 Mb/s: a rate in per cent is airtime."""
    network = network_of({flow: (f"{flow}-a", f"{flow}-b", "wifi", WIFI_MBPS) for flow in flows})
    demand = np.array([most for _, most in flows.values()])
    utilities = Utilities.log(weights or [1.0] * len(flows))
    paths = {flow: [(index,)] for index, flow in enumerate(flows)}
    problem = problem_of(network, paths, utilities, demand=demand)
    return problem, shares_of(
        network, {flow: of for flow, (of, _) in flows.items()}, {s: {"wifi": x} for s, x in shares.items()}
    )


def shares_of(network: Network, slices: dict[str, str], shares: dict[str, dict[str, float]]) -> SliceShares | None:
    specs = [FlowSpec(flow, "", "", slice=name) for flow, name in slices.items()]
    return SliceShares.of(specs, network.links, shares)


def rates(case: tuple[RateProblem, SliceShares | None]) -> list[float]:
    problem, shares = case
    assert shares is not None
    return solve_with_shares(problem, shares).allocation.flow_rates_mbps.tolist()


GREEDY = np.inf


@pytest.mark.parametrize(
    ("flows", "shares", "weights", "expected"),
    [
        # Both want all: research has its share, however many flows each has.
        ({"p": (PRODUCTION, GREEDY), "r": ("research", GREEDY)}, {"research": 0.25}, None, [75, 25]),
        (
            {"p": (PRODUCTION, GREEDY), **dict.fromkeys("rst", ("research", GREEDY))},
            {"research": 0.3},
            None,
            [70, 10, 10, 10],
        ),
        # A weight is for flows of a slice among each other, and no way around its share.
        (
            {"p": (PRODUCTION, GREEDY), "r": ("research", GREEDY), "s": ("research", GREEDY)},
            {"research": 0.25},
            [1.0, 1000.0, 1000.0],
            [75, 12.5, 12.5],
        ),
        # Production wants nothing, little, more than a fair share: what it leaves is research's.
        ({"p": (PRODUCTION, 0.0), "r": ("research", GREEDY)}, {"research": 0.25}, None, [0, 100]),
        ({"p": (PRODUCTION, 10.0), "r": ("research", GREEDY)}, {"research": 0.25}, None, [10, 90]),
        ({"p": (PRODUCTION, 60.0), "r": ("research", GREEDY)}, {"research": 0.25}, None, [60, 40]),
        # A share is a bound and no promise: research wants less, or has a smaller weight.
        ({"p": (PRODUCTION, GREEDY), "r": ("research", 5.0)}, {"research": 0.25}, None, [95, 5]),
        # Two slices alone: nothing is idle, and neither is above its share while the other misses its own.
        ({"r": ("research", GREEDY), "g": ("guests", GREEDY)}, {"research": 0.25, "guests": 0.25}, None, [50, 50]),
        (
            {"r": ("research", GREEDY), "g": ("guests", GREEDY)},
            {"research": 0.25, "guests": 0.25},
            [1000.0, 1.0],
            [75, 25],
        ),
        # Two slices that share what production leaves must leave it that.
        (
            {"p": (PRODUCTION, 50.0), "r": ("research", GREEDY), "g": ("guests", GREEDY)},
            {"research": 0.2, "guests": 0.2},
            None,
            [50, 25, 25],
        ),
        # A share of nothing is what nobody else wants.
        ({"p": (PRODUCTION, GREEDY), "r": ("research", GREEDY)}, {"research": 0.0}, None, [100, 0]),
        ({"p": (PRODUCTION, 70.0), "r": ("research", GREEDY)}, {"research": 0.0}, None, [70, 30]),
    ],
)  # fmt: skip
def test_one_domain_by_hand(flows, shares, weights, expected) -> None:
    assert rates(one_domain(flows, shares, weights)) == pytest.approx(expected, abs=0.03)


def test_without_a_slice_that_has_a_share_there_is_nothing_to_keep() -> None:
    flows = {"p": (PRODUCTION, GREEDY), "r": ("research", GREEDY)}
    assert one_domain(flows, {})[1] is None
    assert one_domain(flows, {"research": 1.0})[1] is None
    assert one_domain(flows, {"guests": 0.5})[1] is None


def test_shares_are_of_what_margin_and_external_traffic_leave() -> None:
    problem, shares = one_domain({"p": (PRODUCTION, GREEDY), "r": ("research", GREEDY)}, {"research": 0.25})
    assert shares is not None
    less = replace(problem, margin=problem.margin + 0.1, external=problem.external + 0.5)
    found = solve_with_shares(less, shares)
    assert found.allocation.flow_rates_mbps == pytest.approx([30, 10], rel=NEAR)
    assert found.bounds == (Bound((0,), found.bounds[0].link, pytest.approx(0.1, rel=NEAR)),)


def test_a_slice_is_bound_only_on_the_technology_and_where_others_want_more() -> None:
    """Research may use all of power line, and of the second channel, where production is not."""
    links = {
        "p": ("a", "b", "wifi-5", 100),
        "r1": ("c", "d", "wifi-5", 100),
        "r2": ("c", "d", "plc", 100),
        "p2": ("e", "f", "plc", 100),
        "r3": ("c", "d", "wifi-2", 100),
    }
    network = network_of(links)
    paths = {"p": [(0,)], "r": [(1,), (2,), (4,)], "p2": [(3,)]}
    shares = shares_of(
        network, {"p": PRODUCTION, "r": "research", "p2": PRODUCTION}, {"research": {"wifi-5": 0.25, "wifi-2": 0.25}}
    )
    assert shares is not None
    problem = problem_of(network, paths, alpha_fair([1.0, 5.0, 1.0], 1.0))
    found = solve_with_shares(problem, shares).allocation.path_rates_mbps
    # Proportional fairness on power line: 5 / (125 + x) = 1 / (100 - x) has x = 62.5.
    assert found == pytest.approx([75, 25, 62.5, 100, 37.5], rel=NEAR)


def test_it_keeps_the_rates_that_are_promised() -> None:
    mode = SolverMode()
    problem, shares = one_domain(
        {"p": (PRODUCTION, GREEDY), "r": ("research", GREEDY), "s": ("research", GREEDY)}, {"research": 0.3}
    )
    mode.laid_out(problem, shares)
    mode.guarantee({"s": 20.0})
    for _ in range(2):
        allocation = mode.allocate(problem, None)
        assert allocation.flow_rates_mbps == pytest.approx([70, 10, 20], rel=NEAR)
        assert not mode.granted["s"].is_short and mode.held
    # More than the share is more than there is.
    mode.guarantee({"s": 50.0})
    assert mode.allocate(problem, None).flow_rates_mbps[0] == pytest.approx(70, rel=NEAR)
    assert mode.granted["s"].is_short and mode.granted["s"].given_mbps == pytest.approx(30, rel=NEAR)


# Random networks


def random_shares(
    seed: int, flow_count: int, alpha: float | None = None, most_paths: int = 4
) -> tuple[Network, RateProblem, SliceShares]:
    """A random problem whose flows are in up to three slices with shares of some technologies, and production."""
    rng = random.Random(seed)
    for attempt in range(100):
        network, problem = random_case(seed + 1000 * attempt, flow_count, alpha, most_paths=most_paths)
        names = ["one", "two", "three"][: rng.randint(1, 3)]
        slices = {flow: rng.choice([PRODUCTION, *names]) for flow in problem.layout.flow_ids}
        shares = {
            name: {k: rng.choice([0.1, 0.3]) for k in network.technologies if rng.random() < 0.8} for name in names
        }
        found = shares_of(network, slices, shares)
        if found is not None:
            return network, problem, found
    raise AssertionError("no case")


SEEDS = st.integers(0, 10_000)
alphas = st.sampled_from([None, 0.5, 1.0, 2.0])


def airtimes(problem: RateProblem, shares: SliceShares, path_rates: np.ndarray) -> np.ndarray:
    """Slices by links; those without a share last."""
    return airtime_of_slices(problem, path_rates, shares.slice_of, len(shares.names) + 1)


def general_optimum(network: Network, problem: RateProblem, shares: SliceShares, bounds: list[Bound]) -> float:
    """The utility that a general solver finds with these bounds, written down from the definition."""
    layout, utilities = problem.layout, problem.utilities
    matrix, of_path = constraint(network, problem), shares.slice_of[layout.path_flow]
    own = np.array([layout.path_flow == flow for flow in range(layout.flow_count)], dtype=float)
    finite = np.isfinite(problem.demand_mbps)
    bounded = [matrix[bound.link] * np.isin(of_path, bound.slices) for bound in bounds]
    rows = np.vstack([matrix, own[finite], *bounded])
    limits = np.concatenate([problem.budget, problem.demand_mbps[finite], [bound.airtime for bound in bounds]])
    keep = np.unique(np.column_stack([rows, limits]), axis=0, return_index=True)[1]
    keep = keep[rows[keep].any(axis=1)]
    rows, limits = rows[keep], limits[keep]

    def cost(x: np.ndarray) -> float:
        return -utilities.total(np.maximum(layout.flow_rates(x), 1e-9))

    def slope(x: np.ndarray) -> np.ndarray:
        return -utilities.slopes(np.maximum(layout.flow_rates(x), 1e-9))[layout.path_flow]

    alone = np.array([(limits[rows[:, p] > 0] / rows[rows[:, p] > 0, p]).min() for p in range(rows.shape[1])])
    constraints = {"type": "ineq", "fun": lambda x: limits - rows @ x, "jac": lambda x: -rows}
    found = minimize(
        cost,
        alone / (2 * layout.path_count),
        jac=slope,
        bounds=[(0, None)] * layout.path_count,
        constraints=constraints,
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-12},
    )
    return -float(found.fun)


@pytest.mark.parametrize("alpha", [None, 1.0])
@pytest.mark.parametrize("seed", seeds(6))
def test_entitlements_and_rates_equal_a_general_solver(seed: int, alpha: float | None) -> None:
    network, problem, shares = random_shares(seed, 5, alpha)
    found = solve_with_shares(problem, shares)
    if found.entitled is not None:
        alone = [
            Bound((index,), link, float(shares.share[index, link] * problem.budget[link]))
            for index in range(len(shares.names))
            for link in range(len(network.links))
            if shares.share[index, link] < 1
        ]
        oracle = general_optimum(network, problem, shares, alone)
        assert found.entitled.utility >= oracle - 1e-5 * max(1.0, abs(oracle))
        assert found.entitled.utility == pytest.approx(oracle, rel=2e-3, abs=2e-3)
    oracle = general_optimum(network, problem, shares, list(found.bounds))
    assert found.allocation.utility >= oracle - 1e-5 * max(1.0, abs(oracle))
    assert found.allocation.utility == pytest.approx(oracle, rel=2e-3, abs=2e-3)


def most(problem: RateProblem, shares: SliceShares, entitled: np.ndarray, members: tuple[int, ...], link: int) -> float:
    """The bound of a set of slices by the formula."""
    budget = problem.budget[link]
    within = sum(shares.share[index, link] for index in members) * budget
    others = sum(entitled[index, link] for index in range(len(entitled)) if index not in members)
    return min(budget, max(within, budget - others))


@examples(40)
@given(SEEDS, alphas, st.integers(2, 10))
def test_bounds_are_those_of_the_formula_and_hold(seed: int, alpha: float | None, flows: int) -> None:
    _, earlier, shares = random_shares(seed, flows, alpha)
    cold = solve_with_shares(earlier, shares)
    later = earlier.changed(capacity_mbps=earlier.capacity_mbps * 1.03)
    for problem, found in ((earlier, cold), (later, solve_with_shares(later, shares, warm=cold))):
        check_formula(problem, shares, found)


def check_formula(problem: RateProblem, shares: SliceShares, found: Shared) -> None:
    taken = airtimes(problem, shares, found.allocation.path_rates_mbps)
    assert np.all(taken.sum(axis=0)[problem.capacity_mbps > 0] <= problem.budget[problem.capacity_mbps > 0] + 1e-9)
    assert np.all(found.allocation.flow_rates_mbps <= problem.demand_mbps * (1 + 1e-9))
    if not found.bounds:
        assert found.allocation is found.plain
        return
    assert found.entitled is not None
    alone = airtimes(problem, shares, found.entitled.path_rates_mbps)
    for bound in found.bounds:
        assert bound.airtime == pytest.approx(most(problem, shares, alone, bound.slices, bound.link), abs=1e-6)
        assert taken[list(bound.slices), bound.link].sum() <= bound.airtime + 1e-6


@examples(40)
@given(SEEDS, st.integers(2, 10))
def test_nobody_misses_his_part_beside_somebody_above_his_share(seed: int, flows: int) -> None:
    """Looked for by brute force: every set of slices in the domain of every link, with prices from the definition."""
    network, problem, shares = random_shares(seed, flows, 1.0)
    found = solve_with_shares(problem, shares)
    rates = found.allocation.path_rates_mbps
    entitled = found.entitled or solve(problem)
    taken, alone = airtimes(problem, shares, rates), airtimes(problem, shares, entitled.path_rates_mbps)
    matrix = constraint(network, problem)
    hungry = found.allocation.flow_rates_mbps < problem.demand_mbps * (1 - 1e-2)
    slopes = problem.utilities.slopes(found.allocation.flow_rates_mbps)
    of_path, path_flow = shares.slice_of[problem.layout.path_flow], problem.layout.path_flow
    prices = found.allocation.link_prices
    for link in np.flatnonzero(prices > 0).tolist():
        # Whose flows pay noticeably for this domain, and would take more if it cost nothing.
        pays = (prices[link] * matrix[link] > 0.02 * slopes[path_flow]) & (rates > 1e-3) & hungry[path_flow]
        missing = {
            index
            for index in set(of_path[pays].tolist())
            if taken[index, link] < alone[index, link] - 1e-3 * problem.budget[link]
        }
        bound = [index for index in range(len(shares.names)) if shares.share[index, link] < 1]
        sets = [(index,) for index in bound] + [tuple(bound)]
        sets += list(combinations(bound, len(bound) - 1)) if len(bound) > 2 else []
        for members in sets:
            if members and missing - set(members):
                limit = most(problem, shares, alone, members, link)
                assert taken[list(members), link].sum() <= limit + 1e-3 * problem.budget[link] + 1e-6


@examples(25)
@given(SEEDS, alphas, st.integers(2, 8))
def test_no_airtime_is_idle_that_somebody_could_use(seed: int, alpha: float | None, flows: int) -> None:
    """Every path of a flow that wants more crosses a domain that is full, or one where its slice is at a bound."""
    network, problem, shares = random_shares(seed, flows, alpha)
    found = solve_with_shares(problem, shares)
    rates = found.allocation.path_rates_mbps
    matrix, of_path = constraint(network, problem), shares.slice_of[problem.layout.path_flow]
    full = problem.airtime(rates) >= problem.budget - 1e-5
    at_bound = np.zeros((len(shares.names) + 1, len(network.links)), dtype=bool)
    taken = airtimes(problem, shares, rates)
    for bound in found.bounds:
        if taken[list(bound.slices), bound.link].sum() >= bound.airtime - 1e-5:
            at_bound[list(bound.slices), bound.link] = True
    for path, flow in enumerate(problem.layout.path_flow.tolist()):
        if found.allocation.flow_rates_mbps[flow] < problem.demand_mbps[flow] * (1 - 1e-4):
            crossed = matrix[:, path] > 0
            assert (crossed & (full | at_bound[of_path[path]])).any()


@examples(20)
@given(SEEDS, alphas, st.integers(2, 8))
def test_the_order_of_flows_does_not_matter(seed: int, alpha: float | None, flows: int) -> None:
    # With one path each, the entitled airtime is unique; else flows that want no more have many splits.
    network, problem, shares = random_shares(seed, flows, alpha, most_paths=1)
    layout = problem.layout
    order = list(range(layout.flow_count))
    random.Random(seed).shuffle(order)
    slices = layout.path_slices()
    paths = {layout.flow_ids[flow]: list(layout.paths[slices[flow]]) for flow in order}
    shuffled = problem_of(
        network, paths, problem.utilities.select(np.array(order)), 0.05, problem.external, problem.demand_mbps[order]
    )
    names = list(dict.fromkeys(shares.slice_of[order].tolist()))
    bound = [index for index in names if index < len(shares.names)]
    renamed = {index: number for number, index in enumerate(bound)}
    other = SliceShares(
        tuple(shares.names[index] for index in bound),
        np.array([renamed.get(index, len(bound)) for index in shares.slice_of[order].tolist()]),
        shares.share[bound],
    )
    first, second = solve_with_shares(problem, shares), solve_with_shares(shuffled, other)
    expected = first.allocation.flow_rates_mbps[order]
    assert second.allocation.flow_rates_mbps == pytest.approx(expected, rel=2e-3, abs=2e-3)


def spread_out(problem: RateProblem, bounds: Bounds) -> RateProblem:
    """The same problem without bounds: every slice crosses links of its own, and each bound is one more link."""
    layout, links, slices = problem.layout, problem.layout.link_count, bounds.sets.shape[1]
    contention = layout.domains[layout.class_of].toarray()
    set_of, at = np.nonzero(np.isfinite(bounds.most))
    rows = [np.tile(contention, slices), np.zeros((slices * links, slices * links))]
    rows.append(np.hstack([contention[at] * bounds.sets[set_of, s, None] for s in range(slices)]))
    domains = np.vstack(rows)
    routing = layout.routing.toarray()
    own = [routing * (bounds.slice_of[layout.path_flow] == s)[:, None] for s in range(slices)]
    more = domains.shape[0] - (1 + slices) * links
    crossed = np.hstack([np.zeros_like(routing), *own, np.zeros((len(routing), more))])
    wide = Layout(
        layout.flow_ids,
        layout.path_flow,
        tuple(tuple(np.flatnonzero(row).tolist()) for row in crossed),
        csr_matrix(crossed),
        np.arange(len(domains)),
        csr_matrix(np.hstack([np.zeros((len(domains), links)), domains, np.zeros((len(domains), more))])),
    )
    spread = [np.tile(each, 1 + slices) for each in (problem.capacity_mbps, problem.margin, problem.external)]
    less = problem.budget[at] - np.minimum(bounds.most[set_of, at], problem.budget[at])
    return RateProblem(
        wide,
        problem.utilities,
        np.concatenate([spread[0], problem.capacity_mbps[at]]),
        np.concatenate([spread[1], problem.margin[at]]),
        np.concatenate([spread[2], problem.external[at] + less]),
        problem.demand_mbps,
    )


@examples(20)
@given(SEEDS, alphas, st.integers(2, 10))
def test_bounds_are_rows_like_any_others(seed: int, alpha: float | None, flows: int) -> None:
    """Beside the same problem without bounds, in which each of them is a row of the network; cold and warm."""
    _, problem, shares = random_shares(seed, flows, alpha)
    sets, rng = _sets_of(shares), np.random.default_rng(seed)
    most = sets.alone(problem)
    most[rng.random(most.shape) < 0.3] = np.inf
    bounded = sets.bounded(problem, most)
    later = bounded.changed(capacity_mbps=problem.capacity_mbps * rng.uniform(0.5, 1.5, len(problem.capacity_mbps)))
    cold = solve(bounded)
    for posed, few in ((bounded, cold), (later, solve(later, cold))):
        assert posed.bounds is not None
        every = solve(spread_out(posed, posed.bounds))
        assert few.utility == pytest.approx(every.utility, rel=1e-5, abs=1e-5)
        assert few.flow_rates_mbps == pytest.approx(every.flow_rates_mbps, rel=2e-3, abs=2e-3)
        assert few.gap_utility <= 1e-5 * max(1.0, abs(few.utility))


@examples(25)
@given(SEEDS, alphas, st.integers(2, 10))
def test_compiled_and_reference_agree_with_bounds(seed: int, alpha: float | None, flows: int) -> None:
    _, problem, shares = random_shares(seed, flows, alpha)
    sets = _sets_of(shares)
    bounded = sets.bounded(problem, sets.alone(problem))
    found = solve(bounded)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solver, "kernel", lambda: None)
        expected = solve(bounded)
        warm = solve(bounded.changed(capacity_mbps=problem.capacity_mbps * 1.1), expected)
    assert found.utility == pytest.approx(expected.utility, rel=1e-6, abs=1e-6)
    assert found.flow_rates_mbps == pytest.approx(expected.flow_rates_mbps, rel=2e-3, abs=2e-3)
    again = solve(bounded.changed(capacity_mbps=problem.capacity_mbps * 1.1), found)
    assert again.utility == pytest.approx(warm.utility, rel=1e-6, abs=1e-6)


@examples(20)
@given(SEEDS, alphas, st.integers(2, 8))
def test_a_warm_start_ends_where_a_cold_one_does(seed: int, alpha: float | None, flows: int) -> None:
    _, problem, shares = random_shares(seed, flows, alpha, most_paths=1)
    changed = problem.changed(capacity_mbps=problem.capacity_mbps * 1.03)
    warm = solve_with_shares(changed, shares, warm=solve_with_shares(problem, shares))
    cold = solve_with_shares(changed, shares)
    assert warm.allocation.flow_rates_mbps == pytest.approx(cold.allocation.flow_rates_mbps, rel=2e-3, abs=2e-3)
    again = solve_with_shares(changed, shares, warm=warm)
    assert again.allocation.utility == pytest.approx(warm.allocation.utility, rel=1e-6)


def test_rates_of_another_layout_are_a_warm_start() -> None:
    _, problem, shares = random_shares(7, 6)
    wanted = solve_with_shares(problem, shares)
    start = transferred(wanted.allocation, problem.layout)
    found = solve_with_shares(problem, shares, warm=Shared(start, start, None))
    assert found.allocation.flow_rates_mbps == pytest.approx(wanted.allocation.flow_rates_mbps, rel=1e-3, abs=1e-3)


def test_bounds_are_for_each_slice_for_all_and_for_all_but_one() -> None:
    for count in range(1, 6):
        shares = SliceShares(tuple("abcde"[:count]), np.arange(count), np.full((count, 2), 0.5))
        found = {tuple(np.flatnonzero(members)) for members in _sets_of(shares).members}
        assert found == {one for size in (1, count - 1, count) for one in combinations(range(count), size) if one}

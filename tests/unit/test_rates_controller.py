"""The slotted controller: its fixed point is the solver's optimum, its rules are those of the papers."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from examples import seeds
from rate_cases import alpha_fair, drawn_network, slots_to_converge, study_case

from hyroads.controller.control.allocators import ControllerMode
from hyroads.controller.core.errors import PlanningError
from hyroads.controller.core.netfile import parse
from hyroads.controller.core.network import Network
from hyroads.controller.core.planner import Planner
from hyroads.controller.core.rates import RateProblem, Utilities, rate_problem, solve
from hyroads.controller.core.rates.controller_mode import (
    ControllerSettings,
    ControllerState,
    Oscillation,
    default_step_size,
    distance,
    run,
    step,
)
from hyroads.controller.core.tree import path_rate
from hyroads.controller.study import networks as study_networks

TRIANGLE = parse(
    {
        "nodes": {"a": {"role": "gateway"}, "b": {"role": "ap"}, "c": {"role": "client"}},
        "links": [
            {"id": "ab-plc", "from": "a", "to": "b", "technology": "plc", "capacity_mbps": 10, "both": True},
            {"id": "ab-wifi", "from": "a", "to": "b", "technology": "wifi", "capacity_mbps": 15, "both": True},
            {"id": "bc-wifi", "from": "b", "to": "c", "technology": "wifi", "capacity_mbps": 30, "both": True},
        ],
        "interference": {"rule": "technology"},
        "flows": [{"id": "f", "from": "a", "to": "c"}, {"id": "g", "from": "a", "to": "b"}],
    },
    "test",
)
AB_PLC, AB_WIFI, BC_WIFI = 0, 2, 4


def triangle(paths: dict[str, list[tuple[int, ...]]], margin: float = 0.0) -> RateProblem:
    flows = [flow for flow in TRIANGLE.flows if flow.id in paths]
    return rate_problem(TRIANGLE, paths, flows=flows, margin=margin)


MULTIPATH = {"f": [(AB_PLC, BC_WIFI), (AB_WIFI, BC_WIFI)]}
SETTINGS = ControllerSettings()
# One unit for all paths, step sizes by flows and hops.
PUBLISHED = ControllerSettings(rate_unit_mbps=50.0)


def after(problem: RateProblem, slots: int, settings: ControllerSettings = SETTINGS) -> ControllerState:
    return deque(run(problem, settings, slots), maxlen=1)[0]


def settled(
    problem: RateProblem, settings: ControllerSettings, slots: int, near: Callable[[ControllerState], bool]
) -> ControllerState:
    """The state after 200 slots in a row that are ``near``; none within ``slots`` is a failure."""
    row = 0
    for state in run(problem, settings, slots):
        row = row + 1 if near(state) else 0
        if row == 200:
            return state
    raise AssertionError(f"not there after {slots} slots: {state}")


def study_network(seed: int) -> Network:
    return drawn_network(random.Random(seed))


# The rules, by hand


def test_one_slot_of_the_published_proximal_rule_by_hand() -> None:
    problem = triangle(MULTIPATH)
    zero = ControllerState.initial(problem.layout, PUBLISHED)
    state = replace(zero, path_rates_mbps=np.array([10.0, 20.0]), averages_mbps=np.array([8.0, 16.0]))
    result = step(problem, state, PUBLISHED)
    alpha, unit = 0.04, 50.0  # the longest path has two hops
    plc, wifi = 10 / 10, 20 / 15 + 30 / 30
    gamma_wifi = alpha * (wifi - 1)
    assert result.link_prices == pytest.approx([alpha * (plc - 1)] * 2 + [gamma_wifi] * 4)
    # The WiFi domain has four links, and each of them has a price.
    price = np.array([4 * gamma_wifi / 30, 4 * gamma_wifi / 30 + 4 * gamma_wifi / 15])
    wanted = state.averages_mbps + unit**2 * (1 / 31 - price)
    # Alone on an idle network they carry 10 Mb/s, and 10 as 1 / (1 / 15 + 1 / 30).
    rates = np.clip((1 - alpha) * state.path_rates_mbps + alpha * wanted, 0, [10, 10])
    assert result.path_rates_mbps == pytest.approx(rates)
    assert result.averages_mbps == pytest.approx((1 - alpha) * state.averages_mbps + alpha * rates)


def test_one_slot_of_the_papers_order_by_hand() -> None:
    """Prices and averages follow from what was there before the slot, not from what the slot finds."""
    settings = replace(PUBLISHED, simultaneous=True)
    problem = triangle(MULTIPATH)
    zero = ControllerState.initial(problem.layout, settings)
    rates, averages, gamma = np.array([4.0, 6.0]), np.array([2.0, 3.0]), np.array([0.0, 0.0, 0.1, 0.0, 0.1, 0.0])
    state = replace(zero, path_rates_mbps=rates, averages_mbps=averages, link_prices=gamma)
    result = step(problem, state, settings)
    alpha, unit = 0.04, 50.0
    busy = np.array([4 / 10] * 2 + [6 / 15 + 10 / 30] * 4)
    assert result.link_prices == pytest.approx(np.maximum(0.0, gamma + alpha * (busy - 1.0)))
    price = np.array([0.2 / 30, 0.2 / 30 + 0.2 / 15])
    wanted = (1 - alpha) * rates + alpha * (averages + unit**2 * (1 / 11 - price))
    assert result.path_rates_mbps == pytest.approx(np.clip(wanted, 0, 10))
    assert result.averages_mbps == pytest.approx((1 - alpha) * averages + alpha * rates)
    # Without it the prices of this slot count, which are lower.
    ours = step(problem, state, PUBLISHED)
    assert (ours.averages_mbps > result.averages_mbps).all()


def test_one_slot_with_own_units_by_hand() -> None:
    problem, settings = triangle(MULTIPATH), replace(SETTINGS, step_size=0.5)
    zero = ControllerState.initial(problem.layout, settings)
    state = replace(zero, path_rates_mbps=np.array([3.0, 8.0]), averages_mbps=np.array([3.0, 7.0]))
    result = step(problem, state, settings)
    alpha = 0.5
    squares = np.array([10.0, 10.0]) * (1 + 11)
    airtime = np.array([[1 / 10, 0], [1 / 30, 1 / 15 + 1 / 30]])
    busy = airtime @ [3, 8]
    # The domain of PLC has two links, that of WiFi four.
    price_of_ones = airtime.T @ [2, 4]
    gain = airtime @ (alpha * squares * price_of_ones)
    prices = np.maximum(0, np.minimum(alpha, 1 / gain) * (busy - 1))
    assert 1 / gain[1] < alpha, "the bound counts"
    assert result.link_prices == pytest.approx([prices[0]] * 2 + [prices[1]] * 4)
    path_prices = airtime.T @ (prices * [2, 4])
    wanted = state.averages_mbps + squares * (1 / 12 - path_prices)
    rates = np.clip((1 - alpha) * state.path_rates_mbps + alpha * wanted, 0, 10)
    assert result.path_rates_mbps == pytest.approx(rates)
    assert result.averages_mbps == pytest.approx((1 - alpha) * state.averages_mbps + alpha * rates)


def test_one_slot_of_the_single_path_rule_by_hand() -> None:
    problem = triangle({"g": [(AB_PLC,)]})
    state = replace(ControllerState.initial(problem.layout, PUBLISHED), link_prices=np.array([2.0, 0, 0, 0, 0, 0]))
    result = step(problem, state, PUBLISHED)
    gamma = 2.0 + 0.08 * (0 - 1)
    assert result.path_rates_mbps == pytest.approx([10 / gamma - 1])


def test_step_size_heuristic() -> None:
    assert default_step_size(triangle({"g": [(AB_PLC,)]}).layout) == 0.08
    assert default_step_size(triangle({"g": [(AB_PLC,), (AB_WIFI,)]}).layout) == 0.08
    assert default_step_size(triangle(MULTIPATH).layout) == 0.04
    long = study_case_with_long_paths()
    assert default_step_size(long.layout) == 0.02


def study_case_with_long_paths(paths: Sequence[tuple[int, ...]] = ((0, 2, 4), (1, 3, 5))) -> RateProblem:
    links = [
        {"id": f"{a}{b}-{k}", "from": a, "to": b, "technology": k, "capacity_mbps": 10}
        for a, b in ("ab", "bc", "cd")
        for k in ("wifi", "plc")
    ]
    nodes = {node: {"role": "switch"} for node in "abcd"}
    flows = [{"id": "f", "from": "a", "to": "d"}]
    document = {"nodes": nodes, "links": links, "interference": {"rule": "technology"}, "flows": flows}
    return rate_problem(parse(document, "test"), {"f": paths})


def test_oscillations_are_counted_cumulatively() -> None:
    seen = Oscillation.none(1)
    # Turns with swings 2, 2, 1, 1, 1: of these the second, the fourth and the fifth don't decrease.
    for rate in (10.0, 12.0, 10.0, 11.0, 10.0, 11.0, 10.0):
        seen = seen.after(np.array([rate]))
    assert seen.count.tolist() == [2]


def test_step_size_is_halved_on_oscillation_and_only_then() -> None:
    problem = triangle(MULTIPATH)
    restless = replace(PUBLISHED, step_size=0.5)
    assert after(problem, 400, restless).step_size < 0.5
    assert after(problem, 400, replace(restless, adapt=False)).step_size == 0.5


def test_noise_does_not_put_the_controller_to_sleep() -> None:
    """Every noisy measurement may turn a rate. A step size that halves for ever would freeze the rates."""
    problem, rng = study_case(2), np.random.default_rng(1)
    state = ControllerState.initial(problem.layout, SETTINGS)
    for _ in range(1200):
        noise = 1 + 0.1 * rng.standard_normal(problem.layout.link_count)
        state = step(problem, state, SETTINGS, problem.airtime(state.path_rates_mbps) * noise)
    halved = problem.changed(capacity_mbps=problem.capacity_mbps / 2)
    for _ in range(600):
        state = step(halved, state, SETTINGS)
    assert distance(halved, state.path_rates_mbps, solve(halved).flow_rates_mbps).is_converged


def test_step_is_a_pure_function() -> None:
    problem = triangle(MULTIPATH)
    states = list(run(problem, SETTINGS, 30))
    again = step(problem, states[10], SETTINGS)
    assert again.path_rates_mbps == pytest.approx(states[11].path_rates_mbps, abs=0)
    assert again.slot == states[11].slot == 12


# R(P)


@pytest.mark.parametrize("seed", seeds(6))
def test_rate_of_a_path_alone_is_that_of_the_planner(seed: int) -> None:
    problem = study_case(seed)
    alone = problem.alone_mbps
    interference = study_network(seed).interference
    for path, rate in zip(problem.layout.paths, alone, strict=True):
        assert rate == pytest.approx(path_rate(interference, problem.capacity_mbps, path))
    dead = problem.capacity_mbps.copy()
    dead[problem.layout.paths[0][0]] = 0.0
    assert problem.changed(capacity_mbps=dead).alone_mbps[0] == 0.0


@pytest.mark.parametrize("settings", [SETTINGS, PUBLISHED])
def test_three_hops_of_one_medium_never_get_more_than_a_third(settings: ControllerSettings) -> None:
    """The first rate was that of the slowest link: three times what the path carries."""
    problem = study_case_with_long_paths([(0, 2, 4)])
    rates = [state.path_rates_mbps.max() for state in run(problem, settings, 300)]
    assert rates[0] == pytest.approx(10 / 3)
    assert max(rates) <= 10 / 3 * (1 + 1e-9)


@pytest.mark.parametrize("settings", [SETTINGS, PUBLISHED])
@pytest.mark.parametrize("seed", seeds(6))
def test_no_path_ever_gets_more_than_it_carries_alone(seed: int, settings: ControllerSettings) -> None:
    problem = study_case(seed)
    most = problem.alone_mbps * (1 + 1e-9)
    assert all(np.all(state.path_rates_mbps <= most) for state in run(problem, settings, 300))


# The fixed point


@pytest.mark.parametrize("seed", seeds(20))
def test_optimum_of_the_solver_is_a_fixed_point(seed: int) -> None:
    problem = study_case(seed)
    optimum = solve(problem)
    rates = optimum.path_rates_mbps
    state = replace(
        ControllerState.initial(problem.layout, SETTINGS),
        path_rates_mbps=rates,
        averages_mbps=rates,
        link_prices=optimum.link_prices,
    )
    for _ in range(100):
        state = step(problem, state, SETTINGS)
    assert state.path_rates_mbps == pytest.approx(rates, rel=1e-4, abs=1e-3)


@pytest.mark.parametrize("seed", seeds(8))
def test_controller_reaches_the_optimum_of_the_solver(seed: int) -> None:
    problem = study_case(seed)
    optimum = solve(problem)
    gap = np.inf
    for state in run(problem, SETTINGS, 20_000):
        if state.slot % 500 == 0:
            rates = problem.layout.flow_rates(state.path_rates_mbps)
            gap = max(
                abs(problem.utilities.total(rates) / optimum.utility - 1),
                abs(rates.sum() / optimum.flow_rates_mbps.sum() - 1),
            )
            if gap < 1e-3:
                break
    assert gap < 1e-3


@pytest.mark.parametrize("unit", [20.0, 50.0, None])
def test_fixed_point_does_not_depend_on_the_rate_unit(unit: float | None) -> None:
    paths = {"f": [(AB_WIFI, BC_WIFI)], "g": [(AB_PLC,), (AB_WIFI,)]}
    problem = triangle(paths)
    optimum = pytest.approx(solve(problem).flow_rates_mbps, rel=5e-3)
    settings = ControllerSettings(rate_unit_mbps=unit)
    settled(problem, settings, 6000, lambda state: problem.layout.flow_rates(state.path_rates_mbps) == optimum)


def test_external_airtime_moves_the_optimum_and_is_not_starved() -> None:
    problem = triangle({"f": [(AB_WIFI, BC_WIFI)]})
    busy = problem.changed(external=np.full(6, 0.4))
    optimum = pytest.approx([6.0], rel=1e-3)
    state = settled(busy, SETTINGS, 4000, lambda state: state.path_rates_mbps == optimum)
    assert problem.airtime(state.path_rates_mbps).max() == pytest.approx(0.6, rel=1e-3)


def test_weights_shift_the_fixed_point() -> None:
    problem = triangle({"f": [(AB_WIFI, BC_WIFI)], "g": [(AB_WIFI,)]})
    weighted = replace(problem, utilities=Utilities.log([1.0, 3.0]))
    optimum = pytest.approx(solve(weighted).path_rates_mbps, rel=2e-3)
    settled(weighted, SETTINGS, 6000, lambda state: state.path_rates_mbps == optimum)


# Over capacities, networks, weights and utilities

Case = Callable[[random.Random], Network]


def mixed(rng: random.Random) -> Network:
    """Slow WiFi beside fast power lines: 0.25 to 5 and 50 to 860 Mb/s."""
    network = study_networks.residential(rng)
    factors = {"wifi": 0.05, "plc": 10.0}
    return network.with_capacities({link.id: link.capacity_mbps * factors[link.technology] for link in network.links})


def live_case(make: Case, seed: int, flows: int, scale: float = 1.0) -> RateProblem:
    """The planned multipaths of some flows of a random network whose capacities are multiplied by ``scale``."""
    rng = random.Random(seed)
    network = make(rng)
    network = network.with_capacities({link.id: scale * link.capacity_mbps for link in network.links})
    planner, paths = Planner(network, clients_relay=True), {}
    while len(paths) < flows:
        with suppress(PlanningError):
            plan = planner.plan(*study_networks.endpoints(network, rng))
            paths[f"f{len(paths)}"] = plan.multipath.links
    specs = [replace(TRIANGLE.flows[0], id=flow) for flow in paths]
    return rate_problem(network, paths, flows=specs, margin=0.05)


@pytest.mark.parametrize("flows", [1, 2, 3])
@pytest.mark.parametrize(
    ("make", "scale"),
    [
        (study_networks.residential, 0.1),
        (study_networks.residential, 1.0),
        (study_networks.residential, 10.0),
        (study_networks.enterprise, 0.2),
        (study_networks.enterprise, 1.0),
        (study_networks.enterprise, 10.0),
        (mixed, 1.0),
    ],
)
def test_the_running_controller_reaches_the_optimum_whatever_the_capacities(
    make: Case, scale: float, flows: int
) -> None:
    """From 0.5 Mb/s to 1 Gb/s, in the allocator that the controller runs: within 40 s, and it stays there."""
    for seed in seeds(3):
        problem = live_case(make, seed, flows, scale)
        optimum, mode = solve(problem), ControllerMode()
        mode.laid_out(problem)
        found = None
        for slot in range(400):
            found = mode.allocate(problem, found)
            if slot >= 380:
                off = distance(problem, found.path_rates_mbps, optimum.flow_rates_mbps)
                assert max(off.rate_share, off.airtime) < 0.05, f"seed {seed}, slot {slot}: {off}"
        assert found is not None
        assert found.utility > 0.99 * optimum.utility


@pytest.mark.parametrize("scale", [0.01, 30.0])
def test_the_way_to_the_optimum_has_no_unit(scale: float) -> None:
    """With log(x), which has no unit either, capacities times a factor are rates times that factor, in every slot."""
    problem = live_case(study_networks.enterprise, 3, 3)
    problem = replace(problem, utilities=alpha_fair([1.0, 2.0, 5.0], 1.0))
    scaled = problem.changed(capacity_mbps=scale * problem.capacity_mbps)
    for one, other in zip(run(problem, SETTINGS, 60), run(scaled, SETTINGS, 60), strict=True):
        assert other.path_rates_mbps == pytest.approx(scale * one.path_rates_mbps, rel=1e-6)


@pytest.mark.parametrize("alpha", [0.5, 2.0, 4.0])
def test_other_utilities_and_weights_converge(alpha: float) -> None:
    for seed in seeds(3):
        problem = live_case(study_networks.enterprise, seed, 3)
        problem = replace(problem, utilities=alpha_fair([0.5, 1.0, 4.0], alpha))
        state = after(problem, 1500)
        off = distance(problem, state.path_rates_mbps, solve(problem).flow_rates_mbps)
        assert max(off.rate_share, off.airtime) < 0.03, f"seed {seed}: {off}"


def test_distance_from_the_optimum() -> None:
    problem = triangle(MULTIPATH)
    optimum = solve(problem).flow_rates_mbps
    assert distance(problem, np.array([10.0, 20 / 3]), optimum).is_converged
    off = distance(problem, np.array([9.0, 20 / 3]), optimum)
    assert off.rate_share == pytest.approx(1 / (50 / 3), rel=1e-3)
    assert off.airtime == pytest.approx(0.0, abs=1e-9)
    over = distance(problem, np.array([10.0, 7.0]), optimum)
    assert over.airtime == pytest.approx(10 / 30 + 7 / 10 - 1)
    assert not off.is_converged
    assert not over.is_converged
    # Two flows with linear utilities may share their total in any way.
    linear = replace(triangle({"f": [(AB_WIFI, BC_WIFI)], "g": [(AB_PLC,)]}), utilities=alpha_fair([1, 1], 0))
    assert distance(linear, np.array([8.0, 10.0]), np.array([10.0, 8.0])).rate_share == pytest.approx(0.0)


# Convergence, as in the papers' studies


def test_slots_to_converge() -> None:
    totals = np.array([0.0, 9.95, 12.0, 9.0, 10.0, 10.0])
    assert slots_to_converge(totals, 10.0) == (2, 5)
    assert slots_to_converge(np.array([10.0, 10.0]), 10.0) == (1, 1)
    assert slots_to_converge(np.array([1.0, 2.0]), 10.0) == (3, 3)


@pytest.mark.parametrize(
    ("settings", "message"), [({"step_size": 0.0}, "step size"), ({"rate_unit_mbps": -1.0}, "rate unit")]
)
def test_wrong_settings_are_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(PlanningError, match=message):
        ControllerSettings(**settings)

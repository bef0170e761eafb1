"""The slotted controller: its fixed point is the solver's optimum, its rules are those of the papers."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import replace

import numpy as np
import pytest
from hyroads.controller.core import topologies
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
    run,
    slots_to_converge,
    step,
)

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


def after(problem: RateProblem, slots: int, settings: ControllerSettings = SETTINGS) -> ControllerState:
    return deque(run(problem, settings, slots), maxlen=1)[0]


def study_case(seed: int) -> RateProblem:
    """One to four flows with planned multipaths of up to two paths on a random small network."""
    rng = random.Random(seed)
    network: Network = rng.choice([topologies.residential, topologies.enterprise])(rng)
    planner = Planner(network, clients_relay=True)
    paths = {}
    while len(paths) < 1 + seed % 4:
        source, target = topologies.endpoints(network, rng)
        try:
            paths[f"f{len(paths)}"] = planner.plan(source, target).multipath.links[:2]
        except PlanningError:
            continue
    specs = [replace(TRIANGLE.flows[0], id=flow) for flow in paths]
    return rate_problem(network, paths, flows=specs, margin=0.05)


# The rules, by hand


def test_one_slot_of_the_proximal_rule_by_hand() -> None:
    problem = triangle(MULTIPATH)
    zero = ControllerState.initial(problem.layout, SETTINGS)
    state = replace(zero, path_rates_mbps=np.array([10.0, 20.0]), averages_mbps=np.array([8.0, 16.0]))
    result = step(problem, state, SETTINGS)
    alpha, unit = 0.04, 50.0  # the longest path has two hops
    plc, wifi = 10 / 10, 20 / 15 + 30 / 30
    gamma_wifi = alpha * (wifi - 1)
    assert result.link_prices == pytest.approx([alpha * (plc - 1)] * 2 + [gamma_wifi] * 4)
    # The WiFi domain has four links, and each of them has a price.
    price = np.array([4 * gamma_wifi / 30, 4 * gamma_wifi / 30 + 4 * gamma_wifi / 15])
    wanted = state.averages_mbps + unit**2 * (1 / 31 - price)
    rates = np.maximum(0, (1 - alpha) * state.path_rates_mbps + alpha * wanted)
    assert result.path_rates_mbps == pytest.approx(rates)
    assert result.averages_mbps == pytest.approx((1 - alpha) * state.averages_mbps + alpha * rates)


def test_one_slot_of_the_single_path_rule_by_hand() -> None:
    problem = triangle({"g": [(AB_PLC,)]})
    state = replace(ControllerState.initial(problem.layout, SETTINGS), link_prices=np.array([2.0, 0, 0, 0, 0, 0]))
    result = step(problem, state, SETTINGS)
    gamma = 2.0 + 0.08 * (0 - 1)
    assert result.path_rates_mbps == pytest.approx([10 / gamma - 1])


def test_step_size_heuristic() -> None:
    assert default_step_size(triangle({"g": [(AB_PLC,)]}).layout) == 0.08
    assert default_step_size(triangle({"g": [(AB_PLC,), (AB_WIFI,)]}).layout) == 0.08
    assert default_step_size(triangle(MULTIPATH).layout) == 0.04
    long = study_case_with_long_paths()
    assert default_step_size(long.layout) == 0.02


def study_case_with_long_paths() -> RateProblem:
    links = [
        {"id": f"{a}{b}-{k}", "from": a, "to": b, "technology": k, "capacity_mbps": 10}
        for a, b in ("ab", "bc", "cd")
        for k in ("wifi", "plc")
    ]
    nodes = {node: {"role": "switch"} for node in "abcd"}
    flows = [{"id": "f", "from": "a", "to": "d"}]
    document = {"nodes": nodes, "links": links, "interference": {"rule": "technology"}, "flows": flows}
    return rate_problem(parse(document, "test"), {"f": [(0, 2, 4), (1, 3, 5)]})


def test_oscillations_are_counted_cumulatively() -> None:
    seen = Oscillation.none(1)
    # Turns with swings 2, 2, 1, 1, 1: of these the second, the fourth and the fifth don't decrease.
    for rate in (10.0, 12.0, 10.0, 11.0, 10.0, 11.0, 10.0):
        seen = seen.after(np.array([rate]))
    assert seen.count.tolist() == [2]


def test_step_size_is_halved_on_oscillation_and_only_then() -> None:
    problem = triangle(MULTIPATH)
    restless = ControllerSettings(step_size=0.5)
    assert after(problem, 400, restless).step_size < 0.5
    assert after(problem, 400, replace(restless, adapt=False)).step_size == 0.5


def test_step_is_a_pure_function() -> None:
    problem = triangle(MULTIPATH)
    states = list(run(problem, SETTINGS, 30))
    again = step(problem, states[10], SETTINGS)
    assert again.path_rates_mbps == pytest.approx(states[11].path_rates_mbps, abs=0)
    assert again.slot == states[11].slot == 12


# The fixed point


@pytest.mark.parametrize("seed", range(20))
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


@pytest.mark.parametrize("seed", range(8))
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


def test_fixed_point_does_not_depend_on_the_rate_unit() -> None:
    paths = {"f": [(AB_WIFI, BC_WIFI)], "g": [(AB_PLC,), (AB_WIFI,)]}
    problem = triangle(paths)
    optimum = solve(problem).flow_rates_mbps
    for unit in (20.0, 50.0):
        state = after(problem, 6000, ControllerSettings(rate_unit_mbps=unit))
        assert problem.layout.flow_rates(state.path_rates_mbps) == pytest.approx(optimum, rel=5e-3)


def test_external_airtime_moves_the_optimum_and_is_not_starved() -> None:
    problem = triangle({"f": [(AB_WIFI, BC_WIFI)]})
    busy = problem.changed(external=np.full(6, 0.4))
    state = after(busy, 4000)
    assert state.path_rates_mbps == pytest.approx([6.0], rel=1e-3)
    assert problem.airtime(state.path_rates_mbps).max() == pytest.approx(0.6, rel=1e-3)


def test_weights_shift_the_fixed_point() -> None:
    problem = triangle({"f": [(AB_WIFI, BC_WIFI)], "g": [(AB_WIFI,)]})
    weighted = replace(problem, utilities=Utilities.log([1.0, 3.0]))
    rates = after(weighted, 6000).path_rates_mbps
    assert rates == pytest.approx(solve(weighted).path_rates_mbps, rel=2e-3)


# Convergence, as in the papers' studies


def test_slots_to_converge() -> None:
    totals = np.array([0.0, 9.95, 12.0, 9.0, 10.0, 10.0])
    assert slots_to_converge(totals, 10.0) == (2, 5)
    assert slots_to_converge(np.array([10.0, 10.0]), 10.0) == (1, 1)
    assert slots_to_converge(np.array([1.0, 2.0]), 10.0) == (3, 3)


def test_convergence_takes_hundreds_of_slots_not_thousands() -> None:
    first, staying = [], []
    for seed in range(12):
        problem = study_case(seed)
        totals = np.array([state.path_rates_mbps.sum() for state in run(problem, SETTINGS, 2000)])
        reached, stays = slots_to_converge(totals, solve(problem).flow_rates_mbps.sum())
        first.append(reached)
        staying.append(stays)
    print(f"first within 1 %: median {np.median(first):.0f} slots; staying: median {np.median(staying):.0f}")
    assert 10 <= np.median(first) <= 250
    assert np.median(first) <= np.median(staying) <= 800


@pytest.mark.parametrize(
    ("settings", "message"), [({"step_size": 0.0}, "step size"), ({"rate_unit_mbps": -1.0}, "rate unit")]
)
def test_wrong_settings_are_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(PlanningError, match=message):
        ControllerSettings(**settings)

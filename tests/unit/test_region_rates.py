"""The exchange of rates between regions: on random regions with delays, losses and reordering; and what it refuses."""

from __future__ import annotations

import math
import random
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hyroads.controller.control.region_rates import (
    HOLD_S,
    LISTEN_S,
    ROUND_S,
    Crossing,
    RegionRates,
    RegionRatesError,
    Side,
    parse_rates,
)
from hyroads.controller.core.rates.solver import solve

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from region_cases import two_buildings

OTHER = {"b1-": "b2-", "b2-": "b1-"}
SLOT_S, SLOTS_A_ROUND = 0.1, 5


def at_ends(problem, side):
    """Problem with the ids that the region gives its flows, and how they cross it."""
    names = {flow: flow if side == "b1-" else f"{flow}@b1-" for flow in problem.layout.flow_ids if flow[0] == "c"}
    ends = (None, "b2-") if side == "b1-" else ("b1-", None)
    return {name: Crossing(name, "1", *ends, flow) for flow, name in names.items()}


def renamed(problem):
    """The same with ids as the second region gives them."""
    ids = tuple(flow if flow[0] != "c" else f"{flow}@b1-" for flow in problem.layout.flow_ids)
    return replace(problem, layout=replace(problem.layout, flow_ids=ids))


def exchanged(seed, rounds, *, loss=0.0, delay_s=(0.0, 0.0)):
    """The utility after some rounds, from the first that says something on, over that of the joint optimum."""
    rng = random.Random(seed)
    best, regions = two_buildings(rng, crossing=20, local=60)
    problems = {side: region.problem for side, region in regions.items()}
    problems["b2-"] = renamed(problems["b2-"])
    live = {side: RegionRates(side) for side in regions}
    for side, rates in live.items():
        rates.use(at_ends(regions[side].problem, side))
    phase = {"b1-": 0, "b2-": rng.randrange(SLOTS_A_ROUND)}
    last = dict.fromkeys(live)
    flying = []
    for number in range(round(LISTEN_S / SLOT_S) + rounds * SLOTS_A_ROUND):
        now_s = number * SLOT_S
        for _, target, seq, document in [each for each in flying if each[0] <= now_s]:
            live[target].heard(OTHER[target], seq, parse_rates(document), now_s)
        flying = [each for each in flying if each[0] > now_s]
        for side, rates in live.items():
            last[side] = rates.allocate(solve, problems[side], last[side])
            if number % SLOTS_A_ROUND == phase[side]:
                for target, told in rates.round(now_s).items():
                    document = {"flows": {flow: each.document() for flow, each in told.items()}}
                    if rng.random() >= loss:
                        flying.append((now_s + rng.uniform(*delay_s), target, rates.seq, document))
    rate = {}
    for side, found in last.items():
        for flow, mbps in zip(regions[side].problem.layout.flow_ids, found.flow_rates_mbps, strict=True):
            rate[flow] = min(float(mbps), rate.get(flow, math.inf))
    total, seen = 0.0, set()
    for region in regions.values():
        ids = region.problem.layout.flow_ids
        once = np.array([flow not in seen for flow in ids])
        seen.update(ids)
        total += float((region.problem.utilities.values(np.array([rate[flow] for flow in ids])) * once).sum())
    return total / best


@pytest.mark.parametrize("seed", range(6))
def test_ten_rounds_reach_the_joint_optimum(seed):
    assert exchanged(seed, 11) >= 0.995


@pytest.mark.parametrize("seed", range(24))
def test_late_lost_and_reordered_messages_do_not_keep_regions_from_it(seed):
    assert exchanged(seed, 11, loss=0.1, delay_s=(0.0, 0.5)) >= 0.995


def one(side="b1-"):
    _, regions = two_buildings(random.Random(1), crossing=3, local=6)
    problem = regions["b1-"].problem
    rates = RegionRates(side)
    rates.use(at_ends(problem, side))
    return rates, problem


def crossing_rates(rates, problem):
    found = rates.allocate(solve, problem, None)
    return {f: float(x) for f, x in zip(problem.layout.flow_ids, found.flow_rates_mbps, strict=True) if f[0] == "c"}


def spoken(rates):
    """What neighbours are told in the first round that tells something."""
    assert rates.round(0.0) == {}
    return rates.round(LISTEN_S)


def test_a_region_that_starts_listens_before_it_offers():
    rates, problem = one()
    rates.allocate(solve, problem, None)
    rates.heard("b2-", 1, {"c0": Side("1", 0.5, 0.1)}, 0.0)
    assert [rates.round(at_s) for at_s in (0.0, ROUND_S, LISTEN_S - ROUND_S)] == [{}] * 3
    # Meanwhile it takes its share of the weight, and the other one's offer for its cap.
    assert rates.shares["c0"] != 0.5 == rates.shares["c1"]
    assert crossing_rates(rates, problem)["c0"] == pytest.approx(0.5, rel=1e-3)
    assert set(rates.round(LISTEN_S)["b2-"]) == set(rates.crossing)


def test_a_cap_holds_while_the_neighbour_is_silent_and_then_its_own_rates_count():
    rates, problem = one()
    free = crossing_rates(rates, problem)
    rates.heard("b2-", 1, {"c0": Side("1", 0.5, 0.1)}, 0.0)
    assert crossing_rates(rates, problem)["c0"] == pytest.approx(0.5, rel=1e-3)
    rates.round(HOLD_S - 0.1)
    assert crossing_rates(rates, problem)["c0"] == pytest.approx(0.5, rel=1e-3)
    rates.round(HOLD_S + 0.1)
    assert crossing_rates(rates, problem)["c0"] > 0.5 < free["c0"]


def test_what_is_said_of_an_old_version_of_a_flow_or_comes_late_is_ignored():
    rates, problem = one()
    free = crossing_rates(rates, problem)
    rates.heard("b2-", 2, {"c0": Side("0", 0.1, 0.1)}, 0.0)
    assert crossing_rates(rates, problem) == pytest.approx(free)
    assert not rates.heard("b2-", 1, {"c0": Side("1", 0.1, 0.1)}, 0.5)
    assert crossing_rates(rates, problem) == pytest.approx(free)
    # A neighbour that started anew counts from 1 again.
    assert rates.heard("b2-", 1, {"c0": Side("1", 0.1, 0.1)}, 5.0)
    assert crossing_rates(rates, problem)["c0"] == pytest.approx(0.1, rel=1e-3)


def test_a_flow_that_wants_little_caps_nobody_and_its_demand_is_told_downstream():
    rates, problem = one()
    demand = problem.demand_mbps.copy()
    demand[problem.layout.flow_ids.index("c0")] = 0.01
    rates.allocate(solve, problem.changed(demand_mbps=demand), None)
    told = spoken(rates)["b2-"]
    assert math.isinf(told["c0"].offer_mbps)
    assert told["c0"].demand_mbps == pytest.approx(0.01)
    assert math.isfinite(told["c1"].offer_mbps)
    assert math.isinf(told["c1"].demand_mbps)


def test_a_region_in_the_middle_passes_on_what_it_hears():
    _, problem = one()
    middle = RegionRates("m")
    middle.use({"c0": Crossing("c0", "1", "x", "y", "c0")})
    middle.allocate(solve, problem, None)
    middle.heard("x", 1, {"c0": Side("1", 0.3, 0.25, 700.0)}, 0.0)
    told = spoken(middle)
    assert told["y"]["c0"].offer_mbps == pytest.approx(0.3)
    assert told["y"]["c0"].demand_mbps == 700.0
    assert told["y"]["c0"].pull > 0.25
    assert 0.3 < told["x"]["c0"].offer_mbps < 700.0


def test_a_flow_that_moves_at_the_border_is_told_once_as_the_end_that_gives_more():
    _, problem = one()
    south = RegionRates("south")
    ends = {"c0": "m1", "c1": "m2"}
    south.use({flow: Crossing(flow, "1", "north", None, "moving") for flow in ends})
    south.allocate(solve, problem, None)
    told = spoken(south)["north"]
    assert set(told) == {"moving"}
    assert told["moving"].offer_mbps == max(south.offers_mbps[flow] for flow in ends)
    # What is heard of it caps both.
    south.heard("north", 1, {"moving": Side("1", 0.2, 0.1)}, 0.1)
    capped = crossing_rates(south, problem)
    assert [capped[flow] for flow in ends] == pytest.approx([0.2, 0.2], rel=1e-3)


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"flows": []},
        {"flows": {"a": None}},
        {"flows": {"a": ["1", -1, 0, None]}},
        {"flows": {"a": ["1", math.nan, 0, None]}},
        {"flows": {"a": ["1", math.inf, 0, None]}},
        {"flows": {"a": ["1", True, 0, None]}},
        {"flows": {"a": ["1", 1, None, None]}},
        {"flows": {"a": ["1", 1, 1, "2"]}},
        {"flows": {"a": ["1" * 65, 1, 1, 2]}},
        {"flows": {"a" * 256: ["1", 1, 1, 2]}},
        {"flows": {"a": ["1", 10**400, 1, 2]}},
        {"flows": {str(number): ["1", 1, 1, 2] for number in range(10_001)}},
    ],
)
def test_what_cannot_be_is_refused(document):
    with pytest.raises(RegionRatesError):
        parse_rates(document)

"""Backpressure against a slot worked out by hand, the exact optimum, and linear programs solved by HiGHS."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from rate_cases import network_of
from scipy.optimize import linprog

from hyroads.controller.core.interface_graph import interface_graph
from hyroads.controller.core.network import Network, Node, Role
from hyroads.controller.study import networks
from hyroads.controller.study.backpressure import AirtimeShares, IndependentSets, backpressure, maximal_sets
from hyroads.controller.study.framework import StudyError
from hyroads.controller.study.schedules import Airtime, Carriers, best_rates

Ends = tuple[str, str]


def optimum(network: Network, flows: list[Ends], *, scheduled: bool) -> np.ndarray:
    airtime, graph = Airtime.of(network), interface_graph(network, True)
    numbers = [(graph.node(source), graph.node(target)) for source, target in flows]
    return best_rates(airtime, Carriers.of_links(airtime, graph, numbers), scheduled=scheduled)


def random_conflicts(seed: int, size: int, density: float) -> np.ndarray:
    above = np.triu(np.random.default_rng(seed).random((size, size)) < density, 1)
    return above | above.T | np.eye(size, dtype=bool)


def airtime_of(conflicts: np.ndarray) -> Airtime:
    count = len(conflicts)
    return Airtime(np.arange(count), np.ones(count), conflicts)


def test_the_first_slots_of_one_link() -> None:
    """With V = 1 and slots of 12 Mb/s the source takes in x = 12 / Q - 1, at most its link's 12 Mb/s."""
    ran = backpressure(network_of({"l": ("a", "b", "wifi", 12.0)}), [("a", "b")], 4, v=1.0)
    # Q before each slot: 0, 1, 11/12, ...: the packet of a slot is admitted at its end and sent in the next one.
    queue, admitted, delivered = 0.0, [], []
    for _ in range(4):
        rate = 12.0 if queue * 13.0 <= 12.0 else max(0.0, 12.0 / queue - 1.0)
        sent = min(1.0, queue)
        queue += rate / 12.0 - sent
        admitted.append(rate)
        delivered.append(12.0 * sent)
    assert ran.admitted_mbps[:, 0].tolist() == pytest.approx(admitted)
    assert ran.delivered_mbps[:, 0].tolist() == pytest.approx(delivered)
    assert ran.queued[-1] == pytest.approx(queue)
    assert admitted[:2] == [12.0, 11.0]


def test_two_flows_of_one_medium_share_it_as_the_utility_wants() -> None:
    """About half of the time each; not exactly, because log(1 + x) is not scale-free."""
    network = network_of({"x": ("a", "c", "wifi", 12.0), "y": ("b", "c", "wifi", 24.0)})
    ran = backpressure(network, [("a", "c"), ("b", "c")], 4000, v=30.0)
    best = optimum(network, [("a", "c"), ("b", "c")], scheduled=True)
    assert ran.delivered_mbps[1000:].mean(axis=0) == pytest.approx(best, rel=0.02)
    assert ran.admitted_mbps[1000:].mean(axis=0) == pytest.approx(best, rel=0.02)


def pentagon() -> Network:
    """Five links, each of which conflicts with two: sets of two, but airtime allows a third of the time each."""
    links = {f"l{i}": (f"s{i}", "t", "wifi", 12.0) for i in range(5)}
    return network_of(links, {"conflicts": {f"l{i}": [f"l{(i + 1) % 5}"] for i in range(5)}})


def test_what_each_schedule_is_limited_by() -> None:
    network, flows = pentagon(), [(f"s{i}", "t") for i in range(5)]
    best = backpressure(network, flows, 3000, v=20.0).delivered_mbps[1000:].mean(axis=0)
    airtime = backpressure(network, flows, 3000, conservative=True, v=20.0).delivered_mbps[1000:].mean(axis=0)
    assert best == pytest.approx(np.full(5, 12 * 2 / 5), rel=0.02)
    assert airtime == pytest.approx(np.full(5, 12 / 3), rel=0.02)


@pytest.mark.parametrize("seed", range(3))
def test_the_optimum_of_random_homes(seed: int) -> None:
    rng = random.Random(seed)
    network = networks.residential(rng)
    flows = [networks.endpoints(network, rng)]
    ran = backpressure(network, flows, 6000, v=50.0)
    assert ran.delivered_mbps[3000:].mean() == pytest.approx(optimum(network, flows, scheduled=True)[0], rel=0.02)


def test_a_larger_v_has_longer_queues() -> None:
    network = network_of({"x": ("a", "b", "wifi", 24.0), "y": ("b", "c", "wifi", 12.0)})
    queued = [backpressure(network, [("a", "c")], 3000, v=v).queued[-1] for v in (5.0, 10.0, 20.0)]
    assert queued[2] - queued[1] == pytest.approx(2 * (queued[1] - queued[0]), rel=0.15)


def test_all_that_is_admitted_is_delivered_or_queued() -> None:
    rng = random.Random(5)
    network = networks.enterprise(rng)
    flows = [networks.endpoints(network, rng) for _ in range(3)]
    ran = backpressure(network, flows, 300, conservative=True)
    packets = (ran.admitted_mbps.sum() - ran.delivered_mbps.sum()) * ran.slot_s / 0.012
    assert packets == pytest.approx(ran.queued[-1])


def test_plain_clients_need_not_relay() -> None:
    """What has no other way than over a client gets nothing where clients don't forward."""
    network = network_of({"x": ("a", "c", "wifi", 12.0), "y": ("c", "b", "plc", 12.0)})
    client = Node("c", Role.CLIENT)
    network = replace(network, nodes={**network.nodes, "c": client})
    over, never = (
        backpressure(network, [("a", "b")], 1000, v=20.0, clients_relay=relay).delivered_mbps for relay in (True, False)
    )
    assert over[500:].mean() == pytest.approx(12.0, rel=0.02)
    assert never.sum() == 0


@pytest.mark.parametrize("seed", range(5))
def test_shares_are_the_best_for_one_weight_after_another(seed: int) -> None:
    conflicts = random_conflicts(seed, 9, 0.4)
    shares, rng = AirtimeShares(conflicts), np.random.default_rng(seed)
    for _ in range(40):
        weights = rng.random(9) * (rng.random(9) < 0.7)
        found = shares.shares(weights)
        assert (conflicts @ found <= 1 + 1e-9).all()
        assert (found >= -1e-9).all()
        exact = linprog(-weights, A_ub=conflicts.astype(float), b_ub=np.ones(9)).fun
        assert weights @ found == pytest.approx(-exact, abs=1e-9)


def test_many_pivots_do_not_add_up_to_an_error() -> None:
    conflicts, rng = random_conflicts(3, 16, 0.3), np.random.default_rng(3)
    shares = AirtimeShares(conflicts)
    for _ in range(600):
        weights = rng.random(16)
        found = shares.shares(weights)
    assert weights @ found == pytest.approx(-linprog(-weights, A_ub=conflicts.astype(float), b_ub=np.ones(16)).fun)
    assert (conflicts @ found <= 1 + 1e-9).all()


@pytest.mark.parametrize("seed", range(4))
def test_maximal_sets_are_all_that_there_are(seed: int) -> None:
    conflicts = random_conflicts(seed, 8, 0.4)
    apart = ~conflicts | np.eye(8, dtype=bool)
    free = [
        set(chosen)
        for size in range(1, 9)
        for chosen in combinations(range(8), size)
        if all(apart[a, b] for a, b in combinations(chosen, 2))
    ]
    maximal = {sum(1 << each for each in one) for one in free if not any(one < other for other in free)}
    assert sorted(maximal_sets(airtime_of(conflicts).neighbours, range(8))) == sorted(maximal)


@pytest.mark.parametrize("seed", range(3))
def test_the_best_set_weighs_most(seed: int) -> None:
    air = airtime_of(random_conflicts(seed, 10, 0.35))
    weights = np.random.default_rng(seed).random(10)
    best = max(
        weights[list(chosen)].sum()
        for size in range(1, 11)
        for chosen in combinations(range(10), size)
        if not any(air.conflicts[a, b] for a, b in combinations(chosen, 2))
    )
    assert weights @ IndependentSets(air).shares(weights) == pytest.approx(best)


def test_nothing_to_send_over() -> None:
    network = network_of({"l": ("a", "b", "wifi", 12.0)}).with_capacities({"l": 0.0})
    with pytest.raises(StudyError, match="0 links"):
        backpressure(network, [("a", "b")], 10)

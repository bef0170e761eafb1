"""First rates of flows, against prices and airtime written down link by link."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from examples import seeds
from rate_cases import constraint, network_of, problem_of, random_paths

from hyroads.controller.control.first_rates import PricedPaths, first_rates

LINKS = {
    "ab": ("a", "b", "ethernet", 100.0), "bc": ("b", "c", "wifi", 20.0), "cd": ("c", "d", "wifi", 40.0),
    "ac": ("a", "c", "plc", 30.0), "bd": ("b", "d", "plc", 50.0), "da": ("d", "a", "ethernet", 80.0),
}  # fmt: skip
NETWORK = network_of(LINKS)
LOG = (1.0, 1.0, 1.0)


@pytest.mark.parametrize("seed", seeds(60))
def test_a_new_flow_gets_what_it_asks_for_at_the_prices_of_each_path(seed: int) -> None:
    """With utility log(1 + x) that is 1 / price - 1, and at most what the path carries alone."""
    rng = random.Random(seed)
    paths = random_paths(NETWORK, rng, 3)
    count = len(NETWORK.links)
    problem = problem_of(NETWORK, {"f": paths}, external=np.array([rng.uniform(0, 0.5) for _ in range(count)]))
    prices = np.array([rng.choice([0.0, rng.uniform(0, 2)]) for _ in range(count)])
    down = rng.choice([None, rng.randrange(count)])
    now_mbps = np.array([0.0 if link == down else rng.uniform(1, 9) for link in range(count)])
    busy = constraint(NETWORK, problem)
    expected = []
    for column, path in enumerate(paths):
        price = sum(prices[link] * busy[link, column] for link in range(count))
        most = min((1 - problem.external[link]) / busy[link, column] for link in path)
        asked = 1 / price - 1 if price else np.inf
        expected.append(0.0 if down in path else min(most, max(0.0, asked)))
    priced = PricedPaths(NETWORK.interference, now_mbps, problem, prices)
    assert priced.asked(paths, LOG) == pytest.approx(expected)
    share = np.array(expected) / len(paths)
    assert first_rates(priced, paths, LOG, 0.0) == pytest.approx(share), "a new flow"
    for had in (share.sum() / 3, share.sum() * 2):
        total = sum(first_rates(priced, paths, LOG, had))
        assert total == pytest.approx(min(had, share.sum())), "no more than it had before"


def test_a_link_that_is_measured_counts_by_what_was_measured() -> None:
    problem = problem_of(NETWORK, {"f": [(1,)]})
    measured = replace(problem, capacity_mbps=problem.capacity_mbps / 2)
    priced = PricedPaths(NETWORK.interference, problem.capacity_mbps, measured, np.zeros(len(NETWORK.links)))
    assert priced.asked([(1,)], LOG) == pytest.approx([10.0])

"""Flows with bandits around the real loop and a fluid medium; longer runs are in tests/integration/test_learning.py."""

from __future__ import annotations

from dataclasses import replace

import pytest
from live_medium import BEST, DIAMOND, MARGIN, LiveMedium, bandit, diamond, mean

from hyroads.controller.core.network import Policy, Traffic


def test_a_flow_that_is_not_saturated_has_no_bandit_at_work() -> None:
    world = diamond(Policy.HYMAB)
    world.offered_mbps["f1"] = 3.0
    world.run(10)
    assert bandit(world)["trials"] == 0
    assert mean(world, 5) == pytest.approx(3.0)


def test_a_flow_that_is_tcp_leaves_the_margin_of_tcp() -> None:
    flow = replace(DIAMOND.network.flows[0], policy=Policy.HYMAB, traffic=Traffic.TCP)
    world = LiveMedium(DIAMOND, [flow], tcp_margin=0.3)
    world.run(5)
    assert sum(bandit(world)["arms"][0]["rates_mbps"]) == pytest.approx(0.7 * BEST, rel=0.01)


def test_without_readings_and_reports_the_model_carries_the_flow_and_the_problem_says_why() -> None:
    world = diamond(Policy.HYMAB)
    world.readings = lambda interface: ()  # type: ignore[method-assign]
    rates = world._agents
    world._agents = lambda: replace(rates(), arrived_mbps={})  # type: ignore[method-assign]
    world.run(20)
    assert bandit(world)["problem"] == "neither busy times nor what arrives can be read"
    # The model's rates, and now and then a try.
    assert mean(world, 10) > 0.85 * MARGIN * BEST


def test_without_readings_the_flow_learns_from_what_arrives() -> None:
    world = diamond(Policy.HYMAB)
    world.readings = lambda interface: ()  # type: ignore[method-assign]
    world.run(20)
    said = bandit(world)
    assert said["problem"].startswith("no busy time at a plc, a wifi, ")
    assert said["arms"][0]["mean_mbps"] == pytest.approx(MARGIN * BEST, rel=0.05)

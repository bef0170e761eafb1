"""Bandits around the real loop and a fluid medium, over many seeds: what they reach on average."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from live_medium import BEST, MARGIN, SECOND, bandit, diamond, mean

from hyroads.controller.core.network import Policy

# What holds on average over these seeds; over 24 of them it is 0.937, 0.975 and 0.974.
SEEDS = range(1, 9)
LEAST_MEAN = {Policy.HYMAB: 0.93, Policy.HYMAB_PLUS: 0.96, Policy.AUTO: 0.96}


@pytest.mark.parametrize("policy", LEAST_MEAN)
def test_the_best_arm_is_found_and_its_rates_are_the_optimum_though_busy_times_are_noisy(policy: Policy) -> None:
    shares = []
    for seed in SEEDS:
        world = diamond(policy, noise=0.2, seed=seed)
        world.run(50)
        shares.append(mean(world, 20) / (MARGIN * BEST))
        assert bandit(world)["arm"] == 0
        assert sum(bandit(world)["arms"][0]["rates_mbps"]) == pytest.approx(MARGIN * BEST, rel=0.08)
    # One flow's share scatters by 4 % with the noise of its few probes.
    assert np.mean(shares) > LEAST_MEAN[policy]
    assert min(shares) > 0.82


@pytest.mark.parametrize("policy", [Policy.HYMAB, Policy.HYMAB_PLUS])
def test_a_wrong_model_does_not_matter(policy: Policy) -> None:
    shares = []
    for seed in SEEDS[:4]:
        world = diamond(policy, seed=seed)
        # The planner believes in 20 Mb/s over PLC to b; there are 4.
        world.true_mbps.update({"ab-plc": 4.0, "ab-plc~": 4.0})
        world.run(30)
        assert bandit(world)["arm"] == 1
        shares.append(mean(world, 15) / (MARGIN * SECOND))
    assert np.mean(shares) > 0.9

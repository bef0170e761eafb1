"""What a bandit has learned goes on at the next leader, as it was told on the wire."""

from __future__ import annotations

import copy
import json
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from live_medium import LiveMedium, bandit, diamond

from hyroads.controller.control.learned import Learned, LearnedError, parse_learned
from hyroads.controller.control.learner import POLICIES
from hyroads.controller.control.learning import Learning
from hyroads.controller.core.network import Policy

BANDITS = [Policy.HYMAB, Policy.HYMAB_PLUS, Policy.AUTO]
NAMED = {policy.value: how for policy, how in POLICIES.items()}


def told(world: LiveMedium) -> dict[str, Learned]:
    """What followers know, after JSON."""
    documents = json.loads(json.dumps({flow: each.document() for flow, each in world.learning.learned.items()}))
    return {flow: parse_learned(document, NAMED) for flow, document in documents.items()}


def until_it_rests(world: LiveMedium) -> None:
    """Until no probe is under way nor wanted."""
    for _ in range(600):
        world.step()
        if bandit(world)["probing"] is None and bandit(world)["waiting"] is None:
            return
    raise AssertionError("it probes for ever")


def taken_over(world: LiveMedium, learned: dict[str, Learned]) -> None:
    """Another controller leads from now on; what it measures and has pushed is the same."""
    world.learning = world.loop.override = Learning(world.learning._readings, world.read_soon, seed=9)
    world.learning.take(learned)


@pytest.mark.parametrize("policy", BANDITS)
@pytest.mark.parametrize("wrong", [False, True])
def test_the_next_leader_sends_at_the_same_rates_and_knows_as_much(policy: Policy, wrong: bool) -> None:
    world = diamond(policy, noise=0.02, seed=3)
    if wrong:
        # Nobody knows but the bandit.
        for link in world.true_mbps:
            world.true_mbps[link] *= 0.6
    world.run(25)
    until_it_rests(world)
    before, rates, learned = bandit(world), world.loop.rates, told(world)
    assert before["active"] or (policy is Policy.AUTO and not wrong)
    taken_over(world, learned)
    world.step()
    after = bandit(world)
    assert after["probing"] is None and after["waiting"] is None
    assert [arm["probes"] for arm in after["arms"]] == [arm["probes"] for arm in before["arms"]]
    for one, other in zip(before["arms"], after["arms"], strict=True):
        assert other["mean_mbps"] == pytest.approx(one["mean_mbps"], rel=1e-5)
    same = ("arm", "active", "model_trusted", "problem", "eps_min")
    assert {name: after[name] for name in same} == {name: before[name] for name in same}
    for flow, now in world.loop.rates.items():
        assert np.allclose(now, rates[flow], rtol=1e-3)


def test_without_what_was_learned_it_would_begin_anew() -> None:
    """The test above can fail."""
    world = diamond(Policy.HYMAB, seed=3)
    for link in world.true_mbps:
        world.true_mbps[link] *= 0.6
    world.run(25)
    until_it_rests(world)
    rates = world.loop.rates["f1"]
    taken_over(world, {})
    world.run(3)
    assert not np.allclose(world.loop.rates["f1"], rates, rtol=0.05)


def test_it_is_told_again_only_when_something_was_learned() -> None:
    world, objects = diamond(Policy.HYMAB, seed=3), []
    for _ in range(300):
        world.step()
        objects.append(world.learning.learned["f1"])
    changes = sum(one is not other for one, other in pairwise(objects))
    probes = sum(bandit(world)["arms"][i]["probes"] for i in range(len(bandit(world)["arms"])))
    assert probes > 3
    # Once for each probe, and when it begins or ceases to decide.
    assert changes <= 2 * probes + 4
    assert len(json.dumps(objects[-1].document())) < 16 * 1024


def test_of_other_arms_it_takes_what_it_can_use() -> None:
    world = diamond(Policy.HYMAB, seed=3)
    world.run(30)
    until_it_rests(world)
    document = json.loads(json.dumps(world.learning.learned["f1"].document()))
    document["arms"] = document["arms"][:1]
    state = document["state"]
    for name in ("probes", "recent_mbps", "strikes"):
        state[name] = state[name][:1]
    before = bandit(world)
    taken_over(world, {"f1": parse_learned(document, NAMED)})
    world.step()
    assert bandit(world)["arms"][0]["probes"] == before["arms"][0]["probes"] > 0
    assert all(arm["probes"] == 0 for arm in bandit(world)["arms"][1:])


def wrong_documents() -> list[Any]:
    world = diamond(Policy.HYMAB, seed=3)
    world.run(20)
    good = json.loads(json.dumps(world.learning.learned["f1"].document()))
    found = []

    def but(*place: Any, value: Any) -> None:
        one = copy.deepcopy(good)
        inside = one
        for each in place[:-1]:
            inside = inside[each]
        inside[place[-1]] = value
        found.append(one)

    for name in good:
        if name not in ("problem", "governs"):
            but(name, value=None)
            but(name, value=[[[1]]])
    but("policy", value="other")
    but("arms", value=[])
    but("arms", 0, value=[99])
    but("arms", 0, value=[-1])
    but("state", "probes", 0, value=-1)
    but("state", "probes", 0, value=float("nan"))
    but("state", "recent_mbps", 0, value=[[1e400] * 2])
    but("state", "recent_mbps", 0, value=[[1.0]] * 1000)
    but("state", "eps_min", value=[])
    but("samples", 0, value=[[10**9, 1.0, []]])
    but("samples", 0, value=[[1, 0.0, []]])
    but("samples", 0, value=[[1, 1.0, [["a", "b", -1.0]]]])
    but("dead", value=[64])
    but("failures", value=-1)
    return found


def test_what_makes_no_sense_is_refused() -> None:
    for document in wrong_documents():
        with pytest.raises(LearnedError):
            parse_learned(document, NAMED)

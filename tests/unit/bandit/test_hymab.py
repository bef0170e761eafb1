"""HyMAB and HyMAB+ as state machines: what they must do trial by trial, and laws that hold on any measurements."""

from __future__ import annotations

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.core.bandit import Exploit, FlowBandit, Hymab, HymabPlus, Probe, flow_bandit
from hyroads.controller.core.bandit.baselines import EpsGreedy, EpsNGreedy, Rand, Rexp3, rexp3_gamma
from hyroads.controller.core.bandit.flow import BanditError, FlowSets, flow_set_key
from hyroads.controller.core.bandit.policy import Decision

POLICIES = [Hymab(), Hymab(dynamic=False), HymabPlus(), Rand(), EpsGreedy(0.1), EpsNGreedy(gap=0.1), Rexp3()]
ids = lambda policy: type(policy).__name__ + ("" if getattr(policy, "dynamic", True) else "-static")  # noqa: E731
PLANNED = ((10.0, 6.0), (12.0,), (3.0, 2.0, 4.0))


def drive(bandit: FlowBandit, rates, trials: int, rng: np.random.Generator, noise=0.0):
    """Probes measure ``rates[arm]``; returns the bandit and what it did."""
    actions = []
    for _ in range(trials):
        action = bandit.decide(rng)
        actions.append(action)
        seen = None
        if isinstance(action, Probe):
            seen = np.array(rates[action.arm]) * max(0.0, 1 + noise * rng.standard_normal())
        bandit = bandit.observe(action, seen)
    return bandit, actions


@pytest.mark.parametrize("policy", [Hymab(), Hymab(dynamic=False), HymabPlus()], ids=ids)
def test_every_arm_is_probed_first_then_the_best_is_used(policy) -> None:
    rates = ((4.0, 4.0), (9.0,), (1.0, 2.0, 3.0))
    bandit, actions = drive(flow_bandit(policy, PLANNED), rates, 400, np.random.default_rng(1))
    assert {a.arm for a in actions[:3]} == {0, 1, 2} and all(isinstance(a, Probe) for a in actions[:3])
    assert bandit.exploit() == Exploit(1, (9.0,))
    late = [a for a in actions[200:] if isinstance(a, Exploit)]
    assert len(late) > 180 and all(a == Exploit(1, (9.0,)) for a in late)


@pytest.mark.parametrize("policy", POLICIES, ids=ids)
def test_before_any_measurement_the_planners_rates_are_used(policy) -> None:
    assert flow_bandit(policy, PLANNED).exploit() == Exploit(0, (10.0, 6.0))


@pytest.mark.parametrize("policy", [Hymab(), HymabPlus()], ids=ids)
def test_a_refused_or_void_probe_is_asked_for_again(policy) -> None:
    bandit, rng = flow_bandit(policy, PLANNED), np.random.default_rng(2)
    for _ in range(4):
        action = bandit.decide(rng)
        assert isinstance(action, Probe) and action.arm == 0
        bandit = bandit.observe(bandit.exploit())
        assert bandit.decide(rng) == action
        bandit = bandit.observe(action, None)
    assert bandit.probes == (0, 0, 0)


def test_eps_falls_with_the_probes_of_the_arm() -> None:
    policy = Hymab(dynamic=False, exponent=2.0)
    state = policy.start(20_000, 1, 1)
    shares = []
    everyone = Decision(np.ones(20_000, bool), np.zeros(20_000, int))
    for _ in range(5):
        shares.append(policy.decide(state, np.random.default_rng(1)).probe.mean())
        state = policy.observe(state, everyone, np.ones((20_000, 1)))
    assert shares == pytest.approx([1, 1, 1 / 4, 1 / 9, 1 / 16], abs=0.01)


def test_ucb1_by_hand() -> None:
    policy = Hymab(dynamic=False)
    state = policy.start(1, 2, 1)
    for arm, reward in [(0, 1.0), (1, 0.5), (0, 1.0), (0, 1.0)]:
        state = policy.observe(state, Decision(np.array([True]), np.array([arm])), np.array([[reward]]))
    # After 4 trials: 1 + sqrt(2 ln 4 / 3) = 1.961 against 0.5 + sqrt(2 ln 4 / 1) = 2.165.
    assert policy.select(state, np.random.default_rng(0)).tolist() == [1]
    state = policy.observe(state, Decision(np.array([True]), np.array([1])), np.array([[0.5]]))
    # After 5: 1 + sqrt(2 ln 5 / 3) = 2.036 against 0.5 + sqrt(2 ln 5 / 2) = 1.769.
    assert policy.select(state, np.random.default_rng(0)).tolist() == [0]


def test_three_strikes_reset_that_arm_only() -> None:
    bandit = flow_bandit(Hymab(), [[10.0], [9.0]])
    for arm, rate in [(0, 10.0), (1, 9.0), (0, 10.0), (0, 4.0), (0, 10.0), (0, 4.0), (0, 4.0)]:
        bandit = bandit.observe(Probe(arm), [rate])
        assert not bandit.changed
    bandit = bandit.observe(Probe(0), [4.0])
    assert bandit.changed and bandit.probes == (0, 1)
    assert isinstance(bandit.decide(np.random.default_rng(0)), Probe)
    assert bandit.exploit() == Exploit(1, (9.0,))
    assert not bandit.observe(bandit.exploit()).changed


def test_variable_eps_min() -> None:
    bandit = flow_bandit(Hymab(), [[10.0]])
    steps = [(10, 0.05), (10, 0.05), (5, 0.15), (6.5, 0.15), (8.2, 0.075), (8, 0.05)]
    for rate, eps_min in steps:
        bandit = bandit.observe(Probe(0), [rate])
        assert bandit.state.eps_min[0] == pytest.approx(eps_min)


def test_means_are_over_the_last_ten() -> None:
    bandit = flow_bandit(Hymab(far=9.0), [[10.0, 5.0]])
    for i in range(1, 16):
        bandit = bandit.observe(Probe(0), [i, 2.0 * i])
    assert bandit.rates_of(0) == pytest.approx((10.5, 21.0))
    assert bandit.probes == (15,)


def test_plus_checks_a_suspicion_at_once_and_forgets_what_was_before_a_change() -> None:
    rng = np.random.default_rng(5)
    bandit, _ = drive(flow_bandit(HymabPlus(), [[10.0], [8.0]]), ((10.0,), (8.0,)), 1500, rng, 0.1)
    for _ in range(200):
        action = bandit.decide(rng)
        if action == Probe(0):
            break
        bandit = bandit.observe(action, [8.0] if isinstance(action, Probe) else None)
    bandit = bandit.observe(Probe(0), [3.0])
    slots = 0
    while bandit.exploit().arm == 0 and slots < 6:
        action = bandit.decide(rng)
        bandit = bandit.observe(action, [3.0 if action.arm == 0 else 8.0] if isinstance(action, Probe) else None)
        slots += 1
    assert bandit.exploit().arm == 1
    assert bandit.rewards_mbps[0] == pytest.approx(3.0)


def test_plus_learns_the_noise() -> None:
    for noise in (0.05, 0.3):
        rng = np.random.default_rng(6)
        bandit, _ = drive(flow_bandit(HymabPlus(floor=0.3), [[10.0], [9.0]]), ((10.0,), (9.0,)), 1500, rng, noise)
        assert np.sqrt(bandit.state.variance[0]) == pytest.approx(noise, rel=0.35)


@pytest.mark.parametrize("policy", [Hymab(), HymabPlus()], ids=ids)
def test_observing_changes_no_state_in_place(policy) -> None:
    rng = np.random.default_rng(7)
    bandit, _ = drive(flow_bandit(policy, PLANNED), PLANNED, 30, rng, 0.2)
    before = [np.array(v) for v in (bandit.state.arms.recent_mbps, bandit.state.arms.probes, bandit.state.trial)]
    drive(bandit, ((1.0, 1.0), (1.0,), (1.0, 1.0, 1.0)), 60, rng)
    after = (bandit.state.arms.recent_mbps, bandit.state.arms.probes, bandit.state.trial)
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("policy", POLICIES, ids=ids)
@examples(25)
@given(data=st.data())
def test_laws_on_any_measurements(policy, data) -> None:
    rates = data.draw(st.lists(st.floats(0, 1e4), min_size=1, max_size=5))
    noise = data.draw(st.floats(0, 2))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    planned = [[1.0]] * len(rates)
    bandit = flow_bandit(policy, planned)
    done = [0] * len(rates)
    seen: list[list[float]] = [[] for _ in rates]
    for trial in range(1, 80):
        action = bandit.decide(rng)
        assert 0 <= action.arm < len(rates)
        value = None
        if isinstance(action, Probe):
            value = max(0.0, rates[action.arm] * (1 + noise * rng.standard_normal()))
            done[action.arm] += 1
            seen[action.arm].append(value)
        else:
            assert action.rates_mbps == bandit.rates_of(action.arm)
        bandit = bandit.observe(action, None if value is None else [value])
        assert bandit.state.trial[0] == trial
        assert all(p <= d for p, d in zip(bandit.probes, done, strict=True))
        for arm, reward in enumerate(bandit.rewards_mbps):
            lowest, highest = min(seen[arm], default=0.0), max(seen[arm], default=0.0)
            assert min(lowest, 0.0) - 1e-9 <= reward <= highest * (1 + 1e-9) + 1e-9
        assert np.isfinite(bandit.state.arms.mean_mbps).all()


def test_flows_of_a_batch_do_not_influence_each_other() -> None:
    """The study's batch and the controller's single flow are the same code: a row is what it would be alone."""
    policy = HymabPlus()
    rng = np.random.default_rng(8)
    batch, alone = policy.start(4, 3, 1), policy.start(1, 3, 1)
    for _ in range(200):
        arm, probe = rng.integers(0, 3, 4), rng.random(4) < 0.6
        rates = rng.uniform(0.1, 1.0, (4, 1))
        batch = policy.observe(batch, Decision(probe, arm), rates)
        alone = policy.observe(alone, Decision(probe[2:3], arm[2:3]), rates[2:3])
    assert np.array_equal(batch.arms.mean_mbps[2], alone.arms.mean_mbps[0])
    assert np.array_equal(batch.due[2], alone.due[0]) and batch.variance[2] == alone.variance[0]


def learned() -> FlowBandit:
    bandit = flow_bandit(Hymab(), [[10.0, 5.0], [8.0]])
    return bandit.observe(Probe(0), [9.0, 4.0]).observe(Probe(1), [7.0])


def test_another_flow_halves_the_rates_at_once_and_its_leaving_restores_them() -> None:
    alone, both = flow_set_key(["f1"]), flow_set_key(["f2", "f1"])
    sets, bandit = FlowSets(alone, (1, 1)), learned()
    halved, sets = sets.moved(bandit, both, (2, 1))
    assert halved.exploit() == Exploit(1, (7.0,)) and halved.rates_of(0) == (4.5, 2.0)
    halved = halved.observe(Probe(0), [5.0, 1.0])
    restored, sets = sets.moved(halved, alone, (1, 1))
    assert restored is bandit
    # A known set that comes back by an arrival: scaled in the original, restored on request.
    scaled, _ = sets.moved(restored, both, (2, 1))
    assert scaled.rates_of(0) == (4.5, 2.0)
    assert sets.moved(restored, both, (2, 1), restore_on_growth=True)[0] is halved


def test_leaving_flows_to_a_set_never_seen_restart_the_bandit() -> None:
    sets = FlowSets(flow_set_key(["f1", "f2"]), (2, 2))
    bandit, sets = sets.moved(learned(), flow_set_key(["f1"]), (1, 2))
    assert bandit.probes == (0, 0)
    assert sets.sharing == (1, 2)


def test_the_memory_is_bounded() -> None:
    sets, bandit = FlowSets("start", (1, 1)), learned()
    for i in range(200):
        bandit, sets = sets.moved(bandit, f"set{i}", (1 + i % 2, 1))
    assert len(sets.known) <= 64 and "set198" in sets.known


def test_sets_of_flows_whose_names_read_alike_have_keys_of_their_own() -> None:
    sets = [["a1", "2"], ["a", "12"], ["a12"], ["a", "1", "2"], []]
    assert len({flow_set_key(flows) for flows in sets}) == len(sets)


@given(st.lists(st.text(max_size=5)))
def test_the_key_is_that_of_a_set(flows) -> None:
    assert flow_set_key(flows) == flow_set_key(list(reversed(flows)) + flows)
    assert flow_set_key(flows) != flow_set_key([*flows, "another one"])


def test_recomputed_arms_keep_what_is_known_of_the_same_paths() -> None:
    bandit = learned().with_arms([[3.0], [8.0], [1.0, 1.0]], [None, 1, 0])
    assert bandit.probes == (0, 1, 1)
    assert bandit.rates_of(0) == (3.0,) and bandit.rates_of(1) == (7.0,) and bandit.rates_of(2) == (9.0, 4.0)
    with pytest.raises(BanditError):
        learned().with_arms([[3.0]], [0])


@pytest.mark.parametrize("policy", [Hymab(), HymabPlus(), Rexp3()], ids=ids)
def test_recomputed_arms_go_on_as_if_nothing_had_happened(policy) -> None:
    """The same arms in the same order: means and windows go on, through more measurements than a window holds."""
    rng = np.random.default_rng(9)
    bandit, _ = drive(flow_bandit(policy, [[9.0], [8.0]]), ((9.0,), (8.0,)), 3000, rng, 0.1)
    moved = bandit.with_arms([[9.0], [8.0]], [0, 1])
    assert moved.probes == bandit.probes and moved.state.trial[0] == 3000
    for rate in (9.5, 8.5, 9.1):
        bandit, moved = bandit.observe(Probe(0), [rate]), moved.observe(Probe(0), [rate])
        assert moved.rewards_mbps == bandit.rewards_mbps
        assert np.array_equal(moved.state.arms.counted, bandit.state.arms.counted)


def test_a_hint_of_change_makes_plus_probe_what_it_uses_and_hymab_probe_more() -> None:
    rng = np.random.default_rng(10)
    bandit, _ = drive(flow_bandit(HymabPlus(), [[9.0], [7.0]]), ((9.0,), (7.0,)), 1000, rng)
    assert bandit.alerted().decide(rng) == Probe(0)
    plain, _ = drive(flow_bandit(Hymab(), [[9.0], [7.0]]), ((9.0,), (7.0,)), 1000, rng)
    assert plain.state.eps_min[0] == 0.05 and plain.alerted().state.eps_min[0] == 0.15
    assert flow_bandit(Rexp3(), [[9.0]]).alerted().exploit() == Exploit(0, (9.0,))


@pytest.mark.parametrize("rates", [[1.0], [1.0, -1.0], [1.0, np.nan]])
def test_wrong_measurements_are_refused(rates) -> None:
    with pytest.raises(BanditError):
        learned().observe(Probe(0), rates)


@pytest.mark.parametrize("planned", [[], [[]], [[-1.0]], [[np.inf]]])
def test_wrong_plans_are_refused(planned) -> None:
    with pytest.raises(BanditError):
        flow_bandit(Hymab(), planned)


def test_rexp3_as_published_draws_arms_by_its_own_gamma_and_probes_by_eps() -> None:
    gamma = rexp3_gamma(5, 300)
    assert gamma == pytest.approx(np.sqrt(5 * np.log(5) / ((np.e - 1) * 300))) and rexp3_gamma(5, 4) == 1.0
    policy, flows, rng = Rexp3(gamma, 300, None, eps=0.2), 4000, np.random.default_rng(1)
    state = policy.start(flows, 5, 1)
    # What one reward does to the weight of its arm: exp(gamma reward / (p N)), with p = 1 / N at first.
    known = Decision(np.ones(flows, dtype=bool), np.full(flows, 2))
    state = policy.observe(state, known, np.full((flows, 1), 0.8))
    assert state.log_weights[0] == pytest.approx([0, 0, gamma * 0.8, 0, 0])
    share = np.exp(gamma * 0.8) / (4 + np.exp(gamma * 0.8))
    decision = policy.decide(state, rng)
    assert decision.probe.mean() == pytest.approx(0.2, abs=0.025)
    drawn = decision.arm[decision.probe]
    assert (drawn == 2).mean() == pytest.approx((1 - gamma) * share + gamma / 5, abs=0.06)
    assert (decision.arm[~decision.probe] == 2).all(), "what is not probed is the best arm"
    assert Rexp3(0.1).decide(Rexp3(0.1).start(flows, 5, 1), rng).probe.mean() == pytest.approx(0.1, abs=0.02)

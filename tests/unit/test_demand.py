"""Demand-aware rates in a simulated loop with the exact solver: no oscillation, the optimum, awake within one slot."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from demands_by_flow import DemandsByFlow
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from hyroads.controller.core.demand import DemandError, Demands, DemandSettings, Offer, Offers
from hyroads.controller.core.errors import PlanningError
from hyroads.controller.core.network import FlowSpec
from hyroads.controller.core.planner import Planner
from hyroads.controller.core.rates import RateProblem, rate_problem, solve
from hyroads.controller.study import networks as study_networks

SLOT_S = 0.1
SETTINGS = DemandSettings()
SETTLED = 25  # slots: patience and window, with some to spare


def random_problem(seed: int, flows: int) -> RateProblem:
    rng = random.Random(seed)
    network = study_networks.residential(rng)
    planner = Planner(network, clients_relay=True)
    paths = {}
    while len(paths) < flows:
        source, target = study_networks.endpoints(network, rng)
        try:
            paths[f"f{len(paths)}"] = planner.plan(source, target).multipath.links
        except PlanningError:
            continue
    return rate_problem(network, paths, flows=[FlowSpec(f, "", "") for f in paths], margin=0.05)


class Loop:
    """Flows that offer what they like, allowed what the solver says under the estimated demands."""

    def __init__(self, problem: RateProblem) -> None:
        self.problem = problem
        self.ids = problem.layout.flow_ids
        self.demands = Demands()
        self.allowed = solve(problem).flow_rates_mbps
        self.now_s = 0.0

    def step(self, offered: np.ndarray) -> np.ndarray:
        """One slot; returns what was sent."""
        sent = np.minimum(offered, self.allowed)
        offers = {
            flow: Offer(float(s), float(a), bool(o > a))
            for flow, s, a, o in zip(self.ids, sent, self.allowed, offered, strict=True)
        }
        self.now_s += SLOT_S
        self.demands = self.demands.after(offers, self.now_s)
        self.allowed = solve(self.problem.changed(demand_mbps=self.caps())).flow_rates_mbps
        return sent

    def caps(self) -> np.ndarray:
        return np.array([self.demands.demand_mbps(flow) for flow in self.ids])

    def optimum(self, offered: np.ndarray) -> np.ndarray:
        return solve(self.problem.changed(demand_mbps=offered)).flow_rates_mbps


def offers_of(rng: np.random.Generator, problem: RateProblem) -> np.ndarray:
    """Some flows idle, some with little, some with more than they can ever get."""
    fair = solve(problem).flow_rates_mbps
    kind = rng.integers(0, 4, len(fair))
    return np.select([kind == 0, kind == 1, kind == 2], [0.0, 0.3 * fair, 0.9 * fair], 1e4) * rng.uniform(0.8, 1.2)


@settings(examples(40), derandomize=True)
@given(st.integers(0, 10_000), st.integers(2, 5))
def test_steady_offers_settle_near_the_optimum_with_demands_and_stay(seed: int, flows: int) -> None:
    problem = random_problem(seed, flows)
    loop = Loop(problem)
    offered = offers_of(np.random.default_rng(seed), problem)
    for _ in range(SETTLED):
        loop.step(offered)
    caps, allowed = loop.caps(), loop.allowed.copy()
    for _ in range(SETTLED):
        sent = loop.step(offered)
        # Not one cap moves, so no rate does.
        assert loop.caps() == pytest.approx(caps, rel=1e-12)
        assert loop.allowed == pytest.approx(allowed, rel=1e-5, abs=1e-6)
    utilities = problem.utilities
    assert utilities.total(sent) >= 0.9 * utilities.total(loop.optimum(offered))


@settings(examples(40), derandomize=True)
@given(st.integers(0, 10_000), st.integers(2, 5))
def test_whoever_wakes_has_its_fair_rate_after_one_slot(seed: int, flows: int) -> None:
    problem = random_problem(seed, flows)
    loop = Loop(problem)
    rng = np.random.default_rng(seed)
    asleep = rng.integers(0, flows)
    offered = np.full(flows, 1e4)
    offered[asleep] = 0.0
    for _ in range(SETTLED):
        loop.step(offered)
    assert loop.demands.flows[loop.ids[asleep]].is_limited
    offered[asleep] = 1e4
    loop.step(offered)
    assert loop.allowed == pytest.approx(loop.optimum(offered), rel=1e-4, abs=1e-6)


@settings(examples(25), derandomize=True)
@given(st.integers(0, 10_000), st.floats(0.01, 0.05))
def test_noise_of_a_steady_offer_wakes_nobody(seed: int, noise: float) -> None:
    rng = np.random.default_rng(seed)
    demands = Demands()
    allowed = 10.0
    for slot in range(200):
        sent = min(allowed, 4.0 * float(np.clip(rng.normal(1.0, noise / 2), 1 - noise, 1 + noise)))
        demands = demands.after({"f": Offer(sent, allowed)}, slot * SLOT_S)
        allowed = min(10.0, demands.demand_mbps("f"))
        if slot > 10:
            assert demands.flows["f"].is_limited
            assert allowed >= sent


@given(st.lists(st.floats(0, 50), min_size=1, max_size=60), st.floats(0.5, 40))
def test_a_cap_never_cuts_what_was_sent(sent: list[float], share: float) -> None:
    """Whatever a flow sends: a finite cap lies above all it sent within the window."""
    demands = Demands()
    history: list[tuple[float, float]] = []
    for slot, offer in enumerate(sent):
        now_s = slot * SLOT_S
        allowed = min(share, demands.demand_mbps("f"))
        rate = min(offer, allowed)
        history.append((now_s, rate))
        demands = demands.after({"f": Offer(rate, allowed, offer > allowed)}, now_s)
        recent = [r for t, r in history if t > now_s - SETTINGS.window_s]
        assert demands.demand_mbps("f") >= max(SETTINGS.floor_mbps, *recent)


@settings(examples(60), derandomize=True)
@given(st.floats(0.05, 20), st.floats(0.0, 0.6), st.booleans(), st.integers(0, 10_000))
def test_a_steady_flow_never_takes_much_more_than_it_sends(
    mbps: float, noise: float, small_frames: bool, seed: int
) -> None:
    """Others want all: whatever its noise, its cap is bounded by what it sends, and it is never cut below that."""
    rng = np.random.default_rng(seed)
    demands = Demands()
    most, queued = mbps * (1 + noise), 0.0
    allowed = 100.0
    for slot in range(150):
        offered = mbps * float(rng.uniform(1 - noise, 1 + noise)) + queued
        sent = min(offered, allowed)
        queued = offered - sent
        known = offered if small_frames else None
        demands = demands.after({"f": Offer(sent, allowed, small_frames and queued > 0, known)}, slot * SLOT_S)
        allowed = min(100.0, demands.demand_mbps("f"))
        if slot >= SETTLED:
            # What waits for a slot is sent in the next.
            times = SETTINGS.headroom * (1 + noise) if small_frames else SETTINGS.step
            assert allowed <= max(SETTINGS.floor_mbps, times * most) * (1 + 1e-9)
            assert queued <= noise * mbps * 2 + 1e-9
            assert demands.flows["f"].is_limited


@given(st.floats(0.5, 500), st.floats(0.0, 0.5))
def test_a_transfer_without_a_queue_has_its_share_after_a_few_slots(share: float, used: float) -> None:
    """A sender that adapts so well that nothing ever waits (BBR) doubles its rate in each slot."""
    demands = Demands()
    for slot in range(SETTLED):
        demands = demands.after({"f": Offer(used * share, share)}, slot * SLOT_S)
    allowed = demands.demand_mbps("f")
    assert allowed <= share
    needed = math.ceil(math.log2(share / allowed)) + 1
    for slot in range(SETTLED, SETTLED + needed):
        allowed = min(share, demands.demand_mbps("f"))
        demands = demands.after({"f": Offer(allowed, allowed)}, slot * SLOT_S)
    assert min(share, demands.demand_mbps("f")) == share


def test_a_backlog_of_a_transfer_wakes_it_at_once_and_one_of_known_size_gets_just_that() -> None:
    demands = Demands()
    for slot in range(10):
        demands = demands.after({"bulk": Offer(1.0, 10.0), "small": Offer(1.0, 10.0, False, 1.0)}, slot * SLOT_S)
    offers = {"bulk": Offer(1.15, 1.15, True), "small": Offer(1.15, 1.15, True, 3.0)}
    demands = demands.after(offers, 1.0)
    assert demands.demand_mbps("bulk") == math.inf
    assert demands.demand_mbps("small") == pytest.approx(SETTINGS.headroom * 3.0)


def test_a_peak_of_small_frames_that_nothing_waits_for_reserves_next_to_nothing() -> None:
    demands = Demands()
    for slot in range(20):
        sent = 0.5 if slot == 18 else 0.3
        demands = demands.after({"f": Offer(sent, 5.0, False, sent)}, slot * SLOT_S)
    assert 0.3 * SETTINGS.headroom <= demands.demand_mbps("f") <= 0.35 * SETTINGS.headroom


def test_a_new_flow_gets_a_fair_share_and_a_flow_that_ended_is_forgotten() -> None:
    demands = Demands()
    for slot in range(10):
        demands = demands.after({"f": Offer(0.0, 10.0)}, slot * SLOT_S)
    assert demands.demand_mbps("f") == SETTINGS.floor_mbps
    assert demands.demand_mbps("new") == math.inf
    demands = demands.after({"new": Offer(5.0, 5.0)}, 2.0)
    assert demands.demand_mbps("f") == math.inf


def test_a_flow_without_a_report_keeps_its_cap() -> None:
    demands = Demands()
    for slot in range(10):
        demands = demands.after({"f": Offer(1.0, 10.0)}, slot * SLOT_S)
    kept = demands.carried({}, 1.1, frozenset({"f"}))
    assert kept.demand_mbps("f") == demands.demand_mbps("f") == pytest.approx(1.15)
    assert kept.carried({}, 1.2, frozenset()).flows == {}


def test_nothing_is_given_back_before_the_patience_is_over_and_a_burst_starts_it_anew() -> None:
    demands = Demands()
    for slot in range(5):
        demands = demands.after({"f": Offer(1.0, 10.0)}, slot * SLOT_S)
        assert demands.demand_mbps("f") == math.inf
    demands = demands.after({"f": Offer(9.0, 10.0)}, 0.5)
    demands = demands.after({"f": Offer(1.0, 10.0)}, 0.6)
    assert demands.demand_mbps("f") == math.inf


def test_a_blocked_flow_is_not_taken_for_one_without_demand() -> None:
    demands = Demands()
    for slot in range(20):
        demands = demands.after({"f": Offer(0.0, 0.0)}, slot * SLOT_S)
    assert demands.demand_mbps("f") == math.inf


@pytest.mark.parametrize(
    "wrong", [{"headroom": 1.01}, {"idle_below": 0.98}, {"step": 1.0}, {"patience_s": 0.0}, {"dead_band": 1.0}]
)
def test_settings_that_could_oscillate_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(DemandError):
        DemandSettings(**wrong)


def test_nonsense_is_refused() -> None:
    with pytest.raises(DemandError):
        Offer(math.nan, 1.0)
    with pytest.raises(DemandError):
        Offer(1.0, 1.0, True, math.inf)


RATES = st.sampled_from([0.0, 0.05, 1.0, 8.0, 9.9, 10.0])
OFFERS = st.builds(Offer, RATES, RATES, st.booleans(), st.none() | RATES)
SLOTS = st.lists(
    st.tuples(st.dictionaries(st.sampled_from("abcd"), OFFERS), st.sets(st.sampled_from("abcd")), st.booleans()),
    max_size=40,
)


@examples(150, quick=30)
@given(slots=SLOTS)
def test_arrays_say_what_flow_by_flow_does(slots: list[tuple[dict[str, Offer], set[str], bool]]) -> None:
    demands, by_flow = Demands(), DemandsByFlow()
    for slot, (offers, present, soon) in enumerate(slots):
        now_s = slot * SLOT_S + (0.03 if soon else 0.0)
        demands = demands.carried(Offers.of(offers), now_s, tuple(sorted(present)))
        by_flow = by_flow.carried(offers, now_s, frozenset(present))
        assert [demands.demand_mbps(flow) for flow in "abcd"] == [by_flow.demand_mbps(flow) for flow in "abcd"]
        assert demands.demands_mbps(tuple("dcba")).tolist() == [by_flow.demand_mbps(flow) for flow in "dcba"]
        for flow, state in demands.flows.items():
            if flow in by_flow.flows:
                assert state.idle_since_s == by_flow.flows[flow].idle_since_s

"""The live loop: flows that come and go, flows that others decide, measured capacities, the controller mode."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planning import NO_REPORTS, live_of

from hyroads.controller.api.network import flow_document, slices_document
from hyroads.controller.control.link_holds import LinkHolds
from hyroads.controller.control.live import Live
from hyroads.controller.control.live_network import Basis, LiveNetwork
from hyroads.controller.control.loop import LiveLoop, LoopOptions
from hyroads.controller.control.rate_override import Fixed, RateOverrides, SlotView
from hyroads.controller.control.reports import AgentRates
from hyroads.controller.control.routes import make_routes
from hyroads.controller.control.slots import SlotClock
from hyroads.controller.control.source import ConfiguredSource, Heard
from hyroads.controller.core.addressing import Numbers
from hyroads.controller.core.closed_loop import Measurements, configured_samples
from hyroads.controller.core.demand import Offer
from hyroads.controller.core.estimate.link_estimate import Sample, Source
from hyroads.controller.core.infer.change import Change
from hyroads.controller.core.interference import TechnologyInterference
from hyroads.controller.core.network import FlowSpec, Policy, Traffic
from hyroads.controller.files.documents import read_file
from hyroads.controller.model.plan import MULTIPATH, Options
from hyroads.controller.model.state import (
    DeclaredFlow,
    Origin,
    State,
    TopologyContext,
    flow_declared,
    initial,
    links_heard,
)

TRIANGLE = Path(__file__).resolve().parents[3] / "mininet" / "networks" / "triangle.yaml"
CONTEXT = TopologyContext.of(read_file(TRIANGLE))
HYBRID = [("ab-plc", "bc-wifi"), ("ab-wifi", "bc-wifi")]
RIVAL = FlowSpec("g", "b", "a", paths=(("ab-wifi~",),))


def start(*flows: FlowSpec) -> State:
    return initial(CONTEXT, [DeclaredFlow(flow, Origin.FILE) for flow in flows or CONTEXT.network.flows])


class Readings:
    """A source that tells what the test says."""

    def __init__(self) -> None:
        self.next = Measurements()
        self.who = Heard()

    def take(self, now_s: float) -> Measurements:
        taken, self.next = self.next, Measurements()
        return taken

    def heard(self) -> Heard:
        return self.who


class Decider:
    """A override that says what the test says, and remembers what it saw."""

    def __init__(self) -> None:
        self.says: Mapping[str, Fixed] = {}
        self.views: list[SlotView] = []
        self.alerts: list[Change] = []

    def decide(self, view: SlotView) -> Mapping[str, Fixed]:
        self.views.append(view)
        return self.says

    def alerted(self, changes: tuple[Change, ...], now_s: float) -> None:
        self.alerts += changes

    def document(self, flow: str) -> dict[str, Any] | None:
        return {"said": len(self.says)} if flow in self.says else None


def governed(*flows: FlowSpec) -> tuple[Live, Decider, State]:
    decider = Decider()
    loop = LiveLoop(CONTEXT.network, ConfiguredSource(CONTEXT.network), LoopOptions(), decider)
    live, state = Live(CONTEXT, Numbers(), Options(), loop), start(*flows)
    live.replan(state, NO_REPORTS, 0.0)
    return live, decider, state


def rates(live: Live, flow: str) -> list[float | None]:
    return [path.rate_mbps for path in live.in_force.flows[flow].paths]


def test_a_flow_of_a_override_gets_what_it_says_and_the_others_what_is_left() -> None:
    live, decider, state = governed(CONTEXT.network.flows[0], RIVAL)
    decider.says = {"f1": Fixed({HYBRID[1]: 2.0}, fill_mbps={HYBRID[1]: 1.5})}
    assert live.slot(state, NO_REPORTS, 0.1)[1] is live.plan
    assert rates(live, "f1") == [0.0, 2.0]
    # Two Mb/s over both WiFi links take 2/15 + 2/30 of the medium; the rival has what the margin leaves of the rest.
    assert rates(live, "g") == pytest.approx([15 * (0.95 - 0.2)], rel=1e-3)
    assert list(live.in_force.fill) == ["f1"] and sorted(live.in_force.fill["f1"].values()) == [0.0, 1.5]
    assert live.in_force.agents["a"].ingress["f1"].paths[1].rate_mbps == 2.0
    view = decider.views[-1]
    assert view.slot == 1 and view.routes["f1"].paths == tuple(HYBRID)
    decider.says = {}
    live.slot(state, NO_REPORTS, 0.2)
    assert sum(r or 0 for r in rates(live, "f1")) > 8 and not live.in_force.fill
    last = decider.views[-1].last
    assert last is not None and last.allocation.flow_rates_mbps[0] == pytest.approx(2.0)


def test_any_change_of_a_fixed_rate_goes_out() -> None:
    live, decider, state = governed()
    for rate in (4.0, 4.01, 4.0):
        decider.says = {"f1": Fixed({HYBRID[0]: rate})}
        assert live.slot(state, NO_REPORTS, 0.1)[1] is not None
        assert rates(live, "f1") == [rate, 0.0]
    assert live.slot(state, NO_REPORTS, 0.2)[1] is None


def test_a_cut_link_takes_a_fixed_flow_to_the_solver_at_once_and_tells_the_override() -> None:
    live, decider, state = governed()
    decider.says = {"f1": Fixed({HYBRID[0]: 9.0})}
    live.slot(state, NO_REPORTS, 0.1)
    cut = links_heard(state, CONTEXT, "b", {"ab-plc": False}, 5.0)
    live.replan(cut, NO_REPORTS, 5.0)
    assert rates(live, "f1") == pytest.approx([9.5], rel=1e-3)
    live.improve(NO_REPORTS, 5.0)
    assert [(change.link, change.after_mbps) for change in decider.alerts] == [("ab-plc", 0.0)]


def test_flows_with_bandits_hold_the_paths_of_all_their_arms() -> None:
    spec = replace(CONTEXT.network.flows[0], policy=Policy.HYMAB_PLUS)
    live = live_of(CONTEXT)
    plan = live.replan(start(spec), NO_REPORTS, 0.0)
    route = live.loop.routes["f1"]
    assert len(route.arms) >= 2 and route.arms[0] == (0, 1)
    assert {i for arm in route.arms for i in arm} == set(range(len(route.paths)))
    assert [path.links for path in plan.flows["f1"].paths] == list(route.paths)
    assert len(plan.agents["a"].ingress["f1"].paths) == len(route.paths)
    assert set(plan.agents["b"].egress["f1"].paths) == {path.id for path in plan.flows["f1"].paths}


def test_a_path_that_comes_back_is_used_again_and_a_flow_that_gains_nothing_stays() -> None:
    live, state = live_of(CONTEXT), start()
    live.replan(state, NO_REPORTS, 0.0)
    cut = links_heard(state, CONTEXT, "b", {"ab-plc": False}, 5.0)
    assert [p.links for p in live.replan(cut, NO_REPORTS, 5.0).flows["f1"].paths] == [HYBRID[1]]
    assert live.improve(NO_REPORTS, 5.0) is None
    back = links_heard(cut, CONTEXT, "b", {"ab-plc": True}, 9.0)
    live.replan(back, NO_REPORTS, 9.0)
    better = live.improve(NO_REPORTS, 9.0)
    assert better is not None and {p.links for p in better.flows["f1"].paths} == set(HYBRID)
    assert rates(live, "f1") == pytest.approx([9.5, 9.5 * 2 / 3], rel=1e-3)


def test_a_flow_that_sends_little_uses_a_path_that_came_back_too() -> None:
    live, state, now_s = live_of(CONTEXT), start(), 0.0
    live.replan(state, NO_REPORTS, now_s)
    loop = live.loop

    def idle(seconds: float) -> None:
        nonlocal now_s
        for _ in range(round(10 * seconds)):
            now_s += 0.1
            loop.turn(now_s, AgentRates({}, {"f1": Offer(2.0, sum(loop.rates["f1"]))}))

    idle(2.0)
    assert loop.state.demands.demand_mbps("f1") == pytest.approx(2.3)
    state = links_heard(state, CONTEXT, "b", {"ab-plc": False}, now_s)
    live.replan(state, NO_REPORTS, now_s)
    live.improve(NO_REPORTS, now_s)
    idle(2.0)
    assert loop.rates["f1"] == pytest.approx([9.5], rel=0.02)
    state = links_heard(state, CONTEXT, "b", {"ab-plc": True}, now_s)
    live.replan(state, NO_REPORTS, now_s)
    live.improve(NO_REPORTS, now_s)
    idle(2.0)
    assert loop.rates["f1"] == pytest.approx([9.5, 9.5 * 2 / 3], rel=0.02)


def test_airtime_that_nobody_wants_waits_for_those_who_are_idle() -> None:
    """An idle flow alone has its whole rate at hand; a busy rival gets all of it but the idle flow's demand."""
    live = live_of(CONTEXT)
    live.replan(start(FlowSpec("f", "a", "b", paths=(("ab-wifi",),)), RIVAL), NO_REPORTS, 0.0)
    loop, now_s = live.loop, 0.0

    def run(f_mbps: float, g_mbps: float) -> None:
        nonlocal now_s
        for _ in range(20):
            now_s += 0.1
            sent = {"f": f_mbps, "g": g_mbps}
            loop.turn(
                now_s, AgentRates({}, {x: Offer(min(sent[x], sum(loop.rates[x])), sum(loop.rates[x])) for x in sent})
            )

    run(0.0, 0.0)
    assert loop.rates["f"][0] == pytest.approx(0.95 * 15 / 2, rel=0.02)
    assert loop.airtime()["ab-wifi"] == pytest.approx(0.95, abs=0.01)
    run(0.0, 99.0)
    assert loop.rates["g"][0] == pytest.approx(0.95 * 15, rel=0.02) and loop.rates["f"][0] <= 0.3
    run(99.0, 99.0)
    assert loop.rates["f"][0] == pytest.approx(loop.rates["g"][0], rel=0.02)


def test_a_link_that_fails_again_and_again_is_left_alone_for_a_while() -> None:
    live, holds, state, now_s = live_of(CONTEXT), LinkHolds(CONTEXT), start(), 10.0
    for _ in range(3):
        for up in (False, True):
            heard = links_heard(state, CONTEXT, "b", {"ab-plc": up}, now_s)
            state, now_s = holds.reported(state, heard, now_s), now_s + 0.5
    assert state.held == {"ab-plc"}
    link = CONTEXT.network.links[CONTEXT.network.link_index["ab-plc"]]
    assert state.link_fault(CONTEXT, link) == "flapping"
    assert [p.links for p in live.replan(state, NO_REPORTS, now_s).flows["f1"].paths] == [HYBRID[1]]
    state = holds.damped(state, now_s + 60)
    assert not state.held


def test_what_access_points_measure_decides_and_only_large_changes_move_paths() -> None:
    source = Readings()
    live = Live(CONTEXT, Numbers(), Options(), LiveLoop(CONTEXT.network, source), measures=True)
    state = start()
    live.replan(state, NO_REPORTS, 0.0)
    plans, now_s = 0, 0.0

    def run(seconds: float, **mbps: float) -> None:
        nonlocal state, now_s, plans
        for _ in range(round(seconds * 10)):
            now_s += 0.1
            samples = [
                Sample(link.id, Source.AGENT, mbps.get(link.id.replace("-", "_"), link.capacity_mbps), now_s)
                for link in CONTEXT.network.links
            ]
            source.next = Measurements(samples)
            after, _ = live.slot(state, NO_REPORTS, now_s)
            if after is not state:
                plans, state = plans + 1, after
                live.replan(state, NO_REPORTS, now_s)
                live.improve(NO_REPORTS, now_s)

    run(1.0)
    plans = 0
    assert rates(live, "f1") == pytest.approx([9.5, 9.5 * 2 / 3], rel=0.02)
    run(2.0, ab_plc=9.0)
    assert rates(live, "f1")[0] == pytest.approx(0.95 * 9, rel=0.03) and plans == 0
    run(2.0, ab_plc=3.0)
    assert rates(live, "f1")[0] == pytest.approx(0.95 * 3, rel=0.03) and plans >= 1
    assert live.network.capacities[CONTEXT.network.link_index["ab-plc"]] == pytest.approx(3.0, rel=0.1)
    source.next = Measurements()
    for _ in range(40):
        now_s += 1.0
        state, _ = live.slot(state, NO_REPORTS, now_s)
    assert state.link_fault(CONTEXT, CONTEXT.network.links[0]) == "capacity unknown"


def test_external_traffic_that_takes_all_leaves_a_flow_a_trace() -> None:
    source = Readings()
    source.who = Heard(observers=(("a", "wifi"), ("b", "wifi"), ("nobody", "wifi")))
    loop = LiveLoop(CONTEXT.network, source)
    live, state = Live(CONTEXT, Numbers(), Options(), loop), start()
    source.next = Measurements(configured_samples(CONTEXT.network, 0.0))
    live.replan(state, NO_REPORTS, 0.0)
    for slot in range(1, 20):
        source.next = Measurements(busy={("a", "wifi"): 1.0, ("b", "wifi"): 1.0})
        live.slot(state, NO_REPORTS, slot / 10)
    assert sorted(r or 0.0 for r in rates(live, "f1")) == pytest.approx([0.0, 0.1])
    assert live.loop.external(2.0)["bc-wifi"] == pytest.approx(1.0, abs=0.02)


def test_tcp_has_its_margin_in_the_domains_that_it_uses_and_only_there() -> None:
    network = CONTEXT.network
    tcp = FlowSpec("t", "a", "b", paths=(("ab-plc",),), traffic=Traffic.TCP)
    matched = replace(tcp, traffic=Traffic.ANY, match={"eth_type": 0x800, "ip_proto": 6})
    for spec in (tcp, matched):
        loop = LiveLoop(CONTEXT.network, ConfiguredSource(CONTEXT.network), LoopOptions(tcp_margin=0.3))
        live = Live(CONTEXT, Numbers(), Options(), loop)
        live.replan(start(spec, RIVAL), NO_REPORTS, 0.0)
        assert rates(live, "t") == pytest.approx([7.0], rel=1e-3)
        assert rates(live, "g") == pytest.approx([0.95 * 15], rel=1e-3)
    assert not FlowSpec("u", "a", "b").is_tcp and network.margin is None


def test_a_flow_that_sends_little_leaves_the_rest_to_the_other() -> None:
    loop = LiveLoop(CONTEXT.network, ConfiguredSource(CONTEXT.network))
    live = Live(CONTEXT, Numbers(), Options(), loop)
    live.replan(start(FlowSpec("f", "a", "b", paths=(("ab-wifi",),)), RIVAL), NO_REPORTS, 0.0)
    fair = loop.rates["f"][0]
    assert loop.rates["g"][0] == pytest.approx(fair, rel=1e-3)
    for slot in range(1, 15):
        loop.turn(slot / 10, AgentRates({("f", ("ab-wifi",)): 1.0}, {"f": Offer(1.0, loop.rates["f"][0])}))
    assert loop.rates["g"][0] == pytest.approx(0.95 * 15 - 1.15, rel=0.03)
    loop.turn(1.5, AgentRates({}, {"f": Offer(1.15, 1.15, backlogged=True)}))
    assert loop.rates["f"][0] == pytest.approx(fair, rel=0.03)


def test_controller_mode_approaches_what_the_solver_gives_at_once() -> None:
    loop = LiveLoop(CONTEXT.network, ConfiguredSource(CONTEXT.network), LoopOptions(mode="controller"))
    live = Live(CONTEXT, Numbers(), Options(), loop)
    state = start()
    live.replan(state, NO_REPORTS, 0.0)
    for slot in range(1, 400):
        live.slot(state, NO_REPORTS, slot / 10)
    assert rates(live, "f1") == pytest.approx([9.5, 9.5 * 2 / 3], rel=0.05)
    before = rates(live, "f1")
    live.replan(flow_declared(state, DeclaredFlow(RIVAL, Origin.API)), NO_REPORTS, 60.0)
    # The old flow goes on from where it was.
    assert rates(live, "f1") == pytest.approx(before, rel=0.5)


def test_new_rates_on_the_same_routes_share_all_else() -> None:
    live = live_of(CONTEXT)
    plan = live.replan(start(), NO_REPORTS, 0.0)
    new = plan.with_rates({"f1": (1.0, 0.0)})
    assert new.agents["a"].revision == plan.agents["a"].revision
    fresh = replace(new.agents["a"])
    assert fresh.revision == new.agents["a"].revision, "a hash of everything gives the same"
    assert sorted(new.agents["a"].rates.values()) == [0.0, 1.0] and new.agents["b"] is plan.agents["b"]
    assert new.planned_mbps()["ab-plc"] + new.planned_mbps()["ab-wifi"] == new.planned_mbps()["bc-wifi"] == 1.0
    assert plan.flows["f1"].mode == MULTIPATH and plan.flows["f1"].rate_mbps == pytest.approx(9.5 * 5 / 3, rel=1e-3)


def test_slots_keep_their_times_and_count_those_that_were_missed() -> None:
    now = [100.0]
    slots = SlotClock(0.1, lambda: now[0])
    begun = []
    for took_s in (0.001, 0.02, 0.35, 0.001, 0.001):
        now[0] += slots.wait_s()
        with slots:
            begun.append(now[0])
            now[0] += took_s
    assert begun == pytest.approx([100.0, 100.1, 100.2, 100.55, 100.6])
    figures = slots.figures()
    assert (figures.count, figures.missed) == (5, 2)
    assert figures.p50_ms == pytest.approx(1.0) and figures.p99_ms == figures.max_ms == pytest.approx(350.0)
    assert slots.histogram.cumulative()[-1] == ("+Inf", 5.0) and np.isclose(slots.histogram.total_s, 0.373)
    # Someone else kept us from beginning: the sleep was too long.
    now[0] += slots.wait_s() + 0.25
    with slots:
        pass
    assert slots.figures().missed == 4


def test_missed_slots_count_as_recent_for_five_minutes() -> None:
    now = [0.0]
    slots = SlotClock(0.1, lambda: now[0])

    def after(seconds: float) -> tuple[int, int]:
        now[0] += seconds
        slots.wait_s()
        with slots:
            pass
        return slots.figures().missed, slots.figures().missed_recently

    assert after(0.0) == (0, 0)
    assert after(0.75) == (6, 6)
    # From 0.75 s on slots begin in time, each 0.1 s, for 299 s.
    for _ in range(2990):
        now[0] += slots.wait_s()
        with slots:
            pass
    assert slots.figures().missed_recently == 6
    for _ in range(20):
        now[0] += slots.wait_s()
        with slots:
            pass
    assert (slots.figures().missed, slots.figures().missed_recently) == (6, 0)


def test_several_overrides_are_one_and_the_first_that_names_a_flow_decides() -> None:
    first, second = Decider(), Decider()
    network = CONTEXT.network
    loop = LiveLoop(
        network, ConfiguredSource(network), LoopOptions(), RateOverrides({"first": first, "second": second})
    )
    live, state = Live(CONTEXT, Numbers(), Options(), loop), start(network.flows[0], RIVAL)
    live.replan(state, NO_REPORTS, 0.0)
    first.says = {"f1": Fixed({HYBRID[0]: 3.0})}
    second.says = {"f1": Fixed({HYBRID[0]: 9.0}), "g": Fixed({("ab-wifi~",): 1.0})}
    live.slot(state, NO_REPORTS, 0.1)
    assert rates(live, "f1") == [3.0, 0.0] and rates(live, "g") == [1.0]
    shown = [flow_document(loop, flow) for flow in ("f1", "g")]
    assert [each["decided_by"] for each in shown] == ["first", "second"]
    assert [(each["first"], each["second"]) for each in shown] == [({"said": 1}, {"said": 2}), (None, {"said": 2})]
    first.says = second.says = {}
    live.slot(state, NO_REPORTS, 0.2)
    assert flow_document(loop, "f1")["decided_by"] == "solver"
    loop.override.alerted((Change("ab-plc", 10.0, 0.0),), 1.0)
    assert first.alerts == second.alerts != []


def test_what_is_prepared_is_what_the_plan_is_made_of() -> None:
    loop = LiveLoop(CONTEXT.network, ConfiguredSource(CONTEXT.network))
    live, state = Live(CONTEXT, Numbers(), Options(), loop), start()
    live.preparation(state).run()
    plan = live.replan(state, NO_REPORTS, 0.0)
    assert "planner" in live.network.__dict__ and "intents" in live.network.__dict__
    unprepared = live_of(CONTEXT)
    assert plan.agents == unprepared.replan(state, NO_REPORTS, 0.0).agents


def test_interfaces_hear_by_the_rule_in_force() -> None:
    readings = Readings()
    readings.who = Heard(observers=(("b", "wifi"),))
    loop = LiveLoop(CONTEXT.network, readings)
    routes = make_routes(start(), LiveNetwork(CONTEXT, Basis(frozenset())))
    loop.lay_out(CONTEXT.network, routes)
    loop.turn(0.1)
    before = loop.state.external.sensing
    loop.lay_out(CONTEXT.network.with_capacities({"ab-plc": 5.0}), routes)
    assert loop.state.external.sensing is before
    apart = TechnologyInterference(CONTEXT.network.links, unshared=frozenset({"wifi"}))
    loop.lay_out(replace(CONTEXT.network, interference=apart), routes)
    after = loop.state.external.sensing
    assert before.heard.sum() > after.heard.sum()


def test_a_slice_keeps_its_share_while_another_wants_it_and_takes_what_is_idle() -> None:
    flow = FlowSpec("f", "a", "b", paths=(("ab-wifi",),), slice="research")
    options = LoopOptions(shares={"research": {"wifi": 0.25}})
    loop = LiveLoop(CONTEXT.network, ConfiguredSource(CONTEXT.network), options)
    live, now_s = Live(CONTEXT, Numbers(), Options(), loop), 0.0
    live.replan(start(flow, RIVAL), NO_REPORTS, now_s)

    def run(g_mbps: float, slots: int) -> dict[str, Any]:
        nonlocal now_s
        for _ in range(slots):
            now_s += 0.1
            sent = {"f": 99.0, "g": g_mbps}
            allowed = {x: sum(loop.rates[x]) for x in sent}
            offers = {x: Offer(min(sent[x], allowed[x]), allowed[x], sent[x] > allowed[x]) for x in sent}
            sends = {("f", ("ab-wifi",)): offers["f"].sent_mbps} if g_mbps else {}
            loop.turn(now_s, AgentRates(sends, offers))
        return {(each["slice"], each["technology"]): each for each in slices_document(loop)}

    for g_mbps, slots, f_mbps in ((99.0, 5, 0.25 * 0.95 * 15), (0.0, 20, 0.95 * 15 - 0.1), (99.0, 2, 0.25 * 0.95 * 15)):
        told = run(g_mbps, slots)
        assert loop.rates["f"][0] == pytest.approx(f_mbps, rel=0.01)
        mine, others = told["research", "wifi"], told["production", "wifi"]
        assert mine["airtime"] == pytest.approx(f_mbps / 15, rel=0.01) and mine["share"] == 0.25
        assert mine["held"] is (g_mbps > 0) and others["share"] is None and others["held"] is False
        assert mine["airtime"] + others["airtime"] == pytest.approx(0.95, abs=0.01)
        assert told["research", "plc"]["airtime"] == 0.0
        # Agents said what the flow sent before the last slot, or nothing at all.
        heard_of = pytest.approx(min(99.0, f_mbps) / 15, rel=0.05) if g_mbps else None
        assert mine["measured_airtime"] == heard_of and others["measured_airtime"] is None

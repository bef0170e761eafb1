"""A large network is planned in parts: what others do meanwhile is neither lost nor half done, and it ends where a plan
in one piece would.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from campus_loop import CampusLoop

from hyroads.controller.api.service import ControllerService
from hyroads.controller.control import live as live_module
from hyroads.controller.control.flow_rows import FlowRows
from hyroads.controller.control.live import Live
from hyroads.controller.control.live_network import LiveNetwork
from hyroads.controller.control.loop import MIN_FLOW_MBPS, LiveLoop, LoopOptions
from hyroads.controller.control.plan_maker import PlanMaker
from hyroads.controller.control.reports import ReportRegistry
from hyroads.controller.control.restored_routes import RoutesDocument, routes_document
from hyroads.controller.control.routes import FlowRoute
from hyroads.controller.control.source import ConfiguredSource
from hyroads.controller.core.addressing import Numbers
from hyroads.controller.core.mappings import differing
from hyroads.controller.core.network import FlowSpec, Link
from hyroads.controller.core.topologies import campus
from hyroads.controller.framework import ryu_shim as shim
from hyroads.controller.model import state as model
from hyroads.controller.model.plan import FlowPlan, Options, Plan
from hyroads.controller.model.state import DeclaredFlow, Origin, State, TopologyContext
from hyroads.controller.runtime.event_loop import BUSY_S

NODES, FLOWS = 33, 60
NO_REPORTS = ReportRegistry(lambda: 0.0)
CONTEXT = TopologyContext.of(campus(random.Random(1), NODES))


def specs(count: int, rng: random.Random, name: str) -> list[FlowSpec]:
    nodes = list(CONTEXT.network.nodes)
    found = [(rng.choice(nodes), rng.choice(nodes)) for _ in range(4 * count)]
    pairs = [(a, b) for a, b in found if a != b][:count]
    return [FlowSpec(f"{name}{i}", *ends, match={"eth_type": 0x0800, "ip_proto": 17, "udp_dst": 1 + i})
            for i, ends in enumerate(pairs)]  # fmt: skip


def started(flows: int) -> State:
    state = model.initial(CONTEXT, [DeclaredFlow(spec, Origin.API) for spec in specs(flows, random.Random(2), "f")])
    for node in CONTEXT.addressing.agents:
        state = model.agent_up(state, CONTEXT, node, fresh=False, now_s=-10.0)
    return state


def live_of(*, in_parts: bool) -> Live:
    loop = LiveLoop(CONTEXT.network, ConfiguredSource(CONTEXT.network), LoopOptions(0.05))
    return Live(CONTEXT, Numbers(), Options(), loop, in_parts=in_parts)


def changes(rng: random.Random) -> Iterator[Callable[[State], State]]:
    """Flows that come and go, links that fall silent and are heard again."""
    for i, spec in enumerate(specs(24, rng, "new")):
        if i % 4 == 0:
            yield lambda state: model.flow_removed(state, rng.choice(list(state.flows)))
        if i % 2:
            link = rng.choice(CONTEXT.network.links)
            up = rng.random() < 0.4
            yield lambda state: model.links_heard(state, CONTEXT, link.target, {link.id: up}, 0.0)  # noqa: B023
        yield lambda state: model.flow_declared(state, DeclaredFlow(spec, Origin.API))  # noqa: B023


def cut_and_healed(state: State, count: int, *lives: Live, refreshes: bool = True) -> tuple[State, list[Link]]:
    """The links that most paths go by fall silent together, and are heard again together; which these are."""
    used = Counter(link for route in lives[0].routes.values() for path in route.paths for link in path)
    cut = [CONTEXT.network.links[CONTEXT.network.link_index[link]] for link, _ in used.most_common(count)]
    for up in (False, True):
        for link in cut:
            state = model.links_heard(state, CONTEXT, link.target, {link.id: up}, 1.0)
        for live in lives:
            live.replan(state, NO_REPORTS, 1.0)
            if refreshes:
                live.refresh(NO_REPORTS, 1.0)
    return state, cut


@pytest.mark.parametrize("seed", range(6))
def test_a_plan_in_parts_ends_where_one_in_one_piece_does(seed: int) -> None:
    whole, parts = live_of(in_parts=False), live_of(in_parts=True)
    state, now_s = started(FLOWS), 0.0
    for live in (whole, parts):
        live.replan(state, NO_REPORTS, now_s)
    for change in changes(random.Random(seed)):
        now_s += 0.1
        after = change(state)
        if after is state:
            continue
        state = after
        whole.replan(state, NO_REPORTS, now_s)
        before = parts.in_force
        planned = parts.replan(state, NO_REPORTS, now_s)
        assert planned.flows.keys() == state.flows.keys()
        moved = differing(before.flows, planned.flows)
        touched = {node for flow in moved for plans in (before.flows, planned.flows) if flow in plans
                   for node in (plans[flow].ingress, plans[flow].egress)}  # fmt: skip
        assert {node for node in planned.agents if planned.agents[node] is not before.agents[node]} <= touched
        parts.refresh(NO_REPORTS, now_s)
        assert parts.in_force == whole.in_force
        while whole.improve(NO_REPORTS, now_s):
            pass
        while parts.improve(NO_REPORTS, now_s):
            pass
        parts.refresh(NO_REPORTS, now_s)
        assert {flow: plan.paths for flow, plan in parts.in_force.flows.items()} == {
            flow: plan.paths for flow, plan in whole.in_force.flows.items()
        }
    assert any(plan.rate_mbps for plan in parts.in_force.flows.values())


def test_many_changes_before_a_turn_end_where_they_would_one_by_one() -> None:
    live, state = live_of(in_parts=True), started(FLOWS)
    live.replan(state, NO_REPORTS, 0.0)
    for change in changes(random.Random(9)):
        state = change(state)
        live.replan(state, NO_REPORTS, 1.0)
    live.refresh(NO_REPORTS, 1.0)
    loop = live.loop
    assert live.in_force.flows.keys() == state.flows.keys()
    # What changes by less than what is worth a message is not told.
    assert max(loop.airtime().values()) <= 0.95 * 1.03
    shown = {flow: tuple(path.rate_mbps for path in live.in_force.flows[flow].paths) for flow in loop.rates}
    assert shown == loop.rates
    poorest = min(plan.rate_mbps for plan in live.in_force.flows.values() if plan.rate_mbps is not None)
    assert poorest >= MIN_FLOW_MBPS


def test_first_rates_cost_the_others_nothing_and_are_near_the_optimum() -> None:
    live, state = live_of(in_parts=True), started(FLOWS)
    live.replan(state, NO_REPORTS, 0.0)
    shares = []
    for spec in specs(12, random.Random(5), "new"):
        state = model.flow_declared(state, DeclaredFlow(spec, Origin.API))
        first = live.replan(state, NO_REPORTS, 1.0).flows[spec.id].rate_mbps
        live.refresh(NO_REPORTS, 1.0)
        found = live.in_force.flows[spec.id].rate_mbps
        if first is not None and found is not None:
            shares.append(first / found)
    assert len(shares) > 6
    assert 0.3 < sorted(shares)[len(shares) // 2] < 1.5, shares


def test_a_flow_that_loses_its_path_gets_no_more_than_it_had(tmp_path: Path) -> None:
    live, state = live_of(in_parts=True), started(FLOWS)
    live.replan(state, NO_REPORTS, 0.0)
    rng, checked = random.Random(3), 0
    for _ in range(25):
        before = live.in_force
        used = {link for plan in before.flows.values() for path in plan.paths if path.rate_mbps for link in path.links}
        link = CONTEXT.network.links[CONTEXT.network.link_index[rng.choice(sorted(used))]]
        state = model.links_heard(state, CONTEXT, link.target, {link.id: False}, 1.0)
        after = live.replan(state, NO_REPORTS, 1.0)
        for flow, plan in after.flows.items():
            old = before.flows[flow]
            if plan is not old and plan.rate_mbps and old.rate_mbps:
                checked += 1
                assert plan.rate_mbps <= max(old.rate_mbps, MIN_FLOW_MBPS) + 1e-3
            assert not any(link.id in path.links for path in plan.paths)
        live.refresh(NO_REPORTS, 1.0)
        state = model.links_heard(state, CONTEXT, link.target, {link.id: True}, 2.0)
        live.replan(state, NO_REPORTS, 2.0)
        live.refresh(NO_REPORTS, 2.0)
    assert checked > 5


def test_many_flows_that_move_in_parts_wait_for_one_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_module, "MOVED_AT_ONCE", 1)
    live, state, turns, parts = live_of(in_parts=True), started(FLOWS), [], 0
    live.replan(state, NO_REPORTS, 0.0)
    state, _ = cut_and_healed(state, 60, live)
    monkeypatch.setattr(live_module, "MOST_IN_PARTS", 8)
    turn = live.loop.turn
    live.loop.turn = lambda *arguments, **named: (turns.append(parts), turn(*arguments, **named))[1]  # type: ignore[method-assign]
    while live.improve(NO_REPORTS, 1.0):
        parts += 1
    assert parts > 4 and not turns
    live.refresh(NO_REPORTS, 1.0)
    assert turns and {flow: plan.rate_mbps for flow, plan in live.in_force.flows.items()} == {
        flow: pytest.approx(sum(rates)) for flow, rates in live.loop.rates.items()
    }


def test_flows_that_are_looked_at_and_stay_are_not_planned_anew() -> None:
    live, state = live_of(in_parts=True), started(FLOWS)
    live.replan(state, NO_REPORTS, 0.0)
    state, _ = cut_and_healed(state, 20, live, refreshes=False)
    routes, plans = live.routes, live.in_force.flows
    while live.improve(NO_REPORTS, 1.0):
        pass
    moved = {flow for flow in routes if live.routes[flow] != routes[flow]}
    assert differing(routes, live.routes) == moved and differing(plans, live.in_force.flows) <= moved
    assert len(moved) < len(routes) / 2


def test_better_paths_count_though_others_planned_while_they_were_looked_for() -> None:
    """Else a search that takes longer than it is quiet begins anew for ever."""
    meanwhile: list[State] = []

    def in_thread(function: Callable[..., Any], *arguments: object) -> Any:
        found = function(*arguments)
        while meanwhile:
            disturbed.replan(meanwhile.pop(0), NO_REPORTS, 1.0)
        return found

    quiet, disturbed, state = live_of(in_parts=True), live_of(in_parts=True), started(FLOWS)
    disturbed._in_background = in_thread
    for live in (quiet, disturbed):
        live.replan(state, NO_REPORTS, 0.0)
    state, cut = cut_and_healed(state, 60, quiet, disturbed)
    before = disturbed.routes
    new = specs(3, random.Random(5), "new")
    for spec in new:
        state = model.flow_declared(state, DeclaredFlow(spec, Origin.API))
        meanwhile.append(state)
    while quiet.improve(NO_REPORTS, 1.0):
        pass
    # Of the links that heal before they are looked for some are cut while they are: no flow may move to one.
    found = quiet.routes
    in_use = Counter(link for route in found.values() for path in route.paths for link in path)
    again = min((link for link in cut if in_use[link.id]), key=lambda link: in_use[link.id])
    state = model.links_heard(state, CONTEXT, again.target, {again.id: False}, 1.0)
    meanwhile.append(state)
    disturbed.look_for_better(1.0)
    assert disturbed.has_better and not meanwhile
    # Nothing more is asked for: what is moved now was found before the others planned.
    disturbed._pending = ()
    while disturbed.improve(NO_REPORTS, 1.0):
        pass
    routes = disturbed.routes
    assert {spec.id for spec in new} <= routes.keys()
    assert not any(again.id in path for route in routes.values() for path in route.paths)
    crossed = {f for f in before if any(again.id in path for path in (*before[f].paths, *found[f].paths))}
    moved = differing(before, found) - crossed
    assert len(moved) > 2 and {f: routes[f] for f in moved} == {f: found[f] for f in moved}


class Meanwhile:
    """In place of a thread: others run before what it works out is there."""

    def __init__(self, campus: CampusLoop) -> None:
        self.work: list[Callable[[], Any]] = []
        self.fails = ""
        self._live = campus.loop.live
        self._live._in_thread = self._live._aside = self
        self._before_rates: list[Callable[[], Any]] = []
        self._live._pause = self._live._give_way = self._others

    def to_lay_out(self) -> None:
        """The next turn lays the loop out: otherwise nobody else runs while it turns."""
        self._live._is_laid_out = False

    def before_rates(self, *work: Callable[[], Any]) -> None:
        """Others do this while the next turn works out the rates."""
        self.to_lay_out()
        self._before_rates = list(work)

    def _others(self) -> None:
        if self.work:
            self.work.pop(0)()

    def __call__(self, function: Callable[..., Any], *arguments: object) -> Any:
        self._others()
        name = getattr(function, "func", function).__name__
        if name == "slot":
            work, self._before_rates = self._before_rates, []
            for each in work:
                each()
        if name == self.fails:
            self.fails = ""
            raise RuntimeError("no rates today")
        return function(*arguments)


@pytest.fixture
def running(tmp_path: Path) -> CampusLoop:
    campus = CampusLoop(tmp_path, NODES, FLOWS)
    campus.settle()
    return campus


def check(campus: CampusLoop) -> None:
    """All that is asked is planned and in force, with the rates of the loop."""
    live, loop = campus.loop.live, campus.loop
    assert live.in_force.version == loop.state.version
    assert live.in_force.flows.keys() == loop.state.flows.keys()
    rates = live.loop.rates
    assert {flow: tuple(path.rate_mbps for path in live.in_force.flows[flow].paths) for flow in rates} == rates
    assert rates.keys() == {flow for flow, plan in live.in_force.flows.items() if plan.rate_mbps is not None}
    assert not loop.unsynced()
    for node, agent in campus.agents.items():
        planned = live.in_force.agents[node]
        assert agent.ingress.keys() == {flow.number for flow in planned.ingress.values()}
        told = {(number, path): mbps for number, paths in agent.ingress.items() for path, mbps in paths.items()}
        assert told == pytest.approx(dict(planned.rates))


@pytest.mark.parametrize("seed", range(3))
def test_what_happens_while_the_loop_turns_is_neither_lost_nor_half_done(running: CampusLoop, seed: int) -> None:
    meanwhile, rng = Meanwhile(running), random.Random(seed)
    new = running.specs(24, rng, "new", 30_000)
    links = rng.sample(running.used(), 8)
    events: list[Callable[[], Any]] = [
        *(lambda spec=spec: running.loop.declare(DeclaredFlow(spec, Origin.API)) for spec in new),
        *(lambda flow=f"f{i}": running.loop.remove(flow) for i in range(0, 30, 5)),
        *(lambda link=link, up=up: tell_link(running, link, up=up) for link in links for up in (False, True)),
    ]
    rng.shuffle(events)
    while events:
        meanwhile.work += [events.pop() for _ in range(min(len(events), rng.randrange(1, 4)))]
        running.tell()
        if rng.random() < 0.5:
            meanwhile.to_lay_out()
        running.loop._slot()
        if rng.random() < 0.5:
            running.turn()
    while meanwhile.work:
        meanwhile.to_lay_out()
        running.slot()
    for link in links:
        tell_link(running, link, up=True)
    running.settle()
    assert {spec.id for spec in new} <= running.loop.state.flows.keys()
    check(running)
    fresh_rows(running)


def tell_link(campus: CampusLoop, link: str, *, up: bool) -> None:
    target = campus.network.links[campus.network.link_index[link]].target
    campus.loop.agent_links(campus.agents[target], {link: up})  # type: ignore[arg-type]


def fresh_rows(campus: CampusLoop) -> None:
    """Rows of reports that were derived from those of before are what they would be anew."""
    reports, plan = campus.loop.reports, campus.loop.live.in_force
    reports.measured(plan)
    assert reports._rows is not None
    derived, fresh = reports._rows, FlowRows.of(plan, reports._columns)
    for name in ("names", "links", "flows"):
        assert getattr(derived.paths, name) == getattr(fresh.paths, name)
    assert derived.paths.starts.tolist() == fresh.paths.starts.tolist()
    assert list(derived.made_of) == list(derived.flows)
    assert list(derived.metered.items()) == list(fresh.metered.items())
    for name in ("copies", "for_latency", "sending", "receiving", "sent", "received"):
        assert (getattr(derived, name) == getattr(fresh, name)).all()


@pytest.mark.parametrize("step", ["posed", "slot"])
def test_a_turn_that_fails_is_told_once_and_the_next_goes_on(running: CampusLoop, step: str) -> None:
    meanwhile, loop = Meanwhile(running), running.loop
    first, second = running.specs(2, random.Random(3), "new", 30_000)
    running.declare(first)
    meanwhile.fails = step
    running.tell()
    with pytest.raises(RuntimeError, match="no rates today"):
        loop._slot()
    assert loop.live.in_force.flows["new0"].rate_mbps
    # It is not tried again in each slot, but with the next change.
    running.settle()
    running.declare(second)
    running.settle()
    check(running)


def test_least_rates_that_are_set_while_the_loop_turns_count_from_the_next_turn_on(running: CampusLoop) -> None:
    meanwhile, loop = Meanwhile(running), running.loop.live.loop
    meanwhile.before_rates(lambda: loop.guarantee({"f1": 0.5}))
    running.slot()
    assert not meanwhile.work and loop.granted == {}
    running.slot()
    assert loop.granted["f1"].wanted_mbps == 0.5


def test_a_beginning_while_the_loop_turns_is_planned_after_it(running: CampusLoop) -> None:
    meanwhile, loop = Meanwhile(running), running.loop

    def begin() -> None:
        loop.live._restored = {}
        loop.live.begin()
        loop._tried_version = -1

    for before in range(5):
        meanwhile.to_lay_out()
        meanwhile.work = [*(before * [lambda: None]), begin]
        running.tell()
        loop._slot()
        loop.wake()
        running.settle()
        check(running)


def test_others_run_between_the_steps_of_a_late_slot_if_that_takes_little_time(running: CampusLoop) -> None:
    meanwhile, slots, urgency = Meanwhile(running), running.loop.slots, running.loop.urgency
    cases = [(0.0, 2 * BUSY_S, True), (2 * BUSY_S, BUSY_S / 2, True), (2 * BUSY_S, 2 * BUSY_S, False)]
    new = running.specs(len(cases), random.Random(3), "new", 30_000)
    for spec, (late_s, others_s, do_run) in [*zip(new, cases, strict=True), *((None, case) for case in cases)]:
        if spec is not None:
            running.declare(spec)
        meanwhile.work = [lambda: None]
        slots.late_s, urgency.others_s = late_s, others_s
        running.slot()
        assert bool(meanwhile.work) is not do_run and running.loop.live._is_laid_out


def test_whoever_declares_a_flow_does_not_wait_until_the_loop_is_laid_out_for_it(running: CampusLoop) -> None:
    spec = running.specs(1, random.Random(3), "new", 30_000)[0]
    running.declare(spec)
    live, service = running.loop.live, ControllerService(running.loop, "campus")
    assert not live._is_laid_out
    before = service.flow(spec.id)
    assert not live._is_laid_out, "it was laid out for all flows"
    assert before["state"] == "multipath" and before["rate_mbps"] > 0
    running.slot()
    after = service.flow(spec.id)
    assert live._is_laid_out
    rates = {"rate_mbps", "multipath"}
    assert {k: v for k, v in after.items() if k not in rates} == {k: v for k, v in before.items() if k not in rates}


def test_rates_that_an_agent_has_wait_for_the_turn(running: CampusLoop) -> None:
    """When this controller begins to lead, the agents' rates count, and not those that are worked out just then."""
    meanwhile, live = Meanwhile(running), running.loop.live
    node = next(node for node, agent in live.in_force.agents.items() if sum(agent.rates.values()))
    theirs = {key: 0.9 * mbps for key, mbps in live.in_force.agents[node].rates.items()}
    meanwhile.before_rates(lambda: (shim.spawn(live.adopt_rates, node, theirs), shim.sleep(0)))
    running.loop._slot()
    assert not meanwhile.work
    shim.sleep(0)
    assert dict(live.in_force.agents[node].rates) == pytest.approx(theirs, abs=1e-3)
    flows = live.in_force.agents[node].ingress
    assert {flow: sum(live.loop.rates[flow]) for flow in flows} == pytest.approx(
        {flow: live.in_force.flows[flow].rate_mbps for flow in flows}
    )


@pytest.mark.parametrize("before", range(5))
def test_routes_of_another_leader_are_planned_before_the_loop_turns_with_them(running: CampusLoop, before: int) -> None:
    meanwhile, loop = Meanwhile(running), running.loop
    theirs = {flow: replace(route, paths=route.paths[:1]) for flow, route in loop.live.routes.items()}
    assert any(len(route.paths) > 1 for route in loop.live.routes.values())

    def takes_over() -> None:
        loop.live.follow_routes(theirs)
        assert loop.live.lead_from_here(loop.clock())

    meanwhile.to_lay_out()
    meanwhile.work = [*(before * [lambda: None]), takes_over]
    for _ in range(2):
        running.tell()
        loop._slot()
        meanwhile.to_lay_out()
    loop._tried_version = -1
    loop.wake()
    running.settle()
    check(running)


def planned(lives: Iterable[Live], state: State, now_s: float) -> None:
    for live in lives:
        live.replan(state, NO_REPORTS, now_s)
        while live.improve(NO_REPORTS, now_s):
            pass


def busiest(live: Live) -> str:
    """The node that most paths pass on their way."""
    links = CONTEXT.network.link_index
    passed = Counter(CONTEXT.network.links[links[link]].target for route in live.routes.values()
                     for path in route.paths for link in path[:-1])  # fmt: skip
    return passed.most_common(1)[0][0]


def ids(plan: Plan, flow: str) -> list[int]:
    return [path.id for path in plan.flows[flow].paths]


@pytest.mark.parametrize(("led_s", "is_lately"), [(9.1, True), (60.0, False)])
def test_a_new_leader_keeps_better_routes_that_both_had_found_just_now(led_s: float, is_lately: bool) -> None:
    before, after, whole = live_of(in_parts=False), live_of(in_parts=False), started(FLOWS)
    both = before, after
    planned(both, whole, 0.0)
    node = busiest(before)
    planned(both, model.links_heard(whole, CONTEXT, node, {each.id: False for each in CONTEXT.network.links
                                                           if each.target == node}, 1.0), 1.0)  # fmt: skip
    saved = {flow: route for flow, route in before.routes.items() if route.paths}
    old = before.in_force
    after.adopt_numbers(before.numbers)
    after.follow_routes(saved)
    healed = replace(whole, version=whole.version + 9)
    planned(both, healed, 9.0)
    better = {flow for flow, route in saved.items() if route.paths != before.routes[flow].paths}
    assert better
    after.lead_from_here(led_s)
    now, runs = after.replan(healed, NO_REPORTS, led_s), before.in_force if is_lately else old
    # Nothing that changes anything is to be sent.
    assert {flow: ids(now, flow) for flow in better} == {flow: ids(runs, flow) for flow in better}


def test_a_plan_meanwhile_leaves_new_flows_the_rates_that_they_have(running: CampusLoop) -> None:
    """The loop is laid out for them, and no turn has worked out their rates yet."""
    meanwhile, loop = Meanwhile(running), running.loop
    first, second = running.specs(2, random.Random(3), "new", 30_000)
    running.declare(first)
    began_mbps = loop.live.in_force.flows["new0"].rate_mbps
    seen = []

    def declares() -> None:
        loop.declare(DeclaredFlow(second, Origin.API))
        seen.append(loop.live.in_force.flows["new0"].rate_mbps)

    meanwhile.before_rates(declares)
    running.tell()
    loop._slot()
    assert began_mbps and seen == [began_mbps]


def test_settings_that_are_adopted_wait_for_the_turn(running: CampusLoop) -> None:
    live = running.loop.live
    told: list[float] = []
    live.between_turns(lambda loop: (loop.adopt(LoopOptions(0.2, 0.2)), told.append(loop.options.margin)))  # type: ignore[func-returns-value,arg-type,return-value]
    running.settle()
    assert told == [0.2] and max(live.loop.airtime().values()) <= 0.8 + 1e-2


def test_only_switches_of_which_something_changed_are_looked_at(running: CampusLoop) -> None:
    """And all of them end where a look at every one would bring them."""
    loop, deployer, looked = running.loop, running.loop._deployer, []
    desired = deployer._desired
    deployer._desired = lambda node, *others: (looked.append(node), desired(node, *others))[1]  # type: ignore[method-assign,func-returns-value]
    for spec in running.specs(6, random.Random(3), "new", 30_000):
        looked.clear()
        running.declare(spec)
        assert len(set(looked)) <= 3
    link = running.used()[0]
    running.cut(link)
    running.settle()
    flows_at = deployer._planned()
    for node, session in loop.switches.items():
        intent = loop.live.network.intents[node]
        for addition in loop.additions:
            intent = addition.added_to(node, intent)
        assert session.confirmed is not None
        assert (session.confirmed.intent, dict(session.confirmed.flows)) == (intent, dict(flows_at.get(node, {})))
    seen = {node: session.view(deployer._wanted[node]) for node, session in loop.switches.items()}
    assert loop.views().switches == seen


def test_saved_routes_are_worked_out_from_those_of_before() -> None:
    live, state, document = live_of(in_parts=True), started(FLOWS), RoutesDocument()
    for change in changes(random.Random(4)):
        state = change(state)
        live.replan(state, NO_REPORTS, 0.0)
        found = document.of("x", live.routes, live.numbers)
        assert found == routes_document("x", live.routes, live.numbers)
        assert found["paths"]


def test_a_cut_does_not_wait_for_the_search_of_better_paths(running: CampusLoop) -> None:
    loop, ends = running.loop, shim.Signal()
    waited: list[float] = []

    def in_thread(function: Callable[..., Any], *arguments: object) -> Any:
        if getattr(function, "__name__", "") == "_better":
            ends.wait(5.0)
            waited.append(running.now_s)
        return function(*arguments)

    loop.live._in_background = in_thread
    first, second = random.Random(4).sample(running.used(), 2)
    for link in (first, second):
        tell_link(running, link, up=False)
        running.turn()
        shim.sleep(0)
        assert loop.live._is_looking and not waited
        assert not any(link in path.links for flow in loop.live.in_force.flows.values() for path in flow.paths)
    ends.notify()
    running.settle()
    assert waited
    check(running)


def test_the_first_flow_that_is_declared_costs_what_others_do(
    running: CampusLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was planned and laid out before others were known is not made anew for it."""
    planned: list[str] = []
    make = PlanMaker._flow

    def noted(maker: PlanMaker, live: LiveNetwork, route: FlowRoute, *others: Any) -> FlowPlan:
        planned.append(route.spec.id)
        return make(maker, live, route, *others)

    monkeypatch.setattr(PlanMaker, "_flow", noted)
    spec = running.specs(1, random.Random(3), "new", 30_000)[0]
    running.declare(spec)
    assert spec.id in planned and len(planned) < FLOWS / 10, len(planned)
    running.slot()
    layout = running.loop.live.loop.state.problem.layout
    assert layout.rows_in is not None
    new = np.flatnonzero(layout.rows_in[1] < 0)
    assert {layout.flow_ids[layout.path_flow[path]] for path in new} == {spec.id}

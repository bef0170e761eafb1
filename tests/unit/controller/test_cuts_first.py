"""In a large network a cut link comes before slots, searches and other capacities, and keeps none of them for long."""

from __future__ import annotations

import gc
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pytest
from campus_loop import SLOT_S, CampusLoop

from hyroads.controller.control.live import Preparation
from hyroads.controller.core.infer.change import Change
from hyroads.controller.core.network import Policy
from hyroads.controller.framework.ryu_shim import Gate, in_thread, sleep, spawn
from hyroads.controller.model.state import DeclaredFlow, Origin, State, flow_declared, measured
from hyroads.controller.runtime.from_settings import LARGE
from hyroads.controller.runtime.garbage import Garbage
from hyroads.controller.runtime.urgency import CUT_S, DECLARED_S, Urgency

WHILE_S = 0.05
"""Green threads that could run have done so by then."""
WITHIN_S = 5.0


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> CampusLoop:
    campus = CampusLoop(tmp_path_factory.mktemp("cuts"), 40, 40)
    assert len(campus.network.links) >= LARGE
    campus.settle()
    return campus


@pytest.fixture
def campus(whole: CampusLoop, monkeypatch: pytest.MonkeyPatch) -> Iterator[CampusLoop]:
    """All links live, and nothing is pending."""
    monkeypatch.setattr(Garbage, "after_slot", lambda *_, **__: None)
    yield whole
    for link in sorted(whole.loop.state.silent):
        whole.cut(link, up=True)
    whole.slot()
    whole.loop.urgency.end()


@pytest.fixture
def slots(campus: CampusLoop) -> Iterator[list[float]]:
    """When slots began, by the test's clock, while they are carried out."""
    began: list[float] = []
    begin = partial(lambda: began.append(campus.now_s))
    campus.loop.before_slot.append(begin)
    campus.now_s += 10.0
    running = spawn(campus.loop.run_slots)
    sleep(WHILE_S)
    assert began, "one is due"
    yield began
    running.kill()
    campus.loop.before_slot.remove(begin)


def silent(campus: CampusLoop, link: str) -> None:
    """An agent says that a link is, and nobody has done anything yet."""
    target = campus.network.links[campus.network.link_index[link]].target
    campus.loop.agent_links(campus.agents[target], {link: False})


def sends_by(campus: CampusLoop, link: str) -> bool:
    """Whether an agent has a rate for a path over a link."""
    plan = campus.loop.plan
    assert plan is not None
    paths = ((flow, path) for flow in plan.flows.values() for path in flow.paths if link in path.links)
    return any(campus.agents[flow.ingress].ingress[flow.number][path.id] for flow, path in paths if flow.ingress)


def test_slots_wait_until_agents_are_told(campus: CampusLoop, slots: list[float]) -> None:
    link = campus.used()[0]
    before = len(slots)
    silent(campus, link)
    campus.now_s += CUT_S - 0.1
    sleep(CUT_S + WHILE_S)
    assert len(slots) == before
    campus.turn()
    sleep(WHILE_S)
    assert len(slots) > before and not sends_by(campus, link)


def test_they_wait_no_longer_than_that(campus: CampusLoop, slots: list[float]) -> None:
    before = len(slots)
    silent(campus, campus.used()[0])
    campus.now_s += CUT_S + 0.1
    sleep(CUT_S + WHILE_S)
    assert len(slots) > before


def test_between_two_cuts_there_is_a_slot(campus: CampusLoop, slots: list[float]) -> None:
    first, second, third = campus.used()[:3]
    campus.now_s += 0.25
    before = len(slots)
    silent(campus, first)
    campus.turn()
    silent(campus, second)
    # Rates are worked out in a thread meanwhile: a slot may have begun.
    assert campus.loop.urgency.is_there is (len(slots) > before)
    # The next one may have begun to wait for its time when that was this long away.
    sleep(SLOT_S + WHILE_S)
    assert len(slots) > before
    silent(campus, third)
    assert campus.loop.urgency.is_there


def test_slots_wait_for_a_declared_flow_until_it_is_confirmed(campus: CampusLoop, slots: list[float]) -> None:
    """Confirmed by everybody, and not only told to agents."""
    loop, spec = campus.loop, campus.specs(1, random.Random(7), "declared", 50_000)[0]
    sleep(SLOT_S + WHILE_S)
    before = len(slots)
    loop.declare(DeclaredFlow(spec, Origin.API))
    assert loop.urgency.is_there and not loop.carried_out([spec.id])
    campus.now_s += DECLARED_S / 2
    sleep(WHILE_S)
    assert len(slots) == before
    campus.turn()
    assert loop.carried_out([spec.id]) and not loop.urgency.is_there
    loop.remove(spec.id)
    campus.turn()


def test_a_declared_flow_keeps_a_slot_for_less_time_than_it_lasts() -> None:
    now_s = [10.0]
    urgency = Urgency(lambda: now_s[0])
    urgency.begin(DECLARED_S, 1, {"a"})
    now_s[0] += DECLARED_S / 2
    # Another one adds nothing to that.
    urgency.begin(DECLARED_S, 1, {"b"})
    urgency.deployed(lambda flows: flows == {"a"})
    assert urgency.is_there and DECLARED_S < SLOT_S
    now_s[0] += DECLARED_S / 2 + 0.001
    assert not urgency.is_there
    urgency.begin(DECLARED_S, 1, {"c"})
    assert not urgency.is_there, "a slot takes place between two of them"
    urgency.begin(DECLARED_S, 2, {"d"})
    urgency.begin(CUT_S, 2)
    now_s[0] += (DECLARED_S + CUT_S) / 2
    assert urgency.is_there
    urgency.deployed(lambda flows: flows == {"d"})
    assert not urgency.is_there


def test_other_capacities_count_once_they_can_be_planned_with(
    campus: CampusLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = campus.loop
    prepared, preparation = threading.Event(), loop.live.preparation

    def slow(state: State, *, is_urgent: bool = True) -> Preparation:
        work = preparation(state, is_urgent=is_urgent)
        return work if is_urgent else replace(work, run=lambda: prepared.wait(10.0) and work.run())

    monkeypatch.setattr(loop.live, "preparation", slow)
    known = loop.state.capacity_mbps or tuple(link.capacity_mbps for link in campus.network.links)
    halved = measured(loop.state, tuple(mbps / 2 for mbps in known), None)
    preparing = spawn(loop._prepare_measured, halved)
    sleep(WHILE_S)
    before = loop.state.capacity_mbps
    link = campus.used()[0]
    campus.cut(link)
    assert not sends_by(campus, link)
    assert loop.state.capacity_mbps is before and link in loop.state.silent
    prepared.set()
    preparing.wait()
    assert loop.state.capacity_mbps == halved.capacity_mbps and link in loop.state.silent


def test_a_search_waits_before_each_flow_that_it_plans(campus: CampusLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr(campus.loop.live, "_let_others", lambda: waited.append(campus.now_s))
    live, link = campus.loop.live, campus.used()[0]
    while live._is_looking:
        # For what tests before this one did.
        sleep(WHILE_S)
    live._pending, live._better = (Change(link, 20.0, 10.0),), {}
    assert live.may_improve(campus.now_s)
    live.look_for_better(campus.now_s)
    assert waited


def test_a_gate_holds_up_no_longer_than_it_may() -> None:
    gate = Gate()
    gate.wait(60.0)
    gate.close()
    gate.wait(0.01)
    threading.Timer(0.05, gate.open).start()
    gate.wait(60.0)


def test_a_slot_gives_way_to_declared_flows_between_its_steps_and_not_to_cuts() -> None:
    urgency = Urgency(time.monotonic)
    gone: list[str] = []

    def step() -> None:
        urgency.give_way()
        gone.append("on")

    for flows, waits in (({"a"}, True), (None, False)):
        urgency.begin(WHILE_S * 4, len(gone), flows)
        assert urgency.goes_first is waits
        running = spawn(step)
        sleep(WHILE_S)
        assert bool(gone) is not waits
        urgency.deployed(lambda flows: True)
        running.wait()
        assert gone == ["on"] and urgency.others_s < WHILE_S and urgency.goes_first is waits
        gone.clear()
        urgency.slot_begins()
        assert not urgency.goes_first


def test_garbage_is_not_looked_for_while_somebody_waits(campus: CampusLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    loop, spec = campus.loop, campus.specs(1, random.Random(8), "declared", 50_000)[0]
    held: list[str] = []
    monkeypatch.setattr(loop._garbage, "hold", lambda: held.append("held"))
    loop.urgency.slot_begins()
    loop._slots_begun += 1
    loop.declare(DeclaredFlow(spec, Origin.API))
    assert held == ["held"]
    campus.turn()
    loop.remove(spec.id)
    campus.turn()


def test_garbage_is_looked_for_at_last_if_somebody_waits_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[float] = []
    monkeypatch.setattr(Garbage, "_recent", lambda _, now_s: looks.append(now_s))
    garbage = Garbage(every_s=5.0, _due_s=10.0, _whole=2**40)
    for now_s, is_urged, is_on, looked in (
        (1.0, True, False, []),
        (2.0, False, True, []),
        (14.9, True, False, []),
        (15.1, True, True, [15.1]),
    ):
        garbage.hold()
        assert not gc.isenabled()
        garbage.after_slot(now_s, is_urged=is_urged)
        assert gc.isenabled() is is_on and looks == looked
    gc.enable()


def test_who_waits_for_a_declared_flow_goes_on_before_the_next_slot(
    campus: CampusLoop, slots: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it is the state file that was waited for."""
    monkeypatch.setattr(campus.loop.saver, "begin", lambda: None)
    loop, spec = campus.loop, campus.specs(1, random.Random(9), "declared", 50_000)[0]
    sleep(SLOT_S + WHILE_S)
    change, told = loop.saver.change("flow", lambda: None), len(slots)
    loop.declare(DeclaredFlow(spec, Origin.API))
    campus.turn()
    assert loop.carried_out([spec.id]) and loop.urgency.is_there, "it is not saved"
    before: list[int] = []
    waiting = spawn(lambda: (loop.progress.wait(WITHIN_S), before.append(len(slots))))
    sleep(0.0)
    loop.saver.once()
    waiting.wait()
    assert change.is_saved and before == [told] and not loop.urgency.is_there
    until_s = time.monotonic() + WITHIN_S
    while len(slots) == told and time.monotonic() < until_s:
        sleep(WHILE_S)
    assert len(slots) > told
    loop.remove(spec.id)
    campus.turn()


def test_the_solver_stops_for_declared_flows_and_not_for_cuts() -> None:
    told: list[float] = []
    urgency = Urgency(time.monotonic, stops=told.append)
    urgency.begin(WHILE_S * 4, 1, {"a"})
    found: list[int] = []
    slot = spawn(lambda: found.append(urgency.aside(lambda: 7)))
    sleep(WHILE_S)
    assert told == [pytest.approx(WHILE_S * 4, abs=WHILE_S)] and not found, "the slot goes on after the flow alone"
    urgency.end()
    slot.wait()
    assert told[1:] == [0.0] and found == [7]
    urgency.begin(WHILE_S * 4, 2, {"b"})
    urgency.begin(WHILE_S * 4, 2)
    assert told[2] > 0 and told[3:] == [0.0] and urgency.aside(lambda: 8) == 8
    urgency.end()
    assert in_thread(urgency.aside, lambda: 9) == 9


def test_a_flow_between_ends_of_others_needs_no_thread_to_be_planned(campus: CampusLoop) -> None:
    live, state = campus.loop.live, campus.loop.state
    known = next(each.spec for each in state.flows.values() if each.spec.policy is Policy.THROUGHPUT)
    port = {"eth_type": 0x800, "ip_proto": 6, "tcp_dst": 39_999}
    like = replace(known, id="like it", match=port)
    new = DeclaredFlow(like, Origin.API)
    assert live.preparation(flow_declared(state, new)).is_short
    learning = DeclaredFlow(replace(like, policy=Policy.HYMAB), Origin.API)
    assert not live.preparation(flow_declared(state, learning)).is_short, "it needs more paths than others did"

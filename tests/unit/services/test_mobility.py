"""Handovers packet by packet: nothing lost, doubled or out of order; and managers under every order of events."""

from dataclasses import replace

import pytest
from examples import examples, seeds
from handover_sim import Settings, trip
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.core.network import Place
from hyroads.controller.core.services.mobility import (
    Arrived,
    Associated,
    Cancelled,
    Confirmed,
    Handover,
    Left,
    Passed,
    Phase,
    Refused,
    Request,
    Steady,
    Timings,
    associating,
    before,
    lost_a_place,
    noted,
    settled,
)
from hyroads.plugins.mobility import bicast, hard, hoolock, vertical

WIFI_A, WIFI_B, PLC, LTE = Place("a", "wifi"), Place("b", "wifi"), Place("b", "plc"), Place("x", "lte")
DELAYS = {WIFI_A: (0.001, 0.03), WIFI_B: (0.0005, 0.08), PLC: (0.004, 0.005), LTE: (0.05, 0.4)}
PLACES = (WIFI_A, WIFI_B, PLC, LTE)
LOSSLESS = [hoolock.MANAGER, bicast.MANAGER, vertical.MANAGER, vertical.BICAST]
EVERY = [hard.MANAGER, *LOSSLESS]
by_name = pytest.mark.parametrize("manager", EVERY, ids=lambda m: m.name)
lossless = pytest.mark.parametrize("manager", LOSSLESS, ids=lambda m: m.name)


@lossless
@pytest.mark.parametrize("seed", seeds(6))
def test_nothing_is_lost_doubled_or_out_of_order(manager, seed):
    world, control = trip(manager, Settings(seed, DELAYS, marker_loss=0.3 * (seed % 2)), PLACES, 20)
    for flow in world.flows.values():
        assert flow.receiver.delivered == list(range(flow.number)), flow.name
        assert flow.number > 1000
        # Copies were there to be removed, and only then.
        assert (flow.receiver.duplicates > 0) == manager.copies
    assert world.present == {control.handover.request.new}
    assert control.phases.count(Phase.DONE) == 20 and Phase.FAILED not in control.phases


@pytest.mark.parametrize("one_radio", [False, True])
@pytest.mark.parametrize("seed", seeds(4))
def test_hard_loses_at_most_what_is_in_flight(seed, one_radio):
    world, _ = trip(hard.MANAGER, Settings(seed, DELAYS, one_radio=one_radio), PLACES, 20)
    total = 0
    for flow in world.flows.values():
        delivered = flow.receiver.delivered
        assert delivered == sorted(set(delivered))
        lost = flow.number - len(delivered)
        assert lost == flow.lost_in_flight + flow.receiver.late
        total += lost
    assert total > 0  # else the lossless managers prove nothing here


def test_leaving_without_the_marker_would_lose():
    """The simulation finds a manager out that lets the client leave as soon as copies come by the new place."""
    hasty = bicast.MakeBeforeBreak("hasty", copies=True)

    class Hasty:
        copies = True

        def __getattr__(self, name):
            return getattr(hasty, name)

        def on(self, handover, event, now_s):
            if isinstance(event, Arrived):
                handover = hasty.on(handover, Passed(event.flow, handover.request.old), now_s)
            return hasty.on(handover, event, now_s)

    slow_old = {**DELAYS, WIFI_A: (0.2, 0.4), LTE: (0.3, 0.9)}
    world, _ = trip(Hasty(), Settings(3, slow_old, control_s=(0.0005, 0.01)), PLACES, 20)
    assert any(flow.receiver.delivered != list(range(flow.number)) for flow in world.flows.values())


@lossless
def test_a_new_place_that_does_not_work_moves_nobody(manager):
    """Associated, confirmed, but nothing comes by it: the old place stays in use and is not left."""
    request = Request("h", "c", WIFI_A, WIFI_B, frozenset({"f"}))
    state, now_s = manager.start(request, 0.0), 0.0
    state = manager.on(state, Associated(WIFI_B), now_s)
    while not state.is_over:
        state = manager.on(state, Confirmed(manager.wanted(state)), now_s)
        assert manager.wanted(state).leave is None
        now_s = manager.due_s(state)
        state = manager.tick(state, now_s)
    assert state.phase is Phase.FAILED and str(WIFI_B) in state.reason
    assert manager.wanted(state).carry == (WIFI_A,)
    assert now_s <= 10.0


@by_name
def test_refusal_and_silence_change_nothing(manager):
    request = Request("h", "c", WIFI_A, PLC, frozenset({"f"}), Timings(associate_s=3.0))
    state = manager.start(request, 10.0)
    wanted = manager.wanted(state)
    assert wanted.carry == (WIFI_A,) and wanted.join == PLC and not wanted.copies
    for late in (Confirmed(wanted), Passed("f", WIFI_A), Arrived("f", PLC), Left(PLC), Associated(WIFI_A)):
        assert manager.on(state, late, 11.0) == state
    refused = manager.on(state, Refused("no"), 11.0)
    silent = manager.tick(state, 13.0)
    assert manager.tick(state, 12.9) == state and manager.due_s(state) == 13.0
    for failed, why in ((refused, "refused"), (silent, "did not join")):
        assert failed.phase is Phase.FAILED and why in failed.reason
        assert manager.wanted(failed).carry == (WIFI_A,) and manager.wanted(failed).join is None


@pytest.mark.parametrize("early", [True, False])
def test_warming_waits_for_a_steady_place_whenever_that_is_told(early):
    manager, request = vertical.MANAGER, Request("h", "c", WIFI_A, LTE, frozenset({"f"}))
    state = manager.on(manager.start(request, 0.0), Associated(LTE), 0.1)
    state = manager.on(state, Steady(LTE if early else WIFI_A), 0.2)
    state = manager.on(state, Confirmed(manager.wanted(state)), 0.3)
    assert state.phase is (Phase.DRAINING if early else Phase.WARMING)
    if not early:
        assert manager.wanted(state).carry == (WIFI_A,)
        assert manager.tick(state, 4.3).phase is Phase.FAILED
        assert manager.on(state, Steady(LTE), 4.2).phase is Phase.DRAINING


@by_name
def test_a_client_that_was_nowhere(manager):
    request = Request("h", "c", None, WIFI_B, frozenset({"f"}))
    state = manager.on(manager.start(request, 0.0), Associated(WIFI_B), 0.1)
    while not state.is_over:
        state = manager.on(state, Confirmed(manager.wanted(state)), 0.2)
    assert state.phase is Phase.DONE and manager.wanted(state).carry == (WIFI_B,)


FLOWS = frozenset({"f", "g"})
events = st.one_of(
    st.builds(Associated, st.sampled_from([WIFI_A, WIFI_B, PLC])),
    st.builds(Left, st.sampled_from([WIFI_A, WIFI_B, PLC])),
    st.builds(Passed, st.sampled_from(["f", "g", "h"]), st.sampled_from([WIFI_A, WIFI_B])),
    st.builds(Arrived, st.sampled_from(["f", "g", "h"]), st.sampled_from([WIFI_A, WIFI_B])),
    st.builds(Steady, st.sampled_from([WIFI_A, WIFI_B])),
    st.just(Refused("no")),
    st.just(Cancelled("enough")),
    st.just("confirm"),
    st.just("confirm something old"),
    st.floats(0.0, 6.0),
)


@by_name
@examples(150)
@given(row=st.lists(events, max_size=40))
def test_laws_in_any_order_of_events(manager, row):
    """Packets always have a way that is known; a place is left only after the other is associated; it ends."""
    state, now_s = manager.start(Request("h", "c", WIFI_A, WIFI_B, FLOWS), 0.0), 0.0
    old_here, old_left, joined, has_joined, wants = True, False, False, False, [manager.wanted(state)]
    for event in row:
        if isinstance(event, float):
            now_s += event
            after = manager.tick(state, now_s)
        elif isinstance(event, str):
            after = manager.on(state, Confirmed(wants[-1] if event == "confirm" else wants[0]), now_s)
        else:
            after = manager.on(state, event, now_s)
            old_here &= event != Left(WIFI_A)
            old_left |= event == Left(WIFI_A) and not state.is_over
            joined = (joined or event == Associated(WIFI_B)) and event != Left(WIFI_B)
        if state.is_over:
            assert after == state
        state = after
        wanted = manager.wanted(state)
        if wanted != wants[-1]:
            wants.append(wanted)
        assert set(wanted.carry) <= set(wanted.known)
        assert wanted.carry or not old_here  # without any place there is no way
        has_joined |= joined
        assert has_joined or state.phase in (Phase.ASSOCIATING, Phase.FAILED), "nothing moves before the client joined"
        assert not old_left or WIFI_A not in wanted.known, "a place that was left is used no more"
        if wanted.leave is not None:
            assert wanted.leave == WIFI_A and joined
        if WIFI_A not in wanted.carry and old_here and state.phase is not Phase.DONE:
            assert joined
        assert state.is_over == (manager.due_s(state) is None)
    # No handover goes on for ever: each phase has its bound.
    for _ in range(8):
        if not state.is_over:
            state = manager.tick(state, manager.due_s(state))
    assert state.is_over


@pytest.mark.parametrize("flow", ["f", "g", "h"])
@pytest.mark.parametrize("place", [WIFI_A, WIFI_B, PLC])
def test_receivers_count_for_the_flows_and_places_of_the_handover_alone(flow: str, place: Place) -> None:
    state = Handover(Request("h", "c", WIFI_A, WIFI_B, FLOWS), Phase.DRAINING, 1.0, passed=frozenset("g"))
    passed = noted(state, Passed(flow, place))
    assert passed.passed == {"g", *([flow] if flow in FLOWS and place == WIFI_A else [])}
    arrived = noted(state, Arrived(flow, place))
    assert arrived.arrived == set([flow] if flow in FLOWS and place == WIFI_B else [])
    assert replace(passed, passed=state.passed) == replace(arrived, arrived=frozenset()) == state


@pytest.mark.parametrize(
    ("old", "gone", "places"), [(WIFI_A, False, (WIFI_A,)), (WIFI_A, True, ()), (WIFI_B, False, ()), (None, False, ())]
)
def test_old_place_counts_while_the_client_is_there(old: Place | None, gone: bool, places: tuple[Place, ...]) -> None:
    state = Handover(Request("h", "c", old, WIFI_B, FLOWS), Phase.FAILED, 1.0, old_gone=gone)
    assert state.old_places == before(state).known == before(state).carry == places
    assert before(state).join == WIFI_B
    assert settled(state).carry == (places or (WIFI_B,)), "where the client still is"
    assert settled(state.enter(Phase.DONE, 2.0)).carry == (WIFI_B,)


def test_each_phase_begins_without_what_receivers_told_in_the_one_before() -> None:
    request, flows = Request("h", "c", WIFI_A, WIFI_B, FLOWS), frozenset("fg")
    state = Handover(request, Phase.WARMING, 1.0, passed=flows, arrived=flows, old_gone=True, is_steady=True)
    entered = Handover(request, Phase.DRAINING, 2.0, "why", old_gone=True, is_steady=True)
    assert state.enter(Phase.DRAINING, 2.0, "why") == entered


ASSOCIATED = [Associated(WIFI_B), Associated(PLC), Associated(WIFI_A), Refused("no"), Cancelled("enough"), Left(WIFI_B),
              Steady(WIFI_B), Arrived("f", WIFI_B), Passed("f", WIFI_A)]  # fmt: skip


@pytest.mark.parametrize("old", [None, WIFI_A, WIFI_B, PLC])
@pytest.mark.parametrize("event", ASSOCIATED, ids=str)
def test_first_phase_ends_with_the_new_place_or_with_a_failure_wherever_the_client_was(old, event):
    request = Request("h", "c", old, WIFI_B, frozenset("f"))
    start = Handover(request, Phase.ASSOCIATING, 1.0)
    end = associating(start, event, Phase.PREPARING, 2.0)
    if event == Associated(WIFI_B):
        assert end == replace(start, phase=Phase.PREPARING, entered_s=2.0)
    elif isinstance(event, (Refused, Cancelled)):
        assert (end.phase, end.entered_s) == (Phase.FAILED, 2.0) and event.reason in (end.reason or "")
    else:
        assert end == start


@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("old", [None, WIFI_A, WIFI_B])
def test_places_that_go_away_and_cancelling_count_by_the_phase(old, phase, gone):
    request = Request("h", "c", old, WIFI_B, frozenset("f"))
    start = Handover(request, phase, 1.0, passed=frozenset("f"), old_gone=gone)
    is_waiting, has_old = phase is Phase.ASSOCIATING, old == WIFI_A and not gone

    def after(event):
        return lost_a_place(start, event, 2.0, Phase.COPYING)

    new_left, cancelled = after(Left(WIFI_B)), after(Cancelled("enough"))
    assert (new_left is None) is is_waiting
    assert new_left is None or (new_left.phase, new_left.entered_s) == (Phase.FAILED, 2.0)
    can_stop = phase in (Phase.PREPARING, Phase.WARMING)
    assert cancelled == (start.enter(Phase.FAILED, 2.0, "cancelled: enough") if can_stop else None)
    expected = replace(start, old_gone=True)
    if not is_waiting and phase not in (Phase.CLOSING, Phase.COPYING):
        expected = expected.enter(Phase.COPYING, 2.0)
    assert after(Left(WIFI_A)) == (expected if has_old else None)
    for other in (Left(PLC), Associated(WIFI_B), Refused("no"), Steady(WIFI_B)):
        assert after(other) is None

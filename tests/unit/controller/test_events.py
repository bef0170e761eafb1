"""The log of events, and what transitions of the state tell."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.core.network import FlowSpec
from hyroads.controller.files.documents import read_file
from hyroads.controller.model.events import EventLog, changes
from hyroads.controller.model.state import (
    DeclaredFlow,
    Origin,
    State,
    TopologyContext,
    agent_down,
    agent_up,
    flow_declared,
    flow_removed,
    initial,
    links_heard,
    switch_down,
    switch_up,
)

TRIANGLE = Path(__file__).parents[3] / "mininet" / "networks" / "triangle.yaml"


class Bell:
    rung = 0

    def notify(self) -> None:
        self.rung += 1

    def wait(self, timeout_s: float) -> bool:
        return False


@given(st.lists(st.integers(0, 60), max_size=20), st.integers(1, 40))
def test_readers_get_every_event_once_and_in_order_or_see_that_they_missed_some(bursts: list[int], kept: int) -> None:
    bell = Bell()
    log = EventLog(lambda: 1000.0, bell, max_events=kept)
    place, seen, published = log.last, [], []
    for burst in bursts:
        published += [log.publish("thing.happened", {"n": n}) for n in range(burst)]
        assert log.last - log.first < kept and bell.rung == len(published)
        if place + 1 < log.first:
            place = log.first - 1
        while events := log.since(place):
            assert [event.id for event in events] == list(range(place + 1, events[-1].id + 1))
            seen += [event.id for event in events]
            place = events[-1].id
        assert place == log.last and not log.wait(place, 0.0)
    assert seen == sorted(set(seen)) and set(seen) <= set(published)
    assert seen[-kept:] == published[-kept:]


def test_later_controllers_have_higher_ids() -> None:
    before, after = EventLog(lambda: 1000.0, Bell()), EventLog(lambda: 1060.0, Bell())
    assert before.publish("a.b", {}) < after.first


def told(before: State, after: State, context: TopologyContext) -> list[tuple[str, object]]:
    return [(kind, document.get("link") or document.get("node") or document.get("id")) for kind, document in
            changes(before, after, context)]  # fmt: skip


def test_transitions_tell_what_changed_and_nothing_else() -> None:
    context = TopologyContext.of(read_file(str(TRIANGLE)), "triangle")
    start = initial(context, [])
    assert told(start, start, context) == []
    up = agent_up(start, context, "a", fresh=False, now_s=1.0)
    assert told(start, up, context) == [("agent.up", "a")]
    heard = links_heard(up, context, "b", {"ab-plc": False, "ab-wifi": True}, 5.0)
    assert told(up, heard, context) == [("link.down", "ab-plc")]
    again = links_heard(heard, context, "b", {"ab-plc": True}, 6.0)
    assert told(heard, again, context) == [("link.up", "ab-plc")]
    assert ("agent.down", "a") in told(again, agent_down(again, context, "a"), context)
    ports = switch_up(again, "a", {"a-wifi": 2, "a-host": 3, "a-acc": 4, "a-net": 5})
    lost = told(again, ports, context)
    assert ("switch.up", "a") in lost and {("link.down", "ab-plc"), ("link.down", "ab-plc~")} <= set(lost)
    gone = told(ports, switch_down(ports, "a"), context)
    # ab-plc was down before; now it is for another reason.
    assert ("switch.down", "a") in gone and ("link.down", "ab-wifi") in gone
    flow = DeclaredFlow(FlowSpec("f", "a", "b"), Origin.API)
    declared = flow_declared(again, flow)
    assert told(again, declared, context) == [("flow.declared", "f")]
    assert told(declared, flow_removed(declared, "f"), context) == [("flow.removed", "f")]


def test_capacities_that_become_known_bring_links_up() -> None:
    context = TopologyContext.of(read_file(str(TRIANGLE)), "triangle")
    start = initial(context, [])
    count = len(context.network.links)
    nothing = _with(start, (0.0,) * count)
    some = _with(nothing, (5.0,) + (0.0,) * (count - 1))
    more = _with(some, (6.0,) + (0.0,) * (count - 1))
    assert [kind for kind, _ in changes(nothing, some, context)] == ["link.up"]
    assert list(changes(some, more, context)) == []
    assert len(list(changes(start, nothing, context))) == count


def _with(state: State, capacity_mbps: tuple[float, ...]) -> State:
    return replace(state, capacity_mbps=capacity_mbps)

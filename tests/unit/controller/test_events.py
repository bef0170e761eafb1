"""The log of events, and what transitions of the state tell."""

from __future__ import annotations

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


def told(before: State, after: State) -> list[tuple[str, object]]:
    return [(kind, document.get("node") or document.get("id")) for kind, document in changes(before, after)]


def test_transitions_tell_what_changed_and_nothing_else() -> None:
    context = TopologyContext.of(read_file(str(TRIANGLE)), "triangle")
    start = initial(context, [])
    assert told(start, start) == []
    up = agent_up(start, context, "a", fresh=False, now_s=1.0)
    assert told(start, up) == [("agent.up", "a")]
    down = agent_down(up, context, "a")
    assert told(up, down) == [("agent.down", "a")]
    ports = switch_up(up, "a", {"a-wifi": 2, "a-host": 3, "a-acc": 4, "a-net": 5})
    assert told(up, ports) == [("switch.up", "a")]
    assert told(ports, switch_down(ports, "a")) == [("switch.down", "a")]
    flow = DeclaredFlow(FlowSpec("f", "a", "b"), Origin.API)
    declared = flow_declared(up, flow)
    assert told(up, declared) == [("flow.declared", "f")]
    assert told(declared, flow_removed(declared, "f")) == [("flow.removed", "f")]

"""The log of events, and what transitions of the state tell."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from swarm import events, swarm

from hyroads.controller.core.frame_sizes import NEEDED_MTU
from hyroads.controller.core.netfile_sections import flow_document
from hyroads.controller.core.network import FlowSpec
from hyroads.controller.core.port_readings import PortReading
from hyroads.controller.files.documents import read_file
from hyroads.controller.model.events import MAX_AT_ONCE, Event, EventLog, changes
from hyroads.controller.model.state import (
    DeclaredFlow,
    Origin,
    Presence,
    State,
    TopologyContext,
    agent_down,
    agent_up,
    agents_grace_over,
    flow_declared,
    flow_removed,
    initial,
    ports_read,
    switch_down,
    switch_grace_over,
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


STEPS = ("switch", "agent", "grace over", "flow", "port")


def play_transitions(_: int, row: list[tuple[str, int]]) -> None:
    """A reader of all events knows what is up, which flows there are but for those of tests, and small ports."""
    context = TopologyContext.of(read_file(str(TRIANGLE)), "triangle")
    state = initial(context, [])
    reader: dict[tuple[str, str], object] = {}
    for kind, choice in row:
        rng, before = random.Random(choice), state
        node, name, is_up = rng.choice("ab"), rng.choice("fg"), rng.random() < 0.6
        if kind == "switch":
            ports = {f"{node}-wifi": 2, f"{node}-host": 3, f"{node}-acc": 4, f"{node}-net": 5}
            state = switch_up(state, node, ports) if is_up else switch_down(state, node)
        elif kind == "agent":
            state = (
                agent_up(state, context, node, fresh=False, now_s=1.0) if is_up else agent_down(state, context, node)
            )
        elif kind == "grace over":
            state = agents_grace_over(state) if is_up else switch_grace_over(state)
        elif kind == "flow":
            spec, origin = FlowSpec(name, "a", rng.choice("bc")), rng.choice([Origin.API, Origin.FILE, Origin.TEST])
            state = flow_declared(state, DeclaredFlow(spec, origin)) if is_up else flow_removed(state, name)
        else:
            mtu = rng.choice((600, NEEDED_MTU - 1, NEEDED_MTU))
            state = ports_read(state, context, node, [PortReading(f"{node}-wifi", mtu, "02:00:00:00:00:01")])
        tell(reader, before, state)


def tell(reader: dict[tuple[str, str], object], before: State, after: State) -> None:
    for kind, document in changes(before, after):
        thing, _, what = kind.partition(".")
        key = thing, str(document.get("id") or document["node"])
        if what in ("removed", "large"):
            assert key in reader, f"{kind} of what there was not"
            del reader[key]
        else:
            new = {"declared": True, "small": document.get("mtu_bytes")}.get(what, what)
            assert reader.get(key) != new, f"{kind} twice"
            reader[key] = new
    users = {flow for flow, declared in after.flows.items() if declared.origin is not Origin.TEST}
    assert {name for thing, name in reader if thing == "flow"} == users
    for thing, presences in (("switch", after.switches), ("agent", after.agents)):
        for node, presence in presences.items():
            shown = {Presence.UP: "up", Presence.DOWN: "down"}.get(presence)
            assert shown is None or reader.get((thing, node), "down") == shown
    sizes = {node: min(port.mtu for port in ports.values()) for node, ports in after.readings.items()}
    small = {node: mtu for node, mtu in sizes.items() if mtu < NEEDED_MTU}
    assert {name: mtu for (thing, name), mtu in reader.items() if thing == "port"} == small


def test_reader_of_all_events_knows_what_there_is_through_any_row_of_transitions() -> None:
    swarm(100, lambda rng: events(rng, STEPS, 40), play_transitions)


@given(
    st.lists(st.integers(1, 3), max_size=30), st.integers(0, 80), st.integers(1, 20), st.sampled_from([4, MAX_AT_ONCE])
)
def test_reader_gets_what_is_after_its_place_also_where_numbers_are_left_out(
    steps: list[int], last: int, kept: int, most: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hyroads.controller.model.events.MAX_AT_ONCE", most)
        log, number = EventLog(lambda: 1000.0, Bell(), max_events=kept, several=True), 0
        log.follow()
        there = []
        for step in steps:
            number += step
            there.append(Event(number, 1000.0, "link.up", {}))
            log.mirror(there[-1])
            log.mirror(there[0])
        assert log.all() == tuple(there[-kept:])
        assert log.since(last) == [event for event in there[-kept:] if event.id > last][:most]
        assert log.wait(last, 0.0) is (number > last)
        # Who has the event before the first one that is kept has missed nothing.
        lost = there[-kept - 1].id if len(there) > kept else there[0].id - 1 if there else 0
        assert log.first == lost + 1


class Ringing(Bell):
    """Each wait takes a second, and something happens in it while there is more to tell."""

    def __init__(self) -> None:
        self.now_s, self.waits = 1000.0, list[float]()
        self.log: EventLog | None = None
        self.coming: list[int] = []

    def wait(self, timeout_s: float) -> bool:
        self.waits.append(timeout_s)
        self.now_s += min(1.0, timeout_s)
        if not self.coming:
            return False
        assert self.log is not None
        self.log.mirror(Event(self.coming.pop(0), self.now_s, "link.up", {}))
        return True


@pytest.mark.parametrize("several", [True, False])
@pytest.mark.parametrize("within_s", [0.0, 1.0, 2.0, 3.0, 10.0])
@pytest.mark.parametrize("coming", [[], [5], [3, 5], [3, 4, 5], [1, 2, 3, 4, 6]])
def test_reader_may_go_on_once_its_event_has_come_in_time(coming: list[int], within_s: float, several: bool) -> None:
    bell = Ringing()
    log = bell.log = EventLog(lambda: bell.now_s, bell, several=several)
    if several:
        log.follow()
    else:
        log._last = 0
    bell.coming = list(coming)
    comes_in_s = len(coming) if coming and coming[-1] >= 5 else None
    expected = several and comes_in_s is not None and comes_in_s <= within_s
    assert log.knows(5, within_s) is expected
    assert len(bell.waits) <= within_s + 1 if several else not bell.waits
    assert all(timeout_s > 0 for timeout_s in bell.waits)
    assert log.knows(log.last, 0.0), "what it has itself it knows at once"


def test_single_controller_publishes_flows_at_once() -> None:
    log = EventLog(lambda: 1000.0, Bell())
    number = log.publish("flow.declared", flow_document(FlowSpec("f", "a", "b")))
    assert [event.id for event in log.since(number - 1)] == [number] and log.to_save() == ()

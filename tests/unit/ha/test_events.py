"""Events over a takeover: a reader that goes on at the new leader misses none and gets none twice."""

from __future__ import annotations

import random
from collections import Counter

from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from swarm import events as rows
from swarm import swarm

from hyroads.controller.core.netfile_sections import flow_document
from hyroads.controller.core.network import FlowSpec
from hyroads.controller.model.events import EVENTS_PER_EPOCH, Event, EventLog


class Bell:
    def notify(self) -> None:
        pass

    def wait(self, timeout_s: float) -> bool:
        return False


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def logs(count: int, clock: Clock, max_events: int = 4096) -> list[EventLog]:
    """The first leads, with epoch 1; what it tells the others mirror."""
    found = [EventLog(clock, Bell(), max_events=max_events, several=True) for _ in range(count)]
    for log in found:
        log.follow()
    connect(found)
    found[0].lead(1)
    return found


def connect(found: list[EventLog]) -> None:
    for log in found:
        log.listeners = [other.mirror for other in found if other is not log]


def kinds(events: list[Event]) -> list[str]:
    return [event.kind for event in events]


def test_a_reader_goes_on_at_the_next_leader() -> None:
    clock = Clock()
    first, second = logs(2, clock)
    last = first.publish("link.up", {"link": "ab"})
    first.publish("flow.moved", {"id": "f"})
    first.follow()
    second.lead(2)
    second.publish("ha.leads", {})
    assert kinds(second.since(last)) == ["flow.moved", "ha.leads"]
    assert second.last == 2 * EVENTS_PER_EPOCH and second.first <= last
    # The one before has them, too.
    assert kinds(first.since(last)) == ["flow.moved", "ha.leads"]


def test_what_happened_while_nobody_led_is_told_and_nothing_twice() -> None:
    clock = Clock()
    first, second = logs(2, clock)
    for log in (second, first):
        log.publish("link.down", {"link": "ab"})
    clock.now_s += 1.0
    # The leader is dead by now.
    second.publish("link.up", {"link": "ab"})
    second.publish("switch.down", {"node": "a"})
    second.publish("fault", {"where": "here"})
    second.lead(2)
    assert kinds(second.since(0)) == ["link.down", "link.up", "switch.down"]


def test_next_leader_corrects_links_whose_last_event_is_not_what_it_sees() -> None:
    clock = Clock()
    first, second = logs(2, clock)
    first.publish("link.down", {"link": "ab", "reason": "silent"})
    for link in ("bc", "cd"):
        first.publish("link.up", {"link": link, "reason": None})
    last = second.last
    second.lead(2, down={"bc": "port down", "de": "silent"})
    told = [(event.kind, event.document) for event in second.since(last)]
    assert told == [
        ("link.up", {"link": "ab", "reason": None}),
        ("link.down", {"link": "bc", "reason": "port down"}),
    ]


def test_of_long_ago_nothing_is_told_again() -> None:
    clock = Clock()
    _, second = logs(2, clock)
    second.publish("link.down", {"link": "ab"})
    clock.now_s += 60.0
    second.lead(2)
    assert second.since(0) == []


def test_a_follower_that_came_later_knows_what_it_misses() -> None:
    clock = Clock()
    (first,) = logs(1, clock)
    numbers = [first.publish("flow.moved", {"id": str(number)}) for number in range(5)]
    late = EventLog(clock, Bell(), several=True)
    late.follow()
    for event in first.all()[2:]:
        late.mirror(event)
    assert late.first == numbers[2] and [event.id for event in late.since(numbers[3])] == numbers[4:]


@examples(100)
@given(st.lists(st.sampled_from(["tell", "take over", "read"]), max_size=60), st.integers(3, 40))
def test_a_reader_misses_none_and_gets_none_twice(steps: list[str], most: int) -> None:
    clock = Clock()
    several = logs(3, clock, max_events=most)
    leader, epoch, told, got, last = 0, 1, [], [], several[0].last
    missed = False
    for number, step in enumerate(steps):
        if step == "tell":
            several[leader].publish("flow.moved", {"id": str(number)})
            told.append(str(number))
        elif step == "take over":
            several[leader].follow()
            leader, epoch = (leader + 1) % 3, epoch + 1
            several[leader].lead(epoch)
        else:
            log = several[(leader + number) % 3]
            missed |= last + 1 < log.first
            events = log.since(last)
            got += [str(event.document["id"]) for event in events]
            last = events[-1].id if events else last
    got += [str(event.document["id"]) for event in several[leader].since(last)]
    if not missed and not last + 1 < several[leader].first:
        assert got == told
    assert len(set(got)) == len(got) and set(got) <= set(told)


def test_a_flow_is_told_once_it_is_saved_and_what_happens_meanwhile_after_it() -> None:
    first, second = logs(2, Clock())
    kept, lost = (FlowSpec(name, "a", "b") for name in ("kept", "lost"))
    last = first.publish("link.down", {"link": "ab"})
    first.publish("flow.declared", flow_document(kept))
    first.publish("link.up", {"link": "ab"})
    assert [event.document["id"] for event in first.to_save()] == ["kept"]
    first.publish("link.down", {"link": "ab"})
    first.publish("flow.declared", flow_document(lost))
    assert kinds(first.since(last)) == ["link.up"]
    first.saved()
    for log in (first, second):
        assert kinds(log.since(last)) == ["link.up", "flow.declared", "link.down"]
    # It can't be saved, and is taken back.
    (event,) = first.to_save()
    first.not_saved()
    first.publish("flow.removed", {"id": "lost"})
    assert first.to_save() == ()
    assert first.publish("link.up", {"link": "ab"}) > event.id


def test_the_next_leader_tells_under_the_same_ids_what_was_saved_and_not_told() -> None:
    first, second = logs(2, Clock())
    told, late = (FlowSpec(name, "a", "b") for name in ("told", "late"))
    saved = []
    for flow in (told, late):
        first.publish("flow.declared", flow_document(flow))
        saved += first.to_save()
        if flow is late:
            first.listeners = []
        first.saved()
    second.lead(2, {flow.id: flow for flow in (told, late)}, saved=saved)
    assert second.since(0) == first.since(0) == saved
    # Nor is anything told again by the next one.
    first.follow()
    first.lead(3, {flow.id: flow for flow in (told, late)}, saved=saved)
    assert first.to_save() == () and first.since(0) == saved


def test_what_was_told_and_is_not_there_is_corrected_by_the_next_leader() -> None:
    first, second = logs(2, Clock())
    there, lost = (FlowSpec(name, "a", "b") for name in ("there", "lost"))
    saved: list[Event] = []
    for kind, document in (
        ("flow.declared", flow_document(there)),
        ("flow.declared", flow_document(lost)),
        ("flow.removed", {"id": "there"}),
    ):
        first.publish(kind, document)
        saved += first.to_save()
        first.saved()
    second.lead(2, {"there": there}, saved=saved)
    told = [(event.kind, event.document["id"]) for event in second.to_save()]
    assert told == [("flow.removed", "lost"), ("flow.declared", "there")]


def test_a_controller_that_has_just_begun_tells_no_old_flow_again_and_says_what_it_misses() -> None:
    clock = Clock()
    (first,) = logs(1, clock)
    last = first.publish("link.up", {"link": "ab"})
    late = EventLog(clock, Bell(), several=True)
    late.follow()
    old = FlowSpec("old", "a", "b")
    late.publish("flow.declared", flow_document(old))
    late.publish("link.down", {"link": "ab"})
    late.lead(2, {"old": old})
    assert kinds(late.since(0)) == ["link.down"] and late.to_save() == ()
    assert last + 1 < late.first


def test_events_that_wait_for_a_state_are_told_also_if_it_is_not_saved() -> None:
    first, second = logs(2, Clock())
    first.publish("flow.declared", flow_document(FlowSpec("f", "a", "b")))
    (event,) = first.to_save()
    first.publish("link.down", {"link": "ab"})
    assert kinds(second.since(0)) == []
    first.not_saved()
    assert kinds(first.since(0)) == kinds(second.since(0)) == ["link.down"]
    assert second.last > event.id


def test_following_twice_is_following_once() -> None:
    clock = Clock()
    _, second = logs(2, clock)
    second.publish("link.down", {"link": "ab"})
    second.follow()
    second.lead(2)
    assert kinds(second.since(0)) == ["link.down"]


def test_leader_without_word_of_saved_flows_takes_none_for_removed() -> None:
    first, second = logs(2, Clock())
    first.publish("flow.declared", flow_document(FlowSpec("f", "a", "b")))
    first.to_save()
    first.saved()
    assert not second.lead(2) and second.to_save() == ()


KINDS = ["link.down", "link.up", "switch.down", "agent.up", "fault", "flow.moved"]
seen = st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from("ab"), st.booleans(), st.integers(0, 4)), max_size=20)


@given(seen)
def test_next_leader_tells_each_event_of_devices_of_the_last_seconds_that_is_missing(
    row: list[tuple[str, str, bool, int]],
) -> None:
    """All see all; the leader tells some of it before it ends."""
    clock = Clock()
    first, second = logs(2, clock)
    happened: list[tuple[float, str, str]] = []
    for kind, name, is_told, pause_s in row:
        clock.now_s += pause_s
        second.publish(kind, {"link": name})
        happened.append((clock.now_s, kind, name))
        if is_told:
            first.publish(kind, {"link": name})
    before = [(event.kind, event.document["link"]) for event in second.since(0)]
    recent = [(kind, name) for event in first.all() for kind, name in [(event.kind, event.document["link"])]
              if event.time_s >= clock.now_s - 6.0]  # fmt: skip
    expected, told = list[tuple[str, str]](), Counter(recent)
    for at_s, kind, name in happened:
        if told[kind, name]:
            told[kind, name] -= 1
        elif at_s >= clock.now_s - 3.0 and kind.partition(".")[0] in ("switch", "agent", "link"):
            expected.append((kind, name))
    second.lead(2)
    assert [(event.kind, event.document["link"]) for event in second.since(0)] == before + expected


STEPS = ("device", "declare", "remove", "begin to save", "saved", "not saved")


def play_saving(_: int, row: list[tuple[str, int]]) -> None:
    """What is told is saved before, under the same id; and each thing that happened is told once, in its order."""
    first, second = logs(2, Clock())
    devices, flows, is_saving = list[str](), dict[str, bool](), False
    for number, (kind, choice) in enumerate(row):
        flow, before = random.Random(choice).choice("fg"), len(first.since(0))
        if kind == "device":
            first.publish("link.up", {"link": str(number)})
            devices.append(str(number))
            assert is_saving or len(first.since(0)) == before + 1
        elif kind == "declare" and not flows.get(flow):
            first.publish("flow.declared", flow_document(FlowSpec(flow, "a", "b")))
            flows[flow] = True
        elif kind == "remove" and flows.get(flow):
            first.publish("flow.removed", {"id": flow})
            flows[flow] = False
        elif kind == "begin to save" and not is_saving:
            saving, is_saving = first.to_save(), True
        elif kind in ("saved", "not saved") and is_saving:
            (first.saved if kind == "saved" else first.not_saved)()
            told = [event for event in first.since(0)[before:] if event.kind.startswith("flow.")]
            assert told == (list(saving) if kind == "saved" else [])
            is_saving = False
    if is_saving:
        first.not_saved()
    first.to_save()
    first.saved()
    told = first.since(0)
    assert [event.document["link"] for event in told if event.kind == "link.up"] == devices
    there = dict[object, bool]()
    for event in told:
        if event.kind != "link.up":
            assert there.get(event.document["id"], False) is (event.kind == "flow.removed"), "in turns"
            there[event.document["id"]] = event.kind == "flow.declared"
    assert all(there.get(flow, False) is is_there for flow, is_there in flows.items())
    assert [event.id for event in told] == sorted({event.id for event in told}) and second.since(0) == told


def test_everything_is_told_once_whatever_is_saved_when() -> None:
    swarm(200, lambda rng: rows(rng, STEPS, 40), play_saving)

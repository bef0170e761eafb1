"""Which events of other instances are shown."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.ha.event_gate import EventGate
from hyroads.controller.model.events import EVENTS_PER_EPOCH, Event


def event(epoch: int, number: int) -> Event:
    return Event(epoch * EVENTS_PER_EPOCH + number, 1.0, "link.down", {})


def test_forged_number_never_hides_the_leaders_events() -> None:
    gate = EventGate()
    gate.names("b", 7)
    forged = Event(10**18 - 1, 1.0, "x.y", {})
    assert gate.take("b", forged) == gate.take("c", forged) == gate.take("c", event(7, 999_999_999)) == ()
    assert gate.take("b", event(7, 3)) == (event(7, 3),)


def test_events_of_the_next_leader_wait_for_etcd_and_none_is_lost() -> None:
    gate = EventGate()
    gate.names("b", 7)
    assert gate.take("b", event(7, 1)) == (event(7, 1),)
    # It repeats events of the one before, then sends its own.
    sent = [event(7, 1), event(7, 2), event(8, 0), event(8, 1)]
    assert [gate.take("c", each) for each in sent] == [()] * 4
    assert gate.names("c", 8) == tuple(sent)
    assert gate.take("c", event(8, 2)) == (event(8, 2),)
    assert gate.take("b", event(8, 3)) == ()


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("take"), st.sampled_from("abc"), st.integers(0, 4), st.integers(0, EVENTS_PER_EPOCH - 1)),
        st.tuples(st.just("names"), st.sampled_from("abc"), st.integers(0, 4), st.just(0)),
    ),
    max_size=40,
)


@given(STEPS)
def test_shown_is_only_what_the_leader_of_etcd_sent_with_ids_of_its_epochs(
    steps: list[tuple[str, str, int, int]],
) -> None:
    gate, sent, shown = EventGate(), dict[str, list[Event]](), list[tuple[str, Event]]()
    for what, name, epoch, number in steps:
        if what == "take":
            each = event(epoch, number)
            sent.setdefault(name, []).append(each)
            new = gate.take(name, each)
            assert name == gate.leader or not new
        else:
            new = gate.names(name, epoch)
        assert all(each.id < (gate.epoch + 1) * EVENTS_PER_EPOCH and each in sent[gate.leader] for each in new)
        shown += [(gate.leader, each) for each in new]
    for name, events in sent.items():
        assert len([one for one in shown if one[0] == name]) <= len(events), "none is shown twice"

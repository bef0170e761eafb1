"""The dashboard's feed: documents in, changes out, whatever comes; connections that end and begin again."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.model.live_document import LiveLog
from hyroads.dashboard.feed import FIRST_WAIT_S, MAX_WAIT_S, SILENT_S, Feed, Phase
from hyroads.dashboard.state import MAX_REASON, FeedError, NetworkState
from hyroads.rest.live import COLUMNS, SOURCES

TOPOLOGY = {
    "name": "n",
    "version": 1,
    "nodes": [{"id": "a", "role": "ap", "position_m": None, "switch": {"connected": True}, "agent": {"up": False}}],
    "links": [{"id": "aa", "from": "a", "to": "a", "technology": "wifi"}],
}


def live(log: LiveLog, since: int | None) -> dict[str, Any]:
    """As the controller makes it."""
    found = log.since(since)
    return {
        "from": found.since,
        "version": found.version,
        "complete": found.since is None,
        "topology_version": 1,
        "slot": {},
        **({"columns": COLUMNS, "sources": SOURCES} if found.since is None else {}),
        **{name: dict(found.changed.get(name, {})) for name in ("links", "flows", "paths", "clients", "slices")},
        "gone": {name: list(ids) for name, ids in found.gone.items()},
    }


def link(busy: int, up: int = 1) -> list[Any]:
    return [up, 10, 1, busy, 1, 10, 0]


def new_feed() -> Feed:
    return Feed(NetworkState(), 0.0)


LINKS = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 100).map(link))


@given(st.lists(LINKS, min_size=1, max_size=8), st.data())
@examples(50)
def test_a_reader_of_changes_knows_what_a_reader_of_everything_knows(steps: list[Any], data: Any) -> None:
    log, feed, sent = LiveLog(5), new_feed(), None
    for number, rows in enumerate(steps):
        before = copy.deepcopy(feed.state.live["links"])
        log.update({"links": rows})
        # A connection that ends makes the next document complete.
        since = None if sent is None or data.draw(st.booleans()) else sent
        document = live(log, since)
        sent = document["version"]
        changes = feed.take("7", "live", json.dumps(document), float(number))
        assert feed.state.live["links"] == rows
        assert changes.of("links") == {one for one in before.keys() | rows.keys() if before.get(one) != rows.get(one)}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


LIVE_PARTS = ["links", "flows", "paths", "clients", "slices"]
MEMBERS = ["version", "complete", "from", "gone", "columns", "slot", "topology_version", "sources", *LIVE_PARTS]


@given(st.sampled_from(MEMBERS), JSON)
@examples(200)
def test_a_strange_document_is_refused_or_taken_but_never_half(name: str, value: Any) -> None:
    log, feed = LiveLog(5), new_feed()
    log.update(
        {"links": {"ab": link(3)}, "paths": {"f/1": [["ab"], 1, 1, 1, 0, 1]}, "clients": {"c": {"m": ["a", "w"]}}}
    )
    feed.take("1", "live", json.dumps(live(log, None)), 0.0)
    before = copy.deepcopy((feed.state.live, feed.state.version))
    try:
        feed.take("2", "live", json.dumps({**live(log, None), name: value}), 1.0)
    except FeedError:
        assert (feed.state.live, feed.state.version) == before


@pytest.mark.parametrize("data", ["", "[]", "{", "nonsense", '{"version":1e999}', '"\\ud800"'])
def test_what_is_no_document_is_refused(data: str) -> None:
    with pytest.raises(FeedError):
        new_feed().take("1", "live", data, 0.0)


@pytest.mark.parametrize(
    "wrong",
    [[], {}, {**TOPOLOGY, "nodes": 3}, {**TOPOLOGY, "version": "1"},
     {**TOPOLOGY, "links": [{"id": "x", "from": "a", "to": "nobody", "technology": "w"}]},
     {**TOPOLOGY, "nodes": [{**TOPOLOGY["nodes"][0], "position_m": ["x", 1]}]}],
)  # fmt: skip
def test_a_wrong_topology_is_refused_whole(wrong: Any) -> None:
    state = NetworkState()
    with pytest.raises(FeedError):
        state.take_topology(wrong)
    assert state.topology is None


def test_a_node_is_up_if_all_of_it_is() -> None:
    state = NetworkState()
    assert state.take_topology(TOPOLOGY).topology
    assert state.topology is not None
    assert state.topology.nodes["a"].up is False
    assert not state.take_topology({**TOPOLOGY, "version": 2}).topology


def test_the_event_of_a_cut_is_faster_than_the_live_document() -> None:
    log, feed = LiveLog(5), new_feed()
    log.update({"links": {"ab": link(3)}})
    feed.take("1", "live", json.dumps(live(log, None)), 0.0)
    changes = feed.take("9", "link.down", '{"time_s":1.0,"link":"ab","reason":"silent"}', 0.1)
    assert changes.of("links") == {"ab"}
    assert feed.state.figure("links", "ab", "up") == 0
    assert [event.kind for event in feed.state.events] == ["link.down"]
    assert feed.last_event == 9


def test_attempts_are_ever_further_apart_and_one_that_works_starts_anew() -> None:
    feed, now_s, waits = new_feed(), 0.0, []
    for _ in range(8):
        feed.lost("nobody there", now_s)
        waits.append(feed.next_attempt_s - now_s)
        now_s = feed.next_attempt_s
    assert waits[0] == FIRST_WAIT_S
    assert waits == sorted(waits)
    assert waits[-1] == MAX_WAIT_S
    assert feed.connection.since_s == 0.0
    log = LiveLog(5)
    assert feed.take("1", "live", json.dumps(live(log, None)), now_s).connection
    assert feed.connection.phase is Phase.LIVE
    feed.lost("again", now_s + 1)
    assert feed.next_attempt_s == now_s + 1 + FIRST_WAIT_S


def test_a_stream_that_is_open_is_not_yet_a_controller_that_answers() -> None:
    feed = new_feed()
    feed.lost("nobody there", 0.0)
    feed.take("3", "message", "", 1.0)
    assert feed.connection.phase is Phase.LOST
    assert not feed.silent(1.0 + SILENT_S)
    assert feed.silent(1.1 + SILENT_S)


def test_a_document_that_the_controller_does_not_have_is_replaced_by_the_reason() -> None:
    state = NetworkState()
    state.take_document("/box-codes", {"pin": "f"})
    changes = state.take_refusal("/box-codes", "x" * 1000)
    assert changes.documents == {"/box-codes"} and "/box-codes" not in state.documents
    assert len(state.refusals["/box-codes"]) == MAX_REASON
    assert state.take_refusal("/box-codes", "x" * 1000).documents == frozenset()
    assert state.take_document("/box-codes", {"pin": "f"}).documents == {"/box-codes"}
    assert state.refusals == {}

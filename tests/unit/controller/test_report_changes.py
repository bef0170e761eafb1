"""Reports of what changed: put together with the whole one they are the whole report, whatever was lost before."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.agents.changes import WholeReport
from hyroads.controller.agents.protocol import ProtocolError, encode, parse_hello, parse_line

SLOW = {"last_heard_ms", "cpu_s", "woken_late", "seq", "more", "type"}
"""Told in whole reports alone; ``last_heard_ms`` with whatever else changed of its entry."""
NUMBERS = st.integers(0, 2**40) | st.floats(0, 1e9) | st.none()
COUNTERS = st.integers(0, 2**40)


def whole(flows: list[int], links: list[str], draw: Any) -> dict[str, Any]:
    def path(number: int) -> dict[str, Any]:
        return {"id": number, "rate_mbps": draw(NUMBERS), "sent_frames": draw(COUNTERS), "sent_bytes": draw(COUNTERS)}

    def back(number: int) -> dict[str, Any]:
        return {"id": number, "received_bytes": draw(COUNTERS), "delay_ms": draw(NUMBERS), "last_heard_ms": 1.5}

    late = {"max_ms": 0.1, "over_5_ms_s": 0.0, "over_20_ms_s": 0.0, "over_100_ms_s": 0.0}
    return {
        "type": "report", "seq": None, "more": False, "time_s": draw(st.floats(0, 1e6)), "revision": draw(COUNTERS),
        "unclassified": draw(COUNTERS), "malformed": 0, "cpu_s": 0.5, "woken_late": late,
        "ingress": [{"number": n, "queued": draw(COUNTERS), "paths": [path(1), path(2)]} for n in flows],
        "egress": [{"number": n + 1, "lost": draw(COUNTERS), "paths": [back(1)]} for n in flows],
        "links": [{"link": link, "up": draw(st.booleans()), "last_heard_ms": 2.5} for link in links],
    }  # fmt: skip


def changes(before: Any, now: Any, *, is_top: bool = False) -> Any:
    """As ``dataplane/src/edge/changes.rs`` makes them; None if nothing changed that counts."""
    if isinstance(now, list):
        return [told for was, is_ in zip(before, now, strict=True) if (told := changes(was, is_)) is not None] or None
    found = {}
    for key, value in now.items():
        if isinstance(value, list):
            told = changes(before[key], value)
            if told is not None:
                found[key] = told
        elif key not in SLOW and (value != before[key] or type(value) is not type(before[key])):
            found[key] = value
    names = {key: now[key] for key in ("number", "id", "link") if key in now}
    if is_top:
        return {"type": "changes", **found, "time_s": now["time_s"]}
    if "link" in names and found:
        names["up"] = now["up"]
    return {**names, **found} if found else None


def steady(report: dict[str, Any], base: dict[str, Any]) -> dict[str, Any]:
    """A report as it comes out if what is told in whole reports alone is that of ``base``."""
    found = copy.deepcopy(report)
    for key in ("cpu_s", "woken_late"):
        found[key] = copy.deepcopy(base[key])
    return found


@given(st.data())
def test_changes_and_the_whole_make_the_report(data: Any) -> None:
    flows = data.draw(st.lists(st.integers(16, 99), unique=True, max_size=3))
    links = data.draw(st.lists(st.sampled_from("abcd"), unique=True, max_size=3))
    taken = WholeReport()
    base: dict[str, Any] = {}
    for turn in range(data.draw(st.integers(1, 6))):
        now = whole(flows, links, data.draw)
        if turn == 0 or data.draw(st.booleans()):
            if data.draw(st.booleans()):
                # The connection is lost: the next session begins with a whole one.
                taken = WholeReport()
            base = now
            taken.take(parse_line(encode(base)))
            continue
        if data.draw(st.booleans()):
            # An answer to a question in between is a whole report that nobody refers to.
            taken.take(parse_line(encode({**whole(flows, links, data.draw), "seq": 7})))
        told = changes(base, now, is_top=True)
        report, named = taken.changed(parse_line(encode(told)))
        assert report == parse_line(encode(steady(now, base)))
        assert {link["link"] for link in named} == {
            link["link"] for link, was in zip(now["links"], base["links"], strict=True) if link["up"] != was["up"]
        }
        # The whole one is what it was.
        again, _ = taken.changed({"type": "changes", "time_s": base["time_s"]})
        assert again == parse_line(encode(base))


@pytest.mark.parametrize(
    "change",
    [{"time_s": None}, {"time_s": "1"}, {"time_s": True}, {"ingress": 5}, {"ingress": [5]}, {"ingress": [{}]},
     {"ingress": [{"number": 17}]}, {"ingress": [{"number": True}]}, {"ingress": [{"number": []}]},
     {"ingress": [{"number": 16, "queued": "x"}]}, {"ingress": [{"number": 16, "queued": True}]},
     {"ingress": [{"number": 16, "queued": 10**301}]}, {"ingress": [{"number": 16, "paths": {}}]},
     {"ingress": [{"number": 16, "paths": [{"id": 9, "sent_bytes": 1}]}]}, {"links": [{"link": "x", "up": True}]},
     {"links": [{"link": "a"}]}, {"links": [{"link": "a", "up": 1}]}, {"revision": {}}, {"unclassified": [1]}],
)  # fmt: skip
def test_malformed_changes_are_refused(change: dict[str, Any]) -> None:
    taken = WholeReport()
    base = {"type": "report", "time_s": 1, "ingress": [{"number": 16, "queued": 1, "paths": [{"id": 1}]}],
            "links": [{"link": "a", "up": True}]}  # fmt: skip
    taken.take(parse_line(encode(base)))
    taken.changed(parse_line(b'{"type":"changes","time_s":2,"ingress":[{"number":16,"queued":2,"new":"x"}]}'))
    with pytest.raises(ProtocolError):
        taken.changed(parse_line(json.dumps({"type": "changes", "time_s": 2, **change}).encode()))


def test_changes_need_a_whole_report_in_one_part() -> None:
    taken = WholeReport()
    message = {"type": "changes", "time_s": 2}
    with pytest.raises(ProtocolError):
        taken.changed(message)
    taken.take(parse_line(b'{"type":"report","time_s":1,"more":true}'))
    with pytest.raises(ProtocolError):
        taken.changed(message)
    taken.take(parse_line(b'{"type":"report","time_s":1,"seq":4}'))
    with pytest.raises(ProtocolError):
        taken.changed(message)


def test_who_can_tell_changes_says_so() -> None:
    hello = {"type": "hello", "version": 1, "node": "a", "boot": "9", "revision": 0}
    assert not parse_hello(parse_line(encode(hello))).changes
    assert parse_hello(parse_line(encode({**hello, "changes": True}))).changes
    assert not parse_hello(parse_line(encode({**hello, "changes": 1}))).changes

"""Readings of what changed: with the whole one they are the reading, but for how long ago neighbours were heard."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.access_point.reading_changes import HEARD_STEP_MS, Changes
from hyroads.controller.agents.protocol import ProtocolError, encode, parse_line
from hyroads.controller.agents.telemetry import WholeReading, parse_radio

MACS = tuple(f"02:00:00:00:00:0{i}" for i in range(4))


@st.composite
def neighbours(draw: Any) -> list[dict[str, Any]]:
    return [
        {"mac": mac, "tx_mbps": draw(st.sampled_from([None, 5.0, 6.5])), "rx_mbps": None, "loss": 0.1,
         "signal_dbm": draw(st.sampled_from([None, -50])), "last_heard_ms": draw(st.sampled_from([3, 40, 800]))}
        for mac in draw(st.sampled_from([MACS, MACS[:2]]))
    ]  # fmt: skip


@st.composite
def readings(draw: Any) -> dict[str, Any]:
    media = draw(st.sampled_from([("wifi",), ("plc", "wifi")]))
    counters = st.integers(0, 2**40)
    interfaces = [{"technology": k, "busy_us": draw(counters), "active_us": draw(counters),
                   "neighbours": draw(neighbours())} for k in media]  # fmt: skip
    return {"time_s": draw(st.floats(0, 1e6)), "interfaces": interfaces}


@given(st.lists(st.tuples(readings(), st.floats(0, 1.5), st.booleans(), st.booleans()), min_size=1, max_size=8))
def test_changes_and_the_whole_make_the_reading(turns: list[tuple[dict[str, Any], float, bool, bool]]) -> None:
    sends, takes, now_s = Changes(2.0), WholeReading(), 0.0
    for reading, step_s, is_lost, is_asked in turns:
        now_s += step_s
        if is_lost:
            sends, takes = Changes(2.0), WholeReading()
        if is_asked:
            takes.take(parse_line(encode({"type": "radio", "seq": 4, **reading})))
        message = parse_line(encode(sends.message(reading, now_s)))
        found = takes.take(message) if message["type"] == "radio" else takes.changed(message)
        wanted = parse_radio({"type": "radio", "seq": None, **reading})
        assert (found.seq, found.time_s) == (wanted.seq, wanted.time_s)
        for interface, right in zip(found.interfaces, wanted.interfaces, strict=True):
            assert interface[:3] == right[:3]
            for row, other in zip(interface.neighbours, right.neighbours, strict=True):
                assert abs(row.last_heard_ms - other.last_heard_ms) < HEARD_STEP_MS
                assert row[:5] == other[:5]


def test_all_is_told_in_time() -> None:
    sends = Changes(2.0)
    reading = {"time_s": 1.0, "interfaces": []}
    kinds = [sends.message(reading, now_s)["type"] for now_s in (0.0, 0.1, 1.9, 2.0, 2.1)]
    assert kinds == ["radio", "radio-changes", "radio-changes", "radio", "radio-changes"]


@pytest.mark.parametrize(
    "interfaces",
    [None, [], [5], [{"technology": "plc", "busy_us": 1, "active_us": 1}], [{"technology": "wifi", "busy_us": 1}],
     [{"technology": "wifi", "busy_us": -1, "active_us": 1}],
     [{"technology": "wifi", "busy_us": 1, "active_us": 1, "neighbours": None}],
     [{"technology": "wifi", "busy_us": 1, "active_us": 1, "neighbours": [{"mac": "x"}]}],
     [{"technology": "wifi", "busy_us": 1, "active_us": 1, "neighbours": [
         {"mac": MACS[0], "loss": 0, "last_heard_ms": 1}]}]],
)  # fmt: skip
def test_malformed_changes_are_refused(interfaces: Any) -> None:
    takes = WholeReading()
    message = {"type": "radio-changes", "time_s": 2.0, "interfaces": interfaces}
    with pytest.raises(ProtocolError):
        takes.changed(message)
    whole = {"technology": "wifi", "busy_us": 1, "active_us": 1, "neighbours": []}
    takes.take({"type": "radio", "time_s": 1.0, "interfaces": [whole]})
    with pytest.raises(ProtocolError):
        takes.changed(message)

"""Lines of the agents' protocol: hostile ones are refused, configurations have stable revisions."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.agents.configs import (
    AgentConfig,
    EgressFlow,
    HelloConfig,
    IngressFlow,
    PathConfig,
    rates_document,
)
from hyroads.controller.agents.markers import PathMarkers, has_reached, parse_first, parse_passed
from hyroads.controller.agents.protocol import MAX_LINE, ProtocolError, encode, parse_hello, parse_line
from hyroads.controller.core.private_split import PrivateSplit

HELLO = {"type": "hello", "version": 1, "node": "a", "boot": "9f", "token": None, "revision": 7, "program": "x 1"}
PATHS = (PathConfig(1, (111, 222), 9.5, 1600), PathConfig(2, (333,), 6.25, 1600))
CONFIG = AgentConfig(
    HelloConfig(40, 140, (("plc", 1234),), (("ab-plc~", "02:00:01:01:00:02"),)),
    {"f1": IngressFlow(16, "f1", "b", 60, PATHS)},
    {"f2": EgressFlow(17, "f2", (1, 2), 100)},
)


def test_hello_is_read() -> None:
    hello = parse_hello(parse_line(encode({**HELLO, "token": "secret"})))
    assert (hello.node, hello.revision, hello.boot) == ("a", 7, "9f")
    assert "secret" not in repr(hello)


@pytest.mark.parametrize(
    "change",
    [{"version": "1"}, {"node": 5}, {"node": "x" * 65}, {"revision": -1}, {"revision": True}, {"token": 5},
     {"boot": "a\nb"}],
)  # fmt: skip
def test_wrong_hellos_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(ProtocolError):
        parse_hello(parse_line(encode({**HELLO, **change})))


@pytest.mark.parametrize(
    "line",
    [b"", b"[]", b"{}", b"nul", b"\xff", b'{"type":5}', b'{"type":"report"}', b'{"type":"report","time_s":NaN}',
     b'{"type":"report","time_s":1,"egress":[{"number":"x"}]}', b'{"type":"link","link":"l","up":1}',
     b"[" * 100_000, b'{"type":"' + b"x" * MAX_LINE + b'"}'],
)  # fmt: skip
def test_malformed_lines_are_refused(line: bytes) -> None:
    with pytest.raises(ProtocolError):
        parse_line(line)


WORDS = st.text(max_size=9)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
)


@given(VALUES, st.sampled_from(["hello", "ok", "error", "link", "report", "ping", "pong", "config", "passed"]))
def test_anything_is_either_read_or_refused(value: object, kind: str) -> None:
    document = {**(value if isinstance(value, dict) else {"links": value, "seq": value, "ingress": [value]})}
    try:
        message = parse_line(json.dumps({**document, "type": kind}).encode())
    except ProtocolError:
        return
    assert message["type"] in {kind, "unknown"}


def test_config_has_the_shape_of_the_contract() -> None:
    document = json.loads(encode(CONFIG.document()))
    assert document["hello"] == {
        "interval_ms": 40,
        "dead_ms": 140,
        "send": [{"technology": "plc", "label": 1234}],
        "expect": [{"link": "ab-plc~", "mac": "02:00:01:01:00:02"}],
    }
    (flow,) = document["ingress"]
    assert flow["paths"][0] == {
        "id": 1, "labels": [111, 222], "rate_mbps": 9.5, "mtu": 1600, "interface": None, "dst_mac": None
    }  # fmt: skip
    assert document["egress"][0]["paths"] == [1, 2] and document["egress"][0]["reorder"] is True
    assert rates_document(CONFIG.rates) == {"type": "rates", "rates": {"16": {"1": 9.5, "2": 6.25}}}
    probe = rates_document({(16, 1): 9.5, (16, 2): 0.0}, {(16, 1): 4.0})
    assert probe == {"type": "rates", "rates": {"16": {"1": 9.5, "2": 0.0}}, "fill": {"16": {"1": 4.0}}}


def test_copies_holds_and_watches_are_told_only_where_they_are_wanted() -> None:
    copied = replace(CONFIG.ingress["f1"], copies=True, private=PrivateSplit()).document()
    assert copied["split"] == {"kind": "copy"}
    assert "split" not in CONFIG.ingress["f1"].document()
    unpadded = replace(CONFIG.ingress["f1"], private=PrivateSplit(n_chp=100.0))
    # An agent pads with n_chp by itself.
    assert unpadded.document()["split"] == {"kind": "hywf", "n_chp": 100.0, "padding": {"max_per_s": 0}}
    plain = replace(CONFIG.ingress["f1"], private=PrivateSplit())
    revisions = {replace(CONFIG, ingress={"f1": one}).revision for one in (unpadded, plain, CONFIG.ingress["f1"])}
    assert plain.document()["split"] == {"kind": "hywf"} and len(revisions) == 3
    bursting = replace(CONFIG.ingress["f1"], burst_ms=60).document()
    assert bursting["burst"] == {"bytes": 125_000, "ms": 60}
    egress = CONFIG.egress["f2"]
    assert not {"hold", "watch", "late"} & egress.document().keys()
    held = replace(egress, held=(1,), hold_ms=2000, watched=(1, 2), drop_late=True)
    told = {key: value for key, value in held.document().items() if key not in egress.document()}
    assert told == {"hold": {"paths": [1], "ms": 2000}, "watch": [1, 2], "late": "drop"}
    assert replace(CONFIG, egress={"f2": held}).revision != CONFIG.revision


def test_markers_are_read_and_compared_across_the_wrap() -> None:
    assert parse_first(parse_line(b'{"type":"ok","seq":7,"from":{"16":4711}}')) == {16: 4711}
    assert parse_first(parse_line(b'{"type":"ok","seq":7}')) == {}
    paths = [{"id": 1, "passed": 4711, "arrived": None, "paused": True}, {"id": 2}]
    message = parse_line(encode({"type": "passed", "number": 16, "paths": paths}))
    assert parse_passed(message) == (16, (PathMarkers(1, 4711, None, True), PathMarkers(2, None, None, False)))
    assert has_reached(5, 5) and has_reached(3, 2**32 - 3) and not has_reached(2**32 - 3, 3)
    assert not has_reached(None, 0)


@pytest.mark.parametrize(
    "line",
    [b'{"type":"passed"}', b'{"type":"passed","number":16,"paths":[5]}', b'{"type":"passed","number":16,"paths":[{}]}',
     b'{"type":"passed","number":70000,"paths":[]}', b'{"type":"passed","number":16,"paths":[{"id":1,"passed":-1}]}',
     b'{"type":"passed","number":16,"paths":[{"id":1,"passed":4294967296}]}'],
)  # fmt: skip
def test_malformed_markers_are_refused(line: bytes) -> None:
    with pytest.raises(ProtocolError):
        parse_passed(parse_line(line))


@pytest.mark.parametrize("first", ["5", '{"x":1}', '{"16":true}', '{"16":-1}', '{"99999":1}', '{"999999999":1}', "[1]"])
def test_malformed_first_numbers_are_refused(first: str) -> None:
    with pytest.raises(ProtocolError):
        parse_first(parse_line(b'{"type":"ok","seq":1,"from":%s}' % first.encode()))


def test_revision_says_everything_but_the_rates() -> None:
    slower = replace(CONFIG.ingress["f1"], paths=(replace(PATHS[0], rate_mbps=1.0), PATHS[1]))
    assert replace(CONFIG, ingress={"f1": slower}).revision == CONFIG.revision
    shorter = replace(CONFIG.ingress["f1"], paths=PATHS[:1])
    other = replace(CONFIG, ingress={"f1": shorter})
    assert other.revision != CONFIG.revision and other.revision > 0
    # A new controller on another machine, years later, must find the same number: it is part of the takeover.
    assert CONFIG.revision == 1308006713


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ({"epoch": 7, "heard_ms": 31}, (7, 31)),
        ({}, (0, None)),
        ({"epoch": 7}, (7, None)),
        ({"epoch": True, "heard_ms": True}, (0, None)),
        ({"epoch": -1, "heard_ms": -1}, (0, None)),
        ({"epoch": 2**63, "heard_ms": "1"}, (0, None)),
        ({"epoch": "7", "heard_ms": [1]}, (0, None)),
    ],
)
def test_what_a_pong_says_of_the_leader_is_bounded(said: dict[str, object], wanted: tuple[int, object]) -> None:
    message = parse_line(json.dumps({"type": "pong", "seq": 3, **said}).encode())
    assert (message["epoch"], message["heard_ms"]) == wanted

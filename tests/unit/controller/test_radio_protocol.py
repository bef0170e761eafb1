"""Readings of radios over the agents' port: what is hostile is refused, what is read is what was sent."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.access_point.model import Neighbour, PowerLineEnd, Reading
from hyroads.controller.access_point.reading_changes import interface_document
from hyroads.controller.agents.protocol import ProtocolError, encode, parse_hello, parse_line
from hyroads.controller.agents.telemetry import (
    MAX_NEIGHBOURS,
    RadioReport,
    parse_authentication,
    parse_radio,
    parse_station,
)

ROW = {
    "mac": "02:00:01:01:00:02",
    "tx_mbps": 15.2,
    "rx_mbps": None,
    "loss": 0.01,
    "signal_dbm": -61,
    "last_heard_ms": 4,
}
MESSAGE = {
    "type": "radio", "seq": None, "time_s": 17.25,
    "interfaces": [{"technology": "wifi", "busy_us": 250, "active_us": 1000, "neighbours": [ROW]},
                   {"technology": "plc", "busy_us": 0, "active_us": 0, "neighbours": []}],
}  # fmt: skip
REMOVE = object()


def read(line: bytes) -> RadioReport:
    message = parse_line(line)
    assert message["type"] == "radio"
    return parse_radio(message)


def test_a_reading_comes_in_as_it_went_out() -> None:
    reading = Reading(250, 1000, (Neighbour("02:00:01:01:00:02", "b", 15_200, 0, 0.01, -61, 4, "VHT MCS 3"),))
    document = {**MESSAGE, "seq": 9, "interfaces": [interface_document("wifi", reading)]}
    report = read(encode(document))
    assert (report.seq, report.time_s) == (9, 17.25)
    (interface,) = report.interfaces
    assert (interface.technology, interface.busy_us, interface.active_us) == ("wifi", 250, 1000)
    # No estimate is no rate of 0.
    assert interface.neighbours == (("02:00:01:01:00:02", 15.2, None, 0.01, -61, 4, None),)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("time_s",), REMOVE), (("time_s",), "1"), (("time_s",), True), (("time_s",), -1), (("seq",), 1.5),
        (("interfaces",), REMOVE), (("interfaces",), {}), (("interfaces",), [1]),
        (("interfaces",), [MESSAGE["interfaces"][0]] * 2),
        (("interfaces", 0, "technology"), ""), (("interfaces", 0, "technology"), "x" * 65),
        (("interfaces", 0, "technology"), "a\nb"), (("interfaces", 0, "busy_us"), -1),
        (("interfaces", 0, "busy_us"), 1.5), (("interfaces", 0, "busy_us"), 1 << 64),
        (("interfaces", 0, "active_us"), None), (("interfaces", 0, "neighbours"), None),
        (("interfaces", 0, "neighbours"), [ROW, ROW]), (("interfaces", 0, "neighbours"), [ROW] * (MAX_NEIGHBOURS + 1)),
        (("interfaces", 0, "neighbours", 0, "mac"), "02:00:01:01:00:0G"),
        (("interfaces", 0, "neighbours", 0, "mac"), "02:00:01:01:00:02\n"),
        (("interfaces", 0, "neighbours", 0, "mac"), "02:00:01:01:00:0A"),
        (("interfaces", 0, "neighbours", 0, "tx_mbps"), -0.1), (("interfaces", 0, "neighbours", 0, "tx_mbps"), "15"),
        (("interfaces", 0, "neighbours", 0, "rx_mbps"), 1e12), (("interfaces", 0, "neighbours", 0, "loss"), 1.1),
        (("interfaces", 0, "neighbours", 0, "loss"), None), (("interfaces", 0, "neighbours", 0, "signal_dbm"), -60.5),
        (("interfaces", 0, "neighbours", 0, "signal_dbm"), True),
        (("interfaces", 0, "neighbours", 0, "last_heard_ms"), 1 << 40),
    ],
)  # fmt: skip
def test_what_is_not_as_it_must_be_is_refused(place: tuple[str | int, ...], value: object) -> None:
    document = copy.deepcopy(MESSAGE)
    where = document
    for key in place[:-1]:
        where = where[key]  # type: ignore[index]
    if value is REMOVE:
        del where[place[-1]]  # type: ignore[arg-type]
    else:
        where[place[-1]] = value  # type: ignore[index]
    with pytest.raises(ProtocolError):
        read(encode(document))


@pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN", "1" * 5000])
def test_numbers_without_a_bound_are_refused(number: str) -> None:
    line = json.dumps(MESSAGE).replace("17.25", number).encode()
    with pytest.raises(ProtocolError):
        read(line)
    line = json.dumps(MESSAGE).replace("15.2", number).encode()
    with pytest.raises(ProtocolError):
        read(line)


_KEYS = st.sampled_from([*MESSAGE, *MESSAGE["interfaces"][0], *ROW])
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.sampled_from(["", "wifi", ROW["mac"]]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["seq", "time_s", "interfaces", "x"]), _JSON))
def test_anything_else_is_an_error_of_the_protocol(document: dict[str, object]) -> None:
    try:
        report = read(json.dumps({**document, "type": "radio"}).encode())
    except ProtocolError:
        return
    assert isinstance(report, RadioReport)


def test_a_radio_says_hello_without_a_revision() -> None:
    hello = {"type": "hello", "version": 1, "role": "radio", "node": "a", "boot": "9f", "program": "x 1", "token": None}
    assert parse_hello(parse_line(encode(hello))).role == "radio"
    with pytest.raises(ProtocolError):
        parse_line(encode({**hello, "role": "agent"}))
    with pytest.raises(ProtocolError):
        parse_line(encode({**hello, "role": "king"}))


STATION = {"type": "station", "technology": "host", "mac": "02:00:00:00:00:01", "event": "joined"}


def test_as_whom_a_station_was_authenticated() -> None:
    found = parse_station({**STATION, "user": "alice@campus", "vlan": 20})
    assert (found.user, found.vlan) == ("alice@campus", 20)
    assert parse_station(STATION)[-2:] == (None, None)
    for wrong in ({"user": ""}, {"user": "a\nb"}, {"user": "x" * 254}, {"user": 7}, {"vlan": 0}, {"vlan": 4095}):
        with pytest.raises(ProtocolError):
            parse_station({**STATION, **wrong})


def test_what_is_said_of_8021x() -> None:
    told = {"type": "dot1x", "technology": "host", "event": "rejected", "mac": "02:00:00:00:00:01", "user": None}
    assert parse_authentication(told)[1:4] == ("rejected", "02:00:00:00:00:01", None)
    silent = {"technology": "host", "event": "silent", "server": "2001:db8::1#1812"}
    assert parse_authentication(silent).server == "2001:db8::1#1812"
    for wrong in (
        {**told, "mac": None}, {**told, "user": "\x1b[2J"}, {**told, "technology": ""}, {**told, "event": "x"},
        {**silent, "server": None}, {**silent, "server": "evil\n#1"}, {**silent, "event": "joined"},
    ):  # fmt: skip
        with pytest.raises(ProtocolError):
            parse_authentication(wrong)


def test_what_is_known_of_a_power_line_comes_in_as_it_went_out() -> None:
    line = PowerLineEnd("00:0b:3b:aa:00:02", 0.0123, (17.04, 18.0))
    sent = interface_document(
        "plc", Reading(1, 2, (Neighbour("02:00:00:00:00:02", plc=line),), "", "00:0b:3b:aa:00:01")
    )
    message = {"type": "radio", "seq": None, "time_s": 1.0, "interfaces": [sent]}
    (interface,) = parse_radio(message).interfaces
    assert interface.adapter == "00:0b:3b:aa:00:01"
    assert interface.neighbours[0].plc == ("00:0b:3b:aa:00:02", 0.0123, (17.0, 18.0))
    good = sent["neighbours"][0]["plc"]
    for wrong in (
        None, [], {**good, "adapter": "x"}, {**good, "block_errors": 1.5}, {**good, "block_errors": "0"},
        {**good, "slot_ble_mbps": None}, {**good, "slot_ble_mbps": [1.0] * 7}, {**good, "slot_ble_mbps": [-1.0]},
    ):  # fmt: skip
        row = {**sent["neighbours"][0], "plc": wrong}
        with pytest.raises(ProtocolError):
            parse_radio({**message, "interfaces": [{**sent, "neighbours": [row]}]})
    with pytest.raises(ProtocolError, match="adapter"):
        parse_radio({**message, "interfaces": [{**sent, "adapter": "none"}]})


def test_source_of_busy_time_is_one_of_those_that_exist() -> None:
    sent = interface_document("plc", Reading(1, 2, (), "counters"))
    message = {"type": "radio", "seq": None, "time_s": 1.0, "interfaces": [sent]}
    assert parse_radio(message).interfaces[0].busy_source == "counters"
    for wrong in ("x", 1, None, ["sniffer"]):
        with pytest.raises(ProtocolError, match="busy_source"):
            parse_radio({**message, "interfaces": [{**sent, "busy_source": wrong}]})

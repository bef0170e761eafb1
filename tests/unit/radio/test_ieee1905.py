"""IEEE 1905.1: messages against frames written by hand, and hostile ones."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.access_point.ieee1905 import (
    MAX_FRAGMENTS,
    MAX_WAIT_S,
    MAX_WAITING,
    Joiner,
    Message,
    write_message,
)
from hyroads.controller.access_point.ieee1905_tlvs import (
    AlAddress,
    Bridging,
    DeviceInformation,
    LocalInterface,
    MessageError,
    MetricQuery,
    MetricResult,
    Neighbours,
    OtherNeighbours,
    ReceiverMetric,
    ReceiverMetrics,
    SendingInterface,
    TransmitterMetric,
    TransmitterMetrics,
    UnreadTlv,
    read_tlv,
    write_tlv,
)

A, B, C = "02:00:00:00:00:0a", "02:00:00:00:00:0b", "02:00:00:00:00:0c"
a, b, c = "02000000000a", "02000000000b", "02000000000c"

# By the tables of IEEE Std 1905.1-2013, clause 6.4.
WRITTEN = [
    (AlAddress(A), f"01 0006 {a}"),
    (SendingInterface(B), f"02 0006 {b}"),
    (
        DeviceInformation(A, (LocalInterface(B, 0x0105, b"\1\2"), LocalInterface(C, 0x0201))),
        f"03 001b {a} 02 {b} 0105 02 0102 {c} 0201 00",
    ),
    (Bridging(((A, B), (C,))), f"04 0015 02 02 {a} {b} 01 {c}"),
    (OtherNeighbours(A, (B, C)), f"06 0012 {a} {b} {c}"),
    (Neighbours(A, ((B, True), (C, False))), f"07 0014 {a} {b} 80 {c} 00"),
    (MetricQuery(A, wants_receiver=False), f"08 0008 01 {a} 00"),
    (MetricQuery(None), "08 0008 00 000000000000 02"),
    (
        TransmitterMetrics(A, B, (TransmitterMetric(A, C, 0x0201, True, 7, 1000, 90, 40, 150),)),
        f"09 0029 {a} {b} {a} {c} 0201 01 00000007 000003e8 005a 0028 0096",
    ),
    (
        ReceiverMetrics(A, B, (ReceiverMetric(A, C, 0x0105, 1, 2, 60), ReceiverMetric(A, C, 0x0201, 1, 2, None))),
        f"0a 003a {a} {b} {a} {c} 0105 00000001 00000002 3c {a} {c} 0201 00000001 00000002 ff",
    ),
    (MetricResult(0), "0c 0001 00"),
    (UnreadTlv(0x85, b"\1\2\3"), "85 0003 010203"),
]


@pytest.mark.parametrize(("tlv", "text"), WRITTEN)
def test_tlvs_are_read_and_written_as_the_standard_says(tlv, text):
    raw = bytes.fromhex(text)
    assert write_tlv(tlv) == raw
    assert read_tlv(raw[0], raw[3:]) == tlv


def test_query_for_all_neighbours_may_have_no_address():
    assert read_tlv(8, bytes.fromhex("00 01")) == MetricQuery(None, wants_transmitter=False)


@pytest.mark.parametrize("raw", [raw for _, raw in WRITTEN[:-1]])
def test_tlv_that_is_cut_or_too_long_is_refused(raw):
    kind, value = bytes.fromhex(raw)[0], bytes.fromhex(raw)[3:]
    with pytest.raises(MessageError, match=f"TLV {kind} "):
        read_tlv(kind, value[:-1])
    with pytest.raises(MessageError, match=f"TLV {kind} "):
        read_tlv(kind, value + b"\0")


def test_message_is_read_with_padding_after_its_end():
    payload = bytes.fromhex(f"00 00 0000 1234 00 80 01 0006 {a} 02 0006 {b} 00 0000") + bytes(30)
    assert Joiner().received(A, payload, 0.0) == Message(0, 0x1234, (AlAddress(A), SendingInterface(B)))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("00 00 0000", "a message of 4 bytes"),
        ("01 00 0000 0001 00 80", "message version 1"),
        (f"00 00 0000 0001 00 80 01 0007 {a}", "longer than its frame"),
        ("00 00 0000 0001 00 80 01 0001 00", "ends 5 bytes too early"),
        ("00 00 0000 0001 10 00", "fragment 16"),
    ],
)
def test_bad_message_is_refused_with_the_reason(text, why):
    with pytest.raises(MessageError, match=why):
        Joiner().received(A, bytes.fromhex(text), 0.0)


LONG = Message(6, 9, tuple(TransmitterMetrics(A, B, (TransmitterMetric(A, C, 1, False, n, 0, 0, 0, 0),) * 30)
                           for n in range(5)))  # fmt: skip


@given(st.permutations(range(5)))
def test_fragments_in_any_order_give_the_message_when_the_last_comes(order):
    parts, joiner = write_message(LONG), Joiner()
    assert len(parts) == 5 and all(len(part) <= 1500 for part in parts)
    answers = [joiner.received(A, parts[place], 0.0) for place in order]
    assert answers == [None] * 4 + [LONG]


def test_fragments_of_several_senders_are_kept_apart():
    parts, joiner = write_message(LONG), Joiner()
    for part in parts[:-1]:
        assert joiner.received(A, part, 0.0) is None
    assert joiner.received(B, parts[-1], 0.0) is None
    assert joiner.received(A, parts[-1], 0.0) == LONG


def test_missing_fragments_are_given_up_after_a_time_and_beyond_a_number():
    parts, joiner = write_message(LONG), Joiner()
    assert joiner.received(A, parts[0], 0.0) is None
    late_s = MAX_WAIT_S + 1
    assert [joiner.received(A, part, late_s) for part in parts[1:]] == [None] * 4
    crowd = Joiner()
    crowd.received(A, parts[0], 0.0)
    for n in range(MAX_WAITING):
        crowd.received(f"02:00:00:00:01:{n:02x}", parts[0], 0.0)
    assert [crowd.received(A, part, 0.0) for part in parts[1:]] == [None] * 4
    assert len(crowd._waiting) <= MAX_WAITING
    assert MAX_FRAGMENTS <= 16


def test_tlv_that_does_not_fit_into_a_frame_is_refused():
    with pytest.raises(MessageError, match="does not fit"):
        write_message(Message(3, 1, (UnreadTlv(11, bytes(1500)),)))


@given(st.lists(st.tuples(st.sampled_from([A, B]), st.binary(max_size=80)), max_size=20))
def test_no_bytes_do_more_than_raise_a_message_error(frames):
    joiner = Joiner()
    for source, payload in frames:
        with contextlib.suppress(MessageError):
            joiner.received(source, b"\0\0" + payload, 0.0)


@given(st.integers(1, 255), st.binary(max_size=120))
def test_tlv_that_is_read_is_written_to_bytes_that_read_the_same(kind, value):
    with contextlib.suppress(MessageError):
        tlv = read_tlv(kind, value)
        raw = write_tlv(tlv)
        assert read_tlv(raw[0], raw[3:]) == tlv

"""SYNs with MPTCP options, read from the first bytes of a frame."""

from __future__ import annotations

from hashlib import sha1, sha256

import mptcp_frames as frames
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.core.mptcp import SNAP_BYTES, Ends, Kind, ends, parse_syn, turned

RECORDED = [
    frames.CAPABLE, frames.CAPABLE_ANSWER, frames.CAPABLE_V6, frames.CAPABLE_V6_ANSWER,
    frames.PLAIN, frames.PLAIN_ANSWER, frames.JOIN, frames.JOIN_ANSWER,
]  # fmt: skip
KEY = bytes(range(1, 9))
TAG, OUTER_TAG = bytes.fromhex("8100a00a"), bytes.fromhex("88a80014")


def test_what_the_kernel_says():
    kinds = [(syn.kind, syn.answers) for frame in RECORDED if (syn := parse_syn(frame)) is not None]
    capable, plain, join = Kind.CAPABLE, Kind.PLAIN, Kind.JOIN
    assert kinds == [(kind, answers) for kind in (capable, capable, plain, join) for answers in (False, True)]
    first, answer, join = (parse_syn(frame) for frame in (frames.CAPABLE, frames.CAPABLE_ANSWER, frames.JOIN))
    assert first is not None and answer is not None and join is not None
    assert (first.version, first.token, first.backup) == (1, None, False)
    assert join.token == answer.token == 0xAA13A7B7
    assert (join.address_id, join.backup) == (1, True)
    assert ends(first.key) == Ends("10.9.1.1", 39572, "10.9.1.2", 5001)
    assert turned(answer.key) == first.key
    assert first.source_mac == answer.target_mac == bytes.fromhex("02aa00000101")
    sixth = parse_syn(frames.CAPABLE_V6_ANSWER)
    assert sixth is not None and ends(turned(sixth.key)) == Ends("fd00:1::1", 59106, "fd00:1::2", 5001)


def test_a_token_comes_from_a_key_which_nothing_shows():
    for version, hashed in ((1, sha256(KEY)), (0, sha1(KEY, usedforsecurity=False))):
        syn = parse_syn(frames.with_options(frames.CAPABLE_ANSWER, frames.option(version, 0x01, KEY)))
        assert syn is not None and syn.version == version
        assert syn.token == int.from_bytes(hashed.digest()[:4], "big")
        assert KEY not in b"".join(part for part in syn if isinstance(part, bytes))
        assert str(list(KEY)) not in repr(syn) and repr(KEY) not in repr(syn) and KEY.hex() not in repr(syn)
    # In version 0 the SYN has its sender's key.
    syn = parse_syn(frames.with_options(frames.CAPABLE, frames.option(0x00, 0x01, KEY)))
    assert syn is not None and syn.token == int.from_bytes(sha1(KEY, usedforsecurity=False).digest()[:4], "big")


@pytest.mark.parametrize("tags", [TAG, OUTER_TAG + TAG, bytes.fromhex("91000001") + OUTER_TAG + TAG])
@pytest.mark.parametrize("frame", RECORDED)
def test_vlan_tags_change_nothing(frame, tags):
    assert parse_syn(frame[:12] + tags + frame[12:]) == parse_syn(frame)


def test_headers_between_ipv6_and_tcp_are_skipped():
    frame = frames.CAPABLE_V6
    assert frame[20] == 6
    for kind in (0, 43, 60):
        body = bytes((6, 1)) + bytes(14)
        longer = frame[:18] + (len(frame) - 54 + 16).to_bytes(2, "big") + bytes((kind,)) + frame[21:54] + body
        assert parse_syn(longer + frame[54:]) == parse_syn(frame)


def test_what_is_no_syn():
    frame = bytearray(frames.CAPABLE)
    frame[frames.TCP + 13] = 0x10
    assert parse_syn(bytes(frame)) is None
    assert parse_syn(frames.CAPABLE[:12] + b"\x08\x06" + bytes(46)) is None
    udp = bytearray(frames.CAPABLE)
    udp[23] = 17
    assert parse_syn(bytes(udp)) is None


def kind_of(options: bytes, frame: bytes = frames.CAPABLE) -> Kind:
    syn = parse_syn(frames.with_options(frame, options))
    assert syn is not None
    return syn.kind


@pytest.mark.parametrize(
    "options",
    [
        b"\x1e",
        b"\x1e\x00\x01\x01",
        b"\x1e\x01\x01\x01",
        b"\x1e\x04\x01",
        b"\x1e\x0c\x01\x01",
        b"\x02\x00\x00\x00" + frames.capable(),
        b"\x03\x01" + frames.capable(),
        frames.option(0x01),
        frames.option(0x01, 0x01, b"1234"),
        frames.option(0x00, 0x01),
        frames.option(0x10, 1, b"tok"),
        frames.join_answer(),
        frames.capable() + frames.capable(),
        frames.capable() + frames.join(KEY),
    ],
)
def test_options_that_are_cut_short_or_contradict_themselves_are_malformed(options):
    # The last option ends where the header does: nothing is filled up.
    padding = b"\x01" * (-len(options) % 4)
    assert kind_of(padding + options) is Kind.MALFORMED


def test_options_that_a_receiver_ignores_are_plain_tcp():
    for ignored in (frames.option(0x02, 0x01), frames.option(0x01, 0x41), frames.option(0x01, 0x00)):
        assert kind_of(ignored) is Kind.PLAIN
    # ADD_ADDR has no meaning in a SYN.
    assert kind_of(frames.option(0x30, 1, bytes(4))) is Kind.PLAIN
    assert kind_of(frames.capable() + b"\x00" + b"\x1e\x00\x00") is Kind.CAPABLE


@pytest.mark.parametrize("frame", RECORDED)
def test_a_frame_that_is_cut_anywhere_is_malformed_or_nothing(frame):
    whole = parse_syn(frame)
    for size in range(len(frame)):
        syn = parse_syn(frame[:size])
        assert syn is None or syn.kind is Kind.MALFORMED
    assert parse_syn(frame + b"\xff" * 60) == whole


def test_lengths_of_ip_and_tcp_that_do_not_fit_are_malformed():
    for place, value in ((14, 0x44), (14, 0x55), (17, 30), (20, 0x20), (21, 0x01), (46, 0x40), (46, 0xF0)):
        frame = bytearray(frames.CAPABLE)
        assert frame[place] != value
        frame[place] = value
        syn = parse_syn(bytes(frame))
        assert syn is not None and syn.kind is Kind.MALFORMED, (place, value)
    for flags in (0x03, 0x06, 0x13):
        frame = bytearray(frames.CAPABLE)
        frame[frames.TCP + 13] = flags
        syn = parse_syn(bytes(frame))
        assert syn is not None and syn.kind is Kind.MALFORMED


@given(st.binary(max_size=SNAP_BYTES))
@examples(1000)
def test_garbage_never_raises(data):
    parse_syn(data)


@given(st.sampled_from(RECORDED), st.lists(st.tuples(st.integers(12, 127), st.integers(0, 255)), max_size=6))
@examples(1000)
def test_changed_bytes_never_raise_and_keys_have_two_addresses(frame, changes):
    changed = bytearray(frame)
    for place, value in changes:
        if place < len(changed):
            changed[place] = value
    syn = parse_syn(bytes(changed[:SNAP_BYTES]))
    if syn is not None and syn.kind is not Kind.MALFORMED:
        assert len(syn.key) in {12, 36} and turned(turned(syn.key)) == syn.key
        assert ends(syn.key).source == ends(turned(syn.key)).target
        assert (syn.token is None) or 0 <= syn.token < 1 << 32

"""The handshake before Ryu: a switch gets in however its bytes are cut, and nothing else is looked at."""

from __future__ import annotations

import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.core.errors import OpenFlowError
from hyroads.controller.ofp import wire
from hyroads.controller.ofp.handshake import (
    FEATURES_REQUEST,
    HELLO,
    MOST_BYTES,
    PLAIN_HELLO,
    Handshake,
    needs,
    speaks_1_3,
)

FEATURES = wire.message(struct.pack("!QIBB2xII", 0x2A, 0, 254, 0, 0x4F, 0), 2, wire.FEATURES_REPLY)
ECHO = wire.message(b"alive", 9, wire.ECHO_REQUEST)
PACKET_IN = wire.message(bytes(200), 3, wire.PACKET_IN)
NEWER = bytes((6,)) + wire.message(struct.pack("!HHI", 1, 8, 1 << 4 | 1 << 6), 5, wire.HELLO)[1:]


@given(st.lists(st.integers(0, 400), max_size=6), st.sampled_from((HELLO, PLAIN_HELLO, NEWER)))
def test_a_switch_gets_in_however_its_bytes_are_cut(cuts: list[int], hello: bytes) -> None:
    stream = hello + ECHO + PACKET_IN + FEATURES + b"what follows"
    places = sorted({0, len(stream), *(cut % len(stream) for cut in cuts)})
    handshake = Handshake()
    answers = b"".join(handshake.take(stream[a:b]) for a, b in itertools.pairwise(places) if not handshake.features)
    assert answers == FEATURES_REQUEST + ECHO[:1] + bytes((wire.ECHO_REPLY,)) + ECHO[2:]
    assert (handshake.features, handshake.dpid) == (FEATURES, 0x2A)
    assert b"what follows".startswith(handshake.rest)


@pytest.mark.parametrize(
    ("stream", "what"),
    [
        (wire.message(bytes(52), 1, 14), "expected HELLO"),
        (ECHO, "expected HELLO"),
        (b"GET / HTTP/1.1\r\n", "expected HELLO"),
        (wire.message(bytes(2000), 1, wire.HELLO), "expected HELLO"),
        (bytes((4, 0, 0, 4)) + bytes(8), "4 bytes"),
        (wire.message(struct.pack("!HHI", 1, 8, 1 << 6), 1, wire.HELLO), "1.3"),
        (bytes((1,)) + PLAIN_HELLO[1:], "1.3"),
        (HELLO + wire.message(bytes(4), 1, wire.ERROR), "error"),
        (HELLO + wire.message(bytes(4), 1, wire.FEATURES_REPLY), "FEATURES_REPLY"),
        (HELLO + wire.message(struct.pack("!QIBB2xII", 1, 0, 254, 1, 0, 0), 2, wire.FEATURES_REPLY), "auxiliary"),
        (HELLO + PACKET_IN * (MOST_BYTES // 200), "without FEATURES_REPLY"),
    ],
)
def test_anything_else_ends_the_connection(stream: bytes, what: str) -> None:
    with pytest.raises(OpenFlowError, match=what):
        Handshake().take(stream)


@given(st.binary(max_size=600), st.booleans())
def test_hostile_bytes_end_in_one_kind_of_error_or_in_features(noise: bytes, says_hello: bool) -> None:
    handshake = Handshake()
    try:
        handshake.take((HELLO if says_hello else b"") + noise)
    except OpenFlowError:
        return
    assert not handshake.features or handshake.dpid >= 0


def test_until_the_ports_are_known_only_they_are_looked_at() -> None:
    ports = wire.message(struct.pack("!HH4x", wire.MULTIPART_PORT_DESC, 0) + bytes(64), 1, wire.MULTIPART_REPLY)
    others = wire.message(struct.pack("!HH4x", wire.MULTIPART_GROUP, 0), 1, wire.MULTIPART_REPLY)
    assert all(needs(message) for message in (PLAIN_HELLO, FEATURES, ECHO, ports))
    assert not any(needs(message) for message in (PACKET_IN, others, wire.message(bytes(4), 1, wire.ERROR)))


def test_hello_with_and_without_a_bitmap() -> None:
    assert speaks_1_3(HELLO)
    assert speaks_1_3(NEWER)
    assert speaks_1_3(PLAIN_HELLO)
    assert not speaks_1_3(bytes((1,)) + PLAIN_HELLO[1:])

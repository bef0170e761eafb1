"""What is read of a switch's answers: packet-ins of any layout, and parts of replies by their head."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ryu.ofproto import ofproto_v1_3_parser as ryu_parser

from hyroads.controller.core.errors import ReadbackError
from hyroads.controller.ofp import readback, wire
from hyroads.controller.ofp.readback import PacketIn, cookie_of_packet_in, parse_packet_in, table_of
from hyroads.controller.ofp.rule import MARK_VALUE


@given(st.binary(max_size=80), st.integers(1, 0xFFFFFFFF), st.integers(0, 254), st.booleans())
def test_packet_in_of_any_length_is_read_and_none_that_is_cut(
    frame: bytes, port: int, table: int, has_metadata: bool
) -> None:
    match = ryu_parser.OFPMatch(in_port=port, **({"metadata": 7} if has_metadata else {}), eth_type=0x0806)
    # Ryu only reads packet-ins: its match is written into the layout of section 7.4.1.
    body = struct.pack("!IHBBQ", 0xFFFFFFFF, len(frame), 0, table, MARK_VALUE | 5)
    fields = bytearray()
    match.serialize(fields, 0)
    message = wire.message(body + bytes(fields) + b"\0\0" + frame, 9, wire.PACKET_IN)
    assert parse_packet_in(message) == PacketIn(port, frame)
    assert (table_of(message), cookie_of_packet_in(message)) == (table, MARK_VALUE | 5)
    whole = len(message) - len(frame)
    for size in range(whole):
        with pytest.raises(ReadbackError):
            parse_packet_in(message[:size])


OXM = st.tuples(st.integers(0x80000201, 0x8000FFFF).map(lambda n: n & ~0xFF), st.binary(max_size=40))


@given(st.lists(OXM, max_size=4), st.integers(0, 4), st.integers(0, 0xFFFFFFFF), st.binary(max_size=20))
def test_ingress_port_is_found_anywhere_in_a_match_of_any_length(
    others: list[tuple[int, bytes]], at: int, port: int, frame: bytes
) -> None:
    """The place of the frame follows from the length of the match, in steps of 8 bytes (section 7.2.3.1)."""
    fields = [(number | len(value)).to_bytes(4, "big") + value for number, value in others]
    fields.insert(at, b"\x80\0\0\4" + port.to_bytes(4, "big"))
    oxm = b"".join(fields)
    match = struct.pack("!HH", 1, 4 + len(oxm)) + oxm
    match += bytes((8 - len(match) % 8) % 8)
    body = struct.pack("!IHBBQ", 0xFFFFFFFF, len(frame), 0, 1, 0) + match
    assert parse_packet_in(wire.message(body + b"\0\0" + frame, 9, wire.PACKET_IN)) == PacketIn(port, frame)
    del fields[min(at, len(others))]
    match = wire.match_struct(b"".join(fields))
    with pytest.raises(ReadbackError):
        parse_packet_in(wire.message(body[:16] + match + b"\0\0" + frame, 9, wire.PACKET_IN))


READERS = {
    wire.MULTIPART_FLOW: readback.parse_flow_stats,
    wire.MULTIPART_GROUP_DESC: readback.parse_groups,
    wire.MULTIPART_METER_CONFIG: readback.parse_meters,
    wire.MULTIPART_PORT_STATS: readback.parse_port_stats,
}


@pytest.mark.parametrize("part", READERS)
def test_reply_is_read_by_its_version_type_part_and_length_alone(part: int) -> None:
    read = READERS[part]
    for flags, expected in ((0, False), (1, True), (2, False), (0xFFFE, False), (0xFFFF, True)):
        found, more = read(wire.message(struct.pack("!HH4x", part, flags), 1, wire.MULTIPART_REPLY))
        assert (len(found), more) == (0, expected)
    good = wire.message(struct.pack("!HH4x", part, 0), 1, wire.MULTIPART_REPLY)
    wrong = [good[:8] + struct.pack("!H", other) + good[10:] for other in (*range(16), 0xFFFF) if other != part]
    wrong += [good[:15], good[:8], good + b"\0", b"\x05" + good[1:], good[:1] + b"\x12" + good[2:]]
    wrong.append(good[:3] + b"\x18" + good[4:])
    for message in wrong:
        with pytest.raises(ReadbackError):
            read(message)

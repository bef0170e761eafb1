"""Packet-ins and packet-outs: whose they are, what a guest sees, and that no frame leaves its slice."""

from __future__ import annotations

import struct
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hyroads.controller.ofp import guard, wire
from hyroads.controller.ofp import match as act
from hyroads.slices.core import classifier
from hyroads.slices.core.allocation import Block
from hyroads.slices.core.classifier import ClassifierEntry, at_port, discovery_mac
from hyroads.slices.core.errors import Refused, SliceError
from hyroads.slices.core.match import ALL, completed, describe, of_fields
from hyroads.slices.proxy import discovery
from hyroads.slices.proxy.flow_mod import translate
from hyroads.slices.proxy.frames import header_of
from hyroads.slices.proxy.guest_view import GuestView, IdMap, NumberPool
from hyroads.slices.proxy.packets import owner_outside_blocks, packet_in, packet_out
from hyroads.slices.proxy.region import NOBODY, Regions
from hyroads.slices.proxy.xids import MOST, Buffers

MINE, OTHER, PRODUCTION = Block(2, 10, 4), Block(3, 20, 4), Block(1, 1, 4)
ENTRIES = [
    ClassifierEntry(50, at_port(ALL, 4), OTHER),
    *(ClassifierEntry(40, match, MINE) for match in completed({"tcp_dst": 80})),
    *(ClassifierEntry(40, match, OTHER) for match in completed({"tcp_dst": 81})),
    ClassifierEntry(0, ALL, PRODUCTION),
]
REGIONS = Regions(ENTRIES)
KEY = b"k" * 32


def view() -> GuestView:
    pool = NumberPool(1, 1000)
    return GuestView(MINE, frozenset({1, 2, 3}), REGIONS, IdMap(pool, 9), IdMap(pool, 9))


def tcp(port: int, vlan: int | None = None, version: int = 4) -> bytes:
    tag = b"" if vlan is None else struct.pack("!HH", 0x8100, vlan)
    upper = struct.pack("!HH8xB7x", 1000, port, 0x50)
    if version == 4:
        kind = 0x0800
        ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0xB8, 40, 1, 0, 64, 6, 0, bytes((10, 0, 0, 1)), bytes((10, 0, 0, 2)))
    else:
        kind, ip = 0x86DD, struct.pack("!IHBB", 0x60012345, 20, 6, 64) + bytes(15) + b"\1" + bytes(15) + b"\2"
    return bytes.fromhex("020000000002020000000001") + tag + struct.pack("!H", kind) + ip + upper


LLDP = bytes.fromhex("0180c200000e 020000000001 88cc 0207 04 020000000001 0403 02 0001 0602 0078 0000".replace(" ", ""))


def text(frame: bytes) -> dict[str, str]:
    return dict(part.split("=") for part in describe(header_of(frame)).split(", "))


def test_headers_of_frames() -> None:
    assert text(tcp(80)) == {
        "eth_dst": "02:00:00:00:00:02", "eth_src": "02:00:00:00:00:01", "eth_type": "0x0800", "vlan_vid": "none",
        "ip_dscp": "46", "ip_ecn": "0", "ip_proto": "6", "ipv4_src": "10.0.0.1", "ipv4_dst": "10.0.0.2",
        "tcp_src": "1000", "tcp_dst": "80",
    }  # fmt: skip
    six = text(tcp(80, 0x6005, 6))
    assert (six["vlan_vid"], six["vlan_pcp"], six["ipv6_flabel"], six["ipv6_dst"], six["tcp_dst"]) == (
        "5", "3", "0x12345", "::2", "80",
    )  # fmt: skip
    arp = bytes.fromhex("ffffffffffff020000000001" + "0806" + "0001080006040001" + "020000000001" + "0a000001")
    assert text(arp + bytes(6) + bytes((10, 0, 0, 2)))["arp_tpa"] == "10.0.0.2"
    mpls = bytes.fromhex("020000000002020000000001" + "8847" + "00064b40")
    assert {k: v for k, v in text(mpls).items() if "mpls" in k} == {
        "mpls_label": "100", "mpls_tc": "5", "mpls_bos": "1",
    }  # fmt: skip
    later = bytearray(tcp(80))
    later[20:22] = b"\x00\x01"
    assert "tcp_dst" not in text(bytes(later)), "a later fragment has no ports of its own"
    assert text(LLDP)["eth_type"] == "0x88cc"
    assert text(bytes(12) + b"\x00\x20" + b"BBc" + bytes(35))["eth_type"] == "0x05ff"


@settings(deadline=None)
@given(st.binary(max_size=120), st.sampled_from([b"\x08\x00", b"\x86\xdd", b"\x08\x06", b"\x88\x47", b"\x81\x00"]))
def test_any_bytes_have_a_header_that_could_be_a_rule(noise: bytes, kind: bytes) -> None:
    found = header_of((noise[:12] + bytes(12))[:12] + kind + noise[12:])
    assert classifier.decode(classifier.encode(found)) == found


def packet_in_message(data: bytes, fields: dict, table: int, buffer: int = 0xFFFFFFFF, total: int = 0) -> bytes:
    match = wire.match_struct(classifier.encode(of_fields(fields)))
    body = struct.pack("!IHBBQ", buffer, total or len(data), 1, table, 77) + match + b"\0\0" + data
    return wire.message(body, 0, 10)


def test_a_packet_in_has_the_guests_table_and_no_metadata() -> None:
    message = packet_in_message(tcp(80), {"in_port": 2, "metadata": 2 << 48}, 12)
    found = packet_in(message, view(), KEY, 0)
    assert found == packet_in_message(tcp(80), {"in_port": 2}, 2)
    message = packet_in_message(tcp(80), {"in_port": 2, "metadata": 2 << 48 | 9}, 10)
    assert packet_in(message, view(), KEY, 0) == packet_in_message(tcp(80), {"in_port": 2, "metadata": 9}, 0)
    assert packet_in(packet_in_message(tcp(80), {"in_port": 4}, 10), view(), KEY, 0) is None, "not its port"
    with pytest.raises(SliceError):
        packet_in(packet_in_message(tcp(80), {"in_port": 2}, 20), view(), KEY, 0)


@pytest.mark.parametrize(("frame", "port", "owner"), [(tcp(80), 1, 2), (tcp(81), 1, 3), (tcp(80), 4, 3), (LLDP, 1, 1)])
def test_a_packet_in_of_no_block_belongs_to_the_owner_of_the_flowspace(frame: bytes, port: int, owner: int) -> None:
    assert owner_outside_blocks(packet_in_message(frame, {"in_port": port}, 0), REGIONS) == owner


def test_a_packet_in_with_the_beginning_of_a_frame_belongs_to_whom_it_surely_is() -> None:
    def owner(size: int, port: int = 80) -> int:
        return owner_outside_blocks(packet_in_message(tcp(port)[:size], {"in_port": 1}, 0, total=54), REGIONS)

    assert [owner(size) for size in (54, 53, 34, 20, 14, 12)] == [2, NOBODY, NOBODY, NOBODY, NOBODY, NOBODY]
    assert owner(54, 82) == PRODUCTION.number
    assert (
        owner_outside_blocks(packet_in_message(LLDP[:14], {"in_port": 1}, 0, total=900), REGIONS) == PRODUCTION.number
    )


def output(*ports: int) -> bytes:
    return b"".join(struct.pack("!HHIH6x", 0, 16, port, 0) for port in ports)


SET_PORT_81 = struct.pack("!HHIH6x", 25, 16, 0x80001C02, 81)
SET_PORT_80 = struct.pack("!HHIH6x", 25, 16, 0x80001C02, 80)
CONTROLLER, FLOOD, TABLE, IN_PORT = 0xFFFFFFFD, 0xFFFFFFFB, 0xFFFFFFF9, 0xFFFFFFF8


def out(actions: bytes, data: bytes, in_port: int = CONTROLLER, buffer: int = 0xFFFFFFFF) -> bytes:
    body = struct.pack("!IIH6x", buffer, in_port, len(actions)) + actions + data
    return wire.message(body, 55, 13)


def test_frames_of_the_slice_pass_unchanged() -> None:
    for actions in (output(1), output(1, 2), output(TABLE), SET_PORT_80 + output(3), b"", output(CONTROLLER)):
        message = out(actions, tcp(80))
        assert packet_out(message, view(), Buffers(), KEY, 0) == message
    message = out(SET_PORT_80 + output(3), tcp(81))
    assert packet_out(message, view(), Buffers(), KEY, 0) == message, "what leaves counts"
    assert packet_out(out(output(IN_PORT), tcp(80), 2), view(), Buffers(), KEY, 0)[28:32] == b"\xff\xff\xff\xf8"


def test_flood_goes_to_the_slices_ports_only() -> None:
    found = packet_out(out(output(FLOOD), tcp(80), 2), view(), Buffers(), KEY, 0)
    assert found == out(output(1, 3), tcp(80), 2)
    assert packet_out(out(output(FLOOD), tcp(81)), view(), Buffers(), KEY, 0) == out(b"", tcp(81))


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (out(output(1), tcp(81)), (2, 6)),
        (out(output(1), LLDP[:-2]), (2, 6)),
        (out(SET_PORT_81 + output(1), tcp(80)), (2, 6)),
        (out(output(4), tcp(80)), (2, 4)),
        (out(output(TABLE), tcp(81), 2), (2, 6)),
        (out(output(IN_PORT), tcp(81), 2), (2, 6)),
        (out(output(CONTROLLER), tcp(81), 2), (2, 6)),
        (out(output(1), tcp(80), 4), (1, 11)),
        (out(output(1), tcp(80), buffer=5), (1, 8)),
        (out(output(0xFFFFFFFA), tcp(80)), (2, 4)),
        (out(struct.pack("!HHI", 22, 8, 1), tcp(80)), (2, 9)),
        (out(output(1), tcp(80))[:28], (1, 6)),
        (out(output(TABLE), LLDP), (2, 6)),
        (out(output(4), LLDP), (2, 4)),
        (out(SET_PORT_80 + output(FLOOD), LLDP), (2, 6)),
        (out(output(1), LLDP, buffer=5), (1, 8)),
        (out(output(IN_PORT), LLDP, 1), (2, 6)),
    ],
)
def test_what_is_not_the_slices_is_refused(message: bytes, error: tuple[int, int]) -> None:
    with pytest.raises(Refused) as caught:
        packet_out(wire.message(message[8:], 1, 13), view(), Buffers(), KEY, 0)
    assert (caught.value.kind, caught.value.code) == error


def altered(at: int, data: bytes, port: int = 80, version: int = 4) -> bytes:
    frame = tcp(port, None, version)
    return frame[:at] + data + frame[at + len(data) :]


SECOND_TAG = tcp(80, 5)[:14] + b"\0\5\x81\0" + tcp(80, 5)[14:]
SNAP = tcp(80)[:12] + b"\0\x30\xaa\xaa\3\0\0\0" + tcp(80)[12:]
OPTIONS = altered(18, struct.pack("!HB", 20 + 72, 60), version=6)[:54] + (b"\x3c" + bytes(7)) * 8 + b"\6" + bytes(7)
UNUSUAL = {
    "a second tag": SECOND_TAG,
    "an outer tag of 802.1ad": SECOND_TAG[:12] + b"\x88\xa8" + SECOND_TAG[14:],
    "SNAP": SNAP,
    "a tag and SNAP": SNAP[:12] + b"\x81\0\0\5" + SNAP[12:],
    "a total length beyond the frame": altered(16, b"\0\x29"),
    "a total length of less than its headers": altered(16, b"\0\x27"),
    "a header of four words": altered(14, b"\x44"),
    "a first fragment": altered(20, b"\x20\0"),
    "a later fragment": altered(20, b"\0\1"),
    "a TCP header that is too short": altered(46, b"\x40"),
    "nine option headers": OPTIONS + tcp(80, None, 6)[54:],
    "a payload length beyond the frame": altered(18, b"\0\x15", version=6),
    "half a tag": tcp(80, 5)[:16],
    "half an address": tcp(80)[:10],
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_an_unusual_frame_is_the_slices_only_where_it_owns_all(name: str) -> None:
    frame = UNUSUAL[name]
    for actions in (output(1), SET_PORT_80 + output(1), output(TABLE)):
        with pytest.raises(Refused):
            packet_out(out(actions, frame, 1), view(), Buffers(), KEY, 0)
    everything = [ClassifierEntry(50, at_port(ALL, 1), MINE), *ENTRIES]
    mine = view()
    mine.regions = Regions(everything)
    assert packet_out(out(output(1), frame), mine, Buffers(), KEY, 0) == out(output(1), frame)


def rule(actions: bytes, data: bytes, entries: dict[int, dict]) -> None:
    """A packet-out at a port with these matches: priority 40 is the slice's, others' have others."""
    mine = view()
    mine.regions = Regions(
        ClassifierEntry(priority, of_fields(match), MINE if priority == 40 else OTHER)
        for priority, match in sorted(entries.items(), reverse=True)
    )
    packet_out(out(actions, data), mine, Buffers(), KEY, 0)


def act16(kind: int, value: int) -> bytes:
    return struct.pack("!HHHxx", kind, 8, value)


MPLS = tcp(80)[:12] + b"\x88\x47" + struct.pack("!I", 16 << 12 | 1 << 8 | 64) + tcp(80)[14:]
ARP = (
    bytes.fromhex("ffffffffffff0200000000010806000108000604000202000000000a0a000001") + bytes(6) + bytes((10, 0, 0, 2))
)
SET_OPERATION_0 = struct.pack("!HHIH6x", 25, 16, 0x80002A02, 0)
SET_TARGET = struct.pack("!HHII4x", 25, 16, 0x80002E04, 0x0A090909)
ARP_MINE = {40: {"eth_type": 0x0806, "arp_tpa": 0x0A090909}, 30: {}}


def test_tags_that_come_up_or_are_put_on_twice_are_read_in_different_ways() -> None:
    theirs = {50: {"vlan_vid": 0x10C8}, 40: {}}
    rule(act16(20, 0x0800) + output(1), MPLS, theirs)
    for eth_type in (0x8100, 0x88A8, 0x20):
        with pytest.raises(Refused):
            rule(act16(20, eth_type) + output(1), MPLS, theirs)
    tcp_is_mine = {40: {"vlan_vid": (0x1000, 0x1000), "eth_type": 0x0800}, 30: {}}
    rule(act16(17, 0x8100) + output(1), tcp(80), tcp_is_mine)
    with pytest.raises(Refused):
        rule(act16(17, 0x8100) + output(1), tcp(80, 5), tcp_is_mine)


def test_what_open_vswitch_leaves_as_it_was_is_not_taken_for_rewritten() -> None:
    rule(SET_TARGET + output(1), ARP, ARP_MINE)
    for actions, frame in (
        (SET_OPERATION_0 + SET_TARGET, ARP),
        (SET_TARGET + SET_OPERATION_0, ARP),
        (SET_TARGET, ARP[:15] + b"\6" + ARP[16:]),
        (SET_TARGET, ARP[:21] + b"\0" + ARP[22:]),
    ):
        with pytest.raises(Refused):
            rule(actions + output(1), frame, ARP_MINE)


def test_frames_leave_by_the_slices_queue() -> None:
    mine, queue = view(), struct.pack("!HHI", 21, 8, 7)
    mine.queue = 7
    for frame in (tcp(80), LLDP):
        found = packet_out(out(output(2) + output(1), frame), mine, Buffers(), KEY, 0)
        assert found[24:72] == queue + output(2) + queue + output(1)
        found = packet_out(out(output(FLOOD), frame), mine, Buffers(), KEY, 0)
        assert found[16:18] == b"\0\x38" and found[24:80] == queue + output(1, 2, 3)
        assert len(found) == int.from_bytes(found[2:4], "big")
    assert packet_out(out(output(TABLE), tcp(80), 2), mine, Buffers(), KEY, 0)[24:40] == output(TABLE)


def test_longest_packet_out_passes_unless_the_queue_makes_it_longer() -> None:
    short = out(output(1), tcp(80))
    longest, queued = out(output(1), tcp(80) + bytes(0xFFFF - len(short))), view()
    assert packet_out(longest, view(), Buffers(), KEY, 0) == longest
    queued.queue = 7
    with pytest.raises(Refused):
        packet_out(longest, queued, Buffers(), KEY, 0)


def test_a_group_takes_only_frames_with_an_ingress_port() -> None:
    mine = view()
    real = mine.groups.add(1) or 0
    action = struct.pack("!HHI", 22, 8, 1)
    with pytest.raises(Refused):
        packet_out(out(action, tcp(80)), mine, Buffers(), KEY, 0)
    for frame in (tcp(81), LLDP):
        with pytest.raises(Refused):
            packet_out(out(action, frame, 1), mine, Buffers(), KEY, 0)
    assert packet_out(out(action, tcp(80), 1), mine, Buffers(), KEY, 0)[24:32] == struct.pack("!HHI", 22, 8, real)


def test_buffers_belong_to_who_was_told_of_them_once_and_for_a_while() -> None:
    buffers = Buffers()
    buffers.tell(5, 2, now_s=0)
    buffers.tell(6, 3, now_s=0)
    buffers.tell(7, 2, now_s=0)
    assert not buffers.take(6, 2, 1) and buffers.take(5, 2, 1) and not buffers.take(5, 2, 1)
    assert not buffers.take(7, 2, 31), "forgotten"
    for number in range(MOST + 100):
        buffers.tell(number, 2, 40)
    assert len(buffers) == MOST
    buffers.tell(9000, 2, 40)
    assert packet_out(out(output(1), b"", 2, 9000), view(), buffers, KEY, 41)[8:12] == (9000).to_bytes(4, "big")


BDDP = b"\xff" * 6 + LLDP[6:12] + b"\x89\x42" + LLDP[14:]


def marked(frame: bytes, number: int = 2, now_s: float = 0) -> bytes:
    found = discovery.mark(frame, number, KEY, now_s)
    assert found is not None
    return found.frame


def arrives(frame: bytes, mine: GuestView, port: int = 3, table: int = 0, now_s: float = 0) -> bytes | None:
    return packet_in(packet_in_message(frame, {"in_port": port}, table), mine, KEY, now_s)


@pytest.mark.parametrize("frame", [LLDP, BDDP])
def test_discovery_frames_travel_marked_and_arrive_as_they_were(frame: bytes) -> None:
    sent = packet_out(out(output(1), frame), view(), Buffers(), KEY, 0)
    travelling = sent[24 + 16 :]
    assert travelling[6:12] == discovery_mac(2).to_bytes(6, "big") != frame[6:12]
    mine, rule = view(), of_fields({"eth_type": int.from_bytes(frame[12:14], "big")})
    for cookie in ((1 << 64) - 1, 0xFA):
        found = arrives(travelling + bytes(max(0, 60 - len(travelling))), mine, 3 if cookie == 0xFA else 2)
        assert found is not None
        guard.check(found)
        assert found[14:16] == b"\1\0" and struct.unpack_from("!Q", found, 16) == (cookie,)
        assert found[42:].startswith(frame) and not found[42 + len(frame) :].strip(b"\0")
        assert int.from_bytes(found[12:14], "big") == len(found) - 42, "the length of the frame as it was sent"
        # From the second time on the guest has a rule for them.
        body = wire.flow_mod_body(wire.ADD, 0, 9, classifier.encode(rule), cookie=0xFA)
        translate(wire.message(body, 1), mine)
    assert packet_out(out(output(FLOOD), frame), view(), Buffers(), KEY, 0)[24:72] == output(1, 2, 3)


@pytest.mark.parametrize(("size", "fits"), [(1482, True), (1486, True), (1487, False), (1514, False)])
def test_discovery_frame_is_marked_if_the_mark_fits_the_longest_frame(size: int, fits: bool) -> None:
    """A mark is a TLV of 28 bytes: 2 of its head, 4 that name the slicer, 6 of the source, 8 of time, 8 of proof."""
    frame = LLDP + bytes(size - len(LLDP))
    found = discovery.mark(frame, 2, KEY, 0)
    assert (found is not None) is fits
    assert found is None or len(found.frame) == size + 28 <= 1514


@given(
    st.lists(st.tuples(st.integers(1, 127), st.binary(max_size=20)), max_size=5),
    st.none() | st.integers(0, 511),
    st.binary(max_size=20),
)
def test_mark_is_put_before_the_end_of_the_list_and_taken_out_again(
    tlvs: list[tuple[int, bytes]], end: int | None, rest: bytes
) -> None:
    """The TLV of type 0 ends a list whatever length it has; a list without one is none."""
    body = b"".join((kind << 9 | len(value)).to_bytes(2, "big") + value for kind, value in tlvs)
    frame = LLDP[:14] + body + (b"" if end is None else end.to_bytes(2, "big") + rest)
    found = discovery.mark(frame, 2, KEY, 7)
    if end is None:
        assert found is None
        return
    assert found is not None
    assert found.frame[:6] + found.frame[12 : 14 + len(body)] == frame[:6] + frame[12 : 14 + len(body)]
    assert found.frame[14 + len(body) + 28 :] == end.to_bytes(2, "big") + rest
    assert discovery.unmark(found.frame, 2, KEY, 7) == (frame, found.proof)
    assert discovery.unmark(found.frame, 3, KEY, 7) is discovery.unmark(found.frame, 2, b"x" * 32, 7) is None


GROUP_1 = struct.pack("!HHI", 22, 8, 1)
SET_DST = struct.pack("!HHIIHH", 25, 16, 0x80000606, 0x02000000, 9, 0)


@pytest.mark.parametrize(
    ("actions", "frame", "in_port", "code"),
    [
        (GROUP_1, LLDP, 1, 9), (GROUP_1, tcp(80), CONTROLLER, 9), (GROUP_1, tcp(81), 1, 6),
        (output(TABLE), LLDP, 1, 6), (output(CONTROLLER), LLDP, 1, 6), (output(IN_PORT), LLDP, 1, 6),
        (SET_DST + output(1), LLDP, 1, 6), (SET_DST + output(FLOOD), LLDP, 1, 6), (output(4), LLDP, 1, 4),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_packet_out_is_named_by_its_code(
    actions: bytes, frame: bytes, in_port: int, code: int
) -> None:
    mine = view()
    mine.groups.add(1)
    with pytest.raises(Refused) as caught:
        packet_out(out(actions, frame, in_port), mine, Buffers(), KEY, 0)
    assert (caught.value.kind, caught.value.code) == (2, code)


def tagged(frame: bytes, *kinds: int) -> bytes:
    return frame[:12] + b"".join(struct.pack("!HH", kind, 100) for kind in kinds) + frame[12:]


def test_forged_marks_are_dropped() -> None:
    genuine = marked(LLDP)
    assert arrives(genuine, view()) is not None
    assert discovery.unmark(genuine, 2, b"x" * 32, 0) is None
    other = marked(LLDP, 3)
    forged = [other, other[:6] + genuine[6:12] + other[12:], LLDP[:6] + genuine[6:12] + LLDP[12:], genuine[:40]]
    # The TLV ends where the list ends; what follows is padding.
    for at in (*range(6), *range(10, len(genuine) - 2)):
        forged.append(genuine[:at] + bytes((genuine[at] ^ 1,)) + genuine[at + 1 :])
    for frame in (*forged, genuine):
        forged += [tagged(frame, 0x8100), tagged(frame, 0x88A8, 0x8100), tagged(frame, 0x8100, 0x8100)]
    forged += [
        each[:12] + struct.pack("!H3sH3s", 60, b"\xaa\xaa\3", 0, b"\0" + each[12:14]) + each[14:] for each in forged
    ]
    for frame in forged:
        assert arrives(frame, view()) is None and arrives(frame, view(), table=10) is None
    assert arrives(genuine, view(), table=12) is None, "the classifier leads no genuine one into a block"


def test_a_genuine_mark_counts_once_at_a_port_and_for_a_short_time() -> None:
    mine, genuine = view(), marked(LLDP, now_s=100)
    assert arrives(genuine, mine, 2, now_s=100.2) and not arrives(genuine, mine, 2, now_s=100.3)
    assert not arrives(genuine + bytes(20), mine, 2, now_s=100.3), "padding makes no other frame of it"
    assert arrives(genuine, mine, 3, now_s=104.9), "as by a hub"
    assert not arrives(genuine, mine, 4, now_s=100.2), "not its port"
    late = view()
    assert not arrives(genuine, late, 2, now_s=105.1) and not arrives(genuine, late, 2, now_s=99.9)
    for now in range(200, 3000):
        assert arrives(marked(LLDP, now_s=now), mine, 2, now_s=now)
    assert len(mine.arrivals) < 20
    for now in range(discovery.MOST_ARRIVALS + 10):
        assert arrives(marked(LLDP, now_s=9000 + now / 10000), mine, 2, now_s=9001)
    assert len(mine.arrivals) == discovery.MOST_ARRIVALS


@pytest.mark.parametrize(("actions", "ports"), [(output(1), {1}), (output(FLOOD), {1, 2, 3}), (output(3, 1), {1, 3})])
def test_a_host_that_sends_a_discovery_frame_back_makes_no_link_of_it(actions: bytes, ports: set[int]) -> None:
    mine = view()
    sent = packet_out(out(actions, LLDP), mine, Buffers(), KEY, 5)[-len(marked(LLDP)) :]
    assert {port for port in (1, 2, 3) if arrives(sent, mine, port, now_s=5.001)} == {1, 2, 3} - ports
    assert all(arrives(sent, view(), port, now_s=5.001) for port in (1, 2, 3)), "another switch hears it"


@settings(deadline=None)
@given(st.binary(max_size=200), st.integers(0, 200))
def test_hostile_discovery_frames_end(noise: bytes, at: int) -> None:
    frame = LLDP[:14] + noise
    found = discovery.mark(frame, 2, KEY, 0)
    assert found is None or discovery.unmark(found.frame, 2, KEY, 0) == (frame, found.proof)
    genuine = marked(LLDP)
    for hostile in (
        frame,
        genuine[:6] + genuine[6:12] + noise,
        genuine[:at] + noise,
        genuine[:at] + noise + genuine[at:],
    ):
        if not hostile.startswith(genuine):
            assert discovery.unmark(hostile, 2, KEY, 0) is None
            assert hostile[6:10] != discovery.MARK or arrives(hostile, view()) is None


@pytest.mark.parametrize("number", [1, 2, 3, 65535])
@pytest.mark.parametrize("kind", [0x88CC, 0x8942, 0x0800, 0x8847, 0x0026])
@pytest.mark.parametrize("actions", [output(1), output(TABLE), output(CONTROLLER), output(FLOOD), b""])
def test_no_packet_out_has_a_mark_that_is_not_ours(number: int, kind: int, actions: bytes) -> None:
    """Whatever the frame is, wherever it goes: a tag, a unicast destination, a list of TLVs without an end."""
    whole = Regions([ClassifierEntry(50, ALL, MINE)])
    source = discovery_mac(number).to_bytes(6, "big")
    for destination, tags, rest in product(
        (LLDP[:6], b"\2" * 6), ((), (0x8100,), (0x8100, 0x8100)), (LLDP[14:], b"\2\7")
    ):
        frame = tagged(destination + source + struct.pack("!H", kind) + rest, *tags)
        mine = view()
        mine.regions = whole
        if discovery.mark(frame, 2, KEY, 0) is not None and actions in (output(1), output(FLOOD), b""):
            found = packet_out(out(actions, frame), mine, Buffers(), KEY, 0)
            assert discovery_mac(2).to_bytes(6, "big") in found, "it leaves with the slice's own mark"
            continue
        for in_port in (CONTROLLER, 1):
            with pytest.raises(Refused) as caught:
                packet_out(out(actions, frame, in_port), mine, Buffers(), KEY, 0)
            assert (caught.value.kind, caught.value.code) == (2, 6)


@pytest.mark.parametrize("destination", [b"\2\0\0\0\0\3", b"\0\1\0\0\0\3"])
def test_a_discovery_frame_to_a_host_is_an_ordinary_frame(destination: bytes) -> None:
    frame = destination + LLDP[6:]
    with pytest.raises(Refused):
        packet_out(out(output(1), frame), view(), Buffers(), KEY, 0)
    mine = view()
    mine.regions = Regions([ClassifierEntry(50, ALL, MINE)])
    assert packet_out(out(output(1), frame), mine, Buffers(), KEY, 0) == out(output(1), frame), "unmarked"


def test_our_own_packet_out_is_one() -> None:
    actions = wire.actions((act.Output(2),))
    message = out(actions, tcp(80))
    assert packet_out(message, view(), Buffers(), KEY, 0) == message

"""Flow-mods, groups and meters of guests: what reaches the switch, and what is refused with which error."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.ofp import match as act
from hyroads.controller.ofp import wire
from hyroads.controller.ofp.match import Match
from hyroads.slices.core import classifier
from hyroads.slices.core.allocation import Block
from hyroads.slices.core.classifier import ClassifierEntry, at_port, discovery_mac
from hyroads.slices.core.errors import Refused, SliceError
from hyroads.slices.core.match import ALL, of_fields
from hyroads.slices.proxy.actions import queued
from hyroads.slices.proxy.flow_mod import NO_SUCH_GROUP, translate
from hyroads.slices.proxy.group_mod import flood_buckets, translate_group_mod, translate_meter_mod
from hyroads.slices.proxy.guest_view import GuestView, IdMap, NumberPool
from hyroads.slices.proxy.packets import packet_out
from hyroads.slices.proxy.readback import guest_buckets, guest_instructions
from hyroads.slices.proxy.region import Regions
from hyroads.slices.proxy.xids import Buffers

MINE, OTHER, PRODUCTION = Block(2, 10, 4), Block(3, 20, 4), Block(1, 1, 4)
VLAN100, VLAN200 = of_fields({"vlan_vid": 0x1064}), of_fields({"vlan_vid": 0x10C8})
# Port 1 is all mine; at ports 2 and 3 VLAN 100 is mine and VLAN 200 the other's; port 4 is the other's.
ENTRIES = [
    ClassifierEntry(50, at_port(ALL, 1), MINE),
    ClassifierEntry(50, at_port(ALL, 4), OTHER),
    *(
        ClassifierEntry(40, at_port(match, port), who)
        for port in (2, 3)
        for match, who in ((VLAN100, MINE), (VLAN200, OTHER))
    ),
    ClassifierEntry(0, ALL, PRODUCTION),
]


def guest(ports: tuple[int, ...] = (1, 2, 3)) -> GuestView:
    return GuestView(
        MINE, frozenset(ports), Regions(ENTRIES), IdMap(NumberPool(1, 1000), 3), IdMap(NumberPool(1, 1000), 2)
    )


def action(kind: int, body: bytes) -> bytes:
    body += b"\0" * (-(4 + len(body)) % 8)
    return struct.pack("!HH", kind, 4 + len(body)) + body


def output(port: int) -> bytes:
    return wire.actions((act.Output(port),))


def set_field(name: str, value: int) -> bytes:
    [(field, value, mask)] = [(f, value, f.ones) for f in classifier.FIELDS if f.name == name]
    return action(25, classifier.field_bytes(field, value, mask))


PUSH_VLAN = action(17, struct.pack("!H", 0x8100))
POP_VLAN = action(18, b"\0" * 4)
SET_VLAN100 = PUSH_VLAN + set_field("vlan_vid", 0x1064)


def apply(*actions: bytes) -> bytes:
    body = b"".join(actions)
    return struct.pack("!HH4x", 4, 8 + len(body)) + body


def write(*actions: bytes) -> bytes:
    body = b"".join(actions)
    return struct.pack("!HH4x", 3, 8 + len(body)) + body


def goto(table: int) -> bytes:
    return struct.pack("!HHB3x", 1, 8, table)


def group(number: int) -> bytes:
    return action(22, struct.pack("!I", number))


def flow_mod(instructions: bytes = b"", fields: bytes = b"", **more: int) -> bytes:
    head = {
        "cookie": 7, "mask": 0, "table": 0, "command": 0, "idle": 3, "hard": 4, "priority": 5,
        "buffer": 0xFFFFFFFF, "out_port": 0xFFFFFFFF, "out_group": 0xFFFFFFFF, "flags": 1,
    } | more  # fmt: skip
    body = struct.pack("!QQBBHHHIIIH2x", *head.values()) + wire.match_struct(fields) + instructions
    return wire.message(body, 99)


def oxm_of(**fields: int | tuple[int, int]) -> bytes:
    return classifier.encode(of_fields(fields))


def refused(message: bytes, view: GuestView | None = None) -> tuple[int, int]:
    with pytest.raises(Refused) as caught:
        translate(message, view or guest())
    answer = caught.value.message(message)
    version, kind, length, xid, what, code = struct.unpack_from("!BBHIHH", answer)
    assert (version, kind, length, xid) == (4, 1, len(answer), 99) and answer[12:] == message[:64]
    return what, code


def test_a_plain_rule_changes_its_table_only() -> None:
    message = flow_mod(apply(output(2)) + goto(3), oxm_of(in_port=3, eth_dst=5), table=1)
    [found] = translate(message, guest())
    expected = bytearray(message)
    expected[24] = 11
    expected[-4] = 13
    assert found == bytes(expected)


def test_deletes_of_all_tables_stay_in_the_block() -> None:
    found = translate(flow_mod(command=3, table=0xFF, mask=0xFF), guest())
    assert [message[24] for message in found] == [10, 11, 12, 13]
    assert {message[:24] + message[25:] for message in found} == {found[0][:24] + found[0][25:]}


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (flow_mod(table=4), (5, 2)),
        (flow_mod(table=0xFF), (5, 2)),
        (flow_mod(table=4, command=3), (5, 2)),
        (flow_mod(command=5), (5, 6)),
        (flow_mod(flags=0x20), (5, 7)),
        (flow_mod(command=3, flags=0xFF00), (5, 7)),
        (flow_mod(fields=oxm_of(in_port=4)), (4, 7)),
        (flow_mod(fields=oxm_of(metadata=1 << 50)), (4, 7)),
        (flow_mod(fields=bytes.fromhex("80001a020050")), (4, 9)),
        (flow_mod(fields=bytes.fromhex("0001000400000001")), (4, 6)),
        (flow_mod(goto(0)), (3, 2)),
        (flow_mod(goto(4)), (3, 2)),
        (flow_mod(goto(1), table=1), (3, 2)),
        (flow_mod(goto(1) + goto(2)), (3, 1)),
        (flow_mod(apply(output(1)) + apply(output(1))), (3, 1)),
        (flow_mod(struct.pack("!HH4x", 1, 0)), (3, 7)),
        (flow_mod(struct.pack("!HH4x", 9, 8)), (3, 0)),
        (flow_mod(struct.pack("!HHI", 0xFFFF, 8, 1)), (3, 5)),
        (flow_mod(struct.pack("!HHI", 6, 8, 1)), (5, 0)),
        (flow_mod(struct.pack("!HH4xQQ", 2, 24, 1 << 48, 1 << 48)), (3, 3)),
        (flow_mod(apply(output(4))), (2, 4)),
        (flow_mod(apply(output(9))), (2, 4)),
        (flow_mod(apply(output(0xFFFFFFFA))), (2, 4)),  # NORMAL
        (flow_mod(apply(output(0xFFFFFFF9))), (2, 4)),  # TABLE
        (flow_mod(apply(output(0xFFFFFFFE))), (2, 4)),  # LOCAL
        (flow_mod(apply(group(1))), (2, 9)),
        (flow_mod(apply(action(21, b"\0\0\0\1"))), (2, 8)),
        (flow_mod(apply(struct.pack("!HHI", 0xFFFF, 8, 0x2320))), (2, 1)),
        (flow_mod(apply(struct.pack("!HHI", 0xFFFF, 8, 0x4F4E4600))), (2, 2)),
        (flow_mod(apply(struct.pack("!HHI", 0, 0, 0))), (2, 1)),
        (flow_mod(apply(struct.pack("!HHI", 25, 8, 0x80000606))), (2, 1)),
        (flow_mod(apply(set_field("metadata", 1))), (2, 13)),
        (flow_mod(apply(set_field("in_port", 4))), (2, 13)),
        (flow_mod(apply(set_field("ip_proto", 6))), (2, 13)),
        (flow_mod(apply(set_field("vlan_vid", 5))), (2, 15)),
        # What leaves the flowspace: untagged frames of port 1 belong to nobody of us at port 2.
        (flow_mod(apply(output(2))), (2, 6)),
        (flow_mod(apply(output(0xFFFFFFFB)), oxm_of(in_port=1)), (2, 6)),
        (flow_mod(apply(SET_VLAN100.replace(b"\x10\x64", b"\x10\xc8"), output(2)), oxm_of(in_port=1)), (2, 6)),
        (flow_mod(apply(POP_VLAN, output(3)), oxm_of(in_port=2)), (2, 6)),
        (flow_mod(apply(set_field("vlan_vid", 0x10C8), output(0xFFFFFFF8)), oxm_of(in_port=2)), (2, 6)),
        (flow_mod(apply(set_field("vlan_vid", 0x10C8)) + goto(1), oxm_of(in_port=2)), (2, 6)),
        (flow_mod(apply(set_field("vlan_vid", 0x10C8)), oxm_of(in_port=2), table=1), (2, 6)),
        (flow_mod(write(set_field("vlan_vid", 0x1064), output(2)), oxm_of(in_port=1)), (2, 6)),
        # Set-field does nothing to a frame without a tag, and such a frame is not ours at port 2.
        (flow_mod(apply(set_field("vlan_vid", 0x1064), output(2)), oxm_of(in_port=1)), (2, 6)),
        (flow_mod()[:52], (1, 6)),
    ],
)  # fmt: skip
def test_what_is_not_the_slices_gets_the_error_of_a_switch(message: bytes, error: tuple[int, int]) -> None:
    message = wire.message(message[8:], 99)
    assert refused(message) == error


@pytest.mark.parametrize(
    "message",
    [
        flow_mod(apply(output(2)), oxm_of(vlan_vid=0x1064)),
        flow_mod(apply(output(2)), oxm_of(in_port=3)),
        flow_mod(apply(SET_VLAN100, output(2), output(3)), oxm_of(in_port=1)),
        flow_mod(apply(POP_VLAN, output(1)), oxm_of(in_port=2)),
        flow_mod(apply(set_field("eth_dst", 5), output(3)), oxm_of(in_port=2)),
        flow_mod(apply(output(0xFFFFFFFD))),
        flow_mod(apply(output(0xFFFFFFF8))),
        flow_mod(write(output(1), set_field("eth_dst", 5))),
        flow_mod(struct.pack("!HH4x", 5, 8) + goto(1)),
    ],
)
def test_what_stays_in_the_flowspace_passes(message: bytes) -> None:
    [found] = translate(message, guest())
    assert len(found) == len(message) and found[:24] == message[:24]


def test_flood_is_a_group_of_the_slice() -> None:
    message = flow_mod(apply(output(0xFFFFFFFB), output(0xFFFFFFFC)), oxm_of(vlan_vid=0x1064))
    view = guest()
    [found] = translate(message, view)
    assert found[-16:] == group(view.flood_group) + group(view.flood_group + 1)
    assert len(found) == len(message) - 16 == int.from_bytes(found[2:4], "big")
    buckets = flood_buckets(view.ports)
    assert [int.from_bytes(buckets[start + 22 : start + 26], "big") for start in range(0, len(buckets) - 2, 32)] == [
        *sorted(view.ports)
    ]


def test_every_output_to_a_port_goes_through_the_slices_queue() -> None:
    view = replace(guest(), queue=7)
    queue = queued(7)
    assert queue == struct.pack("!HHI", 21, 8, 7)
    controller = output(0xFFFFFFFD)
    actions = (output(2), SET_VLAN100, output(3), controller, output(0xFFFFFFF8))
    message = flow_mod(apply(*actions), oxm_of(in_port=3, vlan_vid=0x1064))
    [found] = translate(message, view)
    expected = apply(
        queue, output(2), SET_VLAN100, queue, output(3), controller, queue, output(0xFFFFFFF8)
    )  # fmt: skip
    assert found[-len(expected) :] == expected and len(found) == int.from_bytes(found[2:4], "big")
    assert guest_instructions(found, len(found) - len(expected), len(found), view) == apply(*actions)
    [found] = translate(flow_mod(write(output(1))), view)
    assert found.endswith(write(queue, output(1)))
    [found] = translate(flow_mod(apply(output(0xFFFFFFFB)), oxm_of(vlan_vid=0x1064)), view)
    assert found.endswith(apply(group(view.flood_group))), "the queue is in the group's buckets"
    assert refused(flow_mod(apply(queue, output(2))), view) == (2, 8), "a guest's own queue would be a way around it"


@pytest.mark.parametrize(("real", "own"), [(10, 0), (13, 3), (0, 246), (9, 255), (255, 245)])
def test_a_rule_that_goes_on_outside_of_its_block_is_shown_and_no_failure(real: int, own: int) -> None:
    """No guest can make one, but a switch may say that there is one."""
    told = goto(real)
    assert guest_instructions(told, 0, len(told), guest()) == goto(own)


def test_buckets_have_the_slices_queue_and_are_read_back_without() -> None:
    view = replace(guest(), queue=7)
    bucket = struct.pack("!HHII4x", 32, 0, 0xFFFFFFFF, 0xFFFFFFFF) + output(1)
    [found] = translate_group_mod(wire.message(struct.pack("!HBxI", 0, 0, 9) + bucket, 99, 15), view)
    buckets = flood_buckets({1}, 7)
    assert found[16:] == buckets[2:] and found[2:4] == len(found).to_bytes(2, "big")
    assert guest_buckets(buckets, 2, len(buckets), view) == bucket


def test_metadata_is_the_guests_below_the_slices_number() -> None:
    for wanted in (5, (5, 0xFF), (5, 0xFFFF_0000_0000_00FF)):
        [found] = translate(flow_mod(fields=oxm_of(metadata=wanted)), guest())
        match = classifier.decode(found[52 : 48 + int.from_bytes(found[50:52], "big")])
        value, mask = match.field("metadata")
        whole = isinstance(wanted, int) or wanted[1] >> 48
        assert (value, mask >> 48) == (5 | (2 << 48 if whole else 0), 0xFFFF if whole else 0)
        assert len(found) == int.from_bytes(found[2:4], "big") and len(found) % 8 == 0
    [found] = translate(flow_mod(struct.pack("!HH4xQQ", 2, 24, 9, (1 << 64) - 1)), guest())
    assert struct.unpack_from("!QQ", found, len(found) - 16) == (9, (1 << 48) - 1), "the slice's bits stay"


def test_deletes_by_output_follow_what_flood_and_groups_became() -> None:
    view = guest()
    real = view.groups.add(77)
    for port, group_, expected in (
        (2, 0xFFFFFFFF, (2, 0xFFFFFFFF)),
        (0xFFFFFFFB, 0xFFFFFFFF, (0xFFFFFFFF, view.flood_group)),
        (0xFFFFFFFF, 77, (0xFFFFFFFF, real)),
        (0xFFFFFFFF, 78, (0xFFFFFFFF, NO_SUCH_GROUP)),
    ):
        [found] = translate(flow_mod(command=3, out_port=port, out_group=group_), view)
        assert struct.unpack_from("!II", found, 36) == expected


@pytest.mark.parametrize("port", [0xFF00, 0x07000D00, 0xFFFFFEFF])
def test_deletes_by_what_is_no_port_are_refused_as_by_the_switch(port: int) -> None:
    with pytest.raises(Refused) as refused:
        translate(flow_mod(command=3, out_port=port), guest())
    assert (refused.value.kind, refused.value.code) == (2, 4)


def bucket(*actions: bytes, port: int = 0xFFFFFFFF, group_: int = 0xFFFFFFFF) -> bytes:
    body = b"".join(actions)
    return struct.pack("!HHII4x", 16 + len(body), 1, port, group_) + body


def group_mod(command: int, number: int, *buckets: bytes) -> bytes:
    return wire.message(struct.pack("!HBxI", command, 1, number) + b"".join(buckets), 99, 15)


def test_groups_have_numbers_of_their_own() -> None:
    pool = NumberPool(1, 1000)
    one, other = replace(guest(), groups=IdMap(pool, 3)), replace(guest(), groups=IdMap(pool, 3))
    reals = []
    for view in (one, other):
        [found] = translate_group_mod(group_mod(0, 50, bucket(output(1)), bucket(SET_VLAN100, output(1))), view)
        reals.append(int.from_bytes(found[12:16], "big"))
        assert found[16:] == group_mod(0, 50, bucket(output(1)), bucket(SET_VLAN100, output(1)))[16:]
    assert len(set(reals)) == 2
    [found] = translate_group_mod(group_mod(2, 0xFFFFFFFF), one)
    assert int.from_bytes(found[12:16], "big") == reals[0], "delete all deletes one's own"
    assert other.groups.real(50) == reals[1]
    assert translate_group_mod(group_mod(2, 50), one) == []
    view = guest()
    translate_group_mod(group_mod(0, 1), view)
    [found] = translate(flow_mod(apply(group(1))), view)
    assert found[-8:] == group(view.groups.real(1) or 0)


SET_OTHER, SET_MINE = set_field("vlan_vid", 0x10C8), set_field("vlan_vid", 0x1064)


@pytest.mark.parametrize("instruct", [apply, write])
def test_packet_that_became_another_slices_does_not_enter_a_group(instruct: Callable[..., bytes]) -> None:
    view = guest()
    translate_group_mod(group_mod(0, 1, bucket(output(1))), view)
    at_2 = oxm_of(in_port=2, vlan_vid=0x1064)
    assert translate(flow_mod(instruct(group(1)), at_2), view)
    assert translate(flow_mod(instruct(set_field("eth_dst", 5), group(1)), at_2), view)
    # The buckets were checked for packets of the slice, which this is not, even if it is one again afterwards.
    assert refused(flow_mod(apply(SET_OTHER, group(1)), at_2), view) == (2, 6)
    assert refused(flow_mod(apply(SET_OTHER, group(1), SET_MINE, output(2)), at_2), view) == (2, 6)
    assert translate(flow_mod(apply(SET_OTHER, SET_MINE, group(1)), at_2), view)


def typed(kind: int, *buckets: bytes) -> bytes:
    """A new group of a type."""
    return wire.message(struct.pack("!HBxI", 0, kind, 5) + b"".join(buckets), 99, 15)


def plain(weight: int = 0, port: int = 0xFFFFFFFF) -> bytes:
    """A bucket with a weight that watches a port, or nothing."""
    return struct.pack("!HHII4x", 32, weight, port, 0xFFFFFFFF) + output(1)


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (typed(0, plain(), plain()), None), (typed(0), None), (typed(0, plain(5)), 1), (typed(0, plain(0, 1)), 6),
        (typed(1, plain(5), plain(0, 1)), None), (typed(2, plain()), None), (typed(2), 1),
        (typed(2, plain(), plain()), 1), (typed(2, plain(0, 1)), 6), (typed(3, plain(0, 1)), None),
        (typed(3, plain()), 1), (typed(3, plain(5, 1)), 1), (typed(4, plain()), 10), (typed(0xF1, plain()), 10),
    ],
)  # fmt: skip
def test_types_of_groups_have_the_buckets_that_open_vswitch_reads(message: bytes, code: int | None) -> None:
    view = guest()
    if code is None:
        assert translate_group_mod(message, view)
        return
    with pytest.raises(Refused) as caught:
        translate_group_mod(message, view)
    assert (caught.value.kind, caught.value.code) == (6, code) and not len(view.groups)


@pytest.mark.parametrize(
    ("messages", "error"),
    [
        ([group_mod(1, 5)], (6, 8)),
        ([group_mod(0, 5), group_mod(0, 5)], (6, 0)),
        ([group_mod(0, n) for n in range(4)], (6, 3)),
        ([group_mod(0, 0xFFFFFF01)], (6, 1)),
        ([group_mod(3, 5)], (6, 11)),
        ([group_mod(0, 5, bucket(output(4)))], (2, 4)),
        ([group_mod(0, 5, bucket(output(2)))], (2, 6)),
        ([group_mod(0, 5, bucket(output(1), set_field("vlan_vid", 0x1064), POP_VLAN, output(2)))], (2, 6)),
        ([group_mod(0, 5, bucket(port=4))], (6, 14)),
        ([group_mod(0, 5, bucket(group_=8))], (6, 14)),
        ([group_mod(0, 5, bytes(16))], (6, 13)),
        ([group_mod(0, 5)[:12]], (1, 6)),
    ],
)
def test_groups_that_are_refused(messages: list[bytes], error: tuple[int, int]) -> None:
    view = guest()
    for message in messages[:-1]:
        translate_group_mod(message, view)
    held = len(view.groups)
    with pytest.raises(Refused) as caught:
        translate_group_mod(messages[-1], view)
    assert (caught.value.kind, caught.value.code) == error
    assert len(view.groups) == held, "a refusal uses nothing up"


def meter_mod(command: int, number: int, bands: bytes = b"") -> bytes:
    return wire.message(struct.pack("!HHI", command, 1, number) + bands, 99, 29)


def test_meters() -> None:
    view, band = guest(), struct.pack("!HHII4x", 1, 16, 1000, 100)
    [found] = translate_meter_mod(meter_mod(0, 700, band), view)
    assert found[16:] == band and int.from_bytes(found[12:16], "big") == view.meters.real(700)
    [rule] = translate(flow_mod(struct.pack("!HHI", 6, 8, 700)), view)
    assert int.from_bytes(rule[-4:], "big") == view.meters.real(700)
    for message, code in (
        (meter_mod(0, 700), (12, 1)),
        (meter_mod(1, 701), (12, 3)),
        (meter_mod(0, 0xFFFFFFFE), (12, 2)),
        (meter_mod(7, 1), (12, 4)),
        (meter_mod(0, 1, bytes(16)), (1, 6)),
    ):
        with pytest.raises(Refused) as caught:
            translate_meter_mod(message, view)
        assert (caught.value.kind, caught.value.code) == code
    translate_meter_mod(meter_mod(0, 1), view)
    with pytest.raises(Refused):
        translate_meter_mod(meter_mod(0, 2), view)
    assert len(translate_meter_mod(meter_mod(2, 0xFFFFFFFF), view)) == 2 and not len(view.meters)


@examples(300)
@given(
    st.binary(max_size=120),
    st.sampled_from([flow_mod(apply(SET_VLAN100, output(2)), oxm_of(in_port=1)), group_mod(0, 5, bucket(output(1)))]),
    st.integers(8, 100),
)
def test_hostile_messages_end_in_a_refusal_or_a_well_formed_message(noise: bytes, base: bytes, at: int) -> None:
    message = wire.message((base[:at] + noise + base[at + len(noise) :])[8:], 99, base[1])
    view = guest()
    try:
        found = (translate if base[1] == 14 else translate_group_mod)(message, view)
    except SliceError:
        return
    assert all(int.from_bytes(m[2:4], "big") == len(m) for m in found)
    if base[1] == 14:
        assert all(10 <= m[24] < 14 for m in found), "no table of others"


def test_our_own_rules_pass_as_a_guest() -> None:
    body = wire.flow_mod_body(
        wire.ADD,
        2,
        9,
        wire.match_fields(Match(in_port=1, eth_dst="02:00:00:00:00:01")),
        wire.instructions((act.Output(1),), 3),
    )
    [found] = translate(wire.message(body, 1), guest())
    assert found[24] == 12


MARK = discovery_mac(3)
FROM_MARK = set_field("eth_src", MARK)


def nicira(kind: int, body: bytes) -> bytes:
    return action(0xFFFF, struct.pack("!IH", 0x2320, kind) + body)


SET_MASKED = action(25, struct.pack("!HBB", 0x8000, 4 << 1 | 1, 12) + MARK.to_bytes(6, "big") + b"\xff" * 6)
LOAD = nicira(7, struct.pack("!HIQ", 47, 0x00000406, MARK))
MOVE = nicira(6, struct.pack("!HHHII", 48, 0, 0, 0x00000206, 0x00000406))
STACK_POP = nicira(28, struct.pack("!HIH6x", 0, 0x00000406, 48))
ENCAP = nicira(46, struct.pack("!HI", 0, 0x18847)) + nicira(46, struct.pack("!HI", 0, 0))
CLONE = nicira(42, bytes(6) + FROM_MARK + output(1))


@pytest.mark.parametrize(
    ("actions", "error"),
    [
        (FROM_MARK, (2, 6)),
        (set_field("eth_src", discovery_mac(2)) + output(1), (2, 6)),
        (set_field("eth_src", discovery_mac(0xFFFF)) + set_field("eth_src", 5) + output(1), (2, 6)),
        (SET_VLAN100 + FROM_MARK + output(1), (2, 6)),
        (ENCAP + FROM_MARK + output(1), (2, 6)),
        (CLONE, (2, 6)),
        (SET_MASKED, (2, 1)),
        (LOAD, (2, 3)),
        (MOVE, (2, 3)),
        (STACK_POP, (2, 3)),
    ],
)
def test_nothing_gets_the_source_address_of_discovery_frames(actions: bytes, error: tuple[int, int]) -> None:
    in_port = classifier.encode(of_fields({"in_port": 1, "eth_type": 0x88CC, "vlan_vid": 0}))
    extensions = b"\xff\xff" in actions
    messages = [flow_mod(apply(actions), in_port)]
    if not extensions:
        bucket = struct.pack("!HHII4x", 16 + len(actions), 0, 0xFFFFFFFF, 0xFFFFFFFF) + actions
        messages += [flow_mod(write(actions), in_port), wire.message(struct.pack("!HBxI", 0, 0, 1) + bucket, 1, 15)]
    for message in messages:
        with pytest.raises(Refused) as caught:
            (translate_group_mod if message[1] == 15 else translate)(message, guest())
        assert (caught.value.kind, caught.value.code) == error
    packet = LLDP_TO_HOST
    body = struct.pack("!IIH6x", 0xFFFFFFFF, 1, len(actions)) + actions + packet
    with pytest.raises(Refused) as caught:
        packet_out(wire.message(body, 1, 13), guest(), Buffers(), b"k" * 32, 0)
    assert (caught.value.kind, caught.value.code) == error


LLDP_TO_HOST = b"\2\0\0\0\0\3" + b"\2\0\0\0\0\1" + b"\x88\xcc" + bytes(46)


def test_other_source_addresses_may_be_written() -> None:
    for address in (MARK - (1 << 16), MARK + (1 << 32), 0x0A53_4C42_FFFF, 0x0A53_4C44_0000, 5):
        assert translate(flow_mod(apply(set_field("eth_src", address), output(1)), IN_PORT_1), guest())


IN_PORT_1 = classifier.encode(of_fields({"in_port": 1}))

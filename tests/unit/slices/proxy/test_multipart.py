"""Statistics of guests: what is asked of the switch, what comes back, and that rules read back as they were written."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hyroads.controller.ofp import guard, wire
from hyroads.slices.core import classifier
from hyroads.slices.core.allocation import Block
from hyroads.slices.core.classifier import ClassifierEntry
from hyroads.slices.core.errors import Refused
from hyroads.slices.core.match import ALL, completed, of_fields
from hyroads.slices.proxy.flow_mod import translate
from hyroads.slices.proxy.group_mod import translate_group_mod
from hyroads.slices.proxy.guest_view import GuestView, IdMap, NumberPool
from hyroads.slices.proxy.multipart import Answer, requests
from hyroads.slices.proxy.readback import flow_removed
from hyroads.slices.proxy.region import Regions

MINE = Block(2, 10, 4)
REGIONS = Regions([ClassifierEntry(40, ALL, MINE)])


def view() -> GuestView:
    groups, meters = NumberPool(100, 1000), NumberPool(200, 1000)
    groups.take(), meters.take()
    found = GuestView(MINE, frozenset({1, 2, 3}), REGIONS, IdMap(groups, 9), IdMap(meters, 9))
    found.groups.add(5), found.meters.add(6)
    return found


def ask(kind: int, body: bytes) -> bytes:
    return wire.message(struct.pack("!HH4x", kind, 0) + body, 42, 18)


def reply(kind: int, body: bytes, more: bool = False) -> bytes:
    message = wire.message(struct.pack("!HH4x", kind, more) + body, 1, 19)
    guard.check(message)
    return message


def flow_request(table: int = 0xFF, out_group: int = 0xFFFFFFFF, **fields: int) -> bytes:
    match = wire.match_struct(classifier.encode(of_fields(fields)))
    return struct.pack("!B3xII4xQQ", table, 0xFFFFFFFF, out_group, 3, 4) + match


def test_a_question_about_all_tables_is_one_for_each_of_the_slice() -> None:
    found = requests(ask(1, flow_request(in_port=2)), view())
    assert [message[16] for message in found] == [10, 11, 12, 13]
    assert all(
        message[17:] == ask(1, flow_request(in_port=2))[17:] and message[4:8] == b"\0\0\0\x2a" for message in found
    )
    [one] = requests(ask(2, flow_request(3, 5)), view())
    assert one[16] == 13 and struct.unpack_from("!I", one, 24) == (view().groups.real(5),)


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (ask(1, flow_request(4)), (1, 9)),
        (ask(1, flow_request(in_port=9)), (4, 7)),
        (ask(4, struct.pack("!I4x", 9)), (1, 11)),
        (ask(5, struct.pack("!II", 9, 0)), (1, 11)),
        (ask(9, struct.pack("!I4x", 7)), (12, 3)),
        (ask(12, bytes(64)), (13, 5)),
        (ask(0xFFFF, bytes(8)), (1, 3)),
        (ask(77, b""), (1, 2)),
        (ask(1, b""), (1, 6)),
        (ask(4, b""), (1, 6)),
        (ask(4, bytes(16)), (1, 6)),
        (ask(0, bytes(8)), (1, 6)),
        (ask(0, b"")[:12], (1, 6)),
    ],
)
def test_questions_about_others_are_refused(message: bytes, error: tuple[int, int]) -> None:
    with pytest.raises(Refused) as caught:
        requests(wire.message(message[8:], 1, 18), view())
    assert (caught.value.kind, caught.value.code) == error


def flow_record(table: int, match: bytes, instructions: bytes) -> bytes:
    size = 48 + len(match) + len(instructions)
    return struct.pack("!HBxIIHHHH4xQQQ", size, table, 1, 2, 20, 3, 4, 5, 0x48, 6, 7) + match + instructions


def parts_of(flow_mod: bytes) -> tuple[bytes, bytes]:
    length = int.from_bytes(flow_mod[50:52], "big")
    end = 48 + (length + 7) // 8 * 8
    return flow_mod[48:end], flow_mod[end:]


OUTPUTS = st.sampled_from([1, 2, 0xFFFFFFF8, 0xFFFFFFFB, 0xFFFFFFFC, 0xFFFFFFFD])


@st.composite
def guest_rules(draw: st.DrawFn) -> bytes:
    """Flow-mods with everything that is translated: ports, FLOOD, groups, meters, goto, metadata."""
    actions = b""
    for port in draw(st.lists(OUTPUTS, max_size=4)):
        actions += struct.pack("!HHIH6x", 0, 16, port, 0)
    if draw(st.booleans()):
        actions += struct.pack("!HHI", 22, 8, 5)
    kind = draw(st.sampled_from([3, 4]))
    instructions = struct.pack("!HH4x", kind, 8 + len(actions)) + actions
    if draw(st.booleans()):
        instructions += struct.pack("!HHI", 6, 8, 6)
    if draw(st.booleans()):
        instructions += struct.pack("!HH4xQQ", 2, 24, 5, (1 << 48) - 1)
    if draw(st.booleans()):
        instructions += struct.pack("!HHB3x", 1, 8, 2)
    fields: dict[str, int | tuple[int, int]] = {"in_port": 2, "eth_type": 0x0800}
    if draw(st.booleans()):
        fields["metadata"] = draw(st.sampled_from([7, (7, 0xFF), (7, 0xFFFF_0000_0000_00FF)]))
    body = struct.pack("!QQBBHHHIIIH2x", 1, 0, 1, 0, 0, 0, 9, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    return wire.message(body + wire.match_struct(classifier.encode(of_fields(fields))) + instructions, 1)


@settings(deadline=None)
@given(st.lists(guest_rules(), min_size=1, max_size=3))
def test_rules_read_back_as_they_were_written(rules: list[bytes]) -> None:
    mine = view()
    records = b"".join(flow_record(11, *parts_of(translate(rule, mine)[0])) for rule in rules)
    foreign = flow_record(9, wire.match_struct(b""), b"") + flow_record(14, wire.match_struct(b""), b"")
    found = Answer(42, 1).take(reply(1, foreign + records), mine)
    expected = b"".join(flow_record(1, *parts_of(rule)) for rule in rules)
    assert found == wire.message(struct.pack("!HH4x", 1, 0) + expected, 42, 19)
    guard.check(found)


def test_parts_are_joined_and_only_the_last_has_no_more() -> None:
    answer, mine = Answer(42, 2), view()
    flags = []
    for more in (True, False, False):
        message = answer.take(reply(1, b"", more), mine)
        assert message is not None and message[4:8] == b"\0\0\0\x2a"
        flags.append(message[11])
    assert flags == [1, 1, 0] and not answer.open


def test_aggregates_are_added_up() -> None:
    answer, mine = Answer(42, 3), view()
    assert answer.take(reply(2, struct.pack("!QQI4x", 1, 10, 100)), mine) is None
    assert answer.take(reply(2, struct.pack("!QQI4x", 2, 20, 200)), mine) is None
    found = answer.take(reply(2, struct.pack("!QQI4x", 3, 30, 300)), mine)
    assert found is not None and struct.unpack_from("!QQI", found, 16) == (6, 60, 600)
    assert not answer.open


def test_groups_and_meters_of_others_are_not_there() -> None:
    mine = view()
    for actions in (struct.pack("!HHIH6x", 0, 16, 2, 0), struct.pack("!HHIH6x", 0, 16, 0xFFFFFFFB, 0)):
        bucket = struct.pack("!HHII4x", 16 + len(actions), 1, 0xFFFFFFFF, 0xFFFFFFFF) + actions
        made = translate_group_mod(wire.message(struct.pack("!HBxI", 1, 1, 5) + bucket, 1, 15), mine)[0][12:]
        others = struct.pack("!HBxI", 8, 1, 100) + struct.pack("!HBxI", 8, 1, mine.flood_group)
        body = others + struct.pack("!HBx", 4 + len(made), 1) + made
        found = Answer(42, 1).take(reply(7, body), mine)
        assert found is not None and found[16:] == struct.pack("!HBxI", 8 + len(bucket), 1, 5) + bucket
    stats = [struct.pack("!HxxII4xQQII", 40, number, 0, 0, 0, 0, 0) for number in (100, 101)]
    found = Answer(42, 1).take(reply(6, b"".join(stats)), mine)
    assert found is not None and len(found) == 16 + 40 and found[20:24] == b"\0\0\0\5"
    meters = [struct.pack("!IH6xIQQII", number, 40, 0, 0, 0, 0, 0) for number in (200, 201)]
    found = Answer(42, 1).take(reply(9, b"".join(meters)), mine)
    assert found is not None and len(found) == 16 + 40 and found[16:20] == b"\0\0\0\6"
    configs = [struct.pack("!HHI", 8, 0, number) for number in (200, 201)]
    found = Answer(42, 1).take(reply(10, b"".join(configs)), mine)
    assert found is not None and found[16:] == struct.pack("!HHI", 8, 0, 6)


def test_tables_are_the_guests() -> None:
    body = b"".join(struct.pack("!B3xIQQ", table, table, 0, 0) for table in range(254))
    found = Answer(42, 1).take(reply(3, body), view())
    assert found is not None and [found[at] for at in range(16, len(found), 24)] == [0, 1, 2, 3]
    assert [struct.unpack_from("!I", found, at + 4)[0] for at in range(16, len(found), 24)] == [10, 11, 12, 13]


def test_features_name_the_guests_tables_only() -> None:
    def features(table: int, following: bytes, metadata: int) -> bytes:
        next_tables = struct.pack("!HH", 2, 4 + len(following)) + following
        next_tables += b"\0" * (-len(next_tables) % 8)
        properties = struct.pack("!HHHH4x", 0, 8, 1, 4)[:8] + next_tables
        head = struct.pack("!HB5x32sQQII", 64 + len(properties), table, b"t", metadata, metadata, 3, 1000)
        return head + properties

    every = b"".join(features(t, bytes(range(t + 1, 254)), (1 << 64) - 1) for t in (0, 9, 12, 13, 14))
    found = Answer(42, 1).take(reply(12, every), view())
    assert found is not None
    guard.check(found)
    assert found[16:] == features(2, b"\3", (1 << 48) - 1) + features(3, b"", (1 << 48) - 1)


def test_flow_removed_is_the_guests() -> None:
    mine = view()

    def removed(table: int, metadata: int) -> bytes:
        match = wire.match_struct(classifier.encode(of_fields({"metadata": metadata, "in_port": 1})))
        body = struct.pack("!QHBBIIHHQQ", 7, 9, 0, table, 1, 2, 3, 4, 5, 6) + match
        return wire.message(body, 0, 11)

    found = flow_removed(removed(12, 2 << 48 | 9), mine)
    guard.check(found)
    assert found == removed(2, 9)


def test_completed_matches_pass_both_ways() -> None:
    for match in completed({"tcp_dst": 80, "vlan_vid": (0x1000, 0x1000)}):
        message = ask(
            1, struct.pack("!B3xII4xQQ", 0, 0xFFFFFFFF, 0xFFFFFFFF, 0, 0) + wire.match_struct(classifier.encode(match))
        )
        [found] = requests(message, view())
        assert found[48:] == message[48:]

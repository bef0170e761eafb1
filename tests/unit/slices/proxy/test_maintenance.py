"""What the slicer sends to a switch that has just connected: nothing that is there, and all that is not."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable
from dataclasses import replace

import pytest
from examples import seeds

from hyroads.controller.ofp import guard, wire
from hyroads.controller.ofp.diff import Installed
from hyroads.slices.core import classifier
from hyroads.slices.core.allocation import OPEN_VSWITCH, Block, Layout
from hyroads.slices.core.classifier import ClassifierChange, ClassifierEntry, entries_of
from hyroads.slices.core.match import ALL, TernaryMatch, of_fields
from hyroads.slices.core.model import Slice
from hyroads.slices.proxy.contents import Contents, DiscoveredEntry, contents_of, port_names, questions
from hyroads.slices.proxy.group_mod import flood_buckets
from hyroads.slices.proxy.guest_view import FLOOD_GROUPS
from hyroads.slices.proxy.maintenance import DesiredState, change_stages, is_sliced, meter_bands, stages

PRODUCTION, RED, BLUE = Block(1, 1, 4), Block(2, 5, 4), Block(3, 9, 2)


def wanted(*blocks: Block) -> DesiredState:
    entries = [ClassifierEntry(0, ALL, PRODUCTION)]
    entries += [ClassifierEntry(100, of_fields({"in_port": block.number}), block) for block in blocks]
    every = (PRODUCTION, *blocks)
    return DesiredState(
        tuple(entries), every, {block.number: frozenset({block.number, 9}) for block in every}, OPEN_VSWITCH
    )


def as_found(of: DesiredState, active: dict[int, int]) -> Contents:
    entries = tuple(
        DiscoveredEntry(entry.installed(OPEN_VSWITCH), (entry.block.number, entry.block.first)) for entry in of.entries
    )
    groups = {FLOOD_GROUPS + 2 * number + i: flood_buckets(ports) for number, ports in of.ports.items() for i in (0, 1)}
    return Contents({}, entries, groups, {}, active)


def emptied(found: tuple[list[bytes], ...]) -> list[int]:
    return [m[24] for stage in found for m in stage if m[1] == wire.FLOW_MOD and m[25] == wire.DELETE]


def test_nothing_is_sent_to_a_switch_that_has_it_all() -> None:
    assert stages(as_found(wanted(RED, BLUE), {0: 3, 1: 5, 6: 2, 9: 1}), wanted(RED, BLUE)) == ()


def test_a_strange_switch_is_emptied_first() -> None:
    foreign = DiscoveredEntry(Installed(0, 5, b"", 0x48), None)
    found = Contents({}, (foreign,), {7: b"\0\0"}, {}, {0: 1, 3: 9})
    assert not is_sliced(found)
    first, *rest = stages(found, wanted(RED))
    assert [message[1] for message in first] == [14, 15, 29] and first[0][24:26] == b"\xff\x03"
    kinds = [message[1] for stage in rest for message in stage]
    assert kinds == [15] * 4 + [14] * 2, "groups, then the entries that lead to the tables"


def test_tables_are_emptied_only_if_they_pass_to_another() -> None:
    before = as_found(wanted(RED, BLUE), {1: 5, 5: 1, 8: 1, 9: 3, 10: 1})
    assert emptied(stages(before, wanted(RED))) == [9, 10], "freed"
    moved = Block(3, 5, 2)
    found = stages(before, wanted(moved))
    assert emptied(found) == [5, 8, 9, 10]
    assert [m[24] for m in found[0]] == [5], "before the classifier leads there"
    assert emptied(stages(as_found(wanted(RED), {5: 1, 20: 1}), wanted(RED, BLUE))) == [20], "nobody's"


@pytest.mark.parametrize("bits", [64, 48, 24])
def test_a_slice_that_only_discovers_keeps_its_tables(bits: int) -> None:
    """Its ports may be away for now: what its entries for discovery say tells its tables from another's."""
    layout = Layout(metadata_bits=bits)
    keys = [Block(4, 30, 5), RED, Block(0x1234, 200, 2)]
    entries = [ClassifierEntry(*key, block) for block in keys for key in discovery_keys(block)]
    body = b"".join(stats_record(entry, layout) for entry in entries)
    replies = [wire.message(struct.pack("!HH4x", 1, 0) + body, 1, 19)]
    guard.check(replies[0])
    found = contents_of(replies, layout.slice_shift)
    assert {each.owner for each in found.entries} == {(block.number, block.first) for block in keys}
    target = DesiredState(tuple(entries), tuple(keys), {}, layout)
    there = replace(found, active={0: 6, 5: 1, 30: 2, 34: 1, 201: 3})
    assert stages(there, target) == ()
    assert emptied(stages(there, replace(target, blocks=(RED, Block(9, 28, 4), keys[2])))) == [30, 34]


def discovery_keys(block: Block) -> Iterable[tuple[int, TernaryMatch]]:
    return entries_of(Slice("x", ()), 1, block, {}).keys()


def stats_record(entry: ClassifierEntry, layout: Layout) -> bytes:
    match, instructions = wire.match_struct(classifier.encode(entry.match)), entry.instructions(layout)
    size = 48 + len(match) + len(instructions)
    head = struct.pack("!HBxIIHHHH4xQQQ", size, 0, 1, 2, entry.priority, 0, 0, 0, entry.cookie(layout), 0, 0)
    return head + match + instructions


@pytest.mark.parametrize("seed", seeds(20))
def test_any_leftover_is_mended_by_the_difference(seed: int) -> None:
    rng = random.Random(seed)
    target = wanted(RED, BLUE)
    whole = as_found(target, {})
    kept = [each for each in whole.entries if rng.random() < 0.7] or [whole.entries[0]]
    foreign = [
        DiscoveredEntry(Installed(0, rng.randrange(1 << 16), classifier.encode(of_fields({"in_port": 7})), 5), None)
    ]
    groups = {number: each for number, each in whole.groups.items() if rng.random() < 0.7}
    groups[FLOOD_GROUPS + 90] = flood_buckets({1})
    found = stages(Contents({}, (*kept, *foreign), groups, {}, {}), target)
    messages = [message for stage in found for message in stage]
    adds = [m for m in messages if m[1] == wire.FLOW_MOD and m[25] == wire.ADD]
    deletes = [m for m in messages if m[1] == wire.FLOW_MOD and m[25] == wire.DELETE_STRICT]
    assert len(adds) == len(target.entries) - len(kept) and len(deletes) == 1
    put = [m for m in messages if m[1] == 15]
    assert len(put) == len(whole.groups) - (len(groups) - 1) + 1 and messages[-1][8:10] == b"\0\2"


def test_contents_are_read_from_replies() -> None:
    entry = ClassifierEntry(100, of_fields({"in_port": 3}), RED)
    match, instructions = wire.match_struct(classifier.encode(entry.match)), entry.instructions(OPEN_VSWITCH)
    size = 48 + len(match) + len(instructions)
    flow = struct.pack("!HBxIIHHHH4xQQQ", size, 0, 1, 2, 100, 0, 0, 0, entry.cookie(OPEN_VSWITCH), 0, 0)
    plain = struct.pack("!HBxIIHHHH4xQQQ", 56, 0, 1, 2, 9, 0, 0, 0, 5, 0, 0) + wire.match_struct(b"")
    group = struct.pack("!HBxI", 8, 0, 7)
    bodies = {
        13: struct.pack("!I4x6s2x16s32x", 3, b"\2" * 6, b"p3") + struct.pack("!I4x6s2x16s32x", 4, b"\2" * 6, b"p4"),
        1: flow + match + instructions + plain,
        7: group + struct.pack("!HBxI", 8, 0, 8),
        10: struct.pack("!HHI", 8, 1, 6),
        3: b"".join(struct.pack("!B3xIQQ", table, table % 3, 0, 0) for table in range(254)),
    }
    replies = [wire.message(struct.pack("!HH4x", kind, 0) + body, 1, 19) for kind, body in bodies.items()]
    for reply in replies:
        guard.check(reply)
    found = contents_of(replies, OPEN_VSWITCH.slice_shift)
    assert port_names(found.ports) == {"p3": 3, "p4": 4} and set(found.groups) == {7, 8} and set(found.meters) == {6}
    assert [each.owner for each in found.entries] == [(2, 5), None] and is_sliced(found)
    assert found.entries[0].rule == entry.installed(OPEN_VSWITCH)
    assert found.active[1] == 1 and 3 not in found.active
    assert len(questions()) == len(bodies)


def test_meters_are_put_before_what_leads_to_them_and_deleted_last() -> None:
    metered = replace(RED, metered=True)
    entries = (ClassifierEntry(0, ALL, PRODUCTION), ClassifierEntry(100, of_fields({"in_port": 2}), metered))
    before = wanted(RED)
    after = replace(before, entries=entries, rates_kbps={2: 1000})
    found = stages(as_found(before, {}), after)
    kinds = [[message[1] for message in stage] for stage in found]
    assert kinds == [[29], [14], [14]], "the delete of what was overwritten meets another cookie"
    assert found[0][0][8:] == struct.pack("!HHIHHII4x", 0, 5, 2, 1, 16, 1000, 250)
    there = replace(as_found(after, {}), meters={2: meter_bands(1000), 1 << 14: b"\0\0"})
    assert stages(there, after) == ()
    assert stages(there, replace(after, rates_kbps={2: 50}))[0][0][8:10] == b"\0\1"
    assert [m[1] for m in stages(there, before)[-1]] == [29]


def test_floods_have_the_queue_of_their_slice() -> None:
    before = wanted(RED, BLUE)
    after = replace(before, queues={RED.number: 5})
    [[*changes]] = change_stages(ClassifierChange(), before, after)
    assert [int.from_bytes(message[12:16], "big") for message in changes] == [FLOOD_GROUPS + 4, FLOOD_GROUPS + 5]
    assert all(message[8:10] == b"\0\1" and message[16:] == flood_buckets({2, 9}, 5)[2:] for message in changes)
    groups = {**as_found(before, {}).groups, **{FLOOD_GROUPS + 4 + i: flood_buckets({2, 9}, 5) for i in (0, 1)}}
    assert stages(replace(as_found(before, {}), groups=groups), after) == ()
    assert len(change_stages(ClassifierChange(), after, before)[0]) == 2

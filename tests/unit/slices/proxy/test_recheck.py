"""Rules and groups that are there are judged as if they came today."""

from __future__ import annotations

import struct

from hyroads.controller.ofp import match as act
from hyroads.controller.ofp import wire
from hyroads.slices.core import classifier
from hyroads.slices.core.allocation import Block
from hyroads.slices.core.classifier import ClassifierEntry, discovery_mac
from hyroads.slices.core.match import ALL, of_fields
from hyroads.slices.core.slicefile import parse
from hyroads.slices.proxy.actions import queued
from hyroads.slices.proxy.group_mod import flood_buckets
from hyroads.slices.proxy.guest_view import GuestView, IdMap, NumberPool
from hyroads.slices.proxy.maintenance import groups_to_mend, rules_to_mend
from hyroads.slices.proxy.ports import LOCAL, SlicePorts
from hyroads.slices.proxy.region import Regions

BLOCK = Block(2, 10, 4)


def view(*ports: int) -> GuestView:
    groups, meters = NumberPool(1, 100), NumberPool(1, 100)
    entries = [ClassifierEntry(0, ALL, BLOCK)]
    return GuestView(BLOCK, frozenset(ports), Regions(entries), IdMap(groups, 5), IdMap(meters, 5))


def record(table: int, instructions: bytes) -> bytes:
    match = wire.match_struct(b"")
    size = 48 + len(match) + len(instructions)
    return struct.pack("!HBxIIHHHH4xQQQ", size, table, 1, 2, 7, 0, 0, 0, 99, 0, 0) + match + instructions


def output(port: int, goto: int | None = None) -> bytes:
    return wire.instructions((act.Output(port),), goto)


def test_rules_to_ports_that_are_gone_are_deleted() -> None:
    body = record(10, output(1)) + record(11, output(2, 12)) + record(10, b"") + record(5, output(9))
    found = list(rules_to_mend(body, view(1, 3)))
    assert len(found) == 3 and found[0] is None and found[2] is None, "the rule of another slice does not count"
    delete = found[1]
    assert delete is not None and delete[24:26] == bytes((11, wire.DELETE_STRICT)) and delete[30:32] == b"\0\7"
    assert not any(rules_to_mend(body, view(1, 2)))


def test_the_cookie_of_a_rule_for_discovery_is_known_again() -> None:
    """After a restart of the slicer: some controllers look for it in packet-ins."""
    match = wire.match_struct(classifier.encode(of_fields({"eth_type": 0x88CC})))
    rule = struct.pack("!HBxIIHHHH4xQQQ", 48 + len(match), 10, 1, 2, 7, 0, 0, 0, 99, 0, 0) + match
    mine = view(1)
    assert list(rules_to_mend(rule + record(10, b""), mine)) == [None, None]
    assert mine.discovery_cookies == {0x88CC: 99}


def test_a_rule_that_writes_the_mark_of_discovery_is_deleted() -> None:
    """One from before that was refused."""
    actions = wire.actions((act.SetEthSrc(discovery_mac(3).to_bytes(6, "big").hex(":")), act.Output(1)))
    instructions = struct.pack("!HH4x", 4, 8 + len(actions)) + actions
    [delete] = rules_to_mend(record(10, instructions), view(1))
    assert delete is not None and delete[25] == wire.DELETE_STRICT


def test_groups_to_ports_that_are_gone_are_deleted() -> None:
    mine = view(1, 2)
    real = mine.groups.add(77)
    assert real is not None
    groups = {real: flood_buckets({1, 2}), 50: flood_buckets({9})}
    assert not groups_to_mend(groups, mine)
    mine.ports = frozenset({1})
    [delete] = groups_to_mend(groups, mine)
    assert delete[8:10] == b"\0\2" and delete[12:16] == real.to_bytes(4, "big") and mine.groups.real(77) is None
    assert any(rules_to_mend(record(10, wire.instructions((act.Group(real),), None)), mine))


def test_rules_and_groups_get_the_queue_that_the_slice_has_today() -> None:
    mine = view(1, 2)
    real = mine.groups.add(77)
    assert real is not None
    rules = record(10, output(1)) + record(11, wire.instructions((act.Group(real),), 12)) + record(12, b"")
    groups = {real: flood_buckets({1, 2})}
    for before, queue in ((None, 5), (5, 6), (6, None)):
        mine.queue = queue
        change, *others = rules_to_mend(rules, mine)
        assert others == [None, None] and change is not None
        assert change[24:26] == bytes((10, 2)) and change[30:32] == b"\0\7", "modified in place: a strict modify"
        there = (b"" if queue is None else queued(queue)) + wire.actions((act.Output(1),))
        assert change[-len(there) :] == there and (before is None or queued(before) not in change)
        [group] = groups_to_mend(groups, mine)
        assert group[8:10] == b"\0\1" and group[12:16] == real.to_bytes(4, "big")
        assert group[10:12] + group[16:] == flood_buckets({1, 2}, queue)
        rules, groups = record(10, change[56:]), {real: flood_buckets({1, 2}, queue)}
        assert list(rules_to_mend(rules, mine)) == [None] and not groups_to_mend(groups, mine)
        rules += record(11, wire.instructions((act.Group(real),), 12)) + record(12, b"")


def test_ports_of_slices() -> None:
    slices = [
        {"name": "red", "flowspace": [{"ports": ["p1", "p9"]}, {"ports": [2], "match": {"vlan_vid": 5}}]},
        {"name": "web", "flowspace": [{"match": {"tcp_dst": 80}, "priority": 200}]},
        {"name": "far", "flowspace": [{"switches": [2], "priority": 9}]},
        {"name": "seer", "permissions": ["read"], "flowspace": [{"ports": ["p3"], "priority": 7}]},
    ]
    names = {"p1": 1, "p2": 2, "p3": 3, "s1": LOCAL}
    ports = SlicePorts()
    found = ports.of(parse({"slices": slices}, "x"), 1, names)
    assert found == {"red": {1, 2}, "web": {1, 2, 3}, "seer": {3}, "production": {2, 3, LOCAL}}
    less = ports.of(parse({"slices": slices[1:]}, "x"), 1, names)
    assert less == {"web": {1, 2, 3}, "seer": {3}, "production": {1, 2, 3, LOCAL}}
    assert ports.of(parse({"slices": slices}, "x"), 1, {"p9": 9})["red"] == {9}

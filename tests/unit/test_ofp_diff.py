"""What is sent to a switch, and in which order, to lead from its rules to those that are wanted."""

from __future__ import annotations

from itertools import permutations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.ofp import match as act
from hyroads.controller.ofp import wire
from hyroads.controller.ofp.diff import (
    Change,
    Installed,
    Refusal,
    as_installed,
    batch_of,
    difference,
    difference_at,
    next_xid,
)
from hyroads.controller.ofp.match import Match
from hyroads.controller.ofp.pipeline import ADD_ORDER, Table
from hyroads.controller.ofp.rule import FULL_MASK, GroupEntry, Rule, is_our_group

LAST_TABLE = max(Table) + 1
"""A table that HyRoads has no rules in."""


def rule(table: int, priority: int = 1, port: int = 1, out: int = 1) -> Rule:
    return Rule(table, priority, Match(in_port=port), (act.Output(out),))


def sent(data: bytes) -> list[tuple[int, int, bytes]]:
    """(type, transaction id, body) of each message."""
    found, offset = [], 0
    while offset < len(data):
        _, kind, length, xid = wire.HEADER.unpack_from(data, offset)
        found.append((kind, xid, data[offset + wire.HEADER.size : offset + length]))
        offset += length
    return found


RULES = st.lists(
    st.builds(rule, st.integers(0, LAST_TABLE), st.integers(1, 3), st.integers(1, 3), st.integers(1, 2)),
    max_size=14,
    unique_by=lambda one: one.key,
)


def place(table: int) -> int:
    """Where a table stands in the order of adds; tables of no use come first."""
    return ADD_ORDER.index(Table(table)) if table in ADD_ORDER else -1


@given(RULES, RULES)
def test_adds_go_from_the_end_of_the_pipeline_to_its_beginning_and_deletes_the_other_way(
    wanted: list[Rule], before: list[Rule]
) -> None:
    change = difference(wanted, as_installed(before))
    adds = [(place(each.table), -each.priority) for each in change.adds]
    assert adds == sorted(adds), "the highest priority of a table first"
    deletes = [(-place(each.table), each.priority) for each in change.deletes]
    assert deletes == sorted(deletes), "the lowest priority of a table first"


def test_deletes_begin_where_packets_enter() -> None:
    tables = list(reversed(ADD_ORDER))
    before = as_installed([rule(table, priority) for table in tables for priority in (2, 1)])
    Random(1).shuffle(shuffled := list(before))
    change = difference((), shuffled)
    assert [(each.table, each.priority) for each in change.deletes] == [(t, p) for t in tables for p in (1, 2)]
    change = difference([rule(table, priority) for table in tables for priority in (1, 2)], ())
    assert [(each.table, each.priority) for each in change.adds] == [(t, p) for t in ADD_ORDER for p in (2, 1)]


@given(RULES, RULES, RULES, st.integers(0, 1 << 30))
def test_difference_at_the_keys_that_differ_is_the_whole_difference(
    wanted: list[Rule], before: list[Rule], strangers: list[Rule], seed: int
) -> None:
    foreign = {each.key: Installed(each.table, each.priority, each.match_fields, 0x11) for each in strangers}
    there = {each.key: each for each in as_installed(before)} | foreign
    by_key = {each.key: each for each in wanted}
    # A key of which nothing is wanted or there changes nothing.
    keys = [*sorted(by_key.keys() | there.keys()), (LAST_TABLE + 1, 1, b"")]
    Random(seed).shuffle(keys)
    at = difference_at(keys, by_key, there)
    whole = difference(wanted, there.values())
    assert set(at.adds) == set(whole.adds) and set(at.deletes) == set(whole.deletes)
    assert [place(each.table) for each in at.adds] == [place(each.table) for each in whole.adds]
    assert [place(each.table) for each in at.deletes] == [place(each.table) for each in whole.deletes]
    # Foreign rules in the way of wanted ones are named, whatever the rest.
    assert {each.key for each in at.conflicts} == by_key.keys() & foreign.keys()
    assert not difference_at((), by_key, there)


@pytest.mark.parametrize("is_ours", [False, True])
def test_rule_is_the_same_in_whatever_order_a_switch_reports_its_fields(is_ours: bool) -> None:
    wanted = Rule(1, 5, Match(in_port=1, eth_type=0x0800, ip_proto=6, tcp_dst=80), (act.Output(1),))
    whole, parts = wanted.match_fields, []
    while whole:
        parts.append(whole[: 4 + whole[3]])
        whole = whole[4 + whole[3] :]
    for order in permutations(parts):
        there = Installed(1, 5, b"".join(order), wanted.cookie if is_ours else 0x11)
        change = difference([wanted], [there])
        assert (change.adds, change.deletes) == ((), ())
        assert change.conflicts == (() if is_ours else (wanted,)), "no rule of another controller is overwritten"


def test_rule_with_another_priority_or_table_and_the_same_rest_is_another_rule() -> None:
    for other in (rule(1, 2), rule(2, 1)):
        change = difference([other], as_installed([rule(1, 1)]))
        assert change.adds == (other,) and change.deletes == as_installed([rule(1, 1)])


def test_groups_are_added_when_missing_and_deleted_when_ours_and_not_needed() -> None:
    one, two, three = (GroupEntry(((act.Output(port),),)) for port in (1, 2, 3))
    foreign = 7
    change = difference((), (), [one, two], [two.id, three.id, foreign])
    assert change.group_adds == (one,) and change.group_deletes == (three.id,)
    assert not difference((), (), [one], [one.id, foreign])
    every = sorted([one.id, two.id, three.id])
    assert difference((), (), (), reversed(every)).group_deletes == tuple(every)


@pytest.mark.parametrize(
    "change",
    [
        Change(adds=(rule(1),)),
        Change(deletes=as_installed([rule(1)])),
        Change(group_adds=(GroupEntry(()),)),
        Change(group_deletes=(GroupEntry(()).id,)),
    ],
)
def test_change_of_anything_is_a_change(change: Change) -> None:
    assert change and not Change() and not Change(conflicts=(rule(1),))
    (kind, xid, _), (barrier, last, _) = sent(batch_of(change, 5).data)
    assert kind == (wire.FLOW_MOD if change.adds or change.deletes else wire.GROUP_MOD)
    assert (xid, barrier, last) == (5, wire.BARRIER_REQUEST, 6)


def test_batch_adds_groups_then_rules_and_deletes_rules_then_groups() -> None:
    new, old = (GroupEntry(((act.Output(port),),)) for port in (1, 2))
    adds, deletes = (rule(2), rule(1)), as_installed([rule(0), rule(2, 5)])
    batch = batch_of(Change(adds, deletes, (new,), (old.id,)), 40)
    barrier = (wire.BARRIER_REQUEST, b"")
    expected = [
        (wire.GROUP_MOD, new.add_body),
        barrier,
        *((wire.FLOW_MOD, each.add_body) for each in adds),
        barrier,
        *((wire.FLOW_MOD, each.delete_body) for each in deletes),
        barrier,
        (wire.GROUP_MOD, wire.group_mod_body(wire.GROUP_DELETE, old.id)),
        barrier,
    ]
    assert [(kind, body) for kind, _, body in sent(batch.data)] == expected
    assert [xid for _, xid, _ in sent(batch.data)] == list(range(40, 50))
    assert (batch.first_xid, batch.last_xid, batch.messages) == (40, 49, 10)
    subjects = {40: new, 42: adds[0], 43: adds[1], 45: deletes[0], 46: deletes[1], 48: old.id}
    for xid in range(38, 52):
        assert batch.on_error(xid, 5, 1) is (xid in subjects)
    assert [refusal.subject for refusal in batch.refusals] == list(subjects.values())
    for xid in (39, 50):
        assert not batch.on_barrier(xid)
    for xid in (40, 41, 44, 47):
        assert batch.on_barrier(xid) and not batch.done
    assert batch.on_barrier(49) and batch.done and not batch.ok


def test_refused_rules_are_left_out_of_what_is_in_force() -> None:
    adds, deletes = (rule(2), rule(1)), as_installed([rule(0), rule(2, 5)])
    batch = batch_of(Change(adds, deletes, (GroupEntry(()),)), 1)
    for xid in (1, 3, 6):
        assert batch.on_error(xid, 5, 2)
    assert batch.refused == {adds[0].key: adds[0], deletes[0].key: deletes[0]}
    assert batch.in_force() == ([*as_installed(adds[1:])], [deletes[1]])


def test_delete_is_strict_and_names_the_cookie() -> None:
    (one,) = as_installed([rule(3, 9)])
    expected = wire.flow_mod_body(wire.DELETE_STRICT, 3, 9, one.match_fields, cookie=one.cookie, cookie_mask=FULL_MASK)
    assert one.delete_body == expected and one.key == (3, 9, rule(3, 9).match_fields)


def test_refusals_name_table_or_group_and_the_kind_of_error() -> None:
    group = GroupEntry(())
    for subject, kind, words in (
        (rule(3, 9), 5, "table 3 priority 9: flow-mod failed, code 2"),
        (group, 6, f"group {group.id:#x}: group-mod failed, code 2"),
        (0x4000_0001, 6, "group 0x40000001: group-mod failed, code 2"),
        (rule(3, 9), 0, "table 3 priority 9: hello failed, code 2"),
        (rule(3, 9), 1, "table 3 priority 9: bad request, code 2"),
        (rule(3, 9), 2, "table 3 priority 9: bad action, code 2"),
        (rule(3, 9), 3, "table 3 priority 9: bad instruction, code 2"),
        (rule(3, 9), 4, "table 3 priority 9: bad match, code 2"),
        (rule(3, 9), 12, "table 3 priority 9: meter-mod failed, code 2"),
        (rule(3, 9), 13, "table 3 priority 9: table features failed, code 2"),
        (rule(3, 9), 0xFFFF, "table 3 priority 9: experimenter, code 2"),
        (rule(3, 9), 99, "table 3 priority 9: type 99, code 2"),
    ):
        assert str(Refusal(subject, kind, 2)) == words


def test_transaction_ids_begin_again_when_fewer_than_a_batch_are_left() -> None:
    last = 0xFFFF_FFFF - (1 << 24)
    assert next_xid(last - 1) == last and next_xid(last) == 1


@pytest.mark.parametrize("top", range(16))
def test_group_is_ours_by_all_bits_of_the_mark(top: int) -> None:
    number = top << 28 | 0x0123_4567
    assert is_our_group(number) is (top == 4)
    assert (number in difference([], [], (), [number]).group_deletes) is (top == 4)
    assert is_our_group(GroupEntry(()).id)

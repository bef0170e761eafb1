"""Groups of guests: what enters them, which lead to which, how they are numbered, and how large their messages get."""

from __future__ import annotations

import random
import struct

import pytest
from swarm import events, swarm

from hyroads.controller.ofp import match as act
from hyroads.controller.ofp import wire
from hyroads.controller.ofp.match import Match
from hyroads.slices.core.allocation import Block
from hyroads.slices.core.classifier import ClassifierEntry, at_port
from hyroads.slices.core.errors import Refused
from hyroads.slices.core.match import ALL, completed
from hyroads.slices.proxy.flow_mod import translate
from hyroads.slices.proxy.group_mod import flood_buckets, translate_group_mod, translate_meter_mod
from hyroads.slices.proxy.guest_view import GuestView, IdMap, NumberPool
from hyroads.slices.proxy.region import Regions

MINE, WEB, PRODUCTION = Block(2, 40, 4), Block(3, 50, 4), Block(1, 20, 8)
NEXT = 0xFFFE
ANY, CONTROLLER, FLOOD = 0xFFFF_FFFF, 0xFFFF_FFFD, 0xFFFF_FFFB
# Ports 1 and 2 are mine; web traffic is another slice's there, if it has entries.
PORTS = [ClassifierEntry(100, at_port(ALL, port), MINE) for port in (1, 2)]
WEB_TRAFFIC = [ClassifierEntry(200, match, WEB) for match in completed({"tcp_dst": 80})]


def guest(*others: ClassifierEntry, queue: int | None = None) -> GuestView:
    pool = NumberPool(1, 99)
    found = GuestView(
        MINE,
        frozenset({1, 2}),
        Regions([*others, *PORTS, ClassifierEntry(0, ALL, PRODUCTION)]),
        IdMap(pool, 9),
        IdMap(pool, 9),
    )
    found.queue = queue
    return found


def rule(*actions: act.Action) -> bytes:
    fields = wire.match_fields(Match(in_port=1))
    return wire.message(wire.flow_mod_body(wire.ADD, 0, 9, fields, wire.instructions(actions, None)), 3)


def group_mod(command: int, number: int, *buckets: bytes) -> bytes:
    return wire.message(struct.pack("!HBxI", command, 0, number) + b"".join(buckets), 99, wire.GROUP_MOD)


def bucket(*actions: act.Action) -> bytes:
    body = wire.actions(actions)
    return struct.pack("!HHII4x", 16 + len(body), 0, 0xFFFFFFFF, 0xFFFFFFFF) + body


def test_packet_whose_header_is_not_known_any_more_enters_no_group_beside_another_slice() -> None:
    """Behind a resubmit, or out of a tunnel, it may be the other slice's traffic: the group was checked for mine."""
    for first in ((act.Resubmit(3),), (act.Decap(NEXT), act.Decap(0))):
        alone, beside = guest(), guest(*WEB_TRAFFIC)
        for view in (alone, beside):
            translate_group_mod(group_mod(0, 5, bucket(act.Output(2))), view)
        assert translate(rule(*first, act.Group(5)), alone)
        with pytest.raises(Refused) as refused:
            translate(rule(*first, act.Group(5)), beside)
        assert (refused.value.kind, refused.value.code) == (2, 6)


def test_packet_without_its_ethernet_header_leaves_to_no_place() -> None:
    view = guest()
    translate_group_mod(group_mod(0, 5, bucket(act.Output(2))), view)
    # Whether the packet has one again at the end does not matter.
    for after in ((), (act.Decap(0),)):
        for leaving in (act.Group(5), act.Output(2), act.Output(FLOOD), act.Output(CONTROLLER), act.Resubmit(3)):
            assert translate(rule(act.Decap(NEXT), *after, leaving), view) if after else True
            with pytest.raises(Refused) as refused:
                translate(rule(act.Decap(NEXT), leaving, *after), view)
            assert (refused.value.kind, refused.value.code) == (2, 5)


def test_groups_never_lead_back_to_themselves() -> None:
    view = guest()
    for number, onward in ((1, ()), (2, (1,)), (3, (2,))):
        translate_group_mod(group_mod(0, number, bucket(*(act.Group(each) for each in onward))), view)
    for onward in (1, 2, 3):
        with pytest.raises(Refused) as refused:
            translate_group_mod(group_mod(1, 1, bucket(act.Group(onward))), view)
        assert (refused.value.kind, refused.value.code) == (6, 7), onward
    translate_group_mod(group_mod(1, 2, bucket(act.Output(2))), view)
    assert translate_group_mod(group_mod(1, 1, bucket(act.Group(2))), view), "2 leads to 1 no more"


def watching(port: int, group: int) -> bytes:
    return struct.pack("!HHII4x", 16, 0, port, group)


@pytest.mark.parametrize("group", [ANY, 0, 5, 6, 7, 8])
@pytest.mark.parametrize("port", [ANY, 0, 1, 2, 3, CONTROLLER])
def test_buckets_watch_ports_and_groups_of_the_slice_alone(port: int, group: int) -> None:
    view = guest()
    for number in (6, 7):
        translate_group_mod(group_mod(0, number, bucket(act.Output(2))), view)
    message = wire.message(struct.pack("!HBxI", 0, 3, 5) + watching(port, group), 1, wire.GROUP_MOD)
    is_valid = port in (1, 2, ANY) and group in (6, 7, ANY)
    if is_valid and (port, group) != (ANY, ANY):
        [sent] = translate_group_mod(message, view)
        real = view.groups.real(group) if group != ANY else ANY
        assert struct.unpack_from("!HHII", sent, 16) == (16, 0, port, real), "by the number that the switch has"
        return
    with pytest.raises(Refused) as refused:
        translate_group_mod(message, view)
    assert (refused.value.kind, refused.value.code) == (6, 1 if is_valid else 14)


CHAINING = ("change", "delete", "delete all", "wrong command", "unknown port")


def play_chains(_: int, row: list[tuple[str, int]]) -> None:
    """Which groups lead to which others, as the guest has said; a group that would lead to itself is refused."""
    view, leads = guest(), dict[int, set[int]]()
    view.groups.quota = 3
    for kind, choice in row:
        rng = random.Random(choice)
        number, known = rng.randrange(1, 5), sorted(leads) if leads and rng.random() < 0.9 else range(1, 5)
        onward = {rng.choice(known) for _ in range(rng.randrange(3))}
        if kind.startswith("delete"):
            if kind == "delete all" and rng.random() < 0.8:
                continue
            translate_group_mod(group_mod(2, ANY if kind == "delete all" else number), view)
            leads = {n: to for n, to in leads.items() if n != number and kind != "delete all"}
            assert view.chains == leads
            continue
        # Each bucket leads to one group, after another action.
        buckets = [bucket(act.SetEthDst("02:00:00:00:00:01"), act.Group(each)) for each in sorted(onward)]
        buckets += [bucket(act.Output(77))] if kind == "unknown port" else []
        is_modify = (number in leads) is not (kind == "wrong command")
        command = wire.GROUP_MODIFY if is_modify else wire.GROUP_ADD
        fits = number in leads or len(leads) < view.groups.quota
        if kind == "change" and fits and onward <= leads.keys() and number not in reached(leads, onward):
            translate_group_mod(group_mod(command, number, *buckets), view)
            leads[number] = onward
        else:
            with pytest.raises(Refused):
                translate_group_mod(group_mod(command, number, *buckets), view)
        assert view.groups.pairs().keys() == leads.keys() and view.chains == leads


def reached(leads: dict[int, set[int]], start: set[int]) -> set[int]:
    """All groups to which some lead, with themselves."""
    found = set(start)
    for _ in leads:
        found |= {onward for number in found & leads.keys() for onward in leads[number]}
    return found


def test_group_is_refused_exactly_if_it_leads_to_itself_or_to_none_through_any_row_of_changes() -> None:
    swarm(500, lambda rng: events(rng, CHAINING, 30, ("change",)), play_chains)


@pytest.mark.parametrize(("number", "is_a_meter"), [(0, False), (1, True), (0xFFFF_0000, True), (0xFFFF_0001, False)])
def test_meter_numbers_begin_at_one_and_end_where_openflow_reserves_them(number: int, is_a_meter: bool) -> None:
    message = wire.message(struct.pack("!HHI", 0, 1, number), 1, wire.METER_MOD)
    if is_a_meter:
        assert translate_meter_mod(message, guest())
        return
    with pytest.raises(Refused) as refused:
        translate_meter_mod(message, guest())
    assert (refused.value.kind, refused.value.code) == (12, 2)


POP_VLAN = struct.pack("!HH4x", 18, 8)


@pytest.mark.parametrize("before", [b"", bucket(act.Output(2))], ids=["first", "second"])
@pytest.mark.parametrize("missing", [0, 8])
@pytest.mark.parametrize("length", range(0, 57, 4))
def test_bucket_has_its_head_and_whole_actions_and_lies_within_the_message(
    length: int, missing: int, before: bytes
) -> None:
    content = struct.pack("!HHII4x", length, 0, ANY, ANY) + POP_VLAN * 6
    message = group_mod(0, 5, before, content[: max(16, length) - missing])
    if length >= 16 and not length % 8 and not missing:
        [sent] = translate_group_mod(message, guest())
        assert sent[16:] == message[16:]
        return
    with pytest.raises(Refused) as refused:
        translate_group_mod(message, guest())
    assert (refused.value.kind, refused.value.code) == (6, 13)


@pytest.mark.parametrize("after", [b"", POP_VLAN], ids=["last", "not last"])
@pytest.mark.parametrize("length", range(0, 41, 4))
def test_action_of_a_bucket_lies_within_it(length: int, after: bytes) -> None:
    """A bucket with an action of 8 bytes that says that it has another length."""
    actions = struct.pack("!HH4x", 18, length) + after
    message = group_mod(0, 5, struct.pack("!HHII4x", 16 + len(actions), 0, ANY, ANY) + actions)
    if length == 8:
        assert translate_group_mod(message, guest())
        return
    with pytest.raises(Refused) as refused:
        translate_group_mod(message, guest())
    assert (refused.value.kind, refused.value.code) == (2, 1)


@pytest.mark.parametrize("rest", [0, 8])
@pytest.mark.parametrize("length", range(0, 41, 4))
def test_bands_of_a_meter_have_16_bytes(length: int, rest: int) -> None:
    """A switch has nothing else: band types drop and remark, section 7.3.4.4."""
    bands = struct.pack("!HHII4x", 1, 16, 100, 0) + struct.pack("!HH", 1, length) + bytes(max(12, length - 4 + rest))
    message = wire.message(struct.pack("!HHI", 0, 1, 5) + bands, 1, wire.METER_MOD)
    if length == 16 and not rest:
        [sent] = translate_meter_mod(message, guest())
        assert sent[16:] == bands
        return
    with pytest.raises(Refused) as refused:
        translate_meter_mod(message, guest())
    assert (refused.value.kind, refused.value.code) == (1, 6)


def test_buckets_of_flood_groups_have_the_length_that_they_say() -> None:
    for queue, size in ((None, 32), (7, 40)):
        found = flood_buckets({1, 2}, queue)
        assert len(found) == 2 + 2 * size
        assert [struct.unpack_from("!HHII", found, 2 + at * size) for at in (0, 1)] == [(size, 0, ANY, ANY)] * 2


def test_group_numbers_end_where_openflow_reserves_them() -> None:
    assert translate_group_mod(group_mod(0, 0xFFFF_FF00), guest())
    with pytest.raises(Refused):
        translate_group_mod(group_mod(0, 0xFFFF_FF01), guest())


@pytest.mark.parametrize(("buckets", "fits"), [(1637, True), (1638, False)])
def test_group_that_gets_too_long_by_the_slices_queue_is_refused(buckets: int, fits: bool) -> None:
    message = group_mod(0, 5, *[bucket(act.Output(2))] * buckets)
    assert len(message) < 0xFFFF
    if fits:
        [sent] = translate_group_mod(message, guest(queue=7))
        assert len(sent) == 16 + buckets * 40 == int.from_bytes(sent[2:4], "big")
    else:
        with pytest.raises(Refused) as refused:
            translate_group_mod(message, guest(queue=7))
        assert (refused.value.kind, refused.value.code) == (1, 6)


NUMBERS, QUOTA = range(1, 9), 4
KINDS = ("add", "remove", "known from before", "gone at the switch", "clear")


def play_numbers(_: int, row: list[tuple[str, int]]) -> None:
    """Two slices share the numbers of a switch. ``held`` has the guest's numbers of each, by the switch's."""
    pool = NumberPool(NUMBERS[0], NUMBERS[-1])
    ids: list[IdMap] = [IdMap(pool, QUOTA), IdMap(pool, QUOTA)]
    held: list[dict[int, int]] = [{}, {}]
    for kind, choice in row:
        rng = random.Random(choice)
        which = rng.randrange(2)
        mine, own, guest_number = ids[which], held[which], rng.randrange(100, 106)
        free = sorted(set(NUMBERS) - held[0].keys() - held[1].keys())
        if kind == "add":
            found = mine.add(guest_number)
            if guest_number in own.values():
                assert found is not None and own[found] == guest_number, "a number that is there stays"
            elif not free or len(own) >= QUOTA:
                assert found is None
            else:
                assert found == free[0], "the lowest that nothing else has"
                own[found] = guest_number
        elif kind == "known from before" and free and guest_number not in own.values():
            own[real := rng.choice(free)] = guest_number
            mine.put(guest_number, real)
        elif kind == "remove":
            there = {number: real for real, number in own.items()}
            assert mine.remove(guest_number) == there.get(guest_number)
            own.pop(there.get(guest_number, 0), None)
        elif kind == "gone at the switch":
            real = rng.choice(NUMBERS)
            assert mine.forget(real) is (real in own)
            own.pop(real, None)
        elif kind == "clear" and rng.random() < 0.3:
            assert sorted(mine.clear()) == sorted(own)
            own.clear()
        for each, there in zip(ids, held, strict=True):
            assert each.pairs() == {number: real for real, number in there.items()} and len(each) == len(there)
            assert all(each.guest(real) == there.get(real) for real in NUMBERS)


def test_no_two_groups_have_one_number_of_the_switch_however_they_come_and_go() -> None:
    swarm(300, lambda rng: events(rng, KINDS, 25, ("add",)), play_numbers)

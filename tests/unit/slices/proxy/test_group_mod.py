"""Groups of guests: what enters them, which lead to which, and how large their messages get."""

from __future__ import annotations

import struct

import pytest

from hyroads.controller.ofp import match as act
from hyroads.controller.ofp import wire
from hyroads.controller.ofp.match import Match
from hyroads.slices.core.allocation import Block
from hyroads.slices.core.classifier import ClassifierEntry, at_port
from hyroads.slices.core.errors import Refused
from hyroads.slices.core.match import ALL, completed
from hyroads.slices.proxy.flow_mod import translate
from hyroads.slices.proxy.group_mod import translate_group_mod
from hyroads.slices.proxy.guest_view import GuestView, IdMap, NumberPool
from hyroads.slices.proxy.region import Regions

MINE, WEB, PRODUCTION = Block(2, 40, 4), Block(3, 50, 4), Block(1, 20, 8)
NEXT = 0xFFFE
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


def test_packet_without_its_ethernet_header_enters_no_group() -> None:
    view = guest()
    translate_group_mod(group_mod(0, 5, bucket(act.Output(2))), view)
    with pytest.raises(Refused) as refused:
        translate(rule(act.Decap(NEXT), act.Group(5)), view)
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

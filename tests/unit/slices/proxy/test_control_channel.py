"""Transaction ids, roles, limits and ports of guests."""

from __future__ import annotations

import struct

import pytest

from hyroads.controller.ofp import guard, wire
from hyroads.slices.core.errors import Refused
from hyroads.slices.proxy import xids as xids_module
from hyroads.slices.proxy.ports import event_port, own_records, status_messages
from hyroads.slices.proxy.roles import EQUAL, MASTER, NO_CHANGE, SLAVE, Roles
from hyroads.slices.proxy.xids import FIRST_OWN, EntryQuota, Xids, answer


def test_answers_go_back_to_who_asked_under_its_own_id() -> None:
    xids = Xids(first=FIRST_OWN - 1)
    requests = [wire.barrier_request(7), wire.barrier_request(7), wire.message(b"x" * 100, 9)]
    sent = [xids.send(guest, message, message) for guest, message in enumerate(requests)]
    numbers = [int.from_bytes(message[4:8], "big") for message in sent]
    assert len(set(numbers)) == 3 and 0 not in numbers and max(numbers) < FIRST_OWN
    for guest in (1, 0):
        reply = wire.message(b"", numbers[guest], wire.BARRIER_REPLY)
        asked = xids.asked(reply)
        assert asked is not None and asked.guest == guest
        assert answer(asked, reply) == wire.message(b"", 7, wire.BARRIER_REPLY)
        assert xids.asked(reply) is None, "answered once"
    error = Refused(5, 1, "").message(sent[2][:30])
    asked = xids.asked(error)
    assert asked is not None
    found = answer(asked, error)
    guard.check(found)
    assert found[8:12] == struct.pack("!HH", 5, 1) and found[12:] == requests[2][:64]


def test_messages_without_an_answer_are_forgotten_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xids_module, "MOST_WAITING", 10)
    xids = Xids()
    first = xids.send(1, wire.barrier_request(1), wire.barrier_request(1))
    for _ in range(11):
        last = xids.send(2, wire.barrier_request(1), wire.barrier_request(1))
    assert len(xids) == 11 and xids.asked(last, last=False) is not None
    xids.forget(2)
    assert len(xids) == 1 and xids.asked(first) is not None, "another guest's flood changes nothing"
    assert not len(xids)


def role_request(role: int, generation: int = 0) -> bytes:
    return wire.message(struct.pack("!I4xQ", role, generation), 3, 24)


def role_of(reply: bytes) -> int:
    return int.from_bytes(reply[8:12], "big")


def test_one_master_and_slaves_that_change_nothing() -> None:
    roles = Roles()
    assert role_of(roles.request(1, role_request(NO_CHANGE))) == EQUAL
    assert role_of(roles.request(1, role_request(MASTER, 5))) == MASTER
    assert role_of(roles.request(2, role_request(MASTER, 6))) == MASTER
    assert (roles.role(1), roles.role(2), roles.role(3)) == (SLAVE, MASTER, EQUAL)
    with pytest.raises(Refused) as caught:
        roles.check(1)
    assert (caught.value.kind, caught.value.code) == (1, 10)
    roles.check(2)
    roles.check(3)
    roles.leave(1)
    assert roles.role(1) == EQUAL


@pytest.mark.parametrize("first", [5, (1 << 64) - 1])
def test_old_generations_are_stale(first: int) -> None:
    roles = Roles()
    roles.request(1, role_request(MASTER, first))
    roles.request(1, role_request(SLAVE, (first + 1) % (1 << 64)))
    with pytest.raises(Refused) as caught:
        roles.request(2, role_request(MASTER, first))
    assert (caught.value.kind, caught.value.code) == (11, 0)
    assert role_of(roles.request(2, role_request(EQUAL, first))) == EQUAL, "equal has no generation"
    for message, error in ((role_request(4), (11, 2)), (role_request(1)[:20], (1, 6))):
        with pytest.raises(Refused) as caught:
            roles.request(2, message)
        assert (caught.value.kind, caught.value.code) == error


def test_the_quota_counts_what_was_added_since_the_switch_counted() -> None:
    quota = EntryQuota(3)
    assert [quota.add() for _ in range(4)] == [True, True, True, False]
    quota.counted(1, added_since_request=1)
    assert quota.used == 2 and quota.add() and not quota.add()


def test_a_refused_entry_has_the_switch_count_again() -> None:
    quota = EntryQuota(10)
    quota.counted(10)
    assert not quota.due
    assert not quota.add() and quota.due, "some may have been deleted since"
    quota.counted(0)
    assert not quota.due and quota.add() and not quota.due
    assert all(quota.add() for _ in range(8)) and quota.due, "nearly full"


def port_record(number: int, size: int) -> bytes:
    return struct.pack("!I", number) + bytes([number]) * (size - 4)


@pytest.mark.parametrize(("kind", "size"), [(13, 64), (4, 112), (5, 40)])
def test_only_own_ports_are_described(kind: int, size: int) -> None:
    body = b"".join(port_record(number, size) for number in range(1, 6))
    assert own_records(kind, body, {2, 4, 9}) == port_record(2, size) + port_record(4, size)


def test_ports_that_a_slice_loses_or_gets_are_events() -> None:
    descriptions = {number: port_record(number, 64) for number in (1, 2, 3)}
    found = status_messages({1, 2}, {2, 3, 9}, descriptions)
    for message in found:
        guard.check(message)
    assert [(message[8], event_port(message)) for message in found] == [(1, 1), (0, 3)]


def test_the_generation_outlives_connections() -> None:
    roles = Roles()
    roles.request(1, role_request(MASTER, 5))
    roles.leave(1)
    with pytest.raises(Refused):
        roles.request(2, role_request(MASTER, 4))
    assert roles.role(2) == EQUAL
    assert role_of(roles.request(2, role_request(SLAVE, 5))) == SLAVE

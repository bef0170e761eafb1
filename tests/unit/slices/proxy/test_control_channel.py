"""Transaction ids, roles, limits and ports of guests."""

from __future__ import annotations

import random
import struct

import pytest
from swarm import events, swarm

from hyroads.controller.ofp import guard, wire
from hyroads.slices.core.errors import Refused
from hyroads.slices.proxy import discovery
from hyroads.slices.proxy import xids as xids_module
from hyroads.slices.proxy.ports import event_port, own_records, status_messages
from hyroads.slices.proxy.roles import EQUAL, MASTER, NO_CHANGE, SLAVE, AsyncConfig, Roles
from hyroads.slices.proxy.xids import FIRST_OWN, REMEMBERED_S, Buffers, EntryQuota, Xids, answer


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


FEW_XIDS = 9
"""Ids begin at 1 again from here on: of 8 ids up to 6 are in use."""


def play_answers(_: int, row: list[tuple[str, int]]) -> None:
    """Per guest the messages without a last answer, oldest first, at most three."""
    xids, waiting = Xids(first=FEW_XIDS - 2), dict[int, tuple[int, bytes]]()
    for kind, choice in row:
        rng = random.Random(choice)
        guest, anything = rng.randrange(2), rng.choice([*waiting, 0, FIRST_OWN])
        if kind == "send":
            request = wire.message(rng.randbytes(4), rng.randrange(1 << 32), wire.BARRIER_REQUEST)
            sent = xids.send(guest, request, request)
            xid = int.from_bytes(sent[4:8], "big")
            assert 0 < xid < FEW_XIDS and xid not in waiting
            assert sent[:4] + sent[8:] == request[:4] + request[8:]
            waiting[xid] = guest, request
            mine = [each for each, (owner, _) in waiting.items() if owner == guest]
            waiting.pop(mine[0] if len(mine) > 3 else 0, None)
        elif kind in ("answer", "part of an answer"):
            found = xids.asked(wire.message(b"", anything, wire.BARRIER_REPLY), last=kind == "answer")
            expected = waiting.get(anything)
            assert (found and (found.guest, found.request)) == expected
            assert found is None or found.xid == int.from_bytes(found.request[4:8], "big")
            if kind == "answer":
                waiting.pop(anything, None)
        else:
            xids.forget(guest)
            waiting = {xid: there for xid, there in waiting.items() if there[0] != guest}
        assert len(xids) == len(waiting)


def test_answers_are_of_the_guest_that_sent_the_message_through_any_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xids_module, "MOST_WAITING", 3)
    monkeypatch.setattr(xids_module, "FIRST_XID", FEW_XIDS)
    kinds = ("send", "answer", "part of an answer", "forget")
    swarm(300, lambda rng: events(rng, kinds, 30, ("send",)), play_answers)


def play_buffers(_: int, row: list[tuple[str, int]]) -> None:
    """The latest four buffers that a slice was told of, oldest first, with the slice and the time."""
    buffers, known, now_s = Buffers(), list[tuple[int, int, float]](), 0.0
    for kind, choice in row:
        rng = random.Random(choice)
        buffer, number = rng.randrange(6), rng.randrange(2)
        now_s += rng.choice((0.0, 1.0, REMEMBERED_S)) if kind == "time" else 0.0
        if kind == "packet-in":
            buffers.tell(buffer, number, now_s)
            known = [*(each for each in known if each[0] != buffer), (buffer, number, now_s)][-4:]
        elif kind == "take":
            mine = [each for each in known if each[:2] == (buffer, number)]
            assert buffers.take(buffer, number, now_s) is any(now_s - told_s <= REMEMBERED_S for *_, told_s in mine)
            known = [each for each in known if each not in mine]
        assert len(buffers) == len(known)


def test_buffer_is_taken_once_by_its_slice_and_for_a_while_through_any_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xids_module, "MOST", 4)
    swarm(300, lambda rng: events(rng, ("packet-in", "take", "time"), 40, ("packet-in", "take")), play_buffers)


def play_arrivals(_: int, row: list[tuple[str, int]]) -> None:
    """When a frame was first at a port: the latest four, no older than frames count."""
    arrivals, seen, now_s = discovery.Arrivals(), dict[tuple[int, bytes], float](), 0.0
    for kind, choice in row:
        rng = random.Random(choice)
        port, proof = rng.randrange(3), bytes([rng.randrange(3)])
        now_s += rng.choice((0.0, 1.0, discovery.FRESH_S, discovery.FRESH_S + 1)) if kind == "time" else 0.0
        if kind == "frame":
            is_first = (port, proof) not in seen
            assert arrivals.first(port, proof, now_s) is is_first
            if is_first:
                fresh = [(each, at_s) for each, at_s in seen.items() if now_s - at_s <= discovery.FRESH_S]
                seen = dict([*fresh, ((port, proof), now_s)][-4:])
            assert len(arrivals) == len(seen)


def test_frame_is_first_at_a_port_once_through_any_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "MOST_ARRIVALS", 4)
    swarm(300, lambda rng: events(rng, ("frame", "time"), 40, ("frame",)), play_arrivals)


def play_roles(_: int, row: list[tuple[str, int]]) -> None:
    """At most one master; what is older than the last generation, by the distance modulo 2^64, changes nothing."""
    roles, known, last = Roles(), dict[int, int](), None
    for kind, choice in row:
        rng = random.Random(choice)
        guest, role = rng.randrange(3), rng.randrange(4)
        if kind == "leave":
            roles.leave(guest)
            known.pop(guest, None)
        else:
            step = rng.choice((0, 1, -1, (1 << 63) - 1, 1 << 63, 1 << 62))
            generation = ((last or 0) + step) % (1 << 64)
            counts = role in (MASTER, SLAVE)
            is_stale = counts and last is not None and (generation - last) % (1 << 64) >= 1 << 63
            if is_stale:
                with pytest.raises(Refused) as caught:
                    roles.request(guest, role_request(role, generation))
                assert (caught.value.kind, caught.value.code) == (11, 0)
            else:
                last = generation if counts else last
                if role == MASTER:
                    known = {each: SLAVE if was == MASTER else was for each, was in known.items()}
                known |= {} if role == NO_CHANGE else {guest: role}
                reply = roles.request(guest, role_request(role, generation))
                expected = struct.pack("!I4xQ", known.get(guest, EQUAL), (1 << 64) - 1 if last is None else last)
                assert reply == wire.message(expected, 3, wire.ROLE_REPLY)
        for each in range(3):
            assert roles.role(each) == known.get(each, EQUAL)
            if known.get(each) == SLAVE:
                with pytest.raises(Refused) as caught:
                    roles.check(each)
                assert (caught.value.kind, caught.value.code) == (1, 10)
            else:
                roles.check(each)


def test_roles_follow_requests_through_any_row() -> None:
    swarm(300, lambda rng: events(rng, ("request", "leave"), 25, ("request",)), play_roles)


def play_quota(_: int, row: list[tuple[str, int]]) -> None:
    quota, counted, added, is_refused = EntryQuota(5), 0, 0, False
    for kind, choice in row:
        if kind == "add":
            fits = counted + added < 5
            assert quota.add() is fits
            added, is_refused = added + fits, is_refused or not fits
        else:
            counted, added, is_refused = choice % 7, choice // 7 % 3, False
            quota.counted(counted, added)
        assert quota.used == counted + added
        assert quota.due is (is_refused or (added > 0 and counted + added > 4))


def test_entries_are_counted_as_the_switch_said_and_what_was_added_since() -> None:
    swarm(100, lambda rng: events(rng, ("add", "count"), 20, ("add",)), play_quota)


@pytest.mark.parametrize("seed", range(5))
def test_guest_gets_the_events_whose_bits_it_has_set_for_its_role(seed: int) -> None:
    """Two masks for each kind of event, in the order packet-in, port-status, flow-removed (section 7.3.10)."""
    rng = random.Random(seed)
    masks = [rng.getrandbits(32) for _ in range(6)]
    message = wire.message(struct.pack("!6I", *masks), 1, 28)
    config = AsyncConfig.of_message(message)
    for place, kind in enumerate((wire.PACKET_IN, wire.PORT_STATUS, 11)):
        for role in (EQUAL, MASTER, SLAVE):
            mask = masks[2 * place + (role == SLAVE)]
            assert config.reasons(kind, role) == mask
            assert [config.wants(kind, reason, role) for reason in range(33)] == [
                bool(mask >> min(reason, 31) & 1) for reason in range(33)
            ]
    for wrong in (message[:-1], message + b"\0", message[:8]):
        with pytest.raises(Refused) as caught:
            AsyncConfig.of_message(wrong)
        assert (caught.value.kind, caught.value.code) == (1, 6)


def test_slaves_hear_of_ports_alone_unless_they_say_otherwise() -> None:
    config = AsyncConfig()
    for role in (EQUAL, MASTER):
        assert all(config.wants(kind, reason, role) for kind in (wire.PACKET_IN, 12, 11) for reason in range(3))
    assert [config.wants(kind, 0, SLAVE) for kind in (wire.PACKET_IN, wire.PORT_STATUS, 11)] == [False, True, False]


@pytest.mark.parametrize("size", [8, 16, 23, 25, 32])
def test_role_request_of_another_length_is_refused(size: int) -> None:
    with pytest.raises(Refused) as caught:
        Roles().request(1, (role_request(EQUAL) + bytes(8))[:size])
    assert (caught.value.kind, caught.value.code) == (1, 6)


@pytest.mark.parametrize("quoted", [8, 63, 64, 65, 200])
@pytest.mark.parametrize("is_error", [True, False])
def test_answer_has_the_guests_id_and_an_error_quotes_its_request(quoted: int, is_error: bool) -> None:
    xids, request = Xids(), wire.message(bytes(range(200))[: quoted - 8], 77, wire.MULTIPART_REQUEST)
    sent = xids.send(3, request, wire.barrier_request(5), lambda: "undone", now_s=4.0)
    content = b"\0\1\0\6" + sent[:20]
    reply = wire.message(content, int.from_bytes(sent[4:8], "big"), 1 if is_error else wire.MULTIPART_REPLY)
    found = xids.asked(reply)
    assert found is not None and (found.guest, found.xid, found.sent_s) == (3, 77, 4.0)
    assert found.undo is not None and found.undo() == "undone"
    content = content[:4] + request[:64] if is_error else content
    assert answer(found, reply) == wire.message(content, 77, reply[1])

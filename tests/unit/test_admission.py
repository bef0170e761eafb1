"""Places at a port: many connections displace their own, addresses that are known keep theirs, and time runs out."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from swarm import events, swarm

from hyroads.controller.core import admission
from hyroads.controller.core.admission import REMEMBERED, Admission, FairPlaces, Limits, network_of

LIMITS = Limits(strangers=8, known=4, within_s=5.0, each=2)
HOSTILE = [f"192.0.2.{number}" for number in range(100)]


def test_an_address_with_many_connections_displaces_its_own_oldest() -> None:
    admission = Admission(LIMITS)
    friend, _ = admission.opened("198.51.100.1", 0.0)
    opened = [admission.opened("192.0.2.1", 0.01 * number) for number in range(50)]
    assert [ended for _, ended in opened[:7]] == [None] * 7
    assert [ended for _, ended in opened[7:]] == [number for number, _ in opened[:43]]
    assert admission.authenticated(friend, "friend")


def test_the_oldest_goes_first_where_each_address_has_one() -> None:
    admission = Admission(LIMITS)
    first = [admission.opened(address, 0.0)[0] for address in HOSTILE[:8]]
    later = [admission.opened(address, 1.0)[1] for address in HOSTILE[8:12]]
    assert later == first[:4]


def test_known_addresses_have_places_that_strangers_cannot_take() -> None:
    admission = Admission(LIMITS)
    number, _ = admission.opened("198.51.100.1", 0.0)
    assert admission.authenticated(number, "friend")
    again, _ = admission.opened("198.51.100.1", 1.0)
    for address in HOSTILE * 3:
        assert admission.opened(address, 1.0)[1] != again
    assert admission.authenticated(again, "friend")


def test_one_name_has_a_bounded_number_and_gets_its_places_back() -> None:
    admission = Admission(LIMITS)
    numbers = [admission.opened("198.51.100.1", 0.0)[0] for _ in range(3)]
    assert [admission.authenticated(number, "viewer") for number in numbers] == [True, True, False]
    assert admission.authenticated(numbers[0], "viewer"), "one that has its place keeps it"
    admission.closed(numbers[0])
    assert admission.authenticated(numbers[2], "viewer")
    other, _ = admission.opened("198.51.100.2", 0.0)
    assert admission.authenticated(other, "admin")


def test_time_runs_out_for_strangers_only() -> None:
    admission = Admission(LIMITS)
    friend, _ = admission.opened("198.51.100.1", 0.0)
    first, _ = admission.opened("192.0.2.1", 0.0)
    second, _ = admission.opened("192.0.2.1", 2.0)
    assert admission.authenticated(friend, "friend")
    assert admission.overdue(5.0) == []
    assert admission.overdue(5.1) == [first]
    assert admission.overdue(7.1) == [second]
    assert not admission.authenticated(first, "late")
    assert len(admission) == 1


def test_of_addresses_a_bounded_number_is_remembered() -> None:
    admission = Admission(Limits(8, 4, 5.0))
    for number in range(REMEMBERED + 1):
        connection, _ = admission.opened(f"host {number}", 0.0)
        assert admission.authenticated(connection, "friend")
        admission.closed(connection)
    assert len(admission._addresses) == REMEMBERED
    assert "host 0" not in admission._addresses


def test_a_subscriber_has_one_ipv4_address_or_64_bits_of_ipv6() -> None:
    assert network_of("2001:db8:1:2::1") == network_of("2001:db8:1:2:ffff::9")
    assert network_of("2001:db8:1:2::1") != network_of("2001:db8:1:3::1")
    assert network_of("::ffff:192.0.2.1") == network_of("192.0.2.1") != network_of("192.0.2.2")
    assert network_of("fe80::1%eth0") == network_of("fe80::2")
    assert network_of("local") == "local"


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("ome"), st.integers(0, 5), st.integers(0, 40)), max_size=80))
def test_places_are_bounded_shared_and_given_back(steps: list[tuple[str, int, int]]) -> None:
    """Against a plain count: never more than there are, and whoever has most gives way."""
    places, held, number = FairPlaces(6), dict[int, str](), 0
    for what, who, which in steps:
        group = f"g{who}"
        if what == "e" and held:
            gone = sorted(held)[which % len(held)]
            assert places.leave(gone)
            assert not places.leave(gone)
            del held[gone]
            continue
        sizes = {each: list(held.values()).count(each) for each in held.values()}
        for place, owner in held.items():
            # After the exchange the group that took the place must still have fewer than the owner has now.
            assert places.may_displace(place, group) == (sizes.get(group, 0) + 1 < sizes[owner])
        ended = places.gives_way(group)
        assert (ended is None) == (len(held) < 6)
        if ended is not None:
            loser, most = held[ended], max(sizes.values())
            assert sizes[loser] + (loser == group) >= most
            assert ended == min(number for number, each in held.items() if each == loser)
            assert loser == group or sizes.get(group, 0) + 1 < most or group not in sizes
            places.leave(ended)
            del held[ended]
        number += 1
        places.enter(number, group)
        held[number] = group
        assert len(places) == len(held) <= 6
        assert all(places.size_of(each) == list(held.values()).count(each) for each in {*held.values(), group})


FEW = Limits(strangers=4, known=3, within_s=5.0, each=2)
KINDS = ("opened", "authenticated", "closed", "time")


class Door:
    """The rules of one port, from plain lists of connections. Each has (since, address), oldest first."""

    def __init__(self) -> None:
        self.waiting: dict[int, tuple[float, str, bool]] = {}
        """By number since when, from where, and whether that address was known when it came."""
        self.names: dict[int, str] = {}
        self.known: list[str] = []
        """The latest two addresses from where somebody was authenticated, the latest last."""

    def leaving_for(self, address: str) -> int | None:
        """Of as many as there are places, the oldest one of the address that has most, which may be the same one."""
        is_known = address in self.known
        rivals = [number for number, (_, _, known) in self.waiting.items() if known is is_known]
        if len(rivals) < (FEW.known if is_known else FEW.strangers):
            return None
        of = {number: self.waiting[number][1] for number in rivals}
        sizes = {each: list(of.values()).count(each) for each in of.values()}
        if sizes.get(address, 0) and sizes[address] + 1 >= max(sizes.values()):
            return min(number for number in rivals if of[number] == address)
        return None if not rivals else -max(sizes.values())

    def is_admitted(self, number: int, name: str) -> bool:
        if number in self.names:
            return True
        return number in self.waiting and list(self.names.values()).count(name) < (FEW.each or 0)


def play_door(_: int, row: list[tuple[str, int]]) -> None:
    port, door, now_s = Admission(FEW), Door(), 0.0
    for kind, choice in row:
        rng = random.Random(choice)
        there = [*door.waiting, *door.names, 999]
        if kind == "opened":
            address = f"192.0.2.{rng.randrange(4)}"
            expected = door.leaving_for(address)
            number, ended = port.opened(address, now_s)
            assert number not in there
            if expected is None or expected >= 0:
                assert ended == expected
            else:
                # Of several addresses with most connections any one loses its oldest.
                assert ended is not None
                is_known = address in door.known
                of = [each for each in door.waiting if door.waiting[each][1:] == (door.waiting[ended][1], is_known)]
                assert len(of) == -expected and ended == min(of)
            door.waiting.pop(ended or 0, None)
            door.waiting[number] = now_s, address, address in door.known
        elif kind == "authenticated":
            number, name = rng.choice(there), rng.choice("vw")
            assert port.authenticated(number, name) is door.is_admitted(number, name)
            if number in door.waiting and door.is_admitted(number, name):
                address = door.waiting.pop(number)[1]
                door.known = [*(each for each in door.known if each != address), address][-2:]
                door.names[number] = name
        elif kind == "closed":
            number = rng.choice(there)
            port.closed(number)
            door.waiting.pop(number, None)
            door.names.pop(number, None)
        else:
            now_s += rng.choice((0.0, 1.0, 2.5, 5.0, 5.1))
            late = [number for number, (since_s, *_) in door.waiting.items() if now_s - since_s > FEW.within_s]
            assert port.overdue(now_s) == late
            for number in late:
                del door.waiting[number]
        assert len(port) == len(door.waiting) + len(door.names)


def test_connections_come_and_go_as_plain_lists_of_them_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "REMEMBERED", 2)
    swarm(600, lambda rng: events(rng, KINDS, 60, ("opened",)), play_door)

"""Laws of clients and their places, on random rows of events, against a naive account of who was heard where."""

from dataclasses import replace
from random import Random

import pytest
import swarm
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.core.network import Place
from hyroads.controller.core.services.client_tables import (
    Change,
    ClientError,
    Clients,
    Evidence,
    Happened,
    Interface,
    Limits,
)
from hyroads.controller.core.services.clients import (
    address_seen,
    associated,
    binding,
    decided,
    expired,
    expiring,
    forgotten,
    handed_over,
    heard,
    left,
    place_down,
    reported,
    seen,
    signal,
    tells,
    untold,
)

A, B, WIRE = Place("a", "wifi"), Place("b", "wifi"), Place("a", "host")
PLACES = (A, B, WIRE, Place("b", "plc"))
ME, YOU = "02:00:00:00:00:01", "02:00:00:00:00:02"
LIMITS = Limits(interfaces=6, per_place=3, addresses_per_mac=2, quiet_s=3.0, forget_s=30.0)


def mac(number: int) -> str:
    return f"02:00:00:00:01:{number:02x}"


def where(state: Clients, who: str) -> Place | None:
    return state.interfaces[who].place if who in state.interfaces else None


def moved(state: Clients, who: str, place: Place, now_s: float) -> Clients:
    """Seen at another place; the old one was asked, and did not answer."""
    change = seen(state, who, place, now_s)
    assert not change.allowed and not change.notices and [question.mac for question in change.asks] == [who]
    assert where(decided(change.state, now_s + 0.2).state, who) == where(state, who)
    change = decided(change.state, now_s + 0.3)
    assert [(n.what, n.mac, n.place) for n in change.notices] == [(Happened.MOVED, who, place)]
    return change.state


events = st.lists(
    st.tuples(
        st.sampled_from(
            ["associated", "left", "seen", "reported", "down", "address", "expired", "signal", "handed over", "heard"]
            + ["decided"] * 3
        ),
        st.integers(0, 9),
        st.sampled_from(PLACES),
        st.floats(0.0, 5.0),
        st.integers(0, 4),
    ),
    max_size=60,
)


def applied(state, event, now_s):
    what, number, place, _, extra = event
    who = mac(number)
    table = {
        "associated": lambda: associated(state, who, place, now_s),
        "left": lambda: left(state, who, place, now_s),
        "seen": lambda: seen(state, who, place, now_s),
        "reported": lambda: reported(state, f"c{extra}", {who: place, mac(number + 1): None}, now_s),
        "down": lambda: place_down(state, place, now_s),
        "address": lambda: address_seen(state, who, f"10.0.0.{extra}", now_s, by_dhcp=extra == 4),
        "expired": lambda: expired(state, now_s),
        "signal": lambda: signal(state, who, place, -60.0, now_s),
        "handed over": lambda: handed_over(state, who, place, now_s),
        "heard": lambda: Change(heard(state, place, [who], now_s)),
        "decided": lambda: decided(state, now_s),
    }
    return table[what]()


@examples(300)
@given(events)
def test_laws(row):
    state, now_s = Clients(limits=LIMITS), 0.0
    for event in row:
        now_s += event[3]
        change = applied(state, event, now_s)
        before, state = state, change.state
        what, number, place = event[:3]
        # One entry per interface, under its own name; bounded tables.
        assert all(name == entry.mac for name, entry in state.interfaces.items())
        assert len(state.interfaces) <= LIMITS.interfaces
        assert all(len(state.at(p)) <= LIMITS.per_place for p in PLACES)
        assert all(sum(a.mac == m for a in state.addresses.values()) <= 2 for m in state.interfaces)
        assert {a.mac for a in state.addresses.values()} <= set(state.interfaces)
        # What is refused changes nothing, and every change of place is told.
        if not change.allowed and what != "reported":
            assert replace(state, questions=before.questions) == before
        # Nobody is asked twice at once; who is asked is there, and nobody else has the place before that is decided.
        assert len(change.asks) <= 1 and all(before.interfaces[q.mac].place == q.place for q in change.asks)
        told = {n.mac for n in change.notices if n.what in (Happened.JOINED, Happened.MOVED, Happened.LEFT)}
        changed = {m for m in {*before.interfaces, *state.interfaces} if where(before, m) != where(state, m)}
        assert changed == told
        # An association holds against everything but an association, leaving, and its port going down.
        for name, entry in before.interfaces.items():
            if entry.place is not None and entry.evidence is Evidence.ASSOCIATION:
                mine = name == mac(number)
                ends = (what == "associated" and mine) or (what == "left" and mine) or what == "down"
                assert ends or where(state, name) == entry.place
        if what == "associated" and change.allowed:
            assert where(state, mac(number)) == place
            # No stale location: the interface is at no other place.
            assert [p for p in PLACES if any(i.mac == mac(number) for i in state.at(p))] == [place]


def test_a_move_forgets_the_old_place_in_the_same_step_and_late_news_of_it_is_ignored():
    state = associated(Clients(), ME, A, 1.0).state
    change = associated(state, ME, B, 2.0)
    assert [(n.what, n.place, n.other) for n in change.notices] == [(Happened.MOVED, B, A)]
    assert left(change.state, ME, A, 3.0).state == change.state
    late = associated(change.state, ME, A, 3.5, at_s=1.5)
    assert late.state == change.state and not late.notices
    assert where(left(change.state, ME, B, 4.0).state, ME) is None


def test_nobody_takes_a_mac_that_is_active_elsewhere():
    state = seen(Clients(), ME, WIRE, 0.0).state
    spoof = seen(state, ME, B, 2.0)
    assert not spoof.allowed and spoof.state == state
    assert spoof.notices[0].what is Happened.SPOOFED_MAC and spoof.notices[0].other == WIRE
    # Heard again: still there. Silent for long enough: it moved.
    state = seen(state, ME, WIRE, 2.5).state
    assert not seen(state, ME, B, 5.4).allowed
    assert where(moved(state, ME, B, 5.6), ME) == B
    # An association holds however silent it is, and only an association takes it away.
    state = associated(state, ME, A, 6.0).state
    assert not seen(state, ME, B, 1000.0).allowed
    assert where(associated(state, ME, B, 1000.0).state, ME) == B


def test_where_somebody_says_that_an_interface_is_it_is_unless_an_association_holds_it():
    state = seen(Clients(), ME, A, 0.0).state
    change = handed_over(state, ME, B, 1.0)
    assert [(n.what, n.place, n.other) for n in change.notices] == [(Happened.MOVED, B, A)]
    # What it still sends at the old place does not take it back before the new one has been silent for a while.
    assert not seen(change.state, ME, A, 2.0).allowed
    assert where(moved(change.state, ME, A, 4.1), ME) == A
    assert handed_over(change.state, ME, B, 2.0).state == change.state
    held = associated(state, ME, A, 1.0).state
    assert handed_over(held, ME, B, 2.0).state == held and not handed_over(held, ME, B, 2.0).allowed
    assert handed_over(held, ME, A, 2.0).allowed
    gone = left(held, ME, A, 3.0).state
    assert where(handed_over(gone, ME, B, 4.0).state, ME) == B


def test_nobody_takes_an_ip_that_is_active_elsewhere():
    state = associated(associated(Clients(), ME, A, 0.0).state, YOU, B, 0.0).state
    state = address_seen(state, ME, "10.0.0.9", 1.0).state
    spoof = address_seen(state, YOU, "10.0.0.9", 2.0)
    assert not spoof.allowed and spoof.notices[0].what is Happened.SPOOFED_IP and spoof.notices[0].ip == "10.0.0.9"
    assert spoof.state.addresses["10.0.0.9"].mac == ME
    assert address_seen(state, YOU, "10.0.0.9", 2.0, by_dhcp=True).state.addresses["10.0.0.9"].mac == YOU
    gone = left(state, ME, A, 3.0).state
    assert address_seen(gone, YOU, "10.0.0.9", 3.1).state.addresses["10.0.0.9"].mac == YOU
    # A stranger that is nowhere claims nothing.
    assert not address_seen(gone, mac(9), "10.0.0.8", 3.1).allowed


def test_an_agent_groups_interfaces_and_takes_none_of_others():
    state = associated(Clients(), ME, A, 0.0).state
    state = reported(state, "laptop", {ME: A, YOU: B}, 1.0).state
    assert {i.mac: i.place for i in state.of("laptop")} == {ME: A, YOU: B}
    thief = reported(state, "thief", {YOU: A}, 1.5)
    assert not thief.allowed and thief.state == state
    # What hostapd says of the place is stronger; an interface that is not named any more is no longer the client's.
    moved = reported(state, "laptop", {ME: B}, 2.0).state
    assert where(moved, ME) == A and [i.mac for i in moved.of("laptop")] == [ME]


def test_full_tables_forget_the_silent_and_refuse_otherwise():
    limits = replace(LIMITS, per_place=2)
    state = seen(seen(Clients(limits=limits), mac(1), A, 0.0).state, mac(2), A, 1.0).state
    full = seen(state, mac(3), A, 2.0)
    assert not full.allowed and full.notices[0].what is Happened.TABLE_FULL
    later = seen(state, mac(3), A, 3.5)
    assert later.allowed and set(later.state.interfaces) == {mac(2), mac(3)}
    held = associated(associated(Clients(limits=limits), mac(1), A, 0.0).state, mac(2), A, 0.0).state
    assert not seen(held, mac(3), A, 1e6).allowed


def test_silence_is_forgotten_and_associations_are_not():
    state = seen(associated(Clients(limits=LIMITS), ME, A, 0.0).state, YOU, WIRE, 0.0).state
    state = address_seen(state, YOU, "10.0.0.2", 0.0).state
    change = expired(state, 30.0)
    assert set(change.state.interfaces) == {ME} and not change.state.addresses
    assert [(n.what, n.mac, n.other) for n in change.notices] == [(Happened.LEFT, YOU, WIRE)]


def test_500_clients_with_50_moves_a_second_leave_nothing_stale():
    places = [Place(f"ap{i}", "wifi") for i in range(10)]
    state, truth = Clients(), {}
    for step in range(4000):
        who, place = f"02:00:00:01:{step * 7 % 500 // 256:02x}:{step * 7 % 500 % 256:02x}", places[step * 13 % 10]
        state = associated(state, who, place, step / 50).state
        truth[who] = place
        assert len(state.interfaces) == len(truth)
    assert {m: i.place for m, i in state.interfaces.items()} == truth
    assert sum(len(state.at(place)) for place in places) == len(truth) == 500


@pytest.mark.parametrize(
    "wrong", ["", "02:00", "01:00:00:00:00:01", "ff:ff:ff:ff:ff:ff", "00:00:00:00:00:00", "x" * 99]
)
def test_wrong_addresses_are_refused(wrong):
    with pytest.raises(ClientError, match="expected the MAC"):
        seen(Clients(), wrong, A, 0.0)


def test_counters_tell_who_is_there_and_only_there():
    state = seen(seen(Clients(limits=LIMITS), ME, A, 0.0).state, YOU, B, 0.0).state
    state = heard(state, A, [ME, YOU, mac(7)], 10.0)
    assert (state.interfaces[ME].heard_s, state.interfaces[YOU].heard_s) == (10.0, 0.0)
    assert list(state.interfaces) == [YOU, ME], "longest silent first"
    assert not seen(state, ME, B, 11.0).allowed
    assert where(moved(state, YOU, A, 11.0), YOU) == A


def test_an_access_point_that_tells_nothing_any_more_holds_nobody():
    state = associated(Clients(limits=LIMITS), ME, A, 0.0).state
    assert not seen(state, ME, B, 100.0).allowed
    assert untold(state, "b", 5.0).interfaces == state.interfaces
    state = untold(state, "a", 5.0)
    assert where(state, ME) == A
    assert where(moved(state, ME, B, 100.0), ME) == B
    assert not expired(state, 100.0).state.interfaces


def test_who_is_forgotten_may_come_again_at_once():
    state = address_seen(seen(Clients(limits=LIMITS), ME, A, 0.0).state, ME, "10.0.0.1", 0.0).state
    change = forgotten(state, ME)
    assert [notice.what for notice in change.notices] == [Happened.LEFT]
    assert not change.state.interfaces
    assert not change.state.addresses
    assert where(seen(change.state, ME, B, 0.1).state, ME) == B
    assert forgotten(change.state, ME).notices == ()


def test_a_silent_host_is_asked_and_keeps_its_place_if_it_answers():
    state = seen(Clients(limits=LIMITS), ME, A, 0.0).state
    change = seen(state, ME, B, 6.0)
    assert not change.allowed and not change.notices
    [question] = change.asks
    assert (question.mac, question.place, question.claimed, question.ip) == (ME, A, B, None)
    # Whoever else sends with its address meanwhile has no say.
    again = seen(change.state, ME, WIRE, 6.1)
    assert not again.allowed and not again.asks and again.state == change.state
    answer = decided(heard(again.state, A, [ME], 6.2), 6.2)
    assert [(n.what, n.place, n.other) for n in answer.notices] == [(Happened.SPOOFED_MAC, B, A)]
    assert where(answer.state, ME) == A and not answer.state.questions
    # What comes late from elsewhere is no answer.
    assert where(decided(heard(again.state, B, [ME], 6.2), 6.3).state, ME) == B


def test_nobody_is_silent_at_a_place_from_where_something_was_not_looked_at_yet():
    change = seen(seen(Clients(limits=LIMITS), ME, A, 0.0).state, ME, B, 6.0)
    waiting = decided(change.state, 60.0, is_heard=lambda place: place != A)
    assert waiting.state == change.state and not waiting.notices
    assert where(decided(change.state, 60.0).state, ME) == B


def test_a_host_that_comes_back_wins():
    state = moved(seen(Clients(limits=LIMITS), ME, A, 0.0).state, ME, B, 6.0)
    back = seen(state, ME, A, 6.5)
    assert back.allowed and where(back.state, ME) == A
    assert [(n.what, n.place, n.other) for n in back.notices] == [
        (Happened.MOVED, A, B), (Happened.SPOOFED_MAC, B, A)]  # fmt: skip
    assert not seen(back.state, ME, B, 6.6).allowed
    # Nobody else comes back, and it does so for a while alone.
    assert not seen(state, ME, WIRE, 6.5).allowed
    assert seen(heard(state, B, [ME], 36.0), ME, A, 36.4).notices[0].what is Happened.SPOOFED_MAC


def test_traffic_moves_nobody_where_an_access_point_tells_who_associates():
    state = tells(seen(Clients(limits=LIMITS), ME, A, 0.0).state, B)
    assert not seen(state, ME, B, 20.0).allowed and not seen(state, ME, B, 20.0).asks
    assert where(associated(state, ME, B, 20.0).state, ME) == B
    # Who is nowhere is let in: its association may be told a moment later.
    assert where(seen(state, YOU, B, 1.0).state, YOU) == B
    assert where(moved(untold(state, "b", 5.0), ME, B, 20.0), ME) == B


def test_an_address_is_asked_for_where_its_owner_is():
    state = seen(seen(Clients(limits=LIMITS), ME, A, 0.0).state, YOU, B, 0.0).state
    state = address_seen(state, ME, "10.0.0.9", 0.0).state
    claim = address_seen(heard(state, B, [YOU], 5.0), YOU, "10.0.0.9", 6.0)
    assert not claim.allowed and [(q.mac, q.place, q.by) for q in claim.asks] == [(ME, A, YOU)]
    kept = decided(heard(claim.state, A, [ME], 6.1), 6.2)
    assert kept.state.addresses["10.0.0.9"].mac == ME and kept.notices[0].what is Happened.SPOOFED_IP
    lost = decided(claim.state, 6.3).state
    assert lost.addresses["10.0.0.9"].mac == YOU
    # It comes back, and wins.
    back = address_seen(heard(lost, A, [ME], 7.0), ME, "10.0.0.9", 7.0)
    assert back.allowed and back.state.addresses["10.0.0.9"].mac == ME
    assert [(n.what, n.mac, n.ip) for n in back.notices] == [(Happened.SPOOFED_IP, YOU, "10.0.0.9")]
    assert not address_seen(back.state, YOU, "10.0.0.9", 7.1).allowed


def test_who_is_bound_to_a_place_is_nowhere_else():
    change = binding(seen(Clients(limits=LIMITS), ME, A, 0.0).state, ME, WIRE)
    assert [n.what for n in change.notices] == [Happened.LEFT] and where(change.state, ME) is None
    state = change.state
    for refused in (seen(state, ME, B, 50.0), associated(state, ME, B, 50.0), handed_over(state, ME, B, 50.0)):
        assert not refused.allowed and refused.state == state
    assert reported(state, "laptop", {ME: B}, 50.0).notices[0].what is Happened.SPOOFED_MAC
    state = seen(state, ME, WIRE, 50.0).state
    assert where(state, ME) == WIRE
    assert seen(state, ME, B, 99.0).notices[0].other == WIRE
    assert where(moved(binding(state, ME, None).state, ME, B, 99.0), ME) == B


WAITS_S = {"at once": 0.01, "soon": 0.2, "later": 1.0, "much later": 4.0, "silent": LIMITS.forget_s - 1.0}
"""The last is so long that a host is forgotten if it is not probed before."""
THEFTS = [f"{what} {when}" for what in ("place", "address") for when in WAITS_S]


def play_thefts(seed, row):
    """A victim that answers each probe, however silent it is, and thieves everywhere else."""
    here = Random(seed).choice(PLACES)
    state = seen(Clients(limits=LIMITS), ME, here, 0.0).state
    state, now_s, spoofs = address_seen(state, ME, "10.0.0.1", 0.0).state, 0.0, 0
    for number, (kind, choice) in enumerate(row):
        random, (what, _, when) = Random(choice), kind.partition(" ")
        now_s += WAITS_S[when]
        state = answered(state, expiring(state, now_s, 3.0), now_s)
        state = expired(state, now_s + 0.3).state
        there = random.choice([place for place in PLACES if place != here])
        thief = mac(number % 3)
        if what == "place":
            change = seen(state, ME, there, now_s + 0.3)
        else:
            state = seen(state, thief, there, now_s + 0.3).state
            change = address_seen(state, thief, "10.0.0.1", now_s + 0.3)
        assert not change.allowed
        state, spoofs = change.state, spoofs + spoofs_in(change)
        now_s += 0.3 + random.uniform(0.01, 0.29)
        state = answered(state, [state.interfaces[q.mac] for q in change.asks], now_s)
        now_s += random.choice((0.0, 0.3, 1.0))
        change = decided(state, now_s)
        state, spoofs = change.state, spoofs + spoofs_in(change)
        assert where(state, ME) == here and state.addresses["10.0.0.1"].mac == ME
    assert spoofs == len(row), "each try is reported"


def test_place_of_a_host_that_answers_is_never_taken():
    swarm.swarm(60, lambda rng: swarm.events(rng, THEFTS, 300), play_thefts)


def answered(state: Clients, asked: list[Interface], now_s: float) -> Clients:
    """Only the victim answers, where it is."""
    return heard(state, where(state, ME), [each.mac for each in asked if each.mac == ME], now_s)


def spoofs_in(change: Change) -> int:
    return sum(notice.what in {Happened.SPOOFED_MAC, Happened.SPOOFED_IP} for notice in change.notices)

"""Policies: nobody moves without a better place, nothing goes to and fro, refusals are respected."""

import math
import random
from dataclasses import replace

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.core.network import Place
from hyroads.controller.core.services.view import MAX_REFUSALS, ClientView, NetworkView, Option, Refusal, Refusals
from hyroads.plugins.policies.load import POLICY as LOAD
from hyroads.plugins.policies.load import crowds_of, rates_of
from hyroads.plugins.policies.signal import POLICY as SIGNAL

A, B, PLC = Place("a", "wifi"), Place("b", "wifi"), Place("b", "plc")


def view(time_s: float, *clients: ClientView) -> NetworkView:
    return NetworkView(time_s, clients={client.id: client for client in clients})


def heard(time_s: float, a_dbm: float, b_dbm: float, place=A, since_s=-100.0) -> NetworkView:
    options = (Option(A, "ch1", 20.0, a_dbm), Option(B, "ch6", 20.0, b_dbm))
    return view(time_s, ClientView("c", place, since_s, options))


def wishes_over(policy, views):
    memory, found = policy.fresh(), []
    for each in views:
        memory, wishes = policy.decide(memory, each)
        found += wishes
    return found


def test_a_weak_client_moves_to_what_has_been_better_for_long_enough():
    times = [i * 0.5 for i in range(5)]
    assert [w.place for w in wishes_over(SIGNAL, [heard(t, -78, -60) for t in times])] == [B]
    assert not wishes_over(SIGNAL, [heard(t, -78, -60) for t in times[:4]])
    # A strong signal is enough, a margin too small is too, and a moment of weakness starts the wait anew.
    assert not wishes_over(SIGNAL, [heard(t, -69, -40) for t in times])
    assert not wishes_over(SIGNAL, [heard(t, -78, -73) for t in times])
    assert not wishes_over(SIGNAL, [heard(t, -78, -60 if t != 1.0 else -80) for t in times])
    # One that has just come stays.
    assert not wishes_over(SIGNAL, [heard(t, -78, -60, since_s=-5.0) for t in times])


def test_without_signals_rates_decide():
    def at(t, rate):
        return view(t, ClientView("c", A, -100.0, (Option(A, "ch1", 10.0), Option(PLC, "plc", rate))))

    times = [i * 0.5 for i in range(5)]
    assert [w.place for w in wishes_over(SIGNAL, [at(t, 15.0) for t in times])] == [PLC]
    assert not wishes_over(SIGNAL, [at(t, 14.0) for t in times])
    nowhere = replace(at(0.0, 50.0).clients["c"], place=None)
    assert not wishes_over(SIGNAL, [view(t, nowhere) for t in times])


def test_noise_between_two_equal_places_moves_nobody_to_and_fro():
    rng, place, since_s, moves, memory = random.Random(3), A, -100.0, 0, SIGNAL.fresh()
    for step in range(6000):  # ten minutes at 10 Hz with a standard deviation of 3 dB, both weak
        seen = heard(step / 10, -74 + rng.gauss(0, 3), -74 + rng.gauss(0, 3), place, since_s)
        memory, wishes = SIGNAL.decide(memory, seen)
        for wish in wishes:
            place, since_s, moves = wish.place, seen.time_s, moves + 1
    assert moves == 0


def random_view(rng: random.Random, time_s=1000.0) -> NetworkView:
    places = [Place(f"ap{i}", k) for i in range(4) for k in ("wifi", "plc")]
    medium = {place: f"{place.technology}-{rng.randrange(3)}" for place in places}
    clients = []
    for i in range(rng.randrange(1, 12)):
        options = tuple(Option(p, medium[p], rng.uniform(1, 60)) for p in rng.sample(places, rng.randrange(1, 5)))
        demand = rng.choice([math.inf, rng.uniform(0.5, 10.0)])
        clients.append(ClientView(f"c{i}", rng.choice(options).place, 0.0, options, demand))
    return view(time_s, *clients)


def all_rates(seen: NetworkView) -> dict[str, float]:
    return {name: rate for crowd in crowds_of(seen).values() for name, rate in rates_of(crowd).items()}


@examples(100)
@given(st.integers(0, 10**6))
def test_load_balancing_helps_who_moves_raises_the_whole_and_comes_to_an_end(seed):
    seen, policy = random_view(random.Random(seed)), replace(LOAD, stay_s=0.0)
    memory, moves = policy.fresh(), 0
    while True:
        seen = replace(seen, time_s=seen.time_s + policy.settle_s)
        memory, wishes = policy.decide(memory, seen)
        if not wishes:
            break
        (wish,) = wishes
        actuator = seen.clients[wish.client]
        assert wish.place != actuator.place and actuator.option(wish.place) is not None
        after = replace(seen, clients={**seen.clients, actuator.id: replace(actuator, place=wish.place)})
        before_rates, after_rates = all_rates(seen), all_rates(after)
        assert after_rates[actuator.id] >= (1 + policy.gain) * before_rates[actuator.id] - 1e-9
        total = [sum(math.log(max(1e-3, r)) for r in rates.values()) for rates in (before_rates, after_rates)]
        assert total[1] > total[0]
        seen, moves = after, moves + 1
        assert moves < 200
    # It stopped because no single move is left that does both.
    assert all(rate >= 0 for rate in all_rates(seen).values())


def test_load_spreads_a_crowd_and_leaves_who_has_nothing_better():
    both = (Option(A, "ch1", 20.0), Option(B, "ch6", 20.0))
    crowd = [ClientView(f"c{i}", A, 0.0, both) for i in range(4)]
    stuck = ClientView("stuck", A, 0.0, (Option(A, "ch1", 20.0), Option(B, "ch6", 2.0)))
    seen, memory, policy = view(100.0, *crowd, stuck), LOAD.fresh(), LOAD
    for _ in range(20):
        memory, wishes = policy.decide(memory, seen)
        for wish in wishes:
            moved = replace(seen.clients[wish.client], place=wish.place, since_s=seen.time_s)
            seen = replace(seen, clients={**seen.clients, wish.client: moved})
        seen = replace(seen, time_s=seen.time_s + 1.0)
    assert sorted(client.place for client in seen.clients.values()) == [A, A, A, B, B]
    assert seen.clients["stuck"].place == A


def test_access_points_on_one_channel_are_no_relief():
    both = (Option(A, "ch1", 20.0), Option(B, "ch1", 20.0))
    assert LOAD.decide(LOAD.fresh(), view(100.0, *(ClientView(f"c{i}", A, 0.0, both) for i in range(4))))[1] == ()


def test_airtime_is_shared_fairly_with_demands():
    def client(name, rate, demand=math.inf):
        return ClientView(name, A, 0.0, (Option(A, "ch1", rate),), demand), Option(A, "ch1", rate)

    # 2 of 20 Mb/s takes a tenth; the others share nine tenths in equal parts, each at its own rate.
    assert rates_of([client("a", 20.0, 2.0), client("b", 20.0), client("c", 10.0)]) == pytest.approx(
        {"a": 2.0, "b": 9.0, "c": 4.5}
    )


def test_refusals_back_off_and_are_forgiven():
    refusals, now_s, rests = Refusals(), 0.0, []
    for _ in range(10):
        refusals = refusals.refused("c", B, now_s, "busy")
        rests.append(refusals.entries["c", B].until_s - now_s)
        now_s = refusals.entries["c", B].until_s
        assert not refusals.may_ask("c", B, now_s - 0.1) and refusals.may_ask("c", B, now_s)
        assert refusals.may_ask("d", B, 0.0) and refusals.may_ask("c", A, 0.0)
    assert rests == [30, 60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]
    assert refusals.entries["c", B].status == "busy"
    assert refusals.accepted("c", B).entries == {}


def test_refused_places_are_not_in_the_view_and_the_table_is_bounded():
    refusals = Refusals().refused("c", B, 0.0, "busy")
    seen = heard(10.0, -80, -50)
    assert [o.place for o in refusals.allowed(seen).clients["c"].options] == [A]
    assert [o.place for o in refusals.allowed(replace(seen, time_s=30.0)).clients["c"].options] == [A, B]
    # Where a client is it may stay, whatever it refused.
    assert len(refusals.allowed(heard(10.0, -80, -50, place=B)).clients["c"].options) == 2
    many = Refusals({(f"c{i}", A): Refusal(1, float(i), "x") for i in range(MAX_REFUSALS - 5)})
    for i in range(10):
        many = many.refused(f"d{i}", A, 1e6 + i, "x")
    assert len(many.entries) == MAX_REFUSALS and ("c4", A) not in many.entries and ("d0", A) in many.entries


def test_a_view_cannot_be_written_to():
    clients = {"c": ClientView("c", A, 0.0)}
    seen = NetworkView(0.0, clients=clients)
    clients.clear()
    assert "c" in seen.clients
    with pytest.raises(TypeError):
        seen.clients["d"] = clients  # type: ignore[index]
    with pytest.raises(AttributeError):
        seen.time_s = 1.0  # type: ignore[misc]

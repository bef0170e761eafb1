"""Whatever a plugin does, the others go on: faults are told, counted, and disable it in the end."""

import math
import random

import pytest
from hyroads.controller.core.services.mobility import Associated, Confirmed, Handover, Phase, Request, Wanted
from hyroads.controller.core.services.place import Place
from hyroads.plugins.host import Fault, GuardedManager, Health, Kind, Limits, call
from hyroads.plugins.mobility import bicast, hard, hoolock

A, B, C = Place("a", "wifi"), Place("b", "wifi"), Place("c", "wifi")
REQUEST = Request("h", "c", A, B, frozenset({"f"}))
LIMITS = Limits()


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def number(answer: object) -> int | None:
    return answer if isinstance(answer, int) else None


def test_a_good_answer_passes():
    assert call(lambda: 7, number, Clock(), LIMITS).answer == 7
    assert call(lambda: 7, number, Clock(), LIMITS).fault is None


class Spiteful(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text either")


def recursing():
    return recursing()


@pytest.mark.parametrize("error", [ValueError("x" * 10_000), SystemExit(1), Spiteful(), KeyError("k"), StopIteration()])
def test_what_is_raised_is_a_fault(error):
    def raising():
        raise error

    outcome = call(raising, number, Clock(), LIMITS)
    assert outcome.answer is None and outcome.fault.kind is Kind.RAISED
    assert type(error).__name__ in outcome.fault.what and len(outcome.fault.what) <= 200


def test_endless_recursion_wrong_and_slow_answers_are_faults():
    assert call(recursing, number, Clock(), LIMITS).fault.kind is Kind.RAISED
    assert call(lambda: "seven", number, Clock(), LIMITS).fault.kind is Kind.WRONG
    clock = Clock()

    def slow():
        clock.now_s += 0.2
        return 7

    outcome = call(slow, number, clock, LIMITS)
    assert outcome.answer == 7 and outcome.fault.kind is Kind.SLOW


def test_the_keyboard_still_works():
    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        call(interrupted, number, Clock(), LIMITS)


def test_three_faults_in_a_minute_disable_for_longer_each_time():
    health, now_s, rests = Health(), 0.0, []
    for _ in range(5):
        for _ in range(3):
            assert health.usable(now_s)
            health = health.after(Fault(Kind.RAISED, "x", now_s), LIMITS)
        assert not health.usable(now_s)
        rests.append(health.until_s - now_s)
        now_s = health.until_s
    assert rests == [60, 600, 6000, 60000, 86400] and health.total == 15
    assert health.enabled().usable(0.0) and health.enabled().times_disabled == 0


def test_rare_faults_are_forgiven_and_a_hang_is_not():
    health = Health()
    for minute in range(100):
        health = health.after(Fault(Kind.SLOW, "x", minute * 31.0), LIMITS)
        assert health.usable(minute * 31.0) and len(health.faults) <= 3
    assert not health.after(Fault(Kind.HUNG, "x", 5000.0), LIMITS).usable(5000.0)


class Bad:
    """Every part of a manager misbehaves with some probability."""

    name = "bad"

    def __init__(self, rng: random.Random, share: float) -> None:
        self.rng, self.share = rng, share

    def _spoilt(self, right):
        if self.rng.random() >= self.share:
            return right
        wrong = self.rng.choice(["raise", None, 3, math.nan, Wanted((A,), (C,)), Wanted((C,), (C,)), Handover(
            Request("other", "d", A, C, frozenset()), Phase.DONE, 0.0)])  # fmt: skip
        if wrong == "raise":
            raise RuntimeError("bad")
        return wrong

    def start(self, request, now_s):
        return self._spoilt(hoolock.MANAGER.start(request, now_s))

    def on(self, handover, event, now_s):
        return self._spoilt(hoolock.MANAGER.on(handover, event, now_s))

    def tick(self, handover, now_s):
        return self._spoilt(hoolock.MANAGER.tick(handover, now_s))

    def due_s(self, handover):
        return self._spoilt(hoolock.MANAGER.due_s(handover))

    def wanted(self, handover):
        return self._spoilt(hoolock.MANAGER.wanted(handover))


@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("seed", range(20))
def test_a_bad_manager_gives_only_sound_orders_and_its_handover_ends(seed, share):
    faults, clock = [], Clock()
    guarded = GuardedManager(Bad(random.Random(seed), share), clock, faults.append)
    state = guarded.start(REQUEST, 0.0)
    for step in range(60):
        wanted = guarded.wanted(state)
        assert isinstance(wanted, Wanted) and set(wanted.carry) <= set(wanted.known) <= {A, B} and wanted.carry
        assert isinstance(state, Handover) and state.request == REQUEST
        due_s = guarded.due_s(state)
        assert due_s is None or isinstance(due_s, float)
        clock.now_s += 1.0
        events = [Associated(B), Confirmed(wanted)]
        state = guarded.on(state, events[step % 2], clock.now_s)
        state = guarded.tick(state, clock.now_s)
        assert isinstance(state, Handover)
    assert state.is_over
    assert all(isinstance(fault, Fault) for fault in faults) and (faults or share < 1.0)


@pytest.mark.parametrize("manager", [hard.MANAGER, hoolock.MANAGER, bicast.MANAGER], ids=lambda m: m.name)
def test_a_good_manager_does_not_notice(manager):
    faults = []
    guarded, state, bare = GuardedManager(manager, Clock(), faults.append), None, None
    state, bare = guarded.start(REQUEST, 0.0), manager.start(REQUEST, 0.0)
    for step in range(5):
        event = Confirmed(manager.wanted(bare)) if step else Associated(B)
        state, bare = guarded.on(state, event, 1.0), manager.on(bare, event, 1.0)
        assert state == bare and guarded.wanted(state) == manager.wanted(bare)
        assert guarded.due_s(state) == manager.due_s(bare)
    assert not faults and guarded.name == manager.name

"""Faults are counted and disable a plugin in the end; answers of managers that make no sense are none."""

from dataclasses import replace

import pytest

from hyroads.controller.core.network import Place
from hyroads.controller.core.services.mobility import DesiredState, Handover, Phase, Request
from hyroads.plugins.codec import encode
from hyroads.plugins.host import Fault, Health, Kind, Limits, Step, sound_step
from hyroads.plugins.mobility import hoolock

A, B, C = Place("a", "wifi"), Place("b", "wifi"), Place("c", "wifi")
REQUEST = Request("h", "c", A, B, frozenset({"f"}))
LIMITS = Limits()


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
        health = health.after(Fault(Kind.RAISED, "x", minute * 31.0), LIMITS)
        assert health.usable(minute * 31.0) and len(health.faults) <= 3
    assert not health.after(Fault(Kind.HUNG, "x", 5000.0), LIMITS).usable(5000.0)


def told(handover, wanted, due_s=None):
    return {"handover": encode(handover), "wanted": encode(wanted), "due_s": due_s}


BEGUN = Handover(REQUEST, Phase.PREPARING, 1.0)


def test_sound_answers_pass():
    wanted = hoolock.MANAGER.wanted(BEGUN)
    for due_s in (None, 3.5, 4):
        assert sound_step(told(BEGUN, wanted, due_s), REQUEST) == Step(BEGUN, wanted, due_s)


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [],
        {},
        told(BEGUN, DesiredState((A,), (B,))),
        told(BEGUN, DesiredState((C,), (C,))),
        told(BEGUN, DesiredState((A,), (A,), join=C)),
        told(BEGUN, DesiredState((A,), (A,), leave=C)),
        told(replace(BEGUN, request=replace(REQUEST, id="other")), DesiredState((A,), (A,))),
        told(replace(BEGUN, request=replace(REQUEST, new=C)), DesiredState((A,), (A,))),
        told(BEGUN, DesiredState((A,), (A,)), float("nan")),
        told(BEGUN, DesiredState((A,), (A,)), "soon"),
        told(REQUEST, DesiredState((A,), (A,))),
        told(BEGUN, BEGUN),
    ],
)
def test_answers_that_make_no_sense_are_none(answer):
    assert sound_step(answer, REQUEST) is None

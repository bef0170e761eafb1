"""Readings with rows wait in a queue of their own: the newest of each session, in a bounded share of the time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from hyroads.controller.agents.later import READINGS_SHARE, TURN_S, LatestReadings, NothingUrgent
from hyroads.controller.framework import ryu_shim as shim

COST_S = 0.001


def whole(i: int) -> bytes:
    return b'{"type":"radio","seq":null,"time_s":%d}' % i


def changes(i: int) -> bytes:
    return b'{"type":"radio-changes","time_s":%d}' % i


class Rig:
    """A queue whose readings take a millisecond each, on a clock of its own."""

    def __init__(self) -> None:
        self.now_s = self.slept_s = 0.0
        self.taken: list[tuple[Any, bytes, int]] = []
        self.failed: list[Any] = []
        self.turns: list[int] = []
        self.queue = LatestReadings(
            NothingUrgent(), self.take, lambda session, error: self.failed.append(session), clock=lambda: self.now_s,
            sleep=self.sleep,
        )  # fmt: skip

    def take(self, session: Any, line: bytes) -> None:
        self.now_s += COST_S
        self.taken.append((session, line, session.wholes))
        if line.endswith(b"x"):
            raise ValueError

    def sleep(self, for_s: float) -> None:
        self.turns.append(len(self.taken))
        self.now_s += for_s
        self.slept_s += for_s

    def say(self, session: Any, *lines: bytes) -> list[bool]:
        return [self.queue.keeps(session, line) for line in lines]


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    monkeypatch.setattr(shim, "spawn", lambda run: None)
    return Rig()


def session_of(wholes: int = 0) -> Any:
    return SimpleNamespace(readings=[], wholes=wholes, closed=False)


def test_newest_whole_reading_and_newest_changes_after_it_are_taken(rig: Rig) -> None:
    one = session_of(1)
    rig.say(one, changes(1), whole(2))
    one.wholes = 2
    rig.say(one, changes(3), whole(4))
    one.wholes = 3
    rig.say(one, changes(5), changes(6))
    one.wholes = 4
    rig.queue.take_all()
    assert [(line, wholes) for _, line, wholes in rig.taken] == [(whole(4), 2), (changes(6), 3)]
    assert one.wholes == 4
    assert rig.queue.dropped == 4


def test_newer_reading_without_rows_replaces_changes_that_wait(rig: Rig) -> None:
    one, other = session_of(), session_of()
    rig.say(one, whole(1), changes(2))
    rig.say(other, changes(1))
    rig.queue.drop_changes([one])
    rig.queue.take_all()
    assert [(who, line) for who, line, _ in rig.taken] == [(one, whole(1)), (other, changes(1))]


def test_answer_to_a_request_is_taken_after_readings_that_wait(rig: Rig) -> None:
    one = session_of()
    assert rig.say(one, changes(1), b'{"type":"radio","seq":4,"time_s":2}') == [True, False]
    assert [line for _, line, _ in rig.taken] == [changes(1)]


def test_messages_that_are_no_readings_do_not_wait(rig: Rig) -> None:
    one = session_of()
    others = b'{"type":"ok","seq":1}', b'{"type":"pong","seq":1}', b'{"type":"station","event":"left"}'
    assert rig.say(one, whole(1), *others) == [True, False, False, False]
    assert not rig.taken


def test_overload_takes_a_bounded_share_of_the_time_and_no_session_starves(rig: Rig) -> None:
    sessions = [session_of() for _ in range(500)]
    for i, one in enumerate(sessions):
        rig.say(one, changes(i))
    newest = rig.queue.late_s
    rig.queue.take_all()
    assert [who for who, *_ in rig.taken] == sessions
    assert READINGS_SHARE * rig.now_s * 1.01 >= 500 * COST_S
    per_turn = [b - a for a, b in zip([0, *rig.turns], rig.turns, strict=False)]
    assert max(per_turn) <= round(TURN_S / COST_S) + 1
    assert newest == 0.0
    assert rig.queue.late_s == 0.0


def test_lateness_is_that_of_the_session_that_waits_longest(rig: Rig) -> None:
    rig.say(session_of(), changes(1))
    rig.now_s = 0.7
    rig.say(session_of(), changes(1))
    assert rig.queue.late_s == pytest.approx(0.7)


def test_malformed_reading_fails_its_session_alone(rig: Rig) -> None:
    one, other, closed = session_of(), session_of(), session_of()
    rig.say(one, changes(1) + b"x")
    rig.say(closed, changes(1))
    rig.say(other, changes(1))
    closed.closed = True
    rig.queue.take_all()
    assert rig.failed == [one]
    assert [who for who, *_ in rig.taken] == [one, other]

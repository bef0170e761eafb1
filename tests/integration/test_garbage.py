"""Garbage is found between slots, and nothing that has long been there is walked through for it."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterator

import pytest

from hyroads.controller.runtime.garbage import Garbage


class Knot:
    """Only the collector frees it: it refers to itself."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def garbage() -> Iterator[Garbage]:
    before = gc.get_threshold()
    yield Garbage(every_s=5.0, spare_objects=1000)
    gc.set_threshold(*before)
    gc.unfreeze()


def ended_cycle() -> weakref.ref[Knot]:
    """A cycle that has grown old, and that nobody needs any more."""
    knot = Knot()
    trace = weakref.ref(knot)
    gc.collect(1)
    return trace


def test_before_it_begins_nothing_happens(garbage: Garbage) -> None:
    frozen = gc.get_freeze_count()
    garbage.after_slot(1e9)
    assert gc.get_freeze_count() == frozen


def test_old_objects_are_never_walked_through_of_their_own_accord(garbage: Garbage) -> None:
    garbage.begin(0.0)
    before = gc.get_stats()[2]["collections"]
    kept = [[number] for number in range(300_000)]
    assert len(kept) == 300_000
    assert gc.get_stats()[1]["collections"] > 0
    assert gc.get_stats()[2]["collections"] == before


def test_a_cycle_that_ended_between_two_looks_is_freed(garbage: Garbage) -> None:
    garbage.begin(0.0)
    trace = ended_cycle()
    garbage.after_slot(4.9)
    assert trace() is not None
    garbage.after_slot(5.0)
    assert trace() is None


def test_frozen_objects_are_not_counted(garbage: Garbage, monkeypatch: pytest.MonkeyPatch) -> None:
    garbage.begin(0.0)
    counted: list[bool] = []

    def count() -> int:
        counted.append(True)
        return 0

    monkeypatch.setattr(gc, "get_freeze_count", count)
    kept = [[number] for number in range(100)]
    for look in range(1, 6):
        garbage.after_slot(5.0 * look)
    assert not counted, "this walks through all of them"
    assert kept


def test_who_waits_has_it_first_but_not_for_ever(garbage: Garbage) -> None:
    garbage.begin(0.0)
    trace = ended_cycle()
    garbage.after_slot(9.9, is_urged=True)
    assert trace() is not None
    garbage.after_slot(10.0, is_urged=True)
    assert trace() is None


def test_cycles_frozen_alive_are_freed_once_there_are_many(garbage: Garbage) -> None:
    garbage.begin(0.0)
    knot = Knot()
    trace = weakref.ref(knot)
    garbage.after_slot(5.0)
    del knot
    garbage.after_slot(10.0)
    assert trace() is not None, "it is frozen"
    kept = [[number] for number in range(sys.getallocatedblocks() + 2000)]
    garbage.after_slot(15.0)
    assert trace() is None
    assert kept


def test_looks_that_take_long_are_sooner_so_that_none_does_for_long(
    garbage: Garbage, monkeypatch: pytest.MonkeyPatch
) -> None:
    garbage.begin(0.0)
    # 20 ms for each second since the last one, after one of 1 ms.
    took_s, now_s = iter((0.001, 0.1, 0.01, 0.01, 0.001, 3.0)), 0.0

    def clock() -> float:
        nonlocal now_s, begins
        begins = not begins
        now_s += 0.0 if begins else next(took_s)
        return now_s

    begins = False
    monkeypatch.setattr("hyroads.controller.runtime.garbage._worked_s", clock)
    looks = []
    for tenth in range(50, 130):
        before = gc.get_stats()[2]["collections"]
        garbage.after_slot(tenth / 10)
        if gc.get_stats()[2]["collections"] > before:
            looks.append(tenth / 10)
        if len(looks) == 5:
            break
    assert looks == [5.0, 10.0, 10.5, 11.0, 11.5]

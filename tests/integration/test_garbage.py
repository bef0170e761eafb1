"""Garbage is found between slots, and nothing that has long been there is walked through for it."""

from __future__ import annotations

import gc
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
    knot = Knot()
    trace = weakref.ref(knot)
    gc.collect(1)
    del knot
    garbage.after_slot(4.9)
    assert trace() is not None
    garbage.after_slot(5.0)
    assert trace() is None


def test_frozen_objects_are_not_counted_while_there_are_few(garbage: Garbage, monkeypatch: pytest.MonkeyPatch) -> None:
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
    knot = Knot()
    trace = weakref.ref(knot)
    gc.collect(1)
    del knot
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
    kept = [[number] for number in range(gc.get_freeze_count() + 2000)]
    garbage.after_slot(15.0)
    assert trace() is not None, "these have just been frozen"
    garbage.after_slot(20.0)
    assert trace() is None
    assert kept

"""Arrays of different lengths side by side: what was put last is what is gathered."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.core.ragged import Ragged, places

PUTS = st.lists(st.tuples(st.integers(0, 6), st.lists(st.integers(-9, 9), max_size=5)), max_size=40)


@given(PUTS, st.lists(st.integers(0, 6), max_size=10))
def test_what_was_put_last_is_gathered(puts: list[tuple[int, list[int]]], asked: list[int]) -> None:
    ragged, last = Ragged(np.intp, np.float64), dict.fromkeys(range(7), list[int]())
    ragged.put(6, np.zeros(0), np.zeros(0))
    for number, values in puts:
        ragged.put(number, np.array(values, dtype=np.intp), np.array(values) / 2)
        last[number] = values
    count, whole, halves = ragged.of(asked)
    wanted = [value for number in asked for value in last[number]]
    assert count.tolist() == [len(last[number]) for number in asked]
    assert whole.tolist() == wanted and halves.tolist() == [value / 2 for value in wanted]


def test_what_is_replaced_again_and_again_takes_no_more_room() -> None:
    ragged = Ragged(np.float64)
    for i in range(2000):
        ragged.put(i % 10, np.full(i % 7, float(i)))
    assert len(ragged._columns[0]) < 400


def test_places() -> None:
    assert places(np.array([5, 0, 9]), np.array([2, 0, 3])).tolist() == [5, 6, 9, 10, 11]
    assert places(np.zeros(0, dtype=np.intp), np.zeros(0, dtype=np.intp)).tolist() == []

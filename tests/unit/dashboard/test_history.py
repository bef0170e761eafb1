"""Fifteen minutes of figures in bounded memory."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hyroads.dashboard.history import History

ROWS = st.dictionaries(
    st.sampled_from([("flows", "a"), ("flows", "b")]),
    st.lists(st.none() | st.integers(0, 1000), min_size=2, max_size=2),
)


@given(st.lists(ROWS, max_size=30))
def test_a_ring_tells_what_a_list_would(steps: list[dict[tuple[str, str], list[float | None]]]) -> None:
    history, kept = History(ticks=8, window_s=100.0), []
    for now_s, rows in enumerate(steps):
        history.add(float(now_s), rows)
        kept.append((float(now_s), rows))
    for key in (("flows", "a"), ("flows", "b")):
        found = dict(history.rows(key, float(len(steps))))
        for now_s, rows in kept[-8:]:
            expected = rows.get(key, [None, None])
            assert found.get(now_s, [None, None]) == expected
        assert not set(found) - {now_s for now_s, _ in kept[-8:]}


def test_the_window_ends_after_its_time_however_few_ticks_there_were() -> None:
    history = History(ticks=10, window_s=60.0)
    history.add(0.0, {("flows", "a"): [1.0]})
    history.add(50.0, {("flows", "a"): [2.0]})
    assert [row for _, row in history.rows(("flows", "a"), 55.0)] == [[1.0], [2.0]]
    assert [row for _, row in history.rows(("flows", "a"), 70.0)] == [[2.0]]


def test_series_are_bounded_and_those_that_ended_make_room() -> None:
    history = History(ticks=4, max_series=3)
    for number in range(10):
        history.add(float(number), {("flows", str(one)): [1.0] for one in range(5)})
    assert len(history.keys("flows")) == 3
    for number in range(10, 200):
        history.add(float(number), {("flows", "new"): [1.0]})
    assert history.keys("flows") == ["new"]

"""What can't be written is taken back: nothing is in force that a new controller would not know of."""

from __future__ import annotations

import errno
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from instant_saver import instant_saver

from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.runtime.saver import RETRY_MOST_S, SAY_AGAIN_S, WITHIN_S, Change, Saver
from hyroads.rest.contract import NotSavedError
from hyroads.rest.resource import _hyroads


class Table:
    """Values by name, on a disk that may be full."""

    def __init__(self) -> None:
        self.values: dict[str, int] = {}
        self.disk: dict[str, int] = {}
        self.is_full = False
        self.tries: list[float] = []
        self.now_s = 0.0
        self.meanwhile = lambda: None
        self.saver, self.events, self.faults = instant_saver(self._save, self._clock)

    def _clock(self) -> float:
        self.now_s += 0.001
        return self.now_s

    def _save(self) -> None:
        self.tries.append(self.now_s)
        seen = dict(self.values)
        self.meanwhile()
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.disk = seen

    def put(self, name: str, value: int | None) -> Change:
        change = self.saver.change(name, partial(self._set, name, self.values.get(name)))
        self._set(name, value)
        return change

    def _set(self, name: str, value: int | None) -> None:
        if value is None:
            self.values.pop(name, None)
        else:
            self.values[name] = value

    @property
    def kinds(self) -> list[str]:
        return [event.kind for event in self.events.since(0)]


ACTIONS = st.one_of(
    st.tuples(st.sampled_from("abc"), st.none() | st.integers(0, 3)), st.sampled_from(["save", "full", "free", "late"])
)


@given(st.lists(ACTIONS, max_size=40))
def test_what_is_in_force_after_a_try_is_what_the_disk_says(actions: list[object]) -> None:
    table, changes = Table(), []
    for action in actions:
        if action == "full" or action == "free":
            table.is_full = action == "full"
        elif isinstance(action, tuple):
            changes.append(table.put(*action))
        else:
            late: list[Change] = []
            table.meanwhile = (
                (lambda late=late: late.append(table.put("late", 7))) if action == "late" else lambda: None
            )
            table.saver.once()
            changes += late
            if table.is_full:
                assert table.values == table.disk and all(change.is_over for change in changes)
                assert all(change.refusal for change in late)
            else:
                # What came while it was written comes next.
                assert {**table.values, "late": 0} == {**table.disk, "late": 0} and not any(c.is_saved for c in late)
        table.meanwhile = lambda: None
        assert table.saver.pending or table.values == table.disk
    table.is_full = False
    table.saver.once()
    assert table.values == table.disk and not table.saver.pending and all(change.is_over for change in changes)


def test_while_the_disk_is_full_nothing_new_is_begun_and_each_who_asks_has_it_tried() -> None:
    table = Table()
    table.is_full = True
    change = table.put("a", 1)
    with pytest.raises(NotSavedError, match="No space left on device"):
        table.saver.wait(change)
    assert table.values == {} and table.saver.pending
    tries = len(table.tries)
    with pytest.raises(NotSavedError, match="nothing was changed"):
        table.saver.check()
    assert len(table.tries) == tries + 1
    with pytest.raises(NotSavedError, match="taken back"):
        table.saver.check_refused("a")
    table.is_full = False
    table.saver.check()
    table.saver.wait(table.put("a", 2))
    table.saver.check_refused("a")
    assert table.disk == {"a": 2} and table.kinds == ["fault", "state_file.failing", "state_file.saved"]
    assert _hyroads(NotSavedError("x")).status_code == 507 and issubclass(NotSavedError, HyroadsError)


def turns(table: Table, for_s: float) -> None:
    """The saver's loop, whose sleep takes no time but the test's."""
    until_s = table.now_s + for_s
    while table.now_s < until_s:
        wait_s = table.saver._wait_s()
        if wait_s > 0:
            table.now_s += wait_s
        else:
            table.saver.once()


def test_it_is_tried_again_ever_more_slowly_and_said_now_and_then() -> None:
    table = Table()
    table.is_full = True
    table.saver.note()
    turns(table, 10 * SAY_AGAIN_S)
    pauses = [later - earlier for earlier, later in zip(table.tries, table.tries[1:], strict=False)]
    assert pauses == sorted(pauses) or max(pauses) < RETRY_MOST_S + 0.1
    assert pauses[0] < 0.6 and pauses[-1] == pytest.approx(RETRY_MOST_S, abs=0.1)
    assert 5 <= table.kinds.count("state_file.failing") <= 11
    table.is_full = False
    turns(table, RETRY_MOST_S + 1.0)
    assert table.saver.failure is None and table.kinds[-1] == "state_file.saved"


def test_a_defect_in_writing_is_counted_and_tried_again() -> None:
    table = Table()

    def defect() -> None:
        raise RuntimeError("a defect")

    table.meanwhile = defect
    change = table.put("a", 1)
    table.saver.once()
    assert change.refusal and table.values == {} and any("a defect" in fault.what for fault in table.faults)
    table.meanwhile = lambda: None
    turns(table, 1.0)
    assert table.saver.failure is None


def test_at_the_end_what_there_is_is_saved() -> None:
    table = Table()
    table.values["a"] = 1
    table.saver.finish()
    assert table.disk == {"a": 1}


def test_one_that_can_not_be_taken_back_does_not_keep_others_from_it() -> None:
    table = Table()
    table.is_full = True
    first = table.put("a", 1)
    bad = table.saver.change("b", lambda: 1 / 0)
    last = table.put("c", 1)
    table.saver.once()
    assert table.values == {} and first.refusal and bad.refusal and last.refusal
    assert any("taking back b" in fault.where for fault in table.faults)
    assert isinstance(table.saver, Saver)


def test_whoever_waits_for_all_waits_for_what_was_asked_for_so_far() -> None:
    table = Table()
    changes = [table.put("a", 1), table.put("b", 2)]
    table.saver.wait_all()
    assert all(change.is_saved for change in changes) and table.disk == {"a": 1, "b": 2}
    table.is_full = True
    refused = table.put("a", 3)
    table.saver.wait_all()
    assert refused.refusal and table.values == table.disk


def test_a_store_that_does_not_answer_is_not_waited_for_for_ever() -> None:
    table = Table()
    table.saver.progress.saver = None  # type: ignore[attr-defined]
    table.put("a", 1)
    began_s = table.now_s
    with pytest.raises(NotSavedError, match="may be saved or not"):
        table.saver.wait_all()
    assert WITHIN_S <= table.now_s - began_s < WITHIN_S + 0.1

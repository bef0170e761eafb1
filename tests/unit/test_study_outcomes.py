"""Outcomes of tasks as text and in files: exact, resumable, and harmless whatever a file has."""

from __future__ import annotations

import contextlib
import json
import math
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.study.framework import Settings, StudyError, run_all
from hyroads.controller.study.intervals import interval_of
from hyroads.controller.study.outcomes import OutcomeError, classes_of, decode, encode
from hyroads.controller.study.task_store import NAME, TaskStore


class Kind(Enum):
    GOOD = 1
    BAD = 2


class Pair(NamedTuple):
    left: float
    right: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Inner:
    values: np.ndarray
    kind: Kind


@dataclass(frozen=True, slots=True)
class Outer:
    inner: Sequence[Inner]
    pair: Pair | None
    more: dict[str, float]


def work(task: int) -> tuple[Outer, float]:
    return Outer([Inner(np.arange(task) / 3, Kind.GOOD)], Pair(task / 7, (task,)), {"nan": math.nan}), task / 3


def plain(task: int) -> list[float]:
    return [task / 3]


def nothing(task: int) -> object:
    return Outer([], None, {})


def same(one: object, other: object) -> bool:
    """Equal, and of the same types, at any depth."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return same(list(one.items()), list(other.items()))
    return one == other or one != one


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.floats().map(np.float64)
    | st.sampled_from([np.array(1.5), np.zeros((0, 2)), np.arange(6, dtype=">f4").reshape(2, 3), np.array([True])]),
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.text() | st.integers() | st.tuples(st.integers()), inner)
    ),
    max_leaves=4,
)


@given(VALUES)
def test_what_is_written_is_read_back_exactly(value: object) -> None:
    assert same(decode(encode(value, {}), {}), value)


def test_classes_of_the_annotation_are_read_back() -> None:
    classes = classes_of(work)
    assert {each.__name__ for each in classes.values()} == {"Outer", "Inner", "Pair", "Kind"}
    found, number = decode(encode(work(3), classes), classes)
    assert found.inner[0].values.tolist() == [0.0, 1 / 3, 2 / 3] and found.inner[0].kind is Kind.GOOD
    assert found.pair == Pair(3 / 7, (3,)) and type(found.pair) is Pair and number == 1.0


@pytest.mark.parametrize("value", [{1, 2}, object(), np.array([None]), np.array(["a"]), Outer([], None, {}), b"x"])
def test_what_cannot_be_kept_is_named(value: object) -> None:
    with pytest.raises(OutcomeError):
        encode(value, classes_of(plain))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '{"class":["os.system",{"command":"touch /x"}]}',
        '{"class":["builtins.eval",["1"]]}',
        '{"enum":["test_study_outcomes.Kind","WORST"]}',
        '{"array":["O",[1],"AAAAAAAAAAA="]}',
        '{"array":["<f8",[1000000000000],"AAAAAAAAAAA="]}',
        '{"array":["<f8",[1],"AAAA"]}',
        '{"array":["V8",[1],"AAAAAAAAAAA="]}',
        '{"array":[["a","<f8"],[1],"AAAAAAAAAAA="]}',
        '{"tuple":1}',
        '{"dict":[[[],1]]}',
        '{"a":1,"b":2}',
        '{"unknown":1}',
        "[" * 100_000,
    ],
)
def test_hostile_text_makes_nothing(text: str) -> None:
    with pytest.raises(OutcomeError):
        decode(text, classes_of(work))


MARKS = st.sampled_from(["tuple", "dict", "array", "enum", "class", "x"])
DOCUMENTS = st.recursive(
    st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(MARKS, inner)
)


@given(st.text() | DOCUMENTS.map(json.dumps))
def test_any_text_is_an_outcome_or_an_error(text: str) -> None:
    with contextlib.suppress(OutcomeError):
        decode(text, classes_of(work))


# -- the file ---------------------------------------------------------------------------------------------------------

SETTINGS = Settings(runs=5, seed=3)


class Interrupted(Exception):
    pass


def carried(folder: Path, settings: Settings = SETTINGS, until: int = 99, job=work, **more: bool) -> tuple[list, list]:
    """The outcomes of five tasks, and the numbers of done tasks that progress told of; ends at ``until`` of them."""
    told: list[int] = []

    def progress(done: int, total: int) -> None:
        told.append(done)
        if done >= until:
            raise Interrupted

    with TaskStore(folder, "a-study", settings, **more) as store:
        return run_all(job, range(5), replace(settings, store=store), progress), told


def interrupted(folder: Path, until: int = 3, job=work) -> bytes:
    with pytest.raises(Interrupted):
        carried(folder, until=until, job=job)
    return (folder / NAME).read_bytes()


def test_a_study_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    interrupted(tmp_path)
    found, told = carried(tmp_path)
    assert told == [3, 4, 5]
    assert encode(found, classes_of(work)) == encode([work(i) for i in range(5)], classes_of(work))
    assert carried(tmp_path)[1] == [5]


@pytest.mark.parametrize(
    "changed", [replace(SETTINGS, seed=4), replace(SETTINGS, runs=6), replace(SETTINGS, quick=True)]
)
def test_other_settings_begin_anew(tmp_path: Path, changed: Settings) -> None:
    interrupted(tmp_path)
    assert carried(tmp_path, changed)[1][0] == 0
    # Of two files there is one: the first settings begin anew, too.
    assert carried(tmp_path)[1][0] == 0


def test_other_code_other_traces_and_fresh_begin_anew(tmp_path: Path, monkeypatch) -> None:
    carried(tmp_path)
    assert carried(tmp_path, replace(SETTINGS, workers=7))[1] == [5]
    assert carried(tmp_path, fresh=True)[1][0] == 0
    with monkeypatch.context() as patched:
        patched.setattr("hyroads.controller.study.task_store.code_digest", lambda: "other code")
        assert carried(tmp_path)[1][0] == 0
    traces = tmp_path / "traces"
    traces.mkdir()
    (traces / "one").write_text("1")
    with_traces = replace(SETTINGS, traces=traces)
    assert [carried(tmp_path, with_traces)[1][0] for _ in range(2)] == [0, 5]
    (traces / "one").write_text("22")
    assert carried(tmp_path, with_traces)[1][0] == 0


def test_another_function_is_not_given_the_outcomes(tmp_path: Path) -> None:
    interrupted(tmp_path)
    assert carried(tmp_path, job=plain)[1][0] == 0


@given(data=st.data())
def test_a_file_cut_or_damaged_anywhere_costs_tasks_and_nothing_else(tmp_path_factory, data) -> None:
    folder = tmp_path_factory.mktemp("kept")
    whole = interrupted(folder)
    head = whole.index(b"\n") + 1
    at = data.draw(st.integers(head, len(whole)))
    damaged = whole[:at]
    if data.draw(st.booleans()) and at < len(whole):
        damaged = whole[:at] + bytes([whole[at] ^ data.draw(st.integers(1, 255))]) + whole[at + 1 :]
    (folder / NAME).write_bytes(damaged)
    found, told = carried(folder)
    assert told[0] == whole[head:at].count(b"\n") or told[0] == whole[head:].count(b"\n") - 1 or at == len(whole)
    assert encode(found, classes_of(work)) == encode([work(i) for i in range(5)], classes_of(work))


@pytest.mark.parametrize("content", [b"my thesis\n", b"\x80\x04", pickle.dumps([1]), b'{"format": "x"}\n', b"[]"])
def test_a_file_of_somebody_else_is_an_error_and_stays(tmp_path: Path, content: bytes) -> None:
    (tmp_path / NAME).write_bytes(content)
    with pytest.raises(StudyError, match="not a file of kept tasks"):
        carried(tmp_path)
    assert (tmp_path / NAME).read_bytes() == content


def test_an_empty_or_half_written_first_line_is_no_error(tmp_path: Path) -> None:
    whole = interrupted(tmp_path)
    for cut in (0, 20):
        (tmp_path / NAME).write_bytes(whole[:cut])
        assert carried(tmp_path)[1] == [0, 1, 2, 3, 4, 5]


def test_two_commands_do_not_write_to_one_folder(tmp_path: Path) -> None:
    with TaskStore(tmp_path, "a-study", SETTINGS), pytest.raises(StudyError, match="another study writes"):
        carried(tmp_path)


def test_outcomes_that_cannot_be_kept_are_worked_out_again_and_said(tmp_path: Path) -> None:
    with TaskStore(tmp_path, "a-study", SETTINGS) as store:
        run_all(nothing, range(3), replace(SETTINGS, store=store), lambda done, total: None)
        assert store.refused is not None and "nothing can't be kept" in store.refused
    assert carried(tmp_path, job=nothing)[1][0] == 0


# -- intervals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(40,), (40, 3), (5000,)])
def test_the_interval_of_a_mean_is_that_of_the_normal_distribution(shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(2).normal(10.0, 2.0, shape)
    half = 1.96 * values.reshape(shape[0], -1).mean(axis=1).std() / math.sqrt(shape[0])
    assert interval_of(values) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.15 * half)
    assert interval_of(values) == interval_of(values) != interval_of(values, seed=2)
    one = interval_of(values, lambda drawn: float(drawn.mean()), draws=200)
    assert one == pytest.approx(interval_of(values, draws=200), abs=0.3 * half)

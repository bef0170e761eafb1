"""Traces of the study of privacy: synthetic ones, recorded ones and what is wrong in them, and their features."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hyroads.controller.study.framework import StudyError
from hyroads.controller.study.traces import FEATURES, access, features, recorded, site, synthetic


def test_synthetic_sites_have_the_bursts_that_are_said() -> None:
    rng = np.random.default_rng(1)
    sites = [site(rng) for _ in range(300)]
    down = np.concatenate([one.packets[0] for one in sites])
    assert {len(one.starts_s) for one in sites} == set(range(4, 17))
    assert down.min() >= 5 and down.max() <= 159 and np.median(down) == pytest.approx(10**1.45, rel=0.1)
    assert max((one.packets[1] / one.packets[0]).max() for one in sites) <= 0.61
    one = sites[0]
    traces = [access(one, rng) for _ in range(400)]
    for way in (0, 1):
        counts = np.array([len(trace[way]) for trace in traces])
        assert counts.mean() == pytest.approx(one.packets[way].sum(), rel=0.05)
        # Sizes of bursts vary by 30 %, each by itself; the deviation of their sum follows.
        assert counts.std() == pytest.approx(0.3 * np.sqrt((one.packets[way] ** 2).sum()), rel=0.15)
        assert all((np.diff(trace[way]) >= 0).all() for trace in traces)
    assert min(trace[0][0] for trace in traces) >= one.starts_s.min()


def test_the_same_seed_gives_the_same_accesses_whatever_else_is_asked() -> None:
    few, more = synthetic(3, 2, 0, 7), synthetic(5, 2, 4, 7)
    assert np.array_equal(few.monitored[2][1][0], more.monitored[2][1][0]) and len(more.others) == 4
    assert not np.array_equal(few.monitored[0][0][0], synthetic(3, 2, 0, 8).monitored[0][0][0])


def test_features_are_fifty_finite_numbers_and_do_not_depend_on_when_it_began() -> None:
    trace = synthetic(1, 1, 0, 3).monitored[0][0]
    nothing = np.empty(0)
    found = features(trace)
    later = features((trace[0] + 100.0, trace[1] + 100.0))
    assert found.shape == (FEATURES,) and found == pytest.approx(later, abs=1e-6)
    for seen in ((nothing, nothing), (trace[0], nothing), (nothing, trace[1]), (trace[0][:1], nothing)):
        assert features(seen).shape == (FEATURES,) and np.isfinite(features(seen)).all()
    two = features((np.array([1.0, 1.5]), np.array([1.2])))
    assert two[:4] == pytest.approx([np.log(3), np.log(2), np.log(4), 1 / 3])
    assert two[4:8] == pytest.approx([0.5, 0.5, 0.0, -0.2])


def written(folder: Path, **files: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("_", "-").removeprefix("f")).write_text(text)
    return folder


def test_recorded_traces_are_read(tmp_path: Path) -> None:
    text = "0.0\t1\n0.1\t-1500\n0.05 -1\n"
    folder = written(tmp_path / "t", **{f"f{s}_{a}": text for s in (4, 9) for a in range(3)}, f9_3=text, f17=text)
    found = recorded(folder)
    assert [len(site) for site in found.monitored] == [3, 3] and len(found.others) == 1
    down, up = found.monitored[0][0]
    assert down.tolist() == [0.05, 0.1] and up.tolist() == [0.0]


@pytest.mark.parametrize(
    ("name", "text", "wrong"),
    [
        ("f1_0", "0.0 1\nnow 1\n", r"1-0: line 2: expected seconds and a direction, got 'now 1'"),
        ("f1_0", "0.0\n", r"line 1: expected seconds and a direction"),
        ("f1_0", "-1 1\n", r"line 1: expected a time of 0 or more"),
        ("f1_0", "nan 1\n", r"line 1: expected a time of 0 or more"),
        ("f1_0", "0.5 0\n", r"line 1: .* direction that is not 0"),
        ("f1_0", "0.5 nan\n", r"line 1: expected a direction that is a number, got 'nan'"),
        ("f1_0", "", r"1-0: expected a packet or more"),
        ("freadme", "x", r"readme: expected files SITE-ACCESS and NUMBER"),
        ("f1_0", "0 1\n", r"expected two sites or more with three accesses"),
    ],
)
def test_what_is_wrong_in_a_folder_of_traces_is_one_line(tmp_path: Path, name: str, text: str, wrong: str) -> None:
    folder = written(tmp_path / "t", **{name: text})
    with pytest.raises(StudyError, match=wrong) as error:
        recorded(folder)
    assert "\n" not in str(error.value)


def test_a_folder_that_is_missing_or_holds_a_folder_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"--traces .*: No such file"):
        recorded(tmp_path / "none")
    (tmp_path / "1-0").mkdir()
    with pytest.raises(StudyError, match=r"1-0: Is a directory"):
        recorded(tmp_path)

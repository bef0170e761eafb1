"""The study of privacy on few accesses: the order of the splits, and the command with recorded traces."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("sklearn")

from hyroads.controller.study import privacy
from hyroads.controller.study.framework import Settings, StudyError
from hyroads.controller.study.traces import FEATURES, observer, synthetic

SOURCE = privacy.Source(seed=3, sites=20, accesses=24, others=0)


def told(name: str, **more: object) -> privacy.Outcome:
    task = privacy.Task(name, privacy.schemes()[name], SOURCE, trees=15)
    return privacy.carry_out(replace(task, **more))  # type: ignore[arg-type]


def test_fixed_shares_hide_little_runs_and_random_shares_much() -> None:
    alone, fixed, hywf = (told(name) for name in (privacy.ALONE, "p fixed", privacy.HYWF))
    assert alone.percent > 85 and fixed.percent > 0.8 * alone.percent
    assert hywf.percent < 0.7 * fixed.percent and hywf.overhead == 0.0
    assert hywf.interval[0] < hywf.percent < hywf.interval[1]
    again = told(privacy.HYWF)
    assert np.array_equal(again.told.by_site, hywf.told.by_site)


def test_padding_sends_dummies_and_other_sites_are_told_from_monitored_ones() -> None:
    padded = [told(f"{privacy.AP}, {name}", trees=5).overhead for name in privacy.AP_GAPS]
    assert padded == sorted(padded, reverse=True) and padded[-1] > 0.02
    # The more other sites an observer has learned, the fewer of them he takes for a monitored one.
    few, many = (told(privacy.ALONE, source=replace(SOURCE, others=n), is_open=True) for n in (60, 900))
    assert few.told.false is not None and many.told.false is not None
    assert many.told.false < min(0.35, few.told.false) and few.percent > 70


def test_recorded_traces_take_the_place_of_synthetic_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = synthetic(4, 6, 6, 1)
    named = {f"{s}-{a}": trace for s, site in enumerate(found.monitored) for a, trace in enumerate(site)}
    named |= {str(number): trace for number, trace in enumerate(found.others)}
    for name, (down, up) in named.items():
        lines = [f"{at:.6f}\t{way}" for times, way in ((down, -1), (up, 1)) for at in times]
        (tmp_path / name).write_text("\n".join(lines))
    monkeypatch.setattr(privacy, "QUICK_TREES", 3)
    result = privacy.run(Settings(quick=True, traces=tmp_path), lambda done, total: None)
    assert "Recorded traces of 4 sites" in result.setting and "6 other sites" in result.setting
    assert {row[0] for row in result.tables[0].rows} >= set(privacy.schemes()) | {"open: HyWF"}
    assert not [check for check in result.checks if "91" in check.wanted]


def test_too_few_accesses_are_one_line() -> None:
    with pytest.raises(StudyError, match=r"--runs must be at least 3"):
        privacy.run(Settings(runs=2), lambda done, total: None)


def test_an_observer_tells_what_differs_and_guesses_what_does_not() -> None:
    rng = np.random.default_rng(5)
    labels = np.repeat(np.arange(4), 30)
    apart = rng.normal(labels[:, None] * 10.0, 1.0, (120, FEATURES))
    alike = rng.normal(0.0, 1.0, (120, FEATURES))
    of = np.repeat(np.arange(4), 15)
    told = observer(apart, labels, apart[::2], of, trees=10, seed=1)
    assert told.by_site.tolist() == [1.0] * 4 and told.false is None and told.work > 0
    other = rng.normal(0.0, 1.0, (60, FEATURES))
    assert observer(alike, labels, other, of, trees=10, seed=1).by_site.mean() == pytest.approx(0.25, abs=0.2)
    opened = observer(
        np.concatenate([apart, apart[:30] + 500.0]), np.append(labels, np.full(30, -1)),
        np.concatenate([apart[::2], apart[:10] + 500.0]), np.append(of, np.full(10, -1)), trees=10, seed=1,
    )  # fmt: skip
    assert opened.false == 0.0 and opened.by_site.mean() == 1.0

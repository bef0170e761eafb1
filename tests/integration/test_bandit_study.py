"""The bandit studies on reduced runs: published figures within margins, and the targets of HyMAB+."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from hyroads.controller.cli.main import main
from hyroads.controller.core.bandit.baselines import EpsGreedy, EpsNGreedy, Rand, Rexp3
from hyroads.controller.core.bandit.hymab import Hymab
from hyroads.controller.core.bandit.hymab_plus import HymabPlus
from hyroads.controller.study import bandit_dynamic
from hyroads.controller.study.bandit import data
from hyroads.controller.study.contenders import (
    Contender,
    World,
    above_for_good,
    changing_world,
    courses,
    first_trial,
    simulate,
)
from hyroads.controller.study.framework import Plot, Result, Settings, Table
from hyroads.controller.study.report import write
from hyroads.controller.study.verdicts import Check, at_most

RUNS = 1000


def quiet(done: int, total: int) -> None:
    pass


@pytest.fixture(scope="module")
def static() -> dict[str, np.ndarray]:
    taking_part = [
        Contender("hymab", Hymab(dynamic=False), 1000),
        Contender("hymab+", HymabPlus(), 1000),
        Contender("lambda 1", Hymab(dynamic=False, exponent=1.0), 1000),
        Contender("lambda 3", Hymab(dynamic=False, exponent=3.0), 1000),
        Contender("rand", Rand(dynamic=False), 1000),
        Contender("eps", EpsGreedy(0.03), 1000),
        Contender("eps_n", EpsNGreedy(factor=0.005), 1000),
    ]
    found = courses(taking_part, Settings(seed=7), RUNS, quiet)
    return {name: course.delivered for name, course in found.items()}


@pytest.fixture(scope="module")
def dynamic() -> dict[str, np.ndarray]:
    """From the change on, which comes after 3000 trials instead of 25 000."""
    taking_part = [
        Contender("hymab", Hymab(), 4000),
        Contender("hymab+", HymabPlus(), 4000),
        Contender("rexp3 last 10", Rexp3(), 4000),
        Contender("rexp3 all", Rexp3(window=None), 4000),
    ]
    found = courses(taking_part, Settings(seed=7), 500, quiet, change_trial=3000)
    return {name: course.delivered for name, course in found.items()}


def test_hymab_reaches_the_published_figures(static) -> None:
    assert first_trial(static["hymab"], 0.85) == pytest.approx(36, rel=0.2)
    assert first_trial(static["hymab"], 0.95) == pytest.approx(310, rel=0.25)
    for name, share in [("lambda 1", 0.904), ("hymab", 0.939), ("lambda 3", 0.945)]:
        assert data(static[name]) == pytest.approx(share, abs=0.006)


def test_baselines_reach_the_published_figures_and_order(static) -> None:
    assert first_trial(static["rand"], 0.85) == pytest.approx(36, rel=0.2)
    assert first_trial(static["rand"], 0.95) == pytest.approx(353, rel=0.25)
    assert first_trial(static["eps"], 0.85) > 2 * first_trial(static["hymab"], 0.85)
    assert first_trial(static["eps"], 0.95) is None
    assert first_trial(static["eps_n"], 0.85) > 5 * first_trial(static["hymab"], 0.85)


def test_plus_is_no_worse_than_hymab_in_a_static_network(static) -> None:
    for level in (0.85, 0.95):
        assert first_trial(static["hymab+"], level) <= first_trial(static["hymab"], level)
        assert above_for_good(static["hymab+"], level) <= above_for_good(static["hymab"], level)
    assert data(static["hymab+"]) >= data(static["hymab"])


def test_plus_recovers_before_everybody_else(dynamic) -> None:
    trials = {name: first_trial(curve[3000:], 0.85) or 10**6 for name, curve in dynamic.items()}
    assert trials["hymab+"] <= 100
    assert trials["hymab+"] < 0.8 * trials["rexp3 last 10"]
    assert 110 <= trials["rexp3 last 10"] <= 230
    assert trials["rexp3 all"] > 1.5 * trials["rexp3 last 10"]


def test_plus_loses_nothing_before_and_after_the_change(dynamic) -> None:
    for span in (slice(2000, 3000), slice(3000, 4000)):
        means = {name: curve[span].mean() for name, curve in dynamic.items()}
        assert max(means, key=means.get) == "hymab+"


def test_plus_finds_an_arm_that_became_better_although_its_own_did_not_change() -> None:
    flows = 200
    rates = np.tile([0.6, 0.5, 0.5, 0.5, 0.3], (flows, 1))
    later = rates.copy()
    later[:, 1] = 1.0
    course = simulate(HymabPlus(), World(rates, later, 1500), 5000, np.random.default_rng(1))
    assert course.delivered[1500] < 0.65
    assert course.delivered[4500:].mean() > 0.9


@pytest.mark.parametrize("sigma", [0.0, 0.05, 0.4])
def test_plus_works_with_other_noise_than_assumed(sigma: float) -> None:
    world = changing_world(200, 5, 1500, 2, np.random.default_rng(2))
    world = World(world.rates, world.later_rates, 1500, sigma)
    course = simulate(HymabPlus(), world, 2500, np.random.default_rng(3))
    assert course.delivered[1000:1500].mean() > 0.9
    assert course.delivered[2000:].mean() > 0.87
    # False alarms cost probes: they must stay rare.
    assert course.probed[1000:1500].mean() < 0.04


def test_report_files(tmp_path: Path) -> None:
    plot = Plot("curves", "A plot", "trial", "rate", np.array([1.0, 2.0]), {"a": np.array([0.5, 1 / 3])})
    table = Table("summary", "A table", ("name", "n"), (("x|y", 1), ("z", None)))
    result = Result("Title", "Setting.", [table], [plot], [Check("figure", at_most(3.0), 2.0)], ["Note."])
    files = write(result, tmp_path / "deep" / "er", plots=True)
    assert [f.name for f in files] == [
        "report.md",
        "summary.csv",
        "checks.csv",
        "curves.csv",
        "curves.png",
        "curves.svg",
        "curves.pdf",
    ]
    assert files[4].read_bytes().startswith(b"\x89PNG") and b"<svg" in files[5].read_bytes()
    text = files[0].read_text()
    assert "| x\\|y | 1 |" in text and "| z | - |" in text and "![A plot](curves.png)" in text and "2.000" in text
    assert "| figure | - | 2.000 | reference | at most 3 | met |" in text
    assert list(csv.reader(files[3].open())) == [["trial", "a"], ["1.0", "0.5"], ["2.0", "0.333333"]]


def test_the_command(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(bandit_dynamic, "QUICK_CHANGE", 300)
    monkeypatch.setattr(bandit_dynamic, "QUICK_AFTER", 1000)
    monkeypatch.setattr(bandit_dynamic, "QUICK_BATCHES", (100,))
    out = tmp_path / "o"
    arguments = ["study", "bandit-dynamic", "--quick", "--runs", "5", "--workers", "1", "--out", str(out)]
    assert main([*arguments, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["study"] == "bandit-dynamic" and len(document["checks"]) == 5
    wanted = {"report.md", "summary.csv", "checks.csv", "curves.csv", "curves.png", "curves.svg", "by-batch-all.pdf"}
    assert wanted <= {Path(f).name for f in document["files"]}
    assert all(Path(f).stat().st_size for f in document["files"])
    rows = {row[0]: row for row in document["tables"][0]["rows"]}
    assert {"hymab", "hymab+", "hymab, eps_min 0.02", "rexp3 all, best", "stage-1 rexp3 all, best"} <= set(rows)

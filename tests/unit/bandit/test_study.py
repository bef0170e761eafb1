"""The studies: what they draw and write, and the command. For figures see tests/integration/test_bandit_study.py."""

from __future__ import annotations

import json
from importlib import util
from pathlib import Path

import numpy as np
import pytest

from hyroads.controller.cli.main import main
from hyroads.controller.core.bandit.baselines import EpsGreedy, EpsNGreedy
from hyroads.controller.core.bandit.hymab_plus import HymabPlus
from hyroads.controller.study import drawing
from hyroads.controller.study.contenders import (
    Contender,
    World,
    changing_world,
    courses,
    first_crossing,
    first_trial,
    simulate,
)
from hyroads.controller.study.framework import Result, Settings, run_all
from hyroads.controller.study.report import write


def quiet(done: int, total: int) -> None:
    pass


def test_nothing_delivers_more_than_the_optimum_and_probes_cost() -> None:
    world = World(np.array([[1.0, 0.8]]), np.array([[1.0, 0.8]]), 0, 0.0)
    course = simulate(EpsGreedy(1.0), world, 50, np.random.default_rng(1))
    assert set(np.round(course.delivered, 6)) <= {0.25, 0.2}
    assert (course.probed == 1).all()


def test_greedy_policies_probe_until_they_know_an_arm() -> None:
    """A flow that knows nothing has no rate to send at: without a first probe it would deliver nothing."""
    world = World(np.array([[1.0, 0.8]]), np.array([[1.0, 0.8]]), 0, 0.0)
    for policy in (EpsGreedy(0.0), EpsNGreedy(factor=0.0)):
        course = simulate(policy, world, 10, np.random.default_rng(1))
        assert course.probed.tolist() == [1] + [0] * 9
        assert course.delivered[0] in (0.25, 0.2) and course.delivered[1:] == pytest.approx(4 * course.delivered[0])


def test_redrawn_arms_are_two() -> None:
    world = changing_world(500, 5, 10, 2, np.random.default_rng(1))
    assert ((world.rates != world.later_rates).sum(axis=1) == 2).all()
    assert world.later_rates.min() < 0.1 and (world.rates >= 0.5).all()


def test_the_figures_do_not_depend_on_the_number_of_processes() -> None:
    taking_part = [Contender("hymab+", HymabPlus(), 30), Contender("eps_n", EpsNGreedy(), 30)]
    one, two = (courses(taking_part, Settings(seed=3, workers=w), 300, quiet) for w in (1, 2))
    for name in one:
        assert np.array_equal(one[name].delivered, two[name].delivered)


def test_an_error_in_a_worker_is_not_lost() -> None:
    with pytest.raises(json.JSONDecodeError):
        run_all(json.loads, ["1", "{"], Settings(workers=2), quiet)


def test_first_trial_is_on_the_smoothed_curve() -> None:
    curve = np.full(400, 0.5)
    curve[100] = 1.0
    assert first_trial(curve, 0.9) is None
    curve[200:] = 1.0
    assert 195 <= first_trial(curve, 0.9) <= 210
    assert first_trial(np.array([0.9, 1.0]), 0.9) == 1


def test_first_crossing_is_of_the_curve_itself() -> None:
    curve = np.array([0.5, 0.85, 0.7, 0.95])
    assert [first_crossing(curve, level) for level in (0.4, 0.85, 0.9, 0.96)] == [1, 2, 4, None]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nonsense"], "unknown study 'nonsense'"),
        (["bandit", "--runs", "0"], "--runs must be between 1 and"),
        (["bandit", "--seed", "-1"], "--seed must not be negative"),
        (["bandit", "--workers", "0"], "--workers"),
    ],
)
def test_bad_input_is_one_line_and_status_2(arguments, words, capsys) -> None:
    try:
        status = main(["study", *arguments])
    except SystemExit as ended:
        status = ended.code
    error = capsys.readouterr().err
    assert status == 2 and words in error and error.count("\n") == 1


def test_missing_matplotlib_is_said_before_the_work(capsys, monkeypatch) -> None:
    real = util.find_spec
    monkeypatch.setattr(drawing, "find_spec", lambda name: None if name == "matplotlib" else real(name))
    assert main(["study", "bandit"]) == 2
    assert "pip install 'hyroads[study]'" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    from hyroads.controller.study.framework import StudyError

    (tmp_path / "file").write_text("")
    with pytest.raises(StudyError, match="file"):
        write(Result("t", "s", [], [], [], []), tmp_path / "file" / "x", plots=False)

"""Pair tests on real packets: hidden conflicts are found, exposed pairs set free, and traffic comes first."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from network_names import network_name

# Two minutes of real packets; tests/integration/test_pair_tests.py is the short form.
pytestmark = pytest.mark.nightly
BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "pair_tests.py"


@pytest.fixture(scope="module")
def told() -> str:
    command = [sys.executable, str(BENCHMARK), "--name", network_name("pairs"), "--noise", "0.05"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    # Its status is the number of wrong or missing verdicts.
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def share(told: str, when: str) -> float:
    found = re.search(rf"^{when}: .*; ([0-9.]+)% of the optimum", told, re.MULTILINE)
    assert found, told
    return float(found[1]) / 100


def test_learned_domains_give_what_hearing_denied(told: str) -> None:
    assert share(told, "domains from hearing") < 0.95
    assert share(told, "domains after tests") > 0.95


def test_a_flow_that_wakes_up_ends_the_test_and_has_its_rate(told: str) -> None:
    found = re.search(r"dummies end after (\d+) ms; in the first half second (\d+)%", told)
    assert found, told
    # A report each 100 ms, a slot each 100 ms, and a message.
    assert int(found[1]) <= 400
    assert int(found[2]) >= 85

"""The demo ``capacity-drop`` on real packets: HyMAB finds a better multipath when a link loses capacity untold."""

from __future__ import annotations

from pathlib import Path

import pytest
from network_names import network_name

TIMEOUT_S = 120.0


@pytest.fixture(scope="module")
def verdict(hyroads, document_of, tmp_path_factory):
    folder = tmp_path_factory.mktemp("drop")
    done = hyroads(
        *("demo", "capacity-drop", "--json", "--name", network_name("drop"), "--publish", "0", "--seconds", "6"),
        *("--out", str(folder)),
        timeout_s=TIMEOUT_S,
    )
    assert done.returncode in (0, 1), done.stderr
    document = document_of(done.stdout)
    return {"files": document["files"], **{check["what"]: check for check in document["checks"]}}


def test_the_model_goes_on_sending_what_the_link_no_longer_carries(verdict):
    assert verdict["model: all of the power line: carried"]["ratio"] >= 0.92
    assert verdict["model: a quarter is left: carried"]["ratio"] <= 0.7


def test_hymab_moves_to_a_better_multipath_in_time_and_carries_more(verdict):
    assert verdict["after the drop: a better multipath is in use"]["measured"] <= 15.0
    assert verdict["  what it can carry, beside the best"]["ratio"] >= 0.9
    assert verdict["HyMAB: a quarter is left: carried"]["ratio"] >= 0.75
    assert verdict["after the drop: HyMAB beside the model"]["measured"] >= 1.1


def test_csv_and_plots_are_written(verdict):
    names = {Path(file).name for file in verdict["files"]}
    assert {"flows.csv", "phases.csv", "verdict.csv"} < names

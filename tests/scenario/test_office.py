"""The demo ``office``, a quarter of a minute of it: ten flows on 22 nodes, by a controller that only measures."""

from __future__ import annotations

import pytest
from network_names import network_name

pytestmark = pytest.mark.alone


@pytest.fixture(scope="module")
def verdict(hyroads, document_of, tmp_path_factory):
    folder = tmp_path_factory.mktemp("office")
    done = hyroads(
        *(
            "demo",
            "office",
            "--json",
            "--name",
            network_name("off"),
            "--publish",
            "0",
            "--minutes",
            "0.25",
            "--out",
            str(folder),
        ),
        timeout_s=120.0,
    )
    assert done.returncode in (0, 1), done.stderr
    document = document_of(done.stdout)
    assert document["capacities"] == "measured"
    assert {file.name for file in folder.iterdir()} >= {"office.png", "flows.csv", "phases.csv", "verdict.csv"}
    return {check["what"]: check for check in document["checks"]}


def found(verdict, words):
    return next(check for what, check in verdict.items() if what.startswith(words))


@pytest.mark.parametrize("what", ["utility, sum of log(1 + x)", "throughput"])
def test_it_carries_nine_tenths_of_the_exact_optimum_of_the_true_capacities(verdict, what):
    check = verdict[f"steady state: {what}"]
    assert check["theory"] > 10
    assert 0.9 <= check["ratio"] <= 1.05


def test_it_loses_next_to_nothing(verdict):
    assert found(verdict, "lost of ")["ok"]


def test_the_verdict_accounts_for_slots_and_for_what_the_run_costs(verdict):
    assert int(found(verdict, "slots missed, of ")["what"].rsplit(" ", 1)[1]) > 100
    assert found(verdict, "slots that took longer than 100 ms")["measured"] <= 15
    assert 0 < found(verdict, "CPU of the emulation")["measured"] <= 100
    for kind in ("controller", "agents", "medium", "switches"):
        assert found(verdict, f"memory, {kind}")["ok"]
        assert found(verdict, f"memory, {kind}")["theory"] > 1
    assert found(verdict, "logs")["ok"]

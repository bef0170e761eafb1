"""The demo ``handover`` on real packets: a client goes round all its places with each manager, then copies."""

from __future__ import annotations

import pytest
from network_names import network_name

TIMEOUT_S = 150.0


@pytest.fixture(scope="module")
def verdict(hyroads, document_of) -> dict[str, dict[str, float]]:
    command = ("demo", "handover", "--json", "--name", network_name("hand"), "--publish", "0", "--seconds", "2")
    done = hyroads(*command, timeout_s=TIMEOUT_S)
    assert done.returncode in (0, 1), done.stderr
    document = document_of(done.stdout)
    assert document["ok"] is (done.returncode == 0)
    return {check["what"]: check for check in document["checks"]}


def measured(verdict: dict[str, dict[str, float]], start: str) -> float:
    [found] = [check["measured"] for what, check in verdict.items() if what.startswith(start)]
    return found


@pytest.mark.parametrize("manager", ["hoolock", "bicast"])
@pytest.mark.parametrize("what", ["lost", "doubled", "out of order"])
def test_four_handovers_cost_no_packet(verdict, manager, what):
    assert measured(verdict, f"{manager}: {what}") == 0


def test_hard_loses_at_most_what_is_in_flight(verdict):
    [check] = [check for what, check in verdict.items() if what.startswith("hard: lost")]
    assert check["measured"] <= check["theory"]
    assert measured(verdict, "hard: doubled") == measured(verdict, "hard: out of order") == 0


def test_a_killed_controller_costs_nothing_and_its_successor_knows_the_place(verdict):
    assert measured(verdict, "controller killed: lost") == 0
    assert measured(verdict, "controller back") == 1


def test_copies_by_three_lossy_paths(verdict):
    # 1500 packets, three links that lose 3 %: 0.04 lost on average.
    assert measured(verdict, "3-cast: lost") <= 1
    assert measured(verdict, "3-cast: doubled") == 0
    assert measured(verdict, "n-cast off and on") == 0


def test_a_killed_controller_neither_ends_nor_doubles_copies(verdict):
    assert measured(verdict, "n-cast, controller killed") == 0
    assert measured(verdict, "n-cast, controller back") == 1

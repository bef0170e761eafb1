"""CPU time of the loop per slot, per cut link and per declared flow grows with the network at most linearly, and the
rules of a switch hardly do.
"""

from __future__ import annotations

import random
import statistics

import pytest
from campus_loop import CampusLoop

from hyroads.controller.control.live import inline

SIZES = (50, 100, 200)
REPEATED = 5
# Four times the nodes and flows. A quadratic step costs 16 times as much, as soon as it is most of the work.
MOST_GROWTH = 9.0
# A rule for every node on each switch makes it four.
MOST_GROWTH_OF_RULES = 1.3


def costs_s(campus: CampusLoop) -> dict[str, float]:
    """Median CPU time of a slot, a cut and a declared flow, with as many flows as access points."""
    rng = random.Random(4)
    found: dict[str, list[float]] = {"slot": [], "cut": [], "declare": []}
    for spec in campus.specs(REPEATED, random.Random(3), "new", 30000):
        link = rng.choice(campus.used())
        found["cut"].append(campus.cut(link))
        found["slot"].append(campus.slot())
        campus.cut(link, up=True)
        found["declare"].append(campus.declare(spec))
        found["slot"].append(campus.slot())
    return {what: statistics.median(times) for what, times in found.items()}


@pytest.fixture(scope="module")
def campuses(tmp_path_factory: pytest.TempPathFactory) -> dict[int, CampusLoop]:
    """One of each size, in which all is in force."""
    folder = tmp_path_factory.mktemp("growth")
    found = {}
    for size in SIZES:
        (folder / str(size)).mkdir()
        found[size] = campus = CampusLoop(folder / str(size), size, size)
        # What is worked out beside the loop counts too.
        campus.loop.live._in_thread = campus.loop.live._in_background = inline
        campus.settle()
    return found


@pytest.fixture(scope="module")
def rules(campuses: dict[int, CampusLoop]) -> dict[int, list[int]]:
    """How many rules each switch was given, before anything else happens to it."""
    return {size: [len(switch.rules) for switch in campus.switches.values()] for size, campus in campuses.items()}


@pytest.fixture(scope="module")
def costs(campuses: dict[int, CampusLoop], rules: dict[int, list[int]]) -> dict[int, dict[str, float]]:
    assert rules
    return {size: costs_s(campus) for size, campus in campuses.items()}


@pytest.mark.parametrize("what", ["slot", "cut", "declare"])
def test_nothing_grows_faster_than_the_network(costs: dict[int, dict[str, float]], what: str) -> None:
    growth = costs[SIZES[-1]][what] / costs[SIZES[0]][what]
    assert growth <= MOST_GROWTH, {size: round(1e3 * of[what], 2) for size, of in costs.items()}


def test_the_rules_of_a_switch_do_not_grow_with_the_network(rules: dict[int, list[int]]) -> None:
    mean = {size: statistics.fmean(of) for size, of in rules.items()}
    assert min(min(of) for of in rules.values()) > 0
    assert mean[SIZES[-1]] <= MOST_GROWTH_OF_RULES * mean[SIZES[0]], mean

"""CPU time of the loop per slot, per cut link and per declared flow grows with the network at most linearly, and what
has nothing to do with a change costs next to nothing.
"""

from __future__ import annotations

import random
import statistics
from pathlib import Path

import pytest
from campus_loop import CampusLoop

SIZES = (50, 100, 200)
REPEATED = 5
# Four times the nodes and flows. A quadratic step costs 16 times as much, as soon as it is most of the work.
MOST_GROWTH = 9.0


def costs_s(folder: Path, size: int) -> dict[str, float]:
    """Median CPU time of a slot, a cut and a declared flow, with as many flows as access points."""
    folder.mkdir()
    campus = CampusLoop(folder, size, size)
    campus.settle()
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
def costs(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, float]]:
    folder = tmp_path_factory.mktemp("growth")
    return {size: costs_s(folder / str(size), size) for size in SIZES}


@pytest.mark.parametrize("what", ["slot", "cut", "declare"])
def test_nothing_grows_faster_than_the_network(costs: dict[int, dict[str, float]], what: str) -> None:
    growth = costs[SIZES[-1]][what] / costs[SIZES[0]][what]
    assert growth <= MOST_GROWTH, {size: round(1e3 * of[what], 2) for size, of in costs.items()}

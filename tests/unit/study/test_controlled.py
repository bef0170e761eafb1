"""What the studies of the congestion control count with, and that their checks tell right from wrong."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from hyroads.controller.core.rates import RateProblem, solve
from hyroads.controller.core.rates.controller_mode import ControllerSettings
from hyroads.controller.study import convergence, networks, queues, utility
from hyroads.controller.study.controlled import (
    MARGIN,
    SETTINGS,
    DenseProblem,
    Setting,
    course,
    draw,
    slots_until,
    trailing_mean,
)
from hyroads.controller.study.convergence import BACKPRESSURE, ENTERPRISES, HOMES, LIVE, PAPER, Way
from hyroads.controller.study.schemes import Scheme
from hyroads.controller.study.verdicts import Verdict


def sparse_of(problem: RateProblem) -> RateProblem:
    return RateProblem(
        problem.layout, problem.utilities, problem.capacity_mbps, problem.margin, problem.external, problem.demand_mbps
    )


@pytest.mark.parametrize("name", SETTINGS)
def test_the_array_gives_what_the_sparse_problem_gives(name: str) -> None:
    dense = draw(SETTINGS[name], 1, 0).problem
    sparse = sparse_of(dense)
    assert isinstance(dense, DenseProblem)
    rng = np.random.default_rng(1)
    rates, prices = rng.random(dense.layout.path_count) * 10, rng.random(dense.layout.link_count)
    assert dense.airtime(rates) == pytest.approx(sparse.airtime(rates))
    assert dense.path_prices(prices) == pytest.approx(sparse.path_prices(prices))
    assert dense.prices_per_link_price == pytest.approx(sparse.prices_per_link_price)
    assert course(dense, ControllerSettings(), 40) == pytest.approx(course(sparse, ControllerSettings(), 40))


def test_a_drawn_case_fits_together() -> None:
    setting = SETTINGS["enterprise, 3 flows"]
    case, again, other = draw(setting, 1, 3), draw(setting, 1, 3), draw(setting, 2, 3)
    assert case.paths == again.paths
    assert case.network.links == again.network.links
    assert case.network.links != other.network.links
    assert len(case.flows) == len(case.paths) == 3
    assert list(case.problem.layout.paths) == case.all_paths
    assert case.problem.layout.path_flow.tolist() == [f for f, paths in enumerate(case.paths) for _ in paths]
    for (source, target), paths in zip(case.flows, case.paths, strict=True):
        for path in paths:
            assert case.network.links[path[0]].source == source
            assert case.network.links[path[-1]].target == target
    assert case.problem.busiest(solve(case.problem).path_rates_mbps) == pytest.approx(1 - MARGIN)


def test_a_network_without_routes_is_drawn_anew() -> None:
    """Every other network has no link at all."""
    turns = iter(range(100))

    def sometimes(rng: random.Random) -> object:
        network = networks.residential(rng)
        return network.with_capacities({link.id: 0.0 for link in network.links}) if next(turns) % 2 == 0 else network

    case = draw(Setting("sometimes", sometimes, 2), 1, 0)  # type: ignore[arg-type]
    assert len(case.paths) == 2
    assert next(turns) == 2


@pytest.mark.parametrize("number", [0, 7, 12, 22])
def test_the_live_controller_is_at_the_optimum_of_homes_with_two_flows(number: int) -> None:
    """With the median capacity as the unit of all paths, and rates up to the slowest link's, these homes stood at 4 to
    8 % of the optimum after 100 s.
    """
    problem = draw(SETTINGS["residential, 2 flows"], 1, number).problem
    optimum = solve(problem).flow_rates_mbps
    total = course(problem, ControllerSettings(), 1000).sum(axis=1)
    assert total[300:] == pytest.approx(np.full(700, optimum.sum()), rel=0.02)


@pytest.mark.parametrize(
    ("totals", "expected"),
    [
        ([100.0], (1, 1)),
        ([0.0, 99.5, 50.0, 99.5, 100.0], (2, 4)),
        ([0.0, 50.0, 98.9], (4, 4)),
        ([100.0, 100.0, 0.0], (1, 4)),
    ],
)
def test_slots_until(totals: list[float], expected: tuple[int, int]) -> None:
    assert slots_until(np.array(totals), 100.0) == expected


def test_trailing_mean() -> None:
    assert trailing_mean(np.array([3.0, 0.0, 3.0, 3.0]), 3).tolist() == pytest.approx([1.0, 1.0, 2.0, 2.0])


def way(first: int, slots: int = 2000, share: float = 1.0) -> Way:
    rising = np.full(slots, share, dtype=np.float32)
    rising[: first - 1] = 0.5
    return Way(rising, first, first)


def found_of(paper: int, pressed: int, live: float = 1.0) -> dict[str, list[convergence.Ways]]:
    # The medians of the reference: first after 55 slots, for good after 316.
    of_paper = replace(way(paper), first=55, stays=316) if paper == 55 else way(paper)
    ways = {PAPER: of_paper, LIVE: way(10, share=live), BACKPRESSURE: way(pressed, 20_000)}
    return {name: [ways] * 80 for name in [*HOMES, *ENTERPRISES]}


def test_checks_of_convergence_are_met_by_what_was_published_and_not_by_its_opposite() -> None:
    published = convergence.checks(found_of(55, 12_000), 20_000)
    verdicts = {check.verdict for check in published}
    assert verdicts == {Verdict.MET}, published
    assert [check.published for check in published][:4] == ["90", "> 3000", "77", "> 10000"]
    slow = convergence.checks(found_of(120, 2900, live=0.9), 20_000)
    assert {check.verdict for check in slow} == {Verdict.MISSED}, slow


def test_slots_of_runs_that_are_never_there() -> None:
    assert convergence.slots_of([way(5), Way(np.zeros(30, dtype=np.float32), 31, 31)]).tolist() == [5, 30]


def waiting(packets: dict[str, float], growth: tuple[float, float]) -> queues.Waiting:
    return queues.Waiting({}, packets, {queues.WITHOUT: growth})


def test_checks_of_queues() -> None:
    good = waiting({queues.OPTIMAL: 500.0, PAPER: 2.0}, (300.0, 310.0))
    bad = waiting({queues.OPTIMAL: 100.0, PAPER: 2.0}, (300.0, 50.0))
    assert [check.verdict for check in queues.checks({"homes": [good] * 8})] == [Verdict.MET] * 2
    assert [check.verdict for check in queues.checks({"homes": [good] * 2})] == [Verdict.UNDECIDED] * 2
    assert [check.verdict for check in queues.checks({"homes": [bad] * 8})] == [Verdict.MISSED] * 2


def test_checks_of_utility() -> None:
    ratios = dict.fromkeys(utility.SHOWN, 0.9) | {Scheme.CONS: 1.0, Scheme.EMPOWER: 0.98}
    assert {check.verdict for check in utility.checks({"homes": [ratios] * 8})} == {Verdict.MET}
    assert {check.verdict for check in utility.checks({"homes": [ratios]})} == {Verdict.UNDECIDED}
    worse = ratios | {Scheme.EMPOWER: 0.8}
    assert {check.verdict for check in utility.checks({"homes": [worse] * 8})} == {Verdict.MISSED}


def test_nothing_is_better_than_the_optimum() -> None:
    """Only without control may the rates of few slots be above what they are in the long run."""
    ratios = utility.ratios_of(utility.Task("residential", 1, 1))
    assert max(value for scheme, value in ratios.items() if scheme is not Scheme.MP_WITHOUT) <= 1 + 1e-6
    assert ratios[Scheme.CONS] >= ratios[Scheme.EMPOWER] - 1e-6
    assert ratios[Scheme.MP_WITHOUT] <= ratios[Scheme.EMPOWER] + 0.02

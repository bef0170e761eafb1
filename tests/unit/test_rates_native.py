"""The compiled solver against the reference in Python: the same optimum, cold and warm, and no trust in its input."""

from __future__ import annotations

import ctypes
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from examples import seeds
from rate_cases import alpha_fair, relative_gap

import hyroads.controller.native as package
from hyroads.controller.core.errors import PlanningError
from hyroads.controller.core.interference import TechnologyInterference
from hyroads.controller.core.network import Network
from hyroads.controller.core.planner import Planner
from hyroads.controller.core.rates import Allocation, Layout, RateProblem, Utilities, native, solve, solver
from hyroads.controller.core.rates.reduction import Pattern, reduce_problem
from hyroads.controller.native import rates as library
from hyroads.controller.study import networks as study_networks

pytestmark = pytest.mark.skipif(library.kernel() is None, reason="the compiled kernel isn't built")


def random_problem(seed: int, alpha: float | None, shared: bool = True) -> RateProblem:
    rng = random.Random(seed)
    network = rng.choice([study_networks.enterprise, study_networks.office22])(rng)
    if not shared:
        every_link_alone = TechnologyInterference(network.links, frozenset(network.technologies))
        network = replace(network, interference=every_link_alone)
    flows = planned(network, rng)
    numbers = np.random.default_rng(seed)
    weights = numbers.choice([0.3, 1.0, 2.0], len(flows))
    utilities = Utilities.log(weights) if alpha is None else alpha_fair(weights, alpha)
    links = len(network.links)
    return RateProblem(
        Layout.build(network.interference, flows),
        utilities,
        np.array([link.capacity_mbps for link in network.links]),
        np.full(links, 0.05),
        numbers.choice([0.0, 0.0, 0.2], links),
        numbers.choice([np.inf, np.inf, 1.0, 5.0], len(flows)),
    )


def planned(network: Network, rng: random.Random) -> dict[str, list[tuple[int, ...]]]:
    planner = Planner(network)
    flows = {}
    for index in range(rng.randint(3, 20)):
        source, target = study_networks.endpoints(network, rng)
        arms = planner.plan(source, target).arms
        flows[f"f{index}"] = [path.links for arm in arms[:2] for path in arm.paths]
    return flows


def reference(problem: RateProblem, warm: Allocation | None, monkeypatch: pytest.MonkeyPatch) -> Allocation:
    with monkeypatch.context() as patch:
        patch.setattr(solver, "kernel", lambda: None)
        return solve(problem, warm)


@pytest.mark.parametrize("alpha", [None, 0.0, 0.5, 1.0, 2.0, 8.0])
@pytest.mark.parametrize("seed", seeds(6))
def test_it_finds_the_optimum_of_the_reference(seed: int, alpha: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = random_problem(seed, alpha, shared=seed % 3 != 0)
    expected, found = reference(problem, None, monkeypatch), solve(problem)
    assert found.utility == pytest.approx(expected.utility, rel=1e-6, abs=1e-9)
    assert relative_gap(found) < 1e-6
    if alpha != 0.0:
        # Of a large alpha the flows with the largest rates hardly count.
        rel = 1e-4 if alpha is None or alpha <= 2.0 else 1e-2
        assert found.flow_rates_mbps == pytest.approx(expected.flow_rates_mbps, rel=rel, abs=1e-5)
    changed = problem.changed(
        capacity_mbps=problem.capacity_mbps * np.random.default_rng(seed).uniform(0.5, 2.0, problem.layout.link_count)
    )
    expected, warm = reference(changed, None, monkeypatch), solve(changed, found)
    assert warm.utility == pytest.approx(expected.utility, rel=1e-6, abs=1e-9)
    assert relative_gap(warm) < 1e-6


def test_a_change_of_a_few_per_cent_takes_fewer_steps_than_a_cold_start() -> None:
    steps = []
    for seed in range(12):
        problem = random_problem(seed, None)
        factors = np.random.default_rng(seed).uniform(0.99, 1.01, problem.layout.link_count)
        changed = problem.changed(capacity_mbps=problem.capacity_mbps * factors)
        steps.append((solve(changed, solve(problem)).steps, solve(changed).steps))
    warm, cold = np.mean(steps, axis=0)
    assert warm < 0.9 * cold


def test_it_refuses_what_does_not_fit_together() -> None:
    problem = random_problem(1, None)
    reduced = reduce_problem(problem, Pattern.of(problem.layout))
    start = native.Start.cold(np.ones(len(reduced.columns)))
    kernel = library.kernel()
    assert kernel is not None

    def attempt(wrong: object, start: native.Start = start, boundary: float = 0.995) -> None:
        native.solve_native(kernel, wrong, start, boundary=boundary, centring=0.0, max_steps=10)  # type: ignore[arg-type]

    beyond = reduced.routing.copy()
    beyond.indices = beyond.indices + len(reduced.airtime)
    for wrong in (
        replace(reduced, routing=beyond),
        replace(reduced, budget=-reduced.budget),
        replace(reduced, budget=reduced.budget[1:]),
        replace(reduced, airtime=np.full_like(reduced.airtime, np.nan)),
        replace(reduced, demand_mbps=reduced.demand_mbps[1:]),
    ):
        with pytest.raises(PlanningError, match="refused"):
            attempt(wrong)
    with pytest.raises(PlanningError, match="refused"):
        attempt(reduced, native.Start.cold(np.zeros(len(reduced.columns))))
    with pytest.raises(PlanningError, match="refused"):
        attempt(reduced, boundary=1.5)
    assert kernel.library.hyroads_rates(None, None) == 2
    request, answer = library._Request(size=1), library._Answer(size=ctypes.sizeof(library._Answer))
    assert kernel.library.hyroads_rates(ctypes.byref(request), ctypes.byref(answer)) == 2


def test_a_library_of_another_version_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(library, "ABI_VERSION", library.ABI_VERSION + 1)
    assert library.load_kernel() is None
    (tmp_path / "broken.so").write_bytes(b"no library")
    monkeypatch.setattr(package, "candidates", lambda: [tmp_path / "broken.so", tmp_path / "missing.so"])
    assert library.load_kernel() is None

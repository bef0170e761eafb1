"""The compiled solver against the reference in Python: the same optimum, cold and warm, and no trust in its input."""

from __future__ import annotations

import ctypes
import random
import threading
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


def test_what_is_solved_aside_waits_while_it_is_held_up_and_then_finds_the_same() -> None:
    problem, kernel = random_problem(1, None), library.kernel()
    assert kernel is not None
    expected, found = solve(problem), list[Allocation]()

    def solve_aside() -> None:
        found.append(solve(problem, aside=lambda function: function()))

    solve_aside()
    kernel.hold(60.0)
    try:
        thread = threading.Thread(target=solve_aside)
        thread.start()
        thread.join(0.05)
        assert len(found) == 1, "it waits for up to 1 s"
        # Who is not carried out aside does not wait, and ends first.
        assert solve(problem).path_rates_mbps.tolist() == expected.path_rates_mbps.tolist()
    finally:
        kernel.hold(0.0)
    thread.join()
    assert [each.path_rates_mbps.tolist() for each in found] == [expected.path_rates_mbps.tolist()] * 2


def test_a_library_of_another_version_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(library, "ABI_VERSION", library.ABI_VERSION + 1)
    assert library.load_kernel() is None
    (tmp_path / "broken.so").write_bytes(b"no library")
    monkeypatch.setattr(package, "candidates", lambda: [tmp_path / "broken.so", tmp_path / "missing.so"])
    assert library.load_kernel() is None


# 35 flows of a campus: by flow its paths, by row its links, and an earlier slot's rates and prices.
CIRCLE_FLOWS: list[list[list[int]]] = [
    [[32], [33, 41]], [[65, 66]], [[47], [48]], [[53], [54]], [[59], [57, 60]], [[42], [43]], [[33], [34]],
    [[18], [15, 22]], [[16], [17]], [[9], [10, 12]], [[28], [29]], [[62, 67, 68, 69], [61, 63, 67, 68, 69]],
    [[13], [14]], [[19], [20]], [[46], [45, 49, 50]], [[39], [40]], [[23, 25], [23, 24]], [[52], [51]],
    [[19], [20]], [[57], [58, 59]], [[3], [0, 4]], [[67]], [[30], [31]], [[32], [33, 41]], [[16], [17]],
    [[26], [21, 27]], [[5], [6]], [[37], [36]], [[8, 64, 65], [7, 64, 65]], [[19], [20]], [[38], [35, 44]],
    [[10], [11]], [[1], [2]], [[55], [56]], [[19], [20]],
]  # fmt: skip
CIRCLE_ROWS: list[list[int]] = [
    [0, 1, 4], [2, 3], [5, 7], [6, 8], [10, 12], [9, 11], [13], [14], [16, 18, 19, 23, 24, 26],
    [15, 17, 20, 21, 22, 25, 27], [28, 30], [29, 31], [33, 35, 36, 39, 41, 42, 44], [32, 34, 37, 38, 40, 43],
    [45, 47, 49, 50], [46, 48], [], [51, 53], [52, 54], [55], [56], [57, 60], [58, 59], [62], [65], [67],
]  # fmt: skip
CIRCLE_NUMBERS: dict[str, list[float]] = {
    "airtime": [
        0.01768, 0.02099, 0.0479, 0.0209, 0.01642, 0.01006, 0.01381, 0.01461, 0.01163, 0.0124, 0.01136, 0.01659,
        0.02629, 0.01374, 0.01469, 0.02038, 0.01604, 0.03857, 0.01434, 0.01488, 0.02075, 0.0208, 0.01863, 0.009804,
        0.01063, 0.01412, 0.01638, 0.01528, 0.01382, 0.01787, 0.009804, 0.01683, 0.01797, 0.009804, 0.01856,
        0.01669, 0.01869, 0.0167, 0.0179, 0.01953, 0.02045, 0.01721, 0.01988, 0.02538, 0.01134, 0.009804, 0.01916,
        0.01287, 0.02156, 0.01935, 0.009804, 0.02114, 0.01517, 0.009852, 0.0151, 0.01178, 0.01436, 0.01155,
        0.01274, 0.01492, 0.01415, 0.01981, 0.01374, 0.01341, 0.001, 0.001, 0.001, 0.001, 0.001, 0.001,
    ],
    "budget": [
        0.0064, 0.013, 0.0069, 0.012, 0.018, 0.023, 0.0018, 0.0089, 0.021, 0.011, 0.012, 0.015, 0.012, 0.057,
        0.0094, 0.011, 0.001, 0.011, 0.011, 0.0048, 0.0054, 0.01, 0.01, 0.018, 0.45, 0.47,
    ],
    "warm_rates": [
        0.6, 0.0, 400.0, 0.7, 0.0, 1.0, 0.0, 0.7, 0.0, 0.0, 0.1, 1.0, 0.0, 0.4, 0.0, 0.2, 0.0, 2.0, 0.0, 0.0, 0.9,
        1.0, 0.0, 0.1, 0.6, 0.1, 0.2, 0.6, 0.0, 0.0, 0.4, 0.0, 0.0, 0.7, 0.0, 0.1, 0.2, 0.9, 0.0, 0.6, 0.0, 500.0,
        1.0, 0.0, 0.6, 0.0, 0.2, 0.0, 0.2, 0.0, 0.7, 0.0, 0.7, 0.0, 1.0, 0.0, 0.1, 0.2, 0.6, 0.0, 2.0, 0.0, 0.3,
        0.0, 0.4, 0.4, 0.0, 0.0,
    ],
    "warm_prices": [
        30.0, 30.0, 60.0, 40.0, 30.0, 30.0, 40.0, 40.0, 50.0, 40.0, 40.0, 30.0, 40.0, 30.0, 40.0, 30.0, 40.0, 40.0,
        40.0, 50.0, 40.0, 40.0, 40.0, 30.0, 1.0, 2.0,
    ],
}  # fmt: skip


def test_steps_do_not_go_in_a_circle_near_the_end() -> None:
    """From here five kinds of steps followed each other until the attempt was given up."""
    paths, flows, rows = [path for flow in CIRCLE_FLOWS for path in flow], len(CIRCLE_FLOWS), len(CIRCLE_ROWS)
    starts = {"routing": paths, "domain": CIRCLE_ROWS, "flow": CIRCLE_FLOWS}
    integers = {f"{name}_starts": np.cumsum([0, *map(len, items)]) for name, items in starts.items()} | {
        "routing_items": np.concatenate(paths), "domain_items": np.concatenate(CIRCLE_ROWS),
        "set_starts": [0, 1], "set_items": [0], "domain_of": range(rows), "set_of": [0] * rows,
        "slice_of": [0] * flows,
    }  # fmt: skip
    numbers = dict.fromkeys(("weight", "alpha", "shift_mbps"), [1.0] * flows) | CIRCLE_NUMBERS | {
        "crossings": [1.0] * sum(map(len, paths)), "demand_mbps": [np.inf] * flows, "start_mbps": [],
    }  # fmt: skip
    request = {name: np.array(items, dtype=np.int32) for name, items in integers.items()}
    request |= {name: np.array(items, dtype=np.float64) for name, items in numbers.items()}
    kernel = library.kernel()
    assert kernel is not None
    pace = {"boundary": 0.995, "centring": 0.0, "max_steps": 60}
    found = kernel.solve(request, columns=len(paths), rows=rows, slices=1, **pace)
    assert found is not None and found.steps <= 30

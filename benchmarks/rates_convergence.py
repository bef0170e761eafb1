"""How many slots the controller mode takes to the optimum: python benchmarks/rates_convergence.py.

From rest, with known capacities and a margin of 0.05: slots until the total rate and the utility are first within a
share of the optimum's, and until they stay there. ``heuristic``: the step size by flows and hops that halves itself on
oscillation; ``live``: the same with the median capacity of the links in use as unit of rates, as the controller runs
it; the others are fixed. A slot is 100 ms.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from hyroads.controller.core import topologies
from hyroads.controller.core.network import FlowSpec, Network
from hyroads.controller.core.planner import Planner
from hyroads.controller.core.rates import RateProblem, rate_problem, solve
from hyroads.controller.core.rates.controller_mode import ControllerSettings, run, slots_to_converge
from hyroads.controller.netfile_io import read_file
from hyroads.mininet.network_files import find_network

MARGIN, SLOTS = 0.05, 20_000


def cases() -> Iterator[tuple[str, RateProblem]]:
    for name in ("triangle", "competing"):
        network = read_file(find_network(name))
        yield name, planned(network, network.flows)
    office = topologies.office22(random.Random(1))
    for flows in (3, 10):
        yield f"office, {flows} flows", planned(office, drawn(office, flows))


def drawn(network: Network, count: int) -> list[FlowSpec]:
    rng = random.Random(1)
    ends = [topologies.endpoints(network, rng) for _ in range(count)]
    return [FlowSpec(f"f{i}", source, target) for i, (source, target) in enumerate(ends)]


def planned(network: Network, flows: Iterator[FlowSpec] | list[FlowSpec] | tuple[FlowSpec, ...]) -> RateProblem:
    planner = Planner(network)
    flows = list(flows)
    paths = {flow.id: planner.plan(flow.source, flow.target).multipath.links for flow in flows}
    return rate_problem(network, paths, flows=flows, margin=MARGIN)


def settings_of(problem: RateProblem) -> dict[str, ControllerSettings]:
    used = problem.capacity_mbps[np.unique(problem.layout.routing.indices)]
    heuristic = ControllerSettings()
    fixed = {f"fixed {size:g}": ControllerSettings(step_size=size, adapt=False) for size in (0.005, 0.02, 0.08)}
    return {"heuristic": heuristic, "live": replace(heuristic, rate_unit_mbps=float(np.median(used))), **fixed}


def cell(slots: int) -> str:
    return "never" if slots > SLOTS else str(slots)


def row(name: str, way: str, problem: RateProblem, settings: ControllerSettings) -> str:
    optimum = solve(problem)
    totals, utilities = np.zeros(SLOTS), np.zeros(SLOTS)
    size = 0.0
    for slot, state in enumerate(run(problem, settings, SLOTS)):
        flows = problem.layout.flow_rates(state.path_rates_mbps)
        totals[slot], utilities[slot], size = flows.sum(), problem.utilities.total(flows), state.step_size
    cells = []
    for share in (0.05, 0.01):
        first, stays = zip(
            slots_to_converge(totals, float(optimum.flow_rates_mbps.sum()), share),
            slots_to_converge(utilities, optimum.utility, share),
            strict=True,
        )
        cells += [cell(max(first)), cell(max(stays))]
    return f"{name:<18} {way:<12} " + " ".join(f"{one:>8}" for one in cells) + f" {size:>9.2g}"


def main() -> None:
    print(f"slots until within 5 % and 1 % of the optimum (total and utility), of {SLOTS}; the solver takes 1")
    print(f"{'network':<18} {'step':<12} {'5 %':>8} {'stays':>8} {'1 %':>8} {'stays':>8} {'last step':>9}")
    for name, problem in cases():
        for way, settings in settings_of(problem).items():
            print(row(name, way, problem, settings), flush=True)


if __name__ == "__main__":
    main()

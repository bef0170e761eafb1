"""How many slots the controller mode takes to the optimum.

    python benchmarks/rates_convergence.py                 # a few networks, several rules
    python benchmarks/rates_convergence.py --networks 100  # the live rule on random homes and enterprises

From rest, with known capacities and a margin of 0.05. First form: slots until the total rate and the utility are first
within a share of the optimum's, and until they stay there. ``published``: the papers' unit of 50 Mb/s and their step
size by flows and hops; ``live``: a unit of rates for each path and bounded price steps, as the controller runs it;
``fixed``: the published unit with one step size for ever. Second form: slots until all flows and the airtime of all
domains stay within 5 % of the optimum. A slot is 100 ms.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np

from hyroads.controller.core.errors import PlanningError
from hyroads.controller.core.network import FlowSpec, Network
from hyroads.controller.core.planner import Planner
from hyroads.controller.core.rates import RateProblem, rate_problem, solve
from hyroads.controller.core.rates.controller_mode import ControllerSettings, distance, run
from hyroads.controller.files.documents import read_file
from hyroads.mininet.run_directory import find_network

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
from rate_cases import slots_to_converge

from hyroads.controller.study import networks as study_networks

MARGIN, SLOTS = 0.05, 20_000
SURVEY_SLOTS, WITHIN = 600, 0.05


def scaled(make: Callable[[random.Random], Network], wifi: float, plc: float) -> Callable[[random.Random], Network]:
    """Networks whose capacities are multiplied by a factor for each kind of medium."""

    def scaled_network(rng: random.Random) -> Network:
        network = make(rng)
        factors = {link.id: wifi if link.technology == "wifi" else plc for link in network.links}
        return network.with_capacities({link.id: link.capacity_mbps * factors[link.id] for link in network.links})

    return scaled_network


WIDE = partial(study_networks.enterprise, node_count=20, width_m=100.0, height_m=60.0, panels=2)
FAMILIES = {
    "homes, 5 to 102 Mb/s": study_networks.residential,
    "homes, 0.5 to 10 Mb/s": scaled(study_networks.residential, 0.1, 0.1),
    "homes, 50 to 1 020 Mb/s": scaled(study_networks.residential, 10.0, 10.0),
    "homes, WiFi 0.25 to 5, PLC 50 to 860": scaled(study_networks.residential, 0.05, 10.0),
    "enterprises, 10 nodes": study_networks.enterprise,
    "enterprises, 20 nodes": WIDE,
    "the same, 1 to 20 Mb/s": scaled(WIDE, 0.2, 0.2),
    "the same, 50 to 1 020 Mb/s": scaled(WIDE, 10.0, 10.0),
}


def cases() -> Iterator[tuple[str, RateProblem]]:
    for name in ("triangle", "competing"):
        network = read_file(find_network(name))
        yield name, planned(network, network.flows)
    office = study_networks.office22(random.Random(1))
    for flows in (3, 10):
        yield f"office, {flows} flows", planned(office, drawn(office, flows))


def drawn(network: Network, count: int) -> list[FlowSpec]:
    rng = random.Random(1)
    ends = [study_networks.endpoints(network, rng) for _ in range(count)]
    return [FlowSpec(f"f{i}", source, target) for i, (source, target) in enumerate(ends)]


def planned(network: Network, flows: Iterator[FlowSpec] | list[FlowSpec] | tuple[FlowSpec, ...]) -> RateProblem:
    planner = Planner(network)
    flows = list(flows)
    paths = {flow.id: planner.plan(flow.source, flow.target).multipath.links for flow in flows}
    return rate_problem(network, paths, flows=flows, margin=MARGIN)


def settings() -> dict[str, ControllerSettings]:
    fixed = {
        f"fixed {size:g}": ControllerSettings(step_size=size, rate_unit_mbps=50.0, adapt=False)
        for size in (0.005, 0.02, 0.08)
    }
    return {"published": ControllerSettings(rate_unit_mbps=50.0), "live": ControllerSettings(), **fixed}


def cell(slots: int) -> str:
    return "never" if slots > SLOTS else str(slots)


def row(name: str, way: str, problem: RateProblem, how: ControllerSettings) -> str:
    optimum = solve(problem)
    totals, utilities = np.zeros(SLOTS), np.zeros(SLOTS)
    size = 0.0
    for slot, state in enumerate(run(problem, how, SLOTS)):
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


def survey(networks: int) -> None:
    """The live rule on random networks with fixed seeds, one to three flows each."""
    print(f"slots until all stays within {WITHIN:.0%} of the optimum; {networks} networks each, {SURVEY_SLOTS} slots")
    print(f"{'networks':<40} {'flows':>5} {'median':>8} {'95th':>8} {'most':>8} {'never':>6}")
    for name, make in FAMILIES.items():
        for flows in (1, 2, 3):
            slots = [settled(problem) for problem in random_problems(make, flows, networks)]
            never = sum(each > SURVEY_SLOTS for each in slots)
            figures = (np.median(slots), np.percentile(slots, 95), max(slots))
            print(f"{name:<40} {flows:>5} " + " ".join(f"{one:>8.0f}" for one in figures) + f" {never:>6}", flush=True)


def random_problems(make: Callable[[random.Random], Network], flows: int, networks: int) -> Iterator[RateProblem]:
    for seed in range(networks):
        rng = random.Random(seed)
        network = make(rng)
        planner, specs, paths = Planner(network, clients_relay=True), [], {}
        while len(specs) < flows:
            source, target = study_networks.endpoints(network, rng)
            with suppress(PlanningError):
                paths[f"f{len(specs)}"] = planner.plan(source, target, depth=2).multipath.links
                specs.append(FlowSpec(f"f{len(specs)}", source, target))
        yield rate_problem(network, paths, flows=specs, margin=MARGIN)


def settled(problem: RateProblem) -> int:
    """The first slot from which all stays near the optimum; more than there are if it never does."""
    optimum_mbps, last = solve(problem).flow_rates_mbps, 0
    for state in run(problem, ControllerSettings(), SURVEY_SLOTS):
        off = distance(problem, state.path_rates_mbps, optimum_mbps)
        if max(off.rate_share, off.airtime) > WITHIN:
            last = state.slot
    return last + 1


def main() -> None:
    parser = argparse.ArgumentParser(description="How many slots the controller mode takes to the optimum.")
    parser.add_argument("--networks", type=int, help="the live rule on so many random networks of each kind")
    networks = parser.parse_args().networks
    if networks:
        survey(networks)
        return
    print(f"slots until within 5 % and 1 % of the optimum (total and utility), of {SLOTS}; the solver takes 1")
    print(f"{'network':<18} {'step':<12} {'5 %':>8} {'stays':>8} {'1 %':>8} {'stays':>8} {'last step':>9}")
    for name, problem in cases():
        for way, how in settings().items():
            print(row(name, way, problem, how), flush=True)


if __name__ == "__main__":
    main()

"""Two regions of a campus, and flows within and between them: beside the joint optimum."""

from __future__ import annotations

import random

from hyroads.controller.core.network import FlowSpec
from hyroads.controller.core.planner import Planner
from hyroads.controller.core.rates.problem import rate_problem
from hyroads.controller.core.rates.regions import Region
from hyroads.controller.core.rates.solver import solve
from hyroads.controller.core.topologies import campus


def two_buildings(rng: random.Random, crossing: int, local: int) -> tuple[float, dict[str, Region]]:
    """The utility of the joint optimum, and the two regions at the start."""
    network = campus(rng, 24, building=12)
    nodes = {side: [node for node in network.nodes if node.startswith(side)] for side in ("b1-", "b2-")}
    planner, wire = Planner(network), (network.link_index["b1-1-b2-1-ethernet"],)

    def paths(source: str, target: str) -> list[tuple[int, ...]]:
        return [tuple(path) for path in planner.plan(source, target, arms=1).arms[0].links]

    joint: dict[str, list[tuple[int, ...]]] = {}
    own: dict[str, dict[str, list[tuple[int, ...]]]] = {side: {} for side in nodes}
    specs: dict[str, FlowSpec] = {}
    for i in range(local):
        side = rng.choice(list(nodes))
        spec = FlowSpec(f"l{i}", *rng.sample(nodes[side], 2), weight=rng.uniform(0.5, 2.0))
        specs[spec.id] = spec
        joint[spec.id] = own[side][spec.id] = paths(spec.source, spec.target)
    for i in range(crossing):
        spec = FlowSpec(f"c{i}", rng.choice(nodes["b1-"][1:]), rng.choice(nodes["b2-"][1:]), weight=rng.uniform(0.5, 2))
        specs[spec.id] = spec
        first, last = paths(spec.source, "b1-1"), paths("b2-1", spec.target)
        own["b1-"][spec.id] = [path + wire for path in first]
        own["b2-"][spec.id] = last
        joint[spec.id] = [a + wire + b for a in first for b in last]
    best = solve(rate_problem(network, joint, flows=list(specs.values()), margin=0.05))
    over = {flow: 2 for flow in specs if flow.startswith("c")}
    regions = {
        side: Region.of(rate_problem(network, mine, flows=[specs[flow] for flow in mine], margin=0.05), over)
        for side, mine in own.items()
    }
    return best.utility, regions

"""Rules on demand: how many rules a switch of a campus has, and what a cut costs, as the campus grows.

No root, no packets, no controller process: the pure parts alone, in CPU time. Each host talks to the switch room of its
building, and to --far hosts elsewhere, chosen at random. Run: python benchmarks/rules.py [--nodes 100 1000] [--far 2].
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from hyroads.controller.control.live_network import Cache, LiveNetwork
from hyroads.controller.control.routes_in_use import RoutesInUse
from hyroads.controller.core.topologies import campus
from hyroads.controller.model.plan import Options, hello_configs
from hyroads.controller.model.state import State, TopologyContext, initial
from hyroads.controller.ofp.rules import rules_for

CUTS = 20


def memory_mib() -> float:
    """Resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20


def cpu_ms(work: Callable[[], object]) -> float:
    """CPU time of a call."""
    began_s = time.process_time()
    work()
    return 1e3 * (time.process_time() - began_s)


class Campus:
    """Live networks, routes and intents, as the controller follows them."""

    def __init__(self, nodes: int, far: int) -> None:
        self.context = TopologyContext.of(campus(random.Random(1), nodes), all_routes_nodes=0)
        self.cache, self.routes = Cache(self.context), RoutesInUse(self.context)
        self.state: State = initial(self.context)
        self.follow()
        rng, names, mac_of = random.Random(2), list(self.context.addressing.dpid), self.context.addressing.host_mac
        for node in names:
            for target in (f"{node.split('-')[0]}-1", *rng.sample(names, far)):
                if target != node:
                    self.routes.hold(node, target, "host")
                    self.routes.send(node, mac_of[target], target)

    def follow(self) -> None:
        """All that switches shall do in the present state."""
        live: LiveNetwork = self.cache.live(self.state)
        self.routes.on(live)
        while self.routes.work(8):
            pass
        self.intents = {node: self.routes.added_to(node, intent) for node, intent in live.intents.items()}

    def silent(self, *links: str) -> None:
        """These links are down, and no others."""
        self.state = replace(self.state, silent=frozenset(links), version=self.state.version + 1)

    def rules(self) -> list[int]:
        """How many each switch has."""
        counts = []
        for node, intent in self.intents.items():
            ports = {name: i for i, name in enumerate(self.context.addressing.port_names(node), start=1)}
            counts.append(len(rules_for(intent, ports).rules))
        return counts


def measure(nodes: int, far: int) -> None:
    """Print the figures of one size."""
    stage = Campus(nodes, far)
    first_ms = cpu_ms(stage.follow)
    rules = stage.rules()
    dead_ms = max(hello.dead_ms for hello in hello_configs(stage.context, Options()).values())
    print(f"{nodes} switches, {stage.routes.count} destinations in use, all routes made in {first_ms:.0f} ms")
    spread = f"mean {statistics.mean(rules):.0f}, median {statistics.median(rules):.0f}, most {max(rules)}"
    print(f"  rules per switch: {spread}; hello frames dead after {dead_ms} ms")
    cuts, touched, back, rng, before_mib = [], [], [], random.Random(3), memory_mib()
    links = [link.id for link in stage.context.network.links if link.technology == "wifi"]
    for link in rng.sample(links, CUTS):
        before = stage.intents
        stage.silent(link)
        cuts.append(cpu_ms(stage.follow))
        touched.append(sum(intent is not before[node] for node, intent in stage.intents.items()))
        stage.silent()
        back.append(cpu_ms(stage.follow))
    print(f"  cut: {statistics.median(cuts):.1f} ({max(cuts):.1f}) ms; switches touched: most {max(touched)}")
    print(f"  link back: {statistics.median(back):.1f} ({max(back):.1f}) ms")
    print(
        f"  memory: {memory_mib():.0f} MiB, {memory_mib() - before_mib:.0f} of it for {2 * CUTS} changes of the network"
    )


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--far", type=int, default=2, help="hosts elsewhere that each talks to")
    asked = parser.parse_args()
    for nodes in asked.nodes:
        measure(nodes, asked.far)
    return 0


if __name__ == "__main__":
    sys.exit(main())

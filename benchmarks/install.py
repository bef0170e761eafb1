"""Cold install of a 22-node network with 1 000 flows: how fast rules are built, encoded and taken by Open vSwitch.

    python benchmarks/install.py [--flows 1000] [--seed 1] [--repeat 3]

Without root or Open vSwitch only the building is measured. The switches are 22 bridges of one Open vSwitch in a
namespace of its own; their ports are given by number only.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

import ovs_rig  # noqa: E402
from switch_model import port_numbers  # noqa: E402

from hyroads.controller.core.addressing import Addressing, Labels  # noqa: E402
from hyroads.controller.core.routes import all_routes, broadcast_tree  # noqa: E402
from hyroads.controller.ofp.diff import batch_of, difference  # noqa: E402
from hyroads.controller.ofp.intents import ClassifiedFlow, SwitchIntent, attached_only, default_places, intents_for  # noqa: E402  # noqa: E402
from hyroads.controller.ofp.match import Match  # noqa: E402
from hyroads.controller.ofp.rules import rules_for  # noqa: E402
from hyroads.controller.study.networks import office22  # noqa: E402

Row = tuple[str, str, str]


def scenario(seed: int, count: int) -> tuple[Mapping[str, SwitchIntent], Mapping[str, Mapping[str, int]], list[Row]]:
    """Intents and port numbers of the network, and how long the way there took."""
    rng = random.Random(seed)
    network = office22(rng)
    addressing = Addressing.of(network)
    labels = Labels.of(network, addressing)
    agents = sorted(addressing.agents)
    flows: dict[str, tuple[ClassifiedFlow, ...]] = {}
    for i in range(count):
        source, target = rng.sample(agents, 2)
        match = Match(
            eth_src=addressing.host_mac[source],
            eth_dst=addressing.host_mac[target],
            eth_type=0x0800,
            ip_proto=6,
            tcp_dst=1024 + i,
        )
        flows[source] = (*flows.get(source, ()), ClassifiedFlow(f"f{i}", 16 + i, match))
    start = time.perf_counter()
    places = default_places(addressing)
    routes = all_routes(attached_only(network, addressing, places), (*addressing.dpid, *places))
    tree = broadcast_tree(network)
    routed = time.perf_counter()
    intents = intents_for(network, addressing, labels, routes, tree, flows=flows)
    done = time.perf_counter()
    ports = {node: port_numbers(network, addressing, node) for node in addressing.dpid}
    rows = [
        ("routes and tree of 22 nodes", f"{(routed - start) * 1e3:.1f} ms", ""),
        ("intents of 22 switches", f"{(done - routed) * 1e3:.1f} ms", ""),
    ]
    return intents, ports, rows


def build(intents: Mapping[str, SwitchIntent], ports: Mapping[str, Mapping[str, int]]) -> list[Row]:
    """Rules, difference and bytes, from cold."""
    start = time.perf_counter()
    batches = [batch_of(difference(rules_for(i, ports[node]).rules, ()), 1) for node, i in intents.items()]
    seconds = time.perf_counter() - start
    messages, size = sum(b.messages for b in batches), sum(len(b.data) for b in batches)
    rules = [rules_for(intent, ports[node]).rules for node, intent in intents.items()]
    start = time.perf_counter()
    for one in rules:
        batch_of(difference(one, ()), 1)
    again = time.perf_counter() - start
    return [
        ("messages", f"{messages}", ""),
        ("intent -> bytes, from cold", f"{messages / seconds:,.0f} flow-mods/s", ">= 20,000"),
        ("", f"{size / seconds / 1e6:.1f} MB/s", ""),
        ("rules -> bytes, from templates", f"{messages / again:,.0f} flow-mods/s", ">= 20,000"),
        ("", f"{size / again / 1e6:.1f} MB/s", ""),
    ]


def install(intents: Mapping[str, SwitchIntent], ports: Mapping[str, Mapping[str, int]]) -> list[Row]:
    """Everything into Open vSwitch, until the last barrier is answered; then a restart that must send nothing."""
    with ovs_rig.Rig() as rig:
        connections = {}
        for node, intent in intents.items():
            rig.bridge(node, intent.dpid)
            connections[node] = rig.connect(node)
        # Open vSwitch takes rules for ports that are not there yet, so the numbers alone are enough.
        start = time.perf_counter()
        batches = {n: batch_of(difference(rules_for(i, ports[n]).rules, ()), 10) for n, i in intents.items()}
        built = time.perf_counter()
        for node, batch in batches.items():
            connections[node].socket.sendall(batch.data)
        for node, batch in batches.items():
            while not batch.done:
                message = connections[node].receive()
                if message[1] == 1:
                    raise RuntimeError(f"{node}: the switch refused a rule: {message.hex()}")
                batch.on_barrier(int.from_bytes(message[4:8], "big"))
        done = time.perf_counter()
        count = sum(batch.messages for batch in batches.values())
        start_back = time.perf_counter()
        sent = 0
        for node, connection in connections.items():
            connection.xid = 1 << 20
            change = difference(rules_for(intents[node], ports[node]).rules, connection.installed())
            sent += len(change.adds) + len(change.deletes)
        back = time.perf_counter() - start_back
        if sent:
            raise RuntimeError(f"a restart would send {sent} flow-mods")
        for connection in connections.values():
            connection.close()
    return [
        ("send and barrier, bytes ready", f"{count / (done - built):,.0f} flow-mods/s", ">= 20,000"),
        ("intent -> in force", f"{count / (done - start):,.0f} flow-mods/s", ">= 20,000"),
        ("", f"{(done - start) * 1e3:.0f} ms in all", ""),
        ("restart: read back and compare", f"{back * 1e3:.0f} ms, {sent} messages", "0 messages"),
    ]


def main() -> int:
    """Runs and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--flows", type=int, default=1000, help="multipath flows (default 1000)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the network (default 1)")
    parser.add_argument("--repeat", type=int, default=3, help="runs (default 3)")
    options = parser.parse_args()
    for run in range(1, options.repeat + 1):
        intents, ports, rows = scenario(options.seed, options.flows)
        rows += build(intents, ports)
        if ovs_rig.available():
            rows += install(intents, ports)
        print(f"run {run}: 22 nodes, {options.flows} flows")
        for what, value, target in rows:
            print(f"  {what:<34} {value:>28}   {target}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

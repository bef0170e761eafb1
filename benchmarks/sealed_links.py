"""What seals of links cost plain TCP: sealed beside unsealed, in turn, on one emulated network (root).

    python benchmarks/sealed_links.py [--networks triangle,line] [--rounds 5] [--seconds 4] [--json FILE]

Real switches, agents and controller on the shared-medium emulator; TCP takes the single path, as no flow is declared.
In each round the controller starts once with ``seal_frames: true`` and once with ``seal_frames: all``, in alternating
order, and TCP runs for some seconds. *Ratio* is goodput sealed by goodput unsealed, of each round; the median counts.
*Agents* is processor time of all agents per second of TCP. ``line`` has two hops between switches, at 60 and 50 Mb/s.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from live import on_network  # isort: split

from hyroads.controller.core.netfile import load_text
from hyroads.controller.core.network import Network
from hyroads.controller.files.documents import read_file
from hyroads.mininet.emulation import Emulation
from hyroads.mininet.machine import PROC, cpu_s, processes
from hyroads.mininet.programs import wait_until
from hyroads.mininet.run_directory import find_network
from hyroads.mininet.traffic import Traffic

LINE = """
name: line
nodes:
  a: {role: gateway}
  b: {role: ap}
  c: {role: ap}
links:
  - {id: ab-plc, from: a, to: b, technology: plc, capacity_mbps: 60, both: true}
  - {id: bc-wifi, from: b, to: c, technology: wifi, capacity_mbps: 50, both: true}
interference:
  rule: technology
"""
OPEN, SEALED = True, "all"


@dataclass(frozen=True)
class Round:
    """TCP once without and once with seals: goodput in Mb/s, processor time of agents in s per s."""

    network: str
    open_mbps: float
    sealed_mbps: float
    open_agents: float
    sealed_agents: float

    @property
    def ratio(self) -> float:
        return self.sealed_mbps / self.open_mbps


class Pairs:
    """Rounds on one running network."""

    def __init__(self, emulation: Emulation, seconds: float) -> None:
        self.emulation, self.seconds = emulation, seconds
        self.source, self.target = "a", "c"

    def rounds(self, count: int) -> Iterator[Round]:
        for number in range(count):
            order = (OPEN, SEALED) if number % 2 == 0 else (SEALED, OPEN)
            found = {how: self.measure(how) for how in order}
            (bare, bare_agents), (sealed, sealed_agents) = found[OPEN], found[SEALED]
            yield Round(self.emulation.network.name, bare, sealed, bare_agents, sealed_agents)

    def measure(self, seal_frames: bool | str) -> tuple[float, float]:
        """Goodput in Mb/s, and processor time of all agents in s per s."""
        path = self.emulation.directory / "controller.json"
        settings: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        self.emulation.controller.stop()
        path.write_text(json.dumps({**settings, "seal_frames": seal_frames}), encoding="utf-8")
        self.emulation.controller.start()
        self.emulation.wait_ready()
        wait_until("all confirmed", lambda: not self.emulation.rest.health()["pending"], 20.0)
        traffic = Traffic(self.emulation, self.source, self.target, lambda: None)
        # The first one finds addresses, and fills caches of switches.
        traffic.tcp(1, "cubic")
        before_s = self.agents_s()
        result = traffic.tcp(self.seconds, "cubic")
        return result.mbps, (self.agents_s() - before_s) / self.seconds

    def agents_s(self) -> float:
        """Processor time that agents have used."""
        names = ((pid, (PROC / str(pid) / "comm").read_text().strip()) for pid in processes())
        stats = processes()
        return sum(cpu_s(stats[pid]) for pid, name in names if name == "hyroads-edge" and pid in stats)


def network_of(name: str) -> Network:
    """The named network without flows."""
    network = load_text(LINE, "line") if name == "line" else read_file(find_network(name))
    return replace(network, flows=())


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--networks", default="triangle,line")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--json", type=Path, help="appends each round as a line")
    args = parser.parse_args()
    if os.geteuid() != 0:
        print("this needs root", file=sys.stderr)
        return 2

    def body(emulation: Emulation) -> int:
        rounds = []
        for each in Pairs(emulation, args.seconds).rounds(args.rounds):
            rounds.append(each)
            print(
                f"{each.network:10} {each.open_mbps:8.2f} {each.sealed_mbps:8.2f} {each.ratio:7.3f} "
                f"{each.open_agents:8.3f} {each.sealed_agents:8.3f}",
                flush=True,
            )
            if args.json:
                with args.json.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(each)) + "\n")
        print(f"{emulation.network.name}: median ratio {statistics.median(each.ratio for each in rounds):.3f}")
        return 0

    print(f"{'network':10} {'open':>8} {'sealed':>8} {'ratio':>7} {'agents':>8} {'sealed':>8}")
    return max(on_network(network_of(name), "sealed-links", body) for name in args.networks.split(","))


if __name__ == "__main__":
    sys.exit(main())

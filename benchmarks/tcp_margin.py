"""How much airtime must stay free for TCP: goodput, retransmissions and round-trip time over margins (root).

    python benchmarks/tcp_margin.py [--network triangle|long] [--measured --noise 0.1] [--margins 0,0.02,...]
                     [--algorithms cubic,bbr] [--connections 1,4] [--overhead-us 50] [--seconds 5] [--json FILE]

TCP over the multipath of one flow that is declared as TCP: real agents and controller, the shared-medium emulator.
*Of rate*: goodput as share of what the allocated rate can carry (1448 of 1530 bytes of L2 payload are TCP's; target:
0.98). *Of all*: as share of what the media could carry with no margin at all. The acknowledgements are no part of the
allocation: they go back by the single path, in airtime that the margin leaves. ``long``: three hops, the last of them
with 0.1 % loss and 3 ms of delay.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from live import on_network  # isort: split

from control_clients import MediumControl

from hyroads.controller.core.netfile import load_text
from hyroads.controller.core.network import Network
from hyroads.controller.core.network import Traffic as TrafficKind
from hyroads.controller.core.planner import Planner
from hyroads.controller.files.documents import read_file
from hyroads.mininet.emulation import Emulation
from hyroads.mininet.programs import wait_until
from hyroads.mininet.run_directory import find_network
from hyroads.mininet.traffic import Traffic

PAYLOAD_SHARE = 1448 / 1530
FLOW = "f1"
SETTLE_S = 1.0
LONG = """
name: long
nodes:
  a: {role: gateway}
  b: {role: ap}
  c: {role: ap}
  d: {role: client}
links:
  - {id: ab-plc, from: a, to: b, technology: plc, capacity_mbps: 10, both: true}
  - {id: ab-wifi, from: a, to: b, technology: wifi, capacity_mbps: 40, both: true}
  - {id: bc-plc, from: b, to: c, technology: plc, capacity_mbps: 12, both: true}
  - {id: bc-wifi, from: b, to: c, technology: wifi, capacity_mbps: 30, both: true}
  - {id: cd-wifi, from: c, to: d, technology: wifi, capacity_mbps: 50, both: true, loss: 0.001, delay_ms: 3}
interference:
  rule: technology
flows:
  - {id: f1, from: a, to: d}
"""


@dataclass(frozen=True)
class Row:
    """One measurement; rates in Mb/s, shares as fractions."""

    network: str
    capacities: str
    overhead_us: float
    margin: float
    algorithm: str
    connections: int
    goodput_mbps: float
    of_rate: float
    of_all: float
    retransmits_per_s: float
    rtt_ms: float
    worst_second_mbps: float
    busiest: str

    @classmethod
    def header(cls) -> str:
        return (
            f"{'network':8} {'capacities':10} {'access us':>9} {'margin':>6} {'TCP':>9} {'Mb/s':>6} {'of rate':>7} "
            f"{'of all':>6} {'retr/s':>6} {'RTT ms':>6} {'worst s':>7}  busiest"
        )

    def line(self) -> str:
        tcp = f"{self.algorithm} x{self.connections}"
        return (
            f"{self.network:8} {self.capacities:10} {self.overhead_us:9.0f} {self.margin:6.2f} {tcp:>9} "
            f"{self.goodput_mbps:6.2f} {self.of_rate:7.3f} {self.of_all:6.3f} {self.retransmits_per_s:6.1f} "
            f"{self.rtt_ms:6.1f} {self.worst_second_mbps:7.1f}  {self.busiest}"
        )


class Study:
    """All combinations on one running network."""

    def __init__(self, emulation: Emulation, args: argparse.Namespace) -> None:
        self.emulation = emulation
        self.args = args
        flow = emulation.network.flows[0]
        self.source, self.target = flow.source, flow.target
        planner = Planner(emulation.network, clients_relay=False)
        self.full_mbps = planner.plan(self.source, self.target, margin=0.0).multipath.total_mbps

    def rows(self) -> Iterator[Row]:
        """A row per margin, congestion control and number of connections."""
        for margin in (float(m) for m in self.args.margins.split(",")):
            self.set_margin(margin)
            for algorithm in self.args.algorithms.split(","):
                for connections in (int(c) for c in self.args.connections.split(",")):
                    yield self.measure(margin, algorithm, connections)

    def set_margin(self, margin: float) -> None:
        """The controller starts again with another margin; forwarding goes on meanwhile."""
        path = self.emulation.directory / "controller.json"
        settings: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        self.emulation.controller.stop()
        # The larger of the two counts for a flow of TCP.
        path.write_text(json.dumps({**settings, "margin": 0.0, "tcp_margin": margin}), encoding="utf-8")
        self.emulation.controller.start()
        self.emulation.wait_ready()
        wait_until("multipath", lambda: bool(self.emulation.rest.flow(FLOW)["state"] == "multipath"), 10.0)
        time.sleep(SETTLE_S)

    def measure(self, margin: float, algorithm: str, connections: int) -> Row:
        """TCP at the margin in force; its rate is sampled, for with measured capacities it varies."""
        rates: list[float] = []
        medium = MediumControl(self.emulation.shared.socket)
        medium.reset()
        traffic = Traffic(
            self.emulation,
            self.source,
            self.target,
            lambda: rates.append(float(self.emulation.rest.flow(FLOW)["rate_mbps"] or 0.0)),
        )
        result = traffic.tcp(self.args.seconds, algorithm, connections)
        busiest = max(medium.stats().links.values(), key=lambda link: link.busy)
        medium.close()
        return Row(
            self.emulation.network.name,
            "measured" if self.args.measured else "file",
            self.args.overhead_us,
            margin,
            algorithm,
            connections,
            result.mbps,
            result.mbps / (statistics.mean(rates) * PAYLOAD_SHARE),
            result.mbps / (self.full_mbps * PAYLOAD_SHARE),
            result.retransmits / self.args.seconds,
            result.rtt_ms or 0.0,
            min(result.per_second_mbps),
            f"{busiest.id} {busiest.busy:.0%}",
        )


def network_of(name: str) -> Network:
    """The named network, its flow declared as TCP."""
    network = load_text(LONG, "long") if name == "long" else read_file(find_network(name))
    return replace(network, flows=tuple(replace(flow, traffic=TrafficKind.TCP) for flow in network.flows))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--network", choices=("triangle", "long"), default="triangle")
    parser.add_argument("--measured", action="store_true")
    parser.add_argument("--noise", type=float, default=0.1)
    parser.add_argument(
        "--overhead-us", type=float, default=0.0, help="of each access to the medium, for 16 frames at most"
    )
    parser.add_argument("--margins", default="0,0.02,0.05,0.1,0.15,0.2,0.3,0.4")
    parser.add_argument("--algorithms", default="cubic,bbr")
    parser.add_argument("--connections", default="1,4")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--json", type=Path, help="appends each row as a line")
    args = parser.parse_args()
    if os.geteuid() != 0:
        print("this needs root", file=sys.stderr)
        return 2

    def body(emulation: Emulation) -> int:
        print(Row.header())
        for row in Study(emulation, args).rows():
            print(row.line(), flush=True)
            if args.json:
                with args.json.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(row)) + "\n")
        return 0

    errors = {"noise": args.noise, "hold_s": 0.1} if args.measured else {}
    medium: dict[str, object] = (
        {"frame_overhead_us": args.overhead_us, "aggregate_frames": 16} if args.overhead_us else {}
    )
    options = {"measured": args.measured, "errors": errors, "medium": medium}
    return on_network(network_of(args.network), "tcp-margin", body, print, **options)


if __name__ == "__main__":
    sys.exit(main())

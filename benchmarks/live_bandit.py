"""Bandits on a living network with real packets: what a flow carries compared with the best of its arms, before and
after a link loses capacity (docs/explanation/bandit.md, "Live").

    python benchmarks/live_bandit.py [--policy hymab] [--load udp|tcp] [--noise 0.2] [--runs 2] [--drop ab-plc=5]

Needs root. A run has ``--copies`` of the network "diamond" side by side, each with media of its own and a flow with a
bandit: independent samples. Emulated radios tell the controller busy times, with relative noise ``--noise`` that is
drawn anew each second. Capacities are those of the file, so that nobody tells it of a drop, or with ``--capacities
measured`` what radios estimate.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from live import on_network, shipped

from hyroads.controller.control.arm_airtime import arm_rows, modelled_airtime
from hyroads.controller.core.netfile import parse, to_document
from hyroads.controller.core.network import Network
from hyroads.mininet.control_sockets import MediumClient
from hyroads.mininet.emulation import Emulation
from hyroads.mininet.udp_load import UdpLoad

SAMPLE_S = 0.2
BETTER_WITHIN_S = 15.0
# What the controller leaves free.
MARGIN = 0.05
# UDP of 1400 bytes: the user's whole frame, two labels and the shim on a link; the receiver counts the L2 payload.
OVERHEAD = (1428 + 14 + 12 + 8) / 1428

ArmLinks = tuple[tuple[str, ...], ...]


def copies_of(network: Network, number: int, policy: str) -> Network:
    """So many copies of a network, with numbered nodes, links, technologies and flows that have nothing in common."""
    document, found = to_document(network), {"nodes": {}, "links": [], "flows": []}
    for k in range(1, number + 1):
        found["nodes"] |= {f"{name}{k}": node for name, node in document["nodes"].items()}
        for link in document["links"]:
            renamed = {key: f"{link[key]}{k}" for key in ("id", "from", "to", "technology")}
            found["links"].append({**link, **renamed})
        for flow in document["flows"]:
            renamed = {key: f"{flow[key]}{k}" for key in ("id", "from", "to")}
            found["flows"].append({**flow, **renamed, "policy": policy})
    return parse({**document, **found}, "copies")


def link_names(link: str, number: int) -> tuple[str, str]:
    """A link of a copy and the same one back."""
    return f"{link}{number}", f"{link}~{number}"


def best_mbps(network: Network, arms: Sequence[Sequence[Sequence[str]]]) -> list[float]:
    """The optimum of every arm with these capacities and no margin."""
    found = []
    for arm in arms:
        rows = arm_rows(network, tuple(tuple(path) for path in arm))
        found.append(sum(modelled_airtime(rows, network).rates_mbps({})))
    return found


@dataclass(frozen=True)
class Sample:
    """Bytes that arrived at the last edge (with headers, L2 payload of the paths), and what the bandit does."""

    time_s: float
    received: int
    lost: int
    dropped: int
    arm: ArmLinks
    probes: int


@dataclass
class Copy:
    """One flow with its samples."""

    flow: str
    source: str
    target: str
    samples: list[Sample] = field(default_factory=list)
    arms: list[list[list[str]]] = field(default_factory=list)
    document: dict[str, Any] = field(default_factory=dict)

    def take(self, emulation: Emulation, now_s: float) -> None:
        """One sample."""
        (egress,) = emulation.agent_report(self.target)["egress"]
        (ingress,) = emulation.agent_report(self.source)["ingress"]
        self.document = emulation.rest.flow(self.flow).get("bandit") or {"arms": [], "arm": 0}
        self.arms = [arm["paths"] for arm in self.document["arms"]]
        arm = tuple(tuple(path) for path in self.arms[self.document["arm"]]) if self.arms else ()
        probes = sum(each["probes"] for each in self.document["arms"])
        lost = egress["lost"] + egress["timed_out"] + egress["late"]
        self.samples.append(Sample(now_s, egress["delivered_bytes"], lost, ingress["dropped"], arm, probes))

    def between(self, from_s: float, to_s: float) -> list[Sample]:
        """The samples of a time, at least two: on a busy machine some come late."""
        found = [sample for sample in self.samples if from_s <= sample.time_s <= to_s]
        at = sum(sample.time_s < from_s for sample in self.samples)
        first = max(min(at - 1, len(self.samples) - 2), 0)
        return found if len(found) > 1 else self.samples[first : first + 2]

    def mbps(self, from_s: float, to_s: float) -> float:
        """What was delivered, counted like capacities: with the labels and the shim of the frames' way."""
        first, *_, last = self.between(from_s, to_s)
        return (last.received - first.received) * 8e-6 * OVERHEAD / (last.time_s - first.time_s)

    def figures(self, network: Network, from_s: float, to_s: float) -> dict[str, Any]:
        """What was carried in a time, and the optimum of the arms of then."""
        first, *_, last = self.between(from_s, to_s)
        optimum, carried = max(best_mbps(network, self.arms), default=0.0), self.mbps(from_s, to_s)
        return {
            "optimum_mbps": optimum,
            "carried_mbps": carried,
            "ratio": carried / optimum if optimum else 0.0,
            "ratio_with_margin": carried / (optimum * (1 - MARGIN)) if optimum else 0.0,
            "lost": last.lost - first.lost,
            "dropped": last.dropped - first.dropped,
            "probes": last.probes - first.probes,
        }

    def moved(self, network: Network, dropped_s: float) -> dict[str, float]:
        """Seconds from a drop until an arm that carries more than the one of before is in use, and until one that
        carries 95 % of the best does, for good.
        """
        before = self.between(0.0, dropped_s)[-1].arm
        after = self.between(dropped_s, time.monotonic())
        worth = {arm: best_mbps(network, [arm])[0] for arm in {s.arm for s in after} | {before}}
        best = max([*worth.values(), *best_mbps(network, self.arms)])
        found = {}
        for name, least in (("better_s", worth[before] * 1.01), ("best_s", 0.95 * best)):
            worse = [s.time_s for s in after if worth[s.arm] < least]
            found[name] = max(worse, default=dropped_s) + SAMPLE_S - dropped_s
        return found

    def timeline(self, network: Network, from_s: float) -> list[tuple[int, float, float]]:
        """Each second: when, what was carried, and the optimum of the arm in use with the true capacities."""
        rows = []
        for second in range(int(self.samples[-1].time_s - from_s) - 1):
            at_s = from_s + second
            optimum = best_mbps(network, [self.between(at_s + 0.5, at_s + 2.0)[0].arm])[0]
            rows.append((second + 1, round(self.mbps(at_s, at_s + 1.3), 1), round(optimum, 1)))
        return rows


def record(emulation: Emulation, copies: Sequence[Copy], seconds: float) -> None:
    """Samples of all copies for a time."""
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        began_s = time.monotonic()
        for copy in copies:
            copy.take(emulation, time.monotonic())
        time.sleep(max(0.0, SAMPLE_S - (time.monotonic() - began_s)))


def tcp(emulation: Emulation, copy: Copy, seconds: float) -> subprocess.Popen[str]:
    """An iperf3 client for so long."""
    subprocess.Popen([*emulation.inside(copy.target), "iperf3", "-s", "-1"], stdout=subprocess.DEVNULL)
    time.sleep(0.5)
    address = emulation.addressing.host_ip[copy.target]
    command = [*emulation.inside(copy.source), "iperf3", "-c", address, "-t", f"{seconds:g}", "-C", "cubic", "-J"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def tcp_figures(client: subprocess.Popen[str], settle_s: float) -> dict[str, Any]:
    """Goodput and retransmissions after ``settle_s``, and those of every second."""
    document = json.loads(client.communicate(timeout=30)[0])
    seconds = [each["sum"] for each in document["intervals"]]
    late = seconds[int(settle_s) :] or seconds
    return {
        "goodput_mbps": sum(each["bytes"] for each in late) * 8e-6 / sum(each["seconds"] for each in late),
        "retransmits": sum(each["retransmits"] for each in late),
        "intervals": [(round(each["bits_per_second"] / 1e6, 1), each["retransmits"]) for each in seconds],
    }


def measure(emulation: Emulation, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Runs the load and gives the figures of every copy."""
    network = emulation.network
    copies = [Copy(flow.id, flow.source, flow.target) for flow in network.flows]
    clients: list[subprocess.Popen[str]] = []
    with UdpLoad(emulation) as load:
        for copy in copies:
            if args.load == "tcp":
                clients.append(tcp(emulation, copy, args.seconds + 1))
            else:
                load.open(copy.flow, copy.source, copy.target)
                load.set_rate(copy.flow, args.offer)
        start_s = time.monotonic()
        record(emulation, copies, args.seconds)
        to_s = time.monotonic()
        results = [{"before": copy.figures(network, start_s + args.settle, to_s)} for copy in copies]
        if args.drop:
            changed = dropped(emulation, args.drop, len(copies))
            after, dropped_s = network.with_capacities(changed), time.monotonic()
            record(emulation, copies, args.after)
            for copy, result in zip(copies, results, strict=True):
                found = copy.figures(after, dropped_s + BETTER_WITHIN_S, time.monotonic())
                result["after"] = found | copy.moved(after, dropped_s)
                result["timeline_after"] = copy.timeline(after, dropped_s)
    for copy, result in zip(copies, results, strict=True):
        result |= {"timeline": copy.timeline(network, start_s), "bandit": copy.document}
    for client, result in zip(clients, results, strict=False):
        result["tcp"] = tcp_figures(client, args.settle)
    return results


def dropped(emulation: Emulation, drop: str, copies: int) -> Mapping[str, float]:
    """Takes capacity from a link of every copy, both ways; returns the new ones."""
    name, mbps = drop.split("=")
    changed = {link: float(mbps) for k in range(1, copies + 1) for link in link_names(name, k)}
    with MediumClient(emulation.shared.socket) as medium:
        for link, capacity_mbps in changed.items():
            medium.set_link(link, capacity_mbps=capacity_mbps)
    return changed


HEAD = (
    "flow  optimum Mb/s  carried  of it  of it with margin  probes   after: optimum  carried  of it  with margin  "
    "better arm  best arm    TCP Mb/s  retransmissions"
)


def row(number: int, result: Mapping[str, Any]) -> str:
    """A line of the table."""
    before, after, tcp_end = result["before"], result.get("after"), result.get("tcp")
    cells = f"{number:4d}  {before['optimum_mbps']:12.2f}  {before['carried_mbps']:7.2f}  {before['ratio']:5.3f}"
    cells += f"  {before['ratio_with_margin']:17.3f}  {before['probes']:6d}"
    if after:
        cells += f"   {after['optimum_mbps']:14.2f}  {after['carried_mbps']:7.2f}  {after['ratio']:5.3f}"
        cells += f"  {after['ratio_with_margin']:11.3f}  {after['better_s']:8.1f} s  {after['best_s']:6.1f} s"
    if tcp_end:
        cells += f"    {tcp_end['goodput_mbps']:8.2f}  {tcp_end['retransmits']:15d}"
    return cells


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", default="hymab", choices=["hymab", "hymab+", "auto", "throughput"])
    parser.add_argument("--load", default="udp", choices=["udp", "tcp"])
    parser.add_argument("--offer", type=float, default=36.0, help="Mb/s of UDP payload")
    parser.add_argument("--noise", type=float, default=0.2, help="relative standard deviation of busy times")
    parser.add_argument("--capacity-noise", type=float, default=0.0)
    parser.add_argument("--capacities", default="file", choices=["file", "measured"], help="what the planner knows")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--settle", type=float, default=40.0, help="seconds that don't count")
    parser.add_argument("--drop", help="LINK=MBPS: a loss of capacity after --seconds")
    parser.add_argument("--after", type=float, default=25.0, help="seconds after it")
    parser.add_argument("--copies", type=int, default=3)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--name", default="bandit-bench", help="of the emulated network")
    parser.add_argument("--json", help="append everything there, a line per flow")
    args = parser.parse_args()
    args.settle = min(args.settle, args.seconds / 2)
    return args


def main() -> int:
    """Prints a table."""
    args = arguments()
    network = copies_of(shipped("diamond"), args.copies, args.policy)
    errors = {"busy_noise": args.noise, "noise": args.capacity_noise, "hold_s": 1.0}
    measured = args.capacities == "measured"
    options = {"measured": measured, "radios": True, "errors": errors, "settings": {"margin": MARGIN}}

    def body(emulation: Emulation) -> int:
        # In a process of its own, with which the network ends.
        for number, result in enumerate(measure(emulation, args), start=1):
            print(row(number, result), flush=True)
            if args.json:
                with Path(args.json).open("a", encoding="utf-8") as file:
                    file.write(json.dumps(result) + "\n")
        return 0

    print(HEAD, flush=True)
    for _ in range(args.runs):
        on_network(network, args.name, body, **options)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

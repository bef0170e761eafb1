"""Bandits on a living network with real packets: what a flow carries compared with the best of its arms, before and
after a link loses capacity (docs/bandit.md, "Live").

    python benchmarks/live_bandit.py [--policy hymab] [--load udp|tcp] [--noise 0.2] [--seconds 30] [--drop LINK=MBPS]

Needs root. The controller is told capacities and busy times by emulated radios, busy times with relative noise
``--noise`` that is drawn anew each second.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from hyroads.controller.control.arm_airtime import arm_rows, modelled_airtime
from hyroads.controller.core.network import Network, Policy
from hyroads.controller.netfile_io import read_file
from hyroads.mininet.emulation import Emulation, EmulationOptions
from hyroads.mininet.medium_client import MediumClient
from hyroads.mininet.network_files import find_network
from hyroads.mininet.runner import RunOptions, run_network
from hyroads.mininet.udp_load import UdpLoad

FLOW, TARGET, SETTLING_S = "f1", "d", 10.0
SAMPLE_S = 0.1
# UDP of 1400 bytes: the user's whole frame, two labels and the shim on a link; the receiver counts the L2 payload.
OVERHEAD = (1428 + 14 + 12 + 8) / 1428


@dataclass(frozen=True)
class Sample:
    """Bytes that arrived at the last edge (with headers, L2 payload of the paths), and what the bandit does."""

    time_s: float
    received: int
    lost: int
    dropped: int
    arm: tuple[tuple[str, ...], ...]
    probes: int


def best_mbps(network: Network, arms: Sequence[Sequence[Sequence[str]]]) -> list[float]:
    """The optimum of every arm with these capacities and no margin."""
    found = []
    for arm in arms:
        rows = arm_rows(network, tuple(tuple(path) for path in arm))
        found.append(sum(modelled_airtime(rows, network).rates_mbps({})))
    return found


class Recorder:
    """Samples of the flow, taken while the load runs."""

    def __init__(self, emulation: Emulation) -> None:
        self._emulation = emulation
        self.samples: list[Sample] = []
        self.arms: list[list[list[str]]] = []
        self.document: dict[str, Any] = {}

    def run(self, seconds: float) -> None:
        """One sample each 100 ms."""
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            began_s = time.monotonic()
            self.take(began_s)
            time.sleep(max(0.0, SAMPLE_S - (time.monotonic() - began_s)))

    def take(self, now_s: float) -> None:
        """One sample."""
        (egress,) = self._emulation.agent_report(TARGET)["egress"]
        (ingress,) = self._emulation.agent_report("a")["ingress"]
        self.document = self._emulation.rest.flow(FLOW)
        bandit = self.document["bandit"] or {"arms": [], "arm": 0}
        self.arms = [arm["paths"] for arm in bandit["arms"]]
        arm = tuple(tuple(path) for path in self.arms[bandit["arm"]]) if self.arms else ()
        probes = sum(each["probes"] for each in bandit["arms"])
        lost = egress["lost"] + egress["timed_out"] + egress["late"]
        self.samples.append(Sample(now_s, egress["delivered_bytes"], lost, ingress["dropped"], arm, probes))

    def mbps(self, from_s: float, to_s: float) -> float:
        """What was delivered, counted like capacities: with the labels and the shim of the frames' way."""
        inside = [s for s in self.samples if from_s <= s.time_s <= to_s]
        return (inside[-1].received - inside[0].received) * 8e-6 * OVERHEAD / (inside[-1].time_s - inside[0].time_s)


def tcp(emulation: Emulation, seconds: float) -> subprocess.Popen[str]:
    """An iperf3 client from a to d for so long."""
    server = subprocess.Popen([*emulation.inside(TARGET), "iperf3", "-s", "-1"], stdout=subprocess.DEVNULL)
    assert server.pid
    time.sleep(0.5)
    address = emulation.addressing.host_ip[TARGET]
    command = [*emulation.inside("a"), "iperf3", "-c", address, "-t", f"{seconds:g}", "-C", "cubic", "-J"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def measure(emulation: Emulation, args: argparse.Namespace, network: Network) -> dict[str, Any]:
    """Runs the load and gives all figures."""
    recorder = Recorder(emulation)
    total_s = args.seconds * (2 if args.drop else 1)
    client = None
    with UdpLoad(emulation) as load:
        if args.load == "tcp":
            client = tcp(emulation, total_s + 2)
        else:
            load.open(FLOW, "a", TARGET)
            load.set_rate(FLOW, args.offer)
        start_s = time.monotonic()
        recorder.run(args.seconds)
        result = {"before": figures(recorder, network, start_s + SETTLING_S, time.monotonic())}
        if args.drop:
            name, mbps = args.drop.split("=")
            with MediumClient(emulation.shared.socket) as medium:
                for link in (name, f"{name}~"):
                    medium.set_link(link, capacity_mbps=float(mbps))
            dropped_s = time.monotonic()
            after = network.with_capacities({name: float(mbps), f"{name}~": float(mbps)})
            recorder.run(args.seconds)
            result["after"] = figures(recorder, after, dropped_s + 15.0, time.monotonic())
            result["timeline"] = timeline(recorder, after, dropped_s)
        else:
            result["timeline"] = timeline(recorder, network, start_s)
    if client is not None:
        document = json.loads(client.communicate(timeout=30)[0])
        end = document["end"]
        result["tcp"] = {
            "goodput_mbps": end["sum_received"]["bits_per_second"] / 1e6,
            "retransmits": end["sum_sent"]["retransmits"],
            "intervals": [_interval(each["sum"]) for each in document["intervals"]],
        }
    result["bandit"] = recorder.document["bandit"]
    return result


def _interval(part: dict[str, Any]) -> tuple[float, int]:
    """Mb/s and retransmissions of a second."""
    return round(part["bits_per_second"] / 1e6, 1), int(part["retransmits"])


def figures(recorder: Recorder, network: Network, from_s: float, to_s: float) -> dict[str, Any]:
    """What was carried in a time, and the optimum of the arms of then."""
    inside = [s for s in recorder.samples if from_s <= s.time_s <= to_s]
    optimum = max(best_mbps(network, recorder.arms), default=0.0)
    carried = recorder.mbps(from_s, to_s)
    return {
        "optimum_mbps": optimum,
        "carried_mbps": carried,
        "ratio": carried / optimum if optimum else 0.0,
        "lost": inside[-1].lost - inside[0].lost,
        "dropped": inside[-1].dropped - inside[0].dropped,
        "probes": inside[-1].probes - inside[0].probes,
    }


def timeline(recorder: Recorder, network: Network, from_s: float) -> list[tuple[float, float, float]]:
    """Each second: when, what was carried, and the optimum of the arm in use with the true capacities."""
    rows = []
    for second in range(int(recorder.samples[-1].time_s - from_s)):
        at_s = from_s + second
        arm = next(s.arm for s in recorder.samples if s.time_s >= at_s + 0.5)
        optimum = best_mbps(network, [arm])[0] if arm else 0.0
        rows.append((second + 1, round(recorder.mbps(at_s, at_s + 1.1), 1), round(optimum, 1)))
    return rows


def main() -> int:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", default="hymab", choices=["hymab", "hymab+", "auto", "throughput"])
    parser.add_argument("--load", default="udp", choices=["udp", "tcp"])
    parser.add_argument("--offer", type=float, default=40.0, help="Mb/s of UDP payload")
    parser.add_argument("--noise", type=float, default=0.2, help="relative standard deviation of busy times")
    parser.add_argument("--capacity-noise", type=float, default=0.0)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--drop", help="LINK=MBPS after the first half")
    parser.add_argument("--json", help="write everything there")
    args = parser.parse_args()
    network = read_file(find_network("diamond"))
    network = replace(network, flows=(replace(network.flows[0], policy=Policy(args.policy)),))
    errors = {"busy_noise": args.noise, "noise": args.capacity_noise, "hold_s": 1.0}
    options = EmulationOptions(measured=True, errors=errors, settings={"capacities": "measured"})

    def body(emulation: Emulation) -> int:
        result = measure(emulation, args, network)
        print(json.dumps(result))
        return 0

    print(f"policy {args.policy}, load {args.load}, noise {args.noise}", file=sys.stderr)
    return run_network(network, "bandit-bench", body, RunOptions(publish=0, emulation=options), lambda text: None)


if __name__ == "__main__":
    raise SystemExit(main())

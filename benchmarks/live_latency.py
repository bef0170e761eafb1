"""The latency policy on an emulated network with real packets, beside either technology alone and the multipath.

    sudo python benchmarks/live_latency.py [--loads 3,8] [--seconds 15] [--policies latency,empower,plc,wifi]

Two nodes have PLC of 10 Mb/s and WiFi that alternates between 18 and 2 Mb/s, each for 0.7 s on average; the controller
knows what emulated radios measure. UDP frames of 1400 bytes arrive as a Poisson process. One-way delays are exact:
both ends run on one machine and one clock. Every policy sees the same arrivals and the same changes of WiFi.
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from live import on_network

from hyroads.controller.core.netfile import parse
from hyroads.mininet.control_sockets import MediumClient
from hyroads.mininet.emulation import Emulation
from hyroads.mininet.probe import HEADER, MAGIC_PORT

PLC_MBPS, HIGH_MBPS, LOW_MBPS, SOJOURN_S = 10.0, 18.0, 2.0, 0.7
BYTES = 1400
L2_BYTES = BYTES + 28
# The fit of a latency flow begins with its first sample.
WARM_UP_S = {"latency": 15.0}
FLOWS: dict[str, dict[str, Any]] = {
    "latency": {"policy": "latency"},
    "empower": {"policy": "empower"},
    "plc": {"paths": [["plc"]]},
    "wifi": {"paths": [["wifi"]]},
}
NETWORK = {
    "nodes": {"a": {"role": "gateway"}, "b": {"role": "ap"}},
    "links": [
        {"id": "plc", "from": "a", "to": "b", "technology": "plc", "capacity_mbps": PLC_MBPS, "both": True},
        {"id": "wifi", "from": "a", "to": "b", "technology": "wifi", "capacity_mbps": HIGH_MBPS, "both": True},
    ],
    "interference": {"rule": "technology"},
}


@dataclass(frozen=True)
class Result:
    """Delays of what arrived, ms, and how many of how many packets did not."""

    policy: str
    load_mbps: float
    delays_ms: np.ndarray[Any, np.dtype[np.float64]]
    lost: int
    sent: int
    shown: dict[str, Any]

    def row(self) -> str:
        """A line of the table."""
        p50, p95, p99 = np.percentile(self.delays_ms, (50, 95, 99)) if len(self.delays_ms) else (np.nan,) * 3
        mean = float(self.delays_ms.mean()) if len(self.delays_ms) else np.nan
        figures = "".join(f"{value:9.1f}" for value in (mean, p50, p95, p99))
        plc = self.shown["plc_share"]
        return f"{self.load_mbps:6.1f}  {self.policy:<8}{figures}{100 * self.lost / self.sent:8.2f} %  {plc:9.2f}"


class Weather(threading.Thread):
    """Lets WiFi alternate until it is stopped, each time alike."""

    def __init__(self, emulation: Emulation, seed: int) -> None:
        super().__init__(daemon=True)
        self._random = random.Random(seed)
        self._socket = emulation.directory / "medium.sock"
        self.over = threading.Event()

    def run(self) -> None:
        """Both directions change at once."""
        high = True
        with MediumClient(self._socket) as medium:
            while not self.over.wait(self._random.expovariate(1.0 / SOJOURN_S)):
                high = not high
                for link in ("wifi", "wifi~"):
                    medium.set_link(link, capacity_mbps=HIGH_MBPS if high else LOW_MBPS)
            for link in ("wifi", "wifi~"):
                medium.set_link(link, capacity_mbps=HIGH_MBPS)


def send(address: str, seconds: float, mbps: float, seed: int) -> None:
    """A Poisson process on an absolute schedule; prints how many were sent."""
    rng, gap_s = random.Random(seed), L2_BYTES * 8e-6 / mbps
    padding = bytes(BYTES - HEADER.size)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stream:
        stream.connect((address, MAGIC_PORT))
        number, due_s = 0, time.monotonic() + 0.05
        end_s = due_s + seconds
        while due_s < end_s:
            time.sleep(max(0.0, due_s - time.monotonic()))
            stream.send(HEADER.pack(number, due_s) + padding)
            number += 1
            due_s += rng.expovariate(1.0 / gap_s)
    print(number)


def measure(emulation: Emulation, policy: str, load_mbps: float, seconds: float) -> Result:
    """One flow: declared, warmed up, measured, removed."""
    rest = emulation.rest
    rest.request("POST", "/flows", {"id": "f", "from": "a", "to": "b", **FLOWS[policy]})
    weather = Weather(emulation, seed=11)
    weather.start()
    warm_s = WARM_UP_S.get(policy, 3.0)
    seconds_in_all = warm_s + seconds
    receiver = _python(emulation, "b", "-m", "hyroads.mininet.probe", "receive", "--seconds", f"{seconds_in_all + 2}")
    time.sleep(0.5)
    options = ["--send", emulation.addressing.host_ip["b"], "--seconds", str(seconds_in_all), "--loads", str(load_mbps)]
    sender = _python(emulation, "a", __file__, *options)
    began_s = time.monotonic()
    time.sleep(seconds_in_all - 0.5)
    shown = _shown(rest.get("/flows/f"))
    sent = int(sender.communicate(timeout=20)[0])
    arrivals = np.array(json.loads(receiver.communicate(timeout=20)[0]), dtype=float)
    weather.over.set()
    weather.join()
    rest.request("DELETE", "/flows/f")
    late = arrivals[arrivals[:, 1] >= began_s + warm_s]
    first = int(late[:, 0].min())
    return Result(policy, load_mbps, 1e3 * (late[:, 2] - late[:, 1]), sent - first - len(late), sent - first, shown)


def _shown(flow: dict[str, Any]) -> dict[str, Any]:
    rates = {path["links"][0]: path["rate_mbps"] for path in flow["multipath"]}
    return {"plc_share": rates.get("plc", 0.0) / max(sum(rates.values()), 1e-9), "latency": flow.get("latency")}


def _python(emulation: Emulation, node: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*emulation.inside(node), "chrt", "-r", "5", sys.executable, *arguments], stdout=subprocess.PIPE, text=True
    )


def main() -> int:
    """Prints a table: delays in ms."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loads", default="3,8", help="Mb/s at L2 payload, separated by commas")
    parser.add_argument("--seconds", type=float, default=15.0, help="of measurement for each policy and load")
    parser.add_argument("--policies", default=",".join(FLOWS))
    parser.add_argument("--name", default="live-latency")
    parser.add_argument("--send", metavar="ADDRESS", help=argparse.SUPPRESS)
    args = parser.parse_args()
    loads = [float(load) for load in args.loads.split(",")]
    if args.send:
        send(args.send, args.seconds, loads[0], seed=7)
        return 0

    def body(emulation: Emulation) -> int:
        print(f"{'Mb/s':>6}  {'policy':<8}{'mean':>9}{'p50':>9}{'p95':>9}{'p99':>9}{'lost':>10}  {'PLC share':>9}")
        for load in loads:
            for policy in args.policies.split(","):
                result = measure(emulation, policy, load, args.seconds)
                print(result.row(), flush=True)
                if result.shown["latency"] is not None:
                    print(f"        {json.dumps(result.shown['latency'])}", file=sys.stderr)
        return 0

    return on_network(parse(NETWORK, "live_latency"), args.name, body, measured=True, errors={"hold_s": 0.1})


if __name__ == "__main__":
    sys.exit(main())

"""Flows that send little give the rest back, those that wake up or are new get their share: how fast (root).

    python benchmarks/live_demand.py [--network two-flows] [--measured] [--rounds 4]

Real packets: the first flow offers a fifth of its fair share, then all that it can get, again and again; the second
always wants more than there is. Rates are those that the controller has sent to the agents, looked at every 10 ms over
REST; one slot is 100 ms.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

import numpy as np
from live import on_network, slots_of

from hyroads.mininet.emulation import Emulation
from hyroads.mininet.udp_load import UdpLoad

LOOK_S = 0.01
NEAR = 0.95
PATIENCE_S = 3.0
OFFER_SHARE = 0.2
GREEDY_MBPS = 60.0


class Bench:
    """One emulated network with two flows and their load."""

    def __init__(self, emulation: Emulation, load: UdpLoad) -> None:
        self._rest = emulation.rest
        self._load = load
        self.specs = emulation.network.flows[:2]
        self.first, self.second = (flow.id for flow in self.specs)
        for flow in self.specs:
            load.open(flow.id, flow.source, flow.target)

    def rates(self) -> dict[str, float]:
        """Mb/s of all flows now."""
        return {flow["id"]: flow["rate_mbps"] or 0.0 for flow in self._rest.get("/flows")["flows"]}

    def offer(self, flow: str, mbps: float) -> float:
        """Sends so much; returns when it began."""
        return self._load.set_rate(flow, mbps)

    def until(self, since_s: float, holds: Callable[[dict[str, float]], bool]) -> float:
        """Seconds from ``since_s`` until the rates are such; NaN if they are not for a while."""
        while time.monotonic() < since_s + PATIENCE_S:
            asked_s = time.monotonic()
            if holds(self.rates()):
                return asked_s - since_s
            time.sleep(LOOK_S)
        return float("nan")

    def forget(self, flow: str) -> None:
        """Takes a flow away."""
        self._rest.request("DELETE", f"/flows/{flow}")

    def declare(self, flow: str) -> float:
        """Declares it again; returns when that was asked for."""
        spec = next(spec for spec in self.specs if spec.id == flow)
        asked_s = time.monotonic()
        self._rest.request("POST", "/flows?wait=false", {"id": flow, "from": spec.source, "to": spec.target})
        return asked_s


def measure(bench: Bench, rounds: int) -> dict[str, list[float]]:
    """Times in seconds by what they are of."""
    first, second = bench.first, bench.second
    for flow in (first, second):
        bench.offer(flow, GREEDY_MBPS)
    time.sleep(3.0)
    fair = bench.rates()
    total = sum(fair.values())
    print(f"fair shares: {first} {fair[first]:.2f}, {second} {fair[second]:.2f} Mb/s")
    times: dict[str, list[float]] = {"gives back": [], "wakes up": [], "is new": []}
    for _ in range(rounds):
        little = OFFER_SHARE * fair[first]
        began_s = bench.offer(first, little)
        want = fair[second] + NEAR * (fair[first] - 1.3 * little) * fair[second] / fair[first]
        times["gives back"].append(bench.until(began_s, lambda r, w=want: r[second] >= w))  # type: ignore[misc]
        time.sleep(2.0)
        now = bench.rates()
        print(f"while {first} offers {little:.2f}: {now}, together {sum(now.values()) / total:.2f} of before")
        began_s = bench.offer(first, GREEDY_MBPS)
        times["wakes up"].append(bench.until(began_s, lambda r: r[first] >= NEAR * fair[first]))
        time.sleep(2.0)
    for _ in range(rounds):
        # Traffic of no flow is external, and takes its airtime.
        bench.offer(first, 0.0)
        bench.forget(first)
        time.sleep(1.5)
        began_s = bench.declare(first)
        bench.offer(first, GREEDY_MBPS)
        times["is new"].append(bench.until(began_s, lambda r: r.get(first, 0.0) >= NEAR * fair[first]))
        time.sleep(1.5)
    return times


def main() -> int:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", default="two-flows")
    parser.add_argument("--measured", action="store_true", help="the controller knows what emulated radios measure")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--name", default="live-demand")
    args = parser.parse_args()

    def body(emulation: Emulation) -> int:
        with UdpLoad(emulation) as load:
            times = measure(Bench(emulation, load), args.rounds)
        print(
            f"{'a flow that':<14}{'median':>10}{'worst':>10}   ms until it (or the other) has {NEAR:.0%} of its share"
        )
        for what, found in times.items():
            ms = 1e3 * np.array(found)
            print(f"{what:<14}{np.median(ms):10.0f}{ms.max():10.0f}   {' '.join(f'{each:.0f}' for each in ms)}")
        slots = slots_of(emulation)
        figures = f"p99 {slots['p99_ms']:.1f} ms, max {slots['max_ms']:.1f} ms"
        print(f"slots: {slots['count']}, missed {slots['missed']}, {figures}")
        return 0

    errors = {"hold_s": 0.1} if args.measured else {}
    return on_network(args.network, args.name, body, measured=args.measured, errors=errors)


if __name__ == "__main__":
    sys.exit(main())

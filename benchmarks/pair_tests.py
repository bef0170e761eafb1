"""Pair tests live: domains that who hears whom gets wrong, put right in idle time (root).

    python benchmarks/pair_tests.py [--noise 0.1] [--low-rate-bias 0.3]

Real packets on ``tests/support/hidden.yaml``; the controller discovers links and domains from emulated radios, of which
those of a and c also tell that they overhear each other. All
flows send all they can, then nobody does and pairs are tested; one flow wakes up in the middle of a test; then all
pairs are tested to the end, and all flows send again. Printed are rates before and after against the true optimum, how
long dummies outlived the waking of the flow and what it got, and the verdicts against the medium's truth.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

from live import on_network, slots_of

from hyroads.controller.core.optimum import joint_optimum
from hyroads.controller.files.documents import read_file
from hyroads.mininet.emulation import Emulation
from hyroads.mininet.factory import factory_address
from hyroads.mininet.run_directory import discovered_names, network_document
from hyroads.mininet.udp_load import PAYLOAD_BYTES, UdpLoad

NETWORK = Path(__file__).parents[1] / "tests" / "support" / "hidden.yaml"
MOST_S, SETTLE_S, MEASURE_S, WAKE_S, HEARD_S = 150.0, 3.0, 3.0, 2.0, 1.0
WAKES_MBPS, GREEDY_MBPS = 5.0, 20.0
MARGIN = 0.05
WAKING, OTHER = "first", "exposed"


class Bench:
    """A running network and its load."""

    def __init__(self, emulation: Emulation, load: UdpLoad) -> None:
        self.emulation, self.load, self.network = emulation, load, emulation.network
        document = network_document(self.network, emulation.addressing, measured=True, discover=True)
        self.found_name = discovered_names(self.network, document)
        self.medium = emulation.shared.client()
        self.true_name = {theirs: ours for ours, theirs in self.found_name.items()}
        self.flows = [flow.id for flow in self.network.flows]
        for flow in self.network.flows:
            load.open(flow.id, flow.source, flow.target)

    def ask(self, path: str) -> Any:
        return self.emulation.rest.get(path)

    def offer(self, flow: str, mbps: float) -> float:
        return self.load.set_rate(flow, mbps)

    def until(self, holds: Callable[[dict[str, Any]], bool]) -> float:
        """Seconds until the tests' document is such; NaN if it never is."""
        began_s = time.monotonic()
        while time.monotonic() - began_s < MOST_S:
            if holds(self.ask("/pair-tests")):
                return time.monotonic() - began_s
            time.sleep(0.02)
        return float("nan")

    def frames(self, flow: str) -> int:
        """What the medium has carried over the link of a flow."""
        link = next(spec for spec in self.network.flows if spec.id == flow).paths[0][0]
        return self.medium.stats().links[link].frames

    def mean_mbps(self, seconds: float) -> dict[str, float]:
        """What flows deliver."""
        seen: dict[str, list[float]] = {flow: [] for flow in self.flows}
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            for row in self.ask("/measurements")["flows"]:
                if row["id"] in seen:
                    seen[row["id"]].append(row["delivered_mbps"] or 0.0)
            time.sleep(0.1)
        return {flow: statistics.mean(rates) for flow, rates in seen.items()}


def saturated(bench: Bench, when: str) -> None:
    for flow in bench.flows:
        bench.offer(flow, GREEDY_MBPS)
    time.sleep(SETTLE_S)
    rates = bench.mean_mbps(MEASURE_S)
    optimum = joint_optimum(bench.network, bench.network.flows, margin=MARGIN)
    best = {flow: optimum.rates_mbps[flow] for flow in bench.flows}
    share = optimum.utility_of(rates) / optimum.utility
    shown = ", ".join(f"{flow} {rates[flow]:.2f} of {best[flow]:.2f}" for flow in bench.flows)
    print(f"{when}: {shown} Mb/s; {share:.1%} of the optimum's utility", flush=True)
    for flow in bench.flows:
        bench.offer(flow, 0.0)


def wakes(bench: Bench) -> None:
    """A flow begins to send while a link near it is tested."""
    near = bench.found_name[next(spec for spec in bench.network.flows if spec.id == OTHER).paths[0][0]]
    bench.until(lambda tests: tests["running"] is not None and near in tests["running"]["sending"])
    began_s, last_s = bench.offer(WAKING, WAKES_MBPS), time.monotonic()
    count, carried, arrived = bench.frames(OTHER), bench.frames(WAKING), []
    while time.monotonic() < began_s + WAKE_S:
        now = bench.frames(OTHER)
        # Hello frames are broadcast; a frame or two may be anything.
        last_s = time.monotonic() if now > count + 2 else last_s
        count = now
        arrived.append((time.monotonic() - began_s, bench.frames(WAKING) - carried))
        time.sleep(0.01)
    expected = WAKES_MBPS * 1e6 / 8 / PAYLOAD_BYTES
    early = max(frames for at_s, frames in arrived if at_s <= 0.5) / expected / 0.5
    print(f"a flow wakes up in a test: dummies end after {1e3 * (last_s - began_s):.0f} ms; ", end="")
    print(
        f"in the first half second {early:.0%} of its packets arrive, in 2 s {arrived[-1][1] / expected / WAKE_S:.0%}"
    )
    bench.offer(WAKING, 0.0)


def verdicts(bench: Bench) -> int:
    """All pairs; how many verdicts are wrong."""
    links = bench.network.links
    pairs = [pair for pair in combinations(links, 2) if not {*_ends(pair[0])} & {*_ends(pair[1])}]
    took_s = bench.until(lambda tests: sum(p["verdict"] != "undecided" for p in tests["pairs"]) >= len(pairs))
    index, rule = bench.network.link_index, bench.network.interference
    wrong, ratios = [], {True: [0.0], False: [0.0]}
    tests = bench.ask("/pair-tests")
    for pair in tests["pairs"]:
        names = [bench.true_name[link] for link in pair["links"]]
        truth = rule.contends(*(index[name] for name in names))
        if pair["verdict"] != "undecided":
            ratios[truth].append(pair["ratio"])
        if pair["verdict"] != ("conflict" if truth else "independent"):
            wrong.append((*names, pair["verdict"], pair["ratio"]))
    print(f"{len(pairs)} pairs, all decided {took_s:.0f} s later ({tests['count']} tests); wrong or undecided: {wrong}")
    for truth, name in ((True, "take turns"), (False, "do not")):
        print(f"  pairs that {name}: {len(ratios[truth]) - 1}, ratios {min(ratios[truth][1:], default=0):.2f}", end="")
        print(f" to {max(ratios[truth]):.2f}")
    return len(wrong)


def _ends(link: Any) -> tuple[str, str]:
    return link.source, link.target


def overhear(emulation: Emulation, first: str, second: str) -> None:
    """Has the radios of two nodes tell that they hear each other, though there is no link and no conflict."""
    radios = emulation.radios
    for node, other in ((first, second), (second, first)):
        document = next(one for one in radios._document["nodes"] if one["node"] == node)
        peer = {
            "mac": factory_address(emulation.addressing, other, "wifi"),
            "node": other,
            "out_link": None,
            "in_link": None,
        }
        document["interfaces"][0]["peers"].append(peer)
    radios.program.stop()
    radios.start()
    time.sleep(HEARD_S)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--noise", type=float, default=0.0, help="of the radios' estimates (default %(default)g)")
    parser.add_argument("--low-rate-bias", type=float, default=0.0, help="of the same (default %(default)g)")
    parser.add_argument("--name", default="pair-tests")
    args = parser.parse_args()

    def body(emulation: Emulation) -> int:
        overhear(emulation, "a", "c")
        with UdpLoad(emulation) as load:
            bench = Bench(emulation, load)
            saturated(bench, "domains from hearing")
            wakes(bench)
            wrong = verdicts(bench)
            saturated(bench, "domains after tests")
        slots = slots_of(emulation)
        print(f"slots: {slots['count']}, missed {slots['missed']}, longest {slots['max_ms']:.0f} ms")
        return wrong

    errors = {"hold_s": 0.1, "noise": args.noise, "low_rate_bias": args.low_rate_bias}
    options = {"measured": True, "discover": True, "errors": errors, "settings": {"pair_tests": "idle"}}
    return on_network(read_file(NETWORK), args.name, body, **options)


if __name__ == "__main__":
    sys.exit(main())

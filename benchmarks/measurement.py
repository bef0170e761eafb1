"""How well a controller that only measures knows the capacities of an emulated network, and how soon it sees a step.

The triangle with its controller, agents and emulated radios; the controller is told of nodes and technologies only.
Estimates are those that the loop uses (``GET /topology``), errors are relative to the medium's capacities.

    python benchmarks/measurement.py [--seconds 6] [--steps 5] [--only errors steps domains]      (root)

``domains``: for every network that comes with HyRoads, whether what its nodes hear gives the domains of its file.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import threading
import time
from collections.abc import Callable

from live import on_network

from hyroads.controller.core.carrier_sensing_rule import CarrierSensingInterference
from hyroads.mininet.emulation import Emulation
from hyroads.mininet.run_directory import find_network
from hyroads.mininet.traffic import Traffic

USED = {("a", "b", "plc"), ("a", "b", "wifi"), ("b", "c", "wifi")}
ERRORS = (
    ("exact", {}, False),
    ("noise 10 %, drawn anew each 0.1 s", {"noise": 0.1}, False),
    ("noise 10 %, drawn anew each second", {"noise": 0.1, "hold_s": 1.0}, False),
    ("low-rate bias 0.3, no traffic", {"low_rate_bias": 0.3}, False),
    ("low-rate bias 0.3, links that carry 14 Mb/s", {"low_rate_bias": 0.3}, True),
    ("both, links that carry 14 Mb/s", {"noise": 0.1, "low_rate_bias": 0.3}, True),
)
PARTS = ("errors", "steps", "domains")
AFTER_S = 4.0
STEP = ("ab-wifi", ("a", "b", "wifi"), 15.0, 5.0)
WITHIN = 0.1


class Lab:
    """A running network and its true capacities."""

    def __init__(self, emulation: Emulation) -> None:
        self.emulation = emulation
        links = emulation.network.links
        self.truth = {(link.source, link.target, link.technology): link.capacity_mbps for link in links}

    def estimates(self) -> dict[tuple[str, str, str], float]:
        rows = self.emulation.rest.get("/topology")["links"]
        return {(r["from"], r["to"], r["technology"]): r["capacity_mbps"] for r in rows if r["capacity_mbps"]}

    def radios(self, errors: dict[str, float]) -> None:
        """The access points' radios start anew with other errors."""
        radios = self.emulation.radios
        for node in radios._document["nodes"]:
            node["errors"] = {"hold_s": 0.1, **errors}
        radios.program.stop()
        radios.start()

    def errors(self, seconds: float, only: set | None = None) -> list[float]:
        """Relative errors of all estimates, five times a second."""
        found, until_s = [], time.monotonic() + seconds
        while time.monotonic() < until_s:
            estimates = self.estimates()
            assert estimates.keys() == self.truth.keys(), "all links, and no other"
            found += [estimates[ends] / self.truth[ends] - 1 for ends in only or self.truth]
            time.sleep(0.2)
        return found

    def under_traffic(self, seconds: float) -> list[float]:
        found: list[float] = []
        watcher = threading.Thread(
            target=lambda: (time.sleep(AFTER_S), found.extend(self.errors(seconds, USED))), daemon=True
        )
        watcher.start()
        Traffic(self.emulation, "a", "c", lambda: None).udp(AFTER_S + seconds + 1, 14.0)
        watcher.join()
        return found

    def step(self, mbps: float) -> float | None:
        """Seconds from a change of capacity until the estimate is within 10 % of it and stays so for a second."""
        link, ends = STEP[:2]
        self.emulation.shared.set_link(link, capacity_mbps=mbps)
        began_s, since_s = time.monotonic(), None
        while time.monotonic() - began_s < 15:
            near = abs(self.estimates().get(ends, 0.0) / mbps - 1) <= WITHIN
            since_s = (since_s or time.monotonic()) if near else None
            if since_s is not None and time.monotonic() - since_s > 1:
                return since_s - began_s
            time.sleep(0.01)
        return None


def errors(lab: Lab, seconds: float) -> None:
    print(f"{'radios err by':<46}{'bias':>8}{'std':>8}{'worst':>8}   target: std < 5 % of the capacity", flush=True)
    for what, how, loaded in ERRORS:
        lab.radios(how)
        if not loaded:
            time.sleep(AFTER_S)
        found = lab.under_traffic(seconds) if loaded else lab.errors(seconds)
        figures = (statistics.mean(found), statistics.pstdev(found), max(found, key=abs))
        print(f"{what:<46}" + "".join(f"{figure:>8.1%}" for figure in figures), flush=True)


def steps(lab: Lab, count: int) -> None:
    _, _, high, low = STEP
    print(f"{'a capacity changes':<46}{'median':>8}{'worst':>8}   s until the estimate is within 10 % and stays")
    for what, how in (("exact radios", {}), ("noise 10 %", {"noise": 0.1})):
        lab.radios(how)
        time.sleep(AFTER_S)
        took: dict[float, list] = {low: [], high: []}
        for _ in range(count):
            for mbps in (low, high):
                took[mbps].append(lab.step(mbps))
        for mbps, other in ((low, high), (high, low)):
            known = [seconds for seconds in took[mbps] if seconds is not None]
            never = f"   never {count - len(known)}x" if len(known) < count else ""
            print(
                f"{f'{what}, {other:g} -> {mbps:g} Mb/s':<46}{statistics.median(known):>8.2f}{max(known):>8.2f}{never}"
            )


def domains(emulation: Emulation) -> int:
    """Compares all pairs of links: contending by what is heard, and by the file."""
    network = emulation.network
    time.sleep(AFTER_S)
    radios = emulation.rest.get("/measurements")["radios"]
    hears = {(radio["node"], i["technology"]): i["hears"] for radio in radios for i in radio["interfaces"]}
    inferred = CarrierSensingInterference(tuple(network.nodes), network.links, hears, network.unshared)
    pairs = list(itertools.combinations(range(len(network.links)), 2))
    wrong = [pair for pair in pairs if inferred.contends(*pair) != network.interference.contends(*pair)]
    names = [f"{network.links[a].id}, {network.links[b].id}" for a, b in wrong]
    print(
        f"domains of {emulation.name}: {len(pairs)} pairs of links, {len(wrong)} differ from the file {names[:3]}",
        flush=True,
    )
    return bool(wrong)


def shipped() -> list[str]:
    return sorted(path.stem for path in find_network("triangle").parent.glob("*.yaml"))


def run(name: str, body: Callable[[Emulation], int]) -> int:
    return on_network(name, f"bench-{name}", body, measured=True, discover=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=6.0, help="for each row (default %(default)g)")
    parser.add_argument("--steps", type=int, default=5, help="down and up (default %(default)s)")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    arguments = parser.parse_args()

    def body(emulation: Emulation) -> int:
        lab = Lab(emulation)
        if "errors" in arguments.only:
            errors(lab, arguments.seconds)
        if "steps" in arguments.only:
            steps(lab, arguments.steps)
        return 0

    status = run("triangle", body) if set(arguments.only) != {"domains"} else 0
    return status or ("domains" in arguments.only and max(run(name, domains) for name in shipped()))


if __name__ == "__main__":
    sys.exit(main())

"""How near two regions come to one controller, on paper and on real packets, and what restarts of controllers cost.

    python benchmarks/regions.py [--cases N]                             rates by round, division of a campus
    python benchmarks/regions.py --live tcp tcp-beside --runs 4          root
    python benchmarks/regions.py --live both each loaded --runs 1        root

``tcp`` runs TCP over the border of `two-buildings` under one controller and under two, in turn, each in a network that
is made anew; ``tcp-beside`` does so beside UDP within both regions, more than that can have. The other kinds kill
controllers under counted packets and start them again, as tests/scenario/test_region_failures.py does.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from hyroads.controller.cli.regions import by_metis
from hyroads.controller.control.region_rates import ROUND_S
from hyroads.controller.core.rates.regions import round_of, utility
from hyroads.controller.core.regions import proposed
from hyroads.controller.core.topologies import campus
from hyroads.mininet.emulation import Emulation, EmulationOptions
from hyroads.mininet.traffic import Traffic

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
import region_scenes as scenes
from region_cases import two_buildings
from scene_process import make, see, udp_load

ROUNDS = 10
WANTED, WANTED_TCP = 0.995, 0.95
TCP_S = 8.0
RESTARTS = {
    "both": "the controllers of both regions are killed at once",
    "each": "each region's controller is killed, one after the other",
    "loaded": "the same, while UDP fills all links",
    "all": "both controllers of both regions, which stand by for each other, are killed at once",
    "leaders": "of two controllers of a region that stand by for each other, the leader is killed; each region",
    "frozen": "the same, but it is frozen for some seconds and believes that it leads when it is thawed",
    "transit": "of three regions, the controller in the middle is killed",
}
TCP = {"tcp": "TCP from one region to the other, alone", "tcp-beside": "TCP beside UDP within both regions"}


def rates(cases: int) -> bool:
    """40 crossing and 120 local flows of random weights; whether all cases reach what is wanted."""
    ratios: list[list[float]] = [[] for _ in range(ROUNDS)]
    took_ms = []
    for seed in range(cases):
        best, regions = two_buildings(random.Random(seed), crossing=40, local=120)
        for each in ratios:
            began_s = time.perf_counter()
            regions, crossing_mbps = round_of(regions)
            took_ms.append(1e3 * (time.perf_counter() - began_s))
            each.append(utility(regions, crossing_mbps) / best)
    for number, each in enumerate(ratios, start=1):
        print(f"round {number:2}: {statistics.median(each):.5f} of the joint optimum's utility, worst {min(each):.5f}")
    print(f"a round of both regions: {statistics.median(took_ms):.1f} ms ({max(took_ms):.1f})")
    return min(ratios[-1]) >= WANTED


def division() -> None:
    """A campus of 1,000 access points into regions of 250 at most."""
    network = campus(random.Random(1), 1000)
    began_s = time.perf_counter()
    found = proposed(network, 250, by_metis)
    sizes = sorted(map(len, found.regions.values()))
    took_s = time.perf_counter() - began_s
    print(f"1000 access points: {len(sizes)} regions of {sizes[0]} to {sizes[-1]}, {len(found.cut_links)} links cut, "
          f"{len(found.shared_links)} in shared domains; {took_s:.1f} s")  # fmt: skip


def tcp(emulation: Emulation, *, beside: bool) -> dict[str, Any]:
    """What TCP over the border gets, once the regions have told each other of their rates."""
    addresses = emulation.addressing.host_ip
    inner = [(emulation.inside(source), addresses[to], scenes.LOAD) for source, to in scenes.INNER.values()]
    with udp_load(inner, 15, 0.0058) if beside else nullcontext():
        time.sleep(ROUNDS * ROUND_S)
        found = Traffic(emulation, "a", "d", lambda: None).tcp(TCP_S, "cubic")
    return {"mbps": found.mbps, "retransmits": found.retransmits}


def scene(out: Path) -> int:
    """One network for TCP; the file's name is KIND.CONTROLLERS.json."""
    kind, _, count = out.stem.partition(".")
    network = scenes.two_buildings()
    inner = {f"{region}-load" for region in scenes.INNER}
    own = [flow for flow in network["flows"] if flow["id"] in inner]
    network["flows"] = [{"id": "down", "from": "a", "to": "d"}, {"id": "up", "from": "d", "to": "a"}]
    if kind == "tcp-beside":
        network["flows"] += own
    options = EmulationOptions(regions=count == "2", controllers=int(count))
    return make(network, f"b-reg-{count}", lambda emulation: tcp(emulation, beside=kind == "tcp-beside"), out, options)


def paired_tcp(kind: str, folder: Path, number: int) -> float:
    """TCP under two controllers over that under one; who goes first changes with each run."""
    found = {}
    for count in (1, 2) if number % 2 else (2, 1):
        out = folder / f"{kind}.{count}.json"
        found[count] = see(__file__, out, lambda seen: bool(seen["mbps"]), tries=1, timeout_s=90.0)
    one, two = (found[count]["mbps"] for count in (1, 2))
    print(f"{kind} {number}: {two:.2f} beside {one:.2f} Mb/s, {two / one:.4f}", flush=True)
    return float(two / one)


def tcp_runs(kind: str, folder: Path, runs: int) -> bool:
    """Pairs of networks; whether the median reaches what is wanted."""
    ratios = [paired_tcp(kind, folder, number) for number in range(1, runs + 1)]
    print(f"{kind}: median {statistics.median(ratios):.4f}, worst {min(ratios):.4f} of {runs}, wanted {WANTED_TCP}")
    return statistics.median(ratios) >= WANTED_TCP


def restarts(kind: str, folder: Path, runs: int) -> bool:
    """Controllers are killed; whether no packet was lost, and nobody was told to change anything."""
    holds = True
    for number in range(1, runs + 1):
        found = see(scenes.__file__, folder / f"{kind}.json", lambda _: True, tries=1, timeout_s=200.0)
        if kind == "transit":
            lost = {stream: len(each["lost_s"]) for stream, each in found["packets"].items()}
            is_same = found["before"] == found["after"]
            print(f"transit {number}: lost {lost}, multipaths {'as before' if is_same else 'MOVED'}", flush=True)
            holds &= is_same and not any(lost.values())
            continue
        for run in found["runs"]:
            if kind in ("leaders", "frozen"):
                print(f"{kind} {number}: {scenes.takeover_shown(run)}", flush=True)
                holds &= scenes.goes_on(run) and scenes.nothing_lost({"runs": [run]})
                continue
            print(f"{kind} {number}: {scenes.shown(run)}", flush=True)
            holds &= scenes.is_unmoved(run) and (kind == "loaded" or scenes.nothing_lost({"runs": [run]}))
            holds &= kind != "loaded" or scenes.rates_stay(run)
    print(f"{kind}: {'holds' if holds else 'FALLS SHORT'} in {runs} runs")
    return holds


def live(kinds: list[str], runs: int) -> bool:
    """All kinds, each some times."""
    holds = True
    with tempfile.TemporaryDirectory() as folder:
        for kind in kinds:
            run: Callable[[str, Path, int], bool] = tcp_runs if kind in TCP else restarts
            holds &= run(kind, Path(folder), runs)
    return holds


def main() -> int:
    """See the module."""
    known = {**TCP, **RESTARTS}
    told = "\n".join(["kinds:", *(f"  {kind:11}{what}" for kind, what in known.items())])
    how = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], epilog=told, formatter_class=how)
    parser.add_argument("--cases", type=int, default=20)
    parser.add_argument("--live", nargs="+", choices=known, metavar="KIND", help="on real packets")
    parser.add_argument("--runs", type=int, default=1, help="of each kind")
    arguments = parser.parse_args()
    if arguments.live:
        return 0 if live(arguments.live, arguments.runs) else 1
    holds = rates(arguments.cases)
    division()
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())

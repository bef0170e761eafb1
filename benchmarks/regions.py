"""How near the rates of two regions come to the joint optimum, by round; and how long it takes to divide a campus.

Run: python benchmarks/regions.py [--cases N]
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from pathlib import Path

from hyroads.controller.cli.regions import by_metis
from hyroads.controller.core.rates.regions import round_of, utility
from hyroads.controller.core.regions import proposed
from hyroads.controller.core.topologies import campus

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
from region_cases import two_buildings

ROUNDS = 10
WANTED = 0.995


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


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=20)
    holds = rates(parser.parse_args().cases)
    division()
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())

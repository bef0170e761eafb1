"""Fair shares of several interfaces: how long the exact rates take, and how near miDRR comes packet by packet.

    python benchmarks/fair.py [--clients 20] [--seconds 40]

What a decision of the compiled scheduler costs: `cargo bench --bench scheduler` in dataplane/.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time

from hyroads.controller.core.fair.maxmin import Flow, Shares, allocate, violations
from hyroads.controller.study.fairness import DEFAULT, SCHEDULERS, worst_errors

TARGET_MS = 50.0


def client(flows: int, interfaces: int, seed: int) -> Shares:
    """Flows of weights 0.1 to 10 that accept any of the interfaces of 1 to 100 Mb/s; half of them have a demand."""
    rng = random.Random(seed)
    capacity = {f"if{k}": rng.uniform(1.0, 100.0) for k in range(interfaces)}
    declared = {
        f"f{i}": Flow(
            rng.uniform(0.1, 10.0),
            frozenset(rng.sample(sorted(capacity), rng.randint(1, interfaces))),
            rng.choice([None, rng.uniform(0.0, 30.0)]),
        )
        for i in range(flows)
    }
    return Shares(capacity, declared)


def rates(runs: int) -> None:
    print(f"{'exact rates, CPU ms':<34}{'median':>10}{'worst':>10}{'target':>10}")
    for flows, interfaces in ((8, 2), (64, 16), (1000, 16)):
        took_ms = []
        for seed in range(runs):
            shares = client(flows, interfaces, seed)
            began_s = time.process_time()
            found = allocate(shares)
            took_ms.append(1e3 * (time.process_time() - began_s))
            if wrong := violations(shares, found):
                sys.exit(f"{flows} flows, {interfaces} interfaces, seed {seed}: {wrong[0]}")
        target = f"<= {TARGET_MS:g}" if flows == 64 else ""
        title = f"{flows} flows, {interfaces} interfaces"
        print(f"{title:<34}{statistics.median(took_ms):>10.2f}{max(took_ms):>10.2f}{target:>10}")


def errors(clients: int, seconds: float) -> None:
    print(f"\nworst flow of {clients} random clients misses its fair rate by, {seconds:g} s")
    found = [worst_errors((1, number, seconds)) for number in range(clients)]
    for title, column in zip(SCHEDULERS, zip(*found, strict=True), strict=True):
        wanted = "<= 1.00 %" if title == DEFAULT else ""
        print(f"{title:<34}{100 * statistics.median(column):>8.2f} %{100 * max(column):>8.2f} %{wanted:>12}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=40.0)
    args = parser.parse_args()
    rates(50)
    errors(args.clients, args.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())

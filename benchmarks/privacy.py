"""How well one network can tell websites apart by what it carries, with and without HyWF.

    python benchmarks/privacy.py [--sites N]

The sites are synthetic: each has its own bursts of packets down and up, with noise in sizes and times from access to
access. The observer knows the scheme, trains on accesses that were split by it, and classifies others by the nearest
neighbours of the cumulative traces of both directions. Guessing is 1 / sites. These are not the thesis's traces:
compare rows, not values.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
from hywf_model import HywfSettings, PaddingSettings, split_packets

POINTS = 30
TRAIN, TEST = 24, 8
Times = list[float]
Scheme = Callable[[list[Times], random.Random], list[Times]]
"""Times of the packets down and up -> those that network 1 sees."""


def site(rng: random.Random) -> list[list[tuple[float, int]]]:
    """(start, packets) of the bursts of both directions."""
    bursts = [(rng.uniform(0, 4), round(10 ** rng.uniform(0.7, 2.2))) for _ in range(rng.randint(4, 16))]
    return [bursts, [(start, max(1, round(count * rng.uniform(0.1, 0.4)))) for start, count in bursts]]


def access(bursts: list[list[tuple[float, int]]], rng: random.Random) -> list[Times]:
    traces = []
    for direction in bursts:
        times = []
        for start, count in direction:
            at = start + abs(rng.gauss(0, 0.05))
            for _ in range(max(1, round(count * rng.gauss(1, 0.04)))):
                times.append(at)
                at += rng.expovariate(1000)
        traces.append(sorted(times))
    return traces


def keep(times: Times, wanted: Callable[[int], bool]) -> Times:
    return [t for i, t in enumerate(times) if wanted(i)]


def hywf(settings: HywfSettings, padding: PaddingSettings | None = None) -> Scheme:
    def scheme(traces: list[Times], rng: random.Random) -> list[Times]:
        return [[p.time_s for p in split_packets(t, settings, rng, padding) if p.network == 1] for t in traces]

    return scheme


SCHEMES: dict[str, Scheme] = {
    "one network": lambda traces, rng: traces,
    "directions split": lambda traces, rng: [traces[0], []],
    "round robin": lambda traces, rng: [keep(t, lambda i: i % 2 == 0) for t in traces],
    "fixed p = 0.5": lambda traces, rng: [keep(t, lambda i: rng.random() < 0.5) for t in traces],
    "HyWF, n_cons 1": hywf(HywfSettings(n_cons=1)),
    "HyWF, n_cons 20": hywf(HywfSettings()),
    "HyWF-AP": hywf(HywfSettings(n_chp=100), PaddingSettings()),
}


def features(traces: list[Times]) -> np.ndarray:
    """Cumulative traces at fixed times, in logarithms, so that small and large sites count alike."""
    grid = np.linspace(0.2, 6, POINTS)
    return np.concatenate([np.log1p(np.searchsorted(np.array(t), grid)) for t in traces])


def accuracy(scheme: Scheme, sites: int, seed: int) -> float:
    rng = random.Random(seed)
    templates = [site(rng) for _ in range(sites)]
    seen = np.array([[features(scheme(access(t, rng), rng)) for _ in range(TRAIN + TEST)] for t in templates])
    train, labels = seen[:, :TRAIN].reshape(sites * TRAIN, -1), np.repeat(np.arange(sites), TRAIN)
    right = 0
    for label, k in itertools.product(range(sites), range(TRAIN, TRAIN + TEST)):
        distance = ((train - seen[label, k]) ** 2).sum(axis=1)
        nearest = np.argsort(distance)[:3]
        # The majority of three, or the nearest.
        votes = np.bincount(labels[nearest], minlength=sites)
        guess = votes.argmax() if votes.max() > 1 else labels[nearest[0]]
        right += int(guess == label)
    return right / (sites * TEST)


def main() -> None:
    parser = argparse.ArgumentParser(description="Website fingerprinting by one of two networks.")
    parser.add_argument("--sites", type=int, default=40, help="websites (default: %(default)s)")
    sites = parser.parse_args().sites
    table = Table("split", title=f"Accesses told right by network 1, {sites} sites, %", title_justify="left")
    table.add_column("observer's accuracy, %", justify="right")
    table.add_column("target", justify="right")
    targets = {"HyWF, n_cons 20": "below half of fixed p", "HyWF-AP": "below half of fixed p"}
    for name, scheme in SCHEMES.items():
        table.add_row(name, f"{100 * accuracy(scheme, sites, 1):.1f}", targets.get(name, "-"))
    table.add_row("guessing", f"{100 / sites:.1f}", "-")
    Console().print(table)


if __name__ == "__main__":
    main()

"""How much CPU time one whole slot of the closed loop takes: python benchmarks/slot.py [-v] [WORD ...].

The cases of ``rates.py`` with everything that a slot does: samples of every link, busy times of every interface,
rates of every path, offers of every flow -> estimates, external airtime, demands, optimal rates, spare airtime, what to
send. Cold: no earlier rates are known; warm: the last slot's, with instruments that scatter by 5 % (capacities) and 1 %
(busy times, rates). Memory is what the state between two slots holds. Words choose cases by parts of their names, or
``small`` and ``large``. ``-v`` says which part took how long. ``--slices N``: every second flow is in one of N slices
whose shares of all technologies are half of what they would need. ``--flows N``: with N flows in every case.
``--filters``: the filters of capacities alone, of 8,000 links with a sample each in every slot, compiled and in numpy.
"""

from __future__ import annotations

import os

# Before numpy is imported: the figures are for one core.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import cProfile
import pstats
import statistics
import time
import tracemalloc
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
from rates import Case, cases, problem_of

from hyroads.controller.control.allocators import SolverMode
from hyroads.controller.core.closed_loop import LoopState, Measurements, configured_samples, slot
from hyroads.controller.core.demand import Demands, Offer
from hyroads.controller.core.estimate import filter_bank
from hyroads.controller.core.estimate.busy_time import CarrierSensing, ExternalAirtime
from hyroads.controller.core.estimate.filter_bank import FilterBank
from hyroads.controller.core.estimate.filters import FilterSettings
from hyroads.controller.core.estimate.link_estimate import LinkEstimator, Sample, Source
from hyroads.controller.core.network import Network
from hyroads.controller.core.rates import RateProblem
from hyroads.controller.core.rates.shares import SliceShares

SLOT_S = 0.1
SETTLE, RUNS = 12, 100


class World:
    """Instruments of a network that carries the rates in force: every slot's measurements, with noise."""

    def __init__(self, network: Network, problem: RateProblem, sensing: CarrierSensing) -> None:
        self.network, self.problem, self.sensing = network, problem, sensing
        self.rng = np.random.default_rng(1)
        self.truth = problem.capacity_mbps
        slices = zip(problem.layout.flow_ids, problem.layout.path_slices(), strict=True)
        self.paths = [(flow, k) for flow, where in slices for k in range(where.stop - where.start)]

    def measure(self, rates_mbps: np.ndarray, now_s: float) -> Measurements:
        layout, rng = self.problem.layout, self.rng
        seen = self.truth * np.exp(0.05 * rng.standard_normal(len(self.truth)))
        ids = (link.id for link in self.network.links)
        samples = [Sample(link, Source.AGENT, c, now_s) for link, c in zip(ids, seen.tolist(), strict=True)]
        own = self.sensing.own_airtime(layout.routing.T @ rates_mbps, self.truth)
        busy = np.clip(own + 0.01 * rng.standard_normal(len(own)), 0.0, 1.0)
        carried = rates_mbps * np.exp(0.01 * rng.standard_normal(len(rates_mbps)))
        sent = layout.flow_rates(carried).tolist()
        # Every fourth flow has less to send than it may.
        offers = {
            flow: Offer(0.5 * mbps if i % 4 == 0 else mbps, mbps)
            for i, (flow, mbps) in enumerate(zip(layout.flow_ids, sent, strict=True))
        }
        return Measurements(
            samples,
            dict(zip(self.sensing.observers, busy.tolist(), strict=True)),
            dict(zip(self.paths, carried.tolist(), strict=True)),
            offers,
        )


def interfaces(network: Network) -> list[tuple[str, str]]:
    """Every interface that a link begins or ends at."""
    ends = ((end, link.technology) for link in network.links for end in (link.source, link.target))
    return list(dict.fromkeys(ends))


class Run:
    """A case under the loop: times of slots, the rates found, the state's size."""

    def __init__(self, case: Case, slices: int = 0) -> None:
        problem = problem_of(case)
        self.mode = SolverMode()
        self.shares = shares(problem, slices)
        self.mode.laid_out(problem, self.shares)
        sensing = CarrierSensing.of(case.network, interfaces(case.network))
        self.world = World(case.network, problem, sensing)
        technology = {link.id: link.technology for link in case.network.links}
        estimator = LinkEstimator(technology).after(configured_samples(case.network, 0.0))
        self.state = LoopState(case.network, problem, estimator, ExternalAirtime(sensing), Demands())
        self.now_s = 0.0

    def next_measurements(self) -> Measurements:
        self.now_s += SLOT_S
        allocation = self.state.allocation
        rates = np.zeros(self.world.problem.layout.path_count) if allocation is None else allocation.path_rates_mbps
        return self.world.measure(rates, self.now_s)

    def warm(self, count: int) -> Iterator[float]:
        for _ in range(count):
            measured = self.next_measurements()
            begun_s = time.process_time()
            self.state = slot(self.state, measured, self.now_s, allocate=self.mode.allocate).state
            yield 1000 * (time.process_time() - begun_s)

    def cold(self, count: int) -> Iterator[float]:
        for _ in range(count):
            measured = self.next_measurements()
            start = replace(self.state, allocation=None, spare=None)
            mode = SolverMode()
            mode.laid_out(self.world.problem, self.shares)
            begun_s = time.process_time()
            slot(start, measured, self.now_s, allocate=mode.allocate)
            yield 1000 * (time.process_time() - begun_s)

    def state_mib(self) -> float:
        """Memory that one more state takes: all that isn't shared with the layout."""
        measured = self.next_measurements()
        tracemalloc.start()
        remaining = slot(self.state, measured, self.now_s).state
        size, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        del remaining
        return size / 2**20


def shares(problem: RateProblem, slices: int) -> SliceShares | None:
    """Every second flow in a slice, each with half of the airtime that as many flows would have."""
    if not slices:
        return None
    layout = problem.layout
    slice_of = np.array([flow // 2 % slices if flow % 2 else slices for flow in range(layout.flow_count)])
    share = np.full((slices, layout.link_count), 0.25 / slices)
    return SliceShares(tuple(f"slice {index}" for index in range(slices)), slice_of, share)


def p99(times_ms: list[float]) -> float:
    return float(np.percentile(times_ms, 99))


def row(case: Case, slices: int, runs: int) -> str:
    run = Run(case, slices)
    list(run.warm(SETTLE))
    warm, cold = list(run.warm(runs)), list(run.cold(runs))
    layout = run.world.problem.layout
    shape = f"{layout.flow_count:>5} {layout.path_count:>5} {layout.link_count:>5}"
    times = " ".join(f"{ms:>7.1f}" for times_ms in (cold, warm) for ms in (statistics.median(times_ms), p99(times_ms)))
    return f"{case.name:<24} {shape} {times} {case.target_ms:>8.0f} {run.state_mib():>9.2f}"


def profiled(case: Case, slices: int) -> None:
    run = Run(case, slices)
    list(run.warm(SETTLE))
    profile = cProfile.Profile()
    for _ in range(RUNS):
        measured = run.next_measurements()
        profile.enable()
        run.state = slot(run.state, measured, run.now_s, allocate=run.mode.allocate).state
        profile.disable()
    print(f"{case.name}: {RUNS} warm slots")
    pstats.Stats(profile).sort_stats("cumulative").print_stats(25)


def chosen(words: Iterable[str], flows: int | None = None) -> Iterator[Case]:
    """The cases that one of the words names; all without words. With as many flows, if that is given."""
    words = tuple(words)
    for case in cases():
        name = f"{'small' if case.flows < 1000 else 'large'} {case.name}"
        if not words or any(word in name for word in words):
            yield case if flows is None else replace(case, flows=flows)


def filters_row(runs: int, links: int = 8_000) -> str:
    """What the filters of all links take, compiled and in numpy, in turn: the same samples, noise of 5 %."""
    rng, settings = np.random.default_rng(1), FilterSettings()
    size = links * len(Source)
    index, level = np.arange(0, size, len(Source)), rng.uniform(5.0, 500.0, links)
    compiled, took_ms = filter_bank.kernel(), dict[bool, list[float]]({True: [], False: []})
    if compiled is None:
        return "the compiled kernel isn't built"
    bank = FilterBank.empty(size, settings)
    for tick in range(SETTLE + runs):
        values, times_s = level * np.exp(0.05 * rng.standard_normal(links)), np.full(links, tick * SLOT_S)
        for is_compiled, kernel in ((True, compiled), (False, None)):
            filter_bank.kernel = lambda kernel=kernel: kernel
            begun_s = time.process_time()
            after = bank.updated(index, values, times_s, settings)
            if tick >= SETTLE:
                took_ms[is_compiled].append(1000 * (time.process_time() - begun_s))
        bank = after
    medians = {which: statistics.median(times) for which, times in took_ms.items()}
    times = ", ".join(
        f"{name} {medians[which]:.2f} ms (p99 {p99(took_ms[which]):.2f})"
        for which, name in ((True, "compiled"), (False, "numpy"))
    )
    return f"{links} samples of {size} filters: {times}, ratio {medians[False] / medians[True]:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-v", action="store_true", help="say which part took how long")
    parser.add_argument("--slices", type=int, default=0, metavar="N")
    parser.add_argument("--flows", type=int, metavar="N", help="as many flows in every case (default: the case's own)")
    parser.add_argument("--runs", type=int, default=RUNS, metavar="N", help="slots of each kind")
    parser.add_argument("--filters", action="store_true", help="the filters of capacities alone")
    parser.add_argument("words", nargs="*", metavar="WORD")
    args = parser.parse_args()
    if args.filters:
        print(filters_row(args.runs))
        return
    if args.v:
        for case in chosen(args.words or ["large"], args.flows):
            profiled(case, args.slices)
        return
    print(f"CPU time, median and 99th percentile of {args.runs} slots, ms; state: MiB")
    print(
        f"{'case':<24} {'flows':>5} {'paths':>5} {'links':>5} {'cold':>7} {'p99':>7} {'warm':>7} {'p99':>7} "
        f"{'target<=':>8} {'state MiB':>9}"
    )
    for case in chosen(args.words, args.flows):
        print(row(case, args.slices, args.runs), flush=True)


if __name__ == "__main__":
    main()

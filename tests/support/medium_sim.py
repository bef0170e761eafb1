"""A fluid model of a network under the closed loop: true capacities and domains, traffic that is not ours, noisy
instruments.

Independent of the code under test: airtime is summed from the definition (a dense matrix of domains), access to a full
medium is shared in proportion to what is offered, and every instrument adds noise of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from hyroads.controller.core.closed_loop import LoopSettings, LoopState, Measurements, slot
from hyroads.controller.core.demand import Demands, Offer
from hyroads.controller.core.estimate.busy_time import CarrierSensing, ExternalAirtime
from hyroads.controller.core.estimate.link_estimate import LinkEstimator, Sample, Source
from hyroads.controller.core.network import Network
from hyroads.controller.core.rates import Allocation, RateProblem, solve

SLOT_S = 0.1


def whole_domains(network: Network) -> CarrierSensing:
    """Observers are links (id, technology), each with the busy time of its whole domain."""
    index = np.arange(len(network.links), dtype=np.intp)
    names = tuple((link.id, link.technology) for link in network.links)
    return CarrierSensing(names, network.interference.contention_matrix(), np.column_stack([index, index]))


@dataclass
class Truth:
    """What is so. ``external`` offers airtime at links: link index -> share of time; ``demand`` of flows in Mb/s
    (absent: any).
    """

    capacity_mbps: np.ndarray
    external: dict[int, float] = field(default_factory=dict)
    demand_mbps: dict[str, float] = field(default_factory=dict)


@dataclass
class Noise:
    """Standard deviations, relative for capacities, absolute for busy shares, relative for measured rates."""

    capacity: float = 0.0
    busy: float = 0.0
    rate: float = 0.0


@dataclass
class Outcome:
    """A slot as it was: what paths carried, what external traffic got per link, and what the controller decided."""

    carried_mbps: np.ndarray
    external: dict[int, float]
    allocation: Allocation
    pushed: int


class Simulation:
    """A network, its controller, and the time between them."""

    def __init__(self, network: Network, problem: RateProblem, truth: Truth, noise: Noise, seed: int) -> None:
        self.network = network
        self.truth = truth
        self.noise = noise
        self.rng = np.random.default_rng(seed)
        self.conflicts = network.interference.contention_matrix().toarray()
        self.now_s = 0.0
        sensing = whole_domains(network)
        technology = {link.id: link.technology for link in network.links}
        self.state = LoopState(
            network, problem, LinkEstimator(technology), ExternalAirtime(sensing), Demands(), LoopSettings()
        )
        self.rates = np.zeros(problem.layout.path_count)

    @property
    def problem(self) -> RateProblem:
        return self.state.problem

    def use(self, problem: RateProblem) -> None:
        """Other flows or paths; flows that stay keep their rates, new ones start with none."""
        old = dict(zip(self._names(), self.rates.tolist(), strict=True))
        self.state = self.state.with_problem(problem)
        self.rates = np.array([old.get(name, 0.0) for name in self._names()])

    def _names(self) -> list[tuple[str, tuple[int, ...]]]:
        layout = self.problem.layout
        return [(layout.flow_ids[f], path) for f, path in zip(layout.path_flow.tolist(), layout.paths, strict=True)]

    def run(self, slots: int) -> list[Outcome]:
        return [self.step() for _ in range(slots)]

    def step(self) -> Outcome:
        """A slot of traffic at the rates in force, its measurements, and the new rates."""
        allowed = self.rates.copy()
        carried, external, busy = self.carry(allowed)
        self.now_s += SLOT_S
        result = slot(self.state, self.measure(allowed, carried, busy), self.now_s)
        self.state = result.state
        layout = self.problem.layout
        for flow, where in zip(layout.flow_ids, layout.path_slices(), strict=True):
            self.rates[where] = self.state.pushed[flow]
        return Outcome(carried, external, result.allocation, len(result.push))

    def carry(self, allowed: np.ndarray) -> tuple[np.ndarray, dict[int, float], np.ndarray]:
        """What the medium lets through: path rates, external airtime, busy share of every link's domain."""
        layout = self.problem.layout
        offered = allowed * self.wanted_share(allowed)
        own = (layout.routing.T @ offered) / self.truth.capacity_mbps
        foreign = np.zeros(layout.link_count)
        for link, share in self.truth.external.items():
            foreign[link] = share
        asked = self.conflicts @ (own + foreign)
        # A domain asked for more than all of its time gives everyone the same part of what they ask.
        part = 1.0 / np.maximum(1.0, asked)
        worst = np.array([min(part[link] for link in path) for path in layout.paths])
        carried = offered * worst
        got = {link: share * float(part[link]) for link, share in self.truth.external.items()}
        for link, share in got.items():
            foreign[link] = share
        return (
            carried,
            got,
            np.minimum(1.0, self.conflicts @ ((layout.routing.T @ carried) / self.truth.capacity_mbps + foreign)),
        )

    def wanted_share(self, allowed: np.ndarray) -> np.ndarray:
        """Share of the allowed rate of every path that its flow has traffic for."""
        layout = self.problem.layout
        totals = layout.flow_rates(allowed)
        wanted = np.array([self.truth.demand_mbps.get(flow, math.inf) for flow in layout.flow_ids])
        share = np.minimum(1.0, np.divide(wanted, totals, out=np.ones_like(totals), where=totals > 0))
        return share[layout.path_flow]

    def measure(self, allowed: np.ndarray, carried: np.ndarray, busy: np.ndarray) -> Measurements:
        layout, noise = self.problem.layout, self.noise
        ids = [link.id for link in self.network.links]
        seen = self.truth.capacity_mbps * np.exp(noise.capacity * self.rng.standard_normal(len(ids)))
        samples = [Sample(i, Source.AGENT, c, self.now_s) for i, c in zip(ids, seen.tolist(), strict=True)]
        shares = np.clip(busy + noise.busy * self.rng.standard_normal(len(busy)), 0.0, 1.0)
        observers = self.state.external.sensing.observers
        rates = carried * np.exp(noise.rate * self.rng.standard_normal(len(carried)))
        paths, offers = {}, {}
        for flow, where in zip(layout.flow_ids, layout.path_slices(), strict=True):
            paths |= {(flow, i): float(rate) for i, rate in enumerate(rates[where])}
            limit = float(allowed[where].sum())
            wanted = self.truth.demand_mbps.get(flow, math.inf)
            offers[flow] = Offer(min(limit, wanted), limit, backlogged=wanted > limit)
        return Measurements(samples, dict(zip(observers, shares.tolist(), strict=True)), paths, offers)

    def optimum(self) -> Allocation:
        """The exact optimum under the truth: true capacities, external airtime and demands."""
        problem = self.problem
        foreign = np.zeros(problem.layout.link_count)
        for link, share in self.truth.external.items():
            foreign[link] = share
        demand = [self.truth.demand_mbps.get(flow, math.inf) for flow in problem.layout.flow_ids]
        true = replace(
            problem,
            capacity_mbps=self.truth.capacity_mbps,
            external=np.minimum(1.0, self.conflicts @ foreign),
            demand_mbps=np.array(demand),
        )
        return solve(true)


def flow_rates(simulation: Simulation, outcome: Outcome) -> Mapping[str, float]:
    """Carried rates by flow."""
    layout = simulation.problem.layout
    return dict(zip(layout.flow_ids, layout.flow_rates(outcome.carried_mbps).tolist(), strict=True))

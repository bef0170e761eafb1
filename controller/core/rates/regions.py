"""Rates of flows that cross regions: each region solves for its own links, and tells the others one number a flow.

A flow over several regions is a chain of segments, one per region. Its rate is that of its slowest segment. The joint
optimum is a split of each crossing flow's weight: with weights w_r that sum to w and equal rates x in all regions, the
conditions w_r U'(x) = q_r of the regions add up to w U'(x) = sum of q_r, the condition of the joint problem
(decomposition by resources: Palomar and Chiang, "A tutorial on decomposition methods for network utility
maximization", IEEE JSAC 24(8), 2006). So each round

- every region *offers*: it solves with its weights, as if the others had room;
- the offers are exchanged; a region that offered less gets a greater part of the weight:
  w_r is in proportion to w_r (1 + x_r)^-g, the shares of a flow summing to 1;
- every region *grants*: it solves with crossing flows capped at the least offer of the others, so that nothing is kept
  for what cannot come.

The solver is that of one region (``solver.solve``): weights and demands are all that changes. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from .allocation import Allocation
from .problem import FloatArray, RateProblem
from .solver import solve

STEP = 1.0
"""The exponent g: how far weights move in a round."""
LEAST_SHARE = 1e-3
"""No region's share of a weight falls below this, so that it can come back."""

Offers = Mapping[str, float]
"""By crossing flow: Mb/s."""


@dataclass(frozen=True)
class Region:
    """One region's problem, and what it knows of the flows that cross it.

    ``problem`` has the flows of this region: local ones, and the segments of ``crossing`` ones (ids as in the layout).
    ``share`` is this region's part (0 to 1) of a crossing flow's weight.
    """

    problem: RateProblem
    crossing: tuple[str, ...]
    share: Mapping[str, float]
    offered: Allocation | None = field(default=None, repr=False)
    granted: Allocation | None = field(default=None, repr=False)

    @classmethod
    def of(cls, problem: RateProblem, regions_of: Mapping[str, int]) -> Region:
        """At the start; ``regions_of`` says over how many regions each crossing flow goes, weights begin equal."""
        return cls(problem, tuple(regions_of), {flow: 1.0 / count for flow, count in regions_of.items()})

    def offer(self) -> tuple[Region, Offers]:
        """What the region would carry of each crossing flow if no other region kept it from that."""
        found = solve(self._weighted(), self.offered)
        return replace(self, offered=found), self._crossing_rates(found)

    def grant(self, others: Offers) -> tuple[Region, Offers]:
        """What it carries, given the least offer of the other regions; a flow that is missing there is not capped."""
        weighted = self._weighted()
        demand = weighted.demand_mbps.copy()
        for flow, index in self._index.items():
            demand[index] = min(demand[index], others.get(flow, np.inf))
        found = solve(weighted.changed(demand_mbps=demand), self.granted)
        return replace(self, granted=found), self._crossing_rates(found)

    def moved(self, own: Offers, others: Mapping[str, Mapping[str, tuple[float, float]]]) -> Region:
        """After offers were exchanged: ``others`` has by flow and region that region's (share, offer in Mb/s).

        Every region that is told the same finds the same shares, which sum to 1.
        """
        share = dict(self.share)
        for flow, told in others.items():
            mine = pull(share[flow], own[flow])
            rest = sum(pull(*each) for each in told.values())
            share[flow] = max(LEAST_SHARE, mine / (mine + rest))
        return replace(self, share=share)

    def _weighted(self) -> RateProblem:
        weight = self.problem.utilities.weight.copy()
        for flow, index in self._index.items():
            weight[index] *= self.share[flow]
        return replace(self.problem, utilities=replace(self.problem.utilities, weight=weight))

    @property
    def _index(self) -> Mapping[str, int]:
        number = {flow: i for i, flow in enumerate(self.problem.layout.flow_ids)}
        return {flow: number[flow] for flow in self.crossing}

    def _crossing_rates(self, found: Allocation) -> dict[str, float]:
        return {flow: float(found.flow_rates_mbps[index]) for flow, index in self._index.items()}


def pull(share: float, offer_mbps: float) -> float:
    """How much a region with this share of a flow's weight draws of it: the more, the less it offers."""
    return share * math.pow(1.0 + offer_mbps, -STEP)


def least(offers: Mapping[str, Offers], but: str | None = None) -> dict[str, float]:
    """By flow the least offer of all regions, or of all but one."""
    found: dict[str, float] = {}
    for region, told in offers.items():
        if region != but:
            for flow, rate_mbps in told.items():
                found[flow] = min(rate_mbps, found.get(flow, np.inf))
    return found


def round_of(regions: Mapping[str, Region]) -> tuple[dict[str, Region], dict[str, float]]:
    """One round of all regions, each with what it is told of the others; also the rates of crossing flows, Mb/s."""
    offered = {name: region.offer() for name, region in regions.items()}
    offers = {name: told for name, (_, told) in offered.items()}
    granted = {name: region.grant(least(offers, but=name)) for name, (region, _) in offered.items()}
    after = {name: region.moved(offers[name], _told(name, offered, offers)) for name, (region, _) in granted.items()}
    return after, least({name: told for name, (_, told) in granted.items()})


def _told(
    name: str, regions: Mapping[str, tuple[Region, Offers]], offers: Mapping[str, Offers]
) -> dict[str, dict[str, tuple[float, float]]]:
    """What the others say to one region: by flow and region (share, offer)."""
    found: dict[str, dict[str, tuple[float, float]]] = {flow: {} for flow in offers[name]}
    for other, (region, _) in regions.items():
        if other != name:
            for flow in region.crossing:
                if flow in found:
                    found[flow][other] = (region.share[flow], offers[other][flow])
    return found


def utility(regions: Mapping[str, Region], crossing_mbps: Mapping[str, float]) -> float:
    """The utility of all flows with the rates granted; a crossing flow counts once, with its whole weight."""
    total = 0.0
    seen: set[str] = set()
    for region in regions.values():
        if region.granted is None:
            continue
        problem, rates = region.problem, region.granted.flow_rates_mbps.copy()
        once = np.ones(len(rates))
        for flow, index in region._index.items():
            rates[index] = crossing_mbps[flow]
            once[index] = flow not in seen
            seen.add(flow)
        total += float((problem.utilities.values(rates) * once).sum())
    return total


def total_rates(region: Region) -> FloatArray:
    """The rates granted in a region, in the order of its flows, Mb/s."""
    return np.zeros(0) if region.granted is None else region.granted.flow_rates_mbps

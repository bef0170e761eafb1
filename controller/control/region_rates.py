"""Rates of flows that cross regions, as one region's controller finds them with what its neighbours tell it. Pure.

The algorithm is that of ``core.rates.regions``, without a common clock. Each round a region *offers*: it solves its own
problem as if the others had room. It tells both neighbours of a flow the least offer and the sum of the pulls on their
weight, its own and what it heard from the other side. In each slot it solves with its share of the weight, capped at
the least offer of the others. At rest all offers of a flow are equal and the shares sum to 1, whatever the delays.

The region of a flow's source knows what the flow wants. The others see no more than what the regions before let pass,
so they offer by the demand that they are told, and not by the one they measure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hyroads.controller.core.closed_loop import Allocate
from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.core.rates import Allocation, RateProblem, solve
from hyroads.controller.core.rates.regions import LEAST_SHARE, pull

ROUND_S = 0.5
HOLD_S = 10.0
"""What a neighbour said counts for so long; its agents go on with their rates while its controller is away."""
LISTEN_S = 2.0
"""From its start on a region only listens for so long: until it has seen what its flows want, its offers are no use."""
LATE_S = 1.0
"""A message before one that was heard within this time is late; after it, the neighbour has counted anew."""
MAX_FLOWS, MAX_ID, MAX_VERSION, MAX_MBPS = 10_000, 255, 64, 1e6
FIRST_SHARE = 0.5
_LIMITED = 1e-3


class RegionRatesError(HyroadsError):
    """A neighbour tells rates that can't be."""


@dataclass(frozen=True, slots=True)
class Crossing:
    """A flow over regions as one of them sees it.

    ``before`` and ``after`` are the neighbours on the way, None at an end of it; ``version`` is the same in all regions
    that know the same flow; ``name_before`` is its id in the region before.
    """

    flow: str
    version: str
    before: str | None
    after: str | None
    name_before: str = ""

    def name_with(self, neighbour: str) -> str:
        """What both call it between them: its id in the region that it comes from."""
        return self.flow if neighbour == self.after else self.name_before


@dataclass(frozen=True, slots=True)
class Side:
    """What the regions on one side of a border say of a flow together.

    ``offer_mbps`` is the least offer (inf: the flow wants less than they have), ``pull`` the sum of their shares of the
    weight, each over 1 + offer, ``demand_mbps`` what the flow wants, told downstream.
    """

    version: str
    offer_mbps: float = math.inf
    pull: float = 0.0
    demand_mbps: float = math.inf

    def document(self) -> list[Any]:
        """As it is sent; null stands for no bound."""
        offer, demand = (None if math.isinf(rate) else round(rate, 4) for rate in (self.offer_mbps, self.demand_mbps))
        return [self.version, offer, float(f"{self.pull:.6g}"), demand]


def parse_rates(document: Mapping[str, Any]) -> dict[str, Side]:
    """What a neighbour tells, checked: ``{"flows": {id: [version, offer, pull, demand]}}``; RegionRatesError."""
    flows = document.get("flows")
    if not isinstance(flows, dict) or len(flows) > MAX_FLOWS:
        raise RegionRatesError(f"expected rates of flows, {MAX_FLOWS} at most")
    found = {}
    for flow, told in flows.items():
        match told:
            case [str(version), offer, pulled, demand] if len(flow) <= MAX_ID and len(version) <= MAX_VERSION:
                found[flow] = Side(version, _number(offer, flow, MAX_MBPS), _number(pulled, flow, 1e3, none=False),
                                   _number(demand, flow, MAX_MBPS))  # fmt: skip
            case _:
                raise RegionRatesError(f"rates of {flow[:64]!r}: expected version, offer, pull and demand")
    return found


def _number(value: object, flow: str, most: float, *, none: bool = True) -> float:
    if value is None and none:
        return math.inf
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= most:
        return float(value)
    raise RegionRatesError(f"rates of {flow[:64]!r}: expected a number from 0 to {most:g}")


@dataclass(frozen=True, slots=True)
class _Heard:
    seq: int
    at_s: float
    sides: Mapping[str, Side]


@dataclass(eq=False)
class RegionRates:
    """The exchange as the region ``name`` takes part in it. Times are arguments."""

    name: str
    crossing: Mapping[str, Crossing] = field(default_factory=dict)
    shares: Mapping[str, float] = field(default_factory=dict)
    offers_mbps: Mapping[str, float] = field(default_factory=dict)
    seq: int = 0
    _heard: dict[str, _Heard] = field(default_factory=dict)
    _fresh: set[str] = field(default_factory=set)
    _caps_mbps: Mapping[str, float] = field(default_factory=dict)
    _problem: RateProblem | None = None
    _offered: Allocation | None = None
    _began_s: float | None = None

    def use(self, crossing: Mapping[str, Crossing]) -> None:
        """These flows cross from now on; one that is the same as before keeps its share."""
        known = self.crossing
        self.shares = {
            flow: self.shares[flow] if known.get(flow) == each else FIRST_SHARE for flow, each in crossing.items()
        }
        self._caps_mbps = {flow: cap for flow, cap in self._caps_mbps.items() if known.get(flow) == crossing.get(flow)}
        self.crossing = crossing

    def heard(self, neighbour: str, seq: int, sides: Mapping[str, Side], now_s: float) -> bool:
        """Take what a neighbour tells; False if it came late."""
        last = self._heard.get(neighbour)
        if last is not None and seq <= last.seq and now_s < last.at_s + LATE_S:
            return False
        self._heard[neighbour] = _Heard(seq, now_s, sides)
        self._fresh.add(neighbour)
        self._caps_mbps = self._caps(now_s)
        return True

    def round(self, now_s: float) -> dict[str, dict[str, Side]]:
        """Offer, move shares by what is new, and say what each neighbour is to be told: by neighbour and flow. Nothing
        within ``LISTEN_S`` of the first round.
        """
        self.seq += 1
        self._began_s = now_s if self._began_s is None else self._began_s
        self._caps_mbps = self._caps(now_s)
        problem = self._problem
        if problem is None or not self.crossing:
            self._fresh.clear()
            return {}
        offers, demands = self._offer(problem, now_s)
        self._move(offers, now_s)
        self.offers_mbps = offers
        if now_s < self._began_s + LISTEN_S:
            return {}
        told: dict[str, dict[str, Side]] = {}
        for flow, offer_mbps in offers.items():
            each = self.crossing[flow]
            own = pull(self.shares[flow], offer_mbps) if math.isfinite(offer_mbps) else 0.0
            for neighbour, other in ((each.before, each.after), (each.after, each.before)):
                if neighbour is not None:
                    beyond = self._side(each, other, now_s) or Side(each.version)
                    side = Side(each.version, min(offer_mbps, beyond.offer_mbps), own + beyond.pull)
                    if neighbour == each.after:
                        side = replace(side, demand_mbps=demands[flow])
                    name, of = each.name_with(neighbour), told.setdefault(neighbour, {})
                    # A flow that moves to another node at the border is here twice for a moment.
                    if name not in of or of[name].offer_mbps < side.offer_mbps:
                        of[name] = side
        return told

    def allocate(self, allocate: Allocate, problem: RateProblem, last: Allocation | None) -> Allocation:
        """The rates of a slot: the problem with own shares of weights, crossing flows capped at the others' offers."""
        self._problem = problem
        if not self.crossing:
            return allocate(problem, last)
        index = self._index(problem)
        demand = problem.demand_mbps.copy()
        for flow, position in index.items():
            demand[position] = min(demand[position], self._caps_mbps.get(flow, math.inf))
        return allocate(self._weighted(problem, index).changed(demand_mbps=demand), last)

    def _offer(self, problem: RateProblem, now_s: float) -> tuple[dict[str, float], dict[str, float]]:
        """By flow what this region would give, inf where the flow wants no more; and what the flow wants."""
        index, demand = self._index(problem), problem.demand_mbps.copy()
        # Flows whose rates somebody else has fixed have no demand here, and are not traded.
        index = {flow: i for flow, i in index.items() if demand[i] > 0 or self.crossing[flow].before is not None}
        for flow, position in index.items():
            each = self.crossing[flow]
            if each.before is not None:
                side = self._side(each, each.before, now_s)
                demand[position] = math.inf if side is None else side.demand_mbps
        warm = self._offered
        if warm is not None and warm.layout is not problem.layout:
            warm = None
        self._offered = found = solve(self._weighted(problem, index).changed(demand_mbps=demand), warm)
        offers, demands = {}, {}
        for flow, position in index.items():
            rate_mbps, wanted_mbps = float(found.flow_rates_mbps[position]), float(demand[position])
            offers[flow] = rate_mbps if rate_mbps < wanted_mbps * (1 - _LIMITED) else math.inf
            demands[flow] = wanted_mbps
        return offers, demands

    def _move(self, offers: Mapping[str, float], now_s: float) -> None:
        """Shares of the weight, once for each message that came."""
        shares = dict(self.shares)
        for flow, offer_mbps in offers.items():
            each = self.crossing[flow]
            if self._fresh.isdisjoint((each.before, each.after)) or math.isinf(offer_mbps):
                continue
            rest = sum(side.pull for side in self._sides(each, now_s))
            mine = pull(shares[flow], offer_mbps)
            if rest > 0:
                shares[flow] = max(LEAST_SHARE, mine / (mine + rest))
        self.shares = shares
        self._fresh.clear()

    def _caps(self, now_s: float) -> dict[str, float]:
        return {
            flow: min((side.offer_mbps for side in self._sides(each, now_s)), default=math.inf)
            for flow, each in self.crossing.items()
        }

    def _sides(self, each: Crossing, now_s: float) -> list[Side]:
        """What neighbours on both sides say of a flow, as far as it counts."""
        sides = (self._side(each, neighbour, now_s) for neighbour in (each.before, each.after))
        return [side for side in sides if side is not None]

    def _side(self, each: Crossing, neighbour: str | None, now_s: float) -> Side | None:
        """What a neighbour said of a flow, if that still counts and is of the same flow."""
        heard = self._heard.get(neighbour) if neighbour is not None else None
        if heard is None or neighbour is None or now_s > heard.at_s + HOLD_S:
            return None
        side = heard.sides.get(each.name_with(neighbour))
        return side if side is not None and side.version == each.version else None

    def _weighted(self, problem: RateProblem, index: Mapping[str, int]) -> RateProblem:
        weight = problem.utilities.weight.copy()
        for flow, position in index.items():
            weight[position] *= self.shares[flow]
        return replace(problem, utilities=replace(problem.utilities, weight=weight))

    def _index(self, problem: RateProblem) -> dict[str, int]:
        # The layout may be older than the flows, for one plan.
        return {flow: i for i, flow in enumerate(problem.layout.flow_ids) if flow in self.crossing}

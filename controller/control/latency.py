"""The rates of flows with ``policy: latency`` (docs/explanation/latency-and-privacy.md, "Live"). Pure.

Each slot the measured rates of their paths are noted, and one path's trace is fitted; once a second each flow decides
which technology, or how much of each, gives the smallest mean delay at its load (``core.latency``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hyroads.controller.core.addressing import PathName
from hyroads.controller.core.estimate.link_estimate import Source
from hyroads.controller.core.latency.fit import RateFit, RateTrace, scaled
from hyroads.controller.core.latency.selection import Choice, damped, pace, select
from hyroads.controller.core.latency.two_state_queue import TwoStateQueue
from hyroads.controller.core.network import Network, Policy
from hyroads.controller.core.rates import RateProblem
from hyroads.controller.core.rates.problem import FloatArray
from hyroads.controller.core.tree import path_rate

from .rate_override import Fixed, RateOverride, SlotView
from .routes import FlowRoute, Routes

DECIDE_EVERY_S = 1.0
LOAD_TAU_S = 2.0
# What a flow may send more than it did, before the others have to make room.
HEADROOM = 1.25
LEAST_MBPS = 0.1
# Samples older than this say nothing of a rate that alternates.
SAMPLE_AGE_S = 1.0
# Rates that differ by less are not worth a message.
SAME_PACE = 0.05


@dataclass(frozen=True, slots=True)
class _Paces:
    """A :class:`Pace` by path."""

    rates_mbps: Mapping[PathName, float]
    reserved_mbps: Mapping[PathName, float]


@dataclass
class _Flow:
    """What is remembered of a flow."""

    paths: tuple[PathName, ...] = ()
    load_mbps: float = 0.0
    sent_mbps: float = 0.0
    hungry: bool = False
    hunger: float = 0.0
    """Share of the time that packets waited, of late: a burst alone is no load."""
    heard_s: float | None = None
    frame_bytes: float = 1500.0
    fair_mbps: float = math.inf
    choice: Choice | None = None
    decided_s: float = -math.inf
    pace: _Paces | None = None
    shown: dict[str, Any] = field(default_factory=dict)


class Latency(RateOverride):
    """The latency flows of a controller. A rate that alternates changes all the time: decisions follow statistics, not
    single changes.
    """

    def __init__(self) -> None:
        self._flows: dict[str, _Flow] = {}
        self._traces: dict[PathName, RateTrace] = {}
        self._raw: dict[str, tuple[float, float]] = {}
        self._all: Routes = {}
        self._mine: Routes = {}

    def decide(self, view: SlotView) -> Mapping[str, Fixed]:
        """The rates of all latency flows whose paths are known to carry something."""
        routes = self._routes_of(view.routes)
        self._flows = {flow: self._flows.get(flow, _Flow()) for flow in routes}
        if not routes:
            self._traces, self._raw = {}, {}
            return {}
        paths = {path for route in routes.values() for path in route.paths}
        self._traces = {path: self._traces.get(path) or RateTrace() for path in paths}
        now = _Now(view)
        self._sample(view, now)
        self._refit_one(view.now_s)
        now.count({flow: (known.pace.reserved_mbps, known.hungry) for flow, known in self._flows.items() if known.pace})
        found = {flow: self._fixed(view, now, route) for flow, route in routes.items()}
        return {flow: fixed for flow, fixed in found.items() if fixed is not None}

    def _routes_of(self, routes: Routes) -> Routes:
        """The routes of latency flows among all. From slot to slot these are mostly the same."""
        if routes is not self._all:
            mine = ((flow, route) for flow, route in routes.items() if route.spec.policy is Policy.LATENCY)
            self._all, self._mine = routes, {flow: route for flow, route in mine if route.reason is None}
        return self._mine

    def document(self, flow: str) -> dict[str, Any] | None:
        """The part ``latency`` of a flow over REST."""
        known = self._flows.get(flow)
        return known.shown if known is not None and known.shown else None

    def _sample(self, view: SlotView, now: _Now) -> None:
        """Notes the rate of every path of which a link was measured."""
        index = view.network.link_index
        fresh = {}
        for sample in view.samples:
            if sample.source is not Source.CONFIGURED and sample.link in index:
                fresh[sample.link] = (sample.capacity_mbps, view.now_s)
        self._raw |= fresh
        capacities = now.capacity_mbps.copy()
        for link, (mbps, time_s) in self._raw.items():
            if view.now_s - time_s <= SAMPLE_AGE_S:
                capacities[index[link]] = mbps
        for path, trace in self._traces.items():
            if not fresh.keys().isdisjoint(path):
                trace.add(view.now_s, _rate(view.network, capacities, path))

    def _refit_one(self, now_s: float) -> None:
        """The trace that waits for longest, so that a slot never pays for more than one."""
        trace = min(self._traces.values(), key=lambda each: each.fitted_s)
        if now_s - trace.fitted_s >= DECIDE_EVERY_S:
            trace.refit(now_s)

    def _listen(self, view: SlotView, flow: str, known: _Flow) -> None:
        """What the flow sends, averaged."""
        offer = view.agents.offers.get(flow)
        if offer is None:
            return
        elapsed_s = view.now_s - known.heard_s if known.heard_s is not None else math.inf
        weight = -math.expm1(-elapsed_s / LOAD_TAU_S)
        known.load_mbps += weight * (offer.sent_mbps - known.load_mbps)
        known.hunger += weight * (offer.backlogged - known.hunger)
        known.sent_mbps, known.hungry, known.heard_s = offer.sent_mbps, offer.backlogged, view.now_s
        known.frame_bytes = view.agents.frame_bytes.get(flow, known.frame_bytes)

    def _fixed(self, view: SlotView, now: _Now, route: FlowRoute) -> Fixed | None:
        """The rates of one flow; None, and it is the solver's, while the rate of none of its paths is known."""
        known = self._flows[route.spec.id]
        self._listen(view, route.spec.id, known)
        queues = {path: queue for path in route.paths if (queue := self._queue(view.network, now, path)) is not None}
        if not queues:
            known.shown, known.choice, known.pace = {}, None, None
            return None
        moved = known.paths != route.paths or known.choice is None or not known.choice.shares.keys() <= queues.keys()
        if moved or view.now_s - known.decided_s >= DECIDE_EVERY_S:
            self._decide(view, now, route, queues)
        return self._paced(now, route, known, queues)

    def _decide(self, view: SlotView, now: _Now, route: FlowRoute, queues: Mapping[PathName, TwoStateQueue]) -> None:
        known = self._flows[route.spec.id]
        before = known.choice.shares if known.choice is not None and known.paths == route.paths else None
        left = {path: scaled(queue, max(now.left(path), LEAST_MBPS / queue.muhat)) for path, queue in queues.items()}
        load_mbps = known.load_mbps * (HEADROOM if known.hunger > 0.5 else 1.0)
        labels = {path: now.label(path) for path in left}
        known.choice = select(left, load_mbps, known.frame_bytes, labels=labels, before=before)
        known.paths, known.decided_s = route.paths, view.now_s
        fits = {path: self._traces[path].fit for path in queues}
        known.shown = {
            **known.choice.document(),
            "paths": [_path_document(path, queues[path], fits[path], known.choice.shares[path]) for path in queues],
        }

    def _paced(
        self, now: _Now, route: FlowRoute, known: _Flow, queues: Mapping[PathName, TwoStateQueue]
    ) -> Fixed | None:
        assert known.choice is not None  # noqa: S101 - decided above
        shares = known.choice.shares
        paths = [path for path in shares if shares[path] > 0]
        need = math.inf if known.hungry else HEADROOM * max(known.load_mbps, known.sent_mbps) + LEAST_MBPS
        known.fair_mbps = damped(known.fair_mbps, max(LEAST_MBPS, now.fair_mbps(route, shares)))
        wanted = pace(
            [shares[path] for path in paths],
            [max(queues[path].mu_h, queues[path].mu_l) for path in paths],
            [queues[path].muhat * now.budget(route.spec.id, path) for path in paths],
            need=need,
            fair=known.fair_mbps,
        )
        rates: Mapping[PathName, float] = dict(zip(paths, wanted.rates_mbps, strict=True))
        if known.pace is not None and _is_like(known.pace.rates_mbps, rates):
            rates = known.pace.rates_mbps
        known.pace = _Paces(rates, dict(zip(paths, wanted.reserved_mbps, strict=True)))
        return Fixed(known.pace.rates_mbps, reserved_mbps=known.pace.reserved_mbps)

    def _queue(self, network: Network, now: _Now, path: PathName) -> TwoStateQueue | None:
        """The rate of a path in Mb/s: as fitted, or constant while there is too little to fit; None if it is down."""
        estimate_mbps = _rate(network, now.capacity_mbps, path)
        if estimate_mbps <= 0:
            return None
        fit = self._traces[path].fit
        return fit.queue if fit is not None else TwoStateQueue.constant(estimate_mbps)


class _Now:
    """Capacities, external airtime and prices of this slot."""

    def __init__(self, view: SlotView) -> None:
        network = view.network
        self._index = network.link_index
        self._network = network
        self._last = view.last
        problem = view.last.state.problem if view.last is not None else None
        planned = np.array([link.capacity_mbps for link in network.links], dtype=float)
        # A link that is down has capacity 0 in the network at once, whatever was measured of it.
        self.capacity_mbps: FloatArray = planned if problem is None else np.where(planned > 0, problem.capacity_mbps, 0)
        self._problem: RateProblem | None = problem
        self._rivals: Mapping[str, tuple[FloatArray, bool]] = {}

    def label(self, path: PathName) -> str:
        """What a path is called: the technologies that it uses."""
        return "+".join(dict.fromkeys(self._network.links[link].technology for link in self._links(path)))

    def left(self, path: PathName) -> float:
        """Share of time that traffic which is not ours leaves to a path."""
        return 1.0 if self._problem is None else 1.0 - float(self._problem.external[self._links(path)].max())

    def count(self, flows: Mapping[str, tuple[Mapping[PathName, float], bool]]) -> None:
        """What latency flows have by path, Mb/s, and whether they want more."""
        self._rivals = {flow: (self._load(reserved), hungry) for flow, (reserved, hungry) in flows.items()}

    def budget(self, flow: str, path: PathName) -> float:
        """Share of time that a flow may use on a path beside other latency flows: an equal part, or what is left."""
        if self._problem is None:
            return 1.0
        shares = []
        for link in self._links(path):
            rivals = (rival for other, rival in self._rivals.items() if other != flow)
            there = [(float(load[link]), wants_more) for load, wants_more in rivals if load[link] > 0]
            modest = sum(load for load, wants_more in there if not wants_more)
            hungry = sum(1 for _, wants_more in there if wants_more)
            free = float(self._problem.budget[link])
            shares.append(max(free / (1 + len(there)), (free - modest) / (1 + hungry)))
        return min(shares)

    def _load(self, reserved: Mapping[PathName, float]) -> FloatArray:
        """Airtime in the domain of every link, shape L."""
        load = np.zeros(len(self._network.links))
        for path, mbps in reserved.items():
            for link in (self._index[name] for name in path if name in self._index):
                if self.capacity_mbps[link] > 0:
                    load[self._network.interference.domain(link)] += mbps / self.capacity_mbps[link]
        return load

    def fair_mbps(self, route: FlowRoute, shares: Mapping[PathName, float]) -> float:
        """What the flow would get at the prices of airtime that the others pay; inf where nobody wants it."""
        problem, flow = self._problem, route.spec.id
        if problem is None or self._last is None or flow not in problem.layout.row_of:
            return math.inf
        number = problem.layout.row_of[flow]
        where = problem.layout.paths_of(number)
        if where.stop - where.start != len(route.paths):
            return math.inf
        prices = problem.path_prices(self._last.allocation.link_prices)[where]
        used = [(shares.get(path, 0.0), float(q)) for path, q in zip(route.paths, prices, strict=True)]
        price = sum(share * q for share, q in used if share > 0)
        if not price > 0:
            return math.inf
        one = problem.utilities.select(np.array([number], dtype=np.intp))
        return float(one.rates(np.array([price]), np.array([math.inf]))[0])

    def _links(self, path: PathName) -> list[int]:
        return [self._index[link] for link in path]


def _rate(network: Network, capacities: FloatArray, path: PathName) -> float:
    """What a path carries alone, Mb/s."""
    links = tuple(network.link_index[link] for link in path)
    return path_rate(network.interference, capacities, links) if all(capacities[link] > 0 for link in links) else 0.0


def _path_document(path: PathName, queue: TwoStateQueue, fit: RateFit | None, share: float) -> dict[str, Any]:
    return {
        "links": list(path),
        "share": share,
        "mean_mbps": queue.muhat,
        "high_mbps": max(queue.mu_h, queue.mu_l),
        "low_mbps": min(queue.mu_h, queue.mu_l),
        "changes_per_s": queue.alpha if fit is not None and fit.states > 1 else 0.0,
        "samples": fit.samples if fit is not None else 0,
    }


def _is_like(old: Mapping[PathName, float], new: Mapping[PathName, float]) -> bool:
    """Whether the rates in force are as good as the new ones."""
    return old.keys() == new.keys() and all(abs(old[path] - new[path]) <= SAME_PACE * new[path] for path in new)

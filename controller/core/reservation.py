"""Reservations: a minimum rate for a flow, or for every source of a session, admitted only if the airtime exists.

Admission is exact: a linear program asks whether *some* allocation holds all minimums at once (``rates.minimum``), with
sessions counted as the airtime that their trees occupy in every domain. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from scipy import sparse

from hyroads.controller.core.rates.minimum import bounded_rate
from hyroads.controller.core.rates.problem import RateProblem

from .errors import PlanningError
from .interface_graph import FloatArray

_TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class SessionLoad:
    """``rate_mbps`` for every source; ``airtime_per_mbps[L]`` is what all the trees take of each link's domain."""

    rate_mbps: float
    airtime_per_mbps: FloatArray


@dataclass(frozen=True)
class Reservations:
    """What was promised, in order of admission: flows (id -> Mb/s) and sessions."""

    flows: Mapping[str, float] = field(default_factory=dict)
    sessions: Mapping[str, SessionLoad] = field(default_factory=dict)

    def minimum_mbps(self, problem: RateProblem) -> FloatArray:
        """Per flow of a problem, float64[F]."""
        return np.array([self.flows.get(flow, 0.0) for flow in problem.layout.flow_ids], dtype=float)

    def with_sessions(self, problem: RateProblem) -> RateProblem:
        """The problem with the airtime of sessions taken out of what flows share."""
        taken = sum((load.rate_mbps * load.airtime_per_mbps for load in self.sessions.values()), problem.external)
        return problem.changed(external=np.asarray(taken, dtype=float))


@dataclass(frozen=True, slots=True)
class Answer:
    """Whether a request was admitted, and the most that could be; ``full`` are the links whose domains bound that."""

    admitted: bool
    possible_mbps: float
    reservations: Reservations
    full: tuple[int, ...] = ()


def reserve_flow(reservations: Reservations, problem: RateProblem, flow: str, rate_mbps: float) -> Answer:
    """Ask for a minimum rate of a flow of the problem (which is without sessions); one that it has is replaced.

    Raises ``PlanningError`` for a flow that is not in the problem, or a rate that is not above 0.
    """
    if flow not in problem.layout.flow_ids:
        raise PlanningError(f"no flow {flow!r} to reserve a rate for")
    others = replace(reservations, flows={name: r for name, r in reservations.flows.items() if name != flow})
    index, left = problem.layout.flow_ids.index(flow), others.with_sessions(problem)
    found = bounded_rate(left, others.minimum_mbps(problem), flow=index, most_mbps=_checked(rate_mbps))
    new = replace(others, flows={**others.flows, flow: rate_mbps})
    return _answer(reservations, new, rate_mbps, found, problem)


def reserve_session(
    reservations: Reservations, problem: RateProblem, session: str, rate_mbps: float, airtime_per_mbps: FloatArray
) -> Answer:
    """Ask for a rate of every source of a session whose trees take ``airtime_per_mbps[L]``; replaces what it has."""
    remaining = {name: load for name, load in reservations.sessions.items() if name != session}
    others = replace(reservations, sessions=remaining)
    left = others.with_sessions(problem)
    found = bounded_rate(
        left, others.minimum_mbps(problem), airtime_per_mbps=airtime_per_mbps, most_mbps=_checked(rate_mbps)
    )
    new = replace(others, sessions={**remaining, session: SessionLoad(rate_mbps, airtime_per_mbps)})
    return _answer(reservations, new, rate_mbps, found, problem)


def least_airtime(problem: RateProblem, flow: str) -> FloatArray | None:
    """Share of every link's domain, float64[L], per Mb/s of a flow on that path of it which takes least of the domain
    where it takes most; None: no path of it can be used.
    """
    layout = problem.layout
    if flow not in layout.flow_ids:
        return None
    paths = np.flatnonzero(layout.path_flow == layout.flow_ids.index(flow))
    usable = np.asarray(layout.routing[paths] @ (problem.capacity_mbps <= 0).astype(float)) == 0
    if not usable.any():
        return None
    rows = layout.domains @ sparse.diags(problem.inverse_capacity) @ layout.routing[paths[usable]].T
    airtime: FloatArray = rows.toarray()
    return np.asarray(airtime[layout.class_of, int(airtime.max(axis=0).argmin())])


def _checked(rate_mbps: float) -> float:
    if not 0.0 < rate_mbps < np.inf:
        raise PlanningError(f"rate_mbps {rate_mbps:g}: expected a finite rate above 0")
    return rate_mbps


def _answer(
    old: Reservations, new: Reservations, rate_mbps: float, found: tuple[float, tuple[int, ...]], problem: RateProblem
) -> Answer:
    possible_mbps, classes = found
    admitted = possible_mbps >= rate_mbps * (1 - _TOLERANCE)
    full = () if admitted else tuple(np.flatnonzero(np.isin(problem.layout.class_of, classes)).tolist())
    return Answer(admitted, max(0.0, possible_mbps), new if admitted else old, full)

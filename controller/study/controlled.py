"""Flows under congestion control on random networks, for the studies of its speed and of its queues."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hyroads.controller.core.interface_graph import FloatArray, Path
from hyroads.controller.core.network import FlowSpec, Network
from hyroads.controller.core.rates import RateProblem, rate_problem
from hyroads.controller.core.rates.controller_mode import ControllerSettings, run
from hyroads.controller.core.rates.problem import BoundPrices

from . import networks
from .schemes import Scheme, Schemes

MARGIN = 0.05
"""Share of airtime that is kept free, as the controller does for UDP."""
_TRIES = 20


@dataclass(frozen=True, slots=True)
class Setting:
    """Random networks of one kind, and how many flows each has. ``make`` is a function of :mod:`.networks`."""

    name: str
    make: Callable[[random.Random], Network]
    flows: int

    @property
    def is_home(self) -> bool:
        """Whether the networks are residential."""
        return self.make is networks.residential


SETTINGS: Mapping[str, Setting] = {
    each.name: each
    for each in (
        Setting("residential, 1 flow", networks.residential, 1),
        Setting("residential, 2 flows", networks.residential, 2),
        Setting("enterprise, 1 flow", networks.enterprise, 1),
        Setting("enterprise, 3 flows", networks.enterprise, 3),
    )
}
"""By name; an enterprise has 10 nodes on 50 x 30 m."""


@dataclass(frozen=True, eq=False)
class Case:
    """A network, the ends of its flows, the paths that the planner chose for each, and the problem of their rates."""

    network: Network
    flows: tuple[tuple[str, str], ...]
    schemes: Schemes
    paths: tuple[tuple[Path, ...], ...]
    problem: RateProblem

    @property
    def all_paths(self) -> list[Path]:
        """Of all flows, flow by flow, as in the problem."""
        return [path for mine in self.paths for path in mine]


def draw(setting: Setting, seed: int, number: int, margin: float = MARGIN) -> Case:
    """Network ``number`` of a setting. Ends without a route are drawn anew, with a new network if need be."""
    rng = random.Random(f"{seed} {setting.name} {number}")  # noqa: S311
    while True:
        network = setting.make(rng)
        schemes = Schemes(network)
        found: list[tuple[tuple[str, str], tuple[Path, ...]]] = []
        for _ in range(_TRIES):
            ends = networks.endpoints(network, rng)
            paths = schemes.routes(Scheme.EMPOWER, [ends]).paths[0]
            if paths:
                found.append((ends, paths))
            if len(found) == setting.flows:
                names = [f"f{i}" for i in range(len(found))]
                specs = [FlowSpec(name, *ends) for name, (ends, _) in zip(names, found, strict=True)]
                routed = {name: paths for name, (_, paths) in zip(names, found, strict=True)}
                problem = DenseProblem.of(rate_problem(network, routed, flows=specs, margin=margin))
                flows, chosen = zip(*found, strict=True)
                return Case(network, flows, schemes, chosen, problem)


class DenseProblem(RateProblem):
    """A rate problem that does not change, for thousands of slots: A = B diag(d) R is worked out once, as an array.

    That is three times as fast on the networks of the studies, and too large for those of a campus.
    """

    @classmethod
    def of(cls, problem: RateProblem) -> DenseProblem:
        """The same problem."""
        return cls(
            problem.layout,
            problem.utilities,
            problem.capacity_mbps,
            problem.margin,
            problem.external,
            problem.demand_mbps,
            problem.bounds,
        )

    @cached_property
    def matrix(self) -> FloatArray:
        """A, float64[L, P] in s/Mb: the airtime of each link's domain per Mb/s on each path."""
        paths = np.eye(self.layout.path_count)
        return np.stack([super(DenseProblem, self).airtime(path) for path in paths], axis=1)

    def airtime(self, path_rates: FloatArray) -> FloatArray:
        """See :class:`RateProblem`."""
        return np.asarray(self.matrix @ path_rates)

    def path_prices(self, link_prices: FloatArray, bound_prices: BoundPrices | None = None) -> FloatArray:
        """See :class:`RateProblem`; B is symmetric, so that the prices are A' gamma."""
        if bound_prices is not None or not (self.capacity_mbps > 0).all():
            return super().path_prices(link_prices, bound_prices)
        return np.asarray(link_prices @ self.matrix)


def course(problem: RateProblem, settings: ControllerSettings, slots: int) -> FloatArray:
    """Rates of the paths in each of ``slots`` slots of the slotted controller from rest, float64[slots, P] in Mb/s."""
    return np.array([state.path_rates_mbps for state in run(problem, settings, slots)]).reshape(slots, -1)


def slots_until(totals: FloatArray, final: float, within: float = 0.01) -> tuple[int, int]:
    """Slots until the total is first within a share of the final one, and until it stays there (1 = the first slot).

    A value beyond the number of slots means never.
    """
    outside = np.abs(totals - final) > within * abs(final)
    inside, left = np.flatnonzero(~outside), np.flatnonzero(outside)
    first = int(inside[0]) + 1 if len(inside) else len(totals) + 1
    return first, int(left[-1]) + 2 if len(left) else 1


def trailing_mean(values: FloatArray, width: int) -> FloatArray:
    """Mean of the last ``width`` of the values up to each one, those before the first being 0; float64[n]."""
    total = np.concatenate([np.zeros(width), np.cumsum(values)])
    return np.asarray((total[width:] - total[:-width]) / width)

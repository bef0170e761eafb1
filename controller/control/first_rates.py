"""Rates of flows whose paths changed, until the next turn of the loop finds the optimum with them. Pure.

A flow that has lost some of its paths keeps the rates of the others. One that is new, or has other paths altogether,
gets what it would ask for at the prices of now: the optimum is where nobody asks for anything else, so that the prices
of before are nearly right for one flow more. Its paths share that evenly, and together they get no more than the flow
had before. All of it follows from the flow alone: the cost does not grow with the other flows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hyroads.controller.core.interference import Interference
from hyroads.controller.core.rates import RateProblem
from hyroads.controller.core.rates.problem import FloatArray, domain_of
from hyroads.controller.core.rates.utilities import utilities_from


class PricedPaths:
    """Paths at the prices of the last turn. ``capacity_mbps`` is that of the network of now (0: down)."""

    def __init__(
        self, interference: Interference, capacity_mbps: FloatArray, problem: RateProblem, link_prices: FloatArray
    ) -> None:
        self._interference, self._prices, self._budget = interference, link_prices, problem.budget
        # A link that is down in the network of now has no capacity; one that is measured has what was measured.
        self._capacity_mbps = np.where(capacity_mbps > 0, problem.capacity_mbps, 0.0)

    def asked(self, paths: Sequence[tuple[int, ...]], utility: tuple[float, float, float]) -> FloatArray:
        """What a flow with this utility would send by each of some paths if it had no other, in Mb/s."""
        prices, most = np.array([self._price_and_most(path) for path in paths], dtype=float).reshape(-1, 2).T
        return utilities_from([utility] * len(paths)).rates(prices, most)

    def _price_and_most(self, path: tuple[int, ...]) -> tuple[float, float]:
        """The price of a path per Mb/s, and what it carries alone in the airtime that is for us, in Mb/s."""
        links = list(path)
        capacity = self._capacity_mbps[links]
        if not (capacity > 0).all():
            return np.inf, 0.0
        price, most = 0.0, np.inf
        for link, mbps in zip(links, capacity.tolist(), strict=True):
            domain = domain_of(self._interference, link)
            price += float(self._prices[domain].sum()) / mbps
            busy = float((1.0 / capacity[np.isin(links, domain)]).sum())
            most = min(most, float(self._budget[link]) / busy)
        return price, most


def first_rates(
    priced: PricedPaths, paths: Sequence[tuple[int, ...]], utility: tuple[float, float, float], most_mbps: float
) -> tuple[float, ...]:
    """By path the rate in Mb/s of a flow with this utility (weight, alpha, shift), which had ``most_mbps`` by other
    paths (0: it is new).
    """
    found = priced.asked(paths, utility) / len(paths)
    total = float(found.sum())
    return tuple((found * (most_mbps / total) if 0 < most_mbps < total else found).tolist())

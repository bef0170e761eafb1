"""The split of a load over two queues that minimises the mean delay (spec 04, section 1).

    D(p) = (N_1(p lambda) + N_2((1 - p) lambda)) / lambda

N is convex in the load. Let i be the queue with the smaller N'(0): up to lambda_0, where N_i'(lambda_0) = N_j'(0), it
alone is best (Theorem 8 of the thesis); above, p* solves N_1'(p lambda) = N_2'((1 - p) lambda). Both are found by
Brent's method on monotonous functions. For constant service both have closed forms, which the tests use as oracles.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from hyroads.controller.core.latency.two_state_queue import (
    LOWEST_RATE,
    LatencyError,
    TwoStateQueue,
    mean_queue_length,
    slope,
)
from scipy.optimize import brentq

_TOLERANCE = 1e-14


@dataclass(frozen=True, slots=True)
class Split:
    """The best split at one load; ``share`` is the part of queue 1, loads are packets/s."""

    lambda0: float
    """Up to this load one queue alone is best."""
    share: float
    delay_s: float
    proportional_share: float
    """p_lim: static split in proportion to the mean rates."""
    proportional_delay_s: float


def best_split(first: TwoStateQueue, second: TwoStateQueue, load: float) -> Split:
    """The split of ``load`` packets/s, more than 0 and less than muhat_1 + muhat_2 (:class:`LatencyError`)."""
    total = first.muhat + second.muhat
    unstable = f"load {load:g}: unstable: expected less than {total:g} packets/s, the sum of the mean service rates"
    if not load >= LOWEST_RATE:
        raise LatencyError(f"load {load:g}: expected at least {LOWEST_RATE:g} packets/s")
    if not load < total:
        raise LatencyError(unstable)
    share, proportional = optimal_share(first, second, load), first.muhat / total
    delays_s = [split_delay_s(first, second, load, p) for p in (share, proportional)]
    if math.inf in delays_s:
        # Less than a rounding below the limit.
        raise LatencyError(unstable)
    return Split(single_limit(first, second), share, delays_s[0], proportional, delays_s[1])


def split_delay_s(first: TwoStateQueue, second: TwoStateQueue, load: float, share: float) -> float:
    """D(p) in seconds: mean delay of a load > 0 of which queue 1 gets ``share``; inf if either is unstable."""
    queued = mean_queue_length(first, share * load) + mean_queue_length(second, (1.0 - share) * load)
    return queued / load


def single_limit(first: TwoStateQueue, second: TwoStateQueue) -> float:
    """lambda_0 in packets/s: the largest load up to which one queue alone is best; 0 if it is never."""
    quick, other = (first, second) if slope(first, 0.0) <= slope(second, 0.0) else (second, first)
    level = 1.0 / slope(other, 0.0)
    if 1.0 / slope(quick, 0.0) <= level:
        return 0.0
    return _zero(lambda load: level - _inverse(quick, load), quick.muhat)


def optimal_share(first: TwoStateQueue, second: TwoStateQueue, load: float) -> float:
    """p*, 0 to 1, for a load more than 0 and less than muhat_1 + muhat_2."""

    def imbalance(share: float) -> float:
        # Reciprocals are 0 where a queue is unstable, so every share can be asked about; the function rises.
        return _inverse(second, (1.0 - share) * load) - _inverse(first, share * load)

    if imbalance(0.0) >= 0:
        return 0.0
    if imbalance(1.0) <= 0:
        return 1.0
    return _zero(imbalance, 1.0)


def constant_single_limit(mu_1: float, mu_2: float) -> float:
    """lambda_0 for constant service rates, packets/s."""
    high, low = max(mu_1, mu_2), min(mu_1, mu_2)
    return high - math.sqrt(high * low)


def constant_share(mu_1: float, mu_2: float, load: float) -> float:
    """p* for constant service rates, 0 to 1, at loads below mu_1 + mu_2."""
    if load <= constant_single_limit(mu_1, mu_2):
        return 1.0 if mu_1 > mu_2 else 0.0
    if mu_1 == mu_2:
        return 0.5
    root = math.sqrt(mu_1 * mu_2)
    return (mu_1 * (load - 2.0 * mu_2) + (mu_1 + mu_2 - load) * root) / (load * (mu_1 - mu_2))


def _inverse(queue: TwoStateQueue, load: float) -> float:
    return 1.0 / slope(queue, load)


def _zero(function: Callable[[float], float], high: float) -> float:
    return float(brentq(function, 0.0, high, xtol=_TOLERANCE * high, rtol=_TOLERANCE))

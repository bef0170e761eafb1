"""What a flow marked ``latency`` shall do at a load: use one technology, or split its packets over two. Pure.

Theory and theorems: Henri, EPFL thesis 9056, 2018, chapter 5.

Below lambda_0 it uses the best single technology, above the split p*(lambda). A decision in force is kept as long as
its delay is within a tolerance of the best one, so that noise in load and statistics does not move packets to and fro.

*The best single technology* is the one with the smaller mean delay. With equal mean rates muhat and equal alpha: at
equal variance V the larger pi = mu_h mu_l wins; at equal pi the smaller V wins; if V_1 > V_2 and pi_1 < pi_2 technology
2 wins at every load. Otherwise the winner can depend on the load, and the *larger* variance can win at low load.

*The best split* of a load over two queues minimises the mean delay

    D(p) = (N_1(p lambda) + N_2((1 - p) lambda)) / lambda

N is convex in the load. Let i be the queue with the smaller N'(0): up to lambda_0, where N_i'(lambda_0) = N_j'(0), it
alone is best (Theorem 8 of the thesis); above, p* solves N_1'(p lambda) = N_2'((1 - p) lambda). Both are found by
Brent's method on monotonous functions. For constant service both have closed forms, which the tests use as oracles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scipy.optimize import brentq

from .two_state_queue import LOWEST_RATE, LatencyError, TwoStateQueue, mean_delay_s, mean_queue_length, slope

_TOLERANCE = 1e-14


def best_single(queues: Sequence[TwoStateQueue], load: float) -> int:
    """Index of the queue with the smallest mean delay at ``load`` packets/s.

    Equal delays, and none of them finite, go to the larger muhat, then to the first.
    """
    return min(range(len(queues)), key=lambda i: (mean_delay_s(queues[i], load), -queues[i].muhat, i))


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


def _inverse(queue: TwoStateQueue, load: float) -> float:
    return 1.0 / slope(queue, load)


def _zero(function: Callable[[float], float], high: float) -> float:
    return float(brentq(function, 0.0, high, xtol=_TOLERANCE * high, rtol=_TOLERANCE))


@dataclass(frozen=True, slots=True)
class LatencySettings:
    """``tolerance``: by what share the delay of the decision in force may exceed the best one.

    ``full``: load, as a share of both technologies' mean rates, from which on delays are not worth computing and the
    flow is split in proportion to the rates.
    """

    tolerance: float = 0.1
    full: float = 0.98

    def __post_init__(self) -> None:
        if not (math.isfinite(self.tolerance) and self.tolerance >= 0):
            raise LatencyError(f"tolerance {self.tolerance:g}: expected 0 or more")
        if not 0 < self.full < 1:
            raise LatencyError(f"full {self.full:g}: expected a number between 0 and 1")


@dataclass(frozen=True, slots=True)
class LatencyDecision:
    """``share`` is the part of technology 1, 0 to 1; ``delay_s`` what is to be expected, inf if overloaded."""

    share: float
    delay_s: float

    @property
    def single(self) -> int | None:
        """0 or 1 if one technology carries everything, None for a split."""
        return {1.0: 0, 0.0: 1}.get(self.share)


_DEFAULT = LatencySettings()


def decide(
    first: TwoStateQueue,
    second: TwoStateQueue,
    load: float,
    current: LatencyDecision | None = None,
    settings: LatencySettings = _DEFAULT,
) -> LatencyDecision:
    """The decision for ``load`` packets/s, 0 or more; ``current`` is the one in force."""
    ideal = _ideal_share(first, second, load, settings)
    best = LatencyDecision(ideal, _delay_s(first, second, load, ideal))
    if current is None:
        return best
    current_s = _delay_s(first, second, load, current.share)
    if math.isfinite(current_s) and current_s <= best.delay_s * (1.0 + settings.tolerance):
        return LatencyDecision(current.share, current_s)
    return best


def _ideal_share(first: TwoStateQueue, second: TwoStateQueue, load: float, settings: LatencySettings) -> float:
    total = first.muhat + second.muhat
    if load == 0:
        return 1.0 - best_single((first, second), 0.0)
    if load >= settings.full * total:
        return first.muhat / total
    return optimal_share(first, second, load)


def _delay_s(first: TwoStateQueue, second: TwoStateQueue, load: float, share: float) -> float:
    if load == 0:
        return share * mean_delay_s(first, 0.0) + (1.0 - share) * mean_delay_s(second, 0.0)
    return split_delay_s(first, second, load, share)

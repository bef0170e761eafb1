"""The M/M/1 queue whose service alternates between two rates: stability, mean queue length, delay, derivative.

Poisson arrivals of rate lambda; exponential service of rate mu_h or mu_l; the state h is left at rate alpha_h, l at
rate alpha_l (Yechiali and Naor, "Queuing problems with heterogeneous arrivals and service", Operations Research
19(3), 1971). With muhat, V the mean and variance of the service rate and alpha = alpha_h + alpha_l, the generating
function of the queue length has the denominator

    (1 - z)(mu_h - lambda z)(mu_l - lambda z) - alpha z (muhat - lambda z),

a cubic with one root z0 in (0, 1), at which the numerator vanishes as well. This determines the mean, which
simplifies to

    N = lambda / (muhat - lambda) * (1 + V (1 - z0) / (alpha (muhat - lambda z0))).

Every factor is positive, so nothing cancels. The root is sought as u = z0 / (1 - z0), which stays accurate however
slowly or quickly the rate alternates. Rates are packets/s and transitions/s, delays seconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hyroads.controller.core.errors import HyroadsError

# Newton's method with bisection behind it ends after some ten steps; this is only a bound.
_MOST_STEPS = 200
_RELATIVE_ROUNDING = 4e-16
# Far beyond any network, and far from where squares of rates leave the range of floating-point numbers.
LOWEST_RATE, HIGHEST_RATE = 1e-12, 1e12


class LatencyError(HyroadsError):
    """A queue, a load or a trace of rates can't be what was given."""


@dataclass(frozen=True, slots=True)
class TwoStateQueue:
    """Service that alternates between two rates.

    ``mu_h``, ``mu_l``: packets/s served in either state (the names say high and low, but the order does not matter);
    ``alpha_h``, ``alpha_l``: 1/s at which that state is left. A state with alpha 0 is never left; both may be 0 only if
    the rates are equal. :class:`LatencyError` for anything that is no such queue.
    """

    mu_h: float
    mu_l: float
    alpha_h: float
    alpha_l: float

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if not 0 <= value <= HIGHEST_RATE:
                raise LatencyError(f"{name} {value:g}: expected a number from 0 to {HIGHEST_RATE:g}")
        if self.alpha == 0 and self.mu_h != self.mu_l:
            raise LatencyError("alpha_h and alpha_l are both 0: which rate holds is not determined")
        if not self.muhat >= LOWEST_RATE:
            raise LatencyError(f"the mean service rate is {self.muhat:g}: expected at least {LOWEST_RATE:g} packets/s")

    @property
    def alpha(self) -> float:
        """alpha_h + alpha_l, 1/s: how quickly the past is forgotten."""
        return self.alpha_h + self.alpha_l

    @property
    def share_h(self) -> float:
        """Share of time in state h."""
        return self.alpha_l / self.alpha if self.alpha > 0 else 1.0

    @property
    def muhat(self) -> float:
        """Mean service rate, packets/s: loads below it are stable."""
        return self.share_h * self.mu_h + (1.0 - self.share_h) * self.mu_l

    @property
    def variance(self) -> float:
        """Variance V of the service rate, (packets/s)^2."""
        return self.share_h * (1.0 - self.share_h) * (self.mu_h - self.mu_l) ** 2

    @staticmethod
    def constant(mu: float) -> TwoStateQueue:
        """The plain M/M/1 queue."""
        return TwoStateQueue(mu, mu, 1.0, 1.0)


def mean_queue_length(queue: TwoStateQueue, load: float) -> float:
    """N(lambda): packets in the queue and in service, on average; inf from lambda = muhat on.

    ``load``: lambda in packets/s, 0 or more (:class:`LatencyError`).
    """
    check_load(load)
    spare = queue.muhat - load
    if spare <= 0:
        return math.inf
    return load / spare * (1.0 + _excess(queue, load))


def mean_delay_s(queue: TwoStateQueue, load: float) -> float:
    """Mean time from arrival to departure, N / lambda (Little), s; at load 0 its limit; inf if unstable."""
    check_load(load)
    spare = queue.muhat - load
    return (1.0 + _excess(queue, load)) / spare if spare > 0 else math.inf


def delay_bounds_s(queue: TwoStateQueue, load: float) -> tuple[float, float]:
    """Bounds of the mean delay without the cubic's root, s: at least, at most; (inf, inf) if unstable.

    With f as in :func:`_root` the root u is at most u_0 = f(0) / alpha = mu_h mu_l / (alpha muhat), as f falls; so what
    is served of it is at most y_0 = lambda u_0 / (1 + u_0), and u is at least f(y_0) / alpha, or 0 where that is less.
    The delay falls in u. Both bounds are exact at load 0 and, relative to the delay, towards load muhat.
    """
    check_load(load)
    spare = queue.muhat - load
    if spare <= 0:
        return math.inf, math.inf
    if queue.variance == 0:
        return 1.0 / spare, 1.0 / spare
    alpha, muhat, low = queue.alpha, queue.muhat, min(queue.mu_h, queue.mu_l)
    most = queue.mu_h * queue.mu_l / (alpha * muhat)
    served = load * most / (1.0 + most)
    least = (queue.mu_h - served) * (queue.mu_l - served) / (alpha * (muhat - served)) if served < low else 0.0
    excess = [queue.variance / (alpha * (muhat + spare * u)) for u in (most, least)]
    return (1.0 + excess[0]) / spare, (1.0 + excess[1]) / spare


def slope(queue: TwoStateQueue, load: float) -> float:
    """N'(lambda), s: how much a little more load adds to the queue; inf if unstable."""
    check_load(load)
    spare = queue.muhat - load
    if spare <= 0:
        return math.inf
    plain = queue.muhat / spare**2
    if queue.variance == 0:
        return plain
    u = _root(queue, load)
    denominator = queue.muhat + spare * u
    departing = queue.muhat - load * u / (1.0 + u)
    steepness = 1.0 + queue.variance / departing**2
    root_slope = -steepness * u / (1.0 + u) / (queue.alpha + steepness * load / (1.0 + u) ** 2)
    excess = queue.variance / (queue.alpha * denominator)
    return plain * (1.0 + excess) - load / spare * excess * (spare * root_slope - u) / denominator


def check_load(load: float) -> None:
    """:class:`LatencyError` unless ``load`` is a finite number of packets/s, 0 or more."""
    if not (math.isfinite(load) and load >= 0):
        raise LatencyError(f"load {load:g}: expected a finite number of packets/s, 0 or more")


def _excess(queue: TwoStateQueue, load: float) -> float:
    """By what share the mean delay is above that of constant service at the mean rate."""
    if queue.variance == 0:
        return 0.0
    return queue.variance / (queue.alpha * (queue.muhat + (queue.muhat - load) * _root(queue, load)))


def _root(queue: TwoStateQueue, load: float) -> float:
    """u = z0 / (1 - z0) > 0, for a stable load.

    The cubic is equivalent to alpha u = f(y) with y = lambda u / (1 + u) and f(y) = (mu_h - y)(mu_l - y) / (muhat - y).
    The left side rises and the right side falls, so the root is the only one and is easily enclosed.
    """
    low, alpha, muhat = min(queue.mu_h, queue.mu_l), queue.alpha, queue.muhat
    lower, upper = 0.0, (queue.mu_h + queue.mu_l - muhat) / alpha
    if load > low:
        upper = min(upper, low / (load - low))
    u = upper
    for _ in range(_MOST_STEPS):
        served = load * u / (1.0 + u)
        left = muhat - served
        value = alpha * u - (queue.mu_h - served) * (queue.mu_l - served) / left
        lower, upper = (lower, u) if value > 0 else (u, upper)
        rise = alpha + (1.0 + queue.variance / left**2) * load / (1.0 + u) ** 2
        following = u - value / rise
        if not lower < following < upper:
            following = 0.5 * (lower + upper)
        if abs(following - u) <= _RELATIVE_ROUNDING * u:
            return following
        u = following
    return u

"""Which single technology has the smaller mean delay (spec 04, section 1).

With equal mean rates muhat and equal alpha: at equal variance V the larger pi = mu_h mu_l wins; at equal pi the
smaller V wins; if V_1 > V_2 and pi_1 < pi_2 technology 2 wins at every load. Otherwise the winner can depend on the
load, and the *larger* variance can win at low load.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from hyroads.controller.core.latency.two_state_queue import TwoStateQueue, mean_delay_s

# Statistics that differ by less are taken as equal by the rules: they are computed from rates, with rounding.
_EQUAL = 1e-9


def best_single(queues: Sequence[TwoStateQueue], load: float) -> int:
    """Index of the queue with the smallest mean delay at ``load`` packets/s.

    Equal delays, and none of them finite, go to the larger muhat, then to the first.
    """
    return min(range(len(queues)), key=lambda i: (mean_delay_s(queues[i], load), -queues[i].muhat, i))


def dominant(first: TwoStateQueue, second: TwoStateQueue) -> int | None:
    """0 or 1: the queue that the rules name as the better one at every load; None where they are silent.

    The rules speak only of queues with equal muhat and equal alpha.
    """
    if not (_same(first.muhat, second.muhat) and _same(first.alpha, second.alpha)):
        return None
    # Positive: better for the first queue.
    variance = _sign(second.variance, first.variance, first.muhat**2)
    product = _sign(first.product, second.product, first.muhat**2)
    if variance * product < 0 or variance == product == 0:
        return None
    return 0 if variance + product > 0 else 1


def _same(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=_EQUAL)


def _sign(larger: float, smaller: float, scale: float) -> int:
    difference = larger - smaller
    return 0 if abs(difference) <= _EQUAL * scale else int(math.copysign(1, difference))

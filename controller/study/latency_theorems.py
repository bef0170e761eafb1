"""What the latency chapter proves or conjectures of two queues, on random pairs (Henri, EPFL thesis 9056, 2018).

Both queues of a pair have the same mean rate muhat and the same alpha; V is the variance of the rate, pi = mu_h mu_l,
mu_l the lower rate, D the mean delay. At every load:

    V_1 = V_2, pi_1 > pi_2          D_1 < D_2
    pi_1 = pi_2, V_1 < V_2          D_1 < D_2
    V_1 > V_2, pi_1 < pi_2          D_1 > D_2
    V_1 > V_2, mu_l1 < mu_l2        D_1 > D_2   (a conjecture)
    V_1 > V_2, pi_1 > pi_2          D_1 - D_2 changes its sign, from minus to plus, if
                                    |1 - V_2/V_1| < |1 - (pi_2 + alpha muhat)/(pi_1 + alpha muhat)|

The condition of the sign change is that for D_1 < D_2 at load 0, where D = (1 + V / (alpha muhat + pi)) / muhat; at
load muhat the smaller V always wins. It is sufficient, not necessary: without it D_1 - D_2 can be plus, minus and plus.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hyroads.controller.core.latency.two_state_queue import TwoStateQueue, delay_bounds_s, mean_delay_s

from .framework import Progress, Settings, Table, run_all
from .intervals import interval_of_share
from .verdicts import Check, Kind, at_most

PAIRS, QUICK_PAIRS = 5000, 250
_CHUNK = 250
MUHAT = 100.0
# Parts of muhat at which delays are compared: near none, near all, and between.
LOADS = (1e-6, 0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.9, 0.97, 1.0 - 1e-6)
# A condition that is met by less could hang on the lowest load, which is not quite 0.
_LEAST_MARGIN = 1e-4
# Relative difference up to which two delays are taken to be equal: equal moments are so up to rounding only.
_EQUAL = 1e-9

Pair = tuple[TwoStateQueue, TwoStateQueue]


def with_moments(variance: float, product: float, alpha: float) -> TwoStateQueue:
    """The queue of mean rate 100 with this V > 0, pi of 0 or more, and alpha.

    The rates are the roots of m^2 - s m + pi with s = mu_h + mu_l, as V = muhat s - pi - muhat^2. The polynomial is -V
    at muhat, so they lie on both sides of it.
    """
    total = (variance + product) / MUHAT + MUHAT
    high = 0.5 * (total + math.sqrt(total * total - 4.0 * product))
    low = product / high
    share_h = (MUHAT - low) / (high - low)
    return TwoStateQueue(high, low, alpha * (1.0 - share_h), alpha * share_h)


def _product(queue: TwoStateQueue) -> float:
    return queue.mu_h * queue.mu_l


def random_queue(rng: np.random.Generator, alpha: float) -> TwoStateQueue:
    """A queue of mean rate 100: its lower rate uniform below, the share of time in it uniform in 0.02 to 0.98."""
    low, share_l = rng.uniform(0.0, 0.98) * MUHAT, rng.uniform(0.02, 0.98)
    high = (MUHAT - share_l * low) / (1.0 - share_l)
    return TwoStateQueue(high, low, alpha * share_l, alpha * (1.0 - share_l))


def _equal_variance(one: TwoStateQueue, other: TwoStateQueue, alpha: float) -> Pair | None:
    changed = with_moments(one.variance, _product(other), alpha)
    if _near(_product(one), _product(other)):
        return None
    return (one, changed) if _product(one) > _product(other) else (changed, one)


def _equal_product(one: TwoStateQueue, other: TwoStateQueue, alpha: float) -> Pair | None:
    changed = with_moments(other.variance, _product(one), alpha)
    if _near(one.variance, other.variance):
        return None
    return (one, changed) if one.variance < other.variance else (changed, one)


def _by_variance(one: TwoStateQueue, other: TwoStateQueue) -> Pair:
    """The queue of the larger variance first."""
    return (one, other) if one.variance > other.variance else (other, one)


def _apart(one: TwoStateQueue, other: TwoStateQueue, _alpha: float) -> Pair | None:
    first, second = _by_variance(one, other)
    return (first, second) if _product(first) < _product(second) else None


def _lower(one: TwoStateQueue, other: TwoStateQueue, _alpha: float) -> Pair | None:
    first, second = _by_variance(one, other)
    return (first, second) if min(first.mu_h, first.mu_l) < min(second.mu_h, second.mu_l) else None


def _both_larger(one: TwoStateQueue, other: TwoStateQueue, _alpha: float) -> Pair | None:
    first, second = _by_variance(one, other)
    return (first, second) if _product(first) > _product(second) else None


def _changing(one: TwoStateQueue, other: TwoStateQueue, alpha: float) -> Pair | None:
    pair = _both_larger(one, other, alpha)
    return pair if pair is not None and _margin(pair, alpha) > _LEAST_MARGIN else None


def _silent(one: TwoStateQueue, other: TwoStateQueue, alpha: float) -> Pair | None:
    pair = _both_larger(one, other, alpha)
    return pair if pair is not None and _margin(pair, alpha) < -_LEAST_MARGIN else None


def _margin(pair: Pair, alpha: float) -> float:
    """By how much the condition of the sign change is met; below 0: it is not."""
    first, second = pair
    ratio = (_product(second) + alpha * MUHAT) / (_product(first) + alpha * MUHAT)
    return abs(1.0 - ratio) - abs(1.0 - second.variance / first.variance)


def _near(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-6 * MUHAT**2)


def _differences(pair: Pair) -> list[float]:
    """(D_1 - D_2) / D_2 at each of ``LOADS``; differences that rounding could make are 0."""
    found = []
    for part in LOADS:
        first, second = (mean_delay_s(queue, part * MUHAT) for queue in pair)
        difference = first / second - 1.0
        found.append(0.0 if abs(difference) <= _EQUAL else difference)
    return found


def first_is_better(pair: Pair, _alpha: float) -> bool:
    """D_1 < D_2 at every load."""
    return all(difference <= 0.0 for difference in _differences(pair))


def second_is_better(pair: Pair, _alpha: float) -> bool:
    """D_1 > D_2 at every load."""
    return all(difference >= 0.0 for difference in _differences(pair))


def sign_of(pair: Pair) -> list[float]:
    """The signs of D_1 - D_2 over rising loads, those that rounding could make left out."""
    return [math.copysign(1.0, difference) for difference in _differences(pair) if difference]


def changes_once(pair: Pair, _alpha: float) -> bool:
    """D_1 - D_2 is first minus, then plus for good."""
    signs = sign_of(pair)
    return bool(signs) and signs == sorted(signs) and signs[0] < 0 < signs[-1]


def within_bounds(pair: Pair, _alpha: float) -> bool:
    """Both queues' delays lie within the bounds of :func:`delay_bounds_s` at every load."""
    for queue in pair:
        for part in LOADS:
            low, high = delay_bounds_s(queue, part * MUHAT)
            delay = mean_delay_s(queue, part * MUHAT)
            if not low * (1.0 - _EQUAL) <= delay <= high * (1.0 + _EQUAL):
                return False
    return True


def _any(one: TwoStateQueue, other: TwoStateQueue, _alpha: float) -> Pair | None:
    return one, other


Making = Callable[[TwoStateQueue, TwoStateQueue, float], Pair | None]
STATEMENTS: dict[str, tuple[Making, Callable[[Pair, float], bool]]] = {
    "V1 = V2, pi1 > pi2: D1 < D2": (_equal_variance, first_is_better),
    "pi1 = pi2, V1 < V2: D1 < D2": (_equal_product, first_is_better),
    "V1 > V2, pi1 < pi2: D1 > D2": (_apart, second_is_better),
    "V1 > V2, pi1 > pi2, condition met: D1 - D2 is minus, then plus": (_changing, changes_once),
    "conjecture: V1 > V2, mu_l1 < mu_l2: D1 > D2": (_lower, second_is_better),
    "our bounds hold": (_any, within_bounds),
}
CONVERSE = "V1 > V2, pi1 > pi2, condition not met: D1 > D2 (not claimed)"
_ALL = {**STATEMENTS, CONVERSE: (_silent, second_is_better)}


@dataclass(frozen=True, slots=True)
class Tally:
    """Of one statement: pairs of which it speaks, and pairs of which it is wrong."""

    pairs: int
    wrong: int


TallyTask = tuple[int, str, int, int]


def tally_tasks(seed: int, pairs: int) -> list[TallyTask]:
    """Tasks for :func:`tally` that put every statement to ``pairs`` pairs."""
    sizes = [min(_CHUNK, pairs - begun) for begun in range(0, pairs, _CHUNK)]
    return [(seed, name, number, size) for name in _ALL for number, size in enumerate(sizes)]


def tallies(settings: Settings, pairs: int, progress: Progress) -> dict[str, Tally]:
    """Each statement on ``pairs`` random pairs of which it speaks."""
    tasks = tally_tasks(settings.seed, pairs)
    found = dict.fromkeys(_ALL, Tally(0, 0))
    for (_, name, _, _), part in zip(tasks, run_all(tally, tasks, settings, progress), strict=True):
        found[name] = Tally(found[name].pairs + part.pairs, found[name].wrong + part.wrong)
    return found


def tally(task: TallyTask) -> Tally:
    """A part of the pairs of one statement: of a seed, its name, the number of the part, and how many pairs."""
    seed, name, number, size = task
    making, holds = _ALL[name]
    rng = np.random.default_rng([seed, list(_ALL).index(name), number])
    made = wrong = 0
    while made < size:
        alpha = float(10.0 ** rng.uniform(-2.0, 3.0))
        pair = making(random_queue(rng, alpha), random_queue(rng, alpha), alpha)
        if pair is not None:
            made += 1
            wrong += not holds(pair, alpha)
    return Tally(made, wrong)


def theorem_table(found: dict[str, Tally]) -> Table:
    """Statement by statement."""
    rows = tuple((name, each.pairs, each.wrong) for name, each in found.items())
    title = "Statements on random pairs of equal mean rate and equal alpha"
    return Table("theorems", title, ("statement", "pairs", "wrong"), rows)


def theorem_checks(found: dict[str, Tally]) -> list[Check]:
    """None of the statements may be wrong of any pair; what is not claimed is in the table only."""
    return [_check(name, found[name]) for name in STATEMENTS]


_UNSEEN = 0.001
"""A statement holds if at most this share of pairs can be wrong unseen; one pair that is wrong refutes it."""


def _check(name: str, found: Tally) -> Check:
    share = found.wrong / max(1, found.pairs)
    interval = interval_of_share(found.wrong, found.pairs)
    band = at_most(0.0 if found.wrong else _UNSEEN, f"none of {found.pairs} wrong, at most {_UNSEEN:.1%} unseen")
    return Check(f"{name}: share of pairs wrong", band, share, interval, Kind.PUBLISHED, "holds")

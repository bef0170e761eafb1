"""Packets through the two-state queue of :mod:`hyroads.controller.core.latency.two_state_queue`, simulated in arrays.

While the server is idle an exponential service may as well run out unused. So arrivals (rate lambda) and *possible*
ends of service (rate mu of the state that holds) are Poisson processes that do not depend on the queue, and its length
is a walk of steps +1 and -1 that is held within 0..C:

    n_k = min(max(n_{k-1} + s_k, 0), C)

Without a bound C that is the walk less its running minimum. With one, steps are put together: any sequence of them maps
the length x before it to min(max(x + a, lower), upper), where a is the sum of its steps and lower and upper are where
it leads from 0 and from C. So the walk is cut into rows that are walked side by side, twice: from 0 and C, and, once
the true beginnings follow from that, from these. The i-th packet that found room leaves at the i-th departure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hyroads.controller.core.latency.two_state_queue import LatencyError, TwoStateQueue

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Packets:
    """Of the packets of one run: arrived, lost, and the sum of the delays of those that left, in s.

    ``area`` is the integral of the queue length over ``duration_s`` seconds, in packet seconds.
    """

    arrived: int
    lost: int
    left: int
    delays_s: float
    area: float
    duration_s: float

    @property
    def delay_s(self) -> float:
        """Mean time from arrival to departure; nan if no packet left."""
        return self.delays_s / self.left if self.left else math.nan


def simulate(
    queue: TwoStateQueue,
    load: float,
    duration_s: float,
    rng: np.random.Generator,
    *,
    room: int | None = None,
    warm_up_s: float = 0.0,
) -> Packets:
    """A run of ``duration_s`` seconds at ``load`` packets/s > 0; ``room``: most packets in the queue, None: no bound.

    It begins empty ``warm_up_s`` before, and packets of that time do not count. Memory and time are those of some
    (load + mu_h) (duration_s + warm_up_s) events, about 50 ns each. :class:`LatencyError` for another load or room.
    """
    if not (math.isfinite(load) and load > 0):
        raise LatencyError(f"load {load:g}: expected a finite number of packets/s above 0")
    if room is not None and room < 1:
        raise LatencyError(f"room for {room} packets: expected 1 or more")
    times_s, steps = _steps(queue, load, duration_s + warm_up_s, rng)
    lengths = _unbounded(steps) if room is None else bounded_walk(steps, room)
    changes = np.diff(lengths, prepend=0)
    came = np.flatnonzero(changes > 0)
    went = np.flatnonzero(changes < 0)
    counted = came[: len(went)]
    in_time = times_s[counted] >= warm_up_s
    delays_s = (times_s[went] - times_s[counted])[in_time]
    lost = (steps > 0) & (changes == 0) & (times_s >= warm_up_s)
    arrived = int(np.count_nonzero((steps > 0) & (times_s >= warm_up_s)))
    ends = np.append(times_s[1:], duration_s + warm_up_s) if len(times_s) else times_s
    area = float(lengths @ (np.maximum(ends, warm_up_s) - np.maximum(times_s, warm_up_s)))
    return Packets(arrived, int(np.count_nonzero(lost)), len(delays_s), float(delays_s.sum()), area, duration_s)


def relaxation_s(queue: TwoStateQueue, load: float) -> float:
    """About how long a stable queue remembers its length, s: two runs that are further apart are independent.

    It is that of Brownian motion which is reflected at 0 (Harrison, "Brownian Motion and Stochastic Flow Systems",
    1985): 2 variance / drift^2, with what arrivals, services and changes of the rate add to the variance.
    """
    changes = 2.0 * queue.variance / queue.alpha if queue.variance else 0.0
    return 2.0 * (load + queue.muhat + changes) / (queue.muhat - load) ** 2


def _steps(
    queue: TwoStateQueue, load: float, duration_s: float, rng: np.random.Generator
) -> tuple[FloatArray, NDArray[np.int8]]:
    """Times in s and steps of the walk: arrivals (+1) and possible ends of service (-1), in order."""
    fastest = max(queue.mu_h, queue.mu_l)
    total = load + fastest
    # Uniform times in order are the partial sums of exponential gaps, scaled: no need to sort.
    sums = np.cumsum(rng.standard_exponential(rng.poisson(total * duration_s) + 1))
    times_s = sums[:-1] * (duration_s / sums[-1])
    drawn = rng.random(len(times_s)) * total
    taken = drawn < load + _rates(queue, times_s, duration_s, rng)
    return times_s[taken], np.where(drawn[taken] < load, 1, -1).astype(np.int8)


def _rates(queue: TwoStateQueue, times_s: FloatArray, duration_s: float, rng: np.random.Generator) -> FloatArray:
    """The service rate that holds at each of the times, which rise; the first state is drawn as in the long run."""
    if queue.variance == 0:
        return np.full(len(times_s), queue.muhat)
    is_high = bool(rng.random() < queue.share_h)
    leave = [queue.alpha_h, queue.alpha_l] if is_high else [queue.alpha_l, queue.alpha_h]
    rate = [queue.mu_h, queue.mu_l] if is_high else [queue.mu_l, queue.mu_h]
    pairs = int(1.2 * duration_s * leave[0] * leave[1] / queue.alpha) + 16
    changes_s = np.zeros(0)
    while not len(changes_s) or changes_s[-1] < duration_s:
        sojourns_s = rng.exponential(1.0, (pairs, 2)) / leave
        last_s = changes_s[-1] if len(changes_s) else 0.0
        changes_s = np.concatenate([changes_s, last_s + np.cumsum(sojourns_s.ravel())])
    counts = np.diff(np.searchsorted(times_s, changes_s), prepend=0)
    return np.repeat(np.resize(rate, len(changes_s)), counts)


def _unbounded(steps: NDArray[np.int8]) -> IntArray:
    walk = np.cumsum(steps, dtype=np.int64)
    return walk - np.minimum(np.minimum.accumulate(walk), 0) if len(walk) else walk


def bounded_walk(steps: NDArray[np.int8], most: int) -> IntArray:
    """n_k = min(max(n_{k-1} + s_k, 0), most) from n = 0; ``steps`` and the result have one element a step."""
    count = len(steps)
    width = max(1, math.isqrt(count))
    rows = -(-count // width)
    table = np.zeros(rows * width, dtype=np.int32)
    table[:count] = steps
    # One column a row of the walk, so that a step of all of them is a contiguous piece.
    columns = np.ascontiguousarray(table.reshape(rows, width).T)
    lower, upper = np.zeros(rows, dtype=np.int32), np.full(rows, most, dtype=np.int32)
    for step in columns:
        np.minimum(np.maximum(lower + step, 0), most, out=lower)
        np.minimum(np.maximum(upper + step, 0), most, out=upper)
    begins, sums = np.zeros(rows, dtype=np.int32), columns.sum(axis=0)
    length = 0
    for row, (low, high, change) in enumerate(zip(lower.tolist(), upper.tolist(), sums.tolist(), strict=True)):
        begins[row] = length
        length = min(max(length + change, low), high)
    walked, level = np.empty_like(columns), begins
    for index, step in enumerate(columns):
        level = np.minimum(np.maximum(level + step, 0), most, out=walked[index])
    return walked.T.ravel()[:count].astype(np.int64)

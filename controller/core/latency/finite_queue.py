"""The two-state queue of :mod:`two_state_queue` with room for a bounded number of packets: exact, at any load.

Levels n = 0..C are the packets in the queue and in service, each with the two states of the service rate. A packet that
arrives at level C is lost. The stationary vectors satisfy pi_{n+1} = pi_n R_n; with A = -(diag of all rates out) + the
changes of state at a level, D = diag(mu_h, mu_l), the matrices follow from the last level down (linear level reduction;
Gaver, Jacobs and Latouche, Adv. Appl. Prob. 16, 1984):

    R_{C-1} = lambda (-A_C)^-1,   R_n = lambda (-(A + R_{n+1} D))^-1

Nothing is subtracted but in the diagonals of the 2 x 2 matrices, so it is accurate below and above muhat.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .two_state_queue import LatencyError, TwoStateQueue, check_load

MOST_ROOM = 100_000


@dataclass(frozen=True, slots=True)
class FiniteQueue:
    """``length``: packets in the queue and in service on average; ``loss``: share of packets that find no room.

    ``delay_s``: mean time from arrival to departure of the packets that found room (Little).
    """

    length: float
    loss: float
    delay_s: float


def finite_queue(queue: TwoStateQueue, load: float, room: int) -> FiniteQueue:
    """The queue at ``load`` packets/s, 0 or more, stable or not, with room for 1..100 000 packets (the one in service
    included). :class:`LatencyError` for another load or room, and if both states serve nothing for ever.
    """
    check_load(load)
    if not 1 <= room <= MOST_ROOM:
        raise LatencyError(f"room for {room} packets: expected 1 to {MOST_ROOM}")
    if load == 0:
        # Who comes finds nobody: service that begins in the mean state.
        return FiniteQueue(0.0, 0.0, finite_queue(queue, 1e-9 * queue.muhat, min(room, 3)).delay_s)
    vectors = _stationary(queue, load, room)
    by_level = vectors.sum(axis=1)
    loss = float(by_level[-1])
    length = float(np.arange(room + 1) @ by_level)
    served = float(vectors[1:].sum(axis=0) @ np.array([queue.mu_h, queue.mu_l]))
    return FiniteQueue(length, loss, length / served if served > 0 else math.inf)


def _stationary(queue: TwoStateQueue, load: float, room: int) -> np.ndarray:
    """Probability of each level and state, float64[room + 1, 2]."""
    leave_h, leave_l = (queue.alpha_h, queue.alpha_l) if queue.alpha > 0 else (1.0, 1.0)
    down = np.array([queue.mu_h, queue.mu_l])
    changes = np.array([[-leave_h, leave_h], [leave_l, -leave_l]])
    rates = np.empty((room, 2, 2))
    local = changes - np.diag(down)  # the last level: nobody comes in
    for level in range(room - 1, -1, -1):
        a, b, c, d = -local[0, 0], -local[0, 1], -local[1, 0], -local[1, 1]
        rates[level] = load / (a * d - b * c) * np.array([[d, -b], [-c, a]])
        local = changes - np.diag(down + load) + rates[level] * down
    # Level 0 has no departures; its two equations differ by their sum only.
    local = changes - load * np.eye(2) + rates[0] * down
    first = np.array([local[1, 0], -local[0, 0]])
    vectors = np.empty((room + 1, 2))
    vectors[0] = np.abs(first) / np.abs(first).sum()
    for level in range(room):
        vectors[level + 1] = vectors[level] @ rates[level]
        total = vectors[level + 1].sum()
        if total > 1e200:
            vectors[: level + 2] /= total
    found: np.ndarray = vectors / vectors.sum()
    return found

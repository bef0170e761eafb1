"""Splits of private flows over two networks, and adaptive padding: their settings, and what they do to packets. Pure.

HyWF (Henri, EPFL thesis 9056, 2018, chapter 6): neither network can tell from its part which website is fetched. Per
access and direction the share p of network 1 is drawn uniformly in [0, 1]. Packets go in runs of geometric length with
mean n_cons; every run chooses network 1 with probability p. As a Markov chain: stay on network 1 with probability
1 - (1 - p) / n_cons, on network 2 with 1 - p / n_cons. If network 1 is costly, p is uniform in [0, 2 p_s], which sends
the share p_s on it. HyWF-AP pads before the split and draws p again every n_chp packets on average around p_d:
uniformly in [0, 2 p_d] if p_d <= 0.5, else in [2 p_d - 1, 1].

Adaptive padding (Shmatikov and Wang, ESORICS 2006, in the form of Juarez and others, ESORICS 2016): after each packet a
gap is drawn from a normal distribution that was fitted to the gaps of all traces; if no packet comes by then, a dummy
is sent, and the next gap is drawn.

The edge agent does the same on real frames (``dataplane/src/edge/hywf.rs``, ``padding.rs``). Times are seconds,
randomness is an argument, and packets are arrays: a study splits millions.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from .private_split import Padding, PrivateSplit

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

SILENCE_S = 1.0
"""An access ends with so much silence, and so does its padding."""
_LEAST_GAP_S = 1e-4
_AT_ONCE = 16


def fitted(traces: Iterable[FloatArray], max_per_s: float = 0.0) -> Padding:
    """The padding whose gaps are those of ``traces``: mean and standard deviation of the gaps of all of them together.

    Each trace has the times of one direction's packets in seconds, float64[n], not falling. Gaps of ``SILENCE_S`` and
    more are between accesses and do not count. ``max_per_s`` is the bound of the padding's rate, 0: that of
    :class:`Padding`. Without any gap the padding is the default.
    """
    gaps = [gap[gap < SILENCE_S] for gap in map(np.diff, traces)]
    joined = np.concatenate(gaps) if gaps else np.empty(0)
    if not len(joined):
        return Padding()
    found = Padding(max(1000.0 * float(joined.mean()), 0.1), 1000.0 * float(joined.std()))
    return found if not max_per_s else Padding(found.gap_ms, found.deviation_ms, max_per_s)


def gaps_s(padding: Padding, count: int, rng: np.random.Generator) -> FloatArray:
    """``count`` gaps in seconds, float64[count]: normal, as if drawn again while not above 0; at least 0.1 ms.

    They are drawn by the inverse of the distribution function, from the part of it above 0.
    """
    mean_s, deviation_s = padding.gap_ms / 1000.0, padding.deviation_ms / 1000.0
    if deviation_s <= 0.0:
        return np.full(count, max(mean_s, _LEAST_GAP_S))
    below = float(ndtr(-mean_s / deviation_s))
    found = mean_s + deviation_s * ndtri(below + (1.0 - below) * rng.random(count))
    return np.asarray(np.maximum(found, _LEAST_GAP_S))


def padded(
    times_s: FloatArray, padding: Padding, rng: np.random.Generator, silence_s: float = SILENCE_S
) -> tuple[FloatArray, BoolArray]:
    """The packets of one direction with padding: times float64[m] in order, and which of them are dummies, bool[m].

    ``times_s``: float64[n], not falling. Padding fills gaps, and ends ``silence_s`` after a packet. Its rate is not
    bounded here.
    """
    if not len(times_s):
        return times_s, np.zeros(0, dtype=np.bool_)
    until = np.minimum(np.append(times_s[1:], np.inf), times_s + silence_s)
    at = times_s + gaps_s(padding, len(times_s), rng)
    waits = at < until
    at, until = at[waits], until[waits]
    parts = [at]
    while len(at):
        # Most gaps between packets have no dummy; those that have one may have many.
        steps = at[:, None] + np.cumsum(gaps_s(padding, _AT_ONCE * len(at), rng).reshape(-1, _AT_ONCE), axis=1)
        waits = steps < until[:, None]
        parts.append(steps[waits])
        at, until = steps[waits[:, -1], -1], until[waits[:, -1]]
    dummies = np.concatenate(parts)
    together = np.concatenate([times_s, dummies])
    order = np.argsort(together, kind="stable")
    return together[order], order >= len(times_s)


def networks(
    times_s: FloatArray,
    split: PrivateSplit,
    rng: np.random.Generator,
    *,
    dummies: BoolArray | None = None,
    p_d: float | None = None,
    silence_s: float = SILENCE_S,
) -> IndexArray:
    """Where the packets of one direction go: 1 or 2 each, int64[n].

    ``times_s``: float64[n], not falling; ``dummies`` says which are padding, which begins no access. The padding of
    ``split`` is not added here (:func:`padded`). ``p_d``: that of every access; None draws it.
    """
    found = np.empty(len(times_s), dtype=np.int64)
    for begin, end in _accesses(times_s, dummies, silence_s):
        found[begin:end] = _one_access(end - begin, split, rng, p_d)
    return found


def shares_of_accesses(count: int, split: PrivateSplit, rng: np.random.Generator) -> FloatArray:
    """The p_d of ``count`` accesses, float64[count]: the mean share of network 1 in each."""
    widest = 1.0 if split.cost_share is None else 2.0 * split.cost_share
    return widest * rng.random(count)


def _accesses(times_s: FloatArray, dummies: BoolArray | None, silence_s: float) -> Iterable[tuple[int, int]]:
    """Begin and end of the packets of each access."""
    if not len(times_s):
        return []
    users = np.arange(len(times_s)) if dummies is None else np.flatnonzero(~dummies)
    later = users[1:][np.diff(times_s[users]) >= silence_s]
    cuts = [0, *later.tolist(), len(times_s)]
    return pairwise(cuts)


def _one_access(count: int, split: PrivateSplit, rng: np.random.Generator, p_d: float | None) -> IndexArray:
    mean = float(shares_of_accesses(1, split, rng)[0]) if p_d is None else p_d
    shares = np.full(count, mean)
    if split.n_chp is not None:
        period = np.cumsum(rng.random(count) < 1.0 / split.n_chp)
        width = 2.0 * min(mean, 1.0 - mean)
        drawn = max(2.0 * mean - 1.0, 0.0) + width * rng.random(int(period[-1]) + 1)
        shares = drawn[period]
    begins = rng.random(count) < 1.0 / split.n_cons
    begins[0] = True
    chosen = np.where(rng.random(count) < shares, 1, 2)
    # Each packet goes where the run that it is in went.
    run = np.maximum.accumulate(np.where(begins, np.arange(count), 0))
    return np.asarray(chosen[run], dtype=np.int64)

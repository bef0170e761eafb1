"""The optimal rates of a multipath from busy times alone, without capacities or domains (docs/explanation/bandit.md).

A probe sends S rate vectors x^(i) over the M paths, one after the other, and measures the busy time mu_l^(i) of every
link l of the multipath; a silent slot before it measured mu_l^(0), the traffic of others. Busy time is linear in the
rates (thesis [2.2]), so alpha_l, the busy time of link l per Mb/s on each path, follows from

    min  || X alpha_l - (mu_l - mu_l^(0)) ||,   alpha_l >= 0          [4.5], rows weighted by 1 / |x^(i)|

which is X^-1 mu_l for M independent vectors without noise. The optimum is the LP

    max  1'x   subject to   alpha_l' x <= (1 - delta) / F_l for every link l,   x >= 0          [2.4]

with F_l the number of flows that interfere on l. A vector that saturates a link measured nothing (busy time stops at
1): its measurement is void and is repeated at half the rate. Probes must be sent in batches, or frames do not
aggregate and busy time is not linear.

*Noise.* A maximum over links of noisy busy times is biased upwards, and the rates downwards: 20 % noise on four equally
busy links costs 15 % of the rate, and averaging rates afterwards does not undo it. So several measurements are solved
together, and links that are known to be busy at the same times (``groups``: one domain) are averaged before the LP.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import linprog, nnls

from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.core.optimum import binding_rows

from .policy import FloatArray, IndexArray

PROBE_SHARE = 0.75
SATURATED_BUSY = 0.97


class MeasurementError(HyroadsError):
    """Busy times do not tell the rates: some path was never measured, or values make no sense."""


@dataclass(frozen=True, slots=True, eq=False)
class BusySample:
    """One rate vector ``rates_mbps`` [M] and the busy time of each link, ``busy`` [L], without the others' ``silent``
    [L].
    """

    rates_mbps: FloatArray
    busy: FloatArray
    silent: FloatArray

    @property
    def saturated(self) -> bool:
        """Whether some link was busy all the time; then the sample is void."""
        return bool((self.busy >= SATURATED_BUSY).any())

    @property
    def own_busy(self) -> FloatArray:
        """[L]: the busy time that the probe itself caused, at least 0."""
        return np.maximum(self.busy - self.silent, 0.0)


def busy_sample(
    rates_mbps: Sequence[float] | FloatArray,
    busy: Sequence[float] | FloatArray,
    silent: Sequence[float] | FloatArray | None = None,
) -> BusySample:
    """A checked sample; rates must be finite and not negative with one positive, busy times in [0, 1].

    Measured busy times may be a little outside [0, 1] and are cut; ``silent`` is 0 by default.
    """
    rates, busy_times = np.asarray(rates_mbps, dtype=np.float64), np.asarray(busy, dtype=np.float64)
    quiet = np.zeros_like(busy_times) if silent is None else np.asarray(silent, dtype=np.float64)
    if rates.ndim != 1 or busy_times.ndim != 1 or quiet.shape != busy_times.shape:
        raise MeasurementError("a sample has one rate per path and one busy time per link")
    if not (np.isfinite(rates).all() and (rates >= 0).all() and (rates > 0).any()):
        raise MeasurementError(f"rates of a probe must be finite, not negative and not all 0, got {rates.tolist()}")
    if not (np.isfinite(busy_times).all() and np.isfinite(quiet).all()):
        raise MeasurementError("busy times must be finite")
    return BusySample(rates, np.clip(busy_times, 0.0, 1.0), np.clip(quiet, 0.0, 1.0))


def probe_vectors(best_rates_mbps: Sequence[float] | FloatArray, share: float = PROBE_SHARE) -> FloatArray:
    """X [M, M]: path i alone at ``share`` of its best single-path rate."""
    return np.diag(np.asarray(best_rates_mbps, dtype=np.float64) * share)


def repeat_at(sample: BusySample) -> FloatArray | None:
    """The rate vector [M] with which a void sample is repeated, None if the sample is good."""
    return sample.rates_mbps / 2.0 if sample.saturated else None


def airtime_per_mbps(samples: Sequence[BusySample]) -> FloatArray:
    """alpha, [L, M] in s/Mb, from at least M samples with independent rate vectors; saturated ones are left out."""
    good = [sample for sample in samples if not sample.saturated]
    if not good:
        raise MeasurementError("every sample saturates a link" if samples else "no samples")
    if len({(len(s.rates_mbps), len(s.busy)) for s in good}) > 1:
        raise MeasurementError("samples differ in the number of paths or links")
    rates = np.array([sample.rates_mbps for sample in good])
    busy = np.array([sample.own_busy for sample in good])
    weights = 1.0 / np.linalg.norm(rates, axis=1, keepdims=True)
    rates, busy = rates * weights, busy * weights
    if np.linalg.matrix_rank(rates, tol=1e-6) < rates.shape[1]:
        raise MeasurementError(f"the {len(good)} usable samples do not cover all {rates.shape[1]} paths independently")
    if ((rates > 0).sum(axis=1) == 1).all():
        # One path at a time, the usual probe: the columns are independent and least squares is a weighted mean.
        return np.asarray((busy.T @ rates) / np.square(rates).sum(axis=0))
    return np.array([nnls(rates, column)[0] for column in busy.T])


def rates_from_airtime(
    airtime: FloatArray,
    flows_on_link: Sequence[float] | FloatArray,
    margin: float = 0.0,
    groups: IndexArray | None = None,
) -> FloatArray:
    """The optimal rates [M] in Mb/s for ``airtime`` alpha [L, M], F [L] >= 1 and delta = ``margin``.

    ``groups`` [L]: links with the same number are in one interference domain; their rows are averaged.
    """
    sharing = np.asarray(flows_on_link, dtype=np.float64)
    if airtime.ndim != 2 or sharing.shape != airtime.shape[:1] or not (sharing >= 1).all():
        raise MeasurementError("F must have one number, at least 1, per link")
    if not 0.0 <= margin < 1.0:
        raise MeasurementError(f"the margin must be in [0, 1), got {margin}")
    loads = airtime * (sharing / (1.0 - margin))[:, None]
    if groups is not None:
        loads = _averaged(loads, np.asarray(groups))
    silent_paths = np.flatnonzero(~(loads > 0).any(axis=0))
    if len(silent_paths):
        raise MeasurementError(f"path {silent_paths[0]} made no link busy: its probe did not get through")
    if loads.shape[1] == 1:
        return np.asarray(1.0 / loads.max(axis=0))
    # Every path is scaled to its own best rate, so that the solver's absolute tolerances fit slow and fast paths alike.
    scale = loads.max(axis=0)
    rows = binding_rows(loads / scale)
    solved: Any = linprog(-1.0 / scale, A_ub=rows, b_ub=np.ones(len(rows)), method="highs")
    if solved.x is None:
        raise MeasurementError(f"no optimum from the measured busy times: {solved.message}")
    return np.asarray(np.maximum(solved.x, 0.0) / scale)


def optimal_rates(
    samples: Sequence[BusySample],
    flows_on_link: Sequence[float] | FloatArray,
    margin: float = 0.0,
    groups: IndexArray | None = None,
) -> FloatArray:
    """Both steps: the optimal rates [M] in Mb/s of the multipath that was probed."""
    return rates_from_airtime(airtime_per_mbps(samples), flows_on_link, margin, groups)


def _averaged(loads: FloatArray, groups: IndexArray) -> FloatArray:
    """[G, M]: means of the rows of each group."""
    if groups.shape != loads.shape[:1]:
        raise MeasurementError("groups must have one number per link")
    _, member = np.unique(groups, return_inverse=True)
    sums = np.zeros((int(member.max()) + 1, loads.shape[1]))
    np.add.at(sums, member, loads)
    return sums / np.bincount(member)[:, None]

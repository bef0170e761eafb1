"""The optimal rates of a multipath from busy times alone, without capacities or domains (docs/explanation/bandit.md).

Busy time is linear in the rates (Henri, EPFL thesis 9056, 2018, [2.2]), so a probe, which sends at known rates and
measures busy times, gives alpha_l, the busy time of link l per Mb/s on each path. The optimum is the LP [2.4]

    max  1'x   subject to   alpha_l' x <= (1 - delta) / F_l for every link l,   x >= 0

with F_l the number of flows that interfere on l. A probe that saturates a link measured nothing (busy time stops at 1).
Probes must be sent in batches, or frames do not aggregate and busy time is not linear.

A maximum over links of noisy busy times is biased upwards, and the rates downwards: 20 % noise on four equally busy
links costs 15 % of the rate. So rows of links that are busy at the same times are averaged before (``arm_airtime``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.optimize import linprog

from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.core.optimum import binding_rows

from .policy import FloatArray

PROBE_SHARE = 0.75
SATURATED_BUSY = 0.97


class MeasurementError(HyroadsError):
    """Busy times do not tell the rates: some path was never measured, or values make no sense."""


def rates_from_airtime(
    airtime: FloatArray, flows_on_link: Sequence[float] | FloatArray, margin: float = 0.0
) -> FloatArray:
    """The optimal rates [M] in Mb/s for ``airtime`` alpha [L, M], F [L] >= 1 and delta = ``margin``.

    Raises :class:`MeasurementError` if these make no sense, or a path made no link busy.
    """
    sharing = np.asarray(flows_on_link, dtype=np.float64)
    if airtime.ndim != 2 or sharing.shape != airtime.shape[:1] or not (sharing >= 1).all():
        raise MeasurementError("F must have one number, at least 1, per link")
    if not 0.0 <= margin < 1.0:
        raise MeasurementError(f"the margin must be in [0, 1), got {margin}")
    loads = airtime * (sharing / (1.0 - margin))[:, None]
    silent_paths = np.flatnonzero(~(loads > 0).any(axis=0))
    if len(silent_paths):
        raise MeasurementError(f"path {silent_paths[0]} made no link busy: its probe did not get through")
    # Every path is scaled to its own best rate, so that the solver's absolute tolerances fit slow and fast paths alike.
    scale = loads.max(axis=0)
    rows = binding_rows(loads / scale)
    solved: Any = linprog(-1.0 / scale, A_ub=rows, b_ub=np.ones(len(rows)), method="highs")
    if solved.x is None:
        raise MeasurementError(f"no optimum from the measured busy times: {solved.message}")
    return np.asarray(np.maximum(solved.x, 0.0) / scale)

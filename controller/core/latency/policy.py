"""What a flow marked ``latency`` shall do: one technology, or a split, for given statistics and load (spec 04, 1).

Below lambda_0 it uses the best single technology, above the split p*(lambda). A decision in force is kept as long as
its delay is within a tolerance of the best one, so that noise in load and statistics does not move packets to and fro.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hyroads.controller.core.latency.choice import best_single
from hyroads.controller.core.latency.split import optimal_share, split_delay_s
from hyroads.controller.core.latency.two_state_queue import LatencyError, TwoStateQueue, mean_delay_s


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
    kept_s = _delay_s(first, second, load, current.share)
    if math.isfinite(kept_s) and kept_s <= best.delay_s * (1.0 + settings.tolerance):
        return LatencyDecision(current.share, kept_s)
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

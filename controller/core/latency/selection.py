"""A latency flow's decision among several paths: which one, or which split of the two best, and why. Pure.

Queues are in Mb/s and become packets/s by the flow's mean frame. The theory is of two technologies: of
more, the two with the highest mean rates take part.

*Pacing, and the airtime that the flow may count on.* Frames are split in proportion to the paths' rates, so the rates
of shares p_k are s p_k. A flow that needs less than it may have is paced as fast as the technologies go, because every
wait at the pacer is delay:

    s = min_k high_k / p_k              high_k: rate of path k in its better state

and the others leave it what it needs, need p_k on every path. One that wants more gets

    s = min(fair, min_k sustained_k / p_k)      sustained_k: mean rate times the share of time that is left
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .fit import packets_per_s, scaled
from .policy import LatencyDecision, LatencySettings, decide, single_limit, split_delay_s
from .two_state_queue import TwoStateQueue, mean_delay_s

Path = tuple[str, ...]

# A split that gives a path less than this is not worth the path.
LEAST_SHARE = 0.02
_DEFAULT = LatencySettings()


@dataclass(frozen=True)
class Choice:
    """Share of the load by path (0 to 1, 1 in all); the mean delay to expect (None: overloaded), and the reason.

    ``lambda0_mbps`` is the load up to which one path alone is best (None: there is only one).
    """

    shares: Mapping[Path, float]
    load_mbps: float
    delay_s: float | None
    lambda0_mbps: float | None
    reason: str

    def document(self) -> dict[str, Any]:
        """For REST."""
        return {
            "load_mbps": self.load_mbps,
            "lambda0_mbps": self.lambda0_mbps,
            "expected_delay_ms": None if self.delay_s is None else 1e3 * self.delay_s,
            "reason": self.reason,
        }


def select(
    queues: Mapping[Path, TwoStateQueue],
    load_mbps: float,
    frame_bytes: float,
    *,
    labels: Mapping[Path, str],
    before: Mapping[Path, float] | None = None,
    settings: LatencySettings = _DEFAULT,
) -> Choice:
    """The choice for a load; ``before`` are the shares in force, which stay while they are about as good.

    ``queues`` has one path or more, all rates in Mb/s; ``labels`` name the paths in the reason.
    """
    factor = packets_per_s(1.0, frame_bytes)
    in_packets = {path: scaled(queue, factor) for path, queue in queues.items()}
    best, *others = sorted(in_packets, key=lambda path: -in_packets[path].muhat)
    load = load_mbps * factor
    if not others:
        delay_s = mean_delay_s(in_packets[best], load)
        return Choice({best: 1.0}, load_mbps, _finite(delay_s), None, "it is the only path")
    # In the order of the route, so that nothing depends on which of two is a hair quicker now.
    first, second = (path for path in in_packets if path in (best, others[0]))
    pair = (in_packets[first], in_packets[second])
    share = _share_of(first, second, before)
    current = None if share is None else LatencyDecision(share, math.inf)
    ideal, chosen = decide(*pair, load, None, settings), decide(*pair, load, current, settings)
    share = _worthwhile(chosen.share)
    limit = single_limit(*pair)
    words = _reason(labels, (first, second), share, limit / factor)
    if load >= settings.full * (pair[0].muhat + pair[1].muhat):
        words = "the load is all that both carry: in proportion to their mean rates"
    elif abs(chosen.share - ideal.share) > LEAST_SHARE:
        words = f"kept: within {100 * settings.tolerance:.0f} % of the best, {ideal.share:.2f} on {labels[first]}"
    delay_s = split_delay_s(*pair, load, share) if load > 0 else chosen.delay_s
    shares = {first: share, second: 1.0 - share, **dict.fromkeys(set(in_packets) - {first, second}, 0.0)}
    return Choice(shares, load_mbps, _finite(delay_s), limit / factor, words)


def _share_of(first: Path, second: Path, before: Mapping[Path, float] | None) -> float | None:
    """The share of the first in force; None if these two were not the ones in use."""
    if before is None:
        return None
    total = before.get(first, 0.0) + before.get(second, 0.0)
    return before.get(first, 0.0) if math.isclose(total, 1.0) else None


def _worthwhile(share: float) -> float:
    return 0.0 if share < LEAST_SHARE else 1.0 if share > 1.0 - LEAST_SHARE else share


def _reason(labels: Mapping[Path, str], pair: tuple[Path, Path], share: float, limit_mbps: float) -> str:
    if 0.0 < share < 1.0:
        return f"above {limit_mbps:.2f} Mb/s a split is best: {share:.2f} on {labels[pair[0]]}"
    name = labels[pair[0] if share else pair[1]]
    return f"{name} alone is best up to {limit_mbps:.2f} Mb/s" if limit_mbps > 0 else f"{name} alone is best"


def _finite(delay_s: float) -> float | None:
    return delay_s if math.isfinite(delay_s) else None


@dataclass(frozen=True, slots=True)
class Pace:
    """Rates of a flow's paths in Mb/s: what they may send at, and what others leave to them on average."""

    rates_mbps: tuple[float, ...]
    reserved_mbps: tuple[float, ...]


def pace(
    shares: Sequence[float], high: Sequence[float], sustained: Sequence[float], *, need: float, fair: float
) -> Pace:
    """Pace of a flow with these shares per path; all rates in Mb/s, ``fair`` (inf: no limit) is for the whole flow."""
    used = [index for index, share in enumerate(shares) if share > 0]
    most = min([fair, *(sustained[index] / shares[index] for index in used)])
    burst = min(high[index] / shares[index] for index in used)
    total, reserved = (max(burst, need), need) if need <= most else (most, most)
    return Pace(tuple(total * share for share in shares), tuple(reserved * share for share in shares))


def damped(before: float, wanted: float) -> float:
    """Half way in the logarithm, so that two who answer each other's rates do not swing; inf stands for no limit."""
    if not math.isfinite(wanted) or not math.isfinite(before) or min(before, wanted) <= 0:
        return wanted
    return math.sqrt(before * wanted)

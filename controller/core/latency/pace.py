"""How fast the paths of a latency flow are paced, and how much airtime it may count on. Pure.

Frames are split in proportion to the paths' rates, so the rates of shares p_k are s p_k. A flow that needs less than
it may have is paced as fast as the technologies go, because every wait at the pacer is delay:

    s = min_k high_k / p_k              high_k: rate of path k in its better state

and the others leave it what it needs, need p_k on every path. One that wants more gets

    s = min(fair, min_k sustained_k / p_k)      sustained_k: mean rate times the share of time that is left
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


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

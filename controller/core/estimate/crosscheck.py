"""Do counters of the same port agree? IF-MIB, OpenFlow port statistics and agents' reports, compared as rates.

They count different things, so all are brought to L2 payload first, with o = bytes per frame that the source counts
besides the payload:

    rate = 8e-6 (octets - o frames) / interval            [Mb/s]

IF-MIB (RFC 2863) counts octets "including framing characters", which Linux takes to be the 14-byte header without FCS,
as OpenFlow's port statistics do; agents count L2 payload. An agent sees only frames of multipath flows, so its figure
is a *lower bound*: it contradicts only by exceeding the others.

Two readings agree if they differ by at most ``tolerance`` of the larger one plus ``slack_mbps`` plus what the
different reading times allow: a source that is read every T seconds may be up to a frame burst off, hence
``skew_s / interval`` of the rate. With three readings the one that disagrees with two that agree is named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations
from statistics import fmean

from .filters import EstimateError, Quality

ETHERNET_HEADER = 14


class CounterSource(StrEnum):
    """Who counted."""

    IF_MIB = "if-mib"
    OPENFLOW = "openflow"
    AGENT = "agent"


_HEADER = {CounterSource.IF_MIB: ETHERNET_HEADER, CounterSource.OPENFLOW: ETHERNET_HEADER, CounterSource.AGENT: 0}
_LOWER_BOUND = frozenset({CounterSource.AGENT})


@dataclass(frozen=True, slots=True)
class Reading:
    """Growth of a port's counters in one direction over ``interval_s`` that ended at ``time_s``."""

    source: CounterSource
    octets: int
    frames: int
    interval_s: float
    time_s: float

    def __post_init__(self) -> None:
        if self.interval_s <= 0 or self.octets < 0 or self.frames < 0:
            raise EstimateError(f"a reading of {self.source} needs a positive interval and counts of 0 or more")

    @property
    def rate_mbps(self) -> float:
        """At L2 payload."""
        return 8e-6 * max(0, self.octets - _HEADER[self.source] * self.frames) / self.interval_s


@dataclass(frozen=True, slots=True)
class CheckSettings:
    """See the module; readings that ended more than ``max_apart_s`` apart say nothing about each other."""

    tolerance: float = 0.1
    slack_mbps: float = 0.1
    skew_s: float = 0.05
    max_apart_s: float = 2.0


@dataclass(frozen=True, slots=True)
class CrossCheck:
    """The rate to use in Mb/s (None: none is to be trusted), how good it is, who disagrees, and why."""

    rate_mbps: float | None
    quality: Quality
    outliers: tuple[CounterSource, ...]
    reason: str


def cross_check(readings: Sequence[Reading], now_s: float, settings: CheckSettings = CheckSettings()) -> CrossCheck:
    """Compare readings of one port and direction, at most one per source."""
    sources = [reading.source for reading in readings]
    if len(set(sources)) < len(sources):
        raise EstimateError("expected at most one reading per source")
    fresh = [r for r in readings if now_s - r.time_s <= settings.max_apart_s]
    full = [r for r in fresh if r.source not in _LOWER_BOUND]
    if not fresh:
        quality = Quality.STALE if readings else Quality.MISSING
        return CrossCheck(None, quality, (), "no reading is fresh" if readings else "there is no reading")
    disagree = [(a, b) for a, b in combinations(fresh, 2) if not _agree(a, b, settings)]
    if disagree:
        return _disputed(fresh, full, disagree)
    rate = fmean(r.rate_mbps for r in full) if full else fresh[0].rate_mbps
    if len(full) < 2:
        only = (full or fresh)[0].source
        return CrossCheck(rate, Quality.UNSURE, (), f"only {only} counts everything: nothing to compare with")
    return CrossCheck(rate, Quality.GOOD, (), "")


def _disputed(fresh: list[Reading], full: list[Reading], disagree: list[tuple[Reading, Reading]]) -> CrossCheck:
    said = "; ".join(f"{a.source} {a.rate_mbps:.3g} Mb/s, {b.source} {b.rate_mbps:.3g} Mb/s" for a, b in disagree)
    in_every = [r for r in fresh if all(r in pair for pair in disagree)]
    rest = [r for r in full if r not in in_every]
    if len(in_every) == 1 and len(fresh) > 2 and rest:
        outlier = in_every[0].source
        rate = fmean(r.rate_mbps for r in rest)
        return CrossCheck(rate, Quality.UNSURE, (outlier,), f"{outlier} disagrees with the others: {said}")
    # An agent above both counters of its port and a counter above the other can't be told apart: nobody is believed.
    names = tuple(dict.fromkeys(r.source for pair in disagree for r in pair))
    return CrossCheck(None, Quality.CONTRADICTORY, names, f"readings disagree: {said}")


def _agree(first: Reading, second: Reading, settings: CheckSettings) -> bool:
    larger, smaller = sorted((first, second), key=lambda r: r.rate_mbps, reverse=True)
    if larger.source not in _LOWER_BOUND and smaller.source in _LOWER_BOUND:
        return True
    skew = settings.skew_s / min(first.interval_s, second.interval_s)
    allowed = (settings.tolerance + skew) * larger.rate_mbps + settings.slack_mbps
    return larger.rate_mbps - smaller.rate_mbps <= allowed

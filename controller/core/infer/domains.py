"""Interference from measurements: what saturating pair tests say of the default rule (``carrier_sensing_rule``).

Two links are saturated alone and together; what is left of each is its interference ratio:

    LIR = (r1' / r1 + r2' / r2) / 2

(Padhye et al., "Estimation of link interference in static multi-hop wireless networks", IMC 2005, with each link
normalised by its own rate, as airtime is shared, not bits): 1/2 if they take turns, 1 if they don't see each other.
LIR is taken from several intervals; with its standard error s (delta method on the four means) and Student's t at
the Welch-Satterthwaite degrees of freedom (Welch, Biometrika 34, 1947), it is a conflict if LIR + t s < 3/4, none if
LIR - t s > 3/4, and else undecided: test again. A pair keeps what the default rule says until a test decides.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean, variance

from scipy import special

from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.core.interference import ExplicitInterference, Interference, ones_at
from hyroads.controller.core.network import Link

Pair = frozenset[str]
"""Two link ids."""


class PairTestError(HyroadsError):
    """The measurements of a pair test can't be used."""


class Verdict(StrEnum):
    """What a pair test says."""

    CONFLICT = "conflict"
    INDEPENDENT = "independent"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class PairMeasurement:
    """Rates in Mb/s of two links, interval by interval: each alone, and both at once (the same intervals)."""

    first: str
    second: str
    first_alone: tuple[float, ...]
    second_alone: tuple[float, ...]
    first_together: tuple[float, ...]
    second_together: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class PairResult:
    """The verdict on a pair, its LIR and the half width of the confidence interval."""

    pair: Pair
    verdict: Verdict
    lir: float
    half_width: float


LIR_THRESHOLD = 0.75
CONFIDENCE = 0.99
MIN_INTERVALS = 3
# Rates differ by at least this much from interval to interval, whatever a handful of samples happens to show.
_LEAST_RELATIVE_ERROR = 0.01


def judge(test: PairMeasurement, confidence: float = CONFIDENCE) -> PairResult:
    """Conflict or not; :class:`PairTestError` if a link had no traffic alone or there are too few intervals."""
    columns = (test.first_alone, test.first_together, test.second_alone, test.second_together)
    pair = f"pair {test.first}, {test.second}"
    if min(len(column) for column in columns) < MIN_INTERVALS:
        raise PairTestError(f"{pair}: expected at least {MIN_INTERVALS} intervals of each kind")
    if any(not math.isfinite(rate) or rate < 0 for column in columns for rate in column):
        raise PairTestError(f"{pair}: rates must be numbers of 0 or more")
    if not (fmean(test.first_alone) > 0 and fmean(test.second_alone) > 0):
        raise PairTestError(f"{pair}: a link carried nothing when alone")
    lir = 0.0
    parts: list[tuple[float, int]] = []
    for alone, together in (columns[:2], columns[2:]):
        ratio = fmean(together) / fmean(alone)
        lir += ratio / 2
        parts += [(_variance_of_mean(together) / fmean(alone) ** 2 / 4, len(together))]
        parts += [(_variance_of_mean(alone) * ratio**2 / fmean(alone) ** 2 / 4, len(alone))]
    total = sum(part for part, _ in parts)
    half = 0.0
    if total > 0:
        freedom = total**2 / sum(part**2 / (count - 1) for part, count in parts)
        # Student's t. ``scipy.stats`` has it as well, and takes a second to import.
        half = float(special.stdtrit(freedom, 0.5 + confidence / 2)) * math.sqrt(total)
    return PairResult(frozenset({test.first, test.second}), _verdict(lir, half), lir, half)


def _variance_of_mean(values: Sequence[float]) -> float:
    floor = (_LEAST_RELATIVE_ERROR * fmean(values)) ** 2
    return max(variance(values), floor) / len(values)


def _verdict(lir: float, half: float) -> Verdict:
    if lir + half < LIR_THRESHOLD:
        return Verdict.CONFLICT
    return Verdict.INDEPENDENT if lir - half > LIR_THRESHOLD else Verdict.UNDECIDED


def must_conflict(first: Link, second: Link) -> bool:
    """Links of one technology that share a node: an interface does one thing at a time, no test is needed."""
    ends = {first.source, first.target} & {second.source, second.target}
    return first.technology == second.technology and bool(ends)


def learned_interference(
    links: Sequence[Link],
    default: Interference,
    verdicts: Mapping[Pair, Verdict],
    unshared: frozenset[str] = frozenset(),
) -> Interference:
    """The default rule, overruled by decided pair tests; symmetric and reflexive. O(pairs that contend).

    A verdict holds for the two directed links that were tested only: the reverse links have other receivers. Verdicts
    that name an unknown link, and 'independent' ones on links that share an interface, are ignored. If nothing differs
    from the default rule, that is returned itself.
    """
    index = {link.id: i for i, link in enumerate(links)}
    more: list[tuple[int, ...]] = []
    less: list[tuple[int, ...]] = []
    for names, verdict in verdicts.items():
        pair = tuple(sorted(index[link] for link in names if link in index))
        if len(pair) == 2:
            first, second = links[pair[0]], links[pair[1]]
            may_be_clear = first.technology in unshared or not must_conflict(first, second)
            if verdict is Verdict.CONFLICT and not default.contends(*pair):
                more.append(pair)
            elif verdict is Verdict.INDEPENDENT and may_be_clear and default.contends(*pair):
                less.append(pair)
    if not (more or less):
        return default
    shape = (default.link_count, default.link_count)
    added, removed = ones_at(more, shape), ones_at(less, shape)
    return ExplicitInterference(links, default.contention_matrix() + added + added.T - removed - removed.T)

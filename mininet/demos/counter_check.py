"""What a check that falls short is worth: the same moments on a plain lane beside the run decide.

A rate is judged beside the lane's mean over the same time: measured / (theory x lane) against its bound. The more the
lane fell short, the more that quotient errs. So all rates of the run that fall short are judged together, by the mean
of their deviations, and there are three outcomes: they hold, they are failures, or they are too near to their bounds to
decide. More runs decide then (``judge_runs``). A single rate that is far below its bound is a failure by itself.

TCP loses more rate than time is stolen, and how much varies by more than 10 %. Where the lane fell short, UDP over the
same paths directly afterwards is judged in its place. A flow that learns is not judged there. Times, losses and other
figures that lateness spoils are not judged if the lane had a bad moment. Upper bounds on rates, and counts that no
lateness changes, always count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import sqrt
from statistics import mean
from typing import Any

from hyroads.mininet.reference import LEAST, Lane

from .checks import RATE, Check

# A frame of the lane waits for one forwarder; one of a demo for several agents, switches and the medium, each late by
# itself. So a demo loses more than the lane, by this part of what the lane loses, give or take the other one. With a
# fifth of the processors stolen, healthy demos carry 1.00 to 1.04 of their bounds x lane together, and 0.94 to 1.06 one
# by one; with agents that pace at 0.9 it is 0.90 to 0.95, and 0.87 to 0.97 (docs/benchmarks.md).
LOST_BESIDE = 0.18
DOUBT = 0.1
# A lane that carries less is no measure of what a demo can carry.
LEAST_LANE = 0.6
# Where the lane carries all, a rate is judged by its bound alone, as figures are rounded.
LEAST_DOUBT = 1e-3
# Doubts below the expected figure at which one rate is a failure by itself. No rate has more weight in a mean.
ALONE = 6.0
MOST_WEIGHT = 2.0
# Runs that confirm a failure beside a lane that fell short.
CONFIRMED = 2
# TCP that carries less than this part of its bound x lane is undecided, whatever UDP carries.
LEAST_TCP = 0.5
# Units of what the controller knows or not, however late it is.
EXACT = frozenset({"flows", "numbers"})


class Judgement(StrEnum):
    """What becomes of a check that falls short."""

    FAILURE = "a failure"
    HOLDS = "holds beside it"
    UNDECIDED = "too near to its bound to decide"
    OPEN = "not judged"


@dataclass(frozen=True)
class CounterCheck:
    """A check that falls short, and the share of its rate that the plain lane carried meanwhile."""

    check: Check
    reference: float
    judgement: Judgement
    beside: float | None = None
    """Rates only: measured / (theory x lane), of the check or of the UDP measured in its place."""
    least: float | None = None
    """The bound of ``beside``."""
    deviation: float | None = None
    """How far ``beside`` is above the figure expected at the bound, in doubts (``deviation``)."""

    @property
    def counts(self) -> bool:
        """Whether it is a failure of the run."""
        return self.judgement is Judgement.FAILURE

    def document(self) -> dict[str, object]:
        """The entry ``counter_checks`` of a verdict."""
        return {
            "what": self.check.what,
            "reference": round(self.reference, 4),
            "wanted": LEAST,
            "beside": None if self.beside is None else round(self.beside, 4),
            "least": self.least,
            "deviation": None if self.deviation is None else round(self.deviation, 2),
            "judgement": self.judgement.name.lower(),
            "counts": self.counts,
        }

    def line(self) -> str:
        """One line of the verdict."""
        words = "the plain lane beside it carried"
        beside = "" if self.beside is None else f", measured beside it {self.beside:.3f} (wanted {self.least:.2f})"
        beside = f"{beside} by UDP" if beside and self.check.udp is not None else beside
        return f"     {self.check.what}: {words} {self.reference:.3f} of its rate{beside}: {self.judgement}"


def expected(reference: float) -> float:
    """The part of its bound x lane that a demo at its bound carries beside a lane that carried ``reference``."""
    return 1 - LOST_BESIDE * (1 - reference)


def deviation(beside: float, reference: float, least: float) -> float:
    """How far a rate beside the lane is above the figure expected at its bound ``least``, in doubts."""
    return (beside / least - expected(reference)) / max(LEAST_DOUBT, DOUBT * (1 - reference))


def judge_rates(deviations: Sequence[float]) -> Judgement:
    """The outcome of rates that fall short, of one or of several runs.

    The zone in which the mean of n deviations is undecided is narrower by the square root of n.
    """
    if min(deviations) < -ALONE:
        return Judgement.FAILURE
    found, decided = mean(max(-MOST_WEIGHT, min(each, MOST_WEIGHT)) for each in deviations), 1 / sqrt(len(deviations))
    if found >= decided:
        return Judgement.HOLDS
    return Judgement.FAILURE if found < -decided else Judgement.UNDECIDED


def judge_runs(runs: Sequence[Sequence[Mapping[str, Any]]]) -> Judgement:
    """The outcome of several runs of one demo, none of which has passed.

    ``runs`` has the entry ``counter_checks`` of each document. A failure that the machine has no part in is one at
    once. Rates that fail beside a lane that fell short do so in ``CONFIRMED`` runs: programs that take their processors
    from the switches of a demo, and not from the lane, come and go. Runs that are undecided are judged together.
    """
    failures = [[each for each in run if each["counts"]] for run in runs]
    failed = sum(1 for run in failures if run)
    if failed >= CONFIRMED or not all(_is_spoilt(each) for run in failures for each in run):
        return Judgement.FAILURE
    found = [each["deviation"] for run in runs for each in run if each["deviation"] is not None]
    return judge_rates(found) if found and not failed else Judgement.UNDECIDED


def _is_spoilt(entry: Mapping[str, Any]) -> bool:
    """Whether the machine has a part in a failure."""
    return entry["deviation"] is not None and entry["reference"] < LEAST


def counter_checks(checks: Sequence[Check], lane: Lane) -> list[CounterCheck]:
    """One for each check that falls short."""
    found = [_counter_check(check, lane) for check in checks if not check.ok]
    deviations = [each.deviation for each in found if each.deviation is not None]
    if not deviations:
        return found
    together = judge_rates(deviations)
    return [each if each.deviation is None else _judged(each, together) for each in found]


def _judged(rate: CounterCheck, together: Judgement) -> CounterCheck:
    """A rate, judged with all of its run; TCP that carries next to nothing stays undecided where UDP holds."""
    stays = together is Judgement.HOLDS and rate.check.udp is not None and _is_little(rate.check, rate.reference)
    return rate if stays else replace(rate, judgement=together)


def are_decided(checks: Sequence[Check], found: Sequence[CounterCheck]) -> bool:
    """Whether a run without failures has passed: it has a rate that holds, and none is undecided."""
    if any(each.judgement is Judgement.UNDECIDED for each in found):
        return False
    holding = (each.judgement is Judgement.HOLDS for each in found)
    return any(holding) or any(check.ok and check.unit == RATE and check.at_least is not None for check in checks)


def _counter_check(check: Check, lane: Lane) -> CounterCheck:
    during = check.during or lane.span_s
    if check.unit != RATE:
        worst = lane.worst_ratio(*during)
        counts = worst >= LEAST or check.unit in EXACT
        return CounterCheck(check, worst, Judgement.FAILURE if counts else Judgement.OPEN)
    reference = lane.ratio(*during)
    if check.at_most is not None and check.ratio > check.at_most:
        return CounterCheck(check, reference, Judgement.FAILURE)
    if check.adapts and reference < LEAST:
        return _of_adapting(check, reference, lane)
    return _of_rate(check, reference, check)


def _of_rate(check: Check, reference: float, measured: Check) -> CounterCheck:
    least = measured.at_least or 0.0
    beside = measured.ratio / max(reference, 1e-3)
    if reference < LEAST_LANE:
        return CounterCheck(check, reference, Judgement.UNDECIDED, beside, least)
    found = deviation(beside, reference, least) if least else MOST_WEIGHT
    return CounterCheck(check, reference, Judgement.UNDECIDED, beside, least, found)


def _of_adapting(check: Check, reference: float, lane: Lane) -> CounterCheck:
    if check.udp is None:
        return CounterCheck(check, reference, Judgement.OPEN)
    return _of_rate(check, lane.ratio(*(check.udp.during or lane.span_s)), check.udp)


def _is_little(check: Check, reference: float) -> bool:
    return check.ratio < LEAST_TCP * (check.at_least or 0.0) * reference

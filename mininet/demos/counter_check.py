"""What a check that falls short is worth: the same moments on a plain lane beside the run decide.

A rate is judged beside the lane's mean over the same time: measured / (theory x lane) against its bound. The more the
lane fell short, the more that quotient errs, so there are three outcomes: it holds, it is a failure, or it is too near
to its bound to decide. More runs decide then, as their mean errs less (``judge_rates``).

TCP loses more rate than time is stolen, and how much varies by more than 10 %. Where the lane fell short, UDP over the
same paths directly afterwards is judged in its place. Times, losses and other figures that lateness spoils are not
judged if the lane had a bad moment. Upper bounds on rates, and counts that no lateness changes, always count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import sqrt
from statistics import mean
from typing import Any

from hyroads.mininet.reference import LEAST, Lane

from .checks import RATE, Check

# A frame of the lane waits for one forwarder; one of a demo for several agents, switches and the medium, each late by
# itself. So a demo loses more than the lane, by this part of what the lane loses, give or take the other one. With a
# fifth of the processors stolen, healthy demos carry 0.99 to 1.04 of their bound x lane, and agents that pace at 0.9
# carry 0.85 to 0.94 (docs/benchmarks.md).
LOST_BESIDE = 0.2
DOUBT = 0.1
# Where the lane carries all, a rate is judged by its bound alone, as figures are rounded.
LEAST_DOUBT = 1e-3
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


def judge_rates(runs: Sequence[tuple[float, float]], least: float) -> Judgement:
    """The outcome of one rate check over several runs.

    ``runs`` has measured / (theory x lane) and the lane's share of each run, ``least`` is the bound. Each run counts in
    units of its own doubt. The zone in which the mean of n runs is undecided is narrower by the square root of n.
    """
    scores = [
        (beside / least - expected(reference)) / max(LEAST_DOUBT, DOUBT * (1 - reference)) for beside, reference in runs
    ]
    found, decided = mean(scores), 1 / sqrt(len(runs))
    if found >= decided:
        return Judgement.HOLDS
    return Judgement.FAILURE if found < -decided else Judgement.UNDECIDED


def judge_runs(runs: Sequence[Sequence[Mapping[str, Any]]]) -> Judgement:
    """The outcome of several runs of one demo, none of which decided by itself.

    ``runs`` has the entry ``counter_checks`` of each document. A check that held without the lane in one of the runs
    has no entry there and is left out of the failures.
    """
    entries: dict[str, list[Mapping[str, Any]]] = {}
    for run in runs:
        for entry in run:
            if entry["beside"] is not None:
                entries.setdefault(entry["what"], []).append(entry)
    found = [
        judge_rates([(each["beside"], each["reference"]) for each in found], found[0]["least"])
        for found in entries.values()
        if len(found) == len(runs)
    ]
    if not found or Judgement.UNDECIDED in found:
        return Judgement.FAILURE if Judgement.FAILURE in found else Judgement.UNDECIDED
    return Judgement.FAILURE if Judgement.FAILURE in found else Judgement.HOLDS


def counter_checks(checks: Sequence[Check], lane: Lane) -> list[CounterCheck]:
    """One for each check that falls short."""
    return [_counter_check(check, lane) for check in checks if not check.ok]


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
    if check.tcp and reference < LEAST:
        return _of_tcp(check, reference, lane)
    return _of_rate(check, reference, check)


def _of_rate(check: Check, reference: float, measured: Check) -> CounterCheck:
    least = measured.at_least or 0.0
    beside = measured.ratio / max(reference, 1e-3)
    return CounterCheck(check, reference, judge_rates([(beside, reference)], least), beside, least)


def _of_tcp(check: Check, reference: float, lane: Lane) -> CounterCheck:
    if check.udp is None:
        return CounterCheck(check, reference, Judgement.OPEN)
    found = _of_rate(check, lane.ratio(*(check.udp.during or lane.span_s)), check.udp)
    is_little = check.ratio < LEAST_TCP * (check.at_least or 0.0) * reference
    if is_little and found.judgement is Judgement.HOLDS:
        return CounterCheck(check, reference, Judgement.UNDECIDED)
    return found

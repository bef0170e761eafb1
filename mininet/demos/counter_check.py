"""Whether a check that falls short is a failure: the same moments on a plain lane beside the run decide.

A check does not count only if the lane fell short as well (``LEAST`` of its rate), and the check holds beside what the
lane carried. A rate is judged beside the lane's mean over the same time, so a shortfall of HyRoads on top of one of the
machine is found. TCP is not judged beside it: it loses more rate than time is stolen, and how much varies by more than
10 %. Times, losses and other figures that lateness spoils are judged beside the lane's worst moment. Upper bounds on
rates, and counts that no lateness changes, always count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hyroads.mininet.reference import LEAST, Lane

from .checks import Check

RATE = "Mb/s"
# A frame of the lane waits for one forwarder; one of a demo for several agents, switches and the medium, each late by
# itself. With a fifth of the processors stolen demos carry 0.94 to 1.02 of what the lane does.
BESIDE = 0.97
# Units of what the controller knows or not, however late it is.
EXACT = frozenset({"flows", "numbers"})


@dataclass(frozen=True)
class CounterCheck:
    """A check that falls short, and the share of its rate that the plain lane carried meanwhile."""

    check: Check
    reference: float
    counts: bool
    """Whether it is a failure of the run."""

    def document(self) -> dict[str, object]:
        """The entry ``counter_checks`` of a verdict."""
        return {"what": self.check.what, "reference": round(self.reference, 4), "wanted": LEAST, "counts": self.counts}

    def line(self) -> str:
        """One line of the verdict."""
        verdict = "a failure" if self.counts else "does not count"
        words = "the plain lane beside it carried"
        return f"     {self.check.what}: {words} {self.reference:.3f} of its rate (wanted >= {LEAST:.2f}): {verdict}"


def counter_checks(checks: Sequence[Check], lane: Lane) -> list[CounterCheck]:
    """One for each check that falls short."""
    return [_counter_check(check, lane) for check in checks if not check.ok]


def _counter_check(check: Check, lane: Lane) -> CounterCheck:
    during = check.during or lane.span_s
    if check.unit != RATE:
        worst = lane.worst_ratio(*during)
        return CounterCheck(check, worst, worst >= LEAST or check.unit in EXACT)
    reference = lane.ratio(*during)
    is_above = check.at_most is not None and check.ratio > check.at_most
    holds_beside_it = check.at_least is not None and check.ratio >= check.at_least * BESIDE * reference
    holds_beside_it = holds_beside_it or check.tcp
    return CounterCheck(check, reference, reference >= LEAST or is_above or not holds_beside_it)

"""One pair test, slot by slot: who sends when, which intervals count, and when to stop (a sequential test). Pure.

A *round* loads the first link alone, the second alone, and both; after each round all intervals so far are judged
(``domains.judge``). Looking again and again at growing data would find something by chance sooner or later, so the
looks share one probability of error: the k-th may err with ``ERROR`` / 2^k, all of them together with less than
``ERROR`` (Bonferroni's inequality; Pocock, "Group sequential methods", Biometrika 64, 1977, has finer bounds). A pair
that is still undecided after ``MOST_ROUNDS`` keeps what the default rule says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from hyroads.controller.core.infer.domains import PairMeasurement, PairResult, PairTestError, Verdict, judge

ERROR = 0.01
MOST_ROUNDS = 4
# New rates need a message, the media's queues have to fill or empty, and reports tell of the past.
SETTLE_SLOTS = 4
INTERVALS = 6
# Intervals that nobody reports are waited for, but not for ever.
MOST_SLOTS = 4 * (SETTLE_SLOTS + INTERVALS)

_ALONE_FIRST, _ALONE_SECOND, _TOGETHER = range(3)
_PHASES = 3


@dataclass(frozen=True, slots=True)
class PairRun:
    """A test under way: the phase of the round, its slots so far, the intervals of all rounds (Mb/s), the last
    result.
    """

    first: str
    second: str
    phase: int = _ALONE_FIRST
    slots: int = 0
    alone: tuple[tuple[float, ...], tuple[float, ...]] = ((), ())
    together: tuple[tuple[float, ...], tuple[float, ...]] = ((), ())
    rounds: int = 0
    taken: int = 0
    """Intervals of this phase."""
    result: PairResult | None = None
    failed: str | None = None
    """Why it measured nothing."""

    @property
    def pair(self) -> tuple[str, str]:
        """Both links."""
        return self.first, self.second

    @property
    def sending(self) -> tuple[str, ...]:
        """The links that are loaded now; none once it is over."""
        if self.done:
            return ()
        return {_ALONE_FIRST: (self.first,), _ALONE_SECOND: (self.second,), _TOGETHER: self.pair}[self.phase]

    @property
    def began(self) -> bool:
        """Whether anything was sent."""
        return (self.slots, self.phase, self.rounds) != (0, _ALONE_FIRST, 0)

    @property
    def done(self) -> bool:
        """Decided, given up, or without means to go on."""
        decided = self.result is not None and self.result.verdict is not Verdict.UNDECIDED
        return decided or self.failed is not None or self.rounds >= MOST_ROUNDS

    def after(self, received_mbps: Mapping[str, float]) -> PairRun:
        """When a slot is over in which so much arrived over the links; a link without a report is left out."""
        run = replace(self, slots=self.slots + 1)
        if run.slots > MOST_SLOTS:
            return replace(run, failed="nobody reports what arrives")
        if run.slots <= SETTLE_SLOTS or not all(link in received_mbps for link in self.sending):
            return run
        run = run._with_interval(received_mbps)
        return run if run.taken < INTERVALS else run._next_phase()

    def _with_interval(self, received_mbps: Mapping[str, float]) -> PairRun:
        series = self.together if self.phase == _TOGETHER else self.alone
        first, second = (
            (*known, received_mbps[link]) if link in self.sending else known
            for link, known in zip(self.pair, series, strict=True)
        )
        taken = replace(self, taken=self.taken + 1)
        if self.phase == _TOGETHER:
            return replace(taken, together=(first, second))
        return replace(taken, alone=(first, second))

    def _next_phase(self) -> PairRun:
        run = replace(self, phase=(self.phase + 1) % _PHASES, slots=0, taken=0)
        if self.phase != _TOGETHER:
            return run
        rounds = self.rounds + 1
        try:
            result = judge(PairMeasurement(*self.pair, *self.alone, *self.together), confidence=confidence_of(rounds))
        except PairTestError as error:
            return replace(run, rounds=rounds, failed=str(error))
        return replace(run, rounds=rounds, result=result)


def confidence_of(look: int) -> float:
    """How sure the look with this number, from 1, must be."""
    return float(1.0 - ERROR * 0.5**look)

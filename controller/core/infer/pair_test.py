"""Pair tests: which pairs of links are worth testing, when, and how a test goes from slot to slot. Pure.

*Schedule.* A test saturates two links of one technology in turn and together. It disturbs all that contends, so a pair
may be tested only while the whole neighbourhood of both links is idle, and only one at a time: which links conflict is
the very thing that isn't known. A pair is informative if

- its links are of one shared technology and have no node in common (those conflict anyway), and
- no fresh verdict exists: decided ones hold for ``fresh_s``, undecided ones are tried again after ``retry_s``.

Most informative first. The default rule errs at its border, so pairs rank by how near the border they are: links
whose nodes hear each other at exactly one of four end-to-end relations, or at none but with a common neighbour, come
before those that are deep inside or far away; among these the pairs whose links are used by more paths, then those
never tested.

*Test.* A round loads the first link alone, the second alone, and both; after each round all intervals so far are judged
(``domains.judge``). Looking again and again at growing data would find something by chance sooner or later, so the k-th
look may err with ``ERROR`` / 2^k only, all of them together with less than ``ERROR`` (Bonferroni's inequality; Pocock,
"Group sequential methods", Biometrika 64, 1977, has finer bounds). A pair that is still undecided after ``MOST_ROUNDS``
keeps what the default rule says.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np

from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.core.interference import Interference
from hyroads.controller.core.network import Link

from .domains import Pair, PairMeasurement, PairResult, PairTestError, Verdict, judge, must_conflict


class ScheduleError(HyroadsError):
    """A schedule of pair tests can't be made from these settings."""


@dataclass(frozen=True, slots=True)
class TestRecord:
    """What is known of a pair: the last verdict and when."""

    __test__ = False  # not a test class of pytest's

    verdict: Verdict
    time_s: float


@dataclass(frozen=True, slots=True)
class ScheduleSettings:
    """See the module; a link is idle if its domain is busy for at most ``idle_below`` of the time and no flow is active
    on it. Of each technology the pairs of the ``max_links`` most used idle links are considered.
    """

    fresh_s: float = 3600.0
    retry_s: float = 60.0
    idle_below: float = 0.05
    max_tests: int = 8
    max_links: int = 40

    def __post_init__(self) -> None:
        if self.fresh_s <= 0 or self.retry_s <= 0 or self.max_tests < 1 or self.max_links < 2:
            raise ScheduleError("a schedule of pair tests needs positive times, at least one test and two links")


@dataclass(frozen=True)
class Situation:
    """What the schedule has to respect now: ``active`` link ids that carry flows, ``busy`` share of time per link's
    domain, ``uses`` of links by paths (more counts more), ``hears`` as from ``infer.topology``, ``testable`` links
    (None: all).
    """

    active: frozenset[str] = frozenset()
    busy: Mapping[str, float] = field(default_factory=dict)
    uses: Mapping[str, int] = field(default_factory=dict)
    hears: Mapping[tuple[str, str], Collection[str]] = field(default_factory=dict)
    testable: Collection[str] | None = None


def schedule(
    links: Sequence[Link],
    default: Interference,
    records: Mapping[Pair, TestRecord],
    situation: Situation,
    now_s: float,
    *,
    unshared: frozenset[str] = frozenset(),
    settings: ScheduleSettings = ScheduleSettings(),
) -> tuple[tuple[str, str], ...]:
    """The next pairs to test, of all technologies, most informative first.

    Only links that are idle now, with their whole domains, take part; :func:`may_run` tells when that has changed.
    """
    disturbed = _disturbed(links, default, situation.active)
    shared = (i for i, link in enumerate(links) if link.technology not in unshared)
    testable = (i for i in shared if situation.testable is None or links[i].id in situation.testable)
    idle = [i for i in testable if _is_idle(i, links[i], disturbed, situation, settings)]
    pairs: list[tuple[int, int]] = []
    for technology in dict.fromkeys(links[i].technology for i in idle):
        mine = [i for i in idle if links[i].technology == technology]
        mine = sorted(mine, key=lambda i: (-situation.uses.get(links[i].id, 0), i))[: settings.max_links]
        pairs += [pair for pair in combinations(mine, 2) if _wanted(links, pair, records, now_s, settings)]
    pairs.sort(key=lambda pair: _rank(links, pair, records, situation))
    return tuple((links[first].id, links[second].id) for first, second in pairs[: settings.max_tests])


def may_run(
    pair: tuple[str, str],
    links: Sequence[Link],
    default: Interference,
    situation: Situation,
    settings: ScheduleSettings = ScheduleSettings(),
) -> bool:
    """Whether a planned or running test may go on: nobody else sends where it tests, and its links are there."""
    index = {link.id: i for i, link in enumerate(links)}
    if any(link not in index or links[index[link]].capacity_mbps <= 0 for link in pair):
        return False
    disturbed = _disturbed(links, default, situation.active)
    return all(_is_idle(index[link], links[index[link]], disturbed, situation, settings) for link in pair)


def _disturbed(links: Sequence[Link], default: Interference, active: frozenset[str]) -> frozenset[int]:
    """Links on which a test would meet traffic, or traffic a test: the domains of the domains of active links.

    Links just outside a domain may conflict though the rule says no, which is why one step is not enough.
    """
    reached: list[int] = [i for i, link in enumerate(links) if link.id in active]
    for _ in range(2):
        near = np.zeros(len(links), dtype=bool)
        for link in reached:
            near[default.domain(link)] = True
        reached = np.flatnonzero(near).tolist()
    return frozenset(reached)


def _is_idle(
    index: int, link: Link, disturbed: frozenset[int], situation: Situation, settings: ScheduleSettings
) -> bool:
    return index not in disturbed and situation.busy.get(link.id, 0.0) <= settings.idle_below


def _wanted(
    links: Sequence[Link],
    pair: tuple[int, int],
    records: Mapping[Pair, TestRecord],
    now_s: float,
    settings: ScheduleSettings,
) -> bool:
    first, second = links[pair[0]], links[pair[1]]
    if must_conflict(first, second):
        return False
    record = records.get(frozenset({first.id, second.id}))
    if record is None:
        return True
    hold_s = settings.retry_s if record.verdict is Verdict.UNDECIDED else settings.fresh_s
    return now_s - record.time_s >= hold_s


def _rank(
    links: Sequence[Link], pair: tuple[int, int], records: Mapping[Pair, TestRecord], situation: Situation
) -> tuple[float, ...]:
    """Smaller is sooner."""
    first, second = links[pair[0]], links[pair[1]]
    record = records.get(frozenset({first.id, second.id}))
    tested_s = record.time_s if record else float("-inf")
    used = situation.uses.get(first.id, 0) * situation.uses.get(second.id, 0)
    return (_distance_to_border(first, second, situation.hears), -used, tested_s, *pair)


def _distance_to_border(first: Link, second: Link, hears: Mapping[tuple[str, str], Collection[str]]) -> int:
    """0: one end hears one, or none but with a common neighbour; 1 to 3: more ends hear each other; 4: far away."""
    relations = sum(
        b in hears.get((a, first.technology), ()) or a in hears.get((b, first.technology), ())
        for a in (first.source, first.target)
        for b in (second.source, second.target)
    )
    if relations:
        return relations - 1
    around = [
        {node for end in (link.source, link.target) for node in hears.get((end, link.technology), ())}
        for link in (first, second)
    ]
    return 0 if around[0] & around[1] else 4


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
    """A test under way: phase of the round, its slots so far, intervals of all rounds (Mb/s), the last result."""

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

"""Pair tests on the living network, in idle time: which flows of dummies they need, what these send, what follows.

A test needs a flow over each of its two links, from the agent at one end to the agent at the other, that carries
nobody's frames: :attr:`PairTests.wanted`. Once both report, the test's rounds (``core.infer.pair_test``) run as rates
of a ``RateOverride``: dummies load a link to four fifths of its estimate. The flows reserve nothing,
so that a flow that wakes up has its rates at hand; a test ends in the slot that hears of anyone who sends near it.
One test at a time. Verdicts overrule who hears whom.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from hyroads.controller.core.addressing import PathName
from hyroads.controller.core.closed_loop import Measurements
from hyroads.controller.core.infer.domains import Pair, PairResult, Verdict, learned_interference
from hyroads.controller.core.infer.pair_test import PairRun, ScheduleSettings, Situation, TestRecord, may_run, schedule
from hyroads.controller.core.network import FlowSpec, Network, Traffic

from .rate_override import Fixed, RateOverride, SlotView
from .source import NOTHING_HEARD, Heard, Source

# Of a link's estimate, which dummies follow: two links that take turns can't carry 1.6 of one, and keep 5/8. All of it
# would starve broadcasts where two links that do not contend are both heard: hello frames, and with them the links.
LOAD = 0.8
# A flow that sends more than this is active; agents' hello frames and probes of the stack are less.
ACTIVE_MBPS = 0.1
# While a test runs, what capacities taken too high leave unexplained looks external.
RUNNING_BUSY = 0.25
# Looking for a pair sorts all of them; flows need a moment to be configured at both agents.
LOOK_EVERY_S = 1.0
# Who is idle is known once busy times have come for a while.
FIRST_SLOT = 10
START_WITHIN_S = 5.0
AGAIN_S = 10.0
DEFAULTS = ScheduleSettings()


def test_flow(network: Network, link: str) -> FlowSpec:
    """The flow of dummies over a link."""
    ends = network.links[network.link_index[link]]
    return FlowSpec(f"pair test {link}", ends.source, ends.target, paths=((link,),), traffic=Traffic.PROBE)


@dataclass(eq=False)
class PairTests(RateOverride):
    """The tests of a network; decides the rates of its own flows. ``testable`` are the links with an agent at both
    ends; ``source`` measures.
    """

    network: Network
    testable: frozenset[str]
    source: Source
    settings: ScheduleSettings = DEFAULTS

    def __post_init__(self) -> None:
        self._records: dict[Pair, TestRecord] = {}
        self._results: dict[Pair, PairResult] = {}
        self.verdicts: Mapping[Pair, Verdict] = {}
        """Pairs that were decided; a new object whenever one was."""
        self._heard = NOTHING_HEARD
        self._heard_of: tuple[Heard, Mapping[Pair, Verdict]] = (NOTHING_HEARD, self.verdicts)
        """What that was made of."""
        self._cut_off: dict[Pair, int] = {}
        """How often in a row a test of a pair could not be made."""
        self._run: PairRun | None = None
        self._until_s = 0.0
        """When the run must have started."""
        self._look_s = 0.0
        self._done = 0

    @property
    def wanted(self) -> tuple[FlowSpec, ...]:
        """The flows that the test of now needs."""
        return () if self._run is None else tuple(test_flow(self.network, link) for link in self._run.pair)

    # -- a source of the loop: the one that it was made with, but for domains that tests overrule

    def take(self, now_s: float) -> Measurements:
        """What came in since the last call."""
        return self.source.take(now_s)

    def complete(self) -> bool:
        """Whether everyone who measures has spoken."""
        return self.source.complete()

    def heard(self) -> Heard:
        """Who hears whom; the same object as long as nothing changed."""
        heard = self.source.heard()
        if not self.verdicts:
            return heard
        if self._heard_of != (heard, self.verdicts):
            network = self.network
            default = heard.interference or network.interference
            learned = learned_interference(network.links, default, self.verdicts, network.unshared)
            self._heard = heard if learned is default else replace(heard, interference=learned)
            self._heard_of = (heard, self.verdicts)
        return self._heard

    def decide(self, view: SlotView) -> Mapping[str, Fixed]:
        """The rates of the tests' flows, 0 for those that do not test."""
        if self._run is not None:
            self._step(view, self._run)
        elif view.now_s >= self._look_s and view.slot >= FIRST_SLOT:
            self._look_s = view.now_s + LOOK_EVERY_S
            self._look(view)
        mine = (flow for flow, route in view.routes.items() if route.spec.traffic is Traffic.PROBE)
        return {flow: self._fixed(view, flow) for flow in mine}

    def report(self, now_s: float) -> dict[str, Any]:
        """What was tested and found, and what is being tested."""
        run = self._run
        return {
            "count": self._done,
            "running": None if run is None else {"links": list(run.pair), "sending": list(run.sending)},
            "pairs": [
                {
                    "links": sorted(pair),
                    "verdict": record.verdict.value,
                    "ratio": self._results[pair].lir if pair in self._results else None,
                    "half_width": self._results[pair].half_width if pair in self._results else None,
                    "age_s": now_s - record.time_s,
                }
                for pair, record in self._records.items()
            ],
        }

    def _look(self, view: SlotView) -> None:
        network = view.network
        found = schedule(
            network.links,
            network.interference,
            self._records,
            self._situation(view),
            view.now_s,
            unshared=network.unshared,
            settings=replace(self.settings, max_tests=1),
        )
        if found:
            self._run, self._until_s = PairRun(*found[0]), view.now_s + START_WITHIN_S

    def _step(self, view: SlotView, run: PairRun) -> None:
        bound = RUNNING_BUSY if run.began else self.settings.idle_below
        settings, network = replace(self.settings, idle_below=bound), view.network
        if not may_run(run.pair, network.links, network.interference, self._situation(view), settings):
            self._end(run, view.now_s)
            return
        arrived = self._arrived(view, run)
        if not run.began and len(arrived) < len(run.pair):
            if view.now_s > self._until_s:
                self._end(run, view.now_s)
            return
        self._run = run = run.after(arrived)
        if run.done:
            self._end(run, view.now_s)

    def _end(self, run: PairRun, now_s: float) -> None:
        """A test that was cut off comes again soon, but less and less so; one that was made counts."""
        self._run, self._look_s, pair = None, now_s, frozenset(run.pair)
        if not run.done or run.result is None:
            times = self._cut_off[pair] = self._cut_off.get(pair, 0) + 1
            due_s = now_s - self.settings.retry_s + min(AGAIN_S * 2 ** min(times - 1, 10), self.settings.retry_s)
            known = self._records.get(pair)
            if known is None or known.verdict is Verdict.UNDECIDED:
                self._records[pair] = TestRecord(Verdict.UNDECIDED, due_s)
            return
        self._done += 1
        self._cut_off.pop(pair, None)
        self._results[pair] = run.result
        self._records[pair] = TestRecord(run.result.verdict, now_s)
        if run.result.verdict is not Verdict.UNDECIDED:
            self.verdicts = {**self.verdicts, pair: run.result.verdict}

    def _arrived(self, view: SlotView, run: PairRun) -> dict[str, float]:
        """What the far ends say, by link."""
        rates = {link: view.agents.path_mbps.get((f"pair test {link}", (link,))) for link in run.pair}
        return {link: rate for link, rate in rates.items() if rate is not None}

    def _fixed(self, view: SlotView, flow: str) -> Fixed:
        sending = self._run.sending if self._run is not None and self._run.began else ()
        index, rates = view.network.link_index, dict[PathName, float]()
        estimates = view.last.state.problem.capacity_mbps if view.last is not None else ()
        if len(estimates) == len(index):
            paths = view.routes[flow].paths
            rates = {path: LOAD * float(estimates[index[path[0]]]) for path in paths if path[0] in sending}
        return Fixed(rates, rates, {})

    def _situation(self, view: SlotView) -> Situation:
        links = view.network.links
        active: set[str] = set()
        uses: dict[str, int] = {}
        for flow, route in view.routes.items():
            if route.spec.traffic is Traffic.PROBE:
                continue
            offer = view.agents.offers.get(flow)
            sends = offer is not None and (offer.sent_mbps > ACTIVE_MBPS or offer.backlogged)
            for path in route.paths:
                for link in path:
                    uses[link] = uses.get(link, 0) + 1
                active.update(path if sends else ())
        busy: dict[str, float] = {}
        if view.last is not None:
            shares = view.last.state.external.per_link(view.now_s)
            if len(shares) == len(links):
                busy = {link.id: float(share) for link, share in zip(links, shares, strict=True)}
        usable = {link.id for link in links if link.capacity_mbps > 0} & self.testable
        return Situation(frozenset(active), busy, uses, self.heard().hears or {}, usable)

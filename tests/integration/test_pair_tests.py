"""Pair tests around the real loop: hidden conflicts are found, false ones are dropped, and nobody is in their way."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from hyroads.controller.control.live_network import Cache
from hyroads.controller.control.loop import LiveLoop, LoopOptions
from hyroads.controller.control.pair_tests import AGAIN_S, PairTests
from hyroads.controller.control.reports import AgentRates
from hyroads.controller.control.routes import make_routes
from hyroads.controller.control.source import Heard
from hyroads.controller.core.carrier_sensing_rule import CarrierSensingInterference
from hyroads.controller.core.closed_loop import Measurements
from hyroads.controller.core.demand import Offer
from hyroads.controller.core.estimate.link_estimate import Sample, Source
from hyroads.controller.core.infer.domains import Verdict
from hyroads.controller.core.interference import ConflictInterference
from hyroads.controller.core.netfile import parse
from hyroads.controller.core.network import FlowSpec, Traffic
from hyroads.controller.model.state import (
    DeclaredFlow,
    Origin,
    TopologyContext,
    flow_declared,
    flow_removed,
    initial,
    measured,
)

SLOT_S = 0.1
# a and c hear each other, so ab and cd seem to contend, but don't; f is disturbed by a, whom it does not hear.
DOCUMENT = {
    "nodes": {node: {"role": "ap", "technologies": ["wifi"]} for node in "abcdef"},
    "technologies": {"wifi": {"shared": True}},
    "links": [
        {"id": name, "from": name[0], "to": name[1], "technology": "wifi", "capacity_mbps": mbps}
        for name, mbps in (("ab", 20.0), ("cd", 30.0), ("ef", 25.0))
    ],
    "interference": {"rule": "hearing"},
    "flows": [{"id": f"flow-{n}", "from": n[0], "to": n[1], "paths": [[n]]} for n in ("ab", "cd", "ef")],
}
HEARS = {"a": "bc", "b": "a", "c": "ad", "d": "c", "e": "f", "f": "e"}
TRUTH = {"ab": ["ef"]}
TRULY = {("ab", "cd"): Verdict.INDEPENDENT, ("ab", "ef"): Verdict.CONFLICT, ("cd", "ef"): Verdict.INDEPENDENT}


class World:
    """A fluid medium under the conflicts ``TRUTH``; flows send what they are allowed, up to ``offered_mbps``."""

    def __init__(self, noise: float = 0.05, low_rate_bias: float = 0.0) -> None:
        self.context = TopologyContext.of(parse(DOCUMENT, "test"))
        network = self.network = self.context.network
        self.truth = ConflictInterference(network.links, TRUTH)
        self.state = initial(self.context, [DeclaredFlow(flow, Origin.FILE) for flow in network.flows])
        hears = {(node, "wifi"): frozenset(others) for node, others in HEARS.items()}
        rule = CarrierSensingInterference(tuple(network.nodes), network.links, hears)
        observers = tuple((node, "wifi") for node in network.nodes)
        self._heard = Heard(observers, hears, rule)
        self.tests = PairTests(network, frozenset(network.link_index), self)
        self.loop = LiveLoop(network, self.tests, LoopOptions(), self.tests)
        self.offered_mbps = dict.fromkeys((flow.id for flow in network.flows), 0.0)
        self.external: dict[str, float] = {}
        self.sent: dict[str, float] = {}
        self.carried: dict[str, float] = {}
        self.now_s, self._noise, self._bias = 10.0, noise, low_rate_bias
        self._rng = np.random.default_rng(3)
        self._busy: dict[str, float] = {}
        self._cache = Cache(self.context)
        self.testing: list[tuple[float, frozenset[str]]] = []
        self._lay_out()

    # -- Source

    def take(self, now_s: float) -> Measurements:
        estimates = [
            Sample(link.id, Source.MODULATION, self._estimate(link.id, link.capacity_mbps), now_s)
            for link in self.network.links
        ]
        busy = {}
        for node in self.network.nodes:
            heard = (x for x in self.network.links if x.source in {node, *HEARS[node]})
            ours = sum(self._busy.get(link.id, 0.0) for link in heard)
            busy[node, "wifi"] = min(1.0, ours + self.external.get(node, 0.0))
        return Measurements(estimates, busy)

    def heard(self) -> Heard:
        return self._heard

    def complete(self) -> bool:
        return True

    def _estimate(self, link: str, mbps: float) -> float:
        idle = max(0.0, 1.0 - self._busy.get(link, 0.0) / 0.05)
        return mbps * (1 - self._bias * idle)

    # -- time

    def _lay_out(self) -> None:
        live = self._cache.live(self.state)
        self.routes = make_routes(self.state, live)
        self.loop.lay_out(live.network, self.routes)

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / SLOT_S)):
            self.step()

    def step(self) -> None:
        self._follow()
        self.loop.turn(self.now_s, self._agents())
        sent = {}
        for flow, rates in self.loop.rates.items():
            fixed = self.loop.fixed.get(flow)
            fill = sum(fixed.fill_mbps.values()) if fixed else 0.0
            sent[flow] = max(min(sum(rates), self.offered_mbps.get(flow, 0.0)), fill)
        self._carry(sent)
        dummies = {flow for flow, mbps in sent.items() if mbps > 0 and flow not in self.offered_mbps}
        self.testing.append((self.now_s, frozenset(dummies)))
        self.now_s += SLOT_S

    def _follow(self) -> None:
        """The service's part: flows of tests come and go, capacities and interference become part of the state."""
        before = self.state
        wanted = {spec.id: spec for spec in self.tests.wanted}
        for flow, declared in list(self.state.flows.items()):
            if declared.origin is Origin.TEST and flow not in wanted:
                self.state = flow_removed(self.state, flow)
        for flow, spec in wanted.items():
            if flow not in self.state.flows:
                self.state = flow_declared(self.state, DeclaredFlow(spec, Origin.TEST))
        capacities = tuple(link.capacity_mbps for link in self.network.links)
        self.state = measured(self.state, capacities, self.loop.heard.interference)
        if self.state is not before:
            self._lay_out()

    def _carry(self, sent: Mapping[str, float]) -> None:
        links, index = self.network.links, self.network.link_index
        load = np.zeros(len(links))
        for flow, mbps in sent.items():
            link = index[self.routes[flow].paths[0][0]]
            load[link] += mbps / links[link].capacity_mbps
        # A link that has to take turns gets its part of a domain that is full.
        domains = [load[self.truth.domain(link)].sum() for link in range(len(links))]
        part = [1.0 / max(1.0, domain) for domain in domains]
        self.sent = dict(sent)
        self.carried = {flow: mbps * part[index[self.routes[flow].paths[0][0]]] for flow, mbps in sent.items()}
        self._busy = {link.id: float(load[i] * part[i]) for i, link in enumerate(links)}

    def _agents(self) -> AgentRates:
        paths, offers = {}, {}
        for flow, mbps in self.carried.items():
            if flow in self.routes:
                scatter = 1 + self._noise * self._rng.standard_normal()
                paths[flow, self.routes[flow].paths[0]] = max(0.0, mbps * scatter)
                allowed = sum(self.loop.rates.get(flow, ()))
                offers[flow] = Offer(self.sent[flow], allowed, self.offered_mbps.get(flow, 0.0) > allowed)
        return AgentRates(paths, offers)

    @property
    def found(self) -> dict[tuple[str, ...], Verdict]:
        return {tuple(sorted(pair)): verdict for pair, verdict in self.tests.verdicts.items()}


@pytest.mark.parametrize("bias", [0.0, 0.3])
def test_idle_time_shows_hidden_conflicts_and_false_ones(bias: float) -> None:
    world = World(low_rate_bias=bias)
    links = world.network.link_index
    world.step()
    before = world.loop.heard.interference
    assert before is not None
    assert before.contends(links["ab"], links["cd"])
    assert not before.contends(links["ab"], links["ef"])
    world.run(20)
    assert world.found == TRULY
    learned = world.loop.state.network.interference
    for (first, second), verdict in TRULY.items():
        assert learned.contends(links[first], links[second]) == (verdict is Verdict.CONFLICT)
    assert world.tests.wanted == ()
    assert all(flow.traffic is not Traffic.PROBE for flow in (route.spec for route in world.routes.values()))
    # What is known is not tested again.
    tested = len([1 for _, flows in world.testing if flows])
    world.run(20)
    assert len([1 for _, flows in world.testing if flows]) == tested


def test_what_was_learned_makes_rates_that_fit_and_use_all() -> None:
    world = World()
    world.run(20)
    world.offered_mbps = dict.fromkeys(world.offered_mbps, 100.0)
    world.run(5)
    # ab and ef share one medium, cd has its own: without the tests cd would get a part of ab's, and ef all of its own.
    # Scatter of 5 % in what agents report looks like a few percent of external airtime.
    assert world.carried["flow-cd"] == pytest.approx(0.95 * 30, rel=0.05)
    assert world.carried["flow-ab"] / 20 + world.carried["flow-ef"] / 25 == pytest.approx(0.95, rel=0.05)
    assert world.sent == pytest.approx(world.carried, rel=1e-6)


def test_a_flow_that_wakes_up_has_its_rates_at_hand_and_the_test_ends_at_once() -> None:
    world = World()
    world.run(2.5)
    assert world.testing[-1][1], "a test is going on"
    world.offered_mbps["flow-ab"] = 5.0
    world.step()
    assert world.sent["flow-ab"] == 5.0
    world.step()
    assert not world.testing[-1][1]
    world.run(20)
    # While it goes on nothing is tested near it, and everything is near.
    assert not any(flows for at_s, flows in world.testing if at_s > 12.8)
    world.offered_mbps["flow-ab"] = 0.0
    world.run(20 + AGAIN_S)
    assert world.found == TRULY


def test_traffic_that_is_not_ours_is_left_alone() -> None:
    world = World()
    world.external["a"] = 0.2
    world.run(10)
    assert {tuple(sorted(pair)) for pair in world.tests.verdicts} == {("cd", "ef")}
    world.external["d"] = 0.2
    before = len(world.testing)
    world.run(10)
    assert not any(flows for _, flows in world.testing[before:])


def test_a_test_takes_no_airtime_from_the_plan_and_leaves_no_external_airtime_behind() -> None:
    world = World()
    world.offered_mbps["flow-ef"] = 0.0
    worst = 0.0
    for _ in range(200):
        world.step()
        worst = max(worst, float(world.loop.state.external.per_link(world.now_s).max()))
        for flow in world.offered_mbps:
            assert sum(world.loop.rates[flow]) > 5.0
    assert world.found == TRULY
    assert worst < 0.1


def test_dummies_are_silent_until_their_override_speaks() -> None:
    world = World()
    spec = FlowSpec("pair test ab", "a", "b", paths=(("ab",),), traffic=Traffic.PROBE)
    world.state = flow_declared(world.state, DeclaredFlow(spec, Origin.TEST))
    world._lay_out()
    world.loop.turn(world.now_s, ask=False)
    assert world.loop.rates["pair test ab"] == (0.0,)


def test_flows_of_tests_may_go_at_any_time() -> None:
    world = World()
    world.run(2.5)
    assert world.testing[-1][1]
    for flow, declared in list(world.state.flows.items()):
        if declared.origin is Origin.TEST:
            world.state = flow_removed(world.state, flow)
    world._lay_out()
    world.loop.turn(world.now_s, ask=False)
    assert not [flow for flow in world.loop.fixed if flow.startswith("pair test")]

"""Latency flows on a living network: one technology or a split by what was measured, and room for it among others."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise

import pytest
from planning import NO_REPORTS

from hyroads.controller.control.latency import HEADROOM, LEAST_MBPS, Latency
from hyroads.controller.control.live import Live
from hyroads.controller.control.loop import LiveLoop, LoopOptions
from hyroads.controller.control.rate_override import RateOverrides
from hyroads.controller.control.reports import AgentRates
from hyroads.controller.control.source import Heard
from hyroads.controller.core.addressing import Numbers
from hyroads.controller.core.closed_loop import Measurements
from hyroads.controller.core.demand import Offer
from hyroads.controller.core.estimate.link_estimate import Sample, Source
from hyroads.controller.core.latency.policy import best_split
from hyroads.controller.core.latency.two_state_queue import TwoStateQueue
from hyroads.controller.core.netfile import parse
from hyroads.controller.core.network import FlowSpec, Policy
from hyroads.controller.model.plan import Options
from hyroads.controller.model.state import DeclaredFlow, Origin, State, TopologyContext, initial, links_heard

NETWORK = parse(
    {
        "nodes": {"a": {"role": "gateway"}, "b": {"role": "ap"}},
        "links": [
            {"id": "plc", "from": "a", "to": "b", "technology": "plc", "capacity_mbps": 10, "both": True},
            {"id": "wifi", "from": "a", "to": "b", "technology": "wifi", "capacity_mbps": 18, "both": True},
        ],
        "interference": {"rule": "technology"},
    },
    "test",
)
CONTEXT = TopologyContext.of(NETWORK)
PLC, WIFI = ("plc",), ("wifi",)
FLOW = FlowSpec("quick", "a", "b", policy=Policy.LATENCY)
FRAME_BYTES = 1450.0


class Radios:
    """WiFi that alternates between two rates each ``sojourn_s`` on average; PLC that does not."""

    def __init__(self, high_mbps: float = 18.0, low_mbps: float = 2.0, sojourn_s: float = 3.0) -> None:
        self._random = random.Random(5)
        self.rates_mbps = (high_mbps, low_mbps)
        self._change = 0.1 / sojourn_s
        self._state = 0

    def take(self, now_s: float) -> Measurements:
        if self._random.random() < self._change:
            self._state = 1 - self._state
        samples = {"plc": 10.0, "wifi": self.rates_mbps[self._state]}
        samples |= {f"{link}~": mbps for link, mbps in samples.items()}
        noise = {link: mbps * self._random.gauss(1.0, 0.03) for link, mbps in samples.items()}
        return Measurements([Sample(link, Source.MODULATION, mbps, now_s) for link, mbps in noise.items()])

    def heard(self) -> Heard:
        return Heard()


class Lab:
    """A loop with latency flows, and agents that report what the test says."""

    def __init__(self, radios: Radios, *flows: FlowSpec) -> None:
        self.latency = Latency()
        overrides = RateOverrides({"latency": self.latency})
        self.loop = LiveLoop(NETWORK, radios, LoopOptions(), overrides)
        self.live = Live(CONTEXT, Numbers(), Options(), self.loop, measures=True)
        self.state: State = initial(CONTEXT, [DeclaredFlow(flow, Origin.FILE) for flow in flows])
        self.now_s = 0.0
        self.live.replan(self.state, NO_REPORTS, 0.0)

    def run(self, seconds: float, watch: Callable[[], None] = lambda: None, **offered: float) -> None:
        """Flows send what is offered, at most their rates."""
        for _ in range(round(10 * seconds)):
            self.now_s += 0.1
            allowed = {flow: sum(rates) for flow, rates in self.loop.rates.items()}
            offers = {
                flow: Offer(min(mbps, allowed.get(flow, 0.0)), allowed.get(flow, 0.0), mbps > allowed.get(flow, 0.0))
                for flow, mbps in offered.items()
            }
            self.loop.turn(self.now_s, AgentRates({}, offers, dict.fromkeys(offered, FRAME_BYTES)))
            watch()

    def shares(self, flow: str = "quick") -> dict[tuple[str, ...], float]:
        rates = dict(zip(self.loop.routes[flow].paths, self.loop.rates[flow], strict=True))
        return {path: rate / sum(rates.values()) for path, rate in rates.items()}


def test_a_latency_flow_has_one_path_per_technology_and_the_steady_one_wins_at_low_load() -> None:
    lab = Lab(Radios(), FLOW)
    assert set(lab.loop.routes["quick"].paths) == {PLC, WIFI}
    lab.run(60.0, quick=1.0)
    assert lab.shares() == {PLC: 1.0, WIFI: 0.0}
    shown = lab.latency.document("quick")
    assert shown is not None and "plc alone is best up to" in shown["reason"]
    wifi = next(path for path in shown["paths"] if path["links"] == ["wifi"])
    assert wifi["high_mbps"] == pytest.approx(18.0, rel=0.05) and wifi["low_mbps"] == pytest.approx(2.0, rel=0.1)
    # 600 samples hold some twenty sojourns; how many is chance.
    assert 0.3 < wifi["changes_per_s"] < 1.5
    # What it may send at is PLC's own rate, not what it needs.
    assert sum(lab.loop.rates["quick"]) == pytest.approx(10.0, rel=0.05)


def test_above_lambda_0_the_split_is_that_of_the_theory() -> None:
    lab = Lab(Radios(), FLOW)
    lab.run(60.0, quick=8.0)
    shown = lab.latency.document("quick")
    assert shown is not None and shown["lambda0_mbps"] < 8.0
    wifi = next(path for path in shown["paths"] if path["links"] == ["wifi"])
    packets = 1e6 / (8 * FRAME_BYTES)
    half = wifi["changes_per_s"] / 2
    alternating = TwoStateQueue(wifi["high_mbps"] * packets, wifi["low_mbps"] * packets, half, half)
    exact = best_split(TwoStateQueue.constant(10.0 * packets), alternating, 8.0 * packets)
    assert lab.shares()[PLC] == pytest.approx(exact.share, abs=0.1) and 0.5 < lab.shares()[PLC] < 0.97


def test_decisions_come_at_most_once_a_second_and_stay_for_a_while() -> None:
    lab = Lab(Radios(), FLOW)
    lab.run(30.0, quick=4.0)
    seen: list[dict[tuple[str, ...], float]] = []
    lab.run(30.0, lambda: seen.append({path: round(share, 3) for path, share in lab.shares().items()}), quick=4.0)
    changes = [index for index in range(1, len(seen)) if seen[index] != seen[index - 1]]
    assert all(later - earlier >= 10 for earlier, later in pairwise(changes))
    assert len(changes) <= 10


def test_others_have_all_but_what_it_needs_though_it_may_send_faster() -> None:
    other = FlowSpec("other", "b", "a", paths=(("plc~",),))
    lab = Lab(Radios(), FLOW, other)
    lab.run(30.0, quick=1.0, other=99.0)
    assert lab.shares()[PLC] == 1.0 and sum(lab.loop.rates["quick"]) > 9.0
    needed = HEADROOM * 1.0 + LEAST_MBPS
    assert lab.loop.rates["other"][0] == pytest.approx(9.5 - needed, rel=0.05)
    assert lab.loop.airtime()["plc"] == pytest.approx(0.95, abs=0.02)


def test_one_that_wants_all_shares_fairly_with_the_others() -> None:
    only = FlowSpec("quick", "a", "b", policy=Policy.LATENCY, paths=(PLC,))
    other = FlowSpec("other", "b", "a", paths=(("plc~",),))
    lab = Lab(Radios(), only, other)
    lab.run(10.0, quick=99.0, other=99.0)
    assert lab.loop.rates["quick"][0] == pytest.approx(lab.loop.rates["other"][0], rel=0.1)
    assert sum(rates[0] for rates in lab.loop.rates.values()) == pytest.approx(9.5, rel=0.05)


def test_two_latency_flows_that_want_all_share_what_there_is() -> None:
    first = FlowSpec("first", "a", "b", policy=Policy.LATENCY, paths=(PLC,))
    second = FlowSpec("second", "b", "a", policy=Policy.LATENCY, paths=(("plc~",),))
    lab = Lab(Radios(), first, second)
    lab.run(10.0, first=99.0, second=99.0)
    assert lab.loop.airtime()["plc"] == pytest.approx(0.95, rel=0.05)
    assert lab.loop.rates["first"][0] == pytest.approx(lab.loop.rates["second"][0], rel=0.1)


def test_a_path_that_fails_is_left_at_once_and_comes_back() -> None:
    lab = Lab(Radios(), FLOW)
    lab.run(20.0, quick=1.0)
    lab.state = links_heard(lab.state, CONTEXT, "b", {"plc": False}, lab.now_s)
    lab.live.replan(lab.state, NO_REPORTS, lab.now_s)
    lab.run(0.1, quick=1.0)
    assert lab.shares() == {WIFI: 1.0}
    shown = lab.latency.document("quick")
    assert shown is not None and shown["reason"] == "it is the only path"
    lab.state = links_heard(lab.state, CONTEXT, "b", {"plc": True}, lab.now_s)
    lab.live.replan(lab.state, NO_REPORTS, lab.now_s)
    lab.run(2.0, quick=1.0)
    assert lab.shares()[PLC] == 1.0


def test_a_burst_is_no_load_and_packets_that_always_wait_are_more_than_what_was_sent() -> None:
    lab = Lab(Radios(), FLOW)
    lab.run(20.0, quick=6.0)
    lab.run(0.1, quick=99.0)
    lab.run(1.1, quick=6.0)
    shown = lab.latency.document("quick")
    assert shown is not None and shown["load_mbps"] == pytest.approx(6.0, rel=0.15)
    lab.run(20.0, quick=99.0)
    shown = lab.latency.document("quick")
    assert shown is not None and shown["load_mbps"] > 1.2 * 0.9 * sum(lab.loop.rates["quick"])


def test_order_is_kept_for_tcp_only() -> None:
    tcp = FlowSpec("tcp", "b", "a", policy=Policy.LATENCY, match={"eth_type": 0x0800, "ip_proto": 6})
    lab = Lab(Radios(), FLOW, tcp)
    egress = {**lab.live.in_force.agents["a"].egress, **lab.live.in_force.agents["b"].egress}
    assert (egress["quick"].document()["reorder"], egress["tcp"].document()["reorder"]) == (False, True)

"""Who is told when links fail, flap or change: only those that it concerns, and not each time."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from hyroads.controller.agents.configs import AgentConfig
from hyroads.controller.agents.protocol import Hello
from hyroads.controller.control.flow_order import SwitchView, Views
from hyroads.controller.control.link_holds import LinkHolds
from hyroads.controller.control.live import Live
from hyroads.controller.control.loop import LiveLoop, LoopOptions
from hyroads.controller.control.reports import ReportRegistry
from hyroads.controller.control.source import Heard
from hyroads.controller.control.update_order import orders_of
from hyroads.controller.core.addressing import Numbers
from hyroads.controller.core.closed_loop import Measurements
from hyroads.controller.core.estimate.link_estimate import Sample, Source
from hyroads.controller.core.netfile import parse
from hyroads.controller.model.plan import Options
from hyroads.controller.model.state import DeclaredFlow, Origin, TopologyContext, agent_up, initial, links_heard
from hyroads.controller.runtime.agent_deployer import AgentDeployer

# f1 and f2 share nothing; f3 begins where f1 does and uses another medium; f4 contends with f1 for WiFi only.
DOCUMENT: dict[str, Any] = {
    "nodes": {node: {"role": "ap"} for node in "abcdegh"},
    "links": [
        {"id": "ab-plc", "from": "a", "to": "b", "technology": "plc", "capacity_mbps": 10, "both": True},
        {"id": "ab-wifi", "from": "a", "to": "b", "technology": "wifi", "capacity_mbps": 15, "both": True},
        {"id": "cd-plc2", "from": "c", "to": "d", "technology": "plc2", "capacity_mbps": 10, "both": True},
        {"id": "cd-wifi2", "from": "c", "to": "d", "technology": "wifi2", "capacity_mbps": 15, "both": True},
        {"id": "ae", "from": "a", "to": "e", "technology": "ethernet", "capacity_mbps": 50, "both": True},
        {"id": "gh", "from": "g", "to": "h", "technology": "wifi", "capacity_mbps": 20, "both": True},
    ],
    "interference": {"rule": "technology"},
    "flows": [
        {"id": "f1", "from": "a", "to": "b"},
        {"id": "f2", "from": "c", "to": "d"},
        {"id": "f3", "from": "a", "to": "e"},
        {"id": "f4", "from": "g", "to": "h"},
    ],
}
CONTEXT = TopologyContext.of(parse(DOCUMENT, "x"))
NO_REPORTS = ReportRegistry(lambda: 0.0)


class Session:
    """An agent that does at once what it is told, and remembers it."""

    def __init__(self, node: str, told: list[tuple[str, dict[str, Any]]]) -> None:
        self.node, self.told = node, told
        self.hello = Hello(node, "x", node, None, 0)
        self.closed = False

    def request(self, document: Mapping[str, Any] | str, answer: Any) -> None:
        document = json.loads(document) if isinstance(document, str) else document
        self.told.append((self.node, dict(document)))
        answer(None)


class Readings:
    """Every link has the capacity that the test says, measured each slot."""

    def __init__(self, context: TopologyContext = CONTEXT) -> None:
        network = context.network
        self.mbps = {link.id: link.capacity_mbps for link in network.links if link.id not in network.unmeasured}
        self.now_s = 0.0

    def take(self, now_s: float) -> Measurements:
        return Measurements([Sample(link, Source.MODULATION, mbps, now_s) for link, mbps in self.mbps.items()])

    def heard(self) -> Heard:
        return Heard()

    def complete(self) -> bool:
        return True


class Controller:
    """State, live loop, update ordering and deployer as the event loop joins them, with agents that answer at once."""

    def __init__(self, context: TopologyContext = CONTEXT) -> None:
        self.context = context
        self.source, self.now_s, self.counters = Readings(context), 0.0, Counter[str]()
        loop = LiveLoop(context.network, self.source, LoopOptions(0.05))
        self.live = Live(context, Numbers(), Options(), loop, measures=True)
        self.holds = LinkHolds(context)
        self.state = initial(context, [DeclaredFlow(flow, Origin.FILE) for flow in context.network.flows])
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.deployer = AgentDeployer(lambda: self.now_s, self.counters, self.fail, lambda: None)
        self.rules: dict[str, frozenset[str]] = dict.fromkeys(context.addressing.dpid, frozenset())
        self.changed_rules: list[str] = []
        for node in self.rules:
            self.state = agent_up(self.state, context, node, fresh=False, now_s=-10.0)
        self.plan()
        for node in self.rules:
            self.deployer.joined(Session(node, self.told), AgentConfig(self.live.in_force.agents[node].hello))  # type: ignore[arg-type]
        self.settle()
        self.run(5.0)
        self.told.clear()
        self.changed_rules.clear()
        self.counters.clear()

    def fail(self, where: str, what: str) -> None:
        raise AssertionError(f"{where}: {what}")

    def plan(self) -> None:
        self.counters["plans"] += 1
        self.live.replan(self.state, NO_REPORTS, self.now_s)

    def settle(self) -> None:
        for _ in range(10):
            views = Views(self.deployer.views(), {n: SwitchView(True, f, f) for n, f in self.rules.items()})
            orders = orders_of(self.live.in_force, views)
            self.deployer.push(self.live.in_force, orders)
            self.changed_rules += [node for node, flows in orders.classified.items() if flows != self.rules[node]]
            self.rules.update(orders.classified)

    def become(self, state: Any) -> None:
        before, self.state = self.state, state
        if state.version != before.version:
            self.plan()
            self.settle()
        if self.live._pending and self.live.improve(NO_REPORTS, self.now_s) is not None:
            self.counters["improvements"] += 1
            self.settle()

    def report(self, node: str, **up: bool) -> None:
        """What an agent says of its inbound links (with _ for -)."""
        links = {link.replace("_", "-"): alive for link, alive in up.items()}
        heard = links_heard(self.state, self.context, node, links, self.now_s)
        self.become(self.holds.reported(self.state, heard, self.now_s))

    def run(self, seconds: float, slot_s: float = 0.1) -> None:
        for _ in range(round(seconds / slot_s)):
            self.now_s += slot_s
            self.become(self.holds.damped(self.state, self.now_s))
            state, plan = self.live.slot(self.state, NO_REPORTS, self.now_s)
            if plan is not None:
                self.deployer.push_rates(plan)
            self.become(state)

    def configured(self) -> Counter[str]:
        return Counter(node for node, document in self.told if document["type"] == "config")

    def paths(self, flow: str) -> list[tuple[str, ...]]:
        return [path.links for path in self.live.in_force.flows[flow].paths]


@pytest.fixture
def controller() -> Controller:
    return Controller()


def without_rates(entry: Any) -> Any:
    """An entry of a configuration without what may change each slot."""
    if isinstance(entry, dict):
        return {key: without_rates(value) for key, value in entry.items() if key != "rate_mbps"}
    return [without_rates(each) for each in entry] if isinstance(entry, list) else entry


def entries(config: Mapping[str, Any], number: int) -> list[Any]:
    """What a configuration says of a flow but its rates."""
    return [without_rates(each) for side in ("ingress", "egress") for each in config[side] if number in each.values()]


def test_nothing_is_told_while_nothing_changes(controller: Controller) -> None:
    assert controller.paths("f1") == [("ab-wifi",), ("ab-plc",)] and controller.paths("f3") == [("ae",)]
    controller.run(10.0)
    assert controller.told == [] and controller.counters["plans"] == 0


@pytest.mark.parametrize("event", ["cut", "cut and back", "slower", "slower and back"])
def test_a_change_concerns_only_the_flows_that_it_affects(controller: Controller, event: str) -> None:
    """No agent is configured anew for a flow whose paths stay, and none of its rules changes."""
    others = {flow: controller.paths(flow) for flow in ("f2", "f3", "f4")}
    if event.startswith("cut"):
        controller.report("b", ab_plc=False)
    else:
        controller.source.mbps["ab-plc"] = 3.0
    controller.run(5.0)
    if event.endswith("back"):
        controller.report("b", ab_plc=True)
        controller.source.mbps["ab-plc"] = 10.0
        controller.run(5.0)
    assert controller.paths("f1") == ([("ab-wifi",)] if event == "cut" else [("ab-wifi",), ("ab-plc",)])
    assert {flow: controller.paths(flow) for flow in others} == others
    assert controller.told, "f1 must have been told"
    # Nobody but the edges of f1 gets a configuration; f4, which contends with it, may get other rates.
    assert set(controller.configured()) <= {"a", "b"}
    assert {node for node, document in controller.told if document["type"] == "rates"} <= {"a", "g"}
    assert controller.changed_rules == []


def test_link_that_is_measured_while_others_are_planned_is_added_to_its_flow() -> None:
    """The capacity is known to the loop first; a plan for another reason comes before the state has it."""
    links = [
        {key: value for key, value in link.items() if link["id"] != "ab-plc" or key != "capacity_mbps"}
        for link in DOCUMENT["links"]
    ]
    controller = Controller(TopologyContext.of(parse({**DOCUMENT, "links": links}, "x", measured=True)))
    assert controller.paths("f1") == [("ab-wifi",)]
    controller.source.mbps |= {"ab-plc": 10.0, "ab-plc~": 10.0}
    controller.now_s += 0.1
    controller.live.turn(NO_REPORTS, controller.now_s)
    controller.report("h", gh=False)
    controller.run(5.0)
    assert controller.paths("f1") == [("ab-wifi",), ("ab-plc",)]


def test_a_configuration_says_the_same_as_before_of_flows_that_are_not_affected(controller: Controller) -> None:
    plan = controller.live.in_force
    number = next(entry.number for flow, entry in plan.agents["a"].ingress.items() if flow == "f3")
    before = entries(plan.agents["a"].document(), number)
    controller.report("b", ab_plc=False)
    documents = [document for node, document in controller.told if node == "a" and document["type"] == "config"]
    assert len(documents) == 1 and before
    assert entries(documents[0], number) == before


def test_a_link_that_flaps_for_a_minute_causes_no_storm(controller: Controller) -> None:
    """Down and up each 0.5 s: after three failures it is left alone, until it has been quiet for long enough."""
    for _ in range(60):
        controller.report("b", ab_plc=False)
        controller.run(0.5, slot_s=0.5)
        controller.report("b", ab_plc=True)
        controller.run(0.5, slot_s=0.5)
    assert controller.state.held == {"ab-plc"}
    # Without damping there would be 120 plans and as many configurations of each edge.
    assert controller.counters["plans"] <= 6
    assert controller.configured()["a"] <= 6 and controller.configured()["b"] <= 6
    assert set(controller.configured()) <= {"a", "b"}
    told = len(controller.told)
    controller.run(60.0, slot_s=0.5)
    assert not controller.state.held and controller.paths("f1") == [("ab-wifi",), ("ab-plc",)]
    assert len(controller.told) - told <= 12


def test_what_is_planned_before_all_is_known_is_not_kept(controller: Controller) -> None:
    """After a restart the first readings show a part of the network only; no route may come from that part."""
    begun = Controller.__new__(Controller)
    source = Readings()
    live = Live(CONTEXT, Numbers(), Options(), LiveLoop(CONTEXT.network, source, LoopOptions(0.05)), measures=True)
    state = initial(CONTEXT, [DeclaredFlow(flow, Origin.FILE) for flow in CONTEXT.network.flows])
    for node in CONTEXT.addressing.dpid:
        state = agent_up(state, CONTEXT, node, fresh=False, now_s=-10.0)
    everything, source.mbps = source.mbps, {"ab-plc": 10.0}
    begun.live, now_s = live, 0.0
    live.replan(state, NO_REPORTS, now_s)
    for slot in range(40):
        now_s += 0.1
        if slot == 20:
            source.mbps = everything
        after, _ = live.slot(state, NO_REPORTS, now_s, ask=False)
        if after is not state:
            state = after
            live.replan(state, NO_REPORTS, now_s)
    assert begun.paths("f1") == [("ab-plc",)] and begun.paths("f2") == controller.paths("f2")
    live.begin()
    live.replan(state, NO_REPORTS, now_s)
    assert begun.paths("f1") == controller.paths("f1")

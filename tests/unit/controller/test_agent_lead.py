"""Who leads agents: said first, then only what differs; a follower says nothing; hostile answers are of no use."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import planning
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.agents.configs import AgentConfig
from hyroads.controller.agents.frame_keys import FrameKeys
from hyroads.controller.agents.lead import MAX_EPOCH, STALE, InForce, epoch_of, in_force_of
from hyroads.controller.agents.protocol import Hello, encode, parse_hello, parse_line
from hyroads.controller.api.metrics import refused_changes
from hyroads.controller.control.update_order import Orders
from hyroads.controller.core.netfile import parse
from hyroads.controller.model.plan import Plan
from hyroads.controller.model.state import DeclaredFlow, Origin, TopologyContext, agent_up, initial
from hyroads.controller.runtime.agent_deployer import AgentDeployer

CONTEXT = TopologyContext.of(
    parse(
        {
            "nodes": {node: {"role": "ap"} for node in "ab"},
            "links": [
                {"id": "plc", "from": "a", "to": "b", "technology": "plc", "capacity_mbps": 10, "both": True},
                {"id": "wifi", "from": "a", "to": "b", "technology": "wifi", "capacity_mbps": 15, "both": True},
            ],
            "interference": {"rule": "technology"},
            "flows": [{"id": "f", "from": "a", "to": "b"}],
        },
        "x",
    )
)


def planned() -> Plan:
    state = initial(CONTEXT, [DeclaredFlow(flow, Origin.FILE) for flow in CONTEXT.network.flows])
    for node in "ab":
        state = agent_up(state, CONTEXT, node, fresh=False, now_s=-10.0)
    return planning.planned(CONTEXT, state)


class Agent:
    """One agent, whichever controllers it speaks with; obeys the greatest epoch."""

    def __init__(self) -> None:
        self.epoch = 0
        self.revision = 0
        self.rates: dict[str, dict[str, float]] = {}
        self.changed = 0
        self.refused = 0

    def answer(self, session: Session, message: Mapping[str, Any]) -> dict[str, Any]:
        if message["type"] == "lead" and message["epoch"] >= self.epoch:
            self.epoch = session.epoch = message["epoch"]
            return {"type": "ok", "revision": self.revision, "rates": self.rates}
        if session.epoch < self.epoch:
            self.refused += 1
            return {"type": "error", "message": STALE, "epoch": self.epoch}
        self.changed += 1
        if message["type"] == "config":
            self.revision = message["revision"]
            self.rates = {
                str(flow["number"]): {str(path["id"]): path["rate_mbps"] for path in flow["paths"]}
                for flow in message["ingress"]
            }
        else:
            for flow, rates in message["rates"].items():
                self.rates[flow].update(rates)
        return {"type": "ok"}


class Session:
    """A connection of one agent to one controller."""

    def __init__(self, agent: Agent, node: str) -> None:
        self.node, self.agent, self.epoch, self.closed = node, agent, 0, False
        self.hello = Hello(node, "x", node, None, agent.revision, epoch=agent.epoch)
        self.epoch_told: Any = None
        self.said: list[str] = []

    def request(self, document: Mapping[str, Any] | str, answer: Any, told: Any = None) -> None:
        document = json.loads(document) if isinstance(document, str) else document
        self.said.append(document["type"])
        said = self.agent.answer(self, document)
        if said["type"] == "error":
            self.epoch_told(said["epoch"])
            answer(said["message"])
            return
        if told is not None:
            told(said)
        answer(None)


class Controller:
    def __init__(self) -> None:
        self.counters: Counter[str] = Counter()
        self.seen: list[tuple[int, str]] = []
        self.faults: list[str] = []
        self.now_s = 0.0
        self.deployer = AgentDeployer(
            lambda: self.now_s,
            self.counters,
            lambda where, what: self.faults.append(what),
            lambda: None,
            lambda epoch, who: self.seen.append((epoch, who)),
        )

    def join(self, agent: Agent) -> Session:
        session = Session(agent, "a")
        self.deployer.joined(session, None)  # type: ignore[arg-type]
        return session

    def push(self, plan: Plan) -> None:
        self.now_s += 2.0
        for _ in range(3):
            self.deployer.push(plan, Orders({"a": plan.agents["a"]}, {}))
        self.deployer.push_rates(plan)


@pytest.fixture
def plan() -> Plan:
    return planned()


def test_without_a_role_nobody_is_told_who_leads(plan: Plan) -> None:
    controller, agent = Controller(), Agent()
    session = controller.join(agent)
    controller.push(plan)
    assert "lead" not in session.said and agent.revision == plan.agents["a"].revision


def test_the_first_thing_said_is_who_leads(plan: Plan) -> None:
    controller, agent = Controller(), Agent()
    controller.deployer.lead(1)
    session = controller.join(agent)
    controller.push(plan)
    assert session.said[0] == "lead" and agent.revision == plan.agents["a"].revision


def test_a_takeover_in_a_quiet_network_changes_nothing(plan: Plan) -> None:
    old, new, agent = Controller(), Controller(), Agent()
    old.deployer.lead(1)
    new.deployer.follow()
    old.join(agent)
    session = new.join(agent)
    old.push(plan)
    new.push(plan)
    assert session.said == []
    changed = agent.changed
    new.deployer.lead(2)
    new.push(plan)
    assert session.said == ["lead"] and agent.changed == changed


def test_a_stale_leader_changes_nothing_and_learns_who_leads(plan: Plan) -> None:
    old, new, agent = Controller(), Controller(), Agent()
    old.deployer.lead(1)
    new.deployer.follow()
    old.join(agent)
    new.join(agent)
    old.push(plan)
    new.deployer.lead(2)
    new.push(plan)
    changed = agent.changed
    config = plan.agents["a"]
    slower = {name: flow.with_rates({p.id: 0.5 for p in flow.paths}) for name, flow in config.ingress.items()}
    other = replace(plan, agents={**plan.agents, "a": config.with_ingress(slower)})
    old.push(other)
    assert agent.changed == changed and agent.refused > 0
    assert old.counters["refused_as_stale"] == agent.refused
    assert old.seen == [(2, "agent a")] and not old.faults
    # After a redial its hello says so, and who still believes to lead is refused at once and then silent.
    refused = agent.refused
    again = old.join(agent)
    old.push(other)
    assert again.said == ["lead"] and agent.refused == refused + 1 and agent.changed == changed


@given(
    st.dictionaries(st.sampled_from(["revision", "rates", "x"]), st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
        max_leaves=8,
    ))
)  # fmt: skip
def test_whatever_an_agent_answers_is_bounded(answer: dict[str, Any]) -> None:
    runs = in_force_of(answer)
    if runs is not None:
        assert 0 <= runs.revision < 2**31
        assert all(0 <= n <= 65_535 and 0 <= p <= 255 and 0 <= r <= 1e9 for (n, p), r in runs.rates.items())


def test_what_an_agent_runs_is_read() -> None:
    told = parse_line(encode({"type": "ok", "seq": 3, "revision": 7, "rates": {"16": {"1": 9.5, "2": 0}}}))
    assert in_force_of(told) == InForce(7, {(16, 1): 9.5, (16, 2): 0.0})


@pytest.mark.parametrize("epoch", [0, -1, True, "3", 1.0, None, MAX_EPOCH + 1, [1]])
def test_an_epoch_that_is_none_counts_as_none(epoch: object) -> None:
    assert epoch_of({"epoch": epoch}) == 0
    hello = {"type": "hello", "version": 1, "node": "a", "boot": "9f", "revision": 7, "epoch": epoch}
    assert parse_hello(parse_line(encode(hello))).epoch == 0
    assert parse_hello(parse_line(encode({**hello, "epoch": 5}))).epoch == 5


def test_configurations_are_those_of_the_plan(plan: Plan) -> None:
    assert isinstance(plan.agents["a"], AgentConfig) and plan.agents["a"].rates


def test_refusals_are_a_metric_once_there_are_any() -> None:
    assert not list(refused_changes({}))
    (metric,) = refused_changes({"refused_as_stale": 3})
    assert metric.lines() == [
        'hyroads_ha_refused_total{by="switch"} 0.0',
        'hyroads_ha_refused_total{by="agent"} 3.0',
        'hyroads_ha_refused_total{by="etcd"} 0.0',
    ]


@pytest.mark.parametrize("can_seal", [True, False])
def test_who_else_must_seal_is_told_only_if_keys_change(plan: Plan, can_seal: bool) -> None:
    controller, agent = Controller(), Agent()
    keys = controller.deployer.keys = FrameKeys(CONTEXT.addressing.interface_mac)
    keys.use("5e" * 32)
    for node in ("a", "n"):
        keys.heard(Hello(node, "x", node, None, 0, seals=can_seal or node == "a"))
    session = Session(agent, "b")
    session.hello = replace(session.hello, seals=True)
    controller.deployer.joined(session, None)  # type: ignore[arg-type]
    before = plan.agents["b"]
    flow = before.egress["f"]
    after = replace(before, egress={"f": replace(flow, sealers=(*flow.sealers, "n"))})
    for wanted in (before, after):
        controller.now_s += 2.0
        for _ in range(2):
            controller.deployer.push(plan, Orders({"b": wanted}, {}))
    told = 1 if can_seal else 2
    assert session.said.count("config") == told and keys.revision("b", after) == agent.revision
    assert controller.deployer.views()["b"].acked is after

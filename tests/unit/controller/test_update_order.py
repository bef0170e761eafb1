"""The order in which changes go out, on a model of switches and agents with arbitrary delays and orders of answers."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from pathlib import Path

import order_world
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from order_world import OrderWorld
from planning import planned
from swarm import events, swarm

from hyroads.controller.agents.configs import AgentConfig, BranchFlow, EgressFlow, HelloConfig, IngressFlow, PathConfig
from hyroads.controller.control.flow_order import AgentView, SwitchView, Views, pending_of
from hyroads.controller.control.update_order import UpdateOrder, orders_of
from hyroads.controller.core.addressing import Numbers
from hyroads.controller.core.network import FlowSpec
from hyroads.controller.files.documents import read_file
from hyroads.controller.model.plan import MULTIPATH, SINGLE, FlowPlan, Plan, PlannedPath
from hyroads.controller.model.state import (
    DeclaredFlow,
    Origin,
    State,
    TopologyContext,
    agent_down,
    agent_up,
    flow_declared,
    flow_removed,
    initial,
    links_heard,
)

TRIANGLE = Path(__file__).resolve().parents[3] / "mininet" / "networks" / "triangle.yaml"
CONTEXT = TopologyContext.of(read_file(TRIANGLE))
UP = DeclaredFlow(FlowSpec("up", "c", "a"), Origin.API)


@dataclass
class Agent:
    """An agent: what it runs, and the configuration that is on its way."""

    runs: AgentConfig
    sent: AgentConfig | None = None


_PLANS: dict[str, Plan] = {}


def plan_of(state: State, numbers: Numbers) -> Plan:
    """As the controller plans; orders of events lead to the same hundred states again and again."""
    key = repr((state, numbers))
    if key not in _PLANS:
        _PLANS[key] = planned(CONTEXT, state, numbers)
    return _PLANS[key]


@dataclass
class Model:
    """The network as the update ordering sees it and as it is. Messages are carried out when the test says so."""

    state: State
    plan: Plan
    agents: dict[str, Agent] = field(default_factory=dict)
    rules: dict[str, frozenset[str]] = field(default_factory=lambda: {"a": frozenset(), "b": frozenset()})
    coming: dict[str, frozenset[str]] = field(default_factory=dict)

    @classmethod
    def start(cls) -> Model:
        state = initial(CONTEXT, [DeclaredFlow(flow, Origin.FILE) for flow in CONTEXT.network.flows])
        for node in ("a", "b"):
            state = agent_up(state, CONTEXT, node, fresh=False, now_s=0.0)
        model = cls(state, planned(CONTEXT, state))
        for node in ("a", "b"):
            model.boot(node)
        return model

    def boot(self, node: str) -> None:
        self.agents[node] = Agent(AgentConfig(self.plan.agents[node].hello))

    def become(self, state: State) -> None:
        self.state = state
        self.plan = plan_of(state, self.plan.numbers)

    def views(self) -> Views:
        agents = {node: AgentView(agent.runs, agent.sent) for node, agent in self.agents.items()}
        switches = {
            node: SwitchView(True, rules & self.coming.get(node, rules), rules | self.coming.get(node, rules))
            for node, rules in self.rules.items()
        }
        return Views(agents, switches)

    def push(self) -> None:
        orders = orders_of(self.plan, self.views())
        for node, config in orders.agents.items():
            if self.agents[node].sent is None and self.agents[node].runs != config:
                self.agents[node].sent = config
        for node, flows in orders.classified.items():
            if node not in self.coming and flows != self.rules[node]:
                self.coming[node] = flows

    def carry_out(self, what: int) -> bool:
        """One message arrives and is confirmed; False if none is under way."""
        waiting = [("agent", n) for n, agent in self.agents.items() if agent.sent] + [("rule", n) for n in self.coming]
        if not waiting:
            return False
        kind, node = waiting[what % len(waiting)]
        if kind == "rule":
            self.rules[node] = self.coming.pop(node)
        else:
            agent = self.agents[node]
            agent.runs, agent.sent = agent.sent or agent.runs, None
        return True

    def check(self) -> None:
        """No frame may be handed to an agent, or sent on a path, that the next one does not know."""
        for node, flows in self.rules.items():
            for flow in flows:
                ingress = self.agents.get(node)
                if ingress is None or flow not in ingress.runs.ingress:
                    # Only after the agent itself died or restarted; the rule must be on its way out.
                    assert flow in self.broken
                    continue
                entry = ingress.runs.ingress[flow]
                egress = self.agents.get(entry.egress)
                known = egress.runs.egress.get(flow) if egress else None
                if known is None:
                    assert flow in self.broken
                else:
                    assert {path.id for path in entry.paths} <= set(known.paths)

    broken: set[str] = field(default_factory=set)
    """Flows whose agent died while frames were, or were about to be, handed to it; until the rule is gone."""

    def possible(self) -> set[str]:
        return {flow for rules in (*self.rules.values(), *self.coming.values()) for flow in rules}

    def settle(self) -> None:
        for _ in range(100):
            self.push()
            if not self.carry_out(0):
                return
            self.check()
        raise AssertionError("it does not come to rest")


def test_flow_starts_from_its_end() -> None:
    model = Model.start()
    orders = orders_of(model.plan, model.views())
    assert orders.agents["b"].egress and not orders.agents["a"].ingress and not orders.classified["a"]
    model.agents["b"].runs = orders.agents["b"]
    orders = orders_of(model.plan, model.views())
    assert orders.agents["a"].ingress and not orders.classified["a"]
    model.agents["a"].runs = orders.agents["a"]
    assert orders_of(model.plan, model.views()).classified["a"] == {"f1"}
    assert pending_of(model.plan, model.views(), "f1") == ["switch a"]


def test_flow_ends_from_its_beginning() -> None:
    model = Model.start()
    model.settle()
    model.become(flow_removed(model.state, "f1"))
    orders = orders_of(model.plan, model.views())
    assert not orders.classified["a"] and orders.agents["a"].ingress and orders.agents["b"].egress
    assert pending_of(model.plan, model.views(), "f1") == ["agent a", "agent b", "switch a"]
    model.rules["a"] = frozenset()
    orders = orders_of(model.plan, model.views())
    assert not orders.agents["a"].ingress and orders.agents["b"].egress
    model.agents["a"].runs = orders.agents["a"]
    assert not orders_of(model.plan, model.views()).agents["b"].egress


def test_cut_link_needs_one_message_only() -> None:
    model = Model.start()
    model.settle()
    model.become(links_heard(model.state, CONTEXT, "b", {"ab-plc": False}, 0.0))
    orders = orders_of(model.plan, model.views())
    assert [path.rate_mbps for path in orders.agents["a"].ingress["f1"].paths] == [pytest.approx(9.5, rel=1e-4)]
    assert len(orders.agents["b"].egress["f1"].paths) == 2, "the egress waits until the ingress has let go"
    assert orders.classified["a"] == {"f1"}


def test_rule_waits_for_the_labels_of_every_switch_on_the_way() -> None:
    model = Model.start()
    model.settle()
    model.rules["a"] = frozenset()
    views = model.views()
    switches = {**views.switches, "b": replace(views.switches["b"], ready=False)}
    assert not orders_of(model.plan, replace(views, switches=switches)).classified["a"]
    without = {node: view for node, view in views.switches.items() if node != "b"}
    assert not orders_of(model.plan, replace(views, switches=without)).classified["a"]


def test_agent_that_runs_something_unknown_keeps_its_rule_and_gets_everything_at_once() -> None:
    model = Model.start()
    model.settle()
    views = model.views()
    views = replace(views, agents={**views.agents, "a": AgentView(None)})
    orders = orders_of(model.plan, views)
    assert orders.classified["a"] == {"f1"} and orders.agents["a"].ingress
    without = replace(views, switches={**views.switches, "a": SwitchView(True)})
    assert not orders_of(model.plan, without).classified["a"], "nothing new starts on an unknown agent"


EVENTS = st.lists(
    st.tuples(st.sampled_from(["cut", "heal", "add", "remove", "die", "boot", "arrive"]), st.integers(0, 7)),
    max_size=60,
)


@examples(300, quick=12)
@given(EVENTS)
def test_in_any_order_of_events_no_frame_meets_an_agent_that_does_not_know_it(events: list[tuple[str, int]]) -> None:
    model = Model.start()
    for kind, choice in events:
        node = "ab"[choice % 2]
        link = ("ab-plc", "ab-wifi")[choice % 2]
        if kind == "cut" or kind == "heal":
            model.become(links_heard(model.state, CONTEXT, "b", {link: kind == "heal"}, 99.0))
        elif kind == "add":
            model.become(flow_declared(model.state, UP))
        elif kind == "remove":
            model.become(flow_removed(model.state, "up"))
        elif kind == "die" and node in model.agents:
            del model.agents[node]
            model.broken |= model.possible()
            model.become(agent_down(model.state, CONTEXT, node))
        elif kind == "boot" and node not in model.agents:
            model.boot(node)
            model.become(agent_up(model.state, CONTEXT, node, fresh=False, now_s=0.0))
        else:
            model.carry_out(choice)
        model.broken &= model.possible()
        model.push()
        model.check()
    for node in ("a", "b"):
        if node not in model.agents:
            model.boot(node)
            model.become(agent_up(model.state, CONTEXT, node, fresh=False, now_s=0.0))
    model.settle()
    model.broken.clear()
    model.check()
    for flow in model.plan.flows:
        assert pending_of(model.plan, model.views(), flow) == []
    assert {node: agent.runs for node, agent in model.agents.items()} == model.plan.agents


SOME_NODES = "abcde"
HELLO = HelloConfig(40, 140, (), ())


class Shuffled:
    """Plans, agents and switches of which anything may be so at any moment."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.agents: dict[str, AgentView] = {}
        self.switches: dict[str, SwitchView] = {}
        self.flows = {name: self.flow(name) for name in ("f1", "f2", "f3", "f4")}

    def flow(self, name: str) -> FlowPlan:
        ingress, egress, branch = self.rng.sample(SOME_NODES, 3)
        ids = self.rng.sample((1, 2, 3), self.rng.randint(1, 3))
        paths = tuple(PlannedPath(i, ("l",), (i,), 1.0) for i in ids)
        copies = tuple(PathConfig(i, (i,), None, 1600) for i in ids[1:])
        branches = ((branch, BranchFlow(int(name[1]), name, ids[0], copies)),) if self.rng.random() < 0.3 else ()
        mode, switches = self.rng.choice([MULTIPATH, MULTIPATH, SINGLE]), frozenset({ingress, egress, branch})
        spec = FlowSpec(name, ingress, egress)
        return FlowPlan(spec, int(name[1]), mode, None, ingress, egress, paths, switches, branches=branches)

    def plan(self) -> Plan:
        sides: dict[str, tuple[dict[str, IngressFlow], dict[str, EgressFlow], dict[tuple[str, int], BranchFlow]]] = {
            node: ({}, {}, {}) for node in SOME_NODES
        }
        for name, flow in self.flows.items():
            if flow.mode == MULTIPATH:
                paths = tuple(PathConfig(p.id, p.labels, p.rate_mbps, 1600) for p in flow.paths)
                ids = tuple(sorted(path.id for path in flow.paths))
                sides[flow.ingress or ""][0][name] = IngressFlow(
                    flow.number, name, flow.egress or "", 60, paths, branches=flow.branches
                )
                sides[flow.egress or ""][1][name] = EgressFlow(flow.number, name, ids, 100)
                for node, copying in flow.branches:
                    sides[node][2][copying.key] = copying
        configs = {node: AgentConfig(HELLO, *of) for node, of in sides.items()}
        before = getattr(self, "configs", {})
        self.configs = {
            node: before[node] if before.get(node) == config else config for node, config in configs.items()
        }
        return Plan(1, dict(self.flows), self.configs, {}, Numbers())

    def happen(self, kind: str) -> None:
        node = self.rng.choice(SOME_NODES)
        if kind == "flow":
            name = self.rng.choice(["f1", "f2", "f3", "f4"])
            self.flows[name] = self.flow(name)
        elif kind == "remove":
            self.flows.pop(self.rng.choice(["f1", "f2", "f3", "f4"]), None)
        elif kind == "rates":
            self.rate()
        elif kind == "leave":
            (self.agents if self.rng.random() < 0.5 else self.switches).pop(node, None)
        elif kind == "switch":
            possible = frozenset(name for name in ("f1", "f2", "f3", "f4") if self.rng.random() < 0.5)
            confirmed = frozenset(name for name in possible if self.rng.random() < 0.7)
            self.switches[node] = SwitchView(self.rng.random() < 0.7, confirmed, possible)
        elif kind == "one field":
            self.change_one_field(node)
        elif kind == "settle":
            self.settle()
        else:
            known = [None, self.configs[node], self.orders.agents.get(node), AgentConfig(HELLO)]
            acked, sent = self.rng.choice(known), self.rng.choice(known) if self.rng.random() < 0.4 else None
            self.agents[node] = AgentView(acked, sent)

    def change_one_field(self, node: str) -> None:
        """Of one agent or switch one thing alone is another: a flow more or less, labels, what it runs or is sent."""
        agent, switch, flow = (
            self.agents.get(node),
            self.switches.get(node),
            {self.rng.choice(["f1", "f2", "f3", "f4"])},
        )
        if switch is not None and (agent is None or self.rng.random() < 0.6):
            name = self.rng.choice(["possible", "possible", "confirmed", "ready"])
            value = not switch.ready if name == "ready" else getattr(switch, name) ^ flow
            self.switches[node] = replace(switch, **{name: value})
        elif agent is not None:
            config = self.rng.choice([None, self.configs[node], agent.acked, agent.sent, AgentConfig(HELLO)])
            self.agents[node] = replace(agent, **{self.rng.choice(["acked", "sent"]): config})

    def settle(self) -> None:
        """All that is planned is in force, at nearly all nodes: the next change meets a network at rest."""
        for node in SOME_NODES:
            if self.rng.random() < 0.95:
                self.agents[node] = AgentView(self.configs[node])
                rules = frozenset(n for n, f in self.flows.items() if f.mode == MULTIPATH and f.ingress == node)
                rules = rules if self.rng.random() < 0.7 else frozenset()
                self.switches[node] = SwitchView(self.rng.random() < 0.9, rules, rules)

    def rate(self) -> None:
        """A slot gives a flow other rates."""
        flows = [name for name, flow in self.flows.items() if flow.mode == MULTIPATH]
        for name in self.rng.sample(flows, min(1, len(flows))):
            rates = [self.rng.choice((0.0, 1.0, 2.0)) for _ in self.flows[name].paths]
            self.flows[name] = flow = self.flows[name].with_rates(rates)
            node = flow.ingress or ""
            entries = self.configs[node].ingress
            if name in entries:
                # As after it was sent: what is made of it by other rates is known to be so.
                assert entries[name].text
                rated = self.configs[node].with_ingress({name: entries[name].with_rates(flow.rate_of)})
                self.configs = {**self.configs, node: rated}

    def views(self) -> Views:
        return Views(dict(self.agents), dict(self.switches))


KINDS = (
    "flow", "remove", "rates", "leave", "switch", "agent", "agent", "settle", "settle", "one field", "one field",
)  # fmt: skip


@pytest.mark.parametrize("seed", range(60))
def test_orders_depend_on_nothing_that_was_asked_before(seed: int) -> None:
    world, order = Shuffled(seed), UpdateOrder()
    world.orders = order.orders(world.plan(), world.views())
    for _ in range(60):
        world.happen(world.rng.choice(KINDS))
        plan, views = world.plan(), world.views()
        world.orders = order.orders(plan, views)
        assert world.orders == orders_of(plan, views)


def play_updates(_: int, row: list[tuple[str, int]]) -> None:
    world = OrderWorld()
    for kind, choice in row:
        world.happen(kind, choice)
    world.settle()


def moving_end() -> tuple[Plan, Views]:
    """Flow f1 from a ended at c, and is planned to end at d; what makes a send it there is on its way."""
    world, old = OrderWorld(), IngressFlow(1, "f1", "c", 60, (PathConfig(1, (1,), 1.0, 1600),))
    world.flows["f1"] = FlowPlan(
        FlowSpec("f1", "a", "d"), 1, MULTIPATH, None, "a", "d", (PlannedPath(1, ("l",), (1,), 1.0),), frozenset("ad")
    )
    plan = world.planned()
    agents = {
        "a": AgentView(AgentConfig(HELLO, {"f1": old}), plan.agents["a"]),
        "c": AgentView(AgentConfig(HELLO, {}, {"f1": EgressFlow(1, "f1", (1,), 100)})),
        "d": AgentView(plan.agents["d"]),
    }
    return plan, Views(agents, {"a": SwitchView(True, frozenset({"f1"}), frozenset({"f1"}))})


def test_former_end_of_a_flow_stays_until_its_beginning_confirms_the_new_end() -> None:
    plan, views = moving_end()
    orders = orders_of(plan, views)
    assert orders.agents["c"].egress and orders.classified["a"] == {"f1"}
    confirmed = replace(views, agents={**views.agents, "a": AgentView(plan.agents["a"])})
    assert not orders_of(plan, confirmed).agents["c"].egress


def test_flow_does_not_start_with_copies_that_no_agent_makes() -> None:
    world = OrderWorld()
    copying = BranchFlow(1, "f1", 1, (PathConfig(2, (2,), None, 1600),))
    paths = tuple(PlannedPath(i, ("l",), (i,), 1.0) for i in (1, 2))
    world.flows["f1"] = FlowPlan(
        FlowSpec("f1", "a", "b"), 1, MULTIPATH, None, "a", "b", paths, frozenset("abc"), branches=(("c", copying),)
    )
    plan = world.planned()
    agents = {node: AgentView(plan.agents[node]) for node in "abc"}
    switches = {node: SwitchView(True) for node in "abc"}
    assert orders_of(plan, Views(agents, switches)).classified["a"] == {"f1"}
    without = {**agents, "c": AgentView(AgentConfig(HELLO))}
    assert not orders_of(plan, Views(without, switches)).classified["a"]
    del without["c"]
    assert not orders_of(plan, Views(without, switches)).classified["a"]


def test_in_any_order_of_events_frames_meet_only_agents_that_know_them() -> None:
    swarm(300, lambda rng: events(rng, order_world.EVENTS, 60, order_world.ANSWERS), play_updates)

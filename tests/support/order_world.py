"""Plans that change at random, agents and switches whose answers come in any order, and the order of updates between
them. Plans are drawn, not planned: a thousand runs take seconds.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from hyroads.controller.agents.configs import AgentConfig, BranchFlow, EgressFlow, HelloConfig, IngressFlow, PathConfig
from hyroads.controller.control.flow_order import AgentView, SwitchView, Views, pending_of
from hyroads.controller.control.update_order import Orders, UpdateOrder, orders_of
from hyroads.controller.core.addressing import Numbers
from hyroads.controller.core.network import FlowSpec
from hyroads.controller.model.plan import MULTIPATH, SINGLE, FlowPlan, Plan, PlannedPath

NODES = "abcd"
NAMES = ("f1", "f2", "f3")
HELLO = HelloConfig(40, 140, (), ())
EVENTS = ("flow", "paths", "rates", "remove", "agent answers", "switch answers", "answer is lost", "die", "boot",
          "switch leaves", "switch returns", "labels", "all answer", "back")  # fmt: skip
ANSWERS = ("agent answers", "switch answers")


@dataclass
class Agent:
    """What an agent runs, and the configuration that is on its way to it."""

    runs: AgentConfig
    sent: AgentConfig | None = None


@dataclass
class Switch:
    """Flows that a switch hands to its agent, those that it shall (None: no change is on its way), and its labels."""

    rules: frozenset[str] = frozenset()
    coming: frozenset[str] | None = None
    labels: bool = True
    connected: bool = True

    @property
    def possible(self) -> frozenset[str]:
        return self.rules | (self.coming or frozenset())

    @property
    def view(self) -> SwitchView:
        return SwitchView(self.labels, self.rules if self.coming is None else self.rules & self.coming, self.possible)


class OrderWorld:
    """A network of which each event changes one thing; then orders go out, and everything is checked."""

    def __init__(self) -> None:
        self.flows: dict[str, FlowPlan] = {}
        self.former: dict[str, FlowPlan] = {}
        """How flows were planned before their last change."""
        self.configs: dict[str, AgentConfig] = {}
        self.agents = {node: Agent(AgentConfig(HELLO)) for node in NODES}
        self.switches = {node: Switch() for node in NODES}
        self.broken: set[str] = set()
        """Flows that a death or a switch that is away cut off, until no rule sends frames into them."""
        self.order = UpdateOrder()
        self.orders = Orders({}, {})
        self.plan = self.planned()

    # -- plans

    def planned(self) -> Plan:
        sides: dict[str, tuple[dict[str, IngressFlow], dict[str, EgressFlow], dict[tuple[str, int], BranchFlow]]]
        sides = {node: ({}, {}, {}) for node in NODES}
        for name, flow in self.flows.items():
            if flow.mode == MULTIPATH:
                paths = tuple(PathConfig(p.id, p.labels, p.rate_mbps, 1600) for p in flow.paths)
                ids = tuple(sorted(path.id for path in flow.paths))
                begin, end = flow.ingress or "", flow.egress or ""
                entry = IngressFlow(flow.number, name, end, 60, paths, branches=flow.branches)
                old = self.configs[begin].ingress.get(name) if begin in self.configs else None
                sides[begin][0][name] = old if old == entry and old is not None else entry
                sides[end][1][name] = EgressFlow(flow.number, name, ids, 100)
                for node, copying in flow.branches:
                    sides[node][2][copying.key] = copying
        for node, of in sides.items():
            config, before = AgentConfig(HELLO, *of), self.configs.get(node)
            self.configs[node] = before if before is not None and before == config else config
        return Plan(1, dict(self.flows), dict(self.configs), {}, Numbers())

    @staticmethod
    def drawn(rng: random.Random, name: str, ends: tuple[str, str] | None = None) -> FlowPlan:
        ingress, egress = ends or tuple(rng.sample(NODES, 2))
        ids = rng.sample((1, 2, 3), rng.randint(1, 3))
        paths = tuple(PlannedPath(i, ("l",), (i,), rng.choice((0.0, 1.0, 2.0))) for i in ids)
        copies = tuple(PathConfig(i, (i,), None, 1600) for i in ids[1:])
        between = [node for node in NODES if node not in (ingress, egress)]
        at, number = rng.sample(between, rng.choice((0, 0, 1, 2))), int(name[1])
        branches = tuple((node, BranchFlow(number, name, ids[0], copies)) for node in at[:1])
        switches = frozenset({ingress, egress, *at})
        spec = FlowSpec(name, ingress, egress)
        return FlowPlan(spec, number, MULTIPATH, None, ingress, egress, paths, switches, branches=branches)

    def rate(self, rng: random.Random, name: str) -> None:
        """A slot gives a flow other rates; as in the controller, its entry and its configuration are rated anew."""
        flow = self.flows[name].with_rates([rng.choice((0.0, 1.0, 2.0)) for _ in self.flows[name].paths])
        self.flows[name], begin = flow, flow.ingress or ""
        entry = self.configs[begin].ingress[name]
        assert entry.text
        self.configs[begin] = self.configs[begin].with_ingress({name: entry.with_rates(flow.rate_of)})

    # -- events

    def happen(self, kind: str, choice: int) -> None:
        """One event, whose choices all come from ``choice``; some have nothing to act on."""
        rng = random.Random(choice)
        steady, flows = self.steady(), dict(self.flows)
        name, node = rng.choice(NAMES), rng.choice(NODES)
        agent, switch, flow = self.agents.get(node), self.switches[node], self.flows.get(name)
        if kind == "flow":
            drawn = self.drawn(rng, name)
            self.flows[name] = replace(drawn, mode=SINGLE) if rng.random() < 0.2 else drawn
        elif kind == "paths" and flow is not None and flow.mode == MULTIPATH:
            drawn = self.drawn(rng, name, (flow.ingress or "", flow.egress or ""))
            self.flows[name] = replace(drawn, switches=flow.switches | drawn.switches)
        elif kind == "rates" and flow is not None and flow.mode == MULTIPATH:
            self.rate(rng, name)
        elif kind == "remove":
            self.flows.pop(name, None)
        elif kind == "back" and name in self.former:
            self.flows[name] = self.former[name]
        elif kind in ANSWERS or kind == "answer is lost":
            self.answer(rng, kind)
        elif kind == "all answer":
            self.all_answer()
        elif kind == "die" and agent is not None:
            self.broken |= self.concerned(node)
            del self.agents[node]
        elif kind == "boot" and agent is None:
            self.agents[node] = Agent(AgentConfig(HELLO))
        elif kind in ("switch leaves", "switch returns"):
            switch.connected = kind == "switch returns"
        elif kind == "labels":
            switch.labels = not switch.labels
        self.former |= {name: flow for name, flow in flows.items() if self.flows.get(name) is not flow}
        self.after(steady if kind in ("rates", "paths", "labels", *ANSWERS) else set())

    def answer(self, rng: random.Random, kind: str) -> None:
        """A message is carried out and confirmed, or neither: its connection was lost before it arrived."""
        agents = [agent for agent in self.agents.values() if agent.sent is not None]
        switches = [switch for switch in self.switches.values() if switch.coming is not None and switch.connected]
        if agents and kind != "switch answers":
            agent = rng.choice(agents)
            if kind == "agent answers":
                agent.runs = agent.sent or agent.runs
            agent.sent = None
        elif switches and kind != "agent answers":
            switch = rng.choice(switches)
            if kind == "switch answers":
                switch.rules = switch.coming or frozenset()
            switch.coming = None

    def all_answer(self) -> None:
        """Every message that is on its way is carried out and confirmed at once."""
        for agent in self.agents.values():
            agent.runs, agent.sent = agent.sent or agent.runs, None
        for switch in self.switches.values():
            if switch.connected and switch.coming is not None:
                switch.rules, switch.coming = switch.coming, None

    def concerned(self, node: str) -> set[str]:
        """Flows whose frames may meet the agent of a node, by rules that are or may be in force."""
        return {flow for switch in self.switches.values() for flow in switch.possible if self.meets(flow, node)}

    def meets(self, flow: str, node: str) -> bool:
        entries = (
            (at, config.ingress[flow])
            for at, agent in self.agents.items()
            for config in (agent.runs, agent.sent)
            if config is not None and flow in config.ingress
        )
        return any(node in (at, entry.egress, *(by for by, _ in entry.branches)) for at, entry in entries)

    def views(self) -> Views:
        agents = {node: AgentView(agent.runs, agent.sent) for node, agent in self.agents.items()}
        return Views(agents, {node: switch.view for node, switch in self.switches.items() if switch.connected})

    def after(self, steady: set[tuple[str, str]]) -> None:
        """Orders go out, and everything holds."""
        self.broken &= {flow for switch in self.switches.values() for flow in switch.possible}
        for node, switch in self.switches.items():
            if not switch.connected:
                # Its agent does not wait for a switch that is away before it forgets a flow that begins there no more.
                self.broken |= {flow for flow in switch.possible if not self.stays(node, flow)}
        self.plan, views = self.planned(), self.views()
        self.orders = self.order.orders(self.plan, views)
        assert self.orders == orders_of(self.plan, views), "orders depend on earlier ones"
        for node, flow in steady - self.ended():
            assert flow in self.orders.classified[node], f"the rule of {flow} is withdrawn without need"
        self.push()
        self.check()

    def push(self) -> bool:
        """Send what is ordered where nothing is on its way; whether there was anything."""
        sent = False
        for node, config in self.orders.agents.items():
            agent = self.agents[node]
            if agent.sent is None and agent.runs != config:
                agent.sent, sent = config, True
        for node, flows in self.orders.classified.items():
            switch = self.switches[node]
            if switch.coming is None and flows != switch.rules:
                switch.coming, sent = flows, True
        return sent

    # -- what holds

    def steady(self) -> set[tuple[str, str]]:
        """Rules that are in force, and shall stay so: while a flow keeps its ends they have no reason to go."""
        return {
            (node, name)
            for node, switch in self.switches.items()
            for name in switch.rules & self.orders.classified.get(node, frozenset()) - self.broken
            if switch.connected and switch.coming is None
        }

    def ended(self) -> set[tuple[str, str]]:
        """Pairs of ingress and flow whose frames have an end that does not know them, or that is about to move."""
        return {(node, name) for node in NODES for name in NAMES if name in self.broken or not self.stays(node, name)}

    def stays(self, node: str, name: str) -> bool:
        flow, agent = self.flows.get(name), self.agents.get(node)
        if flow is None or flow.mode != MULTIPATH or flow.ingress != node or agent is None:
            return False
        return all(config is None or name in config.ingress for config in (agent.runs, agent.sent))

    def check(self) -> None:
        """No frame may be handed to an agent, or sent on a path, that the next one does not know."""
        for node, switch in self.switches.items():
            for flow in switch.rules - self.broken:
                assert node in self.agents, f"{node} is gone and gets frames of {flow}"
                entry = self.agents[node].runs.ingress.get(flow)
                assert entry is not None, f"the agent at {node} does not know {flow}"
                assert entry.egress in self.agents, f"{entry.egress} is gone and gets frames of {flow}"
                end = self.agents[entry.egress].runs.egress.get(flow)
                assert end is not None and end.number == entry.number, f"{entry.egress} does not know {flow}"
                assert {path.id for path in entry.paths} <= set(end.paths), f"{entry.egress} lacks a path of {flow}"
                for at, copying in entry.branches:
                    assert at in self.agents, f"{at} is gone and copies {flow}"
                    assert self.agents[at].runs.branch.get(copying.key) == copying, f"{at} does not copy {flow}"

    def settle(self) -> None:
        """Everything comes back, all messages arrive: then what is planned is in force, and nothing is sent."""
        for node in NODES:
            self.agents.setdefault(node, Agent(AgentConfig(HELLO)))
            self.switches[node].labels = self.switches[node].connected = True
        self.after(set())
        for turn in range(60):
            messages = any(agent.sent is not None for agent in self.agents.values())
            if not messages and all(switch.coming is None for switch in self.switches.values()):
                break
            self.happen(ANSWERS[turn % 2], turn)
        else:
            raise AssertionError("it does not come to rest")
        assert not self.push()
        self.broken.clear()
        self.check()
        assert {node: agent.runs for node, agent in self.agents.items()} == self.plan.agents
        for node, switch in self.switches.items():
            begin = {name for name, flow in self.flows.items() if flow.mode == MULTIPATH and flow.ingress == node}
            assert switch.rules == begin
        for flow in (*self.flows, "gone"):
            assert pending_of(self.plan, self.views(), flow) == []

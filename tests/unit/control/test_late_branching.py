"""Copies that share their first links travel these once: plans, rates, and the order in which agents are told."""

from __future__ import annotations

from dataclasses import replace

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from planning import live_of, planned

from hyroads.controller.agents.configs import AgentConfig, IngressFlow
from hyroads.controller.control.flow_order import AgentView, SwitchView, Views, pending_of
from hyroads.controller.control.update_order import orders_of
from hyroads.controller.core.netfile import load_text
from hyroads.controller.core.network import FlowSpec, Place
from hyroads.controller.model.handover import Constrained
from hyroads.controller.model.plan import Plan
from hyroads.controller.model.state import (
    DeclaredFlow,
    Origin,
    State,
    TopologyContext,
    agent_down,
    agent_up,
    constrained,
    initial,
)

FILE = """
nodes:
  s: {role: gateway, technologies: [eth]}
  m: {role: ap, technologies: [eth]}
  n: {role: ap, technologies: [eth, wifi, plc, lte]}
  t: {role: client, agent: true, technologies: [wifi, plc, lte]}
links:
  - {id: sm, from: s, to: m, technology: eth, capacity_mbps: 30}
  - {id: mn, from: m, to: n, technology: eth, capacity_mbps: 30}
  - {id: wifi, from: n, to: t, technology: wifi, capacity_mbps: 30}
  - {id: plc, from: n, to: t, technology: plc, capacity_mbps: 30}
  - {id: lte, from: n, to: t, technology: lte, capacity_mbps: 30}
interference: {rule: technology}
"""
CONTEXT = TopologyContext.of(load_text(FILE, "late.yaml"))
AGENTS = ("s", "m", "n", "t")
PATHS = tuple(("sm", "mn", last) for last in ("wifi", "plc", "lte"))
COPIES = Constrained(PATHS, PATHS, copies=True)
TARGET = ("t", "f")


def begun() -> State:
    state = initial(CONTEXT, [DeclaredFlow(FlowSpec("f", "s", "t"), Origin.FILE)])
    for node in AGENTS:
        state = agent_up(state, CONTEXT, node, fresh=False, now_s=0.0)
    return state


def written(flow: IngressFlow) -> dict[int, tuple[tuple[int, ...], int | None]]:
    return {path.id: path.written for path in flow.paths}


def test_the_first_edge_sends_one_copy_and_the_last_common_agent_the_others() -> None:
    plan = planned(CONTEXT, constrained(begun(), {TARGET: COPIES}))
    labels, flow = CONTEXT.labels, plan.flows["f"]
    first, *others = flow.paths
    sent = written(plan.agents["s"].ingress["f"])
    assert sent[first.id] == ((labels.link["sm"], labels.link["mn"], labels.agent["n"]), None)
    assert [sent[path.id][1] for path in others] == [first.id] * 2
    [copying] = plan.agents["n"].branch.values()
    assert plan.agents["m"].branch == {} and copying.path == first.id
    last = {path.id: path.links[-1] for path in flow.paths}
    assert {copy.id: copy.labels for copy in copying.copies} == {
        path: (labels.link[link], labels.agent["t"]) for path, link in last.items()
    }
    assert plan.planned_mbps() == pytest.approx(dict.fromkeys(("sm", "mn", *last.values()), flow.rate_mbps))


def test_what_is_shared_takes_airtime_once() -> None:
    # sm and mn are one domain, which each copy crosses twice.
    loop = live_of(CONTEXT)
    plan = loop.replan(constrained(begun(), {TARGET: COPIES}), None, 0.0)  # type: ignore[arg-type]
    assert plan.flows["f"].rate_mbps == pytest.approx(0.95 * 30 / 2, rel=1e-3), "a third of it if each went for itself"
    assert max(loop.loop.airtime().values()) == pytest.approx(0.95, rel=1e-3)


def test_copies_of_a_handover_go_by_themselves() -> None:
    """They are sent for a moment, which is no time to wait for agents on the way."""
    both = (Place("n", "wifi"), Place("n", "plc"))
    plan = planned(CONTEXT, constrained(begun(), {("t", None): Constrained(both, both, copies=True)}))
    assert plan.flows["f"].copies and sum(path.rate_mbps > 0 for path in plan.flows["f"].paths) == 2
    assert plan.agents["n"].branch == {} and plan.flows["f"].branches == ()


class Agents:
    """Agents that carry out what they are told when the test says so, in the order in which it was sent."""

    def __init__(self) -> None:
        self.state = begun()
        self.plan: Plan = planned(CONTEXT, self.state)
        self.runs: dict[str, AgentConfig] = {}
        self.sent: dict[str, AgentConfig] = {}
        self.broken = False
        for node in AGENTS:
            self.boot(node)

    def boot(self, node: str) -> None:
        self.runs[node] = AgentConfig(self.plan.agents[node].hello)

    def views(self) -> Views:
        ready = SwitchView(True, frozenset({"f"}), frozenset({"f"}))
        return Views(
            {node: AgentView(config, self.sent.get(node)) for node, config in self.runs.items()},
            dict.fromkeys(CONTEXT.addressing.dpid, ready),
        )

    def become(self, state: State) -> None:
        self.state = state
        self.plan = planned(CONTEXT, state, self.plan.numbers)

    def push(self) -> None:
        for node, config in orders_of(self.plan, self.views()).agents.items():
            if node not in self.sent and self.runs[node] != config:
                self.sent[node] = config

    def arrive(self, which: int) -> bool:
        waiting = sorted(node for node in self.sent if node in self.runs)
        if not waiting:
            return False
        node = waiting[which % len(waiting)]
        self.runs[node] = self.sent.pop(node)
        return True

    def settle(self) -> None:
        for _ in range(100):
            self.push()
            if not self.arrive(0):
                return
            self.check()
        raise AssertionError("it does not come to rest")

    def check(self) -> None:
        """Whatever leaves the first edge gets to the last one, by every path in use."""
        entry = self.runs["s"].ingress.get("f")
        self.broken = self.broken and entry is not None and bool(entry.branches)
        for path in entry.paths if entry is not None and not self.broken else ():
            if not path.trunk or path.copied_from is not None:
                continue
            copying = self.runs["n"].branch.get(("f", path.id))
            assert copying is not None, "copies that are sent to an agent branch there"
            riders = {each.id for each in entry.paths if each.copied_from == path.id}
            assert {path.id, *riders} <= {copy.id for copy in copying.copies}


def test_copies_branch_once_the_agent_on_the_way_is_ready_and_no_longer_when_it_is_gone() -> None:
    agents = Agents()
    agents.settle()
    agents.become(constrained(agents.state, {TARGET: COPIES}))
    agents.runs["t"] = orders_of(agents.plan, agents.views()).agents["t"]
    orders = orders_of(agents.plan, agents.views())
    assert orders.agents["n"].branch and not orders.agents["s"].ingress["f"].branches
    assert "agent n" in pending_of(agents.plan, agents.views(), "f")
    agents.settle()
    assert agents.runs == dict(agents.plan.agents) and pending_of(agents.plan, agents.views(), "f") == []
    del agents.runs["n"]
    assert not orders_of(agents.plan, agents.views()).agents["s"].ingress["f"].branches
    agents.boot("n")
    agents.settle()
    one = replace(COPIES, copies=False, carry=PATHS[:1])
    agents.become(constrained(agents.state, {TARGET: one}))
    assert orders_of(agents.plan, agents.views()).agents["n"].branch, "until the first edge has let go"
    agents.settle()
    assert agents.runs["n"].branch == {}


WANTED = (
    None,
    COPIES,
    replace(COPIES, known=PATHS[1:], carry=PATHS[1:]),
    replace(COPIES, copies=False, carry=PATHS[:1]),
)


@examples(200, quick=12)
@given(
    st.lists(st.tuples(st.sampled_from(["want", "die", "boot", "arrive", "arrive"]), st.integers(0, 3)), max_size=50)
)
def test_in_any_order_of_events_every_copy_that_is_sent_branches(events: list[tuple[str, int]]) -> None:
    agents = Agents()
    for kind, choice in events:
        if kind == "want":
            agents.become(constrained(agents.state, {TARGET: WANTED[choice]}))
        elif kind == "die" and "n" in agents.runs:
            del agents.runs["n"]
            agents.sent.pop("n", None)
            # What the first edge sends there is lost until it learns of that.
            agents.broken = bool(agents.runs["s"].ingress["f"].branches) if agents.runs["s"].ingress else False
            agents.become(agent_down(agents.state, CONTEXT, "n"))
        elif kind == "boot" and "n" not in agents.runs:
            agents.boot("n")
            agents.become(agent_up(agents.state, CONTEXT, "n", fresh=False, now_s=0.0))
        else:
            agents.arrive(choice)
        agents.push()
        agents.check()
    if "n" not in agents.runs:
        agents.boot("n")
        agents.become(agent_up(agents.state, CONTEXT, "n", fresh=False, now_s=0.0))
    agents.settle()
    assert agents.runs == dict(agents.plan.agents) and pending_of(agents.plan, agents.views(), "f") == []

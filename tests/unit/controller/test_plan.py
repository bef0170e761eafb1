"""State transitions and plans on the three-node network and on random ones."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import yaml
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from planning import NO_REPORTS, live_of, planned

from hyroads.controller.core.carrier_sensing_rule import audible
from hyroads.controller.core.netfile import parse
from hyroads.controller.core.network import FlowSpec, Network, Policy
from hyroads.controller.core.optimum import airtime_rows
from hyroads.controller.core.private_split import Padding, PrivateSplit
from hyroads.controller.core.topologies import campus
from hyroads.controller.files.documents import read_file
from hyroads.controller.model.plan import MULTIPATH, SINGLE, UNREACHABLE, Options, hello_configs
from hyroads.controller.model.state import (
    DeclaredFlow,
    Origin,
    Presence,
    State,
    TopologyContext,
    agent_down,
    agent_up,
    agents_grace_over,
    flow_declared,
    initial,
    is_settled,
    links_heard,
    switch_down,
    switch_up,
)

TRIANGLE = Path(__file__).resolve().parents[3] / "mininet" / "networks" / "triangle.yaml"


def context_of(network: Network) -> TopologyContext:
    return TopologyContext.of(network)


@pytest.fixture(scope="module")
def context() -> TopologyContext:
    return context_of(read_file(TRIANGLE))


def start(context: TopologyContext) -> State:
    return initial(context, [DeclaredFlow(flow, Origin.FILE) for flow in context.network.flows])


def test_example_of_the_paper_is_planned_at_its_known_rates(context: TopologyContext) -> None:
    plan = planned(context, start(context), margin=0.0)
    flow = plan.flows["f1"]
    assert flow.mode == MULTIPATH and (flow.ingress, flow.egress) == ("a", "b")
    rates = {path.links: path.rate_mbps for path in flow.paths}
    expected = {("ab-plc", "bc-wifi"): 10.0, ("ab-wifi", "bc-wifi"): 20 / 3}
    assert rates == pytest.approx(expected, abs=2e-4)
    assert all(rate <= expected[links] + 1e-9 for links, rate in rates.items() if rate is not None)


def test_hop_to_a_plain_client_has_no_label_but_costs_airtime(context: TopologyContext) -> None:
    flow = planned(context, start(context)).flows["f1"]
    for path in flow.paths:
        assert path.labels == (context.labels.link[path.links[0]], context.labels.agent["b"])
    up = FlowSpec("up", "c", "a")
    plan = planned(context, flow_declared(start(context), DeclaredFlow(up, Origin.API)))
    reverse = plan.flows["up"]
    assert (reverse.ingress, reverse.egress) == ("b", "a")
    for path in reverse.paths:
        assert path.links[0] == "bc-wifi~"
        assert path.labels == (context.labels.link[path.links[1]], context.labels.agent["a"])
    live = live_of(context)
    live.replan(flow_declared(start(context), DeclaredFlow(up, Origin.API)), NO_REPORTS, 0.0)
    assert live.loop.airtime()["bc-wifi"] == pytest.approx(0.95, rel=1e-3)


def test_agents_get_the_same_flow_from_both_sides(context: TopologyContext) -> None:
    plan = planned(context, start(context))
    ingress, egress = plan.agents["a"].ingress["f1"], plan.agents["b"].egress["f1"]
    assert ingress.number == egress.number == plan.flows["f1"].number
    assert sorted(path.id for path in ingress.paths) == list(egress.paths)
    assert plan.agents["a"].hello.expect == (
        ("ab-plc~", context.addressing.interface_mac["b", "plc"]),
        ("ab-wifi~", context.addressing.interface_mac["b", "wifi"]),
    )
    assert (plan.agents["a"].hello.interval_ms, plan.agents["a"].hello.dead_ms) == (40, 140)


@pytest.mark.parametrize("node", ["a", "b"])
def test_agent_at_an_edge_that_is_down_sends_the_flow_over_the_single_path(context: TopologyContext, node: str) -> None:
    state = agent_down(start(context), context, node)
    plan = planned(context, state)
    flow = plan.flows["f1"]
    assert flow.mode == SINGLE and flow.reason is not None and f"agent at {node}" in flow.reason
    assert not plan.classified and not plan.agents["a"].ingress and not plan.agents["b"].egress
    back = planned(context, agent_up(state, context, node, fresh=True, now_s=0.0), plan.numbers)
    assert back.flows["f1"] == planned(context, start(context)).flows["f1"]


def test_missing_agent_port_counts_as_no_agent(context: TopologyContext) -> None:
    ports = {"b-plc", "b-wifi", "b-host", "b-acc", "b-net"}
    state = switch_up(start(context), "b", ports)
    assert planned(context, state).flows["f1"].mode == MULTIPATH
    flow = planned(context, switch_up(state, "b", ports - {"b-net"})).flows["f1"]
    assert flow.mode == SINGLE and flow.reason == "port b-net of b is missing"


def test_dead_links_leave_and_come_back_with_their_path_ids(context: TopologyContext) -> None:
    state = agent_up(start(context), context, "a", fresh=False, now_s=0.0)
    before = planned(context, state)
    cut = links_heard(state, context, "b", {"ab-plc": False}, now_s=0.0)
    plan = planned(context, cut, before.numbers)
    (path,) = plan.flows["f1"].paths
    assert path.links == ("ab-wifi", "bc-wifi") and path.rate_mbps == pytest.approx(9.5, rel=1e-4)
    assert path.id == before.numbers.paths["f1"][path.links]
    again = planned(context, links_heard(cut, context, "b", {"ab-plc": True}, now_s=0.0), plan.numbers)
    assert again.flows == before.flows and again.agents == before.agents


def test_no_way_at_all_is_said_so(context: TopologyContext) -> None:
    state = switch_down(start(context), "b")
    assert planned(context, state).flows["f1"].mode == UNREACHABLE


def test_only_the_agent_at_the_far_end_may_speak_of_a_link(context: TopologyContext) -> None:
    state = agents_grace_over(start(context))
    state = agent_up(agent_up(state, context, "a", fresh=False, now_s=0), context, "b", fresh=False, now_s=0)
    assert links_heard(state, context, "a", {"ab-plc": False, "nonsense": False}, now_s=9.0) is state
    assert links_heard(state, context, "b", {"ab-plc": False}, now_s=9.0).silent == {"ab-plc"}


def test_silence_of_a_sender_that_is_gone_or_new_is_not_believed(context: TopologyContext) -> None:
    both = agent_up(agent_up(start(context), context, "a", fresh=False, now_s=0), context, "b", fresh=False, now_s=0)
    gone = agent_down(both, context, "a")
    assert not links_heard(gone, context, "b", {"ab-plc": False}, now_s=5.0).silent
    silent = links_heard(both, context, "b", {"ab-plc": False}, now_s=5.0)
    assert not agent_down(silent, context, "a").silent
    fresh = agent_up(gone, context, "a", fresh=True, now_s=10.0)
    assert not links_heard(fresh, context, "b", {"ab-plc": False}, now_s=10.5).silent
    assert links_heard(fresh, context, "b", {"ab-plc": False}, now_s=11.5).silent == {"ab-plc"}


def test_start_waits_for_agents_not_for_switches(context: TopologyContext) -> None:
    state = start(context)
    assert not is_settled(state)
    state = agent_up(agent_up(state, context, "a", fresh=True, now_s=0), context, "b", fresh=True, now_s=0)
    assert is_settled(state) and state.switches["a"] is Presence.UNKNOWN
    assert is_settled(agents_grace_over(start(context)))


def test_declared_paths_single_policy_and_twins(context: TopologyContext) -> None:
    flows = [
        FlowSpec("fixed", "a", "c", paths=(("ab-wifi", "bc-wifi"),)),
        FlowSpec("twin", "a", "c"),
        FlowSpec("plain", "a", "c", policy=Policy.SINGLE, match={"eth_type": 0x800}),
        FlowSpec("near", "b", "c"),
    ]
    state = initial(context, [DeclaredFlow(flow, Origin.FILE) for flow in flows])
    plan = planned(context, state)
    assert [path.links for path in plan.flows["fixed"].paths] == [("ab-wifi", "bc-wifi")]
    assert plan.flows["twin"].reason == "flow fixed matches the same frames"
    assert plan.flows["plain"].reason == "its policy is single"
    assert plan.flows["near"].reason == "both ends are at b"
    cut = links_heard(agent_up(state, context, "a", fresh=False, now_s=0), context, "b", {"ab-wifi": False}, 0.0)
    assert planned(context, cut).flows["fixed"].reason == "no declared path is live"


def test_narrower_match_goes_first(context: TopologyContext) -> None:
    narrow = FlowSpec("narrow", "a", "c", match={"eth_type": 0x800, "ip_proto": 17, "udp_dst": 5})
    state = flow_declared(start(context), DeclaredFlow(narrow, Origin.API))
    classified = planned(context, state).classified
    assert classified["narrow"].precedence > classified["f1"].precedence
    assert classified["f1"].match.eth_src == context.addressing.host_mac["a"]
    assert classified["narrow"].match.eth_dst == context.addressing.host_mac["c"]


def test_hello_frames_are_rarer_on_a_crowded_medium() -> None:
    names = [f"n{i}" for i in range(8)]
    links = [
        {"id": f"l{i}", "from": names[i], "to": names[i + 1], "technology": "plc", "capacity_mbps": 50, "both": True}
        for i in range(7)
    ]
    document = {"nodes": {n: {"role": "ap"} for n in names}, "links": links, "interference": {"rule": "technology"}}
    context = context_of(parse(document, "test"))
    hello = planned(context, start(context)).agents["n0"].hello
    assert (hello.interval_ms, hello.dead_ms) == (80, 280)
    # Both grow by the same factor, as far as agents take it (interval_ms is a number of 16 bits on the air).
    for interval_ms, dead_ms, wanted in ((40_000, 160_000, (60_000, 240_000)), (10_000, 400_000, (15_000, 600_000))):
        hello = hello_configs(context, Options(hello_interval_ms=interval_ms, hello_dead_ms=dead_ms))["n0"]
        assert (hello.interval_ms, hello.dead_ms) == wanted


def test_hello_intervals_follow_who_is_in_range_and_not_the_size_of_the_network() -> None:
    """Buildings hear nothing of each other: a campus ten times as large is told of a dead link as fast."""
    for count in (24, 240):
        context = context_of(campus(random.Random(1), count))
        hellos = hello_configs(context, Options())
        assert max(hello.dead_ms for hello in hellos.values()) <= 300
        assert {hello.interval_ms for hello in hellos.values()} == {80}  # eight in a building


def test_both_ends_of_a_link_agree_on_hello_intervals(context: TopologyContext) -> None:
    """Nobody takes a neighbour for dead that sends as rarely as it was told, and no medium is crowded by more hello
    frames than those of four at full rate.
    """
    options = Options()
    for seed in range(20):
        context = context_of(_scattered(np.random.default_rng(seed)))
        network, hellos = context.network, hello_configs(context, options)
        ratio = options.hello_dead_ms / options.hello_interval_ms
        for link in network.links:
            sender, hearer = hellos[link.source], hellos[link.target]
            assert hearer.dead_ms >= ratio * sender.interval_ms - 1
        for (node, k), others in audible(network).items():
            per_s = sum(1e3 / hellos[other].interval_ms for other in (node, *others))
            assert per_s <= 4 * 1e3 / options.hello_interval_ms * 1.01, (seed, node, k)


def _scattered(rng: np.random.Generator) -> Network:
    """Access points at random positions, some close together, some alone, with WiFi of 30 m."""
    count = int(rng.integers(3, 30))
    positions = rng.uniform(0, 100, (count, 2)) * rng.uniform(0.1, 1.0)
    nodes = {f"n{i}": {"role": "ap", "position": positions[i].tolist()} for i in range(count)}
    links = [
        {"id": f"l{i}-{j}", "from": f"n{i}", "to": f"n{j}", "technology": "wifi", "capacity_mbps": 50, "both": True}
        for i in range(count)
        for j in range(i)
        if np.hypot(*(positions[i] - positions[j])) < 30
    ]
    links = links or [{"id": "l", "from": "n0", "to": "n1", "technology": "wifi", "capacity_mbps": 5, "both": True}]
    rule = {"rule": "range", "ranges_m": {"wifi": 30}}
    return parse({"nodes": nodes, "links": links, "interference": rule}, "test")


@st.composite
def random_cases(draw: st.DrawFn) -> tuple[TopologyContext, State]:
    """A random network of gateways, APs and clients, some flows, and some agents, links and switches down."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    count = int(rng.integers(3, 8))
    roles = ["gateway", *rng.choice(["ap", "client", "switch"], count - 1).tolist()]
    nodes = {f"n{i}": {"role": role} for i, role in enumerate(roles)}
    links = []
    for i in range(count):
        for j in range(i + 1, count):
            for k in ("plc", "wifi"):
                ends_ok = all(roles[e] != "client" or k == "wifi" for e in (i, j))
                if ends_ok and rng.random() < 0.6:
                    capacity = float(rng.integers(5, 100))
                    links.append({"id": f"{i}{j}{k}", "from": f"n{i}", "to": f"n{j}", "technology": k,
                                  "capacity_mbps": capacity, "both": True})  # fmt: skip
    if not links:
        links = [{"id": "x", "from": "n0", "to": "n1", "technology": "wifi", "capacity_mbps": 9, "both": True}]
    document = {"nodes": nodes, "links": links, "interference": {"rule": "technology"}}
    context = context_of(parse(document, "random"))
    flows = []
    for index in range(int(rng.integers(1, 5))):
        source, target = (f"n{i}" for i in rng.choice(count, 2, replace=False))
        flows.append(DeclaredFlow(FlowSpec(f"f{index}", source, target, weight=float(rng.integers(1, 4))), Origin.FILE))
    state = initial(context, flows)
    down = frozenset(link.id for link in context.network.links if rng.random() < 0.1)
    agents = {node: Presence.DOWN if rng.random() < 0.15 else Presence.UP for node in state.agents}
    return context, replace(state, silent=down, agents=agents)


@examples(60)
@given(random_cases())
def test_every_plan_is_admissible_and_lands_where_it_should(case: tuple[TopologyContext, State]) -> None:
    context, state = case
    plan = planned(context, state)
    network = context.network
    used: list[tuple[int, ...]] = []
    rates: list[float] = []
    for flow in plan.flows.values():
        for path in flow.paths:
            links = [network.links[network.link_index[name]] for name in path.links]
            assert links[0].source == flow.spec.source and links[-1].target == flow.spec.target
            assert all(one.target == two.source for one, two in pairwise(links))
            assert not state.silent & {link.id for link in links}
            inner = [link.source for link in links[1:]]
            assert all(context.addressing.has_switch(node) for node in inner)
            if flow.mode != MULTIPATH:
                continue
            # Follow the labels from the ingress' switch: they must lead to the egress' agent.
            at, owner = flow.ingress, {label: name for name, label in context.labels.link.items()}
            for label in path.labels[:-1]:
                hop = network.links[network.link_index[owner[label]]]
                assert hop.source == at
                at = hop.target
            assert at == flow.egress and path.labels[-1] == context.labels.agent[flow.egress]
            used.append(tuple(network.link_index[name] for name in path.links))
            rates.append(path.rate_mbps or 0.0)
    for flow in plan.flows.values():
        if flow.mode == MULTIPATH:
            assert state.agents[flow.ingress] is Presence.UP and state.agents[flow.egress] is Presence.UP  # type: ignore[index]
            assert len({path.id for path in flow.paths}) == len(flow.paths)
    if used:
        # The oracle: airtime of every link's domain, computed by another module than the solver's.
        assert (airtime_rows(network, used) @ np.array(rates)).max() <= 0.95 + 1e-6
    assert planned(context, state) == plan, "the same state gives the same plan"
    assert planned(context, state, plan.numbers) == plan, "saved numbers give the same plan"


DUAL = """
nodes: {a: {role: gateway}, b: {role: ap}, c: {role: client}}
links:
  - {id: ab-plc, from: a, to: b, technology: plc, capacity_mbps: 10, both: true}
  - {id: ab-wifi, from: a, to: b, technology: wifi, capacity_mbps: 15, both: true}
  - {id: bc-lan, from: b, to: c, technology: lan, capacity_mbps: 100, both: true}
interference: {rule: technology}
flows:
  - {id: f1, from: a, to: b, policy: private}
  - {id: f2, from: b, to: a, policy: throughput}
  - {id: f3, from: a, to: c, policy: private}
"""


def test_private_flows_take_two_networks_and_are_split_so(context: TopologyContext) -> None:
    dual = context_of(parse(yaml.safe_load(DUAL), "dual"))
    plan = planned(dual, start(dual))
    flow = plan.flows["f1"]
    assert (flow.mode, flow.reason) == (MULTIPATH, None)
    assert {path.links for path in flow.paths} == {("ab-plc",), ("ab-wifi",)}
    agent = plan.agents["a"].document()["ingress"]
    assert [entry["split"] for entry in agent if entry["id"] == "f1"] == [{"kind": "hywf"}]
    assert all("split" not in entry for entry in plan.agents["b"].document()["ingress"])
    asked = replace(flow.spec, split=PrivateSplit(30.0, 0.2, 50.0, Padding(9.0, 30.0, 100.0)))
    told = planned(dual, flow_declared(start(dual), DeclaredFlow(asked, Origin.FILE))).agents["a"].document()["ingress"]
    assert [entry["split"] for entry in told if entry["id"] == "f1"] == [
        {"kind": "hywf", "n_cons": 30.0, "cost_share": 0.2, "n_chp": 50.0,
         "padding": {"gap_ms": 9.0, "deviation_ms": 30.0, "max_per_s": 100.0}}
    ]  # fmt: skip
    # The last hop is common to both paths: whoever watches it sees all.
    assert plan.flows["f3"].mode == SINGLE
    assert plan.flows["f3"].reason == "private: no two live paths without a common technology"
    cut = planned(dual, links_heard(start(dual), dual, "b", {"ab-plc": False}, 1.0))
    assert cut.flows["f1"].mode == SINGLE and cut.flows["f1"].paths[0].links == ("ab-wifi",)
    # Of two networks the metered one is the one to spare, and the file's order counts where it fixes the paths.
    metered = context_of(parse({**yaml.safe_load(DUAL), "technologies": {"wifi": {"metered": True}}}, "dual"))
    for paths, first in (((), "ab-wifi"), ((("ab-plc",), ("ab-wifi",)), "ab-plc")):
        costly = replace(flow.spec, split=PrivateSplit(cost_share=0.1), paths=paths)
        spared = planned(metered, flow_declared(start(metered), DeclaredFlow(costly, Origin.FILE))).flows["f1"]
        assert spared.paths[0].links == (first,) and len(spared.paths) == 2
    # In the triangle everything ends on WiFi.
    private = replace(context.network.flows[0], policy=Policy.PRIVATE, paths=())
    state = flow_declared(start(context), DeclaredFlow(replace(private, id="p", source="c", target="a"), Origin.API))
    assert planned(context, state).flows["p"].mode == SINGLE

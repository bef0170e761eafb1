"""Routes of a group's flows as they come and go and links fail: in the controller's loop, without packets."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from planning import NO_REPORTS, live_of
from rate_cases import drawn_network

from hyroads.controller.control.group_routes import Member, Since, gained, joined
from hyroads.controller.control.live import Live
from hyroads.controller.control.routes import lives
from hyroads.controller.core.addressing import PathName
from hyroads.controller.core.flow_groups import GroupFlow, GroupPaths, May, allocated, group_paths
from hyroads.controller.core.netfile import parse
from hyroads.controller.core.network import FlowSpec, Policy
from hyroads.controller.model.state import (
    DeclaredFlow,
    Origin,
    State,
    TopologyContext,
    agent_up,
    flow_declared,
    flow_removed,
    initial,
    links_heard,
)
from hyroads.controller.study import networks as study_networks

# Two clients with access links of 20 Mb/s each, and two media of 20 Mb/s from where these meet to the server.
# A third way, over d, is slower.
DOCUMENT: dict[str, Any] = {
    "nodes": {node: {"role": "ap"} for node in ("c1", "c2", "m", "d", "s")},
    "links": [
        {"id": "c1", "from": "c1", "to": "m", "technology": "w1", "capacity_mbps": 20, "both": True},
        {"id": "c2", "from": "c2", "to": "m", "technology": "w2", "capacity_mbps": 20, "both": True},
        {"id": "wifi", "from": "m", "to": "s", "technology": "wifi", "capacity_mbps": 20, "both": True},
        {"id": "plc", "from": "m", "to": "s", "technology": "plc", "capacity_mbps": 20, "both": True},
        {"id": "md", "from": "m", "to": "d", "technology": "slow", "capacity_mbps": 5, "both": True},
        {"id": "ds", "from": "d", "to": "s", "technology": "ethernet", "capacity_mbps": 100, "both": True},
    ],
    "interference": {"rule": "technology"},
}
CONTEXT = TopologyContext.of(parse(DOCUMENT, "x"))
UP1, UP2 = FlowSpec("up1", "c1", "s", group="g"), FlowSpec("up2", "c2", "s", group="g")
MARGIN = 0.05


class Loop:
    """State and live loop, joined as the event loop does it."""

    def __init__(self, *flows: FlowSpec, context: TopologyContext = CONTEXT) -> None:
        self.live: Live = live_of(context, margin=MARGIN)
        self.now_s = 0.0
        self.state: State = initial(context, [DeclaredFlow(flow, Origin.API) for flow in flows])
        for node in context.addressing.dpid:
            self.state = agent_up(self.state, context, node, fresh=False, now_s=-10.0)
        self.live.replan(self.state, NO_REPORTS, 0.0)

    def become(self, state: State, *, improves: bool = True) -> None:
        self.state, self.now_s = state, self.now_s + 1.0
        self.live.replan(state, NO_REPORTS, self.now_s)
        if improves:
            self.live.improve(NO_REPORTS, self.now_s)

    def declare(self, flow: FlowSpec) -> None:
        self.become(flow_declared(self.state, DeclaredFlow(flow, Origin.API)))

    def hear(self, node: str, *, improves: bool = True, **links: bool) -> None:
        self.become(links_heard(self.state, CONTEXT, node, links, self.now_s), improves=improves)

    def paths(self, flow: str) -> tuple[PathName, ...]:
        return tuple(path.links for path in self.live.in_force.flows[flow].paths)

    def moved(self, before: dict[str, tuple[PathName, ...]]) -> bool:
        """Whether flows that had paths have others."""
        return any(paths and self.paths(flow) != paths for flow, paths in before.items())

    def total_mbps(self) -> float:
        """What all flows can carry together."""
        index, network = self.live.network.network.link_index, self.live.network.network
        paths = [tuple(tuple(index[link] for link in path) for path in self.paths(flow)) for flow in self.state.flows]
        return allocated(network, paths).total_mbps

    def mbps(self, *flows: str) -> float:
        return sum(self.live.in_force.flows[flow].rate_mbps or 0.0 for flow in flows)


def media(paths: tuple[PathName, ...]) -> set[str]:
    return {link for path in paths for link in path[1:]}


def test_flows_of_a_group_go_apart_and_carry_twice_as_much():
    alone = Loop(replace(UP1, group=None), replace(UP2, group=None))
    assert media(alone.paths("up1")) == media(alone.paths("up2"))
    assert alone.mbps("up1", "up2") == pytest.approx(20 * (1 - MARGIN), rel=0.01)
    together = Loop(UP1, UP2)
    assert not media(together.paths("up1")) & media(together.paths("up2"))
    assert together.mbps("up1", "up2") >= 1.9 * alone.mbps("up1", "up2")


def test_flows_of_other_groups_are_not_looked_at():
    loop = Loop(UP1, replace(UP2, group="h"))
    assert media(loop.paths("up1")) == media(loop.paths("up2"))


def test_a_flow_that_comes_goes_around_the_one_that_is_there():
    loop = Loop(UP1)
    before = loop.live.in_force.flows["up1"]
    loop.declare(UP2)
    assert loop.live.in_force.flows["up1"] is before or loop.paths("up1") == tuple(p.links for p in before.paths)
    assert not media(loop.paths("up1")) & media(loop.paths("up2"))
    assert loop.mbps("up1", "up2") == pytest.approx(40 * (1 - MARGIN), rel=0.01)


def test_a_flow_that_is_there_leaves_a_medium_to_the_one_that_comes():
    network = CONTEXT.network.with_capacities({link.id: 100.0 for link in CONTEXT.network.links[:4]})
    loop = Loop(UP1, context=TopologyContext.of(network))
    before = loop.paths("up1")
    assert media(before) >= {"wifi", "plc"}
    loop.declare(UP2)
    assert set(loop.paths("up1")) < set(before) and loop.paths("up2")
    assert not media(loop.paths("up1")) & media(loop.paths("up2"))
    assert loop.mbps("up1", "up2") >= 40 * (1 - MARGIN) * 0.98


def test_a_flow_that_goes_disturbs_none():
    loop = Loop(UP1, UP2)
    before, numbers = loop.paths("up2"), [path.id for path in loop.live.in_force.flows["up2"].paths]
    loop.become(flow_removed(loop.state, "up1"))
    assert loop.paths("up2") == before and [path.id for path in loop.live.in_force.flows["up2"].paths] == numbers
    assert loop.mbps("up2") == pytest.approx(20 * (1 - MARGIN), rel=0.01)


def test_only_the_flow_whose_path_died_moves_and_at_once():
    loop = Loop(UP1, UP2)
    (dead,) = media(loop.paths("up1"))
    other = loop.paths("up2")
    loop.hear("s", improves=False, **{dead: False})
    assert loop.paths("up2") == other
    assert loop.paths("up1") and dead not in media(loop.paths("up1"))
    # What both have now is shared; when the link comes back one of them takes it, the other stays.
    loop.live.improve(NO_REPORTS, loop.now_s)
    shared, there = loop.mbps("up1", "up2"), loop.paths("up2")
    loop.hear("s", **{dead: True})
    assert loop.mbps("up1", "up2") == pytest.approx(40 * (1 - MARGIN), rel=0.01) and shared < 26
    assert loop.paths("up2") == there or dead not in media(loop.paths("up1"))


def test_a_group_has_the_rate_of_one_flow_where_all_meet():
    spec = FlowSpec("other", "c1", "m")
    loop = Loop(UP1, replace(UP1, id="again", match={"eth_type": 0x800, "ip_proto": 6, "tcp_dst": 80}), spec)
    share = 20 * (1 - MARGIN) / 2
    assert loop.mbps("other") == pytest.approx(share, rel=0.01)
    assert loop.mbps("up1", "again") == pytest.approx(share, rel=0.01)


def test_flows_whose_paths_are_not_the_planners_stay_and_others_go_around_them():
    declared = replace(UP1, paths=(("c1", "plc"),))
    assert media(Loop(declared, UP2).paths("up2")) == {"wifi"}
    loop = Loop(UP2, replace(declared, policy=Policy.HYMAB))
    assert loop.paths("up1") == (("c1", "plc"),) and media(loop.paths("up2")) == {"wifi"}


def test_a_twin_has_no_part_in_its_group():
    loop = Loop(UP1, replace(UP1, id="twin"), UP2)
    assert loop.live.in_force.flows["twin"].reason == "flow up1 matches the same frames"
    assert not media(loop.paths("up1")) & media(loop.paths("up2"))


def test_connections_between_the_same_ends_are_planned_once():
    loop = Loop(UP1, UP2)
    groups = loop.live.network._groups
    known = dict(groups)
    for number in range(3):
        match = {"eth_type": 0x800, "ip_proto": 6, "tcp_src": 5000 + number}
        loop.declare(replace(UP1, id=f"a{number}", group=f"g{number}", match=match))
        loop.declare(replace(UP2, id=f"b{number}", group=f"g{number}", match=match))
        assert media(loop.paths(f"a{number}")) != media(loop.paths(f"b{number}"))
    assert len(groups) <= len(known) + 2


@given(st.integers(0, 100_000))
@examples(30)
def test_whatever_happens_only_those_that_it_concerns_move(seed):
    """Flows come and go, and links fail and come back, in a random home or office, without improvements between."""
    rng = random.Random(seed)
    network = drawn_network(rng)
    context = TopologyContext.of(network)
    _, target = study_networks.endpoints(network, rng)
    sources = [node for node in network.nodes if node != target and not network.nodes[node].is_plain_client]
    if not sources:
        return
    loop, number = Loop(context=context), 0
    for _ in range(8):
        before = {flow: loop.paths(flow) for flow in loop.state.flows}
        match rng.choice(("come", "come", "go", "cut", "mend")):
            case "come":
                number += 1
                spec = {"eth_type": 0x800, "ip_proto": 6, "tcp_src": number}
                loop.become(
                    flow_declared(
                        loop.state,
                        DeclaredFlow(
                            FlowSpec(f"f{number}", rng.choice(sources), target, match=spec, group="g"), Origin.API
                        ),
                    ),
                    improves=False,
                )
                if loop.moved(before):
                    # They gave up paths, or the group gained by it.
                    less = all(set(loop.paths(flow)) <= set(paths) for flow, paths in before.items() if paths)
                    assert less or loop.total_mbps() > 1.09 * around(loop, before)
            case "go" if before:
                flow = rng.choice(list(before))
                loop.become(flow_removed(loop.state, flow), improves=False)
                assert all(loop.paths(other) == before[other] for other in before if other != flow)
            case "cut":
                link = rng.choice(network.links)
                loop.become(links_heard(loop.state, context, link.target, {link.id: False}, loop.now_s), improves=False)
                for flow, paths in before.items():
                    left = tuple(path for path in paths if link.id not in path)
                    assert loop.paths(flow) == left or not left
            case "mend" if loop.state.silent:
                up = rng.choice(sorted(loop.state.silent))
                node = network.links[network.link_index[up]].target
                loop.become(links_heard(loop.state, context, node, {up: True}, loop.now_s), improves=False)
                assert all(loop.paths(flow) == paths for flow, paths in before.items() if paths)
        for flow in loop.state.flows:
            assert all(lives(loop.live.network, path) for path in loop.paths(flow))


def around(loop: Loop, before: dict[str, tuple[PathName, ...]]) -> float:
    """The total of the group if its new flow had gone around those that were there."""
    index, flows = loop.live.network.network.link_index, []
    for flow, declared in loop.state.flows.items():
        paths = tuple(tuple(index[link] for link in path) for path in before.get(flow, ()))
        may = May.YIELD if paths else May.MOVE
        flows.append(GroupFlow(declared.spec.source, declared.spec.target, paths, may))
    return group_paths(loop.live.network.planner, flows).total_mbps


class Choice:
    """A planner that notes what it is given, and finds totals that are said beforehand; new flows get one path."""

    def __init__(self, *totals_mbps: float) -> None:
        self.totals_mbps = list(totals_mbps)
        self.given: list[tuple[tuple[int, May], ...]] = []

    def __call__(self, flows: tuple[GroupFlow, ...]) -> GroupPaths:
        self.given.append(tuple((len(flow.paths), flow.may) for flow in flows))
        new = ((CONTEXT.network.link_index["c1" if len(self.given) == 1 else "c2"],),)
        return GroupPaths(tuple(flow.paths or new for flow in flows), ((self.totals_mbps.pop(0),),))


def members(*since: Since) -> dict[str, Member]:
    return {f"f{i}": Member("c1", "s", (("c1", "wifi"),), each) for i, each in enumerate(since)}


NEW, LOST, BEFORE, FIXED = Since
GAIN = 0.25


@pytest.mark.parametrize("since", [(NEW, BEFORE), (LOST, BEFORE), (NEW, FIXED), (NEW, LOST, BEFORE, FIXED), (NEW, NEW)])
@pytest.mark.parametrize(("freely_mbps", "is_gained"), [(12.5, False), (12.6, True), (9.0, False)])
def test_flow_that_comes_moves_others_only_for_the_gain(
    since: tuple[Since, ...], freely_mbps: float, is_gained: bool
) -> None:
    choice, comes = Choice(10.0, freely_mbps), NEW in since
    found = joined(CONTEXT.network, members(*since), choice, GAIN)
    first, more = May.YIELD if comes else May.STAY, comes and BEFORE in since
    for one, there in zip(choice.given, (first, May.MOVE), strict=False):
        of = {NEW: (0, May.MOVE), LOST: (0, May.MOVE), BEFORE: (1, there), FIXED: (1, May.STAY)}
        assert one == tuple(of[each] for each in since)
    assert len(choice.given) == (2 if more else 1)
    # The second answer has another path for flows that are new.
    assert found["f0"] == (("c2" if more and is_gained else "c1",),)


@pytest.mark.parametrize("since", [(BEFORE, BEFORE), (FIXED, BEFORE), (BEFORE, FIXED), (FIXED, FIXED)])
@pytest.mark.parametrize("affected", [{"f0"}, {"f1"}, {"f0", "f1"}, set()])
@pytest.mark.parametrize(("then_mbps", "is_gained"), [(12.5, False), (12.6, True)])
def test_change_moves_only_flows_that_it_affects_and_that_are_the_planners(
    since: tuple[Since, ...], affected: set[str], then_mbps: float, is_gained: bool
) -> None:
    choice, of = Choice(10.0, then_mbps), members(*since)
    found = gained(CONTEXT.network, of, affected, choice, GAIN)
    moving = {flow for flow, each in of.items() if flow in affected and each.since is not FIXED}
    assert bool(found) is (bool(moving) and is_gained)
    if moving:
        assert choice.given[1] == tuple((1, May.MOVE if flow in moving else May.STAY) for flow in of)
    else:
        assert not choice.given

"""Flap damping: who is held down and for how long, and that nobody loses the last path by it."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.control.link_holds import LinkHolds
from hyroads.controller.control.live import Live
from hyroads.controller.control.live_network import Cache
from hyroads.controller.control.loop import LiveLoop, LoopOptions
from hyroads.controller.control.source import ConfiguredSource
from hyroads.controller.core.addressing import Numbers
from hyroads.controller.core.estimate.filters import EstimateError
from hyroads.controller.core.estimate.flap_damping import DampingSettings, FlapDamping, HelloGraph
from hyroads.controller.core.netfile import parse
from hyroads.controller.core.network import Link
from hyroads.controller.core.routes import all_routes, broadcast_tree
from hyroads.controller.model.plan import Options
from hyroads.controller.model.state import (
    State,
    TopologyContext,
    agent_down,
    agent_up,
    initial,
    links_heard,
    measured,
    switch_down,
    switch_up,
)

# One link


def flapping(times_s: list[float]) -> FlapDamping:
    damping = FlapDamping()
    for at_s in times_s:
        damping = damping.after("l", up=False, now_s=at_s).after("l", up=True, now_s=at_s + 0.2)
    return damping


def test_one_failure_is_forgiven_at_once_and_frequent_ones_are_not() -> None:
    once = flapping([0.0])
    assert once.usable("l", 0.2)
    often = flapping([0.0, 1.0, 2.0])
    assert not often.usable("l", 2.3)
    back_s = often.held_down(2.3)["l"]
    assert not often.usable("l", back_s - 0.01)
    assert often.usable("l", back_s + 0.01)
    assert 2 < back_s - 2.2 < 4
    assert flapping([0.0, 20.0, 40.0, 60.0]).usable("l", 60.3)


@given(st.integers(3, 60), st.floats(0.3, 3.0))
def test_a_hold_ends_when_the_link_was_heard_for_longer_the_more_it_failed(count: int, gap_s: float) -> None:
    waits_s = []
    for failures in (count, count + 1):
        damping = flapping([gap_s * k for k in range(failures)])
        up_s = gap_s * (failures - 1) + 0.2
        waits_s.append(damping.held_down(up_s)["l"] - up_s)
    assert 2.5 * 0.9 < waits_s[0] <= waits_s[1] + 1e-9 <= DampingSettings().max_hold_s + 1e-6


def test_a_link_that_fails_in_its_hold_begins_it_anew() -> None:
    damping = flapping([0.0, 1.0, 2.0, 4.5])
    assert not damping.usable("l", 2.2 + 3.0)
    assert damping.held_down(5.0)["l"] > 4.7 + 2.5


@pytest.mark.parametrize("period_s", [0.3, 1.0, 2.0, 3.0])
def test_a_link_that_fails_regularly_is_not_used_in_between(period_s: float) -> None:
    times = [period_s * k for k in range(30)]
    for count in range(8, 30):
        damping = flapping(times[:count])
        assert not damping.usable("l", times[count - 1] + period_s - 0.01)


def test_a_link_that_is_down_is_never_usable() -> None:
    damping = FlapDamping().after("l", up=False, now_s=0.0)
    assert not damping.usable("l", 0.1)
    assert not damping.usable("l", 1e6)
    assert damping.usable("other", 0.1)
    assert damping.pruned(1e6).histories.keys() == {"l"}


@given(st.lists(st.floats(0.01, 5), min_size=3, max_size=120))
def test_nothing_is_held_longer_than_the_maximum(gaps_s: list[float]) -> None:
    times = np.cumsum(gaps_s).tolist()
    damping = FlapDamping()
    for at_s in times:
        damping = damping.after("l", up=False, now_s=at_s).after("l", up=True, now_s=at_s + 0.001)
    assert damping.usable("l", times[-1] + DampingSettings().max_hold_s + 0.002)


def test_repeated_reports_count_once_and_old_histories_are_dropped() -> None:
    damping = FlapDamping()
    for at_s in (0.0, 0.1, 0.2):
        damping = damping.after("l", up=False, now_s=at_s)
    assert damping.histories["l"].flaps == 1
    damping = damping.after("l", up=True, now_s=0.3)
    assert damping.pruned(1.0).histories
    assert not damping.pruned(200.0).histories
    with pytest.raises(EstimateError):
        DampingSettings(max_hold_s=1.0)


def test_an_excused_failure_leaves_what_was_before_it() -> None:
    counted = flapping([0.0, 1.0])
    again = counted.after("l", up=False, now_s=2.0)
    excused = again.excused(["l"]).excused(["l", "unknown"])
    assert excused.histories["l"].penalty == pytest.approx(counted.pruned(2.0).histories["l"].penalty)
    assert excused.histories["l"].flaps == 2 and not excused.usable("l", 2.1)
    assert excused.after("l", up=True, now_s=2.2).usable("l", 2.2)
    assert not again.after("l", up=True, now_s=2.2).usable("l", 2.2)


# Many links

TWO_NODES: dict[str, Any] = {
    "nodes": {"a": {"role": "gateway"}, "b": {"role": "ap"}, "c": {"role": "client"}},
    "links": [
        {"id": "plc", "from": "a", "to": "b", "technology": "plc", "capacity_mbps": 10, "both": True},
        {"id": "wifi", "from": "a", "to": "b", "technology": "wifi", "capacity_mbps": 15, "both": True},
        {"id": "client", "from": "b", "to": "c", "technology": "wifi", "capacity_mbps": 15, "both": True},
    ],
    "interference": {"rule": "technology"},
}


class Damped:
    """State and damping as the event loop joins them: every change of the state is looked at."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.context = TopologyContext.of(parse(dict(document), "x"))
        network = self.context.network
        loop = LiveLoop(network, ConfiguredSource(network), LoopOptions(0.05))
        self.live, self.holds = Live(self.context, Numbers(), Options(), loop), LinkHolds(self.context)
        self.agents = [node for node in network.nodes if self.context.addressing.has_agent(node)]
        self.now_s = 0.0
        self.state = initial(self.context)
        for node in self.context.addressing.dpid:
            self.become(switch_up(self.state, node, self.ports(node)))
        for node in self.agents:
            self.become(agent_up(self.state, self.context, node, fresh=False, now_s=0.0))

    def ports(self, node: str) -> set[str]:
        names = self.context.addressing.interface_name
        return {name for (owner, _), name in names.items() if owner == node}

    def become(self, state: State) -> None:
        self.state = self.holds.damped(state, self.now_s)

    def report(self, **up: bool) -> None:
        """What agents say of links (with _ for ~)."""
        for name, alive in up.items():
            link = self.context.network.links[self.context.network.link_index[name.replace("_", "~")]]
            heard = links_heard(self.state, self.context, link.target, {link.id: alive}, self.now_s)
            self.become(self.holds.reported(self.state, heard, self.now_s))

    def target(self, link: str) -> str:
        return self.context.network.links[self.context.network.link_index[link]].target

    def flap(self, *links: str, times: int, period_s: float = 1.0) -> None:
        for _ in range(times):
            for up in (False, True):
                self.report(**dict.fromkeys(links, up))
                self.now_s += period_s / 2
                self.become(self.state)

    def reached(self, state: State) -> tuple[set[tuple[str, str]], frozenset[frozenset[str]]]:
        """By the planner's own means: who reaches whom, and which nodes get each other's broadcasts."""
        network = Cache(self.context).live(state).network
        routes = all_routes(network)
        pairs = {(node, target) for target, table in routes.items() for node, came_in_on in table if came_in_on is None}
        parts = {node: {node} for node in self.context.addressing.dpid}
        for edge in broadcast_tree(network):
            joined = parts[edge.first] | parts[edge.second]
            parts.update(dict.fromkeys(joined, joined))
        return pairs, frozenset(frozenset(part) for part in parts.values())


def test_the_last_path_is_not_held() -> None:
    net = Damped(TWO_NODES)
    net.report(wifi=False)
    net.now_s += 5.0
    net.flap("plc", times=10)
    assert net.state.silent == {"wifi"} and net.state.held == frozenset()
    # As soon as there is another way, the next failure has the link held.
    net.report(wifi=True)
    net.now_s += 1.0
    net.flap("plc", times=1)
    assert net.state.held == {"plc"}


def test_a_hold_ends_at_once_when_the_other_path_fails() -> None:
    net = Damped(TWO_NODES)
    net.flap("plc", times=4)
    assert net.state.held == {"plc"}
    net.report(wifi=False)
    assert net.state.held == frozenset() and net.state.silent == {"wifi"}
    net.report(wifi=True)
    # It was needed, and is used until it fails again.
    assert net.state.held == frozenset()


@pytest.mark.parametrize("loss", ["switch port", "agents' silence", "capacity"])
def test_a_hold_ends_with_whatever_takes_the_other_path_away(loss: str) -> None:
    net = Damped(TWO_NODES)
    net.flap("plc", times=4)
    assert net.state.held == {"plc"}
    if loss == "switch port":
        gone = net.context.addressing.interface_name["b", "wifi"]
        net.become(switch_up(net.state, "b", net.ports("b") - {gone}))
    elif loss == "capacity":
        mbps = tuple(0.0 if link.id == "wifi" else 10.0 for link in net.context.network.links)
        net.become(measured(net.state, mbps, None))
    else:
        net.report(wifi=False)
    assert net.state.held == frozenset()


def test_broadcasts_need_both_directions_of_one_medium() -> None:
    """Each direction has a way around by the other medium, and yet ARP would find nobody."""
    net = Damped(TWO_NODES)
    net.flap("plc", times=5, period_s=0.2)
    net.flap("wifi_", times=5, period_s=0.2)
    assert net.reached(net.state) == net.reached(replace(net.state, held=frozenset()))
    assert len(net.state.held) == 1


def test_links_that_fall_silent_together_at_their_observer_did_not_flap() -> None:
    net = Damped(TWO_NODES)
    net.flap("plc", "wifi", times=20)
    assert net.state.held == frozenset()
    assert all(history.flaps == 0 for history in net.holds.damping.histories.values())


STAR: dict[str, Any] = {
    "nodes": {node: {"role": "ap"} for node in "abcd"},
    "links": [
        {"id": f"{first}{second}", "from": first, "to": second, "technology": "wifi", "capacity_mbps": 9, "both": True}
        for first, second in ("ab", "ac", "ad", "bc", "cd")
    ],
    "interference": {"rule": "technology"},
}


def test_a_node_that_nobody_hears_for_a_moment_has_no_bad_links() -> None:
    net = Damped(STAR)
    for _ in range(20):
        for link in ("ab", "ac", "ad"):
            net.report(**{link: False})
            net.now_s += 0.05
        for link in ("ab", "ac", "ad"):
            net.report(**{link: True})
        net.now_s += 0.5
    assert net.state.held == frozenset()
    assert all(history.flaps == 0 for history in net.holds.damping.histories.values())


def test_some_links_of_a_node_that_fail_while_others_live_did_flap() -> None:
    net = Damped(STAR)
    net.flap("ab", "ac", times=5)
    assert net.state.held == {"ab", "ac"}


def test_an_agent_that_is_gone_has_no_links_that_live() -> None:
    """What is left of a node's links counts: its other neighbours are not heard since their agents are gone."""
    net = Damped(STAR)
    net.become(agent_down(net.state, net.context, "d"))
    net.flap("ab", "ac", times=20)
    assert net.state.held == frozenset()


def random_network(rng: random.Random) -> dict[str, Any]:
    """Up to seven nodes with links on up to three media, some one-way, some beside each other on one medium."""
    names = "abcdefg"[: rng.randint(2, 7)]
    nodes = {name: {"role": rng.choice(["ap", "ap", "client", "switch"])} for name in names}
    nodes[names[0]] = {"role": "gateway"}
    links = []
    for k in range(rng.randint(len(names), 4 * len(names))):
        first, second = rng.sample(names, 2)
        technology = rng.choice(["wifi", "plc", "ethernet"])
        if any({first, second} == {link["from"], link["to"]} and link["technology"] == technology for link in links):
            continue
        links.append(
            {"id": f"l{k}", "from": first, "to": second, "technology": technology, "capacity_mbps": rng.randint(1, 30),
             "both": rng.random() < 0.8}
        )  # fmt: skip
    return {"nodes": nodes, "links": links, "interference": {"rule": "technology"}}


def something_happens(net: Damped, rng: random.Random) -> None:
    """Mostly links that come and go, some of them much more often; now and then a switch, an agent or a capacity."""
    links = net.context.network.links
    kind = rng.random()
    node = rng.choice(list(net.context.addressing.dpid))
    if kind < 0.8:
        link = links[int(len(links) * rng.random() ** 2)]
        up = link.id in net.state.silent if rng.random() < 0.9 else rng.random() < 0.5
        net.report(**{link.id.replace("~", "_"): up})
    elif kind < 0.85:
        net.become(switch_down(net.state, node))
    elif kind < 0.92:
        ports = net.ports(node)
        net.become(switch_up(net.state, node, rng.sample(sorted(ports), rng.randint(0, len(ports)))))
    elif kind < 0.97:
        net.become(switch_up(net.state, node, net.ports(node)))
    else:
        net.become(measured(net.state, tuple(rng.choice([0.0, 5.0, 5.0, 5.0]) for _ in links), None))


@examples(60)
@given(st.integers(0, 2**32))
def test_nobody_is_disconnected_by_holds(seed: int) -> None:
    """Whoever is connected by links that are heard stays so, whatever fails and however often, at every moment."""
    rng = random.Random(seed)
    net = Damped(random_network(rng))
    for _ in range(80):
        something_happens(net, rng)
        net.now_s += rng.choice([0.01, 0.05, 0.2, 1.0])
        net.become(net.state)
        if net.state.held:
            assert net.reached(net.state) == net.reached(replace(net.state, held=frozenset()))


def test_random_networks_have_links_held() -> None:
    """The law above says something: links are held, several at once, and some that are suppressed are not."""
    held, spared = 0, 0
    for seed in range(12):
        rng = random.Random(seed)
        net = Damped(random_network(rng))
        for _ in range(80):
            something_happens(net, rng)
            net.now_s += 0.05
            net.become(net.state)
            held = max(held, len(net.state.held))
            spared += any(
                history.up and not history.suppressed and history.penalty > DampingSettings().suppress
                for history in net.holds.damping.histories.values()
            )
    assert held >= 2 and spared


def grid(side: int) -> dict[str, Any]:
    """Access points in rows and columns, each with its neighbours."""
    nodes = {f"{x}.{y}": {"role": "ap"} for x in range(side) for y in range(side)}
    pairs = [(f"{x}.{y}", f"{x + 1}.{y}") for x in range(side - 1) for y in range(side)]
    pairs += [(f"{x}.{y}", f"{x}.{y + 1}") for x in range(side) for y in range(side - 1)]
    rest = {"technology": "wifi", "capacity_mbps": 10, "both": True}
    links = [{"id": f"{a}-{b}", "from": a, "to": b, **rest} for a, b in pairs]
    return {"nodes": nodes, "links": links, "interference": {"rule": "technology"}}


def test_many_links_that_come_back_one_by_one_do_not_ask_for_each_who_needs_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As after Open vSwitch stood still three times: 552 links kept the controller for ten seconds."""
    asked: list[int] = []
    ask = HelloGraph.holdable

    def holdable(graph: HelloGraph, wanted: Collection[str], usable: Callable[[Link], bool]) -> frozenset[str]:
        asked.append(len(wanted))
        return ask(graph, wanted, usable)

    monkeypatch.setattr(HelloGraph, "holdable", holdable)
    net = Damped(grid(8))
    monkeypatch.setattr(net.holds, "_together_s", 0.0)
    links = [link.id for link in net.context.network.links]
    for _ in range(4):
        for up in (False, True):
            asked.clear()
            for link in links:
                heard = links_heard(net.state, net.context, net.target(link), {link: up}, net.now_s)
                net.become(net.holds.reported(net.state, heard, net.now_s))
                net.now_s += 0.0001
            net.now_s += 0.5
            net.become(net.state)
    assert len(links) > 200 and len(net.holds.damping.held_down(net.now_s)) > 50
    assert sum(asked) < 20 * len(links)
    # What is held then takes no path from anybody, and what time alone ends does end.
    assert net.state.held
    assert net.reached(net.state) == net.reached(replace(net.state, held=frozenset()))
    net.now_s += 60.0
    net.become(net.state)
    assert net.state.held == frozenset()

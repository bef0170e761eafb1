"""One network after the other, where links come and go: what is taken over from the last is what would be made anew."""

from __future__ import annotations

import random

import pytest
from examples import seeds

from hyroads.controller.control.live_network import Basis, Cache, LiveNetwork
from hyroads.controller.core.interface_graph import InterfaceGraph, interface_graph
from hyroads.controller.core.netfile import parse
from hyroads.controller.core.network import Network
from hyroads.controller.core.topologies import campus
from hyroads.controller.model.state import State, TopologyContext, agent_up, initial, links_heard, measured, switch_up

NODES, CHANGES = 24, 8


def graph_of(network: Network) -> InterfaceGraph:
    return interface_graph(Network(network.nodes, network.links, network.interference, unshared=network.unshared))


def up(context: TopologyContext) -> State:
    """All agents and switches are there."""
    state = initial(context)
    for node in context.network.nodes:
        state = agent_up(state, context, node, fresh=False, now_s=0.0)
        state = switch_up(state, node, context.addressing.port_names(node))
    return state


def without(live: Cache, context: TopologyContext, state: State, link: str) -> tuple[State, LiveNetwork, LiveNetwork]:
    """The network after a link fell silent, and one without a past."""
    target = context.network.links[context.network.link_index[link]].target
    state = links_heard(state, context, target, {link: False}, 100.0)
    after = live.live(state)
    return state, after, LiveNetwork(context, after.basis)


def test_a_path_is_not_taken_over_where_staying_on_a_technology_costs_more_by_now() -> None:
    links = [("su", "A", 100.0), ("ut", "A", 50.0), ("ux", "B", 100.0), ("sv", "A", 100.0), ("vt", "B", 28.6)]
    document = {
        "nodes": {node: {"role": "ap"} for node in "suvtx"},
        "links": [
            {"id": ends, "from": ends[0], "to": ends[1], "technology": technology, "capacity_mbps": mbps}
            for ends, technology, mbps in links
        ],
        "interference": {"rule": "technology"},
    }
    context = TopologyContext.of(parse(document, "staying"))
    cache, state = Cache(context), up(context)
    names = [link.id for link in context.network.links]
    assert [names[link] for link in cache.live(state).single_path("s", "t")] == ["su", "ut"]
    _, after, fresh = without(cache, context, state, "ux")
    assert after.single_path("s", "t") == fresh.single_path("s", "t") == (names.index("sv"), names.index("vt"))


def test_a_path_is_taken_over_where_it_is_the_same() -> None:
    context = TopologyContext.of(campus(random.Random(1), NODES))
    cache, state = Cache(context), up(context)
    first, *others = context.network.nodes
    paths = {(first, other): cache.live(state).single_path(first, other) for other in others}
    used = {link for path in paths.values() for link in path}
    link = next(link for i, link in enumerate(context.network.links) if i not in used)
    _, after, fresh = without(cache, context, state, link.id)
    after._take_over()
    assert len(after._single) > len(paths) / 2
    assert after._single == {ends: fresh.single_path(*ends) for ends in after._single}


@pytest.mark.parametrize("seed", seeds(8))
def test_it_is_what_it_would_be_without_a_past(seed: int) -> None:
    rng = random.Random(seed)
    context = TopologyContext.of(campus(rng, NODES))
    cache, state = Cache(context), up(context)
    nodes = list(context.network.nodes)
    capacity_mbps = tuple(link.capacity_mbps * rng.uniform(0.5, 1.0) for link in context.network.links)
    for change in range(CHANGES):
        links = rng.sample(context.network.links, 3)
        for link in links:
            state = links_heard(state, context, link.target, {link.id: rng.random() < 0.3}, 100.0)
        if change == CHANGES // 2:
            state = measured(state, capacity_mbps, None)
        live = cache.live(state)
        fresh = LiveNetwork(context, Basis(live.basis.dead, live.basis.capacity_mbps, None, live.basis.places))
        assert live.basis.dead == state.silent
        assert (live.network.capacities == fresh.network.capacities).all()
        assert interface_graph(live.network) == graph_of(fresh.network)
        assert live.network.link_index == {link.id: i for i, link in enumerate(fresh.network.links)}
        assert live.intents == fresh.intents
        for _ in range(10):
            source, target = rng.sample(nodes, 2)
            path, other = live.single_path(source, target), fresh.single_path(source, target)
            assert bool(path) == bool(other)
            assert path == other
            assert not state.silent & {live.network.links[link].id for link in path}

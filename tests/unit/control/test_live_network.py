"""One network after the other, where links come and go: what is taken over from the last is what would be made anew."""

from __future__ import annotations

import random

import pytest
from examples import seeds

from hyroads.controller.control.live_network import Basis, Cache, LiveNetwork
from hyroads.controller.core.interface_graph import InterfaceGraph, capacities_of, interface_graph
from hyroads.controller.core.network import Network
from hyroads.controller.core.topologies import campus
from hyroads.controller.model.state import TopologyContext, agent_up, initial, links_heard, measured, switch_up

NODES, CHANGES = 24, 8


def graph_of(network: Network) -> InterfaceGraph:
    return interface_graph(Network(network.nodes, network.links, network.interference, unshared=network.unshared))


def airtime(network: Network, path: tuple[int, ...]) -> float:
    return sum(1.0 / network.links[link].capacity_mbps for link in path)


@pytest.mark.parametrize("seed", seeds(8))
def test_it_is_what_it_would_be_without_a_past(seed: int) -> None:
    rng = random.Random(seed)
    context = TopologyContext.of(campus(rng, NODES))
    cache, state = Cache(context), initial(context)
    for node in context.network.nodes:
        state = agent_up(state, context, node, fresh=False, now_s=0.0)
        state = switch_up(state, node, context.addressing.port_names(node))
    nodes = list(context.network.nodes)
    capacity_mbps = tuple(link.capacity_mbps * rng.uniform(0.5, 1.0) for link in context.network.links)
    for change in range(CHANGES):
        links = rng.sample(context.network.links, 3)
        for link in links:
            up = rng.random() < 0.3
            state = links_heard(state, context, link.target, {link.id: up}, 100.0)
        if change == CHANGES // 2:
            state = measured(state, capacity_mbps, None)
        live = cache.live(state)
        fresh = LiveNetwork(context, Basis(live.basis.dead, live.basis.capacity_mbps, None, live.basis.places))
        assert live.basis.dead == state.silent
        assert (capacities_of(live.network) == capacities_of(fresh.network)).all()
        assert interface_graph(live.network) == graph_of(fresh.network)
        assert live.network.link_index == {link.id: i for i, link in enumerate(fresh.network.links)}
        assert live.intents == fresh.intents
        for _ in range(10):
            source, target = rng.sample(nodes, 2)
            path, other = live.single_path(source, target), fresh.single_path(source, target)
            assert bool(path) == bool(other)
            assert airtime(live.network, path) == pytest.approx(airtime(live.network, other))
            assert not state.silent & {live.network.links[link].id for link in path}

"""Next hops and the broadcast tree, checked by following them."""

from __future__ import annotations

import networkx as nx
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.core.errors import PlanningError
from hyroads.controller.core.interface_graph import interface_graph, metric_of
from hyroads.controller.core.routes import all_routes, broadcast_tree
from hyroads.controller.core.tree import n_shortest

SEEDS = st.integers(0, 2**32)


def follow(network, routes, node, target, came_in_on=None):
    """The links that a frame takes, one look-up per hop."""
    path = []
    while node != target:
        index = routes[node, came_in_on]
        assert network.links[index].source == node
        path.append(index)
        assert len(path) <= len(network.nodes), "a forwarding loop"
        node, came_in_on = network.links[index].target, network.links[index].technology
    return tuple(path)


@examples(150)
@given(seed=SEEDS, technologies=st.integers(1, 4), tied=st.booleans(), clients=st.booleans())
def test_following_next_hops_is_the_shortest_path(seed, technologies, tied, clients, random_network):
    network = random_network(
        seed, size=7, technologies=technologies, tied=tied, clients=clients, density=0.35, dead=True
    )
    graph = interface_graph(network)
    metric = metric_of(graph, network.capacities)
    routes = all_routes(network, ["n6"])["n6"]
    for node in list(network.nodes)[:-1]:
        best = n_shortest(metric, graph.node(node), graph.node("n6"), 1)
        assert ((node, None) in routes) == bool(best)
        if best:
            path = follow(network, routes, node, "n6")
            assert metric.cost(path) == metric.cost(best[0])
            relays = [network.links[index].target for index in path[:-1]]
            assert not any(network.nodes[relay].is_plain_client for relay in relays)
    for node, came_in_on in routes:
        follow(network, routes, node, "n6", came_in_on)


@examples(60)
@given(seed=SEEDS, technologies=st.integers(2, 3), tied=st.booleans())
def test_next_hop_differs_by_ingress_only_where_it_must(seed, technologies, tied, random_network):
    network = random_network(seed, size=6, technologies=technologies, tied=tied, density=0.4)
    routes = all_routes(network, ["n5"])["n5"]
    for (node, came_in_on), index in routes.items():
        default = routes[node, None]
        if index != default:
            assert network.links[default].technology == came_in_on


@examples(150)
@given(seed=SEEDS, technologies=st.integers(1, 4), tied=st.booleans(), clients=st.booleans())
def test_compiled_tables_equal_the_reference(seed, technologies, tied, clients, random_network):
    network = random_network(
        seed, size=7, technologies=technologies, tied=tied, clients=clients, density=0.35, dead=True
    )
    assert all_routes(network) == all_routes(network, compiled=False)


def test_unknown_target_is_an_error(random_network):
    with pytest.raises(PlanningError, match="nowhere"):
        all_routes(random_network(1), ["nowhere"])["nowhere"]


@examples(80)
@given(seed=SEEDS, tied=st.booleans(), clients=st.booleans(), density=st.floats(0.1, 0.8))
def test_broadcast_tree_is_a_minimum_spanning_forest_of_switches(seed, tied, clients, density, random_network):
    network = random_network(seed, size=8, tied=tied, clients=clients, density=density, dead=True)
    tree = broadcast_tree(network)
    assert tree == broadcast_tree(network)
    switches = [node for node in network.nodes.values() if not node.is_plain_client]
    pairs = nx.Graph()
    pairs.add_nodes_from(node.id for node in switches)
    for link in network.links:
        for back in network.links:
            ends = (back.target, back.source, back.technology) == (link.source, link.target, link.technology)
            if ends and link.capacity_mbps > 0 and back.capacity_mbps > 0 and {link.source, link.target} <= set(pairs):
                weight = 1 / link.capacity_mbps + 1 / back.capacity_mbps
                known = pairs.get_edge_data(link.source, link.target, {"weight": weight})["weight"]
                pairs.add_edge(link.source, link.target, weight=min(weight, known))
    expected = nx.minimum_spanning_tree(pairs)
    assert len(tree) == expected.number_of_edges()
    ours = nx.Graph([(edge.first, edge.second) for edge in tree])
    assert nx.is_forest(ours) if tree else True
    total = 0.0
    for edge in tree:
        forward, backward = network.links[edge.forward], network.links[edge.backward]
        assert (forward.source, forward.target) == (edge.first, edge.second) == (backward.target, backward.source)
        assert forward.technology == backward.technology
        total += 1 / forward.capacity_mbps + 1 / backward.capacity_mbps
    assert total == pytest.approx(expected.size("weight"), rel=1e-6)


@examples(80)
@given(seed=SEEDS, tied=st.booleans(), clients=st.booleans(), density=st.floats(0.1, 0.8), data=st.data())
def test_edges_that_are_left_stay_in_the_broadcast_tree(seed, tied, clients, density, data, random_network):
    network = random_network(seed, size=8, tied=tied, clients=clients, density=density, dead=True)
    names = [link.id for link in network.links]
    gone = data.draw(st.sets(st.sampled_from(names), max_size=4)) if names else set()
    after = network.with_capacities(dict.fromkeys(gone, 0.0))
    if interface_graph(after).unit_mbps != interface_graph(network).unit_mbps:
        # All weights are others.
        return
    left = [edge for edge in broadcast_tree(network) if gone.isdisjoint({names[edge.forward], names[edge.backward]})]
    assert broadcast_tree(after, left) == broadcast_tree(after)

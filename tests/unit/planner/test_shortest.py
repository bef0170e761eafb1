"""n-shortest against exhaustive enumeration, and the laws of the metric."""

from __future__ import annotations

from itertools import pairwise

import networkx as nx
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from link_paths import is_loop_free

from hyroads.controller.core.interface_graph import (
    interface_graph,
    metric_of,
)
from hyroads.controller.core.netfile import parse
from hyroads.controller.core.tree import n_shortest

SEEDS = st.integers(0, 2**32)


def metric_in(network, clients_relay=False):
    graph = interface_graph(network, clients_relay)
    return graph, metric_of(graph, network.capacities)


def formula_cost(network, path):
    """The cost of a path from the text of the specification, in floats."""
    alive = [link for link in network.links if link.capacity_mbps > 0]
    several = len({link.technology for link in alive}) > 1
    cost = 0.0
    for position, index in enumerate(path):
        link = network.links[index]
        cost += 1 / link.capacity_mbps
        before = network.links[path[position - 1]].technology if position else None
        if several and before == link.technology and link.technology not in network.unshared:
            cost += min(1 / other.capacity_mbps for other in alive if other.source == link.source)
    return cost


@examples(150)
@given(seed=SEEDS, n=st.integers(1, 12), technologies=st.integers(1, 4), tied=st.booleans(), clients=st.booleans())
def test_n_shortest_is_the_head_of_the_exhaustive_list(seed, n, technologies, tied, clients, random_network, all_paths):
    network = random_network(seed, technologies=technologies, tied=tied, clients=clients, density=0.45, dead=True)
    graph, metric = metric_in(network)
    listed = sorted((metric.cost(path), path) for path in all_paths(network, "n0", "n4"))
    found = n_shortest(metric, graph.node("n0"), graph.node("n4"), n)
    assert found == [path for _, path in listed[:n]]


@examples(80)
@given(seed=SEEDS, technologies=st.integers(1, 4))
def test_order_agrees_with_the_formula(seed, technologies, random_network):
    network = random_network(seed, technologies=technologies, size=6, density=0.5)
    _graph, metric = metric_in(network)
    costs = [formula_cost(network, path) for path in n_shortest(metric, 0, 5, 20)]
    assert all(later >= earlier * (1 - 1e-6) for earlier, later in pairwise(costs))


def interface_digraph(metric):
    """The virtual graph of interfaces in which loops are allowed: (node, technology came in on) -> ..."""
    graph = metric.graph
    digraph = nx.DiGraph()
    for link, weight in enumerate(metric.weights):
        for came_in_on in range(-1, len(graph.technologies)) if weight else ():
            start = (graph.source[link], came_in_on)
            end = (graph.target[link], graph.technology[link])
            step = metric.step(link, came_in_on)
            if not digraph.has_edge(start, end) or digraph.edges[start, end]["weight"] > step:
                digraph.add_edge(start, end, weight=step)
    return digraph


@examples(80)
@given(seed=SEEDS, technologies=st.integers(1, 4), tied=st.booleans())
def test_shortest_walk_on_interfaces_is_the_shortest_loop_free_path(seed, technologies, tied, random_network):
    """What makes the metric usable hop by hop: allowing loops never gives anything cheaper."""
    network = random_network(seed, technologies=technologies, tied=tied, size=6, density=0.4)
    _graph, metric = metric_in(network)
    digraph = interface_digraph(metric)
    digraph.add_node((0, -1))
    walks = nx.single_source_dijkstra_path_length(digraph, (0, -1))
    for target in range(1, 6):
        cheapest = min((cost for (node, _), cost in walks.items() if node == target), default=None)
        found = n_shortest(metric, 0, target, 1)
        assert (metric.cost(found[0]) if found else None) == cheapest
        assert all(is_loop_free(network, path) for path in found)


@examples(80)
@given(seed=SEEDS, tied=st.booleans())
def test_metric_is_isotone(seed, tied, random_network, all_paths):
    """Of two paths into one interface, the cheaper stays the cheaper whatever follows."""
    network = random_network(seed, technologies=3, tied=tied, density=0.35)
    graph, metric = metric_in(network)
    into = {}
    for path in all_paths(network, "n0", "n2"):
        into.setdefault(graph.technology[path[-1]], []).append(path)
    onward = all_paths(network, "n2", "n4")
    for paths in into.values():
        ordered = sorted(paths, key=metric.cost)
        for rest in onward[:10]:
            costs = [metric.cost((*path, *rest)) for path in ordered]
            assert costs == sorted(costs)
            assert all(a < b for p, q, a, b in zip(ordered, ordered[1:], costs, costs[1:], strict=False)
                       if metric.cost(p) < metric.cost(q))  # fmt: skip


def line(technologies, capacity_mbps=10):
    """a -> b -> c with one link per technology and hop."""
    links = [
        {"id": f"{u}{v}-{k}", "from": u, "to": v, "technology": k, "capacity_mbps": capacity_mbps}
        for u, v in ("ab", "bc")
        for k in technologies
    ]
    nodes = {name: {"role": "ap"} for name in "abc"}
    return parse({"nodes": nodes, "links": links, "interference": {"rule": "technology"}}, "line")


def test_alternating_technologies_come_first():
    network = line(["wifi", "plc"])
    _graph, metric = metric_in(network)
    found = n_shortest(metric, 0, 2, 5)
    switches = [network.links[a].technology != network.links[b].technology for a, b in found]
    assert switches == [True, True, False, False]


def test_nothing_is_charged_for_staying_with_one_technology_or_on_ethernet():
    for network in (line(["wifi"]), line(["ethernet"])):
        _, metric = metric_in(network)
        (path,) = n_shortest(metric, 0, 2, 5)
        assert metric.cost(path) == sum(metric.weights[link] for link in path)
    network = line(["ethernet", "wifi"])
    _, metric = metric_in(network)
    ethernet = tuple(network.link_index[name] for name in ("ab-ethernet", "bc-ethernet"))
    assert metric.cost(ethernet) == sum(metric.weights[link] for link in ethernet)

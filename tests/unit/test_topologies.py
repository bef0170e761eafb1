"""Random networks: sizes, distances, capacities and roles of the studies."""

from __future__ import annotations

import math
import random
import statistics
from collections import Counter
from collections.abc import Callable

import networkx as nx
import pytest
from hyroads.controller.core.netjson import network_graph
from hyroads.controller.core.network import Network, Role
from hyroads.controller.core.topologies import (
    PLC,
    WIFI,
    campus100,
    campus200,
    endpoints,
    enterprise,
    office22,
    paths_study,
    residential,
)


def distance_m(network: Network, source: str, target: str) -> float:
    return math.dist(network.nodes[source].position_m or (), network.nodes[target].position_m or ())


@pytest.mark.parametrize("make", [residential, enterprise, office22, campus100, lambda rng: paths_study(rng, 3)])
def test_the_same_seed_gives_the_same_network(make: Callable[[random.Random], Network]) -> None:
    first, again, other = make(random.Random(1)), make(random.Random(1)), make(random.Random(2))
    assert first.links == again.links
    assert first.links != other.links


def test_residential_nodes() -> None:
    mesh, infrastructure = residential(random.Random(1)), residential(random.Random(1), mesh=False)
    assert Counter(node.role for node in mesh.nodes.values()) == {Role.GATEWAY: 1, Role.AP: 2, Role.CLIENT: 2}
    assert list(infrastructure.nodes) == ["r1", "c1", "c2"]
    assert mesh.nodes["c1"].agent
    assert not mesh.nodes["c2"].agent
    # 20 x 10 m is within the range of both media, so everything is linked but for c2 on PLC.
    assert len(mesh.links) == 5 * 4 + 4 * 3


def test_enterprise_links_exist_exactly_within_range_of_common_media() -> None:
    network = enterprise(random.Random(3), node_count=20, width_m=100, height_m=60, panels=2)
    linked = {(link.source, link.target, link.technology) for link in network.links}
    aps = [node for node in network.nodes if node.startswith("r")]
    assert len(aps) == 10
    for source in network.nodes:
        for target in network.nodes:
            apart = distance_m(network, source, target)
            wifi = source != target and apart <= WIFI.range_m and (source in aps or target in aps)
            assert ((source, target, "wifi") in linked) == wifi
    for link in network.links:
        if link.technology != "wifi":
            left = [(network.nodes[end].position_m or (0, 0))[0] < 50 for end in (link.source, link.target)]
            assert left == [link.technology == "plc-panel-1"] * 2
            assert distance_m(network, link.source, link.target) <= PLC.range_m


def test_capacities_have_the_testbeds_mean_and_spread() -> None:
    rng = random.Random(4)
    networks = [enterprise(rng) for _ in range(200)]
    wifi = [link.capacity_mbps for net in networks for link in net.links if link.technology == "wifi"]
    plc = [link.capacity_mbps for net in networks for link in net.links if link.technology == "plc"]
    assert statistics.mean(wifi) == pytest.approx(31, rel=0.35)
    assert statistics.pstdev(wifi) == pytest.approx(30, rel=0.25)
    assert statistics.mean(plc) == pytest.approx(30, rel=0.35)
    assert statistics.pstdev(plc) == pytest.approx(20, rel=0.25)
    assert max(wifi) == 102
    assert max(plc) <= 86
    assert min(wifi + plc) == 5


@pytest.mark.parametrize(
    ("make", "nodes", "links"), [(office22, 22, 590), (campus100, 100, 5600), (campus200, 200, 25_000)]
)
def test_benchmark_networks_have_about_the_stated_size(
    make: Callable[[random.Random], Network], nodes: int, links: int
) -> None:
    networks = [make(random.Random(seed)) for seed in range(5)]
    assert {len(net.nodes) for net in networks} == {nodes}
    assert statistics.mean(len(net.links) for net in networks) == pytest.approx(links, rel=0.08)


def test_endpoints_are_a_client_and_a_router() -> None:
    rng = random.Random(5)
    network = enterprise(rng)
    for _ in range(50):
        source, target = endpoints(network, rng)
        assert network.nodes[source].role is Role.CLIENT
        assert network.nodes[target].role is not Role.CLIENT
    source, target = endpoints(office22(rng), rng)
    assert source != target


def test_netjson_describes_the_same_multigraph() -> None:
    network = enterprise(random.Random(6)).with_capacities({"r1-c1-wifi": 0.0})
    document = network_graph(network)
    assert document["type"] == "NetworkGraph"
    assert {"protocol", "version", "metric", "nodes", "links"} <= document.keys()
    graph = nx.MultiDiGraph()
    graph.add_nodes_from(node["id"] for node in document["nodes"])
    for link in document["links"]:
        graph.add_edge(link["source"], link["target"], key=link["properties"]["technology"], cost=link["cost"])
    alive = [link for link in network.links if link.capacity_mbps > 0]
    assert set(graph.nodes) == set(network.nodes)
    assert graph.number_of_edges() == len(alive)
    for link in alive:
        assert graph.edges[link.source, link.target, link.technology]["cost"] == pytest.approx(1 / link.capacity_mbps)

"""Random networks: sizes, distances, capacities and roles of the studies."""

from __future__ import annotations

import math
import random
import statistics
from collections import Counter
from collections.abc import Callable

import networkx as nx
import pytest
from examples import seeds

from hyroads.controller.core.netfile import parse, to_document
from hyroads.controller.core.network import Network, Role, network_graph
from hyroads.controller.core.topologies import PLC, WIFI, campus
from hyroads.controller.study.networks import (
    PATHS_STUDY,
    Ends,
    campus100,
    campus200,
    endpoints,
    enterprise,
    office22,
    paths_study,
    residential,
    scaled_to,
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
    networks = [make(random.Random(seed)) for seed in (seeds(5) if nodes == 200 else range(5))]
    assert {len(net.nodes) for net in networks} == {nodes}
    assert statistics.mean(len(net.links) for net in networks) == pytest.approx(links, rel=0.08)


def drawn(network: Network, ends: Ends | None = None) -> Counter[tuple[str, str]]:
    rng = random.Random(5)
    return Counter(endpoints(network, rng, ends) for _ in range(4000))


def test_flows_of_homes_go_from_any_client_to_any_router() -> None:
    for mesh in (True, False):
        network = residential(random.Random(5), mesh=mesh)
        routers = [node for node in network.nodes if node.startswith("r")]
        assert set(drawn(network)) == {(client, router) for client in ("c1", "c2") for router in routers}


@pytest.mark.parametrize("ends", [None, Ends.ANY_TO_AP, Ends.AP_TO_ANY])
def test_flows_of_enterprises_join_an_ap_with_any_other_node_alike_often(ends: Ends | None) -> None:
    network = enterprise(random.Random(5), node_count=8)
    seen = drawn(network, ends)
    aps = [node.id for node in network.nodes.values() if node.role is not Role.CLIENT]
    pairs = {(node, ap) for node in network.nodes for ap in aps if node != ap}
    if ends is Ends.AP_TO_ANY:
        pairs = {(ap, node) for node, ap in pairs}
    assert set(seen) == pairs
    assert max(seen.values()) < 1.5 * 4000 / len(pairs)
    assert min(seen.values()) > 0.6 * 4000 / len(pairs)


def test_ends_of_flows_are_chosen_by_name() -> None:
    assert Ends("any-to-ap") is Ends.ANY_TO_AP
    assert Ends("ap-to-any") is Ends.AP_TO_ANY
    network = enterprise(random.Random(5))
    assert {source[0] + target[0] for source, target in drawn(network, Ends("client-to-router"))} == {"cr"}


def test_flows_between_hybrid_nodes_have_two_different_ends() -> None:
    network = office22(random.Random(5))
    assert set(drawn(network)) <= {(a, b) for a in network.nodes for b in network.nodes if a != b}


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_paths_study_has_the_ranges_of_the_media_and_power_lines_in_halves(number: int) -> None:
    for seed in seeds(5):
        network = paths_study(random.Random(seed), number)
        width_m = PATHS_STUDY[number - 1][0]
        linked = {(link.source, link.target, link.technology.split("-panel")[0]) for link in network.links}
        left = {name: (node.position_m or (0, 0))[0] < width_m / 2 for name, node in network.nodes.items()}
        for source in network.nodes:
            for target in set(network.nodes) - {source}:
                apart = distance_m(network, source, target)
                for channel in ("wifi-1", "wifi-2"):
                    assert ((source, target, channel) in linked) == (apart <= 35)
                one_line = number == 1 or left[source] == left[target]
                assert ((source, target, "plc") in linked) == (apart <= 50 and one_line)


def test_paths_study_scales_the_capacities_of_the_media() -> None:
    fastest = [scaled_to(WIFI, rate) for rate in (20.4, 102.0)]
    near = [medium.capacity_mbps(10.0, random.Random(7)) for medium in fastest]
    assert near[1] / near[0] == pytest.approx(5.0)
    rates = []
    for seed in range(60):
        network = paths_study(random.Random(seed), 2)
        capacities = [link.capacity_mbps for link in network.links if link.technology == "wifi-1"]
        rates.append(max(capacities))
        assert min(capacities) >= rates[-1] * WIFI.floor_mbps / WIFI.max_mbps * 0.999
    assert min(rates) < 40
    assert 160 < max(rates) <= 180


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


def test_buildings_of_a_campus_hear_nothing_of_each_other_and_are_joined_by_wires() -> None:
    network = campus(random.Random(1), 100, building=8, area=5)
    assert len(network.nodes) == 100
    links = nx.DiGraph((link.source, link.target) for link in network.links)
    assert nx.is_strongly_connected(links)
    assert sum(node.role is Role.GATEWAY for node in network.nodes.values()) == 3
    for index, link in enumerate(network.links):
        buildings = {network.links[i].source.split("-")[0] for i in network.interference.domain(index)}
        assert len(buildings) == 1
        assert (link.source.split("-")[0] == link.target.split("-")[0]) == (link.technology != "ethernet")
    assert parse(to_document(network), "campus").links == network.links


def test_domains_and_links_of_an_access_point_do_not_grow_with_the_campus() -> None:
    small, large = (campus(random.Random(1), count) for count in (100, 800))
    assert len(large.links) / 800 < 1.1 * len(small.links) / 100
    assert max(len(large.interference.domain(i)) for i in range(len(large.links))) <= 2 * 8 * 7

"""Regions: what must stay together, what is proposed, chains of segments, and rates that need one number a flow."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Mapping
from pathlib import Path

import networkx as nx
import pytest
from examples import seeds
from region_cases import two_buildings

from hyroads.controller.cli.main import main
from hyroads.controller.cli.regions import by_metis
from hyroads.controller.core.errors import ConfigError, NoRouteError, PlanningError
from hyroads.controller.core.netfile import parse, to_document
from hyroads.controller.core.network import Network, Role
from hyroads.controller.core.rates.regions import Region, round_of, utility
from hyroads.controller.core.regions import (
    SMALLEST_SHARED,
    RegionGraph,
    Regions,
    Segment,
    inseparable,
    judged,
    proposed,
)
from hyroads.controller.core.topologies import WIFI, Placed, campus, connect, uniform


def carpet(rng: random.Random, count: int) -> Network:
    """Access points of one channel, as dense as offices have them."""
    width_m = math.sqrt(count * 500.0)
    places = (Placed.at(f"n{i}", Role.AP, uniform(rng, width_m, width_m), (WIFI,)) for i in range(count))
    return connect(list(places), rng)


@pytest.mark.parametrize("seed", seeds(10))
def test_no_domain_has_links_of_two_inseparable_groups(seed: int) -> None:
    rng = random.Random(seed)
    network = carpet(rng, 30) if seed % 2 else campus(rng, rng.randint(2, 40), building=rng.randint(1, 9))
    group_of = {node: i for i, group in enumerate(inseparable(network)) for node in group}
    assert group_of.keys() == network.nodes.keys()
    graph = nx.Graph()
    graph.add_nodes_from(network.nodes)
    for index, link in enumerate(network.links):
        ends = {end for i in network.interference.domain(index) for end in (network.links[i].source,)}
        if link.technology not in network.unshared:
            assert len({group_of[end] for end in ends}) == 1
            graph.add_edges_from((link.source, end) for end in (*ends, link.target))
    # And no group could be divided.
    assert sum(1 for _ in nx.connected_components(graph)) == len(set(group_of.values()))


@pytest.mark.parametrize(("count", "most"), [(60, 20), (200, 50), (200, 64)])
def test_regions_of_a_campus_are_whole_buildings_of_the_size_asked_for(count: int, most: int) -> None:
    network = campus(random.Random(1), count)
    division = proposed(network, most, by_metis)
    assert set().union(*division.regions.values()) == network.nodes.keys()
    assert max(map(len, division.regions.values())) <= most
    assert len(division.regions) <= 2 * math.ceil(count / most)
    assert division.shared_links == ()
    assert division.largest_inseparable == 8
    assert proposed(network, most, by_metis) == division


def test_a_carpet_of_one_channel_is_cut_into_large_regions_and_says_what_that_costs() -> None:
    network = carpet(random.Random(2), 600)
    division = proposed(network, 100, by_metis)
    assert division.largest_inseparable > SMALLEST_SHARED
    assert division.shared_links
    assert sum(map(len, division.regions.values())) == 600
    owner = {node: name for name, nodes in division.regions.items() for node in nodes}
    for index in random.Random(3).sample(range(len(network.links)), 200):
        owners = {owner[network.links[i].source] for i in network.interference.domain(index)}
        assert (len(owners) > 1) == (network.links[index].id in division.shared_links)


def test_bad_divisions_are_refused() -> None:
    network = campus(random.Random(1), 12)
    with pytest.raises(PlanningError, match="expected 1 or more"):
        proposed(network, 0, by_metis)
    with pytest.raises(PlanningError, match="exactly one region"):
        judged(network, {"a": frozenset(list(network.nodes)[:3])})


# -- the section of the file, and the command


def test_the_file_keeps_regions_and_names_what_is_wrong_with_them() -> None:
    network = campus(random.Random(1), 12)
    nodes = list(network.nodes)
    document = to_document(network)
    document["regions"] = {"north": nodes[:8], "south": nodes[8:]}
    again = parse(document, "campus")
    assert again.regions == {"north": frozenset(nodes[:8]), "south": frozenset(nodes[8:])}
    assert parse(to_document(again), "campus").regions == again.regions
    for regions, problem in (
        ({"north": nodes[:8], "south": nodes[7:]}, "regions.south[0]: node 'b1-8' is in region 'north' already"),
        ({"north": nodes[:8]}, "regions: node 'b2-1' and 3 more in no region"),
        ({"north": [*nodes, "nobody"]}, "regions.north[12]: expected the id of a node, got 'nobody'"),
        ([], "regions: expected a mapping"),
    ):
        with pytest.raises(ConfigError) as refused:
            parse({**document, "regions": regions}, "campus")
        assert problem in "\n".join(map(str, (refused.value, *refused.value.more)))


def test_the_command_proposes_judges_and_says_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "campus.json"
    document = to_document(campus(random.Random(1), 32))
    file.write_text(json.dumps(document))
    assert main(["regions", str(file), "--most", "16", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {len(nodes) for nodes in found["regions"].values()} == {16}
    assert main(["regions", str(file)]) == 2
    assert "declares no regions: give --most N" in capsys.readouterr().err
    file.write_text(json.dumps({**document, "regions": found["regions"]}))
    assert main(["regions", str(file)]) == 0
    assert "no interference domain has links of two regions" in capsys.readouterr().out
    assert main(["regions", str(file), "--most", "0"]) == 2
    assert str(file) in capsys.readouterr().err


# -- chains of segments


def test_a_chain_changes_regions_at_the_far_end_of_the_link_between_them() -> None:
    regions = Regions({"a": "west", "b": "west", "c": "east", "d": "east"})
    through = {("a", "b"): 10.0, ("b", "a"): 10.0, ("c", "d"): 20.0, ("d", "c"): 20.0}
    graph = RegionGraph(regions, [("b", "c", 100.0), ("c", "b", 100.0)], through)
    assert graph.segments("a", "d") == (Segment("west", "a", "c"), Segment("east", "c", "d"))
    assert graph.segments("a", "c") == (Segment("west", "a", "c"),)
    assert graph.segments("a", "b") == (Segment("west", "a", "b"),)
    assert graph.segments("d", "a") == (Segment("east", "d", "b"), Segment("west", "b", "a"))
    with pytest.raises(NoRouteError, match="from a to d"):
        RegionGraph(regions, [], through).segments("a", "d")


@pytest.mark.parametrize("seed", seeds(10))
def test_chains_are_joined_and_take_the_least_time(seed: int) -> None:
    rng = random.Random(seed)
    of_node = {f"n{i}": f"r{i % 4}" for i in range(16)}
    regions, nodes = Regions(of_node), list(of_node)
    graph = nx.DiGraph()
    crossings, through = [], {}
    for source, target in ((a, b) for a in nodes for b in nodes if a != b):
        if rng.random() < 0.25:
            capacity_mbps = rng.uniform(1.0, 100.0)
            graph.add_edge(source, target, time=1.0 / capacity_mbps)
            if of_node[source] == of_node[target]:
                through[source, target] = capacity_mbps
            else:
                crossings.append((source, target, capacity_mbps))
    owners = RegionGraph(regions, crossings, through)
    for _ in range(20):
        source, target = rng.sample(nodes, 2)
        if source not in graph or target not in graph or not nx.has_path(graph, source, target):
            continue
        chain = owners.segments(source, target)
        assert chain[0].ingress == source
        assert chain[-1].egress == target
        assert all(before.egress == after.ingress for before, after in itertools.pairwise(chain))
        assert all(of_node[segment.ingress] == segment.region for segment in chain)
        least = nx.shortest_path_length(graph, source, target, "time")
        way = nx.shortest_path(graph, source, target, "time")
        hops = sum(of_node[a] != of_node[b] for a, b in itertools.pairwise(way))
        assert len(chain) in {hops, hops + 1}
        assert least > 0


# -- rates


def after(rounds: int, regions: Mapping[str, Region]) -> tuple[dict[str, Region], dict[str, float]]:
    found, rates = dict(regions), {}
    for _ in range(rounds):
        found, rates = round_of(found)
    return found, rates


@pytest.mark.parametrize("seed", seeds(4))
def test_ten_rounds_come_within_half_a_percent_of_the_joint_optimum(seed: int) -> None:
    best, regions = two_buildings(random.Random(seed), crossing=12, local=30)
    after_one, rates = after(1, regions)
    first = utility(after_one, rates) / best
    found, rates = after(10, regions)
    assert first <= 1.0 + 1e-6
    assert 0.995 <= utility(found, rates) / best <= 1.0 + 1e-6


@pytest.mark.parametrize("seed", seeds(3))
def test_no_region_plans_more_than_its_air_whatever_the_others_say(seed: int) -> None:
    rng = random.Random(seed)
    _, regions = two_buildings(rng, crossing=8, local=10)
    for region in regions.values():
        offered, _ = region.offer()
        told = {flow: rng.choice([0.0, rng.uniform(0.0, 50.0), 1e9]) for flow in region.crossing[::2]}
        granted, rates = offered.grant(told)
        assert granted.granted is not None
        assert granted.granted.max_airtime <= 0.95 + 1e-6
        assert all(rates[flow] <= told[flow] + 1e-6 for flow in told)


def test_shares_of_a_weight_sum_to_one_and_go_to_the_region_that_has_less() -> None:
    _, regions = two_buildings(random.Random(1), crossing=8, local=20)
    found, _ = after(3, regions)
    first, second = found.values()
    for flow in first.crossing:
        assert first.share[flow] + second.share[flow] == pytest.approx(1.0, abs=2e-3)
    offered = {name: region.offer()[1] for name, region in regions.items()}
    moved, _ = round_of(regions)
    for flow in first.crossing:
        a, b = (offered[name][flow] for name in regions)
        shares = [moved[name].share[flow] for name in regions]
        assert (shares[0] > shares[1]) == (a < b) or a == pytest.approx(b, rel=1e-6)

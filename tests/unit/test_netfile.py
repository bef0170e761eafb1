"""The network file: what is read, what is filled in, the round trip."""

from __future__ import annotations

import copy
import json
import math
import pickle
import random
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.interference import ConflictInterference, RangeInterference, TechnologyInterference
from hyroads.controller.core.netfile import load_text, parse, to_document
from hyroads.controller.core.netfile_sections import flow_document
from hyroads.controller.core.network import Policy, Role, Utility
from hyroads.controller.core.private_split import Padding, PrivateSplit
from hyroads.controller.files.documents import read_file
from hyroads.controller.study.networks import enterprise, paths_study, residential

TRIANGLE = Path(__file__).parents[2] / "mininet" / "networks" / "triangle.yaml"

BASE: dict[str, Any] = {
    "nodes": {"a": {"role": "gateway"}, "b": {"role": "ap"}, "c": {"role": "client"}},
    "links": [
        {"id": "ab-plc", "from": "a", "to": "b", "technology": "plc", "capacity_mbps": 10},
        {"id": "ab-wifi", "from": "a", "to": "b", "technology": "wifi", "capacity_mbps": 15},
        {"id": "bc-wifi", "from": "b", "to": "c", "technology": "wifi", "capacity_mbps": 30},
    ],
    "interference": {"rule": "technology"},
}


def with_changes(changes: dict[str, Any]) -> dict[str, Any]:
    """BASE with values set or, for ``...``, deleted, by place: ``links[2].loss``."""
    document = copy.deepcopy(BASE)
    for place, value in changes.items():
        steps = [int(step) if step.isdigit() else step for step in place.replace("[", ".").replace("]", "").split(".")]
        target: Any = document
        for step in steps[:-1]:
            target = target.setdefault(step, {}) if isinstance(step, str) and isinstance(target, dict) else target[step]
        if value is ...:
            del target[steps[-1]]
        else:
            target[steps[-1]] = value
    return document


def test_the_triangle_file_is_the_worked_example() -> None:
    network = read_file(TRIANGLE)
    assert network.name == "triangle"
    assert [node.role for node in network.nodes.values()] == [Role.GATEWAY, Role.AP, Role.CLIENT]
    assert [node.agent for node in network.nodes.values()] == [True, True, False]
    capacities = {link.id: link.capacity_mbps for link in network.links}
    assert capacities == {"ab-plc": 10, "ab-plc~": 10, "ab-wifi": 15, "ab-wifi~": 15, "bc-wifi": 30, "bc-wifi~": 30}
    assert network.technologies == ("plc", "wifi")
    wifi = [network.link_index[name] for name in ("ab-wifi", "ab-wifi~", "bc-wifi", "bc-wifi~")]
    assert network.interference.domain(wifi[0]).tolist() == wifi
    assert [(flow.source, flow.target) for flow in network.flows] == [("a", "c")]


def test_both_declares_the_opposite_direction_right_after() -> None:
    document = with_changes({"links[0].both": True, "links[0].delay_ms": 2, "links[0].loss": 0.25})
    links = parse(document, "test").links
    assert [link.id for link in links] == ["ab-plc", "ab-plc~", "ab-wifi", "bc-wifi"]
    back = links[1]
    assert (back.source, back.target, back.technology) == ("b", "a", "plc")
    assert (back.capacity_mbps, back.delay_ms, back.loss) == (10, 2, 0.25)


@pytest.mark.parametrize(
    ("role", "technologies", "agent"),
    [("gateway", 1, True), ("ap", 1, True), ("switch", 2, False), ("client", 1, False), ("client", 2, True)],
)
def test_the_default_of_agent(role: str, technologies: int, agent: bool) -> None:
    links = [
        {"id": f"l{i}", "from": "x", "to": "y", "technology": f"t{i}", "capacity_mbps": 1} for i in range(technologies)
    ]
    document = {
        "nodes": {"x": {"role": role}, "y": {"role": "ap"}},
        "links": links,
        "interference": {"rule": "technology"},
    }
    assert parse(document, "test").nodes["x"].agent is agent


def test_an_explicit_agent_wins() -> None:
    network = parse(with_changes({"nodes.a.agent": False, "nodes.c.agent": True}), "test")
    assert not network.nodes["a"].agent
    assert network.nodes["c"].agent


def test_each_interference_section_makes_its_rule() -> None:
    assert isinstance(parse(BASE, "test").interference, TechnologyInterference)
    ranged = with_changes(
        {"interference": {"rule": "range", "ranges_m": {"wifi": 35, "plc": 50}}}
        | {f"nodes.{node}.position": [20 * i, 0] for i, node in enumerate("abc")}
    )
    assert isinstance(parse(ranged, "test").interference, RangeInterference)
    conflicts = parse(with_changes({"interference": {"conflicts": {"ab-wifi": ["bc-wifi"]}}}), "test").interference
    assert isinstance(conflicts, ConflictInterference)
    assert conflicts.domain(2).tolist() == [1, 2]
    domains = parse(with_changes({"interference": {"domains": [["ab-plc", "bc-wifi"]]}}), "test").interference
    assert domains.domain(0).tolist() == [0, 2]
    assert domains.domain(1).tolist() == [1]


def test_ethernet_is_unshared_by_name_and_the_file_can_say_otherwise() -> None:
    wired = with_changes({"links[0].technology": "ethernet-1", "links[0].both": True})
    assert parse(wired, "test").interference.domain(0).tolist() == [0]
    wired["technologies"] = {"ethernet-1": {"shared": True}, "wifi": {"shared": False}}
    network = parse(wired, "test")
    assert network.unshared == {"wifi"}
    assert network.interference.domain(0).tolist() == [0, 1]
    assert network.interference.domain(2).tolist() == [2]


def test_flows_are_read_in_full() -> None:
    flow = {
        "id": "f1",
        "from": "a",
        "to": "c",
        "utility": {"alpha": 2},
        "weight": 3,
        "paths": [["ab-plc", "bc-wifi"], ["ab-wifi", "bc-wifi"]],
        "match": {"ipv4_dst": "10.0.0.3", "udp_dst": 5001},
        "policy": "single",
    }
    (spec,) = parse(with_changes({"flows": [flow], "margin": 0.05}), "test").flows
    assert (spec.utility, spec.alpha, spec.weight) == (Utility.ALPHA, 2.0, 3.0)
    assert spec.paths == (("ab-plc", "bc-wifi"), ("ab-wifi", "bc-wifi"))
    assert spec.policy is Policy.SINGLE
    assert spec.match == {"eth_type": 0x0800, "ip_proto": 17, "ipv4_dst": "10.0.0.3", "udp_dst": 5001}


@pytest.mark.parametrize(
    ("keys", "split"),
    [
        ({}, PrivateSplit()),
        ({"n_cons": 30, "cost_share": 0.2}, PrivateSplit(30.0, 0.2)),
        ({"n_chp": 100}, PrivateSplit(n_chp=100.0, padding=Padding())),
        ({"n_chp": 100, "padding": False}, PrivateSplit(n_chp=100.0)),
        ({"padding": True}, PrivateSplit(padding=Padding())),
        ({"padding": {"gap_ms": 9}}, PrivateSplit(padding=Padding(9.0))),
        ({"n_chp": 50, "padding": {"max_per_s": 30}}, PrivateSplit(n_chp=50.0, padding=Padding(max_per_s=30.0))),
    ],
)
def test_what_a_private_flow_says_of_its_split_is_read_and_written(keys: dict[str, Any], split: PrivateSplit) -> None:
    flow = {"id": "f1", "from": "a", "to": "c", "policy": "private", **keys}
    (spec,) = parse(with_changes({"flows": [flow]}), "test").flows
    assert spec.split == split
    document = flow_document(spec)
    assert {key for key in keys if key in document} == set(keys), "nothing but what differs from the default"
    (again,) = parse(with_changes({"flows": [document]}), "test").flows
    assert again == spec


def test_a_flow_by_default() -> None:
    (spec,) = parse(with_changes({"flows": [{"id": "f1", "from": "a", "to": "c"}]}), "test").flows
    assert (spec.utility, spec.weight, spec.paths, spec.match, spec.policy) == ("log", 1.0, (), {}, "throughput")


@pytest.mark.parametrize(
    ("match", "expected"),
    [
        ({"ipv6_src": "2001:DB8:0::1"}, {"eth_type": 0x86DD, "ipv6_src": "2001:db8::1"}),
        ({"ipv4_src": "10.0.0.0/8"}, {"eth_type": 0x0800, "ipv4_src": "10.0.0.0/8"}),
        ({"eth_type": 0x86DD, "tcp_dst": 80}, {"eth_type": 0x86DD, "ip_proto": 6, "tcp_dst": 80}),
        ({"eth_type": "0x88cc"}, {"eth_type": 0x88CC}),
        ({}, {}),
    ],
)
def test_a_match_has_all_its_prerequisites(match: dict[str, Any], expected: dict[str, Any]) -> None:
    flow = {"id": "f1", "from": "a", "to": "c", "match": match}
    assert parse(with_changes({"flows": [flow]}), "test").flows[0].match == expected


# Each case: changes to BASE, the place of the error, a part of its text.
ERRORS: list[tuple[dict[str, Any], str, str]] = [
    ({"nodes": ...}, "nodes", "is missing"),
    ({"links": ...}, "links", "is missing"),
    ({"interference": ...}, "interference", "is missing"),
    ({"nodes": []}, "nodes", "expected a mapping, got a list"),
    ({"links": {}}, "links", "expected a list, got a mapping"),
    ({"link": []}, "link", "unknown key (did you mean 'links'?)"),
    ({"margin": 1}, "margin", "a share of airtime from 0 to 0.99, got 1"),
    ({"name": 3}, "name", "expected text (write it in quotes), got 3"),
    ({"nodes.a.role": ...}, "nodes.a.role", "is missing"),
    ({"nodes.a.role": "gatway"}, "nodes.a.role", "expected gateway, ap, client or switch, got 'gatway' (did you mean"),
    ({"nodes.a.role": ["ap"]}, "nodes.a.role", "got a list"),
    ({"nodes.a.rle": "ap"}, "nodes.a.rle", "unknown key (did you mean 'role'?)"),
    ({"nodes.a": None}, "nodes.a", "expected a mapping, got nothing"),
    ({"nodes.a.agent": 1}, "nodes.a.agent", "expected true or false, got 1"),
    ({"nodes.a.position": [1]}, "nodes.a.position", "expected two numbers [x, y] in metres"),
    ({"nodes.a.position": [1, "2"]}, "nodes.a.position[1]", "expected a number, got '2'"),
    ({"nodes.a.position": [1, math.inf]}, "nodes.a.position[1]", "expected a finite number, got inf"),
    ({"nodes.a.dpid": 0}, "nodes.a.dpid", "expected a whole number from 1 to 18446744073709551615, got 0"),
    ({"nodes.a.dpid": True}, "nodes.a.dpid", "got true"),
    ({"nodes.a.dpid": 7, "nodes.b.dpid": 7}, "nodes.b.dpid", "already taken by node 'a'"),
    ({"nodes.a.mac": "01:00:00:00:00:01"}, "nodes.a.mac", "expected a unicast MAC address"),
    ({"nodes.a.mac": "02:00:00:00:00"}, "nodes.a.mac", "expected a unicast MAC address"),
    ({"nodes.a.ip": "10.0.0.300"}, "nodes.a.ip", "expected an IPv4 address of a host"),
    ({"nodes.a.ip": "224.0.0.1"}, "nodes.a.ip", "expected an IPv4 address of a host"),
    ({"nodes.a.ports": {"lte": "eth0"}}, "nodes.a.ports.lte", "the node has no link of technology 'lte'"),
    ({"nodes.a.ports": {"plc": "a/b"}}, "nodes.a.ports.plc", "expected an interface name"),
    ({"nodes.a.ports": {"plc": "x" * 16}}, "nodes.a.ports.plc", "expected an interface name"),
    ({"nodes.a.ports": {"plc": "eth0", "wifi": "eth0"}}, "nodes.a.ports.wifi", "already stands for another technology"),
    ({"nodes": {1: {"role": "ap"}}}, "nodes.1", "expected a key that is text (write it in quotes), got 1"),
    ({"nodes.a\nb": {"role": "ap"}}, "nodes.'a\\nb'", "without control characters"),
    ({"nodes." + "x" * 65: {"role": "ap"}}, "nodes.'" + "x" * 37 + "'...", "text of 1 to 64 characters"),
    ({"links[0]": "ab"}, "links[0]", "expected a mapping, got 'ab'"),
    ({"links[1].id": ...}, "links[1].id", "is missing"),
    ({"links[1].id": "ab-plc"}, "links[1].id", "duplicate link id 'ab-plc'"),
    ({"links[1].id": ""}, "links[1].id", "text of 1 to 64 characters"),
    ({"links[1].id": "a\u202eb"}, "links[1].id", "without control characters"),
    ({"links[2].from": "x"}, "links[2].from", "expected the id of a node, got 'x'"),
    ({"links[2].to": "b"}, "links[2].to", "expected another node than in from"),
    ({"links[2].technology": False}, "links[2].technology", "expected text (write it in quotes), got false"),
    ({"links[2].capacity_mbps": ...}, "links[2].capacity_mbps", "is missing"),
    ({"links[2].capacity_mbps": 0}, "links[2].capacity_mbps", "expected a number of Mb/s above 0, got 0"),
    ({"links[2].capacity_mbps": -1}, "links[2].capacity_mbps", "above 0, got -1"),
    ({"links[2].capacity_mbps": math.nan}, "links[2].capacity_mbps", "got nan"),
    ({"links[2].capacity_mbps": math.inf}, "links[2].capacity_mbps", "got inf"),
    ({"links[2].capacity_mbps": 10**400}, "links[2].capacity_mbps", "got a huge number"),
    ({"links[2].capacity_mbps": True}, "links[2].capacity_mbps", "got true"),
    ({"links[2].capacity_mbps": "30"}, "links[2].capacity_mbps", "got '30'"),
    ({"links[2].capacity": 30}, "links[2].capacity", "unknown key (did you mean 'capacity_mbps'?)"),
    ({"links[2].delay_ms": -0.1}, "links[2].delay_ms", "expected a number of milliseconds, 0 or more, got -0.1"),
    ({"links[2].loss": 1}, "links[2].loss", "expected a share of frames from 0 to below 1, got 1"),
    ({"links[2].loss": -0.1}, "links[2].loss", "expected a share of frames"),
    ({"links[2].both": "yes"}, "links[2].both", "expected true or false, got 'yes'"),
    ({"links[0].both": True, "links[1].id": "ab-plc~"}, "links[0].both", "'ab-plc~', which is declared too"),
    ({"nodes.c.agent": False, "links[2].technology": "plc", "links[1].to": "c"}, "nodes.c.agent", "got wifi, plc"),
    ({"technologies": {"lte": {}}}, "technologies.lte", "no link is of this technology"),
    ({"technologies": {"wifi": {"shared": 0}}}, "technologies.wifi.shared", "expected true or false, got 0"),
    ({"interference": {}}, "interference", "expected exactly one of rule, conflicts or domains, got none"),
    ({"interference.domains": []}, "interference", "got rule and domains"),
    (
        {"interference.rule": "ranges"},
        "interference.rule",
        "expected technology, range or hearing, got 'ranges' (did you mean",
    ),
    ({"interference.ranges_m": {}}, "interference.ranges_m", "expected only with rule: range"),
    ({"interference.rule": "range"}, "interference.ranges_m", "is missing"),
    ({"interference": {"rule": "range", "ranges_m": {"plc": 1}}}, "interference.ranges_m.wifi", "is missing"),
    ({"interference": {"rule": "range", "ranges_m": {"plc": 0, "wifi": 1}}}, "interference.ranges_m.plc", "above 0"),
    ({"interference": {"rule": "range", "ranges_m": {"plc": 1, "wifi": 1}}}, "nodes.a.position", "is missing"),
    ({"interference": {"conflicts": {"ab": ["ab-plc"]}}}, "interference.conflicts.ab", "no link has this id"),
    (
        {"interference": {"conflicts": {"ab-plc": ["ab"]}}},
        "interference.conflicts.ab-plc[0]",
        "expected the id of a link",
    ),
    ({"interference": {"conflicts": {"ab-plc": "ab-wifi"}}}, "interference.conflicts.ab-plc", "expected a list"),
    ({"interference": {"domains": [["ab-plc"], ["x"]]}}, "interference.domains[1][0]", "expected the id of a link"),
    ({"flows": {}}, "flows", "expected a list"),
]

FLOW_ERRORS: list[tuple[dict[str, Any], str, str]] = [
    ({"id": 5}, ".id", "expected text"),
    ({"from": "z"}, ".from", "expected the id of a node, got 'z'"),
    ({"to": "a"}, ".to", "expected another node than in from"),
    ({"weight": 0}, ".weight", "expected a weight above 0, got 0"),
    ({"weight": math.nan}, ".weight", "got nan"),
    ({"utility": "linear"}, ".utility", "expected log or {alpha: x}, got 'linear'"),
    ({"utility": {"alpha": -1}}, ".utility.alpha", "expected a number from 0 to 100, got -1"),
    ({"utility": {}}, ".utility.alpha", "is missing"),
    ({"policy": "ncast"}, ".policy", "ncast is reserved for later"),
    ({"n_cons": 20}, ".n_cons", "expected only with policy private, got it with throughput"),
    ({"policy": "latency", "padding": True}, ".padding", "expected only with policy private, got it with latency"),
    ({"policy": "private", "n_cons": 0.5}, ".n_cons", "expected a number from 1 to 1e+06, got 0.5"),
    ({"policy": "private", "cost_share": 0}, ".cost_share", "expected a share above 0 and at most 0.5, got 0"),
    ({"policy": "private", "cost_share": 0.6}, ".cost_share", "expected a share above 0 and at most 0.5, got 0.6"),
    ({"policy": "private", "n_chp": "many"}, ".n_chp", "expected a number, got 'many'"),
    ({"policy": "private", "padding": 1}, ".padding", "expected true or false, or a mapping, got 1"),
    ({"policy": "private", "padding": {"burst": 3}}, ".padding.burst", "unknown key"),
    ({"policy": "private", "padding": {"gap_ms": 0}}, ".padding.gap_ms", "expected a number from 0.1 to 100000"),
    ({"policy": "fast"}, ".policy", "auto, single, private or latency, got 'fast'"),
    ({"policy": []}, ".policy", "auto, single, private or latency, got a list"),
    (
        {"paths": [["ab-plc", "bc-wify"]]},
        ".paths[0][1]",
        "expected the id of a link, got 'bc-wify' (did you mean 'bc-wifi'?)",
    ),
    ({"paths": [[]]}, ".paths[0]", "expected at least one link"),
    ({"paths": [["ab-plc"]]}, ".paths[0]", "expected a path to node 'c', but it ends at 'b'"),
    ({"paths": [["bc-wifi"]]}, ".paths[0][0]", "expected a link from node 'a', got one from 'b'"),
    ({"paths": [["ab-plc", "ab-wifi"]]}, ".paths[0][1]", "expected a link from node 'b', got one from 'a'"),
    ({"paths": [["ab-plc", "bc-wifi"]] * 2}, ".paths[1]", "declared twice"),
    ({"paths": [["ab-plc", "ba", "ab-wifi", "bc-wifi"]]}, ".paths[0][1]", "it comes to node 'a' twice"),
    ({"match": {"ipv4_dest": "10.0.0.1"}}, ".match.ipv4_dest", "unknown key (did you mean 'ipv4_dst'?)"),
    ({"match": {"ipv4_dst": "10.0.0.1/8"}}, ".match.ipv4_dst", "expected an IPv4 address or network"),
    ({"match": {"ipv4_dst": "::1"}}, ".match.ipv4_dst", "expected an IPv4 address or network"),
    ({"match": {"ipv4_dst": 1}}, ".match.ipv4_dst", "expected an IPv4 address or network"),
    ({"match": {"udp_dst": 65536}}, ".match.udp_dst", "expected a whole number from 0 to 65535"),
    ({"match": {"udp_dst": 5}}, ".match", "need eth_type 0x0800 or 0x86dd"),
    ({"match": {"eth_type": 0x0800, "ip_proto": 6, "udp_dst": 5}}, ".match.udp_dst", "expected ip_proto to be 17"),
    ({"match": {"ipv4_src": "10.0.0.1", "ipv6_dst": "::1"}}, ".match.ipv6_dst", "expected eth_type to be 0x86dd"),
    ({"match": {"eth_type": 0x806, "ip_proto": 6}}, ".match", "need eth_type"),
]


@pytest.mark.parametrize(("changes", "place", "text"), ERRORS)
def test_an_error_names_document_place_and_what_was_expected(changes: dict[str, Any], place: str, text: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse(with_changes(changes), "office.yaml")
    assert error.value.place == place
    assert text in error.value.problem
    assert str(error.value) == f"office.yaml: {place}: {error.value.problem}"
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("changes", "place", "text"), FLOW_ERRORS)
def test_an_error_in_a_flow(changes: dict[str, Any], place: str, text: str) -> None:
    document = with_changes(
        {"flows": [{"id": "f0", "from": "a", "to": "b"}, {"id": "f1", "from": "a", "to": "c"} | changes]}
    )
    document["links"].append({"id": "ba", "from": "b", "to": "a", "technology": "plc", "capacity_mbps": 1})
    with pytest.raises(ConfigError) as error:
        parse(document, "office.yaml")
    assert error.value.place == f"flows[1]{place}"
    assert text in error.value.problem


def test_duplicate_flows_are_an_error() -> None:
    with pytest.raises(ConfigError, match=r"flows\[1\]\.id: duplicate flow id 'f1'"):
        parse(with_changes({"flows": [{"id": "f1", "from": "a", "to": "c"}] * 2}), "test")


def test_an_error_survives_the_way_between_processes() -> None:
    with pytest.raises(ConfigError) as error:
        parse(with_changes({"nodes.a.role": "x", "nodes.b.role": "y"}), "test")
    again = pickle.loads(pickle.dumps(error.value))
    assert (str(again), [str(each) for each in again.more]) == (str(error.value), [str(error.value.more[0])])


def test_all_errors_are_found_in_one_pass() -> None:
    changes = {"nodes.a.role": "x", "links[0].capacity_mbps": 0, "links[1].to": "q", "interference.rule": 1}
    with pytest.raises(ConfigError) as error:
        parse(with_changes(changes), "test")
    places = [each.place for each in (error.value, *error.value.more)]
    assert sorted(places) == ["interference.rule", "links[0].capacity_mbps", "links[1].to", "nodes.a.role"]


@pytest.mark.parametrize("document", [None, [], 3, "text", {1: 2}, {"nodes": {"a": {"role": {}}}, "links": [[]]}])
def test_any_other_document_is_an_error_not_a_crash(document: object) -> None:
    with pytest.raises(ConfigError):
        parse(document, "test")


@examples(300)
@given(data=st.data())
def test_no_value_at_any_place_crashes_the_parser(data: st.DataObject) -> None:
    document = with_changes(
        {
            "flows": [
                {"id": "f", "from": "a", "to": "c", "paths": [["ab-plc", "bc-wifi"]], "match": {"eth_type": 2048}}
            ],
            "technologies": {"wifi": {"shared": True}},
            "nodes.a": {"role": "gateway", "position": [0, 0], "ports": {"plc": "x"}, "ip": "1.2.3.4", "dpid": 9},
            "interference": {"conflicts": {"ab-plc": ["ab-wifi"]}},
        }
    )
    place = data.draw(st.sampled_from(list(walk(document))))
    target: Any = document
    for step in place[:-1]:
        target = target[step]
    target[place[-1]] = data.draw(junk)
    try:
        network = parse(document, "test")
    except ConfigError as error:
        assert all("\n" not in str(each) and len(str(each)) < 500 for each in (error, *error.more))
    else:
        assert parse(to_document(network), "again").links == network.links


scalars = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["a", "b", "wifi"])
)
junk = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(scalars, inner, max_size=3), max_leaves=6
)


def walk(value: Any, place: tuple[Any, ...] = ()) -> Any:
    if place:
        yield place
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from walk(child, (*place, key))


@examples(20)
@given(seed=st.integers(0, 2**32), form=st.sampled_from(["yaml", "json"]))
def test_the_round_trip_keeps_everything(seed: int, form: str) -> None:
    rng = random.Random(seed)
    for network in (residential(rng), enterprise(rng, width_m=100, height_m=60, panels=2), paths_study(rng, 2)):
        document = to_document(network)
        text = yaml.safe_dump(document, sort_keys=False) if form == "yaml" else json.dumps(document)
        again = load_text(text, f"net.{form}")
        assert again.nodes == network.nodes
        assert again.links == network.links
        assert (again.name, again.margin, again.unshared) == (network.name, network.margin, network.unshared)
        assert (again.interference.contention_matrix() != network.interference.contention_matrix()).nnz == 0
        assert to_document(again) == document


def test_the_round_trip_of_every_optional_part() -> None:
    flow = {"id": "f", "from": "a", "to": "c", "utility": {"alpha": 0.5}, "match": {"ipv4_dst": "10.0.0.3"}}
    document = with_changes(
        {
            "name": "all parts",
            "margin": 0.3,
            "technologies": {"wifi": {"shared": False}},
            "flows": [flow | {"paths": [["ab-plc", "bc-wifi"]], "policy": "single"}],
            "nodes.a": {
                "role": "gateway",
                "dpid": 9,
                "mac": "02:00:00:00:00:aa",
                "ip": "10.9.0.1",
                "ports": {"plc": "p0"},
            },
        }
    )
    network = parse(document, "test")
    again = parse(to_document(network), "test")
    assert (again.nodes, again.links, again.flows) == (network.nodes, network.links, network.flows)
    assert (again.name, again.margin, again.unshared) == ("all parts", 0.3, frozenset({"wifi"}))


def test_with_capacities_keeps_the_rest() -> None:
    network = parse(BASE, "test").with_capacities({"ab-wifi": 0.0})
    assert [link.capacity_mbps for link in network.links] == [10.0, 0.0, 30.0]
    assert network.interference.domain(1).tolist() == [1, 2]


DOCS = (Path(__file__).parents[2] / "docs" / "reference" / "network-file.md").read_text()


def test_every_example_of_the_documentation_is_valid() -> None:
    examples = re.findall(r"```yaml\n(.*?)```", DOCS, re.DOTALL)
    assert len(examples) == 7
    whole = yaml.safe_load(examples[0])
    for example in examples:
        part = yaml.safe_load(example)
        if "mesh" in part.get("technologies", ()):
            document = copy.deepcopy(whole)
            document["links"][0]["technology"] = "mesh"
            # What is left of WiFi is between the access point and the client.
            del document["links"][1]
        elif "technologies" in part:
            document = copy.deepcopy(whole)
            document["links"][0]["technology"], document["links"][1]["technology"] = part["technologies"]
        else:
            document = whole
        assert parse({**document, **part}, "docs").links


def test_the_errors_of_the_documentation_are_real() -> None:
    document = copy.deepcopy(BASE)
    document["nodes"]["b"]["role"] = "acces point"
    document["links"][1] = {"id": "x", "from": "b", "to": "d", "technology": "wifi", "capcity_mbps": 3}
    with pytest.raises(ConfigError) as error:
        parse(document, "office.yaml")
    (shown,) = re.findall(r"```console\n\$ hyroads check-config office.yaml\n(.*?)```", DOCS, re.DOTALL)
    assert [str(each) for each in (error.value, *error.value.more)] == shown.splitlines()


def test_mtu_of_emulated_ports_is_read_written_and_bounded() -> None:
    network = parse(with_changes({"technologies": {"wifi": {"mtu": 1500}}}), "test")
    assert network.mtu == {"wifi": 1500}
    assert parse(to_document(network), "test").mtu == {"wifi": 1500}
    for wrong in (1279, 9217, "big", True):
        with pytest.raises(ConfigError, match="1280 to 9216"):
            parse(with_changes({"technologies": {"wifi": {"mtu": wrong}}}), "test")

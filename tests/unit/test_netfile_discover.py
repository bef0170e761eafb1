"""Network files without capacities, and without links: what they mean, and who may read them."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from hyroads.controller.core.addressing import Addressing
from hyroads.controller.core.carrier_sensing_rule import AssumedCarrierSensing
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.netfile import parse, to_document

DECLARED: dict[str, Any] = {
    "nodes": {"a": {"role": "gateway"}, "b": {"role": "ap"}, "c": {"role": "client"}},
    "links": [
        {"id": "ab-plc", "from": "a", "to": "b", "technology": "plc", "both": True},
        {"id": "ab-wifi", "from": "a", "to": "b", "technology": "wifi", "capacity_mbps": 15},
        {"id": "bc-wifi", "from": "b", "to": "c", "technology": "wifi"},
    ],
    "interference": {"rule": "technology"},
}
DISCOVER: dict[str, Any] = {
    "nodes": {
        "a": {"role": "gateway", "technologies": ["plc", "wifi"]},
        "b": {"role": "ap", "technologies": ["wifi", "plc"]},
        "c": {"role": "client", "technologies": ["wifi"], "attached_to": "b"},
    },
    "links": "discover",
    "technologies": {"wifi": {}, "plc": {"shared": True}},
    "interference": {"rule": "hearing"},
    "flows": [{"id": "f1", "from": "a", "to": "c"}],
}


def test_capacities_may_be_missing_where_they_are_measured() -> None:
    network = parse(DECLARED, "x", measured=True)
    assert network.unmeasured == {"ab-plc", "ab-plc~", "bc-wifi"}
    assert [link.capacity_mbps for link in network.links] == [0, 0, 15, 0]
    assert parse(to_document(network), "x", measured=True).links == network.links
    with pytest.raises(ConfigError) as error:
        parse(DECLARED, "x")
    assert error.value.place == "links[0].capacity_mbps"


def test_every_pair_with_a_common_technology_is_a_candidate() -> None:
    network = parse(DISCOVER, "x", measured=True)
    assert network.discovered and network.unmeasured == {link.id for link in network.links}
    ends = {(link.source, link.target, link.technology) for link in network.links}
    nodes = "abc"
    wifi = {(u, v, "wifi") for u in nodes for v in nodes if u != v}
    assert ends == wifi | {("a", "b", "plc"), ("b", "a", "plc")}
    # The order of the section counts, not that of the nodes.
    assert network.technologies == ("wifi", "plc")
    assert network.technologies_of["b"] == ("wifi", "plc")
    assert all(link.capacity_mbps == 0 for link in network.links)


def test_a_discovered_network_can_be_written_and_read() -> None:
    network = parse(DISCOVER, "x", measured=True)
    again = parse(to_document(network), "y", measured=True)
    assert (again.nodes, again.links, again.flows) == (network.nodes, network.links, network.flows)
    assert Addressing.of(again) == Addressing.of(network)
    assert isinstance(again.interference, AssumedCarrierSensing)


def test_a_client_is_attached_where_the_file_says() -> None:
    addressing = Addressing.of(parse(DISCOVER, "x", measured=True))
    attachment = addressing.attachment("c")
    assert attachment is not None and (attachment.node, attachment.down) == ("b", "b-c-wifi")
    document = copy.deepcopy(DISCOVER)
    del document["nodes"]["c"]["attached_to"]
    first = Addressing.of(parse(document, "x", measured=True)).attachment("c")
    assert first is not None and first.node == "a"


def test_ids_stay_apart_whatever_the_nodes_are_called() -> None:
    names = ["a", "b-c", "a-b", "c"]
    document = {**DISCOVER, "nodes": {n: {"role": "ap", "technologies": ["wifi"]} for n in names}, "technologies": {}}
    document.pop("flows")
    network = parse(document, "x", measured=True)
    assert len({link.id for link in network.links}) == 12


def test_domains_before_anyone_listened_are_those_of_the_technology() -> None:
    network = parse(DISCOVER, "x", measured=True)
    for index, link in enumerate(network.links):
        domain = {network.links[other].technology for other in network.interference.domain(index)}
        assert domain == {link.technology}
        assert len(network.interference.domain(index)) == (6 if link.technology == "wifi" else 2)


@pytest.mark.parametrize(
    ("path", "value", "place"),
    [
        (("nodes", "a"), {"role": "gateway"}, "nodes.a.technologies"),
        (("nodes", "a", "technologies"), "wifi", "nodes.a.technologies"),
        (("nodes", "a", "technologies"), [5], "nodes.a.technologies[0]"),
        (("nodes", "b", "technologies"), ["wifi"], "nodes.a.technologies"),
        (("nodes", "c", "attached_to"), "z", "nodes.c.attached_to"),
        (("nodes", "a", "attached_to"), "b", "nodes.a.attached_to"),
        (("nodes", "b", "waypoint"), True, "nodes.b.waypoint"),
        (("nodes", "a", "waypoint"), 6656, "nodes.a.waypoint"),
        (("nodes", "a", "waypoint"), {"address": "gate.example"}, "nodes.a.waypoint.address"),
        (("nodes", "a", "waypoint"), {"address": 7}, "nodes.a.waypoint.address"),
        (("nodes", "a", "waypoint"), {"port": 0}, "nodes.a.waypoint.port"),
        (("links",), "discovery", "links"),
        (("interference",), {"rule": "hearing", "ranges_m": {"wifi": 3}}, "interference.ranges_m"),
        (("flows", 0, "paths"), [["ab-wifi"]], "flows[0].paths[0][0]"),
    ],
)
def test_errors_name_their_place(path: tuple[Any, ...], value: object, place: str) -> None:
    document = copy.deepcopy(DISCOVER)
    where: Any = document
    for key in path[:-1]:
        where = where[key]
    where[path[-1]] = value
    with pytest.raises(ConfigError) as error:
        parse(document, "x", measured=True)
    assert error.value.place == place


def test_who_needs_true_capacities_says_so_once() -> None:
    with pytest.raises(ConfigError) as error:
        parse(DISCOVER, "office.yaml")
    assert (error.value.document, error.value.place) == ("office.yaml", "links")
    assert "capacities" in error.value.problem and not error.value.more


def test_technologies_of_nodes_must_fit_declared_links() -> None:
    document = copy.deepcopy(DECLARED)
    document["nodes"]["c"]["technologies"] = ["wifi"]
    parse(document, "x", measured=True)
    document["nodes"]["c"]["technologies"] = ["wifi", "plc"]
    with pytest.raises(ConfigError) as error:
        parse(document, "x", measured=True)
    assert error.value.place == "nodes.c.technologies[1]"

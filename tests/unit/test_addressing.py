"""Addresses, names and labels derived from a network (docs/reference/openflow.md, sections 1 and 2)."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.core.addressing import FIRST_LABEL, LABEL_SPACE, Addressing, Labels, assign, hashed
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.netfile import parse
from hyroads.controller.core.network import Network
from hyroads.controller.study.networks import campus200, enterprise, residential


def network(nodes: Mapping[str, Any], links: list[tuple[str, str, str, float]]) -> Network:
    """Links are (from, to, technology, capacity), both directions."""
    entries = [
        {"id": f"{u}{v}{k}", "from": u, "to": v, "technology": k, "capacity_mbps": c, "both": True}
        for u, v, k, c in links
    ]
    return parse({"nodes": nodes, "links": entries, "interference": {"rule": "technology"}}, "test")


TRIANGLE_NODES: dict[str, Any] = {"a": {"role": "gateway"}, "b": {"role": "ap"}, "c": {"role": "client"}}
TRIANGLE_LINKS = [("a", "b", "plc", 10.0), ("a", "b", "wifi", 15.0), ("b", "c", "wifi", 30.0)]


def test_defaults_are_those_of_the_contract() -> None:
    addressing = Addressing.of(network(TRIANGLE_NODES, TRIANGLE_LINKS))
    assert addressing.dpid == {"a": 1, "b": 2}
    assert addressing.host_mac["c"] == "02:00:00:00:00:03"
    assert addressing.host_ip == {"a": "10.0.0.1", "b": "10.0.0.2", "c": "10.0.0.3"}
    assert addressing.interface_mac["a", "plc"] == "02:00:01:01:00:01"
    assert addressing.interface_mac["b", "wifi"] == "02:00:01:02:00:02"
    assert addressing.interface_mac["c", "wifi"] == addressing.host_mac["c"]
    assert addressing.interface_name["a", "wifi"] == "a-wifi"
    assert addressing.access_port == {"a": "a-host", "b": "b-host"}
    assert addressing.agent_access_port["a"] == "a-acc"
    assert addressing.agent_network_port["b"] == "b-net"
    assert [addressing.is_plain_client(node) for node in "abc"] == [False, False, True]
    assert [addressing.has_switch(node) for node in "abc"] == [True, True, False]
    assert [addressing.has_agent(node) for node in "abc"] == [True, True, False]
    assert addressing.technologies("b") == ("plc", "wifi")


def test_a_client_with_two_technologies_has_agent_and_switch() -> None:
    addressing = Addressing.of(network(TRIANGLE_NODES, [*TRIANGLE_LINKS, ("b", "c", "plc", 5.0)]))
    assert addressing.has_agent("c")
    assert addressing.has_switch("c")
    assert addressing.attachments == {}


def test_node_numbers_beyond_a_byte_carry_into_the_next() -> None:
    nodes = {f"n{i}": {"role": "switch"} for i in range(1, 301)}
    addressing = Addressing.of(network(nodes, []))
    assert addressing.host_ip["n300"] == "10.0.1.44"
    assert addressing.host_mac["n300"] == "02:00:00:00:01:2c"
    assert not addressing.has_agent("n300")


def test_overrides_win() -> None:
    given_node = {
        "role": "gateway",
        "dpid": "0xff",
        "mac": "0A:00:00:00:00:09",
        "ip": "192.0.2.1",
        "ports": {"plc": "eth1"},
    }
    addressing = Addressing.of(network(TRIANGLE_NODES | {"a": given_node}, TRIANGLE_LINKS))
    assert addressing.dpid["a"] == 255
    assert addressing.host_mac["a"] == "0a:00:00:00:00:09"
    assert addressing.host_ip["a"] == "192.0.2.1"
    assert addressing.interface_name["a", "plc"] == "eth1"
    assert addressing.interface_name["a", "wifi"] == "a-wifi"


@pytest.mark.parametrize(("key", "value"), [("dpid", 2), ("mac", "02:00:00:00:00:02"), ("ip", "10.0.0.2")])
def test_an_override_that_hits_a_default_is_an_error(key: str, value: object) -> None:
    with pytest.raises(ConfigError) as error:
        Addressing.of(network(TRIANGLE_NODES | {"a": {"role": "gateway", key: value}}, TRIANGLE_LINKS), "file.yaml")
    assert str(error.value).startswith(f"file.yaml: nodes.b.{key}: ")


def test_no_host_has_the_address_of_another_nodes_interface() -> None:
    """Its frames would be taken for those of that node's switch, or the other way round."""
    of_b = Addressing.of(network(TRIANGLE_NODES, TRIANGLE_LINKS)).interface_mac["b", "wifi"]
    with pytest.raises(ConfigError) as error:
        Addressing.of(network(TRIANGLE_NODES | {"c": {"role": "client", "mac": of_b}}, TRIANGLE_LINKS), "file.yaml")
    assert str(error.value).startswith("file.yaml: nodes.c.mac: ")
    own = Addressing.of(network(TRIANGLE_NODES | {"b": {"role": "ap", "mac": of_b}}, TRIANGLE_LINKS))
    assert own.host_mac["b"] == own.interface_mac["b", "wifi"]


def test_a_given_port_name_may_repeat_on_another_node_but_not_on_its_own() -> None:
    ports = {"ports": {"plc": "eth1"}}
    both = TRIANGLE_NODES | {"a": {"role": "gateway", **ports}, "b": {"role": "ap", **ports}}
    addressing = Addressing.of(network(both, TRIANGLE_LINKS))
    assert addressing.port_names("a") == ("eth1", "a-wifi", "a-host", "a-acc", "a-net")
    assert addressing.port_names("b")[0] == "eth1"
    # A given name that is another port's speaking name makes that one a number; the number's form can be taken too.
    taken = TRIANGLE_NODES | {"a": {"role": "gateway", "ports": {"plc": "a-host"}}}
    assert Addressing.of(network(taken, TRIANGLE_LINKS)).port_names("a") == (
        "a-host",
        "a-wifi",
        "n1h",
        "a-acc",
        "a-net",
    )
    links = [("a", "b", "plc", 10.0), ("a", "b", "a technology of a long name", 15.0)]
    clash = TRIANGLE_NODES | {"a": {"role": "gateway", "ports": {"plc": "n1t2"}}}
    with pytest.raises(ConfigError, match=r"nodes\.a\.ports: expected distinct names, got n1t2, n1t2"):
        Addressing.of(network(clash, links))


@pytest.mark.parametrize("technology", ["wifi-5GHz-channel-36", "wlan 5", "funk/1", "host", "acc"])
def test_names_that_do_not_fit_or_clash_become_numbers(technology: str) -> None:
    addressing = Addressing.of(network(TRIANGLE_NODES, [("a", "b", technology, 10.0)]))
    assert addressing.interface_name["a", technology] == "n1t1"
    assert len(set(port_names(addressing))) == len(port_names(addressing))


def test_the_default_attachment_is_the_fastest() -> None:
    nodes = {"a": {"role": "gateway"}, "b": {"role": "ap"}, "c": {"role": "client"}, "d": {"role": "client"}}
    addressing = Addressing.of(
        network(nodes, [("a", "c", "wifi", 10.0), ("b", "c", "wifi", 20.0), ("c", "d", "wifi", 99.0)])
    )
    attachment = addressing.attachment("c")
    assert attachment is not None
    assert (attachment.node, attachment.down, attachment.up) == ("b", "bcwifi", "bcwifi~")
    assert [each.node for each in addressing.attachments["c"]] == ["b", "a"]  # a client is no place to attach
    assert addressing.attachment("d") is None


def test_parallel_links_of_one_technology_have_no_addresses() -> None:
    doubled = network(TRIANGLE_NODES, TRIANGLE_LINKS)
    doubled = replace(doubled, links=(*doubled.links, replace(doubled.links[0], id="again")))
    with pytest.raises(ConfigError, match=r"links\.again: link abplc has the same ends"):
        Addressing.of(doubled)


@examples(25)
@given(seed=st.integers(0, 2**32))
def test_no_address_or_name_is_given_twice(seed: int) -> None:
    for net in (residential(random.Random(seed)), enterprise(random.Random(seed), node_count=20)):
        addressing = Addressing.of(net)
        names = port_names(addressing)
        assert len(set(names)) == len(names)
        assert all(0 < len(name) <= 15 for name in names)
        macs = {**addressing.interface_mac, **{(node, ""): mac for node, mac in addressing.host_mac.items()}}
        shared = sum(addressing.is_plain_client(node) for node, technology in addressing.interface_mac)
        assert len(set(macs.values())) == len(macs) - shared
        assert len(set(addressing.host_ip.values())) == len(net.nodes)


def test_labels_are_distinct_and_in_range() -> None:
    net = campus200(random.Random(7))
    labels = Labels.of(net, Addressing.of(net))
    values = all_labels(labels)
    assert len(values) > 25_000
    assert len(set(values)) == len(values)
    assert all(FIRST_LABEL <= label < LABEL_SPACE for label in values)
    assert labels.link.keys() == {link.id for link in net.links}


def test_labels_with_a_secret_are_not_those_that_the_network_file_tells() -> None:
    net = enterprise(random.Random(3))
    addressing = Addressing.of(net)
    told, secret, other = (all_labels(Labels.of(net, addressing, key)) for key in (b"", b"\1" * 32, b"\2" * 32))
    assert len(set(secret)) == len(secret) == len(told)
    assert secret == all_labels(Labels.of(net, addressing, b"\1" * 32))
    # By chance one in 2^20 / n is met.
    for mine, guessed in ((secret, told), (secret, other)):
        assert sum(a == b for a, b in zip(mine, guessed, strict=True)) == 0
        assert len(set(mine) & set(guessed)) <= 3
    # What there was before there were secrets stays: labels of a golden name.
    assert hashed(("link", "ab-plc")) == 41_205
    assert "\\x01" not in repr(Labels.of(net, addressing, b"\1" * 32))


def test_plain_clients_have_no_labels() -> None:
    net = network(TRIANGLE_NODES, TRIANGLE_LINKS)
    labels = Labels.of(net, Addressing.of(net))
    assert "bcwifi" in labels.link
    assert "bcwifi~" not in labels.link  # leaves the client, which has no switch to pop a label
    assert labels.agent.keys() == {"a", "b"}
    assert labels.node.keys() == {"a", "b", "c"}
    assert labels.hello.keys() == {("a", "plc"), ("a", "wifi"), ("b", "plc"), ("b", "wifi")}


@examples(25)
@given(seed=st.integers(0, 2**32))
def test_labels_do_not_depend_on_the_order_of_declaration(seed: int) -> None:
    rng = random.Random(seed)
    net = enterprise(rng)
    links = list(net.links)
    nodes = list(net.nodes.items())
    rng.shuffle(links)
    rng.shuffle(nodes)
    shuffled = replace(net, links=tuple(links), nodes=dict(nodes))
    assert Labels.of(shuffled, Addressing.of(shuffled)) == Labels.of(net, Addressing.of(net))


def test_a_collision_is_resolved_in_sorted_order() -> None:
    first, second = colliding_pair()
    assert hashed(first) == hashed(second)
    for names in ([first, second], [second, first]):
        assert assign(names) == {first: hashed(first), second: hashed(second, 1)}


@given(st.sets(st.tuples(st.text(max_size=3), st.text(max_size=3)), max_size=50), st.tuples(st.text(), st.text()))
def test_adding_a_name_leaves_labels_alone_unless_they_collide(
    names: set[tuple[str, str]], new: tuple[str, str]
) -> None:
    before = assign(names)
    after = assign({*names, new})
    moved = [name for name in names if before[name] != after[name]]
    assert all(hashed(name) == hashed(new) for name in moved)


def test_too_many_labels_are_refused() -> None:
    with pytest.raises(ConfigError, match="at most 524288 labels"):
        assign((str(i),) for i in range(LABEL_SPACE // 2 + 1))


def port_names(addressing: Addressing) -> list[str]:
    return [
        *addressing.interface_name.values(),
        *addressing.access_port.values(),
        *addressing.agent_access_port.values(),
        *addressing.agent_network_port.values(),
    ]


def all_labels(labels: Labels) -> list[int]:
    return [
        labels.flood,
        *labels.link.values(),
        *labels.agent.values(),
        *labels.node.values(),
        *labels.hello.values(),
    ]


def colliding_pair() -> tuple[tuple[str, str], tuple[str, str]]:
    """Two link names of one label, found by search (some thousands of names suffice)."""
    seen: dict[int, tuple[str, str]] = {}
    for i in range(100_000):
        name = ("link", f"l{i:06}")
        if hashed(name) in seen:
            return seen[hashed(name)], name
        seen[hashed(name)] = name
    raise AssertionError("a hash of 20 bits must collide")

"""Addresses of interfaces: what boxes report wins over what the network file names, and that over derived ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.core.addressing import Addressing
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.interface_addresses import (
    HOST,
    AddressOrigin,
    Interface,
    InterfaceAddresses,
    addresses_from,
    saved_addresses,
)
from hyroads.controller.core.netfile import parse, to_document
from hyroads.controller.model.state import TopologyContext, addresses_reported, initial, restored

FACTORY = "b8:27:eb:41:c0:a1"
NAMED = "00:0b:3b:00:00:01"
NODES: dict[str, Any] = {
    "gw": {"role": "gateway", "addresses": {"plc": NAMED.upper()}, "ports": {"wifi": "wlan0"}},
    "up": {"role": "ap"},
    "attic": {"role": "ap"},
    "phone": {"role": "client"},
}
PAIRS = [("gw", "up", "plc"), ("gw", "up", "wifi"), ("up", "attic", "wifi"), ("attic", "phone", "wifi")]


def document(nodes: dict[str, Any] | None = None) -> dict[str, Any]:
    links = [
        {"id": f"{a}-{b}-{k}", "from": a, "to": b, "technology": k, "capacity_mbps": 10, "both": True}
        for a, b, k in PAIRS
    ]
    return {"nodes": {**NODES, **(nodes or {})}, "links": links, "interference": {"rule": "technology"}}


CONTEXT = TopologyContext.of(parse(document(), "home"), "home")
INTERFACES = sorted(CONTEXT.addressing.interface_mac)
OWN = [interface for interface in INTERFACES if interface[0] != "phone"]
MACS = st.integers(0, 2**40 - 1).map(lambda number: "b8:" + number.to_bytes(5, "big").hex(":"))


def with_reports(reports: dict[Interface, str]) -> InterfaceAddresses:
    return CONTEXT.addresses.with_reported(reports)


@examples(100)
@given(reports=st.dictionaries(st.sampled_from(OWN), MACS, max_size=len(OWN)))
def test_reports_win_over_the_file_and_the_file_over_derived_addresses(reports: dict[Interface, str]) -> None:
    found = with_reports(reports)
    for interface in INTERFACES:
        node, technology = interface
        if interface in reports:
            expected, origin = reports[interface], AddressOrigin.REPORTED
        elif interface == ("gw", "plc"):
            expected, origin = NAMED, AddressOrigin.NAMED
        else:
            expected, origin = CONTEXT.addressing.interface_mac[interface], AddressOrigin.DERIVED
        assert (found.mac[interface], found.origin(interface)) == (expected, origin)
        owners = {other for (other, k), mac in found.mac.items() if (k, mac) == (technology, expected)}
        assert found.node_of(technology, expected) == (node if owners == {node} else None)
    assert addresses_from(saved_addresses(reports), INTERFACES) == (reports, [])


@examples(100)
@given(
    before=st.dictionaries(st.sampled_from(OWN), MACS, max_size=len(OWN)),
    changed=st.sampled_from(OWN),
    mac=MACS,
)
def test_a_change_concerns_only_the_nodes_near_it(before: dict[Interface, str], changed: Interface, mac: str) -> None:
    old, new = with_reports(before), with_reports({**before, changed: mac})
    near = new.nodes_near([changed])
    neighbours = {link.source for link in CONTEXT.network.links if (link.target, link.technology) == changed}
    assert near == {changed[0], *neighbours}
    for node in CONTEXT.network.nodes:
        translation = new.translation(node)
        assert node in near or translation == old.translation(node)
        if node in near:
            name = CONTEXT.addressing.interface_mac[changed]
            assert translation.get(name, name) == mac


def test_an_address_of_two_boxes_is_one_fault_and_names_neither() -> None:
    found = with_reports({("gw", "wifi"): FACTORY, ("attic", "wifi"): FACTORY, ("up", "wifi"): "b8:27:eb:00:00:02"})
    (fault,) = found.shared
    assert str(fault) == f"{FACTORY} is the address of attic/wifi and gw/wifi"
    assert fault.document() == {
        "mac": FACTORY,
        "holders": [{"node": "attic", "technology": "wifi"}, {"node": "gw", "technology": "wifi"}],
    }
    assert found.node_of("wifi", FACTORY) is None


def test_interfaces_of_one_box_may_share_an_address() -> None:
    """The ports of many routers do."""
    found = with_reports({("up", "wifi"): FACTORY, ("up", "plc"): FACTORY})
    assert found.shared == ()
    assert found.node_of("wifi", FACTORY) == found.node_of("plc", FACTORY) == "up"


def test_an_interface_with_the_address_of_another_nodes_host_is_a_fault() -> None:
    host = CONTEXT.addressing.host_mac["gw"]
    assert [each.holders for each in with_reports({("up", "wifi"): host}).shared] == [(("gw", HOST), ("up", "wifi"))]
    assert with_reports({("gw", "wifi"): host}).shared == ()


def test_an_unknown_address_is_guessed_by_what_is_alike_or_silent() -> None:
    found = with_reports({("up", "wifi"): FACTORY, ("up", "plc"): "b8:27:eb:41:c0:a0"})
    at_gateway = ("gw", "wifi")
    assert found.guess(at_gateway, "b8:27:eb:41:c0:a7", ["up"]) == ("up", "wifi")
    # Locally administered addresses of one box differ from its factory address in one bit of the first octet.
    assert found.guess(at_gateway, "ba:27:eb:41:c0:a1", ["up"]) == ("up", "wifi")
    assert found.guess(at_gateway, "00:11:22:33:44:55", ["up"]) is None
    # The only far end that is not heard, and that has reported no address of its own.
    assert found.guess(("attic", "wifi"), "00:11:22:33:44:55", ["phone"]) is None
    nothing = CONTEXT.addresses
    assert nothing.guess(("attic", "wifi"), "00:11:22:33:44:55", ["phone"]) == ("up", "wifi")
    assert nothing.guess(("attic", "wifi"), "00:11:22:33:44:55", []) is None


def test_boxes_report_by_names_of_ports() -> None:
    state = initial(CONTEXT)
    once = addresses_reported(state, CONTEXT, "gw", {"wlan0": FACTORY.upper(), "gw-host": NAMED, "elsewhere": NAMED})
    assert once.reported == {("gw", "wifi"): FACTORY}
    assert addresses_reported(once, CONTEXT, "gw", {"wlan0": FACTORY}) is once
    # What no interface can have is no report, and a port that is missing keeps its address.
    for wrong in ("00:00:00:00:00:00", "01:00:5e:00:00:01", "ff:ff:ff:ff:ff:ff", "", "b8:27"):
        assert addresses_reported(once, CONTEXT, "gw", {"wlan0": wrong}) is once
    assert addresses_reported(once, CONTEXT, "gw", {}) is once


def test_own_reports_win_over_saved_ones() -> None:
    state = addresses_reported(initial(CONTEXT), CONTEXT, "gw", {"wlan0": FACTORY})
    saved = {("gw", "wifi"): NAMED, ("up", "wifi"): "b8:27:eb:00:00:02"}
    found = restored(state, [], {}, {}, saved).reported
    assert found == {("gw", "wifi"): FACTORY, ("up", "wifi"): "b8:27:eb:00:00:02"}


@pytest.mark.parametrize(
    "entry",
    [{}, None, {"node": "gw", "technology": "wifi", "mac": "x"}, {"node": "x", "technology": "wifi", "mac": NAMED}],
)
def test_saved_addresses_that_make_no_sense_are_left_out(entry: object) -> None:
    good = {"node": "up", "technology": "wifi", "mac": FACTORY}
    found, problems = addresses_from([entry, good], INTERFACES)
    assert found == {("up", "wifi"): FACTORY}
    assert [problem.place for problem in problems] == ["services.addresses[0]"]


def test_the_file_names_addresses_and_comes_back() -> None:
    network = parse(document(), "home")
    assert network.nodes["gw"].addresses == {"plc": NAMED}
    assert parse(to_document(network), "home").nodes["gw"].addresses == {"plc": NAMED}
    bare = replace(network.nodes["gw"], addresses={})
    derived = Addressing.of(replace(network, nodes={**network.nodes, "gw": bare}))
    assert derived.interface_mac["gw", "plc"] == "02:00:01:01:00:01"


@pytest.mark.parametrize(
    ("nodes", "place", "problem"),
    [
        ({"up": {"role": "ap", "addresses": {"plc": NAMED}}}, "nodes.up.addresses.plc", "of node gw on plc too"),
        ({"up": {"role": "ap", "addresses": {"wifi": "02:00:01:01:00:02"}}}, "nodes.up.addresses.wifi", "on plc too"),
        ({"up": {"role": "ap", "addresses": {"coax": FACTORY}}}, "nodes.up.addresses.coax", "no link of technology"),
        ({"up": {"role": "ap", "addresses": {"plc": "ff:ff:ff:ff:ff:ff"}}}, "nodes.up.addresses.plc", "unicast MAC"),
        ({"phone": {"role": "client", "addresses": {"wifi": FACTORY}}}, "nodes.phone.addresses", "without agent"),
    ],
)  # fmt: skip
def test_wrong_addresses_in_the_file_are_named(nodes: dict[str, Any], place: str, problem: str) -> None:
    with pytest.raises(ConfigError) as error:
        Addressing.of(parse(document(nodes), "home"), "home")
    assert str(error.value).startswith(f"home: {place}: ")
    assert problem in str(error.value)

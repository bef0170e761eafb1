"""Other people's devices by IEEE 1905.1: what access points report of them, and what REST shows."""

from __future__ import annotations

import json
from copy import deepcopy

import pytest

from hyroads.controller.agents.al_devices import parse_al_devices
from hyroads.controller.agents.protocol import ProtocolError
from hyroads.controller.control.foreign_devices import ForeignDevices, join_graph
from hyroads.rest.measurement_schemas import DeviceSchema
from hyroads.rest.network import LinkSchema, NodeSchema

OWN_A, OWN_B, FOREIGN = "42:00:00:00:00:0a", "42:00:00:00:00:0b", "42:00:00:00:00:99"
NAMES = {("a", "plc"): "eth1", ("a", "wifi"): "wlan0", ("b", "plc"): "eth1"}
MAC, PEER = "00:00:00:00:00:98", "00:00:00:00:00:01"


def device(al: str = FOREIGN, capacity_mbps: float = 90) -> dict[str, object]:
    link = {"mac": MAC, "to_al": OWN_A, "to_mac": PEER, "media_type": 0x0201, "capacity_mbps": capacity_mbps,
            "busy": 0.6}  # fmt: skip
    return {"al": al, "heard": [{"interface": "eth1", "mac": MAC}], "links": [link]}


def message(al: str, *devices: dict[str, object]) -> dict[str, object]:
    return {"type": "devices", "al": al, "devices": list(devices)}


def test_foreign_device_is_shown_with_the_access_points_that_hear_it():
    found = ForeignDevices(NAMES)
    found.report("a", parse_al_devices(message(OWN_A, device(), device(OWN_B))))
    found.report("b", parse_al_devices(message(OWN_B, device(capacity_mbps=80), device(OWN_A))))
    (shown,) = found.document()
    assert shown == {
        "al": FOREIGN,
        "heard_by": [{"node": node, "interface": "eth1", "mac": MAC} for node in ("a", "b")],
        "links": [{"mac": MAC, "to_al": OWN_A, "to_mac": PEER, "medium": "1901 FFT", "capacity_mbps": 90.0,
                   "busy": 0.6}],
    }  # fmt: skip
    assert DeviceSchema().validate(shown) == {}


def test_device_goes_with_the_last_access_point_that_hears_it():
    found = ForeignDevices(NAMES)
    for node, al in (("a", OWN_A), ("b", OWN_B)):
        found.report(node, parse_al_devices(message(al, device())))
    found.down("a")
    assert [entry["node"] for entry in found.document()[0]["heard_by"]] == ["b"]
    found.report("b", parse_al_devices(message(OWN_B)))
    assert found.document() == []


def test_foreign_nodes_and_links_are_in_the_topology():
    found = ForeignDevices(NAMES)
    further = {**device("42:00:00:00:00:9a"), "heard": [{"interface": "wlan0", "mac": PEER}]}
    further["links"] = [{**further["links"][0], "mac": PEER, "to_al": to} for to in (FOREIGN, "42:00:00:00:00:77")]
    found.report("a", parse_al_devices(message(OWN_A, device(), further, device(OWN_B))))
    found.report("b", parse_al_devices(message(OWN_B, device())))
    nodes, links = found.topology()
    assert [node["id"] for node in nodes] == [FOREIGN, "42:00:00:00:00:9a"]
    assert all(node["role"] == "foreign" and node["switch"] is None for node in nodes)
    # One device says something of a third one that no access point hears: that is left out.
    assert [(link["from"], link["to"], link["technology"]) for link in links] == [
        (FOREIGN, "a", "plc"), ("42:00:00:00:00:9a", FOREIGN, "wifi"),
    ]  # fmt: skip
    assert (links[0]["capacity_mbps"], links[0]["busy_percent"]) == (90.0, pytest.approx(60.0))
    for node, link in zip(nodes, links, strict=True):
        assert NodeSchema().validate(node) == LinkSchema().validate(link) == {}


def test_foreign_nodes_and_links_are_in_the_netjson_graph():
    found = ForeignDevices(NAMES)
    dead = {**device("42:00:00:00:00:9a")}
    dead["links"] = [{**dead["links"][0], "capacity_mbps": 0.0}]
    found.report("a", parse_al_devices(message(OWN_A, device(), dead)))
    graph = {"nodes": [{"id": "a"}], "links": []}
    join_graph(graph, *found.topology())
    assert [node["id"] for node in graph["nodes"]] == ["a", FOREIGN, "42:00:00:00:00:9a"]
    assert graph["nodes"][1]["properties"] == {"role": "foreign"}
    (link,) = graph["links"]
    assert (link["source"], link["target"], link["cost_text"]) == (FOREIGN, "a", "90 Mb/s plc")
    assert link["cost"] == pytest.approx(1 / 90)


def test_busy_time_is_of_the_medium_on_which_a_device_is_heard():
    found = ForeignDevices(NAMES)
    idle = {**device("42:00:00:00:00:9a"), "links": [{**device()["links"][0], "busy": 0.1}]}
    found.report("a", parse_al_devices(message(OWN_A, device(), idle)))
    assert found.busy() == {("a", "plc"): 0.6}
    # Links of other interfaces of the device, and interfaces that the network does not have, say nothing.
    elsewhere = {**device(), "heard": [{"interface": "wlan0", "mac": PEER}, {"interface": "eth7", "mac": MAC}]}
    found.report("a", parse_al_devices(message(OWN_A, elsewhere)))
    assert found.busy() == {}
    found.report("a", parse_al_devices(message(OWN_A, device())))
    found.down("a")
    assert found.busy() == {}


CHANGES = [
    ((), "al", "42:00"),
    ((), "devices", {}),
    ((), "devices", [1]),
    ((), "devices", [device()] * 65),
    (("devices", 0), "al", OWN_A.upper()),
    (("devices", 0), "heard", [{"interface": "", "mac": MAC}]),
    (("devices", 0), "links", None),
    (("devices", 0, "links", 0), "capacity_mbps", -1),
    (("devices", 0, "links", 0), "capacity_mbps", True),
    (("devices", 0, "links", 0), "busy", json.loads("NaN")),
    (("devices", 0, "links", 0), "busy", 1.5),
    (("devices", 0, "links", 0), "media_type", 1.0),
    (("devices", 0, "links", 0), "to_mac", None),
]


@pytest.mark.parametrize(("place", "key", "value"), CHANGES)
def test_bad_message_is_refused_with_the_name_of_what_is_wrong(place, key, value):
    bad = at = deepcopy(message(OWN_A, device()))
    for step in place:
        at = at[step]
    at[key] = value
    with pytest.raises(ProtocolError, match=r"devices: \w+ is not"):
        parse_al_devices(bad)

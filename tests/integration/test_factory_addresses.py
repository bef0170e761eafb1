"""Three boxes whose interfaces keep the addresses of their factory, on real Open vSwitch and Ethernet segments."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator

import pytest

if os.geteuid() != 0 or shutil.which("ovs-vswitchd") is None:
    pytest.skip("needs root and Open vSwitch", allow_module_level=True)

from boxes import MEDIA, Boxes

pytestmark = pytest.mark.root
REPLACED = "b8:27:eb:41:c0:a1"
INTERFACES = [(box, technology) for technology, members in MEDIA.items() for box in members]


@pytest.fixture(scope="module")
def boxes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Boxes]:
    with Boxes(tmp_path_factory.mktemp("boxes"), {"plc": 1600, "wifi": 1600}) as boxes:
        yield boxes


def address(boxes: Boxes, port: str) -> str:
    (link,) = json.loads(boxes.rig.inside("ip", "-json", "link", "show", "dev", port))
    return str(link["address"])


def on_medium(boxes: Boxes, technology: str) -> set[str]:
    """Source addresses that the bridge of a segment has learned from frames."""
    entries = json.loads(boxes.rig.inside("bridge", "-json", "fdb", "show", "br", f"sw-{technology}"))
    return {entry["mac"] for entry in entries if "permanent" not in json.dumps(entry)}


def flow_passes(boxes: Boxes) -> bool:
    done = boxes.at("gw", "ping", "-c", "3", "-i", "0.05", "-W", "1", "10.0.0.3")
    return " 0% packet loss" in done.stdout


def multipath(boxes: Boxes) -> None:
    flow = '{"id":"web","from":"gw","to":"attic"}'
    boxes.rest("/flows", "-X", "POST", "-H", "Content-Type: application/json", "-d", flow)
    boxes.until(lambda: (f := boxes.rest("/flows/web")).get("state") == "multipath" and not f["pending"])


def rule_changes(boxes: Boxes) -> dict[str, int]:
    return {switch["node"]: switch["flow_mods"] for switch in boxes.health()["switches"]}


def test_a_flow_passes_and_all_frames_on_the_media_have_factory_addresses(boxes: Boxes) -> None:
    multipath(boxes)
    boxes.until(lambda: flow_passes(boxes))
    own = {
        technology: {address(boxes, f"{box}-{technology}") for box in members} for technology, members in MEDIA.items()
    }
    assert not any(mac.startswith("02:00:01") for macs in own.values() for mac in macs)
    for technology, macs in own.items():
        assert on_medium(boxes, technology) == macs
    shown = {
        (node["node"], interface["technology"]): (interface["mac"], interface["mac_from"])
        for node in boxes.rest("/measurements")["radios"]
        for interface in node["interfaces"]
    }
    assert shown == {(box, k): (address(boxes, f"{box}-{k}"), "reported") for box, k in INTERFACES}


def test_a_replaced_interface_is_followed_where_it_is_a_neighbour_and_nowhere_else(boxes: Boxes) -> None:
    before = rule_changes(boxes)
    boxes.rig.inside("ip", "link", "set", "attic-wifi", "address", REPLACED)
    boxes.until(lambda: boxes.health().get("ok") and flow_passes(boxes), 10.0)
    boxes.until(lambda: REPLACED in on_medium(boxes, "wifi"), 5.0)
    after = rule_changes(boxes)
    assert after["gw"] == before["gw"], "it has no link to that interface"
    assert after["up"] > before["up"] and after["attic"] > before["attic"]


def test_two_boxes_with_one_address_are_a_fault_until_one_gets_another(boxes: Boxes) -> None:
    boxes.rig.inside("ip", "link", "set", "gw-plc", "address", REPLACED)
    fault = boxes.until(lambda: boxes.health().get("shared_addresses"), 10.0)
    holders = [{"node": "attic", "technology": "wifi"}, {"node": "gw", "technology": "plc"}]
    assert fault == [{"mac": REPLACED, "holders": holders}]
    assert not boxes.health()["ok"]
    boxes.rig.inside("ip", "link", "set", "gw-plc", "address", "b8:27:eb:41:c0:a2")
    boxes.until(lambda: boxes.health().get("ok") and flow_passes(boxes), 10.0)

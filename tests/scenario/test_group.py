"""A group of flows on real packets: a client with two radios at two access points, whose flows the network routes
apart; one of them loses its path, and the other nothing.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from network_names import network_name
from scene_process import make, see

from hyroads.mininet.emulation import Emulation
from hyroads.mininet.probe import StreamReport
from hyroads.mininet.traffic import Traffic
from hyroads.mininet.udp_load import UdpLoad

MBPS = 10.0
INTERVAL_S, PACKET_BYTES, SECONDS = 0.002, 200, 3.0
# Both radios of the client are hosts of their own here; the same two media lead to both of its access points.
NETWORK = {
    "nodes": {
        "s": {"role": "gateway"}, "a1": {"role": "ap"}, "a2": {"role": "ap"},
        "c1": {"role": "client"}, "c2": {"role": "client"},
    },
    "links": [
        {"id": f"{end}-{technology}", "from": "s", "to": end, "technology": technology, "capacity_mbps": MBPS,
         "both": True}
        for end in ("a1", "a2") for technology in ("wifi", "plc")
    ] + [
        {"id": f"radio{n}", "from": f"a{n}", "to": f"c{n}", "technology": f"wifi{n}", "capacity_mbps": MBPS,
         "both": True}
        for n in (1, 2)
    ],
    "interference": {"rule": "technology"},
}  # fmt: skip
FLOWS = {"f1": "c1", "f2": "c2"}
MATCH = {"eth_type": 0x0800, "ip_proto": 17}
SETTLE_S, MEASURE_S = 1.0, 1.5
TRIES = 2


def declare(emulation: Emulation, **more: Any) -> dict[str, list[str]]:
    """Both flows anew; the media that each uses between gateway and access point."""
    rest = emulation.rest
    for flow in rest.flows():
        rest.remove_flow(flow["id"])
    for flow, client in FLOWS.items():
        rest.declare_flow(flow, "s", client, match=MATCH, **more)
    return media(emulation)


def media(emulation: Emulation) -> dict[str, list[str]]:
    """The links that each flow uses between gateway and access point."""
    return {
        flow["id"]: sorted({path["links"][0] for path in flow["multipath"]})
        for flow in emulation.rest.flows()
    }  # fmt: skip


def carried_mbps(emulation: Emulation) -> float:
    """What both radios bring together."""

    def bytes_now() -> int:
        with emulation.shared.client() as client:
            links = client.stats().links
            return sum(int(links[radio].bytes) for radio in ("radio1", "radio2"))

    time.sleep(SETTLE_S)
    before, began_s = bytes_now(), time.monotonic()
    time.sleep(MEASURE_S)
    return (bytes_now() - before) * 8e-6 / (time.monotonic() - began_s)


def rates(emulation: Emulation) -> dict[str, Any]:
    """What the flows carry under more load than they can, without a group and as one."""
    found: dict[str, Any] = {}
    with UdpLoad(emulation) as load:
        for flow, client in FLOWS.items():
            load.open(flow, "s", client)
            load.set_rate(flow, 1.4 * MBPS)
        for name, more in (("alone", {}), ("group", {"group": "g"})):
            found[f"{name}_media"] = declare(emulation, **more)
            found[f"{name}_mbps"] = carried_mbps(emulation)
    return found


def cut(emulation: Emulation) -> dict[str, Any]:
    """The only path of f1 dies under two streams."""
    moments: list[float] = []
    dead = media(emulation)["f1"][0]
    both = [link.id for link in emulation.network.links if link.id.startswith(dead)]

    def during() -> None:
        time.sleep(0.7)
        for link in both:
            emulation.shared.set_link(link, up=False)
        moments.append(time.monotonic())

    reports: list[StreamReport] = []

    def second() -> None:
        reports.append(Traffic(emulation, "s", "c2", lambda: None).stream(SECONDS, INTERVAL_S, PACKET_BYTES, during))

    first = Traffic(emulation, "s", "c1", lambda: None).stream(SECONDS + 3.0, INTERVAL_S, PACKET_BYTES, second)
    (other,) = reports
    return {
        "dead": dead,
        "back_s": first.last_loss_after_s(moments[0]),
        "first_lost": len(first.lost),
        "other_lost": len(other.lost),
        "other_gap_s": other.longest_gap_s(other.start_s + 0.1, other.start_s + SECONDS - 0.1),
        "after_media": media(emulation),
    }


def body(emulation: Emulation) -> dict[str, Any]:
    """Rates, then the cut; then the second flow goes."""
    found = {**rates(emulation), **cut(emulation)}
    emulation.rest.remove_flow("f2")
    found["left_media"] = media(emulation)
    found["document"] = emulation.rest.flow("f1")
    found["exceptions"] = emulation.rest.health()["counters"]["exceptions"]
    return found


def scene(out: Path) -> int:
    """The whole network; for a process of its own."""
    return make(NETWORK, network_name("group"), body, out)


def holds(seen: dict[str, Any]) -> bool:
    """Whether nothing of what was measured is worse than promised."""
    is_fast = seen["group_mbps"] >= 1.8 * seen["alone_mbps"] > 0.8 * MBPS
    return is_fast and not seen["other_lost"] and 0 < seen["back_s"] < 0.3


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What was seen; again, and at last skipped, on a machine too slow to be believed."""
    out = tmp_path_factory.mktemp("group") / "seen.json"
    return see(__file__, out, holds, tries=TRIES, timeout_s=120)


def technologies(links: list[str]) -> set[str]:
    return {link.partition("-")[2] for link in links}


def test_a_group_carries_almost_twice_what_its_flows_carry_one_by_one(seen):
    alone, group = seen["alone_media"], seen["group_media"]
    assert technologies(alone["f1"]) == technologies(alone["f2"])
    assert not technologies(group["f1"]) & technologies(group["f2"])
    assert seen["group_mbps"] >= 1.8 * seen["alone_mbps"] > 0.8 * MBPS


def test_a_flow_whose_path_dies_is_back_at_once_and_the_other_loses_nothing(seen):
    assert seen["other_lost"] == 0 and seen["after_media"]["f2"] == seen["group_media"]["f2"]
    assert 0 < seen["back_s"] < 0.3
    assert seen["dead"] not in seen["after_media"]["f1"]


def test_a_flow_that_goes_leaves_the_other_where_it_is(seen):
    assert seen["left_media"] == {"f1": seen["after_media"]["f1"]}
    assert seen["document"]["group"] == "g" and seen["exceptions"] == 0

"""Plain WiFi clients obey the rules of hosts, and nobody is a router where none may be: real frames, real Open vSwitch,
the real controller.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

if os.geteuid() != 0 or shutil.which("ovs-vswitchd") is None:
    pytest.skip("needs root and Open vSwitch", allow_module_level=True)

from client_lab import ClientLab, eventually, mesh
from host_frames import advertisement, arp, dhcp_ack, router_advertisement

pytestmark = pytest.mark.root
QUIET_S = 1.0
NETWORK = mesh(3).replace(
    "links:\n",
    """  p: {role: client}
  q: {role: client}
links:
  - {id: n0-p, from: n0, to: p, technology: wifi, capacity_mbps: 50, both: true}
  - {id: n1-p, from: n1, to: p, technology: wifi, capacity_mbps: 20, both: true}
  - {id: n0-q, from: n0, to: q, technology: wifi, capacity_mbps: 50, both: true}
""",
)


@pytest.fixture(scope="module")
def lab() -> Iterator[ClientLab]:
    settings = {"access": {"quiet_s": QUIET_S, "dhcp_servers": ["n0"], "routers": ["n0"]}}
    with ClientLab(NETWORK, settings) as lab:
        yield lab


def events(lab: ClientLab, kind: str) -> list[dict[str, Any]]:
    """Those of a kind that are stored."""
    text = lab.text_of(f"/api/v1/events?follow=false&kinds={kind}")
    return [json.loads(line[5:]) for line in text.splitlines() if line.startswith("data:")]


def told(lab: ClientLab, kind: str, mac: str) -> Callable[[], bool]:
    return lambda: any(event["mac"] == mac for event in events(lab, kind))


def addresses(lab: ClientLab, client: str) -> set[str]:
    """None yet of a client that is not known yet."""
    known = lab.rest("GET", f"/clients/{client}")[1].get("attachments", [])
    return {a["ip"] for one in known for a in one["addresses"]}


def test_a_station_claims_its_own_address_and_one_that_nobody_has(lab: ClientLab) -> None:
    mac, own = lab.addressing.host_mac["p"], lab.addressing.host_ip["p"]
    lab.send("p", mac, **arp(mac, own, "10.0.1.1"))
    assert lab.came("n2", arp(mac, own, "10.0.1.1")["payload"])
    for how, ip in ((arp, "10.0.40.1"), (advertisement, "2001:db8::40")):
        # The first is looked at by the controller, and passes; the others take no detour.
        for number in range(2):
            said = how(mac, ip)
            lab.send("p", mac, **said)
            assert lab.came("n2", said["payload"]), number
        assert eventually(lambda ip=ip: ip in addresses(lab, "p"))
        field = "arp_spa=" if how is arp else "nd_target="
        assert eventually(lambda ip=ip, field=field: any(f"{field}{ip}" in rule for rule in lab.flows("n0")))


@pytest.mark.parametrize("whose", ["gateway", "station", "host"])
def test_forged_claims_of_a_station_are_dropped_and_told(lab: ClientLab, whose: str) -> None:
    thief, host = lab.addressing.host_mac["q"], "02:aa:00:00:31:01"
    if whose == "host":
        lab.send("n1", host, **arp(host, "10.0.49.1"))
        assert eventually(lambda: "10.0.49.1" in addresses(lab, host))
        lab.send("n1", host, **arp(host, "10.0.49.1"))
    ip = {"gateway": lab.addressing.host_ip["n2"], "station": lab.addressing.host_ip["p"], "host": "10.0.49.1"}[whose]
    forged = arp(thief, ip)
    for _ in range(30):
        lab.send("q", thief, **forged)
    assert not lab.came("n2", forged["payload"], 0.5)
    assert not any(forged["payload"] in frame for node in ("n0", "n1", "p") for frame in lab.received(node))
    assert eventually(lambda: any(event["ip"] == ip for event in events(lab, "client.spoof")))
    # All else that it sends passes, its own address, too.
    mine = arp(thief, lab.addressing.host_ip["q"])
    lab.send("q", thief, **mine)
    assert lab.came("n2", mine["payload"])


@pytest.mark.parametrize("at", ["q", "n1"], ids=["station", "access port"])
def test_rogue_servers_and_routers_are_dropped_and_told(lab: ClientLab, at: str) -> None:
    mac = lab.addressing.host_mac["q"] if at == "q" else "02:aa:00:00:32:01"
    for kind, said in (
        ("client.rogue_dhcp", dhcp_ack("02:aa:00:00:33:01", "10.0.50.1")),
        ("client.rogue_ra", router_advertisement(mac)),
        ("client.rogue_ra", router_advertisement(mac, behind_options=True)),
    ):
        for _ in range(10):
            lab.send(at, mac, **said)
        assert not lab.came("n2", said["payload"], 0.5), kind
        assert not any(said["payload"] in frame for node in ("n0", "p") for frame in lab.received(node))
        assert eventually(told(lab, kind, mac)), kind
    lab.send(at, mac, payload=b"neither of these " + at.encode())
    assert lab.came("n2", b"neither of these " + at.encode())


def test_a_router_is_heard_where_one_may_be(lab: ClientLab) -> None:
    mac = "02:aa:00:00:34:01"
    said = router_advertisement(mac)
    lab.send("n0", mac, **said)
    assert lab.came("n2", said["payload"])
    lab.send("n0", mac, **said)
    assert lab.came("n2", said["payload"])


def test_addresses_of_a_station_move_with_it_and_survive_a_restart(lab: ClientLab) -> None:
    mac, ip = lab.addressing.host_mac["p"], "10.0.41.1"
    lab.send("p", mac, **arp(mac, ip))
    assert eventually(lambda: ip in addresses(lab, "p"))

    def claims(node: str) -> bool:
        return any(f"arp_spa={ip}" in rule for rule in lab.flows(node))

    assert eventually(lambda: claims("n0"))
    before = {node: set(lab.flows(node)) for node in lab.addressing.dpid}
    lab.stop_controller()
    lab.start_controller()
    time.sleep(1.0)
    assert ip in addresses(lab, "p")
    bars = {node: {rule for rule in rules if "actions=drop" not in rule} for node, rules in before.items()}
    assert all(bars[node] <= set(lab.flows(node)) for node in lab.addressing.dpid)
    status, _ = lab.rest("POST", "/handovers", {"client": "p", "to": {"node": "n1", "technology": "wifi"}})
    assert status == 201
    assert eventually(lambda: claims("n1") and not claims("n0"))

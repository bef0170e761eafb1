"""Hosts at access ports, learned, moved and kept apart by the real controller on real Open vSwitch."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

if os.geteuid() != 0 or shutil.which("ovs-vswitchd") is None:
    pytest.skip("needs root and Open vSwitch", allow_module_level=True)

from client_lab import AGENTS, ClientLab, eventually, mesh
from host_frames import advertisement, arp, dhcp_ack
from hostapd_peer import Peer

from hyroads.controller.ofp.pipeline import Priority

pytestmark = pytest.mark.root
QUIET_S = 1.0
NOBODY = 9
"""A port where nobody listens."""


@pytest.fixture(scope="module")
def lab() -> Iterator[ClientLab]:
    with ClientLab(mesh(3), {"access": {"quiet_s": QUIET_S, "dhcp_servers": ["n0"]}}) as lab:
        yield lab


def rules(lab: ClientLab, mac: str) -> dict[str, list[str]]:
    """What the switches have about a host."""
    return {node: [rule for rule in lab.flows(node) if mac in rule] for node in lab.addressing.dpid}


def is_at(lab: ClientLab, mac: str, home: str) -> bool:
    """Whether the switches have exactly what a host at ``home`` needs, and nothing is left of other places."""
    counts = {node: len(found) for node, found in rules(lab, mac).items()}
    return counts == {node: 3 if node == home else 1 for node in lab.addressing.dpid}


def faults(lab: ClientLab, mac: str) -> list[dict[str, Any]]:
    return [fault for fault in lab.rest("GET", "/health")[1]["last_errors"] if mac in fault["where"]]


def test_the_first_frame_of_a_host_arrives_and_what_follows_takes_no_detour(lab):
    x, y = "02:aa:00:00:01:01", "02:aa:00:00:01:02"
    lab.send("n0", x, payload=b"hello from x")
    assert lab.came("n1", b"hello from x")
    lab.send("n1", y, x, payload=b"y to x")
    assert lab.came("n0", b"y to x")
    assert eventually(lambda: is_at(lab, x, "n0") and is_at(lab, y, "n1"))
    list(lab.received("n2"))
    lab.send("n0", x, y, payload=b"x to y")
    assert lab.came("n1", b"x to y")
    assert not lab.came("n2", b"x to y", 0.2)


def test_a_host_moves_once_it_is_silent_at_its_old_place_and_nothing_is_left_there(lab):
    x, y = "02:aa:00:00:02:01", "02:aa:00:00:02:02"
    lab.send("n0", x)
    lab.send("n1", y)
    assert eventually(lambda: is_at(lab, x, "n0") and is_at(lab, y, "n1"))
    # Counters are looked at each second; from the last frame on it takes as long again until it counts as silent.
    time.sleep(2.5 + QUIET_S)
    lab.send("n2", x, y, payload=b"from the new place")
    assert lab.came("n1", b"from the new place")
    lab.send("n1", y, x, payload=b"to the new place")
    assert lab.came("n2", b"to the new place")
    assert eventually(lambda: is_at(lab, x, "n2"))
    assert not faults(lab, x)


def test_the_address_of_a_host_that_is_active_elsewhere_is_of_no_use(lab):
    x, y = "02:aa:00:00:03:01", "02:aa:00:00:03:02"
    lab.send("n0", x)
    lab.send("n1", y)
    assert eventually(lambda: is_at(lab, x, "n0") and is_at(lab, y, "n1"))
    lab.send("n2", x, y, payload=b"I am x")
    assert not lab.came("n1", b"I am x", 0.5)
    assert eventually(lambda: faults(lab, x))
    assert [rule for rule in rules(lab, x)["n2"] if "actions=drop" in rule]
    lab.send("n1", y, x, payload=b"to the real x")
    assert lab.came("n0", b"to the real x")
    assert not any(b"to the real x" in frame for frame in lab.received("n2"))
    # The bar is lifted, and with it the last trace.
    assert eventually(lambda: is_at(lab, x, "n0"))


def test_nobody_has_the_addresses_of_the_network_itself(lab):
    own = lab.addressing.host_mac["n1"]
    lab.send("n0", own, payload=b"as n1's host")
    assert not lab.came("n2", b"as n1's host", 0.5)
    assert eventually(lambda: faults(lab, own))


def test_hosts_whose_port_goes_down_are_nowhere(lab):
    x = "02:aa:00:00:05:01"
    lab.send("n2", x)
    assert eventually(lambda: is_at(lab, x, "n2"))
    lab.inside("ip", "link", "set", "n2-host", "down")
    assert eventually(lambda: not any(rules(lab, x).values()))
    lab.inside("ip", "link", "set", "n2-host", "up")
    eventually(lambda: any("in_port=100 actions=CONTROLLER" in rule for rule in lab.flows("n2")))
    lab.send("n0", x)
    assert eventually(lambda: is_at(lab, x, "n0"))


def addresses(lab: ClientLab, mac: str) -> dict[str, bool]:
    """IP addresses of a client, and whether DHCP gave them."""
    status, client = lab.rest("GET", f"/clients/{mac}")
    return {a["ip"]: a["by_dhcp"] for a in client["attachments"][0]["addresses"]} if status == 200 else {}


@pytest.mark.parametrize("how", [arp, advertisement])
def test_an_address_that_another_host_uses_is_not_to_be_had(lab, how):
    number = 1 if how is arp else 2
    x, y = f"02:aa:00:00:08:{number:02x}", f"02:aa:00:00:09:{number:02x}"
    ip = "10.0.8.1" if how is arp else "2001:db8::8"
    first, claimed = how(x, ip), how(y, ip)
    lab.send("n0", x, **first)
    assert lab.came("n1", first["payload"])
    assert eventually(lambda: addresses(lab, x)) == {ip: False}
    lab.send("n1", y, **claimed)
    assert not lab.came("n0", claimed["payload"], 0.5)
    assert eventually(lambda: faults(lab, y))
    assert ip in faults(lab, y)[0]["what"]
    assert any("actions=drop" in rule for rule in rules(lab, y)["n1"])
    # All else that it sends passes, and the owner goes on without the controller.
    lab.send("n1", y, x, payload=b"no claim")
    assert lab.came("n0", b"no claim")
    lab.send("n0", x, **first)
    assert lab.came("n1", first["payload"])


def test_a_host_that_is_gone_leaves_its_address_to_others(lab):
    x, y, ip = "02:aa:00:00:0a:01", "02:aa:00:00:0a:02", "10.0.10.1"
    lab.send("n0", x, **arp(x, ip))
    assert eventually(lambda: addresses(lab, x)) == {ip: False}
    time.sleep(2.5 + QUIET_S)
    lab.send("n1", y, **arp(y, ip))
    assert eventually(lambda: addresses(lab, y)) == {ip: False}
    assert not addresses(lab, x)
    assert eventually(lambda: not any(ip in rule for rule in lab.flows("n0")))


def test_what_a_dhcp_server_gives_counts_and_other_servers_are_dropped(lab):
    server, x, y, ip = "02:aa:00:00:0b:01", "02:aa:00:00:0b:02", "02:aa:00:00:0b:03", "10.0.11.1"
    lab.send("n1", x)
    assert eventually(lambda: is_at(lab, x, "n1"))
    offered = dhcp_ack(x, ip)
    lab.send("n0", server, **offered)
    assert lab.came("n1", offered["payload"])
    assert eventually(lambda: addresses(lab, x)) == {ip: True}
    lab.send("n1", x, **arp(x, ip))
    assert lab.came("n2", arp(x, ip)["payload"])
    lab.send("n2", y, **arp(y, ip))
    assert not lab.came("n1", arp(y, ip)["payload"], 0.5)
    rogue = dhcp_ack(x, "10.0.11.2")
    lab.send("n2", y, **rogue)
    assert not lab.came("n1", rogue["payload"], 0.5)
    assert eventually(lambda: [fault for fault in faults(lab, y) if "DHCP" in fault["what"]])
    assert addresses(lab, x) == {ip: True}


def test_addresses_of_the_network_itself_are_not_to_be_had(lab):
    x, ip = "02:aa:00:00:0c:01", lab.addressing.host_ip["n1"]
    lab.send("n0", x, **arp(x, ip))
    assert not lab.came("n2", arp(x, ip)["payload"], 0.5)
    assert eventually(lambda: faults(lab, x))


def test_clients_over_rest(lab):
    x, y = "02:aa:00:00:07:01", "02:aa:00:00:07:02"
    lab.send("n0", x)
    lab.send("n1", y)
    assert eventually(lambda: is_at(lab, x, "n0") and is_at(lab, y, "n1"))
    status, client = lab.rest("GET", f"/clients/{x}")
    assert status == 200
    assert (client["id"], client["declared"], client["manager"], client["steering"]) == (x, False, None, True)
    [attachment] = client["attachments"]
    place = {"interface": x, "node": "n0", "technology": "host", "known_by": "traffic", "pending": []}
    assert {key: attachment[key] for key in place} == place
    assert 0 <= attachment["heard_s"] <= attachment["since_s"] < 10
    assert lab.rest("PATCH", f"/clients/{x}", {"manager": "bicast", "steering": False})[1]["manager"] == "bicast"
    assert lab.rest("PATCH", f"/clients/{x}", {"manager": "none such"})[0] == 422
    assert lab.rest("GET", f"/clients/{x}")[1]["steering"] is False
    listed, address = [], "/clients?limit=1"
    while address:
        status, page = lab.rest("GET", address)
        assert status == 200
        assert len(page["clients"]) == 1
        listed += [client["id"] for client in page["clients"]]
        address = page["next"] and page["next"].removeprefix("/api/v1")
    assert {x, y} <= set(listed)
    assert listed == sorted(set(listed))
    assert lab.rest("DELETE", f"/clients/{x}")[0] == 204
    assert not any(rules(lab, x).values())
    assert lab.rest("GET", f"/clients/{x}")[0] == 404
    assert lab.rest("DELETE", f"/clients/{x}")[0] == 404
    lab.send("n2", x, y, payload=b"here again")
    assert lab.came("n1", b"here again")


def ages_s(lab: ClientLab, node: str) -> dict[str, float]:
    """How long each rule of learned hosts has been in a switch; one that is deleted and added again starts anew."""
    found = {}
    for line in lab.ofctl("dump-flows", node).splitlines():
        host = re.search(r"dl_(?:src|dst)=(02:aa:00:07:[0-9a-f:]+)|arp_sha=(02:aa:00:07:[0-9a-f:]+)", line)
        if host is not None:
            duration = re.search(r"duration=([0-9.]+)s", line)
            rule = re.sub(r"(duration|n_packets|n_bytes|idle_age|hard_age)=[^,]+, ?", "", line.strip())
            found[rule] = float(duration[1])
    return found


def with_hosts(lab: ClientLab, each: int) -> dict[str, str]:
    """Hosts at every access port, known to all switches."""
    homes = {f"02:aa:00:07:{i:02x}:{n:02x}": node for i, node in enumerate(lab.addressing.dpid) for n in range(each)}
    for mac, node in homes.items():
        lab.send(node, mac)
    assert eventually(lambda: all(is_at(lab, mac, home) for mac, home in homes.items()), 30)
    return homes


def restarted_without_switches(lab: ClientLab) -> float:
    """A new controller that no switch dials yet; when that was."""
    lab.stop_controller()
    for node in lab.addressing.dpid:
        lab.connect(node, NOBODY)
    started_s = time.monotonic()
    lab.start_controller(alone=True)
    return started_s


def test_switches_that_come_back_one_after_the_other_lose_no_rule_of_a_host(lab):
    with_hosts(lab, 5)
    before = {node: ages_s(lab, node) for node in lab.addressing.dpid}
    assert sum(map(len, before.values())) == 15 * 5
    started_s = restarted_without_switches(lab)
    for node in lab.addressing.dpid:
        lab.connect(node)
        eventually(lambda node=node: connected(lab, node))
        time.sleep(1.0)
    eventually(lambda: lab.rest("GET", "/health")[1]["ok"])
    time.sleep(1.0)
    past_s = time.monotonic() - started_s
    for node, rules_before in before.items():
        after = ages_s(lab, node)
        assert after.keys() == rules_before.keys()
        assert all(age_s > past_s for age_s in after.values()), f"{node}: rules were deleted and added again"


def connected(lab: ClientLab, node: str) -> bool:
    return any(s["node"] == node and s["connected"] for s in lab.rest("GET", "/health")[1]["switches"])


def test_hosts_of_a_switch_that_does_not_come_back_go_after_the_grace_time(lab):
    homes = with_hosts(lab, 3)
    usual, grace_s = lab.settings, 8.0
    lab.settings = {**usual, "timings": {"switch_grace_s": grace_s, "grace_s": 0.5}}
    try:
        started_s = restarted_without_switches(lab)
        missing, *others = lab.addressing.dpid
        for node in others:
            lab.connect(node)
        eventually(lambda: all(connected(lab, node) for node in others))
        lost = [mac for mac, home in homes.items() if home == missing]

        def there() -> int:
            return sum(len(rules(lab, mac)[node]) for mac in lost for node in others)

        assert there() == len(lost) * len(others)
        eventually(lambda: there() == 0, 15)
        # The process needs a while until its own time begins.
        assert time.monotonic() - started_s > grace_s
        still = {mac: home for mac, home in homes.items() if home != missing}
        assert all(
            len(rules(lab, mac)[node]) == (3 if node == home else 1) for mac, home in still.items() for node in others
        )
        lab.connect(missing)
        assert eventually(lambda: all(is_at(lab, mac, home) for mac, home in homes.items()), 15)
    finally:
        lab.settings = usual
        lab.stop_controller()
        for node in lab.addressing.dpid:
            lab.connect(node)
        lab.start_controller()


def test_a_new_controller_leaves_all_hosts_where_they_are(lab):
    x, y = "02:aa:00:00:06:01", "02:aa:00:00:06:02"
    lab.send("n0", x)
    lab.send("n1", y)
    assert eventually(lambda: is_at(lab, x, "n0") and is_at(lab, y, "n1"))
    for claim in (arp(x, "10.0.6.1"), advertisement(x, "2001:db8::6")):
        lab.send("n0", x, **claim)
    assert eventually(lambda: len(addresses(lab, x)) == 2)
    # Bars of other tests end by themselves.
    bars = tuple(f"priority={priority}," for priority in (Priority.BARRED_SOURCE, Priority.BARRED_SERVER))

    def barred() -> list[str]:
        rules = [rule for node in ("n0", "n1", "n2") for rule in lab.flows(node) if "actions=drop" in rule]
        return [rule for rule in rules if any(bar in rule for bar in bars)]

    assert eventually(lambda: not barred())
    before = {node: set(lab.flows(node)) for node in lab.addressing.dpid}
    lab.stop_controller()
    lab.send("n0", x, y, payload=b"without a controller")
    assert lab.came("n1", b"without a controller")
    lab.start_controller()
    time.sleep(1.0)
    for node, rules_before in before.items():
        assert set(lab.flows(node)) ^ rules_before == set()
    lab.send("n1", y, x, payload=b"with a new one")
    assert lab.came("n0", b"with a new one")
    assert len(addresses(lab, x)) == 2


ROAMING = mesh(3).replace(
    "links:\n",
    """  p: {role: client}
links:
  - {id: n0-p, from: n0, to: p, technology: wifi, capacity_mbps: 50, both: true}
  - {id: n1-p, from: n1, to: p, technology: wifi, capacity_mbps: 20, both: true}
""",
)


@pytest.fixture(
    scope="module", params=[32, pytest.param(0, marks=pytest.mark.nightly)], ids=["all-routes", "on-demand"]
)
def roaming(request: pytest.FixtureRequest) -> Iterator[ClientLab]:
    settings = {"access": {"quiet_s": QUIET_S}, "state_file": "state.json", "all_routes_nodes": request.param}
    with ClientLab(ROAMING, settings) as lab:
        yield lab


def place_of(lab: ClientLab) -> tuple[str, str]:
    attachment = lab.rest("GET", "/clients/p")[1]["attachments"][0]
    return attachment["node"], attachment["known_by"]


def reaches(lab: ClientLab, mark: bytes) -> bool:
    """Whether frames go both ways between a station and the host of n2."""
    station, host = lab.addressing.host_mac["p"], lab.addressing.host_mac["n2"]
    lab.send("p", station, host, payload=mark)
    lab.send("n2", host, station, payload=mark)
    return lab.came("n2", mark, 0.5) and lab.came("p", mark, 0.5)


def test_a_station_is_where_it_associated(roaming):
    mac = roaming.addressing.host_mac["p"]
    assert place_of(roaming) == ("n0", "traffic")
    assert reaches(roaming, b"at n0")
    roaming.roam("p", "n1", "wifi")
    with roaming.radio("n1") as session:
        event = {"type": "station", "technology": "wifi", "mac": mac, "event": "joined", "signal_dbm": -50}
        session.sendall(json.dumps(event).encode() + b"\n")
        assert eventually(lambda: place_of(roaming) == ("n1", "association"))
        assert eventually(lambda: reaches(roaming, b"at n1"))
        assert not any(f"dl_src={mac} actions=goto_table:6" in rule for rule in roaming.flows("n0"))
        # Nobody takes its place by sending.
        roaming.roam("p", "n0", "wifi")
        roaming.send("p", mac, payload=b"not associated here")
        assert not roaming.came("n2", b"not associated here", 0.5)
        assert place_of(roaming) == ("n1", "association")
        session.sendall(json.dumps({**event, "event": "left"}).encode() + b"\n")
        assert eventually(lambda: place_of(roaming)[0] is None)
    assert eventually(lambda: reaches(roaming, b"at n0 again"))
    assert place_of(roaming) == ("n0", "traffic")


def test_an_access_point_that_a_station_left_silently_does_not_claim_it_back(roaming):
    """hostapd lists it for minutes; an agent that connects again tells of all that are listed."""
    mac = roaming.addressing.host_mac["p"]
    event = {"type": "station", "technology": "wifi", "mac": mac, "event": "joined"}

    def say(session: socket.socket, **more: Any) -> None:
        session.sendall(json.dumps({**event, **more}).encode() + b"\n")

    with roaming.radio("n0") as old, roaming.radio("n1") as new:
        say(new)
        assert eventually(lambda: place_of(roaming) == ("n1", "association"))
        say(old, age_s=30.0)
        say(old, event="signal", signal_dbm=-90)
        time.sleep(0.5)
        assert place_of(roaming) == ("n1", "association")
        say(old)
        assert eventually(lambda: place_of(roaming) == ("n0", "association")), "it came back"
        say(new)
        assert eventually(lambda: place_of(roaming) == ("n1", "association"))
        say(new, event="left")
        assert eventually(lambda: place_of(roaming)[0] is None)
    assert eventually(lambda: reaches(roaming, b"at n0, heard"))


def test_a_station_whose_access_point_tells_nothing_is_followed_by_what_it_sends(roaming):
    assert eventually(lambda: reaches(roaming, b"where it is"))
    time.sleep(2.5 + QUIET_S)
    other = "n1" if place_of(roaming)[0] == "n0" else "n0"
    roaming.roam("p", other, "wifi")
    assert eventually(lambda: reaches(roaming, b"at the other"))
    assert place_of(roaming)[0] == other


def hand_over(lab: ClientLab, node: str, **more: Any) -> tuple[int, Any]:
    return lab.rest("POST", "/handovers", {"client": "p", "to": {"node": node, "technology": "wifi"}, **more})


def lets_in(lab: ClientLab, node: str) -> bool:
    """Whether a switch takes the station's frames for a user's."""
    mac = lab.addressing.host_mac["p"]
    return any(f"dl_src={mac} actions=goto_table:6" in rule for rule in lab.flows(node))


def test_a_station_is_handed_over_by_request_and_stays_there_over_a_restart(roaming):
    old = place_of(roaming)[0]
    new = "n1" if old == "n0" else "n0"
    handed_over = 0
    for there, left in ((new, old), (old, new), ("n1", "n0")):
        if place_of(roaming)[0] == there:
            continue
        roaming.roam("p", there, "wifi")
        status, handover = hand_over(roaming, there)
        if status == 409:
            # The station has sent a frame there in between, and the controller has followed it.
            assert "already" in handover["detail"]
            continue
        # What the answer says is in force: switches confirmed it before.
        assert lets_in(roaming, there) and not lets_in(roaming, left)
        assert status == 201, handover
        assert (handover["manager"], handover["from"]["node"]) == ("hard", left)
        handed_over += 1
        assert handover["moved_after_s"] is not None and handover["reason"] is None
        assert roaming.rest("GET", f"/handovers/{handover['id']}")[1]["phase"] == "done"
        assert place_of(roaming)[0] == there
        assert eventually(lambda there=there: reaches(roaming, b"handed over to " + there.encode()))
    assert handed_over
    status, problem = hand_over(roaming, "n1")
    assert (status, "already" in problem["detail"]) == (409, True)
    for wrong, where in (({"manager": "bicast"}, "manager"), ({"flows": ["f"]}, "flows")):
        status, problem = hand_over(roaming, "n0", **wrong)
        assert (status, list(problem["errors"])) == (422, [where])
    status, problem = hand_over(roaming, "n2")
    assert status == 422 and problem["errors"]["to"] == ["expected one of n0/wifi, n1/wifi; got n2/wifi"]
    before = {node: set(roaming.flows(node)) for node in roaming.addressing.dpid}
    roaming.stop_controller()
    roaming.start_controller()
    assert place_of(roaming)[0] == "n1"
    assert reaches(roaming, b"after the restart")
    assert {node: set(roaming.flows(node)) for node in roaming.addressing.dpid} == before


def test_a_station_that_an_association_holds_is_not_placed_elsewhere(roaming):
    mac, here = roaming.addressing.host_mac["p"], place_of(roaming)[0]
    there = "n1" if here == "n0" else "n0"
    with roaming.radio(here) as session:
        event = {"type": "station", "technology": "wifi", "mac": mac, "event": "joined"}
        session.sendall(json.dumps(event).encode() + b"\n")
        assert eventually(lambda: place_of(roaming) == (here, "association"))
        status, handover = hand_over(roaming, there, timings={"associate_s": 0.3})
        assert (status, handover["phase"], handover["moved_after_s"]) == (201, "failed", None)
        assert handover["reason"] == f"the client did not join {there}/wifi"
        assert place_of(roaming) == (here, "association") and lets_in(roaming, here)
        session.sendall(json.dumps({**event, "event": "left"}).encode() + b"\n")
        assert eventually(lambda: place_of(roaming)[0] is None)
    roaming.roam("p", there, "wifi")
    assert eventually(lambda: reaches(roaming, b"heard there"))
    assert place_of(roaming) == (there, "traffic")


def test_a_station_is_asked_to_go_where_it_is_handed_over(roaming, access_points):
    (here, there), mac = access_points, roaming.addressing.host_mac["p"]
    here.peer.stations[mac] = -50
    here.peer.tell(f"<3>AP-STA-CONNECTED {mac}")
    roaming.roam("p", "n0", "wifi")
    assert eventually(lambda: place_of(roaming) == ("n0", "association"))
    here.peer.on_transition = lambda: here.peer.tell(f"<3>BSS-TM-RESP {mac} status_code=7 bss_termination_delay=0")
    # Until both access points have told of their hostapd it can't be asked.
    reason = "refused by the client: 802.11v status 7"
    assert eventually(lambda: hand_over(roaming, "n1", timings={"associate_s": 1.0})[1]["reason"] == reason)
    assert place_of(roaming) == ("n0", "association")

    def go() -> None:
        here.peer.tell(f"<3>BSS-TM-RESP {mac} status_code=0 bss_termination_delay=0 target_bssid={there.peer.bssid}")
        del here.peer.stations[mac]
        roaming.roam("p", "n1", "wifi")
        there.peer.stations[mac] = -45
        there.peer.tell(f"<3>AP-STA-CONNECTED {mac}")
        here.peer.tell(f"<3>AP-STA-DISCONNECTED {mac}")

    here.peer.on_transition = lambda: None
    status, operation = roaming.rest(
        "POST", "/clients/p/transition?wait=false", {"to": {"node": "n1", "technology": "wifi"}}
    )
    assert (status, operation["state"], operation["pending"]) == (202, "pending", ["client p: asked"])
    here.peer.tell(f"<3>BSS-TM-RESP {mac} status_code=3 bss_termination_delay=0")

    def ended() -> str | None:
        found = roaming.rest("GET", f"/operations/{operation['id']}")[1]
        return str(found["reason"]) if found["state"] == "failed" else None

    assert eventually(ended) == "it refused"
    here.peer.on_transition = go
    status, handover = hand_over(roaming, "n1")
    assert (status, handover["reason"]) == (201, None)
    assert place_of(roaming) == ("n1", "association") and lets_in(roaming, "n1")
    assert eventually(lambda: reaches(roaming, b"went where it was handed over"))


class AccessPoint:
    """``hyroads ap-agent`` of a node, beside a peer that speaks as its hostapd."""

    def __init__(self, lab: ClientLab, node: str, number: int) -> None:
        self.peer = Peer(lab.folder / f"{node}.wlan", bssid=f"02:00:00:00:00:{number:02x}")
        config = lab.folder / f"{node}.agent"
        config.touch(0o600)
        config.write_text(
            json.dumps({"node": node, "hostapd": [{"socket": str(lab.folder / f"{node}.wlan"), "technology": "wifi"}]})
        )
        command = [sys.executable, "-m", "hyroads.controller.cli", "ap-agent", "--config", str(config)]
        self.process = subprocess.Popen(
            ["ip", "netns", "exec", lab.namespace, *command, "--channel", f"127.0.0.1:{AGENTS}"]
        )
        assert eventually(lambda: self.peer.follower)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.peer.end()


@pytest.fixture
def access_points(roaming) -> Iterator[tuple[AccessPoint, AccessPoint]]:
    first, second = AccessPoint(roaming, "n0", 1), AccessPoint(roaming, "n1", 2)
    yield first, second
    first.end()
    second.end()


def test_a_station_that_is_asked_to_go_goes_or_refuses(roaming, access_points):
    (here, there), mac = access_points, roaming.addressing.host_mac["p"]
    here.peer.stations[mac] = -50
    here.peer.tell(f"<3>AP-STA-CONNECTED {mac}")
    roaming.roam("p", "n0", "wifi")
    assert eventually(lambda: place_of(roaming) == ("n0", "association"))
    assert eventually(lambda: roaming.rest("GET", "/clients/p")[1]["attachments"][0]["signal_dbm"] == -50)
    to = {"to": {"node": "n1", "technology": "wifi"}}
    here.peer.on_transition = lambda: here.peer.tell(f"<3>BSS-TM-RESP {mac} status_code=7 bss_termination_delay=0")
    status, refused = roaming.rest("POST", "/clients/p/transition", to)
    assert (status, refused["state"], refused["status"]) == (200, "refused", 7)
    assert any(f"BSS_TM_REQ {mac} " in asked and "neighbor=02:00:00:00:00:02,0x8f,81,6,7" in asked
               for asked in here.peer.asked)  # fmt: skip
    assert place_of(roaming) == ("n0", "association")

    def go() -> None:
        here.peer.tell(f"<3>BSS-TM-RESP {mac} status_code=0 bss_termination_delay=0 target_bssid=02:00:00:00:00:02")
        del here.peer.stations[mac]
        roaming.roam("p", "n1", "wifi")
        there.peer.stations[mac] = -45
        there.peer.tell(f"<3>AP-STA-CONNECTED {mac}")
        here.peer.tell(f"<3>AP-STA-DISCONNECTED {mac}")

    here.peer.on_transition = go
    status, went = roaming.rest("POST", "/clients/p/transition", to)
    assert (status, went["state"], went["status"]) == (200, "associated", 0)
    assert place_of(roaming) == ("n1", "association")
    assert eventually(lambda: reaches(roaming, b"after the transition"))
    status, problem = roaming.rest("POST", "/clients/p/transition", to)
    assert status == 409
    assert "it is there" in problem["detail"]
    assert roaming.rest("GET", "/clients/p")[1]["attachments"][0]["transition"]["state"] == "associated"


def test_a_policy_has_a_station_asked_and_leaves_one_alone_that_refuses(roaming, access_points):
    (better, here), mac = access_points, roaming.addressing.host_mac["p"]
    roaming.roam("p", "n1", "wifi")
    here.peer.stations[mac] = -80
    here.peer.tell(f"<3>AP-STA-CONNECTED {mac}")
    assert eventually(lambda: place_of(roaming) == ("n1", "association"))
    here.peer.on_transition = lambda: here.peer.tell(f"<3>BSS-TM-RESP {mac} status_code=1 bss_termination_delay=0")

    def requests() -> list[str]:
        return [asked for asked in here.peer.asked if asked.startswith("BSS_TM_REQ")]

    assert roaming.rest("PATCH", "/clients/p", {"steering": False})[0] == 200
    assert roaming.rest("POST", "/plugins/signal/enable")[0] < 300
    try:
        # Nobody who has just come is moved, and nobody who may not be.
        time.sleep(13)
        assert not requests()
        assert roaming.rest("PATCH", "/clients/p", {"steering": True})[0] == 200
        assert eventually(requests)
        assert f"neighbor={better.peer.bssid}," in requests()[0]
        time.sleep(5)
        # It refused, and is left alone about that place.
        assert len(requests()) == 1
        assert roaming.rest("GET", "/clients/p")[1]["attachments"][0]["transition"]["status"] == 1
    finally:
        roaming.rest("POST", "/plugins/signal/disable")

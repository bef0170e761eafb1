"""Controllers that stand by for each other: the demo, what is left behind, and at night many kills, an upgrade, and
what a leader had learned of hosts when it was killed.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from controller_process import eventually
from mptcp_stream import SECOND, STREAM, TWO_WAYS, Stream
from network_names import network_name
from not_made import needs_etcd
from scene_process import make, see

from hyroads.mininet.emulation import Emulation, EmulationOptions
from hyroads.mininet.run_directory import find_network

THREE = EmulationOptions(controllers=3, etcd_members=1)
KILLS = 20
SEED = 20261124
# The controller that is killed has so long until the next one is, at random.
PAUSES_S = (0.3, 2.0)


@pytest.fixture(autouse=True, scope="module")
def etcd() -> None:
    needs_etcd()


@pytest.mark.slow
def test_the_demo_holds(hyroads, document_of) -> None:
    done = hyroads(
        *("demo", "ha", "--json", "--name", network_name("ha"), "--publish", "0", "--seconds", "2"), timeout_s=150.0
    )
    assert done.returncode in (0, 1), done.stderr
    checks = document_of(done.stdout)["checks"]
    assert len(checks) == 18 and [check for check in checks if not check["ok"]] == []


def test_ctrl_c_leaves_nothing_of_controllers_and_etcd(lab) -> None:
    network = lab.emulate(network_name("ha-end"), "--controllers", "2", "--etcd-members", "3")
    found = network.processes()
    assert sum("etcd --name" in command for command in found.values()) == 3
    assert sum(" controller --config" in command for command in found.values()) == 2
    assert network.interrupt() == 130
    assert lab.leftovers(network_name("ha-end")) == [] and lab.alive(list(found)) == []


# -- at night


def application_of(emulation: Emulation, **how: Any) -> Any:
    from ha_application import Application

    from hyroads.mininet.standbys import Standbys

    standbys = Standbys(emulation)
    for flow in ("down", "up"):
        ends = ("g", "c") if flow == "down" else ("c", "g")
        standbys.anybody().declare_flow(flow, *ends)
    application = Application(standbys, SEED, **how)
    application.start()
    return standbys, application


def judge(standbys: Any, application: Any) -> dict[str, Any]:
    """What each controller says in the end, beside what was confirmed."""
    application.finish()
    time.sleep(1.0)
    wrong = []
    for name in standbys.programs:
        with standbys.client(name, timeout_s=10.0) as client:
            wrong += [f"{name}: {what}" for what in application.wrong(list(client.flows()))]
    found = {"done": application.done, "failed": application.failed, "wrong": wrong}
    return {**found, "requests_s": sorted(application.took_s, key=lambda each: -each[1])}


def kills(emulation: Emulation) -> dict[str, Any]:
    """The leader is killed again and again, at random moments of what the application does."""
    moments = random.Random(SEED)
    standbys, application = application_of(emulation)
    took_s, epoch = [], standbys.epoch()
    for _ in range(KILLS):
        time.sleep(moments.uniform(*PAUSES_S))
        leader = standbys.leader()
        at_s = standbys.kill(leader)
        took_s.append(standbys.await_epoch(epoch, 30.0) - at_s)
        epoch = standbys.epoch()
        time.sleep(moments.uniform(*PAUSES_S))
        standbys.restart(leader)
        standbys.wait_warm()
    return {**judge(standbys, application), "took_s": took_s}


def upgrade(emulation: Emulation) -> dict[str, Any]:
    """Each controller is drained, ended and started again, under packets, requests and handovers of the client."""
    standbys, application = application_of(emulation, move_share=0.6)
    order = [name for name in standbys.programs if name != standbys.leader()]

    def during() -> None:
        for name in [*order, standbys.leader()]:
            with standbys.client(name, timeout_s=10.0) as client:
                client.request("POST", "/ha/drain", {"drain": True})
            standbys.programs[name].stop(10.0)
            standbys.restart(name)
            standbys.wait_warm()

    from hyroads.mininet.traffic import Traffic

    traffic = Traffic(emulation, "g", "c", lambda: None)
    stream = traffic.stream(75.0, 0.001, 200, during)
    return {**judge(standbys, application), "lost": len(stream.lost), "sent": stream.sent}


MOVES = ([("b", "wifi2")], [("a", "wifi1"), ("b", "plc")], [("b", "wifi2"), ("a", "wifi1")])


def moves(emulation: Emulation) -> dict[str, Any]:
    """The client has moved when the others are started again, and then the leader is killed."""
    from hyroads.mininet.standbys import Standbys

    standbys = Standbys(emulation)
    applications = standbys.anybody(timeout_s=5.0)
    for flow, ends in (("down", ("g", "c")), ("up", ("c", "g"))):
        applications.declare_flow(flow, *ends)
    differs = []
    for places in MOVES:
        for place in places:
            applications.handover("c", place, manager="hard")
            time.sleep(1.0)
        leader = standbys.leader()
        for name in [name for name in standbys.programs if name != leader]:
            standbys.programs[name].stop(10.0)
            standbys.restart(name)
        differs += [f"{places}: {device}" for device in changed_by_a_kill(standbys)]
    return {"differs": differs}


def changed_by_a_kill(standbys: Any) -> list[str]:
    """Devices that have something else once another controller leads than before the leader was killed."""
    standbys.wait_warm()
    time.sleep(3.0)
    before, epoch, leader = standbys.devices(), standbys.epoch(), standbys.leader()
    standbys.kill(leader)
    standbys.await_epoch(epoch, 10.0)
    time.sleep(2.0)
    after = standbys.devices()
    standbys.restart(leader)
    standbys.wait_warm()
    return [device for device in before if before[device] != after[device]]


def copies(emulation: Emulation) -> dict[str, Any]:
    """A flow of the client is sent by two interfaces at once when the leader is killed, and by one later on."""
    from hyroads.mininet.standbys import Standbys
    from hyroads.mininet.traffic import Traffic

    standbys, differs, said = Standbys(emulation), [], []
    applications = standbys.anybody(timeout_s=5.0)
    for flow, ends in (("down", ("g", "c")), ("up", ("c", "g"))):
        applications.declare_flow(flow, *ends)
    time.sleep(2.0)

    def during() -> None:
        applications.request("POST", "/ncasts", {"flow": "down", "copies": 2})
        time.sleep(2.0)
        said.append(applications.request("GET", "/ncasts").document)
        differs.extend(changed_by_a_kill(standbys))
        said.append(applications.request("GET", "/ncasts").document)
        applications.request("DELETE", "/ncasts/down")

    stream = Traffic(emulation, "g", "c", lambda: None).stream(25.0, 0.001, 200, during)
    return {"differs": differs, "said": said, "lost": len(stream.lost), "sent": stream.sent}


GROUP, PORT = "239.7.7.7", 5001
MPTCP = {"mptcp": {"recognise": True}}
QUERIER = {"querier": {"interval_s": 2.0, "response_s": 1.0, "robustness": 2}}
MEMBERSHIP_S = 5.0
"""How long a report counts by these settings."""
JOIN = """
import socket, sys, time
group, port, address = sys.argv[1], int(sys.argv[2]), sys.argv[3]
member = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
member.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
member.bind((group, port))
member.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(group) + socket.inet_aton(address))
print("joined", flush=True)
while True:
    print(member.recv(100).decode(), flush=True)
"""
SAY = """
import socket, sys, time
group, port, address, seconds = sys.argv[1], int(sys.argv[2]), sys.argv[3], float(sys.argv[4])
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
out.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(address))
out.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 4)
until_s, number = time.monotonic() + seconds, 0
while time.monotonic() < until_s:
    out.sendto(str(number).encode(), (group, port))
    number += 1
    time.sleep(0.005)
print(number, flush=True)
for _ in range(20):
    out.sendto(b"-1", (group, port))
    time.sleep(0.05)
"""


@contextmanager
def program(emulation: Emulation, node: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A Python program at a node."""
    process = subprocess.Popen([*emulation.inside(node), sys.executable, *words], stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(20)


def ip(emulation: Emulation, node: str, *words: str) -> str:
    return subprocess.run([*emulation.inside(node), "ip", *words], check=True, capture_output=True, text=True).stdout


def subflows(emulation: Emulation) -> dict[str, Any]:
    """Two subflows of a connection are routed apart when the leader is killed, and end under the next one."""
    from hyroads.mininet.standbys import Standbys

    standbys, address = Standbys(emulation), emulation.addressing.host_ip["s"]
    rest, log = standbys.client(standbys.leader(), timeout_s=5.0), emulation.directory / "stream.json"
    eventually(lambda: all(switch["syn_copies"] == "on" for switch in rest.health()["switches"]))
    [device] = {row["dev"] for row in json.loads(ip(emulation, "t", "-j", "route", "get", address))}
    ip(emulation, "t", "addr", "add", f"{SECOND}/16", "dev", device)
    for node in ("s", "t"):
        ip(emulation, node, "mptcp", "limits", "set", "subflow", "2", "add_addr_accepted", "2")
    ip(emulation, "t", "mptcp", "endpoint", "add", SECOND, "dev", device, "subflow")

    def known() -> list[Any]:
        """What the leader says; without what counts time or follows the load."""
        with standbys.client(standbys.leader(), timeout_s=5.0) as client:
            flows = [[flow["id"], flow["state"], flow["group"]] for flow in client.flows()]
            connections = client.get("/connections")["connections"]
        return [sorted(flows), [[one["id"], len(one["subflows"])] for one in connections]]

    found: dict[str, Any] = {}
    with program(emulation, "s", str(STREAM), "receive", "--listen", str(PORT), "--log", str(log)) as server:
        assert server.stdout is not None and server.stdout.readline() == "listening\n"
        to = ("--connect", f"{address}:{PORT}", "--congestion", "cubic")
        with program(emulation, "t", str(STREAM), "send", *to):
            eventually(lambda: [flow["state"] for flow in rest.flows()] == ["multipath"] * 4)
            time.sleep(3.0)
            found["before"] = known()
            found["differs"] = changed_by_a_kill(standbys)
            found["after"] = known()
            time.sleep(2.0)
        ended_s = time.monotonic()
        eventually(lambda: known() == [[], []])
        found["seen_after_s"] = time.monotonic() - ended_s
    return {**found, "mbps": mbps_by_second(Stream.read(log)), "exact": Stream.read(log).exact}


def mbps_by_second(stream: Stream) -> list[float]:
    """What arrived in each whole second of a stream."""
    first_s, last_s = stream.arrivals[0][0], stream.arrivals[-1][0]
    return [round(stream.mbps(first_s + at, first_s + at + 1), 2) for at in range(int(last_s - first_s))]


def members(emulation: Emulation) -> dict[str, Any]:
    """A host has joined a session by IGMP long before the leader is killed, and leaves under the next one."""
    from hyroads.mininet.standbys import Standbys

    standbys, addresses = Standbys(emulation), emulation.addressing.host_ip
    rest, mac = standbys.anybody(timeout_s=5.0), emulation.addressing.host_mac["t"]
    document = {"id": "video", "group": GROUP, "participants": ["s"], "membership": True}
    rest.request("POST", "/sessions", document)

    def told() -> list[str]:
        with standbys.client(standbys.leader(), timeout_s=5.0) as client:
            return sorted(one["name"] for one in client.get("/sessions/video")["participants"])

    with program(emulation, "t", "-c", JOIN, GROUP, str(PORT), addresses["t"]) as member:
        assert member.stdout is not None and member.stdout.readline() == "joined\n"
        eventually(lambda: mac in told())
        # Longer than a report counts for those who have not heard it.
        time.sleep(2 * MEMBERSHIP_S)
        found: dict[str, Any] = {"before": told()}
        with program(emulation, "s", "-c", SAY, GROUP, str(PORT), addresses["s"], "16") as speaker:
            assert speaker.stdout is not None
            found["differs"] = changed_by_a_kill(standbys)
            found["after"] = told()
            sent = int(speaker.stdout.readline())
            got = set(iter(lambda: int(member.stdout.readline()), -1))  # type: ignore[union-attr]
        found |= {"sent": sent, "lost": sorted(set(range(sent)) - got), "later": told()}
    eventually(lambda: mac not in told(), 4 * MEMBERSHIP_S)
    return found


ROAMING = {"kills": kills, "upgrade": upgrade, "moves": moves, "copies": copies}


def scene(out: Path) -> int:
    """Which one is in the name of the file."""
    if out.stem in ROAMING:
        network = yaml.safe_load(find_network("roaming").read_text())
        del network["flows"]
        return make(network, network_name(f"ha-{out.stem}"), ROAMING[out.stem], out, THREE)
    body, settings = {"subflows": (subflows, MPTCP), "members": (members, QUERIER)}[out.stem]
    return make(yaml.safe_load(TWO_WAYS), network_name(f"ha-{out.stem}"), body, out, replace(THREE, settings=settings))


@pytest.mark.nightly
@pytest.mark.alone
def test_what_was_confirmed_is_so_after_many_kills(tmp_path: Path) -> None:
    found = see(__file__, tmp_path / "kills.json", lambda seen: not seen["wrong"], tries=2, timeout_s=900.0)
    print(found, file=sys.stderr)
    assert found["wrong"] == [] and found["failed"] == []
    assert len(found["took_s"]) == KILLS and sorted(found["took_s"])[KILLS // 2] <= 0.3
    assert min(found["done"].values()) > KILLS


@pytest.mark.nightly
@pytest.mark.alone
def test_an_upgrade_of_one_after_another_loses_nothing(tmp_path: Path) -> None:
    found = see(__file__, tmp_path / "upgrade.json", lambda seen: not seen["lost"], tries=2, timeout_s=400.0)
    print(found, file=sys.stderr)
    assert found["wrong"] == [] and found["failed"] == []
    assert found["lost"] == 0 and found["sent"] > 50_000
    assert min(found["done"].values()) > 10


@pytest.mark.nightly
def test_a_takeover_changes_nothing_after_the_client_has_moved(tmp_path: Path) -> None:
    found = see(__file__, tmp_path / "moves.json", lambda seen: not seen["differs"], tries=1, timeout_s=300.0)
    assert found["differs"] == []


@pytest.mark.nightly
def test_copies_go_on_under_the_next_leader(tmp_path: Path) -> None:
    found = see(__file__, tmp_path / "copies.json", lambda seen: not seen["differs"], tries=1, timeout_s=300.0)
    print(found, file=sys.stderr)
    assert found["differs"] == [] and found["lost"] == 0 and found["sent"] > 20_000
    before, after = (each["ncasts"] for each in found["said"])
    assert before == after and before[0]["phase"] == "copying"


@pytest.mark.nightly
@pytest.mark.skipif(not Path("/proc/sys/net/mptcp/enabled").exists(), reason="this kernel has no MPTCP")
def test_subflows_stay_routed_apart_under_the_next_leader(tmp_path: Path) -> None:
    found = see(__file__, tmp_path / "subflows.json", lambda seen: not seen["differs"], tries=2, timeout_s=300.0)
    print(found, file=sys.stderr)
    assert found["before"] == found["after"] and found["differs"] == [] and found["exact"]
    assert [state for _, state, _ in found["before"][0]] == ["multipath"] * 4
    assert found["seen_after_s"] < 8.0


@pytest.mark.nightly
def test_a_host_that_joined_by_igmp_stays_a_member_under_the_next_leader(tmp_path: Path) -> None:
    found = see(__file__, tmp_path / "members.json", lambda seen: not seen["differs"], tries=2, timeout_s=300.0)
    print(found, file=sys.stderr)
    assert len(found["before"]) == 2 and found["before"] == found["after"] == found["later"]
    assert found["differs"] == [] and found["lost"] == [] and found["sent"] > 2000

"""MPTCP connections of the kernel, recognised by the real controller on real Open vSwitch; hosts that lie and flood."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

if os.geteuid() != 0 or shutil.which("ovs-vswitchd") is None:
    pytest.skip("needs root and Open vSwitch", allow_module_level=True)
if not Path("/proc/sys/net/mptcp/enabled").exists():
    pytest.skip("this kernel has no MPTCP", allow_module_level=True)

import mptcp_frames as frames
from client_lab import ClientLab, eventually, mesh
from ovs_rig import run

pytestmark = pytest.mark.root
HOSTILE = "02:aa:00:00:66:01"
SYNS_PER_S = 500
SERVER = """
import socket, sys
listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)
listener.bind(("0.0.0.0", 5001)); listener.listen(64); print("ready", flush=True)
connections = []
while True:
    connections.append(listener.accept()[0])
    connections[-1].send(b"x" * 4000)
"""
CLIENT = """
import socket, sys
sender = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)
sender.connect((sys.argv[1], 5001)); sender.send(b"x" * 4000); sender.recv(9000)
print("ready", flush=True); sys.stdin.read()
"""


class Lab(ClientLab):
    """A client whose two interfaces are at the access ports of n0 and n1, and a server at n2's."""

    def __init__(self) -> None:
        mptcp = {"recognise": True, "syns_per_s": SYNS_PER_S, "clients": {"laptop": ["n0", "n1"]}}
        super().__init__(mesh(3), {"mptcp": mptcp, "state_file": "state.json"})
        self.processes: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Lab:
        super().__enter__()
        # In the order of the nodes.
        self.laptop, second, self.server = self.namespaces[-3:]
        self.ips = [self.addressing.host_ip[node] for node in ("n0", "n1", "n2")]
        run("ip", "-n", second, "link", "set", "eth0", "down")
        run("ip", "-n", second, "link", "set", "eth0", "name", "eth1", "netns", self.laptop)
        run("ip", "-n", self.laptop, "addr", "add", f"{self.ips[1]}/16", "dev", "eth1")
        run("ip", "-n", self.laptop, "link", "set", "eth1", "up")
        for option in ("arp_ignore=1", "arp_announce=2", "rp_filter=0"):
            run("ip", "netns", "exec", self.laptop, "sysctl", "-qw", f"net.ipv4.conf.all.{option}")
        run("ip", "-n", self.laptop, "rule", "add", "from", self.ips[1], "table", "2")
        run("ip", "-n", self.laptop, "route", "add", "10.0.0.0/16", "dev", "eth1", "src", self.ips[1], "table", "2")
        run("ip", "-n", self.laptop, "mptcp", "limits", "set", "subflow", "2", "add_addr_accepted", "2")
        run("ip", "-n", self.laptop, "mptcp", "endpoint", "add", self.ips[1], "dev", "eth1", "subflow", "backup")
        self.start(self.server, SERVER)
        return self

    def __exit__(self, *error: object) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
        super().__exit__(*error)

    def start(self, namespace: str, program: str, *arguments: str) -> subprocess.Popen[str]:
        command = ["ip", "netns", "exec", namespace, sys.executable, "-c", program, *arguments]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.processes.append(process)
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        return process

    def connections(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.rest("GET", "/connections")[1]["connections"]
        return found

    def metric(self, name: str) -> float:
        text = self.inside("curl", "-s", "http://127.0.0.1:18080/metrics")
        return next(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(f"{name} "))

    def pings(self, seconds: float) -> list[float]:
        """Round trips from the client to the server, in ms."""
        words = ("ping", "-n", "-i", "0.01", "-c", str(int(seconds * 100)), self.ips[2])
        text = run("ip", "netns", "exec", self.laptop, *words)
        return [float(line.partition("time=")[2].split()[0]) for line in text.splitlines() if "time=" in line]


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab() as lab:
        eventually(lambda: all(one["syn_copies"] == "on" for one in lab.rest("GET", "/health")[1]["switches"]))
        yield lab


@pytest.fixture
def connected(lab: Lab) -> dict[str, Any]:
    """A connection of the laptop with two subflows. It lasts as long as the lab: rules that copy an end go with it, and
    come back after 10 s where no agent tells that a subflow is silent.
    """
    before = {one["id"] for one in lab.connections()}
    lab.start(lab.laptop, CLIENT, lab.ips[2])

    def joined() -> dict[str, Any] | None:
        return next((c for c in lab.connections() if c["id"] not in before and len(c["subflows"]) == 2), None)

    found: dict[str, Any] = eventually(joined)
    return found


def test_a_connection_and_both_subflows_are_seen(lab, connected):
    assert (connected["client"], connected["peer"], connected["mptcp_version"]) == ("laptop", "n2", 1)
    assert lab.rest("GET", f"/connections/{connected['id']}")[1]["id"] == connected["id"]
    first, second = connected["subflows"]
    assert [(one["client_ip"], one["peer_ip"], one["peer_port"]) for one in (first, second)] == [
        (lab.ips[0], lab.ips[2], 5001),
        (lab.ips[1], lab.ips[2], 5001),
    ]
    assert [one["enters_at"]["node"] for one in (first, second)] == ["n0", "n1"]
    assert [one["peer_enters_at"]["node"] for one in (first, second)] == ["n2", "n2"]
    assert [one["backup"] for one in (first, second)] == [False, True]
    assert lab.metric("hyroads_mptcp_subflows") >= 2 and lab.metric("hyroads_mptcp_connections") >= 1
    assert lab.rest("GET", "/connections/nothing")[0] == 404
    # Ryu's queries show these rules, too: its own parser fails on a copy with a meter.
    rules = json.loads(lab.inside("curl", "-s", "http://127.0.0.1:18080/stats/flow/1"))["1"]
    shown = [rule for rule in rules if rule["priority"] == 61000]
    assert len(shown) == 2 and all("subtype: 37" in rule["actions"][0] for rule in shown)


def events(lab: Lab) -> list[str]:
    """What the controller has told of MPTCP, as text."""
    url = "http://127.0.0.1:18080/api/v1/events?kinds=mptcp"
    words = ("curl", "-sN", "-m", "0.5", "-H", "Last-Event-ID: 1", url)
    namespace = ("ip", "netns", "exec", lab.namespace)
    text = subprocess.run((*namespace, *words), capture_output=True, text=True, check=False).stdout
    return [line for line in text.splitlines() if line.startswith("data:")]


def syn(lab: Lab, options: bytes, port: int, source: str = "10.0.9.9") -> bytes:
    """A SYN of the hostile host to the server."""
    frame = frames.from_to(frames.with_options(frames.PLAIN, options), source, lab.ips[2], port, 5001)
    return frames.with_macs(frame, HOSTILE, lab.addressing.host_mac["n2"])


def test_a_client_that_claims_the_token_of_another_gets_nothing(lab, connected):
    lab.send("n0", HOSTILE)
    join = frames.option(0x10, 9, bytes.fromhex(connected["id"]), b"rand")

    def refused() -> list[str]:
        lab.sockets["n0"].send(syn(lab, join, 7000))
        return [event for event in events(lab) if "token of another client" in event]

    assert HOSTILE in eventually(refused)[0]
    assert len(lab.rest("GET", f"/connections/{connected['id']}")[1]["subflows"]) == 2
    # An address of the client is of no use, either.
    for port in range(7001, 7020):
        lab.sockets["n0"].send(syn(lab, frames.capable(), port, lab.ips[0]))
    eventually(lambda: any("address of another host" in event for event in events(lab)))


class Flood:
    """A host that sends so many frames a second."""

    def __init__(self, lab: Lab, per_s: int, options: bytes, flags: int) -> None:
        self.lab, self.per_s, self.options, self.flags = lab, per_s, options, flags
        self.sent, self._over = 0, False

    def __enter__(self) -> Flood:
        self._thread = threading.Thread(target=self._send)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True
        self._thread.join()

    def _send(self) -> None:
        kinds = [bytearray(syn(self.lab, self.options, port)) for port in range(1, 2001)]
        for kind in kinds:
            kind[frames.TCP + 13] = self.flags
        began_s = time.monotonic()
        while not self._over:
            while self.sent < self.per_s * (time.monotonic() - began_s):
                try:
                    self.lab.sockets["n0"].send(kinds[self.sent % len(kinds)])
                except (BlockingIOError, OSError):
                    break
                self.sent += 1
            time.sleep(0.001)


@pytest.mark.alone
def test_a_flood_delays_no_packet_of_others_and_leaves_no_state(lab):
    lab.send("n0", HOSTILE)
    packet_ins = lab.metric('of_packet_ins_total{dp_id="0x1",dp_name="n0"}')
    with Flood(lab, 10_000, frames.capable(), 0x10) as other:
        # As many frames that nobody copies: what the switch itself costs.
        time.sleep(0.5)
        usual = lab.pings(1.5)
    with Flood(lab, 10_000, frames.capable(), 0x02) as flood:
        time.sleep(0.5)
        flooded = lab.pings(1.5)
        assert lab.rest("GET", "/health")[1]["ok"]
    assert min(other.sent, flood.sent) > 12_000
    # Others may use the machine meanwhile.
    assert len(flooded) >= 145
    assert statistics.median(flooded) < 2 * statistics.median(usual) + 0.3
    # One second's copies at most, then the switch leaves the host out.
    copied = lab.metric('of_packet_ins_total{dp_id="0x1",dp_name="n0"}') - packet_ins
    assert copied < 4 * SYNS_PER_S
    assert any(HOSTILE in rule and "tcp_flags=+syn" in rule for rule in lab.flows("n0"))
    assert lab.metric("hyroads_mptcp_hosts_left_out") == 1
    eventually(lambda: not lab.metric("hyroads_mptcp_hosts_left_out"), 12)
    eventually(lambda: not any(HOSTILE in rule and "tcp_flags" in rule for rule in lab.flows("n0")))
    assert sum("too many SYNs" in event for event in events(lab)) <= 2


def test_a_new_controller_finds_the_rules_and_goes_on(lab, connected):
    def rules() -> dict[str, list[str]]:
        """Those of the network, of copies of SYNs, and of ends."""
        return {node: sorted(lab.flows(node)) for node in lab.addressing.dpid}

    def routed() -> set[str]:
        flows = lab.rest("GET", "/flows")[1]["flows"]
        return {flow["id"] for flow in flows if connected["id"] in flow["id"] and not flow["pending"]}

    def subflows() -> list[tuple[Any, ...]]:
        [known] = [one for one in lab.connections() if one["id"] == connected["id"]]
        return [(one["client_ip"], one["client_port"], one["backup"], one["enters_at"]) for one in known["subflows"]]

    def stays_a_second() -> bool:
        found = rules()
        time.sleep(1.0)
        return rules() == found

    eventually(lambda: len(routed()) == 4)
    eventually(stays_a_second)
    before, flows, known, known_ids = rules(), routed(), subflows(), {one["id"] for one in lab.connections()}
    assert sum("priority=61002" in rule for each in before.values() for rule in each) >= 8
    lab.stop_controller()
    lab.start_controller()
    eventually(lambda: all(one["syn_copies"] == "on" for one in lab.rest("GET", "/health")[1]["switches"]))
    eventually(lambda: routed() == flows)
    assert subflows() == known
    assert sum(one["flow_mods"] for one in lab.rest("GET", "/health")[1]["switches"]) == 0 and rules() == before
    # It sees what begins now.
    client = lab.start(lab.laptop, CLIENT, lab.ips[2])
    new = lambda: [one for one in lab.connections() if one["id"] not in known_ids]  # noqa: E731
    eventually(lambda: any(len(one["subflows"]) == 2 for one in new()))
    client.kill()

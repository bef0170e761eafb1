"""The path manager of ``hyroads client run`` on the kernel's own MPTCP: a client with two interfaces, and a server."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import client_fixtures
import mptcp_stream
import pytest
from client_fixtures import NEEDS_ROOT, PROGRAM
from mptcp_stream import Stream
from multihomed import FAR, SERVER, Host, World, run, wait_until

pytestmark = [
    *NEEDS_ROOT,
    pytest.mark.skipif(not Path("/proc/sys/net/mptcp/pm_type").exists(), reason="this kernel has no MPTCP"),
]

POLICY = """
interfaces: {wlan0: {}, wwan0: {metered: true}}
plane: mptcp
flows:
  - {name: web, match: {tcp_dst: 7001}, interfaces: [wlan0]}
"""
MBPS = 20
STREAM = (sys.executable, str(Path(mptcp_stream.__file__)))
gate = client_fixtures.gate
world, host = client_fixtures.world, client_fixtures.host_of(POLICY, real=PROGRAM or sys.executable)


def shape(world: World) -> None:
    """Both directions of both interfaces carry ``MBPS``."""
    for name in ("wlan0", "wwan0"):
        for namespace, device in ((world.client, name), (world.net, f"to-{name}")):
            words = ["rate", f"{MBPS}mbit", "burst", "5000", "limit", "60000"]
            run("tc", "-n", namespace, "qdisc", "add", "dev", device, "root", "tbf", *words)


class Transfer:
    """A stream from the client to the server, or back."""

    def __init__(self, world: World, folder: Path, *, up: bool = True, port: int = 7000, far: bool = False) -> None:
        self.log = folder / f"arrivals-{port}"
        roles = ("receive", "send") if up else ("send", "receive")
        logs = [("--log", str(self.log)) if role == "receive" else () for role in roles]
        said = folder / f"stream-{port}"
        words = ("--listen", str(port), "--congestion", "cubic", *logs[0])
        self.server = world.start(world.far if far else world.net, *STREAM, roles[0], *words, log=said)
        wait_until(lambda: said.exists() and "listening" in said.read_text())
        words = ("--connect", f"{FAR if far else SERVER}:{port}", "--congestion", "cubic", *logs[1])
        self.client = world.start(world.client, *STREAM, roles[1], *words, log=folder / f"client-{port}")

    def end(self) -> Stream:
        for process in (self.client, self.server):
            process.send_signal(signal.SIGTERM)
            process.wait(10)
        return Stream.read(self.log)


def subflows(host: Host, connection: int = 0) -> dict[str, bool]:
    """Interface -> whether its subflow is a backup."""
    found = host.status()["mptcp"]
    return {each["interface"]: each["backup"] for each in found[connection]["subflows"]} if found else {}


def received(world: World, interface: str) -> int:
    counter = f"/sys/class/net/to-{interface}/statistics/rx_bytes"
    return int(world.inside(world.net, "cat", counter))


@contextmanager
def transfer_of(world: World, host: Host, **how: Any) -> Iterator[Transfer]:
    transfer = Transfer(world, host.folder, **how)
    yield transfer
    for process in (transfer.client, transfer.server):
        assert process.poll() is not None, "not ended by the test"


def test_a_connection_uses_both_interfaces_and_modes_change_live(world: World, host: Host) -> None:
    shape(world)
    before = state(world)
    host.start()
    with transfer_of(world, host) as transfer:
        wait_until(lambda: subflows(host) == {"wlan0": False, "wwan0": False})
        time.sleep(1.0)
        both_s = (time.monotonic() - 0.8, time.monotonic())
        host.hyroads("mode", "cost-efficient")
        assert subflows(host) == {"wlan0": False, "wwan0": True}
        time.sleep(0.7)
        carried = received(world, "wwan0")
        time.sleep(0.7)
        assert received(world, "wwan0") - carried < 20_000, "a backup carries nothing"
        token = host.status()["mptcp"][0]["token"]
        assert host.hyroads("mode", "full-speed", "--connection", token).returncode == 0
        assert subflows(host) == {"wlan0": False, "wwan0": False}
        time.sleep(0.7)
        changed_s = both_s[0], time.monotonic()
        stream = transfer.end()
    assert stream.exact
    assert stream.mbps(*both_s) > 1.5 * MBPS
    assert stream.longest_gap_s(*changed_s) < 0.15
    assert host.end() == 0
    assert state(world) == before


@pytest.mark.skipif(PROGRAM is None, reason="needs hyroads-client")
def test_high_robustness_keeps_a_connection_where_its_packets_are_copied(world: World, host: Host, gate: Host) -> None:
    waypoint = host.policy.read_text().splitlines()[-1]
    host.policy.write_text(f"interfaces: {{wlan0: {{}}, wwan0: {{}}}}\nmptcp: true\n{waypoint}\n")
    shape(world)
    host.start()
    with transfer_of(world, host, far=True) as transfer:
        wait_until(lambda: subflows(host) == {None: True, "wlan0": False, "wwan0": False}, 5.0)
        token = host.status()["mptcp"][0]["token"]
        assert host.hyroads("mode", "high-robustness", "--connection", token).returncode == 0
        assert subflows(host) == {None: False, "wlan0": True, "wwan0": True}
        assert f"{token}" in host.hyroads("status").stdout
        time.sleep(1.0)
        counts = [received(world, name) for name in ("wlan0", "wwan0")]
        time.sleep(1.0)
        copies = [received(world, name) - count for name, count in zip(("wlan0", "wwan0"), counts, strict=True)]
        stream = transfer.end()
    assert stream.exact
    assert min(copies) > 0.5 * MBPS / 8 * 1e6, "the same packets go by both"
    assert max(copies) < 1.3 * min(copies)


def test_a_path_that_dies_in_silence_is_left_by_the_kernel(world: World, host: Host) -> None:
    shape(world)
    host.start()
    with transfer_of(world, host) as transfer:
        wait_until(lambda: len(subflows(host)) == 2)
        time.sleep(0.7)
        rules = 'table inet cut { chain c { type filter hook prerouting priority -500; iifname "to-wlan0" drop; }; }'
        run("ip", "netns", "exec", world.net, "nft", "-f", "-", text=rules)
        cut_s = time.monotonic()
        time.sleep(2.5)
        stream = transfer.end()
    assert stream.exact
    assert stream.longest_gap_s(cut_s, cut_s + 2.0) < 1.0
    assert stream.mbps(cut_s + 1.5, cut_s + 2.5) > 0.7 * MBPS


def state(world: World) -> dict[str, str]:
    managers = world.inside(world.client, "sysctl", "net.mptcp.path_manager", "net.mptcp.pm_type", check=False)
    return {**world.state(world.client), "mptcp": managers}


@pytest.mark.parametrize("up", [True, False], ids=["upload", "download"])
def test_an_interface_that_loses_its_carrier_is_left_at_once_and_used_again(world: World, host: Host, up: bool) -> None:
    shape(world)
    host.policy.write_text(POLICY.replace("plane: mptcp", "plane: mptcp\nmode: cost-efficient"))
    host.start()
    with transfer_of(world, host, up=up) as transfer:
        wait_until(lambda: subflows(host) == {"wlan0": False, "wwan0": True})
        time.sleep(0.7)
        run("ip", "-n", world.net, "link", "set", "to-wlan0", "down")
        cut_s = time.monotonic()
        wait_until(lambda: subflows(host) == {"wwan0": True}, 1.0)
        time.sleep(0.7)
        run("ip", "-n", world.net, "link", "set", "to-wlan0", "up")
        wait_until(lambda: subflows(host) == {"wlan0": False, "wwan0": True}, 3.0)
        back_s = time.monotonic()
        time.sleep(0.7)
        stream = transfer.end()
    assert stream.exact
    assert stream.longest_gap_s(cut_s, cut_s + 0.7) < 0.3
    assert stream.longest_gap_s(back_s - 0.1, back_s + 0.7) < 0.15
    assert stream.mbps(back_s, back_s + 0.7) > 0.7 * MBPS


def test_what_the_policy_no_longer_allows_drains_before_it_ends(world: World, host: Host) -> None:
    shape(world)
    host.start()
    with transfer_of(world, host) as transfer:
        wait_until(lambda: len(subflows(host)) == 2)
        time.sleep(0.5)
        host.policy.write_text("interfaces: {wwan0: {}}\nplane: mptcp\n")
        host.signal(signal.SIGHUP)
        changed_s = time.monotonic()
        wait_until(lambda: [*subflows(host)] == ["wwan0"])
        time.sleep(0.3)
        ended_s = time.monotonic()
        stream = transfer.end()
    assert stream.exact
    assert ended_s - changed_s > 1.0, "it drains for a second"
    assert stream.longest_gap_s(changed_s - 0.3, ended_s) < 0.15
    wait_until(lambda: "from 10.1.0.2" not in world.inside(world.client, "ip", "rule"), 8.0)


def test_flows_of_the_policy_are_for_connections_too_and_others_are_left_alone(world: World, host: Host) -> None:
    host.start()
    run("ip", "-n", world.client, "route", "replace", "default", "via", "10.2.0.1", "metric", "1")
    with transfer_of(world, host, port=7001) as only_wlan:
        wait_until(lambda: subflows(host) == {"wlan0": False}, 5.0)
        document = host.status()["mptcp"][0]
        assert (document["name"], document["mode"]) == ("web", "full-speed")
        assert only_wlan.end().exact
    wait_until(lambda: not host.status()["mptcp"])
    listening = "import socket; s=socket.create_server(('127.0.0.1', 7002)); "
    connect = "c=socket.socket(2, 1, 262); c.connect(('127.0.0.1', 7002)); print('connected')"
    assert "connected" in world.python(world.client, listening + connect)
    assert host.hyroads("mode", "full-speed", "--connection", "12345678").returncode == 2


def test_connections_outlive_the_daemon_over_the_host_s_own_route(world: World, host: Host) -> None:
    before = state(world)
    shape(world)
    host.start()
    with transfer_of(world, host) as transfer:
        wait_until(lambda: len(subflows(host)) == 2)
        assert host.end() == 0
        assert state(world)["mptcp"] == before["mptcp"]
        assert state(world)["rules4"] == before["rules4"]
        ended_s = time.monotonic()
        time.sleep(0.7)
        stream = transfer.end()
    assert stream.exact
    assert stream.mbps(ended_s, ended_s + 0.7) > 0.5 * MBPS


def test_a_killed_daemon_s_successor_restores_what_was_before_the_first(world: World, host: Host) -> None:
    before = state(world)
    host.start()
    host.signal(signal.SIGKILL)
    assert host.daemon is not None
    host.daemon.wait(5)
    assert "from 10.1.0.2" in world.inside(world.client, "ip", "rule")
    host.policy.write_text("interfaces: {wlan0: {}}\nplane: mptcp\n")
    host.start()
    assert host.end() == 0
    assert state(world) == before


@pytest.mark.skipif(PROGRAM is None, reason="needs hyroads-client")
@pytest.mark.parametrize("plane", ["agent", "kernel"])
def test_a_connection_over_hr0_goes_on_by_the_interfaces_themselves(world: World, host: Host, plane: str) -> None:
    shape(world)
    host.policy.write_text(f"interfaces: {{wlan0: {{}}, wwan0: {{}}}}\nmptcp: true\nplane: {plane}\n")
    before = state(world)
    host.start()
    with transfer_of(world, host) as transfer:
        wait_until(lambda: subflows(host) == {None: True, "wlan0": False, "wwan0": False}, 5.0)
        time.sleep(1.0)
        now_s = time.monotonic()
        stream = transfer.end()
    assert stream.exact
    assert stream.mbps(now_s - 0.7, now_s) > 1.5 * MBPS
    assert host.end() == 0
    assert state(world) == before

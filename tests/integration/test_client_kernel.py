"""``plane: kernel`` under the daemons: policy, modes, migrations, lost carriers and dead daemons, over real packets."""

from __future__ import annotations

import json
import signal
import time
from typing import Any

import client_fixtures
from client_fixtures import FLOWS, NEEDS_PROGRAM
from client_transfers import Transfer, flow_of, has_flow
from multihomed import FAR, SERVER, Host, World, make_tokens, tcp_server, wait_until

pytestmark = NEEDS_PROGRAM
POLICY = """
plane: kernel
interfaces: {wlan0: {rate_mbps: 50}, wwan0: {metered: true, cap_gib_month: 1, rate_mbps: 20}}
"""
POLICY += FLOWS

# The plane needs no ``hyroads-client``, so the client has only the stand-in, which would tell of a start.
world, host, gate = client_fixtures.world, client_fixtures.host_of(POLICY), client_fixtures.gate


def paths(gate: Host) -> list[tuple[int, str, bool]]:
    """Number, endpoint and usability of the client's tunnels, as the waypoint knows them."""
    sessions = json.loads(gate.hyroads("status", "--waypoint", "--json").stdout)["sessions"]
    return [(each["number"], each["endpoint"], each["usable"]) for one in sessions for each in one.get("paths", [])]


def carrier(world: World, interface: str, state: str) -> None:
    world.inside(world.net, "ip", "link", "set", f"to-{interface}", state)


def test_direct_flows_are_bound_and_nothing_is_left(world: World, host: Host) -> None:
    before = world.state(world.client)
    host.start()
    assert world.route(FAR)["dev"] == "hr0"
    with tcp_server(world, 7000, world.far):
        call = f"import socket; s = socket.create_connection(('{FAR}', 7000), 5); print(s.recv(99))"
        assert "10.2.0.2" in world.python(world.client, call)
    transfer = Transfer(world, 3.0)
    wait_until(lambda: has_flow(host, "bulk"))
    flow, status = flow_of(host, "bulk"), host.status()
    assert flow["source"].startswith("10.171.0.2:")
    assert flow["via"] == "direct"
    assert status["program"]["program"] == "kernel"
    assert status["interfaces"][flow["interface"]]["sent_mbps"] >= 0.8 * flow["rate_mbps"]
    refused = host.hyroads("migrate", str(flow["id"]), "wwan0" if flow["interface"] == "wlan0" else "wlan0")
    assert refused.returncode == 2
    assert "goes directly" in refused.stderr
    assert "quota" in world.inside(world.client, "nft", "list", "table", "inet", "hyroads_caps")
    assert transfer.end()[0] > 1_000_000
    assert host.told("started") == [], "no program carries packets"
    assert host.end() == 0
    assert world.state(world.client) == before


def test_modes_migrations_and_lost_carriers_move_what_goes_by_the_waypoint(
    world: World, host: Host, gate: Host
) -> None:
    before = world.state(world.client)
    host.start()
    assert paths(gate) == [(1, "10.1.0.2", True), (2, "10.2.0.2", True)]
    transfer = Transfer(world, 9.0)
    wait_until(lambda: has_flow(host, "bulk"))
    flow = flow_of(host, "bulk")
    assert (flow["via"], flow["source"].partition(":")[0]) == ("waypoint", "100.72.0.2")
    for _ in range(3):
        flow = flow_of(host, "bulk")
        other = "wwan0" if flow["interface"] == "wlan0" else "wlan0"
        moved = host.hyroads("migrate", str(flow["id"]), other)
        assert moved.returncode == 0, moved.stderr
        assert flow_of(host, "bulk")["interface"] == other
    assert flow_of(host, "bulk")["migrations"] == 3
    if flow_of(host, "bulk")["interface"] == "wlan0":
        host.hyroads("migrate", str(flow["id"]), "wwan0")
    assert host.hyroads("mode", "cost-efficient").returncode == 0
    assert flow_of(host, "bulk")["interface"] == "wlan0", "wwan0 is metered"
    refused = host.hyroads("mode", "high-robustness")
    assert refused.returncode == 2
    assert "needs plane: agent" in refused.stderr
    carrier(world, "wlan0", "down")
    wait_until(lambda: flow_of(host, "bulk")["interface"] == "wwan0", 3.0)
    wait_until(lambda: (1, "10.1.0.2", False) in paths(gate), 3.0)
    assert not host.status()["interfaces"]["wlan0"]["up"]
    carrier(world, "wlan0", "up")
    wait_until(lambda: flow_of(host, "bulk")["interface"] == "wlan0", 5.0)
    wait_until(lambda: (1, "10.1.0.2", True) in paths(gate), 5.0)
    total, gap_s = transfer.end()
    assert total > 5_000_000
    assert gap_s < 2.5
    assert host.end() == 0
    assert world.state(world.client) == before


def test_each_tunnel_shows_the_waypoint_where_its_client_is(world: World, host: Host, gate: Host) -> None:
    host.start()

    def seen() -> str:
        return world.inside(world.net, "nft", "list", "set", "inet", "hyroads_tunnels", "seen4")

    # No flow runs: this comes from the probes alone.
    wait_until(lambda: "10.1.0.2" in seen() and "10.2.0.2" in seen(), 10.0)
    assert host.status()["flows"] == [], "probes are no flows"
    # Another address of the interface, as after a change of the network.
    for words in (("delete", "10.1.0.2/24"), ("add", "10.1.0.77/24")):
        world.inside(world.client, "ip", "address", *words, "dev", "wlan0")
    world.inside(world.client, "ip", "route", "add", "default", "via", "10.1.0.1", "dev", "wlan0")
    wait_until(lambda: (1, "10.1.0.77", True) in paths(gate), 10.0)
    wait_until(lambda: "10.1.0.77" in seen(), 10.0)


def test_connections_do_not_notice_that_both_daemons_were_killed(world: World, host: Host, gate: Host) -> None:
    host.start()
    transfer = Transfer(world, 7.0)
    wait_until(lambda: has_flow(host, "bulk"))
    for each in (host, gate):
        each.signal(signal.SIGKILL)
    time.sleep(1.0)
    gate.start("waypoint", *make_tokens(gate.folder))
    host.start()
    flow = flow_of(host, "bulk")
    other = "wwan0" if flow["interface"] == "wlan0" else "wlan0"
    assert host.hyroads("migrate", str(flow["id"]), other).returncode == 0
    total, gap_s = transfer.end()
    assert total > 1_000_000
    assert gap_s < 1.0


def test_the_other_plane_takes_over_what_a_killed_daemon_left(world: World, host: Host) -> None:
    before = world.state(world.client)
    host.start()
    host.signal(signal.SIGKILL)
    host.policy.write_text(POLICY.replace("plane: kernel", "plane: agent"))
    host.start()
    assert "hyroads_caps" not in world.inside(world.client, "nft", "list", "tables")
    host.policy.write_text(POLICY)
    host.signal(signal.SIGHUP)
    wait_until(lambda: "plane: expected agent until the daemon is started again" in host.said())
    host.signal(signal.SIGKILL)
    host.start()
    links: list[dict[str, Any]] = json.loads(world.inside(world.client, "ip", "-j", "-d", "link", "show", "hr0"))
    assert links[0]["linkinfo"]["info_kind"] == "ifb"
    assert host.end() == 0
    assert world.state(world.client) == before


def test_raw_packets_of_mapped_ports_are_not_tracked(world: World) -> None:
    """A user's firewall that drops what is invalid must not drop single packets of a flow that it never saw begin."""
    host = Host(world, world.client, "client")
    host.policy.write_text("interfaces: {wlan0: {}, wwan0: {}}\n")
    host.start()
    rules = "table inet user { chain out { type filter hook output priority filter; ct state invalid counter drop; }; }"
    world.inside(world.client, "nft", rules)
    # A TCP segment in the middle of a connection, with a window that no tracked connection would accept.
    code = (
        "import socket, struct, sys\n"
        "s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP)\n"
        "s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b'wlan0')\n"
        "for port in (20000, 19999):\n"
        "    s.sendto(struct.pack('>HHIIBBHHH', port, 7000, 1, 1, 0x50, 0x3F, 9, 0, 0), ('%s', 0))\n"
    )
    dropped = world.python(world.client, code % SERVER, check=False)
    listed = world.inside(world.client, "nft", "list", "table", "inet", "user")
    # All flags set at once make any tracked segment invalid: the one beside the mapped ports shows it.
    assert "packets 1 " in listed, (listed, dropped)

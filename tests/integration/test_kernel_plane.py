"""The kernel plane on real packets: flows are bound, stay, migrate, survive the daemon; nothing is left behind."""

from __future__ import annotations

import itertools
import os
import shutil
import socket
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kernel_lab import CLIENT4, CLIENT6, SERVER4, SERVER6, WAYPOINT4, WAYPOINT6, End, EndError, KernelLab, Stream

from hyroads.mininet.programs import run, wait_until

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("nft") is None, reason="needs root and nftables"),
]

# The kernel tells of a carrier up to 1 s late, a busy machine later still.
WITHIN_S = 10.0
# Far below a TCP's retransmissions after an outage, far above what a busy machine takes to run a thread.
MOST_GAP_S = 0.18
_labs = itertools.count()


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[KernelLab]:
    with KernelLab(f"hr-kp{os.getpid()}-{next(_labs)}", tmp_path, 2) as lab:
        yield lab


def listen(lab: KernelLab, address: str, port: int, kind: int = socket.SOCK_STREAM) -> socket.socket:
    server = lab.socket("server", socket.AF_INET6 if ":" in address else socket.AF_INET, kind)
    server.bind((address, port))
    if kind == socket.SOCK_STREAM:
        server.listen(32)
    return server


def connect(lab: KernelLab, listener: socket.socket, side: str = "client") -> tuple[socket.socket, socket.socket, str]:
    """Both ends of a new connection, and the address that the server sees."""
    client = lab.socket(side, listener.family)
    client.connect(listener.getsockname()[:2])
    server, peer = listener.accept()
    server.settimeout(10)
    return client, server, peer[0]


def echo(client: socket.socket, server: socket.socket) -> None:
    client.sendall(b"there")
    assert server.recv(10) == b"there"
    server.sendall(b"back")
    assert client.recv(10) == b"back"


def only_flow(end: End, port: int) -> dict[str, Any]:
    [flow] = [each for each in end.do("flows") if each["destination"][1] == port]
    return flow


def carrier(lab: KernelLab, number: int, up: bool) -> None:
    """Pull or plug the cable of an interface, at its far end."""
    run("ip", "-n", lab.namespace("net"), "link", "set", f"e{number}-c", "up" if up else "down")


def through_waypoint(lab: KernelLab, **rule: Any) -> tuple[End, End]:
    client, waypoint = lab.end("client"), lab.end("waypoint")
    waypoint.do("install", document=lab.sessions())
    client.do("install", document=lab.through_waypoint(**rule))
    return client, waypoint


@pytest.mark.parametrize(("server", "prefix"), [(SERVER4, "10.1."), (SERVER6, "fd01:")])
def test_connections_share_the_interfaces_and_keep_theirs(lab: KernelLab, server: str, prefix: str) -> None:
    end = lab.end("client")
    end.do("install", document=lab.document())
    listener = listen(lab, server, 7000)
    pairs = [connect(lab, listener) for _ in range(8)]
    seen = Counter(peer for _, _, peer in pairs)
    assert len(seen) == 2 and set(seen.values()) == {4} and all(peer.startswith(prefix) for peer in seen)
    assert {client.getsockname()[0] for client, _, _ in pairs} == {CLIENT6 if ":" in server else CLIENT4}
    # Ports are kept, as nothing collides.
    assert all(client.getsockname()[1] == far.getpeername()[1] for client, far, _ in pairs)
    for client, far, _ in pairs * 2:
        echo(client, far)
    by_interface = Counter(flow["interface"] for flow in end.do("flows") if flow["protocol"] == "tcp")
    assert by_interface == {"e1": 4, "e2": 4}


def test_rates_weigh_and_the_first_rule_that_matches_wins(lab: KernelLab) -> None:
    end = lab.end("client")
    interfaces = [{"name": "e1", "rate_mbps": 30.0}, {"name": "e2", "rate_mbps": 10.0}]
    voice = {"name": "voice", "match": {"protocol": "udp", "destination_port": [5060, 5061]}, "interfaces": ["e2"]}
    rest = {"name": "rest", "match": {}, "interfaces": ["e1", "e2"]}
    end.do("install", document=lab.document(interfaces=interfaces, rules=[voice, rest]))
    phone = listen(lab, SERVER4, 5060, socket.SOCK_DGRAM)
    for _ in range(5):
        caller = lab.socket("client", kind=socket.SOCK_DGRAM)
        caller.connect((SERVER4, 5060))
        caller.send(b"hello")
        _, peer = phone.recvfrom(100)
        phone.sendto(b"answer", peer)
        assert (peer[0], caller.recv(100)) == ("10.1.2.2", b"answer")
    listener = listen(lab, SERVER4, 7000)
    assert Counter(connect(lab, listener)[2] for _ in range(16)) == {"10.1.1.2": 12, "10.1.2.2": 4}


def test_echo_requests_pass(lab: KernelLab) -> None:
    lab.end("client").do("install", document=lab.document())
    for server in (SERVER4, SERVER6):
        assert " 0% packet loss" in lab.run("client", "ping", "-n", "-c", "3", "-i", "0.1", "-W", "2", server)


def test_hosts_behind_a_router_are_bound_too(lab: KernelLab) -> None:
    lab.add_lan()
    client, waypoint = lab.end("client"), lab.end("waypoint")
    for server, port in ((SERVER4, 7000), (SERVER6, 7001)):
        listener = listen(lab, server, port)
        client.do("install", document=lab.document())
        pairs = [connect(lab, listener, "lan") for _ in range(4)]
        assert set(Counter(peer for _, _, peer in pairs).values()) == {2}
        waypoint.do("install", document=lab.sessions())
        client.do("install", document=lab.through_waypoint())
        near, far, peer = connect(lab, listener, "lan")
        assert peer in (WAYPOINT4, WAYPOINT6)
        echo(near, far)
        for near, far, _ in pairs:
            echo(near, far)


@pytest.mark.parametrize("down", [False, True])
@pytest.mark.parametrize("server", [SERVER4, SERVER6])
def test_a_running_connection_migrates_through_the_waypoint(lab: KernelLab, server: str, down: bool) -> None:
    client, _ = through_waypoint(lab)
    stream = Stream(lab, server, down=down)
    assert stream.peer[0] == (WAYPOINT6 if ":" in server else WAYPOINT4)
    flow = only_flow(client, 7000)
    stream.forget_gap()
    for interface, other in (("e2", "e1"), ("e1", "e2"), ("e2", "e1")):
        client.do("migrate", flow=flow["id"], interface=interface)
        assert only_flow(client, 7000)["interface"] == interface
        time.sleep(0.1)
        before = lab.sent(interface), lab.sent(other)
        time.sleep(0.3)
        assert lab.sent(interface) > before[0] + 20
        assert lab.sent(other) < before[1] + 10
    stream.stop()
    assert stream.gap_s < MOST_GAP_S


def test_a_running_connection_migrates_by_a_peer(lab: KernelLab) -> None:
    """The server runs the plane itself: it is the end of the tunnels, and no address is rewritten."""
    client, peer = lab.end("client"), lab.end("server")
    peer.do("install", document=lab.sessions())
    client.do("install", document=lab.through_waypoint(SERVER4))
    stream = Stream(lab)
    assert stream.peer[0] == CLIENT4
    flow = only_flow(client, 7000)
    for interface in ("e2", "e1"):
        client.do("migrate", flow=flow["id"], interface=interface)
        time.sleep(0.2)
    stream.stop()
    assert stream.gap_s < MOST_GAP_S


def test_udp_goes_through_the_waypoint_and_migrates(lab: KernelLab) -> None:
    client, _ = through_waypoint(lab)
    server = listen(lab, SERVER4, 5060, socket.SOCK_DGRAM)
    caller = lab.socket("client", kind=socket.SOCK_DGRAM)
    caller.connect((SERVER4, 5060))
    peers = set()
    for number in range(40):
        if number % 10 == 0 and number:
            client.do("migrate", flow=only_flow(client, 5060)["id"], interface=f"e{1 + number // 10 % 2}")
        # Whole, in two fragments, in a few, and the longest datagram of UDP over IPv4.
        sent = bytes([number]) * (1200, 1473, 4000, 65_507)[number % 4]
        caller.send(sent)
        data, peer = server.recvfrom(1 << 16)
        server.sendto(data, peer)
        assert caller.recv(1 << 16) == sent
        peers.add(peer)
    assert len(peers) == 1


def test_tunnels_pass_nats_that_change_ports(lab: KernelLab) -> None:
    nat = "\n".join(
        [
            "table ip nat {",
            "chain post { type nat hook postrouting priority srcnat;",
            'oifname "wan-w" ip saddr 10.1.1.0/24 meta l4proto udp snat to 192.0.2.254:31000-31999',
            'oifname "wan-w" ip saddr 10.1.2.0/24 meta l4proto udp snat to 192.0.2.254:32000-32999',
            "}",
            "}",
        ]
    )
    rules = lab.folder / "nat.nft"
    rules.write_text(nat + "\n")
    lab.run("net", "nft", "-f", str(rules))
    client, waypoint = lab.end("client"), lab.end("waypoint")
    waypoint.do("install", document=lab.sessions({1: "192.0.2.254", 2: "192.0.2.254"}))
    client.do("install", document=lab.through_waypoint())
    # A packet of the client shows where its NAT has put it; the daemons send such ones over each tunnel.
    for number in (1, 2):
        probe = lab.socket("client", kind=socket.SOCK_DGRAM)
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, f"hrk{7 << 4 | number - 1:x}".encode())
        probe.bind((CLIENT4, 0))
        probe.sendto(b"here", ("169.254.102.1", 9))
    time.sleep(0.1)
    waypoint.do("learn")
    stream = Stream(lab)
    flow = only_flow(client, 7000)
    for interface in ("e2", "e1"):
        client.do("migrate", flow=flow["id"], interface=interface)
        time.sleep(0.2)
    stream.stop()
    assert stream.gap_s < MOST_GAP_S


@pytest.mark.parametrize("down", [False, True])
def test_a_lost_carrier_moves_what_goes_through_the_waypoint(lab: KernelLab, down: bool) -> None:
    client, waypoint = through_waypoint(lab)
    stream = Stream(lab, down=down)
    first = only_flow(client, 7000)["interface"]
    carrier(lab, int(first[1:]), False)
    wait_until("the other interface", lambda: only_flow(client, 7000)["interface"] not in (None, first), WITHIN_S)
    usable = tuple(each["number"] for each in client.do("paths") if each["usable"])
    waypoint.do("install", document=lab.sessions(usable=usable))
    # TCP sends again after its retransmission timeout, which may have doubled a few times.
    time.sleep(0.1)
    arrived = stream.received_bytes
    wait_until("bytes over the other interface", lambda: stream.received_bytes > arrived + 100_000, WITHIN_S)
    carrier(lab, int(first[1:]), True)
    stream.stop()


def test_a_lost_carrier_takes_no_new_flows_and_resets_direct_ones_after_a_while(lab: KernelLab) -> None:
    end = lab.end("client")
    end.do("install", document=lab.document())
    listener = listen(lab, SERVER4, 7000)
    pairs = {peer: (client, server) for client, server, peer in (connect(lab, listener) for _ in range(2))}
    carrier(lab, 1, False)
    wait_until("the daemon", lambda: not end.do("paths")[0]["usable"], WITHIN_S)
    assert {connect(lab, listener)[2] for _ in range(4)} == {"10.1.2.2"}
    # A short loss is survived ...
    dead = pairs["10.1.1.2"][0]
    dead.sendall(b"there")
    carrier(lab, 1, True)
    assert pairs["10.1.1.2"][1].recv(10) == b"there"
    # ... a long one is told to the application.
    carrier(lab, 1, False)
    time.sleep(4.5)
    with pytest.raises(ConnectionResetError):
        for _ in range(20):
            dead.sendall(b"anyone?")
            time.sleep(0.1)
    echo(*pairs["10.1.2.2"])


def test_all_goes_on_when_the_daemons_die_and_when_they_start_again(lab: KernelLab) -> None:
    client, waypoint = through_waypoint(lab)
    stream = Stream(lab)
    rules = lab.run("client", "nft", "list", "ruleset"), lab.run("waypoint", "nft", "-s", "list", "chains")
    client.kill()
    waypoint.kill()
    listener = listen(lab, SERVER4, 7001)
    for _ in range(4):
        echo(*connect(lab, listener)[:2])
    stream.forget_gap()
    client, waypoint = lab.end("client"), lab.end("waypoint")
    waypoint.do("install", document=lab.sessions())
    client.do("install", document=lab.through_waypoint())
    flow = only_flow(client, 7000)
    client.do("migrate", flow=flow["id"], interface="e1" if flow["interface"] == "e2" else "e2")
    time.sleep(0.3)
    assert rules == (lab.run("client", "nft", "list", "ruleset"), lab.run("waypoint", "nft", "-s", "list", "chains"))
    stream.stop()
    assert stream.gap_s < MOST_GAP_S


def snapshot(lab: KernelLab, side: str) -> str:
    commands = "nft list ruleset; ip rule; ip -6 rule; ip -br link; ip -br addr; ip route show table all; " + (
        "ip -6 route show table all | grep -v expires; sysctl -a 2>/dev/null | grep -E 'forwarding|rp_filter|_acct'"
    )
    return lab.run(side, "sh", "-c", commands)


@pytest.mark.parametrize("crashed", [False, True])
def test_nothing_is_left_behind(lab: KernelLab, crashed: bool) -> None:
    lab.run("client", "sysctl", "-qw", "net.ipv4.conf.e1.rp_filter=1", "net.ipv4.conf.all.rp_filter=1")
    before = [snapshot(lab, side) for side in ("client", "waypoint")]
    client, waypoint = through_waypoint(lab)
    listener = listen(lab, SERVER4, 7000)
    for _ in range(4):
        echo(*connect(lab, listener)[:2])
    assert [snapshot(lab, side) for side in ("client", "waypoint")] != before
    if crashed:
        client.kill()
        waypoint.kill()
        client, waypoint = lab.end("client"), lab.end("waypoint")
    client.do("remove")
    waypoint.do("remove")
    assert [snapshot(lab, side) for side in ("client", "waypoint")] == before


def test_a_state_file_that_is_not_true_does_no_harm(lab: KernelLab) -> None:
    """It survived what it tells of (a namespace, a device), or it is broken."""
    client, _ = through_waypoint(lab)
    listener = listen(lab, SERVER4, 7000)
    state = lab.folder / "client.json"
    told = state.read_text()
    run("ip", "-n", lab.namespace("client"), "link", "del", "hrk70")
    client.do("install", document=lab.through_waypoint())
    echo(*connect(lab, listener)[:2])
    client.do("remove")
    for text in (told, "{", '{"items": [[1]], "ruleset": 1, "sysctls": [], "numbers": {}}'):
        client.kill()
        state.write_text(text)
        client = lab.end("client")
        client.do("install", document=lab.through_waypoint())
        echo(*connect(lab, listener)[:2])


def test_what_is_refused_changes_nothing(lab: KernelLab) -> None:
    client, _ = through_waypoint(lab)
    before = lab.run("client", "nft", "list", "ruleset")
    wrong = lab.document()
    wrong["rules"][0]["interfaces"] = ["e3"]
    with pytest.raises(EndError, match=r"configure: rules\[0\]\.interfaces\[0\].*e3"):
        client.do("install", document=wrong)
    with pytest.raises(EndError, match="flow 5 is unknown"):
        client.do("migrate", flow=5, interface="e1")
    listener = listen(lab, SERVER4, 7000)
    echo(*connect(lab, listener)[:2])
    flow = only_flow(client, 7000)
    with pytest.raises(EndError, match="interface 'e9' is unknown"):
        client.do("migrate", flow=flow["id"], interface="e9")
    carrier(lab, 2, False)
    wait_until("the daemon", lambda: not client.do("paths")[1]["usable"], WITHIN_S)
    with pytest.raises(EndError, match="interface e2 is not usable"):
        client.do("migrate", flow=flow["id"], interface="e2")
    carrier(lab, 2, True)
    wait_until("the daemon", lambda: client.do("paths")[1]["usable"], WITHIN_S)
    assert lab.run("client", "nft", "list", "ruleset") == before
    client.do("install", document=lab.document())
    echo(*connect(lab, listener)[:2])
    direct = next(each for each in client.do("flows") if each["via"] == "direct")
    with pytest.raises(EndError, match="goes directly and can't migrate"):
        client.do("migrate", flow=direct["id"], interface="e2")


def test_strangers_reach_nothing_through_a_tunnel(lab: KernelLab) -> None:
    """Neither from another address than the session's, nor with another inner address than its own."""
    _, waypoint = through_waypoint(lab)
    waypoint.do("install", document=lab.sessions({1: "10.1.1.2", 2: "10.1.77.2"}))
    stranger = lab.socket("client", kind=socket.SOCK_DGRAM)
    stranger.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"hrk71")
    phone = listen(lab, SERVER4, 5060, socket.SOCK_DGRAM)
    phone.settimeout(0.5)
    stranger.bind((CLIENT4, 0))
    run("ip", "-n", lab.namespace("client"), "route", "add", SERVER4, "via", "169.254.102.1", "dev", "hrk71", "onlink")
    run(
        "ip",
        "-n",
        lab.namespace("client"),
        "route",
        "add",
        SERVER4,
        "via",
        "169.254.102.1",
        "dev",
        "hrk70",
        "onlink",
        "metric",
        "9",
    )
    stranger.sendto(b"hello", (SERVER4, 5060))
    with pytest.raises(TimeoutError):
        phone.recvfrom(100)
    # The first tunnel is the session's, but this inner address is not.
    run("ip", "-n", lab.namespace("client"), "addr", "add", "100.72.0.3/32", "dev", "hr0")
    for source, arrives in (("100.72.0.3", False), (CLIENT4, True)):
        sender = lab.socket("client", kind=socket.SOCK_DGRAM)
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"hrk70")
        sender.bind((source, 0))
        sender.sendto(source.encode(), (SERVER4, 5060))
        if arrives:
            assert phone.recvfrom(100)[0] == source.encode()
        else:
            with pytest.raises(TimeoutError):
                phone.recvfrom(100)

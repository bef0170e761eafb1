"""The client stack on real packets: what arrives is what was sent, over whatever interfaces, whatever dies."""

from __future__ import annotations

import errno
import os
import signal
import socket
import time
from itertools import pairwise

import pytest
from client_stack_rig import NameServers, ask, new_stack, resets_seen

from hyroads.mininet.client_stack import INNER4, SERVER4, SERVER6, WAYPOINT4, WAYPOINT_PORT, Uplink
from hyroads.mininet.control_sockets import StackError
from hyroads.mininet.programs import wait_until
from hyroads.mininet.stack_traffic import Stream, Transfer, ping_ms, socket_of

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="needs root")]

SERVERS = {4: SERVER4, 6: SERVER6}
# Longer than any pause that a machine busy with other tests makes; what is wrong here stands still for seconds.
PAUSE_S = 1.0
# In two fragments, in a few, and the longest datagram of UDP over IPv4.
LONG_BYTES = (1473, 4000, 65_507)


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    """Two interfaces as fast as the machine."""
    with new_stack(tmp_path_factory.mktemp("stack"), [Uplink(), Uplink()]) as made:
        made.configure()
        made.wait_alive()
        yield made


@pytest.fixture(scope="module")
def paced(tmp_path_factory):
    """Two interfaces with rates that can be told apart."""
    with new_stack(tmp_path_factory.mktemp("paced"), [Uplink(15), Uplink(20)]) as made:
        made.configure()
        made.wait_alive()
        yield made


@pytest.fixture
def usual(paced):
    """The two interfaces with nothing but the usual rule, before and afterwards."""
    paced.configure()
    paced.wait_alive()
    yield paced
    for number in (0, 1):
        paced.set_carrier(number, up=True)
        paced.drop(number, 0)


def other_of(interface):
    return "if1" if interface == "if0" else "if0"


def number_of(interface):
    return int(interface.removeprefix("if"))


def flow_of(stack, transfer):
    return stack.flow(protocol="tcp", destination=transfer.destination)


# Every protocol, both ways


@pytest.mark.parametrize("upload", [True, False], ids=["up", "down"])
@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("via", ["direct", "waypoint"])
def test_tcp_carries_the_same_bytes(stack, via, version, upload):
    stack.configure(via=via)
    with Transfer(stack, version=version, upload=upload, limit_mbps=200) as transfer:
        time.sleep(0.3)
        flow = flow_of(stack, transfer)
        assert transfer.finish().exact
    assert flow["via"] == via
    # Half of what was asked for, at least, was not stopped by anything.
    assert transfer.received_bytes > 0.5 * 0.3 * 200e6 / 8
    sent, received = flow["sent_bytes"], flow["received_bytes"]
    assert (sent > received) == upload


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("via", ["direct", "waypoint"])
def test_udp_and_its_answers_arrive_once_and_in_order(stack, via, version):
    stack.configure(via=via)
    with Stream(stack, version=version, interval_s=0.001, size=900, echo=True) as stream:
        time.sleep(0.3)
        stream.finish()
        assert len(stream.sent_s) > 100
        assert (stream.lost, stream.doubled, stream.out_of_order, stream.wrong) == (0, 0, 0, 0)


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("via", ["direct", "waypoint"])
def test_pings_are_answered(stack, via, version):
    stack.configure(via=via)
    assert len(ping_ms(stack, SERVERS[version], 5)) == 5


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("via", ["direct", "waypoint"])
def test_packets_larger_than_the_mtu_arrive_in_fragments(stack, via, version):
    stack.configure(via=via)
    if version == 6:
        # In IPv6 each end learns the MTU of a tunnel by its first packet, which is lost.
        stack.run("client", "ping", "-n", "-c", "3", "-i", "0.1", "-W", "2", "-s", "1452", SERVERS[version])
    for size in LONG_BYTES:
        said = stack.run("client", "ping", "-n", "-c", "1", "-W", "2", "-M", "dont", "-s", str(size), SERVERS[version])
        assert " 1 received" in said, size
        with Stream(stack, version=version, interval_s=0.02, size=size, echo=True) as stream:
            wait_until("datagrams", lambda: len(stream.sent_s) >= 20, 10.0)
            stream.finish()
            assert (stream.lost, stream.doubled, stream.wrong) == (0, 0, 0), size


def test_the_kernel_answers_no_reset_to_direct_flows(stack):
    stack.configure([{"name": "rest", "interfaces": ["if0"], "via": "direct"}])
    with resets_seen(stack, 0) as resets, Transfer(stack, upload=False, limit_mbps=50) as transfer:
        time.sleep(0.3)
        assert transfer.finish().exact
    assert not resets


# Moving


@pytest.mark.parametrize("to", ["server", "waypoint"])
@pytest.mark.parametrize("upload", [True, False], ids=["up", "down"])
def test_a_running_connection_moves_without_a_wrong_byte(usual, to, upload):
    """Through the waypoint to a server that knows nothing, and to a peer, which is the waypoint itself."""
    with Transfer(usual, to, upload=upload) as transfer:
        time.sleep(0.6)
        moments = []
        for _ in range(3):
            flow = flow_of(usual, transfer)
            usual.migrate(flow["id"], other_of(flow["interface"]))
            moments.append(time.monotonic())
            time.sleep(0.5)
            assert flow_of(usual, transfer)["interface"] == other_of(flow["interface"])
        end_s = time.monotonic()
        assert transfer.finish().exact
    for moment_s, next_s in pairwise([*moments, end_s]):
        assert transfer.longest_gap_s(moment_s - 0.1, next_s) < 0.3
        assert transfer.mbps(moment_s, next_s) > 0.6 * 15


def test_a_direct_flow_does_not_move_and_keeps_its_address(usual):
    usual.configure(via="direct")
    with Transfer(usual) as transfer:
        flow = flow_of(usual, transfer)
        with pytest.raises(StackError, match="migrate: flow"):
            usual.migrate(flow["id"], other_of(flow["interface"]))
        with pytest.raises(StackError, match="migrate: "):
            usual.migrate(60_000, "if0")
        time.sleep(0.2)
        assert flow_of(usual, transfer)["interface"] == flow["interface"]
        assert transfer.finish().exact


@pytest.mark.parametrize("upload", [True, False], ids=["up", "down"])
def test_a_connection_survives_the_loss_of_each_carrier(usual, upload):
    with Transfer(usual, upload=upload) as transfer:
        time.sleep(0.5)
        for _ in range(2):
            interface = flow_of(usual, transfer)["interface"]
            lost_s = time.monotonic()
            usual.set_carrier(number_of(interface), up=False)
            time.sleep(0.6)
            assert flow_of(usual, transfer)["interface"] == other_of(interface)
            usual.set_carrier(number_of(interface), up=True)
            usual.wait_alive()
            assert transfer.longest_gap_s(lost_s - 0.1, time.monotonic()) < PAUSE_S
        assert transfer.finish().exact


def test_nothing_is_lost_at_the_sender_with_a_carrier(usual):
    """What the dead interface was given last is sent again: of a stream near its rate at most one packet is missing,
    the one that was on the wire."""
    with Stream(usual, interval_s=0.001, size=1200) as stream:
        time.sleep(0.4)
        interface = usual.flow(protocol="udp", destination=f"{SERVER4}:{stream.port}")["interface"]
        usual.set_carrier(number_of(interface), up=False)
        time.sleep(0.4)
        stream.finish()
        assert stream.lost <= 3
        assert stream.doubled == 0


def test_an_interface_that_carries_nothing_is_left(usual):
    """It is up and has its carrier; only the network behind it drops everything."""
    with Transfer(usual) as transfer:
        time.sleep(0.5)
        interface = flow_of(usual, transfer)["interface"]
        usual.drop(number_of(interface), 100)
        silent_s = time.monotonic()
        wait_until("the other interface", lambda: flow_of(usual, transfer)["interface"] != interface, 3)
        time.sleep(1.0)
        assert transfer.mbps(time.monotonic() - 0.5, time.monotonic()) > 0.6 * 15
        assert transfer.longest_gap_s(silent_s, time.monotonic()) < 2.0
        status = {link["name"]: link for link in usual.request("status")["interfaces"]}
        assert status[interface]["up"] and not status[interface]["alive"]
        usual.drop(number_of(interface), 0)
        usual.wait_alive()
        assert transfer.finish().exact


def test_an_interface_is_plugged_in_and_pulled_out_under_load(usual):
    with Transfer(usual) as transfer:
        time.sleep(0.3)
        name = usual.plug(Uplink(30))
        try:
            usual.configure()
            usual.wait_alive()
            usual.migrate(flow_of(usual, transfer)["id"], name)
            time.sleep(0.6)
            assert flow_of(usual, transfer)["interface"] == name
            assert transfer.mbps(time.monotonic() - 0.3, time.monotonic()) > 20
        finally:
            usual.unplug()
        pulled_s = time.monotonic()
        time.sleep(0.5)
        usual.configure()
        assert flow_of(usual, transfer)["interface"] in usual.names
        assert transfer.longest_gap_s(pulled_s, time.monotonic()) < PAUSE_S
        assert transfer.finish().exact


# Several interfaces at once


def test_one_connection_uses_all_interfaces(usual):
    usual.configure([{"name": "all", "interfaces": usual.names, "via": "waypoint", "spread": "packet"}])
    with Transfer(usual) as transfer:
        time.sleep(1.5)
        end_s = time.monotonic()
        assert set(flow_of(usual, transfer)["interfaces"]) == {"if0", "if1"}
        assert transfer.finish().exact
    # The faster one alone gives 20, without headers 19.
    assert transfer.mbps(end_s - 1.0, end_s) > 1.25 * 20


def test_copies_arrive_once_whatever_one_interface_loses(usual):
    usual.configure([{"name": "sure", "interfaces": usual.names, "via": "waypoint", "copies": True}])
    with Stream(usual, interval_s=0.002) as stream:
        time.sleep(0.2)
        usual.drop(0, 30)
        time.sleep(0.4)
        usual.drop(0, 100)
        time.sleep(0.4)
        stream.finish()
        assert (stream.lost, stream.doubled, stream.wrong) == (0, 0, 0)
        assert max(stream.delays_s()) < 0.3


# When the program dies


def goes_on(transfer: Transfer) -> None:
    """Waits until it has its rate again for half a second; TCP first waits for its own timer."""
    back_s = time.monotonic()

    def carries() -> bool:
        now_s = time.monotonic()
        return now_s - back_s > 0.5 and transfer.mbps(now_s - 0.5, now_s) > 10

    wait_until("the rate again", carries, 5)


def test_direct_connections_outlive_the_program(stack):
    stack.configure(via="direct")
    # As the daemon does before it starts the program again: interfaces first, then what was going on.
    with Transfer(stack, limit_mbps=20) as transfer:
        time.sleep(0.3)
        before = flow_of(stack, transfer)
        stack.programs["hyroads-client"].kill(signal.SIGKILL)
        wait_until("the end", lambda: not stack.programs["hyroads-client"].alive, 2)
        stack.start_client()
        stack.configure(via="direct")
        goes_on(transfer)
        after = flow_of(stack, transfer)
        assert after["interface"] == before["interface"]
        assert transfer.finish().exact


def test_connections_through_the_waypoint_outlive_the_program(stack):
    stack.configure(via="waypoint")
    with Transfer(stack, limit_mbps=20) as transfer:
        time.sleep(0.3)
        stack.programs["hyroads-client"].kill(signal.SIGKILL)
        wait_until("the end", lambda: not stack.programs["hyroads-client"].alive, 2)
        stack.start_client()
        stack.configure(via="waypoint")
        goes_on(transfer)
        assert transfer.finish().exact


# Odd networks


def test_two_interfaces_in_the_same_private_network(tmp_path):
    """192.168.1.2 behind 192.168.1.1 on both: each flow keeps to its own, and direct ones use both."""
    with new_stack(tmp_path, [Uplink(private=True), Uplink(private=True)]) as twins:
        twins.configure()
        twins.wait_alive()
        for via in ("waypoint", "direct"):
            for interface in twins.names:
                twins.configure([{"name": "rest", "interfaces": [interface], "via": via}])
                with Transfer(twins, limit_mbps=50) as transfer:
                    time.sleep(0.15)
                    assert flow_of(twins, transfer)["interface"] == interface
                    assert transfer.finish().exact
        links = twins.request("status")["interfaces"]
        assert all(link["sent_bytes"] > 500_000 for link in links)


@pytest.mark.parametrize("via", ["direct", "waypoint"])
def test_an_interface_with_a_smaller_mtu(tmp_path, via):
    """TCP fits itself to it; a packet that does not fit and must not be cut is refused with the size that does."""
    with new_stack(tmp_path, [Uplink(mtu=1400), Uplink()]) as narrow:
        narrow.configure([{"name": "rest", "interfaces": ["if0"], "via": via}])
        narrow.wait_alive(["if0"])
        for upload in (True, False):
            with Transfer(narrow, upload=upload, limit_mbps=50) as transfer:
                time.sleep(0.2)
                assert transfer.finish().exact
        with socket_of(narrow, "client", 4, socket.SOCK_DGRAM) as client:
            client.setsockopt(socket.IPPROTO_IP, 10, 2)  # IP_MTU_DISCOVER: always
            client.connect((SERVER4, 9))
            with pytest.raises(OSError) as refused:
                for _ in range(50):
                    time.sleep(0.02)
                    client.send(bytes(1450))
            assert refused.value.errno in (errno.EMSGSIZE, errno.ECONNREFUSED)
            path_mtu = client.getsockopt(socket.IPPROTO_IP, 14)  # IP_MTU
            assert path_mtu == (1400 if via == "direct" else 1400 - 52)


def test_each_interface_asks_its_own_name_server(stack):
    """A program asks the one that it knows; the question goes to one of the network that it leaves by."""
    names = ["10.200.0.1", "10.200.0.2"]
    interfaces = [{"name": f"if{k}", "dns": [names[k]]} for k in (0, 1)]
    with NameServers(stack, names) as servers:
        for k in (0, 1):
            stack.configure([{"name": "rest", "interfaces": [f"if{k}"], "via": "direct"}], interfaces)
            assert ask(stack, names[0]) == (names[0], names[k])
    assert servers.asked == names


# Strangers


def test_strangers_datagrams_are_counted_and_change_nothing(stack):
    stack.configure(via="waypoint")
    stack.wait_alive()
    session = (7).to_bytes(4, "big")
    before = stack.request("status", "waypoint")
    endpoints = [link["endpoint"] for link in before["sessions"][0]["interfaces"]]
    with Transfer(stack, limit_mbps=20) as transfer, socket_of(stack, "server", 4, socket.SOCK_DGRAM) as stranger:
        for kind in range(12):
            for body in (b"", session, session + bytes(8), session + bytes(100), bytes(1200)):
                stranger.sendto(bytes([kind]) + bytes(11) + body, (WAYPOINT4, WAYPOINT_PORT))
        time.sleep(0.3)
        assert transfer.finish().exact
    after = stack.request("status", "waypoint")
    counted = ("malformed", "unauthenticated", "strangers")
    assert sum(after["counters"][name] - before["counters"][name] for name in counted) == 60
    assert [link["endpoint"] for link in after["sessions"][0]["interfaces"]] == endpoints


def test_strangers_packets_to_the_client_have_no_effect(stack):
    """Neither at ports of flows, nor at those of none, nor at the tunnel's."""
    stack.configure(via="direct")
    with (
        Stream(stack, interval_s=0.002, echo=True) as stream,
        socket_of(stack, "router", 4, socket.SOCK_DGRAM) as stranger,
    ):
        time.sleep(0.1)
        for port in (*range(20_000, 20_100), WAYPOINT_PORT):
            for interface in (1, 2):
                stranger.sendto(b"\0\0\0\1stranger" * 8, (f"10.{interface}.0.2", port))
        time.sleep(0.3)
        stream.finish()
        assert (stream.lost, stream.wrong, stream.doubled) == (0, 0, 0)


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        ("dance", {}),
        ("configure", {"colour": "red"}),
        ("configure", {"interfaces": [{"name": "if0"}], "rules": [], "address4": INNER4, "address6": None}),
        ("migrate", {"flow": "one", "interface": "if0"}),
        ("session", {"session": 8, "client": "x", "key": "00" * 16, "address4": "100.72.0.9", "address6": None}),
    ],
)
def test_a_wrong_request_gets_one_line_and_changes_nothing(stack, kind, keys):
    stack.configure(via="direct")
    with stack.control() as control:
        before = control.request("status")
        with pytest.raises(StackError) as refused:
            control.request(kind, **keys)
        after = control.request("status")
    assert "\n" not in str(refused.value)
    wanted = ("name", "usable")
    assert [[link[key] for key in wanted] for link in before["interfaces"]] == [
        [link[key] for key in wanted] for link in after["interfaces"]
    ]

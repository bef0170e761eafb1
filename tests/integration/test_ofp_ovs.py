"""OpenFlow core against a real Open vSwitch: real bytes, real packets."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator

import ovs_rig
import pytest
from ring_world import World, collect, entry, in_namespace, inject, mac

from hyroads.controller.ofp import match as act
from hyroads.controller.ofp import wire
from hyroads.controller.ofp.diff import Change, difference
from hyroads.controller.ofp.intents import ClassifiedFlow
from hyroads.controller.ofp.match import Match
from hyroads.controller.ofp.rule import Rule
from hyroads.controller.ofp.rules import rules_for
from hyroads.controller.ofp.vlan_tags import NO_TAG, TAG_LABEL

pytestmark = [pytest.mark.root, pytest.mark.skipif(not ovs_rig.available(), reason="needs root and Open vSwitch")]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with ovs_rig.Rig() as rig:
        yield World(rig)


def test_every_pair_of_hosts_reaches_each_other(world: World) -> None:
    for source, namespace in world.hosts.items():
        for target in world.hosts:
            if source != target:
                assert world.rig.ping(namespace, world.ip(target), "-c", "3") == 1.0, (source, target)


def test_full_size_and_ipv6(world: World) -> None:
    assert world.rig.ping(world.hosts["p"], world.ip("a"), "-c", "3", "-s", "1472", "-M", "do") == 1.0
    run = ovs_rig.run
    run("ip", "-n", world.hosts["p"], "-6", "addr", "add", "fd00::1/64", "dev", "eth0", "nodad")
    run("ip", "-n", world.hosts["a"], "-6", "addr", "add", "fd00::2/64", "dev", "eth0", "nodad")
    assert world.rig.ping(world.hosts["p"], "fd00::2", "-6", "-c", "3") == 1.0


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(b"\x81\x00\x00\x07\x08\x06" + b"vlan one" * 8, id="vlan"),
        pytest.param(b"\x88\xa8\x00\x07\x81\x00\x00\x09\x99\x99" + b"two vlans" * 8, id="two VLANs"),
        pytest.param(b"\x81\x00\xaf\xfe\x12\x34" + b"vlan 4094, PCP 5" * 8, id="vlan 4094"),
        pytest.param(b"\x88\xa8\xe0\x01\x81\x00\x20\x00\x08\x00" + b"PCP 7 and 1" * 8, id="two PCPs"),
        pytest.param(b"\x88\xb5" + b"shim lookalike" * 8, id="shim type"),
        pytest.param(b"\x88\xb6" + b"hello lookalike" * 8, id="hello type"),
        pytest.param(b"\x12\x34" + bytes(range(256)) * 5, id="unknown type"),
        pytest.param(b"\x00\x2e" + b"\xaa\xaa\x03" + b"llc snap" * 6, id="LLC"),
        pytest.param(b"\x08\x00\x45\x00" + b"\xff" * 60, id="broken IPv4"),
    ],
)
@pytest.mark.parametrize(("source", "target"), [("a", "c"), ("p", "a"), ("a", "q"), ("p", "q")])
def test_frames_of_any_type_arrive_once_and_unchanged(world: World, source: str, target: str, payload: bytes) -> None:
    frame = mac(world.addressing.host_mac[target]) + mac(world.addressing.host_mac[source]) + payload
    with in_namespace(world.hosts[target]) as listener, in_namespace(world.hosts[source]) as sender:
        sender.send(frame)
        heard = collect(listener, payload[-24:], 0.4)
    assert heard == [frame]


@pytest.mark.parametrize("source", ["a", "b", "p"])
def test_broadcast_reaches_every_host_once_without_a_storm(world: World, source: str) -> None:
    listeners = {node: in_namespace(namespace) for node, namespace in world.hosts.items() if node != source}
    text = b"one broadcast of " + source.encode() * 40
    with in_namespace(world.hosts[source]) as sender:
        sender.send(b"\xff" * 6 + mac(world.addressing.host_mac[source]) + b"\x99\x99" + text)
        heard = {node: len(collect(listener, text, 0.5)) for node, listener in listeners.items()}
        assert heard == dict.fromkeys(listeners, 1)
        assert not collect(sender, text, 0.1)
    for listener in listeners.values():
        listener.close()


def test_multicast_with_ttl_one_is_not_lost(world: World) -> None:
    ip = bytes.fromhex("450000240000400001110000") + bytes((10, 0, 0, 1, 224, 0, 0, 251)) + bytes(16)
    frame = mac("01:00:5e:00:00:fb") + mac(world.addressing.host_mac["a"]) + b"\x08\x00" + ip + b"ttl-one-multicast"
    with in_namespace(world.hosts["p"]) as listener, in_namespace(world.hosts["a"]) as sender:
        sender.send(frame)
        assert len(collect(listener, b"ttl-one-multicast", 0.5)) == 1


def test_a_restarted_controller_changes_nothing_and_forwarding_goes_on(world: World) -> None:
    words = ("ip", "netns", "exec", world.hosts["p"], "ping", "-q", "-i", "0.01", "-c", "300", world.ip("a"))
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as pinging:
        for node, connection in world.connections.items():
            connection.close()
            fresh = world.rig.connect(node)
            world.connections[node] = fresh
            change = difference(rules_for(world.intents[node], fresh.ports(), ovs_rig.TAGS).rules, fresh.installed())
            assert change == Change()
        output, _ = pinging.communicate(timeout=30)
    assert " 0% packet loss" in output


def test_repair_touches_only_what_is_wrong(world: World) -> None:
    connection = world.connections["b"]
    rules = world.rules["b"]
    world.rig.ofctl("add-flow", "b", "table=2,priority=3,dl_dst=02:99:00:00:00:01,cookie=0x11,actions=drop")
    stale = Rule(4, 33, Match(eth_dst="02:99:00:00:00:02"), (act.Output(100),))
    lost, altered = rules[3], next(rule for rule in rules if rule.actions and rule.table == 3)
    other = Rule(altered.table, altered.priority, altered.match, (act.Output(100),))
    assert connection.apply(Change(adds=(stale, other))).ok
    gone = next(rule for rule in connection.installed() if rule.cookie == lost.cookie)
    assert connection.apply(Change(deletes=(gone,))).ok
    change = difference(rules, connection.installed())
    assert {rule.cookie for rule in change.adds} == {lost.cookie, altered.cookie}
    assert {rule.cookie for rule in change.deletes} == {stale.cookie}
    assert connection.apply(change).ok
    assert not difference(rules, connection.installed())
    assert "dl_dst=02:99:00:00:00:01" in world.rig.ofctl("dump-flows", "b", "table=2")
    world.rig.ofctl("del-flows", "b", "cookie=0x11/-1")


def test_errors_name_the_refused_rule(world: World) -> None:
    good = Rule(4, 44, Match(eth_dst="02:99:00:00:00:03"), (act.Output(100),))
    bad = Rule(4, 45, Match(eth_dst="02:99:00:00:00:04"), (act.Group(4711),))
    worse = Rule(4, 46, Match(eth_dst="02:99:00:00:00:05"), goto=2)
    batch = world.connections["a"].apply(Change(adds=(good, bad, worse)))
    assert batch.done
    assert not batch.ok
    assert [refusal.subject for refusal in batch.refusals] == [bad, worse]
    change = difference(world.rules["a"], world.connections["a"].installed())
    assert [rule.cookie for rule in change.deletes] == [good.cookie]
    assert world.connections["a"].apply(change).ok


def test_read_back_can_be_narrowed_by_cookie(world: World) -> None:
    rule = world.rules["a"][0]
    flows = world.connections["a"].flow_stats(table=rule.table, cookie=rule.cookie, cookie_mask=(1 << 64) - 1)
    assert [flow.rule.cookie for flow in flows] == [rule.cookie]
    assert flows[0].rule.key == rule.key


def test_a_multipath_flow_travels_by_labels_from_agent_to_agent(world: World) -> None:
    addressing, labels, agents = world.addressing, world.labels, world.rig.agents
    match = Match(eth_src=addressing.host_mac["p"], eth_dst=addressing.host_mac["a"], eth_type=0x9999)
    world.change_to(world.plan(world.network, {"c": (ClassifiedFlow("f1", 16, match),)}))
    user = mac(addressing.host_mac["a"]) + mac(addressing.host_mac["p"]) + b"\x99\x99" + b"a frame of the flow" * 5
    try:
        with in_namespace(agents["c", "acc"]) as access, in_namespace(world.hosts["p"]) as sender:
            sender.send(user)
            (handed,) = collect(access, user, 0.4)
        assert handed[12:] == b"\x88\x47" + entry(16) + user
        # As the agent does: over the air to b, by power line to a; the last label is a's agent.
        stack = entry(labels.link["bc-wifi~"]) + entry(labels.link["ab-plc~"]) + entry(labels.agent["a"])
        with in_namespace(agents["a", "net"]) as listener, in_namespace(agents["c", "net"]) as sender:
            sender.send(b"\x02" * 12 + b"\x88\x47" + stack + b"twelve bytes" + user)
            (arrived,) = collect(listener, user, 0.4)
        assert arrived[12:] == b"\x88\xb5" + b"twelve bytes" + user
        assert arrived[6:12] == mac(addressing.interface_mac["b", "plc"])
        with in_namespace(world.hosts["a"]) as listener, in_namespace(agents["a", "acc"]) as sender:
            sender.send(user)
            assert collect(listener, user, 0.4) == [user]
    finally:
        assert world.change_to(world.intents) == 1


def test_a_tagged_frame_of_a_flow_is_handed_to_the_agent_and_comes_back(world: World) -> None:
    """Whole from user space; from the kernel with the tag as a label (docs/reference/openflow.md, section 6)."""
    addressing, agents = world.addressing, world.rig.agents
    match = Match(eth_src=addressing.host_mac["p"], eth_dst=addressing.host_mac["a"])
    world.change_to(world.plan(world.network, {"c": (ClassifiedFlow("f1", 16, match),)}))
    ends, tag, rest = (
        mac(addressing.host_mac["a"]) + mac(addressing.host_mac["p"]),
        0xA007,
        b"\x99\x99" + b"tagged" * 20,
    )
    user = ends + b"\x81\x00" + tag.to_bytes(2, "big") + rest
    try:
        with in_namespace(agents["c", "acc"]) as access, in_namespace(world.hosts["p"]) as sender:
            sender.send(user)
            (handed,) = collect(access, rest, 0.4)
        if ovs_rig.TAGS is None:
            assert handed[12:] == b"\x88\x47" + entry(16) + user
        else:
            assert handed[12:14] == b"\x88\x47"
            labels = [int.from_bytes(handed[place : place + 4], "big") for place in (14, 18)]
            assert [(label >> 12, label >> 8 & 1) for label in labels] == [(16, 0), (TAG_LABEL | 0x1000 | tag, 1)]
            assert handed[22:] == ends + rest
        with in_namespace(world.hosts["a"]) as listener, in_namespace(agents["a", "acc"]) as sender:
            sender.send(user)
            assert collect(listener, rest, 0.4) == [user]
    finally:
        assert world.change_to(world.intents) == 1


def test_a_path_may_have_more_hops_than_open_vswitch_reads_labels(world: World) -> None:
    """From c to b, and seven times over the power line between a and b: nine labels."""
    agents, labels = world.rig.agents, world.labels
    there_and_back = [labels.link["ab-plc~"], labels.link["ab-plc"]] * 3
    stack = [labels.link["bc-wifi~"], *there_and_back, labels.link["ab-plc~"], labels.agent["a"]]
    with in_namespace(agents["a", "net"]) as listener, in_namespace(agents["c", "net"]) as sender:
        sender.send(b"\x02" * 12 + b"\x88\x47" + b"".join(map(entry, stack)) + b"shim and a frame")
        (arrived,) = collect(listener, b"shim and a frame", 0.4)
    assert arrived[12:] == b"\x88\xb5" + b"shim and a frame"


def test_a_users_mpls_frame_may_travel_by_a_multipath(world: World) -> None:
    """The switch hands it to the agent whole, behind the flow's number; the other edge delivers it."""
    addressing, agents = world.addressing, world.rig.agents
    match = Match(eth_src=addressing.host_mac["p"], eth_dst=addressing.host_mac["a"], eth_type=0x8847)
    world.change_to(world.plan(world.network, {"c": (ClassifiedFlow("f1", 16, match),)}))
    ends = mac(addressing.host_mac["a"]) + mac(addressing.host_mac["p"])
    try:
        for stack in (entry(17), (18 << 12 | 64).to_bytes(4, "big") + entry(19)):
            user = ends + b"\x88\x47" + stack + b"a user's own labels" * 5
            with in_namespace(agents["c", "acc"]) as access, in_namespace(world.hosts["p"]) as sender:
                sender.send(user)
                (handed,) = collect(access, user, 0.4)
            assert handed[12:14] == b"\x88\x47"
            assert int.from_bytes(handed[14:18], "big") >> 12 == 16
            if ovs_rig.TAGS is not None:
                # In a network with a kernel datapath a label of its own says that no VLAN tags follow.
                assert int.from_bytes(handed[18:22], "big") >> 12 == NO_TAG
                handed = handed[4:]
            assert handed[18:] == user
            with in_namespace(world.hosts["a"]) as listener, in_namespace(agents["a", "acc"]) as sender:
                sender.send(user)
                assert collect(listener, user, 0.4) == [user]
    finally:
        assert world.change_to(world.intents) == 1


@pytest.mark.parametrize(("source", "target", "passes"), [("p", "q", True), ("a", "c", False), ("p", "a", False)])
def test_a_users_mpls_frame_is_never_taken_for_one_of_ours(
    world: World, source: str, target: str, passes: bool
) -> None:
    """Whatever its label: within a switch it arrives unchanged, between switches it is lost
    (docs/reference/openflow.md)."""
    addressing, labels = world.addressing, world.labels
    ours = {labels.link["ab-plc"], labels.link["bc-wifi~"], *labels.node.values(), *labels.agent.values(), labels.flood}
    places = {("host", node): name for node, name in world.hosts.items()} | world.rig.agents
    for number in sorted(ours | {16, 17, 4711}):
        text = b"behind label %06d" % number * 4
        ends = mac(addressing.host_mac[target]) + mac(addressing.host_mac[source])
        frame = ends + b"\x88\x47" + entry(number) + text
        with contextlib.ExitStack() as stack:
            listeners = {place: stack.enter_context(in_namespace(name)) for place, name in places.items()}
            listeners["host", source].send(frame)
            heard = {place: collect(listener, text, 0.02) for place, listener in listeners.items()}
        assert {place: frames for place, frames in heard.items() if frames} == (
            {("host", target): [frame]} if passes else {}
        )


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("02:66:00:00:00:01", id="unknown"),
        pytest.param("a wifi", id="a node that c has no link to on this medium"),
        pytest.param("a plc", id="a neighbour on another technology"),
        pytest.param("b plc", id="a neighbour's other interface"),
        pytest.param("c wifi", id="its own"),
    ],
)
def test_labels_from_a_strangers_address_are_delivered_nowhere(world: World, source: str) -> None:
    """0 of 20 of each kind: neither at a host nor at an agent."""
    node, _, technology = source.partition(" ")
    address = world.addressing.interface_mac[node, technology] if technology else source
    assert inject(world, address) == {}


def test_labels_from_a_neighbours_address_are_delivered(world: World) -> None:
    """The same frames, so that the test above can fail. (That a neighbour is who it says is not checked here.)"""
    heard = inject(world, world.addressing.interface_mac["b", "wifi"])
    # At a's host: by its node label, by the label of the link before it, and as a copy of the flooded frame, if c's
    # neighbour in the tree is b.
    assert heard["host", "a"] in (40, 60)
    assert heard["host", "c"] in (20, 40)
    assert heard["net", "c"] == heard["net", "a"] == 20


def test_hello_frames_reach_the_neighbours_agent(world: World) -> None:
    agents, label = world.rig.agents, world.labels.hello["b", "wifi"]
    payload = b"\x01\x00\x28\x00\x00\x00\x07" + bytes(39)
    with in_namespace(agents["c", "net"]) as listener, in_namespace(agents["b", "net"]) as sender:
        sender.send(b"\x02" * 12 + b"\x88\x47" + entry(label) + payload)
        (heard,) = collect(listener, payload, 0.4)
    assert heard == b"\xff" * 6 + mac(world.addressing.interface_mac["b", "wifi"]) + b"\x88\xb6" + payload


def test_changing_routes_under_traffic_loses_nothing(world: World) -> None:
    """Routes go back and forth between two ways around the ring while pings run.

    The ways of b and c to a depend on each other: over b with the first routes, over c with the others. Who is passed
    changes first, or frames circle between the two switches for as long as the second one takes.
    """
    other = world.plan(world.network.with_capacities({"ca-plc": 500, "ca-plc~": 500}))
    words = ("ip", "netns", "exec", world.hosts["p"], "ping", "-q", "-i", "0.01", "-c", "300", world.ip("a"))
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as pinging:
        for _ in range(6):
            assert world.change_to(other, "cba") > 0
            assert world.change_to(world.intents, "abc") > 0
        output, _ = pinging.communicate(timeout=30)
    lost = float(next(part for part in output.split(",") if "packet loss" in part).split("%")[0])
    assert lost <= 1.0, output


def test_everything_open_vswitch_answers_passes_the_guard(world: World) -> None:
    world.rig.ofctl(
        "add-group", "a", "group_id=7,type=all,bucket=output:100,bucket=set_field:02:00:00:00:00:09->eth_dst,output:101"
    )
    world.rig.ofctl("add-meter", "a", "meter=1,kbps,band=type=drop,rate=1000")
    world.rig.ofctl(
        "add-flow", "a", "table=30,tcp,tcp_flags=+syn,actions=ct(commit,nat(src=10.0.0.9)),learn(table=31),group:7"
    )
    connection = world.connections["a"]
    try:
        everything = b"\xff" * 4 + bytes(4)
        aggregate = b"\xff\0\0\0" + b"\xff" * 8 + bytes(20) + wire.match_struct(b"")
        bodies = dict.fromkeys((0, 3, 7, 8, 11, 12, 13), b"") | dict.fromkeys((4, 9, 10), everything)
        bodies |= {2: aggregate, 5: b"\xff" * 8, 6: b"\xff\xff\xff\xfc" + bytes(4)}
        for kind, rest in bodies.items():
            body = kind.to_bytes(2, "big") + bytes(6) + rest
            connection.socket.sendall(wire.message(body, connection.next_xid(), wire.MULTIPART_REQUEST))
            reply = connection.wait(wire.MULTIPART_REPLY)
            assert int.from_bytes(reply[8:10], "big") == kind
            while reply[11] & 1:
                reply = connection.wait(wire.MULTIPART_REPLY)
        for kind, body in ((7, b""), (22, b"\xff" * 4 + bytes(4)), (24, bytes(16)), (26, b"")):
            connection.socket.sendall(wire.message(body, connection.next_xid(), kind))
            connection.wait(kind + 1)
        assert len(connection.flow_stats(table=30)) == 1
        assert connection.errors == []
    finally:
        world.rig.ofctl("del-flows", "a", "table=30")
        world.rig.ofctl("del-groups", "a")
        world.rig.ofctl("del-meters", "a")

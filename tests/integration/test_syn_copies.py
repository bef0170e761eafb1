"""Copies of SYNs for the controller, on real Open vSwitch: where, what, how many, and that the frames go on."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import mptcp_frames as frames
import ovs_rig
from test_ofp_ovs import World, collect, entry, in_namespace, mac

from hyroads.controller.ofp import wire
from hyroads.controller.ofp.access import END_METER, SYN_COOKIES, SYN_METER, end_copy, end_meter, syn_copy
from hyroads.controller.ofp.diff import Change
from hyroads.controller.ofp.intents import ClassifiedFlow
from hyroads.controller.ofp.match import Match
from hyroads.controller.ofp.readback import cookie_of_packet_in, parse_packet_in

pytestmark = [pytest.mark.root, pytest.mark.skipif(not ovs_rig.available(), reason="needs root and Open vSwitch")]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with ovs_rig.Rig() as rig:
        yield World(rig)


class Copies:
    """SYNs are copied at every switch, ``per_s`` at most."""

    def __init__(self, world: World, per_s: int) -> None:
        self.world, self.entry = world, syn_copy(per_s)

    def __enter__(self) -> Copies:
        assert self.entry.meter is not None
        for connection in self.world.connections.values():
            connection.socket.sendall(wire.message(self.entry.meter.messages[0], 1, wire.METER_MOD))
            assert connection.apply(Change(adds=self.entry.rules)).ok
            installed = {rule.key: rule.cookie for rule in connection.installed()}
            assert all(installed[rule.key] == rule.cookie for rule in self.entry.rules)
        self.taken()
        return self

    def __exit__(self, *_: object) -> None:
        delete = wire.meter_mod_body(wire.METER_DELETE, SYN_METER)
        for connection in self.world.connections.values():
            ours = [rule for rule in connection.installed() if rule.cookie in SYN_COOKIES]
            assert connection.apply(Change(deletes=tuple(ours))).ok
            connection.socket.sendall(wire.message(delete, 1, wire.METER_MOD))
            connection.seen.clear()

    def taken(self) -> list[tuple[str, bytes]]:
        """Node and copy, since the last time."""
        time.sleep(0.2)
        found = []
        for node, connection in self.world.connections.items():
            connection.installed()
            messages = [message for message in connection.seen if message[1] == wire.PACKET_IN]
            connection.seen.clear()
            assert all(cookie_of_packet_in(message) in SYN_COOKIES for message in messages)
            # Open vSwitch has no buffers, so it sends the whole frame whatever the action says.
            found += [(node, parse_packet_in(message).frame[:128]) for message in messages]
        return found


def segment(world: World, source: str, target: str, flags: int = 0x02, tag: bytes = b"") -> bytes:
    """A TCP segment of more than 128 bytes."""
    frame = bytearray(frames.from_to(frames.CAPABLE, world.ip(source), world.ip(target), 4000, 80))
    frame[frames.TCP + 13] = flags
    frame[16:18] = (len(frame) - 14 + 80).to_bytes(2, "big")
    macs = (world.addressing.host_mac[target], world.addressing.host_mac[source])
    return b"".join(map(mac, macs)) + tag + bytes(frame[12:]) + b"what follows a SYN in it".ljust(80, b".")


@pytest.mark.parametrize(("source", "target", "enters"), [("a", "b", "a"), ("p", "a", "c"), ("p", "q", "c")])
@pytest.mark.parametrize("tag", [b"", b"\x81\x00\x00\x07"])
def test_a_syn_is_copied_once_where_it_enters_and_arrives(
    world: World, source: str, target: str, enters: str, tag: bytes
) -> None:
    syn = segment(world, source, target, tag=tag)
    with (
        Copies(world, 1000) as copies,
        in_namespace(world.hosts[target]) as listener,
        in_namespace(world.hosts[source]) as sender,
    ):
        others = [segment(world, source, target, flags, tag) for flags in (0x10, 0x18, 0x04)]
        for other in others:
            sender.send(other)
        assert copies.taken() == []
        sender.send(syn)
        assert collect(listener, syn[-80:], 0.4) == [*others, syn]
        assert copies.taken() == [(enters, syn[:128])]


def test_a_syn_of_a_multipath_flow_is_copied_and_goes_to_the_agent(world: World) -> None:
    match = Match(eth_src=world.addressing.host_mac["p"], eth_dst=world.addressing.host_mac["a"])
    world.change_to(world.plan(world.network, {"c": (ClassifiedFlow("f1", 16, match, 59_000),)}))
    syn = segment(world, "p", "a")
    try:
        with (
            Copies(world, 1000) as copies,
            in_namespace(world.rig.agents["c", "acc"]) as access,
            in_namespace(world.hosts["p"]) as sender,
        ):
            sender.send(syn)
            (handed,) = collect(access, syn, 0.4)
            assert handed[12:18] == b"\x88\x47" + entry(16)
            assert copies.taken() == [("c", syn[:128])]
    finally:
        assert world.change_to(world.intents) == 1


@pytest.mark.parametrize("flags", [0x11, 0x04])
def test_an_end_of_one_subflow_is_copied_where_it_enters_and_arrives(world: World, flags: int) -> None:
    macs, ends = world.addressing.host_mac, {"tcp_src": 4000, "tcp_dst": 80, "eth_type": 0x0800}
    entry = end_copy(macs["a"], Match(**ends, ipv4_src=world.ip("a"), ipv4_dst=world.ip("b")))
    meter = end_meter(50).meter
    connection = world.connections["a"]
    assert meter is not None
    connection.socket.sendall(wire.message(meter.messages[0], 1, wire.METER_MOD))
    assert connection.apply(Change(adds=entry.rules)).ok
    assert {rule.cookie for rule in entry.rules} <= {rule.cookie for rule in connection.installed()}
    connection.seen.clear()
    try:
        with in_namespace(world.hosts["b"]) as listener, in_namespace(world.hosts["a"]) as sender:
            # Data of the subflow, the end of another one, and the end of this one.
            other = bytearray(segment(world, "a", "b", flags))
            other[frames.TCP : frames.TCP + 2] = (4001).to_bytes(2, "big")
            end = segment(world, "a", "b", flags)
            sent = [segment(world, "a", "b", 0x10), bytes(other), end]
            for one in sent:
                sender.send(one)
            # What the switch meets for the first time may be overtaken.
            assert sorted(collect(listener, end[-80:], 0.4)) == sorted(sent)
            connection.installed()
            (message,) = [one for one in connection.seen if one[1] == wire.PACKET_IN]
            assert cookie_of_packet_in(message) in {rule.cookie for rule in entry.rules}
            assert parse_packet_in(message).frame[:128] == end[:128]
    finally:
        ours = [rule for rule in connection.installed() if rule.cookie in {rule.cookie for rule in entry.rules}]
        assert connection.apply(Change(deletes=tuple(ours))).ok
        connection.socket.sendall(wire.message(wire.meter_mod_body(wire.METER_DELETE, END_METER), 1, wire.METER_MOD))
        connection.seen.clear()


def test_the_meter_drops_copies_and_nothing_else(world: World) -> None:
    syn = segment(world, "a", "b")
    with (
        Copies(world, 10) as copies,
        in_namespace(world.hosts["b"]) as listener,
        in_namespace(world.hosts["a"]) as sender,
    ):
        for _ in range(100):
            sender.send(syn)
        assert len(collect(listener, syn, 0.4)) == 100
        assert 1 <= len(copies.taken()) <= 30

"""Multicast sessions on a real Open vSwitch: real bytes, groups of type ALL, real packets."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import ovs_rig
from test_ofp_ovs import collect, in_namespace

from hyroads.controller.control.sessions import Host, LiveSession, World, planned, sent_of
from hyroads.controller.core.multicast import GroupRate, Media
from hyroads.controller.core.netfile import load_text
from hyroads.controller.core.routes import all_routes, broadcast_tree
from hyroads.controller.core.services.sessions import SessionSpec, group_address
from hyroads.controller.model.state import TopologyContext
from hyroads.controller.ofp import wire
from hyroads.controller.ofp.diff import difference
from hyroads.controller.ofp.intents import attached_only, default_places, intents_for
from hyroads.controller.ofp.pipeline import TREE_ADDRESS
from hyroads.controller.ofp.readback import parse_groups
from hyroads.controller.ofp.rules import rules_for

pytestmark = [pytest.mark.root, pytest.mark.skipif(not ovs_rig.available(), reason="needs root and Open vSwitch")]

GROUP = "239.1.2.3"
# A star on one medium, where one transmission serves three, and a chain behind it; two plain clients.
STAR = """
nodes:
  a: {role: gateway}
  b: {role: ap}
  c: {role: ap}
  d: {role: ap}
  e: {role: ap}
  p: {role: client}
  q: {role: client}
links:
  - {id: ab, from: a, to: b, technology: wifi, capacity_mbps: 30, both: true}
  - {id: ac, from: a, to: c, technology: wifi, capacity_mbps: 30, both: true}
  - {id: ad, from: a, to: d, technology: wifi, capacity_mbps: 30, both: true}
  - {id: de, from: d, to: e, technology: plc, capacity_mbps: 10, both: true}
  - {id: bp, from: b, to: p, technology: wifi, capacity_mbps: 40, both: true}
  - {id: dq, from: d, to: q, technology: wifi, capacity_mbps: 40, both: true}
interference:
  rule: technology
"""
MEMBERS = ("b", "c", "e", "p", "q")


class World5:
    """The star with a session of five, installed over our own connections."""

    def __init__(self, rig: ovs_rig.Rig) -> None:
        self.rig = rig
        network = load_text(STAR, "star")
        self.context = TopologyContext.of(network)
        self.hosts = rig.build(network, self.context.addressing)
        self.connections = {node: rig.connect(node) for node in self.context.addressing.dpid}
        places = default_places(self.context.addressing)
        attached = attached_only(network, self.context.addressing, places)
        routes = all_routes(attached, (*self.context.addressing.dpid, *places))
        self.world = World(self.context, Media(attached, group_rate=GroupRate.NEIGHBOURS), places)
        labels = self.context.labels
        self.intents = intents_for(network, self.context.addressing, labels, routes, broadcast_tree(network))
        self.install([])
        hosts = tuple(Host(node, True, node, self.context.addressing.host_mac[node]) for node in MEMBERS)
        live = LiveSession(SessionSpec("s", group_address(GROUP), ()), hosts)
        self.live = planned(self.world, live, (), quick=False)
        now = {source: replace(each, current=each.wanted) for source, each in self.live.rollouts.items()}
        self.live = replace(self.live, rollouts=now)

    def install(self, sessions) -> int:
        sent, told = 0, sent_of(self.world, sessions)
        for node, intent in self.intents.items():
            connection = self.connections[node]
            compiled = rules_for(told[node].added_to(intent), connection.ports(), ovs_rig.TAGS)
            change = difference(compiled.rules, connection.installed(), compiled.groups, self.groups(node))
            batch = connection.apply(change)
            assert batch.ok, batch.refusals
            sent += len(change.adds) + len(change.deletes) + len(change.group_adds) + len(change.group_deletes)
        self.rig.revalidated()
        return sent

    def branches(self, node: str):
        return sent_of(self.world, [self.live])[node].branches

    def session(self) -> int:
        return self.install([self.live])

    def groups(self, node: str) -> tuple[int, ...]:
        connection = self.connections[node]
        connection.socket.sendall(wire.group_desc_request(connection.next_xid()))
        found, more = parse_groups(connection.wait(wire.MULTIPART_REPLY))
        assert not more
        return found

    def say(self, source: str, count: int = 20) -> Counter[str]:
        """How often each host gets messages of one, in frames to the group (or a copy addressed to the host)."""
        mac = self.context.addressing.host_mac
        frame = _udp(mac[source], f"from {source}".encode())
        got: Counter[str] = Counter()
        with contextlib.ExitStack() as stack:
            ears = {node: stack.enter_context(in_namespace(name)) for node, name in self.hosts.items()}
            for _ in range(count):
                ears[source].send(frame)
                time.sleep(0.002)
            end = time.monotonic() + 0.5
            for node, ear in ears.items():
                ear.settimeout(0.01)
                while time.monotonic() < end + 0.1:
                    try:
                        data, address = ear.recvfrom(2048)
                    except TimeoutError:
                        if time.monotonic() > end:
                            break
                        continue
                    if address[2] != 4 and data[12:] == frame[12:]:
                        assert data[6:12] == frame[6:12]
                        assert data[:6].hex(":") in (group_address(GROUP).mac, mac[node])
                        got[node] += 1
        return got


def _udp(mac: str, payload: bytes) -> bytes:
    """A UDP datagram to the group with a time to live of 1, as most applications send it."""
    udp = (5000).to_bytes(2, "big") * 2 + (8 + len(payload)).to_bytes(2, "big") + b"\0\0" + payload
    head = bytes((0x45, 0)) + (20 + len(udp)).to_bytes(2, "big") + bytes((0, 0, 0, 0, 1, 17, 0, 0, 10, 0, 0, 9))
    head += bytes(map(int, GROUP.split(".")))
    total = sum(int.from_bytes(head[i : i + 2], "big") for i in range(0, 20, 2))
    total = (total & 0xFFFF) + (total >> 16)
    head = head[:10] + (~total & 0xFFFF).to_bytes(2, "big") + head[12:]
    destination = bytes.fromhex(group_address(GROUP).mac.replace(":", ""))
    return destination + bytes.fromhex(mac.replace(":", "")) + b"\x08\0" + head + udp


@pytest.fixture(scope="module")
def stage() -> Iterator[World5]:
    with ovs_rig.Rig() as rig:
        yield World5(rig)


def test_a_session_of_five_gets_every_message_once_and_ends_without_a_trace(stage: World5) -> None:
    everyone = set(stage.hosts)
    assert stage.say("b") == Counter(dict.fromkeys(everyone - {"b"}, 20))
    assert stage.session() > 0
    assert any(stage.groups(node) for node in stage.intents)
    assert stage.session() == 0
    for source in MEMBERS:
        assert stage.say(source) == Counter({node: 20 for node in MEMBERS if node != source}), source
    assert stage.say("a") == Counter()
    assert stage.install([]) > 0
    assert not any(stage.groups(node) for node in stage.intents)
    assert set(stage.say("a", 1)) == everyone - {"a"}


def test_frames_for_a_tree_are_taken_from_the_parent_alone(stage: World5) -> None:
    """Station p sends group frames to b's WiFi, behind the labels of trees and of b, from addresses not its own."""
    names, labels = stage.context.addressing, stage.context.labels
    stage.session()
    (parent,) = {branch.parent for branch in stage.branches("b") if branch.by_group}
    trees = [branch.label for branch in stage.branches("b") if branch.by_group]
    user = _udp(names.host_mac["c"], b"from the air")
    try:
        with in_namespace(stage.hosts["b"]) as ear, in_namespace(stage.hosts["p"]) as station:

            def heard(source: str, label: int) -> int:
                ends = bytes.fromhex((TREE_ADDRESS + source).replace(":", ""))
                for _ in range(20):
                    station.send(ends + b"\x88\x47" + (label << 12 | 1 << 8 | 64).to_bytes(4, "big") + user)
                    time.sleep(0.002)
                return len(collect(ear, b"from the air", 0.2))

            for label in (*trees, labels.node["b"]):
                assert heard("02:66:00:00:00:01", label) == 0
                assert heard(names.interface_mac["c", "wifi"], label) == 0
            # Frames that are taken are heard here.
            assert heard(parent.mac, trees[0]) == 20
    finally:
        assert stage.install([]) > 0

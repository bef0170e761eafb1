"""A ring of real switches with plain clients, and raw frames that anybody on a medium can send."""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import threading
import time
from collections.abc import Collection

import ovs_rig
from whole_frames import keep_tags, receive_whole

from hyroads.controller.core.addressing import Addressing, Labels
from hyroads.controller.core.netfile import load_text
from hyroads.controller.core.network import Network
from hyroads.controller.core.routes import all_routes, broadcast_tree
from hyroads.controller.ofp.diff import difference
from hyroads.controller.ofp.intents import ClassifiedFlow, SwitchIntent, attached_only, default_places, intents_for
from hyroads.controller.ofp.rules import rules_for

# A ring a-b-c with two technologies between a and b, and two plain clients of c on one WiFi.
RING = """
nodes:
  a: {role: gateway}
  b: {role: ap}
  c: {role: ap}
  p: {role: client}
  q: {role: client}
links:
  - {id: ab-plc, from: a, to: b, technology: plc, capacity_mbps: 10, both: true}
  - {id: ab-wifi, from: a, to: b, technology: wifi, capacity_mbps: 15, both: true}
  - {id: bc-wifi, from: b, to: c, technology: wifi, capacity_mbps: 30, both: true}
  - {id: ca-plc, from: c, to: a, technology: plc, capacity_mbps: 5, both: true}
  - {id: cp-wifi, from: c, to: p, technology: wifi, capacity_mbps: 40, both: true}
  - {id: cq-wifi, from: c, to: q, technology: wifi, capacity_mbps: 40, both: true}
interference:
  rule: technology
"""


Intents = dict[str, SwitchIntent]


class World:
    """The ring, installed over our own connections. With ``seals`` switches hand what they send to their agents."""

    def __init__(self, rig: ovs_rig.Rig, *, seals: bool = False) -> None:
        self.rig = rig
        self.seals = seals
        self.network = load_text(RING, "ring")
        self.addressing = Addressing.of(self.network)
        self.labels = Labels.of(self.network, self.addressing)
        self.hosts = rig.build(self.network, self.addressing)
        self.connections = {node: rig.connect(node) for node in self.addressing.dpid}
        self.intents = self.plan(self.network)
        self.rules = {}
        for node, connection in self.connections.items():
            result = rules_for(self.intents[node], connection.ports(), ovs_rig.TAGS)
            assert not result.missing_ports
            self.rules[node] = result.rules
            batch = connection.apply(difference(result.rules, ()))
            assert batch.ok, batch.refusals

    def plan(self, network: Network, flows: dict[str, tuple[ClassifiedFlow, ...]] | None = None) -> Intents:
        places = default_places(self.addressing)
        targets = (*self.addressing.dpid, *places)
        routes = all_routes(attached_only(network, self.addressing, places), targets)
        return intents_for(
            network, self.addressing, self.labels, routes, broadcast_tree(network), flows=flows, seals=self.seals
        )

    def change_to(self, intents: Intents, order: str = "abc") -> int:
        """Installs other intents, switch by switch; returns the number of flow-mods that it took."""
        sent = 0
        for node in order:
            connection = self.connections[node]
            change = difference(
                rules_for(intents[node], connection.ports(), ovs_rig.TAGS).rules, connection.installed()
            )
            assert connection.apply(change).ok
            sent += len(change.adds) + len(change.deletes)
        return sent

    def ip(self, node: str) -> str:
        return self.addressing.host_ip[node]


def in_namespace(namespace: str, interface: str = "eth0") -> socket.socket:
    """A raw socket on an interface of a namespace, made by a thread that enters it."""
    made: list[socket.socket] = []

    def make() -> None:
        fd = os.open(f"/var/run/netns/{namespace}", os.O_RDONLY)
        assert ctypes.CDLL(None, use_errno=True).setns(fd, 0x40000000) == 0
        os.close(fd)
        raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        keep_tags(raw)
        raw.bind((interface, 0))
        made.append(raw)

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    return made[0]


def collect(listener: socket.socket, wanted: bytes, seconds: float) -> list[bytes]:
    """Frames with ``wanted`` in them that the interface hears until none came for some time."""
    found: list[bytes] = []
    until_s = time.monotonic() + seconds
    while (left_s := until_s - time.monotonic()) > 0:
        listener.settimeout(left_s)
        try:
            frame, kind = receive_whole(listener)
        except TimeoutError:
            break
        if kind != socket.PACKET_OUTGOING and wanted in frame:
            found.append(frame)
            until_s = time.monotonic() + seconds
    return found


def mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))


def entry(label: int) -> bytes:
    """A label as agents and switches write it: a stack of its own."""
    return (label << 12 | 1 << 8 | 64).to_bytes(4, "big")


def inject(world: World, source: str, sides: Collection[str] = ("acc", "net")) -> dict[tuple[str, str], int]:
    """How many frames hosts, and agents at these ``sides``, hear when station p sends its access point c 20 of every
    kind of label.
    """
    wifi = mac(world.addressing.interface_mac["c", "wifi"])
    places = {("host", node): name for node, name in world.hosts.items() if node != "p"}
    places |= {(side, node): name for (node, side), name in world.rig.agents.items() if side in sides}
    heard: dict[tuple[str, str], int] = {}
    with contextlib.ExitStack() as stack:
        listeners = {place: stack.enter_context(in_namespace(name)) for place, name in places.items()}
        station = stack.enter_context(in_namespace(world.hosts["p"]))
        for rest in labelled(world):
            for _ in range(20):
                station.send(wifi + mac(source) + b"\x88\x47" + rest)
                time.sleep(0.002)
        for place, listener in listeners.items():
            if found := collect(listener, b"from the air", 0.2):
                heard[place] = len(found)
    return heard


def labelled(world: World) -> list[bytes]:
    """Frames behind labels of every kind, for c's WiFi: a user's frame to the host of a, or the shim of a flow."""
    addressing, labels = world.addressing, world.labels
    ends = mac(addressing.host_mac["a"]) + mac(addressing.host_mac["p"])
    user, shim = ends + b"\x99\x99" + b"from the air" * 5, b"\x01\x01\x00\x10" + bytes(8)
    by_link, flooded = entry(labels.link["ca-plc"]), b"\xff" * 6 + user[6:]
    return [
        entry(labels.node["a"]) + user,
        by_link + entry(labels.node["a"]) + user,
        entry(labels.node["c"]) + mac(addressing.host_mac["c"]) + user[6:],
        entry(labels.flood) + flooded,
        entry(labels.agent["c"]) + shim + user,
        by_link + entry(labels.agent["a"]) + shim + user,
        entry(labels.hello["c", "wifi"]) + user,
    ]

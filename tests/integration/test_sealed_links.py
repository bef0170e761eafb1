"""Switches whose agents seal what they send to each other, and an attacker who sends on the medium between them."""

from __future__ import annotations

import contextlib
import json
import secrets
import socket
from collections.abc import Iterator
from typing import Any

import ovs_rig
import pytest
from control_clients import AgentControl, connected
from ring_world import World, collect, in_namespace, inject, mac

from hyroads.controller.agents.configs import AgentConfig, MediaConfig
from hyroads.controller.agents.frame_keys import FrameKeys
from hyroads.controller.agents.protocol import Hello
from hyroads.controller.model.plan import Options, hello_configs
from hyroads.controller.model.state import TopologyContext
from hyroads.mininet.programs import Program, find_program

pytestmark = [pytest.mark.root, pytest.mark.skipif(not ovs_rig.available(), reason="needs root and Open vSwitch")]

SEALED = b"\x88\xb5"
FRAMES = 40


class SealedWorld(contextlib.ExitStack):
    """The ring with an agent at each switch, and keys as a controller gives them."""

    def __init__(self, rig: ovs_rig.Rig) -> None:
        super().__init__()
        self.ring = World(rig, seals=True)
        context = TopologyContext.of(self.ring.network, seals_links=True)
        keys = FrameKeys(context.addressing.interface_mac, seals_links=True)
        keys.use(secrets.token_hex(32))
        hellos = hello_configs(context, Options())
        for node in hellos:
            keys.heard(Hello(node, "test", secrets.token_hex(8), None, 0, seals=True, seals_links=True))
        self._controls = {node: self._agent(node) for node in hellos}
        for node, control in self._controls.items():
            config = AgentConfig(hellos[node], media=MediaConfig(context.link_ports[node], 1600))
            message: dict[str, Any] = json.loads(keys.message(node, config))
            control.configure({key: value for key, value in message.items() if key != "type"})

    def _agent(self, node: str) -> AgentControl:
        """An agent behind both of its ports, in the namespace of one of them."""
        rig = self.ring.rig
        access, network = rig.agents[node, "acc"], rig.agents[node, "net"]
        ovs_rig.run("ip", "-n", access, "link", "set", "eth0", "name", "acc", "netns", network)
        ovs_rig.run("ip", "-n", network, "link", "set", "acc", "up")
        ovs_rig.run("ip", "-n", network, "link", "set", "eth0", "mtu", "1600")
        path = rig.folder / f"{node}.agent"
        options = ["--node", node, "--access", "packet:acc", "--network", "packet:eth0", "--control", str(path)]
        command = ["ip", "netns", "exec", network, find_program("hyroads-edge"), *options]
        agent = Program(f"agent {node}", command, rig.folder / f"{node}.log", bound_to_parent=True)
        agent.start()
        self.callback(agent.stop)
        return self.enter_context(connected(AgentControl, path))

    def refused(self, node: str) -> tuple[int, int]:
        """How many frames an agent took for forged, and for replayed."""
        stats = self._controls[node].stats()
        return stats["forged"], stats["replayed"]


@pytest.fixture(scope="module")
def sealed() -> Iterator[SealedWorld]:
    with ovs_rig.Rig() as rig, SealedWorld(rig) as world:
        yield world


@pytest.fixture
def ring(sealed: SealedWorld) -> World:
    return sealed.ring


def test_every_pair_of_hosts_reaches_each_other(ring: World) -> None:
    for source, namespace in ring.hosts.items():
        for target in ring.hosts:
            if source != target:
                assert ring.rig.ping(namespace, ring.ip(target), "-c", "3", "-i", "0.01") == 1.0, (source, target)


def test_frames_of_full_size_pass(ring: World) -> None:
    assert ring.rig.ping(ring.hosts["p"], ring.ip("a"), "-c", "3", "-s", "1472", "-M", "do") == 1.0


@pytest.mark.parametrize("source", ["a", "p"])
def test_a_broadcast_reaches_every_other_host_once(ring: World, source: str) -> None:
    frame = b"\xff" * 6 + mac(ring.addressing.host_mac[source]) + b"\x99\x99" + b"to all of you" * 5
    with contextlib.ExitStack() as stack:
        listeners = {
            node: stack.enter_context(in_namespace(name)) for node, name in ring.hosts.items() if node != source
        }
        with in_namespace(ring.hosts[source]) as sender:
            sender.send(frame)
        heard = {node: len(collect(listener, frame[12:], 0.4)) for node, listener in listeners.items()}
    assert heard == dict.fromkeys(listeners, 1)


def test_no_label_from_a_neighbours_address_is_delivered(ring: World) -> None:
    """None of 20 of each kind. The same frames are delivered where links are not sealed (test_ofp_ovs.py)."""
    assert inject(ring, ring.addressing.interface_mac["b", "wifi"], sides=()) == {}


def overhear(ring: World, count: int) -> list[bytes]:
    """Sealed frames of b's WiFi interface to that of c, which carry b's pings of c."""
    port = f"m{ring.addressing.technology_number['wifi']}p{ring.addressing.node_number['b']}"
    ends = mac(ring.addressing.interface_mac["c", "wifi"]) + mac(ring.addressing.interface_mac["b", "wifi"])
    with in_namespace(ring.rig.namespace, port) as ear:
        ring.rig.ping(ring.hosts["b"], ring.ip("c"), "-c", str(count), "-i", "0.005")
        return [frame for frame in collect(ear, ends + SEALED, 0.2) if len(frame) > 100]


def test_no_overheard_frame_is_delivered_again_or_changed(sealed: SealedWorld) -> None:
    """New frames in place of overheard ones, and these as they are, from the neighbour's address."""
    ring = sealed.ring
    overheard = overhear(ring, FRAMES)[:FRAMES]
    assert len(overheard) == FRAMES
    before = sealed.refused("c")
    with in_namespace(ring.hosts["c"]) as listener, in_namespace(ring.hosts["p"]) as attacker:
        for frame in overheard:
            attacker.send(frame)
            # The last bytes are the data of a ping.
            attacker.send(frame[:-8] + b"from air")
            # As the frame was before it was sealed.
            attacker.send(frame[:12] + b"\x88\x47" + frame[34:])
        assert collect(listener, mac(ring.addressing.host_mac["b"]), 0.4) == []
    forged, replayed = (after - old for after, old in zip(sealed.refused("c"), before, strict=True))
    assert (forged, replayed) == (FRAMES, FRAMES)
    assert ring.rig.ping(ring.hosts["b"], ring.ip("c"), "-c", "20", "-i", "0.01") == 1.0


def test_honest_frames_are_delivered_once_while_forged_ones_are_injected(ring: World) -> None:
    overheard = overhear(ring, 10)
    target = mac(ring.addressing.host_mac["c"]) + mac(ring.addressing.host_mac["b"]) + b"\x99\x99"
    with (
        in_namespace(ring.hosts["c"]) as listener,
        in_namespace(ring.hosts["b"]) as sender,
        in_namespace(ring.hosts["p"]) as attacker,
    ):
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        sent = [target + b"honest %06d" % number + bytes(60) for number in range(200)]
        for number, frame in enumerate(sent):
            sender.send(frame)
            attacker.send(overheard[number % len(overheard)])
        assert collect(listener, b"honest", 0.4) == sent

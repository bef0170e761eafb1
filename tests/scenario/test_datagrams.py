"""Datagrams longer than the MTU, over every kind of path: all of them arrive, for the medium loses nothing here."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from client_lab import within
from controller_process import eventually
from network_names import network_name

from hyroads.controller.core.netfile import load_text
from hyroads.mininet.emulation import Emulation, EmulationOptions
from hyroads.mininet.runner import RunOptions, run_network

NAME = network_name("datagrams")
# Client c has an agent and two attachment points by different technologies, p is an unmodified client.
NETWORK = """
nodes:
  g: {role: gateway}
  a: {role: ap}
  b: {role: ap}
  c: {role: client, agent: true}
  p: {role: client}
links:
  - {id: ga, from: g, to: a, technology: ethernet-1, capacity_mbps: 100, both: true}
  - {id: gb, from: g, to: b, technology: ethernet-2, capacity_mbps: 100, both: true}
  - {id: ac, from: a, to: c, technology: wifi, capacity_mbps: 40, both: true}
  - {id: bc, from: b, to: c, technology: plc, capacity_mbps: 30, both: true}
  - {id: ap, from: a, to: p, technology: wifi-2, capacity_mbps: 40, both: true}
  - {id: bp, from: b, to: p, technology: wifi-2, capacity_mbps: 30, both: true}
interference: {rule: technology}
"""
SIZES = (1473, 4000, 20_000, 65_507)
"""Bytes of payload; the last one is the longest that UDP over IPv4 can carry, in 45 fragments."""
STREAM_BYTES, STREAM_S = 9000, 0.02
BESIDE = 30
"""Datagrams of a stream before and after a handover."""
POLICIES = ("single", "throughput", "latency", "private")
WAIT_S = 2.0


def address_of(emulation: Emulation, node: str, version: int) -> str:
    """The host's address; of IPv6 the one that follows from the MAC address."""
    if version == 4:
        return emulation.addressing.host_ip[node]
    mac = bytearray.fromhex(emulation.addressing.host_mac[node].replace(":", ""))
    mac[0] ^= 2
    return socket.inet_ntop(socket.AF_INET6, b"\xfe\x80" + bytes(6) + mac[:3] + b"\xff\xfe" + mac[3:])


@contextmanager
def channel(emulation: Emulation, source: str, target: str, version: int) -> Iterator[tuple[Any, Any]]:
    """``send`` of bytes at one host, and ``receive`` at the other (None: nothing for a while)."""
    family = {4: socket.AF_INET, 6: socket.AF_INET6}[version]

    def endpoint(node: str) -> tuple[socket.socket, int]:
        def work() -> tuple[socket.socket, int]:
            [index] = [number for number, name in socket.if_nameindex() if name != "lo"]
            return socket.socket(family, socket.SOCK_DGRAM), index

        return within(f"hr-{NAME}-{node}", work)

    (sender, index), (receiver, _) = endpoint(source), endpoint(target)
    with sender, receiver:
        receiver.bind(("", 0))
        receiver.settimeout(WAIT_S)
        scope = (0, index) if version == 6 else ()
        sender.connect((address_of(emulation, target, version), receiver.getsockname()[1], *scope))
        # Like the hosts' DNS and NFS: the kernel fragments.
        if version == 4:
            sender.setsockopt(socket.IPPROTO_IP, 10, 0)  # IP_MTU_DISCOVER, IP_PMTUDISC_DONT
        else:
            sender.setsockopt(socket.IPPROTO_IPV6, 23, 0)  # IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DONT

        def receive() -> bytes | None:
            try:
                return receiver.recv(1 << 16)
            except TimeoutError:
                return None

        yield sender.send, receive


def lost_datagrams(emulation: Emulation, source: str, target: str, times: int = 2) -> list[str]:
    """Datagrams, one after the other, that did not come or were not what was sent."""
    lost = []
    for version in (4, 6):
        with channel(emulation, source, target, version) as (send, receive):
            if version == 6:
                # Each end learns by its first long packet what fits, and loses it.
                send(bytes(SIZES[0]))
                receive()
                lost_pings(emulation, source, target, version, SIZES[:1] * 2)
            for size in SIZES * times:
                data = os.urandom(size)
                send(data)
                if receive() != data:
                    lost.append(f"UDP over IPv{version}, {size} bytes, {source} to {target}")
        lost += lost_pings(emulation, source, target, version)
    return lost


def lost_pings(
    emulation: Emulation, source: str, target: str, version: int, sizes: tuple[int, ...] = SIZES * 2
) -> list[str]:
    """Echo requests without an answer. One at a time: ping waits for the last of several for two round trips only."""
    address, lost = address_of(emulation, target, version), []
    zone = f"%{emulation.net[source].defaultIntf().name}" if version == 6 and emulation.net is not None else ""
    for size in sizes:
        words = ["ping", f"-{version}", "-n", "-c", "1", "-W", "2", "-M", "dont", "-s", str(size), address + zone]
        done = subprocess.run(
            [*emulation.inside(source), *words], capture_output=True, text=True, timeout=30, check=False
        )
        if " 1 received" not in done.stdout:
            lost.append(f"ICMP over IPv{version}, {size} bytes, {source} to {target}: {done.stdout}{done.stderr}")
    return lost


def lost_during(emulation: Emulation, source: str, target: str, work: Callable[[], None]) -> list[str]:
    """Of a stream of numbered datagrams before, during and after some work."""
    is_over = threading.Event()
    sent: list[int] = []
    came: set[int] = set()
    with channel(emulation, source, target, 4) as (send, receive):

        def stream() -> None:
            while not is_over.wait(STREAM_S):
                send(len(sent).to_bytes(4, "big").ljust(STREAM_BYTES, b"."))
                sent.append(len(sent))

        def collect() -> None:
            while not (is_over.is_set() and len(came) == len(sent)) and (data := receive()) is not None:
                came.add(int.from_bytes(data[:4], "big"))

        threads = [threading.Thread(target=each) for each in (collect, stream)]
        for thread in threads:
            thread.start()
        try:
            eventually(lambda: len(came) > BESIDE)
            work()
            count = len(sent)
            eventually(lambda: len(sent) > count + BESIDE)
        finally:
            is_over.set()
            for thread in reversed(threads):
                thread.join()
    return [f"number {number} of {len(sent)} from {source}" for number in sent if number not in came]


class Scenes:
    """Every kind of path in turn; ``lost`` says by kind what did not arrive."""

    def __init__(self, emulation: Emulation) -> None:
        self.emulation = emulation
        self.rest = emulation.rest
        self.lost: dict[str, list[str]] = {}

    def both_ways(self, client: str) -> list[str]:
        return lost_datagrams(self.emulation, "g", client) + lost_datagrams(self.emulation, client, "g")

    def policy(self, policy: str) -> None:
        """Flows to and from the client with an agent."""
        flows = {f"{policy}-down": ("g", "c"), f"{policy}-up": ("c", "g")}
        for flow, (source, target) in flows.items():
            body = {"id": flow, "from": source, "to": target, "policy": policy}
            self.rest.request("POST", "/flows", body)
        wanted = "single" if policy == "single" else "multipath"
        for flow in flows:
            eventually(
                lambda flow=flow: self.rest.flow(flow)["state"] == wanted and not self.rest.flow(flow)["pending"]
            )
        self.lost[policy] = self.both_ways("c")
        if policy == "throughput":
            self.handover(f"{policy}-down")
            self.ncast(f"{policy}-down")
        for flow in flows:
            self.rest.request("DELETE", f"/flows/{flow}")

    def handover(self, flow: str) -> None:
        """The client goes from both attachment points to one and to the other one, and then uses both again."""

        def move(node: str, technology: str) -> None:
            body = {"client": "c", "to": {"node": node, "technology": technology}, "manager": "hoolock"}
            said = self.rest.request("POST", "/handovers", body).document
            assert said["moved_after_s"] is not None
            # Its end comes later than its answer, and until then a second handover of the client is refused.
            eventually(lambda: self.rest.get(f"/handovers/{said['id']}")["over"])

        self.lost["handover, down"] = lost_during(self.emulation, "g", "c", lambda: move("b", "plc"))
        self.lost["handover, up"] = lost_during(self.emulation, "c", "g", lambda: move("a", "wifi"))
        self.lost["after a handover"] = self.both_ways("c")
        self.rest.request("POST", "/handovers", {"client": "c", "to": None})
        eventually(lambda: len(self.rest.flow(flow)["multipath"]) == 2)

    def ncast(self, flow: str) -> None:
        self.rest.request("POST", "/ncasts", {"flow": flow, "copies": 2})
        eventually(
            lambda: self.rest.get(f"/ncasts/{flow}")["phase"] == "copying" and not self.rest.flow(flow)["pending"]
        )
        self.lost["n-cast"] = lost_datagrams(self.emulation, "g", "c")
        self.rest.request("DELETE", f"/ncasts/{flow}")

    def plain_client(self) -> None:
        self.lost["plain client"] = self.both_ways("p") + lost_datagrams(self.emulation, "p", "c", 1)
        body = {"id": "plain", "from": "g", "to": "p"}
        self.rest.request("POST", "/flows", body)
        eventually(lambda: not self.rest.flow("plain")["pending"])
        self.lost["plain client with a flow"] = self.both_ways("p")
        body = {"client": "p", "to": {"node": "b", "technology": "wifi-2"}, "manager": "hard"}
        self.rest.request("POST", "/handovers", body)
        with socket.socket(socket.AF_UNIX) as medium:
            medium.connect(str(self.emulation.shared.socket))
            medium.sendall(json.dumps({"op": "uplink", "port": "p-wifi-2", "to": "b-wifi-2"}).encode() + b"\n")
            assert json.loads(medium.recv(4096))["ok"]
        eventually(lambda: not lost_pings(self.emulation, "g", "p", 4))
        self.lost["plain client after a handover"] = self.both_ways("p")


@pytest.fixture(scope="module")
def lost(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    result = tmp_path_factory.mktemp("datagrams") / "lost.json"

    def body(emulation: Emulation) -> int:
        scenes = Scenes(emulation)
        eventually(lambda: all(link["up"] for link in emulation.rest.get("/topology")["links"]))
        for policy in POLICIES:
            scenes.policy(policy)
        scenes.plain_client()
        result.write_text(json.dumps(scenes.lost))
        return 0

    said: list[str] = []
    options = RunOptions(publish=0, emulation=EmulationOptions())
    assert run_network(load_text(NETWORK, "datagrams"), NAME, body, options, said.append) == 0, said
    found: dict[str, list[str]] = json.loads(result.read_text())
    return found


@pytest.mark.parametrize("kind", [*POLICIES, "handover, down", "handover, up", "after a handover", "n-cast"])
def test_every_datagram_arrives_at_and_from_a_client_with_an_agent(lost: dict[str, list[str]], kind: str) -> None:
    assert lost[kind] == []


@pytest.mark.parametrize("kind", ["plain client", "plain client with a flow", "plain client after a handover"])
def test_every_datagram_arrives_at_and_from_a_plain_client(lost: dict[str, list[str]], kind: str) -> None:
    assert lost[kind] == []

"""Benchmark of the shared-medium emulator: real devices and real frames against theory.

`sudo python benchmarks/medium.py [--quick]`. Rates are Mb/s at L2 payload; `ratio` is measured / target.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import permutations
from pathlib import Path
from typing import Any

import live  # noqa: F401 - finds tests/support
from control_clients import MediumControl, connected, rate_mbps

from hyroads.mininet.control_sockets import MediumStats
from hyroads.mininet.programs import find_program

PREFIX = "hr-medium-"
PAYLOAD_BYTES = 1428
DATAGRAM_BYTES = PAYLOAD_BYTES - 28
ETHER_TYPE = 0x88B5  # local experimental: no protocol of the host answers

SEND_UDP = """
import socket, sys, time
rate_mbps, seconds, size, payload = map(float, sys.argv[3:7])
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind((sys.argv[1], 0)); s.connect((sys.argv[2], 9))
data, interval, start, n = bytes(int(size)), payload * 8e-6 / rate_mbps, time.monotonic(), 0
while (now := time.monotonic() - start) < seconds:
    while n * interval <= now:
        n += 1
        try: s.send(data)
        except OSError: pass
    time.sleep(0.0005)
"""

SEND_FRAMES = """
import random, socket, sys, time, json
plan = json.load(open(sys.argv[1])); rate, seconds, size = map(float, sys.argv[2:5])
random.seed(1)
sockets, frames = {}, []
for port, source, target in plan:
    if port not in sockets:
        s = sockets[port] = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        s.bind((port, 0)); s.setsockopt(263, 20, 1)  # PACKET_QDISC_BYPASS
    head = bytes.fromhex((target + source).replace(":", "")) + b"\\x88\\xb5"
    frames.append((sockets[port].send, head + bytes(int(size))))
random.shuffle(frames)
start, n, count = time.monotonic(), 0, len(frames)
while (now := time.monotonic() - start) < seconds:
    due = min(int(rate * now), n + 64)
    if due == n: time.sleep(0.00005)
    while n < due:
        send, data = frames[n % count]
        n += 1
        try: send(data)
        except OSError: pass
print(n / (time.monotonic() - start))
"""


def run(command: str) -> None:
    subprocess.run(command.split(), check=True, capture_output=True, timeout=30)


@contextmanager
def namespaces(names: Sequence[str]) -> Iterator[None]:
    for name in names:
        run(f"ip netns add {PREFIX}{name}")
    try:
        yield
    finally:
        for name in names:
            run(f"ip netns del {PREFIX}{name}")


@contextmanager
def medium(document: dict[str, Any]) -> Iterator[MediumControl]:
    with tempfile.TemporaryDirectory() as folder:
        path, control = Path(folder, "medium.json"), Path(folder, "medium.sock")
        path.write_text(json.dumps(document))
        command = [find_program("hyroads-medium"), "--config", str(path), "--socket", str(control), "--realtime"]
        process = subprocess.Popen([*command, "--die-with-parent"])
        try:
            with connected(MediumControl, control) as client:
                yield client
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=10)


def mac(node: int, technology: int) -> str:
    return f"02:00:01:{technology:02x}:00:{node:02x}"


def port(node: str, technology: str) -> dict[str, Any]:
    number, kind = "abc".index(node) + 1, ["plc", "wifi"].index(technology)
    name = f"hrm-{node}-{technology}"
    return {"name": name, "netns": PREFIX + node, "mac": mac(number, kind), "technology": technology}


def link(name: str, capacity_mbps: float) -> dict[str, Any]:
    ends, technology = name.split("-")
    source, target = (f"hrm-{end}-{technology}" for end in ends)
    return {"id": name, "from": source, "to": target, "capacity_mbps": capacity_mbps}


def route(node: str, destination: str, technology: str, via: str) -> None:
    """Static route and neighbour entry: no address resolution on the media that are measured."""
    device, address = f"hrm-{node}-{technology}", f"10.78.0.{'abc'.index(via) + 1}"
    hardware = port(via, technology)["mac"]
    run(f"ip -n {PREFIX}{node} neigh replace {address} lladdr {hardware} dev {device} nud permanent")
    run(f"ip -n {PREFIX}{node} route replace {destination}/32 via {address} dev {device} onlink")


def addresses() -> None:
    for number, node in enumerate("abc", start=1):
        run(f"ip -n {PREFIX}{node} link set lo up")
        run(f"ip -n {PREFIX}{node} addr add 10.78.0.{number}/32 dev lo")
    for address in ("10.78.1.1", "10.78.1.2"):
        run(f"ip -n {PREFIX}c addr add {address}/32 dev lo")
    run(f"ip netns exec {PREFIX}b sysctl -qw net.ipv4.ip_forward=1")


@contextmanager
def udp(destination: str, rate_mbps: float, seconds: float) -> Iterator[None]:
    command = ["ip", "netns", "exec", f"{PREFIX}a", sys.executable, "-c", SEND_UDP, "10.78.0.1", destination]
    sender = subprocess.Popen([*command, str(rate_mbps), str(seconds), str(DATAGRAM_BYTES), str(PAYLOAD_BYTES)])
    try:
        yield
    finally:
        sender.wait(timeout=seconds + 10)


@contextmanager
def receiver(address: str) -> Iterator[None]:
    """Takes the datagrams, so that the host does not answer each with an ICMP error."""
    code = "import socket, sys\ns = socket.socket(2, 2); s.bind((sys.argv[1], 9))\nwhile True: s.recv(2048)"
    process = subprocess.Popen(["ip", "netns", "exec", f"{PREFIX}c", sys.executable, "-c", code, address])
    time.sleep(0.2)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def watch(client: MediumControl, seconds: float) -> MediumStats:
    time.sleep(1.0)
    client.reset()
    time.sleep(seconds)
    return client.stats()


def two_hop(seconds: float) -> list[tuple[str, float, float, str]]:
    """a -> b at 15, b -> c at 30 Mb/s in one medium, saturated: 1 / (1/15 + 1/30)."""
    ports = [port(node, "wifi") for node in "abc"]
    links = [link("ab-wifi", 15), link("bc-wifi", 30)]
    with namespaces("abc"), medium({"ports": ports, "links": links, "conflicts": {"technology": True}}) as client:
        addresses()
        route("a", "10.78.1.1", "wifi", "b")
        route("b", "10.78.1.1", "wifi", "c")
        with receiver("10.78.1.1"), udp("10.78.1.1", 20, seconds + 2):
            stats = watch(client, seconds)
    return [("two hops 15 -> 30, saturated", rate_mbps(stats, "bc-wifi"), 10.0, "Mb/s")]


def three_nodes(seconds: float) -> list[tuple[str, float, float, str]]:
    """The example of the EMPoWER paper: PLC + WiFi at 10 and WiFi + WiFi at 20/3 Mb/s at the same time."""
    ports = [port("a", "plc"), port("b", "plc"), port("a", "wifi"), port("b", "wifi"), port("c", "wifi")]
    links = [link("ab-plc", 10), link("ab-wifi", 15), link("bc-wifi", 30)]
    direct = 20 / 3
    with (
        namespaces("abc"),
        medium({"ports": ports, "links": links, "conflicts": {"technology": True}}) as client,
        ExitStack() as stack,
    ):
        addresses()
        route("a", "10.78.1.1", "plc", "b")
        route("a", "10.78.1.2", "wifi", "b")
        for address in ("10.78.1.1", "10.78.1.2"):
            route("b", address, "wifi", "c")
            stack.enter_context(receiver(address))
        stack.enter_context(udp("10.78.1.1", 10, seconds + 2))
        stack.enter_context(udp("10.78.1.2", direct, seconds + 2))
        stats = watch(client, seconds)
    both = rate_mbps(stats, "bc-wifi")
    return [
        ("example, route PLC + WiFi", both - rate_mbps(stats, "ab-wifi"), 10.0, "Mb/s"),
        ("example, route WiFi + WiFi", rate_mbps(stats, "ab-wifi"), direct, "Mb/s"),
        ("example, both routes", both, 10 + direct, "Mb/s"),
    ]


def throughput(seconds: float, rate_kpps: float) -> list[tuple[str, float, float, str]]:
    """Ten nodes with three technologies each: 30 ports, 270 links, frames between all pairs."""
    nodes, kinds, size = 10, 3, 1000
    name = "hrm-{}-{}".format
    ports = [
        {"name": name(n, k), "netns": f"{PREFIX}x", "mac": mac(n, k), "technology": f"t{k}"}
        for k in range(kinds)
        for n in range(nodes)
    ]
    pairs = [(k, a, b) for k in range(kinds) for a, b in permutations(range(nodes), 2)]
    links = [{"id": f"{a}-{b}-{k}", "from": name(a, k), "to": name(b, k), "capacity_mbps": 1000} for k, a, b in pairs]
    document = {"ports": ports, "links": links, "conflicts": {"technology": True}}
    with namespaces("x"), medium(document) as client, tempfile.NamedTemporaryFile("w") as plan:
        json.dump([(name(a, k), mac(a, k), mac(b, k)) for k, a, b in pairs], plan)
        plan.flush()
        command = ["ip", "netns", "exec", f"{PREFIX}x", sys.executable, "-c", SEND_FRAMES, plan.name]
        command += [str(rate_kpps * 1e3), str(seconds + 2), str(size)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as sender:
            stats = watch(client, seconds)
            sent = float(sender.communicate(timeout=30)[0])
    frames, dropped = stats.total.frames, stats.total.dropped
    print(f"10 x 3: {len(links)} links, {sent / 1e3:.1f} kpps sent, {dropped / max(frames, 1):.2%} dropped,", end=" ")
    print(f"{stats.total.bytes * 8e-6 / stats.elapsed_s:.0f} Mb/s, worst lateness {stats.lateness_max_ms:.2f} ms")
    return [
        (f"10 x 3, {rate_kpps:.0f} kpps offered", frames / stats.elapsed_s / 1e3, rate_kpps, "kpps"),
        (f"10 x 3, {rate_kpps:.0f} kpps: processor", stats.cpu_s / stats.elapsed_s, 1.0, "cores"),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="3 seconds a measurement instead of 8")
    seconds = 3.0 if parser.parse_args().quick else 8.0
    if os.geteuid() != 0:
        print("benchmarks/medium.py: needs root (network namespaces)", file=sys.stderr)
        return 2
    rows = [*two_hop(seconds), *three_nodes(seconds), *throughput(seconds, 100.0), *throughput(seconds, 200.0)]
    print(f"{'measurement':36} {'measured':>10} {'target':>10} {'unit':6} {'ratio':>7}")
    for what, measured, target, unit in rows:
        print(f"{what:36} {measured:10.3f} {target:10.3f} {unit:6} {measured / target:7.4f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

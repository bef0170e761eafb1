"""Each TCP port of docs/security.md under 1,000 hostile connections a second from 100 addresses, while friends come.

    python benchmarks/admission.py                       all ports, 10 s each
    python benchmarks/admission.py --sockets waypoint "slicer rest" --seconds 5

A quarter of the hostile connections each: silent; half of what begins TLS; bytes that mean nothing; and the beginning
of a request, of which one more byte comes now and then. A friend connects each 0.2 s and makes one real request. Exit
status 1 unless at each port 99 % of the friends have their answer within 1 s and at least 90 % of the rate was reached.
Attackers, friends and servers share the machine, so its load is printed as well. On a busy machine, begin
the command with ``chrt --rr 1``.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import resource
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
from admission_servers import PEER_EVENT, TOKEN
from controller_process import ControllerProcess, free_ports
from dashboard_process import Dashboard
from hostile_peers import ADDRESSES, HELLO, admin_in, agent_in, client_hello, switch_in

from hyroads.mininet.run_directory import find_network

PER_S, EVERY_S, IN_TIME_S, WANTED, REACHED = 1000.0, 0.2, 1.0, 0.99, 0.9
MOST_OPEN, DRIPPING, DRIP_S = 8000, 100, 0.5
HTTP = b"GET / HTTP/1.1\r\nHost: x\r\nA: "
LINE = b'{"type":"hello"'
IP_BIND_ADDRESS_NO_PORT = 24
"""Of linux/in.h; Python 3.11 has no name for it."""
Friend = Callable[[], Any]


@dataclass(frozen=True)
class Target:
    """A port, how a request to it begins, the server's processes, and a friend: it raises OSError if it fails."""

    name: str
    port: int
    begins: bytes
    processes: Sequence[int]
    friend: Friend


@dataclass
class Outcome:
    """What came of one attack; ``took_s`` has infinity for a friend that failed."""

    reached_per_s: float
    took_s: list[float] = field(default_factory=list)
    processor: float = 0.0

    def share_in_time(self) -> float:
        return sum(each <= IN_TIME_S for each in self.took_s) / max(len(self.took_s), 1)

    def percentile_s(self, share: float) -> float:
        return sorted(self.took_s)[min(int(share * len(self.took_s)), len(self.took_s) - 1)]

    def holds(self) -> bool:
        return self.share_in_time() >= WANTED and self.reached_per_s >= REACHED * PER_S


# -- the hostile side, in a process of its own


def attack(port: int, begins: bytes, seconds: float) -> int:
    """Returns how many connections were made."""
    words = (b"", client_hello()[:50], bytes(range(256)), begins)
    kept: deque[socket.socket] = deque()
    dripping: deque[socket.socket] = deque(maxlen=DRIPPING)
    waiting: list[tuple[socket.socket, bytes]] = []
    began_s, number, made, drip_s = time.monotonic(), 0, 0, DRIP_S
    while (passed_s := time.monotonic() - began_s) < seconds:
        while number < passed_s * PER_S:
            peer = socket.socket()
            peer.setblocking(False)
            peer.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
            peer.bind((ADDRESSES[number % len(ADDRESSES)], 0))
            peer.connect_ex(("127.0.0.1", port))
            waiting.append((peer, words[number // len(ADDRESSES) % len(words)]))
            number += 1
        still: list[tuple[socket.socket, bytes]] = []
        for peer, word in waiting:
            try:
                peer.getpeername()
            except OSError:
                still.append((peer, word))
                continue
            made += 1
            with suppress(OSError):
                peer.send(word)
            kept.append(peer)
            if word == begins:
                dripping.append(peer)
        waiting = still[-MOST_OPEN:]
        while len(kept) > MOST_OPEN:
            kept.popleft().close()
        if passed_s >= drip_s:
            drip_s += DRIP_S
            for peer in dripping:
                with suppress(OSError):
                    peer.send(b"a")
        time.sleep(0.002)
    return made


# -- friends


def answered(port: int, path: str, method: str = "GET", body: str | None = None, token: str | None = None) -> None:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=IN_TIME_S)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        answer.read()
        if answer.status != 200:
            raise ConnectionError(f"status {answer.status}")
    except http.client.HTTPException as error:
        raise ConnectionError(str(error)) from error
    finally:
        connection.close()


def queried_by_line(port: int, document: Any, wanted: bytes, context: ssl.SSLContext | None = None) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=IN_TIME_S) as plain:
        peer = plain if context is None else context.wrap_socket(plain, server_hostname="127.0.0.1")
        peer.sendall(document)
        said = b""
        while wanted not in said:
            more = peer.recv(65536)
            if not more:
                raise ConnectionError("another answer")
            said += more
        if peer is not plain:
            peer.close()


def peer_in(port: int) -> None:
    """Another controller says hello and one event, and learns that the event has come."""
    hello = {"type": "hello", "version": 1, "network": "/hyroads/n/", "name": "b", "token": TOKEN}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.settimeout(IN_TIME_S)
        event = {"type": "event", "id": listener.getsockname()[1], "time_s": 5.0, "kind": PEER_EVENT, "document": {}}
        with socket.create_connection(("127.0.0.1", port), timeout=IN_TIME_S) as peer:
            peer.sendall(b"".join(json.dumps(each).encode() + b"\n" for each in (hello, event)))
            listener.recv(16)


# -- servers


@contextmanager
def served(name: str, folder: Path) -> Iterator[tuple[dict[str, Any], Sequence[int]]]:
    """A process of ``admission_servers``: its ports and its id."""
    command = [sys.executable, str(Path(__file__).with_name("admission_servers.py")), name, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline()), (process.pid,)
        finally:
            process.terminate()


@contextmanager
def controllers(folder: Path) -> Iterator[list[Target]]:
    (sfnet,) = free_ports(1)
    settings = {"agent_token": TOKEN, "api_tokens": {"ops": {"token": TOKEN[::-1]}}, "sfnet": {"port": sfnet}}
    lines = {"type": "hello", "version": 1, "token": TOKEN[::-1]}, {"id": 1, "method": "GET", "path": "/flows"}
    said = b"".join(json.dumps(each).encode() + b"\n" for each in lines)
    with ControllerProcess(folder, settings) as process:
        ports, pids = (process.openflow, process.agents, process.port), (process.process.pid,)
        yield [
            Target("controller openflow", ports[0], HELLO[:5], pids, lambda: switch_in(ports[0])),
            Target("controller agents", ports[1], LINE, pids, lambda: agent_in(ports[1], TOKEN)),
            Target("controller rest", ports[2], HTTP, pids, lambda: admin_in(ports[2], TOKEN[::-1])),
            Target("controller sfnet", sfnet, LINE, pids, lambda: queried_by_line(sfnet, said, b"200")),
        ]


@contextmanager
def regions(folder: Path) -> Iterator[list[Target]]:
    with socket.create_server(("127.0.0.1", 0)) as north:
        peers, (port,) = {"north": {"port": north.getsockname()[1]}}, free_ports(1)
        region = {"name": "south", "peers": peers, "token": TOKEN, "listen": {"port": port}}
        with ControllerProcess(folder, {"network": str(find_network("two-buildings")), "region": region}) as process:
            dialled, _ = north.accept()
            with dialled, dialled.makefile("rb") as lines:
                hello = {**json.loads(lines.readline()), "region": "north"}
            nothing = {"type": "wanted", "seq": 1, "segments": [], "silent": [], "away": []}
            said = b"".join(json.dumps(each).encode() + b"\n" for each in (hello, nothing))
            yield [Target("region", port, LINE, (process.process.pid,), lambda: queried_by_line(port, said, b"{"))]


@contextmanager
def slicers(folder: Path) -> Iterator[list[Target]]:
    with served("slicer", folder) as (at, pids):
        yield [
            Target("slicer openflow", at["openflow"], HELLO[:5], pids, lambda: switch_in(at["openflow"])),
            Target("slicer rest", at["rest"], HTTP, pids, lambda: answered(at["rest"], "/api/v1/slices", token=TOKEN)),
        ]


@contextmanager
def waypoints(folder: Path) -> Iterator[list[Target]]:
    hello = json.dumps({"type": "hello", "version": 1, "client": "laptop", "token": TOKEN}).encode() + b"\n"
    with served("waypoint", folder) as (at, pids):
        context = ssl.create_default_context(cafile=str(folder / "waypoint.pem"))
        friend = lambda: queried_by_line(at["port"], hello, b"session", context)  # noqa: E731
        yield [Target("waypoint", at["port"], client_hello(), pids, friend)]


@contextmanager
def dashboards(folder: Path) -> Iterator[list[Target]]:
    (nothing,) = free_ports(1)
    with Dashboard(f"http://127.0.0.1:{nothing}", folder) as found:
        pids = (found.process.pid,)
        answered(found.port, "/health")
        yield [Target("dashboard", found.port, HTTP, pids, lambda: answered(found.port, "/health"))]


@contextmanager
def single_programs(folder: Path) -> Iterator[list[Target]]:
    """Small servers with one port each."""
    event = json.dumps({"id": "1", "method": "DEVICE_CONNECTED", "params": ["00:01"], "jsonrpc": "2.0"})
    with ExitStack() as stack:
        found = {}
        for name in ("proxy", "downloads", "snmpvisor", "flowvisor", "peer"):
            (folder / name).mkdir()
            found[name] = stack.enter_context(served(name, folder / name))
        port = {name: at["port"] for name, (at, _) in found.items()}
        whole = f"http://127.0.0.1:{found['proxy'][0]['origin']}/1000.bin"
        path = found["flowvisor"][0]["path"]
        friends: dict[str, tuple[bytes, Friend]] = {
            "proxy": (HTTP, lambda: answered(port["proxy"], whole)),
            "downloads": (HTTP, lambda: answered(port["downloads"], "/metrics")),
            "snmpvisor": (HTTP, lambda: answered(port["snmpvisor"], "/metrics")),
            "flowvisor": (HTTP, lambda: answered(port["flowvisor"], path, "POST", event)),
            "peer": (LINE, lambda: peer_in(port["peer"])),
        }
        shown = {"downloads": "fetch metrics", "snmpvisor": "snmpvisor metrics", "flowvisor": "flowvisor watch"}
        yield [Target(shown.get(name, name), port[name], begins, found[name][1], friend)
               for name, (begins, friend) in friends.items()]  # fmt: skip


GROUPS = {
    "controller": controllers, "region": regions, "slicer": slicers, "waypoint": waypoints, "dashboard": dashboards,
    "single": single_programs,
}  # fmt: skip


# -- measuring


def processor_s(pids: Sequence[int]) -> float:
    times = (psutil.Process(pid).cpu_times() for pid in pids)
    return sum(each.user + each.system for each in times)


def outcome(target: Target, seconds: float) -> Outcome:
    command = [sys.executable, __file__, "--attack", str(target.port), target.begins.hex(), str(seconds + 1.0)]
    took_s: list[float] = []
    friends: list[threading.Thread] = []

    def come() -> None:
        began_s = time.monotonic()
        try:
            target.friend()
            took_s.append(time.monotonic() - began_s)
        except OSError:
            took_s.append(float("inf"))

    with subprocess.Popen(command, stdout=subprocess.PIPE) as hostile:
        time.sleep(1.0)
        began_s, before_s = time.monotonic(), processor_s(target.processes)
        for number in range(int(seconds / EVERY_S)):
            time.sleep(max(0.0, began_s + number * EVERY_S - time.monotonic()))
            friends.append(threading.Thread(target=come))
            friends[-1].start()
        used = (processor_s(target.processes) - before_s) / (time.monotonic() - began_s)
        made = int(hostile.communicate(timeout=60)[0])
    for each in friends:
        each.join(10.0)
    return Outcome(made / (seconds + 1.0), took_s, used)


def row(target: Target, found: Outcome) -> str:
    middle, late = (f"{1e3 * found.percentile_s(share):.0f}" for share in (0.5, 0.99))
    verdict = "holds" if found.holds() else "FAILS"
    return (
        f"{target.name:20} {found.reached_per_s:9.0f} {len(found.took_s):8} {found.share_in_time():9.1%} "
        f"{middle:>8} {late:>8} {found.processor:9.0%}  {verdict}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each attack")
    parser.add_argument("--sockets", nargs="+", default=[], metavar="NAME", help="names, or beginnings of names")
    parser.add_argument("--attack", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if arguments.attack:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        port, begins, seconds = arguments.attack
        print(attack(int(port), bytes.fromhex(begins), float(seconds)), flush=True)
        return 0
    chosen, good = tuple(arguments.sockets), True
    print(
        f"{'port':20} {'hostile/s':>9} {'friends':>8} {'within 1 s':>9} {'p50, ms':>8} {'p99, ms':>8} {'processor':>9}"
    )
    for make in GROUPS.values():
        with tempfile.TemporaryDirectory() as folder, make(Path(folder)) as targets:
            for target in targets:
                if chosen and not target.name.startswith(chosen):
                    continue
                found = outcome(target, arguments.seconds)
                good = good and found.holds()
                print(row(target, found), flush=True)
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

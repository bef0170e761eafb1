"""MPTCP: what it costs to recognise connections, and whether anything waits for it.

``recognise`` first times the controller's work for a SYN in Python, without a network. Then ten switches (real Open
vSwitch, the real controller) carry connections of the kernel's own MPTCP, each with a second subflow, from every switch
to the next: with copies of SYNs and without, in turns. A handshake's time is what the client's kernel measured between
SYN and SYN/ACK. Joins that the kernels have counted are compared with those that the controller has grouped.

Needs root and a kernel with MPTCP. Run: python benchmarks/mptcp.py recognise [--connections 1000] [--seconds 5]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
import mptcp_frames as frames
from client_lab import ClientLab, eventually, mesh
from ovs_rig import run

from hyroads.controller.core.addressing import Addressing
from hyroads.controller.core.interface_addresses import InterfaceAddresses
from hyroads.controller.core.mptcp import parse_syn
from hyroads.controller.core.mptcp_connections import At, ConnectionTable
from hyroads.controller.core.netfile import load_text
from hyroads.controller.core.services.client_tables import Clients
from hyroads.controller.ofp import wire
from hyroads.controller.ofp.access import SYN_COOKIES
from hyroads.controller.ofp.guard import check
from hyroads.controller.ofp.readback import cookie_of_packet_in
from hyroads.controller.runtime.address_book import AddressBook
from hyroads.controller.services.mptcp import MptcpService
from hyroads.controller.settings.mptcp import MptcpSettings

PORT = 5001
# One process serves all hosts, and one is the client of all of them: what they cost is no delay of the network.
ENTER = """
import collections, ctypes, json, os, select, socket, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
def enter(descriptor):
    if libc.setns(descriptor, 0x40000000):
        raise OSError(ctypes.get_errno(), "setns")
def opened(names):
    return [os.open("/run/netns/" + name, os.O_RDONLY) for name in names]
"""
SERVER = (
    ENTER
    + """
poll, listeners, known = select.epoll(), {}, {}
for place in opened(sys.argv[1:]):
    enter(place)
    one = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)
    one.bind(("0.0.0.0", 5001)); one.listen(1024); one.setblocking(False)
    listeners[one.fileno()] = one; poll.register(one, select.EPOLLIN)
print("ready", flush=True)
while True:
    for number, _ in poll.poll():
        try:
            if number in listeners:
                one = listeners[number].accept()[0]
                known[one.fileno()] = one; poll.register(one, select.EPOLLIN)
                continue
            data = known[number].recv(64); known[number].send(data)
        except OSError:
            data = b""
        if not data and number in known:
            poll.unregister(number); known.pop(number).close()
"""
)
# tcpi_rtt of struct tcp_info, in microseconds: right after the handshake it is the time from SYN to SYN/ACK.
CLIENT = (
    ENTER
    + """
per_s, seconds, names = float(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]
places, targets = opened(names[::2]), names[1::2]
print("ready", flush=True); sys.stdin.readline()
began = time.monotonic(); held = collections.deque(); times = []; failed = number = 0
poll, waiting = select.epoll(), {}
while number < per_s * seconds or waiting:
    due = began + number / per_s - time.monotonic() if number < per_s * seconds else 0.1
    if due <= 0:
        at = number % len(places)
        enter(places[at])
        one = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262); one.setblocking(False)
        one.connect_ex((targets[at], 5001)); waiting[one.fileno()] = one
        poll.register(one, select.EPOLLOUT); number += 1
        continue
    for ready, _ in poll.poll(max(0.0005, due)):
        one = waiting.pop(ready); poll.unregister(ready)
        try:
            one.send(b"x")
        except OSError:
            failed += 1
            continue
        times.append(struct.unpack_from("I", one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104), 68)[0])
        held.append((time.monotonic(), one))
    while held and time.monotonic() - held[0][0] > 0.5:
        old = held.popleft()[1]
        try:
            old.recv(64)
        except OSError:
            failed += 1
        old.close()
took = time.monotonic() - began
time.sleep(1)
print(json.dumps({"us": times, "failed": failed, "took_s": took}), flush=True)
"""
)


def per_syn_us(repeats: int = 20_000) -> dict[str, float]:
    """Processor time of the controller for a SYN, in microseconds: of its parts, then of all from the message on."""
    found: dict[str, float] = {}
    segments = [frames.CAPABLE, frames.CAPABLE_ANSWER, frames.JOIN, frames.JOIN_ANSWER, frames.PLAIN]
    began_s = time.process_time()
    for number in range(repeats):
        parse_syn(segments[number % len(segments)])
    found["parse"] = (time.process_time() - began_s) / repeats * 1e6
    halves = [_handshakes(number) for number in range(repeats // 4)]
    parsed = [parse_syn(frame) for four in halves for frame in four]
    table, at = ConnectionTable(), At("a", "a-host")
    began_s = time.process_time()
    for number, syn in enumerate(parsed):
        assert syn is not None
        client, server = ("c", "s") if not syn.answers else ("s", "c")
        table.take(syn, client, server, at, number * 1e-3)
    found["table"] = (time.process_time() - began_s) / len(parsed) * 1e6
    found["whole packet-in"] = _whole_us(halves)
    return {name: round(value, 2) for name, value in found.items()}


def _handshakes(number: int) -> list[bytes]:
    """A connection and a join of its own."""
    key, port = number.to_bytes(8, "big"), 1024 + number % 60_000
    there, back = ("10.9.0.1", "10.9.0.2", port, PORT), ("10.9.0.2", "10.9.0.1", PORT, port)
    other, other_back = ("10.9.1.1", *there[1:]), ("10.9.0.2", "10.9.1.1", PORT, port)
    asks = [frames.from_to(frames.with_options(frames.PLAIN, frames.capable()), *there)]
    asks.append(frames.from_to(frames.with_options(frames.PLAIN_ANSWER, frames.capable_answer(key)), *back))
    asks.append(frames.from_to(frames.with_options(frames.PLAIN, frames.join(key)), *other))
    asks.append(frames.from_to(frames.with_options(frames.PLAIN_ANSWER, frames.join_answer()), *other_back))
    return asks


def _whole_us(halves: list[list[bytes]]) -> float:
    network = load_text(mesh(2), "net")
    addressing = Addressing.of(network)
    port: Any = SimpleNamespace(
        context=SimpleNamespace(addressing=addressing, network=network),
        addresses=AddressBook(InterfaceAddresses.of(network, addressing)),
        switches={},
        events=SimpleNamespace(publish=lambda kind, document: None),
    )
    service = MptcpService(port, MptcpSettings(True), Clients, clock=time.monotonic)
    session: Any = SimpleNamespace(node="n0", ports={"n0-host": 1}, access=None)
    match, cookie = bytes.fromhex("0001000c800000040000000100000000"), next(iter(SYN_COOKIES)).to_bytes(8, "big")
    messages = [
        wire.message(bytes(4) + len(f).to_bytes(2, "big") + b"\1\1" + cookie + match + bytes(2) + f, 0, wire.PACKET_IN)
        for four in halves
        for f in four
    ]
    began_s = time.process_time()
    for message in messages:
        check(message)
        assert cookie_of_packet_in(message) in SYN_COOKIES
        service.packet_in(session, message)
    service.once()
    used_s = time.process_time() - began_s
    assert service.table.counts["subflow"] == len(halves)
    return used_s / len(messages) * 1e6


class Lab(ClientLab):
    """At every switch a host with two addresses; it serves, and it is a client of the next."""

    def __init__(self, switches: int, syns_per_s: int) -> None:
        self.mptcp = {"recognise": True, "syns_per_s": syns_per_s, "routed_connections": 0}
        super().__init__(mesh(switches), {"mptcp": self.mptcp})
        self.processes: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Lab:
        super().__enter__()
        nodes = [*self.addressing.dpid]
        self.hosts = dict(zip(nodes, self.namespaces[-len(nodes) :], strict=True))
        for number, host in enumerate(self.hosts.values(), start=1):
            run("ip", "-n", host, "addr", "add", f"10.0.128.{number}/16", "dev", "eth0")
            run("ip", "-n", host, "mptcp", "limits", "set", "subflow", "2", "add_addr_accepted", "0")
            run("ip", "-n", host, "mptcp", "endpoint", "add", f"10.0.128.{number}", "dev", "eth0", "subflow")
        self.start(SERVER, *self.hosts.values())
        # Ten switches share two cores with hosts and controller here. They come first, as on machines of their own.
        pid = (self.folder / "ovs-vswitchd.pid").read_text().strip()
        for task in Path(f"/proc/{pid}/task").iterdir():
            os.setpriority(os.PRIO_PROCESS, int(task.name), -15)
        return self

    def __exit__(self, *error: object) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
        super().__exit__(*error)

    def start(self, program: str, *arguments: str) -> subprocess.Popen[str]:
        """A program that says ``ready``."""
        command = [sys.executable, "-c", program, *arguments]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.processes.append(process)
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        return process

    def recognise(self, on: bool) -> None:
        """A controller with these settings takes over."""
        self.stop_controller()
        self.mptcp["recognise"] = on
        self.start_controller()
        wanted = "on" if on else "off"
        eventually(lambda: all(one["syn_copies"] == wanted for one in self.rest("GET", "/health")[1]["switches"]))

    def counters(self) -> dict[str, int]:
        """What kernels and controller have counted."""
        found = {"MPTcpExtMPJoinAckRx": 0, "MPTcpExtMPCapableSYNACKRX": 0}
        for host in self.hosts.values():
            text = run("ip", "netns", "exec", host, "nstat", "-asz", *found)
            for line in text.splitlines():
                name, value, *_ = (*line.split(), "", "")
                if name in found:
                    found[name] += int(value)
        metrics = self.inside("curl", "-s", "http://127.0.0.1:18080/metrics").splitlines()
        for line in (line for line in metrics if line.startswith(("hyroads_mptcp_syns_", "hyroads_mptcp_refused_"))):
            found[line.split('"')[1]] = int(float(line.rpartition(" ")[2]))
        return found

    def switches_s(self) -> float:
        """Processor time of all switches so far."""
        pid = (self.folder / "ovs-vswitchd.pid").read_text().strip()
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def load(self, per_s: float, seconds: float) -> dict[str, Any]:
        """Every host begins connections to the next: what came of it."""
        nodes, ips = [*self.hosts], self.addressing.host_ip
        pairs = zip(nodes, nodes[1:] + nodes[:1], strict=True)
        places = [word for node, target in pairs for word in (self.hosts[node], ips[target])]
        client = self.start(CLIENT, str(per_s), str(seconds), *places)
        assert client.stdin is not None and client.stdout is not None
        before, cpu_s, switches_s = self.counters(), self.cpu_s(), self.switches_s()
        client.stdin.write("\n")
        client.stdin.flush()
        answer = json.loads(client.stdout.readline())
        used_s, switches_s = self.cpu_s() - cpu_s, self.switches_s() - switches_s
        after = self.counters()
        times_us, took_s = sorted(answer["us"]), answer["took_s"]
        return {
            "connections": len(times_us),
            "failed": answer["failed"],
            "per_s": round(len(times_us) / took_s),
            "handshake_ms": {
                "median": statistics.median(times_us) / 1e3,
                "p99": times_us[int(0.99 * len(times_us))] / 1e3,
            },
            "controller_cpu": round(used_s / took_s, 3),
            "switches_cpu": round(switches_s / took_s, 3),
            **{name: after[name] - before.get(name, 0) for name in after},
        }


def recognise(arguments: argparse.Namespace) -> int:
    """Status 1 if a join was not matched, or handshakes take more than 1 ms longer."""
    document: dict[str, Any] = {"us_per_syn": per_syn_us()}
    loads = {"many": arguments.connections, "few": arguments.delay_at}
    document.update({name: {"on": [], "off": []} for name in loads})
    with Lab(arguments.switches, arguments.syns_per_s) as lab:
        lab.load(50, 2)
        for _ in range(arguments.rounds):
            for turn in ("off", "on"):
                lab.recognise(turn == "on")
                time.sleep(1)
                for name, per_s in loads.items():
                    document[name][turn].append(lab.load(per_s, arguments.seconds))
    joins = sum(run["MPTcpExtMPJoinAckRx"] for name in loads for run in document[name]["on"])
    matched = sum(run["subflow"] for name in loads for run in document[name]["on"])
    document["joins"] = {"kernel": joins, "matched": matched}
    document["p99_more_ms"] = {name: _more_ms(document[name]) for name in loads}
    print(json.dumps(document, indent=1))
    return int(matched < joins or max(document["p99_more_ms"].values()) > 1.0)


def _more_ms(turns: dict[str, list[dict[str, Any]]]) -> float:
    """How much longer a handshake takes with copies, at the 99th percentile: median of the pairs of turns."""
    pairs = zip(turns["on"], turns["off"], strict=True)
    return float(
        round(statistics.median(on["handshake_ms"]["p99"] - off["handshake_ms"]["p99"] for on, off in pairs), 3)
    )


def main() -> int:
    """The run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("recognise", help="cost of a SYN; delay of handshakes; joins that are matched")
    one.add_argument("--switches", type=int, default=10)
    one.add_argument("--connections", type=float, default=1000.0, help="a second, of all switches together")
    one.add_argument("--delay-at", type=float, default=200.0, help="a second: few enough that no processor is busy")
    one.add_argument("--seconds", type=float, default=5.0)
    one.add_argument("--rounds", type=int, default=3)
    one.add_argument("--syns-per-s", type=int, default=1000, help="setting mptcp.syns_per_s")
    one.set_defaults(run=recognise)
    arguments = parser.parse_args()
    return int(arguments.run(arguments))


if __name__ == "__main__":
    raise SystemExit(main())

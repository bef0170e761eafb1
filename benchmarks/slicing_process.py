"""The process ``hyroads slicer`` with its sockets: what it adds to a packet-in that is answered by a flow-mod.

    python benchmarks/slicing_process.py [--slices 100] [--rules 10000] [--rounds 4000] [--window 64] [--seconds 5]
    python benchmarks/slicing_process.py --cores one       (or own)
    python benchmarks/slicing_process.py --bridges 10      (root)

A switch and a controller made here speak OpenFlow 1.3 over loopback TCP: directly, then through the slicer, which has
all slices with all their flowspace rules on that switch. Each packet-in is answered by the flow-mod of a learning
switch (in_port, eth_src, eth_dst -> output). It modifies, so that the slice's entries are never used up.

- latency: one packet-in at a time; median and 99th percentile of the time until its flow-mod is back. The difference
  of the medians is what the slicer adds. Target: 80 us.
- beside it, if there is socat: the same through a bare relay, which knows nothing of messages.
- cores: ``any``, ``one`` for everything, or ``own`` for the slicer and the relay, all others on the first.
- idle: the slicer's CPU in 5 s without messages.
- change: ``--switches`` more switches; one rule of a slice is another by the control socket: when the last switch has
  its new entry, and when the answer comes. Target: 100 ms.
- with ``--bridges`` only the change, at so many bridges of a real Open vSwitch; when an entry is in force is told by
  the bridges' own flow monitors.
- rate: a window of packet-ins on the way; flow-mods a second, and the slicer's own CPU time for each. Target: 20 000
  a second on one core.

Direct, relayed and sliced runs alternate, so that a noisy machine is noisy for all.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil

from hyroads.controller.ofp import match as act
from hyroads.controller.ofp import wire
from hyroads.slices.core import classifier
from hyroads.slices.core.match import of_fields

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from scripted_switch import ScriptedSwitch
from slicer_rig import Control, SlicerRig

PORTS = range(1, 49)
FEATURES = struct.pack("!QIBB2xII", 1, 0, 254, 0, 0x4F, 0)
HELLO = wire.message(b"", 1, 0)
PACKET_IN, MULTIPART_REPLY = 10, 19


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Peer:
    """One end of a connection: whole messages, with TCP_NODELAY as switches and controllers have it."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.data = b""

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self) -> list[bytes]:
        """The messages of one read, at least one."""
        while True:
            found, at, data = [], 0, self.data
            while len(data) - at >= 8:
                length = data[at + 2] << 8 | data[at + 3]
                if len(data) - at < length:
                    break
                found.append(data[at : at + length])
                at += length
            self.data = data[at:]
            if found:
                return found
            more = self.socket.recv(1 << 16)
            if not more:
                raise ConnectionError("closed")
            self.data += more

    def wait(self, kind: int) -> bytes:
        while True:
            for message in self.receive():
                if message[1] == kind:
                    return message


def controller(listener: socket.socket, answers: bytes) -> None:
    """A learning switch reduced to its messages: for every packet-in one flow-mod, joined by reads. Runs in a child."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        connection, _ = listener.accept()
        if os.fork():
            connection.close()
            continue
        peer = Peer(connection)
        peer.send(HELLO)
        while True:
            try:
                messages = peer.receive()
            except OSError:
                os._exit(0)
            count = sum(message[1] == PACKET_IN for message in messages)
            if count:
                peer.send(answers * count)
            for message in messages:
                if message[1] == wire.ECHO_REQUEST:
                    peer.send(message[:1] + b"\3" + message[2:])


def flow_mod(rng: random.Random) -> bytes:
    macs = {name: rng.getrandbits(46) << 1 for name in ("eth_src", "eth_dst")}
    fields = classifier.encode(of_fields({"in_port": 1, **macs}))
    return wire.message(
        wire.flow_mod_body(wire.MODIFY_STRICT, 0, 5, fields, wire.instructions((act.Output(2),), None)), 77
    )


def packet_ins(rng: random.Random, table: int, number: int, count: int) -> list[bytes]:
    found = []
    for _ in range(count):
        fields = of_fields({"in_port": rng.choice(PORTS), **({"metadata": number << 48} if number else {})})
        data = rng.randbytes(12) + b"\x08\x00" + rng.randbytes(84)
        body = struct.pack("!IHBBQ", 0xFFFFFFFF, len(data), 1, table, 5) + wire.match_struct(classifier.encode(fields))
        found.append(wire.message(body + b"\0\0" + data, 0, PACKET_IN))
    return found


def switch_to_slicer(port: int, number: int) -> tuple[Peer, int]:
    """A switch that has connected and got its classifier, and the first table of the slice with this number."""
    for _ in range(200):
        try:
            peer = Peer(socket.create_connection(("127.0.0.1", port), 60))
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
    peer.send(HELLO)
    blocks: dict[int, int] = {}
    questions = 0
    while True:
        for message in peer.receive():
            kind, xid = message[1], message[4:8]
            if kind == 5:
                peer.send(wire.message(FEATURES, int.from_bytes(xid, "big"), 6))
            elif kind == 18:
                questions += 1
                peer.send(_reply(message))
            elif kind == 20:
                peer.send(wire.message(b"", int.from_bytes(xid, "big"), 21))
                # The last question before guests come is how many entries there are.
                if questions >= 9:
                    return peer, blocks[number]
            elif kind == 14 and message[24] == 0 and message[25] == 0:
                blocks[int.from_bytes(message[-24:-22], "big")] = message[-4]


def _reply(message: bytes) -> bytes:
    kind = int.from_bytes(message[8:10], "big")
    body = b""
    if kind == 13:
        body = b"".join(struct.pack("!I4x6s2x16s32x", n, b"\2\0\0\0\0" + bytes((n,)), b"p%d" % n) for n in PORTS)
    return wire.message(struct.pack("!HH4x", kind, 0) + body, int.from_bytes(message[4:8], "big"), MULTIPART_REPLY)


class FlowMonitor(threading.Thread):
    """Hears of table 0 of a real bridge; ``got_s`` is when its last entry came."""

    def __init__(self, rig: SlicerRig, bridge: str) -> None:
        super().__init__(daemon=True)
        words = ("ovs-ofctl", "-O", "OpenFlow13", "monitor", bridge, "watch:table=0,!initial")
        self.process = subprocess.Popen(words, env=rig.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.got_s = 0.0
        self.entries = 0

    def run(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if b"ADDED" in line:
                self.got_s = time.perf_counter()
                self.entries += 1


def change(args: argparse.Namespace, listen: int, control: str) -> None:
    """How soon another rule of a slice is in force at all of the idle switches."""
    connections = [socket.create_connection(("127.0.0.1", listen), 600) for _ in range(args.switches)]
    switches = [ScriptedSwitch(each, 100 + i, PORTS) for i, each in enumerate(connections)]
    for each in switches:
        each.start()
    while not all(each.ready for each in switches):
        time.sleep(0.05)
    time_changes(Control(control), switches)


def change_on_bridges(args: argparse.Namespace) -> None:
    """The same at bridges of Open vSwitch."""
    with SlicerRig() as rig:
        write_settings(rig.folder, args, 6633, 6653)
        for number in range(1, args.bridges + 1):
            rig.bridge(f"s{number}", number, controlled=False)
        rig.slicer()
        while "slices:" not in rig.log("slicer"):
            time.sleep(0.1)
        begin = time.perf_counter()
        for number in range(1, args.bridges + 1):
            rig.vsctl("set-controller", f"s{number}", "tcp:127.0.0.1:6633")
        control = Control(str(rig.folder / "control"))
        while sum(each["confirmed"] for each in rig.ask("list-datapaths")) < args.bridges:
            time.sleep(0.5)
        took_s = time.perf_counter() - begin
        print(f"{args.slices} slices, {args.rules} rules at {args.bridges} bridges: after {took_s:.1f} s")
        monitors = [FlowMonitor(rig, f"s{number}") for number in range(1, args.bridges + 1)]
        for each in monitors:
            each.start()
        time.sleep(1)
        time_changes(control, monitors)
        memory = psutil.Process(rig.processes["slicer"].pid).memory_info().rss
        print(f"memory {memory / 1e6:.0f} MB (target 500)")
        for each in monitors:
            each.process.terminate()


def time_changes(control: Control, switches: list[ScriptedSwitch] | list[FlowMonitor], repeat: int = 15) -> None:
    """One rule more, and all rules of a slice others: when in force everywhere, and when answered."""
    document = control.ask("GET", "slices", "s1")
    del document["switches"]
    rules = document["flowspace"]
    count = len(rules[0]["match"])
    kinds = {
        "a rule more": lambda number: [*rules, {"match": {"eth_src": _mac((1 << 30) + number)}}],
        f"all {count} rules others": lambda number: [
            {"match": {"eth_src": [_mac((1 << 30) + (number + 2) * count + i) for i in range(count)]}}
        ],
    }
    for kind, made in kinds.items():
        effects, answers = [], []
        for number in range(repeat):
            before = [each.entries for each in switches]
            start = time.perf_counter()
            control.ask("PUT", "slices", "s1", document={**document, "flowspace": made(number)})
            answers.append(time.perf_counter() - start)
            while any(each.entries <= old for each, old in zip(switches, before, strict=True)):
                time.sleep(0.001)
            time.sleep(0.2)
            effects.append(max(each.got_s for each in switches) - start)
        effect, answer = (statistics.median(found) * 1e3 for found in (effects, answers))
        print(
            f"{kind} at {len(switches)} switches: in force after {effect:.0f} ms (most {max(effects) * 1e3:.0f}; "
            f"target 100), answered after {answer:.0f} ms (most {max(answers) * 1e3:.0f})"
        )
        control.ask("PUT", "slices", "s1", document=document)


def latency(peer: Peer, messages: list[bytes], rounds: int) -> list[float]:
    """Microseconds of each round; the first tenth warms up."""
    found = []
    for i in range(rounds):
        start = time.perf_counter_ns()
        peer.send(messages[i % len(messages)])
        peer.wait(wire.FLOW_MOD)
        found.append((time.perf_counter_ns() - start) / 1e3)
    return found[rounds // 10 :]


def rate(
    peer: Peer, messages: list[bytes], window: int, seconds: float, slicer: psutil.Process | None
) -> tuple[float, float]:
    """(flow-mods a second, microseconds of the slicer's CPU for each) with ``window`` packet-ins on the way."""
    sent = got = 0
    cpu = sum(slicer.cpu_times()[:2]) if slicer else 0.0
    start = time.perf_counter()
    peer.send(b"".join(messages[:window]))
    sent = window
    while (now := time.perf_counter()) - start < seconds:
        count = sum(message[1] == wire.FLOW_MOD for message in peer.receive())
        got += count
        if count:
            peer.send(b"".join(messages[(sent + i) % len(messages)] for i in range(count)))
            sent += count
    used = sum(slicer.cpu_times()[:2]) - cpu if slicer else 0.0
    while got < sent:
        got += sum(message[1] == wire.FLOW_MOD for message in peer.receive())
    return got / (now - start), used / got * 1e6


def write_settings(folder: Path, args: argparse.Namespace, listen: int, dial: int) -> Path:
    each = max(1, args.rules // args.slices)
    slices = [
        {
            "name": f"s{i}",
            "controllers": [f"tcp:127.0.0.1:{dial}"] if args.all_guests or i == args.slices // 2 else [],
            "flowspace": [{"match": {"eth_src": [_mac(i * each + k) for k in range(each)]}}],
            "limits": {"tables": 2, "packet_ins_per_s": 1e6, "flow_mods_per_s": 1e6, "flow_entries": 1_000_000},
        }
        for i in range(args.slices)
    ]
    path = folder / "slicer.json"
    path.write_text(json.dumps({"slices": slices, "listen": {"openflow": {"port": listen}, "control": "control"}}))
    return path


def _mac(number: int) -> str:
    text = f"{(2 << 40) + number:012x}"
    return ":".join(text[i : i + 2] for i in range(0, 12, 2))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (
        ("slices", 100),
        ("rules", 10_000),
        ("rounds", 4000),
        ("window", 64),
        ("repeat", 3),
        ("switches", 10),
        ("bridges", 0),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--cores", choices=("any", "one", "own"), default="any")
    parser.add_argument("--all-guests", action="store_true", help="a connection for every slice")
    args = parser.parse_args()
    if args.bridges:
        change_on_bridges(args)
        return
    if args.cores != "any":
        os.sched_setaffinity(0, {0})
    rng = random.Random(1)
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)
    dial, listen = listener.getsockname()[1], free_port()
    child = os.fork()
    if not child:
        controller(listener, flow_mod(rng))
    listener.close()
    with tempfile.TemporaryDirectory() as name:
        config = write_settings(Path(name), args, listen, dial)
        with (Path(name) / "log").open("w") as log:
            slicer = subprocess.Popen(
                [sys.executable, "-m", "hyroads.controller.cli", "slicer", "--config", str(config)], stderr=log
            )
            relay, between = start_relay(dial)
            if args.cores == "own":
                for each in (slicer, relay):
                    if each is not None:
                        os.sched_setaffinity(each.pid, {1})
            try:
                measure(args, rng, dial, listen, psutil.Process(slicer.pid), between)
                if args.switches:
                    change(args, listen, str(Path(name) / "control"))
            finally:
                for each in (slicer, relay):
                    if each is not None:
                        each.terminate()
                        each.wait(10)
                os.kill(child, 15)
                print((Path(name) / "log").read_text(), file=sys.stderr)


def start_relay(dial: int) -> tuple[subprocess.Popen[bytes] | None, int]:
    """(the process, its port) of socat, which copies what comes; (None, 0) without it."""
    if shutil.which("socat") is None:
        return None, 0
    port = free_port()
    ends = (f"TCP-LISTEN:{port},bind=127.0.0.1,reuseaddr,nodelay", f"TCP:127.0.0.1:{dial},nodelay")
    return subprocess.Popen(["socat", *ends]), port


def measure(
    args: argparse.Namespace, rng: random.Random, dial: int, listen: int, slicer: psutil.Process, between: int
) -> None:
    direct = Peer(socket.create_connection(("127.0.0.1", dial)))
    direct.send(HELLO)
    start = time.perf_counter()
    # Numbers go by the order of names, production first.
    number = 2 + sorted(f"s{i}" for i in range(args.slices)).index(f"s{args.slices // 2}")
    sliced, table = switch_to_slicer(listen, number)
    print(f"{args.slices} slices, {args.rules} rules: ready {time.perf_counter() - start:.2f} s after the switch came")
    time.sleep(1.5)
    plain, marked = packet_ins(rng, 0, 0, 512), packet_ins(rng, table, number, 512)
    ways: list[tuple[str, Peer, list[bytes], psutil.Process | None]] = [("direct", direct, plain, None)]
    if between:
        relayed = Peer(socket.create_connection(("127.0.0.1", between)))
        relayed.send(HELLO)
        ways.append(("through socat", relayed, plain, None))
    ways.append(("through the slicer", sliced, marked, slicer))
    times: dict[str, list[float]] = {way: [] for way, *_ in ways}
    rates: dict[str, list[tuple[float, float]]] = {way: [] for way, *_ in ways}
    for _ in range(args.repeat):
        for way, peer, messages, process in ways:
            times[way] += latency(peer, messages, args.rounds // args.repeat)
            rates[way].append(rate(peer, messages, args.window, args.seconds / args.repeat, process))
    for way, found in times.items():
        found.sort()
        fast = statistics.median(rate for rate, _ in rates[way])
        cpu = statistics.median(cpu for _, cpu in rates[way])
        worst = found[int(0.99 * len(found))]
        print(
            f"{way:20s} median {statistics.median(found):6.1f} us, 99 % {worst:6.1f} us; {fast:7,.0f} a second", end=""
        )
        print(f", {cpu:.1f} us of CPU for each" if cpu else "")
    added = {way: statistics.median(found) - statistics.median(times["direct"]) for way, found in times.items()}
    mine = added["through the slicer"]
    print(f"added: {mine:.1f} us (target 80); memory {slicer.memory_info().rss / 1e6:.0f} MB (target 500)")
    if between:
        print(
            f"beside the relay, which adds {added['through socat']:.1f} us: {mine / added['through socat']:.2f} times"
        )
    used_s = sum(slicer.cpu_times()[:2])
    time.sleep(5)
    print(f"idle: {(sum(slicer.cpu_times()[:2]) - used_s) * 1e3:.0f} ms of CPU in 5 s")


if __name__ == "__main__":
    main()

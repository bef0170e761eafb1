"""The kernel plane of a client beside no plane at all, and migrations of a running TCP connection (root).

    python benchmarks/kernel_plane.py [--rounds 5] [--seconds 2] [--migrations 20] [--json FILE]

Throughput: ten TCP connections (iperf3, cubic) over four unshaped veth pairs and a forwarding namespace. *direct* is a
multipath route with no nftables rule, *plane* the same connections bound by the kernel plane, *waypoint* through its
tunnels; each round measures all three. RTT: medians of 500 pings.

Migrations: one TCP connection of 40 Mb/s moves to and fro; every byte is checked. The gap is the longest time between
two arrivals at the receiver. The goodput is what arrived beside what arrives in the same time without a migration.
*Order to last packet* is from the daemon's call to the last data packet that leaves by the old interface.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from kernel_lab import SERVER4, KernelLab, Stream  # isort: split

from hyroads.mininet.programs import run

INTERFACES, CONNECTIONS, PINGS = 4, 10, 500
SO_TIMESTAMPNS = 35
ETH_P_ALL, PACKET_OUTGOING = 3, 4


def multipath(lab: KernelLab, what: str) -> None:
    """The direct way to the server: a route over all interfaces, by addresses and ports."""
    hops = [word for k in range(1, INTERFACES + 1) for word in ("nexthop", "via", f"10.1.{k}.1", "dev", f"e{k}")]
    run("ip", "-n", lab.namespace("client"), "route", what, f"{SERVER4}/32", *hops)


def gbps(lab: KernelLab, seconds: float) -> float:
    command = ("iperf3", "-c", SERVER4, "-P", str(CONNECTIONS), "-t", f"{seconds:g}", "-C", "cubic", "-J")
    told = json.loads(lab.run("client", *command, timeout_s=seconds + 20))
    return float(told["end"]["sum_received"]["bits_per_second"]) / 1e9


def rtt_us(lab: KernelLab) -> float:
    text = lab.run("client", "ping", "-n", "-i", "0.002", "-c", str(PINGS), SERVER4)
    return statistics.median(float(each) * 1000 for each in re.findall(r"time=([\d.]+)", text))


def loads(folder: Path, rounds: int, seconds: float) -> dict[str, Any]:
    found: dict[str, dict[str, list[float]]] = {m: {"gbps": [], "rtt_us": []} for m in ("direct", "plane", "waypoint")}
    with KernelLab(f"hr-kb{os.getpid()}", folder, INTERFACES) as lab:
        lab.run("client", "sysctl", "-qw", "net.ipv4.fib_multipath_hash_policy=1")
        server = subprocess.Popen(
            ["ip", "netns", "exec", lab.namespace("server"), "iperf3", "-s"], stdout=subprocess.DEVNULL
        )
        try:
            time.sleep(0.5)
            for _ in range(rounds):
                for mode, figures in found.items():
                    ends = []
                    if mode == "direct":
                        multipath(lab, "add")
                    if mode == "waypoint":
                        ends.append(lab.end("waypoint"))
                        ends[0].do("install", document=lab.sessions())
                    if mode != "direct":
                        ends.append(lab.end("client"))
                        ends[-1].do("install", document=lab.document() if mode == "plane" else lab.through_waypoint())
                    lab.run("client", "ping", "-n", "-c", "3", "-i", "0.2", SERVER4)
                    figures["rtt_us"].append(rtt_us(lab))
                    figures["gbps"].append(gbps(lab, seconds))
                    for end in ends:
                        end.do("remove")
                    if mode == "direct":
                        multipath(lab, "del")
        finally:
            server.terminate()
            server.wait(10)
    median = {
        mode: {name: statistics.median(each) for name, each in figures.items()} for mode, figures in found.items()
    }
    rounds_of = {
        mode: [each / direct for each, direct in zip(found[mode]["gbps"], found["direct"]["gbps"], strict=True)]
        for mode in ("plane", "waypoint")
    }
    return {
        "medians": median,
        "ratio": {mode: statistics.median(each) for mode, each in rounds_of.items()},
        "ratios": rounds_of,
        "more_rtt_us": {mode: median[mode]["rtt_us"] - median["direct"]["rtt_us"] for mode in rounds_of},
    }


class Watcher:
    """When the last large packet left by each interface of the client, by the kernel's clock."""

    def __init__(self, lab: KernelLab) -> None:
        self.last_s: dict[str, float] = {}
        self._stop = threading.Event()
        self._sockets: dict[str, socket.socket] = {}
        for name in ("e1", "e2"):
            each = lab.socket("client", socket.AF_PACKET, socket.SOCK_RAW)
            each.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
            each.bind((name, ETH_P_ALL))
            each.settimeout(0.2)
            self._sockets[name] = each
        self._threads = [threading.Thread(target=self._watch, args=pair) for pair in self._sockets.items()]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(2)
        for each in self._sockets.values():
            each.close()

    def _watch(self, name: str, packets: socket.socket) -> None:
        while not self._stop.is_set():
            try:
                data, extra, _, address = packets.recvmsg(2000, 64)
            except TimeoutError:
                continue
            if address[2] == PACKET_OUTGOING and len(data) > 500:
                seconds, nanoseconds = struct.unpack("qq", extra[0][2])
                self.last_s[name] = seconds + nanoseconds / 1e9


def migrations(folder: Path, way: str, count: int, down: bool) -> dict[str, Any]:
    with KernelLab(f"hr-kb{os.getpid()}", folder, 2) as lab:
        far, client = lab.end("waypoint" if way == "waypoint" else "server"), lab.end("client")
        far.do("install", document=lab.sessions())
        client.do("install", document=lab.through_waypoint(*(() if way == "waypoint" else (SERVER4,))))
        stream = Stream(lab, down=down)
        flow = next(each for each in client.do("flows") if each["destination"][1] == 7000)
        watcher = Watcher(lab)
        time.sleep(1.0)
        gaps, last, took, at = [], [], [], flow["interface"]
        stream.forget_gap()
        quiet = stream.received_bytes, time.monotonic()
        time.sleep(0.25 * count)
        before = stream.received_bytes, time.monotonic()
        still_gap_s = stream.gap_s
        for _ in range(count):
            old, at = at, "e1" if at == "e2" else "e2"
            stream.forget_gap()
            ordered_s = time.time()
            client.do("migrate", flow=flow["id"], interface=at)
            took.append(client.took_s)
            time.sleep(0.25)
            gaps.append(stream.gap_s)
            last.append(max(0.0, watcher.last_s.get(old, 0.0) - ordered_s))
        after = stream.received_bytes, time.monotonic()
        watcher.close()
        stream.stop()  # Raises an error if a byte is missing or wrong.
    rate = [(b[0] - a[0]) / (b[1] - a[1]) for a, b in ((quiet, before), (before, after))]
    return {
        "way": way,
        "direction": "down" if down else "up",
        "count": count,
        "longest_gap_ms": max(gaps) * 1000,
        "median_gap_ms": statistics.median(gaps) * 1000,
        "longest_gap_without_migration_ms": still_gap_s * 1000,
        "goodput": rate[1] / rate[0],
        "call_ms": statistics.median(took) * 1000,
        **(
            {}
            if down
            else {"order_to_last_packet_ms": {"median": statistics.median(last) * 1e3, "worst": max(last) * 1e3}}
        ),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--migrations", type=int, default=20)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found = {
            "loads": loads(folder, options.rounds, options.seconds) if options.rounds else {},
            "migrations": [
                migrations(folder, way, options.migrations, down)
                for way in ("waypoint", "peer")
                for down in (False, True)
                if options.migrations
            ],
        }
    text = json.dumps(found, indent=2)
    print(text)
    if options.json:
        options.json.write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

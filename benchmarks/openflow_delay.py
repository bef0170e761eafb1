"""What switches notice while their controller polls 100 access points by SNMP each second: round trips of echoes.

The real application under its own launcher, with measured capacities, a slot each 100 ms and 20 nodes in its network
file; 100 targets on real snmpds (``benchmarks/snmp.py`` starts them). A switch of ours sends an OpenFlow echo request
each 10 ms, first to a controller that polls nobody, then to one that polls all.

    python benchmarks/openflow_delay.py [--targets 100] [--snmpd 20] [--seconds 12]      (root)
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

from snmp import AUTH, NAMESPACE, PRIV, TECHNOLOGIES, cpu_s, inside, start_access_points

PERIOD_S = 0.01
DPID = 0xFFFF
HELLO, ECHO_REQUEST, ECHO_REPLY, FEATURES_REQUEST, FEATURES_REPLY, MULTIPART_REQUEST, MULTIPART_REPLY = (
    0, 2, 3, 5, 6, 18, 19,
)  # fmt: skip
PORT_DESCRIPTIONS = 13
SETTLE_S = 6.0


class Switch:
    """The least of an OpenFlow 1.3 switch: it greets, and sends echo requests."""

    def __init__(self) -> None:
        self._socket = socket.create_connection(("127.0.0.1", 6653), timeout=5)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sent: dict[int, float] = {}
        self.round_trips: list[float] = []
        self._send(HELLO, 1)
        threading.Thread(target=self._receive, daemon=True).start()

    def _send(self, kind: int, xid: int, body: bytes = b"") -> None:
        self._socket.sendall(struct.pack("!BBHI", 4, kind, 8 + len(body), xid) + body)

    def _receive(self) -> None:
        stream = self._socket.makefile("rb")
        with suppress(OSError):
            while header := stream.read(8):
                _, kind, length, xid = struct.unpack("!BBHI", header)
                body = stream.read(length - 8)
                if kind == ECHO_REPLY:
                    self.round_trips.append(time.perf_counter() - self._sent.pop(xid))
                elif kind == ECHO_REQUEST:
                    self._send(ECHO_REPLY, xid, body)
                elif kind == FEATURES_REQUEST:
                    self._send(FEATURES_REPLY, xid, struct.pack("!QIBB2xII", DPID, 256, 254, 0, 0x4F, 0))
                elif kind == MULTIPART_REQUEST and struct.unpack("!H", body[:2])[0] == PORT_DESCRIPTIONS:
                    self._send(MULTIPART_REPLY, xid, struct.pack("!HH4x", PORT_DESCRIPTIONS, 0))

    def echo_for(self, seconds: float) -> list[float]:
        """Round trips in seconds; one that did not come back counts as the time that it was waited for."""
        self.round_trips.clear()
        began_s = time.perf_counter()
        for number in range(round(seconds / PERIOD_S)):
            time.sleep(max(0.0, began_s + number * PERIOD_S - time.perf_counter()))
            self._sent[1000 + number] = time.perf_counter()
            self._send(ECHO_REQUEST, 1000 + number)
        time.sleep(1.0)
        return [*self.round_trips, *(time.perf_counter() - sent_s for sent_s in self._sent.values())]


def network_document(count: int) -> dict:
    nodes = {f"n{i}": {"role": "gateway" if i == 0 else "ap", "technologies": list(TECHNOLOGIES)} for i in range(count)}
    flows = [{"id": f"f{i}", "from": f"n{i}", "to": f"n{(i + 3) % count}"} for i in range(0, count, 2)]
    return {"name": "ring", "nodes": nodes, "links": "discover", "technologies": {k: {} for k in TECHNOLOGIES},
            "interference": {"rule": "hearing"}, "flows": flows}  # fmt: skip


def settings(arguments: argparse.Namespace, directory: Path, polls: bool) -> Path:
    network = directory / "network.json"
    network.write_text(json.dumps(network_document(arguments.snmpd)))
    keys = {"user": "bench", "auth_password": AUTH, "priv_password": PRIV}
    hosts = [f"127.161.0.{i % arguments.snmpd + 1}" for i in range(arguments.targets)]
    targets = [{"name": f"ap-{i}", "host": host, "port": 161, **keys} for i, host in enumerate(hosts)]
    file = directory / f"controller-{polls}.json"
    file.touch(mode=0o600)
    file.write_text(json.dumps({"network": str(network), "capacities": "measured",
                                **({"snmp": {"targets": targets}} if polls else {})}))  # fmt: skip
    return file


def get(what: str) -> dict:
    with urllib.request.urlopen(f"http://127.0.0.1:8080/api/v1/{what}", timeout=5) as answer:
        return json.load(answer)


def until_up() -> None:
    deadline_s = time.monotonic() + 20
    while time.monotonic() < deadline_s:
        with suppress(OSError):
            get("health")
            return
        time.sleep(0.1)
    sys.exit("the controller does not answer")


def measure(arguments: argparse.Namespace, directory: Path, polls: bool) -> dict:
    """A controller from its start to its end; runs inside the namespace."""
    os.setpriority(os.PRIO_PROCESS, 0, 0)
    code = "import sys; from hyroads.controller.cli.main import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "controller", "--config", str(settings(arguments, directory, polls))]
    with (directory / f"controller-{polls}.log").open("wb") as log, subprocess.Popen(
        command, stdout=log, stderr=log
    ) as controller:  # fmt: skip
        until_up()
        # The switch is elsewhere in reality: it does not wait for what runs here.
        os.setpriority(os.PRIO_PROCESS, 0, -5)
        switch = Switch()
        time.sleep(SETTLE_S)
        before, spent_s = get("health")["counters"], cpu_s(controller.pid)
        trips = sorted(switch.echo_for(arguments.seconds))
        spent_s = cpu_s(controller.pid) - spent_s
        rows = get("measurements")["snmp"]
        found = {
            "p50": trips[len(trips) // 2], "p99": trips[int(0.99 * len(trips))], "p999": trips[int(0.999 * len(trips))],
            "max": trips[-1], "echoes": len(trips), "cpu": spent_s / (arguments.seconds + 1),
            "fresh": sum(row["age_s"] is not None and row["age_s"] < 2 for row in rows),
            "exceptions": get("health")["counters"]["exceptions"] - before["exceptions"],
        }  # fmt: skip
        controller.terminate()
    return found


def report(arguments: argparse.Namespace, without: dict, polling: dict) -> None:
    print(f"{arguments.targets} targets, v3 authPriv, on {arguments.snmpd} snmpds; {polling['echoes']} echoes\n")
    print(f"{'round trip of an echo, ms':<40}{'no polls':>10}{'polling':>10}{'more':>10}   target: < 20 more")
    for key, name in (("p50", "median"), ("p99", "99 %"), ("p999", "99.9 %"), ("max", "worst")):
        figures = (1e3 * without[key], 1e3 * polling[key], 1e3 * (polling[key] - without[key]))
        print(f"{name:<40}" + "".join(f"{figure:>10.2f}" for figure in figures))
    print(f"{'CPU of the controller, % of a core':<40}{100 * without['cpu']:>10.1f}{100 * polling['cpu']:>10.1f}")
    print(f"{'targets with a sample of the last 2 s':<40}{without['fresh']:>10}{polling['fresh']:>10}")
    print(f"{'exceptions':<40}{without['exceptions']:>10}{polling['exceptions']:>10}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--targets", type=int, default=100)
    parser.add_argument("--snmpd", type=int, default=20, help="real snmpd processes (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=12)
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        print(json.dumps([measure(arguments, Path(arguments.inside), polls) for polls in (False, True)]))
        return 0
    started = []
    with tempfile.TemporaryDirectory(prefix="hyroads-bench-") as name:
        subprocess.run(["ip", "netns", "add", NAMESPACE], check=True)
        try:
            subprocess.run(["ip", "-n", NAMESPACE, "link", "set", "lo", "up"], check=True)
            started = start_access_points(arguments.snmpd, Path(name))
            command = inside(sys.executable, __file__, "--inside", name, *sys.argv[1:])
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                print(done.stderr, file=sys.stderr)
                return 2
            report(arguments, *json.loads(done.stdout.splitlines()[-1]))
        finally:
            for process in started:
                process.terminate()
            for process in started:
                process.wait()
            subprocess.run(["ip", "netns", "del", NAMESPACE], check=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())

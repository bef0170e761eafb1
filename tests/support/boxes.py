"""Three boxes on plain Ethernet: real bridges, agents and a controller, with segments of a chosen MTU as media.

The segments are bridges of Linux; what leaves one for a box has the rate of a link of ``NETWORK``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from ovs_rig import Rig, run

ROOT = Path(__file__).resolve().parents[2]
EDGE = ROOT / "dataplane" / "target" / "release" / "hyroads-edge"
CONTROLLER = "from hyroads.controller.framework.launcher import run_controller; raise SystemExit(run_controller())"
BOXES = ("gw", "up", "attic")
MEDIA = {"plc": ("gw", "up"), "wifi": BOXES}
NETWORK = """
name: boxes
nodes: {gw: {role: gateway}, up: {role: ap}, attic: {role: ap}}
links:
  - {id: gu-plc, from: gw, to: up, technology: plc, capacity_mbps: 10, both: true}
  - {id: gu-wifi, from: gw, to: up, technology: wifi, capacity_mbps: 15, both: true}
  - {id: ua-wifi, from: up, to: attic, technology: wifi, capacity_mbps: 30, both: true}
interference: {rule: technology}
"""
SINGLE_MBPS = 10.0
"""Of the single path from gw to attic: by the power line, then by WiFi."""
RATES = {("plc", "up"): 10, ("plc", "gw"): 10, ("wifi", "up"): 15, ("wifi", "gw"): 15, ("wifi", "attic"): 30}
WITHIN_S = 60.0
START_WITHIN_S = 180.0
"""On a busy machine a controller takes a minute to load its modules."""


class Boxes:
    """Runs as a context; ``mtu`` is that of the ports by technology. Hosts have the addresses 10.0.0.1 (at gw) to
    10.0.0.3 (at attic) and fd00::1 to fd00::3.
    """

    def __init__(self, folder: Path, mtu: Mapping[str, int]) -> None:
        self.folder, self.mtu, self.rig = folder, mtu, Rig()
        self.hosts: dict[str, str] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Boxes:
        self._stack.enter_context(self.rig)
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self) -> None:
        (self.folder / "network.yaml").write_text(NETWORK)
        settings = {"network": str(self.folder / "network.yaml"), "timings": {"grace_s": 2.0}}
        path = self.folder / "hyroads.json"
        path.write_text(json.dumps(settings))
        path.chmod(0o600)
        self.process("controller", sys.executable, "-c", CONTROLLER, HYROADS_CONFIG=str(path))
        for technology in MEDIA:
            self.rig.inside("ip", "link", "add", f"sw-{technology}", "type", "bridge")
            self.rig.inside("ip", "link", "set", f"sw-{technology}", "mtu", str(self.mtu[technology]), "up")
        for number, box in enumerate(BOXES, 1):
            self._box(number, box)
        self.until(lambda: self.health().get("ok"), START_WITHIN_S)

    def _box(self, number: int, box: str) -> None:
        ports = {"--access": f"{box}-acc", "--network": f"{box}-net"}
        words = [word for option, port in ports.items() for word in (option, f"tap:{port}")]
        self.process(f"edge-{box}", str(EDGE), "--node", box, "--controller", "127.0.0.1:6654", "--realtime", *words)
        self.rig.bridge(f"br-{box}", number, controlled=False)
        at = 1
        for technology, members in MEDIA.items():
            if box in members:
                self._segment(box, technology)
                self.rig.port(f"br-{box}", f"{box}-{technology}", at)
                at += 1
        mac = f"02:00:00:00:00:{number:02x}"
        self.hosts[box] = self.rig.host(f"br-{box}", f"{box}-host", at, mac, f"10.0.0.{number}")
        run("ip", "-n", self.hosts[box], "addr", "add", f"fd00::{number}/64", "dev", "eth0", "nodad")
        for port in ports.values():
            self.until(lambda port=port: self.has(port))
            at += 1
            self.rig.port(f"br-{box}", port, at)
        self.rig.vsctl("set-controller", f"br-{box}", "tcp:127.0.0.1:6653")

    def _segment(self, box: str, technology: str) -> None:
        port, far, mtu = f"{box}-{technology}", f"x-{box}-{technology}", str(self.mtu[technology])
        self.rig.inside("ip", "link", "add", port, "mtu", mtu, "type", "veth", "peer", "name", far, "mtu", mtu)
        self.rig.inside("ip", "link", "set", far, "master", f"sw-{technology}", "up")
        self.rig.inside("ip", "link", "set", port, "up")
        rate = f"{RATES[technology, box]}mbit"
        shaped = ("root", "tbf", "rate", rate, "burst", "16k", "latency", "60ms")
        self.rig.inside("tc", "qdisc", "add", "dev", far, *shaped)

    def process(self, name: str, *words: str, namespace: str | None = None, **environment: str) -> None:
        """Starts a program that ends with the boxes."""
        command = ("ip", "netns", "exec", namespace or self.rig.namespace, *words)
        with (self.folder / f"{name}.log").open("ab") as log:
            started = subprocess.Popen(command, env={**os.environ, **environment}, stdout=log, stderr=log)
        self._stack.callback(self._end, started)

    @staticmethod
    def _end(process: subprocess.Popen[Any]) -> None:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def until(self, what: Callable[[], Any], within_s: float = WITHIN_S) -> Any:
        """The first true value of ``what``."""
        end_s = time.monotonic() + within_s
        while not (value := what()):
            assert time.monotonic() < end_s, f"not within {within_s} s: {value!r}"
            time.sleep(0.05)
        return value

    def has(self, interface: str) -> bool:
        with suppress(RuntimeError):
            self.rig.inside("ip", "link", "show", "dev", interface)
            return True
        return False

    def rest(self, path: str, *options: str) -> Any:
        """A document of the controller's REST API; {} while it does not answer."""
        url = f"http://127.0.0.1:8080/api/v1{path}"
        try:
            return json.loads(self.rig.inside("curl", "-s", "-m", "20", *options, url) or "{}")
        except (RuntimeError, ValueError):
            return {}

    def health(self) -> dict[str, Any]:
        found: dict[str, Any] = self.rest("/health")
        return found

    def at(self, box: str, *words: str, within_s: float = 30.0) -> subprocess.CompletedProcess[str]:
        """Runs a program at a host."""
        command = ("ip", "netns", "exec", self.hosts[box], *words)
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=within_s)

    def received_mbps(self, *options: str) -> float:
        """What iperf3 measures from gw to attic, at the receiver, within a second and after one."""
        for _ in range(20):
            # One that serves a single transfer; where another one still waits this one ends.
            self.process("iperf3", "iperf3", "-s", "-1", namespace=self.hosts["attic"])
            done = self.at("gw", "iperf3", "-J", "-c", "10.0.0.3", "-t", "1", "-O", "1", *options)
            end = json.loads(done.stdout or "{}").get("end", {})
            # Of datagrams the sum is what was sent.
            sums = end.get("sum" if "-u" in options else "sum_received")
            if sums:
                return float(sums["bits_per_second"]) * (1 - sums.get("lost_percent", 0.0) / 100) / 1e6
            time.sleep(0.1)
        raise AssertionError(done.stdout + done.stderr)

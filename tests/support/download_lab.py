"""A client with several interfaces and a web server behind them, in two network namespaces (root).

Interface ``if0``, ``if1``, ... of the client leads to the server by a link of its own; the server's end shapes what the
client receives. The server has one address, 10.99.0.1, that all links lead to; the client has a default route for each.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

SERVER = "10.99.0.1"
PORT = 8000
# What of a link's rate is left for the bytes of a file: 1448 of 1514 with Ethernet, IPv4, TCP and its timestamps.
GOODPUT = 1448 / 1514
ROOT = Path(__file__).resolve().parents[2]
SUPPORT = Path(__file__).resolve().parent


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout


class Lab:
    """Two namespaces; ``rates_mbps`` are those of the links (None: not shaped)."""

    def __init__(self, rates_mbps: Sequence[float | None], folder: Path, *, delay_ms: float = 0.0) -> None:
        self.rates_mbps = list(rates_mbps)
        self.folder = folder
        self.client, self.server = (f"hr-dl{os.getpid()}-{end}" for end in "cs")
        self.names = [f"if{k}" for k in range(len(self.rates_mbps))]
        self._programs: list[subprocess.Popen] = []

    def __enter__(self) -> Lab:
        for name in (self.client, self.server):
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
        run("ip", "-n", self.server, "address", "add", f"{SERVER}/32", "dev", "lo")
        for k, name in enumerate(self.names):
            end = f"to{k}"
            run("ip", "link", "add", name, "netns", self.client, "type", "veth", "peer", end, "netns", self.server)
            for netns, device, host in ((self.client, name, 2), (self.server, end, 1)):
                run("ip", "-n", netns, "address", "add", f"10.90.{k}.{host}/24", "dev", device)
                run("ip", "-n", netns, "link", "set", device, "up")
            self._route(k)
            if self.rates_mbps[k] is not None:
                self.set_rate(k, self.rates_mbps[k])
        self.folder.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, *error: object) -> None:
        for program in self._programs:
            program.kill()
            program.wait()
        for name in (self.client, self.server):
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)

    def _route(self, k: int) -> None:
        gateway = ["via", f"10.90.{k}.1", "dev", self.names[k], "metric", str(100 + k)]
        run("ip", "-n", self.client, "route", "replace", "default", *gateway)
        # For programs that choose an interface by its address, such as aria2.
        run("ip", "-n", self.client, "route", "replace", "default", *gateway[:4], "table", str(100 + k))
        rule = ["from", f"10.90.{k}.2", "lookup", str(100 + k)]
        if f"10.90.{k}.2 lookup" not in run("ip", "-n", self.client, "rule", "show"):
            run("ip", "-n", self.client, "rule", "add", *rule)

    def set_rate(self, k: int, mbps: float) -> None:
        """What the client receives over an interface, from now on; queues for 50 ms."""
        burst = max(3200, int(mbps * 1e6 / 8 * 0.002))
        limit = max(20_000, int(mbps * 1e6 / 8 * 0.05))
        shaping = ["tbf", "rate", f"{mbps}mbit", "burst", str(burst), "limit", str(limit)]
        run("tc", "-n", self.server, "qdisc", "replace", "dev", f"to{k}", "root", "handle", "1:", *shaping)
        self.rates_mbps[k] = mbps

    def set_link(self, k: int, up: bool) -> None:
        """The carrier of an interface goes or comes back."""
        run("ip", "-n", self.server, "link", "set", f"to{k}", "up" if up else "down")
        if up:
            self._route(k)

    def set_silent(self, k: int, silent: bool) -> None:
        """An interface carries nothing to the client, although it is up."""
        what = ["blackhole", f"10.90.{k}.2/32"]
        run("ip", "-n", self.server, "route", "replace" if silent else "delete", *what)

    @property
    def possible_mbps(self) -> float:
        """What all interfaces together can carry of a file."""
        return sum(mbps for mbps in self.rates_mbps if mbps) * GOODPUT

    def serve(self, ports: Sequence[int] = (PORT,)) -> None:
        """The web server of tests, at some ports."""
        listen = [word for port in ports for word in ("--listen", f"0.0.0.0:{port}")]
        command = [sys.executable, str(SUPPORT / "range_server.py"), *listen, str(self.folder)]
        program = self.start(self.server, *command, stdout=subprocess.PIPE)
        assert program.stdout.readline().strip() == b"serving"

    def start(self, netns: str, *command: str, **how) -> subprocess.Popen:
        """A program in a namespace; it is killed with the lab."""
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        program = subprocess.Popen(["ip", "netns", "exec", netns, *command], env=environment, **how)
        self._programs.append(program)
        return program

    def fetch(self, *words: str, **how) -> subprocess.Popen:
        """``hyroads fetch`` on the client."""
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **how}
        return self.start(self.client, sys.executable, "-m", "hyroads.controller.cli", "fetch", *words, **pipes)

    def fetched(self, *words: str, timeout_s: float = 60.0) -> tuple[int, dict, str, float]:
        """Exit status, document, standard error and wall clock seconds of ``hyroads fetch --json``."""
        began_s = time.monotonic()
        program = self.fetch("--json", *words)
        out, error = program.communicate(timeout=timeout_s)
        return program.returncode, json.loads(out) if out.strip() else {}, error, time.monotonic() - began_s

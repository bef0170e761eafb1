"""Demo ``download``: a laptop with two interfaces fetches a file over both, one of which goes and comes back.

There is no controller: the networks are foreign ones. The laptop is the emulation's own network namespace, the server
another one; two links of 20 and 30 Mb/s lead there. Theory is what is left of both for the bytes of a file.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hyroads.mininet import run_directory
from hyroads.mininet.file_server import content
from hyroads.mininet.isolation import run_isolated
from hyroads.mininet.programs import HYROADS, EmulationError, Program, check_prerequisites, run, wait_until

from .checks import DemoOptions
from .judged_stage import JudgedStage

RATES_MBPS = {"plc0": 20.0, "wlan0": 30.0}
# Of an Ethernet frame of 1514 bytes TCP leaves 1448 to a file.
GOODPUT = 1448 / 1514
SERVER = "10.99.0.1"
PORT = 8000
PROXY = "127.0.0.1:3128"
QUEUE_S = 0.05
AWAY = (1.0, 2.5)
"""When the second interface goes and comes back, seconds after a download began."""


def run_alone(how: DemoOptions, name: str, say: Callable[[str], None]) -> int:
    """Runs the demo in namespaces of its own, prints the verdict, returns the exit status (0, or 1: a check fails)."""
    check_prerequisites(("ip",))
    if shutil.which("curl") is None:
        raise EmulationError("missing system packages: curl (apt-get install curl)")
    for swept in run_directory.sweep():
        say(f"swept what a dead {swept} left behind")
    directory = run_directory.claim(name)
    try:
        laptop, server = run_directory.namespace_name(name), run_directory.namespace_name(name, "server")
        directory.record([laptop, server])
        for namespace in (laptop, server):
            run("ip", "netns", "add", namespace)
            run("ip", "-n", namespace, "link", "set", "lo", "up")
        _connect(laptop, server)
        return run_isolated(run_directory.NETNS_ROOT / laptop, _Demo(how, directory.path, server).run)
    finally:
        directory.release()


def _connect(laptop: str, server: str) -> None:
    """A link for each interface, shaped where the server sends; all lead to the server's one address."""
    run("ip", "-n", server, "address", "add", f"{SERVER}/32", "dev", "lo")
    for k, (name, mbps) in enumerate(RATES_MBPS.items()):
        run("ip", "link", "add", name, "netns", laptop, "type", "veth", "peer", f"to-{name}", "netns", server)
        for namespace, device, host in ((laptop, name, 2), (server, f"to-{name}", 1)):
            run("ip", "-n", namespace, "address", "add", f"10.90.{k}.{host}/24", "dev", device)
            run("ip", "-n", namespace, "link", "set", device, "up")
        _route(laptop, k)
        queue = ["burst", "8000", "limit", str(int(mbps * 125_000 * QUEUE_S))]
        run("tc", "-n", server, "qdisc", "add", "dev", f"to-{name}", "root", "tbf", "rate", f"{mbps}mbit", *queue)
        # For aria2, which chooses an interface by its address.
        run("ip", "-n", laptop, "rule", "add", "from", f"10.90.{k}.2", "lookup", str(100 + k))


def _route(namespace: str | None, k: int) -> None:
    """The default routes by way of interface number ``k``; the kernel drops them with the carrier."""
    where = [] if namespace is None else ["-n", namespace]
    gateway = ["default", "via", f"10.90.{k}.1", "dev", [*RATES_MBPS][k], "metric", str(100 + k)]
    run("ip", *where, "route", "replace", *gateway)
    run("ip", *where, "route", "replace", *gateway, "table", str(100 + k))


class _Demo(JudgedStage):
    """The laptop's part, inside its namespace."""

    def __init__(self, how: DemoOptions, folder: Path, server: str) -> None:
        super().__init__("download", how)
        self._folder, self._server = folder, server
        self._mbps = sum(RATES_MBPS.values()) * GOODPUT
        self._bytes = int(self.hold_s * self._mbps * 125_000)
        self._url = f"http://{SERVER}:{PORT}/film.bin"
        self._target = folder / "film.bin"
        self._digest = hashlib.sha256(content(self._bytes)).hexdigest()

    def run(self) -> int:
        """All of it; returns the exit status."""
        words = ["-m", "hyroads.mininet.file_server", "--port", str(PORT), "--bytes", str(self._bytes)]
        inside = ["ip", "netns", "exec", self._server, sys.executable]
        Program(
            "file server", [*inside, *words, "--file", str(self._folder / "served")], self._folder / "server.log"
        ).start()
        wait_until("the file server", self._is_served, 10.0)
        with self.beside(self._folder, shaped=True), self.view:
            self.view.phase(f"a file of {self._bytes / 1e6:.0f} MB over {' and '.join(RATES_MBPS)}")
            self._fetch_over_both()
            self._aria2()
            self._fetch_while_one_goes()
            self._proxy()
        return self.conclude()

    def _is_served(self) -> bool:
        words = ["curl", "-sSf", "-o", "/dev/null", "-r", "0-9", self._url]
        return subprocess.run(words, check=False, capture_output=True).returncode == 0

    def _fetch_over_both(self) -> None:
        document = self._fetched(lambda _: None)
        self.check("fetch over both", self._mbps, document["rate_mbps"], "Mb/s", 0.95)
        for name, mbps in RATES_MBPS.items():
            carried = document["interfaces"].get(name, {}).get("mbps", 0.0)
            self.check(f"of it over {name}", mbps * GOODPUT, carried, "Mb/s", 0.9)

    def _fetch_while_one_goes(self) -> None:
        """What both can carry, less what the one does not while it is away."""
        last = len(RATES_MBPS) - 1
        name, mbps = [*RATES_MBPS.items()][last]

        def change(began_s: float) -> None:
            for at_s, state in zip(AWAY, ("down", "up"), strict=True):
                time.sleep(max(0.0, began_s + at_s - time.monotonic()))
                run("ip", "-n", self._server, "link", "set", f"to-{name}", state)
            _route(None, last)

        document = self._fetched(change)
        best_s = (self._bytes * 8e-6 + mbps * GOODPUT * (AWAY[1] - AWAY[0])) / self._mbps
        self.check(f"seconds while {name} was away", best_s, document["seconds"], "s", at_most=1.2)
        # More than it can have carried before it went; when it is tried again takes up to a second of a short download.
        is_used = document["interfaces"][name]["bytes"] > AWAY[0] * mbps * GOODPUT * 125_000
        self.check("it was used again", 1.0, float(is_used), "", 1.0)

    def _fetched(self, meanwhile: Callable[[float], None]) -> dict[str, Any]:
        """A download with its checksum; its document."""
        self._target.unlink(missing_ok=True)
        words = [
            *HYROADS,
            "fetch",
            "--json",
            "--checksum",
            f"sha256:{self._digest}",
            "-o",
            str(self._target),
            self._url,
        ]
        began_s = time.monotonic()
        fetch = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        meanwhile(began_s)
        out, error = fetch.communicate(timeout=60.0 + 10 * self.options.seconds)
        if fetch.returncode != 0:
            raise EmulationError(error.strip().splitlines()[-1] if error.strip() else "hyroads fetch failed")
        document: dict[str, Any] = json.loads(out)["files"][0]
        return document

    def _aria2(self) -> None:
        """The same file by aria2, to compare with; nothing if it is not installed."""
        if shutil.which("aria2c") is None:
            return
        self._target.unlink(missing_ok=True)
        interfaces = f"--multiple-interface={','.join(RATES_MBPS)}"
        words = ["aria2c", "-q", interfaces, "-x16", "-s16", "-k1M", "--file-allocation=none", "-d", str(self._folder)]
        began_s = time.monotonic()
        done = subprocess.run([*words, "-o", "film.bin", self._url], check=False, capture_output=True)
        mbps = self._bytes * 8e-6 / (time.monotonic() - began_s)
        self.check("aria2 over both, to compare", self._mbps, mbps if done.returncode == 0 else 0.0)

    def _proxy(self) -> None:
        """curl through the proxy, which splits one GET over both."""
        words = [*HYROADS, "proxy", "--listen", PROXY, "--interfaces", ",".join(RATES_MBPS)]
        proxy = Program("proxy", words, self._folder / "proxy.log")
        proxy.start()
        wait_until("the proxy", lambda: "listens on" in (self._folder / "proxy.log").read_text(), 10.0)
        self._target.unlink(missing_ok=True)
        began_s = time.monotonic()
        words = ["curl", "-sSf", "-x", f"http://{PROXY}", "-o", str(self._target), self._url]
        subprocess.run(words, check=False, env={**os.environ, "no_proxy": ""})
        seconds = time.monotonic() - began_s
        proxy.stop()
        found = hashlib.sha256(self._target.read_bytes()).hexdigest() if self._target.exists() else ""
        self.check("every byte through the proxy", 1.0, float(found == self._digest), "", 1.0)
        self.check("curl through the proxy", self._mbps, self._bytes * 8e-6 / seconds, "Mb/s", 0.9)

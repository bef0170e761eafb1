"""The process ``hyroads slicer`` on a real Open vSwitch, with unmodified Ryu applications as guests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import ovs_rig

from hyroads.rest.client import Client, address

MANAGER = "from hyroads.controller.framework.launcher import ryu_manager; raise SystemExit(ryu_manager())"
SLICER_PORT = 6633


class Control:
    """The control socket of a slicer."""

    def __init__(self, path: str) -> None:
        self.url = f"unix:{path}"

    def ask(self, method: str, *parts: str, document: Any = None) -> Any:
        """The document of the answer; ApiError if it is refused."""
        with Client(self.url) as client:
            return client.request(method, address(*parts), document).document


class SlicerRig(ovs_rig.Rig):
    """One switch ``s1`` with hosts 10.0.0.i at ports ``p<i>``; everything else runs in the switch's namespace."""

    def __init__(self) -> None:
        super().__init__()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.hosts: dict[int, str] = {}
        self.nodes: dict[str, str] = {}
        self.ips: dict[str, str] = {}
        self.config = self.folder / "slicer.json"

    def __exit__(self, *words: object) -> None:
        for name in list(self.processes):
            self.stop(name)
        super().__exit__(*words)

    def start(self, name: str, *words: str) -> None:
        """A process in the switch's namespace; its output is in ``<name>.log``."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                ["ip", "netns", "exec", self.namespace, *words], stdout=log, stderr=log, env=dict(os.environ)
            )

    def stop(self, name: str, number: int = signal.SIGTERM) -> int:
        """End a process, and how it ended."""
        process = self.processes.pop(name)
        process.send_signal(number)
        try:
            return process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait(10)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def ryu(self, name: str, port: int, *apps: str) -> None:
        """Ryu's own manager with applications that come with it."""
        words = ("--ofp-tcp-listen-port", str(port), "--wsapi-port", str(port + 2000))
        self.start(name, sys.executable, "-c", MANAGER, *words, *(apps or ("ryu.app.simple_switch_13",)))

    def settings(self, slices: list[dict[str, Any]], **more: Any) -> None:
        document = {"slices": slices, "state_file": "slicer.state", "listen": {"control": "control"}, **more}
        self.config.write_text(json.dumps(document))
        self.config.chmod(0o600)

    def slicer(self) -> None:
        self.start("slicer", sys.executable, "-m", "hyroads.controller.cli", "slicer", "--config", str(self.config))

    def slices(self, *words: str) -> subprocess.CompletedProcess[str]:
        """``hyroads slices`` on the control socket."""
        command = (sys.executable, "-m", "hyroads.controller.cli", "slices", "--socket", str(self.folder / "control"))
        return subprocess.run((*command, *words), check=False, capture_output=True, text=True, timeout=60)

    def ask(self, *words: str) -> Any:
        """The JSON answer to a verb."""
        done = self.slices("--json", *words)
        if done.returncode:
            raise RuntimeError(done.stderr)
        return json.loads(done.stdout)

    def switch(self, name: str = "s1", dpid: int = 1, hosts: range = range(1, 7)) -> None:
        self.bridge(name, dpid, controlled=False)
        for i in hosts:
            self.hosts[i] = self.host(name, f"p{i}", i, f"02:00:00:00:00:{i:02x}", f"10.0.0.{i}")
        self.vsctl("set-controller", name, f"tcp:127.0.0.1:{SLICER_PORT}")
        self.vsctl("set", "controller", name, "max_backoff=1000")

    def reaches(self, one: int, other: int, *options: str) -> bool:
        return self.ping(self.hosts[one], f"10.0.0.{other}", "-c", "3", *options) > 0

    def flows(self, table: int | None = None, name: str = "s1") -> list[str]:
        """Flows as ovs-ofctl writes them, without counters."""
        words = ("--no-stats", "dump-flows", name) + (() if table is None else (f"table={table}",))
        return [line.strip() for line in self.ofctl(*words).splitlines() if "actions=" in line]


def available() -> bool:
    return ovs_rig.available() and Path("/proc/self/ns/net").exists()

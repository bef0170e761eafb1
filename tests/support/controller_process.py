"""The real controller as a process on loopback, with no switches and no agents: for what needs its REST API alone."""

from __future__ import annotations

import json
import os
import random
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
NETWORK = ROOT / "mininet" / "networks" / "triangle.yaml"
PROGRAM = "from hyroads.controller.framework.launcher import run_controller; raise SystemExit(run_controller())"
WITHIN_S = 60.0
PORTS = (18_000, 32_000)
# Not of a seed: tests that run side by side may have the same.
_RANDOM = random.SystemRandom()
_TAKEN: deque[socket.socket] = deque(maxlen=256)
"""Says to other processes of tests which ports this one was given last; the kernel forgets it with the process."""


def eventually(what: Callable[[], Any], within_s: float = WITHIN_S) -> Any:
    """The first true value of ``what``; fails with the last false one."""
    until_s = time.monotonic() + within_s
    while not (value := what()):
        assert time.monotonic() < until_s, f"not within {within_s} s: {value!r}"
        time.sleep(0.02)
    return value


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody uses now, that no other process of tests is given, and that no connection is given
    while nobody listens there.
    """
    sockets: list[socket.socket] = []
    while len(sockets) < count:
        # Below those of the kernel for connections: who dials such a port in vain may end up with itself.
        port = _RANDOM.randrange(*PORTS)
        with suppress(OSError):
            mark = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            # Whoever is to listen there may take seconds until it does.
            mark.bind(f"\0hyroads-test-port-{port}")
            sockets.append(socket.create_server(("127.0.0.1", port)))
            _TAKEN.append(mark)
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class ControllerProcess:
    """Runs as a context; ``settings`` are added to the few that it needs."""

    def __init__(self, folder: Path, settings: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> None:
        self.openflow, self.agents, self.port = free_ports(3)
        ports = {"openflow": self.openflow, "agents": self.agents, "rest": self.port}
        listen = {name: {"port": port} for name, port in ports.items()}
        document = {"network": str(NETWORK), "listen": listen, "timings": {"grace_s": 0.2}, **settings}
        self.settings = folder / "hyroads.json"
        self.settings.write_text(json.dumps(document))
        self.settings.chmod(0o600)
        self.log = folder / "controller.log"
        self.command = [sys.executable, "-c", PROGRAM]
        self.context: ssl.SSLContext | None = None
        """For REST over TLS."""
        self.environment = {**os.environ, **(environment or {}), "HYROADS_CONFIG": str(self.settings)}

    def __enter__(self) -> ControllerProcess:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command, env=self.environment, stdout=log, stderr=log)
        try:
            eventually(lambda: self.process.poll() is not None or self.rest("GET", "/health")[0])
            assert self.process.poll() is None, self.log.read_text()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def rest(self, method: str, path: str, body: object = None, token: str | None = None) -> tuple[int, Any]:
        """Status and document; status 0 while nobody answers."""
        data = None if body is None else json.dumps(body).encode()
        scheme = "http" if self.context is None else "https"
        request = urllib.request.Request(f"{scheme}://127.0.0.1:{self.port}/api/v1{path}", data, method=method)
        request.add_header("Content-Type", "application/json")
        if token is not None:
            request.add_header("Authorization", f"Bearer {token}")
        try:
            with urllib.request.urlopen(request, timeout=20, context=self.context) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read() or b"null")
        except OSError:
            return 0, None

    def metrics(self) -> str:
        """What Prometheus would read."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=20) as answer:
            return str(answer.read().decode())

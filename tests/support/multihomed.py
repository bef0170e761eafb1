"""A client with two interfaces and the world behind them, in two network namespaces of this process's own.

``wlan0`` (10.1.0.2, gateway 10.1.0.1) and ``wwan0`` (10.2.0.2, gateway 10.2.0.1); the server is 198.51.100.9.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

SERVER = "198.51.100.9"
HYROADS = (sys.executable, "-m", "hyroads.controller.cli")
_NUMBERS = itertools.count(1)


def run(*command: str, check: bool = True, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, input=text, capture_output=True, text=True, check=check, timeout=30)


def wait_until(condition: Callable[[], bool], timeout_s: float = 15.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, "not within time"
        time.sleep(0.02)


class World:
    def __init__(self, folder: Path) -> None:
        number = f"{os.getpid()}-{next(_NUMBERS)}"
        self.folder = folder
        self.client, self.net = f"hr-client-{number}", f"hr-world-{number}"
        self.children: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> World:
        for name in (self.client, self.net):
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
        for place, interface in enumerate(("wlan0", "wwan0"), start=1):
            far = f"to-{interface}"
            run("ip", "-n", self.client, "link", "add", interface, "type", "veth", "peer", far, "netns", self.net)
            for name, device, end in ((self.client, interface, 2), (self.net, far, 1)):
                run("ip", "-n", name, "address", "add", f"10.{place}.0.{end}/24", "dev", device)
                run("ip", "-n", name, "link", "set", device, "up")
            metric = ("metric", str(100 * place)) if place > 1 else ()
            run("ip", "-n", self.client, "route", "add", "default", "via", f"10.{place}.0.1", *metric)
        run("ip", "-n", self.net, "address", "add", f"{SERVER}/32", "dev", "lo")
        self.inside(self.net, "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv4.conf.all.rp_filter=0")
        self.inside(self.client, "sysctl", "-qw", "net.ipv4.conf.all.rp_filter=1")
        return self

    def __exit__(self, *_: object) -> None:
        for child in self.children:
            if child.poll() is None:
                child.kill()
            child.wait()
        for name in (self.client, self.net):
            for pid in run("ip", "netns", "pids", name, check=False).stdout.split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            run("ip", "netns", "delete", name, check=False)

    def inside(self, name: str, *command: str, check: bool = True) -> str:
        done = run("ip", "netns", "exec", name, *command, check=check)
        return done.stdout + ("" if check else done.stderr)

    def start(self, name: str, *command: str, log: Path) -> subprocess.Popen[bytes]:
        with log.open("ab") as file:
            child = subprocess.Popen(
                ["ip", "netns", "exec", name, *command], stdin=subprocess.DEVNULL, stdout=file, stderr=file
            )
        self.children.append(child)
        return child

    def python(self, name: str, code: str, *, check: bool = True) -> str:
        return self.inside(name, sys.executable, "-c", code, check=check)

    def route(self, target: str, *words: str) -> dict[str, Any]:
        """The client's route to an address; empty if there is none."""
        said = self.inside(self.client, "ip", "-j", "route", "get", target, *words, check=False)
        return dict(json.loads(said)[0]) if said.startswith("[{") else {}

    def state(self, name: str) -> dict[str, str]:
        """All that a client or waypoint changes of its host."""
        commands = {
            "rules4": "ip -4 rule",
            "rules6": "ip -6 rule",
            "routes4": "ip -4 route show table all",
            "links": "ip -br link",
            "filter": "nft list ruleset",
            "ports": "sysctl net.ipv4.ip_local_reserved_ports net.ipv4.ip_forward net.ipv6.conf.all.forwarding",
            "sysctls": "sysctl -ar net.ipv[46].conf.*.(rp_filter|arp_ignore|arp_announce|linkdown|accept_ra)$",
        }
        return {what: self.inside(name, *command.split(), check=False) for what, command in commands.items()}


@contextlib.contextmanager
def tcp_server(world: World, port: int) -> Iterator[None]:
    """A server that says from where it was called."""
    code = (
        "import socket\n"
        f"s = socket.create_server(('0.0.0.0', {port}))\n"
        "print('ready', flush=True)\n"
        "while True:\n"
        "    c, a = s.accept(); c.sendall(a[0].encode()); c.close()\n"
    )
    child = subprocess.Popen(
        ["ip", "netns", "exec", world.net, sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    try:
        yield
    finally:
        child.kill()
        child.wait()
        child.stdout.close()

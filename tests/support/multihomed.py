"""A client with two interfaces and the world behind them, in network namespaces of this process's own.

``wlan0`` (10.1.0.2, gateway 10.1.0.1) and ``wwan0`` (10.2.0.2, gateway 10.2.0.1) lead to a router, which is also the
server 198.51.100.9; behind it is the host 203.0.113.2.
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

import scripted_client_program as scripted
from waypoint_certificates import make_certificate

SERVER = "198.51.100.9"
FAR = "203.0.113.2"
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
        self.client, self.net, self.far = (f"hr-{name}-{number}" for name in ("client", "world", "far"))
        self.children: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> World:
        try:
            self._set_up()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _set_up(self) -> None:
        for name in (self.client, self.net, self.far):
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
        run("ip", "-n", self.net, "link", "add", "to-far", "type", "veth", "peer", "far0", "netns", self.far)
        for name, device, address in ((self.net, "to-far", "203.0.113.1"), (self.far, "far0", FAR)):
            run("ip", "-n", name, "address", "add", f"{address}/24", "dev", device)
            run("ip", "-n", name, "link", "set", device, "up")
        run("ip", "-n", self.far, "route", "add", "default", "via", "203.0.113.1")
        self.inside(self.net, "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv4.conf.all.rp_filter=0")
        self.inside(self.client, "sysctl", "-qw", "net.ipv4.conf.all.rp_filter=1")

    def __exit__(self, *_: object) -> None:
        for child in self.children:
            if child.poll() is None:
                child.kill()
            child.wait()
        for name in (self.client, self.net, self.far):
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


class Host:
    """A daemon in a namespace, its files, and the stand-in for ``hyroads-client`` unless it is the ``real`` one."""

    def __init__(self, world: World, namespace: str, name: str, *, real: str | None = None) -> None:
        self.world, self.namespace = world, namespace
        self.folder = world.folder / name
        self.policy, self.asked, self.log = self.folder / "client.yaml", self.folder / "asked", self.folder / "log"
        self.programs = self.folder / "bin" if real is None else Path(real).parent
        self.folder.mkdir(exist_ok=True)
        if real is None:
            scripted.install(self.programs, self.asked)
        self.folders = ["--run-directory", str(self.folder / "run"), "--state-directory", str(self.folder / "state")]
        self.daemon: subprocess.Popen[bytes] | None = None
        self.prefix: tuple[str, ...] = ()
        """Of the command that starts it."""

    def start(self, verb: str = "run", *words: str) -> None:
        given = words or ("--config", str(self.policy))
        command = (*self.prefix, "env", f"HYROADS_BIN={self.programs}", *HYROADS, "client", verb, *given, *self.folders)
        before = self.said().count(" ready")
        self.daemon = self.world.start(self.namespace, *command, log=self.log)
        daemon = self.daemon
        wait_until(lambda: self.said().count(" ready") > before or daemon.poll() is not None)
        assert daemon.poll() is None, self.said()

    def said(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def told(self, kind: str) -> list[dict[str, Any]]:
        return scripted.asked(self.asked, kind)

    def hyroads(self, verb: str, *words: str) -> subprocess.CompletedProcess[str]:
        command = [*HYROADS, "client", verb, *words, *self.folders[:2]]
        return subprocess.run(command, capture_output=True, text=True, timeout=30)

    def status(self) -> dict[str, Any]:
        return dict(json.loads(self.hyroads("status", "--json").stdout))

    def signal(self, number: int) -> None:
        assert self.daemon is not None
        self.daemon.send_signal(number)

    def end(self) -> int:
        assert self.daemon is not None
        self.signal(signal.SIGTERM)
        return self.daemon.wait(10)


TOKEN = "0123456789abcdef"


def make_tokens(folder: Path) -> tuple[str, ...]:
    """Certificate, key and tokens of a waypoint at ``SERVER``, and the token of its client; options of the command."""
    make_certificate(folder, "waypoint", SERVER)
    for name, text in (("tokens", f"laptop1 {TOKEN}\n"), ("token", TOKEN)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o600)
    files = {"certificate": "waypoint.pem", "key": "waypoint.key", "tokens": "tokens"}
    words = [word for option, name in files.items() for word in (f"--{option}", str(folder / name))]
    # The router has several addresses: it must answer from the one that clients know.
    return ("--listen", f"{SERVER}:6656", *words)


def waypoint_of(folder: Path, certificate: str = "waypoint.pem") -> str:
    """The client's end of that, for its policy."""
    files = f"token_file: {folder / 'token'}, ca_file: {folder / certificate}"
    return f"{{address: {SERVER}, {files}, name: laptop1}}"


@contextlib.contextmanager
def tcp_server(world: World, port: int, namespace: str | None = None) -> Iterator[None]:
    """A server that says from where it was called; in the router's namespace unless another is named."""
    code = (
        "import socket\n"
        f"s = socket.create_server(('0.0.0.0', {port}))\n"
        "print('ready', flush=True)\n"
        "while True:\n"
        "    c, a = s.accept(); c.sendall(a[0].encode()); c.close()\n"
    )
    child = subprocess.Popen(
        ["ip", "netns", "exec", namespace or world.net, sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    try:
        yield
    finally:
        child.kill()
        child.wait()
        child.stdout.close()

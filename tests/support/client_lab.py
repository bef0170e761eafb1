"""Hosts at access ports: real Open vSwitch, the real controller, frames made by hand and sent by raw sockets.

Used by integration tests and benchmarks. All of it runs in a namespace of its own; each access port has one more, at
whose end any number of hosts may be.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import ovs_rig
from whole_frames import keep_tags, receive_whole

from hyroads.controller.core.addressing import Addressing
from hyroads.controller.core.netfile import load_text
from hyroads.mininet.isolation import enter_network_namespace

OPENFLOW, AGENTS, REST = 16653, 16654, 18080
PROGRAM = "from hyroads.controller.framework.launcher import run_controller; raise SystemExit(run_controller())"
BROADCAST = "ff:ff:ff:ff:ff:ff"
ETH_P_ALL = 3
Result = TypeVar("Result")


def mesh(access_points: int) -> str:
    """A network file: access points in a ring on two technologies, without agents."""
    names = [f"n{i}" for i in range(access_points)]
    nodes = "\n".join(f"  {name}: {{role: ap, agent: false}}" for name in names)
    links = [
        f"  - {{id: {a}-{b}-{k}, from: {a}, to: {b}, technology: {k}, capacity_mbps: 100, both: true}}"
        for k in ("plc", "wifi")
        for a, b in zip(names, names[1:] + names[: access_points > 2], strict=False)
    ]
    return f"nodes:\n{nodes}\nlinks:\n" + "\n".join(links) + "\ninterference:\n  rule: technology\n"


def frame(source: str, target: str, payload: bytes = b"hyroads", eth_type: int = 0x88B7) -> bytes:
    """An Ethernet frame of at least 60 bytes."""
    head = bytes.fromhex(target.replace(":", "") + source.replace(":", "")) + struct.pack("!H", eth_type)
    return (head + payload).ljust(60, b"\0")


def eventually(what: Callable[[], Any], within_s: float = 30.0) -> Any:
    """The first true value of ``what``; fails with the last false one."""
    until_s = time.monotonic() + within_s
    while not (value := what()):
        if time.monotonic() > until_s:
            raise AssertionError(f"not within {within_s} s: {value!r}")
        time.sleep(0.05)
    return value


def within(namespace: str, call: Callable[[], Result]) -> Result:
    """What a function returns in a thread of its own in another network namespace."""
    results: list[Any] = []

    def work() -> None:
        try:
            enter_network_namespace(Path("/run/netns") / namespace)
            results.append((call(), None))
        except BaseException as error:  # noqa: BLE001 - raised again below
            results.append((None, error))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    value, error = results[0]
    if error is not None:
        raise error
    return value  # type: ignore[no-any-return]


class ClientLab(ovs_rig.Rig):
    """``network`` is the text of a network file, ``settings`` what goes into the controller's besides."""

    def __init__(self, network: str, settings: dict[str, Any] | None = None) -> None:
        super().__init__()
        self.text = network
        self.settings = settings or {}
        self.network = load_text(network, "lab")
        self.addressing = Addressing.of(self.network)
        self.controller: subprocess.Popen[bytes] | None = None
        self.sockets: dict[str, socket.socket] = {}
        self.hosts: dict[str, str] = {}
        """Namespace of the host at each node."""
        self.log = self.folder / "controller.log"

    def __enter__(self) -> ClientLab:
        super().__enter__()
        try:
            hosts = self.hosts = self.build(self.network, self.addressing)
            for node, namespace in hosts.items():
                self.sockets[node] = within(namespace, self._open)
            # A switch that dials in vain waits twice as long each time, up to eight seconds.
            self.start_controller(alone=True)
            for node in self.addressing.dpid:
                self.connect(node)
            eventually(lambda: self.rest("GET", "/health")[1]["ok"], 30)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.stop_controller()
        for raw in self.sockets.values():
            raw.close()
        super().__exit__(*error)

    def connect(self, node: str, port: int = OPENFLOW) -> None:
        """A node's switch dials from now on. (One without any controller would forget its rules.)"""
        self.vsctl("set-controller", node, f"tcp:127.0.0.1:{port}")
        self.vsctl("set", "controller", node, "max_backoff=1000", "inactivity_probe=5000")

    def start_controller(self, *, alone: bool = False) -> None:
        """And wait until it has all switches; or, if they do not dial yet, until it answers."""
        (self.folder / "lab.yaml").write_text(self.text)
        listen = {"openflow": {"port": OPENFLOW}, "agents": {"port": AGENTS}, "rest": {"port": REST}}
        settings = self.folder / "hyroads.json"
        settings.write_text(json.dumps({"network": "lab.yaml", "listen": listen, **self.settings}))
        settings.chmod(0o600)
        command = ["ip", "netns", "exec", self.namespace, sys.executable, "-c", PROGRAM]
        with self.log.open("ab") as log:
            environment = {**os.environ, "HYROADS_CONFIG": str(settings)}
            self.controller = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            eventually(lambda: (health := self.rest("GET", "/health")[1]).get("ok") or (alone and health), 90)
        except AssertionError as error:
            raise AssertionError(self.log.read_text()[-3000:]) from error

    def stop_controller(self) -> None:
        """As a power cut would."""
        if self.controller is not None and self.controller.poll() is None:
            self.controller.kill()
            self.controller.wait()

    def roam(self, client: str, node: str, technology: str) -> None:
        """A plain client sends everything to another access point from now on."""
        at, to = self.addressing.node_number[client], self.addressing.node_number[node]
        medium = f"medium{self.addressing.technology_number[technology]}"
        self.ofctl("add-flow", medium, f"priority=30,in_port={at},actions=output:{to}")
        # What Open vSwitch has cached is looked at again within half a second.
        time.sleep(0.6)

    @contextlib.contextmanager
    def radio(self, node: str) -> Iterator[socket.socket]:
        """A session of an access point's radios, until the context ends; lines of JSON go in."""

        def dial() -> socket.socket:
            return socket.create_connection(("127.0.0.1", AGENTS), timeout=5)

        session = within(self.namespace, dial)
        hello = {"type": "hello", "version": 1, "role": "radio", "node": node, "program": "test", "boot": "1"}
        session.sendall(json.dumps({**hello, "token": None, "revision": 0}).encode() + b"\n")

        def answer() -> None:
            with contextlib.suppress(OSError, ValueError):
                for line in session.makefile("rb"):
                    message = json.loads(line)
                    if message["type"] == "ping":
                        session.sendall(json.dumps({"type": "pong", "seq": message["seq"]}).encode() + b"\n")

        session.settimeout(None)
        threading.Thread(target=answer, daemon=True).start()
        try:
            yield session
        finally:
            # The thread's file would hold the connection open.
            session.shutdown(socket.SHUT_RDWR)
            session.close()

    def cpu_s(self) -> float:
        """Processor time of the controller so far."""
        assert self.controller is not None
        fields = Path(f"/proc/{self.controller.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    # -- hosts

    def send(self, node: str, source: str, target: str = BROADCAST, **how: Any) -> None:
        """A host at the access port of a node sends a frame."""
        self.sockets[node].send(frame(source, target, **how))

    def received(self, node: str) -> Iterator[bytes]:
        """Frames that came out of a node's access port since the last time."""
        while True:
            try:
                data, kind = receive_whole(self.sockets[node], 2048)
            except BlockingIOError:
                return
            if kind != socket.PACKET_OUTGOING:
                yield data

    def came(self, node: str, payload: bytes, within_s: float = 3.0) -> bool:
        """Whether a frame with this payload comes out of a node's access port."""
        until_s = time.monotonic() + within_s
        while time.monotonic() < until_s:
            if any(payload in data for data in self.received(node)):
                return True
            time.sleep(0.01)
        return False

    @staticmethod
    def _open() -> socket.socket:
        raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        keep_tags(raw)
        raw.bind(("eth0", 0))
        raw.setblocking(False)
        return raw

    # -- what the switches have, what the controller says

    def flows(self, node: str) -> list[str]:
        """Rules of a switch."""
        dump = self.ofctl("--no-stats", "dump-flows", node)
        return [line.strip() for line in dump.splitlines() if "actions=" in line]

    def text_of(self, path: str) -> str:
        """What a GET answers, as text."""

        def call() -> str:
            with urllib.request.urlopen(f"http://127.0.0.1:{REST}{path}", timeout=10) as answer:
                return str(answer.read(), "utf-8")

        return within(self.namespace, call)

    def metrics(self) -> str:
        """The page for Prometheus."""
        return self.text_of("/metrics")

    def rest(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """A request from inside; (0, {}) while nobody answers."""

        def call() -> tuple[int, Any]:
            data = None if body is None else json.dumps(body).encode()
            request = urllib.request.Request(f"http://127.0.0.1:{REST}/api/v1{path}", data, method=method)
            request.add_header("Content-Type", "application/json")
            try:
                with urllib.request.urlopen(request, timeout=10) as answer:
                    return answer.status, json.loads(answer.read() or b"null")
            except urllib.error.HTTPError as error:
                return error.code, json.loads(error.read() or b"null")
            except urllib.error.URLError:
                return 0, {}

        return within(self.namespace, call)

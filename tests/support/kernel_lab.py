"""The kernel plane on real packets: a client with interfaces ``e1..en``, a network, a waypoint and a server (root).

Each is a network namespace; all links are plain veth pairs to the network, which forwards. The server is at
``SERVER4``/``SERVER6``, the waypoint at ``WAYPOINT4``; interface k of the client has 10.1.k.2 and fd01:k::2.
"""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from hyroads.mininet.isolation import enter_network_namespace
from hyroads.mininet.programs import Scope, run

SERVER4, SERVER6 = "198.51.100.9", "fd09::9"
WAYPOINT4, WAYPOINT6 = "192.0.2.1", "fd08::1"
CLIENT4, CLIENT6 = "100.72.0.2", "fd68::2"
SESSION, PORT = 7, 6656
END = Path(__file__).with_name("kernel_end.py")


class EndError(Exception):
    """What an end said to a command."""


class End:
    """A process of ``kernel_end.py`` in a namespace."""

    def __init__(self, namespace: str, kind: str, state: Path) -> None:
        self.took_s = 0.0
        self.process = subprocess.Popen(
            ["ip", "netns", "exec", namespace, sys.executable, str(END), kind, str(state)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def do(self, what: str, **arguments: Any) -> Any:
        """Carry a command out; raises EndError with its words if it is refused."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps({"do": what, **arguments}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        told = json.loads(line) if line else {"error": "the end died"}
        self.took_s = told.get("took_s", 0.0)
        if "error" in told:
            raise EndError(told["error"])
        return told["ok"]

    def kill(self) -> None:
        """End it at once, as a crash would."""
        self.process.kill()
        self.process.wait(10)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


class KernelLab(Scope):
    """The namespaces while the context lasts; ``name`` begins their names."""

    def __init__(self, name: str, folder: Path, interfaces: int = 2) -> None:
        super().__init__()
        self.name = name
        self.folder = folder
        self.interfaces = interfaces
        self._ends: list[End] = []

    def __exit__(self, *_: object) -> None:
        for end in self._ends:
            if end.process.returncode is None:
                end.kill()
        super().__exit__()

    def namespace(self, side: str) -> str:
        return f"{self.name}-{side}"

    def run(self, side: str, *command: str, timeout_s: float = 20.0) -> str:
        return run("ip", "netns", "exec", self.namespace(side), *command, timeout_s=timeout_s)

    def end(self, kind: str) -> End:
        """A new process of the plane at ``client`` or ``waypoint`` (or ``server``, which then is a peer)."""
        end = End(self.namespace(kind), "client" if kind == "client" else "waypoint", self.folder / f"{kind}.json")
        self._ends.append(end)
        return end

    def document(self, **changes: Any) -> dict[str, Any]:
        """A ``configure`` document: everything goes directly, by all interfaces."""
        names = [f"e{k}" for k in range(1, self.interfaces + 1)]
        rest = {"name": "rest", "match": {}, "interfaces": names}
        document = {"address4": CLIENT4, "address6": CLIENT6, "waypoint": None, "rules": [rest]}
        return {**document, "interfaces": [{"name": name} for name in names], **changes}

    def through_waypoint(self, address: str = WAYPOINT4, **rule: Any) -> dict[str, Any]:
        """A ``configure`` document: everything goes through the waypoint."""
        document = self.document(waypoint={"address": address, "port": PORT, "session": SESSION, "key": "00" * 16})
        document["rules"][0] |= {"via": "waypoint", **rule}
        return document

    def sessions(self, endpoints: dict[int, str] | None = None, usable: tuple[int, ...] = (1, 2, 3, 4)) -> list[Any]:
        """The waypoint's document for this client."""
        found = endpoints or {k: f"10.1.{k}.2" for k in range(1, self.interfaces + 1)}
        paths = [{"number": k, "endpoint": each, "usable": k in usable} for k, each in found.items()]
        return [{"session": SESSION, "address4": CLIENT4, "address6": CLIENT6, "paths": paths}]

    def socket(self, side: str, family: int = socket.AF_INET, kind: int = socket.SOCK_STREAM) -> socket.socket:
        """A socket in a namespace, made by a thread that ends there; it waits at most 10 s."""
        made: list[socket.socket] = []

        def work() -> None:
            enter_network_namespace(Path("/run/netns") / self.namespace(side))
            made.append(socket.socket(family, kind))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        made[0].settimeout(10.0)
        if kind == socket.SOCK_STREAM:
            made[0].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made[0].setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
        return made[0]

    def sent(self, interface: str) -> int:
        """Packets that the client has sent by an interface."""
        told = json.loads(run("ip", "-json", "-s", "-n", self.namespace("client"), "link", "show", interface))
        return int(told[0]["stats64"]["tx"]["packets"])

    def add_lan(self) -> None:
        """A host behind the client, which then is a router: namespace ``lan``, 10.9.0.2 and fd0a::2."""
        run("ip", "netns", "add", self.namespace("lan"))
        self._stack.callback(run, "ip", "netns", "del", self.namespace("lan"))
        self.run("client", "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
        self._link("lan", "eth", "10.9.0.2", "10.9.0.1", "fd0a::2", "fd0a::1", far_side="client")

    def _build(self) -> None:
        for side in ("client", "net", "waypoint", "server"):
            run("ip", "netns", "add", self.namespace(side))
            self._stack.callback(run, "ip", "netns", "del", self.namespace(side))
            run("ip", "-n", self.namespace(side), "link", "set", "lo", "up")
            self.run(side, "sysctl", "-qw", "net.ipv6.conf.all.accept_dad=0", "net.ipv6.conf.default.accept_dad=0")
        self.run("net", "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
        for k in range(1, self.interfaces + 1):
            self._link("client", f"e{k}", f"10.1.{k}.2", f"10.1.{k}.1", f"fd01:{k}::2", f"fd01:{k}::1", metric=k)
        self._link("waypoint", "wan", WAYPOINT4, "192.0.2.254", WAYPOINT6, "fd08::254")
        self._link("server", "wan", SERVER4, "198.51.100.254", SERVER6, "fd09::254")

    def _link(
        self, side: str, name: str, own4: str, far4: str, own6: str, far6: str, metric: int = 1, far_side: str = "net"
    ) -> None:
        namespace, net, far = self.namespace(side), self.namespace(far_side), f"{name}-{side[0]}"
        run("ip", "link", "add", name, "netns", namespace, "type", "veth", "peer", "name", far, "netns", net)
        for space, device, four, six in ((namespace, name, own4, own6), (net, far, far4, far6)):
            run("ip", "-n", space, "addr", "add", f"{four}/24", "dev", device)
            run("ip", "-n", space, "-6", "addr", "add", f"{six}/64", "dev", device, "nodad")
            run("ip", "-n", space, "link", "set", device, "up")
        for version, gateway in (("-4", far4), ("-6", far6)):
            run(
                "ip",
                "-n",
                namespace,
                version,
                "route",
                "add",
                "default",
                "via",
                gateway,
                "dev",
                name,
                "metric",
                str(metric),
            )


class Stream:
    """A running TCP connection: numbers flow from one side to the other, and whoever reads them checks each.

    ``rate_mbps`` is what the sender offers, in a portion each millisecond. Stopped, it knows the longest time between
    two arrivals (``gap_s``) and all arrivals since (``received_bytes``); ``error`` is what broke it.
    """

    def __init__(
        self, lab: KernelLab, address: str = SERVER4, port: int = 7000, *, down: bool = False, rate_mbps: float = 40.0
    ) -> None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        listener = lab.socket("server", family)
        listener.bind((address, port))
        listener.listen(1)
        self.client = lab.socket("client", family)
        self.client.connect((address, port))
        self.server, self.peer = listener.accept()
        listener.close()
        self.server.settimeout(10.0)
        self.gap_s, self.received_bytes = 0.0, 0
        self.error: Exception | None = None
        self._portion = int(rate_mbps * 1e6 / 8 / 1000) // 8
        self._stop = threading.Event()
        ends = (self.server, self.client) if down else (self.client, self.server)
        self._sender, self._receiver = ends
        self._threads = [threading.Thread(target=self._guard, args=(work,)) for work in (self._send, self._receive)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let the sender end and the reader read all; raises what broke the connection."""
        self._stop.set()
        for thread in self._threads:
            thread.join(20)
        for each in (self.client, self.server):
            each.close()
        if self.error is not None:
            raise self.error
        if self.received_bytes != self.sent_bytes:
            raise AssertionError(f"{self.sent_bytes} bytes sent, {self.received_bytes} received")

    def forget_gap(self) -> None:
        """Count gaps from now on."""
        self.gap_s = 0.0

    def _guard(self, work: Any) -> None:
        try:
            work()
        except (OSError, AssertionError) as error:
            self.error = self.error or error
            self._stop.set()

    def _send(self) -> None:
        count, self.sent_bytes = 0, 0
        next_s = time.monotonic()
        while not self._stop.is_set():
            data = struct.pack(f">{self._portion}Q", *range(count, count + self._portion))
            self._sender.sendall(data)
            count += self._portion
            self.sent_bytes += len(data)
            next_s = max(next_s + 0.001, time.monotonic() - 0.02)
            time.sleep(max(0.0, next_s - time.monotonic()))
        self._sender.shutdown(socket.SHUT_WR)

    def _receive(self) -> None:
        rest, count = b"", 0
        last_s = time.monotonic()
        while data := self._receiver.recv(1 << 16):
            now_s = time.monotonic()
            self.gap_s, last_s = max(self.gap_s, now_s - last_s), now_s
            self.received_bytes += len(data)
            data = rest + data
            whole = len(data) // 8
            expected = struct.pack(f">{whole}Q", *range(count, count + whole))
            assert data[: whole * 8] == expected, f"wrong bytes near number {count}"
            rest, count = data[whole * 8 :], count + whole

"""The kernel plane on real packets: a client with interfaces ``e1..en``, a network, a waypoint and a server (root).

Each is a network namespace; all links are plain veth pairs to the network, which forwards. The server is at
``SERVER4``/``SERVER6``, the waypoint at ``WAYPOINT4``; interface k of the client has 10.1.k.2 and fd01:k::2.
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from hyroads.mininet.programs import run

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


class KernelLab:
    """The namespaces while the context lasts; ``name`` begins their names."""

    def __init__(self, name: str, folder: Path, interfaces: int = 2) -> None:
        self.name = name
        self.folder = folder
        self.interfaces = interfaces
        self._ends: list[End] = []
        self._stack = ExitStack()

    def __enter__(self) -> KernelLab:
        try:
            self._build()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for end in self._ends:
            if end.process.returncode is None:
                end.kill()
        self._stack.close()

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

    def _link(self, side: str, name: str, own4: str, far4: str, own6: str, far6: str, metric: int = 1) -> None:
        namespace, net, far = self.namespace(side), self.namespace("net"), f"{name}-{side[0]}"
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
